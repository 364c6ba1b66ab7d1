//! The inboxes of all threads.

use std::sync::Arc;

use base::ShardId;
use layers::Layered;
use turn::{Answers, Board, LedgerHost, Letter, Note, ToLedger};

use crate::inbox::Inbox;
use crate::quic::Mail;
use crate::reload::{Orders, Settled};
use crate::socket::Socket;

/// Where letters are posted.
pub(crate) struct Switchboard {
    pub(crate) shards: Vec<Inbox<Letter<Layered<Socket>>>>,
    pub(crate) ledger: Inbox<ToLedger>,
    /// Orders of a reload, by shard.
    pub(crate) orders: Vec<Orders>,
    pub(crate) settled: Settled,
    /// Datagrams and connections of QUIC, by shard.
    pub(crate) quic: Vec<Mail>,
    pub(crate) board: Arc<Board>,
}

impl Switchboard {
    /// Tells all shards that users or bans have changed.
    pub(crate) fn tell_users_changed(&self) {
        self.shards.iter().for_each(|inbox| inbox.post(Note::UsersChanged.into()));
    }
}

/// The ledger's side of it.
impl LedgerHost for &Switchboard {
    fn post_answers(&mut self, to: ShardId, answers: Answers) {
        self.shards[to.number()].post(Letter::Answers(answers));
    }

    fn post_commands_read(&mut self, to: ShardId) {
        self.shards[to.number()].post(Note::CommandsRead.into());
    }

    fn reloaded(&mut self, reload: u64) {
        self.settled.tell(reload);
    }
}
