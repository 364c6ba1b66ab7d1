//! After an absence of the whole process (it was stopped, or its machine was suspended) nobody is ended for what nobody
//! could do meanwhile.

use base::Budget;
use session::Settings;
use wire::{Connect, Packet, Publish, Version};

use crate::world::{HIGH_WATER_BYTES, Peer, World, bytes, name, settings, utf8};

const MIB: usize = 1 << 20;

fn connect(world: &mut World, client_id: &str, keep_alive_secs: u16) -> Peer {
    let peer = world.accept(0, Version::V5);
    let mut connect = Connect::new(Version::V5, utf8(client_id));
    connect.keep_alive_secs = keep_alive_secs;
    world.send(peer, &connect.into());
    assert!(world.packets(peer)[0].starts_with("CONNACK Success"));
    peer
}

fn is_open(world: &mut World, peer: Peer) -> bool {
    !world.socket(peer).closed
}

/// Reads bytes that have arrived.
fn read(world: &mut World, peer: Peer, packet: &Packet<'_>) {
    world.socket(peer).has_unread = false;
    world.send(peer, packet);
}

/// However short the delay is: also a busy shard reads before it judges [MQTT-3.1.2-22, 3.1.1 MQTT-3.1.2-24].
#[test]
fn nobody_is_ended_for_silence_before_what_has_arrived_is_read() {
    let mut world = World::new(1);
    let [heard, silent] = ["heard", "silent"].map(|who| connect(&mut world, who, 1));
    world.wait(1_400);
    world.socket(heard).has_unread = true;
    world.wait(600);
    assert!(is_open(&mut world, heard) && !is_open(&mut world, silent));
    read(&mut world, heard, &wire::PingReq.into());
    world.wait(1_400);
    assert!(is_open(&mut world, heard));
    world.wait(200);
    assert!(!is_open(&mut world, heard), "it is silent now");
    assert_eq!(world.counters[0].ended_keep_alive.value(), 2);
}

/// A client that sends part of a packet, and no more, is ended when that was read.
#[test]
fn bytes_that_are_no_packet_delay_the_end_until_they_are_read() {
    let mut world = World::new(1);
    let peer = connect(&mut world, "c", 1);
    world.socket(peer).has_unread = true;
    world.wait(2_000);
    assert!(is_open(&mut world, peer));
    world.socket(peer).has_unread = false;
    world.feed(peer, &[0xC0]);
    world.wait(100);
    assert!(!is_open(&mut world, peer));
}

#[test]
fn a_connect_that_has_arrived_in_time_is_read() {
    let mut world = World::with(1, Settings { connect_timeout_ms: 500, ..settings() });
    let [quick, silent] = [0, 1].map(|_| world.accept(0, Version::V5));
    world.socket(quick).has_unread = true;
    world.wait(700);
    assert!(!is_open(&mut world, silent));
    read(&mut world, quick, &Connect::new(Version::V5, utf8("c")).into());
    assert!(world.packets(quick)[0].starts_with("CONNACK Success"));
    assert_eq!(world.counters[0].refused_connect_timeout.value(), 1);
}

/// The network may deliver again, seconds after the end of the absence, what was lost during it.
#[test]
fn after_an_absence_silence_counts_from_its_end() {
    let mut world = World::with(1, Settings { connect_timeout_ms: 2_000, ..settings() });
    let (peer, stranger) = (connect(&mut world, "c", 2), world.accept(0, Version::V5));
    world.stop(60_000);
    world.wait(1_900);
    assert!(is_open(&mut world, peer) && is_open(&mut world, stranger));
    world.wait(300);
    assert!(!is_open(&mut world, stranger));
    world.wait(600);
    assert!(is_open(&mut world, peer));
    world.wait(300);
    assert!(!is_open(&mut world, peer), "one and a half times the Keep Alive after the end of the absence");
}

#[test]
fn a_full_subscriber_is_judged_by_what_it_does_after_an_absence() {
    let mut world = World::new(1);
    let subscriber = world.connect(0, Version::V3_1_1, "s");
    world.subscribe(subscriber, "t");
    world.socket(subscriber).stuck = true;
    let publisher = world.connect(0, Version::V3_1_1, "p");
    let packet = bytes(&Publish::new(name("t"), &[b'x'; 100]).into(), Version::V3_1_1);
    world.feed(publisher, &packet.repeat(2 * HIGH_WATER_BYTES / packet.len()));
    world.publish(publisher, "t", "waits");
    assert!(world.socket(publisher).paused);
    world.stop(70_000);
    assert!(is_open(&mut world, subscriber), "it takes nothing for a minute, because nothing was sent");
    world.wait(4_500);
    assert_eq!(world.counters[0].slow_subscribers.value(), 0);
    world.wait(1_000);
    assert_eq!(world.counters[0].slow_subscribers.value(), 1);
    world.wait(60_000);
    assert!(!is_open(&mut world, subscriber));
}

#[test]
fn memory_is_not_taken_from_those_who_could_do_nothing_during_an_absence() {
    let mut world = World::with_budget(1, settings(), Budget::new(MIB));
    let peer = world.connect(0, Version::V5, "c");
    let mut packet = bytes(&Publish::new(name("t"), &[7; 90_000]).into(), Version::V5);
    packet.truncate(20_000);
    world.feed(peer, &packet);
    world.wait(11_000);
    let limit = world.budget.tight_bytes() + 10_000 - world.budget.used_bytes();
    let tight = world.budget.charge(base::Purpose::Outputs, limit);
    // In the middle of a look: clients are noted, and would be judged now.
    world.wait(3_000);
    world.stop(10_000);
    world.wait(2_500);
    assert!(is_open(&mut world, peer));
    world.wait(1_000);
    assert!(!is_open(&mut world, peer), "it has done nothing since then either");
    drop(tight);
}
