//! Reads a pcap file: its records, and the TCP segments in them.
//!
//! The file is that of `tap`, or one of tcpdump. It is read from its beginning to its end, one record at a time.

use std::fmt;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// First four bytes of a file with times in microseconds, and in nanoseconds.
const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
/// First four bytes of the newer format pcapng.
const MAGIC_PCAPNG: u32 = 0x0a0d_0d0a;
const FILE_HEAD_BYTES: usize = 24;
const RECORD_HEAD_BYTES: usize = 16;

/// Maximum size of a record, as in tcpdump. A larger one is damage.
const RECORD_BYTES_MAX: usize = 1 << 18;

/// Protocol numbers in IP headers: TCP, and the IPv6 extensions that only have options.
const TCP: u8 = 6;
const EXTENSIONS: [u8; 3] = [0, 43, 60];

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Ethernet frames with a VLAN tag have four more bytes.
const ETHERTYPE_VLAN: [u8; 2] = [0x81, 0x00];

/// The bytes in front of the IP header, by the link type of the file.
#[derive(Debug, Clone, Copy)]
enum Link {
    /// LINKTYPE_RAW, LINKTYPE_IPV4 and LINKTYPE_IPV6: there are none.
    Raw,
    /// LINKTYPE_NULL and LINKTYPE_LOOP: four bytes with the address family.
    Loopback,
    Ethernet,
    /// LINKTYPE_LINUX_SLL: the interface `any` of Linux.
    Cooked,
    /// LINKTYPE_LINUX_SLL2: the interface `any` of newer versions of tcpdump.
    Cooked2,
}

impl Link {
    fn of(number: u32) -> Option<Self> {
        // The upper bits are about checksums.
        match number & 0xffff {
            0 | 108 => Some(Self::Loopback),
            1 => Some(Self::Ethernet),
            12 | 101 | 228 | 229 => Some(Self::Raw),
            113 => Some(Self::Cooked),
            276 => Some(Self::Cooked2),
            _ => None,
        }
    }

    /// The IP packet in a record. `None` if the record has no IP packet.
    fn ip(self, record: &[u8]) -> Option<&[u8]> {
        let is_ip = |ethertype: &[u8]| ethertype == ETHERTYPE_IPV4 || ethertype == ETHERTYPE_IPV6;
        match self {
            Self::Raw => Some(record),
            Self::Loopback => record.get(4..),
            Self::Ethernet => match record.get(12..14)? {
                ethertype if is_ip(ethertype) => record.get(14..),
                ethertype if ethertype == ETHERTYPE_VLAN && is_ip(record.get(16..18)?) => record.get(18..),
                _ => None,
            },
            Self::Cooked => record.get(14..16).filter(|ethertype| is_ip(ethertype)).and(record.get(16..)),
            Self::Cooked2 => record.get(..2).filter(|ethertype| is_ip(ethertype)).and(record.get(20..)),
        }
    }
}

/// A TCP segment, and the time of its record since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) time: Duration,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) sequence: u32,
    pub(crate) flags: Flags,
    pub(crate) bytes: Vec<u8>,
}

/// Flags of a segment (RFC 9293, section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    #[cfg(test)]
    pub(crate) fn of(bits: u8) -> Self {
        Self(bits)
    }

    pub(crate) fn is_fin(self) -> bool {
        self.0 & 0x01 != 0
    }

    pub(crate) fn is_syn(self) -> bool {
        self.0 & 0x02 != 0
    }

    pub(crate) fn is_reset(self) -> bool {
        self.0 & 0x04 != 0
    }

    pub(crate) fn is_answer(self) -> bool {
        self.0 & 0x10 != 0
    }
}

/// The reason why a file cannot be read.
#[derive(Debug)]
pub(crate) enum PcapError {
    Io(io::Error),
    NoCapture,
    Pcapng,
    /// The number of the link type.
    UnknownLink(u32),
    /// The number of bytes in front of the incomplete record.
    CutOff(u64),
    /// The number of bytes in front of the record with an impossible length.
    Damaged(u64),
}

impl fmt::Display for PcapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NoCapture => f.write_str("this is not a pcap file"),
            Self::Pcapng => f.write_str("this is a pcapng file, and a pcap file is needed"),
            Self::UnknownLink(number) => write!(f, "the link type {number} is not supported"),
            Self::CutOff(at) => {
                write!(f, "the file is cut off: its last record, at byte {at}, is incomplete")
            }
            Self::Damaged(at) => {
                write!(f, "the file is damaged: the record at byte {at} has an impossible length")
            }
        }
    }
}

/// Reads the records of a file. Memory: one record.
#[derive(Debug)]
pub(crate) struct Pcap<R> {
    from: R,
    is_big_endian: bool,
    has_nanos: bool,
    link: Link,
    record: Vec<u8>,
    /// Number of bytes of the file that were read.
    bytes: u64,
}

impl<R: Read> Pcap<R> {
    /// Reads the head of the file.
    pub(crate) fn begin(mut from: R) -> Result<Self, PcapError> {
        let mut head = [0; FILE_HEAD_BYTES];
        let count = fill(&mut from, &mut head).map_err(PcapError::Io)?;
        let magic = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let (is_big_endian, has_nanos) = match magic {
            MAGIC_MICROS => (false, false),
            MAGIC_NANOS => (false, true),
            MAGIC_PCAPNG => return Err(PcapError::Pcapng),
            other if other.swap_bytes() == MAGIC_MICROS => (true, false),
            other if other.swap_bytes() == MAGIC_NANOS => (true, true),
            _ => return Err(PcapError::NoCapture),
        };
        if count < head.len() {
            return Err(PcapError::CutOff(0));
        }
        let number = number(is_big_endian, &head, 20);
        let link = Link::of(number).ok_or(PcapError::UnknownLink(number))?;
        let bytes = FILE_HEAD_BYTES as u64;
        Ok(Self { from, is_big_endian, has_nanos, link, record: Vec::new(), bytes })
    }

    /// Number of bytes of the file that were read.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the next TCP segment. Records without one are passed over.
    pub(crate) fn next(&mut self) -> Result<Option<Segment>, PcapError> {
        while let Some(time) = self.next_record()? {
            if let Some(segment) = self.link.ip(&self.record).and_then(|ip| segment(time, ip)) {
                return Ok(Some(segment));
            }
        }
        Ok(None)
    }

    /// Reads the rest of the file without looking into its records.
    pub(crate) fn skim(&mut self) -> Result<(), PcapError> {
        while self.next_record()?.is_some() {}
        Ok(())
    }

    /// Reads the next record, and returns its time.
    fn next_record(&mut self) -> Result<Option<Duration>, PcapError> {
        let mut head = [0; RECORD_HEAD_BYTES];
        match fill(&mut self.from, &mut head).map_err(PcapError::Io)? {
            0 => return Ok(None),
            RECORD_HEAD_BYTES => {}
            _ => return Err(PcapError::CutOff(self.bytes)),
        }
        let [secs, fraction, len] = [0, 4, 8].map(|at| number(self.is_big_endian, &head, at));
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        if len > RECORD_BYTES_MAX {
            return Err(PcapError::Damaged(self.bytes));
        }
        self.record.resize(len, 0);
        if fill(&mut self.from, &mut self.record).map_err(PcapError::Io)? < len {
            return Err(PcapError::CutOff(self.bytes));
        }
        self.bytes += (RECORD_HEAD_BYTES + len) as u64;
        let nanos = u64::from(fraction) * if self.has_nanos { 1 } else { 1_000 };
        Ok(Some(Duration::from_secs(secs.into()) + Duration::from_nanos(nanos)))
    }
}

/// Reads until the buffer is full or the file ends, and returns the number of bytes.
fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match from.read(&mut buffer[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

fn number(is_big_endian: bool, bytes: &[u8], at: usize) -> u32 {
    let field = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if is_big_endian { u32::from_be_bytes(field) } else { u32::from_le_bytes(field) }
}

/// Parses an IP packet with a TCP segment. `None` for anything else, and for fragments.
fn segment(time: Duration, ip: &[u8]) -> Option<Segment> {
    let (from, to, tcp) = match ip.first()? >> 4 {
        4 => {
            let total = usize::from(u16::from_be_bytes([*ip.get(2)?, *ip.get(3)?]));
            let is_fragment = u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]) & 0x3fff != 0;
            if *ip.get(9)? != TCP || is_fragment {
                return None;
            }
            let address = |at: usize| -> Option<IpAddr> {
                let octets: [u8; 4] = ip.get(at..at + 4)?.try_into().ok()?;
                Some(Ipv4Addr::from(octets).into())
            };
            // Ethernet pads short frames. A length of 0 is that of a packet which the network card divides.
            let end = if total == 0 { ip.len() } else { total.min(ip.len()) };
            (address(12)?, address(16)?, ip.get(usize::from(ip[0] & 0x0f) * 4..end)?)
        }
        6 => {
            let address = |at: usize| -> Option<IpAddr> {
                let octets: [u8; 16] = ip.get(at..at + 16)?.try_into().ok()?;
                Some(Ipv6Addr::from(octets).into())
            };
            let len = usize::from(u16::from_be_bytes([*ip.get(4)?, *ip.get(5)?]));
            let end = if len == 0 { ip.len() } else { (40 + len).min(ip.len()) };
            let (mut next, mut at) = (*ip.get(6)?, 40);
            while EXTENSIONS.contains(&next) {
                next = *ip.get(at)?;
                at += 8 * (usize::from(*ip.get(at + 1)?) + 1);
            }
            if next != TCP {
                return None;
            }
            (address(8)?, address(24)?, ip.get(at..end)?)
        }
        _ => return None,
    };
    let port = |at: usize| Some(u16::from_be_bytes([*tcp.get(at)?, *tcp.get(at + 1)?]));
    let sequence = u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?);
    let bytes = tcp.get(usize::from(tcp.get(12)? >> 4) * 4..)?.to_vec();
    let flags = Flags(*tcp.get(13)?);
    let (from, to) = (SocketAddr::new(from, port(0)?), SocketAddr::new(to, port(2)?));
    Some(Segment { time, from, to, sequence, flags, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::Conversation;

    use crate::tap::file::{Capture, Cut};
    use wire::Role;

    #[derive(Default)]
    struct Memory(Vec<u8>);

    impl io::Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Cut for Memory {
        fn cut(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    /// A capture in which the client says `hello` and the server `odd`.
    fn captured(server: SocketAddr) -> Vec<u8> {
        let client = SocketAddr::from(([10, 0, 0, 1], 40_000));
        let mut conversation = Conversation::new(client, server);
        let mut memory = Memory::default();
        let mut capture = Capture::begin(&mut memory).expect("there is room");
        let mut packets = conversation.beginning().to_vec();
        packets.push(conversation.segment(Role::Client, b"hello"));
        packets.push(conversation.segment(Role::Server, b"odd"));
        packets.push(conversation.end(Role::Server, true));
        for packet in packets {
            capture.record(Duration::new(7, 5_000), &packet).expect("there is room");
        }
        memory.0
    }

    impl Cut for &mut Memory {
        fn cut(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    fn segments(file: &[u8]) -> Result<Vec<Segment>, PcapError> {
        let mut pcap = Pcap::begin(file)?;
        std::iter::from_fn(|| pcap.next().transpose()).collect()
    }

    #[test]
    fn a_capture_of_the_tap_is_read() {
        for server in ["10.0.0.2:1883", "[::1]:1883"] {
            let server: SocketAddr = server.parse().expect("an address");
            let segments = segments(&captured(server)).expect("it is complete");
            let bytes: Vec<_> = segments.iter().map(|segment| &segment.bytes[..]).collect();
            assert_eq!(bytes, [&b""[..], b"", b"hello", b"odd", b""]);
            let sequences: Vec<_> = segments.iter().map(|segment| segment.sequence).collect();
            assert_eq!(sequences, [u32::MAX, u32::MAX, 0, 0, 3]);
            assert!(segments[0].flags.is_syn() && !segments[0].flags.is_answer());
            assert!(segments[1].flags.is_syn() && segments[1].flags.is_answer());
            assert!(segments[4].flags.is_reset() && !segments[4].flags.is_fin());
            assert_eq!((segments[2].to, segments[3].from), (server, server));
            assert_eq!(segments[2].time, Duration::new(7, 5_000));
        }
    }

    #[test]
    fn a_frame_of_ethernet_has_padding_and_a_tag() {
        let file = captured("10.0.0.2:1883".parse().expect("an address"));
        let mut frames = file[..20].to_vec();
        frames.extend(1_u32.to_le_bytes());
        let (head, ip) = (&file[24..40], &file[40..80]);
        for tag in [&b""[..], b"\x81\0\0\x07"] {
            let len = u32::try_from(12 + tag.len() + 2 + ip.len() + 6).expect("short").to_le_bytes();
            frames.extend([&head[..8], &len, &len, &[0; 12], tag, &ETHERTYPE_IPV4, ip, b"padded"].concat());
        }
        let segments = segments(&frames).expect("it is complete");
        assert_eq!(segments.len(), 2);
        assert!(segments.iter().all(|segment| segment.bytes.is_empty() && segment.flags.is_syn()));
    }

    #[test]
    fn a_file_that_is_no_capture_is_refused() {
        let file = captured("10.0.0.2:1883".parse().expect("an address"));
        assert!(matches!(segments(b"{}"), Err(PcapError::NoCapture)));
        assert!(matches!(segments(b""), Err(PcapError::NoCapture)));
        assert!(matches!(segments(b"\x0a\x0d\x0d\x0a"), Err(PcapError::Pcapng)));
        assert!(matches!(segments(&file[..10]), Err(PcapError::CutOff(0))));
        assert!(matches!(segments(&file[..30]), Err(PcapError::CutOff(24))));
        assert!(matches!(segments(&file[..file.len() - 1]), Err(PcapError::CutOff(_))));
        let mut damaged = file.clone();
        damaged[34] = 0xff;
        assert!(matches!(segments(&damaged), Err(PcapError::Damaged(24))));
        let mut wireless = file;
        wireless[20] = 105;
        assert!(matches!(segments(&wireless), Err(PcapError::UnknownLink(105))));
    }
}
