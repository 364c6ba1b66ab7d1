//! The resident memory of a server over time.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::process::Processes;

/// Time between two samples of a short run.
const INTERVAL: Duration = Duration::from_millis(250);

/// The most samples of a run. When there are as many, every second one goes, and the interval doubles.
const SAMPLES_MAX: usize = 240;

/// Samples of resident memory at equal intervals, the first one at 0 seconds: when the server accepts connections.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Series {
    pub(super) interval_secs: f64,
    pub(super) bytes: Vec<u64>,
}

/// A series that grows.
#[derive(Debug)]
struct Growing {
    bytes: Vec<u64>,
    /// Of so many samples, the first one is kept.
    stride: u32,
    /// Samples up to now, those included that were not kept.
    seen: u32,
}

/// Looks at a server until this is dropped or finished.
#[derive(Debug)]
pub(super) struct Watch {
    /// The end of the watch, and its thread.
    running: Option<(Sender<()>, JoinHandle<Series>)>,
}

impl Series {
    /// Whether there are no samples: an older version made the figures, or the process could not be looked at.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Seconds and bytes of each sample.
    pub(super) fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        let at = |(index, bytes): (usize, &u64)| (index as f64 * self.interval_secs, *bytes as f64);
        self.bytes.iter().enumerate().map(at)
    }
}

impl Growing {
    fn new() -> Self {
        Self { bytes: Vec::new(), stride: 1, seen: 0 }
    }

    fn add(&mut self, bytes: u64) {
        if self.seen.is_multiple_of(self.stride) {
            if self.bytes.len() == SAMPLES_MAX {
                let mut index = 0;
                self.bytes.retain(|_| {
                    index += 1;
                    index % 2 == 1
                });
                self.stride = self.stride.saturating_mul(2);
            }
            self.bytes.push(bytes);
        }
        self.seen = self.seen.wrapping_add(1);
    }

    fn into_series(self) -> Series {
        Series { interval_secs: INTERVAL.as_secs_f64() * f64::from(self.stride), bytes: self.bytes }
    }
}

impl Watch {
    /// Begins to look at a server, or at all its replicas, four times a second.
    pub(super) fn begin(servers: Processes) -> Self {
        let (end, ended) = mpsc::channel::<()>();
        let look = move || {
            let mut growing = Growing::new();
            let mut due = Instant::now();
            // A process that has ended has no memory.
            while let Some(bytes) = servers.reported_resident_bytes() {
                growing.add(bytes);
                due += INTERVAL;
                let patience = due.saturating_duration_since(Instant::now());
                if ended.recv_timeout(patience) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            growing.into_series()
        };
        Self { running: Some((end, thread::spawn(look))) }
    }

    /// Ends the watch.
    pub(super) fn finish(mut self) -> Series {
        self.end().unwrap_or_default()
    }

    fn end(&mut self) -> Option<Series> {
        let (end, thread) = self.running.take()?;
        drop(end);
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Process;

    #[test]
    fn a_series_is_bounded_and_its_samples_stay_at_equal_intervals() {
        for count in [1, 239, 240, 241, 480, 481, 100_000_u64] {
            let mut growing = Growing::new();
            (0..count).for_each(|sample| growing.add(sample));
            let stride = u64::from(growing.stride);
            let series = growing.into_series();
            let len = series.bytes.len();
            assert!(len <= SAMPLES_MAX && (count < 240 || len >= SAMPLES_MAX / 2), "{count}: {len}");
            for (at, bytes) in (0..).zip(&series.bytes) {
                assert_eq!(*bytes, at * stride, "{count}");
            }
            let (last, _) = series.points().last().unwrap();
            assert_eq!(last, (0.25 * (len as f64 - 1.0)) * stride as f64, "{count}");
            assert!(count - 1 - (len as u64 - 1) * stride < stride, "{count}: the last samples are there");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_is_looked_at_from_the_first_moment_on() {
        let of = |process: Process| Processes::from(Some(process));
        let watch = Watch::begin(of(Process::from(nix::unistd::getpid())));
        let series = watch.finish();
        assert!(series.bytes[0] > 100_000, "{series:?}");
        assert_eq!(series.interval_secs, 0.25);
        assert!(Watch::begin(of(Process::new(i32::MAX))).finish().is_empty());
    }
}
