//! The records of a trace about a connection.

use std::sync::mpsc::Receiver;

use auth::Whom;
use topic::filter;
use wire::Role;

use super::*;
use crate::trace::{Trace, TraceEvent, TraceRecord, TraceSubject};

impl Bench {
    fn trace(&mut self, number: u32, subject: TraceSubject) -> (Arc<Trace>, Receiver<TraceRecord>) {
        let budget = Arc::clone(self.body.io.post.board().budget());
        let (trace, records) = Trace::new(number, subject, 1 << 20, &budget);
        let trace = Arc::new(trace);
        self.body.host().inbox.push(Note::Trace(Arc::clone(&trace)).into());
        self.run();
        (trace, records)
    }

    fn put(&mut self, bytes: &[u8]) {
        self.peer.put(bytes);
        self.wake(READABLE);
    }

    fn connect(&mut self) {
        self.put(CONNECT);
        let subscriber = self.subscriber();
        self.let_in(subscriber);
    }
}

fn client(client_id: &str) -> TraceSubject {
    TraceSubject::Clients(Whom::ClientId(client_id.into()))
}

fn by_topic(filter: topic::TopicFilter<'_>) -> TraceSubject {
    TraceSubject::Topic { filter: filter.into(), except: None }
}

/// The events in short: bytes of clients behind `>`, those of the broker behind `<`.
fn told(records: &Receiver<TraceRecord>) -> Vec<String> {
    let tell = |record: TraceRecord| match record.event {
        TraceEvent::Begun { is_from_start: true, .. } => "begun".to_owned(),
        TraceEvent::Begun { version, .. } => format!("follows {version:?}"),
        TraceEvent::Named(client_id) => format!("named {client_id}"),
        TraceEvent::Bytes(Role::Client, bytes) => format!("> {}", bytes.escape_ascii()),
        TraceEvent::Bytes(Role::Server, bytes) => format!("< {}", bytes.escape_ascii()),
        TraceEvent::Decision(text) => text,
        TraceEvent::Closed => "closed".to_owned(),
    };
    records.try_iter().map(tell).collect()
}

#[test]
fn a_trace_tells_all_that_crosses_a_connection_from_connect_to_its_end() {
    let mut bench = Bench::new(Bounds::default());
    let (_, records) = bench.trace(1, client("c"));
    // Nobody knows whose it is before the packet is whole.
    bench.put(&CONNECT[..9]);
    assert!(told(&records).is_empty());
    bench.put(&CONNECT[9..]);
    let subscriber = bench.subscriber();
    bench.let_in(subscriber);
    bench.put(b"\xc0");
    bench.put(b"\0\xe0\0");
    assert_eq!(
        told(&records),
        [
            "begun",
            &format!("> {}", CONNECT.escape_ascii()),
            "named c",
            "<  \\x02\\x00\\x00",
            "> \\xc0",
            "> \\x00\\xe0\\x00",
            "disconnected: 0x00 (Success), the client disconnected",
            "< \\xd0\\x00",
        ]
    );
    bench.peer.end();
    bench.wake(ENDING);
    assert_eq!(told(&records), ["closed"]);
}

/// The user of a client may be known by its certificate, and its identifier may be assigned.
#[test]
fn a_client_that_was_logging_in_is_followed_from_connack_on() {
    let mut bench = Bench::new(Bounds::default());
    bench.put(CONNECT);
    let subscriber = bench.subscriber();
    let (_, records) = bench.trace(1, client("c"));
    bench.let_in(subscriber);
    assert_eq!(told(&records)[1..], ["named c", "<  \\x02\\x00\\x00"]);
}

#[test]
fn a_trace_finds_a_client_that_is_connected_and_no_other() {
    let mut bench = Bench::new(Bounds::default());
    bench.connect();
    let (_, records) = bench.trace(1, client("other"));
    bench.put(b"\xc0\0");
    assert!(told(&records).is_empty());
    let (trace, records) = bench.trace(2, client("c"));
    assert!(told(&records).is_empty(), "nothing has happened");
    bench.put(b"\xc0\0");
    assert_eq!(told(&records), ["follows Some(V3_1_1)", "named c", "> \\xc0\\x00", "< \\xd0\\x00"]);
    trace.stop();
    bench.body.host().inbox.push(Note::TraceEnded(2).into());
    bench.put(b"\xc0\0");
    assert!(told(&records).is_empty());
    drop(trace);
    assert_eq!(bench.body.io.post.board().budget().held_bytes(Purpose::Traces), 0);
}

#[test]
fn a_password_is_not_told() {
    let mut bench = Bench::with_ann();
    let (_, records) = bench.trace(1, TraceSubject::Clients(Whom::User("ann".into())));
    let (begin, end) = LOGIN.split_at(LOGIN.len() - 2);
    bench.put(begin);
    bench.put(end);
    let told = told(&records);
    let shown = format!("> {}***", LOGIN[..LOGIN.len() - 3].escape_ascii());
    assert_eq!(told, ["begun", &shown]);
}

#[test]
fn what_is_no_mqtt_is_told_for_an_address() {
    let mut bench = Bench::new(Bounds::default());
    let stream = Pipe::new(1 << 20);
    let peer = Peer::Inet(([192, 0, 2, 7], 1).into());
    bench.body.io.post.board().charge(ShardId::new(0));
    bench.body.admit(Accepted {
        stream: stream.clone(),
        peer,
        admission: Durability::Fsync.into(),
        listener: 0,
    });
    let (_, records) =
        bench.trace(1, TraceSubject::Clients(Whom::parse("address", "192.0.2.0/24").expect("a network")));
    stream.put(b"GET / HTTP/1.1\r\n\r\n");
    let id = *bench.body.host().watched.last().expect("it was admitted");
    bench.body.woken(id, READABLE);
    bench.run();
    let told = told(&records);
    assert_eq!(told[..2], ["begun", "> GET / HTTP/1.1****"]);
    assert!(told[2].starts_with("refused: "), "{told:?}");
}

#[test]
fn a_trace_by_topic_tells_messages_and_who_sends_and_gets_them() {
    let mut bench = Bench::new(Bounds::default());
    bench.connect();
    let (_, records) = bench.trace(1, by_topic(filter!("t/#")));
    bench.put(b"\x30\x04\0\x01tx\xc0\0\x30\x04\0\x01ux");
    assert_eq!(told(&records), ["follows Some(V3_1_1)", "named c", "> 0\\x04\\x00\\x01tx"]);
    let payload: Arc<[u8]> = b"yz".as_slice().into();
    bench.body.io.publish(bench.id, b"\x30\x04\0\x01ty\x30\x04\0\x01uy", broker::Flush::Direct);
    bench.body.io.publish_shared(bench.id, b"\x30\x05\0\x01t", &payload, broker::Flush::Direct);
    bench.body.io.publish_shared(bench.id, b"\x30\x05\0\x01u", &payload, broker::Flush::Direct);
    assert_eq!(told(&records), ["< 0\\x04\\x00\\x01ty", "< 0\\x05\\x00\\x01tyz"]);
}

/// The lines of the trace are published to this topic, and would be traced again at each receiver.
#[test]
fn a_trace_by_topic_leaves_one_topic_out() {
    let mut bench = Bench::new(Bounds::default());
    bench.connect();
    let except = Some(topic::topic!("t/x").into());
    let (_, records) = bench.trace(1, TraceSubject::Topic { filter: filter!("t/#").into(), except });
    bench.put(b"\x30\x06\0\x03t/x1\x30\x06\0\x03t/y2");
    let connection = bench.body.io.connections.get_mut(bench.id).expect("it is there");
    connection.version = Some(wire::Version::V5);
    let packets: [&[u8]; 4] = [
        b"\x30\x07\0\x03t/x\x003",
        // The alias of the topic, given and used.
        b"\x30\x0a\0\x03t/x\x03\x23\0\x015",
        b"\x30\x07\0\0\x03\x23\0\x016",
        b"\x30\x07\0\x03t/y\x004",
    ];
    bench.body.io.publish(bench.id, &packets.concat(), broker::Flush::Direct);
    let told = told(&records);
    assert_eq!(told[2..], ["> 0\\x06\\x00\\x03t/y2", "< 0\\x07\\x00\\x03t/y\\x004"], "{told:?}");
}

/// The broker does not accept it, and its password is none of the operator's business.
#[test]
fn a_further_connect_is_not_recorded() {
    let mut bench = Bench::new(Bounds::default());
    bench.connect();
    let (_, records) = bench.trace(1, client("c"));
    bench.put(&[b"\xc0\0", LOGIN].concat());
    let told = told(&records).concat();
    assert!(told.contains("which are not recorded") && !told.contains("ann"), "{told}");
}

/// The rest of a packet that waits in the middle of the output would be taken for packets.
#[test]
fn what_was_queued_before_the_trace_is_not_part_of_it() {
    let mut bench = Bench::new(Bounds::default());
    bench.connect();
    bench.peer.take_written();
    bench.body.io.publish(bench.id, &publish((1 << 20) + 100), broker::Flush::Direct);
    bench.run();
    let (_, records) = bench.trace(1, client("c"));
    bench.peer.take_written();
    bench.put(b"\xc0\0");
    bench.body.woken(bench.id, Readiness { writable: true, ..Readiness::default() });
    bench.run();
    assert_eq!(told(&records), ["follows Some(V3_1_1)", "named c", "> \\xc0\\x00", "< \\xd0\\x00"]);
}

/// The read of a long packet has begun before the trace.
#[test]
fn the_beginning_of_a_packet_that_was_read_before_is_part_of_the_trace() {
    let mut bench = Bench::new(Bounds::default());
    bench.connect();
    let packet = publish(10);
    bench.put(&packet[..7]);
    let (_, records) = bench.trace(1, client("c"));
    bench.put(&packet[7..]);
    let bytes = told(&records).into_iter().filter_map(|line| Some(line.strip_prefix("> ")?.to_owned()));
    assert_eq!(bytes.collect::<String>(), packet.escape_ascii().to_string());
}

#[test]
fn a_publisher_that_leaves_at_once_is_named() {
    let mut bench = Bench::new(Bounds::default());
    bench.connect();
    let (_, records) = bench.trace(1, by_topic(filter!("t")));
    bench.put(b"\x30\x04\0\x01tx\xe0\0\x30\x04\0\x01ty");
    let told = told(&records);
    assert_eq!(
        told,
        ["follows Some(V3_1_1)", "named c", "> 0\\x04\\x00\\x01tx"],
        "and nothing behind DISCONNECT"
    );
}

/// A message with properties may be shared whole, or from its properties on.
#[test]
fn a_message_is_told_however_it_is_shared() {
    let mut bench = Bench::new(Bounds::default());
    bench.connect();
    let connection = bench.body.io.connections.get_mut(bench.id).expect("it is there");
    connection.version = Some(wire::Version::V5);
    let (_, records) = bench.trace(1, by_topic(filter!("t")));
    let packet = b"\x30\x0c\0\x01t\x07\x26\0\x01k\0\x01vx";
    for cut in [0, 2, 5, 6, packet.len()] {
        let shared: Arc<[u8]> = packet[cut..].into();
        bench.body.io.publish_shared(bench.id, &packet[..cut], &shared, broker::Flush::Direct);
    }
    bench.body.io.send(bench.id, packet);
    bench.body.io.send(bench.id, b"\xd0\0");
    bench.run();
    let shown = format!("< {}", packet.escape_ascii());
    assert_eq!(told(&records).iter().filter(|line| **line == shown).count(), 6);
}

#[test]
fn a_connection_that_sends_no_whole_connect_is_told_of_when_it_ends() {
    let mut bench = Bench::new(Bounds::default());
    let connection = bench.body.io.connections.get_mut(bench.id).expect("it is there");
    connection.peer = Peer::Inet(([192, 0, 2, 7], 1).into());
    let subject = TraceSubject::Clients(Whom::parse("address", "192.0.2.7").expect("an address"));
    let (_, records) = bench.trace(1, subject);
    bench.put(&LOGIN[..LOGIN.len() - 1]);
    assert!(told(&records).is_empty(), "the password is not whole");
    bench.peer.end();
    bench.wake(ENDING);
    let told = told(&records);
    assert_eq!(
        (told[0].as_str(), told.last().map(String::as_str)),
        ("follows None", Some("closed")),
        "{told:?}"
    );
    assert!(told.concat().contains("disconnected: "), "{told:?}");
}
