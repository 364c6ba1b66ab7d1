//! Tools for end-to-end tests: the real broker in a process of its own, and connections that send raw bytes.
//!
//! Every wait ends with the expected event, or after [`DEADLINE`] with a panic that shows the broker's log. No
//! function sleeps.
//!
//! ```no_run
//! use pondhawk_tests::{Broker, Options};
//!
//! let broker = Broker::start(&Options { shards: 4, ..Options::default() });
//! let mut client = broker.connect();
//! client.send(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x00\x00\x04frog");
//! client.expect(b"\x20\x02\x00\x00");
//! client.send(b"\xe0\x00");
//! client.expect_closed();
//! ```
#![forbid(unsafe_code)]

mod binary;
mod broker;
mod client;
pub mod conversation;
pub mod gherkin;
mod log;
mod mosquitto;
pub mod packet;
mod ports;
mod program;
pub mod promises;
mod random;
mod raw;
mod relay;
mod tools;
pub mod trace;

use std::time::{Duration, Instant};

pub use binary::{example, liar, pondhawk};
pub use broker::{Broker, Options, data_dir};
pub use client::{Client, Innocents};
pub use log::in_log;
pub use mosquitto::Mosquitto;
pub use ports::{free_port, free_ports};
pub use program::{Program, install};
pub use random::Random;
pub use raw::RawClient;
pub use relay::Relay;
pub use tools::{
    autopaho, flood, hivemq, node, pebble, pebble_names, peer_pipeline, peers, python, schemathesis,
};
pub use wire::Version;

/// Time limit of a test for any event: far longer than a loaded machine needs, and short enough for a developer to
/// wait. Ten seconds were too short on two processors that were used by others too.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Whether tests use the large counts of `cargo xtask abuse`, instead of the counts for CI.
pub fn is_long() -> bool {
    std::env::var_os("PONDHAWK_ABUSE_LONG").is_some()
}

/// Calls `attempt` repeatedly until it returns a result. Each attempt must end by itself.
///
/// Tests with the large counts have ten times as much time.
///
/// # Panics
/// If there is no result before the deadline.
pub fn until<T>(wish: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + if is_long() { 10 * DEADLINE } else { DEADLINE };
    while Instant::now() < end {
        if let Some(outcome) = attempt() {
            return outcome;
        }
        // The broker needs the cores.
        std::thread::yield_now();
    }
    panic!("not before the deadline: {wish}");
}
