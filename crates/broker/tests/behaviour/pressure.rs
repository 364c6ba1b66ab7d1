//! Full subscribers: who waits for them, and who does not.

use wire::Version;

use crate::world::{HIGH_WATER_BYTES, Peer, World, bytes, name};

const SOME: &str = "0123456789012345678901234567890123456789";

fn flood(world: &mut World, publisher: Peer, topic: &str) {
    let packet = bytes(&wire::Publish::new(name(topic), SOME.as_bytes()).into(), Version::V3_1_1);
    world.feed(publisher, &packet.repeat(2 * HIGH_WATER_BYTES / packet.len()));
}

#[test]
fn a_publisher_is_not_read_while_its_subscriber_is_full_and_loses_nothing() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let subscriber = world.connect(shards - 1, Version::V3_1_1, "s");
        world.subscribe(subscriber, "t");
        world.socket(subscriber).stuck = true;
        let publisher = world.connect(0, Version::V3_1_1, "p");
        flood(&mut world, publisher, "t");
        world.publish(publisher, "t", "noticed");
        assert!(world.socket(publisher).paused, "{shards} shards");
        world.publish(publisher, "t", "waits");
        let first = world.drain(subscriber);
        assert!(!first.iter().any(|packet| packet.contains("waits")));
        assert!(!world.socket(publisher).paused);
        let second = world.drain(subscriber);
        assert!([first, second].concat().last().expect("it came").contains("waits"));
        let dropped: u64 = world.counters.iter().map(|counters| counters.publish_dropped.value()).sum();
        assert_eq!(dropped, 0);
    }
}

#[test]
fn retained_messages_wait_for_a_full_subscriber_too() {
    let mut world = World::new(2);
    let subscriber = world.connect(1, Version::V3_1_1, "s");
    world.subscribe(subscriber, "t");
    world.socket(subscriber).stuck = true;
    let publisher = world.connect(0, Version::V3_1_1, "p");
    for _ in 0..100 {
        world.publish_retained(publisher, "t", SOME);
    }
    assert!(world.socket(publisher).paused);
    let waiting = world.socket(subscriber).sent.len();
    assert!(waiting < 2 * HIGH_WATER_BYTES, "{waiting} bytes");
    let mut received = 0;
    while !world.socket(subscriber).sent.is_empty() {
        received += world.drain(subscriber).len();
    }
    assert_eq!(received, 100);
}

#[test]
fn a_subscriber_that_stands_still_does_not_hold_the_others() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let stuck = world.connect(shards - 1, Version::V3_1_1, "stuck");
        let quick = world.connect(0, Version::V3_1_1, "quick");
        for peer in [stuck, quick] {
            world.subscribe(peer, "t");
        }
        world.socket(stuck).stuck = true;
        let publisher = world.connect(0, Version::V3_1_1, "p");
        flood(&mut world, publisher, "t");
        world.publish(publisher, "t", "noticed");
        assert!(world.socket(publisher).paused);
        world.wait(300);
        assert!(!world.socket(publisher).paused, "nobody waits for one that stands still");
        world.packets(quick);
        world.publish(publisher, "t", "for the quick");
        assert!(world.packets(quick)[0].contains("for the quick"));
        assert_eq!(world.counters[shards - 1].dropped_slow.value(), 2);
        assert_eq!(world.counters[shards - 1].slow_subscribers.value(), 1);
        // It takes what it has, and gets what comes.
        world.drain(stuck);
        world.wait(300);
        world.publish(publisher, "t", "again");
        assert!(world.packets(stuck)[0].contains("again"));
    }
}

#[test]
fn a_publisher_whose_only_subscriber_stands_still_waits_five_seconds() {
    let mut world = World::new(1);
    let stuck = world.connect(0, Version::V3_1_1, "stuck");
    world.subscribe(stuck, "t");
    world.socket(stuck).stuck = true;
    let publisher = world.connect(0, Version::V3_1_1, "p");
    flood(&mut world, publisher, "t");
    world.wait(4_800);
    assert!(world.socket(publisher).paused);
    world.wait(500);
    assert!(!world.socket(publisher).paused);
}

#[test]
fn the_end_of_a_full_subscriber_lets_its_publishers_go_on() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let stuck = world.connect(shards - 1, Version::V3_1_1, "stuck");
        world.subscribe(stuck, "t");
        world.socket(stuck).stuck = true;
        let publisher = world.connect(0, Version::V3_1_1, "p");
        flood(&mut world, publisher, "t");
        world.publish(publisher, "t", "noticed");
        assert!(world.socket(publisher).paused);
        world.hang_up(stuck);
        assert!(!world.socket(publisher).paused, "{shards} shards");
    }
}

#[test]
fn a_client_that_does_not_take_its_answers_is_not_asked_more_questions() {
    let mut world = World::new(1);
    let peer = world.connect(0, Version::V3_1_1, "p");
    world.socket(peer).stuck = true;
    let pings = [0xC0, 0].repeat(10_000);
    for _ in 0..10 {
        world.feed(peer, &pings);
    }
    assert!(world.socket(peer).paused);
    let answered = world.socket(peer).sent.len();
    assert!(answered < 3 * pings.len(), "{answered} bytes wait");
    let mut answers = 0;
    for _ in 0..20 {
        answers += world.drain(peer).len();
    }
    assert_eq!(answers, 100_000, "every PINGREQ is answered in the end");
}

#[test]
fn a_client_that_takes_nothing_for_a_minute_is_ended() {
    let mut world = World::new(1);
    let asking = world.connect(0, Version::V3_1_1, "asking");
    world.socket(asking).stuck = true;
    let pings = [0xC0, 0].repeat(10_000);
    (0..10).for_each(|_| world.feed(asking, &pings));
    let listening = world.connect(0, Version::V5, "listening");
    world.subscribe(listening, "t");
    world.socket(listening).stuck = true;
    let publisher = world.connect(0, Version::V3_1_1, "p");
    flood(&mut world, publisher, "t");
    world.wait(59_000);
    assert!(!world.socket(asking).closed && !world.socket(listening).closed);
    world.wait(2_000);
    assert!(world.socket(asking).closed && world.socket(listening).closed);
    assert!(!world.socket(publisher).closed && !world.socket(publisher).paused);
    assert_eq!(world.counters[0].ended_stuck.value(), 2);
}
