//! The brake: while a queue grows, acknowledgements to its publishers are withheld, for as long as that is worth it.

use std::sync::Arc;

use ::session::Now;
use index::{Level, Subscriber, Target, Targets};

use crate::lanes::Lanes;
use crate::queue::Queue;
use crate::replies::QueueOf;
use crate::{Effects, Ledger, Settings};

/// Publishers wait at most so long for one reader until it has taken a mark's worth...
const PATIENCE_MS: u64 = 5_000;
/// ... and at most so long where others could take what is published meanwhile, before it has to show that it keeps up.
const PATIENCE_BESIDE_OTHERS_MS: u64 = 1_000;
/// A trial lasts at least so long: what comes in a burst when publishers are let go says little about their pace.
const TRIAL_MS_MIN: u64 = 250;
/// So many others are looked at to find one that has room.
const WITNESSES: usize = 64;

/// A queue that has grown by more than this is over its mark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    messages: usize,
    bytes: usize,
}

impl Mark {
    pub(crate) fn of(settings: &Settings) -> Self {
        Self { messages: settings.brake_messages, bytes: settings.brake_bytes }
    }

    /// What a message counts for: a mark's worth is as many messages, or as many bytes, as make the mark.
    pub(crate) fn weight(self, bytes: usize) -> usize {
        bytes.max(self.bytes / self.messages.max(1)).max(1)
    }

    fn worth(self) -> usize {
        self.bytes.max(1)
    }
}

/// How much of a queue is older than what its reader can be blamed for, and how long publishers wait for that reader.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    messages: usize,
    bytes: usize,
    pub(crate) patience: Patience,
}

/// How long publishers wait for one reader.
///
/// ```text
///            over its mark            1 s, and others have room
///   Rested ───────────────► Braking ────────────────────────────► Trial
///     ▲                     │  ▲  ▲       it keeps up              │ │
///     │                     │  └──┴────────────────────────────────┘ │
///     │                     │ 5 s, and no mark's worth taken         │ less than a quarter of what came
///     │      drained        ▼                                        │
///     └────────────────── Spent ◄────────────────────────────────────┘
/// ```
///
/// Time is looked at when a message comes and when one is acknowledged: the last acknowledgement that is withheld may add
/// its second. In a trial and when patience is spent nobody waits. A trial shows what would come if nobody waited, which nothing else
/// does: while publishers wait for a reader, all others get what is published at its pace.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) enum Patience {
    #[default]
    Rested,
    Braking {
        since_ms: u64,
        /// What the reader has acknowledged since then.
        taken: usize,
        beside_others: bool,
    },
    Trial {
        since_ms: u64,
        taken: usize,
        /// When nobody was made to wait any more, and what has come since.
        from_ms: u64,
        arrived: usize,
    },
    Spent,
}

impl Patience {
    /// The queue has drained.
    pub(crate) fn renew(&mut self) {
        *self = Self::Rested;
    }

    /// The reader has acknowledged a message.
    pub(crate) fn progress(&mut self, weight: usize) {
        if let Self::Braking { taken, .. } | Self::Trial { taken, .. } = self {
            *taken = taken.saturating_add(weight);
        }
    }

    /// A message has come into the queue, which is over its mark; others who get it have room, or nobody else has.
    pub(crate) fn arrive(&mut self, weight: usize, others_have_room: bool, mark: Mark, now_ms: u64) {
        match self {
            Self::Rested => {
                *self = Self::Braking { since_ms: now_ms, taken: 0, beside_others: others_have_room };
            }
            Self::Braking { beside_others, .. } => *beside_others |= others_have_room,
            Self::Trial { since_ms, taken, from_ms, arrived } => {
                *arrived = arrived.saturating_add(weight);
                let (all_ms, trial_ms) = (now_ms - *since_ms, now_ms - *from_ms);
                if *arrived < mark.worth() || trial_ms < TRIAL_MS_MIN {
                    return;
                }
                // What came in the trial would have come all the time.
                let takes_a_quarter = product(*taken, trial_ms) * 4 >= product(*arrived, all_ms);
                *self = if takes_a_quarter { Self::Rested } else { Self::Spent };
            }
            Self::Spent => {}
        }
    }

    /// Whether publishers wait for the reader of a queue that is over its mark.
    pub(crate) fn is_worth_waiting(&mut self, mark: Mark, now_ms: u64) -> bool {
        match *self {
            Self::Rested => {
                *self = Self::Braking { since_ms: now_ms, taken: 0, beside_others: false };
                true
            }
            Self::Braking { since_ms, taken, beside_others } => {
                let patience_ms = if beside_others { PATIENCE_BESIDE_OTHERS_MS } else { PATIENCE_MS };
                if now_ms < since_ms + patience_ms {
                    return true;
                }
                *self = match beside_others {
                    true if taken > 0 => Self::Trial { since_ms, taken, from_ms: now_ms, arrived: 0 },
                    false if taken >= mark.worth() => Self::Rested,
                    _ => Self::Spent,
                };
                matches!(self, Self::Rested) && self.is_worth_waiting(mark, now_ms)
            }
            Self::Trial { .. } | Self::Spent => false,
        }
    }
}

/// A message that comes into queues that are over their marks.
pub(crate) struct Arrival<'a> {
    bytes: usize,
    targets: &'a Targets,
    /// Once it has been asked.
    others_have_room: Option<bool>,
}

impl<'a> Arrival<'a> {
    pub(crate) fn new(bytes: usize, targets: &'a Targets) -> Self {
        Self { bytes, targets, others_have_room: None }
    }
}

fn product(weight: usize, ms: u64) -> u128 {
    weight as u128 * u128::from(ms)
}

impl Growth {
    /// From now on what is added counts.
    pub(crate) fn begin(queue: &Queue) -> Self {
        Self { messages: queue.len(), bytes: queue.bytes(), patience: Patience::default() }
    }

    /// Something was taken from the queue: the oldest first.
    pub(crate) fn shrink(&mut self, queue: &Queue) {
        self.messages = self.messages.min(queue.len());
        self.bytes = self.bytes.min(queue.bytes());
    }

    fn is_over(&self, queue: &Queue, mark: Mark) -> bool {
        self.messages_of(queue) > mark.messages || self.bytes_of(queue) > mark.bytes
    }

    /// At most a quarter of the mark waits: its reader is as good as any other.
    fn renew_if_drained(&mut self, queue: &Queue, mark: Mark) {
        if !matches!(self.patience, Patience::Rested)
            && self.messages_of(queue) <= mark.messages / 4
            && self.bytes_of(queue) <= mark.bytes / 4
        {
            self.patience.renew();
        }
    }

    fn messages_of(&self, queue: &Queue) -> usize {
        queue.len() - self.messages.min(queue.len())
    }

    fn bytes_of(&self, queue: &Queue) -> usize {
        queue.bytes() - self.bytes.min(queue.bytes())
    }
}

impl Ledger {
    /// Whether a queue has grown by more than it should since somebody reads it: then its publishers are braked.
    pub(crate) fn has_grown(&self, queue: QueueOf) -> bool {
        let mark = Mark::of(&self.settings);
        match queue {
            QueueOf::Session(id) => self.sessions.find(id).is_some_and(|session| {
                let is_slow = session.subscriber.gauge.level() == Level::Slow;
                let online = session.online.as_ref().filter(|online| online.is_open && !is_slow);
                online.is_some_and(|online| online.growth.is_over(&session.queue, mark))
            }),
            QueueOf::Group(id) => self.groups.table.find(id).is_some_and(|group| {
                let has_lanes_grown = |lanes: &Lanes| lanes.has_more_than(mark.messages);
                group.connected > 0
                    && group.growth.is_over(&group.queue, mark)
                    && group.lanes.as_deref().is_none_or(has_lanes_grown)
            }),
        }
    }

    /// Whether a queue has a reader, and at most half of its mark waits: queues that are at their marks together are none
    /// that could take more.
    fn has_room(&self, queue: QueueOf) -> bool {
        let Mark { messages, bytes } = Mark::of(&self.settings);
        let half = Mark { messages: messages / 2, bytes: bytes / 2 };
        match queue {
            QueueOf::Session(id) => self.sessions.find(id).is_some_and(|session| {
                let online = session.online.as_ref().filter(|online| online.is_open);
                online.is_some_and(|online| !online.growth.is_over(&session.queue, half))
            }),
            QueueOf::Group(id) => self
                .groups
                .table
                .find(id)
                .is_some_and(|group| group.connected > 0 && !group.growth.is_over(&group.queue, half)),
        }
    }

    /// A message has come into a queue that is over its mark. Whether its publisher waits.
    pub(crate) fn arrive(&mut self, queue: QueueOf, arrival: &mut Arrival<'_>, now_ms: u64) -> bool {
        let mark = Mark::of(&self.settings);
        let Arrival { bytes, targets, others_have_room } = arrival;
        let weight = mark.weight(*bytes);
        let others_have_room = *others_have_room.get_or_insert_with(|| self.is_taken_elsewhere(targets));
        self.with_patience(queue, mark, |patience| patience.arrive(weight, others_have_room, mark, now_ms));
        self.is_worth_waiting(queue, now_ms)
    }

    /// Whether the publishers of a queue wait for its reader: it has grown, and the reader is worth it.
    pub(crate) fn is_braked(&mut self, queue: QueueOf, now: Now) -> bool {
        self.has_grown(queue) && self.is_worth_waiting(queue, now.monotonic_ms)
    }

    fn is_worth_waiting(&mut self, queue: QueueOf, now_ms: u64) -> bool {
        let mark = Mark::of(&self.settings);
        let mut is_worth_waiting = false;
        self.with_patience(queue, mark, |patience| {
            is_worth_waiting |= patience.is_worth_waiting(mark, now_ms);
        });
        is_worth_waiting
    }

    /// The patience with the reader of a queue; where keys keep their order, with each member for whom too much waits.
    fn with_patience(&mut self, queue: QueueOf, mark: Mark, mut change: impl FnMut(&mut Patience)) {
        match queue {
            QueueOf::Session(id) => {
                let session = self.sessions.find_mut(id);
                let online = session.and_then(|session| session.online.as_mut());
                online.into_iter().for_each(|online| change(&mut online.growth.patience));
            }
            QueueOf::Group(id) => {
                let Some(group) = self.groups.table.find_mut(id) else { return };
                match &mut group.lanes {
                    Some(lanes) => lanes.change_patience(mark.messages, change),
                    None => change(&mut group.growth.patience),
                }
            }
        }
    }

    /// Lets the publishers of a queue go on, if there are any who wait and need not any longer.
    pub(crate) fn release_brake(&mut self, queue: QueueOf, now: Now, to: &mut impl Effects) {
        if !self.replies.withheld.is_empty() && !self.is_braked(queue, now) {
            self.replies.withheld.release(queue, to);
        }
    }

    /// Something may have been taken from a queue.
    pub(crate) fn renew_patience(&mut self, queue: QueueOf) {
        let mark = Mark::of(&self.settings);
        match queue {
            QueueOf::Session(id) => {
                if let Some(session) = self.sessions.find_mut(id)
                    && let Some(online) = &mut session.online
                {
                    online.growth.renew_if_drained(&session.queue, mark);
                }
            }
            QueueOf::Group(id) => {
                if let Some(group) = self.groups.table.find_mut(id) {
                    group.growth.renew_if_drained(&group.queue, mark);
                }
            }
        }
    }

    /// Whether a message goes to somebody who is connected and could take more; that is no queue over its mark.
    fn is_taken_elsewhere(&self, targets: &Targets) -> bool {
        let has_room = |target: &Target| {
            let Subscriber { gauge, queue, .. } = &*target.subscriber;
            gauge.level() == Level::Open
                && !gauge.is_marked_behind()
                && queue.is_none_or(|queue| self.has_room(QueueOf::Session(queue)))
        };
        let group_has_room =
            |group: &Arc<Subscriber>| group.queue.is_some_and(|group| self.has_room(QueueOf::Group(group)));
        let straight = targets.shards.iter().flat_map(|(_, targets)| targets.iter());
        straight.take(WITNESSES).any(has_room) || targets.groups.iter().take(WITNESSES).any(group_has_room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark { messages: 10, bytes: 1_000 };

    #[test]
    fn a_large_message_counts_for_its_bytes_and_a_small_one_for_one_of_many() {
        assert_eq!((MARK.weight(1), MARK.weight(500), MARK.worth()), (100, 500, 1_000));
    }

    #[test]
    fn a_quarter_of_what_would_have_come_is_enough() {
        for (taken, is_enough) in [(1_249, false), (1_250, true)] {
            let mut patience = Patience::Rested;
            patience.arrive(100, true, MARK, 0);
            patience.progress(taken);
            assert!(patience.is_worth_waiting(MARK, 999));
            assert!(!patience.is_worth_waiting(MARK, 1_000));
            // A mark's worth in a quarter of a second: five of them would have come in all.
            patience.arrive(999, true, MARK, 1_249);
            patience.arrive(1, true, MARK, 1_250);
            assert_eq!(patience.is_worth_waiting(MARK, 1_250), is_enough, "{taken}: {patience:?}");
        }
    }
}
