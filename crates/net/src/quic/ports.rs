//! The UDP socket of a QUIC listener, before the shards have it.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;

use layers::quic::QuicLimits;
use mio::{Interest, Registry};
use quinn_udp::UdpSocketState;

use super::socket::{QuicSocket, Udp};
use crate::listener::token;

/// A UDP socket in a place among all listeners.
pub(crate) struct Port {
    pub(crate) place: u16,
    socket: UdpSocket,
    state: Arc<UdpSocketState>,
}

impl Port {
    /// Prepares a socket. Returns also the limits of its door.
    ///
    /// # Errors
    /// The system refuses an option of the socket.
    pub(crate) fn new(place: u16, socket: QuicSocket) -> io::Result<(Self, QuicLimits)> {
        let QuicSocket { socket, limits } = socket;
        let state = Udp::prepare(&socket)?;
        Ok((Self { place, socket, state }, limits))
    }

    /// The same for another shard.
    ///
    /// # Errors
    /// There are no more descriptors.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { place: self.place, socket: self.socket.try_clone()?, state: Arc::clone(&self.state) })
    }

    /// Whether the network may cut datagrams.
    pub(crate) fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    /// The socket for a shard. All shards send; one reads.
    ///
    /// # Errors
    /// The system refuses to watch the socket.
    pub(super) fn udp(&self, registry: &Registry, reads: bool) -> io::Result<Udp> {
        let interest = if reads { Interest::READABLE | Interest::WRITABLE } else { Interest::WRITABLE };
        Udp::new(&self.socket, &self.state, (registry, token(self.place)), interest)
    }
}
