//! Copies of old records, so that the log can be cut off at its old end.
//!
//! The keeper of records knows nothing of their meaning. It keeps groups of records in their order. When it wants the space of
//! the oldest, it hands single records of them to the ledger ([`Keeper::next_to_copy`](crate::Keeper::next_to_copy)). For each
//! of these the ledger copies what is still true *now*, behind everything that was recorded so far. When all copies, and
//! everything that was recorded before them, are durable, the old records are forgotten.
//!
//! Imports: `delivery` and the parts below.
//!
//! # Words
//! The **facts** of a session are its client identifier, user, presence, will, subscriptions, cursors, and identifiers of QoS 2
//! in use. Further facts are a message in a queue or on its way, a retained value, and a group. A record **begins**, changes or
//! ends a fact ([`Record::begins_something`]).
//!
//! At least one record begins each fact. Several do if a subscription or a cursor was begun again, or if a process has ended
//! before old records were forgotten. A retained message may be recorded again when it moves out of a group that had no lasting
//! member when the message came (`moved` in `delivery::share`).
//!
//! | fact | begun by | its copy |
//! |---|---|---|
//! | a session | `Session` | `Session` |
//! | its user | a `Principal` or `Owner` with this user, proof, tenant and claims | the same, with today's name of the rules |
//! | its client is there | the last `Connected` | `Connected`, with the will as it was, and `WillPrincipal` |
//! | its client has left | the last `Left` | `Left`, unless its will waits |
//! | the same, and `Left` was refused | `Connected` | `Left`, with the fate of the will |
//! | and its will waits | `Connected` | `Connected`, `WillPrincipal`, and the `Left` that is younger than both |
//! | its will is due | `Connected`, `WillKept` | `WillKept`, `WillPrincipal`: the session may be gone, or have another will |
//! | a subscription | a `Subscribed` with its options | the same |
//! | a group | `Group` | `Group` |
//! | a cursor | a `Cursor` with its last message | `Cursor`, `CursorMoved` |
//! | an identifier of QoS 2 in use | `Opened`, `Received`, `ReceivedKept` | `Opened`; `ReceivedKept`, with the place of the exchange |
//! | a message in a queue | `Enqueue` | `Enqueue`, for those of its queues that have it |
//! | a message on its way | `Enqueue` | the same, `Sent` |
//! | a message moved from a group | `Enqueue` | `Enqueue` into the group, `Moved` out of it again |
//! | a retained value | `Enqueue` | `Enqueue`, possibly without queues; or of the value that is in memory alone |
//!
//! # Premises
//! 1. *Memory tells what the records tell.* The ledger changes when a group was taken ([`Replies::commit`]). There are
//!    exceptions. Messages of groups without a lasting member, values that found no space, and values below `$SYS` are in memory
//!    alone. A name that a reload gives to rules is recorded when the client comes back, and with the next copy. A client has
//!    left even if the record of that was refused: see step 3. The end of a lent message or of a group without members may be
//!    refused too: both are over in memory, and may be there once more after a restart.
//! 2. *Nothing is copied before a restart is settled* ([`Copying::copy_some`]). Until then, connections and groups without
//!    members have ended in memory alone ([`Restart::is_settled`]).
//! 3. *Nothing is copied after the keeper has failed* ([`Replies::copy`]).
//! 4. *A copy stands behind everything that it takes into account.* Records that the keeper holds for want of space get their
//!    place before a copy does, and otherwise the copy is refused (`Plan::append` in the journal).
//! 5. *A group is kept whole.* A copy is one group. The copy of a message with very many queues is several groups, each for some
//!    of the queues.
//! 6. *Old records go in their order,* one segment after the other, each when all of its copies are durable
//!    (`Preparer::release_copied` in the journal).
//!
//! # Why nothing is lost
//! The claim: each fact that is true is begun by a record that was not cut off, with its changes behind that record. Each fact
//! that is over does not come back.
//!
//! 1. *The keeper leaves out what needs no copy* (`Decoder::needed`). These are records that begin nothing, and messages that no
//!    queue needs ([`Copying::needs`]). A message that has left its queue never returns to this queue: a message that a group has
//!    only lent counts as being there, and an operator's move gives it another number.
//! 2. *A record that changes or ends a fact needs no copy.* It is younger than a record that begins the fact. The copy of that
//!    record has told, or will tell, the outcome.
//! 3. *The copy of a record that begins a fact tells the fact as it is now,* with all its changes ([`Truth::of`]). An end of a
//!    connection that was refused is among them ([`Truth::left_refused`]). If the fact is over, nothing is copied.
//! 4. *Nothing is copied for a record that says something else than the fact does now* (another QoS, or another last message of
//!    a cursor). A younger record has begun the fact as it is. The rules of a user do not count ([`Truth::principal`]): a reload
//!    changes their name without a record. The copy names the rules that the session has now, whichever record it was made for.
//!    Rules that no listener had at the start keep the name in the youngest record ([`UnknownRules`]).
//! 5. *Equal records may all be copied.* After changes of a QoS from 1 to 2 and back, the oldest record says the same as the
//!    youngest. This is harmless, and there are never more copies than records. Records of one fact that the keeper hands out
//!    together become one copy ([`Copied::facts`]): it is younger than all of them.
//! 6. *A message that was found several times has a younger record* ([`Copied::has_younger`]), and nothing is copied for the
//!    oldest. The count is at most the number of younger records of this queue. When records are read, one that puts a message
//!    into its queue again is counted. A copy counts what it has copied, and goes on behind that if it has stopped for lack of
//!    space. Each record that is done takes one off ([`Copied::forget_oldest`]).
//! 7. *A fact that is over does not come back.* The record that ended it is younger than all records that began it: a record of
//!    its end, or the beginning of what took its place (another retained value, user or presence, or another `Group` of the same
//!    filter). As long as one of the beginnings is there, the end is there too. The other `Group` matters if the process
//!    ends after the first commands behind a restart and before the `GroupEnded` of a group without members.
//!
//! # Why it may be replayed
//! Replay starts at an arbitrary group of records, and is to end in the state that the ledger was in. The log is what remains
//! after any number of segments have gone with all of their copies made, and at most one further segment has some of its copies.
//!
//! 1. *Records between the cut and the copy mention things that are not known yet.* A record that begins something also begins
//!    the session or group that it names, at the first mention (`Replay::line_or_begin`). The name follows with the copy of
//!    `Session` or `Group`, or the end follows, since the thing was alive when it was mentioned. One kind of record mentions a
//!    group after its end: the copy of a message that has moved out of the group. This group is empty again at the end of the
//!    copy. What has no name when the records end is forgotten.
//! 2. *A record that changes or ends an unknown thing changes nothing,* because the copy behind it tells the outcome. The
//!    exception is `Moved`, which begins the session that it moves a known message to.
//! 3. *A session whose end was cut off is not mentioned any more.* No record mentions a session after its end, and the earlier
//!    ones were cut off with it.
//! 4. *A record and its copy may both be there.* The copy finds the fact as the copy says it is, because all changes of the fact
//!    stand before the copy. Replaying the copy therefore changes nothing. A message is put into a queue that it was taken out
//!    of (`Sent`, `Moved`), and taken out again by the record behind it in the same group, under the same identifier. Three
//!    copies tell more than the records before them, and tell the truth. The copy of a value that is in memory alone is a *new*
//!    record, behind all others of its topic. The others tell the end of a connection whose record was refused, and today's name
//!    of a user's rules.
//! 5. *The process may end in the middle of it.* This leaves a log of the kind above, by premises 4 to 6.
//! 6. *A copy changes the order of records, and no order that counts.* Queues and what is on its way are in the order of the
//!    numbers of the messages (`Replay::put_in_order`). PUBREL goes out in the order of the places in `ReceivedKept`, and then in
//!    that of the `Received` records, which are younger (`InFlight::restore_order`). Wills that are due when the records end are
//!    published in the order of their numbers (`Replay::finish`).
//! 7. *A number may be given again* when no `Enqueue`, will or `Cursor` with it is left. Older records that mention it stand before
//!    the new one, where the queue that they name does not have such a message: they change nothing.

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
/// piece of the log are enough: records that are copied twice stand together the next time. A fact may be skipped because its
/// first copy is younger than every record that was handed out with it.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    facts: BTreeSet<(Incarnation, Fact)>,
    /// Messages in queues, and retained values, that have more than one record, and how many more: the process had ended
    /// before the old records were gone, or a copy has stopped in the middle, for lack of space.
    messages: HashMap<(Incarnation, MessageId), u32, FixedState>,
}

/// In place of a queue: the message is the retained value of its topic. No queue has this number.
pub(crate) const VALUE: Incarnation = Incarnation(0);

impl Copied {
    /// There is one more record of a message in a queue.
    pub(crate) fn note(&mut self, queue: Incarnation, message: MessageId) {
        *self.messages.entry((queue, message)).or_default() += 1;
    }

    /// Whether there is a younger record of a message in a queue than the oldest.
    fn has_younger(&self, queue: Incarnation, message: MessageId) -> bool {
        self.messages.contains_key(&(queue, message))
    }

    /// The oldest record of a message in a queue is not needed any more.
    fn forget_oldest(&mut self, queue: Incarnation, message: MessageId) {
        if let Some(more @ 2..) = self.messages.remove(&(queue, message)) {
            self.messages.insert((queue, message), more - 1);
        }
    }
}

/// A fact about a session, by its difference from other facts of the session. Messages are not included: each has a number,
/// and mostly one record.
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
        let is_value =
            is_retained && self.retained.is_numbered(body.topic(), id) && !self.copied.has_younger(VALUE, id);
        let mut kept = Vec::new();
        for queued in queues {
            if self.copied.has_younger(queued.queue, id) {
                continue;
            }
            let whereabouts = self.whereabouts(queued.queue, id);
            let way = self.way(queued.queue, id, whereabouts);
            if whereabouts != Whereabouts::Gone {
                kept.push((queued.clone(), way));
            }
        }
        self.copy_in_slices(id, body, kept, is_value, to)?;
        if let Some((message, body)) = latest {
            let (value, queues) = (Cow::Borrowed(&body), Cow::Owned(Vec::new()));
            self.replies.copy(&[Record::Enqueue { message, body: value, queues, is_retained: true }], to)?;
            self.retained.note_recorded(body.topic(), message);
        }
        queues.iter().for_each(|queued| self.copied.forget_oldest(queued.queue, id));
        if is_retained {
            self.copied.forget_oldest(VALUE, id);
        }
        Ok(())
    }

    /// Copies a message in these queues, each with the record of how the message has left it. Notes each copy: if a later one
    /// finds no space, all of this is done again, and nothing is copied twice.
    fn copy_in_slices(
        &mut self,
        id: MessageId,
        body: &Arc<Message>,
        kept: Vec<(Queued, Option<Record<'static>>)>,
        is_value: bool,
        to: &mut impl Effects,
    ) -> Result<(), Refusal> {
        // At least one, if only for the retained value.
        let slices = kept.len().div_ceil(queues_at_a_time(body)).max(usize::from(is_value));
        let mut kept = kept.into_iter();
        for slice in 0..slices {
            let (queues, on_the_way): (Vec<Queued>, Vec<_>) =
                kept.by_ref().take(queues_at_a_time(body)).unzip();
            let (body, named) = (Cow::Borrowed(body), Cow::Borrowed(&queues[..]));
            let is_retained = is_value && slice == 0;
            let mut group = vec![Record::Enqueue { message: id, body, queues: named, is_retained }];
            group.extend(on_the_way.into_iter().flatten());
            self.replies.copy(&group, to)?;
            self.readdress(id, &queues, to);
            queues.iter().for_each(|queued| self.copied.note(queued.queue, id));
            if is_retained {
                self.copied.note(VALUE, id);
            }
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
            Record::Received { session, packet_id } | Record::ReceivedKept { session, packet_id, .. } => {
                let (session, packet_id) = (*session, *packet_id);
                let exchange = self.session(session)?.in_flight.find(packet_id)?;
                let is_received = matches!(exchange.state, State::Released);
                let place = exchange.place();
                is_received.then_some(Record::ReceivedKept { session, packet_id, place })
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
        let is_it = |session: &&Lasting| {
            session.left_unix_ms == Some(unix_ms) && session.will.is_none() && session.left_refused.is_none()
        };
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
        Record::Received { session, packet_id } | Record::ReceivedKept { session, packet_id, .. } => {
            (*session, Fact::Received(*packet_id))
        }
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
