//! The packets of the server, one by one.

use base::Now;
use wire::{
    AckProperties, Packet, PacketId, PubComp, PubRel, PubRelReason, Publish, PublishTopic, ReasonCode, Role,
    Violation,
};

use super::publish::Sent;
use super::{Acknowledge, Client, Event, Receipt, violation};
use crate::inbound::{Arrival, Release};
use crate::incoming::{Incoming, Resolved};
use crate::outbound::Acknowledged;

impl<T> Client<T> {
    /// Handles a packet that was decoded within [`limits`](Self::limits), and writes the answers.
    ///
    /// # Errors
    /// A fault of the server. [`answer`](Self::answer) reports it, and the connection ends.
    pub fn handle_packet<'p>(
        &mut self,
        packet: Packet<'p>,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<Event<'p, T>, Violation> {
        // Packets behind the end of a connection are ignored.
        let Some(link) = &mut self.link else { return Ok(Event::None) };
        link.note_heard(now);
        if !link.is_connected && !matches!(packet, Packet::ConnAck(_) | Packet::Auth(_)) {
            let text = "a packet before CONNACK";
            return Err(violation(link, ReasonCode::ProtocolError, ["MQTT-3.2.0-1"; 2], text));
        }
        let start = into.len();
        let event = self.handle(packet, now, into)?;
        if let Some(link) = &mut self.link {
            link.note_sent(into.len() > start, now);
        }
        Ok(event)
    }

    fn handle<'p>(
        &mut self,
        packet: Packet<'p>,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<Event<'p, T>, Violation> {
        match packet {
            Packet::ConnAck(packet) => self.handle_connack(packet, now, into),
            Packet::Auth(packet) => self.handle_auth(&packet),
            Packet::Publish(packet) => self.handle_publish(packet, into),
            Packet::PubAck(packet) => {
                let acknowledged = self.outbound.puback(packet.packet_id);
                let outcome = (packet.packet_id, packet.reason.into(), packet.properties);
                self.acknowledged(acknowledged, outcome, now, into)
            }
            Packet::PubRec(packet) => {
                let acknowledged = self.outbound.pubrec(packet.packet_id, packet.reason.is_error());
                let outcome = (packet.packet_id, packet.reason.into(), packet.properties);
                self.handle_pubrec(acknowledged, outcome, now, into)
            }
            Packet::PubRel(packet) => self.handle_pubrel(packet.packet_id, into),
            Packet::PubComp(packet) if self.is_released(packet.packet_id, now, into) => Ok(Event::None),
            Packet::PubComp(packet) => {
                let acknowledged = self.outbound.pubcomp(packet.packet_id);
                // The server has the message since PUBREC. A PUBCOMP for an unknown identifier does not change that:
                // the connection may have been lost before an earlier PUBCOMP arrived.
                let reason = match &acknowledged {
                    Acknowledged::Over(sent) => sent.reason,
                    _ => packet.reason.into(),
                };
                let outcome = (packet.packet_id, reason, packet.properties);
                self.acknowledged(acknowledged, outcome, now, into)
            }
            Packet::SubAck(packet) => self.handle_suback(packet),
            Packet::UnsubAck(packet) => self.handle_unsuback(packet),
            Packet::PingResp(_) => Ok(Event::None),
            Packet::Disconnect(packet) => {
                self.end_link();
                Ok(Event::Disconnected(packet))
            }
            Packet::Connect(_) | Packet::Subscribe(_) | Packet::Unsubscribe(_) | Packet::PingReq(_) => {
                Err(self.wrong("a packet that only clients send"))
            }
        }
    }

    fn handle_publish<'p>(
        &mut self,
        packet: Publish<'p>,
        into: &mut Vec<u8>,
    ) -> Result<Event<'p, T>, Violation> {
        let Some(link) = &mut self.link else { return Ok(Event::None) };
        let (version, ours) = (link.version, link.ours);
        let topic = match packet.topic {
            PublishTopic::Name(name) => Resolved::Own(name),
            topic => link.incoming_aliases.resolve(topic, version, ours.topic_alias_max, Role::Server)?,
        };
        let message = Incoming::new(packet, version, topic);
        // Before MQTT 5 the client has no Receive Maximum. More messages than identifiers are a flood.
        let excess_max = self.settings.receive_excess_max;
        let receive_max = Some(ours.receive_max.map_or(u16::MAX, |max| max.saturating_add(excess_max)));
        match self.inbound.publish(packet.delivery, version, receive_max) {
            None => Ok(Event::Message { message, receipt: None }),
            Some(Arrival::New(ticket)) => {
                let receipt = Receipt { ticket, connection: self.connections };
                if self.settings.acknowledge == Acknowledge::ByApplication {
                    return Ok(Event::Message { message, receipt: Some(receipt) });
                }
                self.inbound.complete(ticket, ReasonCode::Success, version);
                self.inbound.write_answers(version, into);
                Ok(Event::Message { message, receipt: None })
            }
            Some(Arrival::Repeated | Arrival::Refused) => {
                self.inbound.write_answers(version, into);
                Ok(Event::None)
            }
            Some(Arrival::TooMany) => {
                let statements = ["MQTT-3.3.4-9", "MQTT-4.8.0-1"];
                let text = "more messages than our Receive Maximum allows";
                Err(violation(link, ReasonCode::ReceiveMaximumExceeded, statements, text))
            }
            Some(Arrival::InUse) => {
                let statements = ["MQTT-2.2.1-4", "MQTT-2.3.1-4"];
                let text = "the packet identifier of an exchange that is not over";
                Err(violation(link, ReasonCode::ProtocolError, statements, text))
            }
        }
    }

    fn handle_pubrel<'p>(
        &mut self,
        packet_id: PacketId,
        into: &mut Vec<u8>,
    ) -> Result<Event<'p, T>, Violation> {
        let Some(link) = &self.link else { return Ok(Event::None) };
        let released = self.inbound.release(packet_id);
        let reason = match released {
            Release::New => self.inbound.complete_release(packet_id).then_some(PubRelReason::Success),
            Release::Unknown => Some(PubRelReason::PacketIdentifierNotFound),
            Release::Repeated => None,
            Release::TooEarly => return Err(self.wrong("PUBREL before PUBREC")),
        };
        if let Some(reason) = reason {
            link.receiver().write(&PubComp::new(packet_id, reason).into(), into);
        }
        Ok(if released == Release::New { Event::Released { packet_id } } else { Event::None })
    }

    fn handle_pubrec<'p>(
        &mut self,
        acknowledged: Acknowledged<Sent<T>>,
        outcome: (PacketId, ReasonCode, AckProperties<'p>),
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<Event<'p, T>, Violation> {
        let Some(link) = &self.link else { return Ok(Event::None) };
        let (packet_id, reason, _) = outcome;
        let pubrel = |reason| PubRel::new(packet_id, reason);
        match acknowledged {
            Acknowledged::Received => {
                self.received(packet_id, reason);
                self.outbound.complete_release(packet_id, into);
                Ok(Event::Received { packet_id, reason })
            }
            Acknowledged::Again => {
                link.receiver().write(&pubrel(PubRelReason::Success).into(), into);
                Ok(Event::None)
            }
            Acknowledged::Unknown if !reason.is_error() => {
                link.receiver().write(&pubrel(PubRelReason::PacketIdentifierNotFound).into(), into);
                Ok(Event::None)
            }
            other => self.acknowledged(other, outcome, now, into),
        }
    }

    fn acknowledged<'p>(
        &mut self,
        acknowledged: Acknowledged<Sent<T>>,
        outcome: (PacketId, ReasonCode, AckProperties<'p>),
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<Event<'p, T>, Violation> {
        let (packet_id, reason, properties) = outcome;
        match acknowledged {
            Acknowledged::Over(sent) => {
                self.not_again(packet_id, sent.connection);
                self.give_identifier_back(packet_id);
                self.flush(now, into);
                Ok(Event::Published { packet_id, tag: sent.tag, reason, properties })
            }
            Acknowledged::Misplaced => {
                Err(self.wrong("an acknowledgement that the message does not have now"))
            }
            _ => Ok(Event::None),
        }
    }

    fn wrong(&self, text: &'static str) -> Violation {
        let version = self.version().unwrap_or(wire::Version::V3_1_1);
        let statements = ["MQTT-4.13.1-1", "MQTT-4.8.0-1"];
        Violation::after_connect(version, ReasonCode::ProtocolError, statements, text)
    }
}
