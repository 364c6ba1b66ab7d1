//! Frames of the WebSocket protocol (RFC 6455 section 5), a server's side.
//!
//! ```text
//!            ┌─────────────── header complete ──────────────┐
//!            │                                              ▼
//!         Header ◄── payload complete ── Data (bytes go to the reader) or Control (at most 125 bytes are kept)
//!            │
//!            └─ Close received, or a rule was broken ──► ended: later bytes are ignored
//! ```

/// Maximum payload of a control frame, in bytes (section 5.5).
const CONTROL_BYTES_MAX: usize = 125;
/// Maximum length of a frame header with its mask, in bytes (section 5.2).
const HEADER_BYTES_MAX: usize = 14;

const FIN: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;

/// A status code of a Close frame (section 7.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(pub(crate) u16);

impl Status {
    pub(crate) const NORMAL: Self = Self(1000);
    pub(crate) const PROTOCOL_ERROR: Self = Self(1002);
    pub(crate) const UNSUPPORTED_DATA: Self = Self(1003);
    pub(crate) const INVALID_TEXT: Self = Self(1007);

    /// Whether an endpoint may send this code (section 7.4): reserved codes stand for events and are never sent.
    fn may_be_sent(self) -> bool {
        matches!(self.0, 1000..=1003 | 1007..=1014 | 3000..=4999)
    }
}

/// A rule of section 5 that the client has broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The status code for the answer.
    pub(crate) status: Status,
    pub(crate) why: &'static str,
}

impl Violation {
    const fn of_protocol(why: &'static str) -> Self {
        Self { status: Status::PROTOCOL_ERROR, why }
    }
}

/// A frame that the server has to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// With the payload of the Ping.
    Pong(Vec<u8>),
    /// With the status code that the peer sent, or none.
    Close(Option<Status>),
}

/// The state between two reads.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The beginning of a frame header.
    header: [u8; HEADER_BYTES_MAX],
    header_bytes: u8,
    stage: Stage,
    /// The masking key, rotated so that its first byte is due.
    mask: [u8; 4],
    /// Bytes of the payload that are still to come.
    payload_left: u64,
    /// A message has begun whose last frame has not come.
    in_message: bool,
    /// The payload of a control frame.
    control: Vec<u8>,
    has_ended: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Header,
    Data,
    Control(Control),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    Close,
    Ping,
    Pong,
}

/// The fields of a header.
struct Header {
    kind: Kind,
    is_last: bool,
    mask: [u8; 4],
    payload_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Continuation,
    Binary,
    Control(Control),
}

impl Decoder {
    /// Whether the peer has sent a Close frame, or has broken a rule.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Bytes that are held beyond the size of this struct.
    pub(crate) fn held_bytes(&self) -> usize {
        self.control.capacity()
    }

    /// Moves the payloads of binary messages to the front of `bytes`, unmasked, and returns their length, and the rule that
    /// the peer has broken behind them. Frames that are due as answers are handed to `answer`.
    pub(crate) fn decode(
        &mut self,
        bytes: &mut [u8],
        mut answer: impl FnMut(Answer),
    ) -> (usize, Option<Violation>) {
        let (mut read, mut written) = (0, 0);
        while read < bytes.len() && !self.has_ended {
            match self.stage {
                Stage::Header => match self.take_header(&bytes[read..]) {
                    Ok(count) => read += count,
                    Err(violation) => return self.end(written, violation),
                },
                Stage::Data => {
                    let count = self.unmask(&mut bytes[read..]);
                    bytes.copy_within(read..read + count, written);
                    (read, written) = (read + count, written + count);
                }
                Stage::Control(_) => {
                    let count = self.unmask(&mut bytes[read..]);
                    self.control.extend_from_slice(&bytes[read..read + count]);
                    read += count;
                }
            }
            if self.payload_left == 0
                && self.header_bytes == 0
                && let Err(violation) = self.end_frame(&mut answer)
            {
                return self.end(written, violation);
            }
        }
        (written, None)
    }

    fn end(&mut self, written: usize, violation: Violation) -> (usize, Option<Violation>) {
        self.has_ended = true;
        (written, Some(violation))
    }

    /// Takes bytes of a header. Returns how many.
    fn take_header(&mut self, bytes: &[u8]) -> Result<usize, Violation> {
        let before = usize::from(self.header_bytes);
        let count = bytes.len().min(HEADER_BYTES_MAX - before);
        self.header[before..before + count].copy_from_slice(&bytes[..count]);
        let Some((header, length)) = Header::decode(&self.header[..before + count])? else {
            self.header_bytes = u8::try_from(before + count).expect("a header has at most 14 bytes");
            return Ok(count);
        };
        self.header_bytes = 0;
        self.begin_frame(&header)?;
        Ok(length - before)
    }

    fn begin_frame(&mut self, header: &Header) -> Result<(), Violation> {
        self.stage = match header.kind {
            Kind::Control(control) => Stage::Control(control),
            Kind::Continuation if !self.in_message => {
                return Err(Violation::of_protocol("a continuation frame without a message"));
            }
            Kind::Binary if self.in_message => {
                return Err(Violation::of_protocol("a new message inside of another"));
            }
            Kind::Continuation | Kind::Binary => {
                self.in_message = !header.is_last;
                Stage::Data
            }
        };
        self.mask = header.mask;
        self.payload_left = header.payload_bytes;
        Ok(())
    }

    /// Unmasks bytes of the payload (section 5.3). Returns how many.
    fn unmask(&mut self, bytes: &mut [u8]) -> usize {
        let left = usize::try_from(self.payload_left).unwrap_or(usize::MAX);
        let count = left.min(bytes.len());
        let mask = self.mask;
        let (words, rest) = bytes[..count].as_chunks_mut::<4>();
        let word_mask = u32::from_ne_bytes(mask);
        for word in words {
            *word = (u32::from_ne_bytes(*word) ^ word_mask).to_ne_bytes();
        }
        rest.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
        self.mask.rotate_left(count % 4);
        self.payload_left -= count as u64;
        count
    }

    fn end_frame(&mut self, answer: &mut impl FnMut(Answer)) -> Result<(), Violation> {
        let stage = std::mem::take(&mut self.stage);
        let Stage::Control(control) = stage else { return Ok(()) };
        let payload = std::mem::take(&mut self.control);
        match control {
            Control::Ping => answer(Answer::Pong(payload)),
            Control::Pong => {}
            Control::Close => {
                let status = status_of(&payload)?;
                self.has_ended = true;
                answer(Answer::Close(status));
            }
        }
        Ok(())
    }
}

/// The status code of a Close frame (section 5.5.1).
fn status_of(payload: &[u8]) -> Result<Option<Status>, Violation> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        let is_empty = payload.is_empty();
        return if is_empty { Ok(None) } else { Err(Violation::of_protocol("half of a status code")) };
    };
    let status = Status(u16::from_be_bytes(*code));
    if !status.may_be_sent() {
        return Err(Violation::of_protocol("a status code that is never sent"));
    }
    if str::from_utf8(reason).is_err() {
        return Err(Violation { status: Status::INVALID_TEXT, why: "a reason that is not UTF-8" });
    }
    Ok(Some(status))
}

impl Header {
    /// Decodes a header (section 5.2). Returns it with its length, or `None` if bytes are missing.
    fn decode(bytes: &[u8]) -> Result<Option<(Self, usize)>, Violation> {
        let [first, rest @ ..] = bytes else { return Ok(None) };
        if first & RESERVED != 0 {
            return Err(Violation::of_protocol("a reserved bit is set, and no extension was agreed on"));
        }
        let kind = Kind::decode(first & 0x0f)?;
        let is_last = first & FIN != 0;
        let [second, ..] = rest else { return Ok(None) };
        if second & MASKED == 0 {
            return Err(Violation::of_protocol("a client masks its frames"));
        }
        let short = second & !MASKED;
        if matches!(kind, Kind::Control(_)) {
            if usize::from(short) > CONTROL_BYTES_MAX {
                return Err(Violation::of_protocol("a control frame of more than 125 bytes"));
            }
            if !is_last {
                return Err(Violation::of_protocol("a control frame in fragments"));
            }
        }
        let length_bytes = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let length = 2 + length_bytes + 4;
        if bytes.len() < length {
            return Ok(None);
        }
        let extended = bytes[2..2 + length_bytes].iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        let payload_bytes = match short {
            126 if extended < 126 => return Err(Violation::of_protocol("a length that is not minimal")),
            127 if extended <= 0xffff => return Err(Violation::of_protocol("a length that is not minimal")),
            127 if extended >> 63 != 0 => return Err(Violation::of_protocol("a length of 2^63 or more")),
            126 | 127 => extended,
            short => u64::from(short),
        };
        let mask = bytes[length - 4..length].try_into().expect("4 bytes");
        Ok(Some((Self { kind, is_last, mask, payload_bytes }, length)))
    }
}

impl Kind {
    fn decode(opcode: u8) -> Result<Self, Violation> {
        match opcode {
            0x0 => Ok(Self::Continuation),
            // [MQTT-6.0.0-1]
            0x1 => Err(Violation { status: Status::UNSUPPORTED_DATA, why: "MQTT in a text frame" }),
            0x2 => Ok(Self::Binary),
            0x8 => Ok(Self::Control(Control::Close)),
            0x9 => Ok(Self::Control(Control::Ping)),
            0xa => Ok(Self::Control(Control::Pong)),
            _ => Err(Violation::of_protocol("a reserved opcode")),
        }
    }
}

/// A header of a frame that a server sends. Servers do not mask (section 5.1).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    bytes: [u8; 10],
    length: u8,
}

impl Sent {
    /// The header of a binary message in one frame.
    pub(crate) fn binary(payload_bytes: usize) -> Self {
        Self::new(FIN | 0x2, payload_bytes)
    }

    fn new(first: u8, payload_bytes: usize) -> Self {
        let mut bytes = [0; 10];
        bytes[0] = first;
        let length = if let Some(short) = u8::try_from(payload_bytes).ok().filter(|short| *short < 126) {
            bytes[1] = short;
            2
        } else if let Ok(length) = u16::try_from(payload_bytes) {
            bytes[1] = 126;
            bytes[2..4].copy_from_slice(&length.to_be_bytes());
            4
        } else {
            bytes[1] = 127;
            bytes[2..].copy_from_slice(&(payload_bytes as u64).to_be_bytes());
            10
        };
        Self { bytes, length }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl Answer {
    /// Appends the whole frame to `into`.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        let (opcode, payload) = match self {
            Self::Pong(payload) => (0xa, payload.clone()),
            Self::Close(status) => {
                (0x8, status.map_or_else(Vec::new, |status| status.0.to_be_bytes().to_vec()))
            }
        };
        into.extend_from_slice(Sent::new(FIN | opcode, payload.len()).as_bytes());
        into.extend_from_slice(&payload);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

    /// A frame as a client sends it.
    pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let sent = Sent::new(first, payload.len());
        let mut frame = sent.as_bytes().to_vec();
        frame[1] |= MASKED;
        frame.extend_from_slice(&MASK);
        frame.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        frame
    }

    type Decoded = (Vec<u8>, Vec<Answer>, Option<Violation>);

    /// Decodes a stream in pieces of this length.
    fn decode(stream: &[u8], piece_bytes: usize) -> Decoded {
        let mut decoder = Decoder::default();
        let (mut payload, mut answers) = (Vec::new(), Vec::new());
        for piece in stream.chunks(piece_bytes) {
            let mut piece = piece.to_vec();
            let (count, violation) = decoder.decode(&mut piece, |answer| answers.push(answer));
            payload.extend_from_slice(&piece[..count]);
            if violation.is_some() {
                return (payload, answers, violation);
            }
        }
        (payload, answers, None)
    }

    #[test]
    fn frames_are_decoded_however_they_are_cut() {
        let long: Vec<u8> = (0..70_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let stream = [
            frame(0x82, b"one"),
            frame(0x02, b"t"),
            frame(0x89, b"ping"),
            frame(0x00, b""),
            frame(0x00, b"w"),
            frame(0x8a, b"unasked"),
            frame(0x80, b"o"),
            frame(0x82, &long[..126]),
            frame(0x82, &long),
            frame(0x89, &[7; 125]),
            frame(0x88, b"\x03\xe8bye"),
            frame(0x82, b"ignored"),
        ]
        .concat();
        let expected = [b"onetwo", &long[..126], &long].concat();
        let answers = vec![
            Answer::Pong(b"ping".to_vec()),
            Answer::Pong(vec![7; 125]),
            Answer::Close(Some(Status::NORMAL)),
        ];
        for piece_bytes in [1, 2, 3, 5, 13, 14, 15, 64, 1_000, stream.len()] {
            let decoded = decode(&stream, piece_bytes);
            assert_eq!(decoded, (expected.clone(), answers.clone(), None), "{piece_bytes}");
        }
    }

    #[test]
    fn each_rule_has_its_status_code() {
        let long = |first: u8, length: [u8; 9]| [&[first][..], &length, &MASK, b"x"].concat();
        let rows: &[(&str, Vec<u8>, u16)] = &[
            ("text", frame(0x81, b"x"), 1003),
            ("reserved bit 1", frame(0xc2, b"x"), 1002),
            ("reserved bit 2", frame(0xa2, b"x"), 1002),
            ("reserved bit 3", frame(0x92, b"x"), 1002),
            ("reserved data opcode", frame(0x83, b"x"), 1002),
            ("reserved control opcode", frame(0x8b, b"x"), 1002),
            ("not masked", Sent::new(0x82, 1).as_bytes().to_vec(), 1002),
            ("a long Ping", frame(0x89, &[0; 126]), 1002),
            ("a Ping in fragments", frame(0x09, b"x"), 1002),
            ("a Close in fragments", frame(0x08, b""), 1002),
            ("continuation of nothing", frame(0x80, b"x"), 1002),
            ("message inside of another", [frame(0x02, b"x"), frame(0x82, b"x")].concat(), 1002),
            ("length of 125 in 2 bytes", [&[0x82, 0xfe, 0, 125][..], &MASK].concat(), 1002),
            ("length of 65,535 in 8 bytes", long(0x82, [0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff]), 1002),
            ("length of 2^63", long(0x82, [0xff, 0x80, 0, 0, 0, 0, 0, 0, 0]), 1002),
            ("Close with one byte", frame(0x88, b"x"), 1002),
            ("Close with 1004", frame(0x88, b"\x03\xec"), 1002),
            ("Close with 1005", frame(0x88, b"\x03\xed"), 1002),
            ("Close with 1006", frame(0x88, b"\x03\xee"), 1002),
            ("Close with 1015", frame(0x88, b"\x03\xf7"), 1002),
            ("Close with 999", frame(0x88, b"\x03\xe7"), 1002),
            ("Close with 2999", frame(0x88, b"\x0b\xb7"), 1002),
            ("Close with 5000", frame(0x88, b"\x13\x88"), 1002),
            ("Close with a reason that is not UTF-8", frame(0x88, b"\x03\xe8\xc0\xaf"), 1007),
        ];
        for (row, stream, status) in rows {
            for piece_bytes in [1, stream.len()] {
                let (payload, answers, violation) = decode(stream, piece_bytes);
                assert_eq!(violation.map(|violation| violation.status.0), Some(*status), "{row}");
                assert!(answers.is_empty() && payload.len() <= 1, "{row}");
            }
        }
    }

    /// A frame of 2^63 - 1 bytes is a stream without an end. The limits of MQTT apply to what is in it.
    #[test]
    fn the_longest_frame_is_decoded_as_it_comes_and_takes_no_memory() {
        let mut decoder = Decoder::default();
        let mut bytes = [&[0x82, 0xff, 0x7f][..], &[0xff; 7], &[0; 4], b"data"].concat();
        assert_eq!(decoder.decode(&mut bytes, |_| ()), (4, None));
        assert_eq!((&bytes[..4], decoder.held_bytes()), (&b"data"[..], 0));
        assert_eq!(decoder.payload_left, (1 << 63) - 1 - 4);
    }

    #[test]
    fn nothing_is_read_behind_a_violation() {
        let mut decoder = Decoder::default();
        assert!(decoder.decode(&mut frame(0x81, b"x"), |_| ()).1.is_some());
        assert!(decoder.has_ended());
        assert_eq!(decoder.decode(&mut frame(0x82, b"x"), |_| ()), (0, None));
    }

    #[test]
    fn headers_that_a_server_sends_have_the_shortest_length() {
        let header = |bytes| Sent::binary(bytes).as_bytes().to_vec();
        assert_eq!(header(0), [0x82, 0]);
        assert_eq!(header(125), [0x82, 125]);
        assert_eq!(header(126), [0x82, 126, 0, 126]);
        assert_eq!(header(65_535), [0x82, 126, 0xff, 0xff]);
        assert_eq!(header(65_536), [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
        let encoded = |answer: Answer| {
            let mut bytes = Vec::new();
            answer.encode(&mut bytes);
            bytes
        };
        assert_eq!(encoded(Answer::Close(None)), [0x88, 0]);
        assert_eq!(encoded(Answer::Close(Some(Status::NORMAL))), [0x88, 2, 3, 0xe8]);
        assert_eq!(encoded(Answer::Pong(b"x".to_vec())), [0x8a, 1, b'x']);
    }
}
