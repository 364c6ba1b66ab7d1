//! The thread of one shard: waits for its sockets and its inbox.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use auth::{Check, Unchecked, Wish};
use base::{ConnectionId, ShardId};
use broker::{ControlBusy, ControlRequest, Counters, Notice, Shard};
use layers::{Layered, Lowest};
use mio::event::Event;
use mio::{Events, Interest, Poll, Registry, Token};
use stream::{Peer, Readiness};
use turn::{Bounds, Host, Io, Letter, ShardLoop, Sleep, ToLedger};

use crate::clock::Clock;
use crate::control::Orderer;
use crate::control::{self, Orders};
use crate::listener::Listeners;
use crate::log::Log;
use crate::quic::Quic;
use crate::reload::{Order, Ordered};
use crate::socket::Socket;
use crate::switchboard::Switchboard;
use crate::verify::{Job, Verifier};

/// Maximum number of sockets that a turn hears of. It serves fewer (`STAYING_PER_TURN` and `LEAVING_PER_TURN` in
/// `turn::ready`): to choose in turn from connections that stay and those whose peers are gone, it has to know of both.
const EVENTS_PER_TURN: usize = 1_024;

/// A shard that reads datagrams for other shards waits this long for their clients to leave, as long as it waits for its own.
const READ_ON_MS: u64 = 2_000;
/// Time between two looks whether they have left.
const OTHERS_LEAVE: Duration = Duration::from_millis(20);

/// Mail and commands announce themselves under this token.
pub(crate) const WAKE: Token = Token(usize::MAX);

/// A shard with its poll.
pub(crate) struct EventLoop {
    poll: Poll,
    body: ShardLoop<Hands>,
    clock: Clock,
    /// On the first shard, which accepts for all.
    listeners: Option<Listeners>,
    /// From the first QUIC listener on.
    quic: Option<Box<Quic>>,
    counters: Arc<Counters>,
    /// When a shard that reads for others ends at the latest.
    ends_ms: Option<u64>,
}

/// What a shard does to the world beside its sockets.
pub(crate) struct Hands {
    shard: ShardId,
    registry: Registry,
    switchboard: Arc<Switchboard>,
    workers: Workers,
    /// Passwords that have come in this turn. The clerk is woken once for all of them: on a machine with one core, it would
    /// otherwise interrupt the turn for each.
    unverified: Vec<Job>,
    pub(crate) log: Log,
}

/// Other threads that work for connections of this shard.
pub(crate) struct Workers {
    pub(crate) verifier: Arc<Verifier>,
    pub(crate) orders: Option<Arc<Orders>>,
}

impl EventLoop {
    pub(crate) fn new(
        poll: Poll,
        brain: Shard,
        (switchboard, workers): (Arc<Switchboard>, Workers),
        (counters, bounds): (Arc<Counters>, Bounds),
        clock: Clock,
        listeners: Option<Listeners>,
    ) -> io::Result<Self> {
        let (shard, board) = (brain.id(), Arc::clone(&switchboard.board));
        let registry = poll.registry().try_clone()?;
        let unverified = Vec::new();
        let hands = Hands { shard, registry, switchboard, workers, unverified, log: Log::default() };
        let io = Io::new(shard, board, hands, Arc::clone(&counters), bounds);
        let body = ShardLoop::new(brain, io, clock.now());
        Ok(Self { poll, body, clock, listeners, quic: None, counters, ends_ms: None })
    }

    /// Turns until a shutdown is done.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_PER_TURN);
        while !self.is_done() {
            let timeout = self.timeout();
            if timeout == Some(Duration::ZERO) {
                // The last turn was as long as a turn may be. Threads that wait for this processor go first.
                thread::yield_now();
            }
            match self.poll.poll(&mut events, timeout) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
                Err(error) => return Err(error),
            }
            self.turn(&events);
        }
        self.quic.iter_mut().for_each(|quic| quic.close_all());
        self.body.host().log.tell_left_out(u64::MAX);
        Ok(())
    }

    /// A shard that reads datagrams for others does so until their clients have gone, and not longer than it would wait for
    /// its own.
    fn is_done(&mut self) -> bool {
        if !self.body.is_done() {
            return false;
        }
        let reads_for_others = self.quic.as_ref().is_some_and(|quic| quic.has_doors());
        let has_time = self.ends_ms.is_some_and(|ends_ms| self.clock.now().monotonic_ms < ends_ms);
        !(reads_for_others && has_time) || self.body.host().switchboard.board.connections() == 0
    }

    fn turn(&mut self, events: &Events) {
        self.clock.tick();
        self.body.begin(self.clock.now());
        for event in events {
            match event.token() {
                WAKE => self.obey(),
                token if Listeners::owns(token) => {
                    let place = Listeners::place(token);
                    self.listeners.iter_mut().for_each(|listeners| listeners.woken(place));
                    self.quic.iter_mut().for_each(|quic| quic.woken(place, event));
                }
                token => self.body.woken(connection_of(token), readiness(event)),
            }
        }
        self.accept();
        if let Some(quic) = &mut self.quic {
            quic.begin_turn(&mut self.body, self.clock.now().monotonic_ms);
        }
        self.body.turn();
        if let Some(quic) = &mut self.quic {
            quic.end_turn(&mut self.body);
        }
        let Hands { workers, unverified, .. } = self.body.host();
        workers.verifier.submit(unverified);
        let now_ms = self.clock.now().monotonic_ms;
        self.body.host().log.tell_left_out(now_ms);
        if self.body.is_ending() {
            self.listeners = None;
            self.ends_ms.get_or_insert(now_ms + READ_ON_MS);
        }
        let took = self.clock.since_tick();
        let Hands { shard, switchboard, .. } = self.body.host();
        switchboard.turns.add(*shard, took);
    }

    /// Carries out the orders of a reload.
    fn obey(&mut self) {
        let Hands { shard, switchboard, .. } = self.body.host();
        let (shard, switchboard) = (*shard, Arc::clone(switchboard));
        let inbox = &switchboard.orders[shard.number()];
        if !inbox.is_announced() {
            return;
        }
        let mut orders = Vec::new();
        inbox.take(&mut orders);
        for Ordered { order, done } in orders {
            let outcome = self.carry_out(order, shard, &switchboard);
            // Nobody waits for an order that took too long.
            let _ = done.send(outcome);
        }
    }

    fn carry_out(&mut self, order: Order, shard: ShardId, switchboard: &Arc<Switchboard>) -> io::Result<()> {
        let registry = self.poll.registry();
        match order {
            Order::Open { number, socket, rules } => match &mut self.listeners {
                Some(listeners) => {
                    let counts = self.body.door_counts(rules.admission.counted_as);
                    listeners.open(number, socket, (&rules, counts), registry)
                }
                None => Err(io::Error::other("the broker accepts no more connections")),
            },
            Order::OpenQuic { port, entrance } => {
                let quic = self.quic.get_or_insert_with(|| {
                    let connections_max = self.listeners.as_ref().map(Listeners::connections_max);
                    Box::new(Quic::new(shard, connections_max, &self.counters, switchboard))
                });
                quic.open(&port, entrance, registry)
            }
            Order::Change { number, next, rules } => {
                let board = &switchboard.board;
                let listeners = self.listeners.as_mut();
                let is_changed =
                    listeners.is_some_and(|listeners| listeners.change(number, next, &rules, board));
                if let Some(quic) = self.quic.as_mut().filter(|_| !is_changed) {
                    quic.change(number, next, &rules);
                }
                Ok(())
            }
            Order::Close { number } => {
                self.listeners.iter_mut().for_each(|listeners| listeners.close(number));
                self.quic.iter_mut().for_each(|quic| quic.close(number));
                Ok(())
            }
            Order::ForgetQuic { place } => {
                self.quic.iter_mut().for_each(|quic| quic.forget(place));
                Ok(())
            }
            Order::ConnectionsMax(most) => {
                self.listeners.iter_mut().for_each(|listeners| listeners.change_connections_max(most));
                self.quic.iter_mut().for_each(|quic| quic.change_connections_max(most));
                Ok(())
            }
        }
    }

    fn accept(&mut self) {
        let Some(listeners) = &mut self.listeners else { return };
        let now_ms = self.clock.now().monotonic_ms;
        let Hands { shard, switchboard, log, .. } = self.body.host();
        for accepted in listeners.accept(switchboard, *shard, log, now_ms) {
            self.body.admit(accepted);
        }
    }

    fn timeout(&mut self) -> Option<Duration> {
        let resume_ms = self.listeners.as_ref().and_then(Listeners::resume_ms);
        let log_ms = self.body.host().log.poll_timeout();
        let sleep = match self.body.sleep().or_until(resume_ms).or_until(log_ms) {
            Sleep::No => Some(Duration::ZERO),
            Sleep::Until(at_ms) => Some(Duration::from_millis(at_ms.saturating_sub(self.clock.current_ms()))),
            Sleep::Long => None,
        };
        let Some(quic) = &self.quic else { return sleep };
        // Nobody says when the clients of another shard have gone.
        let others = self.body.is_done().then_some(OTHERS_LEAVE);
        sleep.into_iter().chain(quic.sleep()).chain(others).min()
    }
}

impl Host for Hands {
    type Stream = Layered<Socket>;

    fn watch(&mut self, stream: &mut Layered<Socket>, id: ConnectionId) -> io::Result<()> {
        match stream.lowest() {
            Lowest::Socket(socket) => {
                self.registry.register(socket, token(id), Interest::READABLE | Interest::WRITABLE)
            }
            Lowest::Quic(stream) => {
                stream.watch(id);
                Ok(())
            }
        }
    }

    fn unwatch(&mut self, stream: &mut Layered<Socket>) {
        // A socket that cannot be deregistered is gone from the poll all the same once it is closed. A stream of QUIC ends with
        // its last owner.
        if let Lowest::Socket(socket) = stream.lowest() {
            drop(self.registry.deregister(socket));
        }
    }

    fn post(&mut self, to: ShardId, letter: Letter<Layered<Socket>>) {
        self.switchboard.shards[to.number()].post(letter);
    }

    fn post_to_ledger(&mut self, letter: ToLedger) {
        self.switchboard.ledger.post(letter);
    }

    fn take_letters(&mut self, into: &mut Vec<Letter<Layered<Socket>>>) {
        self.switchboard.shards[self.shard.number()].take(into);
    }

    fn verify(
        &mut self,
        now_ms: u64,
        connection: ConnectionId,
        peer: &Peer,
        check: Check,
    ) -> Result<Wish, Unchecked> {
        let wish = Wish::default();
        let job = Job::new(now_ms, (self.shard, connection), peer, check, &wish);
        if self.workers.verifier.refuses(&job) {
            return Err(Unchecked::Guessing);
        }
        self.unverified.push(job);
        Ok(wish)
    }

    fn control(&mut self, connection: ConnectionId, request: ControlRequest) -> Result<(), ControlBusy> {
        let orders = self.workers.orders.as_ref().ok_or(ControlBusy)?;
        orders.submit(control::Order { from: Orderer::Client(self.shard, connection), request })
    }

    fn random(&mut self) -> u128 {
        let mut bytes = [0; 16];
        // Without the kernel's randomness nothing that must not be guessed can be made.
        getrandom::fill(&mut bytes).expect("the kernel has random numbers");
        u128::from_ne_bytes(bytes)
    }

    fn notice(&mut self, now_ms: u64, _: ConnectionId, peer: &Peer, notice: Notice<'_>) {
        self.log.notice(now_ms, peer, notice);
    }

    fn not_watched(&mut self, peer: &Peer, error: &io::Error) {
        tracing::warn!(%peer, %error, "cannot watch a new connection; it is closed");
    }

    fn reloaded(&mut self, reload: u64) {
        self.switchboard.settled.tell(reload);
    }
}

pub(crate) fn new_poll() -> io::Result<(Poll, mio::Waker)> {
    let poll = Poll::new()?;
    let waker = mio::Waker::new(poll.registry(), WAKE)?;
    Ok((poll, waker))
}

fn token(id: ConnectionId) -> Token {
    Token((id.generation as usize) << 32 | id.slot as usize)
}

fn connection_of(token: Token) -> ConnectionId {
    let [slot, generation] = [token.0 & 0xffff_ffff, token.0 >> 32];
    let half = |number| u32::try_from(number).expect("half of a token");
    ConnectionId { slot: half(slot), generation: half(generation) }
}

/// The kernel reports each change once.
fn readiness(event: &Event) -> Readiness {
    let ending = event.is_read_closed() || event.is_error();
    Readiness {
        readable: event.is_readable(),
        writable: event.is_writable(),
        ending,
        failed: event.is_error(),
    }
}
