//! Connections that claim a client identifier, hold it, and leave it.

use std::sync::Arc;

use base::{Now, Place, ShardId};
use protocol::{Cause, Claim, Left, Reply};
use wire::ReasonCode;

use crate::Ledger;
use crate::gauges::add;
use crate::record::{Effects, WillFate};
use crate::replies::Answer;
use crate::sessions::claims::{Claimant, Claiming, Gone};
use crate::sessions::wills::DueWill;

impl Ledger {
    /// A CONNECT wants its identifier.
    pub(crate) fn claim(&mut self, from: ShardId, claim: Box<Claim>, now: Now, to: &mut impl Effects) {
        let place = Place { shard: from, connection: claim.connection };
        self.replies.set_durability(place, claim.durability);
        if self.session_work().is_of_other_user(&claim) {
            let (connection, reason) = (place.connection, ReasonCode::NotAuthorized);
            return to.post(place.shard, Reply::Refused { connection, reason });
        }
        if self.session_work().has_enough_connections(&claim) {
            return self.refuse_connection(place, to);
        }
        match self.sessions.claims.claim(Claimant { shard: from, claim }) {
            // Rule 8 of `protocol::order`: the newcomer waits until the holder has left.
            Claiming::Evict(place) => to.post(place.shard, Reply::Evict { connection: place.connection }),
            Claiming::Free(claimant) => self.grant(claimant, now, to),
        }
    }

    /// A connection is gone.
    pub(crate) fn left(&mut self, from: ShardId, left: &Left, now: Now, to: &mut impl Effects) {
        let place = Place { shard: from, connection: left.connection };
        self.replies.forget(place);
        let id = &left.subscriber.client_id;
        self.cursors.close_all(from, left.connection);
        let Gone::Holder { holder, session, next } = self.sessions.claims.left(id, place) else { return };
        let lasting = session.and_then(|session| self.lines.session(session)?.lasting.as_ref());
        match (session, lasting) {
            (Some(session), Some(lasting)) => {
                let expiry_secs = left.expiry_secs.unwrap_or(lasting.expiry_secs);
                self.session_work().depart(session, left.cause, expiry_secs, now, to);
            }
            (session, _) => {
                if let Some(session) = session {
                    self.sessions.remove(&mut self.lines, &self.replies, session, WillFate::Dropped);
                }
                let will = holder.will.filter(|_| left.cause != Cause::Normal);
                let principal = holder.principal;
                self.sessions.wills.extend(will.map(|will| DueWill::new(None, will.message, principal)));
            }
        }
        // Wills go out in the order in which they became due: this one's now, unless others still wait before it.
        self.publishing().fire_wills(&mut 1, now, to);
        match next {
            // Its user may have come by other identifiers meanwhile.
            Some(next) if self.session_work().has_enough_connections(&next.claim) => {
                self.refuse_connection(next.place(), to);
                self.sessions.claims.settle(id);
            }
            Some(next) => self.grant(next, now, to),
            None => self.sessions.claims.settle(id),
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
        if let Some(session) = self.sessions.claims.find(&id).and_then(|client| client.session) {
            self.session_work().settle(session, now, to);
        }
        if self.replies.is_poisoned() && self.sessions.claims.is_ending(&id) {
            // That the session has ended will never be durable: after the restart it is there again.
            let (connection, reason) = (place.connection, ReasonCode::ServerUnavailable);
            return to.post(place.shard, Reply::Refused { connection, reason });
        }
        let existing = self.sessions.claims.find(&id).and_then(|client| client.session);
        let is_recorded = existing.is_some() || claim.expiry_secs > 0 || self.sessions.claims.is_ending(&id);
        let claimed = match existing {
            Some(session) if !claim.clean_start => self.session_work().resume(session, place, &claim, to),
            existing => self.session_work().begin(existing, place, claim, to).map(Some),
        };
        match claimed {
            // Its shard is told bit by bit what the session has.
            Ok(None) => {}
            Ok(Some(claimed)) => {
                let reply = Reply::Claimed(Box::new(claimed));
                if is_recorded {
                    // CONNACK promises a session: rule 11 of `protocol::order`.
                    self.replies.answer(&mut self.lines, Answer::new(place.shard, reply), now, to);
                } else {
                    to.post(place.shard, reply);
                }
            }
            Err(reason) => {
                to.post(place.shard, Reply::Refused { connection: place.connection, reason });
                self.sessions.claims.settle(&id);
            }
        }
        self.publishing().fire_wills(&mut 1, now, to);
    }
}
