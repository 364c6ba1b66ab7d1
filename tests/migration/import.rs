//! `pondhawk import`: what the real Mosquitto has stored is there afterwards, and bad files change nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use auth::{PasswordHash, Scheme};
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Mosquitto, Options, Version, is_long, pondhawk};
use serde_json::Value;
use tempfile::TempDir;

/// Numbers of a database.
struct Size {
    sessions: usize,
    retained: usize,
}

impl Size {
    fn of_this_run() -> Self {
        if is_long() {
            Self { sessions: 1_000, retained: 10_000 }
        } else {
            Self { sessions: 40, retained: 300 }
        }
    }
}

/// The directory of Mosquitto, with its database.
struct Store(TempDir);

impl Store {
    fn database(&self) -> PathBuf {
        self.0.path().join("mosquitto.db")
    }

    fn import(&self, file: &Path, more: &[&str]) -> Output {
        Command::new(pondhawk()).arg("import").arg(file).args(more).output().expect("pondhawk can be run")
    }

    fn journal(&self) -> PathBuf {
        self.0.path().join("pondhawk")
    }
}

/// A PUBLISH at this QoS, with an expiry of an hour in MQTT 5.
fn publish(client: &mut Client, qos: u8, retain: bool, topic: &str, payload: &[u8]) {
    let properties: &[u8] = if client.version().is_5() { &[5, 2, 0, 0, 0x0E, 0x10] } else { &[] };
    let packet_id: &[u8] = if qos > 0 { &[0, 9] } else { &[] };
    let body = [&packet::string(topic), packet_id, properties, payload].concat();
    client.send(&packet::packet(0x30 | qos << 1 | u8::from(retain), &body));
    match qos {
        1 => assert_eq!(client.read_packet()[0], 0x40),
        2 => {
            assert_eq!(client.read_packet()[0], 0x50);
            client.send(&[0x62, 2, 0, 9]);
            assert_eq!(client.read_packet()[0], 0x70);
        }
        _ => {}
    }
}

/// Lets Mosquitto store sessions with queues and retained messages.
fn store(size: &Size) -> Store {
    let directory = TempDir::new().expect("there is a place for temporary files");
    let settings = format!("persistence true\npersistence_location {}/\n", directory.path().display());
    let mosquitto = Mosquitto::start(&settings);
    for number in 0..size.sessions {
        let version = if number % 2 == 0 { Version::V3_1_1 } else { Version::V5 };
        // Session Expiry Interval of an hour.
        let properties: &[u8] = if version.is_5() { &[0x11, 0, 0, 0x0E, 0x10] } else { &[] };
        let client_id = format!("session {number}");
        let connect = Connect { clean_start: false, properties, ..Connect::new(version, &client_id) };
        let mut client = Client::connect(mosquitto.address(), &connect);
        client.send(&packet::subscribe_with(version, 1, &format!("queue/{number}/#"), 2));
        client.expect(&packet::suback(version, 1, 2));
        client.send(&packet::subscribe_with(version, 2, "all/+", 1));
        client.expect(&packet::suback(version, 2, 1));
        client.leave();
    }
    let mut publisher = Client::connect(mosquitto.address(), &Connect::new(Version::V5, "publisher"));
    for number in 0..size.sessions {
        publish(&mut publisher, 1, false, &format!("queue/{number}/one"), b"first");
        publish(&mut publisher, 2, false, &format!("queue/{number}/two"), b"second");
    }
    publish(&mut publisher, 1, false, "all/news", b"for everybody");
    for number in 0..size.retained {
        publish(&mut publisher, 1, true, &format!("retained/{number}"), format!("value {number}").as_bytes());
    }
    publisher.leave();
    mosquitto.stop();
    Store(directory)
}

fn inspect(directory: &Path) -> Value {
    let output = Command::new(pondhawk()).args(["journal", "inspect", "--json"]).arg(directory).output();
    serde_json::from_slice(&output.expect("pondhawk can be run").stdout).expect("it is JSON")
}

#[test]
fn everything_that_mosquitto_has_stored_is_there_afterwards() {
    let size = Size::of_this_run();
    let store = store(&size);
    let output = store.import(&store.database(), &[]);
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stderr));
    for line in [
        format!("  {} sessions\n", size.sessions),
        format!("  {} subscriptions\n", 2 * size.sessions),
        format!("  {} messages that wait for sessions\n", 3 * size.sessions),
        format!("  {} retained messages\n", size.retained),
    ] {
        assert!(report.contains(&line), "{line}{report}");
    }
    let found = inspect(&store.journal());
    let sessions = found["sessions"].as_array().expect("a list");
    assert_eq!(sessions.len(), size.sessions);
    assert!(sessions.iter().all(|session| session["queue"]["messages"] == 3), "{:?}", sessions.first());
    assert_eq!(found["retained"]["messages"], size.retained);
    served(&store, &size);
    // Only once.
    let again = store.import(&store.database(), &[]);
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("exists already"));
    // Nobody has asked to delete this.
    let other = store.journal().with_file_name("other.importing");
    fs::create_dir(&other).expect("it is ours");
    fs::write(other.join("kept"), "").expect("it is ours");
    let to = other.with_file_name("other").display().to_string();
    let again = store.import(&store.database(), &["--to", &to]);
    assert!(!again.status.success() && other.join("kept").exists());
    assert!(String::from_utf8_lossy(&again.stderr).contains("other.importing is left of another import"));
}

/// A broker on the directory serves what was imported.
fn served(store: &Store, size: &Size) {
    let broker = Broker::start(&Options { data_dir: Some(store.journal()), ..Options::default() });
    for number in [0, 1, size.sessions - 1] {
        let version = if number % 2 == 0 { Version::V3_1_1 } else { Version::V5 };
        let properties: &[u8] = if version.is_5() { &[0x11, 0, 0, 0x0E, 0x10] } else { &[] };
        let client_id = format!("session {number}");
        let connect = Connect { clean_start: false, properties, ..Connect::new(version, &client_id) };
        let (mut client, connack) = broker.greet(&connect);
        assert_eq!(connack[2], 1, "the session is there");
        // Messages of different QoS have no order.
        let messages: Vec<Vec<u8>> = (0..3).map(|_| client.read_packet()).collect();
        for (kind, payload) in [(0x32, &b"first"[..]), (0x34, b"second"), (0x32, b"for everybody")] {
            let found = messages.iter().find(|packet| packet.ends_with(payload));
            let packet = found.unwrap_or_else(|| panic!("{messages:02x?}"));
            assert_eq!(packet[0], kind, "the QoS, without DUP");
            // The expiry goes on.
            let has_expiry = packet.windows(3).any(|bytes| bytes[0] == 2 && bytes[1..] == [0, 0]);
            assert_eq!(has_expiry, version.is_5());
        }
    }
    let mut reader = broker.client(Version::V3_1_1, "reader");
    reader.subscribe("retained/7");
    reader.expect_retained("retained/7", b"value 7");
    drop(reader);
    assert!(broker.stop().success());
}

#[test]
fn torn_foreign_old_and_unfinished_databases_are_refused_and_nothing_is_made() {
    let store = store(&Size { sessions: 2, retained: 2 });
    let whole = fs::read(store.database()).expect("Mosquitto has written it");
    let bad = store.0.path().join("bad.db");
    let refused = |bytes: &[u8], reason: &str| {
        fs::write(&bad, bytes).expect("a temporary file can be written");
        let output = store.import(&bad, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(reason), "{reason}: {said}");
        let names = fs::read_dir(store.0.path()).expect("it is there").count();
        assert_eq!(names, 2, "nothing but the two databases");
    };
    refused(b"", "no database of Mosquitto");
    refused(b"listener 1883\nallow_anonymous true\n", "no database of Mosquitto");
    for length in [24, 40, whole.len() / 2, whole.len() - 1] {
        refused(&whole[..length], "cut off");
    }
    let mut old = whole.clone();
    old[22] = 5;
    refused(&old, "version 5");
    let mut running = whole.clone();
    // The flag behind the last number in the first chunk.
    running[23 + 8 + 8] = 0;
    refused(&running, "stop Mosquitto first");
    assert!(store.import(&bad, &["--snapshot"]).status.success());
    assert_eq!(fs::read(store.database()).expect("it is still there"), whole, "the database stays as it is");
}

/// A session acts for its user before the client comes back: the rules let a message into its queue, and it is nobody else's.
#[test]
fn an_imported_session_belongs_to_its_user() {
    let directory = TempDir::new().expect("there is a place for temporary files");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a temporary file can be written");
        path
    };
    let user = |name: &str| {
        let hash = PasswordHash::new(Scheme::MOSQUITTO, name.as_bytes(), b"twelve bytes").expect("a salt");
        format!("{name}:{hash}\n")
    };
    let users = file("users", &["ann", "bob"].map(user).concat());
    let rules = file("rules", "user ann\ntopic write x/#\nuser bob\ntopic read x/#\n");
    let store = format!("persistence true\npersistence_location {}/\n", directory.path().display());
    let access = format!("password_file {}\nacl_file {}\n", users.display(), rules.display());
    let mosquitto = Mosquitto::start(&(store + &access));
    let bob = Connect { clean_start: false, ..Connect::new(Version::V3_1_1, "phone").of("bob", "bob") };
    let mut client = Client::connect(mosquitto.address(), &bob);
    client.send(&packet::subscribe_with(Version::V3_1_1, 1, "x/#", 1));
    client.expect(&packet::suback(Version::V3_1_1, 1, 1));
    client.leave();
    mosquitto.stop();
    let store = Store(directory);
    assert!(store.import(&store.database(), &[]).status.success());
    let settings = format!("[auth]\npassword_file = {users:?}\nacl_file = {rules:?}\n");
    let broker = Broker::start(&Options { settings, data_dir: Some(store.journal()), ..Options::default() });
    let mut ann = broker.client_with(&Connect::new(Version::V3_1_1, "ann").of("ann", "ann"));
    publish(&mut ann, 1, false, "x/1", b"hey");
    let mut thief = broker.connect();
    thief.send(&Connect { user: Some("ann"), password: Some(b"ann"), ..bob }.bytes());
    assert_eq!(thief.read_packet(), [0x20, 2, 0, 5]);
    let (mut client, answer) = broker.greet(&bob);
    assert_eq!(answer, [0x20, 2, 1, 0], "the session is there");
    assert_eq!(client.read_packet()[..7], [0x32, 10, 0, 3, b'x', b'/', b'1']);
}
