//! R: floods of messages, properties, levels and names.

use std::thread;

use pondhawk_tests::conversation::{Conversation, filter, publish, request};
use pondhawk_tests::packet::{self, Connect, user_property};
use pondhawk_tests::{Broker, Client, Version};

use crate::packets::{connect_with, connect_with_will_properties, subscribe_with};
use crate::stage::{Answer, V5, answers, connected, first, play, sized, wait_for_sys};

const QUOTA_EXCEEDED: u8 = 0x97;

/// Maximum growth of the broker's memory during an operation.
fn grows_less_than(bytes: usize, broker: &Broker, act: impl FnOnce()) {
    let before = broker.resident_bytes();
    act();
    if let (Some(before), Some(after)) = (before, broker.resident_bytes()) {
        let grown = after.saturating_sub(before);
        assert!(grown < bytes, "{grown} bytes");
    }
}

#[test]
fn r_03_a_subscriber_that_reads_nothing_holds_neither_the_publisher_nor_the_others() {
    const PAYLOAD: [u8; 1_000] = [b'x'; 1_000];
    let messages = sized(20_000, 1_000_000);
    let settings = "[sessions]\nqueue_messages = 1000\n[sys]\ninterval = \"1 s\"\n";
    play(settings, |broker| {
        let mut stuck: Vec<Client> = [0, 1]
            .map(|qos| {
                let mut stuck = broker.client(Version::V5, &format!("stuck at {qos}"));
                stuck.subscribe_with("t", qos);
                stuck
            })
            .into();
        let mut quick = broker.client(Version::V3_1_1, "quick");
        quick.subscribe_with("t", 1);
        // QoS 0 may overtake what waits behind a window.
        let reader = |quick: &mut Client| {
            for _ in 0..messages {
                let message = quick.message();
                if message.qos == 1 {
                    quick.acknowledge(0x40, message.packet_id);
                }
            }
        };
        grows_less_than(24 << 20, broker, || {
            thread::scope(|scope| {
                let reading = scope.spawn(|| reader(&mut quick));
                let mut publisher = broker.client(Version::V3_1_1, "publisher");
                for number in 0..messages {
                    publisher.publish_at(u8::from(number % 10 == 0), 1, "t", &PAYLOAD);
                    if number % 10 == 0 {
                        publisher.expect_ack(0x40, 1);
                    }
                }
                publisher.leave();
                reading.join().expect("the quick one gets everything");
            });
        });
        wait_for_sys(broker, "dropped/slow", |count| count > 0);
        stuck.clear();
    });
}

/// This number of User Properties, each with an empty name and value.
fn empty_user_properties(count: usize) -> Vec<u8> {
    user_property("", "").repeat(count)
}

#[test]
fn r_04_twelve_thousand_user_properties() {
    const MANY: usize = 12_000;
    let in_connect = |count| {
        move |version, id: &str| {
            connect_with(version, 0x02, &empty_user_properties(count), &packet::string(id))
        }
    };
    let in_will = |count| move |_, id: &str| connect_with_will_properties(id, &empty_user_properties(count));
    let in_subscribe =
        |version, _: &str| subscribe_with(version, &empty_user_properties(MANY), &filter("a", 0));
    let in_publish = |version, _: &str| publish(version, 0x30, 0, "t", &empty_user_properties(MANY), b"hey");
    answers(
        &[
            first(V5, in_connect(10_000), &Answer::Served),
            first(V5, in_connect(10_001), &Answer::Reason(QUOTA_EXCEEDED)),
            first(V5, in_connect(MANY), &Answer::Reason(QUOTA_EXCEEDED)),
            first(V5, in_will(10_000), &Answer::Served),
            first(V5, in_will(10_001), &Answer::Reason(QUOTA_EXCEEDED)),
            first(V5, in_will(MANY), &Answer::Reason(QUOTA_EXCEEDED)),
            connected(V5, in_subscribe, &Answer::Reply(packet::suback(Version::V5, 1, 0))),
            connected(V5, in_publish, &Answer::Served),
        ]
        .concat(),
    );
}

#[test]
fn r_04_a_megabyte_of_properties_to_many() {
    let properties = empty_user_properties(200_000);
    let subscribers = sized(50, 1_000);
    play("", |broker| {
        let mut all: Vec<Client> = (0..subscribers)
            .map(|number| {
                let mut client = broker.client(Version::V5, &format!("subscriber {number}"));
                client.subscribe("t");
                client
            })
            .collect();
        let message = publish(Version::V5, 0x30, 0, "t", &properties, b"hey");
        grows_less_than(24 << 20, broker, || {
            broker.client(Version::V5, "publisher").send(&message);
            all.iter_mut().for_each(|client| client.expect(&message));
        });
    });
}

/// Filters with this number of levels, each with a mix of `+` and names that no other filter has.
fn deep_filters(levels: u32, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |number| {
        // The number's bits, spread over the levels.
        let is_plus = |level: u32| number >> (level % usize::BITS.min(17)) & 1 == 1;
        let level = |level| if is_plus(level) { "+" } else { "a" };
        (1..levels).map(level).chain(["end"]).collect::<Vec<_>>().join("/")
    })
}

#[test]
fn r_05_every_mix_of_wildcards_on_a_hundred_levels() {
    const LEVELS: u32 = 100;
    const BATCH: usize = 500;
    let filters = sized(4_000, 100_000);
    let topic = ["a"; LEVELS as usize - 1].join("/");
    play("", |broker| {
        let mut greedy = broker.client(Version::V5, "greedy");
        let texts: Vec<String> = deep_filters(LEVELS, filters).collect();
        let mut refused = 0;
        for batch in texts.chunks(BATCH) {
            let filters: Vec<u8> = batch.iter().flat_map(|text| filter(text, 0)).collect();
            greedy.send(&request(Version::V5, 0x82, 1, &[], &filters));
            let suback = greedy.read_packet();
            let codes = &suback[suback.len() - batch.len()..];
            assert!(codes.iter().all(|code| [0, QUOTA_EXCEEDED].contains(code)), "{codes:02x?}");
            refused += codes.iter().filter(|code| **code == QUOTA_EXCEEDED).count();
        }
        assert!(refused > 0, "so many mixes cannot be looked up for each message");
        // Others pay little for them, though each of these topics is looked up anew, and nobody's.
        let mut peer = broker.client(Version::V3_1_1, "peer");
        peer.subscribe("mine/+");
        for number in 0..1_000 {
            peer.publish(&format!("{topic}/{number}"), b"hey");
        }
        peer.publish("mine/too", b"hey");
        peer.expect_message("mine/too", b"hey");
        peer.publish(&format!("{topic}/end"), b"hey");
        greedy.expect_message(&format!("{topic}/end"), b"hey");
        // And shapes of few levels are not refused to anybody.
        peer.subscribe("+/a/+/b/+/c");
    });
}

#[test]
fn r_06_every_message_to_a_new_topic() {
    const BATCH: usize = 1_000;
    let batches = sized(50, 10_000);
    play("", |broker| {
        let mut peer = broker.client(Version::V3_1_1, "peer");
        let mut publish_batch = |batch: usize| {
            let publish = |number| packet::publish(Version::V3_1_1, &format!("new/{batch}/{number}"), b"hey");
            peer.send(&(0..BATCH).flat_map(publish).collect::<Vec<u8>>());
            peer.expect_only_pong();
        };
        publish_batch(0);
        grows_less_than(4 << 20, broker, || (1..batches).for_each(publish_batch));
    });
}

/// Texts that have one value under the hash that multiplies by 31 and adds, as that of Java's strings.
fn colliding(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| (0..20).map(|bit| if number >> bit & 1 == 1 { "Aa" } else { "BB" }).collect())
}

#[test]
fn r_07_names_that_collide_in_a_hash_that_everybody_knows() {
    let names = sized(5_000, 1_000_000);
    let settings = format!("[limits]\nsubscriptions_per_client = {names}\n");
    play(&settings, |broker| {
        let mut greedy = broker.client(Version::V3_1_1, "greedy");
        let texts: Vec<String> = colliding(names).collect();
        for batch in texts.chunks(1_000) {
            let filters: Vec<u8> = batch.iter().flat_map(|text| filter(text, 0)).collect();
            greedy.send(&request(Version::V3_1_1, 0x82, 1, &[], &filters));
            assert!(greedy.read_packet().ends_with(&vec![0; batch.len()]));
        }
        for text in texts.iter().take(1_000) {
            greedy.publish(text, b"hey");
            greedy.expect_message(text, b"hey");
            let version = Version::V5;
            broker.client(version, text).leave();
        }
    });
}

/// Malformed packets of all kinds, first ones and others.
const MALFORMED: [&[u8]; 8] = [
    b"\x10\x80\x80\x80\x80",
    b"\x10\x0E\x00\x04MQTT\x05\x03\x00\x00\x00\x00\x01a",
    b"\x30\x00",
    b"\x32\x03\x00\x01a",
    b"\x82\x02\x00\x01",
    b"\x30\x07\xFF\xFFABCDE",
    b"\xC0\x01\x00",
    b"\xF1\x00",
];

#[test]
fn r_08_a_crowd_of_connections_that_each_send_one_malformed_packet() {
    const PEERS: usize = 4;
    let connections = sized(2_000, 1_000_000);
    play("", |broker| {
        grows_less_than(16 << 20, broker, || {
            thread::scope(|scope| {
                for peer in 0..PEERS {
                    scope.spawn(move || {
                        for number in (0..connections).skip(peer).step_by(PEERS) {
                            let mut connection = broker.connect();
                            let bytes = MALFORMED[number % MALFORMED.len()];
                            if bytes[0] != 0x10 {
                                let client_id = format!("peer {peer}");
                                connection.send(&Connect::new(Version::ALL[number % 3], &client_id).bytes());
                            }
                            connection.send(bytes);
                            connection.read_to_end();
                        }
                    });
                }
            });
        });
        // Every line is an end or a refusal, and there are not more than a shard may write.
        let lines = broker.log_lines("client_id=").len();
        assert!(lines <= 3 * connections, "{lines} lines for {connections} connections");
    });
}
