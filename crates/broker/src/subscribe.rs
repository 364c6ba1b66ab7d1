//! Subscriptions: collected during a turn, written to the index in one batch, then answered.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use index::{Applied, Change, ConnectionId, Interest, Subscriber};
use ledger::{Cause, Command};
use session::{Now, Purpose, Settings};
use topic::TopicFilter;
use wire::{
    AckProperties, DisconnectReason, OneOrMore, Packet, PacketId, Qos, ReasonCode, RequestedFilter,
    RetainHandling, SubAck, SubAckReason, Subscribe, Subscription, UnsubAck, UnsubAckReason, Unsubscribe,
    Version,
};

use crate::ending::{By, Ending};
use crate::filters::{Filters, subscription_bytes};
use crate::{Effects, Notice, Shard};

/// The filters of clients that have gone are taken out of the index at most so many a turn.
const FORGOTTEN_PER_TURN: usize = 1_000;

/// So many changes are written under one lock.
const CHANGES_PER_LOCK: usize = 256;

/// What is to be written to the index.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pending: Vec<Pending>,
    leaving: VecDeque<(Arc<Subscriber>, Filters)>,
    /// So many of what is pending have a shape that the index does not know yet, and that is deep.
    deep_shapes: usize,
}

/// One SUBSCRIBE or UNSUBSCRIBE, to be answered when it is written.
#[derive(Debug)]
struct Pending {
    subscriber: Arc<Subscriber>,
    connection: ConnectionId,
    packet_id: PacketId,
    asks: Asks,
}

#[derive(Debug)]
enum Asks {
    Subscribe(Vec<Result<Granted, SubAckReason>>),
    Unsubscribe(Vec<Option<Box<str>>>),
}

/// One that is written and waits to be recorded by the ledger.
#[derive(Debug)]
pub(crate) struct Recording {
    packet_id: PacketId,
    answer: Reasons,
}

#[derive(Debug)]
enum Reasons {
    Subscribe(Vec<SubAckReason>),
    Unsubscribe(Vec<UnsubAckReason>),
}

impl Reasons {
    /// The ledger could not: what was granted is not.
    fn refuse(&mut self, reason: ReasonCode) {
        match self {
            Self::Subscribe(reasons) => {
                let refused =
                    SubAckReason::try_from(reason).unwrap_or(SubAckReason::ImplementationSpecificError);
                reasons.iter_mut().filter(|reason| !reason.is_error()).for_each(|reason| *reason = refused);
            }
            Self::Unsubscribe(reasons) => {
                let refused =
                    UnsubAckReason::try_from(reason).unwrap_or(UnsubAckReason::ImplementationSpecificError);
                reasons.fill(refused);
            }
        }
    }
}

#[derive(Debug)]
struct Granted {
    filter: Box<str>,
    interest: Interest,
    retain_handling: RetainHandling,
}

type ChangeOf<'a> = Change<'a, Arc<Subscriber>, Interest>;

impl Pending {
    fn changes(&self) -> Box<dyn Iterator<Item = ChangeOf<'_>> + '_> {
        let subscriber = &self.subscriber;
        match &self.asks {
            Asks::Subscribe(asked) => {
                let plain = asked.iter().flatten().filter(|granted| !granted.is_shared());
                Box::new(plain.map(move |granted| {
                    let filter = valid(&granted.filter);
                    Change::Subscribe { filter, subscriber, options: granted.interest }
                }))
            }
            Asks::Unsubscribe(filters) => {
                let plain = filters.iter().flatten().filter(|filter| !is_shared(filter));
                Box::new(plain.map(move |filter| Change::Unsubscribe { filter: valid(filter), subscriber }))
            }
        }
    }
}

impl Granted {
    fn is_shared(&self) -> bool {
        is_shared(&self.filter)
    }
}

/// Groups are the ledger's, in the index too.
fn is_shared(filter: &str) -> bool {
    valid(filter).shared().is_some()
}

fn valid(filter: &str) -> TopicFilter<'_> {
    TopicFilter::new(filter).expect("it was a filter when it was decoded")
}

impl Changes {
    /// A subscriber is gone; its filters follow, a bounded number a turn. Until then they lead to a place
    /// where it is not.
    pub(crate) fn leave(&mut self, subscriber: Arc<Subscriber>, filters: Filters) {
        if filters.len() > 0 {
            self.leaving.push_back((subscriber, filters));
        }
    }

    pub(crate) fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }
}

impl Shard {
    /// Takes a SUBSCRIBE in. It is answered when it is written.
    pub(crate) fn subscribe(&mut self, id: ConnectionId, subscribe: &Subscribe<'_>) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(subscriber) = client.subscriber.clone() else { return };
        let identifier =
            subscribe.properties.subscription_identifier.and_then(|id| NonZeroU32::new(id.value()));
        // What is a lasting session's stays when its client has left.
        let budget = self.tally.budget();
        let is_tight = if subscriber.queue.is_some() { budget.is_tight_to_keep() } else { budget.is_tight() };
        let mut asked = Vec::new();
        for subscription in subscribe.subscriptions.iter() {
            let filter =
                accept(&subscription, identifier.is_some(), client.session.version(), &self.settings);
            asked.push(filter.and_then(|filter| {
                let is_new = !client.filters.contains(filter.as_str());
                if is_new && (is_tight || client.filters.len() >= self.settings.subscriptions_max) {
                    self.counters.refused_subscriptions_memory.add(u64::from(is_tight));
                    return Err(SubAckReason::QuotaExceeded);
                }
                if is_new && let Some(deep) = self.index.would_deepen(filter) {
                    if deep + self.changes.deep_shapes >= self.settings.deep_shapes_max {
                        return Err(SubAckReason::QuotaExceeded);
                    }
                    self.changes.deep_shapes += 1;
                }
                if is_new {
                    self.tally.add(Purpose::Subscriptions, subscription_bytes(filter.as_str()));
                    client.filters.insert(filter.as_str());
                }
                Ok(grant(filter, &subscription, identifier, self.settings.qos_max))
            }));
        }
        let refused = asked.iter().filter(|answer| answer.is_err()).count();
        self.counters.refused_subscriptions.add(refused as u64);
        client.has_changes = true;
        self.changes.pending.push(Pending {
            subscriber,
            connection: id,
            packet_id: subscribe.packet_id,
            asks: Asks::Subscribe(asked),
        });
    }

    /// Takes an UNSUBSCRIBE in. It is answered when it is written.
    pub(crate) fn unsubscribe(&mut self, id: ConnectionId, unsubscribe: &Unsubscribe<'_>) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(subscriber) = client.subscriber.clone() else { return };
        let known = |filter: RequestedFilter<'_>| {
            let filter = filter.ok()?.as_str();
            client.filters.contains(filter).then(|| filter.into())
        };
        let filters: Vec<Option<Box<str>>> = unsubscribe.filters.iter().map(known).collect();
        for filter in filters.iter().flatten() {
            if client.filters.remove(filter) {
                self.tally.sub(Purpose::Subscriptions, subscription_bytes(filter));
            }
        }
        client.has_changes = true;
        let asks = Asks::Unsubscribe(filters);
        let packet_id = unsubscribe.packet_id;
        self.changes.pending.push(Pending { subscriber, connection: id, packet_id, asks });
    }

    /// Writes what has come in since the last time, and answers it.
    pub(crate) fn write_changes(&mut self, now: Now, to: &mut impl Effects) {
        if self.changes.pending.is_empty() {
            return;
        }
        let mut pending = std::mem::take(&mut self.changes.pending);
        self.changes.deep_shapes = 0;
        // Who has ended meanwhile has no session that a subscription could belong to.
        pending.retain(|pending| self.clients.get(pending.connection).is_some());
        let mut applied = Vec::new();
        let mut changes = pending.iter().flat_map(Pending::changes).peekable();
        while changes.peek().is_some() {
            // Whoever looks a topic up waits for one batch at a time.
            self.index.apply(changes.by_ref().take(CHANGES_PER_LOCK), &mut applied);
        }
        drop(changes);
        let mut applied = applied.into_iter();
        for Pending { subscriber, connection: id, packet_id, asks } in pending.drain(..) {
            if let Some(client) = self.clients.get_mut(id) {
                client.has_changes = false;
            }
            match asks {
                Asks::Subscribe(asked) => {
                    self.subscribed(id, &subscriber, packet_id, asked, &mut applied, now, to);
                }
                Asks::Unsubscribe(filters) => {
                    self.unsubscribed(id, &subscriber, packet_id, filters, &mut applied, now, to);
                }
            }
        }
        self.changes.pending = pending;
    }

    /// Takes some of the filters of those who have gone out of the index.
    pub(crate) fn forget_some_filters(&mut self) {
        let mut left = FORGOTTEN_PER_TURN;
        let mut applied = Vec::new();
        while left > 0
            && let Some((subscriber, filters)) = self.changes.leaving.front_mut()
        {
            let taken = filters.take(left);
            left -= taken.len().min(left);
            let bytes = taken.iter().map(|filter| subscription_bytes(filter)).sum();
            self.tally.sub(Purpose::Subscriptions, bytes);
            let subscriber = &*subscriber;
            let changes =
                taken.iter().map(|filter| Change::Unsubscribe { filter: valid(filter), subscriber });
            self.index.apply(changes, &mut applied);
            if filters.len() == 0 {
                self.changes.leaving.pop_front();
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "what one packet asks for, and where the answers go")]
    fn subscribed(
        &mut self,
        id: ConnectionId,
        subscriber: &Arc<Subscriber>,
        packet_id: PacketId,
        asked: Vec<Result<Granted, SubAckReason>>,
        applied: &mut impl Iterator<Item = Applied<Interest>>,
        now: Now,
        to: &mut impl Effects,
    ) {
        let mut reasons = Vec::with_capacity(asked.len());
        let (mut walks, mut recorded) = (Vec::new(), Vec::new());
        for answer in asked {
            reasons.push(
                answer.as_ref().map_or_else(|reason| *reason, |g| SubAckReason::granted(g.interest.qos())),
            );
            let Ok(granted) = answer else { continue };
            self.notice_filter(id, &granted.filter, Some(granted.interest.qos()), to);
            let is_shared = granted.is_shared();
            let Granted { filter, interest, retain_handling } = granted;
            if is_shared || subscriber.queue.is_some() {
                recorded.push((filter.clone(), interest));
            }
            if is_shared {
                // What is retained is not for groups (MQTT 5.0, 4.8.2).
                continue;
            }
            let is_new = applied.next() == Some(Applied::New);
            let is_asked = match retain_handling {
                RetainHandling::Send => true,
                RetainHandling::SendIfNew => is_new,
                RetainHandling::DoNotSend => false,
            };
            walks.push((filter, interest, is_asked.then_some(is_new)));
        }
        if recorded.is_empty() {
            self.acknowledge_subscribe(id, packet_id, &reasons, now, to);
        } else {
            let (subscriber, subscriptions) = (Arc::clone(subscriber), recorded);
            self.record(id, packet_id, Reasons::Subscribe(reasons));
            let lasts = subscriber.queue.is_some();
            let brought = walks.iter().filter(|(.., asked)| lasts && asked.is_some());
            let retained = brought.map(|(filter, ..)| filter.clone()).collect();
            to.command(Command::Subscribe { subscriber, connection: id, packet_id, subscriptions, retained });
        }
        for (filter, interest, asked) in walks {
            match asked {
                Some(is_new) => self.open_walk(id, filter, interest, is_new, to),
                None => self.change_walk(id, &filter, interest),
            }
        }
    }

    fn record(&mut self, id: ConnectionId, packet_id: PacketId, answer: Reasons) {
        if let Some(client) = self.clients.get_mut(id) {
            client.recording.get_or_insert_default().push(Recording { packet_id, answer });
        }
    }

    /// The ledger has recorded a SUBSCRIBE or UNSUBSCRIBE, or could not.
    pub(crate) fn recorded(
        &mut self,
        id: ConnectionId,
        packet_id: PacketId,
        reason: ReasonCode,
        now: Now,
        to: &mut impl Effects,
    ) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(recording) = client.recording.as_mut() else { return };
        let Some(place) = recording.iter().position(|recording| recording.packet_id == packet_id) else {
            return;
        };
        let Recording { mut answer, .. } = recording.remove(place);
        if recording.is_empty() {
            client.recording = None;
        }
        if reason.is_error() {
            answer.refuse(reason);
        }
        let is_5 = client.session.version().is_some_and(Version::is_5);
        match answer {
            Reasons::Unsubscribe(_) if reason.is_error() && !is_5 => {
                // Before MQTT 5 UNSUBACK cannot say that the subscription is still there.
                let reason = DisconnectReason::try_from(reason).unwrap_or(DisconnectReason::UnspecifiedError);
                let why = "the end of a subscription could not be recorded";
                self.give_up(id, reason, why, now, to);
            }
            Reasons::Subscribe(reasons) => self.acknowledge_subscribe(id, packet_id, &reasons, now, to),
            Reasons::Unsubscribe(reasons) => self.acknowledge_unsubscribe(id, packet_id, &reasons, now, to),
        }
    }

    fn notice_filter(&self, id: ConnectionId, filter: &str, granted: Option<Qos>, to: &mut impl Effects) {
        if let Some(client) = self.clients.get(id) {
            let client_id = client.client_id();
            to.notice(
                id,
                match granted {
                    Some(qos) => Notice::Subscribed { client_id, filter, qos },
                    None => Notice::Unsubscribed { client_id, filter },
                },
            );
        }
    }

    fn acknowledge_subscribe(
        &mut self,
        id: ConnectionId,
        packet_id: PacketId,
        reasons: &[SubAckReason],
        now: Now,
        to: &mut impl Effects,
    ) {
        let Some(reasons) = OneOrMore::new(reasons) else { return };
        let packet = SubAck { packet_id, properties: AckProperties::default(), reasons };
        self.acknowledge(id, &packet.into(), now, to);
    }

    /// Sends an answer that may turn out larger than the client takes, or more than its version can say.
    fn acknowledge(&mut self, id: ConnectionId, packet: &Packet<'_>, now: Now, to: &mut impl Effects) {
        let Some(session) = self.clients.get(id).map(|client| &client.session) else { return };
        let Some(version) = session.version() else { return };
        match packet.encoded_len(version) {
            Ok(len) if len <= session.packet_bytes_max() => self.send(id, packet, to),
            Ok(_) => {
                let why = "the answer would be larger than the client takes";
                self.give_up(id, DisconnectReason::PacketTooLarge, why, now, to);
            }
            // MQTT 3.1 cannot say that a subscription has failed.
            Err(_) => {
                self.give_up(id, DisconnectReason::TopicFilterInvalid, "a subscription was refused", now, to);
            }
        }
    }

    #[allow(clippy::too_many_arguments, reason = "what one packet asks for, and where the answers go")]
    fn unsubscribed(
        &mut self,
        id: ConnectionId,
        subscriber: &Arc<Subscriber>,
        packet_id: PacketId,
        filters: Vec<Option<Box<str>>>,
        applied: &mut impl Iterator<Item = Applied<Interest>>,
        now: Now,
        to: &mut impl Effects,
    ) {
        let mut reasons = Vec::with_capacity(filters.len());
        let mut recorded = Vec::new();
        for filter in filters {
            let Some(filter) = filter else {
                reasons.push(UnsubAckReason::NoSubscriptionExisted);
                continue;
            };
            let is_shared = is_shared(&filter);
            let removed = is_shared || matches!(applied.next(), Some(Applied::Removed(_)));
            reasons.push(if removed {
                UnsubAckReason::Success
            } else {
                UnsubAckReason::NoSubscriptionExisted
            });
            self.notice_filter(id, &filter, None, to);
            self.close_walk(id, &filter, to);
            if is_shared || subscriber.queue.is_some() {
                recorded.push(filter);
            }
        }
        // That there is no such subscription may be because an UNSUBSCRIBE before has ended it, which is not recorded yet.
        let is_recording = self.clients.get(id).is_some_and(|client| client.recording.is_some());
        if recorded.is_empty() && !is_recording {
            return self.acknowledge_unsubscribe(id, packet_id, &reasons, now, to);
        }
        self.record(id, packet_id, Reasons::Unsubscribe(reasons));
        let (subscriber, filters) = (Arc::clone(subscriber), recorded);
        to.command(Command::Unsubscribe { subscriber, connection: id, packet_id, filters });
    }

    fn acknowledge_unsubscribe(
        &mut self,
        id: ConnectionId,
        packet_id: PacketId,
        reasons: &[UnsubAckReason],
        now: Now,
        to: &mut impl Effects,
    ) {
        let packet =
            UnsubAck { packet_id, properties: AckProperties::default(), reasons: OneOrMore::new(reasons) };
        self.acknowledge(id, &packet.into(), now, to);
    }

    /// Ends a connection because something cannot be answered.
    pub(crate) fn give_up(
        &mut self,
        id: ConnectionId,
        reason: DisconnectReason,
        why: &'static str,
        now: Now,
        to: &mut impl Effects,
    ) {
        self.disconnect(id, reason, to);
        self.end(
            id,
            Ending { reason: reason.reason(), why, cause: Cause::WithWill, by: By::Server },
            now,
            to,
        );
        to.close(id);
    }
}

fn grant(
    filter: TopicFilter<'_>,
    subscription: &Subscription<'_>,
    identifier: Option<NonZeroU32>,
    qos_max: wire::Qos,
) -> Granted {
    let options = subscription.options();
    let interest = Interest::new(options.qos.min(qos_max))
        .with_no_local(options.no_local)
        .with_retain_as_published(options.retain_as_published)
        .with_identifier(identifier);
    Granted { filter: filter.as_str().into(), interest, retain_handling: options.retain_handling }
}

/// The filter, if this server takes it.
fn accept<'a>(
    subscription: &Subscription<'a>,
    has_identifier: bool,
    version: Option<Version>,
    settings: &Settings,
) -> Result<TopicFilter<'a>, SubAckReason> {
    let filter = subscription.filter().map_err(|_| SubAckReason::TopicFilterInvalid)?;
    let refusal = settings.refusal(filter, has_identifier, version.unwrap_or(Version::V3_1_1));
    refusal.map_or(Ok(filter), Err)
}
