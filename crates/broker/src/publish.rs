//! The way of a PUBLISH through a shard: straight to its receivers, or through the ledger.

use std::sync::Arc;

use index::{ConnectionId, Generation, Level, ShardId, Subscriber, Targets};
use ledger::Command;
use session::{Incoming, Message, Now};
use wire::publish_run;

use crate::deliver::Source;
use crate::pressure::Blocker;
use crate::{Effects, Flush, Mail, Room, Run, Shard};

/// Where a publisher's last topic led: the common PUBLISH is like the one before, and then this is one
/// comparison.
#[derive(Debug)]
pub(crate) struct Route {
    topic: Box<str>,
    generation: Generation,
    pub(crate) targets: Targets,
    /// The publisher's count of posted commands after the last one for this topic: until that one is decided,
    /// a later message must not overtake it.
    undecided: u32,
}

impl Route {
    /// The first thing on this route that is full, if any.
    pub(crate) fn blocker(&self, own: ShardId, to: &mut impl Effects) -> Option<Blocker> {
        for (shard, targets) in &self.targets.shards {
            if *shard != own && to.mail_room(*shard) == Room::Over {
                return Some(Blocker::Shard(*shard));
            }
            let over = targets.iter().find(|target| target.subscriber.gauge.level() == Level::Over);
            if let Some(target) = over {
                return Some(self.full(&target.subscriber));
            }
        }
        (to.command_room() == Room::Over).then_some(Blocker::Ledger)
    }

    fn full(&self, subscriber: &Arc<Subscriber>) -> Blocker {
        Blocker::Subscriber { subscriber: Arc::clone(subscriber), holds_others: self.targets.count > 1 }
    }
}

impl Shard {
    /// Routes the PUBLISH at the beginning of `bytes`, `len` long, and those directly behind it that differ in
    /// their payload only. Returns how many bytes that were.
    pub(crate) fn publish(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        (bytes, len): (&[u8], usize),
        now: Now,
        to: &mut impl Effects,
    ) -> usize {
        let Some(client) = self.clients.get_mut(id) else { return len };
        if client.has_changes {
            // Its own subscription comes first, if it was there first.
            self.write_changes(now, to);
        }
        let Some(mut route) = self.route(id, publish) else {
            self.counters.publish_received.add(1);
            self.counters.dropped_topic.add(1);
            self.counters.publish_dropped.add(1);
            return len;
        };
        let Some(client) = self.clients.get_mut(id) else { return len };
        let is_undecided = route.undecided.wrapping_sub(client.decided).cast_signed() > 0;
        let consumed = if publish.packet.retain || is_undecided || !publish.is_verbatim() {
            self.counters.publish_received.add(1);
            self.counters.publish_bytes_received.add(publish.packet.payload.len() as u64);
            if publish.packet.retain || is_undecided {
                self.post(id, publish, &mut route, now, to);
            } else {
                self.straight_rewritten(id, publish, &route, now, to);
            }
            len
        } else {
            self.straight(id, publish, (bytes, len), &route, now, to)
        };
        if let Some(client) = self.clients.get_mut(id) {
            client.route = Some(route);
        }
        consumed
    }

    /// Takes the client's cached route if it leads where this PUBLISH goes, or looks for another.
    /// `None` if the topic is one that clients may not publish to.
    fn route(&mut self, id: ConnectionId, publish: &Incoming<'_>) -> Option<Box<Route>> {
        let client = self.clients.get_mut(id)?;
        let topic = publish.topic();
        let cached = client.route.take();
        let same_topic = cached.filter(|route| *route.topic == *topic.as_str());
        if let Some(route) = same_topic {
            if self.index.is_current(route.generation) {
                return Some(route);
            }
            let generation = self.index.generation(topic);
            let targets = Targets::look_up(&self.index, topic, Some(client.client_id()));
            return Some(Box::new(Route { generation, targets, ..*route }));
        }
        if !publish.may_be_published(&self.settings) {
            return None;
        }
        // Before the lookup, so that a change during it is noticed.
        let generation = self.index.generation(topic);
        let targets = Targets::look_up(&self.index, topic, Some(client.client_id()));
        Some(Box::new(Route { topic: topic.as_str().into(), generation, targets, undecided: client.posted }))
    }

    /// The ledger's way: the message gets its place among all others of its topic.
    fn post(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        route: &mut Route,
        now: Now,
        to: &mut impl Effects,
    ) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let publisher = client.subscriber.as_ref().map(|subscriber| Arc::clone(&subscriber.client_id));
        let message = Arc::new(Message::new(publish.topic(), &publish.packet, publisher, now));
        client.posted = client.posted.wrapping_add(1);
        route.undecided = client.posted;
        to.command(Command::Publish { connection: Some(id), message });
        // Its copies take another way than this shard sees; what holds them up holds this publisher up.
        if let Some(blocker) = route.blocker(self.id, to) {
            self.block(id, blocker, to);
        }
    }

    /// The straight way, for packets that most receivers get byte for byte.
    fn straight(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        (bytes, len): (&[u8], usize),
        route: &Route,
        now: Now,
        to: &mut impl Effects,
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
        let count = u32::try_from(count).expect("a read has fewer packets than 2^32");
        self.counters.packets_received.add(u64::from(count - 1));
        self.counters.publish_received.add(u64::from(count));
        self.counters.publish_bytes_received.add(payload_bytes as u64);
        let packets = Run { bytes: &bytes[..len], count, payload_bytes: payload_bytes as u64, version };
        self.forward(id, packets, route, now, to);
        len
    }

    /// The straight way, for a packet that nobody may get as it came: it has an alias.
    fn straight_rewritten(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        route: &Route,
        now: Now,
        to: &mut impl Effects,
    ) {
        let mut bytes = std::mem::take(&mut self.rewritten);
        bytes.clear();
        let packet = publish.without_alias();
        if packet.encode(publish.version, &mut bytes).is_ok() {
            let payload_bytes = packet.payload.len() as u64;
            let packets = Run { bytes: &bytes, count: 1, payload_bytes, version: publish.version };
            self.forward(id, packets, route, now, to);
        }
        self.rewritten = bytes;
    }

    fn forward(
        &mut self,
        id: ConnectionId,
        packets: Run<'_>,
        route: &Route,
        now: Now,
        to: &mut impl Effects,
    ) {
        if route.targets.count == 0 {
            self.counters.no_subscribers.add(u64::from(packets.count));
            return;
        }
        let flush = Flush::of(route.targets.count);
        let mut blocker = None;
        for (shard, targets) in &route.targets.shards {
            if *shard == self.id {
                let over = self.deliver(Source::Run(packets), targets, flush, now, to);
                blocker = blocker.or(over.map(|subscriber| route.full(&subscriber)));
                continue;
            }
            if to.mail(*shard, Mail::Forward(packets, Arc::clone(targets))) == Room::Over {
                blocker = blocker.or(Some(Blocker::Shard(*shard)));
            }
            let over = targets.iter().find(|target| target.subscriber.gauge.level() == Level::Over);
            blocker = blocker.or_else(|| over.map(|target| route.full(&target.subscriber)));
        }
        match blocker {
            Some(Blocker::Shard(shard)) if to.mail_room(shard) != Room::Over => {}
            Some(blocker) => {
                self.block(id, blocker, to);
            }
            None => {}
        }
    }
}
