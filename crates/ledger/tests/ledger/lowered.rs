//! A restart with lower bounds: what was acknowledged stays, and what is new meets the new bounds.

use std::sync::Arc;

use index::Subscriptions;
use ledger::{Ledger, OverLimits, QueueFull, Record, Settings};
use protocol::Cause;
use wire::ReasonCode;

use crate::stage::{Ask, QOS_0, QOS_1, Stage, at_qos, count, message, payloads, retained};

/// The same records, and a process with these settings.
fn restart(stage: &mut Stage, settings: &Settings) {
    let last = stage.last();
    let index = Arc::new(Subscriptions::new([1, 2]));
    let (given, now) = (stage.sink.records(last), stage.now);
    let ledger = Ledger::recover(settings.clone(), Arc::clone(&index), given, now);
    stage.restart(ledger, index, last);
}

/// Forty values of a kilobyte each.
fn forty_retained() -> Stage {
    let mut stage = Stage::new();
    for number in 0..40 {
        stage.emit(&retained(&format!("a/{number}"), &[b'x'; 1_000], QOS_1));
    }
    stage
}

#[test]
fn retained_messages_stay_when_their_bound_is_lowered() {
    let mut stage = forty_retained();
    let lower = Settings { retained_bytes_max: 10_000, ..Settings::default() };
    restart(&mut stage, &lower);
    assert_eq!(count(&stage.gauges().retained_messages), 40);
    let over = stage.ledger.over_limits();
    assert!(over.retained_bytes > 30_000 && over.queues == 0, "{over:?}");
    assert_eq!(count(&stage.gauges().retained_over_bytes), over.retained_bytes);

    // Nothing is added, and nothing is lost by the attempt.
    let publisher = stage.client("publisher", &Ask::clean());
    for (topic, payload) in [("new", vec![b'x'; 10]), ("a/1", vec![b'x'; 1_001])] {
        stage.publish(&publisher, 1, &retained(topic, &payload, QOS_1));
        assert_eq!(stage.stored(&publisher)[0].1, ReasonCode::QuotaExceeded, "{topic}");
    }
    // A value that is no larger than the value it replaces is stored, at any QoS.
    for (topic, qos) in [("a/1", QOS_1), ("a/2", QOS_0)] {
        stage.publish(&publisher, 2, &retained(topic, &[b'y'; 1_000], qos));
    }
    assert_eq!(stage.stored(&publisher)[0].1, ReasonCode::NoMatchingSubscribers);
    assert_eq!(count(&stage.gauges().retained_messages), 40);
    restart(&mut stage, &lower);
    assert_eq!(count(&stage.gauges().retained_messages), 40, "nor does it get less with each restart");
    assert_eq!(stage.state().matches("[121, 121").count(), 2, "the new values are on the record");

    // Below the bound there is room again.
    for number in 0..35 {
        stage.emit(&retained(&format!("a/{number}"), b"", QOS_1));
    }
    assert_eq!(stage.ledger.over_limits(), OverLimits::default());
    let publisher = stage.client("publisher", &Ask::clean());
    stage.publish(&publisher, 3, &retained("new", b"x", QOS_1));
    assert_eq!(stage.stored(&publisher)[0].1, ReasonCode::NoMatchingSubscribers);
    assert_eq!(count(&stage.gauges().retained_messages), 6);
}

/// A session that is away, with this number of waiting messages.
fn away_with(messages: usize, settings: &Settings) -> Stage {
    let mut stage = Stage::new();
    let away = stage.client("away", &Ask::lasting(60));
    stage.subscribe(&away, "a", at_qos(QOS_1));
    stage.leave(&away, Cause::Normal);
    for number in 0..messages {
        stage.emit(&message("a", number.to_string().as_bytes(), QOS_1));
    }
    restart(&mut stage, settings);
    stage
}

/// The restart itself ends nobody: who comes back before anything new does finds everything.
#[test]
fn a_queue_over_a_lowered_bound_is_told_and_kept_until_something_does_not_fit() {
    let lower = Settings { queue_messages_max: 10, ..Settings::default() };
    let mut stage = away_with(30, &lower);
    assert_eq!(stage.ledger.over_limits(), OverLimits { retained_bytes: 0, queues: 1 });
    let (away, claimed) = stage.connect("away", &Ask::lasting(60));
    assert!(claimed.session_present);
    assert_eq!(stage.delivered(&away).len(), 30);
    stage.check_account();

    let mut stage = away_with(30, &lower);
    stage.emit(&message("a", b"new", QOS_1));
    assert_eq!(count(&stage.gauges().ended_by_full_queue), 1, "the policy, as for any full queue");
    assert_eq!(stage.ledger.over_limits().queues, 0);
}

/// However far the queue is over its bound, a message drops only a number that keeps its group of records small.
#[test]
fn a_queue_far_over_a_lowered_bound_drops_its_oldest_in_steps() {
    let lower = Settings { queue_messages_max: 10, queue_full: QueueFull::DropOldest, ..Settings::default() };
    let mut stage = away_with(2_500, &lower);
    stage.sink.groups.clear();
    for number in 0..4 {
        stage.emit(&message("a", format!("new {number}").as_bytes(), QOS_1));
    }
    let removed =
        |group: &[Record<'_>]| group.iter().filter(|record| matches!(record, Record::Removed { .. })).count();
    let removed: Vec<usize> = stage.sink.groups.iter().map(|(_, group)| removed(group)).collect();
    assert_eq!(removed, [1_000, 1_000, 493, 1]);
    let away = stage.client("away", &Ask::lasting(60));
    let found = payloads(&stage.delivered(&away));
    assert_eq!((found.len(), &*found[0], &*found[9]), (10, "2494", "new 3"));
    stage.check_account();
}

/// A large message that would take the places of more small ones than are dropped at once is dropped itself.
#[test]
fn a_message_does_not_drop_more_than_a_step_for_itself() {
    let settings =
        Settings { queue_bytes_max: 1 << 20, queue_full: QueueFull::DropOldest, ..Settings::default() };
    let mut stage = Stage::with(settings.clone());
    let away = stage.client("away", &Ask::lasting(60));
    stage.subscribe(&away, "a", at_qos(QOS_1));
    stage.leave(&away, Cause::Normal);
    while count(&stage.gauges().dropped_oldest) == 0 {
        stage.emit(&message("a", b"x", QOS_1));
    }
    let queued = count(&stage.gauges().queued);
    assert!(queued > 2_000, "{queued}");
    stage.emit(&message("a", &vec![b'x'; 1 << 19], QOS_1));
    assert_eq!(count(&stage.gauges().dropped_newest), 1);
    assert_eq!(count(&stage.gauges().queued), queued);
    assert!(count(&stage.gauges().queued_bytes) <= settings.queue_bytes_max);
    stage.check_account();
}

/// The messages that one PUBLISH drops are bounded for all of its queues together, and each queue gets the message.
#[test]
fn many_queues_far_over_a_lowered_bound_drop_their_oldest_in_steps() {
    let mut stage = Stage::new();
    for number in 0..6 {
        let away = stage.client(&format!("c{number}"), &Ask::lasting(60));
        stage.subscribe(&away, "a", at_qos(QOS_1));
        stage.leave(&away, Cause::Normal);
    }
    (0..1_500).for_each(|_| stage.emit(&message("a", b"old", QOS_1)));
    let lower = Settings { queue_messages_max: 10, queue_full: QueueFull::DropOldest, ..Settings::default() };
    restart(&mut stage, &lower);
    stage.sink.short_group_bytes = Some(40_000);
    stage.sink.groups.clear();
    let publisher = stage.client("publisher", &Ask::clean());
    for id in 1..=15 {
        stage.publish(&publisher, id, &message("a", b"new", QOS_1));
        assert_eq!(stage.stored(&publisher).pop().map(|(_, reason)| reason), Some(ReasonCode::Success));
    }
    let most = stage.sink.groups.iter().map(|(_, group)| group.len()).max();
    assert_eq!(most, Some(1 + 1_000 + 5));
    assert_eq!(count(&stage.gauges().queued), 6 * 10);
    let away = stage.client("c5", &Ask::lasting(60));
    assert_eq!(payloads(&stage.delivered(&away)), ["new"; 10]);
    stage.check_account();
}
