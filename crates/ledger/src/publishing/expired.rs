//! Retained messages that have expired.

use std::borrow::Cow;

use base::Now;

use crate::gauges::add;
use crate::publishing::Publishing;
use crate::record::count_within;
use crate::record::{Effects, Record};

/// Maximum number of retained messages that one search visits.
const VISITS: usize = 1_000;
/// The most topic names of expired values that one step finds, in bytes, and one more.
const TOPIC_BYTES: usize = 256 << 10;
/// The length of a group of records that clear expired values, in bytes, unless one alone is longer: other groups that are
/// written with it do not wait for megabytes.
const CLEARED_BYTES: usize = 16 << 10;

impl Publishing<'_> {
    /// Makes one step through the retained messages. Returns whether it has cleared any.
    pub(crate) fn sweep_retained(&mut self, now: Now, to: &mut impl Effects) -> bool {
        let mut has_cleared = false;
        let expired = self.retained.look_for_expired(VISITS, TOPIC_BYTES, now);
        let is_on_record = |topic: &String| self.retained.is_on_record(topic);
        let (recorded, others): (Vec<_>, Vec<_>) = expired.into_iter().partition(is_on_record);
        has_cleared |= self.clear_expired(&others);
        let mut rest = &recorded[..];
        // The next round finds the rest again.
        while !rest.is_empty() && !to.lacks_space() {
            let each = rest.iter().map(|topic| cleared(topic).bytes_most());
            let (piece, behind) = rest.split_at(count_within(each, CLEARED_BYTES.min(to.group_bytes_max())));
            rest = behind;
            let records: Vec<Record<'_>> = piece.iter().map(|topic| cleared(topic)).collect();
            if self.replies.commit(&records, to).is_ok() {
                has_cleared |= self.clear_expired(piece);
            }
        }
        has_cleared
    }

    fn clear_expired(&mut self, topics: &[String]) -> bool {
        topics.iter().for_each(|topic| self.retained.clear(topic));
        add(&self.gauges.retained_expired, topics.len());
        !topics.is_empty()
    }
}

#[allow(clippy::ptr_arg, reason = "it is mapped over strings")]
fn cleared(topic: &str) -> Record<'_> {
    Record::Cleared { topic: Cow::Borrowed(topic) }
}
