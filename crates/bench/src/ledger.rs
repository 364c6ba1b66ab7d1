//! The ledger alone: no sockets, no threads, no disk.

use std::sync::Arc;
use std::time::Instant;

use ::ledger::{
    Cause, Claim, Command, Deliver, Durability, Effects, Ledger, Left, Lsn, Progress, Publish, Record,
    Refusal, Reply, Settings,
};
use index::{Change, ConnectionId, Generation, Interest, ShardId, Subscriber, Subscriptions, Targets};
use session::{Message, Now, Ticket};
use topic::{TopicFilter, TopicName, TopicNameBuf};
use wire::{Delivery, PacketId, Qos, ReasonCode};

use crate::args::LedgerArgs;
use crate::error::Result;
use crate::process::Process;
use crate::table::{Section, Table};

/// So many messages are published before their replies are looked at, as one turn of the loops would bring them.
const BATCH: usize = 64;
/// Topics that take turns.
const TOPICS: usize = 100;
/// Messages that a client may have unacknowledged.
const WINDOW: u16 = 1_000;
/// Nothing here takes time that matters to the ledger.
const NOW: Now = Now { monotonic_ms: 1, unix_ms: 1 };

/// Measures and prints a table.
pub(crate) fn run(args: &LedgerArgs) -> Result<()> {
    if let Some(cpus) = &args.pin {
        cpus.confine_this_thread()?;
    }
    // Nothing is freed before all is measured: it would be used again, and not be seen.
    let (waits, stages): (Vec<Option<f64>>, Vec<Stage>) =
        args.fanout.iter().map(|fanout| wait(args, *fanout)).unzip();
    drop(stages);
    let flows: Vec<Flow> = args.fanout.iter().map(|fanout| flow(args, *fanout)).collect();
    print!("{}", table(args, &flows, &waits));
    Ok(())
}

/// What flowed through the queues.
struct Flow {
    published: u64,
    wall_secs: f64,
    cpu_secs: Option<f64>,
}

/// Publishes to sessions that are connected and acknowledge at once.
fn flow(args: &LedgerArgs, fanout: usize) -> Flow {
    let mut stage = Stage::new(fanout);
    let process = Process::from(nix::unistd::getpid());
    let cpu = process.cpu_time();
    let start = Instant::now();
    let mut published = 0;
    while published < args.messages {
        stage.publish_batch(published, args.payload);
        published += BATCH as u64;
        stage.acknowledge_all();
    }
    assert_eq!(stage.acknowledged, published * fanout as u64, "every copy is delivered and acknowledged");
    let cpu_secs = process.cpu_time().zip(cpu).map(|(now, before)| (now - before).as_secs_f64());
    Flow { published, wall_secs: start.elapsed().as_secs_f64(), cpu_secs }
}

/// Publishes to sessions whose clients are away. Returns resident bytes per message in a queue.
fn wait(args: &LedgerArgs, fanout: usize) -> (Option<f64>, Stage) {
    let mut stage = Stage::new(fanout);
    stage.leave_all();
    let process = Process::from(nix::unistd::getpid());
    let before = process.resident_bytes();
    let batches = args.queued.div_ceil((BATCH * fanout) as u64);
    for batch in 0..batches {
        stage.publish_batch(batch * BATCH as u64, args.payload);
        stage.acknowledge_all();
    }
    let after = process.resident_bytes();
    let queued = batches * (BATCH * fanout) as u64;
    assert_eq!(stage.acknowledged, 0, "nobody is there");
    let grown = after.zip(before).map(|(after, before)| after.saturating_sub(before));
    (grown.map(|bytes| bytes as f64 / queued as f64), stage)
}

/// A ledger with its sessions, and what a shard knows of them.
struct Stage {
    index: Arc<Subscriptions>,
    ledger: Ledger,
    outside: Outside,
    routes: Vec<Route>,
    sessions: Vec<Arc<Subscriber>>,
    acknowledged: u64,
}

/// What a shard keeps for a topic that is published to again and again.
struct Route {
    topic: TopicNameBuf,
    generation: Generation,
    targets: Arc<Targets>,
}

/// Replies of the ledger; its records go nowhere and are durable at once.
#[derive(Default)]
struct Outside {
    replies: Vec<Reply>,
    committed: Lsn,
}

impl Effects for Outside {
    fn post(&mut self, _: ShardId, reply: Reply) {
        self.replies.push(reply);
    }

    fn commit(&mut self, _: &[Record<'_>]) -> std::result::Result<Lsn, Refusal> {
        self.committed.0 += 1;
        Ok(self.committed)
    }

    fn copy(&mut self, group: &[Record<'_>]) -> std::result::Result<Lsn, Refusal> {
        self.commit(group)
    }
}

impl Stage {
    /// Sessions that last, so many for each topic; all are connected.
    fn new(fanout: usize) -> Self {
        let index = Arc::new(Subscriptions::new([1, 2]));
        let settings =
            Settings { queue_messages_max: usize::MAX, queue_bytes_max: usize::MAX, ..Settings::default() };
        let ledger = Ledger::new(settings, Arc::clone(&index));
        let (outside, routes, sessions) = (Outside::default(), Vec::new(), Vec::new());
        let mut stage = Self { index, ledger, outside, routes, sessions, acknowledged: 0 };
        for topic in 0..TOPICS * fanout {
            stage.connect(&format!("bench/{}", topic % TOPICS));
        }
        stage.find_routes();
        stage
    }

    /// One more session, with one subscription.
    fn connect(&mut self, filter: &str) {
        let connection = connection(self.sessions.len());
        let client_id = format!("session-{}", self.sessions.len()).as_str().into();
        self.handle(Command::Claim(Box::new(Claim {
            subscriber: Arc::new(Subscriber::new(client_id, shard(), connection)),
            connection,
            clean_start: false,
            expiry_secs: u32::MAX,
            window: WINDOW,
            packet_bytes_max: u32::MAX,
            will: None,
            durability: Durability::Fsync,
        })));
        self.work();
        let claimed = self.outside.replies.drain(..).find_map(|reply| match reply {
            Reply::Claimed(claimed) => Some(claimed.subscriber),
            _ => None,
        });
        let subscriber = claimed.expect("nobody else has the identifier");
        let filter = TopicFilter::new(filter).expect("a topic is a filter");
        let options = Interest::new(Qos::AtLeastOnce);
        let change = Change::Subscribe { filter, subscriber: &subscriber, options };
        self.index.apply([change], &mut Vec::new());
        self.handle(Command::Subscribe {
            subscriber: Arc::clone(&subscriber),
            connection,
            packet_id: PacketId::MIN,
            subscriptions: vec![(filter.as_str().into(), options)],
            retained: Vec::new(),
        });
        self.sessions.push(subscriber);
    }

    fn leave_all(&mut self) {
        for (number, subscriber) in std::mem::take(&mut self.sessions).into_iter().enumerate() {
            let connection = connection(number);
            let left = Left { subscriber, connection, cause: Cause::Normal, expiry_secs: None };
            self.handle(Command::Left(left));
        }
        self.find_routes();
        self.work();
    }

    /// Looks every topic up, as a shard does when somebody begins to publish to it.
    fn find_routes(&mut self) {
        self.routes.clear();
        for number in 0..TOPICS {
            let text = format!("bench/{number}");
            let topic = TopicName::new(&text).expect("no wildcard is in it");
            let generation = self.index.generation(topic);
            let targets = Arc::new(Targets::look_up(&self.index, topic, None));
            self.routes.push(Route { generation, targets, topic: topic.into() });
        }
    }

    /// A batch of messages of QoS 1, to one topic after the other, each with a ticket.
    fn publish_batch(&mut self, first: u64, payload: u32) {
        let payload = vec![b'x'; payload as usize];
        for number in
            (0..TOPICS).cycle().skip(usize::try_from(first % TOPICS as u64).unwrap_or(0)).take(BATCH)
        {
            let Route { topic, generation, targets } = &self.routes[number];
            let delivery = Delivery::AtLeastOnce { packet_id: PacketId::MIN, dup: false };
            let packet = wire::Publish { delivery, ..wire::Publish::new(topic.name(), &payload) };
            let message = Arc::new(Message::new(topic.name(), &packet, None, NOW));
            let publish = Publish {
                connection: Some(connection(0)),
                publisher: None,
                ticket: Some(Ticket::PubAck(PacketId::MIN)),
                message,
                route: Some((*generation, Arc::clone(targets))),
            };
            self.handle(Command::Publish(publish));
        }
        self.work();
    }

    /// Every message that was delivered is acknowledged, until there are no more.
    fn acknowledge_all(&mut self) {
        while !self.outside.replies.is_empty() {
            for reply in std::mem::take(&mut self.outside.replies) {
                if let Reply::Deliver(deliver) = reply {
                    let Deliver { what, connection, .. } = *deliver;
                    self.acknowledged += 1;
                    self.handle(Command::Acknowledged { what, connection, reason: ReasonCode::Success });
                }
            }
            self.work();
        }
    }

    fn handle(&mut self, command: Command) {
        self.ledger.handle(shard(), command, NOW, &mut self.outside);
    }

    /// The end of a turn.
    fn work(&mut self) {
        self.ledger.work(NOW, &mut self.outside);
        let committed = self.outside.committed;
        let progress = Progress { written: committed, durable: committed, has_failed: false };
        self.ledger.progress(progress, NOW, &mut self.outside);
        while self.ledger.has_work() {
            self.ledger.work(NOW, &mut self.outside);
        }
    }
}

fn shard() -> ShardId {
    ShardId::new(0)
}

fn connection(number: usize) -> ConnectionId {
    let slot = u32::try_from(number).expect("fewer sessions than a shard has connections");
    ConnectionId { slot, generation: 0 }
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
