//! Subcommands about the broker as a whole.

use admin::{LEVELS, LOG_LEVELS};
use clap::Subcommand;
use serde_json::json;

use super::{Work, delete, get, list, post, put, records};
use crate::operate::client::encode;
use crate::operate::records as records_of;
use crate::operate::table;

/// Subcommands about the broker as a whole.
#[derive(Debug, Subcommand)]
pub(in crate::operate) enum BrokerCommand {
    /// Show whether everything is fine
    Status,
    /// Say whether clients are served, or what is missing; needs no token, and fails if anything is missing
    Ready,
    /// List the listeners with their connections and messages
    Listeners,
    /// List the certificates of the listeners, the first to expire first
    Certificates,
    /// Show figures whose topics below $SYS/broker/ have a text in them
    Counters {
        /// The text, such as `dropped`
        #[arg(default_value = "")]
        text: String,
    },
    /// Print the last lines of the log
    Log {
        /// Only lines with this text
        #[arg(value_name = "TEXT", default_value = "")]
        text: String,
        /// The least important level
        #[arg(long, default_value = "trace", value_parser = LEVELS)]
        level: String,
        /// The most lines to print
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Print the last changes that operators have asked for
    Audit {
        /// The most changes to print
        #[arg(long, default_value_t = 100)]
        limit: usize,
    },
    /// Show the level of the log, or change it until the next reload or the end of the process
    LogLevel {
        /// The level from now on
        #[arg(value_parser = LOG_LEVELS)]
        level: Option<String>,
    },
    /// Print the configuration in force, with the origin of each value
    Config,
    /// Read configuration, certificates, users and rules again, and print the outcome
    Reload,
    /// Copy the journal into a new directory below `backup_dir`, or show the last backup
    Backup {
        /// Name of the new directory
        name: Option<String>,
    },
    /// Refuse new clients, and disconnect those that are connected one after the other
    Drain {
        /// Another server for the clients
        #[arg(long, value_name = "HOST:PORT")]
        server_reference: Option<String>,
        /// Time in which the clients leave
        #[arg(short, long, value_name = "N", default_value_t = 60)]
        seconds: u64,
        /// End the broker when all clients have left
        #[arg(long)]
        exit: bool,
    },
    /// End draining: clients may connect again
    EndDrain,
}

impl BrokerCommand {
    pub(super) fn work(&self) -> Work<'_> {
        match self {
            Self::Status => get("/api/v1/status"),
            Self::Ready => Work::Ready,
            Self::Listeners => {
                list("/api/v1/listeners?".to_owned(), "listeners", table::LISTENERS, usize::MAX)
            }
            Self::Certificates => {
                list("/api/v1/certificates?".to_owned(), "certificates", table::CERTIFICATES, usize::MAX)
            }
            Self::Counters { text } => Work::Counters(text),
            Self::Log { text, level, limit } => {
                let path = format!("/api/v1/log?level={level}&match={}", encode(text));
                records(path, "lines", *limit, records_of::log)
            }
            Self::Audit { limit } => {
                records("/api/v1/audit?".to_owned(), "changes", *limit, records_of::audit)
            }
            Self::LogLevel { level: None } => get("/api/v1/log-level"),
            Self::LogLevel { level: Some(level) } => put("/api/v1/log-level", json!({ "level": level })),
            Self::Config => Work::Configuration,
            Self::Reload => Work::Reload,
            Self::Backup { name: None } => get("/api/v1/backup"),
            Self::Backup { name: Some(name) } => post("/api/v1/backup", Some(json!({ "name": name }))),
            Self::Drain { server_reference, seconds, exit } => {
                let body = json!({ "server_reference": server_reference, "seconds": seconds, "exit": exit });
                post("/api/v1/drain", Some(body))
            }
            Self::EndDrain => delete("/api/v1/drain".to_owned()),
        }
    }
}
