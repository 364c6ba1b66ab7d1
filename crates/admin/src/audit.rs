//! Records of changes by operators: in the log, and the last ones in memory.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::StatusCode;
use serde_json::{Value, json};

use crate::answer::Answer;
use crate::api::unix_ms;
use crate::asked::Asked;
use crate::routes::Route;
use crate::server::Shared;
use crate::tokens::{Holder, Role};

/// Maximum length of the name of a thing, and of a state, in a record and in its line of the log, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;

/// The last changes that operators have asked for.
pub(crate) struct Trail {
    records: Mutex<Records>,
    records_max: usize,
}

#[derive(Default)]
struct Records {
    all: VecDeque<Record>,
    /// Number of the next record.
    next: u64,
}

/// A change that an operator has asked for.
struct Record {
    number: u64,
    unix_ms: u64,
    action: String,
    object: String,
    /// The name of the operator.
    who: Arc<str>,
    role: &'static str,
    /// The proof of the name.
    proof: &'static str,
    from: SocketAddr,
    status: StatusCode,
    before: String,
    after: String,
}

impl Trail {
    pub(crate) fn new(records_max: usize) -> Self {
        Self { records: Mutex::default(), records_max }
    }

    fn add(&self, mut record: Record) {
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        record.number = records.next;
        records.next += 1;
        records.all.push_back(record);
        let surplus = records.all.len().saturating_sub(self.records_max);
        records.all.drain(..surplus);
    }

    /// At most `count` records, newest first, of those with a number below `before`.
    pub(crate) fn list(&self, before: u64, count: usize) -> Vec<(u64, Value)> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let older = records.all.iter().rev().filter(|record| record.number < before);
        older.take(count).map(|record| (record.number, record.describe())).collect()
    }
}

impl Record {
    fn describe(&self) -> Value {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        json!({
            "unix_ms": self.unix_ms,
            "action": self.action,
            "on": text(&self.object),
            "who": &*self.who,
            "role": self.role,
            "proof": self.proof,
            "from": self.from.to_string(),
            "status": self.status.as_u16(),
            "before": text(&self.before),
            "after": text(&self.after),
        })
    }
}

/// A change under way. Its end has a record, even if that is a failure of the broker, or the end of the server.
pub(crate) struct Change {
    pub(crate) asked: Asked,
    shared: Arc<Shared>,
    status: StatusCode,
    after: String,
}

impl Change {
    pub(crate) fn new(asked: Asked, shared: Arc<Shared>) -> Self {
        Self { asked, shared, status: StatusCode::INTERNAL_SERVER_ERROR, after: String::new() }
    }

    /// Notes the answer to the request as the outcome.
    pub(crate) fn note(&mut self, answer: &Answer) {
        self.status = answer.status;
        self.after = answer.body_text().trim().to_owned();
    }
}

impl Drop for Change {
    /// Writes a line to the log, and keeps the record, whether the change was carried out or not.
    fn drop(&mut self) {
        let Asked { route, holder, from, .. } = &self.asked;
        let object = self.asked.object();
        let before = self.asked.before().map(Value::to_string);
        let [on, after] = [&*object, &*self.after].map(cut);
        let before = before.as_deref().map(cut);
        let who = holder.as_ref().map_or_else(|| Arc::from(""), |holder| Arc::clone(&holder.name));
        let role = holder.as_ref().map_or("", |holder| Role::word(holder.role));
        let proof = holder.as_ref().map_or("", |holder| holder.proof);
        tracing::warn!(
            audit = true,
            action = ?route.action,
            on,
            role,
            proof,
            %from,
            status = self.status.as_u16(),
            who = &*who,
            before,
            after = (!after.is_empty()).then_some(after),
            "an operator has asked for a change"
        );
        let action = format!("{:?}", route.action);
        let [object, before, after] = [on, before.unwrap_or_default(), after].map(str::to_owned);
        let (unix_ms, from, status) = (unix_ms(), *from, self.status);
        let record =
            Record { number: 0, unix_ms, action, object, who, role, proof, from, status, before, after };
        self.shared.trail.add(record);
    }
}

/// Writes a line about a change that its sender has not the right to. It has no record: those who may change nothing displace no
/// records of changes.
pub(crate) fn note_refusal(route: &Route, values: &[String], holder: &Holder, from: SocketAddr) {
    let (on, role) = (values.join(" "), holder.role.word());
    let status = StatusCode::FORBIDDEN.as_u16();
    tracing::warn!(
        audit = true,
        action = ?route.action,
        on = cut(&on),
        role,
        %from,
        status,
        who = &*holder.name,
        "somebody has asked for a change without the right to it"
    );
}

/// The beginning of a text that has at most [`TEXT_BYTES_MAX`].
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(object: &str) -> Record {
        Record {
            number: 0,
            unix_ms: 1,
            action: "Ban".to_owned(),
            object: object.to_owned(),
            who: "alice".into(),
            role: "admin",
            proof: "token",
            from: ([127, 0, 0, 1], 1).into(),
            status: StatusCode::OK,
            before: String::new(),
            after: String::new(),
        }
    }

    #[test]
    fn the_last_records_are_listed_newest_first() {
        let trail = Trail::new(3);
        (0..5).for_each(|number| trail.add(record(&number.to_string())));
        let found = trail.list(u64::MAX, 2);
        assert_eq!(found.iter().map(|(_, one)| &one["on"]).collect::<Vec<_>>(), ["4", "3"]);
        let older = trail.list(found[1].0, 10);
        assert_eq!(older.iter().map(|(_, one)| &one["on"]).collect::<Vec<_>>(), ["2"]);
        assert_eq!(Trail::new(0).list(u64::MAX, 10), []);
    }

    #[test]
    fn a_long_text_ends_between_two_characters() {
        assert_eq!(cut(&"ä".repeat(600)).len(), 1_024);
        assert_eq!(cut(&format!("x{}", "ä".repeat(600))).len(), 1_023);
    }
}
