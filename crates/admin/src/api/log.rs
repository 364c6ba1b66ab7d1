//! The level of the log, while the broker runs.

use serde_json::json;

use super::body::Body;
use crate::answer::{Answer, Failure};
use crate::server::{Asked, Shared};

/// The levels that a request may choose. The lines about changes by operators are warnings, so that none of these hides them.
pub const LOG_LEVELS: [&str; 4] = ["warn", "info", "debug", "trace"];

pub(crate) fn level(shared: &Shared) -> Answer {
    Answer::json(&json!({ "level": shared.control.log_level() }))
}

pub(crate) fn set_level(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let body = Body::of(asked)?;
    let level = LOG_LEVELS.into_iter().find(|level| body.field("level") == level);
    let level = level.ok_or_else(|| Failure::bad(format!("level is one of {}", LOG_LEVELS.join(", "))))?;
    let before = shared.control.log_level();
    shared.control.set_log_level(level);
    Ok(Answer::json(&json!({ "level": level, "before": before, "until": "the next reload or the end" })))
}
