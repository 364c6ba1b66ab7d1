//! Counts of a ledger's contents, for observers outside of it.

use std::sync::Arc;

use base::{Interest, Message, Now};

use crate::Ledger;
use crate::lines::Line;
use crate::lines::group::Group;
use crate::lines::session::Session;
use crate::queue::Queue;
use crate::queue::entry::Entry;
use crate::queue::in_flight::State;
use crate::record::{Incarnation, MessageId};

/// Everything that lasts. See [`Ledger::census`].
#[derive(Debug, Clone)]
pub struct Census {
    /// Sessions that outlive their connections, in the order in which they began.
    pub sessions: Vec<SessionCensus>,
    /// Groups with a member that lasts, in the order in which they began.
    pub groups: Vec<GroupCensus>,
    /// Topics with a retained message.
    pub retained_messages: usize,
    /// Bytes of the retained messages.
    pub retained_bytes: usize,
    /// Wills that are published as soon as that can be.
    pub wills_due: Vec<Arc<Message>>,
}

/// Contents above their bounds, because a bound was lowered after they were acknowledged. See [`Ledger::over_limits`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OverLimits {
    /// How far the retained messages are over their bound, in bytes.
    pub retained_bytes: usize,
    /// How many queues of sessions and groups have more waiting than may.
    pub queues: usize,
}

/// Counts and times of one session.
#[derive(Debug, Clone)]
pub struct SessionCensus {
    /// The incarnation of the session.
    pub session: Incarnation,
    /// Client identifier of the session.
    pub client_id: Arc<str>,
    /// Its client is connected; after a restart: it was when the records ended.
    pub is_connected: bool,
    /// Session Expiry Interval, in seconds; [`u32::MAX`] means that the session never expires.
    pub expiry_secs: u32,
    /// While its client is not connected: when it expires, on the monotonic clock.
    pub expires_ms: Option<u64>,
    /// Granted options by topic filter.
    pub subscriptions: Vec<(Box<str>, Interest)>,
    /// Messages that wait for the client.
    pub queue: QueueCensus,
    /// Exchanges with its client that are not over.
    pub in_flight: usize,
    /// Messages of QoS 2 that its client has published and not released.
    pub unreleased: usize,
    /// The will of the client, and its delay in seconds.
    pub will: Option<(Arc<Message>, u32)>,
}

/// Counts of one shared subscription.
#[derive(Debug, Clone)]
pub struct GroupCensus {
    /// The incarnation of the group.
    pub group: Incarnation,
    /// With `$share/`.
    pub filter: Arc<str>,
    /// How many sessions are in it.
    pub members: usize,
    /// Messages that wait for any member.
    pub queue: QueueCensus,
}

/// Counts of the messages in a queue.
#[derive(Debug, Clone, Default)]
pub struct QueueCensus {
    /// Number of messages that wait.
    pub messages: usize,
    /// Bytes of these messages. A message counts in each queue that contains it.
    pub bytes: usize,
    /// The one that came first of those that wait and those on their way.
    pub oldest: Option<(MessageId, Arc<Message>)>,
}

impl Ledger {
    /// Returns the recovered contents that exceed the settings. The time is proportional to the number of sessions and
    /// groups.
    #[must_use]
    pub fn over_limits(&self) -> OverLimits {
        let is_over = |line: &&Line| {
            let (len, waiting_bytes) = (line.queue.len(), line.queue.bytes());
            let bounds = line.bounds(&self.settings);
            let bounds = if len == 1 { bounds.for_one(waiting_bytes, &self.settings) } else { bounds };
            len > bounds.messages || waiting_bytes > bounds.bytes
        };
        let queues = self.lines.iter().filter(is_over).count();
        OverLimits { retained_bytes: self.retained.over_bytes(), queues }
    }

    /// How many messages wait though they have expired. The ledger looks at some of them each second, and takes those out
    /// that it finds.
    #[must_use]
    pub fn expired_waiting(&self, now: Now) -> usize {
        let waiting = self.lines.iter().flat_map(|line| line.queue.iter().map(|(_, entry)| entry));
        let returned = self.lines.groups().flat_map(|(group, _)| group.returned.values());
        waiting.chain(returned).filter(|entry| entry.is_expired(now)).count()
    }

    /// Counts everything that lasts. Takes as long as there are sessions, subscriptions and messages on their way.
    #[must_use]
    pub fn census(&self) -> Census {
        let mut sessions: Vec<_> = self.lines.sessions().filter_map(count_session).collect();
        sessions.sort_by_key(|session| session.session);
        let recorded = self.lines.groups().filter(|(group, _)| group.is_recorded);
        let mut groups: Vec<_> = recorded.map(count_group).collect();
        groups.sort_by_key(|group| group.group);
        Census {
            sessions,
            groups,
            retained_messages: self.retained.len(),
            retained_bytes: self.retained.bytes(),
            wills_due: self.sessions.wills.iter().map(|will| Arc::clone(&will.message)).collect(),
        }
    }
}

/// `None` for one that ends with its connection.
fn count_session((session, queue): (&Session, &Queue)) -> Option<SessionCensus> {
    let lasting = session.lasting.as_ref()?;
    let on_their_way =
        session.in_flight.in_order().into_iter().filter_map(|exchange| match &exchange.state {
            State::Own(id, entry) => Some((*id, entry)),
            State::Released | State::Shared { .. } | State::Taken { .. } => None,
        });
    let oldest = on_their_way.chain(queue.front()).min_by_key(|(id, _)| *id);
    Some(SessionCensus {
        session: lasting.incarnation,
        client_id: Arc::clone(&session.subscriber.client_id),
        is_connected: session.online.is_some() || lasting.is_unsettled,
        expiry_secs: lasting.expiry_secs,
        expires_ms: lasting.expires_ms,
        subscriptions: session
            .subscriptions
            .iter()
            .map(|(filter, interest)| (filter.clone(), *interest))
            .collect(),
        queue: QueueCensus { messages: queue.len(), bytes: queue.bytes(), oldest: oldest.and_then(keep) },
        in_flight: session.in_flight.len(),
        unreleased: lasting.unreleased.len(),
        will: lasting.will.as_ref().map(|will| (Arc::clone(&will.message), will.delay_secs)),
    })
}

fn count_group((group, queue): (&Group, &Queue)) -> GroupCensus {
    let held = group.held.iter().filter_map(|(id, held)| held.entry.as_ref().map(|entry| (*id, entry)));
    let returned = group.returned.iter().map(|(id, entry)| (*id, entry));
    let oldest = held.chain(returned).chain(queue.front()).min_by_key(|(id, _)| *id);
    let returned_bytes: usize = group.returned.values().map(|entry| entry.size_bytes()).sum();
    GroupCensus {
        group: group.incarnation,
        filter: Arc::clone(&group.subscriber.client_id),
        members: group.members,
        queue: QueueCensus {
            messages: queue.len() + group.returned.len(),
            bytes: queue.bytes() + returned_bytes,
            oldest: oldest.and_then(keep),
        },
    }
}

fn keep((id, entry): (MessageId, &Entry)) -> Option<(MessageId, Arc<Message>)> {
    entry.message().map(|message| (id, Arc::clone(message)))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use base::Now;
    use wire::{PacketId, Qos};

    use super::*;
    use crate::record::{Granted, Queued, Record, WillFate};
    use crate::settings::Settings;

    fn enqueue(id: u64, queues: &[u64], is_retained: bool) -> Record<'static> {
        let body = Message::of_server("a", b"1").expect("a topic");
        let granted = Granted { qos: Qos::AtLeastOnce, retain: false, identifiers: Default::default() };
        let queued = |queue: &u64| Queued { queue: Incarnation(*queue), granted: granted.clone() };
        Record::Enqueue {
            message: MessageId(id),
            body: Cow::Owned(Arc::new(body)),
            queues: queues.iter().map(queued).collect(),
            is_retained,
        }
    }

    #[test]
    fn the_census_counts_lasting_sessions_groups_and_retained_messages() {
        let (alice, bob, group) = (Incarnation(1), Incarnation(2), Incarnation(3));
        let (interest, shared) = (Interest::new(Qos::AtLeastOnce), "$share/g/a");
        let records = [
            Record::Session { session: alice, client_id: "alice".into() },
            Record::Connected { session: alice, expiry_secs: u32::MAX, will: None },
            Record::Session { session: bob, client_id: "bob".into() },
            Record::Subscribed { session: bob, filter: "a".into(), interest },
            Record::Left { session: bob, expiry_secs: 60, unix_ms: 1_000, will: WillFate::Dropped },
            Record::Group { group, filter: shared.into() },
            Record::Subscribed { session: alice, filter: shared.into(), interest },
            enqueue(5, &[2, 3], true),
            enqueue(6, &[2, 3], false),
            Record::Sent { session: bob, message: MessageId(5), packet_id: PacketId::MIN },
            Record::Removed { queue: group, message: MessageId(5) },
        ];
        let now = Now { monotonic_ms: 2_000, unix_ms: 2_000 };
        let index = Arc::new(index::Subscriptions::new([1, 2]));
        let census = Ledger::recover(Settings::default(), index, records, now).census();
        let [of_alice, of_bob] = &census.sessions[..] else { panic!("{census:?}") };
        assert_eq!((&*of_alice.client_id, of_alice.is_connected), ("alice", true));
        assert_eq!((&*of_bob.client_id, of_bob.is_connected), ("bob", false));
        assert_eq!(of_bob.expires_ms, Some(61_000));
        assert_eq!(of_bob.subscriptions, [("a".into(), interest)]);
        assert_eq!((of_bob.queue.messages, of_bob.in_flight), (1, 1));
        let oldest = |queue: &QueueCensus| queue.oldest.as_ref().map(|(id, _)| id.0);
        assert_eq!(oldest(&of_bob.queue), Some(5), "it is on its way");
        let [of_group] = &census.groups[..] else { panic!("{census:?}") };
        assert_eq!((&*of_group.filter, of_group.members, of_group.queue.messages), (shared, 1, 1));
        assert_eq!(oldest(&of_group.queue), Some(6));
        assert_eq!(census.retained_messages, 1);
    }

    /// Copied twice, with everything that stood behind it gone in between: the second copy finds it at the end.
    #[test]
    fn a_message_of_which_two_copies_are_read_waits_once() {
        let alice = Incarnation(1);
        let removed = |message| Record::Removed { queue: alice, message: MessageId(message) };
        let records = [
            Record::Session { session: alice, client_id: "alice".into() },
            Record::Left { session: alice, expiry_secs: 60, unix_ms: 1_000, will: WillFate::Dropped },
            enqueue(7, &[1], false),
            enqueue(5, &[1], false),
            removed(7),
            enqueue(5, &[1], false),
        ];
        let now = Now { monotonic_ms: 2_000, unix_ms: 2_000 };
        let index = Arc::new(index::Subscriptions::new([1, 2]));
        let census = Ledger::recover(Settings::default(), index, records, now).census();
        assert_eq!(census.sessions[0].queue.messages, 1);
    }
}
