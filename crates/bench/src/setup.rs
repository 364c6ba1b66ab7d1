//! Bringing clients to where a load can start: connected, and subscribed if they are subscribers.

use wire::{
    ConnAck, Connect, Connected, MaximumQos, Packet, PacketId, Qos, Role, SubAckReason, Utf8, Version,
};

use crate::connections::{Connections, Load, Next};
use crate::error::{Error, Result};
use crate::exchange::Quality;
use crate::frames::for_each_packet;
use crate::message::RunId;
use crate::protocol::{packet_in, subscribe, to_bytes};

/// Connections being set up at a time: fewer than the shortest backlog of a listener that is in use (100).
pub(crate) const IN_FLIGHT_MAX: usize = 64;

/// The longest there is: servers keep the time as for any client, and no run is so long that a PINGREQ is due.
const KEEP_ALIVE_SECS: u16 = u16::MAX;

/// Actions of a client before the load starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    /// Unique on the server: 23 characters, the longest that every MQTT 3.1 server takes.
    pub(crate) client_id: String,
    /// The one filter that it subscribes to, if any.
    pub(crate) filter: Option<String>,
    /// QoS of its messages and subscriptions, which the server has to allow.
    quality: Quality,
    /// Its session outlives the connection, and is gone on with if there is one.
    lasts: bool,
}

impl Client {
    /// Client number `number` of a run.
    pub(crate) fn new(run: RunId, number: usize, filter: Option<String>, quality: Quality) -> Self {
        Self {
            client_id: format!("pondhawk{:07x}{number:08}", run & 0x0FFF_FFFF),
            filter,
            quality,
            lasts: false,
        }
    }

    /// The same with a session that outlives the connection.
    pub(crate) fn lasting(self) -> Self {
        Self { lasts: true, ..self }
    }

    /// The packet to begin with.
    pub(crate) fn connect(&self, version: Version) -> Vec<u8> {
        let client_id = Utf8::new(&self.client_id).expect("a client id has letters and digits");
        let mut connect = Connect::new(version, client_id);
        connect.keep_alive_secs = KEEP_ALIVE_SECS;
        connect.clean_start = !self.lasts;
        if self.lasts && version.is_5() {
            connect.properties.session_expiry_interval_secs = Some(u32::MAX);
        }
        to_bytes(connect, version)
    }

    /// Carries on after a packet from the server; returns whether the client is ready.
    ///
    /// # Errors
    /// If the server refuses, allows less than is needed, or sends what does not belong here.
    pub(crate) fn handle_packet(
        &self,
        packet: &[u8],
        version: Version,
        connection: usize,
        connections: &mut Connections,
    ) -> Result<bool> {
        let Quality { qos, .. } = self.quality;
        let unwanted = match (packet_in(packet, Some(version), Role::Server)?, &self.filter) {
            (Packet::ConnAck(answer), filter) if self.is_served_by(&answer) => {
                let Some(filter) = filter else { return Ok(true) };
                connections.send(connection, &subscribe(PacketId::MIN, filter, qos, version))?;
                return Ok(false);
            }
            (Packet::SubAck(answer), Some(_)) if answer.reasons.iter().eq([SubAckReason::granted(qos)]) => {
                return Ok(true);
            }
            (unwanted, _) => unwanted,
        };
        Err(Error::Server(format!("answered {unwanted} while clients were set up for {}", self.quality)))
    }

    /// Whether the client is let in, and may do all it wants to do.
    fn is_served_by(&self, answer: &ConnAck<'_>) -> bool {
        let Quality { qos, window } = self.quality;
        let is_accepted = matches!(answer.outcome, Connected::Accepted { .. });
        let qos_max = match answer.properties.maximum_qos {
            Some(MaximumQos::AtMostOnce) => Qos::AtMostOnce,
            Some(MaximumQos::AtLeastOnce) => Qos::AtLeastOnce,
            None => Qos::ExactlyOnce,
        };
        let has_room = answer.properties.receive_maximum.is_none_or(|maximum| maximum.get() >= window);
        is_accepted && qos <= qos_max && (has_room || qos == Qos::AtMostOnce)
    }
}

/// The load that sets up clients: connection n becomes client n.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    clients: &'a [Client],
    version: Version,
    opened: usize,
    ready: usize,
}

impl<'a> Setup<'a> {
    /// Sets up these clients.
    pub(crate) fn new(clients: &'a [Client], version: Version) -> Self {
        Self { clients, version, opened: 0, ready: 0 }
    }
}

impl Load for Setup<'_> {
    fn receive(&mut self, connection: usize, bytes: &[u8], connections: &mut Connections) -> Result<usize> {
        let client = &self.clients[connection];
        for_each_packet(bytes, |packet| {
            self.ready += usize::from(client.handle_packet(packet, self.version, connection, connections)?);
            Ok(())
        })
    }

    fn publish(&mut self, connections: &mut Connections) -> Result<Next> {
        while self.opened < self.clients.len() && self.opened - self.ready < IN_FLIGHT_MAX {
            connections.open(&self.clients[self.opened].connect(self.version))?;
            self.opened += 1;
        }
        Ok(Next::WhenWoken)
    }

    fn arrived(&self) -> u64 {
        self.ready as u64
    }

    fn expected(&self) -> u64 {
        self.clients.len() as u64
    }

    fn is_complete(&self) -> bool {
        self.ready == self.clients.len()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use wire::ConnAckProperties;

    use super::*;

    #[test]
    fn client_ids_have_23_characters_and_differ() {
        let ids = [(0, 0), (0, 1), (u32::MAX, 0), (u32::MAX, 99_999_999)];
        let ids = ids.map(|(run, number)| Client::new(run, number, None, Quality::AT_MOST_ONCE).client_id);
        assert!(ids.iter().all(|id| id.len() == 23));
        assert!(ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id)));
    }

    #[test]
    fn a_server_that_allows_less_than_is_needed_is_not_measured() {
        let client = |qos| Client::new(0, 0, None, Quality { qos, window: 100 });
        let answer = |maximum_qos, receive_maximum| ConnAck {
            properties: ConnAckProperties {
                maximum_qos,
                receive_maximum: NonZeroU16::new(receive_maximum),
                ..ConnAckProperties::EMPTY
            },
            ..ConnAck::accepted(false)
        };
        let at_most_qos_1 = Some(MaximumQos::AtLeastOnce);
        assert!(client(Qos::AtLeastOnce).is_served_by(&answer(at_most_qos_1, 100)));
        assert!(!client(Qos::ExactlyOnce).is_served_by(&answer(at_most_qos_1, 100)));
        assert!(!client(Qos::ExactlyOnce).is_served_by(&answer(None, 99)));
        assert!(client(Qos::AtMostOnce).is_served_by(&answer(None, 1)));
        assert!(client(Qos::ExactlyOnce).is_served_by(&ConnAck::accepted(false)));
    }
}
