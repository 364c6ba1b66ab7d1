//! CONNECT with and without user names and passwords.

use pondhawk_tests::packet::{self, Connect, Will};
use pondhawk_tests::{Broker, Options, RawClient, Version, until};

use crate::{Place, USERS, connect, publish};

/// The CONNACK code for a refused CONNECT of this version, after which the connection is closed.
fn refusal(broker: &Broker, connect: &Connect<'_>) -> u8 {
    let mut client = broker.connect();
    client.send(&connect.bytes());
    let answer = client.read_packet();
    assert_eq!(answer[0], 0x20, "{answer:02x?}");
    assert_eq!(answer[2], 0, "no session is present");
    client.expect_closed();
    answer[3]
}

fn codes(version: Version) -> (u8, u8) {
    if version.is_5() { (0x86, 0x87) } else { (4, 5) }
}

#[test]
fn a_user_needs_the_right_password() {
    let place = Place::new("topic open/#\n");
    let broker = place.broker("");
    for version in Version::ALL {
        let (wrong, stranger) = codes(version);
        for user in USERS {
            let mut client = connect(&broker, version, user);
            client.send(&packet::packet(0xC0, &[]));
            client.expect(&[0xD0, 0]);
        }
        let new = Connect::new(version, "c");
        assert_eq!(refusal(&broker, &new), stranger, "without a name");
        for (user, password) in
            [("ann", "bob"), ("ann", ""), ("ann", "ann\0"), ("Ann", "ann"), ("dan", "dan")]
        {
            assert_eq!(refusal(&broker, &new.of(user, password)), wrong, "{user} {password:?}");
        }
        assert_eq!(refusal(&broker, &Connect { user: Some("ann"), ..new }), wrong, "no password");
        assert_eq!(refusal(&broker, &new.of("", "")), stranger, "an empty name is none");
        let long = "x".repeat(65_535);
        assert_eq!(refusal(&broker, &new.of(&long, &long)), wrong);
    }
    let nameless = Connect { password: Some(b"ann"), ..Connect::new(Version::V5, "c") };
    assert_eq!(refusal(&broker, &nameless), 0x87, "a password without a name");
}

#[test]
fn anonymous_clients_come_in_where_they_may_and_names_need_passwords_even_there() {
    let place = Place::new("topic readwrite open/#\nuser ann\ntopic readwrite a/#\n");
    let broker = place.broker("[[listener]]\naddress = \"127.0.0.1:0\"\nallow_anonymous = true\n");
    for version in Version::ALL {
        let mut anonymous = broker.client(version, "anonymous");
        assert_eq!(publish(&mut anonymous, "open/x", b""), if version.is_5() { 0x10 } else { 0 });
        broker.client_with(&Connect::new(version, "empty").of("", "ann")).leave();
        let (wrong, _) = codes(version);
        assert_eq!(refusal(&broker, &Connect::new(version, "c").of("ann", "bob")), wrong);
    }
    let mut anonymous = broker.client(Version::V5, "anonymous");
    assert_eq!(publish(&mut anonymous, "a/x", b""), 0x87);
}

/// Packets behind a CONNECT wait for the check of the password. After a refusal nothing of them happens.
#[test]
fn packets_behind_connect_wait_for_the_check() {
    let place = Place::new("topic readwrite open/#\nuser ann\ntopic readwrite open/#\n");
    let broker = place.broker("[[listener]]\naddress = \"127.0.0.1:0\"\nallow_anonymous = true\n");
    for version in Version::ALL {
        let mut watcher = broker.client(version, "watcher");
        watcher.subscribe("open/#");
        let behind = |payload: &[u8]| {
            let subscribe = packet::subscribe(version, 1, "open/own");
            [subscribe, packet::publish(version, "open/own", payload)].concat()
        };
        let will = Some(Will::new("open/will", b"gone"));
        let connect = Connect { will, ..Connect::new(version, "early") };
        let mut refused = broker.connect();
        refused.send(&[connect.of("ann", "wrong").bytes(), behind(b"refused")].concat());
        assert!(!packet::is_accepted(&refused.read_packet()));
        refused.expect_closed();
        let mut early: RawClient = broker.connect();
        early.send(&[connect.of("ann", "ann").bytes(), behind(b"early")].concat());
        assert!(packet::is_accepted(&early.read_packet()));
        early.expect(&packet::suback(version, 1, 0));
        early.expect(&packet::publish(version, "open/own", b"early"));
        watcher.expect_message("open/own", b"early");
        early.send(&packet::disconnect(version, 0));
        early.expect_closed();
    }
}

#[test]
fn a_file_with_a_mistake_is_told_with_its_line_and_the_broker_does_not_start() {
    let place = Place::new("");
    let rows = [
        ("users", "# fine\nann:plain\n", "line 2"),
        ("users", "ann:$7$101$", "line 1"),
        ("rules", "user ann\ntopic a\ntopic open shut\n", "line 3"),
        ("rules", "allow #", "line 1"),
    ];
    for (file, text, line) in rows {
        let good = std::fs::read_to_string(place.path(file)).expect("it is there");
        place.write(file, text);
        let options = Options { settings: place.keys(), ..Options::default() };
        let log = Broker::try_start(&options).expect_err("it does not start");
        let path = place.path(file).display().to_string();
        assert!(log.contains(&path) && log.contains(line), "{log}");
        place.write(file, &good);
    }
    std::fs::remove_file(place.path("rules")).expect("it is there");
    let options = Options { settings: place.keys(), ..Options::default() };
    let log = Broker::try_start(&options).expect_err("it does not start");
    assert!(log.contains("acl_file"), "{log}");
}

/// Nobody guesses in peace, and others are not disturbed. They come from the same address here, and wait for their turn only.
#[test]
fn wrong_passwords_are_counted_and_refused_without_a_check_when_there_are_too_many() {
    let place = Place::new("topic read $SYS/#\n");
    let broker = place.broker("[[listener]]\naddress = \"127.0.0.1:0\"\nallow_anonymous = true\n");
    let guess =
        |number: usize| refusal(&broker, &Connect::new(Version::V5, "c").of("ann", &number.to_string()));
    let first_busy = (0..100).position(|number| guess(number) == 0x89);
    assert!(first_busy.is_some_and(|first| first >= 30), "{first_busy:?}");
    let mut watcher = broker.client(Version::V5, "watcher");
    watcher.subscribe("$SYS/broker/refused/guessing");
    until("it is counted", || watcher.read_packet().ends_with(b"1").then_some(()));
}
