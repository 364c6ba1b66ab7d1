//! The generator on several machines: agents that each run a part of a load, and start at one instant.
//!
//! ```text
//! coordinator                                agent
//!     Hello, random number ────────────────────►
//!     ◄──────────── random number, proof of the token
//!     proof of the token, job ─────────────────►   sets up its clients
//!     ◄───────────────────────────────────── Ready
//!     Ask ─────────────────────────────────────►   32 times: the clocks are compared
//!     ◄───────────────────────────────────── Clock
//!     Start at … ──────────────────────────────►   runs its part
//!     ◄────────────────────────────────────── Done
//!     Finish ──────────────────────────────────►   closes its connections
//!     ◄──────────────────────────────────── Result
//! ```
//!
//! Each run has a connection of its own: if either side goes, the other one ends the run. Request and reply are always clients
//! of one agent, so no latency is the difference of two clocks. The comparison of clocks matters for the common start, and for
//! the time of the whole run.

mod agent;
mod clock;
mod fleet;
mod talk;
mod token;

pub(super) use self::agent::serve;
pub(super) use self::fleet::{Fleet, Load};
pub(super) use self::token::Token;
