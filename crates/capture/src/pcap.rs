//! Records of a pcap file, which Wireshark and tcpdump read.
//!
//! A record is an IP packet without a link layer, as if the bytes had been captured on a wire. A connection begins with
//! SYN, and each direction ends with FIN or RST.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use wire::Role;

/// LINKTYPE_RAW: each record begins with an IPv4 or IPv6 header.
const LINK_TYPE: u32 = 101;
/// Upper bound for the size of a record.
const RECORD_BYTES_MAX: u32 = 1 << 18;
const TCP: u8 = 6;
const TCP_HEADER_BYTES: usize = 20;
/// Flags of TCP (RFC 9293, section 3.1).
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Maximum number of bytes of a connection in one record. A longer piece takes several records.
pub const SEGMENT_BYTES_MAX: usize = 32 << 10;

/// The header of a file, which the records follow.
#[must_use]
pub fn header() -> Vec<u8> {
    let mut head = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
    for version in [2_u16, 4] {
        head.extend(version.to_le_bytes());
    }
    // Time zone and accuracy, which are not used, the maximum record size, and the link type.
    for field in [0, 0, RECORD_BYTES_MAX, LINK_TYPE] {
        head.extend(field.to_le_bytes());
    }
    head
}

/// A record of an IP packet, with its time since 1970.
#[must_use]
pub fn record(time: Duration, packet: &[u8]) -> Vec<u8> {
    // The format has 32 bits for seconds.
    let secs = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
    let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
    let mut record = Vec::with_capacity(16 + packet.len());
    for field in [secs, time.subsec_micros(), len, len] {
        record.extend(field.to_le_bytes());
    }
    record.extend_from_slice(packet);
    record
}

/// The two ends of a connection, and the number of bytes from each.
#[derive(Debug)]
pub struct Conversation {
    client: SocketAddr,
    server: SocketAddr,
    client_bytes: u32,
    server_bytes: u32,
}

impl Conversation {
    /// A connection before its first bytes.
    #[must_use]
    pub fn new(client: SocketAddr, server: SocketAddr) -> Self {
        Self { client, server, client_bytes: 0, server_bytes: 0 }
    }

    /// Makes the IP packet that would carry these bytes next: at most [`SEGMENT_BYTES_MAX`].
    #[must_use]
    pub fn segment(&mut self, sender: Role, bytes: &[u8]) -> Vec<u8> {
        self.packet(sender, PSH | ACK, bytes)
    }

    /// Makes the two IP packets that begin the connection.
    #[must_use]
    pub fn beginning(&mut self) -> [Vec<u8>; 2] {
        // SYN counts as one byte. The first byte of each direction has the number 0.
        (self.client_bytes, self.server_bytes) = (u32::MAX, u32::MAX);
        let asks = self.packet(Role::Client, SYN, &[]);
        self.client_bytes = 0;
        let answers = self.packet(Role::Server, SYN | ACK, &[]);
        self.server_bytes = 0;
        [asks, answers]
    }

    /// Makes the IP packet that ends one direction, in order or with a reset.
    #[must_use]
    pub fn end(&mut self, sender: Role, is_reset: bool) -> Vec<u8> {
        self.packet(sender, ACK | if is_reset { RST } else { FIN }, &[])
    }

    fn packet(&mut self, sender: Role, flags: u8, bytes: &[u8]) -> Vec<u8> {
        let Self { client, server, client_bytes, server_bytes } = self;
        let (from, to, said, heard) = match sender {
            Role::Client => (*client, *server, client_bytes, *server_bytes),
            Role::Server => (*server, *client, server_bytes, *client_bytes),
        };
        let sequence = *said;
        *said = said.wrapping_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        let mut tcp = Vec::with_capacity(TCP_HEADER_BYTES + bytes.len());
        tcp.extend([from.port().to_be_bytes(), to.port().to_be_bytes()].as_flattened());
        tcp.extend([sequence.to_be_bytes(), heard.to_be_bytes()].as_flattened());
        // Header of 20 bytes, flags, the largest window, the checksum to be filled in, and no urgent data.
        tcp.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend_from_slice(bytes);
        let len = u16::try_from(tcp.len()).unwrap_or(u16::MAX).to_be_bytes();
        match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let addresses = [from.octets(), to.octets()];
                let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, TCP, 0, 0];
                packet.extend(addresses.as_flattened());
                let total = u16::try_from(20 + tcp.len()).unwrap_or(u16::MAX);
                packet[2..4].copy_from_slice(&total.to_be_bytes());
                let sum = checksum(&[&packet]);
                packet[10..12].copy_from_slice(&sum);
                let sum = checksum(&[addresses.as_flattened(), &[0, TCP], &len, &tcp]);
                tcp[16..18].copy_from_slice(&sum);
                [packet, tcp].concat()
            }
            (from, to) => {
                let addresses = [from, to].map(|ip| v6(ip).octets());
                let sum = checksum(&[addresses.as_flattened(), &[0, TCP], &len, &tcp]);
                tcp[16..18].copy_from_slice(&sum);
                let head = [0x60, 0, 0, 0, len[0], len[1], TCP, 64];
                [&head[..], addresses.as_flattened(), &tcp].concat()
            }
        }
    }
}

fn v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}

/// Internet checksum (RFC 1071). All parts but the last must have an even length.
fn checksum(parts: &[&[u8]]) -> [u8; 2] {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 =
        words.map(|word| u32::from(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    (!u16::try_from(folded).unwrap_or(u16::MAX)).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Summing a packet including its checksum yields 0.
    #[test]
    fn a_segment_is_a_packet_that_goes_on_where_the_last_one_ended() {
        let client = SocketAddr::from(([10, 0, 0, 1], 40_000));
        for server in [SocketAddr::from(([10, 0, 0, 2], 1883)), SocketAddr::from((Ipv6Addr::LOCALHOST, 1883))]
        {
            let mut conversation = Conversation::new(client, server);
            let _ = conversation.segment(Role::Client, b"hello");
            let packet = conversation.segment(Role::Server, b"odd");
            let header_bytes = if server.is_ipv4() { 20 } else { 40 };
            let (ip, tcp) = packet.split_at(header_bytes);
            let addresses = if server.is_ipv4() { &ip[12..] } else { &ip[8..] };
            let len = u16::try_from(tcp.len()).expect("short").to_be_bytes();
            assert_eq!(checksum(&[addresses, &[0, TCP], &len, tcp]), [0, 0]);
            assert!(!server.is_ipv4() || checksum(&[ip]) == [0, 0]);
            assert_eq!(tcp[4..12], [0, 0, 0, 0, 0, 0, 0, 5], "sequence and acknowledgement");
            assert_eq!(&tcp[TCP_HEADER_BYTES..], b"odd");
            let next = conversation.segment(Role::Server, b"");
            assert_eq!(next[header_bytes + 4..][..4], [0, 0, 0, 3]);
        }
    }
}
