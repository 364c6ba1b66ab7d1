//! Explanations about subscribers with very many subscriptions.

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Options, Version};
use serde_json::Value;

use crate::admin::Server;

/// More subscriptions than an explanation reads all of.
const FILTERS: u16 = 12_000;
const FILTERS_PER_PACKET: u16 = 1_000;

/// A SUBSCRIBE packet of MQTT 3.1.1.
fn subscribe(packet_id: u16, filters: impl Iterator<Item = String>) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    filters.for_each(|filter| body.extend([packet::string(&filter), vec![1]].concat()));
    packet::packet(0x82, &body)
}

/// The same of MQTT 5.0, at QoS 0.
fn subscribe_5(packet_id: u16, filters: impl Iterator<Item = String>) -> Vec<u8> {
    let mut body = [&packet_id.to_be_bytes()[..], &[0]].concat();
    filters.for_each(|filter| body.extend([packet::string(&filter), vec![0]].concat()));
    packet::packet(0x82, &body)
}

#[test]
fn the_filter_that_matches_is_found_among_very_many() {
    for clean_start in [true, false] {
        let settings = "[admin]\naddress = \"127.0.0.1:0\"\n".to_owned();
        let broker = Broker::start(&Options { shards: 2, settings, ..Options::default() });
        let server = Server::of(&broker);
        let version = Version::V3_1_1;
        let mut frog = broker.client_with(&Connect { clean_start, ..Connect::new(version, "frog") });
        for first in (0..FILTERS).step_by(usize::from(FILTERS_PER_PACKET)) {
            let numbers = first..first + FILTERS_PER_PACKET;
            frog.send(&subscribe(first + 1, numbers.map(|number| format!("house/{number}/light"))));
            assert_eq!(frog.read_packet()[0], 0x90);
        }
        let _toad = broker.client(version, "toad");
        let explain = |topic: &str| -> Value {
            server.value(&format!("/api/v1/explain?publisher=toad&topic={topic}&subscriber=frog"))
        };
        for number in [0, 77, FILTERS / 2, FILTERS - 1] {
            let found = explain(&format!("house/{number}/light"));
            assert_eq!(found["reason"], "delivered", "{clean_start} {found}");
        }
        let found = explain("house/garden/light");
        assert_eq!(found["reason"], "no_matching_filter", "{clean_start} {found}");
        let steps = found["steps"].to_string();
        assert!(steps.contains("frog has 12000 subscriptions, and none matches"), "{steps}");
    }
}

/// More groups than an explanation asks about: each may have the filter that matches, and none can be left out.
const GROUPS: u16 = 40_000;

/// An explanation asks at most 128 times for at most 256 subscriptions.
const LOOKED_AT_MAX: usize = 128 * 256;

#[test]
fn an_explanation_about_very_many_groups_ends_and_says_that_it_has_not_seen_all() {
    let settings = "[limits]\nsubscriptions_per_client = 50_000\nshared_subscriptions_per_client = 50_000\n\
                    [admin]\naddress = \"127.0.0.1:0\"\n"
        .to_owned();
    let broker = Broker::start(&Options { shards: 2, settings, ..Options::default() });
    let server = Server::of(&broker);
    let mut frog = broker.client(Version::V5, "frog");
    for first in (0..GROUPS).step_by(usize::from(FILTERS_PER_PACKET)) {
        let numbers = first..first + FILTERS_PER_PACKET;
        let filters = numbers.map(|number| format!("$share/{number:05}/house/{number}/light"));
        frog.send(&subscribe_5(first + 1, filters));
        let granted = frog.read_packet();
        assert!(granted[0] == 0x90 && granted.ends_with(&[0; 9]), "{granted:02x?}");
    }
    let _toad = broker.client(Version::V5, "toad");
    let found = server.value("/api/v1/explain?publisher=toad&topic=house/garden/light&subscriber=frog");
    assert_eq!((&found["outcome"], &found["reason"]), (&"unknown".into(), &"too_many_subscriptions".into()));
    let steps = found["steps"].to_string();
    let looked_at = steps.split("none of the ").nth(1).and_then(|rest| rest.split(' ').next());
    let looked_at: usize = looked_at.and_then(|count| count.parse().ok()).expect("it says how many");
    assert!((1..=LOOKED_AT_MAX).contains(&looked_at), "{steps}");
    // The first group is among those that were looked at, and has no other member.
    let found = server.value("/api/v1/explain?publisher=toad&topic=house/0/light&subscriber=frog");
    assert_eq!(found["reason"], "delivered", "{found}");
}
