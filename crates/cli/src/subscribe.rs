//! `pondhawk sub`: subscribes, and prints messages.

use std::collections::HashSet;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::pin::pin;

use client::{
    Client, Inbox, Message, Outgoing, Qos, ReasonCode, SubscribeError, SubscriptionOptions, TopicFilter,
    TopicName,
};

use crate::connection::{self, LEAVE_MAX};
use crate::end::until;
use crate::failure::Failure;
use crate::output::Printer;
use crate::properties::{self, Command, Properties};
use crate::settings::{Incoming, Settings};
use crate::stats::Stats;
use crate::stdout::output;
use crate::watch::Watch;

/// Maximum number of topics in [`Subscriber::removed`].
const REMOVED_MAX: usize = 10_000;

/// Exit code after the server has refused every subscription. The refusal is reported, but does not count as a failure.
const ALL_DENIED: u8 = 0;

/// Connects, subscribes, and prints messages until the end.
pub(crate) async fn run(settings: &Settings) -> Result<(), Failure> {
    let mut ended = pin!(until(settings.incoming.timeout));
    let client = tokio::select! {
        client = connection::connect(settings) => client?,
        end = &mut ended => return end.outcome(),
    };
    let mut inbox = client.inbox().await.map_err(|error| failed(&error))?;
    let mut subscriber = Subscriber::new(&client, settings);
    let (mut outcome, mut end) = tokio::select! {
        outcome = subscriber.receive(&mut inbox) => (outcome, None),
        end = &mut ended => (end.outcome(), Some(end)),
    };
    // A reader of standard output that has stopped reading must not keep the program.
    let mut printed = Ok(());
    if end.is_none() {
        tokio::select! {
            finished = subscriber.printer.finish() => printed = finished,
            is_over = &mut ended => (outcome, end) = (outcome.and(is_over.outcome()), Some(is_over)),
        }
    }
    if end.is_some() {
        let finished = tokio::time::timeout(LEAVE_MAX, subscriber.printer.finish()).await;
        printed = finished.unwrap_or(Ok(()));
    }
    // Messages that nobody takes must not block the acknowledgements behind them.
    drop(inbox);
    connection::disconnect(&client, settings, end).await;
    subscriber.stats.finish();
    outcome.and(printed.map_err(|error| unprinted(&error)))
}

/// State of the program while it receives messages.
struct Subscriber<'a> {
    client: &'a Client,
    settings: &'a Settings,
    printer: Printer,
    stats: Stats,
    filtered_out: Vec<TopicFilter<'a>>,
    printed: u64,
    chance: Chance,
    /// Topics whose retained message this program removes. The empty message that does so arrives here too, and is not
    /// the first new message that ends `--retained-only`.
    removed: HashSet<String>,
}

/// Whether to continue after a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Continue,
    Done,
}

impl<'a> Subscriber<'a> {
    fn new(client: &'a Client, settings: &'a Settings) -> Self {
        let Incoming { filtered_out, chance, stats, .. } = &settings.incoming;
        Self {
            client,
            settings,
            printer: Printer::new(settings),
            stats: Stats::new(*stats),
            filtered_out: filtered_out.iter().filter_map(|text| TopicFilter::new(text).ok()).collect(),
            printed: 0,
            removed: HashSet::new(),
            chance: Chance { share: *chance, state: RandomState::new(), count: 0 },
        }
    }

    /// Subscribes, and receives messages during and after that.
    async fn receive(&mut self, inbox: &mut Inbox) -> Result<(), Failure> {
        let mut subscribing = pin!(subscribe(self.client, self.settings));
        let mut is_subscribed = false;
        // The connection may be lost already.
        let mut state = self.client.state();
        let mut watch = Watch::new(self.settings);
        loop {
            self.stats.tell();
            tokio::select! {
                biased;
                reasons = &mut subscribing, if !is_subscribed => {
                    is_subscribed = true;
                    check_granted(&reasons?)?;
                    if self.settings.incoming.ends_when_subscribed {
                        return Ok(());
                    }
                }
                message = next(inbox, &mut self.printer) => {
                    let message = message.map_err(|error| unprinted(&error))?;
                    let Some(message) = message else { return Err(self.lost()) };
                    if self.take(&message).await? == Flow::Done {
                        return Ok(());
                    }
                    self.printer.flush_batch().await.map_err(|error| unprinted(&error))?;
                }
                Ok(()) = state.changed() => watch.tell(&state.borrow_and_update()),
                () = self.stats.due() => {}
            }
        }
    }

    async fn take(&mut self, message: &Message) -> Result<Flow, Failure> {
        let Incoming { retained_only, without_retained, remove_retained, count, .. } = self.settings.incoming;
        if retained_only && !message.retain() {
            let is_removal = message.payload().is_empty() && self.removed.remove(message.topic().as_str());
            return Ok(if is_removal { Flow::Continue } else { Flow::Done });
        }
        if without_retained && message.retain() {
            return Ok(Flow::Continue);
        }
        if self.filtered_out.iter().any(|filter| filter.matches(message.topic())) {
            return Ok(Flow::Continue);
        }
        if remove_retained && message.retain() {
            if retained_only && self.removed.len() < REMOVED_MAX {
                self.removed.insert(message.topic().as_str().to_owned());
            }
            self.remove(message.topic()).await?;
        }
        if self.chance.is_taken() {
            self.print(message);
        }
        self.printed += 1;
        Ok(if Some(self.printed) == count { Flow::Done } else { Flow::Continue })
    }

    fn print(&mut self, message: &Message) {
        self.printer.print(message);
        self.stats.count(message.payload().len());
    }

    /// Removes the retained message of a topic. The acknowledgement is awaited before the program ends.
    async fn remove(&self, topic: TopicName<'_>) -> Result<(), Failure> {
        let nothing = Outgoing::new(topic, b"").qos(Qos::AtLeastOnce).retain(true);
        let sent = self.client.publish(&nothing).await;
        sent.map(drop).map_err(|error| crate::publish::failed(&error))
    }

    fn lost(&self) -> Failure {
        self.client.ended().map_or_else(|| Failure::new("Error: The connection was lost."), connection::lost)
    }
}

/// Waits for the next message. Before a wait, output is flushed.
pub(crate) async fn next(inbox: &mut Inbox, printer: &mut Printer) -> io::Result<Option<Message>> {
    let mut message = pin!(inbox.next());
    let ready = std::future::poll_fn(|task| std::task::Poll::Ready(message.as_mut().poll(task))).await;
    if let std::task::Poll::Ready(message) = ready {
        return Ok(message);
    }
    printer.flush().await?;
    tokio::select! {
        message = message => Ok(message),
        error = output().failed() => Err(error),
    }
}

/// Sends SUBSCRIBE with all filters, and UNSUBSCRIBE for each filter of `-U`. Returns the reasons from SUBACK.
async fn subscribe(client: &Client, settings: &Settings) -> Result<Vec<ReasonCode>, Failure> {
    let options = SubscriptionOptions {
        qos: settings.qos,
        retain_as_published: settings.incoming.retain_as_published && settings.session.version.is_5(),
        ..SubscriptionOptions::default()
    };
    let topics = settings.topics.iter().filter_map(|text| TopicFilter::new(text).ok());
    let filters: Vec<_> = topics.map(|filter| (filter, options)).collect();
    let pairs = settings.properties.pairs(Command::Subscribe);
    let properties = settings.properties.subscribe(&pairs);
    for text in settings.incoming.unsubscribed.clone() {
        // The task starts when this function first waits, after SUBSCRIBE. Nobody waits for UNSUBACK.
        drop(tokio::spawn(unsubscribe(client.clone(), text, settings.properties.clone())));
    }
    client.subscribe_many(&filters, &properties).await.map_err(|error| failed(&error))
}

async fn unsubscribe(client: Client, text: String, properties: Properties) {
    let pairs = properties.pairs(Command::Unsubscribe);
    if let Ok(filter) = TopicFilter::new(&text) {
        // The only possible error is the end of the connection, which is noticed elsewhere.
        let _ = client.unsubscribe_many(&[filter], &properties::unsubscribe(&pairs)).await;
    }
}

/// Fails if the server refused all filters.
fn check_granted(reasons: &[ReasonCode]) -> Result<(), Failure> {
    if !reasons.is_empty() && reasons.iter().all(|reason| reason.is_error()) {
        return Err(Failure::with_code("All subscription requests were denied.", ALL_DENIED));
    }
    Ok(())
}

/// Failure for a subscription that was not made.
pub(crate) fn failed(error: &SubscribeError) -> Failure {
    match error {
        SubscribeError::Ended(ended) => connection::lost(ended),
        other => Failure::new(format!("Error: {other}")),
    }
}

/// Failure of standard output. A closed pipe is no failure: its reader, such as `head`, has what it wants.
pub(crate) fn unprinted(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::with_code("", 0),
        _ => Failure::new(format!("Error: {error}")),
    }
}

/// `--random-filter`: selects messages at random.
struct Chance {
    share: Option<f64>,
    /// Randomly keyed hash. Hashes of consecutive numbers serve as random numbers.
    state: RandomState,
    count: u64,
}

impl Chance {
    fn is_taken(&mut self) -> bool {
        let Some(share) = self.share else { return true };
        self.count += 1;
        let random = u32::try_from(self.state.hash_one(self.count) >> 32).unwrap_or_default();
        f64::from(random) / f64::from(u32::MAX) < share || share >= 1.0
    }
}
