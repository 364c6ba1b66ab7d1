//! Users of MQTT clients, which operators list and change.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, Options, RawClient, Version, data_dir, until};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::admin::Server;
use crate::operators::set_passwords;

/// A broker with dynamic security, a password file and rules at its only listener.
struct Place {
    directory: TempDir,
    broker: Broker,
    server: Server,
}

const JSON: &str = "Content-Type: application/json\r\n";

impl Place {
    fn start() -> Self {
        let directory = data_dir();
        let path = |name: &str| directory.path().join("files").join(name);
        fs::create_dir(directory.path().join("files")).expect("it is ours");
        let rule = json!({ "acltype": "publishClientSend", "topic": "pond/#", "allow": true });
        let dynamic = json!({
            "clients": [{ "username": "old", "disabled": true }],
            "groups": [{ "groupname": "staff" }],
            "roles": [{ "rolename": "writer", "acls": [rule] }, { "rolename": "reader" }],
        });
        fs::write(path("dynamic"), dynamic.to_string()).expect("it is ours");
        set_passwords(&path("users"), &[("zoe", "z"), ("bob", "b")]);
        fs::write(path("acl"), "user bob\ntopic read pond/#\n").expect("it is ours");
        let settings = format!(
            "[auth]\ndynamic_security_file = {:?}\npassword_file = {:?}\nacl_file = {:?}\n\
             [admin]\naddress = \"127.0.0.1:0\"\n",
            path("dynamic"),
            path("users"),
            path("acl"),
        );
        let broker = Broker::start(&Options { settings, ..Options::default() });
        let server = Server::of(&broker);
        Self { directory, broker, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("files").join(name)
    }

    /// Sends a change below the routes of users. Returns the status and the message.
    fn change(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        let answer = self.server.send(method, &format!("/api/v1/access/users{path}"), JSON, &text);
        let value: Value = serde_json::from_str(&answer.body).unwrap_or_default();
        (answer.status, value["error"]["message"].as_str().unwrap_or_default().to_owned())
    }

    /// A client that logs in, and the reason code of the answer.
    fn log_in(&self, user: &str, password: &[u8]) -> (RawClient, u8) {
        let connect =
            Connect { user: Some(user), password: Some(password), ..Connect::new(Version::V5, "frog") };
        let mut client = self.broker.connect();
        client.send(&connect.bytes());
        let code = client.read_packet()[3];
        (client, code)
    }

    fn users(&self, query: &str) -> Vec<String> {
        let found = self.server.value(&format!("/api/v1/access/users?{query}"));
        let users = found["users"].as_array().expect("a list").iter();
        users.map(|user| user["user"].as_str().expect("a name").to_owned()).collect()
    }
}

/// The commands are those of `$CONTROL/dynamic-security/v1`: the file is written, and connected clients feel it.
#[test]
fn an_operator_makes_changes_and_deletes_a_user() {
    let place = Place::start();
    let done = |method, path: &str, body: Value| {
        let (status, text) = place.change(method, path, &body);
        assert_eq!(status, 200, "{method} {path}: {text}");
    };
    done("POST", "", json!({ "name": "ann/1", "password": "secret7", "roles": ["writer"], "text": "Ann" }));
    assert_eq!(place.log_in("ann/1", b"wrong7").1, 0x86);
    let (mut client, code) = place.log_in("ann/1", b"secret7");
    assert_eq!(code, 0);
    done("PUT", "/ann%2F1/roles/reader?priority=5", Value::Null);
    done("PUT", "/ann%2F1/groups/staff", Value::Null);
    let user = place.server.value("/api/v1/access/users/ann%2F1")["users"][0].clone();
    assert_eq!(user["roles"], json!([{ "rolename": "reader", "priority": 5 }, { "rolename": "writer" }]));
    assert_eq!((&user["groups"], &user["text"]), (&json!([{ "groupname": "staff" }]), &json!("Ann")));
    let groups = place.server.value("/api/v1/access/groups");
    assert_eq!(groups["groups"][0]["clients"], json!([{ "username": "ann/1" }]));
    done("DELETE", "/ann%2F1/roles/reader", Value::Null);
    done("DELETE", "/ann%2F1/groups/staff", Value::Null);
    done("PUT", "/ann%2F1/password", json!({ "password": "other77" }));
    assert_eq!(client.read_packet()[..3], [0xe0, 1, 0x87][..], "its password is another one");
    assert_eq!([place.log_in("ann/1", b"secret7").1, place.log_in("ann/1", b"other77").1], [0x86, 0]);
    done("PUT", "/ann%2F1/enabled", json!({ "enabled": false }));
    assert_eq!(place.log_in("ann/1", b"other77").1, 0x86);
    done("PUT", "/ann%2F1/enabled", json!({ "enabled": true }));
    assert_eq!(place.log_in("ann/1", b"other77").1, 0);
    let file = fs::read_to_string(place.path("dynamic")).expect("it is there");
    assert!(file.contains("ann/1") && file.contains("writer"), "{file}");
    done("DELETE", "/ann%2F1", Value::Null);
    assert_eq!(place.change("DELETE", "/ann%2F1", &Value::Null).0, 404);
    let audit = place.server.value("/api/v1/audit?limit=1000").to_string();
    let log = place.broker.log();
    for text in [&audit, &log] {
        assert!(text.contains("SetPassword") && text.contains("ann/1"));
        assert!(!text.contains("secret7") && !text.contains("other77"), "no record has a password");
    }
    let last = place.server.value("/api/v1/audit?limit=2")["changes"][1].clone();
    assert!(last["before"].to_string().contains("writer"), "{last}");
}

#[test]
fn changes_that_are_not_possible_are_refused_with_their_reason() {
    let place = Place::start();
    let rows = [
        ("POST", "", json!({ "name": "old" }), 409, "already exists"),
        ("POST", "", json!({ "name": "" }), 400, "Empty username"),
        ("POST", "", json!({ "name": "a\u{0}b" }), 400, "not valid"),
        ("POST", "", json!({ "name": 7 }), 400, "name is to be a text"),
        ("POST", "", json!({ "password": "x" }), 400, "name is missing"),
        ("POST", "", json!({ "name": "x", "roles": "writer" }), 400, "list of names"),
        ("POST", "", json!({ "name": "x", "roles": ["none"] }), 404, "Role not found"),
        ("POST", "", json!({ "name": "x", "groups": ["none"] }), 404, "Group not found"),
        ("PUT", "/nobody/password", json!({ "password": "x" }), 404, "Client not found"),
        ("PUT", "/old/password", json!({ "password": "" }), 400, "Empty password"),
        ("PUT", "/old/password", json!({}), 400, "password is missing"),
        ("PUT", "/old/enabled", json!({ "enabled": "no" }), 400, "true or false"),
        ("PUT", "/old/roles/none", Value::Null, 404, "Role not found"),
        ("PUT", "/old/roles/writer?priority=high", Value::Null, 400, "whole number"),
        ("PUT", "/bob/enabled", json!({ "enabled": false }), 404, "Client not found"),
    ];
    for (method, path, body, status, expected) in rows {
        let (found, text) = place.change(method, path, &body);
        assert!(found == status && text.contains(expected), "{method} {path} {body}: {found} {text}");
    }
    // The file cannot be written: everything stays as it was.
    fs::rename(place.directory.path().join("files"), place.directory.path().join("away"))
        .expect("it is ours");
    assert_eq!(place.change("POST", "", &json!({ "name": "late" })).0, 503);
    assert_eq!(place.users("match=late"), [""; 0]);
    let (broker, server) = crate::admin::broker("");
    let refused = server.send("POST", "/api/v1/access/users", JSON, r#"{"name": "x"}"#);
    assert!(refused.status == 409 && refused.body.contains("dynamic_security_file"), "{}", refused.body);
    assert_eq!(server.value("/api/v1/access/users")["users"], json!([]));
    assert_eq!(server.value("/api/v1/access/sources")["sources"], json!([]));
    drop(broker);
}

#[test]
fn users_and_rules_of_all_sources_are_listed() {
    let place = Place::start();
    let commands: Vec<Value> = (0..250)
        .map(|number| json!({ "command": "createClient", "username": format!("u{number:03}") }))
        .collect();
    let body = json!({ "commands": commands }).to_string();
    let answer = place.server.send("POST", "/api/v1/access/commands", JSON, &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let found = place.server.value(&format!("/api/v1/access/users?limit=100{cursor}"));
        let users = found["users"].as_array().expect("a list").clone();
        assert!(users.len() <= 100);
        names.extend(users.iter().map(|user| user["user"].as_str().expect("a name").to_owned()));
        match found["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(names.len(), 253);
    assert_eq!(
        [&*names[0], &*names[1], &*names[250], &*names[251], &*names[252]],
        ["old", "u000", "u249", "bob", "zoe"]
    );
    assert_eq!(place.users("match=B"), ["bob"]);
    assert_eq!(place.server.get("/api/v1/access/users?cursor=nonsense").status, 400);
    let sources = place.server.value("/api/v1/access/sources")["sources"].clone();
    let of = |field: &str| -> Vec<Value> {
        sources.as_array().expect("a list").iter().map(|source| source[field].clone()).collect()
    };
    assert_eq!(of("kind"), ["dynamic_security_file", "password_file", "acl_file"]);
    assert_eq!(of("users"), [json!(251), json!(2), Value::Null]);
    assert_eq!(of("editable"), [true, false, false]);
    let acl = place.path("acl").display().to_string();
    let rules = place.server.value(&format!("/api/v1/access/rules?place={}", acl.replace('/', "%2F")));
    assert_eq!(rules["text"], "user bob\ntopic read pond/#\n");
    for other in ["/etc/passwd", "", &place.path("users").display().to_string()] {
        let answer = place.server.get(&format!("/api/v1/access/rules?place={}", other.replace('/', "%2F")));
        assert_eq!(answer.status, 404, "{other}");
    }
    assert_eq!(place.server.value("/api/v1/access/roles")["roles"][1]["acls"][0]["topic"], "pond/#");
}

#[test]
fn users_are_changed_on_the_command_line() {
    let place = Place::start();
    let directory = data_dir();
    let with_password = |words: &[&str], password: &str| {
        let mut command = place.server.command(&[&["ctl", "users"], words].concat(), directory.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it can be run");
        std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), password.as_bytes())
            .expect("it reads");
        let output = child.wait_with_output().expect("it ends");
        assert!(output.status.success(), "{words:?}: {output:?}");
    };
    with_password(&["add", "ann", "--role", "writer"], "secret7\n");
    assert_eq!(place.log_in("ann", b"secret7").1, 0);
    with_password(&["password", "ann"], "other77\n");
    assert_eq!(place.log_in("ann", b"other77").1, 0);
    let run = |words: &[&str]| {
        let (is_done, text) = place.server.run(&[&["ctl"], words].concat());
        assert!(is_done, "{words:?}: {text}");
        text
    };
    run(&["users", "grant", "ann", "reader", "--priority", "-7"]);
    run(&["users", "join", "ann", "staff"]);
    run(&["users", "disable", "ann"]);
    let listed = run(&["users", "list", "ann"]);
    assert!(
        listed.contains("yes") && listed.contains("writer; reader (-7)") && listed.contains("staff"),
        "{listed}"
    );
    assert!(run(&["user-groups"]).contains("ann"));
    assert!(run(&["roles"]).contains("allow publishClientSend pond/#"));
    assert!(run(&["sources"]).contains("password_file"));
    assert!(run(&["rules", &place.path("acl").display().to_string()]).contains("topic read pond/#"));
    run(&["users", "leave", "ann", "staff"]);
    run(&["users", "revoke", "ann", "reader"]);
    run(&["users", "enable", "ann"]);
    assert!(run(&["users", "show", "ann"]).contains("writer"));
    run(&["users", "delete", "ann"]);
    until("the user is gone", || place.users("match=ann").is_empty().then_some(()));
    let (is_done, text) = place.server.run(&["ctl", "users", "delete", "ann"]);
    assert!(!is_done && text.contains("Client not found"), "{text}");
}
