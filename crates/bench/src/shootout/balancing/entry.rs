//! The part of a description that is about load balancers.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::description::WorkloadEntry;
use super::DIRECT;
use crate::error::{Error, Result};

/// The balancers that are known without a file.
const KNOWN: &str = include_str!("recipes.toml");

/// Maximum number of replicas in a line-up.
const REPLICAS_MAX: u32 = 64;

/// A comparison of load balancers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct BalancingEntry {
    /// Name of the server behind the balancers.
    pub(in super::super) server: String,
    /// Names of balancers, of this file or known ones; `direct` is none.
    pub(in super::super) balancers: Vec<String>,
    /// Numbers of replicas.
    pub(in super::super) replicas: Vec<u32>,
    /// Processors for balancers, if others than those of servers.
    #[serde(default)]
    pub(in super::super) cpus: Option<String>,
    #[serde(rename = "workload")]
    pub(in super::super) workloads: Vec<WorkloadEntry>,
}

/// A load balancer, and its configuration for fairness.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct BalancerEntry {
    pub(in super::super) name: String,
    /// A file that exists, or a program on the path, if the balancer is installed.
    pub(super) program: String,
    #[serde(default)]
    pub(super) version: Option<String>,
    /// A command that succeeds if the balancer can work on this machine. Its first line says why not.
    #[serde(default)]
    pub(super) check: Option<String>,
    /// The command in the foreground. `{port}`, `{dir}`, `{replicas}`, `{peers}` and `{self}` are replaced.
    #[serde(default)]
    pub(super) command: Option<String>,
    /// Commands that begin and end a balancer inside the kernel, instead of `command`.
    #[serde(default)]
    pub(super) begin: Option<String>,
    #[serde(default)]
    pub(super) end: Option<String>,
    /// Files in `{dir}`. The same words are replaced.
    #[serde(default)]
    pub(super) files: BTreeMap<String, String>,
    /// The text of one replica: `{replicas}` are all of them. `{number}` and `{replica_port}` are replaced.
    pub(super) replica: String,
    /// Whether the balancer announces each client with the PROXY protocol.
    #[serde(default)]
    pub(super) proxy: bool,
    /// Settings with their reasons, a sentence each.
    #[serde(default)]
    pub(super) fairness: Vec<String>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    /// Whether somebody has run this recipe.
    #[serde(default = "yes")]
    pub(super) tried: bool,
}

impl BalancingEntry {
    /// Checks numbers and names.
    ///
    /// # Errors
    /// The mistake in words.
    pub(in super::super) fn check(&self) -> std::result::Result<(), String> {
        let has_twice = |name: &String| self.balancers.iter().filter(|other| *other == name).count() > 1;
        let is_possible = |replicas: &u32| (1..=REPLICAS_MAX).contains(replicas);
        match () {
            () if self.balancers.is_empty() || self.workloads.is_empty() || self.replicas.is_empty() => {
                Err("[balancing] needs balancers, replicas and workloads".to_owned())
            }
            () if self.balancers.iter().any(has_twice) => {
                Err("`balancers` of [balancing] has a name twice".to_owned())
            }
            () if !self.replicas.iter().all(is_possible) || !self.replicas.is_sorted_by(|a, b| a < b) => {
                Err(format!("`replicas` of [balancing] are growing numbers from 1 to {REPLICAS_MAX}"))
            }
            () => Ok(()),
        }
    }

    /// The balancers in their order, without `direct`.
    ///
    /// # Errors
    /// [`Error::Arguments`] with the known names, if there is no balancer with a name.
    pub(in super::super) fn chosen(&self, own: &[BalancerEntry]) -> Result<Vec<BalancerEntry>> {
        let mut known = known()?;
        known.retain(|entry| own.iter().all(|own| own.name != entry.name));
        let known: Vec<BalancerEntry> = own.iter().cloned().chain(known).collect();
        known.iter().try_for_each(BalancerEntry::check)?;
        let find = |name: &String| {
            known.iter().find(|entry| entry.name == *name).cloned().ok_or_else(|| {
                let all: Vec<&str> = known.iter().map(|entry| entry.name.as_str()).collect();
                let all = all.join(", ");
                Error::Arguments(format!("there is no balancer `{name}`; there are: {DIRECT}, {all}"))
            })
        };
        self.balancers.iter().filter(|name| *name != DIRECT).map(find).collect()
    }
}

impl BalancerEntry {
    fn check(&self) -> Result<()> {
        let is_whole = matches!(
            (&self.command, &self.begin, &self.end),
            (Some(_), None, None) | (None, Some(_), Some(_))
        );
        let what = match () {
            () if self.name == DIRECT => "is the name of no balancer at all",
            () if !is_whole => "needs either `command`, or `begin` and `end`",
            () => return Ok(()),
        };
        Err(Error::Arguments(format!("balancer `{}` {what}", self.name)))
    }
}

fn known() -> Result<Vec<BalancerEntry>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Known {
        balancer: Vec<BalancerEntry>,
    }
    let read: Known =
        toml::from_str(KNOWN).map_err(|error| Error::Arguments(format!("recipes.toml: {error}")))?;
    Ok(read.balancer)
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(balancers: &[&str], replicas: &[u32]) -> BalancingEntry {
        let text = format!(
            "server = \"pondhawk\"\nbalancers = {balancers:?}\nreplicas = {replicas:?}\n\
             [[workload]]\nname = \"echo\"\ntitle = \"Echo\"\nbench = \"echo\""
        );
        toml::from_str(&text).unwrap()
    }

    #[test]
    fn balancers_are_known_and_a_balancer_of_the_file_takes_the_place_of_a_known_one() {
        let names = |entry: &BalancingEntry, own: &[BalancerEntry]| {
            let chosen = entry.chosen(own)?;
            Ok::<_, Error>(chosen.into_iter().map(|one| (one.name, one.program)).collect::<Vec<_>>())
        };
        let mine = "name = \"nginx\"\nprogram = \"mine\"\ncommand = \"mine {port}\"\nreplica = \"\"";
        let own = [toml::from_str(mine).unwrap()];
        let chosen = names(&entry(&["direct", "haproxy", "nginx"], &[1]), &own).unwrap();
        let expected = [("haproxy", "haproxy"), ("nginx", "mine")];
        assert_eq!(chosen, expected.map(|(name, program)| (name.to_owned(), program.to_owned())));
        let error = names(&entry(&["haprxy"], &[1]), &[]).unwrap_err().to_string();
        assert!(error.contains("`haprxy`") && error.contains("direct, haproxy"), "{error}");
        for wrong in ["", "begin = \"a\"", "command = \"a\"\nend = \"b\""] {
            let text = format!("name = \"mine\"\nprogram = \"mine\"\nreplica = \"\"\n{wrong}");
            let error = names(&entry(&["direct"], &[1]), &[toml::from_str(&text).unwrap()]).unwrap_err();
            assert!(error.to_string().contains("`mine` needs either"), "{error}");
        }
    }

    #[test]
    fn numbers_of_replicas_grow_and_are_bounded() {
        assert_eq!(entry(&["direct"], &[1, 64]).check(), Ok(()));
        for replicas in [&[0][..], &[65], &[2, 1], &[2, 2], &[]] {
            assert!(entry(&["direct"], replicas).check().is_err(), "{replicas:?}");
        }
        assert!(entry(&["direct", "direct"], &[1]).check().is_err());
        assert!(entry(&[], &[1]).check().is_err());
    }
}
