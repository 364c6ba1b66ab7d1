//! DISCONNECT (section 3.14).

use super::{ALL, BEFORE_5, CLIENT, Case, SERVER, V5, bad, good, lenient};
use crate::ReasonCode::{MalformedPacket, ProtocolError};

#[rustfmt::skip] // One line per case, if it fits.
pub(super) const CASES: &[Case] = &[
    good("all is well", ALL, CLIENT, b"\xE0\x00", "DISCONNECT Normal disconnection"),
    bad("a byte", BEFORE_5, CLIENT, b"\xE0\x01\0", MalformedPacket, "MQTT-4.8.0-1"),
    good("with a reason", V5, CLIENT, b"\xE0\x01\x04", "DISCONNECT Disconnect with Will Message"),
    good("with a reason, from a server", V5, SERVER, b"\xE0\x01\x8E", "DISCONNECT Session taken over"),
    lenient(
        "a reason that goes without saying", V5, CLIENT,
        b"\xE0\x01\0",
        "DISCONNECT Normal disconnection",
        b"\xE0\x00",
    ),
    lenient(
        "an empty property length", V5, CLIENT,
        b"\xE0\x02\x04\0",
        "DISCONNECT Disconnect with Will Message",
        b"\xE0\x01\x04",
    ),
    good(
        "every property of a client", V5, CLIENT,
        b"\xE0\x14\0\x12\x11\0\0\0\x1E\x1F\0\x03why&\0\x01n\0\x01v",
        "DISCONNECT Normal disconnection session-expiry-interval=30 reason-string=\"why\" \
         user-property=\"n\":\"v\"",
    ),
    good(
        "every property of a server", V5, SERVER,
        b"\xE0\x13\x9C\x11\x1F\0\x03why\x1C\0\x01x&\0\x01n\0\x01v",
        "DISCONNECT Use another server reason-string=\"why\" server-reference=\"x\" \
         user-property=\"n\":\"v\"",
    ),
    bad("a reason that there is not", V5, CLIENT, b"\xE0\x013", ProtocolError, "MQTT-3.14.2-1"),
    bad("a reason of CONNACK", V5, CLIENT, b"\xE0\x01\x84", ProtocolError, "MQTT-3.14.2-1"),
    bad("a reason of servers from a client", V5, CLIENT, b"\xE0\x01\x8E", ProtocolError, "MQTT-3.14.2-1"),
    bad("a reason of clients from a server", V5, SERVER, b"\xE0\x01\x04", ProtocolError, "MQTT-3.14.2-1"),
    bad(
        "a server reference from a client", V5, CLIENT,
        b"\xE0\x06\0\x04\x1C\0\x01x", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "a session expiry interval from a server", V5, SERVER,
        b"\xE0\x07\0\x05\x11\0\0\0\x1E", ProtocolError, "MQTT-3.14.2-2",
    ),
    bad("surplus bytes", V5, CLIENT, b"\xE0\x03\0\0\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad(
        "DISCONNECT: an unknown property", V5, CLIENT,
        b"\xE0\x04\0\x02\x7F\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "DISCONNECT: a misplaced subscription identifier", V5, CLIENT,
        b"\xE0\x05\0\x03\x0B\xAC\x02", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "DISCONNECT: session expiry interval twice", V5, CLIENT,
        b"\xE0\x0C\0\x0A\x11\0\0\0\x1E\x11\0\0\0\x1E", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "DISCONNECT: reason string twice", V5, CLIENT,
        b"\xE0\x0E\0\x0C\x1F\0\x03why\x1F\0\x03why", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "DISCONNECT: a property length that is not the shortest", V5, CLIENT,
        b"\xE0\x03\0\x80\0", MalformedPacket, "MQTT-1.5.5-1",
    ),
    bad(
        "DISCONNECT: a property length of 5 bytes", V5, CLIENT,
        b"\xE0\x06\0\x80\x80\x80\x80\x01", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "DISCONNECT: properties that end inside a value", V5, CLIENT,
        b"\xE0\x07\0\x05&\0\x01n\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "DISCONNECT: ill-formed UTF-8 in a user property", V5, CLIENT,
        b"\xE0\x09\0\x07&\0\x01n\0\x01\xFF", MalformedPacket, "MQTT-1.5.7-1",
    ),
    bad(
        "DISCONNECT: U+0000 in a user property", V5, CLIENT,
        b"\xE0\x09\0\x07&\0\x01\0\0\x01v", MalformedPacket, "MQTT-1.5.4-2",
    ),
    bad(
        "server reference twice", V5, SERVER,
        b"\xE0\x0A\x9C\x08\x1C\0\x01x\x1C\0\x01x", ProtocolError, "MQTT-4.13.1-1",
    ),
];
