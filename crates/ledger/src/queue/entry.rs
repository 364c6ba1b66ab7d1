//! A message in one queue, or on its way out of it. There may be a hundred million of them, each in a place of memory of
//! its own: one takes as little of it as goes.

use std::num::NonZeroU32;
use std::sync::Arc;

use base::{Identifiers, Message, Now};
use wire::Qos;

use crate::queue::live::{Live, LiveBytes};
use crate::record::{Address, Granted, MessageId};

/// With its number it takes 64 bytes.
const _: () = assert!(size_of::<(MessageId, Option<Entry>)>() == 64);

/// A message that waits, or is on its way. It may be on disk alone until its turn comes.
#[derive(Debug)]
pub(crate) struct Entry {
    message: Option<Arc<Message>>,
    /// The address of its record, if the message is only on disk or was.
    address: Option<Address>,
    /// The count of live bytes, if the message was recorded when it came.
    live: Option<Live>,
    /// The count that several queues share, of which the last one removes it; or the count of a message that expires.
    /// Most messages go into one queue and do not expire: they need no allocation.
    shared: Option<Arc<LiveBytes>>,
    identifiers: Identifiers,
    size_bytes: u32,
    qos: Qos,
    retain: bool,
    is_recorded: bool,
    reading: Reading,
}

/// The state of a message on disk alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// Nobody has asked for it.
    No,
    /// The message is being read from the disk.
    UnderWay,
    /// The message cannot be read, now or later.
    Damaged,
}

/// For a message that goes into queues: makes one [`Entry`] for each.
#[derive(Debug)]
pub(crate) struct Keeping<'a> {
    /// None if it stays on the disk.
    message: Option<&'a Arc<Message>>,
    size_bytes: usize,
    address: Option<Address>,
    live: Option<Live>,
    shared: Option<Arc<LiveBytes>>,
}

impl<'a> Keeping<'a> {
    /// A message for this number of queues; `live` counts it if it is on the record. With an address it need not stay
    /// in memory.
    pub(crate) fn new(
        message: &'a Arc<Message>,
        queues: usize,
        live: Option<Live>,
        address: Option<Address>,
    ) -> Self {
        let size_bytes = message.size_bytes();
        let shared = live.and_then(|live| share(queues, live, size_bytes, message.expires_unix_ms()));
        if let Some(shared) = shared.as_ref().filter(|_| queues > 1) {
            shared.know(message);
        }
        Self { message: Some(message), size_bytes, address, live, shared }
    }

    /// A message of this size that is on the record and stays there.
    pub(crate) fn away(
        size_bytes: usize,
        expires_unix_ms: Option<u64>,
        queues: usize,
        live: Live,
        address: Address,
    ) -> Self {
        let shared = share(queues, live, size_bytes, expires_unix_ms);
        Self { message: None, size_bytes, address: Some(address), live: Some(live), shared }
    }

    /// For one of its queues, of which it may be the only one that it is recorded in: in memory, unless it is to stay on the
    /// disk and can be read again.
    #[inline]
    pub(crate) fn one(&self, granted: Granted, is_recorded: bool, stays_away: bool) -> Entry {
        let address = self.address.filter(|_| is_recorded);
        let entry = Entry {
            message: self.message.filter(|_| !(stays_away && address.is_some())).cloned(),
            address,
            live: self.live,
            shared: self.shared.clone(),
            identifiers: granted.identifiers,
            // No packet is longer.
            size_bytes: u32::try_from(self.size_bytes).unwrap_or(u32::MAX),
            qos: granted.qos,
            retain: granted.retain,
            is_recorded,
            reading: Reading::No,
        };
        if let (Some(live), None) = (entry.live, &entry.shared) {
            live.add(entry.size_bytes());
        }
        if entry.message.is_some() {
            entry.count();
        }
        entry
    }
}

/// Returns the count that several queues share, if there is more to know than a count for one queue.
fn share(
    queues: usize,
    live: Live,
    size_bytes: usize,
    expires_unix_ms: Option<u64>,
) -> Option<Arc<LiveBytes>> {
    let is_alone = queues <= 1 && expires_unix_ms.is_none();
    (!is_alone).then(|| Arc::new(live.count_until(size_bytes, expires_unix_ms)))
}

impl Entry {
    /// The message, if it is in memory.
    pub(crate) fn message(&self) -> Option<&Arc<Message>> {
        self.message.as_ref()
    }

    /// The message, if this queue or another one has it in memory.
    pub(crate) fn known(&self) -> Option<Arc<Message>> {
        let elsewhere = || self.shared.as_ref().and_then(|shared| shared.known());
        self.message.clone().or_else(elsewhere)
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes as usize
    }

    pub(crate) fn qos(&self) -> Qos {
        self.qos
    }

    pub(crate) fn identifiers(&self) -> &[NonZeroU32] {
        &self.identifiers
    }

    pub(crate) fn granted(&self) -> Granted {
        Granted { qos: self.qos, retain: self.retain, identifiers: self.identifiers.clone() }
    }

    /// Changes the options, because the message goes to another subscriber.
    pub(crate) fn grant(&mut self, granted: Granted) {
        Granted { qos: self.qos, retain: self.retain, identifiers: self.identifiers } = granted;
    }

    /// Whether its queue was one that lasts when it came.
    pub(crate) fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    pub(crate) fn set_recorded(&mut self, is_recorded: bool) {
        self.is_recorded = is_recorded;
    }

    pub(crate) fn expires(&self) -> bool {
        self.expires_unix_ms().is_some()
    }

    /// As [`Message::is_expired`].
    pub(crate) fn is_expired(&self, now: Now) -> bool {
        self.expires_unix_ms().is_some_and(|expires| expires < now.unix_ms)
    }

    /// Returns the time of expiry. A message that is not counted has no address, and stays in memory.
    pub(crate) fn expires_unix_ms(&self) -> Option<u64> {
        match (&self.shared, self.live) {
            (Some(shared), _) => shared.expires_unix_ms(),
            (None, Some(_)) => None,
            (None, None) => self.message.as_ref().and_then(|message| message.expires_unix_ms()),
        }
    }

    pub(crate) fn address(&self) -> Option<Address> {
        self.address
    }

    /// Sets the new address after the record was copied. A message without an address stays in memory.
    pub(crate) fn set_address(&mut self, address: Option<Address>) {
        if self.address.is_some() && address.is_some() {
            self.address = address;
        }
    }

    /// Keeps the message in memory: its record may go.
    pub(crate) fn stay(&mut self) {
        debug_assert!(self.message.is_some(), "a member has it");
        self.address = None;
    }

    /// Out of memory, if it can be read again.
    pub(crate) fn put_away(&mut self) {
        if self.address.is_some() && self.message.take().is_some() {
            self.uncount();
        }
    }

    /// Puts the message into memory.
    pub(crate) fn bring(&mut self, message: Arc<Message>) {
        self.reading = Reading::No;
        if self.message.is_none() {
            self.count();
            self.message = Some(match &self.shared {
                Some(shared) => shared.the_one(message),
                None => message,
            });
        }
    }

    /// Returns the address to read from, if the message is neither in memory nor being read. Marks it as being read. A
    /// message that another queue has in memory is not read.
    pub(crate) fn want(&mut self) -> Option<Address> {
        if self.message.is_none()
            && let Some(message) = self.known()
        {
            self.bring(message);
        }
        let is_away = self.message.is_none() && self.reading == Reading::No;
        if is_away {
            self.reading = Reading::UnderWay;
        }
        self.address.filter(|_| is_away)
    }

    /// The message was not read: it can be requested again.
    pub(crate) fn miss(&mut self) {
        self.reading = Reading::No;
    }

    /// Marks the message as unreadable, now and later.
    pub(crate) fn set_damaged(&mut self) {
        self.reading = Reading::Damaged;
    }

    /// Whether it is on disk alone and cannot be read.
    pub(crate) fn is_damaged(&self) -> bool {
        self.message.is_none() && self.reading == Reading::Damaged
    }

    /// Counts the message, which is in memory.
    #[inline]
    fn count(&self) {
        match (&self.shared, self.live) {
            (Some(shared), _) => shared.count_queue(),
            (None, Some(live)) => live.add_in_memory(self.size_bytes()),
            (None, None) => {}
        }
    }

    fn uncount(&self) {
        match (&self.shared, self.live) {
            (Some(shared), _) => shared.uncount_queue(),
            (None, Some(live)) => live.subtract_in_memory(self.size_bytes()),
            (None, None) => {}
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.message.is_some() {
            self.uncount();
        }
        if let (Some(live), None) = (self.live, &self.shared) {
            live.subtract(self.size_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    fn granted() -> Granted {
        Granted { qos: Qos::AtLeastOnce, retain: false, identifiers: Identifiers::new() }
    }

    #[test]
    fn a_message_is_read_for_one_of_its_queues_and_counted_once() {
        let live = Live::for_ever();
        let address = Some(Address { at: NonZeroU64::MIN, bytes: 1, checksum: 0 });
        let read = || Arc::new(Message::of_server("t", b"payload").expect("a topic"));
        let mut queues: Vec<Entry> = {
            let message = read();
            let keeping = Keeping::new(&message, 2, Some(live), address);
            (0..2).map(|_| keeping.one(granted(), true, false)).collect()
        };
        let bytes = queues[0].size_bytes();
        assert_eq!((live.bytes(), live.in_memory_bytes()), (bytes, bytes));
        queues.iter_mut().for_each(Entry::put_away);
        assert_eq!((live.bytes(), live.in_memory_bytes()), (bytes, 0));
        assert_eq!(queues[0].want(), address);
        assert_eq!(queues[0].want(), None, "it is on its way");
        queues[0].bring(read());
        assert_eq!(queues[1].want(), None, "another queue has it");
        assert!(queues[1].message().is_some());
        assert_eq!(live.in_memory_bytes(), bytes);
        drop(queues);
        assert_eq!((live.bytes(), live.in_memory_bytes()), (0, 0));
    }

    /// Alone and with another queue; with expiry and without; counted and not.
    #[test]
    fn entries_release_counted_bytes_and_know_their_expiry_without_the_message() {
        let address = Some(Address { at: NonZeroU64::MIN, bytes: 1, checksum: 0 });
        let read = |expiry_secs| {
            let message_expiry_interval_secs = expiry_secs;
            let properties =
                wire::MessageProperties { message_expiry_interval_secs, ..wire::MessageProperties::EMPTY };
            let topic = topic::topic!("t");
            let publish = wire::Publish { properties, ..wire::Publish::new(topic, b"payload") };
            Arc::new(Message::new(topic, &publish, None, Now { monotonic_ms: 0, unix_ms: 0 }))
        };
        for case in 0..8 {
            let (queues, is_counted) = (1 + case % 2, case & 2 == 0);
            let expiry_secs = (case & 4 == 0).then_some(1);
            let live = Live::for_ever();
            let message = read(expiry_secs);
            let keeping =
                Keeping::new(&message, queues, is_counted.then_some(live), address.filter(|_| is_counted));
            let mut entries: Vec<Entry> =
                (0..queues).map(|_| keeping.one(granted(), is_counted, false)).collect();
            drop(keeping);
            let counted = if is_counted { message.size_bytes() } else { 0 };
            assert_eq!((live.bytes(), live.in_memory_bytes()), (counted, counted));
            entries.iter_mut().for_each(Entry::put_away);
            assert!(entries.iter().all(|entry| entry.message().is_none() == is_counted));
            assert!(entries.iter().all(|entry| entry.expires() == expiry_secs.is_some()));
            assert_eq!((live.bytes(), live.in_memory_bytes()), (counted, 0));
            entries.iter_mut().for_each(|entry| entry.bring(read(expiry_secs)));
            assert_eq!((live.bytes(), live.in_memory_bytes()), (counted, counted));
            drop(entries);
            assert_eq!((live.bytes(), live.in_memory_bytes()), (0, 0));
        }
    }

    /// Two queues ask for it before it has come to either.
    #[test]
    fn a_message_that_was_read_twice_is_in_memory_once() {
        let live = Live::for_ever();
        let address = Some(Address { at: NonZeroU64::MIN, bytes: 1, checksum: 0 });
        let read = || Arc::new(Message::of_server("t", b"payload").expect("a topic"));
        let mut queues: Vec<Entry> = {
            let message = read();
            let keeping = Keeping::new(&message, 3, Some(live), address);
            (0..3).map(|_| keeping.one(granted(), true, true)).collect()
        };
        assert_eq!((queues[0].want(), queues[1].want()), (address, address));
        queues[0].bring(read());
        queues[1].bring(read());
        drop(queues.remove(0));
        assert_eq!(queues[1].want(), None, "one of them is still there");
        let messages: Vec<_> = queues.iter().filter_map(Entry::message).collect();
        assert!(Arc::ptr_eq(messages[0], messages[1]));
        assert_eq!(live.in_memory_bytes(), queues[0].size_bytes());
    }
}
