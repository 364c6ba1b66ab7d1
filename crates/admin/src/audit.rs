//! Records of changes by operators: in the log, in a file, and the last ones in memory.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::answer::Answer;
use crate::api::unix_ms;
use crate::asked::Asked;
use crate::audit_file::{AuditFile, Writing};
use crate::routes::{Action, Route};
use crate::server::Shared;
use crate::tokens::{Holder, PROOFS, Role};

/// Maximum length of the name of a thing, and of a state, in a record and in its line of the log, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;

/// Maximum time that the answer to a change waits for its record to be on disk.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The last changes that operators have asked for.
pub(crate) struct Trail {
    records: Mutex<Records>,
    records_max: usize,
    /// The file with all records, if there is one.
    writing: Option<Writing>,
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
    /// A list of this length, which begins with the last records of the file.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn new(records_max: usize, file: Option<AuditFile>) -> io::Result<Self> {
        let mut records = Records::default();
        for value in file.iter().flat_map(|file| file.last(records_max)).rev() {
            records.all.extend(Record::read(&value, records.next));
            records.next += 1;
        }
        let writing = file.map(Writing::start).transpose()?;
        Ok(Self { records: Mutex::new(records), records_max, writing })
    }

    /// Adds a record. Returns the moment when it is on disk, if there is a file.
    fn add(&self, mut record: Record) -> Option<oneshot::Receiver<()>> {
        let written = self.writing.as_ref().map(|writing| writing.write(&record.describe()));
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        record.number = records.next;
        records.next += 1;
        records.all.push_back(record);
        let surplus = records.all.len().saturating_sub(self.records_max);
        records.all.drain(..surplus);
        written
    }

    /// A record was not written in time.
    fn note_late(&self) {
        self.writing.iter().for_each(|writing| writing.figures().note_late());
    }

    /// Passes each figure of the file with its topic.
    pub(crate) fn read(&self, say: &mut dyn FnMut(&str, String)) {
        self.writing.iter().for_each(|writing| writing.figures().read(say));
    }

    /// The warning that the last record is not in the file.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        let is_failing = self.writing.as_ref().is_some_and(|writing| writing.figures().is_failing());
        is_failing.then_some("records of changes are not written: `audit_file` of [admin], see the log")
    }

    /// At most `count` records, newest first, of those with a number below `before`.
    pub(crate) fn list(&self, before: u64, count: usize) -> Vec<(u64, Value)> {
        let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        let older = records.all.iter().rev().filter(|record| record.number < before);
        older.take(count).map(|record| (record.number, record.describe())).collect()
    }
}

impl Record {
    /// A record of an earlier run. `None` if the line is none.
    fn read(value: &Value, number: u64) -> Option<Self> {
        let text = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        let word = |field: &str, words: &[&'static str]| {
            words.iter().find(|word| value[field] == **word).copied().unwrap_or_default()
        };
        Some(Self {
            number,
            unix_ms: value["unix_ms"].as_u64()?,
            action: value["action"].as_str()?.to_owned(),
            object: text("on"),
            who: text("who").into(),
            role: word("role", &Role::ALL.map(Role::word)),
            proof: word("proof", &PROOFS),
            from: value["from"].as_str()?.parse().ok()?,
            status: StatusCode::from_u16(value["status"].as_u64()?.try_into().ok()?).ok()?,
            before: text("before"),
            after: text("after"),
        })
    }

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
    is_recorded: bool,
}

impl Change {
    pub(crate) fn new(asked: Asked, shared: Arc<Shared>) -> Self {
        let (status, after) = (StatusCode::INTERNAL_SERVER_ERROR, String::new());
        Self { asked, shared, status, after, is_recorded: false }
    }

    /// Notes the answer to the request as the outcome, and waits until the record is on disk.
    pub(crate) async fn end(mut self, answer: &Answer) {
        self.status = answer.status;
        self.after = answer.body_text().trim().to_owned();
        self.is_recorded = true;
        if let Some(written) = self.record()
            && timeout(WRITE_TIMEOUT, written).await.is_err()
        {
            // The change is made, whatever becomes of its record.
            self.shared.trail.note_late();
        }
    }

    /// Whether the change has a record. Logging in and out has one for operators only: a viewer, who may do that again and
    /// again, displaces no records of changes.
    fn has_record(&self) -> bool {
        let may_change = self.asked.holder.as_ref().is_some_and(|holder| holder.role > Role::Viewer);
        let is_login = matches!(self.asked.route.action, Action::LogIn | Action::LogOut);
        !is_login || may_change && self.status.is_success()
    }

    /// Writes a line to the log, and keeps the record, whether the change was carried out or not. Returns the moment when it is
    /// on disk, if there is a file.
    fn record(&self) -> Option<oneshot::Receiver<()>> {
        let Asked { route, holder, from, .. } = &self.asked;
        let has_record = self.has_record();
        if !has_record && self.shared.note_refused(from.ip()).is_none() {
            return None;
        }
        let object = self.asked.object();
        let before = self.asked.before().map(Value::to_string);
        let [on, after] = [&*object, &*self.after].map(cut);
        let before = before.as_deref().map(cut);
        let who = holder.as_ref().map_or_else(|| Arc::from(""), |holder| Arc::clone(&holder.name));
        let role = holder.as_ref().map_or("", |holder| Role::word(holder.role));
        let proof = holder.as_ref().map_or("", |holder| holder.proof);
        tracing::warn!(
            audit = true,
            action = %route.action,
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
        if !has_record {
            return None;
        }
        let action = route.action.to_string();
        let [object, before, after] = [on, before.unwrap_or_default(), after].map(str::to_owned);
        let (unix_ms, from, status) = (unix_ms(), *from, self.status);
        let record =
            Record { number: 0, unix_ms, action, object, who, role, proof, from, status, before, after };
        self.shared.trail.add(record)
    }
}

impl Drop for Change {
    /// Keeps a record of a change that was not answered.
    fn drop(&mut self) {
        if !self.is_recorded {
            // Nobody waits for the disk.
            drop(self.record());
        }
    }
}

/// Writes a line about a change that its sender has not the right to. It has no record: those who may change nothing displace no
/// records of changes.
pub(crate) fn note_refusal(route: &Route, values: &[String], holder: &Holder, from: SocketAddr) {
    let (on, role, proof) = (values.join(" "), holder.role.word(), holder.proof);
    let status = StatusCode::FORBIDDEN.as_u16();
    tracing::warn!(
        audit = true,
        action = %route.action,
        on = cut(&on),
        role,
        proof,
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
        let trail = Trail::new(3, None).expect("no thread");
        (0..5).for_each(|number| drop(trail.add(record(&number.to_string()))));
        let found = trail.list(u64::MAX, 2);
        assert_eq!(found.iter().map(|(_, one)| &one["on"]).collect::<Vec<_>>(), ["4", "3"]);
        let older = trail.list(found[1].0, 10);
        assert_eq!(older.iter().map(|(_, one)| &one["on"]).collect::<Vec<_>>(), ["2"]);
        assert_eq!(Trail::new(0, None).expect("no thread").list(u64::MAX, 10), []);
    }

    #[test]
    fn a_record_of_an_earlier_run_is_listed_as_it_was() {
        let path = std::env::temp_dir().join(format!("pondhawk-trail-{}", std::process::id()));
        let file = AuditFile { path: path.clone(), bytes_max: 1 << 20, files_max: 2 };
        let trail = || Trail::new(2, Some(file.clone())).expect("a thread");
        let earlier = trail();
        for object in ["one", "two", "three"] {
            earlier.add(record(object)).expect("there is a file").blocking_recv().expect("it is written");
        }
        let before = earlier.list(u64::MAX, 10);
        drop(earlier);
        let later = trail();
        drop(later.add(record("four")));
        let found = later.list(u64::MAX, 10);
        drop(later);
        std::fs::remove_file(&path).expect("it is ours");
        assert_eq!(found.iter().map(|(_, one)| &one["on"]).collect::<Vec<_>>(), ["four", "three"]);
        assert_eq!(found[1].1, before[0].1, "nothing of a record is lost");
    }

    #[test]
    fn a_long_text_ends_between_two_characters() {
        assert_eq!(cut(&"ä".repeat(600)).len(), 1_024);
        assert_eq!(cut(&format!("x{}", "ä".repeat(600))).len(), 1_023);
    }
}
