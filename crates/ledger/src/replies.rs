//! Replies that wait until what they promise is durable, and acknowledgements that wait a little longer.
//!
//! Imports: `bodies` and the parts below.

pub(crate) mod restoring;
mod withheld;

use std::collections::VecDeque;
use std::sync::Arc;

use base::{ConnectionId, Now, Place, QueueId, ShardId};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use wire::ReasonCode;

use crate::gauges::add;
use crate::lines::brake::{Brake, Growth};
use crate::lines::presence::touch;
use crate::lines::{Line, Lines, Owner};
use crate::queue::in_flight::State;
use crate::record::keeper::Progress;
use crate::record::{Effects, Lsn, Numbers, Record, Refusal};
use crate::replies::restoring::{Restoring, What};
use crate::replies::withheld::Withheld;
use protocol::{Delivered, Durability, Gauges, Reply};

/// Committed records, how far they are durable, and the answers that wait for this.
#[derive(Debug)]
pub(crate) struct Replies {
    pub(crate) numbers: Numbers,
    committed: Lsn,
    written: Lsn,
    durable: Lsn,
    /// Answers to connections that wait for the sync, in the order of the records that they wait for, which is the
    /// order of their arrival.
    held: VecDeque<(Lsn, Answer)>,
    /// Answers to connections that wait for the write alone. A connection is in one of the two lists, so that its
    /// answers keep their order.
    held_for_write: VecDeque<(Lsn, Answer)>,
    /// The connections that do not wait for the sync.
    hasty: HashMap<Place, Durability, FixedState>,
    /// The connections of which a message was refused, and cannot be acknowledged with a refusal.
    refused: HashSet<Place, FixedState>,
    pub(crate) withheld: Withheld,
    pub(crate) restoring: Restoring,
    /// Nothing will be durable any more.
    is_poisoned: bool,
    gauges: Arc<Gauges>,
}

/// A reply that may have to wait.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) shard: ShardId,
    pub(crate) reply: Reply,
    /// The queue that had grown too much, if the answer acknowledges a message in it.
    pub(crate) brake: Option<Brake>,
}

impl Answer {
    pub(crate) fn new(shard: ShardId, reply: Reply) -> Self {
        Self { shard, reply, brake: None }
    }
}

impl Replies {
    pub(crate) fn new(gauges: Arc<Gauges>) -> Self {
        Self {
            numbers: Numbers::default(),
            committed: Lsn::default(),
            written: Lsn::default(),
            durable: Lsn::default(),
            held: VecDeque::new(),
            held_for_write: VecDeque::new(),
            hasty: HashMap::default(),
            refused: HashSet::default(),
            withheld: Withheld::default(),
            restoring: Restoring::default(),
            is_poisoned: false,
            gauges,
        }
    }

    pub(crate) fn commit(&mut self, group: &[Record<'_>], to: &mut impl Effects) -> Result<(), Refusal> {
        if self.is_poisoned {
            return Err(Refusal::Poisoned);
        }
        let lsn = match to.commit(group) {
            Ok(lsn) => lsn,
            Err(refusal) => {
                self.is_poisoned |= refusal == Refusal::Poisoned;
                return Err(refusal);
            }
        };
        debug_assert!(lsn > self.committed, "positions grow");
        self.committed = lsn;
        Ok(())
    }

    /// Nobody waits for what is copied.
    pub(crate) fn copy(&mut self, group: &[Record<'_>], to: &mut impl Effects) -> Result<(), Refusal> {
        if self.is_poisoned {
            return Err(Refusal::Poisoned);
        }
        let copied = to.copy(group).map(drop);
        self.is_poisoned |= copied == Err(Refusal::Poisoned);
        copied
    }

    /// Whether all records committed up to now are durable.
    pub(crate) fn is_all_durable(&self) -> bool {
        self.durable >= self.committed
    }

    /// Sets the durability that a new connection waits for.
    pub(crate) fn set_durability(&mut self, place: Place, durability: Durability) {
        match durability {
            Durability::Fsync => drop(self.hasty.remove(&place)),
            hasty => drop(self.hasty.insert(place, hasty)),
        }
    }

    /// Forgets a connection that has gone.
    pub(crate) fn forget(&mut self, place: Place) {
        self.hasty.remove(&place);
        if self.refused.remove(&place) && self.refused.is_empty() {
            // It may have had room for all connections of the server.
            self.refused = HashSet::default();
        }
    }

    /// Notes that a message of a connection was refused, and that its client cannot be told.
    pub(crate) fn note_refused(&mut self, place: Place) {
        self.refused.insert(place);
    }

    /// Whether a message of this connection was refused, and its client cannot be told.
    pub(crate) fn has_refused(&self, place: Place) -> bool {
        !self.refused.is_empty() && self.refused.contains(&place)
    }

    fn durability(&self, place: Place) -> Durability {
        // Of most servers nobody is hasty.
        if self.hasty.is_empty() {
            Durability::Fsync
        } else {
            self.hasty.get(&place).copied().unwrap_or_default()
        }
    }

    /// Whether all records committed up to now are as safe as a connection requires.
    pub(crate) fn is_all_safe(&self, place: Place) -> bool {
        self.is_safe(place, self.committed)
    }

    /// Whether a record is as safe as a connection wants it to be.
    pub(crate) fn is_safe(&self, place: Place, record: Lsn) -> bool {
        match self.durability(place) {
            Durability::Fsync => self.durable >= record,
            Durability::Os => self.written >= record,
            Durability::None => true,
        }
    }

    /// Whether no answer to a connection waits for a record. When nothing will be written any more, none does.
    pub(crate) fn holds_nothing_behind(&self, place: Place, record: Lsn) -> bool {
        self.is_poisoned || self.is_safe(place, record)
    }

    /// Whether an answer to a connection may promise what was committed before.
    pub(crate) fn promise(&self, place: Place) -> Result<(), ReasonCode> {
        let is_lost = self.is_poisoned && !self.is_all_safe(place);
        if is_lost { Err(ReasonCode::ImplementationSpecificError) } else { Ok(()) }
    }

    /// Keeps an answer until all records committed up to now are as safe as the connection requires.
    pub(crate) fn hold(&mut self, place: Place, answer: Answer) {
        let held = match self.durability(place) {
            Durability::Fsync => &mut self.held,
            Durability::Os | Durability::None => &mut self.held_for_write,
        };
        held.push_back((self.committed, answer));
    }

    /// Position of the last committed record.
    pub(crate) fn committed(&self) -> Lsn {
        self.committed
    }

    pub(crate) fn set_progress(&mut self, progress: Progress) {
        self.durable = self.durable.max(progress.durable);
        self.written = self.written.max(progress.written).max(self.durable);
    }

    /// The next answer that has not to wait any more.
    pub(crate) fn next_safe(&mut self) -> Option<Answer> {
        let written = self.held_for_write.pop_front_if(|(lsn, _)| *lsn <= self.written);
        let safe = written.or_else(|| self.held.pop_front_if(|(lsn, _)| *lsn <= self.durable));
        safe.map(|(_, answer)| answer)
    }

    /// Nothing will be written any more: returns everything that waits for it.
    fn take_held(&mut self) -> impl Iterator<Item = Answer> + use<> {
        self.is_poisoned = true;
        let held = std::mem::take(&mut self.held).into_iter();
        held.chain(std::mem::take(&mut self.held_for_write)).map(|(_, answer)| answer)
    }

    fn has_held(&self) -> bool {
        !(self.held.is_empty() && self.held_for_write.is_empty())
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.is_poisoned
    }

    pub(crate) fn poison(&mut self, to: &mut impl Effects) {
        for Answer { shard, reply, .. } in self.take_held() {
            if let Some(reply) = instead(&reply) {
                to.post(shard, reply);
            }
        }
    }

    pub(crate) fn tell_if_poisoned(&mut self, to: &mut impl Effects) {
        if self.is_poisoned() && self.has_held() {
            self.poison(to);
        }
    }

    /// Returns the reason code for a client when a group of records was refused.
    pub(crate) fn reason(&self, refusal: Refusal) -> ReasonCode {
        add(&self.gauges.commits_refused, 1);
        match refusal {
            Refusal::NoSpace => ReasonCode::QuotaExceeded,
            Refusal::TooLong | Refusal::Poisoned => ReasonCode::ImplementationSpecificError,
        }
    }

    /// Records the end of a group.
    pub(crate) fn record_end_of(
        &mut self,
        lines: &Lines,
        group: QueueId,
        to: &mut impl Effects,
    ) -> Result<(), Refusal> {
        match lines.group(group) {
            Some(group) if group.is_recorded => {
                self.commit(&[Record::GroupEnded { group: group.incarnation }], to)
            }
            _ => Ok(()),
        }
    }

    /// Posts an answer when all records committed before it are safe. Answers to one connection thus keep their order.
    pub(crate) fn answer(&mut self, lines: &mut Lines, answer: Answer, now: Now, to: &mut impl Effects) {
        let connection = answer.reply.connection();
        let place = connection.map(|connection| Place { shard: answer.shard, connection });
        match place {
            Some(place) => self.answer_to(lines, place, answer, now, to),
            None => self.release(lines, answer, now, to),
        }
    }

    pub(crate) fn answer_to(
        &mut self,
        lines: &mut Lines,
        place: Place,
        answer: Answer,
        now: Now,
        to: &mut impl Effects,
    ) {
        // When nothing will be durable any more, what still succeeds promises nothing.
        if self.is_all_safe(place) || self.is_poisoned() {
            self.release(lines, answer, now, to);
        } else {
            self.hold(place, answer);
        }
    }

    /// Posts an answer whose record is safe: rule 11 of `protocol::order`.
    pub(crate) fn release(&mut self, lines: &mut Lines, answer: Answer, now: Now, to: &mut impl Effects) {
        let Answer { shard, reply, brake } = answer;
        match &reply {
            Reply::Claimed(claimed) if claimed.subscriber.queue.is_some() => {
                let place = Place { shard, connection: claimed.connection };
                let queue = claimed.subscriber.queue;
                to.post(shard, reply);
                if let Some(queue) = queue {
                    self.open(lines, queue, place, to);
                }
            }
            Reply::Stored { connection, ticket, .. } if acknowledges_publish(*ticket) => {
                let place = Place { shard, connection: *connection };
                let now_ms = now.monotonic_ms;
                let braked = brake.filter(|brake| {
                    self.withheld.may_wait(place, *brake, now_ms) && lines.is_braked(brake.queue, now)
                });
                if let Some(queue) = self.withheld.queue_of(place) {
                    self.release_brake(lines, queue, now, to);
                }
                if braked.is_some() || self.withheld.queue_of(place).is_some() {
                    add(&self.gauges.withheld, 1);
                    self.withheld.push(braked, place, reply, now_ms);
                } else {
                    to.post(shard, reply);
                }
            }
            Reply::Deliver(deliver) => {
                if let Delivered::Session { queue, packet_id } = deliver.what
                    && let Some(session) = lines.session_mut(queue)
                {
                    session.in_flight.sent(packet_id);
                }
                to.post(shard, reply);
            }
            _ => to.post(shard, reply),
        }
    }

    /// The shard knows that the connection has the session, so that others may lead there, and what is under way goes on
    /// [MQTT-4.4.0-1].
    fn open(&mut self, lines: &mut Lines, id: QueueId, place: Place, to: &mut impl Effects) {
        // The connection may have gone before its shard could be told.
        let Some(Line { owner: Owner::Session(session), queue, growth, .. }) = lines.find_mut(id) else {
            return;
        };
        let Some(online) = session.online.as_mut().filter(|online| online.place == place) else { return };
        let lasting = session.lasting.as_ref().expect("it lasts");
        add(&self.gauges.sessions_connected, 1);
        online.is_open = true;
        online.opened_behind = self.numbers.message;
        let has_more_unfinished = online.is_restored && !lasting.cursors.is_empty();
        *growth = Growth::begin(queue);
        for exchange in session.in_flight.restart() {
            let packet_id = exchange.packet_id;
            match exchange.state {
                State::Released => {
                    online.begun(exchange.bytes);
                    to.post(place.shard, Reply::Release { connection: place.connection, packet_id });
                }
                _ => online.again.push_back(packet_id),
            }
        }
        session.subscriber.move_to(Some(place));
        touch(&lines.index, lines.session(id).expect("it was there a moment ago"));
        if has_more_unfinished {
            self.restoring.add(id, place, What::Unfinished);
        }
        lines.move_in_groups(id);
        lines.is_ready(id);
    }

    /// Lets the publishers of a queue go on, if there are any who wait and need not any longer.
    pub(crate) fn release_brake(
        &mut self,
        lines: &mut Lines,
        queue: QueueId,
        now: Now,
        to: &mut impl Effects,
    ) {
        if !self.withheld.is_empty() && !lines.is_braked(queue, now) {
            self.withheld.release(queue, now.monotonic_ms, to);
        }
    }
}

/// Whether PUBACK or PUBREC waits, which are the publisher's signal to go on.
fn acknowledges_publish(ticket: base::Ticket) -> bool {
    matches!(ticket, base::Ticket::PubAck(_) | base::Ticket::PubRec(_))
}

/// Returns the reply that replaces an answer that can never be given.
fn instead(reply: &Reply) -> Option<Reply> {
    let ended =
        |connection: ConnectionId| Some(Reply::Ended { connection, reason: ReasonCode::UnspecifiedError });
    match reply {
        Reply::Claimed(claimed) => {
            let connection = claimed.connection;
            Some(Reply::Refused { connection, reason: ReasonCode::ServerUnavailable })
        }
        Reply::Stored { connection, .. } | Reply::Recorded { connection, .. } => ended(*connection),
        // Its message waits for another day.
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Incarnation;
    use crate::settings::Settings;
    use base::Ticket;
    use wire::PacketId;

    /// Counts what goes out.
    #[derive(Default)]
    struct Outside {
        committed: u64,
        posted: usize,
    }

    impl Effects for Outside {
        fn post(&mut self, _: ShardId, _: Reply) {
            self.posted += 1;
        }

        fn commit(&mut self, _: &[Record<'_>]) -> Result<Lsn, Refusal> {
            self.committed += 1;
            Ok(Lsn(self.committed))
        }

        fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
            self.commit(group)
        }
    }

    /// Replies need no other part of a ledger but lines.
    #[test]
    fn an_answer_waits_for_the_records_before_it() {
        let (mut lines, mut to) = (Lines::alone(&Settings::default()), Outside::default());
        let mut replies = Replies::new(Arc::default());
        let now = Now { monotonic_ms: 1, unix_ms: 1 };
        let connection = ConnectionId { slot: 0, generation: 0 };
        let stored = || {
            let ticket = Ticket::PubAck(PacketId::MIN);
            let reply = Reply::Stored { connection, ticket, reason: ReasonCode::Success };
            Answer::new(ShardId::new(0), reply)
        };
        replies.answer(&mut lines, stored(), now, &mut to);
        assert_eq!(to.posted, 1);
        let group = [Record::GroupEnded { group: Incarnation(1) }];
        replies.commit(&group, &mut to).expect("there is space");
        replies.answer(&mut lines, stored(), now, &mut to);
        assert_eq!((to.posted, replies.next_safe().is_none()), (1, true));
        replies.set_progress(Progress { written: Lsn(1), durable: Lsn(1), has_failed: false });
        let answer = replies.next_safe().expect("its record is durable");
        replies.release(&mut lines, answer, now, &mut to);
        assert_eq!(to.posted, 2);
    }
}
