//! Subscriptions that last or are shared.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use index::{Change, Interest, Place, QueueId, Subscriber};
use session::Now;
use topic::TopicFilter;
use wire::{PacketId, ReasonCode};

use crate::command::Reply;
use crate::replies::Answer;
use crate::session::{Online, Session};
use crate::{Effects, Ledger, Record};

/// What one SUBSCRIBE asks for, as far as it is the ledger's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) subscriptions: &'a [(Box<str>, Interest)],
    /// Filters of those that are to be brought what is retained.
    pub(crate) retained: &'a [Box<str>],
}

/// What a subscription holds of memory beside its filter, which a group or a retained cursor has once more.
const SUBSCRIPTION_BYTES: usize = 256;

/// What a subscription to a filter holds of memory, about.
pub(crate) fn subscription_bytes(filter: &str) -> usize {
    2 * filter.len() + SUBSCRIPTION_BYTES
}

impl Ledger {
    /// Takes subscriptions in: of a session that lasts all of them, of another those it shares.
    pub(crate) fn subscribe(
        &mut self,
        subscriber: &Arc<Subscriber>,
        place: Place,
        packet_id: PacketId,
        asked: Asked<'_>,
        now: Now,
        to: &mut impl Effects,
    ) {
        let subscriptions = asked.subscriptions;
        let Some(id) = self.session_on(subscriber, place) else {
            return self.forget_if_ended(subscriber, subscriptions);
        };
        let shared = |filter: &str| TopicFilter::new(filter).is_ok_and(|filter| filter.shared().is_some());
        let groups: Vec<Option<QueueId>> =
            subscriptions.iter().map(|(filter, _)| shared(filter).then(|| self.group_of(filter))).collect();
        let reason = match self.record_subscriptions(id, place, asked, &groups, to) {
            Ok(()) => {
                for ((filter, interest), group) in subscriptions.iter().zip(&groups) {
                    if let Some(group) = group {
                        self.join(id, *group, *interest);
                    }
                    if let Some(session) = self.sessions.find_mut(id)
                        && session.subscriptions.insert(filter.clone(), *interest).is_none()
                    {
                        self.subscription_bytes += subscription_bytes(filter);
                    }
                }
                asked.retained.iter().for_each(|filter| self.begin_cursor(id, filter));
                ReasonCode::Success
            }
            Err(reason) => {
                groups.into_iter().flatten().for_each(|group| self.remove_if_empty(group));
                reason
            }
        };
        self.write_to_index(id, subscriptions.iter().map(|(filter, _)| &**filter), reason);
        self.answer_recorded(id, place, packet_id, reason, now, to);
    }

    /// Ends subscriptions; those that there are not are passed over.
    pub(crate) fn unsubscribe(
        &mut self,
        subscriber: &Arc<Subscriber>,
        place: Place,
        packet_id: PacketId,
        filters: &[Box<str>],
        now: Now,
        to: &mut impl Effects,
    ) {
        let Some(id) = self.session_on(subscriber, place) else { return };
        let Some(session) = self.sessions.find(id) else { return };
        let known = filters.iter().filter(|filter| session.subscriptions.contains_key(*filter));
        let filters: BTreeSet<&str> = known.map(|filter| &**filter).collect();
        let reason = match self.record_unsubscriptions(id, &filters, to) {
            Ok(()) => {
                filters.iter().for_each(|filter| self.end_subscription(id, filter));
                ReasonCode::Success
            }
            Err(reason) => reason,
        };
        self.write_to_index(id, filters.iter().copied(), reason);
        self.answer_recorded(id, place, packet_id, reason, now, to);
    }

    /// The session has ended, of which the shard had not heard when it wrote these subscriptions to the index: nobody
    /// else takes them out again.
    fn forget_if_ended(&self, subscriber: &Arc<Subscriber>, subscriptions: &[(Box<str>, Interest)]) {
        if subscriber.queue.is_some_and(|id| self.sessions.find(id).is_none()) {
            let filters = subscriptions.iter().filter_map(|(filter, _)| TopicFilter::new(filter).ok());
            let plain = filters.filter(|filter| filter.shared().is_none());
            let changes = plain.map(|filter| Change::Unsubscribe { filter, subscriber });
            self.index.apply(changes, &mut Vec::new());
        }
    }

    /// The shard has written a change to the index before it came here. If it was refused, the index gets back what is
    /// recorded; that may undo what the shard has written since, which is made up for when it comes here.
    fn write_to_index<'a>(
        &mut self,
        id: QueueId,
        filters: impl Iterator<Item = &'a str>,
        reason: ReasonCode,
    ) {
        let Some(session) = self.sessions.find_mut(id) else { return };
        session.was_refused |= reason.is_error();
        if !session.was_refused {
            return;
        }
        let plain = filters.filter_map(|filter| TopicFilter::new(filter).ok());
        let plain = plain.filter(|filter| filter.shared().is_none());
        let subscriber = &session.subscriber;
        let changes = plain.map(|filter| match session.subscriptions.get(filter.as_str()) {
            Some(interest) => Change::Subscribe { filter, subscriber, options: *interest },
            None => Change::Unsubscribe { filter, subscriber },
        });
        self.index.apply(changes, &mut Vec::new());
    }

    /// The session of a connection. One that ends with its connection comes to be when it first shares something.
    fn session_on(&mut self, subscriber: &Arc<Subscriber>, place: Place) -> Option<QueueId> {
        if let Some(id) = subscriber.queue {
            return self.is_on(id, place).then_some(id);
        }
        let client = self.claims.find(&subscriber.client_id)?;
        let holder = client.holder.as_ref().filter(|holder| holder.place == place)?;
        if let Some(id) = client.session {
            return self.is_on(id, place).then_some(id);
        }
        let mut online = Online::new(place, holder.window, holder.packet_bytes_max);
        online.is_open = true;
        let mut session = Session::new(Arc::clone(subscriber), None);
        session.online = Some(Box::new(online));
        let id = self.sessions.insert(|_| session);
        self.claims.set_session(&subscriber.client_id, Some(id));
        Some(id)
    }

    fn record_subscriptions<'a>(
        &mut self,
        id: QueueId,
        place: Place,
        Asked { subscriptions, retained }: Asked<'a>,
        groups: &[Option<QueueId>],
        to: &mut impl Effects,
    ) -> Result<(), ReasonCode> {
        let incarnation = self.sessions.find(id).and_then(|session| session.incarnation);
        let Some(session) = incarnation else { return Ok(()) };
        let mut records = Vec::with_capacity(subscriptions.len());
        let known = self.sessions.find(id).map(|session| &session.subscriptions);
        for ((filter, interest), group) in subscriptions.iter().zip(groups) {
            // Many clients subscribe to the same whenever they connect.
            if known.and_then(|known| known.get(filter)) == Some(interest) {
                continue;
            }
            let filter = Cow::Borrowed(&**filter);
            let group = group.and_then(|group| self.groups.table.find(group));
            if let Some(group) = group.filter(|group| !group.is_recorded) {
                records.push(Record::Group { group: group.incarnation, filter: filter.clone() });
            }
            records.push(Record::Subscribed { session, filter, interest: *interest });
        }
        let last = self.last_message;
        let cursor = |filter: &'a str| Record::Cursor { session, filter: Cow::Borrowed(filter), last };
        records.extend(retained.iter().map(|filter| cursor(filter)));
        match records.is_empty() {
            true => self.replies.promise(place)?,
            false => self.replies.commit(&records, to).map_err(|refusal| self.reason(refusal))?,
        }
        for group in groups.iter().flatten() {
            if let Some(group) = self.groups.table.find_mut(*group) {
                group.is_recorded = true;
            }
        }
        Ok(())
    }

    fn record_unsubscriptions(
        &mut self,
        id: QueueId,
        filters: &BTreeSet<&str>,
        to: &mut impl Effects,
    ) -> Result<(), ReasonCode> {
        let incarnation = self.sessions.find(id).and_then(|session| session.incarnation);
        let mut records = Vec::with_capacity(filters.len());
        for filter in filters {
            if let Some(session) = incarnation {
                records.push(Record::Unsubscribed { session, filter: Cow::Borrowed(filter) });
            }
            let group = self.groups.of_filter(filter).and_then(|group| self.groups.table.find(group));
            if let Some(group) = group.filter(|group| group.members == 1 && group.is_recorded) {
                records.push(Record::GroupEnded { group: group.incarnation });
            }
        }
        if records.is_empty() {
            return Ok(());
        }
        self.replies.commit(&records, to).map_err(|refusal| self.reason(refusal))
    }

    fn end_subscription(&mut self, id: QueueId, filter: &str) {
        let Some(session) = self.sessions.find_mut(id) else { return };
        if session.subscriptions.remove(filter).is_some() {
            self.subscription_bytes -= subscription_bytes(filter);
        }
        session.cursors.remove(filter);
        let Some(group) = self.groups.of_filter(filter) else { return };
        if let Some(share) = session.shares.remove(&group) {
            let subscriber = Arc::clone(&session.subscriber);
            self.leave(&subscriber, id, group, &share);
        }
    }

    /// What is not recorded is answered at once.
    fn answer_recorded(
        &mut self,
        id: QueueId,
        place: Place,
        packet_id: PacketId,
        reason: ReasonCode,
        now: Now,
        to: &mut impl Effects,
    ) {
        let reply = Reply::Recorded { connection: place.connection, packet_id, reason };
        let is_recorded = self.sessions.find(id).is_some_and(|session| session.incarnation.is_some());
        if is_recorded {
            self.answer(Answer { shard: place.shard, reply, brake: None }, now, to);
        } else {
            to.post(place.shard, reply);
        }
    }
}
