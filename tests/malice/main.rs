//! A malicious server with at least 60 behaviours, against the client library and each command-line tool.
//!
//! Each client runs in a process of its own, whose memory is limited. The client ends with a clear error, or goes on
//! until it is told to end. It never panics, and never exceeds its own time limit.

mod behaviours;
mod bytes;
mod client;
mod run;
mod server;

use behaviours::all;
use run::Tool;
use server::{Layer, Way};

#[test]
fn there_are_many_behaviours_and_each_has_a_name_of_its_own() {
    let mut names: Vec<_> = all().iter().map(|behaviour| behaviour.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all().len());
    assert!(names.len() >= 60, "{}", names.len());
}

/// A server that behaves shows that each client gets to its end, and that the memory is enough.
#[test]
fn a_server_that_behaves_is_served() {
    for way in [Way::Tcp, Way::Tls, Way::WebSocket] {
        for tool in Tool::ALL.into_iter().filter(|tool| tool.is_tried(way, Layer::Mqtt)) {
            let outcome = run::run(tool, way, &all()[0]);
            assert!(tool.has_succeeded(&outcome), "{tool:?} by {way:?}: {outcome:?}");
        }
    }
}

#[test]
fn the_library_withstands_every_behaviour() {
    run::withstand(&[Tool::Library]);
}

#[test]
fn pub_and_rr_withstand_every_behaviour() {
    run::withstand(&[Tool::Publish, Tool::PublishLines, Tool::Request]);
}

#[test]
fn sub_withstands_every_behaviour() {
    run::withstand(&[Tool::Subscribe, Tool::SubscribeJson]);
}

#[test]
fn probe_tap_and_bench_withstand_every_behaviour() {
    run::withstand(&[Tool::Probe, Tool::Tap, Tool::Bench]);
}
