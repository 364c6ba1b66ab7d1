//! What a disk may have after a power cut, and what the broker makes of it.
//!
//! Each image is opened by the real broker in a process of its own, and every session is drained over TCP. To open it in
//! this process with the journal and the ledger alone would be faster, but would leave out what clients see: packet
//! identifiers, the answers to what they send again, and wills that fire when nobody is there.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use pondhawk_tests::promises::{Findings, check};
use pondhawk_tests::trace::Position;
use pondhawk_tests::{Broker, DEADLINE, Options, Random, data_dir};
use tempfile::TempDir;

use crate::disk::{Disk, Syncs};
use crate::recording::Recording;
use crate::report::{Report, Tally, Verdict};

/// Images of one trace.
const IMAGES_PER_TRACE: usize = 50;
/// Of one trace without syncs: about half of them lose something that was acknowledged.
const CONTROLS_PER_TRACE: usize = 10;
/// Number of later changes after which a write is on the disk without syncs: some hundredths of a second of the load.
const LEFT_OUT: Syncs = Syncs::LeftOut { written_back_after: 40 };
/// A control that has lost something is not waited for as long.
const CONTROL_PATIENCE: Duration = Duration::from_secs(2);
/// Number of brokers at a time. Most of a check is waiting.
const WORKERS: usize = 4;
/// One recovery in this number is cut too.
const ONE_IN_CUT_TWICE: usize = 4;
/// A recovery takes less than this, with what a sync takes under the trace: it is killed in it, or just behind it.
const RECOVERY_MICROS_MAX: usize = 60_000;

/// An image that waits to be checked.
struct Image {
    directory: TempDir,
    recording: Arc<Recording>,
    syncs: Syncs,
    /// Position of the power cut.
    at: Position,
    /// For what survived, and for how the broker is started.
    seed: u64,
}

/// Checks this number of images of its traces, and those of the control.
pub(crate) fn run(images: usize, seed: u64, report: &mut Report) {
    for (number, begin) in (0..images).step_by(IMAGES_PER_TRACE).enumerate() {
        let count = IMAGES_PER_TRACE.min(images - begin);
        let mut random = Random::of(seed, number as u64);
        let recording = Arc::new(Recording::make(&mut random));
        report.add(recording.counts);
        let is_good = [(Syncs::Kept, count), (LEFT_OUT, CONTROLS_PER_TRACE)].map(|(syncs, count)| {
            let tally = check_images(&recording, syncs, count, &mut random);
            let is_good = tally.is_good();
            report.tally_of(syncs).add(&tally);
            is_good
        });
        if !is_good[0] {
            keep(&recording, seed, number);
        }
        println!("{}", report.progress());
    }
}

/// Directory for traces with a loss.
fn keep(recording: &Recording, seed: u64, number: usize) {
    let folder = PathBuf::from("target/crash");
    let path = folder.join(format!("trace-{seed}-{number}"));
    let kept = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, &recording.trace));
    match kept {
        Ok(()) => println!("the trace of what went wrong is in {}", path.display()),
        Err(error) => println!("{} cannot be written: {error}", path.display()),
    }
}

fn check_images(recording: &Arc<Recording>, syncs: Syncs, count: usize, random: &mut Random) -> Tally {
    let tally = Mutex::new(Tally::default());
    let (sender, receiver) = mpsc::sync_channel::<Image>(WORKERS);
    let receiver = Mutex::new(receiver);
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                // Nobody panics while it is held.
                while let Ok(image) = { receiver.lock().expect("it is only read").recv() } {
                    let (verdict, is_cut_twice) = image.judge();
                    let mut tally = tally.lock().expect("it only counts");
                    let examples = tally.count(&verdict, is_cut_twice);
                    for example in examples.iter().filter(|_| image.syncs == Syncs::Kept) {
                        println!("--at {} --seed {}: {example}", image.at, image.seed);
                    }
                }
            });
        }
        let mut disk = Disk::new(syncs);
        let mut played = 0;
        for at in cuts(recording, count, random) {
            Recording::play(&recording.trace, played..at, &mut disk);
            played = at;
            let (seed, directory) = (random.next(), data_dir());
            disk.write_image(&mut Random::of(seed, 0), directory.path())
                .expect("there is space for an image");
            let image = Image { directory, recording: Arc::clone(recording), syncs, at, seed };
            sender.send(image).expect("workers wait for more");
        }
        drop(sender);
    });
    tally.into_inner().expect("it only counts")
}

/// Places in a trace, in their order: half of them anywhere, and half as soon as something was acknowledged, where the
/// least is on the disk beyond that.
fn cuts(recording: &Recording, count: usize, random: &mut Random) -> Vec<Position> {
    let (ends, moments) = (&recording.ends, recording.world.moments());
    let mut cuts: Vec<Position> = (0..count)
        .map(|index| {
            if index % 2 == 0 {
                return random.of_list(ends);
            }
            // An entry may be half noted when somebody looks how long the trace is.
            let moment = random.of_list(&moments);
            ends[ends.partition_point(|end| *end < moment).min(ends.len() - 1)]
        })
        .collect();
    cuts.sort_unstable();
    cuts
}

impl Image {
    /// Result of an image, and whether its recovery was cut too.
    fn judge(&self) -> (Verdict, bool) {
        let mut random = Random::of(self.seed, 1);
        let again = random.one_in(ONE_IN_CUT_TWICE).then(|| self.cut_recovery(&mut random));
        let path = again.as_ref().map_or(self.directory.path(), TempDir::path);
        (self.open(path, &mut random), again.is_some())
    }

    /// The image that is left when the power is cut while the broker recovers from this one, or just behind that.
    fn cut_recovery(&self, random: &mut Random) -> TempDir {
        let mut disk = Disk::of_directory(self.directory.path(), self.syncs).expect("an image can be read");
        let traces = data_dir();
        let trace = traces.path().join("trace");
        let options = Options {
            shards: 2,
            data_dir: Some(self.directory.path().into()),
            trace: Some(trace.clone()),
            ..options(random)
        };
        let patience = Duration::from_micros(random.below(RECOVERY_MICROS_MAX) as u64);
        drop(Broker::try_start_within(&options, patience));
        // It may have been killed before it began.
        let trace = fs::read(trace).unwrap_or_default();
        let cut = random.below(trace.len() + 1) as Position;
        Recording::play(&trace, 0..cut, &mut disk);
        let again = data_dir();
        disk.write_image(random, again.path()).expect("there is space for an image");
        again
    }

    fn open(&self, path: &Path, random: &mut Random) -> Verdict {
        let options =
            Options { shards: random.of_list(&[1, 2, 4, 8]), data_dir: Some(path.into()), ..options(random) };
        let broker = match Broker::try_start(&options) {
            Ok(broker) => broker,
            Err(log) => return Verdict::Refused(log),
        };
        let patience = if self.syncs == Syncs::Kept { DEADLINE } else { CONTROL_PATIENCE };
        let mut world = self.recording.world.cut(self.at);
        let checked = catch_unwind(AssertUnwindSafe(|| check(&mut world, &broker, patience)));
        let mut findings = checked.unwrap_or_else(|_| Findings {
            wrong: vec!["a client has given up".to_owned()],
            ..Findings::default()
        });
        findings.wrong.extend([broker.log_lines("panicked"), broker.log_lines("ERROR")].concat());
        if !findings.wrong.is_empty() {
            findings.wrong.push(format!("the broker's log:\n{}", broker.log()));
        }
        Verdict::Opened(findings)
    }
}

/// The lengths of segments may be others than when they were written.
fn options(random: &mut Random) -> Options {
    Options { settings: pondhawk_tests::promises::small_segments(random), ..Options::default() }
}
