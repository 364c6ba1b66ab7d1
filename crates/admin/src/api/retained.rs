//! Retained messages, and messages of the operator.

use base::{Content, Message, Now};
use data_encoding::HEXLOWER;
use hyper::StatusCode;
use ledger::{Cursor, OperatorAnswer};
use serde_json::{Value, json};
use topic::{TopicFilter, TopicName};
use wire::{MessageProperties, Qos};

use super::body::Body;
use super::{QUESTIONS_MAX, bad_cursor, limit, payload};
use crate::answer::{Answer, Failure};
use crate::asking;
use crate::server::{Asked, Shared};

/// Bytes of a payload in a list.
const SHOWN_BYTES: usize = 256;

pub(crate) async fn list(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let limit = limit(asked)?;
    let filter = asked.parameter("filter").unwrap_or("#");
    let parsed = TopicFilter::new(filter).ok().filter(|filter| filter.shared().is_none());
    let parsed = parsed.ok_or_else(|| Failure::bad(format!("{filter} is no topic filter")))?;
    let mut cursor = Cursor::over_all(parsed, None);
    if let Some(text) = asked.parameter("cursor") {
        let position = HEXLOWER.decode(text.as_bytes()).map_err(|_| bad_cursor())?;
        cursor = cursor.at(&position);
    }
    let mut next = Some(Box::new(cursor));
    let (mut items, mut questions) = (Vec::new(), 0);
    while let Some(cursor) = next.take() {
        if items.len() >= limit || questions == QUESTIONS_MAX {
            next = Some(cursor);
            break;
        }
        questions += 1;
        let (messages, behind) = step(shared, cursor).await?;
        next = behind;
        for message in messages {
            if items.len() == limit {
                let last: Option<&(String, Value)> = items.last();
                let last = last.and_then(|(topic, _)| TopicName::new(topic).ok());
                next = Some(Box::new(Cursor::over_all(parsed, last)));
                break;
            }
            let topic = message.topic().as_str().to_owned();
            let described = describe(&message, SHOWN_BYTES);
            items.push((topic, described));
        }
    }
    let items: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
    let next = next.map(|cursor| HEXLOWER.encode(cursor.position()));
    Ok(Answer::json(&json!({ "retained": items, "cursor": next })))
}

async fn step(
    shared: &Shared,
    cursor: Box<Cursor>,
) -> Result<(Vec<std::sync::Arc<Message>>, Option<Box<Cursor>>), Failure> {
    let question = ledger::Question::Retained(cursor);
    let OperatorAnswer::Retained(messages, next) = asking::ledger(&shared.operator, question).await? else {
        unreachable!("it answers its question")
    };
    Ok((messages, next))
}

fn describe(message: &Message, bytes_max: usize) -> Value {
    let mut described = payload::describe(message.payload(), bytes_max);
    described["topic"] = json!(message.topic().as_str());
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

fn name(topic: &str) -> Result<TopicName<'_>, Failure> {
    TopicName::new(topic).map_err(|_| Failure::bad(format!("{topic} is no topic name")))
}

/// A topic that an operator may publish to: those of the broker itself are not among them.
fn own_name(topic: &str) -> Result<TopicName<'_>, Failure> {
    let topic = name(topic)?;
    if topic.is_reserved() {
        return Err(Failure(StatusCode::FORBIDDEN, "topics that begin with $ are the broker's".to_owned()));
    }
    Ok(topic)
}

pub(crate) async fn clear(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let topic = own_name(&asked.values[0])?;
    let properties = &MessageProperties::EMPTY;
    let content = Content { topic, properties, payload: &[], qos: Qos::AtLeastOnce, retain: true };
    send(shared, &content).await?;
    Ok(Answer::json(&json!({ "cleared": topic.as_str() })))
}

pub(crate) async fn publish(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let body = Body::of(asked)?;
    let topic = own_name(body.needed("topic")?)?;
    let levels_max = shared.control.in_force().topic_levels_max;
    if topic.level_count() > levels_max {
        return Err(Failure::bad(format!(
            "the topic has more than {levels_max} levels (limits.topic_levels)"
        )));
    }
    let payload = payload::bytes(body.needed("payload")?, body.text("encoding")?.unwrap_or("utf-8"));
    let payload = payload.ok_or_else(|| Failure::bad("the payload is not encoded as `encoding` says"))?;
    let qos = match body.field("qos") {
        Value::Null => Qos::AtMostOnce,
        qos => match qos.as_u64() {
            Some(0) => Qos::AtMostOnce,
            Some(1) => Qos::AtLeastOnce,
            Some(2) => Qos::ExactlyOnce,
            _ => return Err(Failure::bad("qos is 0, 1 or 2")),
        },
    };
    let retain = body.flag("retain")?;
    let properties = &MessageProperties::EMPTY;
    send(shared, &Content { topic, properties, payload: &payload, qos, retain }).await?;
    Ok(Answer::json(&json!({ "published": topic.as_str(), "bytes": payload.len() })))
}

/// Publishes a message through the first shard. The outcome at its receivers is in the counters.
async fn send(shared: &Shared, content: &Content<'_>) -> Result<(), Failure> {
    // Without an expiry interval, the time does not count.
    let now = Now { monotonic_ms: 0, unix_ms: 0 };
    let message = Message::of_content(content, None, now);
    if shared.operator.is_memory_short() && !content.payload.is_empty() {
        return Err(Failure::unavailable("memory is short: nothing new is admitted"));
    }
    let question = broker::Question::Publish(Box::new(message));
    asking::shard(&shared.operator, 0, question).await.map(drop)
}
