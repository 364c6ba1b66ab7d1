//! A journal of records, on a real directory and on a simulated one.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex};

use base::{Message, Now};
use journal::simulated::Simulated;
use journal::{Directory, DirectoryError, Fault, Journal, OpenError, Opening, Settings, Storage, Wake};
use ledger::{Addressed, Granted, Incarnation, Keeper, Lsn, MessageId, Queued, Record, Recovered, Source};
use wire::{PacketId, Publish, Qos};

fn settings() -> Settings {
    Settings {
        segment_bytes_min: 1 << 20,
        segment_bytes_max: 1 << 20,
        free_bytes_min: 0,
        ..Settings::default()
    }
}

fn commit(journal: &mut Journal, message: u64) -> Lsn {
    let topic = topic::topic!("a/b");
    let publish = Publish::new(topic, b"payload");
    let body = Message::new(topic, &publish, None, Now { monotonic_ms: 0, unix_ms: 0 });
    let granted = Granted { qos: Qos::AtLeastOnce, retain: false, identifiers: Default::default() };
    let queued = Queued { queue: Incarnation(7), granted };
    let enqueue = Record::Enqueue {
        message: MessageId(message),
        body: Cow::Owned(Arc::new(body)),
        queues: Cow::Owned(vec![queued]),
        is_retained: false,
    };
    let opened = Record::Opened { session: Incarnation(1), packet_id: PacketId::MAX };
    journal.commit(&[enqueue, opened]).expect("there is space")
}

/// The numbers of the messages that are there.
fn messages(records: impl Iterator<Item = impl Into<Addressed<'static>>>) -> Vec<u64> {
    let number = |record| if let Record::Enqueue { message, .. } = record { Some(message.0) } else { None };
    records.filter_map(|found| number(found.into().record)).collect()
}

/// A directory that is gone afterwards.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pondhawk-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    fn open(&self) -> Arc<dyn Storage> {
        Arc::new(Directory::open(&self.0).expect("nobody has it open"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Waits for what the threads of a journal say.
struct Alarm(Arc<(Mutex<bool>, Condvar)>);

impl Alarm {
    fn new() -> (Self, Wake) {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let of = shared.clone();
        let wake = move || {
            *of.0.lock().expect("nothing panics") = true;
            of.1.notify_one();
        };
        (Self(shared), Arc::new(wake))
    }

    fn wait_for(&self, journal: &Journal, lsn: Lsn) {
        while journal.progress().durable < lsn {
            let woken = self.0.0.lock().expect("nothing panics");
            *self.0.1.wait_while(woken, |woken| !*woken).expect("nothing panics") = false;
        }
    }
}

#[test]
fn durable_records_are_found_when_the_directory_is_opened_again() {
    let scratch = Scratch::new("again");
    let (alarm, wake) = Alarm::new();
    let mut last = 0;
    for life in 0..3 {
        let mut opening = journal::open(scratch.open(), settings()).expect("it is whole");
        assert_eq!(messages(opening.records()), (0..last).collect::<Vec<_>>(), "life {life}");
        let (mut journal, _) = opening.start(&wake).expect("it is whole");
        for _ in 0..40 {
            journal.begin_turn();
            let lsn = (0..50).map(|more| commit(&mut journal, last + more)).last().expect("some");
            journal.end_turn();
            alarm.wait_for(&journal, lsn);
            last += 50;
        }
        // Nobody waits for this one.
        journal
            .commit(&[Record::Finished { session: Incarnation(1), packet_id: PacketId::MAX }])
            .expect("space");
    }
    let mut opening = journal::open(scratch.open(), settings()).expect("it is whole");
    let finished = opening.records().filter(|found| matches!(found.record, Record::Finished { .. })).count();
    assert_eq!(finished, 3, "what was committed is written before the journal is gone");
}

/// Records that a second thread has read are the same, and end the same way.
#[test]
fn a_journal_is_read_ahead() {
    let disk = Simulated::new(3);
    let all = written(&disk);
    let ahead = |disk: &Simulated| {
        let opening = journal::open(Arc::new(disk.clone()), settings()).and_then(Opening::ahead);
        opening.expect("its files are there")
    };
    let mut opening = ahead(&disk);
    assert_eq!(messages(opening.records()), all);
    assert_eq!(opening.finish().expect("it is whole").3.frames, 1_000);

    let without_bodies = |opening: &mut Opening| -> Vec<u64> {
        let found = std::iter::from_fn(|| opening.next_record(false));
        let number = |found| if let Recovered::Away(away, _) = found { Some(away.message.0) } else { None };
        found.filter_map(number).collect()
    };
    let mut opening = ahead(&disk);
    assert_eq!(without_bodies(&mut opening), all);
    assert!(opening.finish().is_ok());

    let mut opening = ahead(&disk);
    assert_eq!(opening.records().take(10).count(), 10);
    assert!(opening.finish().is_ok(), "the rest is read all the same");

    disk.flip_bit("segment-0000000000000002", (8192 + 100) * 8);
    drop(ahead(&disk).next_record(true));
    let here = journal::check(Arc::new(disk.clone())).expect_err("it is damaged");
    let mut opening = ahead(&disk);
    let found = messages(opening.records());
    assert!(!found.is_empty() && all.starts_with(&found));
    assert_eq!(opening.finish().expect_err("it is damaged").to_string(), here.to_string());
    let mut opening = ahead(&disk);
    assert_eq!(without_bodies(&mut opening), found);
    assert_eq!(opening.finish().expect_err("it is damaged").to_string(), here.to_string());
}

#[test]
fn a_second_process_is_told_who_has_the_directory() {
    let scratch = Scratch::new("lock");
    let first = scratch.open();
    match Directory::open(&scratch.0) {
        Err(DirectoryError::InUse { pid }) => assert_eq!(pid, Some(std::process::id())),
        other => panic!("{other:?}"),
    }
    drop(first);
    assert!(Directory::open(&scratch.0).is_ok());
}

#[test]
fn segments_are_used_again_while_threads_write_them() {
    let scratch = Scratch::new("recycled");
    let (alarm, wake) = Alarm::new();
    let (mut journal, _) =
        journal::open(scratch.open(), settings()).expect("it is new").start(&wake).expect("new");
    journal.set_live_bytes(0);
    let mut message = 0;
    while journal.status().recycled < 5 {
        let lsn = (0..500).map(|more| commit(&mut journal, message + more)).last().expect("some");
        message += 500;
        alarm.wait_for(&journal, lsn);
        while journal.next_to_copy(&mut |_, _| false).is_some() {}
    }
    let status = journal.status();
    assert!(status.log_bytes <= 16 << 20 && status.damage.is_none(), "{status:?}");
}

/// A change that damages a disk.
type Damage = Box<dyn Fn(&Simulated)>;

/// A journal with messages in several segments and frames of five.
fn written(disk: &Simulated) -> Vec<u64> {
    let opening = journal::open(Arc::new(disk.clone()), settings()).expect("it is new");
    let (mut journal, mut committer, mut preparer, _) = opening.finish().expect("it is new");
    for message in 0..5_000 {
        commit(&mut journal, message);
        if message % 5 == 4 {
            while committer.commit_once() || preparer.prepare_once(journal::Pace::Busy) {}
        }
    }
    (0..5_000).collect()
}

#[test]
fn damaged_parts_of_a_journal_can_be_discarded() {
    let disk = Simulated::new(1);
    let all = written(&disk);
    let names: Vec<_> = disk
        .list()
        .expect("it is in memory")
        .into_iter()
        .filter(|name| name.starts_with("segment"))
        .collect();
    let flip = |name: &'static str, byte: usize| move |disk: &Simulated| disk.flip_bit(name, byte * 8);
    let (first, second) = ("segment-0000000000000001", "segment-0000000000000002");
    let damages: Vec<(Damage, usize)> = vec![
        (Box::new(flip(first, 8192 + 100)), 5),
        (Box::new(flip(second, 3)), 0),
        (Box::new(flip("META", 20)), 0),
        (Box::new(|disk: &Simulated| disk.remove("segment-0000000000000002").expect("it is there")), 2_000),
        (Box::new(|disk: &Simulated| disk.remove("segment-0000000000000001").expect("it is there")), 2_000),
    ];
    assert!(names.len() > 4);
    for (number, (damage, lost_max)) in damages.iter().enumerate() {
        let disk = disk.copy();
        damage(&disk);
        let storage: Arc<dyn Storage> = Arc::new(disk);
        assert!(matches!(journal::check(storage.clone()), Err(OpenError::Damaged(_))), "{number}");
        let discarded = journal::discard_damaged(&storage).expect("it can be repaired");
        assert_eq!(discarded.len(), 1, "{number}: {discarded:?}");
        assert!(journal::check(storage.clone()).is_ok());
        let mut opening = journal::open(storage, settings()).expect("it is repaired");
        let left = messages(opening.records());
        assert!(left.len() + lost_max >= all.len() && left.len() <= all.len(), "{number}: {}", left.len());
        assert!(left.is_sorted());
        assert!(opening.finish().is_ok());
    }
    assert_eq!(journal::discard_damaged(&(Arc::new(disk) as Arc<dyn Storage>)).expect("it is whole"), []);
}

#[test]
fn an_invalid_record_is_reported_as_damage_with_its_place() {
    let disk = Simulated::new(2);
    let parts = journal::Recovery::begin(Arc::new(disk.clone())).and_then(|it| it.finish(settings()));
    let mut parts = parts.expect("it is new");
    parts
        .log
        .append(&[0x7F], journal::RecordPurpose::News, journal::Urgency::Durable)
        .expect("there is space");
    assert!(parts.committer.commit_once());
    match journal::check(Arc::new(disk.after_kill())) {
        Err(OpenError::Damaged(damage)) => {
            // Behind the page of the segment and the mark of the journal.
            assert_eq!((&*damage.file, damage.offset), ("segment-0000000000000001", 8192));
            assert!(matches!(damage.fault, Fault::Record(_)));
        }
        other => panic!("{other:?}"),
    }
}
