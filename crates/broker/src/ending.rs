//! How sessions end.

use std::sync::Arc;

use index::ConnectionId;
use ledger::{Command, Left};
use session::Now;
use wire::{DisconnectReason, ReasonCode, Violation};

use crate::{Effects, Notice, Shard};

/// How a session ends.
#[derive(Clone, Copy)]
pub(crate) struct Ending {
    pub(crate) reason: ReasonCode,
    pub(crate) why: &'static str,
    pub(crate) with_will: bool,
    pub(crate) by: By,
}

/// Who ends it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Server,
    Peer,
}

impl Shard {
    /// Tells an MQTT 5 client why its connection ends.
    pub(crate) fn disconnect(&mut self, id: ConnectionId, reason: DisconnectReason, to: &mut impl Effects) {
        if let Some(packet) = self.clients.get(id).and_then(|client| client.session.disconnect(reason)) {
            self.send(id, &packet, to);
        }
    }

    /// A peer has broken a rule: it is told where its version has words for that, and the connection ends.
    pub(crate) fn violated(
        &mut self,
        id: ConnectionId,
        violation: &Violation,
        now: Now,
        to: &mut impl Effects,
    ) {
        let Some(client) = self.clients.get(id) else { return };
        let is_connected = client.session.is_connected();
        self.scratch.clear();
        client.session.answer(violation, &mut self.scratch);
        if !self.scratch.is_empty() {
            self.counters.packets_sent.add(1);
            to.send(id, &self.scratch);
        }
        match violation.reason {
            _ if !is_connected => self.counters.refused_connect.add(1),
            ReasonCode::MalformedPacket => self.counters.ended_malformed.add(1),
            ReasonCode::PacketTooLarge => self.counters.ended_packet_too_large.add(1),
            ReasonCode::KeepAliveTimeout => self.counters.ended_keep_alive.add(1),
            _ => self.counters.ended_protocol_error.add(1),
        }
        let ending =
            Ending { reason: violation.reason, why: violation.text, with_will: true, by: By::Server };
        self.end(id, ending, now, to);
        to.close(id);
    }

    /// The end of a connection's session. Its socket is not our concern any more.
    pub(crate) fn end(&mut self, id: ConnectionId, ending: Ending, now: Now, to: &mut impl Effects) {
        let Some(mut client) = self.clients.remove(id) else { return };
        let Ending { reason, why, with_will, by } = ending;
        let client_id = client.client_id();
        let is_connected = client.session.is_connected();
        self.counters.clients_connected.sub(u64::from(is_connected));
        to.notice(
            id,
            match by {
                By::Server if !is_connected => Notice::Refused { client_id, reason, why },
                By::Server | By::Peer => Notice::Disconnected { client_id, reason, why },
            },
        );
        let Some(subscriber) = client.subscriber.take() else { return };
        let will = client.session.take_will(now).filter(|_| with_will && client.session.is_connected());
        to.command(Command::Left(Left { subscriber: Arc::clone(&subscriber), will }));
        self.open(&subscriber, now, to);
        self.changes.leave(subscriber, std::mem::take(&mut client.filters));
    }
}
