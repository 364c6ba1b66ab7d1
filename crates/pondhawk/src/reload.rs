//! SIGHUP: the configuration is read again.
//!
//! Of a valid file everything counts that can change while the broker runs, and the log names the rest, which needs a
//! restart. An invalid file changes nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use config::{Config, Flags, Machine};

use crate::file;
use crate::logging::Logging;

/// The configuration in force, and the place from which it comes.
pub(crate) struct Reload {
    path: Option<PathBuf>,
    flags: Flags,
    machine: Machine,
    current: Config,
    /// The same as text, for operators.
    in_force: Arc<Mutex<String>>,
}

impl Reload {
    /// Keeps the place of a configuration that was loaded with these flags. A pipe has nothing to read again.
    pub(crate) fn new(path: Option<PathBuf>, flags: Flags, machine: Machine, current: Config) -> Self {
        let path = path.filter(|path| path.is_file());
        let in_force = Arc::new(Mutex::new(current.to_toml()));
        Self { path, flags, machine, current, in_force }
    }

    /// The configuration in force as a file, kept up to date. It names files with secrets, and has none itself.
    pub(crate) fn in_force(&self) -> Arc<Mutex<String>> {
        Arc::clone(&self.in_force)
    }

    /// Reads the file again, and opens the files of the log again in any case.
    pub(crate) fn run(&mut self, log: &Logging) {
        let loaded = match &self.path {
            Some(path) => file::load(Some(path), &self.flags, &self.machine),
            None => return log.change(&self.current.log),
        };
        match loaded {
            Ok(loaded) => self.change(loaded.config, log),
            Err(failure) => {
                log.change(&self.current.log);
                tracing::error!(
                    "the configuration stays as it was, because the file is refused: {}",
                    failure.render(false)
                );
            }
        }
    }

    fn change(&mut self, new: Config, log: &Logging) {
        let changes = differences(&self.current, &new);
        log.change(&new.log);
        let (at_once, later): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|(key, _)| is_changed_at_once(key));
        for (key, value) in &at_once {
            tracing::info!("{key} = {value} from now on");
        }
        for (key, value) in &later {
            tracing::warn!("{key} = {value} needs a restart, and has no effect until then");
        }
        if at_once.is_empty() && later.is_empty() {
            tracing::info!("the configuration is as before");
        }
        let format = self.current.log.format;
        self.current.log = config::Log { format, ..new.log };
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = self.current.to_toml();
    }
}

/// Whether a change of the key needs no restart.
fn is_changed_at_once(key: &str) -> bool {
    ["log.level", "log.to"].contains(&key)
}

/// The keys with other values, and these values. A key that is gone has none.
fn differences(old: &Config, new: &Config) -> Vec<(String, String)> {
    let (old, new) = (values(old), values(new));
    let changed = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), "none".to_owned()));
    changed.map(|(key, value)| (key.clone(), value.clone())).chain(gone).collect()
}

/// All values, by the names of keys with their tables. Listeners count from 0.
fn values(config: &Config) -> BTreeMap<String, String> {
    let mut values = BTreeMap::new();
    let mut table = String::new();
    let mut listeners = 0;
    for line in config.to_toml().lines() {
        if let Some(name) = line.strip_prefix("[[") {
            table = format!("{}[{listeners}].", name.trim_end_matches("]]"));
            listeners += 1;
        } else if let Some(name) = line.strip_prefix('[') {
            table = format!("{}.", name.trim_end_matches(']'));
        } else if let Some((key, value)) = line.split_once(" = ") {
            values.insert(format!("{table}{key}"), value.to_owned());
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use config::Source;

    use super::*;

    fn parse(text: &str) -> Config {
        let machine =
            Machine { cores: 1, memory_bytes: 1 << 30, open_files: 1_024, state_dir: PathBuf::from("/s") };
        Config::parse(Some(Source { name: "pond.toml", text }), &Flags::default(), &machine).unwrap()
    }

    #[test]
    fn each_key_with_another_value_is_a_difference() {
        let old =
            parse("pid_file = \"/a\"\n[[listener]]\naddress = \"127.0.0.1:1\"\n[log]\nlevel = \"warn\"\n");
        let new = parse("[[listener]]\naddress = \"127.0.0.1:2\"\n[log]\nlevel = \"info\"\n");
        let keys: Vec<String> = differences(&old, &new).into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["listener[0].address", "log.level", "pid_file"]);
        assert!(differences(&new, &new).is_empty());
    }
}
