//! N: sessions that outlive their connections.

use pondhawk_tests::conversation::{
    Conversation, Message, PUBACK, PUBCOMP, PUBREC, PUBREL, go_on, lasting, publish, resume, session_present,
};
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Options, Version};

use crate::stage::{play, sized, wait_for_sys};

const QUOTA_EXCEEDED: u8 = 0x97;
const SERVER_UNAVAILABLE: u8 = 0x03;

/// [3.1.1 MQTT-3.2.2-5]
#[test]
fn n_04_sessions_for_ever_are_capped_in_time_and_number() {
    let most = sized(30, 1_000_000);
    let settings =
        format!("[sessions]\nlasting_max = {most}\nexpiry_max = \"1 h\"\n[sys]\ninterval = \"1 s\"\n");
    play(&settings, |broker| {
        for_ever_is_an_hour(broker);
        for number in 0..most {
            let version = Version::ALL[number % 3];
            broker.client_with(&lasting(version, &format!("kept {number}"))).leave();
        }
        for version in Version::ALL {
            let mut refused = broker.connect();
            refused.send(&lasting(version, "one more").bytes());
            if version.is_5() {
                refused.expect(&[0x20, 0x03, 0x00, QUOTA_EXCEEDED, 0x00]);
            } else {
                refused.expect(&[0x20, 0x02, 0x00, SERVER_UNAVAILABLE]);
            }
            refused.expect_closed();
            // Clients without a lasting session, and clients that have one, are accepted.
            broker.client(version, "one more").leave();
            go_on(broker, Version::V5, "kept 0").leave();
        }
        wait_for_sys(broker, "refused/sessions", |count| count == 3);
        (0..most).for_each(|number| broker.client(Version::V5, &format!("kept {number}")).leave());
    });
}

fn for_ever_is_an_hour(broker: &Broker) {
    let properties = b"\x11\xFF\xFF\xFF\xFF";
    let (client, connack) = broker.greet(&Connect { properties, ..Connect::new(Version::V5, "eternal") });
    let told = connack.windows(5).any(|bytes| bytes == b"\x11\x00\x00\x0E\x10");
    assert!(told, "Session Expiry Interval: {connack:02x?}");
    client.leave();
    broker.client(Version::V5, "eternal").leave();
}

#[test]
fn n_05_sessions_full_of_messages_expire_by_the_hundred() {
    const MESSAGES: u16 = 5;
    let sessions = sized(200, 20_000);
    play("[sys]\ninterval = \"1 s\"\n", |broker| {
        for number in 0..sessions {
            let client_id = format!("short {number}");
            let properties = b"\x11\x00\x00\x00\x02";
            let mut client =
                broker.client_with(&Connect { properties, ..Connect::new(Version::V5, &client_id) });
            client.subscribe_with("t", 2);
            client.leave();
        }
        let mut publisher = broker.client(Version::V3_1_1, "publisher");
        (0..MESSAGES).for_each(|number| publisher.deliver(1 + (number % 2) as u8, "t", &[b'x'; 4_000]));
        let sessions = u64::try_from(sessions).expect("a count");
        wait_for_sys(broker, "clients/expired", |count| count == sessions);
        wait_for_sys(broker, "account/queues/queued", |count| count == 0);
        wait_for_sys(broker, "account/queues/queued_bytes", |count| count == 0);
        wait_for_sys(broker, "subscriptions/count", |count| count == 2);
        publisher.leave();
    });
}

/// A session of an absent client, and a publisher that has sent it these messages of QoS 1. Returns the answers.
fn flood(broker: &Broker, version: Version, messages: u16) -> Vec<Option<u8>> {
    let (mut absent, _) = resume(broker, version, "absent");
    absent.subscribe_with("t", 1);
    absent.leave();
    let answer_to = |packet_id: u16| {
        let mut publisher = broker.client(version, &format!("publisher {packet_id}"));
        publisher.send(&publish(version, 0x32, packet_id, "t", &[], packet_id.to_string().as_bytes()));
        let answer = publisher.next_packet()?;
        assert_eq!(answer[0], PUBACK);
        publisher.leave();
        Some(answer.get(4).copied().unwrap_or(0))
    };
    (1..=messages).map(answer_to).collect()
}

const ROOM: u16 = 10;

/// Returns, and reads these messages and no others.
fn expect_kept(broker: &Broker, version: Version, kept: impl Iterator<Item = u16>) {
    let mut absent = go_on(broker, version, "absent");
    kept.for_each(|number| drop(absent.take_message(number.to_string().as_bytes())));
    absent.expect_only_pong();
    absent.leave();
    broker.client(version, "absent").leave();
}

fn play_with_full_queue(policy: &str, row: impl Fn(&Broker, Version)) {
    let settings = format!(
        "[sessions]\nqueue_messages = {ROOM}\nqueue_full = \"{policy}\"\n[sys]\ninterval = \"1 s\"\n"
    );
    play(&settings, |broker| Version::ALL.into_iter().for_each(|version| row(broker, version)));
}

#[test]
fn n_06_a_session_that_is_full_ends_and_its_client_is_told() {
    play_with_full_queue("end-session", |broker, version| {
        let log_before = broker.log_length();
        let answers = flood(broker, version, ROOM + 1);
        assert!(answers.iter().all(|answer| answer.is_some_and(|reason| reason < 0x80)), "{answers:?}");
        let (client, connack) = broker.greet(&lasting(version, "absent"));
        assert!(!session_present(&connack));
        client.leave();
        broker.client(version, "absent").leave();
        wait_for_sys(broker, "sessions/ended_by_full_queue", |count| count > 0);
        let line = broker.wait_for_log_behind(log_before, "a full queue");
        assert!(
            line.contains("WARN") && line.contains(&format!("client_id=absent messages={ROOM}")),
            "{line}"
        );
    });
}

/// The log names a few of them, and counts the others although nothing more happens.
#[test]
fn n_06_many_sessions_that_are_full_at_once_are_named_or_counted() {
    const SESSIONS: usize = 20;
    const NAMED: usize = 16;
    let settings = format!("[sessions]\nqueue_messages = {ROOM}\n[sys]\ninterval = \"off\"\n");
    // Without other clients, nothing wakes the thread that writes the last line.
    let broker = Broker::start(&Options { settings, ..Options::default() });
    for number in 0..SESSIONS {
        let (mut absent, _) = resume(&broker, Version::V5, &format!("many-{number}"));
        absent.subscribe_with("t", 1);
        absent.leave();
    }
    let mut publisher = broker.client(Version::V5, "publisher");
    (0..=ROOM).for_each(|_| publisher.deliver(1, "t", b"x"));
    let line = broker.wait_for_log("further sessions have ended");
    assert!(line.contains(&format!("sessions={}", SESSIONS - NAMED)), "{line}");
    assert_eq!(broker.log_lines("a full queue").len(), NAMED);
}

#[test]
fn n_06_where_the_operator_chose_so_the_publisher_is_refused() {
    play_with_full_queue("refuse", |broker, version| {
        let answers = flood(broker, version, ROOM + 2);
        let refusal = version.is_5().then_some(QUOTA_EXCEEDED);
        let expected = (0..ROOM).map(|_| Some(0)).chain([refusal, refusal]);
        assert_eq!(answers, expected.collect::<Vec<_>>());
        expect_kept(broker, version, 1..=ROOM);
        wait_for_sys(broker, "refused/queue_full", |count| count > 0);
    });
}

#[test]
fn n_06_or_messages_are_dropped_and_counted() {
    for (policy, kept) in [("drop-oldest", 3..=ROOM + 2), ("drop-newest", 1..=ROOM)] {
        play_with_full_queue(policy, |broker, version| {
            let answers = flood(broker, version, ROOM + 2);
            assert!(answers.iter().all(|answer| *answer == Some(0)), "{answers:?}");
            expect_kept(broker, version, kept.clone());
            let counter = format!("account/queues/{}", policy.replace("drop-", "dropped_"));
            wait_for_sys(broker, &counter, |count| count > 0);
        });
    }
}

/// Connects again as this client, reads messages that were sent before, and finishes this number of them in their
/// order.
fn finish_some(broker: &Broker, connect: &Connect<'_>, expected: &[Message]) {
    let mut client = broker.client_with(connect);
    let (mut read, mut finished) = (expected.iter(), 0);
    while finished < expected.len() {
        let packet = client.read_packet();
        let packet_id = u16::from_be_bytes([packet[2], packet[3]]);
        if packet[0] == PUBREL {
            client.acknowledge(PUBCOMP, packet_id);
            finished += 1;
            continue;
        }
        // Behind those that it finishes there may be more.
        let Some(message) = read.next() else { continue };
        let again = Message::parse(connect.version, &packet);
        assert_eq!((again.packet_id, again.qos, again.dup), (message.packet_id, message.qos, true));
        assert_eq!(again.payload, message.payload);
        client.acknowledge(if message.qos == 1 { PUBACK } else { PUBREC }, message.packet_id);
        finished += usize::from(message.qos == 1);
    }
    // The broker may send the next message before it reads DISCONNECT.
    client.send(&packet::disconnect(connect.version, 0));
    client.read_to_end();
}

/// [MQTT-4.4.0-1, MQTT-4.9.0-1, 3.1.1 MQTT-4.4.0-1]
#[test]
fn n_07_open_messages_go_on_with_fewer_at_a_time_and_in_other_versions() {
    let messages = u16::try_from(sized(100, 900)).expect("a window");
    play("", |broker| {
        let (mut absent, _) = resume(broker, Version::V5, "absent");
        absent.subscribe_with("t", 2);
        let mut publisher = broker.client(Version::V5, "publisher");
        let property = packet::user_property("colour", "green");
        for number in 1..=messages {
            let first = if number % 2 == 0 { 0x32 } else { 0x34 };
            publisher.send(&publish(
                Version::V5,
                first,
                number,
                "t",
                &property,
                format!("{number}").as_bytes(),
            ));
            assert!([0x40, 0x50].contains(&publisher.read_packet()[0]));
        }
        let open: Vec<Message> = (0..messages).map(|_| absent.message()).collect();
        absent.into_raw().reset();
        let parts: Vec<&[Message]> = open.chunks(open.len() / 5).collect();

        // One at a time, then in older versions, which have no properties.
        let properties = b"\x11\x00\x00\x0E\x10\x21\x00\x01";
        finish_some(broker, &Connect { properties, ..lasting(Version::V5, "absent") }, parts[0]);
        finish_some(broker, &lasting(Version::V3_1_1, "absent"), parts[1]);
        finish_some(broker, &lasting(Version::V3_1, "absent"), parts[2]);
        // And with room for no message: they count as delivered.
        let properties = b"\x11\x00\x00\x0E\x10\x27\x00\x00\x00\x12";
        let (mut small, connack) = broker.greet(&Connect { properties, ..lasting(Version::V5, "absent") });
        assert!(session_present(&connack));
        // Of those of QoS 2 it may have the beginning, which it has to release.
        let begun = parts[3..].concat().iter().filter(|message| message.qos == 2).count();
        for _ in 0..begun {
            let packet = small.read_packet();
            assert_eq!(packet[..2], [PUBREL, 0x02]);
            small.acknowledge(PUBCOMP, u16::from_be_bytes([packet[2], packet[3]]));
        }
        small.expect_only_pong();
        small.leave();
        let (mut last, connack) = broker.greet(&lasting(Version::V5, "absent"));
        assert!(session_present(&connack));
        publisher.publish_at(0, 0, "t", b"the end");
        assert_eq!(last.message().payload, b"the end");
        last.leave();
        broker.client(Version::V5, "absent").leave();
    });
}

/// Messages that were answered with PUBREC are released in the order of the PUBREC packets. [MQTT-4.4.0-1]
#[test]
fn n_07_released_messages_go_on_in_their_order() {
    const MESSAGES: u16 = 50;
    play("", |broker| {
        let (mut absent, _) = resume(broker, Version::V5, "absent");
        absent.subscribe_with("t", 2);
        let mut publisher = broker.client(Version::V5, "publisher");
        (0..MESSAGES).for_each(|_| publisher.deliver(2, "t", b"hey"));
        let open: Vec<u16> = (0..MESSAGES).map(|_| absent.message().packet_id).collect();
        for packet_id in &open {
            absent.acknowledge(PUBREC, *packet_id);
            absent.expect_ack(PUBREL, *packet_id);
        }
        absent.into_raw().reset();
        let properties = b"\x11\x00\x00\x0E\x10\x21\x00\x01";
        let (mut absent, connack) = broker.greet(&Connect { properties, ..lasting(Version::V5, "absent") });
        assert!(session_present(&connack));
        for packet_id in &open {
            absent.expect_ack(PUBREL, *packet_id);
            absent.acknowledge(PUBCOMP, *packet_id);
        }
        absent.expect_only_pong();
        absent.leave();
        broker.client(Version::V5, "absent").leave();
    });
}
