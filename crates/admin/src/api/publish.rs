//! Messages of the operator.

use base::{Content, Message, Now};
use hyper::StatusCode;
use serde_json::Value;
use serde_json::json;
use topic::TopicName;
use wire::{MessageProperties, Qos, ResponseTopic, UserProperties, UserProperty, Utf8};

use super::body::Body;
use super::{payload, unix_ms};
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::asking;
use crate::server::Shared;

/// A topic by its name.
pub(super) fn name(topic: &str) -> Result<TopicName<'_>, Failure> {
    TopicName::new(topic).map_err(|_| Failure::bad(format!("{topic} is no topic name")))
}

/// A topic that an operator may publish to: those of the broker itself are not among them.
pub(super) fn own_name(topic: &str) -> Result<TopicName<'_>, Failure> {
    let topic = name(topic)?;
    if topic.is_reserved() {
        return Err(Failure(StatusCode::FORBIDDEN, "topics that begin with $ are the broker's".to_owned()));
    }
    Ok(topic)
}

/// The same, with at most this many levels.
pub(super) fn own_topic(topic: &str, levels_max: usize) -> Result<TopicName<'_>, Failure> {
    let topic = own_name(topic)?;
    if topic.level_count() > levels_max {
        let text = format!("the topic has more than {levels_max} levels (limits.topic_levels)");
        return Err(Failure::bad(text));
    }
    Ok(topic)
}

pub(crate) async fn publish(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let body = Body::of(asked)?;
    let topic = own_topic(body.needed("topic")?, shared.control.in_force().topic_levels_max)?;
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
    let pairs = user_properties(body.field("user_properties"))?;
    let properties =
        MessageProperties { user_properties: UserProperties::from(&pairs[..]), ..properties(&body)? };
    send(shared, &Content { topic, properties: &properties, payload: &payload, qos, retain }).await?;
    Ok(Answer::json(&json!({ "published": topic.as_str(), "bytes": payload.len() })))
}

/// The properties of a message, without its User Properties.
fn properties(body: &Body) -> Result<MessageProperties<'_>, Failure> {
    let text = |field| body.text(field)?.map(|text| utf8(field, text)).transpose();
    let expiry = match body.field("expiry_seconds") {
        Value::Null => None,
        seconds => {
            let seconds = seconds.as_u64().and_then(|seconds| u32::try_from(seconds).ok());
            Some(seconds.ok_or_else(|| Failure::bad("expiry_seconds is a number from 0 to 4294967295"))?)
        }
    };
    Ok(MessageProperties {
        message_expiry_interval_secs: expiry,
        content_type: text("content_type")?,
        response_topic: body.text("response_topic")?.map(name).transpose()?.map(ResponseTopic),
        ..MessageProperties::EMPTY
    })
}

fn utf8<'a>(field: &str, text: &'a str) -> Result<Utf8<'a>, Failure> {
    Utf8::new(text).map_err(|error| Failure::bad(format!("{field}: {error}")))
}

/// User Properties: pairs of name and value, whose order counts.
fn user_properties(field: &Value) -> Result<Vec<UserProperty<'_>>, Failure> {
    match field {
        Value::Null => Ok(Vec::new()),
        Value::Array(pairs) => pairs.iter().map(property).collect(),
        _ => Err(not_pairs()),
    }
}

fn not_pairs() -> Failure {
    Failure::bad("user_properties is a list of pairs, such as [[\"unit\", \"°C\"]]")
}

fn property(pair: &Value) -> Result<UserProperty<'_>, Failure> {
    let Some([Value::String(name), Value::String(value)]) = pair.as_array().map(Vec::as_slice) else {
        return Err(not_pairs());
    };
    Ok(UserProperty { name: utf8("user_properties", name)?, value: utf8("user_properties", value)? })
}

/// Publishes a message through the first shard. The outcome at its receivers is in the counters.
pub(super) async fn send(shared: &Shared, content: &Content<'_>) -> Result<(), Failure> {
    let message = Message::of_content(content, None, Now { monotonic_ms: 0, unix_ms: unix_ms() });
    if shared.operator.is_memory_short() && !content.payload.is_empty() {
        return Err(Failure::unavailable("memory is short: nothing new is admitted"));
    }
    let question = broker::Question::Publish(Box::new(message));
    asking::shard(&shared.operator, 0, question).await.map(drop)
}
