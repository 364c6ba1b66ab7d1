//! The course of a soak: several lives of a broker, each with load and quiet points in alternation.

use std::time::{Duration, Instant};

use pondhawk_tests::packet::Connect;
use pondhawk_tests::promises::{Clock, World, check};
use pondhawk_tests::{Broker, Client, DEADLINE, Options, Random, Version, data_dir, in_log};
use tempfile::TempDir;

use crate::crowd::{Crowd, Holdings};
use crate::figure::{Empty, Expected, Figure};
use crate::pace::{Throttle, spent};
use crate::probe;
use crate::report::{GROWTH_MAX_BYTES, Report, Trend};
use crate::walker::Walker;
use crate::watcher::{Descriptors, Watcher};

/// Time limit for the figures to become correct, which includes expiry and deferred work.
const PATIENCE: Duration = Duration::from_secs(60);
/// Minimum length of a long life. A long life also has at least a sixth of the soak.
const LONG: Duration = Duration::from_secs(120);
/// At one in this number of quiet points, all clients leave.
const ONE_IN_DISBANDS: u64 = 4;

/// Number of further looks at the descriptors of an empty broker.
const BASELINE_LOOKS: u32 = 5;

/// The arguments of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) length: Duration,
    pub(crate) seed: u64,
    /// Wanted load in percent of one core.
    pub(crate) share: u64,
}

/// The state of a running soak.
pub(crate) struct Soak {
    plan: Plan,
    random: Random,
    directory: TempDir,
    begun: Instant,
    crowd: Crowd,
    world: Option<World>,
    /// The account of an empty broker, and the number of topics that reported it.
    memory: Vec<(String, u64)>,
    topics: usize,
    worlds: u64,
    pub(crate) report: Report,
}

/// One broker from its start to its end, with the clients that observe it.
struct Life {
    broker: Broker,
    watcher: Watcher,
    warden: Client,
    begun: Instant,
    empty: Empty,
    is_key_ordered: bool,
    shards: u16,
    throttle: Throttle,
    trend: Trend,
}

/// `Err` contains the differences from the expected state, which end the soak.
type Outcome = Result<(), Vec<String>>;

impl Soak {
    pub(crate) fn new(plan: Plan) -> Self {
        Self {
            plan,
            random: Random::of(plan.seed, 0),
            directory: data_dir(),
            begun: Instant::now(),
            crowd: Crowd::new(plan.seed),
            world: None,
            memory: Vec::new(),
            topics: 0,
            worlds: 0,
            report: Report::default(),
        }
    }

    /// Runs until the time is over, or a difference is found.
    pub(crate) fn play(&mut self) {
        for number in 0.. {
            if let Err(findings) = self.live(number) {
                self.report.findings.extend(findings);
            }
            if self.is_over() || !self.report.findings.is_empty() {
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.begun.elapsed() >= self.plan.length
    }

    fn live(&mut self, number: u64) -> Outcome {
        let mut life = self.start(number)?;
        let length = if number.is_multiple_of(2) { LONG.max(self.plan.length / 6) } else { LONG / 10 };
        let mut point = 0;
        while point == 0 || life.begun.elapsed() < length && !self.is_over() {
            point += 1;
            self.load(&mut life, Duration::from_secs(5))?;
            let is_last = self.is_over();
            self.quiet_point(&mut life, is_last || point % ONE_IN_DISBANDS == 0)?;
        }
        self.report.trends.push(life.trend.clone());
        if let Some(growth) = life.trend.growth_bytes().filter(|growth| *growth > GROWTH_MAX_BYTES) {
            return Err(vec![format!("resident memory has grown by {:.1} MiB", growth / 1_048_576.0)]);
        }
        if !self.is_over() {
            self.load(&mut life, Duration::from_secs(2))?;
        }
        self.end(life)
    }

    fn start(&mut self, number: u64) -> Result<Life, Vec<String>> {
        let shards = self.random.of_list(&[1, 2, 4]);
        let is_key_ordered = number % 2 == u64::from(self.plan.seed.is_multiple_of(2));
        let dispatch = if is_key_ordered { "key-ordered" } else { "round-robin" };
        let settings = format!(
            "[limits]\npacket_bytes = \"128 KiB\"\noutput_buffer_bytes = \"32 KiB\"\n\
             [shared]\ndispatch = \"{dispatch}\"\n[sys]\ninterval = \"1 s\"\n"
        );
        let data_dir = Some(self.directory.path().into());
        let options = Options { shards, settings, data_dir, ..Options::default() };
        let broker = Broker::try_start_within(&options, DEADLINE)
            .map_err(|log| vec![format!("the broker does not start:\n{log}")])?;
        let mut watcher = Watcher::connect(&broker);
        let warden = broker.client_with(&Connect::new(Version::V5, "warden"));
        while watcher.rounds < 2 {
            if !watcher.hear(DEADLINE) {
                return Err(vec!["the broker ends the connection of the watcher".to_owned()]);
            }
        }
        if self.memory.is_empty() {
            self.topics = watcher.topics();
            self.memory =
                watcher.below("memory/").map(|(purpose, bytes)| (purpose.to_owned(), bytes)).collect();
        }
        let data_dir = self.data_dir();
        let mut descriptors = Descriptors::of(&broker, &data_dir);
        // A thread of the broker may have a file of the system open for a moment.
        for _ in 0..BASELINE_LOOKS {
            if !watcher.hear(DEADLINE) {
                return Err(vec!["the broker ends the connection of the watcher".to_owned()]);
            }
            descriptors.others = descriptors.others.min(Descriptors::of(&broker, &data_dir).others);
        }
        descriptors.deleted = 0;
        let empty = Empty { descriptors, memory: self.memory.clone(), topics: self.topics };
        println!(
            "[{:>6.0} s] broker {}: {shards} shards, {dispatch}",
            self.begun.elapsed().as_secs_f64(),
            number + 1
        );
        let (begun, throttle, trend) = (Instant::now(), Throttle::new(self.plan.share), Trend::default());
        Ok(Life { broker, watcher, warden, begun, empty, is_key_ordered, shards, throttle, trend })
    }

    fn data_dir(&self) -> String {
        self.directory.path().to_string_lossy().into_owned()
    }

    /// Lets all clients act at random for this time.
    fn load(&mut self, life: &mut Life, length: Duration) -> Outcome {
        let process = life.broker.process_id();
        self.crowd.release_wills();
        let world = self.world.get_or_insert_with(|| {
            self.worlds += 1;
            let mut world = World::new(Random::of(self.plan.seed, 1_000_000 + self.worlds), Clock::None);
            world.gather(&life.broker);
            world
        });
        life.throttle.begin(process);
        let end = Instant::now() + length;
        let mut turn = 0_u64;
        while Instant::now() < end {
            turn += 1;
            let acts = life.throttle.acts(process);
            self.crowd.turn(acts, &life.broker);
            if life.throttle.is_free() || turn.is_multiple_of(8) {
                world.turn(&life.broker);
            }
            self.crowd.pump(Duration::from_millis(20));
            if !life.watcher.hear(Duration::ZERO) {
                return Err(vec!["the broker ends the connection of the watcher".to_owned()]);
            }
        }
        Ok(())
    }

    /// Compares all state, after the load has stopped.
    fn quiet_point(&mut self, life: &mut Life, is_to_disband: bool) -> Outcome {
        self.check_promises(life)?;
        self.crowd.settle(&life.broker)?;
        self.wait_for_rounds(life, 2)?;
        self.crowd.receive_owed(&life.broker)?;
        // Packets that arrived late have been read.
        self.crowd.settle(&life.broker)?;
        self.crowd.settle_values(&mut life.warden);
        self.look(life, 0, false, "everybody is connected")?;
        self.note(life);
        if is_to_disband {
            self.crowd.disband(&life.broker, &mut life.warden)?;
            self.look(life, 0, true, "everybody has gone for good")?;
        } else {
            self.crowd.depart();
            self.crowd.see_off()?;
            self.wait_for_rounds(life, 2)?;
            self.report.quiet_points += 1;
            let name = self.report.quiet_points.to_string();
            let queued = self.crowd.owe(&mut life.warden, &name);
            self.look(life, queued as u64, false, "some are away")?;
        }
        let findings = self.crowd.take_findings();
        if findings.is_empty() {
            return Ok(());
        }
        let last_of_log = |finding: &String| -> Vec<String> {
            let client_id = finding.split(" (").next().unwrap_or_default();
            life.broker
                .log_lines(&format!("client_id={} ", in_log(client_id)))
                .into_iter()
                .rev()
                .take(20)
                .rev()
                .collect()
        };
        let lines: Vec<String> = findings.iter().take(3).flat_map(last_of_log).collect();
        Err(findings.into_iter().chain(lines).collect())
    }

    /// Checks that acknowledged messages are delivered, and messages of QoS 2 only once. The check leaves no state
    /// behind.
    fn check_promises(&mut self, life: &mut Life) -> Outcome {
        let Some(world) = self.world.take() else { return Ok(()) };
        let after = world.cut(u64::MAX);
        // Dropping the old clients closes their connections.
        drop(world);
        let mut world = after;
        let found = check(&mut world, &life.broker, DEADLINE);
        self.report.promised += found.acknowledged as u64;
        world.retire(&life.broker);
        if found.is_good() {
            return Ok(());
        }
        let tell = |what: &str, all: Vec<String>| {
            let what = what.to_owned();
            all.into_iter().map(move |one| format!("{what}: {one}"))
        };
        let findings =
            tell("lost", found.lost).chain(tell("twice", found.twice)).chain(tell("wrong", found.wrong));
        Err(findings.collect())
    }

    fn wait_for_rounds(&mut self, life: &mut Life, rounds: u64) -> Outcome {
        let upto = life.watcher.rounds + rounds;
        let end = Instant::now() + PATIENCE;
        while life.watcher.rounds < upto {
            // A client with a small window receives its waiting messages only as fast as it answers.
            self.crowd.pump(Duration::from_millis(20));
            if !life.watcher.hear(Duration::ZERO) || Instant::now() > end {
                return Err(vec!["the broker does not tell how it is".to_owned()]);
            }
        }
        Ok(())
    }

    /// Compares all figures repeatedly, until they are correct or the time is over.
    fn look(&mut self, life: &mut Life, queued: u64, is_disbanded: bool, which: &str) -> Outcome {
        let data_dir = self.data_dir();
        let holdings: Holdings = self.crowd.holdings();
        let end = Instant::now() + PATIENCE;
        self.wait_for_rounds(life, 1)?;
        loop {
            let expected = Expected {
                holdings: &holdings,
                queued,
                empty: &life.empty,
                is_key_ordered: life.is_key_ordered,
                is_disbanded,
            };
            let figures = expected.figures(&life.watcher, &life.broker, &data_dir);
            if figures.iter().all(Figure::is_good) {
                self.report.note(&figures);
                self.crowd.confirm();
                break;
            }
            if Instant::now() > end {
                let mut findings = tell_bad(&figures, which);
                findings.extend(self.crowd.walkers.iter().map(Walker::state));
                findings.extend(self.investigate(life));
                return Err(findings);
            }
            self.wait_for_rounds(life, 1)?;
        }
        let complaints = [life.broker.log_lines("panicked"), life.broker.log_lines("ERROR")].concat();
        if complaints.is_empty() { Ok(()) } else { Err(complaints) }
    }

    /// Finds out whose subscriptions are others than expected, and whether the difference remains after all clients
    /// have gone. This ends all subscriptions and sessions.
    fn investigate(&mut self, life: &mut Life) -> Vec<String> {
        let walkers = self.crowd.walkers.iter_mut();
        let mut findings: Vec<String> =
            walkers.flat_map(|walker| probe::differences(&life.broker, walker)).collect();
        let has_gone = self.crowd.disband(&life.broker, &mut life.warden);
        if let Err(unsettled) = has_gone.and_then(|()| self.wait_for_rounds(life, 3)) {
            findings.extend(unsettled);
            return findings;
        }
        let expected = Expected {
            holdings: &self.crowd.holdings(),
            queued: 0,
            empty: &life.empty,
            is_key_ordered: life.is_key_ordered,
            is_disbanded: true,
        };
        let figures = expected.figures(&life.watcher, &life.broker, &self.data_dir());
        findings.extend(tell_bad(&figures, "everybody has gone after the comparison"));
        findings
    }

    /// Prints a line about the quiet point, and adds its figures to the report.
    fn note(&mut self, life: &mut Life) {
        let resident = life.broker.resident_bytes().unwrap_or(0) as u64;
        life.trend.note(life.begun.elapsed(), resident);
        let all = self.crowd.holdings();
        for walker in &mut self.crowd.walkers {
            self.report.received += std::mem::take(&mut walker.received);
            self.report.refused += std::mem::take(&mut walker.refused);
            for reason in walker.ended.drain(..) {
                *self.report.ended.entry(reason).or_default() += 1;
            }
        }
        println!(
            "[{:>6.0} s] quiet point {}: {} clients, {} sessions, {} subscriptions, {} groups, {} retained; {} promises \
             kept, {} others received; {:.1} MiB resident, {:.1} s of CPU; {} shards",
            self.begun.elapsed().as_secs_f64(),
            self.report.quiet_points,
            all.connected,
            all.sessions,
            all.subscriptions,
            all.groups.len(),
            all.retained,
            self.report.promised,
            self.report.received,
            resident as f64 / 1_048_576.0,
            spent(life.broker.process_id()).as_secs_f64(),
            life.shards
        );
    }

    /// Ends the broker by SIGTERM or SIGKILL.
    fn end(&mut self, life: Life) -> Outcome {
        let Life { mut broker, watcher, warden, .. } = life;
        drop((watcher, warden));
        let is_killed = !self.is_over() && self.random.one_in(2);
        let mut findings = Vec::new();
        if !is_killed {
            broker.terminate();
            let status = broker.wait();
            if !status.success() {
                findings.push(format!("the broker ends with {status}:\n{}", broker.log()));
            }
        }
        drop(broker);
        self.report.killed += u64::from(is_killed);
        self.report.terminated += u64::from(!is_killed);
        self.crowd.survive();
        if let Some(world) = &mut self.world {
            world.hang_up();
        }
        if findings.is_empty() { Ok(()) } else { Err(findings) }
    }
}

/// Describes the figures that are not as expected.
fn tell_bad(figures: &[Figure], which: &str) -> Vec<String> {
    let bad = figures.iter().filter(|figure| !figure.is_good());
    bad.map(|figure| format!("{which}: {figure}")).collect()
}
