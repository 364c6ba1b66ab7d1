//! Any datagrams at a listener of QUIC: those of a client, changed, dropped, repeated, swapped or invented.
#![no_main]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use base::ConnectionId;
use bytes::BytesMut;
use layers::quic::{
    Arrival, Datagram, Door, EndpointEvent, Links, Name, Outside, QuicLimits, QuicStream, Transmit,
};
use layers::{CurrentTls, Identity, TlsSettings};
use libfuzzer_sys::fuzz_target;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use stream::{Readiness, Stream as _};

const LIMITS: QuicLimits = QuicLimits { handshakes_max: 8, buffer_bytes: 16 * 1024, streams_max: 3 };
/// Bytes that the client writes.
const WRITTEN: &[u8] = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c\xc0\x00\xe0\x00";

static SECURE: LazyLock<(Arc<rustls::ServerConfig>, ClientConfig)> = LazyLock::new(|| {
    let made = rcgen::generate_simple_self_signed(["broker.example".to_owned()]).expect("a certificate");
    let certificate = CertificateDer::from(made.cert);
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let identities = vec![Identity { chain: vec![certificate.clone()], key }];
    let server = TlsSettings { identities, ..TlsSettings::default() }.build().expect("it fits together");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("it can be trusted");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    client.alpn_protocols = vec![b"mqtt".to_vec()];
    let client = QuicClientConfig::try_from(client).expect("a cipher suite");
    (server, ClientConfig::new(Arc::new(client)))
});

#[derive(Default)]
struct World {
    sent: VecDeque<Vec<u8>>,
    told: Vec<(Name, EndpointEvent)>,
}

impl World {
    fn send(&mut self, transmit: &Transmit, bytes: &[u8]) {
        let size = transmit.segment_size.unwrap_or(bytes.len()).max(1);
        self.sent.extend(bytes.chunks(size).map(<[u8]>::to_vec));
    }
}

impl Outside for World {
    fn segments_max(&self, _: u16) -> usize {
        3
    }

    fn transmit(&mut self, _: u16, transmit: &Transmit, bytes: &[u8]) {
        self.send(transmit, bytes);
    }

    fn tell_door(&mut self, name: Name, event: EndpointEvent) {
        self.told.push((name, event));
    }

    fn woken(&mut self, _: ConnectionId, _: Readiness) {}
}

struct Server {
    now: Instant,
    door: Door,
    links: Links,
    world: World,
    streams: Vec<QuicStream>,
    read: Vec<Vec<u8>>,
}

impl Server {
    fn receive(&mut self, bytes: &[u8]) {
        let remote = SocketAddr::from(([127, 0, 0, 1], 40_000));
        let datagram = Datagram { remote, local_ip: None, ecn: None, bytes: BytesMut::from(bytes) };
        let mut answer = Vec::new();
        match self.door.receive(self.now, datagram, false, &mut answer) {
            Arrival::Nothing => {}
            Arrival::For(handle, event) => {
                let name = Name { listener: 0, handle };
                self.links.receive(self.now, name, (event, bytes.len()), &mut self.world);
            }
            Arrival::Answer(transmit) | Arrival::Retry(transmit) | Arrival::Refused(transmit) => {
                assert!(transmit.size <= 3 * bytes.len(), "{} bytes for {}", transmit.size, bytes.len());
                self.world.send(&transmit, &answer[..transmit.size]);
            }
        }
        assert!(self.door.handshakes() <= LIMITS.handshakes_max);
    }

    fn turn(&mut self) {
        let mut answer = Vec::new();
        while let Some(accepted) = self.door.accept(self.now, &mut answer) {
            match accepted {
                Ok((handle, begun)) => {
                    self.streams.push(self.links.add(self.now, Name { listener: 0, handle }, begun));
                    self.read.push(Vec::new());
                }
                Err(Some(transmit)) => self.world.send(&transmit, &answer[..transmit.size]),
                Err(None) => {}
            }
            answer.clear();
        }
        self.links.handle_timeouts(self.now, &mut self.world);
        for (stream, read) in self.streams.iter_mut().zip(&mut self.read) {
            let mut buffer = [0; 7];
            while let Ok(received) = stream.read(&mut buffer)
                && received.bytes > 0
            {
                read.extend_from_slice(&buffer[..received.bytes]);
            }
            assert!(WRITTEN.starts_with(read), "{read:02x?}");
        }
        self.links.end_turn(self.now, &mut self.world);
        for (name, event) in std::mem::take(&mut self.world.told) {
            if let Some(event) = self.door.handle_event(name.handle, event) {
                self.links.receive(self.now, name, (event, 0), &mut self.world);
            }
        }
    }
}

struct Client {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    written: usize,
}

impl Client {
    fn datagrams(&mut self, now: Instant) -> Vec<Vec<u8>> {
        if self.written == 0
            && let Some(stream) = self.connection.streams().open(Dir::Bi)
        {
            self.written = self.connection.send_stream(stream).write(WRITTEN).unwrap_or(0);
        }
        let mut all = Vec::new();
        let mut buffer = Vec::new();
        while let Some(transmit) = self.connection.poll_transmit(now, 1, &mut buffer) {
            all.push(buffer.drain(..).take(transmit.size).collect());
        }
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        while self.connection.poll().is_some() {}
        all
    }

    fn receive(&mut self, now: Instant, bytes: &[u8]) {
        let from = SocketAddr::from(([127, 0, 0, 1], 14_567));
        let event = self.endpoint.handle(now, from, None, None, BytesMut::from(bytes), &mut Vec::new());
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.connection.handle_event(event);
        }
    }
}

/// Each byte of the input decides about a datagram.
fn meddle(server: &mut Server, input: &mut impl Iterator<Item = u8>, datagram: &[u8], kept: &mut Vec<u8>) {
    let Some(choice) = input.next() else { return server.receive(datagram) };
    match choice % 8 {
        0 => {
            let at = usize::from(u16::from_le_bytes([input.next().unwrap_or(0), input.next().unwrap_or(0)]));
            let mut changed = datagram.to_vec();
            let length = changed.len();
            changed[at % length] ^= choice | 1;
            server.receive(&changed);
        }
        1 => *kept = datagram.to_vec(),
        2 => {
            server.receive(datagram);
            server.receive(datagram);
        }
        3 => {
            server.receive(datagram);
            server.receive(kept);
        }
        4 => {
            let invented: Vec<u8> = input.take(usize::from(choice) * 5).collect();
            server.receive(&invented);
            server.receive(datagram);
        }
        5 => server.receive(&datagram[..datagram.len() / 2]),
        _ => server.receive(datagram),
    }
}

fuzz_target!(|input: &[u8]| {
    let (config, client) = &*SECURE;
    let mut now = Instant::now();
    let door =
        Door::new(Arc::new(CurrentTls::new(Arc::clone(config))), LIMITS, false).expect("a cipher suite");
    let (links, world) = (Links::default(), World::default());
    let mut server = Server { now, door, links, world, streams: Vec::new(), read: Vec::new() };
    let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None);
    let to = SocketAddr::from(([127, 0, 0, 1], 14_567));
    let (handle, connection) =
        endpoint.connect(now, client.clone(), to, "broker.example").expect("it can be connected to");
    let mut client = Client { endpoint, handle, connection, written: 0 };
    let (mut input, mut kept) = (input.iter().copied(), Vec::new());
    for _ in 0..12 {
        for datagram in client.datagrams(now) {
            meddle(&mut server, &mut input, &datagram, &mut kept);
        }
        server.turn();
        while let Some(datagram) = server.world.sent.pop_front() {
            client.receive(now, &datagram);
        }
        now += Duration::from_millis(200);
        server.now = now;
        client.connection.handle_timeout(now);
    }
    let links = server.streams.len();
    assert!(server.links.received_bytes() <= links * (16 * 1024 + LIMITS.buffer_bytes as usize));
});
