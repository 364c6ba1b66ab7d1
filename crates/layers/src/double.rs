//! A stream in memory, for tests.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard};

use stream::{Received, Stream};

/// A connection; both ends have one of these.
#[derive(Debug, Clone)]
pub(crate) struct Pipe(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Pieces that the peer has written and nobody has read. A read gets at most one.
    to_read: VecDeque<Vec<u8>>,
    /// Written by the server and not read.
    written: Vec<u8>,
    written_max: usize,
    is_shut: bool,
}

impl Pipe {
    /// Takes this many bytes that the peer has not read.
    pub(crate) fn new(written_max: usize) -> Self {
        let (to_read, written) = (VecDeque::new(), Vec::new());
        Self(Arc::new(Mutex::new(State { to_read, written, written_max, is_shut: false })))
    }

    /// Writes as the peer does.
    pub(crate) fn put(&self, bytes: &[u8]) {
        self.state().to_read.push_back(bytes.to_vec());
    }

    /// Reads everything as the peer does.
    pub(crate) fn take_written(&self) -> Vec<u8> {
        std::mem::take(&mut self.state().written)
    }

    /// Whether the server has closed its direction.
    pub(crate) fn is_shut(&self) -> bool {
        self.state().is_shut
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no test panics in here")
    }
}

impl Stream for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        let mut state = self.state();
        let Some(piece) = state.to_read.front_mut() else {
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let bytes = buffer.len().min(piece.len());
        buffer[..bytes].copy_from_slice(&piece[..bytes]);
        piece.drain(..bytes);
        if piece.is_empty() {
            state.to_read.pop_front();
        }
        Ok(Received { bytes, is_drained: state.to_read.is_empty() })
    }

    fn has_arrived(&mut self) -> bool {
        !self.state().to_read.is_empty()
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.state();
        let (before, room) = (state.written.len(), state.written_max - state.written.len());
        if room == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        for piece in pieces {
            let left = room - (state.written.len() - before);
            state.written.extend_from_slice(&piece[..piece.len().min(left)]);
        }
        Ok(state.written.len() - before)
    }

    fn shut_down_write(&mut self) {
        self.state().is_shut = true;
    }
}
