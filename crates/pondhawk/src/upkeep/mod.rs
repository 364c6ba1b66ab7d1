//! `pondhawk journal …`: commands to check, repair, inspect and copy a data directory. Some work while a broker
//! uses it.

mod backup;
mod failure;
mod inspect;
mod order;
mod reading;
#[cfg(test)]
mod tests;
mod text;

use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use journal::{Damage, Directory, OpenError, Report, Storage};

use crate::args::JournalCommand;

pub(crate) use order::Backups;

use failure::Failure;
use inspect::Inspection;
use reading::{Read, Reading};

/// File that identifies a journal.
const META: &str = "META";

/// Runs a command. Prints its result to standard output, or its failure to standard error.
pub(crate) fn run(command: &JournalCommand) -> ExitCode {
    let done = match command {
        JournalCommand::Check { dir } => check(dir),
        JournalCommand::Repair { dir, discard_damaged } => repair(dir, *discard_damaged),
        JournalCommand::Inspect { dir, json } => inspect(dir, *json),
        JournalCommand::Backup { dir, to } => backup::backup(dir, to),
    };
    match done {
        Ok(text) => crate::say(&text),
        Err(failure) => {
            eprintln!("error: {failure}");
            failure.exit_code()
        }
    }
}

fn check(dir: &Path) -> Result<String, Failure> {
    let mut reading = Reading::begin(Arc::new(open_to_check(dir)?), dir)?;
    reading.by_ref().for_each(drop);
    let read = reading.finish()?;
    Ok(format!(
        "{} is whole: {} in {}.\n{}",
        dir.display(),
        text::Count(read.records, "record"),
        found(&read.report),
        end(&read.report)
    ))
}

/// Repairs a journal, and prints each discarded part at once, because a later step may fail.
fn repair(dir: &Path, discard_damaged: bool) -> Result<String, Failure> {
    let storage: Arc<dyn Storage> =
        if discard_damaged { Arc::new(lock(dir)?) } else { Arc::new(open_to_check(dir)?) };
    let mut given_up: Vec<Damage> = Vec::new();
    loop {
        let damage = match Reading::begin(Arc::clone(&storage), dir).and_then(Reading::finish) {
            Ok(read) => return Ok(format!("{} {}.\n", dir.display(), repaired(!given_up.is_empty(), &read))),
            // Damage that is still there after it was discarded cannot be repaired.
            Err(Failure::Journal { error: OpenError::Damaged(damage), .. })
                if discard_damaged && !given_up.contains(&damage) =>
            {
                damage
            }
            Err(failure) => return Err(failure),
        };
        let failed = |error| Failure::Journal { dir: dir.to_owned(), error };
        let bytes = journal::discard(&*storage, &damage).map_err(failed)?;
        // The repair goes on without a reader of its report.
        _ = crate::write_all(format!("given up: {damage} ({})\n", text::Size(bytes)).as_bytes());
        given_up.push(damage);
    }
}

fn repaired(was_damaged: bool, read: &Read) -> String {
    let records = text::Count(read.records, "record");
    let is = if was_damaged { "can be read again" } else { "is whole, and nothing was done" };
    format!("{is}: {records} in {}", found(&read.report))
}

fn inspect(dir: &Path, json: bool) -> Result<String, Failure> {
    let inspection = Inspection::of(dir)?;
    Ok(if json { inspection.to_json() } else { inspection.to_string() })
}

/// Opens the directory for reading, and keeps other processes from writing to it.
fn open_to_check(dir: &Path) -> Result<Directory, Failure> {
    has_journal(dir)?;
    Directory::open_to_check(dir).map_err(|error| Failure::Directory { dir: dir.to_owned(), error })
}

/// Locks the directory for this process alone.
fn lock(dir: &Path) -> Result<Directory, Failure> {
    has_journal(dir)?;
    Directory::open(dir).map_err(|error| Failure::Directory { dir: dir.to_owned(), error })
}

/// Fails if the directory does not exist, or has no file of a journal.
///
/// A mistyped path must not count as a whole journal. Opening the directory for writing would create the directory and
/// a lock file.
fn has_journal(dir: &Path) -> Result<(), Failure> {
    let names = match dir.read_dir() {
        Ok(entries) => entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Err(Failure::NoJournal(dir.to_owned()));
        }
        Err(error) => return Err(Failure::Directory { dir: dir.to_owned(), error: error.into() }),
    };
    if is_journal(names) { Ok(()) } else { Err(Failure::NoJournal(dir.to_owned())) }
}

/// Whether a directory with these files is a journal, damaged or not.
///
/// The broker makes the first segments before META. Later, a journal without META or without segments is damaged.
fn is_journal(names: impl IntoIterator<Item = String>) -> bool {
    names.into_iter().any(|name| name == META || journal::is_segment(&name))
}

fn found(report: &Report) -> String {
    let Report { segments, frames, bytes, discarded, .. } = report;
    let given_up = if *discarded > 0 {
        format!(", {} given up by an earlier repair", text::Count(*discarded, "frame"))
    } else {
        String::new()
    };
    format!(
        "{} of {}, {}{given_up}",
        text::Count(*frames, "frame"),
        text::Count(*segments, "segment"),
        text::Size(*bytes)
    )
}

/// Tells an operator about an interrupted write at the end of the records.
fn end(report: &Report) -> String {
    match &report.end {
        Some((file, offset)) if report.is_torn => format!(
            "A write was under way when they ended, at byte {offset} of {file}. The next start cuts it off. With durability \
             `fsync`, nothing in it was acknowledged.\n"
        ),
        _ => String::new(),
    }
}
