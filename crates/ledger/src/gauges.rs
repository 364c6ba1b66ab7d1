//! What a ledger holds, and what became of everything it was given.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Counters and levels, for whoever shows them. The ledger alone writes them.
///
/// Every message that takes the ledger's way to a session or a group is accounted for, once for each of them:
/// `routed = acknowledged + refused_by_client + in_flight + queued + expired + too_large + dropped_oldest +
/// dropped_newest + discarded`. Each term is counted where it happens.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Topics with a retained message.
    pub retained_messages: AtomicUsize,
    /// What they take.
    pub retained_bytes: AtomicUsize,
    /// Messages that were not retained because there was no room.
    pub retained_refused: AtomicUsize,
    /// Retained messages that expired.
    pub retained_expired: AtomicUsize,

    /// Sessions that outlive their connections.
    pub sessions: AtomicUsize,
    /// Of those, the ones with a connection.
    pub sessions_connected: AtomicUsize,
    /// Groups that share a subscription.
    pub groups: AtomicUsize,
    /// Wills that wait for their delay.
    pub wills_pending: AtomicUsize,
    /// Wills that were published.
    pub wills_published: AtomicUsize,

    /// Messages for a queue, one for each queue.
    pub routed: AtomicUsize,
    /// Messages that their client has got: with QoS 1 and 2 it has said so, with QoS 0 it was sent.
    pub acknowledged: AtomicUsize,
    /// Messages that their client has refused; they count as delivered \[MQTT-4.4.0-2\].
    pub refused_by_client: AtomicUsize,
    /// Messages on their way, until the client has said the last word.
    pub in_flight: AtomicUsize,
    /// Messages that wait.
    pub queued: AtomicUsize,
    /// What those take, in bytes.
    pub queued_bytes: AtomicUsize,
    /// Messages that expired while they waited.
    pub expired: AtomicUsize,
    /// Messages larger than what their client takes; they count as delivered \[MQTT-3.1.2-25\].
    pub too_large: AtomicUsize,
    /// Messages that made room for newer ones in a full queue.
    pub dropped_oldest: AtomicUsize,
    /// Messages for which there was no room in a full queue.
    pub dropped_newest: AtomicUsize,
    /// Messages that waited or were on their way when their session ended, or their group lost its last member.
    pub discarded: AtomicUsize,

    /// Sessions that ended because a queue was full.
    pub ended_by_full_queue: AtomicUsize,
    /// Sessions that expired.
    pub sessions_expired: AtomicUsize,
    /// CONNECTs refused because there are as many sessions as there may be.
    pub sessions_refused: AtomicUsize,
    /// Messages that nobody got, because one of their queues was full.
    pub publishes_refused: AtomicUsize,
    /// Records that could not be made.
    pub commits_refused: AtomicUsize,
    /// Retained messages of QoS 0 that were given out, and kept in memory only.
    pub unrecorded: AtomicUsize,
    /// Acknowledgements that waited because a queue had grown too much.
    pub withheld: AtomicUsize,
}

/// There is one writer: no need for an atomic addition, which costs several times as much.
pub(crate) fn add(counter: &AtomicUsize, by: usize) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

pub(crate) fn subtract(counter: &AtomicUsize, by: usize) {
    let before = counter.load(Ordering::Relaxed);
    debug_assert!(before >= by, "nothing is taken away that was not there");
    counter.store(before.wrapping_sub(by), Ordering::Relaxed);
}

/// So many go from one level or counter to another.
pub(crate) fn shift(from: &AtomicUsize, to: &AtomicUsize, by: usize) {
    subtract(from, by);
    add(to, by);
}
