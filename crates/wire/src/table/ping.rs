//! PINGREQ and PINGRESP (sections 3.12 and 3.13).

use super::{ALL, BEFORE_5, CLIENT, Case, SERVER, V5, bad, good};
use crate::ReasonCode::MalformedPacket;

#[rustfmt::skip] // One line per case, if it fits.
pub(super) const CASES: &[Case] = &[
    good("PINGREQ", ALL, CLIENT, b"\xC0\x00", "PINGREQ"),
    good("PINGRESP", ALL, SERVER, b"\xD0\x00", "PINGRESP"),
    bad("PINGREQ with a byte", V5, CLIENT, b"\xC0\x01\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad("PINGRESP with a byte", V5, SERVER, b"\xD0\x01\0", MalformedPacket, "MQTT-4.13.1-1"),
    bad("PINGREQ with a byte", BEFORE_5, CLIENT, b"\xC0\x01\0", MalformedPacket, "MQTT-4.8.0-1"),
    bad("PINGRESP with a byte", BEFORE_5, SERVER, b"\xD0\x01\0", MalformedPacket, "MQTT-4.8.0-1"),
];
