//! Packets of either side as they wait for their counterpart.

use wire::PacketType;

use super::super::exchange::{ExchangeId, Need, Side, Sighting, Transmission};
use super::super::packet::{Kind, Message, Seen, hash};
use super::super::past::Moment;
use super::Judge;

/// The packets among which the counterpart of a packet is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    Connection(u64),
    /// Messages may arrive on a later connection of the session.
    Session(u32),
    /// Messages of shared subscriptions may arrive at any member.
    Pool,
}

/// Hashes by which the counterpart of a packet is found.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    /// Of everything that is compared.
    pub(super) all: u64,
    /// Of the type of the packet, and of its topic or identifier.
    pub(super) subject: u64,
}

/// A packet of either side.
#[derive(Debug)]
pub(super) struct Noted {
    /// Moment of the recording at which the packet arrived.
    pub(super) moment: Moment,
    pub(super) connection: u64,
    pub(super) session: Option<u32>,
    pub(super) scope: Scope,
    pub(super) seen: Seen,
    /// Number among the packets of the replay that have arrived.
    pub(super) arrival: u64,
    /// The exchange to which the message or its PUBREL belongs.
    pub(super) exchange: Option<ExchangeId>,
    /// The server sends the packet again.
    pub(super) is_repeated: bool,
    /// The recorded packet need not arrive.
    pub(super) is_optional: bool,
    /// The packet that was not recorded has its verdict, and its message is acknowledged.
    pub(super) verdict: Option<Verdict>,
}

/// The verdict on a message that was not recorded up to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A race of the recording explains the message.
    InDoubt,
    Extra,
}

impl Judge {
    /// Makes the entry of a packet. `None` if it is not compared.
    pub(super) fn noted(&mut self, side: Side, connection: u64, seen: Seen) -> Option<(Keys, Noted, Need)> {
        let session = self.links.get(&connection)?.session;
        let mut scope = Scope::Connection(connection);
        let mut keys = Keys { all: seen.all, subject: seen.about };
        let mut sighting = None;
        let mut is_stale = false;
        if let Some(number) = session {
            let state = &mut self.sessions[number as usize];
            match &seen.kind {
                Kind::Message(message) => {
                    let is_pooled = state.shares(message.topic.name());
                    scope = if is_pooled { Scope::Pool } else { Scope::Session(number) };
                    sighting = self.publish(side, connection, number, message, is_pooled);
                    is_stale = message.packet_id.is_some() && sighting.is_none();
                    if is_pooled {
                        keys.all = message.content;
                        sighting = None;
                    }
                }
                Kind::Release(packet_id) => {
                    scope = Scope::Session(number);
                    sighting = Some(self.release(side, connection, number, *packet_id)?);
                }
                // A server that has processed the first PUBREL answers that it does not know the identifier.
                Kind::Answer(PacketType::PubComp, packet_id) if state.releases.is_repeated(*packet_id) => {
                    keys.all = keys.subject;
                }
                _ => {}
            }
        }
        let mark = sighting.and_then(|sighting| sighting.mark);
        if mark.is_some() {
            keys = Keys { all: hash((keys.all, mark)), subject: hash((keys.subject, mark)) };
        }
        let need = match sighting {
            _ if is_stale => Need::Optional,
            Some(sighting) => sighting.need,
            None => Need::Required,
        };
        let noted = Noted {
            moment: self.now,
            connection,
            session,
            scope,
            seen,
            arrival: self.arrivals,
            exchange: sighting.map(|sighting| sighting.id),
            is_repeated: is_stale || mark.is_some(),
            is_optional: false,
            verdict: None,
        };
        Some((Keys { all: hash((scope, keys.all)), subject: hash((scope, keys.subject)) }, noted, need))
    }

    fn publish(
        &mut self,
        side: Side,
        connection: u64,
        session: u32,
        message: &Message,
        is_pooled: bool,
    ) -> Option<Sighting> {
        let &Message { packet_id, content, qos, dup, .. } = message;
        let sent = Transmission { connection, packet_id: packet_id?, content, qos, dup, is_pooled };
        let exchanges = &mut self.sessions[session as usize].exchanges;
        if side == Side::Recording {
            return exchanges.publish_recorded(&sent);
        }
        let (sighting, answer) = exchanges.publish_replayed(&sent);
        self.answers.extend(answer);
        sighting
    }

    fn release(&mut self, side: Side, connection: u64, session: u32, packet_id: u16) -> Option<Sighting> {
        let exchanges = &mut self.sessions[session as usize].exchanges;
        if side == Side::Recording {
            return exchanges.release_recorded(connection, packet_id);
        }
        let (sighting, answer) = exchanges.release_replayed(connection, packet_id);
        self.answers.extend(answer);
        sighting
    }
}
