//! Subscriptions that last or are shared.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Interest, Now, Place, QueueId, Subscriber};
use index::Change;
use topic::TopicFilter;
use wire::{PacketId, ReasonCode};

use crate::gauges::add;
use crate::lines::group::Begun;
use crate::lines::session::{Live, Online, Session, Unfinished};
use crate::lines::{Line, Owner};
use crate::record::count_within;
use crate::record::{Effects, Record};
use crate::replies::Answer;
use crate::sessions::SessionWork;
use protocol::Reply;

/// The part of one SUBSCRIBE that concerns the ledger.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) subscriptions: &'a [(Box<str>, Interest)],
    /// Filters of those that are to be brought what is retained.
    pub(crate) retained: &'a [Box<str>],
}

/// The client of a SUBSCRIBE or UNSUBSCRIBE, and its number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) subscriber: &'a Arc<Subscriber>,
    pub(crate) place: Place,
    pub(crate) packet_id: PacketId,
}

/// Some subscriptions, each with its group if it is shared.
type Piece<'a> = (&'a [(Box<str>, Interest)], &'a [Option<QueueId>]);

/// Filters of a SUBSCRIBE that are refused, with their places in it.
type Refused = Vec<(usize, Box<str>)>;

/// Bytes of memory of a subscription beside its filter, which a group or a retained cursor stores a second time.
const SUBSCRIPTION_BYTES: usize = 256;

/// The most that a record with a filter takes beside the filter, in bytes.
const FILTER_RECORD_BYTES: usize = 32;

/// Approximate bytes of memory of a subscription to a filter.
pub(crate) fn subscription_bytes(filter: &str) -> usize {
    2 * filter.len() + SUBSCRIPTION_BYTES
}

impl SessionWork<'_> {
    /// Takes subscriptions in: of a session that lasts all of them, of another those it shares.
    pub(crate) fn subscribe(
        &mut self,
        Asker { subscriber, place, packet_id }: Asker<'_>,
        asked: Asked<'_>,
        now: Now,
        to: &mut impl Effects,
    ) {
        let subscriptions = asked.subscriptions;
        let Some(id) = self.session_on(subscriber, place) else {
            return self.forget_if_ended(subscriber, subscriptions);
        };
        let (groups, mut refused) = self.groups_for(id, subscriptions);
        let mut granted = Cow::Borrowed(subscriptions);
        if !refused.is_empty() {
            let mut places = refused.iter().map(|(place, _)| *place).peekable();
            let is_granted = |(place, _): &(usize, _)| places.next_if_eq(place).is_none();
            let left = subscriptions.iter().enumerate().filter(is_granted);
            granted = left.map(|(_, subscription)| subscription.clone()).collect();
        }
        let asked = Asked { subscriptions: &granted, ..asked };
        let reason = match self.take_in(id, place, asked, &groups, to) {
            Ok(()) => ReasonCode::Success,
            Err(reason) => {
                groups.into_iter().flatten().for_each(|group| self.lines.remove_if_empty(group));
                let known = self.lines.session(id).map(|session| &session.subscriptions);
                let is_there = |filter: &str| known.is_some_and(|known| known.contains_key(filter));
                let lost = subscriptions.iter().enumerate().filter(|(_, (filter, _))| !is_there(filter));
                refused = lost.map(|(place, (filter, _))| (place, filter.clone())).collect();
                reason
            }
        };
        self.write_to_index(id, granted.iter().map(|(filter, _)| &**filter), reason);
        let reply = Reply::Recorded { connection: place.connection, packet_id, reason, refused };
        self.answer_recorded(id, place, reply, now, to);
    }

    /// The groups that these lead to, none for a plain filter; they come to be if there are none yet. Then those that are
    /// refused, with their places; they are not among the others.
    fn groups_for(
        &mut self,
        id: QueueId,
        subscriptions: &[(Box<str>, Interest)],
    ) -> (Vec<Option<QueueId>>, Refused) {
        let (mut groups, mut refused) = (Vec::with_capacity(subscriptions.len()), Vec::new());
        let mut joined = BTreeSet::new();
        for (place, (filter, _)) in subscriptions.iter().enumerate() {
            if TopicFilter::new(filter).is_ok_and(|filter| filter.shared().is_none()) {
                groups.push(None);
                continue;
            }
            match self.group_for(id, filter, &mut joined) {
                Some(group) => groups.push(Some(group)),
                None => refused.push((place, filter.clone())),
            }
        }
        add(&self.gauges.shared_subscriptions_refused, refused.len());
        (groups, refused)
    }

    /// The group that a session is to be a member of, if it may be. It becomes a member of those in `joined` too.
    fn group_for(&mut self, id: QueueId, filter: &str, joined: &mut BTreeSet<QueueId>) -> Option<QueueId> {
        let session = self.lines.session(id)?;
        let group = self.lines.filters.of_filter(filter);
        let is_member = |group: &QueueId| session.shares.contains_key(group) || joined.contains(group);
        if group.as_ref().is_some_and(is_member) {
            return group;
        }
        if session.shares.len() + joined.len() >= self.settings.shared_subscriptions_max {
            return None;
        }
        let is_ending = |group: QueueId| self.lines.group(group).is_some_and(|group| group.is_ending);
        if group.is_some_and(is_ending) {
            return None;
        }
        if group.is_none() {
            // A session that joins a group adds nothing to the cost of a message. A session that begins a group does.
            let Begun { groups, of_founder } = self.lines.filters.begun_on_filter_of(filter, id);
            let groups_max = self.settings.groups_per_filter_max;
            if groups >= groups_max || of_founder >= groups_max.div_ceil(2) {
                return None;
            }
        }
        let group = self.lines.group_of(filter, id, &mut self.replies.numbers);
        joined.insert(group);
        Some(group)
    }

    /// Ends subscriptions; those that there are not are passed over.
    pub(crate) fn unsubscribe(
        &mut self,
        Asker { subscriber, place, packet_id }: Asker<'_>,
        filters: &[Box<str>],
        now: Now,
        to: &mut impl Effects,
    ) {
        let Some(id) = self.session_on(subscriber, place) else { return };
        let session = self.lines.session(id).expect("it is on this connection");
        let known = filters.iter().filter(|filter| session.subscriptions.contains_key(*filter));
        let filters: BTreeSet<&str> = known.map(|filter| &**filter).collect();
        let reason = self.end_subscriptions(id, &filters, to).err().unwrap_or(ReasonCode::Success);
        self.write_to_index(id, filters.iter().copied(), reason);
        let reply = Reply::Recorded { connection: place.connection, packet_id, reason, refused: Vec::new() };
        self.answer_recorded(id, place, reply, now, to);
    }

    /// The session has ended, of which the shard had not heard when it wrote these subscriptions to the index: nobody
    /// else takes them out again.
    fn forget_if_ended(&self, subscriber: &Arc<Subscriber>, subscriptions: &[(Box<str>, Interest)]) {
        if subscriber.queue.is_some_and(|id| self.lines.session(id).is_none()) {
            let filters = subscriptions.iter().filter_map(|(filter, _)| TopicFilter::new(filter).ok());
            let plain = filters.filter(|filter| filter.shared().is_none());
            let changes = plain.map(|filter| Change::Unsubscribe { filter, subscriber });
            self.lines.index.apply(changes, &mut Vec::new());
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
        let session = self.lines.session_mut(id).expect("the session that subscribes is there");
        // Of one that ends with its connection, the shard has only what is not shared, and that is not asked for here.
        let Some(lasting) = &mut session.lasting else { return };
        lasting.was_refused |= reason.is_error();
        if !lasting.was_refused {
            return;
        }
        let plain = filters.filter_map(|filter| TopicFilter::new(filter).ok());
        let plain = plain.filter(|filter| filter.shared().is_none());
        let session = self.lines.session(id).expect("it was there a moment ago");
        let subscriber = &session.subscriber;
        let changes = plain.map(|filter| match session.subscriptions.get(filter.as_str()) {
            Some(interest) => Change::Subscribe { filter, subscriber, options: *interest },
            None => Change::Unsubscribe { filter, subscriber },
        });
        self.lines.index.apply(changes, &mut Vec::new());
    }

    /// The session of a connection. One that ends with its connection comes to be when it first shares something.
    fn session_on(&mut self, subscriber: &Arc<Subscriber>, place: Place) -> Option<QueueId> {
        if let Some(id) = subscriber.queue {
            return self.lines.is_on(id, place).then_some(id);
        }
        let client = self.sessions.claims.find(&subscriber.client_id)?;
        let holder = client.holder.as_ref().filter(|holder| holder.place == place)?;
        if let Some(id) = client.session {
            return self.lines.is_on(id, place).then_some(id);
        }
        let mut online = Online::new(place, holder.window, holder.packet_bytes_max);
        online.is_open = true;
        let session = Session::clean(Arc::clone(subscriber), online);
        let id = self.lines.insert(|_| Line::new(Owner::Session(session)));
        self.sessions.claims.set_session(&subscriber.client_id, Some(id));
        Some(id)
    }

    /// Records subscriptions and makes them so, in pieces that fit into a frame. If one piece is refused, the new
    /// subscriptions of the earlier pieces end again.
    fn take_in(
        &mut self,
        id: QueueId,
        place: Place,
        Asked { subscriptions, retained }: Asked<'_>,
        groups: &[Option<QueueId>],
        to: &mut impl Effects,
    ) -> Result<(), ReasonCode> {
        let brought: BTreeSet<&str> = retained.iter().map(|filter| &**filter).collect();
        let is_brought = |filter: &str| brought.contains(filter);
        let bytes_of = |((filter, _), group): (&(Box<str>, Interest), &Option<QueueId>)| {
            // The record of a cursor that goes back has the filter and a key that is at most as long.
            let records = 1 + usize::from(group.is_some()) + 2 * usize::from(is_brought(filter));
            records * (filter.len() + FILTER_RECORD_BYTES)
        };
        let mut new = BTreeSet::new();
        let (mut subscriptions, mut groups) = (subscriptions, groups);
        while !subscriptions.is_empty() {
            let each = subscriptions.iter().zip(groups).map(bytes_of);
            let (piece, rest) = subscriptions.split_at(count_within(each, to.group_bytes_max()));
            let (their_groups, rest_of_groups) = groups.split_at(piece.len());
            (subscriptions, groups) = (rest, rest_of_groups);
            if let Err(reason) = self.record_subscriptions(id, place, (piece, their_groups), &is_brought, to)
            {
                let _ = self.end_subscriptions(id, &new, to);
                return Err(reason);
            }
            for ((filter, interest), group) in piece.iter().zip(their_groups) {
                if let Some(group) = group {
                    self.lines.join(id, *group, *interest);
                }
                let session = self.lines.session_mut(id).expect("the session that subscribes is there");
                if session.subscriptions.insert(filter.clone(), *interest).is_none() {
                    self.sessions.subscription_bytes += subscription_bytes(filter);
                    new.insert(&**filter);
                }
                if is_brought(filter) {
                    self.begin_cursor(id, filter);
                }
            }
        }
        Ok(())
    }

    /// A lasting session is to be brought what is retained: from the beginning, if that was begun before.
    fn begin_cursor(&mut self, queue: QueueId, filter: &str) {
        let session = self.lines.session_mut(queue).expect("the session that subscribes is there");
        if let Some(lasting) = &mut session.lasting {
            let place = session.online.as_ref().map(|online| online.place);
            let live = place.map_or(Live::SinceOpen, Live::Soon);
            let begun = Unfinished { live, ..Unfinished::new(filter, self.replies.numbers.message) };
            let replaced = lasting.cursors.insert(filter.into(), begun).and_then(|replaced| replaced.running);
            replaced.into_iter().for_each(|key| self.cursors.close(key));
        }
    }

    fn record_subscriptions(
        &mut self,
        id: QueueId,
        place: Place,
        (subscriptions, groups): Piece<'_>,
        is_brought: &impl Fn(&str) -> bool,
        to: &mut impl Effects,
    ) -> Result<(), ReasonCode> {
        let incarnation = self.lines.session(id).and_then(Session::incarnation);
        let Some(session) = incarnation else { return Ok(()) };
        let mut records = Vec::with_capacity(subscriptions.len());
        let subscriber = self.lines.session(id);
        let known = subscriber.map(|session| &session.subscriptions);
        let cursors = subscriber.and_then(|session| session.lasting.as_ref()).map(|lasting| &lasting.cursors);
        let last = self.replies.numbers.message;
        for ((filter, interest), group) in subscriptions.iter().zip(groups) {
            let is_asked = is_brought(filter);
            let filter = Cow::Borrowed(&**filter);
            let group = group.and_then(|group| self.lines.group(group));
            if let Some(group) = group.filter(|group| !group.is_recorded) {
                records.push(Record::Group { group: group.incarnation, filter: filter.clone() });
            }
            // Many clients subscribe to the same whenever they connect.
            if known.and_then(|known| known.get(&*filter)) != Some(interest) {
                records.push(Record::Subscribed { session, filter: filter.clone(), interest: *interest });
            }
            let begun = cursors.and_then(|cursors| cursors.get(&*filter)).map(|cursor| cursor.last);
            match is_asked {
                // No two records begin the same cursor: only one of them would be needed.
                true if begun == Some(last) => {
                    let from = Cow::Owned(Unfinished::new(&filter, last).from.into_vec());
                    records.push(Record::CursorMoved { session, filter, from });
                }
                true => records.push(Record::Cursor { session, filter, last }),
                false => {}
            }
        }
        match records.is_empty() {
            true => self.replies.promise(place)?,
            false => self.replies.commit(&records, to).map_err(|refusal| self.replies.reason(refusal))?,
        }
        for group in groups.iter().flatten() {
            self.lines.group_mut(*group).expect("what a session joins is there").is_recorded = true;
        }
        Ok(())
    }

    /// Ends existing subscriptions, in pieces that fit into a frame. Subscriptions recorded before a piece is refused
    /// have ended.
    fn end_subscriptions(
        &mut self,
        id: QueueId,
        filters: &BTreeSet<&str>,
        to: &mut impl Effects,
    ) -> Result<(), ReasonCode> {
        let filters: Vec<&str> = filters.iter().copied().collect();
        let mut rest = &filters[..];
        while !rest.is_empty() {
            let each = rest.iter().map(|filter| filter.len() + 2 * FILTER_RECORD_BYTES);
            let (piece, behind) = rest.split_at(count_within(each, to.group_bytes_max()));
            rest = behind;
            self.record_unsubscriptions(id, piece, to)?;
            piece.iter().for_each(|filter| self.end_subscription(id, filter));
        }
        Ok(())
    }

    fn record_unsubscriptions(
        &mut self,
        id: QueueId,
        filters: &[&str],
        to: &mut impl Effects,
    ) -> Result<(), ReasonCode> {
        let session = self.lines.session(id).expect("the session that unsubscribes is there");
        let mut records = Vec::with_capacity(filters.len());
        for filter in filters {
            if let Some(session) = session.incarnation() {
                records.push(Record::Unsubscribed { session, filter: Cow::Borrowed(filter) });
            }
            let group = self.group_shared(session, filter).and_then(|group| self.lines.group(group));
            if let Some(group) = group.filter(|group| group.members == 1 && group.is_recorded) {
                records.push(Record::GroupEnded { group: group.incarnation });
            }
        }
        if records.is_empty() {
            return Ok(());
        }
        self.replies.commit(&records, to).map_err(|refusal| self.replies.reason(refusal))
    }

    fn end_subscription(&mut self, id: QueueId, filter: &str) {
        let session = self.lines.session_mut(id).expect("the session that unsubscribes is there");
        session.subscriptions.remove(filter).expect("only what the session is subscribed to ends");
        self.sessions.subscription_bytes -= subscription_bytes(filter);
        session.lasting.iter_mut().for_each(|lasting| drop(lasting.cursors.remove(filter)));
        let session = self.lines.session(id).expect("the session that unsubscribes is there");
        // A filter that is not shared has no group.
        let Some(group) = self.group_shared(session, filter) else { return };
        let session = self.lines.session_mut(id).expect("the session that unsubscribes is there");
        let share = session.shares.remove(&group).expect("it is a member");
        let subscriber = Arc::clone(&session.subscriber);
        let _ = self.lines.leave(&subscriber, id, group, &share);
    }

    /// The group of a filter, if the session is a member. The group may be another one of this filter, which came to be
    /// after the session's was full and ended: then the session has not heard yet that it is over.
    fn group_shared(&self, session: &Session, filter: &str) -> Option<QueueId> {
        self.lines.filters.of_filter(filter).filter(|group| session.shares.contains_key(group))
    }

    /// Answers a recorded change when the record is as safe as the connection requires: rule 11 of `protocol::order`. Answers
    /// at once if the change is not recorded.
    fn answer_recorded(&mut self, id: QueueId, place: Place, reply: Reply, now: Now, to: &mut impl Effects) {
        let is_recorded = self.lines.session(id).is_some_and(|session| session.lasting.is_some());
        if is_recorded {
            self.replies.answer(self.lines, Answer::new(place.shard, reply), now, to);
        } else {
            to.post(place.shard, reply);
        }
    }
}
