//! Messages for the application.

use pondhawk_session::client::{Acknowledge, Client, Event, Receipt, Settings};
use wire::{
    ConnAck, Delivery, PubRel, PubRelReason, Publish, PublishTopic, Qos, ReasonCode, TopicAlias, Version,
};

use crate::world::{World, connect, id};

fn publish(qos: Qos, packet_id: u16) -> Publish<'static> {
    let delivery = match qos {
        Qos::AtMostOnce => Delivery::AtMostOnce,
        Qos::AtLeastOnce => Delivery::AtLeastOnce { packet_id: id(packet_id), dup: false },
        Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id: id(packet_id), dup: false },
    };
    Publish { delivery, ..Publish::new(topic::topic!("a/b"), b"hey") }
}

fn pubrel(packet_id: u16) -> PubRel<'static> {
    PubRel::new(id(packet_id), PubRelReason::Success)
}

/// A client whose application acknowledges.
fn by_application(version: Version) -> World {
    let settings = Settings { acknowledge: Acknowledge::ByApplication, ..Settings::default() };
    let mut world = World::apart(version, settings);
    world.connect_with(&connect(version)).expect("in order");
    world.take(ConnAck::accepted(false)).expect("in order");
    world.sent();
    world
}

fn receipt(world: &mut World, qos: Qos, packet_id: u16) -> Receipt {
    match world.take(publish(qos, packet_id)) {
        Ok(Event::Message { receipt: Some(receipt), .. }) => receipt,
        other => panic!("{other:?}"),
    }
}

fn acknowledge(world: &mut World, receipt: Receipt) {
    answer(world, receipt, ReasonCode::Success);
}

fn answer(world: &mut World, receipt: Receipt, reason: ReasonCode) {
    let (now, mut out) = (world.now(), Vec::new());
    world.client.acknowledge(receipt, reason, now, &mut out);
    world.out().extend_from_slice(&out);
}

/// The server sends a message of QoS 2 again. Whether the application gets it.
fn comes_again(world: &mut World, packet_id: u16) -> bool {
    let delivery = Delivery::ExactlyOnce { packet_id: id(packet_id), dup: true };
    let again = Publish { delivery, ..publish(Qos::ExactlyOnce, packet_id) };
    matches!(world.take(again).expect("in order"), Event::Message { .. })
}

/// [MQTT-4.5.0-2, MQTT-3.3.4-1, 3.1.1 MQTT-4.5.0-2, 3.1.1 MQTT-3.3.4-1]
#[test]
fn every_message_is_acknowledged_as_its_qos_demands() {
    for version in Version::ALL {
        let mut world = World::new(version);
        for (qos, answer) in [
            (Qos::AtMostOnce, None),
            (Qos::AtLeastOnce, Some("PUBACK id=4 Success")),
            (Qos::ExactlyOnce, Some("PUBREC id=4 Success")),
        ] {
            let event = world.take(publish(qos, 4)).expect("in order");
            assert!(
                matches!(event, Event::Message { receipt: None, message } if message.topic() == topic::topic!("a/b"))
            );
            assert_eq!(world.sent(), Vec::from_iter(answer));
        }
        assert!(matches!(world.take(pubrel(4)), Ok(Event::Released { packet_id }) if packet_id == id(4)));
        assert_eq!(world.sent(), ["PUBCOMP id=4 Success"]);
    }
}

/// [MQTT-4.3.3-10, MQTT-4.3.3-12, MQTT-4.3.2-5, 3.1.1 MQTT-4.3.3-2, 3.1.1 MQTT-4.3.2-2]
#[test]
fn a_message_of_qos_2_comes_once() {
    for version in Version::ALL {
        let mut world = World::new(version);
        let mut count = 0;
        for _ in 0..2 {
            for _ in 0..3 {
                count += usize::from(matches!(
                    world.take(publish(Qos::ExactlyOnce, 4)),
                    Ok(Event::Message { .. })
                ));
            }
            world.reconnect(ConnAck::accepted(true));
            count +=
                usize::from(matches!(world.take(publish(Qos::ExactlyOnce, 4)), Ok(Event::Message { .. })));
            world.take(pubrel(4)).expect("in order");
        }
        assert_eq!(count, 2);
        for _ in 0..2 {
            assert!(matches!(world.take(publish(Qos::AtLeastOnce, 4)), Ok(Event::Message { .. })));
        }
    }
}

/// [MQTT-4.6.0-2, MQTT-4.6.0-3, MQTT-4.3.2-4, MQTT-4.3.3-8, 3.1.1 MQTT-4.6.0-2, 3.1.1 MQTT-4.6.0-3]
#[test]
fn an_application_acknowledges_in_any_order_and_the_answers_keep_theirs() {
    for version in Version::ALL {
        let mut world = by_application(version);
        let acks = [1, 2, 3].map(|packet_id| receipt(&mut world, Qos::AtLeastOnce, packet_id));
        let recs = [4, 5].map(|packet_id| receipt(&mut world, Qos::ExactlyOnce, packet_id));
        for later in [acks[2], acks[1], recs[1]] {
            acknowledge(&mut world, later);
        }
        assert!(world.sent().is_empty());
        acknowledge(&mut world, recs[0]);
        assert_eq!(world.sent(), ["PUBREC id=4 Success", "PUBREC id=5 Success"]);
        acknowledge(&mut world, acks[0]);
        assert_eq!(world.sent(), ["PUBACK id=1 Success", "PUBACK id=2 Success", "PUBACK id=3 Success"]);
    }
}

#[test]
fn a_receipt_ends_with_its_connection() {
    let mut world = by_application(Version::V5);
    let old = receipt(&mut world, Qos::AtLeastOnce, 1);
    world.reconnect(ConnAck::accepted(true));
    world.sent();
    let new = receipt(&mut world, Qos::AtLeastOnce, 1);
    acknowledge(&mut world, old);
    assert!(world.sent().is_empty());
    acknowledge(&mut world, new);
    assert_eq!(world.sent(), ["PUBACK id=1 Success"]);
}

#[test]
fn a_message_that_was_accepted_behind_another_comes_once_though_its_connection_was_lost_before_its_pubrec() {
    for version in Version::ALL {
        let mut world = by_application(version);
        let recs = [4, 5, 6].map(|packet_id| receipt(&mut world, Qos::ExactlyOnce, packet_id));
        acknowledge(&mut world, recs[1]);
        assert!(world.sent().is_empty(), "it waits for the first");

        // The second connection ends before anything was sent again.
        for _ in 0..2 {
            world.reconnect(ConnAck::accepted(true));
        }
        world.sent();
        let first = receipt(&mut world, Qos::ExactlyOnce, 4);
        assert!(!comes_again(&mut world, 5), "{version}: it was accepted");
        assert!(comes_again(&mut world, 6), "{version}: nobody has accepted it");
        assert!(world.sent().is_empty());
        acknowledge(&mut world, first);
        assert_eq!(world.sent(), ["PUBREC id=4 Success", "PUBREC id=5 Success"]);

        assert!(matches!(world.take(pubrel(5)), Ok(Event::Released { packet_id }) if packet_id == id(5)));
        receipt(&mut world, Qos::ExactlyOnce, 5);
    }
}

#[test]
fn a_message_accepted_behind_another_is_stored_with_the_session() {
    let mut world = by_application(Version::V5);
    let recs = [4, 5].map(|packet_id| receipt(&mut world, Qos::ExactlyOnce, packet_id));
    acknowledge(&mut world, recs[1]);
    let stored = world.client.stored();
    assert_eq!(stored.unreleased, [id(5)]);

    world.client = Client::restore(stored, Settings::default());
    world.reconnect(ConnAck::accepted(true));
    assert!(comes_again(&mut world, 4) && !comes_again(&mut world, 5));
}

/// Before MQTT 5 nothing can be refused: it would have been acknowledged as usual.
#[test]
fn a_message_that_was_refused_behind_another_comes_again_where_it_can_be_refused() {
    for version in Version::ALL {
        let mut world = by_application(version);
        let recs = [4, 5].map(|packet_id| receipt(&mut world, Qos::ExactlyOnce, packet_id));
        answer(&mut world, recs[1], ReasonCode::QuotaExceeded);
        world.reconnect(ConnAck::accepted(true));
        assert_eq!(comes_again(&mut world, 5), version.is_5(), "{version}");
    }
}

#[test]
fn a_message_that_nobody_has_accepted_is_not_taken_for_an_earlier_one_with_its_identifier() {
    for version in Version::ALL {
        let mut world = by_application(version);
        let earlier = receipt(&mut world, Qos::ExactlyOnce, 5);
        acknowledge(&mut world, earlier);
        receipt(&mut world, Qos::ExactlyOnce, 4);
        assert!(!comes_again(&mut world, 5), "its second PUBREC waits for the other message");
        world.take(pubrel(5)).expect("in order");
        receipt(&mut world, Qos::ExactlyOnce, 5);
        world.reconnect(ConnAck::accepted(true));
        assert!(comes_again(&mut world, 5), "{version}");
    }
}

/// [MQTT-4.3.3-9]
#[test]
fn a_message_that_the_application_refuses_may_come_again() {
    let mut world = by_application(Version::V5);
    for _ in 0..2 {
        let receipt = receipt(&mut world, Qos::ExactlyOnce, 1);
        answer(&mut world, receipt, ReasonCode::QuotaExceeded);
        assert_eq!(world.sent(), ["PUBREC id=1 Quota exceeded"]);
    }
}

/// PUBREC waits for its turn behind that of an earlier message: nobody has asked for PUBREL.
#[test]
fn a_message_is_not_released_before_its_pubrec_has_left() {
    let mut world = by_application(Version::V5);
    receipt(&mut world, Qos::ExactlyOnce, 1);
    let second = receipt(&mut world, Qos::ExactlyOnce, 2);
    answer(&mut world, second, ReasonCode::Success);
    assert!(world.sent().is_empty(), "accepted, and not said");
    assert_eq!(world.refused(pubrel(2)).reason, ReasonCode::ProtocolError);
}

/// Only packets that are sent postpone PINGREQ. A message that arrives is none, and an acknowledgement that waits for an
/// earlier one is not sent yet. [MQTT-3.1.2-20, 3.1.1 MQTT-3.1.2-23]
#[test]
fn messages_received_and_not_yet_acknowledged_do_not_postpone_the_ping() {
    for version in Version::ALL {
        let mut world = by_application(version);
        world.client.connection_lost();
        let mut connect = connect(version);
        connect.keep_alive_secs = 20;
        world.connect_with(&connect).expect("in order");
        world.take(ConnAck::accepted(true)).expect("in order");
        world.sent();
        let receipts = [1, 2].map(|packet_id| receipt(&mut world, Qos::AtLeastOnce, packet_id));
        let due = world.client.poll_timeout();
        assert!(due.is_some_and(|due| (1..20_000).contains(&(due - world.now_ms))), "MQTT {version}");
        world.now_ms += 10_000;
        world.take(publish(Qos::AtMostOnce, 0)).expect("in order");
        acknowledge(&mut world, receipts[1]);
        assert!(world.sent().is_empty());
        assert_eq!(world.client.poll_timeout(), due, "MQTT {version}");
        acknowledge(&mut world, receipts[0]);
        assert_eq!(world.sent().len(), 2);
        assert_eq!(world.client.poll_timeout(), due.map(|due| due + 10_000), "MQTT {version}");
    }
}

/// [MQTT-3.3.4-9]
#[test]
fn a_server_that_sends_more_than_was_asked_for_is_disconnected() {
    let settings = Settings { acknowledge: Acknowledge::ByApplication, ..Settings::default() };
    let mut world = World::apart(Version::V5, settings);
    let mut connect = connect(Version::V5);
    connect.properties.receive_maximum = std::num::NonZeroU16::new(2);
    world.connect_with(&connect).expect("in order");
    world.take(ConnAck::accepted(false)).expect("in order");
    world.sent();
    receipt(&mut world, Qos::AtLeastOnce, 1);
    receipt(&mut world, Qos::ExactlyOnce, 2);
    let violation = world.refused(publish(Qos::AtLeastOnce, 3));
    assert_eq!(violation.reason, ReasonCode::ReceiveMaximumExceeded);
    assert_eq!(world.sent(), ["DISCONNECT Receive Maximum exceeded"]);
}

#[test]
fn a_server_that_miscounts_may_be_put_up_with() {
    let acknowledge = Acknowledge::ByApplication;
    let settings = Settings { acknowledge, receive_excess_max: 1, ..Settings::default() };
    let mut world = World::apart(Version::V5, settings);
    let mut connect = connect(Version::V5);
    connect.properties.receive_maximum = std::num::NonZeroU16::new(2);
    world.connect_with(&connect).expect("in order");
    world.take(ConnAck::accepted(false)).expect("in order");
    for packet_id in 1..=3 {
        receipt(&mut world, Qos::ExactlyOnce, packet_id);
    }
    let violation = world.refused(publish(Qos::AtLeastOnce, 4));
    assert_eq!(violation.reason, ReasonCode::ReceiveMaximumExceeded);
}

/// [MQTT-3.3.2-7, MQTT-3.3.2-10, MQTT-3.3.2-11]
#[test]
fn a_server_may_use_the_aliases_that_it_was_offered() {
    let mut connect = connect(Version::V5);
    connect.properties.topic_alias_maximum = Some(2);
    let mut world = World::apart(Version::V5, Settings::default());
    world.connect_with(&connect).expect("in order");
    world.take(ConnAck::accepted(false)).expect("in order");
    let alias = |number| TopicAlias::new(number).expect("not 0");
    let with = |topic| Publish { topic, ..publish(Qos::AtMostOnce, 1) };
    let names = [topic::topic!("one"), topic::topic!("two")];
    for (name, number) in names.into_iter().zip(1..) {
        world.take(with(PublishTopic::NameWithAlias(name, alias(number)))).expect("in order");
    }
    for (name, number) in names.into_iter().zip(1..) {
        let event = world.take(with(PublishTopic::Alias(alias(number)))).expect("in order");
        assert!(matches!(event, Event::Message { message, .. } if message.topic() == name));
    }
    let violation = world.refused(with(PublishTopic::NameWithAlias(names[0], alias(3))));
    assert_eq!(violation.reason, ReasonCode::TopicAliasInvalid);

    world.connect_with(&connect).expect("in order");
    world.take(ConnAck::accepted(true)).expect("in order");
    let violation = world.refused(with(PublishTopic::Alias(alias(1))));
    assert_eq!(violation.statement, "MQTT-3.3.2-7", "it stood for something on the connection before");
}

#[test]
fn a_release_of_nothing_is_answered_and_one_too_early_is_not() {
    for version in Version::ALL {
        let mut world = by_application(version);
        world.take(pubrel(1)).expect("in order");
        assert!(world.sent()[0].starts_with("PUBCOMP id=1"));
        receipt(&mut world, Qos::ExactlyOnce, 1);
        world.refused(pubrel(1));
    }
}
