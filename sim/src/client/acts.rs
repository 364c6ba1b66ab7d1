//! Actions of a client in its turn.

use session::Details;
use session::client::{Outgoing, Publishing as Sending};
use wire::{
    DisconnectReason, OneOrMore, Qos, ReasonCode, RequestedFilter, RetainHandling, SubscribeProperties,
    Subscription, SubscriptionIdentifier, SubscriptionOptions, TopicFilter, TopicName, UnsubscribeProperties,
    Version,
};

use super::{Client, Request};
use crate::oracle::{Publishing, Wish};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::scene::Scene;

/// Maximum bytes that the broker has not read, before a client stops writing.
const UNREAD_BYTES_MAX: usize = 2_000;

/// The same under a load.
const LOAD_BYTES_MAX: usize = 100_000;

/// A message that is to be published.
#[derive(Debug, Clone, Copy)]
struct Draft {
    topic: usize,
    qos: Qos,
    retain: bool,
    /// 0: what is retained is cleared.
    bytes: usize,
    expires_secs: Option<u32>,
}

/// The kinds of actions that clients choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Everything that is allowed, and connections that end in all ways.
    Wild,
    /// Connect, read, acknowledge, keep alive.
    Tame,
}

impl Client {
    /// Makes one act. Returns whether there was anything to do.
    pub(crate) fn act(
        &mut self,
        mood: Mood,
        scenario: &Scenario,
        scene: &mut Scene,
        random: &mut Random,
    ) -> bool {
        match (self.link.is_some(), mood) {
            (false, Mood::Wild) if random.chance(700) => false,
            (false, _) if scene.now.monotonic_ms < self.rests_until_ms => false,
            (false, _) => {
                self.connect_to(random.below(scenario.shards), scenario, scene, random);
                true
            }
            (true, Mood::Tame) => self.act_tamely(scene),
            (true, Mood::Wild) => {
                self.act_wildly(scenario, scene, random);
                true
            }
        }
    }

    fn act_tamely(&mut self, scene: &mut Scene) -> bool {
        let Some(link) = self.link else { return false };
        let mut has_acted = self.keep_alive(scene);
        if !self.unacknowledged.is_empty() {
            self.acknowledge(usize::MAX, scene);
            has_acted = true;
        }
        if scene.network.client_may_read(link) {
            self.read(usize::MAX, scene);
            has_acted = true;
        }
        has_acted
    }

    fn act_wildly(&mut self, scenario: &Scenario, scene: &mut Scene, random: &mut Random) {
        if random.chance(scenario.weather.cuts_per_mille) {
            return self.cut(scenario, scene, random);
        }
        if let Some(link) = self.link.filter(|_| random.chance(scenario.weather.stalls_per_mille)) {
            return scene.network.stall(link, random.below(2_000) as u64, random.below(2_000) as u64);
        }
        self.keep_alive(scene);
        match random.weighted(&self.profile.weights) {
            0 => self.read(random.between(1, scenario.reads_bytes_max), scene),
            1 => self.publish(scenario, scene, random),
            2 => self.subscribe(scenario, scene, random),
            3 => self.unsubscribe(scenario, scene, random),
            _ => self.acknowledge(random.between(1, 5), scene),
        }
    }

    /// A turn of a client that keeps to its Keep Alive.
    fn keep_alive(&mut self, scene: &mut Scene) -> bool {
        if self.protocol.handle_timeout(scene.now, &mut self.out).is_err() {
            self.lost(scene);
        }
        let has_pinged = !self.out.is_empty();
        self.send(scene);
        has_pinged
    }

    /// The connection ends, in one of many ways.
    fn cut(&mut self, scenario: &Scenario, scene: &mut Scene, random: &mut Random) {
        let Some(link) = self.link else { return };
        let unread = scene.network.client_waits_bytes(link);
        match random.below(8) {
            0 => self.disconnect(scene, random),
            6 => {
                self.subscribe(scenario, scene, random);
                self.leave_at_once(scene, random);
            }
            7 => {
                self.unsubscribe(scenario, scene, random);
                self.leave_at_once(scene, random);
            }
            1 => self.lost(scene),
            2 => scene.network.reset(link, random.between(0, unread), random.below(300)),
            3 | 4 => self.vanish(random.between(0, unread), scene),
            // The next one comes while this one is still there.
            _ => {
                self.vanish(unread, scene);
                self.connect_to(random.below(scenario.shards), scenario, scene, random);
            }
        }
    }

    /// The connection ends right behind what was sent last.
    fn leave_at_once(&mut self, scene: &mut Scene, random: &mut Random) {
        if random.chance(700) { self.disconnect(scene, random) } else { self.lost(scene) }
    }

    fn disconnect(&mut self, scene: &mut Scene, random: &mut Random) {
        let is_5 = self.profile.version == Version::V5;
        let reason = match is_5 && random.chance(300) {
            true => DisconnectReason::DisconnectWithWillMessage,
            false => DisconnectReason::NormalDisconnection,
        };
        let expiry_secs = (is_5 && self.profile.expiry_secs > 0 && random.chance(200)).then_some(0);
        let written =
            self.protocol.disconnect(reason, expiry_secs, &Details::default(), &mut self.out).is_ok();
        if !written {
            return self.lost(scene);
        }
        self.send(scene);
        if expiry_secs == Some(0) {
            // The broker may never hear it.
            self.end_session(scene);
            self.is_unsure = true;
        }
        self.lost(scene);
    }

    fn publish(&mut self, scenario: &Scenario, scene: &mut Scene, random: &mut Random) {
        let Some(link) = self.link else { return };
        if scene.network.client_waits_bytes(link) > UNREAD_BYTES_MAX || self.protocol.waiting_messages() > 20
        {
            return;
        }
        // Wills have the last two topics for themselves.
        let topic = random.below(scenario.topics.len() - 2);
        let about = &scenario.topics[topic];
        let qos = about.qos.unwrap_or(match random.below(4) {
            0 => Qos::AtMostOnce,
            1 | 2 => Qos::AtLeastOnce,
            _ => Qos::ExactlyOnce,
        });
        if qos == Qos::AtMostOnce && !self.protocol.is_connected() {
            return;
        }
        let is_plain = scenario.plain_per_mille > 0 && random.chance(scenario.plain_per_mille);
        let retain = about.is_retained && !is_plain;
        let is_empty = retain && random.chance(about.clears_per_mille);
        let expires = self.profile.version.is_5() && random.chance(about.expires_per_mille);
        let bytes = if is_empty { 0 } else { random.between(4, scenario.payload_bytes_max) };
        let expires_secs = expires.then(|| if random.chance(500) { 1 } else { 60 });
        self.publish_to(Draft { topic, qos, retain, bytes, expires_secs }, scenario, scene);
    }

    fn publish_to(&mut self, draft: Draft, scenario: &Scenario, scene: &mut Scene) {
        let Draft { topic, qos, retain, bytes, expires_secs } = draft;
        let bytes = bytes.min(self.payload_bytes_max);
        let about = &scenario.topics[topic];
        let publishing = Publishing {
            publisher: self.number,
            topic,
            qos,
            retain,
            is_empty: bytes == 0,
            expires: expires_secs.is_some(),
            bytes: about.name.len() + bytes,
            link: self.link.filter(|_| self.protocol.is_connected()),
        };
        let no = scene.oracle.published(publishing);
        let mut payload = vec![b'x'; bytes];
        if let Some(number) = payload.first_chunk_mut() {
            *number = no.0.to_be_bytes();
        }
        let mut outgoing = Outgoing::new(TopicName::new(&about.name).expect("a topic"), &payload);
        outgoing.qos = qos;
        outgoing.retain = retain;
        outgoing.properties.message_expiry_interval_secs = expires_secs;
        match self.protocol.publish(&outgoing, no, scene.now, &mut self.out) {
            Ok(Sending::Sent(_) | Sending::Waits) => self.send(scene),
            Err(error) => scene.oracle.fail(format!("c{} cannot publish: {error:?}", self.number)),
        }
    }

    /// Publishes one large message of the load, if all earlier ones are answered. Returns its length.
    pub(crate) fn load(&mut self, topic: usize, scenario: &Scenario, scene: &mut Scene) -> usize {
        let Some(link) = self.link.filter(|_| self.protocol.is_connected()) else { return 0 };
        if self.protocol.waiting_messages() > 0 || scene.network.client_waits_bytes(link) > LOAD_BYTES_MAX {
            return 0;
        }
        let bytes = scenario.payload_bytes_max;
        let qos = scenario.topics[topic].qos.unwrap_or(Qos::AtLeastOnce);
        let retain = scenario.topics[topic].is_retained;
        self.publish_to(Draft { topic, qos, retain, bytes, expires_secs: None }, scenario, scene);
        bytes
    }

    fn subscribe(&mut self, scenario: &Scenario, scene: &mut Scene, random: &mut Random) {
        let Some(session) = self.session.filter(|_| self.protocol.is_connected()) else { return };
        let is_5 = self.profile.version.is_5();
        let identifier = (is_5 && random.chance(500)).then(|| {
            self.identifiers += 1;
            self.identifiers
        });
        let mut wishes: Vec<Wish> = Vec::new();
        for _ in 0..*random.pick(&[1, 1, 2]) {
            let filter = random.below(scenario.filters.len());
            let no_local = is_5 && !scenario.filters[filter].is_shared && random.chance(100);
            let handlings = [RetainHandling::Send, RetainHandling::SendIfNew, RetainHandling::DoNotSend];
            let retain_handling = if is_5 { *random.pick(&handlings) } else { RetainHandling::Send };
            let qos = *random.pick(&[Qos::AtMostOnce, Qos::AtLeastOnce, Qos::ExactlyOnce, Qos::ExactlyOnce]);
            if wishes.iter().all(|wish| wish.filter != filter) {
                wishes.push(Wish { filter, qos, no_local, retain_handling, identifier });
            }
        }
        self.ask_for(session, &wishes, scenario, scene, random.chance(300));
    }

    fn ask_for(
        &mut self,
        session: crate::oracle::SessionNo,
        wishes: &[Wish],
        scenario: &Scenario,
        scene: &mut Scene,
        retain_as_published: bool,
    ) {
        let subscription = |wish: &Wish| {
            let filter = TopicFilter::new(&scenario.filters[wish.filter].text).expect("a filter");
            let options = SubscriptionOptions {
                qos: wish.qos,
                no_local: wish.no_local,
                retain_as_published: retain_as_published && self.profile.version.is_5(),
                retain_handling: wish.retain_handling,
            };
            Subscription::new(filter, options).expect("shared ones have no No Local")
        };
        let subscriptions: Vec<Subscription<'_>> = wishes.iter().map(subscription).collect();
        let Some(subscriptions) = OneOrMore::new(&subscriptions) else { return };
        let identifier = wishes.first().and_then(|wish| wish.identifier);
        let properties = SubscribeProperties {
            subscription_identifier: identifier.and_then(SubscriptionIdentifier::new),
            ..SubscribeProperties::default()
        };
        match self.protocol.subscribe(subscriptions, properties, scene.now, &mut self.out) {
            Ok(packet_id) => {
                let spans = wishes.iter().map(|wish| (scene.oracle.subscribing(session, *wish), wish.filter));
                self.requests.push((packet_id, Request::Subscribe(spans.collect())));
                self.send(scene);
            }
            Err(error) => scene.oracle.fail(format!("c{} cannot subscribe: {error:?}", self.number)),
        }
    }

    /// Subscribes to one filter only, and to everything that is retained there.
    pub(crate) fn audit(&mut self, filter: usize, scenario: &Scenario, scene: &mut Scene) {
        let Some(session) = self.session.filter(|_| self.protocol.is_connected()) else { return };
        let retain_handling = RetainHandling::Send;
        let wish = Wish { filter, qos: Qos::ExactlyOnce, no_local: false, retain_handling, identifier: None };
        self.ask_for(session, &[wish], scenario, scene, false);
    }

    fn unsubscribe(&mut self, scenario: &Scenario, scene: &mut Scene, random: &mut Random) {
        let Some(session) = self.session.filter(|_| self.protocol.is_connected()) else { return };
        if self.filters.is_empty() {
            return;
        }
        let filter = *random.pick(&self.filters);
        let text = &scenario.filters[filter].text;
        let requested: RequestedFilter<'_> = Ok(TopicFilter::new(text).expect("a filter"));
        let properties = UnsubscribeProperties::default();
        match self.protocol.unsubscribe(OneOrMore::one(&requested), properties, scene.now, &mut self.out) {
            Ok(packet_id) => {
                let before = scene.oracle.unsubscribing(session, filter);
                self.requests.push((packet_id, Request::Unsubscribe(before, filter)));
                self.send(scene);
            }
            Err(error) => scene.oracle.fail(format!("c{} cannot unsubscribe: {error:?}", self.number)),
        }
    }

    /// Acknowledges this number of the received messages, in their order.
    fn acknowledge(&mut self, messages: usize, scene: &mut Scene) {
        for _ in 0..messages.min(self.unacknowledged.len()) {
            let Some((receipt, delivery)) = self.unacknowledged.pop_front() else { break };
            if let Some(session) = self.session {
                self.took(session, &delivery, scene);
            }
            self.protocol.acknowledge(receipt, ReasonCode::Success, scene.now, &mut self.out);
        }
        self.send(scene);
    }
}
