//! A run of the real broker under load, of which there is a trace.

use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;

use pondhawk_tests::promises::{Clock, World, small_segments};
use pondhawk_tests::trace::{Entry, Position};
use pondhawk_tests::{Broker, Options, Random, data_dir, until};

use crate::disk::Disk;
use crate::interruption;

/// Minimum number of acknowledged messages: most segments are then reused several times.
const MESSAGES_MIN: usize = 1_000;
const MESSAGES_MORE: usize = 3_000;
/// The broker is killed so often at the most, and goes on: what it had not synced is not lost then, and may be later.
const LIVES_MAX: usize = 3;

pub(crate) struct Recording {
    /// Changes of the files.
    pub(crate) trace: Vec<u8>,
    /// The ends of its entries, in order.
    pub(crate) ends: Vec<Position>,
    /// Knowledge of the clients, with its time.
    pub(crate) world: World,
    pub(crate) counts: Counts,
}

/// Numbers of operations.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Number of kills.
    pub(crate) lives: usize,
    pub(crate) writes: usize,
    pub(crate) syncs: usize,
    /// Segments that were used again under another number.
    pub(crate) recycled: usize,
    /// Messages that the broker has not taken.
    pub(crate) refused: usize,
}

impl Recording {
    /// Runs a broker from an empty directory until it is killed, and again from what it has left, a few times.
    pub(crate) fn make(random: &mut Random) -> Self {
        let (directory, traces) = (data_dir(), data_dir());
        let trace = traces.path().join("trace");
        let options = Options {
            settings: small_segments(random),
            data_dir: Some(directory.path().into()),
            trace: Some(trace.clone()),
            ..Options::default()
        };
        let start = |random: &mut Random| {
            Broker::start(&Options { shards: random.of_list(&[1, 2, 4]), ..options.clone() })
        };
        let broker = start(random);
        let clock = Clock::Trace(File::open(&trace).expect("the broker has begun its trace"));
        let mut world = World::new(Random::of(random.next(), 0), clock);
        world.gather(&broker);
        let lives = 1 + random.below(LIVES_MAX);
        let mut next = Some(broker);
        for _ in 0..lives {
            let broker = next.take().unwrap_or_else(|| start(random));
            let messages = world.acknowledged() + (MESSAGES_MIN + random.below(MESSAGES_MORE)) / lives;
            until("messages are acknowledged", || {
                world.turn(&broker);
                (world.acknowledged() >= messages).then_some(())
            });
            drop(broker);
            // Answers that the broker had still sent are promises.
            world.hang_up();
            interruption::settle(&trace, directory.path());
        }
        Self::read(&trace, world, lives)
    }

    fn read(path: &Path, world: World, lives: usize) -> Self {
        let mut trace = fs::read(path).expect("the trace can be read");
        let (mut ends, mut counts) = (Vec::new(), Counts { lives, ..Counts::default() });
        let mut at = 0;
        // The operation that was being noted at the kill had not begun.
        while let Some((entry, took)) = Entry::read(&trace[at..]) {
            at += took;
            ends.push(at as Position);
            counts.add(&entry);
        }
        trace.truncate(at);
        counts.refused = world.refusals();
        Self { trace, ends, world, counts }
    }

    /// Does what a part of a trace says.
    pub(crate) fn play(trace: &[u8], part: Range<Position>, disk: &mut Disk) {
        let [mut at, end] = [part.start, part.end].map(|at| usize::try_from(at).expect("it is in memory"));
        while at < end
            && let Some((entry, took)) = Entry::read(&trace[at..])
        {
            disk.apply(at as Position, entry);
            at += took;
        }
    }
}

impl Counts {
    fn add(&mut self, entry: &Entry) {
        match entry {
            Entry::Written { .. } => self.writes += 1,
            Entry::Synced { .. } | Entry::NamesSynced { .. } => self.syncs += 1,
            Entry::Renamed { from, .. } if from.starts_with("segment-") => self.recycled += 1,
            _ => {}
        }
    }
}
