//! The topic prefix of a role: its clients use short names for the topics below it, and reach no others.

use std::path::PathBuf;

use pondhawk_tests::conversation::lasting;
use pondhawk_tests::packet::{self, Connect, Will};
use pondhawk_tests::{Broker, Client, Options, Version};
use tempfile::TempDir;

use crate::{IN_USE, Place, connect, publish};

/// Ann and bob are tenants, and cat sees everything.
const TENANTS: &str = "\
[roles.tenant]
topic_prefix = \"tenants/%u/\"
publish = [\"tenants/%u/#\", \"house/tenants/%u/#\"]
subscribe = [\"tenants/%u/#\", \"house/tenants/%u/#\"]
[roles.all]
publish = [\"#\"]
subscribe = [\"#\", \"$SYS/#\"]
[users.ann]
roles = [\"tenant\"]
[users.bob]
roles = [\"tenant\"]
[users.cat]
roles = [\"all\"]
";

/// Everybody is a tenant, whatever the name.
const EVERYBODY: &str = "\
[roles.tenant]
topic_prefix = \"tenants/%u/\"
publish = [\"#\"]
subscribe = [\"#\"]
[every_user]
roles = [\"tenant\"]
[anonymous]
roles = [\"tenant\"]
";

fn place(rules: &str) -> Place {
    let place = Place::new("");
    place.write("roles.toml", rules);
    place
}

fn broker_with(place: &Place, keys: &str, data_dir: Option<PathBuf>) -> Broker {
    let (users, rules) = (place.path("users"), place.path("roles.toml"));
    let settings = format!(
        "[auth]\npassword_file = {users:?}\nrules_file = {rules:?}\n[sys]\ninterval = \"1s\"\n{keys}"
    );
    Broker::start(&Options { shards: 2, settings, data_dir, ..Options::default() })
}

/// A place with these rules, and a broker that reads them.
fn start(rules: &str) -> (Place, Broker) {
    let place = place(rules);
    let broker = broker_with(&place, "", None);
    (place, broker)
}

fn subscribe(client: &mut Client, filter: &str) {
    let version = client.version();
    client.send(&packet::subscribe_with(version, 1, filter, 1));
    client.expect(&packet::suback(version, 1, 1));
}

/// The topic of the next message, which is acknowledged.
fn heard(client: &mut Client) -> String {
    let packet = client.read_packet();
    assert_eq!(packet[0] & 0xF0, 0x30, "{packet:02x?}");
    let end = 4 + usize::from(packet[3]);
    if packet[0] & 6 != 0 {
        client.send(&packet::packet(0x40, &packet[end..end + 2]));
    }
    String::from_utf8(packet[4..end].to_vec()).expect("a topic is text")
}

/// The answer to a CONNECT: whether the session is present, and the reason code.
fn answer(broker: &Broker, connect: &Connect<'_>) -> [u8; 2] {
    let mut client = broker.connect();
    client.send(&connect.bytes());
    let answer = client.read_packet();
    assert_eq!(answer[0], 0x20, "{answer:02x?}");
    [answer[2], answer[3]]
}

#[test]
fn a_tenant_knows_its_own_topics_by_short_names_and_no_others() {
    for (mount, before) in
        [("", ""), ("[[listener]]\naddress = \"127.0.0.1:0\"\nmount_point = \"house/\"\n", "house/")]
    {
        let place = place(TENANTS);
        let broker = broker_with(&place, mount, None);
        for version in [Version::V3_1_1, Version::V5] {
            let mut cat = connect(&broker, version, "cat");
            subscribe(&mut cat, "#");
            let mut ann = connect(&broker, version, "ann");
            let mut bob = connect(&broker, version, "bob");
            subscribe(&mut ann, "#");
            subscribe(&mut bob, "#");
            for topic in ["door", "$SYS/x", "$CONTROL/dynamic-security/v1", "tenants/bob/door"] {
                ann.publish(topic, b"");
                assert_eq!(heard(&mut ann), topic);
                assert_eq!(heard(&mut cat), format!("tenants/ann/{topic}"), "{before}");
            }
            cat.publish("tenants/ann/lamp", b"");
            assert_eq!((heard(&mut ann), heard(&mut cat)), ("lamp".into(), "tenants/ann/lamp".into()));
            cat.publish("tenants/bob/lamp", b"");
            assert_eq!(heard(&mut bob), "lamp", "the first that bob hears");
            assert_eq!(heard(&mut cat), "tenants/bob/lamp");
            subscribe(&mut ann, "$SYS/broker/uptime");
            ann.unsubscribe("#");
            ann.expect_only_pong();
            [ann, bob, cat].into_iter().for_each(Client::leave);
        }
    }
}

#[test]
fn retained_messages_wills_groups_and_aliases_are_below_the_prefix() {
    let (_place, broker) = start(TENANTS);
    for version in [Version::V3_1_1, Version::V5] {
        let mut cat = connect(&broker, version, "cat");
        let mut ann = connect(&broker, Version::V5, "ann");
        ann.retain("lamp", b"on");
        ann.subscribe("lamp");
        ann.expect_retained("lamp", b"on");
        cat.subscribe("tenants/ann/lamp");
        cat.expect_retained("tenants/ann/lamp", b"on");
        ann.unsubscribe("lamp");
        cat.subscribe("tenants/ann/gone");
        let will = Some(Will::new("gone", b"croak"));
        let gone = Connect { will, ..Connect::new(version, "x").of("ann", "ann") };
        broker.client_with(&gone).into_raw().reset();
        cat.expect_message("tenants/ann/gone", b"croak");
        subscribe(&mut ann, "$share/g/job");
        assert_eq!(publish(&mut cat, "tenants/ann/job", b""), 0);
        assert_eq!(heard(&mut ann), "job");
        let mut bob = connect(&broker, Version::V5, "bob");
        bob.subscribe("job");
        subscribe(&mut bob, "$share/g/job");
        assert_eq!(publish(&mut cat, "tenants/ann/job", b""), 0);
        assert_eq!(heard(&mut ann), "job", "the group of the same name is another one");
        bob.expect_only_pong();
        // The alias stands for the whole name.
        cat.subscribe("tenants/ann/pond");
        for topic in ["pond", ""] {
            ann.send(&packet::publish_with(Version::V5, 0x30, topic, &[0x23, 0, 1], b"hey"));
            cat.expect_message("tenants/ann/pond", b"hey");
        }
        [ann, bob, cat].into_iter().for_each(Client::leave);
    }
}

/// The user is known when the password was checked, and the packets behind CONNECT are there already.
#[test]
fn packets_behind_connect_are_below_the_prefix() {
    let (_place, broker) = start(TENANTS);
    let mut cat = connect(&broker, Version::V5, "cat");
    subscribe(&mut cat, "#");
    for version in Version::ALL {
        let will = Some(Will::new("gone", b""));
        let connect = Connect { will, ..Connect::new(version, "early").of("ann", "ann") }.bytes();
        // DISCONNECT with Will Message in MQTT 5.0; the end of the connection before.
        let end: &[u8] = if version.is_5() { &[0xE0, 1, 4] } else { &[] };
        let mut client = broker.connect();
        client.send(&[&connect, &packet::publish(version, "first", b"")[..], end].concat());
        assert_eq!(heard(&mut cat), "tenants/ann/first", "{version}");
        client.reset();
        assert_eq!(heard(&mut cat), "tenants/ann/gone", "{version}");
    }
}

/// The session waits through a reload and a restart, for its user alone.
#[test]
fn a_lasting_session_stays_behind_its_prefix() {
    let data = TempDir::new().expect("a directory");
    let directory = || Some(data.path().to_owned());
    let place = place(TENANTS);
    let phone = |user| lasting(Version::V5, "phone").of(user, user);
    let mut broker = broker_with(&place, "", directory());
    let send = |broker: &Broker, payload: &[u8]| {
        let mut cat = connect(broker, Version::V5, "cat");
        assert_eq!(publish(&mut cat, "tenants/ann/mail", payload), 0, "it waits");
    };
    let mut client = broker.client_with(&phone("ann"));
    subscribe(&mut client, "mail");
    assert_eq!(answer(&broker, &phone("bob")), [0, 0x87], "connected");
    client.leave();
    for restart in [false, true, true] {
        send(&broker, b"1");
        if restart {
            assert!(broker.stop().success());
            broker = broker_with(&place, "", directory());
        } else {
            place.write("roles.toml", &format!("{TENANTS}# new\n"));
            place.reload(&broker, IN_USE);
        }
        send(&broker, b"2");
        for thief in ["bob", "cat"] {
            assert_eq!(answer(&broker, &phone(thief)), [0, 0x87], "{thief}, restart: {restart}");
        }
        let (mut client, connack) = broker.greet(&phone("ann"));
        assert_eq!(connack[2..4], [1, 0], "restart: {restart}");
        assert_eq!([heard(&mut client), heard(&mut client)], ["mail", "mail"], "restart: {restart}");
        client.leave();
    }
    // The role has another prefix, or none: what waits is not for the new one.
    for other in ["topic_prefix = \"other/%u/\"\n", ""] {
        place.write("roles.toml", &TENANTS.replace("topic_prefix = \"tenants/%u/\"\n", other));
        place.reload(&broker, IN_USE);
        assert_eq!(answer(&broker, &phone("ann")), [0, 0x87], "{other}");
        assert!(broker.stop().success());
        broker = broker_with(&place, "", directory());
        assert_eq!(answer(&broker, &phone("ann")), [0, 0x87], "after a restart: {other}");
        place.write("roles.toml", TENANTS);
        place.reload(&broker, IN_USE);
        assert_eq!(answer(&broker, &phone("ann")), [1, 0], "{other}");
    }
}

/// Names without a proof, and clients without a name: each has the topics of its prefix alone, after a restart too.
#[test]
fn sessions_of_users_who_prove_nothing_stay_behind_their_prefix() {
    let data = TempDir::new().expect("a directory");
    let place = place(&EVERYBODY.replace(
        "[anonymous]\nroles = [\"tenant\"]",
        "[roles.guest]\ntopic_prefix = \"guests/\"\nsubscribe = [\"#\"]\n[anonymous]\nroles = [\"guest\"]",
    ));
    let start = || {
        let settings =
            format!("allow_anonymous = true\n[auth]\nrules_file = {:?}\n", place.path("roles.toml"));
        Broker::start(&Options { settings, data_dir: Some(data.path().to_owned()), ..Options::default() })
    };
    let [ann, guest] = [lasting(Version::V5, "a").of("ann", ""), lasting(Version::V5, "g")];
    let broker = start();
    for connect in [&ann, &guest] {
        let mut client = broker.client_with(connect);
        subscribe(&mut client, "x");
        client.leave();
    }
    assert!(broker.stop().success());
    let broker = start();
    for (connect, client_id) in [(&ann, "a"), (&guest, "g")] {
        for thief in [lasting(Version::V5, client_id).of("bob", ""), lasting(Version::V5, client_id)] {
            let is_own = connect.bytes() == thief.bytes();
            assert_eq!(answer(&broker, &thief), if is_own { [1, 0] } else { [0, 0x87] }, "{client_id}");
        }
        assert_eq!(answer(&broker, connect), [1, 0]);
    }
}

/// A tenant that leaves and comes again finds the topics of its rules of that moment.
#[test]
fn a_prefix_is_in_force_until_its_client_connects_again() {
    let (place, broker) = start(TENANTS);
    let mut cat = connect(&broker, Version::V5, "cat");
    subscribe(&mut cat, "#");
    let mut ann = connect(&broker, Version::V5, "ann");
    place.write("roles.toml", &TENANTS.replace("topic_prefix = \"tenants/%u/\"\n", ""));
    place.reload(&broker, IN_USE);
    assert_eq!(publish(&mut ann, "a", b""), 0);
    assert_eq!(heard(&mut cat), "tenants/ann/a");
    ann.leave();
    let mut ann = connect(&broker, Version::V5, "ann");
    assert_eq!(publish(&mut ann, "a", b""), 0x87, "rules see whole topics");
    assert_eq!(publish(&mut ann, "tenants/ann/b", b""), 0);
    assert_eq!(heard(&mut cat), "tenants/ann/b");
}

#[test]
fn a_name_that_fits_in_no_topic_is_refused() {
    let place = place(EVERYBODY);
    let settings = format!(
        "allow_anonymous = true\n[auth]\nrules_file = {:?}\n[sys]\ninterval = \"1s\"\n",
        place.path("roles.toml")
    );
    let broker = Broker::start(&Options { settings, ..Options::default() });
    let long = "n".repeat(300);
    for version in [Version::V3_1_1, Version::V5] {
        let code = if version.is_5() { 0x87 } else { 5 };
        for user in ["a/b", "+", "#", "a#", "$SYS", &*long] {
            assert_eq!(answer(&broker, &Connect::new(version, "x").of(user, "")), [0, code], "{user}");
        }
        assert_eq!(answer(&broker, &Connect::new(version, "x")), [0, code], "without a name");
        assert_eq!(answer(&broker, &Connect::new(version, "x").of("ann", "")), [0, 0]);
    }
    for why in ["its user name fits in no topic", "is too long with its user name", "it has no user name"] {
        broker.wait_for_log(why);
    }
}

#[test]
fn names_that_are_too_long_below_the_prefix_are_refused() {
    let (_place, broker) = start(TENANTS);
    let long = "a".repeat(65_530);
    for version in [Version::V3_1_1, Version::V5] {
        let mut ann = connect(&broker, version, "ann");
        ann.publish(&long, b"hey");
        ann.expect_disconnect(0x90);
        let will = Some(Will::new(&long, b"croak"));
        let mut ann = broker.connect();
        ann.send(&Connect { will, ..Connect::new(version, "ann").of("ann", "ann") }.bytes());
        let connack: &[u8] = if version.is_5() { &[0x20, 0x03, 0x00, 0x90, 0x00] } else { &[] };
        assert_eq!(ann.read_to_end(), connack, "{version}");
    }
}

#[test]
fn two_prefixes_of_one_user_are_a_mistake() {
    let twice = format!(
        "{TENANTS}[roles.other]\ntopic_prefix = \"x/\"\n[groups.g]\nroles = [\"other\"]\nusers = [\"bob\"]\n"
    );
    let why = "the user \"bob\" has roles with different topic prefixes: \"tenant\" and \"other\"";
    let (place, broker) = start(TENANTS);
    place.write("roles.toml", &twice);
    place.reload(&broker, "the new users and rules are refused");
    broker.wait_for_log(&format!("line 15, column 16: {why}"));
    let settings = format!("[auth]\nrules_file = {:?}\n", place.path("roles.toml"));
    let error =
        Broker::try_start(&Options { settings, ..Options::default() }).expect_err("it does not start");
    assert!(error.contains(why), "{error}");
}
