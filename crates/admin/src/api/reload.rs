//! Reloads of the configuration, and their outcomes.

use serde_json::{Value, json};

use crate::answer::Answer;
use crate::control::Reloaded;
use crate::server::Shared;

/// Begins a reload. The outcome follows under the number of the answer.
pub(crate) fn begin(shared: &Shared) -> Answer {
    let number = shared.control.reload();
    Answer::json(&json!({ "reload": "begun", "number": number, "outcome": "GET /api/v1/reload" }))
}

/// The outcome of the last reload that has ended.
pub(crate) fn last(shared: &Shared) -> Answer {
    Answer::json(&shared.control.last_reload().as_ref().map_or_else(|| json!({ "number": 0 }), describe))
}

fn describe(reload: &Reloaded) -> Value {
    json!({
        "number": reload.number,
        "unix_seconds": reload.unix_secs,
        "outcome": if reload.refused.is_none() { "in force" } else { "refused" },
        "changes": reload.changes,
        "error": reload.refused,
    })
}
