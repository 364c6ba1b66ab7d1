//! `pondhawk probe`: measures the abilities of a broker, and compares them with its claims.

mod delivery;
mod finding;
mod limits;
mod offers;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::IsTerminal;
use std::num::NonZeroU32;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use client::{
    Client, Endpoint, Message, Messages, Options, Outgoing, PublishError, Qos, Server, TopicFilter,
    TopicName, Version,
};
use indicatif::{ProgressBar, ProgressDrawTarget};
use tokio::time::timeout;

use crate::end::signal;
use crate::presets;
use crate::say::{complain, complain_of, show};
use crate::trust::Trust;
use crate::url::without_user;
use finding::{Finding, Report};

/// Largest possible packet (section 1.5.5).
const PACKET_BYTES_MAX: u64 = 268_435_455;

/// Bytes that a packet may have beyond the largest payload.
const PACKET_EXCESS_BYTES: u64 = 1 << 20;

/// Maximum of `--patience`.
const DAY_SECS: u64 = 24 * 3_600;

/// Tests the abilities of a broker, and prints them beside its own claims.
///
/// Each run uses a topic and client identifiers of its own. Messages and sessions that the broker stored are
/// removed at the end, as far as the broker allows, even after a failed check. The exit code is 0 if the broker
/// does what it claims and what MQTT requires, 1 if not, 2 without a connection, and 3 if the broker disappeared during
/// a check. Ctrl-C prints the results so far, with exit code 130.
#[derive(Debug, Clone, Args)]
pub struct ProbeArgs {
    /// HOST, HOST:PORT, or a URL such as mqtts://host [default: PONDHAWK_HOST, or that of the profile]
    broker: Option<String>,

    /// Use the host, the user name and the certificates in ~/.config/pondhawk/profiles/NAME.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,

    /// User name for the broker.
    #[arg(short, long, value_name = "NAME")]
    username: Option<String>,

    /// Password for the broker.
    #[arg(short = 'P', long, value_name = "PASSWORD", requires = "username")]
    password: Option<String>,

    #[command(flatten)]
    trust: Trust,

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

impl ProbeArgs {
    /// Adds the values of environment and profile for arguments that were not given.
    fn with_presets(mut self) -> Result<Self, crate::failure::Failure> {
        let presets = presets::connection(self.profile.as_deref())?;
        self.trust = self.trust.or(&presets.tls);
        self.username = self.username.or_else(|| presets.session.user_name.clone());
        if self.password.is_none() {
            let password = presets.session.password.as_ref();
            self.password = password.map(|text| String::from_utf8_lossy(text).into_owned());
        }
        if self.broker.is_none() {
            self.broker = Some(presets::Broker::of(&presets, "HOST, HOST:PORT or a URL")?.url());
        }
        Ok(self)
    }

    fn broker(&self) -> &str {
        self.broker.as_deref().unwrap_or_default()
    }
}

/// The reason why a check did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The check failed, with this result.
    Failed(String),
    /// The check needs this feature, which the broker says is not available.
    NotTried(String),
    /// The broker accepts no connections since this check, which failed with this result.
    Disappeared(String),
    /// The broker has disappeared during an earlier check.
    Gone,
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
            Self::Disappeared(why) => write!(f, "the broker has disappeared: {why}"),
            Self::Gone => f.write_str("the broker has disappeared"),
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
    /// The broker has disappeared.
    is_gone: Cell<bool>,
    progress: ProgressBar,
}

/// Exit code after the broker has disappeared during a check.
const DISAPPEARED: u8 = 3;

/// Runs all checks, and prints the findings.
pub fn run(arguments: &ProbeArgs) -> ExitCode {
    let arguments = &match arguments.clone().with_presets() {
        Ok(arguments) => arguments,
        Err(failure) => {
            complain_of(&failure);
            return ExitCode::from(2);
        }
    };
    let report = RefCell::new(Report::of(arguments.broker()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(async {
            tokio::select! {
                outcome = probe(arguments, &report) => outcome,
                signal = signal() => Ok(ExitCode::from(signal.code())),
            }
        }),
        Err(error) => Err(error.to_string().into()),
    };
    let report = report.borrow();
    match outcome {
        Ok(code) => {
            show(if arguments.json { report.json() } else { report.table() });
            code
        }
        Err(error) => {
            complain(format_args!("error: {error}"));
            ExitCode::from(2)
        }
    }
}

/// Runs all checks, and adds their findings to the report as they are made.
async fn probe(arguments: &ProbeArgs, report: &RefCell<Report>) -> Result<ExitCode, Failure> {
    let url = if arguments.broker().contains("://") {
        arguments.broker().to_owned()
    } else {
        format!("mqtt://{}", arguments.broker())
    };
    let endpoint: Endpoint =
        url.parse().map_err(|error| format!("{}: {error}", wire::Shown(without_user(arguments.broker()))))?;
    let has_tls =
        ["mqtts://", "ssl://", "tls://", "wss://", "quic://"].iter().any(|scheme| url.starts_with(scheme));
    let endpoint = match arguments.trust.tls(has_tls)? {
        Some(tls) => endpoint.tls(tls),
        None => endpoint,
    };
    let prefix = format!("pondhawk-probe-{:08x}", RandomState::new().hash_one(0) >> 32);
    let (is_gone, progress) = (Cell::new(false), progress());
    let mut probe =
        Probe { endpoint, arguments: arguments.clone(), version: Version::V5, prefix, is_gone, progress };
    let question = if has_tls { "" } else { ", and does it speak TLS (mqtts://) there" };
    let unanswered = |why| format!("{}: {why}; is that its port{question}?", wire::Shown(arguments.broker()));
    let add = |findings: Vec<Finding>| report.borrow_mut().extend(findings);
    add(offers::versions(&mut probe).await.map_err(unanswered)?);
    let said = probe.connect("first").await?;
    add(offers::said_of(said.server()));
    leave(said).await;
    offers::all(&probe, &add).await;
    limits::all(&probe, &add).await;
    delivery::all(&probe, &add).await;
    probe.progress.finish_and_clear();
    let is_clean = report.borrow().is_clean();
    Ok(match (probe.is_gone.get(), is_clean) {
        (true, _) => ExitCode::from(DISAPPEARED),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    })
}

/// The name of the current check, on standard error if that is a terminal.
fn progress() -> ProgressBar {
    let progress = ProgressBar::new_spinner();
    if std::io::stderr().is_terminal() {
        progress.enable_steady_tick(Duration::from_millis(100));
    } else {
        progress.set_draw_target(ProgressDrawTarget::hidden());
    }
    progress
}

/// Receives findings as they are made.
type Add<'a> = &'a dyn Fn(Vec<Finding>);

impl Probe {
    /// Makes a check, unless the broker has disappeared. After a failure, looks whether the broker is still there: a
    /// broker that crashes is a finding, and the checks after that say nothing about it.
    async fn check<T>(
        &self,
        what: &str,
        check: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        if self.is_gone.get() {
            return Err(Failure::Gone);
        }
        self.progress.set_message(what.to_owned());
        let outcome = check.await;
        match outcome {
            Err(Failure::Failed(why)) if !self.is_there().await => {
                self.is_gone.set(true);
                Err(Failure::Disappeared(why))
            }
            outcome => outcome,
        }
    }

    /// Whether the broker accepts connections.
    async fn is_there(&self) -> bool {
        timeout(self.patience(), self.endpoint.connect()).await.is_ok_and(|connected| connected.is_ok())
    }

    /// Options for a client with this name.
    fn options(&self, version: Version, name: &str) -> Options {
        let options = Options::new(version).client_id(format!("{}-{name}", self.prefix));
        let options = options.connect_timeout(self.patience()).request_timeout(self.patience());
        let packet_bytes = (self.arguments.payload_max as u64 + PACKET_EXCESS_BYTES).min(PACKET_BYTES_MAX);
        let packet_bytes =
            u32::try_from(packet_bytes).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MAX);
        let options = options.packet_bytes_max(packet_bytes);
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
        if self.is_gone.get() {
            return;
        }
        let Ok(client) = self.connect("broom").await else { return };
        for topic in topics {
            if let Ok(nothing) = message(topic, b"", surest(&client)) {
                let _ = self.publish(&client, &nothing.retain(true)).await;
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
    Ok(Outgoing::new(name(topic)?, payload).qos(qos))
}

/// Compares the result of a check with the broker's claim.
fn finding(what: &str, found: Result<(), Failure>, said: Option<bool>) -> Finding {
    Finding::of_check(what, found, said)
}

/// The broker's claim about a feature; `None` before MQTT 5, where brokers make no claims.
fn said(server: &Server, available: bool) -> Option<bool> {
    server.version.is_5().then_some(available)
}
