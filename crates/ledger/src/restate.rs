//! Copies of old records, so that the log can be cut off at its old end.
//!
//! Whoever keeps the records knows nothing of what they mean: it keeps groups of them in their order, and when it wants
//! the space of the oldest, it hands those back ([`Keeper::next_to_copy`](crate::Keeper::next_to_copy)). For each the
//! ledger copies what is still true *now*, behind everything that was recorded so far. When all copies, and everything
//! that was recorded before them, are durable, the old records are forgotten.
//!
//! Imports: `delivery` and the parts below.
//!
//! # Why nothing is lost
//! Every fact that survives stands on *one record that begins it*, and on later records that change it. Facts are: a
//! session, its name, its presence, its will, a subscription, a cursor, an identifier in use, a message in a queue or
//! on its way, a retained value, and a group.
//!
//! [`Ledger::copy_some`] of a record that begins a fact copies the fact as it is now, with all its changes. If the fact
//! is over, nothing is copied. A record that only changes or ends a fact is never copied. Such a record is younger than
//! the one that begins the fact, whose copy has told, or will tell, the outcome.
//!
//! The result after a cut: each fact that is still true is begun by some record that was not cut off. Each fact that is
//! over was ended by a record that is younger than all records that began it. As long as one of these is there, the
//! record of the end is there too.
//!
//! A subscription or a cursor is often begun again while it exists. The older records must not be copied too: each would
//! become a copy, the copies would be copied in turn, and the log would never get shorter. An old record that says something
//! else than the fact does now (another QoS, or another last message) was followed by the younger one that begins the fact.
//! Nothing is copied for it.
//!
//! | fact | begun by | its copy |
//! |---|---|---|
//! | a session | `Session` | `Session` |
//! | its client is there | the last `Connected` | `Connected`, with the will as it was, and `WillPrincipal` |
//! | its user | the last `Principal` or `Owner` | the same |
//! | its client has left | the last `Left` | `Left`, unless its will waits |
//! | and its will waits | `Connected` | `Connected`, `WillPrincipal`, and the `Left` that is younger than both |
//! | its will is due | `Connected`, `WillKept` | `WillKept`, `WillPrincipal`: the session may be gone, or have another will |
//! | a subscription, a group | `Subscribed`, `Group` | the same, with the options of today |
//! | a cursor | `Cursor` | `Cursor`, `CursorMoved` |
//! | an identifier of QoS 2 in use | `Opened`, `Received` | the same |
//! | a message in a queue | `Enqueue` | `Enqueue`, for those of its queues that have it |
//! | a message on its way | `Enqueue` | the same, `Sent` |
//! | a message moved from a group | `Enqueue` | `Enqueue` into the group, `Moved` out of it again |
//! | a retained value | `Enqueue` | `Enqueue`, possibly without queues; or of the value that is in memory alone |
//!
//! # Why it may be replayed
//! Replay starts at an arbitrary group of records, and is to end in the state that the ledger was in.
//!
//! *Records between the cut and the copy mention things that are not known yet.* A record that begins something begins
//! the session or group that it names, at the first mention. Its name follows with the copy of `Session` or `Group`, or
//! its end follows, since it was alive when it was mentioned. A record that changes or ends an unknown thing changes
//! nothing, because the copy behind it tells the outcome. The exception is `Moved`, which begins the session that it
//! moves a known message to.
//!
//! A session whose end was cut off is not mentioned any more: no record mentions it after its end, and the earlier ones
//! were cut off with it. A group may be mentioned after its end, by the copy of a message that has moved out of it. The
//! group is empty again at the end of that copy. A group without a name is forgotten when the records end.
//!
//! *A record and its copy are both there*, because the process has ended before the old one was cut off, or because an
//! old record tells of a fact that a younger one has begun again. The copy finds the fact as it says it is, because all
//! changes of the fact stand before the copy. Replaying the copy therefore changes nothing. A message is put into a
//! queue that it was taken out of (`Sent`, `Moved`), and taken out again by the record behind it in the same group,
//! under the same identifier.
//!
//! *The process ends in the middle of it.* Groups of records are kept whole. A copy is one group. The copy of a message
//! with very many queues is several groups, each for some of the queues. Copies come behind everything that they take
//! into account, and old records go when their copies are durable. The remaining log is one of: all old records with
//! some copies, or some old records cut off with all of their copies.
//!
//! A copy does change the order of records. Queues and what is on its way go by the numbers of the messages,
//! not by the order of the records; the order in which wills become due is that of their numbers after every restart.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use auth::Realms;
use base::{Claims, Message, Principal, QueueId, Tenant};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use wire::PacketId;

use crate::lines::session::{Lasting, Session};
use crate::lines::{Line, Lines, Owner};
use crate::queue::entry::Entry;
use crate::queue::in_flight::State;
use crate::record::principals::{UnknownRules, of_session, of_will, recorded_tenant};
use crate::record::{Effects, Incarnation, MessageId, Queued, Record, Refusal, WillFate, WillRecord};
use crate::replies::Replies;
use crate::retained::Retained;
use crate::sessions::Sessions;
use crate::sessions::settle::Restart;
use crate::sessions::wills::Wills;
use crate::settings::Settings;

/// The units of work that are done for the keeper of records before new commands are looked at.
pub(crate) const UNITS_AT_A_TIME: usize = 1_000;

/// Facts that were copied from old records lately, so that many records of one fact become one copy. The facts of one
/// piece of the log are enough: records that are copied twice stand together the next time.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    facts: BTreeSet<(Incarnation, Fact)>,
    /// Messages in queues that were found more than once when the records were read, and how often more: the process had
    /// ended before the old records were gone.
    messages: HashMap<(Incarnation, MessageId), u32, FixedState>,
}

impl Copied {
    /// There is one more record of a message in a queue.
    pub(crate) fn note(&mut self, queue: Incarnation, message: MessageId) {
        *self.messages.entry((queue, message)).or_default() += 1;
    }

    /// Whether there is a younger record of a message in a queue than the oldest, which is about to go.
    fn is_younger(&mut self, queue: Incarnation, message: MessageId) -> bool {
        let more = self.messages.remove(&(queue, message));
        if let Some(more @ 2..) = more {
            self.messages.insert((queue, message), more - 1);
        }
        more.is_some()
    }
}

/// A fact about a session, by its difference from other facts of the session. Messages are not included: a message has
/// a number, and is recorded once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Fact {
    Name,
    Principal,
    Presence,
    Subscription(Box<str>),
    Cursor(Box<str>),
    Opened(PacketId),
    Received(PacketId),
}

/// The current state of the things that records mention.
struct Truth<'a> {
    lines: &'a Lines,
    wills: &'a Wills,
    realms: Arc<Realms>,
    unknown_rules: &'a UnknownRules,
}

/// The parts of the ledger that old records are compared with, and copied by.
pub(crate) struct Copying<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) restart: &'a Restart,
    pub(crate) copied: &'a mut Copied,
    pub(crate) sessions: &'a mut Sessions,
    pub(crate) lines: &'a mut Lines,
    pub(crate) replies: &'a mut Replies,
    pub(crate) retained: &'a mut Retained,
}

impl Copying<'_> {
    /// See [`Ledger::copy_some`](crate::Ledger::copy_some).
    pub(crate) fn copy_some(&mut self, old: &mut VecDeque<Record<'static>>, to: &mut impl Effects) -> bool {
        let is_settled = self.restart.is_settled();
        let mut units = if is_settled { UNITS_AT_A_TIME } else { 0 };
        while units > 0
            && let Some(record) = old.pop_front()
        {
            units = units.saturating_sub(weight(&record));
            if self.restate(&record, to).is_err() {
                old.push_front(record);
                return false;
            }
        }
        if old.is_empty() {
            self.copied.facts.clear();
        }
        is_settled && !old.is_empty()
    }

    /// See [`Ledger::needs`](crate::Ledger::needs).
    pub(crate) fn needs(&mut self, queue: Incarnation, message: MessageId) -> bool {
        self.copied.messages.contains_key(&(queue, message))
            || self.whereabouts(queue, message) != Whereabouts::Gone
    }

    /// Copies what of an old record is still true, as it is now and not as it was then. See the documentation of the
    /// module for why the record is not needed any more when that is durable, and everything recorded before it.
    ///
    /// # Errors
    /// It could not be recorded, and the record is still needed.
    fn restate(&mut self, record: &Record<'_>, to: &mut impl Effects) -> Result<(), Refusal> {
        if let Record::Enqueue { message, body, queues, is_retained } = record {
            return self.restate_message(*message, body, queues, *is_retained, to);
        }
        let realms = self.settings.guard.current();
        let Sessions { wills, unknown_rules, .. } = &*self.sessions;
        let truth = Truth { lines: self.lines, wills, realms, unknown_rules };
        let group = truth.of(record);
        let fact = fact(record);
        if group.is_empty() || fact.as_ref().is_some_and(|fact| self.copied.facts.contains(fact)) {
            return Ok(());
        }
        self.replies.copy(&group, to)?;
        self.copied.facts.extend(fact);
        if let Some(Record::Left { session, .. }) = group.last()
            && let Some(session) = self.lines.named(*session).and_then(|id| self.lines.session_mut(id))
        {
            session.lasting.iter_mut().for_each(|lasting| lasting.left_refused = None);
        }
        Ok(())
    }

    fn restate_message(
        &mut self,
        id: MessageId,
        body: &Arc<Message>,
        queues: &[Queued],
        is_retained: bool,
        to: &mut impl Effects,
    ) -> Result<(), Refusal> {
        // A newer value that is only in memory takes the place of this one in the records too. Its record counts as a
        // copy, which is accepted when there is only space for copies.
        let latest = self.retained.unrecorded(body.topic()).filter(|_| is_retained);
        let latest = latest.map(|(id, message)| (id, Arc::clone(message)));
        let is_retained = is_retained && self.retained.is_numbered(body.topic(), id);
        let mut kept = Vec::new();
        for queued in queues {
            if self.copied.is_younger(queued.queue, id) {
                continue;
            }
            let whereabouts = self.whereabouts(queued.queue, id);
            let way = self.way(queued.queue, id, whereabouts);
            if whereabouts != Whereabouts::Gone {
                kept.push((queued.clone(), way));
            }
        }
        // At least one, if only for the retained value.
        let slices = kept.len().div_ceil(queues_at_a_time(body)).max(usize::from(is_retained));
        let mut kept = kept.into_iter();
        for slice in 0..slices {
            let (queues, on_the_way): (Vec<Queued>, Vec<_>) =
                kept.by_ref().take(queues_at_a_time(body)).unzip();
            let body = Cow::Borrowed(body);
            let is_retained = is_retained && slice == 0;
            let named = Cow::Borrowed(&queues[..]);
            let mut group = vec![Record::Enqueue { message: id, body, queues: named, is_retained }];
            group.extend(on_the_way.into_iter().flatten());
            self.replies.copy(&group, to)?;
            self.readdress(id, &queues, to);
        }
        if let Some((message, body)) = latest {
            let (value, queues) = (Cow::Borrowed(&body), Cow::Owned(Vec::new()));
            self.replies.copy(&[Record::Enqueue { message, body: value, queues, is_retained: true }], to)?;
            self.retained.note_recorded(body.topic(), message);
        }
        Ok(())
    }

    /// A message stands in another place, where it is to be read from if it is not in memory.
    fn readdress(&mut self, id: MessageId, queues: &[Queued], to: &mut impl Effects) {
        let mut address = None;
        for Queued { queue, .. } in queues {
            let entry = self.entry(*queue, id).filter(|entry| entry.address().is_some());
            if let Some(entry) = entry {
                address = address.or_else(|| to.address());
                entry.set_address(address);
            }
        }
    }

    /// A message that is where it was put, or on its way to a client.
    fn entry(&mut self, queue: Incarnation, id: MessageId) -> Option<&mut Entry> {
        match self.whereabouts(queue, id) {
            Whereabouts::Gone => None,
            Whereabouts::There => self.lines.find_mut(self.lines.named(queue)?)?.entry(id),
            Whereabouts::Sent(packet_id) => {
                self.lines.session_mut(self.lines.named(queue)?)?.in_flight.own(packet_id)
            }
            Whereabouts::Moved(session, packet_id) => {
                self.lines.session_mut(session)?.in_flight.own(packet_id)
            }
        }
    }

    /// Returns the place of a message that was in a queue.
    fn whereabouts(&mut self, queue: Incarnation, id: MessageId) -> Whereabouts {
        let line = self.lines.named(queue).and_then(|line| self.lines.find_mut(line));
        match line {
            Some(line) if line.keeps(id) => return Whereabouts::There,
            Some(Line { owner: Owner::Session(session), .. }) => {
                let exchange = session.in_flight.find_message(id);
                return exchange.map_or(Whereabouts::Gone, |exchange| Whereabouts::Sent(exchange.packet_id));
            }
            Some(Line { owner: Owner::Group(_), .. }) | None => {}
        }
        match self.sessions.moved.messages.get(&(queue, id)) {
            Some((session, packet_id)) => Whereabouts::Moved(*session, *packet_id),
            None => Whereabouts::Gone,
        }
    }

    /// The record of how a message got from its queue to where it is.
    fn way(&self, queue: Incarnation, message: MessageId, to: Whereabouts) -> Option<Record<'static>> {
        match to {
            Whereabouts::Gone | Whereabouts::There => None,
            Whereabouts::Sent(packet_id) => Some(Record::Sent { session: queue, message, packet_id }),
            Whereabouts::Moved(session, packet_id) => {
                let session = self.lines.session(session)?;
                let State::Own(_, entry) = &session.in_flight.find(packet_id)?.state else { return None };
                let (session, granted) = (session.incarnation()?, Cow::Owned(entry.granted()));
                Some(Record::Moved { group: queue, session, message, packet_id, granted })
            }
        }
    }
}

impl<'a> Truth<'a> {
    /// Returns the records of the current state of a fact that this record has begun. Empty if the record begins
    /// nothing, the fact is over, or a younger record has begun it again.
    fn of(&self, record: &'a Record<'_>) -> Vec<Record<'a>> {
        match record {
            Record::Connected { session, will, .. } => self.connected(*session, will.as_ref()),
            Record::Left { session, unix_ms, .. } => self.left(*session, *unix_ms),
            Record::WillKept { will, message } => self.due(*will, message).unwrap_or_default(),
            Record::Cursor { session, filter, last } => self.cursor(*session, filter, *last),
            one => self.one(one).into_iter().collect(),
        }
    }

    /// The same for records of one piece.
    fn one(&self, record: &'a Record<'_>) -> Option<Record<'a>> {
        match record {
            Record::Session { session, .. } => {
                let client_id = Cow::Borrowed(&*self.session(*session)?.subscriber.client_id);
                Some(Record::Session { session: *session, client_id })
            }
            Record::Principal { session, user, is_proved, .. } => {
                self.principal((*session, None, None), (user.as_deref(), *is_proved))
            }
            Record::Owner { session, user, is_proved, users, mount, prefix, claims, .. } => {
                let tenant = recorded_tenant([users, mount, prefix]);
                self.principal((*session, tenant, claims.as_deref()), (user.as_deref(), *is_proved))
            }
            Record::Subscribed { session, filter, interest } => {
                let (session, interest) = (*session, *interest);
                let is_youngest = *self.session(session)?.subscriptions.get(&**filter)? == interest;
                is_youngest.then_some(Record::Subscribed { session, filter: Cow::Borrowed(filter), interest })
            }
            Record::Group { group, filter } => {
                self.lines.named(*group)?;
                Some(Record::Group { group: *group, filter: Cow::Borrowed(filter) })
            }
            Record::Opened { session, packet_id } => {
                let is_open = self.lasting(*session)?.unreleased.contains(packet_id);
                is_open.then_some(Record::Opened { session: *session, packet_id: *packet_id })
            }
            Record::Received { session, packet_id } => {
                let exchange = self.session(*session)?.in_flight.find(*packet_id)?;
                let is_received = matches!(exchange.state, State::Released);
                is_received.then_some(Record::Received { session: *session, packet_id: *packet_id })
            }
            // The copy of the record that began it tells of these, or its absence does.
            _ => None,
        }
    }

    fn connected(&self, name: Incarnation, will: Option<&'a WillRecord<'_>>) -> Vec<Record<'a>> {
        let refused = self.left_refused(name);
        if let Some(due) = will.and_then(|will| self.due(will.id, &will.message)) {
            return due.into_iter().chain(refused).collect();
        }
        let Some(session) = self.lasting(name) else { return Vec::new() };
        let pending = session.will.as_deref();
        if pending.map(|pending| pending.id) != will.map(|will| will.id) {
            // A younger record says that it is connected, or that it has left.
            return refused.into_iter().collect();
        }
        let will = pending.map(|will| WillRecord {
            id: will.id,
            message: Cow::Borrowed(&will.message),
            delay_secs: will.delay_secs,
        });
        let (expiry_secs, waits) = (session.expiry_secs, will.is_some());
        let left = session.left_unix_ms;
        if left.is_some() && !waits {
            // The record of that is younger.
            return refused.into_iter().collect();
        }
        let mut group = vec![Record::Connected { session: name, expiry_secs, will }];
        group.extend(pending.and_then(|will| self.user_of_pending_will(name, will.id)));
        let will = WillFate::Waits;
        group.extend(left.map(|unix_ms| Record::Left { session: name, expiry_secs, unix_ms, will }));
        group
    }

    /// The end of the connection, if its record was refused: only memory tells of it.
    fn left_refused(&self, name: Incarnation) -> Option<Record<'a>> {
        let lasting = self.lasting(name)?;
        let (will, unix_ms) = (lasting.left_refused?, lasting.left_unix_ms?);
        Some(Record::Left { session: name, expiry_secs: lasting.expiry_secs, unix_ms, will })
    }

    fn user_of_pending_will(&self, session: Incarnation, will: MessageId) -> Option<Record<'a>> {
        let principal = self.session(session)?.subscriber.principal();
        of_will(will, &principal, self.rules(&principal))
    }

    /// A will that waits is told with the connection that has brought it, and so is that the connection is over.
    fn left(&self, name: Incarnation, unix_ms: u64) -> Vec<Record<'a>> {
        let is_it = |session: &&Lasting| session.left_unix_ms == Some(unix_ms) && session.will.is_none();
        let left = |session: &Lasting| {
            let will = WillFate::Dropped;
            Record::Left { session: name, expiry_secs: session.expiry_secs, unix_ms, will }
        };
        self.lasting(name).filter(is_it).map(left).into_iter().collect()
    }

    /// The user of a session, if the session has the user still. The rules in the record do not count: a reload may have
    /// given them another name, or the user has come back through another listener. The copy names the rules of the session.
    fn principal(
        &self,
        (session, tenant, claims): (Incarnation, Option<Arc<Tenant>>, Option<&Claims>),
        (user, is_proved): (Option<&str>, bool),
    ) -> Option<Record<'a>> {
        let principal = self.session(session)?.subscriber.principal();
        let is_same = principal.user.as_deref() == user
            && principal.is_proved == is_proved
            && principal.tenant.as_deref().filter(|tenant| **tenant != Tenant::default())
                == tenant.as_deref()
            && principal.claims.as_deref() == claims;
        is_same.then(|| of_session(session, &principal, self.rules(&principal)))
    }

    /// The name of a user's rules.
    fn rules(&self, principal: &Principal) -> &str {
        self.unknown_rules.name(&self.realms, principal.realm)
    }

    fn due(&self, will: MessageId, message: &'a Arc<Message>) -> Option<Vec<Record<'a>>> {
        let principal = self.wills.principal(will)?;
        let kept = Record::WillKept { will, message: Cow::Borrowed(message) };
        Some([kept].into_iter().chain(of_will(will, principal, self.rules(principal))).collect())
    }

    fn cursor(&self, name: Incarnation, filter: &'a str, last: MessageId) -> Vec<Record<'a>> {
        let cursor = self.lasting(name).and_then(|lasting| lasting.cursors.get(filter));
        let Some(cursor) = cursor.filter(|cursor| cursor.last == last) else { return Vec::new() };
        let (from, filter) = (Cow::Borrowed(&*cursor.from), Cow::Borrowed(filter));
        let begun = Record::Cursor { session: name, filter: filter.clone(), last };
        vec![begun, Record::CursorMoved { session: name, filter, from }]
    }

    fn session(&self, name: Incarnation) -> Option<&'a Session> {
        self.lines.session_named(name)
    }

    fn lasting(&self, name: Incarnation) -> Option<&'a Lasting> {
        self.session(name)?.lasting.as_ref()
    }
}

/// Returns the fact that this record begins, if other records may begin the same fact.
fn fact(record: &Record<'_>) -> Option<(Incarnation, Fact)> {
    Some(match record {
        Record::Session { session, .. } => (*session, Fact::Name),
        Record::Principal { session, .. } | Record::Owner { session, .. } => (*session, Fact::Principal),
        Record::Group { group, .. } => (*group, Fact::Name),
        Record::Connected { session, will: None, .. } | Record::Left { session, .. } => {
            (*session, Fact::Presence)
        }
        Record::Subscribed { session, filter, .. } => (*session, Fact::Subscription((&**filter).into())),
        Record::Cursor { session, filter, .. } => (*session, Fact::Cursor((&**filter).into())),
        Record::Opened { session, packet_id } => (*session, Fact::Opened(*packet_id)),
        Record::Received { session, packet_id } => (*session, Fact::Received(*packet_id)),
        _ => return None,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whereabouts {
    Gone,
    /// In the queue, or lent by it.
    There,
    Sent(PacketId),
    Moved(QueueId, PacketId),
}

/// Maximum number of queues for one copy of a message. A copy tells for each queue how the message has left it, which
/// the first record did not. The limit keeps this addition below the eighth of a segment that the keeper reserves for
/// it. Writing the message again costs less than 256 bytes more for each queue.
fn queues_at_a_time(body: &Message) -> usize {
    (body.size_bytes() / 256).max(256)
}

/// How much work a record is.
fn weight(record: &Record<'_>) -> usize {
    match record {
        Record::Enqueue { queues, .. } => 1 + queues.len(),
        _ => 1,
    }
}
