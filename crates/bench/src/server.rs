//! The servers of a comparison: running somewhere, or started for each run.

use std::ffi::OsStr;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};
use std::{env, io};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::host::{CpuList, while_confined};
use crate::interrupt::Interrupt;
use crate::measure::Target;
use crate::process::Process;

/// The port that is registered for MQTT.
const DEFAULT_PORT: u16 = 1883;

/// Stands for the port in the command of a server that is started.
const PORT_PLACEHOLDER: &str = "{port}";

/// Time limit for a server to accept connections.
const START_PATIENCE: Duration = Duration::from_secs(15);

/// Time limit for a server to end after SIGTERM.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// Time between two looks at whether a server has started or ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// Debian's directory for servers, which is not on every user's path.
const SYSTEM_PATH: &str = "/usr/sbin";

/// Starts a program that gets a signal when the one that started it ends, however that ends (util-linux).
const TIE: [&str; 3] = ["setpriv", "--pdeathsig", "TERM"];

/// A row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contender {
    pub(crate) name: String,
    origin: Origin,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    Running(RunningServer),
    Command(String),
    Mosquitto,
    /// The words that this program's relay is started with, after the program itself.
    Relay(Vec<String>),
    /// The same for another server of this program.
    Own(Vec<String>),
}

/// A server that runs already, written `NAME=HOST:PORT[:PID]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunningServer {
    name: String,
    address: SocketAddr,
    pid: Option<i32>,
}

/// A server to be started for each run, written `NAME=COMMAND`, where the command contains `{port}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerCommand {
    name: String,
    command: String,
}

/// A server that is up; one that was started for the run ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) target: Target,
    _started: Option<Started>,
}

/// A process that ends when this is dropped; on Linux also when this process ends in a way that drops nothing.
#[derive(Debug)]
pub(crate) struct Started {
    child: Child,
}

impl Contender {
    /// A server that runs already.
    pub(crate) fn running(server: RunningServer) -> Self {
        Self { name: server.name.clone(), origin: Origin::Running(server) }
    }

    /// A server that is started afresh for each run.
    pub(crate) fn command(server: ServerCommand) -> Self {
        Self { name: server.name, origin: Origin::Command(server.command) }
    }

    /// Mosquitto as the system has it installed, with nothing that would make it lose messages.
    pub(crate) fn mosquitto() -> Self {
        Self { name: "mosquitto".into(), origin: Origin::Mosquitto }
    }

    /// This program's own relay; `own_words` stand between the program and its `relay` on the command line.
    pub(crate) fn relay(own_words: &[&str]) -> Self {
        let words = own_words.iter().chain(&["relay", "--until-stdin-closes", "--port"]);
        Self { name: "relay".into(), origin: Origin::Relay(words.map(|word| (*word).to_owned()).collect()) }
    }

    /// Whether it is this program's own relay.
    pub(crate) fn is_relay(&self) -> bool {
        matches!(self.origin, Origin::Relay(_))
    }

    /// The server that refuses every client, for attacks that only connect.
    pub(crate) fn decoy(own_words: &[&str]) -> Self {
        let words = own_words.iter().chain(&["decoy", "--until-stdin-closes", "--port"]);
        Self { name: "decoy".into(), origin: Origin::Own(words.map(|word| (*word).to_owned()).collect()) }
    }

    /// Starts the server, confined to `cpus`, and waits until it accepts connections; or finds it running.
    ///
    /// # Errors
    /// [`Error::Server`] if it cannot be started or does not accept connections in time; else what the machine
    /// refused, or that there was an interrupt.
    pub(crate) fn start(&self, cpus: Option<&CpuList>, interrupt: &Interrupt) -> Result<Server> {
        let address = free_address()?;
        let mut started = match &self.origin {
            Origin::Running(server) => return Ok(server.find()),
            Origin::Command(command) => Started::by_shell(&with_port(command, address), cpus)?,
            Origin::Mosquitto => {
                let mut started = Started::new(mosquitto(), cpus)?;
                started.write(&mosquitto_config(address));
                started
            }
            Origin::Relay(words) | Origin::Own(words) => Started::new(own(words, address)?, cpus)?,
        };
        started.wait_until_it_accepts(address, START_PATIENCE, interrupt)?;
        let process = started.process();
        Ok(Server { target: Target { address, process }, _started: Some(started) })
    }
}

impl RunningServer {
    /// A server at `HOST`, `HOST:PORT` or `HOST:PORT:PID`, also as a URL.
    pub(crate) fn at(name: String, place: &str) -> std::result::Result<Self, String> {
        let place = match place.split_once("://") {
            Some(("mqtt" | "tcp", place)) => place.trim_end_matches('/'),
            Some((scheme, _)) => return Err(format!("bench connects over TCP, and not by {scheme}://")),
            None => place,
        };
        let resolve = |address: &str| address.to_socket_addrs().ok()?.next();
        let (address, pid) = match place.rsplit_once(':') {
            Some((address, pid)) if resolve(address).is_some() => {
                let pid = pid.parse().map_err(|_| format!("`{pid}` is not a process id"))?;
                (resolve(address), Some(pid))
            }
            _ => {
                let host = place.trim_start_matches('[').trim_end_matches(']');
                let without_port = || (host, DEFAULT_PORT).to_socket_addrs().ok()?.next();
                (resolve(place).or_else(without_port), None)
            }
        };
        let address =
            address.ok_or_else(|| format!("`{place}` is not HOST[:PORT], or there is no such host"))?;
        Ok(Self { name, address, pid })
    }

    fn find(&self) -> Server {
        let found = || self.address.ip().is_loopback().then(|| Process::listening_on(self.address)).flatten();
        let process = self.pid.map(Process::new).or_else(found);
        Server { target: Target { address: self.address, process }, _started: None }
    }
}

impl Default for RunningServer {
    /// Usual address of an MQTT server on this machine.
    fn default() -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT));
        Self { name: "server".into(), address, pid: None }
    }
}

impl FromStr for RunningServer {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, place) = name_and_rest(text, "HOST[:PORT] or NAME=HOST:PORT:PID")?;
        Self::at(name, place)
    }
}

impl FromStr for ServerCommand {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (name, command) = name_and_rest(text, "COMMAND")?;
        if !command.contains(PORT_PLACEHOLDER) {
            return Err(format!("the command has no {PORT_PLACEHOLDER} for the port to listen on"));
        }
        Ok(Self { name, command: command.to_owned() })
    }
}

impl Started {
    fn new(mut command: Command, cpus: Option<&CpuList>) -> Result<Self> {
        // The relay ends with its standard input, so that it does not outlive this process.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A server may be a script, or start further processes: all of them end together.
        command.process_group(0);
        // A child starts with the processors of the thread that starts it: it never runs elsewhere.
        let program = command.get_program().to_owned();
        let refused = |error| Error::Server(format!("could not be started: {}: {error}", program.display()));
        let child = while_confined(cpus, || command.spawn().map_err(refused))?;
        Ok(Self { child })
    }

    /// Starts a command of the shell, which stays in the foreground.
    ///
    /// # Errors
    /// [`Error::Server`] if there is no shell.
    pub(crate) fn by_shell(command: &str, cpus: Option<&CpuList>) -> Result<Self> {
        let mut shell = tied("sh");
        // `exec`, so that the process that is started is the server and not a shell.
        shell.arg("-c").arg(format!("exec {command}"));
        Self::new(shell, cpus)
    }

    /// Whether the process still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The process that was started.
    pub(crate) fn process(&self) -> Option<Process> {
        i32::try_from(self.child.id()).ok().map(Process::new)
    }

    /// Ends the process, and all that it has started, without a chance to write anything, as a crash does.
    ///
    /// # Errors
    /// If the system does not allow it.
    pub(crate) fn crash(mut self) -> Result<()> {
        self.signal(Signal::SIGKILL);
        self.child.wait().map(drop).map_err(Error::io("kill a server"))
    }

    /// Sends a signal to the process and all that it has started.
    fn signal(&self, signal: Signal) {
        if let Ok(group) = i32::try_from(self.child.id()) {
            // Fails only if all of them have ended.
            let _ = killpg(Pid::from_raw(group), signal);
        }
    }

    /// Writes all of the server's standard input.
    fn write(&mut self, text: &str) {
        if let Some(mut stdin) = self.child.stdin.take() {
            // Nobody reads it if the server does not start; that is noticed next.
            let _ = stdin.write_all(text.as_bytes());
        }
    }

    /// Waits until the server accepts connections.
    ///
    /// # Errors
    /// [`Error::Server`] if it ends, or the time is over; or there was an interrupt.
    pub(crate) fn wait_until_it_accepts(
        &mut self,
        address: SocketAddr,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < patience {
            interrupt.check()?;
            if let Some(status) = self.child.try_wait().map_err(Error::io("look at a server"))? {
                let how =
                    format!("ended with {status} before it accepted connections; run its command by hand");
                return Err(Error::Server(how));
            }
            if accepts(address) {
                return Ok(());
            }
            thread::sleep(LOOK_INTERVAL);
        }
        Err(Error::Server(format!("did not accept connections within {patience:?}")))
    }

    fn end(&mut self) -> io::Result<()> {
        if self.child.try_wait()?.is_none() {
            self.signal(Signal::SIGTERM);
        }
        let asked = Instant::now();
        while self.child.try_wait()?.is_none() && asked.elapsed() <= END_PATIENCE {
            thread::sleep(LOOK_INTERVAL);
        }
        // What has not ended by now, or was started by a process that has.
        self.signal(Signal::SIGKILL);
        self.child.wait().map(drop)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Fails only if the process has ended already.
        let _ = self.end();
    }
}

/// Whether somebody accepts connections there who is not this process: as long as nobody listens, a connection that is given the same
/// port to come from is connected to itself.
pub(crate) fn accepts(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, START_PATIENCE)
        .is_ok_and(|stream| stream.local_addr().is_ok_and(|own| own != address))
}

fn name_and_rest<'a>(text: &'a str, rest: &str) -> std::result::Result<(String, &'a str), String> {
    match text.split_once('=') {
        Some((name, rest)) if !name.is_empty() => Ok((name.to_owned(), rest)),
        _ => Err(format!("`{text}` is not of the form NAME={rest}")),
    }
}

/// A loopback address that nobody listens on.
///
/// # Errors
/// If the system has no port left.
pub(crate) fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.map_err(Error::io("find a free port"))
}

/// A command for a program that ends with this process, where the system can do that.
fn tied(program: impl AsRef<OsStr>) -> Command {
    let [tie, options @ ..] = TIE;
    if !is_on_path(tie) {
        return Command::new(program);
    }
    let mut command = Command::new(tie);
    command.args(options).arg("--").arg(program);
    command
}

/// Whether there is such a program. Debian's folder of servers counts too.
pub(crate) fn is_on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = env::split_paths(&path).chain([SYSTEM_PATH.into()]);
    folders.map(|folder| folder.join(program)).any(|file| file.is_file())
}

fn with_port(command: &str, address: SocketAddr) -> String {
    command.replace(PORT_PLACEHOLDER, &address.port().to_string())
}

/// A server of this program.
fn own(words: &[String], address: SocketAddr) -> Result<Command> {
    let mut own = Command::new(env::current_exe().map_err(Error::io("find this program"))?);
    own.args(words).arg(address.port().to_string());
    Ok(own)
}

/// Mosquitto, with its configuration on standard input, so that no file is left behind however this process ends.
fn mosquitto() -> Command {
    let of_the_system = Path::new(SYSTEM_PATH).join("mosquitto");
    let mut mosquitto = if of_the_system.exists() { tied(of_the_system) } else { tied("mosquitto") };
    mosquitto.args(["-c", "/dev/stdin"]);
    mosquitto
}

/// The default configuration but for these things: anybody may connect; `max_queued_messages 0` lets the queue of a
/// slow subscriber grow without bound instead of dropping (with the default of 1,000 a flood loses messages);
/// `max_inflight_messages 0` lets as many messages be unacknowledged to a subscriber as the protocol allows (with the
/// default of 20 a subscriber is waited for far more often than a window of 100 would), and takes as many from a
/// publisher in MQTT 5; Nagle's algorithm is off as in the other servers; nothing is logged. Where root starts it, it
/// stays root: a process that becomes somebody else is no longer tied to the one that started it.
fn mosquitto_config(address: SocketAddr) -> String {
    let (port, host) = (address.port(), address.ip());
    format!(
        "listener {port} {host}\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n\
         set_tcp_nodelay true\nlog_type none\nuser root\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_server_is_written_with_or_without_its_process_id() {
        let server: RunningServer = "a=127.0.0.1:1883".parse().unwrap();
        assert_eq!((server.name.as_str(), server.pid), ("a", None));
        let server: RunningServer = "b=127.0.0.1:1884:77".parse().unwrap();
        assert_eq!((server.address.port(), server.pid), (1884, Some(77)));
        let server: RunningServer = "c=[::1]:1885:78".parse().unwrap();
        assert_eq!((server.address, server.pid), ("[::1]:1885".parse().unwrap(), Some(78)));
        assert!("127.0.0.1:1883".parse::<RunningServer>().is_err());
        assert_eq!("a=127.0.0.1".parse::<RunningServer>().unwrap().address.port(), 1883);
        for place in ["::1", "[::1]", "mqtt://[::1]", "tcp://[::1]:1883/"] {
            let server = RunningServer::at("a".into(), place).unwrap();
            assert_eq!(server.address, "[::1]:1883".parse().unwrap(), "{place}");
        }
        assert!(RunningServer::at("a".into(), "mqtts://127.0.0.1").unwrap_err().contains("mqtts"));
        assert!("a=127.0.0.1:x".parse::<RunningServer>().is_err());
    }

    /// A system ties a process to the thread that started it.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_server_ends_with_who_started_it_however_that_ends() {
        use std::os::unix::process::ExitStatusExt;

        let start = || {
            let started = Started::by_shell("sleep 1000", None).unwrap();
            let name = format!("/proc/{}/comm", started.child.id());
            let began = Instant::now();
            // Until then it is on its way through the programs that tie it.
            while std::fs::read_to_string(&name).unwrap().trim() != "sleep" {
                assert!(began.elapsed() < START_PATIENCE, "it does not start");
                thread::yield_now();
            }
            started
        };
        let mut started = thread::spawn(start).join().unwrap();
        assert_eq!(started.child.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
    }

    #[test]
    fn a_command_says_where_its_port_goes() {
        assert!("a=server -p {port}".parse::<ServerCommand>().is_ok());
        assert!("a=server -p 1883".parse::<ServerCommand>().is_err());
        assert!("server -p {port}".parse::<ServerCommand>().is_err());
    }
}
