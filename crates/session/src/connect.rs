//! CONNECT and its answer.

use std::num::{NonZeroU16, NonZeroU32};

use wire::{
    Answer, Binary, ConnAck, ConnAckProperties, Connect, ConnectRefusal, Connected, Counter, MaximumQos,
    PacketId, PayloadFormat, Qos, ReasonCode, Utf8, Version, Violation,
};

use crate::incoming::may_be_published;
use crate::outbound::INFLIGHT_MAX;
use crate::session::State;
use crate::terms::Terms;
use crate::{Session, Settings};

/// The result of a successful claim on a client identifier.
#[derive(Debug, Clone, Copy)]
pub struct Accepted<'a> {
    /// The client's own identifier, or the one that it is given.
    pub client_id: &'a str,
    /// There was a session, and this connection goes on with it.
    pub session_present: bool,
    /// Messages of QoS 2 that the client has published in it and not released.
    pub unreleased: &'a [PacketId],
}

/// Requests of a CONNECT that matter to CONNACK only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked {
    /// The server had its own idea of the keep alive.
    keep_alive_is_ours: bool,
    /// The server keeps the session for a shorter time than the client asks for.
    expiry_is_ours: bool,
    /// The client has no client identifier of its own.
    is_nameless: bool,
    wants_response_information: bool,
}

impl<T> Session<T> {
    /// Takes in what CONNECT asks for, after checking what a server may refuse.
    pub(crate) fn ask(&mut self, connect: &Connect<'_>, settings: &Settings) -> Result<Asked, Violation> {
        self.version = Some(connect.version());
        self.packet_bytes_max = connect.properties.maximum_packet_bytes;
        if !self.terms.allow(connect.version()) {
            let text = "a version of MQTT that the listener does not accept";
            let statements = ["MQTT-3.1.2-2", "MQTT-3.1.2-2"];
            let refusal = ConnectRefusal::UnsupportedProtocolVersion;
            return Err(refused(connect.version(), refusal, statements, text));
        }
        check_client_id(connect, settings, self.terms)?;
        check_user_properties(connect, settings)?;
        check_method(connect, settings)?;
        check_will(connect, settings, self.offered(settings))?;
        self.clean_start = connect.clean_start;
        let expiry_secs = match connect.version() {
            Version::V5 => connect.properties.session_expiry_interval_secs.unwrap_or(0),
            Version::V3_1 | Version::V3_1_1 if connect.clean_start => 0,
            Version::V3_1 | Version::V3_1_1 => u32::MAX,
        };
        self.asks_to_last = expiry_secs > 0;
        self.expiry_secs = expiry_secs.min(settings.session_expiry_secs_max);
        self.window = window(connect, settings);
        let alias_max = connect.properties.topic_alias_maximum.unwrap_or(0);
        self.alias_out_max = alias_max.min(settings.topic_alias_out_max);
        self.takes_problem_information = connect.properties.request_problem_information != Some(false);
        let longest = settings.keep_alive_secs_max;
        let asked = connect.keep_alive_secs;
        let keep_alive_is_ours = longest > 0 && (asked == 0 || asked > longest);
        self.keep_alive_secs = if keep_alive_is_ours { longest } else { asked };
        Ok(Asked {
            keep_alive_is_ours,
            expiry_is_ours: self.expiry_secs != expiry_secs,
            is_nameless: connect.client_id.is_empty(),
            wants_response_information: connect.properties.request_response_information == Some(true),
        })
    }

    /// Whether the client wants none of an earlier session (Clean Start; Clean Session before MQTT 5).
    #[must_use]
    pub fn clean_start(&self) -> bool {
        self.clean_start
    }

    /// Returns how long the session is kept after the connection, in seconds: 0 not at all, [`u32::MAX`] for ever.
    ///
    /// The settings at the time of CONNECT decide: the session and CONNACK have the same value.
    #[must_use]
    pub fn expiry_secs(&self) -> u32 {
        self.expiry_secs
    }

    /// Limits how long the session is kept after the connection, before CONNACK says so.
    pub fn limit_expiry(&mut self, secs_max: u32) {
        if let State::Claiming(asked) | State::Authenticating(asked) = &mut self.state
            && self.expiry_secs > secs_max
        {
            asked.expiry_is_ours = true;
            self.expiry_secs = secs_max;
        }
    }

    /// Returns the maximum number of messages of QoS 1 and 2 in flight to the client [MQTT-3.3.4-9], from the settings
    /// at the time of CONNECT.
    #[must_use]
    pub fn window(&self) -> u16 {
        self.window
    }

    /// Lets the client in: writes the CONNACK that says so. `false` if it would be larger than the client takes:
    /// then the connection is to be closed without a word.
    pub fn accept(&mut self, accepted: &Accepted<'_>, settings: &Settings, into: &mut Vec<u8>) -> bool {
        let Some(asked) = self.asked() else { return false };
        let mut properties = match self.version {
            Some(Version::V5) => self.properties(asked, accepted.client_id, settings),
            _ => ConnAckProperties::EMPTY,
        };
        if let Some(authentication) = &self.authentication {
            properties.authentication_method = Utf8::new(authentication.method()).ok();
            properties.authentication_data = authentication.data().and_then(|data| Binary::new(data).ok());
        }
        // [MQTT-3.2.2-2]
        let session_present = accepted.session_present && !self.clean_start;
        let packet = ConnAck { outcome: Connected::Accepted { session_present }, properties };
        let written = self.write(&packet.into(), into);
        if written {
            self.connected(accepted.unreleased, settings);
        }
        written
    }

    fn properties<'a>(
        &self,
        asked: Asked,
        client_id: &'a str,
        settings: &'a Settings,
    ) -> ConnAckProperties<'a> {
        let offered = self.offered(settings);
        let unless = |available: bool| (!available).then_some(false);
        let text = |text: &'a str| Utf8::new(text).ok();
        let response_information = settings.response_information.as_deref();
        ConnAckProperties {
            session_expiry_interval_secs: asked.expiry_is_ours.then_some(self.expiry_secs),
            receive_maximum: NonZeroU16::new(settings.receive_max).filter(|max| *max < NonZeroU16::MAX),
            maximum_qos: match offered.qos_max() {
                Qos::AtMostOnce => Some(MaximumQos::AtMostOnce),
                Qos::AtLeastOnce => Some(MaximumQos::AtLeastOnce),
                Qos::ExactlyOnce => None,
            },
            retain_available: unless(offered.retain_available()),
            maximum_packet_bytes: NonZeroU32::new(settings.packet_bytes_max),
            assigned_client_identifier: text(client_id).filter(|_| asked.is_nameless),
            topic_alias_maximum: (settings.topic_alias_max > 0).then_some(settings.topic_alias_max),
            wildcard_subscription_available: unless(offered.wildcard_subscriptions_available()),
            subscription_identifier_available: unless(settings.subscription_identifiers_available),
            shared_subscription_available: unless(settings.shared_subscriptions_available),
            server_keep_alive_secs: asked.keep_alive_is_ours.then_some(self.keep_alive_secs),
            response_information: response_information
                .filter(|_| asked.wants_response_information)
                .and_then(text),
            ..ConnAckProperties::EMPTY
        }
    }
}

fn window(connect: &Connect<'_>, settings: &Settings) -> u16 {
    let window = match connect.version() {
        Version::V5 => {
            let receive_max = connect.properties.receive_maximum.map_or(u16::MAX, NonZeroU16::get);
            settings.inflight_max.min(receive_max)
        }
        Version::V3_1 | Version::V3_1_1 => settings.inflight_max_3,
    };
    window.clamp(1, INFLIGHT_MAX)
}

fn check_client_id(connect: &Connect<'_>, settings: &Settings, terms: Terms) -> Result<(), Violation> {
    let version = connect.version();
    let refuse =
        |statements, text| Err(refused(version, ConnectRefusal::ClientIdentifierNotValid, statements, text));
    let needs_own_id = match version {
        Version::V3_1 => true,
        Version::V3_1_1 => !connect.clean_start,
        Version::V5 => false,
    };
    if connect.client_id.is_empty() && (needs_own_id || !terms.empty_client_ids()) {
        return refuse(["MQTT-3.1.3-8", "MQTT-3.1.3-8"], "an empty client identifier");
    }
    if connect.client_id.as_str().len() > settings.client_id_bytes_max {
        return refuse(["MQTT-3.1.3-8", "MQTT-3.1.3-9"], "the client identifier is too long");
    }
    Ok(())
}

fn check_method(connect: &Connect<'_>, settings: &Settings) -> Result<(), Violation> {
    let Some(method) = connect.properties.authentication_method else { return Ok(()) };
    if settings.authentication_methods.iter().any(|known| known == method.as_str()) {
        return Ok(());
    }
    let statements = ["MQTT-4.12.0-1", "MQTT-3.2.2-6"];
    let text = "an unknown authentication method";
    Err(refused(connect.version(), ConnectRefusal::BadAuthenticationMethod, statements, text))
}

/// Checks the number of User Properties. An empty one takes five bytes: a small packet may have very many.
fn check_user_properties(connect: &Connect<'_>, settings: &Settings) -> Result<(), Violation> {
    let of_will = connect.will.map(|will| will.properties.user_properties);
    let most = settings.connect_user_properties_max;
    if [Some(connect.properties.user_properties), of_will]
        .iter()
        .flatten()
        .all(|all| all.iter().nth(most).is_none())
    {
        return Ok(());
    }
    let statements = ["MQTT-3.1.4-2", "MQTT-3.2.2-6"];
    let text = "more User Properties than there may be";
    Err(refused(connect.version(), ConnectRefusal::QuotaExceeded, statements, text))
}

fn check_will(connect: &Connect<'_>, settings: &Settings, offered: Terms) -> Result<(), Violation> {
    let Some(will) = &connect.will else { return Ok(()) };
    let refuse = |refusal, statement_5, text| {
        Err(refused(connect.version(), refusal, [statement_5, "MQTT-3.2.2-6"], text))
    };
    if will.qos > offered.qos_max() {
        let text = "a will with a QoS that is not served";
        return refuse(ConnectRefusal::QosNotSupported, "MQTT-3.2.2-12", text);
    }
    if will.retain && !offered.retain_available() {
        let text = "a will to be retained, where nothing is";
        return refuse(ConnectRefusal::RetainNotSupported, "MQTT-3.2.2-13", text);
    }
    if !may_be_published(will.topic, settings) {
        let text = "a will topic that clients may not publish to";
        return refuse(ConnectRefusal::TopicNameInvalid, "MQTT-3.1.4-2", text);
    }
    let claims_text = will.properties.payload_format == Some(PayloadFormat::Utf8);
    let payload = will.payload.as_bytes();
    if settings.check_payload_format && claims_text && std::str::from_utf8(payload).is_err() {
        let text = "a will whose payload is not the text it claims to be";
        return refuse(ConnectRefusal::PayloadFormatInvalid, "MQTT-3.1.4-2", text);
    }
    let mut properties = Counter::default();
    // Counting cannot fail.
    let _ = will.properties.write_bytes(&mut properties);
    let bytes = will.topic.as_str().len() + properties.len + payload.len();
    if bytes > settings.will_bytes_max {
        return refuse(ConnectRefusal::QuotaExceeded, "MQTT-3.1.4-2", "a will that is too large");
    }
    Ok(())
}

/// A CONNECT that is in order and still not accepted.
pub(crate) fn refused(
    version: Version,
    refusal: ConnectRefusal,
    statements: [&'static str; 2],
    text: &'static str,
) -> Violation {
    let [statement_5, statement_3] = statements;
    let (statement, answer) = match version {
        Version::V5 => (statement_5, Answer::ConnAck(version, refusal)),
        // A version without a fitting return code gets no answer.
        _ if refusal.return_code().is_none() => (statement_3, Answer::Nothing),
        _ => (statement_3, Answer::ConnAck(version, refusal)),
    };
    Violation { reason: ReasonCode::from(refusal), statement, text, answer }
}
