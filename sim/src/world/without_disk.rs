//! A run after a failure of the journal.

use wire::Version;

use super::World;
use crate::client::Client;
use crate::trace::note;

/// How long everybody is well when the disk is not: longer than a connection before MQTT 5 is kept whose message could not
/// be stored.
const WITHOUT_DISK_MS: u64 = 10_000;
/// Time after which the broker disconnects a client before MQTT 5.0 whose message was refused for lack of memory.
const REFUSED_MS: u64 = 5_000;

impl World {
    /// The journal has failed, and nothing else goes wrong for a while: who has waited for it is told, and what needs no
    /// disk goes on.
    pub(super) fn go_on_without_disk(&mut self) -> Result<(), String> {
        note!(self.scene.trace, ("world"), "everybody is well but the disk");
        let until_ms = self.scene.now.monotonic_ms + WITHOUT_DISK_MS;
        let mut last_tight_ms = None;
        while self.scene.now.monotonic_ms < until_ms {
            while self.round() {
                self.check()?;
                if self.is_tight() {
                    last_tight_ms = Some(self.scene.now.monotonic_ms);
                }
            }
            self.scene.network.reset_silent();
            self.sleep();
        }
        // Queues do not drain without a disk, and may take all memory. A client before MQTT 5.0 whose message was refused then
        // waits until it is disconnected, also if there is memory again.
        let now_ms = self.scene.now.monotonic_ms;
        let was_tight = last_tight_ms.is_some_and(|last_ms| last_ms + REFUSED_MS >= now_ms);
        let may_wait = |client: &Client| was_tight && client.version() < Version::V5;
        let mut judged = self.clients.iter().filter(|client| !may_wait(client));
        if !self.is_tight()
            && let Some(what) = judged.find_map(Client::unfinished_without_disk)
        {
            return Err(format!("without a disk {what}"));
        }
        let (standings, dropped) = (self.standings(), self.dropped());
        self.scene.oracle.settle_flowing(&standings, dropped);
        self.check()
    }

    /// Whether the broker has no memory for messages that wait.
    fn is_tight(&self) -> bool {
        self.process.as_ref().is_some_and(|process| process.budget().is_tight_to_keep())
    }
}
