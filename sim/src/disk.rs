//! The directory of the broker's journal, and everything that may go wrong with it.

use std::sync::Arc;

use journal::simulated::{Failure, Simulated};
use journal::{OpenError, Storage, Trouble};

use crate::decay;
use crate::random::Random;
use crate::witness::Witness;

/// The disk below the journal, as long as the run lasts.
#[derive(Debug)]
pub(crate) struct Disk {
    /// For the process that runs, or the next one.
    directory: Simulated,
    is_full: bool,
    trap: Option<Trap>,
    /// Records that were written to the disk.
    pub(crate) witness: Witness,
}

/// A failure of one of the next writes, syncs or changes of names.
#[derive(Debug, Clone, Copy)]
struct Trap {
    /// Number of operations before it.
    operations: u64,
    failure: Failure,
}

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The machine goes on: what was written is there.
    Kill,
    /// Writes since the last sync are there or not, sector by sector.
    PowerCut,
}

impl Disk {
    pub(crate) fn new(seed: u64, reserves: bool) -> Self {
        let directory = Simulated::new(seed);
        if !reserves {
            directory.never_reserve();
        }
        Self { directory, is_full: false, trap: None, witness: Witness::default() }
    }

    /// From now on a sync does nothing, and says that it did.
    pub(crate) fn ignore_syncs(&self) {
        self.directory.ignore_syncs();
    }

    /// For the process that runs now.
    pub(crate) fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(self.directory.clone())
    }

    /// There is little or no space any more, or there is again. Returns how many bytes are left, if that is little.
    pub(crate) fn change_space(&mut self, random: &mut Random) -> Option<u64> {
        self.is_full = !self.is_full;
        let left = self.is_full.then(|| *random.pick(&[0, 4_096, 100_000, 200_000]));
        let used = self.directory.used_bytes();
        self.directory.set_capacity(left.map_or(u64::MAX, |left| used + left));
        left
    }

    /// One of the next operations fails, or is the last of the process.
    pub(crate) fn fail_soon(&mut self, failure: Failure, random: &mut Random) {
        if self.has_sprung() {
            return;
        }
        let after = random.below(12) as u64;
        self.trap = Some(Trap { operations: self.directory.operations() + after, failure });
        self.directory.fail_after(after, failure);
    }

    fn has_sprung(&self) -> bool {
        self.trap.is_some_and(|trap| trap.operations < self.directory.operations())
    }

    /// Returns the bytes of all files.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.directory.used_bytes()
    }

    /// The longest file, in bytes.
    pub(crate) fn largest_bytes(&self) -> u64 {
        let names = self.directory.list().unwrap_or_default();
        let bytes = |name: &String| self.directory.open(name, false).and_then(|file| file.bytes());
        names.iter().filter_map(|name| bytes(name).ok()).max().unwrap_or(0)
    }

    /// There is little space or something is going to fail.
    pub(crate) fn is_unwell(&self) -> bool {
        self.is_full || self.trap.is_some()
    }

    /// The process has ended in the middle of something.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_sprung() && self.trap.is_some_and(|trap| trap.failure == Failure::End)
    }

    /// Whether the disk was made to fail in this process.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_sprung()
    }

    /// Whether this is no surprise when a journal is opened.
    pub(crate) fn explains(&self, error: &OpenError) -> bool {
        matches!(error, OpenError::Io { .. }) && (self.has_sprung() || self.is_full)
    }

    /// Nothing is wrong with the journal but what was done to this disk, or what the scenario excuses.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn explains_trouble(&self, trouble: &Trouble, is_excused: bool) -> Result<(), String> {
        if let Some(damage) = &trouble.damage {
            return Err(format!("the journal says that it is damaged: {damage}"));
        }
        match &trouble.failure {
            Some(failure) if !self.has_failed() && !is_excused => {
                Err(format!("the journal has failed: {failure}"))
            }
            _ => Ok(()),
        }
    }

    /// The process ends, if it has not yet.
    pub(crate) fn crash(&mut self, crash: Crash) {
        self.trap = None;
        self.directory = match crash {
            Crash::Kill => self.directory.after_kill(),
            Crash::PowerCut => {
                self.witness.power_lost();
                self.directory.after_power_cut()
            }
        };
    }

    /// Checks the effects of one changed bit while no process runs.
    ///
    /// # Errors
    /// It is not found, or costs more than what it is in.
    pub(crate) fn decay(&self, settings: &journal::Settings, random: &mut Random) -> Result<(), String> {
        decay::check(&self.directory, settings, random)
    }

    /// Nothing goes wrong any more.
    pub(crate) fn heal(&mut self) {
        self.directory.set_capacity(u64::MAX);
        self.directory.fail_no_more();
        self.is_full = false;
        self.trap = None;
    }
}
