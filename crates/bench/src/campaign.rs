//! Several servers measured in turn, round after round, so that what the machine does meanwhile hits all alike.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::host::CpuList;
use crate::load::Test;
use crate::measure::{Generator, Measured};
use crate::message::RunId;
use crate::progress::Progress;
use crate::server::Contender;

/// Who is measured, how often, and by what.
#[derive(Debug)]
pub(crate) struct Campaign {
    pub(crate) contenders: Vec<Contender>,
    pub(crate) rounds: u32,
    pub(crate) generator: Generator,
    /// The processors of servers that are started for a run.
    pub(crate) server_cpus: Option<CpuList>,
}

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) contender: usize,
    pub(crate) size: usize,
    pub(crate) round: u32,
    /// Or why it ended early.
    pub(crate) result: std::result::Result<Measured, String>,
}

impl Campaign {
    /// Runs every size on every server, `rounds` times. A server that breaks the rules fails its run only.
    ///
    /// # Errors
    /// If a server cannot be started, or the machine refuses something to the generator.
    pub(crate) fn run<T: Test>(&self, test: &T) -> Result<Vec<Run>> {
        let sizes = test.sizes();
        let progress = Progress::new(u64::from(self.rounds) * (sizes.len() * self.contenders.len()) as u64);
        let mut runs = Vec::new();
        for round in 0..self.rounds {
            for (size, size_name) in sizes.iter().enumerate() {
                for (contender, Contender { name, .. }) in self.contenders.iter().enumerate() {
                    let number = runs.len() as u64;
                    progress.begin(number, format!("{name}, {size_name}, round {}", round + 1));
                    let look = |arrived, expected| progress.advance(number, arrived, expected);
                    let result = self.run_once(test, contender, size, look)?;
                    runs.push(Run { contender, size, round, result });
                }
            }
        }
        progress.end();
        Ok(runs)
    }

    fn run_once<T: Test>(
        &self,
        test: &T,
        contender: usize,
        size: usize,
        look: impl FnMut(u64, u64),
    ) -> Result<std::result::Result<Measured, String>> {
        let server = self.contenders[contender].start(self.server_cpus.as_ref())?;
        let parts = test.parts(size, new_run_id(), self.generator.workers);
        match self.generator.measure(parts, server.target, look) {
            Ok(measured) => Ok(Ok(measured)),
            Err(Error::Server(what)) => Ok(Err(what)),
            Err(error) => Err(error),
        }
    }
}

impl Run {
    /// Why the run does not count, if it does not.
    pub(crate) fn failure(&self) -> Option<String> {
        let measured = match &self.result {
            Ok(measured) => measured,
            Err(what) => return Some(what.clone()),
        };
        let tally = measured.outcome.tally;
        let counts = [
            (tally.lost, "lost"),
            (tally.duplicated, "duplicated"),
            (tally.out_of_order, "out of order"),
            (tally.unexpected, "unexpected"),
        ];
        let faults: Vec<_> =
            counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        (!tally.is_clean()).then(|| faults.join(", "))
    }
}

/// A number that no other run of the last hour has, on this machine or another.
fn new_run_id() -> RunId {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Multiplied, so that runs that start together on several machines differ in more than their last bits.
    let mixed = (now.as_nanos() ^ u128::from(std::process::id())).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    u32::try_from(mixed >> 32 & u128::from(u32::MAX)).unwrap_or_default()
}
