//! From a message to the output buffers of this shard's subscribers: encoded once per shape, not per receiver.

use std::num::NonZeroU32;
use std::sync::Arc;

use index::{ConnectionId, Interest, Level, Subscriber, Target};
use session::{Message, Now};
use wire::{
    Decoded, Full, Limits, Packet, Publish, Sink, SubscriptionIdentifier, SubscriptionIdentifiers, Version,
    decode,
};

use crate::retained::Walks;
use crate::{Effects, Flush, Room, Run, Shard};

/// In a wide fan-out payloads of this size on average are shared by their receivers instead of copied for each.
const SHARED_BYTES: u64 = 4 * 1024;
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
    /// A message that went through the ledger, and whether that keeps it.
    Message { message: &'a Message, stored: bool },
}

/// How receivers differ in the bytes they get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    is_5: bool,
    retain: bool,
}

impl Shape {
    fn version(self) -> Version {
        if self.is_5 { Version::V5 } else { Version::V3_1_1 }
    }

    fn shaped<'a>(self, publish: &Publish<'a>, identifiers: SubscriptionIdentifiers<'a>) -> Publish<'a> {
        let subscription_identifiers = if self.is_5 { identifiers } else { SubscriptionIdentifiers::EMPTY };
        Publish { retain: self.retain, subscription_identifiers, ..*publish }
    }
}

/// Takes a packet without its payload, which is written last and in one piece.
struct Head<'a> {
    bytes: &'a mut Vec<u8>,
    payload: &'a [u8],
}

impl Sink for Head<'_> {
    fn reserve(&mut self, _: usize) -> Result<(), Full> {
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) {
        if !std::ptr::eq(bytes, self.payload) {
            self.bytes.extend_from_slice(bytes);
        }
    }
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
            Source::Message { message, stored } => {
                let comes_again = |walks: &Walks| stored && walks.will_bring(message, target);
                if client.walks.as_deref().is_some_and(comes_again) {
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
        let Some(client) = self.clients.get(connection) else { return };
        let session = &client.session;
        let Some(version) = session.version() else { return };
        let shape = Shape { is_5: version.is_5(), retain: true };
        let identifiers = identifiers(interest.identifier().as_slice());
        let identifiers = SubscriptionIdentifiers::from(identifiers.as_slice());
        let buffer = &mut self.buffers.single;
        buffer.clear();
        let mut made = Made::default();
        for message in messages {
            if interest.no_local() && message.publisher() == Some(client.client_id()) {
                continue;
            }
            let source = Source::Message { message, stored: true };
            made += source.encode(shape, identifiers, session.packet_bytes_max(), now, buffer);
        }
        let room = to.publish(connection, buffer, Flush::Direct);
        self.count_sent(&made, room);
    }

    pub(crate) fn count_sent(&self, made: &Made, room: Room) {
        let (count, too_large) = (u64::from(made.count), u64::from(made.too_large));
        let expired = u64::from(made.expired);
        let lost = if room == Room::Full { count } else { 0 };
        self.counters.dropped_budget.add(lost);
        self.counters.dropped_too_large.add(too_large);
        self.counters.dropped_expired.add(expired);
        self.counters.publish_dropped.add(lost + too_large + expired);
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
    /// The payloads, once a receiver of a wide fan-out has shared them.
    shared: Vec<Arc<[u8]>>,
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
    pub(crate) expired: u32,
}

impl std::ops::AddAssign for Made {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.payload_bytes += other.payload_bytes;
        self.too_large += other.too_large;
        self.expired += other.expired;
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
            shared: Vec::new(),
            buffers,
            made,
        }
    }

    fn send(&mut self, target: &Target, receiver: &Receiver, to: &mut impl Effects) -> Room {
        let Receiver { shape, bytes_max, .. } = *receiver;
        let connection = target.subscriber.connection;
        let flush = self.flush_of(receiver);
        if self.flush == Flush::Bulk && self.source.is_large() {
            return self.send_shared(target, receiver, flush, to);
        }
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
        to.publish(connection, common, flush)
    }

    /// Each packet with a head of its own and the payload that all receivers share.
    fn send_shared(
        &mut self,
        target: &Target,
        receiver: &Receiver,
        flush: Flush,
        to: &mut impl Effects,
    ) -> Room {
        let Receiver { shape, bytes_max, .. } = *receiver;
        let identifiers = identifiers(&target.identifiers);
        let identifiers = SubscriptionIdentifiers::from(identifiers.as_slice());
        let Self { source, now, shared, buffers: Buffers { single: head, .. }, .. } = self;
        let mut made = Made { expired: u32::from(source.is_expired(*now)), ..Made::default() };
        let (mut room, mut number) = (Room::Open, 0);
        source.for_each(*now, |publish| {
            if number == shared.len() {
                shared.push(publish.payload.into());
            }
            let payload = &shared[number];
            number += 1;
            head.clear();
            let publish = shape.shaped(publish, identifiers);
            let mut sink = Head { bytes: head, payload: publish.payload };
            match publish.encode(shape.version(), &mut sink) {
                Ok(len) if len <= bytes_max => {
                    made.count += 1;
                    made.payload_bytes += payload.len() as u64;
                    room = to.publish_shared(target.subscriber.connection, head, payload, flush);
                }
                Ok(_) | Err(_) => made.too_large += 1,
            }
        });
        self.made = made;
        room
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
        self.common = match self.source {
            Source::Run(run) if self.source.as_is(shape).is_some() => {
                Made { count: run.count, payload_bytes: run.payload_bytes, ..Made::default() }
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
            Self::Message { .. } => 1,
        }
    }

    /// Whether its payloads are worth sharing.
    fn is_large(self) -> bool {
        match self {
            Self::Run(run) => run.payload_bytes >= SHARED_BYTES * u64::from(run.count),
            Self::Message { message, .. } => message.payload().len() as u64 >= SHARED_BYTES,
        }
    }

    /// The packets, if receivers of this shape get them as they came.
    fn as_is(self, shape: Shape) -> Option<&'a [u8]> {
        match self {
            Self::Run(run) if run.version.is_5() == shape.is_5 => Some(run.bytes),
            Self::Run(_) | Self::Message { .. } => None,
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
        let mut made = Made { expired: u32::from(self.is_expired(now)), ..Made::default() };
        let version = shape.version();
        self.for_each(now, |publish| {
            let publish = shape.shaped(publish, identifiers);
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

    fn is_expired(self, now: Now) -> bool {
        matches!(self, Self::Message { message, .. } if message.is_expired(now))
    }

    /// Each message, as a PUBLISH of QoS 0.
    fn for_each(self, now: Now, mut each: impl FnMut(&Publish<'_>)) {
        match self {
            Self::Message { message, .. } => {
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
