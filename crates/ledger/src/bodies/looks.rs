//! Bodies of messages on disk, read for a look of an operator. A look changes nothing in a queue: the bodies are kept beside
//! it, for the operator alone.
//!
//! ```text
//!             asked for           fetched            answered, or nobody has asked again for 5 s
//!   on disk ─────────────► wanted ─────────► read ───────────────────────────────────────────────► dropped
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Message, Now, QueueId};

use crate::bodies::{Bodies, entry_of};
use crate::lines::Lines;
use crate::queue::entry::Entry;
use crate::record::fetch::{Found, Need, Whose};
use crate::record::{Effects, MessageId};

/// No look reads from disk while all looks together have this many bytes.
const LOOKS_BYTES: usize = 1 << 20;
/// No look reads from disk while all looks together have this many messages.
const LOOKS_MESSAGES: usize = 256;
/// Time after which a body is dropped if nobody asks for it again.
const KEPT_MS: u64 = 5_000;

/// The bodies that operators look at. They take at most [`LOOKS_BYTES`], one window, and one message.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    bodies: BTreeMap<(QueueId, MessageId), Body>,
    bytes: usize,
    /// No body is due before.
    next_ms: Option<u64>,
}

#[derive(Debug)]
struct Body {
    /// `None` while the message is on its way.
    message: Option<Arc<Message>>,
    size_bytes: usize,
    until_ms: u64,
}

impl Looks {
    fn has_room(&self) -> bool {
        self.bytes < LOOKS_BYTES && self.bodies.len() < LOOKS_MESSAGES
    }

    fn find(&self, queue: QueueId, message: MessageId) -> Option<&Arc<Message>> {
        self.bodies.get(&(queue, message))?.message.as_ref()
    }

    /// Keeps a body for longer. Returns whether it was asked for, and if so, whether it is here.
    fn renew(&mut self, queue: QueueId, message: MessageId, now: Now) -> Option<bool> {
        let body = self.bodies.get_mut(&(queue, message))?;
        body.until_ms = now.monotonic_ms + KEPT_MS;
        Some(body.message.is_some())
    }

    /// A message is on its way.
    fn expect(&mut self, queue: QueueId, message: MessageId, size_bytes: usize, now: Now) {
        let until_ms = now.monotonic_ms + KEPT_MS;
        self.bytes += size_bytes;
        self.bodies.insert((queue, message), Body { message: None, size_bytes, until_ms });
        self.next_ms.get_or_insert(until_ms);
    }

    /// A message has come. It is dropped if nobody waits for it by now.
    fn put(&mut self, queue: QueueId, id: MessageId, message: Arc<Message>) {
        if let Some(body) = self.bodies.get_mut(&(queue, id)) {
            body.message = Some(message);
        }
    }

    fn forget(&mut self, queue: QueueId, message: MessageId) {
        if let Some(body) = self.bodies.remove(&(queue, message)) {
            self.bytes -= body.size_bytes;
        }
    }

    /// Drops the bodies of looks that were given up.
    pub(crate) fn expire(&mut self, now: Now) {
        if self.next_ms.is_none_or(|next_ms| next_ms > now.monotonic_ms) {
            return;
        }
        self.bodies.retain(|_, body| body.until_ms > now.monotonic_ms);
        self.bytes = self.bodies.values().map(|body| body.size_bytes).sum();
        self.next_ms = self.bodies.values().map(|body| body.until_ms).min();
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.next_ms
    }
}

impl Bodies {
    /// Asks for those messages of a window that are on disk alone. Returns whether some of them are on their way, or are to be
    /// asked for later. While memory is short, or other looks have much, none are asked for.
    pub(crate) fn want_for_look(
        &mut self,
        lines: &Lines,
        queue: QueueId,
        messages: &[MessageId],
        now: Now,
        to: &mut impl Effects,
    ) -> bool {
        self.looks.expire(now);
        let budget = &self.budget;
        let may_ask = self.may_ask() && !budget.is_tight() && self.looks.has_room();
        let Some(line) = lines.find(queue) else { return false };
        let mut is_reading = false;
        for message in messages {
            // Messages that came back from a member of a group are in memory.
            let Some(entry) = line.queue.find(*message) else { continue };
            if entry.is_damaged() || entry.known().is_some() {
                continue;
            }
            if let Some(is_here) = self.looks.renew(queue, *message, now) {
                is_reading |= !is_here;
                continue;
            }
            is_reading = true;
            if let Some(address) = entry.address().filter(|_| may_ask) {
                let of = Whose { queue, message: *message, need: Need::Look };
                self.looks.expect(queue, *message, entry.size_bytes(), now);
                self.fetch(address, of, entry.size_bytes(), to);
            }
        }
        is_reading
    }

    /// The message behind an entry, if it is in memory or was read for a look.
    pub(crate) fn seen(&self, lines: &Lines, queue: QueueId, message: MessageId) -> Option<Arc<Message>> {
        let entry = lines.find(queue)?.find(message)?;
        entry.known().or_else(|| self.looks.find(queue, message).cloned())
    }

    /// A look has been answered.
    pub(crate) fn end_look(&mut self, queue: QueueId, messages: &[MessageId]) {
        messages.iter().for_each(|message| self.looks.forget(queue, *message));
    }

    /// A message that was asked for by a look has come, or is to be asked for again.
    pub(crate) fn fetched_for_look(&mut self, lines: &mut Lines, of: Whose, found: Found) {
        let Whose { queue, message: id, .. } = of;
        match found {
            Found::Message(message) => {
                let message = Arc::new(message.charged_to(&self.budget));
                self.looks.put(queue, id, message);
            }
            Found::Moved => self.looks.forget(queue, id),
            Found::Damaged => {
                self.looks.forget(queue, id);
                entry_of(lines, of).into_iter().for_each(Entry::set_damaged);
            }
        }
    }
}
