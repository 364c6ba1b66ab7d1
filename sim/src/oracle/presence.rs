//! Connected clients, as the broker reports them: one connection for each client identifier, and sessions that end for
//! a reason.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::Now;
use protocol::Gauges;
use wire::{Qos, ReasonCode};

use super::{MessageNo, Oracle, Tick};
use crate::network::LinkId;
use crate::scenario::{SHARDS_MAX, Scenario};

/// Reports of the broker about clients.
#[derive(Debug)]
pub(super) struct Presence {
    clients: Vec<Client>,
    wills: BTreeMap<LinkId, MessageNo>,
    /// A full queue has ended sessions until then; `Tick::MAX` if it does now. Nothing if it never has.
    ends_sessions_until: Option<Tick>,
}

#[derive(Debug)]
struct Client {
    expiry_secs: u32,
    live: Option<LinkId>,
    /// Since when it is not connected, on both clocks.
    left: Option<Now>,
    /// The longest that it was not, since it last heard of its session.
    longest_away_ms: u64,
    /// The lifetime of its session, in seconds, and the shortest one since it last heard of its session.
    lifetime_secs: u32,
    shortest_secs: u32,
    /// Since then it was away for longer than that.
    may_have_expired: bool,
}

impl Presence {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let client = |expiry_secs| Client {
            expiry_secs,
            live: None,
            left: None,
            longest_away_ms: 0,
            lifetime_secs: expiry_secs,
            shortest_secs: expiry_secs,
            may_have_expired: false,
        };
        let audits = SHARDS_MAX * 2;
        let profiles = scenario.clients.iter().map(|profile| client(profile.expiry_secs));
        Self {
            clients: profiles.chain((0..audits).map(|_| client(0))).collect(),
            wills: BTreeMap::new(),
            ends_sessions_until: scenario.ends_sessions().then_some(Tick::MAX),
        }
    }

    pub(super) fn set_will(&mut self, link: LinkId, will: MessageNo) {
        self.wills.insert(link, will);
    }

    /// A full queue ends sessions from now on, or does so no more.
    pub(super) fn ends_sessions(&mut self, does: bool, now: Tick) {
        match self.ends_sessions_until {
            _ if does => self.ends_sessions_until = Some(Tick::MAX),
            Some(Tick::MAX) => self.ends_sessions_until = Some(now),
            _ => {}
        }
    }
}

impl Oracle {
    pub(crate) fn broker_connected(&mut self, client: usize, link: LinkId, now: Now) {
        self.next_tick();
        let counts_wall_clock = self.crashes > 0;
        let asked_secs = self.presence.clients[client].expiry_secs;
        let lifetime_secs = self.let_in(client, link, asked_secs);
        let presence = &mut self.presence.clients[client];
        if let Some(left) = presence.left.take() {
            let wall_clock_ms = if counts_wall_clock { now.unix_ms.abs_diff(left.unix_ms) } else { 0 };
            let away_ms = wall_clock_ms.max(now.monotonic_ms - left.monotonic_ms);
            presence.longest_away_ms = presence.longest_away_ms.max(away_ms);
            let is_over = away_ms >= u64::from(presence.lifetime_secs) * 1_000;
            presence.may_have_expired |= is_over && presence.lifetime_secs < u32::MAX;
        }
        presence.shortest_secs = presence.shortest_secs.min(presence.lifetime_secs);
        presence.lifetime_secs = lifetime_secs;
        if let Some(other) = presence.live.replace(link) {
            self.fail(format!("c{client} is connected on {link:?} while it is on {other:?} [MQTT-3.1.4-3]"));
        }
    }

    pub(crate) fn broker_refused(&mut self, client: usize, link: LinkId, reason: ReasonCode, why: &str) {
        self.is_over(link);
        if reason == ReasonCode::AdministrativeAction {
            return self.ended_by_operator(client, link, false);
        }
        if reason == ReasonCode::NotAuthorized && self.may_be_stranger(link) {
            return;
        }
        // No space, a failed disk, the end of the stream.
        let is_fair = matches!(
            reason,
            ReasonCode::QuotaExceeded
                | ReasonCode::ServerUnavailable
                | ReasonCode::UnspecifiedError
                | ReasonCode::SessionTakenOver
        );
        // A will waits for the check of a password only while there is memory. Clients that are refused for ever do not get
        // well in the end, and that fails the run.
        let is_for_memory = reason == ReasonCode::ServerBusy && why.starts_with("memory is short");
        if !(is_fair || is_for_memory) || !self.may_be_said(reason) {
            self.fail(format!("c{client} is refused: {reason:?}, {why}"));
        }
    }

    pub(crate) fn broker_disconnected(
        &mut self,
        client: usize,
        link: LinkId,
        reason: ReasonCode,
        why: &str,
        now: Now,
    ) {
        let tick = self.next_tick();
        self.is_over(link);
        let presence = &mut self.presence.clients[client];
        let was_let_in = presence.live == Some(link);
        if was_let_in {
            presence.live = None;
            presence.left = Some(now);
        }
        let is_protocol_error = matches!(
            reason,
            ReasonCode::MalformedPacket
                | ReasonCode::ProtocolError
                | ReasonCode::ReceiveMaximumExceeded
                | ReasonCode::TopicAliasInvalid
                | ReasonCode::PacketIdentifierInUse
                | ReasonCode::PacketTooLarge
        );
        if !self.may_be_said(reason) {
            self.fail(format!("c{client} is sent away: {reason:?}, {why}"));
        }
        if reason == ReasonCode::AdministrativeAction {
            self.ended_by_operator(client, link, was_let_in);
        }
        if is_protocol_error {
            self.fail(format!("the broker says that c{client} has broken a rule: {reason:?}, {why}"));
        }
        if was_let_in {
            self.will_of(link, reason, tick);
        }
    }

    /// A connection has ended: its will is published, or never.
    fn will_of(&mut self, link: LinkId, reason: ReasonCode, tick: u64) {
        let Some(no) = self.presence.wills.remove(&link) else { return };
        let ended_until = self.presence.ends_sessions_until;
        let message = self.message_mut(no);
        let ends_sessions = ended_until.is_some_and(|until| until >= message.published);
        let Some(will) = &mut message.will else { return };
        if reason == ReasonCode::Success {
            // A full queue may have ended the session, and published its will, before the client said goodbye.
            will.is_cancelled = !ends_sessions;
        } else if will.delay_secs == 0 {
            // It may have been published before the connection ended, if its session has.
            message.acknowledged = Some(tick);
        }
    }

    /// Nothing that is recorded from now on will ever be durable.
    pub(crate) fn journal_failed(&mut self) {
        self.has_journal_failed = true;
    }

    /// A client is told that its connection is over.
    pub(crate) fn told_goodbye(&mut self, client: usize, link: Option<LinkId>, reason: ReasonCode) {
        if reason == ReasonCode::AdministrativeAction && !self.may_read_of_operator(link) {
            self.fail(format!("c{client} is told that an operator has ended {link:?}, which nobody has"));
        }
        // That it ends because of an error of nobody knows whom, only who waits for the journal is told.
        let is_unspecified = reason == ReasonCode::UnspecifiedError && !self.has_journal_failed;
        if is_unspecified || !self.may_be_said(reason) {
            self.fail(format!("c{client} is told {reason:?}, though the journal is well"));
        }
    }

    /// Some reasons are those of a journal that has failed, and of nothing else.
    pub(super) fn may_be_said(&self, reason: ReasonCode) -> bool {
        match reason {
            ReasonCode::ServerUnavailable | ReasonCode::ImplementationSpecificError => {
                self.has_journal_failed
            }
            _ => true,
        }
    }

    /// The process is gone.
    pub(crate) fn crashed(&mut self) {
        self.next_tick();
        self.forget_moves_under_way();
        let discarded: Vec<_> =
            self.sessions.iter().map(|session| self.topics_discarded_for(session)).collect();
        self.crashes += 1;
        self.ended_before += self.gauge(|gauges| &gauges.ended_by_full_queue);
        self.dropped_before += self.dropped_by_queue();
        self.discarded_before += self.gauge(|gauges| &gauges.discarded_by_operator);
        self.not_retained_before += self.gauge_of_not_retained();
        let has_pushed_out = self.gauge(|gauges| &gauges.dropped_oldest) > 0;
        self.pushed_out_before |= has_pushed_out;
        self.gauges = None;
        for client in &mut self.presence.clients {
            client.live = None;
        }
        let messages = &self.messages;
        // A message that was not acknowledged may be forgotten. Then an older one is there again, which it had replaced as a
        // retained value, or pushed out of a full queue, or that an operator has discarded before.
        let is_kept = |no: MessageNo, discarded: &BTreeSet<usize>| {
            let message = &messages[no.0 as usize];
            let is_behind_others = message.retain || has_pushed_out || discarded.contains(&message.topic);
            message.qos > Qos::AtMostOnce && !(message.acknowledged.is_none() && is_behind_others)
        };
        for (session, discarded) in self.sessions.iter_mut().zip(discarded) {
            session.last.retain(|_, last| is_kept(*last, &discarded));
            session.discarded_before.extend(discarded);
        }
        for message in &mut self.messages {
            match &mut message.will {
                // It ends with the process.
                Some(will) if !will.lasts => message.acknowledged = None,
                // That its client has said goodbye may not be recorded, and nobody was promised that it is.
                Some(will) => will.is_cancelled = false,
                None => {}
            }
        }
    }

    /// The process is there: who was connected has left, as far as it knows.
    pub(crate) fn started(&mut self, gauges: Arc<Gauges>, now: Now) {
        self.gauges = Some(gauges);
        self.begin_with_last(SHARDS_MAX);
        for client in self.presence.clients.iter_mut().filter(|_| self.crashes > 0) {
            client.left.get_or_insert(now);
        }
        self.next_tick();
    }

    /// A client has come back, and was told that its session is no more.
    pub(crate) fn session_lost(&mut self, client: usize) {
        let Client { longest_away_ms, shortest_secs, may_have_expired, .. } = self.presence.clients[client];
        let expiry_ms = u64::from(shortest_secs) * 1_000;
        let may_expire = shortest_secs < u32::MAX;
        if may_have_expired || may_expire && self.has_jumped && self.crashes > 0 {
            return;
        }
        let ended = self.ended_before + self.gauge(|gauges| &gauges.ended_by_full_queue);
        if self.presence.ends_sessions_until.is_some() && self.ended_met < ended {
            self.ended_met += 1;
            return;
        }
        self.fail(format!(
            "c{client} comes back after at most {longest_away_ms} ms, and its session of {expiry_ms} ms is gone"
        ));
    }

    /// Whether a client's session may end without its doing.
    pub(crate) fn may_lose_sessions(&self, client: usize) -> bool {
        self.presence.ends_sessions_until.is_some()
            || self.presence.clients[client].expiry_secs < u32::MAX
            || self.may_end_sooner()
    }

    /// A client has got a CONNACK.
    ///
    /// `expiry_secs`: the lifetime of the session, if it is told that.
    pub(crate) fn heard_of_session(&mut self, client: usize, expiry_secs: Option<u32>) {
        let presence = &mut self.presence.clients[client];
        presence.longest_away_ms = 0;
        presence.may_have_expired = false;
        if let Some(expiry_secs) = expiry_secs {
            presence.lifetime_secs = expiry_secs;
        }
        presence.shortest_secs = presence.lifetime_secs;
    }

    /// A number of the ledger of this process.
    pub(super) fn gauge(&self, of: impl Fn(&Gauges) -> &AtomicUsize) -> usize {
        self.gauges.as_deref().map_or(0, |gauges| of(gauges).load(Ordering::Relaxed))
    }

    /// Whether messages were dropped, discarded or moved, in this process or another.
    pub(super) fn has_dropped(&self) -> bool {
        self.dropped_before > 0
            || self.dropped_by_queue() > 0
            || self.discarded_by_operator() > 0
            || !self.moves.is_empty()
    }

    /// Messages that went to subscribers and were not retained, in this process or another.
    pub(super) fn not_retained(&self) -> usize {
        self.not_retained_before + self.gauge_of_not_retained()
    }

    fn gauge_of_not_retained(&self) -> usize {
        self.gauge(|gauges| &gauges.retained_refused) + self.gauge(|gauges| &gauges.unrecorded)
    }

    /// Messages that an operator has discarded, in this process or another.
    pub(super) fn discarded_by_operator(&self) -> usize {
        self.discarded_before + self.gauge(|gauges| &gauges.discarded_by_operator)
    }

    /// Copies that full queues have dropped, in this process.
    pub(super) fn dropped_by_queue(&self) -> usize {
        self.gauge(|gauges| &gauges.dropped_oldest) + self.gauge(|gauges| &gauges.dropped_newest)
    }
}
