//! How much a turn does, and how much may wait between threads.

/// Bounds of one process, all in bytes. The simulator makes them small, so that they are reached.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// One shard may have this much mail under way to another one before it stops reading what adds to it.
    pub mail: usize,
    /// One shard may have commands of this weight under way to the ledger before it stops reading what adds to them.
    pub commands: usize,
    /// The ledger may have answered a shard this much that is not read; then the ledger does nothing that adds to it. The
    /// ledger answers all that it finds in its inbox at a time, and is not to wait for each shard's turn.
    pub answers: usize,
    /// While a shard has more than this to read of that, the ledger adds nothing that nobody waits for: wills, and steps
    /// of cursors. A shard delivers all that it was answered, and its clients wait meanwhile.
    pub unasked: usize,
    /// A turn of a shard ends its reading of letters with the piece that reaches this.
    pub letters: usize,
    /// An output with more waiting is over its mark, and its publishers are not read.
    pub output: usize,
    /// While more waits in the outputs of the process, more is dropped where it can be.
    pub outputs: usize,
    /// Then this much may wait for a connection all the same: a client that takes its messages does not miss small ones
    /// because of others.
    pub allowance: usize,
    /// One read takes at most this much,
    pub read: usize,
    /// and this much while it continues a packet that is longer than `carry`: a long packet of an honest client needs few
    /// turns, which others may make long. At least `read`.
    pub read_on: usize,
    /// The beginning of a packet up to this size is copied in front of what is read next. A longer one stays where it is,
    /// and what is read next is copied behind it: a read costs little beyond its bytes, however few arrive at a time.
    pub carry: usize,
}

/// The part of what all outputs may hold that one of them may.
const OUTPUT_PART: usize = 4;

impl Bounds {
    /// An output over its mark gets no more messages of QoS 0 while more than this waits in it, in bytes: a quarter of what all
    /// outputs may hold, or its mark. Not every publisher can wait: a client that connects, publishes and leaves has no second
    /// read.
    #[must_use]
    pub fn output_most(&self) -> usize {
        self.output.max(self.outputs / OUTPUT_PART)
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            mail: 1 << 20,
            commands: 1 << 20,
            answers: 4 << 20,
            unasked: 256 << 10,
            letters: 1 << 20,
            output: 256 << 10,
            outputs: usize::MAX,
            allowance: 4 << 10,
            read: 64 << 10,
            read_on: 256 << 10,
            carry: 4 << 10,
        }
    }
}
