//! Subscriptions of a session, piece by piece.

use std::ops::Bound;

use base::Interest;

use crate::lines::session::Session;

/// The look at a filter costs one unit, and one more for each of this number of bytes.
const BYTES_PER_UNIT: usize = 256;

/// Takes the units that a filter costs. Nothing if they are not left.
pub(crate) fn pay(left: &mut usize, filter: &str) -> Option<()> {
    *left = left.checked_sub(1 + filter.len() / BYTES_PER_UNIT)?;
    Some(())
}

impl Session {
    /// Whether all its subscriptions can be sent to its shard within this number of units.
    pub(crate) fn is_small(&self, units: usize) -> bool {
        let mut left = units;
        let cursors = self.lasting.iter().flat_map(|lasting| lasting.cursors.keys());
        self.subscriptions.keys().chain(cursors).all(|filter| pay(&mut left, filter).is_some())
    }

    /// The filters behind one, as many as there are units for; the first in any case.
    pub(crate) fn filters_behind(&self, after: Option<&str>, units: &mut usize) -> Vec<Box<str>> {
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        paid(self.subscriptions.range::<str, _>(behind).map(|(filter, _)| filter), units)
    }

    pub(crate) fn unfinished_behind(
        &self,
        after: Option<&str>,
        units: &mut usize,
    ) -> Vec<(Box<str>, Interest)> {
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let cursors = self.lasting.iter().flat_map(|lasting| lasting.cursors.range::<str, _>(behind));
        let filters = paid(cursors.map(|(filter, _)| filter), units);
        let subscribed =
            |filter: Box<str>| self.subscriptions.get(&filter).map(|interest| (filter, *interest));
        filters.into_iter().filter_map(subscribed).collect()
    }
}

fn paid<'a>(filters: impl Iterator<Item = &'a Box<str>>, units: &mut usize) -> Vec<Box<str>> {
    let mut paid = Vec::new();
    for filter in filters {
        if pay(units, filter).is_none() {
            // One that is longer than a whole turn's worth goes alone.
            if paid.is_empty() {
                paid.push(filter.clone());
            }
            *units = 0;
            break;
        }
        paid.push(filter.clone());
    }
    paid
}
