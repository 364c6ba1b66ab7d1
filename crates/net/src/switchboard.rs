//! The inboxes of all threads.

use std::sync::Arc;

use layers::Layered;
use turn::{Board, Letter, Note, ToLedger};

use crate::inbox::Inbox;
use crate::quic::Mail;
use crate::reload::{Orders, Settled};
use crate::socket::Socket;
use crate::turns::Turns;

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
    pub(crate) turns: Arc<Turns>,
}

impl Switchboard {
    /// Tells all shards that users or bans have changed.
    pub(crate) fn tell_users_changed(&self) {
        self.shards.iter().for_each(|inbox| inbox.post(Note::UsersChanged.into()));
    }
}
