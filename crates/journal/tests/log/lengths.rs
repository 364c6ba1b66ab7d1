//! An operator has changed the length of segments.

use journal::simulated::Simulated;
use journal::{Log, Pace, Parts, RecordPurpose, Recovery, Settings, Urgency};
use ledger::Refusal;

use crate::scene::storage;

fn settings(segment_kib: u32) -> Settings {
    Settings {
        segment_bytes_min: segment_kib << 10,
        segment_bytes_max: segment_kib << 10,
        free_bytes_min: 0,
        ..Settings::default()
    }
}

/// Opens a log with segments of this length, and what was in its frames.
fn open(disk: &Simulated, segment_kib: u32) -> (Parts, Vec<u8>) {
    let mut recovery = Recovery::begin(storage(disk)).expect("it is whole");
    let mut found = Vec::new();
    while let Some(frame) = recovery.next_frame().expect("it is whole") {
        found.extend_from_slice(frame);
    }
    (recovery.finish(settings(segment_kib)).expect("it is whole"), found)
}

fn append(log: &Log, group: &[u8], purpose: RecordPurpose) -> Result<(), Refusal> {
    log.append(group, purpose, Urgency::Durable).map(drop)
}

/// Does all work that can be done, with copies of all frames that are longer than a page. A frame that finds no space
/// stays in `old`.
fn settle(parts: &mut Parts, old: &mut Option<Vec<u8>>) {
    let mut idle_rounds = 0;
    while idle_rounds < 2 {
        *old = old.take().or_else(|| parts.log.next_to_copy());
        let has_copied = old
            .take_if(|old| old.len() <= 4_096 || append(&parts.log, old, RecordPurpose::Copy).is_ok())
            .is_some();
        let has_done = has_copied || parts.preparer.prepare_once(Pace::Busy) || parts.committer.commit_rest();
        idle_rounds = if has_done { 0 } else { idle_rounds + 1 };
    }
}

#[test]
fn a_group_is_only_taken_where_its_segment_holds_it() {
    let (disk, mut old) = (Simulated::new(1), None);
    let (mut parts, _) = open(&disk, 64);
    append(&parts.log, &[1], RecordPurpose::News).expect("there is space");
    settle(&mut parts, &mut old);
    let disk = disk.after_kill();
    let (mut parts, _) = open(&disk, 1_024);
    let group = vec![7; settings(1_024).group_bytes_max() as usize];
    let mut taken = 0;
    for _ in 0..6 {
        taken += usize::from(append(&parts.log, &group, RecordPurpose::News).is_ok());
        settle(&mut parts, &mut old);
    }
    assert!(taken >= 5, "{:?}", parts.log.status());
    let (_, found) = open(&disk.after_kill(), 1_024);
    assert_eq!(found.len(), 1 + taken * group.len(), "what was taken is there");
}

#[test]
fn a_group_that_is_longer_than_segments_are_now_is_copied_all_the_same() {
    let (disk, mut old) = (Simulated::new(2), None);
    let (mut parts, _) = open(&disk, 1_024);
    let group = vec![7; settings(1_024).group_bytes_max() as usize];
    append(&parts.log, &group, RecordPurpose::News).expect("there is space");
    settle(&mut parts, &mut old);
    let disk = disk.after_kill();
    let (mut parts, found) = open(&disk, 64);
    assert_eq!(found, group);
    assert_eq!(
        append(&parts.log, &group, RecordPurpose::News),
        Err(Refusal::TooLong),
        "news may not be so long"
    );
    // The length is a fault of the appending code, and not of the disk.
    assert_eq!(append(&parts.log, &group, RecordPurpose::FreesSpace), Err(Refusal::TooLong));
    assert!(!parts.log.progress().has_failed);
    parts.log.set_live_bytes(group.len() as u64);
    for _ in 0..1_100 {
        append(&parts.log, &[1; 4_000], RecordPurpose::News).expect("there is space");
        settle(&mut parts, &mut old);
    }
    let status = parts.log.status();
    assert!(status.bytes_written > 6 << 20 && status.log_bytes < 4 << 20, "{status:?}");
    let (_, found) = open(&disk.after_kill(), 64);
    assert!(found.windows(group.len()).any(|window| window == group));
}
