//! What was acknowledged is there after the broker was killed, however often and whenever that was.

mod numbered;

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Options, Version, data_dir};

use numbered::{Publisher, Subscriber};

/// How often the broker is killed: more where somebody asks for it.
fn kills() -> usize {
    std::env::var("PONDHAWK_KILLS").ok().and_then(|kills| kills.parse().ok()).unwrap_or(12)
}

/// A sequence of numbers that is the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}

#[test]
fn no_acknowledged_message_is_lost_and_none_of_qos_2_comes_twice_however_often_the_broker_is_killed() {
    let directory = data_dir();
    let mut numbers = Numbers(1);
    let start = |shards: usize| {
        let shards = u16::try_from(shards).expect("a few");
        Broker::start(&Options { shards, data_dir: Some(directory.path().into()), ..Options::default() })
    };
    let (mut publisher, mut subscriber) = (Publisher::default(), Subscriber::default());
    subscriber.subscribe(&start(1));
    for _ in 0..kills() {
        let broker = start([1, 2, 4, 8][numbers.below(4)]);
        let mut publishing = publisher.connect(&broker);
        // Some rounds have a subscriber that takes a part of what waits for it.
        let mut subscribing = (numbers.below(3) > 0).then(|| subscriber.connect(&broker));
        for _ in 0..numbers.below(120) {
            publisher.send(&mut publishing);
            publisher.hear(&mut publishing);
            if let Some(subscribing) = &mut subscribing
                && subscriber.is_behind(&publisher)
            {
                subscriber.hear(subscribing);
            }
        }
        drop(broker);
    }
    let broker = start(1);
    let mut publishing = publisher.connect(&broker);
    while publisher.has_unfinished() {
        publisher.hear(&mut publishing);
    }
    let mut subscribing = subscriber.connect(&broker);
    publisher.publish_last(&mut publishing);
    while !subscriber.has_last() {
        subscriber.hear(&mut subscribing);
    }
    let lost = publisher.acknowledged().filter(|number| subscriber.count(*number) == 0);
    assert_eq!(lost.collect::<Vec<_>>(), [0u32; 0], "lost, though it was acknowledged");
    let twice = publisher.exactly_once().filter(|number| subscriber.count(*number) > 1);
    assert_eq!(twice.collect::<Vec<_>>(), [0u32; 0], "twice, at QoS 2");
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
        for (packet_id, first, topic) in [(1u8, 0x32, "pond/a"), (2, 0x32, "jobs"), (3, 0x33, "law")] {
            toad.send(&numbered::publish(first, topic, u16::from(packet_id), b"kept"));
            toad.expect(&[0x40, 2, 0, packet_id]);
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
