//! Hashes of filters and topics.

/// The keyed hash of a filter, or of a topic name. Two different filters have the same hash as rarely as two random numbers
/// of 64 bits are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilterHash(pub(crate) u64);

/// The sum of the hashes of several filters, in 32 bits. Two different sets of filters have the same sum as rarely as two
/// random numbers of 32 bits are equal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FilterSum(u32);

impl FilterSum {
    /// The sum with one more filter.
    #[must_use]
    pub fn with(self, filter: FilterHash) -> Self {
        let [a, b, c, d, ..] = filter.0.to_le_bytes();
        Self(self.0.wrapping_add(u32::from_le_bytes([a, b, c, d])))
    }
}

/// The hashes of all filters that match one topic and have a shape of the index.
#[derive(Debug)]
pub struct MatchingFilters {
    topic: FilterHash,
    /// Sorted, for a search by bisection.
    filters: Vec<FilterHash>,
}

impl MatchingFilters {
    pub(crate) fn new(topic: u64, mut filters: Vec<FilterHash>) -> Self {
        filters.push(FilterHash(topic));
        filters.sort_unstable();
        Self { topic: FilterHash(topic), filters }
    }

    /// The hash of the topic name.
    #[must_use]
    pub fn topic(&self) -> FilterHash {
        self.topic
    }

    /// Whether a filter of the index matches the topic.
    #[must_use]
    pub fn contains(&self, filter: FilterHash) -> bool {
        self.filters.binary_search(&filter).is_ok()
    }

    /// All hashes: one for each fitting shape of the index, and the topic's own.
    #[must_use]
    pub fn all(&self) -> &[FilterHash] {
        &self.filters
    }
}
