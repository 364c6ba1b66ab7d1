//! The place of a test: a server, a version and a QoS.

use std::fmt;
use std::net::SocketAddr;

use client::{Client, Message, Messages, Options, Outgoing, Qos, TopicName, Version, topic};
use pondhawk_tests::{Broker, DEADLINE, Mosquitto};
use tokio::time::timeout;

pub(crate) const EVERY_QOS: [Qos; 3] = [Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce];

/// At which messages are kept for who is away.
pub(crate) const KEPT: [Qos; 2] = [Qos::AtLeastOnce, Qos::ExactlyOnce];

/// A server that others wrote, and ours.
#[derive(Debug)]
pub(crate) enum Server {
    Pondhawk(Broker),
    Mosquitto(Mosquitto),
}

impl Server {
    /// One of each, with nothing in it.
    pub(crate) fn each() -> [Self; 2] {
        let ours = pondhawk_tests::Options { shards: 2, ..pondhawk_tests::Options::default() };
        [Self::Pondhawk(Broker::start(&ours)), Self::mosquitto("")]
    }

    /// Mosquitto, with more lines of its configuration.
    pub(crate) fn mosquitto(settings: &str) -> Self {
        Self::Mosquitto(Mosquitto::start(settings))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Pondhawk(broker) => broker.address(),
            Self::Mosquitto(mosquitto) => mosquitto.address(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Pondhawk(_) => "Pondhawk",
            Self::Mosquitto(_) => "Mosquitto",
        }
    }
}

/// One combination for a test.
#[derive(Clone, Copy)]
pub(crate) struct Place<'s> {
    pub(crate) server: &'s Server,
    pub(crate) version: Version,
    pub(crate) qos: Qos,
}

/// Runs a test at each of the servers, in each of the versions, with each QoS.
pub(crate) async fn at_each(
    versions: &[Version],
    each_qos: &[Qos],
    test: impl AsyncFn(Place<'_>) + Send + Sync,
) {
    for server in &Server::each() {
        for (version, qos) in
            versions.iter().flat_map(|version| each_qos.iter().map(move |qos| (version, qos)))
        {
            let place = Place { server, version: *version, qos: *qos };
            timeout(DEADLINE, test(place)).await.unwrap_or_else(|_| panic!("it takes too long: {place:?}"));
        }
    }
}

impl Place<'_> {
    /// A client of this name that leaves nothing behind.
    pub(crate) fn options(&self, name: &str) -> Options {
        Options::new(self.version).client_id(name)
    }

    /// A client of this name whose session outlives its connections.
    pub(crate) fn lasting(&self, name: &str) -> Options {
        self.options(name).clean_start(false).session_expiry_secs(if self.version.is_5() { 3_600 } else { 0 })
    }

    pub(crate) async fn client(&self, name: &str) -> Client {
        self.connect(self.options(name)).await
    }

    pub(crate) async fn connect(&self, options: Options) -> Client {
        let client = Client::connect_tcp(self.server.address(), options).await;
        client.unwrap_or_else(|error| panic!("not accepted: {error} at {self:?}"))
    }

    /// A message at the QoS of this place.
    pub(crate) fn message<'m>(&self, topic: TopicName<'m>, payload: &'m [u8]) -> Outgoing<'m> {
        Outgoing::new(topic, payload).qos(self.qos)
    }

    /// Publishes a message, and waits until the server has it.
    pub(crate) async fn publish(&self, client: &Client, topic: TopicName<'_>, payload: &[u8]) {
        deliver(client, &self.message(topic, payload)).await;
    }

    /// The same with RETAIN.
    pub(crate) async fn retain(&self, client: &Client, topic: TopicName<'_>, payload: &[u8]) {
        deliver(client, &self.message(topic, payload).retain(true)).await;
        // At QoS 0 that only says that it is sent: what is acknowledged behind it says that it has come.
        deliver(client, &Outgoing::new(topic!("mark"), b"").qos(Qos::AtLeastOnce)).await;
    }
}

impl fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, {:?}", self.server.name(), self.version, self.qos)
    }
}

/// Publishes a message, and waits until the server has it.
pub(crate) async fn deliver(client: &Client, message: &Outgoing<'_>) {
    let acknowledgement = client.publish(message).await.expect("it is queued");
    acknowledgement.await.expect("it is taken");
}

/// The next message, of which there is one.
pub(crate) async fn hear(messages: &mut Messages) -> Message {
    messages.next().await.expect("a message")
}

/// The next message is this one.
pub(crate) async fn expect(messages: &mut Messages, topic: TopicName<'_>, payload: &[u8]) -> Message {
    let message = hear(messages).await;
    assert_eq!((message.topic(), text(message.payload())), (topic, text(payload)));
    message
}

/// For failures that are read by people.
pub(crate) fn text(payload: &[u8]) -> String {
    payload.escape_ascii().to_string()
}
