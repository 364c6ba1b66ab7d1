//! `pondhawk import`: what the real Mosquitto has stored is there afterwards, and bad files change nothing.

mod machine;
mod sqlite;
mod world;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use auth::{PasswordHash, Scheme};
use pondhawk_tests::conversation::{Conversation, go_on, lasting};
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Mosquitto, Options, Version, is_long, pondhawk};
use serde_json::Value;
use tempfile::TempDir;
use world::{PER_SESSION, Size};

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

    fn sqlite(&self) -> PathBuf {
        self.0.path().join("mosquitto.sqlite3")
    }

    /// Writes what Mosquitto has stored with SQLite.
    fn to_sqlite(&self) {
        drop(sqlite::convert(&fs::read(self.database()).expect("Mosquitto has written it"), &self.sqlite()));
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

/// Lets Mosquitto store what these clients do.
fn store(act: impl FnOnce(&Mosquitto)) -> Store {
    store_with("", act)
}

/// The same with more lines in Mosquitto's configuration.
fn store_with(settings: &str, act: impl FnOnce(&Mosquitto)) -> Store {
    let directory = TempDir::new().expect("there is a place for temporary files");
    let location = directory.path().display();
    let settings = format!("{settings}persistence true\npersistence_location {location}/\n");
    let mosquitto = Mosquitto::start(&settings);
    act(&mosquitto);
    mosquitto.stop();
    Store(directory)
}

/// A broker on an imported directory.
fn start(store: &Store) -> Broker {
    Broker::start(&Options { data_dir: Some(store.journal()), ..Options::default() })
}

fn inspect(directory: &Path) -> Value {
    let output = Command::new(pondhawk()).args(["journal", "inspect", "--json"]).arg(directory).output();
    serde_json::from_slice(&output.expect("pondhawk can be run").stdout).expect("it is JSON")
}

#[test]
fn everything_that_mosquitto_has_stored_is_there_afterwards() {
    let (store, size, stopped) = stored();
    arrives(&store, &store.database(), size, stopped);
}

#[test]
fn everything_in_a_database_of_sqlite_is_there_afterwards() {
    let (store, size, stopped) = stored();
    store.to_sqlite();
    arrives(&store, &store.sqlite(), size, stopped);
}

fn stored() -> (Store, Size, SystemTime) {
    let size = Size::of_this_run();
    (store(|mosquitto| world::store(mosquitto, size)), size, SystemTime::now())
}

fn arrives(store: &Store, database: &Path, size: Size, stopped: SystemTime) {
    world::wait(stopped, 2);
    let output = store.import(database, &[]);
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{report}{}", String::from_utf8_lossy(&output.stderr));
    for line in [
        format!("  subscriptions: {}\n", 2 * size.sessions),
        format!("  messages that wait for sessions: {}\n", PER_SESSION * size.sessions),
        format!("  retained messages: {}\n", size.retained),
    ] {
        assert!(report.contains(&line), "{line}{report}");
    }
    let found = inspect(&store.journal());
    world::listed(&found, size);
    assert_eq!(found["retained"]["messages"], size.retained);
    let broker = start(store);
    world::served(&broker, size);
    world::is_past(&broker, "soon past", stopped);
    assert!(broker.stop().success());
    // Only once.
    let again = store.import(database, &[]);
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("exists already"));
    // Nobody has asked to delete this.
    let other = store.journal().with_file_name("other.importing");
    fs::create_dir(&other).expect("it is ours");
    fs::write(other.join("kept"), "").expect("it is ours");
    let to = other.with_file_name("other").display().to_string();
    let again = store.import(database, &["--to", &to]);
    assert!(!again.status.success() && other.join("kept").exists());
    assert!(String::from_utf8_lossy(&again.stderr).contains("other.importing is left of another import"));
}

#[test]
fn exchanges_that_had_begun_go_on_where_they_stood() {
    let store = store(world::begin_exchanges);
    exchanges_go_on(&store, &store.database());
    fs::remove_dir_all(store.journal()).expect("it is ours");
    store.to_sqlite();
    exchanges_go_on(&store, &store.sqlite());
}

fn exchanges_go_on(store: &Store, database: &Path) {
    let output = store.import(database, &[]);
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        report.contains("  messages of QoS 2 that their clients have, and whose exchanges go on: 1\n"),
        "{report}"
    );
    assert!(
        report.contains("  messages of QoS 2 published, which their publishers had not released: 2\n"),
        "{report}"
    );
    let broker = start(store);
    world::go_on_with_exchanges(&broker);
    assert!(broker.stop().success());
}

/// Mosquitto may queue a copy for each subscription. Overlapping subscriptions have one copy here.
#[test]
fn copies_of_a_message_become_one_with_all_identifiers() {
    let store = store_with("allow_duplicate_messages true\n", |mosquitto| {
        let mut client = Client::connect(mosquitto.address(), &lasting(Version::V5, "twice"));
        client.subscribe_as(&[0x0B, 1], "copy/#", 1);
        client.subscribe_as(&[0x0B, 2], "copy/+", 2);
        client.leave();
        let mut publisher = Client::connect(mosquitto.address(), &Connect::new(Version::V3_1_1, "publisher"));
        publish(&mut publisher, 2, false, "copy/1", b"one");
        publish(&mut publisher, 1, true, "$pond/kept", b"two");
    });
    assert!(store.import(&store.database(), &[]).status.success());
    let broker = start(&store);
    let mut client = go_on(&broker, Version::V5, "twice");
    let message = client.take_message(b"one");
    assert_eq!((message.qos, message.properties.len()), (2, 4), "{message:?}");
    assert!([1, 2].iter().all(|identifier| message.properties.chunks(2).any(|of| of == [0x0B, *identifier])));
    client.expect_only_pong();
    // Topics with a dollar sign are the clients' own, except `$SYS`.
    client.send(&packet::subscribe(Version::V5, 3, "$pond/#"));
    let packets = [client.read_packet(), client.read_packet()];
    assert!(packets.iter().any(|packet| packet.ends_with(b"two")), "{packets:02x?}");
}

/// Mosquitto writes no shared subscription into its database. The messages that a member had are there.
#[test]
fn a_member_of_a_group_keeps_its_messages_and_subscribes_again() {
    let store = store(|mosquitto| {
        let mut member = Client::connect(mosquitto.address(), &lasting(Version::V5, "member"));
        world::share(&mut member);
        member.leave();
        let mut publisher = Client::connect(mosquitto.address(), &Connect::new(Version::V5, "publisher"));
        publish(&mut publisher, 1, false, "shared/1", b"before");
    });
    assert!(store.import(&store.database(), &[]).status.success());
    let broker = start(&store);
    let mut member = go_on(&broker, Version::V5, "member");
    member.take_message(b"before");
    world::share(&mut member);
    let mut publisher = broker.client(Version::V5, "publisher");
    publish(&mut publisher, 1, false, "shared/2", b"after");
    member.take_message(b"after");
}

/// Routers and old machines order and pad the numbers of the file in another way.
#[test]
fn databases_of_other_machines_are_the_same() {
    let store = store(|mosquitto| world::store(mosquitto, Size { sessions: 6, retained: 20 }));
    // The clock must not remove a message between two imports.
    world::wait(SystemTime::now(), 2);
    let whole = fs::read(store.database()).expect("Mosquitto has written it");
    let list = |name: &str, bytes: &[u8]| {
        let (file, to) = (store.0.path().join(name), store.0.path().join(format!("of {name}")));
        fs::write(&file, bytes).expect("a temporary file can be written");
        let output = store.import(&file, &["--to", &to.display().to_string()]);
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let found = inspect(&to);
        let queued = |session: &Value| {
            let (queue, expires) = (&session["queue"], &session["expires_unix_ms"]);
            let queue = format!("{} from {}", queue["messages"], queue["oldest"]["message"]);
            format!("{} {} {queue} {expires}", session["client_id"], session["subscriptions"])
        };
        let sessions = found["sessions"].as_array().expect("a list").iter().map(queued);
        (sessions.filter(|session| !session.contains("past")).collect::<Vec<_>>(), found["retained"].clone())
    };
    let here = list("here", &whole);
    assert_eq!(here.0.len(), 6);
    for layout in [machine::I386, machine::MIPS, machine::M68K] {
        assert_eq!(list(layout.name, &layout.converted(&whole)), here, "{}", layout.name);
    }
}

#[test]
fn torn_foreign_old_and_unfinished_databases_are_refused_and_nothing_is_made() {
    let store = store(|mosquitto| world::store(mosquitto, Size { sessions: 2, retained: 2 }));
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
    refused(b"SQLite format 3\0 and more", "cut off");
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

#[test]
fn torn_foreign_new_and_open_databases_of_sqlite_are_refused_and_nothing_is_made() {
    let directory = TempDir::new().expect("there is a place for temporary files");
    let store = Store(directory);
    let names = || fs::read_dir(store.0.path()).expect("it is there").count();
    let refused = |reason: &str| {
        let before = names();
        let output = store.import(&store.sqlite(), &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(reason), "{reason}: {said}");
        assert_eq!(names(), before, "{reason}: nothing is made");
    };
    let connection = sqlite::create(&store.sqlite());
    let long = "pond".repeat(1_000);
    connection.execute_batch("BEGIN").expect("it is new");
    for number in 0..100 {
        let statement = "INSERT INTO base_msgs VALUES (?, 0, ?, ?, 'ann', NULL, 1, 0, 0, 1, 1, NULL)";
        // A text like a number becomes one in SQLite.
        sqlite::put(&connection, statement, &[&number, &number.to_string(), &long.as_bytes()]);
        sqlite::put(&connection, "INSERT INTO retains VALUES (?, ?)", &[&number.to_string(), &number]);
    }
    connection.execute_batch("COMMIT").expect("it has begun");
    refused("stop Mosquitto first");
    let report = store.import(&store.sqlite(), &["--snapshot"]);
    assert!(String::from_utf8_lossy(&report.stdout).contains("retained messages: 100\n"));
    fs::remove_dir_all(store.journal()).expect("it is ours");
    drop(connection);
    let whole = fs::read(store.sqlite()).expect("it is there");
    assert_eq!(names(), 1, "no changes are beside it");
    assert!(store.import(&store.sqlite(), &[]).status.success());
    assert_eq!(fs::read(store.sqlite()).expect("it is there"), whole, "the database stays as it is");
    fs::remove_dir_all(store.journal()).expect("it is ours");
    for length in [whole.len() / 2, whole.len() - 1, 100, 50] {
        fs::write(store.sqlite(), &whole[..length]).expect("it is ours");
        refused("cut off");
    }
    for (statement, reason) in [
        ("UPDATE version_info SET minor = 2", "version 1.2"),
        ("DROP TABLE version_info", "not Mosquitto's"),
        ("UPDATE base_msgs SET qos = 300 WHERE store_id = 7", "qos is 300"),
        ("UPDATE base_msgs SET properties = '[1]' WHERE store_id = 7", "the message to \"7\""),
        ("UPDATE base_msgs SET topic = 'a/#' WHERE store_id = 7", "a/#"),
    ] {
        fs::write(store.sqlite(), &whole).expect("it is ours");
        let connection = rusqlite::Connection::open(store.sqlite()).expect("it is a database");
        sqlite::put(&connection, statement, &[]);
        drop(connection);
        refused(reason);
    }
}

/// The database of SQLite has more than the other one: wills, and shared subscriptions.
#[test]
fn wills_in_a_database_of_sqlite_wait_on() {
    let store = Store(TempDir::new().expect("there is a place for temporary files"));
    let connection = sqlite::create(&store.sqlite());
    let now = SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is later").as_secs();
    for (name, due) in [("soon", now + 3), ("late", now + 3_600), ("past", now - 10)] {
        // Session Expiry Interval for ever, Will Delay Interval 60 seconds.
        let clients = "INSERT INTO clients VALUES (?, 'ann', 0, ?, 0, 1883, 0, 2, 1, -1, 60)";
        sqlite::put(&connection, clients, &[&name, &due]);
        let wills = "INSERT INTO wills VALUES (?, ?, ?, 4, 1, 1, ?)";
        let properties = r#"[{"identifier":"content-type","value":"fish"}]"#;
        sqlite::put(&connection, wills, &[&name, &b"gone", &format!("wills/{name}"), &properties]);
        let subscriptions = "INSERT INTO subscriptions VALUES (?, '$share/pond/a', 1, 0)";
        sqlite::put(&connection, subscriptions, &[&name]);
    }
    sqlite::put(&connection, "INSERT INTO wills VALUES ('other', NULL, 'wills/other', 0, 0, 0, NULL)", &[]);
    drop(connection);
    let output = store.import(&store.sqlite(), &[]);
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "  sessions: 3\n",
        "  wills that wait: 3\n",
        "  wills left out, whose clients have no session: 1\n",
        "  shared subscriptions left out; their clients have to subscribe again: 3\n",
    ] {
        assert!(report.contains(line), "{line}: {report}{}", String::from_utf8_lossy(&output.stderr));
    }
    let broker = start(&store);
    let mut watcher = Client::connect(broker.address(), &Connect::new(Version::V5, "watches"));
    watcher.subscribe("wills/#");
    for name in ["past", "soon"] {
        let packet = watcher.read_packet();
        let expected = [&packet::string(&format!("wills/{name}")), &[7, 3, 0, 4][..], b"fishgone"].concat();
        assert_eq!(packet[2..], expected, "{name}");
    }
    assert!(broker.stop().success());
    let found = inspect(&store.journal());
    assert_eq!(found["wills"]["pending"], 1, "{found}");
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
