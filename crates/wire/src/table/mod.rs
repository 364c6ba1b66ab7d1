//! A table of good and bad packets: every packet in every version, and every rule that a packet can break. The
//! bytes were not made by this crate.
//!
//! Unit tests decode the packets, tests of a broker send them, and fuzzers start from them.

use alloc::vec::Vec;

use crate::{Limits, ReasonCode, Role, Version};

mod acknowledge;
mod auth;
mod connack;
mod connect;
mod connect_properties;
mod disconnect;
mod framing;
mod ping;
mod publish;
mod suback;
mod subscribe;
#[cfg(test)]
mod tests;
mod unsuback;
mod unsubscribe;

/// Maximum length of packets that the table's decoder accepts, in bytes.
pub const MAX_PACKET_BYTES: usize = 2 << 20;

/// A packet, or bytes that are no valid packet, with the expected result.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The special property of this case.
    pub name: &'static str,
    /// The versions in which the result is expected.
    pub versions: &'static [Version],
    /// Whether these are the first bytes of a connection.
    pub is_first: bool,
    /// The end of the connection that sends the bytes.
    pub sender: Role,
    /// The bytes on the wire.
    pub bytes: &'static [u8],
    /// The expected result of decoding.
    pub expected: Expected,
}

/// The expected result of decoding the bytes of a [`Case`].
#[derive(Clone, Copy, Debug)]
pub enum Expected {
    /// The bytes are a valid packet.
    Packet {
        /// The line that the packet prints.
        text: &'static str,
        /// The bytes that encoding the packet returns: the same as in the case, or fewer.
        encoded: &'static [u8],
    },
    /// The bytes violate the protocol.
    Violation {
        /// The reason code of the violation.
        reason: ReasonCode,
        /// The normative statement of the violation.
        statement: &'static str,
        /// The bytes that a server sends before it closes the connection, if this is a first packet.
        answer: &'static [u8],
    },
}

/// Iterates over all cases.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    let all: [&'static [Case]; 13] = [
        framing::CASES,
        connect::CASES,
        connect_properties::CASES,
        connack::CASES,
        publish::CASES,
        acknowledge::CASES,
        subscribe::CASES,
        suback::CASES,
        unsubscribe::CASES,
        unsuback::CASES,
        ping::CASES,
        disconnect::CASES,
        auth::CASES,
    ];
    all.into_iter().flatten()
}

impl Case {
    /// The limits for decoding this case.
    pub const fn limits(&self) -> Limits {
        Limits { max_packet_bytes: MAX_PACKET_BYTES, sender: Some(self.sender) }
    }

    /// The version argument for [`decode`](crate::decode), for a connection of `version`.
    pub const fn known_version(&self, version: Version) -> Option<Version> {
        if self.is_first { None } else { Some(version) }
    }

    /// The bytes that a server may send before it closes a connection of `version`, if the case is a violation.
    pub fn answer(&self, version: Version) -> Option<Vec<u8>> {
        match self.expected {
            Expected::Packet { .. } => None,
            Expected::Violation { answer, .. } if self.is_first => Some(answer.into()),
            Expected::Violation { reason, .. } if version.is_5() => Some([0xE0, 0x01, reason.code()].into()),
            Expected::Violation { .. } => Some(Vec::new()),
        }
    }
}

const ALL: &[Version] = &Version::ALL;
const BEFORE_5: &[Version] = &[Version::V3_1, Version::V3_1_1];
const V3_1: &[Version] = &[Version::V3_1];
const V3_1_1: &[Version] = &[Version::V3_1_1];
const V5: &[Version] = &[Version::V5];
const CLIENT: Role = Role::Client;
const SERVER: Role = Role::Server;

/// A packet whose encoding equals the decoded bytes.
const fn good(
    name: &'static str,
    versions: &'static [Version],
    sender: Role,
    bytes: &'static [u8],
    text: &'static str,
) -> Case {
    lenient(name, versions, sender, bytes, text, bytes)
}

/// A packet whose encoding differs from the decoded bytes.
const fn lenient(
    name: &'static str,
    versions: &'static [Version],
    sender: Role,
    bytes: &'static [u8],
    text: &'static str,
    encoded: &'static [u8],
) -> Case {
    Case { name, versions, is_first: false, sender, bytes, expected: Expected::Packet { text, encoded } }
}

/// Like [`good`], at the start of a connection.
const fn first(
    name: &'static str,
    versions: &'static [Version],
    bytes: &'static [u8],
    text: &'static str,
) -> Case {
    lenient_first(name, versions, bytes, text, bytes)
}

/// Like [`lenient`], at the start of a connection.
const fn lenient_first(
    name: &'static str,
    versions: &'static [Version],
    bytes: &'static [u8],
    text: &'static str,
    encoded: &'static [u8],
) -> Case {
    Case { is_first: true, ..lenient(name, versions, CLIENT, bytes, text, encoded) }
}

/// A violation after CONNECT.
const fn bad(
    name: &'static str,
    versions: &'static [Version],
    sender: Role,
    bytes: &'static [u8],
    reason: ReasonCode,
    statement: &'static str,
) -> Case {
    let expected = Expected::Violation { reason, statement, answer: b"" };
    Case { name, versions, is_first: false, sender, bytes, expected }
}

/// A violation at the start of a connection.
const fn refused(
    name: &'static str,
    versions: &'static [Version],
    bytes: &'static [u8],
    reason: ReasonCode,
    statement: &'static str,
    answer: &'static [u8],
) -> Case {
    let expected = Expected::Violation { reason, statement, answer };
    Case { name, versions, is_first: true, sender: CLIENT, bytes, expected }
}
