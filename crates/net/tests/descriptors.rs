//! A process that has no descriptors left. This is a program of its own, because other tests would have none either.

#[allow(dead_code, reason = "the tests of the event loop use the rest")]
#[path = "event_loop/support.rs"]
mod support;

use std::fs::File;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use support::{Broker, CONNACK, connect, until};

#[test]
fn without_descriptors_clients_go_on_and_others_come_in_when_there_are_some_again() {
    let broker = Broker::start(2);
    let mut frog = broker.connect("frog", None);
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(200), ..limits }).expect("less than before");
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!files.is_empty(), "it had some left");
    // For the socket of the client. There is none for the other end.
    files.pop();
    let mut toad = broker.dial();
    toad.write(&connect("toad", None));

    let operator = broker.server.operator();
    let pauses = || {
        let mut pauses = 0;
        operator.figures(&mut |topic, value| {
            if topic == "accept/pauses" {
                pauses = value.parse().unwrap_or(0);
            }
        });
        pauses
    };
    until("accepting pauses, and pauses again", || pauses() >= 2);
    frog.ping();
    drop(files);
    assert_eq!(toad.read_packet(), CONNACK);
    toad.ping();
    frog.ping();
    setrlimit(Resource::Nofile, limits).expect("it was so before");
    broker.stop();
}
