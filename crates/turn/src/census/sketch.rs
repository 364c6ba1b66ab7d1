//! The names with the most of something, in bounded memory.
//!
//! The algorithm is *space-saving* (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k Elements in Data
//! Streams", 2005). A new name takes the place of the name with the least, and inherits its count. No count is too low, and none
//! is too high by more than the least one. A name with more than a 128th of everything is always in the list.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

/// Maximum number of names.
const ENTRIES: usize = 128;
/// Hashes that are compared in one step.
const HASHES_AT_A_TIME: usize = 16;
/// Maximum length of a name, in bytes. Longer names with the same beginning count as one.
const NAME_BYTES_MAX: usize = 256;

/// A name with its count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked {
    /// The name, or the first 256 bytes of a longer one.
    pub name: Box<str>,
    /// The count, by which the list is ordered.
    pub count: u64,
    /// Bytes since the name is in the list.
    pub bytes: u64,
    /// The true count differs by at most this.
    pub uncertain: u64,
}

/// Counts of names, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct Sketch {
    /// A part of the hash of each name, in the order of `ranked`. Few enough to be searched one by one, some at a time.
    hashes: Vec<[u32; HASHES_AT_A_TIME]>,
    ranked: Vec<Ranked>,
    /// No name of a full list has less: counts only grow.
    floor: u64,
    /// The place at which the search for a name with that count goes on.
    next: usize,
}

impl Sketch {
    pub(super) fn add(&mut self, name: &str, count: u64, bytes: u64) {
        let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
        #[expect(clippy::cast_possible_truncation, reason = "names with the same part are compared")]
        let hash = FixedState::default().hash_one(name) as u32;
        if let Some(place) = self.place_of(name, hash) {
            let ranked = &mut self.ranked[place];
            ranked.count += count;
            ranked.bytes += bytes;
            return;
        }
        let mut ranked = Ranked { name: name.into(), count, bytes, uncertain: 0 };
        let place = self.ranked.len();
        if place < ENTRIES {
            if place.is_multiple_of(HASHES_AT_A_TIME) {
                self.hashes.push([0; HASHES_AT_A_TIME]);
            }
            self.set_hash(place, hash);
            self.ranked.push(ranked);
            return;
        }
        let place = self.find_least();
        let least = self.ranked[place].count;
        ranked.count += least;
        ranked.uncertain = least;
        self.set_hash(place, hash);
        self.ranked[place] = ranked;
    }

    fn place_of(&self, name: &str, hash: u32) -> Option<usize> {
        let parts = self.hashes.iter().zip((0..).step_by(HASHES_AT_A_TIME));
        let mut parts =
            parts.filter(|(part, _)| part.iter().fold(false, |has, known| has | (*known == hash)));
        parts.find_map(|(part, first)| {
            let is_it = |place: &usize| self.ranked.get(*place).is_some_and(|ranked| *ranked.name == *name);
            let places = part.iter().zip(first..).filter(|(known, _)| **known == hash);
            places.map(|(_, place)| place).find(is_it)
        })
    }

    fn set_hash(&mut self, place: usize, hash: u32) {
        self.hashes[place / HASHES_AT_A_TIME][place % HASHES_AT_A_TIME] = hash;
    }

    /// The place of a name with the least count, of a full list. New names come one after the other, and each makes one name
    /// with the least count fewer: the search goes on where it was.
    fn find_least(&mut self) -> usize {
        let place = self.next_at_floor().unwrap_or_else(|| {
            (self.floor, self.next) = (self.least(), 0);
            self.next_at_floor().expect("a name has the least count")
        });
        self.next = place + 1;
        place
    }

    fn next_at_floor(&self) -> Option<usize> {
        let rest = self.ranked[self.next..].iter();
        rest.zip(self.next..).find_map(|(ranked, place)| (ranked.count <= self.floor).then_some(place))
    }

    /// The least count of a list that is not empty.
    fn least(&self) -> u64 {
        self.ranked.iter().map(|ranked| ranked.count).min().expect("a full list has entries")
    }

    /// The list as it is, in any order.
    pub(super) fn ranking(&self) -> Ranking {
        let floor = if self.ranked.len() < ENTRIES { 0 } else { self.least() };
        Ranking { floor, ranked: self.ranked.clone() }
    }
}

/// A list of names with their counts, in any order.
#[derive(Debug, Clone, Default)]
pub struct Ranking {
    /// Maximum count of a name that is not in the list.
    floor: u64,
    ranked: Vec<Ranked>,
}

impl Ranking {
    /// Adds the counts of another part of everything.
    pub fn merge(&mut self, other: Self) {
        let mut left: HashMap<Box<str>, Ranked> =
            other.ranked.into_iter().map(|ranked| (ranked.name.clone(), ranked)).collect();
        for own in &mut self.ranked {
            match left.remove(&own.name) {
                Some(others) => {
                    own.count += others.count;
                    own.bytes += others.bytes;
                    own.uncertain += others.uncertain;
                }
                None => own.uncertain += other.floor,
            }
        }
        let floor = self.floor;
        let added = left.into_values().map(|others| Ranked { uncertain: others.uncertain + floor, ..others });
        self.ranked.extend(added);
        self.floor += other.floor;
    }

    /// The names with the highest counts, at most `most`. Names with the same count are in the order of their bytes.
    #[must_use]
    pub fn first(mut self, most: usize) -> Vec<Ranked> {
        self.ranked.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.name.cmp(&b.name)));
        self.ranked.truncate(most);
        self.ranked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_names_are_there_with_their_bounds_whatever_else_comes() {
        let mut sketch = Sketch::default();
        // Two names of ten thousand that come once each; both have much more than a 128th.
        for number in 0..10_000 {
            sketch.add(&format!("once/{number}"), 1, 10);
            if number % 10 == 0 {
                sketch.add("often", 3, 30);
            }
            if number % 20 == 0 {
                sketch.add("sometimes", 1, 10);
            }
        }
        let first = sketch.ranking().first(2);
        assert_eq!((&*first[0].name, &*first[1].name), ("often", "sometimes"));
        for (ranked, true_count) in first.iter().zip([3_000, 500]) {
            let range = ranked.count - ranked.uncertain..=ranked.count;
            assert!(range.contains(&true_count), "{ranked:?}");
        }
        assert_eq!(sketch.ranked.len(), ENTRIES);
        // No name that came once has more than the bound of the algorithm.
        let most = (10_000 + 3_000 + 500) / ENTRIES as u64;
        assert!(sketch.ranked.iter().all(|ranked| ranked.uncertain <= most));
    }

    #[test]
    fn a_new_name_takes_the_place_of_one_with_the_least_count() {
        let mut sketch = Sketch::default();
        let mut state = 1_u64;
        for number in 0..20_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (old, weight) = (state >> 50, 1 + (state >> 40) % 7);
            // Names that are there already, and new ones.
            let name = if number % 3 == 0 { format!("{}", old % 200) } else { format!("new/{number}") };
            let is_there = sketch.ranked.iter().any(|ranked| *ranked.name == *name);
            let least = (sketch.ranked.len() == ENTRIES && !is_there).then(|| sketch.least());
            let total = |sketch: &Sketch| sketch.ranked.iter().map(|ranked| ranked.count).sum::<u64>();
            let before = total(&sketch);
            sketch.add(&name, weight, 1);
            assert_eq!(total(&sketch), before + weight, "a place keeps its count, whoever has it");
            if let Some(least) = least {
                let added = sketch.ranked.iter().find(|ranked| *ranked.name == *name).expect("it was added");
                assert_eq!((added.count, added.uncertain), (least + weight, least));
            }
        }
    }

    #[test]
    fn names_with_the_same_part_of_their_hashes_are_told_apart() {
        let mut sketch = Sketch::default();
        sketch.add("a", 1, 1);
        sketch.add("b", 1, 1);
        for hash in [7, 0] {
            sketch.set_hash(0, hash);
            sketch.set_hash(1, hash);
            let places = ["a", "b", "c"].map(|name| sketch.place_of(name, hash));
            assert_eq!(places, [Some(0), Some(1), None]);
        }
    }

    #[test]
    fn lists_of_several_shards_are_added_with_their_doubts() {
        let mut full = Sketch::default();
        (0..ENTRIES).for_each(|number| full.add(&format!("{number}"), 5, 50));
        full.add("a", 2, 20);
        let mut other = Sketch::default();
        other.add("a", 10, 100);
        other.add("b", 1, 1);
        let mut all = full.ranking();
        all.merge(other.ranking());
        let first = all.first(ENTRIES + 1);
        let of = |name: &str| first.iter().find(|ranked| *ranked.name == *name).cloned().expect("listed");
        assert_eq!(first[0], of("a"));
        assert_eq!(of("a"), Ranked { name: "a".into(), count: 17, bytes: 120, uncertain: 5 });
        // It may have been among those of the full list that gave way.
        assert_eq!(of("b"), Ranked { name: "b".into(), count: 1, bytes: 1, uncertain: 5 });
        assert_eq!(of("7"), Ranked { name: "7".into(), count: 5, bytes: 50, uncertain: 0 });
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let mut sketch = Sketch::default();
        sketch.add(&"ü".repeat(200), 1, 1);
        sketch.add(&"ü".repeat(300), 1, 1);
        let first = sketch.ranking().first(9);
        assert_eq!(first.len(), 1);
        assert_eq!((first[0].name.len(), first[0].count), (NAME_BYTES_MAX, 2));
    }
}
