//! A server on real sockets, and clients of it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use net::{Limits, Options, Server};
use session::Settings;

pub(crate) const CONNACK: [u8; 4] = [0x20, 2, 0, 0];
/// A wait that takes longer has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Waits until something is so.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < DEADLINE, "{what}");
        // Most looks wait for the answer of a shard.
        thread::yield_now();
    }
}

/// A server of a test's own.
pub(crate) struct Broker {
    pub(crate) server: Server,
    address: SocketAddr,
}

impl Broker {
    pub(crate) fn start(shards: usize) -> Self {
        Self::start_with(&options(shards))
    }

    pub(crate) fn start_with(options: &Options) -> Self {
        let listener =
            net::listen(([127, 0, 0, 1], 0).into(), net::TcpOptions::default()).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let (ended, _) = mpsc::channel();
        let server = Server::start(
            vec![net::Listening {
                socket: net::Acceptor::Tcp(listener),
                rules: net::Rules {
                    admission: protocol::Durability::Fsync.into(),
                    connections_max: usize::MAX,
                    stack: std::sync::Arc::default(),
                    proxy_from: Vec::new(),
                    rates: net::RateLimits::default(),
                },
            }],
            options,
            Box::new(net::Forgetful),
            &ended,
        )
        .expect("it starts");
        Self { server, address }
    }

    pub(crate) fn connect(&self, client_id: &str, will_topic: Option<&str>) -> Client {
        let mut client = self.dial();
        client.write(&connect(client_id, will_topic));
        assert_eq!(client.read_packet(), CONNACK);
        client
    }

    /// A connection on which nothing was said.
    pub(crate) fn dial(&self) -> Client {
        let socket = TcpStream::connect(self.address).expect("it listens");
        socket.set_read_timeout(Some(DEADLINE)).expect("not zero");
        socket.set_write_timeout(Some(DEADLINE)).expect("not zero");
        Client { socket }
    }

    pub(crate) fn stop(self) {
        self.server.shut_down().expect("no thread fails");
    }
}

pub(crate) fn options(shards: usize) -> Options {
    Options {
        shards,
        settings: settings(),
        ledger: ledger::Settings::default(),
        limits: Limits {
            connections_max: 1_000,
            high_water_bytes: 32 * 1024,
            waiting_bytes_max: 64 * 1024 * 1024,
            memory_bytes_max: 256 * 1024 * 1024,
        },
        counted_users_max: 10,
        // Nothing but sockets and mail wakes an idle shard.
        questions: 1,
        sys_interval_ms: None,
        guard: std::sync::Arc::default(),
        orders: None,
        instruments: Vec::new(),
        spans: None,
    }
}

pub(crate) fn settings() -> Settings {
    Settings {
        packet_bytes_max: 1024 * 1024,
        connect_packet_bytes_max: 1024,
        topic_levels_max: 8,
        client_id_bytes_max: 64,
        will_bytes_max: 1024,
        subscriptions_max: 8,
        topic_alias_max: 0,
        connect_timeout_ms: 60_000,
        ..Settings::default()
    }
}

/// The other end of a connection, speaking MQTT 3.1.1.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
}

impl Client {
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the broker reads");
    }

    pub(crate) fn subscribe(&mut self, filter: &str) {
        self.write(&packet(0x82, &[&[0, 1], &text(filter)[..], &[0]].concat()));
        assert_eq!(self.read_packet(), [0x90, 3, 0, 1, 0], "SUBACK");
    }

    pub(crate) fn ping(&mut self) {
        self.write(&[0xC0, 0]);
        assert_eq!(self.read_packet(), [0xD0, 0], "PINGRESP");
    }

    pub(crate) fn read_packet(&mut self) -> Vec<u8> {
        let mut bytes = vec![self.byte()];
        let (mut len, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            bytes.push(byte);
            len |= usize::from(byte & 0x7F) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let start = bytes.len();
        bytes.resize(start + len, 0);
        self.socket.read_exact(&mut bytes[start..]).expect("the packet is whole before the deadline");
        bytes
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let mut byte = [0];
        self.socket.read_exact(&mut byte).expect("a packet before the deadline");
        byte[0]
    }

    /// The broker has closed its end; a reset is an end too.
    pub(crate) fn expect_end(&mut self) {
        match self.socket.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            other => panic!("the broker has not closed: {other:?}"),
        }
    }
}

pub(crate) fn connect(client_id: &str, will_topic: Option<&str>) -> Vec<u8> {
    // Keep Alive 0: no timer ends the connection.
    let flags = if will_topic.is_some() { 0b110 } else { 0b10 };
    let mut body = [&text("MQTT")[..], &[4, flags, 0, 0], &text(client_id)].concat();
    if let Some(topic) = will_topic {
        body.extend([text(topic), text("gone")].concat());
    }
    packet(0x10, &body)
}

/// The same with a user name and a password.
pub(crate) fn login(client_id: &str, will_topic: Option<&str>) -> Vec<u8> {
    // The type and one byte of length come before the protocol name, level and flags.
    let mut body = connect(client_id, will_topic).split_off(2);
    body[7] |= 0b1100_0000;
    packet(0x10, &[body, text("ann"), text("secret")].concat())
}

pub(crate) fn publish(topic: &str, payload: &[u8], retain: bool) -> Vec<u8> {
    packet(0x30 | u8::from(retain), &[&text(topic)[..], payload].concat())
}

pub(crate) fn packet(first_byte: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![first_byte];
    let mut rest = body.len();
    loop {
        let continues = if rest > 0x7F { 0x80 } else { 0 };
        packet.push(u8::try_from(rest & 0x7F).expect("seven bits") | continues);
        rest >>= 7;
        if rest == 0 {
            break;
        }
    }
    packet.extend_from_slice(body);
    packet
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    let len = u16::try_from(text.len()).expect("short texts");
    [&len.to_be_bytes(), text.as_bytes()].concat()
}
