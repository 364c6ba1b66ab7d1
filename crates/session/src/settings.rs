//! What a server offers and how much it takes.

use topic::TopicFilter;
use wire::{Qos, SubAckReason, Version};

/// The capabilities and bounds of a server role, the same for all its sessions.
#[derive(Debug, Clone)]
pub struct Settings {
    /// A packet may have so many bytes, fixed header included; announced as Maximum Packet Size.
    pub packet_bytes_max: u32,
    /// The same for CONNECT, before anybody has shown who they are.
    pub connect_packet_bytes_max: u32,
    /// CONNECT, and the will in it, may have so many User Properties each.
    pub connect_user_properties_max: usize,
    /// A topic or filter may have so many levels.
    pub topic_levels_max: usize,
    /// A client identifier may have so many bytes.
    pub client_id_bytes_max: usize,
    /// A will's topic, properties and payload together may have so many bytes.
    pub will_bytes_max: usize,
    /// So many subscriptions may one client have.
    pub subscriptions_max: usize,
    /// So many different arrangements of wildcards may the filters of more than six levels have, all clients' together.
    pub deep_shapes_max: usize,
    /// So many of them may the filters of one client have.
    pub deep_shapes_per_client_max: usize,
    /// The highest QoS that is served.
    pub qos_max: Qos,
    /// Whether messages are retained; without it RETAIN 1 is refused.
    pub retain_available: bool,
    /// Whether filters may have wildcards.
    pub wildcard_subscriptions_available: bool,
    /// Whether subscriptions may have identifiers.
    pub subscription_identifiers_available: bool,
    /// Whether subscriptions may be shared.
    pub shared_subscriptions_available: bool,
    /// Aliases a client may use towards us, per connection; 0 is none.
    pub topic_alias_max: u16,
    /// Aliases we use towards a client that allows as many, per connection; 0 is none.
    pub topic_alias_out_max: u16,
    /// So many messages of QoS 1 and 2 may a client have published that are not acknowledged; announced as
    /// Receive Maximum to MQTT 5 clients. At least 1.
    pub receive_max: u16,
    /// So many messages of QoS 1 and 2 are under way to a client at a time, if it takes as many. At least 1.
    pub inflight_max: u16,
    /// The same before MQTT 5, where clients cannot say how many they take. At least 1.
    pub inflight_max_3: u16,
    /// So many messages may wait behind those that are under way, per client.
    pub waiting_messages_max: usize,
    /// So many bytes may they hold, by [`Message::size_bytes`](base::Message::size_bytes); one may always wait.
    pub waiting_bytes_max: usize,
    /// A session is kept for at most so many seconds after its connection; [`u32::MAX`] is for ever.
    pub session_expiry_secs_max: u32,
    /// A longer Keep Alive than this, or none, is replaced by it; 0 leaves it to the client.
    pub keep_alive_secs_max: u16,
    /// A connection that has not sent its whole CONNECT by then, or not shown who it is, is closed.
    pub connect_timeout_ms: u64,
    /// Whether a payload that claims to be UTF-8 is looked at.
    pub check_payload_format: bool,
    /// What a client is told that asks for response information (MQTT 5.0, 3.2.2.3.15).
    pub response_information: Option<String>,
    /// The methods of enhanced authentication that whoever drives the session can carry out.
    pub authentication_methods: Vec<String>,
    /// A client may send so many AUTH packets per authentication.
    pub authentication_rounds_max: u8,
}

/// Everything is available; the bounds are those that the broker's manual gives.
impl Default for Settings {
    fn default() -> Self {
        Self {
            packet_bytes_max: 2 << 20,
            connect_packet_bytes_max: 256 << 10,
            connect_user_properties_max: 10_000,
            topic_levels_max: 128,
            client_id_bytes_max: 1_024,
            will_bytes_max: 64 << 10,
            subscriptions_max: 100_000,
            deep_shapes_max: 1_000,
            deep_shapes_per_client_max: 200,
            qos_max: Qos::ExactlyOnce,
            retain_available: true,
            wildcard_subscriptions_available: true,
            subscription_identifiers_available: true,
            shared_subscriptions_available: true,
            topic_alias_max: 16,
            topic_alias_out_max: 16,
            receive_max: 1_000,
            inflight_max: 1_000,
            inflight_max_3: 100,
            waiting_messages_max: 100_000,
            waiting_bytes_max: 256 << 20,
            session_expiry_secs_max: u32::MAX,
            keep_alive_secs_max: 0,
            connect_timeout_ms: 10_000,
            check_payload_format: false,
            response_information: None,
            authentication_methods: Vec::new(),
            authentication_rounds_max: 8,
        }
    }
}

impl Settings {
    /// Why a subscription is not accepted, if this server does not offer what it asks for. Before MQTT 5 there is
    /// one code for every failure.
    #[must_use]
    pub fn refusal(
        &self,
        filter: TopicFilter<'_>,
        has_identifier: bool,
        version: Version,
    ) -> Option<SubAckReason> {
        let reason = if filter.level_count() > self.topic_levels_max {
            SubAckReason::TopicFilterInvalid
        } else if !self.shared_subscriptions_available && filter.shared().is_some() {
            SubAckReason::SharedSubscriptionsNotSupported
        } else if !self.wildcard_subscriptions_available && filter.has_wildcard() {
            SubAckReason::WildcardSubscriptionsNotSupported
        } else if !self.subscription_identifiers_available && has_identifier {
            SubAckReason::SubscriptionIdentifiersNotSupported
        } else {
            return None;
        };
        Some(if version.is_5() { reason } else { SubAckReason::UnspecifiedError })
    }
}
