//! Runs a client against a behaviour, and judges how it ended.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread;

use pondhawk_tests::{DEADLINE, pondhawk};
use tempfile::TempDir;

use crate::behaviours::{Behaviour, all};
use crate::bytes::packet;
use crate::client;
use crate::server::{Certificates, Layer, Server, Way};

/// Number of clients that run at the same time. Most of them wait.
const AT_A_TIME: usize = 24;

/// Seconds after which a client without a time limit of its own is told to end.
const PATIENCE_SECS: &str = "2";

/// Seconds after which a client with a time limit of 1 s is told to end, which is a fault.
///
/// A client that ignores its limit never ends by itself. The rest is for a machine with many more programs than processors.
const LIMIT_SECS: &str = "60";

/// Seconds after that after which it is killed. `bench` first ends the current run, which waits 5 s for more messages.
const GRACE_SECS: &str = "30";

/// Memory beyond the configured bounds, with everything that a program needs anyway.
const EXCESS_BYTES: u64 = 64 << 20;

/// A client under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Library,
    Publish,
    PublishLines,
    Subscribe,
    SubscribeJson,
    Request,
    Probe,
    Tap,
    Bench,
}

impl Tool {
    pub(crate) const ALL: [Self; 9] = [
        Self::Library,
        Self::Publish,
        Self::PublishLines,
        Self::Subscribe,
        Self::SubscribeJson,
        Self::Request,
        Self::Probe,
        Self::Tap,
        Self::Bench,
    ];

    /// Whether this client is tried on this way against a behaviour of this layer.
    ///
    /// Each client gets all behaviours of MQTT, and of each layer that the client has. `tap` has no WebSocket, and `bench`
    /// only TCP.
    pub(crate) fn is_tried(self, way: Way, layer: Layer) -> bool {
        let has_layer = match way {
            Way::Tcp => true,
            Way::Tls => self != Self::Bench,
            Way::WebSocket => !matches!(self, Self::Tap | Self::Bench),
        };
        let is_of_way = match layer {
            Layer::Mqtt => true,
            Layer::Records => matches!(way, Way::Tls),
            Layer::Frames | Layer::Http => matches!(way, Way::WebSocket),
        };
        has_layer && is_of_way
    }

    /// Whether the client has a time limit of its own, and must keep it.
    fn has_time_limit(self) -> bool {
        matches!(self, Self::Library | Self::Subscribe | Self::SubscribeJson | Self::Request)
    }

    /// Bounds that the client is configured with: two of a stream, each with a message beyond it, and a packet.
    fn bounds_bytes(self) -> u64 {
        match self {
            Self::Library => 5 * u64::from(client::BYTES_MAX),
            _ => 5 * (16 << 20),
        }
    }

    fn has_input(self) -> bool {
        self == Self::PublishLines
    }

    /// Whether a run against a server that behaves did what it should.
    pub(crate) fn has_succeeded(self, outcome: &Outcome) -> bool {
        match self {
            Self::Library | Self::Publish | Self::PublishLines => outcome.code == Some(0),
            // No message comes.
            Self::Subscribe | Self::SubscribeJson | Self::Request => outcome.code == Some(27),
            // The server does not do all that a broker does.
            Self::Probe | Self::Tap | Self::Bench => outcome.faults(self).is_empty(),
        }
    }

    fn command(self, way: Way, port: u16) -> Command {
        let scheme = match (way, self) {
            (Way::Tcp, _) => "mqtt",
            (Way::Tls, _) => "mqtts",
            (Way::WebSocket, _) => "ws",
        };
        let host = format!("{scheme}://localhost:{port}");
        let url = format!("{host}/t");
        let data_kib = (self.bounds_bytes() + EXCESS_BYTES) >> 10;
        let patience = if self.has_time_limit() { LIMIT_SECS } else { PATIENCE_SECS };
        let mut command = Command::new("timeout");
        command.args(["--verbose", "--signal", "TERM", "--kill-after", GRACE_SECS, patience]);
        command.args(["sh", "-c", &format!("ulimit -d {data_kib}; exec \"$@\""), "sh"]);
        if self == Self::Library {
            command.arg(std::env::current_exe().expect("this program has a path"));
            command.args(["--exact", client::NAME, "--test-threads", "1"]).env(client::SERVER, &host);
            return command;
        }
        command.arg(pondhawk());
        let session = ["-V", "5", "-q", "2", "-i", "me", "-L", &url];
        let address = format!("127.0.0.1:{port}");
        match self {
            Self::Publish => command.arg("pub").args(session).args(["-m", "x"]),
            Self::PublishLines => command.arg("pub").args(session).arg("-l"),
            Self::Subscribe => command.arg("sub").args(session).args(["-W", "1", "-v"]),
            Self::SubscribeJson => command.arg("sub").args(session).args(["-W", "1", "--json", "-d"]),
            Self::Request => command.arg("rr").args(session).args(["-W", "1", "-e", "answer", "-m", "x"]),
            Self::Probe => command.args(["probe", &host, "--patience", "1", "--messages", "10"]),
            Self::Tap if matches!(way, Way::Tls) => command
                .args(["tap", "--tls", "--listen", "127.0.0.1:0", "--to"])
                .arg(format!("localhost:{port}")),
            Self::Tap => command.args(["tap", "--listen", "127.0.0.1:0", "--to", &address]),
            Self::Bench => {
                command.args(["bench", "loadtest", "--conns", "2", "--messages", "10", "--version", "5"]);
                command.args(["--qos", "1", "--server"]).arg(format!("it={address}"))
            }
            Self::Library => unreachable!("it has returned"),
        };
        command
    }
}

/// The end of a client.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Exit code of `timeout`: 124 after the time, `None` after a signal, or else that of the client.
    code: Option<i32>,
    said: String,
}

impl Outcome {
    /// The reasons why this is no clear end.
    fn faults(&self, tool: Tool) -> Vec<&'static str> {
        let is_forged =
            |line: &str| line.contains(|c: char| c.is_control() && c != '\t') || line == "Connected";
        let is_silent = self.said.lines().all(|line| line.trim().is_empty() || line.starts_with("timeout: "));
        let code = self.code.unwrap_or(-1);
        [
            // With MQTT 5, exit codes above 127 are reasons of the server.
            (self.code.is_none_or(|code| code == 101), "a signal has ended it, or it has panicked"),
            (self.said.contains("sending signal KILL"), "it does not end when it is told to"),
            (self.said.contains("panicked at"), "it has panicked"),
            (self.said.contains("memory allocation"), "it needs too much memory"),
            (code == 124 && tool.has_time_limit(), "it does not keep its time limit"),
            (self.said.lines().any(is_forged), "it prints control characters"),
            (code != 0 && code != 124 && is_silent, "it fails and does not say why"),
        ]
        .into_iter()
        .filter_map(|(is_so, what)| is_so.then_some(what))
        .collect()
    }
}

/// Runs these clients against all behaviours, each on all of its ways, and reports all faults.
pub(crate) fn withstand(tools: &[Tool]) {
    let ways = [Way::Tcp, Way::Tls, Way::WebSocket];
    let behaviours = all();
    let mut runs = Vec::new();
    for behaviour in behaviours {
        for way in ways {
            let tried = tools.iter().filter(|tool| tool.is_tried(way, behaviour.layer));
            runs.extend(tried.map(|tool| (*tool, way, behaviour)));
        }
    }
    // Tests run beside each other. The behaviours that cost most time stand together, and each test has another begin.
    let quarter = tools.first().map_or(0, |tool| *tool as usize % 4);
    let begin = runs.len() / 4 * quarter;
    runs.rotate_left(begin);
    let next = AtomicUsize::new(0);
    let (report, faults) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME.min(runs.len()) {
            let (next, runs, report) = (&next, &runs, report.clone());
            scope.spawn(move || {
                while let Some((tool, way, behaviour)) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = run(*tool, *way, behaviour);
                    for fault in outcome.faults(*tool) {
                        let line = format!("{tool:?} by {way:?}, {:?}: {fault}", behaviour.name);
                        let _ = report.send(format!("{line}\n  {:?} {}", outcome.code, outcome.excerpt()));
                    }
                }
            });
        }
    });
    drop(report);
    let faults: Vec<String> = faults.into_iter().collect();
    assert!(faults.is_empty(), "{} faults in {} runs:\n{}", faults.len(), runs.len(), faults.join("\n"));
}

impl Outcome {
    fn excerpt(&self) -> String {
        self.said.escape_debug().take(400).collect()
    }
}

/// Runs a client against a server that behaves like this.
pub(crate) fn run(tool: Tool, way: Way, behaviour: &'static Behaviour) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let server = runtime.block_on(Server::bind());
    let mut command = tool.command(way, server.port);
    command.env("SSL_CERT_FILE", &trusted().file);
    let playing = server.play(way, behaviour.layer, &behaviour.script, trusted().certificates.clone());
    let (over, is_over) = tokio::sync::oneshot::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(|| {
            runtime.block_on(async {
                tokio::select! {
                    () = playing => {}
                    _ = is_over => {}
                }
            });
        });
        let outcome = finish(tool, command);
        drop(over);
        outcome
    })
}

/// The certificate that all servers here have, and the file with it.
struct Trusted {
    certificates: Certificates,
    file: PathBuf,
    _folder: TempDir,
}

fn trusted() -> &'static Trusted {
    static TRUSTED: OnceLock<Trusted> = OnceLock::new();
    TRUSTED.get_or_init(|| {
        let certificates = Certificates::new();
        let folder = TempDir::new().expect("there is a place for temporary files");
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, &certificates.pem).expect("a temporary file can be written");
        Trusted { certificates, file, _folder: folder }
    })
}

/// Runs the client to its end.
fn finish(tool: Tool, mut command: Command) -> Outcome {
    let is_tap = tool == Tool::Tap;
    let is_read = is_tap || matches!(tool, Tool::Probe | Tool::Bench);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    // The output of the library's program has been checked, and messages may have any bytes.
    command.stdout(if is_read { Stdio::piped() } else { Stdio::null() });
    // A backtrace needs memory, which may be what is missing.
    command.env_remove("RUST_BACKTRACE");
    let mut process = command.spawn().expect("a program can be run");
    let mut input = process.stdin.take().expect("stdin is piped");
    if tool.has_input() {
        // The client may have ended.
        let _ = input.write_all(&b"line\n".repeat(100));
    }
    drop(input);
    if is_tap {
        converse_through(&mut process);
    }
    let output = process.wait_with_output().expect("our own child can be waited for");
    let Output { status, stdout, stderr } = output;
    Outcome { code: status.code(), said: String::from_utf8_lossy(&[stderr, stdout].concat()).into_owned() }
}

/// Connects through `tap`, says what a client says, and reads to the end.
fn converse_through(process: &mut Child) {
    let mut stdout = process.stdout.take().expect("stdout is piped");
    let mut line = Vec::new();
    let mut byte = [0];
    while !line.ends_with(b"\n") && stdout.read(&mut byte).is_ok_and(|count| count == 1) {
        line.push(byte[0]);
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("tap listens");
    let mut writer = client.try_clone().expect("a socket can be shared");
    let said = [
        packet(0x10, b"\0\x04MQTT\x05\x02\0\0\0\0\x02me"),
        packet(0x82, b"\0\x01\0\0\x01t\x02"),
        packet(0x32, b"\0\x01t\0\x02\0x"),
    ];
    let _ = writer.write_all(&said.concat());
    thread::spawn(move || {
        let mut client = client;
        let _ = client.set_read_timeout(Some(DEADLINE));
        let mut heard = vec![0; 64 << 10];
        while client.read(&mut heard).is_ok_and(|count| count > 0) {}
    });
    thread::spawn(move || {
        let mut printed = vec![0; 64 << 10];
        while stdout.read(&mut printed).is_ok_and(|count| count > 0) {}
    });
}
