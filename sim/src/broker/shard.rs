//! The thread of one shard.

use std::sync::Arc;

use base::{ConnectionId, Now, ShardId};
use broker::{Counters, Shard};
use stream::{Peer, Readiness};
use turn::{Accepted, Board, Bounds, Host, Io, Note, ShardLoop, Sleep};

use super::doors::Doors;
use super::outside::{Addressed, Outside, Socket};
use crate::network::LinkId;
use crate::random::Random;
use crate::scene::Scene;
use crate::trace::note;

/// An event loop, and who wakes it.
pub(crate) struct ShardThread {
    number: usize,
    body: ShardLoop<Outside>,
    board: Arc<Board>,
    /// On the first shard of a broker that reloads.
    pub(super) doors: Option<Doors>,
    /// The number of the last reload whose limits are in force.
    pub(super) reloaded: u64,
}

impl ShardThread {
    pub(crate) fn new(
        brain: Shard,
        board: Arc<Board>,
        (counters, bounds): (Arc<Counters>, Bounds),
        random: Random,
        now: Now,
    ) -> Self {
        let shard = brain.id();
        let io = Io::new(shard, Arc::clone(&board), Outside::new(shard, random), counters, bounds);
        Self { number: shard.number(), body: ShardLoop::new(brain, io, now), board, doors: None, reloaded: 0 }
    }

    /// The outside of the event loop.
    pub(crate) fn outside(&mut self) -> &mut Outside {
        self.body.host()
    }

    /// Whether anything would wake the thread.
    pub(crate) fn is_awake(&self, scene: &Scene) -> bool {
        self.reasons(scene).into_iter().any(|(_, is_so)| is_so)
    }

    /// Why it does not sleep.
    pub(crate) fn busy(&self, scene: &Scene) -> Vec<String> {
        let reasons = self.reasons(scene).into_iter().filter(|(_, is_so)| *is_so);
        reasons.map(|(reason, _)| format!("shard {} has {reason}", self.number)).collect()
    }

    fn reasons(&self, scene: &Scene) -> [(&'static str, bool); 5] {
        let outside = self.body.host_ref();
        let is_due = match self.body.sleep() {
            Sleep::No => true,
            Sleep::Until(at_ms) => at_ms <= scene.now.monotonic_ms,
            Sleep::Long => false,
        };
        [
            ("letters", !outside.inbox.is_empty()),
            ("orders", self.doors.as_ref().is_some_and(|doors| !doors.orders.is_empty())),
            ("new connections", scene.network.has_knocked(self.number)),
            ("work or a timer", is_due),
            (
                "streams that have changed",
                outside.watched.values().any(|link| scene.network.has_changed(*link)),
            ),
        ]
    }

    /// When it wants to be woken though nothing happens.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        match self.body.sleep() {
            Sleep::Until(at_ms) => Some(at_ms),
            Sleep::No | Sleep::Long => None,
        }
    }

    /// The next letter that it has written is posted.
    pub(crate) fn post_one(&mut self) -> Option<Addressed> {
        self.outside().outbox.pop_front()
    }

    /// The fullest output, in bytes.
    pub(crate) fn fullest_output_bytes(&self) -> usize {
        self.body.fullest_output_bytes()
    }

    /// Runs one turn. Chance decides how many events the poller reports, and in which order.
    pub(crate) fn turn(&mut self, scene: &mut Scene, random: &mut Random) {
        self.body.begin(scene.now);
        if let Some(doors) = &mut self.doors {
            doors.obey(scene);
        }
        for (id, readiness) in self.poll(scene, random) {
            self.body.woken(id, readiness);
        }
        self.accept(scene, random);
        self.body.turn();
        if let Some(reload) = self.outside().reloaded.take() {
            note!(scene.trace, ("shard {}", self.number), "has the limits of configuration {reload}");
            self.reloaded = reload;
            scene.oracle.shard_reloaded(self.number, reload);
        }
        for noted in std::mem::take(&mut self.outside().notices) {
            scene.noticed(self.number, &noted);
        }
    }

    fn poll(&mut self, scene: &mut Scene, random: &mut Random) -> Vec<(ConnectionId, Readiness)> {
        let watched = self.body.host_ref().watched.iter();
        let changed = watched.filter(|(_, link)| scene.network.has_changed(**link));
        let mut changed: Vec<(ConnectionId, LinkId)> =
            changed.map(|((slot, generation), link)| (id(*slot, *generation), *link)).collect();
        if changed.is_empty() {
            return Vec::new();
        }
        let first = random.below(changed.len());
        changed.rotate_left(first);
        changed.truncate(random.some_of(changed.len()));
        changed.into_iter().map(|(id, link)| (id, scene.network.take_change(link))).collect()
    }

    fn accept(&mut self, scene: &mut Scene, random: &mut Random) {
        let shard = ShardId::new(self.number);
        if let Some(doors) = &mut self.doors {
            for (to, accepted) in doors.accept(scene, random) {
                match to == shard {
                    true => self.body.admit(accepted),
                    false => self.body.host().post(to, Note::Accepted(accepted).into()),
                }
            }
            return;
        }
        for _ in 0..random.some_of(scene.network.knocking(self.number)) {
            let Some((link, durability)) = scene.network.take_knocking(self.number) else { break };
            let stream = Socket::new(link, &scene.network, Random::new(random.next()));
            self.board.charge(shard);
            let (peer, admission) = (Peer::Simulated(link.0), durability.into());
            self.body.admit(Accepted { stream, peer, admission, listener: 0 });
        }
    }
}

fn id(slot: u32, generation: u32) -> ConnectionId {
    ConnectionId { slot, generation }
}
