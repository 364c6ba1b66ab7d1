//! The ledger's records on disk: an append-only log of groups of records, in segments that are recycled.
//!
//! Groups are appended to a frame in memory without waiting. One thread writes the frame and syncs it while the next one
//! fills, so that a commit takes what has come while the last one ran. The journal does not know what its records mean:
//! when the space of its oldest segment is wanted, it hands that segment's records back, and the ledger commits again
//! what of them is still true.

pub mod record;
