//! Drain: new clients are refused, connected ones leave, and the broker ends if that was asked for.

use pondhawk_tests::packet::{Connect, Will};
use pondhawk_tests::{Broker, Options, Version, until};
use serde_json::{Value, json};

use crate::admin::{Answer, Server};

fn start() -> (Broker, Server) {
    start_with(2)
}

fn start_with(shards: u16) -> (Broker, Server) {
    let settings = "[admin]\naddress = \"127.0.0.1:0\"\n".to_owned();
    let broker = Broker::start(&Options { shards, settings, ..Options::default() });
    let server = Server::of(&broker);
    (broker, server)
}

fn drain(server: &Server, body: &Value) -> Answer {
    server.send("POST", "/api/v1/drain", "Content-Type: application/json\r\n", &body.to_string())
}

/// The answer to CONNECT, until the connection is closed.
fn refusal(broker: &Broker, version: Version) -> Vec<u8> {
    let mut connection = broker.connect();
    connection.send(&Connect::new(version, "new").bytes());
    connection.read_to_end()
}

#[test]
fn a_broker_that_is_drained_sends_clients_to_another_server_until_that_is_ended() {
    let (broker, server) = start();
    let mut frogs: Vec<_> =
        (0..10).map(|number| broker.client(Version::V5, &format!("frog-{number}"))).collect();
    let before = server.value("/api/v1/drain");
    assert_eq!(before, json!({ "draining": false, "clients": 10 }));
    let answered = drain(&server, &json!({ "server_reference": "b:1", "seconds": 0 }));
    assert_eq!(answered.status, 200, "{}", answered.body);
    let goodbye = [&[0xe0, 8, 0x9c, 6, 0x1c, 0, 3], &b"b:1"[..]].concat();
    for frog in &mut frogs {
        assert_eq!(frog.read_packet(), goodbye, "Use another server");
    }
    assert_eq!(
        refusal(&broker, Version::V5),
        [&[0x20, 9, 0, 0x9c, 6, 0x1c, 0, 3], &b"b:1"[..]].concat(),
        "Use another server"
    );
    assert_eq!(refusal(&broker, Version::V3_1_1), [0x20, 2, 0, 3]);
    let ready = server.send("GET", "/readyz", "", "");
    assert_eq!(ready.status, 503);
    assert!(ready.body.contains("the broker is being drained"), "{}", ready.body);
    until("all have left", || (server.value("/api/v1/drain")["clients"] == 0).then_some(()));
    broker.wait_for_log("action=Drain on=\"b:1\" role=\"admin\"");
    let counters = server.value("/api/v1/counters");
    assert_eq!((&counters["refused/draining"], &counters["ended/draining"]), (&json!(2), &json!(10)));
    assert_eq!(server.send("DELETE", "/api/v1/drain", "", "").status, 200);
    broker.wait_for_log("action=EndDrain");
    broker.client(Version::V5, "frog-0").expect_only_pong();
    assert_eq!(server.value("/readyz")["ready"], true);
    assert_eq!(server.send("DELETE", "/api/v1/drain", "", "").status, 404);
    assert_eq!(drain(&server, &json!({ "seconds": -1 })).status, 400);
    broker.client(Version::V5, "frog-1").expect_only_pong();
}

#[test]
fn without_another_server_the_reason_is_the_end_of_this_one_and_then_it_ends() {
    let (mut broker, server) = start();
    let mut frog = broker.client(Version::V5, "frog");
    let mut old = broker.client(Version::V3_1_1, "old");
    assert_eq!(drain(&server, &json!({ "seconds": 3_600, "exit": true })).status, 200);
    assert_eq!(refusal(&broker, Version::V5), [0x20, 3, 0, 0x88, 0], "Server unavailable");
    // The newer order counts.
    assert_eq!(drain(&server, &json!({ "seconds": 0, "exit": true })).status, 200);
    frog.expect_disconnect(0x8b);
    assert!(old.read_to_end().is_empty());
    broker.wait_for_log("the broker is drained, and ends");
    assert!(broker.wait().success());
}

/// An order counts for all shards or for none, even if nobody waits for its answer.
#[test]
fn an_order_whose_client_has_hung_up_leaves_no_shard_out() {
    let (broker, server) = start_with(6);
    let body = json!({ "seconds": 3_600 }).to_string();
    let is_accepted = |number| {
        let mut connection = broker.connect();
        connection.send(&Connect::new(Version::V5, &format!("frog-{number}")).bytes());
        connection.read_packet()[3] == 0
    };
    for _ in 0..20 {
        server.send_and_hang_up("POST", "/api/v1/drain", "Content-Type: application/json\r\n", &body);
        let is_draining = server.value("/api/v1/drain")["draining"] == true;
        // Each shard accepts some of these.
        let accepted = (0..40).filter(|number| is_accepted(*number)).count();
        let is_draining_now = server.value("/api/v1/drain")["draining"] == true;
        if is_draining == is_draining_now {
            assert_eq!(accepted, if is_draining { 0 } else { 40 });
        }
        let ended = server.send("DELETE", "/api/v1/drain", "", "").status;
        assert!([200, 404].contains(&ended));
    }
}

#[test]
fn a_session_that_lasts_leaves_with_its_will_and_is_found_again() {
    let (broker, server) = start();
    let expiry = [0x11, 0, 0, 0x0e, 0x10];
    let stays = Connect { clean_start: false, properties: &expiry, ..Connect::new(Version::V5, "heron") };
    let mut heron = broker
        .client_with(&Connect { will: Some(Will { retain: true, ..Will::new("gone", b"heron") }), ..stays });
    assert_eq!(drain(&server, &json!({ "seconds": 0 })).status, 200);
    heron.expect_disconnect(0x8b);
    assert_eq!(server.send("DELETE", "/api/v1/drain", "", "").status, 200);
    let (_, greeting) = broker.greet(&stays);
    assert_eq!(greeting[2..4], [1, 0], "the session is present");
    let mut watcher = broker.client(Version::V5, "watcher");
    watcher.subscribe("gone");
    watcher.expect_retained("gone", b"heron");
}

#[test]
fn an_order_of_the_command_line_drains_and_ends_draining() {
    let (broker, server) = start();
    let (is_done, text) = server.run(&["ctl", "drain", "--server-reference", "b:1", "--seconds", "3600"]);
    assert!(is_done && text.contains("draining          yes"), "{text}");
    assert_eq!(server.value("/api/v1/drain")["server_reference"], "b:1");
    assert!(server.run(&["ctl", "end-drain"]).0);
    broker.client(Version::V5, "frog").expect_only_pong();
}
