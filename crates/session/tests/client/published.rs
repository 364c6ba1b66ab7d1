//! Messages from the application.

use std::num::NonZeroU16;

use pondhawk_session::client::{Client, Event, Outgoing, PublishError, Publishing, Settings};
use wire::{
    ConnAckProperties, PubAck, PubAckReason, PubComp, PubRec, PubRelReason, Qos, ReasonCode,
    SubscribeProperties, Version,
};

use crate::world::{World, connack, connect, id, outgoing};

fn puback(packet_id: u16) -> PubAck<'static> {
    PubAck::new(id(packet_id), PubAckReason::Success)
}

fn pubrec(packet_id: u16) -> PubRec<'static> {
    PubRec::new(id(packet_id), PubAckReason::Success)
}

fn pubcomp(packet_id: u16) -> PubComp<'static> {
    PubComp::new(id(packet_id), PubRelReason::Success)
}

fn with_window(window: u16) -> World {
    let receive_maximum = NonZeroU16::new(window);
    World::offered(Version::V5, ConnAckProperties { receive_maximum, ..ConnAckProperties::EMPTY })
}

/// [MQTT-4.3.1-1, MQTT-2.2.1-2, 3.1.1 MQTT-4.3.1-1, 3.1.1 MQTT-2.3.1-5]
#[test]
fn at_qos_0_a_message_is_sent_and_forgotten() {
    for version in Version::ALL {
        let mut world = World::new(version);
        assert_eq!(world.publish(&outgoing(Qos::AtMostOnce), ""), Ok(Publishing::Sent(None)));
        assert_eq!(world.sent(), ["PUBLISH q0 \"a/b\" 3 B \"hey\""]);
        assert_eq!(world.client.in_flight(), 0);
    }
}

/// A message that no packet can hold would wait for ever.
#[test]
fn a_message_that_is_too_large_for_any_server_does_not_wait_for_a_connection() {
    let mut client = Client::new(Settings::default());
    let (now, mut out) = (base::Now { monotonic_ms: 0, unix_ms: 0 }, Vec::new());
    // The memory is not touched.
    let payload = vec![0; 268_435_456];
    let message = outgoing(Qos::AtLeastOnce).payload(&payload);
    assert_eq!(client.publish(&message, "", now, &mut out), Err(PublishError::TooLarge));
    assert_eq!((client.waiting_messages(), out.len()), (0, 0));
}

#[test]
fn the_server_is_asked_to_retain_a_message_at_every_qos() {
    for version in Version::ALL {
        for (qos, expected) in [
            (Qos::AtMostOnce, r#"PUBLISH q0 retain "a/b" 3 B "hey""#),
            (Qos::AtLeastOnce, r#"PUBLISH q1 id=1 retain "a/b" 3 B "hey""#),
            (Qos::ExactlyOnce, r#"PUBLISH q2 id=1 retain "a/b" 3 B "hey""#),
        ] {
            let mut world = World::new(version);
            let retained = outgoing(qos).retain(true);
            assert!(world.publish(&retained, "").is_ok());
            assert_eq!(world.sent(), [expected]);
        }
    }
}

/// [MQTT-4.3.2-1, MQTT-4.3.2-2, MQTT-4.3.2-3, 3.1.1 MQTT-4.3.2-1]
#[test]
fn at_qos_1_a_message_is_under_way_until_puback() {
    for version in Version::ALL {
        let mut world = World::new(version);
        assert_eq!(world.send(Qos::AtLeastOnce, "tag"), id(1));
        assert_eq!(world.sent(), ["PUBLISH q1 id=1 \"a/b\" 3 B \"hey\""]);
        assert_eq!(world.client.in_flight(), 1);
        let event = world.take(puback(1)).expect("in order");
        assert!(matches!(event, Event::Published { tag: "tag", reason: ReasonCode::Success, .. }));
        assert_eq!(world.client.in_flight(), 0);
        assert!(world.sent().is_empty());
    }
}

/// [MQTT-4.3.3-1, MQTT-4.3.3-2, MQTT-4.3.3-3, MQTT-4.3.3-4, MQTT-4.3.3-5, MQTT-2.2.1-5, 3.1.1 MQTT-4.3.3-1]
#[test]
fn at_qos_2_a_message_is_under_way_until_pubcomp() {
    for version in Version::ALL {
        let mut world = World::new(version);
        assert_eq!(world.send(Qos::ExactlyOnce, "tag"), id(1));
        assert_eq!(world.sent(), ["PUBLISH q2 id=1 \"a/b\" 3 B \"hey\""]);
        assert!(matches!(world.take(pubrec(1)), Ok(Event::Received { .. })));
        assert_eq!(world.sent(), ["PUBREL id=1 Success"]);
        assert_eq!(world.client.in_flight(), 1);
        assert!(matches!(world.take(pubcomp(1)), Ok(Event::Published { tag: "tag", .. })));
        assert_eq!(world.client.in_flight(), 0);
    }
}

#[test]
fn pubrec_decides_the_outcome_of_a_message_and_pubcomp_does_not() {
    let mut world = World::new(Version::V5);
    world.send(Qos::ExactlyOnce, "tag");
    world.take(PubRec::new(id(1), PubAckReason::NoMatchingSubscribers)).expect("in order");
    // The server has released it on an earlier connection, and was not heard.
    let event = world.take(PubComp::new(id(1), PubRelReason::PacketIdentifierNotFound)).expect("in order");
    assert!(matches!(event, Event::Published { reason: ReasonCode::NoMatchingSubscribers, .. }), "{event:?}");
}

/// [MQTT-4.6.0-4, 3.1.1 MQTT-4.6.0-4]
#[test]
fn releases_follow_in_the_order_of_what_has_arrived() {
    for version in Version::ALL {
        let mut world = World::new(version);
        for _ in 0..3 {
            world.send(Qos::ExactlyOnce, "");
        }
        world.sent();
        for packet_id in [2, 3, 1] {
            world.take(pubrec(packet_id)).expect("in order");
        }
        assert_eq!(world.sent(), ["PUBREL id=2 Success", "PUBREL id=3 Success", "PUBREL id=1 Success"]);
    }
}

/// [MQTT-4.4.0-2]
#[test]
fn messages_that_the_server_refuses_are_not_sent_again() {
    let mut world = World::new(Version::V5);
    world.send(Qos::AtLeastOnce, "one");
    world.send(Qos::ExactlyOnce, "two");
    world.sent();
    let refused = PubAckReason::QuotaExceeded;
    let first = world.take(PubAck::new(id(1), refused)).expect("in order");
    assert!(matches!(first, Event::Published { tag: "one", reason: ReasonCode::QuotaExceeded, .. }));
    let second = world.take(PubRec::new(id(2), refused)).expect("in order");
    assert!(matches!(second, Event::Published { tag: "two", reason: ReasonCode::QuotaExceeded, .. }));
    world.reconnect(wire::ConnAck::accepted(true));
    assert!(world.sent().is_empty(), "and not sent again");
}

/// [MQTT-3.3.4-7, MQTT-4.9.0-1, MQTT-4.9.0-2]
#[test]
fn no_more_is_under_way_than_the_server_takes() {
    let mut world = with_window(2);
    world.send(Qos::AtLeastOnce, "1");
    world.send(Qos::ExactlyOnce, "2");
    for tag in ["3", "4"] {
        assert_eq!(world.publish(&outgoing(Qos::AtLeastOnce), tag), Ok(Publishing::Waits));
    }
    assert_eq!(world.sent().len(), 2);
    world.take(pubrec(2)).expect("in order");
    assert_eq!(world.sent(), ["PUBREL id=2 Success"], "PUBCOMP is the end");
    world.take(puback(1)).expect("in order");
    assert_eq!(world.sent(), ["PUBLISH q1 id=3 \"a/b\" 3 B \"hey\""]);
    world.take(pubcomp(2)).expect("in order");
    assert_eq!(world.sent(), ["PUBLISH q1 id=4 \"a/b\" 3 B \"hey\""]);
    assert_eq!((world.client.in_flight(), world.client.waiting_messages()), (2, 0));
}

/// [MQTT-3.3.4-8, MQTT-4.9.0-3]
#[test]
fn a_full_window_delays_nothing_else() {
    let mut world = with_window(1);
    world.send(Qos::AtLeastOnce, "");
    world.publish(&outgoing(Qos::AtLeastOnce), "").expect("it waits");
    world.sent();
    world.publish(&outgoing(Qos::AtMostOnce), "").expect("QoS 0 is not counted");
    world.subscribe("a", SubscribeProperties::EMPTY).expect("in order");
    let received = wire::Publish {
        delivery: wire::Delivery::AtLeastOnce { packet_id: id(1), dup: false },
        ..wire::Publish::new(topic::topic!("a"), b"")
    };
    world.take(received).expect("in order");
    let sent = world.sent();
    assert!(sent[0].starts_with("PUBLISH q0") && sent[1].starts_with("SUBSCRIBE"), "{sent:?}");
    assert_eq!(sent[2], "PUBACK id=1 Success");
}

/// [MQTT-2.2.1-3, 3.1.1 MQTT-2.3.1-2]
#[test]
fn no_identifier_is_used_for_two_things() {
    for version in Version::ALL {
        let mut world = World::new(version);
        let mut used = vec![world.send(Qos::ExactlyOnce, "")];
        used.push(world.subscribe("a", SubscribeProperties::EMPTY).expect("in order"));
        for _ in 0..70_000 {
            let packet_id = world.send(Qos::AtLeastOnce, "");
            assert!(!used.contains(&packet_id));
            world.take(puback(packet_id.value())).expect("in order");
            world.out().clear();
        }
    }
}

/// [MQTT-3.2.2-17, MQTT-3.2.2-18, MQTT-3.3.2-9]
#[test]
fn aliases_are_used_up_to_the_servers_maximum() {
    for (takes, most) in [(None, 0), (Some(0), 0), (Some(2), 2)] {
        let properties = ConnAckProperties { topic_alias_maximum: takes, ..ConnAckProperties::EMPTY };
        let mut world = World::offered(Version::V5, properties);
        for _ in 0..40 {
            for topic in ["topics/one", "topics/two", "topics/three"] {
                let topic = topic::TopicName::new(topic).expect("a name");
                world.publish(&Outgoing::new(topic, b""), "").expect("in order");
            }
        }
        let sent = world.sent();
        let highest =
            (1..9).filter(|alias| sent.iter().any(|line| line.contains(&format!("topic-alias={alias} "))));
        assert_eq!(highest.max().unwrap_or(0), most, "{sent:?}");
    }
}

#[test]
fn only_so_much_may_wait() {
    let settings = Settings { waiting_messages_max: 2, ..Settings::default() };
    let mut world = World::apart(Version::V5, settings);
    for _ in 0..2 {
        assert_eq!(world.publish(&outgoing(Qos::AtLeastOnce), ""), Ok(Publishing::Waits));
    }
    assert_eq!(world.publish(&outgoing(Qos::AtLeastOnce), ""), Err(PublishError::Full));
    world.connect_with(&connect(Version::V5)).expect("in order");
    world.sent();
    world.take(connack(ConnAckProperties::EMPTY)).expect("in order");
    assert_eq!(world.sent().len(), 2, "what waited for the connection is sent");
}

/// [MQTT-4.13.1-1, 3.1.1 MQTT-4.8.0-1]
#[test]
fn an_acknowledgement_that_the_message_does_not_have_ends_the_connection() {
    for version in Version::ALL {
        let begun = || {
            let mut world = World::new(version);
            world.send(Qos::AtLeastOnce, "");
            world.send(Qos::ExactlyOnce, "");
            world.sent();
            world
        };
        for wrong in [wire::Packet::from(puback(2)), pubrec(1).into(), pubcomp(1).into(), pubcomp(2).into()] {
            let mut world = begun();
            world.refused(wrong);
            assert_eq!(world.sent().len(), usize::from(version.is_5()), "DISCONNECT");
            assert_eq!((world.client.is_connected(), world.client.in_flight()), (false, 2));
        }
        let mut world = begun();
        for of_nothing in [wire::Packet::from(puback(9)), pubcomp(9).into()] {
            assert!(matches!(world.take(of_nothing), Ok(Event::None)));
        }
        assert!(world.sent().is_empty());
        world.take(pubrec(9)).expect("in order");
        assert!(world.sent()[0].starts_with("PUBREL id=9"));
    }
}
