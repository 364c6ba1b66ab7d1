//! Several packets in one read: what answers them leaves together, and before whatever comes next.

use session::Settings;
use wire::{Delivery, Packet, Publish, Qos, SubscribeProperties, SubscriptionOptions, Version};

use crate::exchanges::{exactly_once, once_at_least, puback, pubcomp, pubrec, pubrel, with_window};
use crate::world::{Peer, World, bytes, name, settings};

/// A connection whose window is this long, with a subscription at QoS 2.
fn subscriber(world: &mut World, window: u16) -> Peer {
    let peer = with_window(world, 0, "subscriber", window);
    let options = SubscriptionOptions { qos: Qos::ExactlyOnce, ..SubscriptionOptions::default() };
    world.subscribe_with(peer, "a", options, SubscribeProperties::default());
    peer
}

fn publish(number: u16, qos: Qos) -> Packet<'static> {
    let delivery = match qos {
        Qos::AtMostOnce => Delivery::AtMostOnce,
        Qos::AtLeastOnce => once_at_least(number),
        Qos::ExactlyOnce => exactly_once(number),
    };
    Publish { delivery, ..Publish::new(name("a"), b"x") }.into()
}

/// Feeds packets in one read. Returns the packets that the peer gets for them, and in how many pieces.
fn read(world: &mut World, peer: Peer, packets: &[Packet<'_>]) -> (Vec<String>, usize) {
    let together: Vec<u8> = packets.iter().flat_map(|packet| bytes(packet, peer.version)).collect();
    let before = world.socket(peer).pieces;
    world.feed(peer, &together);
    let pieces = world.socket(peer).pieces - before;
    (world.packets(peer), pieces)
}

#[test]
fn acknowledgements_of_one_read_leave_in_one_piece() {
    let mut world = World::new(1);
    let subscriber = subscriber(&mut world, 10);
    let publisher = world.connect(0, Version::V3_1_1, "publisher");
    let packets_before = world.total(|counters| counters.packets_sent.value());
    let (one, two) = (Qos::AtLeastOnce, Qos::ExactlyOnce);
    let sent = [publish(1, two), publish(2, one), publish(3, two)];
    // Each kind has its order (section 4.6).
    let answers = ["PUBREC id=1 Success", "PUBACK id=2 Success", "PUBREC id=3 Success"].map(String::from);
    assert_eq!(read(&mut world, publisher, &sent), (answers.to_vec(), 1));
    let answers = ["PUBCOMP id=1 Success", "PUBCOMP id=3 Success"].map(String::from);
    assert_eq!(read(&mut world, publisher, &[pubrel(1), pubrel(3)]), (answers.to_vec(), 1));
    assert_eq!(world.packets(subscriber).len(), 3);
    let answers = ["PUBREL id=1 Success", "PUBREL id=3 Success"].map(String::from);
    let acknowledged = [pubrec(1), puback(2), pubrec(3)];
    assert_eq!(read(&mut world, subscriber, &acknowledged), (answers.to_vec(), 1));
    assert_eq!(read(&mut world, subscriber, &[pubcomp(1), pubcomp(3)]), (vec![], 0));
    // Several of QoS 1 in a row are acknowledged at once.
    let row = [4, 5, 6].map(|number| publish(number, one));
    let answers = [4, 5, 6].map(|number| format!("PUBACK id={number} Success"));
    assert_eq!(read(&mut world, publisher, &row), (answers.to_vec(), 1));
    // Messages, PUBACK and PUBREC; PUBREL and PUBCOMP of two messages.
    let packets = world.total(|counters| counters.packets_sent.value()) - packets_before;
    assert_eq!(packets, 2 * 6 + 2 + 2);
    world.assert_account();
}

#[test]
fn an_acknowledgement_leaves_before_the_answer_to_the_next_packet() {
    let mut world = World::new(1);
    let _subscriber = subscriber(&mut world, 10);
    let publisher = world.connect(0, Version::V3_1_1, "publisher");
    let sent = [
        publish(1, Qos::AtLeastOnce),
        wire::PingReq.into(),
        publish(2, Qos::ExactlyOnce),
        wire::PingReq.into(),
    ];
    let (answers, _) = read(&mut world, publisher, &sent);
    assert_eq!(answers, ["PUBACK id=1 Success", "PINGRESP", "PUBREC id=2 Success", "PINGRESP"]);
}

#[test]
fn a_message_is_acknowledged_if_its_client_leaves_with_the_next_packet() {
    for version in [Version::V3_1_1, Version::V5] {
        let mut world = World::new(1);
        let _subscriber = subscriber(&mut world, 10);
        let publisher = world.connect(0, version, "publisher");
        let goodbye = wire::Disconnect::default();
        let (answers, _) = read(&mut world, publisher, &[publish(1, Qos::AtLeastOnce), goodbye.into()]);
        assert_eq!(answers, ["PUBACK id=1 Success"]);
        assert!(world.socket(publisher).closed);
        world.assert_account();
    }
}

#[test]
fn a_message_is_acknowledged_before_the_next_packet_ends_the_connection() {
    let mut world = World::new(1);
    let _subscriber = subscriber(&mut world, 10);
    let malformed = "DISCONNECT Malformed Packet";
    for (packet, disconnect) in [
        (&b"\xf1\x00"[..], malformed),
        (b"\xc0\x01\x00", malformed),
        (b"\x20\x03\x00\x00\x00", "DISCONNECT Protocol Error"),
    ] {
        let publisher = world.connect(0, Version::V5, "publisher");
        let mut together = bytes(&publish(1, Qos::ExactlyOnce), Version::V5);
        together.extend_from_slice(packet);
        world.feed(publisher, &together);
        assert_eq!(world.packets(publisher), ["PUBREC id=1 Success", disconnect]);
    }
}

#[test]
fn all_acknowledgements_of_a_read_make_room_before_the_next_messages_are_sent() {
    let mut world = World::new(1);
    let subscriber = subscriber(&mut world, 3);
    let publisher = world.connect(0, Version::V3_1_1, "publisher");
    for number in 1..=8 {
        world.send(publisher, &publish(number, Qos::AtLeastOnce));
    }
    let messages =
        |ids: &[u16]| ids.iter().map(|id| format!(r#"PUBLISH q1 id={id} "a" 1 B "x""#)).collect::<Vec<_>>();
    assert_eq!(world.packets(subscriber), messages(&[1, 2, 3]));
    let (sent, _) = read(&mut world, subscriber, &[puback(2), puback(1), puback(3)]);
    assert_eq!(sent, messages(&[4, 5, 6]));
    // A packet of another kind comes after them.
    let (sent, _) = read(&mut world, subscriber, &[puback(5), wire::PingReq.into(), puback(4)]);
    assert_eq!(sent, [messages(&[7]), vec!["PINGRESP".to_owned()], messages(&[8])].concat());
    for number in 9..=12 {
        world.send(publisher, &publish(number, Qos::AtLeastOnce));
    }
    world.packets(subscriber);
    // Nothing is sent to a client that leaves.
    let (sent, _) = read(&mut world, subscriber, &[puback(6), wire::Disconnect::default().into()]);
    assert_eq!(sent, [""; 0]);
    world.assert_account();
}

/// A large message may need an output for which nothing else waits, while the process is full.
#[test]
fn messages_leave_before_the_acknowledgements_of_the_same_read() {
    let mut world = World::new(1);
    let subscriber = subscriber(&mut world, 2);
    let publisher = world.connect(0, Version::V5, "publisher");
    for number in 1..=3 {
        world.send(publisher, &publish(number, Qos::ExactlyOnce));
    }
    world.send(subscriber, &pubrec(1));
    world.packets(subscriber);
    let (sent, _) = read(&mut world, subscriber, &[pubcomp(1), pubrec(2)]);
    assert_eq!(sent, [r#"PUBLISH q2 id=3 "a" 1 B "x""#, "PUBREL id=2 Success"]);
    world.assert_account();
}

/// The queue is judged when the acknowledgements before the message have made room.
#[test]
fn a_client_with_a_full_queue_publishes_to_itself_behind_its_acknowledgements() {
    let mut world = World::with(1, Settings { waiting_messages_max: 5, ..settings() });
    let client = subscriber(&mut world, 2);
    let publisher = world.connect(0, Version::V5, "publisher");
    for number in 1..=7 {
        world.send(publisher, &publish(number, Qos::AtLeastOnce));
    }
    world.packets(client);
    let (sent, _) = read(&mut world, client, &[puback(1), puback(2), publish(1, Qos::AtLeastOnce)]);
    assert!(!world.socket(client).closed && sent.len() == 3, "{sent:?}");
    world.assert_account();
}

#[test]
fn a_read_of_many_acknowledgements_is_cut_and_makes_room_for_all_that_waits() {
    // More than the steps of one read.
    const WINDOW: u16 = 2_100;
    const MORE: u16 = 100;
    let mut world = World::with(1, Settings { inflight_max: WINDOW, ..settings() });
    let subscriber = subscriber(&mut world, WINDOW);
    let publisher = world.connect(0, Version::V5, "publisher");
    for number in 1..=WINDOW + MORE {
        world.send(publisher, &publish(number, Qos::AtLeastOnce));
    }
    assert_eq!(world.packets(subscriber).len(), usize::from(WINDOW));
    let acknowledged: Vec<u8> = (1..=WINDOW).flat_map(|number| bytes(&puback(number), Version::V5)).collect();
    world.outside[0].resumed.clear();
    world.read_now(subscriber, &acknowledged);
    assert_eq!(world.outside[0].resumed, [subscriber.id], "the rest comes in its turn");
    assert_eq!(world.packets(subscriber).len(), usize::from(MORE));
    world.settle();
    assert_eq!(world.packets(subscriber), [""; 0]);
    world.assert_account();
}

#[test]
fn a_client_that_publishes_to_itself_gets_its_messages_in_their_order() {
    let mut world = World::new(1);
    let client = subscriber(&mut world, 2);
    for number in 1..=4 {
        world.send(client, &publish(number, Qos::AtLeastOnce));
    }
    world.packets(client);
    // The message in this read must not overtake those that waited before.
    let (sent, _) = read(&mut world, client, &[puback(1), puback(2), publish(5, Qos::AtLeastOnce)]);
    let sent: Vec<_> = sent.iter().filter(|packet| packet.starts_with("PUBLISH")).collect();
    assert_eq!(sent, [r#"PUBLISH q1 id=3 "a" 1 B "x""#, r#"PUBLISH q1 id=4 "a" 1 B "x""#]);
    let (sent, _) = read(&mut world, client, &[puback(3), puback(4)]);
    assert_eq!(sent, [r#"PUBLISH q1 id=5 "a" 1 B "x""#]);
    world.assert_account();
}
