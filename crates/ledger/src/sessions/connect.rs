//! Connections that come to an identifier and go from it, and the sessions that they find and leave behind.

use std::borrow::Cow;
use std::sync::Arc;

use base::{Now, Place, QueueId, Subscriber};
use wire::{PacketId, ReasonCode};

use crate::gauges::{add, subtract};
use crate::lines::presence::touch;
use crate::lines::session::{Lasting, Online, PendingWill, Session};
use crate::lines::{Line, Owner};
use crate::queue::in_flight::State;
use crate::record::principals::{of_will, rules_of};
use crate::record::{Effects, Incarnation, RETRY_MS, Record, Refusal, WillFate, WillRecord};
use crate::replies::Replies;
use crate::replies::restoring::What;
use crate::sessions::SessionWork;
use crate::sessions::claims::Holder;
use crate::sessions::wills::DueWill;
use protocol::{Cause, Claim, Claimed};

impl SessionWork<'_> {
    /// Goes on with a session. Its will is not published any more [MQTT-3.1.3-9]. Nothing is answered yet if it has many
    /// subscriptions.
    pub(crate) fn resume(
        &mut self,
        id: QueueId,
        place: Place,
        claim: &Claim,
        to: &mut impl Effects,
    ) -> Result<Option<Claimed>, ReasonCode> {
        if self.bodies.budget.is_tight_to_keep() && self.brings_larger_will(Some(id), claim) {
            add(&self.gauges.connects_refused_memory, 1);
            return Err(ReasonCode::QuotaExceeded);
        }
        let will = self.pending_will(claim);
        let name = self.lines.session(id).and_then(Session::incarnation);
        let name = name.expect("what a client has without a connection lasts");
        let (before, principal) = (self.lines.principal_of(id), claim.subscriber.principal());
        let acts = self.settings.new_principal_record(name, &before, &principal);
        let realms = self.settings.guard.current();
        let speaks =
            will.as_ref().and_then(|will| of_will(will.id, &principal, rules_of(&realms, principal.realm)));
        let group: Vec<Record<'_>> =
            [connected(name, claim, will.as_ref())].into_iter().chain(speaks).chain(acts).collect();
        self.replies.commit(&group, to).map_err(|refusal| reason(self.replies, refusal))?;
        drop(group);
        let session = self.lines.session_mut(id).expect("it was there before this was recorded");
        session.subscriber.set_principal(principal);
        session.role_bounds.forget();
        let lasting = session.lasting.as_mut().expect("what a client has without a connection lasts");
        if lasting.will.take().is_some_and(|will| will.due_ms.is_some()) {
            subtract(&self.gauges.wills_pending, 1);
        }
        lasting.will = will.map(Box::new);
        (lasting.left_unix_ms, lasting.left_refused) = (None, None);
        lasting.expires_ms = None;
        self.sessions.timers.set(id, lasting.timer_ms.take(), None);
        let session = self.lines.session(id).expect("it was there before this was recorded");
        let lasting = session.lasting.as_ref().expect("what a client has without a connection lasts");
        let is_small = session.is_small(self.settings.units.at_once);
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
            online.expect("it has come online").is_restored = true;
            self.replies.restoring.add(id, place, What::Subscriptions);
        }
        Ok(claimed)
    }

    /// Begins anew, and ends what there was. Without a session that lasts nothing else is recorded.
    pub(crate) fn begin(
        &mut self,
        existing: Option<QueueId>,
        place: Place,
        claim: Claim,
        to: &mut impl Effects,
    ) -> Result<Claimed, ReasonCode> {
        let lasts = claim.expiry_secs > 0;
        // A client that ends a session frees memory. A lasting session is kept: no client can be forced to fetch its
        // messages.
        let budget = &self.bodies.budget;
        let is_short = if lasts { budget.is_tight_to_keep() } else { budget.is_tight() };
        if is_short && (existing.is_none() || self.brings_larger_will(existing, &claim)) {
            add(&self.gauges.connects_refused_memory, 1);
            return Err(ReasonCode::QuotaExceeded);
        }
        if lasts && existing.is_none() && self.lines.lasting_len() >= self.settings.sessions_max {
            add(&self.gauges.sessions_refused, 1);
            return Err(ReasonCode::QuotaExceeded);
        }
        let incarnation = self.replies.numbers.next_incarnation();
        let will = if lasts { self.pending_will(&claim) } else { None };
        let old = existing.and_then(|id| self.lines.session(id)?.lasting.as_ref());
        let fate = old.map_or(WillFate::Dropped, Lasting::fate_at_end);
        let ended = old.map(|old| Record::Ended { session: old.incarnation, will: fate });
        let client_id = Cow::Borrowed(&*claim.subscriber.client_id);
        let begun = lasts.then_some(Record::Session { session: incarnation, client_id });
        let connected = lasts.then(|| connected(incarnation, &claim, will.as_ref()));
        let principal = claim.subscriber.principal();
        let realms = self.settings.guard.current();
        let speaks =
            will.as_ref().and_then(|will| of_will(will.id, &principal, rules_of(&realms, principal.realm)));
        let acts = self.settings.principal_record(incarnation, &principal).filter(|_| lasts);
        let connected = connected.into_iter().chain(speaks).chain(acts);
        let group: Vec<Record<'_>> = ended.into_iter().chain(begun).chain(connected).collect();
        if !group.is_empty() {
            self.replies.commit(&group, to).map_err(|refusal| reason(self.replies, refusal))?;
        }
        if let Some(existing) = existing {
            self.sessions.remove(self.lines, self.replies, existing, fate);
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
            self.sessions.claims.hold(&subscriber.client_id, holder, None);
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
        let id = self.replies.numbers.next_message();
        Some(PendingWill {
            id,
            message: Arc::clone(&will.message),
            delay_secs: will.delay_secs,
            due_ms: None,
            _bytes: self.bodies.live.count(will.message.size_bytes()),
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
        self.sessions.claims.hold(&session.subscriber.client_id, holder, Some(id));
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
            Ok(()) if expiry_secs == 0 => self.sessions.remove(self.lines, self.replies, id, fate),
            Ok(()) => self.go_offline(id, expiry_secs, fate, now),
            // It has gone whether that is recorded or not: after a restart it will be found gone.
            Err(refusal) => {
                let _ = reason(self.replies, refusal);
                self.go_offline(id, expiry_secs, fate, now);
                let lasting = self.lines.session_mut(id).and_then(|session| session.lasting.as_mut());
                lasting.expect("it has gone offline").left_refused = Some(fate);
            }
        }
    }

    fn go_offline(&mut self, id: QueueId, expiry_secs: u32, fate: WillFate, now: Now) {
        let principal = self.lines.principal_of(id);
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
                self.sessions
                    .wills
                    .extend(will.map(|will| DueWill::new(Some(will.id), will.message, principal)));
            }
            _ => session.will = None,
        }
        let due_ms = session.next_timer_ms();
        self.sessions.timers.set(id, session.timer_ms, due_ms);
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
        let lanes = session.in_flight.take_lanes();
        let shared = session.in_flight.in_order().into_iter();
        let shared: Vec<PacketId> = shared
            .filter(|exchange| matches!(exchange.state, State::Shared { .. }))
            .map(|exchange| exchange.packet_id)
            .collect();
        let session = self.lines.session(id).expect("it was there a moment ago");
        touch(&self.lines.index, session);
        for packet_id in shared {
            let session = self.lines.session_mut(id).expect("it was there a moment ago");
            let exchange = session.in_flight.remove(packet_id).expect("it was found a moment ago");
            let State::Shared { group, message } = exchange.state else { unreachable!("it is a group's") };
            self.lines.give_back(group, message);
        }
        lanes.into_iter().for_each(|(group, lane)| self.lines.finish_in_lane(group, lane, 0));
        self.lines.move_in_groups(id);
        self.bodies.put_away(self.lines, id, self.settings.queued_bytes_in_memory);
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
fn reason(replies: &Replies, refusal: Refusal) -> ReasonCode {
    match replies.reason(refusal) {
        ReasonCode::ImplementationSpecificError => ReasonCode::ServerUnavailable,
        reason => reason,
    }
}
