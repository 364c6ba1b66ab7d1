//! Good and bad packets: every packet in every version, and every rule that can be broken in it. The bytes were
//! not made by this crate.
//!
//! Unit tests decode them; tests of a broker send them; fuzzers begin with them.

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

/// The longest packet that the table's decoder accepts.
pub const MAX_PACKET_BYTES: usize = 2 << 20;

/// One packet, or what is not one.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What is special about it.
    pub name: &'static str,
    /// The versions for which it is so.
    pub versions: &'static [Version],
    /// Whether these are the first bytes of a connection.
    pub is_first: bool,
    /// Who sends them.
    pub sender: Role,
    /// The bytes.
    pub bytes: &'static [u8],
    /// What comes of it.
    pub expected: Expected,
}

/// What comes of the bytes of a [`Case`].
#[derive(Clone, Copy, Debug)]
pub enum Expected {
    /// A packet.
    Packet {
        /// The line that it prints.
        text: &'static str,
        /// What it is written as: the same bytes, or shorter ones.
        encoded: &'static [u8],
    },
    /// A violation.
    Violation {
        /// Its reason.
        reason: ReasonCode,
        /// The normative statement.
        statement: &'static str,
        /// For a first packet, what a server sends before it closes the connection.
        answer: &'static [u8],
    },
}

/// All cases.
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
    /// The limits that the case is about.
    pub const fn limits(&self) -> Limits {
        Limits { max_packet_bytes: MAX_PACKET_BYTES, sender: Some(self.sender) }
    }

    /// What [`decode`](crate::decode) is to be told about a connection of `version`.
    pub const fn known_version(&self, version: Version) -> Option<Version> {
        if self.is_first { None } else { Some(version) }
    }

    /// For a violation, the bytes that a server may send before it closes a connection of `version`.
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

/// A packet that is written as it was read.
const fn good(
    name: &'static str,
    versions: &'static [Version],
    sender: Role,
    bytes: &'static [u8],
    text: &'static str,
) -> Case {
    lenient(name, versions, sender, bytes, text, bytes)
}

/// A packet that is written in another way than it was read.
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

/// As [`good`], at the start of a connection.
const fn first(
    name: &'static str,
    versions: &'static [Version],
    bytes: &'static [u8],
    text: &'static str,
) -> Case {
    lenient_first(name, versions, bytes, text, bytes)
}

/// As [`lenient`], at the start of a connection.
const fn lenient_first(
    name: &'static str,
    versions: &'static [Version],
    bytes: &'static [u8],
    text: &'static str,
    encoded: &'static [u8],
) -> Case {
    Case { is_first: true, ..lenient(name, versions, CLIENT, bytes, text, encoded) }
}

/// A violation in a connection.
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
