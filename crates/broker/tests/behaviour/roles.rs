//! Our own rules: QoS and RETAIN of a publisher, filters of a subscriber, and each way of a message after a change.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use auth::{Access, Holder, IdPattern, Limits, Permit, Realms, RolesBuilder, RuleKind};
use base::Realm;
use broker::{Admission, Entry};
use protocol::Durability;
use wire::{
    Binary, Connect, Delivery, Disconnect, DisconnectReason, MessageProperties, PacketId, PubAck,
    PubAckReason, PubRel, PubRelReason, Publish, Qos, SubscribeProperties, SubscriptionOptions, Version,
    Will,
};

use crate::world::{Peer, World, name, utf8};

const ALL: Option<Permit> = Some(Permit::ALL);

/// The rules of one role, and who has it.
fn access(holders: &[Holder<'_>], rules: &[(RuleKind, &str, Option<Permit>)]) -> Arc<Access> {
    let mut builder = RolesBuilder::default();
    let role = builder.role("role");
    for ((kind, filter, permit), line) in rules.iter().zip(1..) {
        builder.rule(role, *kind, filter, *permit, line).expect("a filter");
    }
    holders.iter().for_each(|holder| builder.give(*holder, role));
    Arc::new(Access::new(None, None).with_roles(builder.build().expect("few rules")))
}

fn realms(rules: &[(RuleKind, &str, Option<Permit>)]) -> Realms {
    Realms::new(vec![("".into(), access(&[Holder::EveryUser, Holder::Anonymous], rules))])
}

const OPEN: [(RuleKind, &str, Option<Permit>); 3] =
    [(RuleKind::Publish, "#", ALL), (RuleKind::Subscribe, "#", ALL), (RuleKind::Receive, "#", ALL)];

fn world(rules: &[(RuleKind, &str, Option<Permit>)]) -> World {
    let world = World::new(1);
    world.replace_realms(realms(rules));
    world
}

fn send(world: &mut World, peer: Peer, topic: &str, qos: Qos, retain: bool) -> Vec<String> {
    let packet_id = PacketId::MIN;
    let delivery = match qos {
        Qos::AtMostOnce => Delivery::AtMostOnce,
        Qos::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup: false },
        Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup: false },
    };
    world.send(peer, &Publish { delivery, retain, ..Publish::new(name(topic), b"x") }.into());
    world.packets(peer)
}

/// Publishers wait for their acknowledgements when half of a small bound waits.
#[test]
fn a_burst_to_a_client_that_reads_meets_no_bound_of_roles() {
    const MESSAGES: u16 = 500;
    let mut builder = RolesBuilder::default();
    let role = builder.role("role");
    OPEN.iter()
        .for_each(|(kind, filter, permit)| builder.rule(role, *kind, filter, *permit, 1).expect("a filter"));
    builder.limit(
        role,
        Limits { queue: auth::QueueLimits { messages_max: Some(100), bytes_max: None }, ..Limits::default() },
    );
    builder.give(Holder::Anonymous, role);
    let access = Arc::new(Access::new(None, None).with_roles(builder.build().expect("few rules")));
    for shards in [1, 2] {
        let mut world = World::new(shards);
        world.replace_realms(Realms::new(vec![("".into(), Arc::clone(&access))]));
        let publisher = world.connect(0, Version::V3_1_1, "publisher");
        let reader = world.connect(shards - 1, Version::V3_1_1, "reader");
        let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
        world.subscribe_with(reader, "a", options, SubscribeProperties::default());
        let id = |number| PacketId::new(number).expect("not 0");
        let (mut sent, mut acknowledged, mut came, mut read) = (0, 0, 0, 0);
        while read < MESSAGES {
            // As many as clients usually send without an acknowledgement.
            while sent < MESSAGES && sent - acknowledged < 20 {
                sent += 1;
                let delivery = Delivery::AtLeastOnce { packet_id: id(sent), dup: false };
                world.send(publisher, &Publish { delivery, ..Publish::new(name("a"), b"x") }.into());
            }
            acknowledged += u16::try_from(world.packets(publisher).len()).expect("few");
            came += world.packets(reader).len();
            assert!(!world.socket(reader).closed && came > usize::from(read), "after {read} messages");
            read += 1;
            world.send(reader, &PubAck::new(id(read), PubAckReason::Success).into());
        }
        assert_eq!((came, acknowledged), (usize::from(MESSAGES), MESSAGES));
        world.assert_account();
    }
}

/// The cached route of the topic gives no other message a right.
#[test]
fn qos_and_retain_are_decided_message_by_message_on_one_route() {
    let low = Some(Permit::up_to(Qos::AtLeastOnce, false));
    for version in Version::ALL {
        let mut world = world(&[(RuleKind::Publish, "a", low), OPEN[1], OPEN[2]]);
        let receiver = world.connect(0, Version::V5, "receiver");
        let options = SubscriptionOptions { qos: Qos::ExactlyOnce, ..SubscriptionOptions::default() };
        world.subscribe_with(receiver, "#", options, SubscribeProperties::default());
        let publisher = world.connect(0, version, "publisher");
        let levels = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];
        for (qos, retain) in levels.into_iter().flat_map(|qos| [(qos, false), (qos, true), (qos, false)]) {
            let answer = send(&mut world, publisher, "a", qos, retain).concat();
            let is_allowed = qos < Qos::ExactlyOnce && !retain;
            let delivered = world.packets(receiver);
            assert_eq!(
                delivered.len(),
                usize::from(is_allowed),
                "{version:?} {qos:?} {retain}: {delivered:?}"
            );
            if version.is_5() && qos > Qos::AtMostOnce {
                assert_eq!(answer.contains("Not authorized"), !is_allowed, "{answer}");
            }
            if qos == Qos::ExactlyOnce && !version.is_5() {
                world.send(publisher, &PubRel::new(PacketId::MIN, PubRelReason::Success).into());
                world.packets(publisher);
            }
            if qos == Qos::AtLeastOnce && is_allowed {
                world.send(receiver, &PubAck::new(PacketId::MIN, PubAckReason::Success).into());
            }
        }
        assert_eq!(world.total(|counters| counters.denied_level.value()), 5);
        assert_eq!(world.total(|counters| counters.denied_publish.value()), 0);
        send(&mut world, publisher, "b", Qos::AtMostOnce, false);
        assert_eq!(world.total(|counters| counters.denied_publish.value()), 1);
        let late = world.connect(0, Version::V5, "late");
        assert_eq!(world.subscribe(late, "#").len(), 1, "nothing was retained");
        world.assert_account();
    }
}

#[test]
fn a_subscription_is_refused_or_granted_less_by_its_filter() {
    let low = Some(Permit::up_to(Qos::AtMostOnce, true));
    let rules = [
        (RuleKind::Subscribe, "low/#", low),
        (RuleKind::Subscribe, "%c/#", ALL),
        (RuleKind::Subscribe, "%c/not", None),
    ];
    // MQTT 3.1 has no code for a refusal: its connections end.
    for version in [Version::V3_1_1, Version::V5] {
        let mut world = world(&rules);
        let peer = world.connect(0, version, "frog");
        let options = SubscriptionOptions { qos: Qos::ExactlyOnce, ..SubscriptionOptions::default() };
        let mut ask =
            |filter| world.subscribe_with(peer, filter, options, SubscribeProperties::default()).concat();
        assert!(ask("low/+").contains("Granted QoS 0"), "{}", ask("low/+"));
        assert!(ask("frog/+").contains("Granted QoS 2") && ask("$share/g/frog/#").contains("Granted QoS 2"));
        let refused = if version.is_5() { "Not authorized" } else { "Unspecified error" };
        for filter in ["#", "toad/a", "+/#", "frog/not", "$share/g/#", "$share/frog/toad"] {
            let answer = ask(filter);
            assert!(answer.contains(refused), "{filter}: {answer}");
        }
        assert_eq!(world.total(|counters| counters.denied_subscribe.value()), 6);
        assert!(!world.unsubscribe(peer, "frog/+").concat().contains("Not authorized"), "everybody may");
        assert_eq!(world.total(|counters| counters.denied_unsubscribe.value()), 0);
    }
}

/// For subscriptions that exist, on the route, in a group, and out of a queue.
#[test]
fn a_change_holds_for_the_next_message_of_each_way() {
    let mut world = world(&OPEN);
    let publisher = world.connect(0, Version::V5, "publisher");
    let plain = world.connect(0, Version::V5, "plain");
    world.subscribe(plain, "#");
    let member = world.connect(0, Version::V5, "member");
    world.subscribe(member, "$share/g/#");
    let lasting = {
        let peer = world.accept(0, Version::V5);
        let mut connect = Connect::new(Version::V5, utf8("lasting"));
        connect.properties.session_expiry_interval_secs = Some(1_000);
        world.send(peer, &connect.into());
        world.packets(peer);
        let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
        world.subscribe_with(peer, "#", options, SubscribeProperties::default());
        peer
    };
    world.hang_up(lasting);
    for topic in ["secret", "open"] {
        send(&mut world, publisher, topic, Qos::AtLeastOnce, false);
    }
    assert_eq!((world.packets(plain).len(), world.packets(member).len()), (2, 2));
    world.replace_realms(realms(&[OPEN[0], OPEN[1], OPEN[2], (RuleKind::Receive, "secret", None)]));
    for topic in ["secret", "open"] {
        send(&mut world, publisher, topic, Qos::AtMostOnce, false);
        send(&mut world, publisher, topic, Qos::AtLeastOnce, true);
    }
    for peer in [plain, member] {
        let packets = world.packets(peer);
        assert!(packets.len() == 2 && packets.iter().all(|packet| packet.contains("open")), "{packets:?}");
    }
    let back = world.accept(0, Version::V5);
    let mut connect = Connect::new(Version::V5, utf8("lasting"));
    connect.clean_start = false;
    world.send(back, &connect.into());
    let packets = world.packets(back).concat();
    assert!(packets.contains("open") && !packets.contains("secret"), "{packets}");
    let late = world.connect(0, Version::V5, "late");
    let packets = world.subscribe(late, "#").concat();
    assert!(packets.contains("open") && !packets.contains("secret"), "retained: {packets}");
    // Nobody has a role any more.
    world.replace_realms(realms(&[]));
    assert!(send(&mut world, publisher, "open", Qos::AtLeastOnce, false).concat().contains("Not authorized"));
    assert!(world.packets(plain).is_empty());
    world.assert_account();
}

/// Also a will with more QoS, or to be retained, than its user may publish, by the rules of the moment at which it is due.
#[test]
fn a_will_is_a_message_of_its_user() {
    let low = Some(Permit::up_to(Qos::AtMostOnce, false));
    let (own, high) = ((RuleKind::Publish, "w/%u", low), (RuleKind::Publish, "w/%u", ALL));
    for (rule, qos, retain, is_published) in [
        (own, Qos::AtMostOnce, false, true),
        (own, Qos::AtLeastOnce, false, false),
        (own, Qos::AtMostOnce, true, false),
        (high, Qos::ExactlyOnce, true, true),
        ((RuleKind::Publish, "w/other", ALL), Qos::AtMostOnce, false, false),
    ] {
        let mut world = world(&OPEN);
        let watcher = world.connect(0, Version::V5, "watcher");
        world.subscribe(watcher, "#");
        let peer = world.accept(0, Version::V5);
        let mut connect = Connect::new(Version::V5, utf8("frog"));
        connect.set_credentials(Some(utf8("ann")), None).expect("short");
        let (payload, properties) = (Binary::new(b"x").expect("short"), MessageProperties::default());
        connect.will = Some(Will {
            topic: name("w/ann"),
            payload,
            qos,
            retain,
            delay_interval_secs: Some(5),
            properties,
        });
        connect.properties.session_expiry_interval_secs = Some(1_000);
        world.send(peer, &connect.into());
        world.hang_up(peer);
        world.replace_realms(realms(&[rule, OPEN[2]]));
        world.wait(6_000);
        assert_eq!(world.packets(watcher).len(), usize::from(is_published), "{rule:?} {qos:?} {retain}");
    }
}

/// The limits of one role, which all users have.
fn limited(limits: Limits) -> Realms {
    let mut builder = RolesBuilder::default();
    let role = builder.role("role");
    builder.limit(role, limits);
    builder.give(Holder::EveryUser, role);
    let access = Access::new(None, None).with_roles(builder.build().expect("no rules"));
    Realms::new(vec![("".into(), Arc::new(access))])
}

/// The same, and everybody may do everything.
fn limited_and_open(limits: Limits) -> Realms {
    let mut builder = RolesBuilder::default();
    let (role, open) = (builder.role("role"), builder.role("open"));
    builder.limit(role, limits);
    for (kind, filter, permit) in OPEN {
        builder.rule(open, kind, filter, permit, 1).expect("a filter");
    }
    builder.give(Holder::EveryUser, role);
    [Holder::EveryUser, Holder::Anonymous].into_iter().for_each(|holder| builder.give(holder, open));
    let access = Access::new(None, None).with_roles(builder.build().expect("few rules"));
    Realms::new(vec![("".into(), Arc::new(access))])
}

#[test]
fn a_client_identifier_that_no_role_permits_is_refused() {
    let patterns = || Some(["%u", "%u-*", "auto-*"].map(IdPattern::new).into());
    let realms = || limited(Limits { client_ids: patterns(), ..Limits::default() });
    for version in Version::ALL {
        let mut world = World::new(1);
        world.replace_realms(realms());
        let mut come = |user: Option<&'static str>, client_id: &'static str| {
            let peer = world.accept(0, version);
            let mut connect = Connect::new(version, utf8(client_id));
            connect.set_credentials(user.map(utf8), None).expect("short");
            world.send(peer, &connect.into());
            let answer = world.packets(peer).concat();
            let refused = if version.is_5() { "CONNACK Client Identifier not valid" } else { "CONNACK" };
            let is_in = answer.starts_with("CONNACK Success");
            assert!(is_in || answer.starts_with(refused) && world.socket(peer).closed, "{answer}");
            is_in
        };
        assert!(come(Some("ann"), "ann") && come(Some("ann"), "ann-1") && come(None, "any"));
        assert!(!come(Some("ann"), "bob") && !come(Some("ann"), "ann1") && !come(Some("*"), "ann-1"));
        assert_eq!(world.total(|counters| counters.refused_client_id.value()), 3);
        // Also where the broker has chosen the identifier.
        assert!(
            version == Version::V3_1 || {
                let peer = world.accept(0, version);
                let mut connect = Connect::new(version, utf8(""));
                connect.set_credentials(Some(utf8("ann")), None).expect("short");
                world.send(peer, &connect.into());
                world.packets(peer).concat().starts_with("CONNACK Success")
            }
        );
    }
}

#[test]
fn a_user_has_as_many_connections_as_its_roles_say() {
    let mut world = World::new(2);
    world.replace_realms(limited(Limits { connections_max: Some(2), ..Limits::default() }));
    let come = |world: &mut World, user: &'static str, client_id: &'static str| {
        let peer = world.accept(client_id.len() % 2, Version::V5);
        let mut connect = Connect::new(Version::V5, utf8(client_id));
        connect.set_credentials(Some(utf8(user)), None).expect("short");
        connect.properties.session_expiry_interval_secs = Some(1_000);
        world.send(peer, &connect.into());
        let answer = world.packets(peer).concat();
        assert!(
            answer.starts_with("CONNACK Success") || answer.starts_with("CONNACK Quota exceeded"),
            "{answer}"
        );
        answer.starts_with("CONNACK Success").then_some(peer)
    };
    let first = come(&mut world, "ann", "a").expect("one");
    assert!(come(&mut world, "ann", "a-2").is_some() && come(&mut world, "bob", "b").is_some());
    assert!(come(&mut world, "ann", "a3").is_none() && come(&mut world, "ann", "a-4").is_none());
    assert_eq!(world.ledger().connects_refused_user.load(Relaxed), 2);
    assert!(come(&mut world, "ann", "a-2").is_some(), "it takes the place of one");
    assert!(come(&mut world, "ann", "a3").is_none());
    world.hang_up(first);
    assert!(come(&mut world, "ann", "a3").is_some() && come(&mut world, "ann", "a").is_none());
    world.replace_realms(limited(Limits::default()));
    assert!(come(&mut world, "ann", "a").is_some());
    world.replace_realms(limited(Limits { connections_max: Some(3), ..Limits::default() }));
    assert!(come(&mut world, "ann", "a-5").is_none(), "connections count that came without a limit");
}

/// Nothing is dropped, and others do not wait.
#[test]
fn messages_that_come_too_fast_are_read_later() {
    let limits = Limits { messages_per_sec_max: Some(10), ..Limits::default() };
    let mut world = World::new(1);
    world.replace_realms(limited_and_open(limits));
    let receiver = world.connect(0, Version::V5, "receiver");
    world.subscribe(receiver, "#");
    let peer = world.accept(0, Version::V5);
    let mut connect = Connect::new(Version::V5, utf8("fast"));
    connect.set_credentials(Some(utf8("ann")), None).expect("short");
    connect.keep_alive_secs = 1;
    world.send(peer, &connect.into());
    world.packets(peer);
    world.feed(peer, &b"\x30\x05\x00\x01a\x00x".repeat(50));
    let mut received = world.packets(receiver).len();
    assert!((10..=11).contains(&received), "{received} at once");
    for second in 1..=4 {
        let before = received;
        for _ in 0..10 {
            world.wait(100);
            world.read_again();
            world.settle();
            received += world.packets(receiver).len();
        }
        assert!((8..=12).contains(&(received - before)) || received == 50, "{received} after {second} s");
    }
    world.wait(1_000);
    world.read_again();
    world.settle();
    received += world.packets(receiver).len();
    assert_eq!(received, 50);
    assert!(world.total(|counters| counters.paced_publish.value()) >= 38);
    world.feed(peer, b"\xC0\x00");
    assert!(world.packets(peer).concat().contains("PINGRESP"), "it stays");
    world.assert_account();
}

/// A client cannot have more connections than it may by taking over identifiers that others have, all at the same time.
#[test]
fn claims_that_wait_for_others_to_leave_count_too() {
    let mut world = World::new(1);
    world.replace_realms(limited(Limits { connections_max: Some(1), ..Limits::default() }));
    let names = ["a", "b", "c"];
    let _others = names.map(|client_id| world.connect(0, Version::V5, client_id));
    let claimants = names.map(|client_id| {
        let peer = world.accept(0, Version::V5);
        let mut connect = Connect::new(Version::V5, utf8(client_id));
        connect.set_credentials(Some(utf8("ann")), None).expect("short");
        let bytes = crate::world::bytes(&connect.into(), Version::V5);
        world.read_now(peer, &bytes);
        peer
    });
    world.settle();
    let answers = claimants.map(|peer| world.packets(peer).concat());
    let let_in = answers.iter().filter(|answer| answer.starts_with("CONNACK Success")).count();
    let refused = answers.iter().filter(|answer| answer.starts_with("CONNACK Quota exceeded")).count();
    assert_eq!((let_in, refused), (1, 2), "{answers:?}");
}

/// A PINGREQ in between has its answer at once.
#[test]
fn one_large_message_does_not_open_the_way_for_the_next() {
    let mut world = World::new(1);
    world.replace_realms(limited_and_open(Limits { bytes_per_sec_max: Some(10), ..Limits::default() }));
    let receiver = world.connect(0, Version::V5, "receiver");
    world.subscribe(receiver, "#");
    let peer = world.accept(0, Version::V5);
    let mut connect = Connect::new(Version::V5, utf8("large"));
    connect.set_credentials(Some(utf8("ann")), None).expect("short");
    world.send(peer, &connect.into());
    world.packets(peer);
    // 302 bytes take half a minute.
    let large = [&b"\x30\xac\x02\x00\x01a\x00"[..], &[b'x'; 296]].concat();
    world.feed(peer, &[&large[..], b"\xC0\x00", &large].concat());
    assert_eq!((world.packets(peer).concat(), world.packets(receiver).len()), ("PINGRESP".to_owned(), 1));
    let waited = |world: &mut World, secs: u64| {
        for _ in 0..secs {
            world.wait(1_000);
            world.read_again();
            world.settle();
        }
        (world.packets(peer).len(), world.packets(receiver).len())
    };
    assert_eq!(waited(&mut world, 27), (0, 0));
    assert_eq!(waited(&mut world, 10), (0, 1));
    world.assert_account();
}

#[test]
fn a_session_is_kept_as_long_as_the_roles_of_its_user_say() {
    let limits = Limits { expiry_secs_max: Some(60), ..Limits::default() };
    for (asked, longer, user, kept_ms) in [
        (Some(1_000), None, "ann", 59_000),
        (Some(30), None, "ann", 29_000),
        (Some(30), Some(1_000), "ann", 59_000),
        (Some(1_000), None, "", 999_000),
    ] {
        let mut world = World::new(1);
        world.replace_realms(limited(limits.clone()));
        let come = |world: &mut World, clean_start| {
            let peer = world.accept(0, Version::V5);
            let mut connect = Connect::new(Version::V5, utf8("c1"));
            connect.set_credentials(Some(utf8(user)), None).expect("short");
            connect.properties.session_expiry_interval_secs = asked;
            connect.clean_start = clean_start;
            world.send(peer, &connect.into());
            (peer, world.packets(peer).concat())
        };
        let (peer, answer) = come(&mut world, true);
        assert_eq!(answer.contains("=60"), asked == Some(1_000) && !user.is_empty(), "{answer}");
        let mut goodbye = Disconnect::new(DisconnectReason::NormalDisconnection);
        goodbye.properties.session_expiry_interval_secs = longer;
        world.send(peer, &goodbye.into());
        world.wait(kept_ms);
        assert_eq!(world.ledger().sessions.load(Relaxed), 1, "{asked:?} {longer:?} {user}");
        world.wait(3_000);
        assert_eq!(world.ledger().sessions.load(Relaxed), 0, "{asked:?} {longer:?} {user}");
    }
}

/// Two listeners with rules of their own. One of them has none.
#[test]
fn rules_hold_for_the_clients_of_their_listener() {
    let mut world = World::new(1);
    let own = access(&[Holder::EveryUser, Holder::Anonymous], &[(RuleKind::Publish, "own", ALL)]);
    let realms = vec![("own".into(), own), ("".into(), Arc::default())];
    world.replace_realms(Realms::new(realms));
    let come = |world: &mut World, realm, client_id| {
        let entry = Entry { realm: Realm(realm), ..Entry::default() };
        let peer = world.accept_with(0, Version::V5, Admission { entry, ..Durability::Fsync.into() });
        world.send(peer, &Connect::new(Version::V5, utf8(client_id)).into());
        world.packets(peer);
        peer
    };
    let (bound, free) = (come(&mut world, 0, "bound"), come(&mut world, 1, "free"));
    assert!(world.subscribe(bound, "a").concat().contains("Not authorized"));
    assert!(world.subscribe(free, "#").concat().contains("Granted QoS 0"));
    assert!(send(&mut world, bound, "a", Qos::AtLeastOnce, false).concat().contains("Not authorized"));
    assert!(send(&mut world, bound, "own", Qos::AtLeastOnce, true).concat().contains("Success"));
    assert!(world.packets(free).concat().contains("own"));
    // Without dynamic security, this is a topic like others.
    assert!(
        !send(&mut world, free, "$CONTROL/a", Qos::AtLeastOnce, false).concat().contains("Not authorized")
    );
}

/// The bound of the configuration is higher, and holds for others.
#[test]
fn messages_behind_a_window_have_the_bound_of_roles() {
    let limits = |most| {
        limited_and_open(Limits {
            queue: auth::QueueLimits { messages_max: most, bytes_max: None },
            ..Limits::default()
        })
    };
    let mut world = World::new(1);
    world.replace_realms(limits(Some(3)));
    let publisher = world.connect(0, Version::V5, "publisher");
    let come = |world: &mut World, user: Option<&'static str>| {
        let peer = world.accept(0, Version::V5);
        let mut connect = Connect::new(Version::V5, utf8(user.unwrap_or("nobody")));
        connect.set_credentials(user.map(utf8), None).expect("short");
        connect.properties.receive_maximum = std::num::NonZeroU16::new(1);
        world.send(peer, &connect.into());
        let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
        world.subscribe_with(peer, "a", options, SubscribeProperties::default());
        world.packets(peer);
        peer
    };
    let ended = |world: &mut World, peer: Peer| world.packets(peer).concat().contains("DISCONNECT Quota");
    let (ann, nobody) = (come(&mut world, Some("ann")), come(&mut world, None));
    (0..4).for_each(|_| world.publish_at_least_once(publisher, "a"));
    assert!(!ended(&mut world, ann), "one is under way, and three wait");
    world.publish_at_least_once(publisher, "a");
    assert!(ended(&mut world, ann) && !ended(&mut world, nobody));
    // Other rules hold for the next message.
    let ann = come(&mut world, Some("ann"));
    (0..4).for_each(|_| world.publish_at_least_once(publisher, "a"));
    world.replace_realms(limits(Some(4)));
    world.shards[0].users_changed();
    world.end_turn(0);
    world.publish_at_least_once(publisher, "a");
    assert!(!ended(&mut world, ann));
    world.publish_at_least_once(publisher, "a");
    assert!(ended(&mut world, ann));
    let ann = come(&mut world, Some("ann"));
    world.replace_realms(limits(None));
    world.shards[0].users_changed();
    world.end_turn(0);
    (0..20).for_each(|_| world.publish_at_least_once(publisher, "a"));
    assert!(!ended(&mut world, ann) && !ended(&mut world, nobody));
    world.assert_account();
}
