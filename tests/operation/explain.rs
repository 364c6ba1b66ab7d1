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
