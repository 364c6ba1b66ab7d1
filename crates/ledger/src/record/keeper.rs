//! Storage of the records, as seen from the thread of the ledger.

use std::sync::Arc;

use protocol::{Durability, Instruments};

use crate::record::fetch::{Fetched, Wanted};
use crate::record::{Address, Lsn, Needs, Record, Refusal};

/// Keeps the records of a ledger in the order in which they are committed, and hands them back when the space of old ones
/// is wanted. Nothing here waits for a disk.
pub trait Keeper: Send {
    /// Takes a group of records, to be kept whole or not at all; see [`Effects::commit`](crate::Effects::commit).
    ///
    /// # Errors
    /// It was not taken.
    fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal>;

    /// Takes records once more that are kept already, so that their old place can be used again: for these there is
    /// always space.
    ///
    /// # Errors
    /// Nothing can be recorded any more.
    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal>;

    /// Raises the durability that somebody waits for from now on. Others may still wait for more.
    fn raise_durability(&mut self, _durability: Durability) {}

    /// Whether there is space for more. Whoever commits asks before each command; see [`RoomWait`](crate::RoomWait).
    fn room(&self) -> RecordRoom {
        RecordRoom::Enough
    }

    /// The longest group of records that [`commit`](Self::commit) takes, in bytes.
    fn group_bytes_max(&self) -> usize {
        usize::MAX
    }

    /// Returns the address of the first record of the group taken last, or `None` if it cannot be read again.
    fn address(&mut self) -> Option<Address> {
        None
    }

    /// Asks for a message that is on disk alone; see [`next_fetched`](Self::next_fetched).
    fn fetch(&mut self, _wanted: Wanted) {}

    /// Returns the next result of [`fetch`](Self::fetch), in any order.
    fn next_fetched(&mut self) -> Option<Fetched> {
        None
    }

    /// Whether [`next_fetched`](Self::next_fetched) has something of which nobody is woken.
    fn has_fetched(&self) -> bool {
        false
    }

    /// Begins a turn: records that are committed in it are written when it ends. Without turns each commit is written
    /// at once.
    fn begin_turn(&mut self) {}

    /// Nothing more is committed for now: to be called before who commits waits for anything.
    fn end_turn(&mut self) {}

    /// How far it has come.
    fn progress(&self) -> Progress;

    /// Some of the oldest records, in their order, if their space is wanted: what of them is still true is to be
    /// [copied](Self::copy). They are done with when this is called again. Of nearly all of them nothing is true any more:
    /// messages that no queue needs ([`Ledger::needs`](crate::Ledger::needs)) are left out, and so is what
    /// [begins nothing](Record::begins_something).
    fn next_to_copy(&mut self, needs: Needs<'_>) -> Option<Vec<Record<'static>>>;

    /// Returns the instruments that report its state to any thread, or `None` if there are none.
    fn instruments(&self) -> Option<Arc<dyn Instruments>> {
        None
    }

    /// Sets the approximate size of the live records, in bytes ([`Ledger::live_bytes`](crate::Ledger::live_bytes)). It
    /// decides when the space of old records is wanted. A keeper with enough space can ignore it.
    fn set_live_bytes(&mut self, _bytes: usize) {}

    /// The memory of records that were taken and wait to be written, in bytes.
    fn pending_bytes(&self) -> usize {
        0
    }
}

/// The space that there is for more records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordRoom {
    /// For any packet. Or there will be no more for a while: what is too much is refused.
    Enough,
    /// There will be more soon. News that come before may be refused, and take what is kept for what frees space.
    Little,
    /// There will be more soon, and not even what frees space may come before: what is left is for copies.
    None,
}

/// How far a [`Keeper`] has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Up to here it is with the operating system: it survives the end of the process.
    pub written: Lsn,
    /// Up to here it is on stable storage: it survives a loss of power.
    pub durable: Lsn,
    /// A write or a sync has failed: neither will grow any more.
    pub has_failed: bool,
}

/// Keeps nothing: what was committed is as safe as memory is.
#[derive(Debug, Default)]
pub struct InMemory {
    committed: Lsn,
}

impl Keeper for InMemory {
    fn commit(&mut self, _: &[Record<'_>]) -> Result<Lsn, Refusal> {
        self.committed.0 += 1;
        Ok(self.committed)
    }

    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        self.commit(group)
    }

    fn progress(&self) -> Progress {
        Progress { written: self.committed, durable: self.committed, has_failed: false }
    }

    fn next_to_copy(&mut self, _: Needs<'_>) -> Option<Vec<Record<'static>>> {
        None
    }
}
