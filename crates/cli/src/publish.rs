//! `pondhawk pub`: publishes one message or many.

use std::collections::VecDeque;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use client::{Acknowledgement, Client, Outgoing, PublishError, ReasonCode, TopicName, UserProperty};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::connection;
use crate::failure::Failure;
use crate::progress::Progress;
use crate::properties::Command;
use crate::say::complain;
use crate::settings::{Settings, Source};

/// Maximum size of a packet, and therefore of a message.
const MESSAGE_BYTES_MAX: u64 = 268_435_455;

/// Maximum number of lines that are read ahead.
const LINES_AHEAD: usize = 1_024;

/// Maximum total size of lines that are read ahead. A single longer line is possible.
const BYTES_AHEAD: u32 = 1 << 20;

/// Reads the message, connects, publishes, and waits for the acknowledgements.
pub(crate) async fn run(settings: &Settings) -> Result<(), Failure> {
    let message = message(settings)?;
    let pairs = settings.properties.pairs(Command::Publish);
    let like = outgoing(settings, &pairs)?;
    let client = connection::connect(settings).await?;
    let publisher = Publisher { client: &client, like, is_quiet: settings.quiet };
    let outcome = match &message {
        Some(message) => publisher.repeat(message, settings).await,
        None => publisher.lines().await,
    };
    connection::disconnect(&client, settings, None).await;
    outcome
}

/// Fields of a message without its payload. `pairs` are its user properties.
pub(crate) fn outgoing<'a>(
    settings: &'a Settings,
    pairs: &'a [UserProperty<'a>],
) -> Result<Outgoing<'a>, Failure> {
    let topic = settings.topics.last().map_or("", String::as_str);
    let topic = TopicName::new(topic).map_err(|error| Failure::new(format!("Error: {error}")))?;
    Ok(Outgoing {
        qos: settings.qos,
        retain: settings.outgoing.retain,
        properties: settings.properties.message(Command::Publish, pairs),
        ..Outgoing::new(topic, b"")
    })
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
    let name = path.display();
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
    is_quiet: bool,
}

/// Acknowledgements that are pending, in order.
#[derive(Default)]
struct UnderWay {
    acknowledgements: VecDeque<Acknowledgement>,
    /// Number of messages acknowledged before these.
    done: u64,
}

impl Publisher<'_> {
    async fn send(&self, payload: &[u8]) -> Result<Acknowledgement, Failure> {
        self.client.publish(&Outgoing { payload, ..self.like }).await.map_err(|error| failed(&error))
    }

    /// Publishes one message `repeat` times, each after the acknowledgement of the one before.
    async fn repeat(&self, payload: &[u8], settings: &Settings) -> Result<(), Failure> {
        let count = u64::from(settings.outgoing.repeat);
        let mut progress = Progress::new(count, "messages");
        for number in 1..=count {
            let acknowledgement = self.send(payload).await?;
            self.note(number, acknowledgement.await)?;
            progress.advance(1);
            if number < count {
                tokio::time::sleep(settings.outgoing.repeat_delay).await;
            }
        }
        Ok(())
    }

    /// Publishes each line of standard input, and waits for acknowledgements only at the end.
    async fn lines(&self) -> Result<(), Failure> {
        let mut lines = lines();
        let mut progress = Progress::of_input();
        let mut under_way = UnderWay::default();
        while let Some(line) = lines.recv().await {
            let Line { bytes, .. } = line.map_err(|error| Failure::new(format!("Error: {error}")))?;
            let payload = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
            if payload.len() as u64 > MESSAGE_BYTES_MAX {
                return Err(too_long());
            }
            under_way.acknowledgements.push_back(self.send(payload).await?);
            progress.advance(bytes.len() as u64);
            while let Some(outcome) = under_way.next_ready().await {
                self.note(under_way.done, outcome)?;
            }
        }
        while let Some(acknowledgement) = under_way.acknowledgements.pop_front() {
            under_way.done += 1;
            self.note(under_way.done, acknowledgement.await)?;
        }
        Ok(())
    }

    /// Reports a refused message as a warning. The others continue.
    fn note(&self, number: u64, outcome: Result<ReasonCode, PublishError>) -> Result<(), Failure> {
        match outcome {
            Ok(_) => Ok(()),
            Err(PublishError::Refused { reason, text }) => {
                if !self.is_quiet {
                    let text = text.map(|text| format!(" ({text})")).unwrap_or_default();
                    let reason = reason.as_str();
                    complain(format_args!("Warning: Publish {number} failed: {reason}{text}."));
                }
                Ok(())
            }
            Err(error) => Err(failed(&error)),
        }
    }
}

impl UnderWay {
    /// Outcome of the first message, if it has arrived.
    async fn next_ready(&mut self) -> Option<Result<ReasonCode, PublishError>> {
        let first = self.acknowledgements.front_mut()?;
        let polled = poll_fn(|task| Poll::Ready(Pin::new(&mut *first).poll(task))).await;
        let Poll::Ready(outcome) = polled else { return None };
        self.acknowledgements.pop_front();
        self.done += 1;
        Some(outcome)
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
