//! Groups that share a subscription, and their members.

use base::{Dispatch, Key, Member};
use ledger::{GroupFacts, OperatorAnswer};
use serde_json::{Value, json};
use topic::TopicFilter;

use super::items::Items;
use super::{QUESTIONS_MAX, bad_cursor};
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::asking;
use crate::server::Shared;

pub(crate) async fn list(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let text = asked.parameter("match").unwrap_or_default();
    let mut from = Some(place(asked)?);
    let (mut items, mut questions) = (Items::of(asked)?, 0);
    while let Some(slot) = from.filter(|_| !items.is_full() && questions < QUESTIONS_MAX) {
        questions += 1;
        let question = ledger::Question::Groups { from_slot: slot };
        let OperatorAnswer::Groups(groups, next) = asking::ledger(&shared.operator, question).await? else {
            unreachable!("it answers its question")
        };
        from = next;
        for group in groups.iter().filter(|group| group.filter.contains(text)) {
            if items.is_full() {
                from = Some(group.slot);
                break;
            }
            items.push(&describe(group));
        }
    }
    Ok(items.into_answer("groups", json!({ "cursor": from.map(|slot| slot.to_string()) })))
}

/// The place where an answer begins.
fn place<T: std::str::FromStr + Default>(asked: &Asked) -> Result<T, Failure> {
    let Some(text) = asked.parameter("cursor") else { return Ok(T::default()) };
    text.parse().map_err(|_| bad_cursor())
}

fn describe(group: &GroupFacts) -> Value {
    let parsed = TopicFilter::new(&group.filter).ok();
    let name = parsed.and_then(TopicFilter::shared).map(|shared| shared.group);
    json!({
        "filter": &*group.filter,
        "group": name,
        "dispatch": match &group.dispatch {
            Dispatch::RoundRobin => "round-robin",
            Dispatch::KeyOrdered(_) => "key-ordered",
        },
        "key": match &group.dispatch {
            Dispatch::RoundRobin => None,
            Dispatch::KeyOrdered(Key::Publisher) => Some("publisher"),
            Dispatch::KeyOrdered(Key::Property(name)) => Some(&**name),
        },
        "members": group.members,
        "connected": group.connected,
        "lasting": group.is_lasting,
        "queued_messages": group.queued_messages + group.returned,
        "queued_bytes": group.queued_bytes,
        "returned_messages": group.returned,
        "in_flight": group.in_flight,
    })
}

/// A group that is not there.
fn missing(filter: &str) -> Failure {
    Failure::not_found(format!("there is no group {filter}"))
}

pub(crate) async fn one(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let filter = &asked.values[0];
    let question = ledger::Question::Group { filter: filter.as_str().into() };
    let OperatorAnswer::Group(found) = asking::ledger(&shared.operator, question).await? else {
        unreachable!("it answers its question")
    };
    Ok(Answer::json(&describe(&found.ok_or_else(|| missing(filter))?)))
}

pub(crate) async fn members(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let filter = &asked.values[0];
    let question = ledger::Question::Members { filter: filter.as_str().into(), from: place(asked)? };
    let OperatorAnswer::Members(found) = asking::ledger(&shared.operator, question).await? else {
        unreachable!("it answers its question")
    };
    let (members, next) = found.ok_or_else(|| missing(filter))?;
    let members: Vec<Value> = members.iter().map(describe_member).collect();
    Ok(Answer::json(&json!({ "members": members, "cursor": next.map(|place| place.to_string()) })))
}

fn describe_member(member: &Member) -> Value {
    let Member { subscriber, interest } = member;
    json!({
        "client_id": &*subscriber.client_id,
        "user": subscriber.principal().user.as_deref(),
        "connected": subscriber.place().is_some(),
        "qos": interest.qos() as u8,
    })
}
