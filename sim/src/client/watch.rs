//! Looks at the packets of one client's connection in both directions: identifiers, windows, the order of answers.

use std::collections::{BTreeMap, VecDeque};

use wire::{Delivery, Packet, PacketId, PubAckReason, Publish, Qos};

use crate::oracle::MessageNo;

/// The state of one client's exchanges.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Messages that the broker has sent on this connection, and the client has not finished with.
    in_use: BTreeMap<PacketId, Option<MessageNo>>,
    /// Messages that the client has answered with PUBREC, on any connection of the session, and not with PUBCOMP.
    received: BTreeMap<PacketId, Option<MessageNo>>,
    /// Messages that the client has published in this session, and that were not acknowledged.
    sent: BTreeMap<PacketId, Option<MessageNo>>,
    /// PUBACKs and PUBRECs that the broker owes on this connection, in their order.
    acks_owed: VecDeque<PacketId>,
    recs_owed: VecDeque<PacketId>,
    comps_owed: usize,
    pings_owed: usize,
    /// Maximum number of messages in flight to the client.
    window: usize,
}

impl Watch {
    /// A new connection, in the same session or a new one.
    pub(crate) fn begin(&mut self, window: usize) {
        let Self { received, sent, .. } = std::mem::take(self);
        *self = Self { received, sent, window, ..Self::default() };
    }

    /// CONNACK says how many may be under way.
    pub(crate) fn set_window(&mut self, window: usize) {
        self.window = window;
    }

    /// The session is over.
    pub(crate) fn forget_session(&mut self) {
        self.received.clear();
        self.sent.clear();
    }

    /// The message that was published with an identifier, if it was not heard of.
    pub(crate) fn sent(&self, packet_id: PacketId) -> Option<MessageNo> {
        self.sent.get(&packet_id).copied().flatten()
    }

    pub(crate) fn unacknowledged(&self) -> impl Iterator<Item = MessageNo> {
        self.sent.values().copied().flatten()
    }

    /// Returns a description of packets that the broker has not answered.
    pub(crate) fn owed(&self) -> Option<String> {
        let Self { acks_owed, recs_owed, comps_owed, pings_owed, .. } = self;
        let is_owed = acks_owed.len() + recs_owed.len() + comps_owed + pings_owed > 0;
        is_owed.then(|| {
            format!("PUBACK {acks_owed:?}, PUBREC {recs_owed:?}, {comps_owed} PUBCOMP, {pings_owed} PINGRESP")
        })
    }

    /// The client sends a packet.
    pub(crate) fn sends(&mut self, packet: &Packet<'_>) {
        match packet {
            Packet::Publish(publish) => match publish.delivery {
                Delivery::AtMostOnce => {}
                Delivery::AtLeastOnce { packet_id, .. } => {
                    self.acks_owed.push_back(packet_id);
                    self.sent.insert(packet_id, message_of(publish));
                }
                Delivery::ExactlyOnce { packet_id, .. } => {
                    self.recs_owed.push_back(packet_id);
                    self.sent.insert(packet_id, message_of(publish));
                }
            },
            Packet::PubAck(ack) => drop(self.in_use.remove(&ack.packet_id)),
            Packet::PubRec(rec) if rec.reason.is_error() => drop(self.in_use.remove(&rec.packet_id)),
            Packet::PubRec(rec) => {
                let message = self.in_use.get(&rec.packet_id).copied().flatten();
                self.received.insert(rec.packet_id, message);
            }
            Packet::PubRel(_) => self.comps_owed += 1,
            Packet::PubComp(comp) => {
                self.in_use.remove(&comp.packet_id);
                self.received.remove(&comp.packet_id);
            }
            Packet::PingReq(_) => self.pings_owed += 1,
            _ => {}
        }
    }

    /// The broker sends a packet.
    ///
    /// # Errors
    /// A rule that it breaks.
    pub(crate) fn receives(&mut self, packet: &Packet<'_>) -> Result<(), String> {
        match packet {
            Packet::Publish(publish) => self.receives_publish(publish),
            Packet::PubAck(ack) => {
                answer(&mut self.acks_owed, "PUBACK", ack.packet_id)?;
                self.sent.remove(&ack.packet_id);
                Ok(())
            }
            Packet::PubRec(rec) => {
                answer(&mut self.recs_owed, "PUBREC", rec.packet_id)?;
                if rec.reason != PubAckReason::PacketIdentifierInUse && rec.reason.is_error() {
                    self.sent.remove(&rec.packet_id);
                }
                Ok(())
            }
            Packet::PubRel(rel) => {
                self.in_use.entry(rel.packet_id).or_insert(None);
                Ok(())
            }
            Packet::PubComp(_) => owed_before(&mut self.comps_owed, "PUBCOMP"),
            Packet::PingResp(_) => owed_before(&mut self.pings_owed, "PINGRESP"),
            _ => Ok(()),
        }
    }

    /// PUBREC has come, and was heard.
    pub(crate) fn acknowledged(&mut self, packet_id: PacketId) {
        self.sent.remove(&packet_id);
    }

    fn receives_publish(&mut self, publish: &Publish<'_>) -> Result<(), String> {
        let Some(packet_id) = publish.delivery.packet_id() else { return Ok(()) };
        let (message, id) = (message_of(publish), packet_id.value());
        if let Some(other) = self.in_use.insert(packet_id, message) {
            return Err(format!("identifier {id} for {message:?} while it is in use for {other:?}"));
        }
        if let Some(other) = self.received.get(&packet_id) {
            let is_again = publish.delivery.dup() && publish.delivery.qos() == Qos::ExactlyOnce;
            if !is_again || *other != message {
                return Err(format!("identifier {id} for {message:?} before PUBCOMP for {other:?}"));
            }
        }
        if self.in_use.len() > self.window {
            return Err(format!(
                "{} messages at a time, where {} are allowed",
                self.in_use.len(),
                self.window
            ));
        }
        Ok(())
    }
}

/// The message that a PUBLISH is, if its payload says so.
pub(crate) fn message_of(publish: &Publish<'_>) -> Option<MessageNo> {
    publish.payload.first_chunk().map(|number| MessageNo(u32::from_be_bytes(*number)))
}

/// Answers leave in the order of what they answer [MQTT-4.6.0-2], [MQTT-4.6.0-3].
fn answer(owed: &mut VecDeque<PacketId>, what: &str, packet_id: PacketId) -> Result<(), String> {
    match owed.pop_front() {
        Some(next) if next == packet_id => Ok(()),
        next => Err(format!(
            "{what} for {}, where one for {:?} was next",
            packet_id.value(),
            next.map(PacketId::value)
        )),
    }
}

fn owed_before(owed: &mut usize, what: &str) -> Result<(), String> {
    *owed = owed.checked_sub(1).ok_or_else(|| format!("{what} for nothing"))?;
    Ok(())
}
