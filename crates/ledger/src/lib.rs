//! The ledger: the one writer of what must last or must have one order.
//!
//! Client identifiers, retained messages and wills need one answer each: who holds this identifier, which value
//! won, was that will sent. One state machine gives it, without locks and without depending on how many shards
//! ask. [`Command`]s go in, [`Reply`]s come out through [`Effects`]; what a shard posts before another of its
//! commands is carried out before it.
//!
//! Everything is kept in memory: it ends with the process.

#![forbid(unsafe_code)]

mod claims;
mod command;
mod retained;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use index::{ConnectionId, ShardId, Subscriptions, Targets};
use session::{Message, Now};
use topic::TopicFilter;

pub use command::{Command, CursorId, Effects, Left, Reply};
pub use retained::{Cursor, Retained, Step, Stored, Stride};

use claims::{Claims, Outcome};

/// One step of a retained cursor ends with the message that reaches this size...
const STEP_BYTES: usize = 64 * 1024;
/// ... or after looking at as many values, so that nobody waits behind a filter that matches little.
const STEP_VISITS: usize = 1_000;
/// So many steps are made before new commands are looked at.
const STEPS_AT_A_TIME: usize = 16;
/// Expired values are looked for this often, as many at a time as one step visits.
const SWEEP_MS: u64 = 1_000;

/// What bounds a ledger, and what makes one unlike another.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Topics and messages that are retained take at most so many bytes.
    pub retained_bytes_max: usize,
    /// Keys the hash of client identifiers, which peers choose.
    pub seed: u64,
}

/// The state machine. See the crate's documentation.
#[derive(Debug)]
pub struct Ledger {
    index: Arc<Subscriptions>,
    claims: Claims,
    retained: Retained,
    cursors: BTreeMap<WalkKey, Walk>,
    /// Cursors whose next step was asked for and is not done, in the order in which they asked.
    asked: VecDeque<WalkKey>,
    next_sweep_ms: u64,
    gauges: Arc<Gauges>,
}

/// What the ledger holds, for whoever shows it.
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
}

type WalkKey = (ShardId, ConnectionId, CursorId);

/// A cursor, and whether it stands in the queue for a step.
#[derive(Debug)]
struct Walk {
    cursor: Cursor,
    asked: bool,
}

impl Ledger {
    /// An empty ledger that finds the targets of retained messages and wills in `index`.
    #[must_use]
    pub fn new(settings: Settings, index: Arc<Subscriptions>) -> Self {
        Self {
            index,
            claims: Claims::new(settings.seed),
            retained: Retained::new(settings.retained_bytes_max),
            cursors: BTreeMap::new(),
            asked: VecDeque::new(),
            next_sweep_ms: 0,
            gauges: Arc::default(),
        }
    }

    /// What it holds, kept up to date while it works.
    #[must_use]
    pub fn gauges(&self) -> Arc<Gauges> {
        Arc::clone(&self.gauges)
    }

    /// Carries out one command of a shard.
    pub fn handle(&mut self, from: ShardId, command: Command, to: &mut impl Effects) {
        match command {
            Command::Claim { subscriber } => {
                let outcome = self.claims.claim(&subscriber);
                Self::tell(outcome, to);
            }
            Command::Left(left) => self.left(from, left, to),
            Command::Publish { connection, message } => {
                self.publish(&message, to);
                if let Some(connection) = connection {
                    to.post(from, Reply::Decided { connection });
                }
            }
            Command::Retained { connection, id, filter } => {
                let Ok(filter) = TopicFilter::new(&filter) else {
                    debug_assert!(false, "shards ask with filters that were decoded");
                    return;
                };
                let walk = Walk { cursor: self.retained.cursor(filter), asked: false };
                self.cursors.insert((from, connection, id), walk);
                to.post(from, Reply::Begun { connection, id });
            }
            Command::Credit { connection, id } => self.ask((from, connection, id)),
            Command::Close { connection, id } => drop(self.cursors.remove(&(from, connection, id))),
        }
    }

    /// Does what was put off: one step of each cursor that was asked for one, and a piece of the sweep.
    pub fn work(&mut self, now: Now, to: &mut impl Effects) {
        for _ in 0..self.asked.len().min(STEPS_AT_A_TIME) {
            let Some(key) = self.asked.pop_front() else { break };
            if let Some(walk) = self.cursors.get_mut(&key) {
                walk.asked = false;
                self.step(key, now, to);
            }
        }
        if now.monotonic_ms >= self.next_sweep_ms {
            let expired = self.retained.sweep(STEP_VISITS, now);
            add(&self.gauges.retained_expired, expired);
            self.next_sweep_ms = now.monotonic_ms + SWEEP_MS;
        }
        self.show();
    }

    /// Whether [`work`](Self::work) has something to do at once.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.asked.is_empty()
    }

    /// When [`work`](Self::work) wants to be called again at the latest.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        (!self.retained.is_empty()).then_some(self.next_sweep_ms)
    }

    fn tell(outcome: Outcome, to: &mut impl Effects) {
        if let Some(loser) = outcome.evicted {
            to.post(loser.shard, Reply::Evict { connection: loser.connection });
        }
        if let Some(winner) = outcome.claimed {
            to.post(winner.shard, Reply::Claimed { connection: winner.connection });
        }
    }

    fn left(&mut self, from: ShardId, left: Left, to: &mut impl Effects) {
        self.close_all(from, left.subscriber.connection);
        if let Some(will) = left.will {
            self.publish(&will, to);
        }
        let outcome = self.claims.left(&left.subscriber);
        Self::tell(outcome, to);
    }

    /// Decides a message: from here on its order is fixed.
    fn publish(&mut self, message: &Arc<Message>, to: &mut impl Effects) {
        let stored = message.retain() && self.retain(message);
        let targets = Targets::look_up(&self.index, message.topic(), message.publisher());
        for (shard, list) in targets.shards {
            to.post(shard, Reply::Live { message: Arc::clone(message), targets: list, stored });
        }
    }

    /// Whether the message is the value of its topic from now on.
    fn retain(&mut self, message: &Arc<Message>) -> bool {
        let stored = self.retained.set(message);
        add(&self.gauges.retained_refused, usize::from(stored == Stored::Full));
        stored == Stored::Done && !message.payload().is_empty()
    }

    fn ask(&mut self, key: WalkKey) {
        if let Some(walk) = self.cursors.get_mut(&key)
            && !walk.asked
        {
            walk.asked = true;
            self.asked.push_back(key);
        }
    }

    /// One step of a cursor. One that found nothing yet goes on by itself.
    fn step(&mut self, key: WalkKey, now: Now, to: &mut impl Effects) {
        let Some(walk) = self.cursors.get_mut(&key) else { return };
        let stride = Stride { bytes: STEP_BYTES, visits: STEP_VISITS };
        let Step { messages, done } = self.retained.step(&mut walk.cursor, stride, now);
        if messages.is_empty() && !done {
            return self.ask(key);
        }
        if done {
            self.cursors.remove(&key);
        }
        let (shard, connection, id) = key;
        to.post(shard, Reply::Retained { connection, id, messages, done });
    }

    fn close_all(&mut self, shard: ShardId, connection: ConnectionId) {
        let all = (shard, connection, CursorId(0))..=(shard, connection, CursorId(u32::MAX));
        let keys: Vec<WalkKey> = self.cursors.range(all).map(|(key, _)| *key).collect();
        keys.iter().for_each(|key| drop(self.cursors.remove(key)));
    }

    fn show(&self) {
        self.gauges.retained_messages.store(self.retained.len(), Ordering::Relaxed);
        self.gauges.retained_bytes.store(self.retained.bytes(), Ordering::Relaxed);
    }
}

fn add(counter: &AtomicUsize, by: usize) {
    counter.fetch_add(by, Ordering::Relaxed);
}
