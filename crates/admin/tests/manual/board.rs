//! The board for Grafana, with a panel for each metric of the table.

use pondhawk_admin::metrics::{FAMILIES, Kind, METRICS, Unit};
use serde_json::{Value, json};

use Look::{Graph, Now};
use Show::{Each, PerEvent, Share};

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
}

const fn graph(title: &'static str, metrics: &'static [&'static str]) -> Panel {
    Panel { title, look: Graph, show: Each(metrics) }
}

const fn now(title: &'static str, good: Good, metrics: &'static [&'static str]) -> Panel {
    Panel { title, look: Now(good), show: Each(metrics) }
}

/// All sections, from the first question of an operator to the last.
pub(crate) const SECTIONS: &[Section] = &[
    Section {
        title: "Is everything fine?",
        panels: &[
            now("Clients are served", Good::One, &["ready"]),
            now(
                "Journal failed, without space, or damaged",
                Good::Zero,
                &["journal_failed", "journal_no_space", "journal_damaged"],
            ),
            Panel {
                title: "Memory in use",
                look: Now(Good::BelowPercent(80)),
                show: Share("memory_used_bytes", "memory_limit_bytes"),
            },
            Panel {
                title: "Journal in use",
                look: Now(Good::BelowPercent(30)),
                show: Share("journal_live_bytes", "journal_limit_bytes"),
            },
            now("First certificate expires in", Good::FromSeconds(7 * 86_400), &["certificate_left_seconds"]),
            now("Time since the start", Good::Any, &["uptime_seconds"]),
            now("Version", Good::Any, &["build_info"]),
        ],
    },
    Section {
        title: "How much comes in and goes out?",
        panels: &[
            graph("Messages in and out", &["publish_received_total", "publish_sent_total"]),
            graph("Bytes in and out", &["received_bytes_total", "sent_bytes_total"]),
            graph(
                "Payloads in and out",
                &["publish_received_payload_bytes_total", "publish_sent_payload_bytes_total"],
            ),
            graph("Control packets in and out", &["packets_received_total", "packets_sent_total"]),
            graph("Messages without a subscriber", &["publish_without_subscriber_total"]),
            graph("Messages to connected receivers", &["live_routed_total", "live_finished_total"]),
        ],
    },
    Section {
        title: "Who is connected?",
        panels: &[
            graph(
                "Clients and lasting sessions",
                &["clients_connected", "clients_disconnected", "sessions", "sessions_connected"],
            ),
            graph("Connections of listeners", &["listener_connections"]),
            graph("New connections", &["sockets_accepted_total", "connects_received_total"]),
            graph("Connections that the broker has ended", &["connections_ended_total"]),
            graph("Sessions that ended without a request", &["sessions_ended_total"]),
            graph(
                "Subscriptions",
                &["subscriptions", "subscription_filters", "subscription_shapes", "shared_subscriptions"],
            ),
            graph("Wills", &["wills_pending", "wills_total"]),
            graph("QUIC", &["quic_retries_total", "quic_dropped_total"]),
        ],
    },
    Section {
        title: "What is dropped or refused, and why?",
        panels: &[
            graph("Messages dropped", &["messages_dropped_total", "publish_dropped_total"]),
            graph("Messages refused", &["publish_refused_total", "publish_refused_by_reason_total"]),
            graph("Connections refused before CONNECT", &["connections_refused_total"]),
            graph("Logins refused", &["connects_refused_total", "connects_refused_by_reason_total"]),
            graph("Forbidden by rules", &["not_authorized_total"]),
            graph(
                "Limits reached",
                &[
                    "sessions_refused_total",
                    "subscriptions_refused_total",
                    "retained_refused_total",
                    "accept_pauses_total",
                ],
            ),
        ],
    },
    Section {
        title: "What waits in queues?",
        panels: &[
            graph("Messages of lasting sessions and groups", &["queue_pending"]),
            graph("Bytes of messages that wait", &["queue_bytes"]),
            graph(
                "Into queues, and out of them",
                &["queue_routed_total", "queue_finished_total", "queue_discarded_by_operator_total"],
            ),
            graph("Messages of other sessions", &["live_pending"]),
            graph(
                "Publishers that have to wait",
                &["held_total", "publishers_paused_total", "publishers_paced_total"],
            ),
            graph("Subscribers found to be slow", &["slow_subscribers_total"]),
        ],
    },
    Section {
        title: "What takes memory?",
        panels: &[
            graph("Memory by purpose", &["memory_bytes"]),
            graph("Memory in use, and its limit", &["memory_used_bytes", "memory_limit_bytes"]),
            graph("Retained messages", &["retained_messages", "retained_unrecorded"]),
            graph("Memory of retained messages", &["retained_bytes", "retained_over_limit_bytes"]),
            graph("Retained messages that expired", &["retained_expired_total"]),
        ],
    },
    Section {
        title: "Is the disk fast enough, and is there space?",
        panels: &[
            Panel {
                title: "Average time of a write",
                look: Graph,
                show: PerEvent("journal_commit_seconds_total", "journal_commits_total"),
            },
            graph("Longest write since the start", &["journal_commit_longest_seconds"]),
            graph(
                "Writes and syncs",
                &["journal_commits_total", "journal_groups_total", "journal_syncs_total"],
            ),
            graph(
                "Bytes written, and copied to free space",
                &["journal_written_bytes_total", "journal_copied_bytes_total"],
            ),
            graph("Share of time with a write under way", &["journal_commit_seconds_total"]),
            graph("Bytes that wait to be written", &["journal_pending_bytes"]),
            graph("Space", &["journal_live_bytes", "journal_bytes", "journal_limit_bytes"]),
            graph(
                "Segments",
                &["journal_segments", "journal_spare_segments", "journal_segments_beyond_limit"],
            ),
            graph(
                "Segments used again, messages read back, records refused",
                &[
                    "journal_recycled_segments_total",
                    "journal_messages_read_back_total",
                    "records_refused_total",
                ],
            ),
        ],
    },
    Section {
        title: "Do the shards share the work?",
        panels: &[
            graph("Clients by shard", &["shard_clients"]),
            graph("Messages received by shard", &["shard_publish_received_total"]),
            graph("Messages sent by shard", &["shard_publish_sent_total"]),
            graph("Messages dropped by shard", &["shard_publish_dropped_total"]),
            graph("Bytes received by shard", &["shard_received_bytes_total"]),
            graph("Bytes sent by shard", &["shard_sent_bytes_total"]),
        ],
    },
    Section {
        title: "Are certificates, users and the configuration current?",
        panels: &[
            graph("Certificates", &["certificates"]),
            graph("Automatic certificates", &["acme_attempts_total", "acme_failures_in_a_row"]),
            graph(
                "Changed files that were read again, or refused",
                &["files_read_again_total", "files_refused_total"],
            ),
            graph("Users, and keys of tokens", &["users", "token_keys"]),
            graph("Questions to services elsewhere", &["user_questions_total", "token_key_requests_total"]),
            graph("Requests of operators", &["admin_requests_total", "admin_refused_total"]),
            graph("OpenTelemetry", &["otlp_requests_total", "otlp_lines_dropped_total"]),
        ],
    },
];

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
    fixed.chain(families)
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
