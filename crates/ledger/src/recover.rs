//! A ledger made again from its records.

use std::collections::BTreeMap;
use std::sync::Arc;

use index::{Change, QueueId, Subscriber, Subscriptions};
use session::{Message, Now};
use topic::TopicFilter;

use crate::command::Cause;
use crate::gauges::add;
use crate::in_flight::State;
use crate::queue::Entry;
use crate::record::{Incarnation, MessageId, Queued, WillFate, WillRecord};
use crate::session::{PendingWill, Session, Unfinished};
use crate::subscribe::subscription_bytes;
use crate::will::DueWill;
use crate::{Effects, Ledger, Record, Settings};

/// What is only needed while records are read.
struct Replay {
    ledger: Ledger,
    sessions: BTreeMap<Incarnation, QueueId>,
    groups: BTreeMap<Incarnation, QueueId>,
    /// When the clients that had left did so, in milliseconds since 1970.
    left_unix_ms: BTreeMap<Incarnation, u64>,
    /// Whose will it is, while it waits.
    wills: BTreeMap<MessageId, Incarnation>,
    due: BTreeMap<MessageId, Arc<Message>>,
}

impl Ledger {
    /// The ledger that has made these records, which are whole groups, in their order. Nobody is connected to it: clients
    /// that were when the records end are taken as disconnected `now`. `index` gets the subscriptions.
    #[must_use]
    pub fn recover<'a>(
        settings: Settings,
        index: Arc<Subscriptions>,
        records: impl IntoIterator<Item = Record<'a>>,
        now: Now,
    ) -> Self {
        let mut replay = Replay {
            ledger: Self::new(settings, index),
            sessions: BTreeMap::new(),
            groups: BTreeMap::new(),
            left_unix_ms: BTreeMap::new(),
            wills: BTreeMap::new(),
            due: BTreeMap::new(),
        };
        records.into_iter().for_each(|record| replay.apply(record));
        replay.finish(now)
    }

    /// Takes those who were connected when the records ended as disconnected, on the record.
    pub(crate) fn settle_some(&mut self, units: &mut usize, now: Now, to: &mut impl Effects) {
        while *units > 0
            && let Some(id) = self.unsettled.pop_front()
        {
            *units -= 1;
            self.settle(id, now, to);
        }
        while *units > 0
            && let Some(group) = self.orphans.pop()
        {
            *units -= 1;
            // A group without members is none; without this record it would be found again, and dropped again.
            let _ = self.replies.commit(&[Record::GroupEnded { group }], to);
        }
    }

    /// The same for one session, before anybody connects to it.
    pub(crate) fn settle(&mut self, id: QueueId, now: Now, to: &mut impl Effects) {
        if let Some(session) = self.sessions.find_mut(id)
            && std::mem::take(&mut session.is_unsettled)
        {
            let expiry_secs = session.expiry_secs;
            self.depart(id, Cause::WithWill, expiry_secs, now, to);
        }
    }
}

impl Replay {
    fn apply(&mut self, record: Record<'_>) {
        match record {
            Record::Session { session, client_id } => self.begin(session, &client_id),
            Record::Connected { session, expiry_secs, will } => self.connect(session, expiry_secs, will),
            Record::Left { session, expiry_secs, unix_ms, will } => {
                self.left_unix_ms.insert(session, unix_ms);
                if let Some(found) = self.session(session) {
                    found.expiry_secs = expiry_secs;
                }
                self.decide_will(session, will);
            }
            Record::Ended { session, will } => {
                self.decide_will(session, will);
                self.end(session);
            }
            Record::Group { group, filter } => self.begin_group(group, &filter),
            Record::GroupEnded { group } => {
                if let Some(id) = self.groups.remove(&group) {
                    self.ledger.groups.remove(id);
                }
            }
            Record::Enqueue { message, body, queues, is_retained } => {
                self.enqueue(message, &body, queues.into_owned(), is_retained);
            }
            Record::Cleared { topic } => self.ledger.retained.clear(&topic),
            Record::Removed { queue, message } => drop(self.take(queue, message)),
            Record::WillDue { session } => self.decide_will(session, WillFate::Due),
            Record::WillKept { will, message } => {
                self.ledger.last_message = self.ledger.last_message.max(will);
                self.due.insert(will, message.into_owned());
            }
            Record::WillDone { will } => self.publish_will(will),
            Record::Moved { group, session, message, packet_id, granted } => {
                if let Some(entry) = self.take(group, message)
                    && let Some(session) = self.session(session)
                {
                    let entry = Entry { granted: granted.into_owned(), ..entry };
                    let bytes = entry.message.size_bytes();
                    session.in_flight.insert(packet_id, bytes, State::Own(message, entry));
                }
            }
            of_session => self.apply_to_session(of_session),
        }
    }

    /// What concerns one session alone.
    fn apply_to_session(&mut self, record: Record<'_>) {
        match record {
            Record::Subscribed { session, filter, interest } => {
                if let Some(session) = self.session(session) {
                    session.subscriptions.insert(filter.into(), interest);
                }
            }
            Record::Unsubscribed { session, filter } => {
                if let Some(session) = self.session(session) {
                    session.subscriptions.remove(&*filter);
                    session.cursors.remove(&*filter);
                }
            }
            Record::Cursor { session, filter, last } => {
                // What was numbered and not recorded is gone, and its numbers are not given again.
                self.ledger.last_message = self.ledger.last_message.max(last);
                let cursor = Unfinished::new(&filter, last);
                if let Some(session) = self.session(session) {
                    session.cursors.insert((&*filter).into(), cursor);
                }
            }
            Record::CursorMoved { session, filter, from } => {
                let session = self.session(session);
                if let Some(cursor) = session.and_then(|session| session.cursors.get_mut(&*filter)) {
                    cursor.from = (&*from).into();
                }
            }
            Record::CursorDone { session, filter } => {
                if let Some(session) = self.session(session) {
                    session.cursors.remove(&*filter);
                }
            }
            Record::Opened { session, packet_id } => {
                if let Some(session) = self.session(session) {
                    session.unreleased.insert(packet_id);
                }
            }
            Record::Closed { session, packet_id } => {
                if let Some(session) = self.session(session) {
                    session.unreleased.remove(&packet_id);
                }
            }
            Record::Sent { session, message, packet_id } => {
                if let Some(session) = self.session(session)
                    && let Some(entry) = session.queue.remove(message)
                {
                    let bytes = entry.message.size_bytes();
                    session.in_flight.insert(packet_id, bytes, State::Own(message, entry));
                }
            }
            Record::Received { session, packet_id } => {
                if let Some(session) = self.session(session) {
                    session.in_flight.remove(packet_id);
                    session.in_flight.insert(packet_id, 0, State::Released);
                }
            }
            Record::Finished { session, packet_id } => {
                if let Some(session) = self.session(session) {
                    session.in_flight.remove(packet_id);
                }
            }
            _ => debug_assert!(false, "every other record was applied before"),
        }
    }

    fn begin(&mut self, incarnation: Incarnation, client_id: &str) {
        self.count(incarnation);
        let client_id: Arc<str> = client_id.into();
        let id = self.ledger.sessions.insert(|id| {
            let subscriber = Arc::new(Subscriber::lasting(Arc::clone(&client_id), id));
            Session { is_unsettled: true, ..Session::new(subscriber, Some(incarnation)) }
        });
        self.sessions.insert(incarnation, id);
        self.ledger.claims.set_session(&client_id, Some(id));
    }

    fn connect(&mut self, incarnation: Incarnation, expiry_secs: u32, will: Option<WillRecord<'_>>) {
        self.left_unix_ms.remove(&incarnation);
        let will = will.map(|will| {
            self.ledger.last_message = self.ledger.last_message.max(will.id);
            self.wills.insert(will.id, incarnation);
            let WillRecord { id, message, delay_secs } = will;
            Box::new(PendingWill { id, message: message.into_owned(), delay_secs, due_ms: None })
        });
        if let Some(session) = self.session(incarnation) {
            session.expiry_secs = expiry_secs;
            let old = std::mem::replace(&mut session.will, will);
            if let Some(old) = old {
                self.wills.remove(&old.id);
            }
        }
    }

    fn decide_will(&mut self, incarnation: Incarnation, fate: WillFate) {
        if fate == WillFate::Waits {
            return;
        }
        let Some(will) = self.session(incarnation).and_then(|session| session.will.take()) else { return };
        self.wills.remove(&will.id);
        if fate == WillFate::Due {
            self.due.insert(will.id, will.message);
        }
    }

    fn publish_will(&mut self, will: MessageId) {
        self.due.remove(&will);
        if let Some(incarnation) = self.wills.remove(&will)
            && let Some(session) = self.session(incarnation)
        {
            session.will = None;
        }
    }

    fn end(&mut self, incarnation: Incarnation) {
        self.left_unix_ms.remove(&incarnation);
        let id = self.sessions.remove(&incarnation);
        let Some(session) = id.and_then(|id| self.ledger.sessions.remove(id)) else { return };
        let client_id = &session.subscriber.client_id;
        if self.ledger.claims.find(client_id).is_some_and(|client| client.session == id) {
            self.ledger.claims.set_session(client_id, None);
            self.ledger.claims.settle(client_id);
        }
    }

    fn begin_group(&mut self, incarnation: Incarnation, filter: &str) {
        self.count(incarnation);
        if self.groups.contains_key(&incarnation) {
            return;
        }
        if let Some(old) = self.ledger.groups.of_filter(filter) {
            self.ledger.groups.remove(old);
        }
        let id = self.ledger.groups.insert(filter, incarnation);
        self.groups.insert(incarnation, id);
        if let Some(group) = self.ledger.groups.table.find_mut(id) {
            group.is_recorded = true;
        }
    }

    fn enqueue(&mut self, id: MessageId, body: &Arc<Message>, queues: Vec<Queued>, is_retained: bool) {
        self.ledger.last_message = self.ledger.last_message.max(id);
        for Queued { queue, granted } in queues {
            let entry = Entry { message: Arc::clone(body), granted, is_recorded: true };
            if let Some(session) = self.session(queue) {
                session.queue.restore(id, entry);
            } else if let Some(group) = self.groups.get(&queue)
                && let Some(group) = self.ledger.groups.table.find_mut(*group)
            {
                group.queue.restore(id, entry);
            }
        }
        if is_retained {
            self.ledger.retained.set(id, body);
        }
    }

    /// Takes a message out of a session's queue or a group's.
    fn take(&mut self, queue: Incarnation, message: MessageId) -> Option<Entry> {
        if let Some(session) = self.session(queue) {
            return session.queue.remove(message);
        }
        let group = self.groups.get(&queue)?;
        self.ledger.groups.table.find_mut(*group)?.queue.remove(message)
    }

    fn session(&mut self, incarnation: Incarnation) -> Option<&mut Session> {
        let id = self.sessions.get(&incarnation)?;
        self.ledger.sessions.find_mut(*id)
    }

    /// Numbers that were given once are not given again.
    fn count(&mut self, incarnation: Incarnation) {
        self.ledger.last_incarnation = self.ledger.last_incarnation.max(incarnation);
    }

    fn finish(mut self, now: Now) -> Ledger {
        let due = std::mem::take(&mut self.due).into_iter();
        self.ledger.wills.extend(due.map(|(id, message)| DueWill { id: Some(id), message }));
        let sessions: Vec<(Incarnation, QueueId)> =
            self.sessions.iter().map(|(incarnation, id)| (*incarnation, *id)).collect();
        for (incarnation, id) in sessions {
            self.resubscribe(id);
            match self.left_unix_ms.get(&incarnation) {
                Some(left_unix_ms) => self.set_timer(id, *left_unix_ms, now),
                None => self.ledger.unsettled.push_back(id),
            }
            self.account(id);
        }
        let groups: Vec<(Incarnation, QueueId)> =
            self.groups.iter().map(|(incarnation, id)| (*incarnation, *id)).collect();
        for (incarnation, id) in groups {
            self.ledger.groups.table.find_mut(id).into_iter().for_each(|group| group.restore_lanes());
            self.account_group(id);
            if self.ledger.groups.table.find(id).is_some_and(|group| group.members == 0) {
                self.ledger.remove_if_empty(id);
                self.ledger.orphans.push(incarnation);
            }
        }
        self.ledger.show();
        self.ledger
    }

    /// Writes a session's subscriptions into the index, and makes it a member of its groups.
    fn resubscribe(&mut self, id: QueueId) {
        let Some(session) = self.ledger.sessions.find(id) else { return };
        let filters = session
            .subscriptions
            .iter()
            .filter_map(|(text, interest)| TopicFilter::new(text).ok().map(|filter| (filter, *interest)));
        let (shared, plain): (Vec<_>, Vec<_>) = filters.partition(|(filter, _)| filter.shared().is_some());
        let subscriber = &session.subscriber;
        let changes =
            plain.into_iter().map(|(filter, options)| Change::Subscribe { filter, subscriber, options });
        self.ledger.index.apply(changes, &mut Vec::new());
        let bytes = session.subscriptions.keys().map(|filter| subscription_bytes(filter)).sum::<usize>();
        self.ledger.subscription_bytes += bytes;
        self.ledger.unreleased += session.unreleased.len();
        let shared: Vec<_> = shared
            .into_iter()
            .map(|(filter, interest)| (Box::<str>::from(filter.as_str()), interest))
            .collect();
        for (filter, interest) in shared {
            let group = self.ledger.group_of(&filter);
            self.ledger.join(id, group, interest);
        }
    }

    /// Down time counts.
    fn set_timer(&mut self, id: QueueId, left_unix_ms: u64, now: Now) {
        let Some(session) = self.ledger.sessions.find_mut(id) else { return };
        session.is_unsettled = false;
        let at = |secs: u32| {
            let due_unix_ms = left_unix_ms.saturating_add(u64::from(secs) * 1_000);
            now.monotonic_ms.saturating_add(due_unix_ms.saturating_sub(now.unix_ms))
        };
        let expiry_secs = session.expiry_secs;
        session.expires_ms = (expiry_secs < u32::MAX).then(|| at(expiry_secs));
        if let Some(will) = &mut session.will {
            will.due_ms = Some(at(will.delay_secs.min(expiry_secs)));
            add(&self.ledger.gauges.wills_pending, 1);
        }
        session.timer_ms = session.next_timer_ms();
        self.ledger.timers.set(id, None, session.timer_ms);
    }

    fn account(&mut self, id: QueueId) {
        let Some(session) = self.ledger.sessions.find(id) else { return };
        let gauges = &self.ledger.gauges;
        add(&gauges.sessions, 1);
        add(&gauges.in_flight, session.in_flight.len());
        add(&gauges.queued, session.queue.len());
        add(&gauges.queued_bytes, session.queue.bytes());
        add(&gauges.routed, session.in_flight.len() + session.queue.len());
        if session.queue.expiring() > 0 {
            self.ledger.sweep.add(crate::QueueOf::Session(id));
        }
    }

    fn account_group(&mut self, id: QueueId) {
        let Some(group) = self.ledger.groups.table.find(id) else { return };
        let gauges = &self.ledger.gauges;
        add(&gauges.queued, group.queue.len());
        add(&gauges.queued_bytes, group.queue.bytes());
        add(&gauges.routed, group.queue.len());
        if group.queue.expiring() > 0 {
            self.ledger.sweep.add(crate::QueueOf::Group(id));
        }
    }
}
