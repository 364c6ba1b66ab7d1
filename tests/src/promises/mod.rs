//! Clients that note what a broker promises them, and when: each acknowledgement with the place where the trace of its
//! journal was then. And the check of another broker, on what a crash has left, against what had been promised by that
//! time.

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
