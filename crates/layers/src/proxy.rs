//! The header of the PROXY protocol, versions 1 and 2, at the start of a connection.

use core::net::SocketAddr;

use proxy_header::{ParseConfig, ProxyHeader};

/// The first bytes of version 2.
pub(crate) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The first bytes of version 1.
pub(crate) const WORD: &[u8] = b"PROXY ";
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
    let config = ParseConfig { include_tlvs: true, allow_v1: true, allow_v2: true };
    let (parsed, length) = ProxyHeader::parse(header, config).map_err(|_| "the header is malformed")?;
    if parsed.tlvs().any(|field| field.is_err()) {
        return Err("a field of the header is malformed");
    }
    Ok(Some(Proxied { source: parsed.proxied_address().map(|address| address.source), length }))
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

    #[test]
    fn headers_name_the_client() {
        let inet6 =
            [&[0x20, 0x01, 0x0d, 0xb8][..], &[0; 11], &[1], &[0; 16], &[0x30, 0x39, 0x07, 0x5b]].concat();
        let rows: &[(Vec<u8>, Option<&str>)] = &[
            (b"PROXY TCP4 192.0.2.1 192.0.2.2 12345 1883\r\n".to_vec(), Some("192.0.2.1:12345")),
            (b"PROXY TCP6 2001:db8::1 2001:db8::2 12345 1883\r\n".to_vec(), Some("[2001:db8::1]:12345")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(), None),
            (v2(0x21, 0x11, &INET), Some("192.0.2.1:12345")),
            (v2(0x21, 0x21, &inet6), Some("[2001:db8::1]:12345")),
            (v2(0x20, 0x00, &[]), None),
            (v2(0x20, 0x11, &INET), None),
            (v2(0x21, 0x31, &[0; 216]), None),
            (v2(0x21, 0x11, &[&INET[..], &[0x02, 0, 1, b'a', 0x04, 0, 0]].concat()), Some("192.0.2.1:12345")),
        ];
        for (header, source) in rows {
            let source = source.map(|source| source.parse().expect("an address"));
            let stream = [&header[..], b"\x10\x00"].concat();
            assert_eq!(decode(&stream), Ok(Some(Proxied { source, length: header.len() })), "{header:?}");
            for length in 0..header.len() {
                assert_eq!(decode(&header[..length]), Ok(None), "{header:?} {length}");
            }
        }
    }

    #[test]
    fn malformed_headers_are_refused() {
        let with = |at: usize, byte: u8| {
            let mut header = v2(0x21, 0x11, &INET);
            header[at] = byte;
            header
        };
        let line = |text: &str| format!("{text}\r\n").into_bytes();
        let rows: Vec<Vec<u8>> = vec![
            b"\x10\x0d\x00\x04MQTT".to_vec(),
            b"PROX\x10".to_vec(),
            line("PROXY TCP4"),
            line("PROXY TCP5 192.0.2.1 192.0.2.2 1 2"),
            line("PROXY TCP4 192.0.2.256 192.0.2.2 1 2"),
            line("PROXY TCP4 2001:db8::1 2001:db8::2 1 2"),
            line("PROXY TCP4 192.0.2.1 192.0.2.2 65536 2"),
            line("PROXY TCP4 192.0.2.1 192.0.2.2 1"),
            line("PROXY TCP4 192.0.2.1 192.0.2.2 1 2 3"),
            line("PROXY  TCP4 192.0.2.1 192.0.2.2 1 2"),
            line("PROXY TCP4 192.0.2.1 192.0.2.2 -1 2"),
            [b"PROXY UNKNOWN ".to_vec(), vec![b'a'; LINE_BYTES_MAX]].concat(),
            with(12, 0x11),
            with(12, 0x22),
            with(13, 0x13),
            with(13, 0x41),
            v2(0x21, 0x11, &INET[..11]),
            v2(0x21, 0x21, &INET),
            v2(0x21, 0x31, &[0; 215]),
            v2(0x21, 0x11, &[&INET[..], &[0x02, 0, 2, b'a']].concat()),
            v2(0x21, 0x11, &[&INET[..], &[0x02]].concat()),
            v2(0x21, 0x11, &[0; HEADER_BYTES_MAX]),
        ];
        for header in rows {
            assert!(decode(&header).is_err(), "{header:?}");
        }
    }
}
