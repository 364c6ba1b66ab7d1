//! The numbers of records, and the traits through which records leave.
//!
//! Imports: `gauges` and `settings` and the parts below.

pub(crate) mod effects;
pub(crate) mod fetch;
pub(crate) mod keeper;
pub(crate) mod principals;
pub(crate) mod room_wait;

pub use ::record::{Away, Granted, Incarnation, Needs, Queued, Record, WillFate, WillRecord};
pub use effects::{Address, Effects, Lsn, Refusal};
pub use keeper::{Keeper, Progress};
pub use protocol::MessageId;

/// Delay before a record that was refused for lack of space is tried again, in milliseconds.
pub(crate) const RETRY_MS: u64 = 100;

/// The numbers that were given last. After a restart they go on behind the largest ones on the record. A message may then get
/// the number of an earlier one of which no Enqueue, will or cursor is left. This is harmless: older records that mention the
/// number stand before the new message, and change nothing.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) message: MessageId,
    pub(crate) incarnation: Incarnation,
}

impl Numbers {
    pub(crate) fn next_message(&mut self) -> MessageId {
        self.message.0 += 1;
        self.message
    }

    pub(crate) fn next_incarnation(&mut self) -> Incarnation {
        self.incarnation.0 += 1;
        self.incarnation
    }
}

/// A record, and where it can be read again, if it can.
#[derive(Clone)]
pub struct Addressed<'a> {
    /// The record that was read.
    pub record: Record<'a>,
    /// The address of the record, if it is known and the record contains a message.
    pub address: Option<Address>,
}

impl<'a> From<Record<'a>> for Addressed<'a> {
    fn from(record: Record<'a>) -> Self {
        Self { record, address: None }
    }
}

/// How many of the first items take at most `bytes_max` together, given what each takes; one at least.
pub(crate) fn count_within(each: impl Iterator<Item = usize>, bytes_max: usize) -> usize {
    let mut bytes = 0;
    let fits = |item: &usize| {
        bytes += item;
        bytes <= bytes_max
    };
    each.take_while(fits).count().max(1)
}
