//! Another connection after a lost one.

use std::num::NonZeroU16;

use pondhawk_session::client::{Client, Event, Settings};
use wire::{
    ConnAck, ConnAckProperties, Connected, MessageProperties, PubAck, PubAckReason, PubComp, PubRec,
    PubRelReason, Qos, Version,
};

use crate::world::{World, connect, id, outgoing};

fn pubrec(packet_id: u16) -> PubRec<'static> {
    PubRec::new(id(packet_id), PubAckReason::Success)
}

fn resumed(receive_maximum: u16) -> ConnAck<'static> {
    let receive_maximum = NonZeroU16::new(receive_maximum);
    let properties = ConnAckProperties { receive_maximum, ..ConnAckProperties::EMPTY };
    ConnAck { outcome: Connected::Accepted { session_present: true }, properties }
}

/// [MQTT-4.4.0-1, MQTT-4.6.0-1, MQTT-3.3.1-1, MQTT-4.3.3-6, 3.1.1 MQTT-4.4.0-1, 3.1.1 MQTT-4.6.0-1,
/// 3.1.1 MQTT-3.3.1-1, 3.1.1 MQTT-2.3.1-3, 3.1.1 MQTT-4.3.3-1]
#[test]
fn messages_in_flight_are_sent_again_in_order_and_only_after_a_reconnect() {
    for version in Version::ALL {
        let mut world = World::new(version);
        for qos in [Qos::ExactlyOnce, Qos::AtLeastOnce, Qos::ExactlyOnce, Qos::ExactlyOnce, Qos::AtLeastOnce]
        {
            world.send(qos, "");
        }
        world.take(pubrec(4)).expect("in order");
        world.take(pubrec(1)).expect("in order");
        world.sent();
        world.now_ms += 3_600_000;
        world.timeout().expect("no keep alive");
        assert!(world.sent().is_empty(), "time alone is no reason");
        for _ in 0..2 {
            world.reconnect(ConnAck::accepted(true));
            assert_eq!(
                world.sent(),
                [
                    "PUBREL id=4 Success",
                    "PUBREL id=1 Success",
                    "PUBLISH q1 id=2 dup \"a/b\" 3 B \"hey\"",
                    "PUBLISH q2 id=3 dup \"a/b\" 3 B \"hey\"",
                    "PUBLISH q1 id=5 dup \"a/b\" 3 B \"hey\"",
                ]
            );
        }
    }
}

/// [MQTT-4.3.2-2, MQTT-4.3.3-2, MQTT-3.3.1-1, 3.1.1 MQTT-4.3.2-1, 3.1.1 MQTT-4.3.3-1, 3.1.1 MQTT-3.3.1-1]
#[test]
fn a_message_that_is_sent_for_the_first_time_after_a_reconnect_is_no_duplicate() {
    for version in Version::ALL {
        for qos in [Qos::AtLeastOnce, Qos::ExactlyOnce] {
            let mut world = World::new(version);
            world.client.connection_lost();
            world.publish(&outgoing(qos), "").expect("it waits for a connection");
            let line = |id, dup| format!("PUBLISH q{} id={id}{dup} \"a/b\" 3 B \"hey\"", qos.level());
            world.reconnect(ConnAck::accepted(true));
            world.send(qos, "");
            assert_eq!(world.sent(), [line(1, ""), line(2, "")]);
            world.reconnect(ConnAck::accepted(true));
            world.send(qos, "");
            assert_eq!(world.sent(), [line(1, " dup"), line(2, " dup"), line(3, "")]);
        }
    }
}

/// The session that there was goes on until the server has said that there is another. [MQTT-4.1.0-1, 3.1.1 MQTT-4.1.0-1]
#[test]
fn a_connection_that_is_cut_before_connack_changes_no_session() {
    let mut world = World::new(Version::V5);
    world.send(Qos::AtLeastOnce, "kept");
    world.client.connection_lost();
    let mut short = connect(Version::V5);
    short.properties.session_expiry_interval_secs = None;
    for _ in 0..2 {
        world.connect_with(&short).expect("in order");
        world.client.connection_lost();
        assert_eq!((world.client.in_flight(), world.failed()), (1, Vec::new()));
    }
    world.sent();
    world.reconnect(ConnAck::accepted(true));
    assert_eq!(world.sent(), ["PUBLISH q1 id=1 dup \"a/b\" 3 B \"hey\""]);
}

/// [MQTT-3.3.4-7, MQTT-4.9.0-1]
#[test]
fn a_server_that_takes_less_than_before_gets_less_at_a_time() {
    let mut world = World::new(Version::V5);
    for tag in ["1", "2", "3"] {
        world.send(Qos::AtLeastOnce, tag);
    }
    world.reconnect(resumed(2));
    world.publish(&outgoing(Qos::AtLeastOnce), "4").expect("it waits");
    let ids = |world: &mut World| -> Vec<String> {
        world.sent().iter().filter_map(|line| line.split(' ').nth(2).map(str::to_owned)).collect()
    };
    assert_eq!(ids(&mut world), ["id=1", "id=2"]);
    for (acknowledged, next) in [(2, "id=3"), (1, "id=4")] {
        world.take(PubAck::new(id(acknowledged), PubAckReason::Success)).expect("in order");
        assert_eq!(ids(&mut world), [next]);
    }
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_again_yet_is_one() {
    let mut world = World::new(Version::V5);
    for qos in [Qos::AtLeastOnce, Qos::AtLeastOnce, Qos::ExactlyOnce, Qos::AtLeastOnce] {
        world.send(qos, "");
    }
    world.reconnect(resumed(1));
    assert_eq!(world.sent().len(), 1);
    world.take(PubAck::new(id(2), PubAckReason::Success)).expect("in order");
    world.take(pubrec(3)).expect("in order");
    assert_eq!(world.sent(), ["PUBREL id=3 Success"]);
    world.take(PubComp::new(id(3), PubRelReason::Success)).expect("in order");
    world.take(PubAck::new(id(1), PubAckReason::Success)).expect("in order");
    assert_eq!(world.sent(), ["PUBLISH q1 id=4 dup \"a/b\" 3 B \"hey\""]);
}

/// [MQTT-4.3.3-7]
#[test]
fn a_message_that_was_begun_is_finished_though_it_has_expired() {
    let mut world = World::new(Version::V5);
    let properties = MessageProperties { message_expiry_interval_secs: Some(1), ..MessageProperties::EMPTY };
    let short = outgoing(Qos::ExactlyOnce).properties(properties);
    world.publish(&short, "").expect("in order");
    world.now_ms += 60_000;
    world.reconnect(ConnAck::accepted(true));
    let sent = world.sent();
    assert!(sent.len() == 1 && sent[0].starts_with("PUBLISH q2 id=1 dup"), "{sent:?}");
}

/// [MQTT-4.1.0-1, MQTT-4.1.0-2, MQTT-3.1.2-23, 3.1.1 MQTT-4.1.0-1, 3.1.1 MQTT-4.1.0-2, 3.1.1 MQTT-3.1.2-4]
#[test]
fn a_session_lasts_as_long_as_was_agreed() {
    for version in Version::ALL {
        for (clean_start, expiry_secs, lasts) in [(false, Some(60), true), (true, None, false)] {
            let mut world = World::apart(version, Settings::default());
            let mut connect = connect(version);
            connect.clean_start = clean_start;
            connect.properties.session_expiry_interval_secs = expiry_secs;
            world.connect_with(&connect).expect("in order");
            world.take(ConnAck::accepted(false)).expect("in order");
            world.send(Qos::AtLeastOnce, "");
            assert_eq!(world.client.in_flight(), 1);
            world.client.connection_lost();
            assert_eq!(world.client.in_flight(), usize::from(lasts), "{version}");
            assert_eq!(world.failed().len(), usize::from(!lasts));
        }
    }
}

#[test]
fn the_server_may_keep_a_session_for_less_time_than_was_asked_for() {
    let mut world = World::apart(Version::V5, Settings::default());
    world.connect_with(&connect(Version::V5)).expect("in order");
    let properties = ConnAckProperties { session_expiry_interval_secs: Some(0), ..ConnAckProperties::EMPTY };
    world.take(ConnAck { properties, ..ConnAck::accepted(false) }).expect("in order");
    world.send(Qos::AtLeastOnce, "");
    world.client.connection_lost();
    assert_eq!(world.failed().len(), 1);
}

/// [MQTT-4.4.0-1, 3.1.1 MQTT-4.4.0-1]
#[test]
fn a_session_that_was_kept_goes_on_where_it_was() {
    for version in Version::ALL {
        let mut world = World::new(version);
        for qos in [Qos::ExactlyOnce, Qos::AtLeastOnce, Qos::ExactlyOnce] {
            world.send(qos, "kept");
        }
        world.take(pubrec(1)).expect("in order");
        let publish = wire::Publish {
            delivery: wire::Delivery::ExactlyOnce { packet_id: id(8), dup: false },
            ..wire::Publish::new(topic::topic!("a"), b"")
        };
        assert!(matches!(world.take(publish), Ok(Event::Message { .. })));
        let stored = world.client.stored();

        let mut world = World::apart(version, Settings::default());
        world.client = Client::restore(stored, Settings::default());
        world.publish(&outgoing(Qos::AtLeastOnce), "new").expect("it waits");
        world.reconnect(ConnAck::accepted(true));
        assert_eq!(
            world.sent(),
            [
                "PUBREL id=1 Success",
                "PUBLISH q1 id=2 dup \"a/b\" 3 B \"hey\"",
                "PUBLISH q2 id=3 dup \"a/b\" 3 B \"hey\"",
                "PUBLISH q1 id=4 \"a/b\" 3 B \"hey\"",
            ]
        );
        assert!(matches!(world.take(publish), Ok(Event::None)), "it is known");
        assert_eq!(world.sent(), ["PUBREC id=8 Success"]);
        let event = world.take(PubComp::new(id(1), PubRelReason::Success)).expect("in order");
        assert!(matches!(event, Event::Published { tag: "kept", .. }));
    }
}
