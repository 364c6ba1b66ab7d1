//! The log, on standard error.

use config::{Log, LogFormat, LogLevel};
use tracing::level_filters::LevelFilter;

/// Sends what the broker has to tell to standard error, as the configuration says.
pub(crate) fn start(log: &Log) {
    let level = match log.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let lines =
        tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    match log.format {
        LogFormat::Text => lines.with_ansi(crate::has_colour()).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}
