//! Definitions of the steps in the features.
#![expect(clippy::needless_pass_by_value, reason = "cucumber hands over what it has made of a step's words")]

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use client::{Endpoint, TlsOptions};
use cucumber::gherkin::Step;
use cucumber::{World, given, then, when};
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Options, RawClient, Relay, Version};
use tempfile::TempDir;

use crate::bytes::Pattern;

/// With how many shards brokers are started now.
pub(crate) static SHARDS: AtomicU16 = AtomicU16::new(1);

/// Whether the clients speak QUIC now, and TCP otherwise.
pub(crate) static USES_QUIC: AtomicBool = AtomicBool::new(false);

/// One scenario: a broker of its own, and clients by name.
#[derive(World)]
#[world(init = Self::new)]
pub(crate) struct Pond {
    broker: Broker,
    relay: Option<Relay>,
    _certificate: Option<TempDir>,
    connections: BTreeMap<String, RawClient>,
}

impl Pond {
    fn new() -> Self {
        let shards = SHARDS.load(Ordering::Relaxed);
        if USES_QUIC.load(Ordering::Relaxed) {
            return Self::with_quic(shards);
        }
        let broker = Broker::start(&Options { shards, ..Options::default() });
        Self { broker, relay: None, _certificate: None, connections: BTreeMap::new() }
    }

    /// All clients connect over QUIC.
    fn with_quic(shards: u16) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let file = |name: &str| directory.path().join(name);
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        fs::write(file("server.pem"), made.cert.pem()).expect("a temporary file");
        fs::write(file("server.key"), made.signing_key.serialize_pem()).expect("a temporary file");
        let settings = format!(
            "[[listener]]\naddress = \"quic://127.0.0.1:0\"\ntls_certificate = {:?}\ntls_key = {:?}\n",
            file("server.pem"),
            file("server.key")
        );
        let broker = Broker::start(&Options { shards, settings, ..Options::default() });
        let tls = TlsOptions::new().root_file(file("server.pem")).server_name("localhost").build();
        let endpoint = Endpoint::tcp("127.0.0.1", broker.address().port()).quic(tls.expect("all is there"));
        let relay = Some(Relay::start(endpoint));
        Self { broker, relay, _certificate: Some(directory), connections: BTreeMap::new() }
    }

    fn open(&self) -> RawClient {
        RawClient::connect(self.relay.as_ref().map_or(self.broker.address(), Relay::address))
    }

    fn connection(&mut self, name: &str) -> &mut RawClient {
        self.connections.get_mut(name).unwrap_or_else(|| panic!("{name} has no connection"))
    }
}

/// Shown beside a step that failed.
impl fmt::Debug for Pond {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log of the broker:\n{}", self.broker.log())
    }
}

/// The first column of a step's table.
fn pattern(step: &Step) -> Pattern {
    let table = step.table.as_ref().expect("the step has a table of bytes");
    Pattern::parse(table.rows.iter().map(|row| row[0].as_str()))
}

#[given(expr = "{word} is connected with MQTT {word}")]
fn connected(pond: &mut Pond, name: String, version: String) {
    let version = Version::ALL.into_iter().find(|known| known.to_string() == version);
    let mut connection = pond.open();
    connection.send(&Connect::new(version.expect("a version of MQTT"), &name).bytes());
    let answer = connection.read_packet();
    assert!(packet::is_accepted(&answer), "refused: {answer:02x?}");
    pond.connections.insert(name, connection);
}

#[given(expr = "{word} has opened a connection")]
#[when(expr = "{word} opens a connection")]
fn opens(pond: &mut Pond, name: String) {
    let connection = pond.open();
    pond.connections.insert(name, connection);
}

#[given(expr = "{word} has sent")]
#[when(expr = "{word} sends")]
fn sends(pond: &mut Pond, step: &Step, name: String) {
    pond.connection(&name).send(&pattern(step).bytes());
}

#[when(expr = "{word} sends one byte after the other")]
fn sends_bytewise(pond: &mut Pond, step: &Step, name: String) {
    pond.connection(&name).send_bytewise(&pattern(step).bytes());
}

#[given(expr = "{word} has received")]
#[then(expr = "{word} receives")]
fn receives(pond: &mut Pond, step: &Step, name: String) {
    let expected = pattern(step);
    let packet = pond.connection(&name).read_packet();
    assert!(expected.matches(&packet), "{name} received {packet:02X?}");
}

/// Packets that were sent before would arrive before the answer to a PINGREQ.
#[then(expr = "{word} receives nothing")]
fn receives_nothing(pond: &mut Pond, name: String) {
    pond.connection(&name).expect_only_pong();
}

#[then(expr = "the connection of {word} is closed")]
fn is_closed(pond: &mut Pond, name: String) {
    pond.connection(&name).expect_closed();
}

#[when(expr = "{word} closes the connection")]
fn closes(pond: &mut Pond, name: String) {
    pond.connection(&name).finish();
}

#[when(expr = "the connection of {word} breaks")]
fn breaks(pond: &mut Pond, name: String) {
    let connection = pond.connections.remove(&name);
    connection.unwrap_or_else(|| panic!("{name} has no connection")).reset();
}
