//! Back pressure: publishers that are not read while a subscriber of theirs, or a mailbox, is full; and the
//! judgement which full subscribers are worth waiting for.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::{ConnectionId, Identity, Level, ShardId, Subscriber};

/// How often full subscribers are looked at.
pub(crate) const JUDGE_MS: u64 = 100;
/// Without progress for this long, in milliseconds, a subscriber is slow, even if others are full too.
const PATIENCE_MS: u64 = 5_000;
/// Without progress for this long, in milliseconds, a subscriber is given up: others need the memory of its waiting
/// messages.
const GIVEN_UP_MS: u64 = 60_000;
/// Time for which an output may be full without a break, before the judge looks at the cost for others, in
/// milliseconds.
const HELD_MS_MAX: u64 = 1_000;
/// Maximum number of waiting publishers from whose side a subscriber is examined.
const WITNESSES: usize = 4;

/// Why a publisher is not read.
#[derive(Debug, Clone)]
pub(crate) enum Blocker {
    /// A subscriber has more waiting than it should.
    Subscriber {
        subscriber: Arc<Subscriber>,
        /// The publisher has others to publish to, who have room.
        holds_others: bool,
    },
    /// Another shard has not read its mail.
    Shard(ShardId),
    /// The ledger has not read its commands.
    Ledger,
    /// The client does not read its own output.
    Itself,
    /// The client has published more than was answered, in a version that has no Receive Maximum.
    Answers,
    /// A SUBSCRIBE or UNSUBSCRIBE of its takes more than one turn.
    Request,
    /// Commands of its are being carried out.
    Control,
    /// The client has published more than its roles allow in this time.
    Pace,
}

/// The order of publishers that wait for a shard or the ledger. A publisher that is read may take all the room there
/// is, and then waits again, before those that stand behind it are read. They find no room, and go before it next time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Line {
    /// Nothing was read since the publisher's turn came.
    Unread,
    /// The publisher was read, until there was no room.
    Served,
}

/// Publishers that wait for a shard or the ledger.
#[derive(Debug, Default)]
struct Lines {
    unread: Vec<ConnectionId>,
    served: Vec<ConnectionId>,
}

/// The publishers of one shard that wait, by what they wait for.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// By the identity of the subscriber.
    subscribers: HashMap<u64, WaitingFor>,
    /// When it is looked at again what that costs.
    next_ms: u64,
    shards: HashMap<ShardId, Lines>,
    ledger: Lines,
}

/// The publishers that wait for one subscriber.
#[derive(Debug)]
struct WaitingFor {
    subscriber: Arc<Subscriber>,
    publishers: Vec<ConnectionId>,
}

impl Waiting {
    pub(crate) fn add(&mut self, publisher: ConnectionId, blocker: &Blocker, line: Line) {
        match blocker {
            Blocker::Subscriber { subscriber, .. } => self.add_for(publisher, subscriber),
            Blocker::Shard(shard) => self.shards.entry(*shard).or_default().push(publisher, line),
            Blocker::Ledger => self.ledger.push(publisher, line),
            Blocker::Itself | Blocker::Answers | Blocker::Request | Blocker::Control | Blocker::Pace => {}
        }
    }

    /// Adds a publisher that waits until a subscriber has room, or is not behind.
    pub(crate) fn add_for(&mut self, publisher: ConnectionId, subscriber: &Arc<Subscriber>) {
        let new = || WaitingFor { subscriber: Arc::clone(subscriber), publishers: Vec::new() };
        self.subscribers.entry(subscriber.identity()).or_insert_with(new).publishers.push(publisher);
    }

    /// Takes everybody who waits for a subscriber. One that has ended since is in it still.
    pub(crate) fn take_for_subscriber(&mut self, subscriber: &Arc<Subscriber>) -> Vec<ConnectionId> {
        self.subscribers.remove(&subscriber.identity()).map_or_else(Vec::new, |waiting| waiting.publishers)
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        (!self.subscribers.is_empty()).then_some(self.next_ms)
    }

    /// Tells each subscriber that is waited for whether others wait with its publishers who have room, as those find.
    pub(crate) fn look_at_others(
        &mut self,
        now_ms: u64,
        holds_others: impl Fn(ConnectionId, &Arc<Subscriber>) -> bool,
    ) {
        if self.next_ms > now_ms {
            return;
        }
        self.next_ms = now_ms + JUDGE_MS;
        for WaitingFor { subscriber, publishers } in self.subscribers.values() {
            let mut witnesses = publishers.iter().rev().take(WITNESSES);
            subscriber.gauge.note_others(witnesses.any(|publisher| holds_others(*publisher, subscriber)));
        }
    }

    pub(crate) fn take_for_shard(&mut self, shard: ShardId) -> Vec<ConnectionId> {
        self.shards.get_mut(&shard).map(Lines::take).unwrap_or_default()
    }

    /// Whether a publisher waits for that shard. It hears of it when the shard has read its mail.
    pub(crate) fn has_line_for_shard(&self, shard: ShardId) -> bool {
        self.shards.get(&shard).is_some_and(|lines| !lines.is_empty())
    }

    /// Whether a publisher waits for the ledger. It hears of it when the ledger has read its commands.
    pub(crate) fn has_line_for_ledger(&self) -> bool {
        !self.ledger.is_empty()
    }

    pub(crate) fn take_for_ledger(&mut self) -> Vec<ConnectionId> {
        self.ledger.take()
    }
}

impl Lines {
    fn push(&mut self, publisher: ConnectionId, line: Line) {
        match line {
            Line::Unread => self.unread.push(publisher),
            Line::Served => self.served.push(publisher),
        }
    }

    fn is_empty(&self) -> bool {
        self.unread.is_empty() && self.served.is_empty()
    }

    /// Takes everybody, in the order in which they go on.
    fn take(&mut self) -> Vec<ConnectionId> {
        let mut all = std::mem::take(&mut self.unread);
        all.append(&mut self.served);
        all
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
    taken: Track,
    acknowledged: Track,
    looked_ms: u64,
    /// When it was last seen to take or acknowledge anything.
    moved_ms: u64,
    /// Since when it has been full without a break, and how much of that time others had room.
    full_ms: u64,
    held_ms: u64,
}

/// A count that grows with progress, and since when it has not while that was expected.
#[derive(Debug)]
struct Track {
    seen: u64,
    still_ms: u64,
}

/// Facts about a watched subscriber that the judge needs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading {
    /// All bytes that its socket has taken.
    pub(crate) taken: u64,
    /// All messages that it has acknowledged.
    pub(crate) acknowledged: u64,
    /// The window is full: no message of QoS 1 and 2 is sent before an acknowledgement.
    pub(crate) is_window_full: bool,
    /// Bytes that wait for it.
    pub(crate) waiting: usize,
}

/// The progress of one subscriber since the last look, by each measure that counts for it.
#[derive(Debug, Clone, Copy)]
struct Progress {
    /// Bytes that the socket has taken, if the output is full.
    taken: Option<u64>,
    /// Messages acknowledged, if the window is full. Bytes show nothing then: they may all be of QoS 0.
    acknowledged: Option<u64>,
    /// Others wait for it who have room.
    holds_others: bool,
}

/// The judgement about a watched subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The subscriber makes no progress worth waiting for.
    Slow,
    /// The subscriber was slow, and has received everything that waited.
    Open,
    /// The subscriber has made no progress for so long that it is ended.
    GivenUp,
}

impl Judge {
    /// A subscriber has gone over its mark.
    pub(crate) fn watch(
        &mut self,
        connection: ConnectionId,
        subscriber: &Arc<Subscriber>,
        reading: Reading,
        now_ms: u64,
    ) {
        if self.watched.is_empty() {
            self.next_ms = now_ms + JUDGE_MS;
        }
        // One that was open in between and is full again is still the same to us.
        self.watched.entry(connection).or_insert_with(|| {
            let track = |seen| Track { seen, still_ms: now_ms };
            Watched {
                subscriber: Arc::clone(subscriber),
                taken: track(reading.taken),
                acknowledged: track(reading.acknowledged),
                looked_ms: now_ms,
                moved_ms: now_ms,
                full_ms: now_ms,
                held_ms: 0,
            }
        });
    }

    /// A subscriber has had room: whom it held up until now is forgotten.
    pub(crate) fn had_room(&mut self, connection: ConnectionId, now_ms: u64) {
        if let Some(watched) = self.watched.get_mut(&connection) {
            (watched.full_ms, watched.held_ms) = (now_ms, 0);
        }
    }

    /// Nobody could make progress until now: all measures begin anew.
    pub(crate) fn restart(&mut self, now_ms: u64) {
        self.next_ms = now_ms + JUDGE_MS;
        for watched in self.watched.values_mut() {
            watched.taken.still_ms = now_ms;
            watched.acknowledged.still_ms = now_ms;
            (watched.looked_ms, watched.moved_ms) = (now_ms, now_ms);
            (watched.full_ms, watched.held_ms) = (now_ms, 0);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        (!self.watched.is_empty()).then_some(self.next_ms)
    }

    /// Judges subscribers by their progress. If all are saturated, this is flow control: publishers wait for
    /// subscribers that keep up with a quarter of the median. A subscriber that lags behind must not delay the others.
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
        let mut progress: Vec<(ConnectionId, Progress)> = Vec::new();
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
        let taken = median(progress.iter().filter_map(|(_, progress)| progress.taken));
        let acknowledged = median(progress.iter().filter_map(|(_, progress)| progress.acknowledged));
        for (connection, progress) in progress {
            let watched = &self.watched[&connection];
            if let Some(verdict) = watched.verdict(progress, taken, acknowledged, now_ms) {
                verdicts.push((connection, Arc::clone(&watched.subscriber), verdict));
            }
        }
        verdicts
    }
}

impl Watched {
    /// Returns its progress since the last look.
    fn look(&mut self, reading: &Reading, now_ms: u64) -> Progress {
        let gauge = &self.subscriber.gauge;
        let (is_over, is_behind) = (gauge.level() == Level::Over, gauge.is_behind());
        let holds_others = gauge.look_at_others();
        if holds_others {
            self.held_ms += now_ms - self.looked_ms;
        }
        self.looked_ms = now_ms;
        if reading.taken != self.taken.seen || reading.acknowledged != self.acknowledged.seen {
            self.moved_ms = now_ms;
        }
        let by_bytes = is_over || is_behind && !reading.is_window_full;
        let by_messages = is_behind && reading.is_window_full;
        Progress {
            taken: self.taken.look(reading.taken, by_bytes, now_ms),
            acknowledged: self.acknowledged.look(reading.acknowledged, by_messages, now_ms),
            holds_others,
        }
    }

    fn verdict(&self, progress: Progress, taken: u64, acknowledged: u64, now_ms: u64) -> Option<Verdict> {
        if now_ms - self.moved_ms >= GIVEN_UP_MS {
            return Some(Verdict::GivenUp);
        }
        // Publishers wait at most a second for a subscriber that is behind with acknowledgements, and then go on. Such
        // a subscriber gets the longer time.
        let measures = [
            (progress.taken, taken, &self.taken, HELD_MS_MAX),
            (progress.acknowledged, acknowledged, &self.acknowledged, PATIENCE_MS),
        ];
        let is_slow = |(moved, median, track, held_ms_max): (Option<u64>, u64, &Track, u64)| {
            let Some(moved) = moved else { return false };
            let holds = progress.holds_others && (moved == 0 || self.paces_others(held_ms_max, now_ms));
            moved < median / 4 || now_ms - track.still_ms >= PATIENCE_MS || holds
        };
        measures.into_iter().any(is_slow).then_some(Verdict::Slow)
    }

    /// Whether others had room for most of the time in which it was full: as much as who takes less than a quarter of
    /// what they take needs to be as far as they are. Those who were full too have had time by then.
    fn paces_others(&self, held_ms_max: u64, now_ms: u64) -> bool {
        self.held_ms >= held_ms_max && self.held_ms * 4 >= (now_ms - self.full_ms) * 3
    }
}

impl Track {
    /// Returns the increase since the last look, if it is a measure now.
    fn look(&mut self, value: u64, is_measure: bool, now_ms: u64) -> Option<u64> {
        let progress = value.wrapping_sub(self.seen);
        if progress > 0 || !is_measure {
            self.still_ms = now_ms;
        }
        self.seen = value;
        is_measure.then_some(progress)
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
        Some(Reading { taken, waiting: 1_000, ..Reading::default() })
    }

    fn watch(judge: &mut Judge, slot: u32, subscriber: &Arc<Subscriber>, now_ms: u64) {
        judge.watch(connection(slot), subscriber, Reading::default(), now_ms);
    }

    #[test]
    fn all_saturated_alike_are_waited_for() {
        let mut judge = Judge::default();
        (0..10).for_each(|slot| watch(&mut judge, slot, &subscriber(slot), 0));
        for round in 1..100 {
            let taken = |at: ConnectionId| reading(round * (1_000 + u64::from(at.slot)));
            assert!(judge.judge(round * JUDGE_MS, taken).is_empty());
        }
    }

    /// However often the judge is called, it looks at everybody once per interval.
    #[test]
    fn nobody_is_looked_at_before_it_is_time() {
        let mut judge = Judge::default();
        watch(&mut judge, 1, &subscriber(1), 0);
        for (now_ms, looks) in [(JUDGE_MS - 1, 0), (JUDGE_MS, 1), (2 * JUDGE_MS - 1, 0), (2 * JUDGE_MS, 1)] {
            let mut count = 0;
            judge.judge(now_ms, |_| {
                count += 1;
                reading(now_ms)
            });
            assert_eq!(count, looks, "at {now_ms} ms");
        }
    }

    #[test]
    fn one_that_lags_behind_its_peers_is_slow_at_once() {
        let mut judge = Judge::default();
        (0..5).for_each(|slot| watch(&mut judge, slot, &subscriber(slot), 0));
        let taken = |at: ConnectionId| reading(if at.slot == 3 { 10 } else { 1_000 });
        let verdicts = judge.judge(JUDGE_MS, taken);
        assert_eq!(verdicts.len(), 1);
        assert_eq!((verdicts[0].0.slot, verdicts[0].2), (3, Verdict::Slow));
    }

    #[test]
    fn one_that_holds_nobody_else_has_five_seconds() {
        let mut judge = Judge::default();
        watch(&mut judge, 1, &subscriber(1), 0);
        assert!(judge.judge(JUDGE_MS, |_| reading(0)).is_empty());
        assert!(judge.judge(PATIENCE_MS - 1, |_| reading(0)).is_empty());
        assert_eq!(judge.judge(2 * PATIENCE_MS, |_| reading(0))[0].2, Verdict::Slow);
    }

    #[test]
    fn one_that_stands_still_and_holds_others_is_slow_at_once() {
        let mut judge = Judge::default();
        let still = subscriber(1);
        watch(&mut judge, 1, &still, 0);
        assert!(still.gauge.wait(ShardId::new(7), true), "a publisher of another shard waits, with others");
        assert_eq!(judge.judge(JUDGE_MS, |_| reading(0))[0].2, Verdict::Slow);
    }

    #[test]
    fn one_that_takes_a_little_and_holds_others_is_slow_after_a_second() {
        let mut judge = Judge::default();
        let trickling = subscriber(1);
        watch(&mut judge, 1, &trickling, 0);
        let rounds = (1..).map(|round| {
            trickling.gauge.note_others(true);
            (round, judge.judge(round * JUDGE_MS, |_| reading(round)))
        });
        let (round, _) = rounds.take(100).find(|(_, verdicts)| !verdicts.is_empty()).expect("a verdict");
        assert_eq!(round * JUDGE_MS, HELD_MS_MAX);
    }

    #[test]
    fn one_that_was_full_with_the_others_has_four_times_as_long_as_they() {
        let mut judge = Judge::default();
        let tired = subscriber(1);
        watch(&mut judge, 1, &tired, 0);
        for round in 1..=40 {
            // The others have taken two seconds.
            tired.gauge.note_others(round > 20);
            assert!(judge.judge(round * JUDGE_MS, |_| reading(round)).is_empty(), "round {round}");
        }
    }

    #[test]
    fn one_that_has_room_again_and_again_is_waited_for() {
        let mut judge = Judge::default();
        let busy = subscriber(1);
        watch(&mut judge, 1, &busy, 0);
        for round in 1..100 {
            busy.gauge.note_others(true);
            assert!(judge.judge(round * JUDGE_MS, |_| reading(round * 1_000)).is_empty(), "round {round}");
            if round % 5 == 0 {
                judge.had_room(connection(1), round * JUDGE_MS);
            }
        }
    }

    #[test]
    fn acknowledgements_alone_count_as_progress_while_the_window_is_full() {
        let mut judge = Judge::default();
        let [silent, well] = [1, 2].map(|slot| {
            let behind = subscriber(slot);
            behind.gauge.set(Level::Open);
            behind.gauge.set_behind(true);
            watch(&mut judge, slot, &behind, 0);
            behind
        });
        silent.gauge.note_others(true);
        well.gauge.note_others(true);
        let read = |at: ConnectionId| {
            let acknowledged = if at.slot == 2 { 10 } else { 0 };
            Some(Reading { taken: 5_000, acknowledged, is_window_full: true, waiting: 1_000 })
        };
        let verdicts = judge.judge(JUDGE_MS, read);
        assert_eq!(verdicts.iter().map(|verdict| verdict.0.slot).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn nobody_is_judged_on_a_moment() {
        let mut judge = Judge::default();
        watch(&mut judge, 1, &subscriber(1), 0);
        watch(&mut judge, 2, &subscriber(2), JUDGE_MS - 1);
        let taken = |at: ConnectionId| reading(if at.slot == 1 { 1_000 } else { 0 });
        assert!(judge.judge(JUDGE_MS, taken).is_empty());
    }

    #[test]
    fn one_that_goes_over_again_and_again_is_one() {
        let mut judge = Judge::default();
        let busy = subscriber(1);
        for round in 0..1_000 {
            let now = Reading { taken: round * 10, ..Reading::default() };
            judge.watch(connection(1), &busy, now, round * 10);
            assert!(judge.judge(round * 10, |_| reading(round * 10)).is_empty());
        }
        assert_eq!(judge.watched.len(), 1);
    }

    #[test]
    fn one_that_takes_nothing_for_a_minute_is_given_up() {
        let mut judge = Judge::default();
        let still = subscriber(1);
        watch(&mut judge, 1, &still, 0);
        assert_eq!(judge.judge(GIVEN_UP_MS - 1, |_| reading(0))[0].2, Verdict::Slow);
        still.gauge.set(Level::Slow);
        assert_eq!(judge.judge(2 * GIVEN_UP_MS, |_| reading(0))[0].2, Verdict::GivenUp);
    }

    #[test]
    fn a_slow_one_is_open_again_when_it_has_taken_everything() {
        let mut judge = Judge::default();
        let slow = subscriber(1);
        watch(&mut judge, 1, &slow, 0);
        slow.gauge.set(Level::Slow);
        assert!(judge.judge(JUDGE_MS, |_| reading(500)).is_empty());
        let empty = |_: ConnectionId| Some(Reading { taken: 1_500, ..Reading::default() });
        assert_eq!(judge.judge(2 * JUDGE_MS, empty)[0].2, Verdict::Open);
        assert_eq!(judge.poll_timeout(), None);
    }
}
