//! SUBSCRIBE and UNSUBSCRIBE as the last thing that a client says: they are carried out before its connection ends.

use wire::{
    Connect, Delivery, Disconnect, DisconnectReason, OneOrMore, PacketId, Publish, Qos, RequestedFilter,
    Subscribe, SubscribeProperties, Subscription, Unsubscribe, UnsubscribeProperties, Version,
};

use crate::world::{Peer, World, bytes, name, utf8};
use topic::TopicFilter;

const VERSIONS: [Version; 3] = [Version::V3_1, Version::V3_1_1, Version::V5];
const FILTERS: [&str; 3] = ["a", "+", "$share/g/a"];

/// How a connection ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// DISCONNECT, in the same read.
    Disconnect,
    /// DISCONNECT, and each byte is read alone.
    Bytewise,
    /// The client closes its side, in the same turn.
    Closed,
    /// A second CONNECT breaks a rule.
    Violation,
    /// Another connection takes the client identifier, in the same turn.
    TakenOver,
}

const ENDS: [End; 5] = [End::Disconnect, End::Bytewise, End::Closed, End::Violation, End::TakenOver];

fn subscribe(version: Version, filters: &[&str]) -> Vec<u8> {
    let all: Vec<Subscription<'_>> = filters
        .iter()
        .map(|filter| Subscription::with_qos(TopicFilter::new(filter).expect("a filter"), Qos::AtLeastOnce))
        .collect();
    let subscriptions = OneOrMore::new(&all).expect("at least one");
    let properties = SubscribeProperties::default();
    bytes(&Subscribe { packet_id: PacketId::MIN, properties, subscriptions }.into(), version)
}

fn unsubscribe(version: Version, filters: &[&str]) -> Vec<u8> {
    let all: Vec<RequestedFilter<'_>> =
        filters.iter().map(|filter| Ok(TopicFilter::new(filter).expect("a filter"))).collect();
    let filters = OneOrMore::new(&all).expect("at least one");
    let properties = UnsubscribeProperties::default();
    bytes(&Unsubscribe { packet_id: PacketId::MIN, properties, filters }.into(), version)
}

fn connect(version: Version, lasts: bool) -> Connect<'static> {
    let mut connect = Connect::new(version, utf8("frog"));
    connect.clean_start = !lasts;
    if version.is_5() {
        connect.properties.session_expiry_interval_secs = lasts.then_some(3_600);
    }
    connect
}

/// A client named frog, and what it gets with its session.
fn enter(world: &mut World, version: Version, lasts: bool) -> (Peer, Vec<String>) {
    let peer = world.accept(0, version);
    world.send(peer, &connect(version, lasts).into());
    let mut packets = world.packets(peer);
    assert!(packets.remove(0).starts_with("CONNACK Success"));
    (peer, packets)
}

/// Says something and ends the connection in this way.
fn say_and_end(world: &mut World, frog: Peer, last_words: &[u8], end: End) {
    let disconnect = Disconnect::new(DisconnectReason::NormalDisconnection);
    let disconnect = bytes(&disconnect.into(), frog.version);
    match end {
        End::Disconnect => world.feed(frog, &[last_words, &disconnect].concat()),
        End::Bytewise => {
            let all = [last_words, &disconnect].concat();
            all.iter().for_each(|byte| world.feed_only(frog, &[*byte]));
        }
        End::Closed => {
            world.read_now(frog, last_words);
            world.hang_up(frog);
        }
        End::Violation => {
            let second = bytes(&connect(frog.version, true).into(), frog.version);
            world.feed(frog, &[last_words, &second].concat());
        }
        End::TakenOver => {
            let other = world.accept(0, frog.version);
            world.read_now(frog, last_words);
            world.evict(frog);
            world.feed(other, &bytes(&connect(frog.version, true).into(), frog.version));
            world.hang_up(other);
        }
    }
    world.settle();
}

/// Returns the PUBACK for a message, with or without a subscriber.
fn publish_at_1(world: &mut World, toad: Peer) -> Vec<String> {
    let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
    world.send(toad, &Publish { delivery, ..Publish::new(name("a"), b"hey") }.into());
    world.packets(toad)
}

fn each(mut test: impl FnMut(Version, bool, End)) {
    for version in VERSIONS {
        for lasts in [false, true] {
            ENDS.into_iter().for_each(|end| test(version, lasts, end));
        }
    }
}

/// [MQTT-3.10.4-1, MQTT-3.10.4-2, 3.1.1 MQTT-3.10.4-1, 3.1.1 MQTT-3.10.4-2]
#[test]
fn an_unsubscribe_before_the_end_is_carried_out() {
    each(|version, lasts, end| {
        let mut world = World::new(1);
        let toad = world.connect(0, Version::V5, "toad");
        let (frog, _) = enter(&mut world, version, lasts);
        world.feed(frog, &subscribe(version, &FILTERS));
        say_and_end(&mut world, frog, &unsubscribe(version, &FILTERS), end);
        assert_eq!(world.subscriptions(), 0, "{version} {lasts} {end:?}");
        assert_eq!(
            publish_at_1(&mut world, toad),
            ["PUBACK id=1 No matching subscribers"],
            "{version} {lasts} {end:?}"
        );
    });
}

/// [MQTT-3.8.4-5, 3.1.1 MQTT-3.8.4-4]
#[test]
fn a_subscribe_before_the_end_is_carried_out() {
    each(|version, lasts, end| {
        let mut world = World::new(1);
        let toad = world.connect(0, Version::V5, "toad");
        let (frog, _) = enter(&mut world, version, lasts);
        say_and_end(&mut world, frog, &subscribe(version, &FILTERS), end);
        world.wait(1_000);
        let expected = if lasts { FILTERS.len() } else { 0 };
        assert_eq!(world.subscriptions(), expected, "{version} {lasts} {end:?}");
        publish_at_1(&mut world, toad);
        if lasts {
            let (_, messages) = enter(&mut world, version, lasts);
            assert_eq!(
                messages.len(),
                2,
                "{version} {end:?}: one copy for the session and one for its group"
            );
        }
    });
}

/// After DISCONNECT nothing is sent [MQTT-3.14.4-1].
#[test]
fn requests_carried_out_at_the_end_are_not_answered() {
    for version in VERSIONS {
        let mut world = World::new(1);
        let (frog, _) = enter(&mut world, version, true);
        say_and_end(&mut world, frog, &subscribe(version, &["a"]), End::Violation);
        let packets = world.packets(frog);
        let expected: &[&str] = if version.is_5() { &["DISCONNECT Protocol Error"] } else { &[] };
        assert_eq!(packets, expected, "{version}");
    }
}

#[test]
fn subscriptions_removed_in_the_same_read_leave_nothing_behind() {
    for version in VERSIONS {
        let mut world = World::new(1);
        for _ in 0..10 {
            let (frog, _) = enter(&mut world, version, false);
            let words = [subscribe(version, &FILTERS), unsubscribe(version, &FILTERS)].concat();
            say_and_end(&mut world, frog, &words, End::Disconnect);
        }
        assert_eq!(world.subscriptions(), 0, "{version}");
        assert_eq!(world.budget.held_bytes(base::Purpose::Subscriptions), 0, "{version}");
    }
}

/// [MQTT-3.10.4-6, MQTT-3.11.3-2]
#[test]
fn of_one_filter_twice_in_an_unsubscribe_the_second_does_not_exist_any_more() {
    for filter in FILTERS {
        let mut world = World::new(1);
        let frog = world.connect(0, Version::V5, "frog");
        world.subscribe(frog, filter);
        world.feed(frog, &unsubscribe(Version::V5, &[filter, filter]));
        assert_eq!(world.packets(frog), ["UNSUBACK id=1 Success, No subscription existed"], "{filter}");
    }
}

/// The ledger refuses the first SUBSCRIBE when the second one has been read, and grants that.
#[test]
fn a_shared_filter_that_was_refused_and_asked_for_again_can_be_unsubscribed() {
    let settings = ledger::Settings { shared_subscriptions_max: 1, ..ledger::Settings::default() };
    let mut world = World::with_ledger(1, settings);
    let frog = world.connect(0, Version::V5, "frog");
    world.subscribe(frog, "$share/g/a");
    let [one, other] = ["$share/g/a", "$share/h/a"];
    let [again, end] = [subscribe(Version::V5, &[other]), unsubscribe(Version::V5, &[one])];
    world.feed(frog, &[again.clone(), end, again].concat());
    let answers = ["SUBACK id=1 Quota exceeded", "UNSUBACK id=1 Success", "SUBACK id=1 Granted QoS 1"];
    assert_eq!(world.packets(frog), answers);
    world.feed(frog, &unsubscribe(Version::V5, &[other]));
    assert_eq!(world.packets(frog), ["UNSUBACK id=1 Success"]);
}

/// An UNSUBSCRIBE that was read before the ledger has refused the filter ends no subscription [MQTT-3.11.3-2].
#[test]
fn the_end_of_a_shared_subscription_that_was_refused_is_no_success() {
    let settings = ledger::Settings { shared_subscriptions_max: 1, ..ledger::Settings::default() };
    let [granted, refused] = ["$share/g/a", "$share/h/a"];
    let begin = subscribe(Version::V5, &[refused]);
    let end = unsubscribe(Version::V5, &[refused, granted]);
    let answers = ["SUBACK id=1 Quota exceeded", "UNSUBACK id=1 No subscription existed, Success"];
    for is_same_turn in [false, true] {
        let mut world = World::with_ledger(1, settings.clone());
        let frog = world.connect(0, Version::V5, "frog");
        world.subscribe(frog, granted);
        if is_same_turn {
            // The answer for SUBSCRIBE arrives in the turn that has read UNSUBSCRIBE.
            world.feed_only(frog, &begin);
            world.carry_commands_and(|world| world.read_now(frog, &end));
            world.settle();
        } else {
            world.feed(frog, &[&begin[..], &end].concat());
        }
        assert_eq!(world.packets(frog), answers);
        assert_eq!(world.subscriptions(), 0);
    }
}
