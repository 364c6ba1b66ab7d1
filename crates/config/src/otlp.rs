//! The keys of the table `[otlp]`: a collector of OpenTelemetry.

use std::path::PathBuf;
use std::time::Duration;

use crate::kind::{Count, OrOff, Path, Switch, Time};
use crate::reader::Reader;
use crate::report::Problem;
use crate::schema::keys;
use crate::services::is_elsewhere_and_plain;
use crate::url::{OfService, Url};

keys! {
    /// A collector of OpenTelemetry, to which the broker sends its metrics, its log and spans (OTLP over HTTP, in JSON). Without `url`
    /// nothing is sent. docs/OPERATIONS.md shows its use.
    pub struct Otlp = "[otlp]", applies Restart, given() {
        /// The URL of the collector, such as `http://127.0.0.1:4318`. `/v1/metrics`, `/v1/logs` and `/v1/traces` are added.
        url: Option<String> { kind: OrOff<Url<OfService>>, default: None }
        /// Whether metrics are sent: those that docs/METRICS.md lists, under the same names, but for those of the admin server.
        metrics: bool { kind: Switch, default: true }
        /// Whether the lines of the log are sent, down to `level` of `[log]`.
        logs: bool { kind: Switch, default: true }
        /// Whether a message has spans if its publisher asks for that: with a User Property `traceparent` that has the flag
        /// `sampled` (W3C Trace Context). Then its PUBLISH has a span, and so has each copy for a receiver.
        spans_by_property: bool { kind: Switch, default: false }
        /// One of this many messages has spans without being asked for, on average. `1` means all of them. A message whose
        /// publisher has decided otherwise with the flag `sampled` is not drawn.
        spans_one_of: Option<u32> { kind: OrOff<Count<u32>>, default: None, bounds: 1..=1_000_000_000 }
        /// The number of spans of one shard that wait for an acknowledgement, and of all shards that wait for the collector.
        /// Further ones are dropped, and counted.
        spans_max: u32 { kind: Count<u32>, default: 1_024, bounds: 1..=65_536 }
        /// The time between two sets of metrics.
        interval: Duration {
            kind: Time, default: Duration::from_secs(60),
            bounds: Duration::from_secs(1)..=Duration::from_secs(3_600),
        }
        /// The file with the value of the header `Authorization`, such as `Bearer 8f1c…`, in one line. It is read at the start.
        authorization_file: Option<PathBuf> { kind: OrOff<Path>, default: None }
        /// The file with the certificates of the authorities that may have signed the collector's, in PEM. Without this key they
        /// are those that the system trusts.
        ca_file: Option<PathBuf> { kind: OrOff<Path>, default: None }
        /// Whether the value of `authorization_file`, the log and spans may go to another machine without TLS. Everybody on the way can
        /// read them.
        plain_text: bool { kind: Switch, default: false }
        /// The time for a request and its answer. Then the request has failed, and is made again later.
        timeout: Duration {
            kind: Time, default: Duration::from_secs(10),
            bounds: Duration::from_millis(100)..=Duration::from_secs(60),
        }
    }
}

impl Otlp {
    /// Whether any message has spans.
    #[must_use]
    pub fn has_spans(&self) -> bool {
        self.spans_by_property || self.spans_one_of.is_some()
    }

    /// Reads the table, and refuses settings that have no effect, or send secrets to where everybody reads them.
    pub(crate) fn read_whole(table: &mut Reader<'_, '_>) -> Self {
        let read = Self::read(table);
        let others = [
            "metrics",
            "logs",
            "spans_by_property",
            "spans_one_of",
            "spans_max",
            "interval",
            "authorization_file",
            "ca_file",
            "plain_text",
            "timeout",
        ];
        table.refuse_without("url", &others);
        if read.url.as_ref().is_some_and(|url| url.contains('?')) {
            let problem = Problem::at(table.span_of("url"), "url of [otlp] has a query".to_owned());
            table.note(problem.advice(
                "leave `?` and what follows out: /v1/metrics, /v1/logs and /v1/traces are added to the URL",
            ));
        }
        let is_plain = read.url.as_deref().is_some_and(|url| is_elsewhere_and_plain(url, "http"));
        let is_secret = read.logs || read.has_spans() || read.authorization_file.is_some();
        if is_plain && !read.plain_text && is_secret {
            let title = "the log, spans or the authorization would go to another machine without TLS";
            let problem = Problem::at(table.span_of("url"), title.to_owned());
            table.note(problem.advice("use https://, or say `plain_text = true` in a network of your own"));
        }
        read
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Flags, Machine, Sources};

    fn parse(text: &str) -> Result<Config, String> {
        let machine = Machine { cores: 1, memory_bytes: 1 << 30, open_files: 1_024, state_dir: "/s".into() };
        Config::parse(&Sources::of("pond.toml", text), &Flags::default(), &machine)
            .map_err(|report| report.to_string())
    }

    #[test]
    fn the_log_goes_to_another_machine_over_tls_only() {
        for good in [
            "",
            "[otlp]\nurl = \"http://127.0.0.1:4318\"",
            "[otlp]\nurl = \"https://otel.example/x\"\ninterval = \"10 s\"",
            "[otlp]\nurl = \"http://otel.example:4318\"\nlogs = false",
            "[otlp]\nurl = \"http://otel.example:4318\"\nplain_text = true",
        ] {
            let config = parse(good).unwrap_or_else(|problem| panic!("{good}: {problem}"));
            let again = parse(&config.to_toml()).expect("what it writes");
            assert_eq!(again.otlp, config.otlp);
        }
        for (wrong, problem) in [
            ("[otlp]\nurl = \"http://otel.example:4318\"", "without TLS"),
            (
                "[otlp]\nurl = \"http://otel.example:4318\"\nlogs = false\nauthorization_file = \"/t\"",
                "without TLS",
            ),
            ("[otlp]\nurl = \"http://otel.example:4318\"\nlogs = false\nspans_one_of = 9", "without TLS"),
            ("[otlp]\nspans_by_property = true", "has no effect without `url`"),
            ("[otlp]\nurl = \"http://127.0.0.1:4318?x=1\"", "has a query"),
            ("[otlp]\nlogs = false", "has no effect without `url`"),
            ("[otlp]\nurl = \"grpc://otel.example:4317\"", "begins neither"),
        ] {
            let told = parse(wrong).expect_err(wrong);
            assert!(told.contains(problem), "{wrong}: {told}");
        }
    }
}
