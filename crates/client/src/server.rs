//! Contents of the server's CONNACK.

use std::num::{NonZeroU16, NonZeroU32};

use wire::{ConnAckProperties, MaximumQos, Qos, UserProperties, Utf8, Version};

/// The fields of CONNACK (section 3.2), in types that borrow nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Server {
    /// Protocol version of the connection.
    pub version: Version,
    /// Session Present: the session of an earlier connection goes on.
    pub session_present: bool,
    /// Client identifier of the session, as requested or as assigned by the server.
    pub client_id: String,
    /// Session Expiry Interval, in seconds; `None` if the server accepts the requested value.
    pub session_expiry_secs: Option<u32>,
    /// Server Keep Alive, in seconds. This value replaces the requested one.
    pub keep_alive_secs: Option<u16>,
    /// Receive Maximum: the number of QoS 1 and 2 messages in flight to the server; by default 65,535.
    pub receive_max: u16,
    /// Topic Alias Maximum: the number of topics that the client may abbreviate; by default 0.
    pub topic_alias_max: u16,
    /// Maximum QoS that the server accepts.
    pub qos_max: Qos,
    /// Whether the server stores retained messages.
    pub retain_available: bool,
    /// Whether the server supports wildcards in filters.
    pub wildcard_subscriptions_available: bool,
    /// Whether the server supports shared subscriptions.
    pub shared_subscriptions_available: bool,
    /// Whether the server supports Subscription Identifiers.
    pub subscription_identifiers_available: bool,
    /// Maximum Packet Size that the server accepts, in bytes.
    pub packet_bytes_max: Option<u32>,
    /// Response Information: the root of response topics, if [requested](crate::Options::request_response_information).
    pub response_information: Option<String>,
    /// Server Reference: another server to use, now or later.
    pub server_reference: Option<String>,
    /// Reason String: an explanation for people.
    pub text: Option<String>,
    /// User Properties, in the order of the packet.
    pub user_properties: Vec<(String, String)>,
}

impl Server {
    pub(crate) fn of(
        session_present: bool,
        client_id: &str,
        version: Version,
        properties: &ConnAckProperties<'_>,
    ) -> Self {
        let unless_denied = |said: Option<bool>| said != Some(false);
        Self {
            version,
            session_present,
            client_id: client_id.to_owned(),
            session_expiry_secs: properties.session_expiry_interval_secs,
            keep_alive_secs: properties.server_keep_alive_secs,
            receive_max: properties.receive_maximum.map_or(u16::MAX, NonZeroU16::get),
            topic_alias_max: properties.topic_alias_maximum.unwrap_or(0),
            qos_max: match properties.maximum_qos {
                Some(MaximumQos::AtMostOnce) => Qos::AtMostOnce,
                Some(MaximumQos::AtLeastOnce) => Qos::AtLeastOnce,
                None => Qos::ExactlyOnce,
            },
            retain_available: unless_denied(properties.retain_available),
            wildcard_subscriptions_available: unless_denied(properties.wildcard_subscription_available),
            shared_subscriptions_available: unless_denied(properties.shared_subscription_available),
            subscription_identifiers_available: version.is_5()
                && unless_denied(properties.subscription_identifier_available),
            packet_bytes_max: properties.maximum_packet_bytes.map(NonZeroU32::get),
            response_information: owned(properties.response_information),
            server_reference: owned(properties.server_reference),
            text: owned(properties.reason_string),
            user_properties: owned_pairs(properties.user_properties),
        }
    }
}

pub(crate) fn owned(text: Option<Utf8<'_>>) -> Option<String> {
    text.map(|text| text.as_str().to_owned())
}

fn owned_pairs(properties: UserProperties<'_>) -> Vec<(String, String)> {
    let pair = |pair: wire::UserProperty<'_>| (pair.name.as_str().to_owned(), pair.value.as_str().to_owned());
    properties.iter().map(pair).collect()
}
