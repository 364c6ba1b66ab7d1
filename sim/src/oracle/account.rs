//! The accounts of shards and ledger: every copy of every message is in one place, and belongs to one listener and user.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use broker::{Counters, Parties, Totals};
use protocol::Gauges;

/// Checks both accounts, and the counts by listener and user, at any moment.
///
/// # Errors
/// What does not add up.
pub(crate) fn check(counters: &[Arc<Counters>], parties: &Parties, gauges: &Gauges) -> Result<(), String> {
    let totals = Totals::of(counters.iter().map(|counters| &**counters));
    for (name, sum, total) in parties.sum().compare(&totals) {
        if sum != total {
            return Err(format!("all listeners and users have {sum} {name}, and the shards {total}"));
        }
    }
    let parts = [
        ("sent_once", totals.sent_once),
        ("acknowledged", totals.acknowledged),
        ("in_flight", totals.in_flight),
        ("waiting", totals.waiting),
        ("discarded_session", totals.discarded_session),
        ("dropped_absent", totals.dropped_absent),
        ("dropped_queue_full", totals.dropped_queue_full),
        ("dropped_slow", totals.dropped_slow),
        ("dropped_budget", totals.dropped_budget),
        ("dropped_too_large", totals.dropped_too_large),
        ("dropped_expired", totals.dropped_expired),
        ("dropped_denied", totals.dropped_denied),
    ];
    compare("the shards", totals.routed, &parts)?;
    let value = |gauge: &AtomicUsize| gauge.load(Ordering::Relaxed) as u64;
    let parts = [
        ("acknowledged", value(&gauges.acknowledged)),
        ("refused_by_client", value(&gauges.refused_by_client)),
        ("in_flight", value(&gauges.in_flight)),
        ("queued", value(&gauges.queued)),
        ("expired", value(&gauges.expired)),
        ("too_large", value(&gauges.too_large)),
        ("dropped_oldest", value(&gauges.dropped_oldest)),
        ("dropped_newest", value(&gauges.dropped_newest)),
        ("discarded", value(&gauges.discarded)),
    ];
    compare("the ledger", value(&gauges.routed), &parts)
}

fn compare(whose: &str, routed: u64, parts: &[(&str, u64)]) -> Result<(), String> {
    // A level below 0 shows as a number near the largest.
    if let Some((name, value)) = parts.iter().find(|(_, value)| *value > u64::MAX / 2) {
        return Err(format!("{whose} count {} {name}", value.cast_signed()));
    }
    let sum: u64 = parts.iter().map(|(_, value)| value).sum();
    if sum == routed {
        return Ok(());
    }
    let parts = parts.iter().filter(|(_, value)| *value > 0).map(|(name, value)| format!("{value} {name}"));
    let parts: Vec<String> = parts.collect();
    Err(format!("{whose} have routed {routed} copies, and account for {sum}: {}", parts.join(", ")))
}
