//! A coarse timing wheel: one small entry per armed timer, nothing per tick but the slot that is due.

/// How long one slot lasts. Timers fire up to this much late, never early.
pub(crate) const SLOT_MS: u64 = 100;
const SLOTS: u64 = 512;

/// Timers of one shard. An entry that lies further ahead than one round stays in its slot and is looked at once a
/// round. The owner of a timer checks at its firing whether it is still wanted.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    slots: Box<[Vec<Entry<T>>]>,
    /// The first slot number that has not been fired yet.
    next: u64,
    /// No slot before this one holds anything that is due when time reaches it.
    soonest: Option<u64>,
    armed: usize,
}

#[derive(Debug)]
struct Entry<T> {
    due: u64,
    what: T,
}

impl<T> Wheel<T> {
    /// An empty wheel whose time begins at `now_ms`.
    #[must_use]
    pub(crate) fn new(now_ms: u64) -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Vec::new()).collect(),
            next: now_ms / SLOT_MS,
            soonest: None,
            armed: 0,
        }
    }

    /// Arms a timer for `at_ms`, on the clock of [`new`](Self::new).
    pub(crate) fn arm(&mut self, at_ms: u64, what: T) {
        let due = at_ms.div_ceil(SLOT_MS).max(self.next);
        self.slots[Self::slot(due)].push(Entry { due, what });
        self.soonest = Some(self.soonest.map_or(due, |soonest| soonest.min(due)));
        self.armed += 1;
    }

    /// When [`fire`](Self::fire) wants to be called next, if any timer is armed. At most one round
    /// ahead, so that it may find nothing due.
    #[must_use]
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.soonest.map(|number| number * SLOT_MS)
    }

    /// Moves every timer that is due at `now_ms` to `into`.
    pub(crate) fn fire(&mut self, now_ms: u64, into: &mut Vec<T>) {
        let last = now_ms / SLOT_MS;
        if self.soonest.is_none_or(|soonest| last < soonest) {
            return;
        }
        // After a long sleep one round looks at every slot once.
        for number in self.next..=last.min(self.next + SLOTS - 1) {
            let slot = &mut self.slots[Self::slot(number)];
            let before = slot.len();
            into.extend(slot.extract_if(.., |entry| entry.due <= last).map(|entry| entry.what));
            self.armed -= before - slot.len();
            if slot.is_empty() && slot.capacity() > 64 {
                *slot = Vec::new();
            }
        }
        self.next = last + 1;
        self.soonest = self.first_used_slot();
    }

    fn first_used_slot(&self) -> Option<u64> {
        if self.armed == 0 {
            return None;
        }
        (self.next..self.next + SLOTS).find(|number| !self.slots[Self::slot(*number)].is_empty())
    }

    fn slot(number: u64) -> usize {
        usize::try_from(number % SLOTS).expect("a slot number is below SLOTS")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_time_and_never_early() {
        let mut wheel = Wheel::new(1_000);
        for at in [1_000, 1_050, 1_100, 5_000, 60_000, 200_000, 200_001] {
            wheel.arm(at, at);
        }
        let mut now = 1_000;
        let mut fired = Vec::new();
        while let Some(next) = wheel.next_ms() {
            now = next.max(now);
            let mut due = Vec::new();
            wheel.fire(now, &mut due);
            for at in due {
                assert!(at <= now && now - at < SLOT_MS, "{at} fired at {now}");
                fired.push(at);
            }
        }
        assert_eq!(fired, [1_000, 1_050, 1_100, 5_000, 60_000, 200_000, 200_001]);
    }

    #[test]
    fn a_long_sleep_fires_everything_that_is_due_once() {
        let mut wheel = Wheel::new(0);
        (0..10_000).for_each(|at| wheel.arm(at * 37, at));
        let mut due = Vec::new();
        wheel.fire(1_000_000_000, &mut due);
        due.sort_unstable();
        assert_eq!(due, (0..10_000).collect::<Vec<_>>());
        assert_eq!(wheel.next_ms(), None);
    }
}
