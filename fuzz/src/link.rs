//! A connection in memory: pieces that the peer has sent, and limited room for what the broker sends.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::rc::Rc;

use stream::{Received, Stream};

/// The broker's end of a connection. A clone is the peer's end.
#[derive(Debug, Clone, Default)]
pub struct Link(Rc<RefCell<State>>);

#[derive(Debug, Default)]
struct State {
    pieces: VecDeque<Vec<u8>>,
    /// The peer has closed its direction behind the pieces.
    has_ended: bool,
    written: Vec<u8>,
    room: usize,
    is_shut: bool,
    reads: usize,
}

impl Link {
    /// Sends a piece as the peer does. A read gets at most one piece.
    pub fn send(&self, piece: &[u8]) {
        if !piece.is_empty() {
            self.0.borrow_mut().pieces.push_back(piece.to_vec());
        }
    }

    /// Closes the direction of the peer.
    pub fn end(&self) {
        self.0.borrow_mut().has_ended = true;
    }

    /// Allows the broker to write this many bytes more.
    pub fn set_room(&self, bytes: usize) {
        self.0.borrow_mut().room = bytes;
    }

    /// Receives what the broker has written.
    pub fn receive(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.borrow_mut().written)
    }

    /// Whether the broker has closed its direction.
    pub fn is_shut(&self) -> bool {
        self.0.borrow().is_shut
    }

    /// Number of reads that have returned bytes or the end.
    pub fn reads(&self) -> usize {
        self.0.borrow().reads
    }
}

impl Stream for Link {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        assert!(!buffer.is_empty(), "an empty buffer cannot tell the end");
        let mut state = self.0.borrow_mut();
        let has_ended = state.has_ended;
        let Some(piece) = state.pieces.front_mut() else {
            if has_ended {
                state.reads += 1;
                return Ok(Received { bytes: 0, is_drained: false });
            }
            return Err(io::ErrorKind::WouldBlock.into());
        };
        let bytes = buffer.len().min(piece.len());
        buffer[..bytes].copy_from_slice(&piece[..bytes]);
        piece.drain(..bytes);
        if piece.is_empty() {
            state.pieces.pop_front();
        }
        state.reads += 1;
        Ok(Received { bytes, is_drained: state.pieces.is_empty() && !has_ended })
    }

    fn has_arrived(&mut self) -> bool {
        let state = self.0.borrow();
        state.has_ended || !state.pieces.is_empty()
    }

    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.0.borrow_mut();
        assert!(!state.is_shut, "nothing is written behind the end");
        let before = state.room;
        for piece in pieces {
            let bytes = piece.len().min(state.room);
            state.written.extend_from_slice(&piece[..bytes]);
            state.room -= bytes;
        }
        let written = before - state.room;
        if written == 0 && pieces.iter().any(|piece| !piece.is_empty()) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(written)
    }

    fn shut_down_write(&mut self) {
        self.0.borrow_mut().is_shut = true;
    }
}
