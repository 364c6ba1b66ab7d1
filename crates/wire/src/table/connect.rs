//! CONNECT (section 3.1), without its properties.

use super::{ALL, Case, V3_1, V3_1_1, V5, first, lenient_first, refused};
use crate::ReasonCode::{MalformedPacket, ProtocolError, UnsupportedProtocolVersion};

#[rustfmt::skip] // One line per case, if it fits.
pub(super) const CASES: &[Case] = &[
    first(
        "nothing but a client identifier", V3_1,
        b"\x10\x0F\0\x06MQIsdp\x03\0\0<\0\x01c",
        r#"CONNECT 3.1 "c" keep-alive=60"#,
    ),
    first(
        "clean start without keep alive", V3_1,
        b"\x10\x0F\0\x06MQIsdp\x03\x02\0\0\0\x01c",
        r#"CONNECT 3.1 "c" clean-start keep-alive=0"#,
    ),
    first(
        "no client identifier", V3_1,
        b"\x10\x0E\0\x06MQIsdp\x03\x02\0<\0\0",
        r#"CONNECT 3.1 "" clean-start keep-alive=60"#,
    ),
    first(
        "a will at QoS 2, retained, and credentials", V3_1,
        b"\x10\x20\0\x06MQIsdp\x03\xF6\0<\0\x01c\0\x01w\0\x03bye\0\x03ann\0\x02\0\xFF",
        "CONNECT 3.1 \"c\" clean-start keep-alive=60 user-name=\"ann\" password=2 B will={q2 retain \"w\" \
         3 B \"bye\"}",
    ),
    first(
        "a will at QoS 1 and a user name", V3_1,
        b"\x10\x19\0\x06MQIsdp\x03\x8C\0<\0\x01c\0\x01w\0\0\0\x03ann",
        r#"CONNECT 3.1 "c" keep-alive=60 user-name="ann" will={q1 "w" 0 B}"#,
    ),
    refused(
        "a password without a user name", V3_1,
        b"\x10\x13\0\x06MQIsdp\x03@\0<\0\x01c\0\x02pw", MalformedPacket, "MQTT-3.1.2-22", b"",
    ),
    lenient_first(
        "the reserved flag, which 3.1 does not use", V3_1,
        b"\x10\x0F\0\x06MQIsdp\x03\x01\0<\0\x01c",
        r#"CONNECT 3.1 "c" keep-alive=60"#,
        b"\x10\x0F\0\x06MQIsdp\x03\0\0<\0\x01c",
    ),
    lenient_first(
        "user name and password announced and missing at the end, as 3.1 allows", V3_1,
        b"\x10\x0F\0\x06MQIsdp\x03\xC0\0<\0\x01c",
        r#"CONNECT 3.1 "c" keep-alive=60"#,
        b"\x10\x0F\0\x06MQIsdp\x03\0\0<\0\x01c",
    ),
    lenient_first(
        "a password announced and missing at the end, as 3.1 allows", V3_1,
        b"\x10\x14\0\x06MQIsdp\x03\xC0\0<\0\x01c\0\x03ann",
        r#"CONNECT 3.1 "c" keep-alive=60 user-name="ann""#,
        b"\x10\x14\0\x06MQIsdp\x03\x80\0<\0\x01c\0\x03ann",
    ),
    refused(
        "Will QoS 3", V3_1,
        b"\x10\x14\0\x06MQIsdp\x03\x1C\0<\0\x01c\0\x01w\0\0", MalformedPacket, "MQTT-3.1.2-14", b"",
    ),
    refused(
        "Will QoS without a will", V3_1,
        b"\x10\x0F\0\x06MQIsdp\x03\x08\0<\0\x01c", MalformedPacket, "MQTT-3.1.2-13", b"",
    ),
    refused(
        "Will Retain without a will", V3_1,
        b"\x10\x0F\0\x06MQIsdp\x03 \0<\0\x01c", MalformedPacket, "MQTT-3.1.2-15", b"",
    ),
    refused(
        "no will where it is announced", V3_1,
        b"\x10\x0F\0\x06MQIsdp\x03\x04\0<\0\x01c", MalformedPacket, "MQTT-3.1.2-9", b"",
    ),
    refused(
        "no will payload", V3_1,
        b"\x10\x12\0\x06MQIsdp\x03\x04\0<\0\x01c\0\x01w", MalformedPacket, "MQTT-3.1.2-9", b"",
    ),
    refused(
        "a user name that is not announced", V3_1,
        b"\x10\x14\0\x06MQIsdp\x03\0\0<\0\x01c\0\x03ann", MalformedPacket, "MQTT-3.1.2-18", b"",
    ),
    refused(
        "a password that is not announced", V3_1,
        b"\x10\x18\0\x06MQIsdp\x03\x80\0<\0\x01c\0\x03ann\0\x02pw", MalformedPacket, "MQTT-3.1.2-20", b"",
    ),
    refused(
        "bytes behind the password", V3_1,
        b"\x10\x19\0\x06MQIsdp\x03\xC0\0<\0\x01c\0\x03ann\0\x02pw\0", MalformedPacket, "MQTT-4.8.0-1", b"",
    ),
    refused(
        "an end inside the client identifier", V3_1,
        b"\x10\x0F\0\x06MQIsdp\x03\0\0\0\0\x02c", MalformedPacket, "MQTT-4.8.0-1", b"",
    ),
    refused("no connect flags", V3_1, b"\x10\x09\0\x06MQIsdp\x03", MalformedPacket, "MQTT-4.8.0-1", b""),
    refused(
        "an end inside keep alive", V3_1,
        b"\x10\x0B\0\x06MQIsdp\x03\0\0", MalformedPacket, "MQTT-4.8.0-1", b"",
    ),
    refused(
        "ill-formed UTF-8 in the client identifier", V3_1,
        b"\x10\x0F\0\x06MQIsdp\x03\0\0<\0\x01\xFF", MalformedPacket, "MQTT-1.5.3-1", b"",
    ),
    refused(
        "U+0000 in the client identifier", V3_1,
        b"\x10\x10\0\x06MQIsdp\x03\0\0<\0\x02a\0", MalformedPacket, "MQTT-1.5.3-2", b"",
    ),
    refused(
        "ill-formed UTF-8 in the user name", V3_1,
        b"\x10\x14\0\x06MQIsdp\x03\x80\0<\0\x01c\0\x03\xED\xA0\x80", MalformedPacket, "MQTT-1.5.3-1", b"",
    ),
    refused(
        "U+0000 in the user name", V3_1,
        b"\x10\x12\0\x06MQIsdp\x03\x80\0<\0\x01c\0\x01\0", MalformedPacket, "MQTT-1.5.3-2", b"",
    ),
    refused(
        "ill-formed UTF-8 in the will topic", V3_1,
        b"\x10\x15\0\x06MQIsdp\x03\x04\0<\0\x01c\0\x02\xC0\x80\0\0", MalformedPacket, "MQTT-1.5.3-1", b"",
    ),
    refused(
        "U+0000 in the will topic", V3_1,
        b"\x10\x15\0\x06MQIsdp\x03\x04\0<\0\x01c\0\x02w\0\0\0", MalformedPacket, "MQTT-4.7.3-2", b"",
    ),
    refused(
        "an empty will topic", V3_1,
        b"\x10\x13\0\x06MQIsdp\x03\x04\0<\0\x01c\0\0\0\0", ProtocolError, "MQTT-4.7.3-1", b"",
    ),
    refused(
        "a wildcard in the will topic", V3_1,
        b"\x10\x16\0\x06MQIsdp\x03\x04\0<\0\x01c\0\x03w/#\0\0", MalformedPacket, "MQTT-3.3.2-2", b"",
    ),
    first(
        "nothing but a client identifier", V3_1_1,
        b"\x10\x0D\0\x04MQTT\x04\0\0<\0\x01c",
        r#"CONNECT 3.1.1 "c" keep-alive=60"#,
    ),
    first(
        "clean start without keep alive", V3_1_1,
        b"\x10\x0D\0\x04MQTT\x04\x02\0\0\0\x01c",
        r#"CONNECT 3.1.1 "c" clean-start keep-alive=0"#,
    ),
    first(
        "no client identifier", V3_1_1,
        b"\x10\x0C\0\x04MQTT\x04\x02\0<\0\0",
        r#"CONNECT 3.1.1 "" clean-start keep-alive=60"#,
    ),
    first(
        "a will at QoS 2, retained, and credentials", V3_1_1,
        b"\x10\x1E\0\x04MQTT\x04\xF6\0<\0\x01c\0\x01w\0\x03bye\0\x03ann\0\x02\0\xFF",
        "CONNECT 3.1.1 \"c\" clean-start keep-alive=60 user-name=\"ann\" password=2 B will={q2 retain \
         \"w\" 3 B \"bye\"}",
    ),
    first(
        "a will at QoS 1 and a user name", V3_1_1,
        b"\x10\x17\0\x04MQTT\x04\x8C\0<\0\x01c\0\x01w\0\0\0\x03ann",
        r#"CONNECT 3.1.1 "c" keep-alive=60 user-name="ann" will={q1 "w" 0 B}"#,
    ),
    refused(
        "a password without a user name", V3_1_1,
        b"\x10\x11\0\x04MQTT\x04@\0<\0\x01c\0\x02pw", MalformedPacket, "MQTT-3.1.2-22", b"",
    ),
    refused(
        "the reserved flag", V3_1_1,
        b"\x10\x0D\0\x04MQTT\x04\x01\0<\0\x01c", MalformedPacket, "MQTT-3.1.2-3", b"",
    ),
    refused(
        "no user name where it is announced", V3_1_1,
        b"\x10\x0D\0\x04MQTT\x04\x80\0<\0\x01c", MalformedPacket, "MQTT-3.1.2-19", b"",
    ),
    refused(
        "no password where it is announced", V3_1_1,
        b"\x10\x12\0\x04MQTT\x04\xC0\0<\0\x01c\0\x03ann", MalformedPacket, "MQTT-3.1.2-21", b"",
    ),
    refused(
        "Will QoS 3", V3_1_1,
        b"\x10\x12\0\x04MQTT\x04\x1C\0<\0\x01c\0\x01w\0\0", MalformedPacket, "MQTT-3.1.2-14", b"",
    ),
    refused(
        "Will QoS without a will", V3_1_1,
        b"\x10\x0D\0\x04MQTT\x04\x08\0<\0\x01c", MalformedPacket, "MQTT-3.1.2-13", b"",
    ),
    refused(
        "Will Retain without a will", V3_1_1,
        b"\x10\x0D\0\x04MQTT\x04 \0<\0\x01c", MalformedPacket, "MQTT-3.1.2-15", b"",
    ),
    refused(
        "no will where it is announced", V3_1_1,
        b"\x10\x0D\0\x04MQTT\x04\x04\0<\0\x01c", MalformedPacket, "MQTT-3.1.2-9", b"",
    ),
    refused(
        "no will payload", V3_1_1,
        b"\x10\x10\0\x04MQTT\x04\x04\0<\0\x01c\0\x01w", MalformedPacket, "MQTT-3.1.2-9", b"",
    ),
    refused(
        "a user name that is not announced", V3_1_1,
        b"\x10\x12\0\x04MQTT\x04\0\0<\0\x01c\0\x03ann", MalformedPacket, "MQTT-3.1.2-18", b"",
    ),
    refused(
        "a password that is not announced", V3_1_1,
        b"\x10\x16\0\x04MQTT\x04\x80\0<\0\x01c\0\x03ann\0\x02pw", MalformedPacket, "MQTT-3.1.2-20", b"",
    ),
    refused(
        "bytes behind the password", V3_1_1,
        b"\x10\x17\0\x04MQTT\x04\xC0\0<\0\x01c\0\x03ann\0\x02pw\0", MalformedPacket, "MQTT-4.8.0-1", b"",
    ),
    refused(
        "an end inside the client identifier", V3_1_1,
        b"\x10\x0D\0\x04MQTT\x04\0\0\0\0\x02c", MalformedPacket, "MQTT-4.8.0-1", b"",
    ),
    refused("no connect flags", V3_1_1, b"\x10\x07\0\x04MQTT\x04", MalformedPacket, "MQTT-4.8.0-1", b""),
    refused(
        "an end inside keep alive", V3_1_1,
        b"\x10\x09\0\x04MQTT\x04\0\0", MalformedPacket, "MQTT-4.8.0-1", b"",
    ),
    refused(
        "ill-formed UTF-8 in the client identifier", V3_1_1,
        b"\x10\x0D\0\x04MQTT\x04\0\0<\0\x01\xFF", MalformedPacket, "MQTT-1.5.3-1", b"",
    ),
    refused(
        "U+0000 in the client identifier", V3_1_1,
        b"\x10\x0E\0\x04MQTT\x04\0\0<\0\x02a\0", MalformedPacket, "MQTT-1.5.3-2", b"",
    ),
    refused(
        "ill-formed UTF-8 in the user name", V3_1_1,
        b"\x10\x12\0\x04MQTT\x04\x80\0<\0\x01c\0\x03\xED\xA0\x80", MalformedPacket, "MQTT-1.5.3-1", b"",
    ),
    refused(
        "U+0000 in the user name", V3_1_1,
        b"\x10\x10\0\x04MQTT\x04\x80\0<\0\x01c\0\x01\0", MalformedPacket, "MQTT-1.5.3-2", b"",
    ),
    refused(
        "ill-formed UTF-8 in the will topic", V3_1_1,
        b"\x10\x13\0\x04MQTT\x04\x04\0<\0\x01c\0\x02\xC0\x80\0\0", MalformedPacket, "MQTT-1.5.3-1", b"",
    ),
    refused(
        "U+0000 in the will topic", V3_1_1,
        b"\x10\x13\0\x04MQTT\x04\x04\0<\0\x01c\0\x02w\0\0\0", MalformedPacket, "MQTT-4.7.3-2", b"",
    ),
    refused(
        "an empty will topic", V3_1_1,
        b"\x10\x11\0\x04MQTT\x04\x04\0<\0\x01c\0\0\0\0", ProtocolError, "MQTT-4.7.3-1", b"",
    ),
    refused(
        "a wildcard in the will topic", V3_1_1,
        b"\x10\x14\0\x04MQTT\x04\x04\0<\0\x01c\0\x03w/#\0\0", MalformedPacket, "MQTT-3.3.2-2", b"",
    ),
    first(
        "nothing but a client identifier", V5,
        b"\x10\x0E\0\x04MQTT\x05\0\0<\0\0\x01c",
        r#"CONNECT 5.0 "c" keep-alive=60"#,
    ),
    first(
        "clean start without keep alive", V5,
        b"\x10\x0E\0\x04MQTT\x05\x02\0\0\0\0\x01c",
        r#"CONNECT 5.0 "c" clean-start keep-alive=0"#,
    ),
    first(
        "no client identifier", V5,
        b"\x10\x0D\0\x04MQTT\x05\x02\0<\0\0\0",
        r#"CONNECT 5.0 "" clean-start keep-alive=60"#,
    ),
    first(
        "a will at QoS 2, retained, and credentials", V5,
        b"\x10\x20\0\x04MQTT\x05\xF6\0<\0\0\x01c\0\0\x01w\0\x03bye\0\x03ann\0\x02\0\xFF",
        "CONNECT 5.0 \"c\" clean-start keep-alive=60 user-name=\"ann\" password=2 B will={q2 retain \"w\" \
         3 B \"bye\"}",
    ),
    first(
        "a will at QoS 1 and a user name", V5,
        b"\x10\x19\0\x04MQTT\x05\x8C\0<\0\0\x01c\0\0\x01w\0\0\0\x03ann",
        r#"CONNECT 5.0 "c" keep-alive=60 user-name="ann" will={q1 "w" 0 B}"#,
    ),
    first(
        "a password without a user name", V5,
        b"\x10\x12\0\x04MQTT\x05@\0<\0\0\x01c\0\x02pw",
        r#"CONNECT 5.0 "c" keep-alive=60 password=2 B"#,
    ),
    refused(
        "the reserved flag", V5,
        b"\x10\x0E\0\x04MQTT\x05\x01\0<\0\0\x01c", MalformedPacket, "MQTT-3.1.2-3", b"\x20\x03\0\x81\0",
    ),
    refused(
        "no user name where it is announced", V5,
        b"\x10\x0E\0\x04MQTT\x05\x80\0<\0\0\x01c", MalformedPacket, "MQTT-3.1.2-17", b"\x20\x03\0\x81\0",
    ),
    refused(
        "no password where it is announced", V5,
        b"\x10\x13\0\x04MQTT\x05\xC0\0<\0\0\x01c\0\x03ann",
        MalformedPacket,
        "MQTT-3.1.2-19",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "Will QoS 3", V5,
        b"\x10\x14\0\x04MQTT\x05\x1C\0<\0\0\x01c\0\0\x01w\0\0",
        MalformedPacket,
        "MQTT-3.1.2-12",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "Will QoS without a will", V5,
        b"\x10\x0E\0\x04MQTT\x05\x08\0<\0\0\x01c", MalformedPacket, "MQTT-3.1.2-11", b"\x20\x03\0\x81\0",
    ),
    refused(
        "Will Retain without a will", V5,
        b"\x10\x0E\0\x04MQTT\x05 \0<\0\0\x01c", MalformedPacket, "MQTT-3.1.2-13", b"\x20\x03\0\x81\0",
    ),
    refused(
        "no will where it is announced", V5,
        b"\x10\x0E\0\x04MQTT\x05\x04\0<\0\0\x01c", MalformedPacket, "MQTT-3.1.2-9", b"\x20\x03\0\x81\0",
    ),
    refused(
        "no will topic", V5,
        b"\x10\x0F\0\x04MQTT\x05\x04\0<\0\0\x01c\0", MalformedPacket, "MQTT-3.1.2-9", b"\x20\x03\0\x81\0",
    ),
    refused(
        "no will payload", V5,
        b"\x10\x12\0\x04MQTT\x05\x04\0<\0\0\x01c\0\0\x01w",
        MalformedPacket,
        "MQTT-3.1.2-9",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "a user name that is not announced", V5,
        b"\x10\x13\0\x04MQTT\x05\0\0<\0\0\x01c\0\x03ann",
        MalformedPacket,
        "MQTT-3.1.2-16",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "a password that is not announced", V5,
        b"\x10\x17\0\x04MQTT\x05\x80\0<\0\0\x01c\0\x03ann\0\x02pw",
        MalformedPacket,
        "MQTT-3.1.2-18",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "bytes behind the password", V5,
        b"\x10\x18\0\x04MQTT\x05\xC0\0<\0\0\x01c\0\x03ann\0\x02pw\0",
        MalformedPacket,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "an end inside the client identifier", V5,
        b"\x10\x0E\0\x04MQTT\x05\0\0\0\0\0\x02c", MalformedPacket, "MQTT-4.13.1-1", b"\x20\x03\0\x81\0",
    ),
    refused(
        "no connect flags", V5,
        b"\x10\x07\0\x04MQTT\x05", MalformedPacket, "MQTT-4.13.1-1", b"\x20\x03\0\x81\0",
    ),
    refused(
        "an end inside keep alive", V5,
        b"\x10\x09\0\x04MQTT\x05\0\0", MalformedPacket, "MQTT-4.13.1-1", b"\x20\x03\0\x81\0",
    ),
    refused(
        "ill-formed UTF-8 in the client identifier", V5,
        b"\x10\x0E\0\x04MQTT\x05\0\0<\0\0\x01\xFF", MalformedPacket, "MQTT-1.5.4-1", b"\x20\x03\0\x81\0",
    ),
    refused(
        "U+0000 in the client identifier", V5,
        b"\x10\x0F\0\x04MQTT\x05\0\0<\0\0\x02a\0", MalformedPacket, "MQTT-1.5.4-2", b"\x20\x03\0\x81\0",
    ),
    refused(
        "ill-formed UTF-8 in the user name", V5,
        b"\x10\x13\0\x04MQTT\x05\x80\0<\0\0\x01c\0\x03\xED\xA0\x80",
        MalformedPacket,
        "MQTT-1.5.4-1",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "U+0000 in the user name", V5,
        b"\x10\x11\0\x04MQTT\x05\x80\0<\0\0\x01c\0\x01\0",
        MalformedPacket,
        "MQTT-1.5.4-2",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "ill-formed UTF-8 in the will topic", V5,
        b"\x10\x15\0\x04MQTT\x05\x04\0<\0\0\x01c\0\0\x02\xC0\x80\0\0",
        MalformedPacket,
        "MQTT-1.5.4-1",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "U+0000 in the will topic", V5,
        b"\x10\x15\0\x04MQTT\x05\x04\0<\0\0\x01c\0\0\x02w\0\0\0",
        MalformedPacket,
        "MQTT-4.7.3-2",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "an empty will topic", V5,
        b"\x10\x13\0\x04MQTT\x05\x04\0<\0\0\x01c\0\0\0\0\0",
        ProtocolError,
        "MQTT-4.7.3-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "a wildcard in the will topic", V5,
        b"\x10\x16\0\x04MQTT\x05\x04\0<\0\0\x01c\0\0\x03w/#\0\0",
        MalformedPacket,
        "MQTT-3.3.2-2",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "mqtt as protocol name", ALL,
        b"\x10\x0D\0\x04mqtt\x04\x02\0\0\0\x01c", UnsupportedProtocolVersion, "MQTT-3.1.2-1", b"",
    ),
    refused(
        "MQTTX as protocol name", ALL,
        b"\x10\x0E\0\x05MQTTX\x04\x02\0\0\0\x01c", UnsupportedProtocolVersion, "MQTT-3.1.2-1", b"",
    ),
    refused(
        "HTTP as protocol name", ALL,
        b"\x10\x0D\0\x04HTTP\x04\x02\0\0\0\x01c", UnsupportedProtocolVersion, "MQTT-3.1.2-1", b"",
    ),
    refused(
        "nothing as protocol name", ALL,
        b"\x10\x09\0\0\x04\x02\0\0\0\x01c", UnsupportedProtocolVersion, "MQTT-3.1.2-1", b"",
    ),
    refused(
        "ill-formed UTF-8 as protocol name", ALL,
        b"\x10\x0A\0\x01\xFF\x04\x02\0\0\0\x01c", UnsupportedProtocolVersion, "MQTT-3.1.2-1", b"",
    ),
    refused(
        "an end inside the protocol name", ALL,
        b"\x10\x04\0\x04MQ", MalformedPacket, "MQTT-4.8.0-1", b"",
    ),
    refused(
        "MQTT level 0", ALL,
        b"\x10\x0D\0\x04MQTT\0\x02\0\0\0\x01c",
        UnsupportedProtocolVersion,
        "MQTT-3.1.2-2",
        b"\x20\x02\0\x01",
    ),
    refused(
        "MQTT level 3", ALL,
        b"\x10\x0D\0\x04MQTT\x03\x02\0\0\0\x01c",
        UnsupportedProtocolVersion,
        "MQTT-3.1.2-2",
        b"\x20\x02\0\x01",
    ),
    refused(
        "MQTT level 131", ALL,
        b"\x10\x0D\0\x04MQTT\x83\x02\0\0\0\x01c",
        UnsupportedProtocolVersion,
        "MQTT-3.1.2-2",
        b"\x20\x02\0\x01",
    ),
    refused(
        "MQTT level 132", ALL,
        b"\x10\x0D\0\x04MQTT\x84\x02\0\0\0\x01c",
        UnsupportedProtocolVersion,
        "MQTT-3.1.2-2",
        b"\x20\x02\0\x01",
    ),
    refused(
        "MQIsdp level 4", ALL,
        b"\x10\x0F\0\x06MQIsdp\x04\x02\0\0\0\x01c",
        UnsupportedProtocolVersion,
        "MQTT-3.1.2-2",
        b"\x20\x02\0\x01",
    ),
    refused(
        "MQIsdp level 5", ALL,
        b"\x10\x0F\0\x06MQIsdp\x05\x02\0\0\0\x01c",
        UnsupportedProtocolVersion,
        "MQTT-3.1.2-2",
        b"\x20\x02\0\x01",
    ),
    refused(
        "MQIsdp level 131", ALL,
        b"\x10\x0F\0\x06MQIsdp\x83\x02\0\0\0\x01c",
        UnsupportedProtocolVersion,
        "MQTT-3.1.2-2",
        b"\x20\x02\0\x01",
    ),
    refused(
        "MQTT level 6", ALL,
        b"\x10\x0E\0\x04MQTT\x06\x02\0\0\0\0\x01c",
        UnsupportedProtocolVersion,
        "MQTT-3.1.2-2",
        b"\x20\x03\0\x84\0",
    ),
    refused(
        "MQTT level 133", ALL,
        b"\x10\x0E\0\x04MQTT\x85\x02\0\0\0\0\x01c",
        UnsupportedProtocolVersion,
        "MQTT-3.1.2-2",
        b"\x20\x03\0\x84\0",
    ),
    refused(
        "MQTT level 255", ALL,
        b"\x10\x0E\0\x04MQTT\xFF\x02\0\0\0\0\x01c",
        UnsupportedProtocolVersion,
        "MQTT-3.1.2-2",
        b"\x20\x03\0\x84\0",
    ),
    refused(
        "a length that is not the shortest", V5,
        b"\x10\x8E\0\0\x04MQTT\x05\0\0<\0\0\x01c", MalformedPacket, "MQTT-1.5.5-1", b"\x20\x03\0\x81\0",
    ),
    lenient_first(
        "a length that is not the shortest", V3_1_1,
        b"\x10\x8D\0\0\x04MQTT\x04\0\0<\0\x01c",
        r#"CONNECT 3.1.1 "c" keep-alive=60"#,
        b"\x10\x0D\0\x04MQTT\x04\0\0<\0\x01c",
    ),
    lenient_first(
        "a length that is not the shortest", V3_1,
        b"\x10\x8F\0\0\x06MQIsdp\x03\0\0<\0\x01c",
        r#"CONNECT 3.1 "c" keep-alive=60"#,
        b"\x10\x0F\0\x06MQIsdp\x03\0\0<\0\x01c",
    ),
];
