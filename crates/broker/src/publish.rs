//! The way of a PUBLISH through a shard: straight to its receivers, or through the ledger.

use std::sync::Arc;

use auth::{Action, Permit};
use base::{
    Budget, ConnectionId, Dispatch, Lane, Level, Member, Message, Place, Purpose, ShardId, Subscriber,
};
use index::{Generation, Target, Targets};
use protocol::{Command, Publish};
use session::Incoming;
use wire::{Qos, ReasonCode, numbered_run, publish_run};

use crate::client::Client;
use crate::effects::Outside;
use crate::encode::Source;
use crate::fates::Unrouted;
use crate::pressure::{Blocker, Waiting};
use crate::{Counters, Counts, Effects, Flush, Mail, Room, Run, Shard};

/// While memory is short, no larger route is kept for the next message.
const ROUTE_BYTES_ALLOWED: usize = 4 * 1024;

/// While memory is short, topic aliases and exchanges of QoS 2 of one client may take this much, in bytes: as much as its
/// connection. A client that comes back begins its exchanges again, and must stay to take what waits for it.
const INBOUND_BYTES_ALLOWED: usize = 1024;

/// Route of a publisher's last topic. The common PUBLISH has the same topic as the one before: then the lookup is one
/// comparison.
#[derive(Debug)]
pub(crate) struct Route {
    topic: Box<str>,
    generation: Generation,
    pub(crate) targets: Arc<Targets>,
    /// The messages that the publisher may send to the topic.
    permit: Permit,
    /// The publisher's count of posted commands after the last one for this topic: until that one is decided,
    /// a later message must not overtake it (rule 6 of `protocol::order`).
    undecided: u32,
    /// The QoS of the last message. Receivers that get the message at QoS 0 have it in their outputs: it waits for full ones.
    /// Messages of QoS 1 and 2 wait behind windows.
    qos: Qos,
}

impl Route {
    /// Approximate memory of the route, in bytes. Publishers that share these targets have looked them up too.
    pub(crate) fn size_bytes(&self) -> usize {
        let targets = self.targets.count + self.targets.queued.len();
        size_of::<Self>() + self.topic.len() + targets * size_of::<Target>()
    }

    /// The first thing on this route that is full, if any.
    pub(crate) fn blocker(&self, own: ShardId, to: &mut Outside<'_, impl Effects>) -> Option<Blocker> {
        for (shard, targets) in &self.targets.shards {
            if *shard != own && to.mail_room(*shard) == Room::Over {
                return Some(Blocker::Shard(*shard));
            }
            if let Some(target) = self.over(targets) {
                return Some(self.full(&target.subscriber));
            }
        }
        (to.command_room() == Room::Over).then_some(Blocker::Ledger)
    }

    /// Returns a shard or the ledger that this route needs and other publishers wait for. These publishers go first, even if
    /// there is room by now. Otherwise a publisher that takes all the room with each read would take it again each time.
    pub(crate) fn line(&self, own: ShardId, waiting: &Waiting) -> Option<Blocker> {
        let mut shards = self.targets.shards.iter().map(|(shard, _)| *shard);
        let shard = shards.find(|shard| *shard != own && waiting.has_line_for_shard(*shard));
        shard.map(Blocker::Shard).or_else(|| waiting.has_line_for_ledger().then_some(Blocker::Ledger))
    }

    fn over<'t>(&self, targets: &'t [Target]) -> Option<&'t Target> {
        let is_over = |target: &&Target| {
            self.qos.min(target.qos) == Qos::AtMostOnce && target.subscriber.gauge.level() == Level::Over
        };
        targets.iter().find(is_over)
    }

    fn full(&self, subscriber: &Arc<Subscriber>) -> Blocker {
        let holds_others = self.holds_others(subscriber);
        Blocker::Subscriber { subscriber: Arc::clone(subscriber), holds_others }
    }

    /// Whether other subscribers with room wait for one that is full. A slow subscriber waits for nothing.
    pub(crate) fn holds_others(&self, full: &Arc<Subscriber>) -> bool {
        let others = self.targets.shards.iter().flat_map(|(_, targets)| targets.iter());
        let mut others = others.map(|target| &target.subscriber).filter(|other| !Arc::ptr_eq(other, full));
        others.any(|other| other.gauge.level() == Level::Open && !other.gauge.is_marked_behind())
    }
}

/// The reason why a message has no route.
#[derive(Clone, Copy)]
enum NoRoute {
    /// The message is refused.
    Refused(ReasonCode),
    /// The rules allow messages to the topic, and not with this QoS or RETAIN.
    TooHigh,
    /// The message has commands for the broker itself.
    Control,
}

/// Counts packets that were read together, the first of which was counted as a packet already.
fn take_run<'b>(
    counters: &Counters,
    counts: &Counts,
    publish: &Incoming<'_>,
    (bytes, count, payload_bytes): (&'b [u8], usize, usize),
) -> Run<'b> {
    let qos = publish.packet.delivery.qos();
    let count = u32::try_from(count).expect("a read has fewer packets than 2^32");
    let payload_bytes = payload_bytes as u64;
    counters.packets_received.add(u64::from(count - 1));
    counters.count_received(counts, qos, (u64::from(count), payload_bytes));
    Run { bytes, count, payload_bytes, version: publish.version, qos }
}

/// Whether those behind it may be like it.
fn is_plain(publish: &Incoming<'_>) -> bool {
    publish.is_verbatim() && publish.packet.properties.is_empty()
}

impl Shard {
    /// Routes the PUBLISH at the beginning of `bytes`, `len` long, and those directly behind it that differ in
    /// their payload only. Returns how many bytes that were.
    pub(crate) fn publish(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        (bytes, len): (&[u8], usize),
        to: &mut Outside<'_, impl Effects>,
    ) -> usize {
        let has_spans = self.begin_publication(id, publish);
        // A message with spans travels alone.
        let bytes = if has_spans { &bytes[..len] } else { bytes };
        let consumed = self.take_in(id, publish, (bytes, len), to);
        if has_spans {
            self.end_publication();
        }
        consumed
    }

    /// Takes in one message, or some that were read together. Inlined: it is called in one place, for every PUBLISH.
    #[inline(always)]
    fn take_in(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        (bytes, len): (&[u8], usize),
        to: &mut Outside<'_, impl Effects>,
    ) -> usize {
        let Some(client) = self.clients.get_mut(id) else { return len };
        let bytes = if client.keep_pace(len, to.now) { &bytes[..len] } else { bytes };
        if client.ends_ms().is_some()
            && let Some(ticket) = publish.ticket()
        {
            // Behind a message that could not be stored none is stored, and none would be answered.
            client.session.ignore(ticket);
            self.fates.unrouted(&client.counts, Unrouted::NotStored, 1);
            self.count_received(id, publish, publish.packet.payload.len());
            return len;
        }
        if client.has_changes {
            // Its own subscription comes first, if it was there first.
            self.write_changes(to);
        }
        let mut route = match self.route(id, publish) {
            Ok(route) => route,
            Err(why) => {
                self.end_unrouted(id, publish, why, to);
                return len;
            }
        };
        let has_alias = publish.packet.topic.alias().is_some();
        let is_remembered = has_alias || publish.packet.delivery.qos() == Qos::ExactlyOnce;
        if is_remembered && !self.count_inbound(id, to) {
            self.forget_route(&route);
            return len;
        }
        let Some(client) = self.clients.get_mut(id) else { return len };
        let qos = publish.packet.delivery.qos();
        route.qos = qos;
        let is_undecided = route.undecided.wrapping_sub(client.decided).cast_signed() > 0;
        let must_last = qos == Qos::ExactlyOnce && client.queue().is_some() || route.targets.has_queued(qos);
        let consumed = if publish.packet.retain || is_undecided || must_last {
            self.count_received(id, publish, publish.packet.payload.len());
            self.post(id, publish, &mut route, to);
            len
        } else if qos == Qos::AtLeastOnce && is_plain(publish) && route.targets.groups.is_empty() {
            self.straight_numbered(id, publish, (bytes, len), &route, to)
        } else if qos > Qos::AtMostOnce || !publish.is_verbatim() || !route.targets.groups.is_empty() {
            self.count_received(id, publish, publish.packet.payload.len());
            self.straight_single(id, publish, (bytes, len), &route, to);
            len
        } else {
            self.straight(id, publish, (bytes, len), &route, to)
        };
        match self.clients.get_mut(id) {
            Some(client) if route.size_bytes() <= ROUTE_BYTES_ALLOWED || !self.tally.budget().is_tight() => {
                client.route = Some(route);
            }
            _ => self.forget_route(&route),
        }
        consumed
    }

    /// Drops a message without a route, or carries it out, and answers it.
    fn end_unrouted(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        why: NoRoute,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let (why, reason) = match why {
            NoRoute::Control => return self.control(id, publish, to),
            NoRoute::TooHigh => (Unrouted::TooHigh, ReasonCode::NotAuthorized),
            NoRoute::Refused(ReasonCode::NotAuthorized) => (Unrouted::Denied, ReasonCode::NotAuthorized),
            NoRoute::Refused(reason) => (Unrouted::BadTopic, reason),
        };
        self.fates.unrouted(self.counts_of(id), why, 1);
        self.count_received(id, publish, 0);
        if why != Unrouted::BadTopic {
            self.note_may_not_publish(id, publish, to.now);
            self.tell_denied(id, publish, to);
        }
        self.complete_some(id, publish.ticket(), reason, to);
    }

    fn forget_route(&mut self, route: &Route) {
        self.tally.sub(Purpose::Routes, route.size_bytes());
    }

    /// Puts on the account what a client makes us remember: topic aliases, and exchanges of QoS 2. Whether it is here
    /// still: while memory is short there is none for more, and when all clients' together take their share there is
    /// little for each.
    fn count_inbound(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) -> bool {
        let (before, bytes) = self.note_inbound(id);
        let budget = self.tally.budget();
        let is_share_taken =
            || bytes > Budget::WAITING_BYTES_ALLOWED && budget.is_crowded_by(Purpose::Inbound);
        let is_short = budget.is_tight() && (bytes > INBOUND_BYTES_ALLOWED || budget.is_closed());
        if bytes > before && (is_short || is_share_taken()) {
            self.end_for_memory(id, "there is no memory for another topic alias or exchange of QoS 2", to);
            return false;
        }
        true
    }

    /// Brings the account up to date. Returns what a client made us remember before, and what it does now, in bytes.
    pub(crate) fn note_inbound(&mut self, id: ConnectionId) -> (usize, usize) {
        let Some(client) = self.clients.get_mut(id) else { return (0, 0) };
        let bytes = client.session.inbound_bytes();
        let before = std::mem::replace(&mut client.inbound_bytes, bytes);
        self.tally.add(Purpose::Inbound, bytes);
        self.tally.sub(Purpose::Inbound, before);
        (before, bytes)
    }

    /// Counts one packet, with this number of payload bytes.
    pub(crate) fn count_received(&self, id: ConnectionId, publish: &Incoming<'_>, payload_bytes: usize) {
        let qos = publish.packet.delivery.qos();
        self.counters.count_received(self.counts_of(id), qos, (1, payload_bytes as u64));
    }

    /// Takes the client's cached route if it leads where this PUBLISH goes, or looks for another. A cached route is valid only
    /// for the rules by which it was looked up: other rules invalidate all routes.
    ///
    /// # Errors
    /// Why the message is not to be routed.
    fn route(&mut self, id: ConnectionId, publish: &Incoming<'_>) -> Result<Box<Route>, NoRoute> {
        let Some(client) = self.clients.get_mut(id) else {
            return Err(NoRoute::Refused(ReasonCode::UnspecifiedError));
        };
        let topic = publish.topic();
        let cached = client.route.take();
        let cached_bytes = cached.as_ref().map_or(0, |route| route.size_bytes());
        let same_topic = cached.filter(|route| *route.topic == *topic.as_str());
        // A topic that has been published to may be published to.
        if (same_topic.is_none() || self.settings.check_payload_format)
            && let Some(reason) = publish.refusal(&self.settings)
        {
            self.tally.sub(Purpose::Routes, cached_bytes);
            return Err(NoRoute::Refused(reason));
        }
        let (qos, retain) = (publish.packet.delivery.qos(), publish.packet.retain);
        let same_topic = match same_topic {
            Some(route) if self.index.is_current(route.generation) && route.permit.allows(qos, retain) => {
                return Ok(route);
            }
            same_topic => same_topic,
        };
        self.tally.sub(Purpose::Routes, cached_bytes);
        // Before the lookup, so that a change during it is noticed: rule 12 of `protocol::order`.
        let generation = self.index.generation(topic);
        let rules = self.guard.has_rules().then(|| self.guard.current());
        let permit = rules
            .as_ref()
            .zip(client.subscriber.as_ref())
            .map_or(Permit::ALL, |(rules, own)| rules.permit(&own.principal(), &own.client_id, topic));
        if permit == Permit::NONE {
            return Err(NoRoute::Refused(ReasonCode::NotAuthorized));
        }
        if !permit.allows(qos, retain) {
            return Err(NoRoute::TooHigh);
        }
        if rules.as_ref().is_some_and(|rules| rules.controls(topic)) {
            return Err(NoRoute::Control);
        }
        let publisher = Some(client.client_id());
        let reads = |receiver: &Subscriber| {
            rules.as_ref().is_none_or(|rules| rules.allow(receiver, topic, Action::Receive))
        };
        let targets = Arc::new(Targets::look_up_that(&self.index, topic, publisher, reads));
        self.steps += targets.examined as u64;
        let route = Box::new(match same_topic {
            Some(route) => Route { generation, targets, permit, ..*route },
            None => Route {
                topic: topic.as_str().into(),
                generation,
                targets,
                permit,
                undecided: client.posted,
                qos,
            },
        });
        self.tally.add(Purpose::Routes, route.size_bytes());
        Ok(route)
    }

    /// The ledger's way: the message gets its place among all others of its topic, and in the queues it is for.
    fn post(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        route: &mut Route,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let (now, mark) = (to.now, self.mark());
        let Some(client) = self.clients.get_mut(id) else { return };
        self.fates.unrouted(&client.counts, Unrouted::Unheard, u64::from(route.targets.is_empty()));
        let publisher = client.subscriber.as_ref().map(|subscriber| Arc::clone(&subscriber.client_id));
        let message = Message::new(publish.topic(), &publish.packet, publisher, now);
        let message = Arc::new(message.with_span(mark).charged_to(self.tally.budget()));
        client.posted = client.posted.wrapping_add(1);
        route.undecided = client.posted;
        to.command(Command::Publish(Publish {
            connection: Some(id),
            publisher: client.queue(),
            ticket: publish.ticket(),
            // Behind a refusal that cannot be told, nothing is stored: rule 13 of `protocol::order`.
            hears_refusals: publish.version.is_5(),
            message,
            route: Some((route.generation, Arc::clone(&route.targets))),
        }));
        self.fates.absent(route.targets.absent_at(publish.packet.delivery.qos()) as u64);
        if self.fates.rings.is_some() {
            self.note_published(id, publish, &route.targets, now);
            self.set_publisher(None);
        }
        // Its copies take another way than this shard sees; what holds them up holds this publisher up.
        let blocker = route.blocker(self.id, to);
        if let Some(blocker) = blocker.or_else(|| self.full_group(id, publish, route)) {
            self.block(id, blocker, to);
        }
    }

    /// The member of a group for which a message of QoS 0 waits, if that member is full. The ledger chooses the member.
    fn full_group(&self, id: ConnectionId, publish: &Incoming<'_>, route: &Route) -> Option<Blocker> {
        if route.qos > Qos::AtMostOnce {
            return None;
        }
        let mut lane = None;
        let mut groups = route.targets.groups.iter().filter_map(|group| group.members());
        let full = groups
            .find_map(|members| members.full(self.lane_for(id, members.dispatch(), publish, &mut lane)));
        full.map(|subscriber| route.full(&subscriber))
    }

    /// The straight way, for packets that most receivers get byte for byte. Inlined for the same reason.
    #[inline(always)]
    fn straight(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        (bytes, len): (&[u8], usize),
        route: &Route,
        to: &mut Outside<'_, impl Effects>,
    ) -> usize {
        let Some(client) = self.clients.get_mut(id) else { return len };
        let version = publish.version;
        let (count, payload_bytes, len) = if publish.packet.properties.is_empty() {
            let limits = client.session.limits(&self.settings);
            let run = publish_run(bytes, len, version, &limits);
            (run.count, run.payload_bytes, run.len)
        } else {
            // Properties are checked packet by packet.
            (1, publish.packet.payload.len(), len)
        };
        let counts = &client.counts;
        let packets = take_run(&self.counters, counts, publish, (&bytes[..len], count, payload_bytes));
        self.pass_drawing(packets.count - 1);
        self.forward(id, publish, packets, route, to);
        len
    }

    /// The straight way at QoS 1, for packets without properties.
    fn straight_numbered(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        (bytes, len): (&[u8], usize),
        route: &Route,
        to: &mut Outside<'_, impl Effects>,
    ) -> usize {
        let now = to.now;
        let Some(client) = self.clients.get_mut(id) else { return len };
        let limits = client.session.limits(&self.settings);
        let session = &mut client.session;
        let run = numbered_run(bytes, len, publish.version, &limits, |packet_id| {
            session.handle_like_publish(packet_id)
        });
        let read = (&bytes[..run.len], run.count, run.payload_bytes);
        let packets = take_run(&self.counters, &client.counts, publish, read);
        self.pass_drawing(packets.count - 1);
        if let Some(behind) = self.forward(id, publish, packets, route, to) {
            self.hold(id, &behind, route.holds_others(&behind), now);
        }
        let reason =
            if route.targets.is_empty() { ReasonCode::NoMatchingSubscribers } else { ReasonCode::Success };
        // A message with spans travels alone.
        self.span_answered(id, publish.ticket(), reason);
        self.complete_last(id, run.count, reason, to);
        run.len
    }

    /// The straight way, for a packet that travels alone: the broker acknowledges it, or a group receives it, or it is
    /// encoded anew for everybody (see `Incoming::is_verbatim`).
    fn straight_single(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        (bytes, len): (&[u8], usize),
        route: &Route,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let now = to.now;
        let mut rewritten = std::mem::take(&mut self.rewritten);
        rewritten.clear();
        let bytes = if publish.is_verbatim() {
            Some(&bytes[..len])
        } else {
            let written = publish.without_alias().encode(publish.version, &mut rewritten);
            written.is_ok().then_some(&rewritten[..])
        };
        let behind = bytes.and_then(|bytes| {
            let payload_bytes = publish.packet.payload.len() as u64;
            let (version, qos) = (publish.version, publish.packet.delivery.qos());
            let packet = Run { bytes, count: 1, payload_bytes, version, qos };
            self.forward(id, publish, packet, route, to)
        });
        self.rewritten = rewritten;
        if let Some(behind) = behind {
            self.hold(id, &behind, route.holds_others(&behind), now);
        }
        let reason =
            if route.targets.is_empty() { ReasonCode::NoMatchingSubscribers } else { ReasonCode::Success };
        self.complete_some(id, publish.ticket(), reason, to);
    }

    /// Hands packets to everybody on the route. Returns one behind whose window more waits than should.
    fn forward(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        packets: Run<'_>,
        route: &Route,
        to: &mut Outside<'_, impl Effects>,
    ) -> Option<Arc<Subscriber>> {
        let targets = &route.targets;
        let count = u64::from(packets.count);
        if self.fates.rings.is_some() {
            self.note_published(id, publish, targets, to.now);
        }
        if targets.is_empty() {
            self.fates.unrouted(self.counts_of(id), Unrouted::Unheard, count);
            self.set_publisher(None);
            return None;
        }
        self.fates.absent(count * targets.absent_at(packets.qos) as u64);
        let flush = Flush::of(targets.count);
        let known = (packets.count == 1 && publish.is_verbatim()).then_some(&publish.packet);
        let (mut blocker, mut behind) = (None, None);
        for (shard, targets) in &targets.shards {
            if *shard == self.id {
                let found = self.deliver_known((Source::Run(packets), known), targets, flush, to);
                blocker = blocker.or(found.over.map(|subscriber| route.full(&subscriber)));
                behind = behind.or(found.behind);
                continue;
            }
            self.mail_notes(*shard, to);
            if to.mail(*shard, Mail::Forward(packets, Arc::clone(targets))) == Room::Over {
                blocker = blocker.or(Some(Blocker::Shard(*shard)));
            }
            blocker = blocker.or_else(|| route.over(targets).map(|target| route.full(&target.subscriber)));
            if packets.qos > Qos::AtMostOnce {
                let is_behind = |target: &&Target| target.subscriber.gauge.is_behind();
                let found = targets.iter().find(is_behind);
                behind = behind.or_else(|| found.map(|target| Arc::clone(&target.subscriber)));
            }
        }
        // Groups that share messages out in the same way look for the key once.
        let mut lane = None;
        let rules = if targets.groups.is_empty() { None } else { self.rules() };
        let reads = |member: &Subscriber| {
            rules.as_ref().is_none_or(|rules| rules.allow(member, publish.topic(), Action::Receive))
        };
        for group in &targets.groups {
            let receiver = group.members().and_then(|members| {
                members.receiver_that(self.lane_for(id, members.dispatch(), publish, &mut lane), reads)
            });
            if self.fates.rings.is_some() {
                self.note_turn(group, receiver.as_ref(), publish, to.now);
            }
            blocker = blocker.or(self.forward_to_one(receiver, packets, route, to));
        }
        self.set_publisher(None);
        match blocker {
            Some(Blocker::Shard(shard)) if to.mail_room(shard) != Room::Over => {}
            Some(blocker) => {
                self.block(id, blocker, to);
            }
            None => {}
        }
        behind
    }

    /// The lane of a message of QoS 0 in a group (MQTT 5.0, 4.8.2). `known` is that of the group before.
    fn lane_for<'g>(
        &self,
        id: ConnectionId,
        dispatch: &'g Dispatch,
        publish: &Incoming<'_>,
        known: &mut Option<(&'g Dispatch, Option<Lane>)>,
    ) -> Option<Lane> {
        if let Some((before, lane)) = known
            && *before == dispatch
        {
            return *lane;
        }
        let publisher = self.clients.get(id).map(Client::client_id);
        let lane = dispatch.lane(publisher, || publish.packet.properties);
        *known = Some((dispatch, lane));
        lane
    }

    /// Sends a message of QoS 0 to one member of a group, if one is connected. Returns a member that is full.
    fn forward_to_one(
        &mut self,
        receiver: Option<(Member, Place)>,
        packet: Run<'_>,
        route: &Route,
        to: &mut Outside<'_, impl Effects>,
    ) -> Option<Blocker> {
        let Some((member, place)) = receiver else {
            self.fates.absent(1);
            return None;
        };
        // If members take turns, a member is full only if all members are: otherwise another member would have received
        // the message.
        let is_over = member.subscriber.gauge.level() == Level::Over;
        let full = is_over.then(|| route.full(&member.subscriber));
        let targets = [Target::one(member.subscriber, place.connection, member.interest)];
        if place.shard == self.id {
            self.deliver(Source::Run(packet), &targets, Flush::Direct, to);
            return full;
        }
        self.mail_notes(place.shard, to);
        let room = to.mail(place.shard, Mail::Forward(packet, Arc::new(targets)));
        if room == Room::Over { Some(Blocker::Shard(place.shard)) } else { full }
    }
}
