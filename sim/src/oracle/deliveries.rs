//! Deliveries to clients: only the messages that they have subscribed to, in the promised number and order.

use wire::Qos;

use super::sessions::{Session, Value};
use super::{Message, MessageNo, Oracle, SessionNo, Tick};

/// A PUBLISH that a client has taken.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    /// `None`: the payload is empty, which says that a topic has no value any more.
    pub(crate) message: Option<MessageNo>,
    pub(crate) topic: String,
    pub(crate) qos: Qos,
    pub(crate) dup: bool,
    pub(crate) retain: bool,
    pub(crate) identifiers: Vec<u32>,
}

impl Oracle {
    /// `sender_has_ended`: the process that has sent it is gone.
    pub(crate) fn delivered(&mut self, to: SessionNo, delivery: &Delivery, sender_has_ended: bool) {
        let tick = self.next_tick();
        let finding = self.judge(to, delivery, tick, sender_has_ended).err();
        if let Some(finding) = finding {
            let client = self.sessions[to.0].client;
            self.fail(format!("c{client} (session {}) gets {finding}", to.0));
        }
    }

    fn judge(
        &mut self,
        to: SessionNo,
        delivery: &Delivery,
        tick: Tick,
        sender_has_ended: bool,
    ) -> Result<(), String> {
        let Some(topic) = self.topics.iter().position(|topic| *topic == delivery.topic) else {
            return Err(format!("a message on {}, to which nobody publishes", delivery.topic));
        };
        let qos = delivery.qos;
        let Some(no) = delivery.message else {
            // An empty message has no number: one that is sent again may be older than the value that was seen last.
            self.note_value(to, topic, None, Some(qos).filter(|_| !delivery.dup));
            return Ok(());
        };
        if no.0 as usize >= self.messages.len() {
            return Err(format!("m{}, which was never published", no.0));
        }
        self.check_content(no, topic, qos)?;
        self.check_subscription(to, no, delivery)?;
        if self.sessions[to.0].receipts_of(no) > 0 {
            let count = self.sessions[to.0].receipts_with(no, qos);
            self.check_repetition(to, no, delivery, usize::from(count) + 1)?;
            // Sent again by the server, it may be older than what was seen last; by its publisher, it is the newest.
            self.note_value(to, topic, Some(no), Some(qos).filter(|_| !delivery.dup));
        } else {
            // If not all messages of the topic are retained, the value for a new subscription may be older than the
            // last message.
            if !(delivery.retain && self.has_plain) {
                self.check_order(to, no, qos, sender_has_ended)?;
            }
            self.note_value(to, topic, Some(no), Some(qos));
        }
        self.sessions[to.0].take(no, qos, delivery.dup);
        self.message_mut(no).delivered.get_or_insert(tick);
        Ok(())
    }

    fn check_content(&self, no: MessageNo, topic: usize, qos: Qos) -> Result<(), String> {
        let message = self.message(no);
        let name = || self.name(no);
        if message.topic != topic {
            return Err(format!("{} on {}", name(), self.topics[topic]));
        }
        if qos > message.qos {
            return Err(format!("{} with {qos:?}", name()));
        }
        if message.is_refused && !message.may_be_repeated {
            return Err(format!("{}, although it was refused", name()));
        }
        if message.will.as_ref().is_some_and(|will| will.is_cancelled) {
            return Err(format!("{}, a will that was not to be published", name()));
        }
        Ok(())
    }

    fn check_subscription(&self, to: SessionNo, no: MessageNo, delivery: &Delivery) -> Result<(), String> {
        let message = self.message(no);
        let session = &self.sessions[to.0];
        if self.may_be_moved_to(session, message) {
            return Ok(());
        }
        let covering = || {
            session.spans.iter().filter(|span| {
                self.matches[span.wish.filter][message.topic]
                    && span.may_cover(message.published)
                    && !(span.wish.no_local && session.client == message.publisher)
            })
        };
        match covering().map(|span| span.wish.qos).max() {
            None => return Err(format!("{}, which it has not subscribed to", self.name(no))),
            Some(granted) if delivery.qos > granted => {
                return Err(format!(
                    "{} with {:?}, but was granted {granted:?}",
                    self.name(no),
                    delivery.qos
                ));
            }
            Some(_) => {}
        }
        let known = |identifier: &u32| covering().any(|span| span.wish.identifier == Some(*identifier));
        match delivery.identifiers.iter().find(|identifier| !known(identifier)) {
            Some(strange) => Err(format!("{} for subscription {strange}, which it has not", self.name(no))),
            None => Ok(()),
        }
    }

    /// A message has been taken before. Whether it may be taken again depends on its QoS, and on how many ways lead to
    /// this session: one for all its plain subscriptions, one for each group, one for each SUBSCRIBE that asks for what
    /// is retained.
    fn check_repetition(
        &self,
        to: SessionNo,
        no: MessageNo,
        delivery: &Delivery,
        count: usize,
    ) -> Result<(), String> {
        let (message, session) = (self.message(no), &self.sessions[to.0]);
        let is_exact = match delivery.qos {
            Qos::ExactlyOnce => true,
            Qos::AtLeastOnce => {
                let is_shared = session.shares(|filter| self.matches[filter][message.topic]);
                !delivery.dup && !message.may_be_repeated && !is_shared && self.crashes == 0
            }
            // How far a cursor has come that brings what is retained may not be on the record.
            Qos::AtMostOnce => !(message.may_be_repeated || message.retain && self.crashes > 0),
        };
        // A will is better published twice than never.
        let is_exact = is_exact && (message.will.is_none() || self.crashes == 0);
        // A message that was moved may come on the ways of all others.
        let ways = match self.may_be_moved_to(session, message) {
            true => self.sessions.iter().map(|session| self.ways(session, message)).sum(),
            false => self.ways(session, message),
        };
        if is_exact && count > ways {
            return Err(format!("{} with {:?} {count} times, on {ways} ways", self.name(no), delivery.qos));
        }
        Ok(())
    }

    pub(super) fn ways(&self, session: &Session, message: &Message) -> usize {
        let matching = || {
            let matches = |filter: usize| self.matches[filter][message.topic];
            session
                .spans
                .iter()
                .filter(move |span| matches(span.wish.filter) && span.may_cover(message.published))
        };
        let plain = usize::from(matching().any(|span| !span.is_shared));
        let mut groups: Vec<usize> =
            matching().filter(|span| span.is_shared).map(|span| span.wish.filter).collect();
        groups.sort_unstable();
        groups.dedup();
        let asks = matching().filter(|span| message.retain && !span.is_shared);
        plain + groups.len() + asks.count()
    }

    /// Checks the order: messages of one client to one topic with one QoS arrive in their order [MQTT-4.6.0-5, -6].
    /// Groups whose members take turns are no ordered topics: a message that a member gives back comes later.
    fn check_order(
        &mut self,
        to: SessionNo,
        no: MessageNo,
        qos: Qos,
        sender_has_ended: bool,
    ) -> Result<(), String> {
        let message = self.message(no);
        let (publisher, topic) = (message.publisher, message.topic);
        let session = &self.sessions[to.0];
        let is_shared = session.shares(|filter| self.matches[filter][topic]);
        if is_shared && (message.may_be_repeated || !self.is_of_one_ordered_group(session, topic))
            || message.will.is_some()
            || self.may_be_moved_to(session, message)
            || message.may_be_repeated && !self.was_first_meant_for(session, message, qos)
        {
            return Ok(());
        }
        let is_behind_others = self.pushed_out_before || session.discarded_before.contains(&topic);
        let may_be_forgotten = is_behind_others && message.acknowledged.is_none();
        if sender_has_ended && (message.retain || may_be_forgotten) {
            // It may be lost with its process: then an older one is there again, and may come later.
            return Ok(());
        }
        let key = (publisher, topic, message.qos, qos);
        let last = self.sessions[to.0].last.insert(key, no);
        match last.filter(|last| *last > no) {
            Some(last) => Err(format!("{} after {}", self.name(no), self.name(last))),
            None => Ok(()),
        }
    }

    /// Whether everything that the session gets of a topic comes from one group that keeps it in order. If another QoS
    /// was granted since, unacknowledged messages are sent again with the new one.
    fn is_of_one_ordered_group(&self, session: &Session, topic: usize) -> bool {
        let mut matching = session.spans.iter().filter(|span| self.matches[span.wish.filter][topic]);
        let first = matching.next().map(|span| (span.wish.filter, span.wish.qos));
        self.is_key_ordered && matching.all(|span| Some((span.wish.filter, span.wish.qos)) == first)
    }

    /// Whether the first time that the broker was given a message counted for this session: it had subscribed, nothing
    /// was dropped, and nothing can have expired. Otherwise what is sent again comes behind later messages.
    fn was_first_meant_for(&self, session: &Session, message: &Message, qos: Qos) -> bool {
        // Until it is acknowledged nobody knows whether the broker has read it before the end of a subscription.
        let read = message.acknowledged.unwrap_or(self.tick);
        let had_subscribed = session.spans.iter().any(|span| {
            self.leads_to(span, session, message)
                && span.surely_covers(message.published, read)
                && span.wish.qos >= qos
        });
        // If another QoS was granted since, the first copies may still be in flight with the old one.
        let has_one_qos = session
            .spans
            .iter()
            .filter(|span| self.leads_to(span, session, message))
            .all(|span| span.wish.qos.min(message.qos) == qos);
        // Messages of QoS 0 do not wait for a session that is away.
        let waits = qos > Qos::AtMostOnce || !session.lasts;
        had_subscribed && has_one_qos && waits && !message.expires && !self.has_dropped()
    }

    /// `qos`: what comes with the same one comes in order; `None` where nobody can tell.
    fn note_value(&mut self, to: SessionNo, topic: usize, message: Option<MessageNo>, qos: Option<Qos>) {
        let values = &mut self.sessions[to.0].values;
        let value = values.entry(topic).or_insert(Value { message, qos });
        value.message = message;
        value.qos = value.qos.filter(|before| Some(*before) == qos);
    }
}

impl Message {
    /// When the broker was given it, and when it had taken it over.
    pub(super) fn accepted(&self) -> Option<(Tick, Tick)> {
        self.acknowledged.map(|acknowledged| (self.published, acknowledged))
    }

    /// Whether the topic may have got this retained value after that of `other`. The broker may read the packets of two
    /// connections in another order than that in which their clients sent them.
    pub(super) fn may_replace(&self, other: &Self) -> bool {
        let is_sent_later = self.published > other.published;
        let is_behind = self.link.is_some() && self.link == other.link;
        let is_surely_before = |tick: Option<Tick>| tick.is_some_and(|tick| tick < other.published);
        let was_decided =
            is_behind || is_surely_before(self.delivered) || is_surely_before(self.acknowledged);
        let comes_once = self.will.is_none() && !self.may_be_repeated;
        self.retain && self.topic == other.topic && (is_sent_later || !(was_decided && comes_once))
    }
}
