//! CONNACK (section 3.2).

use super::{BEFORE_5, Case, SERVER, V3_1, V3_1_1, V5, bad, good, lenient};
use crate::ReasonCode::{MalformedPacket, ProtocolError};

#[rustfmt::skip] // One line per case, if it fits.
pub(super) const CASES: &[Case] = &[
    good("accepted", V3_1, SERVER, b"\x20\x02\0\0", "CONNACK Success"),
    lenient(
        "accepted, a byte that 3.1 does not use", V3_1, SERVER,
        b"\x20\x02\x01\0",
        "CONNACK Success",
        b"\x20\x02\0\0",
    ),
    good("accepted", V3_1_1, SERVER, b"\x20\x02\0\0", "CONNACK Success"),
    good("accepted with a session", V3_1_1, SERVER, b"\x20\x02\x01\0", "CONNACK Success session-present"),
    good("return code 1", BEFORE_5, SERVER, b"\x20\x02\0\x01", "CONNACK Unsupported Protocol Version"),
    good("return code 2", BEFORE_5, SERVER, b"\x20\x02\0\x02", "CONNACK Client Identifier not valid"),
    good("return code 3", BEFORE_5, SERVER, b"\x20\x02\0\x03", "CONNACK Server unavailable"),
    good("return code 4", BEFORE_5, SERVER, b"\x20\x02\0\x04", "CONNACK Bad User Name or Password"),
    good("return code 5", BEFORE_5, SERVER, b"\x20\x02\0\x05", "CONNACK Not authorized"),
    good("accepted", V5, SERVER, b"\x20\x03\0\0\0", "CONNACK Success"),
    good("accepted with a session", V5, SERVER, b"\x20\x03\x01\0\0", "CONNACK Success session-present"),
    good(
        "accepted with every property", V5, SERVER,
        b"\x20\x42\0\0?\x11\0\0\0\x1E!\0\x0A$\x01%\0'\0\0\x03\xE8\x12\0\x02id\"\0\x10\x1F\0\x03why(\0)\0*\
         \0\x13\0\x14\x1A\0\x01i\x1C\0\x01x\x15\0\x01m\x16\0\x01\xFF&\0\x01n\0\x01v",
        "CONNACK Success session-expiry-interval=30 receive-maximum=10 maximum-qos=1 \
         retain-available=false maximum-packet-size=1000 assigned-client-identifier=\"id\" \
         topic-alias-maximum=16 reason-string=\"why\" wildcard-subscription-available=false \
         subscription-identifier-available=false shared-subscription-available=false server-keep-alive=20 \
         response-information=\"i\" server-reference=\"x\" authentication-method=\"m\" \
         authentication-data=1 B user-property=\"n\":\"v\"",
    ),
    good(
        "refused with a reason", V5, SERVER,
        b"\x20\x09\0\x87\x06\x1F\0\x03why",
        r#"CONNACK Not authorized reason-string="why""#,
    ),
    bad("reserved acknowledge flags", V3_1_1, SERVER, b"\x20\x02\x02\0", MalformedPacket, "MQTT-4.8.0-1"),
    bad("reserved acknowledge flags", V5, SERVER, b"\x20\x03\x02\0\0", MalformedPacket, "MQTT-3.2.2-1"),
    bad("a session in a refusal", V3_1_1, SERVER, b"\x20\x02\x01\x05", ProtocolError, "MQTT-3.2.2-4"),
    bad("a session in a refusal", V5, SERVER, b"\x20\x03\x01\x87\0", ProtocolError, "MQTT-3.2.2-6"),
    bad("return code 6", BEFORE_5, SERVER, b"\x20\x02\0\x06", ProtocolError, "MQTT-4.8.0-1"),
    bad("a reason of DISCONNECT", V5, SERVER, b"\x20\x03\0\x8E\0", ProtocolError, "MQTT-3.2.2-8"),
    bad("a reason that there is not", V5, SERVER, b"\x20\x03\0\x01\0", ProtocolError, "MQTT-3.2.2-8"),
    bad("no return code", BEFORE_5, SERVER, b"\x20\x01\0", MalformedPacket, "MQTT-4.8.0-1"),
    bad("no reason", V5, SERVER, b"\x20\x01\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad("no property length", V5, SERVER, b"\x20\x02\0\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad("surplus bytes", BEFORE_5, SERVER, b"\x20\x03\0\0\0", MalformedPacket, "MQTT-4.8.0-1"),
    bad("surplus bytes", V5, SERVER, b"\x20\x04\0\0\0\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad(
        "CONNACK: an unknown property", V5, SERVER,
        b"\x20\x05\0\0\x02\x7F\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: a misplaced will delay interval", V5, SERVER,
        b"\x20\x08\0\0\x05\x18\0\0\0\x05", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: session expiry interval twice", V5, SERVER,
        b"\x20\x0D\0\0\x0A\x11\0\0\0\x1E\x11\0\0\0\x1E", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: receive maximum twice", V5, SERVER,
        b"\x20\x09\0\0\x06!\0\x0A!\0\x0A", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: maximum qos twice", V5, SERVER,
        b"\x20\x07\0\0\x04$\x01$\x01", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: retain available twice", V5, SERVER,
        b"\x20\x07\0\0\x04%\0%\0", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: maximum packet size twice", V5, SERVER,
        b"\x20\x0D\0\0\x0A'\0\0\x03\xE8'\0\0\x03\xE8", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: assigned client identifier twice", V5, SERVER,
        b"\x20\x0D\0\0\x0A\x12\0\x02id\x12\0\x02id", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: topic alias maximum twice", V5, SERVER,
        b"\x20\x09\0\0\x06\"\0\x10\"\0\x10", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: reason string twice", V5, SERVER,
        b"\x20\x0F\0\0\x0C\x1F\0\x03why\x1F\0\x03why", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: wildcard subscription available twice", V5, SERVER,
        b"\x20\x07\0\0\x04(\0(\0", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: subscription identifier available twice", V5, SERVER,
        b"\x20\x07\0\0\x04)\0)\0", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: shared subscription available twice", V5, SERVER,
        b"\x20\x07\0\0\x04*\0*\0", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: server keep alive twice", V5, SERVER,
        b"\x20\x09\0\0\x06\x13\0\x14\x13\0\x14", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: response information twice", V5, SERVER,
        b"\x20\x0B\0\0\x08\x1A\0\x01i\x1A\0\x01i", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: server reference twice", V5, SERVER,
        b"\x20\x0B\0\0\x08\x1C\0\x01x\x1C\0\x01x", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: authentication method twice", V5, SERVER,
        b"\x20\x0B\0\0\x08\x15\0\x01m\x15\0\x01m", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: authentication data twice", V5, SERVER,
        b"\x20\x0F\0\0\x0C\x15\0\x01m\x16\0\x01\xFF\x16\0\x01\xFF", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: a property length that is not the shortest", V5, SERVER,
        b"\x20\x04\0\0\x80\0", MalformedPacket, "MQTT-1.5.5-1",
    ),
    bad(
        "CONNACK: a property length of 5 bytes", V5, SERVER,
        b"\x20\x07\0\0\x80\x80\x80\x80\x01", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: properties that end inside a value", V5, SERVER,
        b"\x20\x08\0\0\x05&\0\x01n\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "CONNACK: ill-formed UTF-8 in a user property", V5, SERVER,
        b"\x20\x0A\0\0\x07&\0\x01n\0\x01\xFF", MalformedPacket, "MQTT-1.5.7-1",
    ),
    bad(
        "CONNACK: U+0000 in a user property", V5, SERVER,
        b"\x20\x0A\0\0\x07&\0\x01\0\0\x01v", MalformedPacket, "MQTT-1.5.4-2",
    ),
    bad("Receive Maximum 0", V5, SERVER, b"\x20\x06\0\0\x03!\0\0", ProtocolError, "MQTT-4.13.1-1"),
    bad("Maximum Packet Size 0", V5, SERVER, b"\x20\x08\0\0\x05'\0\0\0\0", ProtocolError, "MQTT-4.13.1-1"),
    bad("Maximum QoS 2", V5, SERVER, b"\x20\x05\0\0\x02$\x02", ProtocolError, "MQTT-4.13.1-1"),
    bad("Retain Available 2", V5, SERVER, b"\x20\x05\0\0\x02%\x02", ProtocolError, "MQTT-4.13.1-1"),
    bad(
        "Wildcard Subscription Available 2", V5, SERVER,
        b"\x20\x05\0\0\x02(\x02", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "Subscription Identifiers Available 2", V5, SERVER,
        b"\x20\x05\0\0\x02)\x02", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "Shared Subscription Available 2", V5, SERVER,
        b"\x20\x05\0\0\x02*\x02", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "authentication data without a method", V5, SERVER,
        b"\x20\x07\0\0\x04\x16\0\x01\xFF", ProtocolError, "MQTT-4.13.1-1",
    ),
];
