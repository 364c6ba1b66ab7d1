//! `$SYS/broker/…`: what the broker tells about itself, under the names that Mosquitto gave them, so that
//! existing dashboards and exporters read them. Names of our own stand beside them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{Budget, Purpose};

use crate::Totals;

/// Load averages are taken over these many minutes.
const SPANS_MIN: [u32; 3] = [1, 5, 15];

/// Turns counters into messages; remembers what was said, since what has not changed is not said again.
#[derive(Debug)]
pub(crate) struct Sys {
    said: HashMap<String, String>,
    previous: Totals,
    loads: [[f64; SPANS_MIN.len()]; LOADS.len()],
    clients_maximum: u64,
    previous_ms: Option<u64>,
}

/// Facts that the shards' counters do not contain.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// Levels and counters of the ledger.
    pub ledger: &'a protocol::Gauges,
    /// Values of what keeps the records, and of whatever else has some.
    pub instruments: &'a [Arc<dyn protocol::Instruments>],
    /// Subscriptions of all sessions; a group's count as one.
    pub subscriptions: usize,
    /// Different filters of those; a group's without its name.
    pub filters: usize,
    /// Different arrangements of wildcards of those.
    pub shapes: usize,
    /// The account of memory, by purpose.
    pub budget: &'a Budget,
    /// Seconds since the start.
    pub uptime_secs: u64,
}

type Read = fn(&Totals) -> u64;

/// Counters with load averages: the topic below `load/`, and the counter.
const LOADS: [(&str, Read); 9] = [
    ("messages/received", |t| t.packets_received),
    ("messages/sent", |t| t.packets_sent),
    ("publish/received", |t| t.publish_received),
    ("publish/sent", |t| t.publish_sent),
    ("publish/dropped", |t| t.publish_dropped),
    ("bytes/received", |t| t.bytes_received),
    ("bytes/sent", |t| t.bytes_sent),
    ("sockets", |t| t.sockets),
    ("connections", |t| t.connects),
];

impl Facts<'_> {
    /// Passes each figure that is a total or a level, with its topic below `$SYS/broker/`. Instruments are not among them.
    pub fn figures(&self, totals: &Totals, say: &mut dyn FnMut(&str, String)) {
        totals.topics().for_each(|(topic, value)| say(topic, value.to_string()));
        self.ledger.topics().for_each(|(topic, value)| say(topic, value.to_string()));
        for purpose in Purpose::ALL {
            let held_bytes = self.budget.held_bytes(purpose);
            say(&format!("memory/{}", purpose.topic()), held_bytes.to_string());
        }
        say("memory/used", self.budget.used_bytes().to_string());
        say("memory/limit", self.budget.limit_bytes().to_string());
        let read = |gauge: &AtomicUsize| gauge.load(Ordering::Relaxed);
        let ledger = self.ledger;
        let absent = read(&ledger.sessions).saturating_sub(read(&ledger.sessions_connected)) as u64;
        say("clients/total", (totals.clients_connected + absent).to_string());
        say("clients/disconnected", absent.to_string());
        say("clients/inactive", absent.to_string());
        say("clients/active", totals.clients_connected.to_string());
        say("subscriptions/count", self.subscriptions.to_string());
        say("subscriptions/filters", self.filters.to_string());
        say("subscriptions/shapes", self.shapes.to_string());
        let stored = read(&ledger.retained_messages) + read(&ledger.queued);
        say("messages/stored", stored.to_string());
        say("store/messages/count", stored.to_string());
        let stored_bytes = read(&ledger.retained_bytes) + read(&ledger.queued_bytes);
        say("store/messages/bytes", stored_bytes.to_string());
    }
}

impl Sys {
    pub(crate) fn new() -> Self {
        Self {
            said: HashMap::new(),
            previous: Totals::default(),
            loads: Default::default(),
            clients_maximum: 0,
            previous_ms: None,
        }
    }

    /// The topics whose values have changed since the last call, with what they are now.
    pub(crate) fn changes(&mut self, totals: Totals, facts: Facts<'_>, now_ms: u64) -> Vec<(String, String)> {
        self.average(&totals, now_ms);
        self.clients_maximum = self.clients_maximum.max(totals.clients_connected);
        let mut all = Vec::new();
        self.tell(&totals, facts, |topic, value| all.push((format!("$SYS/broker/{topic}"), value)));
        self.previous = totals;
        all.retain(|(topic, value)| self.said.get(topic) != Some(value));
        self.said.extend(all.iter().cloned());
        all
    }

    fn tell(&self, totals: &Totals, facts: Facts<'_>, mut say: impl FnMut(&str, String)) {
        say("version", format!("Pondhawk {}", env!("CARGO_PKG_VERSION")));
        say("uptime", format!("{} seconds", facts.uptime_secs));
        facts.figures(totals, &mut say);
        facts.instruments.iter().for_each(|instruments| instruments.read(&mut say));
        say("clients/maximum", self.clients_maximum.to_string());
        for ((topic, _), loads) in LOADS.iter().zip(&self.loads) {
            for (minutes, load) in SPANS_MIN.iter().zip(loads) {
                say(&format!("load/{topic}/{minutes}min"), format!("{load:.2}"));
            }
        }
    }

    /// Moves the averages, per minute, towards what happened since the last call.
    fn average(&mut self, totals: &Totals, now_ms: u64) {
        let Some(previous_ms) = self.previous_ms.replace(now_ms) else { return };
        let minutes = (now_ms - previous_ms) as f64 / 60_000.0;
        if minutes <= 0.0 {
            return;
        }
        for ((_, read), loads) in LOADS.iter().zip(&mut self.loads) {
            let rate = read(totals).wrapping_sub(read(&self.previous)) as f64 / minutes;
            for (span, load) in SPANS_MIN.iter().zip(loads) {
                let kept = (-minutes / f64::from(*span)).exp();
                *load = rate + kept * (*load - rate);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    fn facts(ledger: &protocol::Gauges) -> Facts<'_> {
        static NOTHING: LazyLock<Budget> = LazyLock::new(Budget::default);
        ledger.retained_messages.store(2, Ordering::Relaxed);
        let (subscriptions, filters, shapes) = (0, 0, 0);
        Facts { ledger, instruments: &[], subscriptions, filters, shapes, budget: &NOTHING, uptime_secs: 11 }
    }

    #[test]
    fn unchanged_sys_values_are_not_published_again() {
        let ledger = protocol::Gauges::default();
        let mut sys = Sys::new();
        let first = sys.changes(Totals::default(), facts(&ledger), 0);
        assert!(first.contains(&("$SYS/broker/uptime".into(), "11 seconds".into())));
        assert!(first.contains(&("$SYS/broker/retained messages/count".into(), "2".into())));
        assert!(sys.changes(Totals::default(), facts(&ledger), 10_000).is_empty());
        let totals = Totals { clients_connected: 3, ..Totals::default() };
        let topics: Vec<_> =
            sys.changes(totals, facts(&ledger), 20_000).into_iter().map(|(topic, _)| topic).collect();
        for topic in ["connected", "total", "active", "maximum"] {
            assert!(topics.contains(&format!("$SYS/broker/clients/{topic}")));
        }
        assert_eq!(topics.len(), 4);
    }

    #[test]
    fn a_load_average_approaches_the_rate_per_minute() {
        let ledger = protocol::Gauges::default();
        let mut sys = Sys::new();
        let mut last = Vec::new();
        for tick in 0..60 {
            let totals = Totals { publish_received: tick * 100, ..Totals::default() };
            last = sys.changes(totals, facts(&ledger), tick * 10_000);
        }
        let load = last.iter().find(|(topic, _)| topic == "$SYS/broker/load/publish/received/1min");
        let load: f64 = load.expect("it changes still").1.parse().expect("a number");
        assert!((590.0..=600.0).contains(&load), "100 in 10 s are 600 a minute, not {load}");
    }
}
