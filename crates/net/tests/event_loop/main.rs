//! The event loop from outside: a server on real sockets, with every wait bounded.

mod support;

use std::io::Read;
use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use auth::{Access, Guard, Question, Realms, SourceSettings, UserService, UserSource, Verdict, Voucher};
use net::Options;

use support::{Broker, CONNACK, Client, DEADLINE, connect, login, options, publish, until};

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

/// The socket takes a part of the output at a time, and the client reads parts that end anywhere.
#[test]
fn a_packet_leaves_whole_in_however_many_writes() {
    const COUNT: usize = 40;
    let broker = Broker::start(2);
    let mut reader = broker.connect("reader", None);
    reader.subscribe("t");
    let mut publisher = broker.connect("publisher", None);
    let bytes: Vec<u8> = (0..700_000 + COUNT).map(|at| (at / 7).to_le_bytes()[0]).collect();
    let packet = |number: usize| publish("t", &bytes[number..number + 700_000], false);
    let mut left = 0;
    for number in 0..COUNT {
        publisher.write(&packet(number));
        // The client is some packets behind, with more than the socket takes.
        if number >= 8 {
            assert!(read_in_parts(&mut reader.socket, packet(left).len()) == packet(left), "packet {left}");
            left += 1;
        }
    }
    for number in left..COUNT {
        assert!(read_in_parts(&mut reader.socket, packet(number).len()) == packet(number), "packet {number}");
    }
    broker.stop();
}

fn read_in_parts(socket: &mut impl Read, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (number, part) in bytes.chunks_mut(4_099).enumerate() {
        let (first, rest) = part.split_at_mut(number % part.len());
        socket.read_exact(first).expect("it comes before the deadline");
        socket.read_exact(rest).expect("it comes before the deadline");
    }
    bytes
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
