//! What was acknowledged is there after the broker was killed, however often and whenever that was.

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
