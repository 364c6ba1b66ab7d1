//! `pondhawk tap`: forwards all bytes between clients and a broker unchanged, and prints each packet.

mod capture;
mod reading;

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use wire::{Role, Shown, Version};

use crate::say::{complain, show};
use capture::{Capture, Conversation};
use reading::Reading;

/// Maximum number of lines that wait to be printed. Beyond it lines are dropped, so that clients never wait for a
/// terminal.
const LINES_WAITING_MAX: usize = 1_024;

/// Maximum length of a line, in characters. The rest of a longer line, such as one with many User Properties, is left out.
const LINE_MAX: usize = 8_192;

/// Pause after a failed accept, in which missing resources may become available.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of bytes that are forwarded at a time.
const BYTES_AT_A_TIME: usize = 16 << 10;

/// Forwards all bytes between clients and a broker, and prints each packet on a line: time (UTC), number of the
/// connection, direction, packet.
#[derive(Debug, Clone, Args)]
pub struct TapArgs {
    /// Address for clients to connect to; port 0 chooses a free one.
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,

    /// Address of the broker.
    #[arg(long, value_name = "HOST:PORT")]
    to: String,

    /// Also write the forwarded bytes, including passwords, to a pcap file for Wireshark. Only its owner may read it.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
}

/// Forwards connections until the process is interrupted.
pub fn run(arguments: &TapArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(listen(arguments))) {
        Ok(never) => match never {},
        Err(error) => {
            complain(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn listen(arguments: &TapArgs) -> io::Result<Infallible> {
    let TapArgs { listen, to, capture } = arguments;
    let at = |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    let listener = TcpListener::bind(listen).await.map_err(|error| at(listen, error))?;
    let capture = match capture {
        Some(path) => {
            let capture = capture::create(path).and_then(Capture::begin);
            let name = Shown(path.display()).to_string();
            Some(Arc::new(Mutex::new(capture.map_err(|error| at(&name, error))?)))
        }
        None => None,
    };
    show(format_args!("listening on {}\n", listener.local_addr()?));
    let printer = Printer::start()?;
    let mut number = 0_u64;
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                number += 1;
                let tap = Tap { number, capture: capture.clone(), printer: printer.clone() };
                tokio::spawn(tap.carry(client, to.clone()));
            }
            // The client may be gone, or this process may have too many open files. Other connections continue.
            Err(error) => {
                printer.print(&format!("{} - -- not accepted: {error}", time_of_day(now())));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Prints lines on a separate thread, so that a slow terminal does not delay clients.
#[derive(Debug, Clone)]
struct Printer {
    lines: SyncSender<String>,
    left_out: Arc<AtomicU64>,
}

impl Printer {
    fn start() -> io::Result<Self> {
        let (lines, waiting) = mpsc::sync_channel::<String>(LINES_WAITING_MAX);
        thread::Builder::new().name("printer".to_owned()).spawn(move || waiting.iter().for_each(show))?;
        Ok(Self { lines, left_out: Arc::default() })
    }

    /// Queues a line. If the queue is full, the line is dropped and counted, and the next queued line reports the
    /// count.
    fn print(&self, line: &str) {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        let note = if left_out > 0 { format!("{left_out} lines are left out here\n") } else { String::new() };
        let shown = match line.char_indices().nth(LINE_MAX) {
            Some((end, _)) => format!("{} … ({} B)", Shown(&line[..end]), line.len()),
            None => Shown(line).to_string(),
        };
        if self.lines.try_send(format!("{note}{shown}\n")).is_err() {
            self.left_out.fetch_add(left_out + 1, Ordering::Relaxed);
        }
    }
}

/// A connection of a client, and its output.
struct Tap {
    number: u64,
    capture: Option<Arc<Mutex<Capture>>>,
    printer: Printer,
}

/// State that both directions of a connection share.
struct Shared {
    version: Option<Version>,
    conversation: Conversation,
}

impl Tap {
    async fn carry(self, client: TcpStream, to: String) {
        let (server, from) = match (TcpStream::connect(&to).await, client.peer_addr()) {
            (Ok(server), Ok(from)) => (server, from),
            (Err(error), _) => return self.print("--", &format!("no connection to {to}: {error}")),
            (_, Err(error)) => return self.print("--", &format!("gone already: {error}")),
        };
        self.print("--", &format!("opened by {from}"));
        // The clients' small packets are not delayed here, because they may not have been delayed before.
        let _ = (client.set_nodelay(true), server.set_nodelay(true));
        let address = server.peer_addr().unwrap_or(from);
        let shared = Mutex::new(Shared { version: None, conversation: Conversation::new(from, address) });
        let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
        tokio::join!(
            self.forward(Role::Client, from_client, to_server, &shared),
            self.forward(Role::Server, from_server, to_client, &shared)
        );
        self.print("--", "closed");
    }

    /// Forwards one direction until its end, and then ends the stream to the other side.
    async fn forward(
        &self,
        sender: Role,
        mut from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
        shared: &Mutex<Shared>,
    ) {
        let (mut reading, mut bytes) = (Reading::of(sender), vec![0; BYTES_AT_A_TIME]);
        let arrow = if sender == Role::Client { "->" } else { "<-" };
        loop {
            let came = match from.read(&mut bytes).await {
                Ok(0) => break self.print(arrow, "end"),
                Ok(count) => &bytes[..count],
                Err(error) => break self.print(arrow, &error.to_string()),
            };
            // The version must be known before the other side's answer is read. Bytes are therefore read first,
            // forwarded next, and printed last.
            let (time, mut lines) = (now(), Vec::new());
            reading.take(came, &mut lock(shared).version, |line| lines.push(line.to_owned()));
            let forwarded = to.write_all(came).await;
            lines.iter().for_each(|line| self.print_at(time, arrow, line));
            self.record(time, &mut lock(shared).conversation, sender, came);
            if let Err(error) = forwarded {
                break self.print(arrow, &format!("not taken: {error}"));
            }
        }
        let _ = to.shutdown().await;
    }

    fn record(&self, time: Duration, conversation: &mut Conversation, sender: Role, bytes: &[u8]) {
        let Some(capture) = &self.capture else { return };
        if let Err(error) = lock(capture).record(time, &conversation.segment(sender, bytes)) {
            self.print("--", &format!("the capture ends here: {error}"));
        }
    }

    fn print(&self, arrow: &str, what: &str) {
        self.print_at(now(), arrow, what);
    }

    fn print_at(&self, time: Duration, arrow: &str, what: &str) {
        self.printer.print(&format!("{} {} {arrow} {what}", time_of_day(time), self.number));
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Time since 1970.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Formats the time of day in UTC, with milliseconds.
fn time_of_day(now: Duration) -> String {
    let (secs, ms) = (now.as_secs(), now.subsec_millis());
    format!("{:02}:{:02}:{:02}.{ms:03}", secs / 3_600 % 24, secs / 60 % 60, secs % 60)
}

#[test]
fn the_time_of_day_is_that_of_greenwich() {
    assert_eq!(time_of_day(Duration::from_millis(1_700_000_000_123)), "22:13:20.123");
}

#[test]
fn who_reads_slowly_is_told_how_much_is_left_out() {
    let (lines, waiting) = mpsc::sync_channel(1);
    let printer = Printer { lines, left_out: Arc::default() };
    for line in ["one", "two", "three"] {
        printer.print(line);
    }
    assert_eq!(waiting.recv(), Ok("one\n".to_owned()));
    printer.print("four");
    assert_eq!(waiting.recv(), Ok("2 lines are left out here\nfour\n".to_owned()));
}

#[test]
fn a_long_line_is_cut() {
    let (lines, waiting) = mpsc::sync_channel(1);
    let printer = Printer { lines, left_out: Arc::default() };
    printer.print(&"ä".repeat(1_000_000));
    assert_eq!(waiting.recv(), Ok(format!("{} … (2000000 B)\n", "ä".repeat(LINE_MAX))));
}
