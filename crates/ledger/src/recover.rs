//! A ledger made again from its records.

pub(crate) mod replay;
pub(crate) mod turnover;

use std::sync::Arc;

use base::{Budget, Now, QueueId};
use index::{Change, Subscriptions};
use topic::TopicFilter;

use crate::Ledger;
use crate::gauges::add;
use crate::lines::{Line, Owner};
use crate::record::{Address, Addressed, Away, Record};
use crate::recover::replay::Replay;
use crate::sessions::subscribe::subscription_bytes;
use crate::sessions::wills::DueWill;
use crate::settings::Settings;

/// The source of the records from which a ledger is [rebuilt](Ledger::recover_from).
pub trait Source<'a> {
    /// Returns the next record; `None` at the end. If bodies are not wanted, a message that can be read again may come
    /// without its body.
    fn next_record(&mut self, wants_bodies: bool) -> Option<Recovered<'a>>;
}

/// The parts of a record that were read.
pub enum Recovered<'a> {
    /// The record with its message.
    Whole(Addressed<'a>),
    /// A message without itself, and where that can be read again.
    Away(Away, Address),
}

impl Recovered<'_> {
    /// Memory of the message, in bytes.
    fn body_bytes(&self) -> usize {
        match self {
            Self::Whole(Addressed { record: Record::Enqueue { body, .. }, .. }) => body.size_bytes(),
            _ => 0,
        }
    }
}

/// Another source, with the messages of its records on the account of a budget.
pub struct Charged<'s, S: ?Sized> {
    source: &'s mut S,
    budget: &'s Arc<Budget>,
}

impl<'s, S: ?Sized> Charged<'s, S> {
    /// The budget is the one that the ledger is to have.
    pub fn new(source: &'s mut S, budget: &'s Arc<Budget>) -> Self {
        Self { source, budget }
    }
}

impl<'a, S: Source<'a> + ?Sized> Source<'a> for Charged<'_, S> {
    fn next_record(&mut self, wants_bodies: bool) -> Option<Recovered<'a>> {
        let mut next = self.source.next_record(wants_bodies)?;
        if let Recovered::Whole(Addressed { record, .. }) = &mut next
            && let Some(message) = record.message_mut()
        {
            Arc::make_mut(message.to_mut()).charge_to(self.budget);
        }
        Some(next)
    }
}

/// Records that are there.
struct Given<I>(I);

impl<'a, I: Iterator<Item: Into<Addressed<'a>>>> Source<'a> for Given<I> {
    fn next_record(&mut self, _: bool) -> Option<Recovered<'a>> {
        self.0.next().map(|record| Recovered::Whole(record.into()))
    }
}

/// Number of records that are read ahead before the first of them is applied, at most.
const SIGHT: usize = 64;

/// Bytes of the messages of records that are read ahead, plus one message.
const SIGHT_BYTES: usize = 1 << 20;

impl Ledger {
    /// As [`recover_from`](Self::recover_from), of records that are there.
    #[must_use]
    pub fn recover<'a>(
        settings: Settings,
        index: Arc<Subscriptions>,
        records: impl IntoIterator<Item = impl Into<Addressed<'a>>>,
        now: Now,
    ) -> Self {
        Self::recover_from(settings, index, &mut Given(records.into_iter()), now)
    }

    /// The ledger that has made these records, which are whole groups, in their order; without the first of them if what
    /// was true of those was [copied](Self::copy_some). Nobody is connected to it: clients that were when the records end
    /// are taken as disconnected `now`. `index` gets the subscriptions. Messages whose records can be read again need not
    /// stay in memory.
    #[must_use]
    pub fn recover_from<'a>(
        settings: Settings,
        index: Arc<Subscriptions>,
        records: &mut (impl Source<'a> + ?Sized),
        now: Now,
    ) -> Self {
        let mut replay = Replay::new(Self::new(settings, index));
        let mut next = Vec::with_capacity(SIGHT);
        loop {
            let (wants_bodies, mut bytes) = (replay.wants_bodies(), 0);
            while next.len() < SIGHT
                && bytes < SIGHT_BYTES
                && let Some(record) = records.next_record(wants_bodies)
            {
                bytes += record.body_bytes();
                next.push(record);
            }
            if next.is_empty() {
                return replay.finish(now);
            }
            replay.approach(&next);
            next.iter().for_each(|record| replay.apply(record));
            next.clear();
        }
    }
}

impl Replay {
    /// Completes the ledger after all records were read.
    pub(crate) fn finish(mut self, now: Now) -> Ledger {
        let due = std::mem::take(&mut self.due).into_iter();
        let due = due.map(|(id, (message, principal))| DueWill::new(Some(id), message, principal));
        self.ledger.sessions.wills.extend(due);
        for (incarnation, id) in self.ledger.lines.in_order() {
            if self.ledger.lines.session(id).is_none() {
                continue;
            }
            let principal = self.principal_of(incarnation);
            if let Some(session) = self.ledger.lines.session(id) {
                session.subscriber.set_principal(principal);
                session.role_bounds.forget();
            }
            self.put_in_order(id);
            self.resubscribe(id);
            match self.left_unix_ms.get(&incarnation) {
                Some(left_unix_ms) => self.set_timer(id, *left_unix_ms, now),
                None => self.ledger.restart.unsettled.push_back(id),
            }
            self.account(id);
        }
        for (incarnation, id) in self.ledger.lines.in_order() {
            let Some(line) = self.ledger.lines.find_mut(id).filter(|line| line.group().is_some()) else {
                continue;
            };
            line.settle(&self.ledger.settings);
            self.account(id);
            let group = self.ledger.lines.group(id).expect("it was found a moment ago");
            if group.members == 0 {
                self.ledger.lines.remove_if_empty(id);
                self.ledger.restart.orphans.push(incarnation);
            } else if !group.is_recorded {
                self.ledger.restart.unrecorded.push(id);
            }
        }
        self.ledger.show();
        self.ledger
    }

    /// The records may be copies: messages are in the order of their numbers all the same.
    fn put_in_order(&mut self, id: QueueId) {
        let is_full = self.is_full();
        let line = self.ledger.lines.find_mut(id).expect("it was read");
        line.settle(&self.ledger.settings);
        let Line { owner: Owner::Session(session), queue, .. } = line else {
            unreachable!("it is a session")
        };
        session.in_flight.restore_order();
        session.in_flight.iter().for_each(|exchange| self.ledger.sessions.moved.note(exchange, id));
        // Of what might have been a group's all was kept until now.
        if is_full {
            queue.iter_mut().for_each(|(_, entry)| entry.put_away());
        }
    }

    /// Writes a session's subscriptions into the index, and makes it a member of its groups.
    fn resubscribe(&mut self, id: QueueId) {
        let session = self.ledger.lines.session(id).expect("it was read");
        let filters = session
            .subscriptions
            .iter()
            .filter_map(|(text, interest)| TopicFilter::new(text).ok().map(|filter| (filter, *interest)));
        let (shared, plain): (Vec<_>, Vec<_>) = filters.partition(|(filter, _)| filter.shared().is_some());
        let subscriber = &session.subscriber;
        let changes =
            plain.into_iter().map(|(filter, options)| Change::Subscribe { filter, subscriber, options });
        self.ledger.lines.index.apply(changes, &mut Vec::new());
        let bytes = session.subscriptions.keys().map(|filter| subscription_bytes(filter)).sum::<usize>();
        self.ledger.sessions.subscription_bytes += bytes;
        let unreleased = session.lasting.as_ref().map_or(0, |lasting| lasting.unreleased.len());
        self.ledger.sessions.unreleased += unreleased;
        let shared: Vec<_> = shared
            .into_iter()
            .map(|(filter, interest)| (Box::<str>::from(filter.as_str()), interest))
            .collect();
        for (filter, interest) in shared {
            let group = self.ledger.lines.group_of(&filter, id, &mut self.ledger.replies.numbers);
            self.ledger.lines.join(id, group, interest);
        }
    }

    /// Sets the timer of a session. The time in which the server was down counts.
    fn set_timer(&mut self, id: QueueId, left_unix_ms: u64, now: Now) {
        let lasting = self.ledger.lines.session_mut(id).and_then(|session| session.lasting.as_mut());
        let session = lasting.expect("what was read lasts");
        session.is_unsettled = false;
        session.left_unix_ms = Some(left_unix_ms);
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
        self.ledger.sessions.timers.set(id, None, session.timer_ms);
    }

    fn account(&mut self, id: QueueId) {
        let line = self.ledger.lines.find(id).expect("it was read");
        add(&self.ledger.gauges.sessions, usize::from(line.session().is_some()));
        self.ledger.lines.fates.restored(line);
        if line.queue.expiring() > 0 {
            self.ledger.lines.sweep.add(id);
        }
    }
}
