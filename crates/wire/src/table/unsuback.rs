//! UNSUBACK (section 3.11).

use super::{BEFORE_5, Case, SERVER, V5, bad, good};
use crate::ReasonCode::{MalformedPacket, ProtocolError};

#[rustfmt::skip] // One line per case, if it fits.
pub(super) const CASES: &[Case] = &[
    good("without codes", BEFORE_5, SERVER, b"\xB0\x02\0\x01", "UNSUBACK id=1"),
    good(
        "every code", V5, SERVER,
        b"\xB0\x0A\0\x01\0\0\x11\x80\x83\x87\x8F\x91",
        "UNSUBACK id=1 Success, No subscription existed, Unspecified error, Implementation specific \
         error, Not authorized, Topic Filter invalid, Packet Identifier in use",
    ),
    good(
        "every property", V5, SERVER,
        b"\xB0\x11\0\x01\x0D\x1F\0\x03why&\0\x01n\0\x01v\0",
        r#"UNSUBACK id=1 reason-string="why" user-property="n":"v" Success"#,
    ),
    bad("a code", BEFORE_5, SERVER, b"\xB0\x03\0\x01\0", MalformedPacket, "MQTT-4.8.0-1"),
    bad("no code", V5, SERVER, b"\xB0\x03\0\x01\0", ProtocolError, "MQTT-3.11.3-1"),
    bad("a code of SUBACK", V5, SERVER, b"\xB0\x04\0\x01\0\x01", ProtocolError, "MQTT-3.11.3-2"),
    bad("packet identifier 0", V5, SERVER, b"\xB0\x04\0\0\0\0", ProtocolError, "MQTT-2.2.1-3"),
    bad("packet identifier 0", BEFORE_5, SERVER, b"\xB0\x02\0\0", ProtocolError, "MQTT-2.3.1-1"),
    bad("half a packet identifier", V5, SERVER, b"\xB0\x01\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad("half a packet identifier", BEFORE_5, SERVER, b"\xB0\x01\0", MalformedPacket, "MQTT-4.8.0-1"),
    bad(
        "UNSUBACK: an unknown property", V5, SERVER,
        b"\xB0\x06\0\x01\x02\x7F\0\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "UNSUBACK: a misplaced subscription identifier", V5, SERVER,
        b"\xB0\x07\0\x01\x03\x0B\xAC\x02\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "UNSUBACK: reason string twice", V5, SERVER,
        b"\xB0\x10\0\x01\x0C\x1F\0\x03why\x1F\0\x03why\0", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "UNSUBACK: a property length that is not the shortest", V5, SERVER,
        b"\xB0\x05\0\x01\x80\0\0", MalformedPacket, "MQTT-1.5.5-1",
    ),
    bad(
        "UNSUBACK: a property length of 5 bytes", V5, SERVER,
        b"\xB0\x08\0\x01\x80\x80\x80\x80\x01\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "UNSUBACK: properties that end inside a value", V5, SERVER,
        b"\xB0\x09\0\x01\x05&\0\x01n\0\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "UNSUBACK: ill-formed UTF-8 in a user property", V5, SERVER,
        b"\xB0\x0B\0\x01\x07&\0\x01n\0\x01\xFF\0", MalformedPacket, "MQTT-1.5.7-1",
    ),
    bad(
        "UNSUBACK: U+0000 in a user property", V5, SERVER,
        b"\xB0\x0B\0\x01\x07&\0\x01\0\0\x01v\0", MalformedPacket, "MQTT-1.5.4-2",
    ),
];
