//! The inboxes of all threads.

use std::sync::Arc;
use std::thread::Thread;

use base::Budget;
use layers::Layered;
use mio::Waker;
use turn::{Board, Letter, Note, ToLedger};

use crate::inbox::{Inbox, Wake};
use crate::quic::Mail;
use crate::reload::{self, LISTENER_PLACES, Orders, Settled};
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
    /// Inboxes that wake the shards, and the thread of the ledger.
    pub(crate) fn new(wakers: Vec<Arc<Waker>>, ledger: &Thread, budget: &Arc<Budget>) -> Self {
        let shards = wakers.len();
        let board = Board::new(shards, Arc::clone(budget)).with_listeners(usize::from(LISTENER_PLACES));
        let mail = |waker: &Arc<Waker>| Mail::new(Wake::Poll(Arc::clone(waker)));
        Self {
            quic: wakers.iter().map(mail).collect(),
            orders: wakers.iter().map(reload::orders).collect(),
            settled: Settled::default(),
            shards: wakers.into_iter().map(|waker| Inbox::new(Wake::Poll(waker))).collect(),
            ledger: Inbox::new(Wake::Thread(ledger.clone())),
            board: Arc::new(board),
            turns: Arc::new(Turns::new(shards)),
        }
    }

    /// Tells all shards that users or bans have changed.
    pub(crate) fn tell_users_changed(&self) {
        self.shards.iter().for_each(|inbox| inbox.post(Note::UsersChanged.into()));
    }
}
