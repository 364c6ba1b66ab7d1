//! Something on the disk is not as it was written.

use std::sync::Arc;

use journal::simulated::Simulated;
use journal::{Damage, Fault, OpenError, Recovery, Storage, Urgency};

use crate::scene::{Event, Random, Scene, read, settings, storage};

/// A log over some segments, all of it durable.
struct Written {
    disk: Simulated,
    events: Vec<Event>,
    /// Number of the events without those in the last frame.
    before_last: usize,
    /// The files with records, and what else there is.
    segments: Vec<String>,
    spares: Vec<String>,
}

fn written(seed: u64) -> Written {
    let mut scene = Scene::new(seed);
    let mut before_last = 0;
    for round in 0..200 {
        before_last = scene.events.len();
        for _ in 0..1 + round % 3 {
            assert!(scene.put(700, Urgency::Durable));
        }
        while scene.parts.committer.commit_once() || scene.parts.preparer.prepare_once(journal::Pace::Busy) {}
    }
    assert_eq!(scene.durable(), scene.events.len());
    let names = scene.disk.list().expect("it is in memory");
    let mut segments: Vec<_> = names.into_iter().filter(|name| name.starts_with("segment")).collect();
    let spares = segments.split_off(scene.log().status().segments.try_into().expect("few"));
    Written { disk: scene.disk.after_kill(), events: scene.events, before_last, segments, spares }
}

impl Written {
    /// Reads what is on the disk after `change`.
    fn after(&self, change: impl FnOnce(&Simulated)) -> Result<usize, OpenError> {
        let disk = self.disk.copy();
        change(&disk);
        let mut recovery = Recovery::begin(storage(&disk))?;
        while recovery.next_frame()?.is_some() {}
        let mut recovery = Recovery::begin(storage(&disk))?;
        Ok(read(&mut recovery, &self.events).expect("it is not damaged, so it is what was written"))
    }

    fn damage_after(&self, change: impl FnOnce(&Simulated)) -> Damage {
        match self.after(change) {
            Err(OpenError::Damaged(damage)) => damage,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_flipped_bit_is_found_with_its_place_or_cuts_the_last_frame() {
    let written = written(1);
    let mut random = Random(1);
    let (mut found, mut cut) = (0, 0);
    let mut recovery = Recovery::begin(storage(&written.disk)).expect("it is whole");
    while recovery.next_frame().expect("it is whole").is_some() {}
    let (_, last_frame) = recovery.place();
    for round in 0..1_500 {
        let files = written.segments.len();
        let file = if round % 3 == 0 {
            files - 1
        } else {
            usize::try_from(random.below(files as u64)).expect("few")
        };
        let name = &written.segments[file];
        let bytes = written.disk.contents(name).expect("it is there").len();
        // Some are in the frame that was written last.
        let bit = match round % 30 {
            0 => last_frame * 8 + random.below(4096 * 8),
            _ => random.below(bytes as u64 * 8),
        };
        let bit = usize::try_from(bit).expect("small");
        match written.after(|disk| disk.flip_bit(name, bit)) {
            Ok(count) if count == written.events.len() => {}
            Ok(count) => {
                assert!(file + 1 == files && count == written.before_last, "{name}, bit {bit}: {count}");
                cut += 1;
            }
            Err(OpenError::Damaged(damage)) => {
                assert_eq!(&damage.file, name, "bit {bit}: {damage}");
                assert!(damage.offset <= bit as u64 / 8, "bit {bit}: {damage}");
                found += 1;
            }
            Err(error) => panic!("{name}, bit {bit}: {error}"),
        }
    }
    assert!(found > 300 && cut > 3, "{found} were found, {cut} cut something off");
}

#[test]
fn any_flipped_bit_of_meta_is_found() {
    let written = written(2);
    let bits = written.disk.contents("META").expect("it is there").len() * 8;
    for bit in 0..bits {
        assert_eq!(written.damage_after(|disk| disk.flip_bit("META", bit)).file, "META", "bit {bit}");
    }
}

#[test]
fn a_missing_segment_is_missed() {
    let written = written(3);
    for name in &written.segments {
        let damage = written.damage_after(|disk| disk.remove(name).expect("it is there"));
        assert_eq!((&damage.file, damage.fault), (name, Fault::Missing));
    }
    let damage = written.damage_after(|disk| disk.remove("META").expect("it is there"));
    assert_eq!((&*damage.file, damage.fault), ("META", Fault::Meta));
}

#[test]
fn files_of_another_journal_are_refused() {
    let (written, other) = (written(4), written(5));
    for name in written.segments.iter().chain(&written.spares) {
        let theirs = other.disk.contents(name).or_else(|| other.disk.contents(&other.segments[0]));
        let theirs = theirs.expect("it is there");
        let damage = written.damage_after(|disk| disk.set_contents(name, theirs));
        assert_eq!((&damage.file, damage.fault), (name, Fault::Foreign));
    }
}

#[test]
fn frames_of_another_journal_or_place_are_none() {
    let (written, other) = (written(6), written(7));
    let name = &written.segments[1];
    let ours = written.disk.contents(name).expect("it is there");
    let theirs = other.disk.contents(name).expect("it is there");
    let elsewhere = written.disk.contents(&written.segments[2]).expect("it is there");
    for from in [&theirs, &elsewhere] {
        let mut mixed = ours.clone();
        mixed[4096..].copy_from_slice(&from[4096..ours.len()]);
        let damage = written.damage_after(|disk| disk.set_contents(name, mixed));
        assert_eq!((&damage.file, damage.offset, damage.fault), (name, 4096, Fault::Frame));
    }
}

#[test]
fn a_segment_that_was_cut_short_is_refused() {
    let written = written(8);
    for name in &written.segments {
        let mut bytes = written.disk.contents(name).expect("it is there");
        bytes.truncate(bytes.len() / 2);
        let damage = written.damage_after(|disk| disk.set_contents(name, bytes));
        assert_eq!((&damage.file, damage.fault), (name, Fault::Short));
    }
}

#[test]
fn a_directory_of_a_newer_version_is_refused() {
    let written = written(9);
    let mut meta = written.disk.contents("META").expect("it is there");
    meta[8..12].copy_from_slice(&7u32.to_le_bytes());
    let crc = crc32c::crc32c(&meta[..24]);
    meta[24..28].copy_from_slice(&crc.to_le_bytes());
    let opened = written.after(|disk| disk.set_contents("META", meta));
    assert!(matches!(opened, Err(OpenError::Newer { version: 7 })), "{opened:?}");
}

#[test]
fn a_torn_tail_is_cut_off_and_said() {
    let written = written(10);
    let disk = written.disk.copy();
    let last = written.segments.last().expect("there is one");
    let mut recovery = Recovery::begin(storage(&disk)).expect("it is whole");
    while recovery.next_frame().expect("it is whole").is_some() {}
    let (file, end) = recovery.report().end.clone().expect("it has records");
    assert_eq!((&file, recovery.report().is_torn), (last, false));
    let (_, at) = recovery.place();
    // The first page of the last frame is there, another is not.
    let mut bytes = disk.contents(last).expect("it is there");
    bytes[usize::try_from(at + 512).expect("small")..usize::try_from(end).expect("small")].fill(0);
    disk.set_contents(last, bytes);
    let mut recovery = Recovery::begin(storage(&disk)).expect("it is whole");
    assert_eq!(read(&mut recovery, &written.events), Ok(written.before_last));
    assert!(recovery.report().is_torn);
    assert_eq!(recovery.report().end, Some((file, at)));
    assert!(recovery.finish(settings()).is_ok());
}

#[test]
fn reading_changes_nothing_and_recovering_again_finds_the_same() {
    let written = written(11);
    let disk = written.disk.copy();
    let before = disk.operations();
    let mut recovery = Recovery::begin(storage(&disk)).expect("it is whole");
    while recovery.next_frame().expect("it is whole").is_some() {}
    assert_eq!(disk.operations(), before);
    for _ in 0..5 {
        let mut recovery = Recovery::begin(Arc::new(disk.clone())).expect("it is whole");
        assert_eq!(read(&mut recovery, &written.events), Ok(written.events.len()));
        drop(recovery.finish(settings()).expect("it is whole"));
    }
    assert_eq!(
        disk.list().expect("it is in memory").len(),
        written.disk.copy().list().expect("so is this").len()
    );
}
