//! One short connection of the fuzzer.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use pondhawk_tests::conversation::{PUBACK, PUBCOMP, PUBREC, PUBREL, ack};
use pondhawk_tests::{DEADLINE, Version};
use wire::table::cases;
use wire::{Decoded, Limits, Role, decode};

use crate::link::Link;
use crate::mutation;
use crate::packets;
use crate::secure::{Authority, Secure};
use pondhawk_tests::Random;

/// The packets of a connection in the order in which they are sent.
const PACKETS_MAX: usize = 24;

/// A connection whose every byte follows from its random numbers.
pub(crate) struct Peer {
    random: Random,
    link: Link,
    version: Version,
    /// Received bytes that are not a whole packet yet.
    received: Vec<u8>,
    /// The versions in which everything received so far is well-formed: the CONNECT may have been changed, so that
    /// the broker takes the peer for one of another version.
    possible: Vec<Version>,
    is_closed: bool,
}

impl Peer {
    /// Connects, over TLS if there is an authority, sends, reads, and ends in one of several ways.
    ///
    /// # Errors
    /// The fault of the broker.
    pub(crate) fn run(
        address: SocketAddr,
        authority: Option<&Authority>,
        mut random: Random,
    ) -> Result<(), String> {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)
            .map_err(|error| format!("no connection: {error}"))?;
        let prepared = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(DEADLINE)));
        prepared
            .and_then(|()| stream.set_write_timeout(Some(DEADLINE)))
            .map_err(|error| error.to_string())?;
        let version = random.of_list(&Version::ALL);
        let possible = Version::ALL.to_vec();
        let link = match authority {
            Some(authority) => match Secure::connect(stream, authority, &mut random)? {
                Some(secure) => Link::Tls(Box::new(secure)),
                None => return Ok(()),
            },
            None => Link::Tcp(stream),
        };
        let mut peer = Self { random, link, version, received: Vec::new(), possible, is_closed: false };
        peer.talk()?;
        peer.end()
    }

    fn talk(&mut self) -> Result<(), String> {
        // Every fifth connection is damaged from the beginning; the others only behind a good CONNECT.
        if !self.random.one_in(20) {
            let mut connect = packets::connect(&mut self.random, self.version);
            if self.random.one_in(5) {
                mutation::change(&mut self.random, &mut connect);
            }
            self.send(&connect.bytes())?;
        }
        for _ in 0..self.random.below(PACKETS_MAX) {
            let bytes = self.packet();
            self.send(&bytes)?;
            self.read_what_is_there()?;
            if self.is_closed {
                break;
            }
        }
        Ok(())
    }

    /// A packet that is good most of the time, so that what comes behind it is read too.
    fn packet(&mut self) -> Vec<u8> {
        if self.random.one_in(12) {
            return self.case();
        }
        let mut packet = packets::any(&mut self.random, self.version);
        if self.random.one_in(8) {
            mutation::change(&mut self.random, &mut packet);
        }
        let mut bytes = packet.bytes();
        if self.random.one_in(16) {
            mutation::damage(&mut self.random, &mut bytes);
        }
        bytes
    }

    /// One of the table of good and bad packets.
    fn case(&mut self) -> Vec<u8> {
        let of_clients: Vec<_> = cases().filter(|case| case.sender == Role::Client).collect();
        let mut bytes = self.random.of_list(&of_clients).bytes.to_vec();
        if self.random.one_in(2) {
            mutation::damage(&mut self.random, &mut bytes);
        }
        bytes
    }

    /// In one piece, or cut somewhere.
    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let cut = if self.random.one_in(4) { self.random.below(bytes.len() + 1) } else { 0 };
        for part in [&bytes[..cut], &bytes[cut..]] {
            match self.link.write_all(part).and_then(|()| self.link.flush()) {
                Ok(()) => {}
                Err(error) if is_end(error.kind()) => self.is_closed = true,
                Err(error) => return Err(format!("the broker takes nothing more: {error}")),
            }
        }
        Ok(())
    }

    fn read_what_is_there(&mut self) -> Result<(), String> {
        self.link.socket().set_nonblocking(true).map_err(|error| error.to_string())?;
        let outcome = self.read_some();
        self.link.socket().set_nonblocking(false).map_err(|error| error.to_string())?;
        outcome
    }

    /// Reads once, and answers what is to be answered.
    fn read_some(&mut self) -> Result<(), String> {
        let mut buffer = [0; 16_384];
        match self.link.read(&mut buffer) {
            Ok(0) => self.is_closed = true,
            Ok(length) => self.received.extend_from_slice(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) if is_end(error.kind()) => self.is_closed = true,
            Err(error) => return Err(format!("nothing comes: {error}")),
        }
        while let Some(packet) = self.next_packet()? {
            self.answer(&packet);
        }
        Ok(())
    }

    /// The next packet that has come, if it is one in the version that the broker speaks.
    fn next_packet(&mut self) -> Result<Option<Vec<u8>>, String> {
        let limits = Limits { sender: Some(Role::Server), ..Limits::default() };
        let mut len = None;
        let mut is_begun = self.received.is_empty();
        let received = &self.received;
        self.possible.retain(|version| match decode(received, Some(*version), &limits) {
            Ok(Decoded::Packet { len: found, .. }) => *len.get_or_insert(found) == found,
            Ok(Decoded::Need { .. }) => {
                is_begun = true;
                true
            }
            Err(_) => received.is_empty(),
        });
        match len {
            Some(len) => Ok(Some(self.received.drain(..len).collect())),
            None if is_begun => Ok(None),
            None => Err(format!("no packet of MQTT {}: {:02x?}", self.version, self.received)),
        }
    }

    /// As a good client most of the time.
    fn answer(&mut self, packet: &[u8]) {
        let packet_id =
            |at: usize| packet.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let answer = match packet[0] & 0xF6 {
            0x32 | 0x34 => {
                let header = 1 + packet[1..].iter().take_while(|byte| **byte >= 0x80).count() + 1;
                let topic = packet_id(header).map_or(0, usize::from);
                let first = if packet[0] & 0x06 == 0x02 { PUBACK } else { PUBREC };
                packet_id(header + 2 + topic).map(|packet_id| ack(first, packet_id))
            }
            0x50 => packet_id(2).map(|packet_id| ack(PUBREL, packet_id)),
            0x62 => packet_id(2).map(|packet_id| ack(PUBCOMP, packet_id)),
            _ => None,
        };
        if let Some(answer) = answer.filter(|_| !self.random.one_in(4)) {
            // Bytes behind the end are lost, as for any client.
            let _ = self.link.write_all(&answer).and_then(|()| self.link.flush());
        }
    }

    /// A reset, or the end of the stream, and then the broker's last words.
    fn end(mut self) -> Result<(), String> {
        if self.random.one_in(5) {
            return self.link.reset().map_err(|error| error.to_string());
        }
        self.link.end();
        while !self.is_closed {
            self.read_some().map_err(|error| format!("before the end: {error}"))?;
        }
        if self.received.is_empty() {
            Ok(())
        } else {
            Err(format!("a packet that never ends: {:02x?}", self.received))
        }
    }
}

pub(crate) fn is_end(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
    )
}
