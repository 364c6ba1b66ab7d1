//! The level of the log, while the broker runs.

use serde_json::{Value, json};

use crate::answer::{Answer, Failure};
use crate::server::{Asked, Shared};

/// The levels that a request may choose. The lines about changes by operators are warnings, so that none of these hides them.
const LEVELS: [&str; 4] = ["warn", "info", "debug", "trace"];

pub(crate) fn level(shared: &Shared) -> Answer {
    Answer::json(&json!({ "level": shared.control.log_level() }))
}

pub(crate) fn set_level(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let body: Value = serde_json::from_slice(&asked.body).map_err(|error| Failure::bad(error.to_string()))?;
    let wanted = body.get("level").and_then(Value::as_str).unwrap_or_default();
    let level = LEVELS.into_iter().find(|level| *level == wanted);
    let level = level.ok_or_else(|| Failure::bad(format!("level is one of {}", LEVELS.join(", "))))?;
    let before = shared.control.log_level();
    shared.control.set_log_level(level);
    Ok(Answer::json(&json!({ "level": level, "before": before, "until": "the next reload or the end" })))
}
