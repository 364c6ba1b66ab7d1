//! What was found, for people and for programs.

use std::fmt::Write;

use super::Failure;
use crate::json::{Json, Style};

/// One thing that was tried.
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
    /// Why not.
    No(String),
    /// Why it was not tried.
    NotTried(String),
    /// With its unit.
    Number(u64, &'static str),
    /// So many or a few more.
    AtLeast(u64),
    Text(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    /// It is not what the broker says, or not what MQTT asks for.
    Wrong,
}

impl Finding {
    /// What the broker says, and nobody has tried.
    pub(crate) fn said(what: &str, said: Value) -> Self {
        Self { what: what.to_owned(), measured: None, said: Some(said), verdict: Verdict::Fine }
    }

    /// What was measured, and nobody says.
    pub(crate) fn measured(what: &str, measured: Value, verdict: Verdict) -> Self {
        Self { what: what.to_owned(), measured: Some(measured), said: None, verdict }
    }

    /// Whether it can be done. Where the broker says nothing, it may be missing.
    pub(crate) fn of_check(what: &str, found: Result<(), Failure>, said: Option<bool>) -> Self {
        let verdict = match (&found, said) {
            (Ok(()), Some(false)) | (Err(Failure::Failed(_)), Some(true)) => Verdict::Wrong,
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
    /// What MQTT asks for and this is not.
    pub(crate) fn failed(what: &str, why: Failure) -> Self {
        Self::of_check(what, Err(why), Some(true)).without_said()
    }

    /// It is MQTT that asks for it, and not the broker that says it.
    pub(crate) fn without_said(self) -> Self {
        Self { said: None, ..self }
    }
}

impl Value {
    fn of_failure(failure: Failure) -> Self {
        match failure {
            Failure::Failed(why) => Self::No(why),
            Failure::NotTried(_) => Self::NotTried(failure.to_string()),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Yes => "yes".to_owned(),
            Self::No(why) if why.is_empty() => "no".to_owned(),
            Self::No(why) => format!("no: {why}"),
            Self::NotTried(why) => format!("not tried: {why}"),
            Self::AtLeast(number) => format!("at least {}", grouped(*number)),
            Self::Number(number, unit) => format!("{} {unit}", grouped(*number)).trim_end().to_owned(),
            Self::Text(text) => text.clone(),
        }
    }

    fn json(&self) -> Json {
        match self {
            Self::Yes => Json::Bool(true),
            Self::No(_) => Json::Bool(false),
            Self::NotTried(_) => Json::Null,
            Self::Number(number, _) | Self::AtLeast(number) => Json::number(*number),
            Self::Text(text) => Json::text(text),
        }
    }
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
            // A string takes everything.
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
            if let Some(Value::Number(_, unit)) = &finding.measured {
                members.push(member("unit", Json::text(unit)));
            }
            if let Some(Value::AtLeast(_)) = &finding.measured {
                members.push(member("at_least", Json::Bool(true)));
            }
            Json::Object(members)
        };
        let object = Json::Object(vec![
            member("broker", Json::text(&self.broker)),
            member("clean", Json::Bool(self.is_clean())),
            member("findings", Json::List(self.findings.iter().map(finding).collect())),
        ]);
        let mut line = Vec::new();
        // A vector takes everything.
        let _ = object.write(Style::Exact, &mut line);
        String::from_utf8_lossy(&line).into_owned() + "\n"
    }
}

/// With a comma before every three digits.
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
            Finding::said("Receive Maximum", Value::Number(65_535, "messages")),
        ]);
        report
    }

    #[test]
    fn what_is_not_as_the_broker_says_is_wrong() {
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
}
