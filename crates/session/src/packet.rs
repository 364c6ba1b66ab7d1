//! The packets of the client, one by one.

use base::Now;
use wire::{
    Auth, Disconnect, Packet, PacketId, PacketType, PingResp, PubAck, PubComp, PubRec, PubRel, PubRelReason,
    Publish, PublishTopic, ReasonCode, Role, Version, Violation,
};

use crate::authentication::{Authentication, AuthenticationStep};
use crate::inbound::{Arrival, Release};
use crate::incoming::{Incoming, Resolved};
use crate::outbound::Acknowledged;
use crate::session::State;
use crate::{Request, Session, Settings};

impl<T> Session<T> {
    /// Takes a packet that was decoded within [`limits`](Self::limits). By reference: packets are large, and only what
    /// the request needs of one is copied.
    ///
    /// # Errors
    /// A rule that was broken; [`answer`](Self::answer) tells the peer what can be told, and the connection ends.
    pub fn handle_packet<'p>(
        &mut self,
        packet: &Packet<'p>,
        settings: &Settings,
        now: Now,
    ) -> Result<Request<'p>, Violation> {
        self.touch(now);
        match self.state {
            State::Connected => self.handle_connected(packet, settings),
            State::AwaitingConnect => match packet {
                Packet::Connect(connect) => self.handle_connect(*connect, settings),
                _ => Err(self.violation("MQTT-3.1.0-1", "the first packet is a CONNECT")),
            },
            State::Authenticating(_) => match packet {
                Packet::Auth(auth) => self.handle_auth(auth, settings),
                Packet::Disconnect(disconnect) => self.handle_disconnect(disconnect, settings),
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
        // Whatever stands behind a CONNECT that is refused is not looked at [MQTT-3.1.4-6].
        self.state = State::Closed;
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

    /// Takes a PUBACK, PUBREC, PUBREL or PUBCOMP that says Success, of a connected client: the same as
    /// [`handle_packet`](Self::handle_packet) without a packet.
    ///
    /// # Errors
    /// As there.
    pub fn handle_acknowledgement(
        &mut self,
        packet_type: PacketType,
        packet_id: PacketId,
        now: Now,
    ) -> Result<Request<'static>, Violation> {
        self.touch(now);
        match packet_type {
            PacketType::PubAck => self.handle_puback(packet_id, ReasonCode::Success),
            PacketType::PubRec => self.handle_pubrec(packet_id, ReasonCode::Success),
            PacketType::PubRel => self.handle_pubrel(packet_id),
            PacketType::PubComp => self.handle_pubcomp(packet_id, ReasonCode::Success),
            _ => {
                debug_assert!(false, "{packet_type:?} is no acknowledgement");
                Ok(Request::None)
            }
        }
    }

    fn handle_puback<'p>(
        &mut self,
        packet_id: PacketId,
        reason: ReasonCode,
    ) -> Result<Request<'p>, Violation> {
        let acknowledged = self.sending.as_mut().map(|sending| sending.outbound.puback(packet_id));
        self.acknowledged(acknowledged, packet_id, reason)
    }

    fn handle_pubcomp<'p>(
        &mut self,
        packet_id: PacketId,
        reason: ReasonCode,
    ) -> Result<Request<'p>, Violation> {
        let acknowledged = self.sending.as_mut().map(|sending| sending.outbound.pubcomp(packet_id));
        self.acknowledged(acknowledged, packet_id, reason)
    }

    fn handle_connected<'p>(
        &mut self,
        packet: &Packet<'p>,
        settings: &Settings,
    ) -> Result<Request<'p>, Violation> {
        match *packet {
            Packet::Publish(ref publish) => self.handle_publish(publish, settings),
            Packet::PubAck(PubAck { packet_id, reason, .. }) => self.handle_puback(packet_id, reason.into()),
            Packet::PubRec(PubRec { packet_id, reason, .. }) => self.handle_pubrec(packet_id, reason.into()),
            Packet::PubComp(PubComp { packet_id, reason, .. }) => {
                self.handle_pubcomp(packet_id, reason.into())
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
        packet: &Publish<'p>,
        settings: &Settings,
    ) -> Result<Request<'p>, Violation> {
        let version = self.version();
        let version = version.unwrap_or(Version::V3_1_1);
        let not_served = |reason, statement, text| {
            Err(Violation::after_connect(version, reason, [statement, "MQTT-4.8.0-1"], text))
        };
        let offered = self.offered(settings);
        if packet.delivery.qos() > offered.qos_max() {
            return not_served(ReasonCode::QosNotSupported, "MQTT-3.2.2-11", "a QoS that is not served");
        }
        if packet.retain && !offered.retain_available() {
            let text = "a message to be retained, where nothing is";
            return not_served(ReasonCode::RetainNotSupported, "MQTT-3.2.2-14", text);
        }
        let topic = match packet.topic {
            PublishTopic::Name(name) => Resolved::Own(name),
            topic => {
                let aliases = self.incoming_aliases.get_or_insert_default();
                aliases.resolve(topic, version, self.announced.topic_alias_max, Role::Client)?
            }
        };
        if packet.delivery.packet_id().is_none() {
            return Ok(Request::Publish(Incoming::new(*packet, version, topic)));
        }
        let receive_max = version.is_5().then_some(self.announced.receive_max);
        let inbound = self.inbound.get_or_insert_default();
        match inbound.publish(packet.delivery, version, receive_max) {
            None | Some(Arrival::New(_)) => Ok(Request::Publish(Incoming::new(*packet, version, topic))),
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

    /// Takes another PUBLISH of QoS 1 like the one that was handled just now, but for payload and packet identifier: its
    /// ticket is to be completed. Whether it is a new message; if not, it is to be handled as any other packet.
    pub fn handle_like_publish(&mut self, packet_id: PacketId) -> bool {
        let Some(version) = self.version() else { return false };
        let receive_max = version.is_5().then_some(self.announced.receive_max);
        let inbound = self.inbound.get_or_insert_default();
        inbound.publish_like(packet_id, receive_max)
    }

    fn handle_pubrel<'p>(&mut self, packet_id: PacketId) -> Result<Request<'p>, Violation> {
        match self.inbound.as_mut().map_or(Release::Unknown, |inbound| inbound.release(packet_id)) {
            Release::New => Ok(Request::Released { packet_id }),
            Release::Repeated => Ok(Request::None),
            // The peer remembers an exchange that we have finished: it gets an answer, and nothing changes.
            Release::Unknown => {
                Ok(Request::Answer(PubComp::new(packet_id, PubRelReason::PacketIdentifierNotFound).into()))
            }
            Release::TooEarly => Err(self.violation("MQTT-4.3.3-4", "PUBREL before PUBREC")),
        }
    }

    fn handle_pubrec<'p>(
        &mut self,
        packet_id: PacketId,
        reason: ReasonCode,
    ) -> Result<Request<'p>, Violation> {
        let sending = self.sending.as_mut();
        let acknowledged = sending.map(|sending| sending.outbound.pubrec(packet_id, reason.is_error()));
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
        // The expiry that CONNECT has requested decides, not the expiry granted.
        if secs.is_some_and(|secs| secs > 0) && !self.asks_to_last {
            return Err(
                self.violation("MQTT-3.14.2-1", "a session expiry in DISCONNECT after none in CONNECT")
            );
        }
        self.state = State::Closed;
        // The client may rely on what CONNACK has said.
        let most = settings.session_expiry_secs_max.max(self.expiry_secs);
        Ok(Request::Disconnect {
            reason: disconnect.reason,
            session_expiry_interval_secs: secs.map(|secs| secs.min(most)),
        })
    }

    fn violation(&self, statement_5: &'static str, text: &'static str) -> Violation {
        let version = self.version.unwrap_or(Version::V3_1_1);
        Violation::after_connect(version, ReasonCode::ProtocolError, [statement_5, "MQTT-4.8.0-1"], text)
    }
}
