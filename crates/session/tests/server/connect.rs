//! CONNECT, its checks and its answer.

use pondhawk_session::{Details, Request, Settings};
use wire::{
    Connect, DisconnectReason, Packet, PingReq, PingResp, Qos, ReasonCode, UserProperties, UserProperty,
    Version, Violation, Will,
};

use crate::world::{World, connect, connect_with, id, utf8};

fn will(qos: Qos, retain: bool) -> Will<'static> {
    let payload = wire::Binary::new(b"\xFF").expect("short");
    let topic = topic::topic!("gone/me");
    Will {
        topic,
        payload,
        qos,
        retain,
        delay_interval_secs: None,
        properties: wire::MessageProperties::EMPTY,
    }
}

/// The answer to a refused CONNECT, and the text for the log.
fn refused(connect: Connect<'_>, settings: Settings) -> (Vec<String>, Violation) {
    let mut world = World::silent(connect.version(), settings);
    let violation = world.refused(connect);
    let sent = world.sent();
    assert!(world.take(self::connect(connect.version())).is_err(), "nothing behind it is processed");
    (sent, violation)
}

/// [MQTT-3.1.0-1, 3.1.1 MQTT-3.1.0-1]
#[test]
fn a_connection_begins_with_connect() {
    for bytes in [&b"\xC0\0"[..], b"\xE0\0", b"\x30\x04\0\x01ax", b"\x40\x02\0\x01"] {
        let mut world = World::silent(Version::V5, Settings::default());
        assert!(world.take_bytes(bytes).is_err());
        assert!(world.sent().is_empty());
    }
    let mut world = World::silent(Version::V5, Settings::default());
    assert!(world.take(PingReq).is_err());
}

/// [MQTT-3.1.0-2, 3.1.1 MQTT-3.1.0-2]
#[test]
fn a_second_connect_ends_the_connection() {
    for version in Version::ALL {
        let mut world = World::new(version);
        assert_eq!(world.refused(connect(version)).reason, ReasonCode::ProtocolError);
        let told = world.sent();
        assert_eq!(told, if version.is_5() { vec!["DISCONNECT Protocol Error"] } else { Vec::new() });
    }
}

/// [MQTT-3.2.0-1, MQTT-3.2.0-2, MQTT-3.1.4-5, 3.1.1 MQTT-3.2.0-1, 3.1.1 MQTT-3.1.4-4]
#[test]
fn connack_comes_first_and_once() {
    for version in Version::ALL {
        let mut world = World::silent(version, Settings::default());
        assert!(matches!(world.take(connect(version)), Ok(Request::Connect(_))));
        assert!(world.session.is_claiming());
        assert!(!world.write(PingResp));
        assert!(world.accept(false, &[]));
        assert!(world.write(PingResp));
        assert!(!world.accept(false, &[]), "it is accepted already");
        let sent = world.sent();
        assert!(sent[0].starts_with("CONNACK Success"), "{sent:?}");
        assert_eq!(sent[1..], ["PINGRESP"]);
    }
}

/// [MQTT-3.2.2-1, MQTT-3.2.2-2, MQTT-3.2.2-3, 3.1.1 MQTT-3.2.2-1, 3.1.1 MQTT-3.2.2-2, 3.1.1 MQTT-3.2.2-3]
#[test]
fn session_present_says_whether_the_session_goes_on() {
    for version in [Version::V3_1_1, Version::V5] {
        for (clean_start, has_session, present) in
            [(false, true, 1), (false, false, 0), (true, true, 0), (true, false, 0)]
        {
            let mut world = World::silent(version, Settings::default());
            world
                .take(connect_with(version, |connect| connect.clean_start = clean_start))
                .expect("a CONNECT");
            assert_eq!(world.session.clean_start(), clean_start);
            world.accept(has_session, &[]);
            assert_eq!(world.bytes()[2], present, "{version} {clean_start} {has_session}");
        }
    }
}

/// Each may be empty, and five bytes on the wire. [MQTT-3.1.4-2]
#[test]
fn a_connect_and_its_will_have_so_many_user_properties_and_no_more() {
    let settings = Settings { connect_user_properties_max: 2, ..Settings::default() };
    let pairs = [UserProperty { name: utf8(""), value: utf8("") }; 3];
    let with = |count| {
        let mut of_connect = connect(Version::V5);
        of_connect.properties.user_properties = pairs[..count].into();
        let mut will = will(Qos::AtMostOnce, false);
        will.properties.user_properties = pairs[..count].into();
        let mut of_will = connect(Version::V5);
        of_will.will = Some(will);
        [of_connect, of_will]
    };
    for connect in with(2) {
        assert!(World::silent(Version::V5, settings.clone()).take(connect).is_ok());
    }
    for connect in with(3) {
        assert_eq!(refused(connect, settings.clone()).0, ["CONNACK Quota exceeded"]);
    }
}

/// [MQTT-3.2.2-6, MQTT-3.2.2-7, MQTT-3.2.2-12, MQTT-3.2.2-13, MQTT-3.1.3-8, MQTT-3.1.4-2, MQTT-3.1.4-6,
/// MQTT-4.12.0-1, MQTT-4.13.2-1, 3.1.1 MQTT-3.1.3-9, 3.1.1 MQTT-3.2.2-4, 3.1.1 MQTT-3.2.2-5,
/// 3.1.1 MQTT-3.2.2-6, 3.1.1 MQTT-3.1.4-5]
#[test]
fn connects_that_cannot_be_served_are_refused() {
    let qos_1 = Settings { qos_max: Qos::AtLeastOnce, ..Settings::default() };
    let no_retain = Settings { retain_available: false, ..Settings::default() };
    let short_ids = Settings { client_id_bytes_max: 1, ..Settings::default() };
    let small_wills = Settings { will_bytes_max: 7, ..Settings::default() };
    let checked = Settings { check_payload_format: true, ..Settings::default() };
    let with_will =
        |version, qos, retain| connect_with(version, |connect| connect.will = Some(will(qos, retain)));
    let mut with_method = connect(Version::V5);
    with_method.properties.authentication_method = Some(utf8("smoke"));
    let mut with_text = with_will(Version::V5, Qos::AtMostOnce, false);
    with_text.will.as_mut().expect("a will").properties.payload_format = Some(wire::PayloadFormat::Utf8);
    for (connect, settings, code, code_3) in [
        (with_will(Version::V5, Qos::ExactlyOnce, false), qos_1, "QoS not supported", None),
        (with_will(Version::V5, Qos::AtMostOnce, true), no_retain, "Retain not supported", None),
        (connect(Version::V5), short_ids, "Client Identifier not valid", Some("Client Identifier not valid")),
        (with_method, Settings::default(), "Bad authentication method", None),
        (
            with_will(Version::V5, Qos::AtMostOnce, false),
            small_wills,
            "Quota exceeded",
            Some("Server unavailable"),
        ),
        (with_text, checked, "Payload format invalid", None),
    ] {
        let (sent, violation) = refused(connect, settings.clone());
        assert_eq!(sent, [format!("CONNACK {code}")], "{violation}");
        if connect.properties.authentication_method.is_some() || settings.check_payload_format {
            continue;
        }
        for version in [Version::V3_1, Version::V3_1_1] {
            let connect = connect_with(version, |of_version| of_version.will = connect.will);
            let (sent, violation) = refused(connect, settings.clone());
            assert_eq!(sent, Vec::from_iter(code_3.map(|code| format!("CONNACK {code}"))), "{violation}");
        }
    }
}

/// [MQTT-3.1.3-5, MQTT-3.1.3-7, 3.1.1 MQTT-3.1.3-5, 3.1.1 MQTT-3.1.3-8]
#[test]
fn a_client_has_an_identifier_or_is_given_one() {
    let letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let ids = (1..=23).flat_map(|len| (0..=letters.len() - len).map(move |at| &letters[at..][..len]));
    for version in Version::ALL {
        for client_id in ids.clone() {
            let mut world = World::silent(version, Settings::default());
            world.take(Connect::new(version, utf8(client_id))).expect("an identifier that all servers take");
            world.accept(false, &[]);
            assert!(!world.sent()[0].contains("assigned"));
        }
        for clean_start in [false, true] {
            let mut world = World::silent(version, Settings::default());
            let nameless = connect_with(version, |connect| {
                connect.clean_start = clean_start;
                connect.client_id = utf8("");
            });
            match (version, clean_start) {
                (Version::V5, _) => {
                    world.take(nameless).expect("it is given one");
                    world.accept(false, &[]);
                    assert!(world.sent()[0].contains("assigned-client-identifier=\"me\""));
                }
                (Version::V3_1_1, true) => {
                    world.take(nameless).expect("it is given one");
                    world.accept(false, &[]);
                    assert_eq!(world.sent(), ["CONNACK Success"]);
                }
                _ => {
                    world.refused(nameless);
                    assert_eq!(world.sent(), ["CONNACK Client Identifier not valid"]);
                }
            }
        }
    }
}

/// [MQTT-3.2.2-9, MQTT-3.2.2-10, MQTT-3.2.2-11, MQTT-3.2.2-14]
#[test]
fn features_not_offered_are_announced_and_end_the_connection_if_used() {
    let settings = Settings {
        qos_max: Qos::AtLeastOnce,
        retain_available: false,
        wildcard_subscriptions_available: false,
        subscription_identifiers_available: false,
        shared_subscriptions_available: false,
        ..Settings::default()
    };
    let mut world = World::silent(Version::V5, settings.clone());
    world.take(connect(Version::V5)).expect("a CONNECT");
    world.accept(false, &[]);
    let connack = world.sent().remove(0);
    for said in [
        "maximum-qos=1",
        "retain-available=false",
        "wildcard-subscription-available=false",
        "subscription-identifier-available=false",
        "shared-subscription-available=false",
    ] {
        assert!(connack.contains(said), "{connack}");
    }
    let subscription =
        wire::Subscription::with_qos(topic::TopicFilter::new("a").expect("a filter"), Qos::ExactlyOnce);
    let subscriptions = wire::OneOrMore::one(&subscription);
    let packet = wire::Subscribe { packet_id: id(1), properties: Default::default(), subscriptions };
    assert!(matches!(world.take(packet), Ok(Request::Subscribe(_))));

    let too_high = world.refused(crate::world::publish(Qos::ExactlyOnce, 1));
    assert_eq!(too_high.reason, ReasonCode::QosNotSupported);
    let mut world = World::connected(&connect(Version::V5), settings);
    let retained = wire::Publish { retain: true, ..crate::world::publish(Qos::AtMostOnce, 1) };
    assert_eq!(world.refused(retained).reason, ReasonCode::RetainNotSupported);
    assert_eq!(world.sent(), ["DISCONNECT Retain not supported"]);
}

#[test]
fn features_offered_without_restriction_are_not_mentioned() {
    let mut world = World::silent(Version::V5, Settings { receive_max: u16::MAX, ..Settings::default() });
    world.take(connect(Version::V5)).expect("a CONNECT");
    world.accept(false, &[]);
    assert_eq!(world.sent(), ["CONNACK Success maximum-packet-size=2097152 topic-alias-maximum=16"]);
}

/// [MQTT-3.1.2-28]
#[test]
fn response_information_is_for_who_asks_for_it() {
    let settings = Settings { response_information: Some("answers/".into()), ..Settings::default() };
    for (asked, is_told) in [(None, false), (Some(false), false), (Some(true), true)] {
        let mut world = World::silent(Version::V5, settings.clone());
        let mut connect = connect(Version::V5);
        connect.properties.request_response_information = asked;
        world.take(connect).expect("a CONNECT");
        world.accept(false, &[]);
        assert_eq!(world.sent()[0].contains("response-information=\"answers/\""), is_told);
    }
}

#[test]
fn a_session_is_kept_as_long_as_was_asked_for_and_is_allowed() {
    let capped = Settings { session_expiry_secs_max: 60, ..Settings::default() };
    for (asked, granted, told) in
        [(None, 0, false), (Some(0), 0, false), (Some(60), 60, false), (Some(u32::MAX), 60, true)]
    {
        let mut connect = connect(Version::V5);
        connect.properties.session_expiry_interval_secs = asked;
        let mut world = World::silent(Version::V5, capped.clone());
        world.take(connect).expect("a CONNECT");
        assert_eq!(world.session.expiry_secs(), granted);
        world.accept(false, &[]);
        assert_eq!(world.sent()[0].split(' ').any(|word| word == "session-expiry-interval=60"), told);
    }
    for version in [Version::V3_1, Version::V3_1_1] {
        for (clean_start, settings, kept) in [
            (true, Settings::default(), 0),
            (false, Settings::default(), u32::MAX),
            (false, capped.clone(), 60),
        ] {
            let mut world = World::silent(version, settings.clone());
            world
                .take(connect_with(version, |connect| connect.clean_start = clean_start))
                .expect("a CONNECT");
            assert_eq!(world.session.expiry_secs(), kept);
        }
    }
}

/// A reload may come between CONNECT and CONNACK. Whoever claims the session by then knows the earlier limits, so
/// CONNACK has to say the same.
#[test]
fn limits_of_a_session_are_those_at_its_connect() {
    let low =
        Settings { session_expiry_secs_max: 60, inflight_max: 2, inflight_max_3: 3, ..Settings::default() };
    for (version, low_window, high_window) in [(Version::V5, 2, 1_000), (Version::V3_1_1, 3, 100)] {
        for is_lowered in [false, true] {
            let (first, later) = match is_lowered {
                true => (Settings::default(), low.clone()),
                false => (low.clone(), Settings::default()),
            };
            let mut connect = connect_with(version, |connect| connect.clean_start = false);
            let is_5 = version == Version::V5;
            connect.properties.session_expiry_interval_secs = is_5.then_some(3_600);
            let mut world = World::silent(version, first);
            world.take(connect).expect("a CONNECT");
            let claimed = (world.session.expiry_secs(), world.session.window());
            world.settings = later;
            world.accept(false, &[]);
            assert_eq!((world.session.expiry_secs(), world.session.window()), claimed);
            let asked = if is_5 { 3_600 } else { u32::MAX };
            let expected = if is_lowered { (asked, high_window) } else { (60, low_window) };
            assert_eq!(claimed, expected, "{version:?}");
            let told = world.sent()[0].split(' ').any(|word| word == "session-expiry-interval=60");
            assert_eq!(told, is_5 && !is_lowered, "{version:?}");
        }
    }
}

/// [MQTT-3.1.2-24, MQTT-3.2.2-19, MQTT-3.2.2-20]
#[test]
fn a_refusal_is_explained_as_far_as_the_client_has_room() {
    let property = [UserProperty { name: utf8("why"), value: utf8("because") }];
    let details = Details {
        reason_string: Some(utf8("moved house")),
        server_reference: None,
        user_properties: UserProperties::from(&property[..]),
    };
    for (room, told) in [
        (60, Some("CONNACK Server moved reason-string=\"moved house\" user-property=\"why\":\"because\"")),
        (25, Some("CONNACK Server moved user-property=\"why\":\"because\"")),
        (8, Some("CONNACK Server moved")),
        (4, None),
    ] {
        let mut connect = connect(Version::V5);
        connect.properties.maximum_packet_bytes = std::num::NonZeroU32::new(room);
        let mut world = World::silent(Version::V5, Settings::default());
        world.take(connect).expect("a CONNECT");
        let packet = world.session.disconnect_with(DisconnectReason::ServerMoved, &details);
        let packet: Packet<'_> = packet.expect("MQTT 5 says why");
        assert_eq!(world.write(packet), told.is_some());
        assert_eq!(world.sent(), Vec::from_iter(told));
    }
}

#[test]
fn a_client_without_room_for_connack_is_not_let_in() {
    let mut connect = connect(Version::V5);
    connect.properties.maximum_packet_bytes = std::num::NonZeroU32::new(10);
    let mut world = World::silent(Version::V5, Settings::default());
    world.take(connect).expect("a CONNECT");
    assert!(!world.accept(false, &[]));
    assert!(!world.session.is_connected() && world.sent().is_empty());
}

/// [MQTT-3.2.2-22]
#[test]
fn the_server_says_when_it_has_its_own_idea_of_the_keep_alive() {
    for (asked, max, kept, told) in
        [(10, 0, 10, false), (10, 60, 10, false), (90, 60, 60, true), (0, 60, 60, true), (0, 0, 0, false)]
    {
        let settings = Settings { keep_alive_secs_max: max, ..Settings::default() };
        let mut world = World::silent(Version::V5, settings);
        world.take(connect_with(Version::V5, |connect| connect.keep_alive_secs = asked)).expect("a CONNECT");
        world.accept(false, &[]);
        assert_eq!(world.session.keep_alive_secs(), kept);
        assert_eq!(world.sent()[0].contains(&format!("server-keep-alive={kept}")), told);
    }
}
