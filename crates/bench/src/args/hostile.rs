//! The command line of attacks.

use std::time::Duration;

use clap::Args;

use super::{ComparisonArgs, seconds};

#[derive(Debug, Args)]
// Words without a flag are attacks, and a host needs one.
#[command(
    disable_version_flag = true,
    mut_arg("hosts", |hosts| hosts.long("host").num_args(1))
)]
pub(crate) struct HostileArgs {
    /// The attacks; all of them if none is named
    #[arg(value_name = "ATTACK")]
    pub(crate) attacks: Vec<String>,
    /// Seconds that innocent clients are measured, before each attack and under it
    ///
    /// The slowest kind repeats its work fifty times a second. In less than four seconds, its 99th percentile is one of the
    /// two longest latencies, which are chance.
    #[arg(long, value_name = "SECS", default_value = "6", value_parser = seconds)]
    pub(crate) duration: Duration,
    /// Attacks with a twentieth of the long form's clients and topics; latency is judged coarsely, and what fails is tried
    /// again
    #[arg(long)]
    pub(crate) short: bool,
    /// User name of the innocent clients, which are anonymous without one
    #[arg(short, long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Their password
    #[arg(short = 'P', long, value_name = "PASSWORD", requires = "user")]
    pub(crate) password: Option<String>,
    #[command(flatten)]
    pub(crate) comparison: ComparisonArgs,
}
