//! Messages that wait, in their order.
//!
//! Imports: `record` and the parts below.

mod blocks;
pub(crate) mod entry;
pub(crate) mod in_flight;
pub(crate) mod live;

use std::collections::BTreeMap;
use std::mem;

use base::Now;

use crate::queue::blocks::Blocks;
use crate::queue::entry::Entry;
use crate::record::MessageId;

/// Number of messages that a queue is read ahead of its reader. A message this close to a connected reader stays in
/// memory.
pub(crate) const MESSAGES_AHEAD: usize = 64;
/// Number of bytes that a queue is read ahead of its reader, plus one message.
pub(crate) const BYTES_AHEAD: usize = 64 << 10;
/// Number of gaps that are not worth closing.
const GAPS_KEPT: usize = 64;

/// A queue of a session or a group. Whatever is done to one message takes the same time on average, however many there
/// are; to find one in the middle, the logarithm.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Entries by number, ascending. When a message is taken from the middle, a gap stays until its turn comes, or
    /// until there are more gaps than messages. The first entry is no gap.
    places: Blocks<(MessageId, Option<Entry>)>,
    /// While records are read: messages that came behind later ones, since their records were copied.
    late: BTreeMap<MessageId, Entry>,
    messages: usize,
    bytes: usize,
    /// How many of them will expire.
    expiring: usize,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.messages
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages == 0
    }

    /// Bytes of its messages. A message counts in each queue that contains it.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a message behind these messages is soon wanted by a reader who is there.
    pub(crate) fn is_near(&self) -> bool {
        self.messages < MESSAGES_AHEAD && self.bytes < BYTES_AHEAD
    }

    pub(crate) fn expiring(&self) -> usize {
        self.expiring
    }

    /// Behind all others; its number is the highest.
    pub(crate) fn push(&mut self, id: MessageId, entry: Entry) {
        debug_assert!(self.places.back().is_none_or(|(last, _)| *last < id), "numbers grow");
        self.count(&entry);
        self.places.push_back((id, Some(entry)));
    }

    /// At its place, wherever that is, if it is not there: records are copied, and read twice. Whether it was not.
    ///
    /// [`settle`](Self::settle) comes before anything but this and [`remove`](Self::remove).
    pub(crate) fn restore(&mut self, id: MessageId, entry: Entry) -> bool {
        let (bytes, expires) = (entry.size_bytes(), entry.expires());
        // The messages behind a late one may have been removed since. Then it is the last, and nevertheless in the
        // queue.
        let is_late = self.late.contains_key(&id);
        if !is_late && self.places.back().is_none_or(|(last, _)| *last < id) {
            self.places.push_back((id, Some(entry)));
        } else if let Some(known) = self.find_mut(id) {
            // The younger record stays for longer.
            known.set_address(entry.address());
            return false;
        } else {
            match self.place_mut(id) {
                Some(place) => *place = Some(entry),
                None => drop(self.late.insert(id, entry)),
            }
        }
        self.messages += 1;
        self.bytes += bytes;
        self.expiring += usize::from(expires);
        true
    }

    /// Everything that was restored takes its place.
    pub(crate) fn settle(&mut self) {
        if !self.late.is_empty() {
            let late = mem::take(&mut self.late).into_iter().map(|(id, entry)| (id, Some(entry)));
            let mut all = Vec::with_capacity(self.places.len() + late.len());
            all.extend(mem::take(&mut self.places).into_iter().chain(late));
            // Two runs in order, which takes no longer than to merge them.
            all.sort_by_key(|(id, _)| *id);
            self.places = all.into_iter().collect();
            self.trim();
        }
        self.places.shrink_to_fit();
    }

    pub(crate) fn front(&self) -> Option<(MessageId, &Entry)> {
        self.iter().next()
    }

    /// The number of the last message, or of a gap behind it.
    pub(crate) fn last(&self) -> Option<MessageId> {
        self.places.back().map(|(id, _)| *id)
    }

    pub(crate) fn find(&self, id: MessageId) -> Option<&Entry> {
        // Old records ask for what has left long ago.
        self.places.front().filter(|(first, _)| *first <= id)?;
        let place = self.places.partition_point(|(other, _)| *other < id);
        self.places.get(place).filter(|(found, _)| *found == id)?.1.as_ref()
    }

    pub(crate) fn find_mut(&mut self, id: MessageId) -> Option<&mut Entry> {
        let place = self.places.partition_point(|(other, _)| *other < id);
        match self.places.get_mut(place).filter(|(found, _)| *found == id) {
            Some((_, entry)) => entry.as_mut(),
            None => self.late.get_mut(&id),
        }
    }

    /// Whether the first message, or the one about this number of places behind it, is on disk alone.
    pub(crate) fn is_away_within(&self, places: usize) -> bool {
        let last = places.min(self.places.len().saturating_sub(1));
        let is_away = |place: usize| match self.places.get(place) {
            Some((_, Some(entry))) => entry.message().is_none(),
            _ => false,
        };
        is_away(0) || is_away(last)
    }

    pub(crate) fn pop(&mut self) -> Option<(MessageId, Entry)> {
        let (id, entry) = self.places.pop_front()?;
        let entry = entry?;
        self.forget(&entry);
        self.trim();
        Some((id, entry))
    }

    /// Takes one out, wherever it is.
    pub(crate) fn remove(&mut self, id: MessageId) -> Option<Entry> {
        if self.places.front().is_some_and(|(first, _)| *first == id) {
            return self.pop().map(|(_, entry)| entry);
        }
        let entry = match self.place_mut(id) {
            Some(place) => place.take(),
            None => self.late.remove(&id),
        }?;
        self.forget(&entry);
        self.trim();
        if self.places.len() > 2 * self.messages + GAPS_KEPT {
            let all = mem::take(&mut self.places).into_iter();
            self.places = all.filter(|(_, entry)| entry.is_some()).collect();
        }
        Some(entry)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (MessageId, &Entry)> {
        self.places.iter().filter_map(|(id, entry)| entry.as_ref().map(|entry| (*id, entry)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (MessageId, &mut Entry)> {
        self.places.iter_mut().filter_map(|(id, entry)| entry.as_mut().map(|entry| (*id, entry)))
    }

    /// Looks at `visits` places behind `after` and notes which of their messages are expired. Returns where it stopped,
    /// or nothing at the end.
    pub(crate) fn look_for_expired(
        &self,
        after: Option<MessageId>,
        visits: usize,
        now: Now,
        expired: &mut Vec<MessageId>,
    ) -> Option<MessageId> {
        let first = after.map_or(0, |after| self.places.partition_point(|(id, _)| *id <= after));
        let last = (first + visits).min(self.places.len());
        for (id, entry) in (first..last).filter_map(|place| self.places.get(place)) {
            if entry.as_ref().is_some_and(|entry| entry.is_expired(now)) {
                expired.push(*id);
            }
        }
        if last == self.places.len() {
            return None;
        }
        self.places.get(last - 1).map(|(id, _)| *id)
    }

    /// The messages in `visits` places behind `after`, and the last of these places, unless it is the last of all.
    pub(crate) fn behind(
        &self,
        after: Option<MessageId>,
        visits: usize,
    ) -> (Vec<MessageId>, Option<MessageId>) {
        let first = after.map_or(0, |after| self.places.partition_point(|(id, _)| *id <= after));
        let last = (first + visits).min(self.places.len());
        let places = (first..last).filter_map(|place| self.places.get(place));
        let found = places.filter(|(_, entry)| entry.is_some()).map(|(id, _)| *id).collect();
        let stopped = if last < self.places.len() { self.places.get(last - 1) } else { None };
        (found, stopped.map(|(id, _)| *id))
    }

    /// Gives back memory that nobody needs; up to `places_max` messages are freed. Whether nothing is left.
    pub(crate) fn free(&mut self, places_max: usize) -> bool {
        let rest = self.places.len().saturating_sub(places_max);
        self.places.truncate(rest);
        rest == 0
    }

    fn count(&mut self, entry: &Entry) {
        self.messages += 1;
        self.bytes += entry.size_bytes();
        self.expiring += usize::from(entry.expires());
    }

    fn forget(&mut self, entry: &Entry) {
        self.messages -= 1;
        self.bytes -= entry.size_bytes();
        self.expiring -= usize::from(entry.expires());
    }

    fn trim(&mut self) {
        while let Some((_, None)) = self.places.front() {
            self.places.pop_front();
        }
    }

    /// Returns the entry with this number, or its gap.
    fn place_mut(&mut self, id: MessageId) -> Option<&mut Option<Entry>> {
        let place = self.places.partition_point(|(other, _)| *other < id);
        let (found, entry) = self.places.get_mut(place)?;
        (*found == id).then_some(entry)
    }
}
