//! A server of a shoot-out, and how it is started afresh for each run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use super::description::ServerEntry;
use crate::error::{Error, Result};
use crate::host::CpuList;
use crate::interrupt::Interrupt;
use crate::measure::Target;
use crate::process::Process;
use crate::server::{Started, free_address, is_on_path};

/// Folder of servers that `cargo xtask shootout --install` makes, below the working directory.
const INSTALLED: &str = "target/peers";

/// The same, if it is somewhere else.
const INSTALLED_VARIABLE: &str = "PONDHAWK_PEERS";

/// A server with its recipe.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) entry: ServerEntry,
    places: Places,
}

/// Folders and programs that recipes name.
#[derive(Debug, Clone)]
pub(super) struct Places {
    peers: PathBuf,
    own: PathBuf,
}

/// A server that accepts connections. It ends, and its folder goes, when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) target: Target,
    /// Killed when this is dropped: its data go with it, so nobody waits until they are in order.
    started: Option<Started>,
    // Dropped last: a server may write until it has ended.
    _folder: Folder,
}

/// A folder that is removed with everything in it.
#[derive(Debug)]
struct Folder(PathBuf);

/// The recipe of a server with all its words replaced, at one address and in one folder.
#[derive(Debug)]
pub(super) struct Recipe<'a> {
    peer: &'a Peer,
    command: &'a str,
    files: &'a BTreeMap<String, String>,
    address: SocketAddr,
    folder: Folder,
}

impl Places {
    /// The folders of this process.
    ///
    /// # Errors
    /// If the system does not know them.
    pub(super) fn find() -> Result<Self> {
        let own = env::current_exe().map_err(Error::io("find this program"))?;
        let here = env::current_dir().map_err(Error::io("find the working directory"))?;
        let peers = env::var_os(INSTALLED_VARIABLE).map_or_else(|| here.join(INSTALLED), PathBuf::from);
        Ok(Self { peers, own })
    }

    fn fill_in(&self, text: &str) -> String {
        let text = text.replace("{peers}", &self.peers.display().to_string());
        text.replace("{self}", &self.own.display().to_string())
    }
}

impl Peer {
    pub(super) fn new(entry: ServerEntry, places: Places) -> Self {
        Self { entry, places }
    }

    pub(super) fn name(&self) -> &str {
        &self.entry.name
    }

    /// What to do to install the server, if it is not installed.
    pub(super) fn absence(&self) -> Option<String> {
        let program = self.places.fill_in(&self.entry.program);
        let is_there =
            if program.contains('/') { Path::new(&program).exists() } else { is_on_path(&program) };
        let how = "`cargo xtask shootout --install` installs what package registries have";
        (!is_there).then(|| format!("not installed: there is no {program} ({how})"))
    }

    /// The version that the server reports.
    pub(super) fn version(&self) -> String {
        let Some(command) = &self.entry.version else { return "unknown".to_owned() };
        let output = Command::new("sh").arg("-c").arg(self.places.fill_in(command)).output();
        let text = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("unknown");
        // It goes to a terminal and into pages.
        line.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
    }

    /// Makes an empty folder for the server in `parent`, which is a whole path.
    ///
    /// # Errors
    /// If the system refuses the folder, or has no port left.
    pub(super) fn recipe(&self, parent: &Path) -> Result<Recipe<'_>> {
        self.recipe_of(parent, &self.entry.command, &self.entry.files)
    }

    /// The same with the settings for which the server claims durability; `None` if it claims none.
    ///
    /// # Errors
    /// As [`Self::recipe`].
    pub(super) fn durable_recipe(&self, parent: &Path) -> Result<Option<Recipe<'_>>> {
        let durable = self.entry.durable.as_ref();
        durable.map(|durable| self.recipe_of(parent, &durable.command, &durable.files)).transpose()
    }

    fn recipe_of<'a>(
        &'a self,
        parent: &Path,
        command: &'a str,
        files: &'a BTreeMap<String, String>,
    ) -> Result<Recipe<'a>> {
        let address = free_address()?;
        let folder = parent.join(format!("server-{}-{}", std::process::id(), address.port()));
        fs::create_dir(&folder)
            .map_err(Error::io(format!("make the directory {}", wire::Shown(folder.display()))))?;
        Ok(Recipe { peer: self, command, files, address, folder: Folder(folder) })
    }
}

impl Recipe<'_> {
    /// Starts the server, and waits until it accepts connections.
    ///
    /// # Errors
    /// [`Error::Server`] if it does not start; else if a file cannot be written, or there was an interrupt.
    pub(super) fn start(self, cpus: Option<&CpuList>, interrupt: &Interrupt) -> Result<Running> {
        let (started, target) = self.launch(cpus, interrupt)?;
        Ok(Running { target, started: Some(started), _folder: self.folder })
    }

    /// Starts the server in its folder, perhaps again. The folder stays.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(super) fn launch(&self, cpus: Option<&CpuList>, interrupt: &Interrupt) -> Result<(Started, Target)> {
        for (name, text) in self.files {
            let path = self.folder.0.join(name);
            let folder = path.parent().unwrap_or(&self.folder.0);
            fs::create_dir_all(folder)
                .and_then(|()| fs::write(&path, self.fill_in(text)))
                .map_err(Error::io(format!("write {}", wire::Shown(path.display()))))?;
        }
        let mut started = Started::by_shell(&self.fill_in(self.command), cpus)?;
        let patience = Duration::from_secs(self.peer.entry.start_secs);
        started.wait_until_it_accepts(self.address, patience, interrupt)?;
        // The process that was started may be a script.
        let process = Process::listening_on(self.address).or_else(|| started.process());
        Ok((started, Target::plain(self.address, process)))
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    fn fill_in(&self, text: &str) -> String {
        let text = self.peer.places.fill_in(text);
        let text = text.replace("{port}", &self.address.port().to_string());
        text.replace("{dir}", &self.folder.0.display().to_string())
    }
}

impl Running {
    /// Whether the server still runs.
    pub(super) fn is_alive(&mut self) -> bool {
        self.started.as_mut().is_some_and(Started::is_alive)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(started) = self.started.take() {
            // Fails only if the process has ended already.
            let _ = started.crash();
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A remaining folder only takes space.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(program: &str, command: &str) -> Peer {
        let text = format!(
            "name = \"toy\"\nprogram = \"{program}\"\ncommand = \"{command}\"\n[files]\n\"a/b\" = \"{{port}} {{dir}}\""
        );
        let entry: ServerEntry = toml::from_str(&text).unwrap();
        Peer::new(entry, Places { peers: "/peers".into(), own: "/bin/pondhawk".into() })
    }

    #[test]
    fn words_of_a_recipe_are_replaced() {
        let peer = peer("{peers}/toy/toy", "{self} {peers} {port} {dir}");
        let recipe = peer.recipe(&env::temp_dir()).unwrap();
        let (port, folder) = (recipe.address.port(), recipe.folder.0.display().to_string());
        assert_eq!(recipe.fill_in(recipe.command), format!("/bin/pondhawk /peers {port} {folder}"));
        assert!(peer.absence().unwrap().contains("/peers/toy/toy"));
        drop(recipe);
        assert!(!Path::new(&folder).exists());
    }

    #[test]
    fn a_server_that_ends_at_once_is_a_failure_and_its_files_are_there() {
        let peer = peer("sh", "sh -c 'test -s {dir}/a/b && exit 7'");
        assert_eq!(peer.absence(), None);
        let error = peer
            .recipe(&env::temp_dir())
            .unwrap()
            .start(None, &Interrupt::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("exit status: 7"), "{error}");
    }
}
