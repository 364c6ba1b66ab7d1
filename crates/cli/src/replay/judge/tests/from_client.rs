//! Messages of a recorded client, whose connection ends within an exchange.

use std::time::Duration;

use topic::{TopicName, TopicNameBuf};
use wire::{Qos, Version};

use super::super::super::packet::{Seen, hash};
use super::super::super::past::Moment;
use super::super::super::script::{Posted, Said};
use super::super::Judge;
use super::{connect, judge, publish, seen};

/// A client with a lasting session, connection 1 and then 2, which publishes to the session on connection 9.
struct Publisher {
    judge: Judge,
    step: u64,
}

const SUBSCRIBER: u64 = 9;

impl Publisher {
    fn new() -> Self {
        let mut publisher = Self { judge: judge(), step: 0 };
        connect(&mut publisher.judge, SUBSCRIBER, "subscriber", Version::V3_1_1);
        publisher.both(SUBSCRIBER, b"\x20\x02\0\0");
        connect(&mut publisher.judge, 1, "publisher", Version::V3_1_1);
        publisher.both(1, b"\x20\x02\0\0");
        publisher
    }

    fn both(&mut self, connection: u64, bytes: &[u8]) {
        self.recorded(connection, bytes);
        self.replayed(connection, bytes);
    }

    fn recorded(&mut self, connection: u64, bytes: &[u8]) {
        self.advance();
        self.judge.expect(connection, seen(bytes));
    }

    fn replayed(&mut self, connection: u64, bytes: &[u8]) {
        self.judge.receive(connection, seen(bytes));
    }

    fn advance(&mut self) {
        self.step += 1;
        self.judge.advance(Moment { step: self.step, time: Duration::from_secs(self.step) });
    }

    fn says(&mut self, connection: u64, said: &Said) {
        self.advance();
        self.judge.said(connection, said);
    }

    fn publishes(&mut self, connection: u64, qos: Qos, dup: bool) {
        let topic = TopicNameBuf::from(TopicName::new("t").expect("a topic name"));
        let content = hash(("t", &b"a"[..]));
        let posted = Posted { topic, content, qos, retain: false, dup, packet_id: Some(5), alias: None };
        self.says(connection, &Said::Publish(posted));
    }

    fn reconnects(&mut self) {
        self.advance();
        self.judge.client_ends(1);
        self.judge.receive(1, Seen::end());
        self.judge.expect(1, Seen::end());
        connect(&mut self.judge, 2, "publisher", Version::V3_1_1);
        self.both(2, b"\x20\x02\x01\0");
    }

    #[track_caller]
    fn assert_clean(self, case: &str) {
        let report = self.judge.finish();
        assert_eq!(report.differences(), 0, "{case}: {}", report.text());
    }
}

const PUBREC: &[u8] = b"\x50\x02\0\x05";
const PUBCOMP: &[u8] = b"\x70\x02\0\x05";
/// PUBCOMP with *Packet Identifier not found*.
const PUBCOMP_NOT_FOUND: &[u8] = b"\x70\x03\0\x05\x92";
const RELEASE: Said = Said::Release(5);

/// The ways in which the recorded server and the one of the replay may be at different stages when the connection ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Replay {
    Ahead,
    Behind,
}

#[test]
fn a_message_of_the_client_is_resumed_at_each_stage_ahead_and_behind() {
    for replay in [Replay::Ahead, Replay::Behind] {
        let message = publish(1, (Qos::ExactlyOnce, b'a'), false);
        // The connection ends behind PUBLISH.
        let mut publisher = Publisher::new();
        publisher.publishes(1, Qos::ExactlyOnce, false);
        match replay {
            Replay::Ahead => publisher.replayed(1, PUBREC),
            Replay::Behind => {}
        }
        publisher.reconnects();
        publisher.publishes(2, Qos::ExactlyOnce, true);
        publisher.both(2, PUBREC);
        publisher.says(2, &RELEASE);
        publisher.both(2, PUBCOMP);
        publisher.both(SUBSCRIBER, &message);
        publisher.assert_clean(&format!("PUBLISH, {replay:?}"));

        // The connection ends behind PUBREC.
        let mut publisher = Publisher::new();
        publisher.publishes(1, Qos::ExactlyOnce, false);
        publisher.both(1, PUBREC);
        match replay {
            Replay::Ahead => publisher.replayed(SUBSCRIBER, &message),
            Replay::Behind => publisher.recorded(SUBSCRIBER, &message),
        }
        publisher.reconnects();
        match replay {
            Replay::Ahead => publisher.recorded(SUBSCRIBER, &message),
            Replay::Behind => publisher.replayed(SUBSCRIBER, &message),
        }
        publisher.says(2, &RELEASE);
        publisher.both(2, PUBCOMP);
        publisher.assert_clean(&format!("PUBREC, {replay:?}"));

        // The connection ends behind PUBREL.
        let mut publisher = Publisher::new();
        publisher.publishes(1, Qos::ExactlyOnce, false);
        publisher.both(1, PUBREC);
        publisher.says(1, &RELEASE);
        publisher.reconnects();
        publisher.says(2, &RELEASE);
        let (recorded, replayed) = match replay {
            Replay::Ahead => (PUBCOMP, PUBCOMP_NOT_FOUND),
            Replay::Behind => (PUBCOMP_NOT_FOUND, PUBCOMP),
        };
        publisher.recorded(2, recorded);
        publisher.replayed(2, replayed);
        publisher.both(SUBSCRIBER, &message);
        publisher.assert_clean(&format!("PUBREL, {replay:?}"));

        // The connection ends behind PUBCOMP, which the client does not receive in the recording.
        let mut publisher = Publisher::new();
        publisher.publishes(1, Qos::ExactlyOnce, false);
        publisher.both(1, PUBREC);
        publisher.says(1, &RELEASE);
        publisher.recorded(1, PUBCOMP);
        if replay == Replay::Ahead {
            publisher.replayed(1, PUBCOMP);
        }
        publisher.reconnects();
        publisher.both(SUBSCRIBER, &message);
        if replay == Replay::Behind {
            publisher.replayed(1, PUBCOMP);
        }
        publisher.assert_clean(&format!("PUBCOMP, {replay:?}"));
    }
}

#[test]
fn the_reason_of_a_first_pubcomp_is_compared() {
    let mut publisher = Publisher::new();
    publisher.publishes(1, Qos::ExactlyOnce, false);
    publisher.both(1, PUBREC);
    publisher.says(1, &RELEASE);
    publisher.recorded(1, PUBCOMP);
    publisher.replayed(1, PUBCOMP_NOT_FOUND);
    assert_eq!(publisher.judge.finish().differences(), 1);
}

/// A server may deliver a message of QoS 1 twice if its publisher sends it again.
#[test]
fn a_message_that_the_client_sends_again_is_delivered_once_or_twice() {
    for replay in [Replay::Ahead, Replay::Behind] {
        let [first, second] = [1, 2].map(|packet_id| publish(packet_id, (Qos::AtLeastOnce, b'a'), false));
        let mut publisher = Publisher::new();
        publisher.publishes(1, Qos::AtLeastOnce, false);
        publisher.both(SUBSCRIBER, &first);
        publisher.reconnects();
        publisher.publishes(2, Qos::AtLeastOnce, true);
        publisher.both(2, b"\x40\x02\0\x05");
        match replay {
            Replay::Ahead => publisher.replayed(SUBSCRIBER, &second),
            Replay::Behind => publisher.recorded(SUBSCRIBER, &second),
        }
        // The end of the recording is far away.
        (0..10).for_each(|_| publisher.advance());
        publisher.assert_clean(&format!("{replay:?}"));
    }
}
