//! The course of a shoot-out: rounds in which every server runs every workload once.
//!
//! ```text
//! round 1: workload a: server 1, server 2, …   workload b: server 1, server 2, …
//! round 2: the same, without what is known precisely or has failed twice
//! ```
//!
//! Rounds are interleaved, so that what the machine does meanwhile hits all alike. Each run has a server of its own:
//! started, warmed up, measured, ended.

use std::thread;
use std::time::{Duration, Instant};

use super::findings::RELAY;
use super::peer::Peer;
use super::results::{Cell, Measure, Run, Size};
use super::workload::{Amount, Workload};
use super::{Setting, results};
use crate::error::{Error, Result};
use crate::measure::Measured;

/// Runs that may fail until a server is not tried again.
const FAILURES_MAX: usize = 2;

/// Time after which a server's memory counts as what it keeps.
const AFTER: Duration = Duration::from_millis(500);

/// Latencies that are kept, in per cent.
const PERCENTILES: [f64; 8] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99, 100.0];

/// Runs all rounds.
///
/// # Errors
/// If the machine refuses something to the generator, or there is an interrupt.
pub(super) fn run(
    setting: &Setting,
    peers: &[Peer],
    workloads: &[Workload],
) -> Result<Vec<results::Workload>> {
    let mut all: Vec<_> = workloads.iter().map(|workload| empty(workload, peers)).collect();
    for round in 0..setting.rounds_max {
        for (workload, result) in workloads.iter().zip(&mut all) {
            for size in 0..result.sizes.len() {
                for peer in peers {
                    run_cell(setting, peer, workload, size, round, result)?;
                }
            }
        }
    }
    Ok(all)
}

fn empty(workload: &Workload, peers: &[Peer]) -> results::Workload {
    let entry = &workload.entry;
    let sizes = workload.sizes().into_iter().enumerate().map(|(size, name)| Size {
        name,
        connections: workload.connections(size),
        share_of_best: workload.share_of_best(size),
    });
    let sizes: Vec<Size> = sizes.collect();
    let cells = peers.iter().flat_map(|peer| {
        let skipped = unsuited(workload, peer);
        (0..sizes.len()).map(move |size| Cell {
            server: peer.name().to_owned(),
            size,
            skipped: skipped.clone(),
            runs: Vec::new(),
        })
    });
    results::Workload {
        name: entry.name.clone(),
        title: entry.title.clone(),
        text: entry.text.clone(),
        bench: entry.bench.clone(),
        cells: cells.collect(),
        sizes,
    }
}

/// Why a server cannot take part, if it cannot.
fn unsuited(workload: &Workload, peer: &Peer) -> Option<String> {
    let qos = workload.qos() as u8;
    let version = workload.version.to_string();
    let entry = &peer.entry;
    let speaks = entry.versions.iter().any(|known| version.trim_end_matches(".0") == *known);
    match () {
        () if peer.name() == RELAY && !workload.entry.with_relay => {
            Some("the relay knows no protocol".to_owned())
        }
        () if qos > entry.qos_max => Some(format!("no QoS {qos}")),
        () if !speaks => Some(format!("no MQTT {version}")),
        () => None,
    }
}

/// Runs one server once, if there is more to find out.
fn run_cell(
    setting: &Setting,
    peer: &Peer,
    workload: &Workload,
    size: usize,
    round: u32,
    result: &mut results::Workload,
) -> Result<()> {
    let share = result.sizes[size].share_of_best;
    // The rate itself is the size before the shares.
    let best = share.and_then(|_| {
        let first = result.sizes.iter().position(|size| size.share_of_best.is_some())?;
        let cell = result.cell(peer.name(), first.checked_sub(1)?)?;
        Some(cell.estimate(Measure::MessagesPerSec)?.mean)
    });
    let Some(cell) = result.cells.iter_mut().find(|cell| cell.server == peer.name() && cell.size == size)
    else {
        return Ok(());
    };
    if is_settled(setting, workload, round, cell) {
        return Ok(());
    }
    let amount = match (share, best) {
        (Some(share), Some(best)) => Some(Amount::Paced { rate: best * share, seconds: setting.seconds }),
        (Some(_), None) => {
            cell.skipped = Some("its best rate is unknown".to_owned());
            return Ok(());
        }
        (None, _) => None,
    };
    setting.say(&format!(
        "round {}, {}, {}: {}",
        round + 1,
        workload.entry.name,
        workload.sizes()[size],
        peer.name()
    ));
    let run = match run_once(setting, peer, workload, size, amount) {
        Ok(run) => run,
        Err(Error::Server(what)) => Run { failure: Some(what), ..Run::default() },
        Err(error) => return Err(error),
    };
    cell.runs.push(run);
    Ok(())
}

/// Whether nothing more is to be found out about a cell.
fn is_settled(setting: &Setting, workload: &Workload, round: u32, cell: &Cell) -> bool {
    let failures = cell.runs.iter().filter(|run| run.failure.is_some()).count();
    let rounds_max = workload.entry.rounds_max.unwrap_or(setting.rounds_max);
    if cell.skipped.is_some() || failures >= FAILURES_MAX || round >= rounds_max {
        return true;
    }
    // An interval of fewer rounds than these is too narrow by chance.
    round >= setting.rounds_min
        && cell
            .estimate(Measure::MessagesPerSec)
            .is_some_and(|estimate| estimate.precision() <= setting.precision)
}

fn run_once(
    setting: &Setting,
    peer: &Peer,
    workload: &Workload,
    size: usize,
    amount: Option<Amount>,
) -> Result<Run> {
    let (cpus, interrupt) = (setting.server_cpus.as_ref(), &setting.interrupt);
    interrupt.check()?;
    let mut server = peer.recipe()?.start(cpus, interrupt)?;
    let deadline = Instant::now() + setting.run_patience;
    let check = || {
        interrupt.check()?;
        let is_late = Instant::now() > deadline;
        if is_late {
            Err(Error::Server(format!("had not done after {:?}", setting.run_patience)))
        } else {
            Ok(())
        }
    };
    let run = |amount| workload.run(size, amount, &setting.generator, server.target, check);
    let measured = if workload.is_scalable() {
        let until = Instant::now() + Amount::warm_up(setting.seconds);
        let mut rate: f64 = 1.0;
        // At least once, and longer where a virtual machine compiles what has run for a while.
        loop {
            rate = rate.max(run(Amount::WarmUp)?.messages_per_sec().unwrap_or(0.0));
            if Instant::now() >= until {
                break;
            }
        }
        run(amount.unwrap_or(Amount::For { rate, seconds: setting.seconds }))?
    } else {
        run(Amount::AsWritten)?
    };
    thread::sleep(AFTER);
    let after_bytes = server.target.process.and_then(|process| process.resident_bytes());
    if !server.is_alive() {
        return Err(Error::Server("ended during the run".to_owned()));
    }
    Ok(figures(&measured, after_bytes))
}

fn figures(measured: &Measured, after_bytes: Option<u64>) -> Run {
    let tally = measured.outcome.tally;
    let latency = measured.outcome.latency.as_ref().filter(|latency| !latency.is_empty());
    let latency_ms = latency.map(|latency| {
        PERCENTILES
            .map(|percentile| (percentile, latency.value_at_percentile(percentile) as f64 / 1e6))
            .to_vec()
    });
    Run {
        failure: None,
        messages: measured.outcome.messages,
        seconds: measured.elapsed.as_secs_f64(),
        lost: tally.lost,
        duplicated: tally.duplicated,
        out_of_order: tally.out_of_order,
        unexpected: tally.unexpected,
        cpu_secs: measured.server_cpu.map(|cpu| cpu.as_secs_f64()),
        peak_bytes: measured.peak_bytes,
        after_bytes,
        connection_bytes: measured.connection_bytes,
        generator_busy: measured.generator_busy,
        latency_ms: latency_ms.unwrap_or_default(),
    }
}
