//! Counters of a shard. Each counter has one writer, and any thread may read it.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread changes and others read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it. Only the counter's own shard does, so that no bus lock is needed.
    #[inline]
    pub fn add(&self, by: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    /// Takes off what was added.
    #[inline]
    pub fn sub(&self, by: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(by), Ordering::Relaxed);
    }

    /// Returns the current value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares the counters once: field, topic below `$SYS/broker/`, meaning.
macro_rules! counters {
    ($($(#[doc = $text:literal])+ $name:ident: $topic:literal,)+) => {
        /// The counters of one shard.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[doc = $text])+ pub $name: Counter,)+ }

        /// The sums of all shards at one moment.
        #[derive(Debug, Default, Clone, PartialEq, Eq)]
        pub struct Totals { $($(#[doc = $text])+ pub $name: u64,)+ }

        impl Totals {
            /// The topic of each below `$SYS/broker/`, and its meaning.
            pub const DESCRIBED: &[(&str, &str)] = &[$(($topic, concat!($($text),+)),)+];

            /// Adds up what all shards have counted.
            pub fn of<'a>(shards: impl IntoIterator<Item = &'a Counters>) -> Self {
                let mut totals = Self::default();
                for shard in shards {
                    $(totals.$name = totals.$name.wrapping_add(shard.$name.value());)+
                }
                totals
            }

            /// Each with its topic below `$SYS/broker/`.
            pub fn topics(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($topic, self.$name),)+].into_iter()
            }
        }
    };
}

counters! {
    /// Bytes read from sockets.
    bytes_received: "bytes/received",
    /// Bytes that sockets took.
    bytes_sent: "bytes/sent",
    /// Control packets of all kinds, read.
    packets_received: "messages/received",
    /// Control packets of all kinds, sent.
    packets_sent: "messages/sent",
    /// PUBLISH packets read.
    publish_received: "publish/messages/received",
    /// PUBLISH packets sent.
    publish_sent: "publish/messages/sent",
    /// PUBLISH packets not delivered to one of their receivers, whatever the reason, but for those that a queue of the ledger
    /// drops.
    publish_dropped: "publish/messages/dropped",
    /// Payload bytes read.
    publish_bytes_received: "publish/bytes/received",
    /// Payload bytes sent.
    publish_bytes_sent: "publish/bytes/sent",
    /// Clients connected now.
    clients_connected: "clients/connected",
    /// CONNECT packets read that could be understood.
    connects: "connects/received",
    /// CONNECT packets whose clients were let in.
    connects_accepted: "connects/accepted",
    /// Sockets accepted.
    sockets: "sockets/accepted",
    /// PUBLISH packets that nobody subscribed to.
    no_subscribers: "publish/messages/no_subscribers",
    /// Copies of messages that were meant for a subscriber, each counted once, but for those that went into a queue of
    /// the ledger.
    routed: "account/routed",
    /// Of those: written, at QoS 0.
    sent_once: "account/sent",
    /// Of those: acknowledged, at QoS 1 and 2.
    acknowledged: "account/acknowledged",
    /// Of those: sent at QoS 1 and 2, and not acknowledged yet.
    in_flight: "account/in_flight",
    /// Of those: waiting behind the window of a client.
    waiting: "account/waiting",
    /// Of those: given up with the session of a client, which ended with its connection.
    discarded_session: "discarded/session",
    /// Dropped because the subscriber is not connected.
    dropped_absent: "dropped/absent",
    /// Dropped because as much waits behind the window of the client as may, and its session ends with its connection.
    dropped_queue_full: "dropped/queue_full",
    /// Dropped because the subscriber is slow: it makes too little progress, or none.
    dropped_slow: "dropped/slow",
    /// Dropped because all connections together, or the subscriber alone, hold as many bytes as they may.
    dropped_budget: "dropped/budget",
    /// Dropped because the packet is larger than the client takes.
    dropped_too_large: "dropped/too_large",
    /// Not routed, because the topic is reserved or has too many levels, or the payload is not the text it claims to be.
    dropped_topic: "dropped/topic",
    /// Dropped because they had expired.
    dropped_expired: "dropped/expired",
    /// Dropped because their receiver may not receive them any more, while they waited behind its window.
    dropped_denied: "dropped/not_authorized",
    /// Connections refused because there are as many as there may be.
    refused_connections_max: "refused/connections_max",
    /// Connections refused because their listener has as many as it may.
    refused_connections_listener: "refused/listener_connections",
    /// Connections refused because no memory is left.
    refused_connections_memory: "refused/memory/connections",
    /// Connections closed because their address is in no network of `proxy_from`.
    refused_proxy: "refused/proxy_from",
    /// Connections closed because their listener had accepted as many in the same second as it may.
    refused_connection_rate: "refused/connection_rate",
    /// QUIC connections refused because as many handshakes of their listener, or of their address, are not complete as may be.
    refused_quic_handshakes: "refused/quic_handshakes",
    /// QUIC connections closed because their handshake was not complete in time.
    refused_quic_timeout: "refused/quic_timeout",
    /// QUIC connections closed because they had far more frames than data.
    refused_quic_frames: "refused/quic_frames",
    /// QUIC clients that were asked to prove their address.
    quic_retries: "quic/retries",
    /// Datagrams that were dropped because their shard was behind.
    quic_dropped: "quic/dropped",
    /// Connections closed because their CONNECT did not come in time.
    refused_connect_timeout: "refused/connect_timeout",
    /// CONNECT packets refused for any reason.
    refused_connect: "refused/connect",
    /// Of those: because of the version of MQTT in it, which is unknown, or not accepted by the listener.
    refused_protocol_version: "refused/protocol_version",
    /// Of those: because the client has not proved who it is, and must.
    refused_anonymous: "refused/anonymous",
    /// Of those: because the user is unknown, or the password is wrong or missing.
    refused_password: "refused/password",
    /// Of those: because too many wrong passwords had come from the address. The password was not checked.
    refused_guessing: "refused/guessing",
    /// Of those: because a service or directory elsewhere, which may know the user, did not answer, or was replaced meanwhile.
    refused_unreachable: "refused/unreachable",
    /// Of those: because the token is too long, or is no signed JSON in three parts.
    refused_token_malformed: "refused/token/malformed",
    /// Of those: because the token has the algorithm `none`, or another one that is not allowed.
    refused_token_algorithm: "refused/token/algorithm",
    /// Of those: because the key of the token is unknown.
    refused_token_key: "refused/token/key",
    /// Of those: because no key to check tokens could be fetched yet.
    refused_token_no_keys: "refused/token/no_keys",
    /// Of those: because the signature of the token is wrong.
    refused_token_signature: "refused/token/signature",
    /// Of those: because the token has expired.
    refused_token_expired: "refused/token/expired",
    /// Of those: because the token never expires, is not valid yet, or is of another issuer or for another audience.
    refused_token_claims: "refused/token/claims",
    /// Of those: because the token has no user name, or another one than CONNECT.
    refused_token_user: "refused/token/user",
    /// Of those: because the exchange in AUTH packets was none that the broker can carry out.
    refused_authentication: "refused/authentication",
    /// Of those: because too many passwords waited to be checked.
    refused_verify_busy: "refused/verify_busy",
    /// Of those: because the client identifier belongs to a session of another user.
    refused_owner: "refused/session_of_other_user",
    /// Of those: because the client identifier, the user or the address is banned.
    refused_banned: "refused/banned",
    /// Of those: because the broker was being drained.
    refused_draining: "refused/draining",
    /// Connections ended because the broker was being drained.
    ended_draining: "ended/draining",
    /// CONNECT packets with a client identifier that the roles of their user do not permit.
    refused_client_id: "refused/client_id",
    /// CONNECT packets of clients that cannot have the topic prefix of their roles: the user name fits in no topic, or
    /// is missing, or is too long, or groups of a token have different prefixes.
    refused_topic_prefix: "refused/topic_prefix",
    /// Connections ended because their client identifier, user or address was banned.
    ended_banned: "ended/banned",
    /// Connections ended because their user was removed, or has another password, or the key of their token was removed.
    ended_user_removed: "ended/user_removed",
    /// Connections ended because their token had expired, or the answer of the service that had let them in.
    ended_login_expired: "ended/login_expired",
    /// Connections ended because a reload has removed their listener, or has changed its rules.
    ended_reload: "ended/reload",
    /// PUBLISH packets that their client may not publish.
    denied_publish: "denied/publish",
    /// PUBLISH packets refused because the rules of the client allow its topic, and not its QoS or RETAIN.
    denied_level: "denied/qos_or_retain",
    /// Subscriptions that their client may not have.
    denied_subscribe: "denied/subscribe",
    /// Subscriptions that their client may not end.
    denied_unsubscribe: "denied/unsubscribe",
    /// Messages with commands for the broker that were refused, because too many waited.
    refused_control: "refused/control",
    /// Messages out of queues of the ledger that were not sent, because their receiver may not receive them any more.
    denied_receive: "denied/receive",
    /// Connections ended because a layer below MQTT (TLS, WebSocket, PROXY protocol) refused what the peer sent.
    ended_layer: "ended/layer",
    /// Connections ended because of a malformed packet.
    ended_malformed: "ended/malformed",
    /// Connections ended because of another violation of the protocol.
    ended_protocol_error: "ended/protocol_error",
    /// Connections ended because of a PUBLISH with a higher QoS than the listener allows.
    ended_qos: "ended/qos",
    /// Connections ended because of a PUBLISH with RETAIN 1 where the listener has no retained messages.
    ended_retain: "ended/retain",
    /// Connections ended because a packet was larger than announced.
    ended_packet_too_large: "ended/packet_too_large",
    /// Connections ended because nothing came for one and a half times the Keep Alive.
    ended_keep_alive: "ended/keep_alive",
    /// Connections ended because they took nothing of what was sent to them for a minute.
    ended_stuck: "ended/stuck",
    /// Connections ended because more messages waited for them than may.
    ended_queue_full: "ended/queue_full",
    /// Connections ended because another one took their client identifier.
    ended_taken_over: "ended/taken_over",
    /// Subscriptions refused because the client has as many as it may, or the filter has too many levels.
    refused_subscriptions: "refused/subscriptions",
    /// Subscriptions refused because memory is short.
    refused_subscriptions_memory: "refused/memory/subscriptions",
    /// Subscriptions refused because the filters of the client, or of all clients, have as many different arrangements of
    /// wildcards as they may.
    refused_subscriptions_shapes: "refused/wildcard_shapes",
    /// Connections ended because memory is short, and too much was held for them.
    ended_memory: "ended/memory",
    /// PUBLISH packets that were refused because they could not be stored.
    refused_publish: "refused/publish",
    /// How often acknowledgements to a publisher were held back because a subscriber of its was behind.
    held_publishers: "held/publishers",
    /// How often a publisher was not read because a subscriber of its was full.
    paused_publishers: "paused/publishers",
    /// How often a client was not read for a while, because its roles limit its messages in each second.
    paced_publish: "paused/pace",
    /// How often a subscriber was found to be slow: to make too little progress, or none.
    slow_subscribers: "slow/subscribers",
    /// How often a client was let in that is counted among all other users of its listener, because too many users are counted
    /// one by one, or because its user name is long.
    users_other: "users/others",
    /// How often a user without connections is counted among all other users from now on, because another user came.
    users_displaced: "users/displaced",
    /// How often accepting paused because the process was out of descriptors.
    accept_pauses: "accept/pauses",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_add_up_what_all_shards_have_counted() {
        let shards = [Counters::default(), Counters::default()];
        shards[0].clients_connected.add(3);
        shards[1].clients_connected.add(4);
        shards[1].clients_connected.sub(1);
        let totals = Totals::of(&shards);
        assert_eq!(totals.clients_connected, 6);
        assert!(totals.topics().any(|entry| entry == ("clients/connected", 6)));
    }
}
