//! W: wills and retained messages.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pondhawk_tests::conversation::Conversation;
use pondhawk_tests::packet::{self, Connect, Will};
use pondhawk_tests::{Broker, Client, Version, until};

use crate::packets::{connect_with_will, property};
use crate::stage::{
    ALL, Answer, BEFORE_5, V5, answers, answers_with, crowd, first, play, sized, wait_for_sys,
};

const TOPIC_NAME_INVALID: u8 = 0x90;

/// A way to end a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Disconnect,
    DisconnectWithWill,
    Finish,
    Reset,
    ResetInsideAPacket,
    Malformed,
    Silence,
}

impl End {
    const ALL: [Self; 7] = [
        Self::Disconnect,
        Self::DisconnectWithWill,
        Self::Finish,
        Self::Reset,
        Self::ResetInsideAPacket,
        Self::Malformed,
        Self::Silence,
    ];

    fn carry_out(self, mut client: Client) {
        match self {
            Self::Disconnect => return client.leave(),
            Self::DisconnectWithWill => client.send(&[0xE0, 0x01, 0x04]),
            Self::Finish => client.finish(),
            Self::Reset => return client.into_raw().reset(),
            Self::ResetInsideAPacket => {
                client.send(&[0x30, 0x7F, 0x00]);
                return client.into_raw().reset();
            }
            Self::Malformed => {
                client.send(&[0x30, 0x00]);
                return client.expect_disconnect(0x81);
            }
            Self::Silence => return client.expect_disconnect(0x8D),
        }
        client.expect_closed();
    }
}

/// [MQTT-3.1.2-7, MQTT-3.1.2-8, MQTT-3.1.2-10, MQTT-3.14.4-3, 3.1.1 MQTT-3.1.2-8, 3.1.1 MQTT-3.1.2-10,
/// 3.1.1 MQTT-3.14.4-3]
#[test]
fn w_01_exactly_one_will_unless_the_client_takes_it_back() {
    play("", |broker| {
        thread::scope(|scope| {
            for end in End::ALL {
                // Before MQTT 5 a DISCONNECT has no reason.
                let is_of_5 = end == End::DisconnectWithWill;
                for version in Version::ALL.into_iter().filter(|version| version.is_5() || !is_of_5) {
                    scope.spawn(move || {
                        let name = format!("{end:?} in {version}");
                        let topic = format!("will/{name}");
                        let mut witness = broker.client(Version::V5, &format!("witness of {name}"));
                        witness.subscribe(&topic);
                        let will = Some(Will::new(&topic, b"gone"));
                        let connect = Connect { will, keep_alive_secs: 1, ..Connect::new(version, &name) };
                        end.carry_out(broker.client_with(&connect));
                        if end != End::Disconnect {
                            witness.expect_message(&topic, b"gone");
                        }
                        // A retained message takes the way of wills, and comes behind them.
                        broker.client(Version::V5, &format!("after {name}")).retain(&topic, b"no more");
                        witness.expect_message(&topic, b"no more");
                    });
                }
            }
        });
    });
}

/// A will of MQTT 5 with this delay, and the rest of a CONNECT with this session expiry.
fn delayed<'a>(delay: &'a [u8; 5], session_expiry: &'a [u8; 5]) -> Connect<'a> {
    let will = Some(Will { properties: delay, ..Will::new("w", b"gone") });
    Connect { will, properties: session_expiry, clean_start: false, ..Connect::new(Version::V5, "frog") }
}

const DELAY_FOR_EVER: &[u8; 5] = b"\x18\xFF\xFF\xFF\xFF";
const EXPIRY_NEVER: &[u8; 5] = b"\x11\xFF\xFF\xFF\xFF";

/// Whoever publishes to its topic comes behind a will that was published before.
fn expect_no_will(broker: &Broker, witness: &mut Client) {
    let mut other = broker.client(Version::V5, "other");
    other.deliver(2, "w", b"no will");
    witness.expect_message("w", b"no will");
    witness.expect_only_pong();
}

/// [MQTT-3.1.3-9]
#[test]
fn w_02_a_will_is_sent_when_its_session_ends_if_that_is_sooner() {
    play("", |broker| {
        let mut witness = broker.client(Version::V5, "witness");
        witness.subscribe("w");
        for delay in [DELAY_FOR_EVER, b"\x18\x00\x00\x0E\x10"] {
            broker.client_with(&delayed(delay, b"\x11\x00\x00\x00\x01")).into_raw().reset();
            witness.expect_message("w", b"gone");
            expect_no_will(broker, &mut witness);
        }
        // Both for ever: until somebody ends the session.
        broker.client_with(&delayed(DELAY_FOR_EVER, EXPIRY_NEVER)).into_raw().reset();
        broker.wait_for_log("disconnected client_id=frog");
        expect_no_will(broker, &mut witness);
        broker.client(Version::V5, "frog").leave();
        witness.expect_message("w", b"gone");
        expect_no_will(broker, &mut witness);
    });
}

/// [MQTT-3.1.3-9]
#[test]
fn w_03_who_comes_back_inside_the_delay_has_no_will_unless_the_session_is_another_one() {
    let connect = || delayed(b"\x18\x00\x00\x0E\x10", EXPIRY_NEVER);
    play("", |broker| {
        let mut witness = broker.client(Version::V5, "witness");
        witness.subscribe("w");
        for is_takeover in [false, true] {
            for clean_start in [false, true] {
                let mut robbed = broker.client_with(&connect());
                if !is_takeover {
                    robbed.send(&[0xE0, 0x01, 0x04]);
                    robbed.expect_closed();
                }
                let back = broker.client_with(&Connect { clean_start, ..connect() });
                if is_takeover {
                    robbed.expect_disconnect(0x8E);
                }
                if clean_start {
                    witness.expect_message("w", b"gone");
                }
                expect_no_will(broker, &mut witness);
                back.leave();
                broker.client(Version::V5, "frog").leave();
                expect_no_will(broker, &mut witness);
            }
        }
    });
}

#[test]
fn w_04_wills_that_are_kept_for_ever_are_limited() {
    let clients = sized(100, 100_000);
    let settings = "[limits]\nwill_bytes = \"32 KiB\"\n[sys]\ninterval = \"1 s\"\n";
    let of = |length| move |version, id: &str| connect_with_will(version, id, b"w", &vec![b'x'; length]);
    let longest = 32 * 1_024 - 1;
    answers_with(
        settings,
        &[
            first(ALL, of(longest), &Answer::Served),
            first(ALL, of(longest + 1), &Answer::Refused(0x97, 0x03)),
            first(ALL, of(60_000), &Answer::Refused(0x97, 0x03)),
        ]
        .concat(),
    );
    play(settings, |broker| {
        let payload = vec![b'x'; 30_000];
        let will = Some(Will { properties: DELAY_FOR_EVER, ..Will::new("w", &payload) });
        let connect = Connect { will, ..delayed(DELAY_FOR_EVER, EXPIRY_NEVER) };
        for number in 0..clients {
            let client_id = format!("frog {number}");
            broker.client_with(&Connect { client_id: &client_id, ..connect }).into_raw().reset();
        }
        let clients_count = u64::try_from(clients).expect("a count");
        wait_for_sys(broker, "wills/pending", |count| count == clients_count);
        for number in 0..clients {
            broker.client(Version::V5, &format!("frog {number}")).leave();
        }
        wait_for_sys(broker, "wills/pending", |count| count == 0);
    });
}

#[test]
fn w_07_the_wills_of_many_that_are_cut_off_in_one_instant() {
    let clients = crowd(300, 50_000);
    play("", |broker| {
        let mut witness = broker.client(Version::V5, "witness");
        witness.subscribe("w/+");
        let crowd: Vec<Client> = (0..clients)
            .map(|number| {
                let topic = format!("w/{number}");
                let will = Some(Will::new(&topic, b"gone"));
                broker.client_with(&Connect { will, ..Connect::new(Version::ALL[number % 3], &topic) })
            })
            .collect();
        crowd.into_iter().for_each(|client| client.into_raw().reset());
        let mut left: HashSet<String> = (0..clients).map(|number| format!("w/{number}")).collect();
        while !left.is_empty() {
            let will = witness.message();
            assert!(left.remove(&will.topic) && will.payload == b"gone", "{will:?}");
        }
        witness.expect_only_pong();
    });
}

/// A client with such a will breaks off, and this is what a witness of MQTT 5 receives.
fn will_properties_arrive(broker: &Broker, in_will: &[u8], received: &[u8]) {
    let mut witness = broker.client(Version::V5, "witness");
    witness.subscribe("w");
    let will = Some(Will { properties: in_will, ..Will::new("w", b"gone") });
    broker.client_with(&Connect { will, ..Connect::new(Version::V5, "frog") }).into_raw().reset();
    witness.expect(&packet::publish_with(Version::V5, 0x30, "w", received, b"gone"));
    witness.expect_only_pong();
}

#[test]
fn w_05_each_property_of_a_will_alone() {
    let of_message = [
        b"\x01\x01".to_vec(),
        b"\x02\x00\x00\x0E\x10".to_vec(),
        property(0x03, b"text/plain"),
        property(0x08, b"answer"),
        property(0x09, b"\x00\xFF"),
        packet::user_property("name", "value"),
    ];
    play("", |broker| {
        for properties in &of_message {
            will_properties_arrive(broker, properties, properties);
        }
        // The delay is the broker's; 0 is none.
        will_properties_arrive(broker, b"\x18\x00\x00\x00\x00", b"");
    });
}

/// [MQTT-3.1.3-10]
#[test]
fn w_05_five_thousand_user_properties_in_a_will() {
    let properties: Vec<u8> =
        (0..5_000).flat_map(|number: u32| packet::user_property("n", &number.to_string())).collect();
    play("", |broker| will_properties_arrive(broker, &properties, &properties));
}

/// [MQTT-3.1.4-2, 3.1.1 MQTT-3.2.2-6]
#[test]
fn w_06_a_will_to_a_topic_that_clients_may_not_publish_to() {
    let topics: [&[u8]; 4] = [b"$SYS/x", b"$SYS", b"$SYS/broker/version", b"$share/g/t"];
    let will = |topic| move |version, id: &str| connect_with_will(version, id, topic, b"gone");
    let refused = topics.map(|topic| first(V5, will(topic), &Answer::Reason(TOPIC_NAME_INVALID)));
    let closed = topics.map(|topic| first(BEFORE_5, will(topic), &Answer::Quiet));
    let served = first(ALL, will(b"$foo/x"), &Answer::Served);
    answers(&[refused.concat(), closed.concat(), served].concat());
}

#[test]
fn w_10_clearing_topics_that_hold_nothing_leaves_nothing() {
    const TOPICS: usize = 10_000;
    // The broker's own topics would come and go meanwhile.
    play("[sys]\ninterval = \"off\"\n", |broker| {
        let mut frog = broker.client(Version::V3_1_1, "frog");
        frog.subscribe("r/last");
        let clear = |number| packet::retained(Version::V3_1_1, &format!("r/{number}"), b"");
        let clear_all: Vec<u8> = (0..TOPICS).flat_map(clear).collect();
        let mut clear_twice = || {
            for _ in 0..2 {
                frog.send(&clear_all);
                frog.retain("r/last", b"");
                frog.expect_message("r/last", b"");
            }
            broker.resident_bytes()
        };
        let (before, after) = (clear_twice(), clear_twice());
        if let (Some(before), Some(after)) = (before, after) {
            assert!(after < before + (1 << 20), "{before} bytes, then {after}");
        }
        let mut late = broker.client(Version::V3_1_1, "late");
        late.subscribe("r/#");
        late.expect_only_pong();
    });
}

#[test]
fn w_10_one_topic_set_and_cleared_by_many_while_many_subscribe() {
    const PEERS: usize = 6;
    const ROUNDS: usize = 40;
    play("", |broker| {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let readers: Vec<_> = (0..PEERS)
                .map(|peer| {
                    scope.spawn(move || {
                        let version = Version::ALL[peer % 3];
                        let mut client = broker.client(version, &format!("reader {peer}"));
                        for _ in 0..ROUNDS {
                            client.send(&packet::subscribe(version, 1, "r/+"));
                            client.send(&packet::unsubscribe(version, 2, "r/+"));
                            client.send(&[0xC0, 0x00]);
                            loop {
                                let packet = client.read_packet();
                                match packet[0] {
                                    0xD0 => break,
                                    0x31 => assert!(packet.ends_with(b"real"), "retained: {packet:02x?}"),
                                    0x30 => {}
                                    first => assert!([0x90, 0xB0].contains(&first), "{packet:02x?}"),
                                }
                            }
                        }
                    })
                })
                .collect();
            for peer in 0..PEERS {
                let is_over = &is_over;
                scope.spawn(move || {
                    let version = Version::ALL[peer % 3];
                    let mut client = broker.client(version, &format!("writer {peer}"));
                    while !is_over.load(Ordering::SeqCst) {
                        client.retain("r/one", b"real");
                        client.retain("r/one", b"");
                        client.expect_only_pong();
                    }
                });
            }
            let outcomes: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
            is_over.store(true, Ordering::SeqCst);
            assert!(outcomes.iter().all(Result::is_ok));
        });
        // The last word was an empty one.
        let mut late = broker.client(Version::V5, "late");
        until("the last writer was heard", || {
            late.send(&packet::subscribe(Version::V5, 1, "r/one"));
            late.expect(&packet::suback(Version::V5, 1, 0));
            late.send(&[0xC0, 0x00]);
            let packet = late.read_packet();
            if packet == [0xD0, 0x00] {
                return Some(());
            }
            assert!(packet.ends_with(b"real"));
            late.expect(&[0xD0, 0x00]);
            None
        });
    });
}
