//! PUBLISH (section 3.3).

use super::{BEFORE_5, CLIENT, Case, SERVER, V5, bad, good, lenient};
use crate::ReasonCode::{MalformedPacket, ProtocolError, TopicAliasInvalid};

#[rustfmt::skip] // One line per case, if it fits.
pub(super) const CASES: &[Case] = &[
    good("QoS 0", BEFORE_5, CLIENT, b"\x30\x08\0\x03a/bhey", r#"PUBLISH q0 "a/b" 3 B "hey""#),
    good(
        "QoS 0, retained, without payload", BEFORE_5, CLIENT,
        b"\x31\x05\0\x03a/b",
        r#"PUBLISH q0 retain "a/b" 0 B"#,
    ),
    good("QoS 1", BEFORE_5, CLIENT, b"\x32\x0A\0\x03a/b\0\x07hey", r#"PUBLISH q1 id=7 "a/b" 3 B "hey""#),
    good(
        "QoS 1 again, retained", BEFORE_5, CLIENT,
        b"\x3B\x0A\0\x03a/b\0\x07hey",
        r#"PUBLISH q1 id=7 dup retain "a/b" 3 B "hey""#,
    ),
    good(
        "QoS 2 again", BEFORE_5, CLIENT,
        b"\x3C\x0A\0\x03a/b\xFF\xFFhey",
        r#"PUBLISH q2 id=65535 dup "a/b" 3 B "hey""#,
    ),
    good(
        "QoS 2 from a server", BEFORE_5, SERVER,
        b"\x34\x0A\0\x03a/b\xFF\xFFhey",
        r#"PUBLISH q2 id=65535 "a/b" 3 B "hey""#,
    ),
    good(
        "a topic of slashes and a payload of bytes", BEFORE_5, CLIENT,
        b"\x30\x06\0\x02//\xFF\0",
        r#"PUBLISH q0 "//" 2 B ff00"#,
    ),
    good(
        "a topic with a byte order mark, control characters and a noncharacter", BEFORE_5, CLIENT,
        b"\x30\x0F\0\x0A\xEF\xBB\xBF\x0D\x0A\x01\x7F\xEF\xBF\xBEhey",
        r#"PUBLISH q0 "\u{feff}\r\n\u{1}\u{7f}\u{fffe}" 3 B "hey""#,
    ),
    good(
        "a topic that looks like a shared filter", BEFORE_5, CLIENT,
        b"\x30\x0F\0\x0A$share/g/they",
        r#"PUBLISH q0 "$share/g/t" 3 B "hey""#,
    ),
    bad("QoS 3", BEFORE_5, CLIENT, b"\x36\x08\0\x01a\0\x01hey", MalformedPacket, "MQTT-3.3.1-4"),
    bad("DUP at QoS 0", BEFORE_5, CLIENT, b"\x38\x06\0\x01ahey", MalformedPacket, "MQTT-3.3.1-2"),
    bad(
        "packet identifier 0 at QoS 1", BEFORE_5, CLIENT,
        b"\x32\x08\0\x01a\0\0hey", ProtocolError, "MQTT-2.3.1-1",
    ),
    bad(
        "packet identifier 0 at QoS 2", BEFORE_5, CLIENT,
        b"\x34\x08\0\x01a\0\0hey", ProtocolError, "MQTT-2.3.1-1",
    ),
    bad("no topic", BEFORE_5, CLIENT, b"\x30\x05\0\0hey", ProtocolError, "MQTT-4.7.3-1"),
    bad("+ in the topic", BEFORE_5, CLIENT, b"\x30\x08\0\x03a/+hey", MalformedPacket, "MQTT-3.3.2-2"),
    bad("# in the topic", BEFORE_5, CLIENT, b"\x30\x06\0\x01#hey", MalformedPacket, "MQTT-3.3.2-2"),
    bad("U+0000 in the topic", BEFORE_5, CLIENT, b"\x30\x07\0\x02a\0hey", MalformedPacket, "MQTT-4.7.3-2"),
    bad(
        "a byte FF in the topic", BEFORE_5, CLIENT,
        b"\x30\x06\0\x01\xFFhey", MalformedPacket, "MQTT-1.5.3-1",
    ),
    bad(
        "an overlong U+0000 in the topic", BEFORE_5, CLIENT,
        b"\x30\x07\0\x02\xC0\x80hey", MalformedPacket, "MQTT-1.5.3-1",
    ),
    bad(
        "a lone continuation byte in the topic", BEFORE_5, CLIENT,
        b"\x30\x06\0\x01\x80hey", MalformedPacket, "MQTT-1.5.3-1",
    ),
    bad(
        "a character cut off in the topic", BEFORE_5, CLIENT,
        b"\x30\x07\0\x02\xE2\x82hey", MalformedPacket, "MQTT-1.5.3-1",
    ),
    bad(
        "a character past U+10FFFF in the topic", BEFORE_5, CLIENT,
        b"\x30\x09\0\x04\xF5\x80\x80\x80hey", MalformedPacket, "MQTT-1.5.3-1",
    ),
    bad(
        "a surrogate in the topic", BEFORE_5, CLIENT,
        b"\x30\x08\0\x03\xED\xA0\x80hey", MalformedPacket, "MQTT-1.5.3-1",
    ),
    bad(
        "a topic beyond the packet", BEFORE_5, CLIENT,
        b"\x30\x07\xFF\xFFABCDE", MalformedPacket, "MQTT-4.8.0-1",
    ),
    bad("nothing", BEFORE_5, CLIENT, b"\x30\x00", MalformedPacket, "MQTT-4.8.0-1"),
    bad(
        "QoS 1 without a packet identifier", BEFORE_5, CLIENT,
        b"\x32\x04\0\x01a\0", MalformedPacket, "MQTT-4.8.0-1",
    ),
    good("QoS 0", V5, CLIENT, b"\x30\x09\0\x03a/b\0hey", r#"PUBLISH q0 "a/b" 3 B "hey""#),
    good(
        "QoS 0, retained, without payload", V5, CLIENT,
        b"\x31\x06\0\x03a/b\0",
        r#"PUBLISH q0 retain "a/b" 0 B"#,
    ),
    good("QoS 1", V5, CLIENT, b"\x32\x0B\0\x03a/b\0\x07\0hey", r#"PUBLISH q1 id=7 "a/b" 3 B "hey""#),
    good(
        "QoS 1 again, retained", V5, CLIENT,
        b"\x3B\x0B\0\x03a/b\0\x07\0hey",
        r#"PUBLISH q1 id=7 dup retain "a/b" 3 B "hey""#,
    ),
    good(
        "QoS 2 again", V5, CLIENT,
        b"\x3C\x0B\0\x03a/b\xFF\xFF\0hey",
        r#"PUBLISH q2 id=65535 dup "a/b" 3 B "hey""#,
    ),
    good(
        "QoS 2 from a server", V5, SERVER,
        b"\x34\x0B\0\x03a/b\xFF\xFF\0hey",
        r#"PUBLISH q2 id=65535 "a/b" 3 B "hey""#,
    ),
    good(
        "a topic of slashes and a payload of bytes", V5, CLIENT,
        b"\x30\x07\0\x02//\0\xFF\0",
        r#"PUBLISH q0 "//" 2 B ff00"#,
    ),
    good(
        "a topic with a byte order mark, control characters and a noncharacter", V5, CLIENT,
        b"\x30\x10\0\x0A\xEF\xBB\xBF\x0D\x0A\x01\x7F\xEF\xBF\xBE\0hey",
        r#"PUBLISH q0 "\u{feff}\r\n\u{1}\u{7f}\u{fffe}" 3 B "hey""#,
    ),
    good(
        "a topic that looks like a shared filter", V5, CLIENT,
        b"\x30\x10\0\x0A$share/g/t\0hey",
        r#"PUBLISH q0 "$share/g/t" 3 B "hey""#,
    ),
    bad("QoS 3", V5, CLIENT, b"\x36\x09\0\x01a\0\x01\0hey", MalformedPacket, "MQTT-3.3.1-4"),
    bad("DUP at QoS 0", V5, CLIENT, b"\x38\x07\0\x01a\0hey", MalformedPacket, "MQTT-3.3.1-2"),
    bad(
        "packet identifier 0 at QoS 1", V5, CLIENT,
        b"\x32\x09\0\x01a\0\0\0hey", ProtocolError, "MQTT-2.2.1-3",
    ),
    bad(
        "packet identifier 0 at QoS 2", V5, CLIENT,
        b"\x34\x09\0\x01a\0\0\0hey", ProtocolError, "MQTT-2.2.1-3",
    ),
    bad("no topic", V5, CLIENT, b"\x30\x06\0\0\0hey", ProtocolError, "MQTT-4.7.3-1"),
    bad("+ in the topic", V5, CLIENT, b"\x30\x09\0\x03a/+\0hey", MalformedPacket, "MQTT-3.3.2-2"),
    bad("# in the topic", V5, CLIENT, b"\x30\x07\0\x01#\0hey", MalformedPacket, "MQTT-3.3.2-2"),
    bad("U+0000 in the topic", V5, CLIENT, b"\x30\x08\0\x02a\0\0hey", MalformedPacket, "MQTT-4.7.3-2"),
    bad("a byte FF in the topic", V5, CLIENT, b"\x30\x07\0\x01\xFF\0hey", MalformedPacket, "MQTT-1.5.4-1"),
    bad(
        "an overlong U+0000 in the topic", V5, CLIENT,
        b"\x30\x08\0\x02\xC0\x80\0hey", MalformedPacket, "MQTT-1.5.4-1",
    ),
    bad(
        "a lone continuation byte in the topic", V5, CLIENT,
        b"\x30\x07\0\x01\x80\0hey", MalformedPacket, "MQTT-1.5.4-1",
    ),
    bad(
        "a character cut off in the topic", V5, CLIENT,
        b"\x30\x08\0\x02\xE2\x82\0hey", MalformedPacket, "MQTT-1.5.4-1",
    ),
    bad(
        "a character past U+10FFFF in the topic", V5, CLIENT,
        b"\x30\x0A\0\x04\xF5\x80\x80\x80\0hey", MalformedPacket, "MQTT-1.5.4-1",
    ),
    bad(
        "a surrogate in the topic", V5, CLIENT,
        b"\x30\x09\0\x03\xED\xA0\x80\0hey", MalformedPacket, "MQTT-1.5.4-1",
    ),
    bad("a topic beyond the packet", V5, CLIENT, b"\x30\x07\xFF\xFFABCDE", MalformedPacket, "MQTT-4.13.1-1"),
    bad("nothing", V5, CLIENT, b"\x30\x00", MalformedPacket, "MQTT-4.13.1-1"),
    bad(
        "QoS 1 without a packet identifier", V5, CLIENT,
        b"\x32\x04\0\x01a\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    good(
        "every property of a message", V5, CLIENT,
        b"\x30\x25\0\x01a\x1E\x01\x01\x02\0\0\0<\x03\0\x04text\x08\0\x01r\x09\0\x02\xFF\0&\0\x01n\0\x01vhey",
        "PUBLISH q0 \"a\" payload-format-indicator=1 message-expiry-interval=60 content-type=\"text\" \
         response-topic=\"r\" correlation-data=2 B ff00 user-property=\"n\":\"v\" 3 B \"hey\"",
    ),
    good(
        "name and alias", V5, CLIENT,
        b"\x30\x0A\0\x01a\x03#\0\x03hey",
        r#"PUBLISH q0 "a" topic-alias=3 3 B "hey""#,
    ),
    good(
        "alias without a name", V5, CLIENT,
        b"\x30\x09\0\0\x03#\0\x03hey",
        r#"PUBLISH q0 topic-alias=3 3 B "hey""#,
    ),
    good(
        "subscription identifiers from a server", V5, SERVER,
        b"\x30\x0E\0\x01a\x07\x0B\x01\x0B\xFF\xFF\xFF\x7Fhey",
        r#"PUBLISH q0 "a" subscription-identifier=1 subscription-identifier=268435455 3 B "hey""#,
    ),
    lenient(
        "user properties among others keep their order", V5, SERVER,
        b"\x30\x21\0\x01a\x1A&\0\x01n\0\x01v\x01\x01&\0\x01n\0\x01w\x0B\xAC\x02&\0\x01n\0\x01vhey",
        "PUBLISH q0 \"a\" subscription-identifier=300 payload-format-indicator=1 \
         user-property=\"n\":\"v\" user-property=\"n\":\"w\" user-property=\"n\":\"v\" 3 B \"hey\"",
        b"\x30\x21\0\x01a\x1A\x0B\xAC\x02\x01\x01&\0\x01n\0\x01v&\0\x01n\0\x01w&\0\x01n\0\x01vhey",
    ),
    bad(
        "PUBLISH: an unknown property", V5, CLIENT,
        b"\x30\x06\0\x01a\x02\x7F\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBLISH: a misplaced server reference", V5, CLIENT,
        b"\x30\x08\0\x01a\x04\x1C\0\x01x", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBLISH: topic alias twice", V5, CLIENT,
        b"\x30\x0A\0\x01a\x06#\0\x03#\0\x03", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBLISH: payload format indicator twice", V5, CLIENT,
        b"\x30\x08\0\x01a\x04\x01\x01\x01\x01", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBLISH: message expiry interval twice", V5, CLIENT,
        b"\x30\x0E\0\x01a\x0A\x02\0\0\0<\x02\0\0\0<", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBLISH: content type twice", V5, CLIENT,
        b"\x30\x12\0\x01a\x0E\x03\0\x04text\x03\0\x04text", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBLISH: response topic twice", V5, CLIENT,
        b"\x30\x0C\0\x01a\x08\x08\0\x01r\x08\0\x01r", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBLISH: correlation data twice", V5, CLIENT,
        b"\x30\x0E\0\x01a\x0A\x09\0\x02\xFF\0\x09\0\x02\xFF\0", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBLISH: a property length that is not the shortest", V5, CLIENT,
        b"\x30\x05\0\x01a\x80\0", MalformedPacket, "MQTT-1.5.5-1",
    ),
    bad(
        "PUBLISH: a property length of 5 bytes", V5, CLIENT,
        b"\x30\x08\0\x01a\x80\x80\x80\x80\x01", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBLISH: properties that end inside a value", V5, CLIENT,
        b"\x30\x09\0\x01a\x05&\0\x01n\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBLISH: ill-formed UTF-8 in a user property", V5, CLIENT,
        b"\x30\x0B\0\x01a\x07&\0\x01n\0\x01\xFF", MalformedPacket, "MQTT-1.5.7-1",
    ),
    bad(
        "PUBLISH: U+0000 in a user property", V5, CLIENT,
        b"\x30\x0B\0\x01a\x07&\0\x01\0\0\x01v", MalformedPacket, "MQTT-1.5.4-2",
    ),
    bad("topic alias 0", V5, CLIENT, b"\x30\x07\0\x01a\x03#\0\0", TopicAliasInvalid, "MQTT-3.3.2-8"),
    bad("payload format 2", V5, CLIENT, b"\x30\x06\0\x01a\x02\x01\x02", ProtocolError, "MQTT-4.13.1-1"),
    bad(
        "a wildcard in the response topic", V5, CLIENT,
        b"\x30\x0A\0\x01a\x06\x08\0\x03r/#", ProtocolError, "MQTT-3.3.2-14",
    ),
    bad("an empty response topic", V5, CLIENT, b"\x30\x07\0\x01a\x03\x08\0\0", ProtocolError, "MQTT-4.7.3-1"),
    bad(
        "ill-formed UTF-8 in the response topic", V5, CLIENT,
        b"\x30\x08\0\x01a\x04\x08\0\x01\xFF", MalformedPacket, "MQTT-1.5.4-1",
    ),
    bad(
        "ill-formed UTF-8 in the content type", V5, CLIENT,
        b"\x30\x08\0\x01a\x04\x03\0\x01\xFF", MalformedPacket, "MQTT-1.5.4-1",
    ),
    bad(
        "U+0000 in the content type", V5, CLIENT,
        b"\x30\x08\0\x01a\x04\x03\0\x01\0", MalformedPacket, "MQTT-1.5.4-2",
    ),
    bad(
        "a subscription identifier from a client", V5, CLIENT,
        b"\x30\x07\0\x01a\x03\x0B\xAC\x02", ProtocolError, "MQTT-3.3.4-6",
    ),
    bad(
        "subscription identifier 0", V5, SERVER,
        b"\x30\x06\0\x01a\x02\x0B\0", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "a subscription identifier of 5 bytes", V5, SERVER,
        b"\x30\x0A\0\x01a\x06\x0B\xFF\xFF\xFF\xFF\x01", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "a subscription identifier that is not the shortest", V5, SERVER,
        b"\x30\x07\0\x01a\x03\x0B\x81\0", MalformedPacket, "MQTT-1.5.5-1",
    ),
    bad(
        "properties beyond the packet", V5, CLIENT,
        b"\x30\x06\0\x01a \x01\x01", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad("no property length", V5, CLIENT, b"\x30\x03\0\x01a", MalformedPacket, "MQTT-4.13.1-1"),
];
