//! State of a session that must be stored, so that the session outlives the process.

use std::sync::Arc;

use base::Message;
use wire::{PacketId, Qos, ReasonCode};

use super::publish::Sent;
use super::{Client, Settings};
use crate::outbound::Stage;
use crate::waiting::Bound;
use crate::{Wait, Waiting};

/// A session without a connection, which the caller can store.
///
/// A session with only a client identifier stands for a session of the server of which nothing is known here: then it
/// [is inherited](Self::is_inherited).
#[derive(Debug, Clone)]
pub struct Stored<T> {
    /// Client identifier of the session.
    pub client_id: Box<str>,
    /// The server has a session for this identifier, as far as the client knows.
    pub has_session: bool,
    /// An earlier program has left this session, and the server may have more open packet identifiers than are known
    /// here. Each is released before a message gets it, so that the server does not take the message for an earlier
    /// one.
    pub is_inherited: bool,
    /// Messages of QoS 1 and 2 without an acknowledgement, in the order in which they are sent again.
    pub under_way: Vec<StoredMessage<T>>,
    /// Messages that were not sent yet, in their order.
    pub waiting: Vec<Waiting<T>>,
    /// Identifiers of messages that were accepted with QoS 2 and not released.
    pub unreleased: Vec<PacketId>,
}

/// A message that was published and is not acknowledged.
#[derive(Debug, Clone)]
pub struct StoredMessage<T> {
    /// Packet identifier of the message.
    pub packet_id: PacketId,
    /// The message; `None` once PUBREC has come for it.
    pub message: Option<Arc<Message>>,
    /// Tag that was given with the message.
    pub tag: T,
}

/// A message of a [`Client`] that was sent and is not acknowledged.
#[derive(Debug, Clone, Copy)]
pub struct UnderWay<'a, T> {
    /// Packet identifier of the message.
    pub packet_id: PacketId,
    /// The message; `None` once PUBREC has come for it.
    pub message: Option<&'a Arc<Message>>,
    /// Position in the order in which PUBLISHes were sent and, behind that, PUBRECs received. Packets are sent again in this
    /// order.
    pub order: u64,
    /// The tag that was given with the message.
    pub tag: &'a T,
}

impl<T> Client<T> {
    /// Whether the server has a session for this client, as far as the client knows.
    #[must_use]
    pub fn has_session(&self) -> bool {
        self.has_session
    }

    /// Whether an earlier program has left the session: see [`Stored::is_inherited`].
    #[must_use]
    pub fn is_inherited(&self) -> bool {
        self.inherited.is_some()
    }

    /// Messages of QoS 1 and 2 that were sent and are not acknowledged, in no particular order.
    pub fn under_way(&self) -> impl Iterator<Item = UnderWay<'_, T>> {
        self.outbound.iter().map(|(packet_id, _, sent)| {
            let Sent { message, order, tag, .. } = sent;
            UnderWay { packet_id, message: message.as_ref(), order: *order, tag }
        })
    }

    /// Messages that have not been sent yet, in the order in which they will be.
    pub fn waiting(&self) -> impl DoubleEndedIterator<Item = &Waiting<T>> {
        self.waiting.iter()
    }

    /// Identifiers of messages that were accepted with QoS 2 and are not released.
    pub fn unreleased(&self) -> impl Iterator<Item = PacketId> {
        self.inbound.unreleased()
    }

    /// The current state of the session that must be stored.
    #[must_use]
    pub fn stored(&self) -> Stored<T>
    where
        T: Clone,
    {
        let mut under_way: Vec<_> = self.outbound.iter().collect();
        under_way.sort_unstable_by_key(|(_, _, sent)| sent.order);
        let stored = |(packet_id, _, sent): (PacketId, Stage, &Sent<T>)| {
            let Sent { message, tag, .. } = sent;
            StoredMessage { packet_id, message: message.clone(), tag: tag.clone() }
        };
        Stored {
            client_id: self.client_id.clone(),
            has_session: self.has_session,
            is_inherited: self.inherited.is_some(),
            under_way: under_way.into_iter().map(stored).collect(),
            waiting: self.waiting.iter().cloned().collect(),
            unreleased: self.inbound.unreleased().collect(),
        }
    }

    /// Continues with a stored session. All of its messages are accepted, also beyond the bounds.
    #[must_use]
    pub fn restore(stored: Stored<T>, settings: Settings) -> Self {
        let mut client = Self::new(settings);
        client.client_id = stored.client_id;
        client.has_session = stored.has_session;
        client.inherited = stored.is_inherited.then(Box::default);
        client.inbound.resume(&stored.unreleased);
        for StoredMessage { packet_id, message, tag } in stored.under_way {
            client.next_order += 1;
            let qos = message.as_ref().map(|message| message.qos());
            let (reason, order) = (ReasonCode::Success, client.next_order);
            let sent = Sent { message, tag, reason, order, connection: client.connections };
            match qos {
                Some(qos @ (Qos::AtLeastOnce | Qos::ExactlyOnce)) => {
                    client.outbound.begin(packet_id, qos, true, sent);
                }
                Some(Qos::AtMostOnce) => {}
                None => {
                    client.outbound.begin_release(packet_id, sent);
                }
            }
        }
        let bound = Bound { messages: usize::MAX, bytes: usize::MAX };
        for waiting in stored.waiting {
            let waits = client.waiting.push(waiting, bound);
            debug_assert_eq!(waits, Wait::Waits);
        }
        client
    }
}
