//! Enhanced authentication, with an authenticator that plays its part from a script.

use pondhawk_session::{Authenticated, AuthenticationOutcome, Request, Settings};
use wire::{
    Auth, AuthProperties, AuthReason, Binary, Connect, ConnectRefusal, PingReq, Qos, ReasonCode, Version,
};

use crate::world::{World, connect, publish, utf8};

fn settings() -> Settings {
    Settings { authentication_methods: vec!["script".into()], ..Settings::default() }
}

fn with_method(method: &'static str) -> Connect<'static> {
    let mut connect = connect(Version::V5);
    connect.properties.authentication_method = Some(utf8(method));
    connect.properties.authentication_data = data("hello");
    connect
}

fn data(text: &'static str) -> Option<Binary<'static>> {
    Binary::new(text.as_bytes()).ok()
}

fn auth(reason: AuthReason, method: Option<&'static str>, text: &'static str) -> Auth<'static> {
    let authentication_method = method.map(utf8);
    let authentication_data = method.and_then(|_| data(text));
    let properties = AuthProperties { authentication_method, authentication_data, ..AuthProperties::EMPTY };
    Auth { reason, properties }
}

/// The steps for the authenticator.
fn asked(request: &Request<'_>) -> (bool, String) {
    let Request::Authenticate(step) = request else { panic!("{request:?}") };
    assert_eq!(step.method.as_str(), "script");
    let data = step.data.map_or(&b""[..], Binary::as_bytes);
    (step.connect.is_some(), String::from_utf8_lossy(data).into_owned())
}

/// A client in the middle of its first exchange.
fn begun() -> World {
    let mut world = World::silent(Version::V5, settings());
    let request = world.take(with_method("script")).expect("a known method");
    assert_eq!(asked(&request), (true, "hello".to_owned()));
    assert!(world.session.is_claiming(), "nothing is read before the authenticator has spoken");
    assert_eq!(world.authenticated(AuthenticationOutcome::Continue(data("who"))), Authenticated::Continues);
    assert!(!world.session.is_claiming());
    world
}

/// A client that has authenticated itself.
fn authenticated() -> World {
    let mut world = begun();
    world.take(auth(AuthReason::ContinueAuthentication, Some("script"), "me")).expect("the next step");
    assert_eq!(world.authenticated(AuthenticationOutcome::Success(data("well"))), Authenticated::Claims);
    world.accept(false, &[]);
    world
}

/// [MQTT-4.12.0-2, MQTT-4.12.0-3, MQTT-4.12.0-5]
#[test]
fn an_exchange_has_as_many_steps_as_its_method_needs() {
    let mut world = begun();
    let question = "AUTH Continue authentication authentication-method=\"script\" authentication-data=3 B";
    assert_eq!(world.sent(), [question]);
    let request = world.take(auth(AuthReason::ContinueAuthentication, Some("script"), "me"));
    assert_eq!(asked(&request.expect("the next step")), (false, "me".to_owned()));
    assert_eq!(world.authenticated(AuthenticationOutcome::Success(data("well"))), Authenticated::Claims);
    assert!(world.session.is_claiming() && world.sent().is_empty());
    assert!(world.accept(false, &[]));
    let connack = world.sent().remove(0);
    assert!(connack.contains("authentication-method=\"script\" authentication-data=4 B"), "{connack}");
}

/// [MQTT-4.12.0-6]
#[test]
fn without_a_method_there_is_no_authentication() {
    let mut world = World::silent(Version::V5, settings());
    assert!(matches!(world.take(connect(Version::V5)), Ok(Request::Connect(_))));
    world.accept(false, &[]);
    assert!(!world.sent()[0].contains("authentication"));
    assert!(matches!(world.authenticated(AuthenticationOutcome::Continue(None)), Authenticated::Refused(_)));
    assert!(world.sent().is_empty());
}

/// [MQTT-4.12.0-7]
#[test]
fn auth_without_a_method_in_connect_ends_the_connection() {
    let mut world = World::connected(&connect(Version::V5), settings());
    let violation = world.refused(auth(AuthReason::ReAuthenticate, Some("script"), ""));
    assert_eq!(violation.statement, "MQTT-4.12.0-7");
    assert_eq!(world.sent(), ["DISCONNECT Protocol Error"]);
}

/// [MQTT-3.1.2-30]
#[test]
fn before_connack_there_is_only_authentication() {
    for wrong in [PingReq.into(), wire::Packet::from(publish(Qos::AtMostOnce, 1))] {
        let mut world = begun();
        world.sent();
        assert_eq!(world.refused(wrong).statement, "MQTT-3.1.2-30");
        assert_eq!(world.sent(), ["CONNACK Protocol Error"]);
    }
    assert!(matches!(begun().take(wire::Disconnect::default()), Ok(Request::Disconnect { .. })));
}

/// [MQTT-4.12.0-5]
#[test]
fn the_method_stays_the_same() {
    for method in [None, Some("other")] {
        let mut world = begun();
        world.sent();
        let violation = world.refused(auth(AuthReason::ContinueAuthentication, method, ""));
        assert_eq!(violation.statement, "MQTT-4.12.0-5");
        assert_eq!(world.sent(), ["CONNACK Protocol Error"]);
    }
}

/// [MQTT-4.12.0-4]
#[test]
fn clients_that_fail_to_authenticate_are_refused() {
    let mut world = begun();
    world.sent();
    world.take(auth(AuthReason::ContinueAuthentication, Some("script"), "you")).expect("the next step");
    let outcome = world.authenticated(AuthenticationOutcome::Failure(ConnectRefusal::NotAuthorized));
    let Authenticated::Refused(violation) = outcome else { panic!("{outcome:?}") };
    world.answer(&violation);
    assert_eq!(world.sent(), ["CONNACK Not authorized"]);
}

#[test]
fn an_exchange_does_not_go_on_for_ever() {
    let mut world = begun();
    let step = || auth(AuthReason::ContinueAuthentication, Some("script"), "again");
    for _ in 0..world.settings.authentication_rounds_max {
        world.take(step()).expect("within the bound");
        assert_eq!(world.authenticated(AuthenticationOutcome::Continue(None)), Authenticated::Continues);
    }
    world.sent();
    assert_eq!(world.refused(step()).reason, ReasonCode::NotAuthorized);
    assert_eq!(world.sent(), ["CONNACK Not authorized"]);

    let mut world = begun();
    world.sent();
    world.now_ms += world.settings.connect_timeout_ms;
    assert!(world.timeout().is_err(), "steps give no more time");
}

/// [MQTT-4.12.1-1]
#[test]
fn a_client_may_authenticate_itself_anew_and_goes_on_meanwhile() {
    let mut world = authenticated();
    world.sent();
    let again = auth(AuthReason::ReAuthenticate, Some("script"), "still me");
    assert_eq!(asked(&world.take(again).expect("a new exchange")), (false, "still me".to_owned()));
    assert!(matches!(world.take(publish(Qos::AtMostOnce, 1)), Ok(Request::Publish(_))));
    assert_eq!(world.authenticated(AuthenticationOutcome::Success(None)), Authenticated::Again);
    assert_eq!(world.sent(), ["AUTH Success authentication-method=\"script\""]);

    for (reason, method, statement) in [
        (AuthReason::ReAuthenticate, Some("other"), "MQTT-4.12.0-5"),
        (AuthReason::ContinueAuthentication, Some("script"), "MQTT-4.12.0-3"),
    ] {
        let mut world = authenticated();
        assert_eq!(world.refused(auth(reason, method, "")).statement, statement);
    }
    let mut world = begun();
    assert_eq!(
        world.refused(auth(AuthReason::ReAuthenticate, Some("script"), "")).statement,
        "MQTT-4.12.1-1",
        "the first exchange is not over"
    );
}

/// [MQTT-4.12.1-2]
#[test]
fn clients_that_fail_to_authenticate_again_are_disconnected() {
    let mut world = authenticated();
    world.sent();
    world.take(auth(AuthReason::ReAuthenticate, Some("script"), "me?")).expect("a new exchange");
    let outcome = world.authenticated(AuthenticationOutcome::Failure(ConnectRefusal::NotAuthorized));
    let Authenticated::Refused(violation) = outcome else { panic!("{outcome:?}") };
    world.answer(&violation);
    assert_eq!(world.sent(), ["DISCONNECT Not authorized"]);
}
