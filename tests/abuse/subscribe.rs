//! U: SUBSCRIBE and UNSUBSCRIBE.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use pondhawk_tests::conversation::Conversation;
use pondhawk_tests::packet::{self, Connect, string};
use pondhawk_tests::{Broker, Client, Version};

use crate::packets::{filter, subscribe, subscribe_with, unsubscribe};
use crate::stage::{
    ALL, Answer, BEFORE_5, V3_1, V3_1_1, V5, answers, connected, play, raw, sized, wait_for_sys,
};

const NO_SUBSCRIPTION_EXISTED: u8 = 0x11;
const TOPIC_FILTER_INVALID: u8 = 0x8F;
const PACKET_TOO_LARGE: u8 = 0x95;
const QUOTA_EXCEEDED: u8 = 0x97;

/// [MQTT-3.8.3-2, MQTT-3.10.3-2, 3.1.1 MQTT-3.8.3-3, 3.1.1 MQTT-3.10.3-2]
#[test]
fn u_01_no_filter() {
    answers(
        &[
            connected(ALL, |version, _| subscribe(version, b""), &Answer::ProtocolError),
            connected(ALL, |version, _| unsubscribe(version, b""), &Answer::ProtocolError),
        ]
        .concat(),
    );
}

/// [MQTT-3.8.3-4, MQTT-3.8.3-5, 3.1.1 MQTT-3.8.3-4]
#[test]
fn u_02_subscription_options_that_do_not_exist() {
    let with = |options| move |version, _: &str| subscribe(version, &filter(b"a", options));
    let no_local_on_shared = |version, _: &str| subscribe(version, &filter(b"$share/g/a", 0x04));
    answers(
        &[
            connected(V5, with(0x03), &Answer::ProtocolError),
            connected(V5, with(0x30), &Answer::ProtocolError),
            connected(V5, with(0x40), &Answer::Malformed),
            connected(V5, with(0x80), &Answer::Malformed),
            connected(V5, with(0xC0), &Answer::Malformed),
            connected(V5, no_local_on_shared, &Answer::ProtocolError),
            connected(BEFORE_5, with(0x03), &Answer::Malformed),
            connected(BEFORE_5, with(0x04), &Answer::Malformed),
            connected(BEFORE_5, with(0xFC), &Answer::Malformed),
        ]
        .concat(),
    );
}

/// Number of filters in the one SUBSCRIBE of U-03.
const FILTERS: usize = 20_000;

/// Every seventh filter has more levels than there may be. Their order is not the same from the end.
fn is_too_deep(number: usize) -> bool {
    number % 7 == 1
}

fn many_filters() -> Vec<u8> {
    let text = |number| {
        if is_too_deep(number) { format!("a/b/c/d/{number}") } else { format!("a/{number}") }
    };
    (0..FILTERS).flat_map(|number| filter(text(number).as_bytes(), 0)).collect()
}

/// [MQTT-3.8.4-5, MQTT-3.8.4-6, MQTT-3.9.3-1, 3.1.1 MQTT-3.8.4-4, 3.1.1 MQTT-3.8.4-5, 3.1.1 MQTT-3.9.3-1]
#[test]
fn u_03_twenty_thousand_filters_have_as_many_answers_in_order() {
    play("[limits]\ntopic_levels = 4\n", |broker| {
        for (version, failure) in [(Version::V3_1_1, 0x80), (Version::V5, TOPIC_FILTER_INVALID)] {
            let mut frog = broker.client(version, "frog");
            frog.send(&subscribe(version, &many_filters()));
            let codes = (0..FILTERS).map(|number| if is_too_deep(number) { failure } else { 0 });
            let properties: &[u8] = if version.is_5() { &[0x00] } else { &[] };
            let body = [&[0x00, 0x01], properties, &codes.collect::<Vec<u8>>()].concat();
            frog.expect(&packet::packet(0x90, &body));
            frog.publish("a/19998", b"hey");
            frog.expect_message("a/19998", b"hey");
            frog.leave();
        }
    });
}

/// [MQTT-3.1.2-24]
#[test]
fn u_03_an_answer_that_is_larger_than_the_client_takes() {
    play("", |broker| {
        let properties = b"\x27\x00\x00\x03\xE8";
        let mut frog = broker.client_with(&Connect { properties, ..Connect::new(Version::V5, "frog") });
        frog.send(&subscribe(Version::V5, &many_filters()));
        frog.expect_disconnect(PACKET_TOO_LARGE);
    });
}

#[test]
fn u_04_more_filters_than_one_client_may_have_and_then_a_reset() {
    let most = sized(5_000, 1_000_000);
    let settings = format!("[limits]\nsubscriptions_per_client = {most}\n[sys]\ninterval = \"1 s\"\n");
    play(&settings, |broker| {
        // The innocent one's and the watcher's own.
        wait_for_sys(broker, "subscriptions/count", |count| count == 2);
        for version in Version::ALL {
            let mut greedy = broker.client(version, "greedy");
            for begin in (0..most).step_by(5_000) {
                let numbers = begin..begin + 5_000;
                let filters: Vec<u8> = numbers.flat_map(|n| filter(format!("g/{n}").as_bytes(), 0)).collect();
                greedy.send(&subscribe(version, &filters));
                assert_eq!(greedy.read_packet()[0], 0x90);
            }
            greedy.send(&packet::subscribe(version, 2, "one/more"));
            match version {
                Version::V3_1 => greedy.expect_closed(),
                Version::V3_1_1 => greedy.expect(&packet::suback(version, 2, 0x80)),
                Version::V5 => greedy.expect(&packet::suback(version, 2, QUOTA_EXCEEDED)),
            }
            greedy.into_raw().reset();
        }
        wait_for_sys(broker, "subscriptions/count", |count| count == 2);
    });
}

/// [MQTT-3.8.3-3, MQTT-3.8.4-3]
#[test]
fn u_05_of_one_filter_twice_in_a_packet_the_last_counts() {
    play("", |broker| {
        let mut frog = broker.client(Version::V5, "frog");
        // With No Local and then without; and the other way around.
        for (options, hears_itself) in [([0x04, 0x00], true), ([0x00, 0x04], false)] {
            frog.send(&subscribe(Version::V5, &options.map(|options| filter(b"t", options)).concat()));
            frog.expect(b"\x90\x05\x00\x01\x00\x00\x00");
            frog.publish("t", b"hey");
            if hears_itself {
                frog.expect_message("t", b"hey");
            }
            frog.expect_only_pong();
        }
    });
}

/// [MQTT-3.3.4-3, MQTT-3.3.4-4]
#[test]
fn u_05_two_hundred_overlapping_filters_bring_one_copy_with_all_identifiers() {
    const LEVELS: u32 = 7;
    const FILTERS: u8 = 200;
    // Each is the topic with some of its levels replaced.
    let pattern = |number: u8| {
        let level = |bit| if u32::from(number) >> bit & 1 == 1 { "+" } else { "a" };
        let levels: Vec<&str> = (0..LEVELS).map(level).collect();
        if number < 128 { levels.join("/") } else { format!("{}/#", levels.join("/")) }
    };
    play("", |broker| {
        let mut frog = broker.client(Version::V5, "frog");
        for number in 0..FILTERS {
            let identifier = [vec![0x0B], packet::variable_byte_integer(usize::from(number) + 1)].concat();
            frog.send(&subscribe_with(Version::V5, &identifier, &filter(pattern(number).as_bytes(), 0)));
            frog.expect(&packet::suback(Version::V5, 1, 0));
        }
        let topic = ["a"; LEVELS as usize].join("/");
        frog.publish(&topic, b"hey");
        let received = frog.read_packet();
        frog.expect_only_pong();
        // Every identifier below 128 takes two bytes, from there on three.
        let properties_bytes = 127 * 2 + (usize::from(FILTERS) - 127) * 3;
        let begin = 3 + string(&topic).len();
        assert_eq!(received[begin..begin + 2], packet::variable_byte_integer(properties_bytes));
        assert!(received.ends_with(b"hey"));
        assert_eq!(received.len(), begin + 2 + properties_bytes + 3);
    });
}

/// One client that subscribes, unsubscribes and comes back, again and again, while somebody publishes.
struct Restless<'a> {
    broker: &'a Broker,
    /// The number of the last message that was published.
    published: &'a AtomicU64,
    version: Version,
    client_id: String,
}

impl Restless<'_> {
    fn run(&self, rounds: usize) {
        for round in 0..rounds {
            let mut client = self.broker.client(self.version, &self.client_id);
            client.subscribe("flood");
            self.hear_something(&mut client);
            if round % 3 == 0 {
                client.into_raw().reset();
                continue;
            }
            client.send(&packet::unsubscribe(self.version, 2, "flood"));
            while client.read_packet()[0] != 0xB0 {}
            // Published from now on is what nobody may bring any more.
            let due = self.published.load(Ordering::SeqCst);
            client.send(&[0xC0, 0x00]);
            while let Some(number) = self.number(&client.read_packet()) {
                assert!(number <= due, "message {number} after UNSUBACK, which came after message {due}");
            }
        }
    }

    fn hear_something(&self, client: &mut Client) {
        assert!(self.number(&client.read_packet()).is_some());
    }

    /// The number in a message; nothing for PINGRESP.
    fn number(&self, packet: &[u8]) -> Option<u64> {
        let number = packet.get(if self.version.is_5() { 10.. } else { 9.. })?;
        Some(String::from_utf8_lossy(number).parse().expect("a message has a number"))
    }
}

/// [MQTT-3.10.4-2, 3.1.1 MQTT-3.10.4-2]
#[test]
fn u_06_subscribing_unsubscribing_and_coming_back_under_a_flood() {
    const CLIENTS: usize = 6;
    let rounds = sized(30, 30_000);
    play("", |broker| {
        let (published, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let restless: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let version = Version::ALL[number % 3];
                    let client_id = format!("restless {number}");
                    let restless = Restless { broker, published: &published, version, client_id };
                    scope.spawn(move || restless.run(rounds))
                })
                .collect();
            scope.spawn(|| {
                let mut publisher = broker.client(Version::V3_1_1, "publisher");
                while !is_over.load(Ordering::SeqCst) {
                    let number = published.load(Ordering::SeqCst) + 1;
                    // The number is stored before the message is sent: a thread that sees the number may see the
                    // message.
                    published.store(number, Ordering::SeqCst);
                    publisher.publish("flood", number.to_string().as_bytes());
                    publisher.expect_only_pong();
                }
            });
            let outcomes: Vec<_> = restless.into_iter().map(|client| client.join()).collect();
            is_over.store(true, Ordering::SeqCst);
            assert!(outcomes.iter().all(Result::is_ok));
        });
    });
}

/// [MQTT-3.10.4-1, MQTT-3.10.4-5, 3.1.1 MQTT-3.10.4-1, 3.1.1 MQTT-3.10.4-5]
#[test]
fn u_07_unsubscribing_from_what_was_never_subscribed() {
    play("", |broker| {
        for version in Version::ALL {
            let mut frog = broker.client(version, "frog");
            frog.subscribe("t/#");
            for never in ["t", "t/+", "#", "T/#", "$share/g/t/#"] {
                frog.send(&packet::unsubscribe(version, 7, never));
                frog.expect(&packet::unsuback(version, 7, NO_SUBSCRIPTION_EXISTED));
            }
            frog.publish("t", b"still");
            frog.expect_message("t", b"still");
        }
    });
}

#[test]
fn u_07_one_unsubscribe_with_known_and_unknown_filters() {
    let filters = [string("a"), string("b")].concat();
    let unknown = |version, _: &str| unsubscribe(version, &filters);
    answers(
        &[
            connected(V5, unknown, &Answer::Reply(b"\xB0\x05\x00\x01\x00\x11\x11".to_vec())),
            connected(BEFORE_5, unknown, &Answer::Reply(b"\xB0\x02\x00\x01".to_vec())),
            connected(V3_1, raw(b"\xAA\x05\x00\x01\x00\x01a"), &Answer::Reply(b"\xB0\x02\x00\x01".to_vec())),
            connected(V3_1_1, raw(b"\xAA\x05\x00\x01\x00\x01a"), &Answer::Malformed),
        ]
        .concat(),
    );
}

#[test]
fn u_08_clients_that_subscribe_unsubscribe_and_leave_in_one_segment() {
    let clients = sized(1_000, 100_000);
    play("[sys]\ninterval = \"1 s\"\n", |broker| {
        for number in 0..clients {
            let version = Version::ALL[number % 3];
            let client_id = format!("hasty {number}");
            let mut hasty = broker.connect();
            let begin = [Connect::new(version, &client_id).bytes(), packet::subscribe(version, 1, "hasty/+")];
            let end = [packet::unsubscribe(version, 2, "hasty/+"), packet::disconnect(version, 0)];
            if number % 2 == 0 {
                hasty.send(&[begin.concat(), end.concat()].concat());
            } else {
                hasty.send(&begin.concat());
                assert!(packet::is_accepted(&hasty.read_packet()));
                hasty.expect(&packet::suback(version, 1, 0));
                hasty.send(&end.concat());
            }
            hasty.read_to_end();
        }
        let mut publisher = broker.client(Version::V5, "publisher");
        publisher.publish_at(1, 7, "hasty/x", b"hey");
        publisher.expect(b"\x40\x03\x00\x07\x10");
        // The innocent one's and the watcher's own.
        wait_for_sys(broker, "subscriptions/count", |count| count == 2);
    });
}
