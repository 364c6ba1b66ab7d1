//! Answers to clients when the disk is full, or has failed.

use wire::{
    Connect, ConnectProperties, Delivery, PubRel, PubRelReason, Publish, Qos, SubscribeProperties,
    SubscriptionOptions, Version,
};

use crate::exchanges::id;
use crate::world::{Disk, Peer, World, name, utf8};

const BEFORE_5: [Version; 2] = [Version::V3_1, Version::V3_1_1];

/// A client whose session outlives its connection, and what it is told.
fn come(world: &mut World, version: Version, client_id: &str, clean_start: bool) -> (Peer, Vec<String>) {
    let peer = world.accept(0, version);
    let mut connect = Connect::new(version, utf8(client_id));
    connect.clean_start = clean_start;
    if version == Version::V5 {
        connect.properties =
            ConnectProperties { session_expiry_interval_secs: Some(100), ..ConnectProperties::default() };
    }
    world.send(peer, &connect.into());
    (peer, world.packets(peer))
}

/// A session that lasts, with a subscription to `a/#` and without a connection.
fn leave_a_session(world: &mut World) {
    let (client, _) = come(world, Version::V5, "away", false);
    subscribe(world, client, "a/#");
    world.hang_up(client);
}

fn subscribe(world: &mut World, peer: Peer, filter: &str) -> Vec<String> {
    let options = SubscriptionOptions { qos: Qos::AtLeastOnce, ..SubscriptionOptions::default() };
    world.subscribe_with(peer, filter, options, SubscribeProperties::default())
}

fn publish(world: &mut World, peer: Peer, topic: &str, number: u16) -> Vec<String> {
    let delivery = Delivery::AtLeastOnce { packet_id: id(number), dup: false };
    world.send(peer, &Publish { delivery, ..Publish::new(name(topic), b"x") }.into());
    world.packets(peer)
}

/// Publishers of MQTT 5 are told so, what is not to last goes on, and everything goes on when there is space again.
#[test]
fn without_space_nothing_new_is_taken_and_service_resumes_by_itself() {
    let mut world = World::new(2);
    leave_a_session(&mut world);
    let publisher = world.connect(0, Version::V5, "publisher");
    let reader = world.connect(1, Version::V5, "reader");
    subscribe(&mut world, reader, "b");
    world.disk = Disk::Full;
    assert_eq!(publish(&mut world, publisher, "a/1", 1), ["PUBACK id=1 Quota exceeded"]);
    assert_eq!(publish(&mut world, publisher, "b", 2), ["PUBACK id=2 Success"]);
    assert_eq!(world.packets(reader).len(), 1);
    let (_, refused) = come(&mut world, Version::V5, "new", false);
    assert!(refused[0].starts_with("CONNACK Quota exceeded"), "{refused:?}");
    world.disk = Disk::Fast;
    assert_eq!(publish(&mut world, publisher, "a/1", 3), ["PUBACK id=3 Success"]);
    let (_, told) = come(&mut world, Version::V5, "away", false);
    assert!(told[0].contains("present") && told.len() == 2, "{told:?}");
    world.assert_account();
}

/// A client that waits for a record that will never be durable gets 0x80, and is disconnected. Before MQTT 5 the
/// connection is closed.
#[test]
fn clients_that_wait_for_the_disk_are_disconnected_when_it_fails() {
    for version in [Version::V3_1, Version::V3_1_1, Version::V5] {
        let mut world = World::new(1);
        leave_a_session(&mut world);
        let publisher = world.connect(0, version, "publisher");
        let bystander = world.connect(0, version, "bystander");
        world.disk = Disk::Slow;
        assert!(publish(&mut world, publisher, "a/1", 1).is_empty(), "it is not durable");
        let (newcomer, told) = come(&mut world, version, "newcomer", false);
        assert!(told.is_empty(), "{told:?}");
        world.disk = Disk::Failed;
        world.settle();
        let goodbye: &[&str] = if version == Version::V5 { &["DISCONNECT Unspecified error"] } else { &[] };
        assert_eq!(world.packets(publisher), goodbye);
        let refused = world.packets(newcomer);
        assert!(refused[0].starts_with("CONNACK Server unavailable"), "{refused:?}");
        assert!(world.socket(publisher).closed && world.socket(newcomer).closed);
        assert!(!world.socket(bystander).closed, "it waits for nothing");
    }
}

/// Later packets are told 0x83 if they have to be recorded, and 0x88 if they are CONNECT; what flows goes on.
#[test]
fn after_the_disk_has_failed_only_what_must_be_recorded_is_refused() {
    let mut world = World::new(2);
    leave_a_session(&mut world);
    let publisher = world.connect(0, Version::V5, "publisher");
    let (lasting, _) = come(&mut world, Version::V5, "lasting", false);
    subscribe(&mut world, lasting, "c");
    let reader = world.connect(1, Version::V5, "reader");
    subscribe(&mut world, reader, "b");
    world.disk = Disk::Failed;
    assert_eq!(publish(&mut world, publisher, "a/1", 1), ["PUBACK id=1 Implementation specific error"]);
    assert_eq!(publish(&mut world, publisher, "b", 2), ["PUBACK id=2 Success"]);
    assert_eq!(world.packets(reader).len(), 1);
    let told = subscribe(&mut world, lasting, "d");
    assert!(told[0].starts_with("SUBACK") && told[0].contains("Implementation specific error"), "{told:?}");
    let told = world.unsubscribe(lasting, "c");
    assert!(told[0].starts_with("UNSUBACK") && told[0].contains("Implementation specific error"), "{told:?}");
    for (client_id, clean_start) in [("new", false), ("away", false), ("away", true)] {
        let (_, refused) = come(&mut world, Version::V5, client_id, clean_start);
        assert!(refused[0].starts_with("CONNACK Server unavailable"), "{client_id}: {refused:?}");
    }
    world.connect(1, Version::V5, "clean");
    world.assert_account();
}

/// Before MQTT 5 no acknowledgement says no: the connection is closed.
#[test]
fn before_mqtt_5_a_failed_disk_closes_the_connection() {
    for version in BEFORE_5 {
        let mut world = World::new(1);
        leave_a_session(&mut world);
        let publisher = world.connect(0, version, "publisher");
        let (lasting, _) = come(&mut world, version, "lasting", false);
        subscribe(&mut world, lasting, "c");
        world.disk = Disk::Failed;
        assert!(publish(&mut world, publisher, "a/1", 1).is_empty());
        assert!(world.unsubscribe(lasting, "c").is_empty());
        assert!(world.socket(publisher).closed && world.socket(lasting).closed);
        let (refused, told) = come(&mut world, version, "new", false);
        assert!(told[0].starts_with("CONNACK Server unavailable"), "{told:?}");
        assert!(world.socket(refused).closed);
    }
}

/// The end of an exchange cannot be taken back: who waits for PUBCOMP is sent away.
#[test]
fn the_end_of_an_exchange_that_cannot_be_recorded_is_not_acknowledged() {
    let mut world = World::new(1);
    let (client, _) = come(&mut world, Version::V5, "lasting", false);
    let delivery = Delivery::ExactlyOnce { packet_id: id(1), dup: false };
    world.send(client, &Publish { delivery, ..Publish::new(name("a"), b"x") }.into());
    assert!(world.packets(client)[0].starts_with("PUBREC id=1"));
    world.disk = Disk::Failed;
    world.send(client, &PubRel::new(id(1), PubRelReason::Success).into());
    assert_eq!(world.packets(client), ["DISCONNECT Implementation specific error"]);
}

/// Retained values of QoS 0 are given out and kept in memory, counted.
#[test]
fn retained_values_of_qos_0_do_without_a_disk() {
    for disk in [Disk::Full, Disk::Failed] {
        let mut world = World::new(2);
        let publisher = world.connect(0, Version::V5, "publisher");
        let reader = world.connect(1, Version::V5, "reader");
        world.subscribe(reader, "r");
        world.disk = disk;
        world.publish_retained(publisher, "r", "1");
        assert_eq!(world.packets(reader).len(), 1, "it is given out");
        let late = world.connect(1, Version::V5, "late");
        let told = world.subscribe(late, "r");
        assert!(told.iter().any(|packet| packet.contains(r#""r" 1 B "1""#)), "{told:?}");
        let unrecorded = &world.ledger().unrecorded;
        assert_eq!(unrecorded.load(std::sync::atomic::Ordering::Relaxed), 1);
    }
}

#[test]
fn a_subscription_that_could_not_be_recorded_is_counted_and_takes_nothing() {
    let mut world = World::new(1);
    let peer = world.accept(0, Version::V5);
    let mut connect = wire::Connect::new(Version::V5, crate::world::utf8("client"));
    connect.properties.session_expiry_interval_secs = Some(60);
    world.send(peer, &connect.into());
    world.packets(peer);
    let held = |world: &World| world.budget.held_bytes(base::Purpose::Subscriptions);
    let before = held(&world);
    world.disk = Disk::Full;
    for number in 0..5 {
        let suback = world.subscribe(peer, &format!("full/{number}")).remove(0);
        assert!(!suback.contains("Granted"), "{suback}");
    }
    assert_eq!((held(&world), world.subscriptions()), (before, 0));
    assert_eq!(world.total(|c| c.refused_subscriptions.value()), 5);
    world.disk = Disk::Fast;
    let suback = world.subscribe(peer, "t").remove(0);
    assert!(suback.contains("Granted"), "{suback}");
    assert_eq!(world.subscriptions(), 1);
}
