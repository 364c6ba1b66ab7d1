//! How long a client may be silent.

use base::Now;
use wire::{Answer, ReasonCode, Version, Violation};

use crate::session::State;
use crate::{Session, Settings};

/// While a packet is under way, so many bytes a second count as a sign of life.
const TRICKLE_BYTES_PER_SEC: u64 = 1_024;

impl<T> Session<T> {
    /// The peer is to be taken as heard from: it was not its fault that nothing was read. Until it is connected, that
    /// does not give it more time.
    pub fn touch(&mut self, now: Now) {
        self.partial_bytes = 0;
        self.counted_bytes = 0;
        if self.is_connected() {
            self.heard_ms = now.monotonic_ms;
        }
    }

    /// The silence of the peer before this time does not count, in monotonic milliseconds: nobody could hear it.
    pub fn excuse_until(&mut self, ms: u64) {
        self.heard_ms = self.heard_ms.max(ms);
    }

    /// So many bytes of a packet have come that is not complete.
    pub fn note_partial(&mut self, bytes: usize) {
        self.partial_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    }

    /// How much of a packet has come that is not complete, in bytes.
    #[must_use]
    pub fn partial_bytes(&self) -> usize {
        self.partial_bytes as usize
    }

    /// When the peer was last heard from, in monotonic milliseconds: a packet was complete, or enough of a large one came.
    #[must_use]
    pub fn heard_ms(&self) -> u64 {
        self.heard_ms
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called, in monotonic milliseconds.
    #[must_use]
    pub fn poll_timeout(&self, settings: &Settings) -> Option<u64> {
        let held = self.inbound.as_ref().and_then(|inbound| inbound.held_until_ms());
        self.silence_timeout(settings).into_iter().chain(held).min()
    }

    /// Sends answers that were held back for long enough, and looks whether the peer has been silent for too long
    /// [MQTT-3.1.2-22].
    ///
    /// # Errors
    /// It has.
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
        // A large packet on a slow line is life; one byte a second is not.
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
