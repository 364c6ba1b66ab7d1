//! Ends of sessions and connections.

use std::sync::Arc;

use base::{ConnectionId, Purpose};
use protocol::{Cause, Command, Left};
use topic::TopicFilter;
use wire::{DisconnectReason, ReasonCode, Violation};

use crate::client::Client;
use crate::effects::Outside;
use crate::shard::CONNECTION_BYTES;
use crate::{Effects, Notice, Shard};

/// How a session ends.
#[derive(Clone, Copy)]
pub(crate) struct Ending<'a> {
    pub(crate) reason: ReasonCode,
    pub(crate) why: &'a str,
    /// The reason that decides about the will.
    pub(crate) cause: Cause,
    pub(crate) by: By,
}

/// The side that ends a session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// The broker, which goes on.
    Server,
    /// The end of the broker itself.
    Shutdown,
    Peer,
}

impl Shard {
    /// Tells an MQTT 5 client why its connection ends.
    pub(crate) fn disconnect(
        &mut self,
        id: ConnectionId,
        reason: DisconnectReason,
        to: &mut Outside<'_, impl Effects>,
    ) {
        if let Some(packet) = self.clients.get(id).and_then(|client| client.session.disconnect(reason)) {
            self.send(id, &packet, to);
        }
    }

    /// A peer has broken a rule: it is told where its version has words for that, and the connection ends.
    pub(crate) fn violated(
        &mut self,
        id: ConnectionId,
        violation: &Violation,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let Some(client) = self.clients.get(id) else { return };
        let is_connected = client.session.is_connected();
        self.scratch.clear();
        client.session.answer(violation, &mut self.scratch);
        self.send_scratch(id, to);
        match violation.reason {
            ReasonCode::UnsupportedProtocolVersion if !is_connected => {
                self.count_refused_connect(id);
                self.counters.refused_protocol_version.add(1);
            }
            _ if !is_connected => self.count_refused_connect(id),
            ReasonCode::MalformedPacket => self.counters.ended_malformed.add(1),
            ReasonCode::PacketTooLarge => self.counters.ended_packet_too_large.add(1),
            ReasonCode::KeepAliveTimeout => self.counters.ended_keep_alive.add(1),
            ReasonCode::QosNotSupported => self.counters.ended_qos.add(1),
            ReasonCode::RetainNotSupported => self.counters.ended_retain.add(1),
            _ => self.counters.ended_protocol_error.add(1),
        }
        let ending =
            Ending { reason: violation.reason, why: violation.text, cause: Cause::WithWill, by: By::Server };
        self.end(id, ending, to);
        to.close(id);
    }

    /// Counts a CONNECT packet that was refused, beside the reason.
    pub(crate) fn count_refused_connect(&self, id: ConnectionId) {
        self.counters.refused_connect.add(1);
        self.counts_of(id).refused_connect.add(1);
    }

    /// The end of a connection's session. Its socket is not our concern any more.
    pub(crate) fn end(&mut self, id: ConnectionId, ending: Ending<'_>, to: &mut Outside<'_, impl Effects>) {
        self.send_answers_of_read(to);
        self.end_spans_of(id);
        let Some(mut client) = self.clients.remove(id) else { return };
        self.forget_memory(id, &client);
        let Ending { reason, why, cause, by } = ending;
        let client_id = client.client_id();
        let is_in = client.is_in;
        self.counters.clients_connected.sub(u64::from(is_in));
        client.counts.clients_connected.sub(u64::from(is_in));
        to.notice(
            id,
            match by {
                By::Server | By::Shutdown if !is_in => Notice::Refused { client_id, reason, why },
                By::Server | By::Shutdown | By::Peer => Notice::Disconnected { client_id, reason, why },
            },
        );
        let Some(subscriber) = client.subscriber.take() else { return };
        if client.has_changes {
            // It subscribed or unsubscribed before its end: the ledger hears of that before it hears of the end (rule 7
            // of `protocol::order`).
            self.write_changes(to);
        }
        for (filter, count) in client.take_joining() {
            // Nobody waits for the answers of the ledger any more.
            let shape = TopicFilter::new(&filter).ok().and_then(|filter| self.index.deep_shape(filter));
            (0..count).for_each(|_| self.changes.shapes.forget_shared(shape));
        }
        // A client that was never let in has no will and no session.
        let cause = if is_in { cause } else { Cause::Normal };
        // After a shutdown a session that lasts is found connected, as after a crash: its will is not lost.
        if subscriber.queue.is_none() || by != By::Shutdown {
            let (subscriber, expiry_secs) = (Arc::clone(&subscriber), client.aside().expiry_secs);
            to.command(Command::Left(Left { subscriber, connection: id, cause, expiry_secs }));
        }
        subscriber.gauge.set_behind(false);
        self.open(&subscriber, to);
        let subscriber = if subscriber.queue.is_none() {
            self.fates.session_ended(&client, &subscriber, to.now);
            Some(subscriber)
        } else {
            self.tally.sub(Purpose::Subscriptions, client.subscription_bytes);
            None
        };
        let walks = client.aside_mut().and_then(|aside| aside.walks.take());
        self.changes.leave(subscriber, std::mem::take(&mut client.filters), walks);
    }

    /// Frees the memory of a connection, except that of its filters.
    fn forget_memory(&mut self, id: ConnectionId, client: &Client) {
        if client.has_beginning {
            self.forget_beginning(id);
        }
        if client.aside().authenticating.is_some() {
            self.asked.forget(id);
        }
        let route_bytes = client.route.as_ref().map_or(0, |route| route.size_bytes());
        self.tally.sub(Purpose::Connections, CONNECTION_BYTES);
        self.tally.sub(Purpose::Routes, route_bytes);
        self.tally.sub(Purpose::Inbound, client.inbound_bytes);
        let request_bytes = client.aside().request.as_ref().map_or(0, |request| request.size_bytes());
        self.tally.sub(Purpose::Partials, request_bytes);
        let recording_bytes = client.aside().recording.as_ref().map_or(0, |recording| recording.size_bytes());
        self.tally.sub(Purpose::Subscriptions, recording_bytes);
        self.tally.sub(Purpose::Subscriptions, client.joining_bytes());
    }

    /// Memory is short, and too much of it is held for one connection.
    pub(crate) fn end_for_memory(
        &mut self,
        id: ConnectionId,
        why: &'static str,
        to: &mut Outside<'_, impl Effects>,
    ) {
        self.counters.ended_memory.add(1);
        self.give_up(id, DisconnectReason::QuotaExceeded, why, to);
    }
}
