//! Outputs: when they are full, and what a turn writes of them.

use base::Budget;

use super::*;
use crate::double::{Double, Pipe};

const ALLOWANCE: usize = 4 << 10;

#[test]
fn when_the_process_is_full_a_connection_gets_no_more_than_its_allowance() {
    let mut bench = Bench::new(100_000);
    let (busy, idle) = (bench.connection(), bench.connection());
    let io = &mut bench.io;
    assert_eq!(io.publish(busy, &[0; 100_001], Flush::Direct), Room::Open);
    assert_eq!(io.publish(busy, b"1", Flush::Direct), Room::Full);
    assert_eq!(io.publish(idle, &[0; ALLOWANCE + 1], Flush::Direct), Room::Full);
    assert_eq!(io.waiting_bytes(idle), 0);
    assert_eq!(io.publish(idle, &[0; ALLOWANCE - 1], Flush::Direct), Room::Open);
    assert_eq!(io.publish(idle, b"12", Flush::Direct), Room::Full);
    assert_eq!(io.publish(idle, b"1", Flush::Direct), Room::Open);
    assert_eq!(io.waiting_bytes(idle), ALLOWANCE);
}

/// Publishers are held before that. Those of which there is no second read are not.
#[test]
fn an_output_over_its_mark_gets_no_more_messages_than_one_connection_may_have_waiting() {
    const MOST: usize = 3 << 20;
    let mut bench = Bench::new(usize::MAX);
    // As after a reload.
    bench.io.change_bounds(1 << 20, 4 * MOST);
    let (slow, other) = (bench.connection(), bench.connection());
    let io = &mut bench.io;
    let payload: Arc<[u8]> = vec![7; 1 << 20].into();
    assert_eq!(io.publish(slow, &payload, Flush::Direct), Room::Open);
    for _ in 0..2 {
        assert_eq!(io.publish(slow, &payload, Flush::Direct), Room::Over);
    }
    assert_eq!(io.publish(slow, b"1", Flush::Direct), Room::Over, "exactly the most waits");
    assert_eq!(io.publish(slow, b"1", Flush::Direct), Room::Full);
    assert_eq!(io.publish_shared(slow, b"1", &payload, Flush::Direct), Room::Full);
    assert_eq!(io.waiting_bytes(slow), MOST + 1);
    io.send(slow, b"an answer");
    assert_eq!(io.waiting_bytes(slow), MOST + 10);
    assert_eq!(io.publish(other, &[0; 2 * MOST], Flush::Direct), Room::Over, "one message may be longer");
}

#[test]
fn bytes_held_by_a_lost_connection_are_free_for_other_connections() {
    let mut bench = Bench::new(100_000);
    let (lost, other) = (bench.connection(), bench.connection());
    let io = &mut bench.io;
    assert_eq!(io.publish(lost, &[0; 100_001], Flush::Direct), Room::Open);
    assert_eq!(io.publish(other, &[0; 10_000], Flush::Direct), Room::Full);
    io.forget(lost);
    assert_eq!(io.publish(other, &[0; 10_000], Flush::Direct), Room::Open);
}

#[test]
fn when_memory_is_short_nobody_gets_more_than_the_allowance_whatever_it_is_held_for() {
    let mut bench = Bench::with_memory(usize::MAX, 160_000);
    let busy = bench.connection();
    let budget = Arc::clone(bench.io.post.board().budget());
    let held = budget.charge(Purpose::Messages, 140_000);
    let io = &mut bench.io;
    io.post.look();
    assert_eq!(io.publish(busy, &[0; 10_001], Flush::Direct), Room::Open);
    assert_eq!(io.publish(busy, b"1", Flush::Direct), Room::Full);
    drop(held);
    io.post.look();
    assert_eq!(io.publish(busy, b"1", Flush::Direct), Room::Open);
    io.forget(busy);
    io.post.look();
    assert_eq!(budget.used_bytes(), 0);
}

/// A queue of long messages may be what memory is short for: if none of them left, it would be short for ever.
#[test]
fn when_memory_is_short_a_stored_message_leaves_for_an_empty_output_as_long_as_there_is_any() {
    let mut bench = Bench::with_memory(usize::MAX, 160_000);
    let (first, second) = (bench.connection(), bench.connection());
    let budget = Arc::clone(bench.io.post.board().budget());
    let _held = budget.charge(Purpose::Messages, 151_000);
    let io = &mut bench.io;
    io.post.look();
    assert_eq!(io.room(first, 5_000), Room::Full);
    assert_eq!(io.room_for_stored(first, 5_000), Room::Open);
    io.send(first, &[0; 5_000]);
    assert_eq!(io.room_for_stored(first, 4_000), Room::Full, "one waits already");
    assert_eq!(io.room_for_stored(second, 4_000), Room::Open);
    assert_eq!(io.room_for_stored(second, 5_001), Room::Full, "there is less memory by now");
    io.flush();
    io.post.look();
    assert_eq!(io.room_for_stored(first, 5_000), Room::Open, "it has left");
}

/// The messages that wait may be what holds it. Outputs have a sixteenth of it in any case, or one message.
#[test]
fn stored_messages_leave_when_all_memory_is_used() {
    let mut bench = Bench::with_memory(usize::MAX, 160_000);
    let (first, second) = (bench.connection(), bench.connection());
    let budget = Arc::clone(bench.io.post.board().budget());
    let _held = budget.charge(Purpose::Messages, 200_000);
    let io = &mut bench.io;
    io.post.look();
    assert_eq!(io.room(first, 4_000), Room::Open, "the allowance");
    assert_eq!(io.room(first, 5_000), Room::Full);
    assert_eq!(io.room_for_stored(first, 50_000), Room::Open, "nothing else is on its way");
    io.send(first, &[0; 5_000]);
    assert_eq!(io.room_for_stored(second, 5_001), Room::Full);
    assert_eq!(io.room_for_stored(second, 5_000), Room::Open);
    io.send(second, &[0; 5_000]);
    io.flush();
    io.post.look();
    assert_eq!(io.room_for_stored(second, 50_000), Room::Open, "both have left");
}

#[test]
fn a_payload_that_many_connections_wait_for_is_held_once() {
    let mut bench = Bench::with_memory(usize::MAX, 1 << 30);
    let waiting = [(); 3].map(|()| bench.connection());
    let budget = Arc::clone(bench.io.post.board().budget());
    let io = &mut bench.io;
    let payload: Arc<[u8]> = vec![7; 100_000].into();
    for to in waiting {
        io.publish_shared(to, b"head", &payload, Flush::Direct);
    }
    io.post.look();
    assert_eq!(budget.held_bytes(Purpose::Outputs), 100_000 + 3 * 4);
    io.flush();
    waiting.into_iter().for_each(|id| io.forget(id));
    io.post.look();
    assert_eq!(budget.used_bytes(), 0);
}

/// Between the mark and a quarter of it nothing changes: publishers do not go on for each packet that leaves.
#[test]
fn an_output_that_was_over_its_mark_has_room_again_at_a_quarter_of_it() {
    const MARK: usize = 4 << 20;
    let mut bench = Bench::new(usize::MAX);
    bench.io.bounds.output = MARK;
    let id = bench.connection();
    let (io, peer) = (&mut bench.io, &bench.peers[0]);
    assert_eq!(io.publish(id, &vec![7; MARK + MARK / 4], Flush::Direct), Room::Over);
    let mut between = 0;
    loop {
        io.woken(id, WRITABLE);
        io.write(id, MARK);
        let waiting = io.waiting_bytes(id);
        if waiting <= MARK / 4 {
            break;
        }
        between += usize::from(waiting <= MARK);
        assert!(io.drained.is_empty() && io.room(id, 0) == Room::Over, "{waiting} bytes wait");
        assert!(!peer.take_written().is_empty());
    }
    assert!(between > 0, "it was looked at in between");
    assert_eq!((&io.drained[..], io.room(id, 0)), (&[id][..], Room::Open));
}

/// Returns how many bytes a call of `flush` writes.
fn written_in_a_turn(io: &mut Io<Double>) -> u64 {
    let before = io.counters.bytes_sent.value();
    io.flush();
    io.counters.bytes_sent.value() - before
}

const WRITABLE: Readiness = Readiness { readable: false, writable: true, ending: false, failed: false };

#[test]
fn a_turn_writes_a_bounded_number_of_bytes_however_much_waits_and_small_outputs_all_the_same() {
    let bound = (LARGE_BYTES_PER_TURN + VISIT_BYTES) as u64;
    for flush in [Flush::Bulk, Flush::Direct] {
        let mut bench = Bench::with_memory(usize::MAX, usize::MAX);
        let large: Arc<[u8]> = (0..2_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        let many: Vec<ConnectionId> = (0..20).map(|_| bench.connection()).collect();
        let small = bench.connection();
        let io = &mut bench.io;
        for id in &many {
            assert_eq!(io.publish_shared(*id, b"head", &large, flush), Room::Over);
        }
        io.publish(small, b"small", Flush::Direct);
        assert!(written_in_a_turn(io) <= bound, "{flush:?}");
        assert_eq!(io.waiting_bytes(small), 0, "it does not wait for others");
        let mut received = vec![Vec::new(); many.len()];
        let mut turns = 0;
        while received.iter().any(|received: &Vec<u8>| received.len() < large.len() + 4) {
            assert!(written_in_a_turn(io) <= bound, "{flush:?}");
            for (id, (received, peer)) in many.iter().zip(received.iter_mut().zip(&bench.peers)) {
                received.extend(peer.take_written());
                io.woken(*id, WRITABLE);
            }
            turns += 1;
            assert!(turns < 10_000, "there is an end");
        }
        assert!(received.iter().all(|received| received[..4] == *b"head" && received[4..] == *large));
        assert!(!io.is_busy());
        assert!(many.iter().all(|id| !io.connections.get(*id).expect("it is there").length.is_in_parts()));
    }
}

/// Each turn writes a part of one.
#[test]
fn a_large_message_does_not_wait_for_all_outputs_that_are_huge() {
    let mut bench = Bench::with_memory(usize::MAX, usize::MAX);
    let huge: Arc<[u8]> = vec![7; 2_000_000].into();
    let many: Vec<ConnectionId> = (0..50).map(|_| bench.connection()).collect();
    let one = bench.connection();
    let io = &mut bench.io;
    for id in &many {
        io.publish_shared(*id, b"head", &huge, Flush::Direct);
    }
    io.flush();
    io.publish(one, &[8; 2 * VISIT_BYTES], Flush::Direct);
    (0..3).for_each(|_| io.flush());
    assert_eq!(io.waiting_bytes(one), 0);
    assert!(many.iter().all(|id| io.waiting_bytes(*id) > 0), "all others still have to wait");
}

#[test]
fn a_turn_writes_a_bounded_number_of_direct_outputs_that_are_not_large() {
    let mut bench = Bench::with_memory(usize::MAX, usize::MAX);
    let many: Vec<ConnectionId> = (0..60).map(|_| bench.connection()).collect();
    let io = &mut bench.io;
    for id in &many {
        io.publish(*id, &vec![7; VISIT_BYTES], Flush::Direct);
    }
    let bound = DIRECT_BYTES_PER_TURN + LARGE_BYTES_PER_TURN + 2 * VISIT_BYTES;
    assert!(written_in_a_turn(io) <= bound as u64);
    let mut turns = 0;
    while io.is_busy() {
        assert!(written_in_a_turn(io) <= (LARGE_BYTES_PER_TURN + VISIT_BYTES) as u64);
        turns += 1;
    }
    assert!(turns > 0, "more was due than a turn writes");
}

#[test]
fn output_for_a_client_that_has_closed_its_direction_leaves_in_parts() {
    let mut bench = Bench::with_memory(usize::MAX, usize::MAX);
    let id = bench.connection();
    let io = &mut bench.io;
    let message = vec![7; 4 * VISIT_BYTES];
    io.publish(id, &message, Flush::Direct);
    let before = io.counters.bytes_sent.value();
    io.finish(id);
    assert!(io.counters.bytes_sent.value() - before <= VISIT_BYTES as u64);
    let mut received = Vec::new();
    for _ in 0..8 {
        received.extend(bench.peers[0].take_written());
        io.woken(id, WRITABLE);
        io.flush();
    }
    assert_eq!(received, message);
}

/// One shard's connections with their other ends.
struct Bench {
    io: Io<Double>,
    peers: Vec<Pipe>,
}

impl Bench {
    fn new(outputs: usize) -> Self {
        Self::with_memory(outputs, usize::MAX)
    }

    fn with_memory(outputs: usize, memory_bytes_max: usize) -> Self {
        let board = Arc::new(Board::new(1, Arc::new(Budget::new(memory_bytes_max))));
        let bounds = Bounds { outputs, output: 1 << 20, ..Bounds::default() };
        let io = Io::new(ShardId::new(0), board, Double::default(), Arc::default(), bounds);
        Self { io, peers: Vec::new() }
    }

    /// Its stream takes twice as many bytes as one visit writes that its peer has not read.
    fn connection(&mut self) -> ConnectionId {
        let peer = Pipe::new(2 * VISIT_BYTES);
        self.peers.push(peer.clone());
        self.io.post.board().charge_least_loaded();
        self.io.add(peer, Peer::Simulated(0), (0, Arc::default())).expect("it can be watched")
    }
}
