//! A shard's census: which clients and topics were the busiest in the last one or two minutes.
//!
//! ```text
//! packets that were read ─► topics, branches, publishers ─┐
//! bytes that were written ─► receivers                    ├─► this minute │ the minute before ─► operator
//! clients that were let in or refused ─► connects, refusals ┘
//! ```
//!
//! At a low rate everything is counted. Beyond [`EXACT_PER_SECOND`], one of [`SAMPLED_ONE_OF`] reads, writes or decisions is
//! counted, with that weight: a busy shard pays next to nothing, and its counts are estimates. The choice has no rhythm that the
//! order of connections could share.

mod sketch;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use base::ConnectionId;
use broker::{Mount, Notice, Shard};
use stream::Peer;
use wire::{Decoded, Limits, Packet, PublishTopic, Version, decode};

use crate::host::Host;
use crate::io::Io;
use crate::packets::{self, PUBLISH};
use sketch::Sketch;
pub use sketch::{Ranked, Ranking};

/// Packets, writes and decisions in a second that are all counted, each of the three for itself.
const EXACT_PER_SECOND: u32 = 1_000;
/// Part of reads, writes and decisions beyond these that is counted.
const SAMPLED_ONE_OF: u64 = 64;
/// The time that a window counts.
const WINDOW_MS: u64 = 60_000;
/// Maximum number of writes of a turn that are counted: more than are all counted in a second, or those of the last
/// connections would never be.
const WRITES_PER_TURN: usize = 1_024;
/// Maximum number of changes of the topic within a read that are counted. A read may have thousands of short packets.
const TOPICS_PER_READ: usize = 256;
/// Levels of a topic that have a branch of their own.
const BRANCH_LEVELS: usize = 2;

/// A list of the busiest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CensusList {
    /// Topics by received messages. A topic has the mount point of its publisher.
    Topics,
    /// The first level and the first two levels of topics with more levels, by received messages.
    Branches,
    /// Client identifiers by received messages.
    Publishers,
    /// Client identifiers by sent bytes.
    Receivers,
    /// Client identifiers by accepted connections.
    Connects,
    /// Addresses by refused connections.
    Refusals,
}

impl CensusList {
    /// All lists, in the order of the manual.
    pub const ALL: [Self; 6] =
        [Self::Topics, Self::Branches, Self::Publishers, Self::Receivers, Self::Connects, Self::Refusals];

    /// The name for operators.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Topics => "topics",
            Self::Branches => "branches",
            Self::Publishers => "publishers",
            Self::Receivers => "receivers",
            Self::Connects => "connects",
            Self::Refusals => "refusals",
        }
    }
}

/// A question of an operator about a list.
pub struct AskCensus {
    /// The list that is asked for.
    pub list: CensusList,
    /// Receives the answer, on the thread of the shard.
    pub answer: Box<dyn FnOnce(CensusAnswer) + Send>,
}

/// The answer of a shard.
#[derive(Debug, Clone, Default)]
pub struct CensusAnswer {
    /// The list of the shard.
    pub ranking: Ranking,
    /// The time that it covers, in milliseconds.
    pub covered_ms: u64,
}

impl fmt::Debug for AskCensus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskCensus").field("list", &self.list).finish_non_exhaustive()
    }
}

/// The counts of a minute, in the order of [`CensusList::ALL`].
type Window = [Sketch; CensusList::ALL.len()];

/// The census of a shard.
#[derive(Default)]
pub(crate) struct Census {
    now_ms: u64,
    second: Option<u64>,
    /// The beginning of the first turn, or of the older window.
    since_ms: Option<u64>,
    /// The number of the minute.
    minute: u64,
    this: Window,
    before: Window,
    reads: Sampler,
    writes: Sampler,
    decisions: Sampler,
    /// Writes that were chosen in this turn, with their bytes.
    written: Vec<(ConnectionId, u64)>,
    /// A buffer for the next branch.
    branch: String,
}

impl Census {
    /// A turn begins. Windows whose time is over move on.
    pub(crate) fn begin_turn(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        let second = now_ms / 1_000;
        if self.second.replace(second) != Some(second) {
            for sampler in [&mut self.reads, &mut self.writes, &mut self.decisions] {
                sampler.begin_second();
            }
        }
        let minute = now_ms / WINDOW_MS;
        let since_ms = *self.since_ms.get_or_insert(now_ms);
        if minute == self.minute {
            return;
        }
        self.before = std::mem::take(&mut self.this);
        if minute != self.minute + 1 {
            self.before = Window::default();
        }
        self.minute = minute;
        self.since_ms = Some(since_ms.max((minute - 1) * WINDOW_MS));
    }

    pub(crate) fn answer(&self, list: CensusList) -> CensusAnswer {
        let mut ranking = self.this[list as usize].ranking();
        ranking.merge(self.before[list as usize].ranking());
        CensusAnswer { ranking, covered_ms: self.now_ms - self.since_ms.unwrap_or(self.now_ms) }
    }

    fn add(&mut self, list: CensusList, name: &str, count: u64, bytes: u64) {
        self.this[list as usize].add(name, count, bytes);
    }

    /// A stream has taken bytes.
    #[inline]
    pub(crate) fn wrote(&mut self, id: ConnectionId, bytes: usize) {
        let weight = self.writes.weight();
        if weight > 0 && self.written.len() < WRITES_PER_TURN {
            self.writes.count(1);
            self.written.push((id, weight * bytes as u64));
        }
    }

    /// Finds the clients of the writes of this turn.
    pub(crate) fn end_turn(&mut self, brain: &Shard) {
        let mut written = std::mem::take(&mut self.written);
        for (id, bytes) in written.drain(..) {
            if let Some(client) = brain.let_in(id) {
                self.add(CensusList::Receivers, &client.client_id, bytes, bytes);
            }
        }
        self.written = written;
    }

    /// The brain has decided about a client.
    pub(crate) fn decided(&mut self, peer: &Peer, notice: &Notice<'_>) {
        if !matches!(notice, Notice::Connected { .. } | Notice::Refused { .. }) {
            return;
        }
        let weight = self.decisions.weight();
        if weight == 0 {
            return;
        }
        self.decisions.count(1);
        match (notice, peer) {
            (Notice::Connected { client_id, .. }, _) => self.add(CensusList::Connects, client_id, weight, 0),
            (_, Peer::Inet(address)) => {
                self.add(CensusList::Refusals, &address.ip().to_canonical().to_string(), weight, 0);
            }
            (_, other) => self.add(CensusList::Refusals, &other.to_string(), weight, 0),
        }
    }

    /// The brain is done with these whole packets of a client.
    fn read(&mut self, weight: u64, publisher: &Publisher<'_>, mut packets: &[u8]) {
        let mut all = (0, 0);
        let mut run = Run::default();
        let mut topics = 0;
        while let Some(len) = packets::len(packets, &[]) {
            let (packet, behind) = packets.split_at(len);
            packets = behind;
            if packets::kind(packet, &[]) != PUBLISH {
                continue;
            }
            let bytes = len as u64;
            all = (all.0 + 1, all.1 + bytes);
            // A packet in one piece has its topic in one piece.
            let Some(Cow::Borrowed(sent)) = packets::topic(packet, &[]) else { continue };
            if sent.is_empty() || sent != run.sent {
                self.add_topic(weight, &run);
                run = Run::default();
                topics += 1;
                if topics <= TOPICS_PER_READ
                    && let Some(topic) = publisher.topic(sent, packet)
                {
                    run = Run { sent, topic, ..run };
                }
            }
            run.count += 1;
            run.bytes += bytes;
        }
        self.add_topic(weight, &run);
        if all.0 > 0 {
            self.reads.count(all.0);
            self.add(CensusList::Publishers, publisher.client_id, weight * all.0, weight * all.1);
        }
    }

    fn add_topic(&mut self, weight: u64, Run { topic, count, bytes, .. }: &Run<'_>) {
        if topic.is_empty() {
            return;
        }
        let (count, bytes) = (weight * count, weight * bytes);
        self.add(CensusList::Topics, topic, count, bytes);
        let mut branch = std::mem::take(&mut self.branch);
        for (end, _) in topic.match_indices('/').take(BRANCH_LEVELS) {
            branch.clear();
            branch.extend([&topic[..end], "/#"]);
            self.add(CensusList::Branches, &branch, count, bytes);
        }
        self.branch = branch;
    }
}

/// Packets in a row with the same topic.
#[derive(Default)]
struct Run<'a> {
    /// The topic as the packets have it. Empty with an alias.
    sent: &'a str,
    /// The whole topic. Empty if the packets are not counted by topic.
    topic: Cow<'a, str>,
    count: u64,
    bytes: u64,
}

/// The sender of packets that were read.
struct Publisher<'a> {
    client_id: &'a str,
    mount: &'a str,
    id: ConnectionId,
    version: Option<Version>,
    brain: &'a Shard,
}

impl Publisher<'_> {
    /// The whole topic of a PUBLISH packet, whose own topic may be empty.
    fn topic<'a>(&self, sent: &'a str, packet: &[u8]) -> Option<Cow<'a, str>> {
        if self.mount.is_empty() && !sent.is_empty() {
            return Some(sent.into());
        }
        if !sent.is_empty() {
            return Some([self.mount, sent].concat().into());
        }
        let alone = packets::without_payload(packet, &[])?;
        let decoded = decode(&alone, self.version, &Limits::default()).ok()?;
        let Decoded::Packet { packet: Packet::Publish(publish), .. } = decoded else { return None };
        let PublishTopic::Alias(alias) = publish.topic else { return None };
        Some([self.mount, self.brain.name_of_alias(self.id, alias)?.as_str()].concat().into())
    }
}

/// Chooses the events that are counted.
#[derive(Default)]
struct Sampler {
    /// The number of further events of this second that are all counted.
    exact_left: u32,
    /// State of a linear congruential generator.
    state: u64,
}

impl Sampler {
    fn begin_second(&mut self) {
        self.exact_left = EXACT_PER_SECOND;
    }

    /// The weight of the next event; 0: it is not counted.
    #[inline]
    fn weight(&mut self) -> u64 {
        if self.exact_left > 0 {
            return 1;
        }
        // Knuth's constants for MMIX. The highest bits have the longest period.
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if (self.state >> 32).is_multiple_of(SAMPLED_ONE_OF) { SAMPLED_ONE_OF } else { 0 }
    }

    /// Takes note of events that were counted.
    fn count(&mut self, events: u64) {
        self.exact_left = self.exact_left.saturating_sub(u32::try_from(events).unwrap_or(u32::MAX));
    }
}

impl<H: Host> Io<H> {
    /// Chooses whether the next bytes of a client are counted. The client is named before, as far as it is known: behind its last
    /// packet it may be gone. A topic that only an alias names is not counted then.
    #[inline]
    pub(crate) fn choose_read(&mut self, id: ConnectionId, brain: &Shard) -> Option<Chosen> {
        let weight = self.census.reads.weight();
        (weight > 0).then(|| Chosen { weight, sender: Sender::of(id, brain) })
    }

    /// The brain is done with these whole packets of the client.
    pub(crate) fn count_read(&mut self, id: ConnectionId, chosen: Chosen, packets: &[u8], brain: &Shard) {
        let Chosen { weight, sender } = chosen;
        let Some(Sender { client_id, mount }) = sender.or_else(|| Sender::of(id, brain)) else { return };
        let mount = mount.as_ref().map_or("", |mount| mount.as_str());
        let version = self.connections.get(id).and_then(|connection| connection.version);
        self.census.read(weight, &Publisher { client_id: &client_id, mount, id, version, brain }, packets);
    }
}

/// A read that is counted.
pub(crate) struct Chosen {
    weight: u64,
    sender: Option<Sender>,
}

/// The names of a client, which outlive its connection.
struct Sender {
    client_id: Arc<str>,
    mount: Option<Arc<Mount>>,
}

impl Sender {
    fn of(id: ConnectionId, brain: &Shard) -> Option<Self> {
        let client_id = Arc::clone(&brain.let_in(id)?.client_id);
        Some(Self { client_id, mount: brain.mount_point(id).map(Arc::clone) })
    }
}

#[cfg(test)]
mod tests;
