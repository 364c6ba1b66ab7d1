//! The subscriptions that match a topic.

use serde_json::{Value, json};

use super::bad_cursor;
use super::items::Items;
use super::publish::name;
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::asking;
use crate::server::Shared;

/// Clients and groups that a message to a topic is for, with the filters that match.
pub(crate) async fn list(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let mut items = Items::of(asked)?;
    let topic = name(asked.parameter("topic").ok_or_else(|| Failure::bad("topic is missing"))?)?;
    let mut next = match asked.parameter("cursor") {
        None => Some(0),
        Some(text) => Some(text.parse::<usize>().map_err(|_| bad_cursor())?),
    };
    while let Some(from) = next.filter(|_| !items.is_full()) {
        // Each shard knows all subscriptions.
        let question = broker::Question::Subscribers { topic: topic.into(), from };
        let answer = asking::shard(&shared.operator, 0, question).await?;
        let broker::Answer::Subscribers(found, behind) = answer.answer else {
            unreachable!("it answers its question")
        };
        next = behind;
        for (number, one) in found.iter().enumerate() {
            if items.is_full() {
                next = Some(from + number);
                break;
            }
            items.push(&describe(one));
        }
    }
    let cursor = next.map(|next| next.to_string());
    Ok(items.into_answer("subscriptions", json!({ "cursor": cursor })))
}

fn describe(found: &broker::Subscription) -> Value {
    let (subscriber, interest) = (&found.subscriber, found.options);
    let is_group = subscriber.members().is_some();
    let name = &*subscriber.client_id;
    json!({
        "client_id": (!is_group).then_some(name),
        "group": is_group.then_some(name),
        "filter": &*found.filter,
        "qos": interest.qos() as u8,
        "no_local": interest.no_local(),
        "retain_as_published": interest.retain_as_published(),
        "connected": subscriber.place().is_some(),
        "lasting": subscriber.queue.is_some(),
    })
}
