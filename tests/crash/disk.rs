//! A disk that does what a trace says, and what may be on it when its power is cut.
//!
//! The model, as bad as a disk may be that keeps its word about syncs:
//! - What was written to a file before a sync of it began is there when that sync has returned.
//! - Of what was written since then any 512-byte sectors are there, in any combination; a file may have grown or not.
//! - Names that were made, changed or removed since the last sync of the directory are as before or as after, each by
//!   itself; a rename is never half done. A sync of a file does not keep its name.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::path::Path;

use pondhawk_tests::Random;
use pondhawk_tests::trace::{Bytes, Entry, Position};

/// Number of bytes that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// Whether the disk keeps its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syncs {
    Kept,
    /// Ignores all syncs, as if the broker had none. A change is on the disk after this number of later changes, as
    /// operating systems write back in the background.
    LeftOut {
        written_back_after: usize,
    },
}

pub(crate) struct Disk {
    syncs: Syncs,
    files: Vec<Contents>,
    /// By the number in the trace.
    opened: BTreeMap<u64, usize>,
    /// As processes see them.
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    changed_names: VecDeque<Pending<NameChange>>,
    /// Number of entries so far.
    entries: usize,
}

/// A file, whatever its name.
#[derive(Default)]
struct Contents {
    durable: Vec<u8>,
    changes: VecDeque<Pending<Change>>,
}

/// Something that may be on the disk or not.
struct Pending<T> {
    /// Position in the trace.
    at: Position,
    /// Number of entries before it.
    entry: usize,
    change: T,
}

enum Change {
    Write { offset: usize, bytes: Bytes },
    Grow(usize),
}

enum NameChange {
    Made(String, usize),
    Renamed { from: String, to: String, file: usize },
    Removed(String),
}

/// Which of what is not synced is there.
#[derive(Debug, Clone, Copy)]
enum Survivors {
    Nothing,
    Everything,
    /// The first change.
    First,
    /// Some of the writes.
    Writes,
    /// Of each write some sectors.
    Sectors,
}

impl Disk {
    /// An empty directory at first.
    pub(crate) fn new(syncs: Syncs) -> Self {
        Self {
            syncs,
            files: Vec::new(),
            opened: BTreeMap::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            changed_names: VecDeque::new(),
            entries: 0,
        }
    }

    /// A directory as it is, all of it on the disk.
    pub(crate) fn of_directory(path: &Path, syncs: Syncs) -> io::Result<Self> {
        let mut disk = Self::new(syncs);
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let durable = fs::read(entry.path())?;
            let name = entry.file_name().to_string_lossy().into_owned();
            disk.names.insert(name, disk.files.len());
            disk.files.push(Contents { durable, changes: VecDeque::new() });
        }
        disk.durable_names = disk.names.clone();
        Ok(disk)
    }

    /// Does what the trace says next.
    pub(crate) fn apply(&mut self, at: Position, entry: Entry) {
        match entry {
            Entry::Opened { file, name } => self.open(at, file, name),
            Entry::Written { file, offset, bytes } => {
                let offset = usize::try_from(offset).expect("files are small");
                self.change(at, file, Change::Write { offset, bytes });
            }
            Entry::Allocated { file, bytes } => {
                let bytes = usize::try_from(bytes).expect("files are small");
                self.change(at, file, Change::Grow(bytes));
            }
            Entry::Synced { file, before } if self.syncs == Syncs::Kept => {
                let file = self.opened[&file];
                self.files[file].write_back(|pending| pending.at < before);
            }
            Entry::NamesSynced { before } if self.syncs == Syncs::Kept => {
                self.write_back_names(|pending| pending.at < before);
            }
            Entry::Synced { .. } | Entry::NamesSynced { .. } => {}
            Entry::Renamed { from, to } => {
                let file = self.names.remove(&from).expect("what is renamed is there");
                self.names.insert(to.clone(), file);
                self.change_name(at, NameChange::Renamed { from, to, file });
            }
            Entry::Removed { name } => {
                self.names.remove(&name);
                self.change_name(at, NameChange::Removed(name));
            }
        }
        self.entries += 1;
        if let Syncs::LeftOut { written_back_after } = self.syncs {
            let upto = self.entries.saturating_sub(written_back_after);
            for file in &mut self.files {
                file.write_back(|pending| pending.entry < upto);
            }
            self.write_back_names(|pending| pending.entry < upto);
        }
    }

    /// Writes what may be on the disk now into an empty directory.
    pub(crate) fn write_image(&self, random: &mut Random, path: &Path) -> io::Result<()> {
        use Survivors::{Everything, First, Nothing, Sectors, Writes};
        let survivors = match self.syncs {
            Syncs::Kept => random.of_list(&[Nothing, Everything, First, Writes, Sectors, Sectors]),
            // In their order, mostly: what is out of order is seen to be damaged, and the broker does not start.
            Syncs::LeftOut { .. } => random.of_list(&[Nothing, Nothing, First, First, Sectors]),
        };
        let mut names = self.durable_names.clone();
        for pending in survive(&self.changed_names, survivors, random) {
            pending.change.apply(&mut names);
        }
        for (name, file) in names {
            fs::write(path.join(name), self.files[file].survive(survivors, random))?;
        }
        Ok(())
    }

    /// All files as processes see them.
    pub(crate) fn seen(&self) -> BTreeMap<String, Vec<u8>> {
        self.names.iter().map(|(name, file)| (name.clone(), self.files[*file].seen())).collect()
    }

    fn open(&mut self, at: Position, number: u64, name: String) {
        let file = if let Some(file) = self.names.get(&name) {
            *file
        } else {
            let file = self.files.len();
            self.files.push(Contents::default());
            self.names.insert(name.clone(), file);
            self.change_name(at, NameChange::Made(name, file));
            file
        };
        self.opened.insert(number, file);
    }

    fn change(&mut self, at: Position, file: u64, change: Change) {
        let file = self.opened[&file];
        self.files[file].changes.push_back(Pending { at, entry: self.entries, change });
    }

    fn change_name(&mut self, at: Position, change: NameChange) {
        self.changed_names.push_back(Pending { at, entry: self.entries, change });
    }

    fn write_back_names(&mut self, is_on_disk: impl Fn(&Pending<NameChange>) -> bool) {
        while let Some(pending) = self.changed_names.pop_front_if(|first| is_on_disk(first)) {
            pending.change.apply(&mut self.durable_names);
        }
    }
}

impl NameChange {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Made(name, file) => {
                names.insert(name.clone(), *file);
            }
            Self::Renamed { from, to, file } => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
            Self::Removed(name) => {
                names.remove(name);
            }
        }
    }
}

impl Contents {
    fn write_back(&mut self, is_on_disk: impl Fn(&Pending<Change>) -> bool) {
        while let Some(pending) = self.changes.pop_front_if(|first| is_on_disk(first)) {
            pending.change.apply(&mut self.durable, |_| true);
        }
    }

    fn seen(&self) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        self.changes.iter().for_each(|pending| pending.change.apply(&mut bytes, |_| true));
        bytes
    }

    fn survive(&self, survivors: Survivors, random: &mut Random) -> Vec<u8> {
        let mut bytes = self.durable.clone();
        let changes: Vec<&Pending<Change>> = survive(&self.changes, survivors, random).collect();
        let torn = matches!(survivors, Survivors::First).then(|| changes.len().saturating_sub(1));
        for (index, pending) in changes.into_iter().enumerate() {
            let is_torn = matches!(survivors, Survivors::Sectors) || torn == Some(index);
            pending.change.apply(&mut bytes, |_| !is_torn || random.one_in(2));
        }
        bytes
    }
}

impl Change {
    /// Of what was written those sectors that are there.
    fn apply(&self, contents: &mut Vec<u8>, mut is_there: impl FnMut(usize) -> bool) {
        match self {
            Self::Grow(length) => contents.resize((*length).max(contents.len()), 0),
            Self::Write { offset, bytes } => {
                let end = offset + bytes.len();
                let mut at = *offset;
                while at < end {
                    let upto = end.min((at / SECTOR_BYTES + 1) * SECTOR_BYTES);
                    if is_there(at / SECTOR_BYTES) {
                        contents.resize(upto.max(contents.len()), 0);
                        match bytes {
                            Bytes::Zeros(_) => contents[at..upto].fill(0),
                            Bytes::Given(given) => {
                                contents[at..upto].copy_from_slice(&given[at - offset..upto - offset]);
                            }
                        }
                    }
                    at = upto;
                }
            }
        }
    }
}

/// Those of them that are on the disk.
fn survive<'a, T>(
    pending: &'a VecDeque<Pending<T>>,
    survivors: Survivors,
    random: &mut Random,
) -> impl Iterator<Item = &'a Pending<T>> {
    let upto = match survivors {
        Survivors::Nothing => 0,
        Survivors::First => random.below(pending.len() + 1),
        Survivors::Everything | Survivors::Writes | Survivors::Sectors => pending.len(),
    };
    let each_by_itself = matches!(survivors, Survivors::Writes | Survivors::Sectors);
    let mut random = Random::of(random.next(), 0);
    pending.iter().take(upto).filter(move |_| !each_by_itself || random.one_in(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files that are left by many power cuts.
    fn left(disk: &Disk) -> Vec<BTreeMap<String, Vec<u8>>> {
        let mut random = Random::of(1, 0);
        let image = |_| {
            let directory = tempfile::tempdir().unwrap();
            disk.write_image(&mut random, directory.path()).unwrap();
            Disk::of_directory(directory.path(), Syncs::Kept).unwrap().seen()
        };
        (0..100).map(image).collect()
    }

    fn write(disk: &mut Disk, at: Position, offset: u64, bytes: &[u8]) {
        disk.apply(at, Entry::Written { file: 0, offset, bytes: Bytes::of(bytes) });
    }

    /// A file with a name on the disk, and 1,024 bytes that were synced.
    fn synced(syncs: Syncs) -> Disk {
        let mut disk = Disk::new(syncs);
        disk.apply(0, Entry::Opened { file: 0, name: "a".into() });
        disk.apply(1, Entry::NamesSynced { before: 1 });
        write(&mut disk, 2, 0, &[1; 1_024]);
        disk.apply(3, Entry::Synced { file: 0, before: 3 });
        disk
    }

    #[test]
    fn synced_data_is_there_whenever_the_power_is_cut() {
        let disk = synced(Syncs::Kept);
        assert!(left(&disk).iter().all(|files| files["a"] == [1; 1_024]));
    }

    #[test]
    fn of_what_was_not_synced_any_sectors_are_there() {
        let mut disk = synced(Syncs::Kept);
        write(&mut disk, 4, 0, &[2; 1_024]);
        let images: Vec<[u8; 2]> = left(&disk).iter().map(|files| [files["a"][0], files["a"][512]]).collect();
        for sectors in [[1, 1], [1, 2], [2, 1], [2, 2]] {
            assert!(images.contains(&sectors), "{sectors:?}");
        }
        assert_eq!(disk.seen()["a"], [2; 1_024]);
    }

    #[test]
    fn a_sync_covers_what_was_done_before_it_began() {
        let mut disk = synced(Syncs::Kept);
        write(&mut disk, 4, 0, &[2]);
        write(&mut disk, 5, 1, &[3]);
        disk.apply(6, Entry::Synced { file: 0, before: 5 });
        let images = left(&disk);
        assert!(images.iter().all(|files| files["a"][0] == 2));
        assert!(
            images.iter().any(|files| files["a"][1] == 1) && images.iter().any(|files| files["a"][1] == 3)
        );
    }

    #[test]
    fn a_name_is_the_old_one_or_the_new_one_until_the_directory_is_synced() {
        let mut disk = synced(Syncs::Kept);
        disk.apply(4, Entry::Renamed { from: "a".into(), to: "b".into() });
        let names = |disk: &Disk| -> std::collections::BTreeSet<String> {
            left(disk).iter().flat_map(|files| files.keys().cloned().collect::<Vec<_>>()).collect()
        };
        assert_eq!(names(&disk), ["a".to_owned(), "b".to_owned()].into());
        assert!(left(&disk).iter().all(|files| files.len() == 1));
        disk.apply(5, Entry::NamesSynced { before: 5 });
        assert_eq!(names(&disk), ["b".to_owned()].into());
    }

    #[test]
    fn without_syncs_what_was_done_long_ago_is_there() {
        let mut disk = synced(Syncs::LeftOut { written_back_after: 3 });
        assert!(left(&disk).iter().any(|files| files.get("a").is_none_or(Vec::is_empty)));
        (4..10).for_each(|at| write(&mut disk, at, 0, &[1]));
        assert!(left(&disk).iter().all(|files| files["a"] == [1; 1_024]));
    }
}
