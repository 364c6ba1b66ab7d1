//! One run: its actors, and the choice of the next turn.

mod reload;
mod without_disk;

use std::sync::Arc;

use base::{Now, Purpose};
use broker::Totals;
use index::Subscriptions;
use journal::OpenError;
use journal::simulated::Failure;
use ledger::{Addressed, Ledger};

use crate::broker::Process;
use crate::client::{Client, Mood};
use crate::disk::{Crash, Disk};
use crate::most::Most;
use crate::network::Network;
use crate::operator::Operator;
use crate::oracle::{Oracle, SessionNo, SpaceJudge, Standing, check_account};
use crate::orders::Orders;
use crate::random::Random;
use crate::scenario::{Kind, Profile, SHARDS_MAX, Scenario};
use crate::scene::Scene;
use crate::tally::{Tally, counted};
use crate::trace::{Mode, Trace, note};
use crate::witness::{difference, resolved};

/// How long everybody has, once all is well, for everything to arrive: longer than the broker waits for anybody.
const RECOVERY_MS: u64 = 100_000;
/// Time after which an event is not expected any more, in milliseconds.
const PATIENCE_MS: u64 = 300_000;
/// How long nobody is there: longer than messages are kept that expire, and the rounds that look for them take.
const ALONE_MS: u64 = 90_000;
/// Maximum duration of the load of clients that are well, in milliseconds: longer than messages may be refused.
const LOAD_MS: u64 = 30_000;
/// Outputs that hold more bytes are written in parts.
const IN_PARTS_BYTES: usize = 256 << 10;
/// Maximum memory of a message beside its payload, in bytes.
const MESSAGE_BYTES: usize = 1_000;
/// Maximum number of pieces of work of the preparing thread during one commit of the other thread.
const PIECES_MAX: usize = 40;
/// Factor by which an operator raises the limit of a log.
const TIMES_MORE: u64 = 3;
/// Number of the longest segments that the operator adds to the raised limit.
const SEGMENTS_MORE: u64 = 32;
/// Probability in a thousandth, for each turn of a shard or the ledger, that the system does not run the thread; and
/// the maximum number of steps for which it does not run.
const HELD_PER_MILLE: usize = 10;
const HELD_STEPS_MAX: usize = 200;
/// Looks at the process from one look at its accounts to the next. What does not add up seldom does so later, and the last look
/// is when the process ends.
const LOOKS_PER_ACCOUNT: u64 = 16;
/// Rounds without the clock going on: more are a loop without end.
const ROUNDS_MAX: usize = 100_000;

/// A thread of the broker that takes turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thread {
    Shard(usize),
    Ledger,
}

/// A broker, its clients and their world.
pub(crate) struct World {
    scenario: Scenario,
    random: Random,
    scene: Scene,
    disk: Disk,
    /// Nothing between a crash and the next start.
    process: Option<Process>,
    starts_ms: u64,
    /// A process whose disk has failed ends then.
    ends_ms: Option<u64>,
    clients: Vec<Client>,
    most: Most,
    /// The judge of the space, in a run with a bounded log.
    space: Option<SpaceJudge>,
    /// The disk is slow.
    slow_until_ms: u64,
    /// The system does not run a thread before this step, in the middle of what it posts perhaps.
    held: Option<(Thread, u64)>,
    /// An operator has raised the limit of the log to this, in bytes.
    disk_bytes_least: u64,
    /// In runs with reloads.
    operator: Option<Operator>,
    /// Orders of operators about queues.
    orders: Orders,
    tally: Tally,
    looks: u64,
}

impl World {
    pub(crate) fn new(kind: Kind, seed: u64, mode: Mode) -> Self {
        let mut random = Random::new(seed);
        let mut scenario = Scenario::draw(kind, &mut random);
        if kind != Kind::Disk {
            scenario.crowd(seed);
            scenario.slice(kind, seed);
        }
        let network = Network::new(SHARDS_MAX);
        let disk = Disk::new(random.next(), scenario.disk_reserves);
        let now = Now { monotonic_ms: 5_000, unix_ms: 1_700_000_000_000 };
        let oracle = Oracle::new(&scenario);
        let mut scene = Scene { now, network, oracle, trace: Trace::new(mode) };
        scene.pass(0);
        let operator = (kind == Kind::Reload).then(|| Operator::draw(seed, &mut scenario, &mut scene));
        let profiles = scenario.clients.iter().cloned().enumerate();
        let mut clients: Vec<Client> =
            profiles.map(|(number, profile)| Client::new(number, profile)).collect();
        operator.iter().for_each(|operator| operator.instruct(&mut clients));
        let most = Most::of(&scenario);
        let mut world = Self {
            scenario,
            random,
            scene,
            disk,
            process: None,
            starts_ms: 0,
            ends_ms: None,
            clients,
            most,
            space: (kind == Kind::Disk).then(SpaceJudge::default),
            slow_until_ms: 0,
            held: None,
            disk_bytes_least: 0,
            operator,
            orders: Orders::draw(kind, seed),
            tally: Tally::default(),
            looks: 0,
        };
        note!(world.scene.trace, ("world"), "{:?}", world.scenario);
        world.start();
        world
    }

    /// The whole run.
    ///
    /// # Errors
    /// What was wrong.
    pub(crate) fn run(&mut self) -> Result<Tally, String> {
        for step in 0..self.scenario.steps {
            self.scene.trace.step = step;
            self.step()?;
            self.check()?;
        }
        if self.scenario.is_left_alone {
            self.leave_alone()?;
        }
        self.heal()?;
        self.load()?;
        self.settle()?;
        self.audit(false)?;
        self.replay()?;
        // Another process begins with an index that nothing has leaked into.
        if self.random.chance(600) {
            let crash = self.draw_crash();
            self.crash(crash);
            self.heal()?;
            self.settle_space()?;
            self.audit(true)?;
        }
        self.farewell()?;
        let (published, delivered) = self.scene.oracle.tally();
        self.tally.steps = self.scene.trace.step;
        self.tally.reloads = self.operator.as_ref().map_or(0, |operator| operator.reloads);
        self.orders.count(&mut self.tally);
        (self.tally.published, self.tally.delivered) = (published, delivered);
        self.tally.digest = self.scene.trace.digest();
        Ok(self.tally)
    }

    /// The disk lies from now on: the judge must find out.
    pub(crate) fn ignore_syncs(&self) {
        self.disk.ignore_syncs();
    }

    /// Returns the last events.
    pub(crate) fn trace(&self) -> &Trace {
        &self.scene.trace
    }

    /// Gives one actor a turn.
    fn step(&mut self) -> Result<(), String> {
        let weather = self.scenario.weather;
        self.end_or_begin()?;
        self.reload();
        if let Some(process) = &mut self.process {
            self.orders.turn(process, &self.scenario, &mut self.scene);
        }
        match self.random.weighted(&weather.weights) {
            0 => {
                let shard = self.random.below(self.scenario.shards);
                if !self.is_held(Thread::Shard(shard)) {
                    self.run_shard(shard);
                }
            }
            1 => {
                if !self.is_held(Thread::Ledger) {
                    self.run_ledger();
                }
            }
            2 => {
                let client = self.random.below(self.clients.len());
                self.act(client, Mood::Wild);
            }
            3 => {
                self.run_journal();
                if self.random.chance(weather.full_per_mille) {
                    let left = self.disk.change_space(&mut self.random);
                    note!(self.scene.trace, ("disk"), "has so much space from now on: {left:?}");
                }
            }
            _ => self.pass_some_time(),
        }
        self.after_journal();
        Ok(())
    }

    /// Whether the system does not run a thread now. It may run no other for a while that comes in between.
    fn is_held(&mut self, thread: Thread) -> bool {
        let step = self.scene.trace.step;
        if self.scenario.holds_threads && self.held.is_none_or(|(_, until)| until <= step) {
            let is_held = self.random.chance(HELD_PER_MILLE);
            self.held = is_held.then(|| (thread, step + self.random.between(10, HELD_STEPS_MAX) as u64));
        }
        self.held.is_some_and(|(held, _)| held == thread)
    }

    fn pass_some_time(&mut self) {
        let weather = self.scenario.weather;
        if self.random.chance(weather.jumps_per_mille) {
            let by = self.random.below(200_000_000) as u64;
            self.scene.jump(1_700_000_000_000 - 100_000_000 + by);
        }
        if self.random.chance(weather.leaps_per_mille) {
            let ms = *self.random.pick(&[1_000, 5_000, 20_000, 70_000]);
            return self.scene.pass(ms);
        }
        if self.space.is_some() && self.random.chance(700) {
            self.breathe();
        }
        let now_ms = self.scene.now.monotonic_ms;
        let timeout = self.process.as_mut().and_then(|process| process.poll_timeout(now_ms));
        let until = timeout.map_or(0, |timeout| timeout.saturating_sub(now_ms));
        let ms = if until > 0 && until < 1_000 && self.random.chance(300) {
            until
        } else {
            self.random.below(30) as u64
        };
        self.scene.pass(ms);
    }

    /// Processes end, by accident or because their disk has failed, and begin again.
    fn end_or_begin(&mut self) -> Result<(), String> {
        let weather = self.scenario.weather;
        let now_ms = self.scene.now.monotonic_ms;
        let draw = self.random.below(1_000_000);
        if self.process.is_none() {
            if self.starts_ms <= now_ms {
                if draw.is_multiple_of(4) && weather.crashes_per_million > 0 {
                    self.disk.fail_soon(Failure::End, &mut self.random);
                }
                self.start();
            }
        } else if self.ends_ms.is_some_and(|ends_ms| ends_ms <= now_ms) {
            if self.random.chance(500) {
                self.go_on_without_disk()?;
            }
            let crash = self.draw_crash();
            self.crash(crash);
        } else if draw < weather.crashes_per_million {
            if draw.is_multiple_of(2) {
                // In the middle of the next thing that is written.
                self.disk.fail_soon(Failure::End, &mut self.random);
            } else {
                let crash = self.draw_crash();
                self.crash(crash);
            }
        } else if draw < weather.crashes_per_million + weather.failures_per_million && self.ends_ms.is_none()
        {
            let failure = if draw.is_multiple_of(4) { Failure::Full } else { Failure::Io };
            note!(self.scene.trace, ("disk"), "is going to fail: {failure:?}");
            self.disk.fail_soon(failure, &mut self.random);
        }
        Ok(())
    }

    fn draw_crash(&mut self) -> Crash {
        let is_cut = self.random.chance(self.scenario.weather.power_cuts_per_mille);
        if is_cut { Crash::PowerCut } else { Crash::Kill }
    }

    /// Gives one of the journal's threads a turn. Returns whether it had anything to do.
    fn run_journal(&mut self) -> bool {
        let Some(process) = &mut self.process else { return false };
        let now_ms = self.scene.now.monotonic_ms;
        if self.random.chance(500) {
            let may_be_slow = self.space.is_some();
            if may_be_slow && self.random.chance(self.scenario.weather.slow_per_mille) {
                let slow_ms = self.random.below(1_500) as u64;
                self.slow_until_ms = self.slow_until_ms.max(now_ms + slow_ms);
                process.delay_preparer(slow_ms, now_ms);
            }
            // A piece takes no sync, or is rare: it does many in the time of a commit.
            let pieces = self.random.between(1, PIECES_MAX);
            (0..pieces).take_while(|_| process.run_preparer(now_ms)).count() > 0
        } else {
            let is_slow = self.random.chance(self.scenario.weather.slow_per_mille);
            let slow_ms = if is_slow { self.random.below(1_500) as u64 } else { 0 };
            self.slow_until_ms = self.slow_until_ms.max(now_ms + slow_ms);
            process.run_committer(slow_ms, now_ms)
        }
    }

    /// A process ends with what it has just written, or some time after it could not.
    fn after_journal(&mut self) {
        let has_failed = self.process.as_ref().is_some_and(|process| process.progress().has_failed);
        if self.disk.has_ended() {
            let crash = self.draw_crash();
            self.crash(crash);
        } else if has_failed && self.ends_ms.is_none() {
            let trouble = self.process.as_ref().map(Process::trouble);
            note!(self.scene.trace, ("disk"), "has failed: {trouble:?}");
            self.ends_ms = Some(self.scene.now.monotonic_ms + self.random.below(2_000) as u64);
        }
    }

    fn crash(&mut self, crash: Crash) {
        note!(self.scene.trace, ("world"), "the process ends: {crash:?}");
        // Its connections are dropped at the end, when its clients have found out: none of them is closed in good order.
        let ended = self.process.take();
        if let Some(process) = &ended {
            if let Err(finding) = check_account(&process.counters, &process.parties, &process.gauges) {
                self.scene.oracle.fail(finding);
            }
            let progress = process.progress();
            self.disk.witness.ended(progress);
            self.tally.crashes += 1;
            self.tally.recycled += process.recycled();
            self.tally.failures += usize::from(progress.has_failed);
            // Orders of an operator belong to the process that has carried them out.
            self.orders.tell(&self.scenario, &mut self.scene);
            self.scene.oracle.crashed();
        }
        self.ends_ms = None;
        self.disk.crash(crash);
        if self.random.chance(self.scenario.weather.decays_per_mille)
            && let Err(finding) = self.disk.decay(&self.scenario.journal, &mut self.random)
        {
            self.scene.oracle.fail(finding);
        }
        let Self { random, scene, .. } = self;
        scene.network.broker_is_gone(|bytes| random.between(0, bytes));
        let down_ms = if random.chance(500) { 0 } else { random.below(10_000) };
        self.starts_ms = scene.now.monotonic_ms + down_ms as u64;
    }

    fn start(&mut self) {
        note!(self.scene.trace, ("world"), "the process begins");
        // Clients that connected while no process was running were turned away.
        self.scene.network.broker_is_gone(|_| 0);
        if self.tally.crashes > 0 || self.space.is_none() {
            self.scenario.change_settings(&mut self.random);
        }
        let journal = &mut self.scenario.journal;
        journal.disk_bytes_max = journal.disk_bytes_max.max(self.disk_bytes_least);
        self.configure();
        if let Some(space) = &mut self.space {
            space.begin(&self.scenario.journal, self.disk.used_bytes());
        }
        match Process::start(&self.scenario, &mut self.disk, &mut self.scene, &mut self.random) {
            Ok(mut process) => {
                self.scene.oracle.started(Arc::clone(&process.gauges), self.scene.now);
                if let Some(operator) = &mut self.operator {
                    operator.started(&mut process, &mut self.scene);
                }
                self.process = Some(process);
            }
            Err(error) if self.disk.explains(&error) => {
                note!(self.scene.trace, ("world"), "the process does not begin: {error}");
                let crash = self.draw_crash();
                self.crash(crash);
            }
            Err(error) => self.scene.oracle.fail(format!("the journal cannot be opened: {error}")),
        }
    }

    fn run_shard(&mut self, shard: usize) -> bool {
        let Some(process) = &mut self.process else { return false };
        process.run_shard(shard, &mut self.scene, &mut self.random)
    }

    fn run_ledger(&mut self) -> bool {
        let Some(process) = &mut self.process else { return false };
        let has_run = process.run_ledger(&mut self.disk, &mut self.scene, &mut self.random);
        if process.progress().has_failed {
            // Whom the ledger tells is told from now on.
            self.scene.oracle.journal_failed();
        }
        self.look_at_space();
        has_run
    }

    fn act(&mut self, client: usize, mood: Mood) -> bool {
        self.clients[client].act(mood, &self.scenario, &mut self.scene, &mut self.random)
    }

    /// Checks the conditions that must be true at any moment.
    fn check(&mut self) -> Result<(), String> {
        if let Some(failure) = self.scene.oracle.failure() {
            return Err(failure.to_owned());
        }
        if let Some(space) = &self.space {
            let bytes = self.disk.used_bytes();
            if bytes > self.scenario.journal.disk_bytes_max {
                space.takes(bytes, self.disk.largest_bytes())?;
            }
        }
        let Some(process) = &self.process else { return Ok(()) };
        self.tally.tight += u64::from(process.budget().is_tight());
        self.disk.explains_trouble(&process.trouble(), self.scenario.excuses_failure())?;
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(LOOKS_PER_ACCOUNT) {
            check_account(&process.counters, &process.parties, &process.gauges)?;
        }
        self.scene.oracle.check_limits_in_force();
        let fullest = process.fullest();
        self.tally.in_parts += u64::from(fullest.2 > IN_PARTS_BYTES);
        self.most.check(fullest)
    }

    /// All clients are gone for a while. Messages that expire meanwhile are removed, wherever they wait.
    fn leave_alone(&mut self) -> Result<(), String> {
        note!(self.scene.trace, ("world"), "nobody is there for a while");
        self.disk.heal();
        self.restart_if_failed();
        self.clients.iter_mut().for_each(|client| client.lost(&mut self.scene));
        let until_ms = self.scene.now.monotonic_ms + ALONE_MS;
        while self.scene.now.monotonic_ms < until_ms {
            let mut rounds = 0;
            while self.write_all() | self.run_broker() {
                self.check()?;
                rounds += 1;
                if rounds > ROUNDS_MAX {
                    return Err("there is no end, though nobody is there".to_owned());
                }
            }
            self.restart_if_failed();
            self.scene.network.reset_silent();
            self.sleep();
        }
        let now = self.scene.now;
        match self.process.as_ref().map_or(0, |process| process.expired_waiting(now)) {
            0 => Ok(()),
            expired => Err(format!("{expired} messages wait though they have expired long ago")),
        }
    }

    /// Nothing goes wrong any more: everybody connects, reads and acknowledges, until nothing is left to do.
    fn heal(&mut self) -> Result<(), String> {
        note!(self.scene.trace, ("world"), "everybody is well from now on");
        self.disk.heal();
        self.restart_if_failed();
        let mut begun_ms = self.scene.now.monotonic_ms;
        let mut rounds = 0;
        loop {
            rounds += 1;
            self.scene.trace.step += 1;
            if self.round() {
                self.check()?;
                if rounds > ROUNDS_MAX {
                    let busy = self.process.iter_mut().map(|process| process.busy(&self.scene));
                    return Err(format!("there is no end: {}", busy.collect::<String>()));
                }
                continue;
            }
            rounds = 0;
            // It may have been too full even for what frees space.
            self.restart_if_failed();
            let healing_ms = self.scene.now.monotonic_ms - begun_ms;
            self.settle_dismissals(healing_ms)?;
            if healing_ms >= RECOVERY_MS {
                match self.unfinished() {
                    None => return Ok(()),
                    Some(_) if healing_ms >= PATIENCE_MS && self.give_more_disk() => {
                        begun_ms = self.scene.now.monotonic_ms;
                    }
                    Some(what) if healing_ms >= PATIENCE_MS => {
                        let memory = self.process.as_ref().map(|process| format!("{:?}", process.budget()));
                        return Err(format!("{what}; memory: {}", memory.unwrap_or_default()));
                    }
                    Some(_) => {}
                }
            }
            self.scene.network.reset_silent();
            self.sleep();
        }
    }

    /// Clients publish messages for ever that are refused for good, because too much is live: an operator raises the
    /// limit, once. Then everything has to arrive. Returns whether this was the reason.
    fn give_more_disk(&mut self) -> bool {
        let may_refuse = self.space.as_ref().zip(self.process.as_ref());
        let may_refuse = may_refuse.is_some_and(|(space, process)| space.may_refuse(process.space()));
        if !may_refuse || self.disk_bytes_least > 0 {
            return false;
        }
        let disk_bytes = self.scenario.journal.disk_bytes_max;
        let segments_bytes = SEGMENTS_MORE * u64::from(self.scenario.journal.segment_bytes_max);
        self.disk_bytes_least = TIMES_MORE * disk_bytes + segments_bytes;
        note!(self.scene.trace, ("world"), "the log gets {} bytes", self.disk_bytes_least);
        self.tally.given_disk += 1;
        let crash = self.draw_crash();
        self.crash(crash);
        self.restart_if_failed();
        true
    }

    /// The way back from a journal that has failed is another process.
    fn restart_if_failed(&mut self) {
        if self.process.as_ref().is_some_and(|process| process.progress().has_failed) {
            let crash = self.draw_crash();
            self.crash(crash);
        }
        if self.process.is_none() {
            self.start();
        }
    }

    /// Everybody has a turn. Whether anybody had something to do.
    fn round(&mut self) -> bool {
        if let Some(space) = &mut self.space {
            space.had_turns();
        }
        let mut is_busy = self.write_all();
        for client in 0..self.clients.len() {
            is_busy |= self.act(client, Mood::Tame);
        }
        is_busy |= self.end_reloads();
        is_busy | self.run_broker()
    }

    /// Every shard and the ledger have a turn.
    fn run_broker(&mut self) -> bool {
        let mut is_busy = false;
        for shard in 0..self.scenario.shards {
            is_busy |= self.run_shard(shard);
        }
        is_busy | self.run_ledger()
    }

    /// Everything is written that can be. Whether there was anything.
    fn write_all(&mut self) -> bool {
        let Some(process) = &mut self.process else { return false };
        let now_ms = self.scene.now.monotonic_ms;
        let mut is_busy = false;
        while process.run_committer(0, now_ms) || process.run_preparer(now_ms) {
            is_busy = true;
        }
        is_busy
    }

    /// The clock goes on to the next thing that somebody waits for.
    fn sleep(&mut self) {
        let now_ms = self.scene.now.monotonic_ms;
        let process = self.process.iter_mut().filter_map(|process| process.poll_timeout(now_ms));
        let clients = self.clients.iter().filter_map(Client::poll_timeout);
        let reload = self.operator.iter().filter_map(Operator::poll_timeout);
        let stalls = self.scene.network.poll_timeout(now_ms);
        let next = process.chain(clients).chain(stalls).chain(reload).filter(|at_ms| *at_ms > now_ms).min();
        self.scene.pass(next.map_or(1_000, |at_ms| (at_ms - now_ms).clamp(1, 1_000)));
    }

    /// Returns a description of unfinished work, though everything works.
    fn unfinished(&self) -> Option<String> {
        let client = self.clients.iter().find_map(Client::unfinished);
        client.or_else(|| {
            let totals = self.totals();
            let process = self.process.as_ref()?;
            let load =
                |gauge: &std::sync::atomic::AtomicUsize| gauge.load(std::sync::atomic::Ordering::Relaxed);
            let levels = [
                ("in flight in the shards", totals.in_flight),
                ("waiting in the shards", totals.waiting),
                ("in flight in the ledger", load(&process.gauges.in_flight) as u64),
                ("queued in the ledger", self.queued_for_nobody(load(&process.gauges.queued)) as u64),
            ];
            let left = levels.iter().find(|(_, level)| *level > 0);
            left.map(|(what, level)| format!("{level} messages are {what}"))
        })
    }

    /// Sessions that nobody comes back to, and groups whose only members they are, keep their messages.
    fn queued_for_nobody(&self, queued: usize) -> usize {
        let gauges = self.process.as_ref().map(|process| &process.gauges);
        let is_complete = gauges.is_some_and(|gauges| {
            let load =
                |gauge: &std::sync::atomic::AtomicUsize| gauge.load(std::sync::atomic::Ordering::Relaxed);
            load(&gauges.sessions) == load(&gauges.sessions_connected)
        });
        if is_complete { queued } else { 0 }
    }

    fn totals(&self) -> Totals {
        let counters = self.process.iter().flat_map(|process| &process.counters);
        Totals::of(counters.map(|counters| &**counters))
    }

    fn standings(&self) -> Vec<Standing> {
        self.clients.iter().map(Client::standing).collect()
    }

    /// Copies that did not arrive for a reason other than a full queue of the ledger.
    fn dropped(&self) -> u64 {
        let totals = self.totals();
        totals.dropped_absent
            + totals.dropped_queue_full
            + totals.dropped_slow
            + totals.dropped_budget
            + totals.dropped_too_large
            + totals.dropped_expired
    }

    fn settle(&mut self) -> Result<(), String> {
        self.orders.tell(&self.scenario, &mut self.scene);
        let (standings, dropped) = (self.standings(), self.dropped());
        self.scene.oracle.settle(&standings, dropped);
        self.check()
    }

    /// Everybody is well, and publishes more than the log may have: whatever they do, little of it is live.
    fn load(&mut self) -> Result<(), String> {
        self.settle_space()?;
        let mut left = self.scenario.load_bytes();
        note!(self.scene.trace, ("world"), "{left} bytes are published by clients that are well");
        let begun_ms = self.scene.now.monotonic_ms;
        // Wills have the last two topics for themselves.
        let topics = self.scenario.topics.len() - 2;
        while left > 0 && self.scene.now.monotonic_ms < begun_ms + LOAD_MS {
            for client in 0..self.clients.len() {
                let topic = self.random.below(topics);
                for _ in 0..self.random.between(1, 4) {
                    let bytes = self.clients[client].load(topic, &self.scenario, &mut self.scene);
                    left = left.saturating_sub(bytes as u64);
                }
            }
            while self.round() {
                self.check()?;
            }
            let ms = self.random.between(5, 50) as u64;
            self.scene.pass(ms);
        }
        if self.scenario.load_bytes() > 0 {
            self.heal()?;
        }
        self.settle_space()
    }

    /// All threads of the broker that have to do with the space have the turns that they want.
    fn breathe(&mut self) {
        for _ in 0..4 {
            if !(self.write_all() | self.run_ledger()) {
                break;
            }
        }
        if let Some(space) = &mut self.space {
            space.had_turns();
        }
    }

    fn look_at_space(&mut self) {
        let (Some(space), Some(process)) = (&mut self.space, &self.process) else { return };
        let now_ms = self.scene.now.monotonic_ms;
        let is_hindered =
            self.disk.is_unwell() || process.progress().has_failed || now_ms < self.slow_until_ms;
        if let Err(finding) = space.look(process.space(), is_hindered, now_ms) {
            self.scene.oracle.fail(finding);
        }
    }

    /// Checks the space that is used when nothing has happened for long.
    fn settle_space(&self) -> Result<(), String> {
        let (Some(space), Some(process)) = (&self.space, &self.process) else { return Ok(()) };
        space.settle(process.space(), self.disk.largest_bytes(), self.disk.used_bytes())
    }

    /// New clients on every shard ask for everything that is retained.
    fn audit(&mut self, is_after_restart: bool) -> Result<(), String> {
        let standings = if is_after_restart { Vec::new() } else { self.standings() };
        let dropped = self.dropped();
        let first = self.clients.len();
        for shard in 0..self.scenario.shards {
            let mut client = Client::new(first + shard, Profile::of_audit(first + shard));
            client.connect_to(shard, &self.scenario, &mut self.scene, &mut self.random);
            self.clients.push(client);
        }
        self.heal()?;
        let filter = self.scenario.filters.len() - 1;
        for client in &mut self.clients[first..] {
            client.audit(filter, &self.scenario, &mut self.scene);
        }
        self.heal()?;
        let audits: Vec<SessionNo> =
            self.clients[first..].iter().filter_map(|client| client.standing().session).collect();
        // A process that is full drops what is of QoS 0, from the audits too.
        if self.dropped() == dropped {
            self.scene.oracle.settle_retained(&standings, &audits, dropped, is_after_restart);
        }
        self.clients[first..].iter_mut().for_each(|client| client.leave(&mut self.scene));
        self.clients.truncate(first);
        self.check()
    }

    /// All sessions end. Nothing of them is left in the index, whatever their clients have done.
    fn farewell(&mut self) -> Result<(), String> {
        self.clients.iter_mut().for_each(|client| client.give_up_session(&mut self.scene));
        self.heal()?;
        let Some(process) = &self.process else { return Ok(()) };
        let index = &process.index;
        match (index.len(), index.filters(), index.shapes()) {
            (0, 0, 0) => self.check_memory(process),
            (subscriptions, filters, shapes) => Err(format!(
                "{subscriptions} subscriptions of nobody are in the index, {filters} filters, {shapes} shapes"
            )),
        }
    }

    /// Retained messages, and connected clients with their wills, are all that memory is held for.
    fn check_memory(&self, process: &Process) -> Result<(), String> {
        check_account(&process.counters, &process.parties, &process.gauges)?;
        use Purpose::{Connections, Messages, Places, Sessions};
        let budget = process.budget();
        let is_explained = |purpose: &Purpose| matches!(purpose, Connections | Messages | Places | Sessions);
        let held = Purpose::ALL.into_iter().filter(|purpose| !is_explained(purpose));
        let left: Vec<Purpose> = held.filter(|purpose| budget.held_bytes(*purpose) > 0).collect();
        let (retained, retained_bytes) = process.retained();
        let messages = retained + self.clients.len();
        let bytes_max =
            retained_bytes + messages * MESSAGE_BYTES + self.clients.len() * self.scenario.payload_bytes_max;
        if left.is_empty() && budget.held_bytes(Messages) <= bytes_max {
            return Ok(());
        }
        Err(format!("memory is held for nobody: {budget:?}, {retained_bytes} bytes are retained"))
    }

    /// The records alone make the same ledger again.
    fn replay(&mut self) -> Result<(), String> {
        let Some(process) = &self.process else { return Ok(()) };
        let records = self.records().map_err(|error| error.to_string())?;
        let index = Arc::new(Subscriptions::new([1, 2]));
        let again = Ledger::recover(self.scenario.ledger.clone(), index, records.clone(), self.scene.now);
        let (lives, recorded) =
            (resolved(&process.durable_state(), &records), resolved(&again.durable_state(), &records));
        if lives != recorded && !process.has_unrecorded() {
            return Err(difference(&lives, &recorded));
        }
        // And so do the records without the bodies of those messages that need not be in memory.
        let mut opening = self.open().map_err(|error| error.to_string())?;
        let index = Arc::new(Subscriptions::new([1, 2]));
        let bodiless =
            Ledger::recover_from(self.scenario.ledger.clone(), index, &mut opening, self.scene.now);
        let (whole, bodiless) = (counted(&again), counted(&bodiless));
        if whole == bodiless { Ok(()) } else { Err(difference(&whole, &bodiless)) }
    }

    /// Returns the records on the disk, which is not changed.
    fn records(&self) -> Result<Vec<Addressed<'static>>, OpenError> {
        Ok(self.open()?.records().collect())
    }

    fn open(&self) -> Result<journal::Opening, OpenError> {
        journal::open(self.disk.storage(), self.scenario.journal.clone())
    }
}
