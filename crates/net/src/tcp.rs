//! Connections over TCP.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;

use mio::net::TcpStream;
use turn::{Received, Stream};

/// A socket that never blocks.
pub(crate) struct Tcp(pub(crate) TcpStream);

impl Stream for Tcp {
    /// A read that does not fill the buffer has emptied the socket, and epoll and kqueue report what comes later anew.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let bytes = self.0.read(buffer)?;
        Ok(Received { bytes, is_drained: bytes < buffer.len() })
    }

    fn has_arrived(&mut self) -> bool {
        match self.0.peek(&mut [0]) {
            Ok(_) => true,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match pieces {
            [piece] => self.0.write(piece),
            _ => self.0.write_vectored(pieces),
        }
    }

    fn shut_down_write(&mut self) {
        // The peer may have reset the connection already: then there is nothing to shut.
        drop(self.0.shutdown(Shutdown::Write));
    }
}
