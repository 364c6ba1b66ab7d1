//! The table of all filters. Each filter is stored once with its subscribers.

use crate::hash::{LevelHash, give_back};
use crate::subscribers::{Removal, Subscribers};
use base::Identity;
use hashbrown::HashTable;
use hashbrown::hash_table;
use topic::{TopicFilter, TopicFilterBuf};

/// Number of parts of the table. While one part grows, readers wait until a 256th of the filters has moved: 4,000 of a
/// million.
const SEGMENTS: usize = 256;

/// Filters, with and without wildcards, under the hash of their text.
#[derive(Debug)]
pub(crate) struct Filters<S, O> {
    segments: Box<[HashTable<Entry<S, O>>]>,
    heap_bytes: usize,
}

#[derive(Debug)]
struct Entry<S, O> {
    filter: TopicFilterBuf,
    subscribers: Subscribers<S, O>,
}

/// Effect of a new subscription on the table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Insertion<O> {
    /// The filter is new.
    NewFilter,
    /// The filter has one subscriber more.
    NewSubscriber,
    /// The subscriber had a subscription, with these options.
    Replaced(O),
}

impl<S: Identity + Clone, O: Copy> Filters<S, O> {
    pub(crate) fn new() -> Self {
        Self { segments: (0..SEGMENTS).map(|_| HashTable::new()).collect(), heap_bytes: 0 }
    }

    /// The filter with this hash for which `is_it` is true, and its subscribers.
    pub(crate) fn find(
        &self,
        hashed: u64,
        is_it: impl Fn(TopicFilter<'_>) -> bool,
    ) -> Option<(TopicFilter<'_>, &Subscribers<S, O>)> {
        let segment = &self.segments[segment_of(hashed)];
        segment
            .find(hashed, |entry| is_it(entry.filter.filter()))
            .map(|entry| (entry.filter.filter(), &entry.subscribers))
    }

    pub(crate) fn insert(
        &mut self,
        hashed: u64,
        filter: TopicFilter<'_>,
        subscriber: &S,
        options: O,
        hash: &LevelHash,
    ) -> Insertion<O> {
        let segment = &mut self.segments[segment_of(hashed)];
        match segment.entry(
            hashed,
            |entry| entry.filter.filter() == filter,
            |entry| hash.filter(entry.filter.filter()),
        ) {
            hash_table::Entry::Occupied(mut entry) => {
                let subscribers = &mut entry.get_mut().subscribers;
                let before = subscribers.heap_bytes();
                let replaced = subscribers.insert(subscriber, options, hash);
                self.heap_bytes = self.heap_bytes + subscribers.heap_bytes() - before;
                replaced.map_or(Insertion::NewSubscriber, Insertion::Replaced)
            }
            hash_table::Entry::Vacant(gap) => {
                gap.insert(Entry {
                    filter: filter.into(),
                    subscribers: Subscribers::one(subscriber, options),
                });
                self.heap_bytes += filter.as_str().len();
                Insertion::NewFilter
            }
        }
    }

    /// `Last` means that the filter is removed too.
    pub(crate) fn remove(
        &mut self,
        hashed: u64,
        filter: TopicFilter<'_>,
        subscriber: &S,
        hash: &LevelHash,
    ) -> Removal<O> {
        let segment = &mut self.segments[segment_of(hashed)];
        let Ok(mut entry) = segment.find_entry(hashed, |entry| entry.filter.filter() == filter) else {
            return Removal::NotFound;
        };
        let subscribers = &mut entry.get_mut().subscribers;
        let before = subscribers.heap_bytes();
        let removal = subscribers.remove(subscriber, hash);
        self.heap_bytes = self.heap_bytes + subscribers.heap_bytes() - before;
        if matches!(removal, Removal::Last(_)) {
            entry.remove();
            self.heap_bytes -= filter.as_str().len();
            give_back(segment, |entry| hash.filter(entry.filter.filter()));
        }
        removal
    }

    pub(crate) fn len(&self) -> usize {
        self.segments.iter().map(HashTable::len).sum()
    }

    /// Size on the heap, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        let tables = self.segments.iter().map(|segment| size_of_val(segment) + segment.allocation_size());
        tables.sum::<usize>() + self.heap_bytes
    }
}

/// Bits from the middle of the hash: the table itself uses both ends.
fn segment_of(hashed: u64) -> usize {
    usize::from(hashed.to_le_bytes()[5])
}
