//! SUBSCRIBE and UNSUBSCRIBE with very many filters: a bounded number of them is taken in a turn.

use base::Purpose;
use session::Settings;
use topic::TopicFilter;
use wire::{
    Connect, ConnectProperties, OneOrMore, PacketId, Qos, RequestedFilter, Subscribe, SubscribeProperties,
    Subscription, Unsubscribe, UnsubscribeProperties, Version,
};

use crate::world::{Peer, World, bytes, settings, utf8};

const FILTERS: usize = 20_000;
/// Maximum number of filters that a turn handles: of packets that it has just read, and of packets that wait.
const FILTERS_PER_TURN: usize = 1_024;

fn world() -> World {
    let all = Settings { subscriptions_max: 100_000, packet_bytes_max: 2 << 20, ..settings() };
    World::with(1, all)
}

fn names(prefix: &str) -> Vec<String> {
    (0..FILTERS).map(|number| format!("{prefix}{number}")).collect()
}

fn subscribe(names: &[String], version: Version) -> Vec<u8> {
    let filter = |name| TopicFilter::new(name).expect("a filter");
    let all = names.iter().map(|name| Subscription::with_qos(filter(name), Qos::AtMostOnce));
    let all: Vec<Subscription<'_>> = all.collect();
    let subscriptions = OneOrMore::new(&all).expect("at least one");
    let properties = SubscribeProperties::default();
    bytes(&Subscribe { packet_id: PacketId::MIN, properties, subscriptions }.into(), version)
}

fn unsubscribe(names: &[String], version: Version) -> Vec<u8> {
    let all: Vec<RequestedFilter<'_>> =
        names.iter().map(|name| Ok(TopicFilter::new(name).expect("a filter"))).collect();
    let filters = OneOrMore::new(&all).expect("at least one");
    let properties = UnsubscribeProperties::default();
    bytes(&Unsubscribe { packet_id: PacketId::MIN, properties, filters }.into(), version)
}

/// A login costs more than a short packet.
#[test]
fn a_connect_counts_for_a_turn_as_many_short_packets() {
    let mut world = world();
    let steps = |world: &World| world.shards[0].steps();
    let peer = world.connect(0, Version::V5, "frog");
    assert_eq!(steps(&world), 128);
    world.feed_only(peer, PING);
    assert_eq!(steps(&world), 129);
}

const PING: &[u8] = b"\xC0\x00";

/// Turn after turn, until nothing is left to do. Returns how many turns that took, and how many subscriptions came or
/// went in the one that changed most.
fn turn_by_turn(world: &mut World, others: &[Peer]) -> (usize, usize) {
    let (mut turns, mut most) = (0, 0);
    let mut before = world.subscriptions();
    while world.has_work() {
        for other in others {
            world.feed_only(*other, PING);
            assert_eq!(world.packets(*other), ["PINGRESP"], "others are served in each turn");
        }
        world.carry_commands();
        let now = world.subscriptions();
        most = most.max(now.abs_diff(before));
        (before, turns) = (now, turns + 1);
        assert!(turns < 10 * FILTERS, "there is an end");
    }
    (turns, most)
}

fn count_codes(packet: &str) -> usize {
    packet.split(", ").count()
}

#[test]
fn the_filters_of_one_packet_are_taken_in_over_many_turns_and_answered_together() {
    for version in [Version::V3_1, Version::V3_1_1, Version::V5] {
        for prefix in ["t/", "$share/g/"] {
            let mut world = world();
            let [greedy, other] = ["greedy", "other"].map(|name| world.connect(0, version, name));
            let names = names(prefix);
            world.feed_only(greedy, &[&subscribe(&names, version), PING].concat());
            assert!(world.packets(greedy).is_empty(), "neither SUBACK nor what stands behind it");
            assert!(world.budget.held_bytes(Purpose::Partials) > 0, "what waits is on the account");
            let (turns, most) = turn_by_turn(&mut world, &[other]);
            assert!(most <= FILTERS_PER_TURN, "{most} in one turn");
            assert!(turns >= FILTERS / FILTERS_PER_TURN, "{turns} turns");
            world.settle();
            assert_eq!(world.subscriptions(), FILTERS);
            assert_eq!(world.budget.held_bytes(Purpose::Partials), 0);
            let answers = world.packets(greedy);
            let [suback, pong] = &answers[..] else { panic!("{} packets", answers.len()) };
            assert!(suback.starts_with("SUBACK") && pong == "PINGRESP", "{pong}");
            assert_eq!(count_codes(suback), FILTERS);

            world.feed_only(greedy, &[&unsubscribe(&names, version), PING].concat());
            let (_, most) = turn_by_turn(&mut world, &[other]);
            assert!(most <= FILTERS_PER_TURN, "{most} in one turn");
            world.settle();
            assert_eq!(world.subscriptions(), 0);
            let answers = world.packets(greedy);
            let [unsuback, _] = &answers[..] else { panic!("{} packets", answers.len()) };
            assert!(!version.is_5() || count_codes(unsuback) == FILTERS);
        }
    }
}

/// A lasting session with very many subscriptions that its client comes back to, and leaves again: the shard takes in, and
/// forgets, a bounded number of them a turn, and others are served in each. Packets behind CONNECT wait.
#[test]
fn a_session_with_many_subscriptions_comes_and_goes_over_many_turns() {
    let mut world = world();
    let names = names("t/");
    let other = world.connect(0, Version::V5, "other");
    let first = come(&mut world);
    world.feed(first, &subscribe(&names, Version::V5));
    world.hang_up(first);
    let held = |world: &World| world.budget.held_bytes(Purpose::Subscriptions);
    let away = held(&world);
    world.publish_retained(other, "t/7", "retained");
    let back = world.accept(0, Version::V5);
    world.feed_only(back, &[&connect(), PING].concat());
    let (turns, most) = count_changes(&mut world, other, held);
    assert!(turns >= FILTERS / 1_000, "{turns} turns");
    assert!(most <= 1_000 * BYTES_MAX, "{most} bytes of filters in a turn");
    let present = held(&world);
    assert!(present > away);
    let got = world.packets(back);
    assert!(got[0].starts_with("CONNACK Success session-present"), "{}", got[0]);
    assert!(got[1..].iter().any(|packet| packet == "PINGRESP"), "{got:?}");
    world.publish(other, "t/9", "live");
    assert!(world.packets(back).iter().any(|packet| packet.contains("live")));
    world.close_only(back);
    // Three turns of the shard are counted together.
    let (turns, _) = count_changes(&mut world, other, held);
    assert!(turns >= FILTERS / 3_000, "{turns} turns");
    assert_eq!(held(&world), away);
    // It comes and goes once more, before all is told.
    let third = world.accept(0, Version::V5);
    world.feed_only(third, &connect());
    (0..3).for_each(|_| assert!(world.carry_commands()));
    world.close_only(third);
    count_changes(&mut world, other, held);
    assert_eq!(held(&world), away);
    assert_eq!(world.subscriptions(), FILTERS);
}

/// A subscription to one of the names takes no more on the account.
const BYTES_MAX: usize = 256;

/// CONNECT of a session that lasts.
fn connect() -> Vec<u8> {
    let properties =
        ConnectProperties { session_expiry_interval_secs: Some(100), ..ConnectProperties::default() };
    let mut connect = Connect::new(Version::V5, utf8("many subscriptions"));
    (connect.clean_start, connect.properties) = (false, properties);
    bytes(&connect.into(), Version::V5)
}

fn come(world: &mut World) -> Peer {
    let peer = world.accept(0, Version::V5);
    world.feed(peer, &connect());
    assert!(world.packets(peer)[0].starts_with("CONNACK Success"));
    peer
}

/// Turn after turn, until nothing is left to do. Returns how many turns that took, and by how much `held` has changed in the
/// one that changed most.
fn count_changes(world: &mut World, other: Peer, held: impl Fn(&World) -> usize) -> (usize, usize) {
    let (mut turns, mut most, mut before) = (0, 0, held(world));
    while world.has_work() {
        world.feed_only(other, PING);
        assert_eq!(world.packets(other), ["PINGRESP"], "others are served in each turn");
        world.carry_commands();
        world.read_again();
        let now = held(world);
        most = most.max(now.abs_diff(before));
        (before, turns) = (now, turns + 1);
        assert!(turns < 10 * FILTERS, "there is an end");
    }
    (turns, most)
}

/// Copies of shared filters wait for the answer of the ledger: they are on the account until then, or until the connection
/// ends.
#[test]
fn filters_that_wait_for_the_ledger_are_on_the_account() {
    let held = |world: &World| world.budget.held_bytes(Purpose::Subscriptions);
    for is_answered in [true, false] {
        let mut world = world();
        let client = world.connect(0, Version::V5, "client");
        let before = held(&world);
        let filter = format!("$share/g/{}", "long".repeat(1_000));
        // Twice the same: it has one subscription, and two copies until both are answered.
        for _ in 0..2 {
            world.feed_only(client, &subscribe(std::slice::from_ref(&filter), Version::V5));
        }
        let asked = held(&world);
        if is_answered {
            world.settle();
            assert_eq!(world.packets(client).len(), 2);
            // The memory that stays is charged by the shard and by the ledger.
            assert!(asked - before > 8 * filter.len() && held(&world) - before <= 7 * filter.len());
            world.feed(client, &unsubscribe(std::slice::from_ref(&filter), Version::V5));
        }
        world.hang_up(client);
        world.settle();
        assert_eq!(held(&world), before, "answered: {is_answered}");
        assert_eq!(world.subscriptions(), 0);
    }
}

#[test]
fn many_packets_in_one_read_are_taken_in_over_many_turns() {
    let mut world = world();
    let greedy = world.connect(0, Version::V5, "greedy");
    let other = world.connect(0, Version::V5, "other");
    let packets: Vec<Vec<u8>> =
        names("t/").iter().map(|name| subscribe(std::slice::from_ref(name), Version::V5)).collect();
    world.feed_only(greedy, &packets.concat());
    assert!(world.subscriptions() <= FILTERS_PER_TURN);
    let (mut before, mut most) = (world.subscriptions(), 0);
    while world.subscriptions() < FILTERS {
        world.feed_only(other, PING);
        world.carry_commands();
        world.read_again();
        most = most.max(world.subscriptions() - before);
        before = world.subscriptions();
    }
    assert!(most <= 2 * FILTERS_PER_TURN, "{most} in one turn, or two");
    world.settle();
    assert_eq!(world.packets(greedy).len(), FILTERS);
}

/// Each short packet is a command. While the ledger does not run, a client that sends them one at a time waits.
#[test]
fn short_packets_wait_until_the_ledger_has_read_its_commands() {
    for ends in [false, true] {
        let mut world = world();
        let peer = come(&mut world);
        world.outside[0].commands_max = Some(10);
        let before = world.outside[0].commands.len();
        for number in 0..300 {
            let names = [format!("t/{number}")];
            let packet = if ends { unsubscribe(&names, Version::V5) } else { subscribe(&names, Version::V5) };
            world.feed_only(peer, &packet);
        }
        // A subscription also asks for what is retained.
        let commands = world.outside[0].commands.len() - before;
        assert!(commands <= 12, "{commands} commands");
        let mut answers = Vec::new();
        while answers.len() < 300 {
            let (shard, outside) = (&mut world.shards[0], &mut world.outside[0]);
            outside.commands_max = None;
            shard.ledger_resumed(world.now, outside);
            shard.end_turn(world.now, outside);
            world.settle();
            let more = world.packets(peer);
            assert!(!more.is_empty(), "it goes on");
            answers.extend(more);
        }
        let expected = if ends { "UNSUBACK" } else { "SUBACK" };
        assert!(answers.iter().all(|answer| answer.starts_with(expected)), "{answers:?}");
        assert_eq!(world.subscriptions(), if ends { 0 } else { 300 });
    }
}

/// The DISCONNECT behind a packet that waits for the ledger waits too. A client that hangs up takes its packet with it.
#[test]
fn the_end_of_a_connection_comes_behind_a_packet_that_waits_for_the_ledger() {
    for hangs_up in [false, true] {
        let mut world = world();
        let peer = come(&mut world);
        world.feed(peer, &subscribe(&["t".to_owned()], Version::V5));
        world.outside[0].ledger_is_over = true;
        world.feed_only(peer, PING);
        let disconnect = [0xE0, 0];
        world.feed_only(peer, &[&unsubscribe(&["t".to_owned()], Version::V5)[..], &disconnect].concat());
        assert!(!world.socket(peer).closed && world.subscriptions() == 1);
        if hangs_up {
            world.close(peer);
        }
        let (shard, outside) = (&mut world.shards[0], &mut world.outside[0]);
        outside.ledger_is_over = false;
        shard.ledger_resumed(world.now, outside);
        shard.end_turn(world.now, outside);
        world.settle();
        assert!(world.socket(peer).closed && !world.has_work());
        assert_eq!(world.subscriptions(), usize::from(hangs_up));
        assert_eq!(world.budget.held_bytes(Purpose::Partials), 0);
    }
}

#[test]
fn the_records_of_one_packet_are_committed_in_groups_that_are_bounded() {
    let mut world = world();
    let peer = world.accept(0, Version::V5);
    let mut connect = wire::Connect::new(Version::V5, crate::world::utf8("lasting"));
    connect.properties.session_expiry_interval_secs = Some(3_600);
    world.send(peer, &connect.into());
    world.packets(peer);
    world.feed(peer, &subscribe(&names("t/"), Version::V5));
    // A filter is recorded with its cursor over what is retained, and a group with its name.
    assert!(world.records_max <= 3 * FILTERS_PER_TURN, "{} records in one group", world.records_max);
    let answers = world.packets(peer);
    assert_eq!(answers.iter().map(|packet| count_codes(packet)).sum::<usize>(), FILTERS);
    world.feed(peer, &unsubscribe(&names("t/"), Version::V5));
    assert_eq!(world.subscriptions(), 0);
    assert!(world.records_max <= 3 * FILTERS_PER_TURN, "{} records in one group", world.records_max);
}

#[test]
fn a_client_that_leaves_during_subscribe_leaves_nothing_behind() {
    for lasts in [false, true] {
        let mut world = world();
        let peer = world.accept(0, Version::V5);
        let mut connect = wire::Connect::new(Version::V5, crate::world::utf8("leaves"));
        connect.properties.session_expiry_interval_secs = lasts.then_some(1);
        world.send(peer, &connect.into());
        world.feed_only(peer, &subscribe(&names("t/"), Version::V5));
        world.end_turn(0);
        world.hang_up(peer);
        world.wait(3_000);
        assert_eq!(world.subscriptions(), 0);
        assert_eq!(world.budget.held_bytes(Purpose::Partials), 0);
        assert_eq!(world.budget.held_bytes(Purpose::Subscriptions), 0);
    }
}

/// Its filters, and its cursors over retained messages that it did not take.
#[test]
fn filters_and_cursors_of_a_client_that_has_left_are_freed_over_many_turns() {
    /// Pieces that a turn frees.
    const PIECES_PER_TURN: usize = 128;
    for lasts in [false, true] {
        let mut world = world();
        let publisher = world.connect(0, Version::V5, "publisher");
        let names = names("t/");
        names.iter().for_each(|name| world.publish_retained(publisher, name, "x"));
        let peer = world.accept(0, Version::V5);
        let mut connect = wire::Connect::new(Version::V5, crate::world::utf8("leaves"));
        connect.properties.session_expiry_interval_secs = lasts.then_some(3_600);
        world.send(peer, &connect.into());
        world.socket(peer).stuck = true;
        world.feed(peer, &subscribe(&names, Version::V5));
        assert_eq!(world.subscriptions(), FILTERS);
        world.close(peer);
        let mut turns = 0;
        while world.shards[0].has_work() {
            world.end_turn(0);
            turns += 1;
        }
        // A few cursors have come to their ends.
        let least = (2 * FILTERS - 100) / PIECES_PER_TURN;
        assert!(turns >= least, "{turns} turns, lasts: {lasts}");
        world.settle();
        assert_eq!(world.subscriptions(), if lasts { FILTERS } else { 0 });
    }
}

#[test]
fn the_ledger_has_a_bounded_number_of_cursors_to_open_for_all_clients_of_a_shard() {
    /// The bound, and the filters that two turns add.
    const COMMANDS_MAX: usize = 1_000 + 4 * 256;
    let mut world = world();
    let [greedy, other] = ["greedy", "other"].map(|name| world.connect(0, Version::V5, name));
    world.feed_only(greedy, &subscribe(&names("t/"), Version::V5));
    let single = |name: &String| subscribe(std::slice::from_ref(name), Version::V5);
    world.feed_only(other, &names("s/").iter().flat_map(single).collect::<Vec<u8>>());
    for _ in 0..100 {
        world.end_turn(0);
        assert!(world.commands(0) <= COMMANDS_MAX, "{} commands", world.commands(0));
    }
    assert!(!world.shards[0].has_work(), "it waits for the ledger without turning");
    world.settle();
    assert_eq!(world.subscriptions(), 2 * FILTERS);
    assert_eq!((world.packets(greedy).len(), world.packets(other).len()), (1, FILTERS));
}

/// The topic levels of the filters below, of which each has another shape.
fn of_shape(number: usize) -> String {
    let level = |bit: usize| if number >> bit & 1 == 1 { "+" } else { "a" };
    let levels: Vec<&str> = (0..8).map(level).collect();
    levels.join("/")
}

#[test]
fn one_client_cannot_use_up_the_arrangements_of_wildcards_that_are_there_for_all() {
    let all =
        Settings { deep_shapes_max: 20, deep_shapes_per_client_max: 5, subscriptions_max: 100, ..settings() };
    let mut world = World::with(1, all);
    let greedy = world.connect(0, Version::V5, "greedy");
    let granted = |answer: Vec<String>| answer[0].starts_with("SUBACK id=1 Granted");
    let count = (1..=30).filter(|number| granted(world.subscribe(greedy, &of_shape(*number)))).count();
    assert_eq!(count, 5);
    assert_eq!(world.total(|counters| counters.refused_subscriptions_shapes.value()), 25);
    let other = world.connect(0, Version::V5, "other");
    assert!(granted(world.subscribe(other, &of_shape(40))), "there is room for others");
    assert!(granted(world.subscribe(greedy, &of_shape(1).replace('a', "b"))), "it has this one already");
    assert!(granted(world.subscribe(greedy, "a/b/+/c")), "it is not deep");
    assert!(!granted(world.subscribe(greedy, &of_shape(40))), "it is another's, and would be its own");
    world.unsubscribe(greedy, &of_shape(1));
    assert!(!granted(world.subscribe(greedy, &of_shape(41))), "another filter has the same");
    world.unsubscribe(greedy, &of_shape(2));
    assert!(granted(world.subscribe(greedy, &of_shape(41))), "who gives one back has room for another");
    for number in 0..3 {
        let peer = world.connect(0, Version::V5, &format!("one of many {number}"));
        (50..100).for_each(|shape| drop(world.subscribe(peer, &of_shape(10 * number + shape))));
    }
    let last = world.connect(0, Version::V5, "last");
    assert!(!granted(world.subscribe(last, &of_shape(200))), "all together have as many as they may");
}

#[test]
fn many_filters_of_one_arrangement_are_one_arrangement() {
    let all = Settings { deep_shapes_max: 20, subscriptions_max: 1_000, ..settings() };
    let mut world = World::with(1, all);
    let names: Vec<String> = (0..100).map(|number| of_shape(1).replace('a', &number.to_string())).collect();
    let shared = names.iter().map(|name| format!("$share/g/{name}")).collect();
    for (who, names) in [("plain", names), ("shared", shared)] {
        let client = world.connect(0, Version::V5, who);
        world.feed(client, &subscribe(&names, Version::V5));
        let suback = world.packets(client).remove(0);
        assert_eq!(suback.matches("Granted").count(), 100, "{suback}");
    }
    assert_eq!((world.subscriptions(), world.total(|c| c.refused_subscriptions_shapes.value())), (200, 0));
}

/// The ledger has not answered yet: the index does not know the filters.
#[test]
fn shared_filters_of_several_turns_have_no_more_arrangements_than_all_may() {
    let all = Settings { deep_shapes_max: 20, subscriptions_max: 1_000, ..settings() };
    let mut world = World::with(1, all);
    let clients: Vec<Peer> =
        (0..4).map(|number| world.connect(0, Version::V5, &format!("c{number}"))).collect();
    for (client, first) in clients.iter().zip([1, 11, 21, 31]) {
        let names: Vec<String> =
            (first..first + 10).map(|number| format!("$share/g/{}", of_shape(number))).collect();
        world.feed_only(*client, &subscribe(&names, Version::V5));
    }
    // One of them goes before the ledger answers: others may have its arrangements.
    world.hang_up(clients[0]);
    world.settle();
    let granted: usize =
        clients[1..].iter().map(|client| world.packets(*client)[0].matches("Granted").count()).sum();
    assert_eq!(granted, 10);
    let names: Vec<String> = (51..81).map(|number| format!("$share/g/{}", of_shape(number))).collect();
    world.feed(clients[3], &subscribe(&names, Version::V5));
    assert_eq!(world.packets(clients[3])[0].matches("Granted").count(), 10, "nothing is pending any more");
}

/// The cost is that of their bytes: each turn takes out about 256 KB of filters.
#[test]
fn the_filters_of_a_client_that_has_left_go_over_many_turns() {
    let mut world = World::with(1, Settings { subscriptions_max: 1_000, ..settings() });
    let [greedy, other] = ["greedy", "other"].map(|name| world.connect(0, Version::V5, name));
    for number in 0..40 {
        world.feed(greedy, &subscribe(&[format!("{number}/{}", "a".repeat(30_000))], Version::V5));
    }
    assert_eq!(world.subscriptions(), 40);
    world.feed_only(greedy, b"\xE0\x00");
    let (turns, most) = turn_by_turn(&mut world, &[other]);
    assert!(turns > 1 && most <= 20, "{turns} times two turns, {most} filters in two");
    assert_eq!((world.subscriptions(), world.budget.held_bytes(Purpose::Subscriptions)), (0, 0));
}

/// They are on the account until the ledger answers, or until the connection ends.
#[test]
fn answers_that_wait_for_the_ledger_are_on_the_account() {
    let held = |world: &World| world.budget.held_bytes(Purpose::Subscriptions);
    for is_answered in [true, false] {
        let mut world = world();
        let client = world.connect(0, Version::V5, "client");
        let filter = [format!("$share/g/{}", "long".repeat(1_000))];
        world.feed(client, &subscribe(&filter, Version::V5));
        let before = held(&world);
        (0..100).for_each(|_| world.feed_only(client, &subscribe(&filter, Version::V5)));
        let waiting = held(&world) - before;
        assert!(waiting > 100 * filter[0].len(), "{waiting} bytes");
        if is_answered {
            world.settle();
            assert_eq!(held(&world), before);
        }
        world.hang_up(client);
        world.settle();
        assert_eq!(held(&world), 0, "answered: {is_answered}");
    }
}
