//! Accepting connections: one thread accepts and deals them out, so that limits are kept in one place.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base::ShardId;
use broker::{Admission, Counter, Counters, Counts, Notice};
use ipnet::IpNet;
use layers::{Layered, Stack};
use mio::net::{TcpListener, UnixListener};
use mio::{Interest, Registry, Token};
use socket2::{Domain, Protocol, SockRef, Type};
use stream::Peer;
use turn::{Accepted, Board, Note};
use wire::ReasonCode;

use crate::log::Log;
use crate::quic::QuicSocket;
use crate::rate::{RateLimits, Rates};
use crate::socket::Socket;
use crate::switchboard::Switchboard;
use crate::unix::{self, SocketFile, UnixSocket};

/// Default number of connections that the kernel has accepted and the broker has not.
pub const BACKLOG: i32 = 4096;
/// At most this many are taken in one turn, so that a storm of connects does not delay others.
const ACCEPTS_PER_TURN: usize = 16;
/// When accepting fails, for lack of descriptors or for whatever reason, it waits this long; without the
/// wait it would spin.
const PAUSE_MS: u64 = 250;
/// Said of a connection that is one too many.
pub(crate) const FULL: Notice<'_> = Notice::Refused {
    client_id: "",
    reason: ReasonCode::QuotaExceeded,
    why: "there are as many connections as there may be",
};
/// Said of a connection that is one too many for its listener.
pub(crate) const FULL_LISTENER: Notice<'_> = Notice::Refused {
    client_id: "",
    reason: ReasonCode::QuotaExceeded,
    why: "there are as many connections as there may be on this listener",
};
/// Said of a connection that does not come from a load balancer.
const NO_PROXY: Notice<'_> = Notice::Refused {
    client_id: "",
    reason: ReasonCode::NotAuthorized,
    why: "its address is in no network of `proxy_from`",
};
/// Said of a connection beyond the rate of its listener.
pub(crate) const TOO_FAST: Notice<'_> = Notice::Refused {
    client_id: "",
    reason: ReasonCode::ConnectionRateExceeded,
    why: "there are more connections in this second than `connection_rate` or `connection_rate_per_address` allows",
};
/// Tokens from here on are listeners'; no connection's slot comes near.
const FIRST_TOKEN: usize = 0xffff_0000;

/// How a TCP socket listens.
#[derive(Debug, Clone, Copy)]
pub struct TcpOptions<'a> {
    /// Number of connections that the kernel has accepted and the broker has not.
    pub backlog: i32,
    /// Whether an address of IPv6 is for IPv6 alone. Otherwise `[::]` takes `0.0.0.0` with it.
    pub ipv6_only: bool,
    /// The network interface over which all connections come. `None` is every interface.
    pub interface: Option<&'a str>,
}

impl Default for TcpOptions<'_> {
    fn default() -> Self {
        Self { backlog: BACKLOG, ipv6_only: true, interface: None }
    }
}

/// Binds a TCP socket and listens. Connections that it accepts inherit `TCP_NODELAY`.
///
/// # Errors
/// As the system says: the address is in use, not of this machine, or not permitted; or there is no such interface.
pub(crate) fn listen(address: SocketAddr, options: TcpOptions<'_>) -> io::Result<std::net::TcpListener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(options.ipv6_only)?;
    }
    if let Some(interface) = options.interface {
        bind_interface(&socket, interface)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(options.backlog)?;
    Ok(socket.into())
}

#[cfg(target_os = "linux")]
pub(crate) fn bind_interface(socket: &socket2::Socket, interface: &str) -> io::Result<()> {
    let explain = |error: io::Error| {
        io::Error::new(error.kind(), format!("the interface {interface} cannot be used: {error}"))
    };
    socket.bind_device(Some(interface.as_bytes())).map_err(explain)
}

/// Other systems choose an interface by its number, and for outgoing packets only.
#[cfg(not(target_os = "linux"))]
pub(crate) fn bind_interface(_: &socket2::Socket, _: &str) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "only Linux has listeners on an interface"))
}

/// A socket that listens, and the rules for its connections.
#[derive(Debug)]
pub struct Listening {
    /// The socket that accepts connections.
    pub socket: Acceptor,
    /// The rules for its connections.
    pub rules: Rules,
}

/// The rules of a listener. A reload can replace them.
#[derive(Debug, Clone)]
pub struct Rules {
    /// The rules for its clients.
    pub admission: Admission,
    /// Maximum number of its connections at a time.
    pub connections_max: usize,
    /// The layers that they may have.
    pub stack: Arc<Stack>,
    /// With a PROXY header in the stack: the networks that may send one. All others are closed.
    pub proxy_from: Vec<IpNet>,
    /// How many connections it accepts in a second. All connections of a load balancer have its address.
    pub rates: RateLimits,
}

/// A socket that listens.
#[derive(Debug)]
pub enum Acceptor {
    /// As [`listen`](crate::listen) makes it.
    Tcp(std::net::TcpListener),
    /// As [`listen_unix`](crate::listen_unix) and [`listen_abstract`](crate::listen_abstract) make it.
    Unix(UnixSocket),
    /// As [`listen_quic`](crate::listen_quic) makes it. `stack` has the certificate.
    Quic(QuicSocket),
}

impl Acceptor {
    /// Takes a TCP socket that another process has made.
    ///
    /// # Errors
    /// The socket does not listen, or as the system says.
    pub fn passed_tcp(socket: std::net::TcpListener) -> io::Result<Self> {
        check_listens(&SockRef::from(&socket))?;
        SockRef::from(&socket).set_tcp_nodelay(true)?;
        Ok(Self::Tcp(socket))
    }

    /// Takes a Unix socket that another process has made. The file stays when the socket is closed.
    ///
    /// # Errors
    /// As [`passed_tcp`](Self::passed_tcp).
    pub fn passed_unix(socket: std::os::unix::net::UnixListener) -> io::Result<Self> {
        check_listens(&SockRef::from(&socket))?;
        Ok(Self::Unix(socket.into()))
    }
}

fn check_listens(socket: &SockRef<'_>) -> io::Result<()> {
    if !socket.is_listener()? {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket does not listen"));
    }
    socket.set_nonblocking(true)
}

pub(crate) struct Listeners {
    listeners: Vec<Listener>,
    connections_max: usize,
    counters: Arc<Counters>,
    /// Accepting pauses until then: it has failed, most likely for lack of descriptors.
    resume_ms: Option<u64>,
}

struct Listener {
    socket: Listen,
    /// The place of its socket among all.
    place: u16,
    door: DoorRules,
    stack: Arc<Stack>,
    proxy_from: Vec<IpNet>,
    ready: bool,
}

/// The rules of a listener that hold before its connections speak, and the numbers under which it has accepted.
pub(crate) struct DoorRules {
    /// The number of connections that it accepts from now on.
    pub(crate) number: u16,
    /// The numbers of connections that it has accepted before a reload, and that stay.
    former: Vec<u16>,
    pub(crate) admission: Admission,
    connections_max: usize,
    pub(crate) rates: Rates,
    /// The counts of its connections before they speak, on the shard that accepts.
    counts: Arc<Counts>,
}

impl DoorRules {
    pub(crate) fn new(number: u16, rules: &Rules, counts: Arc<Counts>) -> Self {
        let (admission, rates) = (rules.admission.clone(), Rates::new(rules.rates));
        let connections_max = rules.connections_max;
        Self { number, former: Vec::new(), admission, connections_max, rates, counts }
    }

    /// Counts a connection that is refused for this reason.
    pub(crate) fn count_refused(&self, reason: &Counter) {
        reason.add(1);
        self.counts.refused_connections.add(1);
    }

    /// Accepts under another number, by other rules.
    pub(crate) fn change(&mut self, next: u16, rules: &Rules, board: &Board) {
        if next != self.number {
            self.former.retain(|number| board.connections_of(*number) > 0);
            self.former.push(std::mem::replace(&mut self.number, next));
        }
        self.admission = rules.admission.clone();
        self.connections_max = rules.connections_max;
        self.rates.change(rules.rates);
    }

    /// Whether the listener has as many connections as it may have.
    pub(crate) fn is_full(&self, board: &Board) -> bool {
        let former = self.former.iter().map(|number| board.connections_of(*number));
        former.sum::<usize>() + board.connections_of(self.number) >= self.connections_max
    }
}

/// A socket that listens, for the poll.
enum Listen {
    Tcp(TcpListener),
    /// The file is removed before the socket is closed: nobody takes it for that of a dead broker meanwhile.
    Unix {
        _file: Option<SocketFile>,
        socket: UnixListener,
    },
}

impl Listen {
    fn new(acceptor: Acceptor, registry: &Registry, token: Token) -> io::Result<Self> {
        match acceptor {
            Acceptor::Tcp(socket) => {
                let mut socket = TcpListener::from_std(socket);
                registry.register(&mut socket, token, Interest::READABLE)?;
                Ok(Self::Tcp(socket))
            }
            Acceptor::Unix(UnixSocket { listener, file }) => {
                let mut socket = UnixListener::from_std(listener);
                registry.register(&mut socket, token, Interest::READABLE)?;
                Ok(Self::Unix { _file: file, socket })
            }
            Acceptor::Quic(_) => unreachable!("UDP sockets have doors instead"),
        }
    }

    fn accept(&self) -> io::Result<(Socket, Peer)> {
        match self {
            Self::Tcp(socket) => {
                let (stream, address) = socket.accept()?;
                Ok((Socket::Tcp(stream), plain(address).into()))
            }
            Self::Unix { socket, .. } => {
                let (stream, _) = socket.accept()?;
                let peer = unix::peer(&stream);
                Ok((Socket::Unix(stream), peer))
            }
        }
    }
}

/// The address of a client of IPv4 as such, also on a socket for both.
pub(crate) fn plain(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

impl Listener {
    /// Whether a connection from this address may be one of a load balancer, where only those are accepted.
    fn accepts(&self, peer: Peer) -> bool {
        let Peer::Inet(address) = peer else { return !self.stack.proxy };
        let address = address.ip();
        !self.stack.proxy || self.proxy_from.iter().any(|network| network.contains(&address))
    }
}

/// The token of a listener.
pub(crate) fn token(number: u16) -> Token {
    Token(FIRST_TOKEN + usize::from(number))
}

impl Listeners {
    /// A list without listeners.
    pub(crate) fn new(connections_max: usize, counters: Arc<Counters>) -> Self {
        Self { listeners: Vec::new(), connections_max, counters, resume_ms: None }
    }

    /// Accepts connections on a socket. `counts` are those of this shard.
    pub(crate) fn open(
        &mut self,
        number: u16,
        socket: Acceptor,
        (rules, counts): (&Rules, Arc<Counts>),
        registry: &Registry,
    ) -> io::Result<()> {
        let socket = Listen::new(socket, registry, token(number))?;
        let door = DoorRules::new(number, rules, counts);
        let (stack, proxy_from) = (Arc::clone(&rules.stack), rules.proxy_from.clone());
        self.listeners.push(Listener { socket, place: number, door, stack, proxy_from, ready: false });
        Ok(())
    }

    /// Accepts under another number and by other rules. Returns whether there is such a listener.
    pub(crate) fn change(&mut self, number: u16, next: u16, rules: &Rules, board: &Board) -> bool {
        let Some(listener) = self.listeners.iter_mut().find(|listener| listener.door.number == number) else {
            return false;
        };
        listener.door.change(next, rules, board);
        listener.stack = Arc::clone(&rules.stack);
        listener.proxy_from.clone_from(&rules.proxy_from);
        true
    }

    /// Closes the socket of a listener.
    pub(crate) fn close(&mut self, number: u16) {
        self.listeners.retain(|listener| listener.door.number != number);
    }

    /// Maximum number of connections at a time, on all listeners.
    pub(crate) fn connections_max(&self) -> usize {
        self.connections_max
    }

    /// Changes the number of connections at a time, on all listeners.
    pub(crate) fn change_connections_max(&mut self, connections_max: usize) {
        self.connections_max = connections_max;
    }

    pub(crate) fn owns(token: Token) -> bool {
        token.0 & 0xffff_ffff >= FIRST_TOKEN
    }

    /// The place of the listener with this token among all.
    pub(crate) fn place(token: Token) -> usize {
        token.0 - FIRST_TOKEN
    }

    pub(crate) fn woken(&mut self, place: usize) {
        let listener = self.listeners.iter_mut().find(|listener| usize::from(listener.place) == place);
        listener.into_iter().for_each(|listener| listener.ready = true);
    }

    /// When accepting goes on, if it has something to accept.
    pub(crate) fn resume_ms(&self) -> Option<u64> {
        self.resume_ms.or_else(|| self.listeners.iter().any(|l| l.ready).then_some(0))
    }

    /// Takes what waits and deals it out. What falls to `own` comes back, the rest is posted.
    pub(crate) fn accept(
        &mut self,
        switchboard: &Switchboard,
        own: ShardId,
        log: &mut Log,
        now_ms: u64,
    ) -> Vec<Accepted<Layered<Socket>>> {
        let mut kept = Vec::new();
        if self.resume_ms.is_some_and(|resume| now_ms < resume) {
            return kept;
        }
        self.resume_ms = None;
        for listener in self.listeners.iter_mut().filter(|listener| listener.ready) {
            for _ in 0..ACCEPTS_PER_TURN {
                match listener.socket.accept() {
                    Ok((socket, peer)) if switchboard.board.connections() >= self.connections_max => {
                        listener.door.count_refused(&self.counters.refused_connections_max);
                        log.notice(now_ms, &peer, FULL);
                        drop(socket);
                    }
                    Ok((socket, peer)) if listener.door.is_full(&switchboard.board) => {
                        listener.door.count_refused(&self.counters.refused_connections_listener);
                        log.notice(now_ms, &peer, FULL_LISTENER);
                        drop(socket);
                    }
                    Ok((socket, peer)) if !listener.accepts(peer) => {
                        listener.door.count_refused(&self.counters.refused_proxy);
                        log.notice(now_ms, &peer, NO_PROXY);
                        drop(socket);
                    }
                    Ok((socket, peer)) if listener.door.rates.is_exceeded_by(peer, now_ms) => {
                        listener.door.count_refused(&self.counters.refused_connection_rate);
                        log.notice(now_ms, &peer, TOO_FAST);
                        drop(socket);
                    }
                    Ok((socket, peer)) => {
                        let shard = switchboard.board.charge_least_loaded();
                        let stream = Layered::new(socket, Arc::clone(&listener.stack));
                        let (admission, listener) = (listener.door.admission.clone(), listener.door.number);
                        switchboard.board.charge_listener(listener);
                        let accepted = Accepted { stream, peer, admission, listener };
                        if shard == own {
                            kept.push(accepted);
                        } else {
                            switchboard.shards[shard.number()].post(Note::Accepted(accepted).into());
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        listener.ready = false;
                        break;
                    }
                    Err(error) if is_of_one_connection(&error) => {}
                    Err(error) => {
                        self.counters.accept_pauses.add(1);
                        tracing::warn!(%error, "accepting pauses for {PAUSE_MS} ms");
                        self.resume_ms = Some(now_ms + PAUSE_MS);
                        break;
                    }
                }
            }
        }
        kept
    }
}

/// Whether an error was that of the connection to be accepted, which was given up while it waited, and says
/// nothing of those behind it. Any other may be there to stay.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepting_goes_on_at_once_only_after_errors_of_one_connection() {
        use io::ErrorKind::{
            ConnectionAborted, ConnectionReset, Interrupted, InvalidInput, Other, OutOfMemory,
            PermissionDenied,
        };
        let is_of_one = |kind: io::ErrorKind| is_of_one_connection(&kind.into());
        assert!([ConnectionAborted, ConnectionReset, Interrupted].into_iter().all(is_of_one));
        assert!(![InvalidInput, Other, OutOfMemory, PermissionDenied].into_iter().any(is_of_one));
    }
}
