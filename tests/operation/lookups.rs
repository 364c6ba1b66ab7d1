//! Facts that operators look up: subscribers, topics, certificates, the log, changes, and the outcome of a reload.

use std::fs;
use std::process::Command;

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Options, Version, pondhawk, until};
use serde_json::{Value, json};

use crate::admin::{Server, broker};

fn texts<'a>(list: &'a Value, field: &str) -> Vec<&'a str> {
    list.as_array().into_iter().flatten().map(|item| item[field].as_str().unwrap_or("-")).collect()
}

#[test]
fn an_operator_sees_who_gets_a_topic() {
    let (broker, server) = broker("");
    let mut frog = broker.client(Version::V5, "frog");
    frog.subscribe("pond/+");
    frog.subscribe("pond/#");
    let mut newt = broker.client(Version::V3_1_1, "newt");
    newt.subscribe("pond/x");
    newt.subscribe("$share/workers/pond/#");
    newt.subscribe("desert/#");
    let found = until("all are there", || {
        let found = server.value("/api/v1/subscriptions?topic=pond%2Fx");
        (found["subscriptions"].as_array().map(Vec::len) == Some(4)).then_some(found)
    });
    let mut filters = texts(&found["subscriptions"], "filter");
    filters.sort_unstable();
    assert_eq!(filters, ["pond/#", "pond/#", "pond/+", "pond/x"]);
    assert!(texts(&found["subscriptions"], "group").contains(&"$share/workers/pond/#"));
    // The pieces of a list are the list.
    let (mut pieces, mut cursor) = (Vec::new(), String::new());
    loop {
        let piece = server.value(&format!("/api/v1/subscriptions?topic=pond%2Fx&limit=3{cursor}"));
        pieces.extend(texts(&piece["subscriptions"], "filter").into_iter().map(str::to_owned));
        let Some(next) = piece["cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    pieces.sort_unstable();
    assert_eq!(pieces, filters);
    for wrong in ["?topic=a%2F%23", "?topic=pond&cursor=x", "", "?topic=pond&limit=0"] {
        assert_eq!(server.get(&format!("/api/v1/subscriptions{wrong}")).status, 400, "{wrong}");
    }
    let beyond = server.value(&format!("/api/v1/subscriptions?topic=pond%2Fx&cursor={}", u64::MAX));
    assert_eq!((&beyond["subscriptions"], &beyond["cursor"]), (&json!([]), &Value::Null));
}

#[test]
fn topics_are_a_tree_and_are_cleared_by_filter() {
    let (broker, server) = broker("");
    for number in 0..1_500 {
        let body = json!({ "topic": format!("pond/{number}/level"), "payload": "7", "retain": true });
        assert_eq!(server.publish(&body).status, 200);
    }
    let other = json!({ "topic": "desert", "payload": "dry", "retain": true });
    assert_eq!(server.publish(&other).status, 200);
    let first = until("all are there", || {
        let first = server.value("/api/v1/topics");
        (server.get("/api/v1/retained/desert").status == 200).then_some(first)
    });
    assert_eq!(texts(&first["topics"], "name"), ["$SYS", "desert", "pond"]);
    assert_eq!(first["topics"][1]["retained"]["payload"], "dry");
    assert_eq!(first["topics"][2]["has_more_levels"], true);
    let below = server.value("/api/v1/topics?under=pond&limit=1000");
    assert_eq!(below["topics"].as_array().map(Vec::len), Some(1_000));
    let cursor = below["cursor"].as_str().expect("more follow");
    let rest = server.value(&format!("/api/v1/topics?under=pond&limit=1000&cursor={cursor}"));
    assert_eq!((rest["topics"].as_array().map(Vec::len), &rest["cursor"]), (Some(500), &Value::Null));
    let mut watcher = broker.client(Version::V5, "watcher");
    watcher.subscribe("pond/1499/level");
    assert!(watcher.read_packet().ends_with(b"7"));
    let piece = server.send("DELETE", "/api/v1/retained?filter=pond%2F%2B%2Flevel", "", "");
    let piece: Value = serde_json::from_str(&piece.body).expect("JSON");
    assert_eq!(piece["cleared"], 1_024);
    let cursor = piece["cursor"].as_str().expect("more follow");
    let path = format!("/api/v1/retained?filter=pond%2F%2B%2Flevel&cursor={cursor}");
    let rest: Value = serde_json::from_str(&server.send("DELETE", &path, "", "").body).expect("JSON");
    assert_eq!((&rest["cleared"], &rest["cursor"]), (&json!(476), &Value::Null));
    until("they are gone", || {
        let left = server.value("/api/v1/topics?under=pond");
        (left["topics"] == json!([]) && left["cursor"] == Value::Null).then_some(())
    });
    assert_eq!(server.get("/api/v1/retained/desert").status, 200, "others stay");
    watcher.expect_message("pond/1499/level", b"");
    for (filter, status) in [("%24SYS%2F%23", 403), ("%24share%2Fg%2Fa", 400), ("a%23", 400)] {
        assert_eq!(
            server.send("DELETE", &format!("/api/v1/retained?filter={filter}"), "", "").status,
            status
        );
    }
    assert_eq!(server.send("DELETE", "/api/v1/retained", "", "").status, 400, "not everything by accident");
}

#[test]
fn a_message_of_an_operator_has_properties() {
    let (broker, server) = broker("");
    let mut frog = broker.client(Version::V5, "frog");
    frog.subscribe("pond");
    let body = json!({
        "topic": "pond", "payload": "7", "expiry_seconds": 60, "content_type": "text/plain", "response_topic": "answers",
        "user_properties": [["unit", "°C"], ["unit", "K"]],
    });
    assert_eq!(server.publish(&body).status, 200);
    let packet = frog.read_packet();
    let text = String::from_utf8_lossy(&packet);
    for part in ["text/plain", "answers", "unit", "°C", "K"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for (field, wrong) in [
        ("expiry_seconds", json!(-1)),
        ("expiry_seconds", json!(4_294_967_296_u64)),
        ("content_type", json!("a\u{0}b")),
        ("response_topic", json!("a/#")),
        ("user_properties", json!({ "unit": "K" })),
        ("user_properties", json!([["unit"]])),
        ("user_properties", json!([["unit", 7]])),
        ("user_properties", json!([["x", "y".repeat(65_536)]])),
    ] {
        let mut body = json!({ "topic": "pond", "payload": "7" });
        body[field] = wrong;
        assert_eq!(server.publish(&body).status, 400, "{body}");
    }
}

#[test]
fn each_change_is_listed_with_its_operator_and_both_states() {
    let files = tempfile::tempdir().expect("a directory");
    let (broker, [admin, operator, viewer]) = Server::with_roles(1, "", files.path());
    let json = "Content-Type: application/json\r\n";
    assert_eq!(admin.send("PUT", "/api/v1/log-level", json, "{\"level\":\"debug\"}").status, 200);
    let ban = json!({ "kind": "user", "value": "toad", "reason": "noisy" }).to_string();
    assert_eq!(operator.send("POST", "/api/v1/bans", json, &ban).status, 200);
    assert_eq!(operator.send("DELETE", "/api/v1/bans/user/toad", "", "").status, 200);
    assert_eq!(operator.send("DELETE", "/api/v1/clients/nobody/connection", "", "").status, 404);
    assert_eq!(viewer.send("POST", "/api/v1/bans", json, &ban).status, 403);
    let found = viewer.value("/api/v1/audit");
    let changes = found["changes"].as_array().expect("a list");
    let actions = ["Disconnect", "LiftBan", "Ban", "SetLogLevel"];
    assert_eq!(texts(&found["changes"], "action"), actions);
    let who = ["operator", "operator", "operator", "admin"].map(|role| format!("{role} of the night"));
    assert_eq!(texts(&found["changes"], "who"), who);
    let refused = broker.wait_for_log("without the right to it");
    assert!(refused.contains("who=\"viewer of the night\"") && refused.contains("status=403"), "{refused}");
    assert_eq!((&changes[0]["status"], &changes[0]["on"]), (&json!(404), &json!("nobody")));
    let lifted = changes[1]["before"].as_str().expect("the ban");
    assert!(lifted.contains("noisy"), "{lifted}");
    assert_eq!((&changes[2]["on"], &changes[2]["before"]), (&json!("user toad"), &json!("null")));
    assert_eq!(changes[3]["before"], "{\"level\":\"info\"}");
    assert!(changes[3]["after"].as_str().is_some_and(|after| after.contains("\"level\":\"debug\"")));
    let line = broker.wait_for_log("action=SetLogLevel");
    assert!(line.contains("who=\"admin of the night\""), "{line}");
    let piece = viewer.value("/api/v1/audit?limit=3");
    let cursor = piece["cursor"].as_str().expect("more follow");
    let rest = viewer.value(&format!("/api/v1/audit?limit=3&cursor={cursor}"));
    assert_eq!(texts(&rest["changes"], "action"), ["SetLogLevel"]);
}

#[test]
fn the_last_lines_of_the_log_are_read_through_the_server() {
    let (broker, server) = broker("");
    let _clients = ["newt", "toad", "olm", "frog"].map(|client_id| broker.client(Version::V5, client_id));
    broker.wait_for_log("client_id=frog");
    let found = server.value("/api/v1/log?match=CLIENT_ID%3Dfrog");
    assert_eq!(found["lines"][0]["fields"]["client_id"], "frog", "{found}");
    assert_eq!(found["lines"][0]["level"], "info");
    assert_eq!(server.value("/api/v1/log?match=frog&level=warn")["lines"], json!([]));
    let two = server.value("/api/v1/log?limit=2");
    let older =
        server.value(&format!("/api/v1/log?limit=2&cursor={}", two["cursor"].as_str().expect("more")));
    assert!(older["lines"][0]["unix_ms"].as_u64() <= two["lines"][1]["unix_ms"].as_u64());
    assert_ne!(older["lines"], two["lines"]);
    assert_eq!(server.get("/api/v1/log?level=loud").status, 400);
    let guess = server.with_token("0123456789abcdef");
    assert_eq!(server.with_token("").get("/api/v1/log").status, 401);
    assert_eq!([guess.get("/api/v1/log").status, guess.get("/api/v1/log").status], [401, 401]);
    let wrong = server.value("/api/v1/log?match=wrong%20token");
    assert_eq!(wrong["lines"].as_array().map(Vec::len), Some(1), "{wrong}");
    let (is_done, text) = server.run(&["ctl", "log", "frog"]);
    assert!(is_done && text.contains(" INFO  ") && text.contains("client_id=frog"), "{text}");
}

/// A broker whose configuration is a file.
fn with_file(text: &str, directory: &std::path::Path) -> (Broker, Server, std::path::PathBuf) {
    let file = directory.join("pond.toml");
    fs::write(&file, text).expect("it is ours");
    let broker = Broker::start(&Options { file: Some(file.clone()), ..Options::default() });
    let server = Server::of(&broker);
    (broker, server, file)
}

#[test]
fn a_reload_tells_its_outcome() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = "[admin]\naddress = \"127.0.0.1:0\"\n[[listener]]\naddress = \"127.0.0.1:0\"\n";
    let (_broker, server, file) = with_file(text, directory.path());
    assert_eq!(server.value("/api/v1/reload"), json!({ "number": 0 }));
    let reload = || server.run(&["ctl", "reload"]);
    assert_eq!(reload(), (true, "the configuration is as before\n".to_owned()));
    fs::write(&file, format!("{text}[sessions]\nqueue_messages = 77\n[sys]\ninterval = \"7 s\"\n"))
        .expect("it is ours");
    let (is_done, said) = reload();
    assert!(is_done && said.contains("sessions.queue_messages = 77 from now on\n"), "{said}");
    assert!(said.contains("sys.interval") && said.contains("needs a restart"), "{said}");
    let shown = server.value("/api/v1/configuration")["toml"].as_str().expect("a text").to_owned();
    assert!(shown.contains("queue_messages = 77 # line 6\n"), "{shown}");
    assert!(shown.contains("interval = \"10 s\" # default\n"), "the key waits for a restart: {shown}");
    assert!(shown.contains("retained_bytes = ") && shown.contains(" # default\n"), "{shown}");
    fs::write(&file, format!("{text}[sessions]\nqueue_mesages = 7\n")).expect("it is ours");
    let (is_done, said) = reload();
    assert!(!is_done && said.contains("the configuration stays as it was"), "{said}");
    assert!(said.contains("queue_mesages"), "{said}");
    assert_eq!(server.value("/api/v1/reload")["outcome"], "refused");
}

#[test]
fn certificates_are_listed_with_their_ends() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let made = Command::new(pondhawk())
        .args(["certs", "init"])
        .arg(directory.path())
        .args(["--host", "pond.example"])
        .output();
    assert!(made.expect("the program runs").status.success());
    let settings = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\ntls_certificate = {:?}\ntls_key = {:?}\n         [admin]\naddress = \"127.0.0.1:0\"\n",
        path("server.pem"),
        path("server.key"),
    );
    let broker = Broker::start(&Options { settings, ..Options::default() });
    let server = Server::of(&broker);
    let found = server.value("/api/v1/certificates");
    let first = &found["certificates"][0];
    assert_eq!(
        (&first["purpose"], &first["names"]),
        (&json!("server"), &json!(["pond.example", "localhost"]))
    );
    assert!(first["days_left"].as_i64().is_some_and(|days| days > 30), "{first}");
    assert!(first["file"].as_str().is_some_and(|file| file.ends_with("server.pem")));
}

#[test]
fn a_queue_that_was_left_shows_its_subscriber_away() {
    let (broker, server) = broker("");
    let connect = Connect { clean_start: false, ..Connect::new(Version::V3_1_1, "newt") };
    let mut newt = broker.client_with(&connect);
    newt.send(&packet::subscribe_with(Version::V3_1_1, 1, "pond", 1));
    newt.expect(&packet::suback(Version::V3_1_1, 1, 1));
    drop(newt);
    until("it is away", || {
        let found = server.value("/api/v1/subscriptions?topic=pond");
        let one = &found["subscriptions"][0];
        (one["connected"] == false && one["lasting"] == true).then_some(())
    });
}

/// A client may have the name of a dot segment, which browsers take out of paths.
#[test]
fn a_client_with_the_name_of_a_dot_is_found_behind_a_nul() {
    let (broker, server) = broker("");
    let mut dot = broker.client(Version::V5, ".");
    let _other = broker.client(Version::V5, "connection");
    until("it is there", || (server.get("/api/v1/clients/%00.").status == 200).then_some(()));
    assert_eq!(server.value("/api/v1/clients/%00.")["client_id"], ".");
    assert_eq!(server.send("DELETE", "/api/v1/clients/%00./connection", "", "").status, 200);
    assert_eq!(dot.read_packet(), [0xe0, 1, 0x98], "Administrative action");
    assert_eq!(server.value("/api/v1/clients/connection")["connected"], true);
}

/// Clients choose topics of 64 KiB, and JSON writes some of their characters with six bytes.
#[test]
fn lists_of_long_names_come_in_pieces() {
    let (_broker, server) = broker("");
    let topic = |number: usize| format!("{}{number:02}", "\u{1}".repeat(20_000));
    for number in 0..40 {
        let body = json!({ "topic": topic(number), "payload": "x", "retain": true });
        assert_eq!(server.publish(&body).status, 200);
    }
    until("all are there", || {
        (server.value("/api/v1/counters")["retained messages/count"].as_u64() >= Some(40)).then_some(())
    });
    for (path, list) in [("/api/v1/retained?limit=1000", "retained"), ("/api/v1/topics?limit=1000", "topics")]
    {
        let answer = server.get(path);
        assert!(answer.body.len() < 3 << 20, "{path}: {}", answer.body.len());
        let value: Value = serde_json::from_str(&answer.body).expect("JSON");
        let count = value[list].as_array().map_or(0, Vec::len);
        assert!((1..40).contains(&count) && value["cursor"].is_string(), "{path}: {count}");
    }
}
