//! Durable records are there again, whatever is lost and whenever.

use journal::simulated::Failure;

use crate::scene::{Random, Scene, recover};

/// One life after the other on one disk, each ended by a loss of power or of the process, some of them while the last one
/// is recovered.
fn live_and_die(seed: u64, ignores_syncs: bool) -> Result<(), String> {
    let mut chance = Random(!seed);
    let mut scene = Scene::new(seed);
    if ignores_syncs {
        scene.disk.ignore_syncs();
    }
    for life in 0..4 {
        if chance.below(3) == 0 {
            scene.disk.fail_after(chance.below(60), Failure::End);
        }
        for _ in 0..chance.below(300) {
            scene.step();
        }
        let durable = scene.durable();
        let is_cut = chance.below(3) > 0;
        let mut disk = if is_cut { scene.disk.after_power_cut() } else { scene.disk.after_kill() };
        while chance.below(3) == 0 {
            disk.fail_after(chance.below(12), Failure::End);
            // It may come through; then it has done nothing that the next one minds.
            drop(recover(&disk, &scene.events));
            disk = if chance.below(2) == 0 { disk.after_power_cut() } else { disk.after_kill() };
        }
        scene.reopen(disk, durable).map_err(|error| format!("seed {seed}, life {life}: {error}"))?;
    }
    Ok(())
}

#[test]
fn durable_records_survive_every_crash_in_order_and_whole() {
    for seed in 0..2_000 {
        live_and_die(seed, false).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn without_syncs_something_is_lost() {
    let lost = (0..100).filter(|seed| live_and_die(*seed, true).is_err()).count();
    assert!(lost > 50, "a disk that does not sync must be seen to lose something: {lost} of 100");
}
