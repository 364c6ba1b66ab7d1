//! Connections that come to an identifier and go from it, and the sessions that they find and leave behind.

use std::borrow::Cow;
use std::sync::Arc;

use base::{Now, Place, QueueId, ShardId, Subscriber};
use index::Subscriptions;
use topic::TopicFilter;
use wire::{PacketId, ReasonCode};

use crate::brake::Growth;
use crate::claims::{Claimant, Gone, Holder, Outcome};
use crate::gauges::{add, subtract};
use crate::in_flight::State;
use crate::lines::{Line, Owner};
use crate::principal::of_will;
use crate::record::{Incarnation, WillFate, WillRecord};
use crate::replies::Answer;
use crate::restore::pay;
use crate::session::{Lasting, Online, PendingWill, Session};
use crate::will::DueWill;
use crate::{Effects, Ledger, RETRY_MS, Record, Refusal};
use protocol::{Cause, Claim, Claimed, Durability, Left, Reply};

impl Ledger {
    /// A CONNECT wants its identifier.
    pub(crate) fn claim(&mut self, from: ShardId, claim: Box<Claim>, now: Now, to: &mut impl Effects) {
        let place = Place { shard: from, connection: claim.connection };
        self.replies.set_durability(place, claim.durability);
        if self.is_of_other_user(&claim) {
            let (connection, reason) = (place.connection, ReasonCode::NotAuthorized);
            return to.post(place.shard, Reply::Refused { connection, reason });
        }
        if self.has_enough_connections(&claim) {
            return self.refuse_connection(place, to);
        }
        match self.claims.claim(Claimant { shard: from, claim }) {
            // Rule 8 of `protocol::order`: the newcomer waits until the holder has left.
            Outcome::Evict(place) => to.post(place.shard, Reply::Evict { connection: place.connection }),
            Outcome::Free(claimant) => self.grant(claimant, now, to),
        }
    }

    /// A connection is gone.
    pub(crate) fn left(&mut self, from: ShardId, left: &Left, now: Now, to: &mut impl Effects) {
        let place = Place { shard: from, connection: left.connection };
        self.replies.set_durability(place, Durability::Fsync);
        let id = &left.subscriber.client_id;
        self.cursors.close_all(from, left.connection);
        let Gone::Holder { holder, session, next } = self.claims.left(id, place) else { return };
        let lasting = session.and_then(|session| self.lines.session(session)?.lasting.as_ref());
        match (session, lasting) {
            (Some(session), Some(lasting)) => {
                let expiry_secs = left.expiry_secs.unwrap_or(lasting.expiry_secs);
                self.depart(session, left.cause, expiry_secs, now, to);
            }
            (session, _) => {
                if let Some(session) = session {
                    self.remove_session(session, WillFate::Dropped);
                }
                let will = holder.will.filter(|_| left.cause != Cause::Normal);
                let principal = holder.principal;
                self.wills.extend(will.map(|will| DueWill::new(None, will.message, principal)));
            }
        }
        // Wills go out in the order in which they became due: this one's now, unless others still wait before it.
        self.fire_wills(&mut 1, now, to);
        match next {
            // Its user may have come by other identifiers meanwhile.
            Some(next) if self.has_enough_connections(&next.claim) => {
                self.refuse_connection(next.place(), to);
                self.claims.settle(id);
            }
            Some(next) => self.grant(next, now, to),
            None => self.claims.settle(id),
        }
    }

    /// Refuses a client whose user has as many connections as it may.
    fn refuse_connection(&self, place: Place, to: &mut impl Effects) {
        add(&self.gauges.connects_refused_user, 1);
        let (connection, reason) = (place.connection, ReasonCode::QuotaExceeded);
        to.post(place.shard, Reply::Refused { connection, reason });
    }

    /// Gives a claimant the identifier, which nobody holds, with the session that it asks for.
    fn grant(&mut self, claimant: Claimant, now: Now, to: &mut impl Effects) {
        let place = claimant.place();
        let claim = *claimant.claim;
        let id = Arc::clone(&claim.subscriber.client_id);
        if let Some(session) = self.claims.find(&id).and_then(|client| client.session) {
            self.settle(session, now, to);
        }
        if self.replies.is_poisoned() && self.claims.is_ending(&id) {
            // That the session has ended will never be durable: after the restart it is there again.
            let (connection, reason) = (place.connection, ReasonCode::ServerUnavailable);
            return to.post(place.shard, Reply::Refused { connection, reason });
        }
        let existing = self.claims.find(&id).and_then(|client| client.session);
        let is_recorded = existing.is_some() || claim.expiry_secs > 0 || self.claims.is_ending(&id);
        let claimed = match existing {
            Some(session) if !claim.clean_start => self.resume(session, place, &claim, to),
            existing => self.begin(existing, place, claim, to).map(Some),
        };
        match claimed {
            // Its shard is told bit by bit what the session has.
            Ok(None) => {}
            Ok(Some(claimed)) => {
                let reply = Reply::Claimed(Box::new(claimed));
                if is_recorded {
                    self.answer(Answer { shard: place.shard, reply, brake: None }, now, to);
                } else {
                    to.post(place.shard, reply);
                }
            }
            Err(reason) => {
                to.post(place.shard, Reply::Refused { connection: place.connection, reason });
                self.claims.settle(&id);
            }
        }
        self.fire_wills(&mut 1, now, to);
    }

    /// Goes on with a session. Its will is not published any more [MQTT-3.1.3-9]. Nothing is answered yet if it has many
    /// subscriptions.
    fn resume(
        &mut self,
        id: QueueId,
        place: Place,
        claim: &Claim,
        to: &mut impl Effects,
    ) -> Result<Option<Claimed>, ReasonCode> {
        if self.tally.budget().is_tight_to_keep() && self.brings_larger_will(Some(id), claim) {
            add(&self.gauges.connects_refused_memory, 1);
            return Err(ReasonCode::QuotaExceeded);
        }
        let will = self.pending_will(claim);
        let name = self.lines.session(id).and_then(Session::incarnation);
        let name = name.expect("what a client has without a connection lasts");
        let (before, principal) = (self.principal_of(id), claim.subscriber.principal());
        let acts = self.new_principal_record(name, &before, &principal);
        let realms = self.settings.guard.current();
        let speaks = will.as_ref().and_then(|will| of_will(&realms, will.id, &principal));
        let group: Vec<Record<'_>> =
            [connected(name, claim, will.as_ref())].into_iter().chain(speaks).chain(acts).collect();
        self.replies.commit(&group, to).map_err(|refusal| reason(self, refusal))?;
        drop(group);
        let session = self.lines.session_mut(id).expect("it was there before this was recorded");
        session.subscriber.set_principal(principal);
        session.role_bounds.forget();
        let lasting = session.lasting.as_mut().expect("what a client has without a connection lasts");
        if lasting.will.take().is_some_and(|will| will.due_ms.is_some()) {
            subtract(&self.gauges.wills_pending, 1);
        }
        lasting.will = will.map(Box::new);
        lasting.left_unix_ms = None;
        lasting.expires_ms = None;
        self.timers.set(id, lasting.timer_ms.take(), None);
        let session = self.lines.session(id).expect("it was there before this was recorded");
        let lasting = session.lasting.as_ref().expect("what a client has without a connection lasts");
        let is_small = session.is_small(self.settings.units_at_once);
        let subscriptions = session.subscriptions.iter();
        let claimed = is_small.then(|| Claimed {
            connection: place.connection,
            subscriber: Arc::clone(&session.subscriber),
            session_present: true,
            subscriptions: subscriptions.map(|(filter, interest)| (filter.clone(), *interest)).collect(),
            unfinished: lasting
                .cursors
                .keys()
                .filter_map(|filter| Some((filter.clone(), *session.subscriptions.get(filter)?)))
                .collect(),
            has_more_unfinished: false,
            unreleased: lasting.unreleased.iter().copied().collect(),
        });
        self.come_online(id, place, claim);
        if !is_small {
            let online = self.lines.session_mut(id).and_then(|session| session.online.as_mut());
            online.into_iter().for_each(|online| online.is_restored = true);
            self.restore(id, place);
        }
        Ok(claimed)
    }

    /// Begins anew, and ends what there was. Without a session that lasts nothing else is recorded.
    fn begin(
        &mut self,
        existing: Option<QueueId>,
        place: Place,
        claim: Claim,
        to: &mut impl Effects,
    ) -> Result<Claimed, ReasonCode> {
        let lasts = claim.expiry_secs > 0;
        // A client that ends a session frees memory. A lasting session is kept: no client can be forced to fetch its
        // messages.
        let budget = self.tally.budget();
        let is_short = if lasts { budget.is_tight_to_keep() } else { budget.is_tight() };
        if is_short && (existing.is_none() || self.brings_larger_will(existing, &claim)) {
            add(&self.gauges.connects_refused_memory, 1);
            return Err(ReasonCode::QuotaExceeded);
        }
        if lasts && existing.is_none() && self.lines.lasting_len() >= self.settings.sessions_max {
            add(&self.gauges.sessions_refused, 1);
            return Err(ReasonCode::QuotaExceeded);
        }
        let incarnation = self.next_incarnation();
        let will = if lasts { self.pending_will(&claim) } else { None };
        let old = existing.and_then(|id| self.lines.session(id)?.lasting.as_ref());
        let fate = old.map_or(WillFate::Dropped, Lasting::fate_at_end);
        let ended = old.map(|old| Record::Ended { session: old.incarnation, will: fate });
        let client_id = Cow::Borrowed(&*claim.subscriber.client_id);
        let begun = lasts.then_some(Record::Session { session: incarnation, client_id });
        let connected = lasts.then(|| connected(incarnation, &claim, will.as_ref()));
        let principal = claim.subscriber.principal();
        let realms = self.settings.guard.current();
        let speaks = will.as_ref().and_then(|will| of_will(&realms, will.id, &principal));
        let acts = self.principal_record(incarnation, &principal).filter(|_| lasts);
        let connected = connected.into_iter().chain(speaks).chain(acts);
        let group: Vec<Record<'_>> = ended.into_iter().chain(begun).chain(connected).collect();
        if !group.is_empty() {
            self.replies.commit(&group, to).map_err(|refusal| reason(self, refusal))?;
        }
        if let Some(existing) = existing {
            self.remove_session(existing, fate);
        }
        let claimed = |subscriber| Claimed {
            connection: place.connection,
            subscriber,
            session_present: false,
            subscriptions: Vec::new(),
            unfinished: Vec::new(),
            has_more_unfinished: false,
            unreleased: Vec::new(),
        };
        if !lasts {
            let Claim { subscriber, window, packet_bytes_max, will, .. } = claim;
            let holder = Holder { place, window, packet_bytes_max, will: will.map(Box::new), principal };
            self.claims.hold(&subscriber.client_id, holder, None);
            return Ok(claimed(subscriber));
        }
        let mut subscriber = Arc::clone(&claim.subscriber);
        let id = self.lines.insert(|id| {
            let lasting = Subscriber::lasting(Arc::clone(&subscriber.client_id), id);
            subscriber = Arc::new(lasting.with_principal(principal));
            let mut session = Session::lasting(Arc::clone(&subscriber), incarnation);
            session.lasting.as_mut().expect("it lasts").will = will.map(Box::new);
            Line::new(Owner::Session(session))
        });
        add(&self.gauges.sessions, 1);
        self.come_online(id, place, &claim);
        Ok(claimed(subscriber))
    }

    /// Whether the will of a client adds more memory than its session may free: an older will, and messages that wait
    /// for the client to take them.
    fn brings_larger_will(&self, session: Option<QueueId>, claim: &Claim) -> bool {
        let freed = |line: &Line| {
            let lasting = line.session().and_then(|session| session.lasting.as_ref());
            let will = lasting.and_then(|lasting| lasting.will.as_ref());
            will.map_or(0, |will| will.message.size_bytes()) + line.queue.bytes()
        };
        let freed_bytes = session.and_then(|id| self.lines.find(id)).map_or(0, freed);
        claim.will.as_ref().is_some_and(|will| will.message.size_bytes() > freed_bytes)
    }

    fn pending_will(&mut self, claim: &Claim) -> Option<PendingWill> {
        let will = claim.will.as_ref()?;
        let id = self.next_message();
        Some(PendingWill {
            id,
            message: Arc::clone(&will.message),
            delay_secs: will.delay_secs,
            due_ms: None,
            _bytes: self.live.count(will.message.size_bytes()),
        })
    }

    fn come_online(&mut self, id: QueueId, place: Place, claim: &Claim) {
        let session = self.lines.session_mut(id).expect("the session of a connection that has come is there");
        let lasting = session.lasting.as_mut().expect("it lasts");
        lasting.expiry_secs = claim.expiry_secs;
        lasting.was_refused = false;
        session.online = Some(Box::new(Online::new(place, claim.window, claim.packet_bytes_max)));
        let Claim { window, packet_bytes_max, .. } = *claim;
        let principal = session.subscriber.principal();
        let holder = Holder { place, window, packet_bytes_max, will: None, principal };
        self.claims.hold(&session.subscriber.client_id, holder, Some(id));
    }

    /// The shard knows that the connection has the session, so that others may lead there, and what is under way goes on
    /// [MQTT-4.4.0-1].
    pub(crate) fn open(&mut self, id: QueueId, place: Place, to: &mut impl Effects) {
        // The connection may have gone before its shard could be told.
        let Some(Line { owner: Owner::Session(session), queue, growth, .. }) = self.lines.find_mut(id) else {
            return;
        };
        let Some(online) = session.online.as_mut().filter(|online| online.place == place) else { return };
        let lasting = session.lasting.as_ref().expect("it lasts");
        add(&self.gauges.sessions_connected, 1);
        online.is_open = true;
        online.opened_behind = self.last_message;
        let has_more_unfinished = online.is_restored && !lasting.cursors.is_empty();
        *growth = Growth::begin(queue);
        for exchange in session.in_flight.restart() {
            let packet_id = exchange.packet_id;
            match exchange.state {
                State::Released => {
                    online.begun(exchange.bytes);
                    to.post(place.shard, Reply::Release { connection: place.connection, packet_id });
                }
                _ => online.again.push_back(packet_id),
            }
        }
        session.subscriber.move_to(Some(place));
        touch(&self.index, session);
        if has_more_unfinished {
            self.restore_unfinished(id, place);
        }
        self.move_in_groups(id);
        self.lines.is_ready(id);
    }

    /// The connection of a session that lasts is over.
    pub(crate) fn depart(
        &mut self,
        id: QueueId,
        cause: Cause,
        expiry_secs: u32,
        now: Now,
        to: &mut impl Effects,
    ) {
        let lasting = self.lines.session(id).and_then(|session| session.lasting.as_ref());
        let lasting = lasting.expect("a session that lasts is there until it has ended");
        let fate = match &lasting.will {
            None => WillFate::Dropped,
            Some(_) if cause == Cause::Normal => WillFate::Dropped,
            Some(will) if will.delay_secs == 0 || expiry_secs == 0 => WillFate::Due,
            Some(_) => WillFate::Waits,
        };
        let incarnation = lasting.incarnation;
        let record = match expiry_secs {
            0 => Record::Ended { session: incarnation, will: fate },
            _ => Record::Left { session: incarnation, expiry_secs, unix_ms: now.unix_ms, will: fate },
        };
        match self.replies.commit(&[record], to) {
            Ok(()) if expiry_secs == 0 => self.remove_session(id, fate),
            Ok(()) => self.go_offline(id, expiry_secs, fate, now),
            // It has gone whether that is recorded or not: after a restart it will be found gone.
            Err(refusal) => {
                let _ = reason(self, refusal);
                self.go_offline(id, expiry_secs, fate, now);
            }
        }
    }

    fn go_offline(&mut self, id: QueueId, expiry_secs: u32, fate: WillFate, now: Now) {
        let principal = self.principal_of(id);
        let lasting = self.lines.session_mut(id).and_then(|session| session.lasting.as_mut());
        let session = lasting.expect("a session that lasts is there until it has ended");
        let after = |secs: u32| now.monotonic_ms.saturating_add(u64::from(secs) * 1_000);
        session.expiry_secs = expiry_secs;
        session.left_unix_ms = Some(now.unix_ms);
        session.expires_ms = match expiry_secs {
            u32::MAX => None,
            // Its end could not be recorded.
            0 => Some(now.monotonic_ms + RETRY_MS),
            secs => Some(after(secs)),
        };
        match (fate, session.will.as_mut()) {
            (WillFate::Waits, Some(will)) => {
                will.due_ms = Some(after(will.delay_secs.min(expiry_secs)));
                add(&self.gauges.wills_pending, 1);
            }
            (WillFate::Due, Some(_)) => {
                let will = session.will.take();
                self.wills.extend(will.map(|will| DueWill::new(Some(will.id), will.message, principal)));
            }
            _ => session.will = None,
        }
        let due_ms = session.next_timer_ms();
        self.timers.set(id, session.timer_ms, due_ms);
        session.timer_ms = due_ms;
        self.disconnect(id);
    }

    /// Takes a session off its connection. Messages that a group has lent to it go back.
    pub(crate) fn disconnect(&mut self, id: QueueId) {
        let session = self.lines.session_mut(id).expect("a session that lasts is there until it has ended");
        if session.online.take().is_none_or(|online| !online.is_open) {
            return;
        }
        subtract(&self.gauges.sessions_connected, 1);
        session.subscriber.move_to(None);
        touch(&self.index, session);
        let lanes = session.in_flight.take_lanes();
        let shared = session.in_flight.in_order().into_iter();
        let shared: Vec<PacketId> = shared
            .filter(|exchange| matches!(exchange.state, State::Shared { .. }))
            .map(|exchange| exchange.packet_id)
            .collect();
        for packet_id in shared {
            let exchange = self.lines.session_mut(id).and_then(|session| session.in_flight.remove(packet_id));
            if let Some(State::Shared { group, message }) = exchange.map(|exchange| exchange.state) {
                self.give_back(group, message);
            }
        }
        lanes.into_iter().for_each(|(group, lane)| self.finish_in_lane(group, lane, 0));
        self.move_in_groups(id);
        self.put_away(id);
    }
}

/// The record of a connection.
fn connected<'a>(session: Incarnation, claim: &Claim, will: Option<&'a PendingWill>) -> Record<'a> {
    let will = will.map(|will| WillRecord {
        id: will.id,
        message: Cow::Borrowed(&will.message),
        delay_secs: will.delay_secs,
    });
    Record::Connected { session, expiry_secs: claim.expiry_secs, will }
}

/// Returns the reason code of CONNACK when the records of a connection were refused.
fn reason(ledger: &Ledger, refusal: Refusal) -> ReasonCode {
    match ledger.reason(refusal) {
        ReasonCode::ImplementationSpecificError => ReasonCode::ServerUnavailable,
        reason => reason,
    }
}

/// Routes through the filters of a session are to look again where it is. If these are more than this many units, all
/// routes are: each of them looks once.
const TOUCHED_AT_ONCE: usize = 1_000;

fn touch(index: &Subscriptions, session: &Session) {
    let mut left = TOUCHED_AT_ONCE;
    for filter in session.subscriptions.keys() {
        if pay(&mut left, filter).is_none() {
            return index.touch_all();
        }
        index.touch(TopicFilter::new(filter).ok());
    }
}
