//! The broker's own figures, and the system's figures about its process.

use std::collections::BTreeMap;
use std::time::Duration;

use pondhawk_tests::conversation::Message;
use pondhawk_tests::packet;
use pondhawk_tests::promises::wait_for_any;
use pondhawk_tests::{Broker, RawClient, Version};

const PREFIX: &str = "$SYS/broker/";

/// A client that subscribes to `$SYS/#` and to nothing else.
pub(crate) struct Watcher {
    line: RawClient,
    told: BTreeMap<String, String>,
    /// Number of times that the broker has published all changed figures.
    pub(crate) rounds: u64,
}

impl Watcher {
    pub(crate) fn connect(broker: &Broker) -> Self {
        let mut line = broker.client(Version::V3_1_1, "watcher").into_raw();
        line.send(&packet::subscribe(Version::V3_1_1, 1, "$SYS/#"));
        Self { line, told: BTreeMap::new(), rounds: 0 }
    }

    /// Reads values that have arrived, and waits up to `patience` for the first one. Returns whether the connection
    /// is open.
    pub(crate) fn hear(&mut self, patience: Duration) -> bool {
        wait_for_any(&[&self.line], patience);
        let (packets, is_closed) = self.line.arrived();
        for packet in packets.iter().filter(|packet| packet[0] & 0xF0 == 0x30) {
            let message = Message::parse(Version::V3_1_1, packet);
            let value = String::from_utf8_lossy(&message.payload).into_owned();
            let topic = message.topic.strip_prefix(PREFIX).unwrap_or(&message.topic).to_owned();
            // Uptime changes with every round, and is among the first values.
            self.rounds += u64::from(topic == "uptime");
            self.told.insert(topic, value);
        }
        !is_closed
    }

    /// The last value of a numeric topic below `$SYS/broker/`.
    pub(crate) fn number(&self, topic: &str) -> Option<u64> {
        self.told.get(topic)?.parse().ok()
    }

    /// Number of topics that the broker has published.
    pub(crate) fn topics(&self) -> usize {
        self.told.len()
    }

    /// The topics that begin with `prefix`, with their values.
    pub(crate) fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, u64)> {
        self.told
            .iter()
            .filter_map(move |(topic, value)| Some((topic.strip_prefix(prefix)?, value.parse().ok()?)))
    }
}

/// Numbers of open descriptors of a process, by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptors {
    pub(crate) sockets: u64,
    /// Files that have a name, except the journal's files.
    pub(crate) others: u64,
    /// Files that were removed.
    pub(crate) deleted: u64,
}

impl Descriptors {
    /// Counts the descriptors of a running broker whose journal is in this directory.
    ///
    /// # Panics
    /// If the system does not have `/proc`.
    pub(crate) fn of(broker: &Broker, data_dir: &str) -> Self {
        let names = broker.open_files().expect("a soak needs /proc");
        let count = |is_so: &dyn Fn(&str) -> bool| names.iter().filter(|name| is_so(name)).count() as u64;
        let is_socket = |name: &str| name.starts_with("socket:");
        let is_deleted = |name: &str| name.ends_with(" (deleted)");
        Self {
            sockets: count(&is_socket),
            others: count(&|name| !is_socket(name) && !is_deleted(name) && !name.starts_with(data_dir)),
            deleted: count(&is_deleted),
        }
    }
}
