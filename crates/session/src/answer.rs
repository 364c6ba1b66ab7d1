//! What the client is told: answers in their order, what it has done wrong, why its connection ends.

use base::{Now, Ticket};
use wire::{
    Answer, ConnAck, ConnectRefusal, Disconnect, DisconnectReason, Packet, ReasonCode, UserProperties, Utf8,
    Version, Violation,
};

use crate::Session;
use crate::fit::Receiver;
use crate::session::State;

/// An answer is held back for so long at most: a publisher is slowed down, never stopped.
const HOLD_MS_MAX: u64 = 1_000;

/// What is said beside a reason. What the client does not take is left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Details<'a> {
    /// For people who look for the cause.
    pub reason_string: Option<Utf8<'a>>,
    /// Another server to use.
    pub server_reference: Option<Utf8<'a>>,
    /// Anything else.
    pub user_properties: UserProperties<'a>,
}

impl<T> Session<T> {
    /// What a ticket stands for is true, or was refused: its answer leaves, and with it those that waited for it.
    /// Answers of one kind leave in the order of what they answer. A ticket that was completed before, or is of
    /// another connection, does nothing.
    ///
    /// Before MQTT 5 an answer cannot refuse, and says that all is well.
    pub fn complete(&mut self, ticket: Ticket, reason: ReasonCode, into: &mut Vec<u8>) {
        let (State::Connected, Some(version)) = (&self.state, self.version) else { return };
        match ticket {
            Ticket::PubAck(_) | Ticket::PubRec(_) => {
                if let Some(inbound) = &mut self.inbound
                    && inbound.complete(ticket, reason, version)
                {
                    inbound.write_answers(version, into);
                }
            }
            Ticket::PubComp(packet_id) => {
                let inbound = self.inbound.as_mut();
                if let Some(packet) = inbound.and_then(|inbound| inbound.complete_release(packet_id)) {
                    self.write(&packet.into(), into);
                }
            }
            Ticket::PubRel(packet_id) => {
                if let Some(sending) = &mut self.sending {
                    sending.outbound.complete_release(packet_id, version, into);
                }
            }
        }
    }

    /// The PUBLISH that was handled last is not taken: it is not answered on this connection, and its client sends it again
    /// on the next one.
    pub fn ignore(&mut self, ticket: Ticket) {
        if let Some(inbound) = &mut self.inbound {
            inbound.ignore(ticket);
        }
    }

    /// PUBACK and PUBREC wait from now on, until [`release_answers`](Self::release_answers) or for one second,
    /// whichever is first: back pressure for those who publish with QoS 1 and 2.
    pub fn hold_answers(&mut self, now: Now) {
        self.inbound.get_or_insert_default().hold(now.monotonic_ms + HOLD_MS_MAX);
    }

    /// Whether answers are held back.
    #[must_use]
    pub fn is_holding_answers(&self) -> bool {
        self.inbound.as_ref().is_some_and(|inbound| inbound.held_until_ms().is_some())
    }

    /// Answers that were held back leave.
    pub fn release_answers(&mut self, into: &mut Vec<u8>) {
        if let (Some(inbound), Some(version)) = (&mut self.inbound, self.version) {
            inbound.unhold();
            inbound.write_answers(version, into);
        }
    }

    /// Answers that we owe. Where the version has no Receive Maximum, this is what bounds them: who does not read
    /// more while there are many is not sent more.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.inbound.as_ref().map_or(0, |inbound| inbound.unanswered())
    }

    /// Writes a packet as the client takes it: reason string and user properties are left out where it does not want
    /// them, or where the packet would be too large with them. Whether it was written: not if it is larger than the
    /// client takes, and not where nothing is to be sent: before CONNACK, and after DISCONNECT has come.
    pub fn write(&self, packet: &Packet<'_>, into: &mut Vec<u8>) -> bool {
        let Some(version) = self.version else { return false };
        let may_be_sent = match self.state {
            State::Connected => true,
            // [MQTT-3.2.0-1]
            State::Claiming(_) | State::Authenticating(_) => {
                matches!(packet, Packet::ConnAck(_) | Packet::Auth(_))
            }
            State::AwaitingConnect | State::Closed => false,
        };
        if !may_be_sent {
            return false;
        }
        let receiver = Receiver {
            version,
            packet_bytes_max: self.packet_bytes_max(),
            takes_problem_information: self.takes_problem_information,
        };
        receiver.write(packet, into)
    }

    /// Writes what the peer is told of its violation, if its version has words for that and it takes a packet of
    /// that size.
    pub fn answer(&self, violation: &Violation, into: &mut Vec<u8>) {
        let refuse = |reason: DisconnectReason| ConnectRefusal::try_from(reason.reason()).ok();
        let (version, packet) = match (violation.answer, &self.state) {
            (Answer::ConnAck(version, refusal), _) => (version, ConnAck::refused(refusal).into()),
            (Answer::Disconnect(reason), State::Connected) => (Version::V5, Disconnect::new(reason).into()),
            (Answer::Disconnect(reason), State::Authenticating(_)) => {
                let refusal = refuse(reason).unwrap_or(ConnectRefusal::ProtocolError);
                (Version::V5, ConnAck::refused(refusal).into())
            }
            // [MQTT-3.14.0-1], [MQTT-3.14.4-1]
            (Answer::Disconnect(_), _) | (Answer::Nothing, _) => return,
        };
        let start = into.len();
        // What cannot be said in the version is not said: the connection is closed in any case.
        let _ = Packet::encode(&packet, version, into);
        if into.len() - start > self.packet_bytes_max() {
            into.truncate(start);
        }
    }

    /// The packet that tells the peer why the server ends the connection, if its version has one.
    #[must_use]
    pub fn disconnect(&self, reason: DisconnectReason) -> Option<Packet<'static>> {
        self.disconnect_with(reason, &Details::default())
    }

    /// The same with more about it; [`write`](Self::write) leaves out what the client does not take.
    #[must_use]
    pub fn disconnect_with<'a>(&self, reason: DisconnectReason, details: &Details<'a>) -> Option<Packet<'a>> {
        let Details { reason_string, server_reference, user_properties } = *details;
        match (&self.state, self.version) {
            (State::Connected, Some(Version::V5)) => {
                let mut packet = Disconnect::new(reason);
                packet.properties.reason_string = reason_string;
                packet.properties.server_reference = server_reference;
                packet.properties.user_properties = user_properties;
                Some(packet.into())
            }
            (State::Claiming(_) | State::Authenticating(_), Some(version)) => {
                let refusal =
                    ConnectRefusal::try_from(reason.reason()).unwrap_or(ConnectRefusal::ServerUnavailable);
                let mut packet = ConnAck::refused(refusal);
                packet.properties.reason_string = reason_string;
                packet.properties.server_reference = server_reference;
                packet.properties.user_properties = user_properties;
                (version.is_5() || refusal.return_code().is_some()).then(|| packet.into())
            }
            _ => None,
        }
    }
}
