//! `pondhawk pub`: publishes one message or many.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use client::{
    Acknowledgement, Client, Outgoing, PublishError, Qos, ReasonCode, State, TopicName, UserProperty,
    protocol,
};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use wire::Shown;

use crate::connection;
use crate::end::signal;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::properties::Command;
use crate::say::complain;
use crate::settings::{Settings, Source};
use crate::watch::Watch;

/// Maximum size of a packet, and therefore of a message.
const MESSAGE_BYTES_MAX: u64 = 268_435_455;

/// Maximum number of lines that are read ahead.
const LINES_AHEAD: usize = 1_024;

/// Maximum total size of lines that are read ahead. A single longer line is possible.
const BYTES_AHEAD: u32 = 1 << 20;

/// Total size at which no further line is sent before the acknowledgement of an earlier one.
const BYTES_UNDER_WAY: usize = 16 << 20;

/// Reads the message, connects, publishes, and waits for the acknowledgements.
pub(crate) async fn run(settings: &Settings) -> Result<(), Failure> {
    let message = message(settings)?;
    let pairs = settings.properties.pairs(Command::Publish);
    let like = outgoing(settings, &pairs)?;
    let client = connection::connect(settings).await?;
    let publisher = Publisher { client: &client, like, settings, tally: Tally::default() };
    let mut watch = Watch::new(settings);
    let published = async {
        match &message {
            Some(message) => publisher.repeat(message).await,
            None => publisher.lines().await,
        }
    };
    let (outcome, signal) = tokio::select! {
        outcome = published => (outcome, None),
        () = watch.run(&client) => (Ok(()), None),
        signal = signal(), if settings.publishes_many() => {
            (Err(Failure::with_code("", signal.code())), Some(signal))
        }
    };
    // A signal ends this program like any other: without DISCONNECT, so that the broker publishes the will.
    if signal.is_none() {
        connection::disconnect(&client, settings, None).await;
    }
    if settings.publishes_many() && !settings.quiet && (watch.was_lost() || outcome.is_err()) {
        publisher.report();
    }
    outcome
}

/// Fields of a message without its payload. `pairs` are its user properties.
pub(crate) fn outgoing<'a>(
    settings: &'a Settings,
    pairs: &'a [UserProperty<'a>],
) -> Result<Outgoing<'a>, Failure> {
    let topic = settings.topics.last().map_or("", String::as_str);
    let topic = TopicName::new(topic).map_err(|error| Failure::new(format!("Error: {error}")))?;
    Ok(Outgoing::new(topic, b"")
        .qos(settings.qos)
        .retain(settings.outgoing.retain)
        .properties(settings.properties.message(Command::Publish, pairs)))
}

/// Payload of the single message; `None` if each line of the input is a message.
pub(crate) fn message(settings: &Settings) -> Result<Option<Vec<u8>>, Failure> {
    match &settings.outgoing.source {
        None => Ok(Some(Vec::new())),
        Some(Source::Bytes(bytes)) => Ok(Some(bytes.clone())),
        Some(Source::Lines) => Ok(None),
        Some(Source::File(path)) => file(path).map(Some),
        Some(Source::Input) => input().map(Some),
    }
}

fn file(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = Shown(path.display());
    let failed = |what: String| Failure::new(format!("{what}\nError loading input file \"{name}\"."));
    let unable = |_| failed(format!("Error: Unable to open file \"{name}\"."));
    let file = File::open(path).map_err(unable)?;
    let mut bytes = Vec::new();
    let read = file.take(MESSAGE_BYTES_MAX + 1).read_to_end(&mut bytes);
    let read = read.map_err(|error| failed(format!("Error: Unable to read file \"{name}\": {error}.")))?;
    if read as u64 > MESSAGE_BYTES_MAX {
        return Err(failed(format!("Error: File must be less than {MESSAGE_BYTES_MAX} bytes.")));
    }
    Ok(bytes)
}

fn input() -> Result<Vec<u8>, Failure> {
    let failed = |what: &str| Failure::new(format!("Error: {what}\nError loading input from stdin."));
    let mut bytes = Vec::new();
    let read = io::stdin().lock().take(MESSAGE_BYTES_MAX + 1).read_to_end(&mut bytes);
    match read {
        Ok(0) => Err(failed("Zero length input.")),
        Ok(read) if read as u64 > MESSAGE_BYTES_MAX => Err(too_long()),
        Ok(_) => Ok(bytes),
        Err(error) => Err(failed(&error.to_string())),
    }
}

/// Failure for standard input, or a line of it, that exceeds the largest message.
fn too_long() -> Failure {
    let what = format!("Message length must be less than {MESSAGE_BYTES_MAX} bytes.");
    Failure::new(format!("Error: {what}\nError loading input from stdin."))
}

/// Publishes messages that differ only in their payload.
struct Publisher<'a> {
    client: &'a Client,
    /// Fields that all messages share.
    like: Outgoing<'a>,
    settings: &'a Settings,
    tally: Tally,
}

/// Numbers of messages, for the report at the end.
#[derive(Debug, Default)]
struct Tally {
    read: Cell<u64>,
    /// Messages that the server has acknowledged or, at QoS 0, that were handed to the connection.
    done: Cell<u64>,
}

/// Messages whose outcome is not known, in order.
#[derive(Default)]
struct UnderWay {
    messages: VecDeque<Sent>,
    bytes: usize,
}

/// A message, and its outcome in the future.
struct Sent {
    number: u64,
    payload: Vec<u8>,
    acknowledgement: Acknowledgement,
}

impl Publisher<'_> {
    async fn send(&self, number: u64, payload: Vec<u8>) -> Result<Sent, Failure> {
        let sent = self.client.publish(&self.like.payload(&payload)).await;
        let acknowledgement = sent.map_err(|error| failed(&error))?;
        Ok(Sent { number, payload, acknowledgement })
    }

    /// Publishes one message `repeat` times, each after the acknowledgement of the one before.
    async fn repeat(&self, payload: &[u8]) -> Result<(), Failure> {
        let Settings { outgoing, .. } = self.settings;
        let count = u64::from(outgoing.repeat);
        let mut progress = Progress::new(count, "messages");
        let mut under_way = UnderWay::default();
        for number in 1..=count {
            self.tally.read.set(number);
            under_way.push(self.send(number, payload.to_vec()).await?);
            self.settle_all(&mut under_way).await?;
            progress.advance(1);
            if number < count {
                tokio::time::sleep(outgoing.repeat_delay).await;
            }
        }
        Ok(())
    }

    /// Publishes each line of standard input. As many messages are under way as the server allows.
    async fn lines(&self) -> Result<(), Failure> {
        let mut lines = lines();
        let mut progress = Progress::of_input();
        let mut under_way = UnderWay::default();
        let window = self.window();
        while let Some(line) = lines.recv().await {
            let Line { mut bytes, .. } = line.map_err(|error| Failure::new(format!("Error: {error}")))?;
            progress.advance(bytes.len() as u64);
            if bytes.last() == Some(&b'\n') {
                bytes.pop();
            }
            if bytes.len() as u64 > MESSAGE_BYTES_MAX {
                return Err(too_long());
            }
            // Messages that were lost are sent again before a later one, so that the order stays.
            while let Some(sent) = under_way.next_ready().await {
                self.settle(sent, &mut under_way).await?;
            }
            while under_way.is_full(window)
                && let Some(sent) = under_way.next().await
            {
                self.settle(sent, &mut under_way).await?;
            }
            let number = self.tally.read.get() + 1;
            self.tally.read.set(number);
            under_way.push(self.send(number, bytes).await?);
        }
        self.settle_all(&mut under_way).await
    }

    /// Maximum number of lines under way. No more than the server takes at a time, so that none of them waits behind the
    /// others, and would overtake them after a lost connection.
    fn window(&self) -> usize {
        const WITHOUT_ACKNOWLEDGEMENT: usize = 1_000;
        let receive_max = self.client.server().receive_max.min(self.settings.session.inflight_max);
        if self.like.qos == Qos::AtMostOnce { WITHOUT_ACKNOWLEDGEMENT } else { receive_max.max(1).into() }
    }

    async fn settle_all(&self, under_way: &mut UnderWay) -> Result<(), Failure> {
        while let Some(sent) = under_way.next().await {
            self.settle(sent, under_way).await?;
        }
        Ok(())
    }

    /// Handles the outcome of a message. One that was lost with its connection is sent again on the next.
    ///
    /// A refused message is reported as a warning, and the others continue.
    async fn settle(&self, sent: Outcome, under_way: &mut UnderWay) -> Result<(), Failure> {
        let Outcome { number, payload, outcome } = sent;
        match outcome {
            Ok(_) => self.tally.done.set(self.tally.done.get() + 1),
            Err(PublishError::Refused { reason, text }) => {
                if !self.settings.quiet {
                    let text = text.map(|text| format!(" ({})", Shown(text))).unwrap_or_default();
                    let reason = reason.as_str();
                    complain(format_args!("Warning: Publish {number} failed: {reason}{text}."));
                }
            }
            Err(PublishError::Protocol(
                protocol::PublishError::SessionEnded | protocol::PublishError::NotConnected,
            )) if self.settings.publishes_many() => {
                self.wait_for_connection().await?;
                under_way.push(self.send(number, payload).await?);
            }
            Err(error) => return Err(failed(&error)),
        }
        Ok(())
    }

    async fn wait_for_connection(&self) -> Result<(), Failure> {
        let mut state = self.client.state();
        let is_known = |state: &State| !matches!(state, State::Reconnecting(_));
        match state.wait_for(is_known).await.as_deref() {
            Ok(State::Ended(ended)) => Err(connection::lost(ended)),
            _ => Ok(()),
        }
    }

    /// Reports how many messages have arrived, after a loss or a failure.
    fn report(&self) {
        let done = if self.like.qos == Qos::AtMostOnce { "sent" } else { "acknowledged" };
        let Tally { read, done: count } = &self.tally;
        if read.get() == 0 {
            return;
        }
        complain(format_args!("{} of {} messages were {done}.", count.get(), read.get()));
    }
}

/// A message whose outcome is known.
struct Outcome {
    number: u64,
    payload: Vec<u8>,
    outcome: Result<ReasonCode, PublishError>,
}

impl UnderWay {
    fn push(&mut self, sent: Sent) {
        self.bytes += sent.payload.len();
        self.messages.push_back(sent);
    }

    fn is_full(&self, window: usize) -> bool {
        self.messages.len() >= window || self.bytes >= BYTES_UNDER_WAY
    }

    /// Outcome of the first message, if it has arrived.
    async fn next_ready(&mut self) -> Option<Outcome> {
        let Sent { acknowledgement, .. } = self.messages.front_mut()?;
        let polled = poll_fn(|task| Poll::Ready(Pin::new(&mut *acknowledgement).poll(task))).await;
        let Poll::Ready(outcome) = polled else { return None };
        self.pop(outcome)
    }

    /// Waits for the outcome of the first message; `None` if there is no message.
    async fn next(&mut self) -> Option<Outcome> {
        let Sent { acknowledgement, .. } = self.messages.front_mut()?;
        let outcome = (&mut *acknowledgement).await;
        self.pop(outcome)
    }

    fn pop(&mut self, outcome: Result<ReasonCode, PublishError>) -> Option<Outcome> {
        let Sent { number, payload, .. } = self.messages.pop_front()?;
        self.bytes -= payload.len();
        Some(Outcome { number, payload, outcome })
    }
}

/// A line with its end. A line that is too long is cut just beyond the limit.
struct Line {
    bytes: Vec<u8>,
    /// Share of [`BYTES_AHEAD`] that the line takes up.
    _share: OwnedSemaphorePermit,
}

/// Reads lines on a separate thread, because reads of standard input block.
fn lines() -> mpsc::Receiver<io::Result<Line>> {
    let (to, lines) = mpsc::channel(LINES_AHEAD);
    let room = Arc::new(Semaphore::new(BYTES_AHEAD as usize));
    let runtime = Handle::current();
    thread::spawn(move || {
        let mut input = io::stdin().lock();
        loop {
            let mut bytes = Vec::new();
            let read = input.by_ref().take(MESSAGE_BYTES_MAX + 2).read_until(b'\n', &mut bytes);
            let line = match read {
                Ok(0) => return,
                Ok(count) => {
                    let share = u32::try_from(count).unwrap_or(u32::MAX).min(BYTES_AHEAD);
                    // The semaphore is never closed.
                    let Ok(share) = runtime.block_on(room.clone().acquire_many_owned(share)) else { return };
                    Ok(Line { bytes, _share: share })
                }
                Err(error) => Err(error),
            };
            let is_last = line.is_err();
            // The receiver may be gone, because the program ends for another reason.
            if to.blocking_send(line).is_err() || is_last {
                return;
            }
        }
    });
    lines
}

/// Failure for a message that was not published.
pub(crate) fn failed(error: &PublishError) -> Failure {
    match error {
        PublishError::Ended(ended) => connection::lost(ended),
        other => Failure::new(format!("Error: {other}")),
    }
}
