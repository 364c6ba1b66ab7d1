//! Features and limits of a server.

use topic::TopicFilter;
use wire::{Qos, SubAckReason, Version};

/// Features and limits of a server role, the same for all its sessions.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Maximum size of a packet with its fixed header, in bytes. Announced as Maximum Packet Size.
    pub packet_bytes_max: u32,
    /// Maximum size of CONNECT, in bytes. Nobody has authenticated yet.
    pub connect_packet_bytes_max: u32,
    /// Maximum number of User Properties in CONNECT, and in its will.
    pub connect_user_properties_max: usize,
    /// Maximum number of levels in a topic or filter.
    pub topic_levels_max: usize,
    /// Maximum length of a client identifier, in bytes.
    pub client_id_bytes_max: usize,
    /// Maximum size of a will's topic, properties and payload together, in bytes.
    pub will_bytes_max: usize,
    /// Maximum number of subscriptions of one client.
    pub subscriptions_max: usize,
    /// Maximum number of different wildcard patterns in filters of more than six levels, of all clients together.
    pub deep_shapes_max: usize,
    /// Maximum number of these patterns in the filters of one client.
    pub deep_shapes_per_client_max: usize,
    /// The highest QoS of the server.
    pub qos_max: Qos,
    /// Whether messages are retained. Otherwise RETAIN 1 is refused.
    pub retain_available: bool,
    /// Whether filters may have wildcards.
    pub wildcard_subscriptions_available: bool,
    /// Whether subscriptions may have identifiers.
    pub subscription_identifiers_available: bool,
    /// Whether subscriptions may be shared.
    pub shared_subscriptions_available: bool,
    /// Maximum number of topic aliases of a client on each connection; 0 means none.
    pub topic_alias_max: u16,
    /// Maximum number of our topic aliases on each connection; the client's own maximum may be lower. 0 means none.
    pub topic_alias_out_max: u16,
    /// Maximum number of unacknowledged messages of QoS 1 and 2 from a client. Announced as Receive Maximum to MQTT 5
    /// clients. At least 1.
    pub receive_max: u16,
    /// Maximum number of messages of QoS 1 and 2 in flight to a client; the client's own maximum may be lower. At least
    /// 1.
    pub inflight_max: u16,
    /// The same before MQTT 5, where clients cannot announce a maximum. At least 1.
    pub inflight_max_3: u16,
    /// Maximum number of messages that wait behind those in flight, for each client.
    pub waiting_messages_max: usize,
    /// Maximum size of the waiting messages in bytes, by [`Message::size_bytes`](base::Message::size_bytes). One
    /// message may always wait.
    pub waiting_bytes_max: usize,
    /// Maximum lifetime of a session after its connection, in seconds; [`u32::MAX`] means no end.
    pub session_expiry_secs_max: u32,
    /// Maximum Keep Alive in seconds, which replaces a longer one, or none; 0 leaves Keep Alive to the client.
    pub keep_alive_secs_max: u16,
    /// Time limit for a complete CONNECT and its authentication, in milliseconds. Afterwards the connection is closed.
    pub connect_timeout_ms: u64,
    /// Whether a payload that claims to be UTF-8 is checked.
    pub check_payload_format: bool,
    /// Answer to a client that asks for response information (MQTT 5.0, 3.2.2.3.15).
    pub response_information: Option<String>,
    /// Methods of enhanced authentication that the caller can carry out.
    pub authentication_methods: Vec<String>,
    /// Maximum number of AUTH packets of a client in one authentication.
    pub authentication_rounds_max: u8,
}

/// All features are available, and the limits are the defaults in the broker's manual.
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
    /// Reason why a subscription is not accepted, if the server does not offer the feature. Before MQTT 5 there is one
    /// code for all failures.
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
