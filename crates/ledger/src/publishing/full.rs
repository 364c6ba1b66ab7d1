//! Groups whose queue is full: their members are ended, a bounded number a turn.
//!
//! Until the last of them has ended, the group takes messages as before, above its bound. Any prefix of the records may
//! survive a crash: a session of the group is either over, which its client is told, or has everything that was
//! acknowledged.

use base::{Member, QueueId};

use crate::publishing::Publishing;
use crate::publishing::publish::post_ended;
use crate::record::count_within;
use crate::record::{Effects, Record};

/// The most members that are ended with one group of records.
const MEMBERS_AT_A_TIME: usize = 256;

impl Publishing<'_> {
    /// Goes on ending the members of groups that are full.
    pub(crate) fn end_some_members(&mut self, units: &mut usize, to: &mut impl Effects) {
        while *units > 0
            && let Some(id) = self.lines.full_groups.front().copied()
        {
            let Some(group) = self.lines.group(id) else {
                self.lines.full_groups.pop_front();
                continue;
            };
            let members =
                group.subscriber.members().map(|members| members.last(MEMBERS_AT_A_TIME.min(*units)));
            let members = members.unwrap_or_default();
            *units -= members.len().max(1);
            let is_recorded = match &members[..] {
                [] => self.end_group(id, to),
                members => self.end_members(id, members, to),
            };
            if !is_recorded {
                // Nothing can be recorded any more: the rest ends after the restart.
                self.lines.full_groups.pop_front();
            }
        }
    }

    /// The last member has ended. Whether that is recorded.
    fn end_group(&mut self, id: QueueId, to: &mut impl Effects) -> bool {
        let is_recorded = self.replies.record_end_of(self.lines, id, to).is_ok();
        if is_recorded {
            // Those that end with their connections leave it later.
            self.lines.group_mut(id).expect("the group was there before this was recorded").members = 0;
            self.lines.remove_if_empty(id);
        }
        is_recorded
    }

    /// Ends some members. Whether that is recorded.
    fn end_members(&mut self, id: QueueId, members: &[Member], to: &mut impl Effects) -> bool {
        let mut rest = members;
        while !rest.is_empty() {
            let end_of = |member: &Member| member.subscriber.queue.and_then(|id| self.end_of(id));
            let each = rest.iter().map(|member| end_of(member).map_or(0, |end| end.bytes_most()));
            let (piece, behind) = rest.split_at(count_within(each, to.group_bytes_max()));
            rest = behind;
            let records: Vec<Record<'_>> = piece.iter().filter_map(end_of).collect();
            if !records.is_empty() && self.replies.commit(&records, to).is_err() {
                return false;
            }
            for Member { subscriber, .. } in piece {
                let group = self.lines.group(id).expect("a group ends behind its members");
                group.subscriber.members().expect("it is a group").remove(subscriber);
                match subscriber.queue {
                    Some(session) => self.end_for_full_queue(session, to),
                    None => subscriber.place().into_iter().for_each(|place| post_ended(place, to)),
                }
            }
        }
        true
    }
}
