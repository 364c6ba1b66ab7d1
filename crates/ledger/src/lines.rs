//! Lines: whatever messages wait in, and who takes them.
//!
//! Imports: `retained` and the parts below.

pub(crate) mod bounds;
pub(crate) mod brake;
pub(crate) mod fates;
pub(crate) mod group;
mod lanes;
mod matching;
mod members;
pub(crate) mod outputs;
pub(crate) mod parked;
pub(crate) mod pieces;
pub(crate) mod presence;
pub(crate) mod room;
pub(crate) mod session;
pub(crate) mod sweep;
mod table;

use std::collections::VecDeque;
use std::sync::Arc;

use base::{Fate, Message, Now, Place, Principal, QueueId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use index::Subscriptions;
use protocol::Gauges;

use crate::lines::brake::{Growth, Mark, PatienceClock};
use crate::lines::fates::{LineFates, MessageAt, Whereabouts};
use crate::lines::group::{Filters, Group, Inherited};
use crate::lines::members::Deciding;
use crate::lines::outputs::FullMembers;
use crate::lines::presence::Movings;
use crate::lines::session::Session;
use crate::lines::sweep::Sweep;
use crate::lines::table::Table;
use crate::queue::Queue;
use crate::queue::entry::Entry;
use crate::record::{Incarnation, MessageId};
use crate::settings::Settings;

/// Bytes of memory for a session or a group, beside its contents.
const SESSION_BYTES: usize = 1_024;
/// Approximate bytes of a record for the identity of a session or a group.
const NAME_BYTES: usize = 128;

/// A queue, and the session or the group that takes what waits in it.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) owner: Owner,
    /// Messages that were never sent. There are none in the line of a session that ends with its connection.
    pub(crate) queue: Queue,
    pub(crate) growth: Growth,
    /// The line is among those that are to be fed.
    is_ready: bool,
}

/// The owner of a line.
#[derive(Debug)]
pub(crate) enum Owner {
    /// A session that lasts, or one that ends with its connection and is a member of groups.
    Session(Session),
    Group(Group),
}

/// All lines, by number and by what records name them, and the work on them that needs no record.
#[derive(Debug)]
pub(crate) struct Lines {
    table: Table<Line>,
    /// Finds the targets of messages. Groups are written into it.
    pub(crate) index: Arc<Subscriptions>,
    /// Lines of groups and of lasting sessions.
    by_name: HashMap<Incarnation, QueueId, FixedState>,
    pub(crate) filters: Filters,
    groups: usize,
    /// Lines with a message for a reader that accepts it.
    ready: VecDeque<QueueId>,
    pub(crate) mark: Mark,
    pub(crate) patience_clock: PatienceClock,
    pub(crate) deciding: Deciding,
    pub(crate) moving: Movings,
    /// Groups whose queue is full, and whose members are to be ended.
    pub(crate) full_groups: VecDeque<QueueId>,
    pub(crate) full_members: FullMembers,
    pub(crate) sweep: Sweep,
    pub(crate) fates: LineFates,
    pub(crate) gauges: Arc<Gauges>,
}

impl Line {
    pub(crate) fn new(owner: Owner) -> Self {
        Self { owner, queue: Queue::default(), growth: Growth::default(), is_ready: false }
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        if let Owner::Session(session) = &self.owner { Some(session) } else { None }
    }

    pub(crate) fn session_mut(&mut self) -> Option<&mut Session> {
        if let Owner::Session(session) = &mut self.owner { Some(session) } else { None }
    }

    pub(crate) fn group(&self) -> Option<&Group> {
        if let Owner::Group(group) = &self.owner { Some(group) } else { None }
    }

    pub(crate) fn group_mut(&mut self) -> Option<&mut Group> {
        if let Owner::Group(group) = &mut self.owner { Some(group) } else { None }
    }

    /// As what records name it; nothing of a session that ends with its connection.
    pub(crate) fn incarnation(&self) -> Option<Incarnation> {
        match &self.owner {
            Owner::Session(session) => session.incarnation(),
            Owner::Group(group) => Some(group.incarnation),
        }
    }

    /// Whether somebody who takes from it is connected.
    pub(crate) fn has_reader(&self) -> bool {
        match &self.owner {
            Owner::Session(session) => session.open().is_some(),
            Owner::Group(group) => group.connected > 0,
        }
    }

    pub(crate) fn has_waiting(&self) -> bool {
        let has_returned = self.group().is_some_and(|group| !group.returned.is_empty());
        has_returned || !self.queue.is_empty()
    }

    /// Whether the next message of a group is on disk alone.
    pub(crate) fn waits_for_disk(&self) -> bool {
        self.group().is_none_or(|group| group.returned.is_empty()) && self.queue.is_away_within(0)
    }

    /// A new message, behind all others.
    pub(crate) fn push(&mut self, id: MessageId, entry: Entry) {
        self.group_mut().into_iter().for_each(|group| group.notice(id, &entry));
        self.queue.push(id, entry);
    }

    /// Takes a message out, wherever it waits.
    pub(crate) fn take(&mut self, id: MessageId) -> Option<Entry> {
        let returned = self.group_mut().and_then(|group| group.take_returned(id));
        let entry = returned.or_else(|| self.queue.remove(id))?;
        self.forget(id, &entry);
        Some(entry)
    }

    /// Takes the oldest of those out that were never sent.
    pub(crate) fn drop_oldest(&mut self) -> Option<(MessageId, Entry)> {
        let (id, entry) = self.queue.pop()?;
        self.forget(id, &entry);
        Some((id, entry))
    }

    fn forget(&mut self, id: MessageId, entry: &Entry) {
        if let Owner::Group(group) = &mut self.owner {
            group.forget(id, entry, &self.queue);
            self.growth.shrink(&self.queue);
        }
    }

    /// Whether a message waits, or is with a member that may give it back, and is on the record.
    pub(crate) fn keeps(&self, id: MessageId) -> bool {
        self.find(id).is_some_and(Entry::is_recorded)
    }

    /// A message that waits, or that a member may give back.
    pub(crate) fn find(&self, id: MessageId) -> Option<&Entry> {
        let elsewhere = || self.group().and_then(|group| group.returned_or_held(id));
        self.queue.find(id).or_else(elsewhere)
    }

    /// The same, to be changed.
    pub(crate) fn entry(&mut self, id: MessageId) -> Option<&mut Entry> {
        match self.queue.find_mut(id) {
            Some(entry) => Some(entry),
            None => match &mut self.owner {
                Owner::Group(group) => group.returned_or_held_mut(id),
                Owner::Session(_) => None,
            },
        }
    }

    /// The next message of a group for a member: what came back goes first.
    pub(crate) fn next_for(&self, member: QueueId) -> Option<(MessageId, &Entry)> {
        let group = self.group()?;
        match &group.lanes {
            None => {
                let returned = group.returned.first_key_value().map(|(id, entry)| (*id, entry));
                returned.or_else(|| self.queue.front())
            }
            Some(lanes) => {
                let id = lanes.next_for(member)?;
                let entry = group.returned.get(&id).or_else(|| self.queue.find(id));
                Some((id, entry.expect("what waits in a lane waits in its group")))
            }
        }
    }

    /// How many messages will expire, of those that wait.
    pub(crate) fn expiring(&self) -> usize {
        self.queue.expiring() + self.group().map_or(0, |group| group.returned_expiring)
    }

    /// Looks at about `visits` messages behind `after` and notes which of them are expired, those that came back included.
    /// Returns where it stopped, or nothing at the end.
    pub(crate) fn look_for_expired(
        &self,
        after: Option<MessageId>,
        visits: usize,
        now: Now,
        expired: &mut Vec<MessageId>,
    ) -> Option<MessageId> {
        let next = self.queue.look_for_expired(after, visits, now, expired);
        let returned = |group: &Group| group.look_for_expired((after, next), visits, now, expired);
        // The part of the queue behind that is looked at again.
        self.group().and_then(returned).or(next)
    }

    /// The messages that wait were read from records.
    pub(crate) fn settle(&mut self, settings: &Settings) {
        self.queue.settle();
        if let Owner::Group(group) = &mut self.owner
            && group.lanes.is_some()
        {
            group.inherited = Inherited::restored(&self.queue, settings);
            self.queue.iter().for_each(|(id, entry)| group.notice(id, entry));
        }
    }
}

impl Lines {
    pub(crate) fn new(settings: &Settings, index: Arc<Subscriptions>, gauges: Arc<Gauges>) -> Self {
        Self {
            table: Table::default(),
            index,
            by_name: HashMap::default(),
            filters: Filters::new(settings.seed, settings.dispatch.clone()),
            groups: 0,
            ready: VecDeque::new(),
            mark: Mark::of(settings),
            patience_clock: PatienceClock::default(),
            deciding: Deciding::default(),
            moving: Movings::new(settings.units.at_once),
            full_groups: VecDeque::new(),
            full_members: FullMembers::default(),
            sweep: Sweep::default(),
            fates: LineFates::new(Arc::clone(&gauges)),
            gauges,
        }
    }

    /// Without the rest of a ledger.
    #[cfg(test)]
    pub(crate) fn alone(settings: &Settings) -> Self {
        Self::new(settings, Arc::new(Subscriptions::new([1, 2])), Arc::default())
    }

    pub(crate) fn find(&self, id: QueueId) -> Option<&Line> {
        self.table.find(id)
    }

    pub(crate) fn find_mut(&mut self, id: QueueId) -> Option<&mut Line> {
        self.table.find_mut(id)
    }

    pub(crate) fn session(&self, id: QueueId) -> Option<&Session> {
        self.table.find(id)?.session()
    }

    pub(crate) fn session_mut(&mut self, id: QueueId) -> Option<&mut Session> {
        self.table.find_mut(id)?.session_mut()
    }

    pub(crate) fn group(&self, id: QueueId) -> Option<&Group> {
        self.table.find(id)?.group()
    }

    pub(crate) fn group_mut(&mut self, id: QueueId) -> Option<&mut Group> {
        self.table.find_mut(id)?.group_mut()
    }

    /// A line, and the fates of its messages.
    pub(crate) fn find_with_fates(&mut self, id: QueueId) -> Option<(&mut Line, &mut LineFates)> {
        Some((self.table.find_mut(id)?, &mut self.fates))
    }

    /// The line of a group, one of its members, and the fates of messages.
    pub(crate) fn group_and_member(
        &mut self,
        group: QueueId,
        member: QueueId,
    ) -> Option<(&mut Line, &mut Session, &mut LineFates)> {
        let (group, member) = self.table.find_two(group, member)?;
        Some((group, member.session_mut()?, &mut self.fates))
    }

    /// The line that records name so.
    pub(crate) fn named(&self, name: Incarnation) -> Option<QueueId> {
        self.by_name.get(&name).copied()
    }

    /// The session that lasts and that records name so.
    pub(crate) fn session_named(&self, name: Incarnation) -> Option<&Session> {
        self.session(self.named(name)?)
    }

    /// The lines in at most `count` places from this one on, and the next place, if there is one.
    pub(crate) fn in_slots(&self, from: u32, count: u32) -> (impl Iterator<Item = &Line>, Option<u32>) {
        self.table.in_slots(from, count)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Line> {
        self.table.iter()
    }

    pub(crate) fn sessions(&self) -> impl Iterator<Item = (&Session, &Queue)> {
        self.iter().filter_map(|line| Some((line.session()?, &line.queue)))
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = (&Group, &Queue)> {
        self.iter().filter_map(|line| Some((line.group()?, &line.queue)))
    }

    /// In the order in which they began.
    pub(crate) fn in_order(&self) -> Vec<(Incarnation, QueueId)> {
        let mut all: Vec<_> = self.by_name.iter().map(|(name, id)| (*name, *id)).collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all
    }

    pub(crate) fn groups_len(&self) -> usize {
        self.groups
    }

    /// How many sessions outlive their connections.
    pub(crate) fn lasting_len(&self) -> usize {
        self.by_name.len() - self.groups
    }

    /// About what the names of all of them take on disk.
    pub(crate) fn name_bytes(&self) -> usize {
        self.by_name.len() * NAME_BYTES
    }

    /// The memory of all lines, without the messages that wait.
    pub(crate) fn size_bytes(&self) -> usize {
        self.table.len() * SESSION_BYTES + self.groups * self.filters.lanes_bytes()
    }

    /// The line of a session, made of its future number.
    pub(crate) fn insert(&mut self, make: impl FnOnce(QueueId) -> Line) -> QueueId {
        let id = self.table.insert(make);
        let name = self.table.find(id).and_then(Line::incarnation);
        self.by_name.extend(name.map(|name| (name, id)));
        id
    }

    /// The line of a group without members, which a session has begun.
    pub(crate) fn insert_group(
        &mut self,
        filter: &str,
        incarnation: Incarnation,
        founder: Option<QueueId>,
    ) -> QueueId {
        let Self { filters, table, .. } = self;
        let id = table.insert(|id| Line::new(Owner::Group(filters.group(filter, id, incarnation, founder))));
        self.by_name.insert(incarnation, id);
        self.groups += 1;
        let group = self.table.find(id).and_then(Line::group).expect("it was put there");
        self.filters.add(group, id);
        id
    }

    pub(crate) fn remove(&mut self, id: QueueId) -> Option<Box<Line>> {
        let line = self.table.remove(id)?;
        line.incarnation().map(|name| self.by_name.remove(&name));
        if let Owner::Group(group) = &line.owner {
            self.groups -= 1;
            self.filters.remove(group, id);
        }
        Some(line)
    }

    /// Puts a line among those that are fed, if it is not there.
    pub(crate) fn is_ready(&mut self, id: QueueId) {
        if let Some(line) = self.table.find_mut(id)
            && !std::mem::replace(&mut line.is_ready, true)
        {
            self.ready.push_back(id);
        }
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The next line that is to be fed.
    pub(crate) fn next_ready(&mut self) -> Option<QueueId> {
        let id = self.ready.pop_front()?;
        self.table.find_mut(id).into_iter().for_each(|line| line.is_ready = false);
        Some(id)
    }

    /// Whether this is the connection of that session: rule 7 of `protocol::order`.
    pub(crate) fn is_on(&self, session: QueueId, place: Place) -> bool {
        let online = self.session(session).and_then(|session| session.online.as_ref());
        online.is_some_and(|online| online.place == place)
    }

    /// The user of a session.
    pub(crate) fn principal_of(&self, session: QueueId) -> Arc<Principal> {
        let session = self.session(session);
        session.map_or_else(Principal::anonymous, |session| session.subscriber.principal())
    }

    /// Asks for the entry of a queue with the news whether its message need not be in memory. Returns whether there is
    /// the queue.
    pub(crate) fn push(
        &mut self,
        queue: QueueId,
        id: MessageId,
        message: &Message,
        entry: impl FnOnce(bool) -> Entry,
    ) -> bool {
        let Some(line) = self.table.find_mut(queue) else {
            // Its group has lost the last member because of this very message.
            self.fates.count(Whereabouts::Outside, (1, 0), &Fate::SessionEnded);
            return false;
        };
        let takes = |owner: &Owner| match owner {
            Owner::Session(session) => session.online.is_some(),
            Owner::Group(group) => group.has_turns(),
        };
        // A key-ordered group needs the message itself to find its lane: it stays in memory.
        let is_next = line.group().is_some_and(|group| group.lanes.is_some())
            || (takes(&line.owner) && line.queue.is_near());
        let entry = entry(!is_next);
        let at = MessageAt::Coming { message, qos: entry.qos(), id: Some(id) };
        self.fates.decided(&line.owner, at, Fate::Queued);
        line.push(id, entry);
        let has_reader = takes(&line.owner);
        if message.expires_unix_ms().is_some() {
            self.sweep.add(queue);
        }
        if has_reader {
            self.is_ready(queue);
        }
        true
    }
}
