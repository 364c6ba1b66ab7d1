//! Bringing clients to where a load can start: connected, and subscribed if they are subscribers.

use wire::{Connect, Connected, Packet, PacketId, Role, Utf8, Version};

use crate::connections::{Connections, Load, Next};
use crate::error::{Error, Result};
use crate::frames::for_each_packet;
use crate::message::RunId;
use crate::protocol::{packet_in, subscribe, to_bytes};

/// Connections being set up at a time: fewer than the shortest backlog of a listener that is in use (100).
pub(crate) const IN_FLIGHT_MAX: usize = 64;

/// The longest there is: servers keep the time as for any client, and no run is so long that a PINGREQ is due.
const KEEP_ALIVE_SECS: u16 = u16::MAX;

/// What a client does before the load starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    /// Unique on the server: 23 characters, the longest that every MQTT 3.1 server takes.
    pub(crate) client_id: String,
    /// The one filter that it subscribes to at QoS 0, if any.
    pub(crate) filter: Option<String>,
}

impl Client {
    /// Client number `number` of a run.
    pub(crate) fn new(run: RunId, number: usize, filter: Option<String>) -> Self {
        Self { client_id: format!("pondhawk{:07x}{number:08}", run & 0x0FFF_FFFF), filter }
    }

    /// The packet to begin with.
    pub(crate) fn connect(&self, version: Version) -> Vec<u8> {
        let client_id = Utf8::new(&self.client_id).expect("a client id has letters and digits");
        let mut connect = Connect::new(version, client_id);
        connect.keep_alive_secs = KEEP_ALIVE_SECS;
        to_bytes(connect, version)
    }

    /// Carries on after a packet from the server; returns whether the client is ready.
    ///
    /// # Errors
    /// If the server refuses, or sends what does not belong here.
    pub(crate) fn handle_packet(
        &self,
        packet: &[u8],
        version: Version,
        connection: usize,
        connections: &mut Connections,
    ) -> Result<bool> {
        let unwanted = match (packet_in(packet, Some(version), Role::Server)?, &self.filter) {
            (Packet::ConnAck(answer), filter) if matches!(answer.outcome, Connected::Accepted { .. }) => {
                let Some(filter) = filter else { return Ok(true) };
                connections.send(connection, &subscribe(PacketId::MIN, filter, version))?;
                return Ok(false);
            }
            (Packet::SubAck(answer), Some(_)) if answer.reasons.iter().all(|reason| !reason.is_error()) => {
                return Ok(true);
            }
            (unwanted, _) => unwanted,
        };
        Err(Error::Server(format!("answered {unwanted} while clients were set up")))
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
    use super::*;

    #[test]
    fn client_ids_have_23_characters_and_differ() {
        let ids = [(0, 0), (0, 1), (u32::MAX, 0), (u32::MAX, 99_999_999)];
        let ids = ids.map(|(run, number)| Client::new(run, number, None).client_id);
        assert!(ids.iter().all(|id| id.len() == 23));
        assert!(ids.iter().enumerate().all(|(at, id)| !ids[..at].contains(id)));
    }
}
