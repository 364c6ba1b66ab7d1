//! Messages of QoS 1 and 2 to a client.

use std::num::NonZeroU16;
use std::sync::Arc;

use base::{Message, Ticket};
use pondhawk_session::{Bound, Request, Settings, Wait, Waiting};
use wire::{
    Delivery, PacketId, PacketType, PingReq, PubAck, PubAckReason, PubComp, PubRec, PubRelReason, Publish,
    Qos, ReasonCode, Version,
};

use crate::world::{World, connect_with, id, publish};

/// A client that accepts this number of messages at a time.
fn with_window(window: u16) -> World {
    let connect = connect_with(Version::V5, |connect| {
        connect.properties.receive_maximum = NonZeroU16::new(window);
    });
    World::connected(&connect, Settings::default())
}

fn puback(packet_id: PacketId) -> PubAck<'static> {
    PubAck::new(packet_id, PubAckReason::Success)
}

fn pubrec(packet_id: u16, reason: PubAckReason) -> PubRec<'static> {
    PubRec::new(id(packet_id), reason)
}

fn pubcomp(packet_id: u16) -> PubComp<'static> {
    PubComp::new(id(packet_id), PubRelReason::Success)
}

fn begin(world: &mut World, qos: Qos) -> Option<PacketId> {
    world.session.begin(qos).and_then(Delivery::packet_id)
}

fn message(world: &World, payload: &[u8]) -> Waiting {
    let topic = topic::topic!("a");
    let message = Arc::new(Message::new(topic, &Publish::new(topic, payload), None, world.now()));
    Waiting { message, qos: Qos::AtLeastOnce, retain: false, identifiers: Default::default(), tag: 7 }
}

/// [MQTT-3.3.4-9, MQTT-4.9.0-1, MQTT-4.9.0-2]
#[test]
fn no_more_is_under_way_than_the_client_takes() {
    let mut world = with_window(2);
    assert_eq!(world.session.window(), 2);
    let first = begin(&mut world, Qos::AtLeastOnce).expect("a place");
    let second = begin(&mut world, Qos::ExactlyOnce).expect("a place");
    assert_eq!(begin(&mut world, Qos::AtLeastOnce), None);
    for _ in 0..2 {
        world.take(puback(first)).expect("in order");
    }
    begin(&mut world, Qos::AtLeastOnce).expect("one place");
    assert_eq!(begin(&mut world, Qos::AtLeastOnce), None, "an acknowledgement counts once");
    world.take(PubRec::new(second, PubAckReason::Success)).expect("in order");
    world.complete(Ticket::PubRel(second));
    assert_eq!(begin(&mut world, Qos::AtLeastOnce), None, "PUBCOMP is the end");
    world.take(PubComp::new(second, PubRelReason::Success)).expect("in order");
    assert!(begin(&mut world, Qos::AtLeastOnce).is_some());
}

#[test]
fn the_window_is_what_both_ends_allow() {
    for (version, asked, settings, window) in [
        (Version::V5, None, Settings::default(), 1_000),
        (Version::V5, NonZeroU16::new(10), Settings::default(), 10),
        (Version::V5, None, Settings { inflight_max: u16::MAX, ..Settings::default() }, 32_767),
        (Version::V3_1_1, None, Settings::default(), 100),
        (Version::V3_1, None, Settings { inflight_max_3: 5, ..Settings::default() }, 5),
    ] {
        let connect = connect_with(version, |connect| connect.properties.receive_maximum = asked);
        let world = World::connected(&connect, settings);
        assert_eq!(world.session.window(), window);
    }
}

/// [MQTT-3.3.4-10, MQTT-4.9.0-3]
#[test]
fn a_full_window_delays_nothing_else() {
    let mut world = with_window(1);
    begin(&mut world, Qos::AtLeastOnce).expect("a place");
    let held = message(&world, b"");
    assert_eq!(world.session.wait_within(held, Bound::of(&world.settings)), Wait::Waits);
    world.take(PingReq).expect("in order");
    world.take(publish(Qos::AtLeastOnce, 1)).expect("a message");
    world.complete(Ticket::PubAck(id(1)));
    assert!(world.write(Publish::new(topic::topic!("a"), b"QoS 0")));
    assert_eq!(world.sent(), ["PINGRESP", "PUBACK id=1 Success", "PUBLISH q0 \"a\" 5 B \"QoS 0\""]);
}

/// [MQTT-2.2.1-4, MQTT-4.3.2-1, MQTT-4.3.2-2, MQTT-4.3.3-1, MQTT-4.3.3-2, MQTT-3.3.1-3, 3.1.1 MQTT-2.3.1-4,
/// 3.1.1 MQTT-3.3.1-3, 3.1.1 MQTT-4.3.2-1]
#[test]
fn a_message_is_sent_under_an_identifier_that_is_not_in_use_and_not_as_a_duplicate() {
    for version in Version::ALL {
        let mut world = World::new(version);
        let dup = Delivery::AtLeastOnce { packet_id: id(1), dup: true };
        world.take(Publish { delivery: dup, ..publish(Qos::AtLeastOnce, 1) }).expect("a message");
        let never = begin(&mut world, Qos::AtLeastOnce).expect("a place");
        for round in 0..140_000 {
            let qos = if round % 2 == 0 { Qos::AtLeastOnce } else { Qos::ExactlyOnce };
            let delivery = world.session.begin(qos).expect("a place");
            assert!(!delivery.dup());
            let packet_id = delivery.packet_id().expect("QoS 1 or 2");
            assert_ne!(packet_id, never);
            if qos == Qos::AtLeastOnce {
                world.take(puback(packet_id)).expect("in order");
            } else {
                let refused = PubRec::new(packet_id, PubAckReason::UnspecifiedError);
                if version.is_5() {
                    world.take(refused).expect("in order");
                } else {
                    world.take(PubRec::new(packet_id, PubAckReason::Success)).expect("in order");
                    world.complete(Ticket::PubRel(packet_id));
                    world.take(PubComp::new(packet_id, PubRelReason::Success)).expect("in order");
                }
            }
            world.discard_sent();
        }
    }
}

/// [MQTT-4.3.3-4, MQTT-4.6.0-4, MQTT-2.2.1-5, 3.1.1 MQTT-4.3.3-1, 3.1.1 MQTT-4.6.0-4, 3.1.1 MQTT-2.3.1-6]
#[test]
fn messages_that_have_arrived_are_released_in_that_order() {
    for version in Version::ALL {
        let mut world = World::new(version);
        for packet_id in [1, 2] {
            world.session.begin_as(id(packet_id), Qos::ExactlyOnce, false);
        }
        for packet_id in [2, 1] {
            let request = world.take(pubrec(packet_id, PubAckReason::Success));
            assert!(matches!(request, Ok(Request::Received { .. })));
        }
        assert!(matches!(world.take(pubrec(1, PubAckReason::Success)), Ok(Request::None)));
        world.complete(Ticket::PubRel(id(1)));
        assert!(world.sent().is_empty());
        world.complete(Ticket::PubRel(id(2)));
        assert_eq!(world.sent(), ["PUBREL id=2 Success", "PUBREL id=1 Success"]);
        assert_eq!(world.session.in_flight(), 2);
        assert!(matches!(world.take(pubcomp(1)), Ok(Request::Acknowledged { .. })));
        assert_eq!(world.session.in_flight(), 1);
    }
}

/// [MQTT-4.4.0-2]
#[test]
fn messages_that_the_client_refuses_are_finished() {
    let mut world = World::new(Version::V5);
    world.session.begin_as(id(1), Qos::AtLeastOnce, false);
    world.session.begin_as(id(2), Qos::ExactlyOnce, false);
    let refused = PubAck::new(id(1), PubAckReason::NotAuthorized);
    for request in [world.take(refused), world.take(pubrec(2, PubAckReason::NotAuthorized))] {
        let Ok(Request::Acknowledged { reason, .. }) = request else { panic!("{request:?}") };
        assert_eq!(reason, ReasonCode::NotAuthorized);
    }
    assert!(world.sent().is_empty());
    assert_eq!(world.session.in_flight(), 0);
}

/// [MQTT-4.4.0-1, MQTT-3.3.1-1, 3.1.1 MQTT-4.4.0-1, 3.1.1 MQTT-3.3.1-1]
#[test]
fn messages_in_flight_are_sent_again_after_a_reconnect() {
    for version in Version::ALL {
        let mut world = World::new(version);
        let delivery = world.session.begin_as(id(9), Qos::AtLeastOnce, true);
        assert_eq!(delivery, Delivery::AtLeastOnce { packet_id: id(9), dup: true });
        world.begin_release(id(5));
        assert_eq!(world.sent(), ["PUBREL id=5 Success"]);
        assert!(matches!(world.take(pubcomp(5)), Ok(Request::Acknowledged { .. })));
        assert!(matches!(world.take(puback(id(9))), Ok(Request::Acknowledged { .. })));
    }
}

#[test]
fn acknowledgements_of_nothing_change_nothing() {
    for version in Version::ALL {
        let mut world = World::new(version);
        let not_found = if version.is_5() { "Packet Identifier not found" } else { "Success" };
        for is_used in [false, true] {
            if is_used {
                begin(&mut world, Qos::AtLeastOnce).expect("a place");
            }
            let before = world.session.in_flight();
            assert!(matches!(world.take(puback(id(60_000))), Ok(Request::None)));
            assert!(matches!(world.take(pubcomp(60_000)), Ok(Request::None)));
            world.take(pubrec(60_000, PubAckReason::Success)).expect("in order");
            assert_eq!(world.sent(), [format!("PUBREL id=60000 {not_found}")]);
            assert_eq!(world.session.in_flight(), before);
        }
    }
}

/// [MQTT-4.13.1-1, 3.1.1 MQTT-4.8.0-1]
#[test]
fn an_acknowledgement_that_the_message_does_not_have_ends_the_connection() {
    for version in Version::ALL {
        let begun = || {
            let mut world = World::new(version);
            world.session.begin_as(id(1), Qos::AtLeastOnce, false);
            world.session.begin_as(id(2), Qos::ExactlyOnce, false);
            world
        };
        begun().refused(puback(id(2)));
        begun().refused(pubrec(1, PubAckReason::Success));
        begun().refused(pubcomp(1));
        begun().refused(pubcomp(2));
        let mut received = begun();
        received.take(pubrec(2, PubAckReason::Success)).expect("in order");
        received.refused(pubcomp(2));
    }
}

#[test]
fn a_message_that_was_released_is_released_again_on_demand() {
    let mut world = World::new(Version::V5);
    world.session.begin_as(id(1), Qos::ExactlyOnce, false);
    world.take(pubrec(1, PubAckReason::Success)).expect("in order");
    world.complete(Ticket::PubRel(id(1)));
    world.take(pubrec(1, PubAckReason::Success)).expect("in order");
    assert_eq!(world.sent(), ["PUBREL id=1 Success", "PUBREL id=1 Success"]);
}

#[test]
fn messages_wait_in_order_and_within_bounds() {
    let mut world = with_window(1);
    world.settings = Settings { waiting_messages_max: 2, waiting_bytes_max: 1_000, ..Settings::default() };
    let first = begin(&mut world, Qos::AtLeastOnce).expect("a place");
    let large = message(&world, &[0; 2_000]);
    assert_eq!(
        world.session.wait_within(large, Bound::of(&world.settings)),
        Wait::Waits,
        "one may always wait"
    );
    let next = message(&world, b"next");
    assert_eq!(world.session.wait_within(next.clone(), Bound::of(&world.settings)), Wait::Full);
    assert!(world.session.next_waiting().is_none());
    world.take(puback(first)).expect("in order");
    assert!(world.session.begin(Qos::AtLeastOnce).is_none(), "others wait");
    let (waiting, delivery) = world.session.next_waiting().expect("a place");
    assert_eq!(waiting.message.payload().len(), 2_000);
    assert_eq!((world.session.waiting_messages(), world.session.waiting_bytes()), (0, 0));

    for payload in [b"one", b"two"] {
        let waiting = message(&world, payload);
        assert_eq!(world.session.wait_within(waiting, Bound::of(&world.settings)), Wait::Waits);
    }
    assert_eq!(world.session.wait_within(next, Bound::of(&world.settings)), Wait::Full);
    let mut last = delivery;
    for payload in [b"one", b"two"] {
        world.take(puback(last.packet_id().expect("QoS 1"))).expect("in order");
        let (waiting, delivery) = world.session.next_waiting().expect("a place");
        assert_eq!((waiting.message.payload(), waiting.tag), (&payload[..], 7));
        last = delivery;
    }
}

#[test]
fn an_acknowledgement_that_only_says_success_needs_no_packet() {
    let mut world = World::new(Version::V5);
    world.session.begin_as(id(1), Qos::AtLeastOnce, false);
    world.session.begin_as(id(2), Qos::ExactlyOnce, false);
    world.take(publish(Qos::ExactlyOnce, 3)).expect("a message");
    world.complete(Ticket::PubRec(id(3)));
    world.now_ms += 5;
    let now = world.now();
    let mut take = |packet_type, packet_id| {
        let request = world.session.handle_acknowledgement(packet_type, id(packet_id), now);
        if let Ok(Request::Received { packet_id }) = request {
            world.session.complete(Ticket::PubRel(packet_id), ReasonCode::Success, &mut Vec::new());
        }
        format!("{:?}", request.expect("in order"))
    };
    assert!(take(PacketType::PubAck, 1).starts_with("Acknowledged"));
    assert!(take(PacketType::PubRec, 2).starts_with("Received"));
    assert!(take(PacketType::PubComp, 2).starts_with("Acknowledged"));
    assert!(take(PacketType::PubRel, 3).starts_with("Released"));
    assert!(world.session.handle_acknowledgement(PacketType::PubComp, id(9), now).is_ok());
    world.session.begin_as(id(1), Qos::AtLeastOnce, false);
    assert!(world.session.handle_acknowledgement(PacketType::PubComp, id(1), now).is_err());
}

#[test]
fn a_session_is_small() {
    // State that most sessions do not have is behind pointers. The rest is the cost of an idle connection, of which
    // there may be a million. Eight bytes are the limits that the client was told, which hold although settings change.
    assert!(size_of::<pondhawk_session::Session>() <= 88, "{} bytes", size_of::<pondhawk_session::Session>());
}
