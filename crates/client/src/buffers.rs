//! Byte buffers between the socket and the packets.

use std::collections::VecDeque;
use std::ops::Range;

/// Maximum capacity that an empty buffer keeps for later bytes.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Minimum free space of the input buffer for each read.
const READ_BYTES: usize = 16 << 10;

/// While at least this many bytes of answers wait for the socket, nothing is read.
///
/// A server that sends packets, and does not read the answers to them, could otherwise fill the client's memory. Messages
/// of the application do not count: the server may itself wait for the client to read. The bound is large enough for
/// the acknowledgements of 65,535 messages, which is the largest Receive Maximum.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Bytes received from the socket.
#[derive(Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    /// Number of bytes at the front that have been handled.
    handled: usize,
    /// Size of the incomplete packet behind the handled bytes, if known.
    packet_bytes: usize,
}

/// Bytes to be sent to the socket.
#[derive(Default)]
pub(crate) struct Output {
    pub(crate) bytes: Vec<u8>,
    written: usize,
    /// Number of bytes at the front that the packet trace has seen.
    traced: usize,
    /// Number of bytes that have left the buffer on this connection.
    gone: u64,
    /// Positions of the bytes that answer packets of the server, counted from the beginning of the connection.
    answers: VecDeque<Range<u64>>,
    /// Total size of these ranges.
    answer_bytes: u64,
}

impl Input {
    /// Buffer to which received bytes are appended.
    ///
    /// Unhandled bytes move to the front only when they are at most half of the buffer. Otherwise a client with
    /// full streams, which frees room for one message at a time, would move the whole buffer for each message.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        if self.handled >= self.bytes.len() - self.handled {
            self.bytes.drain(..self.handled);
            self.handled = 0;
            release(&mut self.bytes);
        }
        self.make_room();
        &mut self.bytes
    }

    /// Makes room for a read. The buffer doubles, but never exceeds the packet that it holds by more than a read.
    fn make_room(&mut self) {
        let (bytes, least) = (self.bytes.len(), self.bytes.len() + READ_BYTES);
        if least > self.bytes.capacity() {
            let packet_end = self.handled + self.packet_bytes;
            let capacity = (2 * self.bytes.capacity()).min(packet_end).max(least);
            self.bytes.reserve_exact(capacity - bytes);
        }
    }

    /// Bytes that have not been handled.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.handled..]
    }

    /// Marks the next `count` bytes as handled. `packet_bytes` is the size of the incomplete packet behind them.
    pub(crate) fn advance(&mut self, count: usize, packet_bytes: usize) {
        self.handled += count;
        self.packet_bytes = packet_bytes;
    }
}

impl Output {
    /// Bytes that have not been written.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Marks the next `count` bytes as written.
    ///
    /// The space of written bytes is reused once it is at least as large as the rest. Bytes are therefore moved
    /// rarely, and a connection that always has something to write does not grow.
    pub(crate) fn advance(&mut self, count: usize) {
        self.written += count;
        self.forget_answers();
        if self.written >= self.rest().len() {
            self.bytes.drain(..self.written);
            self.gone += self.written as u64;
            self.traced = self.traced.saturating_sub(self.written);
            self.written = 0;
            release(&mut self.bytes);
        }
    }

    /// Counts all bytes from index `start` on as answers to packets of the server.
    pub(crate) fn count_answers(&mut self, start: usize) {
        let new = self.gone + start as u64..self.gone + self.bytes.len() as u64;
        if new.is_empty() {
            return;
        }
        self.answer_bytes += new.end - new.start;
        match self.answers.back_mut().filter(|last| last.end == new.start) {
            Some(last) => last.end = new.end,
            None => self.answers.push_back(new),
        }
    }

    /// Whether too many answers wait for the socket: see [`ANSWER_BYTES_MAX`].
    pub(crate) fn is_full_of_answers(&self) -> bool {
        self.answer_bytes >= ANSWER_BYTES_MAX as u64
    }

    /// Removes the positions of answers that have been written.
    fn forget_answers(&mut self) {
        let position = self.gone + self.written as u64;
        while let Some(first) = self.answers.front_mut().filter(|first| first.start < position) {
            let end = first.end.min(position);
            self.answer_bytes -= end - first.start;
            first.start = end;
            if first.is_empty() {
                self.answers.pop_front();
            }
        }
    }

    /// Bytes that the packet trace has not seen.
    pub(crate) fn untraced(&self) -> &[u8] {
        &self.bytes[self.traced..]
    }

    /// Marks the next `count` bytes as traced.
    pub(crate) fn trace(&mut self, count: usize) {
        self.traced += count;
    }
}

/// Frees the memory of an empty buffer that grew beyond [`KEPT_BYTES_MAX`].
fn release(bytes: &mut Vec<u8>) {
    if bytes.is_empty() && bytes.capacity() > KEPT_BYTES_MAX {
        *bytes = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_that_are_not_written_count() {
        let mut output = Output::default();
        output.bytes.extend_from_slice(&[0; 1_000_000]);
        assert!(!output.is_full_of_answers(), "the application's own bytes");
        let start = output.bytes.len();
        output.bytes.extend_from_slice(&[0; ANSWER_BYTES_MAX / 2]);
        output.count_answers(start);
        output.bytes.push(0);
        let start = output.bytes.len();
        output.bytes.extend_from_slice(&[0; ANSWER_BYTES_MAX / 2]);
        output.count_answers(start);
        assert!(output.is_full_of_answers());
        output.advance(1_000_000);
        assert!(output.is_full_of_answers());
        output.advance(1);
        assert!(!output.is_full_of_answers());
        output.advance(ANSWER_BYTES_MAX);
        assert!(output.rest().is_empty() && output.answers.is_empty() && output.answer_bytes == 0);
    }

    #[test]
    fn the_buffer_of_a_large_packet_is_not_much_larger_than_the_packet() {
        let mut input = Input::default();
        input.advance(0, 3_000_000);
        while input.bytes.len() < 3_000_000 {
            let len = input.bytes.len();
            input.buffer().resize(3_000_000.min(len + READ_BYTES), 0);
        }
        assert!(input.bytes.capacity() <= 3_000_000 + READ_BYTES, "{}", input.bytes.capacity());
    }
}
