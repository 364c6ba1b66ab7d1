//! What shards and the ledger say to each other.

use std::sync::Arc;

use index::{ConnectionId, ShardId, Subscriber, Target};
use session::Message;

/// Tells the cursors of one connection apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CursorId(pub u32);

/// What a shard asks for. The ledger knows the shard by whose inbox it came from.
#[derive(Debug)]
pub enum Command {
    /// A CONNECT wants its client identifier. Answered by [`Reply::Claimed`], when nobody else holds it any more.
    Claim {
        /// The claimant.
        subscriber: Arc<Subscriber>,
    },
    /// A connection that had claimed an identifier is over, and everything it posted has been posted.
    Left(Left),
    /// A message that needs one order with others. Where `connection` is given, [`Reply::Decided`] answers.
    Publish {
        /// The publisher's, if it is to be told.
        connection: Option<ConnectionId>,
        /// The message.
        message: Arc<Message>,
    },
    /// Opens a cursor over the retained messages that match a filter. Answered by [`Reply::Begun`].
    Retained {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Names the cursor in further commands.
        id: CursorId,
        /// The filter, without `$share`.
        filter: Box<str>,
    },
    /// The cursor may make its next step. Answered by [`Reply::Retained`].
    Credit {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Which of its cursors.
        id: CursorId,
    },
    /// The cursor is not wanted any more.
    Close {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Which of its cursors.
        id: CursorId,
    },
}

/// The end of a connection.
#[derive(Debug)]
pub struct Left {
    /// Who left.
    pub subscriber: Arc<Subscriber>,
    /// To be published now; `None` if there is none, or DISCONNECT 0x00 took it back.
    pub will: Option<Arc<Message>>,
}

impl Command {
    /// What it holds of memory while it waits, about.
    #[must_use]
    pub fn weight_bytes(&self) -> usize {
        size_of::<Self>()
            + match self {
                Self::Publish { message, .. } => message.size_bytes(),
                Self::Retained { filter, .. } => filter.len(),
                Self::Left(Left { will, .. }) => will.as_ref().map_or(0, |will| will.size_bytes()),
                Self::Claim { .. } | Self::Credit { .. } | Self::Close { .. } => 0,
            }
    }
}

/// What the ledger tells a shard.
#[derive(Debug)]
pub enum Reply {
    /// Somebody else has claimed the identifier: close this connection, then answer [`Command::Left`].
    Evict {
        /// The one that holds the identifier, or waited for it.
        connection: ConnectionId,
    },
    /// The identifier is this connection's.
    Claimed {
        /// The claimant.
        connection: ConnectionId,
    },
    /// A publisher's message has got its place in the order; later ones may go straight again.
    Decided {
        /// The publisher.
        connection: ConnectionId,
    },
    /// A message for subscribers on this shard.
    Live {
        /// The message.
        message: Arc<Message>,
        /// Whom it goes to.
        targets: Arc<[Target]>,
        /// It is the retained value of its topic now.
        stored: bool,
    },
    /// A cursor is open: what is published from now on comes to its subscription live, and the cursor leaves it
    /// out. It waits for [`Command::Credit`].
    Begun {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Which of its cursors.
        id: CursorId,
    },
    /// One step of a cursor.
    Retained {
        /// The subscriber's connection.
        connection: ConnectionId,
        /// Which of its cursors.
        id: CursorId,
        /// What it found.
        messages: Vec<Arc<Message>>,
        /// The cursor is at its end; otherwise it waits for [`Command::Credit`].
        done: bool,
    },
}

/// The outside of the ledger.
pub trait Effects {
    /// Posts a reply to a shard.
    fn post(&mut self, to: ShardId, reply: Reply);
}
