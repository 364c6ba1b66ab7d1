//! The ledger, seen from its shards and its disk.

mod delivery;
mod stage;
