//! Answers of the server as text for people.

use serde_json::Value;

/// Maximum width of a column, in characters. A longer cell moves the rest of its line only.
const WIDTH_MAX: usize = 64;
/// Columns of a list: the field, and its title.
pub(crate) type Columns = &'static [(&'static str, &'static str)];

/// Columns of the list of clients.
pub(crate) const CLIENTS: Columns = &[
    ("client_id", "CLIENT"),
    ("user", "USER"),
    ("connected", "CONNECTED"),
    ("address", "ADDRESS"),
    ("protocol", "MQTT"),
    ("lasting", "LASTING"),
    ("subscriptions", "SUBSCRIPTIONS"),
    ("in_flight", "IN FLIGHT"),
    ("waiting_messages", "WAITING"),
    ("queued_messages", "QUEUED"),
    ("state", "STATE"),
];
/// Columns of the list of subscriptions.
pub(crate) const SUBSCRIPTIONS: Columns = &[
    ("filter", "FILTER"),
    ("qos", "QOS"),
    ("no_local", "NO LOCAL"),
    ("retain_as_published", "RETAIN AS PUBLISHED"),
];
/// Columns of the list of messages in a queue.
pub(crate) const QUEUE: Columns = &[
    ("topic", "TOPIC"),
    ("qos", "QOS"),
    ("bytes", "BYTES"),
    ("expires_in_seconds", "EXPIRES IN"),
    ("publisher", "PUBLISHER"),
    ("payload", "PAYLOAD"),
];
/// Columns of the list of groups.
pub(crate) const GROUPS: Columns = &[
    ("filter", "FILTER"),
    ("dispatch", "DISPATCH"),
    ("members", "MEMBERS"),
    ("connected", "CONNECTED"),
    ("queued_messages", "QUEUED"),
    ("in_flight", "IN FLIGHT"),
    ("lasting", "LASTING"),
];
/// Columns of the list of members.
pub(crate) const MEMBERS: Columns =
    &[("client_id", "CLIENT"), ("user", "USER"), ("connected", "CONNECTED"), ("qos", "QOS")];
/// Columns of the list of retained messages.
pub(crate) const RETAINED: Columns = &[
    ("topic", "TOPIC"),
    ("qos", "QOS"),
    ("bytes", "BYTES"),
    ("publisher", "PUBLISHER"),
    ("payload", "PAYLOAD"),
];
/// Columns of the list of topics.
pub(crate) const TOPICS: Columns =
    &[("topic", "TOPIC"), ("has_more_levels", "MORE LEVELS"), ("retained", "RETAINED")];
/// Columns of the list of subscriptions that match a topic.
pub(crate) const SUBSCRIBERS: Columns = &[
    ("client_id", "CLIENT"),
    ("group", "GROUP"),
    ("filter", "FILTER"),
    ("qos", "QOS"),
    ("connected", "CONNECTED"),
    ("no_local", "NO LOCAL"),
];
/// Columns of the list of certificates.
pub(crate) const CERTIFICATES: Columns = &[
    ("days_left", "DAYS LEFT"),
    ("listener", "LISTENER"),
    ("purpose", "PURPOSE"),
    ("subject", "SUBJECT"),
    ("names", "NAMES"),
    ("file", "FILE"),
];
/// Columns of the list of bans.
pub(crate) const BANS: Columns =
    &[("kind", "KIND"), ("value", "VALUE"), ("seconds_left", "SECONDS LEFT"), ("reason", "REASON")];
/// Columns of the list of users.
pub(crate) const USERS: Columns = &[
    ("user", "USER"),
    ("source", "SOURCE"),
    ("disabled", "DISABLED"),
    ("roles", "ROLES"),
    ("groups", "GROUPS"),
    ("client_id", "CLIENT"),
    ("operator", "OPERATOR"),
];
/// Columns of the list of roles.
pub(crate) const ROLES: Columns = &[("rolename", "ROLE"), ("acls", "RULES")];
/// Columns of the list of groups of users.
pub(crate) const USER_GROUPS: Columns = &[("groupname", "GROUP"), ("roles", "ROLES"), ("clients", "USERS")];
/// Columns of the list of sources of users and rules.
pub(crate) const SOURCES: Columns = &[
    ("kind", "KIND"),
    ("place", "PLACE"),
    ("users", "USERS"),
    ("editable", "EDITABLE"),
    ("listeners", "LISTENERS"),
];
/// Columns of the list of listeners.
pub(crate) const LISTENERS: Columns = &[
    ("address", "ADDRESS"),
    ("transport", "TRANSPORT"),
    ("connections", "CONNECTIONS"),
    ("connections_accepted", "ACCEPTED"),
    ("connects_refused", "REFUSED"),
    ("messages_received", "MESSAGES IN"),
    ("messages_refused", "REFUSED"),
    ("messages_sent", "MESSAGES OUT"),
    ("copies_lost", "LOST"),
    ("bytes_received", "BYTES IN"),
    ("bytes_sent", "BYTES OUT"),
];
/// Columns of the list of users with their messages.
pub(crate) const TRAFFIC: Columns = &[
    ("user", "USER"),
    ("kind", "KIND"),
    ("proved", "PROVED"),
    ("clients", "CLIENTS"),
    ("messages_received", "MESSAGES IN"),
    ("messages_refused", "REFUSED"),
    ("messages_sent", "MESSAGES OUT"),
    ("copies_lost", "LOST"),
    ("bytes_received", "BYTES IN"),
    ("bytes_sent", "BYTES OUT"),
];

/// Columns of a list of the busiest.
pub(crate) fn busiest(list: &str) -> Columns {
    match list {
        "receivers" => &[
            ("name", "NAME"),
            ("bytes", "BYTES"),
            ("bytes_per_second", "PER SECOND"),
            ("uncertain", "UNCERTAIN"),
        ],
        "connects" | "refusals" => {
            &[("name", "NAME"), ("connections", "CONNECTIONS"), ("uncertain", "UNCERTAIN")]
        }
        _ => &[
            ("name", "NAME"),
            ("messages", "MESSAGES"),
            ("messages_per_second", "PER SECOND"),
            ("bytes", "BYTES"),
            ("uncertain", "UNCERTAIN"),
        ],
    }
}

/// Writes a list with a title for each column.
pub(crate) fn list(items: &[Value], columns: Columns) -> String {
    let rows: Vec<Vec<String>> =
        items.iter().map(|item| columns.iter().map(|(field, _)| cell(&item[*field])).collect()).collect();
    let titles: Vec<String> = columns.iter().map(|(_, title)| (*title).to_owned()).collect();
    let width = |column: usize| {
        let cells = rows.iter().chain([&titles]).map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).min(WIDTH_MAX)
    };
    let widths: Vec<usize> = (0..columns.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    [&titles].into_iter().chain(&rows).map(line).collect()
}

/// Writes the fields of an object, one on a line.
pub(crate) fn fields(object: &Value) -> String {
    let Some(fields) = object.as_object() else { return format!("{object}\n") };
    let width = fields.keys().map(String::len).max().unwrap_or(0);
    fields.iter().map(|(name, value)| format!("{name:width$}  {}\n", cell(value))).collect()
}

/// Writes what a broker needs to serve clients: `ready`, or one line for each thing that is missing. Warnings follow.
pub(crate) fn readiness(value: &Value) -> String {
    let missing = value["missing"].as_array().into_iter().flatten();
    let warnings = value["warnings"].as_array().into_iter().flatten();
    let text: String = match value["ready"] == true {
        true => "ready\n".to_owned(),
        false => missing.map(|what| format!("not ready: {}\n", cell(what))).collect(),
    };
    warnings.fold(text, |text, warning| text + &format!("warning: {}\n", cell(warning)))
}

/// A value on one line, without characters that control a terminal.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(cell).collect::<Vec<_>>().join("; "),
        Value::Object(fields) if fields.contains_key("payload") => {
            let encoding = if value["encoding"] == "base64" { " (base64)" } else { "" };
            on_terminal(&format!("{}{encoding}", value["payload"].as_str().unwrap_or_default()))
        }
        Value::Object(fields) if fields.contains_key("acltype") => {
            let word = if value["allow"] == true { "allow" } else { "deny" };
            format!("{word} {} {}", cell(&value["acltype"]), cell(&value["topic"]))
        }
        Value::Object(_) => named(value).unwrap_or_else(|| value.to_string()),
        other => other.to_string(),
    };
    on_terminal(&text)
}

/// The name of a user, a group or a role in a list, with its priority there.
fn named(value: &Value) -> Option<String> {
    let name = ["rolename", "groupname", "username"].iter().find_map(|field| value[*field].as_str())?;
    Some(match value["priority"].as_i64() {
        Some(priority) => format!("{name} ({priority})"),
        None => name.to_owned(),
    })
}

/// A text of a client, without characters that control a terminal or turn the direction of writing.
pub(crate) fn on_terminal(text: &str) -> String {
    text.chars().map(|character| if wire::is_hidden(character) { '\u{FFFD}' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_of_clients_cannot_control_the_terminal() {
        assert_eq!(
            on_terminal("a\u{1B}[2J\n=> b\u{202E}\u{200F}c é"),
            "a\u{FFFD}[2J\u{FFFD}=> b\u{FFFD}\u{FFFD}c é"
        );
    }

    #[test]
    fn roles_and_rules_are_written_in_words() {
        let user = json!({
            "user": "ann", "source": "dynamic_security_file", "disabled": true, "client_id": null, "operator": null,
            "roles": [{ "rolename": "reader" }, { "rolename": "writer", "priority": 5 }], "groups": [],
        });
        assert!(list(&[user], USERS).contains("yes       reader; writer (5)  none    -       -\n"));
        let rule = json!({ "acltype": "subscribePattern", "topic": "pond/#", "priority": 0, "allow": false });
        let role = json!({ "rolename": "reader", "acls": [rule] });
        assert!(list(&[role], ROLES).contains("reader  deny subscribePattern pond/#\n"));
    }

    #[test]
    fn columns_are_as_wide_as_their_cells() {
        let items =
            [json!({ "kind": "network", "value": "192.0.2.0/24", "seconds_left": 3, "reason": "noise" })];
        let text = list(&items, BANS);
        assert_eq!(
            text,
            "KIND     VALUE         SECONDS LEFT  REASON\nnetwork  192.0.2.0/24  3             noise\n"
        );
    }

    #[test]
    fn a_payload_cannot_control_the_terminal() {
        let text = fields(&json!({ "payload": "\u{1b}[2J\nx", "is_whole": true, "user": null }));
        assert!(!text.contains('\u{1b}') && text.lines().count() == 3, "{text}");
        assert!(text.contains("is_whole  yes\n"), "{text}");
    }
}
