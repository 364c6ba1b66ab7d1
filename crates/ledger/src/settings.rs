//! Limits of a ledger.

use std::sync::Arc;

use auth::{Action, Guard, Realms};
use base::{Dispatch, Message, Principal, Subscriber};

/// Bounds and choices of a ledger.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Maximum bytes of retained messages and their topics.
    pub retained_bytes_max: usize,
    /// Maximum number of sessions that outlive their connections. A CONNECT that asks for one more is refused.
    pub sessions_max: usize,
    /// Maximum number of messages that wait in one queue.
    pub queue_messages_max: usize,
    /// Maximum bytes of the messages that wait in one queue.
    pub queue_bytes_max: usize,
    /// Approximate memory of messages that wait, in bytes, beside those that are about to be sent. Further messages are
    /// read again when their turn comes, if possible.
    pub queued_bytes_in_memory: usize,
    /// The same for a ledger that was just made again from its records, if it is less: most of the time until it is there
    /// would be spent on making messages whose turn is far away.
    pub recovered_bytes_in_memory: usize,
    /// The action when a queue has no room.
    pub queue_full: QueueFull,
    /// Acknowledgements are withheld from publishers while a queue has grown by more than this number of messages since
    /// its reader came.
    pub brake_messages: usize,
    /// Acknowledgements are withheld from publishers while a queue has grown by more than this number of bytes since
    /// its reader came.
    pub brake_bytes: usize,
    /// The rule by which a message of a group gets its member.
    pub dispatch: Dispatch,
    /// The most groups that one session may be a member of.
    pub shared_subscriptions_max: usize,
    /// The most groups on one topic filter, which is what follows the share name. One session may use half of them.
    pub groups_per_filter_max: usize,
    /// How much work is done at a time.
    pub units: Units,
    /// The rules about topics, and the users.
    pub guard: Arc<Guard>,
    /// Keys the hashes of what peers choose: client identifiers and filters.
    pub seed: u64,
}

/// Units of work: a message fed, a subscription ended, a session that expires.
#[derive(Debug, Clone, Copy)]
pub struct Units {
    /// The most between commands.
    pub at_a_time: usize,
    /// The most that a CONNECT, or the end of a connection, does for its session at once. The rest is put off.
    pub at_once: usize,
}

/// The outcome of a message for a full queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QueueFull {
    /// The session is ended, or all sessions of the group: a client that is away for too long must not stop a house, and
    /// it is told when it comes back.
    #[default]
    EndSession,
    /// The publisher is refused, and nobody gets the message.
    Refuse,
    /// The oldest messages make room.
    DropOldest,
    /// The queue does not get the message.
    DropNewest,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            retained_bytes_max: 256 << 20,
            sessions_max: 1_000_000,
            queue_messages_max: 100_000,
            queue_bytes_max: 256 << 20,
            queued_bytes_in_memory: 256 << 20,
            recovered_bytes_in_memory: 16 << 20,
            queue_full: QueueFull::default(),
            brake_messages: 1_000,
            brake_bytes: 256 << 10,
            dispatch: Dispatch::default(),
            shared_subscriptions_max: 100,
            groups_per_filter_max: 1_000,
            units: Units { at_a_time: 1_000, at_once: 64 },
            guard: Arc::default(),
            seed: 0,
        }
    }
}

impl Settings {
    /// Takes over the limits that may change. The rule that chooses members of groups, the marks of slow readers, the seed
    /// and the guard stay as they are.
    pub(crate) fn change(&mut self, new: &Self) {
        let Self { retained_bytes_max, sessions_max, queue_messages_max, queue_bytes_max, .. } = *new;
        let Self { queued_bytes_in_memory, queue_full, .. } = *new;
        let Self { shared_subscriptions_max, groups_per_filter_max, .. } = *new;
        *self = Self {
            retained_bytes_max,
            sessions_max,
            queue_messages_max,
            queue_bytes_max,
            queued_bytes_in_memory,
            queue_full,
            shared_subscriptions_max,
            groups_per_filter_max,
            ..self.clone()
        };
    }

    /// The current rules, if there are any, or may be some of tokens.
    pub(crate) fn rules(&self) -> Option<Arc<Realms>> {
        let guard = &self.guard;
        guard.has_rules().then(|| guard.current())
    }

    /// Whether a will may be published now.
    pub(crate) fn may_publish(&self, principal: &Principal, will: &Message) -> bool {
        let client_id = will.publisher().unwrap_or_default();
        let rules = self.rules();
        // A will is no command.
        let may = |rules: Arc<Realms>| {
            let permit = rules.permit(principal, client_id, will.topic());
            permit.allows(will.qos(), will.retain()) && !rules.controls(will.topic())
        };
        rules.is_none_or(may)
    }

    /// Whether a session may receive a message now.
    pub(crate) fn may_receive(&self, session: &Subscriber, message: &Message) -> bool {
        self.rules().is_none_or(|rules| rules.allow(session, message.topic(), Action::Receive))
    }
}
