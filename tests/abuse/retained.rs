//! W: retained messages by the thousand.

use std::collections::HashSet;

use pondhawk_tests::conversation::{Message, PUBACK, publish};
use pondhawk_tests::{Broker, Client, Version, packet};

use crate::stage::{play, sized};

/// Retains a message at QoS 1. Returns the reason in its PUBACK.
fn retain(client: &mut Client, topic: &str, payload: &[u8]) -> u8 {
    let version = client.version();
    client.send(&publish(version, 0x33, 1, topic, &[], payload));
    let answer = client.read_packet();
    assert_eq!(answer[0], PUBACK);
    answer.get(4).copied().unwrap_or(0)
}

/// The topics of this number of retained messages. Other packets are left out.
fn read_all(client: &mut Client, count: usize) -> HashSet<String> {
    let mut topics = HashSet::new();
    while topics.len() < count {
        let packet = client.read_packet();
        if packet[0] & 0xF0 == 0x30 {
            topics.insert(Message::parse(client.version(), &packet).topic);
        }
    }
    topics
}

fn subscriber_that_does_not_read(broker: &Broker, version: Version, subscriptions: usize) -> Client {
    let mut slow = broker.client(version, "slow");
    slow.send(&packet::subscribe(version, 1, "r/#").repeat(subscriptions));
    slow
}

#[test]
fn w_09_who_subscribes_again_and_again_and_hardly_reads_holds_no_memory() {
    const TIMES: usize = 50;
    let topics = sized(2_000, 1_000_000);
    play("", |broker| {
        let mut peer = broker.client(Version::V3_1_1, "peer");
        for number in 0..topics {
            peer.retain(&format!("r/{number}"), &[b'x'; 1_000]);
        }
        assert_eq!(retain(&mut peer, "end", b""), 0);
        for version in Version::ALL {
            let before = broker.resident_bytes();
            let mut slow = subscriber_that_does_not_read(broker, version, TIMES);
            // When the next one has everything, as much as may is on the way to the slow one.
            let mut quick = broker.client(version, "quick");
            quick.subscribe("r/#");
            assert_eq!(read_all(&mut quick, topics).len(), topics);
            quick.expect_only_pong();
            if let (Some(before), Some(after)) = (before, broker.resident_bytes()) {
                let grown = after.saturating_sub(before);
                assert!(grown < 8 << 20, "{grown} bytes for {TIMES} subscriptions");
            }
            // Only the last stream goes on to its end.
            let (mut subacks, mut received, mut last) = (0, 0, HashSet::new());
            while subacks < TIMES || last.len() < topics {
                let packet = slow.read_packet();
                if packet[0] == 0x90 {
                    subacks += 1;
                    last.clear();
                } else {
                    received += 1;
                    last.insert(Message::parse(version, &packet).topic);
                }
            }
            slow.expect_only_pong();
            assert!(received < TIMES * topics / 2, "{received} messages for {TIMES} subscriptions");
            slow.leave();
            quick.leave();
        }
        (0..topics).for_each(|number| peer.retain(&format!("r/{number}"), b""));
        peer.expect_only_pong();
    });
}
