//! The record of what became of the last messages for some clients, on their shard and on those of their publishers.
//!
//! Each place where a shard decides about a message looks first whether anything is recorded ([`Shard::fates`]): one branch.

use std::sync::Arc;

use base::{ConnectionId, Fate, FateOf, FateRing, Member, Message, Now, Place, Subscriber};
use index::{Target, Targets};
use session::{Incoming, Waiting};
use topic::TopicName;
use wire::{PacketId, Publish, Qos, ReasonCode, SubscriptionIdentifiers};

use crate::ask::FILTERS_PER_ANSWER;
use crate::client::Tag;
use crate::effects::Outside;
use crate::encode::{Made, Receiver, Source, as_identifiers};
use crate::spans::SpanReceiver;
use crate::{Effects, Mail, Room, Shard};

/// Maximum number of members of a group among which a client with a record is looked for.
const MEMBERS_LOOKED_AT: usize = 1_024;

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
    FateOf {
        publisher,
        topic: topic.map(TopicName::as_str),
        qos,
        payload_bytes: Some(publish.payload.len()),
        key: None,
        packet_id: None,
    }
}

/// A message that waits for a client. A message of packets has no publisher of its own.
fn of_waiting<'a>(waiting: &'a Waiting<Tag>, publisher: Option<&'a str>) -> FateOf<'a> {
    let of = FateOf::message(&waiting.message, waiting.qos, Some(key(&waiting.message)));
    FateOf { publisher: of.publisher.or(publisher), ..of }
}

impl Shard {
    /// The ring of the client of a connection, and the publisher of the packets that are delivered now.
    fn ring(&mut self, id: ConnectionId) -> Option<(&mut FateRing, Option<Arc<str>>)> {
        let fates = self.fates.as_mut()?;
        let publisher = fates.publisher.clone();
        let client = self.clients.get(id)?;
        Some((fates.ring(client.client_id())?, publisher))
    }

    /// Whether the fates of messages for this client are recorded.
    #[inline]
    pub(crate) fn records_fates_of(&mut self, target: &Target) -> bool {
        self.fates.as_mut().is_some_and(|fates| fates.ring(&target.subscriber.client_id).is_some())
    }

    /// Notes one fate for all messages of a delivery. A message with a packet identifier travels alone.
    pub(crate) fn note_all(
        &mut self,
        target: &Target,
        source: Source<'_>,
        (fate, packet_id): (&Fate, Option<PacketId>),
        now: Now,
    ) {
        self.note_each((target, packet_id), source, now, |_| fate.clone());
    }

    /// Notes the messages of a delivery at QoS 0, for which the output had this room.
    pub(crate) fn note_once(
        &mut self,
        target: &Target,
        (source, receiver): (Source<'_>, &Receiver),
        room: Room,
        now: Now,
    ) {
        let Receiver { shape, bytes_max, .. } = *receiver;
        let identifiers = as_identifiers(&target.identifiers);
        let identifiers = SubscriptionIdentifiers::from(identifiers.as_slice());
        self.note_each((target, None), source, now, |publish| {
            let len = shape.shaped(publish, identifiers).encoded_len(shape.version());
            match len.is_ok_and(|len| len <= bytes_max) {
                false => Fate::TooLarge,
                true if room == Room::Full => Fate::NoMemory,
                true => Fate::Sent,
            }
        });
    }

    fn note_each(
        &mut self,
        (target, packet_id): (&Target, Option<PacketId>),
        source: Source<'_>,
        now: Now,
        fate_of: impl Fn(&Publish<'_>) -> Fate,
    ) {
        self.span_each((target, packet_id), source, now, &fate_of);
        let Some(fates) = &mut self.fates else { return };
        let known = fates.publisher.clone();
        let Some(ring) = fates.ring(&target.subscriber.client_id) else { return };
        let publisher = match source {
            Source::Run(_) => known.as_deref(),
            Source::Message { message, .. } => message.publisher(),
        };
        let qos = source.qos().min(target.qos);
        source.for_each(now, |publish| {
            let of = of_packet(publish, publish.topic.name(), publisher, qos).sent_as(packet_id);
            ring.note(of, fate_of(publish), now);
        });
    }

    /// The same for the span of the only message of a delivery, if it has one.
    fn span_each(
        &mut self,
        (target, packet_id): (&Target, Option<PacketId>),
        source: Source<'_>,
        now: Now,
        fate_of: impl Fn(&Publish<'_>) -> Fate,
    ) {
        let Some(mark) = self.mark_of(source) else { return };
        let qos = source.qos().min(target.qos);
        source.for_each(now, |publish| {
            let (client_id, connection) = (&target.subscriber.client_id, target.connection);
            self.span_copy(&mark, SpanReceiver { client_id, connection, packet_id, qos }, fate_of(publish));
        });
    }

    /// Whether anything is recorded about single messages: their fates, or their spans.
    #[inline]
    pub(crate) fn is_noting(&self) -> bool {
        self.fates.is_some() || self.spans.is_some()
    }

    /// Notes what becomes of a message that waits for a client, or would have to.
    pub(crate) fn note_waiting(
        &mut self,
        id: ConnectionId,
        waiting: &Waiting<Tag>,
        (fate, packet_id): (Fate, Option<PacketId>),
        now: Now,
    ) {
        if self.spans.is_some() {
            self.span_waiting((id, packet_id), waiting, fate.clone());
        }
        if let Some((ring, publisher)) = self.ring(id) {
            ring.follow(of_waiting(waiting, publisher.as_deref()).sent_as(packet_id), fate, now);
        }
    }

    /// Notes a retained message that a client gets at QoS 0 because it has subscribed.
    pub(crate) fn note_retained(
        &mut self,
        id: ConnectionId,
        message: &Message,
        (made, room): (&Made, Room),
        now: Now,
    ) {
        if let Some((ring, _)) = self.ring(id) {
            let fate = match room {
                _ if made.count == 0 => Fate::TooLarge,
                Room::Full => Fate::NoMemory,
                Room::Open | Room::Over => Fate::Sent,
            };
            ring.note(FateOf::message(message, Qos::AtMostOnce, None), fate, now);
        }
    }

    /// Notes what a client has answered.
    pub(crate) fn note_answer(&mut self, id: ConnectionId, packet_id: PacketId, fate: Fate, now: Now) {
        if let Some((ring, _)) = self.ring(id) {
            ring.answered(packet_id, fate, now);
        }
    }

    /// Notes the end of a session that ends with its connection.
    pub(crate) fn note_session_end(&mut self, client_id: &str, now: Now) {
        let ring = self.fates.as_mut().and_then(|fates| fates.ring(client_id));
        ring.into_iter().for_each(|ring| ring.ended(now));
    }

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
        let Some(fates) = &mut self.fates else { return };
        fates.publisher = Some(Arc::clone(&publisher.client_id));
        let qos = publish.packet.delivery.qos();
        let is_own = fates.ring(&publisher.client_id).is_some();
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
        if self.fates.is_none() {
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
        let Some(fates) = &mut self.fates else { return };
        let topic = publish.topic();
        let (found, _) = self.index.matches(topic, 0, FILTERS_PER_ANSWER);
        self.steps += found.len() as u64;
        for ring in fates.rings() {
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
        if let Some(publisher) = self.fates.as_ref().and_then(|fates| fates.publisher.clone()) {
            to.mail(to_shard, Mail::Publisher(publisher));
        }
    }

    /// The packets of a publisher are delivered.
    #[inline]
    pub(crate) fn forget_publisher(&mut self) {
        if let Some(fates) = &mut self.fates {
            fates.publisher = None;
        }
    }

    /// Packets of this publisher come next.
    #[inline]
    pub(crate) fn know_publisher(&mut self, publisher: Arc<str>) {
        if let Some(fates) = &mut self.fates {
            fates.publisher = Some(publisher);
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
        let (Some(fates), Some(members)) = (&mut self.fates, group.members()) else { return };
        let publisher = fates.publisher.clone();
        let fate = receiver
            .map_or(Fate::Absent, |(member, _)| Fate::TakenBy(Arc::clone(&member.subscriber.client_id)));
        let chosen = receiver.map(|(member, _)| &member.subscriber.client_id);
        let of = of_packet(&publish.packet, Some(publish.topic()), publisher.as_deref(), Qos::AtMostOnce);
        for ring in fates.rings() {
            if chosen != Some(ring.client_id()) && members.includes(ring.client_id(), MEMBERS_LOOKED_AT) {
                ring.note(of, fate.clone(), now);
            }
        }
    }
}

/// The fate of a message that a client has answered to the end.
pub(crate) fn answered(reason: ReasonCode) -> Fate {
    if reason.is_error() { Fate::Refused(reason) } else { Fate::Acknowledged }
}
