//! The figures of a shoot-out, from which every report is made.

use serde::{Deserialize, Serialize};

use super::balancing::Balancing;
use super::description;
use super::memory::Series;
use super::statistics::Estimate;
use crate::layers::Over;
use crate::load::Counted;

/// Share of its time above which the generator may be what limited a run.
const GENERATOR_BOUND: f64 = 0.9;

/// Everything that a report shows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Results {
    pub(super) title: String,
    /// The command line that made it.
    pub(super) command: String,
    pub(super) machine: Machine,
    /// Duration of the whole shoot-out, in seconds.
    pub(super) seconds: f64,
    /// Why the shoot-out ended early, if it did.
    pub(super) interruption: Option<String>,
    pub(super) servers: Vec<Server>,
    pub(super) workloads: Vec<Workload>,
    /// Results of the checks of durability.
    pub(super) claims: Vec<Claim>,
    /// Load balancers in front of replicas of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) balancing: Option<Balancing>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Machine {
    /// Seconds since 1970 at the start.
    pub(super) started: u64,
    pub(super) processor: String,
    pub(super) processors: usize,
    pub(super) memory_bytes: u64,
    pub(super) kernel: String,
    pub(super) server_cpus: Option<String>,
    pub(super) generator_cpus: Option<String>,
    /// Version of this program, which is the generator.
    pub(super) generator: String,
    /// The file system with the data of servers.
    pub(super) file_system: String,
    /// The machines that were the generator, if it was not this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) agents: Vec<Agent>,
}

/// A generator on another machine, or in another process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Agent {
    pub(super) address: String,
    pub(super) threads: usize,
    pub(super) version: String,
}

/// The common start of agents in a run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Concert {
    /// The clock of each agent is known to this.
    pub(super) uncertainty_ms: f64,
    /// From the first start to the last one.
    pub(super) spread_ms: f64,
}

/// A server as it was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) language: String,
    pub(super) version: String,
    pub(super) command: String,
    pub(super) files: Vec<(String, String)>,
    pub(super) fairness: Vec<String>,
    pub(super) notes: Vec<String>,
    /// Settings for connections with other layers than TCP alone, and for replicas behind the PROXY protocol.
    #[serde(default)]
    pub(super) layers: Vec<Layered>,
    /// Why it was not measured, if it was not.
    pub(super) absence: Option<String>,
}

/// Settings of a server whose connections have other layers than TCP alone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Layered {
    /// Name of the layers, such as `tls`.
    pub(super) over: String,
    pub(super) command: String,
    pub(super) files: Vec<(String, String)>,
    pub(super) fairness: Vec<String>,
    pub(super) notes: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Workload {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) text: String,
    /// The words behind `pondhawk bench`.
    pub(super) bench: String,
    pub(super) qos: u8,
    /// The things that the figures count.
    #[serde(default)]
    pub(super) counted: Counted,
    pub(super) sizes: Vec<Size>,
    pub(super) cells: Vec<Cell>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Size {
    pub(super) name: String,
    pub(super) connections: u64,
    /// The share of a server's own best rate at which latency was measured, if it was.
    pub(super) share_of_best: Option<f64>,
    /// Whether messages were sent on schedule.
    pub(super) is_paced: bool,
    #[serde(default)]
    pub(super) role: Role,
}

/// The part of a size in a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    /// All servers have the same load.
    #[default]
    Load,
    /// The same clients without the trouble of the other sizes: no result of its own.
    Control,
    /// A demand, and other clients beside it for as long as the server takes. The time is the result.
    Demand,
}

/// All runs of one server at one size of a workload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) server: String,
    pub(super) size: usize,
    /// Why it was not tried, if it was not.
    pub(super) skipped: Option<String>,
    pub(super) runs: Vec<Run>,
}

/// One run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Run {
    /// Why the run ended early, if it did. The figures are zero then.
    pub(super) failure: Option<String>,
    /// The words that make of the command of the workload the one of this run.
    pub(super) words: String,
    pub(super) messages: u64,
    pub(super) seconds: f64,
    /// Messages of the warm-up. What happened to them counts below.
    pub(super) warm_up_messages: u64,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) out_of_order: u64,
    pub(super) unexpected: u64,
    pub(super) cpu_secs: Option<f64>,
    /// CPU time of the load balancer in front, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) balancer_cpu_secs: Option<f64>,
    /// The share of the busiest replica in the CPU time of all replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) busiest_share: Option<f64>,
    pub(super) peak_bytes: Option<u64>,
    /// Resident memory half a second after the clients have gone.
    pub(super) after_bytes: Option<u64>,
    pub(super) connection_bytes: Option<f64>,
    /// Resident memory while the server ran.
    #[serde(default, skip_serializing_if = "Series::is_empty")]
    pub(super) memory: Series,
    /// Time until the demand beside which innocent clients were measured was met: all clients were back, or all messages there.
    #[serde(default)]
    pub(super) completion_secs: Option<f64>,
    /// Share of its time in which the generator was busy.
    pub(super) generator_busy: f64,
    /// The common start, if agents were the generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) concert: Option<Concert>,
    /// Percentiles and latencies in milliseconds.
    pub(super) latency_ms: Vec<(f64, f64)>,
}

/// Result of a check of durability.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Claim {
    pub(super) server: String,
    /// The claim of the server's documentation.
    pub(super) claim: String,
    pub(super) command: String,
    /// Settings with their reasons, and known limits.
    pub(super) settings: Vec<String>,
    /// Messages that the server had acknowledged at QoS 1 before it was killed.
    pub(super) acknowledged: u64,
    /// Seconds in which it acknowledged them.
    pub(super) seconds: f64,
    /// Acknowledged messages that never came after the restart.
    pub(super) lost: u64,
    /// Why there is no result, if there is none.
    pub(super) failure: Option<String>,
}

/// A quantity of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    MessagesPerSec,
    CpuSecsPerMillion,
    /// The same of the load balancer in front.
    BalancerCpuSecsPerMillion,
    /// The same of both together.
    AllCpuSecsPerMillion,
    /// The share of the busiest replica, in per cent.
    BusiestPercent,
    PeakBytes,
    AfterBytes,
    ConnectionBytes,
    CompletionSecs,
    /// In milliseconds, at the percentile in hundredths of a per cent.
    Latency(u32),
}

impl Layered {
    /// The settings for these layers, where `command` is the one over TCP alone.
    pub(super) fn new(over: Over, settings: &description::Layered, command: &str) -> Self {
        Self {
            over: over.name().to_owned(),
            command: settings.command.clone().unwrap_or_else(|| command.to_owned()),
            files: settings.files.clone().into_iter().collect(),
            fairness: settings.fairness.clone(),
            notes: settings.notes.clone(),
        }
    }
}

impl Results {
    /// All servers, also the one that was measured behind load balancers alone.
    pub(super) fn described(&self) -> impl Iterator<Item = &Server> {
        let behind = self.balancing.as_ref().map(|balancing| &balancing.server);
        let is_known = |server: &&Server| self.servers.iter().any(|known| known.name == server.name);
        self.servers.iter().chain(behind.filter(|server| !is_known(server)))
    }

    /// The workloads of all servers, and those behind load balancers, each with the names of its rows.
    pub(super) fn all_workloads(&self) -> impl Iterator<Item = (&Workload, Vec<&str>)> {
        let names: Vec<&str> = self.present().map(|server| server.name.as_str()).collect();
        let compared = self.workloads.iter().map(move |workload| (workload, names.clone()));
        let balanced = self.balancing.iter().flat_map(|balancing| {
            balancing.workloads.iter().map(|workload| (workload, balancing.names().collect()))
        });
        compared.chain(balanced)
    }

    /// The servers that were measured.
    pub(super) fn present(&self) -> impl Iterator<Item = &Server> {
        self.servers.iter().filter(|server| server.absence.is_none())
    }
}

impl Workload {
    /// Whether a cell's messages all came as their QoS promises, and no run failed.
    pub(super) fn is_sound(&self, cell: &Cell) -> bool {
        cell.failure().is_none() && !cell.faults().any_at(self.qos)
    }

    pub(super) fn cell(&self, server: &str, size: usize) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.server == server && cell.size == size)
    }
}

impl Cell {
    /// The estimate over all runs that ended.
    pub(super) fn estimate(&self, measure: Measure) -> Option<Estimate> {
        let runs = self.runs.iter().filter(|run| run.failure.is_none());
        Estimate::of(&runs.filter_map(|run| run.value(measure)).collect::<Vec<_>>())
    }

    /// Messages lost, duplicated and out of order in all runs.
    pub(super) fn faults(&self) -> Faults {
        let mut faults = Faults::default();
        for run in &self.runs {
            faults.add(Faults {
                messages: run.messages + run.warm_up_messages,
                lost: run.lost,
                duplicated: run.duplicated,
                out_of_order: run.out_of_order,
                unexpected: run.unexpected,
            });
        }
        faults
    }

    /// Why the first run failed that did.
    pub(super) fn failure(&self) -> Option<&str> {
        self.runs.iter().find_map(|run| run.failure.as_deref())
    }

    /// Whether the generator may have been the limit in one of the runs.
    pub(super) fn is_bound_by_generator(&self) -> bool {
        self.runs.iter().any(|run| run.generator_busy > GENERATOR_BOUND)
    }
}

/// Messages that did not come as they should.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Faults {
    /// Messages that came.
    pub(super) messages: u64,
    pub(super) lost: u64,
    pub(super) duplicated: u64,
    pub(super) out_of_order: u64,
    pub(super) unexpected: u64,
}

impl Faults {
    pub(super) fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.out_of_order += other.out_of_order;
        self.unexpected += other.unexpected;
    }

    /// Whether there are any that the QoS forbids: at QoS 1, a message may come again.
    pub(super) fn any_at(self, qos: u8) -> bool {
        let repeated = if qos == 1 { 0 } else { self.duplicated };
        self.lost + repeated + self.out_of_order + self.unexpected > 0
    }

    /// The share of the messages that was lost.
    pub(super) fn share_lost(self) -> f64 {
        let all = self.messages + self.lost;
        if all == 0 { 0.0 } else { self.lost as f64 / all as f64 }
    }
}

impl Run {
    /// The value of a quantity, if the run has it.
    pub(super) fn value(&self, measure: Measure) -> Option<f64> {
        let has_messages = self.messages > 0 && self.seconds > 0.0;
        let per_million = |secs: f64| has_messages.then(|| secs * 1e6 / self.messages as f64);
        match measure {
            Measure::MessagesPerSec => has_messages.then(|| self.messages as f64 / self.seconds),
            Measure::CpuSecsPerMillion => self.cpu_secs.and_then(per_million),
            Measure::BalancerCpuSecsPerMillion => self.balancer_cpu_secs.and_then(per_million),
            Measure::AllCpuSecsPerMillion => {
                self.cpu_secs.map(|cpu| cpu + self.balancer_cpu_secs.unwrap_or(0.0)).and_then(per_million)
            }
            Measure::BusiestPercent => self.busiest_share.map(|share| share * 100.0),
            Measure::PeakBytes => self.peak_bytes.map(|bytes| bytes as f64),
            Measure::AfterBytes => self.after_bytes.map(|bytes| bytes as f64),
            // Of interest where nothing else is measured.
            Measure::ConnectionBytes => self.connection_bytes.filter(|_| !has_messages),
            Measure::CompletionSecs => self.completion_secs,
            Measure::Latency(percentile) => {
                let wanted = f64::from(percentile) / 100.0;
                let at = |(percentile, _): &&(f64, f64)| (percentile - wanted).abs() < 1e-6;
                self.latency_ms.iter().find(at).map(|(_, latency)| *latency)
            }
        }
    }
}
