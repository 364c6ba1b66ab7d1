//! `pondhawk top`: a running broker in a terminal, live.

mod events;
mod screen;
mod terminal;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;
use signal_hook::consts::SIGTSTP;
use signal_hook::low_level::emulate_default_handler;

use crate::operate::{Place, Server};
use events::{Event, Events};
use terminal::Terminal;

/// The keys, for people.
const HINT: &str = "(q ends, space looks again)";
/// Time for an answer behind two intervals. Older figures are not shown any more.
const LATE: Duration = Duration::from_secs(1);

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
    let outcome = Server::find(&arguments.place).and_then(|server| run(server, arguments));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => crate::fail(&format!("error: {error}")),
    }
}

fn run(server: Server, arguments: &TopArguments) -> io::Result<()> {
    let interval = Duration::from_secs(arguments.interval);
    if arguments.place.json {
        let Sample { status, counters, shards, .. } = Sample::take(&server)?;
        let all = serde_json::json!({ "status": status, "counters": counters, "shards": shards });
        return writeln!(io::stdout(), "{all}");
    }
    if arguments.once || !io::stdout().is_terminal() {
        let before = Sample::take(&server)?;
        // Rates need two looks.
        std::thread::sleep(Duration::from_secs(1).min(interval));
        let now = Sample::take(&server)?;
        let lines = screen::render(&now, Some(&before), "", (usize::MAX, usize::MAX));
        return io::stdout().write_all(format!("{}\n", lines.join("\n")).as_bytes());
    }
    watch(server, interval)
}

/// Draws until somebody presses q. A broker that does not answer is asked again.
fn watch(server: Server, interval: Duration) -> io::Result<()> {
    // A wrong token is told before the screen changes.
    let mut view = View { now: Sample::take(&server)?, before: None, trouble: None };
    let mut events = Events::open(move || Sample::take(&server))?;
    let mut terminal = Terminal::begin()?;
    let mut next = Instant::now() + interval;
    loop {
        let lines = view.lines(interval, terminal.size());
        terminal.draw(&lines)?;
        let left = next.saturating_duration_since(Instant::now());
        match events.wait(left) {
            Some(Event::Quit) => return Ok(()),
            Some(Event::Suspend) => {
                drop(terminal);
                emulate_default_handler(SIGTSTP)?;
                terminal = Terminal::begin()?;
            }
            Some(Event::Redraw) => {}
            Some(Event::Again) => events.look(),
            Some(Event::Looked(sample)) => {
                view.take(sample);
                next = Instant::now() + interval;
            }
            None => {
                events.look();
                next = Instant::now() + interval;
            }
        }
    }
}

/// The last answer of the broker, and what has happened since.
struct View {
    now: Sample,
    /// The answer before that one.
    before: Option<Sample>,
    /// The reason why there is no newer answer.
    trouble: Option<String>,
}

impl View {
    fn take(&mut self, sample: io::Result<Sample>) {
        match sample {
            Ok(sample) => {
                let before = std::mem::replace(&mut self.now, sample);
                // A broker that was away may have begun to count anew.
                self.before = self.trouble.take().is_none().then_some(before);
            }
            Err(error) => self.trouble = Some(error.to_string()),
        }
    }

    /// The text of a screen with this number of lines and columns.
    fn lines(&self, interval: Duration, size: (usize, usize)) -> Vec<String> {
        let age = self.now.at.elapsed();
        let late = || (age > 2 * interval + LATE).then_some("no answer from the admin server yet");
        match self.trouble.as_deref().or_else(late) {
            None => screen::render(&self.now, self.before.as_ref(), HINT, size),
            Some(why) => screen::silence(why, (age, interval), size),
        }
    }
}
