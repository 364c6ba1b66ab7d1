//! PUBACK, PUBREC, PUBREL and PUBCOMP (sections 3.4 to 3.7).

use super::{ALL, BEFORE_5, CLIENT, Case, SERVER, V5, bad, good, lenient};
use crate::ReasonCode::{MalformedPacket, ProtocolError};

#[rustfmt::skip] // One line per case, if it fits.
pub(super) const CASES: &[Case] = &[
    good("PUBACK", ALL, CLIENT, b"\x40\x02\x01\x02", "PUBACK id=258 Success"),
    good("PUBACK from a server", ALL, SERVER, b"\x40\x02\x01\x02", "PUBACK id=258 Success"),
    good("PUBACK with a reason", V5, CLIENT, b"\x40\x03\0\x01\x97", "PUBACK id=1 Quota exceeded"),
    lenient(
        "PUBACK with a reason that goes without saying", V5, CLIENT,
        b"\x40\x03\0\x01\0",
        "PUBACK id=1 Success",
        b"\x40\x02\0\x01",
    ),
    lenient(
        "PUBACK with an empty property length", V5, CLIENT,
        b"\x40\x04\0\x01\x97\0",
        "PUBACK id=1 Quota exceeded",
        b"\x40\x03\0\x01\x97",
    ),
    good(
        "PUBACK with every property", V5, CLIENT,
        b"\x40\x11\0\x01\0\x0D\x1F\0\x03why&\0\x01n\0\x01v",
        r#"PUBACK id=1 Success reason-string="why" user-property="n":"v""#,
    ),
    bad("PUBACK with packet identifier 0", V5, CLIENT, b"\x40\x02\0\0", ProtocolError, "MQTT-2.2.1-3"),
    bad("PUBACK with packet identifier 0", BEFORE_5, CLIENT, b"\x40\x02\0\0", ProtocolError, "MQTT-2.3.1-1"),
    bad("PUBACK without a packet identifier", V5, CLIENT, b"\x40\x00", MalformedPacket, "MQTT-4.13.1-1"),
    bad("PUBACK with half a packet identifier", V5, CLIENT, b"\x40\x01\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad("PUBACK without a packet identifier", BEFORE_5, CLIENT, b"\x40\x00", MalformedPacket, "MQTT-4.8.0-1"),
    bad(
        "PUBACK with half a packet identifier", BEFORE_5, CLIENT,
        b"\x40\x01\0", MalformedPacket, "MQTT-4.8.0-1",
    ),
    bad("PUBACK with a third byte", BEFORE_5, CLIENT, b"\x40\x03\0\x01\0", MalformedPacket, "MQTT-4.8.0-1"),
    bad("PUBACK with surplus bytes", V5, CLIENT, b"\x40\x05\0\x01\0\0\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad(
        "PUBACK with a reason that there is not", V5, CLIENT,
        b"\x40\x03\0\x01\x01", ProtocolError, "MQTT-3.4.2-1",
    ),
    bad(
        "PUBACK with a reason of another packet", V5, CLIENT,
        b"\x40\x03\0\x01\x8E", ProtocolError, "MQTT-3.4.2-1",
    ),
    bad(
        "PUBACK: an unknown property", V5, CLIENT,
        b"\x40\x06\0\x01\0\x02\x7F\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBACK: a misplaced server reference", V5, CLIENT,
        b"\x40\x08\0\x01\0\x04\x1C\0\x01x", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBACK: reason string twice", V5, CLIENT,
        b"\x40\x10\0\x01\0\x0C\x1F\0\x03why\x1F\0\x03why", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBACK: a property length that is not the shortest", V5, CLIENT,
        b"\x40\x05\0\x01\0\x80\0", MalformedPacket, "MQTT-1.5.5-1",
    ),
    bad(
        "PUBACK: a property length of 5 bytes", V5, CLIENT,
        b"\x40\x08\0\x01\0\x80\x80\x80\x80\x01", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBACK: properties that end inside a value", V5, CLIENT,
        b"\x40\x09\0\x01\0\x05&\0\x01n\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBACK: ill-formed UTF-8 in a user property", V5, CLIENT,
        b"\x40\x0B\0\x01\0\x07&\0\x01n\0\x01\xFF", MalformedPacket, "MQTT-1.5.7-1",
    ),
    bad(
        "PUBACK: U+0000 in a user property", V5, CLIENT,
        b"\x40\x0B\0\x01\0\x07&\0\x01\0\0\x01v", MalformedPacket, "MQTT-1.5.4-2",
    ),
    good("PUBREC", ALL, CLIENT, b"\x50\x02\x01\x02", "PUBREC id=258 Success"),
    good("PUBREC from a server", ALL, SERVER, b"\x50\x02\x01\x02", "PUBREC id=258 Success"),
    good("PUBREC with a reason", V5, CLIENT, b"\x50\x03\0\x01\x97", "PUBREC id=1 Quota exceeded"),
    lenient(
        "PUBREC with a reason that goes without saying", V5, CLIENT,
        b"\x50\x03\0\x01\0",
        "PUBREC id=1 Success",
        b"\x50\x02\0\x01",
    ),
    lenient(
        "PUBREC with an empty property length", V5, CLIENT,
        b"\x50\x04\0\x01\x97\0",
        "PUBREC id=1 Quota exceeded",
        b"\x50\x03\0\x01\x97",
    ),
    good(
        "PUBREC with every property", V5, CLIENT,
        b"\x50\x11\0\x01\0\x0D\x1F\0\x03why&\0\x01n\0\x01v",
        r#"PUBREC id=1 Success reason-string="why" user-property="n":"v""#,
    ),
    bad("PUBREC with packet identifier 0", V5, CLIENT, b"\x50\x02\0\0", ProtocolError, "MQTT-2.2.1-3"),
    bad("PUBREC with packet identifier 0", BEFORE_5, CLIENT, b"\x50\x02\0\0", ProtocolError, "MQTT-2.3.1-1"),
    bad("PUBREC without a packet identifier", V5, CLIENT, b"\x50\x00", MalformedPacket, "MQTT-4.13.1-1"),
    bad("PUBREC with half a packet identifier", V5, CLIENT, b"\x50\x01\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad("PUBREC without a packet identifier", BEFORE_5, CLIENT, b"\x50\x00", MalformedPacket, "MQTT-4.8.0-1"),
    bad(
        "PUBREC with half a packet identifier", BEFORE_5, CLIENT,
        b"\x50\x01\0", MalformedPacket, "MQTT-4.8.0-1",
    ),
    bad("PUBREC with a third byte", BEFORE_5, CLIENT, b"\x50\x03\0\x01\0", MalformedPacket, "MQTT-4.8.0-1"),
    bad("PUBREC with surplus bytes", V5, CLIENT, b"\x50\x05\0\x01\0\0\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad(
        "PUBREC with a reason that there is not", V5, CLIENT,
        b"\x50\x03\0\x01\x01", ProtocolError, "MQTT-3.5.2-1",
    ),
    bad(
        "PUBREC with a reason of another packet", V5, CLIENT,
        b"\x50\x03\0\x01\x8E", ProtocolError, "MQTT-3.5.2-1",
    ),
    bad(
        "PUBREC: an unknown property", V5, CLIENT,
        b"\x50\x06\0\x01\0\x02\x7F\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBREC: a misplaced server reference", V5, CLIENT,
        b"\x50\x08\0\x01\0\x04\x1C\0\x01x", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBREC: reason string twice", V5, CLIENT,
        b"\x50\x10\0\x01\0\x0C\x1F\0\x03why\x1F\0\x03why", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBREC: a property length that is not the shortest", V5, CLIENT,
        b"\x50\x05\0\x01\0\x80\0", MalformedPacket, "MQTT-1.5.5-1",
    ),
    bad(
        "PUBREC: a property length of 5 bytes", V5, CLIENT,
        b"\x50\x08\0\x01\0\x80\x80\x80\x80\x01", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBREC: properties that end inside a value", V5, CLIENT,
        b"\x50\x09\0\x01\0\x05&\0\x01n\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBREC: ill-formed UTF-8 in a user property", V5, CLIENT,
        b"\x50\x0B\0\x01\0\x07&\0\x01n\0\x01\xFF", MalformedPacket, "MQTT-1.5.7-1",
    ),
    bad(
        "PUBREC: U+0000 in a user property", V5, CLIENT,
        b"\x50\x0B\0\x01\0\x07&\0\x01\0\0\x01v", MalformedPacket, "MQTT-1.5.4-2",
    ),
    good("PUBREL", ALL, CLIENT, b"\x62\x02\x01\x02", "PUBREL id=258 Success"),
    good("PUBREL from a server", ALL, SERVER, b"\x62\x02\x01\x02", "PUBREL id=258 Success"),
    good(
        "PUBREL with a reason", V5, CLIENT,
        b"\x62\x03\0\x01\x92",
        "PUBREL id=1 Packet Identifier not found",
    ),
    lenient(
        "PUBREL with a reason that goes without saying", V5, CLIENT,
        b"\x62\x03\0\x01\0",
        "PUBREL id=1 Success",
        b"\x62\x02\0\x01",
    ),
    lenient(
        "PUBREL with an empty property length", V5, CLIENT,
        b"\x62\x04\0\x01\x92\0",
        "PUBREL id=1 Packet Identifier not found",
        b"\x62\x03\0\x01\x92",
    ),
    good(
        "PUBREL with every property", V5, CLIENT,
        b"\x62\x11\0\x01\0\x0D\x1F\0\x03why&\0\x01n\0\x01v",
        r#"PUBREL id=1 Success reason-string="why" user-property="n":"v""#,
    ),
    bad("PUBREL with packet identifier 0", V5, CLIENT, b"\x62\x02\0\0", ProtocolError, "MQTT-2.2.1-3"),
    bad("PUBREL with packet identifier 0", BEFORE_5, CLIENT, b"\x62\x02\0\0", ProtocolError, "MQTT-2.3.1-1"),
    bad("PUBREL without a packet identifier", V5, CLIENT, b"\x62\x00", MalformedPacket, "MQTT-4.13.1-1"),
    bad("PUBREL with half a packet identifier", V5, CLIENT, b"\x62\x01\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad("PUBREL without a packet identifier", BEFORE_5, CLIENT, b"\x62\x00", MalformedPacket, "MQTT-4.8.0-1"),
    bad(
        "PUBREL with half a packet identifier", BEFORE_5, CLIENT,
        b"\x62\x01\0", MalformedPacket, "MQTT-4.8.0-1",
    ),
    bad("PUBREL with a third byte", BEFORE_5, CLIENT, b"\x62\x03\0\x01\0", MalformedPacket, "MQTT-4.8.0-1"),
    bad("PUBREL with surplus bytes", V5, CLIENT, b"\x62\x05\0\x01\0\0\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad(
        "PUBREL with a reason that there is not", V5, CLIENT,
        b"\x62\x03\0\x01\x01", ProtocolError, "MQTT-3.6.2-1",
    ),
    bad(
        "PUBREL with a reason of another packet", V5, CLIENT,
        b"\x62\x03\0\x01\x8E", ProtocolError, "MQTT-3.6.2-1",
    ),
    bad(
        "PUBREL: an unknown property", V5, CLIENT,
        b"\x62\x06\0\x01\0\x02\x7F\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBREL: a misplaced server reference", V5, CLIENT,
        b"\x62\x08\0\x01\0\x04\x1C\0\x01x", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBREL: reason string twice", V5, CLIENT,
        b"\x62\x10\0\x01\0\x0C\x1F\0\x03why\x1F\0\x03why", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBREL: a property length that is not the shortest", V5, CLIENT,
        b"\x62\x05\0\x01\0\x80\0", MalformedPacket, "MQTT-1.5.5-1",
    ),
    bad(
        "PUBREL: a property length of 5 bytes", V5, CLIENT,
        b"\x62\x08\0\x01\0\x80\x80\x80\x80\x01", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBREL: properties that end inside a value", V5, CLIENT,
        b"\x62\x09\0\x01\0\x05&\0\x01n\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBREL: ill-formed UTF-8 in a user property", V5, CLIENT,
        b"\x62\x0B\0\x01\0\x07&\0\x01n\0\x01\xFF", MalformedPacket, "MQTT-1.5.7-1",
    ),
    bad(
        "PUBREL: U+0000 in a user property", V5, CLIENT,
        b"\x62\x0B\0\x01\0\x07&\0\x01\0\0\x01v", MalformedPacket, "MQTT-1.5.4-2",
    ),
    good("PUBCOMP", ALL, CLIENT, b"\x70\x02\x01\x02", "PUBCOMP id=258 Success"),
    good("PUBCOMP from a server", ALL, SERVER, b"\x70\x02\x01\x02", "PUBCOMP id=258 Success"),
    good(
        "PUBCOMP with a reason", V5, CLIENT,
        b"\x70\x03\0\x01\x92",
        "PUBCOMP id=1 Packet Identifier not found",
    ),
    lenient(
        "PUBCOMP with a reason that goes without saying", V5, CLIENT,
        b"\x70\x03\0\x01\0",
        "PUBCOMP id=1 Success",
        b"\x70\x02\0\x01",
    ),
    lenient(
        "PUBCOMP with an empty property length", V5, CLIENT,
        b"\x70\x04\0\x01\x92\0",
        "PUBCOMP id=1 Packet Identifier not found",
        b"\x70\x03\0\x01\x92",
    ),
    good(
        "PUBCOMP with every property", V5, CLIENT,
        b"\x70\x11\0\x01\0\x0D\x1F\0\x03why&\0\x01n\0\x01v",
        r#"PUBCOMP id=1 Success reason-string="why" user-property="n":"v""#,
    ),
    bad("PUBCOMP with packet identifier 0", V5, CLIENT, b"\x70\x02\0\0", ProtocolError, "MQTT-2.2.1-3"),
    bad("PUBCOMP with packet identifier 0", BEFORE_5, CLIENT, b"\x70\x02\0\0", ProtocolError, "MQTT-2.3.1-1"),
    bad("PUBCOMP without a packet identifier", V5, CLIENT, b"\x70\x00", MalformedPacket, "MQTT-4.13.1-1"),
    bad("PUBCOMP with half a packet identifier", V5, CLIENT, b"\x70\x01\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad(
        "PUBCOMP without a packet identifier", BEFORE_5, CLIENT,
        b"\x70\x00", MalformedPacket, "MQTT-4.8.0-1",
    ),
    bad(
        "PUBCOMP with half a packet identifier", BEFORE_5, CLIENT,
        b"\x70\x01\0", MalformedPacket, "MQTT-4.8.0-1",
    ),
    bad("PUBCOMP with a third byte", BEFORE_5, CLIENT, b"\x70\x03\0\x01\0", MalformedPacket, "MQTT-4.8.0-1"),
    bad("PUBCOMP with surplus bytes", V5, CLIENT, b"\x70\x05\0\x01\0\0\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad(
        "PUBCOMP with a reason that there is not", V5, CLIENT,
        b"\x70\x03\0\x01\x01", ProtocolError, "MQTT-3.7.2-1",
    ),
    bad(
        "PUBCOMP with a reason of another packet", V5, CLIENT,
        b"\x70\x03\0\x01\x8E", ProtocolError, "MQTT-3.7.2-1",
    ),
    bad(
        "PUBCOMP: an unknown property", V5, CLIENT,
        b"\x70\x06\0\x01\0\x02\x7F\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBCOMP: a misplaced server reference", V5, CLIENT,
        b"\x70\x08\0\x01\0\x04\x1C\0\x01x", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBCOMP: reason string twice", V5, CLIENT,
        b"\x70\x10\0\x01\0\x0C\x1F\0\x03why\x1F\0\x03why", ProtocolError, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBCOMP: a property length that is not the shortest", V5, CLIENT,
        b"\x70\x05\0\x01\0\x80\0", MalformedPacket, "MQTT-1.5.5-1",
    ),
    bad(
        "PUBCOMP: a property length of 5 bytes", V5, CLIENT,
        b"\x70\x08\0\x01\0\x80\x80\x80\x80\x01", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBCOMP: properties that end inside a value", V5, CLIENT,
        b"\x70\x09\0\x01\0\x05&\0\x01n\0", MalformedPacket, "MQTT-4.13.1-1",
    ),
    bad(
        "PUBCOMP: ill-formed UTF-8 in a user property", V5, CLIENT,
        b"\x70\x0B\0\x01\0\x07&\0\x01n\0\x01\xFF", MalformedPacket, "MQTT-1.5.7-1",
    ),
    bad(
        "PUBCOMP: U+0000 in a user property", V5, CLIENT,
        b"\x70\x0B\0\x01\0\x07&\0\x01\0\0\x01v", MalformedPacket, "MQTT-1.5.4-2",
    ),
];
