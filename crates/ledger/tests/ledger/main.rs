//! The ledger, seen from its shards and its disk.

mod bodies;
mod bounds;
mod brake;
mod crowds;
mod cursors;
mod delivery;
mod disk;
mod exchanges;
mod full;
mod groups;
mod keys;
mod log;
mod lowered;
mod moves;
mod queues;
mod released;
mod restate;
mod review;
mod rules;
mod schedules;
mod sessions;
mod slices;
mod space;
mod stage;
mod wills;
