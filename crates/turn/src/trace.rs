//! A trace: what crosses the connections of some clients, for an operator to read.
//!
//! The thread of an operator makes a [`Trace`] and posts it to all shards ([`Note::Trace`](crate::Note::Trace)). Each shard
//! sends records as long as the trace is under way. Records are sent through a channel without a lock, and bounded in bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use auth::Whom;
use base::{Budget, Charge, ConnectionId, Purpose, ShardId};
use stream::Peer;
use topic::{TopicFilterBuf, TopicName, TopicNameBuf};
use wire::{Role, Version};

/// The part of a record beside its bytes, as it counts against the limit of a trace.
pub const RECORD_BYTES: usize = 256;
/// Times that the limit of a trace is charged to the account of memory: for the records, and for the lines and the file that are
/// made of them.
pub const COPIES: usize = 3;

/// The connections that a trace is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceSubject {
    /// Everything on the connections of these clients.
    Clients(Whom),
    /// The PUBLISH packets of all connections whose topic matches a filter, as the clients write the topic.
    Topic {
        /// The filter that selects the messages.
        filter: TopicFilterBuf,
        /// A topic whose packets are left out: the one to which the lines of the trace are published.
        except: Option<TopicNameBuf>,
    },
}

impl TraceSubject {
    /// Whether this is a trace by topic, and messages with this topic are part of it.
    pub(crate) fn has_topic(&self, name: TopicName<'_>) -> bool {
        match self {
            Self::Clients(_) => false,
            Self::Topic { filter, except } => {
                filter.filter().matches(name) && except.as_ref().is_none_or(|except| except.name() != name)
            }
        }
    }
}

/// A trace under way, which all shards share with the thread that reads its records.
#[derive(Debug)]
pub struct Trace {
    number: u32,
    subject: TraceSubject,
    records: Sender<TraceRecord>,
    left_bytes: AtomicUsize,
    is_full: AtomicBool,
    is_stopped: AtomicBool,
    _charge: Charge,
}

/// One event of a connection.
#[derive(Debug)]
pub struct TraceRecord {
    /// The time, in milliseconds since 1970.
    pub unix_ms: u64,
    /// The shard of the connection.
    pub shard: ShardId,
    /// The connection on that shard.
    pub connection: ConnectionId,
    /// The event, with its bytes or its text.
    pub event: TraceEvent,
}

/// The kinds of events.
#[derive(Debug)]
pub enum TraceEvent {
    /// The first event of each connection.
    Begun {
        /// The other end of the connection.
        peer: Peer,
        /// The place of its listener among all.
        listener: u16,
        /// The version of MQTT, if the client was let in before.
        version: Option<Version>,
        /// Whether all bytes of the connection follow, from the first one on.
        is_from_start: bool,
    },
    /// The identifier of the client, given or assigned.
    Named(Box<str>),
    /// Bytes of the client, or those that its socket took. A password in CONNECT is replaced by asterisks. In a trace by topic:
    /// a PUBLISH packet that was read, or was queued for the client.
    Bytes(Role, Box<[u8]>),
    /// A decision about the client, in words.
    Decision(String),
    /// The connection is closed.
    Closed,
}

impl Trace {
    /// Begins a trace with a number, which is not 0, and returns it with the channel of its records. It ends when records have
    /// `bytes_max` bytes, headers of [`RECORD_BYTES`] included.
    ///
    /// [`COPIES`] times as much memory is charged until the trace is dropped.
    #[must_use]
    pub fn new(
        number: u32,
        subject: TraceSubject,
        bytes_max: usize,
        budget: &Arc<Budget>,
    ) -> (Self, Receiver<TraceRecord>) {
        let (records, receiver) = channel();
        let trace = Self {
            number,
            subject,
            records,
            left_bytes: AtomicUsize::new(bytes_max),
            is_full: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            _charge: budget.charge(Purpose::Traces, COPIES * bytes_max),
        };
        (trace, receiver)
    }

    /// The subject of the trace.
    #[must_use]
    pub fn subject(&self) -> &TraceSubject {
        &self.subject
    }

    /// Whether it has ended because a record had no room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Ends the trace: shards send no more records.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Whether no more records come, but for those of a turn under way.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_full() || self.is_stopped.load(Ordering::Relaxed)
    }

    /// The bytes that records may still have.
    #[must_use]
    pub fn left_bytes(&self) -> usize {
        self.left_bytes.load(Ordering::Relaxed)
    }

    /// The number of the trace.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Takes the part of a record with this many bytes from the limit. If there is not so much left, the trace ends.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        if self.is_over() {
            return false;
        }
        let take = |left: usize| left.checked_sub(RECORD_BYTES + bytes);
        let has_room = self.left_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok();
        if !has_room {
            self.is_full.store(true, Ordering::Relaxed);
        }
        has_room
    }

    /// Sends a record, unless it has more bytes than are left: then the trace ends.
    pub(crate) fn send(&self, unix_ms: u64, shard: ShardId, connection: ConnectionId, event: TraceEvent) {
        let bytes = match &event {
            TraceEvent::Bytes(_, bytes) => bytes.len(),
            TraceEvent::Decision(text) => text.len(),
            TraceEvent::Named(client_id) => client_id.len(),
            TraceEvent::Begun { .. } | TraceEvent::Closed => 0,
        };
        if self.reserve(bytes) {
            self.send_reserved(TraceRecord { unix_ms, shard, connection, event });
        }
    }

    /// Sends a copy of bytes, which is made if there is room for it.
    pub(crate) fn send_bytes(
        &self,
        unix_ms: u64,
        shard: ShardId,
        connection: ConnectionId,
        (sender, bytes): (Role, &[u8]),
    ) {
        if self.reserve(bytes.len()) {
            let event = TraceEvent::Bytes(sender, bytes.into());
            self.send_reserved(TraceRecord { unix_ms, shard, connection, event });
        }
    }

    /// Sends a record that has its part of the limit.
    pub(crate) fn send_reserved(&self, record: TraceRecord) {
        if self.records.send(record).is_err() {
            // Nobody reads it any more.
            self.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_ends_with_the_record_that_has_no_room() {
        let budget = Arc::new(Budget::default());
        let subject = TraceSubject::Clients(Whom::ClientId("frog".into()));
        let (trace, records) = Trace::new(1, subject, 3 * RECORD_BYTES, &budget);
        assert_eq!(budget.used_bytes(), 9 * RECORD_BYTES);
        let connection = ConnectionId { slot: 0, generation: 0 };
        let send = |bytes: usize| {
            trace.send_bytes(0, ShardId::new(0), connection, (Role::Client, &vec![0; bytes]));
        };
        send(RECORD_BYTES);
        assert_eq!((trace.left_bytes(), trace.is_over()), (RECORD_BYTES, false));
        send(1);
        assert!(trace.is_full() && trace.is_over());
        send(0);
        assert_eq!(records.try_iter().count(), 1);
        drop(trace);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn a_trace_ends_when_nobody_reads_it() {
        let subject = TraceSubject::Topic { filter: topic::filter!("a/#").into(), except: None };
        let (trace, records) = Trace::new(1, subject, 10 * RECORD_BYTES, &Arc::default());
        drop(records);
        let connection = ConnectionId { slot: 0, generation: 0 };
        trace.send(0, ShardId::new(0), connection, TraceEvent::Closed);
        assert!(trace.is_over() && !trace.is_full());
    }
}
