//! All connections of one thread of the generator, and the loop that drives a load over them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Poll, Token};
#[cfg(target_os = "linux")]
use nix::sys::socket::{setsockopt, sockopt::IpBindAddressNoPort};
use socket2::{Domain, Protocol, Socket, Type};

use crate::crew::Crew;
use crate::error::{Error, Result};
use crate::layers::ClientStack;
use crate::link::{Link, READ_LEN, Received};
use crate::measure::Target;

/// Connections from one source address before the next one is taken: fewer than there are ephemeral ports.
const CONNECTIONS_PER_SOURCE: usize = 20_000;

/// Events taken from the kernel at a time.
const EVENTS_PER_TURN: usize = 1024;

/// Longest time without looking whether the run is over or has failed elsewhere.
const TURN_MAX: Duration = Duration::from_millis(100);

/// Time between two looks at the timers of QUIC.
const SERVICE_INTERVAL: Duration = Duration::from_millis(1);

/// A load: handles received bytes, and publishes.
pub(crate) trait Load {
    /// Uses up the whole packets at the start of `bytes` and returns how many bytes those were.
    ///
    /// # Errors
    /// If the server does not play along.
    fn receive(&mut self, connection: usize, bytes: &[u8], connections: &mut Connections) -> Result<usize>;

    /// Whether what arrives on this connection is read.
    fn reads(&self, _connection: usize) -> bool {
        true
    }

    /// The kernel has taken all bytes of this connection, and takes more.
    fn handle_writable(&mut self, _connection: usize) {}

    /// Whether what arrives on this connection shows that messages still come: once nothing has for a while, the
    /// run is over.
    fn shows_progress(&self, _connection: usize) -> bool {
        true
    }

    /// Publishes (or opens) what is due. Called once a turn.
    ///
    /// # Errors
    /// If the server does not play along.
    fn publish(&mut self, connections: &mut Connections) -> Result<Next>;

    /// Number of arrived messages, of [`Self::expected`].
    fn arrived(&self) -> u64;

    /// Number of messages that arrive if nothing is lost, for the progress bar.
    fn expected(&self) -> u64;

    /// Whether everything that was to be done has been done.
    fn is_complete(&self) -> bool;
}

/// When a load has something to publish again, if nothing arrives before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Without a delay.
    Now,
    /// After this delay.
    After(Duration),
    /// When something has arrived or a connection is writable again.
    WhenWoken,
}

/// The connections of one thread, numbered from 0 in the order they were opened in.
#[derive(Debug)]
pub(crate) struct Connections {
    poll: Poll,
    links: Vec<Link>,
    buffer: Vec<u8>,
    /// Connections go to these in turn.
    addresses: Vec<SocketAddr>,
    /// The layers of each connection, if it has any.
    stack: Option<Arc<ClientStack>>,
    /// The same for each number, if connections keep their sessions.
    sessions: Option<Vec<Arc<ClientStack>>>,
    worker: usize,
    /// Number of connections that were opened, also again.
    opened: usize,
    /// The latest look at the timers of QUIC.
    served: Instant,
}

impl Connections {
    /// Connections to `target`, over which packets of up to `packet_len_max` bytes will come.
    ///
    /// `worker` is the number of this thread: each takes other source addresses when ports run short.
    ///
    /// # Errors
    /// If the system has no poller left.
    pub(crate) fn new(target: &Target, packet_len_max: usize, worker: usize) -> Result<Self> {
        let poll = Poll::new().map_err(Error::io("create a poller"))?;
        Ok(Self {
            poll,
            links: Vec::new(),
            buffer: vec![0; READ_LEN + packet_len_max],
            addresses: std::iter::once(target.address).chain(target.further.iter().copied()).collect(),
            stack: target.stack.clone(),
            sessions: None,
            worker,
            opened: 0,
            served: Instant::now(),
        })
    }

    /// Lets each connection go on from the TLS session of the one before it with the same number.
    pub(crate) fn keep_sessions(&mut self) {
        self.sessions = Some(Vec::new());
    }

    /// Opens another connection and sends `bytes` on it once it is established. Returns its number.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub(crate) fn open(&mut self, bytes: &[u8]) -> Result<usize> {
        let number = self.links.len();
        let link = self.link(number)?;
        self.links.push(link);
        self.send(number, bytes)?;
        Ok(number)
    }

    /// Ends a connection without a farewell, and opens it again under the same number.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub(crate) fn reopen(&mut self, connection: usize, bytes: &[u8]) -> Result<()> {
        // The old stream is closed when it is replaced.
        self.links[connection] = self.link(connection)?;
        self.send(connection, bytes)
    }

    /// Sends `farewell` and ends a connection, which is to be opened again.
    pub(crate) fn finish(&mut self, connection: usize, farewell: &[u8]) {
        // A connection that is broken already needs no farewell.
        let _ = self.links[connection].finish(farewell);
    }

    /// Whether the TLS handshake of a connection went on from an earlier one. `None` before its end, and without TLS.
    pub(crate) fn is_resumed(&self, connection: usize) -> Option<bool> {
        self.links[connection].is_resumed()
    }

    /// Ends a connection without a farewell, for good.
    pub(crate) fn cut(&mut self, connection: usize) {
        let link = &mut self.links[connection];
        // Nobody is told of an end that was wanted here.
        let _ = link.deregister(self.poll.registry());
        link.cut();
    }

    /// Takes at most `bytes` bytes of what has arrived on a connection, and forgets them: nothing else may be read
    /// there afterwards, because layers would miss the bytes.
    pub(crate) fn discard(&mut self, connection: usize, bytes: usize) {
        let bytes = bytes.min(self.buffer.len());
        self.links[connection].discard(&mut self.buffer[..bytes]);
    }

    /// A connection that is being established, to be watched under this number.
    fn link(&mut self, number: usize) -> Result<Link> {
        let stack = match (&self.stack, &mut self.sessions) {
            (Some(stack), Some(own)) => {
                own.resize_with(own.len().max(number + 1), || Arc::new(stack.with_sessions()));
                Some(&own[number])
            }
            (stack, _) => stack.as_ref(),
        };
        let address = self.addresses[self.opened % self.addresses.len()];
        let refused = |error| Error::Server(format!("cannot be reached at {address} ({error})"));
        let source = source_address(address, self.worker, self.opened);
        self.opened += 1;
        let mut link = match stack.map(|stack| (stack, &stack.quic)) {
            Some((_, Some(quic))) => {
                Link::quic(quic.connect(address, source.unwrap_or(any(address))).map_err(refused)?)
            }
            layered => {
                let layers = layered.map(|(stack, _)| stack.layers()).transpose();
                let stream = connect(address, source).map_err(refused)?;
                Link::new(stream, layers.map_err(Error::io("begin a handshake"))?)
            }
        };
        link.register(self.poll.registry(), Token(number)).map_err(Error::io("watch a connection"))?;
        Ok(link)
    }

    /// Sends `bytes` on a connection in a write of their own; what the kernel does not take is kept and sent later.
    ///
    /// # Errors
    /// If the connection is broken.
    #[inline]
    pub(crate) fn send(&mut self, connection: usize, bytes: &[u8]) -> Result<()> {
        self.links[connection].send(bytes).map_err(broken(connection))
    }

    /// Whether bytes of this connection wait for the kernel to take them.
    #[inline]
    pub(crate) fn is_behind(&self, connection: usize) -> bool {
        self.links[connection].is_behind()
    }

    /// Lets `load` publish and receive until it is complete, nothing has arrived for `patience` anywhere in the
    /// crew, or the crew has failed. Returns whether it is complete.
    ///
    /// # Errors
    /// What the load finds wrong, and connections that break or are closed by the server.
    pub(crate) fn drive(&mut self, load: &mut impl Load, crew: &Crew, patience: Duration) -> Result<bool> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        let mut counted = 0;
        loop {
            let next = load.publish(self)?;
            if load.is_complete() {
                return Ok(true);
            }
            if crew.has_failed() {
                return Ok(false);
            }
            if self.turn(&mut events, load, next)? {
                crew.note_arrivals(load.arrived() - counted);
                counted = load.arrived();
            } else if crew.silence() > patience {
                return Ok(false);
            }
        }
    }

    /// Sends `farewell` on every connection, and waits at most `patience` until the server has closed them all, so
    /// that the next run finds it idle.
    pub(crate) fn close(mut self, farewell: &[u8], patience: Duration) {
        for link in &mut self.links {
            // A connection that is broken already needs no farewell.
            let _ = link.finish(farewell);
        }
        let started = Instant::now();
        let turn_max = self.turn_max();
        let mut open = self.links.len();
        let mut links: Vec<Option<Link>> = self.links.into_iter().map(Some).collect();
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        // The end of a connection that nobody read any more has been announced already.
        let mut announced: Vec<usize> = (0..links.len()).collect();
        loop {
            for number in announced.drain(..) {
                // The end of one connection may be announced more than once.
                if links[number].as_mut().is_some_and(|link| is_at_its_end(link, &mut self.buffer)) {
                    links[number] = None;
                    open -= 1;
                }
            }
            if open == 0 || started.elapsed() >= patience {
                return;
            }
            if self.poll.poll(&mut events, Some(turn_max)).is_err() {
                return;
            }
            let now = Instant::now();
            for link in links.iter_mut().flatten() {
                // An error shows in the next read.
                let _ = link.serve(now, true);
            }
            announced.extend(events.iter().map(|event| event.token().0));
        }
    }

    /// Waits for events and handles them. Returns whether anything arrived that shows progress.
    fn turn(&mut self, events: &mut Events, load: &mut impl Load, next: Next) -> Result<bool> {
        let timeout = match next {
            Next::Now => Duration::ZERO,
            Next::After(duration) => duration.min(TURN_MAX),
            Next::WhenWoken => TURN_MAX,
        };
        match self.poll.poll(events, Some(timeout.min(self.turn_max()))) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(Error::io("poll")(error)),
            _ => {}
        }
        let mut has_received = false;
        for event in events.iter() {
            let connection = event.token().0;
            if self.is_quic() {
                let was_behind = self.is_behind(connection);
                has_received |= self.serve(connection, was_behind, load)?;
                continue;
            }
            if event.is_writable() {
                self.links[connection].flush().map_err(broken(connection))?;
                if !self.is_behind(connection) {
                    load.handle_writable(connection);
                }
            }
            let has_news = event.is_readable() || event.is_read_closed() || event.is_error();
            if has_news && load.reads(connection) {
                let has_arrived = self.receive(connection, load, event.is_read_closed())?;
                has_received |= has_arrived && load.shows_progress(connection);
            }
        }
        if self.is_quic() && self.served.elapsed() >= SERVICE_INTERVAL {
            has_received |= self.serve_due(load)?;
        }
        Ok(has_received)
    }

    fn is_quic(&self) -> bool {
        self.stack.as_ref().is_some_and(|stack| stack.quic.is_some())
    }

    /// Longest time without a look at timers, or at the course of the run.
    fn turn_max(&self) -> Duration {
        if self.is_quic() { SERVICE_INTERVAL } else { TURN_MAX }
    }

    /// Does the work of the kernel for a connection of QUIC, and reads it. Returns whether anything arrived that shows
    /// progress.
    fn serve(&mut self, connection: usize, was_behind: bool, load: &mut impl Load) -> Result<bool> {
        let has_arrived = if load.reads(connection) {
            self.receive(connection, load, false)?
        } else {
            self.links[connection].serve(Instant::now(), false).map_err(broken(connection))?;
            false
        };
        // Unlike a socket, a stream is full and has room again without an event of the poller.
        if was_behind && !self.is_behind(connection) {
            load.handle_writable(connection);
        }
        Ok(has_arrived && load.shows_progress(connection))
    }

    /// The same for all connections whose timers are due.
    fn serve_due(&mut self, load: &mut impl Load) -> Result<bool> {
        self.served = Instant::now();
        let mut has_received = false;
        for connection in 0..self.links.len() {
            let link = &mut self.links[connection];
            let was_behind = link.is_behind();
            if link.serve(self.served, true).map_err(broken(connection))? {
                has_received |= self.serve(connection, was_behind, load)?;
            }
        }
        Ok(has_received)
    }

    fn receive(&mut self, connection: usize, load: &mut impl Load, to_the_end: bool) -> Result<bool> {
        // Out of `self` while the load may send on it.
        let mut buffer = std::mem::take(&mut self.buffer);
        let received = self.receive_into(&mut buffer, connection, load, to_the_end);
        self.buffer = buffer;
        received
    }

    fn receive_into(
        &mut self,
        buffer: &mut [u8],
        connection: usize,
        load: &mut impl Load,
        to_the_end: bool,
    ) -> Result<bool> {
        let mut has_received = false;
        loop {
            match self.links[connection].read(buffer).map_err(broken(connection))? {
                Received::Nothing => return Ok(has_received),
                Received::Closed => return Err(Error::Server(format!("closed connection {connection}"))),
                Received::Bytes { len, drained } => {
                    has_received = true;
                    let used = load.receive(connection, &buffer[..len], self)?;
                    self.links[connection].keep(&buffer[used..len]);
                    if drained && !to_the_end {
                        return Ok(true);
                    }
                }
            }
        }
    }
}

fn connect(server: SocketAddr, source: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    if let Some(source) = source {
        share_source_ports(&socket)?;
        socket.bind(&SocketAddr::new(source, 0).into())?;
    }
    match socket.connect(&server.into()) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock || is_in_progress(&error) => {}
        result => result?,
    }
    Ok(TcpStream::from_std(socket.into()))
}

/// Any address of the family of this one.
fn any(address: SocketAddr) -> IpAddr {
    if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// Reads a link until it is drained; returns whether its end was reached.
fn is_at_its_end(link: &mut Link, buffer: &mut [u8]) -> bool {
    loop {
        match link.read(buffer) {
            Ok(Received::Bytes { .. }) => {}
            Ok(Received::Nothing) => return false,
            Ok(Received::Closed) | Err(_) => return true,
        }
    }
}

/// The address that a connection of a thread comes from, which has `opened` so many before it; `None` is the system's
/// choice. The system remembers ports of closed connections for a minute.
fn source_address(server: SocketAddr, worker: usize, opened: usize) -> Option<IpAddr> {
    let block = opened / CONNECTIONS_PER_SOURCE;
    let is_local = matches!(server.ip(), IpAddr::V4(address) if address.is_loopback());
    if !is_local || (worker == 0 && block == 0) {
        return None;
    }
    let octet = |number: usize| u8::try_from(number % 255).unwrap_or(0);
    Some(Ipv4Addr::new(127, 0, octet(worker), octet(block + 1)).into())
}

/// Lets the port be chosen when the connection is made: closed connections that the system still remembers then do
/// not keep theirs from being used for another server.
#[cfg(target_os = "linux")]
fn share_source_ports(socket: &Socket) -> io::Result<()> {
    Ok(setsockopt(socket, IpBindAddressNoPort, &true)?)
}

#[cfg(not(target_os = "linux"))]
fn share_source_ports(_: &Socket) -> io::Result<()> {
    Ok(())
}

fn is_in_progress(error: &io::Error) -> bool {
    error.raw_os_error() == Some(nix::Error::EINPROGRESS as i32)
}

fn broken(connection: usize) -> impl FnOnce(io::Error) -> Error {
    move |error| Error::Server(format!("broke connection {connection}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_addresses_change_before_the_ports_of_one_run_short() {
        let local = "127.0.0.1:1883".parse().unwrap();
        assert_eq!(source_address(local, 0, 19_999), None);
        assert_eq!(source_address(local, 0, 20_000), Some(Ipv4Addr::new(127, 0, 0, 2).into()));
        assert_eq!(source_address(local, 1, 0), Some(Ipv4Addr::new(127, 0, 1, 1).into()));
        assert_eq!(source_address("192.0.2.1:1883".parse().unwrap(), 1, 50_000), None);
    }
}
