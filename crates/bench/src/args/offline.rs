//! The command line of messages for those who are away.

use std::time::Duration;

use clap::{Args, value_parser};

use super::{ComparisonArgs, fanout, seconds, sessions};
use crate::load::OfflineTest;
use crate::message::STAMP_LEN;

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct OfflineArgs {
    /// Sessions that each message goes to; several numbers make several columns
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,10", value_parser = fanout)]
    fanout: Vec<usize>,
    /// Number of sessions
    #[arg(long, value_name = "S", default_value_t = 1_000, value_parser = sessions)]
    sessions: usize,
    /// Publishers; each has topics of its own and goes over them in turn
    #[arg(long, value_name = "P", default_value_t = 100, value_parser = sessions)]
    publishers: usize,
    /// Seconds that they publish
    #[arg(long, value_name = "SECS", default_value = "60", value_parser = seconds)]
    duration: Duration,
    /// Messages of a publisher that may be unacknowledged
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u16).range(1..))]
    window: u16,
    /// Bytes of payload; the first 16 say which message it is
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = value_parser!(u32).range(STAMP_LEN as i64..=1_048_576))]
    payload: u32,
    #[command(flatten)]
    pub(crate) comparison: ComparisonArgs,
}

impl OfflineArgs {
    /// The test that is asked for.
    pub(crate) fn test(&self) -> OfflineTest {
        OfflineTest {
            fanouts: self.fanout.clone(),
            sessions: self.sessions,
            publishers: self.publishers,
            duration: self.duration,
            window: self.window,
            payload_len: self.payload as usize,
            version: self.comparison.version,
        }
    }
}
