//! The sections of the board: which metrics stand together, and which figures are good.

use super::Look::{Graph, Now};
use super::Show::{PerEvent, Quantiles, Share};
use super::{Good, Panel, Section, graph, now};

/// All sections, from the first question of an operator to the last.
pub(super) const SECTIONS: &[Section] = &[
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
            Panel {
                title: "Time of a turn: median, 99 %, 99.9 %",
                look: Graph,
                show: Quantiles("turn_seconds"),
            },
            graph("Threads busy with clients", &["turns_seconds_total"]),
            graph("Longest turn since the start", &["turns_longest_seconds"]),
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
            graph(
                "New connections",
                &["sockets_accepted_total", "connects_received_total", "connects_accepted_total"],
            ),
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
                    "users_not_counted_total",
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
                &[
                    "queue_routed_total",
                    "queue_finished_total",
                    "queue_discarded_by_operator_total",
                    "queue_moved_by_operator_total",
                ],
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
                title: "Time of a write: median, 99 %, 99.9 %",
                look: Graph,
                show: Quantiles("journal_write_seconds"),
            },
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
        title: "What comes from which listener?",
        panels: &[
            graph("Connections accepted by listener", &["listener_connections_accepted_total"]),
            graph(
                "Connections and logins refused by listener",
                &["listener_connections_refused_total", "listener_connects_refused_total"],
            ),
            graph("Messages received by listener", &["listener_publish_received_total"]),
            graph("Messages sent by listener", &["listener_publish_sent_total"]),
            graph(
                "Messages refused or lost by listener",
                &["listener_publish_refused_total", "listener_publish_lost_total"],
            ),
            graph(
                "Bytes in and out by listener",
                &["listener_received_bytes_total", "listener_sent_bytes_total"],
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
            graph(
                "Requests of operators",
                &["admin_requests_total", "admin_refused_total", "admin_handshakes_delayed_total"],
            ),
            graph("Records of changes by operators", &["admin_audit_records_total", "admin_audit_failing"]),
            graph(
                "OpenTelemetry",
                &["otlp_requests_total", "otlp_lines_dropped_total", "otlp_spans_dropped_total"],
            ),
        ],
    },
];
