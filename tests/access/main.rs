//! Users, passwords and rules about topics: the real binary, its files, and clients that decide every byte.

mod certificates;
mod dynamic;
mod login;
mod mosquitto;
mod prefixes;
mod processes;
mod programs;
mod reload;
mod roles;
mod rules;
mod scram;
mod services;
mod sessions;
mod tokens;

use std::fs;
use std::path::PathBuf;

use auth::{PasswordFile, PasswordHash, Scheme};
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Client, Options, Version, until};
use tempfile::TempDir;

/// Files with users and rules, and a broker that reads them.
struct Place {
    directory: TempDir,
}

/// The users in every password file of these tests, each with the name as the password.
const USERS: [&str; 3] = ["ann", "bob", "cat"];

impl Place {
    /// A directory with a password file of all [`USERS`], and these rules.
    fn new(rules: &str) -> Self {
        let place = Self { directory: TempDir::new().expect("there is a place for temporary files") };
        place.write("users", &users(&USERS));
        place.write("rules", rules);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Replaces a file at once, as editors do.
    fn write(&self, name: &str, text: &str) {
        let new = self.path("new");
        fs::write(&new, text).expect("a temporary file can be written");
        fs::rename(new, self.path(name)).expect("it can be renamed");
    }

    /// The keys of a configuration that name the files.
    fn keys(&self) -> String {
        format!("[auth]\npassword_file = {:?}\nacl_file = {:?}\n", self.path("users"), self.path("rules"))
    }

    /// A broker with the files, and with these keys behind them.
    fn broker(&self, keys: &str) -> Broker {
        self.broker_with(keys, None)
    }

    fn broker_with(&self, keys: &str, data_dir: Option<PathBuf>) -> Broker {
        let settings = format!("{}[sys]\ninterval = \"1s\"\n{keys}", self.keys());
        Broker::start(&Options { shards: 2, settings, data_dir, ..Options::default() })
    }

    /// Makes the broker read its files again, and waits until the log says so.
    fn reload(&self, broker: &Broker, said: &str) {
        let before = broker.log_lines(said).len();
        broker.hang_up();
        until(said, || (broker.log_lines(said).len() > before).then_some(()));
    }
}

/// The log says this when other users and rules are in use.
const IN_USE: &str = "new users and rules are in use";

/// A password file of these users, each with the name as the password, and a cheap hash.
fn users(names: &[&str]) -> String {
    let mut file = PasswordFile::default();
    for name in names {
        let hash = PasswordHash::new(Scheme::MOSQUITTO, name.as_bytes(), b"twelve bytes").expect("a salt");
        file.set(name, &hash).expect("a name");
    }
    file.to_string()
}

/// A user's connection, whose client identifier is the user name.
fn connect(broker: &Broker, version: Version, user: &str) -> Client {
    broker.client_with(&Connect::new(version, user).of(user, user))
}

/// Sends a PUBLISH of QoS 1, and returns the reason code of PUBACK; 0 before MQTT 5, which has none.
fn publish(client: &mut Client, topic: &str, payload: &[u8]) -> u8 {
    let version = client.version();
    let properties: &[u8] = if version.is_5() { &[0] } else { &[] };
    client.send(&packet::packet(0x32, &[&packet::string(topic), &[0, 9][..], properties, payload].concat()));
    let answer = client.read_packet();
    assert_eq!(answer[0], 0x40, "{answer:02x?}");
    answer.get(4).copied().unwrap_or(0)
}

/// Reads and acknowledges a message of QoS 1. Returns its topic.
fn take(client: &mut Client) -> String {
    let packet = client.read_packet();
    assert_eq!(packet[0] & 0xF6, 0x32, "{packet:02x?}");
    let end = 4 + usize::from(packet[3]);
    client.send(&packet::packet(0x40, &packet[end..end + 2]));
    String::from_utf8(packet[4..end].to_vec()).expect("a topic")
}

/// A message of a topic that everybody may use comes next: nothing came before it.
fn expect_nothing_before(client: &mut Client, publisher: &mut Client) {
    assert!(matches!(publish(publisher, "open/mark", b"mark"), 0 | 0x10));
    client.expect_message("open/mark", b"mark");
}
