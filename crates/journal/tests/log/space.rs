//! Segments are used again.

use journal::{Pace, Recovery, Storage as _, Urgency};

use crate::scene::{Event, Scene, read, settings, storage};

#[test]
fn disk_use_stays_bounded_while_the_log_turns_over() {
    let mut scene = Scene::new(1);
    let mut used_bytes_max = 0;
    for round in 0..4_000 {
        assert!(scene.put(600, Urgency::Durable), "round {round}: {:?}", scene.log().status());
        if round >= 50 {
            scene.drop_one(Urgency::Later);
        }
        scene.parts.committer.commit_once();
        while scene.parts.preparer.prepare_once(Pace::Busy) || scene.copy_some() {}
        used_bytes_max = used_bytes_max.max(scene.disk.used_bytes());
    }
    let status = scene.log().status();
    assert!(status.bytes_written > 12 << 20, "{status:?}");
    assert!(status.recycled > 100, "{status:?}");
    assert!(used_bytes_max <= 10 * (64 << 10), "{used_bytes_max} bytes for 50 messages");
    let durable = scene.durable();
    let disk = scene.disk.after_power_cut();
    scene.reopen(disk, durable).unwrap_or_else(|error| panic!("{error}"));
}

/// The disk is slow: the next segment is not there when one is wanted. A record that frees space cannot be refused, and
/// waits.
#[test]
fn records_that_free_space_wait_for_a_slow_disk() {
    let mut scene = Scene::new(3);
    while scene.put(600, Urgency::Durable) {}
    assert!(scene.log().status().spares < 2, "nobody prepares any");
    let mut dropped = 0;
    while scene.log().status().spares > 0 || dropped < 40 {
        // The last spare is taken, and is filled to its end.
        assert!(scene.append(Event::Drop(dropped), 1_000, Urgency::Durable), "{:?}", scene.log().status());
        dropped += 1;
    }
    for which in dropped..dropped + 200 {
        assert!(scene.append(Event::Drop(which), 1_000, Urgency::Durable), "{:?}", scene.log().status());
    }
    while scene.parts.committer.commit_once() {}
    let before = scene.durable();
    assert!(before < scene.events.len(), "some have no place yet");
    assert!(!scene.put(600, Urgency::Durable), "and nothing else overtakes them");
    while scene.parts.preparer.prepare_once(Pace::Busy) || scene.parts.committer.commit_once() {}
    assert_eq!(scene.durable(), scene.events.len(), "{:?}", scene.log().status());
    assert!(scene.put(600, Urgency::Durable));
    let (disk, durable) = (scene.disk.after_power_cut(), scene.durable());
    scene.reopen(disk, durable).unwrap_or_else(|error| panic!("{error}"));
}

/// A group that frees space does not wait for ever for a full disk: nobody would be told.
#[test]
fn records_that_free_space_do_not_wait_for_a_full_disk() {
    let mut scene = Scene::new(3);
    while scene.put(600, Urgency::Durable) {}
    scene.disk.set_capacity(scene.disk.used_bytes());
    let mut dropped = 0;
    while scene.append(Event::Drop(dropped), 1_000, Urgency::Durable) {
        dropped += 1;
        if dropped % 50 == 0 {
            scene.parts.preparer.prepare_once(Pace::Busy);
        }
        assert!(dropped < 1_000, "{:?}", scene.log().status());
    }
    assert!(scene.log().status().failure.is_some());
}

#[test]
fn unneeded_segments_are_freed_when_the_log_is_idle() {
    let mut scene = Scene::new(2);
    for _ in 0..500 {
        assert!(scene.put(600, Urgency::Durable));
        while scene.parts.committer.commit_once() || scene.parts.preparer.prepare_once(Pace::Busy) {}
    }
    let full = scene.disk.used_bytes();
    while scene.drop_one(Urgency::Later) {}
    scene.settle(Pace::Idle);
    let status = scene.log().status();
    assert!(full > 2 << 20 && status.segments + status.spares <= 3, "{full}, {status:?}");
    assert!(!scene.parts.preparer.prepare_once(Pace::Idle), "and then there is nothing more to do");
}

/// A burst leaves a long log of which nothing is needed. Others go on committing a little, so the disk is never idle.
#[test]
fn a_log_of_a_burst_gets_shorter_while_little_is_committed() {
    let mut scene = Scene::new(2);
    for _ in 0..500 {
        assert!(scene.put(600, Urgency::Durable));
        while scene.parts.committer.commit_once() || scene.parts.preparer.prepare_once(Pace::Busy) {}
    }
    while scene.drop_one(Urgency::Later) {}
    scene.settle(Pace::Busy);
    let long = scene.log().status().segments;
    for _ in 0..20 {
        assert!(scene.put(10, Urgency::Durable) && scene.drop_one(Urgency::Later));
        scene.settle(Pace::Busy);
    }
    let busy = scene.log().status().segments;
    for _ in 0..20 {
        assert!(scene.put(10, Urgency::Durable) && scene.drop_one(Urgency::Later));
        scene.settle(Pace::Slow);
    }
    let slow = scene.log().status().segments;
    assert!(long >= 6 && busy >= long && slow <= 3, "{long}, {busy}, {slow}");
}

#[test]
fn nothing_is_refused_while_there_is_space_however_slowly_segments_are_filled() {
    let mut scene = Scene::new(3);
    for round in 0..200 {
        assert!(scene.put(4_000, Urgency::Durable), "round {round}: {:?}", scene.log().status());
        if round % 12 == 0 {
            scene.parts.preparer.prepare_once(Pace::Busy);
        }
        while scene.parts.committer.commit_once() {}
    }
}

/// A segment that goes without being copied again is not read either: who reads a record and later a copy of it counts
/// on both being handed back.
#[test]
fn recovery_skips_released_segments_that_still_have_their_old_name() {
    let mut scene = Scene::new(8);
    for _ in 0..200 {
        assert!(scene.put(4_000, Urgency::Durable));
        while scene.parts.committer.commit_once() || scene.parts.preparer.prepare_once(Pace::Busy) {}
    }
    while scene.drop_one(Urgency::Later) && scene.log().status().groups < 390 {}
    let mut found_released = 0;
    let mut idle_rounds = 0;
    while idle_rounds < 2 {
        let has_done = scene.parts.committer.commit_rest()
            || scene.parts.preparer.prepare_once(Pace::Idle)
            || scene.copy_some();
        idle_rounds = if has_done { 0 } else { idle_rounds + 1 };
        let disk = scene.disk.copy();
        let names = disk.list().expect("it is in memory");
        let first = names.into_iter().filter(|name| name.starts_with("segment")).min();
        let mut recovery = Recovery::begin(storage(&disk)).expect("it is whole");
        assert!(recovery.next_frame().expect("it is whole").is_some());
        found_released += usize::from(first != Some(recovery.place().0));
        let parts = recovery.finish(settings()).expect("it is whole");
        // It goes on in another one.
        assert_eq!(parts.log.status().segments, parts.report.segments + 1);
    }
    assert!(found_released > 0, "it was never between the frame that says so and the new name");
}

/// The copies of one segment are more than one frame takes. Were the segment given up while some of them are pending, the
/// first of these frames would say so.
#[test]
fn an_old_segment_is_given_up_when_all_of_its_copies_are_durable() {
    let mut scene = Scene::new(9);
    for _ in 0..100 {
        assert!(scene.put(4_000, Urgency::Durable));
        while scene.parts.committer.commit_once() || scene.parts.preparer.prepare_once(Pace::Busy) {}
    }
    for which in (0..100).filter(|which| which % 2 == 0) {
        assert!(scene.append(Event::Drop(which), 0, Urgency::Durable));
    }
    while scene.parts.committer.commit_once() {}
    let mut idle_rounds = 0;
    while idle_rounds < 2 {
        // The disk is slower than everybody else: it writes a frame when they have nothing to do.
        let has_done = scene.parts.preparer.prepare_once(Pace::Idle)
            || scene.copy_some()
            || scene.parts.committer.commit_once()
            || scene.parts.committer.commit_rest();
        idle_rounds = if has_done { 0 } else { idle_rounds + 1 };
        let mut recovery = Recovery::begin(storage(&scene.disk.copy())).expect("it is whole");
        read(&mut recovery, &scene.events).unwrap_or_else(|error| panic!("{error}"));
    }
    let segments = scene.log().status().segments;
    assert!(segments < 6, "many were given up: {segments} are left");
}

/// Groups that wait in memory are counted until they are written, however long the disk takes.
#[test]
fn groups_that_wait_to_be_written_are_counted_until_they_are_written() {
    let mut scene = Scene::new(5);
    let pending = |scene: &Scene| scene.log().status().pending_bytes;
    for urgency in [Urgency::Durable, Urgency::Written, Urgency::Later] {
        assert_eq!(pending(&scene), 0);
        let before = scene.log().status().bytes_written;
        let puts = (0..5).take_while(|_| scene.put(4_000, urgency)).count();
        assert!(puts > 0);
        assert!(pending(&scene) >= 4_000 * puts as u64, "{}", pending(&scene));
        scene.settle(Pace::Busy);
        assert!(scene.log().status().bytes_written > before);
    }
    assert_eq!(pending(&scene), 0);
    assert!(scene.put(4_000, Urgency::Durable));
    scene.disk.fail_after(0, journal::simulated::Failure::Io);
    scene.parts.committer.commit_once();
    assert!(scene.log().progress().has_failed);
    assert_eq!(pending(&scene), 0, "it is not in memory any more");
}
