//! Topic prefixes of roles: each client has one of its own, from its claim to its end.

use std::sync::Arc;

use auth::{Access, Holder, Limits, Permit, Reach, Realms, RolesBuilder, RuleKind, TopicPrefix};
use base::Purpose;
use wire::{Binary, Connect, MessageProperties, Qos, Version, Will};

use crate::world::{Peer, World, name, utf8};

/// All clients may do everything, and those with a name have a prefix.
fn realms() -> Realms {
    let mut builder = RolesBuilder::default();
    let (tenant, open) = (builder.role("tenant"), builder.role("open"));
    let reach = Reach::Below(TopicPrefix::new("t/%u/").expect("a prefix"));
    builder.limit(tenant, Limits { reach, ..Limits::default() });
    for kind in [RuleKind::Publish, RuleKind::Subscribe, RuleKind::Receive] {
        builder.rule(open, kind, "#", Some(Permit::ALL), 1).expect("a filter");
    }
    builder.give(Holder::EveryUser, tenant);
    [Holder::EveryUser, Holder::Anonymous].into_iter().for_each(|holder| builder.give(holder, open));
    let access = Access::new(None, None).with_roles(builder.build().expect("few rules"));
    Realms::new(vec![("".into(), Arc::new(access))])
}

fn world(shards: usize) -> World {
    let world = World::new(shards);
    world.replace_realms(realms());
    world
}

/// A CONNECT of a user, and its answer. The client identifier is the user name.
fn come(world: &mut World, shard: usize, version: Version, user: &str, will: Option<&str>) -> (Peer, String) {
    let peer = world.accept(shard, version);
    let mut connect = Connect::new(version, utf8(user));
    connect.set_credentials(Some(utf8(user)), None).expect("short");
    connect.will = will.map(|topic| Will {
        topic: name(topic),
        payload: Binary::new(b"gone").expect("short"),
        qos: Qos::AtMostOnce,
        retain: false,
        delay_interval_secs: None,
        properties: MessageProperties::default(),
    });
    world.send(peer, &connect.into());
    let answer = world.packets(peer).concat();
    (peer, answer)
}

#[test]
fn a_prefix_stands_before_all_topics_of_its_user() {
    for version in Version::ALL {
        let mut world = world(2);
        let everywhere = world.connect(0, Version::V5, "everywhere");
        world.subscribe(everywhere, "#");
        let (ann, _) = come(&mut world, 0, version, "ann", Some("gone"));
        let (bob, _) = come(&mut world, 1, version, "bob", None);
        for peer in [ann, bob] {
            world.subscribe(peer, "#");
        }
        world.publish(ann, "a", "1");
        world.publish(everywhere, "t/bob/b", "2");
        let heard = |world: &mut World, peer| world.packets(peer).join("\n");
        let (of_ann, of_bob) = (heard(&mut world, ann), heard(&mut world, bob));
        assert!(of_ann.contains("\"a\"") && !of_ann.contains("\"b\""), "{of_ann}");
        assert!(of_bob.contains("\"b\"") && !of_bob.contains("\"a\""), "{of_bob}");
        world.hang_up(ann);
        let of_all = heard(&mut world, everywhere);
        for topic in ["t/ann/a", "t/bob/b", "t/ann/gone"] {
            assert!(of_all.contains(&format!("{topic:?}")), "{topic}: {of_all}");
        }
        world.assert_account();
    }
}

/// Many tenants have many prefixes, and all their memory is on the account and returned.
#[test]
fn the_memory_of_prefixes_is_on_the_account_until_their_clients_go() {
    let mut world = world(1);
    let held = |world: &World| world.budget.held_bytes(Purpose::Connections);
    let of_sessions = |world: &World| world.budget.held_bytes(Purpose::Sessions);
    let (before, sessions_before) = (held(&world), of_sessions(&world));
    let without = world.connect(0, Version::V5, "without");
    world.end_turn(0);
    let of_one = held(&world) - before;
    world.hang_up(without);
    world.end_turn(0);
    assert_eq!(held(&world), before);
    let users: Vec<String> = (0..500).map(|number| format!("{number}-{}", "n".repeat(90))).collect();
    let peers: Vec<Peer> = users.iter().map(|user| come(&mut world, 0, Version::V5, user, None).0).collect();
    world.end_turn(0);
    let of_many = held(&world) - before;
    assert!(of_many >= 500 * (of_one + 90), "{of_many} bytes");
    let mut without = World::new(1);
    users
        .iter()
        .for_each(|user| assert!(come(&mut without, 0, Version::V5, user, None).1.contains("Success")));
    without.end_turn(0);
    let of_tenants = of_sessions(&world) - of_sessions(&without);
    assert!(of_tenants >= 500 * 90, "a session keeps its tenant: {of_tenants} bytes");
    peers.into_iter().for_each(|peer| world.hang_up(peer));
    world.end_turn(0);
    assert_eq!(held(&world), before);
    assert_eq!(of_sessions(&world), sessions_before);
}

#[test]
fn users_whose_names_fit_in_no_topic_are_refused_and_counted() {
    for version in Version::ALL {
        let mut world = world(1);
        for user in ["a/b", "#", "+", "$a"] {
            let (peer, answer) = come(&mut world, 0, version, user, Some("gone"));
            let refused = if version.is_5() { "CONNACK Not authorized" } else { "CONNACK" };
            assert!(answer.starts_with(refused) && !answer.contains("Success"), "{answer}");
            assert!(world.socket(peer).closed);
        }
        assert_eq!(world.total(|counters| counters.refused_topic_prefix.value()), 4);
        assert!(come(&mut world, 0, version, "ann", None).1.starts_with("CONNACK Success"));
    }
}

/// Limits count the whole topic of a will, and the client sends a shorter one.
#[test]
fn a_will_that_does_not_fit_below_the_prefix_is_refused() {
    let fits = "x/".repeat(5) + "x";
    let long = "a".repeat(1_000 - "t/ann/gone".len());
    for (topic, refused) in [
        (fits.clone(), None),
        (fits + "/x", Some("Topic Name invalid")),
        (long.clone(), None),
        (long + "a", Some("Quota exceeded")),
    ] {
        let mut world = world(1);
        let (peer, answer) = come(&mut world, 0, Version::V5, "ann", Some(&topic));
        let expected = format!("CONNACK {}", refused.unwrap_or("Success"));
        assert!(answer.starts_with(&expected), "{topic}: {answer}");
        assert_eq!(world.socket(peer).closed, refused.is_some());
    }
}
