//! Something fails: once, anywhere.

use journal::simulated::{Failure, Simulated};
use journal::{Pace, RecordPurpose, Recovery, Urgency};
use ledger::Refusal;

use crate::scene::{Event, Scene, settings, storage};

/// Plays the same steps in all runs, before, during and after the failure.
fn play(scene: &mut Scene) {
    for round in 0..120 {
        for _ in 0..3 {
            scene.put(4_000, Urgency::Durable);
        }
        if round > 4 {
            for _ in 0..3 {
                scene.drop_one(Urgency::Later);
            }
        }
        scene.parts.committer.commit_once();
        while scene.parts.preparer.prepare_once(Pace::Busy) || scene.copy_some() {}
    }
    scene.settle(Pace::Busy);
}

fn operations_of_a_play() -> u64 {
    let mut scene = Scene::new(3);
    let before = scene.disk.operations();
    play(&mut scene);
    assert!(!scene.log().progress().has_failed);
    assert!(scene.log().status().recycled > 0, "{:?}", scene.log().status());
    scene.disk.operations() - before
}

#[test]
fn any_failure_of_the_disk_loses_nothing_that_was_durable() {
    for at in 0..operations_of_a_play() {
        for failure in [if at % 2 == 0 { Failure::Io } else { Failure::Full }] {
            let mut scene = Scene::new(3);
            scene.disk.fail_after(at, failure);
            play(&mut scene);
            let (durable, has_failed) = (scene.durable(), scene.log().progress().has_failed);
            assert!(has_failed || durable == scene.events.len(), "{failure:?} at {at}");
            // With the power still on first, so that the operating system can tell its lie.
            for disk in [scene.disk.copy().after_kill(), scene.disk.after_power_cut()] {
                let opened = scene.reopen(disk, durable);
                opened.unwrap_or_else(|error| panic!("{failure:?} at {at}: {error}"));
                // Far enough for every segment that was found to be written to.
                for _ in 0..40 {
                    assert!(scene.put(4_000, Urgency::Durable) && scene.drop_one(Urgency::Later));
                    scene.settle(Pace::Busy);
                }
                let (durable, disk) = (scene.durable(), scene.disk.after_power_cut());
                let opened = scene.reopen(disk, durable);
                opened.unwrap_or_else(|error| panic!("{failure:?} at {at}, and a loss of power: {error}"));
                assert_eq!(scene.durable(), scene.events.len());
            }
        }
    }
}

#[test]
fn after_a_failed_sync_nothing_is_taken_or_promised() {
    let mut scene = Scene::new(1);
    assert!(scene.put(100, Urgency::Durable) && scene.parts.committer.commit_once());
    let before = scene.log().progress();
    assert!(scene.put(100, Urgency::Durable));
    // The write comes through, the sync does not.
    scene.disk.fail_after(1, Failure::Io);
    assert!(!scene.parts.committer.commit_once());
    let after = scene.log().progress();
    assert!(after.has_failed && after.durable == before.durable && after.written > before.written);
    assert!(scene.log().status().failure.is_some());
    let refused = scene.log().append(&[1], RecordPurpose::FreesSpace, Urgency::Durable);
    assert_eq!(refused, Err(Refusal::Poisoned));
    assert!(!scene.parts.committer.commit_rest() && !scene.parts.preparer.prepare_once(Pace::Busy));
}

#[test]
fn opening_can_fail_anywhere_and_be_tried_again() {
    for failure in [Failure::Io, Failure::Full, Failure::End] {
        for at in 0..40 {
            let disk = Simulated::new(at);
            disk.fail_after(at, failure);
            let open = |disk: &Simulated| {
                Recovery::begin(storage(disk)).and_then(|recovery| recovery.finish(settings()))
            };
            let first = open(&disk).map(drop);
            for disk in [disk.copy().after_kill(), disk.copy().after_power_cut()] {
                let again = open(&disk);
                let Ok(mut parts) = again else {
                    panic!("{failure:?} at {at}: first {first:?}, then {:?}", again.err());
                };
                assert!(parts.log.append(&[7], RecordPurpose::News, Urgency::Durable).is_ok());
                assert!(parts.committer.commit_once());
                let disk = disk.after_power_cut();
                let opened = Recovery::begin(storage(&disk));
                let frame = opened.and_then(|mut it| it.next_frame().map(|frame| frame.map(<[u8]>::to_vec)));
                assert!(matches!(&frame, Ok(Some(frame)) if *frame == [7]), "{failure:?} at {at}: {frame:?}");
            }
        }
    }
}

#[test]
fn a_full_disk_refuses_news_until_there_is_space_again() {
    let mut scene = Scene::new(4);
    scene.disk.set_capacity(12 * (64 << 10));
    let mut count = 0;
    while scene.put(900, Urgency::Durable) {
        scene.settle(Pace::Busy);
        count += 1;
        assert!(count < 2_000, "the disk is never full");
    }
    let status = scene.log().status();
    assert!(status.no_space.is_some() && status.failure.is_none(), "{status:?}");
    // Records that free space are accepted all the time, until some space is free.
    for _ in 0..count / 20 {
        for _ in 0..20 {
            scene.drop_one(Urgency::Later);
            assert_eq!(scene.log().status().failure, None);
        }
        scene.settle(Pace::Busy);
    }
    scene.settle(Pace::Busy);
    assert!(scene.put(900, Urgency::Durable), "{:?}", scene.log().status());
    assert_eq!(scene.log().status().no_space, None);
    let durable = scene.durable();
    let disk = scene.disk.after_power_cut();
    scene.reopen(disk, durable).unwrap_or_else(|error| panic!("{error}"));
}

/// Without clients that come back, nothing that fills the disk would ever go. They leave some of the last space for the
/// records that free space then.
#[test]
fn returning_clients_are_accepted_when_the_disk_is_full() {
    let mut scene = Scene::new(4);
    scene.disk.set_capacity(12 * (64 << 10));
    while scene.put(900, Urgency::Durable) {
        scene.settle(Pace::Busy);
    }
    let mut returned = 0;
    while scene.append(Event::Return(0), 0, Urgency::Durable) {
        scene.parts.committer.commit_once();
        returned += 1;
        assert!(returned < 100, "they take the last of the space");
    }
    assert!(returned > 5, "only {returned} could come back");
    assert!(scene.drop_one(Urgency::Durable) && scene.log().status().failure.is_none());
}

#[test]
fn a_larger_disk_ends_the_refusals_by_itself() {
    let mut scene = Scene::new(5);
    scene.disk.set_capacity(6 * (64 << 10));
    while scene.put(900, Urgency::Durable) {
        scene.settle(Pace::Busy);
    }
    scene.disk.set_capacity(64 << 20);
    scene.settle(Pace::Busy);
    assert!(scene.put(900, Urgency::Durable));
}

#[test]
fn a_log_on_a_full_disk_can_be_opened_again_and_again() {
    let mut scene = Scene::new(6);
    scene.disk.set_capacity(12 * (64 << 10));
    while scene.put(900, Urgency::Durable) {
        scene.settle(Pace::Busy);
    }
    for _ in 0..3 {
        let durable = scene.durable();
        let disk = scene.disk.after_kill();
        scene.reopen(disk, durable).unwrap_or_else(|error| panic!("{error}"));
        assert!(scene.drop_one(Urgency::Durable));
        scene.settle(Pace::Busy);
    }
}

#[test]
fn records_that_nobody_waits_for_do_not_cause_a_write() {
    let mut scene = Scene::new(7);
    assert!(scene.put(10, Urgency::Later));
    assert!(!scene.parts.committer.commit_once());
    assert!(scene.put(10, Urgency::Written));
    assert!(scene.parts.committer.commit_once() && scene.parts.committer.has_rest());
    assert_eq!((scene.log().progress().written.0, scene.log().progress().durable.0), (2, 0));
    assert!(scene.parts.committer.commit_rest() && !scene.parts.committer.has_rest());
    assert_eq!(scene.log().progress().durable.0, 2);
}
