//! MQTT over WebSocket (section 6).

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use pondhawk_tests::packet::{self, Connect};
use pondhawk_tests::{Broker, DEADLINE, Version};

use crate::peer::{BOTH, in_each};

const KEY: [u8; 4] = [0x12, 0x34, 0x56, 0x78];
const BINARY: u8 = 0x02;
const LAST: u8 = 0x80;

/// A WebSocket client that shows frames.
struct Web(TcpStream);

impl Web {
    /// Sends an upgrade request with these subprotocols. Returns the head of the answer.
    fn request(broker: &Broker, protocols: &str) -> (Self, String) {
        let mut socket = TcpStream::connect(broker.address()).expect("the broker listens");
        socket.set_read_timeout(Some(DEADLINE)).expect("a duration");
        let request = format!(
            "GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{protocols}\r\n"
        );
        socket.write_all(request.as_bytes()).expect("the broker reads");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            socket.read_exact(&mut byte).expect("the broker answers");
            head.push(byte[0]);
        }
        (Self(socket), String::from_utf8(head).expect("a head is text"))
    }

    fn open(broker: &Broker) -> Self {
        let (web, head) = Self::request(broker, "Sec-WebSocket-Protocol: mqtt\r\n");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        web
    }

    fn send(&mut self, first: u8, payload: &[u8]) {
        let length = u8::try_from(payload.len()).ok().filter(|length| *length < 126).expect("a short frame");
        let mut frame = vec![first, 0x80 | length];
        frame.extend(KEY);
        frame.extend(payload.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key));
        self.0.write_all(&frame).expect("the broker reads");
    }

    /// The next short frame: its first byte and its payload.
    fn read(&mut self) -> (u8, Vec<u8>) {
        let mut header = [0; 2];
        self.0.read_exact(&mut header).expect("a frame");
        assert!(header[1] < 126, "a short frame that is not masked: {header:02x?}");
        let mut payload = vec![0; usize::from(header[1])];
        self.0.read_exact(&mut payload).expect("its payload");
        (header[0], payload)
    }

    fn has_ended(&mut self) -> bool {
        self.0.shutdown(Shutdown::Write).expect("it is open");
        let mut rest = Vec::new();
        matches!(self.0.read_to_end(&mut rest), Ok(0))
    }
}

/// [MQTT-6.0.0-1, 3.1.1 MQTT-6.0.0-1]
#[test]
fn mqtt_in_a_text_frame_closes_the_connection() {
    in_each(BOTH, |broker, version| {
        let mut web = Web::open(broker);
        web.send(LAST | 0x01, &Connect::new(version, "frog").bytes());
        assert_eq!(web.read(), (0x88, 1003_u16.to_be_bytes().to_vec()), "a Close frame: unsupported data");
        assert!(web.has_ended());
        let mut web = Web::open(broker);
        web.send(LAST | BINARY, &Connect::new(version, "frog").bytes());
        let (first, connack) = web.read();
        assert_eq!(first, LAST | BINARY, "the server sends binary frames too");
        assert!(packet::is_accepted(&connack), "{connack:02x?}");
    });
}

/// [MQTT-6.0.0-2, 3.1.1 MQTT-6.0.0-2]
#[test]
fn packets_and_frames_need_not_begin_and_end_together() {
    in_each(BOTH, |broker, version| {
        let connect = Connect::new(version, "frog").bytes();
        let ping = [0xc0, 0x00];
        for cut in 1..connect.len() {
            let mut web = Web::open(broker);
            let (first, second) = connect.split_at(cut);
            web.send(BINARY, first);
            web.send(LAST | 0x09, b"in between");
            // The rest of CONNECT, a whole PINGREQ and half of another.
            web.send(LAST, &[second, &ping, &ping[..1]].concat());
            web.send(LAST | BINARY, &ping[1..]);
            let (mut packets, mut pongs) = (Vec::new(), 0);
            while packets.len() < 4 || !packets.ends_with(&[0xd0, 0, 0xd0, 0]) {
                match web.read() {
                    (0x8a, payload) => {
                        assert_eq!(payload, b"in between");
                        pongs += 1;
                    }
                    (first, payload) => {
                        assert_eq!(first, LAST | BINARY);
                        packets.extend(payload);
                    }
                }
            }
            assert!(packet::is_accepted(&packets) && pongs == 1, "{cut}: {packets:02x?}, {pongs} pongs");
        }
    });
}

/// [MQTT-6.0.0-3, MQTT-6.0.0-4, 3.1.1 MQTT-6.0.0-3, 3.1.1 MQTT-6.0.0-4]
#[test]
fn the_subprotocol_is_mqtt() {
    let broker = Broker::start(&pondhawk_tests::Options::default());
    let (_, head) = Web::request(&broker, "Sec-WebSocket-Protocol: soap, mqtt\r\n");
    assert!(
        head.starts_with("HTTP/1.1 101 ") && head.contains("\r\nSec-WebSocket-Protocol: mqtt\r\n"),
        "{head}"
    );
    for without in ["", "Sec-WebSocket-Protocol: soap\r\n"] {
        let (_, head) = Web::request(&broker, without);
        assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    }
    let mut web = Web::open(&broker);
    web.send(LAST | BINARY, &Connect::new(Version::V5, "frog").bytes());
    assert!(packet::is_accepted(&web.read().1));
}
