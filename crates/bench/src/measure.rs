//! One run of one load against one server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use wire::{Disconnect, Version};

use crate::connections::Connections;
use crate::crew::Crew;
use crate::error::{Error, Result};
use crate::host::{CpuList, thread_busy_time};
use crate::layers::ClientStack;
use crate::load::{Outcome, Part};
use crate::process::{ProcessGroup, Processes};
use crate::protocol::to_bytes;
use crate::setup::Setup;

/// Time limit for a silent server while clients are set up.
const SETUP_PATIENCE: Duration = Duration::from_secs(10);

/// Time limit for a server to close connections after DISCONNECT.
const CLOSE_PATIENCE: Duration = Duration::from_secs(2);

/// Time between two looks at progress, or at memory that settles.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Maximum number of checks until memory counts as settled.
const LOOKS_MAX: u32 = 20;

/// Longest packet that is expected besides messages, bytes.
const SETUP_PACKET_LEN_MAX: usize = 4096;

/// The generator: threads that each drive a share of the connections.
#[derive(Debug, Clone)]
pub(crate) struct Generator {
    /// Number of threads.
    pub(crate) workers: usize,
    /// The processors that the threads are confined to, in turn.
    pub(crate) cpus: Option<CpuList>,
    pub(crate) version: Version,
}

/// The measured server.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    /// Addresses of further replicas of the server: connections go to all addresses in turn.
    pub(crate) further: Vec<SocketAddr>,
    /// The layers of connections to it; `None` over TCP alone.
    pub(crate) stack: Option<Arc<ClientStack>>,
    /// Its process, if it can be looked at, or those of its replicas.
    pub(crate) servers: Processes,
    /// The processes of a load balancer in front of it.
    pub(crate) balancer: Option<ProcessGroup>,
}

impl Target {
    /// A server over TCP alone, whose process nobody looks at.
    pub(crate) fn at(address: SocketAddr) -> Self {
        let servers = Processes::default();
        Self { address, further: Vec::new(), stack: None, servers, balancer: None }
    }
}

/// Result of a run.
#[derive(Debug, Clone)]
pub(crate) struct Measured {
    pub(crate) outcome: Outcome,
    /// From the first message to the last arrival.
    pub(crate) elapsed: Duration,
    /// CPU time of the server in that time, or of all its replicas.
    pub(crate) server_cpu: Option<Duration>,
    /// CPU time of the load balancer in that time.
    pub(crate) balancer_cpu: Option<Duration>,
    /// The share of the busiest replica in the CPU time of all replicas.
    pub(crate) busiest_share: Option<f64>,
    /// The server's largest resident memory since before the first connection, bytes.
    pub(crate) peak_bytes: Option<u64>,
    /// Resident memory, without pages of files, that each connection added to the server before the load began, bytes. `None`
    /// unless it was waited for to settle.
    pub(crate) connection_bytes: Option<f64>,
    /// The share of the time in which the generator's busiest thread ran or waited for a processor.
    pub(crate) generator_busy: f64,
    /// The common start, if agents were the generator.
    pub(crate) concert: Option<Concert>,
}

/// The common start of agents.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Concert {
    /// The clocks of agents are known to this.
    pub(crate) uncertainty: Duration,
    /// From the first start to the last one.
    pub(crate) spread: Duration,
}

/// CPU times up to now, or in a time.
#[derive(Debug)]
pub(crate) struct CpuTimes {
    /// Of each replica.
    servers: Option<Vec<Duration>>,
    balancer: Option<Duration>,
}

impl CpuTimes {
    /// The times up to now.
    pub(crate) fn of(target: &Target) -> Self {
        let servers = target.servers.cpu_times();
        Self { servers, balancer: target.balancer.and_then(ProcessGroup::cpu_time) }
    }

    /// The times from those of an earlier moment on.
    pub(crate) fn since(self, before: Self) -> Self {
        let pairs = before.servers.zip(self.servers);
        let servers = pairs.map(|(before, after)| {
            before.iter().zip(&after).map(|(before, after)| after.saturating_sub(*before)).collect()
        });
        let balancer = before.balancer.zip(self.balancer);
        Self { servers, balancer: balancer.map(|(before, after)| after.saturating_sub(before)) }
    }

    pub(crate) fn of_servers(&self) -> Option<Duration> {
        self.servers.as_ref().map(|times| times.iter().sum())
    }

    pub(crate) fn of_balancer(&self) -> Option<Duration> {
        self.balancer
    }

    /// The share of the busiest replica in the time of all.
    pub(crate) fn busiest_share(&self) -> Option<f64> {
        let (most, all) = (self.servers.iter().flatten().max()?, self.of_servers()?);
        (!all.is_zero()).then(|| most.as_secs_f64() / all.as_secs_f64())
    }
}

/// Decides when the threads of a run start, and when it ends.
pub(crate) trait Conductor {
    /// Looks now and then at the number of messages that have arrived, and that will.
    ///
    /// # Errors
    /// An error ends the run.
    fn look(&mut self, arrived: u64, expected: u64) -> Result<()>;

    /// All clients are set up. The clock starts when this returns.
    ///
    /// # Errors
    /// An error ends the run.
    fn wait_for_start(&mut self) -> Result<()> {
        Ok(())
    }

    /// All threads have come to their end. Connections are closed when this returns.
    ///
    /// # Errors
    /// An error ends the run.
    fn wait_for_others(&mut self) -> Result<()> {
        Ok(())
    }
}

/// A generator that works alone.
struct Alone<F>(F);

impl<F: FnMut(u64, u64) -> Result<()>> Conductor for Alone<F> {
    fn look(&mut self, arrived: u64, expected: u64) -> Result<()> {
        (self.0)(arrived, expected)
    }
}

/// Figures of the server's process.
#[derive(Debug)]
struct Observed {
    /// Resident memory, without pages of files, when all clients were set up.
    anonymous_bytes: Option<u64>,
    cpu: CpuTimes,
    peak_bytes: Option<u64>,
    elapsed: Duration,
}

/// Result of one thread.
#[derive(Debug)]
struct Share {
    outcome: Outcome,
    busy: f64,
}

impl Generator {
    /// Runs a load, one part per thread. `look` is called now and then with the messages that have arrived and the
    /// number that will; an error of its ends the run.
    ///
    /// # Errors
    /// What `look` returns; or if the server cannot be reached, closes a connection, or does what MQTT forbids.
    pub(crate) fn measure<P: Part>(
        &self,
        parts: Vec<P>,
        target: &Target,
        look: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<Measured> {
        self.conduct(parts, 0, target, &mut Alone(look))
    }

    /// The same with the start and the end that a conductor chooses. `first` is the number of the first thread among
    /// those of all generators.
    ///
    /// # Errors
    /// As [`Self::measure`], with those of the conductor.
    pub(crate) fn conduct<P: Part>(
        &self,
        parts: Vec<P>,
        first: usize,
        target: &Target,
        conductor: &mut dyn Conductor,
    ) -> Result<Measured> {
        let crew = &Crew::new(parts.len());
        let expected = parts.iter().map(|part| part.expected()).sum();
        let connections: usize = parts.iter().map(|part| part.clients().len()).sum();
        let settles = parts.iter().any(Part::measures_memory);
        target.servers.reset_peak();
        let anonymous_before = target.servers.anonymous_bytes();
        let (shares, observed) = thread::scope(|scope| {
            let spawn = |(worker, part)| scope.spawn(move || self.work(part, worker, target, crew));
            let threads: Vec<_> = (first..).zip(parts).map(spawn).collect();
            let observed = observe(target, crew, settles, &mut Audience { conductor, expected });
            if observed.is_err() {
                crew.give_up();
            }
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            (threads.into_iter().map(join).collect::<Result<Vec<_>>>(), observed)
        });
        // If the run was ended from here, what the threads made of it is of no interest.
        let observed = observed?;
        let (shares, observed) = (shares?, observed.expect("if a thread failed, its error was returned"));
        let mut outcome = Outcome::default();
        let generator_busy = shares.iter().flatten().map(|share| share.busy).fold(0.0, f64::max);
        shares.into_iter().flatten().for_each(|share| outcome.add(share.outcome));
        let added = anonymous_before
            .zip(observed.anonymous_bytes)
            .map(|(before, after)| after as f64 - before as f64);
        Ok(Measured {
            outcome,
            elapsed: observed.elapsed,
            busiest_share: observed.cpu.busiest_share(),
            server_cpu: observed.cpu.of_servers(),
            balancer_cpu: observed.cpu.of_balancer(),
            peak_bytes: observed.peak_bytes,
            connection_bytes: added
                .filter(|_| settles && connections > 0)
                .map(|bytes| bytes / connections as f64),
            generator_busy,
            concert: None,
        })
    }

    /// One thread's work; `None` if another thread failed, which says why.
    fn work<P: Part>(
        &self,
        mut part: P,
        worker: usize,
        target: &Target,
        crew: &Crew,
    ) -> Result<Option<Share>> {
        let promise = crew.promise();
        if let Some(cpus) = &self.cpus {
            cpus.for_worker(worker).confine_this_thread()?;
        }
        let packet_len_max = part.packet_len_max().max(SETUP_PACKET_LEN_MAX);
        let mut connections = Connections::new(target, packet_len_max, worker)?;
        if part.keeps_sessions() {
            connections.keep_sessions();
        }
        let clients = part.clients();
        let is_set_up = connections.drive(&mut Setup::new(&clients, self.version), crew, SETUP_PATIENCE)?;
        if !is_set_up && !crew.has_failed() {
            return Err(Error::Server("stopped answering while clients were set up".into()));
        }
        if crew.pass().is_err() {
            return Ok(None);
        }
        let (started, busy_before) = (Instant::now(), thread_busy_time()?);
        let patience = part.patience();
        connections.drive(&mut part, crew, patience)?;
        let busy = thread_busy_time()?.saturating_sub(busy_before);
        let busy = busy.as_secs_f64() / started.elapsed().as_secs_f64();
        if crew.pass().is_err() {
            return Ok(None);
        }
        if part.begin_aftermath() {
            connections.drive(&mut part, crew, patience)?;
        }
        if crew.pass().is_err() {
            return Ok(None);
        }
        connections.close(&to_bytes(Disconnect::default(), self.version), CLOSE_PATIENCE);
        promise.keep();
        Ok(Some(Share { outcome: part.outcome()?, busy }))
    }
}

/// A conductor, with the number of messages that will arrive.
struct Audience<'a> {
    conductor: &'a mut dyn Conductor,
    expected: u64,
}

impl Audience<'_> {
    fn look(&mut self, arrived: u64) -> Result<()> {
        self.conductor.look(arrived, self.expected)
    }
}

/// Opens the gates for the crew, and looks at the server at the right times; `None` if a thread failed.
///
/// # Errors
/// Those of the conductor.
fn observe(
    target: &Target,
    crew: &Crew,
    settles: bool,
    audience: &mut Audience<'_>,
) -> Result<Option<Observed>> {
    if !crew.await_all(LOOK_INTERVAL, || audience.look(0))? {
        return Ok(None);
    }
    let anonymous_bytes = anonymous_bytes(&target.servers, settles);
    audience.conductor.wait_for_start()?;
    let before = CpuTimes::of(target);
    crew.start();
    crew.open();
    if !crew.await_all(LOOK_INTERVAL, || audience.look(crew.arrived()))? {
        return Ok(None);
    }
    let cpu = CpuTimes::of(target).since(before);
    let peak_bytes = target.servers.peak_bytes();
    let observed = Observed { anonymous_bytes, cpu, peak_bytes, elapsed: crew.elapsed() };
    audience.conductor.wait_for_others()?;
    crew.start();
    crew.open();
    if !crew.await_all(LOOK_INTERVAL, || audience.look(crew.arrived()))? {
        return Ok(None);
    }
    crew.open();
    Ok(Some(observed))
}

/// Resident memory without pages of files; if it `settles`, once two looks in a row see the same.
fn anonymous_bytes(servers: &Processes, settles: bool) -> Option<u64> {
    let mut now = servers.anonymous_bytes();
    for _ in 0..if settles { LOOKS_MAX } else { 0 } {
        thread::sleep(LOOK_INTERVAL);
        let earlier = std::mem::replace(&mut now, servers.anonymous_bytes());
        if now == earlier {
            break;
        }
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_replica_has_the_largest_share_of_the_time() {
        let times = |millis: &[u64], balancer| CpuTimes {
            servers: Some(millis.iter().map(|ms| Duration::from_millis(*ms)).collect()),
            balancer,
        };
        let used = times(&[40, 30], Some(Duration::from_millis(9))).since(times(&[10, 20], None));
        assert_eq!(used.of_servers(), Some(Duration::from_millis(40)));
        assert_eq!((used.busiest_share(), used.of_balancer()), (Some(0.75), None));
        assert_eq!(times(&[0, 0], None).busiest_share(), None);
        let nobody = CpuTimes { servers: None, balancer: None };
        assert_eq!(times(&[1], None).since(nobody).of_servers(), None);
    }
}
