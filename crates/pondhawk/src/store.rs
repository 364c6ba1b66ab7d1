//! Storage for data that survives a restart, as configured.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use config::Config;
use journal::{Directory, DirectoryError, Log, OpenError, Opening, Storage, Trouble};
use ledger::{Keeper, Recovered, Source};
use net::{Forgetful, Store};

use crate::FileLayer;
use crate::listen;

/// Opens the journal, or a store that keeps nothing if no data directory is configured.
///
/// # Errors
/// Another process uses the journal, the journal is damaged, or the file system refuses. The text is for the operator.
pub(crate) fn open(config: &Config, file_layer: FileLayer) -> io::Result<Box<dyn Store>> {
    let Some(path) = &config.data_dir else { return Ok(Box::new(Forgetful)) };
    let directory = Directory::open(path).map_err(|error| in_words(path, &error))?;
    let settings = settings(config, &directory)?;
    let opening = journal::open(file_layer(directory), settings).and_then(Opening::ahead);
    let opening = opening.map_err(|error| explain(path, &error))?;
    Ok(Box::new(OnDisk { path: path.display().to_string(), opening, records: 0, began: Instant::now() }))
}

fn settings(config: &Config, directory: &Directory) -> io::Result<journal::Settings> {
    let config::Journal { segment_bytes_min, segment_bytes_max, disk_bytes, free_bytes } = config.journal;
    let disk_bytes_max = match disk_bytes {
        Some(bytes) => bytes,
        None => (directory.free_bytes()? + used_bytes(directory)?) / 2,
    };
    Ok(journal::Settings {
        segment_bytes_min,
        segment_bytes_max,
        disk_bytes_max: disk_bytes_max.max(4 * u64::from(segment_bytes_min)),
        free_bytes_min: free_bytes,
        durability: listen::durability_max(config),
    })
}

fn used_bytes(directory: &Directory) -> io::Result<u64> {
    let files = directory.list()?.into_iter().filter(|name| journal::is_segment(name));
    let sizes = files.map(|name| directory.open(&name, false)?.bytes());
    sizes.sum()
}

/// A journal that is read first and written afterwards.
struct OnDisk {
    path: String,
    opening: Opening,
    records: u64,
    began: Instant,
}

impl Source<'static> for OnDisk {
    fn next_record(&mut self, wants_bodies: bool) -> Option<Recovered<'static>> {
        let record = self.opening.next_record(wants_bodies);
        self.records += u64::from(record.is_some());
        record
    }
}

impl Store for OnDisk {
    fn keep(self: Box<Self>, wake: Arc<dyn Fn() + Send + Sync>) -> io::Result<Box<dyn Keeper>> {
        let Self { path, opening, records, began } = *self;
        let watch = Arc::new(Watch { path: path.clone(), log: OnceLock::new(), told: Mutex::default() });
        let (watching, wake_ledger) = (Arc::clone(&watch), wake);
        let wake: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            watching.look();
            wake_ledger();
        });
        let (journal, report) = opening.start(&wake).map_err(|error| explain(Path::new(&path), &error))?;
        // The cell is empty: this function runs once.
        let _ = watch.log.set(Arc::clone(journal.log()));
        tracing::info!(records, elapsed = ?began.elapsed(), "read the journal in {path}");
        if report.is_torn
            && let Some((file, offset)) = &report.end
        {
            tracing::warn!(
                "cut off in {path}: an incomplete write in {file} behind offset {offset}. With durability `fsync`, nothing in \
                 it was acknowledged"
            );
        }
        if report.discarded > 0 {
            tracing::warn!(
                frames = report.discarded,
                "left out in {path}: what `journal repair` has given up"
            );
        }
        Ok(Box::new(journal))
    }
}

/// Logs problems of the journal, and the return of free space.
struct Watch {
    path: String,
    log: OnceLock<Arc<Log>>,
    told: Mutex<Trouble>,
}

impl Watch {
    fn look(&self) {
        let Some(log) = self.log.get() else { return };
        let now = log.trouble();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told == now {
            return;
        }
        let path = &self.path;
        match (&told.failure, &now.failure) {
            (None, Some(failure)) => tracing::error!(
                "the journal in {path} has failed: {failure}. Nothing that must last is acknowledged any more; what flows \
                 goes on. Start the broker again when the disk is well"
            ),
            _ => match (&told.no_space, &now.no_space) {
                (None, Some(why)) => tracing::warn!("no space for the journal in {path}: {why}"),
                (Some(_), None) => tracing::info!("there is space for the journal in {path} again"),
                _ => {}
            },
        }
        if told.beyond_limit < now.beyond_limit {
            tracing::warn!(
                "the journal in {path} takes more than `disk_bytes` for now: nearly all of it is needed, and without one \
                 segment more nothing could ever go. A higher limit avoids that"
            );
        }
        if let (None, Some(damage)) = (&told.damage, &now.damage) {
            tracing::error!(
                "the journal in {path} is damaged: {damage}. Make a backup, then stop the broker and see `pondhawk journal check`"
            );
        }
        *told = now;
    }
}

fn in_words(path: &Path, error: &DirectoryError) -> io::Error {
    let path = wire::Shown(path.display());
    io::Error::other(match error {
        DirectoryError::InUse { pid: Some(pid) } => format!(
            "{path} is in use by process {pid}, perhaps another broker; a second one needs its own --data-dir, or --in-memory"
        ),
        DirectoryError::InUse { pid: None } => format!("{path} is in use by another process"),
        DirectoryError::Io(error) => format!(
            "cannot use {path} for what must survive a restart: {error}; name another directory with --data-dir, or \
             choose --in-memory"
        ),
    })
}

fn explain(path: &Path, error: &OpenError) -> io::Error {
    let path = wire::Shown(path.display());
    let advice = match error {
        OpenError::Damaged(damage) if !damage.is_repairable() => {
            "; nothing was changed. Move away the files that do not belong to this journal, or bring back a backup".to_owned()
        }
        OpenError::Damaged(_) => format!(
            "; nothing was changed. `pondhawk journal check {path}` says more, `pondhawk journal repair \
             --discard-damaged {path}` gives up what is damaged and keeps the rest"
        ),
        OpenError::Newer { .. } => "; use the later version again, or another --data-dir".to_owned(),
        OpenError::Settings(_) | OpenError::Io { .. } => String::new(),
    };
    io::Error::other(format!("cannot open the journal in {path}: {error}{advice}"))
}
