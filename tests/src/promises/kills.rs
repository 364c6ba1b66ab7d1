//! A broker that is killed again and again, under load and while it starts, with another number of shards each time.

use std::time::Duration;

use super::check::{Findings, check};
use super::world::{Clock, World};
use crate::{Broker, DEADLINE, Options, Random, data_dir};

/// So many turns of the load are the most between two kills.
const TURNS_MAX: usize = 150;
/// Who has less time than this to start is killed while it does, or just behind it.
const START_MICROS_MAX: usize = 40_000;

/// What came of many kills.
#[derive(Debug)]
pub struct Killed {
    /// How many of them ended a broker that did not listen yet.
    pub at_start: usize,
    /// What the last broker has kept.
    pub findings: Findings,
}

/// How a broker is started whose segments are used again and again, because they are small; and most of whose messages wait
/// on disk alone, sometimes.
pub fn small_segments(random: &mut Random) -> String {
    let (least, most) = random.of_list(&[(64, 64), (64, 64), (64, 64), (64, 256), (128, 128), (128, 1024)]);
    let in_memory = random.of_list(&[0, 16, 65_536]);
    format!(
        "[limits]\npacket_bytes = \"16 KiB\"\nqueued_bytes_in_memory = \"{in_memory} KiB\"\n\
         [journal]\nsegment_bytes_min = \"{least} KiB\"\nsegment_bytes_max = \"{most} KiB\"\n"
    )
}

/// Kills a broker so many times, and checks the one that comes last. `tell` hears how far it is.
pub fn kill(kills: usize, seed: u64, mut tell: impl FnMut(&str)) -> Killed {
    let directory = data_dir();
    let mut random = Random::of(seed, 0);
    let settings = small_segments(&mut random);
    let options = |random: &mut Random| Options {
        shards: random.of_list(&[1, 2, 4, 8]),
        settings: settings.clone(),
        data_dir: Some(directory.path().into()),
        ..Options::default()
    };
    let mut world = World::new(Random::of(seed, 1), Clock::None);
    let mut at_start = 0;
    for killed in 0..kills {
        if killed > 0 && random.one_in(3) {
            let patience = Duration::from_micros(random.below(START_MICROS_MAX) as u64);
            let started = Broker::try_start_within(&options(&mut random), patience);
            at_start += usize::from(started.is_err());
            continue;
        }
        let broker = Broker::start(&options(&mut random));
        if killed == 0 {
            world.gather(&broker);
        }
        for _ in 0..random.below(TURNS_MAX) {
            world.turn(&broker);
        }
        drop(broker);
        // What it had still said was a promise.
        world.hang_up();
        tell(&format!("{} kills, {} messages acknowledged", killed + 1, world.acknowledged()));
    }
    let broker = Broker::start(&options(&mut random));
    Killed { at_start, findings: check(&mut world.cut(u64::MAX), &broker, DEADLINE) }
}
