//! Messages that get their place in the order: whom they go to, and what is recorded of them.

use std::borrow::Cow;
use std::hint::black_box;
use std::slice;
use std::sync::Arc;

use base::{Fate, Interest, Message, Now, Place, QueueId, ShardId, Subscriber, Ticket};
use index::{Target, Targets};
use smallvec::SmallVec;
use wire::{PacketId, Qos, ReasonCode};

use crate::gauges::add;
use crate::lines::brake::{Arrival, Brake};
use crate::lines::fates::{MessageAt, Whereabouts};
use crate::lines::group::{Inherited, lane_of};
use crate::lines::room::QueueRoom;
use crate::lines::session::Session;
use crate::lines::{Line, Owner};
use crate::publishing::Publishing;
use crate::queue::entry::Keeping;
use crate::queue::in_flight::{Exchange, State};
use crate::record::{Address, Effects, Granted, MessageId, Queued, Record, Refusal, WillFate};
use crate::replies::Answer;
use crate::retained::{Stored, behind_topic, is_of_server};
use crate::settings::QueueFull;
use protocol::{Publish, Reply};

/// The maximum number of messages that make room for one, in all of its queues, beside one in each queue: each is a record
/// of the same group.
const DROPPED_AT_A_TIME: usize = 1_000;

/// Maximum number of open QoS 2 exchanges of a lasting session while memory is short. They take less memory than the
/// session.
const UNRELEASED_ALLOWED: usize = 4;

/// Maximum capacity of the buffers that are kept for the next message, in queues: about 100 KB.
const QUEUES_KEPT_MAX: usize = 1_024;

/// Records that are kept together, of which there are mostly one or two.
type RecordGroup<'a> = SmallVec<[Record<'a>; 2]>;

/// A message with everything that decides its way.
pub(crate) struct Routing<'a> {
    pub(crate) message: &'a Arc<Message>,
    pub(crate) targets: &'a Targets,
    /// The client that has published it and can be told what became of it.
    pub(crate) publisher: Option<Publisher>,
    /// The message opens an exchange of QoS 2 with this session.
    pub(crate) opens: Option<(QueueId, PacketId)>,
    /// The message is the will that was recorded under this number.
    pub(crate) will: Option<MessageId>,
}

/// The publisher of a message, to which a reply can be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Publisher {
    /// Its own queue, if its session lasts.
    pub(crate) queue: Option<QueueId>,
    /// When its message came.
    pub(crate) now_ms: u64,
}

/// A message that has its place in the order.
#[derive(Debug, Clone, Copy)]
struct Recorded {
    id: MessageId,
    /// Address of the message, which need not stay in memory then.
    address: Option<Address>,
}

/// The result of routing a message.
pub(crate) struct Routed {
    /// At least one subscription matches the message.
    has_subscriber: bool,
    /// A queue that it went into has grown too much.
    brake: Option<Brake>,
}

/// The queues of a message. The buffers are reused.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    queues: Vec<Planned>,
    /// The part of the message's record about its queues. No longer than `queues`.
    enqueued: Vec<Queued>,
}

impl Plan {
    /// Empties the buffers for the next message, and frees those of a message for very many queues.
    fn clear(&mut self) {
        self.queues.clear();
        self.enqueued.clear();
        if self.queues.capacity() > QUEUES_KEPT_MAX {
            *self = Self::default();
        }
    }
}

/// One queue that a message is to go into.
#[derive(Debug)]
pub(crate) struct Planned {
    queue: QueueId,
    queued: Queued,
    is_recorded: bool,
    room: QueueRoom,
}

impl Planned {
    /// Whether the queue gets the message.
    fn is_taken(&self) -> bool {
        matches!(
            self.room,
            QueueRoom::Enough
                | QueueRoom::AfterDropping(_)
                | QueueRoom::AfterEnding(_)
                | QueueRoom::EndsGroup
        )
    }

    /// The messages that the queue drops, without the first.
    fn dropped_beside_one(&self) -> usize {
        if let QueueRoom::AfterDropping(messages) = self.room { messages.saturating_sub(1) } else { 0 }
    }
}

impl Publishing<'_> {
    /// A PUBLISH on the ledger's way.
    pub(crate) fn publish(&mut self, from: ShardId, publish: Publish, now: Now, to: &mut impl Effects) {
        let Publish { connection, publisher, ticket, hears_refusals, message, route } = publish;
        let place = connection.map(|connection| Place { shard: from, connection });
        if let (Some(session), Some(place)) = (publisher, place)
            && !self.lines.is_on(session, place)
        {
            return;
        }
        let has_refused = place.is_some_and(|place| self.replies.has_refused(place));
        if let (true, Some(place), Some(ticket)) = (has_refused, place, ticket) {
            // Rule 13 of `protocol::order`: the client sends this message again, too.
            return self.answer(place, (ticket, ReasonCode::QuotaExceeded), None, now, to);
        }
        let opens = match ticket {
            Some(Ticket::PubRec(packet_id)) => publisher.map(|session| (session, packet_id)),
            _ => None,
        };
        let is_repeated = opens.is_some_and(|(session, packet_id)| {
            let lasting = self.lines.session(session).and_then(|session| session.lasting.as_ref());
            lasting.is_some_and(|lasting| lasting.unreleased.contains(&packet_id))
        });
        // A repeated message has no record of its own, and neither has the end of a value that is not there
        // [MQTT-4.3.3-10]: the answer waits for the record before, which may be lost.
        let ends_value = message.retain() && message.payload().is_empty() && message.qos() > Qos::AtMostOnce;
        let promised = place.filter(|_| is_repeated || ends_value);
        let promised = promised.map_or(Ok(()), |place| self.replies.promise(place));
        let routed = if is_repeated {
            promised.map(|()| Routed { has_subscriber: true, brake: None })
        } else {
            let targets = match route {
                Some((generation, targets)) if self.lines.index.is_current(generation) => targets,
                _ => Arc::new(self.look_up(&message)),
            };
            let publisher = place.map(|_| Publisher { queue: publisher, now_ms: now.monotonic_ms });
            let routing = Routing { message: &message, targets: &targets, publisher, opens, will: None };
            promised.and_then(|()| self.route(&routing, to))
        };
        let Some(place) = place else { return };
        if routed.is_err() && ticket.is_some() && !hears_refusals {
            self.replies.note_refused(place);
        } else if !has_refused {
            to.post(place.shard, Reply::Decided { connection: place.connection });
        }
        let Some(ticket) = ticket else { return };
        let (reason, brake) = match routed {
            Ok(Routed { has_subscriber: true, brake }) => (ReasonCode::Success, brake),
            Ok(Routed { brake, .. }) => (ReasonCode::NoMatchingSubscribers, brake),
            Err(reason) => (reason, None),
        };
        self.answer(place, (ticket, reason), brake, now, to);
    }

    fn answer(
        &mut self,
        place: Place,
        (ticket, reason): (Ticket, ReasonCode),
        brake: Option<Brake>,
        now: Now,
        to: &mut impl Effects,
    ) {
        let reply = Reply::Stored { connection: place.connection, ticket, reason };
        self.replies.answer(self.lines, Answer { shard: place.shard, reply, brake }, now, to);
    }

    /// Puts a retained value into the queue of a session that lasts, and records that its cursor for `filter` has come
    /// behind it.
    pub(crate) fn bring(
        &mut self,
        queue: QueueId,
        filter: &str,
        (message, interest): (&Arc<Message>, Interest),
        to: &mut impl Effects,
    ) -> Result<(), Refusal> {
        let planned = self.plan_to_bring(queue, message, interest);
        let from = behind_topic(message.topic());
        let id = self.replies.numbers.next_message();
        let mut group = RecordGroup::new();
        if planned.is_taken() {
            let queues = Cow::Borrowed(slice::from_ref(&planned.queued));
            let body = Cow::Borrowed(message);
            group.push(Record::Enqueue { message: id, body, queues, is_retained: false });
        }
        self.record_room(&planned, &mut group);
        if planned.room != QueueRoom::Ends {
            let (session, filter) = (planned.queued.queue, Cow::Borrowed(filter));
            group.push(Record::CursorMoved { session, filter, from: Cow::Borrowed(&from) });
        }
        self.replies.commit(&group, to)?;
        // The group borrows `from`, which the cursor gets.
        drop(group);
        let lasting = self.lines.session_mut(queue).and_then(|session| session.lasting.as_mut());
        let cursor = lasting.and_then(|lasting| lasting.cursors.get_mut(filter));
        cursor.expect("its cursor is running").from = from;
        let targets = Targets::default();
        let routing = Routing { message, targets: &targets, publisher: None, opens: None, will: None };
        // A group of records without the message has nothing that could be read again.
        let address = if planned.is_taken() {
            self.bodies.address_if_full(message, self.settings.queued_bytes_in_memory, to)
        } else {
            None
        };
        self.enqueue(&routing, Recorded { id, address }, &mut vec![planned], to);
        Ok(())
    }

    fn plan_to_bring(&self, id: QueueId, message: &Message, interest: Interest) -> Planned {
        let line = self.lines.find(id).expect("its cursor is running");
        let qos = message.qos().min(interest.qos());
        let granted = Granted { qos, retain: true, identifiers: interest.identifier().into_iter().collect() };
        Planned {
            queue: id,
            queued: Queued { queue: line.incarnation().expect("what remembers a cursor lasts"), granted },
            is_recorded: true,
            room: line.room(message, DROPPED_AT_A_TIME, self.settings),
        }
    }

    /// Decides a message: from here on its order is fixed. Refused, nobody gets it.
    pub(crate) fn route(
        &mut self,
        routing: &Routing<'_>,
        to: &mut impl Effects,
    ) -> Result<Routed, ReasonCode> {
        let Routing { message, targets, opens, .. } = *routing;
        let mut plan = std::mem::take(self.plan);
        // Once and for all: others change the account of memory meanwhile.
        let is_retained = message.retain() && !message.payload().is_empty() && self.may_retain(message);
        let decided = self
            .plan(routing, is_retained, &mut plan.queues)
            .and_then(|()| self.record(routing, is_retained, &mut plan, to));
        let recorded = match decided {
            Ok(recorded) => recorded,
            Err(reason) => {
                for Planned { queue, queued, .. } in plan.queues.drain(..) {
                    self.lines.decided(queue, unstored(message, &queued), Fate::NotStored(reason));
                }
                plan.clear();
                *self.plan = plan;
                return Err(reason);
            }
        };
        let brake = self.enqueue(routing, recorded, &mut plan.queues, to);
        plan.clear();
        *self.plan = plan;
        if let Some((session, packet_id)) = opens
            // One whose own message was too much for its queue has ended.
            && let Some(session) = self.lines.session_mut(session)
        {
            let lasting = session.lasting.as_mut().expect("what opens an exchange here lasts");
            self.sessions.unreleased += usize::from(lasting.unreleased.insert(packet_id));
        }
        if message.retain() {
            if is_retained || message.payload().is_empty() {
                let stored = self.retained.set(recorded.id, message);
                debug_assert_eq!(stored, Stored::Done, "there was room a moment ago");
            } else {
                // The previous value is out of date.
                self.retained.clear(message.topic().as_str());
                add(&self.gauges.retained_refused, 1);
            }
        }
        self.post_live(message, targets, is_retained.then_some(recorded.id), to);
        Ok(Routed { has_subscriber: !targets.is_empty(), brake })
    }

    /// Finds out which queues the message goes into, and whether they have room.
    fn plan(
        &self,
        routing: &Routing<'_>,
        is_retained: bool,
        queues: &mut Vec<Planned>,
    ) -> Result<(), ReasonCode> {
        let Routing { message, targets, publisher, .. } = *routing;
        let (qos, retain) = (message.qos(), message.retain());
        let mut dropped_max = DROPPED_AT_A_TIME;
        let mut put = |queue, granted| {
            // One that was found may have ended since.
            let Some(line) = self.lines.find(queue) else { return };
            let (is_recorded, name) = match &line.owner {
                Owner::Session(session) if is_retained && !session.knows_subscription_to(message.topic()) => {
                    return;
                }
                Owner::Session(session) => {
                    (true, session.incarnation().expect("what waits is for one that lasts"))
                }
                Owner::Group(group) => (group.is_recorded, group.incarnation),
            };
            // The end of the queue is mostly in no cache: by the time it is written to, it is.
            black_box(line.queue.last());
            let room = line.room(message, dropped_max, self.settings);
            let planned = Planned { queue, queued: Queued { queue: name, granted }, is_recorded, room };
            dropped_max -= planned.dropped_beside_one();
            queues.push(planned);
        };
        for target in targets.queued.iter().filter(|target| target.is_queued(qos)) {
            let retain = retain && target.retain_as_published;
            let granted =
                Granted { qos: qos.min(target.qos), retain, identifiers: target.identifiers.clone() };
            put(target.subscriber.queue.expect("a target of a queue has one"), granted);
        }
        for group in targets.groups.iter().filter(|_| qos > Qos::AtMostOnce) {
            put(group.queue.expect("a group has a queue"), Granted::of_group(message));
        }
        let refuses = self.settings.queue_full == QueueFull::Refuse && publisher.is_some();
        if refuses && queues.iter().any(|planned| planned.room == QueueRoom::None) {
            add(&self.gauges.publishes_refused, 1);
            return Err(ReasonCode::QuotaExceeded);
        }
        let lacks_memory =
            self.lacks_memory(message, is_retained, queues) || self.has_too_many_open(routing.opens);
        if publisher.is_some() && lacks_memory {
            let is_to_retain = message.retain() && !message.payload().is_empty();
            let is_over_limit = is_to_retain && !self.retained.has_room_for(message);
            let refused = if is_over_limit {
                &self.gauges.retained_refused
            } else {
                &self.gauges.publishes_refused_memory
            };
            add(refused, 1);
            return Err(ReasonCode::QuotaExceeded);
        }
        Ok(())
    }

    /// Whether there is memory to retain a message: where that is short, for one that takes the place of another as
    /// large, and for what the server says of itself.
    fn may_retain(&self, message: &Message) -> bool {
        self.retained.has_room_for(message)
            && (!self.bodies.budget.is_tight_to_keep()
                || message.publisher().is_none()
                || self.retained.shrinks_with(message))
    }

    /// Whether a publisher that can be told has to hear that there is no memory for a message. Under memory pressure,
    /// messages that can be sent immediately are still accepted, as long as any memory is left.
    fn lacks_memory(&self, message: &Message, is_retained: bool, queues: &[Planned]) -> bool {
        if message.qos() == Qos::AtMostOnce {
            return false;
        }
        if message.retain() && !message.payload().is_empty() && !is_retained {
            return true;
        }
        let budget = &self.bodies.budget;
        let mut taken = queues.iter().filter(|planned| planned.is_taken());
        budget.is_tight_to_keep()
            && taken.any(|planned| budget.is_full() || !self.leaves_soon(planned.queue, message))
    }

    /// Whether there is no memory for one more exchange of QoS 2. It is kept when its client has left.
    fn has_too_many_open(&self, opens: Option<(QueueId, PacketId)>) -> bool {
        let session = opens.and_then(|(session, _)| self.lines.session(session)?.lasting.as_ref());
        session.is_some_and(|session| session.unreleased.len() >= UNRELEASED_ALLOWED)
            && self.bodies.budget.is_tight_to_keep()
    }

    /// Whether what comes into a queue is taken out of it by somebody who is there: behind what little waits already.
    fn leaves_soon(&self, queue: QueueId, message: &Message) -> bool {
        self.lines.find(queue).is_some_and(|line| line.leaves_soon(message))
    }

    /// Writes down what will happen, all of it together: the message first, since it is found by where the group begins.
    fn record(
        &mut self,
        routing: &Routing<'_>,
        is_retained: bool,
        Plan { queues, enqueued }: &mut Plan,
        to: &mut impl Effects,
    ) -> Result<Recorded, ReasonCode> {
        let Routing { message, opens, will, .. } = *routing;
        let id = self.replies.numbers.next_message();
        let mut group = RecordGroup::new();
        let ended = ended_by(queues);
        let is_ended = |queue: &QueueId| ended.binary_search(queue).is_ok();
        let takes = queues
            .iter()
            .filter(|planned| planned.is_recorded && planned.is_taken() && !is_ended(&planned.queue));
        enqueued.clear();
        enqueued.extend(takes.map(|planned| planned.queued.clone()));
        let is_queued = !enqueued.is_empty();
        // The server's own values are those of this process.
        let is_retained = is_retained && !is_of_server(message);
        if is_retained || is_queued {
            let (body, enqueued) = (Cow::Borrowed(message), Cow::Borrowed(&enqueued[..]));
            group.push(Record::Enqueue { message: id, body, queues: enqueued, is_retained });
        }
        if let Some((session, packet_id)) = opens
            && let Some(session) = self.lines.session(session).and_then(Session::incarnation)
        {
            group.push(Record::Opened { session, packet_id });
        }
        for planned in &*queues {
            self.record_room(planned, &mut group);
        }
        group.extend(ended.iter().filter_map(|member| self.end_of(*member)));
        // If the topic has no recorded value, a record that clears it would only use space.
        let clears = message.retain() && !is_retained && !is_of_server(message);
        if clears && self.retained.is_on_record(message.topic().as_str()) {
            group.push(Record::Cleared { topic: Cow::Borrowed(message.topic().as_str()) });
        }
        group.extend(will.map(|will| Record::WillDone { will }));
        let in_memory = Recorded { id, address: None };
        if group.is_empty() {
            return Ok(in_memory);
        }
        if group.iter().map(Record::bytes_most).sum::<usize>() > to.group_bytes_max() {
            // For more queues than can be recorded together.
            return Err(self.replies.reason(Refusal::TooLong));
        }
        // Nobody was promised that a retained message of QoS 0 is kept, and a will is better published twice than never.
        let can_do_without = opens.is_none() && queues.is_empty() && message.qos() == Qos::AtMostOnce;
        match self.replies.commit(&group, to) {
            Err(Refusal::NoSpace) if can_do_without && will.is_some() => Err(ReasonCode::QuotaExceeded),
            Err(_) if can_do_without => {
                if is_retained {
                    self.retained.note_unrecorded(id);
                }
                add(&self.gauges.unrecorded, 1);
                Ok(in_memory)
            }
            Err(refusal) => Err(self.replies.reason(refusal)),
            Ok(()) if is_queued => Ok(Recorded {
                id,
                address: self.bodies.address_if_full(message, self.settings.queued_bytes_in_memory, to),
            }),
            Ok(()) => Ok(in_memory),
        }
    }
}

impl Publishing<'_> {
    /// Adds the records for making room in a queue.
    fn record_room(&self, planned: &Planned, group: &mut RecordGroup<'_>) {
        match planned.room {
            // The ends of members are recorded once, however many groups they are the fullest of.
            QueueRoom::Enough
            | QueueRoom::None
            | QueueRoom::Absent
            | QueueRoom::EndsGroup
            | QueueRoom::AfterEnding(_) => {}
            QueueRoom::AfterDropping(messages) => {
                let line = self.lines.find(planned.queue).expect("it was looked at for room");
                let recorded = line.queue.iter().take(messages).filter(|(_, entry)| entry.is_recorded());
                let queue = planned.queued.queue;
                group.extend(recorded.map(|(message, _)| Record::Removed { queue, message }));
            }
            QueueRoom::Ends => group.extend(self.end_of(planned.queue)),
        }
    }

    /// The record of the end of a session that lasts.
    pub(crate) fn end_of(&self, id: QueueId) -> Option<Record<'static>> {
        let lasting = self.lines.session(id)?.lasting.as_ref()?;
        Some(Record::Ended { session: lasting.incarnation, will: lasting.fate_at_end() })
    }

    /// Applies a recorded message to its queues. Returns a queue that has grown too much.
    fn enqueue(
        &mut self,
        routing: &Routing<'_>,
        Recorded { id, address }: Recorded,
        queues: &mut Vec<Planned>,
        to: &mut impl Effects,
    ) -> Option<Brake> {
        let own = routing.publisher.and_then(|publisher| publisher.queue);
        let mut brake = None;
        if queues.is_empty() {
            return brake;
        }
        self.lines.fates.come(queues.len());
        for Planned { queue, queued, .. } in queues.iter().filter(|planned| planned.room == QueueRoom::Ends) {
            self.lines.note(*queue, unstored(routing.message, queued), Fate::QueueFull);
            // It is lost with all others of the session.
            self.lines.fates.count(Whereabouts::Outside, (1, 0), &Fate::SessionEnded);
            self.end_for_full_queue(*queue, to);
        }
        let is_recorded = queues.iter().any(|planned| planned.is_recorded);
        let keeping =
            Keeping::new(routing.message, queues.len(), is_recorded.then_some(self.bodies.live), address);
        let mut arrival = Arrival::new(routing.message.size_bytes(), routing.targets);
        for planned in queues.drain(..) {
            let Planned { queue, queued, is_recorded, room } = planned;
            match room {
                QueueRoom::Ends => continue,
                QueueRoom::None => {
                    self.lines.decided(queue, unstored(routing.message, &queued), Fate::QueueFull);
                    continue;
                }
                QueueRoom::Absent => {
                    self.lines.decided(queue, unstored(routing.message, &queued), Fate::Expired);
                    continue;
                }
                QueueRoom::Enough => {}
                QueueRoom::AfterDropping(messages) => self.drop_oldest(queue, messages),
                QueueRoom::AfterEnding(member) => self.end_fullest(queue, member, to),
                QueueRoom::EndsGroup => self.lines.end_members_of(queue),
            }
            let entry = |stays_away| keeping.one(queued.granted, is_recorded, stays_away);
            if !self.lines.push(queue, id, routing.message, entry) {
                // Another group, which stood before it in the plan, has ended its last member.
                continue;
            }
            if own != Some(queue)
                && let Some(Publisher { now_ms, .. }) = routing.publisher
                && self.lines.has_grown(queue)
            {
                // Each of them: readers that are slow are waited for at the same time.
                let braked = self.lines.arrive(queue, &mut arrival, now_ms);
                brake = brake.or(braked);
            }
        }
        brake
    }

    fn drop_oldest(&mut self, queue: QueueId, messages: usize) {
        for _ in 0..messages {
            let line = self.lines.find_mut(queue).expect("it was looked at for room");
            let (id, entry) = line.drop_oldest().expect("it was there when this was recorded");
            let at = MessageAt::Waiting { id, entry: &entry, packet_id: None };
            self.lines.decided(queue, at, Fate::DroppedOldest);
        }
    }

    /// Ends the member whose keys fill the queue of a group. The others get what waits for it.
    fn end_fullest(&mut self, queue: QueueId, member: QueueId, to: &mut impl Effects) {
        self.end_for_full_queue(member, to);
        let line = self.lines.find_mut(queue).expect("a group does not end with a member that others follow");
        let Line { owner: Owner::Group(group), queue, .. } = line else { unreachable!("it is a group") };
        group.inherited = Inherited::all_of(queue);
    }

    /// Ends a session whose queue is full, and tells its client if that is connected.
    pub(crate) fn end_for_full_queue(&mut self, id: QueueId, to: &mut impl Effects) {
        // It may be the fullest member of several groups, or have ended before it has left its groups.
        let Some(session) = self.lines.session(id) else { return };
        if let Some(online) = &session.online {
            post_ended(online.place, to);
        }
        if session.lasting.is_some() {
            add(&self.gauges.ended_by_full_queue, 1);
            let waiting = self.lines.find(id).map_or(0, |line| line.queue.len());
            // Those of groups go to other members.
            let is_own = |exchange: &&Exchange| matches!(exchange.state, State::Own(..));
            let in_flight = session.in_flight.iter().filter(is_own).count();
            to.ended_by_full_queue(&session.subscriber.client_id, waiting + in_flight);
        }
        self.sessions.remove(self.lines, self.replies, id, WillFate::Due);
    }

    /// Posts the copies for connected subscribers at once.
    /// `value`: its number, if it is the retained value of its topic now.
    fn post_live(
        &mut self,
        message: &Arc<Message>,
        targets: &Targets,
        value: Option<MessageId>,
        to: &mut impl Effects,
    ) {
        let qos = message.qos();
        for (shard, list) in &targets.shards {
            if !list.iter().all(|target| target.is_queued(qos)) {
                let (message, targets) = (Arc::clone(message), Arc::clone(list));
                to.post(*shard, Reply::Live { message, targets, value });
            }
        }
        if qos == Qos::AtMostOnce {
            let reads = |member: &Subscriber| self.settings.may_receive(member, message);
            for group in &targets.groups {
                let members = group.members();
                let receiver =
                    members.and_then(|members| members.receiver_that(lane_of(members, message), reads));
                if let Some((member, Place { shard, connection })) = receiver {
                    let sent = (Qos::AtMostOnce, None);
                    self.lines.fates.note_given((group, &member.subscriber), (message, None), sent);
                    let target = Target::one(member.subscriber, connection, member.interest);
                    let message = Arc::clone(message);
                    to.post(shard, Reply::Live { message, targets: Arc::new([target]), value });
                }
            }
        }
    }
}

/// A message that does not come into the queue that it was meant for.
fn unstored<'a>(message: &'a Message, queued: &Queued) -> MessageAt<'a> {
    MessageAt::Coming { message, qos: queued.granted.qos, id: None }
}

/// The members that end because their keys fill a group, in an order in which they are found: nothing is recorded for
/// their own queues any more.
fn ended_by(queues: &[Planned]) -> Vec<QueueId> {
    let mut ended: Vec<QueueId> = queues
        .iter()
        .filter_map(|planned| match planned.room {
            QueueRoom::AfterEnding(member) => Some(member),
            _ => None,
        })
        .collect();
    ended.sort_unstable();
    ended.dedup();
    ended
}

pub(crate) fn post_ended(place: Place, to: &mut impl Effects) {
    let reason = ReasonCode::QuotaExceeded;
    to.post(place.shard, Reply::Ended { connection: place.connection, reason });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_a_message_for_very_many_queues_are_not_kept() {
        for (queues, is_kept) in [(QUEUES_KEPT_MAX, true), (QUEUES_KEPT_MAX + 1, false)] {
            let mut plan = Plan { queues: Vec::with_capacity(queues), enqueued: Vec::with_capacity(queues) };
            plan.clear();
            assert_eq!(plan.queues.capacity() > 0, is_kept, "{queues}");
            assert_eq!(plan.enqueued.capacity() > 0, is_kept, "{queues}");
        }
    }
}
