//! A client that has been let in.

use std::ops::{Deref, DerefMut};

use crate::conversation::{Conversation, PUBACK, PUBCOMP, PUBREC, PUBREL};
use crate::{Broker, RawClient, Version, packet};

/// A connection whose CONNECT was accepted. It can still send anything: see [`RawClient`].
#[derive(Debug)]
pub struct Client {
    raw: RawClient,
    version: Version,
}

impl Client {
    pub(crate) fn new(raw: RawClient, version: Version) -> Self {
        Self { raw, version }
    }

    /// What its CONNECT asked for.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The connection alone.
    pub fn into_raw(self) -> RawClient {
        self.raw
    }

    /// Subscribes at QoS 0. Retained messages have not been read yet.
    ///
    /// # Panics
    /// When anything but the SUBACK that grants it arrives.
    pub fn subscribe(&mut self, filter: &str) {
        self.raw.send(&packet::subscribe(self.version, 1, filter));
        self.raw.expect(&packet::suback(self.version, 1, 0));
    }

    /// Ends a subscription that there is.
    ///
    /// # Panics
    /// When anything but the UNSUBACK that says so arrives.
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

    /// Reads this message, published now.
    ///
    /// # Panics
    /// When anything else arrives, or nothing before the deadline.
    pub fn expect_message(&mut self, topic: &str, payload: &[u8]) {
        self.raw.expect(&packet::publish(self.version, topic, payload));
    }

    /// Reads this message, which was retained.
    ///
    /// # Panics
    /// When anything else arrives, or nothing before the deadline.
    pub fn expect_retained(&mut self, topic: &str, payload: &[u8]) {
        self.raw.expect(&packet::retained(self.version, topic, payload));
    }

    /// Waits until the broker ends the connection, with a DISCONNECT of this reason where the version has one.
    ///
    /// # Panics
    /// When anything else arrives, or it has not ended before the deadline.
    pub fn expect_disconnect(&mut self, reason: u8) {
        if self.version.is_5() {
            self.raw.expect(&packet::disconnect(self.version, reason));
        }
        self.raw.expect_closed();
    }

    /// Leaves with DISCONNECT 0x00, and waits until the broker has closed the connection.
    ///
    /// # Panics
    /// When anything arrives, or it has not been closed before the deadline.
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

/// Two clients that talk to each other while something else goes on, and notice nothing of it.
#[derive(Debug)]
pub struct Innocents {
    publisher: Client,
    subscriber: Client,
    topic: String,
    count: u64,
}

impl Innocents {
    /// Connects them, one with MQTT 5.0 and one with 3.1.1. The name tells them from others.
    ///
    /// # Panics
    /// When they are not let in before the deadline.
    pub fn connect(broker: &Broker, name: &str) -> Self {
        let topic = format!("innocent/{name}");
        let mut subscriber = broker.client(Version::V3_1_1, &format!("{name} hears"));
        subscriber.subscribe_with(&topic, 2);
        let publisher = broker.client(Version::V5, &format!("{name} speaks"));
        Self { publisher, subscriber, topic, count: 0 }
    }

    /// One says something at every QoS, which is on its way until [`hear`](Self::hear).
    pub fn speak(&mut self) {
        self.count += 1;
        for qos in 0..=2 {
            self.publisher.publish_at(qos, u16::from(qos), &self.topic, &said(self.count, qos));
        }
    }

    /// The other hears it, once and in order, and nothing else has been sent to either.
    ///
    /// # Panics
    /// When anything but those messages and their acknowledgements arrives, or one does not before the deadline.
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

    /// Does something while messages are on their way.
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
