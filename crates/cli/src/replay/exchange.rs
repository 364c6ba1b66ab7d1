//! The exchanges in which the server sends messages of QoS 1 and 2 to a session, on both sides, and the answers of the
//! client in the replay.
//!
//! A connection may end within an exchange. The recorded server and the server of the replay may then be at different
//! stages, and send different packets again on the next connection. An answer of the recorded client is therefore not sent
//! as it is. It sets the goal of the exchange: the stage that the client may reach. Whenever the server of the replay sends
//! a packet of the exchange, and whenever the goal changes, the client sends the answer that is possible and that the goal
//! allows. No exchange thus stays open only because an answer of the recording came too early.

use std::collections::{HashMap, VecDeque};

use wire::{PacketType, Qos};

/// Maximum number of completed exchanges of a lasting session that are remembered, on each side: the server may not have
/// read the last answers when a connection ends. Each takes about 100 bytes.
const COMPLETED_MAX: usize = 1000;

/// The side on which a packet was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Recording,
    Replay,
}

/// The last packet of an exchange.
///
/// ```text
/// QoS 1:  Published ───────────────────PUBACK──────────────────► Completed
/// QoS 2:  Published ──PUBREC──► Received ──PUBREL──► Released ──PUBCOMP──► Completed
/// ```
///
/// A server that sends PUBLISH or PUBREL again has not read the answer. The exchange then returns to that stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Published,
    Received,
    Released,
    Completed,
}

impl Stage {
    /// The stage that a client has reached with its own packets.
    fn of_client(self) -> Self {
        if self == Self::Released { Self::Received } else { self }
    }
}

/// One exchange of one side. It is not equal to another one with the same packet identifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExchangeId {
    packet_id: u16,
    number: u64,
}

/// A PUBLISH of QoS 1 or 2.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transmission {
    pub(crate) connection: u64,
    pub(crate) packet_id: u16,
    /// Hash of topic and payload.
    pub(crate) content: u64,
    pub(crate) qos: Qos,
    pub(crate) dup: bool,
    /// The message comes from a shared subscription.
    pub(crate) is_pooled: bool,
}

/// An acknowledgement of a recorded client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledgement {
    /// PUBACK, PUBREC or PUBCOMP.
    pub(crate) packet_type: PacketType,
    pub(crate) packet_id: u16,
    /// The reason code of a PUBREC is an error, which ends the exchange.
    pub(crate) is_refusal: bool,
}

/// Names the counterpart of a packet whose exchange has begun already: no equal packet of another exchange has its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Mark {
    /// Number of the exchange in the replay.
    number: u64,
    /// The packet was sent before.
    is_again: bool,
}

/// Whether a recorded packet has to arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Required,
    /// The packet was recorded before, and has not arrived. It has to arrive once.
    InsteadOfFirst,
    /// The server of the replay may be at another stage.
    Optional,
}

/// A packet of an exchange, as it is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sighting {
    pub(crate) id: ExchangeId,
    /// `None` for the first PUBLISH of an exchange, whose counterpart is found by its content.
    pub(crate) mark: Option<Mark>,
    pub(crate) need: Need,
}

/// An answer that a client sends in the replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) connection: u64,
    pub(crate) bytes: [u8; 4],
}

impl Answer {
    fn new(connection: u64, packet_type: PacketType, packet_id: u16) -> Self {
        let [high, low] = packet_id.to_be_bytes();
        Self { connection, bytes: [(packet_type as u8) << 4, 2, high, low] }
    }
}

/// The exchanges of a session.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    /// The session may continue on a later connection.
    pub(crate) is_lasting: bool,
    recorded: Half<Counterpart>,
    replayed: Half<Goal>,
    /// Number of the next exchange, of either side.
    next: u64,
}

/// The exchange in the replay, once its message has arrived.
#[derive(Debug, Clone, Copy, Default)]
struct Counterpart(Option<ExchangeId>);

/// The stage that the client may reach.
#[derive(Debug, Clone, Copy)]
struct Goal(Stage);

impl Exchanges {
    /// Notes that a server has accepted a connection.
    pub(crate) fn begin(&mut self, side: Side, connection: u64, session_present: bool) {
        match side {
            Side::Recording => self.recorded.begin(connection, session_present),
            Side::Replay => self.replayed.begin(connection, session_present),
        }
    }

    /// Notes a PUBLISH of the recorded server. `None` if its exchange has moved to a newer connection.
    pub(crate) fn publish_recorded(&mut self, sent: &Transmission) -> Option<Sighting> {
        let (id, earlier) = self.recorded.publish(sent, &mut self.next, Counterpart(None))?;
        let Some(earlier) = earlier else {
            return Some(Sighting { id, mark: None, need: Need::Required });
        };
        let Some(partner) = self.recorded.of(id).and_then(|exchange| exchange.more.0) else {
            return Some(Sighting { id, mark: None, need: Need::InsteadOfFirst });
        };
        // Without an answer, the server has to send the message again.
        let is_open = self
            .replayed
            .of(partner)
            .is_some_and(|now| now.stage == Stage::Published && now.connection != sent.connection);
        let is_resumed = earlier.connection != sent.connection;
        let need = if is_open && is_resumed { Need::Required } else { Need::Optional };
        Some(Sighting { id, mark: Some(Mark { number: partner.number, is_again: true }), need })
    }

    /// Notes a PUBREL of the recorded server. `None` if it has no counterpart.
    pub(crate) fn release_recorded(&mut self, connection: u64, packet_id: u16) -> Option<Sighting> {
        let (id, earlier) = self.recorded.release(connection, packet_id)?;
        let partner = self.recorded.of(id)?.more.0?;
        let now = self.replayed.of(partner)?;
        let is_again = earlier.stage >= Stage::Released;
        let (is_again, need) = match now.stage {
            // Without PUBREC there is no PUBREL. The client sends PUBREC as soon as the message arrives again.
            Stage::Published | Stage::Completed => (is_again, Need::Optional),
            Stage::Released if is_again => {
                let is_open = now.connection != connection && earlier.connection != connection;
                (true, if is_open { Need::Required } else { Need::Optional })
            }
            Stage::Received if is_again => (false, Need::InsteadOfFirst),
            _ => (false, Need::Required),
        };
        Some(Sighting { id, mark: Some(Mark { number: partner.number, is_again }), need })
    }

    /// Notes a PUBLISH of the replay. The first result is `None` if its exchange has moved to a newer connection.
    pub(crate) fn publish_replayed(&mut self, sent: &Transmission) -> (Option<Sighting>, Option<Answer>) {
        // The counterpart of a message of a shared subscription may be in another session.
        let goal = if sent.is_pooled { Stage::Completed } else { Stage::Published };
        let Some((id, earlier)) = self.replayed.publish(sent, &mut self.next, Goal(goal)) else {
            return (None, None);
        };
        let mark = earlier.map(|_| Mark { number: id.number, is_again: true });
        (Some(Sighting { id, mark, need: Need::Optional }), self.answer(id))
    }

    /// Notes a PUBREL of the replay. The first result is `None` if the packet is not compared.
    pub(crate) fn release_replayed(
        &mut self,
        connection: u64,
        packet_id: u16,
    ) -> (Option<Sighting>, Option<Answer>) {
        let Some((id, earlier)) = self.replayed.release(connection, packet_id) else {
            // The client has forgotten the exchange, and completes it again.
            let is_newest = connection == self.replayed.connection;
            let answer = is_newest.then(|| Answer::new(connection, PacketType::PubComp, packet_id));
            return (None, answer);
        };
        let is_pooled = self.replayed.of(id).is_some_and(|exchange| exchange.is_pooled);
        let mark = Some(Mark { number: id.number, is_again: earlier.stage >= Stage::Released });
        let sighting = Sighting { id, mark, need: Need::Optional };
        (Some(sighting).filter(|_| !is_pooled), self.answer(id))
    }

    /// Notes that a message of the replay is the counterpart of a recorded one.
    pub(crate) fn pair(&mut self, recorded: ExchangeId, replayed: ExchangeId) -> Option<Answer> {
        let goal = match self.recorded.of(recorded) {
            Some(exchange) => {
                exchange.more = Counterpart(Some(replayed));
                exchange.stage.of_client()
            }
            // The packet identifier is in use again.
            None => Stage::Completed,
        };
        self.allow(replayed, goal)
    }

    /// Lets the client answer a message of the replay up to the end of its exchange.
    pub(crate) fn complete(&mut self, replayed: ExchangeId) -> Option<Answer> {
        self.allow(replayed, Stage::Completed)
    }

    /// Notes an acknowledgement of the recorded client. Returns the packet identifier with which the client sends the
    /// acknowledgement now, or `None` if the client sends nothing now.
    pub(crate) fn acknowledge(&mut self, connection: u64, said: Acknowledgement) -> Option<u16> {
        let Acknowledgement { packet_type, packet_id, is_refusal } = said;
        let then = self.recorded.exchanges.get_mut(&packet_id)?;
        let is_first_of_two = packet_type == PacketType::PubRec && !is_refusal;
        then.stage = if is_first_of_two { then.stage.max(Stage::Received) } else { Stage::Completed };
        let id = ExchangeId { packet_id, number: then.number };
        let (goal, partner, is_pooled) = (then.stage.of_client(), then.more.0, then.is_pooled);
        if goal == Stage::Completed {
            self.recorded.complete(id, self.is_lasting);
        }
        let partner = partner.filter(|_| !is_pooled)?;
        let now = self.replayed.of(partner)?;
        now.more.0 = now.more.0.max(goal);
        if now.connection != connection {
            // The server sends the message again, and the client then answers.
            return None;
        }
        let stage = match now.next_answer() {
            _ if is_refusal && now.stage == Stage::Published => Stage::Completed,
            Some((next, stage)) if next == packet_type => stage,
            // A recorded client may break the protocol, and the server then has to notice this.
            _ if (packet_type == PacketType::PubAck) != (now.qos == Qos::AtLeastOnce) => now.stage,
            _ => return None,
        };
        now.stage = stage;
        if stage == Stage::Completed {
            self.replayed.complete(partner, self.is_lasting);
        }
        Some(partner.packet_id)
    }

    /// Contents of messages of shared subscriptions that the recorded client has not acknowledged.
    pub(crate) fn pooled(&self) -> impl Iterator<Item = u64> {
        let is_open = |exchange: &&Exchange<_>| exchange.is_pooled && exchange.stage != Stage::Completed;
        self.recorded.exchanges.values().filter(is_open).map(|exchange| exchange.content)
    }

    fn allow(&mut self, replayed: ExchangeId, goal: Stage) -> Option<Answer> {
        let exchange = self.replayed.of(replayed)?;
        exchange.more.0 = exchange.more.0.max(goal);
        self.answer(replayed)
    }

    /// The next answer, if the server waits for one on the newest connection, and the goal allows the answer.
    fn answer(&mut self, replayed: ExchangeId) -> Option<Answer> {
        let newest = self.replayed.connection;
        let exchange = self.replayed.of(replayed).filter(|exchange| exchange.connection == newest)?;
        let (packet_type, stage) = exchange.next_answer()?;
        exchange.stage = stage;
        if stage == Stage::Completed {
            self.replayed.complete(replayed, self.is_lasting);
        }
        Some(Answer::new(newest, packet_type, replayed.packet_id))
    }
}

/// The exchanges of one side.
#[derive(Debug)]
struct Half<T> {
    /// The newest connection that the server has accepted.
    connection: u64,
    exchanges: HashMap<u16, Exchange<T>>,
    /// Completed exchanges of a lasting session, the oldest first.
    completed: VecDeque<ExchangeId>,
}

#[derive(Debug)]
struct Exchange<T> {
    number: u64,
    content: u64,
    qos: Qos,
    is_pooled: bool,
    /// The connection on which the server has sent its last packet.
    connection: u64,
    stage: Stage,
    more: T,
}

/// The last packet of the server before it sent another one.
#[derive(Debug, Clone, Copy)]
struct Earlier {
    connection: u64,
    stage: Stage,
}

impl<T> Half<T> {
    fn begin(&mut self, connection: u64, session_present: bool) {
        self.connection = connection;
        if !session_present {
            self.exchanges.clear();
            self.completed.clear();
        }
    }

    fn of(&mut self, id: ExchangeId) -> Option<&mut Exchange<T>> {
        self.exchanges.get_mut(&id.packet_id).filter(|exchange| exchange.number == id.number)
    }

    /// Whether the exchange of a packet on this connection has been resumed on a newer connection.
    fn has_moved(&self, connection: u64, packet_id: u16) -> bool {
        let exchange = self.exchanges.get(&packet_id);
        connection != self.connection
            && exchange.is_some_and(|exchange| exchange.connection == self.connection)
    }

    /// Notes a PUBLISH, with which an exchange begins or is resumed. `None` if the exchange has moved to a newer connection.
    fn publish(
        &mut self,
        sent: &Transmission,
        next: &mut u64,
        more: T,
    ) -> Option<(ExchangeId, Option<Earlier>)> {
        let Transmission { connection, packet_id, content, qos, is_pooled, .. } = *sent;
        if self.has_moved(connection, packet_id) {
            return None;
        }
        let known = self.exchanges.get_mut(&packet_id).filter(|exchange| exchange.is_resumed_by(sent));
        if let Some(exchange) = known {
            let earlier = exchange.go_on(connection, Stage::Published);
            return Some((ExchangeId { packet_id, number: exchange.number }, Some(earlier)));
        }
        let number = *next;
        *next += 1;
        let stage = Stage::Published;
        let exchange = Exchange { number, content, qos, is_pooled, connection, stage, more };
        self.exchanges.insert(packet_id, exchange);
        Some((ExchangeId { packet_id, number }, None))
    }

    /// Notes a PUBREL. `None` if the exchange is unknown, or has moved to a newer connection.
    fn release(&mut self, connection: u64, packet_id: u16) -> Option<(ExchangeId, Earlier)> {
        if self.has_moved(connection, packet_id) {
            return None;
        }
        let exchange = self.exchanges.get_mut(&packet_id)?;
        let earlier = exchange.go_on(connection, Stage::Released);
        Some((ExchangeId { packet_id, number: exchange.number }, earlier))
    }

    /// Forgets a completed exchange at once, or later if the session is lasting.
    fn complete(&mut self, id: ExchangeId, is_lasting: bool) {
        self.completed.push_back(id);
        let remembered = if is_lasting { COMPLETED_MAX } else { 0 };
        while self.completed.len() > remembered
            && let Some(oldest) = self.completed.pop_front()
        {
            if self.of(oldest).is_some_and(|exchange| exchange.stage == Stage::Completed) {
                self.exchanges.remove(&oldest.packet_id);
            }
        }
    }
}

impl<T> Default for Half<T> {
    fn default() -> Self {
        Self { connection: 0, exchanges: HashMap::new(), completed: VecDeque::new() }
    }
}

impl<T> Exchange<T> {
    /// Whether a PUBLISH repeats the one of this exchange, because the server has not read the answer.
    fn is_resumed_by(&self, sent: &Transmission) -> bool {
        let is_repeated = match self.stage {
            Stage::Published | Stage::Received => sent.dup || sent.connection != self.connection,
            Stage::Completed => sent.dup && sent.qos == Qos::AtLeastOnce,
            Stage::Released => false,
        };
        is_repeated && (sent.content, sent.qos) == (self.content, self.qos)
    }

    /// Notes another packet of the server.
    fn go_on(&mut self, connection: u64, stage: Stage) -> Earlier {
        let earlier = Earlier { connection: self.connection, stage: self.stage };
        (self.connection, self.stage) = (connection, stage);
        earlier
    }
}

impl Exchange<Goal> {
    /// The answer to the last packet of the server that the goal allows, and the stage after it.
    fn next_answer(&self) -> Option<(PacketType, Stage)> {
        let Goal(goal) = self.more;
        match (self.stage, self.qos) {
            (Stage::Published, Qos::AtLeastOnce) if goal == Stage::Completed => {
                Some((PacketType::PubAck, Stage::Completed))
            }
            (Stage::Published, Qos::ExactlyOnce) if goal >= Stage::Received => {
                Some((PacketType::PubRec, Stage::Received))
            }
            (Stage::Released, _) if goal == Stage::Completed => Some((PacketType::PubComp, Stage::Completed)),
            _ => None,
        }
    }
}
