//! The command lines of trouble.

use std::time::Duration;

use clap::{Args, value_parser};

use super::{ComparisonArgs, FloodArgs, PayloadArgs, positive, seconds};
use crate::load::{
    Dispatch, FloodTest, InnocentPlan, Pattern, RetainedFlood, SharedQueue, SlowConsumerTest, Storm,
    TroubleTest,
};

/// Innocent clients, and what all tests have.
#[derive(Debug, Args)]
pub(crate) struct BesideArgs {
    /// Pairs of innocent clients: each publishes to its partner on schedule, at QoS 0
    #[arg(long, value_name = "P", default_value_t = 8, value_parser = value_parser!(u32).range(1..))]
    innocents: u32,
    /// Messages per second of all innocent pairs together
    #[arg(long, value_name = "R", default_value = "2000", value_parser = positive)]
    rate: f64,
    /// Seconds that the innocent talk where there is no trouble; beside trouble they talk as long as it lasts
    #[arg(long, value_name = "SECS", default_value = "3", value_parser = seconds)]
    duration: Duration,
    #[command(flatten)]
    pub(crate) comparison: ComparisonArgs,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct RetainedFloodArgs {
    /// Number of retained messages
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = value_parser!(u64).range(1..))]
    messages: u64,
    #[command(flatten)]
    payload: PayloadArgs,
    #[command(flatten)]
    pub(crate) beside: BesideArgs,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct SlowConsumerArgs {
    #[command(flatten)]
    pub(crate) flood: FloodArgs,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct SharedQueueArgs {
    /// Number of messages
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = value_parser!(u64).range(1..))]
    messages: u64,
    /// Members of the group, the survivor included
    #[arg(long, value_name = "M", default_value_t = 4, value_parser = value_parser!(u32).range(2..))]
    members: u32,
    /// Dispatch of the server, which must be kept
    #[arg(long, value_name = "D", value_enum, default_value_t = Dispatch::RoundRobin)]
    dispatch: Dispatch,
    #[command(flatten)]
    pub(crate) beside: BesideArgs,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct StormArgs {
    /// Number of clients
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = value_parser!(u32).range(1..))]
    clients: u32,
    #[command(flatten)]
    pub(crate) beside: BesideArgs,
}

impl BesideArgs {
    fn test<T>(&self, trouble: T) -> TroubleTest<T> {
        let innocents = InnocentPlan { pairs: self.innocents, rate: self.rate, duration: self.duration };
        TroubleTest { trouble, innocents, version: self.comparison.version }
    }
}

impl RetainedFloodArgs {
    /// The test that is asked for.
    pub(crate) fn test(&self) -> TroubleTest<RetainedFlood> {
        let payload_len = self.payload.len as usize;
        self.beside.test(RetainedFlood { messages: self.messages, payload_len })
    }
}

impl SlowConsumerArgs {
    /// The test that is asked for.
    pub(crate) fn test(&self) -> SlowConsumerTest {
        let flood = self.flood.test(Pattern::Pairs);
        let largest = flood.sizes.iter().copied().max().into_iter().collect();
        SlowConsumerTest { flood: FloodTest { sizes: largest, ..flood } }
    }
}

impl SharedQueueArgs {
    /// The test that is asked for.
    pub(crate) fn test(&self) -> TroubleTest<SharedQueue> {
        self.beside.test(SharedQueue {
            messages: self.messages,
            members: self.members,
            dispatch: self.dispatch,
        })
    }
}

impl StormArgs {
    /// The test that is asked for.
    pub(crate) fn test(&self) -> TroubleTest<Storm> {
        self.beside.test(Storm { clients: self.clients })
    }
}
