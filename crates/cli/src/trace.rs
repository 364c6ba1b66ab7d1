//! `-d`: prints each packet on one line, in the format of Mosquitto's clients.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use client::{Packet, Role, TopicAlias, TopicFilter, Version};
use wire::{Connected, Delivery, Publish, PublishTopic, Shown, SubscriptionOptions};

use crate::settings::{Settings, Tool};
use crate::stdout::output;

/// Prints the packets of consecutive connections.
#[derive(Debug)]
pub(crate) struct Trace {
    version: Version,
    tool: Tool,
    state: Mutex<State>,
}

/// Data for the output that is not in the packet itself.
#[derive(Debug)]
struct State {
    client_id: Option<String>,
    /// Last packet identifier. Messages of QoS 0 are printed with the next one.
    last_packet_id: u16,
    /// Topics by direction (`true` for the client's own) and alias.
    aliases: HashMap<(bool, TopicAlias), String>,
}

impl State {
    /// Topic of a message, by name or by alias.
    fn topic(&mut self, sender: Role, publish: &Publish<'_>) -> String {
        let is_ours = sender == Role::Client;
        match publish.topic {
            PublishTopic::Name(topic) => topic.as_str().to_owned(),
            PublishTopic::NameWithAlias(topic, alias) => {
                self.aliases.insert((is_ours, alias), topic.as_str().to_owned());
                topic.as_str().to_owned()
            }
            PublishTopic::Alias(alias) => self.aliases.get(&(is_ours, alias)).cloned().unwrap_or_default(),
        }
    }

    /// Formats a PUBLISH of either side.
    fn publish(&mut self, sender: Role, publish: &Publish<'_>) -> String {
        let topic = self.topic(sender, publish);
        let packet_id = match sender {
            Role::Client => sent_id(publish, &mut self.last_packet_id),
            Role::Server => packet_id(publish).unwrap_or_default(),
        };
        let dup = matches!(
            publish.delivery,
            Delivery::AtLeastOnce { dup: true, .. } | Delivery::ExactlyOnce { dup: true, .. }
        );
        let (dup, retain) = (u8::from(dup), u8::from(publish.retain));
        let (qos, bytes) = (publish.delivery.qos().level(), publish.payload.len());
        format!("PUBLISH (d{dup}, q{qos}, r{retain}, m{packet_id}, '{topic}', ... ({bytes} bytes))")
    }
}

impl Trace {
    pub(crate) fn new(settings: &Settings) -> Self {
        let Settings { tool, session, .. } = settings;
        let client_id = session.client_id.clone();
        let state = State { client_id, last_packet_id: 0, aliases: HashMap::new() };
        Self { version: session.version, tool: *tool, state: Mutex::new(state) }
    }

    /// Prints a packet to standard output.
    pub(crate) fn print(&self, sender: Role, packet: &Packet<'_>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Packet::ConnAck(connack) = packet {
            // Aliases belong to one connection.
            state.aliases.clear();
            if let Some(assigned) = connack.properties.assigned_client_identifier {
                state.client_id = Some(assigned.as_str().to_owned());
            }
        }
        let lines = match (packet, sender) {
            (Packet::Publish(publish), sender) => vec![state.publish(sender, publish)],
            (packet, Role::Client) => sent(packet, &mut state.last_packet_id),
            (packet, Role::Server) => vec![received(packet, self.version)],
        };
        let verb = if sender == Role::Client { "sending" } else { "received" };
        let client_id = state.client_id.as_deref().unwrap_or("(null)");
        let print = |line: &str| output().write_line(&Shown(line).to_string());
        for line in lines {
            print(&format!("Client {client_id} {verb} {line}"));
        }
        if let Packet::SubAck(suback) = packet
            && self.tool == Tool::Subscribe
        {
            let codes = suback.reasons.iter().map(|reason| reason.reason().code().to_string());
            let codes: Vec<_> = codes.collect();
            print(&format!("Subscribed (mid: {}): {}", suback.packet_id, codes.join(", ")));
        }
    }
}

/// Formats a packet from the client. A packet with several filters has one line for each.
fn sent(packet: &Packet<'_>, last_packet_id: &mut u16) -> Vec<String> {
    let line = match packet {
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

/// Formats a packet from the server.
fn received(packet: &Packet<'_>, version: Version) -> String {
    match packet {
        Packet::ConnAck(packet) => {
            let code = match packet.outcome {
                Connected::Accepted { .. } => 0,
                Connected::Refused(reason) if version.is_5() => reason.reason().code(),
                Connected::Refused(reason) => reason.return_code().unwrap_or_default(),
            };
            format!("CONNACK ({code})")
        }
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
    }
}

fn packet_id(publish: &Publish<'_>) -> Option<u16> {
    match publish.delivery {
        Delivery::AtMostOnce => None,
        Delivery::AtLeastOnce { packet_id, .. } | Delivery::ExactlyOnce { packet_id, .. } => {
            Some(packet_id.value())
        }
    }
}

/// Packet identifier of a message. At QoS 0, the one that it would have.
fn sent_id(publish: &Publish<'_>, last: &mut u16) -> u16 {
    *last = packet_id(publish).unwrap_or_else(|| last.checked_add(1).unwrap_or(1));
    *last
}

/// Subscription options as encoded in SUBSCRIBE, without QoS (section 3.8.3.1).
fn options_byte(options: &SubscriptionOptions) -> u8 {
    let flag = |is_set: bool, bit: u8| u8::from(is_set) << bit;
    flag(options.no_local, 2) | flag(options.retain_as_published, 3) | (options.retain_handling as u8) << 4
}

/// The packet's name in capitals, as in the lines of `tap` and of `--debug`.
pub(crate) fn name(packet: &Packet<'_>) -> &'static str {
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
