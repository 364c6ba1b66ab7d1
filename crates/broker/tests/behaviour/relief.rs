//! Memory that is held by clients that do nothing: it comes back though nobody sends anything.

use base::{Budget, Purpose};
use session::Settings;
use wire::{
    Connect, Delivery, PacketId, PubRel, PubRelReason, Publish, PublishTopic, Qos, SubscribeProperties,
    SubscriptionOptions, TopicAlias, Version,
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

/// Another part of the process holds enough memory that new clients are refused.
fn make_tight(world: &World) -> base::Charge {
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

/// Many clients stop in the middle of a packet, until the beginnings take more than half of the memory.
fn crowd(world: &mut World, len: usize) -> Vec<Peer> {
    let shards = world.shards.len();
    let half = world.budget.limit_bytes() / 2;
    (0..half / len + 5)
        .map(|number| {
            let peer = world.connect(number % shards, Version::V5, &format!("idle {number}"));
            world.feed(peer, &beginning(len));
            peer
        })
        .collect()
}

/// A subscriber gets messages of 10 kB and acknowledges none.
fn leave_waiting(world: &mut World, publisher: Peer, subscriber: Peer, messages: usize) {
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    world.subscribe_with(subscriber, "t", options, SubscribeProperties::default());
    for _ in 0..messages {
        let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
        world.send(publisher, &Publish { delivery, ..Publish::new(name("t"), &[7; 10_000]) }.into());
    }
    world.unsubscribe(subscriber, "t");
}

fn open_among(world: &mut World, peers: &[Peer]) -> usize {
    peers.iter().filter(|peer| is_open(world, **peer)).count()
}

/// They never have to send anything: Keep Alive is off.
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
            assert!(!world.budget.is_tight(), "{:?}", world.budget);
        }
        assert!(comes(&mut world, "new"), "{:?}", world.budget);
        let held = world.budget.held_bytes(Purpose::Partials);
        assert!((MIB - 2 * 3_500..MIB + 2 * 3_500).contains(&held), "{held} of half of the memory");
        let left = open_among(&mut world, &idlers);
        assert!((290..310).contains(&left), "{left} of 400: no more are ended than there is need for");
        assert!(is_open(&mut world, idle), "a client that holds nothing stays");
        assert_eq!(world.total(|counters| counters.ended_memory.value()), 400 - left as u64);
    }
}

#[test]
fn beginnings_of_packets_take_half_of_the_memory_at_most() {
    let mut world = world(1, 2 * MIB);
    let senders: Vec<Peer> =
        (0..40).map(|number| world.connect(0, Version::V5, &format!("c{number}"))).collect();
    for peer in &senders {
        world.feed(*peer, &beginning(80_000));
        assert!(!world.budget.is_tight(), "{:?}", world.budget);
        assert!(is_open(&mut world, *peer), "the client that sends at the moment stays");
    }
    assert!(world.budget.held_bytes(Purpose::Partials) <= MIB + 80_000);
    assert!(comes(&mut world, "new"));
    let open: Vec<bool> = senders.iter().map(|peer| is_open(&mut world, *peer)).collect();
    assert!(!open[..25].contains(&true) && !open[30..].contains(&false), "{open:?}");
}

/// Clients that stop in the middle of a packet do not keep others from publishing large messages.
#[test]
fn a_large_packet_in_several_reads_is_taken_while_beginnings_take_half_of_the_memory() {
    for (shards, len) in [(1, 14_000), (2, 14_000), (1, 60_000)] {
        let mut world = world(shards, 2 * MIB);
        let innocent = world.connect(0, Version::V5, "innocent");
        crowd(&mut world, len);
        for payload_bytes in [30_000, 40_000, 90_000] {
            let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
            let payload = vec![7; payload_bytes];
            let packet =
                bytes(&Publish { delivery, ..Publish::new(name("t"), &payload) }.into(), Version::V5);
            for read in packet.chunks(20_000) {
                world.feed(innocent, read);
                world.wait(100);
                // More of the others come.
                let late = world.connect(0, Version::V5, "late");
                world.feed(late, &beginning(len));
                assert!(!world.budget.is_tight(), "{:?}", world.budget);
            }
            assert_eq!(world.packets(innocent), ["PUBACK id=1 No matching subscribers"], "{payload_bytes}");
        }
    }
}

/// The memory that a subscriber holds is not what there is too much of.
#[test]
fn a_slow_subscriber_stays_while_only_beginnings_of_packets_are_too_many() {
    let mut world = World::with_budget(1, Settings { inflight_max: 1, ..settings() }, Budget::new(2 * MIB));
    let (publisher, slow) = (world.connect(0, Version::V5, "p"), world.connect(0, Version::V5, "slow"));
    leave_waiting(&mut world, publisher, slow, 6);
    crowd(&mut world, 14_000);
    for number in 0..20 {
        let late = world.connect(0, Version::V5, &format!("late {number}"));
        world.feed(late, &beginning(14_000));
        world.wait(1_000);
    }
    assert!(is_open(&mut world, slow));
}

/// When memory is short, a client that stands in the middle of a packet is ended before a subscriber that takes its time,
/// however small the packet is.
#[test]
fn clients_that_stand_in_the_middle_of_a_packet_are_ended_first() {
    let mut world = World::with_budget(1, Settings { inflight_max: 1, ..settings() }, Budget::new(4 * MIB));
    let (publisher, slow) = (world.connect(0, Version::V5, "p"), world.connect(0, Version::V5, "slow"));
    leave_waiting(&mut world, publisher, slow, 8);
    let idle: Vec<Peer> =
        (0..60).map(|number| world.connect(0, Version::V5, &format!("c{number}"))).collect();
    idle.iter().for_each(|peer| world.feed(*peer, &beginning(9_000)));
    let _tight = make_tight(&world);
    world.wait(20_000);
    assert!(is_open(&mut world, slow));
    assert!((1..60).contains(&open_among(&mut world, &idle)));
}

/// Also if both shards look at the same moment, and what ended clients held comes back only later, as that of outputs
/// does.
#[test]
fn all_shards_together_end_no_more_than_is_wanted() {
    const BYTES: usize = 3_000;
    let mut world = world(2, 4 * MIB);
    for number in 0..400 {
        let peer = world.connect(number % 2, Version::V5, &format!("c{number}"));
        world.feed(peer, &beginning(BYTES));
    }
    let limit = world.budget.limit_bytes();
    let _full = world.budget.charge(Purpose::Outputs, limit - world.budget.used_bytes());
    let ended = |world: &World| {
        usize::try_from(world.total(|counters| counters.ended_memory.value())).expect("a count")
    };
    for _ in 0..160 {
        let _lingering = world.budget.charge(Purpose::Outputs, ended(&world) * BYTES);
        world.wait(50);
    }
    let wanted = limit / 16 * 3 / BYTES;
    assert!((wanted..wanted + 3).contains(&ended(&world)), "{} instead of {wanted}", ended(&world));
    world.wait(10_000);
    assert!((wanted..wanted + 3).contains(&ended(&world)), "memory is not short any more");
    assert!(comes(&mut world, "new"));
}

/// Topic aliases have their share too: nobody is refused because of them, and small ones can always be set up.
#[test]
fn topic_aliases_take_half_of_the_memory_at_most() {
    let mut world = world(1, 2 * MIB);
    let set_up = |world: &mut World, peer: Peer, alias, topic: &str| {
        let topic = PublishTopic::NameWithAlias(name(topic), TopicAlias::new(alias).expect("not 0"));
        world.send(peer, &Publish { topic, ..Publish::new(name("t"), b"x") }.into());
    };
    let modest = world.connect(0, Version::V5, "modest");
    let greedy: Vec<Peer> =
        (0..40).map(|number| world.connect(0, Version::V5, &format!("c{number}"))).collect();
    for peer in &greedy {
        for alias in [1, 2] {
            set_up(&mut world, *peer, alias, &"a".repeat(40_000));
            assert!(!world.budget.is_tight(), "{:?}", world.budget);
        }
    }
    assert!(world.budget.held_bytes(Purpose::Inbound) <= MIB + 40_000, "{:?}", world.budget);
    let open = greedy.iter().filter(|peer| is_open(&mut world, **peer)).count();
    assert_eq!(open, 13, "the others were ended when they set up another");
    assert!(comes(&mut world, "new"));
    [1, 2].into_iter().for_each(|alias| set_up(&mut world, modest, alias, "a/usual/topic"));
    assert!(is_open(&mut world, modest));
}

/// The largest first: what the others hold may stay.
#[test]
fn the_largest_holder_that_stands_still_is_ended_first() {
    let mut world = world(1, MIB);
    let mut begin = |number: usize, len| {
        let peer = world.connect(0, Version::V5, &format!("c{number}"));
        world.feed(peer, &beginning(len));
        peer
    };
    let small: Vec<Peer> = (0..20).map(|number| begin(number, 14_000)).collect();
    let [large, medium] = [(36, 80_000), (37, 79_000)].map(|(number, len)| begin(number, len));
    let kept = world.budget.limit_bytes() / 16 * 14;
    let tight = world.budget.charge(Purpose::Outputs, kept + 10_000 - world.budget.used_bytes());
    let wanted = world.budget.used_bytes() - world.budget.limit_bytes() / 16 * 13;
    assert!((60_000..80_000).contains(&wanted), "{wanted}: the largest is enough");
    world.wait(20_000);
    assert!(!is_open(&mut world, large) && is_open(&mut world, medium));
    assert!(small.iter().all(|peer| is_open(&mut world, *peer)));
    drop(tight);
}

/// A packet that goes on keeps its place while others stop, however many begin one.
#[test]
fn the_beginning_that_has_not_grown_for_longest_makes_room() {
    let mut world = world(1, MIB);
    let [slow, trickling, still] =
        ["slow", "trickling", "still"].map(|who| world.connect(0, Version::V5, who));
    let packet = beginning(90_000);
    [slow, trickling, still].into_iter().for_each(|peer| world.feed(peer, &packet[..2_000]));
    for number in 0..80 {
        world.feed(slow, &packet[2_000 + number * 1_024..2_000 + (number + 1) * 1_024]);
        world.feed(trickling, &packet[..5]);
        let late = world.connect(0, Version::V5, &format!("c{number}"));
        world.feed(late, &beginning(15_000));
    }
    assert!(is_open(&mut world, slow));
    assert!(!is_open(&mut world, trickling) && !is_open(&mut world, still));
}

/// When memory is short a packet in the middle gives way to one that goes on; a packet that finds none is refused.
#[test]
fn when_memory_is_short_a_packet_that_goes_on_displaces_one_that_does_not() {
    let mut world = world(1, 2 * MIB);
    let [first, second, third] = ["first", "second", "third"].map(|who| world.connect(0, Version::V5, who));
    world.feed(first, &beginning(30_000));
    let _tight = make_tight(&world);
    world.feed(second, &beginning(25_000));
    assert!(!is_open(&mut world, first) && is_open(&mut world, second));
    world.feed(third, &beginning(60_000));
    assert!(is_open(&mut world, second) && !is_open(&mut world, third), "there is too little to displace");
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

/// QoS 2 of MQTT 3.1.1 has no Receive Maximum. A client that once had many open exchanges is not worse than others.
#[test]
fn a_client_that_has_ended_its_exchanges_is_not_ended_for_them() {
    let mut world = world(1, MIB);
    let [idle, busy, stuck] = ["idle", "busy", "stuck"].map(|who| world.connect(0, Version::V3_1_1, who));
    let packet_id = |number| PacketId::new(number).expect("not 0");
    for peer in [idle, busy, stuck] {
        for number in 1..=4_000 {
            let delivery = Delivery::ExactlyOnce { packet_id: packet_id(number), dup: false };
            world.send(peer, &Publish { delivery, ..Publish::new(name("t"), b"x") }.into());
        }
        let open = u16::from(peer != idle) * 4_000;
        for number in (1..=4_000).filter(|number| *number > open) {
            world.send(peer, &PubRel::new(packet_id(number), PubRelReason::Success).into());
        }
    }
    let tight = make_tight(&world);
    for number in 0..20 {
        world.wait(1_000);
        world.send(busy, &PubRel::new(packet_id(1 + number), PubRelReason::Success).into());
    }
    assert!(is_open(&mut world, idle) && is_open(&mut world, busy) && !is_open(&mut world, stuck));
    drop(tight);
    world.assert_account();
}

/// The memory for topic aliases of a client is freed with the client, although it sends nothing more.
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
    leave_waiting(&mut world, publisher, stuck, 4);
    leave_waiting(&mut world, publisher, well, 1);
    let tight = make_tight(&world);
    world.wait(7_000);
    assert!(!is_open(&mut world, stuck) && is_open(&mut world, well));
    drop(tight);
    world.assert_account();
}

/// Above 14/16 durable work is refused. Clients that do nothing must not have that effect either.
#[test]
fn memory_of_idle_clients_does_not_keep_others_from_durable_work() {
    let mut world = world(1, MIB);
    let mut lasting = Connect::new(Version::V5, utf8("lasting"));
    lasting.properties.session_expiry_interval_secs = Some(1_000);
    let comes_to_stay = |world: &mut World| {
        let peer = world.accept(0, Version::V5);
        world.send(peer, &lasting.into());
        world.packets(peer)[0].starts_with("CONNACK Success")
    };
    let idle = world.connect(0, Version::V5, "idle");
    world.feed(idle, &beginning(40_000));
    let kept = world.budget.limit_bytes() / 16 * 14;
    let others = world.budget.charge(Purpose::Outputs, kept + 10_000 - world.budget.used_bytes());
    assert!(!world.budget.is_tight() && !comes_to_stay(&mut world));
    world.wait(10_000);
    assert!(!is_open(&mut world, idle) && comes_to_stay(&mut world), "{:?}", world.budget);
    drop(others);
}

/// Also where each beginning takes less than its connection.
#[test]
fn small_beginnings_of_packets_lock_nobody_out() {
    let mut world = world(1, MIB);
    let idle: Vec<Peer> = (0..400)
        .map(|number| {
            let peer = world.connect(0, Version::V5, &format!("c{number}"));
            world.feed(peer, &beginning(500));
            peer
        })
        .collect();
    let _tight = make_tight(&world);
    assert!(!comes(&mut world, "new"));
    world.wait(10_000);
    assert!(comes(&mut world, "new"), "{:?}", world.budget);
    let open = open_among(&mut world, &idle);
    assert!((200..350).contains(&open), "{open}: no more are ended than there is need for");
}

/// Subscribes to filters of 100 bytes, and returns how many were granted until one was refused.
fn subscribe_to_many(world: &mut World, peer: Peer) -> usize {
    let granted = |world: &mut World, number: usize| {
        let filter = format!("{number:0100}");
        !world.subscribe(peer, &filter)[0].contains("Quota")
    };
    (0..10_000).take_while(|number| granted(world, *number)).count()
}

/// No client is ended for its subscriptions, so they must leave room.
#[test]
fn subscriptions_leave_room_for_others() {
    const BYTES: usize = 600;
    let settings = Settings { subscriptions_max: 100_000, ..settings() };
    let mut world = World::with_budget(1, settings, Budget::new(MIB));
    let peers = ["first", "second", "third"].map(|who| world.connect(0, Version::V5, who));
    let eighth = MIB / 8 / BYTES;
    let granted = peers.map(|peer| subscribe_to_many(&mut world, peer));
    let few = Budget::WAITING_BYTES_ALLOWED / BYTES;
    assert!(granted[0].abs_diff(eighth) < 3 && granted[1].abs_diff(eighth) < 10, "{granted:?}");
    assert!(granted[2].abs_diff(few) < 20, "{granted:?}: a few are always possible");
    assert!(peers.into_iter().all(|peer| is_open(&mut world, peer)));
    assert!(world.total(|counters| counters.refused_subscriptions_memory.value()) >= 3);
    assert!(world.budget.used_bytes() < MIB / 2, "{:?}", world.budget);
}

/// Messages of the ledger's queue for which the output of the client has no room are held for that client, as others are.
#[test]
fn messages_that_wait_for_room_in_an_output_are_given_back() {
    let mut world = world(1, MIB);
    let publisher = world.connect(0, Version::V5, "publisher");
    let reader = world.accept(0, Version::V3_1_1);
    let mut connect = Connect::new(Version::V3_1_1, utf8("reader"));
    connect.clean_start = false;
    world.send(reader, &connect.into());
    world.outside[0].full = true;
    leave_waiting(&mut world, publisher, reader, 3);
    let _held = make_tight(&world);
    world.wait(10_000);
    assert!(!is_open(&mut world, reader), "it holds memory and makes no progress");
    assert_eq!(world.total(|counters| counters.ended_memory.value()), 1);
}

/// A route has an entry for each subscriber. Without it, the next message costs a look-up.
#[test]
fn a_route_with_many_subscribers_is_kept_for_the_next_message_unless_memory_is_short() {
    let mut world = World::with_budget(1, settings(), Budget::new(16 * MIB));
    for number in 0..500 {
        let peer = world.connect(0, Version::V3_1_1, &format!("newt-{number}"));
        world.subscribe(peer, "wide");
    }
    let lonely = world.connect(0, Version::V3_1_1, "lonely");
    world.subscribe(lonely, "narrow");
    let publisher = world.connect(0, Version::V3_1_1, "frog");
    let routes_after = |world: &mut World, topic: &str| {
        world.publish(publisher, topic, "croak");
        world.budget.held_bytes(Purpose::Routes)
    };
    assert!(routes_after(&mut world, "wide") > 4_096);
    let tight = make_tight(&world);
    assert_eq!(routes_after(&mut world, "wide"), 0);
    let narrow = routes_after(&mut world, "narrow");
    assert!((1..4_096).contains(&narrow), "a small one is kept: {narrow} B");
    drop(tight);
    assert!(routes_after(&mut world, "wide") > 4_096);
}
