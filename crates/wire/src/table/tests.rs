use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};

use super::*;
use crate::{Decoded, Packet, PacketType, Violation, decode, rule};

fn decode_case(case: &Case, version: Version) -> Result<Decoded<'static>, Violation> {
    decode(case.bytes, case.known_version(version), &case.limits())
}

/// Iterates over every case in each of its versions, with a line that identifies it.
fn each() -> impl Iterator<Item = (&'static Case, Version, String)> {
    cases().flat_map(|case| {
        case.versions.iter().map(move |&version| {
            (case, version, format!("{version}, {:?}: {} {:02x?}", case.sender, case.name, case.bytes))
        })
    })
}

/// Compares reason, statement and permitted answer of each violation too. [each case of crates/wire/src/table]
#[test]
fn every_case_is_what_the_table_says() {
    for (case, version, line) in each() {
        match (case.expected, decode_case(case, version)) {
            (Expected::Packet { text, encoded }, Ok(Decoded::Packet { packet, len })) => {
                assert_eq!(packet.to_string(), text, "{line}");
                assert_eq!(len, case.bytes.len(), "{line}");
                let mut bytes = Vec::new();
                assert_eq!(packet.encode(version, &mut bytes), Ok(encoded.len()), "{line}");
                assert_eq!(bytes, encoded, "{line}");
                assert_eq!(packet.encoded_len(version), Ok(encoded.len()), "{line}");
                if let Packet::Connect(connect) = packet {
                    assert_eq!(connect.version(), version, "{line}");
                }
            }
            (Expected::Violation { reason, statement, .. }, Err(violation)) => {
                assert_eq!((violation.reason, violation.statement), (reason, statement), "{line}");
                let mut bytes = Vec::new();
                if let Some((version, packet)) = violation.answer.packet() {
                    packet.encode(version, &mut bytes).unwrap();
                }
                assert_eq!(Some(bytes), case.answer(version), "{line}");
            }
            (_, other) => panic!("{other:?}, {line}"),
        }
    }
}

#[test]
fn every_packet_is_there_in_every_version() {
    let there: BTreeSet<_> = each()
        .filter_map(|(case, version, _)| match decode_case(case, version) {
            Ok(Decoded::Packet { packet, .. }) => Some((packet.packet_type(), version)),
            _ => None,
        })
        .collect();
    for packet_type in PacketType::ALL {
        for version in Version::ALL {
            let exists = packet_type != PacketType::Auth || version.is_5();
            assert_eq!(there.contains(&(packet_type, version)), exists, "{packet_type:?} {version}");
        }
    }
}

#[test]
fn every_rule_is_broken_in_every_version_that_has_it() {
    let broken: BTreeSet<_> = each()
        .filter_map(|(case, version, _)| decode_case(case, version).err().map(|found| (found.text, version)))
        .collect();
    // MQTT 3.1 does not use these bits, and they are not checked there.
    let not_in_3_1 = [
        &rule::FLAGS,
        &rule::PUBREL_FLAGS,
        &rule::SUBSCRIBE_FLAGS,
        &rule::UNSUBSCRIBE_FLAGS,
        &rule::DISCONNECT_FLAGS,
        &rule::CONNECT_RESERVED_FLAG,
        &rule::USER_NAME_MISSING,
        &rule::PASSWORD_MISSING,
        &rule::CONNACK_FLAGS,
        &rule::SESSION_PRESENT_IN_REFUSAL,
    ]
    .map(|rule| rule.text);
    for rule in rule::ALL {
        for version in Version::ALL {
            let applies =
                rule.is_in(version) && !(version == Version::V3_1 && not_in_3_1.contains(&rule.text));
            assert_eq!(broken.contains(&(rule.text, version)), applies, "{} {version}", rule.text);
        }
    }
}

#[test]
fn names_of_rules_and_cases_are_used_once() {
    let mut texts = BTreeSet::new();
    assert!(rule::ALL.iter().all(|rule| texts.insert(rule.text)));
    let mut seen = BTreeSet::new();
    for (case, version, line) in each() {
        assert!(
            seen.insert((version, case.sender, case.is_first, case.bytes)),
            "the same bytes again: {line}"
        );
    }
}

#[test]
fn bytes_may_arrive_in_any_split() {
    for (case, version, line) in each() {
        let whole = decode_case(case, version);
        for split in 0..case.bytes.len() {
            match decode(&case.bytes[..split], case.known_version(version), &case.limits()) {
                Ok(Decoded::Need { total }) => {
                    assert!(total.is_none_or(|total| total > split), "after {split} bytes: {line}");
                }
                // A violation in the first part of the bytes remains a violation, with the same reason.
                Err(early) => assert_eq!(whole, Err(early), "after {split} bytes: {line}"),
                Ok(packet) => panic!("after {split} bytes {packet:?}: {line}"),
            }
        }
        // Bytes after a packet do not change the result.
        let followed = [case.bytes, b"\xff\xff\xff"].concat();
        if whole.is_ok() {
            assert_eq!(decode(&followed, case.known_version(version), &case.limits()), whole, "{line}");
        }
    }
}

/// A packet that is cut, with a Remaining Length that fits, is never waited for and never read past its end.
#[test]
fn a_packet_cut_after_any_byte_is_whole_or_a_violation() {
    for (case, version, line) in each().filter(|(case, ..)| matches!(case.expected, Expected::Packet { .. }))
    {
        let header = 1 + case.bytes[1..].iter().take_while(|&&byte| byte >= 0x80).count() + 1;
        for end in header..case.bytes.len() {
            let mut cut = vec![case.bytes[0]];
            crate::varint::write(end - header, &mut cut);
            cut.extend_from_slice(&case.bytes[header..end]);
            match decode(&cut, case.known_version(version), &case.limits()) {
                Ok(Decoded::Need { .. }) => panic!("waits for more after byte {end}: {line}"),
                Ok(Decoded::Packet { len, .. }) => assert_eq!(len, cut.len(), "{line}"),
                Err(violation) => assert!(violation.reason.is_error(), "{line}"),
            }
        }
    }
}

#[test]
fn packets_are_refused_at_the_first_byte_that_shows_an_error() {
    let after = |bytes: &[u8], version: Option<Version>| {
        let limits = Limits { max_packet_bytes: MAX_PACKET_BYTES, sender: Some(CLIENT) };
        (0..=bytes.len()).find(|&len| decode(&bytes[..len], version, &limits).is_err())
    };
    let v5 = Some(Version::V5);
    assert_eq!(after(b"\x82\xff\xff\xff\x7f", None), Some(1), "not a CONNECT");
    assert_eq!(after(b"\x10\xff\xff\xff\x7f", None), Some(5), "over the limit");
    assert_eq!(after(b"\x10\xff\xff\xff\xff\x01", None), Some(5), "a length of 5 bytes, at the fourth");
    assert_eq!(after(b"\x36\x06", v5), Some(1), "QoS 3");
    assert_eq!(after(b"\x60\x02", v5), Some(1), "flags");
    assert_eq!(after(b"\x00\x02", v5), Some(1), "type 0");
    assert_eq!(after(b"\x20\x02", v5), Some(1), "CONNACK from a client");
    assert_eq!(after(b"\x10\x02", v5), Some(1), "a second CONNECT");
    assert_eq!(after(b"\xf0\x02", Some(Version::V3_1_1)), Some(1), "AUTH before MQTT 5");
    assert_eq!(after(b"\xc0\x05", v5), Some(2), "PINGREQ with a body");
    assert_eq!(
        after(b"\x40\x04", Some(Version::V3_1_1)),
        Some(2),
        "PUBACK with a body that 3.1.1 does not have"
    );
    assert_eq!(after(b"\x30\x80\x80\x80\x01", v5), Some(5), "over the limit");
}
