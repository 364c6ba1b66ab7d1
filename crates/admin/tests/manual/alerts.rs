//! The table of alert rules for Prometheus: the shipped file of rules and `docs/ALERTS.md` follow from it.

use std::fmt::Write as _;

/// A rule for an alert, with its texts.
pub(crate) struct Alert {
    /// Name of the rule, as receivers of alerts see it.
    pub(crate) name: &'static str,
    pub(crate) severity: Severity,
    /// Time for which the condition has to be true. `0s` fires at the first evaluation.
    pub(crate) hold: &'static str,
    /// The condition in PromQL.
    pub(crate) expr: &'static str,
    /// The problem, as a sentence without its full stop.
    pub(crate) summary: &'static str,
    /// The reason, and what to do. Names a command in backticks.
    pub(crate) action: &'static str,
}

/// The urgency of an alert.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Clients are not served, or data is in danger: somebody has to look now.
    Critical,
    /// Something is lost or refused, or will be: somebody has to look on the same day.
    Warning,
}

impl Severity {
    fn word(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
        }
    }
}

const fn critical(
    name: &'static str,
    hold: &'static str,
    expr: &'static str,
    (summary, action): (&'static str, &'static str),
) -> Alert {
    Alert { name, severity: Severity::Critical, hold, expr, summary, action }
}

const fn warning(
    name: &'static str,
    hold: &'static str,
    expr: &'static str,
    (summary, action): (&'static str, &'static str),
) -> Alert {
    Alert { name, severity: Severity::Warning, hold, expr, summary, action }
}

/// All alerts, the most urgent first.
pub(crate) const ALERTS: &[Alert] = &[
    critical(
        "PondhawkDown",
        "1m",
        r#"up{job="pondhawk"} == 0"#,
        (
            "The broker does not answer Prometheus",
            "The process has ended, hangs, or refuses the token. `systemctl status pondhawk` shows whether the process \
             runs, and `journalctl -u pondhawk` its last lines. A request without a token, \
             `curl http://127.0.0.1:9883/healthz` on its machine, tells a dead process from a wrong token.",
        ),
    ),
    critical(
        "PondhawkNotReady",
        "3m",
        "pondhawk_ready == 0",
        (
            "Clients are not served",
            "A thread does not answer, memory or disk is short, the journal has failed, or an operator drains the \
             broker. `pondhawk ctl status` names what is missing.",
        ),
    ),
    critical(
        "PondhawkJournalFailed",
        "0s",
        "pondhawk_journal_failed > 0",
        (
            "A write to the journal has failed, and nothing is stored any more",
            "The disk is broken or was removed. `journalctl -u pondhawk` has the error of the system. Repair the disk, \
             and restart the broker.",
        ),
    ),
    critical(
        "PondhawkJournalDamaged",
        "0s",
        "pondhawk_journal_damaged > 0",
        (
            "Damage was found in the journal",
            "Some queues stand still, and no disk space is freed. Stop the broker soon, and look with \
             `pondhawk journal check`.",
        ),
    ),
    critical(
        "PondhawkJournalNoSpace",
        "1m",
        "pondhawk_journal_no_space > 0",
        (
            "The journal has no space, and messages that must be stored are refused",
            "Free disk space, raise `disk_bytes` of `[journal]`, or discard messages that nobody needs. \
             `pondhawk ctl clients --disconnected` lists sessions whose messages wait.",
        ),
    ),
    warning(
        "PondhawkJournalNearlyFull",
        "10m",
        "pondhawk_journal_live_bytes / pondhawk_journal_limit_bytes > 0.3",
        (
            "Records that are still needed take more than 30 % of the space of the journal",
            "The journal needs free space to clean its segments. From five eighths on, new messages are refused, and in a \
             journal of few segments earlier. `pondhawk ctl clients --disconnected` lists sessions whose messages wait, and \
             `pondhawk ctl counters journal` shows the space.",
        ),
    ),
    warning(
        "PondhawkJournalSlow",
        "5m",
        "rate(pondhawk_journal_commit_seconds_total[5m]) / rate(pondhawk_journal_commits_total[5m]) > 0.1",
        (
            "A write of the journal takes more than 0.1 seconds on average",
            "Clients that wait for stored messages are slow. Another program may use the same disk, or the disk is \
             about to fail. `pondhawk ctl counters journal/commit_us` shows how many writes took how long.",
        ),
    ),
    warning(
        "PondhawkMemoryShort",
        "5m",
        "pondhawk_memory_used_bytes / pondhawk_memory_limit_bytes > 0.8",
        (
            "Clients use more than 80 % of the memory that they may",
            "From 87 % on, the broker refuses work that needs more memory. `pondhawk ctl counters memory` shows what uses \
             it, and `pondhawk ctl clients --state slow` the clients for which much waits.",
        ),
    ),
    warning(
        "PondhawkMessagesDropped",
        "0s",
        r#"sum by (job, instance, reason) (rate(pondhawk_messages_dropped_total{reason=~"queue_full|slow|budget|too_large|topic"}[5m])) > 0"#,
        (
            "Messages do not reach a connected receiver",
            "The label `reason` says why, and `pondhawk ctl counters dropped` shows all reasons. \
             `pondhawk ctl clients --state slow` lists receivers that read too slowly.",
        ),
    ),
    warning(
        "PondhawkQueueOverflows",
        "0s",
        r#"sum by (job, instance, outcome) (rate(pondhawk_queue_finished_total{outcome=~"dropped_oldest|dropped_newest"}[5m])) > 0"#,
        (
            "A full queue drops messages",
            "A client with a lasting session is away for too long, or is too slow. `pondhawk ctl clients \
             --disconnected` and `pondhawk ctl clients --state full` list the candidates with their queues.",
        ),
    ),
    warning(
        "PondhawkQueueRefuses",
        "0s",
        "sum by (job, instance, reason) (rate(pondhawk_publish_refused_by_reason_total[5m])) > 0",
        (
            "Messages are refused, because a receiver has no room for them",
            "The publisher gets an error, and nobody gets the message. \
             `pondhawk ctl counters refused` tells a full queue from short memory.",
        ),
    ),
    warning(
        "PondhawkSessionsEnded",
        "0s",
        r#"rate(pondhawk_sessions_ended_total{reason="queue_full"}[5m]) > 0"#,
        (
            "A session has ended with its messages, because its queue was full",
            "Raise `queue_messages` of `[sessions]`, or choose another `queue_full`. The log names the client in a line \
             with `a full queue`. `pondhawk ctl counters sessions` counts such sessions.",
        ),
    ),
    warning(
        "PondhawkConnectionsRefused",
        "0s",
        r#"sum by (job, instance, reason) (rate(pondhawk_connections_refused_total{reason=~"connections_max|listener_connections|memory|connection_rate|quic_handshakes"}[5m])) > 0"#,
        (
            "Connections are refused, because a limit is reached",
            "`pondhawk ctl listeners` shows the connections of each listener, and `pondhawk ctl busiest connects` who \
             connects again and again. Raise the limit that `reason` names, or ban the source.",
        ),
    ),
    warning(
        "PondhawkDescriptorsExhausted",
        "0s",
        "rate(pondhawk_accept_pauses_total[5m]) > 0",
        (
            "The process has no free file descriptor for a new connection",
            "Raise `LimitNOFILE` of the service (`systemctl edit pondhawk`), or lower `connections` of `[limits]`.",
        ),
    ),
    warning(
        "PondhawkLimitReached",
        "0s",
        "sum by (job, instance) (rate(pondhawk_sessions_refused_total[5m])) \
         + sum by (job, instance) (rate(pondhawk_subscriptions_refused_total[5m])) \
         + sum by (job, instance) (rate(pondhawk_retained_refused_total[5m])) > 0",
        (
            "A session, a subscription or a retained message is refused, because a limit is reached",
            "`pondhawk ctl counters refused` shows which limit, and the manual names its key in `[limits]` or \
             `[sessions]`. Raise it, or find the client with `pondhawk ctl clients`.",
        ),
    ),
    warning(
        "PondhawkWrongPasswords",
        "0s",
        r#"sum by (job, instance) (rate(pondhawk_connects_refused_by_reason_total{reason=~"password|guessing|authentication|token_algorithm|token_claims|token_expired|token_key|token_malformed|token_signature|token_user"}[5m])) > 1"#,
        (
            "More than one login fails in each second",
            "Somebody guesses passwords, or many devices have an old one. `pondhawk ctl busiest refusals` lists the \
             addresses. `pondhawk ctl ban address ADDRESS` keeps one of them out.",
        ),
    ),
    warning(
        "PondhawkLoginsUnchecked",
        "0s",
        r#"sum by (job, instance, reason) (rate(pondhawk_connects_refused_by_reason_total{reason=~"unreachable|verify_busy|token_no_keys"}[5m])) > 0"#,
        (
            "Clients are refused, because nobody could check their passwords or tokens",
            "The service of `[http_auth]` or `[ldap]` does not answer, keys for tokens are missing, or there are \
             too many checks at once. `pondhawk ctl counters refused` shows which, and the log has the error of the service.",
        ),
    ),
    warning(
        "PondhawkAdminGuessing",
        "0s",
        r#"sum by (job, instance) (rate(pondhawk_admin_refused_total{reason=~"token|guessing"}[5m])) > 0.2"#,
        (
            "The admin server gets requests with wrong tokens",
            "A program has an old token, or somebody tries to guess one. The log has the addresses in lines with \
             `wrong token`, and `pondhawk ctl counters admin` counts the requests.",
        ),
    ),
    warning(
        "PondhawkAuditFails",
        "0s",
        "pondhawk_admin_audit_failing > 0",
        (
            "Records of changes by operators are not written",
            "The disk of `audit_file` is full or broken, or the file may not be written. The log has the reason, and each \
             record too. `pondhawk ctl status` shows the warning until a record is written again.",
        ),
    ),
    warning(
        "PondhawkCertificateExpires",
        "0s",
        "pondhawk_certificate_left_seconds < 7 * 86400",
        (
            "A certificate of a listener expires within seven days, or has expired",
            "Renew the file, and the broker reads it again by itself. `pondhawk ctl certificates` lists the files with \
             their ends.",
        ),
    ),
    warning(
        "PondhawkAcmeFails",
        "1h",
        "pondhawk_acme_failures_in_a_row > 0",
        (
            "A certificate cannot be renewed automatically",
            "The log has the answer of the authority. `pondhawk ctl counters acme` counts the attempts.",
        ),
    ),
    warning(
        "PondhawkFileRefused",
        "0s",
        "sum by (job, instance, of) (increase(pondhawk_files_refused_total[1h])) > 0",
        (
            "A changed file had a mistake in the last hour, and was refused",
            "The log has the mistake with its line. `pondhawk check FILE` shows mistakes of the configuration FILE and of the \
             files that it names.",
        ),
    ),
    warning(
        "PondhawkTakeovers",
        "10m",
        r#"rate(pondhawk_connections_ended_total{reason="taken_over"}[5m]) > 0.1"#,
        (
            "Clients end the connections of others with the same client identifier",
            "Two devices probably have one identifier, and disconnect each other without end. \
             `pondhawk ctl busiest connects` shows the identifier at its top.",
        ),
    ),
    warning(
        "PondhawkBadPackets",
        "5m",
        r#"sum by (job, instance, reason) (rate(pondhawk_connections_ended_total{reason=~"malformed|protocol_error|layer"}[5m])) > 1"#,
        (
            "More than one connection in each second ends because of bytes that no client may send",
            "A client library is broken, or somebody scans the port. The log has the address and the rule, and \
             `pondhawk ctl ban address ADDRESS` keeps one out.",
        ),
    ),
    warning(
        "PondhawkExporterFails",
        "10m",
        r#"rate(pondhawk_otlp_requests_total{outcome="failed"}[5m]) > 0"#,
        (
            "The collector of OpenTelemetry does not take the metrics or the log",
            "The log has the reason in a line with `the collector`. `pondhawk ctl counters otlp` counts the requests.",
        ),
    ),
    warning(
        "PondhawkRestarts",
        "0s",
        "resets(pondhawk_uptime_seconds[15m]) > 2",
        (
            "The broker has started more than twice in 15 minutes",
            "`journalctl -u pondhawk` has the reason why the process has ended, and `pondhawk check FILE` finds mistakes of the \
             configuration FILE.",
        ),
    ),
];

/// The page about alerts in the repository of the project.
const PAGE: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/ALERTS.md");

/// Returns the text of the file of rules.
pub(crate) fn rules() -> String {
    let mut text = String::from(
        "# Alert rules for Prometheus. Generated from crates/admin/tests/manual/alerts.rs by `cargo xtask docs`.\n\
         # The name of the scrape job has to be `pondhawk`.\n\
         groups:\n  - name: pondhawk\n    rules:\n",
    );
    for Alert { name, severity, hold, expr, summary, action } in ALERTS {
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let description = quoted(&action.replace('`', "'"));
        let summary = quoted(&format!("{summary} ({{{{ $labels.instance }}}})"));
        let place = format!("{PAGE}#{}", name.to_lowercase());
        let _ = write!(
            text,
            "      - alert: {name}\n        expr: {}\n        for: {hold}\n        labels:\n          severity: {}\n        \
             annotations:\n          summary: {summary}\n          description: {description}\n          \
             runbook_url: {place}\n",
            quoted(expr),
            severity.word(),
        );
    }
    text
}

/// Returns the text of `docs/ALERTS.md`.
pub(crate) fn page() -> String {
    let mut text = String::from(INTRODUCTION);
    for Alert { name, severity, hold, expr, summary, action } in ALERTS {
        let when = match *hold {
            "0s" => "at once".to_owned(),
            hold => format!("after {hold}"),
        };
        let _ = write!(text, "\n## {name}\n\n{summary}: {}, {when}.\n\n", severity.word());
        let _ = write!(text, "```\n{expr}\n```\n\n{}\n", wrapped(action));
    }
    text
}

/// The text in lines of at most [`COLUMNS`].
fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is one from the beginning");
        if last.is_empty() {
            last.push_str(word);
        } else if last.len() + 1 + word.len() <= COLUMNS {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.join("\n")
}

/// Width of the pages of the manual.
const COLUMNS: usize = 128;

const INTRODUCTION: &str = "\
# Alerts

<!-- Generated from crates/admin/tests/manual/alerts.rs by `cargo xtask docs`. -->

[`pondhawk.rules.yml`](../packaging/prometheus/pondhawk.rules.yml) has these rules for Prometheus, and
[OPERATIONS.md](OPERATIONS.md#prometheus-and-grafana) the way to load them. Add `-c FILE` with your configuration to each
command that begins with `pondhawk ctl`. Change the limits and times in your copy of the file as you like.
";
