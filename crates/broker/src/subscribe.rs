//! Subscriptions: what was taken in during a turn is written to the index in one batch, then answered.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

use base::{ConnectionId, Interest, Purpose, Subscriber};
use index::{Applied, Change, Subscriptions};
use protocol::{Cause, Command};
use session::{Settings, Terms};
use topic::TopicFilter;
use wire::{
    AckProperties, DisconnectReason, OneOrMore, Packet, PacketId, Qos, ReasonCode, RetainHandling, SubAck,
    SubAckReason, Subscription, UnsubAck, UnsubAckReason, Version,
};

use crate::effects::Outside;
use crate::ending::{By, Ending};
use crate::filters::{Filters, PendingShapes, subscription_bytes};
use crate::requests::{UNITS_PER_TURN, units};
use crate::retained::Walks;
use crate::{Effects, Notice, Shard};

/// Maximum number of units that a turn frees of clients that are gone: filters, which are taken out of the index, and
/// walks through retained messages.
const FORGOTTEN_PER_TURN: usize = 128;
/// Maximum number of cursors that wait to be opened by the ledger. With as many, no filters are taken in: commands of other
/// clients would wait behind them.
const OPENING_MAX: usize = 1_000;

/// Units of work under one lock of the index: filters, and 256 bytes of filter. Others wait for the lock.
const UNITS_PER_LOCK: usize = 256;

/// Changes that are to be written to the index.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) pending: Vec<Pending>,
    /// Connections with a packet of which some filters have not been taken in.
    pub(crate) line: VecDeque<ConnectionId>,
    /// Connections in the line go on when the ledger has read its commands.
    pub(crate) waits_for_ledger: bool,
    /// Units that may still be processed during this turn, of packets that have just been read.
    pub(crate) units: usize,
    /// Answers to what is written; kept for its memory.
    answers: Vec<(ConnectionId, Recording)>,
    leaving: VecDeque<Leaving>,
    /// Cursors over retained messages that the ledger has been asked to open and has not.
    pub(crate) opening: usize,
    pub(crate) shapes: PendingShapes,
}

/// The filters and walks of a client that is gone.
#[derive(Debug)]
struct Leaving {
    /// The subscriber in the index with these filters; `None` if its session lasts, because its filters stay there.
    subscriber: Option<Arc<Subscriber>>,
    filters: Filters,
    walks: Option<Box<Walks>>,
}

/// A SUBSCRIBE or UNSUBSCRIBE, or a part of one, to be answered when it is written.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) subscriber: Arc<Subscriber>,
    pub(crate) connection: ConnectionId,
    pub(crate) part: Part,
    pub(crate) asks: Asks,
}

/// The sender of a part of a packet with many filters, and the part.
struct Asker {
    connection: ConnectionId,
    subscriber: Arc<Subscriber>,
    part: Part,
}

/// A part of a packet with many filters.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) packet_id: PacketId,
    pub(crate) is_last: bool,
    /// If it is the last, the codes of those before.
    pub(crate) so_far: Reasons,
}

#[derive(Debug)]
pub(crate) enum Asks {
    Subscribe(Vec<Result<Granted, SubAckReason>>),
    Unsubscribe(Vec<Result<Box<str>, UnsubAckReason>>),
}

/// The answer to a part that is written. It may wait until the ledger has recorded the change.
#[derive(Debug)]
pub(crate) struct Recording {
    part: Part,
    answer: Reasons,
    /// The places in the packet of those filters that the ledger was asked for.
    places: Vec<usize>,
    /// The shared ones among them.
    shared: Vec<Box<str>>,
}

impl Recording {
    /// A shared filter that an UNSUBSCRIBE has ended was never subscribed to.
    fn deny(&mut self, filter: &str) {
        let Reasons::Unsubscribe(reasons) = &mut self.answer else { return };
        let place = self.shared.iter().position(|shared| **shared == *filter);
        if let Some(reason) = place.and_then(|place| reasons.get_mut(*self.places.get(place)?)) {
            *reason = UnsubAckReason::NoSubscriptionExisted;
        }
    }

    /// The memory of the answer, in bytes. Each filter is here, once more among those that the client is joining, and once more
    /// among those that answers name.
    fn size_bytes(&self) -> usize {
        let filters = self.shared.iter().map(|filter| 3 * filter.len() + size_of::<(Box<str>, Naming)>());
        let codes = self.part.so_far.len() + self.answer.len();
        size_of::<Self>() + codes + size_of_val(&*self.places) + filters.sum::<usize>()
    }
}

/// The answers of one client that wait for the ledger, which records the changes in their order.
#[derive(Debug, Default)]
pub(crate) struct Recordings {
    /// Each with its number. They are in the order of their numbers.
    answers: VecDeque<(u64, Recording)>,
    last: u64,
    /// The answers that name a shared filter.
    naming: HashMap<Box<str>, Naming>,
    bytes: usize,
}

/// The numbers of the answers that name one shared filter, in their order.
type Naming = VecDeque<u64>;

impl Recordings {
    /// The memory of all answers, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes
    }

    fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    fn push(&mut self, answer: Recording) {
        self.bytes += answer.size_bytes();
        self.last += 1;
        for filter in &answer.shared {
            self.naming.entry(filter.clone()).or_default().push_back(self.last);
        }
        self.answers.push_back((self.last, answer));
    }

    /// The first answer to a packet. It is the first of all, so that no other answer moves.
    fn take(&mut self, packet_id: PacketId) -> Option<Recording> {
        let place = self.answers.iter().position(|(_, answer)| answer.part.packet_id == packet_id)?;
        let (number, answer) = self.answers.remove(place)?;
        self.bytes -= answer.size_bytes();
        for filter in &answer.shared {
            if let Some(naming) = self.naming.get_mut(filter) {
                if let Ok(place) = naming.binary_search(&number) {
                    naming.remove(place);
                }
                if naming.is_empty() {
                    self.naming.remove(filter);
                }
            }
        }
        Some(answer)
    }

    /// The ledger has refused a shared filter: the packet that names it next was answered for a subscription that there is
    /// not.
    fn deny(&mut self, filter: &str) {
        let Some(number) = self.naming.get(filter).and_then(VecDeque::front) else { return };
        let place = self.answers.binary_search_by_key(number, |(number, _)| *number);
        if let Some((_, answer)) = place.ok().and_then(|place| self.answers.get_mut(place)) {
            answer.deny(filter);
        }
    }
}

#[derive(Debug)]
pub(crate) enum Reasons {
    Subscribe(Vec<SubAckReason>),
    Unsubscribe(Vec<UnsubAckReason>),
}

impl Asks {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::Subscribe(asked) => asked.is_empty(),
            Self::Unsubscribe(filters) => filters.is_empty(),
        }
    }
}

impl Reasons {
    fn len(&self) -> usize {
        match self {
            Self::Subscribe(reasons) => reasons.len(),
            Self::Unsubscribe(reasons) => reasons.len(),
        }
    }

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

    /// The codes of the next part.
    fn append(&mut self, next: Self) {
        match (self, next) {
            (Self::Subscribe(all), Self::Subscribe(mut next)) => all.append(&mut next),
            (Self::Unsubscribe(all), Self::Unsubscribe(mut next)) => all.append(&mut next),
            (Self::Subscribe(_), _) | (Self::Unsubscribe(_), _) => {
                debug_assert!(false, "all parts of a packet are of one kind");
            }
        }
    }
}

#[derive(Debug)]
pub(crate) struct Granted {
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

impl Default for Changes {
    fn default() -> Self {
        Self {
            pending: Vec::new(),
            line: VecDeque::new(),
            waits_for_ledger: false,
            units: UNITS_PER_TURN,
            answers: Vec::new(),
            leaving: VecDeque::new(),
            opening: 0,
            shapes: PendingShapes::default(),
        }
    }
}

impl Changes {
    /// A client is gone; its filters and walks follow, a bounded number a turn. Until then the filters of a `subscriber` lead
    /// to a place where it is not. Without one they are only freed.
    pub(crate) fn leave(
        &mut self,
        subscriber: Option<Arc<Subscriber>>,
        filters: Filters,
        walks: Option<Box<Walks>>,
    ) {
        if filters.len() > 0 || walks.is_some() {
            self.leaving.push_back(Leaving { subscriber, filters, walks });
        }
    }

    /// Whether the next turn goes on with something.
    pub(crate) fn has_work(&self) -> bool {
        let waits = self.waits_for_ledger || self.opens_enough();
        !self.leaving.is_empty() || !(self.line.is_empty() || waits)
    }

    /// Whether the ledger has enough cursors to open: then no further filters are handled now.
    pub(crate) fn opens_enough(&self) -> bool {
        self.opening >= OPENING_MAX
    }
}

impl Shard {
    /// Writes what has come in since the last time, and answers it. A client that has ended meanwhile gets no answer;
    /// its changes are made all the same, because it asked for them before its end.
    pub(crate) fn write_changes(&mut self, to: &mut Outside<'_, impl Effects>) {
        if self.changes.pending.is_empty() {
            return;
        }
        let mut pending = std::mem::take(&mut self.changes.pending);
        self.changes.shapes.forget_plain();
        let mut applied = apply(&self.index, pending.iter().flat_map(Pending::changes)).into_iter();
        let mut answers = std::mem::take(&mut self.changes.answers);
        for Pending { subscriber, connection: id, part, asks } in pending.drain(..) {
            if let Some(client) = self.clients.get_mut(id) {
                client.has_changes = false;
            }
            let asker = Asker { connection: id, subscriber, part };
            let answer = match asks {
                Asks::Subscribe(asked) => self.subscribed(asker, asked, &mut applied, to),
                Asks::Unsubscribe(filters) => self.unsubscribed(asker, filters, &mut applied, to),
            };
            answers.extend(answer.map(|answer| (id, answer)));
        }
        self.changes.pending = pending;
        // An answer may end its connection: by then the ledger has got everything that the connection asked for.
        for (id, answer) in answers.drain(..) {
            self.answer_part(id, answer, to);
        }
        self.changes.answers = answers;
    }

    /// Frees some filters and walks of clients that are gone, and takes the filters out of the index.
    pub(crate) fn forget_some_filters(&mut self) {
        let mut left = FORGOTTEN_PER_TURN;
        while left > 0
            && let Some(leaving) = self.changes.leaving.front_mut()
        {
            if let Some(walks) = &mut leaving.walks {
                let (freed, is_done) = walks.free(left);
                left -= freed;
                if is_done {
                    leaving.walks = None;
                }
                continue;
            }
            let taken = leaving.filters.take(&mut left);
            if let Some(subscriber) = &leaving.subscriber {
                let bytes = taken.iter().map(|filter| subscription_bytes(filter)).sum();
                self.tally.sub(Purpose::Subscriptions, bytes);
                let gone = |filter| Change::Unsubscribe { filter, subscriber };
                apply(&self.index, taken.iter().map(|filter| gone(valid(filter))));
            }
            if leaving.filters.len() == 0 {
                self.changes.leaving.pop_front();
            }
        }
    }

    /// A SUBSCRIBE is in the index. Returns its answer, unless the ledger has to record it first.
    fn subscribed(
        &mut self,
        asker: Asker,
        asked: Vec<Result<Granted, SubAckReason>>,
        applied: &mut impl Iterator<Item = Applied<Interest>>,
        to: &mut Outside<'_, impl Effects>,
    ) -> Option<Recording> {
        let Asker { connection: id, subscriber, part } = asker;
        let mut reasons = Vec::with_capacity(asked.len());
        let (mut walks, mut recorded) = (Vec::new(), Vec::new());
        let (mut places, mut shared) = (Vec::new(), Vec::new());
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
                places.push(reasons.len() - 1);
            }
            if is_shared {
                // Groups do not receive retained messages (MQTT 5.0, 4.8.2).
                shared.push(filter);
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
        let packet_id = part.packet_id;
        let mut answer = Some(Recording { part, answer: Reasons::Subscribe(reasons), places, shared });
        if !recorded.is_empty() {
            self.record(id, answer.take());
            let lasts = subscriber.queue.is_some();
            let brought = walks.iter().filter(|(.., asked)| lasts && asked.is_some());
            let retained = brought.map(|(filter, ..)| filter.clone()).collect();
            let subscriptions = recorded;
            to.command(Command::Subscribe { subscriber, connection: id, packet_id, subscriptions, retained });
        }
        for (filter, interest, asked) in walks {
            match asked {
                Some(is_new) => self.open_walk(id, filter, interest, is_new, to),
                None => self.change_walk(id, &filter, interest),
            }
        }
        answer
    }

    fn record(&mut self, id: ConnectionId, answer: Option<Recording>) {
        if let (Some(client), Some(answer)) = (self.clients.get_mut(id), answer) {
            self.tally.add(Purpose::Subscriptions, answer.size_bytes());
            client.make_aside().recording.get_or_insert_default().push(answer);
        }
    }

    /// The ledger has recorded a SUBSCRIBE or UNSUBSCRIBE, or could not. `refused`: what of it there are too many groups
    /// for.
    pub(crate) fn recorded(
        &mut self,
        id: ConnectionId,
        packet_id: PacketId,
        (reason, refused): (ReasonCode, Vec<(usize, Box<str>)>),
        to: &mut Outside<'_, impl Effects>,
    ) {
        if !refused.is_empty() && self.clients.get(id).is_some_and(|client| client.has_changes) {
            // Its UNSUBSCRIBE of what is refused may have been taken in.
            self.write_changes(to);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(recording) = client.aside_mut().and_then(|aside| aside.recording.as_mut()) else { return };
        let Some(mut answer) = recording.take(packet_id) else { return };
        self.tally.sub(Purpose::Subscriptions, answer.size_bytes());
        refused.iter().for_each(|(_, filter)| recording.deny(filter));
        if recording.is_empty() {
            client.make_aside().recording = None;
        }
        if let Reasons::Subscribe(_) = &answer.answer {
            let mut bytes = 0;
            for filter in &answer.shared {
                bytes += client.end_joining(filter);
                self.changes.shapes.forget_shared(self.index.deep_shape(valid(filter)));
            }
            self.tally.sub(Purpose::Subscriptions, bytes);
        }
        if reason.is_error() {
            answer.answer.refuse(reason);
        }
        // Another answer that waits may be one to the same filter, and then it counts.
        let is_last_answer = client.aside().recording.is_none();
        client.tidy();
        let mut ended = Vec::new();
        if let Reasons::Subscribe(reasons) = &mut answer.answer {
            self.counters.refused_subscriptions.add(refused.len() as u64);
            for (place, filter) in refused {
                if let Some(reason) = answer.places.get(place).and_then(|place| reasons.get_mut(*place))
                    && !reason.is_error()
                {
                    *reason = SubAckReason::QuotaExceeded;
                }
                // A later SUBSCRIBE may ask for it again: then the answer to that one counts.
                let is_asked_again =
                    if is_shared(&filter) { client.is_joining(&filter) } else { !is_last_answer };
                if !is_asked_again && client.filters.remove(&filter) {
                    client.remove_shape(self.index.deep_shape(valid(&filter)));
                    let bytes = subscription_bytes(&filter);
                    self.tally.sub(Purpose::Subscriptions, bytes);
                    client.subscription_bytes -= bytes;
                    ended.push(filter);
                }
            }
        }
        let is_5 = client.session.version().is_some_and(Version::is_5);
        if matches!(answer.answer, Reasons::Unsubscribe(_)) && reason.is_error() && !is_5 {
            // Before MQTT 5 UNSUBACK cannot say that the subscription is still there.
            let reason = DisconnectReason::try_from(reason).unwrap_or(DisconnectReason::UnspecifiedError);
            let why = "the end of a subscription could not be recorded";
            return self.give_up(id, reason, why, to);
        }
        ended.iter().for_each(|filter| self.close_walk(id, filter, to));
        self.answer_part(id, answer, to);
    }

    /// A part is done: the packet is answered, or goes on.
    fn answer_part(&mut self, id: ConnectionId, answer: Recording, to: &mut Outside<'_, impl Effects>) {
        let Recording { part: Part { packet_id, is_last, so_far: mut reasons }, answer, .. } = answer;
        if is_last {
            reasons.append(answer);
            return self.acknowledge_changes(id, packet_id, &reasons, to);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        if let Some(request) = client.aside_mut().and_then(|aside| aside.request.as_mut()) {
            request.answered.append(answer);
            self.changes.line.push_back(id);
        }
    }

    fn notice_filter(
        &self,
        id: ConnectionId,
        filter: &str,
        granted: Option<Qos>,
        to: &mut Outside<'_, impl Effects>,
    ) {
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

    /// Sends SUBACK or UNSUBACK.
    fn acknowledge_changes(
        &mut self,
        id: ConnectionId,
        packet_id: PacketId,
        reasons: &Reasons,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let properties = AckProperties::default();
        match reasons {
            Reasons::Subscribe(reasons) => {
                let Some(reasons) = OneOrMore::new(reasons) else { return };
                self.acknowledge(id, &SubAck { packet_id, properties, reasons }.into(), to);
            }
            Reasons::Unsubscribe(reasons) => {
                let reasons = OneOrMore::new(reasons);
                self.acknowledge(id, &UnsubAck { packet_id, properties, reasons }.into(), to);
            }
        }
    }

    /// Sends an answer that may turn out larger than the client takes, or more than its version can say.
    fn acknowledge(&mut self, id: ConnectionId, packet: &Packet<'_>, to: &mut Outside<'_, impl Effects>) {
        let Some(session) = self.clients.get(id).map(|client| &client.session) else { return };
        let Some(version) = session.version() else { return };
        match packet.encoded_len(version) {
            Ok(len) if len <= session.packet_bytes_max() => self.send(id, packet, to),
            Ok(_) => {
                let why = "the answer would be larger than the client takes";
                self.give_up(id, DisconnectReason::PacketTooLarge, why, to);
            }
            // MQTT 3.1 cannot say that a subscription has failed.
            Err(_) => {
                self.give_up(id, DisconnectReason::TopicFilterInvalid, "a subscription was refused", to);
            }
        }
    }

    /// An UNSUBSCRIBE is in the index. Returns its answer, unless the ledger has to record it first.
    fn unsubscribed(
        &mut self,
        asker: Asker,
        filters: Vec<Result<Box<str>, UnsubAckReason>>,
        applied: &mut impl Iterator<Item = Applied<Interest>>,
        to: &mut Outside<'_, impl Effects>,
    ) -> Option<Recording> {
        let Asker { connection: id, subscriber, part } = asker;
        let mut reasons = Vec::with_capacity(filters.len());
        let mut recorded = Vec::new();
        let (mut places, mut shared) = (Vec::new(), Vec::new());
        for filter in filters {
            let filter = match filter {
                Ok(filter) => filter,
                Err(reason) => {
                    reasons.push(reason);
                    continue;
                }
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
            if is_shared {
                places.push(reasons.len() - 1);
                shared.push(filter.clone());
            }
            if is_shared || subscriber.queue.is_some() {
                recorded.push(filter);
            }
        }
        // That there is no such subscription may be because an UNSUBSCRIBE before has ended it, which is not recorded yet.
        let is_recording = self.clients.get(id).is_some_and(|client| client.aside().recording.is_some());
        let packet_id = part.packet_id;
        let mut answer = Some(Recording { part, answer: Reasons::Unsubscribe(reasons), places, shared });
        if !recorded.is_empty() || is_recording {
            self.record(id, answer.take());
            to.command(Command::Unsubscribe { subscriber, connection: id, packet_id, filters: recorded });
        }
        answer
    }

    /// Ends a connection because something cannot be answered.
    pub(crate) fn give_up(
        &mut self,
        id: ConnectionId,
        reason: DisconnectReason,
        why: &'static str,
        to: &mut Outside<'_, impl Effects>,
    ) {
        self.disconnect(id, reason, to);
        self.end(id, Ending { reason: reason.reason(), why, cause: Cause::WithWill, by: By::Server }, to);
        to.close(id);
    }
}

/// Writes changes to the index under several locks, one after the other: a look-up of a topic waits for one of them.
fn apply<'a>(index: &Subscriptions, changes: impl Iterator<Item = ChangeOf<'a>>) -> Vec<Applied<Interest>> {
    let mut applied = Vec::new();
    let mut changes = changes.peekable();
    while changes.peek().is_some() {
        let mut left = UNITS_PER_LOCK;
        let some = std::iter::from_fn(|| {
            let change = changes.next_if(|_| left > 0)?;
            let (Change::Subscribe { filter, .. } | Change::Unsubscribe { filter, .. }) = &change;
            left = left.saturating_sub(units(filter.as_str()));
            Some(change)
        });
        index.apply(some, &mut applied);
    }
    applied
}

/// `qos_max` is the highest QoS that the rules grant.
pub(crate) fn grant(
    filter: TopicFilter<'_>,
    subscription: &Subscription<'_>,
    identifier: Option<NonZeroU32>,
    (qos_max, offered): (Qos, Terms),
) -> Granted {
    let options = subscription.options();
    let interest = Interest::new(options.qos.min(offered.qos_max()).min(qos_max))
        .with_no_local(options.no_local)
        .with_retain_as_published(options.retain_as_published)
        .with_identifier(identifier);
    let retain_handling =
        if offered.retain_available() { options.retain_handling } else { RetainHandling::DoNotSend };
    Granted { filter: filter.as_str().into(), interest, retain_handling }
}

/// The filter, if this server takes it on the terms of this connection.
pub(crate) fn accept<'a>(
    filter: TopicFilter<'a>,
    has_identifier: bool,
    version: Option<Version>,
    (settings, offered): (&Settings, Terms),
) -> Result<TopicFilter<'a>, SubAckReason> {
    let version = version.unwrap_or(Version::V3_1_1);
    let refusal = settings.refusal(filter, has_identifier, version);
    refusal.or_else(|| offered.refusal(filter, version)).map_or(Ok(filter), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(number: u16) -> Recording {
        let packet_id = PacketId::new(number).expect("not 0");
        let so_far = Reasons::Unsubscribe(Vec::new());
        let answer = Reasons::Unsubscribe(vec![UnsubAckReason::Success]);
        let part = Part { packet_id, is_last: true, so_far };
        Recording { part, answer, places: Vec::new(), shared: vec!["$share/g/a".into()] }
    }

    #[test]
    fn an_answer_of_the_ledger_moves_no_other_answer() {
        let mut recordings = Recordings::default();
        (1..=10_000).for_each(|number| recordings.push(answer(number)));
        let places = |recordings: &Recordings| -> Vec<*const Recording> {
            recordings.answers.iter().map(|(_, answer)| std::ptr::from_ref(answer)).collect()
        };
        let before = places(&recordings);
        for number in 1..=100 {
            let packet_id = PacketId::new(number).expect("not 0");
            assert_eq!(recordings.take(packet_id).expect("it is there").part.packet_id, packet_id);
        }
        let after = places(&recordings);
        let moved = before[100..].iter().zip(&after).filter(|(before, after)| before != after).count();
        assert_eq!((after.len(), moved), (9_900, 0));
        (101..=10_000).for_each(|number| drop(recordings.take(PacketId::new(number).expect("not 0"))));
        assert_eq!(recordings.size_bytes(), 0);
        assert!(recordings.naming.is_empty(), "nothing is left");
    }

    /// The answers that do not name a filter are not looked at.
    #[test]
    fn a_refused_filter_leads_to_the_next_answer_that_names_it() {
        let naming = |number, filter: &str| Recording {
            places: vec![0],
            shared: vec![filter.into()],
            ..answer(number)
        };
        let mut recordings = Recordings::default();
        for number in 1..=6 {
            recordings.push(naming(number, if number % 2 == 1 { "$share/g/a" } else { "$share/g/b" }));
        }
        let take = |recordings: &mut Recordings, number| {
            let taken = recordings.take(PacketId::new(number).expect("not 0")).expect("it is there");
            matches!(&taken.answer, Reasons::Unsubscribe(reasons) if reasons[0] == UnsubAckReason::NoSubscriptionExisted)
        };
        assert!(!take(&mut recordings, 1));
        recordings.deny("$share/g/a");
        recordings.deny("$share/g/c");
        assert_eq!(recordings.naming["$share/g/a"], [3, 5]);
        assert_eq!([2, 3, 4].map(|number| take(&mut recordings, number)), [false, true, false]);
        recordings.deny("$share/g/b");
        assert_eq!([5, 6].map(|number| take(&mut recordings, number)), [false, true]);
        recordings.deny("$share/g/a");
    }
}
