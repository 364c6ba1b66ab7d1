//! Effects of a shard on its environment: bytes to a connection, mail to another shard, a command to the ledger.

use core::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use auth::{Check, Unchecked, Wish};
use base::{CertificateName, ConnectionId, Now, ShardId, SpanMark, Subscriber};
use index::Target;
use protocol::Command;
use wire::{Qos, ReasonCode, Version};

use crate::{ControlBusy, ControlRequest, Counts};

/// The outside of a [`Shard`](crate::Shard). `net` implements it with sockets and mailboxes, tests with a `Vec`.
pub trait Effects {
    /// Appends control packets to what waits to be written to a connection of this shard.
    fn send(&mut self, to: ConnectionId, bytes: &[u8]);

    /// The same for PUBLISH packets. They are refused, and nothing is appended, with [`Room::Full`].
    fn publish(&mut self, to: ConnectionId, bytes: &[u8], flush: Flush) -> Room;

    /// The same for one packet, the end of which many connections share.
    fn publish_shared(&mut self, to: ConnectionId, head: &[u8], payload: &Arc<[u8]>, flush: Flush) -> Room;

    /// Returns the result that [`publish`](Self::publish) would have for this number of further bytes. It is
    /// [`Room::Over`] as long as a connection that was over its mark is not below a quarter of it.
    fn room(&self, connection: ConnectionId, bytes: usize) -> Room;

    /// Whether a connection has something to be read: bytes, its end, or an error. If so, it is read soon.
    fn has_unread(&mut self, connection: ConnectionId) -> bool;

    /// As [`room`](Self::room), for a message that is stored until it is acknowledged. While any memory is left, one such
    /// message may be sent to a connection for which nothing waits, whatever its length: its acknowledgement frees memory.
    fn room_for_stored(&self, connection: ConnectionId, bytes: usize) -> Room {
        self.room(connection, bytes)
    }

    /// All bytes that a connection's socket has taken.
    fn taken_bytes(&self, of: ConnectionId) -> u64;

    /// How many bytes wait to be written to a connection.
    fn waiting_bytes(&self, of: ConnectionId) -> usize;

    /// Posts to another shard. Nothing is refused: [`Room::Over`] is advice to stop reading what adds to it.
    fn mail(&mut self, to: ShardId, mail: Mail<'_>) -> Room;

    /// Whether mail to a shard is over its bound. If so, [`Shard::mail_resumed`](crate::Shard::mail_resumed) is called
    /// when it is not any more.
    fn mail_room(&mut self, to: ShardId) -> Room;

    /// Posts a command to the ledger. Like [`mail`](Self::mail), it is never refused.
    fn command(&mut self, command: Command) -> Room;

    /// Whether commands are over their bound; [`Shard::ledger_resumed`](crate::Shard::ledger_resumed) ends that.
    fn command_room(&mut self) -> Room;

    /// Stops reading from a connection; what was read and not consumed waits.
    fn pause(&mut self, connection: ConnectionId);

    /// Goes on reading, first what waits.
    fn resume(&mut self, connection: ConnectionId);

    /// Ends a connection after what was sent to it has left, within a bound of time.
    fn close(&mut self, connection: ConnectionId);

    /// Has the password of a connection checked on another thread, which calls [`Shard::verified`](crate::Shard::verified).
    /// The check need not run, and nobody need be called, once the returned wish has ended.
    ///
    /// # Errors
    /// The password is not checked, and nobody is called.
    fn verify(&mut self, connection: ConnectionId, check: Check) -> Result<Wish, Unchecked>;

    /// Has the commands in a message of a connection carried out on another thread, which calls
    /// [`Shard::controlled`](crate::Shard::controlled). Without such a thread, all commands are refused.
    ///
    /// # Errors
    /// The commands are not carried out, and nobody is called.
    fn control(&mut self, _connection: ConnectionId, _request: ControlRequest) -> Result<(), ControlBusy> {
        Err(ControlBusy)
    }

    /// The address of the peer, if it comes from a network.
    fn address(&self, _connection: ConnectionId) -> Option<IpAddr> {
        None
    }

    /// The number of the user of the peer, if the peer is a process of this machine, and the system tells it.
    fn process_user(&self, _connection: ConnectionId) -> Option<u32> {
        None
    }

    /// The user name in the certificate that the peer has shown, if there is exactly one.
    fn certificate_name(&mut self, connection: ConnectionId, name: CertificateName) -> Option<String>;

    /// The channel binding of the connection (`tls-exporter` of RFC 9266), if it has one: both ends know it, and nobody
    /// who stands between them can make two connections with the same.
    fn channel_binding(&mut self, _connection: ConnectionId) -> Option<[u8; 32]> {
        None
    }

    /// From now on, the bytes of a connection are counted here, beside the counters of the shard.
    fn count_in(&mut self, _connection: ConnectionId, _counts: &Arc<Counts>) {}

    /// A number that nobody can guess.
    fn random(&mut self) -> u128;

    /// Something an operator wants to read in the log.
    fn notice(&mut self, connection: ConnectionId, notice: Notice<'_>);
}

/// The outside of a shard during one call: the time, and the effects.
pub(crate) struct Outside<'a, E> {
    pub(crate) now: Now,
    effects: &'a mut E,
}

impl<'a, E: Effects> Outside<'a, E> {
    pub(crate) fn new(now: Now, effects: &'a mut E) -> Self {
        Self { now, effects }
    }
}

impl<E> Deref for Outside<'_, E> {
    type Target = E;

    fn deref(&self) -> &E {
        self.effects
    }
}

impl<E> DerefMut for Outside<'_, E> {
    fn deref_mut(&mut self) -> &mut E {
        self.effects
    }
}

/// Whether more may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// Below the high-water mark.
    Open,
    /// Above the high-water mark.
    Over,
    /// All connections together hold as much as they may, and this one would hold more than a small allowance:
    /// what can be dropped is dropped.
    Full,
}

/// When bytes should leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// At the end of this turn.
    Direct,
    /// In turn with other wide fan-outs, a bounded number of connections a turn.
    Bulk,
}

/// A message from one shard to another.
#[derive(Debug, Clone)]
pub enum Mail<'a> {
    /// Consecutive PUBLISH packets to one topic, with everybody on that shard whom they are for.
    Forward(Run<'a>, Arc<[Target]>),
    /// The publisher of the packets that come next from this shard. Mailed only while fates of messages are recorded.
    Publisher(Arc<str>),
    /// The mark of the packet that comes next from this shard: its copies have spans.
    Marked(Arc<SpanMark>),
    /// A subscriber of the sender has room again.
    Resume(Arc<Subscriber>),
}

/// Consecutive PUBLISH packets of QoS 0 or 1 to one topic as they were read, or a single one. At QoS 1 those that travel
/// together have no properties.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The packets, whole, one after the other.
    pub bytes: &'a [u8],
    /// How many they are.
    pub count: u32,
    /// All their payloads together.
    pub payload_bytes: u64,
    /// The version they are encoded in.
    pub version: Version,
    /// The QoS of the PUBLISH packets.
    pub qos: Qos,
}

/// One line of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice<'a> {
    /// A client was accepted.
    Connected {
        /// Its identifier, given or assigned.
        client_id: &'a str,
        /// The version it speaks.
        version: Version,
        /// The requested keep alive, in seconds; 0 is never.
        keep_alive_secs: u16,
    },
    /// A CONNECT was refused.
    Refused {
        /// The identifier, where it was read.
        client_id: &'a str,
        /// Reason code for the client, as MQTT 5 names it, even if the client was not told.
        reason: ReasonCode,
        /// Explanation of the reason.
        why: &'a str,
    },
    /// A client has published to a topic that it may not publish to. Told for the first message and for every tenth power.
    Denied {
        /// The identifier of the publisher.
        client_id: &'a str,
        /// The topic that it may not publish to.
        topic: &'a str,
        /// The part of the topic that is the mount point and the topic prefix of the client, in bytes.
        mount_bytes: usize,
        /// The number of messages of this connection that were denied.
        messages: u64,
    },
    /// A client has a subscription.
    Subscribed {
        /// Client identifier of the subscriber.
        client_id: &'a str,
        /// The topic filter of the subscription.
        filter: &'a str,
        /// The granted maximum QoS.
        qos: Qos,
    },
    /// A client has ended a subscription.
    Unsubscribed {
        /// Client identifier of the subscriber.
        client_id: &'a str,
        /// The topic filter of the subscription.
        filter: &'a str,
    },
    /// A connection has ended.
    Disconnected {
        /// Empty where no CONNECT was accepted.
        client_id: &'a str,
        /// The reason, as MQTT 5 names it.
        reason: ReasonCode,
        /// Explanation of the reason.
        why: &'a str,
    },
}
