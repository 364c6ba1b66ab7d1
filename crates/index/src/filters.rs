//! The table of all filters, each stored once with its subscribers.

use crate::hash::LevelHash;
use crate::subscribers::{Identity, Removal, Subscribers};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// The table is cut into this many, so that growing one moves a 256th of the filters: 4,000 of a million, in well
/// under a millisecond, while readers wait.
const SEGMENTS: usize = 256;

/// A segment that has shrunk to a quarter gives memory back, unless it is as small as this.
const SEGMENT_KEPT_MIN: usize = 7;

/// Filters, with and without wildcards, under the hash of their text.
#[derive(Debug)]
pub(crate) struct Filters<S, O> {
    segments: Box<[HashTable<Filter<S, O>>]>,
    heap_bytes: usize,
}

#[derive(Debug)]
struct Filter<S, O> {
    text: Box<str>,
    subscribers: Subscribers<S, O>,
}

/// What a subscription was to the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Insertion<O> {
    /// The first to this filter.
    NewFilter,
    /// One more to this filter.
    NewSubscriber,
    /// The subscriber had it, with these options.
    Replaced(O),
}

impl<S: Identity + Clone, O: Copy> Filters<S, O> {
    pub(crate) fn new() -> Self {
        Self { segments: (0..SEGMENTS).map(|_| HashTable::new()).collect(), heap_bytes: 0 }
    }

    /// The subscribers of the filter with this hash that `is_it`.
    pub(crate) fn find(&self, hashed: u64, is_it: impl Fn(&str) -> bool) -> Option<&Subscribers<S, O>> {
        let segment = &self.segments[segment_of(hashed)];
        segment.find(hashed, |filter| is_it(&filter.text)).map(|filter| &filter.subscribers)
    }

    pub(crate) fn insert(
        &mut self,
        hashed: u64,
        text: &str,
        subscriber: &S,
        options: O,
        hash: &LevelHash,
    ) -> Insertion<O> {
        let segment = &mut self.segments[segment_of(hashed)];
        match segment.entry(hashed, |filter| *filter.text == *text, |filter| hash.filter(&filter.text)) {
            Entry::Occupied(mut filter) => {
                let subscribers = &mut filter.get_mut().subscribers;
                let before = subscribers.heap_bytes();
                let replaced = subscribers.insert(subscriber, options, hash);
                self.heap_bytes = self.heap_bytes + subscribers.heap_bytes() - before;
                replaced.map_or(Insertion::NewSubscriber, Insertion::Replaced)
            }
            Entry::Vacant(gap) => {
                gap.insert(Filter { text: text.into(), subscribers: Subscribers::one(subscriber, options) });
                self.heap_bytes += text.len();
                Insertion::NewFilter
            }
        }
    }

    /// `Last` tells that the filter is gone too.
    pub(crate) fn remove(&mut self, hashed: u64, text: &str, subscriber: &S, hash: &LevelHash) -> Removal<O> {
        let segment = &mut self.segments[segment_of(hashed)];
        let Ok(mut filter) = segment.find_entry(hashed, |filter| *filter.text == *text) else {
            return Removal::NotFound;
        };
        let subscribers = &mut filter.get_mut().subscribers;
        let before = subscribers.heap_bytes();
        let removal = subscribers.remove(subscriber, hash);
        self.heap_bytes = self.heap_bytes + subscribers.heap_bytes() - before;
        if matches!(removal, Removal::Last(_)) {
            filter.remove();
            self.heap_bytes -= text.len();
            if segment.capacity() > SEGMENT_KEPT_MIN && segment.len() < segment.capacity() / 4 {
                segment.shrink_to(segment.len() * 2, |filter| hash.filter(&filter.text));
            }
        }
        removal
    }

    pub(crate) fn len(&self) -> usize {
        self.segments.iter().map(HashTable::len).sum()
    }

    pub(crate) fn bytes(&self) -> usize {
        let tables = self.segments.iter().map(|segment| size_of_val(segment) + segment.allocation_size());
        tables.sum::<usize>() + self.heap_bytes
    }
}

/// From the middle of the hash: the table itself uses both ends.
fn segment_of(hashed: u64) -> usize {
    usize::from(hashed.to_le_bytes()[5])
}
