//! The view of a running server that operators have: its figures, and questions to its threads.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use auth::{Bans, Check, Checked, Guard, Wish};
use base::{Charge, Purpose, ShardId};
use broker::{Counted, Counters, Facts, Parties, Party, Totals};
use index::Subscriptions;
use protocol::{Gauges, Instruments};
use turn::{
    AskCensus, AskLedger, AskShard, CensusAnswer, CensusList, Note, ShardAnswer, ToLedger, Trace,
    TraceRecord, TraceSubject,
};

use crate::clock::Clock;
use crate::switchboard::Switchboard;
use crate::verify::{Job, Verifier};

/// A handle to a running server for threads that carry no messages.
///
/// Reading figures locks nothing that a message needs. Questions lie in the inboxes of their threads as other letters, and are
/// answered at most a few in a turn.
#[derive(Clone)]
pub struct Operator(Arc<Parts>);

pub(crate) struct Parts {
    pub(crate) switchboard: Arc<Switchboard>,
    pub(crate) index: Arc<Subscriptions>,
    pub(crate) guard: Arc<Guard>,
    pub(crate) counters: Vec<Arc<Counters>>,
    pub(crate) parties: Arc<Parties>,
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) instruments: Vec<Arc<dyn Instruments>>,
    pub(crate) verifier: Arc<Verifier>,
    pub(crate) clock: Clock,
    pub(crate) started: Instant,
    /// The number of the next trace.
    pub(crate) traces: AtomicU32,
}

impl Operator {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    pub(crate) fn parts(&self) -> &Parts {
        &self.0
    }

    /// Number of shards of the server.
    #[must_use]
    pub fn shards(&self) -> usize {
        self.0.counters.len()
    }

    /// Asks a shard. `answer` runs on the thread of the shard and must not block. It is dropped if the shard has ended.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn ask_shard(
        &self,
        shard: usize,
        question: broker::Question,
        answer: impl FnOnce(ShardAnswer) + Send + 'static,
    ) {
        let shard = ShardId::new(shard).number();
        let ask = AskShard { question, answer: Box::new(answer) };
        self.0.switchboard.shards[shard].post(Note::Ask(Box::new(ask)).into());
    }

    /// Asks a shard about the busiest clients or topics. `answer` runs on the thread of the shard and must not block.
    ///
    /// # Panics
    /// If there is no such shard.
    pub fn ask_census(
        &self,
        shard: usize,
        list: CensusList,
        answer: impl FnOnce(CensusAnswer) + Send + 'static,
    ) {
        let shard = ShardId::new(shard).number();
        let ask = AskCensus { list, answer: Box::new(answer) };
        self.0.switchboard.shards[shard].post(Note::Census(ask).into());
    }

    /// Asks the ledger. `answer` runs on the thread of the ledger and must not block. It is dropped if the ledger has ended.
    pub fn ask_ledger(
        &self,
        question: ledger::Question,
        answer: impl FnOnce(ledger::OperatorAnswer) + Send + 'static,
    ) {
        let ask = AskLedger { question, answer: Box::new(answer) };
        self.0.switchboard.ledger.post(ToLedger::Ask(Box::new(ask)));
    }

    /// Whether all shards and the ledger answer within this time.
    #[must_use]
    pub fn all_answer(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        let (give, answers) = channel();
        let ready = || {
            let give = give.clone();
            // Whoever has asked may have stopped to wait.
            move || {
                let _ = give.send(());
            }
        };
        for shard in 0..self.shards() {
            let ready = ready();
            let question = broker::Question::Clients { from_slot: u32::MAX };
            self.ask_shard(shard, question, move |_| ready());
        }
        let ready = ready();
        self.ask_ledger(ledger::Question::Ping, move |_| ready());
        let is_in_time = || answers.recv_timeout(until.saturating_duration_since(Instant::now())).is_ok();
        (0..=self.shards()).all(|_| is_in_time())
    }

    /// Passes each figure of `$SYS/broker/` with its topic below that, but for rates and averages.
    pub fn figures(&self, say: &mut dyn FnMut(&str, String)) {
        let Parts { switchboard, index, counters, gauges, instruments, started, .. } = &*self.0;
        let totals = Totals::of(counters.iter().map(|counters| &**counters));
        let facts = Facts {
            ledger: gauges,
            instruments,
            subscriptions: index.len(),
            filters: index.filters(),
            shapes: index.shapes(),
            budget: switchboard.board.budget(),
            uptime_secs: started.elapsed().as_secs(),
        };
        facts.figures(&totals, say);
        instruments.iter().for_each(|instruments| instruments.read_totals(say));
    }

    /// Number of clients that are connected, of each shard.
    #[must_use]
    pub fn clients_by_shard(&self) -> Vec<u64> {
        self.0.counters.iter().map(|counters| counters.clients_connected.value()).collect()
    }

    /// The counters of each shard, for operators who look for the busiest one.
    #[must_use]
    pub fn totals_by_shard(&self) -> Vec<Totals> {
        self.0.counters.iter().map(|counters| Totals::of([&**counters])).collect()
    }

    /// The counts of all listeners and users, with the counters of all shards of about the same moment.
    #[must_use]
    pub fn counted(&self) -> (Vec<(Party, Counted)>, Totals) {
        let Parts { parties, counters, .. } = &*self.0;
        (parties.read(), Totals::of(counters.iter().map(|counters| &**counters)))
    }

    /// Number of connections of a listener, by its place among all.
    #[must_use]
    pub fn connections_of(&self, listener: u16) -> usize {
        self.0.switchboard.board.connections_of(listener)
    }

    /// Users and rules of all listeners.
    #[must_use]
    pub fn guard(&self) -> &Guard {
        &self.0.guard
    }

    /// Has the password of an operator at an address checked, on the threads that check those of clients. `answer` runs on one of
    /// these threads and must not block. It is dropped if nobody has this wish any more, or if the broker ends.
    #[must_use]
    pub fn verify(&self, from: IpAddr, check: Check, answer: impl FnOnce(Checked) + Send + 'static) -> Wish {
        let Parts { verifier, clock, .. } = &*self.0;
        let wish = Wish::default();
        verifier.submit(&mut vec![Job::of_operator(clock.current_ms(), from, check, &wish, answer)]);
        wish
    }

    /// Puts other bans in force. Clients that are banned now are disconnected soon, some in each turn.
    pub fn replace_bans(&self, bans: Bans) {
        self.0.guard.replace_bans(bans);
        self.0.switchboard.tell_users_changed();
    }

    /// Begins a trace on all shards, in the place of the last one, and returns it with its records. It ends when these have
    /// `bytes_max` bytes, when it is stopped, or when the receiver is dropped.
    #[must_use]
    pub fn begin_trace(
        &self,
        subject: TraceSubject,
        bytes_max: usize,
    ) -> (Arc<Trace>, Receiver<TraceRecord>) {
        let Parts { switchboard, traces, .. } = &*self.0;
        // 0 is the number of no trace.
        let number = traces.fetch_add(1, Ordering::Relaxed).max(1);
        let (trace, records) = Trace::new(number, subject, bytes_max, switchboard.board.budget());
        let trace = Arc::new(trace);
        switchboard.shards.iter().for_each(|inbox| inbox.post(Note::Trace(Arc::clone(&trace)).into()));
        (trace, records)
    }

    /// Ends a trace. All shards let go of its memory soon.
    pub fn end_trace(&self, trace: &Trace) {
        trace.stop();
        let number = trace.number();
        self.0.switchboard.shards.iter().for_each(|inbox| inbox.post(Note::TraceEnded(number).into()));
    }

    /// Whether clients are not disturbed by a trace whose records may have this many bytes.
    #[must_use]
    pub fn has_memory_for_trace(&self, bytes_max: usize) -> bool {
        let budget = self.0.switchboard.board.budget();
        budget.used_bytes().saturating_add(turn::COPIES * bytes_max) <= budget.limit_bytes() / 4 * 3
    }

    /// Charges a record for an operator of this many bytes to the account. `None` if that would disturb clients.
    #[must_use]
    pub fn charge_record(&self, bytes: usize) -> Option<Charge> {
        let budget = self.0.switchboard.board.budget();
        let fits = budget.used_bytes().saturating_add(bytes) <= budget.limit_bytes() / 4 * 3;
        fits.then(|| budget.charge(Purpose::Traces, bytes))
    }

    /// Whether so much memory is in use that nothing new is admitted.
    #[must_use]
    pub fn is_memory_short(&self) -> bool {
        self.0.switchboard.board.budget().is_tight()
    }

    /// Whether so much memory is in use that queues and retained messages may not grow.
    #[must_use]
    pub fn is_memory_short_to_keep(&self) -> bool {
        self.0.switchboard.board.budget().is_tight_to_keep()
    }

    /// Whether more memory is in use than the limit allows.
    #[must_use]
    pub fn is_memory_full(&self) -> bool {
        self.0.switchboard.board.budget().is_full()
    }

    /// The time since the start.
    #[must_use]
    pub fn uptime(&self) -> Duration {
        self.0.started.elapsed()
    }
}
