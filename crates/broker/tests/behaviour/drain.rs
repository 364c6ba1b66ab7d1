//! A shard that is drained: nobody comes in, and its clients leave over the time that was chosen.

use std::num::NonZeroU32;

use broker::{Answer, Drain, Question};
use wire::{Connect, Version, Will};

use crate::world::{Peer, World, bytes, utf8};

const OTHER: &str = "other.example:8883";

fn drain(world: &mut World, server_reference: Option<&str>, over_ms: u64) {
    let order = Drain { server_reference: server_reference.map(Into::into), over_ms };
    ask(world, Some(&order));
}

fn ask(world: &mut World, order: Option<&Drain>) {
    let now = world.now;
    for (shard, outside) in world.shards.iter_mut().zip(&mut world.outside) {
        let answer = shard.ask(Question::Drain(order.cloned()), now, outside);
        assert!(matches!(answer, Answer::Done(true)));
    }
}

/// Number of these clients whose connections are closed.
fn gone(world: &mut World, peers: &[Peer]) -> usize {
    peers.iter().filter(|peer| world.socket(**peer).closed).count()
}

#[test]
fn clients_are_told_where_to_go_as_far_as_their_version_has_words() {
    for (reference, version, refusal, goodbye) in [
        (
            Some(OTHER),
            Version::V5,
            "CONNACK Use another server server-reference=\"other.example:8883\"",
            &["DISCONNECT Use another server server-reference=\"other.example:8883\""][..],
        ),
        (None, Version::V5, "CONNACK Server unavailable", &["DISCONNECT Server shutting down"]),
        (Some(OTHER), Version::V3_1_1, "CONNACK Server unavailable", &[]),
        (None, Version::V3_1, "CONNACK Server unavailable", &[]),
    ] {
        let mut world = World::new(1);
        let old = world.connect(0, version, "old");
        drain(&mut world, reference, 0);
        let new = world.accept(0, version);
        world.send(new, &Connect::new(version, utf8("new")).into());
        assert_eq!(world.packets(new), [refusal], "{version:?}");
        assert!(world.socket(new).closed);
        world.wait(1);
        assert_eq!(world.packets(old), goodbye, "{version:?}");
        assert!(world.socket(old).closed);
        let counts = (world.total(|c| c.refused_draining.value()), world.total(|c| c.ended_draining.value()));
        assert_eq!(counts, (1, 1));
        assert_eq!(world.total(|c| c.clients_connected.value()), 0);
    }
}

#[test]
fn a_client_that_accepts_small_packets_only_gets_the_reason_without_the_reference() {
    let mut world = World::new(1);
    let peer = world.accept(0, Version::V5);
    let mut connect = Connect::new(Version::V5, utf8("small"));
    connect.properties.maximum_packet_bytes = NonZeroU32::new(20);
    world.send(peer, &connect.into());
    drain(&mut world, Some(OTHER), 0);
    world.packets(peer);
    world.wait(1);
    assert_eq!(world.packets(peer), ["DISCONNECT Use another server"]);
}

#[test]
fn clients_leave_evenly_and_a_turn_ends_some_of_them_only() {
    let mut world = World::new(2);
    let peers: Vec<Peer> = (0..200)
        .map(|number| world.connect(usize::from(number % 4 == 0), Version::V5, &format!("{number}")))
        .collect();
    drain(&mut world, None, 10_000);
    for (percent, at_ms) in [(25, 2_500), (50, 5_000), (100, 10_100)] {
        while world.now.monotonic_ms < 5_000 + at_ms {
            world.wait(100);
        }
        assert!(gone(&mut world, &peers).abs_diff(2 * percent) <= 2, "at {at_ms} ms");
    }
    let peers: Vec<Peer> = {
        ask(&mut world, None);
        (0..200).map(|number| world.connect(0, Version::V5, &format!("{number}"))).collect()
    };
    drain(&mut world, None, 0);
    let now = world.now;
    world.shards[0].handle_timeout(now, &mut world.outside[0]);
    let mut left = Vec::new();
    while world.shards[0].has_work() {
        world.shards[0].end_turn(now, &mut world.outside[0]);
        left.push(gone(&mut world, &peers));
    }
    assert_eq!(left, [64, 128, 192, 200]);
}

#[test]
fn a_client_whose_way_in_began_before_the_drain_leaves_too() {
    let mut world = World::new(1);
    let peer = world.accept(0, Version::V5);
    world.feed_only(peer, &bytes(&Connect::new(Version::V5, utf8("late")).into(), Version::V5));
    world.wait(0);
    drain(&mut world, None, 0);
    world.settle();
    for _ in 0..20 {
        world.wait(100);
    }
    assert!(world.socket(peer).closed);
    assert_eq!(world.total(|counters| counters.clients_connected.value()), 0);
}

#[test]
fn clients_that_are_still_there_stay_when_the_drain_is_ended() {
    let mut world = World::new(1);
    let peers: Vec<Peer> =
        (0..10).map(|number| world.connect(0, Version::V5, &format!("{number}"))).collect();
    drain(&mut world, None, 1_000);
    world.wait(560);
    ask(&mut world, None);
    world.wait(5_000);
    assert_eq!(gone(&mut world, &peers), 5);
    world.connect(0, Version::V5, "0");
}

fn will() -> Will<'static> {
    crate::world::will(b"gone")
}

#[test]
fn a_drain_publishes_wills() {
    let mut world = World::new(1);
    let peer = world.accept(0, Version::V5);
    let mut connect = Connect::new(Version::V5, utf8("p"));
    connect.will = Some(will());
    world.send(peer, &connect.into());
    let watcher = world.connect(0, Version::V3_1_1, "watcher");
    world.subscribe(watcher, "will");
    drain(&mut world, None, 1_000);
    // The first of two leaves.
    world.wait(600);
    assert_eq!((gone(&mut world, &[peer]), gone(&mut world, &[watcher])), (1, 0));
    let packets = world.packets(watcher);
    assert!(packets.len() == 1 && packets[0].starts_with("PUBLISH"), "{packets:?}");
}

/// A client whose session outlives its connection, and the first word that it hears.
fn come_for_long(world: &mut World, will: Option<Will<'static>>) -> (Peer, Vec<String>) {
    let peer = world.accept(0, Version::V5);
    let mut connect = Connect::new(Version::V5, utf8("long"));
    (connect.will, connect.clean_start) = (will, false);
    connect.properties.session_expiry_interval_secs = Some(100);
    world.send(peer, &connect.into());
    (peer, world.packets(peer))
}

#[test]
fn a_session_that_lasts_leaves_with_its_will_and_is_found_again_until_it_expires() {
    for (away_ms, session) in [(50_000, true), (101_000, false)] {
        let mut world = World::new(1);
        let (long, _) = come_for_long(&mut world, Some(will()));
        let watcher = world.connect(0, Version::V3_1_1, "watcher");
        world.subscribe(watcher, "will");
        drain(&mut world, None, 1_000);
        world.wait(600);
        assert_eq!((gone(&mut world, &[long]), gone(&mut world, &[watcher])), (1, 0));
        let packets = world.packets(watcher);
        assert!(packets.len() == 1 && packets[0].starts_with("PUBLISH"), "{packets:?}");
        ask(&mut world, None);
        world.wait(away_ms);
        let (_, heard) = come_for_long(&mut world, None);
        assert!(heard.len() == 1 && heard[0].starts_with("CONNACK Success"), "{heard:?}");
        assert_eq!(heard[0].contains("session-present"), session, "{heard:?}");
    }
}
