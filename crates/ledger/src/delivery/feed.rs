//! Messages that leave their queue, as many as their client takes.

use std::num::NonZeroU32;
use std::sync::Arc;

use base::{Fate, Message, Now, Place, QueueId};
use wire::{PacketId, Publish, Qos, Version};

use crate::delivery::Delivery;
use crate::delivery::share::deliver;
use crate::lines::fates::MessageAt;
use crate::lines::session::{Session, credit_bytes};
use crate::lines::{Line, Owner};
use crate::queue::in_flight::State;
use crate::record::{Effects, Incarnation, MessageId, RETRY_MS, Record, Refusal};
use crate::replies::Answer;
use protocol::{Delivered, Reply};

/// Maximum number of messages that one queue sends before the next queue has its turn.
const MESSAGES_AT_A_TIME: usize = 16;

/// The result of feeding a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feeding {
    /// This number of messages was sent. No other message waits, or no reader accepts more.
    Done(usize),
    /// As many as were allowed.
    More,
    /// There was no space for the records.
    Stalled,
}

/// The fate of a message that was first in its queue, with its packet identifier if it is sent.
type FirstFate = (Fate, Option<PacketId>);

/// The fates of the first messages of a queue, and their records. The buffers are reused.
#[derive(Debug, Default)]
pub(crate) struct FirstFates {
    fates: Vec<FirstFate>,
    records: Vec<Record<'static>>,
}

impl FirstFates {
    fn push(&mut self, first: FirstFate, session: Incarnation, message: MessageId) {
        self.records.push(match first.1 {
            Some(packet_id) => Record::Sent { session, message, packet_id },
            None => Record::Removed { queue: session, message },
        });
        self.fates.push(first);
    }

    fn clear(&mut self) {
        self.fates.clear();
        self.records.clear();
    }
}

impl Delivery<'_> {
    /// Feeds from every queue in the line in turn.
    pub(crate) fn feed_all(&mut self, units: &mut usize, now: Now, to: &mut impl Effects) {
        if self.stalled_until_ms.is_some_and(|until_ms| until_ms > now.monotonic_ms) {
            return;
        }
        *self.stalled_until_ms = None;
        while *units > 0
            && let Some(queue) = self.lines.next_ready()
        {
            let messages = MESSAGES_AT_A_TIME.min(*units);
            let feeding = match self.lines.find(queue).map(|line| &line.owner) {
                // It has ended since it came into the line.
                None => Feeding::Done(0),
                Some(Owner::Session(_)) => self.feed(queue, messages, now, to),
                Some(Owner::Group(_)) => self.feed_group(queue, messages, now, to),
            };
            self.lines.renew_patience(queue, now);
            self.replies.release_brake(self.lines, queue, now, to);
            match feeding {
                Feeding::Done(done) => *units -= done.max(1),
                Feeding::More => {
                    *units -= messages;
                    self.lines.is_ready(queue);
                }
                Feeding::Stalled => {
                    self.lines.is_ready(queue);
                    *self.stalled_until_ms = Some(now.monotonic_ms + RETRY_MS);
                    return;
                }
            }
        }
    }

    /// Sends one session what it takes: first what it has had before, then what waits, then of its groups.
    fn feed(&mut self, id: QueueId, messages: usize, now: Now, to: &mut impl Effects) -> Feeding {
        let Ok(mut done) = self.send_again(id, messages, now, to) else { return Feeding::Stalled };
        match self.send(id, messages - done, now, to) {
            Ok(sent) => done += sent,
            Err(_) => return Feeding::Stalled,
        }
        while done < messages {
            match self.feed_hungry(id, now, to) {
                Ok(Some(_)) => done += 1,
                Ok(None) => return Feeding::Done(done),
                Err(_) => return Feeding::Stalled,
            }
        }
        Feeding::More
    }

    /// Begins exchanges of earlier connections again, in their order [MQTT-4.6.0-1].
    fn send_again(
        &mut self,
        id: QueueId,
        messages: usize,
        now: Now,
        to: &mut impl Effects,
    ) -> Result<usize, Refusal> {
        let is_tight = self.bodies.budget.is_tight_to_keep();
        let credit_bytes = credit_bytes(&self.bodies.budget);
        let mut done = 0;
        while done < messages {
            let Some(Session { online: Some(online), in_flight, .. }) = self.lines.session_mut(id) else {
                break;
            };
            if !online.has_room(credit_bytes) {
                break;
            }
            let Some(packet_id) = online.again.pop_front() else { break };
            let Some(exchange) = in_flight.find_mut(packet_id) else { continue };
            let State::Own(_, entry) = &mut exchange.state else { continue };
            let Some(message) = entry.message() else {
                online.again.push_front(packet_id);
                self.bodies.want_again(self.lines, id, to);
                break;
            };
            if is_too_large(message, entry.identifiers(), online.packet_bytes_max, now) {
                self.pass_over(id, packet_id, now, to)?;
                done += 1;
                continue;
            }
            online.begun(exchange.bytes);
            let Place { shard, connection } = online.place;
            let what = Delivered::Session { queue: id, packet_id };
            let (message, granted) = (Arc::clone(message), entry.granted());
            if is_tight {
                entry.put_away();
            }
            to.post(shard, Reply::Deliver(deliver(connection, what, message, granted, true)));
            done += 1;
        }
        Ok(done)
    }

    /// A message that would be sent again is larger than what the client takes by now: we act as if it had been sent
    /// [MQTT-3.1.2-25]. With QoS 2 the client may know the identifier, which it has to hear about before another message
    /// gets it.
    fn pass_over(
        &mut self,
        id: QueueId,
        packet_id: PacketId,
        now: Now,
        to: &mut impl Effects,
    ) -> Result<(), Refusal> {
        let session = self.lines.session_mut(id).expect("the session that is fed is there");
        let incarnation = session.incarnation().expect("what is a session's own is one's that lasts");
        let online = session.online.as_mut().expect("the session that is fed is connected");
        let exchange = session.in_flight.find(packet_id).expect("what is sent again is on its way");
        let State::Own(_, entry) = &exchange.state else { unreachable!("it is the session's own") };
        let (is_qos_2, bytes) = (entry.qos() == Qos::ExactlyOnce, exchange.bytes);
        let record = match is_qos_2 {
            true => Some(Record::Received { session: incarnation, packet_id }),
            false => entry.is_recorded().then_some(Record::Finished { session: incarnation, packet_id }),
        };
        if let Some(record) = record
            && let Err(refusal) = self.replies.commit(&[record], to)
        {
            online.again.push_front(packet_id);
            return Err(refusal);
        }
        let at = MessageAt::UnderWay { packet_id, bytes };
        if is_qos_2 {
            let Place { shard, connection } = online.place;
            online.begun(bytes);
            let exchange = session.in_flight.advance(packet_id).expect("it was found");
            self.sessions.moved.forget(exchange);
            exchange.state = State::Released;
            // It is counted when its exchange is over.
            self.lines.note(id, at, Fate::TooLarge);
            let answer = Answer::new(shard, Reply::Release { connection, packet_id });
            self.replies.answer(self.lines, answer, now, to);
        } else {
            session.in_flight.remove(packet_id);
            self.lines.decided(id, at, Fate::TooLarge);
        }
        Ok(())
    }

    /// Sends messages that wait. Their outcomes are recorded together.
    fn send(
        &mut self,
        id: QueueId,
        messages: usize,
        now: Now,
        to: &mut impl Effects,
    ) -> Result<usize, Refusal> {
        let Some(Line { owner: Owner::Session(session), queue, .. }) = self.lines.find_mut(id) else {
            unreachable!("the session that is fed is there")
        };
        let (Some(online), Some(incarnation)) = (&session.online, session.incarnation()) else {
            return Ok(0);
        };
        let credit_bytes = credit_bytes(&self.bodies.budget);
        let mut first_fates = std::mem::take(self.first_fates);
        let (mut sent, mut bytes) = (0, 0);
        for (id, entry) in queue.iter().take(messages) {
            let first = if entry.is_expired(now) {
                (Fate::Expired, None)
            } else if let Some(message) = entry.message()
                && is_too_large(message, entry.identifiers(), online.packet_bytes_max, now)
            {
                (Fate::TooLarge, None)
            } else if entry.message().is_some()
                && online.takes_new_behind(sent, bytes, &session.in_flight, credit_bytes)
                && let Some(packet_id) = session.in_flight.allocate()
            {
                sent += 1;
                bytes += entry.size_bytes();
                (Fate::Sent, Some(packet_id))
            } else {
                break;
            };
            first_fates.push(first, incarnation, id);
        }
        let committed = match &first_fates.records[..] {
            [] => Ok(()),
            records => self.replies.commit(records, to),
        };
        let done = first_fates.fates.len();
        if committed.is_ok() {
            first_fates.fates.drain(..).for_each(|first| self.apply_first(id, first, now, to));
            self.bodies.want_first(self.lines, id, to);
            self.cursors.unpark(self.lines, self.settings, id);
        }
        first_fates.clear();
        *self.first_fates = first_fates;
        committed.map(|()| done)
    }

    /// Removes the first message from its queue with this fate, after the fate was recorded. Sends the message if it is to be sent.
    fn apply_first(&mut self, id: QueueId, (fate, packet_id): FirstFate, now: Now, to: &mut impl Effects) {
        let (Line { owner, queue, growth, .. }, fates) =
            self.lines.find_with_fates(id).expect("the session that is fed is there");
        let (id_of_message, mut entry) = queue.pop().expect("its message waited when its fate was recorded");
        growth.shrink(queue);
        fates.decided(owner, MessageAt::Waiting { id: id_of_message, entry: &entry, packet_id }, fate);
        let Some(packet_id) = packet_id else { return };
        let Owner::Session(session) = owner else { unreachable!("it is a session") };
        let online = session.online.as_mut().expect("the session that is fed is connected");
        let bytes = entry.size_bytes();
        online.begun(bytes);
        let Place { shard, connection } = online.place;
        let what = Delivered::Session { queue: id, packet_id };
        let message = Arc::clone(entry.message().expect("it was in memory when its turn came"));
        let reply = Reply::Deliver(deliver(connection, what, message, entry.granted(), false));
        let qos = entry.qos();
        if self.bodies.budget.is_tight_to_keep() {
            // It is read again if the client comes back and has not acknowledged it.
            entry.put_away();
        }
        session.in_flight.insert(packet_id, bytes, State::Own(id_of_message, entry));
        if qos == Qos::ExactlyOnce {
            self.replies.answer(self.lines, Answer::new(shard, reply), now, to);
        } else {
            to.post(shard, reply);
        }
    }
}

/// Whether the packet would be larger than its client takes [MQTT-3.1.2-24].
pub(crate) fn is_too_large(
    message: &Message,
    identifiers: &[NonZeroU32],
    packet_bytes_max: u32,
    now: Now,
) -> bool {
    /// The identifier of the property, and a variable byte integer.
    const IDENTIFIER_BYTES_MAX: usize = 5;
    let max = usize::try_from(packet_bytes_max).unwrap_or(usize::MAX);
    // The memory of a message is more than the rest of its packet.
    if message.size_bytes() + identifiers.len() * IDENTIFIER_BYTES_MAX <= max {
        return false;
    }
    let identifiers: Vec<_> = identifiers
        .iter()
        .filter_map(|identifier| wire::SubscriptionIdentifier::new(identifier.get()))
        .collect();
    let publish = Publish {
        delivery: wire::Delivery::AtLeastOnce { packet_id: PacketId::MAX, dup: false },
        subscription_identifiers: (&identifiers[..]).into(),
        ..message.publish(now)
    };
    publish.encoded_len(Version::V5).map_or(true, |bytes| bytes > max)
}
