//! Which stream a message goes to.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use session::client::Receipt;
use tokio::time::Instant;
use topic::{TopicFilter, TopicFilterBuf, TopicName};
use wire::{Qos, SubscriptionIdentifier, SubscriptionOptions};

use crate::message::{Message, Owed};
use crate::outlet::{Inlet, Outlet, Room};
use crate::owned::OwnedSubscribe;

/// So long does a message wait for somebody who takes it, where others wait behind it: then it is accepted, and gone. If
/// the connection ends before, it comes again on the next one.
pub(crate) const KEPT: Duration = Duration::from_secs(10);

/// So many messages wait for that: as many as a server can have unacknowledged, unless it repeats itself.
const UNCLAIMED_MAX: usize = u16::MAX as usize;

/// The client's own Subscription Identifiers are larger than this, and those of applications, which begin at 1, rarely are.
/// They take two bytes, up to 16,383.
const OWN_IDENTIFIERS: u32 = 8_191;

/// The subscriptions of a client, and the messages that are on their way to them.
#[derive(Debug)]
pub(crate) struct Routes {
    routes: Vec<Route>,
    /// Takes what no route does.
    inbox: Option<Outlet>,
    /// Whose messages are meant for it.
    inbox_subscriptions: Vec<ForInbox>,
    /// Streams that end, behind what they hold.
    ending: Vec<Outlet>,
    /// Messages of a session that was there before its subscriptions, or of streams that nobody reads: whoever
    /// subscribes to them gets them. With when they were left.
    unclaimed: VecDeque<(Instant, Message)>,
    /// When the first stream was asked for, or since then the last connection began. Before that, nothing can wait behind
    /// what is unclaimed.
    claimed: Option<Instant>,
    bounds: Bounds,
    /// So many messages wait in all streams for room.
    held: usize,
    /// An answer is waited for behind messages that nobody takes: they are read past.
    is_passing: bool,
    /// Something was delivered since the last [`flush`](Self::flush).
    is_dirty: bool,
    next_identifier: u32,
    /// Of the last subscription that was asked for.
    number: Number,
}

/// Tells subscriptions of one filter apart, in the order in which they were asked for.
pub(crate) type Number = u64;

/// What there is room for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// So many messages wait behind streams that are full, before nothing more may come.
    pub(crate) held_max: usize,
    /// At QoS 0 a message does not wait behind a full stream: it is thrown away.
    pub(crate) drops_when_full: bool,
}

/// One subscription with a stream of its own.
#[derive(Debug)]
pub(crate) struct Route {
    number: Number,
    filter: TopicFilterBuf,
    options: SubscriptionOptions,
    identifier: Option<SubscriptionIdentifier>,
    outlet: Outlet,
    stage: Stage,
    /// Its messages are accepted as they come, and there is never more than it has room for: answers, of which nobody may
    /// take those that come too late.
    is_for_answers: bool,
    /// The server's session has it, as far as we know.
    is_known: bool,
    /// Of the message that is being delivered.
    aim: Aim,
}

/// Subscriptions of one packet, whose messages come in the inbox.
#[derive(Debug)]
struct ForInbox {
    number: Number,
    subscribe: OwnedSubscribe,
    /// As with a [`Route`].
    is_known: bool,
}

impl ForInbox {
    /// The server says that a message is for this subscription, which matches.
    fn is_named(&self, message: &Message) -> bool {
        let identifier = self.subscribe.identifier;
        identifier.is_some_and(|own| message.subscription_identifiers().contains(&own))
            && self.subscribe.filters().any(|filter| filter.filter().matches(message.topic()))
    }
}

/// What a message is to a route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Aim {
    #[default]
    Misses,
    Matches,
    /// The server says that it is for this subscription, which matches.
    Named,
}

impl Route {
    /// The route of a SUBSCRIBE that is being sent.
    pub(crate) fn asked(
        number: Number,
        filter: &TopicFilterBuf,
        options: SubscriptionOptions,
        identifier: Option<SubscriptionIdentifier>,
        outlet: Outlet,
    ) -> Self {
        let (filter, stage) = (filter.clone(), Stage::Asked(Vec::new()));
        let (is_known, aim) = (true, Aim::default());
        let is_for_answers = false;
        Self { number, filter, options, identifier, outlet, stage, is_for_answers, is_known, aim }
    }

    pub(crate) fn for_answers(self, is_for_answers: bool) -> Self {
        Self { is_for_answers, ..self }
    }

    /// The message, as it goes into the stream, and whether it stays: then it may not come again.
    fn keep(&mut self, message: Message) -> (Message, bool) {
        let stays = self.stage.keeps(&message);
        (if self.is_for_answers { message.accepted() } else { message }, stays)
    }
}

/// ```text
///                         SUBACK
///  SUBSCRIBE ──► Asked ───────────► Granted
///                  └─── refused, or the connection is lost: the stream was never there
/// ```
#[derive(Debug)]
enum Stage {
    /// What has come with QoS 2 is accepted when there is an answer: if it is another one, it is to come again.
    Asked(Vec<Arc<Owed>>),
    Granted,
}

impl Stage {
    /// Takes a message, and tells whether it stays: then it may not come again.
    fn keeps(&mut self, message: &Message) -> bool {
        match self {
            Self::Asked(receipts) => {
                receipts.extend(message.owed_at_once());
                false
            }
            Self::Granted => true,
        }
    }
}

impl Routes {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            routes: Vec::new(),
            inbox: None,
            inbox_subscriptions: Vec::new(),
            ending: Vec::new(),
            unclaimed: VecDeque::new(),
            claimed: None,
            bounds,
            held: 0,
            is_passing: false,
            is_dirty: false,
            next_identifier: OWN_IDENTIFIERS,
            number: 0,
        }
    }

    /// Whether a stream takes the messages of this filter.
    pub(crate) fn contains(&self, filter: TopicFilter<'_>) -> bool {
        self.routes.iter().any(|route| route.filter.filter() == filter && !route.outlet.is_closed())
    }

    /// An identifier that no stream of this client has, and nothing that is meant for the inbox. After 2^28 of them there is
    /// none, and filters alone tell.
    pub(crate) fn new_identifier(&mut self) -> Option<SubscriptionIdentifier> {
        loop {
            self.next_identifier = self.next_identifier.saturating_add(1);
            let identifier = SubscriptionIdentifier::new(self.next_identifier)?;
            if self.inbox_subscriptions.iter().all(|own| own.subscribe.identifier != Some(identifier)) {
                return Some(identifier);
            }
        }
    }

    /// The number of what is asked for now.
    pub(crate) fn new_number(&mut self) -> Number {
        self.number += 1;
        self.number
    }

    /// What belongs to no route goes there from now on, and what nobody has claimed. Returns what of it is to be accepted
    /// at once.
    pub(crate) fn set_inbox(&mut self, mut outlet: Outlet) -> Vec<Receipt> {
        self.claimed.get_or_insert_with(Instant::now);
        let mut receipts = Vec::new();
        for (_, message) in std::mem::take(&mut self.unclaimed) {
            receipts.extend(message.owed_at_once().and_then(|owed| owed.claim()));
            outlet.hold(message);
        }
        self.held += outlet.held();
        self.ending.extend(self.inbox.replace(outlet));
        self.flush();
        receipts
    }

    /// The server has granted these to the inbox.
    pub(crate) fn insert_for_inbox(&mut self, number: Number, subscribe: OwnedSubscribe) {
        for filter in subscribe.filters() {
            let is_other = |own: &mut ForInbox| own.subscribe.retain_other(filter.filter());
            self.inbox_subscriptions.retain_mut(|own| own.number >= number || is_other(own));
        }
        self.inbox_subscriptions.push(ForInbox { number, subscribe, is_known: true });
    }

    /// Messages that match go to this stream from now on, and those that nobody has claimed.
    pub(crate) fn insert(&mut self, mut route: Route) {
        self.remove(route.filter.filter(), route.number);
        self.claimed.get_or_insert_with(Instant::now);
        for (since, message) in std::mem::take(&mut self.unclaimed) {
            if route.filter.filter().matches(message.topic()) {
                let (message, _) = route.keep(message);
                route.outlet.hold(message);
            } else {
                self.unclaimed.push_back((since, message));
            }
        }
        self.held += route.outlet.held();
        self.routes.push(route);
        self.flush();
    }

    /// The server has granted this stream. Returns what of it is to be accepted at once.
    pub(crate) fn grant(&mut self, number: Number) -> Vec<Receipt> {
        let granted = self.routes.iter_mut().filter(|route| route.number == number);
        let stages = granted.map(|route| std::mem::replace(&mut route.stage, Stage::Granted));
        stages
            .flat_map(|stage| if let Stage::Asked(owed) = stage { owed } else { Vec::new() })
            .filter_map(|owed| owed.claim())
            .collect()
    }

    /// Nobody has this stream after all: what came for it alone is for whoever wants it.
    pub(crate) fn put_back(&mut self, number: Number, mut inlet: Inlet) {
        self.flush();
        let mut route = self.routes.iter_mut().find(|route| route.number == number);
        if let Some(route) = &mut route {
            route.stage = Stage::Granted;
        }
        let held = route.map(|route| route.outlet.take_held()).unwrap_or_default();
        self.held -= held.len();
        let sent = std::iter::from_fn(|| inlet.try_next());
        let (free, others): (Vec<_>, Vec<_>) = sent.chain(held).partition(Message::is_free);
        others.into_iter().for_each(Message::renounce);
        self.unclaimed.extend(free.into_iter().map(|message| (Instant::now(), message)));
    }

    /// When there is something to [`give_up`](Self::give_up).
    pub(crate) fn give_up_due(&self) -> Option<Instant> {
        let (since, _) = self.unclaimed.front()?;
        Some((*since).max(self.claimed?) + KEPT)
    }

    /// Returns what is to be accepted since nobody has claimed it in time.
    pub(crate) fn give_up(&mut self) -> Vec<Receipt> {
        let now = Instant::now();
        let mut receipts = Vec::new();
        while self.give_up_due().is_some_and(|due| due <= now) {
            receipts.extend(self.unclaimed.pop_front().and_then(|(_, message)| message.receipt()));
        }
        receipts
    }

    /// A connection has begun: whoever asks again for what was lost with the last one has the time of who asks first.
    pub(crate) fn begin_connection(&mut self) {
        self.claimed = self.claimed.map(|_| Instant::now());
    }

    /// The server has begun a new session, in which there is no subscription.
    pub(crate) fn session_is_new(&mut self) {
        self.routes.iter_mut().for_each(|route| route.is_known = false);
        self.inbox_subscriptions.iter_mut().for_each(|own| own.is_known = false);
    }

    /// What the server is to be told of: streams that somebody reads, and what is meant for the inbox.
    pub(crate) fn unknown(&self) -> Vec<(Number, OwnedSubscribe)> {
        let read = self.routes.iter().filter(|route| !route.is_known && !route.outlet.is_closed());
        let own = read
            .map(|route| (route.number, OwnedSubscribe::one(&route.filter, route.options, route.identifier)));
        let for_inbox = self.inbox_subscriptions.iter().filter(|own| !own.is_known);
        own.chain(for_inbox.map(|own| (own.number, own.subscribe.clone()))).collect()
    }

    /// The server has answered what it was told anew.
    pub(crate) fn know(&mut self, number: Number) {
        let routes = self.routes.iter_mut().filter(|route| route.number == number);
        routes.for_each(|route| route.is_known = true);
        let for_inbox = self.inbox_subscriptions.iter_mut().filter(|own| own.number == number);
        for_inbox.for_each(|own| own.is_known = true);
    }

    /// What nobody has claimed is not acknowledged, and comes again on the next connection.
    pub(crate) fn forget_unclaimed(&mut self) {
        self.unclaimed.clear();
    }

    /// This filter is not subscribed to any more, as far as that was asked for before `number`: its stream ends, behind
    /// what has come.
    pub(crate) fn remove(&mut self, filter: TopicFilter<'_>, number: Number) {
        self.end(|route| route.number < number && route.filter.filter() == filter);
        self.inbox_subscriptions.retain_mut(|own| own.number >= number || own.subscribe.retain_other(filter));
    }

    /// One of several subscriptions to this filter is not there.
    pub(crate) fn remove_one(&mut self, number: Number, filter: TopicFilter<'_>) {
        self.end(|route| route.number == number);
        self.inbox_subscriptions.retain_mut(|own| own.number != number || own.subscribe.retain_other(filter));
    }

    fn end(&mut self, is_over: impl Fn(&Route) -> bool) {
        let ended = self.routes.extract_if(.., |route| is_over(route));
        self.ending.extend(ended.map(|route| route.outlet).filter(|outlet| outlet.held() > 0));
    }

    /// Hands a message to the streams it is for, which it reaches with the next [`flush`](Self::flush), and returns what
    /// is to be accepted at once. Where the server names subscriptions, it is for those, as far as they match: the
    /// identifiers of a session that was there before may be those of other filters. If all of them are meant for the
    /// inbox, so is the message, though streams may match. A stream that nobody reads is for nothing. `topic` is the
    /// message's, which would have to be read anew.
    pub(crate) fn deliver(&mut self, message: Message, topic: TopicName<'_>) -> Option<Receipt> {
        self.is_dirty = true;
        let identifiers = message.subscription_identifiers();
        let (mut has_name, mut has_unread) = (false, false);
        for route in &mut self.routes {
            let is_match = route.filter.filter().matches(topic);
            let matches = is_match && !route.outlet.is_closed();
            if is_match && !matches {
                has_unread |= route.outlet.unread_for() < KEPT;
            }
            let is_named = || route.identifier.is_some_and(|own| identifiers.contains(&own));
            route.aim = match (matches, matches && is_named()) {
                (_, true) => Aim::Named,
                (true, false) => Aim::Matches,
                (false, false) => Aim::Misses,
            };
            has_name |= route.aim == Aim::Named;
        }
        let drops_when_full = self.drops_when_full();
        let least = if has_name { Aim::Named } else { Aim::Matches };
        let is_for_inbox = || self.inbox_subscriptions.iter().any(|own| own.is_named(&message));
        let streams = self.routes.iter().filter(|route| route.aim >= least).count();
        if streams == 0 || !has_name && is_for_inbox() {
            return self.deliver_to_inbox(message, has_unread);
        }
        message.is_for(streams);
        let owed = message.owed_at_once();
        let mut stays = false;
        let targets = self.routes.iter_mut().filter(|route| route.aim >= least);
        for (route, message) in targets.zip(std::iter::repeat_n(message, streams)) {
            let (message, stays_here) = route.keep(message);
            stays |= stays_here;
            let drops_when_full = drops_when_full || route.is_for_answers;
            let is_held = route.outlet.take(message, drops_when_full);
            self.held += usize::from(is_held);
        }
        owed.filter(|_| stays)?.claim()
    }

    fn deliver_to_inbox(&mut self, message: Message, has_unread: bool) -> Option<Receipt> {
        let drops_when_full = self.drops_when_full();
        let Some(inbox) = self.inbox.as_mut().filter(|inbox| !inbox.is_closed()) else {
            // Whoever claims what a session has left does it at the beginning.
            let has_unread = has_unread || self.inbox.as_mut().is_some_and(|inbox| inbox.unread_for() < KEPT);
            let is_late = self.claimed.is_some_and(|claimed| claimed.elapsed() >= KEPT);
            return if is_late && !has_unread { message.receipt() } else { self.leave(message) };
        };
        let owed = message.owed_at_once();
        self.held += usize::from(inbox.take(message, drops_when_full));
        owed?.claim()
    }

    /// Nobody is there for it. At QoS 0 that is the end of it; otherwise it is not acknowledged for now.
    fn leave(&mut self, message: Message) -> Option<Receipt> {
        if message.qos() > Qos::AtMostOnce {
            self.unclaimed.push_back((Instant::now(), message));
        }
        let is_too_many = self.unclaimed.len() > UNCLAIMED_MAX;
        self.unclaimed.pop_front_if(|_| is_too_many)?.1.receipt()
    }

    /// Whether there is room for more messages: no more are read before. As many again may come while they are passed.
    pub(crate) fn has_room(&self) -> bool {
        self.held
            < if self.is_passing { self.bounds.held_max.saturating_mul(2) } else { self.bounds.held_max }
    }

    /// Messages are read past, to come to what is behind them: those of QoS 0 that have no room are thrown away.
    pub(crate) fn pass(&mut self) {
        self.is_passing = true;
    }

    pub(crate) fn is_passing(&self) -> bool {
        self.is_passing
    }

    /// There is room for messages, or nothing that would be waited for behind them.
    pub(crate) fn stop_passing(&mut self, is_awaited: bool) {
        self.is_passing &= is_awaited && self.held >= self.bounds.held_max;
    }

    fn drops_when_full(&self) -> bool {
        self.bounds.drops_when_full || self.is_passing
    }

    /// Puts into streams what there is room for, and tells whether there was some.
    pub(crate) fn flush(&mut self) -> bool {
        if self.held == 0 && !std::mem::take(&mut self.is_dirty) {
            return false;
        }
        let held = self.outlets().map(Outlet::flush).sum();
        self.ending.retain(|outlet| outlet.held() > 0);
        std::mem::replace(&mut self.held, held) > held
    }

    /// The streams that have no room for what is held.
    pub(crate) fn full(&mut self) -> Vec<Room> {
        if self.held == 0 {
            return Vec::new();
        }
        self.outlets().filter(|outlet| outlet.held() > 0).map(|outlet| outlet.room()).collect()
    }

    fn outlets(&mut self) -> impl Iterator<Item = &mut Outlet> {
        let routes = self.routes.iter_mut().map(|route| &mut route.outlet);
        routes.chain(&mut self.inbox).chain(&mut self.ending)
    }
}
