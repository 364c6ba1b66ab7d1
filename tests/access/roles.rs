//! Our own rules: the file of the real binary, and what a change of it does to clients that are connected.

use std::fs;
use std::path::PathBuf;

use pondhawk_tests::conversation::lasting;
use pondhawk_tests::packet::{self, Connect, Will};
use pondhawk_tests::{Broker, Client, Options, Version};
use tempfile::TempDir;

use crate::{IN_USE, Place, connect, publish, users};

const REFUSED: &str = "the new users and rules are refused";

/// Ann and bob may do everything but for the safe, and cat has no role.
const OPEN: &str = "\
[roles.family]
publish = [\"#\"]
subscribe = [\"#\", \"$SYS/#\"]
deny = { subscribe = [\"house/safe/#\"] }
[groups.house]
roles = [\"family\"]
users = [\"ann\", \"bob\"]
";
/// Bob reads what is open, and may not retain anything.
const SHUT: &str = "\
[roles.family]
publish = [\"#\"]
subscribe = [\"#\"]
[roles.guest]
publish = [\"open/#\", \"will/%u\"]
subscribe = [\"open/#\"]
max_qos = 1
retain = false
[users.ann]
roles = [\"family\"]
[users.bob]
roles = [\"guest\"]
";

/// A place with a file of roles, and a broker that reads it.
fn start(rules: &str, data_dir: Option<PathBuf>) -> (Place, Broker) {
    let place = Place::new("");
    place.write("roles.toml", rules);
    let broker = broker(&place, data_dir);
    (place, broker)
}

fn broker(place: &Place, data_dir: Option<PathBuf>) -> Broker {
    broker_with(place, "", data_dir)
}

/// The same with these keys too.
fn broker_with(place: &Place, keys: &str, data_dir: Option<PathBuf>) -> Broker {
    let (users, rules) = (place.path("users"), place.path("roles.toml"));
    let settings = format!(
        "[auth]\npassword_file = {users:?}\nrules_file = {rules:?}\n[sys]\ninterval = \"1s\"\n{keys}"
    );
    Broker::start(&Options { shards: 2, settings, data_dir, ..Options::default() })
}

/// Asks for a subscription, and returns the code in SUBACK.
fn subscribe(client: &mut Client, filter: &str, qos: u8) -> u8 {
    let version = client.version();
    client.send(&packet::subscribe_with(version, 1, filter, qos));
    let answer = client.read_packet();
    assert_eq!(answer[0], 0x90, "{answer:02x?}");
    *answer.last().expect("a code")
}

/// The payload of the message that comes next, which is acknowledged.
fn next_payload(client: &mut Client) -> Vec<u8> {
    let version = client.version();
    let packet = client.read_packet();
    assert_eq!(packet[0] & 0xF0, 0x30, "{packet:02x?}");
    let mut at = 4 + usize::from(packet[3]);
    if packet[0] & 6 != 0 {
        client.send(&packet::packet(0x40, &packet[at..at + 2]));
        at += 2;
    }
    packet[at + usize::from(version.is_5())..].to_vec()
}

#[test]
fn a_change_of_the_file_keeps_connections_and_holds_for_the_next_message() {
    let (place, broker) = start(OPEN, None);
    for version in [Version::V3_1_1, Version::V5] {
        let refused = if version.is_5() { 0x87 } else { 0x80 };
        let mut ann = connect(&broker, Version::V5, "ann");
        let mut bob = connect(&broker, version, "bob");
        let mut cat = connect(&broker, version, "cat");
        assert_eq!(subscribe(&mut cat, "open/#", 0), refused);
        assert_eq!(subscribe(&mut bob, "#", 2), 2);
        assert_eq!(subscribe(&mut bob, "house/safe/#", 0), refused);
        assert_eq!(publish(&mut ann, "house/safe/door", b""), 0x10, "nobody may receive it");
        assert_eq!(publish(&mut ann, "a", b"1"), 0);
        assert_eq!(next_payload(&mut bob), b"1");
        place.write("roles.toml", SHUT);
        place.reload(&broker, IN_USE);
        assert_eq!(publish(&mut ann, "a", b"2"), 0x10, "the subscription is there, and its client may not");
        assert_eq!(publish(&mut ann, "open/a", b"3"), 0);
        assert_eq!(next_payload(&mut bob), b"3");
        assert_eq!(subscribe(&mut bob, "a", 0), refused);
        assert_eq!(subscribe(&mut bob, "open/b", 2), 1, "less than was asked for");
        assert_eq!(publish(&mut bob, "a", b""), if version.is_5() { 0x87 } else { 0 });
        place.write("roles.toml", OPEN);
        place.reload(&broker, IN_USE);
        assert_eq!(publish(&mut ann, "a", b"4"), 0);
        assert_eq!(next_payload(&mut bob), b"4");
        [ann, bob, cat].into_iter().for_each(Client::leave);
    }
}

#[test]
fn a_file_with_a_mistake_changes_nothing_and_the_log_names_its_place() {
    let (place, broker) = start(SHUT, None);
    let mut ann = connect(&broker, Version::V5, "ann");
    let mut bob = connect(&broker, Version::V5, "bob");
    place.write("users", &users(&["dan"]));
    place.write("roles.toml", &OPEN.replace("\"family\"]", "\"famly\"]"));
    place.reload(&broker, REFUSED);
    let line = broker.log_lines(REFUSED).pop().expect("it was waited for");
    assert!(line.contains("line 6, column 10") && line.contains("did you mean"), "{line}");
    assert_eq!(publish(&mut ann, "a", b""), 0x10);
    assert_eq!(publish(&mut bob, "a", b""), 0x87);
    drop(connect(&broker, Version::V5, "cat"));
}

/// Nobody sends a signal, and the role is taken away from everybody.
#[test]
fn a_role_that_is_removed_is_nobody_s_from_the_next_message_on() {
    let (place, broker) = start(OPEN, None);
    let mut ann = connect(&broker, Version::V5, "ann");
    assert_eq!(subscribe(&mut ann, "a", 0), 0);
    ann.publish("a", b"1");
    assert_eq!(next_payload(&mut ann), b"1");
    place.write("roles.toml", "[roles.other]\npublish = [\"#\"]\n[groups.house]\nusers = [\"ann\"]\n");
    broker.wait_for_log(IN_USE);
    assert_eq!(publish(&mut ann, "a", b"2"), 0x87);
    assert_eq!(subscribe(&mut ann, "a", 0), 0x87);
}

/// The session and the will are of the user, also after a restart, and the rules are those of the moment.
#[test]
fn restored_subscriptions_queues_groups_and_delayed_wills_follow_the_rules_of_the_moment() {
    let data = TempDir::new().expect("a directory");
    let directory = || Some(data.path().to_owned());
    let (place, first) = start(OPEN, directory());
    let bob = |broker: &Broker| broker.client_with(&lasting(Version::V5, "bob").of("bob", "bob"));
    let mut client = bob(&first);
    assert_eq!(subscribe(&mut client, "#", 1), 1);
    assert_eq!(subscribe(&mut client, "$share/g/shared/#", 1), 1);
    client.leave();
    let mut ann = connect(&first, Version::V5, "ann");
    for (topic, payload) in [("a", b"1"), ("open/a", b"2")] {
        assert_eq!(publish(&mut ann, topic, payload), 0, "it waits");
    }
    ann.leave();
    assert!(first.stop().success());
    place.write("roles.toml", SHUT);
    let second = broker(&place, directory());
    let mut ann = connect(&second, Version::V5, "ann");
    assert_eq!(publish(&mut ann, "shared/a", b"3"), 0, "the only member may not read it");
    assert_eq!(publish(&mut ann, "open/b", b"4"), 0);
    let mut back = bob(&second);
    assert_eq!([next_payload(&mut back), next_payload(&mut back)], [b"2".to_vec(), b"4".to_vec()]);
    // Wills of bob: the second is to be retained, which he may not.
    ann.subscribe("will/#");
    for retain in [true, false] {
        let will = Some(Will { retain, ..Will::new("will/bob", b"gone") });
        let gone = Connect { will, ..Connect::new(Version::V5, "x").of("bob", "bob") };
        second.client_with(&gone).into_raw().reset();
    }
    ann.expect_message("will/bob", b"gone");
    ann.subscribe("open/mark");
    ann.publish("open/mark", b"mark");
    ann.expect_message("open/mark", b"mark");
    assert_eq!(next_payload(&mut back), b"mark");
}

/// All packets come in one write, the last of them is no PUBLISH, and nothing else wakes the connection.
#[test]
fn messages_that_come_too_fast_are_all_delivered() {
    let rules = format!("{OPEN}[roles.slow]\nmessages_per_second = 20\n[users.bob]\nroles = [\"slow\"]\n");
    let (_place, broker) = start(&rules, None);
    for version in [Version::V3_1_1, Version::V5] {
        let mut ann = connect(&broker, Version::V5, "ann");
        ann.subscribe("a");
        let mut bob = connect(&broker, version, "bob");
        let messages: Vec<u8> =
            (b'0'..b'0' + 45).flat_map(|number| packet::publish(version, "a", &[number])).collect();
        bob.send(&[&messages[..], &[0xC0, 0]].concat());
        for number in b'0'..b'0' + 45 {
            ann.expect_message("a", &[number]);
        }
        bob.expect(&[0xD0, 0]);
        [ann, bob].into_iter().for_each(Client::leave);
    }
}

/// The bound of a user's queue is that of its roles at the moment, also after a restart, and others have that of all.
#[test]
fn queues_have_the_bounds_of_roles_after_a_reload_and_a_restart_too() {
    let data = TempDir::new().expect("a directory");
    let directory = || Some(data.path().to_owned());
    let rules = |limit: &str| format!("{OPEN}[roles.small]\n{limit}[users.bob]\nroles = [\"small\"]\n");
    let place = Place::new("");
    place.write("roles.toml", &rules("queue_messages = 3\n"));
    let keys = "[sessions]\nqueue_messages = 6\nqueue_full = \"drop-newest\"\n";
    let start = || broker_with(&place, keys, directory());
    let session = |user| lasting(Version::V5, user).of(user, user);
    let mut broker = start();
    for user in ["ann", "bob"] {
        let mut client = broker.client_with(&session(user));
        assert_eq!(subscribe(&mut client, "a", 1), 1);
        client.leave();
    }
    // Publishes eight messages, and looks at the first that wait for bob and for ann.
    let check = |broker: &Broker, of_bob: usize, of_ann: usize| {
        let mut publisher = broker.client_with(&Connect::new(Version::V5, "p").of("ann", "ann"));
        for number in b'1'..=b'8' {
            assert_eq!(publish(&mut publisher, "a", &[number]), 0);
        }
        publisher.leave();
        for (user, most) in [("bob", of_bob), ("ann", of_ann)] {
            let mut client = broker.client_with(&session(user));
            // All that waits comes in one piece.
            let found: Vec<u8> = (0..most).flat_map(|_| next_payload(&mut client)).collect();
            assert_eq!(found, b"12345678"[..most], "{user}");
            client.expect_only_pong();
            client.leave();
        }
    };
    check(&broker, 3, 6);
    for (limit, expected) in [
        ("queue_messages = 5\n", 5),
        ("queue_messages = 900\n", 6),
        ("queue_bytes = \"64 KiB\"\n", 6),
        ("", 6),
        ("queue_messages = 2\n", 2),
    ] {
        place.write("roles.toml", &rules(limit));
        place.reload(&broker, IN_USE);
        check(&broker, expected, 6);
        assert!(broker.stop().success());
        broker = start();
        check(&broker, expected, 6);
    }
}

/// A user of a certificate is one like others, and so is a name without a proof. Names are never patterns.
#[test]
fn a_name_is_text_whatever_it_is() {
    let place = Place::new("");
    place.write(
        "roles.toml",
        "[roles.device]\npublish = [\"d/%u/%c\"]\nsubscribe = [\"d/%u/#\"]\n[every_user]\nroles = [\"device\"]\n",
    );
    let settings = format!("allow_anonymous = true\n[auth]\nrules_file = {:?}\n", place.path("roles.toml"));
    let broker = Broker::start(&Options { settings, ..Options::default() });
    for (user, client_id, is_fit) in [
        ("ann", "c1", true),
        ("#", "c1", false),
        ("+", "c1", false),
        ("ann/c1", "c1", false),
        ("ann", "c1/x", false),
        ("bob", "c1", false),
    ] {
        let mut client = broker.client_with(&Connect::new(Version::V5, client_id).of(user, "x"));
        assert_eq!(publish(&mut client, "d/ann/c1", b"") == 0x10, is_fit, "{user} {client_id}");
        assert_eq!(subscribe(&mut client, "d/ann/+", 0) == 0, user == "ann", "{user} {client_id}");
        for filter in ["d/#", "d/+/#", "#", "$share/g/d/#"] {
            assert_eq!(subscribe(&mut client, filter, 0), 0x87, "{user} {filter}");
        }
        client.leave();
    }
    let mut nobody = broker.client(Version::V5, "c1");
    assert_eq!(publish(&mut nobody, "d/ann/c1", b""), 0x87);
    assert_eq!(subscribe(&mut nobody, "d/ann/#", 0), 0x87);
}

#[test]
fn two_files_of_rules_on_one_listener_are_a_mistake() {
    let place = Place::new("");
    fs::write(place.path("roles.toml"), "").expect("a file can be written");
    let (rules, acl) = (place.path("roles.toml"), place.path("rules"));
    let both = format!("[auth]\nacl_file = {acl:?}\nrules_file = {rules:?}\n");
    let own = format!(
        "[auth]\nacl_file = {acl:?}\n[[listener]]\naddress = \"127.0.0.1:0\"\nrules_file = {rules:?}\n"
    );
    for settings in [&both, &own] {
        let options = Options { settings: settings.clone(), ..Options::default() };
        let error = Broker::try_start(&options).expect_err("it does not start");
        assert!(error.contains("both `acl_file` and `rules_file`"), "{error}");
    }
    drop(Broker::start(&Options { settings: own + "acl_file = \"off\"\n", ..Options::default() }));
}
