//! The topic into which the lines of a trace are published, for operators with an MQTT client.
//!
//! ```text
//! records ─► Book ─► lines ─► a round, ten times a second ─► messages of the broker itself ─► subscribers
//!             ▲                 │ their payloads                                                   │
//!             │                 ▼                                                                  │
//!             └── left out, if it carries a line ◄── a packet to a subscriber that is followed ◄───┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use base::Content;
use serde_json::{Value, json};
use topic::{TopicName, TopicNameBuf};
use wire::{MessageProperties, Qos, Utf8};

use super::{Current, Traces, describe};
use crate::answer::Failure;
use crate::api::publish::{own_topic, send};
use crate::api::unix_ms;
use crate::server::Shared;

/// Pause between two rounds.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of lines in a round. Further ones wait in the book, which is bounded.
const LINES_PER_ROUND: usize = 100;
/// The same in bytes of payloads. One line is always part of a round.
const BYTES_PER_ROUND: usize = 256 << 10;
/// Maximum length of the topic, which is in each message, in bytes.
const TOPIC_BYTES_MAX: usize = 1_024;

/// The topic of a trace, and how many of its lines were published.
#[derive(Debug)]
pub(super) struct Target {
    topic: TopicNameBuf,
    /// Lines that were part of a round.
    given: usize,
    published: usize,
    /// Lines that could not be published.
    lost: usize,
    has_ended: bool,
}

/// Lines that are published together.
struct Round {
    payloads: Vec<Vec<u8>>,
    /// Set if no other round follows: why the trace has ended.
    end: Option<String>,
}

/// A topic for the lines of a trace: one to which operators may publish.
pub(super) fn parse(topic: &str, levels_max: usize) -> Result<TopicName<'_>, Failure> {
    if topic.len() > TOPIC_BYTES_MAX {
        return Err(Failure::bad(format!("into has more than {TOPIC_BYTES_MAX} bytes")));
    }
    own_topic(topic, levels_max)
}

impl Target {
    pub(super) fn new(topic: TopicNameBuf) -> Self {
        Self { topic, given: 0, published: 0, lost: 0, has_ended: false }
    }

    /// The topic, the number of lines that were published, and of those that could not be.
    pub(super) fn counts(&self) -> (Option<&str>, usize, usize) {
        (Some(self.topic.name().as_str()), self.published, self.lost)
    }

    /// Whether the last message was sent.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }
}

impl Current {
    /// The next lines to publish, of those that were not part of a round.
    fn next_round(&mut self) -> Round {
        let Self { book, target, .. } = self;
        let (mut payloads, mut bytes) = (Vec::new(), 0);
        let Some(target) = target else { return Round { payloads, end: None } };
        while payloads.len() < LINES_PER_ROUND
            && bytes < BYTES_PER_ROUND
            && let Some(line) = book.lines().get(target.given)
        {
            let payload = describe(line, book.client(line.connection)).to_string().into_bytes();
            // Before it is sent: a packet with it may be recorded at once.
            book.note_carried(&payload);
            bytes += payload.len();
            target.given += 1;
            payloads.push(payload);
        }
        Round { payloads, end: None }
    }

    fn has_given_all(&self) -> bool {
        self.target.as_ref().is_none_or(|target| target.given == self.book.lines().len())
    }

    /// Why no more lines come.
    fn end(&self) -> String {
        let why = if self.trace.is_full() {
            "its records have as many bytes as they may"
        } else {
            "its time is over"
        };
        match self.book.left_out() {
            0 => why.to_owned(),
            count => format!("{why}; {count} lines had no room"),
        }
    }
}

impl Traces {
    /// The next round of a trace. `None` if it is forgotten.
    fn next_round(&self, number: u32, shared: &Shared) -> Option<Round> {
        let mut current = self.lock();
        let current = current.as_mut().filter(|current| current.trace.number() == number)?;
        let was_settled = current.is_settled();
        current.take_in(&shared.operator, &shared.control.in_force());
        let round = current.next_round();
        let is_last = was_settled && !current.has_more && current.has_given_all();
        Some(Round { end: is_last.then(|| current.end()), ..round })
    }

    /// Changes the target of a trace, if the trace is not forgotten.
    fn with_target(&self, number: u32, change: impl FnOnce(&mut Target)) {
        let mut current = self.lock();
        let current = current.as_mut().filter(|current| current.trace.number() == number);
        if let Some(target) = current.and_then(|current| current.target.as_mut()) {
            change(target);
        }
    }
}

/// Publishes the lines of a trace, each as a message, until there are no more. A last message says why.
///
/// A line is sent when the shard has taken the one before. Nobody but this task waits for that.
pub(super) async fn publish_lines(shared: Arc<Shared>, number: u32, topic: TopicNameBuf) {
    let mut all_lost = 0;
    let why = loop {
        tokio::time::sleep(PAUSE).await;
        let Some(Round { payloads, end }) = shared.traces.next_round(number, &shared) else {
            break "an operator has ended it".to_owned();
        };
        let mut lost = 0;
        for payload in &payloads {
            lost += usize::from(send_line(&shared, topic.name(), payload).await.is_err());
        }
        shared.traces.with_target(number, |target| {
            target.published += payloads.len() - lost;
            target.lost += lost;
        });
        all_lost += lost;
        if let Some(why) = end {
            break why;
        }
    };
    let lost =
        if all_lost == 0 { String::new() } else { format!("; {all_lost} lines could not be published") };
    // Nobody is left to tell if it fails.
    let _ = send_line(&shared, topic.name(), last_line(&format!("{why}{lost}")).to_string().as_bytes()).await;
    shared.traces.with_target(number, |target| target.has_ended = true);
}

/// The line behind the last one, in the form of the others.
fn last_line(why: &str) -> Value {
    json!({
        "unix_ms": unix_ms(),
        "connection": null,
        "client_id": null,
        "from": null,
        "text": format!("the trace has ended: {why}"),
    })
}

async fn send_line(shared: &Shared, topic: TopicName<'_>, payload: &[u8]) -> Result<(), Failure> {
    let properties =
        MessageProperties { content_type: Utf8::new("application/json").ok(), ..MessageProperties::EMPTY };
    let content = Content { topic, properties: &properties, payload, qos: Qos::AtMostOnce, retain: false };
    send(shared, &content).await
}
