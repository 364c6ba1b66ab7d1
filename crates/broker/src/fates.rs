//! The fates of copies of messages, and of messages that are not routed: counted, and recorded if somebody has asked for it.
//!
//! A place that decides says the fate here ([`ShardFates::decided`]), and no other file writes these counters. An operator may
//! ask for the last messages of a client, and spans may be drawn for some messages: for all others this is one branch.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use base::{ConnectionId, Fate, FateOf, FateRing, Fates, Member, Message, Now, Place, Subscriber};
use index::{Target, Targets};
use session::{Incoming, Waiting};
use topic::TopicName;
use wire::{PacketId, Publish, Qos, SubscriptionIdentifiers};

use crate::ask::FILTERS_PER_ANSWER;
use crate::client::{Client, Tag};
use crate::effects::Outside;
use crate::encode::{Dispatch, Made, Receiver, Source, as_identifiers};
use crate::spans::{SpanReceiver, Spans};
use crate::{Counter, Counters, Counts, Effects, Mail, Room, Shard};

/// The fates that a shard decides.
#[derive(Debug)]
pub(crate) struct ShardFates {
    counters: Arc<Counters>,
    /// Counts of copies whose receivers are gone.
    pub(crate) nobody: Arc<Counts>,
    /// The last messages for clients whose operators ask for them. `None` while there is no such client.
    pub(crate) rings: Option<Box<Fates>>,
    pub(crate) spans: Option<Box<Spans>>,
}

/// Copies for one receiver, and the place in which their fate finds them.
#[derive(Clone, Copy)]
pub(crate) enum CopiesAt<'a> {
    /// All copies of a delivery. One that is sent with a packet identifier travels alone.
    Delivery { target: &'a Target, source: Source<'a>, packet_id: Option<PacketId> },
    /// A message that comes for the client, before it waits behind the window. `waiting` is the message if its fate can be
    /// [recorded here](ShardFates::is_on). `is_ours` is false for a message that the ledger counts.
    Coming { is_ours: bool, waiting: Option<&'a Waiting<Tag>> },
    /// A message that waits behind the window, or did a moment ago. Only a message that is sent now has a packet identifier.
    Waiting { waiting: &'a Waiting<Tag>, packet_id: Option<PacketId> },
    /// A retained message at QoS 0, for a client that has subscribed.
    Retained(&'a Message),
    /// A message that was sent to the client, and is not acknowledged to the end. `is_ours` is false for a message that the
    /// ledger counts.
    UnderWay { packet_id: PacketId, is_ours: bool },
}

/// The place of copies, as the counters distinguish it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whereabouts {
    /// In a packet of QoS 0, which is sent now or never.
    Once,
    /// In a packet of QoS 1 or 2.
    Outside,
    /// Behind the window of a client.
    Queue,
    /// In the window of a client: sent, and not acknowledged to the end.
    Window,
    /// In a queue of the ledger, which counts them. The shard counts only copies that their receiver may not receive any more.
    Ledger,
}

/// The reason why a PUBLISH has gone to nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unrouted {
    /// The client may not publish to this topic.
    Denied,
    /// The client may not publish to this topic with this QoS or RETAIN.
    TooHigh,
    /// Messages with such a topic or payload are not routed.
    BadTopic,
    /// The message has commands for the broker, and too many messages with commands wait.
    Busy,
    /// The message has commands, and nothing carries out commands of its topic.
    NoCommand,
    /// The ledger cannot store the message.
    NotStored,
    /// Nobody has subscribed to the topic.
    Unheard,
}

/// The number by which a shard knows a message that waits: nothing else has this address meanwhile.
fn key(message: &Arc<Message>) -> u64 {
    Arc::as_ptr(message).addr() as u64
}

/// A message of a packet.
fn of_packet<'a>(
    publish: &Publish<'a>,
    topic: Option<TopicName<'a>>,
    publisher: Option<&'a str>,
    qos: Qos,
) -> FateOf<'a> {
    let (topic, payload_bytes) = (topic.map(TopicName::as_str), Some(publish.payload.len()));
    FateOf { publisher, topic, payload_bytes, ..FateOf::unknown(qos) }
}

/// A message that waits for a client. A message of packets has no publisher of its own.
fn of_waiting<'a>(waiting: &'a Waiting<Tag>, publisher: Option<&'a str>) -> FateOf<'a> {
    let of = FateOf::message(&waiting.message, waiting.qos, Some(key(&waiting.message)));
    FateOf { publisher: of.publisher.or(publisher), ..of }
}

/// The fate of a copy at QoS 0 that has its size and finds this room.
pub(crate) fn once(fits: bool, room: Room) -> Fate {
    match room {
        _ if !fits => Fate::TooLarge,
        Room::Full => Fate::NoMemory,
        Room::Open | Room::Over => Fate::Sent,
    }
}

impl ShardFates {
    pub(crate) fn new(counters: Arc<Counters>, nobody: Arc<Counts>) -> Self {
        Self { counters, nobody, rings: None, spans: None }
    }

    /// Whether anything is recorded about single messages: their fates, or their spans.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.rings.is_some() || self.spans.is_some()
    }

    /// Copies have met this fate: counts them, and records them for their receiver. `None` is a receiver that is gone.
    ///
    /// Inlined, as is what it calls: most places say a constant, for which the compiler leaves one arm of the `match`.
    #[inline(always)]
    pub(crate) fn decided(
        &mut self,
        receiver: (ConnectionId, Option<&Client>),
        at: CopiesAt<'_>,
        fate: Fate,
        now: Now,
    ) {
        let (place, copies) = match at {
            CopiesAt::Delivery { target, source, .. } if source.qos().min(target.qos) == Qos::AtMostOnce => {
                (Whereabouts::Once, source.count())
            }
            CopiesAt::Delivery { source, .. } => (Whereabouts::Outside, source.count()),
            CopiesAt::Retained(_) => (Whereabouts::Once, 1),
            CopiesAt::Coming { is_ours: true, .. } => (Whereabouts::Outside, 1),
            CopiesAt::Waiting { waiting: Waiting { tag: None, .. }, .. } => (Whereabouts::Queue, 1),
            CopiesAt::UnderWay { is_ours: true, .. } => (Whereabouts::Window, 1),
            CopiesAt::Coming { .. } | CopiesAt::Waiting { .. } | CopiesAt::UnderWay { .. } => {
                (Whereabouts::Ledger, 1)
            }
        };
        let counts = receiver.1.map_or(&*self.nobody, |client| &client.counts);
        self.count(counts, place, u64::from(copies), &fate);
        if self.is_on() {
            self.note(receiver, at, fate, now);
        }
    }

    /// Packets of a delivery at QoS 0 were made for a receiver, and its output had this room.
    #[inline]
    pub(crate) fn decided_once(
        &mut self,
        counts: &Counts,
        (target, receiver): (&Target, &Receiver),
        dispatch: &Dispatch<'_>,
        room: Room,
        now: Now,
    ) {
        self.made(counts, Whereabouts::Once, &dispatch.made, room);
        if self.is_on() {
            self.note_once(target, receiver, dispatch.source, room, now);
        }
    }

    /// Copies are meant for subscribers. The fate of each is said separately.
    #[inline]
    pub(crate) fn come(&self, copies: u64) {
        self.counters.routed.add(copies);
    }

    /// Copies are meant for subscribers that are not connected: messages of QoS 0 do not wait for them.
    #[inline]
    pub(crate) fn absent(&self, copies: u64) {
        self.come(copies);
        self.count(&self.nobody, Whereabouts::Once, copies, &Fate::Absent);
    }

    /// Packets of a delivery were made for a receiver, and found this room.
    #[inline(always)]
    pub(crate) fn made(&self, counts: &Counts, place: Whereabouts, made: &Made, room: Room) {
        let copies = u64::from(made.count);
        if made.too_large > 0 {
            self.count(counts, place, u64::from(made.too_large), &Fate::TooLarge);
        }
        if room == Room::Full {
            return self.count(counts, place, copies, &Fate::NoMemory);
        }
        self.counters.count_sent(counts, place == Whereabouts::Once, made);
        self.count(counts, place, copies, &Fate::Sent);
    }

    /// A session ends with its connection.
    pub(crate) fn session_ended(&mut self, client: &Client, subscriber: &Subscriber, now: Now) {
        // Messages from a group go back to the group.
        let of_groups = client.aside().shares.as_deref();
        let in_flight = client.session.in_flight() - of_groups.map_or(0, |shares| shares.in_flight.len());
        let waiting = client.session.waiting_messages() - of_groups.map_or(0, |shares| shares.waiting);
        self.count(&client.counts, Whereabouts::Window, in_flight as u64, &Fate::SessionEnded);
        self.count(&client.counts, Whereabouts::Queue, waiting as u64, &Fate::SessionEnded);
        let ring = self.rings.as_mut().and_then(|rings| rings.ring(&subscriber.client_id));
        ring.into_iter().for_each(|ring| ring.ended(now));
    }

    /// Counts copies that were in one place, and have met the same fate there.
    #[inline(always)]
    pub(crate) fn count(&self, counts: &Counts, place: Whereabouts, copies: u64, fate: &Fate) {
        let all = &*self.counters;
        let lost = |counter, count| -> [&Counter; 2] {
            all.publish_dropped.add(copies);
            [counter, count]
        };
        let [total, own] = match fate {
            // The ledger counts all other fates of its messages.
            Fate::MayNotRead if place == Whereabouts::Ledger => [&all.denied_receive, &counts.denied_receive],
            _ if place == Whereabouts::Ledger => return,
            Fate::Waits => [&all.waiting, &counts.waiting],
            Fate::Sent if place == Whereabouts::Once => [&all.sent_once, &counts.sent_once],
            Fate::Sent => [&all.in_flight, &counts.in_flight],
            // A refused copy counts as delivered [MQTT-4.4.0-2].
            Fate::Acknowledged | Fate::Refused(_) => [&all.acknowledged, &counts.acknowledged],
            Fate::SessionEnded => [&all.discarded_session, &counts.discarded_session],
            Fate::Absent => lost(&all.dropped_absent, &counts.dropped_absent),
            Fate::Slow => lost(&all.dropped_slow, &counts.dropped_slow),
            Fate::TooLarge => lost(&all.dropped_too_large, &counts.dropped_too_large),
            Fate::NoMemory if place == Whereabouts::Once => lost(&all.dropped_budget, &counts.dropped_budget),
            Fate::NoMemory | Fate::QueueFull => lost(&all.dropped_queue_full, &counts.dropped_queue_full),
            Fate::Expired => lost(&all.dropped_expired, &counts.dropped_expired),
            Fate::MayNotRead => lost(&all.dropped_denied, &counts.dropped_denied),
            // The exchange goes on, or nothing was routed to this receiver.
            Fate::Received | Fate::TakenBy(_) | Fate::NoLocal | Fate::MayNotPublish => return,
            Fate::Queued
            | Fate::NotStored(_)
            | Fate::DroppedOldest
            | Fate::Returned
            | Fate::Discarded
            | Fate::Moved => unreachable!("the ledger alone decides this"),
        };
        let left = match place {
            Whereabouts::Queue => Some([&all.waiting, &counts.waiting]),
            Whereabouts::Window => Some([&all.in_flight, &counts.in_flight]),
            Whereabouts::Once | Whereabouts::Outside | Whereabouts::Ledger => None,
        };
        left.iter().flatten().for_each(|level| level.sub(copies));
        [total, own].iter().for_each(|counter| counter.add(copies));
    }

    /// Counts messages that go to nobody, for their publisher.
    #[inline]
    pub(crate) fn unrouted(&self, counts: &Counts, why: Unrouted, messages: u64) {
        let all = &*self.counters;
        let (counted, is_lost) = match why {
            Unrouted::Denied => (Some([&all.denied_publish, &counts.denied_publish]), true),
            Unrouted::TooHigh => (Some([&all.denied_level, &counts.denied_level]), true),
            Unrouted::BadTopic => (Some([&all.dropped_topic, &counts.dropped_topic]), true),
            Unrouted::Busy => (Some([&all.refused_control, &counts.refused_control]), true),
            Unrouted::NoCommand => (None, true),
            Unrouted::NotStored => (Some([&all.refused_publish, &counts.refused_publish]), false),
            Unrouted::Unheard => (Some([&all.no_subscribers, &counts.no_subscribers]), false),
        };
        counted.iter().flatten().for_each(|counter| counter.add(messages));
        if is_lost {
            all.publish_dropped.add(messages);
        }
    }

    /// Records the fate of copies that are counted elsewhere.
    #[cold]
    pub(crate) fn note(
        &mut self,
        (id, client): (ConnectionId, Option<&Client>),
        at: CopiesAt<'_>,
        fate: Fate,
        now: Now,
    ) {
        let (waiting, packet_id) = match at {
            CopiesAt::Delivery { target, source, packet_id } => {
                return self.note_each((target, packet_id), source, now, |_| fate.clone());
            }
            CopiesAt::Retained(message) => {
                let of = FateOf::message(message, Qos::AtMostOnce, None);
                return self.ring(client).into_iter().for_each(|(ring, _)| ring.note(of, fate.clone(), now));
            }
            CopiesAt::UnderWay { packet_id, .. } => {
                self.end_span(id, packet_id, &fate);
                let ring = self.ring(client).into_iter();
                return ring.for_each(|(ring, _)| ring.answered(packet_id, fate.clone(), now));
            }
            CopiesAt::Coming { waiting, .. } => (waiting, None),
            CopiesAt::Waiting { waiting, packet_id } => (Some(waiting), packet_id),
        };
        let Some(waiting) = waiting else { return };
        self.span_waiting((id, client, packet_id), waiting, &fate);
        if let Some((ring, publisher)) = self.ring(client) {
            ring.follow(of_waiting(waiting, publisher.as_deref()).sent_as(packet_id), fate, now);
        }
    }

    /// The ring of a client, and the publisher of the packets that are delivered now.
    fn ring(&mut self, client: Option<&Client>) -> Option<(&mut FateRing, Option<Arc<str>>)> {
        let rings = self.rings.as_mut()?;
        let publisher = rings.publisher.clone();
        Some((rings.ring(client?.client_id())?, publisher))
    }

    /// Whether the fates of messages for this client are recorded.
    #[inline]
    pub(crate) fn has_ring(&mut self, target: &Target) -> bool {
        self.rings.as_mut().is_some_and(|rings| rings.ring(&target.subscriber.client_id).is_some())
    }

    #[cold]
    fn note_once(&mut self, target: &Target, receiver: &Receiver, source: Source<'_>, room: Room, now: Now) {
        let Receiver { shape, bytes_max, .. } = *receiver;
        let identifiers = as_identifiers(&target.identifiers);
        let identifiers = SubscriptionIdentifiers::from(identifiers.as_slice());
        self.note_each((target, None), source, now, |publish| {
            let len = shape.shaped(publish, identifiers).encoded_len(shape.version());
            once(len.is_ok_and(|len| len <= bytes_max), room)
        });
    }

    /// Records each message of a delivery, and ends the span of one that has a mark.
    fn note_each(
        &mut self,
        (target, packet_id): (&Target, Option<PacketId>),
        source: Source<'_>,
        now: Now,
        fate_of: impl Fn(&Publish<'_>) -> Fate,
    ) {
        let mark = self.mark_of(source);
        let (client_id, qos) = (&target.subscriber.client_id, source.qos().min(target.qos));
        let known = self.rings.as_ref().and_then(|rings| rings.publisher.clone());
        let mut ring = self.rings.as_mut().and_then(|rings| rings.ring(client_id));
        if mark.is_none() && ring.is_none() {
            return;
        }
        let publisher = match source {
            Source::Run(_) => known.as_deref(),
            Source::Message { message, .. } => message.publisher(),
        };
        source.for_each(now, |publish| {
            let fate = fate_of(publish);
            if let (Some(mark), Some(spans)) = (&mark, &mut self.spans) {
                let to = SpanReceiver { client_id, connection: target.connection, packet_id, qos };
                spans.copy(mark, to, &fate);
            }
            let of = of_packet(publish, publish.topic.name(), publisher, qos).sent_as(packet_id);
            ring.iter_mut().for_each(|ring| ring.note(of, fate.clone(), now));
        });
    }
}

impl Shard {
    /// A message is about to go to everybody on a route: notes for whom it does not go anywhere, although a subscription
    /// matches. From here on its publisher is known.
    pub(crate) fn note_published(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        targets: &Targets,
        now: Now,
    ) {
        let Some(publisher) = self.clients.get(id).and_then(|client| client.subscriber.clone()) else {
            return;
        };
        let Some(rings) = &mut self.fates.rings else { return };
        rings.publisher = Some(Arc::clone(&publisher.client_id));
        let qos = publish.packet.delivery.qos();
        let is_own = rings.ring(&publisher.client_id).is_some();
        if !is_own && targets.absent_at(qos) == 0 && !self.guard.has_rules() {
            return;
        }
        let is_target = |subscriber: &Arc<Subscriber>| {
            let connected = targets.shards.iter().flat_map(|(_, list)| list.iter());
            let mut all = connected.chain(targets.queued.iter().filter(|target| target.is_queued(qos)));
            all.any(|target| Arc::ptr_eq(&target.subscriber, subscriber))
        };
        let rules = self.rules();
        self.note_matching(publish, &publisher.client_id, now, |subscriber, no_local| {
            let may_read = rules
                .as_ref()
                .is_none_or(|rules| rules.allow(subscriber, publish.topic(), auth::Action::Receive));
            match () {
                () if is_target(subscriber) => None,
                () if !may_read => Some(Fate::MayNotRead),
                () if no_local && subscriber.client_id == publisher.client_id => Some(Fate::NoLocal),
                () if subscriber.place().is_none() => Some(Fate::Absent),
                () => None,
            }
        });
    }

    /// Notes a message that its publisher may not publish, for whom it would have been.
    pub(crate) fn note_may_not_publish(&mut self, id: ConnectionId, publish: &Incoming<'_>, now: Now) {
        if self.fates.rings.is_none() {
            return;
        }
        let Some(publisher) = self.clients.get(id).map(|client| client.client_id().to_owned()) else {
            return;
        };
        self.note_matching(publish, &publisher, now, |_, _| Some(Fate::MayNotPublish));
    }

    /// Notes a fate for each client with a record whose subscriptions match: among the first 256 that match.
    fn note_matching(
        &mut self,
        publish: &Incoming<'_>,
        publisher: &str,
        now: Now,
        fate_of: impl Fn(&Arc<Subscriber>, bool) -> Option<Fate>,
    ) {
        let Some(rings) = &mut self.fates.rings else { return };
        let topic = publish.topic();
        let (found, _) = self.index.matches(topic, 0, FILTERS_PER_ANSWER);
        self.steps += found.len() as u64;
        for ring in rings.rings() {
            let mut own = found.iter().filter(|found| found.subscriber.client_id == *ring.client_id());
            let Some(first) = own.next() else { continue };
            let no_local = first.options.no_local() && own.all(|found| found.options.no_local());
            let qos = publish.packet.delivery.qos().min(first.options.qos());
            if let Some(fate) = fate_of(&first.subscriber, no_local) {
                ring.note(of_packet(&publish.packet, Some(topic), Some(publisher), qos), fate, now);
            }
        }
    }

    /// Tells another shard who has published the packets that it gets next, and whether they have spans.
    #[inline]
    pub(crate) fn mail_notes(&self, to_shard: base::ShardId, to: &mut Outside<'_, impl Effects>) {
        if let Some(mark) = self.mark() {
            to.mail(to_shard, Mail::Marked(mark));
        }
        if let Some(publisher) = self.fates.rings.as_ref().and_then(|rings| rings.publisher.clone()) {
            to.mail(to_shard, Mail::Publisher(publisher));
        }
    }

    /// Packets of this publisher come next, or of one that is not known.
    #[inline]
    pub(crate) fn set_publisher(&mut self, publisher: Option<Arc<str>>) {
        if let Some(rings) = &mut self.fates.rings {
            rings.publisher = publisher;
        }
    }

    /// Notes that a message of QoS 0 goes to one member of a group, for the others.
    pub(crate) fn note_turn(
        &mut self,
        group: &Subscriber,
        receiver: Option<&(Member, Place)>,
        publish: &Incoming<'_>,
        now: Now,
    ) {
        let (Some(rings), Some(members)) = (&mut self.fates.rings, group.members()) else { return };
        let publisher = rings.publisher.clone();
        let fate = receiver
            .map_or(Fate::Absent, |(member, _)| Fate::TakenBy(Arc::clone(&member.subscriber.client_id)));
        let chosen = receiver.map(|(member, _)| &member.subscriber.client_id);
        let of = of_packet(&publish.packet, Some(publish.topic()), publisher.as_deref(), Qos::AtMostOnce);
        for ring in rings.rings() {
            if chosen != Some(ring.client_id()) && members.includes(ring.client_id()) {
                ring.note(of, fate.clone(), now);
            }
        }
    }
}
