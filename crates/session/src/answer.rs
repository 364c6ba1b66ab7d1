//! Answers to the client: acknowledgements in their order, violations, and the reason for the end of its connection.

use base::{Now, Ticket};
use wire::{
    Answer, ConnAck, ConnectRefusal, Disconnect, DisconnectReason, Packet, ReasonCode, UserProperties, Utf8,
    Version, Violation, brief_pubcomp,
};

use crate::Session;
use crate::fit::Receiver;
use crate::session::State;

/// Maximum delay of an answer, in milliseconds: a publisher is slowed down and never stopped.
const HOLD_MS_MAX: u64 = 1_000;

/// Details beside a reason code. Details that the client does not accept are left out.
#[derive(Debug, Clone, Copy, Default)]
pub struct Details<'a> {
    /// Explanation of the reason code, for people.
    pub reason_string: Option<Utf8<'a>>,
    /// Another server to use.
    pub server_reference: Option<Utf8<'a>>,
    /// Further details, as pairs.
    pub user_properties: UserProperties<'a>,
}

impl<T> Session<T> {
    /// Completes a ticket: its operation is done, or was refused.
    ///
    /// The answer leaves, together with answers that waited for it. Answers of one kind leave in the order of their
    /// packets. A ticket that was completed before, or that belongs to another connection, does nothing.
    ///
    /// Before MQTT 5 an answer cannot refuse, and reports success.
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
                if let Some(inbound) = &mut self.inbound
                    && inbound.complete_release(packet_id)
                {
                    // Every client that is connected takes it: its CONNACK was not shorter.
                    into.extend_from_slice(&brief_pubcomp(packet_id));
                }
            }
            Ticket::PubRel(packet_id) => {
                if let Some(sending) = &mut self.sending {
                    sending.outbound.complete_release(packet_id, into);
                }
            }
        }
    }

    /// Completes the tickets of the last `count` PUBLISH packets of QoS 1, as [`complete`](Self::complete) does for each. Returns
    /// how many answers leave.
    ///
    /// # Panics
    /// If fewer PUBLISH packets of QoS 1 are unanswered.
    pub fn complete_last(&mut self, count: usize, reason: ReasonCode, into: &mut Vec<u8>) -> usize {
        let (State::Connected, Some(version)) = (&self.state, self.version) else { return 0 };
        let Some(inbound) = &mut self.inbound else { return 0 };
        inbound.complete_last(count, reason, version);
        inbound.write_answers(version, into)
    }

    /// Drops the last handled PUBLISH: it gets no answer on this connection, and its client sends it again on the next
    /// one.
    pub fn ignore(&mut self, ticket: Ticket) {
        if let Some(inbound) = &mut self.inbound {
            inbound.ignore(ticket);
        }
    }

    /// Holds back PUBACK and PUBREC until [`release_answers`](Self::release_answers), at most one second. This is back
    /// pressure for publishers with QoS 1 and 2.
    pub fn hold_answers(&mut self, now: Now) {
        self.inbound.get_or_insert_default().hold(now.monotonic_ms + HOLD_MS_MAX);
    }

    /// Whether answers are held back.
    #[must_use]
    pub fn is_holding_answers(&self) -> bool {
        self.inbound.as_ref().is_some_and(|inbound| inbound.held_until_ms().is_some())
    }

    /// Sends the answers that were held back.
    pub fn release_answers(&mut self, into: &mut Vec<u8>) {
        if let (Some(inbound), Some(version)) = (&mut self.inbound, self.version) {
            inbound.unhold();
            inbound.write_answers(version, into);
        }
    }

    /// Number of answers that are owed. Versions without Receive Maximum have no other bound: a client with many owed
    /// answers is not read.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.inbound.as_ref().map_or(0, |inbound| inbound.unanswered())
    }

    /// Writes a packet in the form that the client accepts.
    ///
    /// Reason String and User Properties are left out if the client does not want them, or if the packet would be too
    /// large with them. Returns whether the packet was written. It is not written if it is too large, before CONNACK,
    /// and after DISCONNECT.
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

    /// Writes the report of a violation, if the version has a packet for it and the peer accepts the size.
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
        // Without a packet for it in this version, nothing is written. The connection is closed in any case.
        let _ = Packet::encode(&packet, version, into);
        if into.len() - start > self.packet_bytes_max() {
            into.truncate(start);
        }
    }

    /// The packet with the reason for which the server ends the connection, if the version has one.
    #[must_use]
    pub fn disconnect(&self, reason: DisconnectReason) -> Option<Packet<'static>> {
        self.disconnect_with(reason, &Details::default())
    }

    /// Like [`disconnect`](Self::disconnect), with details. [`write`](Self::write) leaves out details that the client
    /// does not accept.
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
