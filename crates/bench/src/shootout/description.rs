//! The file that describes a shoot-out: servers, workloads, sizes, rounds and processors.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::balancing::{BalancerEntry, BalancingEntry};
use crate::error::{Error, Result};
use crate::layers::Over;

/// The servers that are known without a file.
const PEERS: &str = include_str!("peers.toml");

/// The full comparison, and the short one.
const FULL: &str = include_str!("full.toml");
const QUICK: &str = include_str!("quick.toml");

/// Load balancers alone. The full comparison has this part too.
const BALANCERS: &str = include_str!("balancers.toml");

/// Smallest number of rounds from which an interval can be estimated.
const ROUNDS_MIN: u32 = 2;

/// Longest duration of a run, in seconds.
const SECONDS_MAX: f64 = 3_600.0;

/// A comparison as its file describes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Description {
    pub(super) title: String,
    /// Names of the servers to compare, of this file or known ones. Findings refer to the first one.
    #[serde(default)]
    pub(super) servers: Vec<String>,
    /// Rounds of each workload, at least.
    pub(super) rounds_min: u32,
    /// Rounds of each workload, at most.
    pub(super) rounds_max: u32,
    /// Rounds end when half of the interval of a rate is at most this share of the rate.
    pub(super) precision: f64,
    /// Time that a run takes, where the number of messages can be chosen.
    pub(super) seconds: f64,
    /// Time that such a run is warmed up, at least.
    pub(super) warm_up_seconds: f64,
    /// Processors for servers and for the generator, such as `0` or `0,2-3`.
    #[serde(default)]
    pub(super) server_cpus: Option<String>,
    #[serde(default)]
    pub(super) generator_cpus: Option<String>,
    /// Servers beside the known ones, or in their place.
    #[serde(default, rename = "server")]
    pub(super) own_servers: Vec<ServerEntry>,
    #[serde(default, rename = "workload")]
    pub(super) workloads: Vec<WorkloadEntry>,
    /// Load balancers in front of a server.
    #[serde(default)]
    pub(super) balancing: Option<BalancingEntry>,
    /// Balancers beside the known ones, or in their place.
    #[serde(default, rename = "balancer")]
    own_balancers: Vec<BalancerEntry>,
    /// Whether claims of durability are checked with SIGKILL.
    #[serde(default)]
    pub(super) check_claims: bool,
}

/// A server, and its configuration for fairness.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerEntry {
    pub(super) name: String,
    #[serde(default)]
    pub(super) language: String,
    /// A file that exists, or a program on the path, if the server is installed.
    pub(super) program: String,
    /// A command whose first line has the version.
    #[serde(default)]
    pub(super) version: Option<String>,
    /// The command in the foreground. `{port}`, `{dir}` (an empty folder), `{peers}` and `{self}` are replaced.
    pub(super) command: String,
    /// Files in `{dir}` that the command reads, by name. The same words are replaced.
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
    /// Time limit for the start.
    #[serde(default = "start_secs")]
    pub(super) start_secs: u64,
    /// Highest QoS that the server supports.
    #[serde(default = "qos_max")]
    pub(super) qos_max: u8,
    /// Versions of MQTT.
    #[serde(default = "versions")]
    pub(super) versions: Vec<String>,
    /// Settings with their reasons, a sentence each.
    #[serde(default)]
    pub(super) fairness: Vec<String>,
    /// Known limits of the server that matter to a reader of its figures.
    #[serde(default)]
    pub(super) notes: Vec<String>,
    /// Tests in which the server does not take part, each with the reason.
    #[serde(default)]
    pub(super) unsuited: BTreeMap<String, String>,
    /// Settings for listeners with other layers than TCP alone, such as `tls`.
    #[serde(default)]
    pub(super) layers: BTreeMap<Over, Layered>,
    /// Settings behind a load balancer that announces each client with the PROXY protocol.
    #[serde(default)]
    pub(super) proxied: Option<Proxied>,
    /// Settings with which acknowledged messages survive a crash, if the server claims that.
    #[serde(default)]
    pub(super) durable: Option<Durable>,
    /// Whether somebody has run this recipe.
    #[serde(default = "yes")]
    pub(super) tried: bool,
}

/// The settings of a server whose connections have other layers than TCP alone.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Layered {
    /// The command, if it is another one. `{cert}` and `{key}` are replaced by the files of a certificate for 127.0.0.1.
    #[serde(default)]
    pub(super) command: Option<String>,
    /// The files in `{dir}`, instead of those over TCP alone.
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) fairness: Vec<String>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
}

/// The settings of a server behind the PROXY protocol.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proxied {
    pub(super) command: String,
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) fairness: Vec<String>,
}

/// A claim of durability, and the settings for it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Durable {
    pub(super) command: String,
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
    /// The claim of the server's documentation.
    #[serde(default)]
    pub(super) claim: String,
    #[serde(default)]
    pub(super) fairness: Vec<String>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
}

/// One test on all servers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadEntry {
    pub(super) name: String,
    pub(super) title: String,
    #[serde(default)]
    pub(super) text: String,
    /// The words behind `pondhawk bench`.
    pub(super) bench: String,
    /// Shares of a server's best rate at which latency is measured, after the rate itself.
    #[serde(default)]
    pub(super) shares_of_best: Vec<f64>,
    /// Rounds of this workload, if not those of all.
    #[serde(default)]
    pub(super) rounds_max: Option<u32>,
    /// Whether the relay can take part.
    #[serde(default)]
    pub(super) with_relay: bool,
}

/// A description that needs no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BuiltIn {
    Full,
    Quick,
    /// Load balancers alone.
    Balancers,
}

impl Description {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Error::Arguments`] with the place of a mistake in the file; or the file cannot be read.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let name = wire::Shown(file.display()).to_string();
        let text = std::fs::read_to_string(file).map_err(Error::io(format!("read {name}")))?;
        Self::parse(&name, &text)
    }

    /// A built-in description.
    ///
    /// # Errors
    /// If the description is wrong.
    pub(super) fn built_in(kind: BuiltIn) -> Result<Self> {
        let text = match kind {
            BuiltIn::Full => FULL,
            BuiltIn::Quick => QUICK,
            BuiltIn::Balancers => BALANCERS,
        };
        let read = Self::parse("the built-in description", text)?;
        if kind != BuiltIn::Full {
            return Ok(read);
        }
        Ok(Self { balancing: Self::built_in(BuiltIn::Balancers)?.balancing, ..read })
    }

    fn parse(name: &str, text: &str) -> Result<Self> {
        let in_file = |what: String| Error::Arguments(format!("{name}: {what}"));
        let read: Self = toml::from_str(text).map_err(|error| in_file(error.to_string()))?;
        if let Some(balancing) = &read.balancing {
            balancing.check().map_err(in_file)?;
        } else if read.servers.is_empty() || read.workloads.is_empty() {
            return Err(in_file(
                "there is nothing to measure: `servers` and `[[workload]]`, or `[balancing]`".to_owned(),
            ));
        }
        if read.rounds_min < ROUNDS_MIN || read.rounds_max < read.rounds_min {
            let what =
                format!("`rounds_min` is at least {ROUNDS_MIN}, and `rounds_max` at least `rounds_min`");
            return Err(in_file(what));
        }
        let is_duration = |seconds: f64| seconds > 0.0 && seconds <= SECONDS_MAX;
        if !(is_duration(read.seconds) && is_duration(read.warm_up_seconds) && read.precision > 0.0) {
            let what = "`seconds` and `warm_up_seconds` are more than 0 and at most 3600, and `precision` is more than 0";
            return Err(in_file(what.to_owned()));
        }
        let too_few =
            |workload: &&WorkloadEntry| workload.rounds_max.is_some_and(|rounds| rounds < read.rounds_min);
        if let Some(workload) = read.workloads.iter().find(too_few) {
            return Err(in_file(format!("workload `{}`: `rounds_max` is below `rounds_min`", workload.name)));
        }
        Ok(read)
    }

    /// The servers to compare, in their order.
    ///
    /// # Errors
    /// [`Error::Arguments`] with the known names, if there is no server with a name.
    pub(super) fn chosen_servers(&self, names: &[String]) -> Result<Vec<ServerEntry>> {
        let names = if names.is_empty() { &self.servers } else { names };
        let known = self.known_servers()?;
        let find = |name: &String| {
            known.iter().find(|server| server.name == *name).cloned().ok_or_else(|| {
                let all: Vec<&str> = known.iter().map(|server| server.name.as_str()).collect();
                Error::Arguments(format!("there is no server `{name}`; there are: {}", all.join(", ")))
            })
        };
        names.iter().map(find).collect()
    }

    /// All servers that a shoot-out may name. A server of the file takes the place of a known one.
    ///
    /// # Errors
    /// If the table of known servers is wrong.
    pub(super) fn known_servers(&self) -> Result<Vec<ServerEntry>> {
        if let Some(server) = self.own_servers.iter().find(|server| server.layers.contains_key(&Over::Tcp)) {
            let what =
                "`layers.tcp` is no table: `command` and `files` of the server are those over TCP alone";
            return Err(Error::Arguments(format!("server `{}`: {what}", server.name)));
        }
        let mut known = peers()?;
        known.retain(|server| self.own_servers.iter().all(|own| own.name != server.name));
        Ok(self.own_servers.iter().cloned().chain(known).collect())
    }

    /// The load balancers to compare, in their order.
    ///
    /// # Errors
    /// [`Error::Arguments`] with the known names, if there is no balancer with a name.
    pub(super) fn chosen_balancers(&self, balancing: &BalancingEntry) -> Result<Vec<BalancerEntry>> {
        balancing.chosen(&self.own_balancers)
    }

    /// The workloads with these names, or all, without those behind load balancers.
    ///
    /// # Errors
    /// [`Error::Arguments`] with the names that exist, also behind load balancers.
    pub(super) fn chosen_workloads(&self, names: &[String]) -> Result<Vec<WorkloadEntry>> {
        let all = &self.workloads;
        let balanced = self.balancing.iter().flat_map(|balancing| &balancing.workloads);
        let known: Vec<&WorkloadEntry> = all.iter().chain(balanced).collect();
        if let Some(unknown) = names.iter().find(|name| known.iter().all(|workload| workload.name != **name))
        {
            let all: Vec<&str> = known.iter().map(|workload| workload.name.as_str()).collect();
            let all = all.join(", ");
            return Err(Error::Arguments(format!("there is no workload `{unknown}`; there are: {all}")));
        }
        let is_chosen = |workload: &&WorkloadEntry| names.is_empty() || names.contains(&workload.name);
        Ok(all.iter().filter(is_chosen).cloned().collect())
    }
}

fn peers() -> Result<Vec<ServerEntry>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Peers {
        server: Vec<ServerEntry>,
    }
    let read: Peers =
        toml::from_str(PEERS).map_err(|error| Error::Arguments(format!("peers.toml: {error}")))?;
    Ok(read.server)
}

fn start_secs() -> u64 {
    15
}

fn qos_max() -> u8 {
    2
}

fn versions() -> Vec<String> {
    ["3.1.1", "5"].map(str::to_owned).to_vec()
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_descriptions_name_servers_and_workloads_that_exist() {
        for kind in [BuiltIn::Full, BuiltIn::Quick] {
            let description = Description::built_in(kind).unwrap();
            assert!(!description.chosen_servers(&[]).unwrap().is_empty());
            assert!(!description.chosen_workloads(&[]).unwrap().is_empty());
        }
        for kind in [BuiltIn::Full, BuiltIn::Balancers] {
            let description = Description::built_in(kind).unwrap();
            let balancing = description.balancing.as_ref().unwrap();
            assert!(!description.chosen_balancers(balancing).unwrap().is_empty());
            description.chosen_servers(std::slice::from_ref(&balancing.server)).unwrap();
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_those_that_exist() {
        let description = Description::built_in(BuiltIn::Quick).unwrap();
        let error = description.chosen_servers(&["mosquitoo".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`mosquitoo`") && error.contains("mosquitto"), "{error}");
        let error = description.chosen_workloads(&["lodtest".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("`lodtest`") && error.contains("loadtest"), "{error}");
    }

    #[test]
    fn a_mistake_in_a_file_is_reported_with_its_line() {
        let folder = std::env::temp_dir().join(format!("pondhawk-description-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("shootout.toml");
        std::fs::write(&file, "title = \"mine\"\nround_max = 3\n").unwrap();
        let error = Description::read(&file).unwrap_err().to_string();
        assert!(error.contains("shootout.toml") && error.contains("line 2"), "{error}");
        std::fs::write(&file, FULL.split("[[workload]]").next().unwrap()).unwrap();
        let error = Description::read(&file).unwrap_err().to_string();
        assert!(error.contains("nothing to measure"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
