//! UDP sockets of QUIC listeners.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use bytes::BytesMut;
use layers::quic::{Datagram, EcnCodepoint, QuicLimits, Transmit};
use mio::{Interest, Registry, Token};
use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use socket2::{Domain, Protocol, SockRef, Type};

use crate::listener::{TcpOptions, bind_interface, plain};

/// Datagrams that the kernel keeps while the broker is busy, in bytes. The kernel may allow less.
const KERNEL_BYTES: usize = 4 * 1024 * 1024;
/// Calls that receive datagrams for one listener in a turn.
const RECEIVES_PER_TURN: usize = 8;
/// Maximum number of batches that one such call receives. A batch has the datagrams of one sender.
const BATCHES: usize = 8;
/// Maximum bytes of a datagram that is received: the default of quinn-proto, which clients are told.
const DATAGRAM_BYTES: usize = 1_472;
/// Bytes that wait for a socket that takes nothing. More is dropped, as the network may do at any time.
const BACKLOG_BYTES: usize = 1024 * 1024;
/// Maximum number of datagrams that one call sends, as quinn does.
const SEGMENTS_MAX: usize = 10;

/// A UDP socket for QUIC, as [`listen_quic`] makes it.
#[derive(Debug)]
pub struct QuicSocket {
    pub(crate) socket: UdpSocket,
    pub(crate) limits: QuicLimits,
}

impl QuicSocket {
    /// The address of the socket.
    ///
    /// # Errors
    /// As the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// Binds a UDP socket for QUIC. Datagrams wait until [`Server::start`](crate::Server::start) takes it. A UDP socket has no
/// backlog of connections.
///
/// # Errors
/// As for [`listen`](crate::listen).
pub fn listen_quic(
    address: SocketAddr,
    options: TcpOptions<'_>,
    limits: QuicLimits,
) -> io::Result<QuicSocket> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(options.ipv6_only)?;
    }
    if let Some(interface) = options.interface {
        bind_interface(&socket, interface)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(QuicSocket { socket: socket.into(), limits })
}

/// A socket as one shard has it. All shards send; one receives.
pub(crate) struct Udp {
    socket: mio::net::UdpSocket,
    state: Arc<UdpSocketState>,
    /// The kernel has announced datagrams, and not all of them were read.
    readable: bool,
    /// Datagrams that the kernel did not take, until it takes some again.
    backlog: VecDeque<(Transmit, Vec<u8>)>,
    backlog_bytes: usize,
}

impl Udp {
    /// The state that all shards share.
    pub(crate) fn prepare(socket: &UdpSocket) -> io::Result<Arc<UdpSocketState>> {
        let buffers = SockRef::from(socket);
        // The kernel has a limit of its own.
        drop(buffers.set_recv_buffer_size(KERNEL_BYTES));
        drop(buffers.set_send_buffer_size(KERNEL_BYTES));
        UdpSocketState::new(UdpSockRef::from(socket)).map(Arc::new)
    }

    pub(crate) fn new(
        socket: &UdpSocket,
        state: &Arc<UdpSocketState>,
        (registry, token): (&Registry, Token),
        interest: Interest,
    ) -> io::Result<Self> {
        let mut socket = mio::net::UdpSocket::from_std(socket.try_clone()?);
        registry.register(&mut socket, token, interest)?;
        let (backlog, backlog_bytes) = (VecDeque::new(), 0);
        Ok(Self { socket, state: Arc::clone(state), readable: false, backlog, backlog_bytes })
    }

    pub(crate) fn woken(&mut self, readable: bool, writable: bool) {
        self.readable |= readable;
        if writable {
            self.flush();
        }
    }

    /// Whether datagrams may wait in the kernel.
    pub(crate) fn is_readable(&self) -> bool {
        self.readable
    }

    pub(crate) fn segments_max(&self) -> usize {
        self.state.max_gso_segments().clamp(1, SEGMENTS_MAX)
    }

    /// Sends datagrams, behind those that wait. Returns false if they were dropped.
    pub(crate) fn send(&mut self, transmit: &Transmit, bytes: &[u8]) -> bool {
        if self.backlog.is_empty() && self.try_send(transmit, bytes) {
            return true;
        }
        if self.backlog_bytes + bytes.len() > BACKLOG_BYTES {
            return false;
        }
        self.backlog_bytes += bytes.len();
        let Transmit { destination, ecn, size, segment_size, src_ip } = *transmit;
        self.backlog.push_back((Transmit { destination, ecn, size, segment_size, src_ip }, bytes.to_vec()));
        true
    }

    fn flush(&mut self) {
        while let Some((transmit, bytes)) = self.backlog.front() {
            if !self.try_send(transmit, bytes) {
                return;
            }
            self.backlog_bytes -= bytes.len();
            self.backlog.pop_front();
        }
        self.backlog = VecDeque::new();
    }

    /// Returns false if the kernel takes nothing now. Other errors count as losses of the network.
    fn try_send(&self, transmit: &Transmit, bytes: &[u8]) -> bool {
        let transmit = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: bytes,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        let sent = self.state.send(UdpSockRef::from(&self.socket), &transmit);
        !sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Receives what has arrived, as much as a turn may.
    pub(crate) fn receive(&mut self, buffer: &mut Vec<u8>, mut take: impl FnMut(&mut Self, Datagram)) {
        let batch_bytes = self.state.gro_segments().max(1) * DATAGRAM_BYTES;
        buffer.resize(BATCHES * batch_bytes, 0);
        for _ in 0..RECEIVES_PER_TURN {
            let mut slices: Vec<IoSliceMut<'_>> =
                buffer.chunks_exact_mut(batch_bytes).map(IoSliceMut::new).collect();
            let mut batches = [RecvMeta::default(); BATCHES];
            let received = self.state.recv(UdpSockRef::from(&self.socket), &mut slices, &mut batches);
            match received {
                Ok(count) => {
                    for (meta, bytes) in batches.iter().zip(buffer.chunks_exact(batch_bytes)).take(count) {
                        let datagrams = bytes[..meta.len].chunks(meta.stride.max(1));
                        datagrams.for_each(|bytes| take(self, datagram(meta, bytes)));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.readable = false;
                    return;
                }
                // An answer of the network to a datagram that was sent, which says nothing for certain.
                Err(_) => {}
            }
        }
    }
}

fn datagram(meta: &RecvMeta, bytes: &[u8]) -> Datagram {
    Datagram {
        remote: meta.addr,
        local_ip: meta.dst_ip,
        ecn: meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8)),
        bytes: BytesMut::from(bytes),
    }
}

/// The address of a client as the log names it.
pub(crate) fn peer(remote: SocketAddr) -> SocketAddr {
    plain(remote)
}
