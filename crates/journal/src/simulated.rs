//! A directory in memory, for tests and simulators: it loses what was not synced, tears and reorders writes, fails, runs
//! full, and flips bits. Everything that is left to chance follows from one seed.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{File, Storage};

/// Number of bytes that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// A directory in memory. Its clones are the same directory.
#[derive(Clone)]
pub struct Simulated {
    disk: Arc<Mutex<Disk>>,
    /// The process that has it open. Operations of earlier processes fail.
    process: u64,
}

/// The failure of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The operation fails, and it is unknown how much of it was done; the next ones succeed.
    Io,
    /// There was no space for it; the next ones succeed.
    Full,
    /// The operation and all that follow fail: the process has ended here.
    End,
}

#[derive(Clone)]
struct Disk {
    random: u64,
    files: Vec<Contents>,
    names: BTreeMap<String, usize>,
    /// The names at the last sync, and after each change since then.
    earlier_names: Vec<BTreeMap<String, usize>>,
    capacity: u64,
    /// Writes, syncs and changes of names that were tried.
    operations: u64,
    failure: Option<(u64, Failure)>,
    ignores_syncs: bool,
    never_reserves: bool,
    process: u64,
}

#[derive(Default, Clone)]
struct Contents {
    /// Bytes as they are read. Copies of a directory share them until one of them is written to. After a loss of power,
    /// `durable` is the same too.
    bytes: Arc<Vec<u8>>,
    /// Bytes on the disk after the last sync.
    durable: Arc<Vec<u8>>,
    /// Offsets and bytes of the writes since then.
    writes: Vec<(usize, Vec<u8>)>,
}

struct SimulatedFile {
    of: Simulated,
    id: usize,
}

impl Simulated {
    /// An empty directory on a disk without bounds.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let disk = Disk {
            random: seed,
            files: Vec::new(),
            names: BTreeMap::new(),
            earlier_names: vec![BTreeMap::new()],
            capacity: u64::MAX,
            operations: 0,
            failure: None,
            ignores_syncs: false,
            never_reserves: false,
            process: 0,
        };
        Self { disk: Arc::new(Mutex::new(disk)), process: 0 }
    }

    /// Another directory that is as this one is now, for the process that comes next.
    #[must_use]
    pub fn copy(&self) -> Self {
        let mut disk = self.disk().clone();
        disk.process += 1;
        let process = disk.process;
        Self { disk: Arc::new(Mutex::new(disk)), process }
    }

    /// The process ends: the operating system keeps what it has written. This is the directory for the next one.
    #[must_use]
    pub fn after_kill(&self) -> Self {
        let mut disk = self.disk();
        disk.process += 1;
        disk.failure = None;
        Self { disk: self.disk.clone(), process: disk.process }
    }

    /// The power is lost: of what was not synced any sectors may be on the disk. This is the directory for the next
    /// process.
    #[must_use]
    pub fn after_power_cut(&self) -> Self {
        let mut disk = self.disk();
        let choices = disk.earlier_names.len();
        let which = disk.below(choices);
        disk.names = disk.earlier_names[which].clone();
        disk.earlier_names = vec![disk.names.clone()];
        for id in 0..disk.files.len() {
            let mut contents = std::mem::take(&mut disk.files[id]);
            contents.lose_power(|| disk.below(2) == 0);
            disk.files[id] = contents;
        }
        drop(disk);
        self.after_kill()
    }

    /// Makes an operation fail: the one after this number of others.
    pub fn fail_after(&self, operations: u64, failure: Failure) {
        let mut disk = self.disk();
        disk.failure = Some((disk.operations + operations, failure));
    }

    /// Cancels a failure that has not happened yet.
    pub fn fail_no_more(&self) {
        self.disk().failure = None;
    }

    /// From now on a sync does nothing, and says that it did.
    pub fn ignore_syncs(&self) {
        self.disk().ignores_syncs = true;
    }

    /// From now on it is a file system that cannot reserve space.
    pub fn never_reserve(&self) {
        self.disk().never_reserves = true;
    }

    /// Sets the maximum bytes of all files together.
    pub fn set_capacity(&self, bytes: u64) {
        self.disk().capacity = bytes;
    }

    /// Writes, syncs and changes of names that were tried until now.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.disk().operations
    }

    /// Returns the bytes of all files.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.disk().used_bytes()
    }

    /// A file as it is read; none if there is none of this name.
    #[must_use]
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let disk = self.disk();
        Some(disk.files[*disk.names.get(name)?].bytes.to_vec())
    }

    /// Makes a file on the disk be this.
    pub fn set_contents(&self, name: &str, bytes: Vec<u8>) {
        let mut disk = self.disk();
        let id = disk.files.len();
        let bytes = Arc::new(bytes);
        disk.files.push(Contents { durable: bytes.clone(), bytes, writes: Vec::new() });
        disk.names.insert(name.to_owned(), id);
        disk.earlier_names = vec![disk.names.clone()];
    }

    /// Changes one bit of a file on the disk. `bit` counts from its beginning; nothing happens behind its end.
    pub fn flip_bit(&self, name: &str, bit: usize) {
        let mut disk = self.disk();
        let Some(id) = disk.names.get(name).copied() else { return };
        let Contents { bytes, durable, .. } = &mut disk.files[id];
        for copy in [bytes, durable] {
            if let Some(byte) = Arc::make_mut(copy).get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk, for something that changes it; `Err` with what happens instead.
    fn operate(&self) -> Result<MutexGuard<'_, Disk>, (MutexGuard<'_, Disk>, io::Error)> {
        let mut disk = self.disk();
        disk.operations += 1;
        if disk.process != self.process {
            return Err((disk, io::Error::other("the process has ended")));
        }
        let Some((at, failure)) = disk.failure.filter(|(at, _)| disk.operations > *at) else {
            return Ok(disk);
        };
        let error = match failure {
            Failure::End => io::Error::other("the process has ended"),
            Failure::Io if disk.operations == at + 1 => io::Error::other("the disk has failed"),
            Failure::Full if disk.operations == at + 1 => io::ErrorKind::StorageFull.into(),
            Failure::Io | Failure::Full => return Ok(disk),
        };
        Err((disk, error))
    }

    fn change_names(
        &self,
        change: impl FnOnce(&mut BTreeMap<String, usize>) -> Option<()>,
    ) -> io::Result<()> {
        let mut disk = self.operate().map_err(|(_, error)| error)?;
        change(&mut disk.names).ok_or(io::ErrorKind::NotFound)?;
        let names = disk.names.clone();
        disk.earlier_names.push(names);
        Ok(())
    }
}

impl Storage for Simulated {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.disk().names.keys().cloned().collect())
    }

    fn open(&self, name: &str, create: bool) -> io::Result<Arc<dyn File>> {
        let found = self.disk().names.get(name).copied();
        let id = match found {
            Some(id) => id,
            None if !create => return Err(io::ErrorKind::NotFound.into()),
            None => {
                let mut disk = self.operate().map_err(|(_, error)| error)?;
                let id = disk.files.len();
                disk.files.push(Contents::default());
                disk.names.insert(name.to_owned(), id);
                let names = disk.names.clone();
                disk.earlier_names.push(names);
                id
            }
        };
        Ok(Arc::new(SimulatedFile { of: self.clone(), id }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change_names(|names| {
            let id = names.remove(from)?;
            names.insert(to.to_owned(), id);
            Some(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change_names(|names| names.remove(name).map(|_| ()))
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.operate().map_err(|(_, error)| error)?;
        if !disk.ignores_syncs {
            disk.earlier_names = vec![disk.names.clone()];
        }
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let disk = self.disk();
        Ok(disk.capacity.saturating_sub(disk.used_bytes()))
    }

    fn salt(&self) -> io::Result<u64> {
        Ok(self.disk().next())
    }
}

impl File for SimulatedFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.of.disk().files[self.id].bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let disk = self.of.disk();
        let bytes = &disk.files[self.id].bytes;
        let from = index(offset).min(bytes.len());
        let count = into.len().min(bytes.len() - from);
        into[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let offset = index(offset);
        let mut disk = match self.of.operate() {
            Ok(disk) => disk,
            Err((mut disk, error)) => {
                // Some of its sectors may have got through.
                if disk.process == self.of.process {
                    let sectors = disk.below(bytes.len() / SECTOR_BYTES + 1);
                    let upto = bytes.len().min(sectors * SECTOR_BYTES);
                    disk.files[self.id].write(offset, &bytes[..upto]);
                }
                return Err(error);
            }
        };
        disk.grow(self.id, offset + bytes.len())?;
        disk.files[self.id].write(offset, bytes);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        match self.of.operate() {
            Ok(disk) if disk.ignores_syncs => Ok(()),
            Ok(mut disk) => {
                disk.files[self.id].sync();
                Ok(())
            }
            Err((mut disk, error)) => {
                if disk.process == self.of.process && error.to_string().contains("disk") {
                    // The bytes that were not written count as written from now on: the next sync does not write them
                    // either.
                    let mut contents = std::mem::take(&mut disk.files[self.id]);
                    let seen = contents.bytes.clone();
                    contents.lose_power(|| disk.below(2) == 0);
                    contents.bytes = seen;
                    disk.files[self.id] = contents;
                }
                Err(error)
            }
        }
    }

    fn allocate(&self, bytes: u64) -> io::Result<bool> {
        let mut disk = self.of.operate().map_err(|(_, error)| error)?;
        if disk.never_reserves {
            return Ok(false);
        }
        disk.grow(self.id, index(bytes))?;
        let contents = &mut disk.files[self.id];
        if contents.bytes.len() < index(bytes) {
            Arc::make_mut(&mut contents.bytes).resize(index(bytes), 0);
        }
        Ok(true)
    }
}

impl Disk {
    /// `SplitMix64`.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        index(self.next() % bound.max(1) as u64)
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().map(|id| self.files[*id].bytes.len() as u64).sum()
    }

    fn grow(&self, id: usize, upto: usize) -> io::Result<()> {
        let more = upto.saturating_sub(self.files[id].bytes.len()) as u64;
        let is_full = more > 0 && self.used_bytes().saturating_add(more) > self.capacity;
        if is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Contents {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        put(Arc::make_mut(&mut self.bytes), offset, bytes);
        self.writes.push((offset, bytes.to_vec()));
    }

    /// Puts the writes since the last successful sync on the disk. Writes that a failed sync has omitted are lost.
    fn sync(&mut self) {
        for (offset, bytes) in std::mem::take(&mut self.writes) {
            put(Arc::make_mut(&mut self.durable), offset, &bytes);
        }
        if self.durable.len() < self.bytes.len() {
            Arc::make_mut(&mut self.durable).resize(self.bytes.len(), 0);
        }
    }

    /// Each sector of each write since the last sync is on the disk or is not. A file is as long as it was when it was
    /// synced, or longer by what has come through.
    fn lose_power(&mut self, mut comes_through: impl FnMut() -> bool) {
        for (offset, bytes) in std::mem::take(&mut self.writes) {
            for (number, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                if comes_through() {
                    put(Arc::make_mut(&mut self.durable), offset + number * SECTOR_BYTES, sector);
                }
            }
        }
        self.bytes = self.durable.clone();
    }
}

fn put(into: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if into.len() < offset + bytes.len() {
        into.resize(offset + bytes.len(), 0);
    }
    into[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// Into memory, where all files are.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("files are in memory")
}

impl std::fmt::Debug for Simulated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Simulated").field("operations", &self.operations()).finish_non_exhaustive()
    }
}
