//! Counts of messages and connections by listener and by user, which add up to those of the broker.

use std::net::SocketAddr;
use std::path::Path;

use auth::{PasswordFile, PasswordHash, Scheme};
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Options, RawClient, Version, free_ports, until};
use serde_json::{Value, json};

use crate::admin::Server;
use crate::reload::{DONE, Place, client, listener};
use crate::{addresses, brokers};

const ADMIN: &str = "[admin]\naddress = \"127.0.0.1:0\"\n";

/// Users with their names as passwords.
fn write_users(path: &Path) {
    let mut file = PasswordFile::default();
    for name in ["ann", "bob"] {
        let hash = PasswordHash::new(Scheme::MOSQUITTO, name.as_bytes(), b"twelve bytes").expect("a salt");
        file.set(name, &hash).expect("a name");
    }
    std::fs::write(path, file.to_string()).expect("a temporary file can be written");
}

/// Two listeners: one for everybody, and one for users, who may use some topics.
fn settings(directory: &Path) -> String {
    let (users, rules) = (directory.join("users"), directory.join("rules"));
    write_users(&users);
    std::fs::write(&rules, "pattern readwrite pond/#\npattern readwrite desert\n").expect("a temporary file");
    format!(
        "{ADMIN}[[listener]]\naddress = \"127.0.0.1:0\"\nallow_anonymous = true\n\
         [[listener]]\naddress = \"127.0.0.1:0\"\nallow_anonymous = false\npassword_file = {users:?}\n\
         acl_file = {rules:?}\n"
    )
}

/// Publishes at QoS 1 or 2, to the end.
fn publish_acknowledged(client: &mut Client, qos: u8, topic: &str) {
    let body = [&packet::string(topic), &[0, 9, 0][..], b"croak"].concat();
    client.send(&packet::packet(0x30 | qos << 1, &body));
    let answer = client.read_packet();
    if qos == 1 {
        return assert_eq!((answer[0], &answer[2..4]), (0x40, &[0, 9][..]), "PUBACK");
    }
    assert_eq!((answer[0], &answer[2..4]), (0x50, &[0, 9][..]), "PUBREC");
    client.send(&[0x62, 2, 0, 9]);
    client.expect(&[0x70, 2, 0, 9]);
}

/// Reads a message of QoS 1 or 2, and acknowledges it to the end.
fn take(client: &mut Client) {
    let message = client.read_packet();
    let place = 4 + usize::from(message[3]);
    let packet_id = [message[place], message[place + 1]];
    let answer = |first: u8| [&[first, 2][..], &packet_id].concat();
    match message[0] {
        0x32 => client.send(&answer(0x40)),
        0x34 => {
            client.send(&answer(0x50));
            client.expect(&answer(0x62));
            client.send(&answer(0x70));
        }
        other => panic!("{other:#x} is no PUBLISH of QoS 1 or 2"),
    }
}

/// Subscribes at this QoS.
fn subscribe(client: &mut Client, filter: &str, qos: u8) {
    let version = client.version();
    client.send(&packet::subscribe_with(version, 1, filter, qos));
    client.expect(&packet::suback(version, 1, qos));
}

/// An answer whose sums are the totals of the broker, and in which this is true.
fn settled(server: &Server, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    until("the sums are those of the broker", || {
        let value = server.value(path);
        let totals = value["totals"].as_array().expect("a list");
        assert_eq!(totals.len(), 31);
        (totals.iter().all(|total| total["sum"] == total["broker"]) && is_wanted(&value)).then_some(value)
    })
}

/// The values of these fields.
fn fields<const N: usize>(item: &Value, names: [&str; N]) -> Value {
    names.iter().map(|name| item[name].clone()).collect()
}

/// The user with this name.
fn user<'a>(users: &'a Value, name: Option<&str>, kind: &str, is_proved: Option<bool>) -> &'a Value {
    let mut all = users["users"].as_array().expect("a list").iter();
    all.find(|user| user["user"] == json!(name) && user["kind"] == kind && user["proved"] == json!(is_proved))
        .unwrap_or_else(|| panic!("{name:?} of kind {kind} is not in {users}"))
}

/// A subscriber without a name, one that takes small packets only, a publisher, a stranger who has the publisher's name, and one
/// with a wrong password.
fn play([open, closed]: [SocketAddr; 2]) -> [Client; 4] {
    let version = Version::V5;
    let mut toad = Client::connect(open, &Connect::new(version, "toad"));
    subscribe(&mut toad, "pond/#", 2);
    let small = Connect { properties: &[0x27, 0, 0, 0, 100], ..Connect::new(version, "bob") };
    let mut bob = Client::connect(closed, &small.of("bob", "bob"));
    subscribe(&mut bob, "pond/#", 0);
    let mut ann = Client::connect(closed, &Connect::new(version, "ann").of("ann", "ann"));
    for _ in 0..3 {
        ann.publish("pond/x", b"croak");
        toad.expect_message("pond/x", b"croak");
        bob.expect_message("pond/x", b"croak");
    }
    for qos in [1, 1, 2] {
        publish_acknowledged(&mut ann, qos, "pond/x");
        take(&mut toad);
        bob.expect_message("pond/x", b"croak");
    }
    ann.publish("desert", b"croak");
    ann.publish("desert", b"croak");
    ann.publish("secret", b"croak");
    ann.publish("pond/large", &[b'x'; 200]);
    toad.expect_message("pond/large", &[b'x'; 200]);
    let mut stranger = Client::connect(open, &Connect::new(version, "stranger").of("ann", "no password"));
    stranger.publish("pond/x", b"croak");
    toad.expect_message("pond/x", b"croak");
    bob.expect_message("pond/x", b"croak");
    let mut wrong = RawClient::connect(closed);
    wrong.send(&Connect::new(version, "wrong").of("ann", "bob").bytes());
    assert_eq!(wrong.read_packet()[3], 0x86, "Bad User Name or Password");
    [toad, bob, ann, stranger]
}

const MESSAGES: [&str; 6] = [
    "messages_received_by_qos",
    "messages_refused",
    "messages_without_subscriber",
    "copies",
    "copies_lost",
    "messages_sent",
];
const CONNECTIONS: [&str; 4] = ["clients", "connections_accepted", "connects_refused", "clients_let_in"];

#[test]
fn messages_are_counted_for_each_listener_and_user_and_the_sums_are_those_of_the_broker() {
    let directory = tempfile::tempdir().expect("a directory");
    for broker in brokers(&settings(directory.path())) {
        let server = Server::of(&broker);
        let clients = play(addresses(&broker));
        let acknowledged =
            |value: &Value| value["listeners"][0]["copies_by_outcome"]["acknowledged"] == json!(3);
        let listeners = settled(&server, "/api/v1/listeners", acknowledged);
        let [open, closed] = [0, 1].map(|place| &listeners["listeners"][place]);
        assert_eq!(fields(open, MESSAGES), json!([[1, 0, 0], 0, 0, 8, 0, 8]));
        assert_eq!(fields(closed, MESSAGES), json!([[7, 2, 1], 1, 2, 8, 1, 7]));
        assert_eq!(fields(open, CONNECTIONS), json!([2, 2, 0, 2]));
        assert_eq!(fields(closed, CONNECTIONS), json!([2, 3, 1, 2]));
        assert_eq!(closed["messages_refused_by_reason"]["not_authorized"], 1);
        assert_eq!(closed["copies_by_outcome"]["too_large"], 1);
        assert_eq!(open["copies_by_outcome"]["sent"], 5);
        let users = settled(&server, "/api/v1/users", |_| true);
        for (name, kind, is_proved, messages) in [
            (Some("ann"), "user", Some(true), json!([[7, 2, 1], 1, 2, 0, 0, 0])),
            (Some("ann"), "user", Some(false), json!([[1, 0, 0], 0, 0, 0, 0, 0])),
            (Some("bob"), "user", Some(true), json!([[0, 0, 0], 0, 0, 8, 1, 7])),
            (None, "anonymous", None, json!([[0, 0, 0], 0, 0, 8, 0, 8])),
        ] {
            let user = user(&users, name, kind, is_proved);
            assert_eq!(fields(user, MESSAGES), messages, "{user}");
            assert_eq!(fields(user, CONNECTIONS), json!([1, 0, 0, 1]), "{user}");
        }
        for (name, kind, is_proved, direction) in [
            (Some("ann"), "user", Some(true), "bytes_received"),
            (Some("bob"), "user", Some(true), "bytes_sent"),
            (None, "anonymous", None, "bytes_sent"),
        ] {
            let bytes = user(&users, name, kind, is_proved)[direction].as_u64();
            assert!(bytes > Some(100), "{name:?}: {bytes:?} {direction}");
        }
        let not_let_in = user(&users, None, "not_let_in", None);
        assert_eq!(fields(not_let_in, CONNECTIONS), json!([0, 5, 1, 0]));
        drop(clients);
        let nobody =
            |value: &Value| value["totals"].to_string().contains(r#""broker":0,"name":"clients_connected""#);
        settled(&server, "/api/v1/users", nobody);
    }
}

#[test]
fn a_connection_that_a_listener_refuses_counts_for_this_listener() {
    let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\n";
    for broker in brokers(&format!("{ADMIN}{listener}{listener}connections = 1\n")) {
        let server = Server::of(&broker);
        let [_, narrow]: [SocketAddr; 2] = addresses(&broker);
        let _first = Client::connect(narrow, &Connect::new(Version::V5, "first"));
        RawClient::connect(narrow).expect_closed();
        let refused = |value: &Value| value["listeners"][1]["connections_refused"] == json!(1);
        let listeners = settled(&server, "/api/v1/listeners", refused);
        assert_eq!(listeners["listeners"][0]["connections_refused"], 0);
        let metrics = server.get("/metrics").body;
        let line = format!("pondhawk_listener_connections_refused_total{{listener=\"{narrow}\"}} 1");
        assert!(metrics.lines().any(|found| found == line), "{line} is not in {metrics}");
    }
}

#[test]
fn users_beyond_the_limit_are_counted_together() {
    let settings = format!("{ADMIN}[limits]\ncounted_users = 2\n");
    let broker = Broker::start(&Options { shards: 2, settings, ..Options::default() });
    let server = Server::of(&broker);
    let named = |name: &'static str| broker.client_with(&Connect::new(Version::V5, name).of(name, "x"));
    let mut clients = ["a", "b", "c", "d"].map(named);
    for client in &mut clients {
        client.publish("desert", b"croak");
        client.send(&[0xC0, 0]);
        client.expect(&[0xD0, 0]);
    }
    let users = settled(&server, "/api/v1/users", |_| true);
    for (name, kind, is_proved, received) in [
        (Some("a"), "user", Some(false), [1, 0, 0]),
        (Some("b"), "user", Some(false), [1, 0, 0]),
        (None, "other_users", None, [2, 0, 0]),
    ] {
        assert_eq!(user(&users, name, kind, is_proved)["messages_received_by_qos"], json!(received));
    }
    let counters = server.value("/api/v1/counters");
    assert_eq!((&counters["users/others"], &counters["users/displaced"]), (&json!(2), &json!(0)));
    // A row at a time, and those with a text.
    let (mut path, mut seen) = ("/api/v1/users?limit=1".to_owned(), Vec::new());
    loop {
        let piece = server.value(&path);
        let name = piece["users"][0]["user"].as_str().unwrap_or("none").to_owned();
        seen.push(name);
        match piece["cursor"].as_str() {
            Some(cursor) => path = format!("/api/v1/users?limit=1&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(seen, ["none", "none", "a", "b"], "clients that are not let in, others, and the users");
    let found = server.value("/api/v1/users?match=b");
    assert_eq!(found["users"].as_array().map(Vec::len), Some(1));
    assert_eq!(server.get("/api/v1/users?cursor=x").status, 400);
    // A user that has left makes room.
    let [a, ..] = clients;
    a.leave();
    let left = |value: &Value| user(value, Some("a"), "user", Some(false))["clients"] == json!(0);
    settled(&server, "/api/v1/users", left);
    let _e = until("a user is displaced", || {
        let client = named("e");
        let displaced = server.value("/api/v1/counters")["users/displaced"] == json!(1);
        displaced.then_some(client)
    });
    let users = settled(&server, "/api/v1/users", |_| true);
    assert_eq!(user(&users, None, "other_users", None)["messages_received_by_qos"], json!([3, 0, 0]));
}

#[test]
fn the_counts_of_a_listener_outlive_its_changes_and_its_removal() {
    let [first, second] = free_ports();
    let text = |keys: &str| listener(first, keys) + ADMIN;
    let both = |keys: &str| listener(second, "") + &text(keys);
    let place = Place::new(2, &both(""));
    let server = Server::of(&place.broker);
    for port in [first, second] {
        let mut one = client(port, Version::V5, "one");
        one.publish("desert", b"croak");
        one.leave();
    }
    let received = |listeners: &Value, name: &str, place: usize| {
        let item = if name == "listeners" { &listeners[name][place] } else { &listeners[name] };
        item["messages_received"].as_u64()
    };
    let settled = || settled(&server, "/api/v1/listeners", |_| true);
    assert_eq!(received(&settled(), "listeners", 0), Some(1));
    // Its connections have another number from now on.
    place.reload(&both("mount_point = \"house/\""), DONE);
    assert_eq!(received(&settled(), "listeners", 1), Some(1));
    place.reload(&text(""), DONE);
    let listeners = settled();
    assert_eq!(received(&listeners, "listeners", 0), Some(1));
    assert_eq!(received(&listeners, "removed_listeners", 0), Some(1));
    place.reload(&both(""), DONE);
    let listeners = settled();
    assert_eq!(received(&listeners, "listeners", 0), Some(1));
    assert_eq!(received(&listeners, "removed_listeners", 0), Some(0));
}

#[test]
fn the_command_line_lists_listeners_and_users_with_their_messages() {
    let broker = Broker::start(&Options { settings: ADMIN.to_owned(), ..Options::default() });
    let server = Server::of(&broker);
    let mut ann = broker.client_with(&Connect::new(Version::V5, "phone").of("ann", "x"));
    ann.publish("desert", b"croak");
    ann.send(&[0xC0, 0]);
    ann.expect(&[0xD0, 0]);
    let listeners = server.run(&["ctl", "listeners"]).1;
    assert!(listeners.contains("MESSAGES IN") && listeners.contains("127.0.0.1:"), "{listeners}");
    let users = server.run(&["ctl", "traffic"]).1;
    let line = users.lines().find(|line| line.starts_with("ann ")).expect("she is there");
    assert_eq!(line.split_whitespace().take(5).collect::<Vec<_>>(), ["ann", "user", "no", "1", "1"]);
    assert!(users.contains("not_let_in"), "{users}");
    assert_eq!(server.run(&["ctl", "traffic", "bob"]).1.lines().count(), 1, "the titles");
}
