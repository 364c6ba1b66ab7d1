//! One non-blocking connection with what could not be sent or handled yet.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;

use mio::net::TcpStream;

use crate::layers::Layers;

/// Most bytes that one read takes.
pub(crate) const READ_LEN: usize = 64 * 1024;

/// A connection, edge-triggered: whoever is told that it is readable reads until it is drained.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: TcpStream,
    /// The start of a packet whose end has not arrived.
    partial: Vec<u8>,
    /// Bytes that the kernel has not accepted yet.
    unsent: Vec<u8>,
    /// TLS and WebSocket. Without them, bytes pass between MQTT and the socket as they are.
    layers: Option<Box<Layers>>,
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
        Self { stream, partial: Vec::new(), unsent: Vec::new(), layers: layers.map(Box::new) }
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
        let received = match &mut self.layers {
            None => read(&mut self.stream, place)?,
            Some(layers) => layers.read(&mut self.stream, place)?,
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
        if let Some(layers) = &mut self.layers {
            return layers.send(&mut self.stream, bytes);
        }
        let written = if self.unsent.is_empty() { write(&mut self.stream, bytes)? } else { 0 };
        self.unsent.extend_from_slice(&bytes[written..]);
        Ok(())
    }

    /// Sends what is kept, as far as the kernel takes it.
    ///
    /// # Errors
    /// What the system says of the connection.
    #[inline]
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if let Some(layers) = &mut self.layers {
            return layers.flush(&mut self.stream);
        }
        if !self.unsent.is_empty() {
            let written = write(&mut self.stream, &self.unsent)?;
            self.unsent.drain(..written);
        }
        Ok(())
    }

    /// Whether bytes wait for the kernel to take them.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        match &self.layers {
            None => !self.unsent.is_empty(),
            Some(layers) => layers.is_behind(),
        }
    }

    /// Sends `bytes`, and lets the peer know that nothing follows.
    ///
    /// # Errors
    /// What the system says of the connection.
    pub(crate) fn finish(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.send(bytes)?;
        if let Some(layers) = &mut self.layers {
            layers.end(&mut self.stream)?;
        }
        self.stream.shutdown(Shutdown::Write)
    }

    /// Whether the TLS handshake went on from an earlier one. `None` before its end, and without TLS.
    pub(crate) fn is_resumed(&self) -> Option<bool> {
        self.layers.as_ref()?.is_resumed()
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
