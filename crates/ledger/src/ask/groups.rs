//! Groups that share a subscription, as operators see them.

use std::sync::Arc;

use base::{Dispatch, Member};

use super::{Answer, LINES_PER_ANSWER};
use crate::Ledger;
use crate::lines::Line;

/// Maximum number of members in one answer.
const MEMBERS_PER_ANSWER: usize = 256;

/// A group that shares a subscription.
#[derive(Debug, Clone)]
pub struct GroupFacts {
    /// Its place among all sessions and groups, for [`Question::Groups`](super::Question::Groups).
    pub slot: u32,
    /// Its filter, with `$share/GROUP/` and with the mount point of its listener.
    pub filter: Arc<str>,
    /// How its messages are dealt out to its members.
    pub dispatch: Dispatch,
    /// Number of its members.
    pub members: usize,
    /// Number of its members that are connected.
    pub connected: usize,
    /// Whether its messages outlive the process: it has, or had, a member whose session lasts.
    pub is_lasting: bool,
    /// Messages that wait for a member, without those that came back.
    pub queued_messages: usize,
    /// The bytes of these messages.
    pub queued_bytes: usize,
    /// Messages that came back from members that have left. They go first.
    pub returned: usize,
    /// Messages on their way to members.
    pub in_flight: usize,
}

/// Members of a group, and the place of the next ones. `None` behind the last one.
pub type MemberPiece = (Vec<Member>, Option<usize>);

impl Ledger {
    /// Groups in some places.
    pub(super) fn answer_groups(&self, from_slot: u32) -> Answer {
        let (lines, next) = self.lines.in_slots(from_slot, LINES_PER_ANSWER);
        Answer::Groups(lines.filter_map(facts).collect(), next)
    }

    /// The group with this filter.
    pub(super) fn answer_group(&self, filter: &str) -> Option<GroupFacts> {
        facts(self.lines.find(self.lines.filters.of_filter(filter)?)?)
    }

    /// Some members of a group. `None` if there is no such group.
    pub(super) fn answer_members(&self, filter: &str, from: usize) -> Option<MemberPiece> {
        let group = self.lines.group(self.lines.filters.of_filter(filter)?)?;
        Some(group.subscriber.members()?.piece(from, MEMBERS_PER_ANSWER))
    }
}

/// `None` for a session.
fn facts(line: &Line) -> Option<GroupFacts> {
    let group = line.group()?;
    Some(GroupFacts {
        slot: group.subscriber.queue.map_or(0, |queue| queue.slot),
        filter: Arc::clone(&group.subscriber.client_id),
        dispatch: group.subscriber.members()?.dispatch().clone(),
        members: group.members,
        connected: group.connected,
        is_lasting: group.is_recorded,
        queued_messages: line.queue.len(),
        queued_bytes: line.queue.bytes(),
        returned: group.returned.len(),
        in_flight: group.held.len(),
    })
}

#[cfg(test)]
mod tests {
    use base::Interest;
    use wire::Qos;

    use super::super::tests::ledger;
    use super::super::{Answer, LINES_PER_ANSWER};
    use crate::record::{Incarnation, Record, WillFate};

    /// A session, and a group of its own that has messages of nobody.
    fn records(count: u64) -> Vec<Record<'static>> {
        let interest = Interest::new(Qos::AtLeastOnce);
        let of = |number: u64| {
            let (session, group) = (Incarnation(2 * number), Incarnation(2 * number + 1));
            let filter = format!("$share/g{}/a", number % 3);
            let begun = Record::Group { group, filter: filter.clone().into() };
            let mut records = vec![
                Record::Session { session, client_id: format!("client-{number}").into() },
                Record::Subscribed { session, filter: filter.into(), interest },
                Record::Left { session, expiry_secs: 60, unix_ms: 1_000, will: WillFate::Dropped },
            ];
            if number < 3 {
                records.insert(0, begun);
            }
            records
        };
        (0..count).flat_map(of).collect()
    }

    #[test]
    fn groups_and_their_members_are_listed_in_pieces() {
        let ledger = ledger(records(900));
        let (mut from_slot, mut groups, mut answers) = (Some(0), Vec::new(), 0);
        while let Some(slot) = from_slot {
            let Answer::Groups(some, next) = ledger.answer_groups(slot) else {
                panic!("it is asked for groups")
            };
            groups.extend(some);
            (from_slot, answers) = (next, answers + 1);
        }
        assert_eq!(answers, 903_usize.div_ceil(LINES_PER_ANSWER as usize));
        let mut filters: Vec<&str> = groups.iter().map(|group| &*group.filter).collect();
        filters.sort_unstable();
        assert_eq!(filters, ["$share/g0/a", "$share/g1/a", "$share/g2/a"]);
        assert!(groups.iter().all(|group| (group.members, group.connected) == (300, 0) && group.is_lasting));
        let (mut from, mut members) = (Some(0), Vec::new());
        while let Some(place) = from {
            let (some, next) = ledger.answer_members("$share/g1/a", place).expect("there is the group");
            assert!(some.len() <= 256);
            members.extend(some.iter().map(|member| member.subscriber.client_id.to_string()));
            from = next;
        }
        members.sort_unstable();
        members.dedup();
        assert_eq!(members.len(), 300);
        assert!(ledger.answer_group("$share/g3/a").is_none());
        assert!(ledger.answer_members("client-1", 0).is_none());
    }
}
