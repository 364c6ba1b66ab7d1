//! `pondhawk tap`: forwards all bytes between clients and a broker unchanged, and prints each packet.

mod chosen;
pub(crate) mod file;

use std::convert::Infallible;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use capture::{Conversation, Reading, Told};
use clap::Args;
use client::Endpoint;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wire::{Packet, Role, Shown, Version};

use crate::json::{Json, Style};
use crate::place::Place;
use crate::say::{complain, complain_of, show};
use chosen::{Aliases, Chosen};
use file::Capture;
pub use file::create as create_capture;

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
///
/// Clients connect to the tap without TLS, also if the tap connects to the broker with TLS.
#[derive(Debug, Clone, Args)]
pub struct TapArgs {
    /// Address for clients to connect to; port 0 chooses a free one.
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,

    #[command(flatten)]
    place: Place,

    #[command(flatten)]
    chosen: Chosen,

    /// Print each line as a JSON object.
    #[arg(long)]
    json: bool,

    /// Also write the forwarded bytes, including passwords, to a pcap file for `replay` and Wireshark. Only its owner may
    /// read it.
    #[arg(long, visible_alias = "record", value_name = "FILE")]
    capture: Option<PathBuf>,
}

/// Forwards connections until the process is interrupted.
pub fn run(arguments: &TapArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let listened = match (runtime, arguments.place.endpoint()) {
        (Ok(runtime), Ok(server)) => runtime.block_on(listen(arguments, server)),
        (Err(error), _) => Err(error),
        (_, Err(failure)) => {
            complain_of(&failure);
            return ExitCode::FAILURE;
        }
    };
    match listened {
        Ok(never) => match never {},
        Err(error) => {
            complain(format_args!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn listen(arguments: &TapArgs, server: Endpoint) -> io::Result<Infallible> {
    let TapArgs { listen, capture, json, chosen, .. } = arguments;
    let at = |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", Shown(what)));
    let listener = TcpListener::bind(listen).await.map_err(|error| at(listen, error))?;
    let capture = match capture {
        Some(path) => {
            let capture = create_capture(path).and_then(Capture::begin);
            let name = Shown(path.display()).to_string();
            Some(Arc::new(Mutex::new(capture.map_err(|error| at(&name, error))?)))
        }
        None => None,
    };
    show(format_args!("listening on {}\n", listener.local_addr()?));
    let printer = Printer::start(*json)?;
    let chosen = Arc::new(chosen.clone());
    let mut number = 0_u64;
    loop {
        match listener.accept().await {
            Ok((client, _)) => {
                number += 1;
                let (capture, printer, chosen) = (capture.clone(), printer.clone(), Arc::clone(&chosen));
                let tap = Tap { number, capture, printer, chosen };
                tokio::spawn(tap.carry(client, server.clone()));
            }
            // The client may be gone, or this process may have too many open files. Other connections continue.
            Err(error) => {
                printer.print(now(), 0, "--", &format!("not accepted: {error}"));
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
    is_json: bool,
}

impl Printer {
    fn start(is_json: bool) -> io::Result<Self> {
        let (lines, waiting) = mpsc::sync_channel::<String>(LINES_WAITING_MAX);
        thread::Builder::new().name("printer".to_owned()).spawn(move || waiting.iter().for_each(show))?;
        Ok(Self { lines, left_out: Arc::default(), is_json })
    }

    /// Queues a line about a connection, or about none if its number is 0. If the queue is full, the line is dropped and
    /// counted, and the next queued line reports the count.
    fn print(&self, time: Duration, connection: u64, arrow: &str, what: &str) {
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        let shown = match what.char_indices().nth(LINE_MAX) {
            Some((end, _)) => format!("{} … ({} B)", Shown(&what[..end]), what.len()),
            None => Shown(what).to_string(),
        };
        let line = if self.is_json {
            json_line(time, (connection, arrow), &shown, left_out)
        } else {
            let note =
                if left_out > 0 { format!("{left_out} lines are left out here\n") } else { String::new() };
            let number = if connection == 0 { "-".to_owned() } else { connection.to_string() };
            format!("{note}{} {number} {arrow} {shown}\n", time_of_day(time))
        };
        if self.lines.try_send(line).is_err() {
            self.left_out.fetch_add(left_out + 1, Ordering::Relaxed);
        }
    }
}

/// A line as a JSON object. What is absent is null.
fn json_line(time: Duration, (connection, arrow): (u64, &str), what: &str, left_out: u64) -> String {
    let from = match arrow {
        "->" => Json::text("client"),
        "<-" => Json::text("server"),
        _ => Json::Null,
    };
    let seconds = format!("{}.{:06}", time.as_secs(), time.subsec_micros());
    let mut members = vec![
        ("unix_secs", Json::Number(seconds)),
        ("connection", if connection == 0 { Json::Null } else { Json::number(connection) }),
        ("from", from),
        ("text", Json::text(what)),
    ];
    if left_out > 0 {
        members.push(("lines_left_out", Json::number(left_out)));
    }
    let members = members.into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value)).collect();
    let mut line = Vec::new();
    // A vector has room for all of it.
    let _ = Json::Object(members).write(Style::Exact, &mut line);
    line.push(b'\n');
    String::from_utf8_lossy(&line).into_owned()
}

/// A connection of a client, and its output.
struct Tap {
    number: u64,
    capture: Option<Arc<Mutex<Capture>>>,
    printer: Printer,
    chosen: Arc<Chosen>,
}

/// State that both directions of a connection share.
struct Shared {
    version: Option<Version>,
    /// The client's identifier, its own or the one that the broker has assigned.
    client_id: Option<String>,
    conversation: Conversation,
}

impl Tap {
    async fn carry(self, client: TcpStream, to: Endpoint) {
        let (server, from) = match (to.connect().await, client.peer_addr()) {
            (Ok(server), Ok(from)) => (server, from),
            (Err(error), _) => return self.print_event(None, "--", &format!("no connection: {error}")),
            (_, Err(error)) => return self.print_event(None, "--", &format!("gone already: {error}")),
        };
        self.print_event(None, "--", &format!("opened by {from}"));
        // The clients' small packets are not delayed here, because they may not have been delayed before. The endpoint
        // does the same for the broker.
        let _ = client.set_nodelay(true);
        let address = client.local_addr().unwrap_or(from);
        let mut conversation = Conversation::new(from, address);
        conversation.beginning().iter().for_each(|packet| self.record(packet));
        let shared = Mutex::new(Shared { version: None, client_id: None, conversation });
        let (from_client, to_client) = tokio::io::split(client);
        let (from_server, to_server) = tokio::io::split(server);
        tokio::join!(
            self.forward(Role::Client, from_client, to_server, &shared),
            self.forward(Role::Server, from_server, to_client, &shared)
        );
        self.print_event(lock(&shared).client_id.as_deref(), "--", "closed");
    }

    /// Forwards one direction until its end, and then ends the stream to the other side.
    async fn forward(
        &self,
        sender: Role,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        shared: &Mutex<Shared>,
    ) {
        let (mut reading, mut bytes) = (Reading::of(sender), vec![0; BYTES_AT_A_TIME]);
        let mut aliases = Aliases::default();
        let arrow = if sender == Role::Client { "->" } else { "<-" };
        loop {
            let came = match from.read(&mut bytes).await {
                Ok(0) => {
                    self.record(&lock(shared).conversation.end(sender, false));
                    break self.print_event(lock(shared).client_id.as_deref(), arrow, "end");
                }
                Ok(count) => &bytes[..count],
                Err(error) => {
                    self.record(&lock(shared).conversation.end(sender, true));
                    break self.print_event(lock(shared).client_id.as_deref(), arrow, &error.to_string());
                }
            };
            // The version must be known before the other side's answer is read. Bytes are therefore read first,
            // forwarded next, and printed last. They are recorded before they are forwarded: `replay` relies on each
            // record of a packet being in front of its consequences.
            let (time, mut lines) = (now(), Vec::new());
            {
                let Shared { version, client_id, .. } = &mut *lock(shared);
                reading.take(came, version, |told| {
                    lines.extend(self.line(&told, client_id, &mut aliases));
                });
            }
            self.record(&lock(shared).conversation.segment(sender, came));
            let forwarded = async {
                to.write_all(came).await?;
                // TLS may keep bytes.
                to.flush().await
            };
            let forwarded = forwarded.await;
            lines.iter().for_each(|line| self.print_at(time, arrow, line));
            if let Err(error) = forwarded {
                // The rest of this direction reaches nobody.
                self.record(&lock(shared).conversation.end(sender, true));
                break self.print_event(
                    lock(shared).client_id.as_deref(),
                    arrow,
                    &format!("not taken: {error}"),
                );
            }
        }
        let _ = to.shutdown().await;
    }

    fn record(&self, packet: &[u8]) {
        let Some(capture) = &self.capture else { return };
        if let Err(error) = lock(capture).record(now(), packet) {
            self.print("--", &format!("the capture ends here: {error}"));
        }
    }

    /// The line about received bytes, if the flags choose it. Notes the client's identifier.
    fn line(
        &self,
        told: &Told<'_, '_>,
        client_id: &mut Option<String>,
        aliases: &mut Aliases,
    ) -> Option<String> {
        if let Told::Packet(packet) = told {
            note_client(packet, client_id);
        }
        let is_chosen = self.chosen.has_client(client_id.as_deref())
            && match told {
                Told::Packet(packet) => self.chosen.has(packet, aliases),
                Told::Unread(_) => true,
            };
        is_chosen.then(|| told.to_string())
    }

    /// Prints a line that is no packet, if the flags choose it.
    fn print_event(&self, client_id: Option<&str>, arrow: &str, what: &str) {
        if self.chosen.has_events() && self.chosen.has_client(client_id) {
            self.print(arrow, what);
        }
    }

    fn print(&self, arrow: &str, what: &str) {
        self.print_at(now(), arrow, what);
    }

    fn print_at(&self, time: Duration, arrow: &str, what: &str) {
        self.printer.print(time, self.number, arrow, what);
    }
}

/// Notes the identifier in CONNECT, or the one that CONNACK assigns.
fn note_client(packet: &Packet<'_>, client_id: &mut Option<String>) {
    match packet {
        Packet::Connect(connect) => *client_id = Some(connect.client_id.to_string()),
        Packet::ConnAck(connack) => {
            if let Some(assigned) = connack.properties.assigned_client_identifier {
                *client_id = Some(assigned.to_string());
            }
        }
        _ => {}
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
#[must_use]
pub fn time_of_day(now: Duration) -> String {
    let (secs, ms) = (now.as_secs(), now.subsec_millis());
    format!("{:02}:{:02}:{:02}.{ms:03}", secs / 3_600 % 24, secs / 60 % 60, secs % 60)
}

#[test]
fn the_time_of_day_is_that_of_greenwich() {
    assert_eq!(time_of_day(Duration::from_millis(1_700_000_000_123)), "22:13:20.123");
}

#[cfg(test)]
fn printer(is_json: bool) -> (Printer, mpsc::Receiver<String>) {
    let (lines, waiting) = mpsc::sync_channel(1);
    (Printer { lines, left_out: Arc::default(), is_json }, waiting)
}

#[test]
fn a_slow_reader_is_told_how_many_lines_are_left_out() {
    let (printer, waiting) = printer(false);
    for line in ["one", "two", "three"] {
        printer.print(Duration::ZERO, 7, "->", line);
    }
    assert_eq!(waiting.recv().unwrap(), "00:00:00.000 7 -> one\n");
    printer.print(Duration::ZERO, 0, "--", "four");
    assert_eq!(waiting.recv().unwrap(), "2 lines are left out here\n00:00:00.000 - -- four\n");
}

#[test]
fn a_line_of_json_has_the_same_content() {
    let (printer, waiting) = printer(true);
    printer.print(Duration::from_millis(1_500), 7, "<-", "PUBLISH \"a\"\n");
    let line = waiting.recv().unwrap();
    let text = "PUBLISH \\\"a\\\"\\\\n";
    let begin = "{\"unix_secs\":1.500000,\"connection\":7,\"from\":\"server\"";
    assert_eq!(line, format!("{begin},\"text\":\"{text}\"}}\n"));
    printer.print(Duration::ZERO, 0, "--", "x");
    assert!(waiting.recv().unwrap().contains("\"connection\":null,\"from\":null"));
}

#[test]
fn a_long_line_is_cut() {
    let (printer, waiting) = printer(false);
    printer.print(Duration::ZERO, 1, "->", &"ä".repeat(1_000_000));
    let line = waiting.recv().unwrap();
    assert!(line.ends_with("ä … (2000000 B)\n"));
    assert_eq!(line.matches('ä').count(), LINE_MAX);
}
