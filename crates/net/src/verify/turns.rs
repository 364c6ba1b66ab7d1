//! Passwords that wait, in fair turns of their origins.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};

use std::net::IpAddr;

use auth::{Check, Checked, Origin, Wish, Wished};
use base::{ConnectionId, ShardId};
use stream::Peer;

/// Number of waiting passwords from which the newest goes first. Two threads need more than half a second for so many, and
/// whoever waits for seconds gives up: the oldest first would then serve nobody in time.
const OVERLOAD: usize = 64;

/// The receiver of an outcome.
pub(crate) enum Asker {
    /// A client on a shard.
    Client(ShardId, ConnectionId),
    /// An operator. The function must not block.
    Operator(Box<dyn FnOnce(Checked) + Send>),
}

/// A password that waits.
pub(crate) struct Job {
    pub(super) asker: Asker,
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
        let asker = Asker::Client(from.0, from.1);
        Self { asker, origin, check, is_compared: false, wished: wish.watch(), came_ms }
    }

    /// A password of an operator that comes from an address at this time.
    pub(crate) fn of_operator(
        came_ms: u64,
        from: IpAddr,
        check: Check,
        wish: &Wish,
        answer: impl FnOnce(Checked) + Send + 'static,
    ) -> Self {
        let (asker, origin) = (Asker::Operator(Box::new(answer)), Some(Origin::of_operator(from)));
        Self { asker, origin, check, is_compared: false, wished: wish.watch(), came_ms }
    }

    /// The place of the client among the connections of its shard, for tests.
    #[cfg(test)]
    pub(super) fn slot(&self) -> u32 {
        self.asker.slot()
    }
}

#[cfg(test)]
impl Asker {
    /// The place of the client among the connections of its shard.
    pub(super) fn slot(&self) -> u32 {
        match self {
            Self::Client(_, connection) => connection.slot,
            Self::Operator(_) => u32::MAX,
        }
    }
}

type Key = Option<Origin>;
/// The size of a part by a measure, the number of the password that it loses first, and its key.
type Place = (usize, Reverse<u64>, Key);
/// A password with its number among all that have come.
type Numbered = (u64, Job);

/// Passwords that wait. Each network has one turn after the other, and so has each origin of a network, so that an origin with
/// many delays its own only. Those without a turn yet alternate with the others. Under overload, the newest go first.
///
/// Adding and taking cost O(log origins), and O(origins) when an origin without a turn loses its last password.
pub(super) struct Turns {
    networks: Shares<Shares<Line>>,
    /// Number of passwords that have come.
    come: u64,
    jobs_max: usize,
    bytes_max: usize,
}

impl Turns {
    pub(super) fn new(jobs_max: usize, bytes_max: usize) -> Self {
        Self { networks: Shares::default(), come: 0, jobs_max, bytes_max }
    }

    /// Adds a password, unless its connection is gone. If there are too many, the network with the most passwords loses the oldest
    /// one of its origin with the most, which goes to `displaced`; among equals the one with the oldest password. If there are too
    /// many bytes, those with the most bytes lose some.
    pub(super) fn push(&mut self, job: Job, displaced: &mut Vec<Job>) {
        if !job.wished.is_wanted() {
            return;
        }
        self.come += 1;
        self.networks.push((self.come, job));
        while let Some(measure) = self.excess() {
            displaced.extend(self.networks.displace(measure));
        }
    }

    /// The measure by which there are too many passwords.
    fn excess(&self) -> Option<Measure> {
        let Size { jobs, bytes } = self.networks.size();
        match (jobs > self.jobs_max, bytes > self.bytes_max) {
            (true, _) => Some(Measure::Jobs),
            (false, true) => Some(Measure::Bytes),
            (false, false) => None,
        }
    }

    /// Removes the password whose turn it is, and those before it whose connections are gone.
    pub(super) fn pop(&mut self) -> Option<Job> {
        loop {
            let is_overloaded = self.networks.size().jobs > OVERLOAD;
            let job = self.networks.pop(is_overloaded)?;
            if job.wished.is_wanted() {
                return Some(job);
            }
        }
    }

    /// All passwords of an origin.
    pub(super) fn remove(&mut self, origin: Origin) -> Vec<Job> {
        let mut jobs = Vec::new();
        self.networks.take_if(Some(origin), &|_| true, &mut jobs);
        jobs
    }

    /// Removes the passwords that came before a time, and those whose connections are gone. Returns the former. Looks at each
    /// password.
    pub(super) fn remove_old(&mut self, before_ms: u64) -> Vec<Job> {
        let mut jobs = Vec::new();
        let is_old = |job: &Job| job.came_ms < before_ms || !job.wished.is_wanted();
        self.networks.take_if(None, &is_old, &mut jobs);
        jobs.retain(|job| job.wished.is_wanted());
        jobs
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.networks.size().jobs
    }

    pub(super) fn is_empty(&self) -> bool {
        self.networks.size().jobs == 0
    }
}

/// The number of passwords, or their bytes.
#[derive(Clone, Copy)]
enum Measure {
    Jobs,
    Bytes,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Size {
    jobs: usize,
    bytes: usize,
}

/// A part of the passwords that wait.
trait Part: Default {
    /// The key of the part that has the passwords of an origin.
    fn key(origin: Key) -> Key;

    fn size(&self) -> Size;

    /// The number of the password that is displaced first by this measure. The part is not empty.
    fn next_displaced(&self, measure: Measure) -> u64;

    fn push(&mut self, job: Numbered);

    fn pop(&mut self, is_overloaded: bool) -> Option<Job>;

    /// Removes a password because there are too many by this measure.
    fn displace(&mut self, measure: Measure) -> Option<Job>;

    fn any(&self, is_meant: &dyn Fn(&Job) -> bool) -> bool;

    /// Removes some passwords, of this origin or of all.
    fn take_if(&mut self, of: Option<Origin>, is_meant: &dyn Fn(&Job) -> bool, into: &mut Vec<Job>);
}

/// Passwords of one origin, in the order in which they came.
#[derive(Default)]
struct Line {
    jobs: VecDeque<Numbered>,
    bytes: usize,
}

impl Line {
    fn note_taken(&mut self, job: Option<Numbered>) -> Option<Job> {
        let (_, job) = job?;
        self.bytes -= job.check.size_bytes();
        Some(job)
    }
}

impl Part for Line {
    fn key(origin: Key) -> Key {
        origin
    }

    fn size(&self) -> Size {
        Size { jobs: self.jobs.len(), bytes: self.bytes }
    }

    fn next_displaced(&self, _: Measure) -> u64 {
        self.jobs.front().map_or(0, |(number, _)| *number)
    }

    fn push(&mut self, job: Numbered) {
        self.bytes += job.1.check.size_bytes();
        self.jobs.push_back(job);
    }

    fn pop(&mut self, is_overloaded: bool) -> Option<Job> {
        let job = if is_overloaded { self.jobs.pop_back() } else { self.jobs.pop_front() };
        self.note_taken(job)
    }

    fn displace(&mut self, _: Measure) -> Option<Job> {
        let job = self.jobs.pop_front();
        self.note_taken(job)
    }

    fn any(&self, is_meant: &dyn Fn(&Job) -> bool) -> bool {
        self.jobs.iter().any(|(_, job)| is_meant(job))
    }

    fn take_if(&mut self, _: Option<Origin>, is_meant: &dyn Fn(&Job) -> bool, into: &mut Vec<Job>) {
        let all = std::mem::take(&mut self.jobs);
        let (taken, kept): (VecDeque<_>, VecDeque<_>) = all.into_iter().partition(|(_, job)| is_meant(job));
        self.jobs = kept;
        into.extend(taken.into_iter().filter_map(|job| self.note_taken(Some(job))));
    }
}

/// Parts that have turns, and of which the largest gives way.
#[derive(Default)]
struct Shares<P> {
    parts: HashMap<Key, P>,
    /// Keys that have not had a turn since they have something here, in the order in which they came.
    fresh: VecDeque<Key>,
    /// Keys that wait for another turn.
    again: VecDeque<Key>,
    /// Keys by the measures of their parts; among equals, the one with the oldest password is the last.
    by_size: [BTreeSet<Place>; 2],
    size: Size,
    /// The last turn was that of a fresh key.
    was_fresh: bool,
}

impl<P: Part> Shares<P> {
    /// Changes a part, and its place among all.
    fn change<T>(&mut self, key: Key, change: impl FnOnce(&mut P) -> T) -> T {
        let part = self.parts.entry(key).or_default();
        let before = part.size();
        for (places, place) in self.by_size.iter_mut().zip(places(part, key)) {
            places.remove(&place);
        }
        let changed = change(part);
        let after = part.size();
        self.size.jobs = self.size.jobs - before.jobs + after.jobs;
        self.size.bytes = self.size.bytes - before.bytes + after.bytes;
        if after.jobs == 0 {
            self.parts.remove(&key);
            self.forget(key);
        } else {
            for (places, place) in self.by_size.iter_mut().zip(places(part, key)) {
                places.insert(place);
            }
        }
        changed
    }

    /// Removes a key from the lists of turns. After a turn it stands at the end.
    fn forget(&mut self, key: Key) {
        for list in [&mut self.again, &mut self.fresh] {
            if let Some(place) = list.iter().rposition(|known| *known == key) {
                list.remove(place);
                return;
            }
        }
    }
}

/// The places of a part among all, in the order of [`Measure`].
fn places<P: Part>(part: &P, key: Key) -> [Place; 2] {
    let Size { jobs, bytes } = part.size();
    let place = |amount, measure| (amount, Reverse(part.next_displaced(measure)), key);
    [place(jobs, Measure::Jobs), place(bytes, Measure::Bytes)]
}

impl<P: Part> Part for Shares<P> {
    fn key(origin: Key) -> Key {
        origin.map(Origin::network)
    }

    fn size(&self) -> Size {
        self.size
    }

    fn next_displaced(&self, measure: Measure) -> u64 {
        self.by_size[measure as usize].last().map_or(0, |(_, Reverse(number), _)| *number)
    }

    fn push(&mut self, job: Numbered) {
        let key = P::key(job.1.origin);
        if !self.parts.contains_key(&key) {
            self.fresh.push_back(key);
        }
        self.change(key, |part| part.push(job));
    }

    fn pop(&mut self, is_overloaded: bool) -> Option<Job> {
        let is_fresh = self.again.is_empty() || !(self.was_fresh || self.fresh.is_empty());
        let key = match (is_fresh, is_overloaded) {
            (true, true) => self.fresh.pop_back(),
            (true, false) => self.fresh.pop_front(),
            (false, _) => self.again.pop_front(),
        }?;
        self.was_fresh = is_fresh;
        // The list of turns gets the key back before its part may end, which removes it there.
        self.again.push_back(key);
        self.change(key, |part| part.pop(is_overloaded))
    }

    fn displace(&mut self, measure: Measure) -> Option<Job> {
        let (_, _, key) = self.by_size[measure as usize].last().copied()?;
        self.change(key, |part| part.displace(measure))
    }

    fn any(&self, is_meant: &dyn Fn(&Job) -> bool) -> bool {
        self.parts.values().any(|part| part.any(is_meant))
    }

    fn take_if(&mut self, of: Option<Origin>, is_meant: &dyn Fn(&Job) -> bool, into: &mut Vec<Job>) {
        let keys: Vec<Key> = match of {
            Some(_) => vec![P::key(of)],
            None => self.parts.iter().filter(|(_, part)| part.any(is_meant)).map(|(key, _)| *key).collect(),
        };
        for key in keys {
            if self.parts.contains_key(&key) {
                self.change(key, |part| part.take_if(of, is_meant, into));
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

    fn origin(address: u8) -> Origin {
        IpAddr::from([192, 0, 2, address]).into()
    }

    /// A job of an IPv6 address with these third and fourth groups.
    fn job_v6(number: u32, network: u16, subnet: u16) -> Job {
        let address = IpAddr::from([0x2001, 0xdb8, network, subnet, 0, 0, 0, 1]);
        Job { origin: Some(address.into()), ..job(number, 0, 10) }
    }

    fn job(number: u32, address: u8, password: usize) -> Job {
        let mut users = Users::default();
        let hash = PasswordHash::new(Scheme::Sha512, b"right", b"twelve bytes").expect("a hash");
        users.add("frog", hash).expect("a user");
        Job {
            asker: Asker::Client(ShardId::new(0), ConnectionId { slot: number, generation: 0 }),
            origin: Some(origin(address)),
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
        job.slot()
    }

    fn numbers(jobs: impl IntoIterator<Item = Job>) -> Vec<u32> {
        jobs.into_iter().map(|job| number(&job)).collect()
    }

    fn all(turns: &mut Turns) -> Vec<u32> {
        let all = std::iter::from_fn(|| turns.pop()).map(|job| number(&job)).collect();
        let Shares { parts, fresh, again, by_size, size, .. } = &turns.networks;
        assert!(parts.is_empty() && fresh.is_empty() && again.is_empty());
        assert!(by_size.iter().all(BTreeSet::is_empty) && *size == Size::default());
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
        let of_two = turns.remove(origin(2));
        assert_eq!(numbers(of_two), [4]);
        assert_eq!(all(&mut turns), [3]);
    }

    /// Sites and tunnels commonly have 65,536 networks of 64 bits, and each would have a turn.
    #[test]
    fn a_network_of_48_bits_has_one_turn_and_its_subnets_share_it() {
        let (mut turns, mut displaced) = (Turns::new(10, 1 << 20), Vec::new());
        for number in 1..=6 {
            turns.push(job_v6(number, 1, u16::try_from(number % 3).expect("it fits")), &mut displaced);
        }
        turns.push(job_v6(7, 2, 0), &mut displaced);
        turns.push(job(8, 1, 10), &mut displaced);
        assert_eq!(all(&mut turns), [1, 4, 7, 2, 8, 5, 3, 6], "fresh networks alternate with others");
        // The network with the most loses one, of its subnet with the most.
        let mut turns = Turns::new(4, 1 << 20);
        for (number, network, subnet) in [(1, 2, 0), (2, 1, 1), (3, 1, 2), (4, 1, 2), (5, 3, 0)] {
            turns.push(job_v6(number, network, subnet), &mut displaced);
        }
        assert_eq!(numbers(displaced.drain(..)), [3]);
        turns.push(job(6, 1, 10), &mut displaced);
        assert_eq!(numbers(displaced.drain(..)), [2]);
        let subnet = job_v6(0, 1, 2).origin.expect("an address");
        assert_eq!(numbers(turns.remove(subnet)), [4]);
        assert_eq!(all(&mut turns), [1, 5, 6]);
    }
}
