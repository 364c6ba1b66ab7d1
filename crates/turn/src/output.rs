//! Bytes that wait to be written to one connection, and the pool of their memory.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;

use base::{Budget, Charge, Purpose};
use stream::Stream;

/// One piece is at most this large, so that a growing backlog is never moved in memory.
const PIECE_BYTES: usize = 64 * 1024;
/// A fresh piece starts with this much room: a turn's worth for most connections.
const FIRST_BYTES: usize = 1024;
/// As many pieces go into one `writev`.
const PIECES_PER_WRITE: usize = 16;
/// The pool keeps at most this much memory for reuse.
const POOL_BYTES: usize = 4 * 1024 * 1024;
/// And as many empty outputs with a piece, and without one.
const POOL_OUTPUTS: usize = 1024;

/// Bytes in the order in which they leave. Payloads large enough to be worth it are shared, not copied. An output of which
/// everything is written keeps the memory of its last piece for what comes next.
#[derive(Default)]
pub(crate) struct Output {
    pieces: VecDeque<Piece>,
    /// How much of the first piece is written already.
    written: usize,
    len: usize,
    /// Memory that this output holds alone, in bytes.
    own: usize,
}

enum Piece {
    Copied(Vec<u8>),
    Shared(Arc<Shared>),
}

/// A payload that many wait for, on the account once.
pub(crate) struct Shared {
    bytes: Arc<[u8]>,
    _charge: Charge,
}

impl Shared {
    pub(crate) fn new(bytes: Arc<[u8]>, budget: &Arc<Budget>) -> Self {
        let charge = budget.charge(Purpose::Outputs, bytes.len());
        Self { bytes, _charge: charge }
    }

    /// Whether this is that very payload.
    pub(crate) fn is_of(&self, bytes: &Arc<[u8]>) -> bool {
        Arc::ptr_eq(&self.bytes, bytes)
    }
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Shared(shared) => &shared.bytes,
        }
    }
}

impl Output {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Memory that this output holds alone, in bytes, without shared payloads.
    pub(crate) fn own_bytes(&self) -> usize {
        self.own
    }

    pub(crate) fn append(&mut self, bytes: &[u8], pool: &mut Pool) {
        self.len += bytes.len();
        self.own += bytes.len();
        let mut rest = bytes;
        if let Some(Piece::Copied(last)) = self.pieces.back_mut() {
            let room = PIECE_BYTES.saturating_sub(last.len()).min(rest.len());
            last.extend_from_slice(&rest[..room]);
            rest = &rest[room..];
        }
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(PIECE_BYTES));
            let mut fresh = pool.take();
            fresh.extend_from_slice(piece);
            self.pieces.push_back(Piece::Copied(fresh));
            rest = after;
        }
    }

    pub(crate) fn append_shared(&mut self, shared: Arc<Shared>) {
        if !shared.bytes.is_empty() {
            self.len += shared.bytes.len();
            self.pieces.push_back(Piece::Shared(shared));
        }
    }

    /// Writes until everything is out, `bytes_max` bytes are, or the stream takes no more. Returns how many bytes it took,
    /// and the error that ended it; `WouldBlock` is one.
    pub(crate) fn write_to(
        &mut self,
        stream: &mut impl Stream,
        bytes_max: usize,
        pool: &mut Pool,
    ) -> (usize, io::Result<()>) {
        let mut total = 0;
        while self.len > 0 && total < bytes_max {
            match self.write_once(stream, bytes_max - total) {
                Ok(0) => return (total, Err(io::ErrorKind::WriteZero.into())),
                Ok(taken) => {
                    total += taken;
                    self.consume(taken, pool);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (total, Err(error)),
            }
        }
        (total, Ok(()))
    }

    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        self.consume(self.len, pool);
    }

    /// Memory of the piece in an output of which everything is written.
    fn kept_bytes(&self) -> usize {
        match self.pieces.front() {
            Some(Piece::Copied(piece)) => piece.capacity(),
            Some(Piece::Shared(_)) | None => 0,
        }
    }

    fn write_once(&self, stream: &mut impl Stream, bytes_max: usize) -> io::Result<usize> {
        let first = &self.pieces[0].bytes()[self.written..];
        if self.pieces.len() == 1 || first.len() >= bytes_max {
            return stream.write(&[IoSlice::new(&first[..first.len().min(bytes_max)])]);
        }
        let mut slices = [IoSlice::new(&[]); PIECES_PER_WRITE];
        slices[0] = IoSlice::new(first);
        let (mut count, mut left) = (1, bytes_max - first.len());
        for piece in self.pieces.iter().skip(1).take(PIECES_PER_WRITE - 1) {
            let bytes = piece.bytes();
            slices[count] = IoSlice::new(&bytes[..bytes.len().min(left)]);
            count += 1;
            left = left.saturating_sub(bytes.len());
            if left == 0 {
                break;
            }
        }
        stream.write(&slices[..count])
    }

    #[inline]
    fn consume(&mut self, taken: usize, pool: &mut Pool) {
        self.len -= taken;
        let is_alone = self.pieces.len() == 1;
        if is_alone
            && self.len == 0
            && let Some(Piece::Copied(last)) = self.pieces.front_mut()
        {
            (self.own, self.written) = (0, 0);
            return last.clear();
        }
        self.consume_pieces(taken, pool);
    }

    fn consume_pieces(&mut self, taken: usize, pool: &mut Pool) {
        let mut left = self.written + taken;
        while let Some(first) = self.pieces.front() {
            let size = first.bytes().len();
            if left < size {
                break;
            }
            left -= size;
            if let Some(Piece::Copied(piece)) = self.pieces.pop_front() {
                self.own -= size;
                pool.give(piece);
            }
        }
        self.written = left;
    }
}

/// Memory that output buffers give back when they are empty: idle connections hold none.
#[derive(Default)]
pub(crate) struct Pool {
    pieces: Vec<Vec<u8>>,
    /// Memory of all pieces, also of those in `outputs`.
    bytes: usize,
    /// Empty outputs, each with a piece. Boxed as connections keep them.
    #[allow(clippy::vec_box)]
    outputs: Vec<Box<Output>>,
    /// Empty outputs without a piece. They are taken when no other is left, so that the memory of the others is used.
    #[allow(clippy::vec_box)]
    bare: Vec<Box<Output>>,
}

impl Pool {
    pub(crate) fn take_output(&mut self) -> Box<Output> {
        let output = self.outputs.pop().or_else(|| self.bare.pop()).unwrap_or_default();
        self.bytes -= output.kept_bytes();
        output
    }

    /// Takes back what [`take_output`](Self::take_output) gave, with whatever it still holds.
    pub(crate) fn give_output(&mut self, mut output: Box<Output>) {
        if !output.is_empty() {
            output.clear(self);
        }
        let kept = output.kept_bytes();
        if kept > 0 && self.bytes + kept <= POOL_BYTES && self.outputs.len() < POOL_OUTPUTS {
            self.bytes += kept;
            self.outputs.push(output);
        } else if self.bare.len() < POOL_OUTPUTS {
            output.pieces.clear();
            self.bare.push(output);
        }
    }

    fn take(&mut self) -> Vec<u8> {
        match self.pieces.pop() {
            Some(piece) => {
                self.bytes -= piece.capacity();
                piece
            }
            None => Vec::with_capacity(FIRST_BYTES),
        }
    }

    fn give(&mut self, mut piece: Vec<u8>) {
        if self.bytes + piece.capacity() <= POOL_BYTES {
            piece.clear();
            self.bytes += piece.capacity();
            self.pieces.push(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stream::Received;

    /// Takes at most `room` bytes a call, then would block.
    struct Trickle {
        room: usize,
        calls: usize,
        taken: Vec<u8>,
    }

    impl Stream for Trickle {
        fn read(&mut self, _: &mut [u8]) -> io::Result<Received> {
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn has_arrived(&mut self) -> bool {
            false
        }

        fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
            if self.calls == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.calls -= 1;
            let before = self.taken.len();
            self.taken.extend(pieces.iter().flat_map(|piece| piece.iter()).take(self.room));
            Ok(self.taken.len() - before)
        }

        fn shut_down_write(&mut self) {}
    }

    #[test]
    fn bytes_leave_in_order_however_the_socket_takes_them() {
        let mut pool = Pool::default();
        let mut output = Output::default();
        let mut expected = Vec::new();
        let budget = Arc::new(Budget::default());
        for number in 0..400_u32 {
            let block = vec![number.to_le_bytes()[0]; 1 + 997 * (number as usize % 5)];
            expected.extend_from_slice(&block);
            if number % 7 == 0 {
                output.append_shared(Arc::new(Shared::new(block.into(), &budget)));
            } else {
                output.append(&block, &mut pool);
            }
        }
        let mut socket = Trickle { room: 1_000, calls: 0, taken: Vec::new() };
        while !output.is_empty() {
            socket.calls = 3;
            let before = output.len();
            let (taken, _) = output.write_to(&mut socket, 2_500, &mut pool);
            assert!(taken <= 2_500, "no more than was asked for");
            assert_eq!(output.len(), before - taken);
        }
        assert_eq!(socket.taken, expected);
        assert!(output.pieces.iter().all(|piece| piece.bytes().is_empty()) && output.written == 0);
        assert_eq!((output.own_bytes(), budget.used_bytes()), (0, 0));
    }

    #[test]
    fn an_output_keeps_its_last_piece_within_the_bound_of_the_pool() {
        let mut pool = Pool::default();
        let outputs: Vec<_> = (0..2 * POOL_BYTES / PIECE_BYTES)
            .map(|_| {
                let mut output = pool.take_output();
                output.append(&[7; PIECE_BYTES], &mut pool);
                output
            })
            .collect();
        outputs.into_iter().for_each(|output| pool.give_output(output));
        let kept = pool.outputs.iter().map(|output| output.kept_bytes()).sum::<usize>();
        assert_eq!((pool.bytes, kept), (POOL_BYTES, POOL_BYTES));
        // Outputs beyond that are kept without memory, and taken last.
        assert_eq!(
            (pool.outputs.len(), pool.bare.len()),
            (POOL_BYTES / PIECE_BYTES, POOL_BYTES / PIECE_BYTES)
        );
        assert!(pool.bare.iter().all(|output| output.kept_bytes() == 0));
        // The bytes of the next one are gone, and its memory is there.
        let mut output = pool.take_output();
        assert_eq!((pool.bytes, output.len(), output.own_bytes()), (POOL_BYTES - PIECE_BYTES, 0, 0));
        output.append(b"frog", &mut pool);
        let shared = Shared::new((*b" pond").into(), &Arc::new(Budget::default()));
        output.append_shared(Arc::new(shared));
        let mut socket = Trickle { room: 100, calls: 1, taken: Vec::new() };
        assert!(output.write_to(&mut socket, 100, &mut pool).1.is_ok() && output.is_empty());
        assert_eq!(socket.taken, b"frog pond");
        // An empty piece before shared bytes, of which a socket takes some at a time.
        output.append(b"toad", &mut pool);
        output.clear(&mut pool);
        let shared = Shared::new((*b"lily pad").into(), &Arc::new(Budget::default()));
        output.append_shared(Arc::new(shared));
        let mut socket = Trickle { room: 3, calls: 3, taken: Vec::new() };
        assert!(output.write_to(&mut socket, 100, &mut pool).1.is_ok() && output.is_empty());
        assert_eq!((&socket.taken[..], output.written), (&b"lily pad"[..], 0));
    }

    #[test]
    fn an_output_with_memory_is_taken_before_one_without() {
        let mut pool = Pool::default();
        let mut outputs = [PIECE_BYTES, 2 * PIECE_BYTES].map(|bytes| {
            let mut output = pool.take_output();
            output.append(&vec![7; bytes], &mut pool);
            output
        });
        outputs.iter_mut().for_each(|output| output.clear(&mut pool));
        // The pieces of the second one are in the pool themselves.
        outputs.into_iter().for_each(|output| pool.give_output(output));
        assert_eq!((pool.outputs.len(), pool.bare.len(), pool.pieces.len()), (1, 1, 2));
        assert_eq!(pool.take_output().kept_bytes(), PIECE_BYTES);
    }

    #[test]
    fn one_large_append_is_cut_into_pieces_and_memory_returns_to_the_pool() {
        let mut pool = Pool::default();
        let mut output = Output::default();
        output.append(&vec![7; 3 * PIECE_BYTES + 1], &mut pool);
        assert_eq!(output.pieces.len(), 4);
        output.clear(&mut pool);
        assert!(output.is_empty() && pool.pieces.len() == 4);
    }
}
