//! SIGHUP, and a file that has changed: the configuration is read again.
//!
//! A valid file takes the place of the former one, except for keys that need a restart, which the log names. An invalid file
//! changes nothing. docs/RELOAD.md says what changes mean for connections.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use config::{Applies, Change, Changes, Flags, Machine};
use net::Server;
use protocol::Instruments;

use crate::file;
use crate::logging::Logging;
use crate::running::Running;

/// The place from which the configuration comes.
pub(crate) struct Reload {
    path: Option<PathBuf>,
    flags: Flags,
    machine: Machine,
    figures: Arc<Figures>,
}

/// Values below `$SYS/broker/config/`.
#[derive(Debug, Default)]
struct Figures {
    reloads: AtomicU64,
    refused: AtomicU64,
}

impl Instruments for Figures {
    fn read(&self, say: &mut dyn FnMut(&str, String)) {
        say("config/reloads", self.reloads.load(Relaxed).to_string());
        say("config/refused", self.refused.load(Relaxed).to_string());
    }
}

/// Whether a file has no contents. At the start that means all defaults; a running broker would lose its listeners by it.
fn is_blank(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.len() == 0)
}

impl Reload {
    /// Keeps the place of a configuration that was loaded with these flags. A pipe has nothing to read again.
    pub(crate) fn new(path: Option<PathBuf>, flags: Flags, machine: Machine) -> Self {
        let path = path.filter(|path| path.is_file());
        Self { path, flags, machine, figures: Arc::default() }
    }

    /// The values for `$SYS`.
    pub(crate) fn instruments(&self) -> Arc<dyn Instruments> {
        Arc::clone(&self.figures) as Arc<dyn Instruments>
    }

    /// Reads the file and all files that it names again, and opens the files of the log again in any case.
    pub(crate) fn run(&self, running: &mut Running, server: &Server, log: &Logging) {
        let outcome = match &self.path {
            Some(path) if is_blank(path) => {
                Err(format!("{} is empty: a file that is being written is no configuration", path.display()))
            }
            Some(path) => match file::load(Some(path), &self.flags, &self.machine) {
                Ok(loaded) => running.reload(&loaded.config, server).map_err(|error| error.to_string()),
                Err(failure) => Err(failure.render(false)),
            },
            None => running.reload(&running.config.clone(), server).map_err(|error| error.to_string()),
        };
        log.change(&running.config.log);
        match outcome {
            Ok(changes) => self.tell(&changes),
            Err(why) => {
                let refused = self.figures.refused.fetch_add(1, Relaxed) + 1;
                tracing::error!(refused, "the configuration stays as it was: {why}");
            }
        }
    }

    /// Writes a line for each key that has changed, and one for the end of the reload.
    fn tell(&self, changes: &Changes) {
        let (later, now): (Vec<&Change>, Vec<&Change>) =
            changes.keys.iter().partition(|change| change.applies == Applies::Restart);
        for Change { key, value, .. } in &now {
            tracing::info!("{key} = {} from now on", if value.is_empty() { "none" } else { value });
        }
        for Change { key, value, .. } in &later {
            let value = if value.is_empty() { "none" } else { value };
            tracing::warn!("{key} = {value} needs a restart, and has no effect until then");
        }
        if now.is_empty() && later.is_empty() {
            tracing::info!("the configuration is as before");
        }
        let reloads = self.figures.reloads.fetch_add(1, Relaxed) + 1;
        tracing::info!(
            reloads,
            changed = now.len(),
            waiting = later.len(),
            "the configuration was read again"
        );
    }
}
