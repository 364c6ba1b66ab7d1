//! Spans of single messages: when they were published, and when each receiver has acknowledged its copy.
//!
//! ```text
//! PUBLISH ─► draw ─► mark ─┬─► copies of this shard ────────────────────► open ─► acknowledged ─► sink
//!                          ├─► Mail::Marked ─► copies of another shard ─► open ─► acknowledged ─► sink
//!                          └─► Message::span ─► windows, queues, ledger ─► open ─► acknowledged ─► sink
//! ```
//!
//! Without settings for spans nothing of this happens: each place has one branch to take.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use base::{ConnectionId, Fate, Span, SpanIdentifiers, SpanKind, SpanMark, SpanSettings, Ticket};
use session::{Incoming, Waiting};
use wire::{PacketId, Qos, ReasonCode};

use crate::Shard;
use crate::client::{Client, Tag};
use crate::encode::Source;
use crate::fates::ShardFates;

/// The direction of a PUBLISH between a client and the broker. Each has packet identifiers of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    FromClient,
    ToClient,
}

/// The exchange whose end is the end of a span.
type Exchange = (ConnectionId, Way, PacketId);

/// The spans of one shard.
#[derive(Debug)]
pub(crate) struct Spans {
    settings: SpanSettings,
    /// The number of messages up to the next one that is drawn.
    left: u32,
    /// The mark of the packets that are delivered now.
    mark: Option<Arc<SpanMark>>,
    /// The span of the PUBLISH of QoS 0 that is taken in now.
    publication: Option<Span>,
    open: BTreeMap<Exchange, Span>,
}

/// The receiver of a copy.
#[derive(Clone, Copy)]
pub(crate) struct SpanReceiver<'a> {
    pub(crate) client_id: &'a Arc<str>,
    pub(crate) connection: ConnectionId,
    /// Its packet identifier on the way to the client. `None` at QoS 0, and for a copy that does not leave.
    pub(crate) packet_id: Option<PacketId>,
    pub(crate) qos: Qos,
}

impl Spans {
    pub(crate) fn new(settings: SpanSettings) -> Self {
        let mut spans = Self { settings, left: 0, mark: None, publication: None, open: BTreeMap::new() };
        spans.left = spans.gap();
        spans
    }

    /// The number of messages up to the next one that is drawn. It is random, with the mean that the settings give: what is
    /// published in turn is drawn as often as anything else.
    fn gap(&self) -> u32 {
        let mean = u64::from(self.settings.one_of.map_or(u32::MAX, NonZeroU32::get));
        let gap = 1 + self.settings.sink.identifier() % (2 * mean - 1);
        u32::try_from(gap).unwrap_or(u32::MAX)
    }

    /// Whether a PUBLISH has spans, and the span of its publisher.
    fn draw(&mut self, publish: &Incoming<'_>) -> Option<Option<SpanIdentifiers>> {
        let properties = &publish.packet.properties;
        if self.settings.by_property
            && !properties.user_properties.is_empty()
            && let Some((parent, is_recorded)) = SpanIdentifiers::of_publisher(properties)
        {
            // Whoever has begun the trace has decided for all that belong to it.
            return is_recorded.then_some(Some(parent));
        }
        self.settings.one_of?;
        if self.left > 1 {
            self.left -= 1;
            return None;
        }
        self.left = self.gap();
        Some(None)
    }

    /// Further messages that were read together with one that was not drawn are not drawn either.
    pub(crate) fn pass(&mut self, messages: u32) {
        self.left = self.left.saturating_sub(messages).max(1);
    }

    /// A mark for a message, in the trace of its publisher or in one of its own.
    fn mark_for(&self, publish: &Incoming<'_>, parent: Option<SpanIdentifiers>) -> Arc<SpanMark> {
        let sink = &self.settings.sink;
        let new_trace = || u128::from(sink.identifier()) << 64 | u128::from(sink.identifier());
        let trace = parent.map_or_else(new_trace, |parent| parent.trace);
        let topic = publish.topic().as_str();
        Arc::new(SpanMark {
            identifiers: SpanIdentifiers { trace, span: sink.identifier() },
            start_unix_ns: sink.unix_ns(),
            topic: topic[..topic.floor_char_boundary(SpanMark::TOPIC_BYTES_MAX)].into(),
            payload_bytes: publish.packet.payload.len(),
        })
    }

    /// Whether a span may wait for the end of this exchange. Otherwise it is counted as dropped.
    fn has_room(&self, exchange: &Exchange) -> bool {
        let has_room = self.open.len() < self.settings.open_max || self.open.contains_key(exchange);
        if !has_room {
            self.settings.sink.dropped();
        }
        has_room
    }

    fn open(&mut self, exchange: Exchange, span: Span) {
        if let Some(before) = self.open.insert(exchange, span) {
            self.end(before, None);
        }
    }

    fn end(&self, span: Span, fate: Option<Fate>) {
        let end_unix_ns = self.settings.sink.unix_ns().max(span.mark.start_unix_ns);
        self.settings.sink.ended(Span { end_unix_ns, fate, ..span });
    }

    fn end_exchange(&mut self, exchange: Exchange, fate: Option<Fate>) {
        if let Some(span) = self.open.remove(&exchange) {
            self.end(span, fate);
        }
    }

    /// Notes the fate of a copy with a mark. One that waits has no span yet.
    pub(crate) fn copy(&mut self, mark: &Arc<SpanMark>, to: SpanReceiver<'_>, fate: &Fate) {
        let SpanReceiver { client_id, connection, packet_id, qos } = to;
        let under_way = packet_id.filter(|_| *fate == Fate::Sent);
        let exchange = under_way.map(|packet_id| (connection, Way::ToClient, packet_id));
        let is_waiting = matches!(fate, Fate::Queued | Fate::Waits);
        // Before the span is made: one message may have many receivers.
        if is_waiting || exchange.is_some_and(|exchange| !self.has_room(&exchange)) {
            return;
        }
        let span = Span {
            mark: Arc::clone(mark),
            identifier: self.settings.sink.identifier(),
            parent: Some(mark.identifiers.span),
            kind: SpanKind::Deliver,
            end_unix_ns: mark.start_unix_ns,
            client_id: Arc::clone(client_id),
            qos,
            fate: None,
        };
        match exchange {
            Some(exchange) => self.open(exchange, span),
            None => self.end(span, Some(fate.clone())),
        }
    }
}

impl Shard {
    /// Records spans of messages from now on.
    #[must_use]
    pub fn with_spans(mut self, settings: SpanSettings) -> Self {
        self.fates.spans = Some(Box::new(Spans::new(settings)));
        self
    }

    /// Looks whether a PUBLISH has spans. Then the span of the PUBLISH begins, and its message has a mark from now on, until
    /// [`end_publication`](Self::end_publication).
    #[inline]
    pub(crate) fn begin_publication(&mut self, id: ConnectionId, publish: &Incoming<'_>) -> bool {
        self.fates.spans.is_some() && self.begin_drawn(id, publish)
    }

    fn begin_drawn(&mut self, id: ConnectionId, publish: &Incoming<'_>) -> bool {
        let Some(spans) = &mut self.fates.spans else { return false };
        let Some(parent) = spans.draw(publish) else { return false };
        let own = self.clients.get(id).and_then(|client| client.subscriber.as_ref());
        let Some(client_id) = own.map(|own| &own.client_id) else { return false };
        let mark = spans.mark_for(publish, parent);
        let span = Span {
            identifier: mark.identifiers.span,
            parent: parent.map(|parent| parent.span),
            kind: SpanKind::Publish,
            end_unix_ns: mark.start_unix_ns,
            client_id: Arc::clone(client_id),
            qos: publish.packet.delivery.qos(),
            fate: None,
            mark: Arc::clone(&mark),
        };
        spans.mark = Some(mark);
        match publish.packet.delivery.packet_id().map(|packet_id| (id, Way::FromClient, packet_id)) {
            Some(exchange) if spans.has_room(&exchange) => spans.open(exchange, span),
            Some(_) => {}
            None => spans.publication = Some(span),
        }
        true
    }

    /// A PUBLISH was taken in. At QoS 0, this is the end of its span.
    pub(crate) fn end_publication(&mut self) {
        let Some(spans) = &mut self.fates.spans else { return };
        spans.mark = None;
        if let Some(span) = spans.publication.take() {
            let fate = span.fate.clone().unwrap_or(Fate::Sent);
            spans.end(span, Some(fate));
        }
    }

    /// A PUBLISH is answered with this reason code, or at QoS 0 would be.
    #[inline]
    pub(crate) fn span_answered(&mut self, id: ConnectionId, ticket: Option<Ticket>, reason: ReasonCode) {
        let Some(spans) = &mut self.fates.spans else { return };
        match ticket {
            Some(Ticket::PubAck(packet_id) | Ticket::PubRec(packet_id)) => {
                spans.end_exchange((id, Way::FromClient, packet_id), Some(Fate::answered(reason)));
            }
            Some(Ticket::PubRel(_) | Ticket::PubComp(_)) => {}
            None if reason.is_error() => {
                spans.publication.iter_mut().for_each(|span| span.fate = Some(Fate::Refused(reason)));
            }
            None => {}
        }
    }

    /// A connection is over, and with it the spans of what was not answered.
    pub(crate) fn end_spans_of(&mut self, id: ConnectionId) {
        let Some(spans) = &mut self.fates.spans else { return };
        let all = (id, Way::FromClient, PacketId::MIN)..=(id, Way::ToClient, PacketId::MAX);
        let exchanges: Vec<Exchange> = spans.open.range(all).map(|(exchange, _)| *exchange).collect();
        exchanges.into_iter().for_each(|exchange| spans.end_exchange(exchange, None));
    }

    /// Further packets were read together with one that is not drawn.
    #[inline]
    pub(crate) fn pass_drawing(&mut self, packets: u32) {
        if let Some(spans) = &mut self.fates.spans {
            spans.pass(packets);
        }
    }

    /// The mark of the PUBLISH that is taken in.
    #[inline]
    pub(crate) fn mark(&self) -> Option<Arc<SpanMark>> {
        self.fates.spans.as_ref()?.mark.clone()
    }

    /// The packets that come next have this mark, or none.
    #[inline]
    pub(crate) fn set_mark(&mut self, mark: Option<Arc<SpanMark>>) {
        if let Some(spans) = &mut self.fates.spans {
            spans.mark = mark;
        }
    }
}

impl ShardFates {
    /// The mark of the messages of a delivery.
    #[inline]
    pub(crate) fn mark_of(&self, source: Source<'_>) -> Option<Arc<SpanMark>> {
        let spans = self.spans.as_ref()?;
        match source {
            Source::Run(_) => spans.mark.clone(),
            Source::Message { message, .. } => message.span().cloned(),
        }
    }

    /// Notes the fate of a copy that has waited, or was to wait. One with RETAIN 1 has no span: most of these come with a
    /// subscription, and may have been published long ago.
    pub(crate) fn span_waiting(
        &mut self,
        (connection, client, packet_id): (ConnectionId, Option<&Client>, Option<PacketId>),
        waiting: &Waiting<Tag>,
        fate: &Fate,
    ) {
        let Some(mark) = waiting.message.span().filter(|_| !waiting.retain) else { return };
        let (Some(spans), Some(own)) =
            (&mut self.spans, client.and_then(|client| client.subscriber.as_ref()))
        else {
            return;
        };
        let to = SpanReceiver { client_id: &own.client_id, connection, packet_id, qos: waiting.qos };
        spans.copy(mark, to, fate);
    }

    /// The client has answered its copy, to the end or with PUBREC.
    pub(crate) fn end_span(&mut self, id: ConnectionId, packet_id: PacketId, fate: &Fate) {
        if let Some(spans) = self.spans.as_mut().filter(|_| !fate.is_open()) {
            spans.end_exchange((id, Way::ToClient, packet_id), Some(fate.clone()));
        }
    }
}
