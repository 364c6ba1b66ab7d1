//! Connections that a server ends, and connections on which nothing arrives any more.

use std::time::Duration;

use topic::{TopicFilter, TopicFilterBuf, TopicName, TopicNameBuf};
use wire::{Qos, Version};

use super::super::super::packet::{Seen, hash};
use super::super::super::past::Moment;
use super::super::super::script::{Posted, Said};
use super::super::Judge;
use super::{connect, connect_for, judge, publish, seen};

const CONNACK: &[u8] = b"\x20\x02\0\0";
const SUBACK: &[u8] = b"\x90\x03\0\x09\x01";

fn at(judge: &mut Judge, step: u64) {
    judge.advance(Moment { step, time: Duration::from_secs(step) });
}

/// Both servers send the same.
fn both(judge: &mut Judge, connection: u64, packet: Seen) {
    judge.expect(connection, packet.clone());
    judge.receive(connection, packet);
}

fn subscribe(judge: &mut Judge, connection: u64) {
    let filter = TopicFilterBuf::from(TopicFilter::new("t").expect("a filter"));
    judge.said(connection, &Said::Subscribe(9, vec![filter]));
}

/// Another connection takes the session over. The message that does not arrive is published long after that.
#[test]
fn a_message_after_the_end_of_a_taken_over_session_is_missing_and_not_in_doubt() {
    let mut judge = judge();
    connect(&mut judge, 1, "publisher", Version::V3_1_1);
    both(&mut judge, 1, seen(CONNACK));
    for (step, connection) in [(10, 2), (20, 3)] {
        at(&mut judge, step);
        connect_for(&mut judge, connection, "subscriber", Version::V3_1_1, false);
        at(&mut judge, step + 1);
        if connection == 3 {
            both(&mut judge, 2, Seen::end());
            at(&mut judge, step + 2);
        }
        both(&mut judge, connection, seen(CONNACK));
        at(&mut judge, step + 3);
        subscribe(&mut judge, connection);
        at(&mut judge, step + 4);
        both(&mut judge, connection, seen(SUBACK));
    }
    at(&mut judge, 40);
    let content = hash(("t", &b"a"[..]));
    let posted = Posted {
        topic: TopicNameBuf::from(TopicName::new("t").expect("a topic name")),
        content,
        qos: Qos::AtLeastOnce,
        retain: false,
        dup: false,
        packet_id: Some(1),
        alias: None,
    };
    judge.said(1, &Said::Publish(posted));
    at(&mut judge, 41);
    both(&mut judge, 1, seen(b"\x40\x02\0\x01"));
    judge.expect(3, seen(&publish(1, (Qos::AtLeastOnce, b'a'), false)));
    at(&mut judge, 60);
    let report = judge.finish();
    assert_eq!((report.differences(), report.in_doubt), (1, 0), "{}", report.text());
}

#[test]
fn a_connection_on_which_nothing_arrives_is_waited_for_twice_until_it_speaks_again() {
    let mut judge = judge();
    connect(&mut judge, 1, "silent", Version::V3_1_1);
    let message = |id| seen(&publish(id, (Qos::AtLeastOnce, b'a'), false));
    judge.expect(1, seen(CONNACK));
    for id in 1..=2 {
        judge.expect(1, message(id));
        assert_ne!(judge.waiting(), 0, "failure {id}");
        judge.give_up();
    }
    judge.expect(1, message(3));
    assert_eq!(judge.waiting(), 0);
    judge.receive(1, seen(CONNACK));
    judge.expect(1, message(4));
    assert_eq!(judge.waiting(), 1);
    let report = judge.finish();
    assert_eq!(report.differences(), 4, "{}", report.text());
}
