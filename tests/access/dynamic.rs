//! Dynamic security: the file, the commands, and the rights of clients, compared with Mosquitto where it has them.

mod attack;
mod comparison;
mod generated;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Options, Version};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(super) const TOPIC: &str = "$CONTROL/dynamic-security/v1";
const RESPONSE: &str = "$CONTROL/dynamic-security/v1/response";

/// A directory with a new file of dynamic security, whose administrator is called `admin`.
pub(super) struct Secured {
    directory: TempDir,
}

impl Secured {
    pub(super) fn new() -> Self {
        let secured = Self { directory: TempDir::new().expect("there is a place for temporary files") };
        let mut init = Command::new("mosquitto_ctrl");
        init.args(["dynsec", "init"]).arg(secured.file()).args(["admin", "admin"]).stdout(Stdio::null());
        assert!(init.status().expect("mosquitto_ctrl can be run").success());
        secured
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("dynamic-security.json")
    }

    pub(super) fn keys(&self) -> String {
        format!("[auth]\ndynamic_security_file = {:?}\n", self.file())
    }

    fn broker(&self, keys: &str) -> Broker {
        self.broker_with(keys, None)
    }

    fn broker_with(&self, keys: &str, data_dir: Option<PathBuf>) -> Broker {
        let settings = format!("{}[sys]\ninterval = \"1s\"\n{keys}", self.keys());
        Broker::start(&Options { shards: 2, settings, data_dir, ..Options::default() })
    }
}

/// Connects as a user, whose password is the name.
pub(super) fn user(broker: &Broker, client_id: &str, name: &str) -> Client {
    broker.client_with(&Connect::new(Version::V5, client_id).of(name, name))
}

/// Connects as an administrator, who hears all answers.
pub(super) fn admin(broker: &Broker) -> Client {
    let mut admin = user(broker, "the-admin", "admin");
    admin.subscribe(RESPONSE);
    admin
}

/// The payload of a PUBLISH of QoS 0 without properties, if it has this topic.
fn payload<'a>(packet: &'a [u8], topic: &str) -> Option<&'a [u8]> {
    let length_bytes = packet[1..].iter().position(|byte| byte & 0x80 == 0)? + 1;
    let body = &packet[1 + length_bytes..];
    let rest = body.strip_prefix(&packet::string(topic)[..])?;
    (packet[0] & 0xF0 == 0x30).then(|| &rest[1..])
}

/// Sends bytes as commands. Returns the answers.
fn control_bytes(admin: &mut Client, commands: &[u8]) -> Value {
    let head = [&packet::string(TOPIC)[..], &[0, 1, 0]].concat();
    admin.send(&packet::packet(0x32, &[&head[..], commands].concat()));
    let (mut answer, mut is_acknowledged) = (None, false);
    while answer.is_none() || !is_acknowledged {
        let packet = admin.read_packet();
        match payload(&packet, RESPONSE) {
            Some(payload) => answer = Some(serde_json::from_slice(payload).expect("JSON")),
            None => {
                assert_eq!(packet[..4], [0x40, packet[1], 0, 1], "{packet:02x?}");
                assert!(matches!(packet.get(4), None | Some(0 | 0x10)), "{packet:02x?}");
                is_acknowledged = true;
            }
        }
    }
    answer.expect("it has come")
}

/// Sends commands, and returns the answer to each.
pub(super) fn control(admin: &mut Client, commands: &Value) -> Vec<Value> {
    let answer = control_bytes(admin, json!({ "commands": commands }).to_string().as_bytes());
    answer["responses"].as_array().expect("a list").clone()
}

/// Sends commands that are all carried out.
fn succeed(admin: &mut Client, commands: &Value) {
    let refused: Vec<Value> =
        control(admin, commands).into_iter().filter(|answer| answer["error"] != Value::Null).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// A user with a role that may do everything with these topics.
pub(super) fn create(admin: &mut Client, name: &str, filter: &str) {
    let acls: Vec<Value> =
        ["publishClientSend", "publishClientReceive", "subscribePattern", "unsubscribePattern"]
            .into_iter()
            .map(|kind| json!({ "acltype": kind, "topic": filter, "allow": true }))
            .collect();
    succeed(
        admin,
        &json!([
            { "command": "createRole", "rolename": name, "acls": acls },
            { "command": "createClient", "username": name, "password": name, "roles": [{ "rolename": name }] },
        ]),
    );
}

#[test]
fn a_reload_keeps_what_commands_have_changed_and_takes_no_other_file() {
    let (secured, other) = (Secured::new(), Secured::new());
    let file = secured.directory.path().join("pond.toml");
    let listener = |keys: &str| format!("[[listener]]\naddress = \"127.0.0.1:0\"\n{keys}");
    let write = |of: &Secured, listeners: &str| {
        fs::write(&file, listeners.to_owned() + &of.keys()).expect("a temporary file can be written");
    };
    write(&secured, &listener(""));
    let broker = Broker::start(&Options { file: Some(file.clone()), ..Options::default() });
    let mut admin = admin(&broker);
    create(&mut admin, "frog", "pond");
    let listeners = listener("max_qos = 1\n") + &listener("");
    write(&other, &listeners);
    broker.hang_up();
    let refusal = broker.wait_for_log("the configuration stays as it was");
    assert!(refusal.contains("another file than before needs a restart"), "{refusal}");
    write(&secured, &listeners);
    broker.hang_up();
    broker.wait_for_log("the configuration was read again");
    assert_eq!(subscribe(&mut user(&broker, "f", "frog"), "pond"), 0);
    // Commands go on to work, also for the new listener.
    create(&mut admin, "toad", "pond");
    let line = broker.log_lines("listening on ").pop().expect("there are two");
    let new = line.split_whitespace().find_map(|word| word.parse().ok()).expect("the line has an address");
    let connect = Connect::new(Version::V5, "t").of("toad", "toad");
    assert_eq!(subscribe(&mut Client::connect(new, &connect), "pond"), 0);
}

/// Asks for one subscription of QoS 0. Returns its code.
pub(super) fn subscribe(client: &mut Client, filter: &str) -> u8 {
    let version = client.version();
    client.send(&packet::subscribe_with(version, 7, filter, 0));
    let answer = client.read_packet();
    assert_eq!(answer[0], 0x90, "{answer:02x?}");
    answer[answer.len() - 1]
}

/// Runs `mosquitto_ctrl dynsec` as the administrator.
fn ctrl(port: u16, arguments: &[&str]) -> Output {
    let mut ctrl = Command::new("mosquitto_ctrl");
    ctrl.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-u", "admin", "-P", "admin", "dynsec"]);
    ctrl.args(arguments).output().expect("mosquitto_ctrl can be run")
}
