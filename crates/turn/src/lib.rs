//! The event loops of the broker, without threads, sockets, poller and clock.
//!
//! A turn of a shard reads from the connections that have something, lets its brain route, hands mail over and writes
//! once per connection:
//!
//! ```text
//! woken ─► read (64 KiB) ─► broker::Shard ─► output buffers ─► write
//!             ▲                 │    ▲
//!             │ resume          ▼    │ mail, replies
//!          letters to and from the other shards and the ledger
//! ```
//!
//! A turn of the ledger carries out the commands of the shards and posts its replies ([`LedgerLoop`]).
//!
//! The caller supplies the rest: [`Stream`](stream::Stream) is a connection, [`Host`] and [`LedgerHost`] are the ways to
//! other threads, the poller and the log. `net` implements them with sockets and threads, the simulator with a network, a
//! clock and a scheduler under one seed. Both run the code of this crate. `bench` measures the ledger in its loop, in one thread.

#![forbid(unsafe_code)]

mod ask;
mod batch;
mod board;
mod bounds;
mod bundle;
mod census;
mod connection;
mod departure;
#[cfg(test)]
mod double;
#[cfg_attr(
    not(feature = "faults"),
    allow(dead_code, unreachable_pub, reason = "only the simulator plants faults")
)]
mod faults;
mod host;
mod io;
mod ledger;
mod letter;
mod output;
mod packets;
mod parts;
mod pile;
mod post;
mod ready;
mod replies;
mod shard;
mod sync;
mod trace;
mod tracer;
mod way;

pub use broker::Dismissal;

pub use crate::ask::{AskLedger, AskShard, Link, ShardAnswer};
pub use crate::batch::Batch;
pub use crate::board::Board;
pub use crate::bounds::Bounds;
pub use crate::census::{AskCensus, CensusAnswer, CensusList, Ranked, Ranking};
#[cfg(feature = "faults")]
pub use crate::faults::{Fault, plant};
pub use crate::host::{Host, LedgerHost};
pub use crate::io::Io;
pub use crate::ledger::LedgerLoop;
pub use crate::letter::{Accepted, Answers, Letter, Limits, Note, ToLedger};
pub use crate::shard::ShardLoop;
pub use crate::trace::{COPIES, RECORD_BYTES, Trace, TraceEvent, TraceRecord, TraceSubject};

/// How long a thread may sleep before its next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sleep {
    /// The next turn has work and follows at once.
    No,
    /// At most until this moment of the monotonic clock, in milliseconds.
    Until(u64),
    /// Until a letter arrives or a stream changes.
    Long,
}

impl Sleep {
    /// Sleeps until the earliest of these moments; long if there are none.
    pub fn until(moments: impl IntoIterator<Item = Option<u64>>) -> Self {
        moments.into_iter().flatten().min().map_or(Self::Long, Self::Until)
    }

    /// Shortens the sleep so that it ends at this moment.
    #[must_use]
    pub fn or_until(self, moment_ms: Option<u64>) -> Self {
        match (self, moment_ms) {
            (Self::Until(until_ms), Some(moment_ms)) => Self::Until(until_ms.min(moment_ms)),
            (Self::Long, Some(moment_ms)) => Self::Until(moment_ms),
            (sleep, _) => sleep,
        }
    }
}
