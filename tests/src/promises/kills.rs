//! Kills a broker repeatedly, under load and during its start, and restarts it with another number of shards.

use std::time::Duration;

use super::check::{Findings, check};
use super::world::{Clock, World};
use crate::{Broker, DEADLINE, Options, Random, data_dir};

/// Maximum number of turns of the load between two kills.
const TURNS_MAX: usize = 150;
/// Maximum time for a start in microseconds, before the broker is killed. A kill can hit the start or the time
/// after it.
const START_MICROS_MAX: usize = 40_000;

/// Result of a series of kills.
#[derive(Debug)]
pub struct Killed {
    /// Number of kills that ended a broker before it listened.
    pub at_start: usize,
    /// Findings about the data that the last broker has kept.
    pub findings: Findings,
}

/// Returns settings with small segments, which the broker reuses often.
///
/// The memory for queues varies, so that sometimes most messages wait on disk only.
pub fn small_segments(random: &mut Random) -> String {
    let (least, most) = random.of_list(&[(64, 64), (64, 64), (64, 64), (64, 256), (128, 128), (128, 1024)]);
    let in_memory = random.of_list(&[0, 16, 65_536]);
    format!(
        "[limits]\npacket_bytes = \"16 KiB\"\nqueued_bytes_in_memory = \"{in_memory} KiB\"\n\
         [journal]\nsegment_bytes_min = \"{least} KiB\"\nsegment_bytes_max = \"{most} KiB\"\n"
    )
}

/// Kills a broker `kills` times, and checks the last one. `tell` receives the progress.
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
        // Packets that the broker had sent before the kill count as promises.
        world.hang_up();
        tell(&format!("{} kills, {} messages acknowledged", killed + 1, world.acknowledged()));
    }
    let broker = Broker::start(&options(&mut random));
    Killed { at_start, findings: check(&mut world.cut(u64::MAX), &broker, DEADLINE) }
}
