//! `pondhawk probe`: measures the abilities of a broker, and compares them with its claims.

mod delivery;
mod finding;
mod limits;
mod offers;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use client::{
    Client, Endpoint, Message, Messages, Options, Outgoing, PublishError, Qos, Server, TopicFilter,
    TopicName, Version,
};
use tokio::time::timeout;

use crate::say::{complain, show};
use finding::{Finding, Report};

/// Largest possible packet (section 1.5.5).
const PACKET_BYTES_MAX: u64 = 268_435_455;

/// Maximum of `--patience`.
const DAY_SECS: u64 = 24 * 3_600;

/// Tests the abilities of a broker, and prints them beside its own claims.
///
/// Each run uses a topic and client identifiers of its own. Messages and sessions that the broker stored are
/// removed at the end, as far as the broker allows, even after a failed check. The exit code is 0 if the broker
/// does what it claims and what MQTT requires, 1 if not, and 2 without a connection.
#[derive(Debug, Clone, Args)]
pub struct ProbeArgs {
    /// HOST, HOST:PORT, or a URL such as mqtts://host.
    broker: String,

    /// User name for the broker.
    #[arg(short, long, value_name = "NAME")]
    username: Option<String>,

    /// Password for the broker.
    #[arg(short = 'P', long, value_name = "PASSWORD", requires = "username")]
    password: Option<String>,

    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,

    /// Largest payload to try, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20, value_parser = RangedU64ValueParser::<usize>::new().range(1..=PACKET_BYTES_MAX))]
    payload_max: usize,

    /// Number of messages in checks that need many.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    messages: u32,

    /// Time limit for each operation, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=DAY_SECS))]
    patience: u64,
}

/// The reason why a check did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The check failed, with this result.
    Failed(String),
    /// The check needs this feature, which the broker says is not available.
    NotTried(String),
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<&str> for Failure {
    fn from(why: &str) -> Self {
        Self::Failed(why.to_owned())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(why) => f.write_str(why),
            Self::NotTried(what) => write!(f, "the broker says that it has no {what}"),
        }
    }
}

/// Ends a check that needs a feature which the broker says is not available.
fn needs(is_there: bool, what: &str) -> Result<(), Failure> {
    if is_there { Ok(()) } else { Err(Failure::NotTried(what.to_owned())) }
}

/// Ends a check that needs a higher QoS than the broker says it supports.
fn needs_qos(client: &Client, qos: Qos) -> Result<(), Failure> {
    needs(qos <= client.server().qos_max, &format!("QoS {}", qos.level()))
}

/// QoS 1, or QoS 0 if the broker has no acknowledgements.
fn surest(client: &Client) -> Qos {
    client.server().qos_max.min(Qos::AtLeastOnce)
}

pub(crate) struct Probe {
    endpoint: Endpoint,
    arguments: ProbeArgs,
    /// Version for all checks but the first: the newest that the broker supports.
    version: Version,
    /// Prefix of every topic and client identifier.
    prefix: String,
}

/// Runs all checks, and prints the findings.
pub fn run(arguments: &ProbeArgs) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let report = match runtime {
        Ok(runtime) => runtime.block_on(probe(arguments)),
        Err(error) => Err(error.to_string().into()),
    };
    match report {
        Ok(report) => {
            show(if arguments.json { report.json() } else { report.table() });
            if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            complain(format_args!("error: {error}"));
            ExitCode::from(2)
        }
    }
}

async fn probe(arguments: &ProbeArgs) -> Result<Report, Failure> {
    let url = if arguments.broker.contains("://") {
        arguments.broker.clone()
    } else {
        format!("mqtt://{}", arguments.broker)
    };
    let endpoint = url.parse().map_err(|error| format!("{}: {error}", arguments.broker))?;
    let prefix = format!("pondhawk-probe-{:08x}", RandomState::new().hash_one(0) >> 32);
    let mut probe = Probe { endpoint, arguments: arguments.clone(), version: Version::V5, prefix };
    let mut report = Report::of(&arguments.broker);
    let unanswered = |why| {
        format!("{}: {why}; is that its port, and does it speak TLS (mqtts://) there?", arguments.broker)
    };
    let versions = offers::versions(&mut probe).await.map_err(unanswered)?;
    report.extend(versions);
    let said = probe.connect("first").await?;
    report.extend(offers::said_of(said.server()));
    leave(said).await;
    report.extend(offers::all(&probe).await);
    report.extend(limits::all(&probe).await);
    report.extend(delivery::all(&probe).await);
    Ok(report)
}

impl Probe {
    /// Options for a client with this name.
    fn options(&self, version: Version, name: &str) -> Options {
        let options = Options::new(version).client_id(format!("{}-{name}", self.prefix));
        let options = options.connect_timeout(self.patience()).request_timeout(self.patience());
        match (&self.arguments.username, &self.arguments.password) {
            (Some(name), password) => {
                options.credentials(name, password.as_ref().map(|text| text.as_bytes()))
            }
            (None, _) => options,
        }
    }

    async fn connect(&self, name: &str) -> Result<Client, Failure> {
        self.connect_with(self.options(self.version, name)).await
    }

    async fn connect_with(&self, options: Options) -> Result<Client, Failure> {
        Ok(Client::connect_to(self.endpoint.clone(), options).await.map_err(|error| error.to_string())?)
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(self.arguments.patience)
    }

    /// A topic that no other client uses.
    fn topic(&self, rest: &str) -> String {
        format!("{}/{rest}", self.prefix)
    }

    async fn subscribe(&self, client: &Client, filter: &str, qos: Qos) -> Result<Messages, Failure> {
        let filter = TopicFilter::try_from(filter).map_err(|error| error.to_string())?;
        Ok(client.subscribe(filter, qos).await.map_err(|error| error.to_string())?)
    }

    /// Publishes a message, and waits for the acknowledgement.
    async fn publish(&self, client: &Client, message: &Outgoing<'_>) -> Result<(), Failure> {
        let published = async { client.publish(message).await?.await.map(drop) };
        let published: Result<(), PublishError> = self.in_time(published).await?;
        Ok(published.map_err(|error| error.to_string())?)
    }

    /// Removes the retained messages of these topics, as far as possible.
    ///
    /// The removal uses a new connection, because that of a failed check may be lost.
    async fn take_away(&self, topics: &[&str]) {
        let Ok(client) = self.connect("broom").await else { return };
        for topic in topics {
            if let Ok(nothing) = message(topic, b"", surest(&client)) {
                let _ = self.publish(&client, &Outgoing { retain: true, ..nothing }).await;
            }
        }
        leave(client).await;
    }

    /// Waits for the next message.
    async fn hear(&self, messages: &mut Messages) -> Result<Message, Failure> {
        self.in_time(messages.next()).await?.ok_or_else(|| "the connection has ended".into())
    }

    async fn in_time<T>(&self, course: impl Future<Output = T>) -> Result<T, Failure> {
        let late = |_| format!("not within {} s", self.arguments.patience).into();
        timeout(self.patience(), course).await.map_err(late)
    }
}

/// Disconnects. The outcome does not matter here.
async fn leave(client: Client) {
    let _ = client.disconnect().await;
}

/// Converts text to a topic name.
fn name(text: &str) -> Result<TopicName<'_>, Failure> {
    Ok(TopicName::try_from(text).map_err(|error| error.to_string())?)
}

fn message<'m>(topic: &'m str, payload: &'m [u8], qos: Qos) -> Result<Outgoing<'m>, Failure> {
    Ok(Outgoing { qos, ..Outgoing::new(name(topic)?, payload) })
}

/// Compares the result of a check with the broker's claim.
fn finding(what: &str, found: Result<(), Failure>, said: Option<bool>) -> Finding {
    Finding::of_check(what, found, said)
}

/// The broker's claim about a feature; `None` before MQTT 5, where brokers make no claims.
fn said(server: &Server, available: bool) -> Option<bool> {
    server.version.is_5().then_some(available)
}
