//! The QUIC listeners of a process, before its shards have them.

use std::io;
use std::net::UdpSocket;
use std::sync::Arc;

use base::ShardId;
use broker::Counters;
use layers::quic::Door;
use mio::{Interest, Registry};
use quinn_udp::UdpSocketState;

use super::doors::{Doors, Entrance};
use super::socket::{QuicSocket, Udp};
use super::{DOORS, Quic};
use crate::listener::{Acceptor, Listening, token};
use crate::rate::Rates;
use crate::switchboard::Switchboard;

/// All QUIC listeners, and their doors.
pub(crate) struct Ports {
    shards: usize,
    ports: Vec<Port>,
    /// Until the shard with the doors has them.
    doors: Vec<Entrance>,
}

struct Port {
    listener: u16,
    socket: UdpSocket,
    state: Arc<UdpSocketState>,
}

impl Ports {
    /// Makes a door for each of these listeners, which have numbers among all.
    ///
    /// # Errors
    /// The system refuses an option of a socket, or a listener has no certificate.
    pub(crate) fn new(listening: Vec<(u16, Listening)>, shards: usize) -> io::Result<Self> {
        let mut ports = Self { shards, ports: Vec::new(), doors: Vec::new() };
        for (listener, listening) in listening {
            let Listening { socket, admission, connections_max, stack, rates, .. } = listening;
            let Acceptor::Quic(QuicSocket { socket, limits }) = socket else { continue };
            let state = Udp::prepare(&socket)?;
            let tls = stack.tls.clone();
            let door = tls.and_then(|tls| Door::new(tls, limits, state.may_fragment())).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, "a QUIC listener needs a certificate")
            })?;
            let (rates, routes) = (Rates::new(rates), Vec::new());
            ports.doors.push(Entrance { door, listener, admission, connections_max, rates, routes });
            ports.ports.push(Port { listener, socket, state });
        }
        Ok(ports)
    }

    /// The part of a shard. `None` if there is no QUIC listener.
    pub(crate) fn of_shard(
        &mut self,
        shard: ShardId,
        registry: &Registry,
        switchboard: &Arc<Switchboard>,
        (connections_max, counters): (usize, &Arc<Counters>),
    ) -> io::Result<Option<Box<Quic>>> {
        let Some(last) = self.ports.last() else { return Ok(None) };
        let interest = if shard.number() == DOORS {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::WRITABLE
        };
        let mut sockets: Vec<Option<Udp>> = (0..=last.listener).map(|_| None).collect();
        for Port { listener, socket, state } in &self.ports {
            let udp = Udp::new(socket, state, (registry, token(*listener)), interest)?;
            sockets[usize::from(*listener)] = Some(udp);
        }
        let doors = (shard.number() == DOORS).then(|| {
            let budget = Arc::clone(switchboard.board.budget());
            let doors = std::mem::take(&mut self.doors);
            Doors::new(doors, self.shards, connections_max, (Arc::clone(counters), budget))
        });
        Ok(Some(Box::new(Quic::new(shard, sockets, doors, (switchboard, counters)))))
    }
}
