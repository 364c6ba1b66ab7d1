//! Time limits for a silent client.

use base::Now;
use wire::{Answer, ReasonCode, Version, Violation};

use crate::session::State;
use crate::{Session, Settings};

/// Bytes per second of an incomplete packet that count as a sign of life.
const TRICKLE_BYTES_PER_SEC: u64 = 1_024;

impl<T> Session<T> {
    /// Counts the peer as heard from, because the server did not read. Before CONNACK, this does not extend the time
    /// limit.
    pub fn touch(&mut self, now: Now) {
        self.partial_bytes = 0;
        self.counted_bytes = 0;
        if self.is_connected() {
            self.heard_ms = now.monotonic_ms;
        }
    }

    /// Time before which the silence of the peer does not count, in monotonic milliseconds: nothing was read.
    pub fn excuse_until(&mut self, ms: u64) {
        self.heard_ms = self.heard_ms.max(ms);
    }

    /// Reports the number of bytes of an incomplete packet.
    pub fn note_partial(&mut self, bytes: usize) {
        self.partial_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// Number of received bytes of an incomplete packet.
    #[must_use]
    pub fn partial_bytes(&self) -> usize {
        self.partial_bytes as usize
    }

    /// Time at which the peer was last heard from, in monotonic milliseconds: a packet was complete, or enough of a
    /// large one had arrived.
    #[must_use]
    pub fn heard_ms(&self) -> u64 {
        self.heard_ms
    }

    /// Time at which [`handle_timeout`](Self::handle_timeout) is to be called, in monotonic milliseconds.
    #[must_use]
    pub fn poll_timeout(&self, settings: &Settings) -> Option<u64> {
        let held = self.inbound.as_ref().and_then(|inbound| inbound.held_until_ms());
        self.silence_timeout(settings).into_iter().chain(held).min()
    }

    /// Sends answers that were held back long enough, and checks the silence of the peer [MQTT-3.1.2-22].
    ///
    /// # Errors
    /// The peer was silent for too long.
    pub fn handle_timeout(
        &mut self,
        settings: &Settings,
        now: Now,
        into: &mut Vec<u8>,
    ) -> Result<(), Violation> {
        let held = self.inbound.as_ref().and_then(|inbound| inbound.held_until_ms());
        if held.is_some_and(|until| until <= now.monotonic_ms) {
            self.release_answers(into);
        }
        let Some(due) = self.silence_timeout(settings).filter(|due| *due <= now.monotonic_ms) else {
            return Ok(());
        };
        if !self.is_connected() {
            return Err(Violation {
                reason: ReasonCode::UnspecifiedError,
                statement: "MQTT-3.1.0-1",
                text: "no CONNECT in time",
                answer: Answer::Nothing,
            });
        }
        // A large packet on a slow line is a sign of life. One byte a second is not.
        let came = u64::from(self.partial_bytes - self.counted_bytes.min(self.partial_bytes));
        if came * 1_000 >= TRICKLE_BYTES_PER_SEC * (due - self.heard_ms) {
            self.counted_bytes = self.partial_bytes;
            self.heard_ms = now.monotonic_ms;
            return Ok(());
        }
        Err(Violation::after_connect(
            self.version.unwrap_or(Version::V3_1_1),
            ReasonCode::KeepAliveTimeout,
            ["MQTT-3.1.2-22", "MQTT-3.1.2-24"],
            "nothing came for one and a half times the keep alive",
        ))
    }

    fn silence_timeout(&self, settings: &Settings) -> Option<u64> {
        match self.state {
            State::AwaitingConnect | State::Authenticating(_) => {
                Some(self.heard_ms + settings.connect_timeout_ms)
            }
            State::Claiming(_) | State::Closed => None,
            State::Connected if self.keep_alive_secs == 0 => None,
            State::Connected => Some(self.heard_ms + u64::from(self.keep_alive_secs) * 1_500),
        }
    }
}
