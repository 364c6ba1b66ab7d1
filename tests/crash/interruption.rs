//! State of a killed broker: it had noted a write that had not begun, or had made a change that it had not noted. The
//! trace continues with the real files, so that the trace of the next broker begins with the files that it finds.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use pondhawk_tests::trace::{Bytes, Entry, Position};

use crate::disk::{Disk, Syncs};
use crate::recording::Recording;

/// Not one of the journal's files.
const LOCK: &str = "LOCK";

/// Makes the trace whole, and appends what tells the files from what it says.
pub(crate) fn settle(trace: &Path, directory: &Path) {
    complete(trace).and_then(|()| append_differences(trace, directory)).expect("the trace can be written");
}

/// An entry of which only a part is there gets zeros for the rest: it was of a write, all others are too short to be
/// interrupted, and that had not begun.
fn complete(trace: &Path) -> io::Result<()> {
    let bytes = fs::read(trace)?;
    let mut at = 0;
    while let Some((_, took)) = Entry::read(&bytes[at..]) {
        at += took;
    }
    if let Some(length) = bytes[at..].first_chunk() {
        let missing = 4 + u32::from_le_bytes(*length) as usize - (bytes.len() - at);
        OpenOptions::new().append(true).open(trace)?.write_all(&vec![0; missing])?;
    }
    Ok(())
}

fn append_differences(trace: &Path, directory: &Path) -> io::Result<()> {
    let bytes = fs::read(trace)?;
    let mut disk = Disk::new(Syncs::Kept);
    Recording::play(&bytes, 0..bytes.len() as Position, &mut disk);
    let (mut noted, found) = (disk.seen(), files(directory)?);
    let mut output =
        Output { file: OpenOptions::new().append(true).open(trace)?, length: bytes.len() as Position };
    output.names(&mut noted, &found)?;
    for (name, is) in &found {
        output.contents(name, noted.get(name).map_or(&[], Vec::as_slice), is)?;
    }
    Ok(())
}

fn files(directory: &Path) -> io::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != LOCK {
            files.insert(name, fs::read(entry.path())?);
        }
    }
    Ok(files)
}

struct Output {
    file: File,
    length: Position,
}

impl Output {
    fn note(&mut self, entry: &Entry) -> io::Result<()> {
        self.length += entry.append(&mut self.file)?;
        Ok(())
    }

    /// One change of names at a time is under way at the most.
    fn names(
        &mut self,
        noted: &mut BTreeMap<String, Vec<u8>>,
        found: &BTreeMap<String, Vec<u8>>,
    ) -> io::Result<()> {
        let gone = noted.keys().find(|name| !found.contains_key(*name)).cloned();
        let new = found.keys().find(|name| !noted.contains_key(*name)).cloned();
        let contents = gone.as_ref().and_then(|name| noted.remove(name));
        match (gone, new) {
            (Some(from), Some(to)) => {
                noted.insert(to.clone(), contents.unwrap_or_default());
                self.note(&Entry::Renamed { from, to })
            }
            (Some(name), None) => self.note(&Entry::Removed { name }),
            // It is made when its contents are noted.
            (None, _) => Ok(()),
        }
    }

    fn contents(&mut self, name: &str, noted: &[u8], is: &[u8]) -> io::Result<()> {
        if noted == is {
            return Ok(());
        }
        let file = self.length;
        self.note(&Entry::Opened { file, name: name.to_owned() })?;
        self.note(&Entry::Allocated { file, bytes: is.len() as u64 })?;
        let differs = |at: &usize| noted.get(*at).copied().unwrap_or(0) != is[*at];
        if let (Some(first), Some(last)) = ((0..is.len()).find(differs), (0..is.len()).rfind(differs)) {
            let bytes = Bytes::of(&is[first..=last]);
            self.note(&Entry::Written { file, offset: first as u64, bytes })?;
        }
        Ok(())
    }
}
