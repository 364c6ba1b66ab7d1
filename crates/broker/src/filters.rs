//! The filters that one client subscribed to: most have none or one.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem;

use index::DeepShape;

use crate::requests::units;

/// Bytes of a subscription beside its filter: its place here and in the index.
const SUBSCRIPTION_BYTES: usize = 200;

/// Approximate memory of a subscription to a filter, in bytes.
pub(crate) fn subscription_bytes(filter: &str) -> usize {
    // Its text is here and in the index, and while what is retained is looked for, twice more.
    4 * filter.len() + SUBSCRIPTION_BYTES
}

/// With more filters than this a tree takes the place of the hash table, which is moved as a whole whenever it grows.
const MANY_MAX: usize = 1_024;

/// A set that is as small as what it holds.
#[derive(Debug, Default)]
pub(crate) enum Filters {
    #[default]
    None,
    One(Box<str>),
    /// Boxed, because nearly everybody has one of the others.
    #[allow(clippy::box_collection)]
    Many(Box<HashSet<Box<str>>>),
    #[allow(clippy::box_collection)]
    VeryMany(Box<BTreeSet<Box<str>>>),
}

impl Filters {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Many(all) => all.len(),
            Self::VeryMany(all) => all.len(),
        }
    }

    pub(crate) fn contains(&self, filter: &str) -> bool {
        match self {
            Self::None => false,
            Self::One(one) => **one == *filter,
            Self::Many(all) => all.contains(filter),
            Self::VeryMany(all) => all.contains(filter),
        }
    }

    pub(crate) fn insert(&mut self, filter: &str) {
        match self {
            Self::None => *self = Self::One(filter.into()),
            Self::One(one) if **one == *filter => {}
            Self::One(one) => *self = Self::Many(Box::new([mem::take(one), filter.into()].into())),
            Self::Many(all) if all.len() < MANY_MAX => drop(all.insert(filter.into())),
            Self::Many(all) => {
                let mut all: BTreeSet<Box<str>> = all.drain().collect();
                all.insert(filter.into());
                *self = Self::VeryMany(Box::new(all));
            }
            Self::VeryMany(all) => drop(all.insert(filter.into())),
        }
    }

    /// Takes one out. Whether it was there.
    pub(crate) fn remove(&mut self, filter: &str) -> bool {
        match self {
            Self::One(one) if **one == *filter => {
                *self = Self::None;
                true
            }
            Self::None | Self::One(_) => false,
            Self::Many(all) => {
                let was_there = all.remove(filter);
                if all.is_empty() {
                    *self = Self::None;
                }
                was_there
            }
            Self::VeryMany(all) => {
                let was_there = all.remove(filter);
                if all.is_empty() {
                    *self = Self::None;
                }
                was_there
            }
        }
    }

    /// Takes some of them out, in no particular order, as far as the units reach.
    pub(crate) fn take(&mut self, left: &mut usize) -> Vec<Box<str>> {
        let mut reaches = |filter: &str| {
            let is_left = *left > 0;
            *left = left.saturating_sub(units(filter));
            is_left
        };
        match mem::take(self) {
            Self::None => Vec::new(),
            Self::One(one) => {
                reaches(&one);
                vec![one]
            }
            Self::Many(mut all) => {
                let first: Vec<Box<str>> = all.iter().take_while(|filter| reaches(filter)).cloned().collect();
                first.iter().for_each(|filter| drop(all.take(filter)));
                if !all.is_empty() {
                    *self = Self::Many(all);
                }
                first
            }
            Self::VeryMany(mut all) => {
                let next = || all.first().is_some_and(|filter| reaches(filter)).then(|| all.pop_first());
                let first = std::iter::from_fn(next).flatten().collect();
                if !all.is_empty() {
                    *self = Self::VeryMany(all);
                }
                first
            }
        }
    }
}

/// Deep shapes that the index does not know yet, because filters that were granted are not written.
#[derive(Debug, Default)]
pub(crate) struct PendingShapes(HashMap<DeepShape, Unwritten>);

/// The filters of one shape that are not written.
#[derive(Debug, Default)]
struct Unwritten {
    /// Some are not shared: they are in the index at the end of the turn.
    has_plain: bool,
    /// The number of shared ones: the ledger is asked for them first.
    shared: usize,
}

impl PendingShapes {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn contains(&self, shape: DeepShape) -> bool {
        self.0.contains_key(&shape)
    }

    pub(crate) fn insert(&mut self, shape: DeepShape, is_shared: bool) {
        let filters = self.0.entry(shape).or_default();
        filters.has_plain |= !is_shared;
        filters.shared += usize::from(is_shared);
    }

    /// All filters of the turn that are not shared are in the index.
    pub(crate) fn forget_plain(&mut self) {
        self.0.retain(|_, filters| {
            filters.has_plain = false;
            filters.shared > 0
        });
    }

    /// The ledger has answered for a shared filter of this shape.
    pub(crate) fn forget_shared(&mut self, shape: Option<DeepShape>) {
        if let Some(shape) = shape
            && let Entry::Occupied(mut filters) = self.0.entry(shape)
        {
            filters.get_mut().shared = filters.get().shared.saturating_sub(1);
            if filters.get().shared == 0 && !filters.get().has_plain {
                filters.remove();
            }
        }
    }
}

/// The deep shapes of one client's filters, each with how many of them have it.
#[derive(Debug, Default)]
pub(crate) struct Shapes(HashMap<DeepShape, usize>);

impl Shapes {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn contains(&self, shape: DeepShape) -> bool {
        self.0.contains_key(&shape)
    }

    pub(crate) fn insert(&mut self, shape: DeepShape) {
        *self.0.entry(shape).or_default() += 1;
    }

    /// Whether any are left.
    pub(crate) fn remove(&mut self, shape: DeepShape) -> bool {
        if let Entry::Occupied(mut filters) = self.0.entry(shape) {
            *filters.get_mut() -= 1;
            if *filters.get() == 0 {
                filters.remove();
            }
        }
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_filters_are_the_same_set() {
        let mut filters = Filters::default();
        let name = |number: usize| format!("t/{number:05}");
        for number in 0..3 * MANY_MAX {
            assert!(!filters.contains(&name(number)));
            filters.insert(&name(number));
            filters.insert(&name(0));
            assert_eq!(filters.len(), number + 1);
        }
        assert!(matches!(filters, Filters::VeryMany(_)));
        assert!((0..3 * MANY_MAX).all(|number| filters.contains(&name(number))));
        assert_eq!(filters.len(), 3 * MANY_MAX);
        assert!(filters.remove(&name(7)) && !filters.remove(&name(7)));
        let mut taken = filters.take(&mut { MANY_MAX });
        assert_eq!((taken.len(), filters.len()), (MANY_MAX, 2 * MANY_MAX - 1));
        taken.append(&mut filters.take(&mut { usize::MAX }));
        taken.sort_unstable();
        taken.dedup();
        assert_eq!((taken.len(), filters.len()), (3 * MANY_MAX - 1, 0));
        assert!(matches!(filters, Filters::None));
    }

    #[test]
    fn another_filter_than_the_only_one_is_not_removed() {
        let mut filters = Filters::default();
        filters.insert("a");
        assert!(!filters.remove("b") && filters.contains("a"));
        assert!(filters.remove("a") && filters.len() == 0);
    }

    #[test]
    fn filters_come_and_go() {
        let mut filters = Filters::default();
        for filter in ["a", "b", "b", "c"] {
            filters.insert(filter);
        }
        assert!(filters.contains("b") && filters.len() == 3);
        assert!(filters.remove("b") && !filters.remove("nothing"));
        let mut left = 1;
        let mut taken = filters.take(&mut left);
        assert_eq!((taken.len(), filters.len(), left), (1, 1, 0));
        taken.append(&mut filters.take(&mut 9));
        taken.sort_unstable();
        assert_eq!(taken, ["a".into(), "c".into()]);
        assert_eq!(filters.len(), 0);
    }
}
