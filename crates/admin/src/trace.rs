//! The transcript of a trace for an operator: a line for each packet and decision, and a pcap file.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use base::{ConnectionId, ShardId};
use capture::{Conversation, Reading, SEGMENT_BYTES_MAX, Told, header, record};
use net::{Peer, TraceEvent, TraceRecord};
use wire::{Packet, Role, Version};

/// Maximum length of a line, in characters. The rest of a longer one is left out.
const LINE_CHARS_MAX: usize = 4_096;
/// The same for the identifier of a client.
const CLIENT_CHARS_MAX: usize = 256;
/// The part of a line beside its text, as it counts against the limit of all lines.
const LINE_BYTES: usize = 64;

/// A line about a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Milliseconds since 1970.
    pub(crate) unix_ms: u64,
    /// Number of the connection, in the order in which the trace has found them, from 1.
    pub(crate) connection: u64,
    /// The sender of a packet. `None`: the line is about the connection.
    pub(crate) from: Option<Role>,
    pub(crate) text: String,
}

/// All that was recorded, made from the records in their order.
#[derive(Debug)]
pub(crate) struct Book {
    connections: HashMap<(ShardId, ConnectionId), Followed>,
    /// The clients of all connections, those that are closed included.
    clients: Vec<Option<Box<str>>>,
    lines: Vec<Line>,
    left_bytes: usize,
    left_out: u64,
    capture: Vec<u8>,
    /// Hashes of the payloads that carry lines of this book to subscribers.
    carried: HashSet<u64>,
}

/// A connection that the trace follows.
#[derive(Debug)]
struct Followed {
    number: u64,
    version: Option<Version>,
    client: Reading,
    server: Reading,
    conversation: Conversation,
}

impl Book {
    /// A book without lines, for lines of at most this many bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            connections: HashMap::new(),
            clients: Vec::new(),
            lines: Vec::new(),
            left_bytes: bytes_max,
            left_out: 0,
            capture: header(),
            carried: HashSet::new(),
        }
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The identifier of the client of a connection, as far as it is known. The name may come behind the first lines.
    pub(crate) fn client(&self, connection: u64) -> Option<&str> {
        let place = usize::try_from(connection).ok()?.checked_sub(1)?;
        self.clients.get(place)?.as_deref()
    }

    fn name(&mut self, connection: u64, client_id: &str) {
        let place = usize::try_from(connection).ok().and_then(|number| number.checked_sub(1));
        if let Some(client) = place.and_then(|place| self.clients.get_mut(place)) {
            *client = Some(shortened(client_id, CLIENT_CHARS_MAX).into());
        }
    }

    /// Number of lines that had no room. Their packets are in the file.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The pcap file so far.
    pub(crate) fn capture(&self) -> &[u8] {
        &self.capture
    }

    /// A message with this payload carries a line to subscribers, which may be followed themselves. Packets with this payload have
    /// no line from now on, under any topic: otherwise the line about each of them would be carried too, without an end.
    ///
    /// The payload has the time and the text of the line. A client that publishes the same has copied it.
    pub(crate) fn note_carried(&mut self, payload: &[u8]) {
        self.carried.insert(self.carried.hasher().hash_one(payload));
    }

    /// Takes in a record. `address_of` returns the address of a listener.
    pub(crate) fn take(&mut self, taken: TraceRecord, address_of: impl Fn(u16) -> Option<SocketAddr>) {
        let TraceRecord { unix_ms, shard, connection, event } = taken;
        let key = (shard, connection);
        match event {
            TraceEvent::Begun { peer, listener, version, is_from_start } => {
                self.begin(unix_ms, key, (peer, address_of(listener)), version, is_from_start);
            }
            TraceEvent::Named(client_id) => {
                if let Some(Followed { number, .. }) = self.connections.get(&key) {
                    self.name(*number, &client_id);
                }
            }
            TraceEvent::Bytes(sender, bytes) => self.take_bytes(unix_ms, key, sender, &bytes),
            TraceEvent::Decision(text) => self.note(unix_ms, key, text),
            TraceEvent::Closed => {
                self.note(unix_ms, key, "closed".to_owned());
                if let Some(mut followed) = self.connections.remove(&key) {
                    let end = followed.conversation.end(Role::Server, false);
                    self.capture.extend(record(Duration::from_millis(unix_ms), &end));
                }
            }
        }
    }

    fn begin(
        &mut self,
        unix_ms: u64,
        key: (ShardId, ConnectionId),
        (peer, listener): (Peer, Option<SocketAddr>),
        version: Option<Version>,
        is_from_start: bool,
    ) {
        self.clients.push(None);
        let number = self.clients.len() as u64;
        // Processes have no address: in the file they have one that tells them apart.
        let port = u16::try_from(number % 65_535 + 1).unwrap_or(1);
        let from = match peer {
            Peer::Inet(address) => address,
            _ => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        };
        let to = listener.unwrap_or_else(|| SocketAddr::from((Ipv4Addr::LOCALHOST, 1883)));
        let mut conversation = Conversation::new(from, to);
        if is_from_start {
            for packet in conversation.beginning() {
                self.capture.extend(record(Duration::from_millis(unix_ms), &packet));
            }
        }
        let followed = Followed {
            number,
            version,
            client: Reading::of(Role::Client),
            server: Reading::of(Role::Server),
            conversation,
        };
        self.connections.insert(key, followed);
        let begun = if is_from_start { "opened by" } else { "followed from here on, a connection of" };
        self.note(unix_ms, key, format!("{begun} {peer}"));
    }

    fn take_bytes(&mut self, unix_ms: u64, key: (ShardId, ConnectionId), sender: Role, bytes: &[u8]) {
        let Some(followed) = self.connections.get_mut(&key) else { return };
        for piece in bytes.chunks(SEGMENT_BYTES_MAX) {
            let segment = followed.conversation.segment(sender, piece);
            self.capture.extend(record(Duration::from_millis(unix_ms), &segment));
        }
        let carried = &self.carried;
        let is_carrier = |payload: &[u8]| carried.contains(&carried.hasher().hash_one(payload));
        let Followed { number, version, client, server, .. } = followed;
        // Without a CONNECT that was understood, nobody knows how to read the answer.
        let reading = match (sender, *version) {
            (Role::Client, _) => client,
            (Role::Server, Some(_)) => server,
            (Role::Server, None) => return,
        };
        let (connection, mut texts, mut said) = (*number, Vec::new(), None);
        reading.take(bytes, version, |told| {
            if let Told::Packet(Packet::Connect(connect)) = &told
                && !connect.client_id.as_str().is_empty()
            {
                said = Some(connect.client_id.as_str().to_owned());
            }
            if matches!(&told, Told::Packet(Packet::Publish(publish)) if is_carrier(publish.payload)) {
                return;
            }
            texts.push(shortened(&told.to_string(), LINE_CHARS_MAX));
        });
        // A client that is refused has no other name.
        if let Some(client_id) = said {
            self.name(connection, &client_id);
        }
        texts.into_iter().for_each(|text| self.write(Line { unix_ms, connection, from: Some(sender), text }));
    }

    fn note(&mut self, unix_ms: u64, key: (ShardId, ConnectionId), text: String) {
        let Some(followed) = self.connections.get(&key) else { return };
        let connection = followed.number;
        self.write(Line { unix_ms, connection, from: None, text });
    }

    fn write(&mut self, line: Line) {
        match self.left_bytes.checked_sub(LINE_BYTES + line.text.len()) {
            Some(left) => {
                self.left_bytes = left;
                self.lines.push(line);
            }
            None => self.left_out += 1,
        }
    }
}

fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{} … ({} B)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECT: &[u8] = b"\x10\x0e\0\x04MQTT\x04\x02\0\x3c\0\x02me";
    const KEY: ConnectionId = ConnectionId { slot: 3, generation: 1 };

    fn book(bytes_max: usize, events: Vec<TraceEvent>) -> Book {
        let mut book = Book::new(bytes_max);
        for event in events {
            let shard = ShardId::new(0);
            book.take(TraceRecord { unix_ms: 1_500, shard, connection: KEY, event }, |_| None);
        }
        book
    }

    fn begun(version: Option<Version>) -> TraceEvent {
        let peer = Peer::Inet(([192, 0, 2, 7], 40_000).into());
        TraceEvent::Begun { peer, listener: 0, version, is_from_start: version.is_none() }
    }

    fn bytes(sender: Role, bytes: &[u8]) -> TraceEvent {
        TraceEvent::Bytes(sender, bytes.into())
    }

    #[test]
    fn each_packet_and_decision_has_a_line_with_its_client() {
        let book = book(
            10_000,
            vec![
                begun(None),
                bytes(Role::Client, CONNECT),
                bytes(Role::Server, b"\x20\x02\0\0"),
                bytes(Role::Client, b"\xc0"),
                bytes(Role::Client, b"\0\xe0\0"),
                TraceEvent::Decision("disconnected".to_owned()),
                TraceEvent::Closed,
            ],
        );
        let told: Vec<_> = book.lines().iter().map(|line| (line.from, line.text.as_str())).collect();
        assert_eq!(told[0], (None, "opened by 192.0.2.7:40000"));
        assert!(told[1].1.starts_with("CONNECT") && told[2].1.starts_with("CONNACK"), "{told:?}");
        let (client, none) = (Some(Role::Client), None);
        let last = [
            (client, "PINGREQ"),
            (client, "DISCONNECT Normal disconnection"),
            (none, "disconnected"),
            (none, "closed"),
        ];
        assert_eq!(told[3..], last);
        assert!(book.connections.is_empty());
        assert_eq!((book.client(1), book.client(2), book.client(0)), (Some("me"), None, None));
        // Header, two records of the beginning, four pieces and the end, each with 16 + 20 + 20 bytes.
        assert_eq!(book.capture().len(), 24 + 7 * 56 + CONNECT.len() + 4 + 4);
    }

    #[test]
    fn packets_of_a_client_that_was_connected_before_are_read_in_its_version() {
        let publish = b"\x30\x05\0\x01t\0x";
        let book = book(10_000, vec![begun(Some(Version::V5)), bytes(Role::Client, publish)]);
        assert_eq!(book.lines()[0].text, "followed from here on, a connection of 192.0.2.7:40000");
        assert!(book.lines()[1].text.starts_with("PUBLISH q0 \"t\""), "{}", book.lines()[1].text);
    }

    #[test]
    fn packets_that_carry_a_line_have_none() {
        let mut book = book(10_000, vec![begun(Some(Version::V5))]);
        book.note_carried(b"line");
        let packets =
            [&b"\x30\x08\0\x01t\0line"[..], b"\x30\x08\0\x01t\0lime", b"\x30\x0b\0\0\x03\x23\0\x01line"];
        for event in [bytes(Role::Server, &packets.concat()), bytes(Role::Client, packets[0])] {
            let shard = ShardId::new(0);
            book.take(TraceRecord { unix_ms: 1_500, shard, connection: KEY, event }, |_| None);
        }
        let told: Vec<_> = book.lines()[1..].iter().map(|line| line.text.as_str()).collect();
        assert!(matches!(told[..], [only] if only.contains("lime")), "{told:?}");
    }

    #[test]
    fn lines_without_room_are_counted_and_their_bytes_are_in_the_file() {
        let pings = b"\xc0\0".repeat(1_000);
        let book = book(1_000, vec![begun(Some(Version::V5)), bytes(Role::Client, &pings)]);
        assert!(book.lines().len() < 15);
        assert_eq!(book.left_out() + book.lines().len() as u64, 1_001);
        assert!(book.capture().len() > 2_000);
    }
}
