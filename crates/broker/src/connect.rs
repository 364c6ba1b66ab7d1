//! How a client comes in, and how another one takes its place.

use std::sync::Arc;

use base::{ConnectionId, Interest, Level, Message, Purpose, Subscriber};
use protocol::{Cause, Claim, Claimed, Will};
use session::Accepted;
use topic::TopicFilter;
use wire::{ConnAck, Connect, ConnectRefusal, DisconnectReason, ReasonCode};

use crate::effects::Outside;
use crate::ending::{By, Ending};
use crate::filters::subscription_bytes;
use crate::{Effects, Notice, Shard};

impl Shard {
    /// Claims the client identifier of a valid CONNECT. Packets behind the CONNECT wait.
    pub(crate) fn connect(
        &mut self,
        id: ConnectionId,
        connect: &Connect<'_>,
        to: &mut Outside<'_, impl Effects>,
    ) {
        if let Some(claim) = self.claim_of(id, connect, to) {
            self.log_in(id, connect, claim, to);
        }
    }

    /// The claim that a CONNECT makes. `None` if the connection has ended, or its client is kept out.
    pub(crate) fn claim_of(
        &mut self,
        id: ConnectionId,
        connect: &Connect<'_>,
        to: &mut Outside<'_, impl Effects>,
    ) -> Option<Claim> {
        let now = to.now;
        let client_id: Arc<str> = match connect.client_id.as_str() {
            // An assigned identifier must not be guessable: a client that knows it can take over the session.
            "" => format!("auto-{:032x}", to.random()).into(),
            given => given.into(),
        };
        let client = self.clients.get(id)?;
        let will = connect.will.map(|will| Will {
            message: Arc::new(
                Message::of_will(&will, Arc::clone(&client_id), now).charged_to(self.tally.budget()),
            ),
            delay_secs: will.delay_interval_secs.unwrap_or(0),
        });
        let session = &client.session;
        let claim = Claim {
            subscriber: Arc::new(Subscriber::new(client_id, self.id, id)),
            connection: id,
            clean_start: session.clean_start(),
            expiry_secs: session.expiry_secs(),
            window: session.window(),
            packet_bytes_max: u32::try_from(session.packet_bytes_max()).unwrap_or(u32::MAX),
            will,
            durability: self.entries.durability(client),
        };
        self.keep_out(id, claim, to)
    }

    /// The client identifier is this connection's: CONNACK.
    pub(crate) fn claimed(&mut self, claimed: Claimed, to: &mut Outside<'_, impl Effects>) {
        let now = to.now;
        let Claimed {
            connection: id,
            subscriber,
            session_present,
            subscriptions,
            unfinished,
            has_more_unfinished,
            unreleased,
        } = claimed;
        self.restore(id, subscriptions.iter().map(|(filter, _)| &**filter));
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(version) = client.session.version() else { return };
        subscriber.gauge.set(Level::Open);
        subscriber.gauge.set_behind(false);
        client.subscriber = Some(Arc::clone(&subscriber));
        self.scratch.clear();
        let accepted =
            Accepted { client_id: &subscriber.client_id, session_present, unreleased: &unreleased };
        if !client.session.accept(&accepted, &self.settings, &mut self.scratch) {
            let why = "the answer would be larger than the client takes";
            return self.turn_away(id, ReasonCode::PacketTooLarge, why, to);
        }
        client.is_in = true;
        client.is_resuming = has_more_unfinished;
        client.session.touch(now);
        let keep_alive_secs = client.session.keep_alive_secs();
        to.notice(id, Notice::Connected { client_id: &subscriber.client_id, version, keep_alive_secs });
        let listener = self.entries.counted_as(client);
        client.counts = self.counts.user(listener, &subscriber.principal(), &self.counters);
        to.count_in(id, &client.counts);
        self.counters.packets_sent.add(1);
        self.counters.connects_accepted.add(1);
        client.counts.connects_accepted.add(1);
        self.counters.clients_connected.add(1);
        client.counts.clients_connected.add(1);
        to.send(id, &self.scratch);
        self.arm(id, now);
        self.unfinished(id, unfinished, !has_more_unfinished, to);
    }

    /// A client's session has these filters.
    pub(crate) fn restore<'a>(&mut self, id: ConnectionId, filters: impl Iterator<Item = &'a str>) {
        let Some(client) = self.clients.get_mut(id) else { return };
        for filter in filters {
            if !client.filters.contains(filter) {
                let bytes = subscription_bytes(filter);
                self.tally.add(Purpose::Subscriptions, bytes);
                client.subscription_bytes += bytes;
                client.filters.insert(filter);
                let shape = TopicFilter::new(filter).ok().and_then(|filter| self.index.deep_shape(filter));
                client.add_shape(shape);
            }
        }
    }

    /// These of its subscriptions go on with what is retained. The client is read from the last on.
    pub(crate) fn unfinished(
        &mut self,
        id: ConnectionId,
        subscriptions: Vec<(Box<str>, Interest)>,
        is_last: bool,
        to: &mut Outside<'_, impl Effects>,
    ) {
        for (filter, interest) in subscriptions {
            self.open_walk(id, filter, interest, false, to);
        }
        if let Some(client) = self.clients.get_mut(id).filter(|_| is_last) {
            client.is_resuming = false;
            to.resume(id);
        }
    }

    /// The ledger cannot let the client in.
    pub(crate) fn refused(
        &mut self,
        id: ConnectionId,
        reason: ReasonCode,
        to: &mut Outside<'_, impl Effects>,
    ) {
        // If the version has no return code for the reason, CONNACK is not sent [3.1.1 MQTT-3.2.2-6].
        let refusal = ConnectRefusal::try_from(reason).unwrap_or(ConnectRefusal::ServerUnavailable);
        self.send(id, &ConnAck::refused(refusal).into(), to);
        let why = match reason {
            ReasonCode::QuotaExceeded => {
                "there is no room for another session, or its user has as many connections as it may"
            }
            ReasonCode::NotAuthorized => {
                self.counters.refused_owner.add(1);
                "its client identifier belongs to a session of another user"
            }
            _ => "what the session needs cannot be recorded",
        };
        self.turn_away(id, reason, why, to);
    }

    pub(crate) fn turn_away(
        &mut self,
        id: ConnectionId,
        reason: ReasonCode,
        why: &'static str,
        to: &mut Outside<'_, impl Effects>,
    ) {
        self.count_refused_connect(id);
        self.end(id, Ending { reason, why, cause: Cause::Normal, by: By::Server }, to);
        to.close(id);
    }

    /// Ends a connection because another one has come with the same client identifier [MQTT-3.1.4-3].
    pub(crate) fn evict(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        if self.clients.get(id).is_none() {
            // It has left already, and said so.
            return;
        }
        self.counters.ended_taken_over.add(1);
        self.disconnect(id, DisconnectReason::SessionTakenOver, to);
        let why = "another connection has the same client identifier";
        let reason = ReasonCode::SessionTakenOver;
        self.end(id, Ending { reason, why, cause: Cause::TakenOver, by: By::Server }, to);
        to.close(id);
    }
}
