//! Several streams of one connection, as one session.

use super::*;

const CONNECT: &[u8] = b"\x10\x0d\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x00";
const PINGREQ: &[u8] = b"\xc0\x00";

/// A PUBLISH on topic `t` with this Packet Identifier at QoS 1, without properties, and this many bytes of payload.
fn publish(packet_id: u16, payload: usize) -> Vec<u8> {
    let [high, low] = packet_id.to_be_bytes();
    let body = [&[0, 1, b't', high, low, 0][..], &vec![b'x'; payload]].concat();
    packet(0x32, &body)
}

fn packet(first_byte: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first_byte];
    let mut len = body.len();
    while len >= 0x80 {
        bytes.push(u8::try_from(len & 0x7F).expect("seven bits") | 0x80);
        len >>= 7;
    }
    bytes.push(u8::try_from(len).expect("seven bits"));
    bytes.extend_from_slice(body);
    bytes
}

fn answer(first_byte: u8, packet_id: u16) -> Vec<u8> {
    let [high, low] = packet_id.to_be_bytes();
    vec![first_byte, 2, high, low]
}

/// A client with a session, and further streams beside its first one.
fn session(further: usize) -> (Bench, Caller, Vec<StreamId>) {
    session_with(QuicLimits::default(), further)
}

fn session_with(limits: QuicLimits, further: usize) -> (Bench, Caller, Vec<StreamId>) {
    let mut bench = Bench::new(limits);
    let mut caller = bench.call();
    bench.settle(&mut caller);
    assert_eq!(caller.write(CONNECT), CONNECT.len());
    bench.settle(&mut caller);
    assert_eq!(read(bench.server(), 100).expect("a packet"), CONNECT);
    let streams =
        (0..further).map(|_| caller.connection.streams().open(Dir::Bi).expect("a stream")).collect();
    (bench, caller, streams)
}

impl Caller {
    fn write_on(&mut self, stream: StreamId, bytes: &[u8]) -> usize {
        self.connection.send_stream(stream).write(bytes).unwrap_or(0)
    }

    fn read_on(&mut self, stream: StreamId) -> Vec<u8> {
        let first = self.stream.replace(stream);
        let bytes = self.read();
        self.stream = first;
        bytes
    }
}

/// Reads all that the shard can read now.
fn read_all(bench: &mut Bench) -> Vec<u8> {
    let mut all = Vec::new();
    while let Ok(bytes) = read(bench.server(), 64 * 1024)
        && !bytes.is_empty()
    {
        all.extend(bytes);
    }
    all
}

fn is_blocked(bench: &mut Bench) -> bool {
    read(bench.server(), 100).is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

#[test]
fn a_packet_whose_rest_is_late_delays_its_own_stream_only() {
    let (mut bench, mut caller, streams) = session(2);
    let (late, early) = (publish(1, 500), publish(2, 5));
    caller.write_on(streams[0], &late[..400]);
    caller.write_on(streams[1], &early);
    bench.settle(&mut caller);
    assert_eq!(read_all(&mut bench), early);
    assert!(is_blocked(&mut bench));
    caller.write(PINGREQ);
    bench.settle(&mut caller);
    assert_eq!(read_all(&mut bench), PINGREQ);
    caller.write_on(streams[0], &late[400..]);
    bench.settle(&mut caller);
    assert_eq!(read_all(&mut bench), late);
}

#[test]
fn a_late_packet_of_the_first_stream_delays_no_other_stream() {
    let (mut bench, mut caller, streams) = session(1);
    let (late, early) = (publish(1, 500), publish(2, 5));
    caller.write_on(streams[0], PINGREQ);
    bench.settle(&mut caller);
    assert_eq!(read_all(&mut bench), PINGREQ);
    caller.write(&late[..400]);
    caller.write_on(streams[0], &early);
    bench.settle(&mut caller);
    assert_eq!(read_all(&mut bench), early);
    caller.write(&late[400..]);
    bench.settle(&mut caller);
    assert_eq!(read_all(&mut bench), late);
}

#[test]
fn answers_leave_on_the_stream_of_the_request_and_messages_on_the_first() {
    let (mut bench, mut caller, streams) = session(2);
    let requests = [&publish(7, 1)[..], &packet(0x82, b"\x00\x07\x00\x00\x01t\x00")].concat();
    caller.write_on(streams[0], &requests);
    caller.write_on(streams[1], &packet(0xA2, b"\x00\x08\x00\x00\x01t"));
    caller.write(&publish(9, 1));
    bench.settle(&mut caller);
    read_all(&mut bench);
    let (message, puback, suback) = (publish(7, 3), answer(0x40, 7), packet(0x90, b"\x00\x07\x00\x00"));
    let (unsuback, first_ones) = (packet(0xB0, b"\x00\x08\x00\x00"), answer(0x40, 9));
    let all = [&message[..], &puback, &message, &unsuback, &suback, &first_ones, &message].concat();
    // However the bytes are cut.
    for cut in 1..all.len() {
        if cut > 1 {
            caller.write_on(streams[0], &requests);
            caller.write_on(streams[1], &packet(0xA2, b"\x00\x08\x00\x00\x01t"));
            bench.settle(&mut caller);
            read_all(&mut bench);
        }
        let (before, after) = all.split_at(cut);
        assert_eq!(bench.server().write(&[IoSlice::new(before)]).expect("there is room"), before.len());
        assert_eq!(bench.server().write(&[IoSlice::new(after)]).expect("there is room"), after.len());
        bench.settle(&mut caller);
        assert_eq!(caller.read_on(streams[0]), [&puback[..], &suback].concat(), "cut at {cut}");
        assert_eq!(caller.read_on(streams[1]), unsuback, "cut at {cut}");
        assert_eq!(caller.read(), [&message[..], &message, &first_ones, &message].concat(), "cut at {cut}");
    }
}

/// PUBREL may come over another stream than its PUBLISH.
#[test]
fn each_answer_of_an_exchange_follows_the_latest_request() {
    let (mut bench, mut caller, streams) = session(2);
    let mut message = publish(5, 1);
    message[0] = 0x34;
    caller.write_on(streams[0], &message);
    bench.settle(&mut caller);
    read_all(&mut bench);
    bench.server().write(&[IoSlice::new(&answer(0x50, 5))]).expect("there is room");
    caller.write_on(streams[1], &answer(0x62, 5));
    bench.settle(&mut caller);
    assert_eq!(read_all(&mut bench), answer(0x62, 5));
    bench.server().write(&[IoSlice::new(&answer(0x70, 5))]).expect("there is room");
    bench.settle(&mut caller);
    assert_eq!(caller.read_on(streams[0]), answer(0x50, 5));
    assert_eq!(caller.read_on(streams[1]), answer(0x70, 5));
    // An identifier that is used again on the first stream: the earlier request is forgotten.
    caller.write_on(streams[0], &message);
    bench.settle(&mut caller);
    caller.write(&message);
    bench.settle(&mut caller);
    read_all(&mut bench);
    bench.server().write(&[IoSlice::new(&answer(0x50, 5))]).expect("there is room");
    bench.settle(&mut caller);
    assert_eq!(caller.read(), answer(0x50, 5));
}

#[test]
fn other_streams_wait_for_the_first_packet_of_the_session() {
    let mut bench = Bench::new(QuicLimits::default());
    let mut caller = bench.call();
    bench.settle(&mut caller);
    caller.write(&CONNECT[..3]);
    let stream = caller.connection.streams().open(Dir::Bi).expect("a stream");
    caller.write_on(stream, PINGREQ);
    bench.settle(&mut caller);
    assert_eq!(read_all(&mut bench), CONNECT[..3]);
    caller.write(&CONNECT[3..]);
    bench.settle(&mut caller);
    assert_eq!(read_all(&mut bench), [&CONNECT[3..], PINGREQ].concat());
}

/// The datagrams of the first stream are late.
#[test]
fn another_stream_that_arrives_before_the_first_waits() {
    let mut bench = Bench::new(QuicLimits::default());
    let mut caller = bench.call();
    bench.settle(&mut caller);
    caller.stream = caller.connection.streams().open(Dir::Bi);
    let stream = caller.connection.streams().open(Dir::Bi).expect("a stream");
    caller.write_on(stream, PINGREQ);
    bench.settle(&mut caller);
    assert!(is_blocked(&mut bench) && is_blocked(&mut bench));
    caller.write(CONNECT);
    bench.settle(&mut caller);
    assert_eq!(read_all(&mut bench), [CONNECT, PINGREQ].concat());
}

#[test]
fn one_read_takes_all_that_has_arrived_on_every_stream() {
    let (mut bench, mut caller, streams) = session(3);
    let long = publish(1, 20_000);
    for stream in &streams {
        caller.write_on(*stream, PINGREQ);
    }
    bench.settle(&mut caller);
    read_all(&mut bench);
    for at in 0..3 {
        caller.write_on(streams[at], &long[..9_000]);
        bench.settle(&mut caller);
        assert_eq!(read_all(&mut bench).len(), 9_000);
        for (other, stream) in streams.iter().enumerate() {
            caller.write_on(*stream, if other == at { &long[9_000..] } else { PINGREQ });
        }
        caller.write(PINGREQ);
        bench.settle(&mut caller);
        let received = bench.server().read(&mut vec![0; 64 * 1024]).expect("bytes");
        let bytes = long.len() - 9_000 + 3 * PINGREQ.len();
        assert_eq!(received, Received { bytes, is_drained: true });
    }
}

/// A session with one further stream, whose answer is kept behind a message that fills all that may be unacknowledged.
fn with_a_kept_answer() -> (Bench, Caller, Vec<StreamId>, Vec<u8>) {
    let limits = QuicLimits { buffer_bytes: 16 * 1024, ..QuicLimits::default() };
    let (mut bench, mut caller, streams) = session_with(limits, 1);
    caller.write_on(streams[0], &publish(1, 1));
    bench.settle(&mut caller);
    read_all(&mut bench);
    let message = publish(1, 16_375);
    assert_eq!(message.len(), 16 * 1024);
    assert_eq!(bench.server().write(&[IoSlice::new(&message)]).expect("there is room"), message.len());
    assert_eq!(bench.server().write(&[IoSlice::new(&answer(0x40, 1))]).expect("it is kept"), 4);
    (bench, caller, streams, message)
}

#[test]
fn an_answer_for_a_stream_without_room_leaves_as_soon_as_there_is_some() {
    let (mut bench, mut caller, streams, message) = with_a_kept_answer();
    let error = bench.server().write(&[IoSlice::new(&message)]).expect_err("there is no room");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    bench.settle(&mut caller);
    assert_eq!(caller.read_on(streams[0]), answer(0x40, 1));
    assert_eq!(caller.read(), message);
}

/// The client sends DISCONNECT behind its request.
#[test]
fn an_answer_without_room_leaves_before_the_streams_end() {
    let (mut bench, mut caller, streams, message) = with_a_kept_answer();
    bench.server().shut_down_write();
    bench.settle(&mut caller);
    assert_eq!(caller.read_on(streams[0]), answer(0x40, 1));
    assert_eq!(caller.read(), message);
    for stream in [streams[0], caller.stream.expect("it is open")] {
        assert!(caller.connection.recv_stream(stream).read(true).is_err(), "it is finished");
    }
}

#[test]
fn a_packet_too_long_to_be_kept_passes_in_parts_and_others_wait_for_its_end() {
    let (mut bench, mut caller, streams) = session(2);
    let long = publish(1, 20_000);
    caller.write_on(streams[0], &long[..9_000]);
    caller.write_on(streams[1], PINGREQ);
    bench.settle(&mut caller);
    let mut received = read_all(&mut bench);
    caller.write_on(streams[0], &long[9_000..]);
    caller.write_on(streams[0], PINGREQ);
    bench.settle(&mut caller);
    received.extend(read_all(&mut bench));
    let before = received.strip_prefix(PINGREQ).unwrap_or(&received);
    assert!(before.starts_with(&long), "{} bytes", received.len());
    assert_eq!(received.len(), long.len() + 2 * PINGREQ.len());
}

#[test]
fn packets_that_are_kept_are_bounded_and_count_as_received() {
    let (mut bench, mut caller, streams) = session(7);
    let packet = publish(1, 16_000);
    for stream in &streams {
        caller.write_on(*stream, &packet[..16_000]);
        bench.settle(&mut caller);
        assert_eq!(read_all(&mut bench), b"");
    }
    bench.settle(&mut caller);
    let held = bench.links.received_bytes();
    assert!(held >= 7 * 16_000, "{held}");
    for stream in &streams {
        caller.write_on(*stream, &packet[16_000..]);
        bench.settle(&mut caller);
        assert_eq!(read_all(&mut bench), packet);
    }
    bench.settle(&mut caller);
    assert!(bench.links.received_bytes() < held - 6 * 16_000);
}

#[test]
fn a_stream_that_has_ended_is_finished_behind_its_last_answer_and_makes_room_for_another() {
    let (mut bench, mut caller, _) = session(0);
    for packet_id in 1..100 {
        let stream = caller.connection.streams().open(Dir::Bi).expect("room for another stream");
        caller.write_on(stream, &publish(packet_id, 1));
        caller.connection.send_stream(stream).finish().expect("it is open");
        bench.settle(&mut caller);
        assert_eq!(read_all(&mut bench), publish(packet_id, 1));
        assert!(caller.read_on(stream).is_empty());
        let written = bench.server().write(&[IoSlice::new(&answer(0x40, packet_id))]);
        assert_eq!(written.expect("there is room"), 4);
        bench.settle(&mut caller);
        assert_eq!(caller.read_on(stream), answer(0x40, packet_id));
        assert!(caller.connection.recv_stream(stream).read(true).is_err(), "it is finished");
    }
    caller.write(PINGREQ);
    bench.settle(&mut caller);
    assert_eq!(read_all(&mut bench), PINGREQ, "the session goes on");
}

#[test]
fn a_stream_that_ends_inside_a_packet_ends_the_connection() {
    let (mut bench, mut caller, streams) = session(1);
    caller.write_on(streams[0], &publish(1, 100)[..50]);
    caller.connection.send_stream(streams[0]).finish().expect("it is open");
    bench.settle(&mut caller);
    let error = read(bench.server(), 100).expect_err("it is cut");
    assert!(error.to_string().contains("inside a packet"), "{error}");
}

/// Other streams have bytes too: nothing of them stands behind half a packet, and the end is told.
#[test]
fn half_a_packet_is_never_continued_with_bytes_of_another_stream() {
    for (payload, sent) in [(20_000, 9_000), (100, 50)] {
        let (mut bench, mut caller, streams) = session(2);
        let mut message = publish(1, payload);
        message[0] = 0x30;
        caller.write_on(streams[0], &message[..sent]);
        caller.connection.send_stream(streams[0]).finish().expect("it is open");
        caller.write(PINGREQ);
        caller.write_on(streams[1], PINGREQ);
        bench.settle(&mut caller);
        let mut buffer = vec![0; 64 * 1024];
        let mut all = Vec::new();
        let error = loop {
            match bench.server().read(&mut buffer) {
                Ok(received) => all.extend_from_slice(&buffer[..received.bytes]),
                Err(error) => break error,
            }
        };
        assert!(error.to_string().contains("inside a packet"), "{error}");
        let half = all.iter().position(|byte| *byte == 0x30).unwrap_or(all.len());
        assert!(all[half..].is_empty() || all[half..] == message[..sent], "{} bytes", all.len());
    }
}

/// The client opens streams again and again, and does not read their answers.
#[test]
fn a_stream_that_the_client_has_stopped_makes_room_for_another() {
    let (mut bench, mut caller, _) = session(0);
    for packet_id in 1..50 {
        let stream = caller.connection.streams().open(Dir::Bi).expect("room for another stream");
        caller.write_on(stream, &publish(packet_id, 1));
        caller.connection.send_stream(stream).finish().expect("it is open");
        caller.connection.recv_stream(stream).stop(0_u32.into()).expect("it is open");
        bench.settle(&mut caller);
        read_all(&mut bench);
        bench.server().write(&[IoSlice::new(&answer(0x40, packet_id))]).expect("there is room");
        bench.settle(&mut caller);
        assert_eq!(caller.read(), answer(0x40, packet_id));
    }
}

#[test]
fn a_request_that_was_taken_back_leaves_nothing() {
    let (mut bench, mut caller, _) = session(0);
    for packet_id in 1..50 {
        let stream = caller.connection.streams().open(Dir::Bi).expect("room for another stream");
        caller.write_on(stream, &publish(packet_id, 100)[..50]);
        bench.settle(&mut caller);
        assert!(is_blocked(&mut bench));
        caller.connection.send_stream(stream).reset(0_u32.into()).expect("it is open");
        bench.settle(&mut caller);
        assert!(is_blocked(&mut bench));
        bench.settle(&mut caller);
    }
}

/// The window of the stream has room for a part of an answer.
#[test]
fn an_answer_that_has_begun_is_not_continued_on_another_stream() {
    let mut bench = Bench::new(QuicLimits::default());
    let mut transport = quinn_proto::TransportConfig::default();
    transport.stream_receive_window(50_u32.into());
    bench.config.transport_config(Arc::new(transport));
    let mut caller = bench.call();
    bench.settle(&mut caller);
    caller.write(CONNECT);
    bench.settle(&mut caller);
    read_all(&mut bench);
    let stream = caller.connection.streams().open(Dir::Bi).expect("a stream");
    caller.write_on(stream, &packet(0x82, b"\x00\x07\x00\x00\x01t\x00"));
    bench.settle(&mut caller);
    read_all(&mut bench);
    let suback = packet(0x90, &[&[0, 7, 0][..], &[0; 200]].concat());
    let after = answer(0x40, 9);
    let both = [&suback[..], &after].concat();
    let written = bench.server().write(&[IoSlice::new(&both)]).expect("there is room for a part");
    assert!(written < suback.len());
    bench.settle(&mut caller);
    caller.connection.recv_stream(stream).stop(0_u32.into()).expect("it is open");
    bench.settle(&mut caller);
    assert_eq!(
        bench.server().write(&[IoSlice::new(&both[written..])]).expect("the rest"),
        both.len() - written
    );
    bench.settle(&mut caller);
    assert_eq!(caller.read(), after);
}

#[test]
fn a_reset_takes_back_a_packet_that_was_not_complete() {
    let (mut bench, mut caller, streams) = session(1);
    caller.write_on(streams[0], &publish(1, 100)[..50]);
    bench.settle(&mut caller);
    assert!(is_blocked(&mut bench));
    caller.connection.send_stream(streams[0]).reset(0_u32.into()).expect("it is open");
    caller.write(PINGREQ);
    bench.settle(&mut caller);
    assert_eq!(read_all(&mut bench), PINGREQ);
    assert!(is_blocked(&mut bench));
}

/// The client does not read one of its streams any more: answers for it leave on the first.
#[test]
fn answers_for_a_stopped_stream_leave_on_the_first() {
    let (mut bench, mut caller, streams) = session(1);
    caller.write_on(streams[0], &publish(1, 1));
    bench.settle(&mut caller);
    read_all(&mut bench);
    caller.connection.recv_stream(streams[0]).stop(0_u32.into()).expect("it is open");
    bench.settle(&mut caller);
    bench.server().write(&[IoSlice::new(&answer(0x40, 1))]).expect("there is room");
    bench.settle(&mut caller);
    assert_eq!(caller.read(), answer(0x40, 1));
}

#[test]
fn a_malformed_length_reaches_the_shard() {
    let (mut bench, mut caller, streams) = session(1);
    caller.write_on(streams[0], b"\x32\xff\xff\xff\xff\x01");
    bench.settle(&mut caller);
    assert_eq!(read_all(&mut bench), b"\x32\xff\xff\xff\xff\x01");
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }
}

/// Packets of random lengths on all streams, cut anywhere, under small windows. Each is answered between messages of the server.
#[test]
fn every_packet_arrives_whole_and_in_order_and_every_answer_finds_its_stream() {
    for seed in 0..40 {
        let limits = QuicLimits { buffer_bytes: 16 * 1024, ..QuicLimits::default() };
        let (mut bench, mut caller, mut streams) = session_with(limits, 3);
        streams.insert(0, caller.stream.expect("it is open"));
        let mut dice = Dice(seed);
        let mut unsent: Vec<Vec<u8>> = vec![Vec::new(); streams.len()];
        let mut expected: Vec<Vec<u16>> = vec![Vec::new(); streams.len()];
        for packet_id in 1..=200 {
            let on = dice.below(streams.len());
            let payload = [3, 50, 300, 5_000, 30_000][dice.below(5)];
            unsent[on].extend(publish(packet_id, payload));
            expected[on].push(packet_id);
        }
        let (mut received, mut to_client, mut answered) =
            (Vec::new(), Vec::new(), vec![Vec::new(); streams.len()]);
        let mut packets: Vec<u16> = Vec::new();
        for _ in 0..100_000 {
            if answered.iter().map(Vec::len).sum::<usize>() == 200 * (4 + publish(1, 17).len()) {
                break;
            }
            for (stream, bytes) in streams.iter().zip(&mut unsent) {
                let count = dice.below(4_000).min(bytes.len());
                let written = caller.write_on(*stream, &bytes[..count]);
                bytes.drain(..written);
            }
            bench.settle(&mut caller);
            let space = 16 * 1024 + 1 + dice.below(50_000);
            received.extend(read(bench.server(), space).unwrap_or_default());
            while let Some((packet_id, len)) = first_packet(&received) {
                received.drain(..len);
                packets.push(packet_id);
                to_client.extend(publish(packet_id, 17));
                to_client.extend(answer(0x40, packet_id));
            }
            let (at, to) = (dice.below(to_client.len() + 1), dice.below(20_000));
            let pieces = [&to_client[..at], &to_client[at..(at + to).min(to_client.len())]];
            let pieces: Vec<_> =
                pieces.iter().filter(|piece| !piece.is_empty()).map(|piece| IoSlice::new(piece)).collect();
            let written = if pieces.is_empty() { 0 } else { bench.server().write(&pieces).unwrap_or(0) };
            to_client.drain(..written);
            bench.settle(&mut caller);
            for (stream, answered) in streams.iter().zip(&mut answered) {
                if dice.below(3) == 0 {
                    answered.extend(caller.read_on(*stream));
                }
            }
        }
        for (on, expected) in expected.iter().enumerate() {
            let of_stream: Vec<_> = packets.iter().copied().filter(|id| expected.contains(id)).collect();
            assert_eq!(&of_stream, expected, "seed {seed}: stream {on} keeps its order");
        }
        let mut first = Vec::new();
        for packet_id in &packets {
            first.extend(publish(*packet_id, 17));
            if expected[0].contains(packet_id) {
                first.extend(answer(0x40, *packet_id));
            }
        }
        assert!(answered[0] == first, "seed {seed}: {} of {} bytes", answered[0].len(), first.len());
        for (answered, expected) in answered.iter().zip(&expected).skip(1) {
            let expected: Vec<_> = expected.iter().flat_map(|id| answer(0x40, *id)).collect();
            assert!(*answered == expected, "seed {seed}: {answered:?} for {expected:?}");
        }
    }
}

/// The identifier and the length of the first packet, if all of it is there. It is a PUBLISH with an intact payload.
fn first_packet(bytes: &[u8]) -> Option<(u16, usize)> {
    let header = 1 + 1 + bytes.get(1..)?.iter().position(|byte| byte & 0x80 == 0)?;
    let shifts = bytes[1..header].iter().zip([0, 7, 14, 21]);
    let len = header + shifts.map(|(byte, shift)| usize::from(byte & 0x7F) << shift).sum::<usize>();
    let packet = bytes.get(..len)?;
    assert_eq!(packet[..1], [0x32]);
    assert!(packet[header + 6..].iter().all(|byte| *byte == b'x'));
    Some((u16::from_be_bytes([packet[header + 3], packet[header + 4]]), len))
}
