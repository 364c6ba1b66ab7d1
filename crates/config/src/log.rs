//! The words of the table `[log]`.

use std::path::PathBuf;

use crate::kind::Words;

/// A place to which lines of the log go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogTarget {
    /// Standard error of the process.
    Stderr,
    /// Standard output of the process.
    Stdout,
    /// The log of the system.
    Syslog,
    /// No place: the line is dropped.
    Off,
    /// A file, to which lines are added.
    File(PathBuf),
}

/// The importance of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// No line is important enough.
    Off,
    /// The broker cannot perform one of its duties.
    Error,
    /// An operator should look at the cause.
    Warn,
    /// Connects, refusals and disconnects of clients, and start and stop of the broker.
    Info,
    /// The subscriptions of clients.
    Debug,
    /// Every line that the broker can write.
    Trace,
}

impl Words for LogLevel {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("off", Self::Off),
        ("error", Self::Error),
        ("warn", Self::Warn),
        ("info", Self::Info),
        ("debug", Self::Debug),
        ("trace", Self::Trace),
    ];
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

impl Words for LogFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}
