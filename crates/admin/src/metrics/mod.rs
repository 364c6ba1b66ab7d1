//! Metrics: one table, written in the text format of Prometheus and as a page of the manual.

mod histogram;
mod otlp;
mod table;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use net::{Counted, Operator};

pub use histogram::{HISTOGRAMS, Histogram};
pub use otlp::{Times, otlp};
pub use table::{METRICS, WITHOUT_METRIC};

use crate::control::{InForce, Listener};

/// Prefix of all names.
const PREFIX: &str = "pondhawk_";

/// A metric: a figure, or several that a label tells apart.
#[derive(Debug, Clone, Copy)]
pub struct Metric {
    /// Name, without the prefix `pondhawk_`.
    pub name: &'static str,
    /// Whether the figures only grow.
    pub kind: Kind,
    /// Unit of the figures.
    pub unit: Unit,
    /// Name of the label.
    pub label: Option<&'static str>,
    /// The figures, each with its value of the label.
    pub samples: &'static [Sample],
    /// Meaning, as a sentence.
    pub help: &'static str,
}

/// A figure of a metric.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Value of the label. Empty without a label.
    pub value: &'static str,
    /// Topic of the figure below `$SYS/broker/`.
    pub topic: &'static str,
}

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The figures grow until the broker ends.
    Counter,
    /// The figures grow and shrink.
    Gauge,
}

/// The unit of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Items,
    /// A number of bytes.
    Bytes,
    /// A time in seconds.
    Seconds,
    /// Microseconds under `$SYS`, and seconds in the metric.
    Microseconds,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }
}

impl Unit {
    fn word(self) -> &'static str {
        match self {
            Self::Items => "number",
            Self::Bytes => "bytes",
            Self::Seconds | Self::Microseconds => "seconds",
        }
    }
}

/// All figures at one time, by their topics below `$SYS/broker/`.
#[derive(Debug, Default)]
pub struct Figures(HashMap<String, String>);

impl Figures {
    /// Adds the figure of a topic.
    pub fn add(&mut self, topic: &str, value: String) {
        self.0.insert(topic.to_owned(), value);
    }

    /// The number of a topic. `None` for a text, and for a topic that is not there.
    #[must_use]
    pub fn number(&self, topic: &str) -> Option<f64> {
        self.0.get(topic)?.parse().ok()
    }

    /// All figures that are numbers, in the order of their topics.
    #[must_use]
    pub fn numbers(&self) -> BTreeMap<&str, f64> {
        self.0.iter().filter_map(|(topic, value)| Some((&**topic, value.parse().ok()?))).collect()
    }
}

/// All figures of a running server that are totals or levels, but for those of its admin server.
#[must_use]
pub fn figures(operator: &Operator) -> Figures {
    let mut figures = Figures::default();
    operator.figures(&mut |topic, value| figures.add(topic, value));
    figures.add("uptime", operator.uptime().as_secs().to_string());
    figures
}

/// The figures of [`FAMILIES`], in their order.
#[must_use]
pub fn families(operator: &Operator, in_force: &InForce, version: &str) -> [Vec<Labelled>; FAMILIES.len()] {
    let one = Labelled { value: version.to_owned(), figure: 1.0 };
    let totals = operator.totals_by_shard();
    let shards = |figure: fn(&broker::Totals) -> u64| {
        let figures = totals.iter().enumerate();
        let label = |(shard, totals)| Labelled { value: format!("{shard}"), figure: figure(totals) as f64 };
        figures.map(label).collect()
    };
    let connections = in_force.listeners.iter().map(|listener| Labelled {
        value: listener.address.clone(),
        figure: listener.connections(operator) as f64,
    });
    let counted = by_listener(operator, in_force);
    let listeners = |figure: fn(&Counted) -> u64| {
        let figures = in_force.listeners.iter().zip(&counted);
        let label = |(listener, counted): (&Listener, &Counted)| Labelled {
            value: listener.address.clone(),
            figure: figure(counted) as f64,
        };
        figures.map(label).collect()
    };
    [
        vec![one],
        connections.collect(),
        listeners(|counted| counted.sockets),
        listeners(|counted| counted.refused_connections),
        listeners(|counted| counted.refused_connect),
        listeners(Counted::publish_received),
        listeners(Counted::publish_refused),
        listeners(Counted::publish_sent),
        listeners(Counted::lost),
        listeners(|counted| counted.bytes_received),
        listeners(|counted| counted.bytes_sent),
        shards(|totals| totals.clients_connected),
        shards(|totals| totals.publish_received),
        shards(|totals| totals.publish_sent),
        shards(|totals| totals.publish_dropped),
        shards(|totals| totals.bytes_received),
        shards(|totals| totals.bytes_sent),
    ]
}

/// The counts of each listener, in the order of the configuration.
fn by_listener(operator: &Operator, in_force: &InForce) -> Vec<Counted> {
    let mut counted = vec![Counted::default(); in_force.listeners.len()];
    for (party, counts) in operator.counted().0 {
        let is_its = |listener: &Listener| party.listener == Some(listener.counted_as);
        if let Some(place) = in_force.listeners.iter().position(is_its) {
            counted[place] += &counts;
        }
    }
    counted
}

/// A figure whose label is known while the broker runs only, such as the address of a listener.
#[derive(Debug, Clone)]
pub struct Labelled {
    /// Value of the label.
    pub value: String,
    /// The figure at this value.
    pub figure: f64,
}

/// A metric with a label whose values are known while the broker runs only.
#[derive(Debug)]
pub struct Family {
    /// Name, without the prefix.
    pub name: &'static str,
    /// Whether the figures only grow.
    pub kind: Kind,
    /// Unit of the figures.
    pub unit: Unit,
    /// Name of the label.
    pub label: &'static str,
    /// Meaning, as a sentence.
    pub help: &'static str,
}

const fn level(name: &'static str, label: &'static str, help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, unit: Unit::Items, label, help }
}

const fn of_shards(name: &'static str, unit: Unit, help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, unit, label: "shard", help }
}

const fn of_listeners(name: &'static str, unit: Unit, help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, unit, label: "listener", help }
}

/// Metrics with such labels.
pub const FAMILIES: [Family; 17] = [
    level("build_info", "version", "Always 1, with the version of the broker."),
    level("listener_connections", "listener", "Connections at a time, by the address of their listener."),
    of_listeners(
        "listener_connections_accepted_total",
        Unit::Items,
        "Connections that were accepted, by the address of their listener.",
    ),
    of_listeners(
        "listener_connections_refused_total",
        Unit::Items,
        "Connections that were closed before they could send anything, by the address of their listener.",
    ),
    of_listeners(
        "listener_connects_refused_total",
        Unit::Items,
        "CONNECT packets that were refused, by the address of their listener.",
    ),
    of_listeners(
        "listener_publish_received_total",
        Unit::Items,
        "PUBLISH packets that were read, by the listener of their publisher.",
    ),
    of_listeners(
        "listener_publish_refused_total",
        Unit::Items,
        "Of these: packets that were refused, by the listener of their publisher.",
    ),
    of_listeners(
        "listener_publish_sent_total",
        Unit::Items,
        "PUBLISH packets that were sent, by the listener of their receiver.",
    ),
    of_listeners(
        "listener_publish_lost_total",
        Unit::Items,
        "Messages that a connected receiver did not get, by its listener; without those of queues.",
    ),
    of_listeners(
        "listener_received_bytes_total",
        Unit::Bytes,
        "Bytes that were read from connections, by the address of their listener.",
    ),
    of_listeners(
        "listener_sent_bytes_total",
        Unit::Bytes,
        "Bytes that connections have taken, by the address of their listener.",
    ),
    level("shard_clients", "shard", "Clients that are connected, by shard."),
    of_shards(
        "shard_publish_received_total",
        Unit::Items,
        "PUBLISH packets that were read, by the shard of their publisher.",
    ),
    of_shards(
        "shard_publish_sent_total",
        Unit::Items,
        "PUBLISH packets that were sent, by the shard of their receiver.",
    ),
    of_shards(
        "shard_publish_dropped_total",
        Unit::Items,
        "Messages that a receiver did not get, by the shard that has dropped them.",
    ),
    of_shards("shard_received_bytes_total", Unit::Bytes, "Bytes that were read from connections, by shard."),
    of_shards("shard_sent_bytes_total", Unit::Bytes, "Bytes that connections have taken, by shard."),
];

/// Writes all metrics in the text format of Prometheus, version 0.0.4. Figures that are not there are left out.
#[must_use]
pub fn exposition(figures: &Figures, families: &[Vec<Labelled>; FAMILIES.len()]) -> String {
    let mut text = String::with_capacity(16 * 1024);
    for metric in METRICS {
        let found: Vec<_> = metric
            .samples
            .iter()
            .filter_map(|sample| Some((sample.value, figures.number(sample.topic)?)))
            .collect();
        if found.is_empty() {
            continue;
        }
        head(&mut text, metric.name, metric.kind, metric.help);
        for (value, figure) in found {
            let figure = if metric.unit == Unit::Microseconds { figure / 1e6 } else { figure };
            sample(&mut text, metric.name, metric.label.map(|label| (label, value)), figure);
        }
    }
    HISTOGRAMS.iter().for_each(|histogram| histogram.expose(figures, &mut text));
    for (family, samples) in FAMILIES.iter().zip(families) {
        if samples.is_empty() {
            continue;
        }
        head(&mut text, family.name, family.kind, family.help);
        for Labelled { value, figure } in samples {
            sample(&mut text, family.name, Some((family.label, value)), *figure);
        }
    }
    text
}

fn head(text: &mut String, name: &str, kind: Kind, help: &str) {
    let _ = writeln!(text, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {}", kind.word());
}

fn sample(text: &mut String, name: &str, label: Option<(&str, &str)>, figure: f64) {
    let _ = match label {
        Some((label, value)) => {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            writeln!(text, "{PREFIX}{name}{{{label}=\"{value}\"}} {figure}")
        }
        None => writeln!(text, "{PREFIX}{name} {figure}"),
    };
}

/// Returns the text of `docs/METRICS.md`.
#[must_use]
pub fn markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    for metric in METRICS {
        let _ = writeln!(
            page,
            "\n## `{PREFIX}{}`\n\n{} {}, {}.\n",
            metric.name,
            metric.help,
            if metric.kind == Kind::Counter { "Counter" } else { "Gauge" },
            metric.unit.word(),
        );
        match metric.label {
            None => {
                let _ = writeln!(page, "{}", place(metric.samples[0].topic));
            }
            Some(label) => {
                let _ = writeln!(page, "| `{label}` | topic | meaning |\n|---|---|---|");
                for sample in metric.samples {
                    let _ = writeln!(
                        page,
                        "| `{}` | {} | {} |",
                        sample.value,
                        place(sample.topic),
                        meaning(sample.topic)
                    );
                }
            }
        }
    }
    for Histogram { name, topic, help, .. } in HISTOGRAMS {
        let _ =
            writeln!(page, "\n## `{PREFIX}{name}`\n\n{help} Histogram, seconds.\n\n`$SYS/broker/{topic}/…`");
    }
    page.push_str(
        "\n## Figures with labels of the running broker\n\n| metric | label | kind | meaning |\n|---|---|---|---|\n",
    );
    for Family { name, label, kind, help, .. } in FAMILIES {
        let _ = writeln!(page, "| `{PREFIX}{name}` | `{label}` | {} | {help} |", kind.word());
    }
    page
}

/// The place of a figure besides `/metrics`. Figures of the admin server are no messages.
fn place(topic: &str) -> String {
    match topic.starts_with("admin/") {
        true => format!("`{topic}` of `/api/v1/counters`"),
        false => format!("`$SYS/broker/{topic}`"),
    }
}

/// The meaning of a topic, as the counter of the broker or of its ledger documents it.
fn meaning(topic: &str) -> String {
    let mut all = broker::Totals::DESCRIBED.iter().chain(protocol::Gauges::DESCRIBED);
    let text = all.find(|(known, _)| *known == topic).map_or("", |(_, text)| text);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text.trim_start_matches("Of those: ").replace('|', "\\|")
}

const INTRODUCTION: &str = "\
# Metrics

<!-- Generated from crates/admin/src/metrics/table.rs by `cargo xtask docs`. -->

`GET /metrics` of the [admin server](OPERATIONS.md) has all metrics below, in the text format of Prometheus. Most are also
retained messages under `$SYS/broker/`. Each counter begins at 0 when the broker starts.

[OPERATIONS.md](OPERATIONS.md#prometheus-and-grafana) describes how Prometheus gets them, and the board for Grafana that shows
them. [ALERTS.md](ALERTS.md) has the alerts.
";

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use base::Purpose;

    use super::*;

    fn topics() -> Vec<&'static str> {
        METRICS.iter().flat_map(|metric| metric.samples).map(|sample| sample.topic).collect()
    }

    #[test]
    fn every_figure_of_the_broker_is_in_the_table_once() {
        let in_table: HashSet<&str> = topics().into_iter().collect();
        assert_eq!(in_table.len(), topics().len(), "no topic is there twice");
        let counted = broker::Totals::DESCRIBED.iter().chain(protocol::Gauges::DESCRIBED);
        let memory: Vec<String> =
            Purpose::ALL.iter().map(|purpose| format!("memory/{}", purpose.topic())).collect();
        for topic in counted.map(|(topic, _)| *topic).chain(memory.iter().map(String::as_str)) {
            assert!(in_table.contains(topic), "{topic} has no metric");
        }
        for topic in WITHOUT_METRIC {
            assert!(!in_table.contains(topic), "{topic} has a metric");
        }
    }

    #[test]
    fn names_say_kind_and_unit() {
        let mut names = HashSet::new();
        for metric in METRICS {
            let name = metric.name;
            assert!(names.insert(name), "{name} is there twice");
            assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
            let base = name.trim_end_matches("_total");
            let unit = match metric.unit {
                Unit::Items => !base.ends_with("_bytes") && !base.ends_with("_seconds"),
                Unit::Bytes => base.ends_with("_bytes"),
                Unit::Seconds | Unit::Microseconds => base.ends_with("_seconds"),
            };
            assert!(unit, "{name} does not end with its unit");
            assert!(metric.help.ends_with('.'), "{name}");
            assert_eq!(
                metric.label.is_none(),
                metric.samples.len() == 1 && metric.samples[0].value.is_empty()
            );
        }
    }

    #[test]
    fn figures_are_written_with_their_labels() {
        let mut figures = Figures::default();
        figures.add("clients/connected", "3".to_owned());
        figures.add("dropped/slow", "7".to_owned());
        figures.add("journal/commit_us/sum", "1500000".to_owned());
        figures.add("journal/durability", "fsync".to_owned());
        let listener = Labelled { value: "a\"b".to_owned(), figure: 2.0 };
        let mut families = std::array::from_fn(|_| Vec::new());
        families[1].push(listener);
        let text = exposition(&figures, &families);
        for line in [
            "pondhawk_clients_connected 3",
            "# TYPE pondhawk_messages_dropped_total counter",
            "pondhawk_messages_dropped_total{reason=\"slow\"} 7",
            "pondhawk_journal_commit_seconds_total 1.5",
            "pondhawk_listener_connections{listener=\"a\\\"b\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
        assert_eq!(text.matches("# TYPE").count(), 5);
    }
}
