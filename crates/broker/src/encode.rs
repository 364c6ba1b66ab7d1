//! From a message to packets: encoded once per shape, not per receiver.

use std::num::NonZeroU32;
use std::sync::Arc;

use base::{Budget, ConnectionId, Message, Now, SpanMark};
use index::Target;
use protocol::MessageId;
use session::Session;
use topic::TopicName;
use wire::{
    Decoded, Delivery, Full, Limits, Packet, PacketId, Publish, PublishTopic, Qos, Sink,
    SubscriptionIdentifier, SubscriptionIdentifiers, Version, decode, renumber, set_packet_id,
};

use crate::client::Tag;
use crate::effects::Outside;
use crate::mount::shortened;
use crate::{Effects, Flush, Room, Run};

/// Flags in the first byte of a PUBLISH (MQTT 5.0, 3.3.1).
const DUP: u8 = 0b1000;
const RETAIN: u8 = 0b0001;
/// In a wide fan-out payloads of this size on average are shared by their receivers instead of copied for each; and whole
/// packets, where it is their properties that have this size.
const SHARED_BYTES: u64 = 4 * 1024;
/// With up to this many receivers a message is written at the end of its turn.
const DIRECT_TARGETS: usize = 8;
/// Maximum bytes that an alias adds to a packet with the topic name: the property, and a longer length of properties.
pub(crate) const ALIAS_BYTES: usize = 5;

impl Flush {
    /// Returns the way in which a message with this number of receivers is written.
    #[must_use]
    pub fn of(targets: usize) -> Self {
        if targets <= DIRECT_TARGETS { Self::Direct } else { Self::Bulk }
    }
}

/// The messages of a delivery.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// Packets as they were read.
    Run(Run<'a>),
    /// A message that went through the ledger, and its number if it has just become the retained value of its topic.
    Message { message: &'a Arc<Message>, value: Option<MessageId> },
}

/// How receivers differ in the bytes they get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) is_5: bool,
    pub(crate) retain: bool,
    pub(crate) qos: Qos,
    /// The length of the beginning of the topic that they are not told, in bytes.
    pub(crate) cut: u16,
}

impl Shape {
    pub(crate) fn version(self) -> Version {
        if self.is_5 { Version::V5 } else { Version::V3_1_1 }
    }

    pub(crate) fn shaped<'a>(
        self,
        publish: &Publish<'a>,
        identifiers: SubscriptionIdentifiers<'a>,
    ) -> Publish<'a> {
        let subscription_identifiers = if self.is_5 { identifiers } else { SubscriptionIdentifiers::EMPTY };
        // The identifier is written over, per receiver.
        let packet_id = PacketId::MIN;
        let delivery = match self.qos {
            Qos::AtMostOnce => Delivery::AtMostOnce,
            Qos::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup: false },
            Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup: false },
        };
        let topic = match publish.topic {
            PublishTopic::Name(name) => PublishTopic::Name(shortened(name, self.cut)),
            other => other,
        };
        Publish { topic, delivery, retain: self.retain, subscription_identifiers, ..*publish }
    }
}

/// Takes a packet without what all receivers share: its User Properties and its payload, which are written last, each in
/// one piece.
struct Head<'a> {
    bytes: &'a mut Vec<u8>,
    user_properties: &'a [u8],
    payload: &'a [u8],
}

impl Sink for Head<'_> {
    fn reserve(&mut self, _: usize) -> Result<(), Full> {
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) {
        if !std::ptr::eq(bytes, self.payload) && !std::ptr::eq(bytes, self.user_properties) {
            self.bytes.extend_from_slice(bytes);
        }
    }
}

/// A target with the present properties of its connection.
pub(crate) struct Receiver {
    pub(crate) shape: Shape,
    /// The largest packet it takes.
    pub(crate) bytes_max: usize,
    /// The receiver has published itself: it may be waiting for this message to go on.
    pub(crate) publishes: bool,
    /// The receiver accepts aliases in place of topics.
    pub(crate) uses_aliases: bool,
}

/// Buffers for packets that are put together, kept from one delivery to the next.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    shaped: Vec<u8>,
    pub(crate) single: Vec<u8>,
}

/// One delivery, while it goes from receiver to receiver.
pub(crate) struct Dispatch<'a> {
    pub(crate) source: Source<'a>,
    flush: Flush,
    /// Number of further receivers of a wide fan-out that are written at the end of the turn if they publish. In a
    /// dialogue with many listeners, the listeners can wait, and get more at a time.
    direct_left: usize,
    now: Now,
    /// Shape of the packet for the receiver before, which the next receiver of this shape can reuse.
    shape: Option<Shape>,
    common: Made,
    /// The one message, if its publisher was heard here: it was taken apart then.
    known: Option<&'a Publish<'a>>,
    /// The mark of the one message, if it has spans.
    pub(crate) mark: Option<Arc<SpanMark>>,
    /// The one message, once it was taken apart: its properties are read once, however many receivers there are.
    only: Option<Publish<'a>>,
    /// Buffers that receivers share, once one of a wide fan-out has shared them: payloads alone, and payloads with User
    /// Properties before them.
    shared: [Vec<Arc<[u8]>>; 2],
    /// The whole packet in the last shape, once a receiver of a wide fan-out has shared it.
    whole: Option<Arc<[u8]>>,
    /// The message, once it had to wait for somebody.
    message: Option<Arc<Message>>,
    buffers: &'a mut Buffers,
    /// Packets made for the last receiver.
    pub(crate) made: Made,
}

/// The buffer of the packets that were made for a receiver.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bytes {
    AsTheyCame,
    Shaped,
    Single,
    /// One packet, of which the end is shared and not there.
    Head {
        len: usize,
    },
}

/// Numbers of packets that were encoded or left out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Made {
    pub(crate) count: u32,
    pub(crate) payload_bytes: u64,
    pub(crate) too_large: u32,
}

impl<'a> Dispatch<'a> {
    pub(crate) fn new(source: Source<'a>, flush: Flush, now: Now, buffers: &'a mut Buffers) -> Self {
        let made = Made::default();
        Self {
            source,
            flush,
            direct_left: DIRECT_TARGETS,
            now,
            shape: None,
            common: made,
            known: None,
            mark: None,
            only: None,
            shared: Default::default(),
            whole: None,
            message: None,
            buffers,
            made,
        }
    }

    /// The same, if the packet that is its only message was taken apart before.
    pub(crate) fn with_known(self, known: Option<&'a Publish<'a>>) -> Self {
        Self { known, ..self }
    }

    /// The same for a message with this mark, if it has spans.
    pub(crate) fn with_mark(self, mark: Option<Arc<SpanMark>>) -> Self {
        Self { mark, ..self }
    }

    /// Sends at QoS 0.
    pub(crate) fn send(
        &mut self,
        target: &Target,
        receiver: &Receiver,
        session: &mut Session<Tag>,
        to: &mut Outside<'_, impl Effects>,
    ) -> Room {
        let Receiver { shape, bytes_max, .. } = *receiver;
        let connection = target.connection;
        let flush = self.flush_of(receiver);
        if receiver.uses_aliases {
            return self.send_aliased(target, receiver, session, flush, to);
        }
        let is_wide = self.flush == Flush::Bulk;
        // The common case, packets as they came for few, needs nothing that is prepared for the receivers after this one.
        if !is_wide
            && target.identifiers.is_empty()
            && let Source::Run(run) = self.source
            && let Some(bytes) = self.source.as_is(shape)
            && bytes.len() <= bytes_max
        {
            self.made = Made { count: run.count, payload_bytes: run.payload_bytes, too_large: 0 };
            return to.publish(connection, bytes, flush);
        }
        if is_wide && self.is_large(shape) {
            return self.send_shared(target, receiver, flush, to);
        }
        let bytes = self.make(&target.identifiers, shape, bytes_max);
        if is_wide && self.has_large_head() && !matches!(bytes, Bytes::Single) {
            let whole = self.whole.take().unwrap_or_else(|| self.bytes(bytes).into());
            let room = to.publish_shared(connection, &[], &whole, flush);
            self.whole = Some(whole);
            return room;
        }
        to.publish(connection, self.bytes(bytes), flush)
    }

    /// Whether what was made is one packet that is large by its properties: a packet that has any travels alone.
    fn has_large_head(&self) -> bool {
        let as_is = self.shape.and_then(|shape| self.source.as_is(shape));
        let len = as_is.map_or(self.buffers.shaped.len(), <[u8]>::len);
        self.made.count == 1 && len as u64 >= self.made.payload_bytes + SHARED_BYTES
    }

    /// Puts the packets for one receiver together; `made` says what they are.
    pub(crate) fn make(&mut self, identifiers: &[NonZeroU32], shape: Shape, bytes_max: usize) -> Bytes {
        self.prepare(shape);
        let as_is = self.source.as_is(shape);
        let common_len = as_is.map_or(self.buffers.shaped.len(), <[u8]>::len);
        if identifiers.is_empty() && common_len <= bytes_max {
            self.made = self.common;
            return if as_is.is_some() { Bytes::AsTheyCame } else { Bytes::Shaped };
        }
        let identifiers = as_identifiers(identifiers);
        let identifiers = SubscriptionIdentifiers::from(identifiers.as_slice());
        let only = self.only();
        if self.flush == Flush::Bulk
            && self.is_large(shape)
            && let Some(publish) = only
        {
            return self.make_head(&shape.shaped(&publish, identifiers), shape, bytes_max);
        }
        let single = &mut self.buffers.single;
        single.clear();
        let form = Form { shape, identifiers, bytes_max };
        self.made = self.source.encode_with(only, form, self.now, single);
        Bytes::Single
    }

    /// Makes one packet without the bytes that all receivers share.
    fn make_head(&mut self, publish: &Publish<'_>, shape: Shape, bytes_max: usize) -> Bytes {
        let user_properties = self.user_properties(shape);
        let head = &mut self.buffers.single;
        head.clear();
        let mut sink = Head { bytes: head, user_properties, payload: publish.payload };
        match publish.encode(shape.version(), &mut sink) {
            Ok(len) if len <= bytes_max => {
                self.made = Made { count: 1, payload_bytes: publish.payload.len() as u64, too_large: 0 };
                Bytes::Head { len }
            }
            Ok(_) | Err(_) => {
                self.made = Made { too_large: 1, ..Made::default() };
                Bytes::Head { len: 0 }
            }
        }
    }

    /// How many bytes are to be sent.
    pub(crate) fn len(&self, bytes: Bytes) -> usize {
        match bytes {
            Bytes::Head { len } => len,
            Bytes::AsTheyCame | Bytes::Shaped | Bytes::Single => self.bytes(bytes).len(),
        }
    }

    /// Returns the packets that were made.
    fn bytes(&self, bytes: Bytes) -> &[u8] {
        match (bytes, self.source) {
            (Bytes::AsTheyCame, Source::Run(run)) => run.bytes,
            (Bytes::Single | Bytes::Head { .. }, _) => &self.buffers.single,
            (Bytes::Shaped | Bytes::AsTheyCame, _) => &self.buffers.shaped,
        }
    }

    /// Sends the one packet that was made, with the packet identifier of its receiver.
    pub(crate) fn send_numbered(
        &mut self,
        bytes: Bytes,
        packet_id: PacketId,
        receiver: &Receiver,
        connection: ConnectionId,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let flush = self.flush_of(receiver);
        let is_shared = self.flush == Flush::Bulk && self.is_large(receiver.shape);
        let user_properties = if is_shared { self.user_properties(receiver.shape) } else { &[] };
        // A message with a packet identifier travels alone.
        let payload = self.only.map_or(&[][..], |publish| publish.payload);
        let packet = match bytes {
            Bytes::Single | Bytes::Head { .. } => &mut self.buffers.single,
            Bytes::Shaped | Bytes::AsTheyCame => &mut self.buffers.shaped,
        };
        set_packet_id(packet, packet_id);
        if !is_shared {
            to.publish(connection, packet, flush);
            return;
        }
        let shared = &mut self.shared[usize::from(!user_properties.is_empty())];
        if shared.is_empty() {
            shared.push(self.source.shared_of(user_properties, payload));
        }
        // User Properties and payload come last.
        let head = match bytes {
            Bytes::Head { .. } => &packet[..],
            _ => &packet[..packet.len().saturating_sub(shared[0].len())],
        };
        to.publish_shared(connection, head, &shared[0], flush);
    }

    /// Whether a receiver gets packets of QoS 1 as they came, but for their identifiers.
    pub(crate) fn goes_as_it_came(&self, target: &Target, receiver: &Receiver) -> bool {
        let is_small = |run: Run<'_>| run.bytes.len() <= receiver.bytes_max && !self.source.is_large();
        let is_like = self.source.is_like(receiver.shape) && !receiver.uses_aliases;
        is_like && target.identifiers.is_empty() && matches!(self.source, Source::Run(run) if is_small(run))
    }

    /// Sends those of the packets that get an identifier, and returns how many bytes they were.
    pub(crate) fn send_renumbered(
        &mut self,
        run: Run<'_>,
        begin: &mut dyn FnMut() -> Option<PacketId>,
        receiver: &Receiver,
        connection: ConnectionId,
        to: &mut Outside<'_, impl Effects>,
    ) -> usize {
        let flush = self.flush_of(receiver);
        let single = &mut self.buffers.single;
        single.clear();
        single.extend_from_slice(run.bytes);
        let sent = renumber(single, run.version, begin);
        if sent.count > 0 {
            to.publish(connection, &single[..sent.len], flush);
        }
        let count = u32::try_from(sent.count).unwrap_or(run.count);
        self.made = Made { count, payload_bytes: sent.payload_bytes as u64, ..Made::default() };
        sent.len
    }

    /// The same for one of its packets. It takes the buffers: what was prepared in them is prepared again.
    pub(crate) fn of<'d>(&'d mut self, source: Source<'d>) -> Dispatch<'d> {
        self.shape = None;
        Dispatch::new(source, self.flush, self.now, self.buffers)
    }

    /// With aliases in place of topics that this client has heard.
    fn send_aliased(
        &mut self,
        target: &Target,
        receiver: &Receiver,
        session: &mut Session<Tag>,
        flush: Flush,
        to: &mut Outside<'_, impl Effects>,
    ) -> Room {
        let Receiver { shape, bytes_max, .. } = *receiver;
        let identifiers = as_identifiers(&target.identifiers);
        let identifiers = SubscriptionIdentifiers::from(identifiers.as_slice());
        let mut made = Made::default();
        let (mut room, mut lost) = (Room::Open, false);
        let only = self.only();
        let single = &mut self.buffers.single;
        self.source.for_each_of(only, self.now, |publish| {
            let mut publish = shape.shaped(publish, identifiers);
            let version = shape.version();
            match publish.encoded_len(version) {
                // An alias that is said must be heard: it is given only where nothing refuses the packet.
                Ok(len) if len <= bytes_max => {
                    let fits = to.room(target.connection, len + ALIAS_BYTES) != Room::Full;
                    if let PublishTopic::Name(name) = publish.topic
                        && len + ALIAS_BYTES <= bytes_max
                        && fits
                    {
                        publish.topic = session.outgoing_topic(name);
                    }
                    single.clear();
                    let encoded = publish.encode(version, single).is_ok();
                    debug_assert!(encoded, "it had a length");
                    made.count += 1;
                    made.payload_bytes += publish.payload.len() as u64;
                    room = to.publish(target.connection, single, flush);
                    lost |= room == Room::Full;
                }
                Ok(_) | Err(_) => made.too_large += 1,
            }
        });
        self.made = made;
        if lost { Room::Full } else { room }
    }

    /// Each packet with a head of its own, and User Properties and payload that all receivers share.
    fn send_shared(
        &mut self,
        target: &Target,
        receiver: &Receiver,
        flush: Flush,
        to: &mut Outside<'_, impl Effects>,
    ) -> Room {
        let Receiver { shape, bytes_max, .. } = *receiver;
        let identifiers = as_identifiers(&target.identifiers);
        let identifiers = SubscriptionIdentifiers::from(identifiers.as_slice());
        let (only, user_properties) = (self.only(), self.user_properties(shape));
        let Self { source, now, shared, buffers: Buffers { single: head, .. }, .. } = self;
        let shared = &mut shared[usize::from(!user_properties.is_empty())];
        let mut made = Made::default();
        let (mut room, mut number) = (Room::Open, 0);
        source.for_each_of(only, *now, |publish| {
            if number == shared.len() {
                shared.push(source.shared_of(user_properties, publish.payload));
            }
            let rest = &shared[number];
            number += 1;
            head.clear();
            let publish = shape.shaped(publish, identifiers);
            let mut sink = Head { bytes: head, user_properties, payload: publish.payload };
            match publish.encode(shape.version(), &mut sink) {
                Ok(len) if len <= bytes_max => {
                    made.count += 1;
                    made.payload_bytes += publish.payload.len() as u64;
                    room = to.publish_shared(target.connection, head, rest, flush);
                }
                Ok(_) | Err(_) => made.too_large += 1,
            }
        });
        self.made = made;
        room
    }

    /// The message, if there is only one: packets that travel together have no properties.
    fn only(&mut self) -> Option<Publish<'a>> {
        if self.only.is_none() && self.source.count() == 1 {
            self.only = self.known.copied();
            if self.only.is_none() {
                self.source.for_each(self.now, |publish| self.only = Some(*publish));
            }
        }
        self.only
    }

    /// The encoded User Properties that receivers of this shape get, if they are the last properties of the packet. Only
    /// then do the bytes that all receivers share follow each receiver's own head.
    fn user_properties(&mut self, shape: Shape) -> &'a [u8] {
        let of_5 = self.only().filter(|publish| shape.is_5 && publish.properties.is_as_written());
        of_5.and_then(|publish| publish.properties.user_properties.as_bytes()).unwrap_or_default()
    }

    /// Whether what receivers have in common is worth sharing.
    fn is_large(&mut self, shape: Shape) -> bool {
        self.source.is_large()
            || self.source.may_have_large_properties()
                && self.user_properties(shape).len() as u64 >= SHARED_BYTES
    }

    pub(crate) fn flush_of(&mut self, receiver: &Receiver) -> Flush {
        if self.flush == Flush::Bulk && receiver.publishes && self.direct_left > 0 {
            self.direct_left -= 1;
            return Flush::Direct;
        }
        self.flush
    }

    /// The message in memory of its own, for somebody for whom it has to wait.
    pub(crate) fn message(&mut self, budget: &Arc<Budget>) -> Option<Arc<Message>> {
        if self.message.is_none() {
            let only = self.only();
            self.message = self.source.message(only, (self.now, self.mark.take()), budget);
        }
        self.message.clone()
    }

    fn prepare(&mut self, shape: Shape) {
        if self.shape == Some(shape) {
            return;
        }
        self.shape = Some(shape);
        self.whole = None;
        self.buffers.shaped.clear();
        self.common = match self.source {
            Source::Run(run) if self.source.as_is(shape).is_some() => {
                Made { count: run.count, payload_bytes: run.payload_bytes, ..Made::default() }
            }
            Source::Run(run) if self.source.is_like(shape) => {
                self.buffers.shaped.extend_from_slice(run.bytes);
                self.buffers.shaped[0] &= !(DUP | RETAIN);
                Made { count: 1, payload_bytes: run.payload_bytes, ..Made::default() }
            }
            source => {
                let form = Form { shape, identifiers: SubscriptionIdentifiers::EMPTY, bytes_max: usize::MAX };
                let only = self.only();
                source.encode_with(only, form, self.now, &mut self.buffers.shaped)
            }
        };
    }
}

/// The form of the packets for one receiver.
#[derive(Clone, Copy)]
pub(crate) struct Form<'a> {
    pub(crate) shape: Shape,
    pub(crate) identifiers: SubscriptionIdentifiers<'a>,
    /// Larger packets are left out, and counted.
    pub(crate) bytes_max: usize,
}

impl<'a> Source<'a> {
    pub(crate) fn count(self) -> u32 {
        match self {
            Self::Run(run) => run.count,
            Self::Message { .. } => 1,
        }
    }

    /// Returns the QoS of the publication.
    pub(crate) fn qos(self) -> Qos {
        match self {
            Self::Run(run) => run.qos,
            Self::Message { message, .. } => message.qos(),
        }
    }

    /// Whether its payloads are worth sharing.
    fn is_large(self) -> bool {
        match self {
            Self::Run(run) => run.payload_bytes >= SHARED_BYTES * u64::from(run.count),
            Self::Message { message, .. } => message.payload().len() as u64 >= SHARED_BYTES,
        }
    }

    /// Whether it is worth looking.
    fn may_have_large_properties(self) -> bool {
        match self {
            Self::Run(run) => run.count == 1 && run.bytes.len() as u64 >= run.payload_bytes + SHARED_BYTES,
            Self::Message { message, .. } => message.size_bytes() as u64 >= SHARED_BYTES,
        }
    }

    /// The packets, if receivers of this shape get them as they came.
    fn as_is(self, shape: Shape) -> Option<&'a [u8]> {
        match self {
            Self::Run(run)
                if run.version.is_5() == shape.is_5
                    && run.qos == Qos::AtMostOnce
                    && shape.qos == Qos::AtMostOnce
                    && !shape.retain
                    && shape.cut == 0 =>
            {
                Some(run.bytes)
            }
            Self::Run(_) | Self::Message { .. } => None,
        }
    }

    /// Whether receivers of this shape get the one packet as it came, but for its identifier and flags.
    fn is_like(self, shape: Shape) -> bool {
        matches!(self, Self::Run(run) if run.version.is_5() == shape.is_5
            && run.qos == shape.qos
            && run.qos > Qos::AtMostOnce
            && !shape.retain
            && shape.cut == 0)
    }

    /// Appends the packets for one receiver.
    pub(crate) fn encode(self, form: Form<'_>, now: Now, buffer: &mut Vec<u8>) -> Made {
        self.encode_with(None, form, now, buffer)
    }

    /// The same, if the only message was taken apart before.
    fn encode_with(self, only: Option<Publish<'a>>, form: Form<'_>, now: Now, buffer: &mut Vec<u8>) -> Made {
        let Form { shape, identifiers, bytes_max } = form;
        let mut made = Made::default();
        let version = shape.version();
        self.for_each_of(only, now, |publish| {
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

    /// Copies the User Properties and the payload of a message once for all receivers. They stand side by side in most
    /// packets.
    fn shared_of(self, user_properties: &[u8], payload: &[u8]) -> Arc<[u8]> {
        if user_properties.is_empty() {
            return payload.into();
        }
        if let Self::Run(Run { bytes, count: 1, .. }) = self
            && let Some(at) = bytes.len().checked_sub(user_properties.len() + payload.len())
            && std::ptr::eq(bytes[at..].as_ptr(), user_properties.as_ptr())
        {
            return bytes[at..].into();
        }
        [user_properties, payload].concat().into()
    }

    /// The first of them, in memory of its own.
    fn message(
        self,
        only: Option<Publish<'a>>,
        (now, mark): (Now, Option<Arc<SpanMark>>),
        budget: &Arc<Budget>,
    ) -> Option<Arc<Message>> {
        match self {
            Self::Message { message, .. } => Some(Arc::clone(message)),
            Self::Run(_) => {
                let mut made = None;
                self.for_each_of(only, now, |publish| {
                    let topic: Option<TopicName<'_>> = publish.topic.name();
                    let message = topic.map(|topic| Message::new(topic, publish, None, now));
                    let message = message.map(|message| message.with_span(mark.clone()));
                    made = message.map(|message| Arc::new(message.charged_to(budget)));
                });
                made
            }
        }
    }

    /// Each message, as a PUBLISH; the only one as it was taken apart before.
    fn for_each_of(self, only: Option<Publish<'a>>, now: Now, mut each: impl FnMut(&Publish<'a>)) {
        match only {
            Some(publish) => each(&publish),
            None => self.for_each(now, each),
        }
    }

    /// Each message, as a PUBLISH. None of them has waited: whatever has was looked at before.
    pub(crate) fn for_each(self, now: Now, mut each: impl FnMut(&Publish<'a>)) {
        match self {
            Self::Message { message, .. } => each(&message.publish(now)),
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

pub(crate) fn as_identifiers(numbers: &[NonZeroU32]) -> Vec<SubscriptionIdentifier> {
    numbers.iter().filter_map(|number| SubscriptionIdentifier::new(number.get())).collect()
}
