//! Little disk: limits of a few segments, segments that double, values that are replaced, restarts.

use std::collections::{BTreeMap, VecDeque};

use journal::simulated::Simulated;
use journal::{
    Log, Pace, Parts, RecordPurpose, Recovery, SEGMENTS_BEYOND_LIMIT, Settings, Storage as _, Urgency,
};
use ledger::RecordRoom;

use crate::scene::{Random, storage};

const KIB: u64 = 1 << 10;

/// Segments of 64 KiB that double up to 1 MiB, and this limit for all of them.
fn settings(disk_kib: u64) -> Settings {
    Settings {
        segment_bytes_min: 64 << 10,
        segment_bytes_max: 1 << 20,
        disk_bytes_max: disk_kib * KIB,
        free_bytes_min: 0,
        ..Settings::default()
    }
}

/// One group: a value of a key, or the end of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Group {
    key: u64,
    version: u64,
    /// 0 ends it.
    bytes: usize,
}

impl Group {
    const HEADER_BYTES: usize = 20;

    fn encode(self) -> Vec<u8> {
        let mut group = [self.key.to_le_bytes(), self.version.to_le_bytes()].concat();
        group.extend_from_slice(&u32::try_from(self.bytes).expect("short").to_le_bytes());
        group.resize(Self::HEADER_BYTES + self.bytes, 7);
        group
    }

    fn decode_all(mut frame: &[u8]) -> Vec<Self> {
        let mut groups = Vec::new();
        while !frame.is_empty() {
            let long = |at: usize| u64::from_le_bytes(frame[at..at + 8].try_into().expect("a whole group"));
            let bytes = u32::from_le_bytes(frame[16..20].try_into().expect("a whole group")) as usize;
            groups.push(Self { key: long(0), version: long(8), bytes });
            frame = &frame[Self::HEADER_BYTES + bytes..];
        }
        groups
    }
}

/// A log with values that are replaced and end, and the code that copies those that are still true.
struct World {
    disk: Simulated,
    settings: Settings,
    parts: Parts,
    live: BTreeMap<u64, Group>,
    live_bytes: u64,
    /// Handed out to be copied.
    old: VecDeque<Group>,
    /// How often more than once a value was found at the start: its oldest records need not be copied.
    again: BTreeMap<u64, u32>,
    last_version: u64,
    disk_bytes_most: u64,
}

impl World {
    fn new(disk_kib: u64) -> Self {
        Self::open(Simulated::new(7), settings(disk_kib))
    }

    fn open(disk: Simulated, settings: Settings) -> Self {
        let mut recovery = Recovery::begin(storage(&disk)).expect("it is whole");
        let (mut live, mut again, mut last_version) = (BTreeMap::new(), BTreeMap::new(), 0);
        while let Some(frame) = recovery.next_frame().expect("it is whole") {
            for group in Group::decode_all(frame) {
                last_version = group.version.max(last_version);
                let known = live.get(&group.key).map_or(0, |known: &Group| known.version);
                if group.version >= known {
                    live.insert(group.key, group);
                }
                if group.version == known {
                    *again.entry(group.version).or_default() += 1;
                }
            }
        }
        live.retain(|_, group| group.bytes > 0);
        let parts = recovery.finish(settings.clone()).expect("there is space");
        let (old, live_bytes, disk_bytes_most) = (VecDeque::new(), 0, 0);
        let mut world =
            Self { disk, settings, parts, live, live_bytes, old, again, last_version, disk_bytes_most };
        world.count();
        world
    }

    /// The process is killed, and another one begins, with as much disk as this.
    fn restart(self, disk_kib: u64) -> Self {
        let again = Self::open(self.disk.after_kill(), settings(disk_kib));
        assert_eq!(again.live, self.live, "what was written is there");
        again
    }

    fn log(&self) -> &Log {
        &self.parts.log
    }

    fn count(&mut self) {
        let bytes = |group: &Group| (Group::HEADER_BYTES + group.bytes) as u64;
        self.live_bytes = self.live.values().map(bytes).sum();
        self.tell();
    }

    fn tell(&mut self) {
        self.log().set_live_bytes(self.live_bytes);
        self.disk_bytes_most = self.disk_bytes_most.max(self.segments_bytes());
    }

    fn segments_bytes(&self) -> u64 {
        // META is the only other file.
        self.disk.used_bytes() - 28
    }

    /// As the ledger's thread does before it takes anything more. Returns how much it had to wait for.
    fn wait_for_room(&mut self) -> usize {
        (0..20_000)
            .take_while(|_| {
                self.log().room() != RecordRoom::Enough && (self.step(Pace::Busy) || self.step(Pace::Busy))
            })
            .count()
    }

    /// A new value; false if it was refused.
    fn put(&mut self, key: u64, bytes: usize) -> bool {
        self.wait_for_room();
        self.replace_at_once(key, bytes)
    }

    fn replace_at_once(&mut self, key: u64, bytes: usize) -> bool {
        let group = Group { key, version: self.last_version + 1, bytes };
        let taken = self.log().append(&group.encode(), RecordPurpose::News, Urgency::Durable).is_ok();
        if taken {
            self.last_version += 1;
            self.forget(key);
            self.live.insert(key, group);
            self.live_bytes += (Group::HEADER_BYTES + bytes) as u64;
        }
        self.tell();
        taken
    }

    /// Ends a value, after waiting for room.
    fn end(&mut self, key: u64) {
        self.wait_for_room();
        self.end_quietly(key);
    }

    /// The same in the middle of a turn that has begun when there was room, and nobody writes it yet.
    fn end_quietly(&mut self, key: u64) {
        let group = Group { key, version: self.last_version + 1, bytes: 0 };
        let ended = self.log().append(&group.encode(), RecordPurpose::FreesSpace, Urgency::Durable);
        ended.unwrap_or_else(|refusal| panic!("{refusal:?}: {:?}", self.log().status()));
        self.last_version += 1;
        self.forget(key);
        self.tell();
    }

    fn forget(&mut self, key: u64) {
        let bytes = |group: Group| (Group::HEADER_BYTES + group.bytes) as u64;
        self.live_bytes -= self.live.remove(&key).map_or(0, bytes);
    }

    /// Something that is to be done, if there is anything.
    fn step(&mut self, pace: Pace) -> bool {
        let has_done =
            self.copy() || self.parts.preparer.prepare_once(pace) || self.parts.committer.commit_rest();
        self.disk_bytes_most = self.disk_bytes_most.max(self.segments_bytes());
        has_done
    }

    /// Makes all groups durable.
    fn sync(&mut self) {
        while self.log().progress().durable.0 < self.log().status().groups {
            assert!(self.step(Pace::Busy) || self.step(Pace::Busy), "{:?}", self.log().status());
        }
    }

    fn settle(&mut self, pace: Pace) {
        let mut idle_rounds = 0;
        for _ in 0..50_000 {
            idle_rounds = if self.step(pace) { 0 } else { idle_rounds + 1 };
            if idle_rounds > 2 {
                return;
            }
        }
        panic!("it never ends: {:?}", self.log().status());
    }

    /// Copies what is still true of the oldest records, as the ledger does: what finds no space stays.
    fn copy(&mut self) -> bool {
        if self.old.is_empty() {
            let Some(frame) = self.log().next_to_copy() else { return false };
            self.old.extend(Group::decode_all(&frame));
        }
        while let Some(group) = self.old.front().copied() {
            let again = self.again.get_mut(&group.version).filter(|again| **again > 0);
            if let Some(again) = again {
                *again -= 1;
            } else if self.live.get(&group.key) == Some(&group)
                && self.log().append(&group.encode(), RecordPurpose::Copy, Urgency::Later).is_err()
            {
                return false;
            }
            self.old.pop_front();
        }
        true
    }

    /// A new value that may have to wait until everything is done that can be done.
    fn put_patiently(&mut self, key: u64, bytes: usize) {
        if !self.put(key, bytes) {
            self.settle(Pace::Busy);
            assert!(self.put(key, bytes), "{} live of {:?}", self.live_bytes, self.log().status());
        }
    }

    fn check(&self) {
        self.check_within(self.settings.disk_bytes_max);
    }

    fn check_within(&self, limit: u64) {
        let status = self.log().status();
        assert_eq!((&status.failure, &status.damage), (&None, &None));
        assert!(self.disk_bytes_most <= limit, "{} of {limit}: {status:?}", self.disk_bytes_most);
    }
}

/// Groups that are acknowledged at once never fill the log, however long its segments have become.
#[test]
fn a_log_with_next_to_nothing_live_refuses_nothing() {
    for disk_kib in [256, 320, 512, 1_024, 4_096, 8_192] {
        for steps in [1, 3, 10_000] {
            let mut world = World::new(disk_kib);
            let mut refused = 0;
            for key in 0..8 * disk_kib / 4 {
                if !world.put(key, 4_000) {
                    refused += 1;
                    world.put_patiently(key, 4_000);
                }
                if key >= 3 {
                    world.end(key - 3);
                }
                for _ in 0..steps {
                    if !world.step(Pace::Busy) {
                        break;
                    }
                }
            }
            world.check();
            assert!(
                steps == 1 || refused == 0,
                "{refused} of a limit of {disk_kib} KiB, {steps} steps a value"
            );
            world.settle(Pace::Idle);
            assert!(
                world.log().status().log_bytes <= 4 * 64 * KIB + disk_kib * KIB / 8,
                "{:?}",
                world.log().status()
            );
        }
    }
}

/// One large value, again and again.
#[test]
fn a_value_that_is_replaced_does_not_fill_the_log() {
    for disk_kib in [256, 512, 2_048, 8_192] {
        let mut world = World::new(disk_kib);
        for _ in 0..8 * disk_kib / 16 {
            world.put_patiently(1, 16_000);
            world.step(Pace::Busy);
            world.step(Pace::Busy);
        }
        world.check();
        world.settle(Pace::Idle);
        assert!(world.put(2, 16_000), "{:?}", world.log().status());
    }
}

/// Half of the limit is live, all over the log.
#[test]
fn nothing_is_refused_for_good_while_half_of_the_limit_is_live() {
    for disk_kib in [256, 512, 2_048] {
        // Of a limit of four segments two are reserved, and these records are long beside a segment.
        let live_most = disk_kib * KIB / BTreeMap::from([(256, 4), (512, 3), (2_048, 2)])[&disk_kib];
        for (seed, bytes_most) in [(1, 600), (2, 3_000), (3, 12_000)] {
            let mut world = World::new(disk_kib);
            let mut random = Random(seed);
            let mut written = 0;
            let mut keys = 0;
            while written < 3 * disk_kib * KIB {
                let bytes = 1 + usize::try_from(random.below(bytes_most)).expect("small");
                let grows = world.live_bytes + (bytes + Group::HEADER_BYTES) as u64 <= live_most;
                let key = if grows { keys } else { random.below(keys) };
                if !grows && random.below(3) == 0 && world.live.contains_key(&key) {
                    world.end(key);
                    continue;
                }
                if !grows && world.live.get(&key).is_none_or(|old| old.bytes < bytes) {
                    continue;
                }
                keys += u64::from(grows);
                world.put_patiently(key, bytes);
                written += bytes as u64;
                for _ in 0..random.below(4) {
                    world.step(Pace::Busy);
                }
            }
            world.check();
            let live = std::mem::take(&mut world.live);
            world.count();
            world.settle(Pace::Idle);
            assert!(
                world.log().status().log_bytes <= 3 * disk_kib * KIB / 8,
                "it shrinks: {:?}",
                world.log().status()
            );
            drop(live);
        }
    }
}

/// More is live than there should be. Each end of a value takes a page, and there is no end of pages.
#[test]
fn a_full_log_can_be_emptied_one_small_value_at_a_time() {
    for disk_kib in [256, 1_024] {
        let mut world = World::new(disk_kib);
        let mut key = 0;
        loop {
            if !world.put(key, 200) {
                world.settle(Pace::Busy);
                if !world.put(key, 200) {
                    break;
                }
            }
            key += 1;
            if key % 16 == 0 {
                world.step(Pace::Busy);
            }
        }
        assert!(world.live_bytes * 5 >= disk_kib * KIB * 2, "{} of {disk_kib} KiB", world.live_bytes);
        for ended in 0..key {
            world.end(ended);
            world.settle(Pace::Busy);
        }
        world.check();
        world.settle(Pace::Idle);
        assert!(world.log().status().log_bytes <= 3 * disk_kib * KIB / 4, "{:?}", world.log().status());
    }
}

/// Whether there is time to clean between them or not.
#[test]
fn restarts_do_not_exceed_the_limit() {
    for steps in [0, 2, 10_000] {
        for disk_kib in [256, 512, 1_024] {
            let mut world = World::new(disk_kib);
            let mut key = 0;
            for _ in 0..40 {
                for _ in 0..40 {
                    if world.put(key, 1_000) {
                        key += 1;
                    }
                    if key > 60 {
                        world.end(key - 60);
                    }
                    for _ in 0..steps {
                        if !world.step(Pace::Busy) {
                            break;
                        }
                    }
                }
                world.sync();
                // Copies that a restart has interrupted are made again: one segment more may be needed for them.
                world.check_within(disk_kib * KIB + 64 * KIB);
                world = world.restart(disk_kib);
            }
            world.settle(Pace::Busy);
            world.put_patiently(key, 1_000);
        }
    }
}

/// An operator gives the log less disk than it takes.
#[test]
fn with_a_lower_limit_the_log_shrinks_and_never_grows() {
    for (kept, lower_kib) in [(0, 256), (20, 256), (60, 512), (120, 1_024)] {
        let mut world = World::new(24_576);
        for key in 0..3_000 {
            world.put_patiently(key, 4_000);
            if key % 20 == 0 {
                world.step(Pace::Busy);
            }
        }
        // Those that are kept are spread over all of it.
        world.live.retain(|key, _| kept > 0 && key % (3_000 / kept) == 0);
        for key in 0..3_000 {
            if kept == 0 || key % (3_000 / kept) != 0 {
                world.end(key);
            }
        }
        world.sync();
        let before = world.segments_bytes();
        assert!(before > 2 * lower_kib * KIB);
        world = world.restart(lower_kib);
        assert!(world.segments_bytes() <= before);
        world.settle(Pace::Busy);
        assert!(world.disk_bytes_most <= before, "{} after {before}", world.disk_bytes_most);
        world.put_patiently(5_000, 4_000);
        world.settle(Pace::Busy);
        assert!(world.segments_bytes() <= lower_kib * KIB, "{kept} kept: {:?}", world.log().status());
        world.restart(lower_kib);
    }
}

/// A record that frees space waits for a place that the next copy gives it; but nothing more of the oldest segment is
/// copied, and that comes back only when everything before it is durable. Meanwhile there is a spare, which is kept for
/// copies.
#[test]
fn records_that_free_space_get_a_place_even_if_no_copy_follows() {
    for lower_kib in [512, 768, 1_024] {
        let long = Settings { segment_bytes_max: 256 << 10, ..settings(8_192) };
        let mut world = World::open(Simulated::new(7), long);
        (0..700).for_each(|key| world.put_patiently(key, 4_000));
        // Live records are in the last segments, and the first segments are long.
        (0..670).for_each(|key| world.end(key));
        world.settle(Pace::Busy);
        world = world.restart(lower_kib);
        assert_eq!(world.log().room(), RecordRoom::None, "there is less than copies may take");
        world.end_at_once(670);
        world.settle(Pace::Busy);
        let status = world.log().status();
        assert_eq!(world.log().progress().durable.0, status.groups, "{status:?}");
        world.settle(Pace::Idle);
        assert!(world.segments_bytes() <= lower_kib * KIB, "{:?}", world.log().status());
        world.put_patiently(700, 4_000);
    }
}

/// The same in the middle of a long segment: the next piece is copied only when the last one, and all that was appended before,
/// is durable.
#[test]
fn records_that_free_space_get_a_place_between_two_pieces_of_a_segment() {
    let mut world = World::new(65_536);
    (0..7_000).for_each(|key| world.put_patiently(key, 4_000));
    (0..7_000).filter(|key| *key < 3_000 || key % 10 > 2).for_each(|key| world.end(key));
    world.settle(Pace::Busy);
    world = world.restart(8_192);
    assert_eq!(world.log().room(), RecordRoom::None, "there is less than copies may take");
    while world.log().status().copied_bytes < 256 * KIB {
        assert!(world.step(Pace::Busy) || world.step(Pace::Busy), "{:?}", world.log().status());
    }
    assert_eq!(world.log().room(), RecordRoom::None, "there is less than copies may take");
    while world.parts.committer.commit_rest() {}
    world.end_at_once(6_990);
    world.settle(Pace::Busy);
    let status = world.log().status();
    assert_eq!(world.log().progress().durable.0, status.groups, "{status:?}");
    world.settle(Pace::Idle);
    world.put_patiently(7_000, 4_000);
    world.check_within(u64::MAX);
}

/// A log of which one value in `kept` of `bytes` is live, and the last `ended` are, with a limit of `disk_kib`.
fn sparse(disk_kib: u64, bytes: usize, kept: u64, last: u64) -> World {
    let long = Settings { segment_bytes_min: 128 << 10, segment_bytes_max: 512 << 10, ..settings(disk_kib) };
    let mut world = World::open(Simulated::new(7), long);
    let keys = world.fill(bytes);
    (0..keys - last).filter(|key| key % kept != 0).for_each(|key| world.end(key));
    world.sync();
    world
}

/// Less space is left than all of the oldest segment may need, but probably enough for its live records. A record that frees
/// space gets its place, and the copies behind it go on, whether the limit was lowered or the disk is full.
#[test]
fn copies_go_on_behind_what_frees_space() {
    for is_full in [false, true] {
        for (disk_kib, bytes, kept, last) in
            [(1_024, 600, 3, 0), (1_536, 4_000, 8, 5), (2_048, 9_000, 20, 80), (1_280, 9_000, 3, 80)]
        {
            let world = sparse(disk_kib, bytes, kept, last);
            // As much as segments of the last resort may have taken.
            let lower_kib = world.segments_bytes() / KIB - SEGMENTS_BEYOND_LIMIT * 64;
            let disk = world.disk.after_kill();
            if is_full {
                disk.set_capacity(disk.used_bytes());
            }
            let mut world = World::open(disk, settings(lower_kib));
            assert_eq!(world.log().room(), RecordRoom::None, "there is less than copies may take");
            world.end_at_once(0);
            world.settle(Pace::Busy);
            let status = world.log().status();
            assert_eq!(status.failure, None);
            assert_eq!(world.log().progress().durable.0, status.groups, "{status:?}");
            assert_ne!(world.log().room(), RecordRoom::None, "{status:?}");
        }
    }
}

/// An operator has lowered the limit by no more than segments of the last resort of another process take. This process may
/// make as many of its own.
#[test]
fn a_lower_limit_leaves_a_process_its_last_resort() {
    // The last one needs three segments of 128 KiB, where new ones have 64 KiB.
    for seed in (1..=40).chain([3_627]) {
        let mut random = Random(seed);
        let disk_kib = [512, 768, 1_024, 1_280][usize::try_from(random.below(4)).expect("small")];
        let bytes_most = 1 + random.below(24_000);
        let long = Settings { segment_bytes_min: 128 << 10, ..settings(disk_kib) };
        let mut world = World::open(Simulated::new(7), long);
        let mut keys = 0;
        for _ in 0..200 {
            let bytes = usize::try_from(1 + random.below(bytes_most)).expect("small");
            keys += u64::from(world.put(keys, bytes));
            if random.below(3) == 0 {
                let key = random.below(keys);
                if world.live.contains_key(&key) {
                    world.end(key);
                }
            }
        }
        world.sync();
        let mut world = world.restart(disk_kib - SEGMENTS_BEYOND_LIMIT * 64);
        let live: Vec<u64> = world.live.keys().copied().collect();
        for key in live {
            world.wait_for_room();
            world.end_quietly(key);
            if random.below(2) == 0 {
                world.parts.committer.commit_once();
            }
        }
        world.settle(Pace::Busy);
        let status = world.log().status();
        assert_eq!(status.failure, None, "seed {seed}");
        assert_eq!(world.log().progress().durable.0, status.groups, "seed {seed}: {status:?}");
    }
}

/// A long value would have to be copied, and finds no room on a full disk. Whoever ends values does not wait for that, and
/// everything goes on when the long value has ended.
#[test]
fn a_copy_without_room_on_a_full_disk_stops_nothing_else() {
    let mut world = World::new(512);
    world.put_patiently(0, 44_000);
    // Nothing is copied meanwhile.
    while world.replace_at_once(1, 2_000) {
        while world.parts.preparer.prepare_once(Pace::Busy) || world.parts.committer.commit_once() {}
    }
    let disk = world.disk.after_kill();
    let spares = usize::try_from(world.log().status().spares).expect("few");
    remove_last_segments(&disk, spares);
    disk.set_capacity(disk.used_bytes());
    let mut world = World::open(disk, settings(512));
    assert_eq!((world.log().status().spares, world.live_bytes), (0, 46_040));
    world.settle(Pace::Busy);
    assert_ne!(world.log().room(), RecordRoom::None, "{:?}", world.log().status());
    world.end_at_once(1);
    world.end_at_once(0);
    world.settle(Pace::Busy);
    world.put_patiently(2, 44_000);
    world.check();
}

/// Space that an older version may have used up.
fn remove_last_segments(disk: &Simulated, count: usize) {
    let mut names = storage(disk).list().expect("it is in memory");
    names.retain(|name| name.starts_with("segment"));
    names.sort_unstable();
    for name in names.split_off(names.len() - count) {
        storage(disk).remove(&name).expect("it is there");
    }
}

impl World {
    /// Ends a value, and writes that as a frame of its own. Nobody waits while there is only little room, as a reader's
    /// acknowledgement after some seconds.
    fn end_in_haste(&mut self, key: u64) {
        for _ in 0..20_000 {
            if self.log().room() != RecordRoom::None || !(self.step(Pace::Busy) || self.step(Pace::Busy)) {
                break;
            }
        }
        self.end_at_once(key);
    }

    /// The same in the middle of a turn that has begun when there was room.
    fn end_at_once(&mut self, key: u64) {
        self.end_quietly(key);
        self.parts.committer.commit_once();
    }

    /// As many values as are taken.
    fn fill(&mut self, bytes: usize) -> u64 {
        (0..)
            .find(|key| {
                let is_taken = self.put(*key, bytes) || {
                    self.settle(Pace::Busy);
                    self.put(*key, bytes)
                };
                self.step(Pace::Busy);
                !is_taken
            })
            .expect("it is full in the end")
    }
}

/// Each acknowledgement takes a page, and many of them come in a turn that has begun when there was room for some. Those that
/// have no place beside what copies need wait for the copies.
#[test]
fn acknowledgements_do_not_take_the_space_that_copies_need() {
    for disk_kib in [256, 320, 512, 1_024] {
        for bytes in [600, 3_000, 12_000] {
            let mut world = World::new(disk_kib);
            let keys = world.fill(bytes);
            for key in 0..keys {
                if key % 16 == 0 {
                    world.end_in_haste(key);
                } else {
                    world.end_at_once(key);
                }
            }
            world.check_within(disk_kib * KIB + 128 * KIB);
            world.settle(Pace::Idle);
            assert!(world.segments_bytes() <= disk_kib * KIB, "{:?}", world.log().status());
            world.put_patiently(keys, bytes);
        }
    }
}

/// An older version has left a log without a spare, in which nothing can be copied. It is not over the limit for long.
#[test]
fn a_log_without_any_space_left_goes_on_after_a_restart() {
    for bytes in [40, 600, 3_000, 12_000] {
        let mut world = World::new(512);
        let keys = world.fill(bytes);
        world.sync();
        let spares = world.log().status().spares;
        let disk = world.disk.after_kill();
        remove_last_segments(&disk, usize::try_from(spares).expect("few"));
        let left_kib = (disk.used_bytes() - 28) / KIB;
        let mut world = World::open(disk, settings(left_kib));
        assert_eq!(world.log().status().spares, 0, "there is no space for one");
        for key in 0..keys {
            world.end_in_haste(key);
        }
        world.check_within(left_kib * KIB + 128 * KIB);
        assert!(world.log().status().beyond_limit > 0, "{:?}", world.log().status());
        world.settle(Pace::Idle);
        assert!(world.segments_bytes() <= left_kib * KIB, "{:?}", world.log().status());
        world.put_patiently(keys, bytes);
    }
}

/// Values of which two fill a segment: much of each segment is lost, and what is live does not fit into the limit. A segment
/// of the last resort is for what is there already. If news took its space, each round through the log would need another.
#[test]
fn news_do_not_take_what_the_last_resort_has_made() {
    for seed in 1..=12 {
        let mut world = World::new(14 * 64);
        let mut random = Random(seed);
        let (mut keys, mut was_beyond) = (0, false);
        for _ in 0..3_000 {
            let key = random.below(keys + 1);
            let bytes = [12_000, 12_000, 24_000, 36_000][usize::try_from(random.below(4)).expect("small")];
            let is_beyond = world.segments_bytes() > world.settings.disk_bytes_max;
            was_beyond |= is_beyond;
            if world.put(key, bytes) {
                let is_left = world.segments_bytes() > world.settings.disk_bytes_max;
                assert!(!(is_beyond && is_left), "{:?}", world.log().status());
                keys = keys.max(key + 1);
            } else if random.below(8) == 0 {
                world.end(key);
            }
            for _ in 0..random.below(12) {
                world.step(Pace::Busy);
            }
        }
        world.check_within((14 + SEGMENTS_BEYOND_LIMIT) * 64 * KIB);
        assert!(was_beyond, "seed {seed}: nothing was tried");
    }
}

/// With more live than the limit promises, messages are refused for good, however often they are tried; but not when some of
/// it has ended, nor when the limit is higher.
#[test]
fn messages_are_refused_for_as_long_as_too_much_is_live() {
    for (disk_kib, bytes) in [(4 * 64, 36_000), (14 * 64, 2_000), (40 * 64, 2_000)] {
        let full = || {
            let mut world = World::new(disk_kib);
            let keys = world.fill(bytes);
            for _ in 0..100 {
                world.settle(Pace::Idle);
                assert!(!world.put(keys, bytes), "{:?}", world.log().status());
            }
            world.check();
            let percent = 100 * world.live_bytes / (disk_kib * KIB);
            assert!((25..=63).contains(&percent), "{percent} of a hundred are live");
            (world, keys)
        };
        let (mut world, keys) = full();
        (0..keys.div_ceil(2)).for_each(|key| world.end(key));
        world.settle(Pace::Busy);
        world.put_patiently(keys, bytes);
        let (mut world, keys) = full();
        world.sync();
        world.restart(4 * disk_kib).put_patiently(keys, bytes);
    }
}
