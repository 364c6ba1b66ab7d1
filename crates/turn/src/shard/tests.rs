//! Turns of one shard with one connection: what is read, and how connections end.

use std::sync::Arc;

use auth::{Access, Checked, Guard, PasswordHash, Realms, Scheme, Users};
use base::{Budget, Purpose, ShardId, Subscriber};
use broker::Effects as _;
use index::Subscriptions;
use protocol::{Claimed, Command, Durability};
use session::Settings;
use stream::Peer;

use super::*;
use crate::board::Board;
use crate::bounds::Bounds;
use crate::double::{Double, Pipe};
use crate::letter::{Answers, ToLedger};

mod census;
mod trace;

const NOW: Now = Now { monotonic_ms: 1, unix_ms: 1 };
const READABLE: Readiness = Readiness { readable: true, writable: false, ending: false, failed: false };
const ENDING: Readiness = Readiness { ending: true, ..READABLE };
const FAILED: Readiness = Readiness { failed: true, ..ENDING };
/// MQTT 3.1.1, Clean Session 1, no Keep Alive, client identifier `c`.
const CONNECT: &[u8] = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01c";

/// The same with user name and password, both `ann`.
const LOGIN: &[u8] = b"\x10\x17\x00\x04MQTT\x04\xC2\x00\x00\x00\x01c\x00\x03ann\x00\x03ann";

/// A shard with one connection.
struct Bench {
    body: ShardLoop<Double>,
    peer: Pipe,
    id: ConnectionId,
}

impl Bench {
    fn new(bounds: Bounds) -> Self {
        Self::with_guard(bounds, Arc::default())
    }

    /// The same with a user `ann`, whose password is her name.
    fn with_ann() -> Self {
        let mut users = Users::default();
        let hash = PasswordHash::new(Scheme::Sha512, b"ann", b"twelve bytes").expect("a hash");
        users.add("ann", hash).expect("a user");
        let realms = Realms::new(vec![("".into(), Arc::new(Access::new(Some(users), None)))]);
        Self::with_guard(Bounds::default(), Arc::new(Guard::new(realms)))
    }

    fn with_guard(bounds: Bounds, guard: Arc<Guard>) -> Self {
        let shard = ShardId::new(0);
        let board = Arc::new(Board::new(1, Arc::new(Budget::new(1 << 30))));
        board.charge(shard);
        let index = Arc::new(Subscriptions::new([1, 2]));
        let brain = Shard::new(shard, Arc::new(Settings::default()), index, Arc::default(), None, NOW);
        let brain = brain.with_guard(guard);
        let io = Io::new(shard, board, Double::default(), Arc::default(), bounds);
        let mut body = ShardLoop::new(brain, io, NOW);
        let peer = Pipe::new(1 << 20);
        body.begin(NOW);
        body.admit(Accepted {
            stream: peer.clone(),
            peer: Peer::Simulated(0),
            admission: Durability::Fsync.into(),
            listener: 0,
        });
        let id = body.host().watched[0];
        Self { body, peer, id }
    }

    /// Turns until the shard would sleep. Returns their number.
    fn run(&mut self) -> usize {
        let mut turns = 0;
        loop {
            self.body.begin(NOW);
            self.body.turn();
            turns += 1;
            assert!(turns < 1_000, "there is an end");
            if self.body.sleep() != Sleep::No {
                return turns;
            }
        }
    }

    /// Changes of the stream are announced.
    fn wake(&mut self, readiness: Readiness) {
        self.body.woken(self.id, readiness);
        self.run();
    }

    /// The password of the client is right.
    fn verify(&mut self) {
        let note = Note::Verified { connection: self.id, checked: Checked::Right };
        self.body.host().inbox.push(note.into());
        self.run();
    }

    /// Whether the connection is there, and somebody wants to know whether its password is right.
    fn is_waiting(&mut self) -> bool {
        let is_wanted = self.body.host().checks.iter().any(|(_, wished)| wished.is_wanted());
        let connections = self.body.io.connections.iter().count();
        assert_eq!(connections, usize::from(is_wanted));
        is_wanted
    }

    /// The subscriber for which CONNECT has claimed its client identifier.
    fn subscriber(&mut self) -> Arc<Subscriber> {
        let Some(ToLedger::Commands { mut commands, .. }) = self.body.host().to_ledger.pop() else {
            panic!("CONNECT claims a client identifier");
        };
        match commands.pop() {
            Some(Command::Claim(claim)) => claim.subscriber,
            other => panic!("a claim, not {other:?}"),
        }
    }

    /// Answers as the ledger does for a client that has no session.
    fn let_in(&mut self, subscriber: Arc<Subscriber>) {
        let reply = Reply::Claimed(Box::new(Claimed {
            connection: self.id,
            subscriber,
            session_present: false,
            subscriptions: Vec::new(),
            unfinished: Vec::new(),
            has_more_unfinished: false,
            unreleased: Vec::new(),
        }));
        self.answer(reply);
        self.run();
    }

    /// Puts a reply of the ledger into the inbox.
    fn answer(&mut self, reply: Reply) {
        let charge = self.body.io.post.board().budget().charge(Purpose::Mail, 0);
        let answers = Answers { replies: vec![reply], bytes: 0, charge };
        self.body.host().inbox.push(Letter::Answers(answers));
    }

    fn commands(&mut self) -> usize {
        let letters = self.body.host().to_ledger.iter();
        letters
            .map(|letter| match letter {
                ToLedger::Commands { commands, .. } => commands.len(),
                ToLedger::Ask(_) | ToLedger::AnswersRead | ToLedger::Settings { .. } | ToLedger::Stop => 0,
            })
            .sum()
    }
}

/// More clients leave at the same time than one turn serves.
#[test]
fn the_disconnect_of_an_evicted_client_counts_although_others_leave_before_it() {
    let mut bench = Bench::new(Bounds::default());
    bench.peer.put(CONNECT);
    bench.body.woken(bench.id, READABLE);
    bench.run();
    let subscriber = bench.subscriber();
    bench.let_in(subscriber);
    for _ in 0..20 {
        bench.body.io.post.board().charge(ShardId::new(0));
        let stream = Pipe::new(1 << 20);
        stream.end();
        let peer = Peer::Simulated(1);
        bench.body.admit(Accepted { stream, peer, admission: Durability::Fsync.into(), listener: 0 });
        let other = *bench.body.host().watched.last().expect("it was admitted");
        bench.body.woken(other, ENDING);
    }
    bench.peer.put(&[0xE0, 0]);
    bench.peer.end();
    bench.body.woken(bench.id, ENDING);
    bench.answer(Reply::Evict { connection: bench.id });
    bench.run();
    let letters = std::mem::take(&mut bench.body.host().to_ledger);
    let commands = letters.into_iter().flat_map(|letter| match letter {
        ToLedger::Commands { commands, .. } => commands,
        ToLedger::Ask(_) | ToLedger::AnswersRead | ToLedger::Settings { .. } | ToLedger::Stop => Vec::new(),
    });
    let id = bench.id;
    let causes: Vec<_> = commands
        .filter_map(|command| match command {
            Command::Left(left) if left.connection == id => Some(left.cause),
            _ => None,
        })
        .collect();
    assert_eq!(causes, [protocol::Cause::Normal], "and not that the client was taken over");
}

/// A stream that hands out its bytes in small pieces, as TLS does, is announced once for all of them.
#[test]
fn a_stream_is_read_until_it_is_drained_however_little_a_read_gives() {
    let mut bench = Bench::new(Bounds { read: 3, ..Bounds::default() });
    bench.peer.put(CONNECT);
    bench.body.woken(bench.id, READABLE);
    assert!(bench.run() >= CONNECT.len() / 3);
    assert_eq!(bench.commands(), 1, "CONNECT has claimed its client identifier");
}

#[test]
fn nothing_is_read_before_it_is_announced() {
    let mut bench = Bench::new(Bounds::default());
    bench.run();
    bench.peer.put(CONNECT);
    assert_eq!((bench.run(), bench.commands()), (1, 0));
    bench.body.woken(bench.id, READABLE);
    bench.run();
    assert_eq!(bench.commands(), 1);
}

#[test]
fn the_end_of_a_stream_is_seen_behind_its_last_bytes_although_it_is_announced_once() {
    let mut bench = Bench::new(Bounds::default());
    bench.peer.put(&CONNECT[..5]);
    bench.peer.end();
    bench.body.woken(bench.id, ENDING);
    bench.run();
    assert_eq!(bench.body.io.connections.iter().count(), 0);
    assert_eq!(bench.body.io.post.board().connections(), 0);
}

/// A stream with layers says goodbye to its peer, unless nothing can be written to it any more.
#[test]
fn a_stream_that_fails_while_it_is_written_is_forgotten() {
    let mut bench = Bench::new(Bounds::default());
    bench.body.io.send(bench.id, &[7; 100]);
    bench.peer.break_with_layers();
    bench.run();
    assert_eq!(bench.body.io.connections.iter().count(), 0);
}

/// The peer may still send, and closes when it has read the last packet.
#[test]
fn a_connection_that_the_broker_closes_is_read_until_its_peer_closes_too() {
    let mut bench = Bench::new(Bounds::default());
    bench.peer.put(b"\xc0\x00");
    bench.body.woken(bench.id, READABLE);
    bench.run();
    assert!(bench.peer.is_shut(), "PINGREQ is no first packet");
    bench.peer.put(&[0; 100_000]);
    bench.body.woken(bench.id, READABLE);
    bench.run();
    assert_eq!(bench.body.io.connections.iter().count(), 1, "it lingers");
    bench.peer.end();
    bench.body.woken(bench.id, ENDING);
    bench.run();
    assert_eq!(bench.body.io.connections.iter().count(), 0);
}

#[test]
fn a_connection_that_does_not_close_is_dropped_when_it_has_lingered() {
    let mut bench = Bench::new(Bounds::default());
    bench.peer.put(b"\xc0\x00");
    bench.body.woken(bench.id, READABLE);
    bench.run();
    let Sleep::Until(until_ms) = bench.body.sleep() else { panic!("it waits for the peer") };
    bench.body.begin(Now { monotonic_ms: until_ms, ..NOW });
    bench.body.turn();
    assert_eq!(bench.body.io.connections.iter().count(), 0);
}

/// Topic `t`, QoS 0.
fn publish(payload_bytes: u32) -> Vec<u8> {
    let mut packet = vec![0x30];
    let mut rest = payload_bytes + 3;
    while rest >= 128 {
        packet.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    packet.push(rest.to_le_bytes()[0]);
    packet.extend_from_slice(b"\x00\x01t");
    packet.resize(packet.len() + payload_bytes as usize, 7);
    packet
}

/// Others may make each turn long.
#[test]
fn a_long_packet_is_read_in_few_turns_and_what_follows_it_in_as_many_as_before() {
    let mut bench = Bench::new(Bounds::default());
    bench.peer.put(CONNECT);
    bench.body.woken(bench.id, READABLE);
    bench.run();
    let subscriber = bench.subscriber();
    bench.let_in(subscriber);
    bench.peer.take_written();
    bench.peer.put(&publish(300_000));
    bench.peer.put(&b"\xc0\x00".repeat(30_000));
    bench.body.woken(bench.id, READABLE);
    let mut answered = Vec::new();
    while answered.iter().sum::<usize>() < 30_000 {
        bench.body.begin(NOW);
        bench.body.turn();
        answered.push(bench.peer.take_written().len() / 2);
    }
    assert!(answered[1] > 0, "the second read has its end");
    // A turn takes in the end of one read and the beginning of the next.
    assert!(answered.iter().all(|count| *count <= 2 * 2_048), "{answered:?}");
    assert!(answered.len() > 30_000 / 2_048, "{answered:?}");
}

/// Each of them costs as much as a longer one, and other clients wait for the turn.
#[test]
fn a_read_of_many_short_packets_is_taken_in_over_many_turns() {
    let mut bench = Bench::new(Bounds::default());
    bench.peer.put(CONNECT);
    bench.body.woken(bench.id, READABLE);
    bench.run();
    let subscriber = bench.subscriber();
    bench.let_in(subscriber);
    bench.peer.take_written();
    bench.peer.put(&b"\xc0\x00".repeat(30_000));
    bench.body.woken(bench.id, READABLE);
    let mut answered = Vec::new();
    while answered.iter().sum::<usize>() < 30_000 {
        bench.body.begin(NOW);
        bench.body.turn();
        answered.push(bench.peer.take_written().len() / 2);
    }
    assert!(answered.iter().all(|count| *count <= 2_048), "{answered:?}");
    assert_ne!(bench.body.sleep(), Sleep::No);
}

/// The ledger has let in another connection of the same client. What the client has sent before counts, however many
/// packets it is: a DISCONNECT means that no will is published.
#[test]
fn a_client_that_is_taken_over_is_heard_to_the_end() {
    let mut bench = Bench::new(Bounds::default());
    bench.peer.put(CONNECT);
    bench.body.woken(bench.id, READABLE);
    bench.run();
    let subscriber = bench.subscriber();
    bench.let_in(subscriber);
    bench.peer.put(&b"\xc0\x00".repeat(10_000));
    bench.peer.put(b"\xe0\x00");
    bench.peer.end();
    bench.body.woken(bench.id, ENDING);
    let charge = bench.body.io.post.board().budget().charge(Purpose::Mail, 0);
    let replies = vec![Reply::Evict { connection: bench.id }];
    bench.body.host().inbox.push(Letter::Answers(Answers { replies, bytes: 0, charge }));
    assert!(bench.run() >= 4, "other connections have their turns");
    let Some(ToLedger::Commands { commands, .. }) = bench.body.host().to_ledger.pop() else {
        panic!("it says that the client has left")
    };
    let [Command::Left(left)] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!(left.cause, protocol::Cause::Normal);
    assert!(bench.body.evicted.is_empty());
}

/// An operator sees the client with its connection, and disconnects it. Another connection is not there.
#[test]
fn an_operator_sees_and_disconnects_a_client() {
    let mut bench = Bench::new(Bounds::default());
    bench.peer.put(CONNECT);
    bench.body.woken(bench.id, READABLE);
    bench.run();
    let subscriber = bench.subscriber();
    bench.let_in(subscriber);
    let (give, take) = std::sync::mpsc::channel();
    let ask = |question| {
        let give = give.clone();
        let answer = Box::new(move |answer| give.send(answer).expect("the test waits"));
        Letter::Note(Note::Ask(Box::new(crate::AskShard { question, answer })))
    };
    let connection = bench.id;
    let nobody = ConnectionId { generation: connection.generation + 1, ..connection };
    bench.body.host().inbox.push(ask(broker::Question::Clients { from_slot: 0 }));
    bench.body.host().inbox.push(ask(broker::Question::Disconnect { connection: nobody }));
    bench.body.host().inbox.push(ask(broker::Question::Disconnect { connection }));
    bench.body.host().inbox.push(ask(broker::Question::Client { connection }));
    bench.run();
    let answers: Vec<ShardAnswer> = take.try_iter().collect();
    let [clients, other, done, gone] = &answers[..] else { panic!("{answers:?}") };
    let broker::Answer::Clients(found, None) = &clients.answer else { panic!("{clients:?}") };
    assert!(found.len() == 1 && found[0].is_in);
    assert_eq!(clients.links[0].map(|link| link.peer), Some(Peer::Simulated(0)));
    assert!(matches!(other.answer, broker::Answer::Done(false)));
    assert!(matches!(done.answer, broker::Answer::Done(true)));
    assert!(matches!(gone.answer, broker::Answer::Client(None)));
    let left = bench.body.host().to_ledger.pop();
    let Some(ToLedger::Commands { commands, .. }) = left else { panic!("the ledger hears of its end") };
    let [Command::Left(left)] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!(left.cause, protocol::Cause::WithWill);
}

#[test]
fn a_client_that_leaves_while_its_password_is_checked_does_not_log_in() {
    // The end is announced behind CONNECT, or together with it.
    for comes_together in [false, true] {
        let mut bench = Bench::with_ann();
        bench.peer.put(LOGIN);
        if !comes_together {
            bench.wake(READABLE);
            assert!(bench.is_waiting());
        }
        bench.peer.end();
        bench.wake(ENDING);
        assert_eq!(bench.body.host().checks.len(), 1);
        assert!(!bench.is_waiting(), "{comes_together}");
        bench.verify();
        assert_eq!(bench.commands(), 0);
    }
}

/// A client may send packets behind CONNECT, and close its direction, before it is let in.
#[test]
fn packets_behind_connect_count_although_the_client_closes_its_direction_behind_them() {
    for is_one_read in [true, false] {
        let mut bench = Bench::with_ann();
        bench.peer.put(LOGIN);
        if !is_one_read {
            bench.wake(READABLE);
        }
        bench.peer.put(b"\x30\x04\x00\x01tx\xe0\x00");
        bench.peer.end();
        bench.wake(ENDING);
        assert!(bench.is_waiting(), "{is_one_read}");
        bench.verify();
        let subscriber = bench.subscriber();
        bench.let_in(subscriber);
        let letters = std::mem::take(&mut bench.body.host().to_ledger);
        let commands = letters.into_iter().filter_map(|letter| match letter {
            ToLedger::Commands { commands, .. } => Some(commands),
            _ => None,
        });
        let left = commands.flatten().find_map(|command| match command {
            Command::Left(left) => Some(left.cause),
            _ => None,
        });
        assert_eq!(left, Some(protocol::Cause::Normal), "DISCONNECT was read");
        assert_eq!(bench.body.io.connections.iter().count(), 0);
    }
}

/// Nobody reads the answer. A client that resets its connection has given up.
#[test]
fn a_client_that_resets_its_connection_while_its_password_is_checked_does_not_log_in() {
    for behind in [&b""[..], b"\x30\x04\x00\x01tx"] {
        let mut bench = Bench::with_ann();
        bench.peer.put(LOGIN);
        bench.peer.put(behind);
        bench.wake(READABLE);
        assert!(bench.is_waiting());
        bench.peer.end();
        bench.wake(FAILED);
        assert!(!bench.is_waiting(), "{behind:?}");
        bench.verify();
        assert_eq!(bench.commands(), 0);
    }
}
