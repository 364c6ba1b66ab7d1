//! How safe a record is before an answer that promises something is sent.

/// What an answer waits for that promises something: the choice of the listener on which its connection came. Recorded is
/// the same in every case. The safest is the greatest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Durability {
    /// Nothing: what was acknowledged in the last moments before an end of the process may be lost.
    None,
    /// The write: it survives the end of the process, and not that of the machine.
    Os,
    /// The sync: what was acknowledged survives a loss of power.
    #[default]
    Fsync,
}
