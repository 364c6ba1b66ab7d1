//! One line for each connect, refusal and disconnect: who, from where, and why.

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, Options, RawClient, Version, packet, until};
use serde_json::{Value, json};

use crate::admin::Server;
use crate::brokers;

/// The line about what happened to this connection.
fn line(broker: &Broker, event: &str, client_id: &str, connection: &RawClient) -> String {
    broker.wait_for_log(&format!("{event} client_id={client_id} peer={} ", connection.local_address()))
}

#[test]
fn connects_and_disconnects_are_logged_with_client_address_and_reason() {
    for broker in brokers("") {
        for version in Version::ALL {
            let connect = Connect { keep_alive_secs: 60, ..Connect::new(version, "frog") };
            let mut frog = broker.client_with(&connect);
            let connected = line(&broker, "connected", "frog", &frog);
            assert!(connected.ends_with(&format!("version={version} keep_alive_secs=60")), "{connected}");
            frog.send(&packet::disconnect(version, 0));
            frog.expect_closed();
            let left = line(&broker, "disconnected", "frog", &frog);
            assert!(
                left.ends_with("reason=0x00 (Normal disconnection) why=\"the client disconnected\""),
                "{left}"
            );
        }
    }
}

#[test]
fn every_end_of_a_connection_has_its_reason() {
    for broker in brokers("") {
        let ended = |client_id: &str, end: &dyn Fn(&mut RawClient)| {
            let mut client = broker.client(Version::V5, client_id);
            end(&mut client);
            line(&broker, "disconnected", client_id, &client)
        };
        let closed = ended("closes", &|client| client.finish());
        assert!(closed.contains("why=\"the client closed the connection\""), "{closed}");
        let malformed = ended("malformed", &|client| client.send(&[0x30, 0x00]));
        assert!(malformed.contains("reason=0x81 (Malformed Packet) why="), "{malformed}");
        let with_will = ended("with-will", &|client| client.send(&packet::disconnect(Version::V5, 4)));
        assert!(
            with_will.contains("reason=0x04 (Disconnect with Will Message) why=\"the client disconnected\""),
            "{with_will}"
        );
        let taken_over = ended("twin", &|_| drop(broker.client(Version::V3_1_1, "twin")));
        assert!(
            taken_over.contains("reason=0x8E (Session taken over) why=\"another connection"),
            "{taken_over}"
        );

        let client = broker.client(Version::V5, "resets");
        let address = client.local_address();
        client.into_raw().reset();
        let reset = broker.wait_for_log(&format!("disconnected client_id=resets peer={address} "));
        assert!(reset.contains("why=\"the client reset the connection\""), "{reset}");
    }
}

#[test]
fn refusals_are_logged_with_client_address_and_reason() {
    for broker in brokers("") {
        let refused = |client_id: &str, bytes: &[u8]| {
            let mut connection = broker.connect();
            connection.send(bytes);
            connection.read_to_end();
            line(&broker, "refused", client_id, &connection)
        };
        let nameless = Connect { clean_start: false, ..Connect::new(Version::V3_1_1, "") };
        let line = refused("", &nameless.bytes());
        assert!(
            line.contains("reason=0x85 (Client Identifier not valid) why=\"an empty client identifier\""),
            "{line}"
        );
        let long = "f".repeat(2_000);
        let line = refused("", &Connect::new(Version::V5, &long).bytes());
        assert!(
            line.contains(
                "reason=0x85 (Client Identifier not valid) why=\"the client identifier is too long\""
            ),
            "{line}"
        );
        let line = refused("", b"GET / HTTP/1.1\r\n\r\n");
        assert!(line.contains("why=\"WebSocket: a request without Host\""), "{line}");
        let line = refused("", b"\xc0\x00");
        assert!(line.contains("why=\"the first packet is a CONNECT\""), "{line}");
    }
}

#[test]
fn a_connection_that_says_nothing_is_refused_with_its_address() {
    for broker in brokers("[limits]\nconnect_timeout = \"100 ms\"\n") {
        let mut silent = broker.connect();
        silent.expect_closed();
        let line = line(&broker, "refused", "", &silent);
        assert!(line.contains("why=\"no CONNECT in time\""), "{line}");
    }
}

#[test]
fn a_connection_beyond_the_maximum_is_refused_with_its_address() {
    for broker in brokers("[limits]\nconnections = 1\n") {
        let _only = broker.client(Version::V5, "only");
        let mut other = broker.connect();
        other.expect_closed();
        let line = line(&broker, "refused", "", &other);
        assert!(
            line.contains(
                "reason=0x97 (Quota exceeded) why=\"there are as many connections as there may be\""
            ),
            "{line}"
        );
    }
}

#[test]
fn client_identifiers_cannot_forge_lines_or_colours() {
    for broker in brokers("") {
        let client = broker.client(Version::V5, "frog\n2026 INFO connected client_id=king\u{1b}[31m");
        let peer = format!("peer={} ", client.local_address());
        let line = broker.wait_for_log(&peer);
        assert!(line.contains("frog\\n2026 INFO connected client_id=king\\u{1b}[31m"), "{line}");
        assert!(!broker.log().contains('\u{1b}'));
        let client = broker.client(Version::V5, "toad peer=10.0.0.1:1 why=\"x");
        let line = broker.wait_for_log(&format!("peer={} ", client.local_address()));
        assert!(line.contains("connected client_id=\"toad peer=10.0.0.1:1 why=\\\"x\" peer=127"), "{line}");
    }
}

#[test]
fn lines_for_programs_are_json_objects() {
    for broker in brokers("[log]\nformat = \"json\"\n") {
        let client = broker.client(Version::V5, "frog");
        let address = client.local_address();
        client.leave();
        let line = broker.wait_for_log("\"disconnected\"");
        let line: serde_json::Value = serde_json::from_str(&line).expect("a line is a JSON object");
        assert_eq!(line["client_id"], "frog", "{line}");
        assert_eq!(line["peer"], address.to_string(), "{line}");
        assert_eq!(line["reason"], "0x00 (Normal disconnection)", "{line}");
        assert_eq!(line["why"], "the client disconnected", "{line}");
    }
}

#[test]
fn an_operator_changes_the_level_until_the_next_reload() {
    let settings = "[log]\nlevel = \"warn\"\n[admin]\naddress = \"127.0.0.1:0\"\n".to_owned();
    let broker = Broker::start(&Options { settings, ..Options::default() });
    let server = Server::of(&broker);
    let set = |level: Value| {
        let body = json!({ "level": level }).to_string();
        server.send("PUT", "/api/v1/log-level", "Content-Type: application/json\r\n", &body)
    };
    let _frog = broker.client(Version::V5, "frog");
    let answered = set(json!("debug"));
    assert_eq!(answered.status, 200, "{}", answered.body);
    broker.wait_for_log("action=SetLogLevel on=\"debug\" role=\"admin\"");
    let _toad = broker.client(Version::V5, "toad");
    broker.wait_for_log("toad");
    assert!(broker.log_lines("frog").is_empty(), "nothing is logged afterwards");
    assert_eq!(server.value("/api/v1/log-level"), json!({ "level": "debug" }));
    for wrong in [json!("off"), json!("error"), json!("loud"), json!(1), Value::Null] {
        assert_eq!(set(wrong.clone()).status, 400, "{wrong}");
    }
    broker.hang_up();
    until("the level is that of the configuration", || {
        (server.value("/api/v1/log-level")["level"] == "warn").then_some(())
    });
    let _newt = broker.client(Version::V5, "newt");
    let _reload = server.send("POST", "/api/v1/reload", "", "");
    broker.wait_for_log("action=Reload");
    assert!(broker.log_lines("newt").is_empty(), "connections are no warnings");
}
