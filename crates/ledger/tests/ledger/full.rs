//! Full queues, and the brake before them.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use base::Level;
use index::Subscriptions;
use ledger::{Ledger, QueueFull, Record, Settings};
use protocol::{Cause, Reply};
use wire::{Qos, ReasonCode};

use crate::stage::{Ask, Client, QOS_1, QOS_2, Stage, at_qos, count, message, payloads, retained};

/// A session that is away and has a full queue of three, one that is away with an empty one, and a publisher.
fn full(queue_full: QueueFull) -> (Stage, Client) {
    let mut stage = Stage::with(Settings { queue_messages_max: 3, queue_full, ..Settings::default() });
    for (name, filter) in [("full", "a"), ("empty", "last")] {
        let client = stage.client(name, &Ask::lasting(60).will("will", 30));
        stage.subscribe(&client, filter, at_qos(QOS_1));
        if name == "full" {
            stage.subscribe(&client, "last", at_qos(QOS_1));
        }
        stage.leave(&client, Cause::WithWill);
    }
    let publisher = stage.client("publisher", &Ask::clean());
    for (id, payload) in (1..).zip(["1", "2", "3"]) {
        stage.publish(&publisher, id, &message("a", payload.as_bytes(), QOS_1));
    }
    stage.replies();
    (stage, publisher)
}

/// Returns the messages that wait for a session when it comes back.
fn found(stage: &mut Stage, name: &str) -> Option<Vec<String>> {
    let (client, claimed) = stage.connect(name, &Ask::lasting(60).window(100));
    let delivered = payloads(&stage.delivered(&client));
    claimed.session_present.then_some(delivered)
}

/// • The end of the session is in the same group of records as the message that did not fit.
#[test]
fn a_session_whose_queue_is_full_is_ended() {
    let (mut stage, publisher) = full(QueueFull::EndSession);
    let watcher = stage.client("watcher", &Ask::lasting(60));
    stage.subscribe(&watcher, "will", at_qos(QOS_1));
    stage.sink.groups.clear();
    stage.publish(&publisher, 9, &message("last", b"4", QOS_1));
    assert_eq!(stage.stored(&publisher)[0].1, ReasonCode::Success);
    let (_, group) = &stage.sink.groups[0];
    let [Record::Enqueue { queues, .. }, Record::Ended { .. }] = &group[..] else { panic!("{group:?}") };
    assert_eq!(queues.len(), 1);
    assert_eq!(payloads(&stage.delivered(&watcher)), ["will"], "its session has ended");
    assert_eq!(found(&mut stage, "full"), None);
    assert_eq!(found(&mut stage, "empty").as_deref(), Some(&["4".to_owned()][..]));
    assert_eq!(count(&stage.gauges().ended_by_full_queue), 1);
    assert_eq!(count(&stage.gauges().discarded), 4);
    stage.check_account();
}

#[test]
fn a_client_whose_session_ends_while_it_is_connected_is_told() {
    let mut stage = Stage::with(Settings { queue_messages_max: 3, ..Settings::default() });
    let subscriber = stage.client("subscriber", &Ask::lasting(60).window(1));
    stage.subscribe(&subscriber, "a", at_qos(QOS_1));
    let publisher = stage.client("publisher", &Ask::clean());
    for id in 1..=5 {
        stage.publish(&publisher, id, &message("a", b"x", QOS_1));
        stage.work();
    }
    assert_eq!(stage.ended(&subscriber), [ReasonCode::QuotaExceeded]);
    // Packets that the client sent before it heard of this have no effect.
    stage.subscribe(&subscriber, "b", at_qos(QOS_1));
    stage.leave(&subscriber, Cause::WithWill);
    assert_eq!(found(&mut stage, "subscriber"), None);
    stage.check_account();
}

#[test]
fn a_publisher_is_refused_and_nobody_gets_the_message() {
    let (mut stage, publisher) = full(QueueFull::Refuse);
    stage.publish(&publisher, 9, &message("last", b"4", QOS_2));
    assert_eq!(stage.stored(&publisher)[0].1, ReasonCode::QuotaExceeded);
    assert_eq!(count(&stage.gauges().publishes_refused), 1);
    assert_eq!(found(&mut stage, "full").map(|found| found.len()), Some(3));
    assert_eq!(found(&mut stage, "empty").map(|found| found.len()), Some(0));
    stage.check_account();
}

/// Rule 13 of `protocol::order`.
#[test]
fn what_comes_behind_a_refused_message_is_refused_if_its_publisher_cannot_be_told() {
    for hears_refusals in [true, false] {
        let (mut stage, mut publisher) = full(QueueFull::Refuse);
        publisher.hears_refusals = hears_refusals;
        stage.publish(&publisher, 9, &message("last", b"4", QOS_1));
        stage.publish(&publisher, 10, &message("other", b"5", QOS_1));
        stage.publish(&publisher, 11, &message("other", b"6", QOS_2));
        stage.publish(&publisher, 0, &retained("value", b"7", Qos::AtMostOnce));
        let replies = stage.replies();
        let reason = |reply: &Reply| match reply {
            Reply::Stored { reason, .. } => Some(*reason),
            _ => None,
        };
        let later =
            if hears_refusals { ReasonCode::NoMatchingSubscribers } else { ReasonCode::QuotaExceeded };
        let reasons: Vec<_> = replies.iter().filter_map(|(_, reply)| reason(reply)).collect();
        assert_eq!(reasons, [ReasonCode::QuotaExceeded, later, later]);
        let decided = replies.iter().filter(|(_, reply)| matches!(reply, Reply::Decided { .. })).count();
        assert_eq!(decided, if hears_refusals { 4 } else { 0 });
        assert_eq!(count(&stage.gauges().retained_messages), 1, "nobody sends a message of QoS 0 again");
        stage.leave(&publisher, Cause::Normal);
        // The connection is forgotten: its number may be given again.
        stage.publish(&publisher, 10, &message("other", b"5", QOS_1));
        assert_eq!(stage.stored(&publisher)[0].1, ReasonCode::NoMatchingSubscribers);
        stage.check_account();
    }
}

#[test]
fn the_oldest_or_the_newest_message_is_dropped() {
    let dropped =
        |stage: &Stage, counter: fn(&protocol::Gauges) -> &AtomicUsize| count(counter(&stage.gauges()));
    for (queue_full, expected) in
        [(QueueFull::DropOldest, ["2", "3", "4"]), (QueueFull::DropNewest, ["1", "2", "3"])]
    {
        let (mut stage, publisher) = full(queue_full);
        stage.publish(&publisher, 9, &message("last", b"4", QOS_1));
        assert_eq!(stage.stored(&publisher)[0].1, ReasonCode::Success);
        let oldest = dropped(&stage, |gauges| &gauges.dropped_oldest);
        let newest = dropped(&stage, |gauges| &gauges.dropped_newest);
        assert_eq!((oldest, newest), if queue_full == QueueFull::DropOldest { (1, 0) } else { (0, 1) });
        let expected = expected.map(str::to_owned).to_vec();
        assert_eq!(found(&mut stage, "full"), Some(expected));
        assert_eq!(found(&mut stage, "empty"), Some(vec!["4".to_owned()]));
        stage.check_account();
    }
}

#[test]
fn bytes_are_bounded_too() {
    let settings =
        Settings { queue_bytes_max: 2_000, queue_full: QueueFull::DropOldest, ..Settings::default() };
    let mut stage = Stage::with(settings);
    let client = stage.client("c", &Ask::lasting(60));
    stage.subscribe(&client, "a", at_qos(QOS_1));
    stage.leave(&client, Cause::Normal);
    for len in [500, 500, 1_500, 5_000] {
        stage.emit(&message("a", &vec![b'x'; len], QOS_1));
    }
    let gauges = stage.gauges();
    assert_eq!((count(&gauges.dropped_oldest), count(&gauges.dropped_newest)), (2, 1));
    assert!(count(&gauges.queued_bytes) <= 2_000);
    stage.check_account();
}

/// A subscriber that takes one at a time, with a publisher whose acknowledgements are its brake.
fn braked() -> (Stage, Client, Client) {
    let mut stage = Stage::with(Settings { brake_messages: 3, ..Settings::default() });
    let subscriber = stage.client("subscriber", &Ask::lasting(60).window(1));
    stage.subscribe(&subscriber, "a", at_qos(QOS_1));
    let publisher = stage.client("publisher", &Ask::lasting(60));
    stage.replies();
    (stage, subscriber, publisher)
}

fn flood(stage: &mut Stage, publisher: &Client, ids: std::ops::RangeInclusive<u16>) -> usize {
    for id in ids {
        stage.publish(publisher, id, &message("a", id.to_string().as_bytes(), QOS_1));
        stage.work();
    }
    stage.stored(publisher).len()
}

/// • While a queue that has a reader grows too much, its publishers wait, at most a second each.
#[test]
fn acknowledgements_are_withheld_while_a_queue_grows_too_much() {
    let (mut stage, subscriber, publisher) = braked();
    assert_eq!(flood(&mut stage, &publisher, 1..=10), 4, "one is under way, three wait");
    assert_eq!(count(&stage.gauges().withheld), 6);
    stage.now.monotonic_ms += 999;
    assert_eq!(stage.stored(&publisher).len(), 0);
    stage.now.monotonic_ms += 1;
    let tickets: Vec<_> = stage.stored(&publisher).into_iter().map(|(ticket, _)| ticket).collect();
    let expected: Vec<_> = (5..=10).map(|id| base::Ticket::PubAck(crate::stage::packet_id(id))).collect();
    assert_eq!(tickets, expected, "in their order");
    drop(subscriber);
}

/// Other things that the same publisher waits for keep their place behind what is withheld; others do not wait.
#[test]
fn withheld_acknowledgements_keep_their_order_and_leave_when_the_queue_shrinks() {
    let (mut stage, subscriber, publisher) = braked();
    let bystander = stage.client("bystander", &Ask::clean());
    let delivered = stage.delivered(&subscriber);
    assert!(delivered.is_empty());
    flood(&mut stage, &publisher, 1..=6);
    stage.publish(&publisher, 7, &message("elsewhere", b"x", QOS_1));
    assert!(stage.stored(&publisher).is_empty());
    stage.publish(&bystander, 1, &message("elsewhere", b"x", QOS_1));
    assert_eq!(stage.stored(&bystander).len(), 1);
    // The reader takes what waits.
    stage.replies();
    let in_flight =
        protocol::Delivered::Session { queue: subscriber.queue(), packet_id: crate::stage::packet_id(1) };
    stage.acknowledge(&subscriber, in_flight, ReasonCode::Success);
    for _ in 0..2 {
        for deliver in stage.delivered(&subscriber) {
            stage.acknowledge(&subscriber, deliver.what, ReasonCode::Success);
        }
    }
    let tickets: Vec<_> = stage.stored(&publisher).into_iter().map(|(ticket, _)| ticket).collect();
    let expected: Vec<_> = (5..=7).map(|id| base::Ticket::PubAck(crate::stage::packet_id(id))).collect();
    assert_eq!(tickets, expected);
}

#[test]
fn nobody_waits_for_what_had_grown_before_for_the_slow_the_absent_or_for_itself() {
    // Grown before its reader came.
    let (mut stage, subscriber, publisher) = braked();
    stage.leave(&subscriber, Cause::Normal);
    assert_eq!(flood(&mut stage, &publisher, 1..=10), 10, "nobody is there");
    let subscriber = stage.client("subscriber", &Ask::lasting(60).window(1));
    stage.work();
    assert_eq!(flood(&mut stage, &publisher, 11..=12), 2);
    // Slow.
    subscriber.subscriber.gauge.set(Level::Slow);
    assert_eq!(flood(&mut stage, &publisher, 13..=30), 18);
    // Its own queue.
    let (mut stage, _, publisher) = braked();
    let own = stage.client("own", &Ask::lasting(60).window(1));
    stage.subscribe(&own, "own", at_qos(QOS_1));
    for id in 1..=10 {
        stage.publish(&own, id, &message("own", b"x", QOS_1));
    }
    assert_eq!(stage.stored(&own).len(), 10);
    drop(publisher);
}

#[test]
fn retained_values_are_counted_while_they_are_there() {
    let mut stage = Stage::new();
    stage.emit(&retained("a", &[b'x'; 1_000], QOS_1));
    let bytes = count(&stage.gauges().retained_bytes);
    assert!((1_000..2_000).contains(&bytes), "{bytes}");
    assert!(stage.ledger.live_bytes() >= 1_000);
    stage.emit(&retained("a", b"", QOS_1));
    assert_eq!(count(&stage.gauges().retained_bytes), 0);
}

const SHARED: &str = "$share/g/a";

/// The process ends after all of its records were written, some of them are lost, and another process begins.
fn crash_and_lose(stage: &mut Stage, is_lost: impl Fn(&Record<'_>) -> bool) {
    let (index, last) = (Arc::new(Subscriptions::new([1, 2])), stage.last());
    stage.sink.groups.iter_mut().for_each(|(_, group)| group.retain(|record| !is_lost(record)));
    stage.sink.groups.retain(|(_, group)| !group.is_empty());
    let records = stage.sink.records(last);
    let ledger = Ledger::recover(Settings::default(), Arc::clone(&index), records, stage.now);
    stage.restart(ledger, index, last);
}

/// A member of a group that was full has not heard yet that its session is over. Its packets do nothing to another group of
/// the same filter.
#[test]
fn a_former_member_ends_no_later_group_of_its_filter() {
    for packet in ["UNSUBSCRIBE", "DISCONNECT"] {
        let mut stage = Stage::with(Settings { queue_messages_max: 2, ..Settings::default() });
        let away = stage.client("away", &Ask::lasting(60));
        stage.subscribe(&away, SHARED, at_qos(QOS_1));
        stage.leave(&away, Cause::Normal);
        let former = stage.client("former", &Ask::clean().window(1));
        stage.subscribe(&former, SHARED, at_qos(QOS_1));
        (1..=4).for_each(|_| stage.emit(&message("a", b"before", QOS_1)));
        assert_eq!(stage.ended(&former), [ReasonCode::QuotaExceeded]);
        assert_eq!(count(&stage.gauges().groups), 0);
        let later = stage.client("later", &Ask::lasting(60).shard(1));
        stage.subscribe(&later, SHARED, at_qos(QOS_1));
        stage.leave(&later, Cause::Normal);
        match packet {
            "UNSUBSCRIBE" => stage.unsubscribe(&former, SHARED),
            _ => stage.leave(&former, Cause::Normal),
        }
        let publisher = stage.client("publisher", &Ask::clean());
        stage.publish(&publisher, 1, &message("a", b"after", QOS_1));
        assert_eq!(stage.stored(&publisher)[0].1, ReasonCode::Success);
        crash_and_lose(&mut stage, |_| false);
        assert_eq!(found(&mut stage, "later"), Some(vec!["after".to_owned()]), "{packet}");
    }
}

/// The record of a group may be missing after a repair. Messages that are acknowledged later are not lost with it.
#[test]
fn a_group_whose_record_was_lost_is_recorded_again() {
    for subscribes_again in [false, true] {
        let mut stage = Stage::new();
        let member = stage.client("member", &Ask::lasting(60));
        stage.subscribe(&member, SHARED, at_qos(QOS_1));
        stage.leave(&member, Cause::Normal);
        crash_and_lose(&mut stage, |record| matches!(record, Record::Group { .. }));
        if subscribes_again {
            // Before the ledger has worked.
            let member = stage.client("member", &Ask::lasting(60));
            stage.subscribe(&member, SHARED, at_qos(QOS_1));
            stage.leave(&member, Cause::Normal);
        } else {
            stage.work();
        }
        let publisher = stage.client("publisher", &Ask::clean());
        stage.publish(&publisher, 1, &message("a", b"1", QOS_1));
        assert_eq!(stage.stored(&publisher)[0].1, ReasonCode::Success);
        crash_and_lose(&mut stage, |_| false);
        assert_eq!(found(&mut stage, "member"), Some(vec!["1".to_owned()]), "{subscribes_again}");
    }
}
