//! The counts of messages and connections that are kept for each listener and user, beside those of the whole shard.
//!
//! They have the same names as the counters of the shard. An outcome of a copy counts for the receiver, and everything about a
//! received message counts for its publisher.

use std::ops::AddAssign;

use wire::Qos;

use crate::encode::Made;
use crate::{Counter, Counters, Totals};

/// Declares the counts once: field, meaning, and the reason if no total has the same name.
macro_rules! counts {
    ($($(#[doc = $text:literal])+ $name:ident $($own:literal)?,)+) => {
        /// The counts of some connections of one shard.
        #[derive(Debug, Default)]
        pub struct Counts {
            /// PUBLISH packets read, by their QoS.
            pub received: [Counter; Qos::ALL.len()],
            $($(#[doc = $text])+ pub $name: Counter,)+
        }

        /// The sums of such counts at one moment.
        #[derive(Debug, Default, Clone, PartialEq, Eq)]
        pub struct Counted {
            /// PUBLISH packets read, by their QoS.
            pub received: [u64; Qos::ALL.len()],
            $($(#[doc = $text])+ pub $name: u64,)+
        }

        impl AddAssign<&Counts> for Counted {
            fn add_assign(&mut self, counts: &Counts) {
                let by_qos = self.received.iter_mut().zip(&counts.received);
                by_qos.for_each(|(sum, count)| *sum = sum.wrapping_add(count.value()));
                $(self.$name = self.$name.wrapping_add(counts.$name.value());)+
            }
        }

        impl AddAssign<&Counted> for Counted {
            fn add_assign(&mut self, other: &Counted) {
                let by_qos = self.received.iter_mut().zip(&other.received);
                by_qos.for_each(|(sum, count)| *sum = sum.wrapping_add(*count));
                $(self.$name = self.$name.wrapping_add(other.$name);)+
            }
        }

        impl Counted {
            /// The counts that have a total of the same name, each with that total.
            fn compare_each(&self, totals: &Totals) -> impl Iterator<Item = Comparison> + use<> {
                [$(compare!(self, totals, $name $($own)?),)+].into_iter().flatten()
            }
        }
    };
}

macro_rules! compare {
    ($own:ident, $totals:ident, $name:ident) => {
        Some((stringify!($name), $own.$name, $totals.$name))
    };
    ($own:ident, $totals:ident, $name:ident $why:literal) => {
        None
    };
}

// The counts of every message come first, so that they share few lines of the cache.
counts! {
    /// Payload bytes of the PUBLISH packets that were read.
    publish_bytes_received,
    /// Bytes read from sockets.
    bytes_received,
    /// Copies written at QoS 0.
    sent_once,
    /// PUBLISH packets sent at QoS 1 and 2, and out of queues of the ledger.
    sent_otherwise "the total is that of all packets",
    /// Payload bytes of the PUBLISH packets that were sent.
    publish_bytes_sent,
    /// Bytes that sockets took.
    bytes_sent,
    /// Copies sent at QoS 1 and 2, and not acknowledged yet.
    in_flight,
    /// Copies acknowledged, at QoS 1 and 2.
    acknowledged,
    /// Copies that wait behind the window of a client.
    waiting,
    /// Copies given up with the session of a client.
    discarded_session,
    /// Copies dropped because the subscriber is not connected.
    dropped_absent,
    /// Copies dropped because as much waits as may.
    dropped_queue_full,
    /// Copies dropped because the subscriber is slow.
    dropped_slow,
    /// Copies dropped because memory was short.
    dropped_budget,
    /// Copies dropped because the packet is larger than the client takes.
    dropped_too_large,
    /// Copies dropped because they had expired.
    dropped_expired,
    /// Copies dropped because their receiver may not receive them any more.
    dropped_denied,
    /// Messages out of queues of the ledger that were not sent, because their receiver may not receive them any more.
    denied_receive,
    /// PUBLISH packets that nobody subscribed to.
    no_subscribers,
    /// PUBLISH packets that their client may not publish.
    denied_publish,
    /// PUBLISH packets that their client may not publish with this QoS or RETAIN.
    denied_level,
    /// PUBLISH packets with a topic or payload that is not routed.
    dropped_topic,
    /// PUBLISH packets that were refused because they could not be stored.
    refused_publish,
    /// Messages with commands for the broker that were refused.
    refused_control,
    /// Sockets that the listener has accepted.
    sockets,
    /// Connections that were closed by their listener, before they could send anything.
    refused_connections "there are totals by reason",
    /// CONNECT packets refused for any reason.
    refused_connect,
    /// CONNECT packets whose clients were let in.
    connects_accepted,
    /// Clients that are connected at this moment.
    clients_connected,
}

/// A count, the sum over all listeners and users, and the total of the broker.
pub type Comparison = (&'static str, u64, u64);

impl Counted {
    /// PUBLISH packets that were read.
    #[must_use]
    pub fn publish_received(&self) -> u64 {
        self.received.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// PUBLISH packets that were sent.
    #[must_use]
    pub fn publish_sent(&self) -> u64 {
        self.sent_once.wrapping_add(self.sent_otherwise)
    }

    /// PUBLISH packets that the broker did not accept.
    #[must_use]
    pub fn publish_refused(&self) -> u64 {
        [
            self.denied_publish,
            self.denied_level,
            self.dropped_topic,
            self.refused_publish,
            self.refused_control,
        ]
        .into_iter()
        .fold(0, u64::wrapping_add)
    }

    /// Copies for a subscriber that it will not get.
    #[must_use]
    pub fn lost(&self) -> u64 {
        [
            self.discarded_session,
            self.dropped_absent,
            self.dropped_queue_full,
            self.dropped_slow,
            self.dropped_budget,
            self.dropped_too_large,
            self.dropped_expired,
            self.dropped_denied,
        ]
        .into_iter()
        .fold(0, u64::wrapping_add)
    }

    /// Copies of messages that were meant for a subscriber, without those that went into a queue of the ledger: the sum of their
    /// outcomes.
    #[must_use]
    pub fn routed(&self) -> u64 {
        [self.sent_once, self.acknowledged, self.in_flight, self.waiting, self.lost()]
            .into_iter()
            .fold(0, u64::wrapping_add)
    }

    /// Compares the sum over all listeners and users with the totals of the broker.
    pub fn compare(&self, totals: &Totals) -> impl Iterator<Item = Comparison> + use<> {
        let refused_connections = [
            totals.refused_connections_max,
            totals.refused_connections_listener,
            totals.refused_connections_memory,
            totals.refused_proxy,
            totals.refused_connection_rate,
        ];
        let sums = [
            ("publish_received", self.publish_received(), totals.publish_received),
            ("publish_sent", self.publish_sent(), totals.publish_sent),
            ("routed", self.routed(), totals.routed),
            ("refused_connections", self.refused_connections, refused_connections.iter().sum()),
        ];
        sums.into_iter().chain(self.compare_each(totals))
    }
}

/// Counts in both places: for the shard, and for some of its connections.
impl Counters {
    /// Counts PUBLISH packets that were read.
    #[inline]
    pub(crate) fn count_received(&self, counts: &Counts, qos: Qos, (count, payload_bytes): (u64, u64)) {
        self.publish_received.add(count);
        self.publish_bytes_received.add(payload_bytes);
        counts.received[qos as usize].add(count);
        counts.publish_bytes_received.add(payload_bytes);
    }

    /// Counts packets that were sent to a receiver, at QoS 0 or not. What becomes of them is counted in `fates`.
    #[inline]
    pub(crate) fn count_sent(&self, counts: &Counts, is_once: bool, made: &Made) {
        let count = u64::from(made.count);
        self.packets_sent.add(count);
        self.publish_sent.add(count);
        self.publish_bytes_sent.add(made.payload_bytes);
        counts.publish_bytes_sent.add(made.payload_bytes);
        if !is_once {
            counts.sent_otherwise.add(count);
        }
    }
}
