//! The ceiling: a server that forwards bytes and knows no protocol once a publisher has begun.
//!
//! Setting up is spoken as MQTT, so that the same generator measures it. From a connection's first PUBLISH on, its
//! bytes go as they come to every connection that had subscribed to that PUBLISH's topic: one read of up to 64 KiB,
//! then one write per target. No server that looks at packets can do with less, so what this costs is what the
//! kernel costs.

use std::io;
use std::net::SocketAddr;

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use slab::Slab;
use socket2::{Domain, Socket, Type};
use topic::{TopicFilter, TopicFilterBuf};
use wire::{
    AckProperties, ConnAck, OneOrMore, Packet, PingResp, Role, SubAck, SubAckReason, Subscribe, TopicName,
    UnsubAck, UnsubAckReason, Unsubscribe, Version,
};

use crate::error::{Error, Result};
use crate::frames::{packet_len, whole_packets_len};
use crate::layers::ServerStack;
use crate::link::{Link, READ_LEN, Received};
use crate::protocol::{packet_in, to_bytes};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Events taken from the kernel at a time.
const EVENTS_PER_TURN: usize = 1024;

/// Longest packet that is forwarded where packets must stay whole, bytes.
const PACKET_LEN_MAX: usize = 2 * 1024 * 1024;

/// The token of a listener; connections count from 0.
pub(crate) const LISTENER: Token = Token(usize::MAX);

/// A relay that is ready to run.
#[derive(Debug)]
pub(crate) struct Relay {
    poll: Poll,
    listener: TcpListener,
    peers: Slab<Peer>,
    buffer: Vec<u8>,
    /// Publishers whose targets have caught up.
    resumed: Vec<usize>,
    /// The layers of each connection.
    stack: ServerStack,
}

#[derive(Debug)]
struct Peer {
    link: Link,
    /// Whether CONNECT has arrived.
    version: Option<Version>,
    filters: Vec<TopicFilterBuf>,
    /// Set by the first PUBLISH.
    feed: Option<Feed>,
    /// The publishers of which this is a target.
    sources: Vec<usize>,
}

/// Use of a publisher's bytes.
#[derive(Debug, Default)]
struct Feed {
    targets: Vec<usize>,
    /// A target with a wildcard may have several publishers: their packets must not be mixed up.
    keeps_packets_whole: bool,
    /// Not read because a target is behind.
    is_paused: bool,
}

impl Relay {
    /// Listens on `address`, for connections with these layers.
    ///
    /// # Errors
    /// If the address is taken.
    pub(crate) fn bind(address: SocketAddr, stack: ServerStack) -> Result<Self> {
        let (poll, listener) = watched_listener(address)?;
        let buffer = vec![0; READ_LEN + PACKET_LEN_MAX];
        Ok(Self { poll, listener, peers: Slab::new(), buffer, resumed: Vec::new(), stack })
    }

    /// The address that the relay listens on; asked for by tests, which let the system choose the port.
    ///
    /// # Errors
    /// If the system does not know it.
    #[cfg(test)]
    pub(crate) fn local_address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(Error::io("read the relay's address"))
    }

    /// Relays for as long as the process lives.
    ///
    /// # Errors
    /// If the system has no descriptors left.
    pub(crate) fn run(mut self) -> Result<std::convert::Infallible> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(Error::io("poll")(error));
                }
                _ => {}
            }
            for event in &events {
                if event.token() == LISTENER {
                    self.accept().map_err(Error::io("accept a connection"))?;
                } else {
                    self.handle_event(event);
                }
            }
            while let Some(source) = self.resumed.pop() {
                // Bytes that arrived during the pause, and the end of the stream, are not announced again.
                self.read(source, true);
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.add(stream)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn add(&mut self, stream: TcpStream) -> io::Result<()> {
        let entry = self.peers.vacant_entry();
        let layers = if self.stack.is_empty() { None } else { Some(self.stack.layers()?) };
        let mut link = Link::new(stream, layers);
        link.register(self.poll.registry(), Token(entry.key()))?;
        entry.insert(Peer { link, version: None, filters: Vec::new(), feed: None, sources: Vec::new() });
        Ok(())
    }

    fn handle_event(&mut self, event: &Event) {
        let key = event.token().0;
        if event.is_writable() {
            self.flush(key);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.read(key, event.is_read_closed());
        }
    }

    /// Writes what a target is behind with; when it has caught up, its publishers may go on.
    fn flush(&mut self, key: usize) {
        let Some(peer) = self.peers.get_mut(key).filter(|peer| peer.link.is_behind()) else { return };
        if peer.link.flush().is_err() {
            return self.remove(key);
        }
        if !self.peers[key].link.is_behind() {
            for at in 0..self.peers[key].sources.len() {
                self.resume(self.peers[key].sources[at]);
            }
        }
    }

    fn resume(&mut self, source: usize) {
        let targets = self.peers[source].feed.as_ref().map_or(&[][..], |feed| &feed.targets);
        if targets.iter().any(|&target| self.peers[target].link.is_behind()) {
            return;
        }
        if let Some(feed) = self.peers[source].feed.as_mut().filter(|feed| feed.is_paused) {
            feed.is_paused = false;
            self.resumed.push(source);
        }
    }

    /// Reads a connection until it is drained (and, if the peer has closed it, to its end).
    fn read(&mut self, key: usize, to_the_end: bool) {
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(peer) = self.peers.get_mut(key) {
            if peer.feed.as_ref().is_some_and(|feed| feed.is_paused) {
                break;
            }
            match peer.link.read(&mut buffer) {
                Ok(Received::Nothing) => break,
                Ok(Received::Closed) | Err(_) => self.remove(key),
                Ok(Received::Bytes { len, drained }) => {
                    match self.handle_bytes(key, &buffer[..len]) {
                        Ok(used) => self.peers[key].link.keep(&buffer[used..len]),
                        Err(_) => self.remove(key),
                    }
                    if drained && !to_the_end {
                        break;
                    }
                }
            }
        }
        self.buffer = buffer;
    }

    /// Uses bytes from the start of `bytes`; returns how many.
    fn handle_bytes(&mut self, key: usize, bytes: &[u8]) -> Result<usize> {
        let mut used = 0;
        while self.peers[key].feed.is_none() {
            let Some(len) = packet_len(&bytes[used..])? else { return Ok(used) };
            let Some(packet) = bytes.get(used..used + len) else { return Ok(used) };
            match self.handle_packet(key, packet)? {
                Some(feed) => self.peers[key].feed = Some(feed),
                None => used += len,
            }
        }
        Ok(used + self.forward(key, &bytes[used..])?)
    }

    /// Speaks MQTT while a connection is set up; its first PUBLISH decides whom it feeds.
    fn handle_packet(&mut self, key: usize, packet: &[u8]) -> Result<Option<Feed>> {
        let peer = &mut self.peers[key];
        let request = packet_in(packet, peer.version, Role::Client)?;
        let version = peer.version.unwrap_or(Version::V5);
        let answer = match request {
            Packet::Connect(connect) => {
                peer.version = Some(connect.version());
                to_bytes(ConnAck::accepted(false), connect.version())
            }
            Packet::Subscribe(subscribe) => {
                peer.filters
                    .extend(subscribe.subscriptions.iter().filter_map(|s| Some(s.filter().ok()?.into())));
                suback(&subscribe, version)
            }
            Packet::Unsubscribe(unsubscribe) => {
                let gone = |own: TopicFilter<'_>| unsubscribe.filters.iter().any(|filter| filter == Ok(own));
                peer.filters.retain(|own| !gone(own.filter()));
                unsuback(&unsubscribe, version)
            }
            Packet::PingReq(_) => to_bytes(PingResp, version),
            Packet::Publish(publish) => {
                let alias = || Error::Server("an alias, but the relay gave none".to_owned());
                let topic = publish.topic.name().ok_or_else(alias)?;
                return self.feed(key, topic).map(Some);
            }
            _ => return Ok(None),
        };
        peer.link.send(&answer).map_err(Error::io("answer"))?;
        Ok(None)
    }

    /// Finds the targets of a publisher.
    ///
    /// # Errors
    /// If another publisher feeds an exact subscription to the same topic: their bytes would be mixed up.
    fn feed(&mut self, source: usize, topic: TopicName<'_>) -> Result<Feed> {
        let mut feed = Feed::default();
        for (target, peer) in &mut self.peers {
            let mut filters = peer.filters.iter().map(TopicFilterBuf::filter);
            let Some(filter) = filters.find(|filter| filter.matches(topic)) else { continue };
            let has_wildcard = filter.has_wildcard();
            if !has_wildcard && !peer.sources.is_empty() {
                return Err(Error::Server(format!("a second publisher to {topic}")));
            }
            feed.keeps_packets_whole |= has_wildcard;
            feed.targets.push(target);
            peer.sources.push(source);
        }
        Ok(feed)
    }

    fn forward(&mut self, source: usize, bytes: &[u8]) -> Result<usize> {
        let Some(feed) = self.peers[source].feed.as_mut() else { return Ok(0) };
        let len = if feed.keeps_packets_whole { whole_packets_len(bytes)? } else { bytes.len() };
        let targets = std::mem::take(&mut feed.targets);
        let mut is_any_behind = false;
        for &target in &targets {
            let link = &mut self.peers[target].link;
            // A broken target is removed when its own event comes.
            let _ = link.send(&bytes[..len]);
            is_any_behind |= link.is_behind();
        }
        if let Some(feed) = self.peers[source].feed.as_mut() {
            feed.targets = targets;
            feed.is_paused = is_any_behind;
        }
        Ok(len)
    }

    fn remove(&mut self, key: usize) {
        let Some(mut peer) = self.peers.try_remove(key) else { return };
        // The descriptor is closed in a moment anyway.
        let _ = peer.link.deregister(self.poll.registry());
        for &source in &peer.sources {
            if let Some(feed) = self.peers.get_mut(source).and_then(|source| source.feed.as_mut()) {
                feed.targets.retain(|&target| target != key);
            }
        }
        for target in peer.feed.into_iter().flat_map(|feed| feed.targets) {
            if let Some(target) = self.peers.get_mut(target) {
                target.sources.retain(|&source| source != key);
            }
        }
        // Those that waited for this one wait no longer.
        for source in peer.sources {
            if self.peers.contains(source) {
                self.resume(source);
            }
        }
    }
}

fn suback(subscribe: &Subscribe<'_>, version: Version) -> Vec<u8> {
    let reasons = vec![SubAckReason::GrantedQos0; subscribe.subscriptions.iter().count()];
    let reasons = OneOrMore::new(&reasons).expect("a SUBSCRIBE has at least one subscription");
    to_bytes(SubAck { packet_id: subscribe.packet_id, properties: AckProperties::EMPTY, reasons }, version)
}

fn unsuback(unsubscribe: &Unsubscribe<'_>, version: Version) -> Vec<u8> {
    let reasons = vec![UnsubAckReason::Success; unsubscribe.filters.iter().count()];
    let reasons = OneOrMore::new(&reasons);
    to_bytes(
        UnsubAck { packet_id: unsubscribe.packet_id, properties: AckProperties::EMPTY, reasons },
        version,
    )
}

/// A listener, and a poller that reports its connections as [`LISTENER`].
///
/// # Errors
/// If the address is taken.
pub(crate) fn watched_listener(address: SocketAddr) -> Result<(Poll, TcpListener)> {
    let poll = Poll::new().map_err(Error::io("create a poller"))?;
    let mut listener = listen(address).map_err(Error::io(format!("listen on {address}")))?;
    let registered = poll.registry().register(&mut listener, LISTENER, Interest::READABLE);
    registered.map_err(Error::io("watch the listener"))?;
    Ok((poll, listener))
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    // Accepted connections inherit it.
    socket.set_tcp_nodelay(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(TcpListener::from_std(socket.into()))
}
