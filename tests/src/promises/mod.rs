//! Clients that record the promises of a broker, and the check of these promises after a crash.
//!
//! Each acknowledgement is recorded with the position in the journal's trace at that time. The check starts another
//! broker on the data that a crash has left, and compares its state with the promises up to the crash.

mod check;
mod clients;
mod history;
mod kills;
mod message;
mod publisher;
mod subscriber;
mod world;

pub use check::{Findings, check};
pub use kills::{Killed, kill, small_segments};
pub use world::{Clock, World, wait_for_any};
