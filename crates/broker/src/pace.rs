//! The pace of a client whose roles limit its messages: a message that comes too early is read later, and none is dropped.

use auth::Limits;
use base::{ConnectionId, Now};

use crate::client::Client;
use crate::effects::Outside;
use crate::pressure::Blocker;
use crate::{Effects, Shard};

/// A client that has been quiet may send as much at once as it may in this time.
const BURST_US: u64 = 1_000_000;
/// The longest time for which a client is not read at a time. Its Keep Alive goes on then, if one message is very large.
const WAIT_MS_MAX: u64 = 10_000;

/// The limits of a connection in each second, and the times until which its messages have used them up.
#[derive(Debug)]
pub(crate) struct Pace {
    messages: Meter,
    bytes: Meter,
    /// When the next packet may be read, in milliseconds.
    due_ms: u64,
    /// Whether the packets that were read already wait for that too. Then the client is blocked.
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

    /// Counts units. Returns the time at which they are within the limit.
    fn count(&mut self, units: u64, now_us: u64) -> u64 {
        let Some(per_sec) = self.per_sec else { return now_us };
        let since = self.used_until_us.max(now_us.saturating_sub(BURST_US));
        self.used_until_us = since.saturating_add(units.saturating_mul(1_000_000) / per_sec);
        self.used_until_us
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
        let until_us = self.messages.count(1, now_us).max(self.bytes.count(bytes as u64, now_us));
        self.due_ms = until_us.div_ceil(1_000).min(now.monotonic_ms + WAIT_MS_MAX);
    }
}

impl Client {
    /// Whether packets that were read already wait, because the client has sent too much for its roles.
    pub(crate) fn is_paced(&self) -> bool {
        self.aside().pace.as_ref().is_some_and(|pace| pace.holds)
    }

    /// Ends the wait if its time has come.
    pub(crate) fn end_pace(&mut self, now: Now) {
        if let Some(pace) = self.aside_mut().and_then(|aside| aside.pace.as_mut()) {
            pace.holds &= pace.due_ms > now.monotonic_ms;
        }
    }

    /// When a client is read again that has sent too much for its roles.
    pub(crate) fn paced_until_ms(&self, now: Now) -> Option<u64> {
        let due_ms = self.aside().pace.as_ref()?.due_ms;
        (due_ms > now.monotonic_ms).then_some(due_ms)
    }
}

impl Shard {
    /// Counts a PUBLISH of a client, and stops reading the client for as long as its roles say. Returns whether they say
    /// something: then its packets are taken one by one. Without such roles this costs one comparison.
    pub(crate) fn keep_pace(
        &mut self,
        id: ConnectionId,
        bytes: usize,
        to: &mut Outside<'_, impl Effects>,
    ) -> bool {
        let now = to.now;
        let Some(client) = self.clients.get_mut(id) else { return false };
        let Some(pace) = client.aside_mut().and_then(|aside| aside.pace.as_mut()) else { return false };
        pace.count(bytes, now);
        pace.holds = pace.due_ms > now.monotonic_ms;
        if pace.holds {
            self.counters.paced_publish.add(1);
            self.block(id, Blocker::Pace, to);
            self.arm(id, now);
        }
        true
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
    fn bytes_count_too_and_no_wait_is_longer_than_its_bound() {
        let limits = Limits { bytes_per_sec_max: Some(1_000), ..Limits::default() };
        let mut pace = Pace::new(&limits, at(0)).expect("there is a limit");
        pace.count(1_500, at(0));
        assert_eq!(pace.due_ms, 1_500);
        pace.count(usize::MAX, at(1_500));
        assert_eq!(pace.due_ms, 1_500 + WAIT_MS_MAX);
        pace.count(1, at(11_500));
        assert_eq!(pace.due_ms, 11_500 + WAIT_MS_MAX, "the rest of the wait");
    }
}
