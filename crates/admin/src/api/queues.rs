//! Queues of lasting sessions and of groups: messages that wait, and their end.

use std::time::Duration;

use hyper::StatusCode;
use ledger::{Discard, Discarded, MessageId, OperatorAnswer, QueueOwner, QueuePiece, QueuedFacts};
use serde_json::{Value, json};
use topic::TopicFilter;

use super::items::Items;
use super::{QUESTIONS_MAX, bad_cursor, payload, switch, unix_secs};
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::asking;
use crate::server::Shared;

/// Bytes of a payload in a list.
const SHOWN_BYTES: usize = 256;
/// Pause until messages that are being read from disk are asked for again.
const READING_PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of these pauses in a request. Then messages are listed without their topics.
pub(super) const READING_PAUSES_MAX: usize = 200;

/// Pauses that a request has left.
pub(super) struct Patience(pub(super) usize);

impl Patience {
    /// Waits a little. Returns whether there was patience left.
    pub(super) async fn pause(&mut self) -> bool {
        let has_any = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        if has_any {
            tokio::time::sleep(READING_PAUSE).await;
        }
        has_any
    }
}

pub(super) fn of_client(asked: &Asked) -> QueueOwner {
    QueueOwner::Client(asked.values[0].as_str().into())
}

pub(super) fn of_group(asked: &Asked) -> QueueOwner {
    QueueOwner::Group(asked.values[0].as_str().into())
}

pub(crate) async fn of_one_client(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    list(of_client(asked), asked, shared).await
}

pub(crate) async fn of_one_group(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    list(of_group(asked), asked, shared).await
}

pub(crate) async fn discard_of_client(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    discard(of_client(asked), asked, shared).await
}

pub(crate) async fn discard_of_group(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    discard(of_group(asked), asked, shared).await
}

pub(super) fn missing(of: &QueueOwner) -> Failure {
    Failure::not_found(match of {
        QueueOwner::Client(client_id) => format!("{client_id} has no lasting session"),
        QueueOwner::Group(filter) => format!("there is no group {filter}"),
    })
}

async fn list(of: QueueOwner, asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let mut after = match asked.parameter("cursor") {
        None => None,
        Some(text) => Some(MessageId(number(text)?)),
    };
    let mut last = after;
    let (mut items, mut questions) = (Items::of(asked)?, 0);
    let mut patience = Patience(READING_PAUSES_MAX);
    let cursor = loop {
        if items.is_full() || questions == QUESTIONS_MAX {
            break after;
        }
        questions += 1;
        let QueuePiece { messages, next, .. } = piece(&of, after, &mut patience, shared).await?;
        after = next;
        for message in &messages {
            if items.is_full() {
                after = last;
                break;
            }
            items.push(&describe(message));
            last = Some(message.id);
        }
        if after.is_none() {
            break None;
        }
    };
    Ok(items.into_answer("messages", json!({ "cursor": cursor.map(|MessageId(id)| id.to_string()) })))
}

/// Some messages behind one, after those on disk have been read.
async fn piece(
    of: &QueueOwner,
    after: Option<MessageId>,
    patience: &mut Patience,
    shared: &Shared,
) -> Result<QueuePiece, Failure> {
    loop {
        let question = ledger::Question::Queue { of: of.clone(), after };
        let OperatorAnswer::Queue(found) = asking::ledger(&shared.operator, question).await? else {
            unreachable!("it answers its question")
        };
        let found = found.ok_or_else(|| missing(of))?;
        if !found.is_reading || !patience.pause().await {
            return Ok(found);
        }
    }
}

fn describe(one: &QueuedFacts) -> Value {
    let mut described = match &one.message {
        Some(message) => {
            let mut described = payload::describe(message.payload(), SHOWN_BYTES);
            described["topic"] = json!(message.topic().as_str());
            described["publisher"] = json!(message.publisher());
            described
        }
        None => json!({ "topic": null, "bytes": null, "payload": null, "publisher": null }),
    };
    let expires_secs = one.expires_unix_ms.map(|at| (at / 1_000).saturating_sub(unix_secs()));
    described["number"] = json!(one.id.0);
    described["qos"] = json!(one.qos as u8);
    described["retain"] = json!(one.retain);
    described["memory_bytes"] = json!(one.bytes);
    described["expires_in_seconds"] = json!(expires_secs);
    described
}

fn number(text: &str) -> Result<u64, Failure> {
    text.parse().map_err(|_| bad_cursor())
}

/// The place where an order goes on, and the last message.
pub(super) fn position(text: &str) -> Result<(MessageId, MessageId), Failure> {
    let (after, until) = text.split_once('-').unwrap_or_default();
    Ok((MessageId(number(after)?), MessageId(number(until)?)))
}

/// Checks the topic filter of the messages of an order.
pub(super) fn check_filter(filter: &str) -> Result<(), Failure> {
    let is_plain = TopicFilter::new(filter).is_ok_and(|parsed| parsed.shared().is_none());
    is_plain.then_some(()).ok_or_else(|| Failure::bad(format!("{filter} is no topic filter")))
}

async fn discard(of: QueueOwner, asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let filter: Option<Box<str>> = asked.parameter("filter").map(Into::into);
    if filter.is_some() == (switch(asked, "all")? == Some(true)) {
        return Err(Failure::bad("name the messages with `filter`, or discard all with `all=true`"));
    }
    filter.as_deref().map_or(Ok(()), check_filter)?;
    let (mut after, mut until) = match asked.parameter("cursor") {
        None => (None, None),
        Some(text) => {
            let (after, until) = position(text)?;
            (Some(after), Some(until))
        }
    };
    let (mut discarded, mut unreadable, mut questions) = (0, 0, 0);
    let mut patience = Patience(READING_PAUSES_MAX);
    let cursor = loop {
        if questions == QUESTIONS_MAX {
            break after.zip(until);
        }
        let order = Discard { of: of.clone(), filter: filter.clone(), after, until };
        let question = ledger::Question::Discard(Box::new(order));
        let OperatorAnswer::Discard(outcome) = asking::ledger(&shared.operator, question).await? else {
            unreachable!("it answers its question")
        };
        match outcome {
            Discarded::NoQueue => return Err(missing(&of)),
            Discarded::Nothing => break None,
            Discarded::NotRecorded => {
                let done = done(discarded, unreadable, after.zip(until));
                return Ok(stopped(done, "the removal cannot be stored now"));
            }
            Discarded::Some { until: last, is_reading: true, .. } => {
                until = Some(last);
                if !patience.pause().await {
                    // Numbers of messages begin with 1.
                    let at = (after.unwrap_or(MessageId(0)), last);
                    let done = done(discarded, unreadable, Some(at));
                    return Ok(stopped(done, "messages on disk cannot be read now"));
                }
                continue;
            }
            Discarded::Some { messages, unreadable: passed, next, until: last, is_reading: false } => {
                (discarded, unreadable) = (discarded + messages, unreadable + passed);
                (after, until) = (next, Some(last));
            }
        }
        questions += 1;
        if after.is_none() {
            break None;
        }
    };
    Ok(Answer::json(&done(discarded, unreadable, cursor)))
}

/// The effect of an order so far, and the position where the next one goes on.
fn done(discarded: usize, unreadable: usize, cursor: Option<(MessageId, MessageId)>) -> Value {
    let cursor = cursor.map(|(MessageId(after), MessageId(until))| format!("{after}-{until}"));
    let mut done = json!({ "discarded": discarded, "cursor": cursor });
    if unreadable > 0 {
        done["unreadable"] = json!(unreadable);
    }
    done
}

/// Something stands in the way of the rest. The answer has the cursor all the same, so that a client can go on later.
fn stopped(mut done: Value, why: &str) -> Answer {
    explain(&mut done, why);
    Answer::json(&done).with_status(StatusCode::SERVICE_UNAVAILABLE)
}

fn explain(done: &mut Value, why: &str) {
    let text = format!("{} messages were discarded, and then {why}", done["discarded"]);
    done["error"] = json!({ "status": StatusCode::SERVICE_UNAVAILABLE.as_u16(), "message": text });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_stops_has_the_cursor_so_far() {
        let mut value = done(7, 1, Some((MessageId(3), MessageId(70))));
        explain(&mut value, "the disk is gone");
        assert_eq!((&value["discarded"], &value["unreadable"]), (&json!(7), &json!(1)));
        assert_eq!(value["cursor"], "3-70");
        assert_eq!(value["error"]["message"], "7 messages were discarded, and then the disk is gone");
        assert_eq!(done(0, 0, None), json!({ "discarded": 0, "cursor": null }));
    }

    #[test]
    fn a_position_is_two_numbers() {
        assert_eq!(position("3-70").expect("a position"), (MessageId(3), MessageId(70)));
        for wrong in ["", "3", "3-", "-70", "3-x", "3-7-1"] {
            assert!(position(wrong).is_err(), "{wrong}");
        }
    }
}
