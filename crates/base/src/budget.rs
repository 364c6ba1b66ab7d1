//! The account of all memory that peers can make the process hold, by purpose.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Share of the limit above which nothing new is admitted. The rest is for what was admitted before.
const TIGHT_SIXTEENTHS: usize = 15;
/// Share above which nothing is added to state that stays when everybody disconnects. Somebody can still connect and
/// clear it.
const KEPT_SIXTEENTHS: usize = 14;
/// Divisor of the limit for what ends with its connection, where the state that stays has taken the whole limit: its clients
/// have to connect to take or end it.
const VISITORS_PART: usize = 16;
/// Share at which a round of relief ends no more clients.
const RELIEVED_SIXTEENTHS: usize = 13;
/// Divisor of the limit for the beginnings of packets.
const CROWDED_PART: usize = 2;
/// Divisor of the limit for the subscriptions of one client.
const SUBSCRIPTIONS_OF_ONE_PART: usize = 8;
/// Divisor of the limit for all subscriptions, beyond which clients with more than a few of them get no more.
const SUBSCRIPTIONS_PART: usize = 4;
/// Divisor of the limit for the subscriptions that a client may always have, whatever the others have.
const FEW_SUBSCRIPTIONS_PART: usize = 1_024;

/// The purposes, each with its topic below `$SYS/broker/memory/`.
macro_rules! purposes {
    ($($(#[doc = $text:literal])+ $name:ident: $topic:literal,)+) => {
        /// The purpose for which memory is charged.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Purpose { $($(#[doc = $text])+ $name,)+ }

        impl Purpose {
            /// All purposes, in the order of their numbers.
            pub const ALL: [Self; [$(Self::$name),+].len()] = [$(Self::$name),+];

            /// Name of the purpose in its topic.
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
    /// Beginnings of incomplete packets.
    Partials: "partial_packets",
    /// Output that waits for sockets.
    Outputs: "outputs",
    /// Mail between threads that was not read yet.
    Mail: "mail",
    /// Messages, each counted once: behind windows, in queues, retained, as wills, on their way.
    Messages: "messages",
    /// Entries for messages in queues, behind windows, and in the table of retained messages.
    Places: "places",
    /// Client identifiers, lasting sessions, groups.
    Sessions: "sessions",
    /// Subscriptions with their entries in the index.
    Subscriptions: "subscriptions",
    /// Route caches of publishers.
    Routes: "routes",
    /// State of clients' packets: topic aliases, and open exchanges of QoS 2.
    Inbound: "inbound",
    /// Passwords that wait for their check, with the wills of their clients: these count twice meanwhile.
    Logins: "logins",
    /// Records in memory that were not written to the journal yet.
    Journal: "journal",
    /// Records of a trace that an operator has begun.
    Traces: "traces",
}

const PURPOSES: usize = Purpose::ALL.len();

/// Purposes of what may stay when everybody disconnects.
const KEPT: [Purpose; 4] = [Purpose::Messages, Purpose::Places, Purpose::Sessions, Purpose::Subscriptions];

/// Amount of memory in use, and its limit. Any thread reads and changes it.
///
/// The account refuses nothing itself. Code that admits something new first checks [`is_tight`](Self::is_tight).
/// Operations that free memory, and those that were admitted, are always carried out.
pub struct Budget {
    limit_bytes: AtomicUsize,
    /// Bytes by purpose. An amount may be below zero for a moment, when one thread subtracts it before another adds it.
    held: [AtomicUsize; PURPOSES],
    /// End of the round of relief, on the monotonic clock.
    relief_ends_ms: AtomicU64,
    /// Bytes that the round still has to free.
    relief_bytes: AtomicUsize,
}

impl Budget {
    /// Bytes that may wait for one connected client while memory is short. A smaller amount says nothing about its
    /// progress.
    pub const WAITING_BYTES_ALLOWED: usize = 16 * 1024;

    /// An account with nothing in use.
    #[must_use]
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            limit_bytes: AtomicUsize::new(limit_bytes),
            held: Default::default(),
            relief_ends_ms: AtomicU64::new(0),
            relief_bytes: AtomicUsize::new(0),
        }
    }

    /// The limit, in bytes.
    #[must_use]
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Changes the limit. If more is in use than a lower limit allows, nothing new is admitted until less is.
    pub fn set_limit_bytes(&self, limit_bytes: usize) {
        self.limit_bytes.store(limit_bytes, Ordering::Relaxed);
    }

    /// Memory in use for one purpose, in bytes.
    #[must_use]
    pub fn held_bytes(&self, purpose: Purpose) -> usize {
        let held = self.held[purpose as usize].load(Ordering::Relaxed);
        if held.cast_signed() < 0 { 0 } else { held }
    }

    /// Memory in use for all purposes together, in bytes.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        let held = self.held.iter().map(|held| held.load(Ordering::Relaxed));
        let sum = held.fold(0, usize::wrapping_add);
        if sum.cast_signed() < 0 { 0 } else { sum }
    }

    /// Bytes in use above which nothing new is admitted: 15/16 of the limit.
    #[must_use]
    pub fn tight_bytes(&self) -> usize {
        self.limit_bytes() / 16 * TIGHT_SIXTEENTHS
    }

    /// Whether nothing new may be admitted.
    #[must_use]
    pub fn is_tight(&self) -> bool {
        self.used_bytes() > self.tight_bytes()
    }

    /// Whether nothing may be added to state that stays when nobody is connected: queues and retained messages.
    #[must_use]
    pub fn is_tight_to_keep(&self) -> bool {
        self.used_bytes() > self.limit_bytes() / 16 * KEPT_SIXTEENTHS
    }

    /// Whether one purpose, which must leave room for all others, has more than half of the limit.
    #[must_use]
    pub fn is_crowded_by(&self, purpose: Purpose) -> bool {
        self.held_bytes(purpose) > self.limit_bytes() / CROWDED_PART
    }

    /// Whether a client whose subscriptions take this many bytes has its share of memory for subscriptions. No client
    /// can be ended for its subscriptions, so they must leave room for everything else.
    #[must_use]
    pub fn has_share_of_subscriptions(&self, bytes: usize) -> bool {
        let few = Self::WAITING_BYTES_ALLOWED.max(self.limit_bytes() / FEW_SUBSCRIPTIONS_PART);
        let is_crowded = || self.held_bytes(Purpose::Subscriptions) > self.limit_bytes() / SUBSCRIPTIONS_PART;
        bytes > few && (bytes > self.limit_bytes() / SUBSCRIPTIONS_OF_ONE_PART || is_crowded())
    }

    /// Whether a round of relief has freed enough memory for a while.
    #[must_use]
    pub fn is_relieved(&self) -> bool {
        self.used_bytes() <= self.relieved_bytes()
    }

    fn relieved_bytes(&self) -> usize {
        self.limit_bytes() / 16 * RELIEVED_SIXTEENTHS
    }

    /// Begins a round in which clients are ended to free memory, unless a round has begun less than `round_ms` ago. The
    /// round is to free all bytes above 13/16 of the limit. All threads share it, so that together they do not free
    /// more. The memory of ended clients is free before the next round.
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

    /// Asks to end a client with this many bytes in this round. Returns whether the round wants more; then the bytes
    /// count as freed.
    pub fn take_relief(&self, bytes: usize) -> bool {
        let rest = |wanted: usize| (wanted > 0).then(|| wanted.saturating_sub(bytes));
        self.relief_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_ok()
    }

    /// Whether nothing is left of the limit.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.used_bytes() > self.limit_bytes()
    }

    /// Whether there is no memory for a connection. State that stays when everybody disconnects does not keep its clients
    /// out, even if it takes the whole limit, as after a restart with a lower one. A sixteenth of the limit is left for them.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let limit_bytes = self.limit_bytes();
        let used_bytes = self.used_bytes();
        let kept_bytes: usize = KEPT.iter().map(|purpose| self.held_bytes(*purpose)).sum();
        used_bytes > limit_bytes && used_bytes.saturating_sub(kept_bytes) > limit_bytes / VISITORS_PART
    }

    /// Whether messages may be read back from disk for their readers. When nothing is left of the limit, readers that
    /// do not read the messages sent to them can hold a sixteenth of it.
    #[must_use]
    pub fn may_read_back(&self) -> bool {
        let sent_bytes = || self.held_bytes(Purpose::Outputs) + self.held_bytes(Purpose::Mail);
        !self.is_full() || sent_bytes() <= self.limit_bytes() / VISITORS_PART
    }

    /// Charges this many bytes, until the charge is dropped.
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

/// An account without a limit.
impl Default for Budget {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = |purpose: &Purpose| (purpose.topic(), self.held_bytes(*purpose));
        f.debug_map().entry(&"limit", &self.limit_bytes()).entries(Purpose::ALL.iter().map(held)).finish()
    }
}

/// Bytes of a budget, until this is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    purpose: Purpose,
    bytes: usize,
}

/// Charges the same amount again, because the charged object was copied.
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

/// Memory of one thread that changes constantly. The account is updated from time to time.
#[derive(Debug)]
pub struct Tally {
    budget: Arc<Budget>,
    /// Bytes by purpose: in use, and known to the account.
    held: [usize; PURPOSES],
    told: [usize; PURPOSES],
}

impl Tally {
    /// A tally with nothing in use.
    #[must_use]
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { budget, held: [0; PURPOSES], told: [0; PURPOSES] }
    }

    /// The account of this tally.
    #[must_use]
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// Memory of this thread for a purpose, in bytes.
    #[must_use]
    pub fn held_bytes(&self, purpose: Purpose) -> usize {
        self.held[purpose as usize]
    }

    /// Adds bytes to a purpose.
    pub fn add(&mut self, purpose: Purpose, bytes: usize) {
        self.held[purpose as usize] += bytes;
    }

    /// Subtracts bytes from a purpose.
    pub fn sub(&mut self, purpose: Purpose, bytes: usize) {
        let held = &mut self.held[purpose as usize];
        debug_assert!(*held >= bytes, "nothing is given back for {purpose:?} that was not taken");
        *held = held.saturating_sub(bytes);
    }

    /// Sets the bytes of a purpose.
    pub fn set(&mut self, purpose: Purpose, bytes: usize) {
        self.held[purpose as usize] = bytes;
    }

    /// Reports all changes since the last call to the account.
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

/// Subtracts everything when the thread ends.
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
    fn dropped_charges_return_their_bytes_to_the_budget() {
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
    fn readers_that_take_nothing_hold_a_part_of_a_full_memory() {
        let budget = Arc::new(Budget::new(1_600));
        let outputs = budget.charge(Purpose::Outputs, 101);
        assert!(budget.may_read_back(), "there is memory");
        let _queues = budget.charge(Purpose::Messages, 2_000);
        assert!(!budget.may_read_back());
        drop(outputs);
        let _outputs = budget.charge(Purpose::Outputs, 60);
        let _mail = budget.charge(Purpose::Mail, 40);
        assert!(budget.may_read_back());
    }

    /// A client whose queues fill the memory has to connect to receive its messages.
    #[test]
    fn state_that_stays_does_not_close_the_doors_alone() {
        let budget = Arc::new(Budget::new(1_600));
        let _queues = budget.charge(Purpose::Messages, 2_000);
        assert!(budget.is_full() && !budget.is_closed());
        let some = budget.charge(Purpose::Connections, 100);
        assert!(!budget.is_closed());
        let more = budget.charge(Purpose::Logins, 1);
        assert!(budget.is_closed());
        drop((some, more));
        let _outputs = budget.charge(Purpose::Outputs, 101);
        assert!(budget.is_closed());
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
