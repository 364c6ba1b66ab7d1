//! `--stats`: rates of received messages.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::say::complain;

/// Interval between two reports.
const PERIOD: Duration = Duration::from_secs(1);

/// Counts messages, and reports rates on standard error, if requested.
pub(crate) struct Stats(Option<Counts>);

struct Counts {
    start: Instant,
    since: Instant,
    now: Tally,
    total: Tally,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    messages: u64,
    bytes: u64,
}

impl Stats {
    pub(crate) fn new(are_wanted: bool) -> Self {
        let start = Instant::now();
        let counts = || Counts { start, since: start, now: Tally::default(), total: Tally::default() };
        Self(are_wanted.then(counts))
    }

    pub(crate) fn count(&mut self, payload_bytes: usize) {
        if let Some(counts) = &mut self.0 {
            for tally in [&mut counts.now, &mut counts.total] {
                tally.messages += 1;
                tally.bytes += payload_bytes as u64;
            }
        }
    }

    /// Waits for the time of the next report.
    pub(crate) async fn due(&self) {
        match &self.0 {
            Some(counts) => sleep_until(counts.since + PERIOD).await,
            None => std::future::pending().await,
        }
    }

    /// Prints a report if it is due.
    pub(crate) fn tell(&mut self) {
        if let Some(counts) = &mut self.0 {
            let elapsed = counts.since.elapsed();
            if elapsed >= PERIOD {
                complain(format_args!(
                    "{}; {} messages in all",
                    counts.now.rate(elapsed),
                    counts.total.messages
                ));
                counts.now = Tally::default();
                counts.since = Instant::now();
            }
        }
    }

    /// Prints a report about the whole time.
    pub(crate) fn finish(&self) {
        if let Some(counts) = &self.0 {
            let Tally { messages, bytes } = counts.total;
            let elapsed = counts.start.elapsed();
            let rate = counts.total.rate(elapsed);
            let secs = elapsed.as_secs_f64();
            complain(format_args!("{messages} messages, {bytes} bytes in {secs:.1} s: {rate}"));
        }
    }
}

impl Tally {
    #[allow(clippy::cast_precision_loss)] // Rates are shown with few digits.
    fn rate(self, over: Duration) -> String {
        let per_second = |count: u64| count as f64 / over.as_secs_f64().max(0.001);
        format!("{} messages/s, {} bytes/s", short(per_second(self.messages)), short(per_second(self.bytes)))
    }
}

/// Formats a number with a few digits, and k for thousands or M for millions.
fn short(number: f64) -> String {
    match number {
        ..1_000.0 => format!("{number:.0}"),
        ..1e6 => format!("{:.1} k", number / 1e3),
        _ => format!("{:.2} M", number / 1e6),
    }
}

#[test]
fn rates_are_short() {
    assert_eq!([7.0, 1_234.0, 2_500_000.0].map(short), ["7", "1.2 k", "2.50 M"]);
}
