//! The properties of CONNECT and of its will (sections 3.1.2.11 and 3.1.3.2).

use super::{Case, V5, first, lenient_first, refused};
use crate::ReasonCode::{MalformedPacket, ProtocolError};

#[rustfmt::skip] // One line per case, if it fits.
pub(super) const CASES: &[Case] = &[
    first(
        "every property", V5,
        b"\x10\x31\0\x04MQTT\x05\x02\0<#\x11\0\0\0\x1E!\0\x0A'\0\0\x03\xE8\"\0\x10\x19\x01\x17\0\x15\0\x01\
         m\x16\0\x01\xFF&\0\x01n\0\x01v\0\x01c",
        "CONNECT 5.0 \"c\" clean-start keep-alive=60 session-expiry-interval=30 receive-maximum=10 \
         maximum-packet-size=1000 topic-alias-maximum=16 request-response-information=true \
         request-problem-information=false authentication-method=\"m\" authentication-data=1 B \
         user-property=\"n\":\"v\"",
    ),
    first(
        "every property of a will", V5,
        b"\x10\x3A\0\x04MQTT\x05\x04\0<\0\0\x01c#\x18\0\0\0\x05\x01\x01\x02\0\0\0<\x03\0\x04text\x08\0\x01\
         r\x09\0\x02\xFF\0&\0\x01n\0\x01v\0\x01w\0\x03bye",
        "CONNECT 5.0 \"c\" keep-alive=60 will={q0 \"w\" will-delay-interval=5 payload-format-indicator=1 \
         message-expiry-interval=60 content-type=\"text\" response-topic=\"r\" correlation-data=2 B ff00 \
         user-property=\"n\":\"v\" 3 B \"bye\"}",
    ),
    lenient_first(
        "properties in another order", V5,
        b"\x10\x24\0\x04MQTT\x05\x02\0<\x16&\0\x01n\0\x01v!\0\x0A&\0\x01n\0\x01v\x11\0\0\0\x1E\0\x01c",
        "CONNECT 5.0 \"c\" clean-start keep-alive=60 session-expiry-interval=30 receive-maximum=10 \
         user-property=\"n\":\"v\" user-property=\"n\":\"v\"",
        b"\x10\x24\0\x04MQTT\x05\x02\0<\x16\x11\0\0\0\x1E!\0\x0A&\0\x01n\0\x01v&\0\x01n\0\x01v\0\x01c",
    ),
    refused(
        "CONNECT: an unknown property", V5,
        b"\x10\x10\0\x04MQTT\x05\x02\0<\x02\x7F\0\0\x01c",
        MalformedPacket,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "CONNECT: a misplaced server reference", V5,
        b"\x10\x12\0\x04MQTT\x05\x02\0<\x04\x1C\0\x01x\0\x01c",
        MalformedPacket,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "CONNECT: session expiry interval twice", V5,
        b"\x10\x18\0\x04MQTT\x05\x02\0<\x0A\x11\0\0\0\x1E\x11\0\0\0\x1E\0\x01c",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "CONNECT: receive maximum twice", V5,
        b"\x10\x14\0\x04MQTT\x05\x02\0<\x06!\0\x0A!\0\x0A\0\x01c",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "CONNECT: maximum packet size twice", V5,
        b"\x10\x18\0\x04MQTT\x05\x02\0<\x0A'\0\0\x03\xE8'\0\0\x03\xE8\0\x01c",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "CONNECT: topic alias maximum twice", V5,
        b"\x10\x14\0\x04MQTT\x05\x02\0<\x06\"\0\x10\"\0\x10\0\x01c",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "CONNECT: request response information twice", V5,
        b"\x10\x12\0\x04MQTT\x05\x02\0<\x04\x19\x01\x19\x01\0\x01c",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "CONNECT: request problem information twice", V5,
        b"\x10\x12\0\x04MQTT\x05\x02\0<\x04\x17\0\x17\0\0\x01c",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "CONNECT: authentication method twice", V5,
        b"\x10\x16\0\x04MQTT\x05\x02\0<\x08\x15\0\x01m\x15\0\x01m\0\x01c",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "CONNECT: authentication data twice", V5,
        b"\x10\x1A\0\x04MQTT\x05\x02\0<\x0C\x15\0\x01m\x16\0\x01\xFF\x16\0\x01\xFF\0\x01c",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "CONNECT: a property length that is not the shortest", V5,
        b"\x10\x0F\0\x04MQTT\x05\x02\0<\x80\0\0\x01c", MalformedPacket, "MQTT-1.5.5-1", b"\x20\x03\0\x81\0",
    ),
    refused(
        "CONNECT: a property length of 5 bytes", V5,
        b"\x10\x12\0\x04MQTT\x05\x02\0<\x80\x80\x80\x80\x01\0\x01c",
        MalformedPacket,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "CONNECT: properties that end inside a value", V5,
        b"\x10\x13\0\x04MQTT\x05\x02\0<\x05&\0\x01n\0\0\x01c",
        MalformedPacket,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "CONNECT: ill-formed UTF-8 in a user property", V5,
        b"\x10\x15\0\x04MQTT\x05\x02\0<\x07&\0\x01n\0\x01\xFF\0\x01c",
        MalformedPacket,
        "MQTT-1.5.7-1",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "CONNECT: U+0000 in a user property", V5,
        b"\x10\x15\0\x04MQTT\x05\x02\0<\x07&\0\x01\0\0\x01v\0\x01c",
        MalformedPacket,
        "MQTT-1.5.4-2",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "will: an unknown property", V5,
        b"\x10\x16\0\x04MQTT\x05\x04\0<\0\0\x01c\x02\x7F\0\0\x01w\0\0",
        MalformedPacket,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "will: a misplaced subscription identifier", V5,
        b"\x10\x17\0\x04MQTT\x05\x04\0<\0\0\x01c\x03\x0B\xAC\x02\0\x01w\0\0",
        MalformedPacket,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "will: will delay interval twice", V5,
        b"\x10\x1E\0\x04MQTT\x05\x04\0<\0\0\x01c\x0A\x18\0\0\0\x05\x18\0\0\0\x05\0\x01w\0\0",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "will: payload format indicator twice", V5,
        b"\x10\x18\0\x04MQTT\x05\x04\0<\0\0\x01c\x04\x01\x01\x01\x01\0\x01w\0\0",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "will: message expiry interval twice", V5,
        b"\x10\x1E\0\x04MQTT\x05\x04\0<\0\0\x01c\x0A\x02\0\0\0<\x02\0\0\0<\0\x01w\0\0",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "will: content type twice", V5,
        b"\x10\x22\0\x04MQTT\x05\x04\0<\0\0\x01c\x0E\x03\0\x04text\x03\0\x04text\0\x01w\0\0",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "will: response topic twice", V5,
        b"\x10\x1C\0\x04MQTT\x05\x04\0<\0\0\x01c\x08\x08\0\x01r\x08\0\x01r\0\x01w\0\0",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "will: correlation data twice", V5,
        b"\x10\x1E\0\x04MQTT\x05\x04\0<\0\0\x01c\x0A\x09\0\x02\xFF\0\x09\0\x02\xFF\0\0\x01w\0\0",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "will: a property length that is not the shortest", V5,
        b"\x10\x15\0\x04MQTT\x05\x04\0<\0\0\x01c\x80\0\0\x01w\0\0",
        MalformedPacket,
        "MQTT-1.5.5-1",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "will: a property length of 5 bytes", V5,
        b"\x10\x18\0\x04MQTT\x05\x04\0<\0\0\x01c\x80\x80\x80\x80\x01\0\x01w\0\0",
        MalformedPacket,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "will: properties that end inside a value", V5,
        b"\x10\x19\0\x04MQTT\x05\x04\0<\0\0\x01c\x05&\0\x01n\0\0\x01w\0\0",
        MalformedPacket,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "will: ill-formed UTF-8 in a user property", V5,
        b"\x10\x1B\0\x04MQTT\x05\x04\0<\0\0\x01c\x07&\0\x01n\0\x01\xFF\0\x01w\0\0",
        MalformedPacket,
        "MQTT-1.5.7-1",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "will: U+0000 in a user property", V5,
        b"\x10\x1B\0\x04MQTT\x05\x04\0<\0\0\x01c\x07&\0\x01\0\0\x01v\0\x01w\0\0",
        MalformedPacket,
        "MQTT-1.5.4-2",
        b"\x20\x03\0\x81\0",
    ),
    refused(
        "Receive Maximum 0", V5,
        b"\x10\x11\0\x04MQTT\x05\x02\0<\x03!\0\0\0\x01c",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "Maximum Packet Size 0", V5,
        b"\x10\x13\0\x04MQTT\x05\x02\0<\x05'\0\0\0\0\0\x01c",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "Request Problem Information 2", V5,
        b"\x10\x10\0\x04MQTT\x05\x02\0<\x02\x17\x02\0\x01c",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "Request Response Information 2", V5,
        b"\x10\x10\0\x04MQTT\x05\x02\0<\x02\x19\x02\0\x01c",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "payload format 2 in a will", V5,
        b"\x10\x16\0\x04MQTT\x05\x04\0<\0\0\x01c\x02\x01\x02\0\x01w\0\0",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "a wildcard in the response topic of a will", V5,
        b"\x10\x1A\0\x04MQTT\x05\x04\0<\0\0\x01c\x06\x08\0\x03r/+\0\x01w\0\0",
        ProtocolError,
        "MQTT-3.3.2-14",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "authentication data without a method", V5,
        b"\x10\x12\0\x04MQTT\x05\x02\0<\x04\x16\0\x01\xFF\0\x01c",
        ProtocolError,
        "MQTT-4.13.1-1",
        b"\x20\x03\0\x82\0",
    ),
    refused(
        "properties beyond the packet", V5,
        b"\x10\x0C\0\x04MQTT\x05\x02\0\0 \x11", MalformedPacket, "MQTT-4.13.1-1", b"\x20\x03\0\x81\0",
    ),
];
