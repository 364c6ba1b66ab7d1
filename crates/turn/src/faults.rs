//! Faults that the simulator plants on purpose, to prove that its runs find them.
//!
//! Only the feature `faults` makes it possible to plant one. Without it every question is answered at compile time.

/// One line that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A shard that waits for room in another shard's inbox is not told that there is room.
    ForgottenResume,
    /// A shard posts its commands to the ledger before its mail to other shards.
    MailBehindCommands,
    /// A stream that was not read to its end is not read again.
    LostWakeUp,
    /// The output of a connection that is gone stays on the account of memory.
    BudgetKept,
    /// The rest of an output over its mark is dropped when its stream takes only a part.
    OutputFreedEarly,
}

impl Fault {
    /// All faults that can be planted.
    pub const ALL: [Self; 5] = [
        Self::ForgottenResume,
        Self::MailBehindCommands,
        Self::LostWakeUp,
        Self::BudgetKept,
        Self::OutputFreedEarly,
    ];

    /// Whether this thread has planted the fault.
    #[cfg(feature = "faults")]
    pub(crate) fn is_planted(self) -> bool {
        PLANTED.get() == Some(self)
    }

    /// Whether this thread has planted the fault.
    #[cfg(not(feature = "faults"))]
    #[allow(clippy::unused_self, reason = "the other one asks which it is")]
    pub(crate) const fn is_planted(self) -> bool {
        false
    }
}

#[cfg(feature = "faults")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault for all event loops of this thread, or takes it out.
#[cfg(feature = "faults")]
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}
