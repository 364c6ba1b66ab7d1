//! Packets without the optional parts that their receiver does not accept.

use wire::{AckProperties, Packet, UserProperties, Version};

/// Limits of the receiver of our packets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Receiver {
    pub(crate) version: Version,
    /// Maximum size of a packet, with its fixed header, in bytes.
    pub(crate) packet_bytes_max: usize,
    /// Whether the receiver accepts Reason String and User Properties in any packet [MQTT-3.1.2-29].
    pub(crate) takes_problem_information: bool,
}

impl Receiver {
    /// Writes a packet. Returns whether it was written: not if it is too large in any form, or if the version does not
    /// have it.
    ///
    /// Reason String and User Properties are left out of packets that contain them for explanation only, if the
    /// receiver does not accept them, or if the packet is too large with them. The Reason String is left out first.
    pub(crate) fn write(self, packet: &Packet<'_>, into: &mut Vec<u8>) -> bool {
        let start = into.len();
        let fits = |into: &Vec<u8>| into.len() - start <= self.packet_bytes_max;
        let mut packet = *packet;
        let is_report = matches!(packet, Packet::ConnAck(_) | Packet::Disconnect(_));
        if !self.takes_problem_information && !is_report {
            drop_reason_string(&mut packet);
            drop_user_properties(&mut packet);
        }
        for leave_out in [None, Some(drop_reason_string as fn(&mut Packet<'_>)), Some(drop_user_properties)] {
            leave_out.inspect(|leave_out| leave_out(&mut packet));
            if packet.encode(self.version, into).is_ok() && fits(into) {
                return true;
            }
            into.truncate(start);
        }
        false
    }
}

fn drop_reason_string(packet: &mut Packet<'_>) {
    match packet {
        Packet::ConnAck(packet) => packet.properties.reason_string = None,
        Packet::Disconnect(packet) => packet.properties.reason_string = None,
        Packet::Auth(packet) => packet.properties.reason_string = None,
        _ => {
            if let Some(properties) = ack_properties(packet) {
                properties.reason_string = None;
            }
        }
    }
}

fn drop_user_properties(packet: &mut Packet<'_>) {
    match packet {
        Packet::ConnAck(packet) => packet.properties.user_properties = UserProperties::EMPTY,
        Packet::Disconnect(packet) => packet.properties.user_properties = UserProperties::EMPTY,
        Packet::Auth(packet) => packet.properties.user_properties = UserProperties::EMPTY,
        _ => {
            if let Some(properties) = ack_properties(packet) {
                properties.user_properties = UserProperties::EMPTY;
            }
        }
    }
}

fn ack_properties<'p, 'a>(packet: &'p mut Packet<'a>) -> Option<&'p mut AckProperties<'a>> {
    Some(match packet {
        Packet::PubAck(packet) => &mut packet.properties,
        Packet::PubRec(packet) => &mut packet.properties,
        Packet::PubRel(packet) => &mut packet.properties,
        Packet::PubComp(packet) => &mut packet.properties,
        Packet::SubAck(packet) => &mut packet.properties,
        Packet::UnsubAck(packet) => &mut packet.properties,
        _ => return None,
    })
}
