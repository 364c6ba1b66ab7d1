//! One run of one load against one server.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::connections::Connections;
use crate::crew::Crew;
use crate::error::{Error, Result};
use crate::host::{CpuList, thread_cpu_time};
use crate::load::{Outcome, Part};
use crate::process::Process;
use crate::protocol::{self, Version};
use crate::setup::Setup;

/// How long a server may be silent while clients are set up.
const SETUP_PATIENCE: Duration = Duration::from_secs(10);

/// How long a server may take to close connections after DISCONNECT.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// Time between two looks at progress, or at memory that settles.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// How often memory is looked at, at most, before it counts as settled.
const LOOKS_MAX: u32 = 20;

/// Longest packet that is expected besides messages, bytes.
const SETUP_PACKET_LEN_MAX: usize = 4096;

/// The generator: threads that each drive a share of the connections.
#[derive(Debug, Clone)]
pub(crate) struct Generator {
    /// How many threads.
    pub(crate) workers: usize,
    /// The processors that the threads are confined to, in turn.
    pub(crate) cpus: Option<CpuList>,
    pub(crate) version: Version,
}

/// Who is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// Its process, if it can be looked at.
    pub(crate) process: Option<Process>,
}

/// What a run showed.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) outcome: Outcome,
    /// From the first message to the last arrival.
    pub(crate) elapsed: Duration,
    /// CPU time of the server in that time.
    pub(crate) server_cpu: Option<Duration>,
    /// The server's largest resident memory since before the first connection, bytes.
    pub(crate) peak_bytes: Option<u64>,
    /// Resident memory that each connection added to the server before the load began, bytes.
    pub(crate) connection_bytes: Option<f64>,
    /// The busiest thread's CPU time, as a share of the time that it took.
    pub(crate) generator_busy: f64,
}

/// What one thread brought.
#[derive(Debug)]
struct Share {
    outcome: Outcome,
    busy: f64,
}

impl Generator {
    /// Runs a load, one part per thread. `look` is called now and then with the messages that have arrived and the
    /// number that will.
    ///
    /// # Errors
    /// If the server cannot be reached, closes a connection, or does what MQTT forbids.
    pub(crate) fn measure<P: Part>(
        &self,
        parts: Vec<P>,
        target: Target,
        mut look: impl FnMut(u64, u64),
    ) -> Result<Measured> {
        let crew = &Crew::new(parts.len());
        let expected = parts.iter().map(|part| part.expected()).sum();
        let connections: usize = parts.iter().map(|part| part.clients().len()).sum();
        let measures_memory = parts.iter().any(Part::measures_memory);
        if let Some(process) = target.process {
            process.reset_peak();
        }
        let resident_before = target.process.and_then(Process::resident_bytes);
        thread::scope(|scope| {
            let spawn = |(worker, part)| scope.spawn(move || self.work(part, worker, target.address, crew));
            let threads: Vec<_> = parts.into_iter().enumerate().map(spawn).collect();
            let mut readings = None;
            if crew.await_all(LOOK_INTERVAL, || {}).is_ok() {
                let resident = target.process.and_then(|process| resident_bytes(process, measures_memory));
                let cpu_before = target.process.and_then(Process::cpu_time);
                crew.start();
                crew.open();
                if crew.await_all(LOOK_INTERVAL, || look(crew.arrived(), expected)).is_ok() {
                    let cpu_after = target.process.and_then(Process::cpu_time);
                    let server_cpu =
                        cpu_before.zip(cpu_after).map(|(before, after)| after.saturating_sub(before));
                    readings = Some((resident, server_cpu, target.process.and_then(Process::peak_bytes)));
                    crew.open();
                }
            }
            let mut total = Share { outcome: Outcome::default(), busy: 0.0 };
            for thread in threads {
                let share = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                if let Some(share) = share {
                    total.outcome.add(share.outcome);
                    total.busy = total.busy.max(share.busy);
                }
            }
            let (resident, server_cpu, peak_bytes) =
                readings.expect("without readings a thread returned its error");
            let added = resident_before.zip(resident).map(|(before, after)| after as f64 - before as f64);
            Ok(Measured {
                outcome: total.outcome,
                elapsed: crew.elapsed(),
                server_cpu,
                peak_bytes,
                connection_bytes: added.filter(|_| connections > 0).map(|bytes| bytes / connections as f64),
                generator_busy: total.busy,
            })
        })
    }

    /// One thread's work; `None` if another thread failed, which says why.
    fn work<P: Part>(
        &self,
        mut part: P,
        worker: usize,
        address: SocketAddr,
        crew: &Crew,
    ) -> Result<Option<Share>> {
        let promise = crew.promise();
        if let Some(cpus) = &self.cpus {
            cpus.for_worker(worker).confine_this_thread()?;
        }
        let packet_len_max = part.packet_len_max().max(SETUP_PACKET_LEN_MAX);
        let mut connections = Connections::new(address, packet_len_max, worker)?;
        let clients = part.clients();
        let is_set_up = connections.drive(&mut Setup::new(&clients, self.version), crew, SETUP_PATIENCE)?;
        if !is_set_up && !crew.has_failed() {
            return Err(Error::Server("stopped answering while clients were set up".into()));
        }
        if crew.pass().is_err() {
            return Ok(None);
        }
        let (started, cpu_before) = (Instant::now(), thread_cpu_time()?);
        let patience = part.patience();
        connections.drive(&mut part, crew, patience)?;
        let cpu = thread_cpu_time()?.saturating_sub(cpu_before);
        let busy = cpu.as_secs_f64() / started.elapsed().as_secs_f64();
        if crew.pass().is_err() {
            return Ok(None);
        }
        connections.close(&protocol::disconnect(), CLOSE_PATIENCE);
        promise.keep();
        Ok(Some(Share { outcome: part.outcome()?, busy }))
    }
}

/// Resident memory; if it `settles`, once two looks in a row see the same.
fn resident_bytes(process: Process, settles: bool) -> Option<u64> {
    let mut resident = process.resident_bytes();
    for _ in 0..if settles { LOOKS_MAX } else { 0 } {
        thread::sleep(LOOK_INTERVAL);
        let earlier = std::mem::replace(&mut resident, process.resident_bytes());
        if resident == earlier {
            break;
        }
    }
    resident
}
