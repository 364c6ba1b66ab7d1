//! Connections over TCP, and from processes of this machine.

use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};

use mio::event::Source;
use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::SockRef;
use stream::{Received, Stream};

/// The peer may have reset the connection: that is an error, and no signal. Apple's systems do not have the flag, and Rust
/// programs ignore the signal.
#[cfg(not(target_vendor = "apple"))]
const SEND: SendFlags = SendFlags::NOSIGNAL;
#[cfg(target_vendor = "apple")]
const SEND: SendFlags = SendFlags::empty();

/// A socket that never blocks.
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// Reads, and writes of one piece, are plain system calls. Those of the C library are points at which a thread may be
/// cancelled, and tell the thread so before and after each call.
impl Stream for Socket {
    /// A read that does not fill the buffer has emptied the socket, and epoll and kqueue report what comes later anew.
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let (bytes, _) = recv(self.descriptor(), &mut *buffer, RecvFlags::empty())?;
        Ok(Received { bytes, is_drained: bytes < buffer.len() })
    }

    fn has_arrived(&mut self) -> bool {
        let peeked = SockRef::from(&self.descriptor()).peek(&mut [MaybeUninit::uninit()]);
        match peeked {
            Ok(_) => true,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    #[inline]
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        match (self, pieces) {
            (socket, [piece]) => Ok(send(socket.descriptor(), piece, SEND)?),
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
    fn descriptor(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }

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
