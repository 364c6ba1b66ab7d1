//! An outside for tests: connections in memory, letters in vectors.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex};

use auth::{Check, Unchecked, Wish, Wished};
use base::{ConnectionId, ShardId};
use broker::Notice;
use stream::{Peer, Received, Stream};

use crate::host::Host;
use crate::letter::{Letter, ToLedger};

/// A connection; both ends have one of these.
#[derive(Clone)]
pub(crate) struct Pipe(Arc<Mutex<State>>);

struct State {
    /// Written by the peer and not read.
    to_read: VecDeque<u8>,
    /// The peer writes no more.
    has_ended: bool,
    /// Written by the broker and not read.
    written: Vec<u8>,
    written_max: usize,
    is_shut: bool,
    /// The peer is gone, and writes fail.
    is_broken: bool,
    /// As a stream with layers does.
    owes_goodbye: bool,
}

impl Pipe {
    /// Takes this many bytes that the peer has not read.
    pub(crate) fn new(written_max: usize) -> Self {
        let (to_read, written) = (VecDeque::new(), Vec::new());
        let state = State {
            to_read,
            has_ended: false,
            written,
            written_max,
            is_shut: false,
            is_broken: false,
            owes_goodbye: false,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Writes as the peer does.
    pub(crate) fn put(&self, bytes: &[u8]) {
        self.state().to_read.extend(bytes);
    }

    /// Closes the peer's direction.
    pub(crate) fn end(&self) {
        self.state().has_ended = true;
    }

    /// Reads everything as the peer does.
    pub(crate) fn take_written(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().written)
    }

    /// Breaks the connection. From now on the stream owes its peer a goodbye that cannot be written.
    pub(crate) fn break_with_layers(&self) {
        let mut state = self.state();
        (state.is_broken, state.owes_goodbye) = (true, true);
    }

    /// Whether the broker has closed its direction.
    pub(crate) fn is_shut(&self) -> bool {
        self.state().is_shut
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("no test panics in here")
    }
}

impl Stream for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut state = self.state();
        let bytes = buffer.len().min(state.to_read.len());
        if bytes == 0 && !state.has_ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        for (place, byte) in buffer.iter_mut().zip(state.to_read.drain(..bytes)) {
            *place = byte;
        }
        Ok(Received { bytes, is_drained: bytes < buffer.len() })
    }

    fn has_arrived(&mut self) -> bool {
        let state = self.state();
        state.has_ended || !state.to_read.is_empty()
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.state();
        if state.is_broken {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let room = state.written_max - state.written.len();
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let before = state.written.len();
        for piece in pieces {
            let left = room - (state.written.len() - before);
            state.written.extend_from_slice(&piece[..piece.len().min(left)]);
        }
        Ok(state.written.len() - before)
    }

    fn owes_goodbye(&self) -> bool {
        self.state().owes_goodbye
    }

    fn shut_down_write(&mut self) {
        self.state().is_shut = true;
    }
}

/// The outside of one shard.
#[derive(Default)]
pub(crate) struct Double {
    pub(crate) inbox: Vec<Letter<Pipe>>,
    pub(crate) posted: Vec<(ShardId, Letter<Pipe>)>,
    pub(crate) to_ledger: Vec<ToLedger>,
    /// The addressee of each letter, in the order in which the letters were posted; `None` is the ledger.
    pub(crate) addressees: Vec<Option<ShardId>>,
    pub(crate) watched: Vec<ConnectionId>,
    /// Connections whose passwords are being checked.
    pub(crate) checks: Vec<(ConnectionId, Wished)>,
    random: u128,
}

impl Host for Double {
    type Stream = Pipe;

    fn watch(&mut self, _: &mut Pipe, id: ConnectionId) -> io::Result<()> {
        self.watched.push(id);
        Ok(())
    }

    fn unwatch(&mut self, _: &mut Pipe) {}

    fn post(&mut self, to: ShardId, letter: Letter<Pipe>) {
        self.addressees.push(Some(to));
        self.posted.push((to, letter));
    }

    fn post_to_ledger(&mut self, letter: ToLedger) {
        self.addressees.push(None);
        self.to_ledger.push(letter);
    }

    fn take_letters(&mut self, into: &mut Vec<Letter<Pipe>>) {
        into.append(&mut self.inbox);
    }

    fn verify(&mut self, _: u64, connection: ConnectionId, _: &Peer, _: Check) -> Result<Wish, Unchecked> {
        let wish = Wish::default();
        self.checks.push((connection, wish.watch()));
        Ok(wish)
    }

    fn random(&mut self) -> u128 {
        self.random += 1;
        self.random
    }

    fn notice(&mut self, _: u64, _: ConnectionId, _: &Peer, _: Notice<'_>) {}

    fn not_watched(&mut self, _: &Peer, _: &io::Error) {}
}
