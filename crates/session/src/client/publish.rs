//! From a message to its PUBLISH: at once, in its turn, and again after a reconnect.

use std::sync::Arc;

use wire::{Delivery, PacketId, PubRel, PubRelReason, Publish, Qos};

use super::connection::{Link, Server};
use super::{Client, Failed, Outgoing, PublishError, Publishing};
use crate::outbound::Stage;
use crate::waiting::Bound;
use crate::{Message, Now, Wait, Waiting};

/// A message that was sent and is not acknowledged.
#[derive(Debug)]
pub(super) struct Sent<T> {
    /// Until PUBREC has come.
    pub(super) message: Option<Arc<Message>>,
    pub(super) tag: T,
    /// The order of PUBLISH, and of PUBREL behind PUBREC.
    pub(super) order: u64,
}

impl<T> Client<T> {
    /// Publishes a message: writes PUBLISH, or lets it wait for its turn. `tag` comes back with
    /// [`Event::Published`](super::Event::Published) or [`next_failed`](Self::next_failed); at QoS 0, which nobody
    /// acknowledges, it does not.
    ///
    /// # Errors
    /// [`PublishError`]; then the message is not kept.
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
        let message = Arc::new(Message::of_outgoing(outgoing, now));
        let is_ready = link.is_some_and(|link| link.has_place(self.outbound.len()));
        if is_ready && self.waiting.len() == 0 {
            return self
                .send(message, tag, now, into)
                .map(|id| Publishing::Sent(Some(id)))
                .map_err(|(why, _)| why);
        }
        let waiting =
            Waiting { message, qos: outgoing.qos, retain: outgoing.retain, identifiers: Box::default(), tag };
        let bound =
            Bound { messages: self.settings.waiting_messages_max, bytes: self.settings.waiting_bytes_max };
        match self.waiting.push(waiting, bound) {
            Wait::Waits => Ok(Publishing::Waits),
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
    ) -> Result<PacketId, (PublishError, Waiting<T>)> {
        let (qos, retain) = (message.qos(), message.retain());
        let failed = |why, message, tag| {
            Err((why, Waiting { message, qos, retain, identifiers: Box::default(), tag }))
        };
        let Some(link) = &mut self.link else { return failed(PublishError::NotConnected, message, tag) };
        let packet_id = self.outbound.unused(|id| link.requests.contains_key(&id));
        let delivery = match qos {
            Qos::ExactlyOnce => Delivery::ExactlyOnce { packet_id, dup: false },
            _ => Delivery::AtLeastOnce { packet_id, dup: false },
        };
        let publish = Publish { delivery, retain, ..message.publish(now) };
        let written = link.server.check(qos, retain).and_then(|()| link.write_publish(&publish, now, into));
        if let Err(why) = written {
            return failed(why, message, tag);
        }
        let order = self.next_order();
        self.outbound.begin(packet_id, qos, false, Sent { message: Some(message), tag, order });
        Ok(packet_id)
    }

    /// PUBREC has come: what is left to do is PUBREL.
    pub(super) fn released(&mut self, packet_id: PacketId) {
        let order = self.next_order();
        if let Some((_, sent)) = self.outbound.get_mut(packet_id) {
            sent.message = None;
            sent.order = order;
        }
    }

    fn next_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    /// A connection is there, and a session: what was under way is sent again, PUBRELs in the order of PUBRECs and
    /// then PUBLISHes in theirs [MQTT-4.4.0-1], [MQTT-4.6.0-1], as many as the server takes now.
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
        self.flush(now, into);
    }

    /// Sends what there is a place for: first what is to be sent again, then what waits.
    pub(super) fn flush(&mut self, now: Now, into: &mut Vec<u8>) {
        self.flush_again(now, into);
        while self.link.as_ref().is_some_and(|link| link.has_place(self.outbound.len())) {
            let Some(waiting) = self.waiting.pop() else { return };
            if let Err((why, waiting)) = self.send(waiting.message, waiting.tag, now, into) {
                self.failed.push_back(Failed { waiting, was_sent: false, why });
            }
        }
    }

    fn flush_again(&mut self, now: Now, into: &mut Vec<u8>) {
        let Some(link) = &mut self.link else { return };
        while self.outbound.len() - link.again.len() < usize::from(link.server.window) {
            let Some(packet_id) = link.again.pop_front() else { return };
            let Some((stage, sent)) = self.outbound.get_mut(packet_id) else { continue };
            let Some(message) = sent.message.clone() else { continue };
            let delivery = match stage {
                Stage::AtLeastOnce => Delivery::AtLeastOnce { packet_id, dup: true },
                _ => Delivery::ExactlyOnce { packet_id, dup: true },
            };
            let (qos, retain) = (message.qos(), message.retain());
            let publish = Publish { delivery, retain, ..message.publish(now) };
            let written =
                link.server.check(qos, retain).and_then(|()| link.write_publish(&publish, now, into));
            if let Err(why) = written
                && let Some(Sent { tag, .. }) = self.outbound.remove(packet_id)
            {
                let waiting = Waiting { message, qos, retain, identifiers: Box::default(), tag };
                self.failed.push_back(Failed { waiting, was_sent: true, why });
            }
        }
    }

    /// The session is over: what was under way has failed, and what was received with QoS 2 is forgotten. What has not
    /// been sent yet goes on waiting.
    pub(super) fn discard_session(&mut self) {
        self.has_session = false;
        self.inbound = Default::default();
        let mut open: Vec<Sent<T>> = self.outbound.drain().map(|(_, sent)| sent).collect();
        open.sort_unstable_by_key(|sent| sent.order);
        for Sent { message, tag, .. } in open {
            // What PUBREC was received for has arrived.
            let Some(message) = message else { continue };
            let (qos, retain) = (message.qos(), message.retain());
            let waiting = Waiting { message, qos, retain, identifiers: Box::default(), tag };
            self.failed.push_back(Failed { waiting, was_sent: true, why: PublishError::SessionEnded });
        }
    }
}

impl Link {
    /// Whether a new message may be sent, while so many are under way [MQTT-4.9.0-2].
    fn has_place(&self, in_flight: usize) -> bool {
        self.is_connected && self.again.is_empty() && in_flight < usize::from(self.server.window)
    }

    /// Writes PUBLISH, with an alias if that repays.
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
            // A new alias makes the packet larger than it would be without.
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
