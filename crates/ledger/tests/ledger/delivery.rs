//! Messages on their way through the queue of a session that lasts.

use base::Ticket;
use protocol::{Cause, Reply};
use wire::ReasonCode;

use crate::stage::{
    Ask, QOS_0, QOS_1, QOS_2, Stage, at_qos, count, id_of, message, packet_id, payloads, shapes,
};

#[test]
fn messages_for_a_client_that_is_away_wait_and_keep_their_order() {
    let mut stage = Stage::new();
    let publisher = stage.client("publisher", &Ask::clean());
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    stage.subscribe(&subscriber, "a/#", at_qos(QOS_2));
    stage.leave(&subscriber, Cause::Normal);
    for (id, payload) in (1..).zip(["1", "2", "3"]) {
        stage.publish(&publisher, id, &message("a/b", payload.as_bytes(), QOS_1));
    }
    assert_eq!(stage.stored(&publisher).len(), 3);
    let (subscriber, claimed) = stage.connect("subscriber", &Ask::lasting(60));
    assert!(claimed.session_present);
    assert_eq!(claimed.subscriptions.len(), 1);
    let delivered = stage.delivered(&subscriber);
    assert_eq!(payloads(&delivered), ["1", "2", "3"]);
    for deliver in delivered {
        stage.acknowledge(&subscriber, deliver.what, ReasonCode::Success);
    }
    stage.work();
    stage.check_account();
    let gauges = stage.gauges();
    assert_eq!((count(&gauges.acknowledged), count(&gauges.in_flight), count(&gauges.queued)), (3, 0, 0));
}

#[test]
fn an_acknowledgement_waits_for_the_disk_and_a_delivery_of_qos_1_does_not() {
    let mut stage = Stage::new();
    let publisher = stage.client("publisher", &Ask::clean());
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    stage.subscribe(&subscriber, "a", at_qos(QOS_2));
    stage.replies();
    let mut stage = stage.slow();
    stage.publish(&publisher, 1, &message("a", b"1", QOS_1));
    stage.publish(&publisher, 2, &message("a", b"2", QOS_2));
    assert!(stage.stored(&publisher).is_empty());
    assert_eq!(shapes(&stage.delivered(&subscriber)), [("1".into(), 1, false)]);
    stage.sync();
    assert_eq!(shapes(&stage.delivered(&subscriber)), [("2".into(), 2, false)]);
    assert_eq!(
        stage.stored(&publisher),
        [
            (Ticket::PubAck(packet_id(1)), ReasonCode::Success),
            (Ticket::PubRec(packet_id(2)), ReasonCode::Success)
        ]
    );
}

#[test]
fn a_message_that_nobody_wants_is_answered_with_no_matching_subscribers() {
    let mut stage = Stage::new();
    let publisher = stage.client("publisher", &Ask::clean());
    stage.publish(&publisher, 1, &message("a", b"1", QOS_1));
    let [decided, stored] = &stage.replies()[..] else { panic!("two replies") };
    assert!(matches!(decided.1, Reply::Decided { .. }));
    assert!(matches!(stored.1, Reply::Stored { reason: ReasonCode::NoMatchingSubscribers, .. }));
}

#[test]
fn a_reconnect_begins_what_was_under_way_again() {
    let mut stage = Stage::new();
    let publisher = stage.client("publisher", &Ask::clean());
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    stage.subscribe(&subscriber, "a", at_qos(QOS_2));
    for (id, qos) in (1..).zip([QOS_2, QOS_1, QOS_2, QOS_0]) {
        stage.publish(&publisher, id, &message("a", id.to_string().as_bytes(), qos));
    }
    let delivered = stage.delivered(&subscriber);
    assert_eq!(payloads(&delivered), ["2", "1", "3"], "QoS 2 waits for its record, QoS 0 goes straight");
    assert_eq!(stage.live(&subscriber), ["4"]);
    let first = &delivered[1];
    stage.received(&subscriber, id_of(first));
    assert_eq!(stage.stored(&subscriber), [(Ticket::PubRel(id_of(first)), ReasonCode::Success)]);
    stage.leave(&subscriber, Cause::WithWill);
    let again = stage.client("subscriber", &Ask::lasting(60).window(1));
    let released = stage.replies();
    assert!(
        matches!(&released[..], [.., (_, Reply::Release { packet_id, .. })] if *packet_id == id_of(first)),
        "{released:?}"
    );
    stage.acknowledge(&again, first.what, ReasonCode::Success);
    let [second] = &stage.delivered(&again)[..] else { panic!("one, because the window is 1") };
    assert_eq!(shapes(std::slice::from_ref(second)), [("2".into(), 1, true)]);
    stage.acknowledge(&again, second.what, ReasonCode::Success);
    assert_eq!(shapes(&stage.delivered(&again)), [("3".into(), 2, true)]);
    stage.check_account();
}
