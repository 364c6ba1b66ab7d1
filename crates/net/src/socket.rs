//! Connections over TCP, and from processes of this machine.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use socket2::SockRef;
use stream::{Received, Stream};

/// A socket that never blocks.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream for Socket {
    /// A read that does not fill the buffer has emptied the socket, and epoll and kqueue report what comes later anew.
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let bytes = match self {
            Self::Tcp(socket) => socket.read(buffer)?,
            Self::Unix(socket) => socket.read(buffer)?,
        };
        Ok(Received { bytes, is_drained: bytes < buffer.len() })
    }

    fn has_arrived(&mut self) -> bool {
        let peeked = match self {
            Self::Tcp(socket) => socket.peek(&mut [0]),
            Self::Unix(socket) => SockRef::from(&*socket).peek(&mut [MaybeUninit::uninit()]),
        };
        match peeked {
            Ok(_) => true,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    #[inline]
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, pieces) {
            (Self::Tcp(socket), [piece]) => socket.write(piece),
            (Self::Tcp(socket), _) => socket.write_vectored(pieces),
            (Self::Unix(socket), _) => socket.write_vectored(pieces),
        }
    }

    fn shut_down_write(&mut self) {
        // The peer may have reset the connection already: then there is nothing to shut.
        match self {
            Self::Tcp(socket) => drop(socket.shutdown(Shutdown::Write)),
            Self::Unix(socket) => drop(socket.shutdown(Shutdown::Write)),
        }
    }
}

impl Socket {
    fn source(&mut self) -> &mut dyn Source {
        match self {
            Self::Tcp(socket) => socket,
            Self::Unix(socket) => socket,
        }
    }
}

impl Source for Socket {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.source().register(registry, token, interests)
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        self.source().reregister(registry, token, interests)
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        self.source().deregister(registry)
    }
}

/// A plain connection takes no more memory than one over TCP alone would.
#[cfg(not(debug_assertions))]
const _: () = assert!(size_of::<layers::Layered<Socket>>() == size_of::<layers::Layered<TcpStream>>());
