//! The command lines of tests whose clients need no other client: several brokers can share these clients.

use clap::{Args, value_parser};

use super::{ComparisonArgs, PayloadArgs, QosArgs, positive};
use crate::load::{ConnectTest, EchoTest, Handshakes};

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct EchoArgs {
    /// Connections; several numbers make several columns
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100", value_parser = value_parser!(u32).range(1..))]
    conns: Vec<u32>,
    /// Messages that each client sends
    #[arg(long, value_name = "M", default_value_t = 1_000, value_parser = value_parser!(u64).range(1..))]
    messages: u64,
    /// Messages of a client that may be under way; with --rate always 1
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = value_parser!(u64).range(1..=10_000), conflicts_with = "rate")]
    ahead: u64,
    /// Messages per second of all clients together, evenly spaced; without it as fast as they come back
    #[arg(long, value_name = "R", value_parser = positive)]
    rate: Option<f64>,
    #[command(flatten)]
    qos: QosArgs,
    #[command(flatten)]
    payload: PayloadArgs,
    #[command(flatten)]
    pub(crate) comparison: ComparisonArgs,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct ConnectsArgs {
    /// Number of clients that connect and leave
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = value_parser!(u64).range(1..))]
    count: u64,
    /// Number of connections at a time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = value_parser!(u32).range(1..=100_000))]
    at_once: u32,
    #[command(flatten)]
    pub(crate) comparison: ComparisonArgs,
}

impl EchoArgs {
    /// The test that is asked for.
    pub(crate) fn test(&self) -> EchoTest {
        EchoTest {
            sizes: self.conns.clone(),
            messages: self.messages,
            ahead: self.ahead,
            rate: self.rate,
            payload_len: self.payload.len as usize,
            qos: self.qos.qos,
            version: self.comparison.version,
        }
    }
}

impl ConnectsArgs {
    /// The test that is asked for.
    pub(crate) fn test(&self) -> ConnectTest {
        let visits = Handshakes { count: self.count, at_once: self.at_once, rate: None };
        ConnectTest { visits, version: self.comparison.version }
    }
}
