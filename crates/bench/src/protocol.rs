//! The few control packets that load tests make and read.

use std::str;

use crate::error::{Error, Result};

/// A protocol version, named as its standard is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    V3_1,
    V3_1_1,
    V5,
}

/// What a packet received means to a load test.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    Connect { version: Version },
    ConnectAccepted,
    ConnectRefused { reason: u8 },
    Publish { topic: &'a str, payload: &'a [u8] },
    Subscribe { packet_id: u16, filters: Vec<&'a str> },
    SubscribeAccepted,
    SubscribeRefused { reason: u8 },
    PingRequest,
    Disconnect { reason: u8 },
    Other,
}

impl Version {
    /// All of them, for tests.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 3] = [Self::V3_1, Self::V3_1_1, Self::V5];

    fn name(self) -> &'static str {
        match self {
            Self::V3_1 => "3.1",
            Self::V3_1_1 => "3.1.1",
            Self::V5 => "5.0",
        }
    }

    fn is_5(self) -> bool {
        self == Self::V5
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

pub(crate) fn connect(version: Version, client_id: &str) -> Vec<u8> {
    let mut body = Vec::new();
    let (name, level) = match version {
        Version::V3_1 => ("MQIsdp", 3),
        Version::V3_1_1 => ("MQTT", 4),
        Version::V5 => ("MQTT", 5),
    };
    put_string(&mut body, name);
    body.extend_from_slice(&[level, 2, 0xFF, 0xFF]);
    put_properties(&mut body, version);
    put_string(&mut body, client_id);
    packet(0x10, &body)
}

pub(crate) fn subscribe(version: Version, filter: &str) -> Vec<u8> {
    let mut body = vec![0, 1];
    put_properties(&mut body, version);
    put_string(&mut body, filter);
    body.push(0);
    packet(0x82, &body)
}

pub(crate) fn publish(version: Version, topic: &str, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    put_string(&mut body, topic);
    put_properties(&mut body, version);
    body.extend_from_slice(payload);
    packet(0x30, &body)
}

pub(crate) fn disconnect() -> Vec<u8> {
    packet(0xE0, &[])
}

pub(crate) fn connack(version: Version) -> Vec<u8> {
    let mut body = vec![0, 0];
    put_properties(&mut body, version);
    packet(0x20, &body)
}

pub(crate) fn suback(version: Version, packet_id: u16, filters: usize) -> Vec<u8> {
    let mut body = packet_id.to_be_bytes().to_vec();
    put_properties(&mut body, version);
    body.resize(body.len() + filters, 0);
    packet(0x90, &body)
}

pub(crate) fn pingresp() -> Vec<u8> {
    packet(0xD0, &[])
}

pub(crate) fn read(packet: &[u8], version: Version) -> Result<Packet<'_>> {
    parse(packet, version).ok_or_else(|| Error::Server("sent a malformed packet".into()))
}

fn parse(packet: &[u8], version: Version) -> Option<Packet<'_>> {
    let len = 1 + packet[1..].iter().position(|byte| byte & 0x80 == 0)? + 1;
    let mut body = &packet[len..];
    Some(match packet[0] >> 4 {
        1 => {
            take_string(&mut body)?;
            let version = match take(&mut body, 1)?[0] {
                3 => Version::V3_1,
                4 => Version::V3_1_1,
                _ => Version::V5,
            };
            Packet::Connect { version }
        }
        2 if *body.get(1)? == 0 => Packet::ConnectAccepted,
        2 => Packet::ConnectRefused { reason: body[1] },
        3 => {
            let topic = take_string(&mut body)?;
            take_properties(&mut body, version)?;
            Packet::Publish { topic, payload: body }
        }
        8 => {
            let id = take(&mut body, 2)?;
            take_properties(&mut body, version)?;
            let mut filters = Vec::new();
            while !body.is_empty() {
                filters.push(take_string(&mut body)?);
                take(&mut body, 1)?;
            }
            Packet::Subscribe { packet_id: u16::from_be_bytes([id[0], id[1]]), filters }
        }
        9 => {
            take(&mut body, 2)?;
            take_properties(&mut body, version)?;
            match *body.first()? {
                0 => Packet::SubscribeAccepted,
                reason => Packet::SubscribeRefused { reason },
            }
        }
        12 => Packet::PingRequest,
        14 => Packet::Disconnect { reason: body.first().copied().unwrap_or(0) },
        _ => Packet::Other,
    })
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    let mut len = body.len();
    loop {
        let low = u8::try_from(len & 0x7F).unwrap_or(0);
        len >>= 7;
        bytes.push(if len > 0 { low | 0x80 } else { low });
        if len == 0 {
            break;
        }
    }
    bytes.extend_from_slice(body);
    bytes
}

fn put_string(body: &mut Vec<u8>, string: &str) {
    body.extend_from_slice(&u16::try_from(string.len()).unwrap_or(u16::MAX).to_be_bytes());
    body.extend_from_slice(string.as_bytes());
}

fn put_properties(body: &mut Vec<u8>, version: Version) {
    if version.is_5() {
        body.push(0);
    }
}

fn take<'a>(body: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, rest) = body.split_at_checked(len)?;
    *body = rest;
    Some(taken)
}

fn take_string<'a>(body: &mut &'a [u8]) -> Option<&'a str> {
    let len = take(body, 2)?;
    str::from_utf8(take(body, usize::from(u16::from_be_bytes([len[0], len[1]])))?).ok()
}

fn take_properties(body: &mut &[u8], version: Version) -> Option<()> {
    if version.is_5() {
        let len = usize::from(take(body, 1)?[0]);
        take(body, len)?;
    }
    Some(())
}

pub(crate) fn matches(filter: &str, topic: &str) -> bool {
    let mut levels = topic.split('/');
    for part in filter.split('/') {
        match (part, levels.next()) {
            ("#", _) => return true,
            ("+", Some(_)) => {}
            (part, Some(level)) if part == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}
