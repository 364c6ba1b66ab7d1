//! A client's view of WebSocket: the frames that the broker sends behind its answer to the upgrade request.

use crate::course::{End, Outcome};

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
