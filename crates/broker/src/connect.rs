//! How a client comes in, and how another one takes its place.

use std::sync::Arc;

use index::{ConnectionId, Subscriber};
use ledger::Command;
use session::{Message, Now};
use wire::{Connect, DisconnectReason, ReasonCode};

use crate::ending::{By, Ending};
use crate::{Effects, Notice, Shard};

impl Shard {
    /// A CONNECT was read and found in order: its client identifier is claimed. What stands behind it waits.
    pub(crate) fn connect(
        &mut self,
        id: ConnectionId,
        connect: &Connect<'_>,
        now: Now,
        to: &mut impl Effects,
    ) {
        let client_id: Arc<str> = match connect.client_id.as_str() {
            // Nobody may guess it, since whoever knows it can take the session over.
            "" => format!("auto-{:032x}", to.random()).into(),
            given => given.into(),
        };
        let Some(client) = self.clients.get_mut(id) else { return };
        let will = connect.will.map(|will| Box::new(Message::of_will(&will, Arc::clone(&client_id), now)));
        client.session.set_will(will);
        let subscriber = Arc::new(Subscriber::new(client_id, self.id, id));
        client.subscriber = Some(Arc::clone(&subscriber));
        to.pause(id);
        to.command(Command::Claim { subscriber });
    }

    /// The client identifier is this connection's: CONNACK.
    pub(crate) fn claimed(&mut self, id: ConnectionId, now: Now, to: &mut impl Effects) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let (Some(subscriber), Some(version)) = (&client.subscriber, client.session.version()) else {
            return;
        };
        self.scratch.clear();
        if !client.session.accept(&subscriber.client_id, &self.settings, &mut self.scratch) {
            let why = "the answer would be larger than the client takes";
            self.counters.refused_connect.add(1);
            self.end(
                id,
                Ending { reason: ReasonCode::PacketTooLarge, why, with_will: false, by: By::Server },
                now,
                to,
            );
            return to.close(id);
        }
        client.session.touch(now);
        let keep_alive_secs = client.session.keep_alive_secs();
        to.notice(id, Notice::Connected { client_id: &subscriber.client_id, version, keep_alive_secs });
        self.counters.packets_sent.add(1);
        self.counters.clients_connected.add(1);
        to.send(id, &self.scratch);
        self.arm(id, now);
        to.resume(id);
    }

    /// Somebody else has come with the same client identifier [MQTT-3.1.4-3].
    pub(crate) fn evict(&mut self, id: ConnectionId, now: Now, to: &mut impl Effects) {
        if self.clients.get(id).is_none() {
            // It has left already, and said so.
            return;
        }
        self.counters.ended_taken_over.add(1);
        self.disconnect(id, DisconnectReason::SessionTakenOver, to);
        let why = "another connection has the same client identifier";
        self.end(
            id,
            Ending { reason: ReasonCode::SessionTakenOver, why, with_will: true, by: By::Server },
            now,
            to,
        );
        to.close(id);
    }
}
