//! Decodes the packets of one direction of a connection.

use std::fmt;

use wire::{Decoded, Limits, Packet, Role, Version, decode};

/// Maximum size of a packet to decode. Larger ones are only mentioned, so that memory stays bounded.
const PACKET_BYTES_MAX: usize = 1 << 20;

/// The bytes of an incomplete packet in one direction.
#[derive(Debug)]
pub struct Reading {
    sender: Role,
    rest: Vec<u8>,
    /// Number of bytes left of a packet that is skipped.
    skip: usize,
    /// The bytes were not MQTT, and decoding has stopped.
    is_lost: bool,
}

/// One line about received bytes.
#[derive(Debug)]
pub enum Told<'a, 'b> {
    /// A packet of which all bytes have arrived.
    Packet(&'a Packet<'b>),
    /// Bytes that are not decoded, and the reason.
    Unread(String),
}

/// The packet as in a trace, or the reason.
impl fmt::Display for Told<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packet(packet) => packet.fmt(f),
            Self::Unread(text) => f.write_str(text),
        }
    }
}

impl Reading {
    /// The direction of this sender, before its first byte.
    #[must_use]
    pub fn of(sender: Role) -> Self {
        Self { sender, rest: Vec::new(), skip: 0, is_lost: false }
    }

    /// Decodes complete packets, and passes each to `tell`. CONNECT sets the version of both directions.
    pub fn take(&mut self, bytes: &[u8], version: &mut Option<Version>, mut tell: impl FnMut(Told<'_, '_>)) {
        let skipped = bytes.len().min(self.skip);
        self.skip -= skipped;
        if self.is_lost {
            return;
        }
        self.rest.extend_from_slice(&bytes[skipped..]);
        let mut at = 0;
        while at < self.rest.len() {
            let unread = &self.rest[at..];
            let limits = Limits { sender: Some(self.sender), ..Limits::default() };
            // A second CONNECT is an error, but the server has to report it.
            let is_connect = unread[0] >> 4 == 1;
            match decode(unread, version.filter(|_| !is_connect), &limits) {
                Ok(Decoded::Packet { packet, len }) => {
                    if let Packet::Connect(connect) = &packet {
                        *version = Some(connect.version());
                    }
                    tell(Told::Packet(&packet));
                    at += len;
                }
                Ok(Decoded::Need { total: Some(total) }) if total > PACKET_BYTES_MAX => {
                    tell(Told::Unread(format!("a packet of {total} B, too long to be shown")));
                    self.skip = total - unread.len();
                    at = self.rest.len();
                }
                Ok(Decoded::Need { .. }) => break,
                Err(violation) => {
                    tell(Told::Unread(format!("{violation}; what follows is not read")));
                    self.is_lost = true;
                    at = self.rest.len();
                }
            }
        }
        self.rest.drain(..at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECT: &[u8] = b"\x10\x0e\0\x04MQTT\x04\x02\0\x3c\0\x02me";

    fn told(pieces: &[&[u8]], version: Option<Version>) -> Vec<String> {
        let (mut reading, mut version, mut lines) = (Reading::of(Role::Client), version, Vec::new());
        pieces
            .iter()
            .for_each(|bytes| reading.take(bytes, &mut version, |line| lines.push(line.to_string())));
        lines
    }

    #[test]
    fn packets_are_told_when_they_are_whole() {
        let lines = told(&[&CONNECT[..3], &CONNECT[3..], b"\xc0", b"\0\xc0\0"], None);
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("CONNECT"), "{}", lines[0]);
        assert_eq!(lines[1..], ["PINGREQ", "PINGREQ"]);
    }

    #[test]
    fn a_large_packet_is_told_of_and_passed_over() {
        let mut large = b"\x30\x80\x80\x80\x01".to_vec();
        large.resize(5 + (2 << 20), 0);
        let (begin, end) = large.split_at(1_000);
        assert_eq!(
            told(&[begin, end, b"\xc0\0"], Some(Version::V5)),
            ["a packet of 2097157 B, too long to be shown", "PINGREQ"]
        );
    }

    #[test]
    fn bytes_that_are_not_mqtt_are_reported_once() {
        let lines = told(&[b"GET / HTTP/1.1\r\n", b"\xc0\0"], None);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].ends_with("what follows is not read"), "{}", lines[0]);
    }
}
