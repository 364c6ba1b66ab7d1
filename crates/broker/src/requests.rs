//! SUBSCRIBE and UNSUBSCRIBE as they come in: a bounded number of filters a turn.

use std::num::NonZeroU32;

use base::{Budget, ConnectionId, Purpose};
use topic::TopicFilter;
use wire::{
    OneOrMoreIter, PacketId, RequestedFilter, SubAckReason, Subscribe, Subscription, UnsubAckReason,
    Unsubscribe, Version,
};

use crate::client::Client;
use crate::effects::Outside;
use crate::filters::{Shapes, subscription_bytes};
use crate::pressure::Blocker;
use crate::subscribe::{Asks, Granted, Part, Pending, Reasons, accept, grant};
use crate::{Effects, Room, Shard};

/// Units of work that a turn does for packets that have just been read, and again for packets that wait in line. A
/// filter takes about three microseconds, with its place in the index and its cursor over retained messages.
pub(crate) const UNITS_PER_TURN: usize = 128;
/// Units that one packet gets before it is the next one's turn.
const UNITS_PER_PART: usize = 64;
/// A filter is one unit, and one more for each of this number of bytes.
const BYTES_PER_UNIT: usize = 256;

/// A SUBSCRIBE or UNSUBSCRIBE that takes more than one turn. The client's later packets wait until its last filters have
/// been taken in, so that everything happens in the order in which it was sent.
#[derive(Debug)]
pub(crate) struct Request {
    packet_id: PacketId,
    version: Version,
    kind: Kind,
    /// Its filters as they came; those before `at` are done.
    bytes: Box<[u8]>,
    at: usize,
    /// The codes of those that are done.
    pub(crate) answered: Reasons,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// With the subscription identifier of all its filters.
    Subscribe(Option<NonZeroU32>),
    Unsubscribe,
}

impl Kind {
    fn no_reasons(self) -> Reasons {
        match self {
            Self::Subscribe(_) => Reasons::Subscribe(Vec::new()),
            Self::Unsubscribe => Reasons::Unsubscribe(Vec::new()),
        }
    }
}

impl Request {
    /// Returns the memory of the request, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// The units that it takes to add a filter to the subscriptions, or to remove it.
pub(crate) fn units(filter: &str) -> usize {
    1 + filter.len() / BYTES_PER_UNIT
}

fn units_of(filter: RequestedFilter<'_>) -> usize {
    filter.map_or(1, |filter| units(filter.as_str()))
}

impl Shard {
    /// Takes a SUBSCRIBE in. It is answered when it is written.
    pub(crate) fn subscribe(
        &mut self,
        id: ConnectionId,
        subscribe: &Subscribe<'_>,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let identifier = subscribe.properties.subscription_identifier;
        let identifier = identifier.and_then(|identifier| NonZeroU32::new(identifier.value()));
        let mut items = subscribe.subscriptions.iter();
        let mut left = self.changes.units;
        let asks = Asks::Subscribe(self.take_subscriptions(id, &mut items, identifier, &mut left));
        self.changes.units = left;
        let rest = items.as_bytes().expect("a packet that was decoded is bytes");
        self.begin_request(id, (subscribe.packet_id, Kind::Subscribe(identifier)), asks, rest, to);
    }

    /// Takes an UNSUBSCRIBE in. It is answered when it is written.
    pub(crate) fn unsubscribe(
        &mut self,
        id: ConnectionId,
        unsubscribe: &Unsubscribe<'_>,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let mut items = unsubscribe.filters.iter();
        let mut left = self.changes.units;
        let asks = Asks::Unsubscribe(self.take_filters(id, &mut items, &mut left));
        self.changes.units = left;
        let rest = items.as_bytes().expect("a packet that was decoded is bytes");
        self.begin_request(id, (unsubscribe.packet_id, Kind::Unsubscribe), asks, rest, to);
    }

    /// Goes on with packets that wait in line, each with one part.
    pub(crate) fn continue_requests(&mut self, to: &mut Outside<'_, impl Effects>) {
        let mut left = UNITS_PER_TURN;
        while left > 0
            && !self.changes.opens_enough()
            && let Some(id) = self.changes.line.pop_front()
        {
            if to.command_room() == Room::Over {
                // Each filter may be a command. The ledger says when it has read what it has.
                self.changes.line.push_front(id);
                self.changes.waits_for_ledger = true;
                return;
            }
            let part = if self.changes.line.is_empty() { left } else { left.min(UNITS_PER_PART) };
            left -= part - self.continue_request(id, part, to);
        }
    }

    /// Keeps what is left of a packet, if anything is.
    fn begin_request(
        &mut self,
        id: ConnectionId,
        (packet_id, kind): (PacketId, Kind),
        asks: Asks,
        rest: &[u8],
        to: &mut Outside<'_, impl Effects>,
    ) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(version) = client.session.version() else { return };
        let part = Part { packet_id, is_last: rest.is_empty(), so_far: kind.no_reasons() };
        if !part.is_last {
            self.tally.add(Purpose::Partials, rest.len());
            let answered = kind.no_reasons();
            let request = Request { packet_id, version, kind, bytes: rest.into(), at: 0, answered };
            client.make_aside().request = Some(Box::new(request));
            self.block(id, Blocker::Request, to);
        }
        self.push_part(id, part, asks);
    }

    /// Handles one part of a packet that waits in line. Returns the number of units that are left.
    fn continue_request(
        &mut self,
        id: ConnectionId,
        mut left: usize,
        to: &mut Outside<'_, impl Effects>,
    ) -> usize {
        let request = self.clients.get_mut(id).and_then(Client::take_request);
        let Some(mut request) = request else { return left };
        let bytes = &request.bytes[request.at..];
        let (asks, rest) = match request.kind {
            Kind::Subscribe(identifier) => {
                let mut items = OneOrMoreIter::of_bytes(bytes, request.version);
                let asked = self.take_subscriptions(id, &mut items, identifier, &mut left);
                (Asks::Subscribe(asked), items.as_bytes())
            }
            Kind::Unsubscribe => {
                let mut items = OneOrMoreIter::of_bytes(bytes, request.version);
                let filters = self.take_filters(id, &mut items, &mut left);
                (Asks::Unsubscribe(filters), items.as_bytes())
            }
        };
        request.at = request.bytes.len() - rest.map_or(0, <[u8]>::len);
        let (packet_id, is_last) = (request.packet_id, request.at == request.bytes.len());
        if !is_last {
            let so_far = request.kind.no_reasons();
            if let Some(client) = self.clients.get_mut(id) {
                client.make_aside().request = Some(request);
            }
            self.push_part(id, Part { packet_id, is_last, so_far }, asks);
            return left;
        }
        self.tally.sub(Purpose::Partials, request.size_bytes());
        self.push_part(id, Part { packet_id, is_last, so_far: request.answered }, asks);
        self.unblock_from(id, |blocker| matches!(blocker, Blocker::Request), to);
        left
    }

    /// Adds a part of a request. Its changes are written with all other changes of this turn.
    fn push_part(&mut self, id: ConnectionId, part: Part, asks: Asks) {
        if asks.is_empty() && !part.is_last {
            return self.changes.line.push_back(id);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(subscriber) = client.subscriber.clone() else { return };
        client.has_changes = true;
        self.changes.pending.push(Pending { subscriber, connection: id, part, asks });
    }

    /// Decides about subscriptions, as far as the units reach.
    fn take_subscriptions<'a>(
        &mut self,
        id: ConnectionId,
        items: &mut OneOrMoreIter<'a, Subscription<'a>>,
        identifier: Option<NonZeroU32>,
        left: &mut usize,
    ) -> Vec<Result<Granted, SubAckReason>> {
        let Some(client) = self.clients.get(id) else { return Vec::new() };
        // The subscriptions of a lasting session stay when its client has left. A client with many subscriptions can
        // stay connected for as long as it likes.
        let is_kept = client.queue().is_some() || client.subscription_bytes > Budget::WAITING_BYTES_ALLOWED;
        let budget = self.tally.budget();
        let is_tight = if is_kept { budget.is_tight_to_keep() } else { budget.is_tight() }
            || budget.has_share_of_subscriptions(client.subscription_bytes);
        let version = client.session.version();
        let (offered, mount) = (client.session.offered(&self.settings), client.mount.clone());
        let granted = self.subscribe_rules(id);
        let (mut asked, mut denied) = (Vec::new(), 0);
        while *left > 0
            && let Some(subscription) = items.next()
        {
            *left = left.saturating_sub(units_of(subscription.filter()));
            let mut whole = String::new();
            let filter = subscription.filter().map_err(|_| SubAckReason::TopicFilterInvalid);
            let filter = filter.and_then(|filter| match &mount {
                None => Ok(filter),
                Some(mount) => mount.filter(filter, &mut whole).ok_or(SubAckReason::TopicFilterInvalid),
            });
            let filter = filter
                .and_then(|filter| accept(filter, identifier.is_some(), version, (&self.settings, offered)));
            let filter =
                filter.and_then(|filter| Ok((filter, granted(filter).ok_or(SubAckReason::NotAuthorized)?)));
            denied += u64::from(filter == Err(SubAckReason::NotAuthorized));
            let admitted =
                filter.and_then(|(filter, qos)| self.admit(id, filter, is_tight).map(|()| (filter, qos)));
            if let Ok((filter, _)) = admitted
                && filter.shared().is_some()
                && let Some(client) = self.clients.get_mut(id)
            {
                let bytes = client.begin_joining(filter.as_str());
                self.tally.add(Purpose::Subscriptions, bytes);
            }
            asked.push(
                admitted
                    .map(|(filter, qos_max)| grant(filter, &subscription, identifier, (qos_max, offered))),
            );
        }
        let refused = asked.iter().filter(|answer| answer.is_err()).count();
        self.counters.refused_subscriptions.add(refused as u64);
        self.counters.denied_subscribe.add(denied);
        asked
    }

    /// Notes that a client has subscribed to a filter.
    ///
    /// # Errors
    /// It has, or all have, as much as they may.
    fn admit(
        &mut self,
        id: ConnectionId,
        filter: TopicFilter<'_>,
        is_tight: bool,
    ) -> Result<(), SubAckReason> {
        let Some(client) = self.clients.get_mut(id) else { return Err(SubAckReason::UnspecifiedError) };
        if client.filters.contains(filter.as_str()) {
            return Ok(());
        }
        if is_tight || client.filters.len() >= self.settings.subscriptions_max {
            self.counters.refused_subscriptions_memory.add(u64::from(is_tight));
            return Err(SubAckReason::QuotaExceeded);
        }
        let shape = self.index.deep_shape(filter);
        if shape.is_some() {
            let own = client.aside().shapes.as_deref();
            let is_new = |shape| own.is_none_or(|own| !own.contains(shape));
            let is_over = own.map_or(0, Shapes::len) >= self.settings.deep_shapes_per_client_max;
            let deepens = self.index.would_deepen(filter);
            let pending = &mut self.changes.shapes;
            let is_full = |deep| deep + pending.len() >= self.settings.deep_shapes_max;
            let is_unknown = shape.is_some_and(|shape| !pending.contains(shape));
            if is_over && shape.is_some_and(is_new) || is_unknown && deepens.is_some_and(is_full) {
                self.counters.refused_subscriptions_shapes.add(1);
                return Err(SubAckReason::QuotaExceeded);
            }
            if let Some(shape) = shape.filter(|_| deepens.is_some()) {
                pending.insert(shape, filter.shared().is_some());
            }
            client.add_shape(shape);
        }
        let bytes = subscription_bytes(filter.as_str());
        self.tally.add(Purpose::Subscriptions, bytes);
        client.subscription_bytes += bytes;
        client.filters.insert(filter.as_str());
        Ok(())
    }

    /// Takes filters off a client's list, as far as the units reach. Those that are not on it are errors: so is the second
    /// of the same filter in one packet [MQTT-3.10.4-6].
    fn take_filters<'a>(
        &mut self,
        id: ConnectionId,
        items: &mut OneOrMoreIter<'a, RequestedFilter<'a>>,
        left: &mut usize,
    ) -> Vec<Result<Box<str>, UnsubAckReason>> {
        let may = self.unsubscribe_rules(id);
        let Some(client) = self.clients.get_mut(id) else { return Vec::new() };
        let (mount, mut filters) = (client.mount.clone(), Vec::new());
        while *left > 0
            && let Some(filter) = items.next()
        {
            *left = left.saturating_sub(units_of(filter));
            let mut whole = String::new();
            let filter = filter.ok().and_then(|filter| match &mount {
                None => Some(filter),
                Some(mount) => mount.filter(filter, &mut whole),
            });
            if filter.is_some_and(|filter| !may(filter)) {
                self.counters.denied_unsubscribe.add(1);
                filters.push(Err(UnsubAckReason::NotAuthorized));
                continue;
            }
            let known = filter.filter(|filter| client.filters.remove(filter.as_str()));
            filters.push(known.ok_or(UnsubAckReason::NoSubscriptionExisted).map(|filter| {
                client.remove_shape(self.index.deep_shape(filter));
                let bytes = subscription_bytes(filter.as_str());
                self.tally.sub(Purpose::Subscriptions, bytes);
                client.subscription_bytes -= bytes;
                filter.as_str().into()
            }));
        }
        filters
    }
}
