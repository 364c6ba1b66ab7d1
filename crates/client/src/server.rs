//! What the server said.

use std::num::{NonZeroU16, NonZeroU32};

use wire::{ConnAckProperties, MaximumQos, Qos, UserProperties, Utf8, Version};

/// What the server said in CONNACK (section 3.2).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Server {
    /// What the connection speaks.
    pub version: Version,
    /// It goes on with the session that an earlier connection has left.
    pub session_present: bool,
    /// Whose session it is: as asked for, or as the server has assigned.
    pub client_id: String,
    /// Session Expiry Interval, in seconds, where the server keeps the session for another time than asked for.
    pub session_expiry_secs: Option<u32>,
    /// Server Keep Alive, in seconds, which is used in place of our own.
    pub keep_alive_secs: Option<u16>,
    /// Receive Maximum: so many messages of QoS 1 and 2 it takes at a time; 65,535 where it does not say.
    pub receive_max: u16,
    /// Topic Alias Maximum: so many topics may be abbreviated; 0 where it does not say.
    pub topic_alias_max: u16,
    /// The highest QoS that it takes.
    pub qos_max: Qos,
    /// Whether it keeps retained messages.
    pub retain_available: bool,
    /// Whether filters may have wildcards.
    pub wildcard_subscriptions_available: bool,
    /// Whether subscriptions may be shared.
    pub shared_subscriptions_available: bool,
    /// Whether subscriptions may have identifiers.
    pub subscription_identifiers_available: bool,
    /// The largest packet that it takes, in bytes.
    pub packet_bytes_max: Option<u32>,
    /// The root of topics for answers, if [it was asked for](crate::Options::request_response_information).
    pub response_information: Option<String>,
    /// Another server to use, now or later.
    pub server_reference: Option<String>,
    /// Reason String: for people.
    pub text: Option<String>,
    /// Anything else it says, in its order.
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
