//! Sessions and connections, as far as the comparison has to know them.

use std::collections::{HashMap, HashSet};

use topic::{TopicFilterBuf, TopicName};
use wire::{PacketType, Qos};

use super::exchange::Exchanges;
use super::past::{Changes, is_shared};
use super::script::Posted;

/// Maximum number of ordered streams of a session that are remembered. Beyond it all are forgotten.
const STREAMS_MAX: usize = 1 << 14;

/// The session of a client identifier, or of one connection without an identifier.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The client identifier, for the report.
    pub(crate) name: String,
    /// The newest connection of the session.
    pub(crate) connection: u64,
    /// Filters of shared subscriptions that the session had at any time.
    shared: Vec<TopicFilterBuf>,
    pub(crate) changes: Changes,
    pub(crate) exchanges: Exchanges,
    pub(crate) releases: Releases,
    /// The last message of each stream in which order is required.
    streams: HashMap<Stream, Place>,
}

/// The session of a publisher, the hash of a topic, and a QoS.
pub(crate) type Stream = (u32, u64, Qos);

/// The place of a message: its step in the recording, and its number among the arrived packets of the replay.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) step: u64,
    pub(crate) arrival: u64,
}

impl Session {
    pub(crate) fn named(name: String) -> Self {
        Self { name, ..Self::default() }
    }

    pub(crate) fn subscribe(&mut self, filters: &[TopicFilterBuf]) {
        let new = filters.iter().filter(|filter| filter.filter().shared().is_some());
        let new: Vec<_> = new.filter(|filter| !self.shared.contains(filter)).cloned().collect();
        self.shared.extend(new);
    }

    /// Whether messages to this topic may come from a shared subscription.
    pub(crate) fn shares(&self, topic: TopicName<'_>) -> bool {
        is_shared(&self.shared, topic)
    }

    /// Whether a later message of a stream has arrived than the one of this step.
    pub(crate) fn is_behind(&self, stream: Stream, step: u64) -> bool {
        self.streams.get(&stream).is_some_and(|last| last.step > step)
    }

    /// Notes a message of a stream. Returns whether it has overtaken another one, or was overtaken.
    pub(crate) fn is_out_of_order(&mut self, stream: Stream, place: Place) -> bool {
        if self.streams.len() >= STREAMS_MAX {
            self.streams.clear();
        }
        let last = self.streams.entry(stream).or_insert(place);
        let is_wrong = (place.step < last.step) != (place.arrival < last.arrival);
        if place.step > last.step {
            *last = place;
        }
        is_wrong
    }
}

/// The messages of QoS 2 that a recorded client has released with PUBREL.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    /// Packet identifiers of PUBREL packets that the recorded server has not answered.
    open: HashSet<u16>,
    /// Packet identifiers of those that the client has sent again.
    repeated: HashSet<u16>,
}

impl Releases {
    pub(crate) fn publish(&mut self, packet_id: u16) {
        self.open.remove(&packet_id);
        self.repeated.remove(&packet_id);
    }

    pub(crate) fn release(&mut self, packet_id: u16) {
        if !self.open.insert(packet_id) {
            self.repeated.insert(packet_id);
        }
    }

    pub(crate) fn answer(&mut self, packet_id: u16) {
        self.open.remove(&packet_id);
    }

    /// Whether a server may have processed an earlier PUBREL, and then no longer knows the identifier.
    pub(crate) fn is_repeated(&self, packet_id: u16) -> bool {
        self.repeated.contains(&packet_id)
    }
}

/// A request of a client that the recorded server has not answered yet.
#[derive(Debug)]
pub(crate) enum Request {
    Publish(Posted),
    /// SUBSCRIBE or UNSUBSCRIBE, sent at this step.
    Change(u64),
}

/// A recorded connection, and its counterpart in the replay.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// The session, once CONNECT was sent.
    pub(crate) session: Option<u32>,
    /// Requests by the type and the packet identifier of the answer.
    pub(crate) requests: HashMap<(PacketType, u16), Request>,
    /// The session may continue without Session Present, which MQTT 3.1 does not have.
    pub(crate) may_resume_silently: bool,
    /// Step at which CONNECT was sent.
    pub(crate) connect_step: u64,
    /// Step at which the client has sent DISCONNECT, or ended the connection.
    pub(crate) end_step: Option<u64>,
    /// The recorded server has ended the connection.
    pub(crate) has_server_ended: bool,
    pub(crate) will: Option<Posted>,
    /// The server of the replay has ended the connection.
    pub(crate) is_over: bool,
    /// The end was reported as a difference, or the connection cannot be compared.
    pub(crate) is_ignored: bool,
    /// How often packets of this connection did not arrive in time, since the last one that arrived.
    pub(crate) failures: u32,
    /// Limits and features of the recorded server.
    pub(crate) offers: Option<String>,
    pub(crate) assigned_client_id: Option<String>,
}

/// Number of failures after which a connection is silent.
const FAILURES_MAX: u32 = 2;

impl Link {
    /// The server sends nothing on this connection any more: the other connections do not wait for its packets.
    pub(crate) fn is_silent(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// The client has ended the connection, or the recording ends here. Answers may then be absent.
    pub(crate) fn is_ending(&self) -> bool {
        self.end_step.is_some() || self.has_server_ended
    }
}

#[test]
fn two_messages_that_change_places_are_out_of_order() {
    let of = |places: &[(u64, u64)]| {
        let mut session = Session::default();
        let stream = (1, 2, Qos::AtMostOnce);
        let wrong = places.iter().filter(|(step, arrival)| {
            session.is_out_of_order(stream, Place { step: *step, arrival: *arrival })
        });
        wrong.count()
    };
    assert_eq!(of(&[(1, 1), (2, 2), (3, 3)]), 0);
    assert_eq!(of(&[(2, 2), (1, 1), (3, 3)]), 0, "the order in which they are compared does not matter");
    assert_eq!(of(&[(1, 1), (3, 2), (2, 3), (4, 4)]), 1);
    assert_eq!(of(&[(1, 2), (2, 1), (3, 3)]), 1);
}
