//! Findings, for people and for programs.

use std::fmt::Write;
use std::time::Duration;

use super::Failure;
use crate::json::{Json, Style};

/// Result of one check.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Finding {
    pub(crate) what: String,
    pub(crate) measured: Option<Value>,
    pub(crate) said: Option<Value>,
    pub(crate) verdict: Verdict,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Yes,
    /// Not available, for this reason.
    No(String),
    /// Not tried, for this reason.
    NotTried(String),
    /// The broker sets no limit; the text names the limit that applies.
    Unbounded(&'static str),
    Number(u64, Unit),
    /// Passed up to this number. If more was tried, the exact limit is slightly higher; otherwise it is unknown.
    AtLeast {
        number: u64,
        unit: Unit,
        was_more_tried: bool,
    },
    /// Number of messages that arrived, of those published.
    Share {
        messages: u32,
        of: u32,
    },
    /// Longest of many times.
    Longest(Duration),
    /// Median and 99th percentile of many times.
    Percentiles {
        p50: Duration,
        p99: Duration,
    },
    /// Number of messages in a time.
    Rate {
        messages: u32,
        elapsed: Duration,
    },
}

/// Unit of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Levels,
    Messages,
    Seconds,
    Topics,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Levels => "levels",
            Self::Messages => "messages",
            Self::Seconds => "seconds",
            Self::Topics => "topics",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    /// The result contradicts the broker's claim or the standard.
    Wrong,
}

impl Finding {
    /// A claim of the broker that was not tested.
    pub(crate) fn said(what: &str, said: Value) -> Self {
        Self { what: what.to_owned(), measured: None, said: Some(said), verdict: Verdict::Fine }
    }

    /// A measurement about which the broker claims nothing.
    pub(crate) fn measured(what: &str, measured: Value, verdict: Verdict) -> Self {
        Self { what: what.to_owned(), measured: Some(measured), said: None, verdict }
    }

    /// Result of a check, compared with the broker's claim. Without a claim, both outcomes are fine.
    pub(crate) fn of_check(what: &str, found: Result<(), Failure>, said: Option<bool>) -> Self {
        let verdict = match (&found, said) {
            (Ok(()), Some(false)) | (Err(Failure::Failed(_)), Some(true)) => Verdict::Wrong,
            (Err(Failure::Disappeared(_)), _) => Verdict::Wrong,
            _ => Verdict::Fine,
        };
        let measured = Some(match found {
            Ok(()) => Value::Yes,
            Err(failure) => Value::of_failure(failure),
        });
        let said = said.map(|said| if said { Value::Yes } else { Value::No(String::new()) });
        Self { what: what.to_owned(), measured, said, verdict }
    }
}

impl Finding {
    /// Failure of a check that the standard requires to succeed.
    pub(crate) fn failed(what: &str, why: Failure) -> Self {
        Self::of_check(what, Err(why), Some(true)).without_said()
    }

    /// Removes the claim, because the requirement comes from the standard and not from the broker.
    pub(crate) fn without_said(self) -> Self {
        Self { said: None, ..self }
    }
}

impl Value {
    fn of_failure(failure: Failure) -> Self {
        match failure {
            Failure::Failed(why) => Self::No(why),
            Failure::Disappeared(_) => Self::No(failure.to_string()),
            Failure::NotTried(_) | Failure::Gone => Self::NotTried(failure.to_string()),
        }
    }

    /// Short form, for people.
    fn text(&self) -> String {
        match self {
            Self::Yes => "yes".to_owned(),
            Self::No(why) if why.is_empty() => "no".to_owned(),
            Self::No(why) => format!("no: {why}"),
            Self::NotTried(why) => format!("not tried: {why}"),
            Self::Unbounded(text) => (*text).to_owned(),
            Self::Number(number, unit) => format!("{} {}", grouped(*number), unit.name()),
            Self::AtLeast { number, unit, was_more_tried: true } => {
                format!("at least {} {}", grouped(*number), unit.name())
            }
            Self::AtLeast { number, unit, was_more_tried: false } => {
                format!("{} {} (no more were tried)", grouped(*number), unit.name())
            }
            Self::Share { messages, of } => format!("yes; {messages} of {of} come"),
            Self::Longest(time) => milliseconds(*time),
            Self::Percentiles { p50, p99 } => {
                format!("p50 {}, p99 {}", milliseconds(*p50), milliseconds(*p99))
            }
            Self::Rate { messages, elapsed } => {
                format!("{} messages/s", grouped(per_second(*messages, *elapsed)))
            }
        }
    }

    /// Exact form, for programs. Each number has a name that contains its unit.
    fn json(&self) -> Json {
        let numbers = |numbers: &[(&str, u64)]| {
            let member = |(name, number): &(&str, u64)| (name.as_bytes().to_vec(), Json::number(*number));
            Json::Object(numbers.iter().map(member).collect())
        };
        match self {
            Self::Yes => Json::Bool(true),
            Self::No(_) => Json::Bool(false),
            Self::NotTried(_) | Self::Unbounded(_) => Json::Null,
            Self::Number(number, unit) => numbers(&[(unit.name(), *number)]),
            Self::AtLeast { number, unit, .. } => numbers(&[(&format!("{}_at_least", unit.name()), *number)]),
            Self::Share { messages, of } => {
                numbers(&[("messages", (*messages).into()), ("messages_published", (*of).into())])
            }
            Self::Longest(time) => numbers(&[("longest_ns", nanoseconds(*time))]),
            Self::Percentiles { p50, p99 } => {
                numbers(&[("p50_ns", nanoseconds(*p50)), ("p99_ns", nanoseconds(*p99))])
            }
            Self::Rate { messages, elapsed } => numbers(&[
                ("messages_per_second", per_second(*messages, *elapsed)),
                ("messages", (*messages).into()),
                ("elapsed_ns", nanoseconds(*elapsed)),
            ]),
        }
    }
}

fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1e3)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn per_second(messages: u32, elapsed: Duration) -> u64 {
    u64::from(messages) * 1_000_000_000 / nanoseconds(elapsed).max(1)
}

pub(crate) struct Report {
    broker: String,
    findings: Vec<Finding>,
}

impl Report {
    pub(crate) fn of(broker: &str) -> Self {
        Self { broker: broker.to_owned(), findings: Vec::new() }
    }

    pub(crate) fn extend(&mut self, findings: Vec<Finding>) {
        self.findings.extend(findings);
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.verdict == Verdict::Fine)
    }

    pub(crate) fn table(&self) -> String {
        let text = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), Value::text);
        let mut rows = vec![[self.broker.clone(), "measured".to_owned(), "the broker says".to_owned()]];
        rows.extend(self.findings.iter().map(|finding| {
            let mark = if finding.verdict == Verdict::Wrong { "  <- wrong" } else { "" };
            [finding.what.clone(), text(&finding.measured), text(&finding.said) + mark]
        }));
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let (first, second) = (width(0), width(1));
        let mut table = String::new();
        for [what, measured, said] in &rows {
            let line = format!("{what:first$}  {measured:second$}  {said}");
            // Writing to a string cannot fail.
            let _ = writeln!(table, "{}", line.trim_end());
        }
        table
    }

    pub(crate) fn json(&self) -> String {
        let member = |name: &str, value: Json| (name.as_bytes().to_vec(), value);
        let or_null = |value: &Option<Value>| value.as_ref().map_or(Json::Null, Value::json);
        let finding = |finding: &Finding| {
            let mut members = vec![
                member("what", Json::text(&finding.what)),
                member("measured", or_null(&finding.measured)),
                member("said", or_null(&finding.said)),
                member("wrong", Json::Bool(finding.verdict == Verdict::Wrong)),
            ];
            if let Some(Value::No(why) | Value::NotTried(why)) = &finding.measured {
                members.push(member("why", Json::text(why)));
            }
            Json::Object(members)
        };
        let object = Json::Object(vec![
            member("broker", Json::text(&self.broker)),
            member("clean", Json::Bool(self.is_clean())),
            member("findings", Json::List(self.findings.iter().map(finding).collect())),
        ]);
        let mut line = Vec::new();
        // Writing to a vector cannot fail.
        let _ = object.write(Style::Exact, &mut line);
        String::from_utf8_lossy(&line).into_owned() + "\n"
    }
}

/// Formats a number with a comma before every three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::of("localhost");
        report.extend(vec![
            Finding::of_check("retained messages", Ok(()), Some(true)),
            Finding::of_check("shared subscriptions", Err("not within 10 s".into()), Some(true)),
            Finding::of_check("QoS 2", Err(Failure::NotTried("QoS 2".to_owned())), Some(false)),
            Finding::failed("order, QoS 2", Failure::NotTried("QoS 2".to_owned())),
            Finding::said("Receive Maximum", Value::Number(65_535, Unit::Messages)),
        ]);
        report
    }

    #[test]
    fn findings_that_contradict_the_broker_are_marked_wrong() {
        let report = report();
        assert!(!report.is_clean());
        assert_eq!(
            report.table(),
            "localhost             measured                                         the broker says\n\
             retained messages     yes                                              yes\n\
             shared subscriptions  no: not within 10 s                              yes  <- wrong\n\
             QoS 2                 not tried: the broker says that it has no QoS 2  no\n\
             order, QoS 2          not tried: the broker says that it has no QoS 2  -\n\
             Receive Maximum       -                                                65,535 messages\n"
        );
    }

    #[test]
    fn programs_get_one_object() {
        let json = report().json();
        assert!(json.starts_with("{\"broker\":\"localhost\",\"clean\":false,\"findings\":[{"), "{json}");
        assert!(
            json.contains("\"measured\":false,\"said\":true,\"wrong\":true,\"why\":\"not within 10 s\""),
            "{json}"
        );
    }

    #[test]
    fn people_get_three_digits_and_programs_every_one_with_its_unit() {
        let shown = |value: &Value| {
            let mut json = Vec::new();
            value.json().write(Style::Exact, &mut json).expect("a vector takes everything");
            (value.text(), String::from_utf8(json).expect("JSON is text"))
        };
        let (time, longer) = (Duration::from_nanos(1_234_567), Duration::from_micros(20_500));
        for (value, text, json) in [
            (Value::Longest(time), "1.23 ms", r#"{"longest_ns":1234567}"#),
            (
                Value::Percentiles { p50: time, p99: longer },
                "p50 1.23 ms, p99 20.50 ms",
                r#"{"p50_ns":1234567,"p99_ns":20500000}"#,
            ),
            (
                Value::Rate { messages: 1_000, elapsed: longer },
                "48,780 messages/s",
                r#"{"messages_per_second":48780,"messages":1000,"elapsed_ns":20500000}"#,
            ),
            (
                Value::AtLeast { number: 65_535, unit: Unit::Bytes, was_more_tried: false },
                "65,535 bytes (no more were tried)",
                r#"{"bytes_at_least":65535}"#,
            ),
            (
                Value::Share { messages: 7, of: 9 },
                "yes; 7 of 9 come",
                r#"{"messages":7,"messages_published":9}"#,
            ),
            (Value::Unbounded("as asked for"), "as asked for", "null"),
        ] {
            assert_eq!(shown(&value), (text.to_owned(), json.to_owned()));
        }
    }
}
