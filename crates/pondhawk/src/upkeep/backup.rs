//! `pondhawk journal backup DIR TO`: copies a data directory, even while a broker writes to it.
//!
//! Segments are copied in the order of the log. A segment that the broker reuses during the copy was copied before,
//! or is no longer needed: later segments contain its valid data.
//!
//! A segment that is being written is copied from its end to its beginning. Earlier bytes are thus read after later
//! ones, and are at least as new.
//!
//! The copy is then read like a journal that is opened. It may be incomplete, because the broker went on between
//! two files. In that case it is copied again from the incomplete place.

use std::path::Path;
use std::sync::Arc;

use journal::{Damage, Directory, OpenError, Storage};

use super::failure::Failure;
use super::reading::{Read, Reading};
use super::{META, found, has_journal, text};

/// Number of bytes per read, from the end of a file to its beginning.
const PIECE_BYTES: u64 = 1 << 20;
/// Free space that a copy leaves on its file system, where the journal of the broker may be too.
const RESERVE_BYTES: u64 = 256 << 20;
/// Number of attempts, after which the broker counts as too busy for a copy.
const ATTEMPTS: usize = 20;
/// File that is made first and removed last.
const LOCK: &str = "LOCK";

/// Somebody who watches a copy.
pub(super) trait Watch {
    /// The copy begins, of files with about this many bytes.
    fn begins(&self, bytes: u64);
    /// The number of bytes that were copied since the last call.
    fn copied(&self, bytes: u64);
}

/// Nobody is told anything.
impl Watch for () {
    fn begins(&self, _: u64) {}

    fn copied(&self, _: u64) {}
}

pub(super) fn backup(dir: &Path, to: &Path) -> Result<String, Failure> {
    backup_watched(dir, to, &())
}

/// Makes a copy that somebody watches.
pub(super) fn backup_watched(dir: &Path, to: &Path, watch: &impl Watch) -> Result<String, Failure> {
    has_journal(dir)?;
    let open = |error| Failure::Directory { dir: dir.to_owned(), error };
    let from = Directory::open_to_read(dir).map_err(open)?;
    let is_there = to.exists();
    if is_there && !is_empty(to) {
        return Err(Failure::NotEmpty(to.to_owned()));
    }
    let target = Directory::open(to).map_err(|error| Failure::Directory { dir: to.to_owned(), error })?;
    let bytes = segments(&from).iter().map(|name| bytes_of(&from, name)).sum();
    watch.begins(bytes);
    let target = Arc::new(target) as Arc<dyn Storage>;
    let copied = copy_and_check((&from, watch, bytes), &target, dir, to);
    if copied.is_err() && !is_there {
        // Fails if the directory is not empty. Other files in it do not belong to this copy.
        let _ = std::fs::remove_dir(to);
    }
    let read = copied?;
    Ok(format!(
        "{} is a copy of {}: {} in {}.\n",
        wire::Shown(to.display()),
        wire::Shown(dir.display()),
        text::Count(read.records, "record"),
        found(&read.report)
    ))
}

fn copy_and_check(
    (from, watch, bytes): (&dyn Storage, &impl Watch, u64),
    to: &Arc<dyn Storage>,
    dir: &Path,
    target: &Path,
) -> Result<Read, Failure> {
    let free = to.free_bytes().map_err(|error| Failure::Copy { file: target.to_owned(), error });
    let fits = free.and_then(|free_bytes| fit(bytes, free_bytes, target));
    let copied = fits.and_then(|()| copy_until_whole((from, watch), to, dir, target));
    if copied.is_err() {
        remove(&**to, |_| true);
        let _ = to.remove(LOCK);
    }
    copied
}

/// Whether the directory is empty. A lock file alone is left by a copy that was killed.
fn is_empty(dir: &Path) -> bool {
    let is_lock =
        |entry: std::io::Result<std::fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() == LOCK);
    dir.read_dir().is_ok_and(|mut entries| entries.all(is_lock))
}

/// Refuses a copy of this size that would fill the file system.
pub(super) fn fit(bytes: u64, free_bytes: u64, to: &Path) -> Result<(), Failure> {
    let needed_bytes = bytes.saturating_add(RESERVE_BYTES);
    if free_bytes >= needed_bytes {
        return Ok(());
    }
    Err(Failure::NoSpace { to: to.to_owned(), needed_bytes, free_bytes })
}

fn copy_until_whole(
    (from, watch): (&dyn Storage, &impl Watch),
    to: &Arc<dyn Storage>,
    dir: &Path,
    target: &Path,
) -> Result<Read, Failure> {
    let mut last: Option<Damage> = None;
    for _ in 0..ATTEMPTS {
        copy_missing((from, watch), &**to)
            .map_err(|(file, error)| Failure::Copy { file: target.join(file), error })?;
        let damage = match Reading::begin(Arc::clone(to), target).and_then(Reading::finish) {
            Err(Failure::Journal { error: OpenError::Damaged(damage), .. }) => damage,
            read => return read,
        };
        if last.as_ref() == Some(&damage) {
            return Err(Failure::Journal { dir: dir.to_owned(), error: damage.into() });
        }
        if segments(from).contains(&damage.file) {
            remove(&**to, |name| *name >= *damage.file);
        } else {
            // The broker reused this segment before it was copied. This segment and all earlier ones are no longer
            // needed.
            remove(&**to, |name| *name <= *damage.file);
        }
        last = Some(damage);
    }
    Err(Failure::Overtaken(dir.to_owned()))
}

/// Names of the segments, in ascending order.
fn segments(storage: &dyn Storage) -> Vec<String> {
    let mut names = storage.list().unwrap_or_default();
    names.retain(|name| journal::is_segment(name));
    names.sort_unstable();
    names
}

/// The length of a file, or 0 if it is gone.
fn bytes_of(storage: &dyn Storage, name: &str) -> u64 {
    storage.open(name, false).and_then(|file| file.bytes()).unwrap_or(0)
}

/// Copies the missing segments and META. An error comes with the name of the file.
fn copy_missing(
    (from, watch): (&dyn Storage, &impl Watch),
    to: &dyn Storage,
) -> Result<(), (String, std::io::Error)> {
    let done = segments(to);
    let names = segments(from).into_iter().filter(|name| !done.contains(name));
    for name in names.chain([META.to_owned()]) {
        match copy_file((from, watch), to, &name) {
            // The broker has renamed this segment for reuse.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && name != META => {}
            copied => copied.map_err(|error| (name, error))?,
        }
    }
    to.sync().map_err(|error| (String::new(), error))
}

/// Copies a whole file, including zeros: a broker relies on the preallocated space of a segment.
fn copy_file(
    (from, watch): (&dyn Storage, &impl Watch),
    to: &dyn Storage,
    name: &str,
) -> std::io::Result<()> {
    let source = from.open(name, false)?;
    // Bytes beyond the maximum size of a segment are not read; they may be an endless hole.
    let bytes = source.bytes()?.min(u64::from(journal::SEGMENT_BYTES_MOST));
    let copy = to.open(name, true)?;
    let mut piece = Vec::new();
    let mut end = bytes;
    while end > 0 {
        let begin = (end - 1) / PIECE_BYTES * PIECE_BYTES;
        piece.resize(usize::try_from(end - begin).expect("a piece at the most"), 0);
        let read = source.read_at(begin, &mut piece)?;
        copy.write_at(begin, &piece[..read])?;
        watch.copied(end - begin);
        end = begin;
    }
    copy.sync_data()
}

/// Removes META and the chosen segments. Until META is copied again, the directory is not a journal.
fn remove(storage: &dyn Storage, is_meant: impl Fn(&str) -> bool) {
    let names = segments(storage).into_iter().filter(|name| is_meant(name));
    // Files that cannot be removed stay. Without META they are not a journal.
    for name in [META.to_owned()].into_iter().chain(names) {
        let _ = storage.remove(&name);
    }
}
