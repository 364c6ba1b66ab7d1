//! Any bytes behind a load balancer, in any cut, are a header with the same client and the same rest, or are refused
//! without an answer. A header that says who the client is names that client.
#![no_main]

use std::net::SocketAddr;
use std::sync::Arc;

use inputs::{Cut, Input};
use layers::{Protocol, Stack};
use libfuzzer_sys::fuzz_target;
use support::course::{End, Outcome, run};
use support::link::Link;

const REST: &[u8] = b"\x10\x00";

fuzz_target!(|input: &[u8]| {
    let Some(input) = Input::of(input) else { return };
    let (bytes, source) = match input.choice % 4 {
        0 => (input.bytes.to_vec(), None),
        choice => match header(choice, input.bytes) {
            Some((header, source)) => ([&header, REST].concat(), Some(source)),
            None => return,
        },
    };
    let outcome = |cut: &Cut<'_>| {
        let link = Link::default();
        cut.send(&bytes, |piece| link.send(piece));
        link.end();
        run(Arc::new(Stack { proxy: true, protocol: Protocol::Mqtt, ..Stack::default() }), &link, cut)
    };
    let (cut, whole) = (outcome(&input.cut), outcome(&Cut::NONE));
    if let Some(source) = source {
        let expected = (REST.to_vec(), End::Peer, Some(source.to_string()));
        assert_eq!((cut.read.clone(), cut.end, cut.peer.clone()), expected);
    }
    let silent = |outcome: &Outcome| outcome.end == End::Refused && outcome.written.is_empty();
    assert!(silent(&whole) || bytes.ends_with(&whole.read) && whole.written == whole.read);
    assert_eq!(cut, whole);
});

/// A header of version 1 or 2 for the address in these bytes, in version 2 with fields of any type.
fn header(choice: u8, bytes: &[u8]) -> Option<(Vec<u8>, SocketAddr)> {
    let (port, rest) = bytes.split_first_chunk::<2>()?;
    let (ip, rest) = rest.split_first_chunk::<16>()?;
    let [four @ .., _, _, _, _, _, _, _, _, _, _, _, _] = *ip;
    let port = u16::from_be_bytes(*port);
    let is_v6 = choice == 2;
    let source: SocketAddr = if is_v6 { (*ip, port).into() } else { (four, port).into() };
    if choice == 3 {
        return Some((format!("PROXY TCP4 {} 192.0.2.2 {port} 1883\r\n", source.ip()).into_bytes(), source));
    }
    let mut body = if is_v6 { [&ip[..], &[0; 16]].concat() } else { [&four[..], &[0; 4]].concat() };
    body.extend(port.to_be_bytes());
    body.extend([0x07, 0x5b]);
    for field in rest.chunks(9) {
        let [kind, value @ ..] = field else { break };
        // Others have values of a form of their own: text, a checksum, what TLS was used.
        if matches!(kind, 0x01 | 0x04 | 0x05 | 0x31..) {
            body.extend([*kind, 0, u8::try_from(value.len()).expect("8 bytes at most")]);
            body.extend(value);
        }
    }
    let family = if is_v6 { 0x21 } else { 0x11 };
    let length = u16::try_from(body.len()).ok().filter(|length| *length < 16_000)?;
    let header = [&b"\r\n\r\n\0\r\nQUIT\n\x21"[..], &[family], &length.to_be_bytes(), &body].concat();
    Some((header, source))
}
