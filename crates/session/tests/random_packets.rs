//! No packet of a peer, in any order, causes a panic, and every bound holds. Packets and times come from a seed. A
//! failure prints the seed, and `PONDHAWK_SEED=…` repeats that one alone.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU16;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use base::{Message, Now, Ticket};
use pondhawk_session::client::{Acknowledge, Client, Event, Outgoing, Receipt};
use pondhawk_session::{Accepted, Bound, Request, Session, Settings, Waiting};
use wire::{
    Auth, AuthProperties, AuthReason, Binary, ConnAck, Connect, Delivery, Disconnect, OneOrMore, Packet,
    PacketId, PingReq, PingResp, PubAck, PubAckReason, PubComp, PubRec, PubRel, PubRelReason, Publish,
    PublishTopic, Qos, ReasonCode, SubAck, SubAckReason, TopicAlias, TopicName, Utf8, Version,
};

const SEQUENCES: u64 = 20_000;
const STEPS: usize = 60;

struct Random(u64);

impl Random {
    /// Knuth's generator; the upper half is random enough for this.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).expect("an index")]
    }

    /// Few, so that they meet.
    fn id(&mut self) -> PacketId {
        self.pick(&[1, 2, 3, 4, 5, 9, 65_535].map(|id| PacketId::new(id).expect("not 0")))
    }

    fn qos(&mut self) -> Qos {
        self.pick(&[Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce])
    }

    fn topic(&mut self) -> PublishTopic<'static> {
        let name: TopicName<'static> =
            self.pick(&[topic::topic!("a/topic/name"), topic::topic!("another/one")]);
        let alias = self.pick(&[1, 2, 3, 17].map(|alias| TopicAlias::new(alias).expect("not 0")));
        self.pick(&[
            PublishTopic::Name(name),
            PublishTopic::Name(name),
            PublishTopic::NameWithAlias(name, alias),
            PublishTopic::Alias(alias),
        ])
    }

    fn publish(&mut self) -> Publish<'static> {
        let (packet_id, dup) = (self.id(), self.below(2) == 0);
        let delivery = match self.qos() {
            Qos::AtMostOnce => Delivery::AtMostOnce,
            Qos::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup },
            Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup },
        };
        let topic = self.topic();
        Publish { topic, delivery, retain: self.below(9) == 0, ..Publish::new(topic::topic!("x"), b"hey") }
    }

    /// The packets that either end sends.
    fn packet(&mut self) -> Packet<'static> {
        let packet_id = self.id();
        let reason = self.pick(&[PubAckReason::Success, PubAckReason::Success, PubAckReason::QuotaExceeded]);
        let release = self.pick(&PubRelReason::ALL[..2]);
        match self.below(40) {
            0..14 => self.publish().into(),
            14..20 => PubAck::new(packet_id, reason).into(),
            20..26 => PubRec::new(packet_id, reason).into(),
            26..31 => PubRel::new(packet_id, release).into(),
            31..36 => PubComp::new(packet_id, release).into(),
            36 => self.auth().into(),
            37 => PingReq.into(),
            38 => PingResp.into(),
            _ => Disconnect::default().into(),
        }
    }

    fn auth(&mut self) -> Auth<'static> {
        let properties = AuthProperties {
            authentication_method: Utf8::new(self.pick(&["script", "other"])).ok(),
            authentication_data: Binary::new(b"data").ok(),
            ..AuthProperties::EMPTY
        };
        Auth { reason: self.pick(AuthReason::ALL), properties }
    }

    fn ticket(&mut self) -> Ticket {
        let packet_id = self.id();
        self.pick(&[
            Ticket::PubAck(packet_id),
            Ticket::PubRec(packet_id),
            Ticket::PubRel(packet_id),
            Ticket::PubComp(packet_id),
        ])
    }
}

fn connect(random: &mut Random) -> Connect<'static> {
    let mut connect = Connect::new(random.pick(&Version::ALL), Utf8::new("me").expect("a string"));
    connect.clean_start = random.below(2) == 0;
    connect.keep_alive_secs = random.pick(&[0, 1]);
    connect.properties.receive_maximum = NonZeroU16::new(random.pick(&[0, 1, 3]));
    connect.properties.topic_alias_maximum = random.pick(&[None, Some(2)]);
    connect.properties.session_expiry_interval_secs = random.pick(&[None, Some(9)]);
    connect
}

fn serve(random: &mut Random) {
    let settings =
        Settings { receive_max: 3, inflight_max: 3, waiting_messages_max: 3, ..Settings::default() };
    let mut now = Now { monotonic_ms: 0, unix_ms: 0 };
    let (mut session, mut out) = (Session::new(now), Vec::new());
    session.handle_packet(&connect(random).into(), &settings, now).expect("in order");
    let unreleased = [random.id()];
    let accepted = Accepted { client_id: "me", session_present: true, unreleased: &unreleased };
    assert!(session.accept(&accepted, &settings, &mut out));
    let is_5 = session.version() == Some(Version::V5);
    for _ in 0..STEPS {
        now.monotonic_ms += random.below(300);
        match random.below(10) {
            0..5 => match session.handle_packet(&random.packet(), &settings, now) {
                Ok(Request::Answer(packet)) => assert!(session.write(&packet, &mut out)),
                Ok(Request::Disconnect { .. }) => return,
                Ok(_) => {}
                Err(violation) => return session.answer(&violation, &mut out),
            },
            5..8 => session.complete(random.ticket(), random.pick(ReasonCode::ALL), &mut out),
            8 => {
                session.begin(random.pick(&[Qos::AtLeastOnce, Qos::ExactlyOnce]));
                let publish = random.publish();
                let message = Message::new(topic::topic!("a"), &publish, None, now).into();
                let identifiers = Default::default();
                let waiting =
                    Waiting { message, qos: Qos::AtLeastOnce, retain: false, identifiers, tag: 0_u64 };
                let _ = session.wait_within(waiting, Bound::of(&settings));
                session.next_waiting();
            }
            _ if random.below(3) == 0 => session.hold_answers(now),
            _ if session.handle_timeout(&settings, now, &mut out).is_err() => return,
            _ => {}
        }
        assert!(session.in_flight() <= usize::from(session.window()));
        assert!(session.waiting_messages() <= 3);
        assert!(!is_5 || session.unanswered() <= 100);
    }
}

struct Program {
    client: Client<u64>,
    receipts: Vec<Receipt>,
    out: Vec<u8>,
}

impl Program {
    /// Whether there is still a connection.
    fn take(&mut self, packet: Packet<'_>, now: Now) -> bool {
        match self.client.handle_packet(packet, now, &mut self.out) {
            Ok(Event::Message { receipt, .. }) => self.receipts.extend(receipt),
            Ok(_) => {}
            Err(violation) => self.client.answer(&violation, &mut self.out),
        }
        self.client.is_connected()
    }

    fn connect(&mut self, random: &mut Random, now: Now) -> bool {
        self.client.connection_lost();
        self.client.connect(&connect(random), now, &mut self.out).expect("in order");
        let mut connack = ConnAck::accepted(random.below(2) == 0);
        connack.properties.receive_maximum = NonZeroU16::new(random.pick(&[0, 1, 3]));
        connack.properties.topic_alias_maximum = random.pick(&[None, Some(2)]);
        connack.properties.maximum_packet_bytes = std::num::NonZeroU32::new(random.pick(&[0, 12]));
        self.take(connack.into(), now)
    }
}

fn use_server(random: &mut Random) {
    let mut now = Now { monotonic_ms: 0, unix_ms: 0 };
    let settings = pondhawk_session::client::Settings {
        acknowledge: random.pick(&[Acknowledge::AtOnce, Acknowledge::ByApplication]),
        inflight_max: 5,
        ..pondhawk_session::client::Settings::default()
    };
    let mut program = Program { client: Client::new(settings), receipts: Vec::new(), out: Vec::new() };
    program.connect(random, now);
    for step in 0..STEPS as u64 {
        now.monotonic_ms += random.below(300);
        let goes_on = match random.below(10) {
            0..5 => {
                let packet = random.packet();
                program.take(packet, now)
            }
            5 => {
                let reasons = [SubAckReason::GrantedQos0; 2];
                let reasons = OneOrMore::new(&reasons).expect("two");
                program.take(
                    SubAck { packet_id: random.id(), properties: Default::default(), reasons }.into(),
                    now,
                )
            }
            6 | 7 => {
                let outgoing = Outgoing::new(topic::topic!("a/topic"), b"hey").qos(random.qos());
                let _ = program.client.publish(&outgoing, step, now, &mut program.out);
                true
            }
            8 if !program.receipts.is_empty() => {
                let at = usize::try_from(random.below(program.receipts.len() as u64)).expect("an index");
                let receipt = program.receipts.swap_remove(at);
                program.client.acknowledge(receipt, random.pick(ReasonCode::ALL), now, &mut program.out);
                true
            }
            8 => program.client.handle_timeout(now, &mut program.out).is_ok(),
            _ => random.below(4) > 0,
        };
        if !goes_on {
            program.connect(random, now);
        }
        assert!(program.client.in_flight() <= 5);
        while program.client.next_failed().is_some() {}
    }
}

#[test]
fn random_packets_from_a_peer_cause_no_panic_and_exceed_no_bound() {
    let given = std::env::var("PONDHAWK_SEED").ok().map(|seed| seed.parse::<u64>().expect("a number"));
    let first = given.unwrap_or_else(|| RandomState::new().hash_one("seed") >> 1);
    let count = if given.is_some() { 1 } else { SEQUENCES };
    for seed in first..first + count {
        let play = || {
            serve(&mut Random(seed));
            use_server(&mut Random(seed));
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(play)) {
            eprintln!("PONDHAWK_SEED={seed}");
            resume_unwind(panic);
        }
    }
}
