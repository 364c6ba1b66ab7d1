//! The pace of a client whose roles limit its messages: a message that comes too early is read later, and none is dropped.

use auth::Limits;
use base::{ConnectionId, Now};

use crate::client::Client;
use crate::effects::Outside;
use crate::pressure::Blocker;
use crate::{Effects, Shard};

/// A client that has been quiet may send as much at once as it may in this time.
const BURST_US: u64 = 1_000_000;

/// The limits of a connection in each second, and the times until which its messages have used them up.
#[derive(Debug)]
pub(crate) struct Pace {
    messages: Meter,
    bytes: Meter,
    /// When the PUBLISH may be read that came too early, in milliseconds.
    due_ms: u64,
    /// Whether it waits for that still. Then the client is blocked.
    holds: bool,
}

#[derive(Debug)]
struct Meter {
    /// Units in each second; `None` without a limit.
    per_sec: Option<u64>,
    used_until_us: u64,
}

impl Meter {
    fn new(per_sec: Option<u64>, now_us: u64) -> Self {
        Self { per_sec: per_sec.map(|units| units.max(1)), used_until_us: now_us.saturating_sub(BURST_US) }
    }

    /// Counts messages, or their bytes.
    fn count(&mut self, units: u64, now_us: u64) {
        let Some(per_sec) = self.per_sec else { return };
        let since = self.used_until_us.max(now_us.saturating_sub(BURST_US));
        self.used_until_us = since.saturating_add(units.saturating_mul(1_000_000) / per_sec);
    }

    /// The time until which the limit is used up. Without a limit that is long ago.
    fn until_us(&self) -> u64 {
        if self.per_sec.is_some() { self.used_until_us } else { 0 }
    }
}

impl Pace {
    /// The pace of a connection that begins now; `None` if the limits say nothing about messages.
    pub(crate) fn new(limits: &Limits, now: Now) -> Option<Box<Self>> {
        let (messages, bytes) = (limits.messages_per_sec_max.map(u64::from), limits.bytes_per_sec_max);
        let now_us = now.monotonic_ms.saturating_mul(1_000);
        (messages.is_some() || bytes.is_some()).then(|| {
            let [messages, bytes] = [messages, bytes].map(|per_sec| Meter::new(per_sec, now_us));
            Box::new(Self { messages, bytes, due_ms: 0, holds: false })
        })
    }

    /// Counts a PUBLISH of this length.
    fn count(&mut self, bytes: usize, now: Now) {
        let now_us = now.monotonic_ms.saturating_mul(1_000);
        self.messages.count(1, now_us);
        self.bytes.count(bytes as u64, now_us);
    }

    /// A PUBLISH is to be read. Returns whether it has to wait.
    fn wait(&mut self, now: Now) -> bool {
        let until_us = self.messages.until_us().max(self.bytes.until_us());
        self.due_ms = until_us.div_ceil(1_000).max(now.monotonic_ms);
        self.holds = self.due_ms > now.monotonic_ms;
        self.holds
    }
}

impl Client {
    /// Counts a PUBLISH of this length. Returns whether the roles of the client limit its messages: then its packets are
    /// taken one by one. Without such roles this costs one comparison.
    pub(crate) fn keep_pace(&mut self, bytes: usize, now: Now) -> bool {
        let pace = self.aside_mut().and_then(|aside| aside.pace.as_mut());
        pace.is_some_and(|pace| {
            pace.count(bytes, now);
            true
        })
    }

    /// Whether the packet at the beginning of these bytes is a PUBLISH that comes too early for the roles of the client. Then
    /// the client waits. Without such roles this costs one comparison.
    pub(crate) fn is_early(&mut self, bytes: &[u8], now: Now) -> bool {
        const PUBLISH: u8 = 3;
        let pace = self.aside_mut().and_then(|aside| aside.pace.as_mut());
        pace.is_some_and(|pace| bytes.first().is_some_and(|byte| byte >> 4 == PUBLISH) && pace.wait(now))
    }

    /// Whether a PUBLISH of the client waits, because it came too early for the roles of the client.
    pub(crate) fn is_paced(&self) -> bool {
        self.aside().pace.as_ref().is_some_and(|pace| pace.holds)
    }

    /// Ends the wait if its time has come.
    pub(crate) fn end_pace(&mut self, now: Now) {
        if let Some(pace) = self.aside_mut().and_then(|aside| aside.pace.as_mut()) {
            pace.holds &= pace.due_ms > now.monotonic_ms;
        }
    }

    /// When a client is read again whose PUBLISH came too early for its roles.
    pub(crate) fn paced_until_ms(&self, now: Now) -> Option<u64> {
        let due_ms = self.aside().pace.as_ref()?.due_ms;
        (due_ms > now.monotonic_ms).then_some(due_ms)
    }
}

impl Shard {
    /// Stops reading a client whose PUBLISH has come too early, until it is due.
    pub(crate) fn hold_back(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        self.counters.paced_publish.add(1);
        self.block(id, Blocker::Pace, to);
        self.arm(id, to.now);
    }

    /// The timer of a connection has fired: it may be the end of its wait.
    pub(crate) fn end_pace(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.end_pace(to.now);
        if !client.is_paced() {
            self.unblock_from(id, |blocker| matches!(blocker, Blocker::Pace), to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(monotonic_ms: u64) -> Now {
        Now { monotonic_ms, unix_ms: 0 }
    }

    #[test]
    fn messages_come_at_the_rate_after_one_second_s_worth() {
        let limits = Limits { messages_per_sec_max: Some(4), ..Limits::default() };
        let mut pace = Pace::new(&limits, at(10_000)).expect("there is a limit");
        let mut due = |now| {
            pace.count(1, at(now));
            pace.wait(at(now));
            pace.due_ms
        };
        assert_eq!([due(10_000), due(10_000), due(10_000), due(10_000)], [10_000; 4]);
        assert_eq!([due(10_000), due(10_250), due(10_500)], [10_250, 10_500, 10_750]);
        assert_eq!(
            [0; 5].map(|_| due(60_000)),
            [60_000, 60_000, 60_000, 60_000, 60_250],
            "one second's worth"
        );
        assert!(Pace::new(&Limits::default(), at(0)).is_none());
    }

    #[test]
    fn bytes_count_too_and_the_largest_message_makes_no_overflow() {
        let limits = Limits { bytes_per_sec_max: Some(1_000), ..Limits::default() };
        let mut pace = Pace::new(&limits, at(0)).expect("there is a limit");
        let mut due = |bytes, now| {
            pace.count(bytes, at(now));
            pace.wait(at(now));
            pace.due_ms
        };
        assert_eq!(due(1_500, 0), 1_500);
        assert_eq!(due(500, 1_500), 2_000);
        let longest = due(usize::MAX, 2_000);
        assert!(longest > 1_000_000_000_000, "{longest}");
        assert!(due(usize::MAX, 2_000) >= longest, "the rest of the wait");
    }
}
