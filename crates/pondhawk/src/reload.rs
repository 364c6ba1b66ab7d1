//! SIGHUP, and a file that has changed: the configuration is read again.
//!
//! A valid file takes the place of the former one, except for keys that need a restart, which the log names. An invalid file
//! changes nothing. docs/RELOAD.md says what changes mean for connections.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use config::{Applies, Change, Changes, Config, Flags, Machine};
use net::Server;
use protocol::Instruments;

use crate::file::{self, Loaded};
use crate::files_read::{FilesRead, Stamps};
use crate::logging::Logging;
use crate::outcomes::{Outcomes, describe};
use crate::running::Running;
use crate::stamp::Stamp;
use crate::tls_files::TlsFiles;
use crate::watch::Watch;
use crate::{access, services, stack};

/// The reason for a reload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Somebody has asked for it.
    Asked,
    /// A file has changed.
    Changed,
}

/// The place from which the configuration comes.
pub(crate) struct Reload {
    path: Option<PathBuf>,
    flags: Flags,
    machine: Machine,
    watch: Watch<Stamp>,
    known: Known,
    /// The files without contents that are in force.
    empty: Vec<PathBuf>,
    figures: Arc<Figures>,
    outcomes: Outcomes,
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

impl Reload {
    /// Keeps the place of a configuration that was loaded from these files with these flags. A pipe has nothing to read again.
    pub(crate) fn new(path: Option<PathBuf>, flags: Flags, machine: Machine, files: FilesRead) -> Self {
        let path = path.filter(|path| path.is_file());
        let known = Known { in_force: files.contents(), refused: None };
        let (watch, empty) = (Watch::default(), files.empty());
        let (figures, outcomes) = (Arc::default(), Outcomes::default());
        let mut reload = Self { path, flags, machine, watch, known, empty, figures, outcomes };
        reload.note(files.stamps());
        reload
    }

    /// The values for `$SYS`.
    pub(crate) fn instruments(&self) -> Arc<dyn Instruments> {
        Arc::clone(&self.figures) as Arc<dyn Instruments>
    }

    /// The outcomes of all reloads.
    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }

    /// The time between two looks at the files. `None` if nobody looks at them.
    pub(crate) fn interval(&self, config: &Config) -> Option<Duration> {
        config.watch_interval.filter(|_| self.path.is_some())
    }

    /// Looks at each file once. Returns whether to read them now.
    pub(crate) fn look(&mut self) -> bool {
        self.watch.look(Stamp::of)
    }

    fn note(&mut self, stamps: Stamps) {
        let count = stamps.len();
        if !self.watch.note(stamps) {
            tracing::warn!(count, "there are too many files of the configuration to look at all of them");
        }
    }

    /// Reads the file and all files that it names again, and opens the files of the log again in any case.
    ///
    /// After a change, contents that are in force already, or that were refused before, end the reload.
    pub(crate) fn run(&mut self, cause: Cause, running: &mut Running, server: &Server, log: &Logging) {
        let outcome = match self.path.clone() {
            Some(path) => {
                let read = self.read(&path);
                if cause == Cause::Changed {
                    if self.known.has(read.contents, read.with_named) {
                        return self.note(read.stamps);
                    }
                    self.outcomes.begin(|| ());
                }
                self.take(read, |loaded| running.reload(&loaded.config, &loaded.origins, server))
            }
            None => {
                let (config, origins) = (running.config.clone(), running.origins().to_vec());
                running.reload(&config, &origins, server).map_err(|error| error.to_string())
            }
        };
        // A refusal quotes lines of the file.
        let outcome = outcome.map_err(|why| file::without_queries(&why));
        log.change(&running.config.log);
        self.outcomes.end(outcome.as_ref().map_err(String::as_str));
        match outcome {
            Ok(changes) => self.tell(&changes),
            Err(why) => {
                let refused = self.figures.refused.fetch_add(1, Relaxed) + 1;
                tracing::error!(refused, "the configuration stays as it was: {why}");
            }
        }
    }

    fn read(&self, path: &Path) -> Read {
        let files = FilesRead::default();
        let loaded = file::load(Some(path), &self.flags, &self.machine, &files);
        let mut empty = files.empty().into_iter().filter(|path| !self.empty.contains(path));
        let loaded = match empty.next() {
            Some(path) => Err(format!(
                "{} is empty: a file that is being written is no configuration",
                wire::Shown(path.display())
            )),
            None => loaded.map_err(|failure| failure.render(false)),
        };
        let named = loaded.as_ref().map_or_else(|_| Vec::new(), |loaded| named(&loaded.config));
        let named_stamps: Stamps = named.iter().map(|path| (path.clone(), Stamp::of(path))).collect();
        let contents = files.contents();
        Read {
            loaded,
            empty: files.empty(),
            contents,
            with_named: with_named(contents, &named),
            stamps: files.stamps(),
            named_stamps,
        }
    }

    /// Uses a configuration that was read.
    fn take(
        &mut self,
        read: Read,
        use_it: impl FnOnce(&Loaded) -> io::Result<Changes>,
    ) -> Result<Changes, String> {
        let Read { loaded, empty, contents, with_named, mut stamps, named_stamps } = read;
        let used = loaded.and_then(|loaded| use_it(&loaded).map_err(|error| error.to_string()));
        if used.is_ok() {
            self.known = Known { in_force: contents, refused: None };
            self.empty = empty;
        } else {
            self.known.refused = Some(with_named);
            // The mistake may be in a file that the configuration names.
            stamps.extend(named_stamps);
        }
        self.note(stamps);
        used
    }

    /// Writes a line for each key that has changed, and one for the end of the reload.
    fn tell(&self, changes: &Changes) {
        let (later, now): (Vec<&Change>, Vec<&Change>) =
            changes.keys.iter().partition(|change| change.applies == Applies::Restart);
        now.iter().for_each(|change| tracing::info!("{}", describe(change)));
        later.iter().for_each(|change| tracing::warn!("{}", describe(change)));
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

/// The contents about which the broker has decided. A changed file with such contents is no news.
#[derive(Debug)]
struct Known {
    /// Hash of the contents of the files whose configuration is in force.
    in_force: u64,
    /// Hash of the contents that were refused since then, with those of the files that the configuration names.
    refused: Option<u64>,
}

impl Known {
    /// Whether the files are those in force, or were refused before.
    fn has(&mut self, contents: u64, with_named: u64) -> bool {
        if contents != self.in_force {
            return self.refused == Some(with_named);
        }
        if self.refused.take().is_some() {
            tracing::info!("the files of the configuration are again those in force");
        }
        true
    }
}

/// The files of a configuration, as they were read.
struct Read {
    loaded: Result<Loaded, String>,
    /// The files among them that have no contents.
    empty: Vec<PathBuf>,
    /// Hash of their contents.
    contents: u64,
    /// The same with the contents of the files that the configuration names.
    with_named: u64,
    stamps: Stamps,
    named_stamps: Stamps,
}

/// The files that a configuration names, and that a reload reads.
pub(crate) fn named(config: &Config) -> Vec<PathBuf> {
    let tls = config.listeners.iter().map(TlsFiles::of).chain(TlsFiles::of_admin(&config.admin));
    let of_tls = tls.flat_map(|tls| tls.paths().cloned().collect::<Vec<_>>());
    let of = |listener| access::paths(listener).cloned();
    let of_vouchers = config.jwt.key_file.iter().chain(services::paths(config)).cloned();
    let mut paths: Vec<PathBuf> =
        config.listeners.iter().flat_map(of).chain(of_tls).chain(of_vouchers).collect();
    paths.sort();
    paths.dedup();
    paths
}

fn with_named(contents: u64, paths: &[PathBuf]) -> u64 {
    let mut all = DefaultHasher::new();
    all.write_u64(contents);
    paths.iter().for_each(|path| stack::contents(path).ok().hash(&mut all));
    all.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_that_were_refused_are_news_again_after_others() {
        let mut known = Known { in_force: 1, refused: None };
        assert!(known.has(1, 10));
        assert!(!known.has(2, 20));
        known.refused = Some(20);
        assert!(known.has(2, 20));
        // A file that the configuration names has changed.
        assert!(!known.has(2, 21));
        assert!(known.has(1, 10));
        assert!(!known.has(2, 20));
    }
}
