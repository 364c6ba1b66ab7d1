//! Processors, descriptors and CPU time of this process.

use std::str::FromStr;
use std::time::Duration;
use std::{fmt, fs};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::{ClockId, clock_gettime};

use crate::error::{Error, Result};

/// Descriptors that are open besides connections: the poller, files, pipes to child processes.
const DESCRIPTORS_SPARE: u64 = 64;

/// Nanoseconds that the calling thread has run and waited to run (Linux, Documentation/scheduler/sched-stats).
const THREAD_SCHEDULE: &str = "/proc/thread-self/schedstat";

/// A list of processors, written `1` or `0,2-3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CpuList(Vec<usize>);

impl CpuList {
    /// Number of processors in the list.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The processor of worker number `worker`, going round.
    pub(crate) fn for_worker(&self, worker: usize) -> Self {
        Self(vec![self.0[worker % self.0.len()]])
    }

    /// Confines the calling thread, and what it starts from now on, to these processors.
    ///
    /// # Errors
    /// If there is no such processor, or the system cannot confine threads.
    #[cfg(target_os = "linux")]
    pub(crate) fn confine_this_thread(&self) -> Result<()> {
        let mut set = nix::sched::CpuSet::new();
        for &cpu in &self.0 {
            set.set(cpu).map_err(Error::errno(format!("use processor {cpu}")))?;
        }
        apply(&set).map_err(Error::errno(format!("confine a thread to processors {self}")))
    }

    /// Confines the calling thread, and what it starts from now on, to these processors.
    ///
    /// # Errors
    /// Always: this system cannot confine threads.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn confine_this_thread(&self) -> Result<()> {
        Err(Error::Io {
            doing: format!("confine a thread to processors {self}"),
            source: std::io::ErrorKind::Unsupported.into(),
        })
    }
}

/// Lets all other threads of this machine run before the calling thread.
///
/// Only Linux has a priority for each thread; elsewhere, nothing changes.
pub(crate) fn yield_to_others() {
    #[cfg(target_os = "linux")]
    {
        // Without the right to do so the thread keeps its priority, and measures are less steady.
        let _ = rustix::process::nice(19);
    }
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let number =
            |text: &str| text.parse::<usize>().map_err(|_| format!("`{text}` is not a processor number"));
        let mut cpus = Vec::new();
        for part in text.split(',') {
            match part.split_once('-') {
                Some((first, last)) => cpus.extend(number(first)?..=number(last)?),
                None => cpus.push(number(part)?),
            }
        }
        if cpus.is_empty() { Err(format!("`{text}` names no processor")) } else { Ok(Self(cpus)) }
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&names.join(","))
    }
}

/// Runs `action` with the calling thread confined to `cpus`, and then lifts the confinement.
///
/// # Errors
/// Those of `action`, and of [`CpuList::confine_this_thread`].
pub(crate) fn while_confined<T>(cpus: Option<&CpuList>, action: impl FnOnce() -> Result<T>) -> Result<T> {
    let Some(cpus) = cpus else { return action() };
    let before = Affinity::of_this_thread()?;
    cpus.confine_this_thread()?;
    let result = action();
    before.restore()?;
    result
}

/// Raises the limit of open descriptors as far as this process may, so that servers it starts have it too.
///
/// # Errors
/// If `connections` connections at a time need more than that.
pub(crate) fn raise_descriptor_limit(connections: u64) -> Result<()> {
    let needed = connections + DESCRIPTORS_SPARE;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(Error::errno("read the descriptor limit"))?;
    if needed > hard && setrlimit(Resource::RLIMIT_NOFILE, needed, needed).is_ok() {
        return Ok(());
    }
    // A refusal leaves the soft limit as it was, which is then what counts.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).map_err(Error::errno("read the descriptor limit"))?;
    if needed > limit { Err(Error::Descriptors { needed, limit }) } else { Ok(()) }
}

/// Time in which the calling thread ran, or waited for a processor.
///
/// Waiting counts, because other processes that keep the generator from running limit a figure as well. Without this
/// number from the system, the result is the CPU time alone.
///
/// # Errors
/// The system has no such clock.
pub(crate) fn thread_busy_time() -> Result<Duration> {
    if let Some(busy) = fs::read_to_string(THREAD_SCHEDULE).ok().and_then(|schedule| busy_time(&schedule)) {
        return Ok(busy);
    }
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map(Duration::from)
        .map_err(Error::errno("read a thread's clock"))
}

/// The sum of the first two fields of a schedstat file: nanoseconds run, nanoseconds waited.
fn busy_time(schedule: &str) -> Option<Duration> {
    let mut fields = schedule.split_whitespace().map(str::parse);
    let (ran, waited): (u64, u64) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some(Duration::from_nanos(ran.checked_add(waited)?))
}

#[cfg(target_os = "linux")]
struct Affinity(nix::sched::CpuSet);

#[cfg(target_os = "linux")]
impl Affinity {
    fn of_this_thread() -> Result<Self> {
        let this_thread = nix::unistd::Pid::from_raw(0);
        nix::sched::sched_getaffinity(this_thread)
            .map(Self)
            .map_err(Error::errno("read a thread's processors"))
    }

    fn restore(&self) -> Result<()> {
        apply(&self.0).map_err(Error::errno("let a thread loose"))
    }
}

#[cfg(target_os = "linux")]
fn apply(set: &nix::sched::CpuSet) -> nix::Result<()> {
    nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), set)
}

#[cfg(not(target_os = "linux"))]
struct Affinity;

#[cfg(not(target_os = "linux"))]
impl Affinity {
    fn of_this_thread() -> Result<Self> {
        Ok(Self)
    }

    fn restore(&self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_written_as_numbers_and_ranges() {
        assert_eq!("1".parse(), Ok(CpuList(vec![1])));
        assert_eq!("0,2-4".parse(), Ok(CpuList(vec![0, 2, 3, 4])));
        assert!("".parse::<CpuList>().is_err());
        assert!("3-1".parse::<CpuList>().is_err());
        assert!("a".parse::<CpuList>().is_err());
    }

    #[test]
    fn busy_is_what_ran_and_what_waited() {
        assert_eq!(busy_time("1000 234 5\n"), Some(Duration::from_nanos(1234)));
        assert_eq!(busy_time("1000"), None);
    }

    #[test]
    fn workers_share_the_processors_in_turn() {
        let cpus: CpuList = "4,6".parse().unwrap();
        assert_eq!(cpus.for_worker(3).to_string(), "6");
    }
}
