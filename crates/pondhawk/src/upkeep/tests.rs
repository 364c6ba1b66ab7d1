//! Commands on data directories that the journal library has written.

mod hostile;

use std::borrow::Cow;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Interest, Message};
use journal::Settings;
use ledger::{Granted, Incarnation, Keeper, MessageId, Queued, Record, WillFate};
use wire::Qos;

use super::*;

const SMALL: u32 = 64 << 10;

fn settings() -> Settings {
    Settings { segment_bytes_min: SMALL, segment_bytes_max: SMALL, free_bytes_min: 0, ..Settings::default() }
}

/// A temporary directory with a journal that was written and closed. Dropping it removes the directory.
struct Stage {
    root: PathBuf,
}

impl Stage {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("pondhawk-upkeep-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let stage = Self { root };
        stage.write(&records());
        stage
    }

    fn dir(&self) -> PathBuf {
        self.root.join("data")
    }

    /// Writes records, each as a group and a frame of its own.
    fn write(&self, records: &[Record<'_>]) {
        let storage = Arc::new(Directory::open(&self.dir()).expect("a directory"));
        let opening = journal::open(storage, settings()).expect("a journal");
        let (mut journal, mut committer, _preparer, _) = opening.finish().expect("it is whole");
        for record in records {
            journal.commit(std::slice::from_ref(record)).expect("there is space");
            assert!(committer.commit_rest(), "there is something to write");
        }
    }

    /// The only segment that contains records.
    fn segment(&self) -> PathBuf {
        self.dir().join("segment-0000000000000001")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

fn records() -> Vec<Record<'static>> {
    let (session, group) = (Incarnation(1), Incarnation(2));
    let interest = Interest::new(Qos::AtLeastOnce).with_no_local(true);
    let granted = Granted { qos: Qos::AtLeastOnce, retain: false, identifiers: Default::default() };
    let queued = |queue| Queued { queue, granted: granted.clone() };
    let body = Message::of_server("pond/frog", b"croak").expect("a topic");
    vec![
        Record::Session { session, client_id: "heron\n1".into() },
        Record::Connected { session, expiry_secs: u32::MAX, will: None },
        Record::Group { group, filter: "$share/birds/pond/#".into() },
        Record::Subscribed { session, filter: "$share/birds/pond/#".into(), interest },
        Record::Subscribed { session, filter: "pond/+".into(), interest },
        Record::Enqueue {
            message: MessageId(3),
            body: Cow::Owned(Arc::new(body)),
            queues: vec![queued(session), queued(group)].into(),
            is_retained: true,
        },
        Record::Left { session, expiry_secs: u32::MAX, unix_ms: 1_000, will: WillFate::Dropped },
    ]
}

#[test]
fn a_whole_directory_is_called_whole() {
    let stage = Stage::new("whole");
    let said = check(&stage.dir()).expect("it is whole");
    assert!(said.contains("is whole: 7 records in 7 frames of 1 segment"), "{said}");
}

#[test]
fn inspect_prints_what_a_broker_would_start_with() {
    let stage = Stage::new("inspect");
    let said = inspect(&stage.dir(), false).expect("it is whole");
    for line in [
        "sessions: 1\n  \"heron\\n1\"  away, kept for ever, 1 queued (",
        "    oldest \"pond/frog\" 5 B, message 3\n",
        "    subscribed \"pond/+\" QoS 1, No Local\n",
        "groups: 1\n  \"$share/birds/pond/#\"  1 member, 1 queued (",
        "retained: 1 message, ",
        "wills: 0 pending, 0 due\n",
        "  segment-0000000000000001  64 KiB  ",
        "  segment-0000000000000002  64 KiB  spare\n",
    ] {
        assert!(said.contains(line), "{line} is missing in:\n{said}");
    }
    let json = inspect(&stage.dir(), true).expect("it is whole");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["sessions"][0]["client_id"], "heron\n1");
    assert_eq!(json["sessions"][0]["queue"]["oldest"]["message"], 3);
    assert_eq!(json["sessions"][0]["subscriptions"][1]["filter"], "pond/+");
    assert_eq!(json["groups"][0]["queue"]["messages"], 1);
    assert_eq!(json["retained"]["messages"], 1);
    assert_eq!(json["segments"][0]["frames"], 7);
}

#[test]
fn damage_is_said_with_its_place_and_the_way_out() {
    let stage = Stage::new("damage");
    let mut bytes = fs::read(stage.segment()).expect("a segment");
    // The second frame, after the segment's first page and the page of the first frame.
    bytes[2 * 4096 + 33] ^= 1;
    fs::write(stage.segment(), bytes).expect("it can be written");
    for failed in [check(&stage.dir()), inspect(&stage.dir(), false)] {
        let failure = failed.expect_err("it is damaged");
        let said = failure.to_string();
        assert!(said.contains("segment-0000000000000001: offset 8192: damaged"), "{said}");
        assert!(said.contains("repair --discard-damaged"), "{said}");
        assert_eq!(failure.exit_code(), ExitCode::from(1));
    }
}

#[test]
fn repair_gives_up_what_is_damaged_only_if_it_is_told_to() {
    let stage = Stage::new("repair");
    let mut bytes = fs::read(stage.segment()).expect("a segment");
    // The second record, after the pages of the segment, of the journal's mark, and of the first record.
    bytes[3 * 4096 + 33] ^= 1;
    fs::write(stage.segment(), &bytes).expect("it can be written");
    let failure = repair(&stage.dir(), false).expect_err("it is damaged");
    assert_eq!(failure.exit_code(), ExitCode::from(1));
    assert_eq!(fs::read(stage.segment()).expect("a segment"), bytes, "nothing was done");

    let said = repair(&stage.dir(), true).expect("it can be repaired");
    assert!(said.contains("can be read again: 6 records in 6 frames"), "{said}");
    let said = repair(&stage.dir(), true).expect("it is whole");
    assert!(said.contains("is whole, and nothing was done"), "{said}");
    let said = check(&stage.dir()).expect("it is whole");
    assert!(said.contains("1 frame given up by an earlier repair"), "{said}");
    stage.write(&[]);
    assert!(inspect(&stage.dir(), false).expect("it opened").contains("sessions: 1\n"));
}

#[test]
fn a_directory_that_is_in_use_is_not_checked_and_can_be_inspected_and_copied() {
    let stage = Stage::new("in-use");
    let _lock = Directory::open(&stage.dir()).expect("nobody has it");
    let failure = check(&stage.dir()).expect_err("it is in use");
    let said = failure.to_string();
    assert!(said.contains(&format!("the process {} uses it", std::process::id())), "{said}");
    assert_eq!(failure.exit_code(), ExitCode::from(2));
    assert!(inspect(&stage.dir(), false).is_ok());

    let copy = stage.root.join("copy");
    let said = backup::backup(&stage.dir(), &copy).expect("it can be read");
    assert!(said.contains("7 records"), "{said}");
    let of = |dir: &Path| {
        let json: serde_json::Value =
            serde_json::from_str(&inspect(dir, true).expect("whole")).expect("JSON");
        (json["sessions"].clone(), json["groups"].clone(), json["retained"].clone())
    };
    assert_eq!(of(&copy), of(&stage.dir()));
    let failure = backup::backup(&stage.dir(), &copy).expect_err("there is one already");
    assert!(failure.to_string().contains("is not empty"), "{failure}");
}

/// One thread commits and reuses segments as fast as possible, while another makes copies.
#[test]
fn a_copy_of_a_running_journal_has_what_was_durable_when_it_began() {
    let stage = Stage::new("live");
    let (durable, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| write_on(&stage.dir(), &durable, &is_over));
        let copied = (0..10).try_for_each(|round| {
            let copy = stage.root.join(format!("copy-{round}"));
            let before = durable.load(Ordering::Acquire);
            backup::backup(&stage.dir(), &copy)?;
            assert!(last_will(&copy)? >= before, "round {round}");
            Ok::<(), Failure>(())
        });
        is_over.store(true, Ordering::Release);
        copied.unwrap_or_else(|failure| panic!("{failure}"));
    });
}

fn last_will(dir: &Path) -> Result<u64, Failure> {
    let reading = Reading::begin(Arc::new(lock(dir)?), dir)?;
    let wills = reading.filter_map(|record| match record {
        Record::WillDone { will } => Some(will.0),
        _ => None,
    });
    Ok(wills.max().unwrap_or_default())
}

/// Commits records that need not be kept, and reports which are durable.
fn write_on(dir: &Path, durable: &AtomicU64, is_over: &AtomicBool) {
    let storage = Arc::new(Directory::open(dir).expect("a directory"));
    let opening = journal::open(storage, settings()).expect("a journal");
    let wake: journal::Wake = Arc::new(|| ());
    let (mut journal, _) = opening.start(&wake).expect("it is whole");
    journal.set_live_bytes(0);
    let mut number = 1;
    while !is_over.load(Ordering::Acquire) {
        while journal.next_to_copy(&mut |_, _| false).is_some() {}
        let done = Record::WillDone { will: MessageId(number) };
        // A client waits for this record, which is therefore written at once.
        let left = Record::Left {
            session: Incarnation(9),
            expiry_secs: 0,
            unix_ms: number,
            will: WillFate::Dropped,
        };
        let Ok(lsn) = journal.commit(&[done, left]) else { continue };
        while journal.progress().durable < lsn && !is_over.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        if journal.progress().durable >= lsn {
            durable.store(number, Ordering::Release);
        }
        number += 1;
    }
}

#[test]
fn a_copy_that_would_fill_the_disk_is_refused() {
    let (gib, to) = (1 << 30, Path::new("/backups/monday"));
    assert!(backup::fit(gib, gib + (256 << 20), to).is_ok());
    let failure = backup::fit(gib, gib + (256 << 20) - 1, to).expect_err("it would fill the disk");
    let text = failure.to_string();
    assert!(text.contains("/backups/monday has 1.2 GiB of free space, and the copy needs 1.2 GiB"), "{text}");
    assert_eq!(failure.exit_code(), ExitCode::from(2));
    assert!(backup::fit(u64::MAX, u64::MAX - 1, to).is_err());
}

#[test]
fn a_damaged_journal_is_not_copied() {
    let stage = Stage::new("copy-of-damage");
    let mut bytes = fs::read(stage.segment()).expect("a segment");
    bytes[2 * 4096 + 33] ^= 1;
    fs::write(stage.segment(), bytes).expect("it can be written");
    let copy = stage.root.join("copy");
    let failure = backup::backup(&stage.dir(), &copy).expect_err("it is damaged");
    assert_eq!(failure.exit_code(), ExitCode::from(1));
    assert!(!copy.join("META").exists(), "what is there is no journal");
}

#[test]
fn commands_create_nothing_if_there_is_no_journal() {
    let stage = Stage::new("none");
    let nowhere = stage.root.join("nowhere");
    for failed in
        [check(&nowhere), inspect(&nowhere, true), backup::backup(&nowhere, &stage.root.join("copy"))]
    {
        let failure = failed.expect_err("there is none");
        assert!(failure.to_string().contains("there is no journal in"), "{failure}");
        assert_eq!(failure.exit_code(), ExitCode::from(2));
    }
    assert!(!nowhere.exists());
}

#[test]
fn a_directory_with_other_files_is_not_a_journal_and_stays_as_it_is() {
    let stage = Stage::new("others");
    let (empty, others) = (stage.root.join("empty"), stage.root.join("others"));
    fs::create_dir(&empty).expect("a directory");
    fs::create_dir(&others).expect("a directory");
    fs::write(others.join("notes.txt"), "not a journal").expect("it can be written");
    for (dir, count) in [(&empty, 0), (&others, 1)] {
        let copy = stage.root.join("copy");
        for failed in [
            check(dir),
            repair(dir, false),
            repair(dir, true),
            inspect(dir, false),
            backup::backup(dir, &copy),
        ] {
            let failure = failed.expect_err("there is no journal");
            let text = failure.to_string();
            assert!(text.starts_with(&format!("there is no journal in {}\n", dir.display())), "{text}");
            assert_eq!(failure.exit_code(), ExitCode::from(2));
        }
        assert_eq!(
            dir.read_dir().expect("a directory").count(),
            count,
            "nothing was made in {}",
            dir.display()
        );
        assert!(!copy.exists());
    }
}
