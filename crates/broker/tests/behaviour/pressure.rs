//! Full subscribers: who waits for them, and who does not.

use base::ShardId;
use session::Settings;
use wire::{
    Delivery, PacketId, PubAck, PubAckReason, Publish, Qos, SubscribeProperties, SubscriptionOptions, Version,
};

use crate::world::{HIGH_WATER_BYTES, Peer, World, bytes, name, settings};

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

/// A publisher that fills all the room with each read does not take it again and again while others wait.
#[test]
fn publishers_that_wait_for_the_ledger_or_a_shard_are_read_before_others() {
    for waits_for_ledger in [true, false] {
        let mut world = World::new(2);
        let subscriber = world.connect(1, Version::V5, "s");
        world.subscribe(subscriber, "t");
        let [greedy, modest] = ["greedy", "modest"].map(|name| world.connect(0, Version::V5, name));
        for publisher in [greedy, modest] {
            world.publish(publisher, "t", "first");
        }
        let outside = &mut world.outside[0];
        (outside.ledger_is_over, outside.mail_is_over) = (waits_for_ledger, !waits_for_ledger);
        world.publish(modest, "t", "waits");
        let outside = &mut world.outside[0];
        (outside.ledger_is_over, outside.mail_is_over) = (false, false);
        world.publish(greedy, "t", "more");
        assert!(world.socket(modest).paused && world.socket(greedy).paused, "there is room, and a line");
        let (shard, outside) = (&mut world.shards[0], &mut world.outside[0]);
        if waits_for_ledger {
            shard.ledger_resumed(world.now, outside);
        } else {
            shard.mail_resumed(ShardId::new(1), world.now, outside);
        }
        assert!(!world.socket(modest).paused && !world.socket(greedy).paused);
        world.settle();
        let received = world.packets(subscriber);
        assert_eq!(received.len(), 4, "{received:?}");
    }
}

/// The greedy one takes all the room each time that it is read. Then it stands in line before the modest one finds no room.
#[test]
fn a_publisher_of_which_nothing_was_read_goes_before_those_that_take_all_the_room() {
    let mut world = World::new(1);
    let [greedy, modest] = ["greedy", "modest"].map(|name| world.connect(0, Version::V5, name));
    let publish = Publish { retain: true, ..Publish::new(name("t"), b"value") };
    let packet = bytes(&publish.into(), Version::V5);
    world.feed(greedy, &packet);
    world.feed(modest, &packet);
    world.outside[0].commands_max = Some(2);
    world.feed_only(greedy, &packet.repeat(10));
    world.feed_only(modest, &packet);
    for _ in 0..3 {
        world.carry_commands();
        world.outside[0].resumed.clear();
        world.shards[0].ledger_resumed(world.now, &mut world.outside[0]);
        let resumed = world.outside[0].resumed.clone();
        if resumed == [modest.id, greedy.id] {
            return;
        }
        resumed.iter().for_each(|id| world.read(0, *id));
    }
    panic!("the greedy one is read first each time");
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

/// A message of QoS 1 or 2 is sent at QoS 0 to a subscription at QoS 0. Such a message waits in the output, as one that was
/// published at QoS 0 does.
#[test]
fn a_publisher_of_qos_1_is_not_read_while_its_subscriber_at_qos_0_is_full() {
    for (shards, retain) in [(1, false), (2, false), (1, true), (2, true)] {
        let mut world = World::new(shards);
        let subscriber = world.connect(shards - 1, Version::V3_1_1, "s");
        world.subscribe(subscriber, "t");
        world.socket(subscriber).stuck = true;
        let publisher = world.connect(0, Version::V3_1_1, "p");
        for number in 1..=100 {
            let packet_id = PacketId::new(number).expect("not 0");
            let delivery = Delivery::AtLeastOnce { packet_id, dup: false };
            let publish = Publish { delivery, retain, ..Publish::new(name("t"), SOME.as_bytes()) };
            world.send(publisher, &publish.into());
        }
        assert!(world.socket(publisher).paused, "{shards} shards, RETAIN {retain}");
        let waiting = world.socket(subscriber).sent.len();
        assert!(waiting < 2 * HIGH_WATER_BYTES, "{waiting} bytes, {shards} shards, RETAIN {retain}");
        let mut received = 0;
        while !world.socket(subscriber).sent.is_empty() {
            received += world.drain(subscriber).len();
        }
        assert_eq!(received, 100);
        assert_eq!(world.packets(publisher).len(), 100);
        world.assert_account();
    }
}

#[test]
fn a_publisher_whose_message_is_dropped_waits_for_its_full_subscriber_too() {
    let mut world = World::new(1);
    let subscriber = world.connect(0, Version::V3_1_1, "s");
    world.subscribe(subscriber, "t");
    world.socket(subscriber).stuck = true;
    let [first, second] = ["first", "second"].map(|name| world.connect(0, Version::V3_1_1, name));
    flood(&mut world, first, "t");
    world.outside[0].full = true;
    world.publish(second, "t", "dropped");
    assert!(world.socket(second).paused);
    assert_eq!(world.total(|counters| counters.dropped_budget.value()), 1);
    world.outside[0].full = false;
    world.drain(subscriber);
    assert!(!world.socket(second).paused);
    world.assert_account();
}

/// The topics of the other messages of a read change nothing, however many packets the read has.
#[test]
fn a_publisher_of_many_short_messages_is_not_read_while_one_of_its_subscribers_is_full() {
    let mut world = World::new(1);
    let subscriber = world.connect(0, Version::V3_1_1, "s");
    world.subscribe(subscriber, "t");
    world.socket(subscriber).stuck = true;
    let publisher = world.connect(0, Version::V3_1_1, "p");
    let packets = ["t", "u"].map(|topic| bytes(&Publish::new(name(topic), b"some").into(), Version::V3_1_1));
    let pair = packets.concat();
    for _ in 0..10 {
        world.feed(publisher, &pair.repeat(2_000));
    }
    assert!(world.socket(publisher).paused);
    let waiting = world.socket(subscriber).sent.len();
    assert!(waiting <= 2_000 * packets[0].len(), "{waiting} bytes");
    let mut received = 0;
    while !world.socket(subscriber).sent.is_empty() {
        received += world.drain(subscriber).len();
    }
    assert_eq!(received, 20_000);
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

/// Before MQTT 5 a client knows no Receive Maximum of the server: it is read again when half of it is answered.
#[test]
fn a_client_with_too_many_unanswered_messages_is_read_again_when_half_are_answered() {
    for version in [Version::V3_1, Version::V3_1_1] {
        let mut world = World::with(1, Settings { receive_max: 4, ..settings() });
        let publisher = world.connect(0, version, "publisher");
        for packet_id in 1..=9_u8 {
            // A retained message at QoS 1, which the ledger answers.
            world.feed_only(publisher, &[0x33, 6, 0, 1, b't', 0, packet_id, b'x']);
        }
        assert!(world.socket(publisher).paused, "MQTT {version}");
        for acknowledged in 0..3 {
            assert_eq!(world.packets(publisher).len(), usize::from(acknowledged > 0));
            assert!(world.socket(publisher).paused, "{acknowledged} of 5 are acknowledged in MQTT {version}");
            world.carry_command(0);
        }
        assert!(!world.socket(publisher).paused, "3 of 5 are acknowledged in MQTT {version}");
        world.settle();
        assert_eq!(world.packets(publisher).len(), 7, "every message is acknowledged");
    }
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

/// Number of messages behind a window of ten that is above the mark.
const TOO_MANY: u16 = 1_020;

fn small_windows(shards: usize) -> World {
    World::with(shards, Settings { inflight_max: 10, receive_max: 2 * TOO_MANY, ..settings() })
}

fn subscribe_once_at_least(world: &mut World, peer: Peer, filter: &str) {
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    world.subscribe_with(peer, filter, options, SubscribeProperties::default());
}

fn packet_id(number: u16) -> PacketId {
    PacketId::new(number).expect("not 0")
}

/// Publishes this number of messages at QoS 1, and returns how many of them are acknowledged.
fn publish_some(world: &mut World, publisher: Peer, topic: &str, count: u16) -> usize {
    for number in 1..=count {
        let delivery = Delivery::AtLeastOnce { packet_id: packet_id(number), dup: false };
        world.send(publisher, &Publish { delivery, ..Publish::new(name(topic), b"x") }.into());
    }
    world.packets(publisher).len()
}

#[test]
fn acknowledgements_do_not_wait_for_one_that_acknowledges_nothing_itself() {
    for shards in [1, 2] {
        let mut world = small_windows(shards);
        let stuck = world.connect(shards - 1, Version::V5, "stuck");
        subscribe_once_at_least(&mut world, stuck, "#");
        let quick = world.connect(0, Version::V5, "quick");
        world.subscribe(quick, "t");
        let publisher = world.connect(0, Version::V5, "p");
        let acknowledged = publish_some(&mut world, publisher, "t", TOO_MANY);
        assert!(acknowledged < usize::from(TOO_MANY), "the last ones are held back");
        world.wait(300);
        assert_eq!(acknowledged + world.packets(publisher).len(), usize::from(TOO_MANY));
        assert_eq!(world.total(|counters| counters.slow_subscribers.value()), 1);
        assert_eq!(publish_some(&mut world, publisher, "t", 100), 100, "nobody waits for it any more");
        assert_eq!(world.packets(quick).len(), usize::from(TOO_MANY) + 100);
        world.assert_account();
    }
}

#[test]
fn acknowledgements_wait_five_seconds_for_one_that_holds_nobody_else() {
    let mut world = small_windows(1);
    let stuck = world.connect(0, Version::V5, "stuck");
    subscribe_once_at_least(&mut world, stuck, "#");
    let publisher = world.connect(0, Version::V5, "p");
    publish_some(&mut world, publisher, "t", TOO_MANY);
    for _ in 0..45 {
        world.wait(100);
        publish_some(&mut world, publisher, "t", 1);
    }
    assert_eq!(world.total(|counters| counters.slow_subscribers.value()), 0);
    world.wait(600);
    assert_eq!(world.total(|counters| counters.slow_subscribers.value()), 1);
}

/// Bytes that are taken are no progress where nothing is acknowledged: it may be messages of QoS 0 that come.
#[test]
fn one_whose_window_is_full_is_judged_by_what_it_acknowledges() {
    let mut world = small_windows(1);
    let taking = world.connect(0, Version::V5, "taking");
    subscribe_once_at_least(&mut world, taking, "#");
    let quick = world.connect(0, Version::V5, "quick");
    world.subscribe(quick, "#");
    let publisher = world.connect(0, Version::V5, "p");
    publish_some(&mut world, publisher, "t", TOO_MANY);
    for _ in 0..3 {
        world.publish(publisher, "t", SOME);
        world.drain(taking);
        world.wait(100);
    }
    assert_eq!(world.total(|counters| counters.slow_subscribers.value()), 1);
}

#[test]
fn one_that_acknowledges_steadily_is_waited_for() {
    let mut world = small_windows(1);
    let steady = world.connect(0, Version::V5, "steady");
    subscribe_once_at_least(&mut world, steady, "t");
    let publisher = world.connect(0, Version::V5, "p");
    publish_some(&mut world, publisher, "t", TOO_MANY);
    for round in 0..100_u16 {
        world.send(steady, &PubAck::new(packet_id(round + 1), PubAckReason::Success).into());
        world.wait(100);
    }
    assert_eq!(world.total(|counters| counters.slow_subscribers.value()), 0);
}

/// The acknowledgements of a publisher wait for one subscriber, and then another subscriber is full.
#[test]
fn a_subscriber_that_is_not_behind_any_more_frees_nobody_who_waits_for_another() {
    let mut world = small_windows(1);
    let behind = world.connect(0, Version::V5, "behind");
    subscribe_once_at_least(&mut world, behind, "a");
    let full = world.connect(0, Version::V5, "full");
    world.subscribe(full, "t");
    world.socket(full).stuck = true;
    let publisher = world.connect(0, Version::V5, "p");
    let acknowledged = publish_some(&mut world, publisher, "a", TOO_MANY);
    assert!(acknowledged < usize::from(TOO_MANY), "the last ones are held back");
    let packet = |topic| bytes(&Publish::new(name(topic), SOME.as_bytes()).into(), Version::V5);
    let read = [packet("t").repeat(2 * HIGH_WATER_BYTES / SOME.len()), packet("another")].concat();
    world.feed(publisher, &read);
    for number in 1..TOO_MANY {
        world.send(behind, &PubAck::new(packet_id(number), PubAckReason::Success).into());
    }
    assert_eq!(acknowledged + world.packets(publisher).len(), usize::from(TOO_MANY));
    assert!(world.socket(publisher).paused);
    world.drain(full);
    assert!(!world.socket(publisher).paused);
}

/// Publishers do not go on for each message that is acknowledged, but when a quarter of what is too much is left.
#[test]
fn one_that_is_behind_by_bytes_is_so_until_a_quarter_is_left() {
    let mut world = World::with(1, Settings { inflight_max: 1, packet_bytes_max: 100_000, ..settings() });
    let reader = world.connect(0, Version::V5, "reader");
    subscribe_once_at_least(&mut world, reader, "t");
    let publisher = world.connect(0, Version::V5, "p");
    for number in 1..=7 {
        let delivery = Delivery::AtLeastOnce { packet_id: packet_id(number), dup: false };
        world.send(publisher, &Publish { delivery, ..Publish::new(name("t"), &[7; 60_000]) }.into());
    }
    let mut answers = world.packets(publisher).len();
    assert_eq!(answers, 5, "one is under way, and four wait: 240 of 256 KiB");
    // Six messages wait; after each acknowledgement one message fewer waits.
    for acknowledged in 1..=5 {
        world.send(reader, &PubAck::new(packet_id(acknowledged), PubAckReason::Success).into());
        answers += world.packets(publisher).len();
        assert_eq!(answers, if acknowledged < 5 { 5 } else { 7 }, "after {acknowledged}");
    }
}

/// One message may be longer than what makes a client behind.
#[test]
fn nobody_is_behind_because_of_a_few_messages_however_long_they_are() {
    let mut world = World::with(1, Settings { inflight_max: 1, packet_bytes_max: 400_000, ..settings() });
    let reader = world.connect(0, Version::V5, "reader");
    subscribe_once_at_least(&mut world, reader, "t");
    let publisher = world.connect(0, Version::V5, "p");
    let mut answers = 0;
    for number in 1..=7 {
        let delivery = Delivery::AtLeastOnce { packet_id: packet_id(number), dup: false };
        world.send(publisher, &Publish { delivery, ..Publish::new(name("t"), &[7; 300_000]) }.into());
        answers += world.packets(publisher).len();
    }
    assert_eq!(answers, 5, "one is under way, and four wait");
    // Six messages wait; after each acknowledgement one message fewer waits.
    for acknowledged in 1..=5 {
        world.send(reader, &PubAck::new(packet_id(acknowledged), PubAckReason::Success).into());
        answers += world.packets(publisher).len();
        assert_eq!(answers, if acknowledged < 5 { 5 } else { 7 }, "after {acknowledged}");
    }
}

/// However steadily it takes a little: what is waited for is its pace, and theirs is another.
#[test]
fn one_that_takes_a_little_does_not_set_the_pace_of_the_others() {
    for shards in [1, 2] {
        let mut world = World::new(shards);
        let trickling = world.connect(shards - 1, Version::V3_1_1, "trickling");
        let quick = world.connect(0, Version::V3_1_1, "quick");
        for peer in [trickling, quick] {
            world.subscribe(peer, "t");
        }
        world.socket(trickling).stuck = true;
        let publisher = world.connect(0, Version::V3_1_1, "p");
        flood(&mut world, publisher, "t");
        world.publish(publisher, "t", "noticed");
        for _ in 0..30 {
            world.take_some(trickling, 10);
            world.wait(50);
        }
        assert!(!world.socket(publisher).paused, "{shards} shards");
        assert_eq!(world.total(|counters| counters.slow_subscribers.value()), 1);
        // Alone it is waited for, whatever its pace.
        world.hang_up(quick);
        while !world.drain(trickling).is_empty() {}
        world.wait(200);
        flood(&mut world, publisher, "t");
        world.publish(publisher, "t", "noticed");
        for _ in 0..100 {
            world.take_some(trickling, 1);
            world.wait(50);
        }
        assert!(world.socket(publisher).paused, "{shards} shards");
    }
}
