//! Frames of the WebSocket protocol (RFC 6455 section 5), for either end of a connection.

/// Maximum length of a frame header with its mask, in bytes (section 5.2).
const HEADER_BYTES_MAX: usize = 14;

/// Maximum payload of a control frame, in bytes (section 5.5).
const CONTROL_BYTES_MAX: u64 = 125;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;

/// The kind of a frame (section 5.2). There are no text frames in MQTT [MQTT-6.0.0-1].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation = 0x0,
    Binary = 0x2,
    Close = 0x8,
    Ping = 0x9,
    Pong = 0xa,
}

/// A control frame that has to be answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// With the payload that the answer repeats.
    Ping(Vec<u8>),
    Close,
}

/// The state between two reads.
#[derive(Debug)]
pub(super) struct Decoder {
    /// Clients mask their frames, and servers do not (section 5.1).
    expects_mask: bool,
    /// The beginning of a header.
    header: [u8; HEADER_BYTES_MAX],
    header_len: usize,
    /// The frame whose payload is being read.
    frame: Option<Opcode>,
    /// The masking key; its first byte is due.
    mask: [u8; 4],
    /// Bytes of the payload that are still to come.
    payload_left: u64,
    /// A message has begun whose last frame has not come.
    is_in_message: bool,
    /// The payload of a control frame.
    control: Vec<u8>,
    has_ended: bool,
}

/// The fields of a header.
struct Header {
    opcode: Opcode,
    is_last: bool,
    mask: [u8; 4],
    payload_bytes: u64,
}

impl Decoder {
    pub(super) fn new(expects_mask: bool) -> Self {
        Self {
            expects_mask,
            header: [0; HEADER_BYTES_MAX],
            header_len: 0,
            frame: None,
            mask: [0; 4],
            payload_left: 0,
            is_in_message: false,
            control: Vec::new(),
            has_ended: false,
        }
    }

    /// Whether the peer has sent a Close frame: nothing behind it is read.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Moves the payloads of binary messages to the front of `bytes`, unmasked, and returns their length.
    ///
    /// # Errors
    /// The rule of section 5 that the peer has broken.
    pub(super) fn decode(
        &mut self,
        bytes: &mut [u8],
        mut answer: impl FnMut(Control),
    ) -> Result<usize, &'static str> {
        let (mut read, mut written) = (0, 0);
        while read < bytes.len() && !self.has_ended {
            match self.frame {
                None => read += self.take_header(&bytes[read..])?,
                Some(opcode) => {
                    let count = self.unmask(&mut bytes[read..]);
                    if matches!(opcode, Opcode::Binary | Opcode::Continuation) {
                        bytes.copy_within(read..read + count, written);
                        written += count;
                    } else {
                        self.control.extend_from_slice(&bytes[read..read + count]);
                    }
                    read += count;
                }
            }
            if self.payload_left == 0
                && let Some(opcode) = self.frame.take()
            {
                self.end_frame(opcode, &mut answer);
            }
        }
        Ok(written)
    }

    /// Takes bytes of a header. Returns how many.
    fn take_header(&mut self, bytes: &[u8]) -> Result<usize, &'static str> {
        let before = self.header_len;
        let count = bytes.len().min(HEADER_BYTES_MAX - before);
        self.header[before..before + count].copy_from_slice(&bytes[..count]);
        let Some((header, length)) = Header::decode(&self.header[..before + count], self.expects_mask)?
        else {
            self.header_len = before + count;
            return Ok(count);
        };
        self.header_len = 0;
        match header.opcode {
            Opcode::Continuation if !self.is_in_message => return Err("a continuation without a message"),
            Opcode::Binary if self.is_in_message => return Err("a new message inside of another"),
            Opcode::Continuation | Opcode::Binary => self.is_in_message = !header.is_last,
            Opcode::Close | Opcode::Ping | Opcode::Pong => {}
        }
        self.frame = Some(header.opcode);
        self.mask = header.mask;
        self.payload_left = header.payload_bytes;
        Ok(length - before)
    }

    /// Unmasks bytes of the payload. Returns how many.
    fn unmask(&mut self, bytes: &mut [u8]) -> usize {
        let count = usize::try_from(self.payload_left).unwrap_or(usize::MAX).min(bytes.len());
        if self.expects_mask {
            mask(self.mask, &mut bytes[..count]);
            self.mask.rotate_left(count % 4);
        }
        self.payload_left -= count as u64;
        count
    }

    fn end_frame(&mut self, opcode: Opcode, answer: &mut impl FnMut(Control)) {
        let payload = std::mem::take(&mut self.control);
        match opcode {
            Opcode::Ping => answer(Control::Ping(payload)),
            Opcode::Close => {
                self.has_ended = true;
                answer(Control::Close);
            }
            Opcode::Continuation | Opcode::Binary | Opcode::Pong => {}
        }
    }
}

impl Header {
    /// Decodes a header (section 5.2). Returns it with its length, or `None` if bytes are missing.
    fn decode(bytes: &[u8], expects_mask: bool) -> Result<Option<(Self, usize)>, &'static str> {
        let &[first, second, ref rest @ ..] = bytes else { return Ok(None) };
        if first & RESERVED != 0 {
            return Err("a reserved bit is set, and no extension was agreed on");
        }
        let opcode = Opcode::decode(first & 0x0f)?;
        let is_last = first & FIN != 0;
        if (second & MASKED != 0) != expects_mask {
            return Err("clients mask their frames, and servers do not");
        }
        let short = second & !MASKED;
        let extended_len = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask_len = if expects_mask { 4 } else { 0 };
        let Some(fields) = rest.get(..extended_len + mask_len) else { return Ok(None) };
        let (extended, key) = fields.split_at(extended_len);
        let payload_bytes = match extended {
            [] => u64::from(short),
            bytes => bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
        };
        let is_control = matches!(opcode, Opcode::Close | Opcode::Ping | Opcode::Pong);
        if is_control && (payload_bytes > CONTROL_BYTES_MAX || !is_last) {
            return Err("a control frame that is too long, or in fragments");
        }
        let mask = key.try_into().unwrap_or_default();
        Ok(Some((Self { opcode, is_last, mask, payload_bytes }, 2 + extended_len + mask_len)))
    }
}

impl Opcode {
    fn decode(number: u8) -> Result<Self, &'static str> {
        let known = [Self::Continuation, Self::Binary, Self::Close, Self::Ping, Self::Pong];
        known.into_iter().find(|opcode| *opcode as u8 == number).ok_or("a text frame, or an unknown one")
    }
}

/// Appends a whole frame, masked with this key if there is one.
pub(super) fn append(opcode: Opcode, key: Option<[u8; 4]>, payload: &[u8], into: &mut Vec<u8>) {
    into.push(FIN | opcode as u8);
    let masked = if key.is_some() { MASKED } else { 0 };
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(short @ ..126), _) => into.push(masked | short),
        (_, Ok(len)) => {
            into.push(masked | 126);
            into.extend_from_slice(&len.to_be_bytes());
        }
        (_, Err(_)) => {
            into.push(masked | 127);
            into.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    let Some(key) = key else { return into.extend_from_slice(payload) };
    into.extend_from_slice(&key);
    let start = into.len();
    into.extend_from_slice(payload);
    mask(key, &mut into[start..]);
}

/// Masks bytes, or unmasks them (section 5.3).
fn mask(key: [u8; 4], bytes: &mut [u8]) {
    let (words, rest) = bytes.as_chunks_mut::<4>();
    let word_key = u32::from_ne_bytes(key);
    for word in words {
        *word = (u32::from_ne_bytes(*word) ^ word_key).to_ne_bytes();
    }
    rest.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

    /// Decodes frames that come in pieces of this length. Returns the payload, and the frames to answer.
    fn decode(
        expects_mask: bool,
        bytes: &[u8],
        piece: usize,
    ) -> Result<(Vec<u8>, Vec<Control>), &'static str> {
        let mut decoder = Decoder::new(expects_mask);
        let (mut payload, mut answers) = (Vec::new(), Vec::new());
        for piece in bytes.chunks(piece) {
            let mut piece = piece.to_vec();
            let count = decoder.decode(&mut piece, |control| answers.push(control))?;
            payload.extend_from_slice(&piece[..count]);
        }
        Ok((payload, answers))
    }

    #[test]
    fn a_frame_looks_as_in_the_standard() {
        let mut frame = Vec::new();
        append(Opcode::Binary, Some(KEY), b"Hello", &mut frame);
        // The example of section 5.7, as a binary message.
        assert_eq!(frame, [0x82, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]);
        frame.clear();
        append(Opcode::Ping, None, b"Hello", &mut frame);
        assert_eq!(frame, b"\x89\x05Hello");
    }

    #[test]
    fn payloads_of_all_lengths_arrive_however_their_frames_are_cut() {
        for key in [None, Some(KEY)] {
            for len in [0, 1, 125, 126, 127, 65_535, 65_536, 70_003] {
                let sent: Vec<u8> = (0..len).map(|at: usize| at.to_le_bytes()[0]).collect();
                let mut frames = Vec::new();
                append(Opcode::Binary, key, &sent, &mut frames);
                append(Opcode::Binary, key, b"next", &mut frames);
                let expected = [&sent[..], b"next"].concat();
                for piece in [1, 3, 1_000, usize::MAX] {
                    let (payload, answers) = decode(key.is_some(), &frames, piece).unwrap();
                    assert!(payload == expected && answers.is_empty(), "{len} bytes in pieces of {piece}");
                }
            }
        }
    }

    #[test]
    fn control_frames_may_stand_between_the_fragments_of_a_message() {
        let frames = b"\x02\x03one\x89\x02hi\x00\x03two\x8a\x00\x80\x05three\x88\x02\x03\xe8ignored";
        for piece in [1, 2, 100] {
            let (payload, answers) = decode(false, frames, piece).unwrap();
            assert_eq!(payload, b"onetwothree");
            assert_eq!(answers, [Control::Ping(b"hi".to_vec()), Control::Close]);
        }
    }

    #[test]
    fn broken_rules_are_errors() {
        for frames in [
            &b"\x81\x01a"[..],
            b"\xc2\x01a",
            b"\x80\x01a",
            b"\x02\x01a\x82\x01b",
            b"\x09\x01a",
            b"\x88\x7e\x00\x7e",
            b"\x83\x00",
            b"\x82\x81\x00\x00\x00\x00a",
        ] {
            assert!(decode(false, frames, 100).is_err(), "{frames:?}");
        }
        assert!(decode(true, b"\x82\x01a", 100).is_err(), "a client masks its frames");
    }
}
