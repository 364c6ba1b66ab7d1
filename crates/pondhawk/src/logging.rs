//! The log of the broker.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use config::{Log, LogFormat, LogLevel};
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;

use crate::log_line::Copies;
use crate::privileges::Successor;
use crate::sinks::{Reopen, Sinks};

/// Maximum number of lines that wait for standard error. Further lines are dropped. The limit is a few megabytes.
const WAITING_LINES_MAX: usize = 8_192;

/// The running log. When it is dropped, waiting lines are still written, for at most one second.
pub(crate) struct Logging {
    _guard: WorkerGuard,
    reopen: Reopen,
    level: Level,
}

impl Logging {
    /// Changes the level and the places, and opens files again. The format stays as it is.
    pub(crate) fn change(&self, log: &Log) {
        self.level.set(log.level);
        self.reopen.ask(&log.to);
    }

    /// The level of the log, for other threads.
    pub(crate) fn level(&self) -> Level {
        self.level.clone()
    }
}

/// The level of the running log, which can be changed.
#[derive(Clone)]
pub(crate) struct Level {
    current: Arc<Mutex<LogLevel>>,
    set: Arc<dyn Fn(LevelFilter) + Send + Sync>,
}

impl Level {
    /// Its name in the configuration.
    pub(crate) fn word(&self) -> &'static str {
        let current = *self.current.lock().unwrap_or_else(PoisonError::into_inner);
        LEVELS.iter().find(|(_, level, _)| *level == current).expect("each level has a name").0
    }

    /// Changes the level to that with this name. Other words have no effect.
    pub(crate) fn set_word(&self, word: &str) {
        if let Some((_, level, _)) = LEVELS.iter().find(|(known, _, _)| *known == word) {
            self.set(*level);
        }
    }

    fn set(&self, level: LogLevel) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = level;
        // Under the lock, so that the level is the one that is named.
        (self.set)(filter(level));
    }
}

/// The levels by their names in the configuration.
const LEVELS: [(&str, LogLevel, LevelFilter); 6] = [
    ("off", LogLevel::Off, LevelFilter::OFF),
    ("error", LogLevel::Error, LevelFilter::ERROR),
    ("warn", LogLevel::Warn, LevelFilter::WARN),
    ("info", LogLevel::Info, LevelFilter::INFO),
    ("debug", LogLevel::Debug, LevelFilter::DEBUG),
    ("trace", LogLevel::Trace, LevelFilter::TRACE),
];

fn filter(level: LogLevel) -> LevelFilter {
    LEVELS.iter().find(|(_, known, _)| *known == level).expect("each level has a filter").2
}

/// Starts the log with the level, format and places of the configuration.
///
/// A separate thread writes the lines, so that a slow or stuck reader blocks no other thread. Dropped lines are
/// counted, and the count is logged when lines are accepted again. The readers of `copies` get all lines too. Files that are
/// made belong to the user that the broker will be.
pub(crate) fn start(log: &Log, successor: Option<&Successor>, copies: Copies) -> Logging {
    let (sinks, failures) = Sinks::open(&log.to, successor);
    let (reopen, has_colour) = (sinks.reopen(), sinks.is_stderr_alone() && crate::has_colour());
    let (lines, guard) = queue(sinks, |lost| {
        tracing::warn!(lost, "lines of the log were left out since the start: nobody took them in time");
    });
    let (filter, handle) = reload::Layer::new(filter(log.level));
    let subscriber = tracing_subscriber::registry().with(filter).with(copies);
    let layer = tracing_subscriber::fmt::layer().with_writer(lines).with_target(false);
    match log.format {
        LogFormat::Text => subscriber.with(layer.with_ansi(has_colour)).init(),
        LogFormat::Json => subscriber.with(layer.json().flatten_event(true)).init(),
    }
    // The subscriber lives as long as the process, so that a change cannot fail.
    let level = Level {
        current: Arc::new(Mutex::new(log.level)),
        set: Arc::new(move |level| drop(handle.reload(level))),
    };
    for failure in failures {
        tracing::error!("{failure}; its lines go to standard error");
    }
    Logging { _guard: guard, reopen, level }
}

/// Makes a queue that a thread empties into `sink`. `tell` receives the number of lines dropped so far.
fn queue<W, T>(sink: W, tell: T) -> (NonBlocking, WorkerGuard)
where
    W: Write + Send + 'static,
    T: FnMut(usize) + Send + 'static,
{
    let lost = Arc::new(OnceLock::new());
    let end = End { sink, lost: Arc::clone(&lost), told: 0, tell };
    let builder = NonBlockingBuilder::default().lossy(true).buffered_lines_limit(WAITING_LINES_MAX);
    let (lines, guard) = builder.thread_name("log").finish(end);
    // Nothing else sets this cell.
    let _ = lost.set(lines.error_counter());
    (lines, guard)
}

/// The writing end of the queue.
struct End<W, T> {
    sink: W,
    lost: Arc<OnceLock<ErrorCounter>>,
    told: usize,
    tell: T,
}

impl<W: Write, T: FnMut(usize)> Write for End<W, T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sink.write(bytes)
    }

    /// Called when the queue is empty. A line about dropped lines then has room in the queue.
    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()?;
        let lost = self.lost.get().map_or(0, ErrorCounter::dropped_lines);
        if lost > self.told {
            self.told = lost;
            (self.tell)(lost);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    use super::*;

    /// A sink that accepts nothing until the test permits it.
    struct Stuck(Option<Receiver<()>>, Sender<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.1.send(());
            if let Some(gate) = self.0.take() {
                let _ = gate.recv();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_is_stuck_stops_nobody_and_what_is_lost_is_told() {
        let deadline = Duration::from_secs(20);
        let (open, gate) = channel();
        let (writing, written) = channel();
        let (tell, told) = channel();
        let sink = Stuck(Some(gate), writing);
        let (mut lines, guard) = queue(sink, move |lost| tell.send(lost).unwrap_or_default());
        lines.write_all(b"stuck").expect("it never fails");
        written.recv_timeout(deadline).expect("the first line has left the queue");
        for _ in 0..WAITING_LINES_MAX + 3 {
            lines.write_all(b"line").expect("it never fails");
        }
        open.send(()).expect("the thread waits for this");
        assert_eq!(told.recv_timeout(deadline), Ok(3));
        drop(guard);
        assert_eq!(written.iter().take(WAITING_LINES_MAX).count(), WAITING_LINES_MAX);
    }
}
