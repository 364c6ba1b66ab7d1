//! From a message to the output buffers of this shard's subscribers.

use std::sync::Arc;

use base::{Budget, ConnectionId, Fate, Identifiers, Interest, Level, Message, Now, Subscriber};
use index::Target;
use protocol::{Command, Delivered};
use session::{Bound, Settings, Wait, Waiting};
use wire::{
    DisconnectReason, Publish, PublishTopic, Qos, ReasonCode, SubscriptionIdentifiers, numbered_packets,
};

use crate::client::{Client, Tag};
use crate::effects::Outside;
use crate::encode::{ALIAS_BYTES, Dispatch, Form, Made, Receiver, Shape, Source, as_identifiers};
use crate::fates::{CopiesAt, Whereabouts, once};
use crate::mount::shortened;
use crate::retained::Arrival;
use crate::{Effects, Flush, Room, Run, Shard};

/// A client with at least this much behind its window is behind: its publishers get their acknowledgements later.
const BEHIND_BYTES: usize = 256 * 1024;
const BEHIND_MESSAGES: usize = 1_000;
/// No fewer messages are too many for their bytes: a single message may be longer than that.
const BEHIND_FEW: usize = 4;

/// Full subscribers among the receivers of a delivery.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// A subscriber whose output is over its mark.
    pub(crate) over: Option<Arc<Subscriber>>,
    /// A subscriber with more waiting behind its window than its mark.
    pub(crate) behind: Option<Arc<Subscriber>>,
}

/// Whether more waits behind the window of a client than a part of what makes it behind: the marks above, or half of the
/// client's bound where that is lower. Publishers wait before the bound is reached.
fn is_behind(client: &Client, settings: &Settings, divisor: usize) -> bool {
    let (messages, bytes) = (client.session.waiting_messages(), client.session.waiting_bytes());
    let bound = client.waiting_bound(settings);
    let (messages_mark, bytes_mark) =
        (BEHIND_MESSAGES.min(bound.messages / 2), BEHIND_BYTES.min(bound.bytes / 2));
    let few = BEHIND_FEW.min(bound.messages / 2);
    messages > messages_mark / divisor || messages > few / divisor && bytes > bytes_mark / divisor
}

impl Shard {
    /// Delivers a message to the `targets` of this shard, except those that get it out of a queue.
    pub(crate) fn deliver(
        &mut self,
        source: Source<'_>,
        targets: &[Target],
        flush: Flush,
        to: &mut Outside<'_, impl Effects>,
    ) -> Found {
        self.deliver_known((source, None), targets, flush, to)
    }

    /// The same for a packet that was taken apart before, or for any.
    pub(crate) fn deliver_known<'a>(
        &mut self,
        (source, known): (Source<'a>, Option<&'a Publish<'a>>),
        targets: &[Target],
        flush: Flush,
        to: &mut Outside<'_, impl Effects>,
    ) -> Found {
        let now = to.now;
        let mut buffers = std::mem::take(&mut self.buffers);
        let mut dispatch = Dispatch::new(source, flush, now, &mut buffers).with_known(known);
        if self.fates.spans.is_some() {
            dispatch = dispatch.with_mark(self.fates.mark_of(source));
        }
        let mut found = Found::default();
        let mut arrival = match source {
            Source::Message { message, value: Some(id) } => Some(Arrival::new(message, id)),
            _ => None,
        };
        for target in targets {
            if target.is_queued(source.qos()) {
                continue;
            }
            let Some(receiver) = self.receiver(source, target, &mut arrival, now) else { continue };
            self.fates.come(u64::from(source.count()));
            if receiver.shape.qos == Qos::AtMostOnce {
                self.send_once(&mut dispatch, target, &receiver, &mut found, to);
            } else if source.count() > 1 {
                self.offer_run(&mut dispatch, target, &receiver, &mut found, to);
            } else {
                self.offer(&mut dispatch, target, &receiver, &mut found, to);
            }
        }
        self.buffers = buffers;
        found
    }

    /// How a target gets the message; `None` if it is gone, or is not to get this one.
    #[inline]
    fn receiver(
        &mut self,
        source: Source<'_>,
        target: &Target,
        arrival: &mut Option<Arrival<'_>>,
        now: Now,
    ) -> Option<Receiver> {
        // The ledger has moved a session here before CONNACK says so: until then it gets nothing [MQTT-3.2.0-1].
        let client = self.clients.get_mut(target.connection).filter(|client| client.is_in);
        let Some(client) = client else {
            let at = CopiesAt::Delivery { target, source, packet_id: None };
            self.fates.come(u64::from(source.count()));
            self.fates.decided((target.connection, None), at, Fate::Absent, now);
            return None;
        };
        let is_5 = client.session.version()?.is_5();
        let retain = match source {
            Source::Run(_) => false,
            Source::Message { message, .. } => {
                if let (Some(walks), Some(arrival)) = (client.walks_mut(), arrival) {
                    let bringing = walks.will_bring(arrival, target, &self.index);
                    if !bringing.is_empty() && source.qos().min(target.qos) == Qos::AtMostOnce {
                        return None;
                    }
                    // At QoS 1 and 2 it was acknowledged, and its topic may have another value before the cursor comes to it.
                    walks.came_live(arrival, &bringing);
                }
                message.retain() && target.retain_as_published
            }
        };
        let cut = client.mount.as_ref().map_or(0, |mount| mount.cut_of(source));
        Some(Receiver {
            shape: Shape { is_5, retain, qos: source.qos().min(target.qos), cut },
            bytes_max: client.session.packet_bytes_max(),
            publishes: client.route.is_some(),
            uses_aliases: client.session.uses_aliases(),
        })
    }

    /// QoS 0: now or never.
    fn send_once(
        &mut self,
        dispatch: &mut Dispatch<'_>,
        target: &Target,
        receiver: &Receiver,
        found: &mut Found,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let subscriber = &target.subscriber;
        let level = subscriber.gauge.level();
        if level == Level::Slow {
            let receiver = (target.connection, self.clients.get(target.connection));
            let at = CopiesAt::Delivery { target, source: dispatch.source, packet_id: None };
            return self.fates.decided(receiver, at, Fate::Slow, to.now);
        }
        let Some(client) = self.clients.get_mut(target.connection) else { return };
        let room = dispatch.send(target, receiver, &mut client.session, to);
        self.fates.decided_once(&client.counts, (target, receiver), dispatch, room, to.now);
        if room == Room::Over && level == Level::Open {
            subscriber.gauge.set(Level::Over);
            self.watch(target.connection, subscriber, to);
        }
        // Also if the message was dropped because too much waits.
        if room == Room::Over || level == Level::Over {
            found.over.get_or_insert_with(|| Arc::clone(subscriber));
        }
    }

    /// Several at QoS 1: those for which there is a place go out together, and the others one by one.
    fn offer_run(
        &mut self,
        dispatch: &mut Dispatch<'_>,
        target: &Target,
        receiver: &Receiver,
        found: &mut Found,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let Source::Run(run) = dispatch.source else { return };
        let connection = target.connection;
        let fits = dispatch.goes_as_it_came(target, receiver)
            && self.has_room(connection, run.bytes.len(), to)
            && !self.fates.has_ring(target);
        let mut sent = 0;
        if fits && let Some(client) = self.clients.get_mut(connection) {
            let mut begin = || client.session.begin(run.qos)?.packet_id();
            sent = dispatch.send_renumbered(run, &mut begin, receiver, connection, to);
            self.fates.made(&client.counts, Whereabouts::Outside, &dispatch.made, Room::Open);
        }
        for (bytes, _, payload_bytes) in numbered_packets(&run.bytes[sent..], run.version) {
            let packet = Run { bytes, count: 1, payload_bytes: payload_bytes as u64, ..run };
            let mut dispatch = dispatch.of(Source::Run(packet));
            self.offer(&mut dispatch, target, receiver, found, to);
        }
    }

    /// QoS 1 and 2: now if there is a place in the window and room in the output, otherwise in its turn.
    fn offer(
        &mut self,
        dispatch: &mut Dispatch<'_>,
        target: &Target,
        receiver: &Receiver,
        found: &mut Found,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let (connection, source) = (target.connection, dispatch.source);
        let Receiver { shape, bytes_max, uses_aliases, .. } = *receiver;
        let bytes = dispatch.make(&target.identifiers, shape, bytes_max);
        let at = |packet_id| CopiesAt::Delivery { target, source, packet_id };
        if dispatch.made.count == 0 {
            let receiver = (connection, self.clients.get(connection));
            return self.fates.decided(receiver, at(None), Fate::TooLarge, to.now);
        }
        let is_open = self.has_room(connection, dispatch.len(bytes), to);
        let Some(client) = self.clients.get_mut(connection) else {
            // One before it in the same delivery was one too many.
            return self.fates.decided((connection, None), at(None), Fate::SessionEnded, to.now);
        };
        if is_open
            && !uses_aliases
            && let Some(packet_id) = client.session.begin(shape.qos).and_then(|delivery| delivery.packet_id())
        {
            dispatch.send_numbered(bytes, packet_id, receiver, connection, to);
            self.counters.count_sent(&client.counts, false, &dispatch.made);
            let receiver = (connection, Some(&*client));
            return self.fates.decided(receiver, at(Some(packet_id)), Fate::Sent, to.now);
        }
        let Some(message) = dispatch.message(self.tally.budget()) else { return };
        let waiting = Waiting {
            message,
            qos: shape.qos,
            retain: shape.retain,
            identifiers: target.identifiers.clone(),
            tag: None,
        };
        self.wait(connection, waiting, to);
        // Also while the process is full: a client for which nothing else waits gets its message now.
        self.pull(connection, to);
        if target.subscriber.gauge.is_behind() {
            found.behind.get_or_insert_with(|| Arc::clone(&target.subscriber));
        }
    }

    /// A message of QoS 1 or 2 waits behind a client's window, up to the client's bounds.
    pub(crate) fn wait(
        &mut self,
        id: ConnectionId,
        waiting: Waiting<Tag>,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let is_ours = waiting.tag.is_none();
        let at = CopiesAt::Coming { is_ours, waiting: Some(&waiting) };
        let Some(client) = self.clients.get_mut(id) else {
            // One before it in the same delivery was one too many.
            return self.fates.decided((id, None), at, Fate::SessionEnded, to.now);
        };
        if client.session.waiting_bytes() > Budget::WAITING_BYTES_ALLOWED && self.tally.budget().is_tight() {
            self.fates.decided((id, Some(client)), at, Fate::NoMemory, to.now);
            let why = "there is no memory for the messages that wait for the client";
            return self.end_for_memory(id, why, to);
        }
        // Messages that a group lends are bounded by the group.
        let bound = if is_ours { client.waiting_bound(&self.settings) } else { Bound::of(&self.settings) };
        let noted = self.fates.is_on().then(|| waiting.clone());
        let wait = client.session.wait_within(waiting, bound);
        let fate = if wait == Wait::Waits { Fate::Waits } else { Fate::QueueFull };
        let at = CopiesAt::Coming { is_ours, waiting: noted.as_ref() };
        self.fates.decided((id, Some(client)), at, fate, to.now);
        match wait {
            Wait::Waits => {
                if !is_ours {
                    client.make_aside().shares.get_or_insert_default().waiting += 1;
                }
                let is_behind = is_behind(client, &self.settings, 1);
                if let Some(subscriber) = client.subscriber.clone().filter(|_| is_behind)
                    && !subscriber.gauge.is_behind()
                {
                    subscriber.gauge.set_behind(true);
                    self.watch(id, &subscriber, to);
                }
            }
            Wait::Full => {
                self.counters.ended_queue_full.add(1);
                let why = "more messages wait for the client than may";
                self.give_up(id, DisconnectReason::QuotaExceeded, why, to);
            }
        }
    }

    /// Whether a client that was behind is so still.
    fn look_behind(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        let now = to.now;
        let Some(client) = self.clients.get(id) else { return };
        let Some(subscriber) = client.subscriber.as_ref() else { return };
        if subscriber.gauge.is_marked_behind() && !is_behind(client, &self.settings, 4) {
            let subscriber = Arc::clone(subscriber);
            let waiting = subscriber.gauge.release_behind();
            self.judge.had_room(id, now.monotonic_ms);
            self.tell_waiting(&subscriber, waiting, to);
        }
    }

    /// Sends what waits, as far as window and output have room.
    pub(crate) fn pull(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        let now = to.now;
        while self.send_deferred(id, to) {
            let Some(client) = self.clients.get(id) else { return };
            let Some(first) = client.session.first_waiting() else { break };
            let bytes = first.message.size_bytes();
            let is_expired = first.message.is_expired(now);
            let is_denied = !is_expired && !self.may_receive(client, &first.message);
            if is_expired || is_denied {
                self.forget_waiting(id, is_denied, to);
                continue;
            }
            if !self.has_room_for_stored(id, bytes, to) {
                break;
            }
            let Some(client) = self.clients.get_mut(id) else { return };
            let Some((waiting, delivery)) = client.session.next_waiting() else { break };
            let at = CopiesAt::Waiting { waiting: &waiting, packet_id: delivery.packet_id() };
            self.fates.decided((id, Some(client)), at, Fate::Sent, now);
            self.send_waiting(id, &waiting, delivery, to);
        }
        self.look_behind(id, to);
    }

    /// Whether this number of further bytes may be sent to a client. If not, it is tried again: when its output has
    /// been taken, or later if the process is full.
    pub(crate) fn has_room(
        &mut self,
        id: ConnectionId,
        bytes: usize,
        to: &Outside<'_, impl Effects>,
    ) -> bool {
        self.is_open(id, to.room(id, bytes))
    }

    /// The same for a message that is stored until it is acknowledged.
    pub(crate) fn has_room_for_stored(
        &mut self,
        id: ConnectionId,
        bytes: usize,
        to: &Outside<'_, impl Effects>,
    ) -> bool {
        self.is_open(id, to.room_for_stored(id, bytes))
    }

    fn is_open(&mut self, id: ConnectionId, room: Room) -> bool {
        if room == Room::Full
            && let Some(client) = self.clients.get_mut(id)
            && !std::mem::replace(&mut client.is_stalled, true)
        {
            self.stalled.push(id);
        }
        room == Room::Open
    }

    /// The first message that waits has expired, or its client may not receive it any more.
    fn forget_waiting(&mut self, id: ConnectionId, is_denied: bool, to: &mut Outside<'_, impl Effects>) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(waiting) = client.session.forget_waiting() else { return };
        let fate = if is_denied { Fate::MayNotRead } else { Fate::Expired };
        let at = CopiesAt::Waiting { waiting: &waiting, packet_id: None };
        self.fates.decided((id, Some(client)), at, fate, to.now);
        if let Some((group, entry)) = waiting.tag {
            if let Some(shares) = client.aside_mut().and_then(|aside| aside.shares.as_mut()) {
                shares.waiting -= 1;
            }
            let what = Delivered::Group { group, entry };
            to.command(match is_denied {
                true => Command::Acknowledged { what, connection: id, reason: ReasonCode::NotAuthorized },
                false => Command::Expired { group, entry, connection: id },
            });
        }
    }

    /// Writes a message that has got its place in the window.
    pub(crate) fn send_waiting(
        &mut self,
        id: ConnectionId,
        waiting: &Waiting<Tag>,
        delivery: wire::Delivery,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let now = to.now;
        let Some(client) = self.clients.get_mut(id) else { return };
        let (Some(version), uses_aliases) = (client.session.version(), client.session.uses_aliases()) else {
            return;
        };
        let bytes_max = client.session.packet_bytes_max();
        let identifiers = as_identifiers(&waiting.identifiers);
        let mut publish = waiting.message.publish(now);
        let whole = publish.topic.name().expect("the packet of a message has no alias yet");
        let cut = client.mount.as_ref().map_or(0, |mount| mount.cut(whole.as_str().as_bytes()));
        let topic = shortened(whole, cut);
        publish.topic = PublishTopic::Name(topic);
        publish.delivery = delivery;
        publish.retain = waiting.retain;
        if version.is_5() {
            publish.subscription_identifiers = SubscriptionIdentifiers::from(identifiers.as_slice());
        }
        if uses_aliases && publish.encoded_len(version).is_ok_and(|len| len + ALIAS_BYTES <= bytes_max) {
            publish.topic = client.session.outgoing_topic(topic);
        }
        self.scratch.clear();
        if publish.encode(version, &mut self.scratch).is_err() {
            debug_assert!(false, "it was measured before it had to wait");
            return;
        }
        if let Some((group, entry)) = waiting.tag {
            let shares = client.make_aside().shares.get_or_insert_default();
            shares.waiting -= 1;
            if let Some(packet_id) = delivery.packet_id() {
                shares.in_flight.insert(packet_id, (group, entry));
            }
            if waiting.qos == Qos::ExactlyOnce {
                to.command(Command::Sent { group, entry, connection: id });
            }
        }
        if to.publish(id, &self.scratch, Flush::Direct) == Room::Full {
            // It has its place in the window and there was room a moment ago, by a measure that leaves out identifiers.
            to.send(id, &self.scratch);
        }
        let payload_bytes = publish.payload.len() as u64;
        self.counters.count_sent(&client.counts, false, &Made { count: 1, payload_bytes, ..Made::default() });
    }

    /// Hands a step of retained messages to one client, with RETAIN 1 [MQTT-3.3.1-8 of 3.1.1].
    pub(crate) fn deliver_retained(
        &mut self,
        connection: ConnectionId,
        messages: impl Iterator<Item = Arc<Message>>,
        interest: Interest,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let now = to.now;
        let Some(client) = self.clients.get(connection) else { return };
        let own = client.subscriber.as_ref().filter(|_| interest.no_local());
        let own = own.map(|subscriber| Arc::clone(&subscriber.client_id));
        let is_foreign = |message: &Arc<Message>| own.is_none() || message.publisher() != own.as_deref();
        // The ledger has put the others into the session's queue, as it knew the subscription.
        let lasts = client.queue().is_some();
        let is_once = |message: &Arc<Message>| lasts || message.qos().min(interest.qos()) == Qos::AtMostOnce;
        let may_receive = |message: &Arc<Message>| self.may_receive(client, message);
        let wanted = messages.filter(is_foreign).filter(may_receive);
        let (once, more): (Vec<_>, Vec<_>) = wanted.partition(is_once);
        more.into_iter().for_each(|message| self.bring(connection, message, interest, now));
        for message in once {
            self.send_retained(connection, &message, interest, to);
        }
        self.pull(connection, to);
    }

    /// Puts a message of QoS 1 or 2 behind the window, whatever waits there: there is one step at a time.
    fn bring(&mut self, connection: ConnectionId, message: Arc<Message>, interest: Interest, now: Now) {
        let Some(client) = self.clients.get_mut(connection) else { return };
        let Some(version) = client.session.version() else { return };
        let qos = message.qos().min(interest.qos());
        let identifiers: Identifiers = interest.identifier().into_iter().collect();
        let source = Source::Message { message: &message, value: None };
        let cut = client.mount.as_ref().map_or(0, |mount| mount.cut_of(source));
        let shape = Shape { is_5: version.is_5(), retain: true, qos, cut };
        let numbers = as_identifiers(&identifiers);
        let numbers = SubscriptionIdentifiers::from(numbers.as_slice());
        let buffer = &mut self.buffers.single;
        buffer.clear();
        let form = Form { shape, identifiers: numbers, bytes_max: client.session.packet_bytes_max() };
        let made = source.encode(form, now, buffer);
        self.fates.come(1);
        let fate = if made.count == 0 { Fate::TooLarge } else { Fate::Waits };
        let waiting = Waiting { message, qos, retain: true, identifiers, tag: None };
        let at = CopiesAt::Coming { is_ours: true, waiting: Some(&waiting) };
        self.fates.decided((connection, Some(client)), at, fate, now);
        if made.count > 0 {
            client.session.wait_in_any_case(waiting);
        }
    }

    /// Sends a retained message of QoS 0.
    fn send_retained(
        &mut self,
        connection: ConnectionId,
        message: &Arc<Message>,
        interest: Interest,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let now = to.now;
        let Some(client) = self.clients.get(connection) else { return };
        let Some(version) = client.session.version() else { return };
        let source = Source::Message { message, value: None };
        let cut = client.mount.as_ref().map_or(0, |mount| mount.cut_of(source));
        let shape = Shape { is_5: version.is_5(), retain: true, qos: Qos::AtMostOnce, cut };
        let identifiers = as_identifiers(interest.identifier().as_slice());
        let identifiers = SubscriptionIdentifiers::from(identifiers.as_slice());
        let bytes_max = client.session.packet_bytes_max();
        let buffer = &mut self.buffers.single;
        buffer.clear();
        let made = source.encode(Form { shape, identifiers, bytes_max }, now, buffer);
        self.fates.come(1);
        let room = to.publish(connection, buffer, Flush::Direct);
        let fate = once(made.count > 0, room);
        if fate == Fate::Sent {
            self.counters.count_sent(&client.counts, true, &made);
        }
        self.fates.decided((connection, Some(client)), CopiesAt::Retained(message), fate, now);
    }
}
