//! MQTT over WebSocket (RFC 6455, MQTT 5.0 section 6): a stream over a stream.
//!
//! Frames are decoded in the reader's buffer, and written around the writer's bytes: neither direction copies a payload,
//! and an idle connection holds no buffer.

pub(crate) mod frames;
#[cfg(test)]
mod tests;
mod upgrade;

use std::io::{self, IoSlice};
use std::sync::Arc;

pub use self::upgrade::Rules;

use stream::{Received, Stream};

use self::frames::{Answer, Decoder, Sent, Status, Violation};
use self::upgrade::Outcome;
use crate::Rejected;

/// Maximum number of pieces of one write.
const PIECES_MAX: usize = 17;

/// The server's end of a WebSocket connection.
#[derive(Debug)]
pub struct WebSocket<S> {
    below: S,
    phase: Phase,
    /// Bytes that go before everything else: an answer to the upgrade request, the rest of a header, an answer in a frame.
    unsent: Vec<u8>,
    /// Bytes of the frame under way that the writer still has.
    frame_left: usize,
    /// Frames that are due after the frame under way. Only the last Ping needs an answer (section 5.5.3).
    due: Due,
    /// The writer writes no more: the stream below is shut when everything has left.
    is_shutting: bool,
}

#[derive(Debug)]
enum Phase {
    /// The head of the request has not come whole.
    Upgrade {
        head: Vec<u8>,
        rules: Arc<Rules>,
    },
    Open(Decoder),
    /// The peer has broken a rule behind the bytes that the reader has got.
    Violated(&'static str),
    /// The reader has been told of the end. It throws away what still comes.
    Ended,
}

#[derive(Debug, Default)]
struct Due {
    pong: Option<Vec<u8>>,
    close: Option<Option<Status>>,
    has_closed: bool,
}

impl<S: Stream> WebSocket<S> {
    /// A connection on which the upgrade request is the next to be read.
    pub fn new(below: S, rules: Arc<Rules>) -> Self {
        Self {
            below,
            phase: Phase::Upgrade { head: Vec::new(), rules },
            unsent: Vec::new(),
            frame_left: 0,
            due: Due::default(),
            is_shutting: false,
        }
    }

    /// The stream below this layer.
    pub fn below(&mut self) -> &mut S {
        &mut self.below
    }

    /// Reads a part of the request. Returns what came behind it, moved to the front of `buffer`.
    fn upgrade(&mut self, buffer: &mut [u8], count: usize) -> io::Result<usize> {
        let Phase::Upgrade { head, rules } = &mut self.phase else { return Ok(count) };
        let before = head.len();
        head.extend_from_slice(&buffer[..count]);
        // Parsing from the start at each byte would cost the square of the length.
        let from = before.saturating_sub(3);
        // RFC 9112 section 2.2: a line may also end with LF alone, and httparse takes that as the end.
        // Bytes beyond the longest head do not change the answer, whether they have come already or not.
        let longest = &head[..head.len().min(upgrade::HEAD_BYTES_MAX)];
        let new = longest.get(from..).unwrap_or_default();
        let is_complete =
            new.windows(2).any(|end| end == b"\n\n") || new.windows(3).any(|end| end == b"\n\r\n");
        if !is_complete && head.len() <= upgrade::HEAD_BYTES_MAX {
            return Ok(0);
        }
        match rules.answer(longest) {
            None => Ok(0),
            Some(Outcome { answer, accepted: Some(length), .. }) if length >= before => {
                self.unsent.extend_from_slice(&answer);
                self.phase = Phase::Open(Decoder::default());
                // Bytes of earlier reads belonged to the head.
                let behind = length - before;
                buffer.copy_within(behind..count, 0);
                Ok(count - behind)
            }
            Some(Outcome { answer, why, .. }) => {
                self.unsent.extend_from_slice(&answer);
                self.phase = Phase::Ended;
                Err(Rejected::WebSocket(why).into())
            }
        }
    }

    fn decode(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Phase::Open(decoder) = &mut self.phase else { return Ok(0) };
        let due = &mut self.due;
        let (count, violation) = decoder.decode(bytes, |answer| due.add(answer));
        let Some(Violation { status, why }) = violation else { return Ok(count) };
        due.add(Answer::Close(Some(status)));
        if count > 0 {
            // The reader gets the bytes in front of the violation first.
            self.phase = Phase::Violated(why);
            return Ok(count);
        }
        self.phase = Phase::Ended;
        Err(Rejected::WebSocket(why).into())
    }

    /// Whether the peer has sent a Close frame or has broken a rule, and the reader does not know yet.
    fn has_ended(&self) -> bool {
        match &self.phase {
            Phase::Open(decoder) => decoder.has_ended(),
            Phase::Violated(_) => true,
            Phase::Upgrade { .. } | Phase::Ended => false,
        }
    }

    /// Bytes without a frame are written.
    fn flush_unsent(&mut self) -> io::Result<()> {
        loop {
            while !self.unsent.is_empty() {
                let written = self.below.write(&[IoSlice::new(&self.unsent)])?;
                self.unsent.drain(..written);
            }
            // One answer at a time: those that come while the peer takes nothing replace each other.
            if self.frame_left > 0 || self.due.is_empty() {
                break;
            }
            self.due.encode(&mut self.unsent);
        }
        self.unsent = Vec::new();
        Ok(())
    }

    /// Begins a frame with all these pieces, and writes what the stream below takes.
    fn begin_frame(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let payload_bytes = pieces.iter().map(|piece| piece.len()).sum();
        let header = Sent::binary(payload_bytes);
        let mut all = [IoSlice::new(&[]); PIECES_MAX];
        all[0] = IoSlice::new(header.as_bytes());
        all[1..=pieces.len()].copy_from_slice(pieces);
        let written = self.below.write(&all[..=pieces.len()])?;
        let header_written = written.min(header.as_bytes().len());
        self.unsent.extend_from_slice(&header.as_bytes()[header_written..]);
        self.frame_left = payload_bytes - (written - header_written);
        Ok(written - header_written)
    }

    /// Goes on with the frame under way.
    fn go_on(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut all = [IoSlice::new(&[]); PIECES_MAX];
        let (mut count, mut left) = (0, self.frame_left);
        for piece in pieces {
            all[count] = IoSlice::new(&piece[..piece.len().min(left)]);
            left -= all[count].len();
            count += 1;
            if left == 0 {
                break;
            }
        }
        let written = self.below.write(&all[..count])?;
        self.frame_left -= written;
        Ok(written)
    }
}

impl Due {
    fn add(&mut self, answer: Answer) {
        match answer {
            Answer::Pong(payload) => self.pong = Some(payload),
            Answer::Close(status) => self.close = Some(status),
        }
    }

    /// Nothing follows a Close frame (section 5.5.1).
    fn is_empty(&self) -> bool {
        self.has_closed || self.pong.is_none() && self.close.is_none()
    }

    fn encode(&mut self, into: &mut Vec<u8>) {
        if self.is_empty() {
            return;
        }
        if let Some(payload) = self.pong.take() {
            Answer::Pong(payload).encode(into);
        }
        if let Some(status) = self.close.take() {
            Answer::Close(status).encode(into);
            self.has_closed = true;
        }
    }
}

impl<S: Stream> Stream for WebSocket<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        if self.has_ended() {
            let phase = std::mem::replace(&mut self.phase, Phase::Ended);
            if let Phase::Violated(why) = phase {
                return Err(Rejected::WebSocket(why).into());
            }
            return Ok(Received { bytes: 0, is_drained: false });
        }
        let Received { bytes, is_drained } = self.below.read(buffer)?;
        if bytes == 0 || matches!(self.phase, Phase::Ended) {
            return Ok(Received { bytes, is_drained });
        }
        let bytes = self.upgrade(buffer, bytes)?;
        let bytes = self.decode(&mut buffer[..bytes])?;
        match bytes {
            // The Close frame of the peer ends the stream, behind what came before it.
            0 if self.has_ended() => {
                self.phase = Phase::Ended;
                Ok(Received { bytes: 0, is_drained })
            }
            // Only the socket says that it would block: its end may have been announced together with these bytes.
            0 => Err(io::ErrorKind::Interrupted.into()),
            _ => Ok(Received { bytes, is_drained: is_drained && !self.has_ended() }),
        }
    }

    fn has_arrived(&mut self) -> bool {
        self.below.has_arrived()
    }

    /// The pieces of a call are one frame: it holds as many packets as the writer had.
    fn write(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.flush_unsent()?;
        if self.due.has_closed {
            // Nothing follows a Close frame (section 5.5.1).
            return Ok(pieces.iter().map(|piece| piece.len()).sum());
        }
        let pieces = &pieces[..pieces.len().min(PIECES_MAX - 1)];
        let written = if self.frame_left > 0 { self.go_on(pieces)? } else { self.begin_frame(pieces)? };
        if self.frame_left == 0 && !self.due.is_empty() {
            // An error shows in the next call.
            drop(self.flush_unsent());
        }
        if written == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.flush_unsent()?;
        self.below.flush()?;
        if self.is_shutting && self.frame_left == 0 {
            self.is_shutting = false;
            self.below.shut_down_write();
        }
        Ok(())
    }

    fn wants_write(&self) -> bool {
        let is_between_frames = self.frame_left == 0;
        !self.unsent.is_empty()
            || is_between_frames && (!self.due.is_empty() || self.is_shutting)
            || self.below.wants_write()
    }

    fn held_bytes(&self) -> usize {
        let phase = match &self.phase {
            Phase::Upgrade { head, .. } => head.capacity(),
            Phase::Open(decoder) => decoder.held_bytes(),
            Phase::Violated(_) | Phase::Ended => 0,
        };
        let pong = self.due.pong.as_ref().map_or(0, Vec::capacity);
        phase + pong + self.unsent.capacity() + self.below.held_bytes()
    }

    fn shut_down_write(&mut self) {
        if matches!(self.phase, Phase::Open(_)) && self.due.close.is_none() {
            self.due.add(Answer::Close(Some(Status::NORMAL)));
        }
        self.is_shutting = true;
        // If the stream below takes nothing now, the rest leaves with a later call of `flush`.
        drop(self.flush());
    }
}
