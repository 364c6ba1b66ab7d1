//! Enhanced authentication, with a server that plays its part from a script.

use pondhawk_session::client::{Event, RequestError, Settings};
use wire::{Auth, AuthProperties, AuthReason, Binary, ConnAck, ConnAckProperties, Connect, Version};

use crate::world::{World, connack, connect, utf8};

fn with_method() -> Connect<'static> {
    let mut connect = connect(Version::V5);
    connect.properties.authentication_method = Some(utf8("script"));
    connect
}

fn auth(reason: AuthReason, method: Option<&'static str>) -> Auth<'static> {
    let authentication_data = method.and_then(|_| Binary::new(b"data").ok());
    let properties = AuthProperties {
        authentication_method: method.map(utf8),
        authentication_data,
        ..AuthProperties::EMPTY
    };
    Auth { reason, properties }
}

fn accepted(method: Option<&'static str>) -> ConnAck<'static> {
    let authentication_method = method.map(utf8);
    connack(ConnAckProperties { authentication_method, ..ConnAckProperties::EMPTY })
}

fn begun() -> World {
    let mut world = World::apart(Version::V5, Settings::default());
    world.connect_with(&with_method()).expect("in order");
    world.sent();
    world
}

fn authenticate(world: &mut World, again: bool) -> Result<(), RequestError> {
    let (now, mut out) = (world.now(), Vec::new());
    let data = Binary::new(b"me").ok();
    let outcome = if again {
        world.client.reauthenticate(data, now, &mut out)
    } else {
        world.client.authenticate(data, now, &mut out)
    };
    world.out().extend_from_slice(&out);
    outcome
}

/// [MQTT-4.12.0-3, MQTT-4.12.0-5, MQTT-3.1.2-30]
#[test]
fn steps_are_made_when_the_server_asks_for_them() {
    let mut world = begun();
    assert_eq!(authenticate(&mut world, false), Err(RequestError::NotOurTurn));
    assert_eq!(authenticate(&mut world, true), Err(RequestError::NotConnected));
    assert!(world.publish(&crate::world::outgoing(wire::Qos::AtLeastOnce), "").is_ok(), "it waits");
    for _ in 0..2 {
        let event = world.take(auth(AuthReason::ContinueAuthentication, Some("script"))).expect("in order");
        assert!(matches!(event, Event::Authenticate { data: Some(data) } if data.as_bytes() == b"data"));
        authenticate(&mut world, false).expect("our turn");
        assert_eq!(
            world.sent(),
            ["AUTH Continue authentication authentication-method=\"script\" authentication-data=2 B"]
        );
        assert_eq!(authenticate(&mut world, false), Err(RequestError::NotOurTurn));
    }
    assert!(matches!(world.take(accepted(Some("script"))), Ok(Event::Connected { .. })));
}

/// [MQTT-4.12.1-1]
#[test]
fn a_client_authenticates_itself_anew_with_the_same_method() {
    let mut world = begun();
    world.take(accepted(Some("script"))).expect("in order");
    world.sent();
    authenticate(&mut world, true).expect("connected");
    let sent = world.sent();
    assert_eq!(sent, ["AUTH Re-authenticate authentication-method=\"script\" authentication-data=2 B"]);
    assert_eq!(authenticate(&mut world, true), Err(RequestError::NotOurTurn));
    let event = world.take(auth(AuthReason::Success, Some("script"))).expect("in order");
    assert!(matches!(event, Event::Authenticated { data: Some(_) }));
    authenticate(&mut world, true).expect("and once more");
    assert!(matches!(world.take(auth(AuthReason::Success, None)), Ok(Event::Authenticated { data: None })));
}

/// [MQTT-4.12.0-7]
#[test]
fn without_a_method_there_is_no_authentication() {
    let mut world = World::new(Version::V5);
    for again in [false, true] {
        assert_eq!(authenticate(&mut world, again), Err(RequestError::NoAuthenticationMethod));
    }
    assert!(world.sent().is_empty());
}

/// [MQTT-4.12.0-2, MQTT-4.12.0-5, MQTT-4.12.0-6]
#[test]
fn a_server_that_plays_another_part_is_disconnected() {
    for (packet, statement) in [
        (auth(AuthReason::ContinueAuthentication, Some("other")).into(), "MQTT-4.12.0-5"),
        (auth(AuthReason::ContinueAuthentication, None).into(), "MQTT-4.12.0-5"),
        (wire::Packet::from(accepted(None)), "MQTT-4.12.0-5"),
        (accepted(Some("other")).into(), "MQTT-4.12.0-5"),
        (auth(AuthReason::Success, Some("script")).into(), "MQTT-4.12.0-2"),
    ] {
        assert_eq!(begun().refused(packet).statement, statement);
    }
    let no_method = || {
        let mut world = World::apart(Version::V5, Settings::default());
        world.connect_with(&connect(Version::V5)).expect("in order");
        world
    };
    let step = auth(AuthReason::ContinueAuthentication, Some("script"));
    assert_eq!(no_method().refused(step).statement, "MQTT-4.12.0-6");
    assert_eq!(no_method().refused(accepted(Some("script"))).statement, "MQTT-4.12.0-6");
    let mut world = begun();
    world.take(accepted(Some("script"))).expect("in order");
    world.refused(auth(AuthReason::ContinueAuthentication, Some("script")));
}
