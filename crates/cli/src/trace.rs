//! `-d`: each packet on one line, as Mosquitto's clients print it.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use client::{Packet, Role, TopicFilter, Version};
use wire::{Connected, Delivery, Publish, PublishTopic, SubscriptionOptions};

use crate::settings::{Settings, Tool};

/// Who this is, and which identifier was used last: the lines of messages of QoS 0 have the next one.
#[derive(Debug)]
pub(crate) struct Trace {
    version: Version,
    tool: Tool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    client_id: Option<String>,
    last_packet_id: u16,
}

impl Trace {
    pub(crate) fn new(settings: &Settings) -> Self {
        let Settings { tool, session, .. } = settings;
        let state = State { client_id: session.client_id.clone(), last_packet_id: 0 };
        Self { version: session.version, tool: *tool, state: Mutex::new(state) }
    }

    /// Prints a packet to standard output.
    pub(crate) fn print(&self, sender: Role, packet: &Packet<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Packet::ConnAck(connack) = packet
            && let Some(assigned) = connack.properties.assigned_client_identifier
        {
            state.client_id = Some(assigned.as_str().to_owned());
        }
        let lines = match sender {
            Role::Client => sent(packet, &mut state.last_packet_id),
            Role::Server => received(packet, self.version),
        };
        let verb = if sender == Role::Client { "sending" } else { "received" };
        let client_id = state.client_id.as_deref().unwrap_or("(null)");
        // If nobody listens any more, the messages will find out.
        let mut to = io::stdout().lock();
        for line in lines {
            let _ = writeln!(to, "Client {client_id} {verb} {line}");
        }
        if let Packet::SubAck(suback) = packet
            && self.tool == Tool::Subscribe
        {
            let codes = suback.reasons.iter().map(|reason| reason.reason().code().to_string());
            let codes: Vec<_> = codes.collect();
            let _ = writeln!(to, "Subscribed (mid: {}): {}", suback.packet_id, codes.join(", "));
        }
    }
}

/// A packet of ours; one for several filters has a line for each.
fn sent(packet: &Packet<'_>, last_packet_id: &mut u16) -> Vec<String> {
    let line = match packet {
        Packet::Publish(publish) => publish_line(publish, sent_id(publish, last_packet_id)),
        Packet::PubAck(packet) => {
            format!("PUBACK (m{}, rc{})", packet.packet_id, packet.reason.reason().code())
        }
        Packet::PubRec(packet) => {
            format!("PUBREC (m{}, rc{})", packet.packet_id, packet.reason.reason().code())
        }
        Packet::PubRel(packet) => format!("PUBREL (m{})", packet.packet_id),
        Packet::PubComp(packet) => format!("PUBCOMP (m{})", packet.packet_id),
        Packet::Subscribe(packet) => {
            *last_packet_id = packet.packet_id.value();
            let subscriptions = packet.subscriptions.iter();
            return subscriptions
                .map(|subscription| {
                    let filter = subscription.filter().map_or("", TopicFilter::as_str);
                    let SubscriptionOptions { qos, .. } = subscription.options();
                    let options = options_byte(&subscription.options());
                    let (id, qos) = (packet.packet_id, qos.level());
                    format!("SUBSCRIBE (Mid: {id}, Topic: {filter}, QoS: {qos}, Options: 0x{options:02x})")
                })
                .collect();
        }
        Packet::Unsubscribe(packet) => {
            *last_packet_id = packet.packet_id.value();
            let filters = packet.filters.iter();
            return filters
                .map(|filter| {
                    let filter = filter.map_or("", TopicFilter::as_str);
                    format!("UNSUBSCRIBE (Mid: {}, Topic: {filter})", packet.packet_id)
                })
                .collect();
        }
        other => name(other).to_owned(),
    };
    vec![line]
}

/// A packet of the server's.
fn received(packet: &Packet<'_>, version: Version) -> Vec<String> {
    vec![match packet {
        Packet::ConnAck(packet) => {
            let code = match packet.outcome {
                Connected::Accepted { .. } => 0,
                Connected::Refused(reason) if version.is_5() => reason.reason().code(),
                Connected::Refused(reason) => reason.return_code().unwrap_or_default(),
            };
            format!("CONNACK ({code})")
        }
        Packet::Publish(publish) => publish_line(publish, packet_id(publish).unwrap_or_default()),
        Packet::PubAck(packet) => {
            format!("PUBACK (Mid: {}, RC:{})", packet.packet_id, packet.reason.reason().code())
        }
        Packet::PubComp(packet) => {
            format!("PUBCOMP (Mid: {}, RC:{})", packet.packet_id, packet.reason.reason().code())
        }
        Packet::PubRec(packet) => format!("PUBREC (Mid: {})", packet.packet_id),
        Packet::PubRel(packet) => format!("PUBREL (Mid: {})", packet.packet_id),
        Packet::Disconnect(packet) => format!("DISCONNECT ({})", packet.reason.reason().code()),
        other => name(other).to_owned(),
    }]
}

fn packet_id(publish: &Publish<'_>) -> Option<u16> {
    match publish.delivery {
        Delivery::AtMostOnce => None,
        Delivery::AtLeastOnce { packet_id, .. } | Delivery::ExactlyOnce { packet_id, .. } => {
            Some(packet_id.value())
        }
    }
}

/// Its identifier; at QoS 0 the one that it would have.
fn sent_id(publish: &Publish<'_>, last: &mut u16) -> u16 {
    *last = packet_id(publish).unwrap_or_else(|| last.checked_add(1).unwrap_or(1));
    *last
}

fn publish_line(publish: &Publish<'_>, packet_id: u16) -> String {
    let dup = matches!(
        publish.delivery,
        Delivery::AtLeastOnce { dup: true, .. } | Delivery::ExactlyOnce { dup: true, .. }
    );
    let topic = match publish.topic {
        PublishTopic::Name(topic) | PublishTopic::NameWithAlias(topic, _) => topic.as_str(),
        PublishTopic::Alias(_) => "",
    };
    let (qos, retain) = (publish.delivery.qos().level(), u8::from(publish.retain));
    let bytes = publish.payload.len();
    format!("PUBLISH (d{}, q{qos}, r{retain}, m{packet_id}, '{topic}', ... ({bytes} bytes))", u8::from(dup))
}

/// The options of a subscription on the wire, without QoS (section 3.8.3.1).
fn options_byte(options: &SubscriptionOptions) -> u8 {
    let flag = |is_set: bool, bit: u8| u8::from(is_set) << bit;
    flag(options.no_local, 2) | flag(options.retain_as_published, 3) | (options.retain_handling as u8) << 4
}

fn name(packet: &Packet<'_>) -> &'static str {
    match packet {
        Packet::Connect(_) => "CONNECT",
        Packet::ConnAck(_) => "CONNACK",
        Packet::Publish(_) => "PUBLISH",
        Packet::PubAck(_) => "PUBACK",
        Packet::PubRec(_) => "PUBREC",
        Packet::PubRel(_) => "PUBREL",
        Packet::PubComp(_) => "PUBCOMP",
        Packet::Subscribe(_) => "SUBSCRIBE",
        Packet::SubAck(_) => "SUBACK",
        Packet::Unsubscribe(_) => "UNSUBSCRIBE",
        Packet::UnsubAck(_) => "UNSUBACK",
        Packet::PingReq(_) => "PINGREQ",
        Packet::PingResp(_) => "PINGRESP",
        Packet::Disconnect(_) => "DISCONNECT",
        Packet::Auth(_) => "AUTH",
    }
}
