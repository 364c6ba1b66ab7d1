//! Messages of QoS 1 and 2 from a client.

use base::Ticket;
use pondhawk_session::{Request, Settings};
use wire::{MessageProperties, PubRel, PubRelReason, Publish, Qos, ReasonCode, Version};

use crate::world::{World, connect, id, publish};

fn pubrel(packet_id: u16) -> PubRel<'static> {
    PubRel::new(id(packet_id), PubRelReason::Success)
}

fn is_new(request: &Request<'_>) -> bool {
    matches!(request, Request::Publish(_))
}

/// [MQTT-3.3.4-1, MQTT-4.3.2-4, MQTT-4.3.3-8, MQTT-2.2.1-5, 3.1.1 MQTT-3.3.4-1, 3.1.1 MQTT-4.3.2-2,
/// 3.1.1 MQTT-2.3.1-6]
#[test]
fn a_message_is_answered_as_its_qos_demands_when_what_that_promises_is_true() {
    for version in Version::ALL {
        let mut world = World::new(version);
        for (qos, ticket, answer) in [
            (Qos::AtMostOnce, None, None),
            (Qos::AtLeastOnce, Some(Ticket::PubAck(id(7))), Some("PUBACK id=7 Success")),
            (Qos::ExactlyOnce, Some(Ticket::PubRec(id(7))), Some("PUBREC id=7 Success")),
        ] {
            let request = world.take(publish(qos, 7)).expect("a message");
            assert!(matches!(request, Request::Publish(message) if message.ticket() == ticket));
            assert!(world.sent().is_empty());
            for _ in 0..2 {
                ticket.inspect(|ticket| world.complete(*ticket));
            }
            assert_eq!(world.sent(), Vec::from_iter(answer), "a ticket is completed once");
        }
        assert_eq!(world.session.unanswered(), 0);
    }
}

/// [MQTT-4.6.0-2, MQTT-4.6.0-3, 3.1.1 MQTT-4.6.0-2, 3.1.1 MQTT-4.6.0-3]
#[test]
fn answers_of_one_kind_leave_in_the_order_of_what_they_answer() {
    for version in Version::ALL {
        let mut world = World::new(version);
        for packet_id in [3, 1] {
            world.take(publish(Qos::AtLeastOnce, packet_id)).expect("a message");
            world.take(publish(Qos::ExactlyOnce, packet_id + 10)).expect("a message");
        }
        world.complete(Ticket::PubAck(id(1)));
        world.complete(Ticket::PubRec(id(11)));
        assert!(world.sent().is_empty());
        assert_eq!(world.session.unanswered(), 4);
        world.complete(Ticket::PubRec(id(13)));
        assert_eq!(world.sent(), ["PUBREC id=13 Success", "PUBREC id=11 Success"]);
        world.complete(Ticket::PubAck(id(3)));
        assert_eq!(world.sent(), ["PUBACK id=3 Success", "PUBACK id=1 Success"]);
    }
}

/// PUBREC waits for its turn behind that of an earlier message: nobody has asked for PUBREL.
#[test]
fn a_message_is_not_released_before_its_pubrec_has_left() {
    for version in Version::ALL {
        let mut world = World::new(version);
        for packet_id in [1, 2] {
            world.take(publish(Qos::ExactlyOnce, packet_id)).expect("a message");
        }
        world.complete(Ticket::PubRec(id(2)));
        assert!(world.sent().is_empty(), "accepted, and not said");
        assert!(world.take(pubrel(2)).is_err(), "{version}");
    }
}

/// [MQTT-4.3.2-5, 3.1.1 MQTT-4.3.2-2]
#[test]
fn an_identifier_that_was_acknowledged_stands_for_a_new_message() {
    for version in Version::ALL {
        let mut world = World::new(version);
        for _ in 0..3 {
            assert!(is_new(&world.take(publish(Qos::AtLeastOnce, 1)).expect("a message")));
            world.complete(Ticket::PubAck(id(1)));
            assert_eq!(world.sent(), ["PUBACK id=1 Success"]);
        }
    }
}

/// [MQTT-4.3.3-10, MQTT-4.3.3-11, MQTT-4.3.3-12, 3.1.1 MQTT-4.3.3-2]
#[test]
fn a_message_of_qos_2_is_published_once_until_it_is_released() {
    for version in Version::ALL {
        let mut world = World::new(version);
        let mut published = 0;
        for round in 1..=2 {
            for _ in 0..3 {
                let request = world.take(publish(Qos::ExactlyOnce, 5)).expect("in order");
                published += usize::from(is_new(&request));
                world.complete(Ticket::PubRec(id(5)));
            }
            assert_eq!(world.sent(), ["PUBREC id=5 Success"; 3]);
            assert_eq!(published, round);
            assert!(matches!(world.take(pubrel(5)), Ok(Request::Released { .. })));
            assert!(matches!(world.take(pubrel(5)), Ok(Request::None)), "it waits for the first");
            assert!(world.sent().is_empty());
            world.complete(Ticket::PubComp(id(5)));
            assert_eq!(world.sent(), ["PUBCOMP id=5 Success"]);
        }
    }
}

/// [MQTT-4.3.3-10]
#[test]
fn a_message_that_comes_again_waits_for_the_record_of_the_first() {
    let mut world = World::new(Version::V5);
    assert!(is_new(&world.take(publish(Qos::ExactlyOnce, 5)).expect("a message")));
    assert!(matches!(world.take(publish(Qos::ExactlyOnce, 5)), Ok(Request::None)));
    assert!(world.sent().is_empty());
    world.complete(Ticket::PubRec(id(5)));
    assert_eq!(world.sent(), ["PUBREC id=5 Success"]);
}

/// [MQTT-4.4.0-1, MQTT-4.3.3-10, 3.1.1 MQTT-4.4.0-1]
#[test]
fn messages_received_on_an_earlier_connection_are_not_published_again() {
    for version in Version::ALL {
        let mut world = World::silent(version, Settings::default());
        world.take(connect(version)).expect("a CONNECT");
        world.accept(true, &[id(8), id(9)]);
        world.sent();
        assert!(!is_new(&world.take(publish(Qos::ExactlyOnce, 8)).expect("it is known")));
        assert!(matches!(world.take(pubrel(9)), Ok(Request::Released { packet_id }) if packet_id == id(9)));
        world.complete(Ticket::PubComp(id(9)));
        assert!(is_new(&world.take(publish(Qos::ExactlyOnce, 9)).expect("it is free")));
        assert_eq!(world.sent(), ["PUBREC id=8 Success", "PUBCOMP id=9 Success"]);
    }
}

/// [MQTT-4.3.3-9]
#[test]
fn an_identifier_that_was_refused_stands_for_a_new_message() {
    let mut world = World::new(Version::V5);
    for _ in 0..3 {
        assert!(is_new(&world.take(publish(Qos::ExactlyOnce, 5)).expect("a message")));
        world.complete_with(Ticket::PubRec(id(5)), ReasonCode::QuotaExceeded);
        assert_eq!(world.sent(), ["PUBREC id=5 Quota exceeded"]);
    }
    world.take(pubrel(5)).expect("in order");
    assert_eq!(world.sent(), ["PUBCOMP id=5 Packet Identifier not found"]);
}

/// [3.1.1 MQTT-3.3.5-2]
#[test]
fn before_mqtt_5_what_is_refused_is_acknowledged_as_usual() {
    for version in [Version::V3_1, Version::V3_1_1] {
        let mut world = World::new(version);
        world.take(publish(Qos::AtLeastOnce, 1)).expect("a message");
        world.take(publish(Qos::ExactlyOnce, 2)).expect("a message");
        world.complete_with(Ticket::PubAck(id(1)), ReasonCode::NotAuthorized);
        world.complete_with(Ticket::PubRec(id(2)), ReasonCode::NotAuthorized);
        assert_eq!(world.sent(), ["PUBACK id=1 Success", "PUBREC id=2 Success"]);
        assert!(matches!(world.take(pubrel(2)), Ok(Request::Released { .. })));
    }
}

/// [MQTT-4.3.3-13]
#[test]
fn an_exchange_is_finished_though_the_message_has_expired() {
    let properties = MessageProperties { message_expiry_interval_secs: Some(0), ..MessageProperties::EMPTY };
    let expired = Publish { properties, ..publish(Qos::ExactlyOnce, 1) };
    let mut world = World::new(Version::V5);
    world.take(expired).expect("a message");
    world.complete(Ticket::PubRec(id(1)));
    world.now_ms += 60_000;
    assert!(!is_new(&world.take(expired).expect("it is known")));
    world.take(pubrel(1)).expect("in order");
    world.complete(Ticket::PubComp(id(1)));
    assert_eq!(world.sent(), ["PUBREC id=1 Success", "PUBREC id=1 Success", "PUBCOMP id=1 Success"]);
}

/// [MQTT-3.3.4-7]
#[test]
fn more_messages_than_receive_maximum_end_the_connection() {
    let settings = Settings { receive_max: 2, ..Settings::default() };
    let mut world = World::connected(&connect(Version::V5), settings);
    for _ in 0..3 {
        world.take(publish(Qos::AtLeastOnce, 1)).expect("a message");
        world.take(publish(Qos::ExactlyOnce, 2)).expect("a message");
        world.complete(Ticket::PubAck(id(1)));
        world.complete(Ticket::PubRec(id(2)));
        world.take(pubrel(2)).expect("in order");
        world.complete(Ticket::PubComp(id(2)));
    }
    world.take(publish(Qos::AtLeastOnce, 1)).expect("a message");
    world.take(publish(Qos::ExactlyOnce, 2)).expect("a message");
    world.complete(Ticket::PubRec(id(2)));
    world.take(publish(Qos::ExactlyOnce, 2)).expect("it is no other message");
    world.take(publish(Qos::AtMostOnce, 0)).expect("QoS 0 does not count");
    world.sent();
    assert_eq!(world.refused(publish(Qos::AtLeastOnce, 3)).reason, ReasonCode::ReceiveMaximumExceeded);
    assert_eq!(world.sent(), ["DISCONNECT Receive Maximum exceeded"]);
}

/// [MQTT-3.3.4-7]
#[test]
fn messages_begun_on_an_earlier_connection_count_when_they_are_sent_again() {
    let settings = Settings { receive_max: 1, ..Settings::default() };
    let mut world = World::silent(Version::V5, settings);
    world.take(connect(Version::V5)).expect("a CONNECT");
    world.accept(true, &[id(1), id(2)]);
    world.take(publish(Qos::ExactlyOnce, 3)).expect("the first on this connection");
    world.take(pubrel(1)).expect("of the earlier one");
    let violation = world.refused(publish(Qos::ExactlyOnce, 2));
    assert_eq!(violation.reason, ReasonCode::ReceiveMaximumExceeded);
}

#[test]
fn before_mqtt_5_every_identifier_may_be_in_use() {
    for version in [Version::V3_1, Version::V3_1_1] {
        let mut world = World::new(version);
        for packet_id in 1..=u16::MAX {
            world.take(publish(Qos::ExactlyOnce, packet_id)).expect("a message");
        }
        assert_eq!(world.session.unanswered(), usize::from(u16::MAX));
    }
}

#[test]
fn an_identifier_of_another_exchange_is_in_use() {
    for (version, qos) in [(Version::V5, Qos::AtLeastOnce), (Version::V3_1_1, Qos::AtLeastOnce)] {
        let mut world = World::new(version);
        world.take(publish(Qos::ExactlyOnce, 1)).expect("a message");
        world.complete(Ticket::PubRec(id(1)));
        world.sent();
        if version.is_5() {
            world.take(publish(qos, 1)).expect("an answer says so");
            assert_eq!(world.sent(), ["PUBACK id=1 Packet Identifier in use"]);
            world.take(pubrel(1)).expect("the exchange goes on");
            let again = world.take(publish(Qos::ExactlyOnce, 1)).expect("an answer says so");
            assert!(!is_new(&again));
            assert_eq!(world.sent(), ["PUBREC id=1 Packet Identifier in use"]);
        } else {
            world.refused(publish(qos, 1));
        }
    }
}

#[test]
fn immediate_refusals_wait_for_their_turn() {
    let mut world = World::new(Version::V5);
    world.take(publish(Qos::ExactlyOnce, 1)).expect("a message");
    world.take(publish(Qos::AtLeastOnce, 2)).expect("a message");
    assert!(matches!(world.take(publish(Qos::AtLeastOnce, 1)), Ok(Request::None)));
    world.complete(Ticket::PubAck(id(2)));
    assert_eq!(world.sent(), ["PUBACK id=2 Success", "PUBACK id=1 Packet Identifier in use"]);
}

#[test]
fn a_release_of_nothing_is_answered_and_one_too_early_is_not() {
    for version in Version::ALL {
        let mut world = World::new(version);
        let not_found = if version.is_5() { "Packet Identifier not found" } else { "Success" };
        for _ in 0..3 {
            world.take(pubrel(1)).expect("in order");
            assert_eq!(world.sent(), [format!("PUBCOMP id=1 {not_found}")]);
        }
        world.take(publish(Qos::ExactlyOnce, 1)).expect("a message");
        world.refused(pubrel(1));
    }
}

#[test]
fn answers_that_are_held_back_leave_after_a_second_or_when_they_may() {
    let mut world = World::new(Version::V5);
    let now = world.now();
    world.session.hold_answers(now);
    for packet_id in 1..=2 {
        world.take(publish(Qos::AtLeastOnce, packet_id)).expect("a message");
        world.complete(Ticket::PubAck(id(packet_id)));
        world.take(publish(Qos::ExactlyOnce, 10 + packet_id)).expect("a message");
        world.complete(Ticket::PubRec(id(10 + packet_id)));
    }
    assert!(matches!(world.take(publish(Qos::ExactlyOnce, 11)), Ok(Request::None)), "it is known");
    assert!(world.sent().is_empty() && world.session.is_holding_answers());
    assert_eq!(world.session.poll_timeout(&world.settings), Some(world.now_ms + 1_000));
    world.now_ms += 999;
    let now = world.now();
    world.session.hold_answers(now);
    world.timeout().expect("in time");
    assert!(world.sent().is_empty());
    world.now_ms += 1;
    world.timeout().expect("in time");
    assert_eq!(world.sent().len(), 4);
    assert_eq!(world.session.poll_timeout(&world.settings), None);

    let now = world.now();
    world.session.hold_answers(now);
    world.take(publish(Qos::AtLeastOnce, 1)).expect("a message");
    world.complete(Ticket::PubAck(id(1)));
    world.release_answers();
    assert_eq!(world.sent(), ["PUBACK id=1 Success"]);
}

#[test]
fn messages_that_came_together_are_acknowledged_together_behind_all_before_them() {
    for (version, refused) in [(Version::V5, "Quota exceeded"), (Version::V3_1_1, "Success")] {
        let mut world = World::new(version);
        let publish_all = |world: &mut World, first: u16, rest: &[u16]| {
            world.take(publish(Qos::AtLeastOnce, first)).expect("a message");
            rest.iter().for_each(|packet_id| assert!(world.session.handle_like_publish(id(*packet_id))));
        };
        publish_all(&mut world, 5, &[3, 4]);
        assert_eq!(world.complete_last(3, ReasonCode::Success), 3);
        assert_eq!(world.sent(), [5, 3, 4].map(|packet_id| format!("PUBACK id={packet_id} Success")));
        // The first one is not decided. [MQTT-4.6.0-2]
        publish_all(&mut world, 1, &[]);
        publish_all(&mut world, 2, &[6]);
        assert_eq!(world.complete_last(2, ReasonCode::QuotaExceeded), 0);
        assert!(world.sent().is_empty());
        world.complete(Ticket::PubAck(id(1)));
        let answers = [(1, "Success"), (2, refused), (6, refused)];
        assert_eq!(
            world.sent(),
            answers.map(|(packet_id, reason)| format!("PUBACK id={packet_id} {reason}"))
        );
        // Held back, they leave later.
        let now = world.now();
        world.session.hold_answers(now);
        publish_all(&mut world, 7, &[8]);
        assert_eq!(world.complete_last(2, ReasonCode::Success), 0);
        world.release_answers();
        assert_eq!(world.sent(), [7, 8].map(|packet_id| format!("PUBACK id={packet_id} Success")));
        assert_eq!(world.session.unanswered(), 0);
    }
}

#[test]
fn a_message_reports_why_clients_may_not_publish_it() {
    let checked = Settings { check_payload_format: true, topic_levels_max: 2, ..Settings::default() };
    let text =
        MessageProperties { payload_format: Some(wire::PayloadFormat::Utf8), ..MessageProperties::EMPTY };
    for (topic, payload, settings, refusal) in [
        (topic::topic!("a"), &b"\xFF"[..], &checked, Some(ReasonCode::PayloadFormatInvalid)),
        (topic::topic!("a"), b"\xFF", &Settings::default(), None),
        (topic::topic!("a"), "ä".as_bytes(), &checked, None),
        (topic::topic!("a/b/c"), b"", &checked, Some(ReasonCode::TopicNameInvalid)),
        (topic::topic!("$SYS/a"), b"", &checked, Some(ReasonCode::TopicNameInvalid)),
    ] {
        let mut world = World::new(Version::V5);
        let packet = Publish { properties: text, ..Publish::new(topic, payload) };
        let Ok(Request::Publish(message)) = world.take(packet) else { panic!("a message") };
        assert_eq!(message.refusal(settings), refusal, "{topic:?}");
    }
}

/// [MQTT-2.2.1-3, 3.1.1 MQTT-2.3.1-1]
#[test]
fn packet_identifier_0_ends_the_connection() {
    for version in Version::ALL {
        let mut world = World::new(version);
        let properties = if version.is_5() { "\0" } else { "" };
        let bytes = format!("\x32{}\0\x01a\0\0{properties}", char::from(5 + u8::from(version.is_5())));
        let outcome = world.take_bytes(bytes.as_bytes());
        assert_eq!(outcome.map_err(|violation| violation.reason), Err(ReasonCode::ProtocolError));
    }
}
