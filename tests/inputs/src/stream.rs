//! The form of the inputs of the targets for packets: one byte says who speaks which version, and the rest is sent.

use wire::{Limits, Role, Version};

/// Bytes of one end of a connection.
pub struct Stream<'a> {
    /// The version, as far as the other end knows it: `None` at the start of a connection.
    pub version: Option<Version>,
    /// The sender, if the other end knows it.
    pub sender: Option<Role>,
    /// The bytes of the stream.
    pub bytes: &'a [u8],
}

const VERSIONS: [Option<Version>; 4] = [None, Some(Version::V3_1), Some(Version::V3_1_1), Some(Version::V5)];
const SENDERS: [Option<Role>; 3] = [None, Some(Role::Client), Some(Role::Server)];

impl<'a> Stream<'a> {
    /// Takes an input apart; an empty one is none.
    pub fn of(input: &'a [u8]) -> Option<Self> {
        let (&first, bytes) = input.split_first()?;
        let (version, sender) = (VERSIONS[usize::from(first) % 4], SENDERS[usize::from(first / 4) % 3]);
        Some(Self { version, sender, bytes })
    }

    /// The input that [`of`](Self::of) takes apart.
    pub fn input(&self) -> Vec<u8> {
        let at = |found: Option<usize>| u8::try_from(found.expect("one of the list")).expect("a short list");
        let version = at(VERSIONS.iter().position(|&version| version == self.version));
        let sender = at(SENDERS.iter().position(|&sender| sender == self.sender));
        [&[version + 4 * sender], self.bytes].concat()
    }

    /// The limits of the other end.
    pub fn limits(&self) -> Limits {
        Limits { max_packet_bytes: 1 << 16, sender: self.sender }
    }
}
