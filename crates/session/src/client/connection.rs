//! One connection of a client: its beginning, the limits of the server, keep alive, and its end.

use std::collections::VecDeque;
use std::num::{NonZeroU16, NonZeroU32};

use base::Now;
use wire::{
    Answer, ConnAck, ConnAckProperties, Connect, Connected, Disconnect, DisconnectProperties,
    DisconnectReason, Limits, MaximumQos, PacketId, PingReq, Qos, ReasonCode, Role, Utf8, Version, Violation,
};

use super::authentication::Exchange;
use super::request::Kind;
use super::{Client, ConnectError, DisconnectError, Event, TimedOut, violation};
use crate::Details;
use crate::alias::{IncomingAliases, OutgoingAliases};
use crate::fit::Receiver;
use crate::ids::PacketIdMap;
use crate::outbound::INFLIGHT_MAX;

/// State of one connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) version: Version,
    /// CONNACK has accepted the connection.
    pub(super) is_connected: bool,
    /// Session Expiry Interval of CONNECT, in seconds. Before MQTT 5: 0, or the maximum for a lasting session.
    asked_expiry_secs: u32,
    /// Time for which the session outlives the connection, in seconds.
    expiry_secs: u32,
    keep_alive_secs: u16,
    /// Times of the last sent and the last received packet.
    sent_ms: u64,
    heard_ms: u64,
    /// Time of a PINGREQ without an answer.
    pinged_ms: Option<u64>,
    pub(super) ours: Ours,
    pub(super) server: Server,
    pub(super) incoming_aliases: IncomingAliases,
    pub(super) outgoing_aliases: OutgoingAliases,
    pub(super) exchange: Exchange,
    /// SUBSCRIBE and UNSUBSCRIBE without an answer, with their numbers of filters.
    pub(super) requests: PacketIdMap<(Kind, usize)>,
    /// Messages in flight on an earlier connection that are still to be sent again.
    pub(super) again: VecDeque<PacketId>,
}

/// Limits that CONNECT has announced to the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ours {
    pub(super) packet_bytes_max: Option<NonZeroU32>,
    /// `None` if the version has no Receive Maximum.
    pub(super) receive_max: Option<u16>,
    pub(super) topic_alias_max: u16,
}

/// Limits and features of the server.
#[derive(Debug, Clone, Copy)]
pub(super) struct Server {
    pub(super) packet_bytes_max: usize,
    pub(super) window: u16,
    pub(super) qos_max: Qos,
    pub(super) retain_available: bool,
    pub(super) wildcard_subscriptions_available: bool,
    pub(super) subscription_identifiers_available: bool,
    pub(super) shared_subscriptions_available: bool,
}

impl<T> Client<T> {
    /// Begins a connection: writes CONNECT.
    ///
    /// The client keeps to the values that CONNECT announces: Receive Maximum, Maximum Packet Size, Topic Alias
    /// Maximum, Keep Alive. Clean Start (Clean Session before MQTT 5) ends the earlier session. Without Clean Start, an
    /// empty client identifier stands for the one that the server has assigned.
    ///
    /// # Errors
    /// [`ConnectError`]; then nothing has changed.
    pub fn connect(
        &mut self,
        connect: &Connect<'_>,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<(), ConnectError> {
        if self.link.is_some() {
            return Err(ConnectError::Connected);
        }
        let own_id = self.client_id.clone();
        let mut connect = *connect;
        if connect.client_id.is_empty() && !connect.clean_start {
            connect.client_id = Utf8::new(&own_id).unwrap_or_default();
        }
        let needs_id = match connect.version() {
            Version::V3_1 => true,
            Version::V3_1_1 => !connect.clean_start,
            Version::V5 => false,
        };
        if needs_id && connect.client_id.is_empty() {
            return Err(ConnectError::NoClientId);
        }
        if self.has_session && !connect.clean_start && *connect.client_id.as_str() != *own_id {
            return Err(ConnectError::OtherClient);
        }
        connect.encode(connect.version(), into).map_err(ConnectError::Packet)?;
        if connect.clean_start {
            self.discard_session();
        }
        self.client_id = connect.client_id.as_str().into();
        // The first number is 1: a restored message was not sent on any connection of this program.
        self.connections = self.connections.wrapping_add(1).max(1);
        self.link = Some(Box::new(Link::new(&connect, now)));
        Ok(())
    }

    /// Limits of the server's packets.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let ours = self.link.as_ref().and_then(|link| link.ours.packet_bytes_max);
        let max_packet_bytes = ours.map_or(Limits::default().max_packet_bytes, |max| max.get() as usize);
        Limits { max_packet_bytes, sender: Some(Role::Server) }
    }

    /// Version of the connection; `None` without a connection.
    #[must_use]
    pub fn version(&self) -> Option<Version> {
        self.link.as_ref().map(|link| link.version)
    }

    pub(super) fn handle_connack<'p>(
        &mut self,
        packet: ConnAck<'p>,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<Event<'p, T>, Violation> {
        let Some(link) = &mut self.link else { return Ok(Event::None) };
        if link.is_connected {
            let statements = ["MQTT-3.2.0-2", "MQTT-4.8.0-1"];
            return Err(violation(link, ReasonCode::ProtocolError, statements, "a second CONNACK"));
        }
        let properties = packet.properties;
        let session_present = match packet.outcome {
            Connected::Refused(reason) => {
                self.end_link();
                return Ok(Event::Refused { reason, properties });
            }
            // CONNACK of MQTT 3.1 does not say whether there is a session. It is assumed to be as requested.
            Connected::Accepted { .. } if link.version == Version::V3_1 => self.has_session,
            Connected::Accepted { session_present } => session_present,
        };
        link.check_method(&properties)?;
        if session_present && !self.has_session {
            let statements = ["MQTT-3.2.2-4", "MQTT-3.2.2-3"];
            let text = "Session Present, of a session that we do not have";
            return Err(violation(link, ReasonCode::ProtocolError, statements, text));
        }
        link.accepted(&properties, &self.settings, now);
        if let Some(assigned) = properties.assigned_client_identifier {
            self.client_id = assigned.as_str().into();
        }
        if !session_present {
            // [MQTT-3.2.2-5]
            self.discard_session();
        }
        self.has_session = true;
        self.resume(now, into);
        Ok(Event::Connected { session_present, properties })
    }

    /// Ends the connection: writes DISCONNECT. Nothing is sent afterwards, and the caller closes the stream.
    ///
    /// With 0x00 the server discards the will. `session_expiry_interval_secs` changes the lifetime of the session, and
    /// needs MQTT 5.
    ///
    /// # Errors
    /// [`DisconnectError`]; then the connection has not ended.
    pub fn disconnect(
        &mut self,
        reason: DisconnectReason,
        session_expiry_interval_secs: Option<u32>,
        details: &Details<'_>,
        into: &mut Vec<u8>,
    ) -> Result<(), DisconnectError> {
        let Some(link) = &mut self.link else { return Err(DisconnectError::NotConnected) };
        if session_expiry_interval_secs.is_some_and(|secs| secs > 0) && link.asked_expiry_secs == 0 {
            return Err(DisconnectError::NoSession);
        }
        let properties = DisconnectProperties {
            session_expiry_interval_secs,
            reason_string: details.reason_string,
            user_properties: details.user_properties,
            ..DisconnectProperties::EMPTY
        };
        let packet = Disconnect { reason, properties };
        packet.encoded_len(link.version).map_err(DisconnectError::Packet)?;
        link.receiver().write(&packet.into(), into);
        link.expiry_secs = session_expiry_interval_secs.unwrap_or(link.expiry_secs);
        self.end_link();
        Ok(())
    }

    /// Reports a fault to the server, if the version has a packet for that, and ends the connection. The caller closes
    /// the stream.
    pub fn answer(&mut self, violation: &Violation, into: &mut Vec<u8>) {
        if let Some(link) = &self.link
            && link.is_connected
            && let Answer::Disconnect(reason) = violation.answer
        {
            link.receiver().write(&Disconnect::new(reason).into(), into);
        }
        self.end_link();
    }

    /// Reports the loss of the connection. A lasting session continues with the next connection.
    pub fn connection_lost(&mut self) {
        self.end_link();
    }

    /// Time at which [`handle_timeout`](Self::handle_timeout) is to be called, in monotonic milliseconds.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        let link = self.link.as_ref()?;
        if !link.is_connected {
            return Some(link.sent_ms + self.settings.connect_timeout_ms);
        }
        let answer_due = link.pinged_ms.map(|pinged| pinged + self.settings.ping_timeout_ms);
        answer_due.into_iter().chain(link.ping_due_ms()).min()
    }

    /// Writes PINGREQ if nothing was sent for three quarters of Keep Alive. The last quarter is for the way to the
    /// server.
    ///
    /// # Errors
    /// [`TimedOut`]: the server has not answered in time, and the caller closes the stream.
    pub fn handle_timeout(&mut self, now: Now, into: &mut Vec<u8>) -> Result<(), TimedOut> {
        if self.poll_timeout().is_none_or(|due| due > now.monotonic_ms) {
            return Ok(());
        }
        let Some(link) = &mut self.link else { return Ok(()) };
        if !link.is_connected {
            return Err(TimedOut::Connect);
        }
        let timeout_ms = self.settings.ping_timeout_ms;
        if link.pinged_ms.is_some_and(|pinged| pinged + timeout_ms <= now.monotonic_ms) {
            return Err(TimedOut::Ping);
        }
        if link.ping_due_ms().is_some_and(|due| due <= now.monotonic_ms) {
            link.receiver().write(&PingReq.into(), into);
            link.pinged_ms.get_or_insert(now.monotonic_ms);
            link.note_sent(true, now);
        }
        Ok(())
    }

    /// Ends the connection, and a session that was not to outlive it.
    pub(super) fn end_link(&mut self) {
        let Some(link) = self.link.take() else { return };
        self.inbound.suspend();
        if link.is_connected && link.expiry_secs == 0 {
            self.discard_session();
        }
    }
}

impl Link {
    fn new(connect: &Connect<'_>, now: Now) -> Self {
        let is_5 = connect.version().is_5();
        let properties = &connect.properties;
        let asked_expiry_secs = match (is_5, connect.clean_start) {
            (true, _) => properties.session_expiry_interval_secs.unwrap_or(0),
            (false, true) => 0,
            (false, false) => u32::MAX,
        };
        let receive_max = properties.receive_maximum.map_or(u16::MAX, NonZeroU16::get);
        Self {
            version: connect.version(),
            is_connected: false,
            asked_expiry_secs,
            expiry_secs: asked_expiry_secs,
            keep_alive_secs: connect.keep_alive_secs,
            sent_ms: now.monotonic_ms,
            heard_ms: now.monotonic_ms,
            pinged_ms: None,
            ours: Ours {
                packet_bytes_max: properties.maximum_packet_bytes.filter(|_| is_5),
                receive_max: is_5.then_some(receive_max),
                topic_alias_max: properties.topic_alias_maximum.unwrap_or(0),
            },
            server: Server::of(&ConnAckProperties::EMPTY, 1),
            incoming_aliases: IncomingAliases::default(),
            outgoing_aliases: OutgoingAliases::new(0),
            exchange: Exchange::of(connect),
            requests: PacketIdMap::default(),
            again: VecDeque::new(),
        }
    }

    /// Applies CONNACK, with the limits and features of the server.
    fn accepted(&mut self, properties: &ConnAckProperties<'_>, settings: &super::Settings, now: Now) {
        self.is_connected = true;
        self.exchange.end();
        self.expiry_secs = properties.session_expiry_interval_secs.unwrap_or(self.expiry_secs);
        // [MQTT-3.1.2-21]
        self.keep_alive_secs = properties.server_keep_alive_secs.unwrap_or(self.keep_alive_secs);
        self.server = Server::of(properties, settings.inflight_max);
        let alias_max = properties.topic_alias_maximum.unwrap_or(0);
        self.outgoing_aliases = OutgoingAliases::new(alias_max.min(settings.topic_alias_out_max));
        self.heard_ms = now.monotonic_ms;
    }

    /// The server as a receiver of packets.
    pub(super) fn receiver(&self) -> Receiver {
        let packet_bytes_max = self.server.packet_bytes_max;
        Receiver { version: self.version, packet_bytes_max, takes_problem_information: true }
    }

    pub(super) fn note_sent(&mut self, is_sent: bool, now: Now) {
        if is_sent {
            self.sent_ms = now.monotonic_ms;
        }
    }

    pub(super) fn note_heard(&mut self, now: Now) {
        self.heard_ms = now.monotonic_ms;
        self.pinged_ms = None;
    }

    /// Time of the next PINGREQ, unless another packet is sent before [MQTT-3.1.2-20].
    fn ping_due_ms(&self) -> Option<u64> {
        (self.keep_alive_secs > 0).then(|| self.sent_ms + u64::from(self.keep_alive_secs) * 750)
    }
}

impl Server {
    fn of(properties: &ConnAckProperties<'_>, inflight_max: u16) -> Self {
        let max = properties.maximum_packet_bytes;
        let window = properties.receive_maximum.map_or(u16::MAX, NonZeroU16::get).min(inflight_max);
        Self {
            packet_bytes_max: max.map_or(usize::MAX, |max| max.get() as usize),
            window: window.clamp(1, INFLIGHT_MAX),
            qos_max: match properties.maximum_qos {
                Some(MaximumQos::AtMostOnce) => Qos::AtMostOnce,
                Some(MaximumQos::AtLeastOnce) => Qos::AtLeastOnce,
                None => Qos::ExactlyOnce,
            },
            retain_available: properties.retain_available != Some(false),
            wildcard_subscriptions_available: properties.wildcard_subscription_available != Some(false),
            subscription_identifiers_available: properties.subscription_identifier_available != Some(false),
            shared_subscriptions_available: properties.shared_subscription_available != Some(false),
        }
    }
}
