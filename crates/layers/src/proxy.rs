//! The header of the PROXY protocol, versions 1 and 2, at the start of a connection.

use core::net::SocketAddr;

use proxy_header::{ParseConfig, ProxyHeader};

/// The first bytes of version 2.
pub(crate) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The first bytes of version 1.
pub(crate) const WORD: &[u8] = b"PROXY ";
/// Version 2 with the command `LOCAL`: the load balancer speaks for itself.
const LOCAL: u8 = 0x20;
/// Maximum length of a header of version 1, in bytes, with the end of the line (section 2.1).
const LINE_BYTES_MAX: usize = 107;
/// Maximum length of a header of version 2, in bytes. Its fields take a few hundred bytes in practice.
const HEADER_BYTES_MAX: usize = 16 * 1024;

/// A decoded header, as far as the broker uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proxied {
    /// Address of the client. `None` if the proxy speaks for itself (`LOCAL`), or does not know (`UNKNOWN`).
    pub(crate) source: Option<SocketAddr>,
    /// Length of the header.
    pub(crate) length: usize,
}

/// Decodes a header at the start of `bytes`. Returns `None` if bytes are missing.
///
/// # Errors
/// Why these bytes are no header.
pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Proxied>, &'static str> {
    if !may_begin(bytes) {
        return Err("the first bytes are no header, which this listener asks for");
    }
    let Some(header) = whole(bytes)? else { return Ok(None) };
    if header.get(SIGNATURE.len()) == Some(&LOCAL) && is_binary(header) {
        // Section 2.2: the receiver disregards everything behind the length.
        return Ok(Some(Proxied { source: None, length: header.len() }));
    }
    if !is_binary(header) && !is_strict(header) {
        return Err("the header is malformed");
    }
    let config = ParseConfig { include_tlvs: true, allow_v1: true, allow_v2: true };
    let (parsed, length) = ProxyHeader::parse(header, config).map_err(|_| "the header is malformed")?;
    if parsed.tlvs().any(|field| field.is_err()) {
        return Err("a field of the header is malformed");
    }
    Ok(Some(Proxied { source: parsed.proxied_address().map(|address| address.source), length }))
}

fn is_binary(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE)
}

/// Whether a line of version 1 has its family as a whole word, and ports of digits without zeros in front (section 2.1). The
/// parser does not look at that.
fn is_strict(line: &[u8]) -> bool {
    let mut words = line.trim_ascii_end().split(|byte| *byte == b' ').skip(1);
    let is_port =
        |word: &[u8]| word.iter().all(u8::is_ascii_digit) && (word.len() == 1 || !word.starts_with(b"0"));
    match words.next() {
        Some(b"UNKNOWN") => true,
        Some(b"TCP4" | b"TCP6") => words.skip(2).all(is_port),
        _ => false,
    }
}

/// The bytes of the header, if all of them have come.
fn whole(bytes: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    if bytes.starts_with(b"\r") {
        let Some([high, low]) = bytes.get(14..16) else { return Ok(None) };
        let length = 16 + usize::from(u16::from_be_bytes([*high, *low]));
        return if length > HEADER_BYTES_MAX {
            Err("the header is too long")
        } else {
            Ok(bytes.get(..length))
        };
    }
    let line = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    match line.windows(2).position(|end| end == b"\r\n") {
        Some(at) => Ok(Some(&bytes[..at + 2])),
        None if line.len() == LINE_BYTES_MAX => Err("the header is too long"),
        None => Ok(None),
    }
}

/// Whether these bytes may be the beginning of a header.
pub(crate) fn may_begin(bytes: &[u8]) -> bool {
    [SIGNATURE, WORD].iter().any(|start| {
        let length = bytes.len().min(start.len());
        bytes[..length] == start[..length]
    })
}

/// Whether these bytes begin with a header, whatever follows.
pub(crate) fn is_begun(bytes: &[u8]) -> bool {
    bytes.starts_with(SIGNATURE) || bytes.starts_with(WORD)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).expect("it fits").to_be_bytes();
        [SIGNATURE, &[command, family], &length, rest].concat()
    }

    const INET: [u8; 12] = [192, 0, 2, 1, 192, 0, 2, 2, 0x30, 0x39, 0x07, 0x5b];

    const INET6: [u8; 36] = [
        0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 2, 0x30, 0x39, 0x07, 0x5b,
    ];

    /// Version 1 without the end of the line.
    fn line(text: &str) -> Vec<u8> {
        format!("{text}\r\n").into_bytes()
    }

    /// A header of version 2 for IPv4 with these fields.
    fn with_fields(fields: &[u8]) -> Vec<u8> {
        v2(0x21, 0x11, &[&INET[..], fields].concat())
    }

    /// A header of version 2 for IPv4 with another byte in this place.
    fn with(at: usize, byte: u8) -> Vec<u8> {
        let mut header = v2(0x21, 0x11, &INET);
        header[at] = byte;
        header
    }

    #[test]
    fn headers_name_the_client() {
        let four = Some("192.0.2.1:12345");
        let six = Some("[2001:db8::1]:12345");
        let longest = format!("PROXY UNKNOWN {}", "f".repeat(LINE_BYTES_MAX - 16));
        let rows: &[(&str, Vec<u8>, Option<&str>)] = &[
            ("v1 TCP4", line("PROXY TCP4 192.0.2.1 192.0.2.2 12345 1883"), four),
            ("v1 TCP6", line("PROXY TCP6 2001:db8::1 2001:db8::2 12345 1883"), six),
            ("v1 TCP6 in full", line("PROXY TCP6 2001:0db8:0:0:0:0:0:1 ::2 12345 1883"), six),
            ("v1 ports at their ends", line("PROXY TCP4 192.0.2.1 192.0.2.2 0 65535"), Some("192.0.2.1:0")),
            ("v1 UNKNOWN", line("PROXY UNKNOWN"), None),
            ("v1 UNKNOWN with a rest", line("PROXY UNKNOWN ffff::1 ffff::2 1 2"), None),
            ("v1 of the longest length", line(&longest), None),
            ("v2 IPv4", v2(0x21, 0x11, &INET), four),
            ("v2 IPv4, datagram", v2(0x21, 0x12, &INET), four),
            ("v2 IPv6", v2(0x21, 0x21, &INET6), six),
            ("v2 IPv6, datagram", v2(0x21, 0x22, &INET6), six),
            ("v2 Unix, stream", v2(0x21, 0x31, &[0; 216]), None),
            ("v2 Unix, datagram", v2(0x21, 0x32, &[0; 216]), None),
            ("v2 no address", v2(0x21, 0x00, &[]), None),
            ("v2 no address, with a field", v2(0x21, 0x00, &[0x04, 0, 1, 0]), None),
            ("v2 LOCAL", v2(0x20, 0x00, &[]), None),
            ("v2 LOCAL with an address", v2(0x20, 0x11, &INET), None),
            ("v2 LOCAL with half an address", v2(0x20, 0x11, &INET[..5]), None),
            ("v2 LOCAL of no family", v2(0x20, 0xf3, b"not looked at"), None),
            ("v2 ALPN", with_fields(b"\x01\0\x04mqtt"), four),
            ("v2 authority", with_fields(b"\x02\0\x01a"), four),
            ("v2 checksum", with_fields(&[0x03, 0, 4, 1, 2, 3, 4]), four),
            ("v2 padding", with_fields(&[0x04, 0, 0]), four),
            ("v2 unique id", with_fields(b"\x05\0\x02id"), four),
            ("v2 TLS", with_fields(&[0x20, 0, 5, 1, 0, 0, 0, 0]), four),
            ("v2 a type of no meaning", with_fields(&[0xff, 0, 1, 0]), four),
            ("v2 two fields", with_fields(&[0x02, 0, 1, b'a', 0x04, 0, 0]), four),
            ("v2 of the longest length", with_fields(&long_field(HEADER_BYTES_MAX - 16 - 12)), four),
        ];
        for (row, header, source) in rows {
            let source = source.map(|source| source.parse().expect("an address"));
            let stream = [&header[..], b"\x10\x00"].concat();
            assert_eq!(decode(&stream), Ok(Some(Proxied { source, length: header.len() })), "{row}");
            for length in 0..header.len() {
                assert_eq!(decode(&header[..length]), Ok(None), "{row}, {length} bytes");
            }
        }
    }

    /// A field of padding with this length.
    fn long_field(bytes: usize) -> Vec<u8> {
        let value = u16::try_from(bytes - 3).expect("it fits").to_be_bytes();
        [&[0x04][..], &value, &vec![0; bytes - 3]].concat()
    }

    #[test]
    fn malformed_lines_are_refused() {
        let too_long = format!("PROXY UNKNOWN {}", "f".repeat(LINE_BYTES_MAX - 15));
        let rows: &[(&str, Vec<u8>)] = &[
            ("MQTT", b"\x10\x0d\x00\x04MQTT".to_vec()),
            ("v1 half of the word", b"PROX\x10".to_vec()),
            ("v1 the word in small letters", line("proxy UNKNOWN")),
            ("v1 a tab", line("PROXY\tUNKNOWN")),
            ("v1 two spaces", line("PROXY  TCP4 192.0.2.1 192.0.2.2 1 2")),
            ("v1 no family", line("PROXY ")),
            ("v1 family in small letters", line("PROXY tcp4 192.0.2.1 192.0.2.2 1 2")),
            ("v1 family of no meaning", line("PROXY TCP5 192.0.2.1 192.0.2.2 1 2")),
            ("v1 UDP4", line("PROXY UDP4 192.0.2.1 192.0.2.2 1 2")),
            ("v1 a word that begins with UNKNOWN", line("PROXY UNKNOWNX")),
            ("v1 no addresses", line("PROXY TCP4")),
            ("v1 no source", line("PROXY TCP4  192.0.2.2 1 2")),
            ("v1 source of 256", line("PROXY TCP4 192.0.2.256 192.0.2.2 1 2")),
            ("v1 source of three numbers", line("PROXY TCP4 192.0.2 192.0.2.2 1 2")),
            ("v1 source with a zero in front", line("PROXY TCP4 192.0.02.1 192.0.2.2 1 2")),
            ("v1 source is a name", line("PROXY TCP4 localhost 192.0.2.2 1 2")),
            ("v1 source with NUL", line("PROXY TCP4 192.0.2.1\0 192.0.2.2 1 2")),
            ("v1 source that is not UTF-8", b"PROXY TCP4 \xff 192.0.2.2 1 2\r\n".to_vec()),
            ("v1 IPv6 in TCP4", line("PROXY TCP4 2001:db8::1 2001:db8::2 1 2")),
            ("v1 IPv4 in TCP6", line("PROXY TCP6 192.0.2.1 192.0.2.2 1 2")),
            ("v1 IPv6 with two gaps", line("PROXY TCP6 2001::db8::1 2001:db8::2 1 2")),
            ("v1 IPv6 with a zone", line("PROXY TCP6 fe80::1%eth0 2001:db8::2 1 2")),
            ("v1 IPv6 in brackets", line("PROXY TCP6 [2001:db8::1] 2001:db8::2 1 2")),
            ("v1 destination of 256", line("PROXY TCP4 192.0.2.1 192.0.2.256 1 2")),
            ("v1 no destination", line("PROXY TCP4 192.0.2.1 1 2")),
            ("v1 source port of 65,536", line("PROXY TCP4 192.0.2.1 192.0.2.2 65536 2")),
            ("v1 source port below 0", line("PROXY TCP4 192.0.2.1 192.0.2.2 -1 2")),
            ("v1 source port with a plus", line("PROXY TCP4 192.0.2.1 192.0.2.2 +1 2")),
            ("v1 source port with a zero in front", line("PROXY TCP4 192.0.2.1 192.0.2.2 01 2")),
            ("v1 source port in words", line("PROXY TCP4 192.0.2.1 192.0.2.2 mqtt 2")),
            ("v1 destination port of 65,536", line("PROXY TCP4 192.0.2.1 192.0.2.2 1 65536")),
            ("v1 destination port with a plus", line("PROXY TCP4 192.0.2.1 192.0.2.2 1 +2")),
            ("v1 destination port with a zero in front", line("PROXY TCP4 192.0.2.1 192.0.2.2 1 00")),
            ("v1 one port", line("PROXY TCP4 192.0.2.1 192.0.2.2 1")),
            ("v1 three ports", line("PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3")),
            ("v1 a space at the end", line("PROXY TCP4 192.0.2.1 192.0.2.2 1 2 ")),
            ("v1 CR in the middle", line("PROXY TCP4 192.0.2.1 192.0.2.2 1\r2 3")),
            ("v1 LF alone", b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n\r\n".to_vec()),
            ("v1 a line of 108 bytes", line(&too_long)),
            ("v1 a line without an end", [b"PROXY UNKNOWN ".to_vec(), vec![b'f'; LINE_BYTES_MAX]].concat()),
        ];
        assert_refused(rows);
    }

    #[test]
    fn malformed_headers_of_version_2_are_refused() {
        let rows: &[(&str, Vec<u8>)] = &[
            ("v2 signature of version 1.5", [&SIGNATURE[..11], b"\r\x21\x11\0\x0c", &INET].concat()),
            ("v2 version 0", with(12, 0x01)),
            ("v2 version 1", with(12, 0x11)),
            ("v2 version 3", with(12, 0x31)),
            ("v2 command 2", with(12, 0x22)),
            ("v2 command 15", with(12, 0x2f)),
            ("v2 transport 0 of IPv4", with(13, 0x10)),
            ("v2 transport 3 of IPv4", with(13, 0x13)),
            ("v2 transport of no family", with(13, 0x01)),
            ("v2 family 4", with(13, 0x41)),
            ("v2 family 15", with(13, 0xff)),
            ("v2 length 0 with a family", v2(0x21, 0x11, &[])),
            ("v2 IPv4 cut", v2(0x21, 0x11, &INET[..11])),
            ("v2 IPv6 cut", v2(0x21, 0x21, &INET6[..35])),
            ("v2 IPv6 of the length of IPv4", v2(0x21, 0x21, &INET)),
            ("v2 Unix cut", v2(0x21, 0x31, &[0; 215])),
            ("v2 field of a type alone", with_fields(&[0x02])),
            ("v2 field with half a length", with_fields(&[0x02, 0])),
            ("v2 field cut", with_fields(&[0x02, 0, 2, b'a'])),
            ("v2 field of 65,535 bytes", with_fields(&[0x05, 0xff, 0xff, b'a'])),
            ("v2 second field cut", with_fields(&[0x04, 0, 0, 0x05, 0, 1])),
            ("v2 authority that is not UTF-8", with_fields(&[0x02, 0, 1, 0xff])),
            ("v2 checksum of 3 bytes", with_fields(&[0x03, 0, 3, 0, 0, 0])),
            ("v2 TLS of 4 bytes", with_fields(&[0x20, 0, 4, 1, 0, 0, 0])),
            ("v2 longer than 16 KiB", with_fields(&long_field(HEADER_BYTES_MAX - 16 - 12 + 1))),
            ("v2 length of 65,535", [SIGNATURE, &[0x21, 0x11, 0xff, 0xff]].concat()),
            ("v2 LOCAL, length of 65,535", [SIGNATURE, &[0x20, 0x00, 0xff, 0xff]].concat()),
        ];
        assert_refused(rows);
    }

    fn assert_refused(rows: &[(&str, Vec<u8>)]) {
        for (row, header) in rows {
            assert!(decode(header).is_err(), "{row}: {:?}", decode(header));
        }
    }
}
