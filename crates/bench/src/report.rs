//! From runs to a table and to JSON.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::campaign::Run;
use crate::figure::{Sample, bytes, duration, median, quantity, share};
use crate::load::{Churned, Counted, Outcome, Troubled};
use crate::measure::Measured;
use crate::sequence::Tally;
use crate::table::{Section, Table};

/// Share of its time above which the generator may be what limited a run.
const GENERATOR_BOUND: f64 = 0.9;

/// Text of a cell without a figure.
const UNKNOWN: &str = "-";

/// Text of a cell with a failed run.
const FAILED: &str = "FAILED";

const PERCENTILES: [(f64, &str); 3] = [(50.0, "p50"), (99.0, "p99"), (99.9, "p99.9")];

/// All runs of a comparison, with the names of what was compared.
#[derive(Debug)]
pub(crate) struct Report {
    /// The test with its parameters, in one line.
    pub(crate) title: String,
    pub(crate) servers: Vec<String>,
    pub(crate) sizes: Vec<String>,
    /// The things that messages of a run stand for.
    pub(crate) counted: Counted,
    /// The size with which the others are compared, round by round.
    pub(crate) control: Option<usize>,
    pub(crate) runs: Vec<Run>,
}

/// The rounds of one server at one size.
struct Cell<'a> {
    /// The runs that count.
    measured: Vec<&'a Measured>,
    failures: Vec<String>,
}

impl Report {
    /// Whether every run counts.
    pub(crate) fn is_clean(&self) -> bool {
        self.runs.iter().all(|run| run.failure().is_none())
    }

    /// Rows are servers, columns sizes, one section for each quantity that was measured.
    pub(crate) fn table(&self) -> Table {
        let mut headings = vec![String::new()];
        headings.extend(self.sizes.iter().cloned());
        let sections = [
            self.compared(
                self.counted.rate(),
                |cell| cell.rate(),
                |cell, sample| {
                    let mark = if cell.is_bound_by_generator() { " *" } else { "" };
                    format!("{}{mark}", sample.to_text(quantity))
                },
            ),
            self.compared(
                self.counted.cost(),
                |cell| cell.cpu(self.counted),
                |_, sample| sample.to_text(quantity),
            ),
            self.plain("server's peak memory", |cell| {
                cell.maximum(|m| m.peak_bytes.map(|n| n as f64)).map(bytes)
            }),
            self.plain("latency p50 / p99 / p99.9", |cell| {
                cell.latency().map(|latency| percentiles(&latency))
            }),
            self.paired("messages/s", |measured| Some(vec![measured.messages_per_sec()?])),
            self.paired("latency p50 / p99 / p99.9", |measured| {
                let latency = measured.outcome.latency.as_ref().filter(|latency| !latency.is_empty())?;
                let nanos = |(percentile, _)| latency.value_at_percentile(percentile) as f64;
                Some(PERCENTILES.map(nanos).to_vec())
            }),
            self.plain("completed of requested, and time", |cell| cell.troubled()),
            self.compared(
                "server's memory per connection",
                |cell| cell.connection_bytes(),
                |_, sample| sample.to_text(bytes),
            ),
            self.plain("generator busy", |cell| cell.busy().map(share)),
        ];
        let mut sections: Vec<_> = sections.into_iter().flatten().collect();
        if sections.is_empty() {
            // Nothing was measured, because everything failed: say so in every cell.
            sections.push(Section { title: self.counted.rate().to_owned(), rows: self.rows(|_, _| None) });
        }
        Table { title: self.title.clone(), headings, sections, notes: self.notes() }
    }

    /// Everything, run by run.
    pub(crate) fn json(&self) -> String {
        let run = |run: &Run| JsonRun {
            server: &self.servers[run.contender],
            size: &self.sizes[run.size],
            round: run.round + 1,
            failure: run.failure(),
            measured: run.result.as_ref().ok().map(JsonMeasured::from),
        };
        let json = Json { test: &self.title, runs: self.runs.iter().map(run).collect() };
        serde_json::to_string_pretty(&json).expect("every key is a string and every value can be written")
    }

    /// A section in which each cell is compared with the first server's.
    fn compared(
        &self,
        title: &str,
        sample: impl Fn(&Cell<'_>) -> Option<Sample>,
        text: impl Fn(&Cell<'_>, Sample) -> String,
    ) -> Option<Section> {
        let first = |size| Some(self.cell(0, size)).filter(|cell| cell.failures.is_empty());
        let first: Vec<_> =
            (0..self.sizes.len()).map(|size| first(size).and_then(|cell| sample(&cell))).collect();
        self.section(title, |server, size| {
            let cell = self.cell(server, size);
            let own = sample(&cell)?;
            let ratio = first[size].filter(|_| self.servers.len() > 1).map(|first| own.mean / first.mean);
            let ratio = ratio.map_or(String::new(), |ratio| format!(" ({}×)", quantity(ratio)));
            Some(format!("{}{ratio}", text(&cell, own)))
        })
    }

    /// A section in which each cell is the median over the rounds of how it compares with the control.
    fn paired(&self, title: &str, values: impl Fn(&Measured) -> Option<Vec<f64>>) -> Option<Section> {
        let control = self.control?;
        let of_run = |server, size, round| {
            let is_it = |run: &&Run| (run.contender, run.size, run.round) == (server, size, round);
            self.runs.iter().find(is_it).and_then(|run| values(run.result.as_ref().ok()?))
        };
        let title = format!("{title} against “{}” of the same round, median", self.sizes[control]);
        self.section(&title, |server, size| {
            let rounds = 0..self.rounds();
            let ratios = rounds.filter_map(|round| {
                let (own, control) = (of_run(server, size, round)?, of_run(server, control, round)?);
                Some(own.iter().zip(control).map(|(own, control)| own / control).collect::<Vec<_>>())
            });
            let ratios: Vec<Vec<f64>> = ratios.filter(|_| size != control).collect();
            let count = ratios.first()?.len();
            let medians = (0..count).map(|at| median(ratios.iter().map(|ratios| ratios[at]).collect()));
            Some(medians.map(|ratio| format!("{}×", quantity(ratio))).collect::<Vec<_>>().join(" / "))
        })
    }

    fn rounds(&self) -> u32 {
        self.runs.iter().map(|run| run.round + 1).max().unwrap_or(0)
    }

    fn plain(&self, title: &str, text: impl Fn(&Cell<'_>) -> Option<String>) -> Option<Section> {
        self.section(title, |server, size| text(&self.cell(server, size)))
    }

    /// `None` if no cell has anything to say.
    fn section(&self, title: &str, text: impl Fn(usize, usize) -> Option<String>) -> Option<Section> {
        let is_known = self.cells().any(|(server, size, _)| text(server, size).is_some());
        is_known.then(|| Section { title: title.to_owned(), rows: self.rows(text) })
    }

    fn rows(&self, text: impl Fn(usize, usize) -> Option<String>) -> Vec<Vec<String>> {
        let cell = |server, size| match self.cell(server, size).failures[..] {
            [] => text(server, size).unwrap_or_else(|| UNKNOWN.to_owned()),
            [..] => FAILED.to_owned(),
        };
        let named = |(server, name): (usize, &String)| {
            let cells = (0..self.sizes.len()).map(|size| cell(server, size));
            std::iter::once(name.clone()).chain(cells).collect()
        };
        self.servers.iter().enumerate().map(named).collect()
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let rounds = self.rounds();
        if rounds > 1 {
            notes.push(format!("Mean ± standard deviation of {rounds} rounds."));
        }
        if self.cells().any(|(_, _, cell)| cell.is_bound_by_generator()) {
            notes.push(
                "\\* The generator was over 90 % busy: the rate may be its limit, not the server's."
                    .to_owned(),
            );
        }
        for (server, size, cell) in self.cells() {
            if let Some(churned) = cell.lowest_churn().filter(|churned| churned.fell_short()) {
                let Churned { planned_per_sec, per_sec } = churned;
                let (server, size, per_sec) = (&self.servers[server], &self.sizes[size], quantity(per_sec));
                notes.push(format!(
                    "{server}, {size}: SUBSCRIBE and UNSUBSCRIBE fell short, {per_sec} of {planned_per_sec} per second."
                ));
            }
            for failure in cell.failures {
                notes.push(format!("{FAILED}: {}, {}: {failure}.", self.servers[server], self.sizes[size]));
            }
        }
        // A server may fail in the same way in every round.
        notes.dedup();
        notes
    }

    fn cells(&self) -> impl Iterator<Item = (usize, usize, Cell<'_>)> {
        let sizes = self.sizes.len();
        let places =
            (0..self.servers.len()).flat_map(move |server| (0..sizes).map(move |size| (server, size)));
        places.map(|(server, size)| (server, size, self.cell(server, size)))
    }

    fn cell(&self, server: usize, size: usize) -> Cell<'_> {
        let runs = || self.runs.iter().filter(move |run| run.contender == server && run.size == size);
        Cell {
            measured: runs().filter_map(|run| run.result.as_ref().ok()).collect(),
            failures: runs().filter_map(Run::failure).collect(),
        }
    }
}

impl Counted {
    /// Title of the section that shows speed.
    fn rate(self) -> &'static str {
        match self {
            Self::Messages => "messages/s",
            Self::Handshakes => "handshakes/s",
            Self::Connections => "connections/s",
        }
    }

    /// Title of the section that shows the work of the server.
    fn cost(self) -> &'static str {
        match self {
            Self::Messages => "server's CPU seconds per million messages",
            Self::Handshakes => "handshakes per CPU second of the server",
            Self::Connections => "connections per CPU second of the server",
        }
    }
}

impl Cell<'_> {
    fn rate(&self) -> Option<Sample> {
        self.sample(Measured::messages_per_sec)
    }

    fn cpu(&self, counted: Counted) -> Option<Sample> {
        self.sample(|measured| {
            let secs_per_million = measured.cpu_secs_per_million()?;
            match counted {
                Counted::Messages => Some(secs_per_million),
                Counted::Handshakes | Counted::Connections => {
                    Some(1e6 / secs_per_million).filter(|count| count.is_finite())
                }
            }
        })
    }

    fn connection_bytes(&self) -> Option<Sample> {
        // Of interest where nothing else is measured.
        let is_all = self.rate().is_none() && self.latency().is_none();
        if is_all { self.sample(|measured| measured.connection_bytes) } else { None }
    }

    /// The round that had the least, with the mean time of all.
    fn troubled(&self) -> Option<String> {
        let all: Vec<Troubled> =
            self.measured.iter().filter_map(|measured| measured.outcome.troubled).collect();
        let least = all.iter().min_by_key(|troubled| troubled.received)?;
        let took =
            all.iter().map(|troubled| troubled.took).sum::<Duration>() / u32::try_from(all.len()).ok()?;
        let out_of_order = all.iter().map(|troubled| troubled.out_of_order).max().filter(|count| *count > 0);
        let disorder = out_of_order.map_or(String::new(), |count| format!(", {count} out of order"));
        Some(format!("{} of {} in {}{disorder}", least.received, least.expected, duration(took)))
    }

    fn lowest_churn(&self) -> Option<Churned> {
        let churned = self.measured.iter().filter_map(|measured| measured.outcome.churned);
        churned.min_by(|a, b| a.per_sec.total_cmp(&b.per_sec))
    }

    fn busy(&self) -> Option<f64> {
        self.rate().and_then(|_| self.maximum(|measured| Some(measured.generator_busy)))
    }

    fn is_bound_by_generator(&self) -> bool {
        self.busy().is_some_and(|busy| busy > GENERATOR_BOUND)
    }

    /// Of all rounds together.
    fn latency(&self) -> Option<Histogram<u64>> {
        let mut all = Outcome::default();
        self.measured.iter().for_each(|measured| all.add(measured.outcome.clone()));
        all.latency.filter(|latency| !latency.is_empty())
    }

    fn sample(&self, value: impl Fn(&Measured) -> Option<f64>) -> Option<Sample> {
        Sample::of(&self.measured.iter().filter_map(|measured| value(measured)).collect::<Vec<_>>())
    }

    fn maximum(&self, value: impl Fn(&Measured) -> Option<f64>) -> Option<f64> {
        self.measured.iter().filter_map(|measured| value(measured)).reduce(f64::max)
    }
}

impl Measured {
    /// Messages that count, per second, if the test has any.
    pub(crate) fn messages_per_sec(&self) -> Option<f64> {
        let messages = self.outcome.messages;
        (messages > 0 && !self.elapsed.is_zero()).then(|| messages as f64 / self.elapsed.as_secs_f64())
    }

    /// The server's CPU time for a million messages that count, seconds.
    pub(crate) fn cpu_secs_per_million(&self) -> Option<f64> {
        let messages = Some(self.outcome.messages).filter(|messages| *messages > 0)?;
        self.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / messages as f64)
    }
}

fn percentiles(latency: &Histogram<u64>) -> String {
    let text = |(percentile, _)| duration(Duration::from_nanos(latency.value_at_percentile(percentile)));
    PERCENTILES.map(text).join(" / ")
}

#[derive(Serialize)]
struct Json<'a> {
    test: &'a str,
    runs: Vec<JsonRun<'a>>,
}

#[derive(Serialize)]
struct JsonRun<'a> {
    server: &'a str,
    size: &'a str,
    round: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
    #[serde(flatten)]
    measured: Option<JsonMeasured>,
}

#[derive(Serialize)]
struct JsonMeasured {
    messages: u64,
    seconds: f64,
    messages_per_sec: Option<f64>,
    #[serde(flatten)]
    tally: Tally,
    server_cpu_secs: Option<f64>,
    server_cpu_secs_per_million: Option<f64>,
    server_peak_bytes: Option<u64>,
    server_bytes_per_connection: Option<f64>,
    /// 1 is one processor.
    generator_busy: f64,
    bound_by_generator: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    churned_per_sec: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<JsonTrouble>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_nanos: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Serialize)]
struct JsonTrouble {
    expected: u64,
    received: u64,
    seconds: f64,
    out_of_order: u64,
}

impl From<Troubled> for JsonTrouble {
    fn from(troubled: Troubled) -> Self {
        let Troubled { expected, received, took, out_of_order } = troubled;
        Self { expected, received, seconds: took.as_secs_f64(), out_of_order }
    }
}

impl From<&Measured> for JsonMeasured {
    fn from(measured: &Measured) -> Self {
        let latency = measured.outcome.latency.as_ref().map(|latency| {
            let value = |(percentile, name): (f64, &str)| {
                (name.to_owned(), latency.value_at_percentile(percentile).into())
            };
            PERCENTILES.map(value).into_iter().chain([("max".to_owned(), latency.max().into())]).collect()
        });
        Self {
            messages: measured.outcome.messages,
            seconds: measured.elapsed.as_secs_f64(),
            messages_per_sec: measured.messages_per_sec(),
            tally: measured.outcome.tally,
            server_cpu_secs: measured.server_cpu.map(|cpu| cpu.as_secs_f64()),
            server_cpu_secs_per_million: measured.cpu_secs_per_million(),
            server_peak_bytes: measured.peak_bytes,
            server_bytes_per_connection: measured.connection_bytes,
            generator_busy: measured.generator_busy,
            bound_by_generator: measured.generator_busy > GENERATOR_BOUND,
            churned_per_sec: measured.outcome.churned.map(|churned| churned.per_sec),
            trouble: measured.outcome.troubled.map(JsonTrouble::from),
            latency_nanos: latency,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(messages: u64, millis: u64) -> Measured {
        Measured {
            outcome: Outcome { messages, ..Outcome::default() },
            elapsed: Duration::from_millis(millis),
            server_cpu: Some(Duration::from_millis(millis / 2)),
            balancer_cpu: None,
            busiest_share: None,
            peak_bytes: Some(3 << 20),
            connection_bytes: None,
            generator_busy: 0.5,
            concert: None,
        }
    }

    fn run(contender: usize, round: u32, result: std::result::Result<Measured, String>) -> Run {
        Run { contender, size: 0, round, result }
    }

    fn report(runs: Vec<Run>) -> Report {
        let servers = vec!["first".to_owned(), "second".to_owned()];
        Report {
            title: "test".into(),
            servers,
            sizes: vec!["10".into()],
            counted: Counted::Messages,
            control: None,
            runs,
        }
    }

    #[test]
    fn rates_are_averaged_over_rounds_and_compared_with_the_first_server() {
        let runs = vec![
            run(0, 0, Ok(measured(1_000, 1_000))),
            run(0, 1, Ok(measured(3_000, 1_000))),
            run(1, 0, Ok(measured(500, 1_000))),
            run(1, 1, Ok(measured(500, 1_000))),
        ];
        let table = report(runs).table();
        let rates = &table.sections[0];
        assert_eq!(rates.rows[0][1], "2.00 k ± 1.41 k (1.00×)");
        assert_eq!(rates.rows[1][1], "500 ± 0 (0.250×)");
    }

    #[test]
    fn a_lost_message_fails_the_run_and_the_report() {
        let mut lossy = measured(999, 1_000);
        lossy.outcome.tally.lost = 1;
        let report = report(vec![run(0, 0, Ok(measured(1_000, 1_000))), run(1, 0, Ok(lossy))]);
        assert!(!report.is_clean());
        let table = report.table();
        assert_eq!(table.sections[0].rows[1][1], "FAILED");
        assert_eq!(table.notes, ["FAILED: second, 10: 1 lost."]);
    }

    #[test]
    fn a_run_that_ended_early_fails_with_its_reason() {
        let report =
            report(vec![run(0, 0, Err("closed connection 3".into())), run(1, 0, Ok(measured(1, 1)))]);
        assert!(!report.is_clean());
        assert_eq!(report.table().sections[0].rows[0][1], "FAILED");
    }

    #[test]
    fn every_cell_says_failed_if_all_runs_failed() {
        let report = report(vec![run(0, 0, Err("gone".into())), run(1, 0, Err("gone".into()))]);
        let rows = &report.table().sections[0].rows;
        assert_eq!(rows, &[["first", "FAILED"], ["second", "FAILED"]]);
    }

    #[test]
    fn a_busy_generator_is_marked() {
        let busy = Measured { generator_busy: 0.91, ..measured(1_000, 1_000) };
        let table = report(vec![run(0, 0, Ok(busy)), run(1, 0, Ok(measured(1_000, 1_000)))]).table();
        assert_eq!(table.sections[0].rows[0][1], "1.00 k * (1.00×)");
        assert_eq!(table.sections[0].rows[1][1], "1.00 k (1.00×)");
        assert_eq!(table.notes.len(), 1);
    }

    #[test]
    fn a_reason_to_fail_is_given_once_for_all_rounds() {
        let failed = |round| run(1, round, Err("gone".into()));
        assert_eq!(
            report(vec![failed(0), failed(1)]).table().notes,
            ["Mean ± standard deviation of 2 rounds.", "FAILED: second, 10: gone."]
        );
    }

    #[test]
    fn churn_that_fell_short_is_told_with_its_rate() {
        let churned = |per_sec| {
            let mut measured = measured(1_000, 1_000);
            measured.outcome.churned = Some(Churned { planned_per_sec: 1_000, per_sec });
            Ok(measured)
        };
        let report = report(vec![run(0, 0, churned(1_000.0)), run(1, 0, churned(120.0))]);
        let notes = ["second, 10: SUBSCRIBE and UNSUBSCRIBE fell short, 120 of 1000 per second."];
        assert_eq!(report.table().notes, notes);
        assert!(report.is_clean());
    }

    #[test]
    fn rounds_are_compared_with_the_control_of_the_same_round() {
        let run =
            |size, round, messages| Run { contender: 0, size, round, result: Ok(measured(messages, 1_000)) };
        let mut runs: Vec<Run> =
            [1_000, 2_000, 3_000].into_iter().zip(0..).map(|(n, at)| run(0, at, n)).collect();
        runs.extend([500, 500, 300].into_iter().zip(0..).map(|(n, at)| run(1, at, n)));
        let (servers, sizes) = (vec!["only".into()], vec!["idle".into(), "storm".into()]);
        let table = Report {
            title: "test".into(),
            servers,
            sizes,
            counted: Counted::Messages,
            control: Some(0),
            runs,
        }
        .table();
        let is_it =
            |section: &&Section| section.title == "messages/s against “idle” of the same round, median";
        let section = table.sections.iter().find(is_it).unwrap();
        assert_eq!(section.rows, [["only", "-", "0.250×"]]);
    }

    #[test]
    fn the_trouble_row_shows_the_fewest_messages_received_in_any_round() {
        let troubled = |received| {
            let mut measured = measured(0, 1_000);
            let took = Duration::from_millis(received);
            measured.outcome.troubled = Some(Troubled { expected: 9, received, took, out_of_order: 0 });
            Ok(measured)
        };
        let table = report(vec![run(0, 0, troubled(9)), run(0, 1, troubled(7))]).table();
        assert!(table.sections.iter().any(|section| section.rows[0][1] == "7 of 9 in 8.00 ms"));
    }

    #[test]
    fn json_has_every_run_with_its_units() {
        let json = report(vec![run(0, 0, Ok(measured(1_000, 500))), run(1, 0, Err("gone".into()))]).json();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["runs"][0]["messages_per_sec"], 2_000.0);
        assert_eq!(value["runs"][0]["server_peak_bytes"], 3 << 20);
        assert_eq!(value["runs"][1]["failure"], "gone");
    }
}
