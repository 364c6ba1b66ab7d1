//! The subscription index of an MQTT broker, which finds the subscribers of a topic.
//!
//! One [`Index`] serves all threads of a broker. It is read for a PUBLISH whose route is not cached, and written once
//! a turn with the changed subscriptions of that turn:
//!
//! ```
//! # use index::{Applied, Change, Index};
//! # use topic::{filter, topic};
//! let index: Index<u64, u8> = Index::new([1, 2]); // a broker uses random seeds
//! let mut applied = Vec::new();
//! index.apply([Change::Subscribe { filter: filter!("sensor/+/heat"), subscriber: &7, options: 1 }], &mut applied);
//! assert_eq!(applied, [Applied::New]);
//!
//! let topic = topic!("sensor/kitchen/heat");
//! let generation = index.generation(topic); // before the lookup
//! let mut route = Vec::new();
//! index.for_each_match(topic, |subscriber, options| route.push((*subscriber, *options)));
//! assert_eq!(route, [(7, 1)]);
//! assert!(index.is_current(generation)); // two loads for each later PUBLISH on this route
//! ```
//!
//! # Structure
//! Every filter, with or without wildcards, is stored once in one hash table under its text. Beside it stands the set
//! of *shapes*: the positions of the wildcards in the filters. A topic is looked up as it is, and once for every shape that
//! fits it, with the wildcards put in. There is no tree: no nodes to store, to follow or to free.
//!
//! # Effects of a hostile peer
//! - **Time.** A lookup costs the topic's length, and for each distinct shape that fits the topic one probe and one
//!   addition per `+`. A topic of *n* levels fits fewer than 3 × 2ⁿ shapes: no set of subscriptions adds more than 94
//!   probes to topics of five levels. The caller bounds the number of shapes with more levels than
//!   [`SHALLOW_LEVELS_MAX`], with [`Index::would_deepen`]. Nothing is recursive.
//! - **Collisions.** The hash is keyed with the seeds given to [`Index::new`], which nobody outside may know.
//! - **Memory.** Removed subscriptions free their memory. Tables and lists that have shrunk to a quarter are made smaller.
//!   [`Index::bytes`] returns the size.
//! - **Waiting.** Readers wait while [`Index::apply`] works through one batch, so its caller bounds the batch. Tables
//!   grow in 256 parts, each of which is small.
//!
//! `cargo bench -p pondhawk-index` measures all of this, from a thousand subscriptions to a million.

#![forbid(unsafe_code)]

mod filter_hash;
mod filters;
mod generation;
mod hash;
mod hashed_topic;
mod shapes;
mod subscribers;
mod sync;
mod targets;

pub use filter_hash::{FilterHash, FilterSum, MatchingFilters};
pub use generation::Generation;
pub use targets::{Subscriptions, Target, Targets};

use base::Identity;
use filters::{Filters, Insertion};
use generation::{Concerns, Generations};
use hash::LevelHash;
use hashed_topic::HashedTopic;
use shapes::Shapes;
pub use shapes::{DeepShape, SHALLOW_LEVELS_MAX};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use subscribers::{Removal, Subscribers};
use topic::{TopicFilter, TopicName};

/// Filters with their subscribers and options.
///
/// `S` is a cheap handle, such as an `Arc`. `O` is the granted options of a subscription, kept small because there is
/// one for each subscription. A subscription identifier (28 bits), a QoS (2), No Local and Retain As Published fit into
/// a `u32`. The smallest entry is an `Arc` with up to eight bytes of options.
#[derive(Debug)]
pub struct Index<S, O> {
    hash: LevelHash,
    generations: Generations,
    tables: RwLock<Tables<S, O>>,
}

#[derive(Debug)]
struct Tables<S, O> {
    filters: Filters<S, O>,
    shapes: Shapes,
    subscriptions: usize,
}

/// One change to the index.
#[derive(Debug)]
pub enum Change<'a, S, O> {
    /// Adds a subscription, or replaces the options of this subscriber's subscription to the same filter.
    Subscribe {
        /// The filter. For a shared subscription, the part behind `$share/{group}/` counts.
        filter: TopicFilter<'a>,
        /// Handle of the subscriber, cloned if it is new to the filter.
        subscriber: &'a S,
        /// Options of the subscription, which each match returns.
        options: O,
    },
    /// Removes a subscription from the index.
    Unsubscribe {
        /// The filter of the subscription, character for character \[MQTT-3.10.4-1\].
        filter: TopicFilter<'a>,
        /// Any handle of the same [`Identity`].
        subscriber: &'a S,
    },
}

/// A subscription that matches a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match<S, O> {
    /// The filter. Of a shared subscription, it is the part behind `$share/{group}/`.
    pub filter: Arc<str>,
    /// Handle of the subscriber.
    pub subscriber: S,
    /// Options that were granted to the subscriber.
    pub options: O,
}

/// Effect of a [`Change`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied<O> {
    /// The subscription is new.
    New,
    /// The subscription existed, with these options.
    Replaced(O),
    /// The subscription is removed; these were its options.
    Removed(O),
    /// There was no such subscription.
    NotFound,
}

impl<S: Identity + Clone, O: Copy> Index<S, O> {
    /// An empty index. The seeds key its hashes: they must be random, and secret from subscribers and publishers.
    pub fn new(seeds: [u64; 2]) -> Self {
        Self {
            hash: LevelHash::new(seeds),
            generations: Generations::new(),
            tables: RwLock::new(Tables {
                filters: Filters::new(),
                shapes: Shapes::default(),
                subscriptions: 0,
            }),
        }
    }

    /// Applies all `changes` in their order under one lock, and appends the effect of each to `applied`.
    ///
    /// Readers wait meanwhile, so the caller must bound the batch. `changes` must not use this index while it is
    /// iterated over.
    pub fn apply<'a>(
        &self,
        changes: impl IntoIterator<Item = Change<'a, S, O>>,
        applied: &mut Vec<Applied<O>>,
    ) where
        S: 'a,
    {
        let mut tables = self.write();
        for change in changes {
            applied.push(self.apply_one(&mut tables, &change));
        }
    }

    /// Calls `visit` for each subscription that matches `topic`, in no particular order.
    ///
    /// A subscriber with several matching filters is visited for each of them. `visit` runs under the read lock: it
    /// must not use this index, and should only store its arguments.
    pub fn for_each_match(&self, topic: TopicName<'_>, mut visit: impl FnMut(&S, &O)) {
        self.for_each_matching_filter(topic, |_, _, subscribers| subscribers.for_each(&mut visit));
    }

    /// The subscriptions that match `topic`, from number `from` on, in pieces: at most `count`, and the number of the next one.
    ///
    /// Subscriptions that change between two pieces can be missed or be there twice. The cost is a look-up for each fitting shape,
    /// and the subscriptions of the piece.
    pub fn matches(
        &self,
        topic: TopicName<'_>,
        from: usize,
        count: usize,
    ) -> (Vec<Match<S, O>>, Option<usize>) {
        let (mut found, mut begin, mut has_more) = (Vec::new(), 0, false);
        self.for_each_matching_filter(topic, |filter, _, subscribers| {
            let (length, room) = (subscribers.len(), count - found.len());
            let first = from.saturating_sub(begin).min(length);
            let count = room.min(length - first);
            has_more |= first + count < length;
            begin += length;
            if count > 0 {
                let filter: Arc<str> = filter.as_str().into();
                found.extend(subscribers.piece(first, count).map(|(subscriber, options)| Match {
                    filter: Arc::clone(&filter),
                    subscriber: subscriber.clone(),
                    options: *options,
                }));
            }
        });
        let next = has_more.then(|| from + found.len());
        (found, next)
    }

    fn for_each_matching_filter(
        &self,
        topic: TopicName<'_>,
        mut visit: impl FnMut(TopicFilter<'_>, FilterHash, &Subscribers<S, O>),
    ) {
        let topic = HashedTopic::new(topic, &self.hash);
        let tables = self.read();
        let name = topic.name().as_str();
        if let Some((filter, subscribers)) =
            tables.filters.find(topic.hash(), |filter| filter.as_str() == name)
        {
            visit(filter, FilterHash(topic.hash()), subscribers);
        }
        tables.shapes.for_each_fitting(&topic, &self.hash, |filter_hash, shape| {
            let found = tables.filters.find(filter_hash, |filter| shape.makes(filter, &topic));
            if let Some((filter, subscribers)) = found {
                visit(filter, FilterHash(filter_hash), subscribers);
            }
        });
    }

    /// The hashes of all filters of this index that match `topic`, and of others that match it. The cost is an addition for
    /// each fitting shape; no filter is compared.
    pub fn matching_filters(&self, topic: TopicName<'_>) -> MatchingFilters {
        let topic = HashedTopic::new(topic, &self.hash);
        let mut filters = Vec::new();
        let tables = self.read();
        let shapes = &tables.shapes;
        shapes.for_each_fitting(&topic, &self.hash, |filter, _| filters.push(FilterHash(filter)));
        MatchingFilters::new(topic.hash(), filters)
    }

    /// The options of a subscriber's subscription to a filter. Costs one look-up, however many subscribers the filter has.
    pub fn options_of(&self, filter: TopicFilter<'_>, subscriber: &S) -> Option<O> {
        let filter = plain(filter);
        let tables = self.read();
        let (_, subscribers) = tables.filters.find(self.hash.filter(filter), |found| found == filter)?;
        subscribers.options_of(subscriber, &self.hash)
    }

    /// The hash of a filter. For a shared subscription, the part behind `$share/{group}/` counts.
    pub fn hash_of_filter(&self, filter: TopicFilter<'_>) -> FilterHash {
        FilterHash(self.hash.filter(plain(filter)))
    }

    /// The hash of a topic name, which is that of the filter with the same text.
    pub fn hash_of_topic(&self, topic: TopicName<'_>) -> FilterHash {
        FilterHash(HashedTopic::new(topic, &self.hash).hash())
    }

    /// The current generation of all subscriptions that can match `topic`. Call this before the lookup whose result is
    /// cached.
    pub fn generation(&self, topic: TopicName<'_>) -> Generation {
        self.generations.of(self.hash.level(0, topic.first_level()))
    }

    /// Whether no subscription that can match the topic of `generation` has changed since. Costs two loads.
    ///
    /// A change to another topic also returns `false` if both first levels are equal or share one of 1,024 slots.
    pub fn is_current(&self, generation: Generation) -> bool {
        self.generations.is_current(generation)
    }

    /// Invalidates routes through these filters, because the state behind a subscriber's handle has changed. Nobody
    /// waits for it.
    pub fn touch<'a>(&self, filters: impl IntoIterator<Item = TopicFilter<'a>>) {
        filters.into_iter().for_each(|filter| self.generations.raise(self.concerns(plain(filter))));
    }

    /// Invalidates all routes, for a subscriber with very many filters. Each route costs one lookup.
    pub fn touch_all(&self) {
        self.generations.raise(Concerns::Everything);
    }

    /// Returns the number of subscriptions.
    pub fn len(&self) -> usize {
        self.read().subscriptions
    }

    /// Whether there is no subscription.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of different filters.
    pub fn filters(&self) -> usize {
        self.read().filters.len()
    }

    /// Number of different shapes among filters with wildcards. The cost of a lookup grows with it.
    pub fn shapes(&self) -> usize {
        self.read().shapes.len()
    }

    /// Number of different shapes with more than [`SHALLOW_LEVELS_MAX`] levels, if this filter would add another one.
    ///
    /// A topic of many levels is looked up once for each of these shapes that fits: a server must bound their number.
    pub fn would_deepen(&self, filter: TopicFilter<'_>) -> Option<usize> {
        // A filter without wildcards needs no lock.
        let filter = Some(plain(filter)).filter(|filter| filter.has_wildcard())?;
        self.read().shapes.would_deepen(filter, &self.hash)
    }

    /// The shape of a filter with wildcards and more than [`SHALLOW_LEVELS_MAX`] levels. A server bounds their number
    /// for each client.
    pub fn deep_shape(&self, filter: TopicFilter<'_>) -> Option<DeepShape> {
        let filter = Some(plain(filter)).filter(|filter| filter.has_wildcard())?;
        DeepShape::of(filter, &self.hash)
    }

    /// Size in bytes, without the allocator's overhead and without the objects behind the subscribers' handles.
    ///
    /// Walks the 256 parts of the table and the shapes.
    pub fn bytes(&self) -> usize {
        let tables = self.read();
        size_of::<Self>() + Generations::HEAP_BYTES + tables.filters.heap_bytes() + tables.shapes.heap_bytes()
    }

    fn apply_one(&self, tables: &mut Tables<S, O>, change: &Change<'_, S, O>) -> Applied<O> {
        let (filter, applied) = match *change {
            Change::Subscribe { filter, subscriber, options } => {
                let filter = plain(filter);
                (filter, tables.subscribe(filter, subscriber, options, &self.hash))
            }
            Change::Unsubscribe { filter, subscriber } => {
                let filter = plain(filter);
                (filter, tables.unsubscribe(filter, subscriber, &self.hash))
            }
        };
        if !matches!(applied, Applied::NotFound) {
            // Within the write lock: rule 12 of `protocol::order`.
            self.generations.raise(self.concerns(filter));
        }
        applied
    }

    fn concerns(&self, filter: TopicFilter<'_>) -> Concerns {
        match filter.first_level() {
            "+" | "#" => Concerns::Everything,
            name => Concerns::FirstLevel(self.hash.level(0, name)),
        }
    }

    // A panic under the lock can only come from the caller's iterator or from cloning a handle. The tables are not
    // touched then, and a poisoned lock is no reason to stop.
    fn read(&self) -> RwLockReadGuard<'_, Tables<S, O>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tables<S, O>> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Identity + Clone, O: Copy> Tables<S, O> {
    fn subscribe(
        &mut self,
        filter: TopicFilter<'_>,
        subscriber: &S,
        options: O,
        hash: &LevelHash,
    ) -> Applied<O> {
        let insertion = self.filters.insert(hash.filter(filter), filter, subscriber, options, hash);
        if matches!(insertion, Insertion::NewFilter) {
            self.shapes.add(filter, hash);
        }
        match insertion {
            Insertion::NewFilter | Insertion::NewSubscriber => {
                self.subscriptions += 1;
                Applied::New
            }
            Insertion::Replaced(options) => Applied::Replaced(options),
        }
    }

    fn unsubscribe(&mut self, filter: TopicFilter<'_>, subscriber: &S, hash: &LevelHash) -> Applied<O> {
        let removal = self.filters.remove(hash.filter(filter), filter, subscriber, hash);
        if matches!(removal, Removal::Last(_)) {
            self.shapes.remove(filter, hash);
        }
        match removal {
            Removal::NotFound => Applied::NotFound,
            Removal::Removed(options) | Removal::Last(options) => {
                self.subscriptions -= 1;
                Applied::Removed(options)
            }
        }
    }
}

/// The matching part of a shared filter is behind `$share/{group}/`.
fn plain(filter: TopicFilter<'_>) -> TopicFilter<'_> {
    filter.shared().map_or(filter, |shared| shared.filter)
}
