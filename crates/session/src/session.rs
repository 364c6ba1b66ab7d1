//! The server's end of one connection.

use std::num::NonZeroU32;
use std::sync::Arc;

use wire::{
    Answer, ConnAck, ConnectRefusal, Disconnect, DisconnectReason, Limits, Packet, PingResp, PubComp, PubRec,
    PubRel, PubRelReason, Publish, PublishTopic, ReasonCode, Role, Subscribe, Unsubscribe, Version,
    Violation,
};

use crate::connect::Asked;
use crate::incoming::{Aliases, Incoming};
use crate::{Message, Now, Settings};

/// While a packet is under way, so many bytes a second count as a sign of life.
const TRICKLE_BYTES_PER_SEC: u64 = 1_024;

/// One session, the server's part.
///
/// ```text
///                CONNECT                 accept
/// AwaitingConnect ──────► Claiming ───────────────► Connected ──► dropped
///        └────────────────────┴── refused, closed ──────┘
/// ```
#[derive(Debug)]
pub struct Session {
    state: State,
    /// When a packet was last read, or the connection made.
    heard_ms: u64,
    /// Bytes of the packet that is under way, and how many of them had come when we last looked.
    partial_bytes: u32,
    counted_bytes: u32,
    version: Option<Version>,
    /// One and a half times this is the longest silence; 0 is none.
    keep_alive_secs: u16,
    /// The largest packet that the client takes.
    packet_bytes_max: Option<NonZeroU32>,
    /// CONNECT asked for a session that outlives its connection.
    has_expiry: bool,
    aliases: Option<Box<Aliases>>,
    will: Option<Box<Message>>,
}

#[derive(Debug)]
enum State {
    AwaitingConnect,
    Claiming(Box<Asked>),
    Connected,
}

/// What a packet asks of the world outside its session.
#[derive(Debug)]
pub enum Request<'p> {
    /// Nothing.
    None,
    /// To be let in, under the client identifier of the packet or, if that is empty, one that it is given.
    Connect(wire::Connect<'p>),
    /// To be routed.
    Publish(Incoming<'p>),
    /// Subscriptions; SUBACK when they are made.
    Subscribe(Subscribe<'p>),
    /// Subscriptions to be ended; UNSUBACK when they are.
    Unsubscribe(Unsubscribe<'p>),
    /// A packet in return.
    Answer(Packet<'static>),
    /// The end. Only with 0x00 the will is not published.
    Disconnect {
        /// As the client gave it; before MQTT 5 it is 0x00.
        reason: DisconnectReason,
    },
}

impl Session {
    /// A connection on which nothing has been read.
    #[must_use]
    pub fn new(now: Now) -> Self {
        Self {
            state: State::AwaitingConnect,
            heard_ms: now.monotonic_ms,
            partial_bytes: 0,
            counted_bytes: 0,
            version: None,
            keep_alive_secs: 0,
            packet_bytes_max: None,
            has_expiry: false,
            aliases: None,
            will: None,
        }
    }

    /// The version that CONNECT named.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Whether CONNECT was read and waits for an answer: nothing behind it may be processed before.
    #[must_use]
    pub fn is_claiming(&self) -> bool {
        matches!(self.state, State::Claiming(_))
    }

    /// Whether CONNACK has been sent with Success.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected)
    }

    /// What the client is held to, in seconds; 0 is nothing.
    #[must_use]
    pub fn keep_alive_secs(&self) -> u16 {
        self.keep_alive_secs
    }

    /// The largest packet that the client takes [MQTT-3.1.2-24].
    #[must_use]
    pub fn packet_bytes_max(&self) -> usize {
        self.packet_bytes_max.map_or(usize::MAX, |max| max.get() as usize)
    }

    /// What its packets must keep to.
    #[must_use]
    pub fn limits(&self, settings: &Settings) -> Limits {
        let max = match self.state {
            State::AwaitingConnect => settings.connect_packet_bytes_max,
            State::Claiming(_) | State::Connected => settings.packet_bytes_max,
        };
        Limits { max_packet_bytes: max as usize, sender: Some(Role::Client) }
    }

    /// Takes a packet that was decoded within [`limits`](Self::limits).
    ///
    /// # Errors
    /// A rule that was broken; [`answer`](Self::answer) tells the peer what can be told, and the connection ends.
    pub fn handle_packet<'p>(
        &mut self,
        packet: Packet<'p>,
        settings: &Settings,
        now: Now,
    ) -> Result<Request<'p>, Violation> {
        self.touch(now);
        match packet {
            Packet::Connect(connect) => {
                self.version = Some(connect.version());
                self.packet_bytes_max = connect.properties.maximum_packet_bytes;
                self.has_expiry =
                    connect.properties.session_expiry_interval_secs.is_some_and(|secs| secs > 0);
                let asked = Asked::new(&connect, settings)?;
                self.keep_alive_secs = asked.keep_alive_secs();
                self.state = State::Claiming(Box::new(asked));
                Ok(Request::Connect(connect))
            }
            Packet::Publish(publish) => self.publish(publish, settings).map(Request::Publish),
            Packet::Subscribe(subscribe) => Ok(Request::Subscribe(subscribe)),
            Packet::Unsubscribe(unsubscribe) => Ok(Request::Unsubscribe(unsubscribe)),
            Packet::PingReq(_) => Ok(Request::Answer(PingResp.into())),
            Packet::Disconnect(disconnect) => self.disconnected(&disconnect),
            // An exchange is begun by a method in CONNECT, and every method was refused there.
            Packet::Auth(_) => {
                Err(self.violation("MQTT-4.12.0-7", "AUTH without an authentication method in CONNECT"))
            }
            // No exchange of QoS 1 or 2 can be open. An identifier that is not in use may be what the peer
            // remembers of an exchange that we have finished: it is told, and nothing changes.
            Packet::PubRec(PubRec { reason, .. }) if reason.is_error() => Ok(Request::None),
            Packet::PubRec(PubRec { packet_id, .. }) => {
                Ok(Request::Answer(PubRel::new(packet_id, PubRelReason::PacketIdentifierNotFound).into()))
            }
            Packet::PubRel(PubRel { packet_id, .. }) => {
                Ok(Request::Answer(PubComp::new(packet_id, PubRelReason::PacketIdentifierNotFound).into()))
            }
            Packet::PubAck(_) | Packet::PubComp(_) => Ok(Request::None),
            Packet::ConnAck(_) | Packet::SubAck(_) | Packet::UnsubAck(_) | Packet::PingResp(_) => {
                Err(self.violation("MQTT-4.13.1-1", "a packet that only servers send"))
            }
        }
    }

    /// What CONNECT asked for, while it waits for its answer.
    pub(crate) fn asked(&self) -> Option<&Asked> {
        match &self.state {
            State::Claiming(asked) => Some(asked),
            State::AwaitingConnect | State::Connected => None,
        }
    }

    /// CONNECT was accepted, and the packet that says so is written.
    pub(crate) fn connected(&mut self) {
        self.state = State::Connected;
    }

    /// Leaves a message behind, to be published if the connection ends without DISCONNECT 0x00.
    pub fn set_will(&mut self, will: Option<Box<Message>>) {
        self.will = will;
    }

    /// The will, once, as it is published `now`.
    pub fn take_will(&mut self, now: Now) -> Option<Arc<Message>> {
        let mut will = self.will.take()?;
        will.restart_expiry(now);
        Some(Arc::from(will))
    }

    /// Writes what the peer is told of its violation, if its version has words for that and it takes a packet of
    /// that size.
    pub fn answer(&self, violation: &Violation, into: &mut Vec<u8>) {
        // What cannot be said in the version is not said: the connection is closed in any case.
        match violation.answer {
            Answer::Nothing => {}
            Answer::ConnAck(version, refusal) => {
                let _ = ConnAck::refused(refusal).encode(version, into);
            }
            Answer::Disconnect(reason) if self.is_connected() => {
                let _ = Disconnect::new(reason).encode(Version::V5, into);
            }
            // [MQTT-3.14.0-1]
            Answer::Disconnect(_) => {}
        }
        if into.len() > self.packet_bytes_max() {
            into.clear();
        }
    }

    /// The packet that tells the peer why the server ends the connection, if its version has one.
    #[must_use]
    pub fn disconnect(&self, reason: DisconnectReason) -> Option<Packet<'static>> {
        match (&self.state, self.version) {
            (State::Connected, Some(Version::V5)) => Some(Disconnect::new(reason).into()),
            (State::Claiming(_), Some(version)) => {
                let refusal =
                    ConnectRefusal::try_from(reason.reason()).unwrap_or(ConnectRefusal::ServerUnavailable);
                (version.is_5() || refusal.return_code().is_some()).then(|| ConnAck::refused(refusal).into())
            }
            _ => None,
        }
    }

    /// The peer is to be taken as heard from: it was not its fault that nothing was read.
    pub fn touch(&mut self, now: Now) {
        self.heard_ms = now.monotonic_ms;
        self.partial_bytes = 0;
        self.counted_bytes = 0;
    }

    /// So many bytes of a packet have come that is not complete.
    pub fn note_partial(&mut self, bytes: usize) {
        self.partial_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called, in monotonic milliseconds.
    #[must_use]
    pub fn poll_timeout(&self, settings: &Settings) -> Option<u64> {
        match self.state {
            State::AwaitingConnect => Some(self.heard_ms + settings.connect_timeout_ms),
            State::Claiming(_) => None,
            State::Connected => self.silence_ms().map(|silence| self.heard_ms + silence),
        }
    }

    /// Looks whether the peer has been silent for too long [MQTT-3.1.2-22].
    ///
    /// # Errors
    /// It has.
    pub fn handle_timeout(&mut self, settings: &Settings, now: Now) -> Result<(), Violation> {
        let Some(due) = self.poll_timeout(settings).filter(|due| *due <= now.monotonic_ms) else {
            return Ok(());
        };
        if matches!(self.state, State::AwaitingConnect) {
            return Err(Violation {
                reason: ReasonCode::UnspecifiedError,
                statement: "MQTT-3.1.0-1",
                text: "no CONNECT in time",
                answer: Answer::Nothing,
            });
        }
        // A large packet on a slow line is life; one byte a second is not.
        let came = u64::from(self.partial_bytes - self.counted_bytes.min(self.partial_bytes));
        if came * 1_000 >= TRICKLE_BYTES_PER_SEC * (due - self.heard_ms) {
            self.counted_bytes = self.partial_bytes;
            self.heard_ms = now.monotonic_ms;
            return Ok(());
        }
        Err(Violation::after_connect(
            self.version.unwrap_or(Version::V3_1_1),
            ReasonCode::KeepAliveTimeout,
            ["MQTT-3.1.2-22", "MQTT-3.1.2-24"],
            "nothing came for one and a half times the keep alive",
        ))
    }

    fn silence_ms(&self) -> Option<u64> {
        (self.keep_alive_secs > 0).then(|| u64::from(self.keep_alive_secs) * 1_500)
    }

    fn publish<'p>(&mut self, packet: Publish<'p>, settings: &Settings) -> Result<Incoming<'p>, Violation> {
        let version = self.version.unwrap_or(Version::V3_1_1);
        if packet.delivery.qos() > settings.qos_max {
            return Err(Violation::after_connect(
                version,
                ReasonCode::QosNotSupported,
                ["MQTT-3.2.2-11", "MQTT-4.8.0-2"],
                "a QoS that is not served",
            ));
        }
        match packet.topic {
            PublishTopic::Name(name) => Ok(Incoming::new(packet, version, name)),
            _ => self.aliases.get_or_insert_default().resolve(packet, version, settings.topic_alias_max),
        }
    }

    fn disconnected<'p>(&self, disconnect: &Disconnect<'_>) -> Result<Request<'p>, Violation> {
        // What CONNECT asked for decides, not what it got.
        let asks_for_more = disconnect.properties.session_expiry_interval_secs.is_some_and(|secs| secs > 0);
        if asks_for_more && !self.has_expiry {
            return Err(
                self.violation("MQTT-3.14.2-1", "a session expiry in DISCONNECT after none in CONNECT")
            );
        }
        Ok(Request::Disconnect { reason: disconnect.reason })
    }

    fn violation(&self, statement_5: &'static str, text: &'static str) -> Violation {
        let version = self.version.unwrap_or(Version::V3_1_1);
        Violation::after_connect(version, ReasonCode::ProtocolError, [statement_5, "MQTT-4.8.0-1"], text)
    }
}
