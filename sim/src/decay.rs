//! One bit of a journal that nobody uses changes by itself. It is found where it is, or it makes no difference; but in the
//! frame that was written last it looks as if the power had been lost while that was written.

use std::sync::Arc;

use journal::simulated::Simulated;
use journal::{Damage, Fault, OpenError, Report, Settings, Storage};
use ledger::Record;

use crate::random::Random;
use crate::witness::bytes;

/// The bit that changes.
#[derive(Debug)]
struct Place {
    file: String,
    bit: usize,
}

/// Contents of a journal: its records as bytes, and their end.
type Content = (Vec<Vec<u8>>, Report);

/// Changes a bit in a copy of a directory, reads that, and gives up what is damaged.
///
/// # Errors
/// What is wrong.
pub(crate) fn check(directory: &Simulated, settings: &Settings, random: &mut Random) -> Result<(), String> {
    let (whole, _) =
        read(directory, settings).map_err(|error| format!("a crash has left damage: {error}"))?;
    let rotten = directory.copy();
    rotten.set_capacity(u64::MAX);
    let Some(place) = Place::draw(&rotten, random) else { return Ok(()) };
    rotten.flip_bit(&place.file, place.bit);
    let finding = |what: &str| Err(format!("with bit {} of {} changed {what}", place.bit, place.file));
    match read(&rotten, settings) {
        Ok((records, _)) if records == whole => Ok(()),
        Ok((records, report)) if place.is_behind(&report) && is_cut(&whole, &records) => Ok(()),
        Ok((records, report)) => {
            let (records, whole) = (records.len(), whole.len());
            finding(&format!("{records} of {whole} records are read, and nobody is told: {report:?}"))
        }
        Err(OpenError::Damaged(damage)) if place.is_in(&damage) || is_in_front(&damage, &rotten) => {
            let discarded = journal::discard_damaged(&(Arc::new(rotten.clone()) as Arc<dyn Storage>));
            match discarded.and_then(|_| read(&rotten, settings)) {
                Ok((records, _)) if records.len() <= whole.len() => Ok(()),
                Ok(_) => finding("there are more records than before, after what was damaged was given up"),
                Err(error) => {
                    finding(&format!("it cannot be read after what was damaged was given up: {error}"))
                }
            }
        }
        Err(error) => finding(&format!("it is refused: {error}")),
    }
}

fn read(directory: &Simulated, settings: &Settings) -> Result<Content, OpenError> {
    let directory = directory.copy();
    directory.set_capacity(u64::MAX);
    let mut opening = journal::open(Arc::new(directory), settings.clone())?;
    let records: Vec<Record<'static>> = opening.records().map(|found| found.record).collect();
    // Says what was damaged, if that has ended it.
    let (.., report) = opening.finish()?;
    Ok((records.iter().map(bytes).collect(), report))
}

/// Whether these are all records but some at the end. Without the end there may be more at the beginning, which that
/// says are not needed.
fn is_cut(whole: &[Vec<u8>], records: &[Vec<u8>]) -> bool {
    (0..whole.len()).any(|cut| records.ends_with(&whole[..cut]))
}

impl Place {
    /// Any bit of any file, but mostly one where something is written.
    fn draw(directory: &Simulated, random: &mut Random) -> Option<Self> {
        const ATTEMPTS: usize = 20;
        let files = directory.list().ok()?;
        if files.is_empty() {
            return None;
        }
        let mut place = None;
        for _ in 0..random.between(1, ATTEMPTS) {
            let file = random.pick(&files);
            let contents = directory.contents(file)?;
            if contents.is_empty() {
                continue;
            }
            let bit = random.below(contents.len() * 8);
            place = Some(Self { file: file.clone(), bit });
            if contents[bit / 8] != 0 && file.starts_with("segment") {
                break;
            }
        }
        place
    }

    /// The damage was found where it is.
    fn is_in(&self, damage: &Damage) -> bool {
        damage.file == self.file && damage.offset <= self.bit as u64 / 8
    }

    /// Something behind the end of the records is said to be torn, and it is that. A frame whose own header is not right
    /// cannot be told from what an earlier life of the segment has left there: of that nothing is said.
    fn is_behind(&self, report: &Report) -> bool {
        const HEADER_BYTES: u64 = 32;
        let Some((file, offset)) = &report.end else { return false };
        let byte = self.bit as u64 / 8;
        let is_told = report.is_torn || byte < offset + HEADER_BYTES;
        *file == self.file && *offset <= byte && is_told
    }
}

/// A segment is missed that was not needed any more: the frame that has said so, the last one, cannot be read.
fn is_in_front(damage: &Damage, directory: &Simulated) -> bool {
    let first =
        directory.list().ok().and_then(|names| names.into_iter().find(|name| name.starts_with("segment")));
    damage.fault == Fault::Missing && first.is_some_and(|first| damage.file < first)
}
