//! Messages that leave their queue, as many as their client takes.

use std::num::NonZeroU32;
use std::sync::Arc;

use index::{Place, QueueId};
use session::{Message, Now};
use wire::{Delivery, PacketId, Publish, Qos, Version};

use crate::command::{Delivered, Reply};
use crate::gauges::{shift, subtract};
use crate::in_flight::{Exchange, State};
use crate::record::{Incarnation, MessageId};
use crate::replies::{Answer, QueueOf};
use crate::session::Session;
use crate::share::deliver;
use crate::{Effects, Ledger, RETRY_MS, Record, Refusal};

/// So many messages of one queue are fed before it is the next one's turn.
const MESSAGES_AT_A_TIME: usize = 16;

/// What came of feeding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feeding {
    /// So many messages; there are no more, or nobody takes more.
    Done(usize),
    /// As many as were allowed.
    More,
    /// There was no space for the records.
    Stalled,
}

/// What becomes of a message whose turn it is.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Sent(PacketId),
    Expired,
    TooLarge,
}

/// What becomes of the first messages of a queue, and its records; kept for its memory.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    turns: Vec<Turn>,
    records: Vec<Record<'static>>,
}

impl Turns {
    fn push(&mut self, turn: Turn, session: Incarnation, message: MessageId) {
        self.turns.push(turn);
        self.records.push(match turn {
            Turn::Sent(packet_id) => Record::Sent { session, message, packet_id },
            Turn::Expired | Turn::TooLarge => Record::Removed { queue: session, message },
        });
    }

    fn clear(&mut self) {
        self.turns.clear();
        self.records.clear();
    }
}

impl Ledger {
    /// Puts a queue into the line of those that are fed, if it does not stand there.
    pub(crate) fn is_ready(&mut self, queue: QueueOf) {
        let is_ready = match queue {
            QueueOf::Session(id) => self.sessions.find_mut(id).map(|session| &mut session.is_ready),
            QueueOf::Group(id) => self.groups.table.find_mut(id).map(|group| &mut group.is_ready),
        };
        if let Some(is_ready) = is_ready.filter(|is_ready| !**is_ready) {
            *is_ready = true;
            self.ready.push_back(queue);
        }
    }

    /// Feeds from every queue in the line in turn.
    pub(crate) fn feed_all(&mut self, units: &mut usize, now: Now, to: &mut impl Effects) {
        if self.stalled_until_ms.is_some_and(|until_ms| until_ms > now.monotonic_ms) {
            return;
        }
        self.stalled_until_ms = None;
        while *units > 0
            && let Some(queue) = self.ready.pop_front()
        {
            let messages = MESSAGES_AT_A_TIME.min(*units);
            let feeding = match queue {
                QueueOf::Session(id) => {
                    self.sessions.find_mut(id).into_iter().for_each(|session| session.is_ready = false);
                    self.feed(id, messages, now, to)
                }
                QueueOf::Group(id) => {
                    self.groups.table.find_mut(id).into_iter().for_each(|group| group.is_ready = false);
                    self.feed_group(id, messages, now, to)
                }
            };
            self.renew_patience(queue, now);
            self.release_brake(queue, now, to);
            match feeding {
                Feeding::Done(done) => *units -= done.max(1),
                Feeding::More => {
                    *units -= messages;
                    self.is_ready(queue);
                }
                Feeding::Stalled => {
                    self.is_ready(queue);
                    self.stalled_until_ms = Some(now.monotonic_ms + RETRY_MS);
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
        let mut done = 0;
        while done < messages {
            let Some(Session { online: Some(online), in_flight, .. }) = self.sessions.find_mut(id) else {
                break;
            };
            if !online.has_room() {
                break;
            }
            let Some(packet_id) = online.again.pop_front() else { break };
            let Some(exchange) = in_flight.find(packet_id) else { continue };
            let State::Own(_, entry) = &exchange.state else { continue };
            let Some(message) = entry.message() else {
                online.again.push_front(packet_id);
                self.want_again(id, to);
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
            to.post(shard, Reply::Deliver(Box::new(deliver(connection, what, message, granted, true))));
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
        let Some(session) = self.sessions.find_mut(id) else { return Ok(()) };
        let Some(online) = &mut session.online else { return Ok(()) };
        let Some(Exchange { state: State::Own(_, entry), bytes, .. }) = session.in_flight.find(packet_id)
        else {
            return Ok(());
        };
        let (is_qos_2, bytes) = (entry.qos() == Qos::ExactlyOnce, *bytes);
        let incarnation = session.incarnation.unwrap_or_default();
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
        if is_qos_2 {
            let Place { shard, connection } = online.place;
            online.begun(bytes);
            if let Some(exchange) = session.in_flight.advance(packet_id) {
                self.moved.forget(exchange);
                exchange.state = State::Released;
            }
            self.answer(
                Answer { shard, reply: Reply::Release { connection, packet_id }, brake: None },
                now,
                to,
            );
        } else {
            session.in_flight.remove(packet_id);
            shift(&self.gauges.in_flight, &self.gauges.too_large, 1);
        }
        Ok(())
    }

    /// Sends messages that wait. What becomes of them is recorded together.
    fn send(
        &mut self,
        id: QueueId,
        messages: usize,
        now: Now,
        to: &mut impl Effects,
    ) -> Result<usize, Refusal> {
        let Some(session) = self.sessions.find_mut(id) else { return Ok(0) };
        let (Some(online), Some(incarnation)) = (&session.online, session.incarnation) else { return Ok(0) };
        let mut turns = std::mem::take(&mut self.turns);
        let (mut sent, mut bytes) = (0, 0);
        for (id, entry) in session.queue.iter().take(messages) {
            let turn = if entry.is_expired(now) {
                Turn::Expired
            } else if let Some(message) = entry.message()
                && is_too_large(message, entry.identifiers(), online.packet_bytes_max, now)
            {
                Turn::TooLarge
            } else if entry.message().is_some()
                && online.takes_new_behind(sent, bytes, &session.in_flight)
                && let Some(packet_id) = session.in_flight.allocate()
            {
                sent += 1;
                bytes += entry.size_bytes();
                Turn::Sent(packet_id)
            } else {
                break;
            };
            turns.push(turn, incarnation, id);
        }
        let committed = match &turns.records[..] {
            [] => Ok(()),
            records => self.replies.commit(records, to),
        };
        if committed.is_ok() {
            turns.turns.iter().for_each(|turn| self.take_turn(id, *turn, now, to));
            self.want_first(QueueOf::Session(id), to);
            self.unpark(id);
        }
        let done = turns.turns.len();
        turns.clear();
        self.turns = turns;
        committed.map(|()| done)
    }

    /// What becomes of the first message is recorded: it happens.
    fn take_turn(&mut self, id: QueueId, turn: Turn, now: Now, to: &mut impl Effects) {
        let Some(session) = self.sessions.find_mut(id) else { return };
        let Some(online) = &mut session.online else { return };
        let Some((id_of_message, entry)) = session.queue.pop() else { return };
        online.growth.shrink(&session.queue);
        let bytes = entry.size_bytes();
        subtract(&self.gauges.queued_bytes, bytes);
        let packet_id = match turn {
            Turn::Sent(packet_id) => packet_id,
            Turn::Expired => return shift(&self.gauges.queued, &self.gauges.expired, 1),
            Turn::TooLarge => return shift(&self.gauges.queued, &self.gauges.too_large, 1),
        };
        shift(&self.gauges.queued, &self.gauges.in_flight, 1);
        online.begun(bytes);
        let Place { shard, connection } = online.place;
        let what = Delivered::Session { queue: id, packet_id };
        let deliver = entry
            .message()
            .map(|message| deliver(connection, what, Arc::clone(message), entry.granted(), false));
        let qos = entry.qos();
        session.in_flight.insert(packet_id, bytes, State::Own(id_of_message, entry));
        debug_assert!(deliver.is_some(), "it was in memory when its turn came");
        let Some(reply) = deliver.map(|deliver| Reply::Deliver(Box::new(deliver))) else { return };
        if qos == Qos::ExactlyOnce {
            self.answer(Answer { shard, reply, brake: None }, now, to);
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
    // What a message holds of memory is more than what is around it in a packet.
    if message.size_bytes() + identifiers.len() * IDENTIFIER_BYTES_MAX <= max {
        return false;
    }
    let identifiers: Vec<_> = identifiers
        .iter()
        .filter_map(|identifier| wire::SubscriptionIdentifier::new(identifier.get()))
        .collect();
    let publish = Publish {
        delivery: Delivery::AtLeastOnce { packet_id: PacketId::MAX, dup: false },
        subscription_identifiers: (&identifiers[..]).into(),
        ..message.publish(now)
    };
    publish.encoded_len(Version::V5).map_or(true, |bytes| bytes > max)
}
