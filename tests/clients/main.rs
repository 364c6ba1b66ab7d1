//! Clients that nobody here wrote, through the real broker: Mosquitto's programs, paho-mqtt in Python, MQTT.js,
//! autopaho in Go, HiveMQ's in Java, and rumqttc.

mod mosquitto;
mod rumqttc;
mod secure;

use std::path::Path;
use std::process::Command;
use std::thread;

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, Client, Options, Program, Version, autopaho, hivemq, node, pondhawk, python};
use tempfile::TempDir;

/// The versions that all three speak.
const VERSIONS: [Version; 2] = [Version::V3_1_1, Version::V5];

/// At which a conversation is held.
const EVERY_QOS: [&str; 3] = ["0", "1", "2"];

/// At which messages wait for who comes back.
const KEPT_QOS: [&str; 2] = ["1", "2"];

/// Last line of a conversation.
const ALL_SAID: &str = "all said";

/// A new broker, with one shard and with four.
fn brokers() -> impl Iterator<Item = Broker> {
    [1, 4].into_iter().map(|shards| Broker::start(&Options { shards, ..Options::default() }))
}

/// A program with one of the scripts beside this file, told where the broker is.
fn script(mut program: Command, script: &str, broker: &Broker, version: Version) -> Command {
    program.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(script));
    program.args([broker.address().port().to_string(), version.to_string()]);
    program
}

/// A conversation at each QoS of these, with a broker of one shard and with one of four, all at the same time: each waits
/// more than it computes.
fn converse(each_qos: &[&str], conversation: impl Fn(&Broker, &str) -> Command + Sync) {
    thread::scope(|scope| {
        for (qos, broker) in each_qos.iter().flat_map(|qos| brokers().map(move |broker| (qos, broker))) {
            let conversation = &conversation;
            scope.spawn(move || {
                let said = Program::start(conversation(&broker, qos)).finish();
                assert!(said.ends_with(ALL_SAID), "{said}");
                assert!(broker.stop().success());
            });
        }
    });
}

/// The same with a script.
fn converse_by(program: fn() -> Command, path: &str, version: Version, each_qos: &[&str]) {
    converse(each_qos, |broker, qos| {
        let mut conversation = script(program(), path, broker, version);
        conversation.arg(qos);
        conversation
    });
}

/// [3.1.1 MQTT-7.0.0-2]
#[test]
fn paho_converses_in_3_1_1() {
    converse_by(python, "python/talk.py", Version::V3_1_1, &EVERY_QOS);
}

#[test]
fn paho_converses_in_5_0() {
    converse_by(python, "python/talk.py", Version::V5, &EVERY_QOS);
}

#[test]
fn paho_comes_back_in_3_1_1() {
    converse_by(python, "python/resume.py", Version::V3_1_1, &KEPT_QOS);
}

#[test]
fn paho_comes_back_in_5_0() {
    converse_by(python, "python/resume.py", Version::V5, &KEPT_QOS);
}

/// [3.1.1 MQTT-7.0.0-2]
#[test]
fn mqtt_js_converses_in_3_1_1() {
    converse_by(node, "javascript/talk.js", Version::V3_1_1, &EVERY_QOS);
}

#[test]
fn mqtt_js_converses_in_5_0() {
    converse_by(node, "javascript/talk.js", Version::V5, &EVERY_QOS);
}

#[test]
fn mqtt_js_comes_back_in_3_1_1() {
    converse_by(node, "javascript/resume.js", Version::V3_1_1, &KEPT_QOS);
}

#[test]
fn mqtt_js_comes_back_in_5_0() {
    converse_by(node, "javascript/resume.js", Version::V5, &KEPT_QOS);
}

#[test]
fn autopaho_converses_and_comes_back_in_5_0() {
    converse(&EVERY_QOS, |broker, qos| {
        let mut conversation = autopaho();
        conversation.args([&broker.address().port().to_string(), qos]);
        conversation
    });
}

/// All conversations one after another in one virtual machine: its start takes longer than a conversation.
fn hivemq_talks_in(version: Version) {
    let mut conversations = hivemq("Talk");
    conversations.arg(version.to_string());
    let mut each = Vec::new();
    for (qos, broker) in EVERY_QOS.iter().flat_map(|qos| brokers().map(move |broker| (qos, broker))) {
        conversations.args([&broker.address().port().to_string(), *qos]);
        each.push(broker);
    }
    let said = Program::start(conversations).finish();
    assert!(said.ends_with(ALL_SAID), "{said}");
    assert!(each.into_iter().all(|broker| broker.stop().success()));
}

#[test]
fn hivemq_converses_and_comes_back_in_3_1_1() {
    hivemq_talks_in(Version::V3_1_1);
}

#[test]
fn hivemq_converses_and_comes_back_in_5_0() {
    hivemq_talks_in(Version::V5);
}

/// Passwords that never travel: SCRAM-SHA-512 with the hash of Mosquitto's password files, and SCRAM-SHA-256.
#[test]
fn hivemq_proves_its_password_by_scram_and_proves_it_again() {
    let directory = TempDir::new().expect("there is a place for temporary files");
    let users = directory.path().join("users");
    let add = |arguments: &[&str]| {
        let output =
            Command::new(pondhawk()).arg("passwd").args(arguments).output().expect("pondhawk can be run");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let file = users.to_str().expect("a text");
    // The client accepts no fewer rounds than RFC 7677 asks for.
    add(&["-c", "-b", "-H", "sha512-pbkdf2", "-I", "4096", file, "frog", "croak"]);
    add(&["-b", "-H", "scram-sha-256", "-I", "4096", file, "toad", "hop"]);
    let broker = Broker::start(&Options {
        settings: format!("[auth]\npassword_file = {users:?}\n"),
        ..Options::default()
    });
    let mut client = hivemq("Scram");
    client.arg(broker.address().port().to_string());
    client.args(["SCRAM-SHA-512", "frog", "croak", "admitted"]);
    client.args(["SCRAM-SHA-256", "toad", "hop", "admitted"]);
    client.args(["SCRAM-SHA-512", "frog", "hop", "refused"]);
    // The hash of this user serves the other mechanism, and there is no such user.
    client.args(["SCRAM-SHA-512", "toad", "hop", "refused"]);
    client.args(["SCRAM-SHA-256", "newt", "hop", "refused"]);
    let said = Program::start(client).finish();
    assert!(said.ends_with(ALL_SAID), "{said}");
    let plain = Connect::new(Version::V5, "plain").of("toad", "hop");
    drop(Client::connect(broker.address(), &plain));
    assert!(broker.stop().success());
}

#[test]
fn clients_of_all_kinds_and_versions_hear_each_other() {
    let kinds = ["mosquitto", "paho", "mqtt.js"];
    let names = kinds.map(|kind| VERSIONS.map(|version| format!("{kind} {version}")));
    for broker in brokers() {
        let meet = |(kind, names_of_kind): (&str, &[String; 2])| {
            [0, 1].map(|number| {
                let (version, name) = (VERSIONS[number], names_of_kind[number].as_str());
                let mut guest = match kind {
                    "mosquitto" => return mosquitto::guest(&broker, version, name, names.len() * 2),
                    "paho" => script(python(), "python/meet.py", &broker, version),
                    _ => script(node(), "javascript/meet.js", &broker, version),
                };
                guest.arg(name).args(names.as_flattened());
                let guest = Program::start(guest);
                guest.wait_for("ready");
                guest
            })
        };
        let guests: Vec<Program> = kinds.into_iter().zip(&names).flat_map(meet).collect();
        broker.client(Version::V5, "host").publish("meeting/open", b"");
        for (name, version) in names[0].iter().zip(VERSIONS) {
            mosquitto::publish(&broker, version, &["-t", &format!("meeting/names/{name}"), "-m", name]);
        }
        for guest in guests {
            guest.finish();
        }
        assert!(broker.stop().success());
    }
}
