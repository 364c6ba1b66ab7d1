//! A virtual client: the client's part of a session, driven by chance.

mod acts;
mod watch;

use std::collections::VecDeque;
use std::num::{NonZeroU16, NonZeroU32};

use session::client::{Acknowledge, Event, Receipt, Settings};
use wire::{
    Binary, ConnAckProperties, Connect, Decoded, Limits, Packet, PacketId, PacketType, Qos, ReasonCode, Role,
    SubAckReason, TopicName, UnsubAckReason, Utf8, Version, Will, decode,
};

use crate::broker::{PASSWORD, USER};
use crate::configuration::PACKET_HEAD_BYTES;
use crate::network::{LinkId, Read};
use crate::oracle::{Delivery, MessageNo, Publishing, SessionNo, SpanNo, Standing, Told};
use crate::random::Random;
use crate::scenario::{Profile, Scenario};
use crate::scene::Scene;
use crate::trace::note;
use watch::{Watch, message_of};

pub(crate) use acts::Mood;

/// Delay before a client that was turned away connects again, in milliseconds.
const REST_MS: u64 = 100;

/// Whether a client has a user, whose password it knows.
pub(crate) fn has_user(client: usize) -> bool {
    client % 2 == 1
}

/// A client with its session and, most of the time, a connection.
pub(crate) struct Client {
    number: usize,
    profile: Profile,
    protocol: session::Client<MessageNo>,
    link: Option<LinkId>,
    /// Read and not understood yet.
    unparsed: Vec<u8>,
    /// Written by the protocol, not yet on its way.
    out: Vec<u8>,
    /// Messages that have come and are not acknowledged.
    unacknowledged: VecDeque<(Receipt, Delivery)>,
    session: Option<SessionNo>,
    /// The session of this connection, or of the last one, outlives it.
    lasts: bool,
    /// CONNECT was sent for a session of which nothing was heard: there may be one or not, so that the next begins anew.
    is_unsure: bool,
    requests: Vec<(PacketId, Request)>,
    /// Filters of its subscriptions, as far as it knows.
    filters: Vec<usize>,
    watch: Watch,
    identifiers: u32,
    /// The shard at which it has given up waiting for CONNACK. It connects there again, so that the broker sees its
    /// attempts in their order.
    shard: Option<usize>,
    /// Not before that it tries to connect again.
    rests_until_ms: u64,
    /// The longest payload that the broker takes, as far as the client knows or was told by its operator.
    pub(crate) payload_bytes_max: usize,
}

/// The filters of a SUBSCRIBE or UNSUBSCRIBE.
#[derive(Debug)]
enum Request {
    Subscribe(Vec<(SpanNo, usize)>),
    Unsubscribe(SpanNo, usize),
}

impl Client {
    pub(crate) fn new(number: usize, profile: Profile) -> Self {
        let settings = Settings {
            acknowledge: Acknowledge::ByApplication,
            inflight_max: profile.inflight_max,
            topic_alias_out_max: 2,
            // Patience is the scheduler's.
            connect_timeout_ms: 1 << 40,
            ping_timeout_ms: 1 << 40,
            ..Settings::default()
        };
        Self {
            number,
            profile,
            protocol: session::Client::new(settings),
            link: None,
            unparsed: Vec::new(),
            out: Vec::new(),
            unacknowledged: VecDeque::new(),
            session: None,
            lasts: false,
            is_unsure: false,
            requests: Vec::new(),
            filters: Vec::new(),
            watch: Watch::default(),
            identifiers: 0,
            shard: None,
            rests_until_ms: 0,
            payload_bytes_max: usize::MAX,
        }
    }

    pub(crate) fn version(&self) -> Version {
        self.profile.version
    }

    pub(crate) fn standing(&self) -> Standing {
        Standing { session: self.session.filter(|_| self.protocol.is_connected()), link: self.link }
    }

    /// When it wants to do something though nothing happens.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        match self.link {
            Some(_) => self.protocol.poll_timeout(),
            None => Some(self.rests_until_ms),
        }
    }

    /// Returns a description of unfinished exchanges, if there are any.
    pub(crate) fn unfinished(&self) -> Option<String> {
        let client = &self.profile.client_id;
        let (in_flight, waiting) = (self.protocol.in_flight(), self.protocol.waiting_messages());
        if !self.protocol.is_connected() {
            Some(format!("{client} is not connected"))
        } else if in_flight + waiting > 0 {
            Some(format!("{client} has {in_flight} messages under way and {waiting} behind them"))
        } else if !self.requests.is_empty() {
            Some(format!("{client} has no answer to {:?}", self.requests))
        } else {
            self.watch.owed().map(|owed| format!("{client} waits for {owed}"))
        }
    }

    /// Returns a description of unfinished exchanges after a failure of the journal, although everything else is well.
    /// Nobody waits for an answer any more. A client whose session ends with its connection needs no disk.
    pub(crate) fn unfinished_without_disk(&self) -> Option<String> {
        let needs_disk = self.profile.expiry_secs > 0;
        self.unfinished().filter(|_| self.protocol.is_connected() || !needs_disk)
    }

    /// The client leaves for good.
    pub(crate) fn leave(&mut self, scene: &mut Scene) {
        self.lost(scene);
    }

    /// From now on the client has no session that lasts: the next connection ends the one that it has.
    pub(crate) fn give_up_session(&mut self, scene: &mut Scene) {
        self.profile.expiry_secs = 0;
        self.profile.fresh_per_mille = 1_000;
        self.lost(scene);
    }

    /// Begins a connection to a shard.
    pub(crate) fn connect_to(
        &mut self,
        shard: usize,
        scenario: &Scenario,
        scene: &mut Scene,
        random: &mut Random,
    ) {
        let (may_last, is_5) = (self.profile.expiry_secs > 0, self.profile.version.is_5());
        let wants_fresh = random.chance(self.profile.fresh_per_mille);
        let is_fresh = self.is_unsure || wants_fresh || !may_last && !is_5;
        // Before MQTT 5 a session that begins anew ends with its connection.
        let lasts = may_last && (is_5 || !is_fresh);
        if is_fresh || !lasts {
            self.end_session(scene);
        }
        let shard = self.shard.filter(|before| *before < scenario.shards).unwrap_or(shard);
        self.shard = Some(shard).filter(|_| may_last);
        let address = scene.network.choose_address(self.number, random);
        let (at, durability) = ((shard, address), self.profile.durability);
        let link = scene.network.open(self.number, at, durability, scenario.socket_bytes);
        self.link = Some(link);
        self.lasts = lasts;
        self.is_unsure |= may_last && self.session.is_none();
        let profile = self.profile.clone();
        let client_id = Utf8::new(&profile.client_id).expect("an identifier");
        let mut connect = Connect::new(profile.version, client_id);
        connect.clean_start = is_fresh;
        connect.keep_alive_secs = profile.keep_alive_secs;
        self.log_in(&mut connect);
        if profile.version.is_5() {
            let properties = &mut connect.properties;
            properties.session_expiry_interval_secs = lasts.then_some(profile.expiry_secs);
            properties.receive_maximum = profile.receive_max.and_then(NonZeroU16::new);
            properties.maximum_packet_bytes = profile.packet_bytes_max.and_then(NonZeroU32::new);
            properties.topic_alias_maximum = Some(profile.topic_alias_max);
        }
        let payload;
        if let Some(plan) = profile.will {
            let publishing = Publishing {
                publisher: self.number,
                topic: plan.topic,
                qos: plan.qos,
                retain: plan.retain,
                is_empty: false,
                expires: false,
                bytes: 9,
                link: Some(link),
            };
            let will = scene.oracle.left_will(publishing, plan.delay_secs, lasts);
            payload = will.0.to_be_bytes();
            connect.will = Some(Will {
                topic: TopicName::new(&scenario.topics[plan.topic].name).expect("a topic"),
                payload: Binary::new(&payload).expect("it is short"),
                qos: plan.qos,
                retain: plan.retain,
                delay_interval_secs: (plan.delay_secs > 0).then_some(plan.delay_secs),
                properties: wire::MessageProperties::EMPTY,
            });
        }
        let window = match profile.version {
            Version::V5 => profile.receive_max.map_or(usize::from(u16::MAX), usize::from),
            Version::V3_1 | Version::V3_1_1 => usize::from(scenario.session.inflight_max_3),
        };
        self.watch.begin(window);
        if let Err(error) = self.protocol.connect(&connect, scene.now, &mut self.out) {
            scene.oracle.fail(format!("c{} cannot connect: {error:?}", self.number));
        }
        note!(scene.trace, ("c{}", self.number), "connects to shard {shard} on {link:?}");
        self.send(scene);
    }

    /// Half of the clients have a user.
    fn log_in(&self, connect: &mut Connect<'_>) {
        if has_user(self.number) {
            let (user, password) = (Utf8::new(USER), Binary::new(PASSWORD));
            let (user, password) = (user.expect("a name"), password.expect("it is short"));
            connect.set_credentials(Some(user), Some(password)).expect("a password has a name");
        }
    }

    /// Takes what the protocol has written to the network.
    fn send(&mut self, scene: &mut Scene) {
        let mut rest = &self.out[..];
        let limits = Limits { sender: Some(Role::Client), ..Limits::default() };
        let is_connect = rest
            .first()
            .is_some_and(|first| PacketType::from_first_byte(*first) == Some(PacketType::Connect));
        let version = Some(self.profile.version).filter(|_| !is_connect);
        while !rest.is_empty() {
            match decode(rest, version, &limits) {
                Ok(Decoded::Packet { packet, len }) => {
                    self.note("->", &packet, scene);
                    self.watch.sends(&packet);
                    rest = &rest[len..];
                }
                other => {
                    let finding = format!("c{} writes what cannot be read: {other:?}", self.number);
                    scene.oracle.fail(finding);
                    break;
                }
            }
        }
        if let Some(link) = self.link {
            scene.network.client_writes(link, &self.out);
        }
        self.out.clear();
    }

    /// Pings would push everything else out of the last events.
    fn note(&self, direction: &str, packet: &Packet<'_>, scene: &mut Scene) {
        if !matches!(packet, Packet::PingReq(_) | Packet::PingResp(_)) {
            note!(scene.trace, ("c{}", self.number), "{direction} {packet}");
        }
    }

    /// Reads some of what has come, and answers it.
    fn read(&mut self, bytes_max: usize, scene: &mut Scene) {
        let Some(link) = self.link else { return };
        match scene.network.client_reads(link, bytes_max) {
            Read::Bytes(bytes) => self.unparsed.extend(bytes),
            Read::Nothing => return,
            Read::EndOfStream | Read::Reset => {
                self.rests_until_ms = scene.now.monotonic_ms + REST_MS;
                return self.lost(scene);
            }
        }
        let bytes = std::mem::take(&mut self.unparsed);
        let mut rest = &bytes[..];
        while self.link.is_some() {
            match decode(rest, Some(self.profile.version), &self.protocol.limits()) {
                Ok(Decoded::Packet { packet, len }) => {
                    self.note("<-", &packet, scene);
                    if let Err(finding) = self.watch.receives(&packet) {
                        scene.oracle.fail(format!("c{} gets {finding}", self.number));
                    }
                    rest = &rest[len..];
                    match self.protocol.handle_packet(packet, scene.now, &mut self.out) {
                        Ok(event) => self.take(event, scene),
                        Err(violation) => {
                            let number = self.number;
                            scene
                                .oracle
                                .fail(format!("c{number} says that the broker breaks a rule: {violation:?}"));
                            return;
                        }
                    }
                }
                Ok(Decoded::Need { .. }) => break,
                Err(violation) => {
                    let number = self.number;
                    return scene.oracle.fail(format!("c{number} cannot read what it gets: {violation:?}"));
                }
            }
        }
        if self.link.is_some() {
            self.unparsed = rest.to_vec();
            self.send(scene);
        }
    }

    fn take(&mut self, event: Event<'_, MessageNo>, scene: &mut Scene) {
        match event {
            Event::Connected { session_present, properties } => {
                self.connected(session_present, &properties, scene);
            }
            Event::Refused { .. } | Event::Disconnected(_) => {
                if let Event::Disconnected(goodbye) = event {
                    scene.oracle.told_goodbye(self.number, self.link, goodbye.reason.into());
                }
                self.rests_until_ms = scene.now.monotonic_ms + REST_MS;
                self.lost(scene);
            }
            Event::Message { message, receipt } => {
                let identifiers = message.packet.subscription_identifiers.iter().map(|id| id.value());
                let delivery = Delivery {
                    message: message_of(&message.packet),
                    topic: message.topic().as_str().to_owned(),
                    qos: message.packet.delivery.qos(),
                    dup: message.packet.delivery.dup(),
                    retain: message.packet.retain,
                    identifiers: identifiers.collect(),
                };
                match (receipt, self.session) {
                    (Some(receipt), _) => self.unacknowledged.push_back((receipt, delivery)),
                    (None, Some(session)) => self.took(session, &delivery, scene),
                    (None, None) => {}
                }
            }
            Event::Received { packet_id, reason } => {
                if let Some(no) = self.watch.sent(packet_id) {
                    scene.oracle.acknowledged(no, reason);
                }
                self.watch.acknowledged(packet_id);
            }
            Event::Published { tag, reason, .. } => {
                // PUBCOMP does not revoke the acknowledgement of PUBREC.
                if reason != ReasonCode::PacketIdentifierNotFound {
                    scene.oracle.acknowledged(tag, reason);
                }
            }
            Event::Subscribed(ack) => {
                let reasons: Vec<SubAckReason> = ack.reasons.iter().collect();
                self.subscribed(ack.packet_id, &reasons, scene);
            }
            Event::Unsubscribed(ack) => {
                // That there was none may mean that an earlier packet is still waiting for its answer.
                let ended = |reason| reason == UnsubAckReason::Success;
                let has_ended = ack.reasons.is_none_or(|reasons| reasons.iter().all(ended));
                self.unsubscribed(ack.packet_id, has_ended, scene);
            }
            Event::None
            | Event::Released { .. }
            | Event::Authenticate { .. }
            | Event::Authenticated { .. } => {}
        }
    }

    /// The judge hears of a message.
    fn took(&self, session: SessionNo, delivery: &Delivery, scene: &mut Scene) {
        let sender_has_ended = self.link.is_none_or(|link| scene.network.is_of_ended_process(link));
        scene.oracle.delivered(session, delivery, sender_has_ended);
    }

    fn connected(&mut self, session_present: bool, properties: &ConnAckProperties<'_>, scene: &mut Scene) {
        self.is_unsure = false;
        self.shard = None;
        if !session_present {
            if let Some(session) = self.session.take() {
                scene.oracle.session_ended(session);
                scene.oracle.session_lost(self.number);
            }
            self.watch.forget_session();
            self.filters.clear();
            let packet_bytes_max = self.profile.packet_bytes_max.filter(|_| self.profile.version.is_5());
            let packet_bytes_max = packet_bytes_max.map_or(usize::MAX, |max| max as usize);
            self.session = Some(scene.oracle.session_began(self.number, self.lasts, packet_bytes_max));
        }
        while self.protocol.next_failed().is_some() {}
        let expiry_secs = self.told_limits(properties, scene);
        scene.oracle.heard_of_session(self.number, expiry_secs);
    }

    /// The client keeps to the limits of CONNACK. Returns the lifetime of its session, if it is told that.
    fn told_limits(&mut self, properties: &ConnAckProperties<'_>, scene: &mut Scene) -> Option<u32> {
        let link = self.link?;
        if !self.profile.version.is_5() {
            scene.oracle.window_3(link).into_iter().for_each(|window| self.watch.set_window(window));
            return None;
        }
        let asked_secs = if self.lasts { self.profile.expiry_secs } else { 0 };
        let packet_bytes_max = properties.maximum_packet_bytes.map_or(u32::MAX, NonZeroU32::get);
        let told = Told {
            receive_max: properties.receive_maximum.map_or(u16::MAX, NonZeroU16::get),
            packet_bytes_max,
            topic_alias_max: properties.topic_alias_maximum.unwrap_or(0),
            expiry_secs: properties.session_expiry_interval_secs.unwrap_or(asked_secs),
        };
        self.payload_bytes_max = (packet_bytes_max as usize).saturating_sub(PACKET_HEAD_BYTES);
        scene.oracle.told_limits(self.number, link, asked_secs, told);
        Some(told.expiry_secs)
    }

    fn subscribed(&mut self, packet_id: PacketId, reasons: &[SubAckReason], scene: &mut Scene) {
        let Some(place) = self.requests.iter().position(|(id, _)| *id == packet_id) else { return };
        let (Request::Subscribe(spans), Some(session)) = (self.requests.swap_remove(place).1, self.session)
        else {
            return;
        };
        for ((span, filter), reason) in spans.into_iter().zip(reasons) {
            let granted = (!reason.is_error()).then(|| Qos::from_level(reason.code())).flatten();
            if granted.is_some() && !self.filters.contains(&filter) {
                self.filters.push(filter);
            }
            scene.oracle.subscribed(session, span, granted);
        }
    }

    fn unsubscribed(&mut self, packet_id: PacketId, has_ended: bool, scene: &mut Scene) {
        let Some(place) = self.requests.iter().position(|(id, _)| *id == packet_id) else { return };
        let (Request::Unsubscribe(before, filter), Some(session)) =
            (self.requests.swap_remove(place).1, self.session)
        else {
            return;
        };
        if has_ended {
            self.filters.retain(|known| *known != filter);
            scene.oracle.unsubscribed(session, before, filter);
        }
    }

    /// The connection is over, as far as the client knows.
    pub(crate) fn lost(&mut self, scene: &mut Scene) {
        let Some(link) = self.link.take() else { return };
        note!(scene.trace, ("c{}", self.number), "is without a connection");
        scene.network.client_closes(link);
        self.forget_connection(link, scene);
    }

    /// The client is gone, and the broker is not told.
    fn vanish(&mut self, up_left: usize, scene: &mut Scene) {
        let Some(link) = self.link.take() else { return };
        note!(scene.trace, ("c{}", self.number), "vanishes");
        scene.network.client_vanishes(link, up_left);
        self.forget_connection(link, scene);
    }

    fn forget_connection(&mut self, link: LinkId, scene: &mut Scene) {
        let was_connected = self.protocol.is_connected();
        if self.shard.is_some() {
            // A CONNECT that comes later than the next one would take its session over.
            scene.network.reset(link, 0, 0);
        }
        self.protocol.connection_lost();
        self.unparsed.clear();
        self.out.clear();
        self.unacknowledged.clear();
        self.requests.clear();
        for no in self.watch.unacknowledged() {
            scene.oracle.may_be_repeated(no);
        }
        // The broker may have found that the session was over, and have begun another: nobody would tell.
        self.is_unsure |= !was_connected && scene.oracle.may_lose_sessions(self.number);
        if !self.lasts {
            self.end_session(scene);
        }
    }

    fn end_session(&mut self, scene: &mut Scene) {
        if let Some(session) = self.session.take() {
            scene.oracle.session_ended(session);
        }
        self.watch.forget_session();
        self.filters.clear();
    }
}
