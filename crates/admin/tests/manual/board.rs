//! The board for Grafana, with a panel for each metric of the table.

mod sections;

use pondhawk_admin::metrics::{FAMILIES, HISTOGRAMS, Kind, METRICS, Unit};
use sections::SECTIONS;
use serde_json::{Value, json};

use Look::{Graph, Now};
use Show::{Each, PerEvent, Quantiles, Share};

/// A part of the board that answers one question.
pub(crate) struct Section {
    title: &'static str,
    panels: &'static [Panel],
}

/// A panel. Unit, description and queries follow from the table of metrics.
struct Panel {
    title: &'static str,
    look: Look,
    show: Show,
}

/// The kind of a panel.
#[derive(Clone, Copy)]
enum Look {
    /// The last figures, with the colour of an alarm unless they are good.
    Now(Good),
    /// The figures over time.
    Graph,
}

/// The figures that are good.
#[derive(Clone, Copy)]
enum Good {
    /// No figure is an alarm.
    Any,
    /// Only 0 is.
    Zero,
    /// Only 1 is.
    One,
    /// A share is good below this number, in percent.
    BelowPercent(u8),
    /// A time is good from this number of seconds on.
    FromSeconds(u32),
}

/// The figures of a panel. Names are those of the table, without their prefix.
#[derive(Clone, Copy)]
enum Show {
    /// Levels as they are, and counters as rates.
    Each(&'static [&'static str]),
    /// The first metric as a share of the second.
    Share(&'static str, &'static str),
    /// The growth of the first metric for each step of the second.
    PerEvent(&'static str, &'static str),
    /// The median of a histogram, and the times that one in a hundred and one in a thousand exceed.
    Quantiles(&'static str),
}

const fn graph(title: &'static str, metrics: &'static [&'static str]) -> Panel {
    Panel { title, look: Graph, show: Each(metrics) }
}

const fn now(title: &'static str, good: Good, metrics: &'static [&'static str]) -> Panel {
    Panel { title, look: Now(good), show: Each(metrics) }
}

/// A metric of the table, or one with labels of the running broker.
struct Known {
    name: &'static str,
    kind: Kind,
    unit: Unit,
    label: Option<&'static str>,
    help: &'static str,
}

/// All metrics of the table.
fn known() -> impl Iterator<Item = Known> {
    let fixed = METRICS.iter().map(|metric| Known {
        name: metric.name,
        kind: metric.kind,
        unit: metric.unit,
        label: metric.label,
        help: metric.help,
    });
    let families = FAMILIES.iter().map(|family| Known {
        name: family.name,
        kind: family.kind,
        unit: family.unit,
        label: Some(family.label),
        help: family.help,
    });
    let histograms = HISTOGRAMS.iter().map(|histogram| Known {
        name: histogram.name,
        kind: Kind::Gauge,
        unit: Unit::Seconds,
        label: None,
        help: histogram.help,
    });
    fixed.chain(families).chain(histograms)
}

/// The names of all metrics.
pub(crate) fn names() -> Vec<&'static str> {
    known().map(|metric| metric.name).collect()
}

/// The names of the metrics in all panels.
pub(crate) fn shown() -> Vec<&'static str> {
    let panels = SECTIONS.iter().flat_map(|section| section.panels);
    panels.flat_map(|panel| panel.show.names()).collect()
}

fn metric(name: &str) -> Known {
    known().find(|metric| metric.name == name).unwrap_or_else(|| panic!("the table has no {name}"))
}

impl Known {
    /// The figures of the instances that are chosen.
    fn selector(&self) -> String {
        format!("pondhawk_{}{{instance=~\"$instance\"}}", self.name)
    }

    fn rate(&self) -> String {
        format!("rate({}[$__rate_interval])", self.selector())
    }

    fn query(&self) -> String {
        match self.kind {
            Kind::Counter => self.rate(),
            Kind::Gauge => self.selector(),
        }
    }

    /// The name of a series: its instance, then the metric in words if the panel has several, then the label.
    fn legend(&self, is_alone: bool) -> String {
        let words = self.name.trim_end_matches("_total").replace('_', " ");
        let words = if is_alone { String::new() } else { format!(" {words}") };
        let label = self.label.map_or(String::new(), |label| format!(" {{{{{label}}}}}"));
        format!("{{{{instance}}}}{words}{label}")
    }

    /// The unit as Grafana calls it.
    fn unit(&self) -> &'static str {
        match (self.unit, self.kind) {
            (Unit::Items, Kind::Gauge) => "short",
            (Unit::Items, Kind::Counter) => "cps",
            (Unit::Bytes, Kind::Gauge) => "bytes",
            (Unit::Bytes, Kind::Counter) => "binBps",
            (Unit::Seconds | Unit::Microseconds, Kind::Gauge) => "s",
            (Unit::Seconds | Unit::Microseconds, Kind::Counter) => "percentunit",
        }
    }
}

impl Show {
    fn names(self) -> Vec<&'static str> {
        match self {
            Each(names) => names.to_vec(),
            Share(part, whole) => vec![part, whole],
            PerEvent(sum, count) => vec![sum, count],
            Quantiles(name) => vec![name],
        }
    }

    /// Each query with the name of its series.
    fn queries(self) -> Vec<(String, String)> {
        let instance = "{{instance}}".to_owned();
        match self {
            Each(names) => names
                .iter()
                .map(|name| (metric(name).query(), metric(name).legend(names.len() == 1)))
                .collect(),
            Share(part, whole) => {
                vec![(format!("{} / {}", metric(part).selector(), metric(whole).selector()), instance)]
            }
            PerEvent(sum, count) => {
                vec![(format!("{} / {}", metric(sum).rate(), metric(count).rate()), instance)]
            }
            Quantiles(name) => {
                let buckets = metric(name).rate().replacen(name, &format!("{name}_bucket"), 1);
                let query = |share| format!("histogram_quantile({share}, sum by (instance, le) ({buckets}))");
                ["0.5", "0.99", "0.999"].map(|share| (query(share), format!("{instance} {share}"))).to_vec()
            }
        }
    }

    fn unit(self) -> &'static str {
        match self {
            // Of several metrics the first decides. Rates and levels in one panel have the unit of levels.
            Each(names) => {
                let units: Vec<&str> = names.iter().map(|name| metric(name).unit()).collect();
                if units.iter().all(|unit| *unit == units[0]) { units[0] } else { "short" }
            }
            Share(..) => "percentunit",
            Quantiles(name) => metric(name).unit(),
            PerEvent(sum, _) => match metric(sum).unit {
                Unit::Bytes => "bytes",
                Unit::Seconds | Unit::Microseconds => "s",
                Unit::Items => "short",
            },
        }
    }

    /// The meaning of each metric, as the table has it.
    fn description(self) -> String {
        let lines = self.names().into_iter().map(|name| format!("`pondhawk_{name}`: {}", metric(name).help));
        lines.collect::<Vec<_>>().join("\n\n")
    }
}

impl Good {
    /// Colours from these numbers on. The first has no number.
    fn steps(self) -> Vec<(Value, &'static str)> {
        match self {
            Self::Any => vec![(Value::Null, "text")],
            Self::Zero => vec![(Value::Null, "green"), (json!(1), "red")],
            Self::One => vec![(Value::Null, "red"), (json!(1), "green")],
            Self::BelowPercent(percent) => {
                vec![(Value::Null, "green"), (json!(f64::from(percent) / 100.0), "red")]
            }
            Self::FromSeconds(seconds) => vec![(Value::Null, "red"), (json!(seconds), "green")],
        }
    }
}

/// The data source that the variable of the board names.
fn source() -> Value {
    json!({ "type": "prometheus", "uid": "${datasource}" })
}

impl Panel {
    /// The panel at a place, as Grafana has it.
    fn json(&self, id: usize, place: &Value) -> Value {
        let targets: Vec<Value> = ('A'..='Z')
            .zip(self.show.queries())
            .map(|(name, (expr, legend))| {
                json!({ "refId": name, "datasource": source(), "expr": expr, "legendFormat": legend })
            })
            .collect();
        let steps = match self.look {
            Now(good) => good.steps(),
            Graph => Good::Any.steps(),
        };
        let steps: Vec<Value> =
            steps.into_iter().map(|(value, color)| json!({ "value": value, "color": color })).collect();
        let (kind, options) = match self.look {
            Now(_) => {
                // A label such as the version is the name of its series, and has no figure of interest.
                let text = if matches!(self.show, Each(["build_info"])) { "name" } else { "auto" };
                (
                    "stat",
                    json!({ "reduceOptions": { "calcs": ["lastNotNull"] }, "colorMode": "background", "textMode": text }),
                )
            }
            Graph => (
                "timeseries",
                json!({ "legend": { "displayMode": "list", "placement": "bottom" }, "tooltip": { "mode": "multi", "sort": "desc" } }),
            ),
        };
        let defaults =
            json!({ "unit": self.show.unit(), "thresholds": { "mode": "absolute", "steps": steps } });
        json!({
            "id": id,
            "type": kind,
            "title": self.title,
            "description": self.show.description(),
            "datasource": source(),
            "gridPos": place,
            "targets": targets,
            "options": options,
            "fieldConfig": { "defaults": defaults, "overrides": [] },
        })
    }

    /// Width and height in the grid of 24 columns.
    fn size(&self) -> (u16, u16) {
        match self.look {
            Now(_) => (6, 4),
            Graph => (8, 8),
        }
    }
}

/// All panels with the titles of their sections, from left to right and from top to bottom.
fn panels() -> Vec<Value> {
    let mut panels = Vec::new();
    let mut y = 0;
    for Section { title, panels: of_section } in SECTIONS {
        let place = json!({ "x": 0, "y": y, "w": 24, "h": 1 });
        let id = panels.len() + 1;
        panels.push(json!({ "id": id, "type": "row", "title": title, "collapsed": false, "gridPos": place, "panels": [] }));
        y += 1;
        let (mut x, mut height) = (0, 0);
        for panel in *of_section {
            let (width, own_height) = panel.size();
            if x + width > 24 {
                (x, y) = (0, y + height);
            }
            height = own_height;
            let place = json!({ "x": x, "y": y, "w": width, "h": height });
            panels.push(panel.json(panels.len() + 1, &place));
            x += width;
        }
        y += height;
    }
    panels
}

/// Returns the text of the board.
pub(crate) fn board() -> String {
    let instances = format!(
        "label_values({}, instance)",
        metric("uptime_seconds").selector().split('{').next().unwrap_or_default()
    );
    let variables = json!([
        { "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus" },
        {
            "name": "instance", "label": "Broker", "type": "query", "datasource": source(),
            "query": { "query": instances, "refId": "instances" }, "definition": instances,
            "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
            "current": { "text": "All", "value": "$__all" },
        },
    ]);
    let board = json!({
        "uid": "pondhawk",
        "title": "Pondhawk",
        "description": "Generated from the table of metrics by `cargo xtask docs`.",
        "tags": ["mqtt", "pondhawk"],
        "schemaVersion": 38,
        "editable": true,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": { "from": "now-1h", "to": "now" },
        "templating": { "list": variables },
        "panels": panels(),
    });
    format!("{board:#}\n")
}
