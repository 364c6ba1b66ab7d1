//! The bytes of MQTT 5.0 packets, well-formed and large on purpose.

use std::io;

/// Packet types (MQTT 5.0, 2.1.2).
pub(super) const CONNACK: u8 = 2;
pub(super) const PUBLISH: u8 = 3;
pub(super) const PUBACK: u8 = 4;
pub(super) const SUBACK: u8 = 9;

/// Bytes of whole packets.
pub(super) const PINGREQ: [u8; 2] = [0xC0, 0];
pub(super) const DISCONNECT: [u8; 2] = [0xE0, 0];

/// Property identifiers (MQTT 5.0, 2.2.2.2).
const MESSAGE_EXPIRY_INTERVAL: u8 = 0x02;
const SESSION_EXPIRY_INTERVAL: u8 = 0x11;
const TOPIC_ALIAS: u8 = 0x23;
const USER_PROPERTY: u8 = 0x26;

/// Reason codes from here on are errors.
const FIRST_ERROR: u8 = 0x80;

/// Fields of a CONNECT beside the client identifier.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Opening<'a> {
    /// Whether an earlier session goes on.
    pub(super) resumes: bool,
    /// Time that the session outlives its connection, in seconds.
    pub(super) expiry_secs: u32,
    /// Topic and payload of the will.
    pub(super) will: Option<(&'a str, &'a [u8])>,
    pub(super) credentials: Option<Credentials<'a>>,
}

/// A user name and a password.
#[derive(Debug, Clone, Copy)]
pub(super) struct Credentials<'a> {
    pub(super) user: &'a str,
    pub(super) password: &'a str,
}

/// Writes a CONNECT packet.
pub(super) fn connect(client_id: &str, opening: Opening<'_>) -> Vec<u8> {
    let Opening { resumes, expiry_secs, will, credentials } = opening;
    let flags = [(!resumes, 0x02), (will.is_some(), 0x04), (credentials.is_some(), 0xC0)];
    let flags = flags.iter().map(|(is_set, flag)| if *is_set { *flag } else { 0 }).sum();
    let mut body = vec![0, 4, b'M', b'Q', b'T', b'T', 5, flags, 0, 0, 5, SESSION_EXPIRY_INTERVAL];
    body.extend(expiry_secs.to_be_bytes());
    text(client_id.as_bytes(), &mut body);
    if let Some((topic, payload)) = will {
        body.push(0);
        text(topic.as_bytes(), &mut body);
        text(payload, &mut body);
    }
    if let Some(Credentials { user, password }) = credentials {
        text(user.as_bytes(), &mut body);
        text(password.as_bytes(), &mut body);
    }
    packet(0x10, &body)
}

/// Fields of a PUBLISH beside topic and payload.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Options {
    pub(super) qos: u8,
    pub(super) retain: bool,
    pub(super) packet_id: u16,
    pub(super) expiry_secs: Option<u32>,
    pub(super) topic_alias: Option<u16>,
    /// User Properties of one byte each in name and value.
    pub(super) user_properties: usize,
}

/// Writes a PUBLISH packet.
pub(super) fn publish(topic: &str, payload: &[u8], options: Options) -> Vec<u8> {
    let mut body = Vec::with_capacity(topic.len() + payload.len() + 16 + 7 * options.user_properties);
    text(topic.as_bytes(), &mut body);
    if options.qos > 0 {
        body.extend(options.packet_id.to_be_bytes());
    }
    let mut properties = Vec::with_capacity(7 * options.user_properties);
    if let Some(secs) = options.expiry_secs {
        properties.push(MESSAGE_EXPIRY_INTERVAL);
        properties.extend(secs.to_be_bytes());
    }
    if let Some(alias) = options.topic_alias {
        properties.push(TOPIC_ALIAS);
        properties.extend(alias.to_be_bytes());
    }
    for _ in 0..options.user_properties {
        properties.extend([USER_PROPERTY, 0, 1, b'n', 0, 1, b'v']);
    }
    variable_byte_integer(properties.len(), &mut body);
    body.extend(properties);
    body.extend(payload);
    packet(0x30 | options.qos << 1 | u8::from(options.retain), &body)
}

/// The beginning of a PUBLISH that announces more than it has.
pub(super) fn unfinished_publish(topic: &str, announced: usize, sent: usize) -> Vec<u8> {
    let mut bytes = vec![0x30];
    variable_byte_integer(announced, &mut bytes);
    text(topic.as_bytes(), &mut bytes);
    bytes.push(0);
    bytes.resize(sent, b'x');
    bytes
}

/// Writes a PUBACK packet.
pub(super) fn puback(packet_id: u16) -> Vec<u8> {
    packet(0x40, &packet_id.to_be_bytes())
}

/// A SUBSCRIBE for these filters at one QoS.
pub(super) fn subscribe<'a>(
    packet_id: u16,
    filters: impl IntoIterator<Item = impl AsRef<str> + 'a>,
    qos: u8,
) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    body.push(0);
    for filter in filters {
        text(filter.as_ref().as_bytes(), &mut body);
        body.push(qos);
    }
    packet(0x82, &body)
}

/// An UNSUBSCRIBE for one filter.
pub(super) fn unsubscribe(packet_id: u16, filter: &str) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    body.push(0);
    text(filter.as_bytes(), &mut body);
    packet(0xA2, &body)
}

/// Whether a CONNACK accepts.
///
/// # Errors
/// If it does not.
pub(super) fn accepted(connack: &[u8]) -> io::Result<()> {
    granted(connack.get(3).copied().unwrap_or(FIRST_ERROR))
}

/// Whether a PUBACK says that the message was accepted.
///
/// # Errors
/// If it says something else.
pub(super) fn published(puback: &[u8]) -> io::Result<()> {
    granted(puback.get(4).copied().unwrap_or(0))
}

/// Whether the SUBACK of one filter grants it.
///
/// # Errors
/// If it does not.
pub(super) fn subscribed(suback: &[u8]) -> io::Result<()> {
    granted(suback.last().copied().unwrap_or(FIRST_ERROR))
}

/// The Packet Identifier of a PUBLISH at QoS 1.
pub(super) fn packet_id_of(publish: &[u8]) -> Option<u16> {
    if publish[0] & 0b110 == 0 {
        return None;
    }
    let header = 1 + publish[1..].iter().take_while(|byte| **byte & 0x80 != 0).count() + 1;
    let len = usize::from(u16::from_be_bytes([*publish.get(header)?, *publish.get(header + 1)?]));
    let at = header + 2 + len;
    Some(u16::from_be_bytes([*publish.get(at)?, *publish.get(at + 1)?]))
}

fn granted(reason: u8) -> io::Result<()> {
    if reason < FIRST_ERROR { Ok(()) } else { Err(io::Error::other(format!("refused with {reason:#04x}"))) }
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 5);
    bytes.push(first);
    variable_byte_integer(body.len(), &mut bytes);
    bytes.extend(body);
    bytes
}

fn text(bytes: &[u8], to: &mut Vec<u8>) {
    let len = u16::try_from(bytes.len()).expect("attacks keep to 65,535 bytes");
    to.extend(len.to_be_bytes());
    to.extend(bytes);
}

/// Maximum of a variable byte integer (MQTT 5.0, 1.5.5).
fn variable_byte_integer(mut value: usize, to: &mut Vec<u8>) {
    loop {
        let low = u8::try_from(value & 0x7F).expect("seven bits");
        value >>= 7;
        to.push(if value > 0 { low | 0x80 } else { low });
        if value == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use wire::{Decoded, Limits, Packet, Version};

    use super::*;

    fn decode(bytes: &[u8]) -> Packet<'_> {
        match wire::decode(bytes, (bytes[0] >> 4 != 1).then_some(Version::V5), &Limits::default()).unwrap() {
            Decoded::Packet { packet, len } if len == bytes.len() => packet,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn attacks_speak_mqtt_where_they_mean_to() {
        let (will, expiry_secs) = (Some(("t", &b"x"[..])), 5);
        let credentials = Some(Credentials { user: "frog", password: "pond" });
        let openings = [
            Opening::default(),
            Opening { resumes: true, expiry_secs, ..Opening::default() },
            Opening { will, ..Opening::default() },
            Opening { credentials, will, ..Opening::default() },
        ];
        for opening in openings {
            let bytes = connect("a", opening);
            let Packet::Connect(decoded) = decode(&bytes) else { panic!("{bytes:?} is no CONNECT") };
            assert_eq!(decoded.will.is_some(), opening.will.is_some());
            assert_eq!(decoded.user_name().is_some(), opening.credentials.is_some());
        }
        let options = Options {
            qos: 1,
            retain: true,
            packet_id: 7,
            expiry_secs: Some(1),
            topic_alias: Some(2),
            user_properties: 99,
        };
        let bytes = publish("t", b"payload", options);
        let Packet::Publish(publish) = decode(&bytes) else { panic!("a PUBLISH") };
        assert_eq!(publish.payload, b"payload");
        assert_eq!(packet_id_of(&bytes), Some(7));
        assert!(matches!(decode(&subscribe(1, ["a/b", "+/#"], 1)), Packet::Subscribe(_)));
        assert!(matches!(decode(&unsubscribe(1, "a/b")), Packet::Unsubscribe(_)));
        assert!(matches!(decode(&puback(9)), Packet::PubAck(_)));
    }

    #[test]
    fn refusals_are_errors() {
        assert!(accepted(&[0x20, 3, 0, 0, 0]).is_ok() && accepted(&[0x20, 3, 0, 0x97, 0]).is_err());
        assert!(published(&[0x40, 2, 0, 1]).is_ok() && published(&[0x40, 4, 0, 1, 0x97, 0]).is_err());
        assert!(subscribed(&[0x90, 4, 0, 1, 0, 1]).is_ok() && subscribed(&[0x90, 4, 0, 1, 0, 0x97]).is_err());
    }
}
