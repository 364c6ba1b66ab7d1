//! Counts of messages and connections by listener and by user, and whether they add up to those of the broker.

use std::collections::BTreeMap;
use std::sync::Arc;

use net::{Counted, CountedUser, Party};
use serde_json::{Map, Value, json};

use super::bad_cursor;
use super::items::Items;
use crate::answer::{Answer, Failure};
use crate::asked::Asked;
use crate::control::Listener;
use crate::server::Shared;

/// All counts at a moment.
struct Counts {
    parties: Vec<(Party, Counted)>,
    totals: Value,
}

impl Counts {
    fn read(shared: &Shared) -> Self {
        let (parties, totals) = shared.operator.counted();
        let mut sum = Counted::default();
        parties.iter().for_each(|(_, counted)| sum += counted);
        let totals = sum
            .compare(&totals)
            .map(|(name, sum, broker)| json!({ "name": name, "sum": sum, "broker": broker }));
        Self { parties, totals: totals.collect() }
    }

    /// The sum of those that a condition chooses.
    fn sum(&self, is_meant: impl Fn(&Party) -> bool) -> Counted {
        let mut sum = Counted::default();
        self.parties.iter().filter(|(party, _)| is_meant(party)).for_each(|(_, counted)| sum += counted);
        sum
    }
}

pub(crate) fn listeners(shared: &Shared) -> Answer {
    let counts = Counts::read(shared);
    let describe = |(place, listener): (usize, &Listener)| {
        let counted = counts.sum(|party| party.listener == Some(listener.counted_as));
        let mut item = describe(&counted);
        item.extend(fields(json!({
            "listener": place,
            "address": listener.address,
            "transport": listener.transport,
            "websocket_path": listener.websocket_path,
            "tls": listener.has_tls,
            "connections": listener.connections(&shared.operator),
        })));
        Value::Object(item)
    };
    let in_force = shared.control.in_force();
    let listeners: Vec<Value> = in_force.listeners.iter().enumerate().map(describe).collect();
    let is_there = |place: u16| in_force.listeners.iter().any(|listener| listener.counted_as == place);
    let removed = counts.sum(|party| party.listener.is_some_and(|place| !is_there(place)));
    let none = counts.sum(|party| party.listener.is_none());
    Answer::json(&json!({
        "listeners": listeners,
        "removed_listeners": self::describe(&removed),
        "without_listener": self::describe(&none),
        "totals": counts.totals,
    }))
}

/// The place of a row in the list of users.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Row {
    /// Clients that are no user, or that are not counted by user: a place in [`KINDS`].
    Kind(usize),
    Named {
        name: Arc<str>,
        is_proved: bool,
    },
}

/// Rows that are no users, before those of users.
const KINDS: [&str; 4] = ["anonymous", "not_let_in", "other_users", "not_connected"];

impl Row {
    fn of(party: &Party) -> Self {
        match &party.user {
            CountedUser::Named { name, is_proved } => {
                Self::Named { name: Arc::clone(name), is_proved: *is_proved }
            }
            CountedUser::Anonymous => Self::Kind(0),
            CountedUser::NotLetIn if party.listener.is_some() => Self::Kind(1),
            CountedUser::Others => Self::Kind(2),
            CountedUser::NotLetIn => Self::Kind(3),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        match text.split_at_checked(1)? {
            ("k", place) => Some(Self::Kind(place.parse().ok().filter(|place| *place < KINDS.len())?)),
            ("p", name) => Some(Self::Named { name: name.into(), is_proved: true }),
            ("u", name) => Some(Self::Named { name: name.into(), is_proved: false }),
            _ => None,
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Kind(place) => format!("k{place}"),
            Self::Named { name, is_proved: true } => format!("p{name}"),
            Self::Named { name, is_proved: false } => format!("u{name}"),
        }
    }

    fn has_text(&self, text: &str) -> bool {
        match self {
            Self::Kind(_) => text.is_empty(),
            Self::Named { name, .. } => name.contains(text),
        }
    }

    fn describe(&self, counted: &Counted) -> Value {
        let mut item = describe(counted);
        item.extend(fields(match self {
            Self::Kind(place) => json!({ "user": null, "kind": KINDS[*place], "proved": null }),
            Self::Named { name, is_proved } => json!({ "user": **name, "kind": "user", "proved": is_proved }),
        }));
        Value::Object(item)
    }
}

pub(crate) fn users(asked: &Asked, shared: &Shared) -> Result<Answer, Failure> {
    let mut items = Items::of(asked)?;
    let text = asked.parameter("match").unwrap_or_default();
    let from = asked.parameter("cursor").map(|cursor| Row::parse(cursor).ok_or_else(bad_cursor));
    let from = from.transpose()?.unwrap_or(Row::Kind(0));
    let counts = Counts::read(shared);
    let mut rows: BTreeMap<Row, Counted> = BTreeMap::new();
    for (party, counted) in &counts.parties {
        *rows.entry(Row::of(party)).or_default() += counted;
    }
    let mut cursor = None;
    for (row, counted) in rows.range(from..).filter(|(row, _)| row.has_text(text)) {
        if items.is_full() {
            cursor = Some(row.show());
            break;
        }
        items.push(&row.describe(counted));
    }
    Ok(items.into_answer("users", json!({ "cursor": cursor, "totals": counts.totals })))
}

/// The fields of an object that is written down.
fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn describe(counted: &Counted) -> Map<String, Value> {
    fields(json!({
        "clients": counted.clients_connected,
        "clients_let_in": counted.connects_accepted,
        "connections_accepted": counted.sockets,
        "connections_refused": counted.refused_connections,
        "connects_refused": counted.refused_connect,
        "bytes_received": counted.bytes_received,
        "bytes_sent": counted.bytes_sent,
        "payload_bytes_received": counted.publish_bytes_received,
        "payload_bytes_sent": counted.publish_bytes_sent,
        "messages_received": counted.publish_received(),
        "messages_received_by_qos": counted.received,
        "messages_refused": counted.publish_refused(),
        "messages_refused_by_reason": {
            "not_authorized": counted.denied_publish,
            "qos_or_retain": counted.denied_level,
            "topic": counted.dropped_topic,
            "not_stored": counted.refused_publish,
            "control": counted.refused_control,
        },
        "messages_without_subscriber": counted.no_subscribers,
        "messages_sent": counted.publish_sent(),
        "copies": counted.routed(),
        "copies_lost": counted.lost(),
        "copies_by_outcome": {
            "sent": counted.sent_once,
            "acknowledged": counted.acknowledged,
            "in_flight": counted.in_flight,
            "waiting": counted.waiting,
            "session": counted.discarded_session,
            "absent": counted.dropped_absent,
            "queue_full": counted.dropped_queue_full,
            "slow": counted.dropped_slow,
            "budget": counted.dropped_budget,
            "too_large": counted.dropped_too_large,
            "expired": counted.dropped_expired,
            "not_authorized": counted.dropped_denied,
        },
        "queued_messages_not_authorized": counted.denied_receive,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_of_a_row_leads_back_to_it() {
        let named = |name: &str, is_proved| Row::Named { name: name.into(), is_proved };
        let rows = [Row::Kind(0), Row::Kind(3), named("", false), named("", true), named("ü/k0", false)];
        assert!(rows.is_sorted());
        for row in rows {
            assert_eq!(Row::parse(&row.show()), Some(row));
        }
        for text in ["", "k", "k4", "kx", "x", "ü"] {
            assert_eq!(Row::parse(text), None, "{text}");
        }
    }

    #[test]
    fn outcomes_of_copies_add_up() {
        let counted = Counted { sent_once: 5, acknowledged: 3, dropped_slow: 2, ..Counted::default() };
        let item = describe(&counted);
        let outcomes = item["copies_by_outcome"].as_object().expect("an object").values();
        assert_eq!(outcomes.filter_map(Value::as_u64).sum::<u64>(), 10);
        assert_eq!((&item["copies"], &item["copies_lost"]), (&json!(10), &json!(2)));
    }
}
