//! The bounds of a queue: those of the configuration, or lower ones in the roles of a session's user.

use std::cell::Cell;

use auth::QueueLimits;
use base::Subscriber;

use crate::lines::{Line, Owner};
use crate::settings::Settings;

/// The most that waits in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
}

impl Bounds {
    /// The bounds of the configuration.
    pub(crate) fn of(settings: &Settings) -> Self {
        Self { messages: settings.queue_messages_max, bytes: settings.queue_bytes_max }
    }

    /// The same bounds for a message of this size. An empty queue has room for a message that is longer than the roles
    /// allow, as long as the configuration allows it: otherwise one message would end the session of a client that
    /// reads.
    pub(crate) fn for_one(self, bytes: usize, settings: &Settings) -> Self {
        Self { bytes: self.bytes.max(bytes.min(settings.queue_bytes_max)), ..self }
    }
}

/// The bounds that the roles of a session's user have, as they were looked up last.
#[derive(Debug, Default)]
pub(crate) struct RoleBounds(Cell<Known>);

/// Small, because each session has it.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// The number of the rules of that moment. No rules have 0.
    generation: u32,
    messages_max: u32,
    bytes_max: u64,
}

impl RoleBounds {
    /// The bounds by the rules of this moment. Costs one load and a comparison, unless rules or user have changed.
    fn within(&self, subscriber: &Subscriber, settings: &Settings) -> Bounds {
        let generation = settings.guard.generation();
        let mut known = self.0.get();
        if known.generation != generation {
            let realms = settings.guard.current();
            let QueueLimits { messages_max, bytes_max } = realms.queue_limits(&subscriber.principal());
            let (messages_max, bytes_max) = (messages_max.unwrap_or(u32::MAX), bytes_max.unwrap_or(u64::MAX));
            known = Known { generation, messages_max, bytes_max };
            self.0.set(known);
        }
        let Bounds { messages, bytes } = Bounds::of(settings);
        Bounds {
            messages: messages.min(usize::try_from(known.messages_max).unwrap_or(usize::MAX)),
            bytes: bytes.min(usize::try_from(known.bytes_max).unwrap_or(usize::MAX)),
        }
    }

    /// The session has another user.
    pub(crate) fn forget(&self) {
        self.0.set(Known::default());
    }
}

impl Line {
    /// The most that waits in the queue. A group has the bounds of the configuration.
    pub(crate) fn bounds(&self, settings: &Settings) -> Bounds {
        match &self.owner {
            Owner::Session(session) => session.role_bounds.within(&session.subscriber, settings),
            Owner::Group(_) => Bounds::of(settings),
        }
    }
}
