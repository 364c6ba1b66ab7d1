//! A broker in a process of its own.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use rustix::fs::statvfs;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::client::Client;
use crate::log::Log;
use crate::packet::{self, Connect};
use crate::raw::RawClient;
use crate::{DEADLINE, Version, binary};

/// Options for starting a broker.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of threads that serve connections.
    pub shards: u16,
    /// Text of the configuration file after `shards`, in TOML, with keys of the top level first. Without a
    /// `[[listener]]` the broker listens on a free port of 127.0.0.1.
    pub settings: String,
    /// Additional arguments for the command line.
    pub arguments: Vec<String>,
    /// Maximum number of files that the broker may have open, sockets included. `None` keeps the limit of the test.
    pub open_files_max: Option<u16>,
    /// Directory for the broker's state. `None` makes a directory, which is removed after the broker ends.
    pub data_dir: Option<PathBuf>,
    /// Configuration file, instead of `shards` and `settings`. The broker reads it again when it is asked to.
    pub file: Option<PathBuf>,
    /// File for a trace of the journal, if wanted. See [`trace`](crate::trace).
    pub trace: Option<PathBuf>,
}

impl Default for Options {
    /// Options with one shard, and no settings.
    fn default() -> Self {
        Self {
            shards: 1,
            settings: String::new(),
            arguments: Vec::new(),
            open_files_max: None,
            data_dir: None,
            file: None,
            trace: None,
        }
    }
}

/// A running broker, which is killed on drop. Its log is shown if the test fails.
#[derive(Debug)]
pub struct Broker {
    process: Child,
    address: SocketAddr,
    log: Log,
    /// Directory that is removed after the broker has ended.
    _data_dir: Option<TempDir>,
}

impl Broker {
    /// Starts the `pondhawk` binary, and waits until it listens.
    ///
    /// # Panics
    /// If the broker does not listen before the deadline. The message is the broker's output.
    pub fn start(options: &Options) -> Self {
        Self::try_start(options).unwrap_or_else(|log| panic!("the broker did not start:\n{log}"))
    }

    /// Starts the `pondhawk` binary, and waits until it listens.
    ///
    /// # Errors
    /// The broker's output, if it ends before it listens, or does not listen before the deadline.
    pub fn try_start(options: &Options) -> Result<Self, String> {
        Self::try_start_within(options, DEADLINE)
    }

    /// Starts the `pondhawk` binary, and kills it if it does not listen within `patience`.
    ///
    /// # Errors
    /// The broker's output, if it ends before it listens, or is killed.
    pub fn try_start_within(options: &Options, patience: Duration) -> Result<Self, String> {
        let own = options.data_dir.is_none().then(data_dir);
        let data_dir = options.data_dir.as_deref().or(own.as_ref().map(TempDir::path));
        let mut process = program(options)
            .args(["serve", "--config"])
            .arg(options.file.as_deref().unwrap_or(Path::new("/dev/stdin")))
            .arg("--data-dir")
            .arg(data_dir.expect("it has one or gets one"))
            .args(&options.arguments)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the pondhawk binary can be run");
        let log = Log::collect(process.stderr.take().expect("stderr is piped"));
        let mut stdin = process.stdin.take().expect("stdin is piped");
        // With wrong arguments nobody reads the configuration. The log then contains the broker's message.
        let _ = stdin.write_all(configuration(options).as_bytes());
        drop(stdin);
        let listening = log.wait_for("listening on ", patience);
        let Some(address) = listening.as_deref().and_then(listening_address) else {
            let _ = process.kill();
            let _ = process.wait();
            log.wait_for_end(DEADLINE);
            return Err(log.text());
        };
        Ok(Self { process, address, log, _data_dir: own })
    }

    /// The address of the first listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of the first listener whose line in the log has this word, such as `quic`.
    ///
    /// # Panics
    /// If there is no such line before the deadline.
    pub fn address_of(&self, kind: &str) -> SocketAddr {
        let line = self.wait_for_log(&format!("({kind}"));
        listening_address(&line).unwrap_or_else(|| panic!("no address: {line}"))
    }

    /// The id of the broker's process.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Names of all files that the broker has open, from `/proc`; `None` if the system does not have `/proc`.
    pub fn open_files(&self) -> Option<Vec<String>> {
        let files = fs::read_dir(format!("/proc/{}/fd", self.process_id())).ok()?.flatten();
        let names = files.filter_map(|file| fs::read_link(file.path()).ok());
        Some(names.map(|name| name.to_string_lossy().into_owned()).collect())
    }

    /// Number of sockets that the broker has open; `None` if the system does not have `/proc`.
    pub fn open_sockets(&self) -> Option<usize> {
        Some(self.open_files()?.iter().filter(|name| name.starts_with("socket:")).count())
    }

    /// Resident memory of the broker in bytes; `None` if the system does not have `/proc`.
    pub fn resident_bytes(&self) -> Option<usize> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process_id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib * 1_024)
    }

    /// Opens a connection to the first listener, and sends nothing.
    pub fn connect(&self) -> RawClient {
        RawClient::connect(self.address)
    }

    /// Opens a connection, and waits until the broker has accepted a client with this identifier.
    ///
    /// # Panics
    /// If the broker does not accept the client before the deadline.
    pub fn client(&self, version: Version, client_id: &str) -> Client {
        self.client_with(&Connect::new(version, client_id))
    }

    /// Opens a connection, and waits until the broker has accepted this CONNECT.
    ///
    /// # Panics
    /// If the broker does not accept the client before the deadline.
    pub fn client_with(&self, connect: &Connect<'_>) -> Client {
        self.greet(connect).0
    }

    /// Like [`client_with`](Self::client_with), and returns the CONNACK too.
    ///
    /// # Panics
    /// If the broker does not accept the client before the deadline.
    pub fn greet(&self, connect: &Connect<'_>) -> (Client, Vec<u8>) {
        let mut connection = self.connect();
        connection.send(&connect.bytes());
        let answer = connection.read_packet();
        assert!(packet::is_accepted(&answer), "refused: {answer:02x?}");
        (Client::new(connection, connect.version), answer)
    }

    /// The broker's output up to now.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// Waits for the first line of the log that contains `needle`, and returns the line.
    ///
    /// # Panics
    /// If there is no such line before the deadline.
    pub fn wait_for_log(&self, needle: &str) -> String {
        self.log.wait_for(needle, DEADLINE).unwrap_or_else(|| panic!("the log never says {needle:?}"))
    }

    /// Returns the number of lines of the log up to now.
    pub fn log_length(&self) -> usize {
        self.log.len()
    }

    /// Waits for a line that contains `needle` behind the first `count` lines of the log, and returns the line.
    ///
    /// # Panics
    /// If there is no such line before the deadline.
    pub fn wait_for_log_behind(&self, count: usize, needle: &str) -> String {
        let line = self.log.wait_for_from(count, needle, DEADLINE);
        line.unwrap_or_else(|| panic!("the log does not say {needle:?} again"))
    }

    /// Returns every line of the log up to now that contains `needle`.
    pub fn log_lines(&self, needle: &str) -> Vec<String> {
        self.log.lines_with(needle)
    }

    /// Asks the broker to stop (SIGTERM), waits for its end, and returns its exit status.
    ///
    /// # Panics
    /// If the broker does not end before the deadline.
    pub fn stop(mut self) -> ExitStatus {
        self.terminate();
        self.wait()
    }

    /// Asks the broker to stop (SIGTERM), and returns at once, so that clients can observe the end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Asks the broker to stop like a user at a terminal (SIGINT).
    pub fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    /// Asks the broker to read its certificates again (SIGHUP).
    pub fn hang_up(&self) {
        self.signal(Signal::HUP);
    }

    /// Waits until the broker has ended by itself.
    ///
    /// # Panics
    /// If the broker does not end before the deadline.
    pub fn wait(&mut self) -> ExitStatus {
        // The standard error of the process closes when the process ends. Waiting for the process does not block
        // after that.
        assert!(self.log.wait_for_end(DEADLINE), "the broker does not stop");
        self.process.wait().expect("our own child can be waited for")
    }

    /// Stops all threads of the broker (SIGSTOP). The system goes on taking bytes from its clients.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a broker go on that was stopped with [`pause`](Self::pause).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        kill_process(id.expect("a process id is positive"), signal).expect("our own child can be signalled");
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("--- log of the broker ---\n{}\n---", self.log.text());
        }
    }
}

/// Makes a directory for a broker's journal, in memory if possible.
///
/// Memory is sufficient, because tests check the written data, and do not cut the power.
///
/// # Panics
/// If no directory can be made.
pub fn data_dir() -> TempDir {
    let in_memory = Path::new("/dev/shm");
    // In a container, shared memory may be too small for the journals of all concurrent tests.
    let has_room = statvfs(in_memory).is_ok_and(|disk| disk.f_bavail * disk.f_frsize >= SHARED_MEMORY_BYTES);
    let made = if has_room { TempDir::new_in(in_memory) } else { TempDir::new() };
    made.expect("there is a place for temporary files")
}

const SHARED_MEMORY_BYTES: u64 = 4 << 30;

/// Makes the command for the broker. A shell starts the broker if it needs a lower limit of open files.
fn program(options: &Options) -> Command {
    let binary = if options.trace.is_some() { binary::recorded() } else { binary::pondhawk() };
    let mut program = if let Some(open_files_max) = options.open_files_max {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -n {open_files_max} && exec \"$0\" \"$@\"")]).arg(binary);
        shell
    } else {
        Command::new(binary)
    };
    program.envs(options.trace.iter().map(|trace| ("PONDHAWK_TRACE", trace)));
    program
}

fn configuration(options: &Options) -> String {
    let Options { shards, settings, .. } = options;
    let listener =
        if settings.contains("[[listener]]") { "" } else { "[[listener]]\naddress = \"127.0.0.1:0\"\n" };
    format!("shards = {shards}\n{settings}\n{listener}")
}

/// Parses a line such as `listening on 127.0.0.1:40123 (tcp)`.
fn listening_address(line: &str) -> Option<SocketAddr> {
    let address = line.split_once("listening on ")?.1.split_whitespace().next()?;
    address.strip_prefix("quic://").unwrap_or(address).parse().ok()
}
