//! `pondhawk journal backup DIR TO`: a copy that opens, of a directory that a broker may be writing to.
//!
//! The log only grows at its end and is given up at its beginning, so a copy made from the end to the beginning is the
//! log as it was at some moment during the copy: whatever is in it was there when everything in front of it was read, which
//! was later. Only a segment that was given up and written again meanwhile spoils it. The copy is read like a journal that
//! is opened, so that this is seen, and then made once more.

use std::path::Path;
use std::sync::Arc;

use journal::{Directory, Storage};

use super::failure::Failure;
use super::reading::{Read, Reading};
use super::{found, has_journal, text};

/// So much is read at once, from the end of a file to its beginning.
const PIECE_BYTES: u64 = 1 << 20;
/// A broker that overtakes so many copies, one after the other, is too busy.
const ATTEMPTS: usize = 5;
/// Made last and removed first: without it there is no journal.
const META: &str = "META";

pub(super) fn backup(dir: &Path, to: &Path) -> Result<String, Failure> {
    has_journal(dir)?;
    let open = |error| Failure::Directory { dir: dir.to_owned(), error };
    let from = Directory::open_to_read(dir).map_err(open)?;
    let is_there = to.exists();
    if is_there && to.read_dir().map_or(true, |mut entries| entries.next().is_some()) {
        return Err(Failure::NotEmpty(to.to_owned()));
    }
    let target = Directory::open(to).map_err(|error| Failure::Directory { dir: to.to_owned(), error })?;
    let read = copy_and_check(&from, &(Arc::new(target) as Arc<dyn Storage>), dir, to)?;
    Ok(format!(
        "{} is a copy of {}: {} in {}.\n",
        to.display(),
        dir.display(),
        text::Count(read.records, "record"),
        found(&read.report)
    ))
}

fn copy_and_check(
    from: &dyn Storage,
    to: &Arc<dyn Storage>,
    dir: &Path,
    target: &Path,
) -> Result<Read, Failure> {
    let mut damage = Failure::Overtaken(dir.to_owned());
    for _ in 0..ATTEMPTS {
        let before = segments(from);
        copy(from, &**to, &before)
            .map_err(|(file, error)| Failure::Copy { file: target.join(file), error })?;
        match Reading::begin(Arc::clone(to), target).and_then(Reading::finish) {
            Ok(read) => return Ok(read),
            // A segment has got another number, or there is one more than was copied.
            Err(_) if before != segments(from) => {}
            Err(Failure::Journal { error, .. }) => {
                damage = Failure::Journal { dir: dir.to_owned(), error };
                break;
            }
            Err(other) => {
                damage = other;
                break;
            }
        }
        remove_all(&**to);
    }
    remove_all(&**to);
    Err(damage)
}

/// In order.
fn segments(storage: &dyn Storage) -> Vec<String> {
    let mut names = storage.list().unwrap_or_default();
    names.retain(|name| name.starts_with("segment-"));
    names.sort_unstable();
    names
}

/// What could not be copied is named.
fn copy(from: &dyn Storage, to: &dyn Storage, segments: &[String]) -> Result<(), (String, std::io::Error)> {
    for name in segments.iter().rev().map(String::as_str).chain([META]) {
        match copy_file(from, to, name) {
            // It has another number by now.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && name != META => {}
            copied => copied.map_err(|error| (name.to_owned(), error))?,
        }
    }
    to.sync().map_err(|error| (String::new(), error))
}

/// All of it, zeros too: a broker counts on the space of a segment being there.
fn copy_file(from: &dyn Storage, to: &dyn Storage, name: &str) -> std::io::Result<()> {
    let source = from.open(name, false)?;
    let bytes = source.bytes()?;
    let copy = to.open(name, true)?;
    let mut piece = Vec::new();
    let mut end = bytes;
    while end > 0 {
        let begin = (end - 1) / PIECE_BYTES * PIECE_BYTES;
        piece.resize(usize::try_from(end - begin).expect("a piece at the most"), 0);
        let read = source.read_at(begin, &mut piece)?;
        copy.write_at(begin, &piece[..read])?;
        end = begin;
    }
    copy.sync_data()
}

fn remove_all(storage: &dyn Storage) {
    // What is left after this cannot be helped, and is no journal.
    for name in [META.to_owned()].into_iter().chain(segments(storage)) {
        let _ = storage.remove(&name);
    }
}
