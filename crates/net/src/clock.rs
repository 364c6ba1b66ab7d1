//! Time, read once a turn.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base::Now;

#[derive(Clone)]
pub(crate) struct Clock {
    start: Instant,
    ticked: Instant,
    now: Now,
}

impl Clock {
    /// A clock of the process: all copies of it count from the same moment.
    pub(crate) fn start() -> Self {
        let start = Instant::now();
        let mut clock = Self { start, ticked: start, now: Now { monotonic_ms: 0, unix_ms: 0 } };
        clock.tick();
        clock
    }

    /// Looks at the clocks of the machine.
    pub(crate) fn tick(&mut self) {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        self.ticked = Instant::now();
        self.now = Now { monotonic_ms: ms(self.ticked.duration_since(self.start)), unix_ms: ms(unix) };
    }

    /// The time since the last [`tick`](Self::tick).
    pub(crate) fn since_tick(&self) -> Duration {
        self.ticked.elapsed()
    }

    /// The time at the last [`tick`](Self::tick).
    pub(crate) fn now(&self) -> Now {
        self.now
    }

    /// The time at this moment, in seconds since 1970.
    pub(crate) fn current_unix_secs(&self) -> u64 {
        let mut clock = self.clone();
        clock.tick();
        clock.now.unix_ms / 1_000
    }

    /// The time at this moment, on the monotonic clock.
    pub(crate) fn current_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
