//! A client's view of WebSocket: its upgrade request, and what the broker sends behind the answer.

use crate::course::{End, Outcome};

/// A request that every listener accepts.
pub const REQUEST: &[u8] = b"GET /mqtt HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Protocol: mqtt\r\n\r\n";

/// A frame as a client sends it.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..126 => frame.push(0x80 | u8::try_from(length).expect("it is short")),
        length @ 126..65_536 => {
            frame.push(0xfe);
            frame.extend(u16::try_from(length).expect("it is short").to_be_bytes());
        }
        length => {
            frame.push(0xff);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// Replaces the written bytes by what does not depend on the cut: without Pongs, as only the last of several Pings needs one;
/// without the borders of frames; without what the broker sends back, which a Close frame may overtake.
///
/// # Panics
/// The frames are not what RFC 6455 allows a server to send, or do not carry what the broker sends back.
pub fn essence(mut outcome: Outcome) -> Outcome {
    let is_open = outcome.written.starts_with(b"HTTP/1.1 101 ");
    if !is_open {
        let is_page = outcome.written.starts_with(b"HTTP/1.1 ");
        assert!(is_page || outcome.read.starts_with(&outcome.written), "{:?}", outcome.written);
        assert!(is_page || outcome.read.len() == outcome.written.len(), "all comes back");
        return outcome;
    }
    let head =
        outcome.written.windows(4).position(|end| end == b"\r\n\r\n").expect("the head has an end") + 4;
    let mut frames = outcome.written.split_off(head);
    let (mut data, mut close) = (Vec::new(), None);
    while let [first, short, rest @ ..] = &frames[..] {
        assert!(close.is_none(), "nothing follows a Close frame");
        let (length, rest) = match short {
            ..126 => (usize::from(*short), rest),
            126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
            127 => (
                usize::try_from(u64::from_be_bytes(rest[..8].try_into().expect("8 bytes"))).expect("it fits"),
                &rest[8..],
            ),
            _ => panic!("a server masks nothing"),
        };
        let (payload, rest) = rest.split_at(length);
        match first {
            0x82 => data.extend_from_slice(payload),
            0x88 => close = Some(payload.to_vec()),
            0x8a => assert!(length <= 125),
            _ => panic!("a frame that begins with {first:#x}"),
        }
        frames = rest.to_vec();
    }
    assert!(frames.is_empty(), "half of a frame: {frames:?}");
    let close = close.expect("a Close frame ends it");
    assert!(outcome.read.starts_with(&data));
    // Nothing is lost unless the peer has ended the connection itself.
    assert!(
        outcome.end == End::Refused
            || close.len() != 2
            || close[..] != [3, 0xe8]
            || outcome.read.starts_with(&data)
    );
    outcome.written.extend(close);
    outcome
}
