//! UNSUBSCRIBE (section 3.10).

use super::{BEFORE_5, CLIENT, Case, V5, bad, good};
use crate::ReasonCode::{MalformedPacket, ProtocolError};

#[rustfmt::skip] // One line per case, if it fits.
pub(super) const CASES: &[Case] = &[
    good(
        "two filters", BEFORE_5, CLIENT,
        b"\xA2\x13\0\x01\0\x03a/b\0\x0A$share/g/#",
        r#"UNSUBSCRIBE id=1 "a/b", "$share/g/#""#,
    ),
    good(
        "$share/g is a filter that nobody can have subscribed to", BEFORE_5, CLIENT,
        b"\xA2\x0C\0\x01\0\x08$share/g",
        r#"UNSUBSCRIBE id=1 "$share/g""#,
    ),
    bad("packet identifier 0", BEFORE_5, CLIENT, b"\xA2\x05\0\0\0\x01a", ProtocolError, "MQTT-2.3.1-1"),
    bad("no filter", BEFORE_5, CLIENT, b"\xA2\x02\0\x01", ProtocolError, "MQTT-3.10.3-2"),
    bad("filter a#", BEFORE_5, CLIENT, b"\xA2\x06\0\x01\0\x02a#", MalformedPacket, "MQTT-4.7.1-2"),
    bad("filter a+", BEFORE_5, CLIENT, b"\xA2\x06\0\x01\0\x02a+", MalformedPacket, "MQTT-4.7.1-3"),
    bad("an empty filter", BEFORE_5, CLIENT, b"\xA2\x04\0\x01\0\0", MalformedPacket, "MQTT-4.7.3-1"),
    bad("U+0000 in a filter", BEFORE_5, CLIENT, b"\xA2\x05\0\x01\0\x01\0", MalformedPacket, "MQTT-4.7.3-2"),
    bad(
        "ill-formed UTF-8 in a filter", BEFORE_5, CLIENT,
        b"\xA2\x08\0\x01\0\x04\xF5\x80\x80\x80", MalformedPacket, "MQTT-1.5.3-1",
    ),
    bad("a surplus byte", BEFORE_5, CLIENT, b"\xA2\x06\0\x01\0\x01a\0", MalformedPacket, "MQTT-4.8.0-1"),
    good(
        "two filters", V5, CLIENT,
        b"\xA2\x14\0\x01\0\0\x03a/b\0\x0A$share/g/#",
        r#"UNSUBSCRIBE id=1 "a/b", "$share/g/#""#,
    ),
    bad(
        "$share/g is no shared filter", V5, CLIENT,
        b"\xA2\x0D\0\x01\0\0\x08$share/g", MalformedPacket, "MQTT-4.8.2-1",
    ),
    bad("packet identifier 0", V5, CLIENT, b"\xA2\x06\0\0\0\0\x01a", ProtocolError, "MQTT-2.2.1-3"),
    bad("no filter", V5, CLIENT, b"\xA2\x03\0\x01\0", ProtocolError, "MQTT-3.10.3-2"),
    bad("filter a#", V5, CLIENT, b"\xA2\x07\0\x01\0\0\x02a#", MalformedPacket, "MQTT-4.7.1-1"),
    bad("filter a+", V5, CLIENT, b"\xA2\x07\0\x01\0\0\x02a+", MalformedPacket, "MQTT-4.7.1-2"),
    bad("an empty filter", V5, CLIENT, b"\xA2\x05\0\x01\0\0\0", MalformedPacket, "MQTT-4.7.3-1"),
    bad("U+0000 in a filter", V5, CLIENT, b"\xA2\x06\0\x01\0\0\x01\0", MalformedPacket, "MQTT-4.7.3-2"),
    bad(
        "ill-formed UTF-8 in a filter", V5, CLIENT,
        b"\xA2\x09\0\x01\0\0\x04\xF5\x80\x80\x80", MalformedPacket, "MQTT-1.5.4-1",
    ),
    bad("a surplus byte", V5, CLIENT, b"\xA2\x07\0\x01\0\0\x01a\0", MalformedPacket, "MQTT-4.13.1-1"),
    good(
        "user properties", V5, CLIENT,
        b"\xA2\x14\0\x01\x0E&\0\x01n\0\x01v&\0\x01n\0\x01v\0\x01a",
        r#"UNSUBSCRIBE id=1 user-property="n":"v" user-property="n":"v" "a""#,
    ),
    bad(
        "UNSUBSCRIBE: an unknown property", V5, CLIENT,
        b"\xA2\x08\0\x01\x02\x7F\0\0\x01a", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "UNSUBSCRIBE: a misplaced subscription identifier", V5, CLIENT,
        b"\xA2\x09\0\x01\x03\x0B\xAC\x02\0\x01a", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "UNSUBSCRIBE: a property length that is not the shortest", V5, CLIENT,
        b"\xA2\x07\0\x01\x80\0\0\x01a", MalformedPacket, "MQTT-1.5.5-1",
    ),
    bad(
        "UNSUBSCRIBE: a property length of 5 bytes", V5, CLIENT,
        b"\xA2\x0A\0\x01\x80\x80\x80\x80\x01\0\x01a", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "UNSUBSCRIBE: properties that end inside a value", V5, CLIENT,
        b"\xA2\x0B\0\x01\x05&\0\x01n\0\0\x01a", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "UNSUBSCRIBE: ill-formed UTF-8 in a user property", V5, CLIENT,
        b"\xA2\x0D\0\x01\x07&\0\x01n\0\x01\xFF\0\x01a", MalformedPacket, "MQTT-1.5.7-1",
    ),
    bad(
        "UNSUBSCRIBE: U+0000 in a user property", V5, CLIENT,
        b"\xA2\x0D\0\x01\x07&\0\x01\0\0\x01v\0\x01a", MalformedPacket, "MQTT-1.5.4-2",
    ),
];
