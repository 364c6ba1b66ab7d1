//! Back pressure: publishers that are not read while a subscriber of theirs, or a mailbox, is full; and the
//! judgement which full subscribers are worth waiting for.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use index::{ConnectionId, Identity, Level, ShardId, Subscriber};

/// How often full subscribers are looked at.
pub(crate) const JUDGE_MS: u64 = 100;
/// Without any progress for so long a subscriber is slow, whoever else is full.
const PATIENCE_MS: u64 = 5_000;
/// Without any for so long it is given up: what waits for it is memory that others need.
const GIVEN_UP_MS: u64 = 60_000;

/// Why a publisher is not read.
#[derive(Debug, Clone)]
pub(crate) enum Blocker {
    /// A subscriber has more waiting than it should.
    Subscriber {
        subscriber: Arc<Subscriber>,
        /// The publisher has other subscribers, who wait with it.
        holds_others: bool,
    },
    /// Another shard has not read its mail.
    Shard(ShardId),
    /// The ledger has not read its commands.
    Ledger,
    /// It does not take what it is sent itself.
    Itself,
    /// It has published more than was answered, in a version that has no Receive Maximum.
    Answers,
}

/// The publishers of one shard that wait, by what they wait for.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// By the identity of the subscriber.
    subscribers: HashMap<u64, Vec<ConnectionId>>,
    shards: HashMap<ShardId, Vec<ConnectionId>>,
    ledger: Vec<ConnectionId>,
}

impl Waiting {
    pub(crate) fn add(&mut self, publisher: ConnectionId, blocker: &Blocker) {
        match blocker {
            Blocker::Subscriber { subscriber, .. } => {
                self.subscribers.entry(subscriber.identity()).or_default().push(publisher);
            }
            Blocker::Shard(shard) => self.shards.entry(*shard).or_default().push(publisher),
            Blocker::Ledger => self.ledger.push(publisher),
            Blocker::Itself | Blocker::Answers => {}
        }
    }

    /// Takes everybody who waits for a subscriber. One that has ended since is in it still.
    pub(crate) fn take_for_subscriber(&mut self, subscriber: &Arc<Subscriber>) -> Vec<ConnectionId> {
        self.subscribers.remove(&subscriber.identity()).unwrap_or_default()
    }

    pub(crate) fn take_for_shard(&mut self, shard: ShardId) -> Vec<ConnectionId> {
        self.shards.get_mut(&shard).map(std::mem::take).unwrap_or_default()
    }

    pub(crate) fn take_for_ledger(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.ledger)
    }
}

/// The subscribers of one shard that are over their mark or slow.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    watched: BTreeMap<ConnectionId, Watched>,
    next_ms: u64,
}

#[derive(Debug)]
struct Watched {
    subscriber: Arc<Subscriber>,
    /// All that its socket has taken, when we last looked.
    taken: u64,
    looked_ms: u64,
    moved_ms: u64,
}

/// What the judge has to know of a watched subscriber.
pub(crate) struct Reading {
    /// All that its socket has taken.
    pub(crate) taken: u64,
    /// What waits for it.
    pub(crate) waiting: usize,
}

/// What becomes of a watched subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It makes no progress worth waiting for.
    Slow,
    /// It was slow, and everything that waited has been taken.
    Open,
    /// It has made none for so long that it is ended.
    GivenUp,
}

impl Judge {
    /// A subscriber has gone over its mark.
    pub(crate) fn watch(
        &mut self,
        connection: ConnectionId,
        subscriber: &Arc<Subscriber>,
        taken: u64,
        now_ms: u64,
    ) {
        if self.watched.is_empty() {
            self.next_ms = now_ms + JUDGE_MS;
        }
        // One that was open in between and is full again is still the same to us.
        self.watched.entry(connection).or_insert_with(|| {
            let subscriber = Arc::clone(subscriber);
            Watched { subscriber, taken, looked_ms: now_ms, moved_ms: now_ms }
        });
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        (!self.watched.is_empty()).then_some(self.next_ms)
    }

    /// Judges by progress. Everybody saturated is flow control: those who keep up with a quarter of the
    /// median are waited for. One that lags behind must not hold the others.
    pub(crate) fn judge(
        &mut self,
        now_ms: u64,
        mut read: impl FnMut(ConnectionId) -> Option<Reading>,
    ) -> Vec<(ConnectionId, Arc<Subscriber>, Verdict)> {
        let mut verdicts = Vec::new();
        if self.watched.is_empty() || now_ms < self.next_ms {
            return verdicts;
        }
        self.next_ms = now_ms + JUDGE_MS;
        let mut progress: Vec<(ConnectionId, u64)> = Vec::new();
        self.watched.retain(|connection, watched| {
            let Some(reading) = read(*connection) else { return false };
            let gauge = &watched.subscriber.gauge;
            match gauge.level() {
                Level::Open if !gauge.is_marked_behind() => return false,
                Level::Slow if reading.waiting == 0 => {
                    verdicts.push((*connection, Arc::clone(&watched.subscriber), Verdict::Open));
                    return false;
                }
                Level::Slow | Level::Over | Level::Open => {}
            }
            // One that was watched for a moment only has had no time to show anything.
            if now_ms - watched.looked_ms >= JUDGE_MS {
                progress.push((*connection, watched.look(&reading, now_ms)));
            }
            true
        });
        let median = median(progress.iter().map(|(_, taken)| *taken));
        for (connection, taken) in progress {
            let watched = &self.watched[&connection];
            if let Some(verdict) = watched.verdict(taken, median, now_ms) {
                verdicts.push((connection, Arc::clone(&watched.subscriber), verdict));
            }
        }
        verdicts
    }
}

impl Watched {
    /// What it has taken since the last look.
    fn look(&mut self, reading: &Reading, now_ms: u64) -> u64 {
        let taken = reading.taken.wrapping_sub(self.taken);
        if taken > 0 {
            self.moved_ms = now_ms;
        }
        self.taken = reading.taken;
        self.looked_ms = now_ms;
        taken
    }

    fn verdict(&self, taken: u64, median: u64, now_ms: u64) -> Option<Verdict> {
        let gauge = &self.subscriber.gauge;
        let still_ms = now_ms - self.moved_ms;
        if still_ms >= GIVEN_UP_MS {
            return Some(Verdict::GivenUp);
        }
        let is_full = gauge.level() == Level::Over || gauge.is_behind();
        let lags = taken < median / 4 || (taken == 0 && gauge.holds_others());
        (is_full && (lags || still_ms >= PATIENCE_MS)).then_some(Verdict::Slow)
    }
}

fn median(values: impl Iterator<Item = u64>) -> u64 {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(slot: u32) -> ConnectionId {
        ConnectionId { slot, generation: 0 }
    }

    fn subscriber(slot: u32) -> Arc<Subscriber> {
        let subscriber = Subscriber::new("s".into(), ShardId::new(0), connection(slot));
        subscriber.gauge.set(Level::Over);
        Arc::new(subscriber)
    }

    fn reading(taken: u64) -> Option<Reading> {
        Some(Reading { taken, waiting: 1_000 })
    }

    #[test]
    fn all_saturated_alike_are_waited_for() {
        let mut judge = Judge::default();
        (0..10).for_each(|slot| judge.watch(connection(slot), &subscriber(slot), 0, 0));
        for round in 1..100 {
            let taken = |at: ConnectionId| reading(round * (1_000 + u64::from(at.slot)));
            assert!(judge.judge(round * JUDGE_MS, taken).is_empty());
        }
    }

    #[test]
    fn one_that_lags_behind_its_peers_is_slow_at_once() {
        let mut judge = Judge::default();
        (0..5).for_each(|slot| judge.watch(connection(slot), &subscriber(slot), 0, 0));
        let taken = |at: ConnectionId| reading(if at.slot == 3 { 10 } else { 1_000 });
        let verdicts = judge.judge(JUDGE_MS, taken);
        assert_eq!(verdicts.len(), 1);
        assert_eq!((verdicts[0].0.slot, verdicts[0].2), (3, Verdict::Slow));
    }

    #[test]
    fn one_that_holds_nobody_else_has_five_seconds() {
        let mut judge = Judge::default();
        judge.watch(connection(1), &subscriber(1), 0, 0);
        assert!(judge.judge(JUDGE_MS, |_| reading(0)).is_empty());
        assert!(judge.judge(PATIENCE_MS - 1, |_| reading(0)).is_empty());
        assert_eq!(judge.judge(2 * PATIENCE_MS, |_| reading(0))[0].2, Verdict::Slow);
    }

    #[test]
    fn one_that_stands_still_and_holds_others_is_slow_at_once() {
        let mut judge = Judge::default();
        let still = subscriber(1);
        judge.watch(connection(1), &still, 0, 0);
        assert!(still.gauge.wait(ShardId::new(7), true), "a publisher of another shard waits, with others");
        assert_eq!(judge.judge(JUDGE_MS, |_| reading(0))[0].2, Verdict::Slow);
    }

    #[test]
    fn nobody_is_judged_on_a_moment() {
        let mut judge = Judge::default();
        judge.watch(connection(1), &subscriber(1), 0, 0);
        judge.watch(connection(2), &subscriber(2), 0, JUDGE_MS - 1);
        let taken = |at: ConnectionId| reading(if at.slot == 1 { 1_000 } else { 0 });
        assert!(judge.judge(JUDGE_MS, taken).is_empty());
    }

    #[test]
    fn one_that_goes_over_again_and_again_is_one() {
        let mut judge = Judge::default();
        let busy = subscriber(1);
        for round in 0..1_000 {
            judge.watch(connection(1), &busy, round * 10, round * 10);
            assert!(judge.judge(round * 10, |_| reading(round * 10)).is_empty());
        }
        assert_eq!(judge.watched.len(), 1);
    }

    #[test]
    fn one_that_takes_nothing_for_a_minute_is_given_up() {
        let mut judge = Judge::default();
        let still = subscriber(1);
        judge.watch(connection(1), &still, 0, 0);
        assert_eq!(judge.judge(GIVEN_UP_MS - 1, |_| reading(0))[0].2, Verdict::Slow);
        still.gauge.set(Level::Slow);
        assert_eq!(judge.judge(2 * GIVEN_UP_MS, |_| reading(0))[0].2, Verdict::GivenUp);
    }

    #[test]
    fn a_slow_one_is_open_again_when_it_has_taken_everything() {
        let mut judge = Judge::default();
        let slow = subscriber(1);
        judge.watch(connection(1), &slow, 0, 0);
        slow.gauge.set(Level::Slow);
        assert!(judge.judge(JUDGE_MS, |_| reading(500)).is_empty());
        let empty = |_: ConnectionId| Some(Reading { taken: 1_500, waiting: 0 });
        assert_eq!(judge.judge(2 * JUDGE_MS, empty)[0].2, Verdict::Open);
        assert_eq!(judge.poll_timeout(), None);
    }
}
