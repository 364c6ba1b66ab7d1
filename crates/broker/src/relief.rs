//! Relief while memory is short: clients that hold memory and make no progress are ended by the clock, so that memory
//! comes back even if nobody sends anything.
//!
//! A look costs nothing while there is memory. Memory is short from the mark on at which durable work is refused (14/16 of
//! the budget): clients that do nothing must not keep others from that either. When memory is short, a look visits the
//! connections of the shard in slices, notes clients that hold more than they need to, and visits the noted clients again
//! after [`LOOK_MS`]. Clients that have stopped in the middle of a packet are ended first: no correct client does that. The
//! largest of them is the first. A round ends when 13/16 are held, so that there is room for a while.

use base::{Budget, ConnectionId, Now};

use crate::client::Client;
use crate::effects::Outside;
use crate::pressure::Blocker;
use crate::{Effects, Shard};

/// Time between two looks, in which a client has to make progress.
const LOOK_MS: u64 = 3_000;
/// Maximum number of connections that are visited in one turn.
const VISITS_AT_A_TIME: u32 = 4_096;
/// Maximum number of connections that are ended in one turn. Each may hold megabytes in many pieces.
const ENDED_AT_A_TIME: usize = 8;
/// Delay before the next slice.
const SLICE_MS: u64 = 1;
/// A packet is under way while as much of it comes from one look to the next, as for Keep Alive: 1 KiB/s.
const PARTIAL_PROGRESS_BYTES: usize = 3 * 1_024;
/// A beginning of a packet up to this size is not looked at, in bytes: its connection costs several times as much.
const PARTIAL_BYTES_ALLOWED: usize = 256;

/// State of the search for clients that hold memory.
#[derive(Debug, Default)]
pub(crate) struct Relief {
    next_ms: Option<u64>,
    phase: Phase,
}

/// ```text
///          memory is short            all visited         LOOK_MS later          all visited
///   Resting ─────────────► Noting ────────────────► Noted ─────────────► Judging ───────────► Ending ──┐
///      ▲                     ▲                        │                                          │     │
///      └─────────────────────┼────────────────────────┴── memory is not short ───────────────────┘     │
///                            └─────────────────────────────────────────────────────────────────────────┘
/// ```
#[derive(Debug, Default)]
enum Phase {
    #[default]
    Resting,
    Noting {
        next_slot: u32,
        noted: Vec<Noted>,
    },
    Noted(Vec<Noted>),
    Judging {
        noted: Vec<Noted>,
        stalled: Vec<Stalled>,
    },
    /// The first one to end is the last.
    Ending(Vec<Stalled>),
}

/// A client that held more than it needed to, and how far it was.
#[derive(Debug, Clone, Copy)]
struct Noted {
    id: ConnectionId,
    heard_ms: u64,
    held: Held,
    /// Sum of the bytes that it had taken and the messages that it had acknowledged.
    moved: u64,
}

/// Memory that is held for one client, in bytes.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// The beginning of a packet, while the rest of it may come.
    partial: usize,
    /// Topic aliases and exchanges of QoS 2.
    inbound: usize,
    /// Messages that it does not read or does not acknowledge.
    waiting: usize,
}

/// A client without progress. The order is that in which clients are ended, beginning with the greatest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stalled {
    /// The client has stopped in the middle of a packet.
    is_partial: bool,
    bytes: usize,
    id: ConnectionId,
}

impl Relief {
    /// Starts the search, because a client is there that may hold memory.
    pub(crate) fn arm(&mut self, now: Now) {
        self.next_ms.get_or_insert(now.monotonic_ms + LOOK_MS);
    }

    /// Nobody could make progress until now: a look that is under way begins anew.
    pub(crate) fn restart(&mut self, now: Now) {
        self.phase = Phase::Resting;
        self.next_ms = self.next_ms.map(|_| now.monotonic_ms);
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.next_ms
    }
}

impl Held {
    fn of(id: ConnectionId, client: &Client, to: &Outside<'_, impl Effects>) -> Self {
        // A client that waits for others cannot send.
        let waits_for_others = match client.blocked.as_deref() {
            None => client.waits(),
            Some(blocker) => !matches!(blocker, Blocker::Itself | Blocker::Pace),
        };
        let (partial, inbound) = (client.session.partial_bytes(), client.inbound_bytes);
        Self {
            partial: if waits_for_others { 0 } else { partial },
            inbound: if waits_for_others { 0 } else { inbound },
            waiting: to.waiting_bytes(id) + client.waiting_bytes(),
        }
    }

    fn is_worth_noting(self) -> bool {
        self.partial > PARTIAL_BYTES_ALLOWED
            || self.inbound > Budget::WAITING_BYTES_ALLOWED
            || self.waiting > Budget::WAITING_BYTES_ALLOWED
    }
}

impl Noted {
    /// Whether the client holds more than it needs to without any progress since then.
    fn stalled(&self, now: &Self) -> Option<Stalled> {
        let (then, now_held) = (self.held, now.held);
        let came = now_held.partial.saturating_sub(then.partial);
        let is_silent = self.heard_ms == now.heard_ms && came < PARTIAL_PROGRESS_BYTES;
        let is_partial = is_silent && then.partial > 0;
        let of = |is_still: bool, bytes: usize, allowed| if is_still && bytes > allowed { bytes } else { 0 };
        let partial = of(is_partial, now_held.partial, PARTIAL_BYTES_ALLOWED);
        // A client that sends packets uses its aliases and ends its exchanges.
        let inbound = of(is_silent, now_held.inbound, Budget::WAITING_BYTES_ALLOWED);
        let waiting = of(self.moved == now.moved, now_held.waiting, Budget::WAITING_BYTES_ALLOWED);
        let bytes = partial + inbound + waiting;
        (bytes > 0).then_some(Stalled { is_partial: partial > 0, bytes, id: self.id })
    }
}

impl Shard {
    /// Goes on with a look, or begins one.
    pub(crate) fn relieve(&mut self, to: &mut Outside<'_, impl Effects>) {
        let now = to.now;
        if self.relief.next_ms.is_none_or(|at| at > now.monotonic_ms) {
            return;
        }
        let budget = self.tally.budget();
        let is_over = match self.relief.phase {
            Phase::Ending(_) => budget.is_relieved(),
            _ => !budget.is_tight_to_keep(),
        };
        if is_over {
            self.relief.phase = Phase::Resting;
            let is_anybody_here = self.counters.sockets.value() > 0;
            self.relief.next_ms = is_anybody_here.then_some(now.monotonic_ms + LOOK_MS);
            return;
        }
        let phase = std::mem::take(&mut self.relief.phase);
        let (phase, next_ms) = match phase {
            Phase::Resting => (self.note_some(0, Vec::new(), to), SLICE_MS),
            Phase::Noting { next_slot, noted } => (self.note_some(next_slot, noted, to), SLICE_MS),
            Phase::Noted(noted) => (self.judge_some(noted, Vec::new(), to), SLICE_MS),
            Phase::Judging { noted, stalled } => (self.judge_some(noted, stalled, to), SLICE_MS),
            Phase::Ending(stalled) => (self.end_some(stalled, to), SLICE_MS),
        };
        let is_noted = matches!(phase, Phase::Noted(_));
        self.relief.phase = phase;
        self.relief.next_ms = Some(now.monotonic_ms + if is_noted { LOOK_MS } else { next_ms });
    }

    fn note_some(&self, next_slot: u32, mut noted: Vec<Noted>, to: &Outside<'_, impl Effects>) -> Phase {
        let end = next_slot.saturating_add(VISITS_AT_A_TIME).min(self.clients.slots());
        for (id, client) in self.clients.in_slots(next_slot..end) {
            let held = Held::of(id, client, to);
            if held.is_worth_noting() {
                noted.push(self.note(id, client, held, to));
            }
        }
        if end < self.clients.slots() { Phase::Noting { next_slot: end, noted } } else { Phase::Noted(noted) }
    }

    fn note(&self, id: ConnectionId, client: &Client, held: Held, to: &Outside<'_, impl Effects>) -> Noted {
        let moved = to.taken_bytes(id).wrapping_add(client.acknowledged);
        Noted { id, heard_ms: client.session.heard_ms(), held, moved }
    }

    fn judge_some(
        &self,
        mut noted: Vec<Noted>,
        mut stalled: Vec<Stalled>,
        to: &Outside<'_, impl Effects>,
    ) -> Phase {
        let now = to.now;
        let rest = noted.len().saturating_sub(VISITS_AT_A_TIME as usize);
        for then in noted.drain(rest..) {
            let Some(client) = self.clients.get(then.id) else { continue };
            let now = self.note(then.id, client, Held::of(then.id, client, to), to);
            stalled.extend(then.stalled(&now));
        }
        if !noted.is_empty() {
            return Phase::Judging { noted, stalled };
        }
        stalled.sort_unstable();
        self.tally.budget().begin_relief(now.monotonic_ms, LOOK_MS);
        Phase::Ending(stalled)
    }

    /// Ends clients until all shards together have ended as much as is wanted. Each slice asks again: another shard may
    /// have done it, and a look is over when memory is not short any more.
    fn end_some(&mut self, mut stalled: Vec<Stalled>, to: &mut Outside<'_, impl Effects>) -> Phase {
        for _ in 0..ENDED_AT_A_TIME {
            let Some(Stalled { bytes, id, .. }) = stalled.pop() else { return Phase::Resting };
            if self.clients.get(id).is_none() {
                continue;
            }
            if !self.tally.budget().take_relief(bytes) {
                return Phase::Resting;
            }
            let why = "the client holds memory that is short, and makes no progress";
            self.end_for_memory(id, why, to);
        }
        Phase::Ending(stalled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that keeps within all three bounds is left alone, whatever else changes before the next look.
    #[test]
    fn a_client_is_noted_that_holds_more_than_is_allowed() {
        let allowed = Held {
            partial: PARTIAL_BYTES_ALLOWED,
            inbound: Budget::WAITING_BYTES_ALLOWED,
            waiting: Budget::WAITING_BYTES_ALLOWED,
        };
        assert!(!allowed.is_worth_noting());
        assert!(Held { partial: allowed.partial + 1, ..allowed }.is_worth_noting());
        assert!(Held { inbound: allowed.inbound + 1, ..allowed }.is_worth_noting());
        assert!(Held { waiting: allowed.waiting + 1, ..allowed }.is_worth_noting());
    }
}
