//! Connecting, and the server's answer.

use pondhawk_session::client::{ConnectError, DisconnectError, Event, PublishError, RequestError, Settings};
use wire::{
    Binary, ConnAck, ConnAckProperties, Connect, ConnectRefusal, DisconnectReason, MaximumQos,
    MessageProperties, PingResp, Qos, SubscribeProperties, Version, Will,
};

use crate::world::{World, connack, connect, outgoing, utf8};

fn disconnect(world: &mut World, secs: Option<u32>) -> Result<(), DisconnectError> {
    let World { client, .. } = world;
    let mut out = Vec::new();
    let outcome =
        client.disconnect(DisconnectReason::NormalDisconnection, secs, &Default::default(), &mut out);
    world.out().extend_from_slice(&out);
    outcome
}

/// [MQTT-3.1.0-1, 3.1.1 MQTT-3.1.0-1]
#[test]
fn nothing_is_sent_before_connect() {
    for version in Version::ALL {
        let mut world = World::apart(version, Settings::default());
        assert_eq!(world.publish(&outgoing(Qos::AtMostOnce), ""), Err(PublishError::NotConnected));
        assert!(world.publish(&outgoing(Qos::AtLeastOnce), "").is_ok(), "it waits");
        assert_eq!(world.subscribe("a", SubscribeProperties::EMPTY), Err(RequestError::NotConnected));
        assert_eq!(disconnect(&mut world, None), Err(DisconnectError::NotConnected));
        world.timeout().expect("there is nothing to wait for");
        assert!(world.sent().is_empty());
        world.connect_with(&connect(version)).expect("in order");
        assert_eq!(world.connect_with(&connect(version)), Err(ConnectError::Connected));
        let sent = world.sent();
        assert!(sent.len() == 1 && sent[0].starts_with("CONNECT "), "{sent:?}");
    }
}

/// [MQTT-3.1.3-1, MQTT-3.1.3-3, MQTT-3.1.2-9, MQTT-3.1.2-17, MQTT-3.1.2-19, 3.1.1 MQTT-3.1.3-1, 3.1.1 MQTT-3.1.3-3,
/// 3.1.1 MQTT-3.1.2-9, 3.1.1 MQTT-3.1.2-19, 3.1.1 MQTT-3.1.2-21]
#[test]
fn connect_has_its_fields_in_order() {
    for (version, fields) in [
        (Version::V3_1, &b"\0\x06MQIsdp\x03\xEC\0\0\0\x02me\0\x01w\0\x01W\0\x01u\0\x01P"[..]),
        (Version::V3_1_1, b"\0\x04MQTT\x04\xEC\0\0\0\x02me\0\x01w\0\x01W\0\x01u\0\x01P"),
        (
            Version::V5,
            b"\0\x04MQTT\x05\xEC\0\0\x05\x11\xFF\xFF\xFF\xFF\0\x02me\x05\x18\0\0\0\x07\0\x01w\0\x01W\0\x01u\0\x01P",
        ),
    ] {
        let mut connect = connect(version);
        connect.will = Some(Will {
            topic: topic::topic!("w"),
            payload: Binary::new(b"W").expect("short"),
            qos: Qos::AtLeastOnce,
            retain: true,
            delay_interval_secs: Some(7),
            properties: MessageProperties::EMPTY,
        });
        connect.set_credentials(Some(utf8("u")), Binary::new(b"P").ok()).expect("both");
        let mut world = World::apart(version, Settings::default());
        world.connect_with(&connect).expect("in order");
        assert_eq!(world.out()[2..], fields[..], "{version}");
    }
}

/// [MQTT-3.1.2-11, MQTT-3.1.2-13, MQTT-3.1.2-16, MQTT-3.1.2-18, 3.1.1 MQTT-3.1.2-11, 3.1.1 MQTT-3.1.2-13,
/// 3.1.1 MQTT-3.1.2-15, 3.1.1 MQTT-3.1.2-18, 3.1.1 MQTT-3.1.2-20]
#[test]
fn connect_announces_nothing_that_is_not_there() {
    for version in [Version::V3_1_1, Version::V5] {
        let mut world = World::apart(version, Settings::default());
        world.connect_with(&Connect::new(version, utf8("me"))).expect("in order");
        assert_eq!(world.out()[9], 0b10, "Clean Start");
        assert_eq!(world.sent().len(), 1);
    }
}

/// [MQTT-3.1.3-2, 3.1.1 MQTT-3.1.3-2, 3.1.1 MQTT-3.1.3-7]
#[test]
fn a_session_is_that_of_its_client_identifier() {
    for version in Version::ALL {
        let mut world = World::new(version);
        world.client.connection_lost();
        let mut other = connect(version);
        other.client_id = utf8("you");
        assert_eq!(world.connect_with(&other), Err(ConnectError::OtherClient));
        assert!(world.sent().is_empty());
        other.clean_start = true;
        world.connect_with(&other).expect("a session of its own");
    }
    for (version, clean_start, is_possible) in [
        (Version::V3_1, true, false),
        (Version::V3_1, false, false),
        (Version::V3_1_1, true, true),
        (Version::V3_1_1, false, false),
        (Version::V5, true, true),
        (Version::V5, false, true),
    ] {
        let mut world = World::apart(version, Settings::default());
        let mut nameless = Connect::new(version, utf8(""));
        nameless.clean_start = clean_start;
        let outcome = world.connect_with(&nameless);
        assert_eq!(outcome, if is_possible { Ok(()) } else { Err(ConnectError::NoClientId) });
    }
}

/// [MQTT-3.1.3-2]
#[test]
fn an_identifier_that_was_assigned_is_used_again() {
    let mut world = World::apart(Version::V5, Settings::default());
    let mut nameless = connect(Version::V5);
    nameless.client_id = utf8("");
    world.connect_with(&nameless).expect("in order");
    let properties =
        ConnAckProperties { assigned_client_identifier: Some(utf8("auto-7")), ..ConnAckProperties::EMPTY };
    world.take(connack(properties)).expect("in order");
    assert_eq!(world.client.client_id(), "auto-7");
    world.sent();
    world.client.connection_lost();
    world.connect_with(&nameless).expect("in order");
    assert!(world.sent()[0].starts_with("CONNECT 5.0 \"auto-7\""));
}

/// [MQTT-3.2.2-4]
#[test]
fn a_session_that_the_client_does_not_have_ends_the_connection() {
    for version in [Version::V3_1_1, Version::V5] {
        for clean_start in [false, true] {
            let mut world = World::apart(version, Settings::default());
            let mut connect = connect(version);
            connect.clean_start = clean_start;
            world.connect_with(&connect).expect("in order");
            world.sent();
            world.refused(ConnAck::accepted(true));
            assert!(world.client.version().is_none() && world.sent().is_empty());
            // One that it had, and has given up.
            let mut world = World::new(version);
            world.client.connection_lost();
            world.connect_with(&Connect::new(version, utf8("me"))).expect("in order");
            assert!(world.take(ConnAck::accepted(true)).is_err());
        }
    }
}

/// [MQTT-3.2.2-5, MQTT-3.1.2-4, MQTT-4.1.0-2, 3.1.1 MQTT-3.1.2-6]
#[test]
fn a_session_that_the_server_does_not_have_is_over() {
    for version in [Version::V3_1_1, Version::V5] {
        for clean_start in [false, true] {
            let mut world = World::new(version);
            world.send(Qos::AtLeastOnce, "one");
            world.send(Qos::ExactlyOnce, "two");
            world.client.connection_lost();
            world.sent();
            let mut connect = connect(version);
            connect.clean_start = clean_start;
            world.connect_with(&connect).expect("in order");
            assert_eq!(world.client.in_flight(), if clean_start { 0 } else { 2 });
            world.sent();
            let event = world.take(ConnAck::accepted(false)).expect("in order");
            assert!(matches!(event, Event::Connected { session_present: false, .. }));
            assert!(world.sent().is_empty(), "nothing is sent again");
            assert_eq!(world.client.in_flight(), 0);
            assert_eq!(
                world.failed(),
                [("one", PublishError::SessionEnded), ("two", PublishError::SessionEnded)]
            );
        }
    }
}

/// [MQTT-3.2.0-1, MQTT-3.2.0-2, 3.1.1 MQTT-3.2.0-1]
#[test]
fn connack_is_the_first_packet_and_there_is_one() {
    for version in Version::ALL {
        let mut world = World::apart(version, Settings::default());
        world.connect_with(&connect(version)).expect("in order");
        assert_eq!(world.refused(PingResp).statement, "MQTT-3.2.0-1");
        World::new(version).refused(ConnAck::accepted(false));
    }
}

#[test]
fn a_refusal_is_told() {
    for version in Version::ALL {
        let mut world = World::apart(version, Settings::default());
        world.connect_with(&connect(version)).expect("in order");
        let event = world.take(ConnAck::refused(ConnectRefusal::NotAuthorized)).expect("in order");
        assert!(matches!(event, Event::Refused { reason: ConnectRefusal::NotAuthorized, .. }));
        assert!(world.client.version().is_none());
        world.connect_with(&connect(version)).expect("once more");
    }
}

/// [MQTT-3.2.2-11, MQTT-3.2.2-14, MQTT-3.2.2-15]
#[test]
fn packets_that_use_features_the_server_does_not_offer_are_not_sent() {
    let offered = ConnAckProperties {
        maximum_qos: Some(MaximumQos::AtLeastOnce),
        retain_available: Some(false),
        maximum_packet_bytes: std::num::NonZeroU32::new(14),
        wildcard_subscription_available: Some(false),
        subscription_identifier_available: Some(false),
        shared_subscription_available: Some(false),
        ..ConnAckProperties::EMPTY
    };
    let mut world = World::offered(Version::V5, offered);
    assert_eq!(world.publish(&outgoing(Qos::ExactlyOnce), ""), Err(PublishError::QosNotSupported));
    let retained = outgoing(Qos::AtMostOnce).retain(true);
    assert_eq!(world.publish(&retained, ""), Err(PublishError::RetainNotSupported));
    let long = outgoing(Qos::AtLeastOnce).payload(b"longer");
    assert_eq!(world.publish(&long, ""), Err(PublishError::TooLarge));
    let long = outgoing(Qos::AtMostOnce).payload(b"and longer");
    assert_eq!(world.publish(&long, ""), Err(PublishError::TooLarge));
    let identifier = SubscribeProperties {
        subscription_identifier: wire::SubscriptionIdentifier::new(1),
        ..SubscribeProperties::EMPTY
    };
    for (filter, properties, error) in [
        ("+", SubscribeProperties::EMPTY, RequestError::WildcardSubscriptionsNotSupported),
        ("$share/g/a", SubscribeProperties::EMPTY, RequestError::SharedSubscriptionsNotSupported),
        ("a", identifier, RequestError::SubscriptionIdentifiersNotSupported),
        ("a/long/filter", SubscribeProperties::EMPTY, RequestError::TooLarge),
    ] {
        assert_eq!(world.subscribe(filter, properties), Err(error));
    }
    assert!(world.sent().is_empty() && world.client.in_flight() == 0);
    world.send(Qos::AtLeastOnce, "14 bytes");
    world.subscribe("a", SubscribeProperties::EMPTY).expect("small enough");
    assert_eq!(world.sent().len(), 2);
}

/// [MQTT-3.2.2-11]
#[test]
fn a_waiting_message_fails_if_the_server_does_not_support_its_qos() {
    let mut world = World::apart(Version::V5, Settings::default());
    world.publish(&outgoing(Qos::ExactlyOnce), "two").expect("it waits");
    world.publish(&outgoing(Qos::AtLeastOnce), "one").expect("it waits");
    world.connect_with(&connect(Version::V5)).expect("in order");
    world.sent();
    let offered =
        ConnAckProperties { maximum_qos: Some(MaximumQos::AtLeastOnce), ..ConnAckProperties::EMPTY };
    world.take(connack(offered)).expect("in order");
    assert_eq!(world.sent(), ["PUBLISH q1 id=2 \"a/b\" 3 B \"hey\""]);
    assert_eq!(world.failed(), [("two", PublishError::QosNotSupported)]);
}

/// [MQTT-3.14.4-1, MQTT-3.14.4-2, 3.1.1 MQTT-3.14.4-1, 3.1.1 MQTT-3.14.4-2]
#[test]
fn nothing_follows_disconnect() {
    for version in Version::ALL {
        let mut world = World::new(version);
        world.send(Qos::AtLeastOnce, "");
        disconnect(&mut world, None).expect("in order");
        assert!(!world.client.is_connected());
        assert_eq!(world.publish(&outgoing(Qos::AtMostOnce), ""), Err(PublishError::NotConnected));
        world.publish(&outgoing(Qos::AtLeastOnce), "").expect("it waits");
        assert_eq!(world.subscribe("a", SubscribeProperties::EMPTY), Err(RequestError::NotConnected));
        assert!(matches!(world.take(PingResp), Ok(Event::None)), "what comes is not looked at");
        let sent = world.sent();
        assert_eq!(sent.last().map(String::as_str), Some("DISCONNECT Normal disconnection"));
    }
}

#[test]
fn disconnect_may_change_how_long_the_session_is_kept() {
    let mut world = World::new(Version::V5);
    world.send(Qos::AtLeastOnce, "one");
    disconnect(&mut world, Some(0)).expect("in order");
    assert_eq!(world.failed(), [("one", PublishError::SessionEnded)]);

    let mut world = World::apart(Version::V5, Settings::default());
    world.connect_with(&Connect::new(Version::V5, utf8("me"))).expect("in order");
    world.take(ConnAck::accepted(false)).expect("in order");
    assert_eq!(disconnect(&mut world, Some(1)), Err(DisconnectError::NoSession));
    assert!(world.client.is_connected());
}

/// [MQTT-3.14.4-1, MQTT-4.13.2-1]
#[test]
fn nothing_is_sent_after_the_server_has_disconnected() {
    let mut world = World::new(Version::V5);
    let event = world.take(wire::Disconnect::new(DisconnectReason::ServerShuttingDown)).expect("in order");
    assert!(matches!(event, Event::Disconnected(why) if why.reason == DisconnectReason::ServerShuttingDown));
    assert_eq!(world.publish(&outgoing(Qos::AtMostOnce), ""), Err(PublishError::NotConnected));
    assert!(!world.client.is_connected() && world.sent().is_empty());
}
