//! Clients that operators keep out.

use auth::{Bans, REASON_BYTES_MAX, Terms, Whom};
use hyper::StatusCode;
use serde_json::{Value, json};

use super::body::Body;
use super::unix_secs;
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::server::Shared;

/// The bans, the next to end first.
pub(crate) fn list(shared: &Shared) -> Answer {
    let now = unix_secs();
    let bans = current(shared, now);
    let mut all: Vec<(&Whom, &Terms)> = bans.iter().collect();
    all.sort_by_key(|(_, terms)| terms.until_unix_secs.unwrap_or(u64::MAX));
    let all: Vec<Value> = all.into_iter().map(|(whom, terms)| describe(whom, terms, now)).collect();
    Answer::json(&json!({ "bans": all }))
}

fn describe(whom: &Whom, Terms { until_unix_secs, reason }: &Terms, now: u64) -> Value {
    json!({
        "kind": whom.kind(),
        "value": whom.to_string(),
        "seconds_left": until_unix_secs.map(|until| until.saturating_sub(now)),
        "reason": reason,
    })
}

/// Bans clients, and disconnects those that are connected.
pub(crate) fn add(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let body = Body::of(asked)?;
    let whom = Whom::parse(body.needed("kind")?, body.needed("value")?).map_err(Failure::bad)?;
    let seconds = match body.field("seconds") {
        Value::Null => None,
        seconds => {
            let seconds = seconds.as_u64().filter(|seconds| *seconds > 0);
            Some(seconds.ok_or_else(|| Failure::bad("seconds is a whole number above 0"))?)
        }
    };
    let reason = body.text("reason")?.unwrap_or_default();
    if reason.len() > REASON_BYTES_MAX {
        return Err(Failure::bad(format!("the reason has more than {REASON_BYTES_MAX} bytes")));
    }
    let now = unix_secs();
    let until_unix_secs = seconds.map(|seconds| now.saturating_add(seconds));
    let terms = Terms { until_unix_secs, reason: reason.into() };
    let mut bans = current(shared, now);
    note_before(asked, &bans, &whom, now);
    bans.insert(whom.clone(), terms.clone());
    if bans.len() > shared.bans_max {
        shared.counters.refused(crate::counters::Refusal::Bans);
        let text = format!("there are {} bans already (admin.bans)", shared.bans_max);
        return Err(Failure(StatusCode::INSUFFICIENT_STORAGE, text));
    }
    keep(shared, bans)?;
    Ok(Answer::json(&describe(&whom, &terms, now)))
}

/// Lifts a ban, which is named by its kind and its value.
pub(crate) fn lift(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let whom = Whom::parse(&asked.values[0], &asked.values[1]).map_err(Failure::bad)?;
    let now = unix_secs();
    let mut bans = current(shared, now);
    note_before(asked, &bans, &whom, now);
    if !bans.remove(&whom) {
        return Err(Failure::not_found("there is no such ban"));
    }
    keep(shared, bans)?;
    Ok(Answer::json(&json!({ "lifted": whom.to_string(), "kind": whom.kind() })))
}

/// Notes the ban that is there before a change of it.
fn note_before(asked: &Asked, bans: &Bans, whom: &Whom, now: u64) {
    let found = bans.iter().find(|(known, _)| *known == whom);
    asked.note_before(found.map_or(Value::Null, |(whom, terms)| describe(whom, terms, now)));
}

/// The bans that have not ended.
fn current(shared: &Shared, now: u64) -> Bans {
    let mut bans = Bans::clone(&shared.operator.guard().bans());
    bans.forget_ended(now);
    bans
}

/// Stores the bans, and then puts them in force.
fn keep(shared: &Shared, bans: Bans) -> Result<(), Failure> {
    shared.control.store_bans(&bans).map_err(Failure::unavailable)?;
    shared.operator.replace_bans(bans);
    Ok(())
}
