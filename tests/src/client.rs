//! A client that the broker has accepted.

use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};

use crate::conversation::{Conversation, PUBACK, PUBCOMP, PUBREC, PUBREL};
use crate::packet::{self, Connect};
use crate::{Broker, RawClient, Version};

/// A connection with an accepted CONNECT. Through [`RawClient`] the client can still send any bytes.
#[derive(Debug)]
pub struct Client {
    raw: RawClient,
    version: Version,
}

impl Client {
    pub(crate) fn new(raw: RawClient, version: Version) -> Self {
        Self { raw, version }
    }

    /// Connects to any listener with this CONNECT.
    ///
    /// # Panics
    /// If the broker refuses.
    pub fn connect(address: SocketAddr, connect: &Connect<'_>) -> Self {
        let mut raw = RawClient::connect(address);
        raw.send(&connect.bytes());
        let answer = raw.read_packet();
        assert!(packet::is_accepted(&answer), "refused: {answer:02x?}");
        Self::new(raw, connect.version)
    }

    /// The version of MQTT in the client's CONNECT.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the connection without the client.
    pub fn into_raw(self) -> RawClient {
        self.raw
    }

    /// Subscribes at QoS 0, and reads the SUBACK. Retained messages remain unread.
    ///
    /// # Panics
    /// If a packet other than the SUBACK that grants QoS 0 arrives.
    pub fn subscribe(&mut self, filter: &str) {
        self.raw.send(&packet::subscribe(self.version, 1, filter));
        self.raw.expect(&packet::suback(self.version, 1, 0));
    }

    /// Ends an existing subscription, and reads the UNSUBACK.
    ///
    /// # Panics
    /// If a packet other than the UNSUBACK of success arrives.
    pub fn unsubscribe(&mut self, filter: &str) {
        self.raw.send(&packet::unsubscribe(self.version, 2, filter));
        self.raw.expect(&packet::unsuback(self.version, 2, 0));
    }

    /// Publishes at QoS 0.
    pub fn publish(&mut self, topic: &str, payload: &[u8]) {
        self.raw.send(&packet::publish(self.version, topic, payload));
    }

    /// Publishes at QoS 0 with RETAIN 1.
    pub fn retain(&mut self, topic: &str, payload: &[u8]) {
        self.raw.send(&packet::retained(self.version, topic, payload));
    }

    /// Reads this message, with RETAIN 0.
    ///
    /// # Panics
    /// If another packet arrives, or none before the deadline.
    pub fn expect_message(&mut self, topic: &str, payload: &[u8]) {
        self.raw.expect(&packet::publish(self.version, topic, payload));
    }

    /// Reads this message, with RETAIN 1.
    ///
    /// # Panics
    /// If another packet arrives, or none before the deadline.
    pub fn expect_retained(&mut self, topic: &str, payload: &[u8]) {
        self.raw.expect(&packet::retained(self.version, topic, payload));
    }

    /// Waits until the broker closes the connection. In MQTT 5, a DISCONNECT with this reason must precede the end.
    ///
    /// # Panics
    /// If another packet arrives, or the connection is not closed before the deadline.
    pub fn expect_disconnect(&mut self, reason: u8) {
        if self.version.is_5() {
            self.raw.expect(&packet::disconnect(self.version, reason));
        }
        self.raw.expect_closed();
    }

    /// Sends DISCONNECT 0x00, and waits until the broker has closed the connection.
    ///
    /// # Panics
    /// If a packet arrives, or the connection is not closed before the deadline.
    pub fn leave(mut self) {
        self.raw.send(&packet::disconnect(self.version, 0));
        self.raw.expect_closed();
    }
}

impl Deref for Client {
    type Target = RawClient;

    fn deref(&self) -> &RawClient {
        &self.raw
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut RawClient {
        &mut self.raw
    }
}

/// Two clients that exchange messages during a test, and must not notice the test's other activity.
#[derive(Debug)]
pub struct Innocents {
    publisher: Client,
    subscriber: Client,
    topic: String,
    count: u64,
}

impl Innocents {
    /// Connects the clients, one with MQTT 5.0 and one with 3.1.1. `name` distinguishes them from other pairs.
    ///
    /// # Panics
    /// If the broker does not accept both before the deadline.
    pub fn connect(broker: &Broker, name: &str) -> Self {
        let topic = format!("innocent/{name}");
        let mut subscriber = broker.client(Version::V3_1_1, &format!("{name} hears"));
        subscriber.subscribe_with(&topic, 2);
        let publisher = broker.client(Version::V5, &format!("{name} speaks"));
        Self { publisher, subscriber, topic, count: 0 }
    }

    /// Publishes a message at every QoS. [`hear`](Self::hear) must follow.
    pub fn speak(&mut self) {
        self.count += 1;
        for qos in 0..=2 {
            self.publisher.publish_at(qos, u16::from(qos), &self.topic, &said(self.count, qos));
        }
    }

    /// Receives the published messages, once and in order. Checks that the broker has sent nothing else to either
    /// client.
    ///
    /// # Panics
    /// If packets other than these messages and their acknowledgements arrive, or one of them does not arrive
    /// before the deadline.
    pub fn hear(&mut self) {
        for qos in 0..=2 {
            let heard = self.subscriber.take_message(&said(self.count, qos));
            assert_eq!((heard.qos, heard.topic.as_str()), (qos, self.topic.as_str()));
        }
        self.subscriber.expect_only_pong();
        self.publisher.expect_ack(PUBACK, 1);
        self.publisher.expect_ack(PUBREC, 2);
        self.publisher.acknowledge(PUBREL, 2);
        self.publisher.expect_ack(PUBCOMP, 2);
        self.publisher.expect_only_pong();
    }

    /// Calls `act` while messages are on their way.
    ///
    /// # Panics
    /// As [`hear`](Self::hear).
    pub fn notice_nothing_of<T>(&mut self, act: impl FnOnce() -> T) -> T {
        self.speak();
        let outcome = act();
        self.hear();
        outcome
    }
}

fn said(count: u64, qos: u8) -> Vec<u8> {
    format!("{count} at QoS {qos}").into_bytes()
}
