//! Definitions of the steps in the features.

use std::collections::BTreeMap;
use std::fs;

use client::{Endpoint, TlsOptions};
use pondhawk_tests::gherkin::{Keyword, Step};
use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, Options, RawClient, Relay, Version};
use tempfile::TempDir;

use crate::bytes::Pattern;

use Act::{Bytes, Plain};
use Keyword::{Given, Then, When};

/// The broker and the transport of a scenario.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Way {
    /// With how many shards the broker is started.
    pub(crate) shards: u16,
    /// Whether the clients speak QUIC, and TCP otherwise.
    pub(crate) uses_quic: bool,
}

/// One scenario: a broker of its own, and clients by name.
pub(crate) struct Pond {
    broker: Broker,
    relay: Option<Relay>,
    _certificate: Option<TempDir>,
    connections: BTreeMap<String, RawClient>,
}

impl Pond {
    pub(crate) fn new(Way { shards, uses_quic }: Way) -> Self {
        if uses_quic {
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

    /// The log of its broker so far.
    pub(crate) fn log(&self) -> String {
        self.broker.log()
    }

    fn open(&self) -> RawClient {
        RawClient::connect(self.relay.as_ref().map_or(self.broker.address(), Relay::address))
    }

    fn connection(&mut self, name: &str) -> &mut RawClient {
        self.connections.get_mut(name).unwrap_or_else(|| panic!("{name} has no connection"))
    }
}

/// Makes a step of its words: those that stand for `{word}` in its definition, in order.
#[derive(Clone, Copy)]
enum Act {
    Plain(fn(&mut Pond, &[&str])),
    /// With the bytes in the first column of its table.
    Bytes(fn(&mut Pond, &[&str], &Pattern)),
}

/// The definitions: the keyword before a step, its words, and what it does.
const DEFINITIONS: &[(Keyword, &str, Act)] = &[
    (Given, "{word} is connected with MQTT {word}", Plain(connect)),
    (Given, "{word} has opened a connection", Plain(open)),
    (When, "{word} opens a connection", Plain(open)),
    (Given, "{word} has sent", Bytes(send)),
    (When, "{word} sends", Bytes(send)),
    (When, "{word} sends one byte after the other", Bytes(send_bytewise)),
    (Given, "{word} has received", Bytes(receive)),
    (Then, "{word} receives", Bytes(receive)),
    // Packets that were sent before would arrive before the answer to a PINGREQ.
    (Then, "{word} receives nothing", Plain(|pond, words| pond.connection(words[0]).expect_only_pong())),
    (
        Then,
        "the connection of {word} is closed",
        Plain(|pond, words| pond.connection(words[0]).expect_closed()),
    ),
    (When, "{word} closes the connection", Plain(|pond, words| pond.connection(words[0]).finish())),
    (When, "the connection of {word} breaks", Plain(reset)),
];

/// Does a step.
///
/// # Panics
/// If the step has no definition, or one that asks for a table where it has none, or if its result is not the expected one.
pub(crate) fn act(pond: &mut Pond, step: &Step) {
    let mut matches = DEFINITIONS.iter().filter(|(keyword, ..)| *keyword == step.keyword);
    let found = matches.find_map(|(_, definition, act)| Some((words(definition, &step.text)?, act)));
    let Some((words, act)) = found else { panic!("no definition of a step has these words") };
    match (act, step.table.is_empty()) {
        (Plain(act), true) => act(pond, &words),
        (Bytes(act), false) => {
            act(pond, &words, &Pattern::parse(step.table.iter().map(|row| row[0].as_str())));
        }
        (Plain(_), false) => panic!("the step takes no table"),
        (Bytes(_), true) => panic!("the step needs a table of bytes"),
    }
}

/// The words of a text that stand for `{word}` in a definition, or nothing if the text has other words.
fn words<'a>(definition: &str, text: &'a str) -> Option<Vec<&'a str>> {
    let (defined, given): (Vec<&str>, Vec<&str>) =
        (definition.split(' ').collect(), text.split(' ').collect());
    let pairs = || defined.iter().zip(&given);
    let is_meant =
        defined.len() == given.len() && pairs().all(|(word, other)| ["{word}", other].contains(word));
    is_meant.then(|| pairs().filter(|(word, _)| **word == "{word}").map(|(_, given)| *given).collect())
}

fn connect(pond: &mut Pond, words: &[&str]) {
    let version = Version::ALL.into_iter().find(|known| known.to_string() == words[1]);
    let mut connection = pond.open();
    connection.send(&Connect::new(version.expect("a version of MQTT"), words[0]).bytes());
    let answer = connection.read_packet();
    assert!(packet::is_accepted(&answer), "refused: {answer:02x?}");
    pond.connections.insert(words[0].to_owned(), connection);
}

fn open(pond: &mut Pond, words: &[&str]) {
    let connection = pond.open();
    pond.connections.insert(words[0].to_owned(), connection);
}

fn send(pond: &mut Pond, words: &[&str], packet: &Pattern) {
    pond.connection(words[0]).send(&packet.bytes());
}

fn send_bytewise(pond: &mut Pond, words: &[&str], packet: &Pattern) {
    pond.connection(words[0]).send_bytewise(&packet.bytes());
}

fn receive(pond: &mut Pond, words: &[&str], expected: &Pattern) {
    let packet = pond.connection(words[0]).read_packet();
    assert!(expected.matches(&packet), "{} received {packet:02X?}", words[0]);
}

fn reset(pond: &mut Pond, words: &[&str]) {
    let connection = pond.connections.remove(words[0]);
    connection.unwrap_or_else(|| panic!("{} has no connection", words[0])).reset();
}
