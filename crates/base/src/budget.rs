//! One account of memory for a whole process: what peers can make it hold, by what it is held for.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Above this share of its limit a budget is tight: the rest is for what had been admitted before.
const TIGHT_SIXTEENTHS: usize = 15;
/// And above this one nothing is added to what is kept whoever is connected: however much of that there is, somebody can
/// come and take it, or clear it.
const KEPT_SIXTEENTHS: usize = 14;
/// A round of relief ends clients until no more than this share is held.
const RELIEVED_SIXTEENTHS: usize = 13;
/// The beginnings of packets take at most one part in so many.
const CROWDED_PART: usize = 2;
/// The subscriptions of one client take at most one part in so many.
const SUBSCRIPTIONS_OF_ONE_PART: usize = 8;
/// All clients with more than a few subscriptions get no more while all subscriptions take more than one part in so many.
const SUBSCRIPTIONS_PART: usize = 4;
/// A client may have as many subscriptions as take one part in so many, however many the others have.
const FEW_SUBSCRIPTIONS_PART: usize = 1_024;

/// The purposes, each with the topic below `$SYS/broker/memory/` under which it is told.
macro_rules! purposes {
    ($($(#[doc = $text:literal])+ $name:ident: $topic:literal,)+) => {
        /// What memory is held for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Purpose { $($(#[doc = $text])+ $name,)+ }

        impl Purpose {
            /// All of them.
            pub const ALL: [Self; [$(Self::$name),+].len()] = [$(Self::$name),+];

            /// Its name in a topic.
            #[must_use]
            pub fn topic(self) -> &'static str {
                match self { $(Self::$name => $topic,)+ }
            }
        }
    };
}

purposes! {
    /// Connections, whatever they do.
    Connections: "connections",
    /// The beginnings of packets that have not come whole.
    Partials: "partial_packets",
    /// What waits to be written.
    Outputs: "outputs",
    /// What threads have told each other and not read.
    Mail: "mail",
    /// Messages, each once, however many wait for it: behind windows, in queues, retained, as wills, on their way.
    Messages: "messages",
    /// The places of messages in queues, behind windows, and among those retained.
    Places: "places",
    /// Client identifiers, sessions that last, groups.
    Sessions: "sessions",
    /// Subscriptions with their entries in the index.
    Subscriptions: "subscriptions",
    /// Where publishers' last topics led.
    Routes: "routes",
    /// What is remembered of what clients have sent: topic aliases, and exchanges of QoS 2 that are not over.
    Inbound: "inbound",
    /// Records that wait in memory to be written to the journal.
    Journal: "journal",
}

const PURPOSES: usize = Purpose::ALL.len();

/// How much memory is held, and how much may be. Any thread reads and changes it.
///
/// It refuses nothing itself. Who admits something new looks first whether it [`is_tight`](Self::is_tight); what frees
/// memory, and what was admitted, is carried out in any case.
pub struct Budget {
    limit_bytes: usize,
    /// By purpose. One that was taken off on one thread before it was added on another is below zero for a moment.
    held: [AtomicUsize; PURPOSES],
    /// The end of the round of relief, on the monotonic clock.
    relief_ends_ms: AtomicU64,
    /// The bytes that the round still has to free.
    relief_bytes: AtomicUsize,
}

impl Budget {
    /// While memory is short, as much may wait for one client that is connected, in bytes: less than this says nothing
    /// of how it keeps up.
    pub const WAITING_BYTES_ALLOWED: usize = 16 * 1024;

    /// An account on which nothing is held.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            held: Default::default(),
            relief_ends_ms: AtomicU64::new(0),
            relief_bytes: AtomicUsize::new(0),
        }
    }

    /// How much may be held, in bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// How much is held for one purpose, in bytes.
    #[must_use]
    pub fn held_bytes(&self, purpose: Purpose) -> usize {
        let held = self.held[purpose as usize].load(Ordering::Relaxed);
        if held.cast_signed() < 0 { 0 } else { held }
    }

    /// How much is held for all purposes together, in bytes.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        let held = self.held.iter().map(|held| held.load(Ordering::Relaxed));
        let sum = held.fold(0, usize::wrapping_add);
        if sum.cast_signed() < 0 { 0 } else { sum }
    }

    /// Nothing new is to be admitted when more than this is held: 15/16 of the limit.
    #[must_use]
    pub fn tight_bytes(&self) -> usize {
        self.limit_bytes / 16 * TIGHT_SIXTEENTHS
    }

    /// Whether nothing new is to be admitted.
    #[must_use]
    pub fn is_tight(&self) -> bool {
        self.used_bytes() > self.tight_bytes()
    }

    /// Whether nothing is to be added to what is kept while nobody is connected: queues, and what is retained.
    #[must_use]
    pub fn is_tight_to_keep(&self) -> bool {
        self.used_bytes() > self.limit_bytes / 16 * KEPT_SIXTEENTHS
    }

    /// Whether more than half of the limit is held for one purpose, which is to leave room for all others.
    #[must_use]
    pub fn is_crowded_by(&self, purpose: Purpose) -> bool {
        self.held_bytes(purpose) > self.limit_bytes / CROWDED_PART
    }

    /// Whether a client whose subscriptions take this many bytes has its share of memory for subscriptions. No client can be
    /// ended for its subscriptions, so they must leave room for everything else.
    #[must_use]
    pub fn has_share_of_subscriptions(&self, bytes: usize) -> bool {
        let few = Self::WAITING_BYTES_ALLOWED.max(self.limit_bytes / FEW_SUBSCRIPTIONS_PART);
        let is_crowded = || self.held_bytes(Purpose::Subscriptions) > self.limit_bytes / SUBSCRIPTIONS_PART;
        bytes > few && (bytes > self.limit_bytes / SUBSCRIPTIONS_OF_ONE_PART || is_crowded())
    }

    /// Whether a round of relief has freed as much as it should: there is room for a while.
    #[must_use]
    pub fn is_relieved(&self) -> bool {
        self.used_bytes() <= self.relieved_bytes()
    }

    fn relieved_bytes(&self) -> usize {
        self.limit_bytes / 16 * RELIEVED_SIXTEENTHS
    }

    /// Begins a round in which clients are ended to free memory, unless a round has begun less than `round_ms` ago. A round
    /// is to end as many bytes as are held above 13/16 of the limit. All threads share it, so that together they do not
    /// end more than that; what ended clients held comes back before the next round.
    pub fn begin_relief(&self, now_ms: u64, round_ms: u64) {
        let ends_ms = self.relief_ends_ms.load(Ordering::Relaxed);
        let next_ms = now_ms + round_ms;
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        if now_ms >= ends_ms
            && self.relief_ends_ms.compare_exchange(ends_ms, next_ms, order.0, order.1).is_ok()
        {
            let wanted = self.used_bytes().saturating_sub(self.relieved_bytes());
            self.relief_bytes.store(wanted, Ordering::Relaxed);
        }
    }

    /// A client that holds this many bytes may be ended in this round. Returns whether the round wants more; then the
    /// bytes count as freed.
    pub fn take_relief(&self, bytes: usize) -> bool {
        let rest = |wanted: usize| (wanted > 0).then(|| wanted.saturating_sub(bytes));
        self.relief_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_ok()
    }

    /// Whether there is nothing left.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.used_bytes() > self.limit_bytes
    }

    /// Takes so many bytes, which come back when the charge is dropped.
    #[must_use]
    pub fn charge(self: &Arc<Self>, purpose: Purpose, bytes: usize) -> Charge {
        self.add(purpose, bytes);
        Charge { budget: Arc::clone(self), purpose, bytes }
    }

    fn add(&self, purpose: Purpose, bytes: usize) {
        self.held[purpose as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    fn sub(&self, purpose: Purpose, bytes: usize) {
        self.held[purpose as usize].fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Without a limit.
impl Default for Budget {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = |purpose: &Purpose| (purpose.topic(), self.held_bytes(*purpose));
        f.debug_map().entry(&"limit", &self.limit_bytes).entries(Purpose::ALL.iter().map(held)).finish()
    }
}

/// Bytes of a budget, held as long as this lives.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    purpose: Purpose,
    bytes: usize,
}

/// The same again: what is charged has been copied.
impl Clone for Charge {
    fn clone(&self) -> Self {
        self.budget.charge(self.purpose, self.bytes)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.sub(self.purpose, self.bytes);
    }
}

/// What one thread holds of a budget and changes all the time: the account hears of it once in a while.
#[derive(Debug)]
pub struct Tally {
    budget: Arc<Budget>,
    /// By purpose: what is held, and what the account has heard of.
    held: [usize; PURPOSES],
    told: [usize; PURPOSES],
}

impl Tally {
    /// Nothing is held.
    #[must_use]
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { budget, held: [0; PURPOSES], told: [0; PURPOSES] }
    }

    /// The account.
    #[must_use]
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// What this thread holds for a purpose, in bytes.
    #[must_use]
    pub fn held_bytes(&self, purpose: Purpose) -> usize {
        self.held[purpose as usize]
    }

    /// More is held.
    pub fn add(&mut self, purpose: Purpose, bytes: usize) {
        self.held[purpose as usize] += bytes;
    }

    /// Less is held.
    pub fn sub(&mut self, purpose: Purpose, bytes: usize) {
        let held = &mut self.held[purpose as usize];
        debug_assert!(*held >= bytes, "nothing is given back for {purpose:?} that was not taken");
        *held = held.saturating_sub(bytes);
    }

    /// So much is held, whatever it was.
    pub fn set(&mut self, purpose: Purpose, bytes: usize) {
        self.held[purpose as usize] = bytes;
    }

    /// Tells the account what has changed since the last time.
    pub fn settle(&mut self) {
        for purpose in Purpose::ALL {
            let (held, told) = (self.held[purpose as usize], &mut self.told[purpose as usize]);
            if held > *told {
                self.budget.add(purpose, held - *told);
            } else if held < *told {
                self.budget.sub(purpose, *told - held);
            }
            *told = held;
        }
    }
}

/// The thread is gone, and what it held.
impl Drop for Tally {
    fn drop(&mut self) {
        self.held = [0; PURPOSES];
        self.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_comes_back() {
        let budget = Arc::new(Budget::new(1_600));
        let charge = budget.charge(Purpose::Messages, 1_000);
        let copy = charge.clone();
        assert_eq!((budget.used_bytes(), budget.held_bytes(Purpose::Messages)), (2_000, 2_000));
        assert!(budget.is_full());
        drop(charge);
        assert!(!budget.is_tight());
        drop(copy);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn the_last_sixteenth_is_not_for_what_is_new() {
        let budget = Arc::new(Budget::new(1_600));
        let _most = budget.charge(Purpose::Messages, 1_500);
        assert!(!budget.is_tight() && budget.is_tight_to_keep());
        let _more = budget.charge(Purpose::Sessions, 1);
        assert!(budget.is_tight() && !budget.is_full());
    }

    #[test]
    fn one_client_has_an_eighth_for_its_subscriptions_and_all_with_many_have_a_quarter() {
        let budget = Arc::new(Budget::new(16 << 20));
        let has_share = |bytes| budget.has_share_of_subscriptions(bytes);
        assert!(!has_share(2 << 20) && has_share((2 << 20) + 1));
        let all = budget.charge(Purpose::Subscriptions, 4 << 20);
        assert!(!has_share(16 << 10 | 1));
        let more = budget.charge(Purpose::Subscriptions, 1);
        assert!(has_share(16 << 10 | 1) && !has_share(16 << 10), "a few are always possible");
        drop((all, more));
        let large = Budget::new(1 << 30);
        large.add(Purpose::Subscriptions, 1 << 29);
        assert!(!large.has_share_of_subscriptions(1 << 20) && large.has_share_of_subscriptions(1 << 20 | 1));
    }

    #[test]
    fn all_threads_together_free_what_one_round_wants() {
        let budget = Arc::new(Budget::new(1_600));
        let _most = budget.charge(Purpose::Messages, 1_500);
        budget.begin_relief(1_000, 3_000);
        assert!(budget.take_relief(120));
        budget.begin_relief(3_999, 3_000);
        assert!(budget.take_relief(120) && !budget.take_relief(60), "200 bytes are wanted");
        budget.begin_relief(4_000, 3_000);
        assert!(budget.take_relief(60), "nothing came back");
    }

    #[test]
    fn a_tally_is_told_when_it_is_settled_and_gone_when_it_is_dropped() {
        let budget = Arc::new(Budget::default());
        let mut tally = Tally::new(Arc::clone(&budget));
        tally.add(Purpose::Outputs, 100);
        tally.set(Purpose::Places, 10);
        assert_eq!(budget.used_bytes(), 0);
        tally.settle();
        tally.sub(Purpose::Outputs, 40);
        assert_eq!(budget.used_bytes(), 110);
        tally.settle();
        assert_eq!((tally.held_bytes(Purpose::Outputs), budget.used_bytes()), (60, 70));
        drop(tally);
        assert_eq!(budget.used_bytes(), 0);
    }
}
