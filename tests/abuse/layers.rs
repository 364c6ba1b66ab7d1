//! T: TLS. X: WebSocket. Y: the PROXY protocol. Peers that attack the layers below MQTT.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, DEADLINE, RawClient, Version, until};
use tempfile::TempDir;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::stage::{crowd, play, sized};

/// The request of a browser.
const UPGRADE: &[u8] = b"GET /mqtt HTTP/1.1\r\nHost: pond\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Sec-WebSocket-Protocol: mqtt\r\nOrigin: https://pond.example\r\n\r\n";
/// The header of a load balancer.
const HEADER: &[u8] = b"PROXY TCP4 192.0.2.7 192.0.2.8 40007 1883\r\n";
/// The beginning of a header of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// A client that does not end its CONNECT is closed so soon.
const HASTY: &str = "[limits]\nconnect_timeout = \"300 ms\"\n";

/// The listeners of a broker, in their order.
struct Listeners {
    plain: SocketAddr,
    tls: SocketAddr,
    /// Behind load balancers of this machine.
    proxied: SocketAddr,
    /// The same, for MQTT alone.
    proxied_mqtt: SocketAddr,
    /// Behind load balancers of another network.
    elsewhere: SocketAddr,
}

/// Plays a row against brokers with these listeners. The innocent clients use the first.
fn play_layers(settings: &str, row: impl Fn(&Broker, &Listeners)) {
    let directory = TempDir::new().expect("a temporary directory");
    let file = |name: &str| directory.path().join(name);
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    fs::write(file("server.pem"), made.cert.pem()).expect("a temporary file");
    fs::write(file("server.key"), made.signing_key.serialize_pem()).expect("a temporary file");
    let tls = format!("tls_certificate = {:?}\ntls_key = {:?}\n", file("server.pem"), file("server.key"));
    let keys = [
        "websocket_origins = \"https://pond.example\"\n",
        &tls,
        "proxy_from = \"127.0.0.1\"\n",
        "proxy_from = \"127.0.0.1\"\nprotocol = \"mqtt\"\n",
        "proxy_from = \"192.0.2.0/24\"\n",
    ];
    let listeners = keys.map(|keys| format!("[[listener]]\naddress = \"127.0.0.1:0\"\n{keys}")).concat();
    play(&format!("{settings}{listeners}"), |broker| {
        let lines: [String; 5] = until("all listen", || broker.log_lines("listening on ").try_into().ok());
        let [plain, tls, proxied, proxied_mqtt, elsewhere] = lines.map(|line| {
            let address = line.split_whitespace().nth(2).and_then(|address| address.parse().ok());
            address.expect("the line names an address")
        });
        row(broker, &Listeners { plain, tls, proxied, proxied_mqtt, elsewhere });
    });
}

/// Everything that is sent until the broker closes the connection.
fn answer(to: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut peer = RawClient::connect(to);
    peer.send(bytes);
    peer.read_to_end()
}

/// A frame of a client, with a mask of zeros.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len();
    let header = match u8::try_from(length) {
        Ok(short @ ..126) => vec![first, 0x80 | short],
        _ => [&[first, 0xfe][..], &u16::try_from(length).expect("a short frame").to_be_bytes()].concat(),
    };
    [&header[..], &[0; 4], payload].concat()
}

/// The first bytes of a handshake.
fn client_hello() -> Vec<u8> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("both versions")
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let mut connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).expect("a vector takes all");
    hello
}

/// Among them are handshakes that the client does not finish: it has sent its whole first message.
#[test]
fn t_02_clients_that_stop_anywhere_in_any_layer() {
    play_layers(HASTY, |_, listeners| {
        let connect = Connect::new(Version::V5, "slow").bytes();
        let in_frame = [UPGRADE, &frame(0x82, &connect)].concat();
        let whole = [
            (listeners.tls, client_hello()),
            (listeners.plain, in_frame.clone()),
            (listeners.proxied, [HEADER, &connect].concat()),
            (listeners.proxied, [HEADER, &in_frame].concat()),
        ];
        let count = crowd(400, 10_000);
        let peers: Vec<RawClient> = (0..count)
            .map(|number| {
                let (address, bytes) = &whole[number % whole.len()];
                // The last byte of the CONNECT is never sent. The end of a ClientHello is not the end of a handshake.
                let most = if number % whole.len() == 0 { bytes.len() } else { bytes.len() - 1 };
                let mut peer = RawClient::connect(*address);
                peer.send(&bytes[..most - number / whole.len() % most]);
                peer
            })
            .collect();
        for mut peer in peers {
            peer.read_to_end();
        }
    });
}

#[test]
fn t_02_bytes_that_are_no_handshake() {
    play_layers("", |_, listeners| {
        let rows: [(&str, &[u8]); 5] = [
            ("MQTT", &Connect::new(Version::V5, "plain").bytes()),
            ("a request", UPGRADE),
            ("a record that is too long", b"\x16\x03\x01\xff\xff\x01\x00\x00\x00"),
            ("a record of another kind", b"\x17\x03\x03\x00\x01x"),
            ("a message of 16 MiB", &[&b"\x16\x03\x01\x40\x00\x01\xff\xff\xff"[..], &[0; 16_380]].concat()),
        ];
        for (name, bytes) in rows {
            // Nothing, or an alert. A message without an end is closed when the client has nothing more to send.
            let mut peer = RawClient::connect(listeners.tls);
            peer.send(bytes);
            peer.finish();
            let answer = peer.read_to_end();
            assert!(matches!(answer[..], [] | [0x15, ..]), "{name}: {answer:02x?}");
        }
        // Records of one byte each are slow, and no attack: the handshake goes on, or ends with an alert.
        let hello = client_hello();
        let records: Vec<u8> = hello[5..].iter().flat_map(|byte| [0x16, 3, 1, 0, 1, *byte]).collect();
        let mut peer = RawClient::connect(listeners.tls);
        peer.send(&records);
        peer.finish();
        assert!(matches!(peer.read_to_end()[..], [0x15 | 0x16, ..]));
    });
}

/// Every first byte, and the first bytes of every layer with others behind them.
#[test]
fn t_05_first_bytes_that_lead_to_no_layer() {
    play_layers(HASTY, |_, listeners| {
        let noise = (0..=u8::MAX).map(|first| [&[first][..], &[0; 64]].concat());
        let mixed = [
            [b"GE", &Connect::new(Version::V5, "a").bytes()[..]].concat(),
            [b"\x10", UPGRADE].concat(),
            [b"\x16\x03", UPGRADE].concat(),
            [SIGNATURE, b"\x21\x11\x00\x00", UPGRADE].concat(),
            [&HEADER[..6], UPGRADE].concat(),
            [&SIGNATURE[..11], b"\x10\x00"].concat(),
            HEADER.to_vec(),
            client_hello(),
        ];
        let peers: Vec<(Vec<u8>, RawClient)> = noise
            .chain(mixed)
            .map(|bytes| {
                let mut peer = RawClient::connect(listeners.plain);
                peer.send(&bytes);
                (bytes, peer)
            })
            .collect();
        for (bytes, mut peer) in peers {
            let answer = peer.read_to_end();
            let is_silent = answer.is_empty() || answer.starts_with(b"HTTP/1.1 4");
            assert!(is_silent, "{:02x?}: {answer:02x?}", &bytes[..8]);
        }
    });
}

fn upgrade_with(from: &str, to: &str) -> Vec<u8> {
    let text = std::str::from_utf8(UPGRADE).expect("it is text");
    assert!(text.contains(from));
    text.replace(from, to).into_bytes()
}

#[test]
fn x_01_requests_that_are_no_upgrade() {
    play_layers("", |_, listeners| {
        let rows: [(Vec<u8>, &str); 8] = [
            (upgrade_with("Sec-WebSocket-Protocol: mqtt\r\n", ""), "400"),
            (upgrade_with("Protocol: mqtt", "Protocol: amqp"), "400"),
            (upgrade_with("Version: 13", "Version: 8"), "426"),
            (upgrade_with("dGhlIHNhbXBsZSBub25jZQ==", "c2hvcnQ="), "400"),
            (upgrade_with("GET", "PUT"), "405"),
            (upgrade_with("https://pond.example", "https://pond.example.evil"), "403"),
            (upgrade_with("https://pond.example", &"a".repeat(300)), "403"),
            (upgrade_with("Host: pond", &format!("A: {}", "a".repeat(9_000))), "431"),
        ];
        for (request, status) in rows {
            let answer = answer(listeners.plain, &request);
            let text = String::from_utf8_lossy(&answer);
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {text}");
        }
        // Clients that are no web pages send no origin.
        let mut peer = RawClient::connect(listeners.plain);
        peer.send(&upgrade_with("Origin: https://pond.example\r\n", ""));
        peer.expect(b"HTTP/1.1 101 ");
    });
}

#[test]
fn x_02_frames_that_break_a_rule() {
    play_layers("", |_, listeners| {
        let connect = frame(0x82, &Connect::new(Version::V5, "frog").bytes());
        let part = |first: u8| frame(first, b"\x30");
        let rows: [(&str, Vec<u8>, u16); 12] = [
            ("text", frame(0x81, b"x"), 1003),
            ("not masked", b"\x82\x01x".to_vec(), 1002),
            ("compressed, which nobody offered", frame(0xc2, b"x"), 1002),
            ("reserved data opcode", frame(0x83, b"x"), 1002),
            ("reserved control opcode", frame(0x8b, b"x"), 1002),
            ("a long Ping", frame(0x89, &[0; 126]), 1002),
            ("a Ping in fragments", frame(0x09, b"x"), 1002),
            ("a message in another", [part(0x02), part(0x82)].concat(), 1002),
            ("a continuation of nothing", frame(0x80, b"x"), 1002),
            ("a length of 2^63", b"\x82\xff\x80\0\0\0\0\0\0\0\0\0\0\0x".to_vec(), 1002),
            ("a reason that is no text", frame(0x88, b"\x03\xe8\xc0\xaf"), 1007),
            (
                "a Close in the middle of a message, and data behind it",
                [part(0x02), frame(0x88, b"\x03\xe8"), part(0x80)].concat(),
                1000,
            ),
        ];
        for (name, frames, status) in rows {
            let answer = answer(listeners.plain, &[UPGRADE, &connect, &frames].concat());
            // The Close frame is the last, and behind it is nothing.
            let close = [0x88, 0x02, status.to_be_bytes()[0], status.to_be_bytes()[1]];
            let at = answer.windows(4).rposition(|bytes| bytes[0] == 0x88 && bytes[2..] == close[2..]);
            let at =
                at.unwrap_or_else(|| panic!("{name}: {:02x?}", &answer[answer.len().saturating_sub(40)..]));
            assert_eq!(at + 2 + usize::from(answer[at + 1]), answer.len(), "{name}");
        }
    });
}

/// Reads until these bytes have come.
fn read_to(socket: &mut TcpStream, needle: &[u8]) {
    let mut read = Vec::new();
    while !read.windows(needle.len()).any(|bytes| bytes == needle) {
        let mut byte = [0];
        socket.read_exact(&mut byte).expect("the broker goes on");
        read.extend(byte);
    }
}

#[test]
fn x_03_a_frame_without_an_end_and_a_packet_in_many_frames() {
    play_layers("", |_, listeners| {
        let connect = Connect::new(Version::V5, "endless").bytes();
        let endless = [&b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0"[..], &connect].concat();
        // A byte in each frame, and a Ping between them.
        let last = connect.len() - 1;
        let pieces: Vec<u8> = connect
            .iter()
            .enumerate()
            .flat_map(|(at, byte)| {
                let first = 2 * u8::from(at == 0) + 0x80 * u8::from(at == last);
                [frame(first, &[*byte]), frame(0x89, b"?")].concat()
            })
            .collect();
        for frames in [endless, pieces] {
            let mut socket = TcpStream::connect(listeners.plain).expect("the broker listens");
            socket.set_read_timeout(Some(DEADLINE)).expect("a duration");
            socket.write_all(&[UPGRADE, &frames].concat()).expect("the broker reads");
            read_to(&mut socket, b"\r\n\r\n");
            // CONNACK, in a frame.
            read_to(&mut socket, b"\x20");
        }
    });
}

#[test]
fn x_05_floods_of_frames_that_say_nothing() {
    let count = sized(20_000, 1_000_000);
    play_layers("", |_, listeners| {
        let connect = frame(0x82, &Connect::new(Version::V5, "flood").bytes());
        let floods = [
            ("Pings of 125 bytes", Vec::new(), frame(0x89, &[b'?'; 125])),
            ("Pongs", Vec::new(), frame(0x8a, b"")),
            ("empty messages", Vec::new(), frame(0x82, b"")),
            ("empty parts of a message", frame(0x02, b""), frame(0x00, b"")),
        ];
        for (_, begin, flood) in floods {
            let mut peer = RawClient::connect(listeners.plain);
            peer.send(&[UPGRADE, &connect, &begin].concat());
            // The peer takes no answer. The broker stops reading, or goes on: either way it keeps a bounded part.
            for _ in 0..count {
                if peer.offer(&flood) < flood.len() {
                    break;
                }
            }
            peer.reset();
        }
    });
}

#[test]
fn y_01_headers_from_elsewhere_and_connections_without_one() {
    play_layers("", |broker, listeners| {
        let connect = Connect::new(Version::V5, "frog").bytes();
        let with_header = [HEADER, &connect].concat();
        assert_eq!(answer(listeners.elsewhere, &with_header), [0; 0]);
        assert_eq!(answer(listeners.proxied, &connect), [0; 0]);
        assert_eq!(answer(listeners.plain, &with_header), [0; 0]);
        broker.wait_for_log("its address is in no network of `proxy_from`");
        let mut peer = RawClient::connect(listeners.proxied);
        peer.send(&with_header);
        assert_eq!(peer.read_packet()[0], 0x20);
        let line = broker.wait_for_log("client_id=frog ");
        assert!(line.contains("peer=192.0.2.7:40007"), "{line}");
    });
}

#[test]
fn y_02_headers_that_are_malformed_doubled_or_hide_something() {
    play_layers("", |_, listeners| {
        let connect = Connect::new(Version::V5, "frog").bytes();
        let v2 = |rest: &[u8]| [SIGNATURE, rest].concat();
        let rows: [(&str, Vec<u8>); 8] = [
            ("two headers", [HEADER, HEADER, &connect].concat()),
            ("two headers of different versions", [HEADER, &v2(b"\x20\x00\x00\x00"), &connect].concat()),
            ("a line without an end", [&b"PROXY TCP4 "[..], &[b'1'; 108]].concat()),
            ("an address that is none", b"PROXY TCP4 192.0.2.256 192.0.2.8 1 1\r\n".to_vec()),
            ("a port that is none", b"PROXY TCP4 192.0.2.7 192.0.2.8 65536 1\r\n".to_vec()),
            ("another version", v2(b"\x31\x11\x00\x0c\xc0\x00\x02\x07\xc0\x00\x02\x08\x9c\x47\x07\x5b")),
            ("addresses that do not fit", v2(b"\x21\x11\x00\x04\xc0\x00\x02\x07")),
            (
                "a field that is cut",
                v2(b"\x21\x11\x00\x0e\xc0\x00\x02\x07\xc0\x00\x02\x08\x9c\x47\x07\x5b\x01\x00"),
            ),
        ];
        for (name, bytes) in rows {
            assert_eq!(answer(listeners.proxied, &bytes), [0; 0], "{name}");
        }
        // An upgrade behind a header is an upgrade, and not where only MQTT is spoken.
        let hidden = [HEADER, UPGRADE].concat();
        assert_eq!(answer(listeners.proxied_mqtt, &hidden), [0; 0]);
        let mut peer = RawClient::connect(listeners.proxied);
        peer.send(&hidden);
        peer.expect(b"HTTP/1.1 101 ");
    });
}
