//! Changes of a server that runs: listeners, and limits.
//!
//! The thread that reads the configuration opens sockets and reads files. A shard receives finished values only:
//!
//! ```text
//!               orders            ┌─► sockets and doors (EventLoop::obey)
//! Server::… ──────────► shard ────┤
//!    ▲                    │       └─► limits, connections that leave (ShardLoop)
//!    └──── done ◄─────────┘
//!               letter
//!           ──────────► ledger ─────► limits (LedgerLoop)
//! ```
//!
//! A shard looks for orders only when it was woken, so that a turn without letters pays nothing for them.
//!
//! No connection of a listener that goes is forgotten. The shard that accepts first stops to accept under a number, and says
//! so. Then all shards are told to end the connections with this number. Connections that were accepted before stand in front
//! of that in the same inbox.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use base::ShardId;
use broker::Dismissal;
use layers::quic::Door;
use protocol::Durability;
use session::Settings;
use turn::{Note, ToLedger};

use crate::inbox::{Inbox, Wake};
use crate::listener::{Acceptor, Listening, Rules};
use crate::quic::{Entrance, Port, QuicSocket};
use crate::{Limits, Server};

/// Number of places for listeners. A configuration has at most 255 of them; the other places are for listeners that are gone,
/// and still have connections.
pub const LISTENER_PLACES: u16 = 1_024;

/// Time for which a reload waits for a shard. A shard answers in its next turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// A change that a shard carries out.
pub(crate) enum Order {
    /// Accepts connections on a listener.
    Open { number: u16, socket: Acceptor, rules: Box<Rules> },
    /// Uses the UDP socket of a listener. The shard with the doors gets its door too.
    OpenQuic { port: Port, entrance: Option<Box<Entrance>> },
    /// Accepts under another number, by other rules.
    Change { number: u16, next: u16, rules: Box<Rules> },
    /// Accepts no more. A socket is closed. A UDP socket stays open for its connections.
    Close { number: u16 },
    /// The UDP socket in this place is not used any more.
    ForgetQuic { place: u16 },
    /// Accepts at most this many connections at a time, on all listeners.
    ConnectionsMax(usize),
}

/// An order, and the way to say how it went.
pub(crate) struct Ordered {
    pub(crate) order: Order,
    pub(crate) done: Sender<io::Result<()>>,
}

/// The orders of one shard.
pub(crate) type Orders = Inbox<Ordered>;

/// Makes the place for the orders of a shard.
pub(crate) fn orders(waker: &Arc<mio::Waker>) -> Orders {
    Inbox::new(Wake::Poll(Arc::clone(waker)))
}

/// Limits that a reload can change.
#[derive(Debug, Clone)]
pub struct NewLimits {
    /// Features and limits of the protocol. Connected clients keep the limits that they were told.
    pub settings: Settings,
    /// Limits of the ledger. Some of its settings stay as they are ([`ledger::Ledger::change_settings`]).
    pub ledger: ::ledger::Settings,
    /// Limits of connections and memory.
    pub limits: Limits,
    /// The most that clients of any listener wait for. The journal goes on to do more for clients that wait for more.
    pub durability: Durability,
}

impl Server {
    /// Accepts connections on all these listeners, whose numbers are their places.
    pub(crate) fn open_all(self, listeners: Vec<Listening>) -> io::Result<Self> {
        for (number, listening) in (0..LISTENER_PLACES).zip(listeners) {
            self.open_listener(number, listening)?;
        }
        Ok(self)
    }

    /// Accepts connections on a listener. No other listener and no connection may have the number.
    ///
    /// # Errors
    /// The socket cannot be used, or a shard does not answer.
    pub fn open_listener(&self, number: u16, listening: Listening) -> io::Result<()> {
        let Listening { socket, rules } = listening;
        match socket {
            Acceptor::Quic(socket) => self.open_quic(number, socket, &rules),
            socket => self.order(0, Order::Open { number, socket, rules: Box::new(rules) }),
        }
    }

    /// All shards send from the socket before a connection can come.
    fn open_quic(&self, place: u16, socket: QuicSocket, rules: &Rules) -> io::Result<()> {
        let (port, limits) = Port::new(place, socket)?;
        let tls = rules.stack.tls.clone();
        let door = tls.and_then(|tls| Door::new(tls, limits, port.may_fragment())).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a QUIC listener needs a certificate")
        })?;
        for shard in 1..self.switchboard().shards.len() {
            self.order(shard, Order::OpenQuic { port: port.try_clone()?, entrance: None })?;
        }
        let counts = self.operator.parts().parties.door(ShardId::new(0), rules.admission.counted_as);
        let entrance = Some(Box::new(Entrance::new(door, place, rules, counts)));
        self.order(0, Order::OpenQuic { port, entrance })
    }

    /// From now on a listener accepts connections under another number, which is free, and by other rules. Connections that it
    /// has keep their number. The layers of a QUIC listener stay as they are.
    ///
    /// # Errors
    /// The shard that accepts does not answer.
    pub fn change_listener(&self, number: u16, next: u16, rules: Rules) -> io::Result<()> {
        self.order(0, Order::Change { number, next, rules: Box::new(rules) })
    }

    /// Accepts no more connections under a number. The socket is closed when the function returns. A UDP socket stays open
    /// until [`forget_quic`](Self::forget_quic).
    ///
    /// # Errors
    /// The shard that accepts does not answer.
    pub fn close_listener(&self, number: u16) -> io::Result<()> {
        self.order(0, Order::Close { number })
    }

    /// Closes the UDP socket of a listener without connections, which was opened under this number.
    ///
    /// # Errors
    /// A shard does not answer.
    pub fn forget_quic(&self, place: u16) -> io::Result<()> {
        (0..self.switchboard().shards.len())
            .try_for_each(|shard| self.order(shard, Order::ForgetQuic { place }))
    }

    /// Ends the connections with this number, under which no more are accepted. They leave soon, some in each turn.
    pub fn dismiss(&self, number: u16, whom: Dismissal, is_quic: bool) {
        for (shard, inbox) in self.switchboard().shards.iter().enumerate() {
            match is_quic {
                // Connections of QUIC come to a shard in this inbox.
                true => self.switchboard().quic[shard].dismiss(number, whom),
                false => inbox.post(Note::Dismiss { listener: number, whom }.into()),
            }
        }
    }

    /// Number of connections that were accepted under this number and are not gone.
    #[must_use]
    pub fn connections_of(&self, number: u16) -> usize {
        self.switchboard().board.connections_of(number)
    }

    /// Replaces limits, and waits until they are in force everywhere. Returns whether they are: a thread that is stuck gets
    /// them later.
    pub fn change_limits(&self, new: &NewLimits) -> bool {
        let NewLimits { settings, ledger, limits, durability } = new;
        let until = Instant::now() + PATIENCE;
        self.switchboard().board.budget().set_limit_bytes(limits.memory_bytes_max);
        let is_told = self.order(0, Order::ConnectionsMax(limits.connections_max)).is_ok();
        let reload = self.switchboard().settled.begin(self.switchboard().shards.len() + 1);
        let settings = Arc::new(settings.clone());
        for inbox in &self.switchboard().shards {
            let limits = turn::Limits {
                settings: Arc::clone(&settings),
                output_bytes: limits.high_water_bytes,
                outputs_bytes: limits.waiting_bytes_max,
                reload,
            };
            inbox.post(Note::Limits(limits).into());
        }
        let (settings, durability) = (Box::new(ledger.clone()), *durability);
        self.switchboard().ledger.post(ToLedger::Settings { settings, durability, reload });
        self.switchboard().settled.wait(until) && is_told
    }

    fn order(&self, shard: usize, order: Order) -> io::Result<()> {
        let (done, outcome) = channel();
        self.switchboard().orders[shard].post(Ordered { order, done });
        outcome
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "a shard does not answer")))
    }
}

/// The threads that have not said yet that the limits of the last reload are in force.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    state: std::sync::Mutex<Waiting>,
    changed: std::sync::Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    reload: u64,
    threads: usize,
}

impl Settled {
    /// Begins a reload that this number of threads take part in. Returns its number.
    fn begin(&self, threads: usize) -> u64 {
        let mut state = self.lock();
        state.reload += 1;
        state.threads = threads;
        state.reload
    }

    /// A thread has the limits of this reload.
    pub(crate) fn tell(&self, reload: u64) {
        let mut state = self.lock();
        if state.reload == reload {
            state.threads = state.threads.saturating_sub(1);
            self.changed.notify_all();
        }
    }

    fn wait(&self, until: Instant) -> bool {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.changed.wait_timeout_while(self.lock(), left, |state| state.threads > 0);
        let (state, _) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        state.threads == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        // Nothing in the critical sections can panic half-way.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
