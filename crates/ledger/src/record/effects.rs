//! The outside of the ledger: where its replies go and what becomes of its records.

use std::num::NonZeroU64;

use base::ShardId;

use crate::record::Record;
use crate::record::fetch::Wanted;
use protocol::Reply;

/// Actions of a ledger on its environment.
pub trait Effects {
    /// Posts a reply to a shard.
    fn post(&mut self, to: ShardId, reply: Reply);

    /// Takes a group of records, to be kept whole or not at all, behind everything that was taken before. The ledger
    /// changes its state when it has been taken, and tells nobody who waits for it before
    /// [`progress`](crate::Ledger::progress).
    ///
    /// # Errors
    /// It was not taken. A group of which [`every record frees space`](Record::frees_space) is only refused when
    /// nothing can be recorded any more.
    fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal>;

    /// Takes a group of records that say once more what is true and was recorded long ago, so that the old records can be
    /// [forgotten](crate::Ledger::copy_some). For these there is always space. Whoever waits does not wait for them.
    ///
    /// # Errors
    /// Nothing can be recorded any more.
    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal>;

    /// The longest group of records that [`commit`](Self::commit) takes, in bytes. Whoever commits keeps to it, by
    /// [`Record::bytes_most`]: a longer group is refused with [`Refusal::TooLong`], which is a fault of the ledger.
    fn group_bytes_max(&self) -> usize {
        usize::MAX
    }

    /// Returns the address of the first record of the group taken last, or `None` if it cannot be read again.
    fn address(&mut self) -> Option<Address> {
        None
    }

    /// Asks for a message that is on disk alone. It is brought to [`Ledger::fetched`](crate::Ledger::fetched), however
    /// much later; only of what has an [`address`](Self::address) this is asked.
    fn fetch(&mut self, _wanted: Wanted) {}

    /// Reports that a lasting session has ended because its queue, or that of its group, was full, with the number of its
    /// own messages that are discarded. By default, nobody reads these reports.
    fn ended_by_full_queue(&mut self, _client_id: &str, _messages: usize) {}

    /// Whether the shards take what nobody waits for: wills, steps of cursors. They are put off meanwhile.
    fn has_room(&self) -> bool {
        true
    }

    /// Whether there is not even space for records that free space ([`RecordRoom::None`](crate::RecordRoom::None)). Work that can be
    /// put off is put off.
    fn lacks_space(&self) -> bool {
        false
    }
}

/// How far the records have come: grows with each group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

/// The place of a record with the keeper of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// The place, in a way that is theirs alone; it grows from one group to the next.
    pub at: NonZeroU64,
    /// Its length in bytes.
    pub bytes: u32,
    /// By which it is told that it is still the same.
    pub checksum: u32,
}

/// Why a group of records was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no space now; there may be later.
    NoSpace,
    /// The group is longer than [`Effects::group_bytes_max`]. It will never be taken.
    TooLong,
    /// A write or a sync has failed: nothing will be taken any more.
    Poisoned,
}
