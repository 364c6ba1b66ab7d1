//! Decides to which streams a message goes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use session::client::Receipt;
use tokio::time::Instant;
use topic::{TopicFilter, TopicFilterBuf, TopicName};
use wire::{Qos, SubscriptionIdentifier, SubscriptionOptions};

use crate::message::{Message, Owed};
use crate::outlet::{Amount, Inlet, Outlet, Room};
use crate::owned::OwnedSubscribe;

/// Time for which an unclaimed message waits for a reader.
///
/// After this time the message is accepted and dropped, because acknowledgements of other messages wait behind it.
/// If the connection ends earlier, the message arrives again on the next one.
pub(crate) const KEPT: Duration = Duration::from_secs(10);

/// Maximum number of unclaimed messages. There are no more packet identifiers.
const UNCLAIMED_MAX: usize = u16::MAX as usize;

/// The client's own Subscription Identifiers are larger than this.
///
/// Applications count from 1, and rarely reach this number. Identifiers up to 16,383 take two bytes.
const OWN_IDENTIFIERS: u32 = 8_191;

/// The subscriptions of a client, and the messages on their way to the streams.
#[derive(Debug)]
pub(crate) struct Routes {
    routes: Vec<Route>,
    /// Stream for messages that no route takes.
    inbox: Option<Outlet>,
    /// Subscriptions whose messages go to the inbox.
    inbox_subscriptions: Vec<ForInbox>,
    /// Streams that have ended, and still have messages to hand over.
    ending: Vec<Outlet>,
    /// Messages without a reader, and the time of their arrival. A later subscriber that matches receives them.
    ///
    /// They belong to an earlier program's subscriptions, or to streams whose reader is gone.
    unclaimed: Unclaimed,
    /// Receipts of unclaimed messages that were dropped beyond the bounds.
    dropped: VecDeque<Receipt>,
    /// Time of the first subscription or inbox, or of the start of the connection if that was later.
    ///
    /// `None` before the first one: until then, nothing waits behind unclaimed messages.
    claimed: Option<Instant>,
    bounds: Bounds,
    /// Messages that wait for room, in all streams together.
    held: Amount,
    /// An answer is awaited behind messages that nobody takes, and these messages are skipped.
    is_passing: bool,
    /// A message was delivered since the last [`flush`](Self::flush).
    is_dirty: bool,
    next_identifier: u32,
    /// Number of the latest subscription.
    number: Number,
}

/// Order in which subscriptions were requested. Distinguishes subscriptions to the same filter.
pub(crate) type Number = u64;

/// Bounds of the messages that were received and not taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Number of messages waiting behind full streams at which the client stops reading.
    pub(crate) held_max: usize,
    /// Total size of these messages at which the client stops reading, and maximum size of all unclaimed messages.
    pub(crate) held_bytes_max: usize,
    /// Drops messages of QoS 0 for a full stream, instead of letting them wait.
    pub(crate) drops_when_full: bool,
}

/// Messages without a reader, from the oldest to the newest.
#[derive(Debug, Default)]
struct Unclaimed {
    messages: VecDeque<(Instant, Message)>,
    bytes: usize,
}

impl Unclaimed {
    fn push(&mut self, since: Instant, message: Message) {
        self.bytes += message.size_bytes();
        self.messages.push_back((since, message));
    }

    fn pop(&mut self) -> Option<Message> {
        let (_, message) = self.messages.pop_front()?;
        self.bytes -= message.size_bytes();
        Some(message)
    }

    /// Time at which the oldest message arrived.
    fn since(&self) -> Option<Instant> {
        self.messages.front().map(|(since, _)| *since)
    }
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
    /// The stream receives answers to a [`Requester`](crate::Requester).
    ///
    /// Answers are accepted as they arrive, and dropped if the stream is full. Nobody may read answers that arrive
    /// too late.
    is_for_answers: bool,
    /// The server's session has this subscription, as far as the client knows.
    is_known: bool,
    /// Result for the message that is being delivered.
    aim: Aim,
}

/// Subscriptions of one SUBSCRIBE packet, whose messages go to the inbox.
#[derive(Debug)]
struct ForInbox {
    number: Number,
    subscribe: OwnedSubscribe,
    /// The server's session has these subscriptions, as far as the client knows.
    is_known: bool,
}

impl ForInbox {
    /// Whether the message has this subscription's identifier and matches one of its filters.
    fn is_named(&self, message: &Message) -> bool {
        let identifier = self.subscribe.identifier;
        identifier.is_some_and(|own| message.subscription_identifiers().contains(&own))
            && self.subscribe.filters().any(|filter| filter.filter().matches(message.topic()))
    }
}

/// Quality of the match between a message and a route, in ascending order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Aim {
    #[default]
    Misses,
    Matches,
    /// The message matches, and has the identifier of this subscription.
    Named,
}

impl Route {
    /// Makes the route of a SUBSCRIBE that is being sent.
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

    /// Prepares a message for the stream. The flag says whether the stream surely keeps it, so that it must not
    /// arrive a second time.
    fn keep(&mut self, message: Message) -> (Message, bool) {
        let stays = self.stage.keeps(&message);
        (if self.is_for_answers { message.accepted() } else { message }, stays)
    }
}

/// Progress of a subscription:
///
/// ```text
///                         SUBACK
///  SUBSCRIBE ──► Asked ───────────► Granted
///                  └─── refused, or the connection is lost: the stream was never there
/// ```
#[derive(Debug)]
enum Stage {
    /// Pending acknowledgements of QoS 2 messages, which are sent with the answer.
    ///
    /// If the server refuses the subscription, these messages must arrive again for other readers.
    Asked(Vec<Arc<Owed>>),
    Granted,
}

impl Stage {
    /// Notes a message, and returns whether the stream surely keeps it, so that it must not arrive a second time.
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
            unclaimed: Unclaimed::default(),
            dropped: VecDeque::new(),
            claimed: None,
            bounds,
            held: Amount::default(),
            is_passing: false,
            is_dirty: false,
            next_identifier: OWN_IDENTIFIERS,
            number: 0,
        }
    }

    /// Whether an open stream receives the messages of this filter.
    pub(crate) fn contains(&self, filter: TopicFilter<'_>) -> bool {
        self.routes.iter().any(|route| route.filter.filter() == filter && !route.outlet.is_closed())
    }

    /// Returns a Subscription Identifier that no other stream and no subscription of the inbox has.
    ///
    /// `None` once all identifiers, up to 2^28 - 1, are used up. Messages are then assigned by filters alone.
    pub(crate) fn new_identifier(&mut self) -> Option<SubscriptionIdentifier> {
        loop {
            self.next_identifier = self.next_identifier.saturating_add(1);
            let identifier = SubscriptionIdentifier::new(self.next_identifier)?;
            if self.inbox_subscriptions.iter().all(|own| own.subscribe.identifier != Some(identifier)) {
                return Some(identifier);
            }
        }
    }

    /// Returns the number of a new subscription.
    pub(crate) fn new_number(&mut self) -> Number {
        self.number += 1;
        self.number
    }

    /// Sets the inbox, which receives the unclaimed messages at once. Returns the receipts to accept immediately.
    pub(crate) fn set_inbox(&mut self, mut outlet: Outlet) -> Vec<Receipt> {
        self.claimed.get_or_insert_with(Instant::now);
        let mut receipts = Vec::new();
        for (_, message) in std::mem::take(&mut self.unclaimed).messages {
            receipts.extend(message.owed_at_once().and_then(|owed| owed.claim()));
            outlet.hold(message);
        }
        self.held = self.held + outlet.held();
        self.ending.extend(self.inbox.replace(outlet));
        self.flush();
        receipts
    }

    /// Adds subscriptions that the server has granted to the inbox.
    pub(crate) fn insert_for_inbox(&mut self, number: Number, subscribe: OwnedSubscribe) {
        for filter in subscribe.filters() {
            let is_other = |own: &mut ForInbox| own.subscribe.retain_other(filter.filter());
            self.inbox_subscriptions.retain_mut(|own| own.number >= number || is_other(own));
        }
        self.inbox_subscriptions.push(ForInbox { number, subscribe, is_known: true });
    }

    /// Adds a stream, which receives the unclaimed messages that match at once.
    pub(crate) fn insert(&mut self, mut route: Route) {
        self.remove(route.filter.filter(), route.number);
        self.claimed.get_or_insert_with(Instant::now);
        for (since, message) in std::mem::take(&mut self.unclaimed).messages {
            if route.filter.filter().matches(message.topic()) {
                let (message, _) = route.keep(message);
                route.outlet.hold(message);
            } else {
                self.unclaimed.push(since, message);
            }
        }
        self.held = self.held + route.outlet.held();
        self.routes.push(route);
        self.flush();
    }

    /// Marks a stream as granted. Returns the receipts to accept immediately.
    pub(crate) fn grant(&mut self, number: Number) -> Vec<Receipt> {
        let granted = self.routes.iter_mut().filter(|route| route.number == number);
        let stages = granted.map(|route| std::mem::replace(&mut route.stage, Stage::Granted));
        stages
            .flat_map(|stage| if let Stage::Asked(owed) = stage { owed } else { Vec::new() })
            .filter_map(|owed| owed.claim())
            .collect()
    }

    /// Takes back the messages of a stream that nobody received. Messages for this stream alone become unclaimed.
    pub(crate) fn put_back(&mut self, number: Number, mut inlet: Inlet) {
        self.flush();
        let mut route = self.routes.iter_mut().find(|route| route.number == number);
        if let Some(route) = &mut route {
            route.stage = Stage::Granted;
        }
        let held = route.map(|route| route.outlet.take_held()).unwrap_or_default();
        let sent = std::iter::from_fn(|| inlet.try_next());
        let (free, others): (Vec<_>, Vec<_>) = sent.chain(held).partition(Message::is_free);
        others.into_iter().for_each(Message::renounce);
        free.into_iter().for_each(|message| self.unclaimed.push(Instant::now(), message));
        self.held = self.outlets().map(|outlet| outlet.held()).sum();
    }

    /// Time at which [`give_up`](Self::give_up) is to be called.
    pub(crate) fn give_up_due(&self) -> Option<Instant> {
        Some(self.unclaimed.since()?.max(self.claimed?) + KEPT)
    }

    /// Drops the messages that nobody has claimed in time. Returns their receipts, to be accepted.
    pub(crate) fn give_up(&mut self) -> Vec<Receipt> {
        let now = Instant::now();
        let mut receipts = Vec::new();
        while self.give_up_due().is_some_and(|due| due <= now) {
            receipts.extend(self.unclaimed.pop().and_then(|message| message.receipt()));
        }
        receipts
    }

    /// Restarts the time to claim messages, because a connection has begun.
    ///
    /// A caller may subscribe again after losing its stream with the last connection, and has as much time as at first.
    pub(crate) fn begin_connection(&mut self) {
        self.claimed = self.claimed.map(|_| Instant::now());
    }

    /// Marks all subscriptions as unknown to the server, because its session is new.
    pub(crate) fn session_is_new(&mut self) {
        self.routes.iter_mut().for_each(|route| route.is_known = false);
        self.inbox_subscriptions.iter_mut().for_each(|own| own.is_known = false);
    }

    /// Subscriptions that the server does not have: those of open streams, and those of the inbox.
    pub(crate) fn unknown(&self) -> Vec<(Number, OwnedSubscribe)> {
        let read = self.routes.iter().filter(|route| !route.is_known && !route.outlet.is_closed());
        let own = read
            .map(|route| (route.number, OwnedSubscribe::one(&route.filter, route.options, route.identifier)));
        let for_inbox = self.inbox_subscriptions.iter().filter(|own| !own.is_known);
        own.chain(for_inbox.map(|own| (own.number, own.subscribe.clone()))).collect()
    }

    /// Marks a subscription as known to the server.
    pub(crate) fn know(&mut self, number: Number) {
        let routes = self.routes.iter_mut().filter(|route| route.number == number);
        routes.for_each(|route| route.is_known = true);
        let for_inbox = self.inbox_subscriptions.iter_mut().filter(|own| own.number == number);
        for_inbox.for_each(|own| own.is_known = true);
    }

    /// Drops the unclaimed messages without acknowledgement. They arrive again on the next connection.
    pub(crate) fn forget_unclaimed(&mut self) {
        std::mem::take(&mut self.unclaimed).messages.into_iter().for_each(|(_, message)| message.renounce());
    }

    /// Removes the subscriptions to a filter that were requested before `number`. Their streams end after the
    /// messages that have arrived.
    pub(crate) fn remove(&mut self, filter: TopicFilter<'_>, number: Number) {
        self.end(|route| route.number < number && route.filter.filter() == filter);
        self.inbox_subscriptions.retain_mut(|own| own.number >= number || own.subscribe.retain_other(filter));
    }

    /// Removes one subscription to a filter, of several.
    pub(crate) fn remove_one(&mut self, number: Number, filter: TopicFilter<'_>) {
        self.end(|route| route.number == number);
        self.inbox_subscriptions.retain_mut(|own| own.number != number || own.subscribe.retain_other(filter));
    }

    /// Removes a subscription that nobody wants, without its messages. Returns its filter, if no other stream has the
    /// same one.
    pub(crate) fn forget(&mut self, number: Number) -> Option<TopicFilterBuf> {
        let at = self.routes.iter().position(|route| route.number == number)?;
        let Route { filter, outlet, .. } = self.routes.remove(at);
        drop(outlet);
        self.held = self.outlets().map(|outlet| outlet.held()).sum();
        (!self.contains(filter.filter())).then_some(filter)
    }

    fn end(&mut self, is_over: impl Fn(&Route) -> bool) {
        let ended = self.routes.extract_if(.., |route| is_over(route));
        self.ending.extend(ended.map(|route| route.outlet).filter(Outlet::is_holding));
    }

    /// Hands a message to its streams, which receive it with the next [`flush`](Self::flush).
    ///
    /// Returns the receipt to accept immediately. `topic` is the message's topic, which would be costly to read again.
    ///
    /// If the message has identifiers of streams that match, only these streams receive it. Matching is checked
    /// too, because an identifier from an earlier session may belong to another filter. If the message has no such
    /// identifier, but one of the inbox, the inbox receives it even if streams match. Streams without a reader do
    /// not count.
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
            self.held = self.held + route.outlet.take(message, drops_when_full);
        }
        owed.filter(|_| stays)?.claim()
    }

    fn deliver_to_inbox(&mut self, message: Message, has_unread: bool) -> Option<Receipt> {
        let drops_when_full = self.drops_when_full();
        let Some(inbox) = self.inbox.as_mut().filter(|inbox| !inbox.is_closed()) else {
            // Readers of an existing session claim its messages at the beginning.
            let has_unread = has_unread || self.inbox.as_mut().is_some_and(|inbox| inbox.unread_for() < KEPT);
            let is_late = self.claimed.is_some_and(|claimed| claimed.elapsed() >= KEPT);
            if is_late && !has_unread {
                return message.receipt();
            }
            self.leave(message);
            return None;
        };
        let owed = message.owed_at_once();
        self.held = self.held + inbox.take(message, drops_when_full);
        owed?.claim()
    }

    /// Stores a message that nobody reads, without acknowledgement. A message of QoS 0 is dropped.
    ///
    /// Beyond the bounds, the oldest messages are dropped. The newest one always stays.
    fn leave(&mut self, message: Message) {
        if message.qos() > Qos::AtMostOnce {
            self.unclaimed.push(Instant::now(), message);
        }
        while self.unclaimed.messages.len() > UNCLAIMED_MAX
            || self.unclaimed.messages.len() > 1 && self.unclaimed.bytes > self.bounds.held_bytes_max
        {
            self.dropped.extend(self.unclaimed.pop().and_then(|message| message.receipt()));
        }
    }

    /// Removes the receipts of unclaimed messages that were dropped beyond the bounds, to accept them.
    pub(crate) fn next_dropped(&mut self) -> Option<Receipt> {
        self.dropped.pop_front()
    }

    /// Whether more messages may be read. While messages are skipped, the bounds are twice as high.
    pub(crate) fn has_room(&self) -> bool {
        let factor = if self.is_passing { 2 } else { 1 };
        self.held.messages < self.bounds.held_max.saturating_mul(factor)
            && self.held.bytes < self.bounds.held_bytes_max.saturating_mul(factor)
    }

    /// Begins to skip messages, to reach packets behind them. Messages of QoS 0 without room are dropped.
    pub(crate) fn pass(&mut self) {
        self.is_passing = true;
    }

    pub(crate) fn is_passing(&self) -> bool {
        self.is_passing
    }

    /// Stops skipping messages, if there is room again or nothing is awaited behind them.
    pub(crate) fn stop_passing(&mut self, is_awaited: bool) {
        let is_full =
            self.held.messages >= self.bounds.held_max || self.held.bytes >= self.bounds.held_bytes_max;
        self.is_passing &= is_awaited && is_full;
    }

    fn drops_when_full(&self) -> bool {
        self.bounds.drops_when_full || self.is_passing
    }

    /// Hands messages to streams that have room, and returns whether any message found room.
    pub(crate) fn flush(&mut self) -> bool {
        if self.held.messages == 0 && !std::mem::take(&mut self.is_dirty) {
            return false;
        }
        let held: Amount = self.outlets().map(Outlet::flush).sum();
        self.ending.retain(Outlet::is_holding);
        std::mem::replace(&mut self.held, held).messages > held.messages
    }

    /// The streams that have no room for their waiting messages.
    pub(crate) fn full(&mut self) -> Vec<Room> {
        if self.held.messages == 0 {
            return Vec::new();
        }
        self.outlets().filter(|outlet| outlet.is_holding()).map(|outlet| outlet.room()).collect()
    }

    fn outlets(&mut self) -> impl Iterator<Item = &mut Outlet> {
        let routes = self.routes.iter_mut().map(|route| &mut route.outlet);
        routes.chain(&mut self.inbox).chain(&mut self.ending)
    }
}
