//! AUTH (section 3.15), which only MQTT 5 has.

use super::{CLIENT, Case, SERVER, V5, bad, good, lenient};
use crate::ReasonCode::{MalformedPacket, ProtocolError};

#[rustfmt::skip] // One line per case, if it fits.
pub(super) const CASES: &[Case] = &[
    good(
        "a step with every property", V5, CLIENT,
        b"\xF0\x17\x18\x15\x15\0\x01m\x16\0\x01\xFF\x1F\0\x03why&\0\x01n\0\x01v",
        "AUTH Continue authentication authentication-method=\"m\" authentication-data=1 B \
         reason-string=\"why\" user-property=\"n\":\"v\"",
    ),
    good(
        "a step of a server", V5, SERVER,
        b"\xF0\x06\x18\x04\x15\0\x01m",
        r#"AUTH Continue authentication authentication-method="m""#,
    ),
    good(
        "again", V5, CLIENT,
        b"\xF0\x0A\x19\x08\x15\0\x01m\x16\0\x01\xFF",
        r#"AUTH Re-authenticate authentication-method="m" authentication-data=1 B"#,
    ),
    good("success in short", V5, SERVER, b"\xF0\x00", "AUTH Success"),
    lenient("success in full", V5, SERVER, b"\xF0\x02\0\0", "AUTH Success", b"\xF0\x00"),
    good("without properties", V5, CLIENT, b"\xF0\x02\x18\0", "AUTH Continue authentication"),
    bad("a reason without a property length", V5, CLIENT, b"\xF0\x01\x18", MalformedPacket, "MQTT-4.13.1-1"),
    bad("a reason that there is not", V5, CLIENT, b"\xF0\x02U\0", ProtocolError, "MQTT-3.15.2-1"),
    bad("success from a client", V5, CLIENT, b"\xF0\x00", ProtocolError, "MQTT-3.15.2-1"),
    bad(
        "re-authentication from a server", V5, SERVER,
        b"\xF0\x06\x19\x04\x15\0\x01m", ProtocolError, "MQTT-3.15.2-1",
    ),
    bad(
        "data without a method", V5, CLIENT,
        b"\xF0\x06\x18\x04\x16\0\x01\xFF", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad("surplus bytes", V5, CLIENT, b"\xF0\x03\x18\0\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad("AUTH: an unknown property", V5, CLIENT, b"\xF0\x04\x18\x02\x7F\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad(
        "AUTH: a misplaced subscription identifier", V5, CLIENT,
        b"\xF0\x05\x18\x03\x0B\xAC\x02", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "AUTH: authentication method twice", V5, CLIENT,
        b"\xF0\x0A\x18\x08\x15\0\x01m\x15\0\x01m", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "AUTH: authentication data twice", V5, CLIENT,
        b"\xF0\x0E\x18\x0C\x15\0\x01m\x16\0\x01\xFF\x16\0\x01\xFF", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "AUTH: reason string twice", V5, CLIENT,
        b"\xF0\x0E\x18\x0C\x1F\0\x03why\x1F\0\x03why", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "AUTH: a property length that is not the shortest", V5, CLIENT,
        b"\xF0\x03\x18\x80\0", MalformedPacket, "MQTT-1.5.5-1",
    ),
    bad(
        "AUTH: a property length of 5 bytes", V5, CLIENT,
        b"\xF0\x06\x18\x80\x80\x80\x80\x01", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "AUTH: properties that end inside a value", V5, CLIENT,
        b"\xF0\x07\x18\x05&\0\x01n\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "AUTH: ill-formed UTF-8 in a user property", V5, CLIENT,
        b"\xF0\x09\x18\x07&\0\x01n\0\x01\xFF", MalformedPacket, "MQTT-1.5.7-1",
    ),
    bad(
        "AUTH: U+0000 in a user property", V5, CLIENT,
        b"\xF0\x09\x18\x07&\0\x01\0\0\x01v", MalformedPacket, "MQTT-1.5.4-2",
    ),
];
