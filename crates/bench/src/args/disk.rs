//! The command lines of what is measured on a disk, in this process.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, value_parser};

use super::{fanout, seconds, sessions};
use crate::durable::Shape;

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct DurableArgs {
    /// Messages that are published at a time; several numbers make several columns. The ledger takes up to 1,000 in a turn
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16,64,256,1000", value_parser = value_parser!(u64).range(1..=65_536))]
    pub(crate) per_commit: Vec<u64>,
    /// Bytes of payload; several numbers make several rows
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_value = "100,1024", value_parser = value_parser!(u32).range(..=1_048_576))]
    payload: Vec<u32>,
    /// Sessions that each message goes to; several numbers make several rows
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,10", value_parser = fanout)]
    fanout: Vec<usize>,
    /// The journal alone: records are made already, and nobody asks later whether they are still true
    #[arg(long)]
    pub(crate) without_ledger: bool,
    /// Duration of each cell of the table, half of it for the yardstick; the longest commit needs 600
    #[arg(long = "seconds", value_name = "SECS", default_value = "3", value_parser = seconds)]
    pub(crate) duration: Duration,
    /// Directory in which a temporary directory is made and removed
    #[arg(long = "dir", value_name = "DIRECTORY", default_value = ".")]
    pub(crate) directory: PathBuf,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct RecoveryArgs {
    /// Messages that wait when the process ends; several numbers make several columns
    #[arg(long, value_name = "M", value_delimiter = ',', default_value = "1000000,5000000,10000000", value_parser = value_parser!(u64).range(1..))]
    pub(crate) messages: Vec<u64>,
    /// Sessions that they wait for, in turn
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = sessions)]
    pub(crate) sessions: usize,
    /// Payload of each message, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 100, value_parser = value_parser!(u32).range(..=1_048_576))]
    pub(crate) payload: u32,
    /// Directory in which a temporary directory is made and removed
    #[arg(long = "dir", value_name = "DIRECTORY", default_value = ".")]
    pub(crate) directory: PathBuf,
    /// Recovers the journal in this directory, drains it, and prints what that took
    #[arg(long, value_name = "DIRECTORY", hide = true)]
    pub(crate) recovers: Option<PathBuf>,
}

impl DurableArgs {
    /// The rows of each section.
    pub(crate) fn shapes(&self) -> Vec<Shape> {
        let each = |&fanout: &usize| self.payload.iter().map(move |&payload| Shape { payload, fanout });
        self.fanout.iter().flat_map(each).collect()
    }
}
