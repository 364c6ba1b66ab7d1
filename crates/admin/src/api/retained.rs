//! Retained messages, as a list and as a tree of topics.

use std::sync::Arc;

use base::{Content, Message};
use data_encoding::HEXLOWER;
use hyper::StatusCode;
use ledger::{Branch, Cursor, OperatorAnswer};
use serde_json::{Value, json};
use topic::{TopicFilter, TopicName};
use wire::{MessageProperties, Qos};

use super::items::Items;
use super::publish::{name, own_name, send};
use super::{QUESTIONS_MAX, bad_cursor, payload};
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::asking;
use crate::server::Shared;

/// Bytes of a payload in a list.
const SHOWN_BYTES: usize = 256;
/// Maximum number of steps of an order to clear. Each clears at most 256 topics.
const CLEARING_STEPS_MAX: usize = 4;

pub(crate) async fn list(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let parsed = plain_filter(asked.parameter("filter").unwrap_or("#"))?;
    let mut next = Some(Box::new(from_request(parsed, asked)?));
    let (mut items, mut questions) = (Items::of(asked)?, 0);
    let mut last: Option<Arc<Message>> = None;
    while let Some(cursor) = next.take() {
        if items.is_full() || questions == QUESTIONS_MAX {
            next = Some(cursor);
            break;
        }
        questions += 1;
        let (messages, behind) = step(shared, cursor).await?;
        next = behind;
        for message in messages {
            if items.is_full() {
                let last = last.as_ref().map(|last| last.topic());
                next = Some(Box::new(Cursor::over_all(parsed, last)));
                break;
            }
            items.push(&describe(&message, SHOWN_BYTES));
            last = Some(message);
        }
    }
    let next = next.map(|cursor| HEXLOWER.encode(cursor.position()));
    Ok(items.into_answer("retained", json!({ "cursor": next })))
}

async fn step(
    shared: &Shared,
    cursor: Box<Cursor>,
) -> Result<(Vec<Arc<Message>>, Option<Box<Cursor>>), Failure> {
    let question = ledger::Question::Retained(cursor);
    let OperatorAnswer::Retained(messages, next) = asking::ledger(&shared.operator, question).await? else {
        unreachable!("it answers its question")
    };
    Ok((messages, next))
}

fn describe(message: &Message, bytes_max: usize) -> Value {
    let mut described = describe_value(message, bytes_max);
    described["topic"] = json!(message.topic().as_str());
    described
}

/// A retained message without its topic.
fn describe_value(message: &Message, bytes_max: usize) -> Value {
    let mut described = payload::describe(message.payload(), bytes_max);
    described["qos"] = json!(message.qos() as u8);
    described["publisher"] = json!(message.publisher());
    described
}

pub(crate) async fn one(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let topic = name(&asked.values[0])?;
    let filter = TopicFilter::new(topic.as_str()).map_err(|_| Failure::bad("this is no topic"))?;
    let (messages, _) = step(shared, Box::new(Cursor::over_all(filter, None))).await?;
    let message = messages.first().ok_or_else(|| Failure::not_found("the topic has no retained message"))?;
    Ok(Answer::json(&describe(message, usize::MAX)))
}

pub(crate) async fn clear(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let topic = own_name(&asked.values[0])?;
    let filter = TopicFilter::new(topic.as_str()).map_err(|_| Failure::bad("this is no topic"))?;
    let (messages, _) = step(shared, Box::new(Cursor::over_all(filter, None))).await?;
    // The log has no payloads.
    let before = |message: &Arc<Message>| json!({ "bytes": message.payload().len(), "publisher": message.publisher() });
    asked.note_before(messages.first().map_or(Value::Null, before));
    clear_topic(topic, shared).await?;
    Ok(Answer::json(&json!({ "cleared": topic.as_str() })))
}

/// Publishes a message without payload, as a client clears a topic.
async fn clear_topic(topic: TopicName<'_>, shared: &Shared) -> Result<(), Failure> {
    let properties = &MessageProperties::EMPTY;
    send(shared, &Content { topic, properties, payload: &[], qos: Qos::AtLeastOnce, retain: true }).await
}

/// Clears the retained messages of all topics that match a filter, some at a time.
pub(crate) async fn clear_matching(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let filter = asked.parameter("filter").ok_or_else(|| Failure::bad("filter is missing"))?;
    let parsed = plain_filter(filter)?;
    if parsed.first_level().starts_with('$') {
        return Err(Failure(StatusCode::FORBIDDEN, "topics that begin with $ are the broker's".to_owned()));
    }
    let mut cursor = Some(Box::new(from_request(parsed, asked)?));
    let mut cleared = 0;
    for _ in 0..CLEARING_STEPS_MAX {
        let Some(from) = cursor.take() else { break };
        let (messages, behind) = step(shared, from).await?;
        for message in &messages {
            clear_topic(message.topic(), shared).await?;
        }
        cleared += messages.len();
        cursor = behind;
    }
    let next = cursor.map(|cursor| HEXLOWER.encode(cursor.position()));
    Ok(Answer::json(&json!({ "cleared": cleared, "cursor": next })))
}

fn plain_filter(filter: &str) -> Result<TopicFilter<'_>, Failure> {
    let parsed = TopicFilter::new(filter).ok().filter(|filter| filter.shared().is_none());
    parsed.ok_or_else(|| Failure::bad(format!("{filter} is no topic filter")))
}

/// A cursor at the position that the request names.
fn from_request(filter: TopicFilter<'_>, asked: &Asked) -> Result<Cursor, Failure> {
    let cursor = Cursor::over_all(filter, None);
    let Some(text) = asked.parameter("cursor") else { return Ok(cursor) };
    let position = HEXLOWER.decode(text.as_bytes()).map_err(|_| bad_cursor())?;
    Ok(cursor.at(&position))
}

/// The topics with retained messages as a tree, a level at a time.
pub(crate) async fn topics(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let under = asked.parameter("under");
    let mut after: Option<Box<str>> = asked.parameter("cursor").map(Box::from);
    let mut items = Items::of(asked)?;
    for _ in 0..QUESTIONS_MAX {
        let mut last = after.clone();
        let question = ledger::Question::Branches { under: under.map(Box::from), after: after.take() };
        let OperatorAnswer::Branches(found, next) = asking::ledger(&shared.operator, question).await? else {
            unreachable!("it answers its question")
        };
        after = next.map(Box::from);
        for branch in &found {
            if items.is_full() {
                after = last;
                break;
            }
            items.push(&describe_branch(under, branch));
            last = Some(branch.name.as_str().into());
        }
        if after.is_none() || items.is_full() {
            break;
        }
    }
    Ok(items.into_answer("topics", json!({ "cursor": after })))
}

fn describe_branch(under: Option<&str>, branch: &Branch) -> Value {
    let Branch { name, message, has_more_levels } = branch;
    json!({
        "name": name,
        "topic": under.map_or_else(|| name.clone(), |under| format!("{under}/{name}")),
        "has_more_levels": has_more_levels,
        "retained": message.as_ref().map(|message| describe_value(message, SHOWN_BYTES)),
    })
}
