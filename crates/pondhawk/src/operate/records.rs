//! Lines of the log and changes by operators as text, the oldest first, as a log has them.

use jiff::Timestamp;
use serde_json::Value;

use super::table::on_terminal;

/// Writes lines of the log. `lines` has the newest first.
pub(super) fn log(lines: &[Value]) -> String {
    let line = |line: &Value| {
        let level = text(&line["level"]).to_uppercase();
        let fields = line["fields"].as_object().into_iter().flatten();
        let fields: String = fields.map(|(name, value)| format!(" {name}={}", text(value))).collect();
        format!("{} {level:5} {}{fields}", time(line), text(&line["message"]))
    };
    lines.iter().rev().map(|one| on_terminal(&line(one)) + "\n").collect()
}

/// Writes changes. `changes` has the newest first.
pub(super) fn audit(changes: &[Value]) -> String {
    let change = |change: &Value| {
        let part = |name: &str, field: &str| match &change[field] {
            Value::Null => String::new(),
            value => format!(" {name}{}", text(value)),
        };
        let (who, role) = (text(&change["who"]), text(&change["role"]));
        let head = format!("{} {who} ({role}) from {}:", time(change), text(&change["from"]));
        let outcome = match change["status"].as_u64() {
            Some(200..=299) => String::new(),
            Some(400..=499) => part("refused: ", "status"),
            _ => part("failed: ", "status"),
        };
        let parts = [
            part("", "action"),
            part("", "on"),
            outcome,
            part("before: ", "before"),
            part("after: ", "after"),
        ];
        head + &parts.concat()
    };
    changes.iter().rev().map(|one| on_terminal(&change(one)) + "\n").collect()
}

/// Writes what became of messages. `messages` has the newest first.
pub(super) fn outcomes(messages: &[Value]) -> String {
    messages.iter().rev().map(|one| on_terminal(&outcome(one)) + "\n").collect()
}

/// A message on a line: its time, its topic, its publisher, and its outcome.
pub(super) fn outcome(message: &Value) -> String {
    let topic = message["topic"].as_str().unwrap_or("(on disk)");
    let publisher = message["publisher"].as_str().map_or(String::new(), |from| format!(" from {from}"));
    let packet = message["packet_id"].as_u64().map_or(String::new(), |id| format!(" packet {id}"));
    let [noted, changed] =
        ["unix_ms", "changed_unix_ms"].map(|name| message[name].as_u64().unwrap_or_default());
    let after = match changed.saturating_sub(noted) {
        0 => String::new(),
        ms => format!(", {ms} ms later"),
    };
    let head = format!("{} {topic} q{}{packet}{publisher}", time(message), message["qos"]);
    format!("{head}: {}{after}", text(&message["text"]))
}

/// The time of a record, in UTC.
fn time(record: &Value) -> String {
    let unix_ms = record["unix_ms"].as_i64().unwrap_or_default();
    Timestamp::from_millisecond(unix_ms).map_or_else(|_| unix_ms.to_string(), |time| time.to_string())
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_line_is_the_last() {
        let lines = [
            json!({ "unix_ms": 1_500, "level": "warn", "message": "b", "fields": { "client_id": "a\u{1b}" } }),
            json!({ "unix_ms": 0, "level": "info", "message": "a", "fields": {} }),
        ];
        let text = log(&lines);
        assert_eq!(
            text,
            "1970-01-01T00:00:00Z INFO  a\n1970-01-01T00:00:01.5Z WARN  b client_id=a\u{FFFD}\n"
        );
    }

    #[test]
    fn a_change_has_its_operator_and_both_states() {
        let change = json!({
            "unix_ms": 0, "action": "SetLogLevel", "on": "debug", "who": "alice", "role": "admin", "from": "127.0.0.1:9",
            "status": 200, "before": "{\"level\":\"info\"}", "after": null,
        });
        let text = audit(&[change]);
        assert_eq!(
            text,
            "1970-01-01T00:00:00Z alice (admin) from 127.0.0.1:9: SetLogLevel debug before: {\"level\":\"info\"}\n"
        );
    }
}
