//! A session that an earlier program has left, of which nothing is known but that it is there.

use std::num::NonZeroU16;

use pondhawk_session::client::{Client, Event, Publishing, Settings, Stored};
use wire::{
    ConnAck, ConnAckProperties, Connected, PubAck, PubAckReason, PubComp, PubRec, PubRelReason, Qos, Version,
};

use crate::world::{World, connect, id, outgoing};

/// A program that knows its name; the server accepts this number of messages at a time.
fn inherited(version: Version, session_present: bool, window: u16) -> World {
    let mut world = World::apart(version, Settings { inflight_max: window, ..Settings::default() });
    let stored = Stored {
        client_id: "me".into(),
        has_session: true,
        is_inherited: true,
        under_way: Vec::new(),
        waiting: Vec::new(),
        unreleased: Vec::new(),
    };
    world.client = Client::restore(stored, Settings { inflight_max: window, ..Settings::default() });
    world.connect_with(&connect(version)).expect("in order");
    world.sent();
    let receive_maximum = NonZeroU16::new(window).filter(|_| version.is_5());
    let properties = ConnAckProperties { receive_maximum, ..ConnAckProperties::EMPTY };
    world.take(ConnAck { outcome: Connected::Accepted { session_present }, properties }).expect("in order");
    world
}

fn pubcomp(packet_id: u16, reason: PubRelReason) -> PubComp<'static> {
    PubComp::new(id(packet_id), reason)
}

/// The server would take it for a message that it has. [MQTT-4.3.3-1, MQTT-2.2.1-3, 3.1.1 MQTT-2.3.1-2]
#[test]
fn an_identifier_is_released_before_a_message_gets_it() {
    for version in Version::ALL {
        for (qos, answer) in [
            (Qos::AtLeastOnce, PubRelReason::PacketIdentifierNotFound),
            (Qos::ExactlyOnce, PubRelReason::Success),
        ] {
            let mut world = inherited(version, true, 2);
            assert!(world.sent().is_empty(), "nobody publishes anything yet");
            assert_eq!(world.publish(&outgoing(qos), ""), Ok(Publishing::Waits));
            assert_eq!(world.sent(), ["PUBREL id=1 Success", "PUBREL id=2 Success"]);
            assert_eq!(world.publish(&outgoing(qos), ""), Ok(Publishing::Waits));
            assert!(world.sent().is_empty(), "they are asked about once");
            for number in [2, 1] {
                assert!(matches!(world.take(pubcomp(number, answer)), Ok(Event::None)));
                let line = format!("PUBLISH q{} id={number} \"a/b\" 3 B \"hey\"", qos.level());
                assert_eq!(world.sent(), [line]);
            }
        }
    }
}

#[test]
fn an_identifier_that_was_released_is_used_again() {
    let mut world = inherited(Version::V5, true, 1);
    world.publish(&outgoing(Qos::AtLeastOnce), "1").expect("it waits");
    world.take(pubcomp(1, PubRelReason::PacketIdentifierNotFound)).expect("in order");
    world.sent();
    for tag in ["2", "3"] {
        world.publish(&outgoing(Qos::AtLeastOnce), tag).expect("it waits for its turn");
        let event = world.take(PubAck::new(id(1), PubAckReason::Success)).expect("in order");
        assert!(matches!(event, Event::Published { .. }));
        assert_eq!(world.sent(), ["PUBLISH q1 id=1 \"a/b\" 3 B \"hey\""]);
    }
}

#[test]
fn unanswered_releases_are_sent_again_on_the_next_connection() {
    let mut world = inherited(Version::V5, true, 2);
    world.publish(&outgoing(Qos::ExactlyOnce), "").expect("it waits");
    world.take(pubcomp(1, PubRelReason::Success)).expect("in order");
    world.take(PubRec::new(id(1), PubAckReason::Success)).expect("in order");
    world.sent();
    world.reconnect(ConnAck::accepted(true));
    assert_eq!(world.sent(), ["PUBREL id=1 Success", "PUBREL id=2 Success"]);
    let event = world.take(pubcomp(1, PubRelReason::Success)).expect("in order");
    assert!(matches!(event, Event::Published { .. }), "that was our own");
}

/// A server without the session has no identifiers of it.
#[test]
fn nothing_is_released_where_there_is_no_session() {
    let mut world = inherited(Version::V5, false, 2);
    world.send(Qos::ExactlyOnce, "");
    assert_eq!(world.sent(), ["PUBLISH q2 id=1 \"a/b\" 3 B \"hey\""]);
    let mut world = inherited(Version::V5, true, 2);
    world.reconnect(ConnAck::accepted(false));
    world.send(Qos::ExactlyOnce, "");
    assert_eq!(world.sent(), ["PUBLISH q2 id=1 \"a/b\" 3 B \"hey\""]);
}

/// The stored state of such a session is marked as inherited.
#[test]
fn a_session_that_was_inherited_stays_so_when_it_is_kept() {
    let world = inherited(Version::V5, true, 2);
    assert!(world.client.stored().is_inherited);
    assert!(!World::new(Version::V5).client.stored().is_inherited);
}
