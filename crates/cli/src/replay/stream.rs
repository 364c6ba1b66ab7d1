//! Puts the bytes of each connection together, in the order of the recording.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use wire::Role;

use super::pcap::{Pcap, PcapError, Segment};

/// Maximum number of bytes of a connection that wait for an earlier segment. Captures of `tap` have none.
const HELD_BYTES_MAX: usize = 1 << 20;

/// One event of a recorded connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Happening {
    /// Number of the connection, in the order of their beginnings, from 1.
    pub(crate) connection: u64,
    /// Time since 1970.
    pub(crate) time: Duration,
    pub(crate) what: Heard,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Heard {
    Open,
    Bytes(Role, Vec<u8>),
    End(Role),
    /// Bytes are missing in the file. The rest of the connection cannot be understood.
    Gap,
}

/// Reads events. Memory: the connections that are open at the same time, with at most [`HELD_BYTES_MAX`] each.
#[derive(Debug)]
pub(crate) struct Streams<R> {
    pcap: Pcap<R>,
    /// Open connections, by the addresses of client and server.
    open: HashMap<(SocketAddr, SocketAddr), Tracked>,
    count: u64,
    ready: VecDeque<Happening>,
}

#[derive(Debug)]
struct Tracked {
    connection: u64,
    first_sequence: u32,
    client: Direction,
    server: Direction,
}

#[derive(Debug, Default)]
struct Direction {
    /// Sequence number of the next byte, once it is known.
    next: Option<u32>,
    has_bytes: bool,
    has_ended: bool,
    is_lost: bool,
    /// Segments behind a gap, by their distance from the first gap.
    held: BTreeMap<u32, Segment>,
    held_bytes: usize,
}

impl<R: Read> Streams<R> {
    pub(crate) fn new(pcap: Pcap<R>) -> Self {
        Self { pcap, open: HashMap::new(), count: 0, ready: VecDeque::new() }
    }

    /// Number of bytes of the file that were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.pcap.bytes()
    }

    /// Returns the next event.
    pub(crate) fn next(&mut self) -> Result<Option<Happening>, PcapError> {
        while self.ready.is_empty() {
            match self.pcap.next()? {
                Some(segment) => self.take(segment),
                None => return Ok(None),
            }
        }
        Ok(self.ready.pop_front())
    }

    /// Reads the rest of the file without looking into its records.
    pub(crate) fn skim(&mut self) -> Result<(), PcapError> {
        self.pcap.skim()
    }

    fn take(&mut self, segment: Segment) {
        let (there, back) = ((segment.from, segment.to), (segment.to, segment.from));
        let begins = segment.flags.is_syn() && !segment.flags.is_answer();
        // A port may be used again after a connection whose end is not in the file.
        let is_repeated = |old: &Tracked| old.first_sequence == segment.sequence && !old.is_in_use();
        let is_known = self.open.get(&there).is_some_and(is_repeated);
        if begins && !is_known {
            self.begin(&segment);
        } else if !self.open.contains_key(&there) && !self.open.contains_key(&back) {
            // Captures without SYN begin with the first bytes of the client.
            if segment.bytes.is_empty() {
                return;
            }
            self.begin(&segment);
        }
        let (key, role) =
            if self.open.contains_key(&there) { (there, Role::Client) } else { (back, Role::Server) };
        let Some(tracked) = self.open.get_mut(&key) else { return };
        let direction = if role == Role::Client { &mut tracked.client } else { &mut tracked.server };
        let connection = tracked.connection;
        let tell = |time, what| self.ready.push_back(Happening { connection, time, what });
        direction.take(role, segment, tell);
        if tracked.client.has_ended && tracked.server.has_ended {
            self.open.remove(&key);
        }
    }

    fn begin(&mut self, segment: &Segment) {
        self.count += 1;
        let connection = self.count;
        let (client, server) = (Direction::default(), Direction::default());
        let tracked = Tracked { connection, first_sequence: segment.sequence, client, server };
        self.open.insert((segment.from, segment.to), tracked);
        self.ready.push_back(Happening { connection, time: segment.time, what: Heard::Open });
    }
}

impl Tracked {
    /// Whether more than the beginning of the connection was seen.
    fn is_in_use(&self) -> bool {
        let has_begun = |direction: &Direction| direction.has_bytes || direction.has_ended;
        has_begun(&self.client) || has_begun(&self.server)
    }
}

impl Direction {
    /// Passes the bytes that follow the known ones to `tell`, and holds back bytes behind a gap.
    fn take(&mut self, role: Role, segment: Segment, mut tell: impl FnMut(Duration, Heard)) {
        if self.has_ended || self.is_lost {
            return;
        }
        if segment.flags.is_syn() {
            self.next = Some(segment.sequence.wrapping_add(1));
            return;
        }
        let next = *self.next.get_or_insert(segment.sequence);
        let distance = segment.sequence.wrapping_sub(next);
        if !segment.flags.is_reset() && distance > 0 && distance < u32::MAX / 2 {
            self.held_bytes += segment.bytes.len();
            let time = segment.time;
            self.held.insert(segment.sequence, segment);
            if self.held_bytes > HELD_BYTES_MAX {
                self.is_lost = true;
                self.held.clear();
                tell(time, Heard::Gap);
            }
            return;
        }
        self.pass(role, segment, &mut tell);
        // The distance from the next byte decides, because sequence numbers begin again at 0.
        while let Some(sequence) = self.next_held() {
            let Some(segment) = self.held.remove(&sequence) else { break };
            self.held_bytes -= segment.bytes.len();
            self.pass(role, segment, &mut tell);
        }
    }

    /// The sequence number of a held segment that continues the known bytes.
    fn next_held(&self) -> Option<u32> {
        let next = self.next?;
        let continues =
            |sequence: &u32| sequence.wrapping_sub(next) == 0 || next.wrapping_sub(*sequence) < u32::MAX / 2;
        self.held.keys().copied().find(continues)
    }

    /// Passes the bytes of a segment that begins at a known byte, or at the next one.
    fn pass(&mut self, role: Role, mut segment: Segment, tell: &mut impl FnMut(Duration, Heard)) {
        let next = self.next.unwrap_or(segment.sequence);
        // A repeated segment has bytes that were passed already.
        let known = usize::try_from(next.wrapping_sub(segment.sequence)).unwrap_or(usize::MAX);
        let end = segment.sequence.wrapping_add(u32::try_from(segment.bytes.len()).unwrap_or_default());
        let is_last = segment.flags.is_reset() || segment.flags.is_fin() && known <= segment.bytes.len();
        if known < segment.bytes.len() {
            let bytes = segment.bytes.split_off(known);
            (self.next, self.has_bytes) = (Some(end), true);
            tell(segment.time, Heard::Bytes(role, bytes));
        }
        if is_last {
            self.has_ended = true;
            tell(segment.time, Heard::End(role));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::pcap::Flags;

    const SYN: u8 = 0x02;
    const FIN: u8 = 0x11;
    const ACK: u8 = 0x10;

    fn segment(sequence: u32, flags: u8, bytes: &[u8]) -> Segment {
        let (from, to) = (SocketAddr::from(([10, 0, 0, 1], 40_000)), SocketAddr::from(([10, 0, 0, 2], 1883)));
        Segment { time: Duration::ZERO, from, to, sequence, flags: Flags::of(flags), bytes: bytes.to_vec() }
    }

    fn back(segment: Segment) -> Segment {
        Segment { from: segment.to, to: segment.from, ..segment }
    }

    fn heard(segments: Vec<Segment>) -> Vec<(u64, Heard)> {
        let file = [&0xa1b2_c3d4_u32.to_le_bytes()[..], &[0; 16], &101_u32.to_le_bytes()].concat();
        let mut streams = Streams::new(Pcap::begin(&file[..]).expect("a head"));
        segments.into_iter().for_each(|segment| streams.take(segment));
        streams.ready.into_iter().map(|happening| (happening.connection, happening.what)).collect()
    }

    #[test]
    fn segments_out_of_order_and_repeated_ones_are_put_right() {
        let heard = heard(vec![
            segment(u32::MAX - 1, SYN, b""),
            segment(1, ACK, b"cd"),
            segment(u32::MAX, ACK, b"ab"),
            segment(0, ACK, b"bcd"),
            segment(3, FIN, b"e"),
            segment(3, FIN, b"e"),
        ]);
        let bytes = |bytes: &[u8]| (1, Heard::Bytes(Role::Client, bytes.to_vec()));
        let end = (1, Heard::End(Role::Client));
        assert_eq!(heard, [(1, Heard::Open), bytes(b"ab"), bytes(b"cd"), bytes(b"e"), end]);
    }

    #[test]
    fn a_port_that_is_used_again_begins_another_connection() {
        let heard = heard(vec![
            segment(9, SYN, b""),
            segment(10, FIN, b""),
            back(segment(5, FIN, b"x")),
            back(segment(6, ACK, b"")),
            segment(70, SYN, b""),
            segment(71, ACK, b"y"),
        ]);
        assert_eq!(heard.len(), 6);
        assert_eq!(heard[2], (1, Heard::Bytes(Role::Server, b"x".to_vec())));
        assert_eq!(heard[4..], [(2, Heard::Open), (2, Heard::Bytes(Role::Client, b"y".to_vec()))]);
    }

    /// Captures of a tap begin each connection with the same number.
    #[test]
    fn a_port_is_used_again_although_its_last_end_is_missing() {
        let of = |bytes: &[u8]| [segment(9, SYN, b""), segment(9, SYN, b""), segment(10, ACK, bytes)];
        let heard = heard([of(b"x"), of(b"y")].concat());
        let bytes = |connection: u64, bytes: &[u8]| (connection, Heard::Bytes(Role::Client, bytes.to_vec()));
        assert_eq!(heard, [(1, Heard::Open), bytes(1, b"x"), (2, Heard::Open), bytes(2, b"y")]);
    }

    #[test]
    fn a_gap_is_told_when_too_much_waits_behind_it() {
        let mut segments = vec![segment(9, SYN, b"")];
        segments.extend((0..18).map(|number| segment(100 + number * 65_000, ACK, &[0; 65_000])));
        assert_eq!(heard(segments), [(1, Heard::Open), (1, Heard::Gap)]);
    }
}
