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
    /// A client that comes back is let in before all shards have what it has published before.
    SkippedRound,
    /// The rest of an output over its mark is dropped when its stream takes only a part.
    OutputFreedEarly,
    /// A shard does not look for the connections of a listener that a reload has removed or changed.
    ForgottenDismissal,
    /// A shard looks for them before it has read the letters in front of that.
    DismissalInFront,
    /// A shard ends connections of other listeners too.
    DismissedOthers,
    /// A shard has the limits of a reload, and goes on with the earlier ones.
    ForgottenLimits,
    /// The same in the ledger.
    ForgottenSettings,
}

impl Fault {
    /// All faults that can be planted.
    pub const ALL: [Self; 11] = [
        Self::ForgottenResume,
        Self::MailBehindCommands,
        Self::LostWakeUp,
        Self::BudgetKept,
        Self::SkippedRound,
        Self::OutputFreedEarly,
        Self::ForgottenDismissal,
        Self::DismissalInFront,
        Self::DismissedOthers,
        Self::ForgottenLimits,
        Self::ForgottenSettings,
    ];

    /// Whether only a run with reloads can find the fault.
    #[must_use]
    pub const fn is_of_reload(self) -> bool {
        match self {
            Self::ForgottenResume
            | Self::MailBehindCommands
            | Self::LostWakeUp
            | Self::BudgetKept
            | Self::SkippedRound
            | Self::OutputFreedEarly => false,
            Self::ForgottenDismissal
            | Self::DismissalInFront
            | Self::DismissedOthers
            | Self::ForgottenLimits
            | Self::ForgottenSettings => true,
        }
    }

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
