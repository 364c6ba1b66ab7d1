//! Reloads in a run.

use super::World;
use crate::most::Most;

impl World {
    /// The next process begins with the last valid configuration.
    pub(super) fn configure(&mut self) {
        if let Some(operator) = &self.operator {
            operator.current().apply_to(&mut self.scenario);
            self.most = Most::of(&self.scenario);
        }
    }

    /// The operator may change the configuration, and the broker goes on with what it was told.
    pub(super) fn reload(&mut self) {
        let (Some(operator), Some(process)) = (&mut self.operator, &mut self.process) else { return };
        let before = operator.reloads;
        operator.turn(process, &mut self.scenario, &mut self.scene);
        if operator.reloads > before {
            self.most = self.most.or(Most::of(&self.scenario));
        }
    }

    /// Reloads go on when nothing changes any more, and the last one is of the configuration that the run has begun
    /// with. Returns whether there was anything to do.
    pub(super) fn end_reloads(&mut self) -> bool {
        let (Some(operator), Some(process)) = (&mut self.operator, &mut self.process) else { return false };
        let is_busy = operator.go_on(process, &mut self.scenario, &mut self.scene);
        self.most = self.most.or(Most::of(&self.scenario));
        is_busy
    }

    /// Whoever was to leave has left, as soon as everybody has had a turn.
    pub(super) fn settle_dismissals(&mut self, healing_ms: u64) -> Result<(), String> {
        let (Some(operator), Some(process)) = (&self.operator, &self.process) else { return Ok(()) };
        // The network has found out about connections without a client by then.
        if healing_ms > 0 && !operator.is_busy() {
            self.scene.oracle.settle_dismissals(&self.scene.network, process.ended_by_reload());
        }
        self.check()
    }
}
