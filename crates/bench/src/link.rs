//! One non-blocking connection with what could not be sent or handled yet.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::Instant;

use mio::event::Source;
use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use crate::layers::{Layers, Quic};

/// Most bytes that one read takes.
pub(crate) const READ_LEN: usize = 64 * 1024;

/// A connection, edge-triggered: whoever is told that it is readable reads until it is drained.
#[derive(Debug)]
pub(crate) struct Link {
    transport: Transport,
    /// The start of a packet whose end has not arrived.
    partial: Vec<u8>,
    /// Bytes that the kernel has not accepted yet, over TCP alone.
    unsent: Vec<u8>,
}

#[derive(Debug)]
enum Transport {
    Tcp(TcpStream),
    /// With TLS or WebSocket.
    Layered(TcpStream, Box<Layers>),
    Quic(Box<Quic>),
}

/// Result of one read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// The buffer now starts with `len` bytes, of which the first may have waited for the rest; `drained` says
    /// that nothing more is there to be read.
    Bytes { len: usize, drained: bool },
    /// Nothing is there to be read.
    Nothing,
    /// The peer has closed the connection.
    Closed,
}

impl Link {
    pub(crate) fn new(stream: TcpStream, layers: Option<Layers>) -> Self {
        Self::over(match layers {
            None => Transport::Tcp(stream),
            Some(layers) => Transport::Layered(stream, Box::new(layers)),
        })
    }

    /// A connection of QUIC.
    pub(crate) fn quic(quic: Quic) -> Self {
        Self::over(Transport::Quic(Box::new(quic)))
    }

    fn over(transport: Transport) -> Self {
        Self { transport, partial: Vec::new(), unsent: Vec::new() }
    }

    /// Lets the poller report what happens to the socket.
    ///
    /// # Errors
    /// If the system has no room for it.
    pub(crate) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(self.source(), token, Interest::READABLE | Interest::WRITABLE)
    }

    /// The poller reports nothing more.
    ///
    /// # Errors
    /// If it reports nothing already.
    pub(crate) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        registry.deregister(self.source())
    }

    fn source(&mut self) -> &mut dyn Source {
        match &mut self.transport {
            Transport::Tcp(stream) | Transport::Layered(stream, _) => stream,
            Transport::Quic(quic) => quic.socket(),
        }
    }

    /// Ends the connection without a farewell.
    pub(crate) fn cut(&mut self) {
        match &mut self.transport {
            // A connection that is broken already needs no end.
            Transport::Tcp(stream) | Transport::Layered(stream, _) => drop(stream.shutdown(Shutdown::Both)),
            Transport::Quic(quic) => quic.close(),
        }
    }

    /// Reads at most as many bytes as `buffer` has, and forgets them. Over layers, nothing can be read afterwards.
    pub(crate) fn discard(&mut self, buffer: &mut [u8]) {
        // Nothing may be there; and a connection that is broken is found out about by who uses it.
        match &mut self.transport {
            Transport::Tcp(stream) | Transport::Layered(stream, _) => drop(stream.read(buffer)),
            Transport::Quic(quic) => drop(quic.read(buffer)),
        }
    }

    /// Does what the kernel does for TCP: acknowledges, and sends again. Returns whether anything was due.
    ///
    /// # Errors
    /// What the system says of the connection.
    pub(crate) fn serve(&mut self, now: Instant, only_if_due: bool) -> io::Result<bool> {
        let Transport::Quic(quic) = &mut self.transport else { return Ok(false) };
        if only_if_due && quic.timeout().is_none_or(|due| due > now) {
            return Ok(false);
        }
        quic.serve(now).map(|()| true)
    }

    /// Reads once into `buffer`, behind the bytes that wait for the rest of their packet.
    ///
    /// The caller gives back with [`Self::keep`] what it could not use. `buffer` holds [`READ_LEN`] bytes and
    /// the longest packet.
    ///
    /// # Errors
    /// What the system says of the connection, and `InvalidData` for a packet longer than `buffer` allows.
    #[inline]
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let kept = self.partial.len();
        if kept + READ_LEN > buffer.len() {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "the packet is longer than any that was asked for",
            ));
        }
        let place = &mut buffer[kept..kept + READ_LEN];
        let received = match &mut self.transport {
            Transport::Tcp(stream) => read(stream, place)?,
            Transport::Layered(stream, layers) => layers.read(stream, place)?,
            Transport::Quic(quic) => quic.read(place)?,
        };
        let Received::Bytes { len, drained } = received else { return Ok(received) };
        buffer[..kept].copy_from_slice(&self.partial);
        self.partial.clear();
        Ok(Received::Bytes { len: kept + len, drained })
    }

    /// Keeps bytes of an incomplete packet until the next read.
    #[inline]
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
    }

    /// Sends `bytes` after all that was sent before; what the kernel does not take is kept for [`Self::flush`].
    ///
    /// # Errors
    /// What the system says of the connection.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stream = match &mut self.transport {
            Transport::Tcp(stream) => stream,
            Transport::Layered(stream, layers) => return layers.send(stream, bytes),
            Transport::Quic(quic) => return quic.send(bytes),
        };
        let written = if self.unsent.is_empty() { write(stream, bytes)? } else { 0 };
        self.unsent.extend_from_slice(&bytes[written..]);
        Ok(())
    }

    /// Sends what is kept, as far as the kernel takes it.
    ///
    /// # Errors
    /// What the system says of the connection.
    #[inline]
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let stream = match &mut self.transport {
            Transport::Tcp(stream) => stream,
            Transport::Layered(stream, layers) => return layers.flush(stream),
            Transport::Quic(quic) => return quic.flush(),
        };
        if !self.unsent.is_empty() {
            let written = write(stream, &self.unsent)?;
            self.unsent.drain(..written);
        }
        Ok(())
    }

    /// Whether bytes wait for the kernel to take them.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        match &self.transport {
            Transport::Tcp(_) => !self.unsent.is_empty(),
            Transport::Layered(_, layers) => layers.is_behind(),
            Transport::Quic(quic) => quic.is_behind(),
        }
    }

    /// Sends `bytes`, and lets the peer know that nothing follows.
    ///
    /// # Errors
    /// What the system says of the connection.
    pub(crate) fn finish(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send(bytes)?;
        match &mut self.transport {
            Transport::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Transport::Layered(stream, layers) => {
                layers.end(stream)?;
                stream.shutdown(Shutdown::Write)
            }
            Transport::Quic(quic) => quic.finish(),
        }
    }

    /// Whether the TLS handshake went on from an earlier one. `None` before its end, and without TLS.
    pub(crate) fn is_resumed(&self) -> Option<bool> {
        match &self.transport {
            Transport::Layered(_, layers) => layers.is_resumed(),
            Transport::Tcp(_) | Transport::Quic(_) => None,
        }
    }
}

/// Reads once.
///
/// # Errors
/// What the system says of the connection.
#[inline]
pub(crate) fn read(socket: &mut impl Read, buffer: &mut [u8]) -> io::Result<Received> {
    loop {
        match socket.read(buffer) {
            Ok(0) => return Ok(Received::Closed),
            // Less than asked for means that the socket is empty: saves the read that would say so.
            Ok(len) => return Ok(Received::Bytes { len, drained: len < buffer.len() }),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Received::Nothing),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes as much of `bytes` as the kernel takes now, in one call, and returns how much that was.
///
/// # Errors
/// What the system says of the connection.
#[inline]
pub(crate) fn write(socket: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match socket.write(bytes) {
            Ok(written) => return Ok(written),
            // A connection that is not established yet takes nothing, and is writable when it is.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                return Ok(0);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
