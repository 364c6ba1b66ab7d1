//! From a message to the output buffers of this shard's subscribers: encoded once per shape, not per receiver.

use std::num::NonZeroU32;
use std::sync::Arc;

use index::{ConnectionId, Interest, Level, Subscriber, Target};
use session::{Message, Now};
use wire::{
    Decoded, Limits, Packet, Publish, SubscriptionIdentifier, SubscriptionIdentifiers, Version, decode,
};

use crate::{Effects, Flush, Room, Run, Shard};

/// Packets of this size on average are shared by their receivers instead of copied for each.
const SHARED_BYTES: usize = 4 * 1024;
/// With up to this many receivers a message is written at the end of its turn.
const DIRECT_TARGETS: usize = 8;

impl Flush {
    /// How a message with so many receivers is written.
    #[must_use]
    pub fn of(targets: usize) -> Self {
        if targets <= DIRECT_TARGETS { Self::Direct } else { Self::Bulk }
    }
}

/// What is delivered.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// Packets as they were read, all alike but for their payload, of QoS 0.
    Run(Run<'a>),
    /// A message that went through the ledger.
    Message(&'a Message),
}

/// How receivers differ in the bytes they get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    is_5: bool,
    retain: bool,
}

/// One target, as its connection is now.
struct Receiver {
    shape: Shape,
    /// The largest packet it takes.
    bytes_max: usize,
    /// It has published itself: it may be waiting for this message to go on.
    publishes: bool,
}

/// Buffers for packets that are put together, kept from one delivery to the next.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    shaped: Vec<u8>,
    single: Vec<u8>,
}

impl Shard {
    /// Hands a message to those of `targets` that live here. Returns one of them that is over its mark, if any.
    pub(crate) fn deliver(
        &mut self,
        source: Source<'_>,
        targets: &[Target],
        flush: Flush,
        now: Now,
        to: &mut impl Effects,
    ) -> Option<Arc<Subscriber>> {
        let mut buffers = std::mem::take(&mut self.buffers);
        let mut dispatch = Dispatch::new(source, flush, now, &mut buffers);
        let mut over = None;
        for target in targets {
            let subscriber = &target.subscriber;
            let Some(receiver) = self.receiver(source, target) else { continue };
            let level = subscriber.gauge.level();
            if level == Level::Slow {
                self.counters.dropped_slow.add(u64::from(source.count()));
                self.counters.publish_dropped.add(u64::from(source.count()));
                continue;
            }
            let room = dispatch.send(target, &receiver, to);
            self.count_sent(&dispatch.made, room);
            if room == Room::Over {
                if level == Level::Open {
                    subscriber.gauge.set(Level::Over);
                    self.judge.watch(subscriber, to.taken_bytes(subscriber.connection), now.monotonic_ms);
                }
                over.get_or_insert_with(|| Arc::clone(subscriber));
            }
        }
        self.buffers = buffers;
        over
    }

    /// How a target gets the message; `None` if it is gone, or is not to get this one.
    fn receiver(&self, source: Source<'_>, target: &Target) -> Option<Receiver> {
        let client = self.clients.get(target.subscriber.connection)?;
        let is_5 = client.session.version()?.is_5();
        let retain = match source {
            Source::Run(_) => false,
            Source::Message(message) => {
                if client.walks.as_ref().is_some_and(|walks| walks.will_bring(message, target)) {
                    return None;
                }
                message.retain() && target.retain_as_published
            }
        };
        let bytes_max = client.session.packet_bytes_max();
        Some(Receiver { shape: Shape { is_5, retain }, bytes_max, publishes: client.route.is_some() })
    }

    /// Hands a step of retained messages to one client, with RETAIN 1 [MQTT-3.3.1-8 of 3.1.1].
    pub(crate) fn deliver_retained(
        &mut self,
        connection: ConnectionId,
        messages: &[Arc<Message>],
        interest: Interest,
        now: Now,
        to: &mut impl Effects,
    ) {
        let Some(session) = self.clients.get(connection).map(|client| &client.session) else { return };
        let Some(version) = session.version() else { return };
        let shape = Shape { is_5: version.is_5(), retain: true };
        let identifiers = identifiers(interest.identifier().as_slice());
        let identifiers = SubscriptionIdentifiers::from(identifiers.as_slice());
        let buffer = &mut self.buffers.single;
        buffer.clear();
        let mut made = Made::default();
        for message in messages {
            let source = Source::Message(message);
            made += source.encode(shape, identifiers, session.packet_bytes_max(), now, buffer);
        }
        let room = to.publish(connection, buffer, Flush::Direct);
        self.count_sent(&made, room);
    }

    pub(crate) fn count_sent(&self, made: &Made, room: Room) {
        let (count, too_large) = (u64::from(made.count), u64::from(made.too_large));
        let lost = if room == Room::Full { count } else { 0 };
        self.counters.dropped_budget.add(lost);
        self.counters.dropped_too_large.add(too_large);
        self.counters.publish_dropped.add(lost + too_large);
        if lost == 0 {
            self.counters.packets_sent.add(count);
            self.counters.publish_sent.add(count);
            self.counters.publish_bytes_sent.add(made.payload_bytes);
        }
    }
}

/// One delivery, while it goes from receiver to receiver.
struct Dispatch<'a> {
    source: Source<'a>,
    flush: Flush,
    /// So many more receivers of a wide fan-out are written at the end of the turn, if they publish: in a
    /// dialogue that many listen to, the listeners can wait, and get more at a time.
    direct_left: usize,
    now: Now,
    /// What the receiver before got, ready for the next of its shape.
    shape: Option<Shape>,
    common: Made,
    shared: Option<Arc<[u8]>>,
    buffers: &'a mut Buffers,
    /// What the last receiver got.
    made: Made,
}

/// What was encoded, and what was left out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Made {
    pub(crate) count: u32,
    pub(crate) payload_bytes: u64,
    pub(crate) too_large: u32,
}

impl std::ops::AddAssign for Made {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.payload_bytes += other.payload_bytes;
        self.too_large += other.too_large;
    }
}

impl<'a> Dispatch<'a> {
    fn new(source: Source<'a>, flush: Flush, now: Now, buffers: &'a mut Buffers) -> Self {
        let made = Made::default();
        Self {
            source,
            flush,
            direct_left: DIRECT_TARGETS,
            now,
            shape: None,
            common: made,
            shared: None,
            buffers,
            made,
        }
    }

    fn send(&mut self, target: &Target, receiver: &Receiver, to: &mut impl Effects) -> Room {
        let Receiver { shape, bytes_max, .. } = *receiver;
        let connection = target.subscriber.connection;
        let flush = self.flush_of(receiver);
        self.prepare(shape);
        let common = self.source.as_is(shape).unwrap_or(&self.buffers.shaped);
        if !target.identifiers.is_empty() || common.len() > bytes_max {
            let identifiers = identifiers(&target.identifiers);
            let identifiers = SubscriptionIdentifiers::from(identifiers.as_slice());
            let single = &mut self.buffers.single;
            single.clear();
            self.made = self.source.encode(shape, identifiers, bytes_max, self.now, single);
            return to.publish(connection, single, flush);
        }
        self.made = self.common;
        if common.len() >= SHARED_BYTES * self.common.count.max(1) as usize && self.flush == Flush::Bulk {
            let shared = self.shared.get_or_insert_with(|| common.into());
            return to.publish_shared(connection, shared, flush);
        }
        to.publish(connection, common, flush)
    }

    fn flush_of(&mut self, receiver: &Receiver) -> Flush {
        if self.flush == Flush::Bulk && receiver.publishes && self.direct_left > 0 {
            self.direct_left -= 1;
            return Flush::Direct;
        }
        self.flush
    }

    fn prepare(&mut self, shape: Shape) {
        if self.shape == Some(shape) {
            return;
        }
        self.shape = Some(shape);
        self.shared = None;
        self.common = match self.source {
            Source::Run(run) if self.source.as_is(shape).is_some() => {
                Made { count: run.count, payload_bytes: run.payload_bytes, too_large: 0 }
            }
            source => {
                let nobody = SubscriptionIdentifiers::EMPTY;
                self.buffers.shaped.clear();
                source.encode(shape, nobody, usize::MAX, self.now, &mut self.buffers.shaped)
            }
        };
    }
}

impl<'a> Source<'a> {
    fn count(self) -> u32 {
        match self {
            Self::Run(run) => run.count,
            Self::Message(_) => 1,
        }
    }

    /// The packets, if receivers of this shape get them as they came.
    fn as_is(self, shape: Shape) -> Option<&'a [u8]> {
        match self {
            Self::Run(run) if run.version.is_5() == shape.is_5 => Some(run.bytes),
            Self::Run(_) | Self::Message(_) => None,
        }
    }

    /// Appends the packets of a shape that are not larger than `bytes_max`.
    fn encode(
        self,
        shape: Shape,
        identifiers: SubscriptionIdentifiers<'_>,
        bytes_max: usize,
        now: Now,
        buffer: &mut Vec<u8>,
    ) -> Made {
        let mut made = Made::default();
        let version = if shape.is_5 { Version::V5 } else { Version::V3_1_1 };
        self.for_each(now, |publish| {
            let publish = Publish {
                retain: shape.retain,
                subscription_identifiers: if shape.is_5 {
                    identifiers
                } else {
                    SubscriptionIdentifiers::EMPTY
                },
                ..*publish
            };
            if publish.encoded_len(version).is_ok_and(|len| len <= bytes_max)
                && publish.encode(version, buffer).is_ok()
            {
                made.count += 1;
                made.payload_bytes += publish.payload.len() as u64;
            } else {
                made.too_large += 1;
            }
        });
        made
    }

    /// Each message, as a PUBLISH of QoS 0.
    fn for_each(self, now: Now, mut each: impl FnMut(&Publish<'_>)) {
        match self {
            Self::Message(message) => {
                if !message.is_expired(now) {
                    each(&message.publish(now));
                }
            }
            Self::Run(run) => {
                let mut rest = run.bytes;
                while let Ok(Decoded::Packet { packet: Packet::Publish(publish), len }) =
                    decode(rest, Some(run.version), &Limits::default())
                {
                    each(&publish);
                    rest = &rest[len..];
                }
            }
        }
    }
}

pub(crate) fn identifiers(numbers: &[NonZeroU32]) -> Vec<SubscriptionIdentifier> {
    numbers.iter().filter_map(|number| SubscriptionIdentifier::new(number.get())).collect()
}
