//! Records, read one after the other.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use auth::Realms;
use base::{Claims, Dispatch, Message, Principal, QueueId, Subscriber};
use topic::TopicFilter;
use wire::PacketId;

use crate::Ledger;
use crate::lines::session::{Lasting, PendingWill, Session, Unfinished};
use crate::lines::{Line, Owner};
use crate::queue::Queue;
use crate::queue::entry::{Entry, Keeping};
use crate::queue::in_flight::{Exchange, State};
use crate::record::principals::Tenants;
use crate::record::{
    Address, Addressed, Away, Granted, Incarnation, MessageId, Queued, Record, WillFate, WillRecord,
};
use crate::recover::Recovered;
use crate::restate::VALUE;
use crate::settings::Settings;

/// A ledger that comes to be from its records, and what is only needed while they are read.
///
/// The first records of the log may be gone, and what was true of them may come behind others, as copies: see
/// [`Ledger::copy_some`].
pub(crate) struct Replay {
    pub(crate) ledger: Ledger,
    /// Sessions and groups that have been mentioned, and whose names have not come yet.
    nameless: BTreeMap<Incarnation, Box<Line>>,
    nobody: Arc<Subscriber>,
    /// When the clients that had left did so, in milliseconds since 1970.
    pub(crate) left_unix_ms: BTreeMap<Incarnation, u64>,
    /// Wills whose clients have not left, or whose delay is not over.
    wills: BTreeMap<MessageId, Waiting>,
    pub(crate) due: BTreeMap<MessageId, (Arc<Message>, Arc<Principal>)>,
    /// Users of sessions, as far as they are on the record.
    pub(crate) principals: BTreeMap<Incarnation, Arc<Principal>>,
    /// The user of a session or a will without a record of its user.
    anonymous: Arc<Principal>,
    tenants: Tenants,
    realms: Arc<Realms>,
    /// To be used again.
    path: Vec<QueueId>,
}

/// The session whose will waits.
struct Waiting {
    session: Incarnation,
    principal: Arc<Principal>,
}

impl Replay {
    pub(crate) fn new(mut ledger: Ledger) -> Self {
        let realms = ledger.settings.guard.current();
        let realm = ledger.sessions.unknown_rules.realm(&realms, "");
        Self {
            ledger,
            nameless: BTreeMap::new(),
            nobody: Arc::new(Subscriber::lasting("".into(), QueueId { slot: 0, generation: 0 })),
            left_unix_ms: BTreeMap::new(),
            wills: BTreeMap::new(),
            due: BTreeMap::new(),
            principals: BTreeMap::new(),
            anonymous: Arc::new(Principal { realm, ..Principal::default() }),
            tenants: Tenants::default(),
            realms,
            path: Vec::new(),
        }
    }

    /// Goes to the queues that these records change, one step for all of them after the other. Each step is to a place that
    /// is in no cache; this way the processor takes many at a time, where [`apply`](Self::apply) alone would wait for each.
    pub(crate) fn approach(&mut self, records: &[Recovered<'_>]) {
        let mut path = std::mem::take(&mut self.path);
        for record in records {
            let mut step = |queue: &Incarnation| path.extend(self.ledger.lines.named(*queue));
            match record {
                Recovered::Away(Away { queue, others, .. }, _) => {
                    step(&queue.queue);
                    others.iter().for_each(|queued| step(&queued.queue));
                }
                Recovered::Whole(Addressed { record, .. }) => match record {
                    Record::Enqueue { queues, .. } => queues.iter().for_each(|queued| step(&queued.queue)),
                    Record::Removed { queue, .. } => step(queue),
                    Record::Sent { session, .. } | Record::Finished { session, .. } => step(session),
                    _ => {}
                },
            }
        }
        let queues = || path.iter().filter_map(|id| Some(&self.ledger.lines.find(*id)?.queue));
        black_box(queues().map(Queue::len).sum::<usize>());
        black_box(queues().filter_map(Queue::last).map(|id| id.0).fold(0, u64::wrapping_add));
        path.clear();
        self.path = path;
    }

    /// Reads one record. It is borrowed, because to move it would mean to wait until the one before it has reached its queue.
    pub(crate) fn apply(&mut self, record: &Recovered<'_>) {
        match record {
            Recovered::Whole(Addressed { record, address }) => self.apply_whole(record, *address),
            Recovered::Away(Away { message, queue, others, size_bytes, expires_unix_ms }, address) => {
                let (live, queues) = (self.ledger.bodies.live, 1 + others.len());
                let keeping = Keeping::away(*size_bytes, *expires_unix_ms, queues, live, *address);
                self.has_numbered(*message);
                self.enqueue(*message, &keeping, queue);
                others.iter().for_each(|queue| self.enqueue(*message, &keeping, queue));
            }
        }
    }

    /// Numbers up to this one are not given again.
    fn has_numbered(&mut self, message: MessageId) {
        self.ledger.replies.numbers.message = self.ledger.replies.numbers.message.max(message);
    }

    fn apply_whole(&mut self, record: &Record<'_>, address: Option<Address>) {
        match *record {
            Record::Session { session, ref client_id } => self.begin(session, client_id),
            Record::Connected { session, expiry_secs, ref will } => {
                self.connect(session, expiry_secs, will.as_ref());
            }
            Record::Left { session, expiry_secs, unix_ms, will } => {
                self.left_unix_ms.insert(session, unix_ms);
                self.lasting_or_begin(session).expiry_secs = expiry_secs;
                self.decide_will(session, will);
            }
            Record::Ended { session, will } => {
                self.decide_will(session, will);
                self.end(session);
            }
            Record::Group { group, ref filter } => self.begin_group(group, filter),
            Record::GroupEnded { group } => {
                self.count(group);
                self.nameless.remove(&group);
                if let Some(id) = self.group(group) {
                    self.ledger.lines.remove(id);
                }
            }
            Record::Enqueue { message, ref body, ref queues, is_retained } => {
                let keeping = Keeping::new(body, queues.len(), Some(self.ledger.bodies.live), address);
                self.has_numbered(message);
                queues.iter().for_each(|queue| self.enqueue(message, &keeping, queue));
                if is_retained && self.ledger.retained.restore(message, body) {
                    self.ledger.copied.note(VALUE, message);
                }
            }
            Record::Cleared { ref topic } => self.ledger.retained.clear(topic),
            Record::Removed { queue, message } => drop(self.take(queue, message)),
            Record::WillDue { session } => self.decide_will(session, WillFate::Due),
            Record::WillKept { will, ref message } => {
                self.has_numbered(will);
                self.due.insert(will, (Arc::clone(message), Arc::clone(&self.anonymous)));
            }
            Record::WillPrincipal { .. } | Record::Principal { .. } | Record::Owner { .. } => {
                self.apply_user(record);
            }
            Record::WillDone { will } => self.publish_will(will),
            Record::Moved { group, session, message, packet_id, ref granted } => {
                if let Some(mut entry) = self.take(group, message) {
                    let session = self.session_or_begin(session);
                    entry.grant(Granted::clone(granted));
                    let was_sent = send(session, packet_id, message, entry);
                    if let Some(exchange) = session.in_flight.find_mut(packet_id) {
                        exchange.moved_from = Some(group);
                    }
                    if was_sent {
                        self.ledger.copied.note(group, message);
                    }
                }
            }
            _ => self.apply_to_session(record),
        }
    }

    /// The user of a session or of a will.
    fn apply_user(&mut self, record: &Record<'_>) {
        match *record {
            Record::WillPrincipal { will, ref user, ref rules, ref claims } => {
                let claims = self.restored(claims);
                let principal = self.recorded(user.as_deref(), false, rules);
                self.set_publisher(will, Principal { claims, ..principal }.into());
            }
            Record::Principal { session, ref user, is_proved, ref rules } => {
                self.session_or_begin(session);
                let principal = self.recorded(user.as_deref(), is_proved, rules);
                self.principals.insert(session, principal.into());
            }
            Record::Owner {
                session,
                ref user,
                is_proved,
                ref rules,
                ref users,
                ref mount,
                ref prefix,
                ref claims,
            } => {
                self.session_or_begin(session);
                let claims = self.restored(claims);
                let tenant = self.tenants.recorded([users, mount, prefix], self.ledger.tally.budget());
                let principal = self.recorded(user.as_deref(), is_proved, rules);
                self.principals.insert(session, Principal { tenant, claims, ..principal }.into());
            }
            // No other record names a user.
            _ => {}
        }
    }

    /// The user that a record names.
    fn recorded(&mut self, user: Option<&str>, is_proved: bool, rules: &str) -> Principal {
        let realm = self.ledger.sessions.unknown_rules.realm(&self.realms, rules);
        Principal { user: user.map(Arc::from), is_proved, realm, ..Principal::default() }
    }

    /// Notes the user for whom a will is published.
    fn set_publisher(&mut self, will: MessageId, user: Arc<Principal>) {
        let due = self.due.get_mut(&will).map(|(_, principal)| principal);
        let waiting = self.wills.get_mut(&will).map(|waiting| &mut waiting.principal);
        if let Some(principal) = due.or(waiting) {
            *principal = user;
        }
    }

    /// The rights that a record has, on the account.
    fn restored(&self, claims: &Option<Arc<Claims>>) -> Option<Arc<Claims>> {
        let claims = claims.clone()?;
        claims.charge(self.ledger.tally.budget());
        if claims.rules().is_some() {
            self.ledger.settings.guard.note_claims();
        }
        Some(claims)
    }

    /// Applies a record that concerns one session alone.
    fn apply_to_session(&mut self, record: &Record<'_>) {
        match *record {
            Record::Subscribed { session, ref filter, interest } => {
                self.session_or_begin(session).subscriptions.insert((&**filter).into(), interest);
            }
            Record::Unsubscribed { session, ref filter } => {
                if let Some(session) = self.session(session) {
                    session.subscriptions.remove(&**filter);
                    session.lasting.iter_mut().for_each(|lasting| drop(lasting.cursors.remove(&**filter)));
                }
            }
            Record::Cursor { session, ref filter, last } => {
                // Messages that were numbered and not recorded are lost, and their numbers are not given again.
                self.has_numbered(last);
                let cursor = Unfinished::new(filter, last);
                self.lasting_or_begin(session).cursors.insert((&**filter).into(), cursor);
            }
            Record::CursorMoved { session, ref filter, ref from } => {
                let lasting = self.lasting(session);
                if let Some(cursor) = lasting.and_then(|lasting| lasting.cursors.get_mut(&**filter)) {
                    cursor.from = (&**from).into();
                }
            }
            Record::CursorDone { session, ref filter } => {
                if let Some(lasting) = self.lasting(session) {
                    lasting.cursors.remove(&**filter);
                }
            }
            Record::Opened { session, packet_id } => {
                self.lasting_or_begin(session).unreleased.insert(packet_id);
            }
            Record::Closed { session, packet_id } => {
                if let Some(lasting) = self.lasting(session) {
                    lasting.unreleased.remove(&packet_id);
                }
            }
            Record::Sent { session: name, message, packet_id } => {
                if let Some(Line { owner: Owner::Session(session), queue, .. }) = self.line(name)
                    && let Some(entry) = queue.remove(message)
                    && send(session, packet_id, message, entry)
                {
                    self.ledger.copied.note(name, message);
                }
            }
            Record::Received { session, packet_id } => {
                let in_flight = &mut self.session_or_begin(session).in_flight;
                let is_known = |exchange: &Exchange| matches!(exchange.state, State::Released);
                if !in_flight.find(packet_id).is_some_and(is_known) {
                    in_flight.remove(packet_id);
                    in_flight.insert(packet_id, 0, State::Released);
                }
            }
            Record::ReceivedKept { session, packet_id, place } => {
                self.session_or_begin(session).in_flight.keep(packet_id, place);
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
        if self.ledger.lines.named(incarnation).is_some() {
            return;
        }
        self.session_or_begin(incarnation);
        let mut line = self.nameless.remove(&incarnation).expect("it has begun, and has no name");
        let client_id: Arc<str> = client_id.into();
        let id = self.ledger.lines.insert(|id| {
            let subscriber = Arc::new(Subscriber::lasting(Arc::clone(&client_id), id));
            line.session_mut().expect("what has no name is kept as a session").subscriber = subscriber;
            *line
        });
        self.ledger.sessions.claims.set_session(&client_id, Some(id));
    }

    fn connect(&mut self, incarnation: Incarnation, expiry_secs: u32, will: Option<&WillRecord<'_>>) {
        self.left_unix_ms.remove(&incarnation);
        let will = will.map(|will| {
            self.has_numbered(will.id);
            let WillRecord { id, ref message, delay_secs } = *will;
            let message = Arc::clone(message);
            let bytes = self.ledger.bodies.live.count(message.size_bytes());
            Box::new(PendingWill { id, message, delay_secs, due_ms: None, _bytes: bytes })
        });
        let id = will.as_ref().map(|will| will.id);
        let lasting = self.lasting_or_begin(incarnation);
        lasting.expiry_secs = expiry_secs;
        if let Some(old) = std::mem::replace(&mut lasting.will, will) {
            self.wills.remove(&old.id);
        }
        if let Some(id) = id {
            let principal = Arc::clone(&self.anonymous);
            self.wills.insert(id, Waiting { session: incarnation, principal });
        }
    }

    fn decide_will(&mut self, incarnation: Incarnation, fate: WillFate) {
        if fate == WillFate::Waits {
            return;
        }
        let Some(will) = self.lasting(incarnation).and_then(|lasting| lasting.will.take()) else { return };
        let waiting = self.wills.remove(&will.id);
        if fate == WillFate::Due {
            let anonymous = || Arc::clone(&self.anonymous);
            let principal = waiting.map_or_else(anonymous, |waiting| waiting.principal);
            self.due.insert(will.id, (will.message, principal));
        }
    }

    /// The user of a session. One without a record is anonymous.
    pub(crate) fn principal_of(&self, session: Incarnation) -> Arc<Principal> {
        Arc::clone(self.principals.get(&session).unwrap_or(&self.anonymous))
    }

    fn publish_will(&mut self, will: MessageId) {
        self.due.remove(&will);
        if let Some(Waiting { session, .. }) = self.wills.remove(&will)
            && let Some(lasting) = self.lasting(session)
        {
            lasting.will = None;
        }
    }

    fn end(&mut self, incarnation: Incarnation) {
        self.count(incarnation);
        self.left_unix_ms.remove(&incarnation);
        self.principals.remove(&incarnation);
        self.nameless.remove(&incarnation);
        let id = self.ledger.lines.named(incarnation);
        let Some(id) = id.filter(|id| self.ledger.lines.session(*id).is_some()) else { return };
        let line = self.ledger.lines.remove(id).expect("it was found");
        let Owner::Session(session) = line.owner else { unreachable!("it is a session") };
        let client_id = &session.subscriber.client_id;
        if self.ledger.sessions.claims.find(client_id).is_some_and(|client| client.session == Some(id)) {
            self.ledger.sessions.claims.set_session(client_id, None);
            self.ledger.sessions.claims.settle(client_id);
        }
    }

    fn begin_group(&mut self, incarnation: Incarnation, filter: &str) {
        self.count(incarnation);
        // A group that no ledger has recorded stays without a name, and is forgotten.
        let is_valid = TopicFilter::new(filter).is_ok_and(|filter| filter.shared().is_some());
        if !is_valid || self.ledger.lines.named(incarnation).is_some() {
            return;
        }
        if let Some(old) = self.ledger.lines.filters.of_filter(filter) {
            self.ledger.lines.remove(old);
        }
        let id = self.ledger.lines.insert_group(filter, incarnation, None);
        let nameless = self.nameless.remove(&incarnation);
        let line = self.ledger.lines.find_mut(id).expect("it was put there");
        line.queue = nameless.map(|nameless| nameless.queue).unwrap_or_default();
        line.group_mut().expect("it is a group").is_recorded = true;
    }

    fn enqueue(&mut self, id: MessageId, keeping: &Keeping<'_>, queued: &Queued) {
        let Queued { queue, ref granted } = *queued;
        let stays_away = self.is_full() && !self.may_need_lane(queue);
        let entry = keeping.one(granted.clone(), true, stays_away);
        if !self.line_or_begin(queue).queue.restore(id, entry) {
            self.ledger.copied.note(queue, id);
        }
    }

    /// Whether further messages that can be read again need not be in memory.
    pub(crate) fn is_full(&self) -> bool {
        let Settings { queued_bytes_in_memory, recovered_bytes_in_memory, .. } = self.ledger.settings;
        self.ledger.bodies.live.in_memory_bytes() > queued_bytes_in_memory.min(recovered_bytes_in_memory)
    }

    /// Whether messages are to come with their bodies.
    pub(crate) fn wants_bodies(&self) -> bool {
        // Nobody may know yet whether a queue is a group's.
        !self.is_full() || matches!(self.ledger.settings.dispatch, Dispatch::KeyOrdered(_))
    }

    /// Whether it is, or may turn out to be, a group whose messages keep an order by their keys: these stay in memory.
    fn may_need_lane(&self, queue: Incarnation) -> bool {
        matches!(self.ledger.settings.dispatch, Dispatch::KeyOrdered(_))
            && self.ledger.lines.session_named(queue).is_none()
    }

    /// Takes a message out of a session's queue or a group's.
    fn take(&mut self, queue: Incarnation, message: MessageId) -> Option<Entry> {
        self.line(queue)?.queue.remove(message)
    }

    fn group(&self, incarnation: Incarnation) -> Option<QueueId> {
        let id = self.ledger.lines.named(incarnation)?;
        self.ledger.lines.group(id).map(|_| id)
    }

    fn line(&mut self, incarnation: Incarnation) -> Option<&mut Line> {
        match self.ledger.lines.named(incarnation) {
            Some(id) => self.ledger.lines.find_mut(id),
            None => self.nameless.get_mut(&incarnation).map(|line| &mut **line),
        }
    }

    fn session(&mut self, incarnation: Incarnation) -> Option<&mut Session> {
        self.line(incarnation)?.session_mut()
    }

    fn lasting(&mut self, incarnation: Incarnation) -> Option<&mut Lasting> {
        self.session(incarnation)?.lasting.as_mut()
    }

    /// A session or group that is mentioned begins, if it is not known: its name follows.
    fn line_or_begin(&mut self, incarnation: Incarnation) -> &mut Line {
        match self.ledger.lines.named(incarnation) {
            Some(id) => self.ledger.lines.find_mut(id).expect("what has a name is there"),
            None => self.nameless_or_begin(incarnation),
        }
    }

    /// The same for what is a session. A group of that name, which no ledger has recorded, is left alone.
    fn session_or_begin(&mut self, incarnation: Incarnation) -> &mut Session {
        let session = self.ledger.lines.named(incarnation);
        let line = match session.filter(|id| self.ledger.lines.session(*id).is_some()) {
            Some(id) => self.ledger.lines.find_mut(id).expect("what has a name is there"),
            None => self.nameless_or_begin(incarnation),
        };
        line.session_mut().expect("what has no name is kept as a session")
    }

    /// Returns the line, or begins one as a session: it is not known yet whether it is a group.
    fn nameless_or_begin(&mut self, incarnation: Incarnation) -> &mut Line {
        self.count(incarnation);
        let nobody = &self.nobody;
        self.nameless.entry(incarnation).or_insert_with(|| {
            let mut session = Session::lasting(Arc::clone(nobody), incarnation);
            session.lasting.as_mut().expect("it lasts").is_unsettled = true;
            Box::new(Line::new(Owner::Session(session)))
        })
    }

    fn lasting_or_begin(&mut self, incarnation: Incarnation) -> &mut Lasting {
        self.session_or_begin(incarnation).lasting.as_mut().expect("what is recorded lasts")
    }

    /// Numbers that were given once are not given again.
    fn count(&mut self, incarnation: Incarnation) {
        self.ledger.replies.numbers.incarnation = self.ledger.replies.numbers.incarnation.max(incarnation);
    }
}

/// A message that was in the queue is on its way. Returns whether it was before: then it was read from a copy.
fn send(session: &mut Session, packet_id: PacketId, message: MessageId, entry: Entry) -> bool {
    let bytes = entry.size_bytes();
    let before = session.in_flight.remove(packet_id);
    session.in_flight.insert(packet_id, bytes, State::Own(message, entry));
    before.is_some_and(|exchange| matches!(exchange.state, State::Own(id, _) if id == message))
}
