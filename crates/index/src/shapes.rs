//! Which mixes of names and wildcards there are among the filters.

use crate::hash::LevelHash;
use crate::topic_hash::TopicHash;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::collections::BTreeMap;

/// The shapes of all filters with wildcards.
///
/// The shape of a filter is where its wildcards stand: `a/+/c` and `x/+/z` have one shape, `a/+/#` has another. A topic
/// and a shape make exactly one filter: the topic with the wildcards put in. So a topic is matched by making that
/// filter for every shape that fits and looking it up; and since only its hash is made, that is an addition per `+`
/// and one probe of the table. There are as many shapes as the designers of the topics had ideas, a dozen or two,
/// however many filters there are.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    /// Without `#`, by number of levels: they fit topics with as many.
    closed: BTreeMap<usize, Group>,
    /// With `#`, by number of levels before it: they fit topics with as many or more.
    open: BTreeMap<usize, Group>,
}

/// Shapes that differ only in where their `+` stand, under the hash of that.
type Group = HashTable<CountedShape>;

#[derive(Debug)]
struct CountedShape {
    pluses: Box<[u16]>,
    filters: usize,
}

/// Where the wildcards of a filter stand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape<'a> {
    /// Positions of `+`, ascending.
    pluses: &'a [u16],
    /// The position of `#`, if it ends with one.
    hash_sign: Option<usize>,
}

impl Shapes {
    /// Counts one more filter. Filters without wildcards have no shape and are passed over.
    pub(crate) fn add(&mut self, filter: &str, hash: &LevelHash) {
        let Some((groups, levels)) = self.groups_of(filter) else { return };
        let pluses = pluses_in(filter);
        let group = groups.entry(levels).or_default();
        let hash_of = |shape: &CountedShape| hash_of_pluses(&shape.pluses, hash);
        match group.entry(hash_of_pluses(&pluses, hash), |shape| *shape.pluses == *pluses, hash_of) {
            Entry::Occupied(mut shape) => shape.get_mut().filters += 1,
            Entry::Vacant(gap) => {
                gap.insert(CountedShape { pluses: pluses.into_boxed_slice(), filters: 1 });
            }
        }
    }

    /// Counts one filter less, that was added before.
    pub(crate) fn remove(&mut self, filter: &str, hash: &LevelHash) {
        let Some((groups, levels)) = self.groups_of(filter) else { return };
        let pluses = pluses_in(filter);
        let Some(group) = groups.get_mut(&levels) else { return };
        if let Ok(mut shape) =
            group.find_entry(hash_of_pluses(&pluses, hash), |shape| *shape.pluses == *pluses)
        {
            shape.get_mut().filters -= 1;
            if shape.get().filters == 0 {
                shape.remove();
                group.shrink_to(group.len() * 2, |shape| hash_of_pluses(&shape.pluses, hash));
            }
        }
        if group.is_empty() {
            groups.remove(&levels);
        }
    }

    /// Calls `candidate` with every shape that fits, and the hash of the filter that it makes of the topic.
    pub(crate) fn for_each_fitting(
        &self,
        topic: &TopicHash,
        hash: &LevelHash,
        mut candidate: impl FnMut(u64, Shape<'_>),
    ) {
        if let Some(group) = self.closed.get(&topic.levels()) {
            let names = topic.prefix(topic.levels());
            for_each_in(group, topic, |sum, pluses| {
                candidate(names.wrapping_add(sum), Shape { pluses, hash_sign: None });
            });
        }
        for (levels, group) in self.open.range(usize::from(topic.is_hidden())..=topic.levels()) {
            let names = topic.prefix(*levels).wrapping_add(hash.level(*levels, "#"));
            let hash_sign = Some(*levels);
            for_each_in(group, topic, |sum, pluses| {
                candidate(names.wrapping_add(sum), Shape { pluses, hash_sign });
            });
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.closed.values().chain(self.open.values()).map(HashTable::len).sum()
    }

    pub(crate) fn bytes(&self) -> usize {
        let groups = self.closed.values().chain(self.open.values());
        let in_groups = groups.map(|group| {
            let pluses = group.iter().map(|shape| size_of_val(&*shape.pluses));
            size_of::<(usize, Group)>() + group.allocation_size() + pluses.sum::<usize>()
        });
        in_groups.sum()
    }

    /// The groups for filters that end like this one, and its levels without `#`; `None` if it has no wildcard.
    fn groups_of(&mut self, filter: &str) -> Option<(&mut BTreeMap<usize, Group>, usize)> {
        let levels = filter.split('/').count();
        if filter.ends_with('#') {
            Some((&mut self.open, levels - 1))
        } else {
            filter.contains('+').then_some((&mut self.closed, levels))
        }
    }
}

fn for_each_in(group: &Group, topic: &TopicHash, mut candidate: impl FnMut(u64, &[u16])) {
    for shape in group {
        let leading_wildcard = shape.pluses.first() == Some(&0);
        if !(leading_wildcard && topic.is_hidden()) {
            candidate(topic.with_pluses(&shape.pluses), &shape.pluses);
        }
    }
}

impl Shape<'_> {
    /// Whether `filter` is what this shape, which fits `topic`, makes of it.
    pub(crate) fn makes(&self, filter: &str, topic: &str) -> bool {
        let mut pluses = self.pluses.iter().map(|position| usize::from(*position)).peekable();
        let mut names = topic.split('/');
        for (position, level) in filter.split('/').enumerate() {
            if self.hash_sign == Some(position) {
                return level == "#";
            }
            let name = names.next();
            let expected = if pluses.next_if_eq(&position).is_some() { Some("+") } else { name };
            if expected != Some(level) {
                return false;
            }
        }
        self.hash_sign.is_none() && names.next().is_none()
    }
}

/// Peers choose the shapes too.
fn hash_of_pluses(pluses: &[u16], hash: &LevelHash) -> u64 {
    pluses.iter().fold(0, |sum, position| sum.wrapping_add(hash.level(usize::from(*position), "+")))
}

fn pluses_in(filter: &str) -> Vec<u16> {
    let levels = filter.split('/').enumerate();
    let pluses = levels.filter(|(_, level)| *level == "+").map(|(position, _)| position);
    pluses.map(|position| u16::try_from(position).expect("a filter has at most 65,535 bytes")).collect()
}
