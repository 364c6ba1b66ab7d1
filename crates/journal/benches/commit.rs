//! How fast messages become durable, beside a yardstick that cannot be beaten without changing the promise: the same
//! bytes appended to one file that is as long already, and fdatasync.
//!
//! `cargo bench -p pondhawk-journal --bench commit [-- DIRECTORY]`; `taskset -c 0` for one core.

use std::borrow::Cow;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use journal::record::encode_group;
use journal::{Directory, Journal, Settings};
use ledger::{Granted, Incarnation, Keeper, Lsn, MessageId, Queued, Record};
use session::{Message, Now};
use wire::{Publish, Qos};

/// Both are measured in turn, because the disk is not the same from one moment to the next.
const SLICE: Duration = Duration::from_millis(100);
const SLICES: usize = 15;

fn main() {
    let directory: PathBuf =
        std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default().into();
    let directory = directory.join(format!("pondhawk-bench-{}", std::process::id()));
    println!("messages of 100 B, so many a commit, each to so many queues; the median of {SLICES} slices");
    println!("growing: nothing is acknowledged; turning over: everything is, and segments are used again");
    println!("a commit  queues          journal /s  yardstick /s  ratio  CPU-s per M  longest commit, ms");
    let sizes = [(1, 1), (16, 1), (64, 1), (64, 10), (256, 1), (1024, 1), (1024, 10)];
    let growing = sizes.map(|(messages, queues)| (messages, queues, "growing", u64::MAX));
    let turning_over = [(64, 1), (1024, 1)].map(|(messages, queues)| (messages, queues, "turning", 0));
    for (messages, queues, kind, live_bytes) in growing.into_iter().chain(turning_over) {
        fs::create_dir_all(&directory).expect("a directory can be made here");
        let mut subject = Subject::open(&directory, messages, queues, live_bytes);
        let mut yardstick = Yardstick::open(&directory.join("yardstick"), subject.group_bytes * messages);
        let mut pairs: Vec<(f64, f64, f64)> = Vec::new();
        let mut cpu = 0.0;
        for _ in 0..SLICES {
            let before = cpu_secs();
            let ours = per_second(messages, || subject.commit());
            cpu += cpu_secs() - before;
            let theirs = per_second(messages, || yardstick.commit());
            pairs.push((ours / theirs, ours, theirs));
        }
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, ours, theirs) = pairs[SLICES / 2];
        let cpu = cpu / float(subject.count) * 1e6;
        let longest = float(subject.journal.status().latencies.longest_micros) / 1e3;
        println!(
            "{messages:>8} {queues:>7} {kind:>7} {ours:>11.0} {theirs:>13.0} {ratio:>6.2} {cpu:>12.2} {longest:>19.1}"
        );
        drop(subject);
        fs::remove_dir_all(&directory).expect("it was made just now");
    }
}

/// Messages a second, in one slice.
fn per_second(messages: u64, mut commit: impl FnMut()) -> f64 {
    let (began, mut count) = (Instant::now(), 0);
    while began.elapsed() < SLICE {
        commit();
        count += messages;
    }
    float(count) / began.elapsed().as_secs_f64()
}

#[expect(clippy::cast_precision_loss)]
fn float(count: u64) -> f64 {
    count as f64
}

/// A journal, and how its threads wake this one.
struct Subject {
    journal: Journal,
    woken: Arc<(Mutex<bool>, Condvar)>,
    body: Arc<Message>,
    messages: u64,
    queues: u64,
    count: u64,
    group_bytes: u64,
    /// What the journal is told; with nothing live segments are read again and used again, with very much they are not.
    live_bytes: u64,
}

impl Subject {
    fn open(directory: &Path, messages: u64, queues: u64, live_bytes: u64) -> Self {
        let woken = Arc::new((Mutex::new(false), Condvar::new()));
        let of = woken.clone();
        let wake: journal::Wake = Arc::new(move || {
            *of.0.lock().expect("nothing panics while it is locked") = true;
            of.1.notify_one();
        });
        let storage = Arc::new(Directory::open(directory).expect("it can be opened"));
        let opening = journal::open(storage, Settings::default()).expect("it is new");
        let (journal, _) = opening.start(&wake).expect("it is new");
        let topic = topic::topic!("bench/durable");
        let publish = Publish::new(topic, &[b'x'; 100]);
        let now = Now { monotonic_ms: 0, unix_ms: 0 };
        let body = Arc::new(Message::new(topic, &publish, Some("publisher-17".into()), now));
        let mut subject =
            Self { journal, woken, body, messages, queues, count: 1_000_000, group_bytes: 0, live_bytes };
        let mut bytes = Vec::new();
        subject.with_record(|_, record| encode_group(&[record], usize::MAX, &mut bytes, &mut Vec::new()));
        subject.group_bytes = bytes.len() as u64;
        subject.count = 0;
        subject
    }

    fn with_record<T>(&mut self, with: impl FnOnce(&mut Journal, Record<'_>) -> T) -> T {
        let granted = Granted { qos: Qos::AtLeastOnce, retain: false, identifiers: Box::default() };
        let queued = |queue| Queued { queue: Incarnation(queue % 1000), granted: granted.clone() };
        let queues: Vec<_> = (self.count..self.count + self.queues).map(queued).collect();
        let record = Record::Enqueue {
            message: MessageId(self.count),
            body: Cow::Borrowed(&self.body),
            queues: Cow::Borrowed(&queues),
            is_retained: false,
        };
        with(&mut self.journal, record)
    }

    /// One turn of whoever commits.
    fn commit(&mut self) {
        self.journal.begin_turn();
        let mut last = Lsn(0);
        for _ in 0..self.messages {
            let committed = self.with_record(|journal, record| journal.commit(&[record]));
            last = committed.expect("there is space");
            self.count += 1;
        }
        self.journal.end_turn();
        self.journal.set_live_bytes(self.live_bytes);
        while self.journal.progress().durable < last {
            let woken = self.woken.0.lock().expect("nothing panics while it is locked");
            *self.woken.1.wait_while(woken, |woken| !*woken).expect("nothing panics") = false;
        }
        while self.journal.next_to_copy().is_some() {}
    }
}

/// A file that is as long already and is written again from its beginning.
struct Yardstick {
    file: File,
    bytes: Vec<u8>,
    offset: u64,
}

const YARDSTICK_BYTES: u64 = 64 << 20;

impl Yardstick {
    fn open(path: &Path, bytes: u64) -> Self {
        let file = File::create(path).expect("it can be made");
        file.write_all_at(&vec![0; 64 << 20], 0).expect("there is space");
        file.sync_all().expect("it can be synced");
        Self { file, bytes: vec![b'x'; usize::try_from(bytes).expect("few")], offset: 0 }
    }

    fn commit(&mut self) {
        if self.offset + self.bytes.len() as u64 > YARDSTICK_BYTES {
            self.offset = 0;
        }
        self.file.write_all_at(&self.bytes, self.offset).expect("there is space");
        self.file.sync_data().expect("it can be synced");
        self.offset += self.bytes.len() as u64;
    }
}

/// Of this process, from its beginning.
fn cpu_secs() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    // utime and stime, in hundredths of a second.
    fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}
