//! Clients: lists, one in detail, the end of a connection and of a session.

use std::time::Duration;

use base::{ConnectionId, Interest, Level, Place};
use broker::ClientFacts;
use ledger::{Ended, FoundClient, OperatorAnswer, SessionFacts};
use net::Link;
use serde_json::{Map, Value, json};
use wire::Version;

use super::items::{Items, in_turns};
use super::{QUESTIONS_MAX, bad_cursor, switch, word};
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::asking;
use crate::server::Shared;

/// Pause until a session that is to end is looked at again, because its client has not left yet.
const LEAVING_PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of these pauses.
const LEAVING_PAUSES_MAX: usize = 50;

/// The place of a list where the next answer begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    /// The connections of a shard, from this place on.
    Shard(usize, u32),
    /// The lasting sessions without a connection, from this place on.
    Sessions(u32),
}

impl Position {
    fn parse(text: &str, shards: usize) -> Option<Self> {
        let (kind, rest) = text.split_once('-')?;
        match kind {
            "sessions" => Some(Self::Sessions(rest.parse().ok()?)),
            shard => {
                let shard = shard.parse().ok().filter(|shard| *shard < shards)?;
                Some(Self::Shard(shard, rest.parse().ok()?))
            }
        }
    }

    fn show(self) -> String {
        match self {
            Self::Shard(shard, slot) => format!("{shard}-{slot}"),
            Self::Sessions(slot) => format!("sessions-{slot}"),
        }
    }
}

/// A piece of the list: the items with their positions, and the position behind them.
type Piece = (Vec<(Position, Value)>, Option<Position>);

pub(crate) async fn list(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let mut items = Items::of(asked)?;
    let connected = switch(asked, "connected")?;
    let text = asked.parameter("match").unwrap_or_default();
    let wanted =
        [("state", word(asked, "state", STATES)?), ("protocol", word(asked, "protocol", PROTOCOLS)?)];
    let is_meant = |item: &Value| {
        has_text(item, text) && wanted.iter().all(|(field, word)| has_word(item, field, *word))
    };
    let mut position = match asked.parameter("cursor") {
        None if connected == Some(false) => Some(Position::Sessions(0)),
        None => Some(Position::Shard(0, 0)),
        Some(text) => {
            let parsed = Position::parse(text, shared.operator.shards());
            Some(parsed.ok_or_else(bad_cursor)?)
        }
    };
    let mut questions = 0;
    while let Some(at) = position.filter(|_| !items.is_full() && questions < QUESTIONS_MAX) {
        questions += 1;
        let (piece, next) = match at {
            Position::Sessions(_) if connected == Some(true) => (Vec::new(), None),
            Position::Shard(shard, slot) => connected_from(shared, shard, slot).await?,
            Position::Sessions(slot) => sessions_from(shared, slot).await?,
        };
        position = next;
        for (at, item) in piece.into_iter().filter(|(_, item)| is_meant(item)) {
            if items.is_full() {
                position = Some(at);
                break;
            }
            items.push(&item);
        }
    }
    Ok(items.into_answer("clients", json!({ "cursor": position.map(Position::show) })))
}

/// Whether a field of a client has this word. A session without a client has no such field.
fn has_word(item: &Value, field: &str, word: Option<&str>) -> bool {
    word.is_none_or(|word| item[field] == word)
}

fn has_text(item: &Value, text: &str) -> bool {
    let of = |name: &str| item[name].as_str().is_some_and(|value| value.contains(text));
    text.is_empty() || ["client_id", "user", "address"].into_iter().any(of)
}

async fn connected_from(shared: &Shared, shard: usize, slot: u32) -> Result<Piece, Failure> {
    let question = broker::Question::Clients { from_slot: slot };
    let answer = asking::shard(&shared.operator, shard, question).await?;
    let broker::Answer::Clients(clients, next) = answer.answer else {
        unreachable!("it answers its question")
    };
    let connected = clients.iter().zip(answer.links).filter(|(client, _)| client.is_in);
    let described = connected.map(|(client, link)| {
        (Position::Shard(shard, client.connection.slot), describe(shared, shard, client, link))
    });
    let next = match next {
        Some(slot) => Position::Shard(shard, slot),
        None if shard + 1 < shared.operator.shards() => Position::Shard(shard + 1, 0),
        None => Position::Sessions(0),
    };
    Ok((in_turns(described).collect(), Some(next)))
}

async fn sessions_from(shared: &Shared, slot: u32) -> Result<Piece, Failure> {
    let question = ledger::Question::Sessions { from_slot: slot };
    let OperatorAnswer::Sessions(sessions, next) = asking::ledger(&shared.operator, question).await? else {
        unreachable!("it answers its question")
    };
    let absent = sessions.iter().filter(|session| !session.is_connected);
    let described =
        absent.map(|session| (Position::Sessions(session.slot), Value::Object(of_session(session))));
    Ok((in_turns(described).collect(), next.map(Position::Sessions)))
}

/// A client that is connected.
fn describe(shared: &Shared, shard: usize, client: &ClientFacts, link: Option<Link>) -> Value {
    let in_force = shared.control.in_force();
    let listener = link.and_then(|link| in_force.listener(link.listener));
    json!({
        "client_id": &*client.client_id,
        "user": client.principal.user.as_deref(),
        "connected": true,
        "address": link.map(|link| link.peer.to_string()),
        "listener": listener.map(|listener| &*listener.address),
        "protocol": client.version.map(version),
        "lasting": client.is_lasting,
        "keep_alive_seconds": client.keep_alive_secs,
        "subscriptions": client.subscriptions,
        "in_flight": client.in_flight,
        "waiting_messages": client.waiting_messages,
        "waiting_bytes": client.waiting_bytes,
        "output_bytes": link.map(|link| link.output_bytes),
        "sent_bytes": link.map(|link| link.taken_bytes),
        "acknowledged": client.acknowledged,
        "not_authorized": client.denied,
        "state": state(client.level),
        "waits_for_receivers": client.is_blocked,
        "shard": shard,
    })
}

/// A session that lasts.
fn of_session(session: &SessionFacts) -> Map<String, Value> {
    let expiry = (session.expiry_secs != u32::MAX).then_some(session.expiry_secs);
    let Value::Object(fields) = json!({
        "client_id": &*session.client_id,
        "user": session.principal.user.as_deref(),
        "connected": session.is_connected,
        "lasting": true,
        "subscriptions": session.subscriptions,
        "session_in_flight": session.in_flight,
        "queued_messages": session.queued_messages,
        "queued_bytes": session.queued_bytes,
        "session_expiry_seconds": expiry,
        "expires_in_seconds": session.expires_in_ms.filter(|_| expiry.is_some()).map(|ms| ms / 1_000),
        "left_unix_ms": session.left_unix_ms,
        "has_will": session.has_will,
    }) else {
        unreachable!("it is an object")
    };
    fields
}

/// The states of clients that are connected: whether there is room for messages, and whether they make progress.
pub const STATES: &[&str] = &["open", "full", "slow"];
/// The versions of MQTT.
pub const PROTOCOLS: &[&str] = &["3.1", "3.1.1", "5.0"];

fn state(level: Level) -> &'static str {
    match level {
        Level::Open => STATES[0],
        Level::Over => STATES[1],
        Level::Slow => STATES[2],
    }
}

fn version(version: Version) -> &'static str {
    match version {
        Version::V3_1 => PROTOCOLS[0],
        Version::V3_1_1 => PROTOCOLS[1],
        Version::V5 => PROTOCOLS[2],
    }
}

/// The connection and the session of a client identifier.
async fn find(shared: &Shared, client_id: &str) -> Result<FoundClient, Failure> {
    let question = ledger::Question::Client { client_id: client_id.into() };
    let OperatorAnswer::Client(found) = asking::ledger(&shared.operator, question).await? else {
        unreachable!("it answers its question")
    };
    found.ok_or_else(|| Failure::not_found(format!("there is no client {client_id}")))
}

/// The facts about a client that an explanation needs: at least one of both parts.
pub(crate) struct Look {
    /// The client, if it is connected.
    pub(crate) client: Option<ClientFacts>,
    /// Its session, if the session outlives the connection.
    pub(crate) session: Option<SessionFacts>,
}

/// Looks at a client. `None` if the broker does not know it.
pub(crate) async fn look(shared: &Shared, client_id: &str) -> Result<Option<Look>, Failure> {
    let question = ledger::Question::Client { client_id: client_id.into() };
    let OperatorAnswer::Client(found) = asking::ledger(&shared.operator, question).await? else {
        unreachable!("it answers its question")
    };
    let Some(FoundClient { place, session }) = found else { return Ok(None) };
    let client = match place {
        Some(place) => facts(shared, place).await?.map(|(client, _)| client),
        None => None,
    };
    Ok((client.is_some() || session.is_some()).then_some(Look { client, session }))
}

async fn facts(shared: &Shared, place: Place) -> Result<Option<(ClientFacts, Option<Link>)>, Failure> {
    let question = broker::Question::Client { connection: place.connection };
    let mut answer = asking::shard(&shared.operator, place.shard.number(), question).await?;
    let broker::Answer::Client(client) = answer.answer else { unreachable!("it answers its question") };
    Ok(client.map(|client| (*client, answer.links.pop().flatten())))
}

pub(crate) async fn one(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let found = find(shared, &asked.values[0]).await?;
    let mut item = found.session.as_ref().map(of_session).unwrap_or_default();
    if let Some(place) = found.place
        && let Some((client, link)) = facts(shared, place).await?
        && let Value::Object(fields) = describe(shared, place.shard.number(), &client, link)
    {
        item.extend(fields);
    }
    if item.is_empty() {
        return Err(Failure::not_found("the client has just left"));
    }
    Ok(Answer::json(&Value::Object(item)))
}

pub(crate) async fn subscriptions(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let (client_id, after) = (&asked.values[0], asked.parameter("cursor").unwrap_or_default());
    let (subscriptions, mut has_more) = read_subscriptions(shared, client_id, after).await?;
    let (mut items, mut last) = (Items::of_one_answer(), None);
    let describe = |(filter, interest): &(Box<str>, Option<Interest>)| {
        json!({
            "filter": filter,
            "qos": interest.map(|interest| interest.qos() as u8),
            "no_local": interest.map(|interest| interest.no_local()),
            "retain_as_published": interest.map(|interest| interest.retain_as_published()),
        })
    };
    for one in &subscriptions {
        if items.is_full() {
            has_more = true;
            break;
        }
        items.push(&describe(one));
        last = Some(&one.0);
    }
    let cursor = last.filter(|_| has_more);
    Ok(items.into_answer("subscriptions", json!({ "cursor": cursor })))
}

/// Subscriptions of a client behind a filter, and whether more follow.
pub(crate) async fn read_subscriptions(
    shared: &Shared,
    client_id: &str,
    after: &str,
) -> Result<(Vec<(Box<str>, Option<Interest>)>, bool), Failure> {
    let found = find(shared, client_id).await?;
    if found.session.is_none()
        && let Some(place) = found.place
    {
        let question = broker::Question::Subscriptions { connection: place.connection, after: after.into() };
        let answer = asking::shard(&shared.operator, place.shard.number(), question).await?;
        let broker::Answer::Subscriptions(found) = answer.answer else {
            unreachable!("it answers its question")
        };
        let (found, has_more) = found.ok_or_else(|| Failure::not_found("the client has just left"))?;
        return Ok((found.into_iter().map(|one| (one.filter, one.interest)).collect(), has_more));
    }
    let question = ledger::Question::Subscriptions { client_id: client_id.into(), after: after.into() };
    let OperatorAnswer::Subscriptions(found) = asking::ledger(&shared.operator, question).await? else {
        unreachable!("it answers its question")
    };
    let (found, has_more) = found.ok_or_else(|| Failure::not_found("the session has just ended"))?;
    Ok((found.into_iter().map(|(filter, interest)| (filter, Some(interest))).collect(), has_more))
}

pub(crate) async fn disconnect(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let found = find(shared, &asked.values[0]).await?;
    let place = found.place.ok_or_else(|| Failure::not_found("the client is not connected"))?;
    end_connection(shared, place).await?;
    Ok(Answer::json(&json!({ "disconnected": asked.values[0] })))
}

async fn end_connection(shared: &Shared, place: Place) -> Result<(), Failure> {
    let connection: ConnectionId = place.connection;
    let question = broker::Question::Disconnect { connection };
    asking::shard(&shared.operator, place.shard.number(), question).await.map(drop)
}

pub(crate) async fn end_session(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let client_id = &asked.values[0];
    let found = find(shared, client_id).await?;
    if let Some(place) = found.place {
        end_connection(shared, place).await?;
    }
    let done = || Answer::json(&json!({ "ended": client_id }));
    if found.session.is_none() {
        return Ok(done());
    }
    for _ in 0..LEAVING_PAUSES_MAX {
        let question = ledger::Question::EndSession { client_id: client_id.as_str().into() };
        let OperatorAnswer::EndSession(ended) = asking::ledger(&shared.operator, question).await? else {
            unreachable!("it answers its question")
        };
        match ended {
            Ended::Ended | Ended::NoSession => return Ok(done()),
            Ended::NotRecorded => {
                return Err(Failure::unavailable("the end of the session cannot be stored now"));
            }
            Ended::Connected => tokio::time::sleep(LEAVING_PAUSE).await,
        }
    }
    Err(Failure(hyper::StatusCode::CONFLICT, "the client connects again and again".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_its_text() {
        for position in [Position::Shard(0, 0), Position::Shard(3, 256), Position::Sessions(7)] {
            assert_eq!(Position::parse(&position.show(), 4), Some(position));
        }
        for wrong in ["", "4-0", "-1-1", "0-x", "sessions-", "sessions", "0-4294967296"] {
            assert_eq!(Position::parse(wrong, 4), None, "{wrong}");
        }
    }
}
