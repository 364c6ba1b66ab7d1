//! The bytes of a stored session.
//!
//! ```text
//! HEADER, then groups: length (8) | CRC-32 of the records (4) | CRC-32 of these 12 bytes (4) | records
//! ```
//!
//! A group has the changes of one turn, and takes effect completely or not at all. Numbers are big-endian. The last group
//! is incomplete if the machine failed while it was written; its packets have not left then, and the group is dropped. A
//! file system may leave zeros in place of its missing bytes. Any other difference is damage.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use base::{Message, Parts};
use session::Waiting;
use session::client::{Stored, StoredMessage};
use wire::{PacketId, Qos};

/// First bytes of a store, with the version of the format.
pub(super) const HEADER: &[u8] = b"pondhawk session 1\n";

/// Length of the records of a group, and two checksums.
const GROUP_HEADER_BYTES: usize = 16;

const IDENTITY: u8 = 1;
const MESSAGE: u8 = 2;
const SENT: u8 = 3;
const RECEIVED: u8 = 4;
const DONE: u8 = 5;
const UNRELEASED: u8 = 6;
const RELEASED: u8 = 7;

/// Name of the session, and its state at the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Identity {
    pub(super) client_id: Box<str>,
    pub(super) has_session: bool,
    pub(super) is_inherited: bool,
}

/// Records of one group.
#[derive(Debug, Default)]
pub(super) struct Group(Vec<u8>);

impl Group {
    pub(super) fn identity(&mut self, identity: &Identity) {
        let flags = u8::from(identity.has_session) | u8::from(identity.is_inherited) << 1;
        self.0.extend([IDENTITY, flags]);
        self.bytes(identity.client_id.as_bytes());
    }

    /// A message that the application has published.
    pub(super) fn message(&mut self, tag: u64, message: &Message) {
        let parts = message.parts();
        self.0.push(MESSAGE);
        self.0.extend(tag.to_be_bytes());
        let expires = parts.expires_unix_ms;
        let flags = parts.qos.level() | u8::from(parts.retain) << 2 | u8::from(expires.is_some()) << 3;
        self.0.push(flags);
        self.0.extend(expires.unwrap_or_default().to_be_bytes());
        self.0.extend(parts.topic_bytes.to_be_bytes());
        self.0.extend(parts.properties_bytes.to_be_bytes());
        self.bytes(parts.bytes);
    }

    /// A message has got an identifier, and may leave.
    pub(super) fn sent(&mut self, tag: u64, packet_id: PacketId) {
        self.pair(SENT, tag, packet_id);
    }

    /// PUBREC has come for a message.
    pub(super) fn received(&mut self, tag: u64, packet_id: PacketId) {
        self.pair(RECEIVED, tag, packet_id);
    }

    /// Nothing more will be heard of a message.
    pub(super) fn done(&mut self, tag: u64) {
        self.0.push(DONE);
        self.0.extend(tag.to_be_bytes());
    }

    /// A message of QoS 2 from the server is accepted.
    pub(super) fn unreleased(&mut self, packet_id: PacketId) {
        self.0.push(UNRELEASED);
        self.0.extend(packet_id.value().to_be_bytes());
    }

    /// PUBREL has come for a message from the server.
    pub(super) fn released(&mut self, packet_id: PacketId) {
        self.0.push(RELEASED);
        self.0.extend(packet_id.value().to_be_bytes());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends the group to `into`.
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        let start = into.len();
        into.extend((self.0.len() as u64).to_be_bytes());
        into.extend(crc32(&self.0).to_be_bytes());
        into.extend(crc32(&into[start..]).to_be_bytes());
        into.extend(&self.0);
    }

    fn pair(&mut self, kind: u8, tag: u64, packet_id: PacketId) {
        self.0.push(kind);
        self.0.extend(tag.to_be_bytes());
        self.0.extend(packet_id.value().to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(length(bytes.len()).to_be_bytes());
        self.0.extend(bytes);
    }
}

/// Length of a client identifier, or of a message.
fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("each fits into a packet")
}

/// A session that was read.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) identity: Identity,
    messages: BTreeMap<u64, Entry>,
    unreleased: BTreeSet<PacketId>,
    /// Number of RECEIVED records so far, which gives their order.
    received: u64,
}

#[derive(Debug, Default)]
struct Entry {
    message: Option<Arc<Message>>,
    packet_id: Option<PacketId>,
    received: Option<u64>,
}

impl Contents {
    /// Reads the bytes of a store. Returns `None` if nothing was stored.
    pub(super) fn read(bytes: &[u8]) -> io::Result<Option<Self>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let Some(mut rest) = bytes.strip_prefix(HEADER) else {
            return Err(damaged("its first bytes are not those of a session"));
        };
        let mut contents = Self::default();
        while let Some((records, after)) = next_group(rest)? {
            let mut records = Records(records);
            while !records.0.is_empty() {
                let applied = contents.apply(&mut records);
                applied.ok_or_else(|| damaged("a record is not as it was written"))?;
            }
            rest = after;
        }
        Ok(Some(contents))
    }

    fn apply(&mut self, records: &mut Records<'_>) -> Option<()> {
        match records.byte()? {
            IDENTITY => {
                let flags = records.byte()?;
                let client_id = std::str::from_utf8(records.bytes()?).ok()?.into();
                let (has_session, is_inherited) = (flags & 1 != 0, flags & 2 != 0);
                self.identity = Identity { client_id, has_session, is_inherited };
            }
            MESSAGE => {
                let (tag, message) = (records.long()?, records.message()?);
                self.messages.insert(tag, Entry { message: Some(Arc::new(message)), ..Entry::default() });
            }
            SENT => {
                let (tag, packet_id) = (records.long()?, records.packet_id()?);
                self.messages.get_mut(&tag)?.packet_id = Some(packet_id);
            }
            RECEIVED => {
                let (tag, packet_id) = (records.long()?, records.packet_id()?);
                self.received += 1;
                let received = Some(self.received);
                self.messages.insert(tag, Entry { message: None, packet_id: Some(packet_id), received });
            }
            DONE => drop(self.messages.remove(&records.long()?)?),
            UNRELEASED => {
                self.unreleased.insert(records.packet_id()?);
            }
            RELEASED => {
                self.unreleased.remove(&records.packet_id()?);
            }
            _ => return None,
        }
        Some(())
    }

    /// The session for the state machine. Messages are in the order in which they were published.
    pub(super) fn into_stored(self) -> Stored<u64> {
        let Identity { client_id, mut has_session, mut is_inherited } = self.identity;
        if !has_session && !client_id.is_empty() {
            // The program may have ended before it received CONNACK, and the server may have made a session.
            (has_session, is_inherited) = (true, true);
        }
        let mut released = Vec::new();
        let (mut under_way, mut waiting) = (Vec::new(), Vec::new());
        for (tag, Entry { message, packet_id, received }) in self.messages {
            match (packet_id, received, message) {
                (Some(packet_id), Some(order), _) => {
                    released.push((order, StoredMessage { packet_id, message: None, tag }));
                }
                (Some(packet_id), None, message) => under_way.push(StoredMessage { packet_id, message, tag }),
                (None, _, Some(message)) => {
                    let (qos, retain) = (message.qos(), message.retain());
                    waiting.push(Waiting { message, qos, retain, identifiers: Default::default(), tag });
                }
                (None, _, None) => {}
            }
        }
        // PUBRELs leave in the order of PUBRECs [MQTT-4.6.0-3].
        released.sort_unstable_by_key(|(order, _)| *order);
        let under_way = released.into_iter().map(|(_, stored)| stored).chain(under_way).collect();
        let unreleased = self.unreleased.into_iter().collect();
        Stored { client_id, has_session, is_inherited, under_way, waiting, unreleased }
    }
}

/// The records of the next group, and the bytes behind it; `None` at the end, or before an incomplete last group.
fn next_group(bytes: &[u8]) -> io::Result<Option<(&[u8], &[u8])>> {
    let Some((header, behind)) = bytes.split_at_checked(GROUP_HEADER_BYTES) else { return Ok(None) };
    let (sums, mut own_sum) = (&header[..GROUP_HEADER_BYTES - 4], Records(&header[GROUP_HEADER_BYTES - 4..]));
    if own_sum.int() != Some(crc32(sums)) {
        return incomplete_or_damaged(behind);
    }
    let mut sums = Records(sums);
    let (Some(length), checksum) = (sums.long(), sums.int()) else { return Ok(None) };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let Some((records, rest)) = behind.split_at_checked(length) else { return Ok(None) };
    if checksum == Some(crc32(records)) { Ok(Some((records, rest))) } else { incomplete_or_damaged(rest) }
}

/// A checksum is wrong before these bytes. With anything but zeros in them, other groups were written behind it.
fn incomplete_or_damaged<T>(behind: &[u8]) -> io::Result<Option<T>> {
    let is_last = behind.iter().all(|byte| *byte == 0);
    if is_last { Ok(None) } else { Err(damaged("a checksum is wrong")) }
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the stored session is damaged: {why}"))
}

/// Bytes of records that are still to be read.
struct Records<'a>(&'a [u8]);

impl<'a> Records<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self) -> Option<u8> {
        self.array().map(|[byte]| byte)
    }

    fn int(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn packet_id(&mut self) -> Option<PacketId> {
        self.array().map(u16::from_be_bytes).and_then(PacketId::new)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.int()?;
        let (bytes, rest) = self.0.split_at_checked(length as usize)?;
        self.0 = rest;
        Some(bytes)
    }

    fn message(&mut self) -> Option<Message> {
        let flags = self.byte()?;
        let expires = self.long()?;
        let (topic_bytes, properties_bytes) = (self.int()?, self.int()?);
        let bytes = self.bytes()?;
        let qos = match flags & 3 {
            1 => Qos::AtLeastOnce,
            2 => Qos::ExactlyOnce,
            _ => return None,
        };
        let (retain, expires_unix_ms) = (flags & 4 != 0, (flags & 8 != 0).then_some(expires));
        let publisher = None;
        let parts = Parts { bytes, topic_bytes, properties_bytes, publisher, qos, retain, expires_unix_ms };
        Message::from_parts(&parts).ok()
    }
}

/// CRC-32 of IEEE 802.3.
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0_u32;
        while index < 256 {
            let mut remainder = index;
            let mut bit = 0;
            while bit < 8 {
                let is_odd = remainder & 1 == 1;
                remainder = (remainder >> 1) ^ if is_odd { 0xedb8_8320 } else { 0 };
                bit += 1;
            }
            table[index as usize] = remainder;
            index += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |crc, byte| (crc >> 8) ^ TABLE[usize::from(crc.to_le_bytes()[0] ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{Content, Now};
    use topic::topic;
    use wire::MessageProperties;

    fn id(number: u16) -> PacketId {
        PacketId::new(number).expect("not 0")
    }

    fn message(payload: &[u8]) -> Message {
        let properties =
            &MessageProperties { message_expiry_interval_secs: Some(60), ..MessageProperties::EMPTY };
        let content =
            Content { topic: topic!("a/b"), properties, payload, qos: Qos::ExactlyOnce, retain: true };
        Message::of_content(&content, None, Now { monotonic_ms: 0, unix_ms: 1_000 })
    }

    /// A store with three groups, and the lengths at which each begins and ends.
    fn written() -> (Vec<u8>, Vec<usize>) {
        let mut bytes = HEADER.to_vec();
        let mut ends = vec![bytes.len()];
        let mut group = Group::default();
        group.identity(&Identity { client_id: "me".into(), has_session: true, is_inherited: false });
        (1..=4).for_each(|tag| group.message(tag, &message(&[b'x'; 300])));
        group.write(&mut bytes);
        ends.push(bytes.len());
        let mut group = Group::default();
        (1..=3_u16).for_each(|number| group.sent(number.into(), id(number)));
        group.received(2, id(2));
        group.unreleased(id(9));
        group.unreleased(id(10));
        group.write(&mut bytes);
        ends.push(bytes.len());
        let mut group = Group::default();
        group.done(1);
        group.received(3, id(3));
        group.released(id(10));
        group.write(&mut bytes);
        ends.push(bytes.len());
        (bytes, ends)
    }

    fn read(bytes: &[u8]) -> Stored<u64> {
        Contents::read(bytes).expect("it is whole").expect("it is not empty").into_stored()
    }

    #[test]
    fn a_session_is_read_as_it_was_written() {
        let stored = read(&written().0);
        assert_eq!((&*stored.client_id, stored.has_session, stored.is_inherited), ("me", true, false));
        let under_way: Vec<_> = stored.under_way.iter().map(|sent| (sent.packet_id, sent.tag)).collect();
        assert_eq!(under_way, [(id(2), 2), (id(3), 3)]);
        assert!(stored.under_way.iter().all(|sent| sent.message.is_none()));
        let [waiting] = &stored.waiting[..] else { panic!("{stored:?}") };
        assert_eq!(waiting.message.parts(), message(&[b'x'; 300]).parts());
        assert_eq!(stored.unreleased, [id(9)]);
    }

    /// However many bytes a failing machine has written, the groups before the last one count.
    #[test]
    fn an_incomplete_last_group_is_dropped() {
        let (bytes, ends) = written();
        for length in ends[0]..=bytes.len() {
            let whole = ends.iter().rfind(|end| **end <= length).expect("the header is there");
            let (cut, kept) = (read(&bytes[..length]), read(&bytes[..*whole]));
            assert_eq!(format!("{cut:?}"), format!("{kept:?}"), "of {length} bytes");
            let next = ends.iter().find(|end| **end > length).copied().unwrap_or(length);
            let extended = [&bytes[..length], &vec![0; next - length]].concat();
            // Zeros may be the bytes that were written.
            let kept = if extended == bytes[..next] { read(&bytes[..next]) } else { kept };
            let extended = read(&extended);
            assert_eq!(format!("{extended:?}"), format!("{kept:?}"), "zeros behind {length} bytes");
        }
    }

    #[test]
    fn a_damaged_group_before_the_last_one_is_an_error() {
        let (bytes, ends) = written();
        for place in 0..ends[2] {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x10;
            assert!(Contents::read(&damaged).is_err(), "byte {place}");
        }
    }
}
