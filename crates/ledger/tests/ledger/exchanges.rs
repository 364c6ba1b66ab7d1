//! QoS 2, packet identifiers and windows of sessions that last.

use std::collections::BTreeSet;

use base::Ticket;
use protocol::{Cause, Durability, Reply};
use wire::{PacketId, Qos, ReasonCode};

use crate::stage::{
    Ask, Client, QOS_1, QOS_2, Stage, at_qos, count, id_of, message, message_with, packet_id, payloads,
    shapes,
};

/// A subscriber to `a` and a publisher, both of whom last.
fn pair(window: u16) -> (Stage, Client, Client) {
    let mut stage = Stage::new();
    let subscriber = stage.client("subscriber", &Ask::lasting(60).window(window));
    stage.subscribe(&subscriber, "a", at_qos(QOS_2));
    let publisher = stage.client("publisher", &Ask::lasting(60));
    stage.replies();
    (stage, subscriber, publisher)
}

/// • A repeated packet waits for the record of the first. [MQTT-4.3.3-10] [3.1.1 MQTT-4.3.3-2]
#[test]
fn a_repeated_publish_is_not_published_again_and_is_answered_when_the_first_is_durable() {
    let (stage, subscriber, publisher) = pair(10);
    let mut stage = stage.slow();
    stage.publish(&publisher, 5, &message("a", b"1", QOS_2));
    stage.publish(&publisher, 5, &message("a", b"1", QOS_2));
    assert!(stage.stored(&publisher).is_empty());
    stage.sync();
    assert_eq!(stage.stored(&publisher), [(Ticket::PubRec(packet_id(5)), ReasonCode::Success); 2]);
    assert_eq!(payloads(&stage.delivered(&subscriber)), ["1"]);
}

/// [MQTT-4.3.3-11] [MQTT-4.3.3-12]
#[test]
fn pubcomp_waits_for_the_record_and_then_the_identifier_is_new() {
    let (stage, subscriber, publisher) = pair(10);
    let mut stage = stage.slow();
    for payload in ["1", "2"] {
        stage.publish(&publisher, 5, &message("a", payload.as_bytes(), QOS_2));
        stage.sync();
        assert_eq!(stage.stored(&publisher), [(Ticket::PubRec(packet_id(5)), ReasonCode::Success)]);
        stage.released(&publisher, packet_id(5));
        assert!(stage.stored(&publisher).is_empty());
        stage.sync();
        assert_eq!(stage.stored(&publisher), [(Ticket::PubComp(packet_id(5)), ReasonCode::Success)]);
    }
    stage.released(&publisher, packet_id(5));
    assert_eq!(
        stage.stored(&publisher),
        [(Ticket::PubComp(packet_id(5)), ReasonCode::PacketIdentifierNotFound)]
    );
    stage.sync();
    assert_eq!(payloads(&stage.delivered(&subscriber)), ["1", "2"]);
}

/// A message that is not released is known to the next connection, and still not published again.
#[test]
fn a_publisher_that_comes_back_goes_on_with_its_exchanges() {
    let (mut stage, subscriber, publisher) = pair(10);
    stage.publish(&publisher, 5, &message("a", b"1", QOS_2));
    stage.leave(&publisher, Cause::WithWill);
    let (publisher, claimed) = stage.connect("publisher", &Ask::lasting(60));
    assert_eq!(claimed.unreleased, [packet_id(5)]);
    stage.publish(&publisher, 5, &message("a", b"1", QOS_2));
    assert_eq!(payloads(&stage.delivered(&subscriber)), ["1"]);
}

/// [MQTT-4.3.3-3] [MQTT-4.3.3-4] [MQTT-4.3.3-5] [MQTT-4.3.3-6]
#[test]
fn pubrel_waits_for_the_record_of_pubrec_and_the_message_is_not_sent_again() {
    let (mut stage, subscriber, publisher) = pair(10);
    stage.publish(&publisher, 1, &message("a", b"1", QOS_2));
    let [deliver] = &stage.delivered(&subscriber)[..] else { panic!("one message") };
    let id = id_of(deliver);
    let mut stage = stage.slow();
    stage.received(&subscriber, id);
    stage.received(&subscriber, id);
    assert!(stage.stored(&subscriber).is_empty());
    stage.sync();
    assert_eq!(stage.stored(&subscriber), [(Ticket::PubRel(id), ReasonCode::Success); 2]);
    stage.leave(&subscriber, Cause::WithWill);
    let mut again = stage.claim("subscriber", &Ask::lasting(60));
    stage.sync();
    stage.claimed(&mut again).expect("nobody else has it");
    let replies = stage.replies();
    assert!(
        matches!(&replies[..], [.., (_, Reply::Release { packet_id, .. })] if *packet_id == id),
        "{replies:?}"
    );
    stage.acknowledge(&again, deliver.what, ReasonCode::Success);
    stage.received(&again, id);
    stage.sync();
    assert_eq!(stage.stored(&again), [(Ticket::PubRel(id), ReasonCode::PacketIdentifierNotFound)]);
    stage.check_account();
    assert_eq!(count(&stage.gauges().acknowledged), 1);
}

/// [MQTT-4.4.0-1] [MQTT-4.6.0-1] [MQTT-4.6.0-4] [3.1.1 MQTT-4.4.0-1] [3.1.1 MQTT-4.6.0-1]
/// [3.1.1 MQTT-4.6.0-4]
#[test]
fn messages_in_flight_are_sent_again_in_order_with_their_identifiers() {
    let (mut stage, subscriber, publisher) = pair(100);
    for number in 0..20 {
        let qos = if number % 2 == 0 { QOS_1 } else { QOS_2 };
        stage.publish(&publisher, number + 1, &message("a", number.to_string().as_bytes(), qos));
        stage.work();
    }
    let mut sent = stage.delivered(&subscriber);
    assert_eq!(sent.len(), 20);
    // The exchanges of two messages go on, of the later one first.
    let (later, earlier) = (sent.remove(15), sent.remove(3));
    for deliver in [&later, &earlier] {
        stage.received(&subscriber, id_of(deliver));
    }
    stage.replies();
    stage.leave(&subscriber, Cause::WithWill);
    let again = stage.client("subscriber", &Ask::lasting(60));
    let replies = stage.sink.replies.iter();
    let released: Vec<PacketId> = replies
        .filter_map(|(_, reply)| match reply {
            Reply::Release { packet_id, .. } => Some(*packet_id),
            _ => None,
        })
        .collect();
    assert_eq!(released, [id_of(&later), id_of(&earlier)]);
    let resent = stage.delivered(&again);
    let expected: Vec<_> = sent.iter().map(|deliver| (id_of(deliver), true, deliver.qos)).collect();
    let found: Vec<_> = resent.iter().map(|deliver| (id_of(deliver), deliver.dup, deliver.qos)).collect();
    assert_eq!(found, expected);
}

/// Messages of QoS 2 wait for the disk when their client comes back through a listener that does not wait. They keep their
/// places before later messages. [MQTT-4.6.0-1]
#[test]
fn messages_that_waited_for_the_disk_on_an_earlier_connection_keep_their_place() {
    let (stage, subscriber, publisher) = pair(10);
    let mut stage = stage.slow();
    for (id, payload) in [(1, b"1"), (2, b"2")] {
        stage.publish(&publisher, id, &message("a", payload, QOS_2));
    }
    assert!(stage.delivered(&subscriber).is_empty(), "they wait for the disk");
    let ask = Ask::lasting(60).durability(Durability::None);
    stage.leave(&subscriber, Cause::WithWill);
    let hasty = stage.client("subscriber", &ask);
    assert_eq!(payloads(&stage.delivered(&hasty)), ["1", "2"]);
    stage.publish(&publisher, 3, &message("a", b"3", QOS_2));
    assert_eq!(payloads(&stage.delivered(&hasty)), ["3"]);
    stage.sync();
    stage.leave(&hasty, Cause::WithWill);
    let again = stage.client("subscriber", &ask);
    assert_eq!(payloads(&stage.delivered(&again)), ["1", "2", "3"]);
}

/// The client comes back while one message still waits for the disk. Others were sent, one of them without a wait.
/// [MQTT-4.6.0-1]
#[test]
fn messages_that_wait_for_the_disk_follow_messages_already_sent() {
    for durability in [Durability::None, Durability::Fsync] {
        let (stage, subscriber, publisher) = pair(10);
        let mut stage = stage.slow();
        stage.publish(&publisher, 1, &message("a", b"1", QOS_2));
        stage.work();
        let first = stage.last();
        stage.publish(&publisher, 2, &message("a", b"2", QOS_2));
        stage.publish(&publisher, 3, &message("a", b"3", QOS_1));
        assert_eq!(payloads(&stage.delivered(&subscriber)), ["3"]);
        stage.progress(first, first, false);
        assert_eq!(payloads(&stage.delivered(&subscriber)), ["1"]);
        stage.leave(&subscriber, Cause::WithWill);
        let mut again = stage.claim("subscriber", &Ask::lasting(60).durability(durability));
        stage.work();
        stage.sync();
        assert!(stage.claimed(&mut again).is_some());
        assert_eq!(payloads(&stage.delivered(&again)), ["3", "1", "2"], "{durability:?}");
    }
}

/// [MQTT-2.2.1-4] [MQTT-4.3.2-1] [MQTT-4.3.2-2] [MQTT-4.3.3-1] [MQTT-4.3.3-2]
#[test]
fn identifiers_are_unused_ones_and_never_run_dry() {
    let (mut stage, subscriber, publisher) = pair(3);
    let mut held = None;
    for number in 0..70_000_u32 {
        let payload = number.to_string();
        stage.publish(&publisher, 1, &message("a", payload.as_bytes(), QOS_1));
        let [deliver] = &stage.delivered(&subscriber)[..] else {
            panic!("there is room for number {number}")
        };
        assert!(!deliver.dup);
        match held {
            // One that is never acknowledged keeps its identifier.
            None => held = Some(id_of(deliver)),
            Some(held) => {
                assert_ne!(id_of(deliver), held);
                stage.acknowledge(&subscriber, deliver.what, ReasonCode::Success);
            }
        }
        stage.sink.groups.clear();
        stage.sink.replies.clear();
    }
}

/// [MQTT-3.3.4-9] [MQTT-4.9.0-1] [MQTT-4.9.0-2]
#[test]
fn no_more_are_under_way_than_the_window_takes() {
    let (mut stage, subscriber, publisher) = pair(3);
    for number in 1..=10 {
        stage.publish(&publisher, number, &message("a", b"x", QOS_2));
    }
    let mut open: BTreeSet<PacketId> = stage.delivered(&subscriber).iter().map(id_of).collect();
    assert_eq!(open.len(), 3);
    let first = open.pop_first().expect("three of them");
    stage.received(&subscriber, first);
    assert!(stage.delivered(&subscriber).is_empty(), "until PUBCOMP");
    let what = protocol::Delivered::Session { queue: subscriber.queue(), packet_id: first };
    stage.acknowledge(&subscriber, what, ReasonCode::Success);
    assert_eq!(stage.delivered(&subscriber).len(), 1);
}

#[test]
fn large_messages_are_under_way_one_at_a_time() {
    let (mut stage, subscriber, publisher) = pair(100);
    let large = vec![b'x'; 300 * 1024];
    for number in 1..=3 {
        stage.publish(&publisher, number, &message("a", &large, QOS_1));
    }
    for _ in 1..=3 {
        let [deliver] = &stage.delivered(&subscriber)[..] else { panic!("always one") };
        stage.acknowledge(&subscriber, deliver.what, ReasonCode::Success);
    }
}

/// [MQTT-4.4.0-2]
#[test]
fn messages_that_the_client_refuses_count_as_delivered() {
    let (mut stage, subscriber, publisher) = pair(100);
    stage.publish(&publisher, 1, &message("a", b"1", QOS_1));
    stage.publish(&publisher, 2, &message("a", b"2", QOS_2));
    for deliver in stage.delivered(&subscriber) {
        stage.acknowledge(&subscriber, deliver.what, ReasonCode::UnspecifiedError);
    }
    stage.leave(&subscriber, Cause::WithWill);
    let again = stage.client("subscriber", &Ask::lasting(60));
    assert!(stage.delivered(&again).is_empty());
    assert_eq!(count(&stage.gauges().refused_by_client), 2);
    stage.check_account();
}

/// [MQTT-3.3.2-5] [MQTT-4.3.3-7] [MQTT-4.3.3-13]
#[test]
fn messages_expire_while_they_wait_and_not_once_they_are_sent() {
    let (mut stage, subscriber, publisher) = pair(1);
    for (id, payload) in (1..).zip(["sent", "waits"]) {
        stage.publish(&publisher, id, &message_with("a", payload.as_bytes(), QOS_2, false, Some(5)));
    }
    stage.publish(&publisher, 3, &message("a", b"stays", QOS_1));
    assert_eq!(payloads(&stage.delivered(&subscriber)), ["sent"]);
    stage.pass_secs(6);
    stage.leave(&subscriber, Cause::WithWill);
    let again = stage.client("subscriber", &Ask::lasting(60).window(10));
    assert_eq!(shapes(&stage.delivered(&again)), [("sent".into(), 2, true), ("stays".into(), 1, false)]);
    assert_eq!(count(&stage.gauges().expired), 1);
    stage.check_account();
}

/// Nobody has to come for them.
/// Not even for the rest of this millisecond.
#[test]
fn messages_that_expire_at_once_do_not_wait_for_clients_that_are_away() {
    let mut stage = Stage::new();
    let publisher = stage.client("publisher", &Ask::clean());
    let away = stage.client("away", &Ask::lasting(60));
    let here = stage.client("here", &Ask::lasting(60));
    for client in [&away, &here] {
        stage.subscribe(client, "a", at_qos(QOS_1));
    }
    stage.leave(&away, Cause::Normal);
    stage.publish(&publisher, 1, &message_with("a", b"now", QOS_1, false, Some(0)));
    assert_eq!(payloads(&stage.delivered(&here)), ["now"]);
    let (away, _) = stage.connect("away", &Ask::lasting(60));
    assert!(stage.delivered(&away).is_empty());
    assert_eq!(count(&stage.gauges().expired), 1);
    stage.check_account();
}

#[test]
fn expired_messages_are_swept_out_of_queues() {
    let (mut stage, subscriber, publisher) = pair(1);
    stage.leave(&subscriber, Cause::WithWill);
    for id in 1..=3_000_u16 {
        let expiry_secs = (id % 3 == 0).then_some(5);
        stage.publish(&publisher, id, &message_with("a", b"x", QOS_1, false, expiry_secs));
    }
    stage.pass_secs(4);
    assert_eq!(count(&stage.gauges().expired), 0);
    assert!(stage.ledger.poll_timeout().is_some(), "the sweep comes by itself");
    stage.pass_secs(1);
    stage.pass_secs(1);
    assert_eq!((count(&stage.gauges().expired), count(&stage.gauges().queued)), (1_000, 2_000));
    stage.check_account();
}

/// [MQTT-3.1.2-24] [MQTT-3.1.2-25]
#[test]
fn messages_too_large_for_the_client_count_as_delivered() {
    let mut stage = Stage::new();
    let ask = Ask::lasting(60).packet_bytes_max(100);
    let subscriber = stage.client("subscriber", &ask);
    let identifier = std::num::NonZeroU32::new(300);
    stage.subscribe(&subscriber, "a", at_qos(QOS_1).with_identifier(identifier));
    // Fixed header 2, topic 3, packet identifier 2, properties 1 + 3.
    let fits = 100 - 2 - 3 - 2 - 4;
    for len in [fits, fits + 1, 1] {
        stage.emit(&message("a", &vec![b'x'; len], QOS_1));
    }
    let lens: Vec<usize> =
        stage.delivered(&subscriber).iter().map(|deliver| deliver.message.payload().len()).collect();
    assert_eq!(lens, [fits, 1]);
    assert_eq!(count(&stage.gauges().too_large), 1);
    stage.leave(&subscriber, Cause::WithWill);
    stage.check_account();
}

/// [MQTT-3.3.4-2] [MQTT-3.3.4-3] [MQTT-3.3.4-4]
#[test]
fn one_copy_with_the_highest_qos_and_all_identifiers_fixed_when_it_is_queued() {
    let mut stage = Stage::new();
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    let identifier = |id| std::num::NonZeroU32::new(id);
    stage.subscribe(&subscriber, "a/#", at_qos(QOS_2).with_identifier(identifier(1)));
    stage.subscribe(&subscriber, "a/b", at_qos(QOS_1).with_identifier(identifier(2)));
    stage.leave(&subscriber, Cause::Normal);
    stage.emit(&message("a/b", b"1", QOS_2));
    let again = stage.client("subscriber", &Ask::lasting(60));
    stage.unsubscribe(&again, "a/b");
    let [deliver] = &stage.delivered(&again)[..] else { panic!("one copy") };
    assert_eq!(deliver.qos, Qos::ExactlyOnce);
    assert_eq!(deliver.identifiers.iter().map(|id| id.get()).collect::<Vec<_>>(), [1, 2]);
}

/// [MQTT-3.10.4-2] [MQTT-3.10.4-3] [3.1.1 MQTT-3.10.4-2] [3.1.1 MQTT-3.10.4-3]
#[test]
fn after_unsubscribe_nothing_new_is_queued_and_what_was_begun_is_finished() {
    let (mut stage, subscriber, publisher) = pair(1);
    stage.publish(&publisher, 1, &message("a", b"1", QOS_2));
    let [deliver] = &stage.delivered(&subscriber)[..] else { panic!("one message") };
    stage.unsubscribe(&subscriber, "a");
    stage.publish(&publisher, 2, &message("a", b"2", QOS_2));
    stage.leave(&subscriber, Cause::WithWill);
    let again = stage.client("subscriber", &Ask::lasting(60));
    let [resent] = &stage.delivered(&again)[..] else { panic!("only what was begun") };
    assert_eq!(id_of(resent), id_of(deliver));
    assert_eq!(
        stage.stored(&publisher)[1],
        (Ticket::PubRec(packet_id(2)), ReasonCode::NoMatchingSubscribers)
    );
}

/// [MQTT-4.6.0-5] [MQTT-4.6.0-6] [3.1.1 MQTT-4.6.0-6]
#[test]
fn the_order_of_a_topic_is_kept_through_a_full_window() {
    let (mut stage, subscriber, publisher) = pair(2);
    let mut received = Vec::new();
    for number in 0..40_u16 {
        stage.publish(&publisher, number + 1, &message("a", number.to_string().as_bytes(), QOS_1));
        if number % 3 == 0 {
            let delivered = stage.delivered(&subscriber);
            received.extend(payloads(&delivered));
            for deliver in delivered {
                stage.acknowledge(&subscriber, deliver.what, ReasonCode::Success);
            }
        }
    }
    loop {
        let delivered = stage.delivered(&subscriber);
        if delivered.is_empty() {
            break;
        }
        received.extend(payloads(&delivered));
        for deliver in delivered {
            stage.acknowledge(&subscriber, deliver.what, ReasonCode::Success);
        }
    }
    assert_eq!(received, (0..40).map(|number| number.to_string()).collect::<Vec<_>>());
}
