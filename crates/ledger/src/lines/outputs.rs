//! Members of groups that take messages at QoS 0, while their outputs are full.
//!
//! A member that acknowledges has at most its window of messages. At QoS 0 nothing is acknowledged, and the room in its output
//! is all that shows whether a member takes something. Otherwise the whole queue of a group would move to the output of a
//! member that stops reading, past the bound of the queue and past members with room.
//!
//! A member gets a mark's worth of messages, and more when these have reached its shard and its output has room. No shard
//! tells the ledger so: the ledger looks.

use std::collections::BTreeSet;
use std::ops::Bound;

use base::{Level, Now, QueueId};
use wire::Qos;

use crate::lines::brake::Mark;
use crate::lines::session::{Session, Share};
use crate::record::Lsn;

/// Time between two looks at the members, in milliseconds. A member gets 1,000 messages or 256 KiB between two looks.
const LOOK_MS: u64 = 5;

/// Members that have no turns until their outputs have room, each with its group.
#[derive(Debug, Default)]
pub(crate) struct FullMembers {
    members: BTreeSet<(QueueId, QueueId)>,
    look: Look,
}

#[derive(Debug, Clone, Copy)]
enum Look {
    /// The next one begins then, in monotonic milliseconds; `None` if there are no members.
    At(Option<u64>),
    /// The look has come behind this member.
    UnderWay(Option<(QueueId, QueueId)>),
}

impl Default for Look {
    fn default() -> Self {
        Self::At(None)
    }
}

impl FullMembers {
    /// A member has no turns until its output has room.
    pub(crate) fn push(&mut self, group: QueueId, member: QueueId, now: Now) {
        self.members.insert((group, member));
        if let Look::At(at_ms) = &mut self.look {
            at_ms.get_or_insert(now.monotonic_ms + LOOK_MS);
        }
    }

    /// Takes the next member of the look that is under way, or due. One that is put back is looked at in the next look.
    pub(crate) fn next(&mut self, now: Now) -> Option<(QueueId, QueueId)> {
        let after = match self.look {
            Look::At(at_ms) if at_ms.is_none_or(|at_ms| at_ms > now.monotonic_ms) => return None,
            Look::At(_) => None,
            Look::UnderWay(after) => after,
        };
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let next = self.members.range(behind).next().copied();
        self.look = match next {
            Some(_) => Look::UnderWay(next),
            None => Look::At((!self.members.is_empty()).then_some(now.monotonic_ms + LOOK_MS)),
        };
        self.members.remove(&next?);
        next
    }

    /// Whether a look is under way.
    pub(crate) fn has_work(&self) -> bool {
        matches!(self.look, Look::UnderWay(_))
    }

    /// When the next look begins, in monotonic milliseconds.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        if let Look::At(at_ms) = self.look { at_ms } else { None }
    }
}

/// Messages of QoS 0 out of queues that a connection has got since its output was seen to have room.
#[derive(Debug, Default)]
pub(crate) struct Once {
    pub(crate) weight: usize,
    /// The last recorded message is held back until this is safe.
    pub(crate) last: Lsn,
}

impl Once {
    /// A connection has got a message, behind this record if the message is a recorded one.
    pub(crate) fn add(&mut self, weight: usize, record: Option<Lsn>) {
        self.weight += weight;
        self.last = record.unwrap_or(self.last);
    }
}

/// Whether a member gets the messages of a group at QoS 0, and takes none now: its output is full, or its shard has not got a
/// mark's worth of messages.
pub(crate) fn is_full(session: &Session, share: &Share, mark: Mark) -> bool {
    let has_enough = || session.online.as_ref().is_some_and(|online| online.once.weight >= mark.worth());
    share.interest.qos() == Qos::AtMostOnce
        && (session.subscriber.gauge.level() != Level::Open || has_enough())
}
