//! A server of a shoot-out, and how it is started afresh for each run.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use super::Setting;
use super::balancing::Ending;
use super::description::{Durable, Proxied, ServerEntry};
use crate::error::{Error, Result};
use crate::host::CpuList;
use crate::interrupt::Interrupt;
use crate::layers::{Over, Trust};
use crate::measure::Target;
use crate::process::Process;
use crate::server::{Started, fill_in, free_address_at, is_on_path, target};

/// Folder of servers that `cargo xtask shootout --install` makes, below the working directory.
const INSTALLED: &str = "target/peers";

/// The same, if it is somewhere else.
const INSTALLED_VARIABLE: &str = "PONDHAWK_PEERS";

/// The address of servers in recipes, unless agents connect to another address of this machine.
pub(super) const LOCALHOST: &str = "127.0.0.1";

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

/// Something that is started and measured: a server, or several behind a load balancer.
pub(super) trait Contestant {
    /// Its name in tables.
    fn name(&self) -> &str;

    /// The server.
    fn peer(&self) -> &Peer;

    /// Starts everything, and waits until it accepts connections.
    ///
    /// # Errors
    /// [`Error::Server`] if it does not start; else if the system refuses something, or there was an interrupt.
    fn start(&self, setting: &Setting, over: Over) -> Result<Running>;
}

/// Programs that accept connections. They end, and their folders go, when this is dropped.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) target: Target,
    /// Ends a load balancer inside the kernel.
    _ending: Option<Ending>,
    members: Vec<Member>,
}

/// A program that runs in a folder of its own.
#[derive(Debug)]
pub(super) struct Member {
    /// The words with which a failure begins, if there are several programs, such as `replica 2 `.
    role: String,
    /// Killed when this is dropped: its data go with it, so nobody waits until they are in order.
    started: Option<Started>,
    // Dropped last: a server may write until it has ended.
    _folder: Folder,
}

/// A folder that is removed with everything in it.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

/// The recipe of a server with all its words replaced, at one address and in one folder.
#[derive(Debug)]
pub(super) struct Recipe<'a> {
    peer: &'a Peer,
    command: &'a str,
    files: &'a BTreeMap<String, String>,
    /// The layers of connections, with the certificate for them.
    over: Over,
    trust: &'a Trust,
    address: SocketAddr,
    /// A free port for a listener that the server insists on, and that nobody connects to.
    spare_port: u16,
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

    pub(super) fn fill_in(&self, text: &str) -> String {
        let text = text.replace("{peers}", &self.peers.display().to_string());
        text.replace("{self}", &self.own.display().to_string())
    }

    /// What to do to install a program, if it is not installed.
    pub(super) fn absence_of(&self, program: &str) -> Option<String> {
        let program = self.fill_in(program);
        let is_there =
            if program.contains('/') { Path::new(&program).exists() } else { is_on_path(&program) };
        let how = "`cargo xtask shootout --install` installs what package registries have";
        (!is_there).then(|| format!("not installed: there is no {program} ({how})"))
    }

    /// The version that a command reports.
    pub(super) fn version_of(&self, command: Option<&str>) -> String {
        let Some(command) = command else { return "unknown".to_owned() };
        let output = Command::new("sh").arg("-c").arg(self.fill_in(command)).output();
        first_line(&output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default())
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
        self.places.absence_of(&self.entry.program)
    }

    /// The version that the server reports.
    pub(super) fn version(&self) -> String {
        self.places.version_of(self.entry.version.as_deref())
    }

    /// Whether there are settings for connections over these layers.
    pub(super) fn has_recipe(&self, over: Over) -> bool {
        over == Over::Tcp || self.entry.layers.contains_key(&over)
    }

    /// Makes an empty folder for the server, for connections over these layers.
    ///
    /// # Errors
    /// If the system refuses the folder, or has no port left.
    pub(super) fn recipe<'a>(&'a self, setting: &'a Setting, over: Over) -> Result<Recipe<'a>> {
        let layered = self.entry.layers.get(&over);
        let command = layered.and_then(|layered| layered.command.as_ref()).unwrap_or(&self.entry.command);
        let files = layered.map_or(&self.entry.files, |layered| &layered.files);
        self.recipe_of(setting, over, command, files)
    }

    /// The same for a replica behind a load balancer that announces clients with the PROXY protocol; `None` if there are
    /// no settings for that.
    ///
    /// # Errors
    /// As [`Self::recipe`].
    pub(super) fn proxied_recipe<'a>(&'a self, setting: &'a Setting) -> Result<Option<Recipe<'a>>> {
        let proxied = self.entry.proxied.as_ref();
        let recipe =
            |proxied: &'a Proxied| self.recipe_of(setting, Over::Tcp, &proxied.command, &proxied.files);
        proxied.map(recipe).transpose()
    }

    /// The same with the settings for which the server claims durability; `None` if it claims none.
    ///
    /// # Errors
    /// As [`Self::recipe`].
    pub(super) fn durable_recipe<'a>(&'a self, setting: &'a Setting) -> Result<Option<Recipe<'a>>> {
        let durable = self.entry.durable.as_ref();
        let recipe =
            |durable: &'a Durable| self.recipe_of(setting, Over::Tcp, &durable.command, &durable.files);
        durable.map(recipe).transpose()
    }

    fn recipe_of<'a>(
        &'a self,
        setting: &'a Setting,
        over: Over,
        command: &'a str,
        files: &'a BTreeMap<String, String>,
    ) -> Result<Recipe<'a>> {
        let trust = &setting.trust;
        let address = free_address_at(setting.address)?;
        let mut spare_port = free_address_at(setting.address)?.port();
        while spare_port == address.port() {
            spare_port = free_address_at(setting.address)?.port();
        }
        let folder = Folder::make(setting, "server", address.port())?;
        Ok(Recipe { peer: self, command, files, over, trust, address, spare_port, folder })
    }
}

impl Recipe<'_> {
    /// Starts the server, and waits until it accepts connections.
    ///
    /// # Errors
    /// [`Error::Server`] if it does not start; else if a file cannot be written, or there was an interrupt.
    pub(super) fn start(self, cpus: Option<&CpuList>, interrupt: &Interrupt) -> Result<Running> {
        let (started, target) = self.launch(cpus, interrupt)?;
        let member = Member::new("", started, self.folder);
        Ok(Running::new(target, vec![member]))
    }

    /// Starts the server in its folder, perhaps again. The folder stays.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub(super) fn launch(&self, cpus: Option<&CpuList>, interrupt: &Interrupt) -> Result<(Started, Target)> {
        self.files.iter().try_for_each(|(name, text)| self.folder.write(name, &self.fill_in(text)))?;
        let mut started = Started::by_shell(&self.fill_in(self.command), cpus)?;
        let patience = Duration::from_secs(self.peer.entry.start_secs);
        started.wait_until_it_accepts(self.address, self.over, patience, interrupt)?;
        // The process that was started may be a script.
        let process = Process::listening_on(self.address).or_else(|| started.process());
        Ok((started, target(self.address, self.over, self.trust, process)?))
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    fn fill_in(&self, text: &str) -> String {
        let text = fill_in(&self.peer.places.fill_in(text), self.address, self.trust);
        let text = text.replace("{spare_port}", &self.spare_port.to_string());
        let text = text.replace(LOCALHOST, &self.address.ip().to_string());
        text.replace("{dir}", &self.folder.0.display().to_string())
    }
}

impl Contestant for Peer {
    fn name(&self) -> &str {
        &self.entry.name
    }

    fn peer(&self) -> &Peer {
        self
    }

    fn start(&self, setting: &Setting, over: Over) -> Result<Running> {
        self.recipe(setting, over)?.start(setting.server_cpus.as_ref(), &setting.interrupt)
    }
}

impl Running {
    pub(super) fn new(target: Target, members: Vec<Member>) -> Self {
        Self { target, _ending: None, members }
    }

    /// The same with a command that runs when this is dropped.
    pub(super) fn ended_by(self, ending: Option<Ending>) -> Self {
        Self { _ending: ending, ..self }
    }

    /// Adds the programs of another one, each with this role. Returns its target.
    pub(super) fn adopt(members: &mut Vec<Member>, mut other: Self, role: &str) -> Target {
        for mut member in other.members.drain(..) {
            member.role = format!("{role} ");
            members.push(member);
        }
        other.target
    }

    /// The failure of the first program that has ended, if one has.
    pub(super) fn ended(&mut self) -> Option<String> {
        let is_alive = |member: &mut Member| member.started.as_mut().is_some_and(Started::is_alive);
        let ended = self.members.iter_mut().position(|member| !is_alive(member))?;
        Some(format!("{}ended during the run", self.members[ended].role))
    }
}

impl Member {
    pub(super) fn new(role: &str, started: Started, folder: Folder) -> Self {
        Self { role: role.to_owned(), started: Some(started), _folder: folder }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        if let Some(started) = self.started.take() {
            // Fails only if the process has ended already.
            let _ = started.crash();
        }
    }
}

impl Folder {
    /// Makes an empty folder for a program that listens on this port.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(super) fn make(setting: &Setting, kind: &str, port: u16) -> Result<Self> {
        let folder = setting.folder.join(format!("{kind}-{}-{port}", std::process::id()));
        fs::create_dir(&folder)
            .map_err(Error::io(format!("make the directory {}", wire::Shown(folder.display()))))?;
        Ok(Self(folder))
    }

    /// Writes a file in it.
    ///
    /// # Errors
    /// If the system refuses it.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.0.join(name);
        let folder = path.parent().unwrap_or(&self.0);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, text))
            .map_err(Error::io(format!("write {}", wire::Shown(path.display()))))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A remaining folder only takes space.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The first line of an output with anything in it, fit for a terminal and for pages.
pub(super) fn first_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("unknown");
    line.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::TrustArgs;

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
        let setting = Setting::of_tests();
        let recipe = peer.recipe(&setting, Over::Tcp).unwrap();
        let (port, folder) = (recipe.address.port(), recipe.folder.0.display().to_string());
        assert_eq!(recipe.fill_in(recipe.command), format!("/bin/pondhawk /peers {port} {folder}"));
        assert!(peer.absence().unwrap().contains("/peers/toy/toy"));
        drop(recipe);
        assert!(!Path::new(&folder).exists());
    }

    #[test]
    fn layers_have_files_of_their_own_and_may_have_a_command() {
        let text = "name = \"toy\"\nprogram = \"toy\"\ncommand = \"plain\"\n[files]\n\"a\" = \"plain\"\n\
            [layers.tls]\ncommand = \"tls {cert} {key}\"\n[layers.ws]\n[layers.ws.files]\n\"b\" = \"{spare_port}\"";
        let peer = Peer::new(toml::from_str(text).unwrap(), Places { peers: "/".into(), own: "/".into() });
        let made = Trust::new(&TrustArgs::default(), true, true).unwrap();
        let setting = Setting { trust: made, ..Setting::of_tests() };
        let of = |over| {
            let recipe = peer.recipe(&setting, over).unwrap();
            let names: Vec<_> = recipe.files.keys().cloned().collect();
            (recipe.fill_in(recipe.command), names.join(" "))
        };
        assert_eq!(of(Over::Tcp), ("plain".to_owned(), "a".to_owned()));
        assert_eq!(of(Over::Ws), ("plain".to_owned(), "b".to_owned()));
        let (command, files) = of(Over::Tls);
        assert!(command.starts_with("tls /") && !command.contains('{'), "{command}");
        assert_eq!(files, "");
        let known = [Over::Tcp, Over::Tls, Over::Ws, Over::Wss].map(|over| peer.has_recipe(over));
        assert_eq!(known, [true, true, true, false]);
    }

    #[test]
    fn a_server_that_ends_at_once_is_a_failure_and_its_files_are_there() {
        let peer = peer("sh", "sh -c 'test -s {dir}/a/b && exit 7'");
        assert_eq!(peer.absence(), None);
        let error = peer
            .recipe(&Setting::of_tests(), Over::Tcp)
            .unwrap()
            .start(None, &Interrupt::default())
            .unwrap_err()
            .to_string();
        assert!(error.contains("exit status: 7"), "{error}");
    }
}
