//! `pondhawk import FILE`: makes a data directory of Mosquitto's database.

mod content;
mod properties;
mod sqlite;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{SystemTime, UNIX_EPOCH};

use base::Now;
use content::Content;
use journal::Directory;
use ledger::{Keeper, Record, RecordRoom};
use mosquitto::database::Database;

use crate::FileLayer;
use crate::no_links::Entry;

/// The directory that is made beside the database.
const DIRECTORY: &str = "pondhawk";
/// Ending of the directory until it is complete.
const UNFINISHED: &str = "importing";
/// Records that are written together.
const GROUP_RECORDS: usize = 64;

/// Makes a data directory of a database, and returns a report.
///
/// Without `to`, the directory is `pondhawk` beside the database, where a configuration of Mosquitto looks for it.
///
/// # Errors
/// The database cannot be used, or the directory exists already. Nothing has changed then.
pub(crate) fn import(
    file: &Path,
    to: Option<&Path>,
    is_snapshot_fine: bool,
    layer: FileLayer,
) -> io::Result<String> {
    let explain =
        |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", wire::Shown(file.display())));
    let to = to.map_or_else(|| file.with_file_name(DIRECTORY), Path::to_owned);
    let unfinished = with_ending(&to);
    let bytes = fs::read(file).map_err(|error| explain(&error))?;
    let database = if sqlite::is_one(&bytes) {
        sqlite::read(file, bytes).map_err(|error| explain(&error))?
    } else {
        Database::read(&bytes).map_err(|error| explain(&error))?
    };
    if !database.was_stopped && !is_snapshot_fine {
        let why = "Mosquitto has not written it at its end: stop Mosquitto first, or take what the file has with --snapshot";
        return Err(explain(&why));
    }
    if to.exists() {
        let why =
            format!("{} exists already, and nothing is added to it; move it away", wire::Shown(to.display()));
        return Err(explain(&why));
    }
    let now = now();
    let content = Content::of(&database, now).map_err(|error| explain(&error))?;
    // Whatever is there, another import or somebody else has made it.
    if unfinished.symlink_metadata().is_ok() {
        let why = format!(
            "{} is left of another import; delete it, and import again",
            wire::Shown(unfinished.display())
        );
        return Err(explain(&why));
    }
    let written = write(&content, &unfinished, layer).and_then(|()| {
        give_to_owner_of(file, &unfinished)?;
        fs::rename(&unfinished, &to)
    });
    if let Err(error) = written {
        let _ = fs::remove_dir_all(&unfinished);
        return Err(io::Error::new(
            error.kind(),
            format!("cannot write {}: {error}", wire::Shown(to.display())),
        ));
    }
    Ok(content.tally.report(file, &to))
}

fn with_ending(to: &Path) -> PathBuf {
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(UNFINISHED);
    to.with_file_name(name)
}

fn now() -> Now {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    Now { monotonic_ms: unix_ms, unix_ms }
}

/// Whoever may read the database may read the directory too.
fn give_to_owner_of(file: &Path, directory: &Path) -> io::Result<()> {
    let owner = fs::metadata(file)?;
    let mine = fs::metadata(directory)?;
    if (owner.uid(), owner.gid()) == (mine.uid(), mine.gid()) || mine.uid() != 0 {
        return Ok(());
    }
    Entry::walk(directory, None)?.give(owner.uid(), owner.gid())
}

/// Writes all records into a new journal, and waits until they are on stable storage.
fn write(content: &Content, directory: &Path, layer: FileLayer) -> io::Result<()> {
    let storage = Directory::open(directory).map_err(|error| io::Error::other(format!("{error:?}")))?;
    let needed = u32::try_from(content.longest_message_bytes.saturating_mul(4)).unwrap_or(1 << 30);
    let segment_bytes_min = needed.checked_next_power_of_two().unwrap_or(1 << 30).clamp(8 << 20, 1 << 30);
    let settings = journal::Settings {
        segment_bytes_min,
        segment_bytes_max: segment_bytes_min.max(64 << 20),
        ..journal::Settings::default()
    };
    let in_words = |error: journal::OpenError| io::Error::other(error.to_string());
    let (waking, woken) = mpsc::channel();
    let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        let _ = waking.send(());
    });
    let mut opening = journal::open(layer(storage), settings).map_err(in_words)?;
    if opening.records().next().is_some() {
        return Err(io::Error::other("there are records already"));
    }
    let (mut journal, _) = opening.start(&wake).map_err(in_words)?;
    let mut last = ledger::Lsn::default();
    for group in content.records.chunks(GROUP_RECORDS).flat_map(split) {
        while journal.room() != RecordRoom::Enough {
            wait(&journal, &woken)?;
        }
        last = journal.commit(group).map_err(|refusal| io::Error::other(format!("{refusal:?}")))?;
        journal.end_turn();
    }
    while journal.progress().durable < last {
        wait(&journal, &woken)?;
    }
    Ok(())
}

/// Records with large messages go alone, because a group has a longest length.
fn split<'a>(group: &'a [Record<'static>]) -> Vec<&'a [Record<'static>]> {
    let is_large =
        |record: &Record<'_>| matches!(record, Record::Enqueue { body, .. } if body.size_bytes() > 64 << 10);
    if group.iter().any(is_large) { group.chunks(1).collect() } else { vec![group] }
}

fn wait(journal: &dyn Keeper, woken: &mpsc::Receiver<()>) -> io::Result<()> {
    if journal.progress().has_failed {
        return Err(io::Error::other("the disk has failed"));
    }
    woken.recv().map_err(|_| io::Error::other("the journal has ended"))
}
