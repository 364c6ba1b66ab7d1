//! The ledger on its journal, or the journal alone: how fast messages become durable, beside the yardstick.

mod subject;

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use nix::time::{ClockId, clock_gettime};

use crate::args::DurableArgs;
use crate::error::{Error, Result};
use crate::figure::{duration, median, quantity};
use crate::load::{latencies, nanos};
use crate::process::Process;
use crate::scratch::Scratch;
use crate::table::{Section, Table};
use crate::yardstick::Yardstick;
use subject::{OnItsOwn, Subject, WithLedger};

/// Both are measured in turn, because a disk is not the same from one moment to the next.
const SLICE: Duration = Duration::from_millis(100);
/// Number of reused segments after which the measurement begins ...
const RECYCLED_BEFORE: u64 = 2;
/// ... or after this time, where the disk is slow.
const WARM_UP_MAX: Duration = Duration::from_secs(8);
/// Messages from which the length of the records is taken.
const WEIGHED_MESSAGES: u64 = 2_000;

/// Measures and prints a table.
pub(crate) fn run(args: &DurableArgs) -> Result<()> {
    let mut rows = Vec::new();
    let mut file_system = String::new();
    for shape in args.shapes() {
        let mut cells = Vec::new();
        for &messages in &args.per_commit {
            let scratch = Scratch::new(&args.directory)?;
            file_system = scratch.file_system();
            cells.push(if args.without_ledger {
                measure(OnItsOwn::open(&scratch, shape)?, &scratch, messages, args.duration)?
            } else {
                measure(WithLedger::open(&scratch, shape)?, &scratch, messages, args.duration)?
            });
        }
        rows.push((shape, cells));
    }
    print!("{}", table(args, &rows, &file_system));
    Ok(())
}

/// Shape of messages, and number of sessions for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) payload: u32,
    pub(crate) fanout: usize,
}

/// Figures of one shape with one number of messages in a commit.
struct Cell {
    ours: Side,
    yardstick: Side,
    /// The median of how the slices of a pair compare.
    share: f64,
    longest_commit: Duration,
    segments_recycled: u64,
}

/// Figures of one of both.
struct Side {
    messages: u64,
    took: Duration,
    cpu: Duration,
    /// Of each commit, in nanoseconds.
    latency: Histogram<u64>,
}

impl Side {
    fn new() -> Self {
        Self { messages: 0, took: Duration::ZERO, cpu: Duration::ZERO, latency: latencies() }
    }

    /// Commits until a slice is over. Returns messages a second.
    fn slice(&mut self, messages: u64, mut commit: impl FnMut() -> Result<()>) -> Result<f64> {
        let (began, mut count) = (Instant::now(), 0);
        let mut last = began;
        while last.duration_since(began) < SLICE {
            commit()?;
            let now = Instant::now();
            self.latency.saturating_record(nanos(now - last));
            last = now;
            count += messages;
        }
        let took = last - began;
        self.messages += count;
        self.took += took;
        Ok(count as f64 / took.as_secs_f64())
    }

    fn per_sec(&self) -> f64 {
        self.messages as f64 / self.took.as_secs_f64()
    }

    fn cpu_secs_per_million(&self) -> f64 {
        self.cpu.as_secs_f64() / self.messages as f64 * 1e6
    }

    fn percentiles(&self) -> String {
        let at = |quantile| duration(Duration::from_nanos(self.latency.value_at_quantile(quantile)));
        format!("{} / {}", at(0.5), at(0.99))
    }
}

fn measure(mut subject: impl Subject, scratch: &Scratch, messages: u64, time: Duration) -> Result<Cell> {
    warm_up(&mut subject, messages)?;
    subject.journal().weighed_bytes = Some(0);
    subject.commit(WEIGHED_MESSAGES)?;
    let weighed = subject.journal().weighed_bytes.take().unwrap_or_default();
    let commit_bytes = usize::try_from(weighed * messages / WEIGHED_MESSAGES).unwrap_or(usize::MAX);
    let path = scratch.path().join("yardstick");
    let failed = || Error::io(format!("write {}", wire::Shown(path.display())));
    let mut reference = Yardstick::new(&path, commit_bytes).map_err(failed())?;
    let (mut ours, mut yardstick, mut ratios) = (Side::new(), Side::new(), Vec::new());
    let process = Process::from(nix::unistd::getpid());
    let (began, before) = (Instant::now(), process.cpu_time().unwrap_or_default());
    let recycled_before = subject.journal().status().recycled;
    while began.elapsed() < time {
        let rate = ours.slice(messages, || subject.commit(messages))?;
        let cpu = thread_cpu_time()?;
        let reference_rate = yardstick.slice(messages, || reference.commit().map_err(failed()))?;
        yardstick.cpu += thread_cpu_time()? - cpu;
        ratios.push(rate / reference_rate);
    }
    // The time of the journal's threads always counts as ours.
    ours.cpu = (process.cpu_time().unwrap_or_default() - before).saturating_sub(yardstick.cpu);
    let status = subject.journal().status();
    Ok(Cell {
        ours,
        yardstick,
        share: median(ratios),
        longest_commit: Duration::from_micros(status.latencies.longest_micros),
        segments_recycled: status.recycled - recycled_before,
    })
}

/// Publishes until segments are used again, as they will be from then on.
fn warm_up(subject: &mut impl Subject, messages: u64) -> Result<()> {
    let began = Instant::now();
    subject.fill()?;
    while subject.journal().status().recycled < RECYCLED_BEFORE && began.elapsed() < WARM_UP_MAX {
        subject.commit(messages)?;
    }
    Ok(())
}

fn thread_cpu_time() -> Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map(Duration::from).map_err(Error::errno("read a thread's clock"))
}

fn table(args: &DurableArgs, rows: &[(Shape, Vec<Cell>)], file_system: &str) -> Table {
    let section = |title: &str, cell: &dyn Fn(&Cell) -> String| {
        let row = |(shape, cells): &(Shape, Vec<Cell>)| {
            std::iter::once(shape.to_string()).chain(cells.iter().map(cell)).collect()
        };
        Section { title: title.to_owned(), rows: rows.iter().map(row).collect() }
    };
    let pair = |(one, other): (Duration, Duration)| format!("{} / {}", duration(one), duration(other));
    let longest = |cell: &Cell| {
        let theirs = Duration::from_nanos(cell.yardstick.latency.max());
        pair((cell.longest_commit, theirs))
    };
    let sections = vec![
        section("messages/s", &|cell| quantity(cell.ours.per_sec())),
        section("share of the yardstick", &|cell| format!("{:.2}", cell.share)),
        section("CPU seconds per million messages", &|cell| quantity(cell.ours.cpu_secs_per_million())),
        section("CPU seconds per million messages, yardstick", &|cell| {
            quantity(cell.yardstick.cpu_secs_per_million())
        }),
        section("from publish to acknowledgement, p50 / p99", &|cell| cell.ours.percentiles()),
        section("write and sync of the yardstick, p50 / p99", &|cell| cell.yardstick.percentiles()),
        section("longest commit / of the yardstick", &longest),
        section("segments used again meanwhile", &|cell| cell.segments_recycled.to_string()),
    ];
    let headings = args.per_commit.iter().map(|messages| format!("{messages}"));
    let (subject, steady) = if args.without_ledger { OnItsOwn::WORDS } else { WithLedger::WORDS };
    Table {
        title: format!("{subject}, on {file_system}: QoS 1 to sessions that are away"),
        headings: std::iter::once("messages per commit".to_owned()).chain(headings).collect(),
        sections,
        notes: vec![
            format!(
                "On {file_system}. The yardstick appends the same bytes, without padding to pages, to one file that \
                 already has its full length, and syncs. Both are measured in turn, {} ms each, and the share is the \
                 median of these pairs ({} s a cell). All messages of a commit are published in one turn, and those of \
                 the next commit when the last one is acknowledged. The latency of a commit is that of its slowest \
                 message.",
                SLICE.as_millis(),
                args.duration.as_secs_f64()
            ),
            format!("{steady} Segments are therefore read again and reused all the time."),
        ],
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let queues = if self.fanout == 1 { "queue" } else { "queues" };
        write!(f, "{} B, {} {queues}", self.payload, self.fanout)
    }
}
