//! Backups that operators order while the broker runs.

use std::path::Path;

use pondhawk_tests::{Broker, Options, Version, data_dir, until};
use serde_json::{Value, json};

use crate::admin::{Answer, Server};

fn start(data: &Path, backups: Option<&Path>) -> (Broker, Server) {
    let backup_dir = backups.map(|path| format!("backup_dir = {path:?}\n")).unwrap_or_default();
    let settings = format!("[admin]\naddress = \"127.0.0.1:0\"\n{backup_dir}");
    let data_dir = Some(data.to_owned());
    let broker = Broker::start(&Options { settings, data_dir, ..Options::default() });
    let server = Server::of(&broker);
    (broker, server)
}

fn back_up(server: &Server, name: &Value) -> Answer {
    let body = json!({ "name": name }).to_string();
    server.send("POST", "/api/v1/backup", "Content-Type: application/json\r\n", &body)
}

#[test]
fn a_backup_is_made_while_the_broker_runs_and_another_broker_starts_on_it() {
    let (data, backups) = (data_dir(), data_dir());
    let (broker, server) = start(data.path(), Some(backups.path()));
    assert_eq!(server.value("/api/v1/backup"), json!({ "state": "none" }));
    let body = json!({ "topic": "pond/frog", "payload": "croak", "retain": true, "qos": 1 });
    assert_eq!(server.publish(&body).status, 200);
    until("the message is retained", || {
        (server.send("GET", "/api/v1/retained/pond%2Ffrog", "", "").status == 200).then_some(())
    });
    let answered = back_up(&server, &json!("monday"));
    assert_eq!(answered.status, 202, "{}", answered.body);
    let done = until("the backup is done", || {
        let last = server.value("/api/v1/backup");
        (last["state"] != "copying" && last["state"] != "checking").then_some(last)
    });
    assert_eq!((&done["name"], &done["state"]), (&json!("monday"), &json!("done")), "{done}");
    assert!(done["copied_bytes"].as_u64() >= done["total_bytes"].as_u64(), "{done}");
    assert!(done["text"].as_str().is_some_and(|text| text.contains("is a copy of")), "{done}");
    broker.wait_for_log("action=Backup on=\"monday\" role=\"admin\" ");
    broker.wait_for_log("a backup is done");
    assert_eq!(back_up(&server, &json!("monday")).status, 409, "there is one of this name");
    broker.client(Version::V5, "frog").expect_only_pong();
    let (other, _server) = start(&backups.path().join("monday"), None);
    let mut frog = other.client(Version::V3_1_1, "frog");
    frog.subscribe("pond/#");
    frog.expect_retained("pond/frog", b"croak");
}

#[test]
fn the_command_line_begins_a_backup_and_shows_it() {
    let (data, backups) = (data_dir(), data_dir());
    let (_broker, server) = start(data.path(), Some(backups.path()));
    let (is_done, text) = server.run(&["ctl", "backup", "monday"]);
    assert!(is_done && text.contains("monday"), "{text}");
    until("the backup is done", || {
        let (is_done, text) = server.run(&["ctl", "backup"]);
        assert!(is_done && !text.contains("failed"), "{text}");
        text.contains("is a copy of").then_some(())
    });
    let (is_done, text) = server.run(&["ctl", "backup", "monday"]);
    assert!(!is_done && text.contains("there is a backup monday already"), "{text}");
}

#[test]
fn a_name_leads_nowhere_else_and_without_a_directory_there_are_no_backups() {
    let (data, backups) = (data_dir(), data_dir());
    {
        let (_broker, server) = start(data.path(), Some(backups.path()));
        for name in
            [json!("../x"), json!("/tmp/x"), json!(".."), json!(""), json!("a/b"), json!(7), Value::Null]
        {
            assert_eq!(back_up(&server, &name).status, 400, "{name}");
        }
        std::os::unix::fs::symlink("/tmp", backups.path().join("link")).expect("a link can be made");
        assert_eq!(back_up(&server, &json!("link")).status, 409);
    }
    let (_broker, server) = start(data.path(), None);
    let answered = back_up(&server, &json!("monday"));
    assert_eq!(answered.status, 403);
    assert!(answered.body.contains("backup_dir"), "{}", answered.body);
}
