//! Sessions of operators who log in with a password.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use super::unix_secs;
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::server::Shared;

/// Begins a session for the user whose password the request has shown.
pub(crate) fn begin(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let holder = asked.holder.as_ref();
    let evidence = holder.and_then(|holder| Some((holder, holder.evidence.as_ref()?)));
    let Some((holder, evidence)) = evidence.filter(|(holder, _)| holder.session.is_none()) else {
        return Err(Failure::bad("a session begins with a user name and a password"));
    };
    let begun = shared.sessions.begin(Arc::clone(evidence), holder.proof, Instant::now());
    let token = begun.map_err(|error| Failure::unavailable(error.to_string()))?;
    let seconds = shared.sessions.lifetime().as_secs();
    Ok(Answer::json(&json!({
        "token": token,
        "role": holder.role.word(),
        "until_unix_seconds": unix_secs().saturating_add(seconds),
    }))
    .secret())
}

/// Ends the session whose token the request has shown.
pub(crate) fn end(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let key = asked.holder.as_ref().and_then(|holder| holder.session);
    let key = key.ok_or_else(|| Failure::bad("the request has not shown the token of a session"))?;
    shared.sessions.end(&key);
    Ok(Answer::json(&json!({ "ended": true })))
}
