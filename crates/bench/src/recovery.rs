//! Time to restart with many waiting messages, and to drain them.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::journal::{Journal, Status};
use ::ledger::{Ledger, Settings};
use index::Subscriptions;
use serde::{Deserialize, Serialize};

use crate::args::RecoveryArgs;
use crate::error::{Error, Result};
use crate::figure::{bytes, duration, quantity};
use crate::process::Process;
use crate::scratch::{Scratch, failed, open_journal, wake_this_thread};
use crate::stage::{Cast, NOW, Stage};
use crate::table::{Section, Table};

/// Messages that are published at a time while the queues are filled.
const FILLED_AT_A_TIME: u64 = 1_000;
/// Clients that connect at a time to take what waits for them.
const CONNECTED_AT_A_TIME: usize = 1_000;
/// Segments that may be there besides those that what is live would fill.
const SEGMENTS_BESIDE: u64 = 3;
/// Time limit for the journal to give space back.
const CLEANED_MAX: Duration = Duration::from_secs(10);
/// A journal that has come no further for so long will not.
const STUCK: Duration = Duration::from_secs(60);

/// Measures and prints a table; or is the process that recovers, if it is told to.
pub(crate) fn run(args: &RecoveryArgs, own_words: &[&str]) -> Result<()> {
    if let Some(directory) = &args.recovers {
        let recovered = recover(args, directory)?;
        println!("{}", serde_json::to_string(&recovered).expect("it has numbers only"));
        return Ok(());
    }
    let mut columns = Vec::new();
    let mut file_system = String::new();
    for &messages in &args.messages {
        let scratch = Scratch::new(&args.directory)?;
        file_system = scratch.file_system();
        let filled_secs = fill(&scratch, args, messages)?;
        let recovered = recover_elsewhere(&scratch, args, messages, own_words)?;
        columns.push((messages, filled_secs, recovered));
    }
    print!("{}", table(args, &columns, &file_system));
    Ok(())
}

/// Figures of the restarted process.
#[derive(Debug, Serialize, Deserialize)]
struct Recovered {
    /// Until commands can be carried out.
    secs: f64,
    resident_bytes: Option<u64>,
    peak_bytes: Option<u64>,
    /// Number of records that were read.
    log_bytes: u64,
    /// Until every message was delivered and acknowledged.
    drained_secs: f64,
    /// Since then until so few segments were there as may be; none if they were not in time.
    cleaned_secs: Option<f64>,
    /// All segments then, and what was live.
    disk_segments: u64,
    live_bytes: u64,
}

/// Stores this number of messages in turn for sessions without a connection. Returns the duration.
fn fill(scratch: &Scratch, args: &RecoveryArgs, messages: u64) -> Result<f64> {
    let (journal, _) = scratch.open_journal()?.start(&wake_this_thread()).map_err(failed)?;
    let cast = Cast { topics: args.sessions, fanout: 1, payload: args.payload };
    let mut stage = Stage::new(cast, settings(), journal);
    stage.leave_all();
    let began = Instant::now();
    while stage.stored < messages {
        let all = (stage.stored + FILLED_AT_A_TIME).min(messages);
        stage.publish(all - stage.stored);
        let mut waits = Waits::new();
        while stage.stored < all {
            stage.turn();
            stage.acknowledge();
            if stage.stored < all && !stage.is_busy() {
                stage.rest();
            }
            waits.check(stage.stored)?;
        }
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Notices when nothing comes any more.
struct Waits {
    since: Instant,
    count: u64,
}

impl Waits {
    fn new() -> Self {
        Self { since: Instant::now(), count: 0 }
    }

    fn check(&mut self, count: u64) -> Result<()> {
        if count != self.count {
            *self = Self { since: Instant::now(), count };
        }
        if self.since.elapsed() < STUCK { Ok(()) } else { Err(failed("it comes no further")) }
    }
}

fn settings() -> Settings {
    Settings { queue_messages_max: usize::MAX, queue_bytes_max: usize::MAX, ..Settings::default() }
}

/// In a process of its own, whose memory holds nothing else.
fn recover_elsewhere(
    scratch: &Scratch,
    args: &RecoveryArgs,
    messages: u64,
    own_words: &[&str],
) -> Result<Recovered> {
    let mut again = Command::new(env::current_exe().map_err(Error::io("find this program"))?);
    again.args(own_words).arg("recovery").arg("--recovers").arg(scratch.journal());
    again.args(["--messages", &messages.to_string(), "--sessions", &args.sessions.to_string()]);
    let output = again.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.map_err(Error::io("start this program again"))?;
    serde_json::from_slice(&output.stdout).map_err(|error| Error::Io {
        doing: "recover in a process of its own".to_owned(),
        source: error.into(),
    })
}

fn recover(args: &RecoveryArgs, directory: &Path) -> Result<Recovered> {
    let process = Process::from(nix::unistd::getpid());
    let began = Instant::now();
    let mut stage = begin_again(directory)?;
    let secs = began.elapsed().as_secs_f64();
    let (resident_bytes, peak_bytes) = (process.resident_bytes(), process.peak_bytes());
    let log_bytes = stage.keeper().status().log_bytes;
    let began = Instant::now();
    drain(&mut stage, args)?;
    let drained_secs = began.elapsed().as_secs_f64();
    let cleaned_secs = clean(&mut stage)?;
    let status = stage.keeper().status();
    let (disk_segments, live_bytes) = (status.segments + status.spares, status.live_bytes);
    Ok(Recovered {
        secs,
        resident_bytes,
        peak_bytes,
        log_bytes,
        drained_secs,
        cleaned_secs,
        disk_segments,
        live_bytes,
    })
}

fn begin_again(directory: &Path) -> Result<Stage<Journal>> {
    let mut opening = open_journal(directory)?.ahead().map_err(failed)?;
    let index = Arc::new(Subscriptions::new([1, 2]));
    let ledger = Ledger::recover_from(settings(), Arc::clone(&index), &mut opening, NOW);
    let (journal, _) = opening.start(&wake_this_thread()).map_err(failed)?;
    Ok(Stage::of(Cast { topics: 0, fanout: 1, payload: 0 }, index, ledger, journal))
}

/// Every client connects and acknowledges what it gets, until there is nothing left.
fn drain(stage: &mut Stage<Journal>, args: &RecoveryArgs) -> Result<()> {
    let messages: u64 = args.messages.iter().sum();
    let (mut connected, mut waits) = (0, Waits::new());
    while stage.acknowledged < messages {
        let upto = (connected + CONNECTED_AT_A_TIME).min(args.sessions);
        (connected..upto).for_each(|number| stage.connect(number));
        connected = upto;
        stage.acknowledge();
        stage.turn();
        if !stage.is_busy() {
            stage.rest();
        }
        waits.check(stage.acknowledged)?;
    }
    Ok(())
}

/// Goes on until there are as few segments as may be, and says how long that took.
fn clean(stage: &mut Stage<Journal>) -> Result<Option<f64>> {
    let began = Instant::now();
    while began.elapsed() < CLEANED_MAX {
        stage.acknowledge();
        stage.turn();
        if !stage.is_busy() {
            stage.rest();
        }
        if is_clean(&stage.keeper().status()) {
            return Ok(Some(began.elapsed().as_secs_f64()));
        }
    }
    Ok(None)
}

fn is_clean(status: &Status) -> bool {
    let segment_bytes = (status.log_bytes / status.segments).max(1);
    status.segments + status.spares <= status.live_bytes.div_ceil(segment_bytes) + SEGMENTS_BESIDE
}

fn table(args: &RecoveryArgs, columns: &[(u64, f64, Recovered)], file_system: &str) -> Table {
    let row = |name: &str, cell: &dyn Fn(&(u64, f64, Recovered)) -> String| {
        std::iter::once(name.to_owned()).chain(columns.iter().map(cell)).collect::<Vec<_>>()
    };
    let secs = |secs: f64| duration(Duration::from_secs_f64(secs));
    let memory = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| bytes(value as f64));
    let section = |title: &str, rows| Section { title: title.to_owned(), rows };
    let disk = |recovered: &Recovered| {
        let late = if recovered.cleaned_secs.is_none() { ", too many" } else { "" };
        format!("{}{late}", recovered.disk_segments)
    };
    Table {
        title: format!(
            "Recovery: {} B of payload, over {} sessions, on {file_system}",
            args.payload, args.sessions
        ),
        headings: row("messages in queues", &|(messages, ..)| quantity(*messages as f64)),
        sections: vec![
            section(
                "time",
                vec![
                    row("to record them", &|(_, filled, _)| secs(*filled)),
                    row("to recover", &|(.., recovered)| secs(recovered.secs)),
                    row("to deliver and acknowledge all", &|(.., recovered)| secs(recovered.drained_secs)),
                    row("to give back the space", &|(.., recovered)| {
                        recovered.cleaned_secs.map_or_else(|| "over 10 s".to_owned(), secs)
                    }),
                ],
            ),
            section(
                "memory",
                vec![
                    row("resident when recovered", &|(.., recovered)| memory(recovered.resident_bytes)),
                    row("peak until then", &|(.., recovered)| memory(recovered.peak_bytes)),
                ],
            ),
            section(
                "disk",
                vec![
                    row("log before", &|(.., recovered)| bytes(recovered.log_bytes as f64)),
                    row("live after all is acknowledged", &|(.., recovered)| {
                        bytes(recovered.live_bytes as f64)
                    }),
                    row("segments after that, spares included", &|(.., recovered)| disk(recovered)),
                ],
            ),
        ],
        notes: vec![format!(
            "On {file_system}, with the files in the page cache. Recovered in a process of its own: the memory is all \
             that it has."
        )],
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        args: RecoveryArgs,
    }

    #[test]
    fn everything_that_was_recorded_is_delivered_after_a_new_beginning() {
        let line = ["p", "--messages", "700", "--sessions", "30"];
        let args = Program::try_parse_from(line).unwrap().args;
        let scratch = Scratch::new(&std::env::temp_dir().join("pondhawk-bench-recovery")).unwrap();
        fill(&scratch, &args, 700).unwrap();
        let mut stage = begin_again(&scratch.journal()).unwrap();
        drain(&mut stage, &args).unwrap();
        assert_eq!(stage.acknowledged, 700);
    }
}
