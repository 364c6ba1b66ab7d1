//! The table of good and bad packets, sent to the running broker: whole, and again one byte per segment.
//!
//! Many connections do so at the same time, and beside each two innocent clients go on talking.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use pondhawk_tests::{Broker, Innocents, Options, RawClient, Version, until};
use wire::table::{Case, Expected, cases};
use wire::{Decoded, Limits, Packet, Role, decode};

/// Number of connections at a time.
const WORKERS: usize = 16;

/// One case on one connection.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    case: &'static Case,
    version: Version,
    is_bytewise: bool,
}

/// Every case that a client can send, in every version it is for, in both ways.
fn attempts(is_wanted: impl Fn(&Case) -> bool) -> Vec<Attempt> {
    let of_clients = cases().filter(|case| case.sender == Role::Client && is_wanted(case));
    let in_versions = of_clients.flat_map(|case| {
        // The first bytes of a connection are the same whatever version they might have been of.
        let versions = if case.is_first { &case.versions[..1] } else { case.versions };
        versions.iter().map(move |version| (case, *version))
    });
    in_versions
        .flat_map(|(case, version)| [false, true].map(|is_bytewise| Attempt { case, version, is_bytewise }))
        .collect()
}

impl Attempt {
    /// A connection on which the case's bytes may come next.
    fn connect(self, broker: &Broker, number: usize) -> RawClient {
        if self.case.is_first {
            return broker.connect();
        }
        broker.client(self.version, &format!("attempt {number}")).into_raw()
    }

    fn send(self, connection: &mut RawClient) {
        if self.is_bytewise {
            connection.send_bytewise(self.case.bytes);
        } else {
            connection.send(self.case.bytes);
        }
    }
}

/// Says which attempt it was, if the test fails during it.
struct Named(Attempt);

impl Drop for Named {
    fn drop(&mut self) {
        if thread::panicking() {
            let Attempt { case, version, is_bytewise } = self.0;
            let way = if is_bytewise { "one byte per segment" } else { "whole" };
            eprintln!("MQTT {version}, {way}: {} {:02x?}", case.name, case.bytes);
        }
    }
}

/// Carries all attempts out, many at a time, each beside innocent clients that were there before.
fn carry_out(broker: &Broker, attempts: &[Attempt], act: impl Fn(Attempt, usize) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let (next, act) = (&next, &act);
            scope.spawn(move || {
                let mut innocents = Innocents::connect(broker, &worker.to_string());
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(attempt) = attempts.get(number)
                {
                    let _named = Named(*attempt);
                    innocents.notice_nothing_of(|| act(*attempt, number));
                }
            });
        }
    });
}

fn brokers() -> impl Iterator<Item = Broker> {
    [1, 4].into_iter().map(|shards| Broker::start(&Options { shards, ..Options::default() }))
}

/// Neither a panic nor what comes of one.
fn assert_sound(broker: Broker) {
    assert!(broker.log_lines("panicked").is_empty());
    assert!(broker.stop().success());
}

/// [each case of crates/wire/src/table]
#[test]
fn every_bad_packet_gets_its_reason_code_or_a_closed_connection_and_nobody_else_notices() {
    let attempts = attempts(|case| matches!(case.expected, Expected::Violation { .. }));
    for broker in brokers() {
        let mut witness = broker.client(Version::V5, "witness");
        witness.subscribe("#");
        carry_out(&broker, &attempts, |attempt, number| {
            let mut connection = attempt.connect(&broker, number);
            attempt.send(&mut connection);
            let answer = attempt.case.answer(attempt.version).expect("a violation has an answer");
            connection.expect(&answer);
            connection.expect_closed();
        });
        assert_nothing_was_forwarded(&broker, &mut witness);
        assert_sound(broker);
    }
}

/// The messages that the subscriber to everything has received come from innocent clients.
fn assert_nothing_was_forwarded(broker: &Broker, witness: &mut RawClient) {
    broker.client(Version::V5, "last").publish("end", b"");
    until("the end is seen", || {
        let packet = witness.read_packet();
        let topic = &packet[4..];
        assert!(topic.starts_with(b"innocent/") || topic.starts_with(b"end"), "{packet:02x?}");
        topic.starts_with(b"end").then_some(())
    });
}

#[test]
fn every_good_packet_is_answered_with_good_packets_and_nobody_else_notices() {
    let attempts = attempts(|case| matches!(case.expected, Expected::Packet { .. }));
    for broker in brokers() {
        carry_out(&broker, &attempts, |attempt, number| {
            let mut connection = attempt.connect(&broker, number);
            attempt.send(&mut connection);
            connection.send(&[0xC0, 0x00]);
            // Until its PINGREQ is answered, or the connection is closed because what it asked for is not served.
            while let Some(bytes) = connection.next_packet() {
                let limits = Limits { max_packet_bytes: bytes.len(), sender: Some(Role::Server) };
                match decode(&bytes, Some(attempt.version), &limits) {
                    Ok(Decoded::Packet { packet: Packet::PingResp(_), .. }) => break,
                    Ok(Decoded::Packet { .. }) => {}
                    other => panic!("not a packet of a server: {bytes:02x?} {other:?}"),
                }
            }
        });
        assert_sound(broker);
    }
}
