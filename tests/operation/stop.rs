//! The end: SIGTERM and SIGINT.

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, Version};

use crate::brokers;

const SERVER_SHUTTING_DOWN: u8 = 0x8B;

fn says_goodbye(mut broker: Broker, stop: impl Fn(&Broker)) {
    let mut clients: Vec<_> =
        Version::ALL.iter().map(|version| broker.client(*version, &format!("frog {version}"))).collect();
    let mut silent = broker.connect();
    let mut half_connected = broker.connect();
    half_connected.send(&Connect::new(Version::V5, "toad").bytes()[..5]);
    stop(&broker);
    for client in &mut clients {
        client.expect_disconnect(SERVER_SHUTTING_DOWN);
    }
    silent.expect_closed();
    half_connected.expect_closed();
    drop((clients, silent, half_connected));
    assert!(broker.wait().success());
}

#[test]
fn sigterm_says_goodbye_to_everybody_and_exits_with_0() {
    brokers("").for_each(|broker| says_goodbye(broker, Broker::terminate));
}

#[test]
fn sigint_does_the_same() {
    brokers("").for_each(|broker| says_goodbye(broker, Broker::interrupt));
}

#[test]
fn messages_sent_before_disconnect_arrive_before_it() {
    for mut broker in brokers("") {
        let mut frog = broker.client(Version::V5, "frog");
        frog.subscribe("a");
        let payload = vec![b'x'; 100_000];
        for _ in 0..20 {
            frog.publish("a", &payload);
        }
        // Nothing after this has been read yet when the broker is asked to stop.
        frog.expect_message("a", &payload);
        broker.terminate();
        let mut rest = frog.read_to_end();
        assert_eq!(rest.split_off(rest.len() - 3), [0xE0, 0x01, SERVER_SHUTTING_DOWN]);
        assert_eq!(rest.len() % (payload.len() + 8), 0, "whole messages");
        drop(frog);
        assert!(broker.wait().success());
    }
}

#[test]
fn clients_that_read_nothing_do_not_prevent_the_end() {
    for mut broker in brokers("") {
        let deaf = ["deaf", "deaf too"].map(|name| {
            let mut client = broker.client(Version::V5, name);
            client.subscribe("a");
            client
        });
        let mut frog = broker.client(Version::V5, "frog");
        // More than the kernel and the broker keep for those who do not read.
        for _ in 0..64 {
            frog.publish("a", &vec![b'x'; 1_000_000]);
        }
        frog.expect_only_pong();
        broker.terminate();
        assert!(broker.wait().success());
        drop(deaf);
    }
}
