//! Retained messages that a subscription brings: in steps, at the pace at which the client takes them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use base::{ConnectionId, Interest, Message};
use index::{FilterHash, FilterSum, MatchingFilters, Subscriptions, Target};
use protocol::{Command, CursorId, MessageId, Numbered};
use topic::TopicFilter;

use crate::client::Client;
use crate::effects::Outside;
use crate::{Effects, Shard};

/// The answers to one client's subscriptions that are not complete. One step is under way at a time, whatever
/// the number of subscriptions: what waits for the client stays within its mark and one step.
///
/// There may be as many walks as subscriptions. A tree grows and is freed bit by bit; a hash table is moved as a whole.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    walks: BTreeMap<CursorId, Walk>,
    by_filter: BTreeMap<Arc<str>, CursorId>,
    /// Walks of new subscriptions whose cursors the ledger has not opened.
    unbegun: BTreeMap<FilterHash, CursorId>,
    /// Walks whose next step can be requested, in turn.
    ready: VecDeque<CursorId>,
    stepping: Option<CursorId>,
}

#[derive(Debug)]
struct Walk {
    filter: Arc<str>,
    interest: Interest,
    /// Set while the walk is in `unbegun`. Once the ledger has opened the cursor, the subscription gets each later message
    /// live.
    unbegun: Option<FilterHash>,
    /// The last value of each topic that came live before the cursor was opened. The walk leaves these values out.
    came_live: BTreeMap<FilterHash, MessageId>,
}

/// A retained message that came live, and the hashes of the filters that match its topic. The hashes are computed once for
/// all receivers of a shard, and only if one of them has a walk that has not begun.
pub(crate) struct Arrival<'a> {
    message: &'a Message,
    id: MessageId,
    matching: Option<MatchingFilters>,
}

impl<'a> Arrival<'a> {
    pub(crate) fn new(message: &'a Message, id: MessageId) -> Self {
        Self { message, id, matching: None }
    }
}

impl Walks {
    /// The walks that will bring a message again that came live for `target`, which is a target of the client
    /// `client_id`. There are none unless the message came for new subscriptions only, and none of their cursors was open
    /// when the ledger decided about the message: then each of these cursors brings it.
    ///
    /// The cost is a look-up for each filter that matches the topic, or for each walk that has not begun, whichever are
    /// fewer. Neither the client's other subscriptions count, nor those of other clients that do not match.
    pub(crate) fn will_bring(
        &self,
        arrival: &mut Arrival<'_>,
        target: &Target,
        index: &Subscriptions,
    ) -> Vec<CursorId> {
        if self.unbegun.is_empty() {
            return Vec::new();
        }
        let message = arrival.message;
        let matching = arrival.matching.get_or_insert_with(|| index.matching_filters(message.topic()));
        let mut found: Vec<(CursorId, FilterHash)> = if self.unbegun.len() < matching.all().len() {
            let unbegun = self.unbegun.iter().inspect(|_| count_look());
            unbegun
                .filter(|(filter, _)| matching.contains(**filter))
                .map(|(filter, id)| (*id, *filter))
                .collect()
        } else {
            let matching = matching.all().iter().inspect(|_| count_look());
            matching.filter_map(|filter| Some((*self.unbegun.get(filter)?, *filter))).collect()
        };
        let is_own = message.publisher() == Some(&*target.subscriber.client_id);
        found.retain(|(id, _)| self.walks.get(id).is_some_and(|walk| !(is_own && walk.interest.no_local())));
        // The subscriptions of one client come into the index one after another: when the ledger looked, the first of them
        // were there. Others came later, and the message did not come for them.
        found.sort_unstable();
        let mut sum = FilterSum::default();
        let first = found.iter().position(|(_, filter)| {
            sum = sum.with(*filter);
            sum == target.filters
        });
        found.truncate(first.map_or(0, |last| last + 1));
        found.into_iter().map(|(id, _)| id).collect()
    }

    /// The message goes out live all the same: these walks do not bring it again.
    pub(crate) fn came_live(&mut self, arrival: &Arrival<'_>, walks: &[CursorId]) {
        let Some(matching) = &arrival.matching else { return };
        for id in walks {
            if let Some(walk) = self.walks.get_mut(id) {
                walk.came_live.insert(matching.topic(), arrival.id);
            }
        }
    }

    /// Frees up to `count` walks of a client that is gone. Returns how many, and whether none is left.
    pub(crate) fn free(&mut self, count: usize) -> (usize, bool) {
        let mut freed = 0;
        while freed < count && self.pop() {
            freed += 1;
        }
        (freed, self.walks.is_empty() && self.by_filter.is_empty() && self.unbegun.is_empty())
    }

    fn pop(&mut self) -> bool {
        let Self { walks, by_filter, unbegun, .. } = self;
        walks.pop_first().is_some() | by_filter.pop_first().is_some() | unbegun.pop_first().is_some()
    }

    fn insert(&mut self, id: CursorId, filter: &str, interest: Interest, unbegun: Option<FilterHash>) {
        let filter = Arc::<str>::from(filter);
        self.by_filter.insert(Arc::clone(&filter), id);
        self.walks.insert(id, Walk { filter, interest, unbegun, came_live: BTreeMap::new() });
        self.unbegun.extend(unbegun.map(|filter| (filter, id)));
    }

    fn begin(&mut self, id: CursorId) {
        if let Some(walk) = self.walks.get_mut(&id) {
            let filter = walk.unbegun.take();
            self.ready.push_back(id);
            self.forget_unbegun(filter, id);
        }
    }

    fn remove(&mut self, id: CursorId) {
        let Some(walk) = self.walks.remove(&id) else { return };
        self.forget_unbegun(walk.unbegun, id);
        if self.by_filter.get(&walk.filter) == Some(&id) {
            self.by_filter.remove(&walk.filter);
        }
    }

    fn forget_unbegun(&mut self, filter: Option<FilterHash>, id: CursorId) {
        if let Some(filter) = filter
            && self.unbegun.get(&filter) == Some(&id)
        {
            self.unbegun.remove(&filter);
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

/// A filter or a walk is looked at: tests count that.
fn count_look() {
    #[cfg(test)]
    tests::LOOKS.with(|looks| looks.set(looks.get() + 1));
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
        to: &mut Outside<'_, impl Effects>,
    ) {
        self.close_walk(connection, &filter, to);
        let Some(client) = self.clients.get_mut(connection) else { return };
        // One count for all clients: it outlives their walks, so that an answer to one that was given up is never
        // taken for an answer to the next.
        self.cursors = self.cursors.wrapping_add(1);
        let id = CursorId(self.cursors);
        let queue = client.queue();
        let new = TopicFilter::new(&filter).ok().filter(|_| is_new);
        let unbegun = new.map(|filter| self.index.hash_of_filter(filter));
        client.make_aside().walks.get_or_insert_default().insert(id, &filter, interest, unbegun);
        self.changes.opening += 1;
        to.command(Command::Retained { connection, id, filter, queue });
    }

    /// A subscription has been replaced, and asks for nothing itself: what the one before it still brings comes as the new
    /// one says [MQTT-3.8.4-3].
    pub(crate) fn change_walk(&mut self, connection: ConnectionId, filter: &str, interest: Interest) {
        let walks = self.clients.get_mut(connection).and_then(Client::walks_mut);
        if let Some(walks) = walks
            && let Some(id) = walks.by_filter.get(filter)
            && let Some(walk) = walks.walks.get_mut(id)
        {
            walk.interest = interest;
        }
    }

    /// A subscription has ended: what it would still have brought is not wanted.
    pub(crate) fn close_walk(
        &mut self,
        connection: ConnectionId,
        filter: &str,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let Some(walks) = self.clients.get_mut(connection).and_then(Client::walks_mut) else {
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
        to: &mut Outside<'_, impl Effects>,
    ) {
        self.changes.opening = self.changes.opening.saturating_sub(1);
        if let Some(walks) = self.clients.get_mut(connection).and_then(Client::walks_mut) {
            if is_over {
                walks.remove(id);
            } else {
                walks.begin(id);
            }
            self.continue_walks(connection, to);
        }
    }

    /// Asks for the next step, if the client has taken what it got, and acknowledged most of it.
    pub(crate) fn continue_walks(&mut self, connection: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        let Some(client) = self.clients.get_mut(connection) else { return };
        let Some(walks) = client.walks_mut() else { return };
        if walks.walks.is_empty() {
            client.make_aside().walks = None;
            client.tidy();
        } else if !client.session.has_place() {
            // It asks again when it has acknowledged.
        } else if self.has_room(connection, 0, to)
            && let Some(walks) = self.clients.get_mut(connection).and_then(Client::walks_mut)
            && let Some(id) = walks.next_step()
        {
            to.command(Command::Credit { connection, id });
        }
    }

    /// A step of a walk has come.
    pub(crate) fn retained(
        &mut self,
        connection: ConnectionId,
        id: CursorId,
        (mut messages, done): (Vec<Numbered>, bool),
        to: &mut Outside<'_, impl Effects>,
    ) {
        let Some(client) = self.clients.get_mut(connection) else { return };
        let lasts = client.queue().is_some();
        let Some(walks) = client.walks_mut() else { return };
        if walks.stepping == Some(id) {
            walks.stepping = None;
        }
        let Some(walk) = walks.walks.get(&id) else { return };
        let interest = walk.interest;
        if lasts && !messages.is_empty() {
            to.command(Command::Took { connection, id });
        }
        if !walk.came_live.is_empty() {
            messages.retain(|found| {
                let live = walk.came_live.get(&self.index.hash_of_topic(found.message.topic()));
                live != Some(&found.id)
            });
        }
        if done {
            walks.remove(id);
        } else {
            walks.ready.push_back(id);
        }
        let messages = messages.into_iter().map(|found| found.message);
        self.deliver_retained(connection, messages, interest, to);
        self.continue_walks(connection, to);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use base::{ConnectionId, ShardId, Subscriber};
    use index::{Change, Targets};
    use wire::Qos;

    use super::*;

    thread_local! {
        /// How many filters and walks were looked at.
        pub(super) static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    const FILTERS: usize = 10_000;

    /// Makes a client with this number of filters that do not match the topic `hot`, and one that does. A message to
    /// `hot` comes live while these walks have not begun. Returns how many looks that takes, and how many of the walks
    /// will find it.
    fn looks(filters: usize, unbegun: impl Fn(usize) -> bool) -> (usize, usize) {
        let index = Subscriptions::new([1, 2]);
        let connection = ConnectionId { slot: 0, generation: 0 };
        let subscriber = Arc::new(Subscriber::new("client".into(), ShardId::new(0), connection));
        let interest = Interest::new(Qos::AtMostOnce);
        let texts: Vec<String> =
            (0..filters).map(|number| format!("some{number}/#")).chain(["hot".to_owned()]).collect();
        let mut walks = Walks::default();
        for (number, text) in texts.iter().enumerate() {
            let filter = TopicFilter::new(text).expect("a filter");
            let change = Change::Subscribe { filter, subscriber: &subscriber, options: interest };
            index.apply([change], &mut Vec::new());
            let id = CursorId(u32::try_from(number).expect("few"));
            let unbegun = unbegun(number).then(|| index.hash_of_filter(filter));
            walks.insert(id, text, interest, unbegun);
        }
        let message = Message::of_server("hot", b"value").expect("a topic");
        let targets = Targets::look_up(&index, message.topic(), None);
        let [target] = targets.on(ShardId::new(0)) else { panic!("one target") };
        let before = LOOKS.get();
        let found = walks.will_bring(&mut Arrival::new(&message, MessageId(1)), target, &index);
        (LOOKS.get() - before, found.len())
    }

    #[test]
    fn a_live_message_costs_the_same_however_many_filters_and_walks_its_receiver_has() {
        let one_waits = |number| number == FILTERS / 2;
        for filters in [10, FILTERS] {
            assert_eq!(looks(filters, |_| true), (2, 1), "all of {filters} wait");
            assert_eq!(looks(filters, |number| number >= filters / 2), (2, 1), "half of {filters} wait");
            assert_eq!(looks(filters, |number| number == filters), (1, 1), "one of {filters} waits");
        }
        assert_eq!(looks(FILTERS, one_waits), (1, 0), "another one waits");
        assert_eq!(looks(FILTERS, |_| false), (0, 0), "none waits");
    }
}
