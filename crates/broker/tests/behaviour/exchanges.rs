//! Packets of QoS 1 and 2, and clients that take a number of messages at a time.

use std::num::NonZeroU16;

use wire::{
    Connect, Delivery, Packet, PacketId, PubAck, PubAckReason, PubComp, PubRec, PubRel, PubRelReason, Version,
};

use crate::world::{Peer, World, utf8};

pub(crate) fn id(number: u16) -> PacketId {
    PacketId::new(number).expect("not 0")
}

pub(crate) fn once_at_least(number: u16) -> Delivery {
    Delivery::AtLeastOnce { packet_id: id(number), dup: false }
}

pub(crate) fn exactly_once(number: u16) -> Delivery {
    Delivery::ExactlyOnce { packet_id: id(number), dup: false }
}

pub(crate) fn puback(number: u16) -> Packet<'static> {
    PubAck::new(id(number), PubAckReason::Success).into()
}

pub(crate) fn pubrec(number: u16) -> Packet<'static> {
    PubRec::new(id(number), PubAckReason::Success).into()
}

pub(crate) fn pubrel(number: u16) -> Packet<'static> {
    PubRel::new(id(number), PubRelReason::Success).into()
}

pub(crate) fn pubcomp(number: u16) -> Packet<'static> {
    PubComp::new(id(number), PubRelReason::Success).into()
}

pub(crate) fn with_window(world: &mut World, shard: usize, client_id: &str, window: u16) -> Peer {
    let mut connect = Connect::new(Version::V5, utf8(client_id));
    connect.properties.receive_maximum = NonZeroU16::new(window);
    let peer = world.accept(shard, Version::V5);
    world.send(peer, &connect.into());
    assert!(world.packets(peer)[0].starts_with("CONNACK Success"));
    peer
}
