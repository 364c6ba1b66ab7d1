//! Parts that all actors of a run share: the time, the network, the judge, the trace.

use base::Now;
use wire::ReasonCode;

use crate::broker::{Noted, What};
use crate::network::Network;
use crate::oracle::Oracle;
use crate::trace::{Trace, note};

/// The stage on which broker and clients meet.
pub(crate) struct Scene {
    pub(crate) now: Now,
    pub(crate) network: Network,
    pub(crate) oracle: Oracle,
    pub(crate) trace: Trace,
}

impl Scene {
    /// Time passes on both clocks.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.now.monotonic_ms += ms;
        self.now.unix_ms += ms;
        self.network.set_now(self.now.monotonic_ms);
        self.trace.now_ms = self.now.monotonic_ms;
    }

    /// The wall clock alone jumps.
    pub(crate) fn jump(&mut self, unix_ms: u64) {
        self.now.unix_ms = unix_ms;
        self.oracle.wall_clock_jumped();
        note!(self.trace, ("clock"), "the wall clock jumps to {unix_ms}");
    }

    /// A shard has told its log something.
    pub(crate) fn noticed(&mut self, shard: usize, noted: &Noted) {
        let Noted { connection, link, client_id, what } = noted;
        note!(self.trace, ("shard {shard}"), "{client_id} on {connection:?} ({link:?}): {what:?}");
        let client = self.network.client_of(*link);
        match what {
            What::Connected => self.oracle.broker_connected(client, *link, self.now),
            What::Refused(reason, why) => self.oracle.broker_refused(client, *link, *reason, why),
            What::Disconnected(reason, why) => {
                if *reason == ReasonCode::KeepAliveTimeout && self.network.broker_may_read(*link) {
                    self.oracle
                        .fail(format!("c{client} is ended for silence, and what it has sent was not read"));
                }
                self.oracle.broker_disconnected(client, *link, *reason, why, self.now);
            }
        }
    }
}
