//! What a client publishes with QoS 1 and 2.

use session::{Request, Settings, Ticket};
use wire::{PubRel, PubRelReason, Qos, ReasonCode, Version};

use crate::world::{World, connect, id, publish};

fn pubrel(packet_id: u16) -> PubRel<'static> {
    PubRel::new(id(packet_id), PubRelReason::Success)
}

/// [MQTT-4.3.2-4] [MQTT-2.2.1-5] [3.1.1 MQTT-4.3.2-2] [3.1.1 MQTT-2.3.1-6]
#[test]
fn a_message_is_acknowledged_when_what_that_promises_is_true() {
    for version in Version::ALL {
        let mut world = World::new(version);
        let request = world.take(publish(Qos::AtLeastOnce, 7));
        assert!(
            matches!(request, Ok(Request::Publish(message)) if message.ticket() == Some(Ticket::PubAck(id(7))))
        );
        assert!(world.sent().is_empty());
        world.complete(Ticket::PubAck(id(7)));
        assert_eq!(world.sent(), ["PUBACK id=7 Success"]);
        world.complete(Ticket::PubAck(id(7)));
        assert!(world.sent().is_empty(), "a ticket is completed once");
    }
}

/// [MQTT-4.6.0-2] [MQTT-4.6.0-3] [3.1.1 MQTT-4.6.0-2] [3.1.1 MQTT-4.6.0-3]
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
        world.complete(Ticket::PubRec(id(13)));
        assert_eq!(world.sent(), ["PUBREC id=13 Success", "PUBREC id=11 Success"]);
        world.complete(Ticket::PubAck(id(3)));
        assert_eq!(world.sent(), ["PUBACK id=3 Success", "PUBACK id=1 Success"]);
    }
}

/// [MQTT-4.3.3-8] [MQTT-4.3.3-10] [MQTT-4.3.3-11] [MQTT-4.3.3-12] [3.1.1 MQTT-4.3.3-2]
#[test]
fn a_message_of_qos_2_is_published_once_until_it_is_released() {
    for version in Version::ALL {
        let mut world = World::new(version);
        let mut published = 0;
        for round in 1..=2 {
            for _ in 0..3 {
                let request = world.take(publish(Qos::ExactlyOnce, 5)).expect("in order");
                published += usize::from(matches!(request, Request::Publish(_)));
                world.complete(Ticket::PubRec(id(5)));
            }
            assert_eq!(world.sent(), ["PUBREC id=5 Success"; 3]);
            assert_eq!(published, round);
            assert!(matches!(world.take(pubrel(5)), Ok(Request::Released { .. })));
            assert!(world.sent().is_empty());
            world.complete(Ticket::PubComp(id(5)));
            assert_eq!(world.sent(), ["PUBCOMP id=5 Success"]);
        }
    }
}

/// [MQTT-3.3.4-7]
#[test]
fn more_messages_than_receive_maximum_end_the_connection() {
    let settings = Settings { receive_max: 2, ..Settings::default() };
    let mut world = World::connected(&connect(Version::V5), settings);
    world.take(publish(Qos::AtLeastOnce, 1)).expect("a message");
    world.take(publish(Qos::ExactlyOnce, 2)).expect("a message");
    world.complete(Ticket::PubRec(id(2)));
    world.sent();
    assert_eq!(world.refused(publish(Qos::AtLeastOnce, 3)).reason, ReasonCode::ReceiveMaximumExceeded);
    assert_eq!(world.sent(), ["DISCONNECT Receive Maximum exceeded"]);
}

/// [MQTT-2.2.1-3] [3.1.1 MQTT-2.3.1-1]
#[test]
fn packet_identifier_0_ends_the_connection() {
    for version in Version::ALL {
        let mut world = World::new(version);
        let properties = if version.is_5() { "\0" } else { "" };
        let bytes = format!("\x32{}\0\x01a\0\0{properties}", char::from(5 + u8::from(version.is_5())));
        assert_eq!(
            world.take_bytes(bytes.as_bytes()).map_err(|it| it.reason),
            Err(ReasonCode::ProtocolError)
        );
    }
}
