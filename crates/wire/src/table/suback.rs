//! SUBACK (section 3.9).

use super::{BEFORE_5, Case, SERVER, V3_1, V3_1_1, V5, bad, good};
use crate::ReasonCode::{MalformedPacket, ProtocolError};

#[rustfmt::skip] // One line per case, if it fits.
pub(super) const CASES: &[Case] = &[
    good(
        "every code", V3_1, SERVER,
        b"\x90\x05\0\x01\0\x01\x02",
        "SUBACK id=1 Granted QoS 0, Granted QoS 1, Granted QoS 2",
    ),
    good(
        "every code", V3_1_1, SERVER,
        b"\x90\x06\0\x01\0\x01\x02\x80",
        "SUBACK id=1 Granted QoS 0, Granted QoS 1, Granted QoS 2, Unspecified error",
    ),
    good(
        "every code", V5, SERVER,
        b"\x90\x0F\0\x01\0\0\x01\x02\x80\x83\x87\x8F\x91\x97\x9E\xA1\xA2",
        "SUBACK id=1 Granted QoS 0, Granted QoS 1, Granted QoS 2, Unspecified error, Implementation \
         specific error, Not authorized, Topic Filter invalid, Packet Identifier in use, Quota exceeded, \
         Shared Subscriptions not supported, Subscription Identifiers not supported, Wildcard \
         Subscriptions not supported",
    ),
    good(
        "every property", V5, SERVER,
        b"\x90\x11\0\x01\x0D\x1F\0\x03why&\0\x01n\0\x01v\0",
        r#"SUBACK id=1 reason-string="why" user-property="n":"v" Granted QoS 0"#,
    ),
    bad(
        "a failure, which 3.1 does not have", V3_1, SERVER,
        b"\x90\x03\0\x01\x80", ProtocolError, "MQTT-3.9.3-2",
    ),
    bad("a reason of 5.0", V3_1_1, SERVER, b"\x90\x03\0\x01\x87", ProtocolError, "MQTT-3.9.3-2"),
    bad("code 3", V5, SERVER, b"\x90\x04\0\x01\0\x03", ProtocolError, "MQTT-3.9.3-2"),
    bad("no code", V5, SERVER, b"\x90\x03\0\x01\0", ProtocolError, "MQTT-3.8.4-6"),
    bad("packet identifier 0", V5, SERVER, b"\x90\x04\0\0\0\0", ProtocolError, "MQTT-2.2.1-3"),
    bad("half a packet identifier", V5, SERVER, b"\x90\x01\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad("code 3", BEFORE_5, SERVER, b"\x90\x03\0\x01\x03", ProtocolError, "MQTT-3.9.3-2"),
    bad("no code", BEFORE_5, SERVER, b"\x90\x02\0\x01", ProtocolError, "MQTT-3.8.4-5"),
    bad("packet identifier 0", BEFORE_5, SERVER, b"\x90\x03\0\0\0", ProtocolError, "MQTT-2.3.1-1"),
    bad("half a packet identifier", BEFORE_5, SERVER, b"\x90\x01\0", MalformedPacket, "MQTT-4.8.0-1"),
    bad(
        "SUBACK: an unknown property", V5, SERVER,
        b"\x90\x06\0\x01\x02\x7F\0\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "SUBACK: a misplaced subscription identifier", V5, SERVER,
        b"\x90\x07\0\x01\x03\x0B\xAC\x02\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "SUBACK: reason string twice", V5, SERVER,
        b"\x90\x10\0\x01\x0C\x1F\0\x03why\x1F\0\x03why\0", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "SUBACK: a property length that is not the shortest", V5, SERVER,
        b"\x90\x05\0\x01\x80\0\0", MalformedPacket, "MQTT-1.5.5-1",
    ),
    bad(
        "SUBACK: a property length of 5 bytes", V5, SERVER,
        b"\x90\x08\0\x01\x80\x80\x80\x80\x01\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "SUBACK: properties that end inside a value", V5, SERVER,
        b"\x90\x09\0\x01\x05&\0\x01n\0\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "SUBACK: ill-formed UTF-8 in a user property", V5, SERVER,
        b"\x90\x0B\0\x01\x07&\0\x01n\0\x01\xFF\0", MalformedPacket, "MQTT-1.5.7-1",
    ),
    bad(
        "SUBACK: U+0000 in a user property", V5, SERVER,
        b"\x90\x0B\0\x01\x07&\0\x01\0\0\x01v\0", MalformedPacket, "MQTT-1.5.4-2",
    ),
];
