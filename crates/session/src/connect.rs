//! CONNECT and its answer.

use wire::{
    Answer, ConnAck, ConnAckProperties, Connect, ConnectRefusal, Connected, Counter, MaximumQos, Qos,
    ReasonCode, Utf8, Version, Violation,
};

use crate::incoming::may_be_published;
use crate::{Session, Settings};

/// What a CONNECT asked for, until it is answered.
#[derive(Debug)]
pub(crate) struct Asked {
    version: Version,
    keep_alive_secs: u16,
    /// The server had its own idea of the keep alive.
    keep_alive_is_ours: bool,
    /// The session was to outlive its connection.
    expiry_asked: bool,
    /// It has no client identifier of its own.
    is_nameless: bool,
}

impl Asked {
    /// Checks what a server may refuse.
    pub(crate) fn new(connect: &Connect<'_>, settings: &Settings) -> Result<Self, Violation> {
        let version = connect.version();
        let refuse = |refusal, statements, text| Err(refused(version, refusal, statements, text));
        let client_id = connect.client_id.as_str();
        let needs_own_id = match version {
            Version::V3_1 => true,
            Version::V3_1_1 => !connect.clean_start,
            Version::V5 => false,
        };
        if client_id.is_empty() && needs_own_id {
            let statements = ["MQTT-3.1.3-8", "MQTT-3.1.3-8"];
            return refuse(
                ConnectRefusal::ClientIdentifierNotValid,
                statements,
                "an empty client identifier",
            );
        }
        if client_id.len() > settings.client_id_bytes_max {
            let statements = ["MQTT-3.1.3-8", "MQTT-3.1.3-9"];
            return refuse(
                ConnectRefusal::ClientIdentifierNotValid,
                statements,
                "the client identifier is too long",
            );
        }
        if connect.properties.authentication_method.is_some() {
            let statements = ["MQTT-4.12.0-1", "MQTT-3.2.2-6"];
            return refuse(
                ConnectRefusal::BadAuthenticationMethod,
                statements,
                "no authentication method is known",
            );
        }
        check_will(connect, settings)?;
        let longest = settings.keep_alive_secs_max;
        let asked = connect.keep_alive_secs;
        let keep_alive_is_ours = longest > 0 && (asked == 0 || asked > longest);
        Ok(Self {
            version,
            keep_alive_secs: if keep_alive_is_ours { longest } else { asked },
            keep_alive_is_ours,
            is_nameless: client_id.is_empty(),
            expiry_asked: connect.properties.session_expiry_interval_secs.is_some_and(|secs| secs > 0),
        })
    }

    pub(crate) fn keep_alive_secs(&self) -> u16 {
        self.keep_alive_secs
    }
}

impl Session {
    /// Lets the client in under this identifier: writes the CONNACK that says so. `false` if it would be larger than the client takes:
    /// then the connection is to be closed without a word.
    pub fn accept(&mut self, client_id: &str, settings: &Settings, into: &mut Vec<u8>) -> bool {
        let Some(asked) = self.asked() else { return false };
        let version = asked.version;
        let properties = match version {
            Version::V5 => properties(asked, client_id, settings),
            Version::V3_1 | Version::V3_1_1 => ConnAckProperties::default(),
        };
        let packet = ConnAck { outcome: Connected::Accepted { session_present: false }, properties };
        let fits = packet.encoded_len(version).is_ok_and(|len| len <= self.packet_bytes_max());
        let accepted = fits && packet.encode(version, into).is_ok();
        if accepted {
            self.connected();
        }
        accepted
    }
}

fn properties<'a>(asked: &Asked, client_id: &'a str, settings: &Settings) -> ConnAckProperties<'a> {
    ConnAckProperties {
        session_expiry_interval_secs: asked.expiry_asked.then_some(0),
        maximum_qos: match settings.qos_max {
            Qos::AtMostOnce => Some(MaximumQos::AtMostOnce),
            Qos::AtLeastOnce => Some(MaximumQos::AtLeastOnce),
            Qos::ExactlyOnce => None,
        },
        maximum_packet_bytes: std::num::NonZeroU32::new(settings.packet_bytes_max),
        assigned_client_identifier: asked.is_nameless.then(|| Utf8::new(client_id).ok()).flatten(),
        topic_alias_maximum: (settings.topic_alias_max > 0).then_some(settings.topic_alias_max),
        shared_subscription_available: Some(false),
        server_keep_alive_secs: asked.keep_alive_is_ours.then_some(asked.keep_alive_secs),
        ..ConnAckProperties::default()
    }
}

fn check_will(connect: &Connect<'_>, settings: &Settings) -> Result<(), Violation> {
    let Some(will) = &connect.will else { return Ok(()) };
    let refuse = |refusal, statements, text| Err(refused(connect.version(), refusal, statements, text));
    if will.qos > settings.qos_max {
        let statements = ["MQTT-3.2.2-12", "MQTT-3.2.2-6"];
        return refuse(ConnectRefusal::QosNotSupported, statements, "a will with a QoS that is not served");
    }
    if !may_be_published(will.topic, settings) {
        let statements = ["MQTT-3.1.4-2", "MQTT-3.2.2-6"];
        return refuse(
            ConnectRefusal::TopicNameInvalid,
            statements,
            "a will topic that clients may not publish to",
        );
    }
    let mut properties = Counter::default();
    // Counting cannot fail.
    let _ = will.properties.write_bytes(&mut properties);
    let bytes = will.topic.as_str().len() + properties.len + will.payload.as_bytes().len();
    if bytes > settings.will_bytes_max {
        let statements = ["MQTT-3.1.4-2", "MQTT-3.2.2-6"];
        return refuse(ConnectRefusal::QuotaExceeded, statements, "a will that is too large");
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
        // Where no return code fits, nothing is said.
        _ if refusal.return_code().is_none() => (statement_3, Answer::Nothing),
        _ => (statement_3, Answer::ConnAck(version, refusal)),
    };
    Violation { reason: ReasonCode::from(refusal), statement, text, answer }
}
