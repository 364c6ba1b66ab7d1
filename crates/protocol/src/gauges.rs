//! What a ledger holds, and what became of everything it was given.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Declares the gauges once: field, topic below `$SYS/broker/`, meaning.
macro_rules! gauges {
    ($($(#[doc = $text:literal])+ $name:ident: $topic:literal,)+) => {
        /// Counters and levels, for whoever shows them. The ledger alone writes them.
        ///
        /// Every message that takes the ledger's way to a session or a group is accounted for, once for each of them:
        /// `routed = acknowledged + refused_by_client + in_flight + queued + expired + too_large + dropped_oldest +
        /// dropped_newest + discarded`. Each term is counted where it happens.
        #[derive(Debug, Default)]
        pub struct Gauges { $($(#[doc = $text])+ pub $name: AtomicUsize,)+ }

        impl Gauges {
            /// Each with its topic below `$SYS/broker/`.
            pub fn topics(&self) -> impl Iterator<Item = (&'static str, usize)> {
                [$(($topic, self.$name.load(Ordering::Relaxed)),)+].into_iter()
            }
        }
    };
}

gauges! {
    /// Topics with a retained message.
    retained_messages: "retained messages/count",
    /// What they take.
    retained_bytes: "retained messages/bytes",
    /// How far they are over `retained_bytes`, which was higher when they were acknowledged.
    retained_over_bytes: "retained messages/bytes_over_limit",
    /// Messages that were not retained because there was no room: at QoS 1 and 2 nobody got them.
    retained_refused: "refused/retained",
    /// Retained messages that expired.
    retained_expired: "expired/retained",

    /// Sessions that outlive their connections.
    sessions: "sessions/count",
    /// Of those, the ones with a connection.
    sessions_connected: "sessions/connected",
    /// Groups that share a subscription.
    groups: "shared_subscriptions/count",
    /// Wills that wait for their delay.
    wills_pending: "wills/pending",
    /// Wills that were published.
    wills_published: "wills/published",
    /// Wills of QoS 0 that a receiver did not get, because its output was full for too long; one for each receiver.
    wills_dropped: "wills/dropped",

    /// Messages for a queue, one for each queue.
    routed: "account/queues/routed",
    /// Messages that their client has got: with QoS 1 and 2 it has said so, with QoS 0 it was sent.
    acknowledged: "account/queues/acknowledged",
    /// Messages that their client has refused; they count as delivered \[MQTT-4.4.0-2\].
    refused_by_client: "account/queues/refused_by_client",
    /// Messages on their way, until the client has said the last word.
    in_flight: "account/queues/in_flight",
    /// Messages that wait.
    queued: "account/queues/queued",
    /// What those take, in bytes.
    queued_bytes: "account/queues/queued_bytes",
    /// Messages that expired while they waited.
    expired: "account/queues/expired",
    /// Messages larger than what their client takes; they count as delivered \[MQTT-3.1.2-25\].
    too_large: "account/queues/too_large",
    /// Messages that made room for newer ones in a full queue.
    dropped_oldest: "account/queues/dropped_oldest",
    /// Messages for which there was no room in a full queue.
    dropped_newest: "account/queues/dropped_newest",
    /// Messages that waited or were on their way when their session ended, or their group lost its last member.
    discarded: "account/queues/discarded",

    /// Sessions that ended because a queue was full.
    ended_by_full_queue: "sessions/ended_by_full_queue",
    /// Sessions that expired.
    sessions_expired: "clients/expired",
    /// CONNECTs refused because there are as many sessions as there may be.
    sessions_refused: "refused/sessions",
    /// Shared subscriptions refused because their client has as many as it may have, or there are as many groups on their
    /// filter as there may be.
    shared_subscriptions_refused: "refused/shared_subscriptions",
    /// Messages that nobody got, because one of their queues was full.
    publishes_refused: "refused/queue_full",
    /// CONNECTs that would have begun something new, refused because memory is short.
    connects_refused_memory: "refused/memory/connects",
    /// Messages that nobody got, because memory is short and they would have had to wait or to be retained.
    publishes_refused_memory: "refused/memory/publishes",
    /// Records that could not be made.
    commits_refused: "refused/commits",
    /// Retained messages of QoS 0 that were given out, and kept in memory only.
    unrecorded: "retained messages/unrecorded",
    /// Acknowledgements that waited because a queue had grown too much.
    withheld: "held/queues",
}

/// Values that a part of the broker tells about itself, such as the keeper of the records.
pub trait Instruments: fmt::Debug + Send + Sync {
    /// Says each value with its topic below `$SYS/broker/`. Rates are those since the last time.
    fn read(&self, say: &mut dyn FnMut(&str, String));
}
