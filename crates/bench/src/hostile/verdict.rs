//! What an attack may cost, and how it is told.

use std::time::Duration;

use super::innocent::Account;
use crate::figure::{bytes, duration, share};

/// Innocent clients keep at least this part of their throughput.
const SHARE_MIN: f64 = 0.5;
/// The 99th percentile of their latency is at most so many times what it was before ...
const P99_RATIO_MAX: u32 = 3;
/// ... or at most this: less is a matter of who runs on a processor that the generator shares with others.
const P99_FLOOR: Duration = Duration::from_millis(5);
/// Time in which memory and disk are as before, and nobody is refused any more.
pub(super) const RECOVERY_MAX: Duration = Duration::from_secs(30);
/// Memory and disk that may stay: caches of the allocator, a segment of a log.
const MEMORY_SLACK_BYTES: u64 = 24 << 20;
const DISK_SLACK_BYTES: u64 = 64 << 20;

pub(super) const HEADINGS: [&str; 9] = [
    "",
    "throughput kept",
    "p99 before",
    "under attack",
    "refused",
    "memory before",
    "peak",
    "after",
    "recovered after",
];

/// What a server holds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Held {
    pub(super) memory_bytes: Option<u64>,
    pub(super) disk_bytes: Option<u64>,
}

/// What became of one server under one attack.
#[derive(Debug)]
pub(super) struct Finding {
    /// The server did not get through it.
    pub(super) failure: Option<String>,
    pub(super) alone: Vec<Account>,
    pub(super) under_attack: Vec<Account>,
    pub(super) held_before: Held,
    pub(super) peak_bytes: Option<u64>,
    pub(super) held_after: Held,
    /// `None` if it never was as before.
    pub(super) recovered_after: Option<Duration>,
}

impl Held {
    /// Whether it is what it was, but for what an allocator and a log keep for the next time.
    pub(super) fn is_about(self, before: Self) -> bool {
        let within = |now: Option<u64>, then: Option<u64>, slack: u64| match (now, then) {
            (Some(now), Some(then)) => now <= then + then / 4 + slack,
            _ => true,
        };
        within(self.memory_bytes, before.memory_bytes, MEMORY_SLACK_BYTES)
            && within(self.disk_bytes, before.disk_bytes, DISK_SLACK_BYTES)
    }
}

impl Finding {
    /// A server that did not start or broke down.
    pub(super) fn failed(what: String) -> Self {
        Self {
            failure: Some(what),
            alone: Vec::new(),
            under_attack: Vec::new(),
            held_before: Held::default(),
            peak_bytes: None,
            held_after: Held::default(),
            recovered_after: None,
        }
    }

    /// The rules that the server has broken, each with its figures. Throughput and latency are judged only if that is
    /// asked for: what they are in a moment, on a busy machine, is chance.
    pub(super) fn broken_rules(&self, judges_speed: bool) -> Vec<String> {
        if let Some(failure) = &self.failure {
            return vec![failure.clone()];
        }
        let mut broken = Vec::new();
        for (alone, attacked) in self.alone.iter().zip(&self.under_attack) {
            let name = alone.habit.name();
            if judges_speed && attacked.share() < SHARE_MIN * alone.share() {
                broken.push(format!("{name} keeps {} of its throughput", share(attacked.share())));
            }
            let allowed = (alone.p99() * P99_RATIO_MAX).max(P99_FLOOR);
            if judges_speed && attacked.p99() > allowed {
                let (before, now) = (duration(alone.p99()), duration(attacked.p99()));
                broken.push(format!("{name} has a p99 of {now}, {before} before"));
            }
        }
        if self.recovered_after.is_none() {
            let Held { memory_bytes, disk_bytes } = self.held_after;
            let text = |value: Option<u64>| value.map_or("?".to_owned(), |value| bytes(value as f64));
            broken.push(format!(
                "not as before after {} s: {} of memory, {} of files",
                RECOVERY_MAX.as_secs(),
                text(memory_bytes),
                text(disk_bytes)
            ));
        }
        broken
    }

    /// The cells of the table. Of the innocent clients the one that suffers most counts.
    pub(super) fn row(&self, name: &str, broken: &[String]) -> Vec<String> {
        let name = if broken.is_empty() { name.to_owned() } else { format!("{name} (FAILED)") };
        if self.failure.is_some() {
            let mut cells = vec![name];
            cells.resize(HEADINGS.len(), "-".to_owned());
            return cells;
        }
        let least = self.under_attack.iter().min_by(|a, b| a.share().total_cmp(&b.share()));
        let kept = least.map_or("-".to_owned(), |account| {
            format!("{} ({})", share(account.share()), account.habit.name())
        });
        let pairs = self.alone.iter().zip(&self.under_attack);
        let ratio = |(alone, attacked): &(&Account, &Account)| {
            attacked.p99().as_secs_f64() / alone.p99().as_secs_f64().max(1e-9)
        };
        let worst = pairs.max_by(|a, b| ratio(a).total_cmp(&ratio(b)));
        let p99 =
            |account: Option<&Account>| account.map_or("-".to_owned(), |account| duration(account.p99()));
        let refused: u64 = self.under_attack.iter().map(|account| account.refused).sum();
        let memory = |value: Option<u64>| value.map_or("-".to_owned(), |value| bytes(value as f64));
        let under_attack = worst.map_or("-".to_owned(), |(_, account)| {
            format!("{} ({})", duration(account.p99()), account.habit.name())
        });
        vec![
            name,
            kept,
            p99(worst.map(|(alone, _)| alone)),
            under_attack,
            refused.to_string(),
            memory(self.held_before.memory_bytes),
            memory(self.peak_bytes),
            memory(self.held_after.memory_bytes),
            self.recovered_after.map_or("never".to_owned(), duration),
        ]
    }
}
