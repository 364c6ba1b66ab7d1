//! The busiest topics and clients.

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Client, RawClient, Version, until};
use serde_json::Value;

use crate::admin::Server;
use crate::{addresses, brokers};

const SETTINGS: &str = "[admin]
address = \"127.0.0.1:0\"
[[listener]]
address = \"127.0.0.1:0\"
[[listener]]
address = \"127.0.0.1:0\"
mount_point = \"house/\"
";

/// Names and amounts of a list.
fn list(server: &Server, name: &str, amount: &str) -> Vec<(String, u64)> {
    let value = server.value(&format!("/api/v1/busiest?list={name}"));
    let item = |item: &Value| {
        let name = item["name"].as_str().expect("a name").to_owned();
        (name, item[amount].as_u64().unwrap_or_else(|| panic!("{amount} in {item}")))
    };
    value["busiest"].as_array().expect("a list").iter().map(item).collect()
}

/// A list with these names and amounts.
fn pairs(names: &[(&str, u64)]) -> Vec<(String, u64)> {
    names.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect()
}

#[test]
fn the_busiest_topics_and_clients_are_listed() {
    for broker in brokers(SETTINGS) {
        let server = Server::of(&broker);
        let [everywhere, house] = addresses(&broker);
        let mut toad = Client::connect(everywhere, &Connect::new(Version::V5, "toad"));
        toad.subscribe("#");
        for (client_id, topic, count) in [("frog", "pond/edge/reed", 3), ("newt", "pond/x", 2)] {
            let mut publisher = Client::connect(everywhere, &Connect::new(Version::V3_1_1, client_id));
            for _ in 0..count {
                publisher.publish(topic, b"croak");
                toad.expect_message(topic, b"croak");
            }
        }
        // It connects, publishes and leaves in one write, again and again.
        for _ in 0..2 {
            let version = Version::V3_1_1;
            let connect = Connect::new(version, "eft").bytes();
            let mut eft = RawClient::connect(house);
            eft.send(&[connect, packet::publish(version, "door", b"open"), vec![0xE0, 0]].concat());
            toad.expect_message("house/door", b"open");
        }
        let topics = [("pond/edge/reed", 3), ("house/door", 2), ("pond/x", 2)];
        assert_eq!(list(&server, "topics", "messages"), pairs(&topics));
        let branches = [("pond/#", 5), ("pond/edge/#", 3), ("house/#", 2)];
        assert_eq!(list(&server, "branches", "messages"), pairs(&branches));
        let publishers = [("frog", 3), ("eft", 2), ("newt", 2)];
        assert_eq!(list(&server, "publishers", "messages"), pairs(&publishers));
        let connects = [("eft", 2), ("frog", 1), ("newt", 1), ("toad", 1)];
        assert_eq!(list(&server, "connects", "connections"), pairs(&connects));
        assert_eq!(list(&server, "receivers", "bytes")[0].0, "toad");
        assert_eq!(list(&server, "refusals", "connections"), []);
        let mut stranger = RawClient::connect(everywhere);
        stranger.send(b"SSH-2.0-frog\r\n");
        stranger.expect_closed();
        until("the refusal is counted", || {
            (list(&server, "refusals", "connections") == pairs(&[("127.0.0.1", 1)])).then_some(())
        });
        assert_eq!(server.get("/api/v1/busiest?list=frogs").status, 400);
        let first = server.value("/api/v1/busiest?limit=1");
        assert_eq!(first["busiest"].as_array().map(Vec::len), Some(1));
        let seconds = first["seconds"].as_u64().expect("the time that is covered");
        assert!((1..=120).contains(&seconds), "{first}");
    }
}
