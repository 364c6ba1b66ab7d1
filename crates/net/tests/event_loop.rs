//! The event loop from outside: a server on real sockets, with every wait bounded.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use auth::{Access, Guard, Question, Realms, SourceSettings, UserService, UserSource, Verdict, Voucher};
use net::{Limits, Options, Server};
use session::Settings;

const CONNACK: [u8; 4] = [0x20, 2, 0, 0];
/// A wait that takes longer has failed.
const DEADLINE: Duration = Duration::from_secs(20);

#[test]
fn the_end_of_a_stream_is_seen_when_it_comes_together_with_data() {
    let broker = Broker::start(2);
    let mut watcher = broker.connect("watcher", None);
    watcher.subscribe("will");
    for round in 0..300_u32 {
        let mut client = broker.connect("mortal", Some("will"));
        // One segment or two: the kernel may report both in one event.
        client.write(&publish("nobody", &round.to_be_bytes(), false));
        client.socket.shutdown(Shutdown::Write).expect("the socket is open");
        assert_eq!(watcher.read_packet(), publish("will", b"gone", false), "round {round}");
        client.expect_end();
    }
    broker.stop();
}

#[test]
fn all_that_was_sent_in_one_go_with_the_end_is_handled() {
    let broker = Broker::start(2);
    let mut watcher = broker.connect("watcher", None);
    watcher.subscribe("#");
    for round in 0..300_u32 {
        // CONNECT waits for the ledger, and what is behind it waits with it.
        let said = publish("last words", &round.to_be_bytes(), false);
        let mut client = broker.dial();
        client.write(&[connect("mortal", Some("will")), said.clone()].concat());
        client.socket.shutdown(Shutdown::Write).expect("the socket is open");
        assert_eq!(watcher.read_packet(), said, "round {round}");
        assert_eq!(watcher.read_packet(), publish("will", b"gone", false), "round {round}");
        assert_eq!(client.read_packet(), CONNACK);
        client.expect_end();
    }
    broker.stop();
}

/// Those who leave are served a few at a time. One that is back before its turn has said goodbye all the same.
#[test]
fn clients_that_leave_at_once_and_come_back_at_once_have_said_goodbye() {
    let broker = Broker::start(1);
    let mut watcher = broker.connect("watcher", None);
    watcher.subscribe("will");
    let name = |number| format!("mortal-{number}");
    for _ in 0..5 {
        let clients: Vec<Client> =
            (0..300).map(|number| broker.connect(&name(number), Some("will"))).collect();
        for mut client in clients {
            client.write(&[0xE0, 0]);
        }
        let mut clients: Vec<Client> = (0..300).map(|_| broker.dial()).collect();
        for (number, client) in clients.iter_mut().enumerate().rev() {
            client.write(&connect(&name(number), None));
        }
        for client in &mut clients {
            assert_eq!(client.read_packet(), CONNACK);
        }
        watcher.ping();
    }
    broker.stop();
}

#[test]
fn a_packet_arrives_whole_in_however_many_pieces_it_comes() {
    let broker = Broker::start(1);
    let mut watcher = broker.connect("watcher", None);
    watcher.subscribe("#");
    let mut publisher = broker.connect("publisher", None);
    publisher.socket.set_nodelay(true).expect("a socket");
    let payload: Vec<u8> = (0..100_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    // On both sides of what is copied in front of the next read, and of what one read takes.
    for len in [1, 4_000, 4_096, 4_097, 10_000, 100_000] {
        let packet = publish("t", &payload[..len], false);
        let both = [&packet[..], &packet[..]].concat();
        for piece in both.chunks(len / 37 + 1) {
            publisher.write(piece);
        }
        assert_eq!(watcher.read_packet(), packet, "{len} bytes");
        assert_eq!(watcher.read_packet(), packet, "{len} bytes, again");
    }
    broker.stop();
}

#[test]
fn retained_messages_arrive_whole_at_a_client_that_is_over_its_mark_at_each_step() {
    const COUNT: usize = 200;
    const PAYLOAD_BYTES: usize = 60_000;
    let broker = Broker::start(1);
    let mut publisher = broker.connect("publisher", None);
    for number in 0..COUNT {
        publisher.write(&publish(&format!("r/{number}"), &vec![7; PAYLOAD_BYTES], true));
    }
    publisher.ping();
    let mut reader = broker.connect("reader", None);
    reader.subscribe("r/#");
    for number in 0..COUNT {
        let packet = reader.read_packet();
        assert!(packet.len() > PAYLOAD_BYTES, "message {number}");
    }
    broker.stop();
}

/// The check of a password may take seconds, and whoever cuts connections meanwhile would make others wait for nothing.
#[test]
fn the_password_of_a_client_that_is_gone_is_not_checked_and_its_will_is_not_published() {
    let gate = Arc::new(Gate::default());
    let broker = Broker::start_with(&Options { guard: guard(&gate), ..options(1) });
    let mut watcher = broker.connect("watcher", None);
    watcher.subscribe("will");
    let mut first = broker.dial();
    first.write(&login("first", None));
    until("the only thread that asks waits for an answer", || gate.questions() == 1);
    for number in 0..50 {
        let mut client = broker.dial();
        client.write(&login(&format!("cut-{number}"), Some("will")));
        if number % 2 == 0 {
            // The system sends RST instead of FIN.
            let socket = socket2::SockRef::from(&client.socket);
            socket.set_linger(Some(Duration::ZERO)).expect("a socket");
        }
    }
    let mut last = broker.dial();
    last.write(&login("last", None));
    let operator = broker.server.operator();
    until("all have come", || operator.totals_by_shard()[0].sockets == 53);
    until("the others are gone", || operator.connections_of(0) == 3);
    gate.open();
    assert_eq!(first.read_packet(), CONNACK);
    assert_eq!(last.read_packet(), CONNACK);
    assert_eq!(gate.questions(), 2);
    // There is no will before the answer.
    watcher.ping();
    broker.stop();
}

/// A service that knows everybody, and does not answer before the gate is open.
#[derive(Debug, Default)]
struct Gate {
    questions: AtomicUsize,
    is_open: Mutex<bool>,
    opens: Condvar,
}

impl Gate {
    fn questions(&self) -> usize {
        self.questions.load(Ordering::Relaxed)
    }

    fn open(&self) {
        *self.is_open.lock().expect("no test panics in here") = true;
        self.opens.notify_all();
    }
}

impl UserService for Gate {
    fn ask(&self, question: &Question<'_>) -> Verdict {
        self.questions.fetch_add(1, Ordering::Relaxed);
        let is_open = self.is_open.lock().expect("no test panics in here");
        let waited = self.opens.wait_timeout_while(is_open, DEADLINE, |is_open| !*is_open);
        let (is_open, _) = waited.expect("no test panics in here");
        assert!(*is_open, "the gate opens");
        Verdict::Known { user: question.user.into(), until_unix_secs: None }
    }
}

/// Users whom only this service knows.
fn guard(gate: &Arc<Gate>) -> Arc<Guard> {
    let settings = SourceSettings { place: "a", number: 1, remembers: Duration::ZERO };
    let source = UserSource::new(Voucher::Http, settings, Arc::clone(gate) as Arc<dyn UserService>);
    let access = Access::default().with_services(Arc::from([source]));
    Arc::new(Guard::new(Realms::new(vec![("".into(), Arc::new(access))])))
}

/// Waits until something is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < DEADLINE, "{what}");
        // Each look waits for the answer of a shard.
        thread::yield_now();
    }
}

/// A server of a test's own.
struct Broker {
    server: Server,
    address: SocketAddr,
}

impl Broker {
    fn start(shards: usize) -> Self {
        Self::start_with(&options(shards))
    }

    fn start_with(options: &Options) -> Self {
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

    fn connect(&self, client_id: &str, will_topic: Option<&str>) -> Client {
        let mut client = self.dial();
        client.write(&connect(client_id, will_topic));
        assert_eq!(client.read_packet(), CONNACK);
        client
    }

    /// A connection on which nothing was said.
    fn dial(&self) -> Client {
        let socket = TcpStream::connect(self.address).expect("it listens");
        socket.set_read_timeout(Some(DEADLINE)).expect("not zero");
        socket.set_write_timeout(Some(DEADLINE)).expect("not zero");
        Client { socket }
    }

    fn stop(self) {
        self.server.shut_down().expect("no thread fails");
    }
}

fn options(shards: usize) -> Options {
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

fn settings() -> Settings {
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
struct Client {
    socket: TcpStream,
}

impl Client {
    fn write(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("the broker reads");
    }

    fn subscribe(&mut self, filter: &str) {
        self.write(&packet(0x82, &[&[0, 1], &text(filter)[..], &[0]].concat()));
        assert_eq!(self.read_packet(), [0x90, 3, 0, 1, 0], "SUBACK");
    }

    fn ping(&mut self) {
        self.write(&[0xC0, 0]);
        assert_eq!(self.read_packet(), [0xD0, 0], "PINGRESP");
    }

    fn read_packet(&mut self) -> Vec<u8> {
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

    fn byte(&mut self) -> u8 {
        let mut byte = [0];
        self.socket.read_exact(&mut byte).expect("a packet before the deadline");
        byte[0]
    }

    /// The broker has closed its end; a reset is an end too.
    fn expect_end(&mut self) {
        match self.socket.read(&mut [0]) {
            Ok(0) => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            other => panic!("the broker has not closed: {other:?}"),
        }
    }
}

fn connect(client_id: &str, will_topic: Option<&str>) -> Vec<u8> {
    // Keep Alive 0: no timer ends the connection.
    let flags = if will_topic.is_some() { 0b110 } else { 0b10 };
    let mut body = [&text("MQTT")[..], &[4, flags, 0, 0], &text(client_id)].concat();
    if let Some(topic) = will_topic {
        body.extend([text(topic), text("gone")].concat());
    }
    packet(0x10, &body)
}

/// The same with a user name and a password.
fn login(client_id: &str, will_topic: Option<&str>) -> Vec<u8> {
    // The type and one byte of length come before the protocol name, level and flags.
    let mut body = connect(client_id, will_topic).split_off(2);
    body[7] |= 0b1100_0000;
    packet(0x10, &[body, text("ann"), text("secret")].concat())
}

fn publish(topic: &str, payload: &[u8], retain: bool) -> Vec<u8> {
    packet(0x30 | u8::from(retain), &[&text(topic)[..], payload].concat())
}

fn packet(first_byte: u8, body: &[u8]) -> Vec<u8> {
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

fn text(text: &str) -> Vec<u8> {
    let len = u16::try_from(text.len()).expect("short texts");
    [&len.to_be_bytes(), text.as_bytes()].concat()
}
