//! Frames of a client in the order of the groups of the Autobahn test suite, through the whole layer.

use super::frames::tests::frame;
use super::*;
use crate::double::Pipe;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Protocol: mqtt\r\n\r\n";

const FIN: u8 = 0x80;
const CONTINUATION: u8 = 0x00;
const TEXT: u8 = 0x01;
const BINARY: u8 = 0x02;
const CLOSE: u8 = FIN | 0x08;
const PING: u8 = FIN | 0x09;
const PONG: u8 = FIN | 0x0a;

/// The end of a connection, as reader and peer see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The peer may send more.
    Open,
    /// The peer has closed it, and gets this status code, or none.
    Closed(Option<u16>),
    /// The peer has broken a rule, and gets this status code.
    Refused(u16),
}

use End::{Closed, Open, Refused};

/// The messages, Pongs and the end of a connection.
#[derive(Debug, PartialEq, Eq)]
struct Course {
    read: Vec<u8>,
    pongs: Vec<Vec<u8>>,
    end: End,
}

struct Case {
    name: &'static str,
    frames: Vec<Vec<u8>>,
    course: Course,
}

fn case(name: &'static str, frames: &[Vec<u8>], read: &[u8], pongs: &[&[u8]], end: End) -> Case {
    let pongs = pongs.iter().map(|pong| pong.to_vec()).collect();
    Case { name, frames: frames.to_vec(), course: Course { read: read.to_vec(), pongs, end } }
}

/// A header whose length has this form, with a mask of zeros.
fn header(first: u8, length: &[u8]) -> Vec<u8> {
    [&[first][..], length, &[0; 4]].concat()
}

fn status(code: u16, reason: &[u8]) -> Vec<u8> {
    frame(CLOSE, &[&code.to_be_bytes()[..], reason].concat())
}

/// Runs a connection whose peer sends these pieces behind its request, with a flush behind each read.
fn run(pieces: &[&[u8]], buffer_bytes: usize) -> Course {
    let pipe = Pipe::new(1 << 20);
    let mut connection = WebSocket::new(pipe.clone(), Arc::default());
    pipe.put(REQUEST);
    pieces.iter().for_each(|piece| pipe.put(piece));
    let (mut read, mut buffer) = (Vec::new(), vec![0; buffer_bytes]);
    let ended = loop {
        match connection.read(&mut buffer) {
            Ok(Received { bytes: 0, .. }) => break Some(Closed(None)),
            Ok(Received { bytes, .. }) => read.extend_from_slice(&buffer[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break None,
            Err(error) => break Some(Refused(u16::from(error.kind() == io::ErrorKind::InvalidData))),
        }
        connection.flush().expect("there is room");
        assert!(connection.held_bytes() <= upgrade::HEAD_BYTES_MAX, "{}", connection.held_bytes());
    };
    connection.flush().expect("there is room");
    let (pongs, close) = answers(&pipe.take_written());
    let end = match (ended, close) {
        (None, None) => Open,
        (Some(Closed(_)), Some(code)) => Closed(code),
        (Some(Refused(1)), Some(Some(code))) => Refused(code),
        other => panic!("{other:?}"),
    };
    Course { read, pongs, end }
}

/// The Pongs and the Close frame behind the answer to the request.
fn answers(written: &[u8]) -> (Vec<Vec<u8>>, Option<Option<u16>>) {
    let head = written.windows(4).position(|end| end == b"\r\n\r\n").expect("an answer");
    let (mut pongs, mut close, mut rest) = (Vec::new(), None, &written[head + 4..]);
    while let [first, length, behind @ ..] = rest {
        assert!(close.is_none() && *length <= 125, "{rest:02x?}");
        let (payload, behind) = behind.split_at(usize::from(*length));
        match *first {
            PONG => pongs.push(payload.to_vec()),
            CLOSE => close = Some(payload.first_chunk().map(|code| u16::from_be_bytes(*code))),
            first => panic!("a frame that begins with {first:#x}"),
        }
        rest = behind;
    }
    (pongs, close)
}

/// Groups 1 and 9 of Autobahn: lengths.
fn lengths() -> Vec<Case> {
    let of = |bytes: usize| frame(FIN | BINARY, &vec![b'a'; bytes]);
    let mut cases: Vec<Case> = [
        ("1.2.1 no payload", 0),
        ("1.2.2 the longest short length", 125),
        ("1.2.3 the shortest of 2 bytes", 126),
        ("1.2.4", 127),
        ("1.2.5", 128),
        ("1.2.6 the longest of 2 bytes", 65_535),
        ("1.2.7 the shortest of 8 bytes", 65_536),
    ]
    .map(|(name, bytes)| case(name, &[of(bytes)], &vec![b'a'; bytes], &[], Open))
    .into();
    let wrong: [(&str, &[u8]); 6] = [
        ("1.3.1 125 in 2 bytes", &[0xfe, 0, 125]),
        ("1.3.2 0 in 8 bytes", &[0xff, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("1.3.3 65,535 in 8 bytes", &[0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff]),
        ("1.3.4 2^63", &[0xff, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ("1.3.5 2^64 - 1", &[0xff; 9]),
        ("1.3.6 not masked", &[1]),
    ];
    cases.extend(
        wrong.map(|(name, length)| case(name, &[header(FIN | BINARY, length)], b"", &[], Refused(1002))),
    );
    let longest =
        [header(FIN | BINARY, &[0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), b"ab".to_vec()];
    cases.push(case("1.4.1 2^63 - 1, as it comes", &longest, b"ab", &[], Open));
    cases
}

/// Group 2: Ping and Pong.
fn pings() -> Vec<Case> {
    let ping = |payload: &[u8]| frame(PING, payload);
    vec![
        case("2.1 an empty Ping", &[ping(b"")], b"", &[b""], Open),
        case("2.2 a Ping", &[ping(b"Hello")], b"", &[b"Hello"], Open),
        case(
            "2.3 a Ping of bytes that are no text",
            &[ping(b"\0\xff\xfe\xfd")],
            b"",
            &[b"\0\xff\xfe\xfd"],
            Open,
        ),
        case("2.4 the longest Ping", &[ping(&[7; 125])], b"", &[&[7; 125]], Open),
        case("2.5 a Ping of 126 bytes", &[ping(&[7; 126])], b"", &[], Refused(1002)),
        case("2.6 a Ping of 65,536 bytes", &[ping(&[7; 65_536])], b"", &[], Refused(1002)),
        case("2.7 a Pong that nobody asked for", &[frame(PONG, b"x")], b"", &[], Open),
        case("2.8 a Pong of 126 bytes", &[frame(PONG, &[7; 126])], b"", &[], Refused(1002)),
        case("2.9 a Pong, then a Ping", &[frame(PONG, b"x"), ping(b"y")], b"", &[b"y"], Open),
        case("2.10 ten Pings", &vec![ping(b"x"); 10], b"", &[&b"x"[..]; 10], Open),
        case("2.11 a Ping that is not masked", &[vec![PING, 0]], b"", &[], Refused(1002)),
        case("2.12 a Ping in fragments", &[frame(0x09, b"x")], b"", &[], Refused(1002)),
        case("2.13 a Pong in fragments", &[frame(0x0a, b"x")], b"", &[], Refused(1002)),
    ]
}

/// Groups 3 and 4: reserved bits and opcodes.
fn reserved() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, bits) in [
        ("3.1 bit 3", 0x10),
        ("3.2 bit 2", 0x20),
        ("3.3 bits 2 and 3", 0x30),
        ("3.4 bit 1: a compressed message", 0x40),
        ("3.5 bits 1 and 3", 0x50),
        ("3.6 bits 1 and 2", 0x60),
        ("3.7 all bits", 0x70),
    ] {
        for first in [FIN | BINARY, PING, CLOSE] {
            cases.push(case(name, &[frame(first | bits, b"")], b"", &[], Refused(1002)));
        }
    }
    for (name, opcode) in [
        ("4.1.1 opcode 3", 3),
        ("4.1.2 opcode 4", 4),
        ("4.1.3 opcode 5", 5),
        ("4.1.4 opcode 6", 6),
        ("4.1.5 opcode 7", 7),
        ("4.2.1 opcode 11", 11),
        ("4.2.2 opcode 12", 12),
        ("4.2.3 opcode 13", 13),
        ("4.2.4 opcode 14", 14),
        ("4.2.5 opcode 15", 15),
    ] {
        let good = frame(FIN | BINARY, b"good");
        let frames = [good.clone(), frame(FIN | opcode, b"x"), good];
        cases.push(case(name, &frames, b"good", &[], Refused(1002)));
    }
    cases
}

/// Group 5: fragments.
fn fragments() -> Vec<Case> {
    let binary = |payload: &[u8]| frame(BINARY, payload);
    let middle = |payload: &[u8]| frame(CONTINUATION, payload);
    let last = |payload: &[u8]| frame(FIN | CONTINUATION, payload);
    let whole = |payload: &[u8]| frame(FIN | BINARY, payload);
    let ping = frame(PING, b"p");
    vec![
        case("5.1 two fragments", &[binary(b"a"), last(b"b")], b"ab", &[], Open),
        case("5.2 a Ping between them", &[binary(b"a"), ping.clone(), last(b"b")], b"ab", &[b"p"], Open),
        case("5.3 a Pong between them", &[binary(b"a"), frame(PONG, b"p"), last(b"b")], b"ab", &[], Open),
        case("5.4 empty fragments", &[binary(b""), middle(b""), last(b"")], b"", &[], Open),
        case("5.5 an empty first fragment", &[binary(b""), middle(b"a"), last(b"b")], b"ab", &[], Open),
        case("5.6 an empty last fragment", &[binary(b"a"), last(b"")], b"a", &[], Open),
        case(
            "5.7 a hundred fragments",
            &[vec![binary(b"x")], vec![middle(b"x"); 98], vec![last(b"x")]].concat(),
            &[b'x'; 100],
            &[],
            Open,
        ),
        case(
            "5.8 a Ping behind each",
            &[binary(b"a"), ping.clone(), middle(b"b"), ping.clone(), last(b"c"), ping.clone()],
            b"abc",
            &[&b"p"[..]; 3],
            Open,
        ),
        case("5.9 two messages", &[binary(b"a"), last(b"b"), binary(b"c"), last(b"d")], b"abcd", &[], Open),
        case("5.10 the last of nothing", &[last(b"x"), whole(b"y")], b"", &[], Refused(1002)),
        case("5.11 the middle of nothing", &[middle(b"x"), whole(b"y")], b"", &[], Refused(1002)),
        case(
            "5.12 the last fragment twice",
            &[binary(b"a"), last(b"b"), last(b"c")],
            b"ab",
            &[],
            Refused(1002),
        ),
        case("5.13 a message inside of another", &[binary(b"a"), whole(b"b")], b"a", &[], Refused(1002)),
        case(
            "5.14 a text inside of a message",
            &[binary(b"a"), frame(FIN | TEXT, b"b")],
            b"a",
            &[],
            Refused(1003),
        ),
        case(
            "5.15 a Close in the middle",
            &[binary(b"a"), status(1000, b""), last(b"b")],
            b"a",
            &[],
            Closed(Some(1000)),
        ),
    ]
}

/// Group 6: text. MQTT has none, whether it is UTF-8 or not.
fn texts() -> Vec<Case> {
    vec![
        case("6.1 no text", &[frame(FIN | TEXT, b"")], b"", &[], Refused(1003)),
        case("6.2 a text", &[frame(FIN | TEXT, b"text")], b"", &[], Refused(1003)),
        case("6.3 a text that is not UTF-8", &[frame(FIN | TEXT, b"\xff")], b"", &[], Refused(1003)),
        case("6.4 a text in fragments", &[frame(TEXT, b"a"), frame(FIN, b"b")], b"", &[], Refused(1003)),
        case(
            "6.5 a text behind a message",
            &[frame(FIN | BINARY, b"a"), frame(FIN | TEXT, b"b")],
            b"a",
            &[],
            Refused(1003),
        ),
    ]
}

/// Group 7: the end.
fn ends() -> Vec<Case> {
    let message = frame(FIN | BINARY, b"a");
    let normal = status(1000, b"");
    let mut cases = vec![
        case(
            "7.1.1 a message, then Close",
            &[message.clone(), normal.clone()],
            b"a",
            &[],
            Closed(Some(1000)),
        ),
        case("7.1.2 two Close frames", &[normal.clone(), status(1001, b"")], b"", &[], Closed(Some(1000))),
        case("7.1.3 a Ping behind Close", &[normal.clone(), frame(PING, b"p")], b"", &[], Closed(Some(1000))),
        case(
            "7.1.4 a message behind Close",
            &[normal.clone(), message.clone()],
            b"",
            &[],
            Closed(Some(1000)),
        ),
        case(
            "7.1.5 bytes that are no frame behind Close",
            &[normal, b"\xff\xff\xff".to_vec()],
            b"",
            &[],
            Closed(Some(1000)),
        ),
        case("7.3.1 an empty Close", &[frame(CLOSE, b"")], b"", &[], Closed(None)),
        case("7.3.2 a Close of one byte", &[frame(CLOSE, b"x")], b"", &[], Refused(1002)),
        case("7.3.3 a reason", &[status(1000, b"bye")], b"", &[], Closed(Some(1000))),
        case("7.3.4 the longest reason", &[status(1000, &[b'a'; 123])], b"", &[], Closed(Some(1000))),
        case("7.3.5 a reason of 124 bytes", &[status(1000, &[b'a'; 124])], b"", &[], Refused(1002)),
        case("7.3.6 a Close in fragments", &[frame(0x08, b"\x03\xe8")], b"", &[], Refused(1002)),
        case(
            "7.5.1 a reason that is not UTF-8",
            &[status(1000, b"\xce\xba\xe1\xbd")],
            b"",
            &[],
            Refused(1007),
        ),
        case("7.5.2 a surrogate in the reason", &[status(1000, b"\xed\xa0\x80")], b"", &[], Refused(1007)),
        case("7.5.3 a reason in too many bytes", &[status(1000, b"\xc0\xaf")], b"", &[], Refused(1007)),
    ];
    for code in
        [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999]
    {
        cases.push(case("7.7 a code that may be sent", &[status(code, b"")], b"", &[], Closed(Some(code))));
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        cases.push(case("7.9 a code that is never sent", &[status(code, b"")], b"", &[], Refused(1002)));
    }
    cases
}

fn cases() -> impl Iterator<Item = Case> {
    [lengths(), pings(), reserved(), fragments(), texts(), ends()].into_iter().flatten()
}

#[test]
fn every_case_has_its_course_however_it_is_cut() {
    for Case { name, frames, course } in cases() {
        let all = frames.concat();
        let by_frame: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
        assert_eq!(run(&by_frame, 1 << 17), course, "{name}, frame by frame");
        if all.len() < 1_000 {
            let bytes: Vec<&[u8]> = all.chunks(1).collect();
            assert_eq!(run(&bytes, 1 << 17), course, "{name}, byte by byte");
        }
        for buffer_bytes in [13, 1 << 17] {
            // Only the last of several Pings in one read is answered (section 5.5.3).
            let Course { read, pongs, end } = run(&[&all], buffer_bytes);
            assert_eq!((&read, end), (&course.read, course.end), "{name}, in one piece");
            assert_eq!(pongs.last(), course.pongs.last(), "{name}, in one piece");
        }
    }
}

#[test]
fn the_longest_head_is_the_same_however_it_is_cut() {
    let request = String::from_utf8(REQUEST.to_vec()).expect("text");
    let filled = |bytes: usize| {
        let field = format!("A: {}\r\n\r\n", "a".repeat(bytes - request.len() - 5));
        request.replace("mqtt\r\n\r\n", &format!("mqtt\r\n{field}"))
    };
    for (bytes, is_accepted) in [(upgrade::HEAD_BYTES_MAX, true), (upgrade::HEAD_BYTES_MAX + 1, false)] {
        let head = filled(bytes);
        assert_eq!(head.len(), bytes);
        for piece_bytes in [1, 100, 8_191, 8_192, 8_193] {
            let pipe = Pipe::new(1 << 20);
            let mut connection = WebSocket::new(pipe.clone(), Arc::default());
            head.as_bytes().chunks(piece_bytes).for_each(|piece| pipe.put(piece));
            let mut buffer = vec![0; 1 << 16];
            let refused = loop {
                match connection.read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    end => break end.expect_err("no bytes").kind() == io::ErrorKind::InvalidData,
                }
            };
            drop(connection.flush());
            let status = if is_accepted { &b"HTTP/1.1 101 "[..] } else { b"HTTP/1.1 431 " };
            assert!(pipe.take_written().starts_with(status), "{bytes} bytes in pieces of {piece_bytes}");
            assert_eq!(refused, !is_accepted);
        }
    }
}

/// The broker tries to write again and again.
#[test]
fn pings_of_a_client_that_takes_nothing_do_not_pile_up() {
    let pipe = Pipe::new(REQUEST.len());
    let mut connection = WebSocket::new(pipe.clone(), Arc::default());
    pipe.put(REQUEST);
    let mut buffer = vec![0; 1_000];
    drop(connection.read(&mut buffer));
    for _ in 0..1_000 {
        pipe.put(&frame(PING, &[7; 125]));
        drop(connection.read(&mut buffer));
        drop(connection.flush());
        drop(connection.write(&[IoSlice::new(b"\xd0\x00")]));
        assert!(connection.held_bytes() < 1_000, "{} bytes", connection.held_bytes());
    }
}
