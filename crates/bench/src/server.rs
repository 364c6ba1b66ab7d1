//! The servers of a comparison: running somewhere, or started for each run.

use std::ffi::OsStr;
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
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
use crate::layers::{Location, Over, Trust};
use crate::measure::Target;
use crate::process::{Process, ProcessGroup};

/// Stands for the port in the command of a server that is started.
const PORT_PLACEHOLDER: &str = "{port}";

/// Stand for files in the command of a server that is started: its certificate, its key, the authority.
const FILE_PLACEHOLDERS: [&str; 3] = ["{cert}", "{key}", "{ca}"];

/// The path of MQTT over WebSocket, where a URL has none.
const DEFAULT_PATH: &str = "/mqtt";

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
    /// The layers of connections to it.
    pub(crate) over: Over,
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
    host: String,
    ip: IpAddr,
    port: Option<u16>,
    pid: Option<i32>,
    /// The layers that a URL names.
    over: Option<Over>,
    /// The path that a URL names.
    path: String,
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
    /// A server that runs already, over these layers unless its URL names others.
    pub(crate) fn running(server: RunningServer, over: Over) -> Self {
        let over = server.over.unwrap_or(over);
        Self { name: server.name.clone(), over, origin: Origin::Running(server) }
    }

    /// A server that is started afresh for each run.
    pub(crate) fn command(server: ServerCommand, over: Over) -> Self {
        Self { name: server.name, over, origin: Origin::Command(server.command) }
    }

    /// Mosquitto as the system has it installed, with nothing that would make it lose messages.
    pub(crate) fn mosquitto(over: Over) -> Self {
        Self { name: "mosquitto".into(), over, origin: Origin::Mosquitto }
    }

    /// This program's own relay; `own_words` stand between the program and its `relay` on the command line.
    pub(crate) fn relay(own_words: &[&str], over: Over) -> Self {
        Self { name: "relay".into(), over, origin: Origin::Relay(words(own_words, "relay")) }
    }

    /// Whether it is this program's own relay.
    pub(crate) fn is_relay(&self) -> bool {
        matches!(self.origin, Origin::Relay(_))
    }

    /// The server that refuses every client, for attacks that only connect.
    pub(crate) fn decoy(own_words: &[&str]) -> Self {
        Self { name: "decoy".into(), over: Over::Tcp, origin: Origin::Own(words(own_words, "decoy")) }
    }

    /// Whether the server is started with a certificate that is made for it.
    pub(crate) fn needs_certificate(&self) -> bool {
        match &self.origin {
            Origin::Running(_) => false,
            Origin::Command(command) => FILE_PLACEHOLDERS.iter().any(|place| command.contains(place)),
            Origin::Mosquitto | Origin::Relay(_) | Origin::Own(_) => self.over.has_tls(),
        }
    }

    /// Starts the server, confined to `cpus`, and waits until it accepts connections; or finds it running.
    ///
    /// # Errors
    /// [`Error::Server`] if it cannot be started or does not accept connections in time; else what the machine
    /// refused, or that there was an interrupt.
    pub(crate) fn start(
        &self,
        cpus: Option<&CpuList>,
        trust: &Trust,
        interrupt: &Interrupt,
    ) -> Result<Server> {
        if self.over == Over::Quic && matches!(self.origin, Origin::Mosquitto | Origin::Relay(_)) {
            return Err(Error::Server("has no QUIC".to_owned()));
        }
        let address = free_address()?;
        let mut started = match &self.origin {
            Origin::Running(server) => return server.find(self.over, trust),
            Origin::Command(command) => Started::by_shell(&fill_in(command, address, trust), cpus)?,
            Origin::Mosquitto => {
                let mut started = Started::new(mosquitto(), cpus)?;
                started.write(&mosquitto_config(address, self.over, trust)?);
                started
            }
            Origin::Relay(words) => {
                let mut relay = own(words, address)?;
                relay.args(["--over", self.over.name()]);
                if let Some(made) = trust.made().filter(|_| self.over.has_tls()) {
                    relay.arg("--cert").arg(made.chain()).arg("--key").arg(made.key());
                }
                Started::new(relay, cpus)?
            }
            Origin::Own(words) => Started::new(own(words, address)?, cpus)?,
        };
        started.wait_until_it_accepts(address, self.over, START_PATIENCE, interrupt)?;
        let process = started.process();
        Ok(Server { target: target(address, self.over, trust, process)?, _started: Some(started) })
    }
}

/// A server that was started at this address, with these layers of connections to it.
///
/// # Errors
/// Those of [`Trust::stack`].
pub(crate) fn target(
    address: SocketAddr,
    over: Over,
    trust: &Trust,
    process: Option<Process>,
) -> Result<Target> {
    let host = address.ip().to_string();
    let stack = trust.stack(over, &host, location(&host, address.port(), DEFAULT_PATH))?;
    Ok(Target { stack, servers: process.into(), ..Target::at(address) })
}

impl RunningServer {
    /// A server at `HOST`, `HOST:PORT` or `HOST:PORT:PID`, also as a URL.
    pub(crate) fn at(name: String, text: &str) -> std::result::Result<Self, String> {
        let (over, place) = match text.split_once("://") {
            Some((scheme, place)) => {
                let over = Over::of_scheme(scheme);
                (Some(over.ok_or_else(|| format!("bench does not connect by {scheme}://"))?), place)
            }
            None => (None, text),
        };
        let (place, path) = place.split_at(place.find('/').unwrap_or(place.len()));
        if !over.is_some_and(Over::has_websocket) && !matches!(path, "" | "/") {
            return Err(format!("the path {path} means nothing without WebSocket"));
        }
        let unknown = || format!("`{place}` is not HOST[:PORT], or there is no such host");
        let (host, rest) = match place.strip_prefix('[') {
            Some(inside) => inside.split_once(']').ok_or_else(unknown)?,
            None if place.parse::<Ipv6Addr>().is_ok() => (place, ""),
            None => place.split_at(place.find(':').unwrap_or(place.len())),
        };
        let (port, pid) = match rest.strip_prefix(':').map(|rest| rest.split_once(':').ok_or(rest)) {
            None if rest.is_empty() => (None, None),
            Some(Ok((port, pid))) => {
                let pid = pid.parse().map_err(|_| format!("`{pid}` is not a process id"))?;
                (Some(port.parse().map_err(|_| unknown())?), Some(pid))
            }
            Some(Err(port)) => (Some(port.parse().map_err(|_| unknown())?), None),
            None => return Err(unknown()),
        };
        let resolved = (host, 0).to_socket_addrs().ok().and_then(|mut all| all.next());
        let ip = resolved.ok_or_else(unknown)?.ip();
        let path = if path.is_empty() { DEFAULT_PATH } else { path };
        Ok(Self { name, host: host.to_owned(), ip, port, pid, over, path: path.to_owned() })
    }

    fn find(&self, over: Over, trust: &Trust) -> Result<Server> {
        let address = SocketAddr::new(self.ip, self.port.unwrap_or(over.default_port()));
        let listening = || match over {
            Over::Quic => Process::receiving_on(address),
            _ => Process::listening_on(address),
        };
        let found = || address.ip().is_loopback().then(listening).flatten();
        let process = self.pid.map(Process::new).or_else(found);
        let stack = trust.stack(over, &self.host, location(&self.host, address.port(), &self.path))?;
        let target = Target { stack, servers: process.into(), ..Target::at(address) };
        Ok(Server { target, _started: None })
    }
}

impl Default for RunningServer {
    /// Usual address of an MQTT server on this machine.
    fn default() -> Self {
        let ip = Ipv4Addr::LOCALHOST;
        Self {
            name: "server".into(),
            host: ip.to_string(),
            ip: ip.into(),
            port: None,
            pid: None,
            over: None,
            path: DEFAULT_PATH.to_owned(),
        }
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
        let refused = |error| {
            Error::Server(format!("could not be started: {}: {error}", wire::Shown(program.display())))
        };
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

    /// The process that was started, and all that it has started since.
    pub(crate) fn group(&self) -> Option<ProcessGroup> {
        i32::try_from(self.child.id()).ok().map(ProcessGroup::new)
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
        over: Over,
        patience: Duration,
        interrupt: &Interrupt,
    ) -> Result<()> {
        match over {
            Over::Quic => self.wait_until(|| takes_datagrams(address), patience, interrupt),
            Over::Tcp | Over::Tls | Over::Ws | Over::Wss => {
                self.wait_until(|| accepts(address), patience, interrupt)
            }
        }
    }

    fn wait_until(
        &mut self,
        is_up: impl Fn() -> bool,
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
            if is_up() {
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

/// Whether somebody takes datagrams there. Otherwise the system answers the first one.
fn takes_datagrams(address: SocketAddr) -> bool {
    let probe = || {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(address)?;
        // No server of QUIC answers this.
        socket.send(&[0])?;
        socket.set_read_timeout(Some(LOOK_INTERVAL))?;
        socket.recv(&mut [0])
    };
    probe().is_err_and(|error: io::Error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
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
    free_address_at(Ipv4Addr::LOCALHOST.into())
}

/// The same at another address of this machine.
///
/// # Errors
/// If this machine does not have the address, or no port is left.
pub(crate) fn free_address_at(ip: IpAddr) -> Result<SocketAddr> {
    let listener = TcpListener::bind((ip, 0)).and_then(|listener| listener.local_addr());
    listener.map_err(Error::io(format!("find a free port of {ip}")))
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

/// The location of MQTT on a server, for HTTP.
fn location(host: &str, port: u16, path: &str) -> Location {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Location { authority: format!("{host}:{port}"), path: path.to_owned() }
}

/// The words with which this program starts a server of its own; the port follows.
fn words(own_words: &[&str], name: &str) -> Vec<String> {
    let words = own_words.iter().copied().chain([name, "--until-stdin-closes", "--port"]);
    words.map(str::to_owned).collect()
}

pub(crate) fn fill_in(command: &str, address: SocketAddr, trust: &Trust) -> String {
    let command = command.replace(PORT_PLACEHOLDER, &address.port().to_string());
    let Some(made) = trust.made() else { return command };
    let files = [made.chain(), made.key(), made.authority()];
    let replace =
        |command: String, (place, file): (&str, PathBuf)| command.replace(place, &file.display().to_string());
    FILE_PLACEHOLDERS.into_iter().zip(files).fold(command, replace)
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
///
/// Mosquitto 2.0 does not start with listeners for WebSocket alone: another port then has one for TCP.
fn mosquitto_config(address: SocketAddr, over: Over, trust: &Trust) -> Result<String> {
    let (port, host) = (address.port(), address.ip());
    let mut text = format!("listener {port} {host}\n");
    if over.has_websocket() {
        // Its library for WebSocket takes the address for one of IPv6 otherwise.
        text += "socket_domain ipv4\nprotocol websockets\n";
    }
    if let Some(made) = trust.made().filter(|_| over.has_tls()) {
        text += &format!("certfile {}\nkeyfile {}\n", made.chain().display(), made.key().display());
    }
    if over.has_websocket() {
        text += &format!("listener {} {host}\n", free_address()?.port());
    }
    text += "allow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\nset_tcp_nodelay true\n\
             log_type none\nuser root\n";
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::TrustArgs;

    #[test]
    fn a_running_server_is_written_with_or_without_its_process_id() {
        let server: RunningServer = "a=127.0.0.1:1883".parse().unwrap();
        assert_eq!((server.name.as_str(), server.pid), ("a", None));
        let server: RunningServer = "b=127.0.0.1:1884:77".parse().unwrap();
        assert_eq!((server.port, server.pid), (Some(1884), Some(77)));
        let server: RunningServer = "c=[::1]:1885:78".parse().unwrap();
        assert_eq!((server.ip, server.port, server.pid), ("::1".parse().unwrap(), Some(1885), Some(78)));
        assert!("127.0.0.1:1883".parse::<RunningServer>().is_err());
        for place in ["::1", "[::1]", "mqtt://[::1]", "tcp://[::1]:1883/"] {
            let server = RunningServer::at("a".into(), place).unwrap();
            let address = server.find(Over::Tcp, &Trust::default()).unwrap().target.address;
            assert_eq!(address, "[::1]:1883".parse().unwrap(), "{place}");
        }
        for place in ["a=127.0.0.1:x", "a=http://127.0.0.1", "a=127.0.0.1/mqtt", "a=[::1", "a=[::1]1883"] {
            assert!(place.parse::<RunningServer>().is_err(), "{place}");
        }
    }

    #[test]
    fn the_scheme_of_a_url_names_the_layers_and_the_port() {
        for (place, over, port, path) in [
            ("a=127.0.0.1", Over::Ws, 80, "/mqtt"),
            ("a=mqtt://127.0.0.1:7", Over::Tcp, 7, "/mqtt"),
            ("a=mqtts://127.0.0.1", Over::Tls, 8883, "/mqtt"),
            ("a=ws://127.0.0.1:8080:12", Over::Ws, 8080, "/mqtt"),
            ("a=wss://127.0.0.1/", Over::Wss, 443, "/"),
            ("a=wss://127.0.0.1:8443/some/where", Over::Wss, 8443, "/some/where"),
        ] {
            let server: RunningServer = place.parse().unwrap();
            let contender = Contender::running(server.clone(), Over::Ws);
            let address = server.find(contender.over, &Trust::default()).unwrap().target.address;
            assert_eq!((contender.over, address.port(), server.path.as_str()), (over, port, path));
        }
    }

    #[test]
    fn a_command_gets_the_files_that_it_names() {
        let trust = Trust::new(&TrustArgs::default(), true, true).unwrap();
        let command: ServerCommand = "a=cat {cert} {key} {ca} # {port}".parse().unwrap();
        let contender = Contender::command(command.clone(), Over::Tls);
        assert!(contender.needs_certificate());
        let output = Command::new("sh")
            .arg("-c")
            .arg(fill_in(&command.command, free_address().unwrap(), &trust))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.matches("BEGIN CERTIFICATE").count(), 2, "{text}");
        assert_eq!(text.matches("BEGIN PRIVATE KEY").count(), 1, "{text}");
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
