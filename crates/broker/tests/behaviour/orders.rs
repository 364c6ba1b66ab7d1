//! A receiver gets the properties that were published, in whatever order the publisher wrote them. [3.3.2.3]

use wire::{Qos, SubscribeProperties, SubscriptionIdentifier, SubscriptionOptions, Version};

use crate::world::{Peer, World};

/// Properties of PUBLISH as they are encoded; each test packet has them in another order.
const PROPERTIES: [&[u8]; 6] = [
    b"\x01\x01",
    b"\x03\x00\x04text",
    b"\x08\x00\x05reply",
    b"\x09\x00\x02\x26\x00",
    b"\x26\x00\x06colour\x00\x05green",
    b"\x26\x00\x06colour\x00\x04blue",
];

/// More than eight receivers, so that they share what they have in common.
const RECEIVERS: usize = 24;

/// Each order in which another property is the last one, and the same orders reversed.
fn orders() -> Vec<Vec<u8>> {
    let rotations = (0..PROPERTIES.len()).map(|first| {
        let (front, back) = PROPERTIES.split_at(first);
        [back, front].concat()
    });
    let reversed = rotations.clone().map(|order| order.into_iter().rev().collect());
    rotations.chain(reversed).map(|order: Vec<&[u8]>| order.concat()).collect()
}

/// A PUBLISH to the topic `t`.
fn publish(qos: Qos, properties: &[u8], payload: &[u8]) -> Vec<u8> {
    let packet_id: &[u8] = if qos == Qos::AtMostOnce { &[] } else { &[0, 1] };
    let properties_bytes = u8::try_from(properties.len()).expect("a short block");
    let body = [&[0, 1, b't'], packet_id, &[properties_bytes], properties, payload].concat();
    let mut remaining = body.len();
    let mut packet = vec![0x30 | (qos as u8) << 1];
    loop {
        let low = u8::try_from(remaining % 128).expect("seven bits");
        remaining /= 128;
        packet.push(low | if remaining > 0 { 0x80 } else { 0 });
        if remaining == 0 {
            return [packet, body].concat();
        }
    }
}

fn subscribe(world: &mut World) -> Vec<Peer> {
    let subscribe = |number: usize| {
        let version = if number % 6 == 5 { Version::V3_1_1 } else { Version::V5 };
        let peer = world.connect(number % 2, version, &format!("receiver {number}"));
        let qos = [Qos::AtLeastOnce, Qos::AtMostOnce, Qos::ExactlyOnce][number % 3];
        let identifier = (number % 4 == 3).then(|| SubscriptionIdentifier::new(7)).flatten();
        let properties = SubscribeProperties {
            subscription_identifier: identifier.filter(|_| version.is_5()),
            ..SubscribeProperties::default()
        };
        let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
        world.subscribe_with(peer, "t", options, properties);
        world.packets(peer);
        peer
    };
    (0..RECEIVERS).map(subscribe).collect()
}

/// The PUBLISH that each receiver gets.
fn received(qos: Qos, properties: &[u8], payload: &[u8]) -> Vec<String> {
    let mut world = World::new(2);
    let receivers = subscribe(&mut world);
    let publisher = world.connect(0, Version::V5, "publisher");
    world.feed(publisher, &publish(qos, properties, payload));
    let take = |receiver| {
        let packets = world.packets(receiver);
        let [packet] = &packets[..] else { panic!("not one packet: {packets:?}") };
        packet.clone()
    };
    receivers.into_iter().map(take).collect()
}

#[test]
fn the_order_of_properties_changes_nothing_for_receivers() {
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce] {
        for payload in [&b"hey"[..], &[b'x'; 5_000]] {
            let [first, others @ ..] = &orders()[..] else { unreachable!() };
            let expected = received(qos, first, payload);
            assert!(expected[0].contains(r#"user-property="colour":"green" user-property="colour":"blue""#));
            for properties in others {
                let swapped = properties.windows(5).position(|text| text == b"green")
                    > properties.windows(4).position(|text| text == b"blue");
                let found = received(qos, properties, payload).into_iter().map(|packet| match swapped {
                    true => packet.replace("green", "red").replace("blue", "green").replace("red", "blue"),
                    false => packet,
                });
                let differ = found.zip(&expected).filter(|(found, expected)| found != *expected);
                let differ: Vec<_> = differ.take(1).collect();
                assert!(differ.is_empty(), "{qos:?}, {properties:?}: {differ:#?}");
            }
        }
    }
}
