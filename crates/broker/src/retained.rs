//! Retained messages that a subscription brings: in steps, at the pace at which the client takes them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use index::{ConnectionId, Interest, Target};
use ledger::{Command, CursorId};
use session::{Message, Now};
use topic::TopicFilter;

use crate::filters::Filters;
use crate::{Effects, Shard};

/// The answers to one client's subscriptions that are not complete. One step is under way at a time, whatever
/// the number of subscriptions: what waits for the client stays within its mark and one step.
///
/// There may be as many walks as subscriptions. A tree grows and is freed bit by bit; a hash table is moved as a whole.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    walks: BTreeMap<CursorId, Walk>,
    by_filter: BTreeMap<Arc<str>, CursorId>,
    /// Those whose next step can be asked for, in turn.
    ready: VecDeque<CursorId>,
    stepping: Option<CursorId>,
    unbegun: usize,
}

#[derive(Debug)]
struct Walk {
    filter: Arc<str>,
    interest: Interest,
    /// The subscription did not exist before.
    is_new: bool,
    /// The ledger has opened the cursor: from then on what is published comes to the subscription live.
    begun: bool,
    /// What came live before that, and is not to come again.
    came_live: Vec<Arc<Message>>,
}

impl Walks {
    /// Whether a message that came live will come again as a retained one: it was decided before the cursors of all the
    /// subscriptions that it can have come for. `filters` are those of the client.
    pub(crate) fn will_bring(&self, message: &Message, target: &Target, filters: &Filters) -> bool {
        if self.unbegun == 0 {
            return false;
        }
        let brings = |filter: &str| {
            let walk = self.by_filter.get(filter).and_then(|id| self.walks.get(id));
            walk.is_some_and(|walk| walk.is_new && !walk.begun)
        };
        let mut brought = 0;
        for filter in filters.iter().filter(|filter| matches(filter, message)) {
            if !brings(filter) {
                return false;
            }
            brought += 1;
        }
        brought >= target.matches
    }

    /// The message comes live all the same: no cursor that is to be opened brings it again.
    pub(crate) fn came_live(&mut self, message: &Arc<Message>) {
        let unbegun = self.walks.values_mut().filter(|walk| !walk.begun);
        for walk in unbegun.filter(|walk| matches(&walk.filter, message)) {
            walk.came_live.push(Arc::clone(message));
        }
    }

    /// Frees up to `count` walks of a client that is gone. Returns how many, and whether none is left.
    pub(crate) fn free(&mut self, count: usize) -> (usize, bool) {
        let mut freed = 0;
        while freed < count && (self.walks.pop_first().is_some() | self.by_filter.pop_first().is_some()) {
            freed += 1;
        }
        (freed, self.walks.is_empty() && self.by_filter.is_empty())
    }

    fn insert(&mut self, id: CursorId, filter: &str, interest: Interest, is_new: bool) {
        let filter = Arc::<str>::from(filter);
        self.by_filter.insert(Arc::clone(&filter), id);
        self.walks.insert(id, Walk { filter, interest, is_new, begun: false, came_live: Vec::new() });
        self.unbegun += 1;
    }

    fn begin(&mut self, id: CursorId) {
        if let Some(walk) = self.walks.get_mut(&id) {
            walk.begun = true;
            self.unbegun -= 1;
            self.ready.push_back(id);
        }
    }

    fn remove(&mut self, id: CursorId) {
        let Some(walk) = self.walks.remove(&id) else { return };
        self.unbegun -= usize::from(!walk.begun);
        if self.by_filter.get(&walk.filter) == Some(&id) {
            self.by_filter.remove(&walk.filter);
        }
    }

    /// The walk that makes the next step, if none is making one.
    fn next_step(&mut self) -> Option<CursorId> {
        if self.stepping.is_some() {
            return None;
        }
        while let Some(id) = self.ready.pop_front() {
            if self.walks.contains_key(&id) {
                self.stepping = Some(id);
                return Some(id);
            }
        }
        None
    }
}

fn matches(filter: &str, message: &Message) -> bool {
    TopicFilter::new(filter).is_ok_and(|filter| filter.matches(message.topic()))
}

impl Shard {
    /// Asks for the retained messages of a subscription that was written just now, or for the rest of them. A walk for
    /// the same filter is given up for it.
    pub(crate) fn open_walk(
        &mut self,
        connection: ConnectionId,
        filter: Box<str>,
        interest: Interest,
        is_new: bool,
        to: &mut impl Effects,
    ) {
        self.close_walk(connection, &filter, to);
        let Some(client) = self.clients.get_mut(connection) else { return };
        // One count for all clients: it outlives their walks, so that an answer to one that was given up is never
        // taken for an answer to the next.
        self.cursors = self.cursors.wrapping_add(1);
        let id = CursorId(self.cursors);
        let queue = client.queue();
        client.walks.get_or_insert_default().insert(id, &filter, interest, is_new);
        self.changes.opening += 1;
        to.command(Command::Retained { connection, id, filter, queue });
    }

    /// A subscription has been replaced, and asks for nothing itself: what the one before it still brings comes as the new
    /// one says [MQTT-3.8.4-3].
    pub(crate) fn change_walk(&mut self, connection: ConnectionId, filter: &str, interest: Interest) {
        let walks = self.clients.get_mut(connection).and_then(|client| client.walks.as_mut());
        if let Some(walks) = walks
            && let Some(id) = walks.by_filter.get(filter)
            && let Some(walk) = walks.walks.get_mut(id)
        {
            walk.interest = interest;
        }
    }

    /// A subscription has ended: what it would still have brought is not wanted.
    pub(crate) fn close_walk(&mut self, connection: ConnectionId, filter: &str, to: &mut impl Effects) {
        let Some(walks) = self.clients.get_mut(connection).and_then(|client| client.walks.as_mut()) else {
            return;
        };
        if let Some(id) = walks.by_filter.get(filter).copied() {
            walks.remove(id);
            if walks.stepping == Some(id) {
                // Its step may have been answered already; that answer finds nobody.
                walks.stepping = None;
            }
            to.command(Command::Close { connection, id });
            self.continue_walks(connection, to);
        }
    }

    /// The ledger has opened a walk's cursor, or has found that nothing matches.
    pub(crate) fn begin_walk(
        &mut self,
        connection: ConnectionId,
        id: CursorId,
        is_over: bool,
        to: &mut impl Effects,
    ) {
        self.changes.opening = self.changes.opening.saturating_sub(1);
        if let Some(walks) = self.clients.get_mut(connection).and_then(|client| client.walks.as_mut()) {
            if is_over {
                walks.remove(id);
            } else {
                walks.begin(id);
            }
            self.continue_walks(connection, to);
        }
    }

    /// Asks for the next step, if the client has taken what it got, and acknowledged most of it.
    pub(crate) fn continue_walks(&mut self, connection: ConnectionId, to: &mut impl Effects) {
        let Some(client) = self.clients.get_mut(connection) else { return };
        let queue = client.queue();
        let Some(walks) = client.walks.as_mut() else { return };
        if walks.walks.is_empty() {
            client.walks = None;
        } else if !client.session.has_place() {
            // It asks again when it has acknowledged.
        } else if self.has_room(connection, 0, to)
            && let Some(walks) = self.clients.get_mut(connection).and_then(|client| client.walks.as_mut())
            && let Some(id) = walks.next_step()
        {
            to.command(Command::Credit { connection, id, queue });
        }
    }

    /// A step of a walk has come.
    pub(crate) fn retained(
        &mut self,
        connection: ConnectionId,
        id: CursorId,
        (mut messages, done): (Vec<Arc<Message>>, bool),
        now: Now,
        to: &mut impl Effects,
    ) {
        let Some(walks) = self.clients.get_mut(connection).and_then(|client| client.walks.as_mut()) else {
            return;
        };
        if walks.stepping == Some(id) {
            walks.stepping = None;
        }
        let Some(walk) = walks.walks.get(&id) else { return };
        let interest = walk.interest;
        messages.retain(|message| !walk.came_live.iter().any(|live| Arc::ptr_eq(live, message)));
        if done {
            walks.remove(id);
        } else {
            walks.ready.push_back(id);
        }
        self.deliver_retained(connection, id, &messages, interest, now, to);
        self.continue_walks(connection, to);
    }
}
