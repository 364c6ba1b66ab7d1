//! The command line of a shoot-out.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, value_parser};

use super::seconds;
use crate::host::CpuList;

/// Compare MQTT brokers: an honest, repeatable shoot-out with a report
///
/// Starts each server afresh for each run, warms it up, and measures it, in turn with all others, round by round. Every
/// message is numbered and checked: a server that loses, repeats or reorders messages, or ends, gets a row that says
/// so. Servers that claim durability are killed while they acknowledge messages. The report is report.html, report.md
/// and results.json.
///
/// Without a file, compares the servers that are installed of those that this program knows.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, disable_version_flag = true, args_conflicts_with_subcommands = true)]
pub struct ShootoutArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ShootoutCommand>,
    /// Description of a shoot-out in TOML: servers, workloads, rounds, processors
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// A quarter of an hour instead of a night
    #[arg(long, conflicts_with = "file")]
    pub(crate) quick: bool,
    /// Load balancers alone: HAProxy, nginx and IPVS in front of 1 to 8 replicas of Pondhawk
    #[arg(long, conflicts_with_all = ["file", "quick"])]
    pub(crate) balancers: bool,
    /// Only these servers; findings refer to the first one
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) servers: Vec<String>,
    /// Only these workloads
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) workloads: Vec<String>,
    /// Rounds at most, instead of those of the description
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    pub(crate) rounds: Option<u32>,
    /// Seconds of a run, instead of those of the description
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    pub(crate) seconds: Option<Duration>,
    /// Processors for the servers, instead of those of the description
    #[arg(long, value_name = "CPUS")]
    pub(crate) server_cpu: Option<CpuList>,
    /// Processors for the generator, instead of those of the description
    #[arg(long, value_name = "CPUS")]
    pub(crate) pin: Option<CpuList>,
    /// Agents that make the load, instead of this process; see `shootout agent`
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', requires = "token_file", num_args = 1..=64)]
    pub(crate) agents: Vec<String>,
    /// File with the token that agents have too
    #[arg(long, value_name = "FILE", requires = "agents")]
    pub(crate) token_file: Option<PathBuf>,
    /// Address of this machine to which agents connect: it stands for 127.0.0.1 in the recipes of servers
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", requires = "agents")]
    pub(crate) address: IpAddr,
    /// Folder of the report, which is made
    #[arg(short, long, value_name = "DIR", default_value = "shootout")]
    pub(crate) output: PathBuf,
    /// Print servers and workloads, and whether the servers are installed
    #[arg(long)]
    pub(crate) list: bool,
    /// Make the report again from the figures in a results.json
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "quick", "balancers", "list"])]
    pub(crate) report_of: Option<PathBuf>,
    /// Say whether two runs agree about the order of the servers, from the figures in their results.json. It is a failure if
    /// they do not
    #[arg(long, value_names = ["FILE", "FILE"], num_args = 2, conflicts_with_all = ["file", "quick", "balancers", "list", "report_of"])]
    pub(crate) compare: Vec<PathBuf>,
}

#[derive(Debug, Subcommand)]
#[command(disable_version_flag = true)]
pub(crate) enum ShootoutCommand {
    /// Make a part of the load for a shoot-out on another machine
    ///
    /// Runs until it is ended, for one coordinator at a time. A coordinator and its agents prove to each other that they
    /// have the same token. Whoever has the token can make this machine send load to any address, and the connection is
    /// not encrypted: use agents in a network that you trust.
    Agent(AgentArgs),
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct AgentArgs {
    /// Address to listen on for coordinators
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// File with the token, of at least 16 bytes
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// Processors for the threads, which take them in turn
    #[arg(long, value_name = "CPUS")]
    pub(crate) pin: Option<CpuList>,
    /// Threads of this agent
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u8).range(1..))]
    pub(crate) threads: u8,
}
