//! The bytes of a peer on their way to the broker: over TCP, or over TLS over TCP.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use rustix::net::sockopt;

use crate::secure::Secure;

/// A connection to the broker.
pub(crate) enum Link {
    Tcp(TcpStream),
    Tls(Box<Secure>),
}

impl Link {
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Tcp(socket) => socket,
            Self::Tls(secure) => secure.socket(),
        }
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) -> io::Result<()> {
        Ok(sockopt::set_socket_linger(self.socket(), Some(Duration::ZERO))?)
    }

    /// Ends the direction to the broker, over TLS with or without close_notify.
    pub(crate) fn end(&mut self) {
        if let Self::Tls(secure) = self {
            secure.end();
        }
        // The broker may have ended the connection already.
        let _ = self.socket().shutdown(Shutdown::Write);
    }
}

impl Read for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(buffer),
            Self::Tls(secure) => secure.read(buffer),
        }
    }
}

impl Write for Link {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(bytes),
            Self::Tls(secure) => secure.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.flush(),
            Self::Tls(secure) => secure.flush(),
        }
    }
}
