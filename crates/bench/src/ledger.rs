//! The ledger alone, in its event loop: no sockets, no threads, no disk.

use std::time::Instant;

use ::ledger::{InMemory, Settings};

use crate::args::LedgerArgs;
use crate::error::Result;
use crate::process::Process;
use crate::stage::{Cast, Stage};
use crate::table::{Section, Table};

/// Number of messages that are published before their replies are read, as in a turn of the loops.
const BATCH: u64 = 64;
/// Topics that take turns.
const TOPICS: usize = 100;

/// Measures and prints a table.
pub(crate) fn run(args: &LedgerArgs) -> Result<()> {
    if let Some(cpus) = &args.pin {
        cpus.confine_this_thread()?;
    }
    // Nothing is freed before all is measured: it would be used again, and not be seen.
    let (waits, stages): (Vec<Option<f64>>, Vec<Stage<InMemory>>) =
        args.fanout.iter().map(|fanout| wait(args, *fanout)).unzip();
    drop(stages);
    let flows: Vec<Flow> = args.fanout.iter().map(|fanout| flow(args, *fanout)).collect();
    print!("{}", table(args, &flows, &waits));
    Ok(())
}

/// Messages and bytes that went through the queues.
struct Flow {
    published: u64,
    wall_secs: f64,
    cpu_secs: Option<f64>,
}

/// Publishes to sessions that are connected and acknowledge at once.
fn flow(args: &LedgerArgs, fanout: usize) -> Flow {
    let mut stage = stage(args, fanout);
    let process = Process::from(nix::unistd::getpid());
    let cpu = process.cpu_time();
    let start = Instant::now();
    let mut published = 0;
    while published < args.messages {
        publish_batch(&mut stage);
        published += BATCH;
    }
    assert_eq!(stage.acknowledged, published * fanout as u64, "every copy is delivered and acknowledged");
    let cpu_secs = process.cpu_time().zip(cpu).map(|(now, before)| (now - before).as_secs_f64());
    Flow { published, wall_secs: start.elapsed().as_secs_f64(), cpu_secs }
}

/// Publishes to sessions whose clients are away. Returns resident bytes per message in a queue.
fn wait(args: &LedgerArgs, fanout: usize) -> (Option<f64>, Stage<InMemory>) {
    let mut stage = stage(args, fanout);
    stage.leave_all();
    let process = Process::from(nix::unistd::getpid());
    let before = process.resident_bytes();
    let batches = args.queued.div_ceil(BATCH * fanout as u64);
    (0..batches).for_each(|_| publish_batch(&mut stage));
    let after = process.resident_bytes();
    let queued = batches * BATCH * fanout as u64;
    assert_eq!(stage.acknowledged, 0, "nobody is there");
    let grown = after.zip(before).map(|(after, before)| after.saturating_sub(before));
    (grown.map(|bytes| bytes as f64 / queued as f64), stage)
}

/// Queues that are never full, and records that go nowhere and are durable at once.
fn stage(args: &LedgerArgs, fanout: usize) -> Stage<InMemory> {
    let settings =
        Settings { queue_messages_max: usize::MAX, queue_bytes_max: usize::MAX, ..Settings::default() };
    let cast = Cast { topics: TOPICS, fanout, payload: args.payload };
    Stage::new(cast, settings, InMemory::default())
}

/// Publishes, and acknowledges every message that is delivered until there are no more.
fn publish_batch(stage: &mut Stage<InMemory>) {
    stage.publish(BATCH);
    stage.turns();
    while stage.acknowledge() {
        stage.turns();
    }
}

fn table(args: &LedgerArgs, flows: &[Flow], waits: &[Option<f64>]) -> Table {
    let row = |name: &str, cells: Vec<String>| {
        std::iter::once(name.to_owned()).chain(cells).collect::<Vec<String>>()
    };
    let cells = |cell: &dyn Fn(&Flow, usize) -> f64, digits: usize| -> Vec<String> {
        flows
            .iter()
            .zip(&args.fanout)
            .map(|(flow, fanout)| format!("{:.digits$}", cell(flow, *fanout)))
            .collect()
    };
    let per_sec = |flow: &Flow, _| flow.published as f64 / flow.wall_secs / 1e6;
    let copies = |flow: &Flow, fanout: usize| per_sec(flow, fanout) * fanout as f64;
    let cpu = flows.iter().map(|flow| match flow.cpu_secs {
        Some(cpu_secs) => format!("{:.3}", cpu_secs / flow.published as f64 * 1e6),
        None => "-".to_owned(),
    });
    let memory =
        waits.iter().map(|bytes| bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{bytes:.0}")));
    let section = |title: &str, rows| Section { title: title.to_owned(), rows };
    Table {
        title: format!(
            "The ledger alone: QoS 1, {} bytes of payload, {} million messages; no sockets, no disk",
            args.payload,
            args.messages as f64 / 1e6,
        ),
        headings: row("sessions per message", args.fanout.iter().map(ToString::to_string).collect()),
        sections: vec![
            section(
                "million/s",
                vec![
                    row("published, delivered, acknowledged", cells(&per_sec, 2)),
                    row("copies", cells(&copies, 2)),
                ],
            ),
            section("CPU seconds", vec![row("per million published", cpu.collect())]),
            section("bytes", vec![row("per message in a queue", memory.collect())]),
        ],
        notes: vec!["A message is in memory once, however many queues it is in.".to_owned()],
    }
}
