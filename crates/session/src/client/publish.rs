//! From a message to its PUBLISH: at once, later, and again after a reconnect.

use std::sync::Arc;

use base::{Content, Message, Now};
use thin_vec::ThinVec;
use wire::{Delivery, PacketId, PubRel, PubRelReason, Publish, Qos, ReasonCode};

use super::connection::{Link, Server};
use super::{Client, Failed, Outgoing, PublishError, Publishing, Settings};
use crate::inbound::Inbound;
use crate::outbound::Stage;
use crate::waiting::Bound;
use crate::{Wait, Waiting};

/// Largest possible Remaining Length (section 1.5.5). A longer message must not wait: it could never be sent.
const REMAINING_BYTES_MAX: usize = 268_435_455;

/// A message that was sent and is not acknowledged.
#[derive(Debug)]
pub(super) struct Sent<T> {
    /// `None` after PUBREC.
    pub(super) message: Option<Arc<Message>>,
    pub(super) tag: T,
    /// Reason code of PUBREC; Success before it.
    pub(super) reason: ReasonCode,
    /// Position in the order of PUBLISHes and, behind that, of PUBRELs after PUBREC.
    pub(super) order: u64,
    /// Number of the connection on which it was last sent.
    pub(super) connection: u32,
}

impl<T> Client<T> {
    /// Publishes a message: writes PUBLISH, or lets the message wait.
    ///
    /// [`Event::Published`](super::Event::Published) or [`next_failed`](Self::next_failed) returns `tag`. At QoS 0
    /// there is no acknowledgement, and the tag is dropped.
    ///
    /// # Errors
    /// [`PublishError`]; then the message is dropped.
    pub fn publish(
        &mut self,
        outgoing: &Outgoing<'_>,
        tag: T,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<Publishing, PublishError> {
        let link = self.link.as_deref_mut().filter(|link| link.is_connected);
        if let Some(link) = &link {
            link.server.check(outgoing.qos, outgoing.retain)?;
        }
        if outgoing.qos == Qos::AtMostOnce {
            let link = link.ok_or(PublishError::NotConnected)?;
            let publish = Publish {
                retain: outgoing.retain,
                properties: outgoing.properties,
                ..Publish::new(outgoing.topic, outgoing.payload)
            };
            link.write_publish(&publish, now, into)?;
            return Ok(Publishing::Sent(None));
        }
        if outgoing.payload.len() > REMAINING_BYTES_MAX {
            return Err(PublishError::TooLarge);
        }
        let message = Arc::new(message(outgoing, now));
        let is_ready = link.is_some_and(|link| link.has_place(self.outbound.len()));
        if is_ready && self.waiting.len() == 0 && self.has_identifier() {
            let sent = self.send(message, tag, now, into);
            return sent.map(|packet_id| Publishing::Sent(Some(packet_id))).map_err(|failed| failed.why);
        }
        match self.waiting.push(waiting(message, tag), self.settings.bound()) {
            Wait::Waits => {
                if is_ready {
                    self.release_some(into);
                }
                Ok(Publishing::Waits)
            }
            Wait::Full => Err(PublishError::Full),
        }
    }

    /// Sends a message for the first time, under an identifier that is not in use.
    fn send(
        &mut self,
        message: Arc<Message>,
        tag: T,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<PacketId, Failed<T>> {
        let failed = |why, message, tag| Err(Failed { tag, message: Some(message), was_sent: false, why });
        let packet_id = self.take_identifier();
        let sent = match &mut self.link {
            Some(link) => link.send(&message, packet_id, false, now, into),
            None => Err(PublishError::NotConnected),
        };
        if let Err(why) = sent {
            self.give_identifier_back(packet_id);
            return failed(why, message, tag);
        }
        let (qos, connection) = (message.qos(), self.connections);
        let order = self.next_order();
        let sent = Sent { message: Some(message), tag, reason: ReasonCode::Success, order, connection };
        self.outbound.begin(packet_id, qos, false, sent);
        Ok(packet_id)
    }

    /// Handles PUBREC: the message is dropped, and PUBREL remains to be sent.
    pub(super) fn received(&mut self, packet_id: PacketId, reason: ReasonCode) {
        let order = self.next_order();
        let Some((_, sent)) = self.outbound.get_mut(packet_id) else { return };
        sent.message = None;
        sent.reason = reason;
        sent.order = order;
        let connection = sent.connection;
        self.not_again(packet_id, connection);
    }

    /// A message that was acknowledged need not be sent again.
    pub(super) fn not_again(&mut self, packet_id: PacketId, connection: u32) {
        if connection != self.connections
            && let Some(link) = &mut self.link
        {
            link.again.retain(|again| *again != packet_id);
        }
    }

    fn next_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    /// Continues the session on a new connection. PUBRELs are sent again in the order of PUBRECs, then PUBLISHes in
    /// theirs [MQTT-4.4.0-1], [MQTT-4.6.0-1], as many as the server allows now.
    pub(super) fn resume(&mut self, now: Now, into: &mut Vec<u8>) {
        let Some(link) = &mut self.link else { return };
        let mut open: Vec<_> =
            self.outbound.iter().map(|(id, stage, sent)| (sent.order, id, stage)).collect();
        open.sort_unstable_by_key(|(order, ..)| *order);
        for (_, packet_id, stage) in open {
            match stage {
                Stage::AtLeastOnce | Stage::ExactlyOnce => link.again.push_back(packet_id),
                Stage::Received | Stage::Released => {
                    link.receiver().write(&PubRel::new(packet_id, PubRelReason::Success).into(), into);
                }
            }
        }
        self.release_again(into);
        self.flush(now, into);
    }

    /// Sends as many messages as the window has room for: first messages that are sent again, then waiting messages.
    pub(super) fn flush(&mut self, now: Now, into: &mut Vec<u8>) {
        self.flush_again(now, into);
        while self.link.as_ref().is_some_and(|link| link.has_place(self.outbound.len())) {
            if self.waiting.len() > 0 && !self.has_identifier() {
                return self.release_some(into);
            }
            let Some(waiting) = self.waiting.pop() else { return };
            if let Err(failed) = self.send(waiting.message, waiting.tag, now, into) {
                self.failed.push_back(failed);
            }
        }
    }

    fn flush_again(&mut self, now: Now, into: &mut Vec<u8>) {
        let Some(link) = &mut self.link else { return };
        while self.outbound.len() - link.again.len() < usize::from(link.server.window) {
            let Some(packet_id) = link.again.pop_front() else { return };
            let Some((_, sent)) = self.outbound.get_mut(packet_id) else { continue };
            let Some(message) = sent.message.clone() else { continue };
            sent.connection = self.connections;
            if let Err(why) = link.send(&message, packet_id, true, now, into)
                && let Some(Sent { tag, .. }) = self.outbound.remove(packet_id)
            {
                self.failed.push_back(Failed { tag, message: Some(message), was_sent: true, why });
            }
        }
    }

    /// Ends the session. Messages in flight fail, and received identifiers of QoS 2 are forgotten. Messages that were
    /// not sent yet go on waiting.
    pub(super) fn discard_session(&mut self) {
        self.has_session = false;
        self.inherited = None;
        self.inbound = Inbound::default();
        if let Some(link) = &mut self.link {
            link.again.clear();
        }
        let mut open: Vec<Sent<T>> = self.outbound.drain().map(|(_, sent)| sent).collect();
        open.sort_unstable_by_key(|sent| sent.order);
        self.failed.extend(open.into_iter().map(|Sent { message, tag, .. }| Failed {
            tag,
            message,
            was_sent: true,
            why: PublishError::SessionEnded,
        }));
    }
}

fn message(outgoing: &Outgoing<'_>, now: Now) -> Message {
    let &Outgoing { topic, payload, qos, retain, ref properties } = outgoing;
    Message::of_content(&Content { topic, properties, payload, qos, retain }, None, now)
}

fn waiting<T>(message: Arc<Message>, tag: T) -> Waiting<T> {
    let (qos, retain) = (message.qos(), message.retain());
    Waiting { message, qos, retain, identifiers: ThinVec::new(), tag }
}

impl Settings {
    fn bound(&self) -> Bound {
        Bound { messages: self.waiting_messages_max, bytes: self.waiting_bytes_max }
    }
}

impl Link {
    /// Whether the window has room for a new message [MQTT-4.9.0-2]. Messages that are still to be sent again count,
    /// because new messages follow them.
    fn has_place(&self, in_flight: usize) -> bool {
        self.is_connected && in_flight < usize::from(self.server.window)
    }

    /// Writes the PUBLISH of a message of QoS 1 or 2, with DUP if `dup` is set.
    fn send(
        &mut self,
        message: &Message,
        packet_id: PacketId,
        dup: bool,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<(), PublishError> {
        let (qos, retain) = (message.qos(), message.retain());
        self.server.check(qos, retain)?;
        let delivery = match qos {
            Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup },
            _ => Delivery::AtLeastOnce { packet_id, dup },
        };
        self.write_publish(&Publish { delivery, retain, ..message.publish(now) }, now, into)
    }

    /// Writes PUBLISH, with a topic alias if that makes it shorter.
    fn write_publish(
        &mut self,
        publish: &Publish<'_>,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<(), PublishError> {
        let start = into.len();
        let name = publish.topic;
        for topic in
            [name.name().map(|name| self.outgoing_aliases.outgoing(name)), Some(name)].into_iter().flatten()
        {
            let len =
                Publish { topic, ..*publish }.encode(self.version, into).map_err(PublishError::Packet)?;
            if len <= self.server.packet_bytes_max {
                self.note_sent(true, now);
                return Ok(());
            }
            // A new alias makes the packet larger than a packet without alias.
            into.truncate(start);
            self.outgoing_aliases.unsent(topic);
        }
        Err(PublishError::TooLarge)
    }
}

impl Server {
    fn check(&self, qos: Qos, retain: bool) -> Result<(), PublishError> {
        if qos > self.qos_max {
            return Err(PublishError::QosNotSupported);
        }
        if retain && !self.retain_available {
            return Err(PublishError::RetainNotSupported);
        }
        Ok(())
    }
}
