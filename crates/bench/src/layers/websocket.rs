//! One end of a WebSocket connection, over bytes.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{Error, ErrorKind, Result};

use super::frames::{self, Control, Decoder, Opcode};
use super::upgrade::{self, Location};

/// The layer of MQTT over WebSocket: one write is one frame.
#[derive(Debug)]
pub(super) struct WebSocket {
    /// Keys for masks; a server has none.
    masks: Option<Masks>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// The head has not come whole. What was written before is kept for the first frame.
    Upgrade {
        head: Vec<u8>,
        key: Option<String>,
        written: Vec<u8>,
    },
    Open(Decoder),
}

/// Random numbers for masks. A load test has nobody to hide them from, so they are cheap: SplitMix64.
#[derive(Debug)]
struct Masks(u64);

impl WebSocket {
    /// The client's end; its request is appended to `unsent`.
    pub(super) fn client(location: &Location, unsent: &mut Vec<u8>) -> Self {
        let mut masks = Masks(RandomState::new().build_hasher().finish());
        let mut random = [0; 16];
        random.as_chunks_mut::<4>().0.iter_mut().for_each(|word| *word = masks.next());
        let key = upgrade::key(random);
        unsent.extend(upgrade::request(location, &key));
        let phase = Phase::Upgrade { head: Vec::new(), key: Some(key), written: Vec::new() };
        Self { masks: Some(masks), phase }
    }

    /// The server's end, which waits for a request.
    pub(super) fn server() -> Self {
        let phase = Phase::Upgrade { head: Vec::new(), key: None, written: Vec::new() };
        Self { masks: None, phase }
    }

    /// Whether the peer has sent a Close frame.
    pub(super) fn has_ended(&self) -> bool {
        matches!(&self.phase, Phase::Open(decoder) if decoder.has_ended())
    }

    /// Appends a frame with these bytes to `unsent`, or keeps them until the connection is open.
    pub(super) fn write(&mut self, bytes: &[u8], unsent: &mut Vec<u8>) {
        match &mut self.phase {
            Phase::Upgrade { written, .. } => written.extend_from_slice(bytes),
            Phase::Open(_) => {
                frames::append(Opcode::Binary, self.masks.as_mut().map(Masks::next), bytes, unsent);
            }
        }
    }

    /// Appends a Close frame without a reason, if the connection is open.
    pub(super) fn close(&mut self, unsent: &mut Vec<u8>) {
        if matches!(self.phase, Phase::Open(_)) {
            frames::append(Opcode::Close, self.masks.as_mut().map(Masks::next), &[], unsent);
        }
    }

    /// Moves the payloads in received bytes to their front, and returns how many bytes those are. Answers are appended
    /// to `unsent`.
    ///
    /// # Errors
    /// `InvalidData` if the peer breaks a rule of RFC 6455.
    pub(super) fn read(&mut self, bytes: &mut [u8], unsent: &mut Vec<u8>) -> Result<usize> {
        let broken = |why: String| Error::new(ErrorKind::InvalidData, format!("WebSocket: {why}"));
        let Some(begin) = self.upgrade(bytes, unsent).map_err(broken)? else { return Ok(0) };
        if begin > 0 {
            bytes.copy_within(begin.., 0);
        }
        let count = bytes.len() - begin;
        let Phase::Open(decoder) = &mut self.phase else { return Ok(0) };
        let masks = &mut self.masks;
        let answer = |control| {
            let (opcode, payload) = match control {
                Control::Ping(payload) => (Opcode::Pong, payload),
                Control::Close => (Opcode::Close, Vec::new()),
            };
            frames::append(opcode, masks.as_mut().map(Masks::next), &payload, unsent);
        };
        decoder.decode(&mut bytes[..count], answer).map_err(|why| broken(why.to_owned()))
    }

    /// Returns where frames begin in these bytes, or `None` if the head of the upgrade is not complete.
    fn upgrade(&mut self, bytes: &[u8], unsent: &mut Vec<u8>) -> std::result::Result<Option<usize>, String> {
        let Phase::Upgrade { head, key, written } = &mut self.phase else { return Ok(Some(0)) };
        let before = head.len();
        head.extend_from_slice(bytes);
        let length = match key {
            Some(key) => upgrade::check(head, key)?,
            None => upgrade::answer(head)?.map(|(length, answer)| {
                unsent.extend(answer);
                length
            }),
        };
        let Some(length) = length else { return Ok(None) };
        let written = std::mem::take(written);
        self.phase = Phase::Open(Decoder::new(self.masks.is_none()));
        if !written.is_empty() {
            self.write(&written, unsent);
        }
        // Bytes of earlier reads belonged to the head.
        Ok(Some(length.saturating_sub(before)))
    }
}

impl Masks {
    #[expect(clippy::cast_possible_truncation, reason = "any half of the number serves")]
    fn next(&mut self) -> [u8; 4] {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) as u32).to_ne_bytes()
    }
}
