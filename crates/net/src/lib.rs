//! The data plane: sockets and threads around the pure crates `broker`, `session` and `ledger`.
//!
//! Each shard is a thread with one event loop; one more thread runs the ledger. They share the subscription
//! index and talk by mailboxes; nobody locks a shard. What a thread does in a turn is in the crate `turn`; here are the
//! threads themselves, the poll, sockets, mailboxes, the clock and the log.
//!
//! Nothing of the protocol lives here.

#![deny(unsafe_code)]

mod clock;
mod code;
mod control;
mod courtesy;
mod inbox;
#[cfg(test)]
mod inbox_tests;
mod ledger;
mod listener;
mod log;
mod operator;
mod quic;
mod rate;
mod reload;
mod shard;
mod slice;
mod socket;
mod switchboard;
mod sync;
mod trim;
mod turns;
mod unix;
mod verify;

use std::io as std_io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};

use ::ledger::{Charged, InMemory, Keeper, Ledger, OverLimits, Recovered, Source};
use auth::{Guard, Realms};
use base::{Budget, ShardId, SpanSettings};
use broker::{Counters, Parties, Peers, Shard};
use index::Subscriptions;
use protocol::{Gauges, Instruments};
use session::Settings;
use turn::{Bounds, Note, ToLedger};

use crate::clock::Clock;
use crate::control::Orderer;
use crate::listener::Listeners;
use crate::shard::{EventLoop, Workers, new_poll};
use crate::switchboard::Switchboard;
use crate::trim::Trimmer;
use crate::verify::{Threads, Verifier};

/// What a server needs to know before it starts.
#[derive(Debug, Clone)]
pub struct Options {
    /// Event loops, from 1 to 64.
    pub shards: usize,
    /// Of the protocol.
    pub settings: Settings,
    /// Of what must last; its seed is drawn anew.
    pub ledger: ::ledger::Settings,
    /// Of everything else.
    pub limits: Limits,
    /// Users whose messages are counted one by one.
    pub counted_users_max: usize,
    /// Questions about users that servers elsewhere are asked at the same time.
    pub questions: usize,
    /// How often `$SYS` is brought up to date, in milliseconds; `None` is never.
    pub sys_interval_ms: Option<u64>,
    /// Users, and rules about topics, of all listeners.
    pub guard: Arc<Guard>,
    /// The place for commands of administrators. `None` refuses all of them.
    pub orders: Option<Arc<Orders>>,
    /// Values of other parts of the process, for `$SYS`.
    pub instruments: Vec<Arc<dyn Instruments>>,
    /// The messages that have spans. `None`: none has.
    pub spans: Option<SpanSettings>,
}

/// What bounds connections and memory.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at a time; one more is closed at once.
    pub connections_max: usize,
    /// Bytes that may wait to be written to one connection before its publishers are not read any more.
    pub high_water_bytes: usize,
    /// Bytes that may wait to be written in the whole process before more is dropped.
    pub waiting_bytes_max: usize,
    /// Bytes that clients may make the process hold, whatever for; near that, nothing new is admitted.
    pub memory_bytes_max: usize,
}

/// What earlier processes have recorded, in its order, and who keeps what comes behind it.
pub trait Store: Source<'static> + Send {
    /// Goes on behind the records. `wake` is to be called, from any thread, when the [`Keeper`] has come further or has
    /// something to copy.
    ///
    /// # Errors
    /// What there is cannot be read, or nothing can be kept.
    fn keep(self: Box<Self>, wake: Arc<dyn Fn() + Send + Sync>) -> std_io::Result<Box<dyn Keeper>>;
}

/// Nothing is kept: every process begins anew.
#[derive(Debug, Default)]
pub struct Forgetful;

impl Source<'static> for Forgetful {
    fn next_record(&mut self, _: bool) -> Option<Recovered<'static>> {
        None
    }
}

impl Store for Forgetful {
    fn keep(self: Box<Self>, _: Arc<dyn Fn() + Send + Sync>) -> std_io::Result<Box<dyn Keeper>> {
        Ok(Box::new(InMemory::default()))
    }
}

/// A thread has ended: after [`Server::shut_down`] as it should, before that because something went wrong.
#[derive(Debug)]
pub struct Ended {
    /// Its name.
    pub thread: String,
}

/// A server that runs.
pub struct Server {
    operator: Operator,
    verifier: Arc<Verifier>,
    shards: Vec<JoinHandle<std_io::Result<()>>>,
    ledger: JoinHandle<()>,
    _trimmer: Trimmer,
}

pub use broker::{Admission, ControlAnswer, Counted, CountedUser, Dismissal, Entry, Mount, Naming, Party};

pub use crate::code::give_back_code;
pub use crate::control::{Order, Orders};
pub use crate::listener::{Acceptor, BACKLOG, Listening, Rules, TcpOptions};
pub use crate::slice::give_way;
pub use stream::Peer;
pub use turn::{
    CensusAnswer, CensusList, Link, RECORD_BYTES, Ranked, Ranking, ShardAnswer, Trace, TraceEvent,
    TraceRecord, TraceSubject,
};

pub use crate::operator::Operator;
pub use crate::quic::{QuicSocket, listen_quic};
pub use crate::rate::RateLimits;
pub use crate::reload::{LISTENER_PLACES, NewLimits};
pub use crate::unix::{Access, UnixSocket, listen_abstract, listen_unix};

/// Binds a TCP socket and listens; connections wait until [`Server::start`] takes it.
///
/// # Errors
/// As the system says: the address is in use, is not this machine's, or is not permitted; or there is no such interface.
pub fn listen(address: SocketAddr, options: TcpOptions<'_>) -> std_io::Result<TcpListener> {
    listener::listen(address, options)
}

impl Server {
    /// Reads what is in the store, starts all threads and begins to accept. `ended` hears of each thread that ends.
    ///
    /// # Errors
    /// When the system refuses a poll or a thread, or the store cannot be read or written.
    pub fn start(
        listeners: Vec<Listening>,
        options: &Options,
        mut store: Box<dyn Store>,
        ended: &Sender<Ended>,
    ) -> std_io::Result<Self> {
        let clock = Clock::start();
        let index = Arc::new(Subscriptions::new([random()?, random()?]));
        let guard = Arc::clone(&options.guard);
        let ledger_settings =
            ::ledger::Settings { seed: random()?, guard: Arc::clone(&guard), ..options.ledger.clone() };
        let budget = Arc::new(Budget::new(options.limits.memory_bytes_max));
        let mut records = Charged::new(&mut *store, &budget);
        let ledger = Ledger::recover_from(ledger_settings, Arc::clone(&index), &mut records, clock.now());
        tell_over_limits(ledger.over_limits());
        let ledger = ledger.with_budget(Arc::clone(&budget));
        let gauges = ledger.gauges();

        let polls = (0..options.shards).map(|_| new_poll()).collect::<std_io::Result<Vec<_>>>()?;
        let (polls, wakers): (Vec<_>, Vec<_>) =
            polls.into_iter().map(|(poll, waker)| (poll, Arc::new(waker))).unzip();
        type Given = (Arc<Switchboard>, Box<dyn Keeper>);
        let (giver, given) = std::sync::mpsc::sync_channel::<Given>(1);
        let ledger_clock = clock.clone();
        let ledger_thread = spawn("ledger", ended, move || {
            if let Ok((switchboard, keeper)) = given.recv() {
                ledger::run(ledger, keeper, &switchboard, ledger_clock);
            }
        })?;
        let thread = ledger_thread.thread().clone();
        let keeper = store.keep(Arc::new(move || thread.unpark()))?;
        let switchboard = Arc::new(Switchboard::new(wakers, ledger_thread.thread(), &budget));
        let own: [Arc<dyn Instruments>; 1] = [Arc::clone(&switchboard.turns) as _];
        let instruments =
            options.instruments.iter().cloned().chain(keeper.instruments()).chain(own).collect();
        // It waits for this message and for nothing else.
        let _ = giver.send((Arc::clone(&switchboard), keeper));

        let verifier = Verifier::new()?;
        verifier.start(verifying_threads(options, &switchboard, &clock, ended))?;
        let mut started = Started {
            options,
            clock,
            index,
            verifier: Arc::clone(&verifier),
            gauges,
            instruments,
            switchboard,
            counters: Vec::new(),
            parties: Arc::new(Parties::new(options.counted_users_max)),
        };
        started.counters = (0..options.shards).map(|_| Arc::default()).collect();
        let mut shards = Vec::new();
        for (number, poll) in polls.into_iter().enumerate() {
            let event_loop = started.event_loop(ShardId::new(number), poll)?;
            shards.push(spawn(&format!("shard-{number}"), ended, move || event_loop.run())?);
        }
        let trimmer = Trimmer::start(budget)?;
        let operator = started.operator(guard);
        let server = Self { operator, verifier, shards, ledger: ledger_thread, _trimmer: trimmer };
        server.open_all(listeners)
    }

    /// A handle for operators, which outlives the server.
    #[must_use]
    pub fn operator(&self) -> Operator {
        self.operator.clone()
    }

    pub(crate) fn switchboard(&self) -> &Switchboard {
        &self.operator.parts().switchboard
    }

    /// Puts other users and rules in the place of the current ones. The rules hold for the next message. Clients whose user
    /// is not there any more, or has another password, are disconnected soon.
    pub fn replace_realms(&self, realms: Realms) {
        self.operator.parts().guard.replace(realms);
        // Behind that: a route that is still valid was looked up by the new rules.
        self.operator.parts().index.touch_all();
        self.switchboard().tell_users_changed();
    }

    /// The current users and rules.
    #[must_use]
    pub fn realms(&self) -> Arc<Realms> {
        self.operator.parts().guard.current()
    }

    /// Acknowledges commands that were carried out, and publishes the answers. An operator gets them alone.
    pub fn answer(&self, order: Order, answer: ControlAnswer) {
        match order.from {
            Orderer::Client(shard, connection) => {
                self.switchboard().shards[shard.number()]
                    .post(Note::Controlled { connection, answer }.into());
            }
            Orderer::Operator(tell) => tell(answer.payload),
        }
    }

    /// Stops accepting, tells every client goodbye, waits until that is written, and ends all threads.
    ///
    /// # Errors
    /// What a shard failed with.
    pub fn shut_down(self) -> std_io::Result<()> {
        let switchboard = &self.operator.parts().switchboard;
        switchboard.shards.iter().for_each(|inbox| inbox.post(Note::Shutdown.into()));
        self.verifier.stop();
        let mut outcome = Ok(());
        for shard in self.shards {
            let ended = shard.join().unwrap_or_else(|_| Err(std_io::Error::other("a shard has panicked")));
            outcome = outcome.and(ended);
        }
        switchboard.ledger.post(ToLedger::Stop);
        outcome.and(self.ledger.join().map_err(|_| std_io::Error::other("the ledger has panicked")))
    }
}

/// What an operator has to know who has lowered a bound.
fn tell_over_limits(OverLimits { retained_bytes, queues }: OverLimits) {
    if retained_bytes > 0 {
        tracing::warn!(
            over_limit_bytes = retained_bytes,
            "more is retained than `retained_bytes` allows: all of it is kept, and nothing is added until it is less"
        );
    }
    if queues > 0 {
        tracing::warn!(
            queues,
            "more waits in queues than `queue_messages` and `queue_bytes` allow: the next message for each of them \
             meets what `queue_full` says"
        );
    }
}

/// What the shards are made of.
struct Started<'a> {
    options: &'a Options,
    clock: Clock,
    index: Arc<Subscriptions>,
    verifier: Arc<Verifier>,
    gauges: Arc<Gauges>,
    instruments: Vec<Arc<dyn Instruments>>,
    switchboard: Arc<Switchboard>,
    counters: Vec<Arc<Counters>>,
    parties: Arc<Parties>,
}

impl Started<'_> {
    /// The handle for operators, when all shards run.
    fn operator(self, guard: Arc<Guard>) -> Operator {
        let Self { index, gauges, instruments, switchboard, counters, parties, verifier, clock, .. } = self;
        let started = std::time::Instant::now();
        let traces = AtomicU32::new(1);
        Operator::new(operator::Parts {
            switchboard,
            index,
            guard,
            counters,
            parties,
            gauges,
            instruments,
            verifier,
            clock,
            started,
            traces,
        })
    }

    fn event_loop(&self, id: ShardId, poll: mio::Poll) -> std_io::Result<EventLoop> {
        let counters = Arc::clone(&self.counters[id.number()]);
        let limits = self.options.limits;
        let is_first = id.number() == 0;
        let listeners = is_first.then(|| Listeners::new(limits.connections_max, Arc::clone(&counters)));
        let peers = self.options.sys_interval_ms.filter(|_| is_first).map(|interval_ms| Peers {
            counters: self.counters.clone(),
            ledger: Arc::clone(&self.gauges),
            instruments: self.instruments.clone(),
            interval_ms,
        });
        let settings = Arc::new(self.options.settings.clone());
        let index = Arc::clone(&self.index);
        let brain = Shard::new(id, settings, index, Arc::clone(&counters), peers, self.clock.now());
        let brain = brain.with_budget(Arc::clone(self.switchboard.board.budget()));
        let brain = brain.with_guard(Arc::clone(&self.options.guard));
        let brain = brain.with_parties(Arc::clone(&self.parties));
        let brain = match &self.options.spans {
            Some(spans) => brain.with_spans(spans.clone()),
            None => brain,
        };
        let bounds = Bounds {
            output: limits.high_water_bytes,
            outputs: limits.waiting_bytes_max,
            ..Bounds::default()
        };
        let switchboard = Arc::clone(&self.switchboard);
        let workers = Workers { verifier: Arc::clone(&self.verifier), orders: self.options.orders.clone() };
        let ways = (switchboard, workers);
        EventLoop::new(poll, brain, ways, (counters, bounds), self.clock.clone(), listeners)
    }
}

/// The threads that check passwords. They compete with the shards for cores, so most of these are left to the shards.
/// One of them leaves suspect addresses alone, so there are two at least.
fn verifying_threads(
    options: &Options,
    switchboard: &Arc<Switchboard>,
    clock: &Clock,
    ended: &Sender<Ended>,
) -> Threads {
    Threads {
        computing: options.shards.div_ceil(4).max(2),
        asking: options.questions,
        to: Arc::downgrade(switchboard),
        clock: clock.clone(),
        ended: ended.clone(),
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    ended: &Sender<Ended>,
    run: impl FnOnce() -> T + Send + 'static,
) -> std_io::Result<JoinHandle<T>> {
    /// Tells when the thread ends, in whatever way.
    struct Tell(Sender<Ended>, String);
    impl Drop for Tell {
        fn drop(&mut self) {
            // Who does not listen any more has stopped already.
            let _ = self.0.send(Ended { thread: std::mem::take(&mut self.1) });
        }
    }
    let tell = Tell(ended.clone(), name.to_owned());
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _tell = tell;
        slice::shorten();
        run()
    })
}

fn random() -> std_io::Result<u64> {
    getrandom::u64().map_err(std_io::Error::other)
}
