//! Counts by listener and user.

use broker::{Admission, Counted};
use protocol::Durability;
use wire::{
    Connect, Delivery, PacketId, PubAck, PubAckReason, Publish, Qos, SubscribeProperties,
    SubscriptionOptions, Version,
};

use crate::world::{COUNTED_USERS_MAX, Peer, World, name, utf8};

/// A client of a listener, that accepts one message at a time.
fn connect_on(world: &mut World, listener: u16, shard: usize, client_id: &str) -> Peer {
    let admission = Admission { counted_as: listener, ..Durability::Fsync.into() };
    let peer = world.accept_with(shard, Version::V5, admission);
    let mut connect = Connect::new(Version::V5, utf8(client_id));
    connect.properties.receive_maximum = std::num::NonZeroU16::new(1);
    world.send(peer, &connect.into());
    assert!(world.packets(peer)[0].starts_with("CONNACK Success"));
    peer
}

fn subscribe(world: &mut World, peer: Peer, qos: Qos) {
    let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
    world.subscribe_with(peer, "a", options, SubscribeProperties::default());
}

fn publish(world: &mut World, peer: Peer, topic: &str, number: u16) {
    let packet_id = PacketId::new(number).expect("not 0");
    let delivery = Delivery::AtLeastOnce { packet_id, dup: false };
    world.send(peer, &Publish { delivery, ..Publish::new(name(topic), b"croak") }.into());
}

/// The sum over all users of a listener.
fn of_listener(world: &World, listener: u16) -> Counted {
    let mut sum = Counted::default();
    let parties = world.parties.read();
    let its = parties.iter().filter(|(party, _)| party.listener == Some(listener));
    its.for_each(|(_, counted)| sum += counted);
    sum
}

#[test]
fn a_message_counts_for_its_publisher_and_each_copy_for_its_receiver_to_the_end() {
    for shards in [1, 4] {
        let mut world = World::new(shards);
        let publisher = connect_on(&mut world, 1, 0, "publisher");
        let receiver = connect_on(&mut world, 2, shards - 1, "receiver");
        let once = connect_on(&mut world, 3, shards - 1, "once");
        subscribe(&mut world, receiver, Qos::AtLeastOnce);
        subscribe(&mut world, once, Qos::AtMostOnce);
        (1..=3).for_each(|number| publish(&mut world, publisher, "a", number));
        publish(&mut world, publisher, "desert", 4);
        let of = |world: &World| [1, 2, 3].map(|listener| of_listener(world, listener));
        let [publishers, receivers, others] = of(&world);
        assert_eq!((publishers.received, publishers.no_subscribers, publishers.routed()), ([0, 4, 0], 1, 0));
        assert_eq!(publishers.publish_bytes_received, 20);
        assert_eq!((receivers.in_flight, receivers.waiting, receivers.publish_sent()), (1, 2, 1));
        assert_eq!((others.sent_once, others.publish_bytes_sent, others.routed()), (3, 15, 3));
        world.send(receiver, &PubAck::new(PacketId::MIN, PubAckReason::Success).into());
        let [_, receivers, _] = of(&world);
        assert_eq!((receivers.acknowledged, receivers.in_flight, receivers.waiting), (1, 1, 1));
        world.close(receiver);
        let [_, receivers, _] = of(&world);
        assert_eq!((receivers.in_flight, receivers.waiting, receivers.discarded_session), (0, 0, 2));
        assert_eq!((receivers.clients_connected, receivers.connects_accepted), (0, 1));
        world.assert_account();
    }
}

/// The users of the world prove nothing, and choose their names.
#[test]
fn users_beyond_the_limit_are_counted_and_stay_counted_together() {
    let mut world = World::new(1);
    let connect = |world: &mut World, user: &str| {
        let peer = world.accept(0, Version::V5);
        let mut connect = Connect::new(Version::V5, utf8(user));
        connect.set_credentials(Some(utf8(user)), None).expect("there is no password");
        world.send(peer, &connect.into());
        assert!(world.packets(peer)[0].starts_with("CONNACK Success"));
        peer
    };
    let users: Vec<String> = (0..COUNTED_USERS_MAX + 2).map(|number| format!("user {number}")).collect();
    let peers: Vec<Peer> = users.iter().map(|user| connect(&mut world, user)).collect();
    peers.iter().for_each(|peer| publish(&mut world, *peer, "desert", 1));
    let counted = |world: &World| {
        let parties = world.parties.read();
        let counts = parties.iter().map(|(_, counted)| counted.publish_received());
        counts.filter(|count| *count > 0).collect::<Vec<_>>()
    };
    assert_eq!(counted(&world), [1, 1, 1, 2]);
    assert_eq!(world.total(|counters| counters.users_other.value()), 2);
    // The first two have left, and one of the others comes again.
    peers[..2].iter().for_each(|peer| world.close(*peer));
    let again = connect(&mut world, &users[COUNTED_USERS_MAX]);
    publish(&mut world, again, "desert", 1);
    assert_eq!(world.total(|counters| counters.users_displaced.value()), 1);
    assert_eq!(counted(&world), [1, 1, 1, 3]);
}
