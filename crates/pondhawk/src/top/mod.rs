//! `pondhawk top`: a running broker in a terminal, live.

mod keys;
mod screen;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use crate::operate::{Place, Server};
use keys::{Key, Keys};

/// The keys, for people.
const HINT: &str = "  (q ends, space looks again)";
/// Lines of a terminal that does not tell its size, and its columns.
const SIZE: (usize, usize) = (24, 80);
/// Another screen of the terminal, without a cursor.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l";
/// The cursor, and the former screen.
const END: &str = "\x1b[?25h\x1b[?1049l";

#[derive(Debug, Args)]
pub(crate) struct TopArguments {
    /// Time between two looks
    #[arg(short, long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print once and end, also on a terminal
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    place: Place,
}

/// The figures of a broker at one time.
struct Sample {
    at: Instant,
    status: Value,
    counters: Value,
    shards: Vec<Value>,
}

impl Sample {
    fn take(server: &Server) -> io::Result<Self> {
        let get =
            |path: &str| -> io::Result<Value> { Ok(serde_json::from_str(&server.send("GET", path, None)?)?) };
        let (status, counters) = (get("/api/v1/status")?, get("/api/v1/counters")?);
        let shards = get("/api/v1/shards")?["shards"].as_array().cloned().unwrap_or_default();
        Ok(Self { at: Instant::now(), status, counters, shards })
    }
}

/// Runs `pondhawk top`, and reports an error.
pub(crate) fn top(arguments: &TopArguments) -> ExitCode {
    let outcome = Server::find(&arguments.place).and_then(|server| run(&server, arguments));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::fail(&format!("error: {error}")),
    }
}

fn run(server: &Server, arguments: &TopArguments) -> io::Result<()> {
    let interval = Duration::from_secs(arguments.interval);
    if arguments.place.json {
        let Sample { status, counters, shards, .. } = Sample::take(server)?;
        let all = serde_json::json!({ "status": status, "counters": counters, "shards": shards });
        return writeln!(io::stdout(), "{all}");
    }
    if arguments.once || !io::stdout().is_terminal() {
        let before = Sample::take(server)?;
        // Rates need two looks.
        std::thread::sleep(Duration::from_secs(1).min(interval));
        let now = Sample::take(server)?;
        let lines = screen::render(&now, Some(&before), "", (usize::MAX, usize::MAX));
        return io::stdout().write_all(format!("{}\n", lines.join("\n")).as_bytes());
    }
    watch(server, interval)
}

/// Draws until somebody presses q. A broker that does not answer is asked again.
fn watch(server: &Server, interval: Duration) -> io::Result<()> {
    // A wrong token is told before the screen changes.
    let (mut before, mut now) = (None, io::Result::Ok(Sample::take(server)?));
    let keys = Keys::open()?;
    let _screen = Screen::begin()?;
    loop {
        let lines = match &now {
            Ok(now) => screen::render(now, before.as_ref(), HINT, size()),
            Err(error) => vec![screen::plain(&error.to_string()), String::new(), "q ends".to_owned()],
        };
        draw(&lines)?;
        if keys.wait(interval) == Some(Key::Quit) {
            return Ok(());
        }
        before = now.ok();
        now = Sample::take(server);
    }
}

/// Lines and columns of the terminal.
fn size() -> (usize, usize) {
    let known = rustix::termios::tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_row > 0);
    known.map_or(SIZE, |size| (usize::from(size.ws_row), usize::from(size.ws_col)))
}

/// Draws a whole screen with one write, so that nothing flickers.
fn draw(lines: &[String]) -> io::Result<()> {
    let mut text = String::from("\x1b[H");
    for (number, line) in lines.iter().enumerate() {
        // Behind the last line, the terminal would scroll.
        text.push_str(if number > 0 { "\r\n" } else { "" });
        text.push_str(line);
        text.push_str("\x1b[K");
    }
    text.push_str("\x1b[J");
    let mut out = io::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The other screen of the terminal, until this is dropped.
struct Screen;

impl Screen {
    fn begin() -> io::Result<Self> {
        io::stdout().write_all(BEGIN.as_bytes())?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = io::stdout().write_all(END.as_bytes());
        let _ = io::stdout().flush();
    }
}
