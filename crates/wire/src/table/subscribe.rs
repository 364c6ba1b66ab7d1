//! SUBSCRIBE (section 3.8).

use super::{BEFORE_5, CLIENT, Case, V5, bad, good};
use crate::ReasonCode::{MalformedPacket, ProtocolError};

#[rustfmt::skip] // One line per case, if it fits.
pub(super) const CASES: &[Case] = &[
    good("one filter", BEFORE_5, CLIENT, b"\x82\x08\0\x01\0\x03a/b\0", r#"SUBSCRIBE id=1 "a/b" q0"#),
    good(
        "three filters with wildcards", BEFORE_5, CLIENT,
        b"\x82\x12\xFF\xFF\0\x01#\x02\0\x05+/a/#\x01\0\x01/\0",
        "SUBSCRIBE id=65535 \"#\" q2, \"+/a/#\" q1, \"/\" q0",
    ),
    good(
        "a shared filter", BEFORE_5, CLIENT,
        b"\x82\x11\0\x01\0\x0C$share/g/a/+\x01",
        r#"SUBSCRIBE id=1 "$share/g/a/+" q1"#,
    ),
    good(
        "$share alone is a plain filter", BEFORE_5, CLIENT,
        b"\x82\x0B\0\x01\0\x06$share\x01",
        r#"SUBSCRIBE id=1 "$share" q1"#,
    ),
    good(
        "$share/ is a filter to be answered with failure", BEFORE_5, CLIENT,
        b"\x82\x0C\0\x01\0\x07$share/\0",
        r#"SUBSCRIBE id=1 "$share/" q0"#,
    ),
    good(
        "$share//t is a filter to be answered with failure", BEFORE_5, CLIENT,
        b"\x82\x0E\0\x01\0\x09$share//t\0",
        r#"SUBSCRIBE id=1 "$share//t" q0"#,
    ),
    good(
        "$share/g is a filter to be answered with failure", BEFORE_5, CLIENT,
        b"\x82\x0D\0\x01\0\x08$share/g\0",
        r#"SUBSCRIBE id=1 "$share/g" q0"#,
    ),
    good(
        "$share/g/ is a filter to be answered with failure", BEFORE_5, CLIENT,
        b"\x82\x0E\0\x01\0\x09$share/g/\0",
        r#"SUBSCRIBE id=1 "$share/g/" q0"#,
    ),
    good(
        "$share/+/t is a filter to be answered with failure", BEFORE_5, CLIENT,
        b"\x82\x0F\0\x01\0\x0A$share/+/t\0",
        r#"SUBSCRIBE id=1 "$share/+/t" q0"#,
    ),
    good(
        "$share/a#/t is a filter to be answered with failure", BEFORE_5, CLIENT,
        b"\x82\x10\0\x01\0\x0B$share/a#/t\0",
        r#"SUBSCRIBE id=1 "$share/a#/t" q0"#,
    ),
    good(
        "$share/g/$share/h/t is a filter to be answered with failure", BEFORE_5, CLIENT,
        b"\x82\x18\0\x01\0\x13$share/g/$share/h/t\0",
        r#"SUBSCRIBE id=1 "$share/g/$share/h/t" q0"#,
    ),
    bad("packet identifier 0", BEFORE_5, CLIENT, b"\x82\x06\0\0\0\x01a\0", ProtocolError, "MQTT-2.3.1-1"),
    bad("no filter", BEFORE_5, CLIENT, b"\x82\x02\0\x01", ProtocolError, "MQTT-3.8.3-3"),
    bad("filter a#", BEFORE_5, CLIENT, b"\x82\x07\0\x01\0\x02a#\0", MalformedPacket, "MQTT-4.7.1-2"),
    bad("filter #/a", BEFORE_5, CLIENT, b"\x82\x08\0\x01\0\x03#/a\0", MalformedPacket, "MQTT-4.7.1-2"),
    bad("filter a/#/b", BEFORE_5, CLIENT, b"\x82\x0A\0\x01\0\x05a/#/b\0", MalformedPacket, "MQTT-4.7.1-2"),
    bad(
        "filter $share/g/a#", BEFORE_5, CLIENT,
        b"\x82\x10\0\x01\0\x0B$share/g/a#\0", MalformedPacket, "MQTT-4.7.1-2",
    ),
    bad("filter a+", BEFORE_5, CLIENT, b"\x82\x07\0\x01\0\x02a+\0", MalformedPacket, "MQTT-4.7.1-3"),
    bad("filter +a/b", BEFORE_5, CLIENT, b"\x82\x09\0\x01\0\x04+a/b\0", MalformedPacket, "MQTT-4.7.1-3"),
    bad(
        "filter $share/g/+a", BEFORE_5, CLIENT,
        b"\x82\x10\0\x01\0\x0B$share/g/+a\0", MalformedPacket, "MQTT-4.7.1-3",
    ),
    bad("an empty filter", BEFORE_5, CLIENT, b"\x82\x05\0\x01\0\0\0", MalformedPacket, "MQTT-4.7.3-1"),
    bad(
        "U+0000 in a filter", BEFORE_5, CLIENT,
        b"\x82\x07\0\x01\0\x02a\0\0", MalformedPacket, "MQTT-4.7.3-2",
    ),
    bad(
        "ill-formed UTF-8 in a filter", BEFORE_5, CLIENT,
        b"\x82\x06\0\x01\0\x01\xFF\0", MalformedPacket, "MQTT-1.5.3-1",
    ),
    bad(
        "a filter without options", BEFORE_5, CLIENT,
        b"\x82\x05\0\x01\0\x01a", MalformedPacket, "MQTT-4.8.0-1",
    ),
    bad(
        "a filter beyond the packet", BEFORE_5, CLIENT,
        b"\x82\x05\0\x01\0\x05a", MalformedPacket, "MQTT-4.8.0-1",
    ),
    bad("half a packet identifier", BEFORE_5, CLIENT, b"\x82\x01\0", MalformedPacket, "MQTT-4.8.0-1"),
    bad(
        "a second filter that is wrong", BEFORE_5, CLIENT,
        b"\x82\x0B\0\x01\0\x01a\0\0\x02b#\0", MalformedPacket, "MQTT-4.7.1-2",
    ),
    good("one filter", V5, CLIENT, b"\x82\x09\0\x01\0\0\x03a/b\0", r#"SUBSCRIBE id=1 "a/b" q0"#),
    good(
        "three filters with wildcards", V5, CLIENT,
        b"\x82\x13\xFF\xFF\0\0\x01#\x02\0\x05+/a/#\x01\0\x01/\0",
        "SUBSCRIBE id=65535 \"#\" q2, \"+/a/#\" q1, \"/\" q0",
    ),
    good(
        "a shared filter", V5, CLIENT,
        b"\x82\x12\0\x01\0\0\x0C$share/g/a/+\x01",
        r#"SUBSCRIBE id=1 "$share/g/a/+" q1"#,
    ),
    good(
        "$share alone is a plain filter", V5, CLIENT,
        b"\x82\x0C\0\x01\0\0\x06$share\x01",
        r#"SUBSCRIBE id=1 "$share" q1"#,
    ),
    bad(
        "$share/ is no shared filter", V5, CLIENT,
        b"\x82\x0D\0\x01\0\0\x07$share/\0", MalformedPacket, "MQTT-4.8.2-1",
    ),
    bad(
        "$share//t is no shared filter", V5, CLIENT,
        b"\x82\x0F\0\x01\0\0\x09$share//t\0", MalformedPacket, "MQTT-4.8.2-1",
    ),
    bad(
        "$share/g is no shared filter", V5, CLIENT,
        b"\x82\x0E\0\x01\0\0\x08$share/g\0", MalformedPacket, "MQTT-4.8.2-1",
    ),
    bad(
        "$share/g/ is no shared filter", V5, CLIENT,
        b"\x82\x0F\0\x01\0\0\x09$share/g/\0", MalformedPacket, "MQTT-4.8.2-1",
    ),
    bad(
        "$share/+/t is no shared filter", V5, CLIENT,
        b"\x82\x10\0\x01\0\0\x0A$share/+/t\0", MalformedPacket, "MQTT-4.8.2-1",
    ),
    bad(
        "$share/a#/t is no shared filter", V5, CLIENT,
        b"\x82\x11\0\x01\0\0\x0B$share/a#/t\0", MalformedPacket, "MQTT-4.8.2-1",
    ),
    bad(
        "$share/g/$share/h/t is no shared filter", V5, CLIENT,
        b"\x82\x19\0\x01\0\0\x13$share/g/$share/h/t\0", MalformedPacket, "MQTT-4.8.2-1",
    ),
    bad("packet identifier 0", V5, CLIENT, b"\x82\x07\0\0\0\0\x01a\0", ProtocolError, "MQTT-2.2.1-3"),
    bad("no filter", V5, CLIENT, b"\x82\x03\0\x01\0", ProtocolError, "MQTT-3.8.3-2"),
    bad("filter a#", V5, CLIENT, b"\x82\x08\0\x01\0\0\x02a#\0", MalformedPacket, "MQTT-4.7.1-1"),
    bad("filter #/a", V5, CLIENT, b"\x82\x09\0\x01\0\0\x03#/a\0", MalformedPacket, "MQTT-4.7.1-1"),
    bad("filter a/#/b", V5, CLIENT, b"\x82\x0B\0\x01\0\0\x05a/#/b\0", MalformedPacket, "MQTT-4.7.1-1"),
    bad(
        "filter $share/g/a#", V5, CLIENT,
        b"\x82\x11\0\x01\0\0\x0B$share/g/a#\0", MalformedPacket, "MQTT-4.7.1-1",
    ),
    bad("filter a+", V5, CLIENT, b"\x82\x08\0\x01\0\0\x02a+\0", MalformedPacket, "MQTT-4.7.1-2"),
    bad("filter +a/b", V5, CLIENT, b"\x82\x0A\0\x01\0\0\x04+a/b\0", MalformedPacket, "MQTT-4.7.1-2"),
    bad(
        "filter $share/g/+a", V5, CLIENT,
        b"\x82\x11\0\x01\0\0\x0B$share/g/+a\0", MalformedPacket, "MQTT-4.7.1-2",
    ),
    bad("an empty filter", V5, CLIENT, b"\x82\x06\0\x01\0\0\0\0", MalformedPacket, "MQTT-4.7.3-1"),
    bad("U+0000 in a filter", V5, CLIENT, b"\x82\x08\0\x01\0\0\x02a\0\0", MalformedPacket, "MQTT-4.7.3-2"),
    bad(
        "ill-formed UTF-8 in a filter", V5, CLIENT,
        b"\x82\x07\0\x01\0\0\x01\xFF\0", MalformedPacket, "MQTT-1.5.4-1",
    ),
    bad("a filter without options", V5, CLIENT, b"\x82\x06\0\x01\0\0\x01a", MalformedPacket, "MQTT-4.13.1-1"),
    bad(
        "a filter beyond the packet", V5, CLIENT,
        b"\x82\x06\0\x01\0\0\x05a", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad("half a packet identifier", V5, CLIENT, b"\x82\x01\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad(
        "a second filter that is wrong", V5, CLIENT,
        b"\x82\x0C\0\x01\0\0\x01a\0\0\x02b#\0", MalformedPacket, "MQTT-4.7.1-1",
    ),
    bad(
        "U+0000 in what is no shared filter", BEFORE_5, CLIENT,
        b"\x82\x0D\0\x01\0\x08$share/\0\0", MalformedPacket, "MQTT-4.7.3-2",
    ),
    bad("QoS 3", BEFORE_5, CLIENT, b"\x82\x06\0\x01\0\x01a\x03", ProtocolError, "MQTT-3.8.3-4"),
    bad(
        "reserved option bits 04", BEFORE_5, CLIENT,
        b"\x82\x06\0\x01\0\x01a\x04", MalformedPacket, "MQTT-3.8.3-4",
    ),
    bad(
        "reserved option bits FC", BEFORE_5, CLIENT,
        b"\x82\x06\0\x01\0\x01a\xFC", MalformedPacket, "MQTT-3.8.3-4",
    ),
    good(
        "every option", V5, CLIENT,
        b"\x82\x0B\0\x01\0\0\x01a.\0\x01b\x11",
        "SUBSCRIBE id=1 \"a\" q2 no-local retain-as-published retain-handling=2, \"b\" q1 retain-handling=1",
    ),
    good(
        "every property", V5, CLIENT,
        b"\x82\x11\0\x01\x0A\x0B\xAC\x02&\0\x01n\0\x01v\0\x01a\0",
        r#"SUBSCRIBE id=1 subscription-identifier=300 user-property="n":"v" "a" q0"#,
    ),
    bad("QoS 3", V5, CLIENT, b"\x82\x07\0\x01\0\0\x01a\x03", ProtocolError, "MQTT-4.13.1-1"),
    bad("Retain Handling 3", V5, CLIENT, b"\x82\x07\0\x01\0\0\x01a0", ProtocolError, "MQTT-4.13.1-1"),
    bad(
        "reserved option bits C0", V5, CLIENT,
        b"\x82\x07\0\x01\0\0\x01a\xC0", MalformedPacket, "MQTT-3.8.3-5",
    ),
    bad(
        "No Local on a shared filter", V5, CLIENT,
        b"\x82\x10\0\x01\0\0\x0A$share/g/a\x04", ProtocolError, "MQTT-3.8.3-4",
    ),
    bad(
        "SUBSCRIBE: an unknown property", V5, CLIENT,
        b"\x82\x09\0\x01\x02\x7F\0\0\x01a\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "SUBSCRIBE: a misplaced reason string", V5, CLIENT,
        b"\x82\x0D\0\x01\x06\x1F\0\x03why\0\x01a\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "SUBSCRIBE: subscription identifier twice", V5, CLIENT,
        b"\x82\x0D\0\x01\x06\x0B\xAC\x02\x0B\xAC\x02\0\x01a\0", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "SUBSCRIBE: a property length that is not the shortest", V5, CLIENT,
        b"\x82\x08\0\x01\x80\0\0\x01a\0", MalformedPacket, "MQTT-1.5.5-1",
    ),
    bad(
        "SUBSCRIBE: a property length of 5 bytes", V5, CLIENT,
        b"\x82\x0B\0\x01\x80\x80\x80\x80\x01\0\x01a\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "SUBSCRIBE: properties that end inside a value", V5, CLIENT,
        b"\x82\x0C\0\x01\x05&\0\x01n\0\0\x01a\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "SUBSCRIBE: ill-formed UTF-8 in a user property", V5, CLIENT,
        b"\x82\x0E\0\x01\x07&\0\x01n\0\x01\xFF\0\x01a\0", MalformedPacket, "MQTT-1.5.7-1",
    ),
    bad(
        "SUBSCRIBE: U+0000 in a user property", V5, CLIENT,
        b"\x82\x0E\0\x01\x07&\0\x01\0\0\x01v\0\x01a\0", MalformedPacket, "MQTT-1.5.4-2",
    ),
    bad(
        "subscription identifier 0", V5, CLIENT,
        b"\x82\x09\0\x01\x02\x0B\0\0\x01a\0", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "a subscription identifier of 5 bytes", V5, CLIENT,
        b"\x82\x0D\0\x01\x06\x0B\xFF\xFF\xFF\xFF\x01\0\x01a\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
];
