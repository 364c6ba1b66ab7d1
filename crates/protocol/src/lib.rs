//! Everything that shards and the ledger tell each other: commands one way, replies the other.
//!
//! A shard posts [`Command`]s, the ledger answers with [`Reply`]s. Both travel in letters, of which `turn` posts at
//! most a few per turn and receiver. [`order`] has the rules of order between threads. [`Gauges`] are read by shards
//! and written by the ledger alone.

#![forbid(unsafe_code)]

mod command;
mod durability;
mod gauges;
mod identifiers;
pub mod order;
mod reply;

pub use command::{Cause, Claim, Command, Left, Publish, Will};
pub use durability::Durability;
pub use gauges::{Gauges, Instruments};
pub use identifiers::{CursorId, Delivered, EntryId, MessageId, Numbered, Origin};
pub use reply::{Claimed, Deliver, Reply};
