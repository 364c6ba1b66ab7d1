//! Arrangements of names and wildcards among the filters.

use crate::hash::{LevelHash, give_back};
use crate::hashed_topic::HashedTopic;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use topic::TopicFilter;

/// The shapes of all filters with wildcards.
///
/// The shape of a filter is the positions of its wildcards: `a/+/c` and `x/+/z` have one shape, `a/+/#` has another. A
/// topic and a shape make exactly one filter: the topic with the wildcards put in. A topic is matched by making this
/// filter for each shape that fits, and looking it up. Only the hash of the filter is made: this costs an addition per
/// `+`, and one probe of the table. The number of shapes depends on the design of the topics, and is a dozen or two,
/// however many filters there are.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    /// Shapes without `#`, by number of levels. They fit topics with the same number.
    closed: Groups,
    /// Shapes with `#`, by number of levels before it. They fit topics with at least as many.
    open: Groups,
    /// Number of deep shapes.
    deep: usize,
}

/// A shape with more levels is deep. A topic fits fewer than 2⁶ shapes without `#` that are not deep, and fewer than 2
/// × 2⁶ with `#`: fewer than 200 together. Only deep shapes can be numerous enough to make a lookup slow.
pub const SHALLOW_LEVELS_MAX: usize = 6;

/// Distinguishes the shapes of filters with more than [`SHALLOW_LEVELS_MAX`] levels, as surely as a keyed hash of 64
/// bits does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeepShape(u64);

impl DeepShape {
    pub(crate) fn of(filter: TopicFilter<'_>, hash: &LevelHash) -> Option<Self> {
        let (is_open, levels) = ending_of(filter).filter(|(_, levels)| *levels > SHALLOW_LEVELS_MAX)?;
        let ending = hash.level(levels, if is_open { "#" } else { "" });
        Some(Self(ending.wrapping_add(hash_of_pluses(&pluses_in(filter), hash))))
    }
}

/// The last is never empty. Filters have at most 65,536 levels, so that this takes at most 2 MB.
#[derive(Debug, Default)]
struct Groups(Vec<Group>);

/// Shapes that differ only in the positions of their `+`, under the hash of these positions.
type Group = HashTable<CountedShape>;

#[derive(Debug)]
struct CountedShape {
    pluses: Box<[u16]>,
    filters: usize,
}

/// Positions of the wildcards of a filter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape<'a> {
    /// Positions of `+`, ascending.
    pluses: &'a [u16],
    /// Number of levels without `#`.
    levels: usize,
    /// Whether `#` follows these levels.
    open: bool,
}

impl Shapes {
    /// Adds a filter. Filters without wildcards have no shape and are ignored.
    pub(crate) fn add(&mut self, filter: TopicFilter<'_>, hash: &LevelHash) {
        if let Some((groups, levels)) = self.groups_of(filter)
            && groups.add(levels, pluses_in(filter), hash)
            && levels > SHALLOW_LEVELS_MAX
        {
            self.deep += 1;
        }
    }

    /// Removes a filter that was added before.
    pub(crate) fn remove(&mut self, filter: TopicFilter<'_>, hash: &LevelHash) {
        if let Some((groups, levels)) = self.groups_of(filter)
            && groups.remove(levels, &pluses_in(filter), hash)
            && levels > SHALLOW_LEVELS_MAX
        {
            self.deep -= 1;
        }
    }

    /// Returns the present number of deep shapes, if this filter would add another one.
    pub(crate) fn would_deepen(&self, filter: TopicFilter<'_>, hash: &LevelHash) -> Option<usize> {
        let (is_open, levels) = ending_of(filter)?;
        if levels <= SHALLOW_LEVELS_MAX {
            return None;
        }
        let groups = if is_open { &self.open } else { &self.closed };
        (!groups.contains(levels, &pluses_in(filter), hash)).then_some(self.deep)
    }

    /// Calls `candidate` with each shape that fits, and with the hash of the filter that the shape makes of the topic.
    pub(crate) fn for_each_fitting(
        &self,
        topic: &HashedTopic<'_>,
        hash: &LevelHash,
        mut candidate: impl FnMut(u64, Shape<'_>),
    ) {
        let count = topic.level_count();
        if let Some(group) = self.closed.0.get(count) {
            let names = topic.prefix_hash(count);
            for_each_in(group, topic, |sum, pluses| {
                candidate(names.wrapping_add(sum), Shape { pluses, levels: count, open: false });
            });
        }
        let shortest = usize::from(topic.name().is_reserved());
        for (levels, group) in self.open.0.iter().enumerate().take(count + 1).skip(shortest) {
            if !group.is_empty() {
                let names = topic.prefix_hash(levels).wrapping_add(hash.level(levels, "#"));
                for_each_in(group, topic, |sum, pluses| {
                    candidate(names.wrapping_add(sum), Shape { pluses, levels, open: true });
                });
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.groups().map(HashTable::len).sum()
    }

    /// Size on the heap, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        let tables = (self.closed.0.capacity() + self.open.0.capacity()) * size_of::<Group>();
        let in_groups = self.groups().map(|group| {
            let pluses = group.iter().map(|shape| size_of_val(&*shape.pluses));
            group.allocation_size() + pluses.sum::<usize>()
        });
        tables + in_groups.sum::<usize>()
    }

    fn groups(&self) -> impl Iterator<Item = &Group> {
        self.closed.0.iter().chain(&self.open.0)
    }

    /// The groups for filters that end like this one, and its levels without `#`; `None` if it has no wildcard.
    fn groups_of(&mut self, filter: TopicFilter<'_>) -> Option<(&mut Groups, usize)> {
        let (is_open, levels) = ending_of(filter)?;
        Some((if is_open { &mut self.open } else { &mut self.closed }, levels))
    }
}

/// Whether a filter ends with `#`, and its levels without that; `None` if it has no wildcard.
fn ending_of(filter: TopicFilter<'_>) -> Option<(bool, usize)> {
    if !filter.has_wildcard() {
        None
    } else if filter.as_str().ends_with('#') {
        Some((true, filter.level_count() - 1))
    } else {
        Some((false, filter.level_count()))
    }
}

impl Groups {
    fn contains(&self, levels: usize, pluses: &[u16], hash: &LevelHash) -> bool {
        let group = self.0.get(levels);
        group.is_some_and(|group| {
            group.find(hash_of_pluses(pluses, hash), |shape| *shape.pluses == *pluses).is_some()
        })
    }

    /// Adds a filter. Returns whether its shape is new.
    fn add(&mut self, levels: usize, pluses: Vec<u16>, hash: &LevelHash) -> bool {
        if levels >= self.0.len() {
            self.0.resize_with(levels + 1, Group::new);
        }
        let hash_of = |shape: &CountedShape| hash_of_pluses(&shape.pluses, hash);
        match self.0[levels].entry(hash_of_pluses(&pluses, hash), |shape| *shape.pluses == *pluses, hash_of) {
            Entry::Occupied(mut shape) => {
                shape.get_mut().filters += 1;
                false
            }
            Entry::Vacant(gap) => {
                gap.insert(CountedShape { pluses: pluses.into_boxed_slice(), filters: 1 });
                true
            }
        }
    }

    /// Removes a filter. Returns whether its shape is gone.
    fn remove(&mut self, levels: usize, pluses: &[u16], hash: &LevelHash) -> bool {
        let Some(group) = self.0.get_mut(levels) else { return false };
        let found = group.find_entry(hash_of_pluses(pluses, hash), |shape| *shape.pluses == *pluses);
        let Ok(mut shape) = found else { return false };
        shape.get_mut().filters -= 1;
        if shape.get().filters > 0 {
            return false;
        }
        shape.remove();
        give_back(group, |shape| hash_of_pluses(&shape.pluses, hash));
        let kept = self.0.iter().rposition(|group| !group.is_empty()).map_or(0, |last| last + 1);
        self.0.truncate(kept);
        if kept == 0 || kept < self.0.capacity() / 4 {
            self.0.shrink_to(kept * 2);
        }
        true
    }
}

fn for_each_in(group: &Group, topic: &HashedTopic<'_>, mut candidate: impl FnMut(u64, &[u16])) {
    for shape in group {
        let leading_wildcard = shape.pluses.first() == Some(&0);
        if !(leading_wildcard && topic.name().is_reserved()) {
            candidate(topic.with_pluses(&shape.pluses), &shape.pluses);
        }
    }
}

impl Shape<'_> {
    /// Whether this shape, which fits `topic`, makes `filter` of it.
    pub(crate) fn makes(&self, filter: TopicFilter<'_>, topic: &HashedTopic<'_>) -> bool {
        let names = topic.prefix_text(self.levels);
        let mut rest = filter.as_str().as_bytes();
        let mut compared = 0;
        for position in self.pluses {
            let (start, end) = topic.level(usize::from(*position));
            let after_names = rest.strip_prefix(&names[compared..start]);
            let Some(after_plus) = after_names.and_then(|rest| rest.strip_prefix(b"+")) else { return false };
            rest = after_plus;
            compared = end;
        }
        let Some(ending) = rest.strip_prefix(&names[compared..]) else { return false };
        match (self.open, self.levels) {
            (false, _) => ending.is_empty(),
            (true, 0) => ending == b"#",
            (true, _) => ending == b"/#",
        }
    }
}

/// Peers choose the shapes too.
fn hash_of_pluses(pluses: &[u16], hash: &LevelHash) -> u64 {
    pluses.iter().fold(0, |sum, position| sum.wrapping_add(hash.plus(usize::from(*position))))
}

fn pluses_in(filter: TopicFilter<'_>) -> Vec<u16> {
    let levels = filter.levels().enumerate();
    let pluses = levels.filter(|(_, level)| *level == "+").map(|(position, _)| position);
    pluses.map(|position| u16::try_from(position).expect("a filter has at most 65,535 bytes")).collect()
}

#[cfg(test)]
mod tests {
    use topic::TopicName;

    use super::*;

    /// Returns every arrangement of `+` in a filter with this number of levels of this name, with `#` behind it or not.
    fn filters(levels: u32, open: bool) -> impl Iterator<Item = String> {
        (0..1_u32 << levels).map(move |mask| {
            let level = |position| if mask & (1_u32 << position) == 0 { "elsewhere" } else { "+" };
            let ending = open.then_some("#");
            (0..levels).map(level).chain(ending).collect::<Vec<_>>().join("/")
        })
    }

    /// A look-up costs a probe for each, whatever clients subscribe to, and whether or not anything matches.
    #[test]
    fn a_topic_fits_a_bounded_number_of_shapes_with_few_levels() {
        let (mut shapes, hash) = (Shapes::default(), LevelHash::new([1, 2]));
        let all =
            (1..=6).flat_map(|levels| filters(levels, false)).chain((0..=6).flat_map(|n| filters(n, true)));
        for filter in all {
            shapes.add(TopicFilter::new(&filter).expect("a filter"), &hash);
        }
        let probes = |name: &str, shapes: &Shapes| {
            let topic = HashedTopic::new(TopicName::new(name).expect("a topic"), &hash);
            let mut probes = 0;
            shapes.for_each_fitting(&topic, &hash, |_, _| probes += 1);
            probes
        };
        assert_eq!(probes("a/b/c/d/e/f", &shapes), 190);
        assert_eq!(probes("a", &shapes), 4);
        // Deeper shapes count one by one, for topics with as many levels.
        for deep in ["+/x/x/x/x/x/x", "x/+/x/x/x/x/x", "x/+/x/x/x/x/x/x"] {
            shapes.add(TopicFilter::new(deep).expect("a filter"), &hash);
        }
        assert_eq!(probes("a/b/c/d/e/f", &shapes), 190);
        assert_eq!(probes("a/b/c/d/e/f/g", &shapes), 127 + 2);
    }
}
