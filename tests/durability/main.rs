//! Acknowledged messages are there after the broker was killed, at any time and any number of times.

use pondhawk_tests::conversation;
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::promises::kill;
use pondhawk_tests::{Broker, Options, Version, data_dir};

#[test]
fn nothing_that_was_promised_is_lost_and_nothing_of_qos_2_comes_twice_however_often_the_broker_is_killed() {
    let killed = kill(12, 1, |_| {});
    assert!(killed.findings.is_good(), "{killed:#?}");
}

#[test]
fn a_restart_keeps_sessions_with_their_subscriptions_retained_messages_and_queues_of_groups() {
    let directory = data_dir();
    let start = |shards| {
        Broker::start(&Options { shards, data_dir: Some(directory.path().into()), ..Options::default() })
    };
    let lasting = Connect { clean_start: false, ..Connect::new(Version::V3_1_1, "frog") };
    {
        let broker = start(4);
        let mut frog = broker.client_with(&lasting);
        frog.send(&packet::subscribe_with(Version::V3_1_1, 1, "pond/#", 1));
        frog.expect(&packet::suback(Version::V3_1_1, 1, 1));
        frog.send(&packet::subscribe_with(Version::V3_1_1, 2, "$share/frogs/jobs", 1));
        frog.expect(&packet::suback(Version::V3_1_1, 2, 1));
        frog.finish();
        frog.expect_closed();
        let mut toad = broker.client(Version::V3_1_1, "toad");
        for (packet_id, first, topic) in [(1u16, 0x32, "pond/a"), (2, 0x32, "jobs"), (3, 0x33, "law")] {
            toad.send(&conversation::publish(Version::V3_1_1, first, packet_id, topic, &[], b"kept"));
            toad.expect(&conversation::ack(conversation::PUBACK, packet_id));
        }
    }
    let broker = start(2);
    let (mut frog, connack) = broker.greet(&lasting);
    assert_eq!(connack[2], 1, "Session Present");
    let mut topics: Vec<Vec<u8>> = Vec::new();
    for _ in 0..2 {
        let publish = frog.read_packet();
        topics.push(publish[4..publish.len() - 6].to_vec());
    }
    topics.sort();
    assert_eq!(topics, [&b"jobs"[..], b"pond/a"]);
    let mut newt = broker.client(Version::V3_1_1, "newt");
    newt.subscribe("law");
    newt.expect_retained("law", b"kept");
    newt.publish("pond/b", b"0");
    frog.expect(&packet::publish(Version::V3_1_1, "pond/b", b"0"));
}

/// More than the journal's first segments hold, so that what waits is copied from old ones meanwhile.
#[test]
fn messages_that_wait_on_disk_alone_come_in_their_order() {
    const MESSAGES: u32 = 3_000;
    const PAYLOAD_BYTES: usize = 12 << 10;
    const QUOTA_EXCEEDED: u8 = 0x97;
    let directory = data_dir();
    let start = |shards| {
        let settings = "[limits]\nqueued_bytes_in_memory = 0\n".to_owned();
        let data_dir = Some(directory.path().into());
        Broker::start(&Options { shards, settings, data_dir, ..Options::default() })
    };
    let away = Connect { clean_start: false, ..Connect::new(Version::V3_1_1, "away") };
    let publish = |broker: &Broker, numbers: std::ops::Range<u32>| {
        let mut publisher = broker.client(Version::V5, "publisher");
        for number in numbers {
            let mut payload = number.to_be_bytes().to_vec();
            payload.resize(PAYLOAD_BYTES, 7);
            let publish = conversation::publish(Version::V5, 0x32, 1, "numbers", &[], &payload);
            let is_taken = |()| {
                publisher.send(&publish);
                let answer = publisher.read_packet();
                let has_no_space = answer.get(4) == Some(&QUOTA_EXCEEDED);
                assert!(
                    has_no_space || answer == conversation::ack(conversation::PUBACK, 1),
                    "{answer:02x?}"
                );
                !has_no_space
            };
            // It is refused while the next segment is not ready: on a busy machine that may take a while.
            assert!(std::iter::repeat_n((), 100_000).any(is_taken), "there is never space for {number}");
        }
    };
    let hear = |broker: &Broker, numbers: std::ops::Range<u32>| {
        let mut client = broker.greet(&away).0;
        for number in numbers {
            let packet = client.read_packet();
            let payload = &packet[packet.len() - PAYLOAD_BYTES..];
            assert_eq!(payload[..4], number.to_be_bytes());
            let packet_id = &packet[packet.len() - PAYLOAD_BYTES - 2..][..2];
            let packet_id = u16::from_be_bytes([packet_id[0], packet_id[1]]);
            client.send(&conversation::ack(conversation::PUBACK, packet_id));
        }
        // Messages that are in flight meanwhile arrive again.
        client.finish();
        client.read_to_end();
    };
    {
        let broker = start(2);
        let mut client = broker.client_with(&away);
        client.send(&packet::subscribe_with(Version::V3_1_1, 1, "numbers", 1));
        client.expect(&packet::suback(Version::V3_1_1, 1, 1));
        client.finish();
        client.expect_closed();
        publish(&broker, 0..MESSAGES / 2);
        hear(&broker, 0..MESSAGES / 4);
        publish(&broker, MESSAGES / 2..MESSAGES);
    }
    let broker = start(1);
    hear(&broker, MESSAGES / 4..MESSAGES / 2);
    publish(&broker, MESSAGES..MESSAGES + MESSAGES / 4);
    hear(&broker, MESSAGES / 2..MESSAGES + MESSAGES / 4);
}

#[test]
fn a_second_broker_on_the_same_directory_is_told_who_has_it() {
    let directory = data_dir();
    let options = Options { data_dir: Some(directory.path().into()), ..Options::default() };
    let first = Broker::start(&options);
    let told = Broker::try_start(&options).expect_err("the directory is in use");
    assert!(told.contains(&format!("is in use by process {}", first.process_id())), "{told}");
}

#[test]
fn a_listener_whose_acknowledgements_promise_less_is_named_when_the_broker_starts() {
    let directory = data_dir();
    let options = Options {
        data_dir: Some(directory.path().into()),
        settings: "[[listener]]\naddress = \"127.0.0.1:0\"\ndurability = \"none\"\n".to_owned(),
        ..Options::default()
    };
    let broker = Broker::start(&options);
    assert!(
        broker.wait_for_log("can take back the last acknowledgements").contains("the end of this process")
    );
}
