//! The table of behaviours of a malicious server.

use std::sync::OnceLock;

use crate::bytes::{
    ESCAPES, all_numbers, connack, connack_of, escapes, field, frame, numbered, packet, pairs, properties,
    publish, publish_to, record, varint,
};
use crate::server::Layer;
use crate::server::Step::{
    self, Answer, Behave, Close, Deaf, Flood, FloodAndRead, HalfClose, Hear, Say, Trickle,
};

/// A server that does this on each connection.
pub(crate) struct Behaviour {
    pub(crate) name: &'static str,
    pub(crate) layer: Layer,
    pub(crate) script: Vec<Step>,
}

const CONNECT: u8 = 1;
const PUBLISH: u8 = 3;
const SUBSCRIBE: u8 = 8;

/// Larger than all buffers between the server and a client, and a client's own.
const FLOOD: usize = 24 << 20;

/// More than any client may keep.
const DELUGE: usize = 200 << 20;

/// All behaviours. The first one is that of a server that means well.
pub(crate) fn all() -> &'static [Behaviour] {
    static ALL: OnceLock<Vec<Behaviour>> = OnceLock::new();
    ALL.get_or_init(make)
}

fn make() -> Vec<Behaviour> {
    let mqtt = [before_connack(), connacks(), after_connack(), publishes(), floods(), acknowledgements()];
    let mqtt = mqtt.into_iter().flatten().map(|row| (Layer::Mqtt, row));
    let frames = frames().into_iter().map(|row| (Layer::Frames, row));
    let http = http().into_iter().map(|row| (Layer::Http, row));
    let records = records().into_iter().map(|row| (Layer::Records, row));
    let all = mqtt.chain(frames).chain(http).chain(records);
    all.map(|(layer, (name, script))| Behaviour { name, layer, script }).collect()
}

type Row = (&'static str, Vec<Step>);

/// A server that has accepted a client, and then does this.
fn accepted(then: impl IntoIterator<Item = Step>) -> Vec<Step> {
    [Hear(CONNECT), Say(connack(&[]))].into_iter().chain(then).collect()
}

/// A server that has accepted a client and its subscription, if it makes one, and then does this.
fn subscribed(then: impl IntoIterator<Item = Step>) -> Vec<Step> {
    let begin = accepted([Hear(SUBSCRIBE), Answer(|id| suback(id, &[2]))]);
    begin.into_iter().chain(then).collect()
}

/// A server that answers CONNECT with this.
fn answered(bytes: Vec<u8>) -> Vec<Step> {
    vec![Hear(CONNECT), Say(bytes), Behave]
}

fn suback(id: u16, reasons: &[u8]) -> Vec<u8> {
    packet(0x90, &[&id.to_be_bytes()[..], &[0], reasons].concat())
}

fn before_connack() -> Vec<Row> {
    vec![
        ("behaves", vec![Behave]),
        ("never answers", vec![Deaf]),
        ("closes at once", vec![Close]),
        ("half-closes at once", vec![HalfClose, Deaf]),
        ("closes after CONNECT", vec![Hear(CONNECT), Close]),
        ("accepts before CONNECT", vec![Say(connack(&[])), Behave]),
        ("answers byte by byte", vec![Hear(CONNECT), Trickle(connack(&[])), Behave]),
        ("never ends its answer", vec![Hear(CONNECT), Say(connack(&[])[..3].to_vec()), Deaf]),
        ("publishes first", answered(publish(0, 0, &[], b"x"))),
        ("releases first", answered(numbered(0x62, 1))),
        ("pings first", answered(vec![0xd0, 0])),
        ("disconnects instead of an answer", answered(packet(0xe0, &[0x8b]))),
        ("authenticates instead of an answer", answered(packet(0xf0, &[0x18, 0]))),
        ("sends random bytes", vec![Say((0..=255).map(|byte: u8| byte.wrapping_mul(151) ^ 0x5a).collect())]),
        ("sends zeros", vec![Flood(vec![0; 1_024], FLOOD)]),
        ("sends ones", vec![Flood(vec![0xff; 1_024], FLOOD)]),
        ("answers in HTTP", vec![Hear(CONNECT), Say(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec())]),
        ("answers in TLS", vec![Hear(CONNECT), Say(record(21, &[2, 40])), Close]),
        ("announces a length of five bytes", answered(vec![0x20, 0xff, 0xff, 0xff, 0xff, 0x7f])),
        ("sends packet type 0", answered(packet(0, &[]))),
    ]
}

fn connacks() -> Vec<Row> {
    let reason = |code: u8, with: Vec<u8>| answered(connack_of([0, code], &with));
    let property = |with: &[u8]| answered(connack(with));
    let itself = |code: u8| reason(code, [&[0x1c][..], &field(b"localhost")].concat());
    vec![
        ("accepts twice", accepted([Say(connack(&[])), Behave])),
        ("accepts for ever", accepted([Flood(connack(&[]), FLOOD)])),
        ("accepts with many properties", property(&pairs(1_000_000))),
        ("accepts with too many properties", property(&pairs(16_000_000))),
        (
            "announces a CONNACK of 256 MiB",
            vec![Hear(CONNECT), Say(vec![0x20, 0xff, 0xff, 0xff, 0x7f]), Deaf],
        ),
        (
            "sends a CONNACK of 256 MiB",
            vec![Hear(CONNECT), Say(vec![0x20, 0xff, 0xff, 0xff, 0x7f]), Flood(vec![0; 1_024], DELUGE)],
        ),
        ("refuses with escapes", reason(0x87, [escapes(0x1f), escapes(0x1c)].concat())),
        ("redirects to itself for now", itself(0x9c)),
        ("redirects to itself for good", itself(0x9d)),
        ("refuses for the moment", reason(0x89, Vec::new())),
        ("refuses with an unknown reason", reason(0xff, Vec::new())),
        ("sets reserved flags in CONNACK", answered(connack_of([0xfe, 0], &[]))),
        ("has a session that nobody wanted", answered(connack_of([1, 0], &[]))),
        ("has a Receive Maximum of 0", property(&[0x21, 0, 0])),
        ("has a Receive Maximum of 1", property(&[0x21, 0, 1])),
        ("has a Maximum Packet Size of 0", property(&[0x27, 0, 0, 0, 0])),
        ("has a Maximum Packet Size of 1", property(&[0x27, 0, 0, 0, 1])),
        ("has a Maximum QoS of 2", property(&[0x24, 2])),
        ("has no QoS, wildcards or identifiers", property(&[0x24, 0, 0x28, 0, 0x29, 0, 0x2a, 0])),
        ("has a Topic Alias Maximum of 65,535", property(&[0x22, 0xff, 0xff])),
        (
            "has a keep alive of 1 s, and no PINGRESP",
            vec![Hear(CONNECT), Say(connack(&[0x13, 0, 1])), Hear(15), Hear(15), Deaf],
        ),
        ("has a keep alive of 0", property(&[0x13, 0, 0])),
        ("assigns a long name", property(&[&[0x12][..], &field(&[b'x'; 65_535])].concat())),
        ("assigns a name with escapes", property(&escapes(0x12))),
        ("has a property twice", property(&[0x24, 1, 0x24, 1])),
        ("has an unknown property", property(&[0x7f, 0])),
        ("has invalid UTF-8 in a Reason String", property(&[0x1f, 0, 2, 0xc3, 0x28])),
        ("has properties beyond its packet", answered(packet(0x20, &[0, 0, 0x7f, 0x1f]))),
    ]
}

fn after_connack() -> Vec<Row> {
    let goodbye = |with: &[u8]| packet(0xe0, &[&[0x8b][..], &properties(with)].concat());
    vec![
        ("closes after CONNACK", accepted([Close])),
        ("half-closes after CONNACK", accepted([HalfClose, Behave])),
        ("accepts and disconnects in one segment", answered([connack(&[]), goodbye(&[])].concat())),
        ("disconnects with escapes", accepted([Say(goodbye(&[escapes(0x1f), escapes(0x1c)].concat()))])),
        ("disconnects and goes on", accepted([Say(goodbye(&[])), Behave])),
        ("disconnects for ever", accepted([Flood(goodbye(&[]), FLOOD)])),
        ("disconnects with a client's reason", accepted([Say(packet(0xe0, &[4]))])),
        ("authenticates unasked", accepted([Say(packet(0xf0, &[0x19, 0])), Behave])),
        (
            "authenticates for ever",
            accepted([Flood(packet(0xf0, &[0x18, 5, 0x15, 0, 2, b'a', b'b']), FLOOD)]),
        ),
        ("connects", accepted([Say(packet(0x10, b"\0\x04MQTT\x05\x02\0\0\0\0\0"))])),
        ("subscribes", accepted([Say(packet(0x82, b"\0\x01\0\0\x01t\0"))])),
        ("unsubscribes", accepted([Say(packet(0xa2, b"\0\x01\0\0\x01t"))])),
        ("sends PINGREQ", accepted([Say(vec![0xc0, 0])])),
        ("answers pings that nobody sent", accepted([Flood(vec![0xd0, 0], FLOOD)])),
        ("never reads again", accepted([Deaf])),
        ("redirects to itself later", accepted([Say(redirect()), Close])),
    ]
}

/// DISCONNECT that sends the client to this server.
fn redirect() -> Vec<u8> {
    packet(0xe0, &[&[0x9c][..], &properties(&[&[0x1c][..], &field(b"localhost")].concat())].concat())
}

fn publishes() -> Vec<Row> {
    let one = |bytes: Vec<u8>| subscribed([Say(bytes), Behave]);
    let with = |properties: &[u8]| one(publish(0, 0, properties, b"x"));
    let large = vec![b'['; 15 << 20];
    let controls = vec![1; 15 << 20];
    vec![
        ("publishes at QoS 3", one(packet(0x36, b"\0\x01t\0\x01\0x"))),
        ("publishes to a wildcard", one(publish_to(b"a/#", 0, 0, &[], b"x"))),
        ("publishes to no topic", one(publish_to(b"", 0, 0, &[], b"x"))),
        ("publishes to a topic with a NUL", one(publish_to(b"a\0b", 0, 0, &[], b"x"))),
        ("publishes to a topic of invalid UTF-8", one(publish_to(b"\xff\xfe", 0, 0, &[], b"x"))),
        ("publishes to a topic with escapes", one(publish_to(ESCAPES, 0, 0, &[], ESCAPES))),
        ("publishes with topic alias 0", with(&[0x23, 0, 0])),
        ("publishes with a topic alias too large", with(&[0x23, 0xff, 0xff])),
        ("publishes with an unknown topic alias", one(publish_to(b"", 0, 0, &[0x23, 0, 1], b"x"))),
        ("publishes with packet identifier 0", one(publish(1, 0, &[], b"x"))),
        ("publishes with subscription identifier 0", with(&[0x0b, 0])),
        ("publishes with many subscription identifiers", with(&[0x0b, 1].repeat(1_000_000))),
        ("publishes with many User Properties", with(&pairs(15_000_000))),
        ("publishes with a long response topic", with(&[&[8][..], &field(&[b'x'; 65_535])].concat())),
        ("announces a message of 256 MiB", subscribed([Say(vec![0x30, 0xff, 0xff, 0xff, 0x7f]), Deaf])),
        (
            "sends a message of 256 MiB",
            subscribed([
                Say([&[0x30, 0xff, 0xff, 0xff, 0x7f][..], b"\0\x01t\0"].concat()),
                Flood(vec![0; 1_024], DELUGE),
            ]),
        ),
        ("publishes JSON that is deep", one(publish(0, 0, &[], &large))),
        ("publishes JSON that is wide", one(publish(0, 0, &[], &json(b"1,", 15 << 20)))),
        ("publishes JSON with many names", one(publish(0, 0, &[], &json(b"{},", 15 << 20)))),
        ("publishes control characters", one(publish(0, 0, &[], &controls))),
        ("publishes bytes that are no text", one(publish(0, 0, &[], &vec![0xff; 15 << 20]))),
        (
            "publishes one message again and again",
            subscribed([FloodAndRead(publish(2, 7, &[], &[b'x'; 1_000]), FLOOD)]),
        ),
        ("answers requests to itself", subscribed([Hear(PUBLISH), Say(answer()), Behave])),
    ]
}

/// A list of JSON with the same item again and again.
fn json(item: &[u8], bytes: usize) -> Vec<u8> {
    [b"[", &item.repeat(bytes / item.len())[..], b"0]"].concat()
}

/// A message to the topic at which `rr` waits for its answer.
fn answer() -> Vec<u8> {
    publish_to(b"answer", 0, 0, &escapes(3), ESCAPES)
}

fn floods() -> Vec<Row> {
    let large = |qos: u8| (1..=200).flat_map(|id| publish(qos, id, &[], &[b'x'; 100_000])).collect();
    let small = |qos: u8| all_numbers(|id| publish(qos, id, &[], b""));
    let names = |qos: u8| all_numbers(|id| publish_to(format!("t/{id}").as_bytes(), qos, id, &[], b"x"));
    vec![
        ("floods with QoS 0", subscribed([Flood(small(0), FLOOD)])),
        ("floods with QoS 1", subscribed([Flood(small(1), FLOOD)])),
        ("floods with QoS 2", subscribed([Flood(small(2), FLOOD)])),
        ("floods with QoS 0, and reads", subscribed([FloodAndRead(names(0), FLOOD)])),
        ("floods with QoS 1, and reads", subscribed([FloodAndRead(names(1), FLOOD)])),
        ("floods with QoS 2, and reads", subscribed([FloodAndRead(names(2), FLOOD)])),
        ("floods with large messages of QoS 0", subscribed([Flood(large(0), DELUGE)])),
        ("floods with large messages of QoS 1", subscribed([Flood(large(1), DELUGE)])),
        ("floods with large messages of QoS 2", subscribed([Flood(large(2), DELUGE)])),
        ("floods with large messages, and reads", subscribed([FloodAndRead(large(1), DELUGE)])),
        ("floods a client that did not subscribe", accepted([Flood(large(1), DELUGE)])),
        ("floods before the answer to SUBSCRIBE", accepted([Hear(SUBSCRIBE), Flood(large(2), DELUGE)])),
        ("floods with properties", subscribed([Flood(publish(0, 0, &pairs(900_000), b""), DELUGE)])),
        ("releases for ever", subscribed([Flood(all_numbers(|id| numbered(0x62, id)), FLOOD)])),
    ]
}

fn acknowledgements() -> Vec<Row> {
    let ids = |first: u8| subscribed([Flood(all_numbers(|id| numbered(first, id)), FLOOD)]);
    let to_publish = |answer: fn(u16) -> Vec<u8>| {
        accepted([Hear(SUBSCRIBE), Answer(|id| suback(id, &[2])), Hear(PUBLISH), Answer(answer), Behave])
    };
    let to_subscribe = |answer: fn(u16) -> Vec<u8>| accepted([Hear(SUBSCRIBE), Answer(answer), Behave]);
    vec![
        ("acknowledges QoS 1 for ever", ids(0x40)),
        ("receives QoS 2 for ever", ids(0x50)),
        ("completes QoS 2 for ever", ids(0x70)),
        ("acknowledges with the wrong packet", to_publish(|id| numbered(0x40, id))),
        ("acknowledges twice", to_publish(|id| [numbered(0x50, id), numbered(0x50, id)].concat())),
        ("acknowledges another message", to_publish(|id| numbered(0x50, id ^ 0x5555))),
        ("acknowledges message 0", to_publish(|_| numbered(0x50, 0))),
        ("completes what it has not received", to_publish(|id| numbered(0x70, id))),
        ("never completes", accepted([Hear(PUBLISH), Answer(|id| numbered(0x50, id)), Deaf])),
        (
            "refuses a message with escapes",
            to_publish(|id| {
                packet(0x50, &[&id.to_be_bytes()[..], &[0x97], &properties(&escapes(0x1f))].concat())
            }),
        ),
        ("never grants", accepted([Hear(SUBSCRIBE), Deaf])),
        ("grants another subscription", to_subscribe(|id| suback(id ^ 0x5555, &[0]))),
        ("grants nothing", to_subscribe(|id| suback(id, &[]))),
        ("grants too much", to_subscribe(|id| suback(id, &[0; 1_000]))),
        ("grants twice", to_subscribe(|id| suback(id, &[0]).repeat(2))),
        ("grants for ever", accepted([Flood(all_numbers(|id| suback(id, &[0])), FLOOD)])),
        ("grants with an unknown reason", to_subscribe(|id| suback(id, &[0x7f]))),
        (
            "denies with escapes",
            to_subscribe(|id| {
                let text = properties(&escapes(0x1f));
                packet(0x90, &[&id.to_be_bytes()[..], &text, &[0x87]].concat())
            }),
        ),
        (
            "ends a subscription instead",
            to_subscribe(|id| packet(0xb0, &[&id.to_be_bytes()[..], &[0, 0]].concat())),
        ),
        ("half-closes after SUBACK", subscribed([HalfClose, Behave])),
        ("closes after SUBACK", subscribed([Close])),
    ]
}

/// Behaviours of the frames of WebSocket.
fn frames() -> Vec<Row> {
    let masked = [&[0x82, 0x84, 1, 2, 3, 4][..], &[0x21, 2, 3, 4]].concat();
    let accept = || Say(frame(0x82, &connack(&[])));
    vec![
        ("pings for ever", vec![accept(), Flood(frame(0x89, &[b'x'; 125]), FLOOD)]),
        ("pings for ever, and reads", vec![accept(), FloodAndRead(frame(0x89, &[b'x'; 125]), FLOOD)]),
        ("sends pongs for ever", vec![accept(), Flood(frame(0x8a, &[]), FLOOD)]),
        ("sends empty frames for ever", vec![accept(), Flood(frame(0x82, &[]), FLOOD)]),
        ("sends endless empty fragments", vec![Say(frame(0x02, &[])), Flood(frame(0, &[]), FLOOD)]),
        ("sends endless large fragments", vec![Say(frame(0x02, &[])), Flood(frame(0, &[0; 60_000]), DELUGE)]),
        ("masks its frames", vec![Say(masked)]),
        (
            "announces a frame of 2^63 bytes",
            vec![Say([&[0x82, 127][..], &(1_u64 << 63).to_be_bytes()].concat()), Deaf],
        ),
        (
            "sends a frame of 1 GiB",
            vec![
                Say([&[0x82, 127][..], &(1_u64 << 30).to_be_bytes()].concat()),
                Flood(vec![0; 1_024], DELUGE),
            ],
        ),
        ("sets reserved bits", vec![Say(frame(0xf2, b"x"))]),
        ("has an unknown opcode", vec![Say(frame(0x83, b"x"))]),
        ("sends text", vec![Say(frame(0x81, b"hello"))]),
        ("sends text that is no UTF-8", vec![Say(frame(0x81, &[0xff]))]),
        ("sends a long ping", vec![Say(frame(0x89, &[0; 126]))]),
        ("continues what it has not begun", vec![Say(frame(0x80, b"x"))]),
        ("closes with half a code", vec![Say(frame(0x88, &[3]))]),
        ("closes with a reserved code", vec![Say(frame(0x88, &1_005_u16.to_be_bytes()))]),
        (
            "closes with escapes",
            vec![accept(), Say(frame(0x88, &[&1_001_u16.to_be_bytes()[..], ESCAPES].concat()))],
        ),
        ("closes and goes on", vec![accept(), Say(frame(0x88, &[])), Flood(frame(0x82, &[0xd0, 0]), FLOOD)]),
    ]
}

/// Behaviours in the handshake of WebSocket.
fn http() -> Vec<Row> {
    let say = |text: &str| vec![Say(text.as_bytes().to_vec())];
    let header = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
    vec![
        ("does not switch", say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")),
        ("redirects the handshake to itself", say("HTTP/1.1 302 Found\r\nLocation: /\r\n\r\n")),
        (
            "refuses the handshake with escapes",
            say("HTTP/1.1 401 \x1b[2JNo\r\nX: \x1b[2J\r\nContent-Length: 5\r\n\r\n\x1b[2J\n"),
        ),
        ("has a wrong key", say(&format!("{header}Sec-WebSocket-Accept: x\r\n\r\n"))),
        ("has no key", say(&format!("{header}\r\n"))),
        ("has an endless first line", vec![Flood(b"HTTP/1.1 101 aaaaaaaa".to_vec(), FLOOD)]),
        (
            "has endless headers",
            vec![Say(header.as_bytes().to_vec()), Flood(b"X: aaaaaaaaaaaaaa\r\n".to_vec(), FLOOD)],
        ),
        ("has a header that never ends", vec![Say(header.as_bytes().to_vec()), Deaf]),
        ("sends its header byte by byte", vec![Trickle(header.as_bytes().to_vec()), Deaf]),
        (
            "has an endless body",
            vec![
                Say(b"HTTP/1.1 500 No\r\nContent-Length: 1000000000\r\n\r\n".to_vec()),
                Flood(vec![b'x'; 1_000], FLOOD),
            ],
        ),
        ("answers the handshake in MQTT", vec![Say(connack(&[]))]),
    ]
}

/// Behaviours in place of TLS.
fn records() -> Vec<Row> {
    let hello = [&[2, 0, 0xff, 0xff][..], &[3; 100]].concat();
    vec![
        ("has no TLS", vec![Say(connack(&[])), Deaf]),
        ("sends garbage for TLS", vec![Flood((0..=255).collect(), FLOOD)]),
        ("alerts", vec![Say(record(21, &[2, 80])), Close]),
        ("warns for ever", vec![Flood(record(21, &[1, 90]), FLOOD)]),
        ("sends empty records for ever", vec![Flood(record(22, &[]), FLOOD)]),
        (
            "has an endless handshake message",
            vec![Say(record(22, &hello)), Flood(record(22, &[0; 16_000]), DELUGE)],
        ),
        ("announces a record and sends none", vec![Say(vec![22, 3, 3, 0x40, 0]), Deaf]),
        (
            "announces a record that is too long",
            vec![Say(vec![22, 3, 3, 0xff, 0xff]), Flood(vec![0; 1_000], FLOOD)],
        ),
        ("changes ciphers for ever", vec![Flood(record(20, &[1]), FLOOD)]),
        ("sends data before the handshake", vec![Say(record(23, &varint(7))), Deaf]),
        ("half-closes in the handshake", vec![HalfClose, Deaf]),
        ("never shakes hands", vec![Deaf]),
    ]
}
