//! The level of the log while the broker runs, its last lines, and the last changes by operators.

use serde_json::{Value, json};

use super::body::Body;
use super::items::Items;
use super::{LIMIT_MAX, bad_cursor, word};
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::control::LogRecord;
use crate::server::Shared;

/// The levels that a request may choose. The lines about changes by operators are warnings, so that none of these hides them.
pub const LOG_LEVELS: [&str; 4] = ["warn", "info", "debug", "trace"];

/// Lines that are taken out of the ring at a time.
const LINES_PER_PIECE: usize = 256;
/// Maximum number of pieces that a request looks at.
const PIECES_MAX: usize = 64;
/// All levels of lines, the most important first.
pub const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

pub(crate) fn level(shared: &Shared) -> Answer {
    Answer::json(&json!({ "level": shared.control.log_level() }))
}

pub(crate) fn set_level(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let body = Body::of(asked)?;
    let level = LOG_LEVELS.into_iter().find(|level| body.field("level") == level);
    let level = level.ok_or_else(|| Failure::bad(format!("level is one of {}", LOG_LEVELS.join(", "))))?;
    let before = shared.control.log_level();
    asked.note_before(json!({ "level": before }));
    shared.control.set_log_level(level);
    Ok(Answer::json(&json!({ "level": level, "before": before, "until": "the next reload or the end" })))
}

/// The last lines of the log, newest first.
///
/// A request looks at a bounded number of lines, and lets other requests through between them. Its answer may have fewer lines
/// than the limit, and a cursor.
pub(crate) async fn lines(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let (mut items, mut before) = (Items::of(asked)?, number_cursor(asked)?);
    let least = word(asked, "level", &LEVELS)?.map_or(LEVELS.len() - 1, place);
    let text = asked.parameter("match").unwrap_or_default().to_lowercase();
    let wants = |line: &LogRecord| place(line.level) <= least && has_text(line, &text);
    let mut has_more = true;
    for _ in 0..PIECES_MAX {
        let piece = shared.control.log_lines(before, LINES_PER_PIECE);
        has_more = piece.len() == LINES_PER_PIECE;
        for line in piece {
            if items.is_full() {
                has_more = true;
                break;
            }
            before = line.number;
            if wants(&line) {
                items.push(&describe(&line));
            }
        }
        if !has_more || items.is_full() {
            break;
        }
        tokio::task::yield_now().await;
    }
    Ok(items.into_answer("lines", json!({ "cursor": has_more.then(|| before.to_string()) })))
}

/// The place of a level among all, the most important first.
fn place(level: &str) -> usize {
    LEVELS.iter().position(|known| *known == level).unwrap_or(LEVELS.len())
}

fn has_text(line: &LogRecord, text: &str) -> bool {
    let of_field = |(name, value): (&String, &Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{name}={value}").to_lowercase().contains(text)
    };
    line.message.to_lowercase().contains(text) || line.fields.iter().any(of_field)
}

fn describe(line: &LogRecord) -> Value {
    json!({ "unix_ms": line.unix_ms, "level": line.level, "message": line.message, "fields": line.fields })
}

/// The last changes that operators have asked for, newest first.
pub(crate) fn changes(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let (mut items, mut before) = (Items::of(asked)?, number_cursor(asked)?);
    let mut has_more = false;
    for (number, change) in shared.trail.list(before, LIMIT_MAX + 1) {
        if items.is_full() {
            has_more = true;
            break;
        }
        items.push(&change);
        before = number;
    }
    Ok(items.into_answer("changes", json!({ "cursor": has_more.then(|| before.to_string()) })))
}

/// A cursor that is the number of a line or a record.
fn number_cursor(asked: &Asked) -> Result<u64, Failure> {
    let Some(text) = asked.parameter("cursor") else { return Ok(u64::MAX) };
    text.parse().map_err(|_| bad_cursor())
}
