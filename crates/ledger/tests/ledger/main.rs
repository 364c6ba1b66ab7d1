//! The ledger, seen from its shards and its disk.

mod bodies;
mod cursors;
mod delivery;
mod disk;
mod exchanges;
mod full;
mod groups;
mod keys;
mod restate;
mod review;
mod schedules;
mod sessions;
mod stage;
mod wills;
