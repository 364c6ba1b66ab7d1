//! Exchanges of packets between clients and broker in tests.

use crate::packet::{self, Connect, Will, string};
use crate::{Broker, Client, Version};

/// The first byte of PUBACK.
pub const PUBACK: u8 = 0x40;
/// The first byte of PUBREC.
pub const PUBREC: u8 = 0x50;
/// The first byte of PUBREL.
pub const PUBREL: u8 = 0x62;
/// The first byte of PUBCOMP.
pub const PUBCOMP: u8 = 0x70;

/// A Session Expiry Interval of an hour, as an encoded property.
pub const AN_HOUR: &[u8] = b"\x11\x00\x00\x0E\x10";

/// Makes a CONNECT that continues a session, which the broker keeps after the connection.
pub fn lasting(version: Version, client_id: &str) -> Connect<'_> {
    let properties = if version.is_5() { AN_HOUR } else { &[] };
    Connect { clean_start: false, properties, ..Connect::new(version, client_id) }
}

/// Whether a CONNACK has the flag Session Present.
pub fn session_present(connack: &[u8]) -> bool {
    connack[2] == 0x01
}

/// Connects a client whose session the broker keeps. Also returns whether the session existed before.
///
/// # Panics
/// If the broker does not accept the client before the deadline.
pub fn resume(broker: &Broker, version: Version, client_id: &str) -> (Client, bool) {
    let (client, connack) = broker.greet(&lasting(version, client_id));
    (client, session_present(&connack))
}

/// Connects a client that continues its session, and checks Session Present if the version has it.
///
/// # Panics
/// If the session does not exist, or the broker does not accept the client before the deadline.
pub fn go_on(broker: &Broker, version: Version, client_id: &str) -> Client {
    let (client, was_there) = resume(broker, version, client_id);
    assert!(was_there || version == Version::V3_1, "the session of {client_id} is gone");
    client
}

/// Waits until `seconds` have passed on the broker's clock. The delay of a will shows the time.
///
/// # Panics
/// If the will does not arrive before the deadline.
pub fn pass_seconds(broker: &Broker, seconds: u8) {
    let mut witness = broker.client(Version::V5, "who waits");
    witness.subscribe("the time");
    let delay = [0x18, 0x00, 0x00, 0x00, seconds];
    let will = Some(Will { properties: &delay, ..Will::new("the time", b"") });
    let connect = Connect { will, properties: AN_HOUR, ..Connect::new(Version::V5, "who is waited for") };
    broker.client_with(&connect).into_raw().reset();
    witness.expect_message("the time", b"");
    witness.leave();
}

/// A PUBLISH that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The DUP flag: the packet may have been sent before.
    pub dup: bool,
    /// The QoS of the packet, from 0 to 2.
    pub qos: u8,
    /// The RETAIN flag of the packet.
    pub retain: bool,
    /// The topic name of the message.
    pub topic: String,
    /// The packet identifier; 0 at QoS 0.
    pub packet_id: u16,
    /// The encoded properties, without their length; empty before MQTT 5.
    pub properties: Vec<u8>,
    /// The payload of the message.
    pub payload: Vec<u8>,
}

impl Message {
    /// Parses a PUBLISH of this version.
    ///
    /// # Panics
    /// If the packet is not a PUBLISH, or has 128 bytes of properties or more.
    pub fn parse(version: Version, packet: &[u8]) -> Self {
        let first = packet[0];
        assert_eq!(first & 0xF0, 0x30, "no PUBLISH: {packet:02x?}");
        let header = 1 + packet[1..].iter().take_while(|byte| **byte >= 0x80).count() + 1;
        let mut rest = &packet[header..];
        let mut take = |length: usize| {
            let (taken, left) = rest.split_at(length);
            rest = left;
            taken.to_vec()
        };
        let mut number = || u16::from_be_bytes(take(2).try_into().expect("two bytes"));
        let topic_length = usize::from(number());
        let topic = String::from_utf8(take(topic_length)).expect("a topic is UTF-8");
        let qos = first >> 1 & 0x03;
        let packet_id = if qos > 0 { u16::from_be_bytes(take(2).try_into().expect("two bytes")) } else { 0 };
        let properties = if version.is_5() {
            let length = take(1)[0];
            assert!(length < 0x80, "few properties");
            take(usize::from(length))
        } else {
            Vec::new()
        };
        let (dup, retain) = (first & 0x08 != 0, first & 0x01 != 0);
        Self { dup, qos, retain, topic, packet_id, properties, payload: rest.to_vec() }
    }
}

/// Encodes a PUBLISH with any first byte. The packet identifier is used if the QoS has one. `properties` are
/// encoded, without their length.
pub fn publish(
    version: Version,
    first: u8,
    packet_id: u16,
    topic: &str,
    properties: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let mut body = string(topic);
    if first & 0x06 != 0 {
        body.extend(packet_id.to_be_bytes());
    }
    if version.is_5() {
        body.extend(packet::variable_byte_integer(properties.len()));
        body.extend(properties);
    }
    body.extend(payload);
    packet::packet(first, &body)
}

/// Encodes a SUBSCRIBE or UNSUBSCRIBE. `properties` are encoded, without their length, and `rest` follows them.
pub fn request(version: Version, first: u8, packet_id: u16, properties: &[u8], rest: &[u8]) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    if version.is_5() {
        body.extend(packet::variable_byte_integer(properties.len()));
        body.extend(properties);
    }
    body.extend(rest);
    packet::packet(first, &body)
}

/// Encodes a filter and its options.
pub fn filter(filter: &str, options: u8) -> Vec<u8> {
    [string(filter), vec![options]].concat()
}

/// Encodes an acknowledgement that consists of the packet identifier only.
pub fn ack(first: u8, packet_id: u16) -> Vec<u8> {
    let [high, low] = packet_id.to_be_bytes();
    vec![first, 0x02, high, low]
}

/// Exchanges of packets with the broker.
pub trait Conversation {
    /// Subscribes with these options, and reads the SUBACK that grants the QoS in them.
    ///
    /// # Panics
    /// If another packet arrives, or none before the deadline. The same applies to all methods that read.
    fn subscribe_with(&mut self, filter: &str, options: u8);

    /// Like [`subscribe_with`](Self::subscribe_with), with encoded properties without their length.
    fn subscribe_as(&mut self, properties: &[u8], filter: &str, options: u8);

    /// Sends a PUBLISH at this QoS, and reads nothing.
    fn publish_at(&mut self, qos: u8, packet_id: u16, topic: &str, payload: &[u8]);

    /// Publishes at this QoS, and completes the exchange of acknowledgements.
    fn deliver(&mut self, qos: u8, topic: &str, payload: &[u8]);

    /// Reads the next packet, which must be a message.
    fn message(&mut self) -> Message;

    /// Reads this message, and completes the exchange of acknowledgements.
    fn take_message(&mut self, payload: &[u8]) -> Message;

    /// Sends an acknowledgement with the packet identifier only.
    fn acknowledge(&mut self, first: u8, packet_id: u16);

    /// Reads an acknowledgement with any reason code of success.
    fn expect_ack(&mut self, first: u8, packet_id: u16);
}

impl Conversation for Client {
    fn subscribe_with(&mut self, filter: &str, options: u8) {
        self.subscribe_as(&[], filter, options);
    }

    fn subscribe_as(&mut self, properties: &[u8], text: &str, options: u8) {
        let version = self.version();
        self.send(&request(version, 0x82, 9, properties, &filter(text, options)));
        self.expect(&packet::suback(version, 9, options & 0x03));
    }

    fn publish_at(&mut self, qos: u8, packet_id: u16, topic: &str, payload: &[u8]) {
        let version = self.version();
        self.send(&publish(version, 0x30 | qos << 1, packet_id, topic, &[], payload));
    }

    fn deliver(&mut self, qos: u8, topic: &str, payload: &[u8]) {
        self.publish_at(qos, 1, topic, payload);
        match qos {
            0 => {}
            1 => self.expect_ack(PUBACK, 1),
            _ => {
                self.expect_ack(PUBREC, 1);
                self.acknowledge(PUBREL, 1);
                self.expect_ack(PUBCOMP, 1);
            }
        }
    }

    fn message(&mut self) -> Message {
        let packet = self.read_packet();
        Message::parse(self.version(), &packet)
    }

    fn take_message(&mut self, payload: &[u8]) -> Message {
        let message = self.message();
        assert_eq!(message.payload, payload, "{message:?}");
        match message.qos {
            0 => {}
            1 => self.acknowledge(PUBACK, message.packet_id),
            _ => {
                self.acknowledge(PUBREC, message.packet_id);
                self.expect_ack(PUBREL, message.packet_id);
                self.acknowledge(PUBCOMP, message.packet_id);
            }
        }
        message
    }

    fn acknowledge(&mut self, first: u8, packet_id: u16) {
        self.send(&ack(first, packet_id));
    }

    fn expect_ack(&mut self, first: u8, packet_id: u16) {
        let packet = self.read_packet();
        let [high, low] = packet_id.to_be_bytes();
        let reason = packet.get(4).copied().unwrap_or(0);
        let is_it = packet[0] == first && packet[2..4] == [high, low] && reason < 0x80;
        assert!(is_it, "expected {first:02x} for {packet_id}, received {packet:02x?}");
    }
}

/// Ends a connection without DISCONNECT, and waits until the broker has closed its end too.
pub fn lose(mut client: Client) {
    client.finish();
    client.read_to_end();
}
