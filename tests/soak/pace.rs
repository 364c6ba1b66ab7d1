//! Controls the load: broker and this process together use a share of one core.

use std::fs;
use std::time::{Duration, Instant};

/// Resolution in which the system counts processor time.
const TICK: Duration = Duration::from_millis(10);
/// Interval between adjustments of the pace.
const LOOK: Duration = Duration::from_millis(500);
const ACTS_MAX: f64 = 40.0;
const ACTS_MIN: f64 = 0.2;

/// Controller of the number of actions per turn.
pub(crate) struct Throttle {
    /// Wanted processor time as a fraction of one core.
    share: f64,
    acts: f64,
    /// Remaining fraction of an action.
    rest: f64,
    looked: Instant,
    spent: Duration,
}

impl Throttle {
    pub(crate) fn new(share: u64) -> Self {
        Self {
            share: share as f64 / 100.0,
            acts: 2.0,
            rest: 0.0,
            looked: Instant::now(),
            spent: Duration::ZERO,
        }
    }

    /// Begins a load. Processor time before this call does not count.
    pub(crate) fn begin(&mut self, broker: u32) {
        (self.looked, self.spent) = (Instant::now(), spent(broker));
    }

    /// Returns the number of actions in this turn.
    pub(crate) fn acts(&mut self, broker: u32) -> usize {
        let passed = self.looked.elapsed();
        if passed >= LOOK {
            let now = spent(broker);
            let share = now.saturating_sub(self.spent).as_secs_f64() / passed.as_secs_f64();
            let factor = if share > self.share { 0.7 } else { 1.15 };
            self.acts = (self.acts * factor).clamp(ACTS_MIN, ACTS_MAX);
            (self.looked, self.spent) = (Instant::now(), now);
        }
        self.rest += self.acts;
        let mut whole = 0;
        while self.rest >= 1.0 {
            self.rest -= 1.0;
            whole += 1;
        }
        whole
    }

    /// Whether the load allows more than the minimum of one action per turn.
    pub(crate) fn is_free(&self) -> bool {
        self.acts >= 1.0
    }
}

/// Processor time of the broker and of this process.
pub(crate) fn spent(broker: u32) -> Duration {
    [format!("/proc/{broker}/stat"), "/proc/self/stat".to_owned()].iter().map(|path| ticks(path) * TICK).sum()
}

fn ticks(path: &str) -> u32 {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The name of the program, in brackets, may contain any characters.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let of_user_and_system = fields.split_whitespace().skip(11).take(2);
    of_user_and_system.filter_map(|field| field.parse::<u32>().ok()).sum()
}
