//! Files that somebody has forged: they cost no more disk, memory or time than the log allows.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use journal::simulated::Simulated;
use journal::{Damage, Fault, File, OpenError, Recovery, Settings, Storage, check, discard_damaged};

use crate::scene::{Scene, settings, storage};

fn damage_of(disk: &Simulated) -> Damage {
    match check(storage(disk)) {
        Err(OpenError::Damaged(damage)) => damage,
        other => panic!("{other:?}"),
    }
}

fn repair(disk: &Simulated) -> Result<Vec<Damage>, OpenError> {
    discard_damaged(&(storage(disk) as Arc<dyn Storage>))
}

#[test]
fn a_gap_that_no_accident_leaves_is_not_closed() {
    for number in [5_000, 4_294_967_295, 4_294_967_296, 9_999_999_999_999_999_u64] {
        let disk = Scene::new(1).disk.after_kill();
        let stray = format!("segment-{number:016}");
        disk.set_contents(&stray, Vec::new());
        // A disk that is filled would make the test last.
        disk.set_capacity(disk.used_bytes() + (100 << 20));
        let (before, used) = (disk.list().expect("a directory"), disk.used_bytes());
        let damage = damage_of(&disk);
        assert_eq!(damage.file, stray, "{damage}");
        assert!(matches!(damage.fault, Fault::Gap { missing } if missing > number - 10), "{damage}");
        assert!(!damage.is_repairable());
        assert!(matches!(repair(&disk), Err(OpenError::Damaged(found)) if found == damage));
        assert_eq!(
            (disk.list().expect("a directory"), disk.used_bytes()),
            (before, used),
            "nothing was done"
        );
    }
}

#[test]
fn a_short_gap_is_closed_with_short_files() {
    let disk = Simulated::new(1);
    let long =
        Settings { segment_bytes_min: 1 << 20, segment_bytes_max: 1 << 20, free_bytes_min: 0, ..settings() };
    Recovery::begin(storage(&disk)).and_then(|it| it.finish(long)).expect("it is new");
    let disk = disk.after_kill();
    disk.set_contents("segment-0000000000000100", Vec::new());
    let used = disk.used_bytes();
    repair(&disk).expect("it can be repaired");
    assert!(disk.used_bytes() - used < 100 * (64 << 10), "{} bytes", disk.used_bytes() - used);
}

#[test]
fn a_number_that_no_journal_reaches_is_refused() {
    let disk = Scene::new(1).disk.after_kill();
    let names = disk.list().expect("a directory").into_iter().filter(|name| name.starts_with("segment-"));
    names.for_each(|name| disk.remove(&name).expect("it is there"));
    disk.set_contents("segment-0000005000000000", Vec::new());
    assert_eq!(damage_of(&disk).fault, Fault::Number);
    assert!(repair(&disk).is_err());
}

#[test]
fn names_that_are_not_those_of_segments_are_left_alone() {
    let disk = Scene::new(1).disk.after_kill();
    for name in
        ["segment-0000000000000000", "segment-10000000000000000", "segment-evil", "segment-+000000000000005"]
    {
        disk.set_contents(name, vec![1]);
    }
    check(storage(&disk)).expect("it is whole");
}

const SALT: u64 = 7;

/// A journal of one segment, whose frames say of themselves that they are as long as it.
struct Forged {
    segment_bytes: u32,
    file_bytes: u64,
    kind: u8,
    /// A frame on every page, or one only.
    has_many: bool,
    /// Maximum bytes of one read, and bytes of all reads.
    read: [AtomicU64; 2],
}

struct ForgedFile {
    of: Arc<Forged>,
    is_meta: bool,
}

fn sealed(mut front: Vec<u8>, seed: u32) -> Vec<u8> {
    let crc = crc32c::crc32c_append(seed, &front);
    front.extend_from_slice(&crc.to_le_bytes());
    front
}

fn meta() -> Vec<u8> {
    sealed([&b"PONDHAWK"[..], &[1, 0, 0, 0, 0, 0, 0, 0], &SALT.to_le_bytes()].concat(), 0)
}

impl Forged {
    /// The checksum of its payload is wrong.
    fn frame(&self, offset: u32) -> Vec<u8> {
        let seed = [&SALT.to_le_bytes()[..], &1u64.to_le_bytes(), &offset.to_le_bytes()].concat();
        let payload_bytes = self.segment_bytes - offset - 32;
        let crc = if self.kind == 3 { 0u32 } else { 0xBAD };
        let front = [
            &payload_bytes.to_le_bytes()[..],
            &[self.kind, 0, 0, 0],
            &1u64.to_le_bytes(),
            &4096u32.to_le_bytes(),
            &crc.to_le_bytes(),
            &[0; 4],
        ];
        sealed(front.concat(), crc32c::crc32c(&seed))
    }

    fn page(&self, number: u32) -> Vec<u8> {
        match number {
            0 => {
                let front = [
                    &b"PONDSEGM"[..],
                    &1u32.to_le_bytes(),
                    &self.segment_bytes.to_le_bytes(),
                    &1u64.to_le_bytes(),
                    &SALT.to_le_bytes(),
                ];
                sealed(front.concat(), 0)
            }
            1 => self.frame(4096),
            _ if self.has_many && number < self.segment_bytes / 4096 => self.frame(number * 4096),
            _ => Vec::new(),
        }
    }

    /// Opens it, and returns what was read at once at most, and all together.
    fn costs(self) -> (u64, u64) {
        let forged = Arc::new(self);
        let found = check(Arc::new(ForgedDirectory(forged.clone())));
        // Data that a repair has given up are reported, and are no damage.
        let is_said = found.as_ref().map_or(forged.kind == 1, |report| report.discarded == 1);
        assert!(is_said && (forged.kind == 3 || found.is_err()), "{found:?}");
        let [at_once, together] = &forged.read;
        (at_once.load(Ordering::Relaxed), together.load(Ordering::Relaxed))
    }
}

struct ForgedDirectory(Arc<Forged>);

impl Storage for ForgedDirectory {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(vec!["META".to_owned(), "segment-0000000000000001".to_owned()])
    }

    fn open(&self, name: &str, _: bool) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(ForgedFile { of: self.0.clone(), is_meta: name == "META" }))
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        unreachable!("it is only read")
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        unreachable!("it is only read")
    }

    fn sync(&self) -> io::Result<()> {
        unreachable!("it is only read")
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn salt(&self) -> io::Result<u64> {
        Ok(SALT)
    }
}

impl File for ForgedFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(if self.is_meta { 28 } else { self.of.file_bytes })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        if self.is_meta {
            into[..28].copy_from_slice(&meta());
            return Ok(28);
        }
        let count = into.len().min(usize::try_from(self.of.file_bytes - offset).unwrap_or(usize::MAX));
        self.of.read[0].fetch_max(count as u64, Ordering::Relaxed);
        self.of.read[1].fetch_add(count as u64, Ordering::Relaxed);
        into[..count].fill(0);
        let first = u32::try_from(offset / 4096).expect("a page");
        for (number, page) in (first..).zip(into[..count].chunks_mut(4096)) {
            let bytes = self.of.page(number);
            let upto = bytes.len().min(page.len());
            page[..upto].copy_from_slice(&bytes[..upto]);
        }
        Ok(count)
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        unreachable!("it is only read")
    }

    fn sync_data(&self) -> io::Result<()> {
        unreachable!("it is only read")
    }

    fn allocate(&self, _: u64) -> io::Result<bool> {
        unreachable!("it is only read")
    }
}

const MIB: u32 = 1 << 20;

fn forged(segment_bytes: u32, kind: u8) -> Forged {
    Forged {
        segment_bytes,
        file_bytes: u64::from(segment_bytes),
        kind,
        has_many: false,
        read: [AtomicU64::new(0), AtomicU64::new(0)],
    }
}

/// Such a file takes two pages on the disk, and a hole.
#[test]
fn a_forged_frame_is_not_taken_into_memory() {
    for kind in [1, 3] {
        let (at_once, _) = forged(64 * MIB, kind).costs();
        assert!(at_once <= u64::from(4 * MIB), "kind {kind}: {at_once} bytes at once");
    }
}

#[test]
fn a_segment_that_says_it_is_longer_than_any_is_not_read() {
    let (at_once, together) = forged(u32::MAX - 4095, 1).costs();
    assert!(at_once <= u64::from(4 * MIB) && together < u64::from(16 * MIB), "{at_once}, {together}");
}

/// Frames that overlap are not all read to their ends.
#[test]
fn forged_frames_on_every_page_do_not_cost_the_square_of_their_number() {
    let (_, together) = Forged { has_many: true, ..forged(8 * MIB, 1) }.costs();
    assert!(together < u64::from(8 * 8 * MIB), "{together} bytes for a segment of 8 MiB");
}
