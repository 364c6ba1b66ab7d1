//! The properties of a message are read a fixed number of times, however many receivers it has.
//!
//! Reads are counted for the whole process: this test has a process of its own.

#[allow(dead_code, reason = "the other tests need the rest")]
#[path = "behaviour/world.rs"]
mod world;

/// For `world`, which adds up what the ledger has routed.
mod qos {
    pub(crate) fn ledger_account(_: &protocol::Gauges) -> (usize, usize) {
        (0, 0)
    }
}

use std::num::{NonZeroU16, NonZeroU32};

use session::Settings;
use wire::{
    Connect, Delivery, MessageProperties, PacketId, Publish, Qos, SubscribeProperties,
    SubscriptionIdentifier, SubscriptionOptions, UserProperties, UserProperty, Utf8, Version,
};

use world::{Peer, World, bytes, name, settings, utf8};

const USER_PROPERTIES: usize = 2_000;

/// Receivers that get a message in different shapes.
fn subscribe_many(world: &mut World, each: usize, filter: &str) -> Vec<Peer> {
    let mut all = Vec::new();
    for number in 0..5 * each {
        let kind = number % 5;
        let version = if kind == 0 { Version::V3_1_1 } else { Version::V5 };
        let client_id = format!("{filter} {number}");
        let mut connect = Connect::new(version, utf8(&client_id));
        match kind {
            1 => connect.properties.topic_alias_maximum = Some(4),
            2 => {
                connect.properties.session_expiry_interval_secs = Some(60);
                connect.properties.maximum_packet_bytes = NonZeroU32::new(90_000);
                connect.properties.receive_maximum = NonZeroU16::new(1);
            }
            _ => {}
        }
        let peer = world.accept(number % 2, version);
        world.send(peer, &connect.into());
        let mut properties = SubscribeProperties::default();
        if kind == 3 {
            properties.subscription_identifier = SubscriptionIdentifier::new(7);
        }
        let qos = if number % 2 == 0 { Qos::AtLeastOnce } else { Qos::AtMostOnce };
        let options = SubscriptionOptions { qos, ..SubscriptionOptions::default() };
        world.subscribe_with(peer, filter, options, properties);
        world.packets(peer);
        all.push(peer);
    }
    all
}

/// Counts the User Properties that are read while a message goes to this number of receivers of each kind.
fn count(each: usize, qos: Qos, payload: &[u8], is_mixed: bool) -> usize {
    let mut world = World::with(2, Settings { packet_bytes_max: 1 << 20, ..settings() });
    let toad = world.connect(0, Version::V5, "toad");
    let peers = subscribe_many(&mut world, each, "t");
    let pair = UserProperty { name: Utf8::EMPTY, value: utf8("value") };
    let pairs = vec![pair; USER_PROPERTIES];
    let properties = MessageProperties {
        content_type: Some(utf8("text")),
        user_properties: UserProperties::from(&pairs[..]),
        ..MessageProperties::default()
    };
    let delivery = match qos {
        Qos::AtMostOnce => Delivery::AtMostOnce,
        _ => Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false },
    };
    let publish = Publish { properties, delivery, ..Publish::new(name("t"), payload) };
    let mut packet = bytes(&publish.into(), Version::V5);
    if is_mixed {
        // The content type stands behind the first User Property.
        let content_type = b"\x03\x00\x04text";
        let user_property = b"\x26\x00\x00\x00\x05value";
        let at = packet.windows(7).position(|window| window == content_type).expect("it is there");
        packet.splice(at..at + 7 + 10, [&user_property[..], content_type].concat());
    }
    let before = wire::meter::user_properties();
    world.feed(toad, &packet);
    world.wait(200);
    let read = wire::meter::user_properties() - before;
    for peer in peers {
        let packets = world.packets(peer);
        let [packet] = &packets[..] else { panic!("{} packets", packets.len()) };
        let count = packet.matches("user-property").count();
        assert_eq!(count, if peer.version.is_5() { USER_PROPERTIES } else { 0 });
        assert!(packet.ends_with(&format!("{:?}", String::from_utf8_lossy(payload))) || payload.len() > 100);
    }
    read / USER_PROPERTIES
}

#[test]
fn a_message_is_taken_apart_a_fixed_number_of_times_however_many_get_it() {
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
        for payload in [&b"hey"[..], &[b'x'; 6_000]] {
            for is_mixed in [false, true] {
                let [few, many] = [4, 40].map(|each| count(each, qos, payload, is_mixed));
                let what = format!("{qos:?}, {} bytes, mixed: {is_mixed}", payload.len());
                assert_eq!(few, many, "{what}");
                assert!(many <= 12, "{many} times for {what}");
            }
        }
    }
}
