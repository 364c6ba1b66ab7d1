//! The recipes of `pondhawk shootout`: brokers that are quick to install start with their command, and pass messages on.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use pondhawk_tests::{DEADLINE, Program, free_port, peers};
use rumqttc::{Event, MqttOptions, Packet, QoS};
use tempfile::TempDir;
use toml::{Table, Value};

/// The file with the recipes of all brokers.
const RECIPES: &str = include_str!("../../crates/bench/src/shootout/peers.toml");

/// Keys of every recipe.
const REQUIRED: [&str; 9] =
    ["name", "language", "program", "version", "command", "qos_max", "versions", "fairness", "notes"];

/// Keys of some recipes.
const OPTIONAL: [&str; 7] = ["files", "start_secs", "tried", "durable", "layers", "proxied", "unsuited"];

/// Keys of each table in `layers`.
const LAYERED: [&str; 4] = ["command", "files", "fairness", "notes"];

/// Keys of the table `durable`.
const DURABLE: [&str; 5] = ["command", "files", "claim", "fairness", "notes"];

#[test]
fn mosquitto_passes_messages_on() {
    try_broker("mosquitto");
}

#[test]
fn mochi_passes_messages_on() {
    try_broker("mochi");
}

#[test]
fn nats_passes_messages_on() {
    try_broker("nats");
}

#[test]
fn aedes_passes_messages_on() {
    try_broker("aedes");
}

#[test]
fn recipes_have_all_keys_and_no_other() {
    let recipes = recipes();
    let names: BTreeSet<&str> = recipes.iter().map(|recipe| text(recipe, "name")).collect();
    assert_eq!(names.len(), recipes.len(), "a name stands twice");
    for recipe in &recipes {
        let name = text(recipe, "name");
        for key in REQUIRED {
            assert!(recipe.contains_key(key), "{name} has no {key}");
        }
        let unknown = recipe.keys().find(|key| ![&REQUIRED[..], &OPTIONAL].concat().contains(&key.as_str()));
        assert_eq!(unknown, None, "{name}");
        assert!(serves_the_port(recipe), "{name} nowhere says its port");
        for (over, layered) in recipe.get("layers").and_then(Value::as_table).into_iter().flatten() {
            let layered = layered.as_table().expect("layers are tables");
            assert_eq!(layered.keys().find(|key| !LAYERED.contains(&key.as_str())), None, "{name}, {over}");
            let texts = texts(layered);
            let has = |word: &str| texts.iter().any(|text| text.contains(word));
            assert_eq!([has("{cert}"), has("{key}")], [over != "ws"; 2], "{name}, {over}");
            assert!(has("{port}") || texts.is_empty(), "{name}, {over}, nowhere says its port");
            // A shell replaces itself by the first program of a command.
            assert!(!has_several_commands(layered), "{name}, {over}, has several commands");
        }
        assert!(!has_several_commands(recipe), "{name} has several commands");
        if let Some(proxied) = recipe.get("proxied") {
            let proxied = proxied.as_table().expect("proxied is a table");
            assert!(serves_the_port(proxied), "{name}, proxied, nowhere says its port");
        }
        let Some(durable) = recipe.get("durable") else { continue };
        let durable = durable.as_table().expect("durable is a table");
        assert_eq!(durable.keys().find(|key| !DURABLE.contains(&key.as_str())), None, "{name}, durable");
        assert!(serves_the_port(durable), "{name}, durable, nowhere says its port");
        assert!(!text(durable, "claim").is_empty(), "{name}");
    }
}

/// Whether a shell would run more than one program.
fn has_several_commands(recipe: &Table) -> bool {
    recipe.get("command").and_then(Value::as_str).is_some_and(|command| command.contains(['&', ';']))
}

/// Whether the command, or a file that the command uses, contains the port.
fn serves_the_port(recipe: &Table) -> bool {
    texts(recipe).into_iter().any(|text| text.contains("{port}"))
}

/// The content of the files, and the command, if there is one.
fn texts(recipe: &Table) -> Vec<&str> {
    let command = recipe.get("command").map(|_| text(recipe, "command"));
    files(recipe).into_iter().map(|(_, content)| content).chain(command).collect()
}

/// Starts a broker without and, if it has a recipe for that, with durable storage. Sends messages through each.
fn try_broker(name: &str) {
    let recipes = recipes();
    let recipe = recipes.iter().find(|recipe| text(recipe, "name") == name).expect("there is a recipe");
    let version = filled(text(recipe, "version"), 0, Path::new(""));
    let version = version_of(Command::new("sh").arg("-c").arg(version));
    assert!(version.contains(|letter: char| letter.is_ascii_digit()), "{name} has the version {version:?}");
    let durable = recipe.get("durable").and_then(Value::as_table);
    for recipe in [Some(recipe), durable].into_iter().flatten() {
        let broker = Running::start(recipe);
        for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
            pass_a_message_on(broker.port, qos);
        }
    }
}

/// The first line of the output, whatever the exit code is.
fn version_of(command: &mut Command) -> String {
    let output = command.output().expect("a shell runs").stdout;
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned()
}

/// A broker that ends with this value.
struct Running {
    port: u16,
    /// Before the folder, which is removed after the process has ended.
    _program: Program,
    _folder: TempDir,
}

impl Running {
    /// Starts the broker of a recipe, and waits until it accepts connections.
    fn start(recipe: &Table) -> Self {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        let port = free_port();
        for (name, content) in files(recipe) {
            let content = filled(content, port, folder.path());
            fs::write(folder.path().join(name), content).expect("there is room for a file");
        }
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("exec {}", filled(text(recipe, "command"), port, folder.path())));
        let program = Program::start(command);
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(began.elapsed() < DEADLINE, "the broker does not start");
            thread::yield_now();
        }
        Self { port, _program: program, _folder: folder }
    }
}

/// Subscribes, publishes and receives at this QoS.
fn pass_a_message_on(port: u16, qos: QoS) {
    let options = MqttOptions::new("frog", "127.0.0.1", port);
    let (client, mut connection) = rumqttc::Client::new(options, 10);
    client.subscribe("pond/+", qos).expect("the queue has room");
    let mut is_acknowledged = qos == QoS::AtMostOnce;
    let mut received = None;
    while received.is_none() || !is_acknowledged {
        let event = connection.recv_timeout(DEADLINE).expect("the broker answers in time");
        match event.expect("the connection lasts") {
            Event::Incoming(Packet::SubAck(_)) => {
                client.publish("pond/depth", qos, false, "two metres").expect("the queue has room");
            }
            Event::Incoming(Packet::PubAck(_)) => is_acknowledged = true,
            Event::Incoming(Packet::Publish(message)) => received = Some(message),
            _ => {}
        }
    }
    let message = received.expect("the loop ends with a message");
    assert_eq!((&*message.topic, &*message.payload, message.qos), ("pond/depth", &b"two metres"[..], qos));
}

fn recipes() -> Vec<Table> {
    let all: Table = RECIPES.parse().expect("the recipes are TOML");
    let servers = all["server"].as_array().expect("recipes are tables");
    servers.iter().map(|server| server.as_table().expect("a recipe is a table").clone()).collect()
}

fn text<'a>(recipe: &'a Table, key: &str) -> &'a str {
    recipe.get(key).and_then(Value::as_str).unwrap_or_else(|| panic!("{key} is not a text in {recipe:?}"))
}

/// The files of a recipe, with their content.
fn files(recipe: &Table) -> Vec<(&str, &str)> {
    let files = recipe.get("files").and_then(Value::as_table).into_iter().flatten();
    files.map(|(name, content)| (&**name, content.as_str().expect("a file is a text"))).collect()
}

/// A text with the values of its placeholders.
fn filled(text: &str, port: u16, folder: &Path) -> String {
    let text = text.replace("{port}", &port.to_string()).replace("{peers}", &peers().to_string_lossy());
    text.replace("{dir}", &folder.to_string_lossy())
}
