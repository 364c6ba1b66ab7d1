//! Rules and users of sessions that outlive their connections.

use std::net::SocketAddr;

use pondhawk_tests::conversation::lasting;
use pondhawk_tests::packet::{self, Connect, Will};
use pondhawk_tests::{Broker, Client, Options, RawClient, Version, until};
use tempfile::TempDir;

use crate::{IN_USE, Place, connect, expect_nothing_before, publish, take, users};

const OPEN: &str = "user ann\ntopic readwrite #\nuser bob\ntopic readwrite #\nuser cat\ntopic readwrite #\n";
/// Bob may not read `a`.
const SHUT: &str =
    "user ann\ntopic readwrite #\nuser bob\ntopic readwrite open/#\nuser cat\ntopic readwrite #\n";

/// A connection of bob's lasting session.
fn bob(broker: &Broker, version: Version) -> Client {
    broker.client_with(&lasting(version, "bob").of("bob", "bob"))
}

fn subscribe_at_qos_1(client: &mut Client, filter: &str) {
    let version = client.version();
    client.send(&packet::subscribe_with(version, 1, filter, 1));
    client.expect(&packet::suback(version, 1, 1));
}

#[test]
fn waiting_messages_that_a_client_may_no_longer_read_are_not_sent() {
    for version in Version::ALL {
        let place = Place::new(OPEN);
        let broker = place.broker("");
        let mut first = bob(&broker, version);
        subscribe_at_qos_1(&mut first, "#");
        first.leave();
        let mut ann = connect(&broker, version, "ann");
        for topic in ["a/1", "open/1", "a/2", "open/2"] {
            assert_eq!(publish(&mut ann, topic, b""), 0);
        }
        place.write("rules", SHUT);
        place.reload(&broker, IN_USE);
        assert!(matches!(publish(&mut ann, "a/3", b""), 0 | 0x10), "nobody may read it");
        let mut back = bob(&broker, version);
        assert_eq!([take(&mut back), take(&mut back)], ["open/1", "open/2"]);
        assert_eq!(publish(&mut ann, "open/3", b""), 0);
        assert_eq!(take(&mut back), "open/3");
    }
}

#[test]
fn the_rules_of_a_session_are_those_of_its_user_after_a_restart_too() {
    let place = Place::new(SHUT);
    let data = TempDir::new().expect("a directory");
    let directory = || Some(data.path().to_owned());
    let broker = place.broker_with("", directory());
    let mut first = bob(&broker, Version::V5);
    subscribe_at_qos_1(&mut first, "#");
    first.leave();
    drop(broker);
    let broker = place.broker_with("", directory());
    let mut ann = connect(&broker, Version::V5, "ann");
    for topic in ["a/1", "open/1", "a/2"] {
        assert!(matches!(publish(&mut ann, topic, b""), 0 | 0x10));
    }
    let mut back = bob(&broker, Version::V5);
    assert_eq!(take(&mut back), "open/1");
    subscribe_at_qos_1(&mut back, "open/#");
    assert_eq!(publish(&mut ann, "open/2", b""), 0);
    assert_eq!(take(&mut back), "open/2");
}

/// The will waits for its delay, and the rules change meanwhile.
#[test]
fn a_will_that_waits_is_not_published_when_its_user_may_not_any_more() {
    let place = Place::new(OPEN);
    let broker = place.broker("");
    let mut ann = connect(&broker, Version::V5, "ann");
    ann.subscribe("#");
    let delay = [0x18, 0, 0, 0, 2];
    let forever = [0x11, 0xFF, 0xFF, 0xFF, 0xFF];
    let leave = |user: &str, topic: &str| {
        let will = Some(Will { properties: &delay, ..Will::new(topic, b"gone") });
        let connect = Connect { will, properties: &forever, ..Connect::new(Version::V5, user) };
        broker.client_with(&connect.of(user, user)).into_raw().reset();
    };
    leave("bob", "a/bob");
    leave("cat", "a/cat");
    place.write("rules", SHUT);
    place.reload(&broker, IN_USE);
    ann.expect_message("a/cat", b"gone");
    let mut cat = connect(&broker, Version::V5, "cat");
    expect_nothing_before(&mut ann, &mut cat);
}

/// Another user neither ends the connection nor reads the queue.
#[test]
fn a_client_identifier_belongs_to_the_user_of_its_session() {
    let place = Place::new(OPEN);
    let broker = place.broker("");
    for version in Version::ALL {
        let refused = if version.is_5() { 0x87 } else { 5 };
        let thief = |clean_start| {
            let mut thief = broker.connect();
            thief.send(&Connect { clean_start, ..Connect::new(version, "bob") }.of("cat", "cat").bytes());
            let answer = thief.read_packet();
            thief.expect_closed();
            answer[3]
        };
        let mut victim = bob(&broker, version);
        assert_eq!([thief(true), thief(false)], [refused; 2], "connected");
        subscribe_at_qos_1(&mut victim, "a");
        victim.leave();
        assert_eq!([thief(true), thief(false)], [refused; 2], "not connected");
        let mut again = bob(&broker, version);
        let mut ann = connect(&broker, version, "ann");
        assert_eq!(publish(&mut ann, "a", b""), 0);
        assert_eq!(take(&mut again), "a");
        let end = Connect::new(version, "bob").of("bob", "bob");
        drop(broker.client_with(&end));
    }
}

/// The addresses of both listeners, in the order of the configuration.
fn addresses(broker: &Broker) -> [SocketAddr; 2] {
    let lines: [String; 2] = until("both listen", || broker.log_lines("listening on ").try_into().ok());
    lines.map(|line| {
        let address = line.split_whitespace().nth(2).and_then(|address| address.parse().ok());
        address.expect("the line names an address")
    })
}

/// The answer to a CONNECT for bob's session: whether the session is present, and the reason code.
fn claim(address: SocketAddr, connect: Connect<'_>) -> [u8; 2] {
    let mut client = RawClient::connect(address);
    client.send(&connect.bytes());
    let answer = client.read_packet();
    assert_eq!(answer[0], 0x20, "{answer:02x?}");
    [answer[2], answer[3]]
}

/// Two listeners with users of their own, or with mount points, and a session of the second.
struct Tenants {
    _place: Place,
    data: TempDir,
    listeners: String,
}

impl Tenants {
    fn new(keys: impl Fn(&Place) -> [String; 2]) -> Self {
        let (place, data) = (Place::new(OPEN), TempDir::new().expect("a directory"));
        let [first, second] = keys(&place);
        let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\n";
        let listeners = format!("{listener}{first}{listener}{second}");
        Self { _place: place, data, listeners }
    }

    fn start(&self) -> (Broker, [SocketAddr; 2]) {
        let (settings, data_dir) = (self.listeners.clone(), Some(self.data.path().to_owned()));
        let broker = Broker::start(&Options { shards: 2, settings, data_dir, ..Options::default() });
        let addresses = addresses(&broker);
        (broker, addresses)
    }

    /// A client of the second listener leaves a session with a message, and `thief` of the first one wants it. Then both come
    /// once more after a restart.
    fn play(&self, owner: Connect<'_>, thief: Connect<'_>) {
        let (broker, [first, second]) = self.start();
        let mut client = Client::connect(second, &owner);
        subscribe_at_qos_1(&mut client, "#");
        assert_eq!(claim(first, thief), [0, 0x87], "the owner is connected");
        client.leave();
        assert_eq!(claim(first, thief), [0, 0x87]);
        assert_eq!(
            publish(&mut Client::connect(second, &Connect { client_id: "other", ..owner }), "a", b""),
            0
        );
        drop(broker);
        let (_broker, [first, second]) = self.start();
        assert_eq!(claim(first, thief), [0, 0x87], "after a restart");
        let mut client = Client::connect(second, &owner);
        assert_eq!(take(&mut client), "a");
    }
}

#[test]
fn a_user_of_another_password_file_is_another_user() {
    let tenants = Tenants::new(|place| {
        place.write("other", &users(&["bob", "eve"]));
        ["users", "other"].map(|file| format!("password_file = {:?}\n", place.path(file)))
    });
    let owner = lasting(Version::V5, "phone").of("bob", "bob");
    tenants.play(owner, lasting(Version::V5, "phone").of("bob", "bob"));
    let (_broker, [first, second]) = tenants.start();
    assert_eq!(claim(first, lasting(Version::V5, "phone").of("ann", "ann")), [0, 0x87]);
    assert_eq!(claim(second, lasting(Version::V5, "phone").of("eve", "eve")), [0, 0x87]);
}

#[test]
fn a_session_stays_behind_its_mount_point() {
    let tenants = Tenants::new(|_| ["a/", "b/"].map(|mount| format!("mount_point = {mount:?}\n")));
    tenants.play(lasting(Version::V5, "phone"), lasting(Version::V5, "phone"));
}
