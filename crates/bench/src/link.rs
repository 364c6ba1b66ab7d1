//! One non-blocking TCP connection with what could not be sent or handled yet.

use std::io::{self, ErrorKind, Read, Write};

use mio::net::TcpStream;

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
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, partial: Vec::new(), unsent: Vec::new() }
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
        let received = loop {
            match self.stream.read(&mut buffer[kept..kept + READ_LEN]) {
                Ok(0) => return Ok(Received::Closed),
                Ok(received) => break received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Received::Nothing),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        buffer[..kept].copy_from_slice(&self.partial);
        self.partial.clear();
        // Less than asked for means that the socket is empty: saves the read that would say so.
        Ok(Received::Bytes { len: kept + received, drained: received < READ_LEN })
    }

    /// Keeps bytes of an incomplete packet until the next read.
    #[inline]
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        self.partial.extend_from_slice(bytes);
    }

    /// Writes as much of `bytes` as the kernel takes now, in one call, and returns how much that was.
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.stream.write(bytes) {
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

    /// Sends `bytes` after all that was sent before; what the kernel does not take is kept for [`Self::flush`].
    ///
    /// # Errors
    /// What the system says of the connection.
    #[inline]
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = if self.unsent.is_empty() { self.write(bytes)? } else { 0 };
        self.unsent.extend_from_slice(&bytes[written..]);
        Ok(())
    }

    /// Sends what is kept, as far as the kernel takes it.
    ///
    /// # Errors
    /// What the system says of the connection.
    #[inline]
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.unsent.is_empty() {
            return Ok(());
        }
        let unsent = std::mem::take(&mut self.unsent);
        let written = self.write(&unsent);
        self.unsent = unsent;
        self.unsent.drain(..written?);
        Ok(())
    }

    /// Whether bytes wait for the kernel to take them.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        !self.unsent.is_empty()
    }
}
