//! Silence, PINGREQ and the end of a connection.

use pondhawk_session::{Request, Settings};
use wire::{Disconnect, DisconnectProperties, DisconnectReason, PingReq, PingResp, Qos, ReasonCode, Version};

use crate::world::{World, connect, connect_with, publish};

/// [MQTT-3.12.4-1, 3.1.1 MQTT-3.12.4-1]
#[test]
fn pingreq_is_answered() {
    for version in Version::ALL {
        let mut world = World::new(version);
        world.take(PingReq).expect("in order");
        assert_eq!(world.sent(), ["PINGRESP"]);
    }
}

/// [MQTT-3.1.2-22, 3.1.1 MQTT-3.1.2-24]
#[test]
fn a_client_that_is_silent_for_too_long_is_gone() {
    for version in Version::ALL {
        let connect = connect_with(version, |connect| connect.keep_alive_secs = 10);
        let mut world = World::connected(&connect, Settings::default());
        world.now_ms += 10_000;
        world.take(PingReq).expect("in order");
        world.sent();
        assert_eq!(world.session.poll_timeout(&world.settings), Some(world.now_ms + 15_000));
        world.now_ms += 14_999;
        world.timeout().expect("in time");
        world.now_ms += 1;
        let violation = world.timeout().expect_err("too late");
        assert_eq!(violation.reason, ReasonCode::KeepAliveTimeout);
        world.answer(&violation);
        assert_eq!(world.sent().len(), usize::from(version.is_5()));
    }
}

#[test]
fn a_packet_under_way_is_life_if_it_comes_on() {
    let connect = connect_with(Version::V5, |connect| connect.keep_alive_secs = 10);
    let mut world = World::connected(&connect, Settings::default());
    world.session.note_partial(15 * 1_024);
    world.now_ms += 15_000;
    world.timeout().expect("1 KiB a second");
    world.session.note_partial(16 * 1_024);
    world.now_ms += 15_000;
    assert!(world.timeout().is_err(), "less than that since");
}

#[test]
fn a_client_that_does_not_connect_is_gone() {
    let mut world = World::silent(Version::V5, Settings::default());
    assert_eq!(world.session.poll_timeout(&world.settings), Some(world.now_ms + 10_000));
    world.now_ms += 10_000;
    let violation = world.timeout().expect_err("too late");
    world.answer(&violation);
    assert!(world.sent().is_empty());
}

/// [MQTT-3.14.4-1, 3.1.1 MQTT-3.14.4-2]
#[test]
fn nothing_follows_disconnect() {
    for version in Version::ALL {
        let mut world = World::new(version);
        world.take(publish(Qos::AtLeastOnce, 1)).expect("a message");
        let request = world.take(Disconnect::default());
        let normal = DisconnectReason::NormalDisconnection;
        assert!(matches!(request, Ok(Request::Disconnect { reason, .. }) if reason == normal));
        assert!(world.take(publish(Qos::AtMostOnce, 1)).is_err());
        assert!(!world.write(PingResp));
        world.complete(base::Ticket::PubAck(crate::world::id(1)));
        assert!(world.sent().is_empty());
    }
}

/// [MQTT-3.14.0-1, MQTT-3.14.2-2]
#[test]
fn the_server_says_why_it_ends_a_connection_that_it_has_accepted() {
    let mut connect = connect(Version::V5);
    connect.properties.session_expiry_interval_secs = Some(9);
    let mut world = World::silent(Version::V5, Settings::default());
    assert_eq!(world.session.disconnect(DisconnectReason::ServerShuttingDown), None);
    world.take(connect).expect("a CONNECT");
    let refusal = world.session.disconnect(DisconnectReason::ServerBusy).expect("CONNACK says why");
    assert_eq!(refusal.to_string(), "CONNACK Server busy");
    world.accept(false, &[]);
    let disconnect = world.session.disconnect(DisconnectReason::ServerShuttingDown).expect("MQTT 5 says why");
    assert_eq!(disconnect.to_string(), "DISCONNECT Server shutting down");
    for version in [Version::V3_1, Version::V3_1_1] {
        assert_eq!(World::new(version).session.disconnect(DisconnectReason::ServerBusy), None);
    }
}

#[test]
fn disconnect_changes_how_long_a_session_is_kept_unless_it_was_to_end() {
    let disconnect = |secs| Disconnect {
        reason: DisconnectReason::NormalDisconnection,
        properties: DisconnectProperties {
            session_expiry_interval_secs: Some(secs),
            ..DisconnectProperties::EMPTY
        },
    };
    let settings = Settings { session_expiry_secs_max: 100, ..Settings::default() };
    for (asked, changed, kept) in
        [(Some(9), 7, Some(7)), (Some(9), 101, Some(100)), (Some(9), 0, Some(0)), (None, 0, Some(0))]
    {
        let mut connect = connect(Version::V5);
        connect.properties.session_expiry_interval_secs = asked;
        let mut world = World::connected(&connect, settings.clone());
        let Ok(Request::Disconnect { session_expiry_interval_secs, .. }) = world.take(disconnect(changed))
        else {
            panic!("a DISCONNECT that is in order");
        };
        assert_eq!(session_expiry_interval_secs, kept);
    }
    // A reload has lowered the limit meanwhile: what CONNACK has granted still counts, and no more.
    for (changed, kept) in [(80, 80), (95, 90)] {
        let mut connect = connect(Version::V5);
        connect.properties.session_expiry_interval_secs = Some(90);
        let mut world = World::connected(&connect, settings.clone());
        world.settings.session_expiry_secs_max = 10;
        let Ok(Request::Disconnect { session_expiry_interval_secs, .. }) = world.take(disconnect(changed))
        else {
            panic!("a DISCONNECT that is in order");
        };
        assert_eq!(session_expiry_interval_secs, Some(kept));
    }
    let mut world = World::connected(&connect(Version::V5), settings);
    world.refused(disconnect(1));
    assert_eq!(world.sent(), ["DISCONNECT Protocol Error"]);
}

/// [MQTT-4.13.1-1, MQTT-4.13.2-1, 3.1.1 MQTT-4.8.0-1]
#[test]
fn packets_that_only_servers_send_end_the_connection() {
    for version in Version::ALL {
        let mut world = World::new(version);
        assert!(world.take_bytes(b"\xD0\0").is_err());
        assert_eq!(world.sent().len(), usize::from(version.is_5()));
        assert!(World::new(version).take(PingResp).is_err());
    }
}
