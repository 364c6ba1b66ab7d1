//! Retained messages that a subscription brings: in steps, at the pace at which the client takes them.

use std::sync::Arc;

use index::{ConnectionId, Interest, Target};
use ledger::{Command, CursorId};
use session::{Message, Now};
use topic::TopicFilter;

use crate::{Effects, Shard};

/// The answers to one client's subscriptions that are not complete.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    last: u32,
    walks: Vec<Walk>,
}

#[derive(Debug)]
struct Walk {
    id: CursorId,
    filter: Box<str>,
    interest: Interest,
    /// The subscription did not exist before.
    is_new: bool,
    /// The ledger has answered: from its answer on, what is published comes to the subscription live.
    begun: bool,
    /// The next step waits until the client has taken what it got.
    waits: bool,
}

impl Walks {
    /// Whether a message that comes live will come again, newer or the same, as a retained one: it was decided
    /// before the cursor of the only subscription that it comes for.
    pub(crate) fn will_bring(&self, message: &Message, target: &Target) -> bool {
        let brings = |walk: &Walk| {
            let filter = TopicFilter::new(&walk.filter);
            walk.is_new && !walk.begun && filter.is_ok_and(|filter| filter.matches(message.topic()))
        };
        message.retain() && target.matches == 1 && self.walks.iter().any(brings)
    }
}

impl Shard {
    /// Asks for the retained messages of a subscription that was written just now. A walk for the same filter
    /// is given up for it.
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
        let walks = client.walks.get_or_insert_default();
        walks.last = walks.last.wrapping_add(1);
        let id = CursorId(walks.last);
        walks.walks.push(Walk { id, filter: filter.clone(), interest, is_new, begun: false, waits: false });
        to.command(Command::Retained { connection, id, filter });
    }

    /// A subscription has ended: what it would still have brought is not wanted.
    pub(crate) fn close_walk(&mut self, connection: ConnectionId, filter: &str, to: &mut impl Effects) {
        let Some(walks) = self.clients.get_mut(connection).and_then(|client| client.walks.as_mut()) else {
            return;
        };
        for walk in walks.walks.extract_if(.., |walk| *walk.filter == *filter) {
            to.command(Command::Close { connection, id: walk.id });
        }
    }

    /// The client has taken what it got: walks go on.
    pub(crate) fn continue_walks(&mut self, connection: ConnectionId, to: &mut impl Effects) {
        let Some(walks) = self.clients.get_mut(connection).and_then(|client| client.walks.as_mut()) else {
            return;
        };
        for walk in walks.walks.iter_mut().filter(|walk| walk.waits) {
            walk.waits = false;
            to.command(Command::Credit { connection, id: walk.id });
        }
    }

    /// A step of a walk has come.
    pub(crate) fn retained(
        &mut self,
        connection: ConnectionId,
        id: CursorId,
        (messages, done): (&[Arc<Message>], bool),
        now: Now,
        to: &mut impl Effects,
    ) {
        let Some(walk) = self.walk(connection, id) else { return };
        walk.begun = true;
        let interest = walk.interest;
        self.deliver_retained(connection, messages, interest, now, to);
        if done {
            return self.end_walk(connection, id);
        }
        let waits = to.is_over(connection);
        if let Some(walk) = self.walk(connection, id) {
            walk.waits = waits;
        }
        if !waits {
            to.command(Command::Credit { connection, id });
        }
    }

    fn walk(&mut self, connection: ConnectionId, id: CursorId) -> Option<&mut Walk> {
        let walks = self.clients.get_mut(connection)?.walks.as_mut()?;
        walks.walks.iter_mut().find(|walk| walk.id == id)
    }

    fn end_walk(&mut self, connection: ConnectionId, id: CursorId) {
        let Some(client) = self.clients.get_mut(connection) else { return };
        let Some(walks) = client.walks.as_mut() else { return };
        walks.walks.retain(|walk| walk.id != id);
        if walks.walks.is_empty() {
            client.walks = None;
        }
    }
}
