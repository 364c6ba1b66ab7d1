//! The brake: while a queue grows, acknowledgements to its publishers are withheld. They are withheld for at most a second
//! each, and only as long as the reader of the queue keeps up with the other receivers ([`Patience`]).

use std::sync::Arc;

use base::{Level, Now, QueueId, Subscriber};
use index::{Target, Targets};

use crate::lines::group::Group;
use crate::lines::{Line, Lines, Owner};
use crate::queue::Queue;
use crate::settings::Settings;

/// The longest time for which publishers wait for one reader that has not taken a mark's worth, if no other has room.
const PATIENCE_MS: u64 = 5_000;
/// The longest time for which publishers wait for one reader before it has to show that it keeps up, if others have room.
const PATIENCE_BESIDE_OTHERS_MS: u64 = 1_000;
/// The time after which a reader may cost that much again, if it has not shown that it keeps up.
const ACCOUNT_MS: u64 = 10_000;
/// The shortest trial. Publishers that were waiting all publish at once when they go on, which does not show their pace.
const TRIAL_MS_MIN: u64 = 250;
/// The maximum number of other receivers that are looked at to find one with room.
const WITNESSES: usize = 64;

/// As many messages may wait whatever their length: a single message may be longer than the bytes of the mark, and then its
/// reader would be over its mark however fast it is.
const FEW_MESSAGES: usize = 4;
/// Minimum time for which nobody called, although something was due, from which the process was absent: it was stopped, the
/// machine was suspended, or a turn took very long.
const ABSENCE_MS: u64 = 1_000;

/// A queue that has grown by more than this is over its mark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    messages: usize,
    bytes: usize,
    /// No fewer messages are too many for their bytes.
    few: usize,
}

impl Mark {
    pub(crate) fn of(settings: &Settings) -> Self {
        Self { messages: settings.brake_messages, bytes: settings.brake_bytes, few: FEW_MESSAGES }
    }

    /// A half or a quarter of the mark.
    fn part(self, divisor: usize) -> Self {
        let Self { messages, bytes, few } = self;
        Self { messages: messages / divisor, bytes: bytes / divisor, few: few / divisor }
    }

    /// Returns the weight of a message. The weights add up to [`worth`](Self::worth) after the mark's number of
    /// messages, or its number of bytes.
    pub(crate) fn weight(self, bytes: usize) -> usize {
        bytes.max(self.bytes / self.messages.max(1)).max(1)
    }

    pub(crate) fn worth(self) -> usize {
        self.bytes.max(1)
    }
}

/// The reason why an acknowledgement is withheld.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Brake {
    /// The queue that has grown too much.
    pub(crate) queue: QueueId,
    /// Other receivers of the message have room.
    pub(crate) beside_others: bool,
}

/// The clock by which readers are judged. It stands still while the process is absent: nobody could be heard, and nobody
/// could acknowledge anything.
#[derive(Debug, Default)]
pub(crate) struct PatienceClock {
    /// When somebody called last, on the monotonic clock.
    seen_ms: u64,
    /// The sum of all absences, in milliseconds.
    absent_ms: u64,
}

impl PatienceClock {
    /// Notes the time of a call. Returns the time of the last one, if the process may have been absent since then.
    pub(crate) fn see(&mut self, now: Now) -> Option<u64> {
        let seen_ms = std::mem::replace(&mut self.seen_ms, now.monotonic_ms);
        (seen_ms > 0 && now.monotonic_ms - seen_ms >= ABSENCE_MS).then_some(seen_ms)
    }

    /// Something was due for this long. The process was absent meanwhile, unless this is short.
    pub(crate) fn excuse(&mut self, late_ms: u64) {
        self.absent_ms += if late_ms >= ABSENCE_MS { late_ms } else { 0 };
    }

    /// A time of the monotonic clock on this clock.
    fn at(&self, monotonic_ms: u64) -> u64 {
        monotonic_ms.saturating_sub(self.absent_ms)
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
/// A reader whose queue drains is rested, in any state. The account of the time that it has cost while others had room
/// goes on: a reader cannot get another second by taking everything shortly before the first is over.
///
/// Time is looked at when a message comes and when one is acknowledged: the last acknowledgement that is withheld may add
/// its second. In a trial and when patience is spent nobody waits. A trial shows the pace of publishers that do not wait,
/// and nothing else does: while publishers wait for a reader, all others get their messages at its pace.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Patience {
    state: State,
    cost: Cost,
}

#[derive(Debug, Clone, Copy, Default)]
enum State {
    #[default]
    Rested,
    Braking {
        since_ms: u64,
        /// The weight of the messages that the reader has acknowledged since then.
        taken: usize,
        beside_others: bool,
    },
    Trial {
        from_ms: u64,
        /// The weight of the messages that have come since then.
        arrived: usize,
    },
    Spent,
}

/// The time for which publishers have waited for a reader while others had room, and the weight that it took meanwhile.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    from_ms: u64,
    waited_ms: u64,
    taken: usize,
}

impl Cost {
    fn new(from_ms: u64) -> Self {
        Self { from_ms, waited_ms: 0, taken: 0 }
    }

    /// After ten seconds an account begins anew.
    fn begin(&mut self, now_ms: u64) {
        if self.waited_ms == 0 || now_ms >= self.from_ms + ACCOUNT_MS {
            *self = Self::new(now_ms);
        }
    }

    fn add(&mut self, waited_ms: u64, taken: usize) {
        self.waited_ms += waited_ms;
        self.taken = self.taken.saturating_add(taken);
    }

    /// The time for which publishers may still wait.
    fn left_ms(&self) -> u64 {
        PATIENCE_BESIDE_OTHERS_MS.saturating_sub(self.waited_ms)
    }
}

impl Patience {
    pub(crate) fn is_rested(&self) -> bool {
        matches!(self.state, State::Rested)
    }

    /// The queue has drained.
    pub(crate) fn renew(&mut self, now_ms: u64) {
        if let State::Braking { since_ms, taken, beside_others: true } = self.state {
            self.cost.add(now_ms - since_ms, taken);
        }
        self.state = State::Rested;
    }

    /// The reader has acknowledged a message.
    pub(crate) fn progress(&mut self, weight: usize) {
        if let State::Braking { taken, .. } = &mut self.state {
            *taken = taken.saturating_add(weight);
        }
    }

    /// A message has come into the queue, which is over its mark; others who get it have room, or nobody else has.
    pub(crate) fn arrive(&mut self, weight: usize, others_have_room: bool, mark: Mark, now_ms: u64) {
        match &mut self.state {
            State::Rested => self.begin(others_have_room, now_ms),
            State::Braking { beside_others, .. } => *beside_others |= others_have_room,
            State::Trial { from_ms, arrived } => {
                *arrived = arrived.saturating_add(weight);
                let trial_ms = now_ms - *from_ms;
                if *arrived < mark.worth() || trial_ms < TRIAL_MS_MIN {
                    return;
                }
                // The publishers would have had the pace of the trial all the time.
                let Cost { waited_ms, taken, .. } = self.cost;
                if product(taken, trial_ms) * 4 >= product(*arrived, waited_ms) {
                    *self = Self { state: State::Rested, cost: Cost::new(now_ms) };
                } else {
                    self.state = State::Spent;
                }
            }
            State::Spent => {}
        }
    }

    fn begin(&mut self, beside_others: bool, now_ms: u64) {
        self.cost.begin(now_ms);
        self.state = match beside_others && self.cost.left_ms() == 0 {
            true => State::Trial { from_ms: now_ms, arrived: 0 },
            false => State::Braking { since_ms: now_ms, taken: 0, beside_others },
        };
    }

    /// Whether publishers wait for the reader of a queue that is over its mark.
    pub(crate) fn is_worth_waiting(&mut self, mark: Mark, now_ms: u64) -> bool {
        match self.state {
            State::Rested => {
                self.begin(false, now_ms);
                true
            }
            State::Braking { since_ms, taken, beside_others } => {
                let patience_ms = if beside_others { self.cost.left_ms() } else { PATIENCE_MS };
                let waited_ms = now_ms - since_ms;
                if waited_ms < patience_ms {
                    return true;
                }
                if beside_others {
                    self.cost.add(waited_ms, taken);
                }
                self.state = match beside_others {
                    true if self.cost.taken > 0 => State::Trial { from_ms: now_ms, arrived: 0 },
                    false if taken >= mark.worth() => State::Rested,
                    _ => State::Spent,
                };
                self.is_rested() && self.is_worth_waiting(mark, now_ms)
            }
            State::Trial { .. } | State::Spent => false,
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
        let messages = self.messages_of(queue);
        messages > mark.messages || messages > mark.few && self.bytes_of(queue) > mark.bytes
    }

    /// At most a quarter of the mark waits: its reader is as good as any other.
    fn renew_if_drained(&mut self, queue: &Queue, mark: Mark, now_ms: u64) {
        if !self.patience.is_rested() && !self.is_over(queue, mark.part(4)) {
            self.patience.renew(now_ms);
        }
    }

    fn messages_of(&self, queue: &Queue) -> usize {
        queue.len() - self.messages.min(queue.len())
    }

    fn bytes_of(&self, queue: &Queue) -> usize {
        queue.bytes() - self.bytes.min(queue.bytes())
    }
}

impl Line {
    /// Whether it has grown by more than it should since somebody reads it: then its publishers are braked.
    fn has_grown(&self, mark: Mark) -> bool {
        let may_be_waited_for = match &self.owner {
            Owner::Session(session) => session.subscriber.gauge.level() != Level::Slow,
            Owner::Group(group) => {
                group.lanes.as_deref().is_none_or(|lanes| lanes.has_more_than(mark.messages))
            }
        };
        self.has_reader() && may_be_waited_for && self.growth.is_over(&self.queue, mark)
    }

    /// Whether it has a reader, and at most half of its mark waits: lines that are at their marks together are none that
    /// could take more.
    fn has_room(&self, mark: Mark) -> bool {
        self.has_reader() && !self.growth.is_over(&self.queue, mark.part(2))
    }
}

impl Lines {
    pub(crate) fn has_grown(&self, id: QueueId) -> bool {
        self.find(id).is_some_and(|line| line.has_grown(self.mark))
    }

    fn has_room(&self, id: QueueId) -> bool {
        self.find(id).is_some_and(|line| line.has_room(self.mark))
    }

    /// A message has come into a line that is over its mark. Returns the reason why its publisher waits, if it does.
    pub(crate) fn arrive(
        &mut self,
        queue: QueueId,
        arrival: &mut Arrival<'_>,
        monotonic_ms: u64,
    ) -> Option<Brake> {
        let (mark, now_ms) = (self.mark, self.patience_clock.at(monotonic_ms));
        let Arrival { bytes, targets, others_have_room } = arrival;
        let weight = mark.weight(*bytes);
        let others_have_room = *others_have_room.get_or_insert_with(|| self.is_taken_elsewhere(targets));
        self.with_patience(queue, |patience| patience.arrive(weight, others_have_room, mark, now_ms));
        let waits = self.is_worth_waiting(queue, now_ms);
        waits.then_some(Brake { queue, beside_others: others_have_room })
    }

    /// Whether the publishers of a line wait for its reader: it has grown, and the reader is worth it.
    pub(crate) fn is_braked(&mut self, queue: QueueId, now: Now) -> bool {
        self.has_grown(queue) && self.is_worth_waiting(queue, self.patience_clock.at(now.monotonic_ms))
    }

    fn is_worth_waiting(&mut self, queue: QueueId, now_ms: u64) -> bool {
        let (mark, mut is_worth_waiting) = (self.mark, false);
        self.with_patience(queue, |patience| {
            is_worth_waiting |= patience.is_worth_waiting(mark, now_ms);
        });
        is_worth_waiting
    }

    /// The patience with the reader of a line; where keys keep their order, with each member for whom too much waits.
    fn with_patience(&mut self, id: QueueId, mut change: impl FnMut(&mut Patience)) {
        let messages = self.mark.messages;
        let Some(line) = self.find_mut(id) else { return };
        match &mut line.owner {
            Owner::Group(Group { lanes: Some(lanes), .. }) => lanes.change_patience(messages, change),
            Owner::Group(_) | Owner::Session(_) => change(&mut line.growth.patience),
        }
    }

    /// Something may have been taken from a line.
    pub(crate) fn renew_patience(&mut self, id: QueueId, now: Now) {
        let (mark, now_ms) = (self.mark, self.patience_clock.at(now.monotonic_ms));
        let Some(line) = self.find_mut(id) else { return };
        line.growth.renew_if_drained(&line.queue, mark, now_ms);
        if let Owner::Group(Group { lanes: Some(lanes), .. }) = &mut line.owner {
            lanes.renew_patience(now_ms);
        }
    }

    /// Whether a message goes to somebody who is connected and could take more; that is no line over its mark.
    fn is_taken_elsewhere(&self, targets: &Targets) -> bool {
        let has_room = |target: &Target| {
            let Subscriber { gauge, queue, .. } = &*target.subscriber;
            gauge.level() == Level::Open
                && !gauge.is_marked_behind()
                && queue.is_none_or(|queue| self.has_room(queue))
        };
        let group_has_room = |group: &Arc<Subscriber>| group.queue.is_some_and(|group| self.has_room(group));
        let straight = targets.shards.iter().flat_map(|(_, targets)| targets.iter());
        straight.take(WITNESSES).any(has_room) || targets.groups.iter().take(WITNESSES).any(group_has_room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARK: Mark = Mark { messages: 10, bytes: 1_000, few: 1 };

    #[test]
    fn a_large_message_counts_for_its_bytes_and_a_small_one_for_one_of_many() {
        assert_eq!((MARK.weight(1), MARK.weight(500), MARK.worth()), (100, 500, 1_000));
    }

    /// A reader that made this progress in the second for which publishers waited, and is in its trial.
    fn tried_after(taken: usize) -> Patience {
        let mut patience = Patience::default();
        patience.arrive(100, true, MARK, 0);
        patience.progress(taken);
        assert!(patience.is_worth_waiting(MARK, 999));
        assert!(!patience.is_worth_waiting(MARK, 1_000));
        patience
    }

    #[test]
    fn a_quarter_of_what_would_have_come_is_enough() {
        for (taken, is_enough) in [(999, false), (1_000, true)] {
            let mut patience = tried_after(taken);
            // It is not the pace of the reader while nobody waits.
            patience.progress(10_000);
            // A mark's worth in a quarter of a second: four of them would have come in the second before.
            patience.arrive(999, true, MARK, 1_249);
            patience.arrive(1, true, MARK, 1_250);
            assert_eq!(patience.is_worth_waiting(MARK, 1_250), is_enough, "{taken}: {patience:?}");
        }
    }

    /// • A drained queue does not begin the second anew.
    #[test]
    fn a_reader_that_drains_has_no_second_more_before_ten_seconds_have_passed() {
        let mut patience = Patience::default();
        for from_ms in [5_000, 6_000] {
            patience.arrive(100, true, MARK, from_ms);
            assert!(patience.is_worth_waiting(MARK, from_ms + 499));
            patience.progress(1);
            patience.renew(from_ms + 500);
        }
        patience.arrive(100, true, MARK, 7_000);
        assert!(!patience.is_worth_waiting(MARK, 7_000), "{patience:?}");
        patience.arrive(1_000, true, MARK, 7_250);
        assert!(!patience.is_worth_waiting(MARK, 7_250), "{patience:?}");
        patience.renew(8_000);
        patience.arrive(100, true, MARK, 14_999);
        assert!(!patience.is_worth_waiting(MARK, 14_999), "{patience:?}");
        patience.renew(15_000);
        patience.arrive(100, true, MARK, 15_000);
        assert!(patience.is_worth_waiting(MARK, 15_999), "{patience:?}");
    }

    /// If nobody else has room, a reader that drains is waited for as long as ever.
    #[test]
    fn nothing_is_charged_to_a_reader_that_is_alone() {
        let mut patience = Patience::default();
        for round in 0..20 {
            patience.arrive(100, false, MARK, round * 1_000);
            assert!(patience.is_worth_waiting(MARK, round * 1_000 + 989));
            patience.renew(round * 1_000 + 990);
        }
    }
}
