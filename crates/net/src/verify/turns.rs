//! Passwords that wait, in fair turns of their origins.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};

use auth::{Check, Origin, Wish, Wished};
use base::{ConnectionId, ShardId};
use turn::Peer;

/// Number of waiting passwords from which the newest goes first. Two threads need more than half a second for so many, and
/// whoever waits for seconds gives up: the oldest first would then serve nobody in time.
const OVERLOAD: usize = 64;

/// A password that waits.
pub(crate) struct Job {
    pub(super) shard: ShardId,
    pub(super) connection: ConnectionId,
    /// Address of the client; `None` in a simulated network.
    pub(super) origin: Option<Origin>,
    pub(super) check: Check,
    /// The password is compared with those that were right before. The clerk decides this.
    pub(super) is_compared: bool,
    /// The wish of the connection to know the outcome.
    pub(super) wished: Wished,
    /// Time when it came, on the monotonic clock.
    pub(super) came_ms: u64,
}

impl Job {
    /// A password that comes from a connection at this time, on the monotonic clock. It is checked as long as the connection has
    /// this wish.
    pub(crate) fn new(
        came_ms: u64,
        from: (ShardId, ConnectionId),
        peer: &Peer,
        check: Check,
        wish: &Wish,
    ) -> Self {
        let origin = match peer {
            Peer::Inet(address) => Some(Origin::from(address.ip())),
            Peer::Process { uid, .. } => Some(Origin::of_process(*uid)),
            _ => None,
        };
        let (shard, connection) = from;
        Self { shard, connection, origin, check, is_compared: false, wished: wish.watch(), came_ms }
    }
}

type Key = Option<Origin>;

/// Passwords that wait. Each origin has one turn after the other, so that an origin with many delays its own only. Origins
/// without a turn yet alternate with the others. Under overload, the newest go first.
///
/// Adding and taking cost O(log origins), and O(origins) when an origin without a turn loses its last password.
pub(super) struct Turns {
    by_origin: HashMap<Key, Queue>,
    /// Origins that have not had a turn since they have something here, in the order in which they came.
    fresh: VecDeque<Key>,
    /// Origins that wait for another turn.
    again: VecDeque<Key>,
    /// Origins by the bytes of their passwords.
    by_bytes: BTreeSet<(usize, Key)>,
    /// Origins by the number of their passwords, and among equals the one with the oldest password last.
    by_jobs: BTreeSet<(usize, Reverse<u64>, Key)>,
    /// Number of passwords that have come.
    come: u64,
    jobs: usize,
    bytes: usize,
    jobs_max: usize,
    bytes_max: usize,
    /// The last turn was that of a fresh origin.
    was_fresh: bool,
}

/// Passwords of one origin, in the order in which they came, each with its number among all.
#[derive(Default)]
struct Queue {
    jobs: VecDeque<(u64, Job)>,
    bytes: usize,
}

impl Queue {
    /// The place of an origin with this queue among all. An empty queue has none.
    fn rank(&self, key: Key) -> Option<(usize, Reverse<u64>, Key)> {
        self.jobs.front().map(|(number, _)| (self.jobs.len(), Reverse(*number), key))
    }
}

impl Turns {
    pub(super) fn new(jobs_max: usize, bytes_max: usize) -> Self {
        Self {
            by_origin: HashMap::new(),
            fresh: VecDeque::new(),
            again: VecDeque::new(),
            by_bytes: BTreeSet::new(),
            by_jobs: BTreeSet::new(),
            come: 0,
            jobs: 0,
            bytes: 0,
            jobs_max,
            bytes_max,
            was_fresh: false,
        }
    }

    /// Adds a password, unless its connection is gone. If there are too many, the oldest of the origin with the most passwords
    /// goes to `displaced`; among equals the oldest of all. If there are too many bytes, the oldest ones of the origins with the
    /// most bytes go there.
    pub(super) fn push(&mut self, job: Job, displaced: &mut Vec<Job>) {
        let (key, bytes) = (job.origin, job.check.size_bytes());
        if !job.wished.is_wanted() {
            return;
        }
        if !self.by_origin.contains_key(&key) {
            self.fresh.push_back(key);
        }
        self.come += 1;
        let number = self.come;
        self.change(key, |queue| {
            queue.jobs.push_back((number, job));
            queue.bytes += bytes;
        });
        self.jobs += 1;
        self.bytes += bytes;
        while let Some(key) = self.next_displaced() {
            displaced.extend(self.take(key, VecDeque::pop_front));
        }
    }

    /// The origin whose oldest password gives way, if there are too many.
    fn next_displaced(&self) -> Option<Key> {
        if self.jobs > self.jobs_max {
            self.by_jobs.last().map(|(_, _, key)| *key)
        } else if self.bytes > self.bytes_max {
            self.by_bytes.last().map(|(_, key)| *key)
        } else {
            None
        }
    }

    /// Removes the password whose turn it is, and those before it whose connections are gone.
    pub(super) fn pop(&mut self) -> Option<Job> {
        std::iter::from_fn(|| self.pop_any()).find(|job| job.wished.is_wanted())
    }

    fn pop_any(&mut self) -> Option<Job> {
        let is_overloaded = self.jobs > OVERLOAD;
        let is_fresh = self.again.is_empty() || !(self.was_fresh || self.fresh.is_empty());
        let key = match (is_fresh, is_overloaded) {
            (true, true) => self.fresh.pop_back(),
            (true, false) => self.fresh.pop_front(),
            (false, _) => self.again.pop_front(),
        }?;
        self.was_fresh = is_fresh;
        // The list of turns gets the origin back before its queue may end, which removes it there.
        self.again.push_back(key);
        self.take(key, if is_overloaded { VecDeque::pop_back } else { VecDeque::pop_front })
    }

    /// All passwords of an origin.
    pub(super) fn remove(&mut self, key: Key) -> Vec<Job> {
        std::iter::from_fn(|| self.take(key, VecDeque::pop_front)).collect()
    }

    /// Removes the passwords that came before a time, and those whose connections are gone. Returns the former. Looks at each
    /// password.
    pub(super) fn remove_old(&mut self, before_ms: u64) -> Vec<Job> {
        let is_old = |job: &Job| job.came_ms < before_ms || !job.wished.is_wanted();
        let has_old = |queue: &Queue| queue.jobs.iter().any(|(_, job)| is_old(job));
        let with_old: Vec<Key> =
            self.by_origin.iter().filter(|(_, queue)| has_old(queue)).map(|(key, _)| *key).collect();
        let mut jobs = Vec::new();
        for key in with_old {
            jobs.extend(self.take_some(key, |queue| {
                let (old, kept) = std::mem::take(queue).into_iter().partition(|(_, job)| is_old(job));
                *queue = kept;
                Vec::from(old)
            }));
        }
        jobs.retain(|job| job.wished.is_wanted());
        jobs
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.jobs
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs == 0
    }

    fn take(&mut self, key: Key, end: fn(&mut VecDeque<(u64, Job)>) -> Option<(u64, Job)>) -> Option<Job> {
        self.take_some(key, |jobs| end(jobs).into_iter().collect()).pop()
    }

    /// Takes passwords out of the queue of an origin.
    fn take_some(
        &mut self,
        key: Key,
        take: impl FnOnce(&mut VecDeque<(u64, Job)>) -> Vec<(u64, Job)>,
    ) -> Vec<Job> {
        if !self.by_origin.contains_key(&key) {
            return Vec::new();
        }
        let (jobs, bytes, is_empty) = self.change(key, |queue| {
            let jobs: Vec<Job> = take(&mut queue.jobs).into_iter().map(|(_, job)| job).collect();
            let bytes: usize = jobs.iter().map(|job| job.check.size_bytes()).sum();
            queue.bytes -= bytes;
            (jobs, bytes, queue.jobs.is_empty())
        });
        self.jobs -= jobs.len();
        self.bytes -= bytes;
        if is_empty {
            self.by_origin.remove(&key);
            self.forget(key);
        }
        jobs
    }

    /// Changes the passwords of an origin, and its places among all.
    fn change<T>(&mut self, key: Key, change: impl FnOnce(&mut Queue) -> T) -> T {
        let queue = self.by_origin.entry(key).or_default();
        if let Some(rank) = queue.rank(key) {
            self.by_jobs.remove(&rank);
            self.by_bytes.remove(&(queue.bytes, key));
        }
        let changed = change(queue);
        if let Some(rank) = queue.rank(key) {
            self.by_jobs.insert(rank);
            self.by_bytes.insert((queue.bytes, key));
        }
        changed
    }

    /// Removes an origin from the lists of turns. After a turn it stands at the end.
    fn forget(&mut self, key: Key) {
        for list in [&mut self.again, &mut self.fresh] {
            if let Some(place) = list.iter().rposition(|known| *known == key) {
                list.remove(place);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::LazyLock;

    use auth::{PasswordHash, Scheme, Users};

    use super::*;

    /// All clients wait for their answers.
    static WISH: LazyLock<Wish> = LazyLock::new(Wish::default);

    fn job(number: u32, address: u8, password: usize) -> Job {
        let mut users = Users::default();
        let hash = PasswordHash::new(Scheme::Sha512, b"right", b"twelve bytes").expect("a hash");
        users.add("frog", hash).expect("a user");
        Job {
            shard: ShardId::new(0),
            connection: ConnectionId { slot: number, generation: 0 },
            origin: Some(IpAddr::from([192, 0, 2, address]).into()),
            check: users.check("frog", &vec![b'x'; password]).into(),
            is_compared: false,
            wished: WISH.watch(),
            came_ms: u64::from(number),
        }
    }

    fn turns(jobs: impl IntoIterator<Item = (u32, u8)>) -> Turns {
        let mut turns = Turns::new(1_000, 1 << 20);
        let mut displaced = Vec::new();
        jobs.into_iter().for_each(|(number, address)| turns.push(job(number, address, 10), &mut displaced));
        assert!(displaced.is_empty());
        turns
    }

    fn number(job: &Job) -> u32 {
        job.connection.slot
    }

    fn numbers(jobs: impl IntoIterator<Item = Job>) -> Vec<u32> {
        jobs.into_iter().map(|job| number(&job)).collect()
    }

    fn all(turns: &mut Turns) -> Vec<u32> {
        let all = std::iter::from_fn(|| turns.pop()).map(|job| number(&job)).collect();
        assert!(turns.fresh.is_empty() && turns.again.is_empty());
        assert!(turns.by_bytes.is_empty() && turns.by_jobs.is_empty());
        assert_eq!((turns.jobs, turns.bytes), (0, 0));
        all
    }

    #[test]
    fn origins_have_their_turns_one_after_the_other() {
        let mut turns = turns([(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)]);
        assert_eq!(all(&mut turns), [1, 2, 4, 3, 6, 5], "fresh origins alternate with the others");
    }

    #[test]
    fn under_overload_the_newest_goes_first() {
        let many = u32::try_from(OVERLOAD).expect("it fits") + 1;
        let mut turns = turns((1..=many).map(|number| (number, u8::try_from(number).expect("it fits"))));
        assert_eq!(turns.pop().as_ref().map(number), Some(many));
        assert_eq!(turns.pop().as_ref().map(number), Some(1), "no overload any more");
    }

    #[test]
    fn the_origin_with_the_most_passwords_or_bytes_gives_way() {
        let (mut turns, mut displaced) = (Turns::new(3, 1 << 20), Vec::new());
        for (number, address) in [(1, 1), (2, 1), (3, 2), (4, 3)] {
            turns.push(job(number, address, 10), &mut displaced);
        }
        assert_eq!(numbers(displaced.drain(..)), [1]);
        assert_eq!(all(&mut turns), [2, 3, 4]);
        let mut turns = Turns::new(1_000, 4_000);
        for (number, address) in [(1, 1), (2, 2), (3, 1)] {
            turns.push(job(number, address, 1_500), &mut displaced);
        }
        assert_eq!(numbers(displaced.drain(..)), [1]);
        assert_eq!(all(&mut turns), [3, 2]);
    }

    /// The client with the longest password would lose every time, and at equal length the one with the highest address.
    #[test]
    fn among_origins_with_as_many_passwords_the_oldest_password_gives_way() {
        let (mut turns, mut displaced) = (Turns::new(3, 1 << 20), Vec::new());
        for (number, address, bytes) in [(1, 3, 10), (2, 2, 10), (3, 1, 10), (4, 4, 500)] {
            turns.push(job(number, address, bytes), &mut displaced);
        }
        assert_eq!(numbers(displaced.drain(..)), [1]);
        turns.push(job(5, 4, 10), &mut displaced);
        assert_eq!(numbers(displaced.drain(..)), [4], "the origin with the most passwords loses its oldest");
        turns.push(job(6, 5, 10), &mut displaced);
        assert_eq!(numbers(displaced.drain(..)), [2]);
        assert_eq!(all(&mut turns), [3, 5, 6]);
    }

    #[test]
    fn an_origin_and_old_passwords_can_be_removed() {
        let mut turns = turns([(1, 1), (2, 2), (3, 1), (4, 2)]);
        assert_eq!(turns.remove_old(3).len(), 2);
        let of_two = turns.remove(job(0, 2, 0).origin);
        assert_eq!(numbers(of_two), [4]);
        assert_eq!(all(&mut turns), [3]);
    }
}
