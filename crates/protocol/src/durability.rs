//! Levels of safety of a record before its answer is sent.

/// The event for which an answer with a promise waits, as the listener of its connection chooses. The same records are
/// written in every case. The safest level is the greatest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// No event: messages that were acknowledged shortly before the process ended may be lost.
    None,
    /// The write: the record survives the end of the process, and not the end of the machine.
    Os,
    /// The sync: the record survives a power failure.
    #[default]
    Fsync,
}
