//! Bans: clients that an operator keeps out.

use std::path::Path;

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, Options, Version, data_dir, until};
use serde_json::{Value, json};

use crate::admin::{Answer, Server};

const SETTINGS: &str = "[admin]\naddress = \"127.0.0.1:0\"\nbans = 3\n";

fn start(directory: &Path) -> (Broker, Server) {
    let data_dir = Some(directory.to_owned());
    let broker =
        Broker::start(&Options { shards: 2, settings: SETTINGS.into(), data_dir, ..Options::default() });
    let server = Server::of(&broker);
    (broker, server)
}

fn ban(server: &Server, body: &Value) -> Answer {
    server.send("POST", "/api/v1/bans", "Content-Type: application/json\r\n", &body.to_string())
}

/// The answer to CONNECT, until the connection is closed.
fn answer(broker: &Broker, version: Version, client_id: &str) -> Vec<u8> {
    let mut connection = broker.connect();
    connection.send(&Connect::new(version, client_id).bytes());
    connection.read_to_end()
}

const BANNED: [u8; 5] = [0x20, 3, 0, 0x8a, 0];
const NOT_AUTHORIZED_3: [u8; 4] = [0x20, 2, 0, 5];

#[test]
fn a_banned_client_is_disconnected_and_kept_out_until_the_ban_is_lifted() {
    let directory = data_dir();
    let (broker, server) = start(directory.path());
    let mut frog = broker.client(Version::V5, "frog/1");
    let mut toad = broker.client(Version::V5, "toad");
    let answered = ban(&server, &json!({ "kind": "client_id", "value": "frog/1", "reason": "noisy" }));
    assert_eq!(answered.status, 200);
    frog.expect_disconnect(0x98);
    assert_eq!(answer(&broker, Version::V5, "frog/1"), BANNED);
    assert_eq!(answer(&broker, Version::V3_1_1, "frog/1"), NOT_AUTHORIZED_3);
    toad.expect_only_pong();
    let expected = json!({ "kind": "client_id", "value": "frog/1", "seconds_left": null, "reason": "noisy" });
    assert_eq!(server.value("/api/v1/bans"), json!({ "bans": [expected] }));
    broker.wait_for_log("action=Ban on=\"client_id frog/1\" role=\"admin\"");
    let counters = server.value("/api/v1/counters");
    assert_eq!((&counters["refused/banned"], &counters["ended/banned"]), (&json!(2), &json!(1)));
    broker.stop();
    let (broker, server) = start(directory.path());
    assert_eq!(answer(&broker, Version::V5, "frog/1"), BANNED, "a restart lifts no ban");
    assert_eq!(server.send("DELETE", "/api/v1/bans/client_id/frog%2F1", "", "").status, 200);
    broker.client(Version::V5, "frog/1").expect_only_pong();
    assert_eq!(server.send("DELETE", "/api/v1/bans/client_id/frog%2F1", "", "").status, 404);
}

#[test]
fn a_ban_of_users_and_networks_ends_after_its_time() {
    let directory = data_dir();
    let (broker, server) = start(directory.path());
    let mut ann = broker.client_with(&Connect { user: Some("ann"), ..Connect::new(Version::V5, "a") });
    assert_eq!(ban(&server, &json!({ "kind": "user", "value": "ann", "seconds": 1 })).status, 200);
    ann.expect_disconnect(0x98);
    until("the ban has ended", || {
        let mut connection = broker.connect();
        connection.send(&Connect { user: Some("ann"), ..Connect::new(Version::V5, "a") }.bytes());
        (connection.read_packet()[3] == 0).then_some(())
    });
    let mut all = broker.client(Version::V5, "b");
    assert_eq!(
        ban(&server, &json!({ "kind": "address", "value": "127.0.0.0/8", "seconds": 3600 })).status,
        200
    );
    all.expect_disconnect(0x98);
    assert_eq!(answer(&broker, Version::V5, "c"), BANNED);
    assert_eq!(server.value("/api/v1/bans")["bans"][0]["value"], "127.0.0.0/8");
    assert_eq!(server.send("DELETE", "/api/v1/bans/address/127.0.0.0%2F8", "", "").status, 200);
    broker.client(Version::V5, "c").expect_only_pong();
}

#[test]
fn an_explanation_names_the_ban_of_a_client() {
    let directory = data_dir();
    let (broker, server) = start(directory.path());
    let mut frog =
        broker.client_with(&Connect { clean_start: false, ..Connect::new(Version::V3_1_1, "frog") });
    frog.subscribe("pond/#");
    let _toad = broker.client(Version::V5, "toad");
    let explain = |publisher: &str, subscriber: &str| {
        let path = format!("/api/v1/explain?publisher={publisher}&topic=pond/x&subscriber={subscriber}");
        let value = server.value(&path);
        (value["reason"].clone(), value["steps"].to_string())
    };
    assert_eq!(explain("toad", "frog").0, "delivered");
    assert_eq!(ban(&server, &json!({ "kind": "client_id", "value": "frog", "reason": "noisy" })).status, 200);
    assert!(frog.read_to_end().is_empty());
    until("the frog is away", || (server.value("/api/v1/clients/frog")["connected"] == false).then_some(()));
    let (reason, steps) = explain("toad", "frog");
    assert_eq!(reason, "subscriber_banned");
    assert!(steps.contains("frog is banned (client id frog: noisy)"), "{steps}");
    let (reason, steps) = explain("frog", "toad");
    assert!(reason == "publisher_banned" && steps.contains("publishes nothing"), "{steps}");
    assert_eq!(server.send("DELETE", "/api/v1/bans/client_id/frog", "", "").status, 200);
    assert_eq!(explain("toad", "frog").0, "offline_qos_0");
}

#[test]
fn bans_are_bounded_and_mistakes_are_named() {
    let directory = data_dir();
    let (_broker, server) = start(directory.path());
    for (body, mistake) in [
        (json!({ "kind": "name", "value": "x" }), "none of client_id, user, address"),
        (json!({ "kind": "address", "value": "frog" }), "neither an address nor a network"),
        (json!({ "kind": "user" }), "value is missing"),
        (json!({ "kind": "user", "value": "x", "seconds": 0 }), "seconds is a whole number above 0"),
        (json!({ "kind": "user", "value": "x", "reason": "x".repeat(257) }), "more than 256 bytes"),
    ] {
        let answered = ban(&server, &body);
        assert_eq!(answered.status, 400);
        assert!(answered.body.contains(mistake), "{}", answered.body);
    }
    for number in 0..3 {
        assert_eq!(ban(&server, &json!({ "kind": "user", "value": format!("{number}") })).status, 200);
    }
    assert_eq!(ban(&server, &json!({ "kind": "user", "value": "2", "seconds": 9 })).status, 200, "a change");
    assert_eq!(ban(&server, &json!({ "kind": "user", "value": "3" })).status, 507);
    assert_eq!(server.value("/api/v1/counters")["admin/refused/bans"], 1);
}

#[test]
fn a_file_of_bans_with_a_mistake_stops_the_start() {
    let directory = data_dir();
    std::fs::write(directory.path().join("bans.json"), "{}").expect("the file can be written");
    let data_dir = Some(directory.path().to_owned());
    let told = Broker::try_start(&Options { data_dir, ..Options::default() })
        .expect_err("nobody knows who is banned");
    assert!(told.contains("bans.json: there is no list `bans`") && told.contains("remove it"), "{told}");
}
