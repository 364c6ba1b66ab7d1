//! The server's end of one connection.

use std::num::{NonZeroU16, NonZeroU32};

use wire::{
    Answer, Auth, ConnAck, ConnectRefusal, Disconnect, DisconnectReason, Limits, Packet, PacketId, PingResp,
    PubAck, PubComp, PubRec, PubRel, PubRelReason, Publish, PublishTopic, ReasonCode, Role, Subscribe,
    TopicName, Unsubscribe, UserProperties, Utf8, Version, Violation,
};

use crate::alias::{IncomingAliases, OutgoingAliases};
use crate::authentication::{Authentication, AuthenticationStep};
use crate::connect::Asked;
use crate::fit::Receiver;
use crate::inbound::{Arrival, Inbound, Release};
use crate::incoming::{Incoming, Resolved};
use crate::outbound::Acknowledged;
use crate::sending::Sending;
use crate::{Now, Settings, Ticket};

/// While a packet is under way, so many bytes a second count as a sign of life.
const TRICKLE_BYTES_PER_SEC: u64 = 1_024;
/// An answer is held back for so long at most: a publisher is slowed down, never stopped.
const HOLD_MS_MAX: u64 = 1_000;

/// One session, the server's part.
///
/// ```text
///                CONNECT                 accept              DISCONNECT
/// AwaitingConnect ──────► Claiming ───────────────► Connected ────────► Closed
///       │                     ▲
///       └──► Authenticating ──┘
///            AUTH, as often as the method needs
/// ```
///
/// From every state a violation leads out: the connection ends, and the session is dropped.
///
/// `T` is what comes with messages that wait ([`Waiting`](crate::Waiting)).
#[derive(Debug)]
pub struct Session<T = u64> {
    state: State,
    /// When a packet was last read, or the connection made.
    heard_ms: u64,
    /// Bytes of the packet that is under way, and how many of them had come when we last looked.
    partial_bytes: u32,
    counted_bytes: u32,
    pub(crate) version: Option<Version>,
    /// One and a half times this is the longest silence; 0 is none.
    pub(crate) keep_alive_secs: u16,
    /// The largest packet that the client takes.
    pub(crate) packet_bytes_max: Option<NonZeroU32>,
    pub(crate) clean_start: bool,
    /// As CONNECT asked for.
    pub(crate) expiry_secs: u32,
    pub(crate) receive_max: Option<NonZeroU16>,
    /// Aliases that the client takes, and that we use.
    pub(crate) alias_out_max: u16,
    pub(crate) takes_problem_information: bool,
    /// So many messages of QoS 1 and 2 may be under way to the client.
    pub(crate) window: u16,
    // What most sessions do not have is behind a pointer.
    pub(crate) authentication: Option<Box<Authentication>>,
    incoming_aliases: Option<Box<IncomingAliases>>,
    outgoing_aliases: Option<Box<OutgoingAliases>>,
    inbound: Option<Box<Inbound>>,
    pub(crate) sending: Option<Box<Sending<T>>>,
}

#[derive(Debug)]
enum State {
    AwaitingConnect,
    Authenticating(Asked),
    Claiming(Asked),
    Connected,
    Closed,
}

/// What a packet asks of the world outside its session.
#[derive(Debug)]
pub enum Request<'p> {
    /// Nothing.
    None,
    /// To be judged by an authenticator; [`Session::authenticated`] takes the answer. Only with
    /// [`Settings::authentication_methods`].
    Authenticate(AuthenticationStep<'p>),
    /// To be let in, under the client identifier of the packet or, if that is empty, one that it is given.
    Connect(wire::Connect<'p>),
    /// To be routed. [`Incoming::ticket`] is to be completed when what it promises is true.
    Publish(Incoming<'p>),
    /// Subscriptions; SUBACK when they are made.
    Subscribe(Subscribe<'p>),
    /// Subscriptions to be ended; UNSUBACK when they are.
    Unsubscribe(Unsubscribe<'p>),
    /// A packet in return.
    Answer(Packet<'static>),
    /// An exchange of a message that was sent with QoS 1 or 2 is over, and its place is free.
    Acknowledged {
        /// The identifier of the PUBLISH.
        packet_id: PacketId,
        /// From 0x80 on the client has refused it.
        reason: ReasonCode,
    },
    /// A message that was sent with QoS 2 has arrived: [`Ticket::PubRel`] when that is noted.
    Received {
        /// The identifier of the PUBLISH.
        packet_id: PacketId,
    },
    /// A message that was received with QoS 2 will not be sent again: [`Ticket::PubComp`] when that is noted.
    Released {
        /// The identifier of the PUBLISH.
        packet_id: PacketId,
    },
    /// The end. Only with 0x00 the will is not published.
    Disconnect {
        /// As the client gave it; before MQTT 5 it is 0x00.
        reason: DisconnectReason,
        /// The session is kept for so long, if the client has changed its mind about it; not more than
        /// [`Settings::session_expiry_secs_max`].
        session_expiry_interval_secs: Option<u32>,
    },
}

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
            clean_start: true,
            expiry_secs: 0,
            receive_max: None,
            alias_out_max: 0,
            takes_problem_information: true,
            window: 1,
            authentication: None,
            incoming_aliases: None,
            outgoing_aliases: None,
            inbound: None,
            sending: None,
        }
    }

    /// The version that CONNECT named.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.version
    }

    /// Whether CONNECT was read and waits for an answer from outside: nothing behind it may be processed before.
    #[must_use]
    pub fn is_claiming(&self) -> bool {
        let is_judging = || self.authentication.as_deref().is_some_and(Authentication::is_judging);
        matches!(self.state, State::Claiming(_))
            || matches!(self.state, State::Authenticating(_)) && is_judging()
    }

    /// Whether CONNACK has been sent with Success, and no DISCONNECT has come.
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
            State::AwaitingConnect | State::Authenticating(_) => settings.connect_packet_bytes_max,
            State::Claiming(_) | State::Connected | State::Closed => settings.packet_bytes_max,
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
        match self.state {
            State::Connected => self.handle_connected(packet, settings),
            State::AwaitingConnect => match packet {
                Packet::Connect(connect) => self.handle_connect(connect, settings),
                _ => Err(self.violation("MQTT-3.1.0-1", "the first packet is a CONNECT")),
            },
            State::Authenticating(_) => match packet {
                Packet::Auth(auth) => self.handle_auth(&auth, settings),
                Packet::Disconnect(disconnect) => self.handle_disconnect(&disconnect, settings),
                _ => Err(self.violation("MQTT-3.1.2-30", "a packet other than AUTH before CONNACK")),
            },
            // [MQTT-3.1.4-6]; what follows DISCONNECT is not read either.
            State::Claiming(_) | State::Closed => {
                Err(self.violation("MQTT-3.1.4-6", "a packet that is not to be processed"))
            }
        }
    }

    fn handle_connect<'p>(
        &mut self,
        connect: wire::Connect<'p>,
        settings: &Settings,
    ) -> Result<Request<'p>, Violation> {
        let asked = self.ask(&connect, settings)?;
        self.authentication = Authentication::of(&connect);
        let Some(method) = connect.properties.authentication_method else {
            self.state = State::Claiming(asked);
            return Ok(Request::Connect(connect));
        };
        self.state = State::Authenticating(asked);
        let data = connect.properties.authentication_data;
        Ok(Request::Authenticate(AuthenticationStep { connect: Some(connect), method, data }))
    }

    fn handle_connected<'p>(
        &mut self,
        packet: Packet<'p>,
        settings: &Settings,
    ) -> Result<Request<'p>, Violation> {
        match packet {
            Packet::Publish(publish) => self.handle_publish(publish, settings),
            Packet::PubAck(PubAck { packet_id, reason, .. }) => {
                let acknowledged = self.sending.as_mut().map(|sending| sending.outbound.puback(packet_id));
                self.acknowledged(acknowledged, packet_id, reason.into())
            }
            Packet::PubRec(PubRec { packet_id, reason, .. }) => {
                let is_error = reason.is_error();
                let sending = self.sending.as_mut();
                let acknowledged = sending.map(|sending| sending.outbound.pubrec(packet_id, is_error));
                self.handle_pubrec(acknowledged, packet_id, reason.into())
            }
            Packet::PubComp(PubComp { packet_id, reason, .. }) => {
                let acknowledged = self.sending.as_mut().map(|sending| sending.outbound.pubcomp(packet_id));
                self.acknowledged(acknowledged, packet_id, reason.into())
            }
            Packet::PubRel(PubRel { packet_id, .. }) => self.handle_pubrel(packet_id),
            Packet::Subscribe(subscribe) => Ok(Request::Subscribe(subscribe)),
            Packet::Unsubscribe(unsubscribe) => Ok(Request::Unsubscribe(unsubscribe)),
            Packet::PingReq(_) => Ok(Request::Answer(PingResp.into())),
            Packet::Disconnect(disconnect) => self.handle_disconnect(&disconnect, settings),
            Packet::Auth(auth) => self.handle_auth(&auth, settings),
            Packet::Connect(_) => Err(self.violation("MQTT-3.1.0-2", "a second CONNECT")),
            Packet::ConnAck(_) | Packet::SubAck(_) | Packet::UnsubAck(_) | Packet::PingResp(_) => {
                Err(self.violation("MQTT-4.13.1-1", "a packet that only servers send"))
            }
        }
    }

    fn handle_publish<'p>(
        &mut self,
        packet: Publish<'p>,
        settings: &Settings,
    ) -> Result<Request<'p>, Violation> {
        let version = self.version();
        let version = version.unwrap_or(Version::V3_1_1);
        let not_served = |reason, statement, text| {
            Err(Violation::after_connect(version, reason, [statement, "MQTT-4.8.0-1"], text))
        };
        if packet.delivery.qos() > settings.qos_max {
            return not_served(ReasonCode::QosNotSupported, "MQTT-3.2.2-11", "a QoS that is not served");
        }
        if packet.retain && !settings.retain_available {
            let text = "a message to be retained, where nothing is";
            return not_served(ReasonCode::RetainNotSupported, "MQTT-3.2.2-14", text);
        }
        let incoming = match packet.topic {
            PublishTopic::Name(name) => Incoming::new(packet, version, Resolved::Own(name)),
            _ => self.incoming_aliases.get_or_insert_default().resolve(
                packet,
                version,
                settings.topic_alias_max,
                Role::Client,
            )?,
        };
        if packet.delivery.packet_id().is_none() {
            return Ok(Request::Publish(incoming));
        }
        let receive_max = version.is_5().then_some(settings.receive_max);
        let inbound = self.inbound.get_or_insert_default();
        match inbound.publish(packet.delivery, version, receive_max) {
            None | Some(Arrival::New(_)) => Ok(Request::Publish(incoming)),
            Some(Arrival::Repeated | Arrival::Refused) => Ok(inbound.answer()),
            Some(Arrival::TooMany) => {
                let text = "more messages than Receive Maximum allows";
                not_served(ReasonCode::ReceiveMaximumExceeded, "MQTT-3.3.4-7", text)
            }
            Some(Arrival::InUse) => {
                let text = "the packet identifier of an exchange that is not over";
                Err(self.violation("MQTT-2.2.1-3", text))
            }
        }
    }

    fn handle_pubrel<'p>(&mut self, packet_id: PacketId) -> Result<Request<'p>, Violation> {
        match self.inbound.as_mut().map_or(Release::Unknown, |inbound| inbound.release(packet_id)) {
            Release::New => Ok(Request::Released { packet_id }),
            Release::Repeated => Ok(Request::None),
            // What the peer remembers of an exchange that we have finished: it is told, and nothing changes.
            Release::Unknown => {
                Ok(Request::Answer(PubComp::new(packet_id, PubRelReason::PacketIdentifierNotFound).into()))
            }
            Release::TooEarly => Err(self.violation("MQTT-4.3.3-4", "PUBREL before PUBREC")),
        }
    }

    fn handle_pubrec<'p>(
        &mut self,
        acknowledged: Option<Acknowledged<()>>,
        packet_id: PacketId,
        reason: ReasonCode,
    ) -> Result<Request<'p>, Violation> {
        match acknowledged {
            Some(Acknowledged::Received) => Ok(Request::Received { packet_id }),
            Some(Acknowledged::Again) => {
                Ok(Request::Answer(PubRel::new(packet_id, PubRelReason::Success).into()))
            }
            None | Some(Acknowledged::Unknown) if !reason.is_error() => {
                Ok(Request::Answer(PubRel::new(packet_id, PubRelReason::PacketIdentifierNotFound).into()))
            }
            other => self.acknowledged(other, packet_id, reason),
        }
    }

    fn acknowledged<'p>(
        &self,
        acknowledged: Option<Acknowledged<()>>,
        packet_id: PacketId,
        reason: ReasonCode,
    ) -> Result<Request<'p>, Violation> {
        match acknowledged {
            Some(Acknowledged::Over(())) => Ok(Request::Acknowledged { packet_id, reason }),
            Some(Acknowledged::Misplaced) => {
                Err(self.violation("MQTT-4.13.1-1", "an acknowledgement that the message does not have now"))
            }
            _ => Ok(Request::None),
        }
    }

    fn handle_auth<'p>(&mut self, auth: &Auth<'p>, settings: &Settings) -> Result<Request<'p>, Violation> {
        let is_connected = self.is_connected();
        let Some(authentication) = &mut self.authentication else {
            return Err(self.violation("MQTT-4.12.0-7", "AUTH without an authentication method in CONNECT"));
        };
        authentication.step(auth, is_connected, settings).map(Request::Authenticate)
    }

    fn handle_disconnect<'p>(
        &mut self,
        disconnect: &Disconnect<'_>,
        settings: &Settings,
    ) -> Result<Request<'p>, Violation> {
        let secs = disconnect.properties.session_expiry_interval_secs;
        // What CONNECT asked for decides, not what it got.
        if secs.is_some_and(|secs| secs > 0) && self.expiry_secs == 0 {
            return Err(
                self.violation("MQTT-3.14.2-1", "a session expiry in DISCONNECT after none in CONNECT")
            );
        }
        self.state = State::Closed;
        Ok(Request::Disconnect {
            reason: disconnect.reason,
            session_expiry_interval_secs: secs.map(|secs| secs.min(settings.session_expiry_secs_max)),
        })
    }

    /// What CONNECT asked for, while it waits for its answer.
    pub(crate) fn asked(&self) -> Option<Asked> {
        match self.state {
            State::Claiming(asked) => Some(asked),
            State::AwaitingConnect | State::Authenticating(_) | State::Connected | State::Closed => None,
        }
    }

    /// The client has shown who it is.
    pub(crate) fn claims(&mut self) {
        if let State::Authenticating(asked) = self.state {
            self.state = State::Claiming(asked);
        }
    }

    /// CONNECT was accepted, and the packet that says so is written.
    pub(crate) fn connected(&mut self, window: u16, unreleased: &[PacketId]) {
        self.state = State::Connected;
        self.window = window;
        if !unreleased.is_empty() {
            self.inbound.get_or_insert_default().resume(unreleased);
        }
    }

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
                    && inbound.complete(ticket, reason)
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

    /// Whether the client takes topic aliases, and we use them.
    #[must_use]
    pub fn uses_aliases(&self) -> bool {
        self.alias_out_max > 0
    }

    /// How a PUBLISH to this topic names it: with an alias, if the topic comes often enough for that to repay. The
    /// packet must then be written, or [`unsent_topic`](Self::unsent_topic) told.
    pub fn outgoing_topic<'t>(&mut self, topic: TopicName<'t>) -> PublishTopic<'t> {
        if self.alias_out_max == 0 {
            return PublishTopic::Name(topic);
        }
        let alias_max = self.alias_out_max;
        let aliases = self.outgoing_aliases.get_or_insert_with(|| Box::new(OutgoingAliases::new(alias_max)));
        aliases.outgoing(topic)
    }

    /// A packet for which [`outgoing_topic`](Self::outgoing_topic) was asked is not written after all.
    pub fn unsent_topic(&mut self, topic: PublishTopic<'_>) {
        if let Some(aliases) = &mut self.outgoing_aliases {
            aliases.unsent(topic);
        }
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

    /// The peer is to be taken as heard from: it was not its fault that nothing was read. Until it is connected, that
    /// does not give it more time.
    pub fn touch(&mut self, now: Now) {
        self.partial_bytes = 0;
        self.counted_bytes = 0;
        if self.is_connected() {
            self.heard_ms = now.monotonic_ms;
        }
    }

    /// So many bytes of a packet have come that is not complete.
    pub fn note_partial(&mut self, bytes: usize) {
        self.partial_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called, in monotonic milliseconds.
    #[must_use]
    pub fn poll_timeout(&self, settings: &Settings) -> Option<u64> {
        let held = self.inbound.as_ref().and_then(|inbound| inbound.held_until_ms());
        self.silence_timeout(settings).into_iter().chain(held).min()
    }

    /// Sends answers that were held back for long enough, and looks whether the peer has been silent for too long
    /// [MQTT-3.1.2-22].
    ///
    /// # Errors
    /// It has.
    pub fn handle_timeout(
        &mut self,
        settings: &Settings,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        let held = self.inbound.as_ref().and_then(|inbound| inbound.held_until_ms());
        if held.is_some_and(|until| until <= now.monotonic_ms) {
            self.release_answers(into);
        }
        let Some(due) = self.silence_timeout(settings).filter(|due| *due <= now.monotonic_ms) else {
            return Ok(());
        };
        if !self.is_connected() {
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

    fn silence_timeout(&self, settings: &Settings) -> Option<u64> {
        match self.state {
            State::AwaitingConnect | State::Authenticating(_) => {
                Some(self.heard_ms + settings.connect_timeout_ms)
            }
            State::Claiming(_) | State::Closed => None,
            State::Connected if self.keep_alive_secs == 0 => None,
            State::Connected => Some(self.heard_ms + u64::from(self.keep_alive_secs) * 1_500),
        }
    }

    fn violation(&self, statement_5: &'static str, text: &'static str) -> Violation {
        let version = self.version.unwrap_or(Version::V3_1_1);
        Violation::after_connect(version, ReasonCode::ProtocolError, [statement_5, "MQTT-4.8.0-1"], text)
    }
}
