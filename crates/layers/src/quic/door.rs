//! The door of a listener: which connection a datagram is for, and which connections begin.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::{
    Connection, ConnectionEvent, ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, EndpointEvent,
    Incoming, ServerConfig, Transmit,
};

use super::settings::{self, QuicLimits};
use crate::tls::Current;

/// A datagram as the socket has received it.
#[derive(Debug)]
pub struct Datagram {
    /// The address that it claims to come from.
    pub remote: SocketAddr,
    /// The address of this machine that it was sent to, if the system tells it.
    pub local_ip: Option<IpAddr>,
    /// Its mark of congestion.
    pub ecn: Option<EcnCodepoint>,
    /// The bytes of the datagram.
    pub bytes: BytesMut,
}

/// The meaning of a datagram.
pub enum Arrival {
    /// The datagram is for nobody, or for a connection that waits to be accepted.
    Nothing,
    /// The datagram is for this connection.
    For(ConnectionHandle, ConnectionEvent),
    /// The answer in the buffer is to be sent.
    Answer(Transmit),
    /// The same. The client was asked to prove its address.
    Retry(Transmit),
    /// The same. There are as many handshakes as there may be, of all addresses or of this one.
    Refused(Transmit),
}

/// A connection whose handshake has begun.
pub struct Begun {
    pub(super) connection: Connection,
    pub(super) handshake: Handshake,
    pub(super) limits: QuicLimits,
}

/// A connection counts as one more handshake until this is dropped.
pub(super) struct Handshake {
    all: Arc<AtomicUsize>,
    _of_host: Option<OfHost>,
}

impl Handshake {
    fn count(all: &Arc<AtomicUsize>, of_host: Option<OfHost>) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self { all: Arc::clone(all), _of_host: of_host }
    }
}

impl Drop for Handshake {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A handshake of a proven address. The number of references, without that of the door, is the number of its handshakes.
type OfHost = Arc<()>;

/// The part of all handshakes that one proven address may have at a time: an eighth, of 64 bits of IPv6 together.
const SHARE: usize = 8;

/// The handshakes of proven addresses.
#[derive(Default)]
struct Hosts(HashMap<IpAddr, OfHost>);

impl Hosts {
    /// Counts one more handshake of an address. `None` if the address has as many as it may.
    fn count(&mut self, address: IpAddr, handshakes_max: usize) -> Option<OfHost> {
        if self.0.len() >= 2 * handshakes_max {
            // At most half of them stay. The next cleaning is at least as many handshakes away.
            self.0.retain(|_, handshakes| Arc::strong_count(handshakes) > 1);
        }
        let handshakes = self.0.entry(network(address)).or_default();
        let is_full = Arc::strong_count(handshakes) > handshakes_max.div_ceil(SHARE);
        (!is_full).then(|| Arc::clone(handshakes))
    }
}

/// An address of IPv4, or the first 64 bits of one of IPv6, which are one customer's.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

/// The connection ids of a listener, and the connections that knock.
pub struct Door {
    endpoint: Endpoint,
    tls: Arc<Current>,
    /// The configuration of TLS behind `server`.
    used: Arc<rustls::ServerConfig>,
    server: Arc<ServerConfig>,
    limits: QuicLimits,
    waiting: VecDeque<(Incoming, Option<OfHost>)>,
    handshakes: Arc<AtomicUsize>,
    hosts: Hosts,
}

impl Door {
    /// A door without connections. `None` if QUIC cannot use this configuration of TLS.
    ///
    /// `may_fragment` says that the network may cut datagrams. Their size is then not raised.
    pub fn new(tls: Arc<Current>, limits: QuicLimits, may_fragment: bool) -> Option<Self> {
        let used = tls.config();
        let server = Arc::new(limits.server(&used)?);
        let endpoint = Endpoint::new(settings::endpoint(), Some(Arc::clone(&server)), !may_fragment, None);
        Some(Self {
            endpoint,
            tls,
            used,
            server,
            limits,
            waiting: VecDeque::new(),
            handshakes: Arc::default(),
            hosts: Hosts::default(),
        })
    }

    /// Takes in a datagram. An answer is appended to `buffer`. With `asks_proof`, every client has to prove its address.
    pub fn receive(
        &mut self,
        now: Instant,
        datagram: Datagram,
        asks_proof: bool,
        buffer: &mut Vec<u8>,
    ) -> Arrival {
        let Datagram { remote, local_ip, ecn, bytes } = datagram;
        let incoming = match self.endpoint.handle(now, remote, local_ip, ecn, bytes, buffer) {
            None => return Arrival::Nothing,
            Some(DatagramEvent::ConnectionEvent(handle, event)) => return Arrival::For(handle, event),
            Some(DatagramEvent::Response(answer)) => return Arrival::Answer(answer),
            Some(DatagramEvent::NewConnection(incoming)) => incoming,
        };
        let handshakes = self.handshakes();
        let is_unproven = !incoming.remote_address_validated();
        if is_unproven && (asks_proof || handshakes >= self.limits.handshakes_max.div_ceil(4)) {
            // An address that is not proven may always be asked for a proof.
            let retry = self.endpoint.retry(incoming, buffer);
            return retry.map_or(Arrival::Nothing, Arrival::Retry);
        }
        if handshakes >= self.limits.handshakes_max {
            return Arrival::Refused(self.endpoint.refuse(incoming, buffer));
        }
        // An address that is not proven has no share: somebody else could use it up.
        let of_host = match is_unproven {
            true => None,
            false => match self.hosts.count(remote.ip(), self.limits.handshakes_max) {
                None => return Arrival::Refused(self.endpoint.refuse(incoming, buffer)),
                counted => counted,
            },
        };
        self.waiting.push_back((incoming, of_host));
        Arrival::Nothing
    }

    /// Connections whose handshake is not complete, those that wait to be accepted included.
    pub fn handshakes(&self) -> usize {
        self.handshakes.load(Ordering::Relaxed) + self.waiting.len()
    }

    /// The address of the next connection that waits to be accepted. The address may be forged.
    pub fn next_waiting(&self) -> Option<SocketAddr> {
        self.waiting.front().map(|(incoming, _)| incoming.remote_address())
    }

    /// Accepts the connection that waits longest. This costs a signature. Returns an answer to be sent if the connection
    /// is none.
    pub fn accept(
        &mut self,
        now: Instant,
        buffer: &mut Vec<u8>,
    ) -> Option<Result<(ConnectionHandle, Begun), Option<Transmit>>> {
        let (incoming, of_host) = self.waiting.pop_front()?;
        self.renew();
        let server = Some(Arc::clone(&self.server));
        Some(match self.endpoint.accept(incoming, now, buffer, server) {
            Ok((handle, connection)) => {
                let handshake = Handshake::count(&self.handshakes, of_host);
                Ok((handle, Begun { connection, handshake, limits: self.limits }))
            }
            Err(error) => Err(error.response),
        })
    }

    /// Refuses the connection that waits longest. Returns the answer.
    pub fn refuse(&mut self, buffer: &mut Vec<u8>) -> Option<Transmit> {
        let (incoming, _) = self.waiting.pop_front()?;
        Some(self.endpoint.refuse(incoming, buffer))
    }

    /// Takes in what a connection says about its connection ids. Returns what the connection has to know.
    pub fn handle_event(&mut self, of: ConnectionHandle, event: EndpointEvent) -> Option<ConnectionEvent> {
        self.endpoint.handle_event(of, event)
    }

    /// Uses the certificates that are current. The key of Retry stays: a client that was asked to prove its address meanwhile
    /// can do so.
    fn renew(&mut self) {
        let tls = self.tls.config();
        if !Arc::ptr_eq(&tls, &self.used)
            && let Some(crypto) = settings::crypto(&tls)
        {
            Arc::make_mut(&mut self.server).crypto = crypto;
            self.used = tls;
        }
    }
}
