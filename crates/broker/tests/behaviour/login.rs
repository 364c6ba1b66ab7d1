//! Users: who is let in, and how the rules of a user follow a message.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use auth::{Access, Checked, PasswordHash, Permissions, Realms, Scheme, Unchecked, Users};
use base::{Budget, CertificateName, ConnectionId, Purpose, Realm};
use broker::{Admission, Entry, Naming};
use protocol::Durability;
use session::Settings;
use wire::{Binary, Connect, Qos, SubscribeProperties, SubscriptionOptions, Version};

use crate::world::{Peer, World, settings, utf8};

/// These users, each with the name as the password, and rules in the format of Mosquitto.
fn realms(users: &[&str], rules: &str) -> Realms {
    let mut known = Users::default();
    for user in users {
        let hash = PasswordHash::new(Scheme::MOSQUITTO, user.as_bytes(), b"twelve bytes").expect("a hash");
        known.add(user, hash).expect("a user");
    }
    let permissions = Permissions::of_mosquitto(rules).expect("rules");
    Realms::new(vec![("".into(), Arc::new(Access::new(Some(known), Some(permissions))))])
}

const OPEN: &str = "user ann\ntopic readwrite #\nuser bob\ntopic readwrite #\n";

fn world(shards: usize) -> World {
    let world = World::new(shards);
    world.replace_realms(realms(&["ann", "bob"], OPEN));
    world
}

fn connect(version: Version, user: &'static str, password: &'static str) -> Connect<'static> {
    let mut connect = Connect::new(version, utf8(user));
    let password = Binary::new(password.as_bytes()).expect("short");
    connect.set_credentials(Some(utf8(user)), Some(password)).expect("short");
    connect
}

/// A client of this user, whose password was checked.
fn come(world: &mut World, shard: usize, version: Version, user: &'static str) -> Peer {
    let peer = world.accept(shard, version);
    world.send(peer, &connect(version, user, user).into());
    world.verify(shard, None);
    let [answer] = &world.packets(peer)[..] else { panic!("one CONNACK") };
    assert!(answer.starts_with("CONNACK Success"), "{answer}");
    peer
}

#[test]
fn packets_behind_connect_wait_for_the_check_of_the_password() {
    for version in Version::ALL {
        let mut world = world(1);
        let peer = world.accept(0, version);
        world.send(peer, &connect(version, "ann", "ann").into());
        world.feed(peer, b"\xC0\x00");
        assert!(world.packets(peer).is_empty() && world.commands(0) == 0, "the ledger was not asked");
        world.verify(0, None);
        let packets = world.packets(peer);
        assert!(
            packets[0].starts_with("CONNACK Success") && packets[1].starts_with("PINGRESP"),
            "{packets:?}"
        );
    }
}

#[test]
fn each_outcome_of_a_check_has_its_answer_and_its_counter() {
    type Counted = fn(&broker::Totals) -> u64;
    let rows: [(Option<Checked>, &str, Counted); 5] = [
        (Some(Checked::Wrong), "Bad User Name or Password", |t| t.refused_password),
        (Some(Checked::Not(Unchecked::Busy)), "Server busy", |t| t.refused_verify_busy),
        (Some(Checked::Not(Unchecked::Guessing)), "Server busy", |t| t.refused_guessing),
        (Some(Checked::Not(Unchecked::Unreachable)), "Server unavailable", |t| t.refused_unreachable),
        (None, "Server busy", |t| t.refused_verify_busy),
    ];
    for (checked, answer, counter) in rows {
        let mut world = world(1);
        let peer = world.accept(0, Version::V5);
        world.outside[0].is_verifier_busy = checked.is_none();
        world.send(peer, &connect(Version::V5, "ann", "ann").into());
        world.feed(peer, b"\xC0\x00");
        world.verify(0, checked.as_ref());
        let packets = world.packets(peer);
        assert!(packets.len() == 1 && packets[0].contains(answer), "{packets:?}");
        assert!(world.socket(peer).closed);
        let totals = broker::Totals::of(world.counters.iter().map(|counters| &**counters));
        assert_eq!((counter(&totals), totals.refused_connect), (1, 1), "{checked:?}");
    }
}

/// Clients that have proved nothing take a sixteenth of the memory at most, and small ones come in all the same.
#[test]
fn large_wills_that_wait_for_the_check_of_a_password_are_bounded() {
    let limit_bytes = 1 << 20;
    let settings = Settings { connect_packet_bytes_max: 100_000, will_bytes_max: 100_000, ..settings() };
    let mut world = World::with_budget(1, settings, Budget::new(limit_bytes));
    world.replace_realms(realms(&["ann", "bob"], OPEN));
    let large = vec![b'x'; 40_000];
    let come_with_will = |world: &mut World| {
        let mut connect = connect(Version::V5, "ann", "wrong");
        connect.will = Some(crate::world::will(&large));
        let peer = world.accept(0, Version::V5);
        world.send(peer, &connect.into());
        world.packets(peer)
    };
    assert!(come_with_will(&mut world).is_empty(), "it waits");
    for _ in 0..50 {
        let packets = come_with_will(&mut world);
        assert!(packets.len() == 1 && packets[0].contains("Server busy"), "{packets:?}");
    }
    assert!((40_000..=limit_bytes / 16).contains(&world.budget.held_bytes(Purpose::Logins)));
    assert!(world.budget.used_bytes() < limit_bytes / 4);
    come(&mut world, 0, Version::V5, "bob");
    assert_eq!(world.budget.held_bytes(Purpose::Logins), 0, "all passwords are checked");
    assert!(come_with_will(&mut world).is_empty(), "it waits");
}

/// A service that does not answer keeps all of them waiting.
#[test]
fn bytes_behind_connect_are_bounded_while_passwords_are_checked() {
    let limit_bytes = 2 << 20;
    let mut world = World::with_budget(1, settings(), Budget::new(limit_bytes));
    world.replace_realms(realms(&["ann", "bob"], OPEN));
    let wait = |world: &mut World, bytes: usize| {
        // The beginning of a PUBLISH with 30,000 bytes.
        let mut behind = crate::world::bytes(&connect(Version::V5, "ann", "wrong").into(), Version::V5);
        behind.extend(b"\x30\xB0\xEA\x01\0\x01t");
        behind.resize(behind.len() + bytes, b'x');
        let peer = world.accept(0, Version::V5);
        world.feed(peer, &behind);
        peer
    };
    let peers: Vec<Peer> = (0..100).map(|_| wait(&mut world, 15_000)).collect();
    let ended = |world: &mut World| peers.iter().filter(|peer| world.socket(**peer).closed).count();
    let ended_before = ended(&mut world);
    assert!(world.budget.held_bytes(Purpose::Partials) <= limit_bytes / 2 + 2 * 15_000);
    assert!((20..50).contains(&ended_before), "{ended_before}");
    assert_eq!(world.total(|counters| counters.ended_memory.value()), ended_before as u64);
    let greedy = wait(&mut world, 25_000);
    let modest = wait(&mut world, 2_000);
    let is_closed = [greedy, modest].map(|peer| world.socket(peer).closed);
    assert_eq!(is_closed, [true, false], "the one with the most bytes makes room");
    come(&mut world, 0, Version::V5, "bob");
    world.assert_account();
}

#[test]
fn a_connection_may_end_while_its_password_is_checked() {
    let mut world = world(1);
    let peer = world.accept(0, Version::V5);
    world.send(peer, &connect(Version::V5, "ann", "ann").into());
    assert!(world.outside[0].wishes[0].is_wanted() && world.shards[0].is_logging_in(peer.id));
    world.hang_up(peer);
    assert!(!world.outside[0].wishes[0].is_wanted(), "the check need not run");
    world.verify(0, None);
    assert!(world.packets(peer).is_empty());
    assert_eq!(world.commands(0), 0);
    come(&mut world, 0, Version::V5, "ann");
}

#[test]
fn a_client_whose_password_is_being_checked_when_a_drain_begins_does_not_come_in() {
    let mut world = world(1);
    let peer = world.accept(0, Version::V5);
    world.send(peer, &connect(Version::V5, "ann", "ann").into());
    let order = broker::Drain { server_reference: None, over_ms: 60_000 };
    let now = world.now;
    world.shards[0].ask(broker::Question::Drain(Some(order)), now, &mut world.outside[0]);
    world.verify(0, None);
    assert_eq!(world.packets(peer), ["CONNACK Server unavailable"]);
    assert!(world.commands(0) == 0 && world.socket(peer).closed);
}

#[test]
fn a_user_who_is_removed_while_the_password_is_checked_does_not_come_in() {
    let mut world = world(1);
    let peer = world.accept(0, Version::V5);
    world.send(peer, &connect(Version::V5, "ann", "ann").into());
    world.replace_realms(realms(&["bob"], OPEN));
    world.verify(0, None);
    let packets = world.packets(peer);
    assert!(packets[0].contains("Bad User Name or Password"), "{packets:?}");
}

/// Others have their turns meanwhile.
#[test]
fn clients_are_looked_at_over_many_turns_when_users_change() {
    const CLIENTS: u32 = 3_000;
    let mut world = world(1);
    let ann = come(&mut world, 0, Version::V5, "ann");
    let bob = come(&mut world, 0, Version::V5, "bob");
    for _ in 2..CLIENTS {
        world.accept(0, Version::V5);
    }
    world.replace_realms(realms(&["ann"], OPEN));
    world.shards[0].users_changed();
    let mut turns = 0;
    while world.shards[0].has_work() {
        world.end_turn(0);
        turns += 1;
    }
    assert_eq!(turns, CLIENTS / 1_000);
    assert_eq!(world.packets(bob), ["DISCONNECT Not authorized"]);
    assert!(world.socket(bob).closed && !world.socket(ann).closed);
}

/// Until then they wait in the session, because the window of the client is full.
#[test]
fn waiting_messages_are_dropped_when_the_client_loses_the_right_to_receive_them() {
    let mut world = world(1);
    let bob = {
        let peer = world.accept(0, Version::V5);
        let mut connect = connect(Version::V5, "bob", "bob");
        connect.properties.receive_maximum = std::num::NonZeroU16::new(1);
        world.send(peer, &connect.into());
        world.verify(0, None);
        peer
    };
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    world.subscribe_with(bob, "#", options, SubscribeProperties::default());
    world.packets(bob);
    let ann = come(&mut world, 0, Version::V5, "ann");
    for topic in ["a", "secret", "b"] {
        world.publish_at_least_once(ann, topic);
    }
    let first = world.packets(bob);
    assert!(first.len() == 1 && first[0].contains("\"a\""), "{first:?}");
    let rules = "user ann\ntopic readwrite #\nuser bob\ntopic readwrite #\ntopic deny secret\n";
    world.replace_realms(realms(&["ann", "bob"], rules));
    world.feed(bob, &[0x40, 2, 0, 1]);
    let next = world.packets(bob);
    assert!(next.len() == 1 && next[0].contains("\"b\""), "{next:?}");
    assert_eq!(world.total(|counters| counters.dropped_denied.value()), 1);
    world.assert_account();
}

/// The message of the group waits in the session, because a message of the member's own fills the window.
#[test]
fn a_waiting_message_of_a_group_is_counted_once_when_its_member_loses_the_right_to_receive_it() {
    let mut world = world(1);
    let bob = world.accept(0, Version::V5);
    let mut connect = connect(Version::V5, "bob", "bob");
    connect.properties.receive_maximum = std::num::NonZeroU16::new(1);
    world.send(bob, &connect.into());
    world.verify(0, None);
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    for filter in ["own", "$share/group/of_group"] {
        world.subscribe_with(bob, filter, options, SubscribeProperties::default());
    }
    world.packets(bob);
    let ann = come(&mut world, 0, Version::V5, "ann");
    for topic in ["own", "of_group"] {
        world.publish_at_least_once(ann, topic);
    }
    let first = world.packets(bob);
    assert!(first.len() == 1 && first[0].contains("\"own\""), "{first:?}");
    let rules = "user ann\ntopic readwrite #\nuser bob\ntopic readwrite #\ntopic deny of_group\n";
    world.replace_realms(realms(&["ann", "bob"], rules));
    assert_eq!(world.total(|counters| counters.denied_receive.value()), 0);
    world.feed(bob, &[0x40, 2, 0, 1]);
    assert_eq!(world.packets(bob), [""; 0]);
    assert_eq!(world.total(|counters| counters.denied_receive.value()), 1);
    assert_eq!(world.total(|counters| counters.dropped_denied.value()), 0);
    assert_eq!(world.ledger().refused_by_client.load(Relaxed), 1);
    world.assert_account();
}

#[test]
fn a_certificate_takes_the_place_of_name_and_password() {
    let naming = Naming::Certificate(CertificateName::CommonName);
    let entry = Entry { realm: Realm(0), allow_anonymous: false, naming };
    for (certificate, is_in) in [(Some("ann"), true), (None, false)] {
        let mut world = world(1);
        world.outside[0].certificate = certificate.map(str::to_owned);
        let admission = Admission { entry, ..Durability::Fsync.into() };
        let peer = world.accept_with(0, Version::V5, admission);
        world.send(peer, &connect(Version::V5, "dan", "wrong").into());
        let packets = world.packets(peer);
        let answer = if is_in { "CONNACK Success" } else { "CONNACK Not authorized" };
        assert!(packets[0].starts_with(answer), "{packets:?}");
    }
}

/// A slot that another connection has by now.
#[test]
fn the_outcome_of_a_check_is_for_its_connection_only() {
    let mut world = world(1);
    let peer = world.accept(0, Version::V5);
    world.send(peer, &connect(Version::V5, "ann", "wrong").into());
    let other = ConnectionId { generation: peer.id.generation + 1, ..peer.id };
    let (now, outside) = (world.now, &mut world.outside[0]);
    world.shards[0].verified(other, Checked::Right, now, outside);
    world.settle();
    assert!(world.packets(peer).is_empty());
}

/// Nobody gets these messages, so no receiver holds up their publisher.
#[test]
fn receivers_that_the_rules_leave_out_count_for_the_turn() {
    const RECEIVERS: usize = 400;
    let mut world = World::new(1);
    let rules = Permissions::of_mosquitto("pattern readwrite d/%c/#\n").expect("rules");
    world.replace_realms(Realms::new(vec![("".into(), Arc::new(Access::new(None, Some(rules))))]));
    for number in 0..RECEIVERS {
        let receiver = world.connect(0, Version::V5, &format!("receiver{number}"));
        world.subscribe(receiver, "#");
    }
    let publisher = world.connect(0, Version::V5, "toad");
    let pair = [&b"\x30\x0b\x00\x08d/toad/a\x00"[..], b"\x30\x0b\x00\x08d/toad/b\x00"].concat();
    world.read_now(publisher, &pair.repeat(1_000));
    let received = world.total(|counters| counters.publish_received.value());
    assert!((2..2_048 / RECEIVERS as u64 + 2).contains(&received), "{received} messages in one read");
    while world.read_again() {
        world.end_turn(0);
    }
    assert_eq!(world.total(|counters| counters.publish_received.value()), 2_000);
}
