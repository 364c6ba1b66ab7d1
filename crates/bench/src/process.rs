//! CPU time and memory of a server's process, read from outside.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nix::unistd::Pid;

/// State of a listening socket in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// State of a socket without a peer in `/proc/net/udp`.
const UNCONNECTED: &str = "07";

/// Written to `/proc/PID/clear_refs`, forgets the peak of resident memory (proc(5)).
const RESET_PEAK: &str = "5";

/// A process that is being measured. On systems without `/proc`, memory is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pid: i32,
}

/// Processes that serve together: the replicas of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Processes(Vec<Process>);

impl Processes {
    /// Adds processes.
    pub(crate) fn add(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// The first one, which is the only one unless there are replicas or workers.
    pub(crate) fn first(&self) -> Option<Process> {
        self.0.first().copied()
    }

    /// [`Process::cpu_time`] of each; `None` if one is unknown, or there are none.
    pub(crate) fn cpu_times(&self) -> Option<Vec<Duration>> {
        let times: Option<Vec<Duration>> = self.0.iter().map(|process| process.cpu_time()).collect();
        times.filter(|times| !times.is_empty())
    }

    /// [`Process::resident_bytes`] of all together.
    pub(crate) fn resident_bytes(&self) -> Option<u64> {
        self.sum(Process::resident_bytes)
    }

    /// [`Process::reported_resident_bytes`] of all together.
    pub(crate) fn reported_resident_bytes(&self) -> Option<u64> {
        self.sum(Process::reported_resident_bytes)
    }

    /// [`Process::anonymous_bytes`] of all together.
    pub(crate) fn anonymous_bytes(&self) -> Option<u64> {
        self.sum(Process::anonymous_bytes)
    }

    /// The sum of [`Process::peak_bytes`], which no moment may have had.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        self.sum(Process::peak_bytes)
    }

    /// [`Process::reset_peak`] of all.
    pub(crate) fn reset_peak(&self) {
        self.0.iter().for_each(|process| process.reset_peak());
    }

    /// `None` if one is unknown, or there are none.
    fn sum(&self, of: fn(Process) -> Option<u64>) -> Option<u64> {
        let all: Option<u64> = self.0.iter().map(|process| of(*process)).sum();
        all.filter(|_| !self.0.is_empty())
    }
}

/// A process group: a program that was started, and all that it has started since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessGroup(i32);

impl ProcessGroup {
    /// The group with this number, which is that of its first process.
    pub(crate) fn new(number: i32) -> Self {
        Self(number)
    }

    /// [`Process::cpu_time`] of all that are in the group now, together. A program may accept connections before it has
    /// started its workers, so the group is looked up each time.
    pub(crate) fn cpu_time(self) -> Option<Duration> {
        let processes = fs::read_dir("/proc").ok()?;
        let all =
            processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Process::new));
        let members = all.filter(|process| process.group() == Some(self.0));
        let times: Vec<Duration> = members.filter_map(Process::cpu_time).collect();
        (!times.is_empty()).then(|| times.iter().sum())
    }
}

impl From<Option<Process>> for Processes {
    fn from(process: Option<Process>) -> Self {
        Self(process.into_iter().collect())
    }
}

impl Process {
    /// The process with this id.
    pub(crate) fn new(pid: i32) -> Self {
        Self { pid }
    }

    /// The process that listens on `address`, if this user may see it.
    ///
    /// Matches the port on any local address: a server on `0.0.0.0` is reached as `127.0.0.1`.
    pub(crate) fn listening_on(address: SocketAddr) -> Option<Self> {
        Self::with_socket(["/proc/net/tcp", "/proc/net/tcp6"], LISTEN, address.port())
    }

    /// The process that receives datagrams on `address`, in the same way.
    pub(crate) fn receiving_on(address: SocketAddr) -> Option<Self> {
        Self::with_socket(["/proc/net/udp", "/proc/net/udp6"], UNCONNECTED, address.port())
    }

    fn with_socket(tables: [&str; 2], state: &str, port: u16) -> Option<Self> {
        tables.iter().find_map(|table| {
            let sockets = sockets_in(BufReader::new(File::open(table).ok()?), state, port);
            if sockets.is_empty() {
                return None;
            }
            let mut processes = fs::read_dir("/proc")
                .ok()?
                .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Self::new));
            processes.find(|process| process.has_open(&sockets))
        })
    }

    /// User and system time that all threads of the process have used, ended ones included.
    ///
    /// This is the sum of utime and stime of `/proc/PID/stat`, in nanoseconds instead of ticks of 10 ms.
    #[cfg(target_os = "linux")]
    pub(crate) fn cpu_time(self) -> Option<Duration> {
        let clock = nix::time::clock_getcpuclockid(Pid::from_raw(self.pid)).ok()?;
        nix::time::clock_gettime(clock).ok().map(Duration::from)
    }

    /// User and system time that all threads of the process have used: unknown on this system.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn cpu_time(self) -> Option<Duration> {
        None
    }

    /// Resident memory, in bytes.
    pub(crate) fn resident_bytes(self) -> Option<u64> {
        // The rollup is counted page by page; VmRSS lags behind by what each thread has not yet reported.
        self.file("smaps_rollup", "Rss:").or_else(|| self.reported_resident_bytes())
    }

    /// Resident memory as the kernel reports it at once, in bytes. This may lag behind by some pages of each thread, and does
    /// not walk through all pages, which delays a large process.
    pub(crate) fn reported_resident_bytes(self) -> Option<u64> {
        self.file("status", "VmRSS:")
    }

    /// Resident memory without pages of files, in bytes. Pages of the program's file become resident when they are used for
    /// the first time, and then count as memory of whatever was measured at that moment.
    pub(crate) fn anonymous_bytes(self) -> Option<u64> {
        self.file("smaps_rollup", "Anonymous:").or_else(|| self.file("status", "RssAnon:"))
    }

    /// Largest resident memory since the process started or [`Self::reset_peak`], bytes.
    pub(crate) fn peak_bytes(self) -> Option<u64> {
        self.file("status", "VmHWM:")
    }

    /// The length of all regular files that the process has open, each counted once, bytes.
    pub(crate) fn open_file_bytes(self) -> u64 {
        let Ok(descriptors) = fs::read_dir(self.path("fd")) else { return 0 };
        let files: BTreeMap<(u64, u64), u64> = descriptors
            .filter_map(|entry| fs::metadata(entry.ok()?.path()).ok())
            .filter(fs::Metadata::is_file)
            .map(|file| ((file.dev(), file.ino()), file.len()))
            .collect();
        files.into_values().sum()
    }

    /// Forgets the peak of resident memory, where permitted.
    pub(crate) fn reset_peak(self) {
        // Without permission the peak since the process started is reported: still a bound.
        let _ = fs::write(self.path("clear_refs"), RESET_PEAK);
    }

    fn file(self, name: &str, field: &str) -> Option<u64> {
        kibibytes(&fs::read_to_string(self.path(name)).ok()?, field)
    }

    /// The number of its process group (proc(5), the field `pgrp` of `stat`).
    fn group(self) -> Option<i32> {
        let stat = fs::read_to_string(self.path("stat")).ok()?;
        // The name of the program, in brackets, may contain anything.
        let (_, fields) = stat.rsplit_once(')')?;
        fields.split_whitespace().nth(2)?.parse().ok()
    }

    fn path(self, name: &str) -> String {
        format!("/proc/{}/{name}", self.pid)
    }

    fn has_open(self, sockets: &[String]) -> bool {
        let Ok(descriptors) = fs::read_dir(Path::new("/proc").join(self.pid.to_string()).join("fd")) else {
            return false;
        };
        let targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        targets
            .filter_map(|target| target.into_os_string().into_string().ok())
            .any(|target| sockets.contains(&target))
    }
}

impl From<Pid> for Process {
    fn from(pid: Pid) -> Self {
        Self::new(pid.as_raw())
    }
}

/// The names under `/proc/PID/fd` of the sockets in this state on `port`.
///
/// Linux lists TCP sockets that listen before the connections of the machine, which may be many: reading ends where these begin.
fn sockets_in(table: impl BufRead, state: &str, port: u16) -> Vec<String> {
    let local_port = format!(":{port:04X}");
    let lines = table.lines().map_while(Result::ok).skip(1);
    let lines = lines.take_while(|line| state != LISTEN || line.split_whitespace().nth(3) == Some(LISTEN));
    lines
        .filter(|line| line.contains(&local_port))
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_wanted = fields.len() > 9 && fields[1].ends_with(&local_port) && fields[3] == state;
            is_wanted.then(|| format!("socket:[{}]", fields[9]))
        })
        .collect()
}

/// The value of a field such as `VmHWM:    1234 kB`, in bytes.
fn kibibytes(text: &str, field: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(field))?;
    value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_found_by_port_and_state() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:075C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 111 1\n\
            1: 0100007F:075B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 222 1\n\
            2: 0100007F:075B 0100007F:9000 01 00000000:00000000 00:00000000 00000000     0        0 333 1\n\
            3: 0100007F:075B 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 444 1\n";
        // The last line shows that reading has ended: Linux writes no such table.
        assert_eq!(sockets_in(table.as_bytes(), LISTEN, 1883), ["socket:[222]"]);
    }

    #[test]
    fn datagram_sockets_are_found_behind_those_with_a_peer() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            0: 0100007F:075B 0100007F:9000 01 00000000:00000000 00:00000000 00000000     0        0 111 1\n\
            1: 0100007F:075B 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 222 1\n";
        assert_eq!(sockets_in(table.as_bytes(), UNCONNECTED, 1883), ["socket:[222]"]);
    }

    #[test]
    fn memory_fields_are_read_in_bytes() {
        assert_eq!(kibibytes("VmPeak:\t  10 kB\nVmHWM:\t    1234 kB\n", "VmHWM:"), Some(1234 * 1024));
        assert_eq!(kibibytes("VmPeak:\t  10 kB\n", "VmHWM:"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_process_finds_itself_and_its_memory_by_its_listening_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let found = Process::listening_on(listener.local_addr().unwrap());
        assert_eq!(found, Some(Process::from(nix::unistd::getpid())));
        let process = found.unwrap();
        let anonymous = process.anonymous_bytes().unwrap();
        assert!(anonymous > 0 && process.resident_bytes().unwrap() > anonymous);
        assert!(process.peak_bytes().unwrap() > 0);
        assert!(process.cpu_time().is_some());
        let group = ProcessGroup::new(process.group().unwrap());
        assert!(group.cpu_time() >= process.cpu_time().filter(|time| !time.is_zero()));
        assert_eq!(ProcessGroup::new(i32::MAX).cpu_time(), None);
        let twice = Processes(vec![process; 2]);
        assert!(twice.anonymous_bytes().unwrap() > anonymous && twice.cpu_times().unwrap().len() == 2);
        assert_eq!((Processes::default().peak_bytes(), Processes::default().cpu_times()), (None, None));
    }
}
