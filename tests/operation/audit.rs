//! The file with all changes by operators.

use std::fs;
use std::path::Path;

use pondhawk_tests::{Broker, Options, data_dir, until};
use serde_json::Value;

use crate::admin::Server;

fn start(file: &Path, data_dir: &Path) -> (Broker, Server) {
    let settings = format!("[admin]\naddress = \"127.0.0.1:0\"\naudit_file = {file:?}\n");
    let data_dir = Some(data_dir.to_owned());
    let broker = Broker::start(&Options { settings, data_dir, ..Options::default() });
    let server = Server::of(&broker);
    (broker, server)
}

/// Bans a client, and returns the status.
fn ban(server: &Server, client: &str) -> u16 {
    let body = format!("{{\"kind\": \"client_id\", \"value\": {client:?}}}");
    server.send("POST", "/api/v1/bans", "Content-Type: application/json\r\n", &body).status
}

fn records(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).expect("it is there");
    text.lines().map(|line| serde_json::from_str(line).expect("each line is a record")).collect()
}

/// The record is in the file when the change is answered, and the list goes on with it after the end of the process.
#[test]
fn changes_are_recorded_before_they_are_answered_and_listed_after_a_restart() {
    let directory = data_dir();
    let (file, data) = (directory.path().join("audit"), directory.path().join("data"));
    let (broker, server) = start(&file, &data);
    for (number, client) in ["frog", "toad"].iter().enumerate() {
        assert_eq!(ban(&server, client), 200);
        assert_eq!(records(&file).len(), number + 1, "it is there already");
    }
    assert_eq!(ban(&server, ""), 400, "a change that fails has a record too");
    let listed = server.value("/api/v1/audit")["changes"].clone();
    // As a loss of power ends it.
    drop(broker);
    let (_broker, server) = start(&file, &data);
    assert_eq!(server.value("/api/v1/audit")["changes"], listed, "nothing of the records is lost");
    assert_eq!(ban(&server, "newt"), 200);
    let changes = server.value("/api/v1/audit")["changes"].clone();
    let of = |field: &str| -> Vec<String> {
        let changes = changes.as_array().expect("a list");
        changes.iter().map(|change| change[field].to_string()).collect()
    };
    assert_eq!(of("status"), ["200", "400", "200", "200"]);
    let on = of("on").concat();
    let places = ["newt", "toad", "frog"].map(|client| on.find(client).expect("it is listed"));
    assert!(places.is_sorted(), "{on}");
    assert_eq!(records(&file).len(), 4);
}

/// Logging out is a request that a viewer may make again and again.
#[test]
fn a_viewer_displaces_no_records_of_changes() {
    let directory = data_dir();
    let (_broker, [admin, operator, viewer]) = Server::with_roles(1, "", directory.path());
    assert_eq!(ban(&operator, "frog"), 200);
    for _ in 0..600 {
        assert_eq!(viewer.send("DELETE", "/api/v1/session", "", "").status, 400);
    }
    let changes = admin.value("/api/v1/audit")["changes"].clone();
    let changes = changes.as_array().expect("a list");
    assert_eq!((changes.len(), changes[0]["action"].as_str()), (1, Some("Ban")));
}

/// Somebody who has to free a full disk is an operator.
#[test]
fn a_change_whose_record_cannot_be_written_is_made_with_a_warning() {
    let directory = data_dir();
    let (file, data) = (directory.path().join("audit"), directory.path().join("data"));
    fs::create_dir(&file).expect("it is ours");
    let (broker, server) = start(&file, &data);
    assert_eq!(server.value("/readyz")["warnings"], Value::Array(Vec::new()));
    assert_eq!(ban(&server, "frog"), 200);
    let ready = server.value("/readyz");
    assert_eq!(ready["ready"], true);
    assert!(ready["warnings"][0].as_str().is_some_and(|text| text.contains("audit_file")), "{ready}");
    assert_eq!(server.value("/api/v1/status")["warnings"], ready["warnings"]);
    assert_eq!(server.value("/api/v1/bans")["bans"][0]["value"], "frog", "the change is made");
    broker.wait_for_log("the record of a change is not in `audit_file`");
    let (is_done, text) = server.run(&["ctl", "ready"]);
    assert!(is_done && text.contains("ready\nwarning: records of changes"), "{text}");
    fs::remove_dir(&file).expect("it is ours");
    assert_eq!(ban(&server, "toad"), 200);
    assert_eq!(records(&file).len(), 1);
    until("the warning is over", || (server.value("/readyz")["warnings"][0].is_null()).then_some(()));
    let figures = server.value("/api/v1/counters");
    assert_eq!([&figures["admin/audit_written"], &figures["admin/audit_failed"]], [1, 1]);
}
