//! N: sessions and identity.

use std::thread;

use pondhawk_tests::packet::{self, Connect, Will};
use pondhawk_tests::{Client, Version, until};

use crate::stage::play;

const SESSION_TAKEN_OVER: u8 = 0x8E;

/// The number that a message to `t` carries.
fn number(client: &Client, message: &[u8]) -> u32 {
    let begin = if client.version().is_5() { 6 } else { 5 };
    assert_eq!(message[0], 0x30, "{message:02x?}");
    String::from_utf8_lossy(&message[begin..]).parse().expect("a message has a number")
}

/// [MQTT-3.1.4-3, 3.1.1 MQTT-3.1.4-2]
#[test]
fn n_01_a_takeover_in_the_middle_of_delivery() {
    const MESSAGES: u32 = 2_000;
    play("", |broker| {
        for (old_version, new_version) in
            Version::ALL.into_iter().flat_map(|old| Version::ALL.map(|new| (old, new)))
        {
            let mut old = broker.client(old_version, "twin");
            old.subscribe("t");
            let mut publisher = broker.client(Version::V3_1_1, "publisher");
            let publish = |n: u32| packet::publish(Version::V3_1_1, "t", n.to_string().as_bytes());
            publisher.send(&(0..MESSAGES).flat_map(publish).collect::<Vec<u8>>());
            let mut new = broker.client(new_version, "twin");
            new.subscribe("t");
            publisher.send(&publish(MESSAGES));

            // The old one gets a beginning of the messages, whole, and is told.
            let mut expected = 0;
            while let Some(message) = old.next_packet() {
                if message[0] == 0xE0 {
                    assert_eq!(message, packet::disconnect(old_version, SESSION_TAKEN_OVER));
                    assert!(old_version.is_5());
                    continue;
                }
                assert_eq!(number(&old, &message), expected);
                expected += 1;
            }
            // The new one gets an end of them, none of which the old one had.
            let mut next = None;
            while next != Some(MESSAGES + 1) {
                let message = new.read_packet();
                let number = number(&new, &message);
                assert!(
                    number >= expected && next.is_none_or(|next| next == number),
                    "{number} after {next:?}"
                );
                next = Some(number + 1);
            }
            new.leave();
        }
    });
}

#[test]
fn n_02_two_peers_that_steal_one_identifier_from_each_other() {
    const THEFTS: usize = 200;
    play("", |broker| {
        let mut witness = broker.client(Version::V3_1_1, "witness");
        witness.subscribe("will");
        let mut holder: Option<Client> = None;
        for theft in 0..THEFTS {
            let version = Version::ALL[theft % 3];
            let will = Some(Will::new("will", b"robbed"));
            let thief = broker.client_with(&Connect { will, ..Connect::new(version, "treasure") });
            if let Some(mut robbed) = holder.replace(thief) {
                robbed.expect_disconnect(SESSION_TAKEN_OVER);
                witness.expect_message("will", b"robbed");
            }
        }
        holder.expect("somebody holds it").leave();
        witness.expect_only_pong();
        let thefts = || broker.log_lines("disconnected client_id=treasure ").len();
        until("each theft has its line", || (thefts() == THEFTS).then_some(()));
    });
}

#[test]
fn n_02_many_peers_that_steal_at_the_same_time() {
    const PEERS: usize = 8;
    const THEFTS: usize = 25;
    play("", |broker| {
        thread::scope(|scope| {
            for peer in 0..PEERS {
                scope.spawn(move || {
                    let version = Version::ALL[peer % 3];
                    for _ in 0..THEFTS {
                        let mut connection = broker.connect();
                        connection.send(&Connect::new(version, "treasure").bytes());
                        connection.send(&[0xC0, 0x00]);
                        // Let in or robbed before that, and robbed some time.
                        connection.finish();
                        connection.read_to_end();
                    }
                });
            }
        });
        let mut last = broker.client(Version::V5, "treasure");
        last.subscribe("t");
        last.publish("t", b"mine");
        last.expect_message("t", b"mine");
        last.leave();
    });
}
