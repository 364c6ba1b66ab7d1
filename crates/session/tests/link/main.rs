//! A client's session and a server's, back to back, on a link that delivers whatever prefix of each direction it likes,
//! in any pieces, and then cuts. Either end may also crash and go on with what it had on disk. Whatever happens: QoS 1
//! arrives at least once, QoS 2 exactly once, both in order, in both directions.
//!
//! Every schedule comes from a seed. A failure prints it; `PONDHAWK_SEED=… cargo test -p pondhawk-session --test link`
//! runs that one alone, and `PONDHAWK_SCHEDULES=…` another number of them.

mod client;
mod journal;
mod random;
mod schedule;
mod server;

use std::fmt::Debug;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::str::FromStr;

/// As many as go by in some seconds on two cores.
const SCHEDULES: usize = 100_000;

fn number<N: FromStr<Err: Debug>>(variable: &str) -> Option<N> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// [MQTT-4.3.2-3] [MQTT-4.3.3-3] [MQTT-4.3.3-5] [MQTT-4.3.3-6] [MQTT-4.3.3-10] [MQTT-4.4.0-1] [MQTT-4.6.0-1]
/// [MQTT-4.1.0-1] [MQTT-3.1.2-23]
/// [3.1.1 MQTT-4.3.2-1] [3.1.1 MQTT-4.3.3-1] [3.1.1 MQTT-4.3.3-2] [3.1.1 MQTT-4.4.0-1] [3.1.1 MQTT-4.6.0-1]
/// [3.1.1 MQTT-3.1.2-4] [3.1.1 MQTT-4.1.0-1]
#[test]
fn nothing_is_lost_doubled_or_out_of_order_whatever_the_link_does() {
    if let Some(seed) = number("PONDHAWK_SEED") {
        return schedule::run(seed);
    }
    let first = RandomState::new().hash_one("seed") >> 1;
    let count = number("PONDHAWK_SCHEDULES").unwrap_or(SCHEDULES);
    let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let seeds = (first..).take(count).skip(worker).step_by(workers);
            scope.spawn(move || seeds.for_each(run_or_name));
        }
    });
}

fn run_or_name(seed: u64) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| schedule::run(seed))) {
        eprintln!("PONDHAWK_SEED={seed}");
        resume_unwind(panic);
    }
}
