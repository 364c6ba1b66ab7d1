//! QoS 1 and 2: what clients acknowledge, and what is acknowledged to them.

use std::sync::Arc;

use base::{ConnectionId, Fate, Identity, Now, Subscriber, Ticket};
use protocol::{Command, Deliver, Delivered, Origin};
use session::{Session, Waiting};
use wire::{DisconnectReason, Packet, PacketId, Qos, ReasonCode};

use crate::client::Tag;
use crate::effects::Outside;
use crate::fates::{CopiesAt, Unrouted};
use crate::{Effects, Room, Shard};

/// Delay after which a connection before MQTT 5 ends when an operation that it waits for could not be stored, in
/// milliseconds.
const WITHHELD_MS_MAX: u64 = 5_000;

impl Shard {
    /// A client has acknowledged a message to the end, or refused it: its place in the window is free.
    pub(crate) fn acknowledged(
        &mut self,
        id: ConnectionId,
        packet_id: PacketId,
        reason: ReasonCode,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.acknowledged += 1;
        let share = client.aside_mut().and_then(|aside| aside.shares.as_mut()?.in_flight.remove(&packet_id));
        let what = match (client.queue(), share) {
            (Some(queue), _) => Some(Delivered::Session { queue, packet_id }),
            (None, Some((group, entry))) => Some(Delivered::Group { group, entry }),
            (None, None) => None,
        };
        let (at, fate) = (CopiesAt::UnderWay { packet_id, is_ours: what.is_none() }, Fate::answered(reason));
        self.fates.decided((id, Some(client)), at, fate, to.now);
        if let Some(what) = what {
            to.command(Command::Acknowledged { what, connection: id, reason });
        }
        // Waiting messages are sent after the acknowledgements that follow.
        self.current_read.has_acknowledged = true;
    }

    /// PUBREC: what it says is recorded where it must last, then PUBREL goes out.
    pub(crate) fn received_by_client(
        &mut self,
        id: ConnectionId,
        packet_id: PacketId,
        to: &mut Outside<'_, impl Effects>,
    ) {
        match self.origin(id) {
            Some(origin) => drop(to.command(Command::Received { origin, packet_id })),
            None => {
                let at = CopiesAt::UnderWay { packet_id, is_ours: true };
                self.fates.decided((id, self.clients.get(id)), at, Fate::Received, to.now);
                self.complete(id, Ticket::PubRel(packet_id), ReasonCode::Success, to);
            }
        }
    }

    /// PUBREL: likewise, then PUBCOMP goes out.
    pub(crate) fn released_by_client(
        &mut self,
        id: ConnectionId,
        packet_id: PacketId,
        to: &mut Outside<'_, impl Effects>,
    ) {
        match self.origin(id) {
            Some(origin) => drop(to.command(Command::Released { origin, packet_id })),
            None => self.complete(id, Ticket::PubComp(packet_id), ReasonCode::Success, to),
        }
    }

    /// Completes or refuses the operation of a ticket. The answer is sent when it is its turn.
    pub(crate) fn complete(
        &mut self,
        id: ConnectionId,
        ticket: Ticket,
        reason: ReasonCode,
        to: &mut Outside<'_, impl Effects>,
    ) {
        self.span_answered(id, Some(ticket), reason);
        self.answer(id, to, |session, answers| session.complete(ticket, reason, answers));
        if matches!(ticket, Ticket::PubComp(_)) {
            self.note_inbound(id);
        }
    }

    /// The same for the last `count` messages of QoS 1, which came in one piece and are not decided.
    pub(crate) fn complete_last(
        &mut self,
        id: ConnectionId,
        count: usize,
        reason: ReasonCode,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let mut answers = 0;
        self.answer(id, to, |session, into| answers = session.complete_last(count, reason, into));
        // One of them was counted as a packet.
        self.counters.packets_sent.add((answers as u64).saturating_sub(1));
    }

    pub(crate) fn complete_some(
        &mut self,
        id: ConnectionId,
        ticket: Option<Ticket>,
        reason: ReasonCode,
        to: &mut Outside<'_, impl Effects>,
    ) {
        match ticket {
            Some(ticket) => self.complete(id, ticket, reason, to),
            None => self.span_answered(id, None, reason),
        }
    }

    /// The ledger has stored what a ticket stands for, or refuses it.
    pub(crate) fn stored(
        &mut self,
        id: ConnectionId,
        ticket: Ticket,
        reason: ReasonCode,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let now = to.now;
        let Some(client) = self.clients.get_mut(id) else { return };
        let is_5 = client.session.version().is_some_and(wire::Version::is_5);
        let is_publish = matches!(ticket, Ticket::PubAck(_) | Ticket::PubRec(_));
        if reason.is_error() && is_publish {
            self.fates.unrouted(&client.counts, Unrouted::NotStored, 1);
        }
        // An exchange that the ledger does not know is over.
        let is_over = reason == ReasonCode::PacketIdentifierNotFound;
        if reason.is_error() && !is_publish && !is_over {
            // The peer must not take for done what is not recorded.
            let why = "the end of an exchange could not be recorded";
            let reason = DisconnectReason::try_from(reason).unwrap_or(DisconnectReason::UnspecifiedError);
            return self.give_up(id, reason, why, to);
        }
        if reason.is_error() && is_publish && !is_5 {
            // Before MQTT 5 no acknowledgement says no: what was not stored is not acknowledged.
            if reason == ReasonCode::QuotaExceeded {
                // Closed at once, the client would come back at once with the same message.
                client.make_aside().ends_ms.get_or_insert(now.monotonic_ms + WITHHELD_MS_MAX);
                self.unblock_answered(id, to);
                return self.arm(id, now);
            }
            let reason = DisconnectReason::try_from(reason).unwrap_or(DisconnectReason::QuotaExceeded);
            return self.give_up(id, reason, "a message could not be stored", to);
        }
        self.complete(id, ticket, reason, to);
        self.unblock_answered(id, to);
    }

    /// Acknowledgements to this publisher are held back: a subscriber of its has too much waiting behind its window.
    /// Nobody waits for itself.
    pub(crate) fn hold(&mut self, id: ConnectionId, behind: &Arc<Subscriber>, holds_others: bool, now: Now) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let is_itself = client.subscriber.as_ref().is_some_and(|own| Arc::ptr_eq(own, behind));
        if client.is_held || is_itself || !behind.gauge.wait_behind(self.id, holds_others) {
            return;
        }
        client.is_held = true;
        client.session.hold_answers(now);
        self.counters.held_publishers.add(1);
        // A client that was held for the same subscriber before is still in the list.
        if client.make_aside().held_for.replace(behind.identity()) != Some(behind.identity()) {
            self.waiting.add_for(id, behind);
        }
        self.arm(id, now);
    }

    /// Sends the answers that were held back.
    pub(crate) fn release(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if std::mem::take(&mut client.is_held) {
            self.answer(id, to, Session::release_answers);
            self.unblock_answered(id, to);
        }
    }

    /// A message out of a queue of the ledger, which has kept to the window of a session that lasts.
    pub(crate) fn deliver_queued(&mut self, deliver: Deliver, to: &mut Outside<'_, impl Effects>) {
        let id = deliver.connection;
        let Some(client) = self.clients.get(id) else { return };
        // Whoever has been sent a message of QoS 2 before finishes its exchange.
        let is_begun = deliver.dup && deliver.qos == Qos::ExactlyOnce;
        if !is_begun && !self.may_receive(client, &deliver.message) {
            // The ledger records that the message was refused.
            let at = CopiesAt::Coming { is_ours: false, waiting: None };
            self.fates.decided((id, Some(client)), at, Fate::MayNotRead, to.now);
            let (what, reason) = (deliver.what, ReasonCode::NotAuthorized);
            to.command(Command::Acknowledged { what, connection: id, reason });
            return;
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        match deliver.what {
            Delivered::Session { packet_id, .. } => {
                let is_first = client.aside().deferred.is_none();
                if is_first && self.has_room_for_stored(id, deliver.message.size_bytes(), to) {
                    self.send_numbered(deliver, packet_id, to);
                } else if let Some(client) = self.clients.get_mut(id) {
                    client.make_aside().deferred.get_or_insert_default().push(deliver);
                }
            }
            Delivered::Group { group, entry } => {
                let Deliver { message, qos, retain, identifiers, .. } = deliver;
                let tag = Some((group, entry));
                self.wait(id, Waiting { message, qos, retain, identifiers, tag }, to);
                self.pull(id, to);
            }
        }
    }

    /// Sends what came out of queues of the ledger when there was no room. Whether nothing is left.
    pub(crate) fn send_deferred(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) -> bool {
        loop {
            let Some(client) = self.clients.get_mut(id) else { return true };
            let Some(deferred) = &client.aside().deferred else { return true };
            let Some(first) = deferred.first() else {
                client.make_aside().deferred = None;
                client.tidy();
                return true;
            };
            let bytes = first.message.size_bytes();
            if !self.has_room_for_stored(id, bytes, to) {
                return false;
            }
            let client = self.clients.get_mut(id);
            let deliver = client.and_then(|client| client.aside_mut()?.deferred.as_mut()?.pop());
            if let Some(deliver) = deliver
                && let Delivered::Session { packet_id, .. } = deliver.what
            {
                self.send_numbered(deliver, packet_id, to);
            }
        }
    }

    /// Sends a message under the packet identifier that the ledger has given it.
    fn send_numbered(&mut self, deliver: Deliver, packet_id: PacketId, to: &mut Outside<'_, impl Effects>) {
        let Deliver { connection: id, message, qos, retain, dup, identifiers, .. } = deliver;
        let Some(client) = self.clients.get_mut(id) else { return };
        let delivery = client.session.begin_as(packet_id, qos, dup);
        let waiting = Waiting { message, qos, retain, identifiers, tag: None };
        self.fates.span_waiting((id, Some(client), Some(packet_id)), &waiting, &Fate::Sent);
        self.send_waiting(id, &waiting, delivery, to);
    }

    /// After a reconnect PUBREL is said again [MQTT-4.4.0-1].
    pub(crate) fn release_again(
        &mut self,
        id: ConnectionId,
        packet_id: PacketId,
        to: &mut Outside<'_, impl Effects>,
    ) {
        self.answer(id, to, |session, answers| session.begin_release(packet_id, answers));
    }

    /// Sends the answers that the session of a client writes. Those of the connection that is read leave together.
    fn answer(
        &mut self,
        id: ConnectionId,
        to: &mut Outside<'_, impl Effects>,
        write: impl FnOnce(&mut Session<Tag>, &mut Vec<u8>),
    ) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if self.current_read.is_of(id) {
            let before = self.current_read.answers.len();
            write(&mut client.session, &mut self.current_read.answers);
            self.counters.packets_sent.add(u64::from(self.current_read.answers.len() > before));
        } else {
            self.scratch.clear();
            write(&mut client.session, &mut self.scratch);
            self.send_scratch(id, to);
        }
    }

    /// Sends a packet of our own making, in the connection's version.
    pub(crate) fn send(&mut self, id: ConnectionId, packet: &Packet<'_>, to: &mut Outside<'_, impl Effects>) {
        let Some(version) = self.clients.get(id).and_then(|client| client.session.version()) else { return };
        self.scratch.clear();
        if packet.encode(version, &mut self.scratch).is_ok() {
            self.send_scratch(id, to);
        }
    }

    /// Sends what stands in the scratch buffer, if anything does, behind the answers of the read.
    pub(crate) fn send_scratch(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        self.send_answers_of_read(to);
        if !self.scratch.is_empty() {
            self.counters.packets_sent.add(1);
            to.send(id, &self.scratch);
            self.count_untaken(id, self.scratch.len(), to);
        }
    }

    /// Notes what was sent to a client whose output was full already.
    pub(crate) fn count_untaken(
        &mut self,
        id: ConnectionId,
        bytes: usize,
        to: &mut Outside<'_, impl Effects>,
    ) {
        if to.room(id, 0) == Room::Over
            && let Some(client) = self.clients.get_mut(id)
        {
            client.make_aside().untaken_answer_bytes += bytes;
        }
    }

    /// Returns the origin of a client's commands to the ledger.
    fn origin(&self, id: ConnectionId) -> Option<Origin> {
        let queue = self.clients.get(id)?.queue()?;
        Some(Origin { queue, connection: id })
    }
}
