//! The changes of the gauges by each fate, from each place.

use std::panic::catch_unwind;

use wire::ReasonCode;

use super::*;

/// The changes by a fate of two messages with 70 bytes together, each as a topic below `account/queues/`.
fn changes(place: Whereabouts, fate: &Fate) -> Vec<String> {
    let gauges = Arc::<Gauges>::default();
    let fates = LineFates::new(Arc::clone(&gauges));
    fates.count(Whereabouts::Outside, (5, 500), &Fate::Queued);
    fates.count(Whereabouts::Outside, (5, 0), &Fate::Sent);
    let before: Vec<_> = gauges.topics().collect();
    fates.count(place, (2, 70), fate);
    let changed = before.into_iter().zip(gauges.topics()).filter(|(before, after)| before != after);
    let mut changes: Vec<String> = changed
        .map(|((topic, before), (_, after))| {
            let name = topic.trim_start_matches("account/queues/");
            format!("{name} {:+}", after.cast_signed() - before.cast_signed())
        })
        .collect();
    changes.sort_unstable();
    changes
}

#[test]
fn each_fate_changes_its_own_gauge_and_that_of_the_place_that_is_left() {
    let fates = [
        (Fate::Queued, "queued +2, queued_bytes +70"),
        (Fate::Sent, "in_flight +2"),
        (Fate::Received, ""),
        (Fate::Acknowledged, "acknowledged +2"),
        (Fate::Refused(ReasonCode::UnspecifiedError), "refused_by_client +2"),
        (Fate::TakenBy("toad".into()), ""),
        (Fate::NotStored(ReasonCode::QuotaExceeded), ""),
        (Fate::MayNotRead, "refused_by_client +2"),
        (Fate::TooLarge, "too_large +2"),
        (Fate::QueueFull, "dropped_newest +2"),
        (Fate::DroppedOldest, "dropped_oldest +2"),
        (Fate::Expired, "expired +2"),
        (Fate::Returned, "queued +2, queued_bytes +70"),
        (Fate::SessionEnded, "discarded +2"),
        (Fate::Discarded, "discarded +2, discarded/by_operator +2"),
        (Fate::Moved, "moved/by_operator +2"),
    ];
    let places = [
        (Whereabouts::Outside, ""),
        (Whereabouts::Queue, "queued -2, queued_bytes -70"),
        (Whereabouts::Window, "in_flight -2"),
    ];
    for ((fate, own), (place, left)) in fates.iter().flat_map(|fate| places.map(|place| (fate, place))) {
        let stays = match place {
            Whereabouts::Outside => false,
            Whereabouts::Queue => own.contains("queued"),
            Whereabouts::Window => own.contains("in_flight"),
        };
        let left = if own.is_empty() || stays { "" } else { left };
        let own = if stays { "" } else { own };
        let parts = own.split(", ").chain(left.split(", ")).filter(|part| !part.is_empty());
        let mut expected: Vec<&str> = parts.collect();
        expected.sort_unstable();
        assert_eq!(changes(place, fate), expected, "{fate:?} from {place:?}");
    }
}

#[test]
fn a_fate_that_a_shard_alone_decides_stops_the_ledger() {
    let fates = [Fate::Waits, Fate::NoLocal, Fate::MayNotPublish, Fate::Absent, Fate::Slow, Fate::NoMemory];
    let places = [Whereabouts::Outside, Whereabouts::Queue, Whereabouts::Window];
    for (fate, place) in fates.iter().flat_map(|fate| places.map(|place| (fate, place))) {
        assert!(catch_unwind(|| changes(place, fate)).is_err(), "{fate:?} from {place:?}");
    }
}

#[test]
fn a_message_of_a_queue_is_acknowledged_when_it_is_sent_at_qos_0() {
    let message = Arc::new(Message::of_server("t", b"croak").expect("a topic"));
    let keeping = crate::queue::entry::Keeping::new(&message, 1, None, None);
    let entry = keeping.one(crate::record::Granted::of_group(&message), false, false);
    for (packet_id, expected) in [(None, (1, 0)), (Some(PacketId::MIN), (0, 1))] {
        let gauges = Arc::<Gauges>::default();
        let fates = LineFates::new(Arc::clone(&gauges));
        fates.count(Whereabouts::Outside, (1, entry.size_bytes()), &Fate::Queued);
        fates.count_one(MessageAt::Waiting { id: MessageId(1), entry: &entry, packet_id }, &Fate::Sent);
        let read = |gauge: &std::sync::atomic::AtomicUsize| gauge.load(Ordering::Relaxed);
        assert_eq!((read(&gauges.acknowledged), read(&gauges.in_flight)), expected);
        assert_eq!((read(&gauges.queued), read(&gauges.queued_bytes)), (0, 0));
    }
}
