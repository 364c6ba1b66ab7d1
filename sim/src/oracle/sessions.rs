//! The sessions of clients, as clients know them, and what they have subscribed to.

use std::collections::{BTreeMap, BTreeSet};

use wire::{Qos, RetainHandling};

use super::{MessageNo, Oracle, Tick};

/// One session of the run. A client that begins anew has another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SessionNo(pub(super) usize);

/// One SUBSCRIBE of one filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SpanNo(pub(super) usize);

#[derive(Debug)]
pub(super) struct Session {
    pub(super) client: usize,
    pub(super) lasts: bool,
    pub(super) packet_bytes_max: usize,
    /// When its client has ended it, or has found that it has ended.
    ended: Option<Tick>,
    /// When its client knows that it is over for the broker too, which may not find out before for a long time.
    gone: Option<Tick>,
    pub(super) spans: Vec<Span>,
    /// How often each message was taken, by its number and the QoS, and at last at QoS 1 with DUP.
    receipts: Vec<[u8; 4]>,
    /// The last message that was new, by publisher, topic, and the QoS that it was published and delivered with.
    pub(super) last: BTreeMap<(usize, usize, Qos, Qos), MessageNo>,
    /// Topics of messages that an operator has discarded from its queue, in processes that have ended. The messages may wait again.
    pub(super) discarded_before: BTreeSet<usize>,
    /// The last value of each topic, by topic.
    pub(super) values: BTreeMap<usize, Value>,
}

/// The last that a session has seen of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    /// `None`: it was told that there is no value any more.
    pub(super) message: Option<MessageNo>,
    /// All that came had the same QoS, so that it came in order.
    pub(super) qos: Option<Qos>,
}

/// One subscription of a SUBSCRIBE packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) filter: usize,
    pub(crate) qos: Qos,
    pub(crate) no_local: bool,
    pub(crate) retain_handling: RetainHandling,
    pub(crate) identifier: Option<u32>,
}

/// A subscription from its SUBSCRIBE to its end. There may be a time at either end in which nobody knows whether the
/// broker has it.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) wish: Wish,
    pub(super) is_shared: bool,
    pub(super) confirmed: Option<Tick>,
    pub(super) end_asked: Option<Tick>,
    pub(super) end_confirmed: Option<Tick>,
}

impl Session {
    pub(super) fn receipts_of(&self, no: MessageNo) -> u8 {
        self.receipts.get(no.0 as usize).map_or(0, |by_qos| by_qos.iter().sum())
    }

    /// Without those at QoS 1 that were sent again: any number of these may come of one.
    pub(super) fn receipts_with(&self, no: MessageNo, qos: Qos) -> u8 {
        self.receipts.get(no.0 as usize).map_or(0, |by_qos| by_qos[usize::from(qos.level())])
    }

    pub(super) fn take(&mut self, no: MessageNo, qos: Qos, dup: bool) {
        let place = no.0 as usize;
        if place >= self.receipts.len() {
            self.receipts.resize(place + 1, [0; 4]);
        }
        let is_again = dup && qos == Qos::AtLeastOnce;
        let count = &mut self.receipts[place][if is_again { 3 } else { usize::from(qos.level()) }];
        // Four of them fit the sum.
        *count = (*count + 1).min(60);
    }

    pub(super) fn taken(&self) -> usize {
        self.receipts.iter().flatten().map(|count| usize::from(*count)).sum()
    }

    /// Whether it may have ended with a message of this age, or a later one, that the broker had given it.
    pub(super) fn may_have_ended_with(&self, published: Tick) -> bool {
        self.ended.is_some() && self.gone.is_none_or(|gone| gone >= published)
    }

    /// Whether a shared subscription of it may ever have matched.
    pub(super) fn shares(&self, matches: impl Fn(usize) -> bool) -> bool {
        self.spans.iter().any(|span| span.is_shared && matches(span.wish.filter))
    }
}

impl Span {
    /// Whether the broker may have had it when a message of this age was published, or later.
    pub(super) fn may_cover(&self, published: Tick) -> bool {
        self.end_confirmed.is_none_or(|end| end >= published)
    }

    /// Whether the broker must have had it all the time.
    pub(super) fn surely_covers(&self, from: Tick, to: Tick) -> bool {
        self.confirmed.is_some_and(|confirmed| confirmed < from) && self.end_asked.is_none_or(|end| end > to)
    }
}

impl Oracle {
    /// CONNACK: a session has begun.
    pub(crate) fn session_began(&mut self, client: usize, lasts: bool, packet_bytes_max: usize) -> SessionNo {
        let tick = self.next_tick();
        let before = self.sessions.iter_mut().filter(|session| session.client == client);
        for session in before.filter(|session| session.ended.is_some()) {
            session.gone.get_or_insert(tick);
        }
        self.sessions.push(Session {
            client,
            lasts,
            packet_bytes_max,
            ended: None,
            gone: None,
            spans: Vec::new(),
            receipts: Vec::new(),
            last: BTreeMap::new(),
            discarded_before: BTreeSet::new(),
            values: BTreeMap::new(),
        });
        SessionNo(self.sessions.len() - 1)
    }

    /// The client has ended its session, or knows that it has ended.
    pub(crate) fn session_ended(&mut self, session: SessionNo) {
        let tick = self.next_tick();
        self.sessions[session.0].ended.get_or_insert(tick);
    }

    /// SUBSCRIBE has been sent.
    pub(crate) fn subscribing(&mut self, session: SessionNo, wish: Wish) -> SpanNo {
        let asked = self.next_tick();
        let is_shared = self.is_shared[wish.filter];
        let spans = &mut self.sessions[session.0].spans;
        for old in spans.iter_mut().filter(|old| old.wish.filter == wish.filter) {
            old.end_asked.get_or_insert(asked);
        }
        spans.push(Span { wish, is_shared, confirmed: None, end_asked: None, end_confirmed: None });
        SpanNo(spans.len() - 1)
    }

    /// SUBACK has arrived for a subscription.
    pub(crate) fn subscribed(&mut self, session: SessionNo, no: SpanNo, granted: Option<Qos>) {
        let tick = self.next_tick();
        let spans = &mut self.sessions[session.0].spans;
        let Some(granted) = granted else {
            spans[no.0].end_confirmed = Some(tick);
            return;
        };
        let (before, this) = spans.split_at_mut(no.0);
        for old in before.iter_mut().filter(|old| old.wish.filter == this[0].wish.filter) {
            old.end_confirmed.get_or_insert(tick);
        }
        this[0].confirmed = Some(tick);
        let asked = this[0].wish.qos;
        if granted != asked {
            let filter = self.filters[self.sessions[session.0].spans[no.0].wish.filter].clone();
            self.fail(format!("a subscription to {filter} was granted {granted:?} in place of {asked:?}"));
        }
    }

    /// UNSUBSCRIBE has been sent.
    pub(crate) fn unsubscribing(&mut self, session: SessionNo, filter: usize) -> SpanNo {
        let tick = self.next_tick();
        let spans = &mut self.sessions[session.0].spans;
        for span in spans.iter_mut().filter(|span| span.wish.filter == filter) {
            span.end_asked.get_or_insert(tick);
        }
        SpanNo(spans.len())
    }

    /// UNSUBACK has come for an UNSUBSCRIBE that ended all spans of a filter before this one.
    pub(crate) fn unsubscribed(&mut self, session: SessionNo, before: SpanNo, filter: usize) {
        let tick = self.next_tick();
        let spans = &mut self.sessions[session.0].spans;
        for span in spans[..before.0].iter_mut().filter(|span| span.wish.filter == filter) {
            span.end_confirmed.get_or_insert(tick);
        }
    }
}
