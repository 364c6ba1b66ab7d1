//! The differences between the recording and the replay, and their summary.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use wire::Shown;

use crate::json::{Json, Style};

/// Maximum number of different notes. Further ones are left out.
const NOTES_MAX: usize = 50;

/// The kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DifferenceKind {
    Missing,
    Extra,
    Different,
    OutOfOrder,
    ClosedEarly,
    NotClosed,
    NotConnected,
    NotMqtt,
}

impl DifferenceKind {
    /// The kind in words, as the report and its JSON print it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Different => "different",
            Self::OutOfOrder => "out of order",
            Self::ClosedEarly => "closed too early",
            Self::NotClosed => "not closed",
            Self::NotConnected => "not connected",
            Self::NotMqtt => "not MQTT",
        }
    }
}

/// A difference, in the words of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) kind: DifferenceKind,
    /// Time in the recording, since 1970.
    pub(crate) time: Duration,
    /// The client, by its identifier and its connection.
    pub(crate) client: String,
    pub(crate) expected: Option<String>,
    pub(crate) received: Option<String>,
}

/// Everything that a replay has found out. Memory: at most `lines_max` differences, and counts.
#[derive(Debug, Default)]
pub(crate) struct Report {
    lines_max: usize,
    lines: Vec<Difference>,
    counts: BTreeMap<DifferenceKind, u64>,
    notes: BTreeSet<String>,
    /// Number of packets of clients that were sent.
    pub(crate) sent: u64,
    /// Number of packets of the server that were compared.
    pub(crate) compared: u64,
    /// Number of messages that a race of the recording excuses.
    pub(crate) in_doubt: u64,
    /// Number of packets that arrived after the time limit for them.
    pub(crate) late: u64,
    pub(crate) clients: u64,
    pub(crate) connections: u64,
    /// Length of the recording, as far as it was played.
    pub(crate) recorded: Duration,
    pub(crate) elapsed: Duration,
    /// The reason why only a part was played.
    pub(crate) cut: Option<String>,
}

impl Report {
    pub(crate) fn new(lines_max: usize) -> Self {
        Self { lines_max, ..Self::default() }
    }

    pub(crate) fn add(&mut self, difference: Difference) {
        *self.counts.entry(difference.kind).or_default() += 1;
        // The first differences in the recording are those that matter: later ones may be their consequences.
        let at = self.lines.partition_point(|other| other.time <= difference.time);
        if at < self.lines_max {
            self.lines.insert(at, difference);
            self.lines.truncate(self.lines_max);
        }
    }

    /// Adds a remark that is no difference. Equal ones are printed once.
    pub(crate) fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.insert(note);
        }
    }

    /// Number of differences of all kinds.
    pub(crate) fn differences(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The report for people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for Difference { kind, time, client, expected, received } in &self.lines {
            let time = crate::tap::time_of_day(*time);
            let _ = match (expected, received) {
                (Some(expected), Some(received)) => {
                    writeln!(
                        text,
                        "{time} {client}: {}\n  recorded: {expected}\n  received: {received}",
                        kind.name()
                    )
                }
                (Some(packet), None) | (None, Some(packet)) => {
                    writeln!(text, "{time} {client}: {}: {packet}", kind.name())
                }
                (None, None) => writeln!(text, "{time} {client}: {}", kind.name()),
            };
        }
        let left_out = self.differences().saturating_sub(self.lines.len() as u64);
        if left_out > 0 {
            let _ = writeln!(text, "{left_out} more differences");
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        if let Some(cut) = &self.cut {
            let _ = writeln!(text, "only a part was played: {cut}");
        }
        let _ = writeln!(
            text,
            "played {} packets of {} clients on {} connections in {:.1} s; the recording has {:.1} s",
            self.sent,
            self.clients,
            self.connections,
            self.elapsed.as_secs_f64(),
            self.recorded.as_secs_f64()
        );
        let _ = write!(text, "compared {} packets: ", self.compared);
        if self.is_empty() {
            text.push_str("the recording has no answers to compare, or no connection could be played");
        } else if self.counts.is_empty() {
            text.push_str("no difference");
        } else {
            let kinds: Vec<_> =
                self.counts.iter().map(|(kind, count)| format!("{count} {}", kind.name())).collect();
            let _ = write!(text, "{} differences ({})", self.differences(), kinds.join(", "));
        }
        if self.in_doubt > 0 {
            let _ = write!(text, "; {} messages raced with a change of their subscriber", self.in_doubt);
        }
        if self.late > 0 {
            let _ = write!(text, "; {} packets were late", self.late);
        }
        text.push('\n');
        // Line ends are ours. Texts of packets and client identifiers are escaped.
        text.lines().map(|line| format!("{}\n", Shown(line))).collect()
    }

    /// Whether nothing was compared: the broker can then be right or wrong.
    pub(crate) fn is_empty(&self) -> bool {
        self.compared == 0 && self.counts.is_empty()
    }

    /// The report as a JSON object on one line. What is absent is null.
    pub(crate) fn json(&self) -> String {
        let text = |text: &Option<String>| text.as_deref().map_or(Json::Null, Json::text);
        let lines = self.lines.iter().map(|difference| {
            let Difference { kind, time, client, expected, received } = difference;
            object(vec![
                ("kind", Json::text(kind.name())),
                ("unix_secs", Json::Number(format!("{}.{:06}", time.as_secs(), time.subsec_micros()))),
                ("client", Json::text(client)),
                ("recorded", text(expected)),
                ("received", text(received)),
            ])
        });
        let counts = self.counts.iter().map(|(kind, count)| (kind.name(), Json::number(*count))).collect();
        let seconds = |time: Duration| Json::Number(format!("{:.6}", time.as_secs_f64()));
        let report = object(vec![
            ("clean", Json::Bool(self.counts.is_empty() && !self.is_empty())),
            ("differences", Json::List(lines.collect())),
            ("counts", object(counts)),
            ("notes", Json::List(self.notes.iter().map(|note| Json::text(note)).collect())),
            ("packets_sent", Json::number(self.sent)),
            ("packets_compared", Json::number(self.compared)),
            ("messages_in_doubt", Json::number(self.in_doubt)),
            ("packets_late", Json::number(self.late)),
            ("connections", Json::number(self.connections)),
            ("recorded_secs", seconds(self.recorded)),
            ("elapsed_secs", seconds(self.elapsed)),
            ("cut", text(&self.cut)),
        ]);
        let mut line = Vec::new();
        // A vector has room for all of it.
        let _ = report.write(Style::Exact, &mut line);
        line.push(b'\n');
        String::from_utf8_lossy(&line).into_owned()
    }
}

fn object(members: Vec<(&str, Json)>) -> Json {
    Json::Object(members.into_iter().map(|(name, value)| (name.as_bytes().to_vec(), value)).collect())
}

#[test]
fn a_report_without_comparisons_is_not_clean() {
    let mut report = Report::new(10);
    assert!(report.is_empty() && report.json().contains("\"clean\":false"), "{}", report.json());
    assert!(!report.text().contains("no difference"), "{}", report.text());
    report.compared = 1;
    assert!(!report.is_empty() && report.json().contains("\"clean\":true"), "{}", report.json());
    assert!(report.text().contains("no difference"), "{}", report.text());
}
