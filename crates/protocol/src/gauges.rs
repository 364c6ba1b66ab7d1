//! Counters and levels of a ledger.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Declares the gauges once: field, topic below `$SYS/broker/`, meaning.
macro_rules! gauges {
    ($($(#[doc = $text:literal])+ $name:ident: $topic:literal,)+) => {
        /// Counters and levels for `$SYS` and for tests. The ledger alone writes them.
        ///
        /// Every message that goes through the ledger to a session or a group is counted once for each of them: `routed
        /// = acknowledged + refused_by_client + in_flight + queued + expired + too_large + dropped_oldest +
        /// dropped_newest + discarded`. Each term is counted where it happens.
        #[derive(Debug, Default)]
        pub struct Gauges { $($(#[doc = $text])+ pub $name: AtomicUsize,)+ }

        impl Gauges {
            /// The topic of each below `$SYS/broker/`, and its meaning.
            pub const DESCRIBED: &[(&str, &str)] = &[$(($topic, concat!($($text),+)),)+];

            /// All gauges, each with its topic below `$SYS/broker/`.
            pub fn topics(&self) -> impl Iterator<Item = (&'static str, usize)> {
                [$(($topic, self.$name.load(Ordering::Relaxed)),)+].into_iter()
            }
        }
    };
}

gauges! {
    /// Topics with a retained message.
    retained_messages: "retained messages/count",
    /// Size of the retained messages, in bytes.
    retained_bytes: "retained messages/bytes",
    /// Bytes beyond `retained_bytes`, which was larger when these messages were acknowledged.
    retained_over_bytes: "retained messages/bytes_over_limit",
    /// Messages that were not retained because there was no room. At QoS 1 and 2, no subscriber got them.
    retained_refused: "refused/retained",
    /// Retained messages that expired.
    retained_expired: "expired/retained",

    /// Sessions that outlive their connections.
    sessions: "sessions/count",
    /// Sessions that outlive their connections, and are connected.
    sessions_connected: "sessions/connected",
    /// Groups that share a subscription.
    groups: "shared_subscriptions/count",
    /// Wills that wait for their delay.
    wills_pending: "wills/pending",
    /// Wills that were published.
    wills_published: "wills/published",
    /// Wills that were not published, because their user may not publish to their topic.
    wills_denied: "wills/not_authorized",
    /// Wills that a receiver at QoS 0 did not get, because its output was full for too long; one for each receiver.
    wills_dropped: "wills/dropped",

    /// Messages for a queue, one for each queue.
    routed: "account/queues/routed",
    /// Messages that their client has: at QoS 1 and 2 it has acknowledged them, at QoS 0 they were sent.
    acknowledged: "account/queues/acknowledged",
    /// Messages that their client has refused, which count as delivered \[MQTT-4.4.0-2\], and messages that it may not
    /// receive any more.
    refused_by_client: "account/queues/refused_by_client",
    /// Messages in flight, until the end of their exchange.
    in_flight: "account/queues/in_flight",
    /// Messages that wait in queues.
    queued: "account/queues/queued",
    /// Size of the waiting messages, in bytes.
    queued_bytes: "account/queues/queued_bytes",
    /// Messages that expired while they waited.
    expired: "account/queues/expired",
    /// Messages beyond the Maximum Packet Size of their client, which count as delivered \[MQTT-3.1.2-25\].
    too_large: "account/queues/too_large",
    /// Messages that made room for newer ones in a full queue.
    dropped_oldest: "account/queues/dropped_oldest",
    /// Messages for which there was no room in a full queue.
    dropped_newest: "account/queues/dropped_newest",
    /// Messages that waited or were in flight when their session ended, or their group lost its last member, and messages
    /// that an operator discarded.
    discarded: "account/queues/discarded",

    /// Of these: messages that an operator discarded.
    discarded_by_operator: "discarded/by_operator",
    /// Messages that an operator moved from one queue to another. They count as messages that wait, before and after.
    moved_by_operator: "moved/by_operator",

    /// Sessions that ended because a queue was full.
    ended_by_full_queue: "sessions/ended_by_full_queue",
    /// Sessions that expired.
    sessions_expired: "clients/expired",
    /// CONNECTs that were refused because the maximum number of sessions is reached.
    sessions_refused: "refused/sessions",
    /// CONNECTs that were refused because their user has as many connections as it may.
    connects_refused_user: "refused/user_connections",
    /// Shared subscriptions that were refused because a maximum is reached: of their client, or of groups on their
    /// filter.
    shared_subscriptions_refused: "refused/shared_subscriptions",
    /// Messages that no subscriber got, because one of their queues was full.
    publishes_refused: "refused/queue_full",
    /// CONNECTs for a new session that were refused because memory is short.
    connects_refused_memory: "refused/memory/connects",
    /// Messages that no subscriber got, because memory is short and they would have had to wait or to be retained.
    publishes_refused_memory: "refused/memory/publishes",
    /// Records that could not be written.
    commits_refused: "refused/commits",
    /// Retained messages of QoS 0 that were delivered, and are in memory only.
    unrecorded: "retained messages/unrecorded",
    /// Acknowledgements that waited because a queue had grown too much.
    withheld: "held/queues",
}

/// Values of a part of the broker, such as the keeper of the records.
pub trait Instruments: fmt::Debug + Send + Sync {
    /// Passes each value with its topic below `$SYS/broker/`. Rates are those since the last call.
    fn read(&self, say: &mut dyn FnMut(&str, String));

    /// The same without rates. Others may call this between two calls of [`read`](Self::read).
    fn read_totals(&self, say: &mut dyn FnMut(&str, String)) {
        self.read(say);
    }
}
