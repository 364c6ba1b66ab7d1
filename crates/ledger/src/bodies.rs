//! Messages that wait on disk alone, and come back into memory when their turn comes.
//!
//! ```text
//!                        more waits than memory is for                 its turn comes soon
//!   recorded, in memory ──────────────────────────────► on disk alone ────────────────────► wanted
//!            ▲                                                  ▲                             │  │
//!            │                                                  └──── copied meanwhile ───────┘  │
//!            └──────────────────────────────── fetched ──────────────────────────────────────────┘
//! ```
//!
//! What comes last goes first: the oldest messages of a queue are the next that are sent.
//!
//! Imports: `lines` and the parts below.

mod looks;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use base::{Budget, Message, Now, QueueId};

use crate::bodies::looks::Looks;
use crate::lines::session::credit_bytes;
use crate::lines::{Line, Lines, Owner};
use crate::queue::entry::Entry;
use crate::queue::in_flight::State;
use crate::queue::live::Live;
use crate::queue::{BYTES_AHEAD, MESSAGES_AHEAD};
use crate::record::fetch::{Fetched, Found, Need, Wanted, Whose};
use crate::record::{Address, Effects, RETRY_MS};

/// Maximum number of bytes being read from the disk, plus one message. Queues that want more wait for each other.
const BYTES_UNDER_WAY: usize = 8 << 20;

/// The messages of the record that queues have in memory, and those that are on their way from the disk.
#[derive(Debug)]
pub(crate) struct Bodies {
    /// Counts the messages of the record.
    pub(crate) live: Live,
    /// The memory of the process.
    pub(crate) budget: Arc<Budget>,
    /// How much is on its way.
    under_way_bytes: usize,
    /// When queues that wait ask again.
    retry_ms: Option<u64>,
    /// Queues that wait until less is, in turn; each once.
    waiting: VecDeque<QueueId>,
    are_waiting: BTreeSet<QueueId>,
    pub(crate) looks: Looks,
}

impl Bodies {
    /// Without a limit of memory.
    pub(crate) fn new() -> Self {
        Self {
            live: Live::for_ever(),
            budget: Arc::default(),
            under_way_bytes: 0,
            retry_ms: None,
            waiting: VecDeque::new(),
            are_waiting: BTreeSet::new(),
            looks: Looks::default(),
        }
    }

    fn has_room(&self) -> bool {
        self.under_way_bytes < BYTES_UNDER_WAY
    }

    /// Puts a queue into the line of those that wait, if it does not stand there.
    fn put_off(&mut self, queue: QueueId) {
        if self.are_waiting.insert(queue) {
            self.waiting.push_back(queue);
        }
    }

    /// Whether messages may be requested. When no memory is left, one message is read at a time: delivering messages to
    /// their readers may be the only way to free memory.
    pub(crate) fn may_ask(&self) -> bool {
        let budget = &self.budget;
        self.has_room() && budget.may_read_back() && (self.under_way_bytes == 0 || !budget.is_full())
    }

    /// The next queue that waits.
    fn next(&mut self) -> Option<QueueId> {
        let next = self.waiting.pop_front()?;
        self.are_waiting.remove(&next);
        Some(next)
    }

    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        [self.retry_ms, self.looks.poll_timeout()].into_iter().flatten().min()
    }

    /// A message is on its way from then on.
    pub(crate) fn fetch(&mut self, address: Address, of: Whose, size_bytes: usize, to: &mut impl Effects) {
        self.under_way_bytes += size_bytes;
        to.fetch(Wanted { address, of, size_bytes });
    }
}

/// How far ahead of its reader a queue is read now, in bytes.
fn bytes_ahead(budget: &Budget) -> usize {
    if budget.is_tight_to_keep() { Budget::WAITING_BYTES_ALLOWED } else { BYTES_AHEAD }
}

impl Bodies {
    /// Returns the address of the message recorded last, or `None` if the message stays in memory.
    pub(crate) fn address_if_full(
        &self,
        message: &Message,
        bytes_max: usize,
        to: &mut impl Effects,
    ) -> Option<Address> {
        let bytes = self.live.in_memory_bytes() + message.size_bytes();
        if bytes > bytes_max { to.address() } else { None }
    }

    /// Whether a message would go on at once if it came from the disk now.
    fn has_reader(&self, lines: &Lines, queue: QueueId) -> bool {
        match lines.find(queue).map(|line| &line.owner) {
            Some(Owner::Session(session)) => session.takes_new(credit_bytes(&self.budget)),
            Some(Owner::Group(group)) => group.has_turns(),
            None => false,
        }
    }

    /// Requests the first messages of a queue that are not in memory. When no memory is left, it requests one that a
    /// reader accepts at once: any other would stay in memory, and each reader that does not go on would use more.
    pub(crate) fn want_first(&mut self, lines: &mut Lines, queue: QueueId, to: &mut impl Effects) {
        let is_full = self.budget.is_full();
        if is_full && !self.has_reader(lines, queue) {
            return;
        }
        let line = lines.find_mut(queue).filter(|line| line.queue.is_away_within(MESSAGES_AHEAD / 2));
        let Some(Line { queue: waiting, .. }) = line else { return };
        if !self.may_ask() {
            return self.put_off(queue);
        }
        let bytes_ahead = bytes_ahead(&self.budget);
        let (mut bytes, mut has_come) = (0, false);
        for (message, entry) in waiting.iter_mut().take(MESSAGES_AHEAD) {
            if bytes > 0 && bytes + entry.size_bytes() > bytes_ahead {
                break;
            }
            bytes += entry.size_bytes();
            let of = Whose { queue, message, need: Need::Turn };
            let was_away = entry.message().is_none();
            let wanted_bytes = want(entry, of, to);
            self.under_way_bytes += wanted_bytes;
            has_come |= was_away && entry.message().is_some();
            if is_full && wanted_bytes > 0 {
                break;
            }
        }
        if has_come {
            // Another queue had it: nothing is read that would tell.
            lines.is_ready(queue);
        }
    }

    /// Asks for the first messages that are to be sent again and are not in memory.
    pub(crate) fn want_again(&mut self, lines: &mut Lines, id: QueueId, to: &mut impl Effects) {
        let Some(session) = lines.session_mut(id) else { return };
        let Some(online) = &session.online else { return };
        let budget = &self.budget;
        let is_full = budget.is_full();
        if is_full && !online.has_room(credit_bytes(budget)) {
            return;
        }
        if !self.may_ask() {
            return self.put_off(id);
        }
        let bytes_ahead = bytes_ahead(&self.budget);
        let (mut bytes, mut has_come) = (0, false);
        for packet_id in online.again.iter().take(MESSAGES_AHEAD) {
            if let Some(exchange) = session.in_flight.find_mut(*packet_id)
                && let State::Own(message, entry) = &mut exchange.state
            {
                if bytes > 0 && bytes + entry.size_bytes() > bytes_ahead {
                    break;
                }
                bytes += entry.size_bytes();
                let of = Whose { queue: id, message: *message, need: Need::Again(*packet_id) };
                let was_away = entry.message().is_none();
                let wanted_bytes = want(entry, of, to);
                self.under_way_bytes += wanted_bytes;
                has_come |= was_away && entry.message().is_some();
                if is_full && wanted_bytes > 0 {
                    break;
                }
            }
        }
        if has_come {
            lines.is_ready(id);
        }
    }

    /// See [`Ledger::fetched`](crate::Ledger::fetched).
    pub(crate) fn fetched(&mut self, lines: &mut Lines, fetched: Fetched, to: &mut impl Effects) {
        let Fetched { wanted: Wanted { of, size_bytes, .. }, found } = fetched;
        self.under_way_bytes -= size_bytes;
        match of.need {
            Need::Look => self.fetched_for_look(lines, of, found),
            Need::Turn | Need::Again(_) => self.fetched_for_reader(lines, of, found),
        }
        self.want_some(lines, to);
    }

    fn fetched_for_reader(&mut self, lines: &mut Lines, of: Whose, found: Found) {
        let budget = Arc::clone(&self.budget);
        if let Some(kept) = entry_of(lines, of) {
            match found {
                Found::Message(message) => kept.bring(Arc::new(message.charged_to(&budget))),
                Found::Moved => kept.miss(),
                Found::Damaged => kept.set_damaged(),
            }
        }
        // It may have left meanwhile, and what is behind it was not asked for.
        lines.is_ready(of.queue);
    }

    /// Queues that wait ask for their messages as long as there is room.
    fn want_some(&mut self, lines: &mut Lines, to: &mut impl Effects) {
        while self.may_ask()
            && let Some(queue) = self.next()
        {
            self.want_again(lines, queue, to);
            self.want_first(lines, queue, to);
            lines.is_ready(queue);
        }
    }

    /// The same by the clock: nobody tells that there is memory again, or that a look was given up.
    pub(crate) fn want_put_off(&mut self, lines: &mut Lines, now: Now, to: &mut impl Effects) {
        self.looks.expire(now);
        if self.retry_ms.is_none_or(|retry_ms| retry_ms <= now.monotonic_ms) {
            self.want_some(lines, to);
            let waits = !self.waiting.is_empty();
            self.retry_ms = waits.then(|| now.monotonic_ms + RETRY_MS);
        }
    }

    /// The reader of a queue has gone: what was read for it, or kept near it, goes out of memory where there is too much.
    pub(crate) fn put_away(&self, lines: &mut Lines, id: QueueId, bytes_max: usize) {
        let Some(Line { queue, owner: Owner::Session(session), .. }) = lines.find_mut(id) else {
            return;
        };
        let near = queue.iter_mut().take(2 * MESSAGES_AHEAD).map(|(_, entry)| entry);
        for entry in session.in_flight.own_all().chain(near) {
            if self.live.in_memory_bytes() <= bytes_max {
                return;
            }
            entry.put_away();
        }
    }
}

/// A message that is where it was when it was asked for.
pub(crate) fn entry_of(lines: &mut Lines, of: Whose) -> Option<&mut Entry> {
    let Whose { queue, message, need } = of;
    match need {
        Need::Turn | Need::Look => lines.find_mut(queue)?.queue.find_mut(message),
        Need::Again(packet_id) => match &mut lines.session_mut(queue)?.in_flight.find_mut(packet_id)?.state {
            State::Own(id, entry) if *id == message => Some(entry),
            _ => None,
        },
    }
}

/// Asks for a message, unless it is in memory or was asked for. Returns how much more is under way.
fn want(entry: &mut Entry, of: Whose, to: &mut impl Effects) -> usize {
    let Some(address) = entry.want() else { return 0 };
    let size_bytes = entry.size_bytes();
    to.fetch(Wanted { address, of, size_bytes });
    size_bytes
}
