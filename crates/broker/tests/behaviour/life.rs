//! How clients come, stay, and go.

use session::Settings;
use wire::{Binary, Connect, Disconnect, DisconnectReason, Packet, PingReq, Qos, Version, Will};

use crate::world::{World, bytes, name, settings, utf8};

fn connect_with_will<'a>(version: Version, client_id: &'a str, topic: &'a str) -> Connect<'a> {
    let mut connect = Connect::new(version, utf8(client_id));
    connect.will = Some(Will {
        topic: name(topic),
        payload: Binary::new(b"gone").expect("short"),
        qos: Qos::AtMostOnce,
        retain: false,
        delay_interval_secs: None,
        properties: wire::MessageProperties::default(),
    });
    connect
}

#[test]
fn connack_says_what_the_client_did_not_know() {
    let mut world = World::with(1, Settings { session_expiry_secs_max: 600, receive_max: 7, ..settings() });
    let peer = world.accept(0, Version::V5);
    let mut connect = Connect::new(Version::V5, utf8(""));
    connect.properties.session_expiry_interval_secs = Some(3_600);
    world.send(peer, &connect.into());
    let [connack] = &world.packets(peer)[..] else { panic!("one CONNACK") };
    for part in
        ["session-expiry-interval=600", "receive-maximum=7", "topic-alias-maximum=2", "100000", "\"auto-0"]
    {
        assert!(connack.contains(part), "{part} in {connack}");
    }
    for part in ["maximum-qos", "retain-available", "subscription-available"] {
        assert!(!connack.contains(part), "{part} in {connack}");
    }
}

#[test]
fn a_qos_that_was_not_offered_ends_the_connection() {
    for (version, told) in [(Version::V5, &["DISCONNECT QoS not supported"][..]), (Version::V3_1_1, &[])] {
        let mut world = World::with(1, Settings { qos_max: Qos::AtMostOnce, ..settings() });
        let peer = world.connect(0, version, "p");
        world.feed(
            peer,
            &[0x32, 5 + u8::from(version.is_5()), 0, 1, b't', 0, 1, 0][..8 - usize::from(!version.is_5())],
        );
        assert_eq!(world.packets(peer), told, "{version}");
        assert!(world.socket(peer).closed);
    }
}

#[test]
fn the_newest_connection_with_a_client_identifier_stays() {
    for shards in [1, 3] {
        let mut world = World::new(shards);
        let watcher = world.connect(0, Version::V3_1_1, "watcher");
        world.subscribe(watcher, "will");
        let mut peers = Vec::new();
        for number in 0..3 {
            let version = if number == 2 { Version::V3_1_1 } else { Version::V5 };
            let peer = world.accept(number % shards, version);
            world.send(peer, &connect_with_will(version, "one", "will").into());
            assert!(world.packets(peer)[0].starts_with("CONNACK Success"));
            peers.push(peer);
        }
        assert_eq!(world.packets(peers[0]), ["DISCONNECT Session taken over"]);
        assert_eq!(world.packets(peers[1]), ["DISCONNECT Session taken over"]);
        assert!(world.socket(peers[0]).closed && world.socket(peers[1]).closed);
        assert!(!world.socket(peers[2]).closed);
        assert_eq!(world.packets(watcher).len(), 2, "each of the two left its will");
    }
}

#[test]
fn of_many_that_claim_one_identifier_at_once_one_is_left() {
    let mut world = World::new(4);
    let peers: Vec<_> = (0..20).map(|number| world.accept(number % 4, Version::V5)).collect();
    for peer in &peers {
        world.feed_only(*peer, &bytes(&Connect::new(Version::V5, utf8("one")).into(), Version::V5));
    }
    world.settle();
    let alive = peers.iter().filter(|peer| !world.socket(**peer).closed).count();
    assert_eq!(alive, 1);
    let connected: u64 = world.counters.iter().map(|counters| counters.clients_connected.value()).sum();
    assert_eq!(connected, 1);
}

#[test]
fn a_will_is_published_unless_the_client_says_goodbye() {
    let goodbye = |reason| Packet::from(Disconnect::new(reason));
    type Leave<'a> = (&'a str, Option<Packet<'a>>, usize);
    let cases: [Leave<'_>; 3] = [
        ("normal", Some(goodbye(DisconnectReason::NormalDisconnection)), 0),
        ("with will", Some(goodbye(DisconnectReason::DisconnectWithWillMessage)), 1),
        ("no word", None, 1),
    ];
    for (case, packet, wills) in cases {
        let mut world = World::new(2);
        let watcher = world.connect(0, Version::V3_1_1, "watcher");
        world.subscribe(watcher, "w/+");
        let peer = world.accept(1, Version::V5);
        world.send(peer, &connect_with_will(Version::V5, "p", "w/p").into());
        match packet {
            Some(packet) => world.send(peer, &packet),
            None => world.hang_up(peer),
        }
        assert_eq!(world.packets(watcher).len(), wills, "{case}");
    }
}

#[test]
fn a_malformed_packet_publishes_the_will_and_tells_the_reason() {
    let mut world = World::new(1);
    let watcher = world.connect(0, Version::V3_1_1, "watcher");
    world.subscribe(watcher, "w");
    let peer = world.accept(0, Version::V5);
    world.send(peer, &connect_with_will(Version::V5, "p", "w").into());
    world.packets(peer);
    world.feed(peer, &[0x36, 0]);
    assert_eq!(world.packets(peer), ["DISCONNECT Malformed Packet"]);
    assert_eq!(world.packets(watcher), ["PUBLISH q0 \"w\" 4 B \"gone\""]);
}

#[test]
fn nothing_behind_a_refused_connect_is_processed() {
    let mut world = World::new(1);
    let watcher = world.connect(0, Version::V3_1_1, "watcher");
    world.subscribe(watcher, "#");
    let peer = world.accept(0, Version::V5);
    let mut connect = connect_with_will(Version::V5, "p", "w");
    connect.properties.authentication_method = Some(utf8("magic"));
    let publish = wire::Publish::new(name("t"), b"x");
    world.feed(peer, &[bytes(&connect.into(), Version::V5), bytes(&publish.into(), Version::V5)].concat());
    assert_eq!(world.packets(peer), ["CONNACK Bad authentication method"]);
    assert!(world.packets(watcher).is_empty() && world.socket(peer).closed);
}

#[test]
fn a_client_that_is_silent_for_one_and_a_half_keep_alives_is_ended() {
    for version in [Version::V5, Version::V3_1_1] {
        let mut world = World::new(1);
        let peer = world.accept(0, version);
        let mut connect = Connect::new(version, utf8("p"));
        connect.keep_alive_secs = 2;
        world.send(peer, &connect.into());
        world.packets(peer);
        for _ in 0..5 {
            world.wait(2_900);
            world.send(peer, &PingReq.into());
            assert_eq!(world.packets(peer), ["PINGRESP"]);
        }
        world.wait(3_200);
        let told: &[&str] = if version.is_5() { &["DISCONNECT Keep Alive timeout"] } else { &[] };
        assert_eq!(world.packets(peer), told);
        assert!(world.socket(peer).closed);
        assert_eq!(world.counters[0].ended_keep_alive.value(), 1);
    }
}

#[test]
fn a_packet_that_trickles_is_no_sign_of_life_and_one_that_flows_is() {
    for (bytes_per_second, lives) in [(1, false), (2_000, true)] {
        let mut world = World::new(1);
        let peer = world.accept(0, Version::V3_1_1);
        let mut connect = Connect::new(Version::V3_1_1, utf8("p"));
        connect.keep_alive_secs = 1;
        world.send(peer, &connect.into());
        // A PUBLISH of 65,541 bytes begins.
        world.feed(peer, &[0x30, 0x82, 0x80, 0x04, 0, 1, b't']);
        for _ in 0..10 {
            world.feed(peer, &vec![b'x'; bytes_per_second]);
            world.wait(1_000);
        }
        assert_eq!(!world.socket(peer).closed, lives, "{bytes_per_second} bytes a second");
    }
}

#[test]
fn a_connection_without_connect_is_closed_in_time() {
    let mut world = World::new(1);
    let silent = world.accept(0, Version::V5);
    let dripping = world.accept(0, Version::V5);
    let connect = bytes(&Connect::new(Version::V5, utf8("slow")).into(), Version::V5);
    for byte in &connect[..5] {
        world.feed(dripping, &[*byte]);
        world.wait(1_900);
    }
    assert!(!world.socket(silent).closed && !world.socket(dripping).closed);
    world.wait(1_000);
    for peer in [silent, dripping] {
        assert!(world.socket(peer).closed && world.packets(peer).is_empty());
    }
    assert_eq!(world.counters[0].refused_connect_timeout.value(), 2);
}

#[test]
fn the_servers_keep_alive_replaces_a_longer_one() {
    let mut world = World::with(1, session::Settings { keep_alive_secs_max: 10, ..settings() });
    for (asked, told) in [(0, true), (60, true), (10, false), (5, false)] {
        let peer = world.accept(0, Version::V5);
        let mut connect = Connect::new(Version::V5, utf8("p"));
        connect.keep_alive_secs = asked;
        world.send(peer, &connect.into());
        let connack = &world.packets(peer)[0];
        assert_eq!(connack.split(' ').any(|word| word == "server-keep-alive=10"), told, "{connack}");
    }
}

#[test]
fn shutdown_says_goodbye_to_those_who_understand_it() {
    let mut world = World::new(1);
    let five = world.connect(0, Version::V5, "five");
    let three = world.connect(0, Version::V3_1_1, "three");
    world.shards[0].shutdown(world.now, &mut world.outside[0]);
    assert_eq!(world.packets(five), ["DISCONNECT Server shutting down"]);
    assert!(world.packets(three).is_empty());
    assert!(world.socket(five).closed && world.socket(three).closed);
}

#[test]
fn a_client_may_have_so_many_subscriptions_and_no_more() {
    let mut world = World::new(1);
    let peer = world.connect(0, Version::V5, "p");
    for (filter, answer) in [
        ("a", "SUBACK id=1 Granted QoS 0"),
        ("b", "SUBACK id=1 Granted QoS 0"),
        ("c", "SUBACK id=1 Granted QoS 0"),
        ("d", "SUBACK id=1 Quota exceeded"),
        ("a", "SUBACK id=1 Granted QoS 0"),
        ("1/2/3/4/5/6/7/8/9", "SUBACK id=1 Topic Filter invalid"),
    ] {
        assert_eq!(world.subscribe(peer, filter), [answer], "{filter}");
    }
    world.hang_up(peer);
    assert_eq!(world.subscriptions(), 0);
}

#[test]
fn unsubscribing_tells_what_was_there_and_ends_it() {
    let mut world = World::new(1);
    let peer = world.connect(0, Version::V5, "p");
    world.subscribe(peer, "a");
    world.feed(peer, b"\xA2\x09\x00\x05\x00\x00\x01a\x00\x01b");
    assert_eq!(world.packets(peer), ["UNSUBACK id=5 Success, No subscription existed"]);
    world.publish(peer, "a", "x");
    assert!(world.packets(peer).is_empty());
    assert_eq!(world.subscriptions(), 0);
}

#[test]
fn mqtt_3_1_cannot_be_told_that_a_subscription_failed() {
    let mut world = World::new(1);
    let peer = world.connect(0, Version::V3_1, "p");
    assert!(world.subscribe(peer, "1/2/3/4/5/6/7/8/9").is_empty());
    assert!(world.socket(peer).closed);
}

#[test]
fn a_client_that_takes_no_connack_of_its_size_was_never_connected() {
    let mut world = World::new(1);
    for (maximum, method) in [(5, None), (4, Some("magic"))] {
        let peer = world.accept(0, Version::V5);
        let mut connect = Connect::new(Version::V5, utf8("p"));
        connect.properties.maximum_packet_bytes = std::num::NonZeroU32::new(maximum);
        connect.properties.authentication_method = method.map(utf8);
        world.send(peer, &connect.into());
        assert!(world.socket(peer).closed && world.packets(peer).is_empty());
        assert_eq!(world.counters[0].clients_connected.value(), 0);
    }
}

#[test]
fn an_unsuback_that_is_too_large_for_the_client_is_not_sent() {
    let mut world = World::new(1);
    let peer = world.accept(0, Version::V5);
    let mut connect = Connect::new(Version::V5, utf8("p"));
    connect.properties.maximum_packet_bytes = std::num::NonZeroU32::new(40);
    world.send(peer, &connect.into());
    world.packets(peer);
    let filters = b"\0\x01a".repeat(36);
    world.feed(peer, &[&[0xA2, 3 + 3 * 36, 0, 5, 0], &filters[..]].concat());
    assert_eq!(world.packets(peer), ["DISCONNECT Packet too large"]);
}

#[test]
fn disconnect_may_repeat_a_session_expiry_and_not_invent_one() {
    for (asked, will) in [(Some(100), false), (None, true)] {
        let mut world = World::new(1);
        let watcher = world.connect(0, Version::V3_1_1, "watcher");
        world.subscribe(watcher, "w");
        let peer = world.accept(0, Version::V5);
        let mut connect = connect_with_will(Version::V5, "p", "w");
        connect.properties.session_expiry_interval_secs = asked;
        world.send(peer, &connect.into());
        world.packets(peer);
        let mut disconnect = Disconnect::new(DisconnectReason::NormalDisconnection);
        disconnect.properties.session_expiry_interval_secs = Some(50);
        world.send(peer, &disconnect.into());
        assert_eq!(world.packets(peer).is_empty(), !will);
        assert_eq!(world.packets(watcher).len(), usize::from(will));
    }
}
