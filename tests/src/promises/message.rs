//! Messages whose content follows from their number.

use std::fmt;

/// Number of publishers of these messages. Each publisher has its own topics.
pub(crate) const PUBLISHERS: u8 = 3;
/// Number of ghosts, which are clients whose only messages are their wills.
pub(crate) const GHOSTS: u8 = 2;
const FIRST_GHOST: u8 = 100;
const CHECK: u8 = 200;
/// One message in this number sets or clears a retained value.
const ONE_IN_RETAINED: u64 = 6;
const LONG_BYTES_MAX: u64 = 9_000;

/// A message, identified by its source and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Message {
    /// The source: a publisher, a ghost, or the check.
    from: u8,
    number: u32,
}

impl Message {
    /// The message with this number, from 1 on, of a publisher.
    pub(crate) fn of_publisher(publisher: u8, number: u32) -> Self {
        Self { from: publisher, number }
    }

    /// The will with this number of a ghost.
    pub(crate) fn of_ghost(ghost: u8, number: u32) -> Self {
        Self { from: FIRST_GHOST + ghost, number }
    }

    /// The last message of a check. There is one for QoS 1 and one for QoS 2, and no other message of that QoS
    /// follows.
    pub(crate) fn last(qos: u8) -> Self {
        Self { from: CHECK, number: u32::from(qos) }
    }

    /// The number of the message at its publisher or ghost.
    pub(crate) fn number(self) -> u32 {
        self.number
    }

    /// The topic name of the message.
    pub(crate) fn topic(self) -> String {
        match self.from {
            CHECK => "data/0/last".to_owned(),
            ghost @ FIRST_GHOST.. => format!("will/{}", ghost - FIRST_GHOST),
            publisher if self.is_retained() => format!("kept/{publisher}/{}", self.qos()),
            publisher => format!("data/{publisher}/{}", u8::from(!(self.chance() >> 8).is_multiple_of(8))),
        }
    }

    /// The QoS, 1 or 2. All values of a retained topic have the same QoS, so that their acknowledgements have an
    /// order.
    pub(crate) fn qos(self) -> u8 {
        match self.from {
            CHECK => {
                if self.number == 2 {
                    2
                } else {
                    1
                }
            }
            FIRST_GHOST.. => 2,
            _ => {
                if self.chance() & 1 == 0 {
                    1
                } else {
                    2
                }
            }
        }
    }

    /// Whether the RETAIN flag is 1.
    pub(crate) fn is_retained(self) -> bool {
        self.from < FIRST_GHOST && (self.chance() >> 16).is_multiple_of(ONE_IN_RETAINED)
    }

    /// Whether the message clears a retained value.
    pub(crate) fn is_clearing(self) -> bool {
        self.is_retained() && (self.chance() >> 32).is_multiple_of(4)
    }

    /// The payload: source and number, and filling bytes that follow from them. The length differs between
    /// messages.
    pub(crate) fn payload(self) -> Vec<u8> {
        if self.is_clearing() {
            return Vec::new();
        }
        let mut payload = format!("{} {} ", self.from, self.number).into_bytes();
        let chance = self.chance();
        let length =
            if (chance >> 40).is_multiple_of(4) { chance % LONG_BYTES_MAX } else { 20 + chance % 300 };
        let filling = (0..length).map(|at| chance.wrapping_mul(at | 1).to_le_bytes()[7]);
        payload.extend(filling);
        payload
    }

    /// Recognises a message by topic and payload. Returns `None` if they are not exactly as published.
    pub(crate) fn parse(topic: &str, payload: &[u8]) -> Option<Self> {
        let mut words = payload.splitn(3, |byte| *byte == b' ').map(str::from_utf8);
        let from = words.next()?.ok()?.parse().ok()?;
        let number = words.next()?.ok()?.parse().ok()?;
        let message = Self { from, number };
        (message.topic() == topic && message.payload() == payload).then_some(message)
    }

    /// A random number that follows from source and number.
    fn chance(self) -> u64 {
        let mut bits =
            (u64::from(self.from) << 32 | u64::from(self.number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} (QoS {})", self.number, self.topic(), self.qos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_known_by_what_it_says_and_nothing_else_is_one() {
        for number in 1..200 {
            let message = Message::of_publisher(2, number);
            let (topic, payload) = (message.topic(), message.payload());
            if message.is_clearing() {
                assert!(payload.is_empty());
            } else {
                assert_eq!(Message::parse(&topic, &payload), Some(message));
                assert_eq!(Message::parse("data/1/7", &payload), None);
                assert_eq!(Message::parse(&topic, &payload[..payload.len() - 1]), None);
            }
        }
        assert_eq!(Message::parse("a", b""), None);
    }
}
