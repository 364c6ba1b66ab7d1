//! The changes of the counters by each fate, from each place.

use std::panic::catch_unwind;

use wire::ReasonCode;

use super::*;
use crate::Totals;
use crate::counts::Counted;

/// The changes of the counters. The counts of a receiver, which have the same names, change in the same way.
fn changes(change: impl FnOnce(&ShardFates, &Counts)) -> Vec<String> {
    let (counters, counts) = (Arc::<Counters>::default(), Counts::default());
    let fates = ShardFates::new(Arc::clone(&counters), Arc::default());
    fates.count(&counts, Whereabouts::Outside, 5, &Fate::Waits);
    fates.count(&counts, Whereabouts::Outside, 5, &Fate::Sent);
    let before: Vec<_> = Totals::of([&*counters]).topics().collect();
    change(&fates, &counts);
    let totals = Totals::of([&*counters]);
    let mut counted = Counted::default();
    counted += &counts;
    let is_counted_apart = |name| ["routed", "publish_sent"].contains(&name);
    let mut compared = counted.compare(&totals).filter(|(name, ..)| !is_counted_apart(*name));
    assert_eq!(compared.find(|(_, sum, total)| sum != total), None);
    let changed = before.into_iter().zip(totals.topics()).filter(|(before, after)| before != after);
    let mut changes: Vec<String> = changed
        .map(|((topic, before), (_, after))| {
            let name = topic.trim_start_matches("account/");
            format!("{name} {:+}", after.cast_signed() - before.cast_signed())
        })
        .collect();
    changes.sort_unstable();
    changes
}

fn sorted<'a>(changes: &[&'a str]) -> Vec<&'a str> {
    let all = changes.iter().flat_map(|changes| changes.split(", ")).filter(|change| !change.is_empty());
    let mut all: Vec<&str> = all.collect();
    all.sort_unstable();
    all
}

#[test]
fn each_fate_changes_its_own_counters_and_those_of_the_place_that_is_left() {
    let of = |place, fate: &Fate| changes(|fates, counts| fates.count(counts, place, 2, fate));
    let fates = [
        (Fate::Waits, "waiting +2"),
        (Fate::Sent, "in_flight +2"),
        (Fate::Received, ""),
        (Fate::Acknowledged, "acknowledged +2"),
        (Fate::Refused(ReasonCode::UnspecifiedError), "acknowledged +2"),
        (Fate::TakenBy("toad".into()), ""),
        (Fate::NoLocal, ""),
        (Fate::MayNotPublish, ""),
        (Fate::MayNotRead, "publish/messages/dropped +2, dropped/not_authorized +2"),
        (Fate::Absent, "publish/messages/dropped +2, dropped/absent +2"),
        (Fate::Slow, "publish/messages/dropped +2, dropped/slow +2"),
        (Fate::TooLarge, "publish/messages/dropped +2, dropped/too_large +2"),
        (Fate::NoMemory, "publish/messages/dropped +2, dropped/queue_full +2"),
        (Fate::QueueFull, "publish/messages/dropped +2, dropped/queue_full +2"),
        (Fate::Expired, "publish/messages/dropped +2, dropped/expired +2"),
        (Fate::SessionEnded, "discarded/session +2"),
    ];
    for (fate, own) in fates {
        assert_eq!(of(Whereabouts::Outside, &fate), sorted(&[own]), "{fate:?}");
        let once = match fate {
            Fate::Sent => "sent +2",
            Fate::NoMemory => "publish/messages/dropped +2, dropped/budget +2",
            _ => own,
        };
        assert_eq!(of(Whereabouts::Once, &fate), sorted(&[once]), "{fate:?} at QoS 0");
        let of_ledger = if fate == Fate::MayNotRead { "denied/receive +2" } else { "" };
        assert_eq!(of(Whereabouts::Ledger, &fate), sorted(&[of_ledger]), "{fate:?} of the ledger");
        for (place, level) in [(Whereabouts::Queue, "waiting"), (Whereabouts::Window, "in_flight")] {
            let left = format!("{level} -2");
            let expected = match own {
                "" => Vec::new(),
                own if own.contains(level) => Vec::new(),
                own => sorted(&[own, &left]),
            };
            assert_eq!(of(place, &fate), expected, "{fate:?} from {place:?}");
        }
    }
}

#[test]
fn a_fate_that_the_ledger_alone_decides_stops_a_shard() {
    let refused = Fate::NotStored(ReasonCode::QuotaExceeded);
    let fates = [Fate::Queued, refused, Fate::DroppedOldest, Fate::Returned, Fate::Discarded, Fate::Moved];
    let places = [Whereabouts::Once, Whereabouts::Outside, Whereabouts::Queue, Whereabouts::Window];
    for (fate, place) in fates.iter().flat_map(|fate| places.map(|place| (fate, place))) {
        let counted = catch_unwind(|| changes(|fates, counts| fates.count(counts, place, 2, fate)));
        assert!(counted.is_err(), "{fate:?} from {place:?}");
    }
}

#[test]
fn each_reason_why_a_message_goes_to_nobody_has_its_counter() {
    let reasons = [
        (Unrouted::Denied, "publish/messages/dropped +2, denied/publish +2"),
        (Unrouted::TooHigh, "publish/messages/dropped +2, denied/qos_or_retain +2"),
        (Unrouted::BadTopic, "publish/messages/dropped +2, dropped/topic +2"),
        (Unrouted::Busy, "publish/messages/dropped +2, refused/control +2"),
        (Unrouted::NoCommand, "publish/messages/dropped +2"),
        (Unrouted::NotStored, "refused/publish +2"),
        (Unrouted::Unheard, "publish/messages/no_subscribers +2"),
    ];
    for (why, expected) in reasons {
        assert_eq!(changes(|fates, counts| fates.unrouted(counts, why, 2)), sorted(&[expected]), "{why:?}");
    }
}
