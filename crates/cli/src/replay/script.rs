//! The steps of a replay: what the recorded clients sent, and what the recorded server answered.

use std::collections::{HashMap, VecDeque};
use std::io::Read;
use std::time::Duration;

use topic::{TopicFilterBuf, TopicNameBuf};
use wire::{
    Connect, Decoded, Limits, Packet, PacketId, PacketType, Publish, Qos, RequestedFilter, Role, TopicAlias,
    Version, Will, decode,
};

use super::exchange::Acknowledgement;
use super::packet::{PACKET_BYTES_MAX, Seen, ServerReading, Topics, hash};
use super::pcap::PcapError;
use super::stream::{Happening, Heard, Streams};

/// One step of a replay.
#[derive(Debug)]
pub(crate) struct Step {
    /// Position in the recording, from 1.
    pub(crate) number: u64,
    /// Number of the connection.
    pub(crate) connection: u64,
    /// Time since 1970.
    pub(crate) time: Duration,
    pub(crate) act: Act,
}

#[derive(Debug)]
pub(crate) enum Act {
    /// A client opens a connection.
    Open,
    /// A client sends a packet.
    Send(Vec<u8>, Said),
    /// A client sends bytes that are not MQTT, or a part of a packet.
    SendRaw(Vec<u8>),
    /// The server sends a packet, or ends the connection.
    Expect(Seen),
    /// A client ends its direction of the connection.
    ClientEnds,
    /// The rest of the connection cannot be played.
    Abandon(String),
}

/// A packet of a client, as far as a replay has to understand it.
#[derive(Debug)]
pub(crate) enum Said {
    Connect(Box<Greeting>),
    Publish(Posted),
    Subscribe(u16, Vec<TopicFilterBuf>),
    Unsubscribe(u16, Vec<TopicFilterBuf>),
    /// PUBACK, PUBREC or PUBCOMP for a message of the server. Its identifier is that of the recording.
    Acknowledge(Acknowledgement),
    /// PUBREL for a message of the client.
    Release(u16),
    Ping,
    Disconnect,
    Auth,
}

/// The content of a CONNECT.
#[derive(Debug)]
pub(crate) struct Greeting {
    pub(crate) version: Version,
    pub(crate) client_id: String,
    /// The session may outlive the connection.
    pub(crate) is_lasting: bool,
    pub(crate) will: Option<Posted>,
}

/// A message that a client publishes.
#[derive(Debug, Clone)]
pub(crate) struct Posted {
    pub(crate) topic: TopicNameBuf,
    /// Hash of topic and payload, as in [`Message`](super::packet::Message).
    pub(crate) content: u64,
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    /// The client has sent the message before.
    pub(crate) dup: bool,
    pub(crate) packet_id: Option<u16>,
    pub(crate) alias: Option<TopicAlias>,
}

/// Reads the steps of a recording. Memory: an incomplete packet and the topic aliases of each direction of each open
/// connection.
#[derive(Debug)]
pub(crate) struct Script<R> {
    streams: Streams<R>,
    open: HashMap<u64, Connection>,
    ready: VecDeque<Step>,
    number: u64,
}

#[derive(Debug, Default)]
struct Connection {
    /// Version in CONNECT, once it is known.
    version: Option<Version>,
    from_client: Vec<u8>,
    /// Topics of the client's aliases.
    topics: Topics,
    /// The client has sent bytes that are not MQTT. The rest is sent as it is.
    is_raw: bool,
    /// The rest is not played.
    is_abandoned: bool,
    from_server: ServerReading,
    has_ended: [bool; 2],
}

impl<R: Read> Script<R> {
    pub(crate) fn new(streams: Streams<R>) -> Self {
        Self { streams, open: HashMap::new(), ready: VecDeque::new(), number: 0 }
    }

    /// Number of bytes of the file that were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.streams.bytes()
    }

    /// Returns the next step.
    pub(crate) fn next(&mut self) -> Result<Option<Step>, PcapError> {
        while self.ready.is_empty() {
            match self.streams.next()? {
                Some(happening) => self.take(happening),
                None => return Ok(None),
            }
        }
        Ok(self.ready.pop_front())
    }

    /// Reads the rest of the file without looking into its records.
    pub(crate) fn skim(&mut self) -> Result<(), PcapError> {
        self.streams.skim()
    }

    fn take(&mut self, Happening { connection, time, what }: Happening) {
        let (number, ready) = (&mut self.number, &mut self.ready);
        let mut tell = |act| {
            *number += 1;
            ready.push_back(Step { number: *number, connection, time, act });
        };
        if what == Heard::Open {
            self.open.insert(connection, Connection::default());
            return tell(Act::Open);
        }
        let Some(state) = self.open.get_mut(&connection) else { return };
        match what {
            Heard::Open => {}
            Heard::Bytes(..) | Heard::Gap if state.is_abandoned => {}
            Heard::Bytes(Role::Client, bytes) => state.take_from_client(&bytes, &mut tell),
            Heard::Bytes(Role::Server, bytes) => state.take_from_server(&bytes, &mut tell),
            Heard::Gap => state.abandon("bytes are missing in the capture".to_owned(), &mut tell),
            Heard::End(role) => {
                state.has_ended[usize::from(role == Role::Server)] = true;
                match role {
                    _ if state.is_abandoned => {}
                    Role::Client => {
                        if !state.from_client.is_empty() {
                            tell(Act::SendRaw(std::mem::take(&mut state.from_client)));
                        }
                        tell(Act::ClientEnds);
                    }
                    Role::Server => tell(Act::Expect(Seen::end())),
                }
                if state.has_ended == [true; 2] {
                    self.open.remove(&connection);
                }
            }
        }
    }
}

impl Connection {
    fn abandon(&mut self, why: String, tell: &mut impl FnMut(Act)) {
        *self = Self { is_abandoned: true, has_ended: self.has_ended, ..Self::default() };
        tell(Act::Abandon(why));
    }

    fn take_from_server(&mut self, bytes: &[u8], tell: &mut impl FnMut(Act)) {
        // A server may answer a CONNECT that is not understood here, such as one of an unknown version.
        let version = self.version.unwrap_or(Version::V5);
        if let Err(error) = self.from_server.take(bytes, version, |seen| tell(Act::Expect(seen))) {
            self.abandon(format!("the recorded server: {error}"), tell);
        }
    }

    fn take_from_client(&mut self, bytes: &[u8], tell: &mut impl FnMut(Act)) {
        if self.is_raw {
            return tell(Act::SendRaw(bytes.to_vec()));
        }
        let mut rest = std::mem::take(&mut self.from_client);
        rest.extend_from_slice(bytes);
        let limits = Limits { sender: Some(Role::Client), ..Limits::default() };
        let mut at = 0;
        loop {
            let unread = &rest[at..];
            let is_connect = unread.first().is_some_and(|first| first >> 4 == 1);
            match decode(unread, self.version.filter(|_| !is_connect), &limits) {
                Ok(Decoded::Packet { packet, len }) => {
                    let bytes = unread[..len].to_vec();
                    match self.said(&packet) {
                        Some(said) => tell(Act::Send(bytes, said)),
                        None => tell(Act::SendRaw(bytes)),
                    }
                    at += len;
                }
                Ok(Decoded::Need { total: Some(total) }) if total > PACKET_BYTES_MAX => {
                    return self.abandon(format!("a packet of {total} B is too large to be played"), tell);
                }
                Ok(Decoded::Need { .. }) => break,
                Err(_) if self.version.is_none() && !is_connect => {
                    return self.abandon("its first bytes are not MQTT".to_owned(), tell);
                }
                Err(_) => {
                    self.is_raw = true;
                    tell(Act::SendRaw(unread.to_vec()));
                    at = rest.len();
                    break;
                }
            }
        }
        rest.drain(..at);
        self.from_client = rest;
    }

    /// Understands a packet. `None` if its bytes are sent without further meaning.
    fn said(&mut self, packet: &Packet<'_>) -> Option<Said> {
        let id = PacketId::value;
        let acknowledge = |packet_type, packet_id: PacketId, is_refusal| {
            Said::Acknowledge(Acknowledgement { packet_type, packet_id: packet_id.value(), is_refusal })
        };
        Some(match packet {
            Packet::Connect(connect) => {
                self.version = Some(connect.version());
                Said::Connect(Box::new(greeting(connect)))
            }
            Packet::Publish(publish) => Said::Publish(self.posted(publish)?),
            Packet::Subscribe(packet) => {
                let filters = packet.subscriptions.iter().map(|subscription| subscription.filter());
                Said::Subscribe(id(packet.packet_id), valid(filters))
            }
            Packet::Unsubscribe(packet) => {
                Said::Unsubscribe(id(packet.packet_id), valid(packet.filters.iter()))
            }
            Packet::PubAck(packet) => acknowledge(PacketType::PubAck, packet.packet_id, false),
            Packet::PubRec(packet) => {
                acknowledge(PacketType::PubRec, packet.packet_id, packet.reason.reason().is_error())
            }
            Packet::PubComp(packet) => acknowledge(PacketType::PubComp, packet.packet_id, false),
            Packet::PubRel(packet) => Said::Release(id(packet.packet_id)),
            Packet::PingReq(_) => Said::Ping,
            Packet::Disconnect(_) => Said::Disconnect,
            Packet::Auth(_) => Said::Auth,
            _ => return None,
        })
    }

    fn posted(&mut self, publish: &Publish<'_>) -> Option<Posted> {
        let topic = self.topics.resolve(publish.topic)?;
        Some(Posted {
            content: hash((topic.name().as_str(), publish.payload)),
            topic,
            qos: publish.delivery.qos(),
            retain: publish.retain,
            dup: publish.delivery.dup(),
            packet_id: publish.delivery.packet_id().map(PacketId::value),
            alias: publish.topic.alias(),
        })
    }
}

fn greeting(connect: &Connect<'_>) -> Greeting {
    let is_lasting = if connect.version().is_5() {
        connect.properties.session_expiry_interval_secs.is_some_and(|secs| secs > 0)
    } else {
        !connect.clean_start
    };
    let will = connect.will.as_ref().map(|will: &Will<'_>| Posted {
        topic: TopicNameBuf::from(will.topic),
        content: hash((will.topic.as_str(), will.payload.as_bytes())),
        qos: will.qos,
        retain: will.retain,
        dup: false,
        packet_id: None,
        alias: None,
    });
    let client_id = connect.client_id.as_str().to_owned();
    Greeting { version: connect.version(), client_id, is_lasting, will }
}

fn valid<'a>(filters: impl Iterator<Item = RequestedFilter<'a>>) -> Vec<TopicFilterBuf> {
    filters.flatten().map(TopicFilterBuf::from).collect()
}
