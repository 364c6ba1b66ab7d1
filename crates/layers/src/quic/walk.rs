//! Follows the control packets in a stream of bytes.

/// Maximum bytes of a Remaining Length (MQTT 5.0 section 1.5.5).
const LENGTH_BYTES_MAX: u8 = 4;

const PUBLISH: u8 = 3;
const PUBACK: u8 = 4;
const PUBREL: u8 = 6;
const PUBCOMP: u8 = 7;
const SUBSCRIBE: u8 = 8;
const SUBACK: u8 = 9;
const UNSUBSCRIBE: u8 = 10;
const UNSUBACK: u8 = 11;

/// The position in a stream of control packets, whose bytes arrive in pieces of any size.
///
/// ```text
///            ┌──────────── no Packet Identifier ───────────┐
///            │                                             ▼
/// Start ─► Length ─► Topic length ─► Topic ─► Identifier ─► Body ─► Start
///            │           PUBLISH                 ▲
///            └──────────── acknowledgements ─────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Walk {
    at: At,
    first_byte: u8,
    /// Bytes of the packet that follow.
    remaining: u32,
    /// Bytes of the packet with its fixed header, as far as they are known.
    len: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum At {
    #[default]
    Start,
    Length {
        bytes: u8,
    },
    TopicLength {
        high: Option<u8>,
    },
    Topic {
        len: u16,
    },
    Identifier {
        high: Option<u8>,
    },
    Body,
    /// The Remaining Length is malformed. Nobody knows where the packet ends.
    Lost,
}

/// One exchange of packets that have the same Packet Identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Exchange {
    pub(super) kind: Kind,
    pub(super) packet_id: u16,
}

/// The request that a client begins an exchange with. Their identifiers are independent of those of the server's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// PUBLISH at QoS 1 or 2, and PUBREL.
    Publish,
    /// SUBSCRIBE or UNSUBSCRIBE: one identifier is in use for either.
    Subscribe,
}

/// The reason why a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// All bytes are used, and the packet goes on.
    Nothing,
    /// The bytes before this place said what exchange the packet belongs to.
    Exchange(Exchange),
    /// The packet ends here.
    End,
}

/// The direction of a stream. A packet type has its meaning from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    Client,
    Server,
}

impl Walk {
    /// Whether the next byte begins a packet.
    pub(super) fn is_between_packets(self) -> bool {
        self.at == At::Start
    }

    /// Bytes of the current packet with its fixed header, as far as they are known. `None` if the packet has no end, because
    /// its Remaining Length is malformed.
    pub(super) fn packet_len(self) -> Option<usize> {
        (self.at != At::Lost).then_some(self.len as usize)
    }

    /// Whether a packet that begins with this byte answers a request of a client with its Packet Identifier.
    pub(super) fn is_answer(first_byte: u8) -> bool {
        Self::kind(first_byte, From::Server).is_some()
    }

    /// Walks over bytes up to the next finding. Returns the number of bytes passed, which can be 0 at the end of a packet.
    pub(super) fn step(&mut self, bytes: &[u8], from: From) -> (usize, Found) {
        let mut passed = 0;
        loop {
            if self.at == At::Body && self.remaining == 0 {
                *self = Self::default();
                return (passed, Found::End);
            }
            if passed == bytes.len() {
                return (passed, Found::Nothing);
            }
            if let At::Topic { .. } | At::Body | At::Lost = self.at {
                passed += self.skip(bytes.len() - passed);
            } else {
                let found = self.take(bytes[passed], from);
                passed += 1;
                if let Some(exchange) = found {
                    return (passed, Found::Exchange(exchange));
                }
            }
        }
    }

    /// Passes over bytes that nobody needs to look at.
    fn skip(&mut self, available: usize) -> usize {
        let available = u32::try_from(available).unwrap_or(u32::MAX);
        let passed = match self.at {
            At::Topic { len } => available.min(len.into()),
            At::Lost => return available as usize,
            _ => available.min(self.remaining),
        };
        self.remaining -= passed;
        if let At::Topic { len } = &mut self.at {
            *len -= u16::try_from(passed).expect("it is at most a topic's length");
            if *len == 0 {
                self.at = At::Identifier { high: None };
            }
        }
        passed as usize
    }

    /// Takes one byte of a header.
    fn take(&mut self, byte: u8, from: From) -> Option<Exchange> {
        match self.at {
            At::Start => {
                *self = Self { at: At::Length { bytes: 0 }, first_byte: byte, remaining: 0, len: 2 };
                return None;
            }
            At::Length { bytes } => {
                self.take_length(byte, bytes, from);
                return None;
            }
            _ => {}
        }
        self.remaining -= 1;
        match self.at {
            At::TopicLength { high: None } => self.at = At::TopicLength { high: Some(byte) },
            At::TopicLength { high: Some(high) } => {
                let len = u16::from_be_bytes([high, byte]);
                // The identifier lies behind the topic. A packet that is too short for them is malformed.
                let fits = u32::from(len) + 2 <= self.remaining;
                self.at = match len {
                    _ if !fits => At::Body,
                    0 => At::Identifier { high: None },
                    len => At::Topic { len },
                };
            }
            At::Identifier { high: None } => self.at = At::Identifier { high: Some(byte) },
            At::Identifier { high: Some(high) } => {
                self.at = At::Body;
                let packet_id = u16::from_be_bytes([high, byte]);
                return Self::kind(self.first_byte, from).map(|kind| Exchange { kind, packet_id });
            }
            At::Start | At::Length { .. } | At::Topic { .. } | At::Body | At::Lost => {}
        }
        None
    }

    fn take_length(&mut self, byte: u8, bytes: u8, from: From) {
        self.remaining |= u32::from(byte & 0x7F) << (7 * bytes);
        let bytes = bytes + 1;
        let has_more = byte & 0x80 != 0;
        self.at = match Self::kind(self.first_byte, from) {
            _ if has_more && bytes == LENGTH_BYTES_MAX => At::Lost,
            _ if has_more => At::Length { bytes },
            Some(_) if self.remaining < 2 => At::Body,
            Some(Kind::Publish) if self.first_byte >> 4 == PUBLISH => At::TopicLength { high: None },
            Some(_) => At::Identifier { high: None },
            None => At::Body,
        };
        self.len = 1 + u32::from(bytes) + self.remaining;
    }

    /// The kind of exchange that a client began and that a packet belongs to. `None` for packets without an identifier, and for
    /// exchanges that the server began.
    fn kind(first_byte: u8, from: From) -> Option<Kind> {
        let has_qos = first_byte & 0b110 != 0;
        match (first_byte >> 4, from) {
            (PUBLISH, From::Client) if has_qos => Some(Kind::Publish),
            (PUBREL, From::Client) => Some(Kind::Publish),
            (SUBSCRIBE | UNSUBSCRIBE, From::Client) | (SUBACK | UNSUBACK, From::Server) => {
                Some(Kind::Subscribe)
            }
            // PUBACK, PUBREC and PUBCOMP. PUBREL is for a message of the server.
            (packet @ PUBACK..=PUBCOMP, From::Server) if packet != PUBREL => Some(Kind::Publish),
            _ => None,
        }
    }
}
