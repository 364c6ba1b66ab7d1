//! Encodes the packets that most tests need, without the crates under test. Tests can therefore detect encoding
//! faults in those crates.

use crate::Version;

/// The fields of a CONNECT packet.
#[derive(Debug, Clone, Copy)]
pub struct Connect<'a> {
    /// The version that the client requests.
    pub version: Version,
    /// The client identifier. If it is empty, the broker assigns one.
    pub client_id: &'a str,
    /// Clean Start, or Clean Session before MQTT 5.
    pub clean_start: bool,
    /// Keep alive in seconds; 0 means none.
    pub keep_alive_secs: u16,
    /// The will, which the broker publishes if the connection ends without DISCONNECT.
    pub will: Option<Will<'a>>,
    /// Encoded properties, without the length before them; MQTT 5 only.
    pub properties: &'a [u8],
    /// User name, if the client gives one.
    pub user: Option<&'a str>,
    /// Password, if the client gives one.
    pub password: Option<&'a [u8]>,
}

/// The fields of a will.
#[derive(Debug, Clone, Copy)]
pub struct Will<'a> {
    /// The topic name of the will.
    pub topic: &'a str,
    /// The payload of the will.
    pub payload: &'a [u8],
    /// Whether the broker retains the message.
    pub retain: bool,
    /// The QoS of the message, from 0 to 2.
    pub qos: u8,
    /// Encoded properties, without the length before them; MQTT 5 only.
    pub properties: &'a [u8],
}

impl<'a> Will<'a> {
    /// Makes a will at QoS 0 that is not retained and has no properties.
    pub const fn new(topic: &'a str, payload: &'a [u8]) -> Self {
        Self { topic, payload, retain: false, qos: 0, properties: &[] }
    }
}

impl<'a> Connect<'a> {
    /// Makes a CONNECT with clean start, and without keep alive, will and properties.
    pub const fn new(version: Version, client_id: &'a str) -> Self {
        Self {
            version,
            client_id,
            clean_start: true,
            keep_alive_secs: 0,
            will: None,
            properties: &[],
            user: None,
            password: None,
        }
    }

    /// The same with this user name and password.
    #[must_use]
    pub const fn of(self, user: &'a str, password: &'a str) -> Self {
        Self { user: Some(user), password: Some(password.as_bytes()), ..self }
    }

    /// Encodes the CONNECT packet.
    pub fn bytes(&self) -> Vec<u8> {
        let mut flags = u8::from(self.clean_start) << 1;
        if let Some(will) = &self.will {
            flags |= 1 << 2 | will.qos << 3 | u8::from(will.retain) << 5;
        }
        flags |= u8::from(self.user.is_some()) << 7 | u8::from(self.password.is_some()) << 6;
        let mut body = string(self.version.protocol_name());
        body.extend([self.version.protocol_level(), flags]);
        body.extend(self.keep_alive_secs.to_be_bytes());
        body.extend(properties(self.version, self.properties));
        body.extend(string(self.client_id));
        if let Some(will) = &self.will {
            body.extend(properties(self.version, will.properties));
            body.extend(string(will.topic));
            body.extend(binary(will.payload));
        }
        self.user.iter().for_each(|user| body.extend(string(user)));
        self.password.iter().for_each(|password| body.extend(binary(password)));
        packet(0x10, &body)
    }
}

/// Whether the packet is a CONNACK of success.
pub fn is_accepted(packet: &[u8]) -> bool {
    matches!(packet, [0x20, _, _, 0x00, ..])
}

/// Encodes a SUBSCRIBE to one filter with these options. Before MQTT 5, the options are the QoS.
pub fn subscribe_with(version: Version, packet_id: u16, filter: &str, options: u8) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    body.extend(properties(version, &[]));
    body.extend(string(filter));
    body.push(options);
    packet(0x82, &body)
}

/// Encodes a SUBSCRIBE to one filter at QoS 0.
pub fn subscribe(version: Version, packet_id: u16, filter: &str) -> Vec<u8> {
    subscribe_with(version, packet_id, filter, 0)
}

/// Encodes a SUBACK with one code: 0 grants [`subscribe`], and codes from 0x80 on refuse it.
pub fn suback(version: Version, packet_id: u16, code: u8) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    body.extend(properties(version, &[]));
    body.push(code);
    packet(0x90, &body)
}

/// Encodes an UNSUBSCRIBE from one filter.
pub fn unsubscribe(version: Version, packet_id: u16, filter: &str) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    body.extend(properties(version, &[]));
    body.extend(string(filter));
    packet(0xA2, &body)
}

/// Encodes the UNSUBACK to [`unsubscribe`]. Only MQTT 5 has the code.
pub fn unsuback(version: Version, packet_id: u16, code: u8) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    body.extend(properties(version, &[]));
    body.extend(version.is_5().then_some(code));
    packet(0xB0, &body)
}

/// Encodes a PUBLISH at QoS 0, in the form of publisher and receiver.
pub fn publish(version: Version, topic: &str, payload: &[u8]) -> Vec<u8> {
    publish_with(version, 0x30, topic, &[], payload)
}

/// Encodes a PUBLISH at QoS 0 with RETAIN 1: a message to be retained, or a retained one.
pub fn retained(version: Version, topic: &str, payload: &[u8]) -> Vec<u8> {
    publish_with(version, 0x31, topic, &[], payload)
}

/// Encodes a PUBLISH at QoS 0 with this first byte. `of_message` has the encoded properties, without the length
/// before them.
pub fn publish_with(version: Version, first: u8, topic: &str, of_message: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut body = string(topic);
    body.extend(properties(version, of_message));
    body.extend(payload);
    packet(first, &body)
}

/// Encodes a DISCONNECT. Only MQTT 5 has the reason code.
pub fn disconnect(version: Version, reason: u8) -> Vec<u8> {
    if version.is_5() { vec![0xE0, 0x01, reason] } else { vec![0xE0, 0x00] }
}

/// Encodes a packet with this first byte and the matching Remaining Length.
///
/// # Panics
/// If the body is longer than a packet allows (MQTT 5.0 section 1.5.5).
pub fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first];
    packet.extend(variable_byte_integer(body.len()));
    packet.extend(body);
    packet
}

/// Encodes a length or value in as few bytes as possible (MQTT 5.0 section 1.5.5).
///
/// # Panics
/// If the value does not fit into four bytes.
pub fn variable_byte_integer(mut value: usize) -> Vec<u8> {
    assert!(value < 1 << 28, "{value} does not fit into four bytes");
    let mut bytes = Vec::new();
    loop {
        let low = u8::try_from(value & 0x7F).expect("seven bits");
        value >>= 7;
        bytes.push(if value > 0 { low | 0x80 } else { low });
        if value == 0 {
            return bytes;
        }
    }
}

/// Encodes a string after its length (MQTT 5.0 section 1.5.4).
///
/// # Panics
/// If the string is longer than 65,535 bytes.
pub fn string(text: &str) -> Vec<u8> {
    binary(text.as_bytes())
}

/// Encodes binary data after its length (MQTT 5.0 section 1.5.6).
///
/// # Panics
/// If there are more than 65,535 bytes.
pub fn binary(data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).expect("at most 65,535 bytes");
    [&length.to_be_bytes(), data].concat()
}

/// Encodes a User Property (MQTT 5.0 section 2.2.2.2).
///
/// # Panics
/// If one of the strings is longer than 65,535 bytes.
pub fn user_property(name: &str, value: &str) -> Vec<u8> {
    [vec![0x26], string(name), string(value)].concat()
}

/// Adds the length before encoded properties. Before MQTT 5 there are no properties, and the result is empty.
fn properties(version: Version, encoded: &[u8]) -> Vec<u8> {
    if !version.is_5() {
        assert!(encoded.is_empty(), "MQTT {version} has no properties");
        return Vec::new();
    }
    [&variable_byte_integer(encoded.len()), encoded].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_as_the_standard_draws_them() {
        let connect = Connect { keep_alive_secs: 60, ..Connect::new(Version::V3_1, "frog") };
        assert_eq!(connect.bytes(), b"\x10\x12\x00\x06MQIsdp\x03\x02\x00\x3C\x00\x04frog");
        let will = Some(Will { retain: true, ..Will::new("w", b"bye") });
        let connect = Connect { will, properties: &[0x21, 0, 1], ..Connect::new(Version::V5, "") };
        assert_eq!(
            connect.bytes(),
            b"\x10\x19\x00\x04MQTT\x05\x26\x00\x00\x03\x21\x00\x01\x00\x00\x00\x00\x01w\x00\x03bye"
        );
        assert_eq!(subscribe(Version::V3_1_1, 1, "a"), b"\x82\x06\x00\x01\x00\x01a\x00");
        assert_eq!(suback(Version::V5, 1, 0), b"\x90\x04\x00\x01\x00\x00");
        assert_eq!(unsubscribe(Version::V5, 1, "a"), b"\xA2\x06\x00\x01\x00\x00\x01a");
        assert_eq!(unsuback(Version::V3_1_1, 1, 0), b"\xB0\x02\x00\x01");
        assert_eq!(publish(Version::V5, "a", b"hey"), b"\x30\x07\x00\x01a\x00hey");
        assert_eq!(variable_byte_integer(128), [0x80, 0x01]);
    }
}
