//! Distributions of times, as Prometheus and OTLP have histograms.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::otlp::CUMULATIVE;
use super::{Figures, PREFIX, Times};

/// A distribution of the times of one kind of work.
#[derive(Debug)]
pub struct Histogram {
    /// Name, without the prefix.
    pub name: &'static str,
    /// Topic of the figures below `$SYS/broker/`: the sum of all times is in `sum`, and the number of times of at most N
    /// microseconds is in `le/N`, for powers of two.
    pub topic: &'static str,
    /// The upper bounds of the shortest and the longest bucket, as powers of two in microseconds. Longer times are together.
    pub powers: (u32, u32),
    /// Meaning, as a sentence.
    pub help: &'static str,
}

/// The histograms that `/metrics` and a collector get.
pub const HISTOGRAMS: [Histogram; 2] = [
    Histogram {
        name: "journal_write_seconds",
        topic: "journal/commit_us",
        powers: (6, 22),
        help: "Times of the writes of the journal, with their syncs, from 64 microseconds to 4 seconds.",
    },
    Histogram {
        name: "turn_seconds",
        topic: "turns_us",
        powers: (3, 20),
        help: "Times of the turns in which threads serve clients, from 8 microseconds to 1 second. A packet waits for the turn \
               that is under way, and is served in the next one. What must be recorded first waits for the journal too.",
    },
];

/// A histogram at one time.
struct Reading {
    /// The upper bound of each bucket in seconds, and the number of times up to there.
    upto: Vec<(f64, f64)>,
    count: f64,
    sum_secs: f64,
}

impl Histogram {
    /// The histogram of these figures. `None` if they have none. A bucket in which nothing is has no figure.
    fn read(&self, figures: &Figures) -> Option<Reading> {
        let sum_secs = figures.number(&format!("{}/sum", self.topic))? / 1e6;
        let upto = |micros: u64| figures.number(&format!("{}/le/{micros}", self.topic));
        let all = (0..u64::BITS).filter_map(|power| Some((power, upto(1 << power)?)));
        let all: Vec<(u32, f64)> = all.collect();
        let up_to_power = |most: u32| {
            let below = all.iter().rev().find(|(power, _)| *power <= most);
            (f64::from(1_u32 << most) / 1e6, below.map_or(0.0, |(_, count)| *count))
        };
        let count = all.last().map_or(0.0, |(_, count)| *count);
        let (shortest, longest) = self.powers;
        Some(Reading { upto: (shortest..=longest).map(up_to_power).collect(), count, sum_secs })
    }

    /// Writes the histogram in the text format of Prometheus.
    pub(super) fn expose(&self, figures: &Figures, text: &mut String) {
        let Some(Reading { upto, count, sum_secs }) = self.read(figures) else { return };
        let (name, help) = (self.name, self.help);
        let _ = writeln!(text, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} histogram");
        for (bound, upto) in upto {
            let _ = writeln!(text, "{PREFIX}{name}_bucket{{le=\"{bound}\"}} {upto}");
        }
        let _ = writeln!(text, "{PREFIX}{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{PREFIX}{name}_sum {sum_secs}\n{PREFIX}{name}_count {count}");
    }

    /// The histogram as an object `Metric` of OTLP, whose buckets have the times of their own only.
    pub(super) fn otlp(&self, figures: &Figures, times: Times) -> Option<Value> {
        let Reading { upto, count, sum_secs } = self.read(figures)?;
        let bounds: Vec<f64> = upto.iter().map(|(bound, _)| *bound).collect();
        let ends = upto.iter().map(|(_, upto)| *upto).chain([count]);
        let own = ends.scan(0.0, |before, end| Some(format!("{}", end - std::mem::replace(before, end))));
        let point = json!({
            "startTimeUnixNano": times.started.to_string(),
            "timeUnixNano": times.now.to_string(),
            "count": format!("{count}"),
            "sum": sum_secs,
            "bucketCounts": own.collect::<Vec<String>>(),
            "explicitBounds": bounds,
        });
        Some(json!({
            "name": format!("{PREFIX}{}", self.name),
            "description": self.help,
            "unit": "s",
            "histogram": { "dataPoints": [point], "aggregationTemporality": CUMULATIVE },
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three times of at most 32 microseconds, two of at most 1,024, and one that is longer than all bounds.
    fn figures() -> Figures {
        let mut figures = Figures::default();
        for (topic, value) in [("sum", "9000000"), ("le/32", "3"), ("le/1024", "5"), ("le/8388608", "6")] {
            figures.add(&format!("journal/commit_us/{topic}"), value.to_owned());
        }
        figures
    }

    #[test]
    fn buckets_without_a_figure_have_that_of_the_one_before() {
        let mut text = String::new();
        HISTOGRAMS[0].expose(&figures(), &mut text);
        for line in [
            "# TYPE pondhawk_journal_write_seconds histogram",
            "pondhawk_journal_write_seconds_bucket{le=\"0.000064\"} 3",
            "pondhawk_journal_write_seconds_bucket{le=\"0.000512\"} 3",
            "pondhawk_journal_write_seconds_bucket{le=\"0.001024\"} 5",
            "pondhawk_journal_write_seconds_bucket{le=\"4.194304\"} 5",
            "pondhawk_journal_write_seconds_bucket{le=\"+Inf\"} 6",
            "pondhawk_journal_write_seconds_sum 9",
            "pondhawk_journal_write_seconds_count 6",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in {text}");
        }
        assert_eq!(text.lines().count(), 2 + 17 + 3);
        text.clear();
        HISTOGRAMS[0].expose(&Figures::default(), &mut text);
        assert_eq!(text, "");
    }

    #[test]
    fn buckets_of_otlp_have_their_own_times() {
        let times = Times { started: 1, now: 2 };
        let metric = HISTOGRAMS[0].otlp(&figures(), times).expect("there are figures");
        let point = &metric["histogram"]["dataPoints"][0];
        let counts: Vec<&str> =
            point["bucketCounts"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        assert_eq!((counts[0], counts[4], counts[counts.len() - 1]), ("3", "2", "1"));
        assert_eq!(counts.iter().filter(|count| **count != "0").count(), 3);
        // One more than bounds: the last bucket has none.
        assert_eq!(point["explicitBounds"].as_array().map(Vec::len), Some(counts.len() - 1));
        assert_eq!((&point["count"], &point["sum"]), (&json!("6"), &json!(9.0)));
    }
}
