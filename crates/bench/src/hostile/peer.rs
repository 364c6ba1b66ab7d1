//! One connection of an attacker or of an innocent client: blocking, and free to send any bytes.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::packets;

/// Time that a server may take to answer, and to take what is sent.
const PATIENCE: Duration = Duration::from_secs(10);

/// Bytes read from a socket at a time.
const READ_LEN: usize = 64 << 10;

/// A connection on which the caller decides every byte.
#[derive(Debug)]
pub(super) struct Peer {
    stream: TcpStream,
    /// Received and not handed out yet.
    received: Vec<u8>,
}

impl Peer {
    /// Opens a connection and sends nothing.
    ///
    /// # Errors
    /// If the server does not accept it.
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        Self::open_from(None, address)
    }

    /// The same from an address of this machine, if one is given.
    ///
    /// # Errors
    /// If this machine does not have the address, or the server does not accept the connection.
    pub(super) fn open_from(from: Option<IpAddr>, address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        if let Some(from) = from {
            socket.bind(&SocketAddr::new(from, 0).into())?;
        }
        socket.connect_timeout(&address.into(), PATIENCE)?;
        let stream = TcpStream::from(socket);
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { stream, received: Vec::new() })
    }

    /// Opens a connection and sends CONNECT; succeeds when the server has accepted it.
    ///
    /// # Errors
    /// If the server does not accept the connection or the client.
    pub(super) fn connect(address: SocketAddr, connect: &[u8]) -> io::Result<Self> {
        let mut peer = Self::open(address)?;
        peer.send(connect)?;
        let answer = peer.wait_for(packets::CONNACK)?;
        packets::accepted(&answer)?;
        Ok(peer)
    }

    /// Sends bytes, whatever they are.
    ///
    /// # Errors
    /// If the connection is broken, or the server takes nothing for ten seconds.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// The next packet of this type. Packets of other types before it are thrown away.
    ///
    /// # Errors
    /// If the connection ends first, or nothing comes for ten seconds.
    pub(super) fn wait_for(&mut self, packet_type: u8) -> io::Result<Vec<u8>> {
        loop {
            let packet = self.next_packet()?;
            if packet[0] >> 4 == packet_type {
                return Ok(packet);
            }
        }
    }

    /// The next packet.
    ///
    /// # Errors
    /// If the connection ends first, or nothing comes for ten seconds.
    pub(super) fn next_packet(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let packet = crate::frames::packet_len(&self.received).map_err(io::Error::other)?;
            if let Some(len) = packet.filter(|len| *len <= self.received.len()) {
                return Ok(self.received.drain(..len).collect());
            }
            if self.read()? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Throws away what has arrived, without waiting. Returns whether the server has not ended the connection.
    pub(super) fn discard(&mut self) -> bool {
        self.received.clear();
        if self.stream.set_nonblocking(true).is_err() {
            return false;
        }
        let is_open = loop {
            match self.read() {
                Ok(0) => break false,
                Ok(_) => self.received.clear(),
                Err(error) => break error.kind() == io::ErrorKind::WouldBlock,
            }
        };
        is_open && self.stream.set_nonblocking(false).is_ok()
    }

    /// Sends as much as the system takes at once, without waiting for the server.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.stream.set_nonblocking(true).is_ok() {
            // A server that takes nothing is what this is about.
            let _ = self.stream.write(bytes);
            let _ = self.stream.set_nonblocking(false);
        }
    }

    /// Says that nothing more will be sent, and waits until the server has ended the connection.
    ///
    /// # Errors
    /// If the server does not do so within ten seconds.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        while self.read()? > 0 {
            self.received.clear();
        }
        Ok(())
    }

    fn read(&mut self) -> io::Result<usize> {
        let held = self.received.len();
        self.received.resize(held + READ_LEN, 0);
        let read = self.stream.read(&mut self.received[held..]);
        self.received.truncate(held + read.as_ref().map_or(0, |len| *len));
        read
    }
}
