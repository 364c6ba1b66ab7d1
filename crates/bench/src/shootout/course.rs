//! The course of a shoot-out: rounds in which every server runs every workload once.
//!
//! ```text
//! round 1: workload a: server 1, server 2, …   workload b: server 1, server 2, …
//! round 2: server 2, server 3, …, without workloads whose figures are all precise, and servers that have failed twice
//! ```
//!
//! Rounds are interleaved, so that what the machine does meanwhile hits all alike. Each run has a server of its own:
//! started, warmed up, measured, ended.

use std::thread;
use std::time::{Duration, Instant};

use super::memory::Watch;
use super::peer::{Contestant, Peer};
use super::quantity::RELAY;
use super::results::{Cell, Concert, Measure, Role, Run, Size};
use super::workload::{Amount, Workload};
use super::{Setting, results};
use crate::error::{Error, Result};
use crate::load::Troubled;
use crate::measure::Measured;
use crate::sequence::Tally;

/// Runs that may fail until a server is not tried again.
const FAILURES_MAX: usize = 2;

/// Time after which a server's memory counts as what it keeps.
const AFTER: Duration = Duration::from_millis(500);

/// Time after which a warm-up ends in which messages were lost.
const LOSSY_WARM_UP_MAX: Duration = Duration::from_secs(8);

/// Messages that are slower than a percentile, at least.
const BEYOND_MIN: f64 = 10.0;

/// Latencies that are kept, in per cent.
const PERCENTILES: [f64; 8] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0];

/// Runs all rounds, and passes all that is known after each of them to `keep`.
///
/// # Errors
/// If the machine refuses something to the generator, or there is an interrupt. What was measured by then is in `all`.
pub(super) fn run<C: Contestant>(
    setting: &Setting,
    contestants: &[C],
    workloads: &[Workload],
    all: &mut Vec<results::Workload>,
    mut keep: impl FnMut(&[results::Workload]) -> Result<()>,
) -> Result<()> {
    if contestants.is_empty() {
        return Ok(());
    }
    *all = workloads.iter().map(|workload| empty(workload, contestants)).collect();
    for round in 0..setting.rounds_max {
        for (workload, result) in workloads.iter().zip(all.iter_mut()) {
            for size in 0..result.sizes.len() {
                if is_settled(setting, workload, size, round, result) {
                    continue;
                }
                // Each server has another one before it in each round.
                let first = usize::try_from(round).unwrap_or_default() % contestants.len();
                for contestant in contestants[first..].iter().chain(&contestants[..first]) {
                    run_cell(setting, contestant, workload, size, round, result)?;
                }
            }
        }
        keep(all)?;
    }
    Ok(())
}

fn empty<C: Contestant>(workload: &Workload, contestants: &[C]) -> results::Workload {
    let entry = &workload.entry;
    let sizes = workload.sizes().into_iter().enumerate().map(|(size, name)| Size {
        name,
        connections: workload.connections(size),
        share_of_best: workload.share_of_best(size),
        is_paced: workload.is_paced(size),
        role: workload.role(size),
    });
    let sizes: Vec<Size> = sizes.collect();
    let cells = contestants.iter().flat_map(|contestant| {
        (0..sizes.len()).map(|size| Cell {
            server: contestant.name().to_owned(),
            size,
            skipped: unsuited(workload, size, contestant.peer()),
            runs: Vec::new(),
        })
    });
    results::Workload {
        name: entry.name.clone(),
        title: entry.title.clone(),
        text: entry.text.clone(),
        bench: entry.bench.clone(),
        qos: workload.qos() as u8,
        counted: workload.counted(),
        cells: cells.collect(),
        sizes,
    }
}

/// Why a server cannot take part, if it cannot.
fn unsuited(workload: &Workload, size: usize, peer: &Peer) -> Option<String> {
    let qos = workload.qos() as u8;
    let version = workload.version.to_string();
    let entry = &peer.entry;
    let speaks = entry.versions.iter().any(|known| version.trim_end_matches(".0") == *known);
    if let Some(why) = entry.unsuited.get(workload.test_name()) {
        return Some(why.clone());
    }
    match () {
        () if peer.name() == RELAY && !workload.suits_relay(size) => {
            Some("the relay knows no protocol".to_owned())
        }
        () if !peer.has_recipe(workload.over) => Some(format!("no recipe over {}", workload.over.name())),
        () if qos > entry.qos_max => Some(format!("no QoS {qos}")),
        () if !speaks => Some(format!("no MQTT {version}")),
        () => None,
    }
}

/// Runs one server once, if there is more to find out.
fn run_cell(
    setting: &Setting,
    contestant: &impl Contestant,
    workload: &Workload,
    size: usize,
    round: u32,
    result: &mut results::Workload,
) -> Result<()> {
    let share = result.sizes[size].share_of_best;
    // The rate itself is the size before the shares.
    let best = share.and_then(|_| {
        let first = result.sizes.iter().position(|size| size.share_of_best.is_some())?;
        let cell = result.cell(contestant.name(), first.checked_sub(1)?)?;
        Some(cell.estimate(Measure::MessagesPerSec)?.mean)
    });
    let is_own = |cell: &&mut Cell| cell.server == contestant.name() && cell.size == size;
    let Some(cell) = result.cells.iter_mut().find(is_own) else {
        return Ok(());
    };
    let failures = cell.runs.iter().filter(|run| run.failure.is_some()).count();
    if cell.skipped.is_some() || failures >= FAILURES_MAX {
        return Ok(());
    }
    let rate = match (share, best) {
        (Some(share), Some(best)) => Some(best * share),
        // The next round may find it out.
        (Some(_), None) => return Ok(()),
        (None, _) => workload.rate(),
    };
    let amount = rate.map(|rate| Amount::Paced { rate, seconds: setting.seconds });
    let (name, size_name) = (&workload.entry.name, &workload.sizes()[size]);
    eprintln!("round {}, {name}, {size_name}: {}", round + 1, contestant.name());
    let run = match run_once(setting, contestant, workload, size, amount) {
        Ok(run) => run,
        Err(Error::Server(what)) => Run { failure: Some(what), ..Run::default() },
        Err(error) => return Err(error),
    };
    cell.runs.push(run);
    Ok(())
}

/// Whether nothing more is to be found out about a size: all servers are known precisely, or have failed.
///
/// A server that is known precisely runs on for the others, so that all have the same rounds.
fn is_settled(
    setting: &Setting,
    workload: &Workload,
    size: usize,
    round: u32,
    result: &results::Workload,
) -> bool {
    if round < setting.rounds_min {
        return false;
    }
    let has_rate = |cell: &Cell| cell.estimate(Measure::MessagesPerSec).is_some();
    let measure = match workload.role(size) {
        Role::Control => return true,
        Role::Demand => Measure::CompletionSecs,
        Role::Load if workload.is_paced(size) => Measure::Latency(9_900),
        Role::Load if result.cells.iter().any(has_rate) => Measure::MessagesPerSec,
        Role::Load => Measure::PeakBytes,
    };
    let is_precise = |cell: &Cell| {
        let estimate = cell.estimate(measure);
        cell.skipped.is_some() || estimate.is_none_or(|estimate| estimate.precision() <= setting.precision)
    };
    round >= workload.entry.rounds_max.unwrap_or(setting.rounds_max)
        || result.cells.iter().filter(|cell| cell.size == size).all(is_precise)
}

fn run_once(
    setting: &Setting,
    contestant: &impl Contestant,
    workload: &Workload,
    size: usize,
    amount: Option<Amount>,
) -> Result<Run> {
    let interrupt = &setting.interrupt;
    interrupt.check()?;
    let mut server = contestant.start(setting, workload.over)?;
    let watch = Watch::begin(server.target.servers.clone());
    let patience = setting.run_patience + workload.duration();
    let deadline = Instant::now() + patience;
    let check = || {
        interrupt.check()?;
        let is_late = Instant::now() > deadline;
        if is_late { Err(Error::Server(format!("had not done after {patience:?}"))) } else { Ok(()) }
    };
    let run = |amount| {
        // A short run is over before it is looked at.
        check()?;
        workload.run(size, amount, setting.source(), &server.target, check)
    };
    let mut warm_up = WarmUp::default();
    let (measured, words) = if workload.is_scalable() {
        let rate = warm_up.run(setting.warm_up_seconds, run)?;
        run(amount.unwrap_or(Amount::For { rate, seconds: setting.seconds }))?
    } else {
        run(Amount::AsWritten)?
    };
    thread::sleep(AFTER);
    let after_bytes = server.target.servers.resident_bytes();
    let memory = watch.finish();
    if let Some(why) = server.ended() {
        return Err(Error::Server(why));
    }
    if let Some(troubled) = measured.outcome.troubled.filter(|troubled| troubled.received < troubled.expected)
    {
        let Troubled { expected, received, .. } = troubled;
        return Err(Error::Server(format!("completed {received} of {expected}, and then nothing more came")));
    }
    Ok(Run { memory, ..figures(&measured, words, &warm_up, after_bytes) })
}

/// Messages before the clock starts, so that caches are warm and virtual machines have compiled what is used.
#[derive(Default)]
struct WarmUp {
    messages: u64,
    tally: Tally,
}

impl WarmUp {
    /// Runs longer and longer pieces until this time is over. Returns the rate of the last one, messages per second.
    fn run(&mut self, seconds: f64, run: impl Fn(Amount) -> Result<(Measured, String)>) -> Result<f64> {
        let (mut amount, mut taken, began) = (Amount::WarmUp, 0.0, Instant::now());
        loop {
            let (measured, _) = run(amount)?;
            let piece = measured.elapsed.as_secs_f64();
            taken += piece;
            self.messages += measured.outcome.messages;
            self.tally.add(measured.outcome.tally);
            let rate = measured.messages_per_sec().unwrap_or(1.0);
            // The rate of a short piece is that of its beginning. If messages were lost, each piece waits for them.
            let is_lossy = self.tally.lost > 0 && began.elapsed() > LOSSY_WARM_UP_MAX;
            if is_lossy || taken >= seconds && piece >= seconds / 4.0 {
                return Ok(rate);
            }
            amount = Amount::For { rate, seconds: (4.0 * piece).clamp(seconds / 20.0, seconds) };
        }
    }
}

fn figures(measured: &Measured, words: String, warm_up: &WarmUp, after_bytes: Option<u64>) -> Run {
    let mut tally = measured.outcome.tally;
    tally.add(warm_up.tally);
    let latency = measured.outcome.latency.as_ref().filter(|latency| !latency.is_empty());
    let latency_ms = latency.map(|latency| {
        // A percentile with hardly any message beyond it is chance.
        let beyond = |percentile: f64| latency.len() as f64 * (100.0 - percentile) / 100.0;
        let known = PERCENTILES.into_iter().filter(|at| *at >= 100.0 || beyond(*at) >= BEYOND_MIN);
        known.map(|at| (at, latency.value_at_percentile(at) as f64 / 1e6)).collect()
    });
    Run {
        failure: None,
        words,
        warm_up_messages: warm_up.messages,
        messages: measured.outcome.messages,
        seconds: measured.elapsed.as_secs_f64(),
        lost: tally.lost,
        duplicated: tally.duplicated,
        out_of_order: tally.out_of_order,
        unexpected: tally.unexpected,
        cpu_secs: measured.server_cpu.map(|cpu| cpu.as_secs_f64()),
        balancer_cpu_secs: measured.balancer_cpu.map(|cpu| cpu.as_secs_f64()),
        busiest_share: measured.busiest_share,
        peak_bytes: measured.peak_bytes,
        after_bytes,
        connection_bytes: measured.connection_bytes,
        completion_secs: measured.outcome.troubled.map(|troubled| troubled.took.as_secs_f64()),
        generator_busy: measured.generator_busy,
        latency_ms: latency_ms.unwrap_or_default(),
        concert: measured.concert.map(|concert| Concert {
            uncertainty_ms: concert.uncertainty.as_secs_f64() * 1e3,
            spread_ms: concert.spread.as_secs_f64() * 1e3,
        }),
        ..Run::default()
    }
}
