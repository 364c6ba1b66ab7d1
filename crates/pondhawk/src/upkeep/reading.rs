//! Reads all records of a data directory, in their order.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::vec;

use journal::{Damage, Fault, OpenError, Recovery, Report, Storage};
use ledger::Record;
use record::Decoder;

use super::failure::Failure;
use super::is_journal;

/// Iterator over the records of a journal, which counts frames and bytes. Reading changes nothing.
pub(super) struct Reading {
    dir: PathBuf,
    recovery: Recovery,
    decoder: Decoder,
    /// Remaining records of the current frame.
    records: vec::IntoIter<Record<'static>>,
    read: Read,
    error: Option<OpenError>,
}

/// Statistics of the records that were read.
#[derive(Default)]
pub(super) struct Read {
    pub(super) report: Report,
    pub(super) records: u64,
    /// Contents of each segment, by file name.
    pub(super) fill: BTreeMap<String, Fill>,
}

/// Used part of a segment.
#[derive(Default, Clone, Copy)]
pub(super) struct Fill {
    pub(super) frames: u64,
    pub(super) record_bytes: u64,
}

impl Reading {
    pub(super) fn begin(storage: Arc<dyn Storage>, dir: &Path) -> Result<Self, Failure> {
        let failed = |error| Failure::Journal { dir: dir.to_owned(), error };
        if storage.list().is_ok_and(|names| !is_journal(names)) {
            return Err(Failure::NoJournal(dir.to_owned()));
        }
        Ok(Self {
            dir: dir.to_owned(),
            recovery: Recovery::begin(storage).map_err(failed)?,
            decoder: Decoder::default(),
            records: Vec::new().into_iter(),
            read: Read::default(),
            error: None,
        })
    }

    /// Reads the rest, and returns the statistics, or the first error.
    pub(super) fn finish(mut self) -> Result<Read, Failure> {
        self.by_ref().for_each(drop);
        match self.error {
            Some(error) => Err(Failure::Journal { dir: self.dir, error }),
            None => Ok(Read { report: self.recovery.report().clone(), ..self.read }),
        }
    }

    /// Reads the next frame, and returns whether there was one.
    fn read_frame(&mut self) -> Result<bool, OpenError> {
        let Some(frame) = self.recovery.next_frame()? else { return Ok(false) };
        let frame_bytes = frame.len() as u64;
        let decoded: Result<Vec<_>, _> = self.decoder.records(frame).collect();
        let (file, offset) = self.recovery.place();
        let damage = |what| Damage { file: file.clone(), offset, fault: Fault::Record(what) };
        let decoded = decoded.map_err(|error| damage(format!("{error} (of the frame's records)")))?;
        if decoded.last().is_some_and(|last| !last.is_last) {
            return Err(damage("a group without its end".to_owned()).into());
        }
        let fill = self.read.fill.entry(file).or_default();
        fill.frames += 1;
        fill.record_bytes += frame_bytes;
        self.read.records += decoded.len() as u64;
        let records: Vec<_> = decoded.into_iter().filter_map(|decoded| decoded.record).collect();
        self.records = records.into_iter();
        Ok(true)
    }
}

impl Iterator for Reading {
    type Item = Record<'static>;

    fn next(&mut self) -> Option<Record<'static>> {
        loop {
            if let Some(record) = self.records.next() {
                return Some(record);
            }
            if self.error.is_some() {
                return None;
            }
            match self.read_frame() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => self.error = Some(error),
            }
        }
    }
}
