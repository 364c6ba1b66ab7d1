//! Memory that is held by clients that do nothing: it comes back though nobody sends anything.

use session::{Budget, Purpose, Settings};
use wire::{
    Connect, Delivery, PacketId, Publish, PublishTopic, Qos, SubscribeProperties, SubscriptionOptions,
    TopicAlias, Version,
};

use crate::world::{Peer, World, bytes, name, settings, utf8};

const MIB: usize = 1 << 20;

fn world(shards: usize, limit_bytes: usize) -> World {
    World::with_budget(shards, settings(), Budget::new(limit_bytes))
}

/// The first bytes of a PUBLISH that is longer than any in these tests.
fn beginning(len: usize) -> Vec<u8> {
    let mut packet = bytes(&Publish::new(name("t"), &[7; 90_000]).into(), Version::V5);
    packet.truncate(len);
    packet
}

/// Somebody who does not care what it says holds so much that new clients are refused.
fn make_tight(world: &World) -> session::Charge {
    world.budget.charge(Purpose::Outputs, world.budget.tight_bytes() + 10_000 - world.budget.used_bytes())
}

fn comes(world: &mut World, client_id: &str) -> bool {
    let peer = world.accept(0, Version::V5);
    world.send(peer, &Connect::new(Version::V5, utf8(client_id)).into());
    world.packets(peer)[0].starts_with("CONNACK Success")
}

fn is_open(world: &mut World, peer: Peer) -> bool {
    !world.socket(peer).closed
}

/// None of them ever has to send anything: Keep Alive is off.
#[test]
fn beginnings_of_packets_that_go_no_further_lock_nobody_out() {
    for shards in [1, 2] {
        let mut world = world(shards, 2 * MIB);
        let idle = world.connect(0, Version::V5, "idle");
        let idlers: Vec<Peer> = (0..400)
            .map(|number| world.connect(number % shards, Version::V5, &format!("c{number}")))
            .collect();
        for peer in &idlers {
            world.feed(*peer, &beginning(3_500));
        }
        assert!(!comes(&mut world, "too early"), "{:?}", world.budget);
        world.wait(7_000);
        assert!(comes(&mut world, "new"), "{:?}", world.budget);
        let left = idlers.iter().filter(|peer| is_open(&mut world, **peer)).count();
        assert!(left >= 100, "{left} of 400 hold what is left: no more are ended than there is need for");
        assert!(is_open(&mut world, idle), "who holds nothing is not asked to do anything");
        assert_eq!(world.total(|counters| counters.ended_memory.value()), 400 - left as u64);
    }
}

/// The beginnings of large packets have their share, and leave everybody else the rest.
#[test]
fn beginnings_of_packets_take_half_of_the_memory_at_most() {
    let mut world = world(1, 2 * MIB);
    let senders: Vec<Peer> =
        (0..40).map(|number| world.connect(0, Version::V5, &format!("c{number}"))).collect();
    for peer in &senders {
        world.feed(*peer, &beginning(80_000));
        assert!(!world.budget.is_tight(), "{:?}", world.budget);
    }
    assert!(world.budget.held_bytes(Purpose::Partials) <= MIB);
    assert!(comes(&mut world, "new"));
    let open = senders.iter().filter(|peer| is_open(&mut world, **peer)).count();
    assert!((10..20).contains(&open), "{open} of 40");
}

/// The largest first: what is held by the others may stay.
#[test]
fn the_largest_holder_that_stands_still_is_ended_first() {
    let mut world = world(1, MIB);
    let mut begin = |number: usize, len| {
        let peer = world.connect(0, Version::V5, &format!("c{number}"));
        world.feed(peer, &beginning(len));
        peer
    };
    let small: Vec<Peer> = (0..36).map(|number| begin(number, 14_000)).collect();
    let [large, medium] = [(36, 16_000), (37, 15_000)].map(|(number, len)| begin(number, len));
    let held = world.budget.held_bytes(Purpose::Partials);
    assert!((MIB / 2 + 1..MIB / 2 + 16_000).contains(&held), "{held}: less than the largest is wanted back");
    world.wait(20_000);
    assert!(!is_open(&mut world, large) && is_open(&mut world, medium));
    assert!(small.iter().all(|peer| is_open(&mut world, *peer)));
}

/// 1 KiB a second is as much as Keep Alive asks for.
#[test]
fn a_packet_that_goes_on_is_under_way() {
    let mut world = world(1, MIB);
    let [slow, still] = ["slow", "still"].map(|who| world.connect(0, Version::V5, who));
    let packet = beginning(20_000);
    let mut sent = 2_000;
    [slow, still].into_iter().for_each(|peer| world.feed(peer, &packet[..sent]));
    let tight = make_tight(&world);
    for _ in 0..12 {
        world.wait(1_000);
        world.feed(slow, &packet[sent..sent + 1_100]);
        sent += 1_100;
    }
    assert!(is_open(&mut world, slow) && !is_open(&mut world, still));
    world.wait(7_000);
    assert!(!is_open(&mut world, slow), "it has stopped");
    drop(tight);
}

/// A client that sends one packet after the other is not taken for one that stands still, wherever a look finds it.
#[test]
fn packets_that_follow_each_other_are_progress() {
    let mut world = world(1, MIB);
    let busy = world.connect(0, Version::V5, "busy");
    let packet = bytes(&Publish::new(name("t"), &[7; 10_000]).into(), Version::V5);
    world.feed(busy, &packet[..5_000]);
    let tight = make_tight(&world);
    for _ in 0..20 {
        world.wait(1_000);
        world.feed(busy, &packet[5_000..]);
        world.feed(busy, &packet[..5_000]);
    }
    assert!(is_open(&mut world, busy));
    drop(tight);
}

#[test]
fn a_stranger_that_does_not_finish_connect_is_ended_when_memory_is_short() {
    let mut world =
        World::with_budget(1, Settings { connect_timeout_ms: 60_000, ..settings() }, Budget::new(MIB));
    let stranger = world.accept(0, Version::V5);
    world.feed(stranger, &[&[0x10, 0xFF, 0x0F][..], &[0; 1_500]].concat());
    let tight = make_tight(&world);
    world.wait(7_000);
    assert!(!is_open(&mut world, stranger) && world.packets(stranger).is_empty());
    drop(tight);
}

/// What is remembered for a client goes back with it, though it does not ask for more.
#[test]
fn topic_aliases_of_a_silent_client_are_given_back() {
    let mut world = world(1, MIB);
    let [many, few] = [("many", 50_000), ("few", 1_000)].map(|(who, len)| {
        let peer = world.connect(0, Version::V5, who);
        let topic = "a".repeat(len);
        let topic = PublishTopic::NameWithAlias(name(&topic), TopicAlias::new(1).expect("not 0"));
        world.send(peer, &Publish { topic, ..Publish::new(name("t"), b"x") }.into());
        peer
    });
    let tight = make_tight(&world);
    world.wait(7_000);
    assert!(!is_open(&mut world, many) && is_open(&mut world, few));
    drop(tight);
}

/// Nobody has to publish one more message to it.
#[test]
fn a_client_that_acknowledges_nothing_is_ended_though_nothing_more_comes() {
    let mut world = World::with_budget(1, Settings { inflight_max: 1, ..settings() }, Budget::new(MIB));
    let publisher = world.connect(0, Version::V5, "publisher");
    let [stuck, well] = ["stuck", "well"].map(|who| world.connect(0, Version::V5, who));
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    for (peer, messages) in [(stuck, 4), (well, 1)] {
        world.subscribe_with(peer, "t", options, SubscribeProperties::default());
        for _ in 0..messages {
            let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
            let publish = Publish { delivery, ..Publish::new(name("t"), &[7; 10_000]) };
            world.send(publisher, &publish.into());
        }
        world.unsubscribe(peer, "t");
    }
    let tight = make_tight(&world);
    world.wait(7_000);
    assert!(!is_open(&mut world, stuck) && is_open(&mut world, well));
    drop(tight);
    world.assert_account();
}
