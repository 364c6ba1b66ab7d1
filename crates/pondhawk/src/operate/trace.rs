//! `pondhawk ctl trace`: prints a trace as it happens, and keeps it in a file.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::client::Server;
use super::{on_terminal, print};

/// Pause when there are no new lines.
const PAUSE: Duration = Duration::from_millis(200);
/// Exit code after a second interrupt, as of a shell.
const INTERRUPTED: i32 = 130;
/// Lines of an answer.
const LINES: usize = 1_000;

/// The clients or the messages that are traced.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct Subject {
    /// Everything on the connections of the client with this identifier
    #[arg(long, value_name = "ID")]
    client: Option<String>,
    /// Everything on the connections of this user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Everything on connections from this address, or from a network such as 192.0.2.0/24
    #[arg(long)]
    address: Option<String>,
    /// All messages whose topic matches this filter, from their publishers and to their receivers
    #[arg(long, value_name = "FILTER")]
    topic: Option<String>,
}

/// The subject of a trace, its bounds, and its file.
#[derive(Debug, Args)]
pub(super) struct TraceArguments {
    #[command(flatten)]
    subject: Subject,
    /// Duration of the trace
    #[arg(short, long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    /// End the trace when its records have this many bytes
    #[arg(long, value_name = "N", default_value_t = 4 << 20)]
    bytes: u64,
    /// Also write the trace to a pcap file for `replay` and Wireshark. Only its owner may read it
    #[arg(long, visible_alias = "record", value_name = "FILE")]
    capture: Option<PathBuf>,
    /// Also publish each line to this topic, as a message at QoS 0. Clients that may read the topic see the payloads in it
    #[arg(long, value_name = "TOPIC")]
    into: Option<String>,
}

impl TraceArguments {
    fn order(&self) -> Value {
        let Self { subject: Subject { client, user, address, topic }, seconds, bytes, into, .. } = self;
        let subjects = [("client_id", client), ("user", user), ("address", address), ("topic", topic)];
        let given = subjects.into_iter().find_map(|(kind, value)| Some((kind, value.as_deref()?)));
        // The parser accepts exactly one of them.
        let (kind, value) = given.unwrap_or_default();
        json!({ "kind": kind, "value": value, "seconds": seconds, "bytes": bytes, "into": into })
    }
}

/// Begins a trace, prints its lines until it ends or the user interrupts it, and ends it.
pub(super) fn follow(server: &Server, arguments: &TraceArguments, is_json: bool) -> io::Result<()> {
    let is_interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The first one ends the trace, and the second one this process.
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&is_interrupted))?;
        signal_hook::flag::register(signal, Arc::clone(&is_interrupted))?;
    }
    let begun = server.send("POST", "/api/v1/trace", Some(&arguments.order()))?;
    let begun: Value = serde_json::from_str(&begun)?;
    let trace = Followed { server, number: begun["number"].as_u64().unwrap_or_default() };
    let followed = trace.follow(arguments.capture.as_deref(), is_json, &is_interrupted);
    let ended = server.send("DELETE", &trace.path("", ""), None).map(drop);
    followed.and(ended)
}

/// The trace that this process has begun. Another operator may begin one when it is over.
struct Followed<'a> {
    server: &'a Server,
    number: u64,
}

fn create(path: &Path) -> io::Result<File> {
    cli::create_capture(path).map_err(|error| of_file(path, &error))
}

fn of_file(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", wire::Shown(path.display())))
}

impl Followed<'_> {
    fn path(&self, part: &str, query: &str) -> String {
        format!("/api/v1/trace{part}?number={}{query}", self.number)
    }

    fn follow(&self, capture: Option<&Path>, is_json: bool, is_interrupted: &AtomicBool) -> io::Result<()> {
        let begin = |path| Ok::<_, io::Error>(Saved { path, file: create(path)?, bytes: 0 });
        let mut saved = capture.map(begin).transpose()?;
        let printed = self.print_lines(is_json, is_interrupted, &mut saved);
        if let Some(Saved { path, bytes, .. }) = saved {
            eprintln!("{bytes} bytes are in {}", wire::Shown(path.display()));
        }
        match printed {
            // Nobody reads the lines any more, as behind `| head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            printed => printed,
        }
    }

    /// Prints lines, and adds to the file, until the trace ends.
    fn print_lines(
        &self,
        is_json: bool,
        is_interrupted: &AtomicBool,
        saved: &mut Option<Saved<'_>>,
    ) -> io::Result<()> {
        let mut cursor = "0".to_owned();
        loop {
            let was_interrupted = is_interrupted.load(Ordering::Relaxed);
            let path = self.path("", &format!("&limit={LINES}&cursor={cursor}"));
            let piece: Value = serde_json::from_str(&self.server.send("GET", &path, None)?)?;
            for line in piece["items"].as_array().into_iter().flatten() {
                print(&if is_json { format!("{line}\n") } else { in_words(line) })?;
            }
            io::stdout().flush()?;
            cursor = piece["cursor"].as_str().unwrap_or_default().to_owned();
            if let Some(saved) = saved {
                let bytes = piece["capture_bytes"].as_u64().unwrap_or_default();
                self.save(saved, usize::try_from(bytes).unwrap_or(usize::MAX))?;
            }
            if piece["is_complete"] == true || (was_interrupted && piece["has_more"] != true) {
                tell_end(&piece, was_interrupted);
                return Ok(());
            }
            if piece["has_more"] != true && !is_interrupted.load(Ordering::Relaxed) {
                thread::sleep(PAUSE);
            }
        }
    }

    /// Adds to the pcap file, up to this size.
    fn save(&self, saved: &mut Saved<'_>, file_bytes: usize) -> io::Result<()> {
        while saved.bytes < file_bytes {
            let path = self.path("/capture", &format!("&cursor={}", saved.bytes));
            let piece = self.server.fetch("GET", &path, None)?;
            if piece.is_empty() {
                break;
            }
            let piece = &piece[..piece.len().min(file_bytes - saved.bytes)];
            saved.file.write_all(piece).map_err(|error| of_file(saved.path, &error))?;
            saved.bytes += piece.len();
        }
        Ok(())
    }
}

/// The pcap file so far.
struct Saved<'a> {
    path: &'a Path,
    file: File,
    bytes: usize,
}

/// Says why no more lines come.
fn tell_end(piece: &Value, was_interrupted: bool) {
    let why = match piece["state"].as_str() {
        Some("full") => "its records have as many bytes as they may (--bytes)",
        _ if was_interrupted => "it was interrupted",
        _ => "its time is over (--seconds)",
    };
    eprintln!("the trace has ended: {why}");
    if let Some(count @ 1..) = piece["lines_left_out"].as_u64() {
        eprintln!("{count} lines had no room; their packets are in the file of --capture");
    }
    if let Some(topic) = piece["into"].as_str() {
        let (published, lines) = (&piece["lines_published"], &piece["lines"]);
        eprintln!("{published} of {lines} lines were published to {}", on_terminal(topic));
    }
}

/// A line for people: time, connection, client, direction, packet.
fn in_words(line: &Value) -> String {
    let unix_ms = line["unix_ms"].as_u64().unwrap_or_default();
    let time = cli::time_of_day(Duration::from_millis(unix_ms));
    let client = line["client_id"].as_str().map_or_else(|| "-".to_owned(), on_terminal);
    let arrow = match line["from"].as_str() {
        Some("client") => "->",
        Some(_) => "<-",
        None => "--",
    };
    let text = on_terminal(line["text"].as_str().unwrap_or_default());
    format!("{time} {} {client} {arrow} {text}\n", line["connection"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_time_connection_client_and_direction() {
        let line = json!({
            "unix_ms": 1_700_000_000_123_u64, "connection": 2, "client_id": "frog\u{1b}", "from": "server", "text": "PINGRESP",
        });
        assert_eq!(in_words(&line), "22:13:20.123 2 frog\u{FFFD} <- PINGRESP\n");
        let line =
            json!({ "unix_ms": 0, "connection": 1, "client_id": null, "from": null, "text": "closed" });
        assert_eq!(in_words(&line), "00:00:00.000 1 - -- closed\n");
    }
}
