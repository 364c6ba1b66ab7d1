//! A client of quinn-proto and the shipped server, over a network in memory.

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::ConnectionId;
use bytes::{Bytes, BytesMut};
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointEvent, Event, StreamId,
    Transmit,
};
use rustls::RootCertStore;
use rustls::pki_types::PrivateKeyDer;
use stream::{Readiness, Received, Stream as _};

use super::door::{Arrival, Datagram, Door};
use super::links::{Links, Name, Outside};
use super::settings::{self, QuicLimits};
use super::{QuicStream, door::Begun};
use crate::tls::{Current, Identity, Settings};

mod streams;

const LISTENER: u16 = 3;
const ID: ConnectionId = ConnectionId { slot: 7, generation: 1 };

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// A server with a certificate of its own, and a client that trusts it.
fn certified() -> (Arc<rustls::ServerConfig>, RootCertStore) {
    let made = rcgen::generate_simple_self_signed(["broker.example".to_owned()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    let identities = vec![Identity { chain: vec![made.cert.into()], key }];
    (Settings { identities, ..Settings::default() }.build().expect("they fit"), roots)
}

/// Datagrams that the server sends, and what it says to its surroundings.
#[derive(Default)]
struct World {
    to_client: VecDeque<(Vec<u8>, SocketAddr)>,
    told: Vec<(Name, EndpointEvent)>,
    woken: Vec<(ConnectionId, Readiness)>,
}

impl World {
    fn send(&mut self, transmit: &Transmit, bytes: &[u8]) {
        let size = transmit.segment_size.unwrap_or(bytes.len());
        self.to_client.extend(bytes.chunks(size).map(|bytes| (bytes.to_vec(), transmit.destination)));
    }
}

impl Outside for World {
    fn segments_max(&self, _: u16) -> usize {
        4
    }

    fn transmit(&mut self, listener: u16, transmit: &Transmit, bytes: &[u8]) {
        assert_eq!(listener, LISTENER);
        self.send(transmit, bytes);
    }

    fn tell_door(&mut self, name: Name, event: EndpointEvent) {
        self.told.push((name, event));
    }

    fn woken(&mut self, id: ConnectionId, readiness: Readiness) {
        self.woken.push((id, readiness));
    }
}

/// A client and a server.
struct Bench {
    now: Instant,
    tls: Arc<Current>,
    door: Door,
    links: Links,
    world: World,
    streams: Vec<QuicStream>,
    retries: usize,
    client: Endpoint,
    config: ClientConfig,
    /// The client's own address, which it may change.
    from: SocketAddr,
}

/// A connection of the client.
struct Caller {
    handle: ConnectionHandle,
    connection: Connection,
    stream: Option<StreamId>,
}

impl Bench {
    fn new(limits: QuicLimits) -> Self {
        Self::with_alpn(limits, &[b"mqtt"])
    }

    fn with_alpn(limits: QuicLimits, alpn: &[&[u8]]) -> Self {
        let (server, roots) = certified();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        let config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(client).expect("a cipher suite")));
        let tls = Arc::new(Current::new(server));
        Self {
            now: Instant::now(),
            door: Door::new(Arc::clone(&tls), limits, false).expect("a cipher suite"),
            tls,
            links: Links::default(),
            world: World::default(),
            streams: Vec::new(),
            retries: 0,
            client: Endpoint::new(settings::endpoint(), None, true, None),
            config,
            from: address(40_000),
        }
    }

    fn call(&mut self) -> Caller {
        let (handle, connection) = self
            .client
            .connect(self.now, self.config.clone(), address(14_567), "broker.example")
            .expect("an address");
        Caller { handle, connection, stream: None }
    }

    /// Moves datagrams until nobody has one.
    fn settle(&mut self, caller: &mut Caller) {
        for _ in 0..1_000 {
            let moved = self.client_sends(caller) + self.server_turns() + self.client_receives(caller);
            if moved == 0 {
                let next = [self.links.poll_timeout(), caller.connection.poll_timeout()];
                // Acknowledgements that are delayed are a part of settling; timers of seconds are not.
                let soon = next.into_iter().flatten().min();
                match soon.filter(|moment| *moment <= self.now + Duration::from_millis(100)) {
                    Some(moment) => self.now = self.now.max(moment),
                    None => return,
                }
                caller.connection.handle_timeout(self.now);
            }
        }
        panic!("there is no end");
    }

    fn client_sends(&mut self, caller: &mut Caller) -> usize {
        let (mut moved, mut buffer) = (0, Vec::new());
        while let Some(transmit) = caller.connection.poll_transmit(self.now, 1, &mut buffer) {
            let bytes = buffer.drain(..transmit.size).collect::<Vec<u8>>();
            self.deliver(&bytes);
            moved += 1;
        }
        while let Some(event) = caller.connection.poll_endpoint_events() {
            if let Some(event) = self.client.handle_event(caller.handle, event) {
                caller.connection.handle_event(event);
            }
        }
        moved
    }

    /// The server receives a datagram.
    fn deliver(&mut self, bytes: &[u8]) {
        let datagram =
            Datagram { remote: self.from, local_ip: None, ecn: None, bytes: BytesMut::from(bytes) };
        let mut answer = Vec::new();
        match self.door.receive(self.now, datagram, false, &mut answer) {
            Arrival::Nothing => {}
            Arrival::For(handle, event) => {
                let name = Name { listener: LISTENER, handle };
                self.links.receive(self.now, name, (event, bytes.len()), &mut self.world);
            }
            Arrival::Answer(transmit) | Arrival::Refused(transmit) => {
                self.world.send(&transmit, &answer[..transmit.size]);
            }
            Arrival::Retry(transmit) => {
                self.retries += 1;
                self.world.send(&transmit, &answer[..transmit.size]);
            }
        }
    }

    fn server_turns(&mut self) -> usize {
        let mut answer = Vec::new();
        while let Some(accepted) = self.door.accept(self.now, &mut answer) {
            match accepted {
                Ok((handle, begun)) => self.admit(handle, begun),
                Err(Some(transmit)) => self.world.send(&transmit, &answer[..transmit.size]),
                Err(None) => {}
            }
            answer.clear();
        }
        self.links.handle_timeouts(self.now, &mut self.world);
        self.links.end_turn(self.now, &mut self.world);
        for (name, event) in std::mem::take(&mut self.world.told) {
            if let Some(event) = self.door.handle_event(name.handle, event) {
                self.links.receive(self.now, name, (event, 0), &mut self.world);
            }
        }
        self.links.end_turn(self.now, &mut self.world);
        self.world.to_client.len()
    }

    fn admit(&mut self, handle: ConnectionHandle, begun: Begun) {
        let stream = self.links.add(self.now, Name { listener: LISTENER, handle }, begun);
        stream.watch(ID);
        self.streams.push(stream);
    }

    fn client_receives(&mut self, caller: &mut Caller) -> usize {
        let mut moved = 0;
        while let Some((bytes, to)) = self.world.to_client.pop_front() {
            if to != self.from {
                continue;
            }
            moved += 1;
            let mut answer = Vec::new();
            let bytes = BytesMut::from(&bytes[..]);
            let event = self.client.handle(self.now, address(14_567), None, None, bytes, &mut answer);
            if let Some(DatagramEvent::ConnectionEvent(handle, event)) = event
                && handle == caller.handle
            {
                caller.connection.handle_event(event);
            }
        }
        moved
    }

    fn server(&mut self) -> &mut QuicStream {
        self.streams.first_mut().expect("a connection was accepted")
    }
}

impl Caller {
    fn write(&mut self, bytes: &[u8]) -> usize {
        let stream = self.stream.or_else(|| self.connection.streams().open(Dir::Bi)).expect("a stream");
        self.stream = Some(stream);
        self.connection.send_stream(stream).write(bytes).unwrap_or(0)
    }

    fn read(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let Some(stream) = self.stream else { return all };
        let mut stream = self.connection.recv_stream(stream);
        let Ok(mut chunks) = stream.read(true) else { return all };
        while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
            all.extend_from_slice(&chunk.bytes);
        }
        let _ = chunks.finalize();
        all
    }

    fn lost(&mut self) -> Option<String> {
        while let Some(event) = self.connection.poll() {
            if let Event::ConnectionLost { reason } = event {
                return Some(reason.to_string());
            }
        }
        None
    }
}

fn read(stream: &mut QuicStream, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes_max];
    stream.read(&mut buffer).map(|received| buffer[..received.bytes].to_vec())
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect()
}

#[test]
fn bytes_pass_in_both_directions_and_are_announced() {
    let mut bench = Bench::new(QuicLimits::default());
    let mut caller = bench.call();
    bench.settle(&mut caller);
    assert_eq!(bench.door.handshakes(), 0, "it is complete");
    bench.world.woken.clear();
    assert_eq!(caller.write(b"hello"), 5);
    bench.settle(&mut caller);
    assert!(bench.world.woken.iter().any(|(id, readiness)| *id == ID && readiness.readable));
    let mut buffer = [0; 100];
    let received = bench.server().read(&mut buffer).expect("bytes");
    assert_eq!((&buffer[..5], received), (&b"hello"[..], Received { bytes: 5, is_drained: true }));
    let error = bench.server().read(&mut buffer).expect_err("there is no more");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    let pieces = [IoSlice::new(b"good "), IoSlice::new(b"day")];
    assert_eq!(bench.server().write(&pieces).expect("there is room"), 8);
    bench.settle(&mut caller);
    assert_eq!(caller.read(), b"good day");
}

#[test]
fn both_ends_have_the_same_channel_binding() {
    let mut bench = Bench::new(QuicLimits::default());
    let mut caller = bench.call();
    bench.settle(&mut caller);
    assert_eq!(caller.write(b"hello"), 5);
    bench.settle(&mut caller);
    let mut exported = [0; 32];
    let session = caller.connection.crypto_session();
    session
        .export_keying_material(&mut exported, b"EXPORTER-Channel-Binding", b"")
        .expect("the handshake is complete");
    assert_eq!(bench.server().channel_binding(), Some(exported));
}

#[test]
fn a_reader_that_stops_stops_the_writer_and_memory_is_bounded_and_counted() {
    let limits = QuicLimits { buffer_bytes: 32 * 1024, ..QuicLimits::default() };
    let mut bench = Bench::new(limits);
    let mut caller = bench.call();
    bench.settle(&mut caller);
    let idle = bench.links.received_bytes();
    let message = bytes(200_000);
    let (mut written, mut received) = (0, Vec::new());
    while received.len() < message.len() {
        written += caller.write(&message[written..]);
        bench.settle(&mut caller);
        let held = bench.links.received_bytes() - idle;
        assert!(written - received.len() <= 2 * 32 * 1024, "the window of the client, and of the server");
        assert!(held <= 32 * 1024 && held > 0, "{held}");
        received.extend(read(bench.server(), 3_000).expect("bytes"));
    }
    assert!(received == message);
    bench.settle(&mut caller);
    assert!(bench.links.received_bytes() - idle < 4_096);
    written = 0;
    loop {
        match bench.server().write(&[IoSlice::new(&message[..10_000])]) {
            Ok(count) => written += count,
            Err(error) => break assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
    }
    assert!(written <= 32 * 1024);
    assert!((written..=written + 8_192).contains(&bench.links.sending_bytes()));
    bench.world.woken.clear();
    bench.settle(&mut caller);
    assert!(bench.world.woken.iter().any(|(_, readiness)| readiness.writable));
    assert_eq!((bench.links.sending_bytes(), caller.read().len()), (0, written), "all is acknowledged");
}

#[test]
fn the_end_of_a_stream_follows_its_bytes_and_the_other_direction_stays_open() {
    let mut bench = Bench::new(QuicLimits::default());
    let mut caller = bench.call();
    bench.settle(&mut caller);
    caller.write(b"last");
    let stream = caller.stream.expect("it was opened");
    caller.connection.send_stream(stream).finish().expect("it is open");
    bench.settle(&mut caller);
    assert_eq!(read(bench.server(), 100).expect("bytes"), b"last");
    assert_eq!(read(bench.server(), 100).expect("the end"), b"");
    assert_eq!(bench.server().write(&[IoSlice::new(b"answer")]).expect("there is room"), 6);
    bench.server().shut_down_write();
    bench.settle(&mut caller);
    assert_eq!(caller.read(), b"answer");
}

#[test]
fn a_client_that_closes_at_once_has_its_last_bytes_read() {
    let mut bench = Bench::new(QuicLimits::default());
    let mut caller = bench.call();
    bench.settle(&mut caller);
    caller.write(b"\xe0\x00");
    bench.client_sends(&mut caller);
    caller.connection.close(bench.now, 0_u32.into(), Bytes::new());
    bench.settle(&mut caller);
    assert!(bench.world.woken.iter().any(|(_, readiness)| readiness.ending));
    assert_eq!(read(bench.server(), 100).expect("bytes"), b"\xe0\x00");
    assert_eq!(read(bench.server(), 100).expect("the end"), b"");
    assert!(!bench.server().owes_goodbye());
}

#[test]
fn a_stream_that_is_dropped_closes_its_connection_and_leaves_nothing() {
    let mut bench = Bench::new(QuicLimits::default());
    let mut caller = bench.call();
    bench.settle(&mut caller);
    caller.write(b"hello");
    bench.settle(&mut caller);
    bench.streams.clear();
    bench.settle(&mut caller);
    assert_eq!(caller.lost().as_deref(), Some("closed by peer: 0"));
    bench.now += Duration::from_secs(5);
    bench.server_turns();
    assert_eq!((bench.links.received_bytes(), bench.links.poll_timeout()), (0, None));
}

#[test]
fn a_client_may_change_its_address() {
    let mut bench = Bench::new(QuicLimits::default());
    let mut caller = bench.call();
    bench.settle(&mut caller);
    caller.write(b"before");
    bench.settle(&mut caller);
    bench.from = address(40_001);
    caller.write(b" and after");
    bench.settle(&mut caller);
    assert_eq!(read(bench.server(), 100).expect("bytes"), b"before and after");
    bench.server().write(&[IoSlice::new(b"found you")]).expect("there is room");
    bench.settle(&mut caller);
    assert_eq!(caller.read(), b"found you");
}

#[test]
fn a_client_that_does_not_speak_mqtt_is_refused() {
    for alpn in [&[b"h3".as_slice()][..], &[]] {
        let mut bench = Bench::with_alpn(QuicLimits::default(), alpn);
        let mut caller = bench.call();
        bench.settle(&mut caller);
        let reason = caller.lost().expect("it is refused");
        assert!(reason.contains("protocol") || reason.contains("ALPN"), "{reason}");
        assert_eq!(bench.door.handshakes(), 0);
    }
}

/// Early data, streams beyond the limit, and unidirectional streams.
#[test]
fn a_client_opens_streams_up_to_the_limit() {
    for streams_max in [1, 8] {
        let mut bench = Bench::new(QuicLimits { streams_max, ..QuicLimits::default() });
        let mut caller = bench.call();
        assert!(!caller.connection.has_0rtt());
        bench.settle(&mut caller);
        assert!((0..streams_max).all(|_| caller.connection.streams().open(Dir::Bi).is_some()));
        assert!(caller.connection.streams().open(Dir::Bi).is_none());
        assert!(caller.connection.streams().open(Dir::Uni).is_none());
    }
}

/// From a quarter of the handshakes on.
#[test]
fn many_open_handshakes_make_clients_prove_their_addresses_and_still_more_are_refused() {
    let mut bench = Bench::new(QuicLimits { handshakes_max: 8, ..QuicLimits::default() });
    let begin = |bench: &mut Bench| {
        let mut caller = bench.call();
        bench.client_sends(&mut caller);
        caller
    };
    let _silent = [begin(&mut bench), begin(&mut bench)];
    assert_eq!((bench.door.handshakes(), bench.retries), (2, 0));
    let mut third = begin(&mut bench);
    assert_eq!((bench.door.handshakes(), bench.retries), (2, 1), "nothing is kept for it");
    bench.settle(&mut third);
    assert!(!third.connection.is_handshaking(), "it has proved its address");
    let mut proven = Vec::new();
    // An eighth of the handshakes is one.
    let share = 1;
    for host in 0..6 {
        bench.from = SocketAddr::from(([127, 0, 1, host], 40_000));
        for number in 0..2 {
            let mut caller = begin(&mut bench);
            bench.client_receives(&mut caller);
            bench.client_sends(&mut caller);
            assert_eq!(bench.door.handshakes(), 2 + share * (usize::from(host) + 1));
            if number == 1 {
                bench.client_receives(&mut caller);
                assert!(caller.lost().is_some_and(|reason| reason.contains("refused")), "the share is used");
            }
            proven.push(caller);
        }
    }
    assert_eq!(bench.door.handshakes(), 8);
    bench.from = SocketAddr::from(([127, 0, 2, 1], 40_000));
    let mut refused = begin(&mut bench);
    bench.client_receives(&mut refused);
    bench.client_sends(&mut refused);
    assert_eq!(bench.door.handshakes(), 8);
    bench.client_receives(&mut refused);
    assert!(refused.lost().is_some_and(|reason| reason.contains("refused")));
}

/// The client sends its first datagram, and nothing else.
#[test]
fn a_handshake_that_stops_is_given_up_in_seconds() {
    let mut bench = Bench::new(QuicLimits::default());
    let mut silent = bench.call();
    bench.client_sends(&mut silent);
    bench.server_turns();
    bench.world.woken.clear();
    assert_eq!(bench.door.handshakes(), 1);
    let begin = bench.now;
    while bench.door.handshakes() == 1 {
        bench.now = bench.links.poll_timeout().expect("there is a deadline");
        assert!(bench.now <= begin + Duration::from_secs(4));
        bench.links.handle_timeouts(bench.now, &mut bench.world);
        bench.links.end_turn(bench.now, &mut bench.world);
    }
    assert_eq!(bench.now, begin + Duration::from_secs(4));
    assert_eq!((bench.links.take_given_up().late, bench.links.take_given_up().late), (1, 0));
    assert!(bench.world.woken.iter().any(|(_, readiness)| readiness.ending), "its shard is told");
    let error = read(bench.server(), 1).expect_err("it is over");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    // A handshake that is complete has no deadline.
    let mut caller = bench.call();
    bench.settle(&mut caller);
    bench.now += Duration::from_secs(5);
    bench.links.handle_timeouts(bench.now, &mut bench.world);
    assert_eq!(bench.links.take_given_up().late, 0);
}

/// An attacker who names another sender makes the server send little to it. quinn-proto completes the datagram that crosses
/// the limit of RFC 9000 section 8.1.
#[test]
fn an_address_that_is_not_proven_gets_about_three_times_what_came_from_it_at_most() {
    let mut bench = Bench::new(QuicLimits::default());
    let mut caller = bench.call();
    let mut buffer = Vec::new();
    let transmit = caller.connection.poll_transmit(bench.now, 1, &mut buffer).expect("ClientHello");
    bench.deliver(&buffer[..transmit.size]);
    let mut sent = 0;
    for _ in 0..20 {
        bench.server_turns();
        sent += bench.world.to_client.drain(..).map(|(bytes, _)| bytes.len()).sum::<usize>();
        bench.now += Duration::from_secs(3);
    }
    assert!(sent > 0 && sent <= 4 * transmit.size, "{sent} bytes for {}", transmit.size);
}

#[test]
fn datagrams_that_are_no_quic_make_nothing() {
    let mut bench = Bench::new(QuicLimits::default());
    let mut largest = 0;
    for length in [0, 1, 5, 20, 40, 1_199, 1_200, 1_472] {
        for first in 0..=255_u8 {
            let mut datagram = vec![first; length];
            datagram.iter_mut().skip(1).zip((0..=255_u8).cycle()).for_each(|(byte, at)| {
                *byte = at.wrapping_mul(first);
            });
            bench.deliver(&datagram);
            bench.server_turns();
            let answers = bench.world.to_client.drain(..).map(|(bytes, _)| bytes.len());
            largest = largest.max(answers.sum::<usize>().saturating_sub(length));
        }
    }
    assert_eq!((largest, bench.links.received_bytes()), (0, 0), "no answer is longer than its question");
}

#[test]
fn a_new_certificate_is_for_the_next_handshake() {
    let mut bench = Bench::new(QuicLimits::default());
    let mut earlier = bench.call();
    bench.settle(&mut earlier);
    bench.tls.replace(certified().0);
    let mut later = bench.call();
    bench.settle(&mut later);
    assert!(later.lost().is_some_and(|reason| reason.contains("certificate")), "it is of another authority");
    earlier.write(b"still here");
    bench.settle(&mut earlier);
    assert_eq!(read(bench.server(), 100).expect("bytes"), b"still here");
}

#[test]
fn all_connections_are_closed_when_the_broker_ends() {
    let mut bench = Bench::new(QuicLimits::default());
    let mut caller = bench.call();
    bench.settle(&mut caller);
    bench.links.close_all(bench.now, &mut bench.world);
    bench.client_receives(&mut caller);
    assert_eq!(caller.lost().as_deref(), Some("closed by peer: 0"));
}
