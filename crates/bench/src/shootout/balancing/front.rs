//! A load balancer, and how it is started in front of replicas.

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::Duration;

use super::super::Setting;
use super::super::description::ServerEntry;
use super::super::peer::{Folder, LOCALHOST, Member, Places, first_line};
use super::{Balancer, BalancerEntry};
use crate::error::{Error, Result};
use crate::layers::Over;
use crate::process::ProcessGroup;
use crate::server::{Started, accepts, free_address_at};

/// Time limit for a balancer to accept connections.
const START_PATIENCE: Duration = Duration::from_secs(15);

/// A load balancer with its recipe.
#[derive(Debug, Clone)]
pub(super) struct Front {
    entry: BalancerEntry,
    places: Places,
}

/// A load balancer that accepts connections.
pub(super) struct Serving {
    pub(super) address: SocketAddr,
    /// Its processes, unless it is inside the kernel.
    pub(super) group: Option<ProcessGroup>,
    pub(super) member: Option<Member>,
    pub(super) ending: Option<Ending>,
}

/// The command that ends a balancer inside the kernel, which runs when this is dropped.
#[derive(Debug)]
pub(in super::super) struct Ending(String);

/// The values of the words of a recipe.
struct Words<'a> {
    port: &'a str,
    folder: &'a str,
    /// Ports of the replicas.
    replicas: Vec<String>,
}

impl Front {
    pub(super) fn new(entry: BalancerEntry, places: Places) -> Self {
        Self { entry, places }
    }

    pub(super) fn name(&self) -> &str {
        &self.entry.name
    }

    pub(super) fn has_proxy(&self) -> bool {
        self.entry.proxy
    }

    /// Why it cannot be measured in front of this server, if it cannot.
    pub(super) fn absence(&self, server: &ServerEntry) -> Option<String> {
        if let Some(absence) = self.places.absence_of(&self.entry.program) {
            return Some(absence);
        }
        if self.entry.proxy && server.proxied.is_none() {
            return Some(format!("{} has no recipe for the PROXY protocol", server.name));
        }
        let check = self.entry.check.as_ref()?;
        match shell(&self.places.fill_in(check)) {
            Ok(output) if output.status.success() => None,
            Ok(output) => {
                let why = first_line(&[output.stderr, output.stdout].concat());
                Some(format!("not possible on this machine: `{check}` says: {why}"))
            }
            Err(error) => Some(format!("not possible on this machine: {error}")),
        }
    }

    /// The balancer in the report, with its configuration for this number of replicas.
    pub(super) fn description(&self, server: &ServerEntry, replicas: u32) -> Balancer {
        let absence = self.absence(server);
        let entry = &self.entry;
        let version =
            if absence.is_some() { String::new() } else { self.places.version_of(entry.version.as_deref()) };
        let ports = (1..=replicas).map(|number| format!("{{port of replica {number}}}"));
        let words = Words { port: "{port}", folder: "{dir}", replicas: ports.collect() };
        let files = entry.files.iter().map(|(name, text)| (name.clone(), self.replaced(text, &words)));
        let commands: Vec<String> = [&entry.command, &entry.begin, &entry.end]
            .into_iter()
            .flatten()
            .map(|command| self.replaced(command, &words))
            .collect();
        let untried = "the recipe follows the documentation of the balancer, and nobody has run it yet";
        let untried = (!entry.tried).then(|| untried.to_owned());
        Balancer {
            name: entry.name.clone(),
            version,
            command: commands.join("\n"),
            files: files.collect(),
            fairness: entry.fairness.clone(),
            notes: entry.notes.iter().cloned().chain(untried).collect(),
            absence,
        }
    }

    /// Starts it in front of these replicas, and waits until it accepts connections.
    ///
    /// # Errors
    /// [`Error::Server`] if it does not start; else if the system refuses something, or there was an interrupt.
    pub(super) fn start(&self, setting: &Setting, replicas: &[SocketAddr]) -> Result<Serving> {
        let address = free_address_at(setting.address)?;
        let folder = Folder::make(setting, "balancer", address.port())?;
        let (port, path) = (address.port().to_string(), folder.0.display().to_string());
        let ports = replicas.iter().map(|replica| replica.port().to_string());
        let words = Words { port: &port, folder: &path, replicas: ports.collect() };
        let ip = address.ip().to_string();
        let fill_in = |text: &str| self.places.fill_in(&self.replaced(text, &words)).replace(LOCALHOST, &ip);
        self.entry.files.iter().try_for_each(|(name, text)| folder.write(name, &fill_in(text)))?;
        let Some(command) = &self.entry.command else {
            let commands =
                [&self.entry.begin, &self.entry.end].map(|command| command.as_deref().unwrap_or(""));
            return in_kernel(address, commands.map(fill_in));
        };
        let of_balancer = |error: Error| error.of("the balancer");
        let mut started =
            Started::by_shell(&fill_in(command), setting.balancer_cpus.as_ref()).map_err(of_balancer)?;
        started
            .wait_until_it_accepts(address, Over::Tcp, START_PATIENCE, &setting.interrupt)
            .map_err(of_balancer)?;
        let group = started.group();
        let member = Some(Member::new("the balancer ", started, folder));
        Ok(Serving { address, group, member, ending: None })
    }

    /// A text with its words replaced, but for those of [`Places::fill_in`].
    fn replaced(&self, text: &str, words: &Words<'_>) -> String {
        let replica = |(number, port): (usize, &String)| {
            self.entry.replica.replace("{number}", &number.to_string()).replace("{replica_port}", port)
        };
        let replicas: String = (1..).zip(&words.replicas).map(replica).collect();
        let text = text.replace("{replicas}", replicas.trim_end_matches('\n'));
        text.replace("{port}", words.port).replace("{dir}", words.folder)
    }
}

/// Begins a balancer inside the kernel, which has no process.
fn in_kernel(address: SocketAddr, [begin, end]: [String; 2]) -> Result<Serving> {
    // From now on, because the first of several commands may have had its effect.
    let ending = Some(Ending(end));
    let output = shell(&begin).map_err(Error::io("begin a balancer"))?;
    if !output.status.success() {
        let why = first_line(&[output.stderr, output.stdout].concat());
        return Err(Error::Server(format!("the balancer could not be started: {why}")));
    }
    if !accepts(address) {
        return Err(Error::Server("the balancer does not accept connections".to_owned()));
    }
    Ok(Serving { address, group: None, member: None, ending })
}

fn shell(command: &str) -> std::io::Result<Output> {
    // Debian's folder of such programs is not on every user's path.
    let command = format!("PATH=\"$PATH:/usr/sbin:/sbin\"; {command}");
    Command::new("sh").arg("-c").arg(command).output()
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Nobody is there to be told; the next balancer has another port.
        let _ = shell(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(keys: &str) -> Front {
        let text = format!(
            "name = \"toy\"\nprogram = \"sh\"\nreplica = \"to {{number}} {{replica_port}}\\n\"\n{keys}"
        );
        Front::new(toml::from_str(&text).unwrap(), Places::find().unwrap())
    }

    fn server(keys: &str) -> ServerEntry {
        toml::from_str(&format!("name = \"mine\"\nprogram = \"sh\"\ncommand = \"sh\"\n{keys}")).unwrap()
    }

    #[test]
    fn the_configuration_in_the_report_has_a_line_for_each_replica() {
        let front = front(
            "command = \"toy {dir}/toy.conf\"\n[files]\n\"toy.conf\" = \"on {port}\\n{replicas}\\nend\"",
        );
        let shown = front.description(&server(""), 2);
        assert_eq!(shown.command, "toy {dir}/toy.conf");
        let text = "on {port}\nto 1 {port of replica 1}\nto 2 {port of replica 2}\nend";
        assert_eq!(shown.files, [("toy.conf".to_owned(), text.to_owned())]);
    }

    #[test]
    fn the_reason_of_an_absence_is_that_of_the_machine_or_of_the_server() {
        let absence = |keys: &str, of: &str| front(keys).absence(&server(of));
        assert_eq!(absence("command = \"a\"", ""), None);
        assert_eq!(absence("command = \"a\"\ncheck = \"true\"", ""), None);
        let why = absence("command = \"a\"\ncheck = \"echo no such module >&2; false\"", "").unwrap();
        assert!(why.starts_with("not possible on this machine") && why.ends_with("no such module"), "{why}");
        let why = absence("command = \"a\"\nproxy = true", "").unwrap();
        assert_eq!(why, "mine has no recipe for the PROXY protocol");
        assert_eq!(absence("command = \"a\"\nproxy = true", "[proxied]\ncommand = \"a\""), None);
    }

    #[test]
    fn a_balancer_in_the_kernel_is_ended_whether_or_not_it_began() {
        let ended = std::env::temp_dir().join(format!("pondhawk-balancer-ended-{}", std::process::id()));
        let keys = format!("begin = \"echo refused >&2; false\"\nend = \"touch {}\"", ended.display());
        let error = front(&keys).start(&Setting::of_tests(), &[]).err().unwrap().to_string();
        assert!(error.contains("the balancer could not be started: refused"), "{error}");
        std::fs::remove_file(ended).expect("the command for the end has run");
    }
}
