//! The ledger, seen from its shards and its disk.

mod delivery;
mod schedules;
mod stage;
