//! The two subjects of the measurement: a ledger on a journal, and the journal alone.

use std::borrow::Cow;
use std::sync::Arc;
use std::thread;

use base::Message;
use journal::{Journal, Status};
use ledger::{
    Address, Fetched, Granted, Incarnation, Keeper, Lsn, MessageId, Needs, Progress, QueueFull, Queued,
    Record, RecordRoom, Refusal, Settings, Wanted,
};
use protocol::Durability;
use record::encode_group;
use topic::TopicName;
use wire::{Delivery, PacketId, Publish, Qos};

use super::Shape;
use crate::error::Result;
use crate::scratch::{Scratch, failed, wake_this_thread};
use crate::stage::{Cast, NOW, Stage};

/// Topics that take turns, each with as many sessions as a message goes to.
const TOPICS: usize = 100;
/// Messages that each queue holds, and no more: for each that comes the oldest is dropped, on the record.
const QUEUE_MESSAGES: usize = 100;
/// Number of messages that are published at a time until every queue is full.
const FILLED_AT_A_TIME: u64 = 1_000;

/// Somebody who publishes durably.
pub(super) trait Subject {
    /// The kind of subject, and its way to a steady state.
    const WORDS: (&'static str, &'static str);

    /// Publishes this number of messages, and waits until all are acknowledged. The event loop of the ledger needs more than
    /// one turn for more messages than it takes in one turn.
    fn commit(&mut self, messages: u64) -> Result<()>;

    /// Publishes until there is as much as there will be.
    fn fill(&mut self) -> Result<()>;

    fn journal(&mut self) -> &mut Scales;
}

/// A ledger whose sessions are away, on a journal.
pub(super) struct WithLedger(Stage<Scales>);

impl WithLedger {
    pub(super) fn open(scratch: &Scratch, shape: Shape) -> Result<Self> {
        let settings = Settings {
            queue_messages_max: QUEUE_MESSAGES,
            queue_full: QueueFull::DropOldest,
            ..Settings::default()
        };
        let cast = Cast { topics: TOPICS, fanout: shape.fanout, payload: shape.payload };
        let mut stage = Stage::new(cast, settings, Scales::open(scratch)?);
        stage.leave_all();
        Ok(Self(stage))
    }
}

impl Subject for WithLedger {
    const WORDS: (&'static str, &'static str) = (
        "The ledger on its journal",
        "A queue has 100 messages. For each new message the oldest one is dropped, and the drop is recorded.",
    );

    fn commit(&mut self, messages: u64) -> Result<()> {
        let stage = &mut self.0;
        let all = stage.stored + messages;
        stage.publish(messages);
        loop {
            stage.turn();
            stage.acknowledge();
            if stage.stored == all {
                return Ok(());
            }
            stage.keeper().check()?;
            if !stage.is_busy() {
                thread::park();
            }
        }
    }

    fn fill(&mut self) -> Result<()> {
        let all = (TOPICS * QUEUE_MESSAGES) as u64;
        (0..all.div_ceil(FILLED_AT_A_TIME)).try_for_each(|_| self.commit(FILLED_AT_A_TIME))
    }

    fn journal(&mut self) -> &mut Scales {
        self.0.keeper()
    }
}

/// A journal that is given one record after the other.
pub(super) struct OnItsOwn {
    journal: Scales,
    body: Arc<Message>,
    queues: Vec<Queued>,
    last: MessageId,
}

impl OnItsOwn {
    pub(super) fn open(scratch: &Scratch, shape: Shape) -> Result<Self> {
        let topic = TopicName::new("bench/0").expect("no wildcard is in it");
        let payload = vec![b'x'; shape.payload as usize];
        let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
        let publish = Publish { delivery, ..Publish::new(topic, &payload) };
        let granted = Granted { qos: Qos::AtLeastOnce, retain: false, identifiers: Default::default() };
        let queued = |queue: usize| Queued { queue: Incarnation(queue as u64), granted: granted.clone() };
        Ok(Self {
            journal: Scales::open(scratch)?,
            body: Arc::new(Message::new(topic, &publish, None, NOW)),
            queues: (TOPICS..TOPICS + shape.fanout).map(queued).collect(),
            // As long as numbers are where a broker has run for a while.
            last: MessageId(1_000_000),
        })
    }
}

impl Subject for OnItsOwn {
    const WORDS: (&'static str, &'static str) =
        ("The journal alone", "No record is needed any more when the space of its segment is needed.");

    fn commit(&mut self, messages: u64) -> Result<()> {
        let Self { journal, body, queues, last } = self;
        journal.begin_turn();
        let mut appended = Lsn(0);
        for _ in 0..messages {
            last.0 += 1;
            let (body, queues) = (Cow::Borrowed(&*body), Cow::Borrowed(&**queues));
            let record = Record::Enqueue { message: *last, body, queues, is_retained: false };
            appended = journal.commit(&[record]).map_err(|refusal| failed(format!("{refusal:?}")))?;
        }
        journal.end_turn();
        while journal.progress().durable < appended {
            journal.check()?;
            if journal.next_to_copy(&mut |_, _| false).is_none() {
                thread::park();
            }
        }
        Ok(())
    }

    fn fill(&mut self) -> Result<()> {
        Keeper::set_live_bytes(&mut self.journal, 0);
        Ok(())
    }

    fn journal(&mut self) -> &mut Scales {
        &mut self.journal
    }
}

/// A journal, and how long the records are that it is given.
pub(super) struct Scales {
    journal: Journal,
    /// Of what came since it was set.
    pub(super) weighed_bytes: Option<u64>,
    scratch: Vec<u8>,
}

impl Scales {
    fn open(scratch: &Scratch) -> Result<Self> {
        let (journal, _) = scratch.open_journal()?.start(&wake_this_thread()).map_err(failed)?;
        Ok(Self { journal, weighed_bytes: None, scratch: Vec::new() })
    }

    pub(super) fn status(&self) -> Status {
        self.journal.status()
    }

    /// # Errors
    /// Nothing can be recorded any more.
    fn check(&self) -> Result<()> {
        if !self.journal.progress().has_failed {
            return Ok(());
        }
        Err(failed(self.status().failure.unwrap_or_default()))
    }
}

impl Keeper for Scales {
    fn commit(&mut self, group: &[Record<'_>]) -> std::result::Result<Lsn, Refusal> {
        if let Some(bytes) = &mut self.weighed_bytes {
            self.scratch.clear();
            encode_group(group, &mut self.scratch);
            *bytes += self.scratch.len() as u64;
        }
        self.journal.commit(group)
    }

    fn copy(&mut self, group: &[Record<'_>]) -> std::result::Result<Lsn, Refusal> {
        self.journal.copy(group)
    }

    fn raise_durability(&mut self, durability: Durability) {
        self.journal.raise_durability(durability);
    }

    fn room(&self) -> RecordRoom {
        self.journal.room()
    }

    fn group_bytes_max(&self) -> usize {
        self.journal.group_bytes_max()
    }

    fn address(&mut self) -> Option<Address> {
        self.journal.address()
    }

    fn fetch(&mut self, wanted: Wanted) {
        self.journal.fetch(wanted);
    }

    fn next_fetched(&mut self) -> Option<Fetched> {
        self.journal.next_fetched()
    }

    fn has_fetched(&self) -> bool {
        self.journal.has_fetched()
    }

    fn begin_turn(&mut self) {
        self.journal.begin_turn();
    }

    fn end_turn(&mut self) {
        self.journal.end_turn();
    }

    fn progress(&self) -> Progress {
        self.journal.progress()
    }

    fn next_to_copy(&mut self, needs: Needs<'_>) -> Option<Vec<Record<'static>>> {
        self.journal.next_to_copy(needs)
    }

    fn set_live_bytes(&mut self, bytes: usize) {
        Keeper::set_live_bytes(&mut self.journal, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mut subject: impl Subject, bytes_each: std::ops::Range<u64>) {
        subject.fill().unwrap();
        subject.journal().weighed_bytes = Some(0);
        subject.commit(100).unwrap();
        let bytes = subject.journal().weighed_bytes.unwrap() / 100;
        assert!(bytes_each.contains(&bytes), "{bytes}");
        assert!(subject.journal().status().commits > 0);
    }

    #[test]
    fn every_message_is_recorded_once_with_its_queues() {
        let scratch = |name: &str| Scratch::new(&std::env::temp_dir().join(name)).unwrap();
        let shape = Shape { payload: 100, fanout: 1 };
        let (alone, with) = (scratch("pondhawk-bench-journal"), scratch("pondhawk-bench-ledger"));
        check(OnItsOwn::open(&alone, shape).unwrap(), 110..140);
        // Each takes the place of one that is dropped.
        check(WithLedger::open(&with, shape).unwrap(), 115..145);
    }
}
