//! Keep alive, and servers that are silent.

use pondhawk_session::client::{Settings, TimedOut};
use wire::{ConnAckProperties, PingResp, Qos, Version};

use crate::world::{World, connack, connect, outgoing};

fn with_keep_alive(version: Version, secs: u16, server_secs: Option<u16>) -> World {
    let mut world = World::apart(version, Settings::default());
    let mut connect = connect(version);
    connect.keep_alive_secs = secs;
    world.connect_with(&connect).expect("in order");
    let properties = ConnAckProperties { server_keep_alive_secs: server_secs, ..ConnAckProperties::EMPTY };
    world.take(connack(properties)).expect("in order");
    world.sent();
    world
}

/// Lets the time pass, and tells when something was sent.
fn pinged_after(world: &mut World) -> Option<u64> {
    let due = world.client.poll_timeout()?;
    let passed = due - world.now_ms;
    world.now_ms = due - 1;
    world.timeout().expect("in time");
    assert!(world.sent().is_empty());
    world.now_ms = due;
    world.timeout().expect("in time");
    assert_eq!(world.sent(), ["PINGREQ"]);
    Some(passed)
}

/// [MQTT-3.1.2-20, 3.1.1 MQTT-3.1.2-23]
#[test]
fn a_client_with_nothing_to_say_says_so_in_time() {
    for version in Version::ALL {
        let mut world = with_keep_alive(version, 20, None);
        for _ in 0..3 {
            assert!(pinged_after(&mut world).is_some_and(|passed| passed < 20_000));
            world.take(PingResp).expect("in order");
        }
        world.now_ms += 10_000;
        world.publish(&outgoing(Qos::AtMostOnce), "").expect("in order");
        world.sent();
        assert!(pinged_after(&mut world).is_some_and(|passed| (10_001..20_000).contains(&passed)));
        assert_eq!(pinged_after(&mut with_keep_alive(version, 0, None)), None);
    }
}

/// [MQTT-3.1.2-21, MQTT-3.2.2-21]
#[test]
fn the_servers_keep_alive_counts() {
    for (ours, servers) in [(60, 10), (5, 10), (0, 10)] {
        let mut world = with_keep_alive(Version::V5, ours, Some(servers));
        assert!(pinged_after(&mut world).is_some_and(|passed| (6_000..10_000).contains(&passed)));
    }
    assert_eq!(pinged_after(&mut with_keep_alive(Version::V5, 10, Some(0))), None);
}

#[test]
fn a_server_that_does_not_answer_is_given_up() {
    let mut world = with_keep_alive(Version::V5, 60, None);
    pinged_after(&mut world);
    world.now_ms += 9_999;
    world.timeout().expect("in time");
    world.now_ms += 1;
    assert_eq!(world.timeout(), Err(TimedOut::Ping));

    let mut world = World::apart(Version::V5, Settings::default());
    world.connect_with(&connect(Version::V5)).expect("in order");
    assert_eq!(world.client.poll_timeout(), Some(world.now_ms + 10_000));
    world.now_ms += 10_000;
    assert_eq!(world.timeout(), Err(TimedOut::Connect));
}
