//! The same metrics as OTLP has them, in JSON.

use serde_json::{Value, json};

use super::{FAMILIES, Figures, HISTOGRAMS, Kind, Labelled, METRICS, PREFIX, Unit};

/// The temporality of sums that grow until the broker ends.
pub(super) const CUMULATIVE: u8 = 2;

/// The times of a set of metrics, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// The start of the broker: counters began at 0 then, or shortly before.
    pub started: u128,
    /// The time of the figures.
    pub now: u128,
}

/// All metrics as a list of objects `Metric` of OTLP. Figures that are not there are left out. Names are those of Prometheus.
#[must_use]
pub fn otlp(figures: &Figures, families: &[Vec<Labelled>; FAMILIES.len()], times: Times) -> Vec<Value> {
    let point = |label: Option<(&str, &str)>, figure: f64| {
        let attributes: Vec<Value> = label
            .iter()
            .map(|(key, value)| json!({ "key": key, "value": { "stringValue": value } }))
            .collect();
        json!({
            "attributes": attributes,
            "startTimeUnixNano": times.started.to_string(),
            "timeUnixNano": times.now.to_string(),
            "asDouble": figure,
        })
    };
    let of_table = METRICS.iter().filter_map(|metric| {
        let points: Vec<Value> = metric
            .samples
            .iter()
            .filter_map(|sample| {
                let figure = figures.number(sample.topic)?;
                let figure = if metric.unit == Unit::Microseconds { figure / 1e6 } else { figure };
                Some(point(metric.label.map(|label| (label, sample.value)), figure))
            })
            .collect();
        (!points.is_empty()).then(|| describe(metric.name, metric.help, (metric.kind, metric.unit), &points))
    });
    let of_families = FAMILIES.iter().zip(families).filter(|(_, samples)| !samples.is_empty());
    let of_families = of_families.map(|(family, samples)| {
        let points: Vec<Value> =
            samples.iter().map(|one| point(Some((family.label, &one.value)), one.figure)).collect();
        describe(family.name, family.help, (family.kind, family.unit), &points)
    });
    let histograms = HISTOGRAMS.iter().filter_map(|histogram| histogram.otlp(figures, times));
    of_table.chain(histograms).chain(of_families).collect()
}

fn describe(name: &str, help: &str, (kind, unit): (Kind, Unit), points: &[Value]) -> Value {
    let mut metric = json!({ "name": format!("{PREFIX}{name}"), "description": help, "unit": unit.ucum() });
    match kind {
        Kind::Counter => {
            metric["sum"] =
                json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true });
        }
        Kind::Gauge => metric["gauge"] = json!({ "dataPoints": points }),
    }
    metric
}

impl Unit {
    /// The unit in the code of UCUM, which OpenTelemetry uses.
    fn ucum(self) -> &'static str {
        match self {
            Self::Items => "1",
            Self::Bytes => "By",
            Self::Seconds | Self::Microseconds => "s",
        }
    }
}

#[test]
fn counters_are_sums_and_gauges_are_gauges() {
    let mut figures = Figures::default();
    for (topic, value) in
        [("clients/connected", "3"), ("dropped/slow", "7"), ("journal/commit_us/sum", "1500000")]
    {
        figures.add(topic, value.to_owned());
    }
    let listener = Labelled { value: "127.0.0.1:1883".to_owned(), figure: 2.0 };
    let times = Times { started: 1_000, now: 2_000 };
    let mut families = std::array::from_fn(|_| Vec::new());
    families[1].push(listener);
    let all = otlp(&figures, &families, times);
    let find = |name: &str| all.iter().find(|metric| metric["name"] == name).expect("it is there");
    assert_eq!(all.len(), 5);
    let connected = find("pondhawk_clients_connected");
    assert_eq!(connected["gauge"]["dataPoints"][0]["asDouble"], 3.0);
    assert_eq!((&connected["unit"], &connected["sum"]), (&json!("1"), &Value::Null));
    let dropped = find("pondhawk_messages_dropped_total");
    assert_eq!(
        (&dropped["sum"]["isMonotonic"], &dropped["sum"]["aggregationTemporality"]),
        (&json!(true), &json!(2))
    );
    let point = &dropped["sum"]["dataPoints"][0];
    assert_eq!((&point["startTimeUnixNano"], &point["timeUnixNano"]), (&json!("1000"), &json!("2000")));
    assert_eq!(point["attributes"][0], json!({ "key": "reason", "value": { "stringValue": "slow" } }));
    let seconds = find("pondhawk_journal_commit_seconds_total");
    assert_eq!((&seconds["sum"]["dataPoints"][0]["asDouble"], &seconds["unit"]), (&json!(1.5), &json!("s")));
    assert_eq!(find("pondhawk_listener_connections")["gauge"]["dataPoints"][0]["asDouble"], 2.0);
}
