//! Decides when files that have changed are read: not while they are written.

use std::path::{Path, PathBuf};

/// The number of looks without a change before files are read. An editor may write in several steps.
const STILL_LOOKS: u32 = 1;
/// The same while a file is missing that was there before: most come back.
const STILL_LOOKS_MISSING: u32 = 5;

/// Maximum number of files and directories that are looked at. Each look has one call of `stat` for each.
const PLACES_MAX: usize = 1_000;

/// The stamps of files.
///
/// ```text
///            other stamps                     no other stamps, often enough
///   as read ─────────────► changed, look 0 ──────────────────────────────► due ──► read ──► as read
///       ▲                    │    ▲   │
///       └── stamps as read ──┘    └───┘ other stamps
/// ```
#[derive(Debug)]
pub(crate) struct Watch<S> {
    places: Vec<PathBuf>,
    /// The stamps with which the files were read. `None` for a file that could not be found.
    read: Vec<Option<S>>,
    /// The stamps of the last look, if they are not those of `read`, and the number of later looks that found the same.
    changed: Option<(Vec<Option<S>>, u32)>,
}

impl<S: PartialEq> Watch<S> {
    /// Notes the files that were read, with their stamps from before that. Returns whether all of them are looked at.
    pub(crate) fn note(&mut self, stamps: Vec<(PathBuf, Option<S>)>) -> bool {
        let is_whole = stamps.len() <= PLACES_MAX;
        (self.places, self.read) = stamps.into_iter().take(PLACES_MAX).unzip();
        self.changed = None;
        is_whole
    }

    /// Looks at each file once. Returns whether to read them now.
    pub(crate) fn look(&mut self, stamp: impl Fn(&Path) -> Option<S>) -> bool {
        let stamps: Vec<Option<S>> = self.places.iter().map(|path| stamp(path)).collect();
        if stamps == self.read {
            self.changed = None;
            return false;
        }
        let is_missing = stamps.iter().zip(&self.read).any(|(now, read)| now.is_none() && read.is_some());
        let looks = match self.changed.take() {
            Some((last, looks)) if last == stamps => looks + 1,
            _ => 0,
        };
        self.changed = Some((stamps, looks));
        looks >= if is_missing { STILL_LOOKS_MISSING } else { STILL_LOOKS }
    }
}

impl<S> Default for Watch<S> {
    fn default() -> Self {
        Self { places: Vec::new(), read: Vec::new(), changed: None }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn watch(stamps: &[Option<u32>]) -> Watch<u32> {
        let mut watch = Watch::default();
        let places = (0..).map(|number: usize| PathBuf::from(number.to_string()));
        assert!(watch.note(places.zip(stamps.iter().copied()).collect()));
        watch
    }

    /// Looks at files whose stamps are these.
    fn look(watch: &mut Watch<u32>, stamps: &[Option<u32>]) -> bool {
        watch
            .look(|path| stamps[path.to_str().and_then(|name| name.parse::<usize>().ok()).expect("a number")])
    }

    #[test]
    fn a_file_is_read_when_it_has_changed_and_then_stayed() {
        let mut watch = watch(&[Some(1), Some(1)]);
        let looks: Vec<bool> = [[1, 1], [2, 1], [3, 1], [3, 2], [3, 2]]
            .iter()
            .map(|[one, other]| look(&mut watch, &[Some(*one), Some(*other)]))
            .collect();
        assert_eq!(looks, [false, false, false, false, true]);
        // As long as nobody reads it, it is due.
        assert!(look(&mut watch, &[Some(3), Some(2)]));
    }

    #[test]
    fn a_file_that_is_missing_has_time_to_come_back() {
        let mut away = watch(&[Some(1)]);
        let looks = (0..7).map(|_| look(&mut away, &[None])).collect::<Vec<_>>();
        assert_eq!(looks, [false, false, false, false, false, true, true]);
        let mut back = watch(&[Some(1)]);
        for now in [None, None, Some(1), None, None, None, None, Some(1), Some(1)] {
            assert!(!look(&mut back, &[now]));
        }
        // A file that was not there before may come, and is read like others.
        let mut new = watch(&[None]);
        assert_eq!([None, Some(1), Some(1)].map(|now| look(&mut new, &[now])), [false, false, true]);
    }

    #[test]
    fn a_look_has_a_bounded_number_of_calls() {
        let mut watch = Watch::default();
        let stamps = (0..PLACES_MAX + 1).map(|number| (PathBuf::from(number.to_string()), Some(0)));
        assert!(!watch.note(stamps.collect()));
        let calls = Cell::new(0);
        let look = |_: &Path| {
            calls.set(calls.get() + 1);
            Some(0)
        };
        assert!(!watch.look(look));
        assert_eq!(calls.get(), PLACES_MAX);
    }
}
