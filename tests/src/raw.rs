//! A connection on which a test controls every byte.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::DEADLINE;

/// A TCP connection to a broker. The only rule of MQTT that it knows is the length of packets.
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    /// Bytes that have been read from the socket, and not requested by the test.
    received: Vec<u8>,
}

/// Result of waiting for bytes.
enum Arrival {
    Bytes,
    Closed,
}

impl RawClient {
    /// Opens a connection, and sends nothing.
    ///
    /// # Panics
    /// If the connection is refused or not made before the deadline.
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, DEADLINE).expect("the broker accepts a connection");
        stream.set_nodelay(true).expect("a TCP stream can be told not to delay");
        stream.set_write_timeout(Some(DEADLINE)).expect("the deadline is not zero");
        Self { stream, received: Vec::new() }
    }

    /// The local address of the connection.
    pub fn local_address(&self) -> SocketAddr {
        self.stream.local_addr().expect("a connected stream has an address")
    }

    /// Sends bytes in one write.
    ///
    /// A connection that the broker has closed is no error. [`expect`](Self::expect) and
    /// [`expect_closed`](Self::expect_closed) can then read the broker's answer.
    ///
    /// # Panics
    /// If the bytes cannot be written for another reason, or not before the deadline.
    pub fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.stream.write_all(bytes) {
            assert!(is_closed(&error), "cannot send: {error}");
        }
    }

    /// Sends bytes one by one, each in a write of its own.
    pub fn send_bytewise(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.send(std::slice::from_ref(byte));
        }
    }

    /// Sends as many bytes as the socket accepts without waiting, and returns their number.
    ///
    /// # Panics
    /// If the broker has closed the connection.
    pub fn send_what_fits(&mut self, bytes: &[u8]) -> usize {
        self.stream.set_nonblocking(true).expect("a TCP stream can be told not to wait");
        let written = self.stream.write(bytes);
        self.stream.set_nonblocking(false).expect("a TCP stream can be told to wait");
        match written {
            Ok(written) => written,
            Err(error) if is_passing(&error) => 0,
            Err(error) => panic!("cannot send: {error}"),
        }
    }

    /// Sends as many bytes as the socket accepts without waiting, and returns their number.
    ///
    /// A connection that the broker has closed accepts all bytes. [`arrived`](Self::arrived) can then read the
    /// broker's answer.
    ///
    /// # Panics
    /// If the bytes cannot be written for another reason.
    pub fn offer(&mut self, bytes: &[u8]) -> usize {
        self.stream.set_nonblocking(true).expect("a TCP stream can be told not to wait");
        let written = self.stream.write(bytes);
        self.stream.set_nonblocking(false).expect("a TCP stream can be told to wait");
        match written {
            Ok(written) => written,
            Err(error) if is_passing(&error) => 0,
            Err(error) if is_closed(&error) => bytes.len(),
            Err(error) => panic!("cannot send: {error}"),
        }
    }

    /// Asks the system for a small send buffer, so that fewer bytes than usual are on the way to the broker.
    ///
    /// # Panics
    /// If the system does not allow it.
    pub fn narrow(&mut self) {
        const BUFFER_BYTES: usize = 16 * 1_024;
        sockopt::set_socket_send_buffer_size(&self.stream, BUFFER_BYTES)
            .expect("a TCP stream can be told so");
    }

    /// Closes the sending direction. The broker reads the end of the stream.
    pub fn finish(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Resets the connection. The broker loses all bytes that it has not read.
    ///
    /// # Panics
    /// If the system does not allow it.
    pub fn reset(self) {
        let at_once = Some(Duration::ZERO);
        sockopt::set_socket_linger(&self.stream, at_once).expect("a TCP stream can be told so");
    }

    /// Reads exactly these bytes, and no more.
    ///
    /// # Panics
    /// If other bytes arrive, or too few before the deadline.
    pub fn expect(&mut self, bytes: &[u8]) {
        let received = self.take(bytes.len());
        assert!(received == bytes, "expected {}\nreceived {}", hex(bytes), hex(&received));
    }

    /// Reads the next control packet, fixed header included.
    ///
    /// # Panics
    /// If the packet is incomplete at the deadline, or the connection is closed.
    pub fn read_packet(&mut self) -> Vec<u8> {
        self.next_packet().expect("the broker has closed the connection")
    }

    /// Reads the next control packet, fixed header included. Returns `None` if the broker has closed the connection
    /// instead.
    ///
    /// # Panics
    /// If the packet is incomplete at the deadline, or the connection is closed inside it.
    pub fn next_packet(&mut self) -> Option<Vec<u8>> {
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(length) = packet_length(&self.received) {
                return Some(self.take(length));
            }
            if let Arrival::Closed = self.read_some(end) {
                assert!(self.received.is_empty(), "closed inside a packet: {}", hex(&self.received));
                return None;
            }
        }
    }

    /// Returns the control packets that have arrived completely, without waiting. Also returns whether the broker
    /// has closed the connection after them.
    ///
    /// # Panics
    /// If the connection cannot be read.
    pub fn arrived(&mut self) -> (Vec<Vec<u8>>, bool) {
        self.stream.set_nonblocking(true).expect("a TCP stream can be told not to wait");
        let mut buffer = [0; 65_536];
        let is_closed = loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break true,
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(error) if is_closed(&error) => break true,
                Err(error) if is_passing(&error) => break false,
                Err(error) => panic!("cannot read: {error}"),
            }
        };
        self.stream.set_nonblocking(false).expect("a TCP stream can be told to wait");
        let mut packets = Vec::new();
        let mut at = 0;
        while let Some(length) = packet_length(&self.received[at..]) {
            packets.push(self.received[at..at + length].to_vec());
            at += length;
        }
        self.received.drain(..at);
        (packets, is_closed)
    }

    /// Waits until the broker has closed the connection without sending more bytes.
    ///
    /// # Panics
    /// If bytes arrive, or the broker does not close the connection before the deadline.
    pub fn expect_closed(&mut self) {
        let end = Instant::now() + DEADLINE;
        loop {
            assert!(self.received.is_empty(), "expected the end, received {}", hex(&self.received));
            if let Arrival::Closed = self.read_some(end) {
                return;
            }
        }
    }

    /// Reads all bytes until the broker closes the connection.
    ///
    /// # Panics
    /// If the broker does not close the connection before the deadline.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let end = Instant::now() + DEADLINE;
        while let Arrival::Bytes = self.read_some(end) {}
        std::mem::take(&mut self.received)
    }

    /// Sends PINGREQ and reads PINGRESP, to check that the broker has sent nothing else.
    ///
    /// Other packets of the broker would arrive before PINGRESP. The test therefore need not wait for a while.
    ///
    /// # Panics
    /// If bytes other than PINGRESP arrive.
    pub fn expect_only_pong(&mut self) {
        self.send(&[0xC0, 0x00]);
        self.expect(&[0xD0, 0x00]);
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        self.fill_to(length);
        let rest = self.received.split_off(length);
        std::mem::replace(&mut self.received, rest)
    }

    fn fill_to(&mut self, length: usize) {
        let end = Instant::now() + DEADLINE;
        while self.received.len() < length {
            if let Arrival::Closed = self.read_some(end) {
                panic!("closed after {}, expected {length} bytes", hex(&self.received));
            }
        }
    }

    fn read_some(&mut self, end: Instant) -> Arrival {
        let left = end.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "nothing more before the deadline, received {}", hex(&self.received));
        self.stream.set_read_timeout(Some(left)).expect("what is left is not zero");
        let mut buffer = [0; 65_536];
        match self.stream.read(&mut buffer) {
            Ok(0) => Arrival::Closed,
            Ok(length) => {
                self.received.extend_from_slice(&buffer[..length]);
                Arrival::Bytes
            }
            Err(error) if is_closed(&error) => Arrival::Closed,
            Err(error) if is_passing(&error) => Arrival::Bytes,
            Err(error) => panic!("cannot read: {error}"),
        }
    }
}

impl AsFd for RawClient {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted)
}

/// Errors after which reading continues. The check of the deadline reports a read that timed out.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Length of the packet at the start of `bytes`, if the packet is complete (MQTT 5.0 section 1.5.5).
fn packet_length(bytes: &[u8]) -> Option<usize> {
    let mut remaining = 0;
    for (index, byte) in bytes.get(1..)?.iter().enumerate().take(4) {
        remaining |= usize::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            let length = 2 + index + remaining;
            return (bytes.len() >= length).then_some(length);
        }
    }
    assert!(bytes.len() < 5, "no packet: {}", hex(bytes));
    None
}

fn hex(bytes: &[u8]) -> String {
    const SHOWN: usize = 64;
    let shown: Vec<String> = bytes.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    let more = if bytes.len() > SHOWN { " …" } else { "" };
    format!("{} bytes: {}{more}", bytes.len(), shown.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_ends_where_its_remaining_length_says() {
        assert_eq!(packet_length(&[]), None);
        assert_eq!(packet_length(&[0xC0]), None);
        assert_eq!(packet_length(&[0xC0, 0x00]), Some(2));
        assert_eq!(packet_length(&[0xC0, 0x00, 0xC0, 0x00]), Some(2));
        assert_eq!(packet_length(&[0x30, 0x80]), None);
        let mut long = vec![0x30, 0x80, 0x01];
        long.resize(130, 0);
        assert_eq!(packet_length(&long), None);
        long.push(0);
        assert_eq!(packet_length(&long), Some(131));
    }
}
