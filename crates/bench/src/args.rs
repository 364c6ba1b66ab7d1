//! The command line of `bench`.

mod disk;
mod echo;
mod hostile;
mod layers;
mod offline;
mod shootout;
mod trouble;

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;
use std::{io, process, thread};

use wire::{Qos, Version};

use clap::{ArgAction, Args, Subcommand, value_parser};

pub(crate) use self::disk::{DurableArgs, RecoveryArgs};
pub(crate) use self::echo::{ConnectsArgs, EchoArgs};
pub(crate) use self::hostile::HostileArgs;
pub(crate) use self::layers::RelayArgs;
use self::layers::{HandshakesArgs, LayersArgs};
use self::offline::OfflineArgs;
pub use self::shootout::ShootoutArgs;
pub(crate) use self::shootout::{AgentArgs, ShootoutCommand};
use self::trouble::{RetainedFloodArgs, SharedQueueArgs, SlowConsumerArgs, StormArgs};
use crate::error::Error;
use crate::exchange::Quality;
use crate::host::{self, CpuList};
use crate::load::{
    ChurnPlace, ChurnPlan, FloodTest, IdleTest, ManyTest, Pattern, PingtestSize, PingtestTest,
};
use crate::server::{Contender, RunningServer, ServerCommand};

/// The least and the largest rate or number of seconds.
pub(crate) const POSITIVE: RangeInclusive<f64> = 1e-6..=1e9;

/// Load tests for MQTT brokers
///
/// One generator drives thousands of connections against each server in turn and prints one table: throughput, the
/// server's CPU seconds per million messages, its peak memory, and latency where the test has one. Every message is
/// numbered and checked: a run in which one is lost, duplicated, out of order or altered is reported as failed, and
/// the exit status is 1.
///
/// `bench HOST` is `bench loadtest HOST`: the server on that host, at port 1883 unless HOST:PORT names another.
///
/// For figures that mean something give the generator and the servers processors of their own:
///
///   bench loadtest --conns 500 --spawn 'mine=my-broker -p {port}' --with-mosquitto --with-relay --server-cpu 0 --pin 1
#[derive(Debug, Args)]
#[command(
    verbatim_doc_comment,
    disable_version_flag = true,
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true
)]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Option<BenchCommand>,
    #[command(flatten)]
    loadtest: LoadtestArgs,
}

impl BenchArgs {
    /// The named test, or `loadtest` if only a host or flags are given.
    pub(crate) fn command(self) -> BenchCommand {
        self.command.unwrap_or(BenchCommand::Loadtest(self.loadtest))
    }
}

#[derive(Debug, Subcommand)]
#[command(disable_version_flag = true)]
pub(crate) enum BenchCommand {
    /// Half the connections subscribe each to a topic of its own, the other half publish to them as fast as they can
    ///
    /// Counted are deliveries, which are as many as messages published. A run ends when every subscriber has all its
    /// messages, or 5 seconds after the last arrival.
    Loadtest(LoadtestArgs),
    /// Pairs play strict request and reply, while wildcard subscribers listen in on the first pair
    ///
    /// Counted are requests and replies; what the wildcard subscribers receive is checked and not counted. Latency is
    /// that of request and reply together. Without --rate each reply is followed by the next request at once: nothing
    /// is scheduled, so no request can be left out while the server stalls, but a server is only asked as fast as it
    /// answers. With --rate a request that could not be sent on time, because the reply before it was late, counts
    /// from when it should have been sent: the figures are free of coordinated omission.
    Pingtest(PingtestArgs),
    /// Connections that publish to themselves: each subscribes to a topic of its own
    ///
    /// Counted are deliveries. Without --rate, each arrival is followed by the next message at once. With --rate, a
    /// message that could not be sent on time, because the one before it was late, counts from when it should have been
    /// sent: the figures are free of coordinated omission. No client needs another one, so the server may be a load
    /// balancer in front of brokers that know nothing of each other.
    Echo(EchoArgs),
    /// Clients connect, send CONNECT, and leave when they have their CONNACK
    ///
    /// Clients with a CONNACK count, and the latency is the time from the first packet to CONNACK. With --over tls, each
    /// makes a full handshake.
    Connects(ConnectsArgs),
    /// A ramp of connections, each of which publishes now and then to a topic that it subscribes to itself
    ///
    /// Counted are deliveries. Messages are sent on schedule whether earlier ones have arrived or not, so that latency
    /// is free of coordinated omission.
    Many(ManyArgs),
    /// One connection publishes as fast as it can, many subscribe to it
    ///
    /// Counted are deliveries: messages published times subscribers.
    Fanout(FloodArgs),
    /// Many connections publish as fast as they can, each to its own topic; one subscribes to all
    ///
    /// Counted are deliveries, which are as many as messages published.
    Fanin(FloodArgs),
    /// Connections that do nothing: what each costs in memory
    ///
    /// The server's resident memory before and after, divided by the connections; client ids have 23 characters.
    /// Memory inside the kernel is not counted.
    Idle(IdleArgs),
    /// Attacks, one after the other, and what each costs innocent clients
    ///
    /// Innocent clients publish at QoS 0 and 1, store retained messages, and connect, on schedule. They are measured
    /// before an attack and under it; latency counts from when something was due. Afterwards the attackers are cut,
    /// and the server has 30 seconds until nobody is refused any more and it holds about the memory and disk of
    /// before. The first server passes if innocent clients keep half of their throughput, and their 99th percentile
    /// is at most three times what it was, or 5 ms. The exit status is 1 if it does not. Columns show the innocent
    /// client that suffers most. Each server needs a configuration with small limits, or takes long to reach them.
    /// Attacks that only connect also strike a decoy in the place of the server, which refuses every client at once: the
    /// column shows the part of the harm that this machine and the attackers do.
    Hostile(HostileArgs),
    /// The ledger alone, in this process, on one core and without a disk
    ///
    /// Publishes at QoS 1 to sessions that last, and acknowledges every delivery at once: what the ledger costs,
    /// without sockets, mailboxes and records that are written. Then the same to sessions whose clients are away: what
    /// a message in a queue takes of memory.
    Ledger(LedgerArgs),
    /// The ledger on its journal, in this process and on a real disk: how fast messages become durable
    ///
    /// Publishes a number of messages at QoS 1 to sessions that are away, waits until their records are synced, and
    /// repeats that. A yardstick runs in turn with it: the same bytes are appended to one file of the same length, and
    /// synced. Queues are bounded, so that segments are used again all the time, as in a broker that has run for a while.
    Durable(DurableArgs),
    /// The ledger made again from its journal: time, memory, and the disk that is given back
    ///
    /// Records messages at QoS 1 for sessions that are away, and ends. Another process begins again with what is on the
    /// disk; then every client connects and acknowledges what waits for it, and the space of the old records is given
    /// back.
    Recovery(RecoveryArgs),
    /// One subscriber asks for a million retained messages, while innocent clients go on
    ///
    /// The messages are stored first, at QoS 1; then the subscriber connects. Its own cost, on the machine that all
    /// share, is in the column “fed live”: the same messages published to it at QoS 0 while it listens, which is
    /// also the form in which the relay takes part. Every message must arrive once. A server that runs already keeps
    /// them, under flood/.
    RetainedFlood(RetainedFloodArgs),
    /// A loadtest of pairs, alone and beside two subscribers to everything: one never reads, and one reads 1 KiB/s
    ///
    /// The pairs must not lose messages. The messages of the two slow subscribers are not counted.
    SlowConsumer(SlowConsumerArgs),
    /// A shared group in which all members but one acknowledge nothing, and lose their connections
    ///
    /// Every message at QoS 1 must reach the last member, once. The table has the number of messages that came after a
    /// later one with the same key. That is no failure, because servers distribute in different orders.
    SharedQueue(SharedQueueArgs),
    /// All of many clients lose their connections and reconnect at once, while innocent clients go on
    ///
    /// The storm is over when every client has its CONNACK and its SUBACK again.
    Storm(StormArgs),
    /// TLS handshakes: full ones, and those that resume a session
    ///
    /// Clients connect, make a handshake, send CONNECT, and leave when they have their CONNACK. Clients with a CONNACK
    /// count, and the latency is the time from the first packet to CONNACK. In the column “resumed”, each client resumes
    /// the session of the client before it, and a server that makes a full handshake fails the run. With --rate, clients
    /// make this number of handshakes per second, beside innocent clients whose latency is measured.
    Handshakes(HandshakesArgs),
    /// Messages at QoS 1 for sessions whose clients are away. The clients then connect and must receive all of them
    ///
    /// Messages count when the publisher has the acknowledgement, and the clock stops at the last acknowledgement. All
    /// clients then connect and acknowledge. Each acknowledged message must arrive once, in the order of its publisher.
    /// A server that was running before keeps the sessions, without messages.
    OfflineSessions(OfflineArgs),
    /// The ceiling as a server of its own: forwards bytes without looking at them
    ///
    /// The relay speaks MQTT until the first PUBLISH of a connection. It then forwards all bytes of the connection to the
    /// subscribers of that topic: one read of up to 64 KiB, and one write for each subscriber. Its cost is the cost of the
    /// kernel, and with TLS also that of decryption and encryption. It listens on 127.0.0.1 only.
    Relay(RelayArgs),
    /// The floor under attacks that only connect, as a server of its own: refuses every CONNECT
    ///
    /// Listens on 127.0.0.1 only.
    #[command(hide = true)]
    Decoy(OwnServerArgs),
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct LoadtestArgs {
    #[command(flatten)]
    pub(crate) flood: FloodArgs,
    /// Meanwhile one more connection subscribes to this many other topics per second and unsubscribes from them
    ///
    /// The requests are evenly spread. They wait for answers only if 256 are missing. The table says if the rate was too
    /// low. A request that is refused or never answered fails the run.
    #[arg(long, value_name = "N", default_value_t = 0)]
    churn_per_sec: u32,
    /// Topics of these subscriptions
    #[arg(long, value_name = "WHERE", value_enum, default_value_t = ChurnPlace::Apart)]
    churn_topics: ChurnPlace,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct FloodArgs {
    /// Number of connections (loadtest), of subscribers (fanout) or of publishers (fanin); a list makes columns
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "500", value_parser = value_parser!(u32).range(2..))]
    conns: Vec<u32>,
    /// Messages that each publisher sends
    #[arg(long, value_name = "M", default_value_t = 10_000, value_parser = value_parser!(u64).range(1..))]
    messages: u64,
    /// Messages that one write carries; 1 is how a plain client sends
    #[arg(long, value_name = "K", default_value_t = 64, value_parser = value_parser!(u64).range(1..))]
    per_write: u64,
    #[command(flatten)]
    qos: QosArgs,
    /// Messages of a publisher that may be unacknowledged at QoS 1 or 2
    ///
    /// Counted from the oldest that is not acknowledged to the end. A write carries fewer messages than --per-write
    /// where the window has no room for so many. What one read asks for is acknowledged in one write, by publishers
    /// and subscribers alike.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u16).range(1..))]
    window: u16,
    #[command(flatten)]
    payload: PayloadArgs,
    #[command(flatten)]
    pub(crate) comparison: ComparisonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct QosArgs {
    /// QoS of all messages and subscriptions: 0, 1 or 2
    ///
    /// Above 0, a run also waits for the last acknowledgement of every message. A server that grants a lower QoS, or whose
    /// Receive Maximum is below the window, fails the run.
    #[arg(long, value_name = "QOS", default_value = "0", value_parser = qos)]
    qos: Qos,
}

#[derive(Debug, Args)]
pub(crate) struct PayloadArgs {
    /// Bytes of payload; the first 16 say which message it is
    #[arg(long = "payload", value_name = "BYTES", default_value_t = 16, value_parser = value_parser!(u32).range(16..=1_048_576))]
    len: u32,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct PingtestArgs {
    /// Number of pairs
    #[arg(long, value_name = "P", default_value_t = 400, value_parser = value_parser!(u32).range(1..), conflicts_with = "sizes")]
    pairs: u32,
    /// Number of wildcard subscribers
    #[arg(long, value_name = "W", default_value_t = 20, conflicts_with = "sizes")]
    wsubs: u32,
    /// Several sizes at once, such as 400p20w,200p200w: pairs and wildcard subscribers
    #[arg(long, value_name = "SIZE", value_delimiter = ',')]
    sizes: Vec<PingtestSize>,
    /// Number of requests of each pair
    #[arg(long, value_name = "M", default_value_t = 1_000, value_parser = value_parser!(u64).range(1..))]
    messages: u64,
    /// Requests per second of all pairs together, evenly spaced; without it as fast as the replies come
    #[arg(long, value_name = "R", value_parser = positive)]
    rate: Option<f64>,
    #[command(flatten)]
    qos: QosArgs,
    #[command(flatten)]
    payload: PayloadArgs,
    #[command(flatten)]
    pub(crate) comparison: ComparisonArgs,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct ManyArgs {
    /// Connections; several numbers make several columns
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "5000", value_parser = value_parser!(u32).range(1..))]
    conns: Vec<u32>,
    /// Connections opened per second
    #[arg(long, value_name = "R", default_value = "2000", value_parser = positive)]
    ramp_per_sec: f64,
    /// Seconds between two messages of a connection
    #[arg(long, value_name = "SECS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Seconds that publishing goes on when all are connected
    #[arg(long, value_name = "SECS", default_value = "10", value_parser = seconds)]
    duration: Duration,
    #[command(flatten)]
    qos: QosArgs,
    #[command(flatten)]
    payload: PayloadArgs,
    #[command(flatten)]
    pub(crate) comparison: ComparisonArgs,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct IdleArgs {
    /// Connections; several numbers make several columns
    #[arg(value_name = "N", action = ArgAction::Set, num_args = 1, value_delimiter = ',', default_value = "8000", value_parser = value_parser!(u32).range(1..))]
    conns: Vec<u32>,
    /// Each connection has one subscription, to idle/CLIENT-ID/commands
    #[arg(long)]
    subscribe: bool,
    #[command(flatten)]
    pub(crate) comparison: ComparisonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ComparisonArgs {
    /// A server that runs already; the port is 1883 unless it is given
    ///
    /// It may be a URL, such as mqtts://broker.example, ws://localhost:8080/mqtt or wss://broker.example. The scheme then
    /// replaces --over, and has the usual port. --server gives a server a shorter name in the table, and a process id.
    #[arg(value_name = "HOST[:PORT]", value_parser = host)]
    pub(crate) hosts: Vec<RunningServer>,
    /// A server that runs already (default: server=127.0.0.1:1883); may be given several times
    ///
    /// Without a process id, a server on this machine is found by its listening socket. All ratios in the table are
    /// relative to the first server.
    #[arg(long = "server", value_name = "NAME=HOST[:PORT[:PID]]")]
    pub(crate) servers: Vec<RunningServer>,
    /// A server that is started afresh for each run and ended after it; may be given several times
    ///
    /// The shell runs the command, which must stay in the foreground and listen on 127.0.0.1:{port}. {cert}, {key} and {ca}
    /// become files: a certificate for 127.0.0.1 and localhost, its key, and its authority, which the clients then trust.
    /// The output of the command is discarded. If it does not start, its rows are FAILED. The command ends when this program
    /// ends; on Linux (with util-linux) also when this program is killed, unless the command changes its user.
    #[arg(long = "spawn", value_name = "NAME=COMMAND with {port}")]
    pub(crate) commands: Vec<ServerCommand>,
    /// Adds Mosquitto as it is installed, started afresh for each run
    ///
    /// Its configuration is the default one with these changes: allow_anonymous true, max_queued_messages 0 (queues grow
    /// instead of dropping messages), max_inflight_messages 0 (the protocol alone limits the unacknowledged messages of a
    /// subscriber, instead of 20), set_tcp_nodelay true, log_type none.
    #[arg(long)]
    pub(crate) with_mosquitto: bool,
    /// Adds the built-in relay, started afresh for each run. It shows how far the servers are from the kernel's limit
    ///
    /// The relay knows no acknowledgements, and is refused above QoS 0.
    #[arg(long)]
    pub(crate) with_relay: bool,
    /// Processors for the servers that are started, such as 0 or 0,2-3
    #[arg(long, value_name = "CPUS")]
    pub(crate) server_cpu: Option<CpuList>,
    /// Processors for the generator; its threads take them in turn
    #[arg(long, value_name = "CPUS")]
    pub(crate) pin: Option<CpuList>,
    /// Threads of the generator
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u8).range(1..))]
    pub(crate) threads: u8,
    /// Rounds: in each, every size is run on every server in turn
    #[arg(long, value_name = "R", default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    pub(crate) repeat: u32,
    /// Protocol version: 3.1, 3.1.1 or 5
    #[arg(long, value_name = "VERSION", default_value = "3.1.1", value_parser = version)]
    pub(crate) version: Version,
    /// Writes every run to a file too
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) layers: LayersArgs,
}

impl ComparisonArgs {
    /// Whether it names a server, a processor, or anything else than the version and the layers.
    pub(crate) fn is_chosen(&self) -> bool {
        let names_servers = !(self.hosts.is_empty() && self.servers.is_empty() && self.commands.is_empty());
        let names_processors = self.server_cpu.is_some() || self.pin.is_some() || self.threads != 1;
        let is_added = self.with_mosquitto || self.with_relay;
        let is_measured = self.repeat != 1 || self.json.is_some();
        names_servers || names_processors || is_added || is_measured || self.layers.has_trust()
    }
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct LedgerArgs {
    /// Sessions that each message goes to; several numbers make several columns
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,10", value_parser = fanout)]
    pub(crate) fanout: Vec<usize>,
    /// Messages that are published
    #[arg(long, value_name = "M", default_value_t = 2_000_000, value_parser = value_parser!(u64).range(1..))]
    pub(crate) messages: u64,
    /// Messages that wait, counted in each queue
    #[arg(long, value_name = "M", default_value_t = 1_000_000, value_parser = value_parser!(u64).range(1..))]
    pub(crate) queued: u64,
    /// Payload of each message, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = value_parser!(u32).range(..=1_048_576))]
    pub(crate) payload: u32,
    /// The processor to stay on
    #[arg(long, value_name = "CPU")]
    pub(crate) pin: Option<CpuList>,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct OwnServerArgs {
    /// Port to listen on, on 127.0.0.1
    #[arg(short, long, default_value_t = 1883)]
    pub(crate) port: u16,
    /// The processor to stay on
    #[arg(long, value_name = "CPU")]
    pub(crate) pin: Option<CpuList>,
    /// Ends when standard input does
    #[arg(long, hide = true)]
    pub(crate) until_stdin_closes: bool,
}

impl OwnServerArgs {
    /// Prepares this process to be a server. Returns the address to listen on.
    ///
    /// # Errors
    /// If there is no such processor, or descriptors do not suffice.
    pub(crate) fn begin(&self) -> Result<SocketAddr, Error> {
        host::raise_descriptor_limit(0)?;
        if let Some(cpus) = &self.pin {
            cpus.confine_this_thread()?;
        }
        if self.until_stdin_closes {
            thread::spawn(|| {
                // Until the end, or until it cannot be read: the same to us.
                let _ = io::copy(&mut io::stdin(), &mut io::sink());
                process::exit(0)
            });
        }
        Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, self.port)))
    }
}

impl LoadtestArgs {
    /// The test that is asked for.
    pub(crate) fn test(&self) -> FloodTest {
        let plan = |topics_per_sec| ChurnPlan { topics_per_sec, place: self.churn_topics };
        FloodTest { churn: NonZeroU32::new(self.churn_per_sec).map(plan), ..self.flood.test(Pattern::Pairs) }
    }
}

impl FloodArgs {
    /// Checks that connections can form pairs, of which one subscribes and one publishes.
    ///
    /// # Errors
    /// [`Error::Arguments`] with the first odd number of connections.
    pub(crate) fn check_pairs(&self) -> Result<(), Error> {
        let odd = self.conns.iter().find(|conns| !conns.is_multiple_of(2));
        odd.map_or(Ok(()), |odd| {
            let what = "is odd: half of the connections subscribe, and the other half publish";
            Err(Error::Arguments(format!("--conns {odd} {what}")))
        })
    }

    /// The test that is asked for.
    pub(crate) fn test(&self, pattern: Pattern) -> FloodTest {
        FloodTest {
            pattern,
            sizes: self.conns.clone(),
            messages: self.messages,
            per_write: self.per_write,
            payload_len: self.payload.len as usize,
            quality: Quality { qos: self.qos.qos, window: self.window },
            version: self.comparison.version,
            churn: None,
        }
    }
}

impl QosArgs {
    /// For loads whose publishers wait for something else than room in a window.
    fn one_at_a_time(&self) -> Quality {
        Quality { qos: self.qos, window: 1 }
    }
}

impl PingtestArgs {
    /// The test that is asked for.
    pub(crate) fn test(&self) -> PingtestTest {
        let single = PingtestSize { pairs: self.pairs, wildcard_subscribers: self.wsubs };
        PingtestTest {
            sizes: if self.sizes.is_empty() { vec![single] } else { self.sizes.clone() },
            messages: self.messages,
            rate: self.rate,
            payload_len: self.payload.len as usize,
            quality: self.qos.one_at_a_time(),
            version: self.comparison.version,
        }
    }
}

impl ManyArgs {
    /// The test that is asked for.
    pub(crate) fn test(&self) -> ManyTest {
        ManyTest {
            sizes: self.conns.clone(),
            ramp_per_sec: self.ramp_per_sec,
            interval: self.interval,
            duration: self.duration,
            payload_len: self.payload.len as usize,
            quality: self.qos.one_at_a_time(),
            version: self.comparison.version,
        }
    }
}

impl IdleArgs {
    /// The test that is asked for.
    pub(crate) fn test(&self) -> IdleTest {
        IdleTest { sizes: self.conns.clone(), subscribe: self.subscribe, version: self.comparison.version }
    }
}

impl ComparisonArgs {
    /// The rows of the table, in order.
    pub(crate) fn contenders(&self, own_words: &[&str]) -> Vec<Contender> {
        let over = self.layers.over;
        let running = self.hosts.iter().chain(&self.servers).cloned();
        let running = running.map(|server| Contender::running(server, over));
        let commands = self.commands.iter().cloned().map(|server| Contender::command(server, over));
        let mosquitto = self.with_mosquitto.then(|| Contender::mosquitto(over));
        let relay = self.with_relay.then(|| Contender::relay(own_words, over));
        let mut contenders: Vec<_> = running.chain(commands).chain(mosquitto).chain(relay).collect();
        if contenders.is_empty() {
            contenders.push(Contender::running(RunningServer::default(), over));
        }
        contenders
    }
}

/// A server without a name of its own, as people type it.
fn host(text: &str) -> Result<RunningServer, String> {
    let place = RunningServer::at(text.to_owned(), text);
    place.map_err(|error| format!("{error}; a test has one of the names in `bench --help`"))
}

fn version(text: &str) -> Result<Version, String> {
    match text {
        "3.1" | "31" => Ok(Version::V3_1),
        "3.1.1" | "311" => Ok(Version::V3_1_1),
        "5" | "5.0" => Ok(Version::V5),
        _ => Err("there are 3.1, 3.1.1 and 5".to_owned()),
    }
}

fn qos(text: &str) -> Result<Qos, String> {
    let known = ["0", "1", "2"].into_iter().zip(Qos::ALL).find(|(name, _)| *name == text);
    known.map(|(_, qos)| qos).ok_or_else(|| "there are 0, 1 and 2".to_owned())
}

/// A number of sessions.
fn sessions(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|sessions| (1..=1_000_000).contains(sessions))
        .ok_or_else(|| "1 to 1000000".to_owned())
}

/// A number of sessions that a message goes to.
fn fanout(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|fanout| (1..=10_000).contains(fanout)).ok_or_else(|| "1 to 10000".to_owned())
}

/// A rate or a number of seconds. Its inverse, times any number of clients, is still a duration.
fn positive(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| POSITIVE.contains(value));
    value.ok_or_else(|| {
        format!("`{text}` is not a number above 0, from {} to {}", POSITIVE.start(), POSITIVE.end())
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    let secs = positive(text)?;
    Duration::try_from_secs_f64(secs).map_err(|_| format!("{secs} seconds are too long"))
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::load::Test;

    /// A program that has the load tests as a subcommand.
    #[derive(Debug, Parser)]
    #[command(version, propagate_version = true)]
    struct Program {
        #[command(subcommand)]
        command: Nested,
    }

    #[derive(Debug, Subcommand)]
    enum Nested {
        Bench(BenchArgs),
    }

    fn parse(line: &str) -> Result<BenchCommand, clap::Error> {
        let Nested::Bench(args) = Program::try_parse_from(line.split(' '))?.command;
        Ok(args.command())
    }

    #[test]
    fn the_arguments_fit_into_another_program() {
        Program::command().debug_assert();
    }

    #[test]
    fn rows_come_in_the_order_server_spawn_mosquitto_relay() {
        let line = "pondhawk bench fanin --with-relay --with-mosquitto --server a=127.0.0.1:1 --server b=127.0.0.1:2";
        let BenchCommand::Fanin(args) = parse(line).unwrap() else { panic!("fanin was asked for") };
        let names: Vec<_> = args.comparison.contenders(&["bench"]).into_iter().map(|row| row.name).collect();
        assert_eq!(names, ["a", "b", "mosquitto", "relay"]);
    }

    #[test]
    fn a_host_is_measured_with_a_loadtest_unless_a_test_is_named() {
        for (line, names) in [
            ("p bench 127.0.0.1", &["127.0.0.1"][..]),
            ("p bench 127.0.0.1:1884 --conns 4", &["127.0.0.1:1884"]),
            ("p bench --conns 4 mqtt://localhost", &["mqtt://localhost"]),
            ("p bench loadtest 127.0.0.1 --server b=127.0.0.1:2", &["127.0.0.1", "b"]),
            ("p bench --conns 4", &["server"]),
        ] {
            let BenchCommand::Loadtest(args) = parse(line).unwrap() else { panic!("{line}") };
            let rows = args.flood.comparison.contenders(&["bench"]);
            assert_eq!(rows.into_iter().map(|row| row.name).collect::<Vec<_>>(), names, "{line}");
        }
        let BenchCommand::Idle(args) = parse("p bench idle 10,20 127.0.0.1").unwrap() else { panic!("idle") };
        assert_eq!((args.conns.len(), args.comparison.hosts.len()), (2, 1));
        let line = "p bench hostile --host 127.0.0.1 one two";
        let BenchCommand::Hostile(args) = parse(line).unwrap() else { panic!("hostile") };
        assert_eq!((args.attacks.len(), args.comparison.hosts.len()), (2, 1));
        let error = parse("p bench not..a..host").unwrap_err().to_string();
        assert!(error.contains("no such host") && error.contains("bench --help"), "{error}");
        assert!(parse("p bench").unwrap_err().to_string().contains("loadtest"));
    }

    #[test]
    fn lists_of_sizes_make_columns() {
        let BenchCommand::Loadtest(args) = parse("p bench loadtest --conns 100,500 --version 5").unwrap()
        else {
            panic!("loadtest was asked for")
        };
        assert_eq!(args.test().sizes(), ["100 connections", "500 connections"]);
        let BenchCommand::Pingtest(args) = parse("p bench pingtest --sizes 400p20w,1p0w").unwrap() else {
            panic!("pingtest was asked for")
        };
        assert_eq!(args.test().sizes(), ["400p20w", "1p0w"]);
    }

    #[test]
    fn sizes_of_messages_and_numbers_of_queues_make_rows() {
        let BenchCommand::Durable(args) = parse("p bench durable --payload 100,1024 --fanout 1,10").unwrap()
        else {
            panic!("durable was asked for")
        };
        let shapes = args.shapes().into_iter().map(|shape| shape.to_string());
        let expected = ["100 B, 1 queue", "1024 B, 1 queue", "100 B, 10 queues", "1024 B, 10 queues"];
        assert!(shapes.eq(expected));
    }

    #[test]
    fn topics_come_and_go_only_where_that_is_asked_for() {
        let title = |line| {
            let BenchCommand::Loadtest(args) = parse(line).unwrap() else { panic!("loadtest was asked for") };
            args.test().title()
        };
        assert!(!title("p bench loadtest").contains("SUBSCRIBE"));
        let title = title("p bench loadtest --churn-per-sec 7 --churn-topics beside");
        assert!(
            title.ends_with("; 7 × SUBSCRIBE and UNSUBSCRIBE per second on topics beside them"),
            "{title}"
        );
        assert!(parse("p bench fanout --churn-per-sec 7").is_err());
    }

    #[test]
    fn qos_and_window_are_in_the_title_where_they_matter() {
        let title = |line| {
            let BenchCommand::Loadtest(args) = parse(line).unwrap() else { panic!("loadtest was asked for") };
            args.test().title()
        };
        let begins = |title: String, with: &str| assert!(title.starts_with(with), "{title}");
        begins(title("p bench loadtest"), "loadtest: MQTT 3.1.1, QoS 0, 10000 ×");
        begins(
            title("p bench loadtest --qos 1"),
            "loadtest: MQTT 3.1.1, QoS 1 with a window of 100, 10000 ×",
        );
        let line = "p bench loadtest --qos 2 --window 7 --version 5";
        begins(title(line), "loadtest: MQTT 5.0, QoS 2 with a window of 7, 10000 ×");
        let BenchCommand::Pingtest(args) = parse("p bench pingtest --qos 2").unwrap() else {
            panic!("pingtest was asked for")
        };
        begins(args.test().title(), "pingtest: MQTT 3.1.1, QoS 2, 1000 ×");
    }

    #[test]
    fn the_relay_is_refused_where_it_would_have_to_acknowledge() {
        for test in ["loadtest", "fanout", "fanin", "pingtest", "many"] {
            let Nested::Bench(args) =
                Program::try_parse_from(["p", "bench", test, "--qos", "1", "--with-relay"]).unwrap().command;
            let error = crate::run(args, &["bench"]).unwrap_err();
            assert!(error.to_string().contains("relay"), "{error}");
        }
    }

    #[test]
    fn an_odd_number_of_connections_is_refused_where_they_form_pairs() {
        for (line, is_refused) in [
            ("p bench loadtest --conns 100,3", true),
            ("p bench loadtest --conns 100,4", false),
            ("p bench slow-consumer --conns 3", true),
        ] {
            let outcome = match parse(line).unwrap() {
                BenchCommand::Loadtest(args) => args.flood.check_pairs(),
                BenchCommand::SlowConsumer(args) => args.flood.check_pairs(),
                other => panic!("{other:?}"),
            };
            assert_eq!(outcome.is_err(), is_refused, "{line}");
            assert!(outcome.err().is_none_or(|error| error.to_string().contains("--conns 3 is odd")));
        }
        let Nested::Bench(args) =
            Program::try_parse_from(["p", "bench", "loadtest", "--conns", "3"]).unwrap().command;
        assert!(crate::run(args, &["bench"]).unwrap_err().to_string().contains("odd"));
    }

    #[test]
    fn invalid_arguments_are_refused() {
        for line in [
            "p bench loadtest --qos 3",
            "p bench loadtest --window 0",
            "p bench loadtest --window 65536",
            "p bench idle --qos 1",
            "p bench loadtest --conns 1",
            "p bench loadtest --per-write 0",
            "p bench loadtest --payload 15",
            "p bench pingtest --sizes 0p1w",
            "p bench pingtest --rate 0",
            "p bench echo --rate 1e-300",
            "p bench echo --rate 100 --ahead 2",
            "p bench pingtest --pairs 5 --sizes 1p1w",
            "p bench many --interval -1",
            "p bench idle 0",
            "p bench durable --per-commit 0",
            "p bench durable --seconds 0",
            "p bench recovery --sessions 0",
            "p bench offline-sessions --payload 15",
            "p bench loadtest --version 4",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
