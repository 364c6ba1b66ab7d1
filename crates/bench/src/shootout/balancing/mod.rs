//! Load balancers in front of replicas of a server: the cost of each in CPU time, latency and connections per second.
//!
//! ```text
//! generator ─► balancer ─► replica 1, replica 2, …      direct: the generator connects to the replicas in turn
//! ```
//!
//! Replicas know nothing of each other. The workloads therefore have clients that need no other client.
//!
//! - `entry` is the part of a description, `front` starts a balancer, and `lineup` starts it with its replicas.
//! - The rounds are those of `course`.

mod entry;
mod front;
mod lineup;

use serde::{Deserialize, Serialize};

use super::description::Description;
use super::peer::{Peer, Places};
use super::results::{self, Results, Server, Workload};
use super::workload;
use super::{Setting, course, server};
use crate::args::ShootoutArgs;
use crate::error::{Error, Result};
use crate::layers::Over;

pub(super) use self::entry::{BalancerEntry, BalancingEntry};
pub(super) use self::front::Ending;
use self::front::Front;
use self::lineup::Lineup;

/// The name of line-ups without a balancer.
pub(super) const DIRECT: &str = "direct";

/// Tests whose clients need no other client.
const TESTS: [&str; 2] = ["echo", "connects"];

/// The figures of a server behind load balancers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Balancing {
    pub(super) server: Server,
    pub(super) balancers: Vec<Balancer>,
    /// The processors of balancers, if others than those of servers.
    pub(super) cpus: Option<String>,
    /// The rows that were measured.
    pub(super) lineups: Vec<Row>,
    /// Each with one size. The servers of cells are names of rows.
    pub(super) workloads: Vec<Workload>,
}

/// A load balancer as it was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Balancer {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) command: String,
    /// Configurations for the largest number of replicas.
    pub(super) files: Vec<(String, String)>,
    pub(super) fairness: Vec<String>,
    pub(super) notes: Vec<String>,
    /// Why it was not measured, if it was not.
    pub(super) absence: Option<String>,
}

/// A balancer, or none, in front of a number of replicas.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) balancer: String,
    pub(super) replicas: u32,
}

/// A comparison of load balancers that can be run.
pub(super) struct Plan {
    lineups: Vec<Lineup>,
    workloads: Vec<workload::Workload>,
    figures: Balancing,
}

impl Balancing {
    /// The names of the rows.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.lineups.iter().map(|row| row.name.as_str())
    }

    /// The row of a balancer with this number of replicas.
    pub(super) fn row(&self, balancer: &str, replicas: u32) -> Option<&Row> {
        self.lineups.iter().find(|row| row.balancer == balancer && row.replicas == replicas)
    }

    /// The numbers of replicas, each once, in the order of the rows.
    pub(super) fn replica_counts(&self) -> Vec<u32> {
        let mut counts: Vec<u32> = Vec::new();
        for row in &self.lineups {
            if !counts.contains(&row.replicas) {
                counts.push(row.replicas);
            }
        }
        counts
    }
}

impl Plan {
    /// The plan of a description; `None` if the description has none, or the arguments leave it out.
    ///
    /// # Errors
    /// [`Error::Arguments`] if the description names something that does not exist, or a workload that replicas cannot
    /// share.
    pub(super) fn of(
        description: &Description,
        args: &ShootoutArgs,
        places: &Places,
    ) -> Result<Option<Self>> {
        let Some(entry) = &description.balancing else { return Ok(None) };
        let is_chosen = |name: &String| args.workloads.is_empty() || args.workloads.contains(name);
        let chosen: Vec<_> =
            entry.workloads.iter().filter(|workload| is_chosen(&workload.name)).cloned().collect();
        let is_left_out = !args.servers.is_empty() && !args.servers.contains(&entry.server);
        if chosen.is_empty() || is_left_out {
            return Ok(None);
        }
        let workloads: Vec<_> = chosen.into_iter().map(workload::Workload::new).collect::<Result<_>>()?;
        workloads.iter().try_for_each(check)?;
        let [behind] = <[_; 1]>::try_from(description.chosen_servers(std::slice::from_ref(&entry.server))?)
            .expect("one name has one server");
        let new_peer = || Peer::new(behind.clone(), places.clone());
        let fronts = description.chosen_balancers(entry)?;
        let fronts: Vec<Front> = fronts.into_iter().map(|front| Front::new(front, places.clone())).collect();
        let server = server(&new_peer(), &[]);
        let most = entry.replicas.iter().copied().max().unwrap_or(1);
        let mut lineups = Vec::new();
        for &replicas in &entry.replicas {
            for name in &entry.balancers {
                let front = fronts.iter().find(|front| front.name() == name).cloned();
                if front.as_ref().is_none_or(|front| front.absence(&behind).is_none()) {
                    lineups.push(Lineup::new(new_peer(), front, replicas));
                }
            }
        }
        let figures = Balancing {
            balancers: fronts.iter().map(|front| front.description(&behind, most)).collect(),
            cpus: entry.cpus.clone(),
            lineups: lineups.iter().map(Lineup::row).collect(),
            workloads: Vec::new(),
            server: with_proxied(server, &behind),
        };
        Ok(Some(Self { lineups, workloads, figures }))
    }

    /// Connections of the largest workload, each with its second half behind the balancer.
    pub(super) fn connections_max(&self) -> u64 {
        2 * self.workloads.iter().map(workload::Workload::connections_max).max().unwrap_or(0)
    }

    /// Runs all rounds, and passes the figures so far to `keep` after each.
    ///
    /// # Errors
    /// Those of [`course::run`]. What was measured by then is in `results`.
    pub(super) fn run(
        &self,
        setting: &Setting,
        results: &mut Results,
        keep: impl Fn(&Results) -> Result<()>,
    ) -> Result<()> {
        let figures =
            |workloads: &[Workload]| Balancing { workloads: workloads.to_vec(), ..self.figures.clone() };
        for balancer in &self.figures.balancers {
            eprintln!("{}: {}", balancer.name, balancer.absence.as_deref().unwrap_or(&balancer.version));
        }
        if let Some(absence) = &self.figures.server.absence {
            eprintln!("no load balancers: {} is {absence}", self.figures.server.name);
            return Ok(());
        }
        let mut measured = Vec::new();
        let base = results.clone();
        let ended = course::run(setting, &self.lineups, &self.workloads, &mut measured, |workloads| {
            keep(&Results { balancing: Some(figures(workloads)), ..base.clone() })
        });
        results.balancing = Some(figures(&measured));
        ended
    }

    /// Prints balancers and workloads.
    pub(super) fn list(&self) {
        println!("\nLoad balancers in front of {}:", self.figures.server.name);
        for balancer in &self.figures.balancers {
            println!("  {:<16} {}", balancer.name, balancer.absence.as_ref().unwrap_or(&balancer.version));
        }
        println!("\nWorkloads behind them:");
        for workload in &self.workloads {
            let entry = &workload.entry;
            println!("  {:<16} {}\n  {:<16} pondhawk bench {}", entry.name, entry.title, "", entry.bench);
        }
    }
}

/// Checks that replicas which know nothing of each other can share the clients of a workload.
fn check(workload: &workload::Workload) -> Result<()> {
    let test = workload.test_name();
    let what = match () {
        () if !TESTS.contains(&test) => {
            format!("replicas know nothing of each other: only {} can take part", TESTS.join(" and "))
        }
        () if workload.over != Over::Tcp => "load balancers are measured over TCP alone".to_owned(),
        () if workload.sizes().len() != 1 => "a workload of [balancing] has one size".to_owned(),
        () => return Ok(()),
    };
    Err(Error::Arguments(format!("workload `{}`: {what}", workload.entry.name)))
}

/// Adds the settings of replicas behind a balancer that speaks the PROXY protocol.
fn with_proxied(server: Server, entry: &super::description::ServerEntry) -> Server {
    let proxied = entry.proxied.iter().map(|proxied| results::Layered {
        over: "the PROXY protocol".to_owned(),
        command: proxied.command.clone(),
        files: proxied.files.clone().into_iter().collect(),
        fairness: proxied.fairness.clone(),
        notes: Vec::new(),
    });
    Server { layers: server.layers.iter().cloned().chain(proxied).collect(), ..server }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(bench: &str) -> String {
        let entry = format!("name = \"mine\"\ntitle = \"Mine\"\nbench = \"{bench}\"");
        let workload = workload::Workload::new(toml::from_str(&entry).unwrap()).unwrap();
        check(&workload).unwrap_err().to_string()
    }

    #[test]
    fn clients_that_need_each_other_are_refused() {
        assert!(error("loadtest --conns 4").contains("know nothing of each other"));
        assert!(error("echo --over tls").contains("over TCP alone"));
        assert!(error("echo --conns 4,8").contains("one size"));
    }
}
