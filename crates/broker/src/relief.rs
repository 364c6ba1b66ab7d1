//! Relief while memory is short: a client that holds it and makes no progress is ended by the clock, so that room comes
//! back though nobody sends anything.
//!
//! A look costs nothing while there is memory. While there is none, it visits the connections of the shard in slices,
//! notes those that hold more than they need to, and visits the noted ones again after [`LOOK_MS`].

use index::ConnectionId;
use session::{Budget, Now, Purpose};

use crate::client::Client;
use crate::shard::CONNECTION_BYTES;
use crate::{Effects, Shard};

/// Time between two looks, in which a client has to make progress.
const LOOK_MS: u64 = 3_000;
/// So many connections are visited in one turn.
const VISITS_AT_A_TIME: u32 = 4_096;
/// So many connections are ended in one turn.
const ENDED_AT_A_TIME: usize = 64;
/// The next slice follows after so long.
const SLICE_MS: u64 = 1;
/// A packet is under way while as much of it comes from one look to the next, as for Keep Alive: 1 KiB/s.
const PARTIAL_PROGRESS_BYTES: usize = 3 * 1_024;
/// The beginning of a packet that is no larger than what its connection takes anyway is left alone.
const PARTIAL_BYTES_ALLOWED: usize = CONNECTION_BYTES;

/// What is looked for at the moment.
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
    /// The largest last.
    Ending {
        stalled: Vec<Stalled>,
        wanted_bytes: usize,
    },
}

/// A client that held more than it needed to, and how far it was.
#[derive(Debug, Clone, Copy)]
struct Noted {
    id: ConnectionId,
    heard_ms: u64,
    held: Held,
    /// What it had taken and acknowledged.
    moved: u64,
}

/// What is held for one client, in bytes.
#[derive(Debug, Clone, Copy)]
struct Held {
    /// The beginning of a packet, while the rest of it may come.
    partial: usize,
    /// Topic aliases and exchanges of QoS 2.
    inbound: usize,
    /// What it does not take or does not acknowledge.
    waiting: usize,
}

#[derive(Debug, Clone, Copy)]
struct Stalled {
    bytes: usize,
    id: ConnectionId,
}

impl Relief {
    /// Somebody is there who may hold memory.
    pub(crate) fn arm(&mut self, now: Now) {
        self.next_ms.get_or_insert(now.monotonic_ms + LOOK_MS);
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.next_ms
    }
}

impl Held {
    fn of(id: ConnectionId, client: &Client, to: &impl Effects) -> Self {
        // We do not read it: what it has sent is not its fault.
        let is_read = client.blocked.is_none() && !client.session.is_claiming();
        Self {
            partial: if is_read { client.session.partial_bytes() } else { 0 },
            inbound: client.inbound_bytes,
            waiting: to.waiting_bytes(id) + client.session.waiting_bytes(),
        }
    }

    fn is_worth_noting(self) -> bool {
        self.partial > PARTIAL_BYTES_ALLOWED
            || self.inbound > Budget::WAITING_BYTES_ALLOWED
            || self.waiting > Budget::WAITING_BYTES_ALLOWED
    }
}

impl Noted {
    /// What of it is held still without any progress since then.
    fn stalled_bytes(&self, now: &Self) -> usize {
        let (then, now_held) = (self.held, now.held);
        let came = now_held.partial.saturating_sub(then.partial);
        let is_same_packet = self.heard_ms == now.heard_ms && then.partial > 0;
        let partial = if is_same_packet && came < PARTIAL_PROGRESS_BYTES { now_held.partial } else { 0 };
        // It goes down with PUBREL alone.
        let inbound = if now_held.inbound >= then.inbound { now_held.inbound } else { 0 };
        let waiting = if self.moved == now.moved { now_held.waiting } else { 0 };
        let is_partial = partial > PARTIAL_BYTES_ALLOWED;
        let others = [inbound, waiting].into_iter().filter(|bytes| *bytes > Budget::WAITING_BYTES_ALLOWED);
        others.sum::<usize>() + if is_partial { partial } else { 0 }
    }
}

impl Shard {
    /// Goes on with a look, or begins one.
    pub(crate) fn relieve(&mut self, now: Now, to: &mut impl Effects) {
        if self.relief.next_ms.is_none_or(|at| at > now.monotonic_ms) {
            return;
        }
        let budget = self.tally.budget();
        let is_short = budget.is_tight() || budget.is_crowded_by(Purpose::Partials);
        if !is_short {
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
            Phase::Ending { stalled, wanted_bytes } => {
                (self.end_some(stalled, wanted_bytes, now, to), SLICE_MS)
            }
        };
        let is_noted = matches!(phase, Phase::Noted(_));
        self.relief.phase = phase;
        self.relief.next_ms = Some(now.monotonic_ms + if is_noted { LOOK_MS } else { next_ms });
    }

    fn note_some(&self, next_slot: u32, mut noted: Vec<Noted>, to: &impl Effects) -> Phase {
        let end = next_slot.saturating_add(VISITS_AT_A_TIME).min(self.clients.slots());
        for (id, client) in self.clients.in_slots(next_slot..end) {
            let held = Held::of(id, client, to);
            if held.is_worth_noting() {
                noted.push(self.note(id, client, held, to));
            }
        }
        if end < self.clients.slots() { Phase::Noting { next_slot: end, noted } } else { Phase::Noted(noted) }
    }

    fn note(&self, id: ConnectionId, client: &Client, held: Held, to: &impl Effects) -> Noted {
        let moved = to.taken_bytes(id).wrapping_add(client.acknowledged);
        Noted { id, heard_ms: client.session.heard_ms(), held, moved }
    }

    fn judge_some(&self, mut noted: Vec<Noted>, mut stalled: Vec<Stalled>, to: &impl Effects) -> Phase {
        let rest = noted.len().saturating_sub(VISITS_AT_A_TIME as usize);
        for then in noted.drain(rest..) {
            let Some(client) = self.clients.get(then.id) else { continue };
            let now = self.note(then.id, client, Held::of(then.id, client, to), to);
            let bytes = then.stalled_bytes(&now);
            if bytes > 0 {
                stalled.push(Stalled { bytes, id: then.id });
            }
        }
        if !noted.is_empty() {
            return Phase::Judging { noted, stalled };
        }
        stalled.sort_unstable_by_key(|stalled| stalled.bytes);
        let wanted_bytes = self.tally.budget().wanted_bytes(Purpose::Partials);
        Phase::Ending { stalled, wanted_bytes }
    }

    /// Ends the largest first, until as much as is wanted is free.
    fn end_some(
        &mut self,
        mut stalled: Vec<Stalled>,
        mut wanted_bytes: usize,
        now: Now,
        to: &mut impl Effects,
    ) -> Phase {
        for _ in 0..ENDED_AT_A_TIME {
            let Some(Stalled { bytes, id }) = stalled.pop().filter(|_| wanted_bytes > 0) else {
                return Phase::Resting;
            };
            if self.clients.get(id).is_some() {
                wanted_bytes = wanted_bytes.saturating_sub(bytes);
                self.end_for_memory(
                    id,
                    "the client holds memory that is short, and makes no progress",
                    now,
                    to,
                );
            }
        }
        Phase::Ending { stalled, wanted_bytes }
    }
}
