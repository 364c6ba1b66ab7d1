//! What a client is sent with QoS 1 and 2.

use session::{Request, Settings, Ticket};
use wire::{PubAck, PubAckReason, PubComp, PubRec, PubRelReason, Qos, Version};

use crate::world::{World, connect, id, publish};

/// [MQTT-3.3.4-9] [MQTT-4.9.0-1] [MQTT-4.9.0-2] [MQTT-2.2.1-4]
#[test]
fn no_more_is_under_way_than_the_client_takes() {
    let receive_maximum = std::num::NonZeroU16::new(2);
    let mut connect = connect(Version::V5);
    connect.properties.receive_maximum = receive_maximum;
    let mut world = World::connected(&connect, Settings::default());
    assert_eq!(world.session.window(&world.settings), 2);
    let first = world.session.begin(Qos::AtLeastOnce).and_then(wire::Delivery::packet_id);
    let second = world.session.begin(Qos::ExactlyOnce).and_then(wire::Delivery::packet_id);
    assert!(first.is_some() && second.is_some() && first != second);
    assert_eq!(world.session.begin(Qos::AtLeastOnce), None);
    let request = world.take(PubAck::new(first.expect("begun"), PubAckReason::Success));
    assert!(matches!(request, Ok(Request::Acknowledged { packet_id, .. }) if Some(packet_id) == first));
    assert!(world.session.begin(Qos::AtLeastOnce).is_some());
}

/// [MQTT-4.3.3-4] [MQTT-4.6.0-4] [3.1.1 MQTT-4.3.3-1] [3.1.1 MQTT-4.6.0-4]
#[test]
fn messages_that_have_arrived_are_released_in_that_order() {
    for version in Version::ALL {
        let mut world = World::new(version);
        for packet_id in [1, 2] {
            world.session.begin_as(id(packet_id), Qos::ExactlyOnce, false);
        }
        for packet_id in [2, 1] {
            let request = world.take(PubRec::new(id(packet_id), PubAckReason::Success));
            assert!(matches!(request, Ok(Request::Received { .. })));
        }
        world.complete(Ticket::PubRel(id(1)));
        assert!(world.sent().is_empty());
        world.complete(Ticket::PubRel(id(2)));
        assert_eq!(world.sent(), ["PUBREL id=2 Success", "PUBREL id=1 Success"]);
        let request = world.take(PubComp::new(id(1), PubRelReason::Success));
        assert!(matches!(request, Ok(Request::Acknowledged { .. })));
        assert_eq!(world.session.in_flight(), 1);
    }
}

#[test]
fn answers_that_are_held_back_leave_after_a_second() {
    let mut world = World::new(Version::V5);
    let now = world.now();
    world.session.hold_answers(now);
    world.take(publish(Qos::AtLeastOnce, 1)).expect("a message");
    world.complete(Ticket::PubAck(id(1)));
    assert!(world.sent().is_empty());
    assert_eq!(world.session.poll_timeout(&world.settings), Some(world.now_ms + 1_000));
    world.now_ms += 999;
    world.timeout().expect("in time");
    assert!(world.sent().is_empty());
    world.now_ms += 1;
    world.timeout().expect("in time");
    assert_eq!(world.sent(), ["PUBACK id=1 Success"]);
}
