//! Whether a line has room for a message.

use base::{Budget, Message, QueueId};

use crate::lines::bounds::Bounds;
use crate::lines::group::{Group, Inherited};
use crate::lines::{Line, Owner};
use crate::settings::{QueueFull, Settings};

/// Whether a queue has room for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueueRoom {
    Enough,
    /// There is room after dropping this number of the oldest messages.
    AfterDropping(usize),
    /// The queue does not get the message.
    None,
    /// Nor one that may not wait, while nobody is there to have it at once.
    Absent,
    /// None, and that is the end of its session.
    Ends,
    /// None, and that is the end of all members of the group, some at a time. Until the last has ended, messages wait with
    /// the others: after a crash in between, those that are left miss nothing.
    EndsGroup,
    /// Enough, once this member of the group is ended: its keys fill the queue.
    AfterEnding(QueueId),
}

impl Line {
    /// Whether what comes is taken out by somebody who is there: behind what little waits already.
    pub(crate) fn leaves_soon(&self, message: &Message) -> bool {
        let is_taken = match &self.owner {
            Owner::Session(session) => session.open().is_some(),
            Owner::Group(group) => group.takes(message) && group.returned.is_empty(),
        };
        is_taken && self.queue.bytes() <= Budget::WAITING_BYTES_ALLOWED
    }

    /// Whether there is room, if at most `dropped_max` of the oldest messages are dropped for it.
    pub(crate) fn room(&self, message: &Message, dropped_max: usize, settings: &Settings) -> QueueRoom {
        let has_reader = match &self.owner {
            Owner::Session(session) => session.online.is_some(),
            Owner::Group(group) => group.takes(message),
        };
        if !has_reader && !message.may_wait() {
            return QueueRoom::Absent;
        }
        let bytes = message.size_bytes();
        let bounds = self.bounds(settings).for_one(bytes, settings);
        let (messages_max, bytes_max) = (bounds.messages, bounds.bytes);
        if self.queue.len() < messages_max && self.queue.bytes() + bytes <= bytes_max {
            return QueueRoom::Enough;
        }
        match (settings.queue_full, &self.owner) {
            (QueueFull::EndSession, Owner::Session(_)) => QueueRoom::Ends,
            (QueueFull::EndSession, Owner::Group(group)) => self.room_in(group, message, settings),
            (QueueFull::Refuse | QueueFull::DropNewest, _) => QueueRoom::None,
            (QueueFull::DropOldest, _) if bytes > bytes_max || messages_max == 0 => QueueRoom::None,
            (QueueFull::DropOldest, _) => self.room_after_dropping(bytes, dropped_max, bounds),
        }
    }

    fn room_after_dropping(&self, bytes: usize, dropped_max: usize, bounds: Bounds) -> QueueRoom {
        let (messages_max, bytes_max) = (bounds.messages, bounds.bytes);
        let (mut left, mut left_bytes, mut dropped) = (self.queue.len(), self.queue.bytes(), 0);
        for (_, entry) in self.queue.iter() {
            let fits = left < messages_max && left_bytes + bytes <= bytes_max;
            if fits || dropped == dropped_max {
                break;
            }
            left -= 1;
            left_bytes -= entry.size_bytes();
            dropped += 1;
        }
        // Over its bound because that was lowered, the queue gets shorter with each message.
        let (messages_max, bytes_max) =
            (messages_max.max(self.queue.len()), bytes_max.max(self.queue.bytes()));
        let fits = left < messages_max && left_bytes + bytes <= bytes_max;
        if fits { QueueRoom::AfterDropping(dropped) } else { QueueRoom::None }
    }

    /// Whether a group whose queue is full has room. In a key-ordered group, the queue fills for a member that accepts
    /// nothing, although the others go on. Then only this member is ended, and the others get the messages that wait
    /// for it. Until they have received these messages, the messages do not count.
    fn room_in(&self, group: &Group, message: &Message, settings: &Settings) -> QueueRoom {
        if group.is_ending {
            return QueueRoom::Enough;
        }
        let Some(lanes) = &group.lanes else { return QueueRoom::EndsGroup };
        let (messages_max, bytes_max) = (settings.queue_messages_max, settings.queue_bytes_max);
        let (messages, bytes) = group.inherited.rest_of(&self.queue);
        if messages < messages_max && bytes + message.size_bytes() <= bytes_max {
            return QueueRoom::Enough;
        }
        let is_taken_over = group.inherited.is_within(messages_max / 2, bytes_max / 2);
        if !is_taken_over || message.size_bytes() > bytes_max {
            return QueueRoom::EndsGroup;
        }
        // The messages of a lane without an owner are counted for no member yet.
        let most = Inherited::most(settings);
        if lanes.is_undecided() && most.has_room_for(&self.queue, message.size_bytes()) {
            return QueueRoom::Enough;
        }
        lanes.fullest(self.queue.len() < messages_max).map_or(QueueRoom::EndsGroup, QueueRoom::AfterEnding)
    }
}
