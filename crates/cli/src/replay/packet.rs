//! Packets as they are compared: the properties that a server has to repeat in the same situation, and no others.
//!
//! A comparison leaves out the packet identifiers and DUP of messages, topic aliases, the texts and User Properties of
//! acknowledgements, and the remaining seconds of Message Expiry Interval. In PUBACK and PUBREC, *No matching subscribers*
//! counts as Success, because a server may send either (section 3.4.2.1).

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use topic::{TopicName, TopicNameBuf};
use wire::{
    Auth, ConnAck, ConnAckProperties, Connected, Decoded, Delivery, Disconnect, Limits, MessageProperties,
    Packet, PacketId, PacketType, PubAckReason, Publish, PublishTopic, Qos, Role, TopicAlias, Version,
    decode,
};

/// Maximum size of a packet. The rest of a connection with a larger one is not compared.
pub(crate) const PACKET_BYTES_MAX: usize = 16 << 20;

/// Maximum length of a printed packet, in characters.
const SHOWN_CHARS_MAX: usize = 300;

/// Hash of values that identify a packet. The hasher has no random key, but a capture is no attacker that could use this.
pub(crate) fn hash(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// A packet of a server, or the end of its stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) kind: Kind,
    /// Hash of everything that is compared.
    pub(crate) all: u64,
    /// Hash of the part that a different packet has in common with the expected one: its type, and its topic or identifier.
    pub(crate) about: u64,
    /// The packet on one line, for people.
    pub(crate) shown: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    ConnAck {
        session_present: bool,
        is_accepted: bool,
        assigned_client_id: Option<String>,
        topic_alias_max: u16,
        /// The limits and features of the server, on one line.
        offers: String,
    },
    Message(Message),
    /// PUBREL for a message of the server.
    Release(u16),
    /// An answer to a packet of the client with this identifier.
    Answer(PacketType, u16),
    Pong,
    Goodbye,
    Auth,
    End,
}

/// A PUBLISH of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) topic: TopicNameBuf,
    /// Hash of topic and payload.
    pub(crate) content: u64,
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    pub(crate) dup: bool,
    pub(crate) packet_id: Option<u16>,
}

impl Seen {
    /// The end of the stream from the server.
    pub(crate) fn end() -> Self {
        let all = hash("end");
        Self { kind: Kind::End, all, about: all, shown: "the end of the connection".into() }
    }

    fn of(packet: &Packet<'_>, version: Version, topics: &mut Topics) -> Result<Self, String> {
        let shown = packet.to_string().chars().take(SHOWN_CHARS_MAX).collect::<String>().into_boxed_str();
        let of_id = |packet_type: PacketType, packet_id: PacketId, reasons: &[u8]| {
            let about = hash((packet_type, packet_id));
            (Kind::Answer(packet_type, packet_id.value()), hash((about, reasons)), about)
        };
        let (kind, all, about) = match packet {
            Packet::ConnAck(packet) => connack(packet),
            Packet::Publish(packet) => publish(packet, version, topics)?,
            Packet::PubAck(packet) => of_id(PacketType::PubAck, packet.packet_id, &[accepted(packet.reason)]),
            Packet::PubRec(packet) => of_id(PacketType::PubRec, packet.packet_id, &[accepted(packet.reason)]),
            Packet::PubComp(packet) => {
                of_id(PacketType::PubComp, packet.packet_id, &[packet.reason.reason().code()])
            }
            Packet::PubRel(packet) => {
                let all = hash((PacketType::PubRel, packet.reason.reason().code()));
                (Kind::Release(packet.packet_id.value()), all, hash(PacketType::PubRel))
            }
            Packet::SubAck(packet) => {
                let reasons: Vec<u8> = packet.reasons.iter().map(|reason| reason.reason().code()).collect();
                of_id(PacketType::SubAck, packet.packet_id, &reasons)
            }
            Packet::UnsubAck(packet) => {
                let reasons: Vec<u8> = packet
                    .reasons
                    .iter()
                    .flat_map(|list| list.iter())
                    .map(|reason| reason.reason().code())
                    .collect();
                of_id(PacketType::UnsubAck, packet.packet_id, &reasons)
            }
            Packet::Disconnect(Disconnect { reason, .. }) => {
                let about = hash(PacketType::Disconnect);
                (Kind::Goodbye, hash((about, reason.reason().code())), about)
            }
            Packet::Auth(Auth { reason, .. }) => {
                let about = hash(PacketType::Auth);
                (Kind::Auth, hash((about, reason.reason().code())), about)
            }
            Packet::PingResp(_) => (Kind::Pong, hash(PacketType::PingResp), hash(PacketType::PingResp)),
            other => return Err(format!("a server does not send this packet: {other}")),
        };
        Ok(Self { kind, all, about, shown })
    }
}

/// The reason code of PUBACK and PUBREC, in which *No matching subscribers* is Success.
fn accepted(reason: PubAckReason) -> u8 {
    if reason == PubAckReason::NoMatchingSubscribers { 0 } else { reason.reason().code() }
}

fn connack(packet: &ConnAck<'_>) -> (Kind, u64, u64) {
    let (is_accepted, session_present) = match packet.outcome {
        Connected::Accepted { session_present } => (true, session_present),
        Connected::Refused(_) => (false, false),
    };
    let assigned_client_id = packet.properties.assigned_client_identifier.map(|id| id.as_str().to_owned());
    let topic_alias_max = packet.properties.topic_alias_maximum.unwrap_or_default();
    // The rest is free text, differs in each connection, or answers the client.
    let offers = ConnAckProperties {
        assigned_client_identifier: None,
        reason_string: None,
        response_information: None,
        server_reference: None,
        authentication_method: None,
        authentication_data: None,
        user_properties: wire::UserProperties::EMPTY,
        ..packet.properties
    };
    let offers = ConnAck { properties: offers, ..ConnAck::accepted(false) }.to_string();
    let offers = offers.trim_start_matches("CONNACK Success").trim().to_owned();
    let about = hash(PacketType::ConnAck);
    let outcome = match packet.outcome {
        Connected::Accepted { session_present } => u8::from(session_present),
        Connected::Refused(reason) => reason.reason().code(),
    };
    let kind = Kind::ConnAck { session_present, is_accepted, assigned_client_id, topic_alias_max, offers };
    (kind, hash((about, is_accepted, outcome)), about)
}

fn publish(packet: &Publish<'_>, version: Version, topics: &mut Topics) -> Result<(Kind, u64, u64), String> {
    let topic = topics.resolve(packet.topic).ok_or("a topic alias is used that has no topic")?;
    let about = hash((PacketType::Publish, topic.name().as_str()));
    let content = hash((topic.name().as_str(), packet.payload));
    // Only the presence of an expiry is compared: the remaining seconds depend on the time.
    let expiry = packet.properties.message_expiry_interval_secs.map(|_| 0);
    let delivery = match packet.delivery.qos() {
        Qos::AtMostOnce => Delivery::AtMostOnce,
        Qos::AtLeastOnce => Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false },
        Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id: PacketId::MIN, dup: false },
    };
    let mut identifiers: Vec<_> = packet.subscription_identifiers.iter().collect();
    identifiers.sort_unstable_by_key(|identifier| identifier.value());
    let compared = Publish {
        topic: PublishTopic::Name(topic.name()),
        delivery,
        subscription_identifiers: (&identifiers[..]).into(),
        properties: MessageProperties { message_expiry_interval_secs: expiry, ..packet.properties },
        ..*packet
    };
    let mut bytes = Vec::with_capacity(packet.payload.len() + 64);
    compared.encode(version, &mut bytes).map_err(|error| error.to_string())?;
    let message = Message {
        content,
        qos: packet.delivery.qos(),
        retain: packet.retain,
        dup: packet.delivery.dup(),
        packet_id: packet.delivery.packet_id().map(PacketId::value),
        topic,
    };
    Ok((Kind::Message(message), hash(bytes), about))
}

/// Topics by alias, in one direction of a connection.
#[derive(Debug, Default)]
pub(crate) struct Topics(HashMap<TopicAlias, TopicNameBuf>);

impl Topics {
    /// The topic of a message. `None` if its alias has no topic.
    pub(crate) fn resolve(&mut self, topic: PublishTopic<'_>) -> Option<TopicNameBuf> {
        match topic {
            PublishTopic::Name(name) => Some(owned(name)),
            PublishTopic::NameWithAlias(name, alias) => {
                self.0.insert(alias, owned(name));
                Some(owned(name))
            }
            PublishTopic::Alias(alias) => self.0.get(&alias).cloned(),
        }
    }
}

fn owned(name: TopicName<'_>) -> TopicNameBuf {
    TopicNameBuf::from(name)
}

/// Decodes the packets of a server. Memory: one incomplete packet of at most [`PACKET_BYTES_MAX`], and the topic aliases.
#[derive(Debug, Default)]
pub(crate) struct ServerReading {
    rest: Vec<u8>,
    topics: Topics,
    is_lost: bool,
}

impl ServerReading {
    /// Decodes complete packets, and passes them to `tell`. Bytes that are no packet end the decoding with an error.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        version: Version,
        mut tell: impl FnMut(Seen),
    ) -> Result<(), String> {
        if self.is_lost {
            return Ok(());
        }
        self.rest.extend_from_slice(bytes);
        let limits = Limits { sender: Some(Role::Server), ..Limits::default() };
        let mut at = 0;
        let outcome = loop {
            match decode(&self.rest[at..], Some(version), &limits) {
                Ok(Decoded::Packet { packet, len }) => {
                    match Seen::of(&packet, version, &mut self.topics) {
                        Ok(seen) => tell(seen),
                        Err(error) => break Err(error),
                    }
                    at += len;
                }
                Ok(Decoded::Need { total: Some(total) }) if total > PACKET_BYTES_MAX => {
                    break Err(format!("a packet of {total} B is too large to be compared"));
                }
                Ok(Decoded::Need { .. }) => break Ok(()),
                Err(violation) => break Err(violation.to_string()),
            }
        };
        self.rest.drain(..at);
        if outcome.is_err() {
            (self.is_lost, self.rest) = (true, Vec::new());
        }
        outcome
    }
}
