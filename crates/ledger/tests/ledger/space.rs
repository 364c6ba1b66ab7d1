//! The size of what is committed, and what counts as freeing space.

use ledger::Record;
use protocol::Command;
use wire::ReasonCode;

use crate::stage::{Ask, Client, QOS_0, QOS_1, Stage, at_qos, count, message_with, packet_id, retained};

/// A disk that takes groups about as long as one with the shortest segments does, and ends the test if one is longer.
fn stage() -> Stage {
    let settings = ledger::Settings { shared_subscriptions_max: 10_000, ..ledger::Settings::default() };
    let mut stage = Stage::with(settings);
    stage.sink.short_group_bytes = Some(40_000);
    stage
}

/// A topic name of this number of bytes, different for each number.
fn long_topic(number: usize, bytes: usize) -> String {
    format!("{number:04}/{}", "x".repeat(bytes - 5))
}

fn cleared(stage: &Stage) -> usize {
    let records = stage.sink.groups.iter().flat_map(|(_, group)| group);
    records.filter(|record| matches!(record, Record::Cleared { .. })).count()
}

/// However long their topics are: the stage refuses to take a group that fits into no frame.
#[test]
fn expired_retained_messages_are_cleared_in_groups_that_fit_into_a_frame() {
    let mut stage = stage();
    for number in 0..120 {
        let topic = long_topic(number, 16_000);
        stage.emit(&message_with(&topic, b"x", QOS_0, true, Some(1)));
    }
    for number in 0..2_000 {
        stage.emit(&message_with(&format!("short/{number}"), b"x", QOS_0, true, Some(1)));
    }
    for _ in 0..20 {
        stage.pass_secs(2);
    }
    assert_eq!(count(&stage.gauges().retained_messages), 0);
    assert_eq!((cleared(&stage), count(&stage.gauges().retained_expired)), (2_120, 2_120));
}

/// One step of the sweep takes at most about a quarter of a megabyte of topic names.
#[test]
fn a_step_of_the_sweep_is_bounded_in_bytes() {
    let mut stage = stage();
    for number in 0..200 {
        stage.emit(&message_with(&long_topic(number, 16_000), b"x", QOS_0, true, Some(1)));
    }
    stage.now.unix_ms += 10_000;
    stage.now.monotonic_ms += 10_000;
    stage.ledger.work(stage.now, &mut stage.sink);
    let bytes = cleared(&stage) * 16_000;
    assert!((200_000..=300_000).contains(&bytes), "{bytes}");
}

/// The space that is left then is for copies, and what is not cleared now is cleared by the next round.
#[test]
fn the_sweep_waits_while_there_is_no_space_for_its_records() {
    let mut stage = stage();
    stage.emit(&message_with(&long_topic(1, 16_000), b"x", QOS_0, true, Some(1)));
    stage.now.unix_ms += 10_000;
    stage.now.monotonic_ms += 10_000;
    stage.sink.lacks_space = true;
    stage.ledger.work(stage.now, &mut stage.sink);
    assert_eq!(cleared(&stage), 0);
    stage.sink.lacks_space = false;
    stage.now.monotonic_ms += 10_000;
    stage.ledger.work(stage.now, &mut stage.sink);
    assert_eq!(cleared(&stage), 1);
}

/// When many values have expired, the sweep continues with the next step at once.
#[test]
fn the_sweep_does_not_rest_while_it_finds_something() {
    let mut stage = stage();
    for number in 0..200 {
        stage.emit(&message_with(&long_topic(number, 16_000), b"x", QOS_0, true, Some(1)));
    }
    stage.now.unix_ms += 10_000;
    stage.now.monotonic_ms += 10_000;
    for _ in 0..20 {
        stage.ledger.work(stage.now, &mut stage.sink);
        stage.now.monotonic_ms += 10;
    }
    assert_eq!(count(&stage.gauges().retained_messages), 0);
}

fn filters(count: usize) -> Vec<Box<str>> {
    (0..count).map(|number| format!("{number}").into()).collect()
}

fn subscribe_to_all(stage: &mut Stage, client: &Client, filters: &[Box<str>], brought: bool) {
    let subscriptions = filters.iter().map(|filter| (filter.clone(), at_qos(QOS_1))).collect();
    let command = Command::Subscribe {
        subscriber: client.subscriber.clone(),
        connection: client.place.connection,
        packet_id: packet_id(7),
        subscriptions,
        retained: if brought { filters.to_vec() } else { Vec::new() },
    };
    stage.handle(client.place.shard, command);
}

fn unsubscribe_from_all(stage: &mut Stage, client: &Client, filters: &[Box<str>]) {
    let command = Command::Unsubscribe {
        subscriber: client.subscriber.clone(),
        connection: client.place.connection,
        packet_id: packet_id(8),
        filters: filters.to_vec(),
    };
    stage.handle(client.place.shard, command);
}

/// A packet of many short filters is shorter than its records.
#[test]
fn a_packet_with_many_filters_is_recorded_in_groups_that_fit_into_a_frame() {
    let mut stage = stage();
    let client = stage.client("c", &Ask::lasting(60));
    for names in
        [filters(6_000), filters(6_000).iter().map(|name| format!("$share/g/{name}").into()).collect()]
    {
        let is_shared = names[0].starts_with("$share");
        subscribe_to_all(&mut stage, &client, &names, !is_shared);
        assert_eq!(stage.recorded(&client), [ReasonCode::Success]);
        let targets = stage.targets("17");
        assert_eq!(targets.groups.len(), usize::from(is_shared));
        unsubscribe_from_all(&mut stage, &client, &names);
        assert_eq!(stage.recorded(&client), [ReasonCode::Success]);
        assert_eq!(stage.targets("17").groups.len(), 0);
    }
    let state = stage.ledger.durable_state();
    assert!(!state.contains("17"), "{state}");
}

/// Subscriptions recorded before the space ran out are undone: the packet is refused as a whole.
#[test]
fn a_packet_with_many_filters_that_is_refused_leaves_nothing_behind() {
    let mut stage = stage();
    let client = stage.client("c", &Ask::lasting(60));
    let before = stage.ledger.durable_state();
    stage.sink.no_space_after = Some(1);
    subscribe_to_all(&mut stage, &client, &filters(6_000), true);
    assert_eq!(stage.recorded(&client), [ReasonCode::QuotaExceeded]);
    assert_eq!(stage.ledger.durable_state(), before);
    let last = stage.last();
    let index = std::sync::Arc::new(index::Subscriptions::new([1, 2]));
    let records = stage.sink.records(last);
    let again = ledger::Ledger::recover(ledger::Settings::default(), index, records, stage.now);
    assert!(!again.durable_state().contains("17"), "nor after a restart");
}

/// A message is refused if its record for all queues fits into no frame. This is not taken for a lack of space.
#[test]
fn a_message_for_too_many_queues_is_refused() {
    let mut stage = stage();
    let publisher = stage.client("publisher", &Ask::clean());
    for number in 0..2_500 {
        let client = stage.client(&format!("c{number}"), &Ask::lasting(60));
        stage.subscribe(&client, "t", at_qos(QOS_1));
    }
    stage.replies();
    stage.publish(&publisher, 1, &message_with("t", b"x", QOS_1, false, None));
    let stored: Vec<_> = stage.stored(&publisher).into_iter().map(|(_, reason)| reason).collect();
    assert_eq!(stored, [ReasonCode::ImplementationSpecificError]);
    assert_eq!(count(&stage.gauges().queued), 0);
    stage.publish(&publisher, 2, &message_with("elsewhere", b"x", QOS_1, false, None));
    let stored: Vec<_> = stage.stored(&publisher).into_iter().map(|(_, reason)| reason).collect();
    assert_eq!(stored, [ReasonCode::NoMatchingSubscribers], "and nothing else is");
}

/// A peer can repeat these for ever.
#[test]
fn requests_that_change_nothing_are_not_recorded() {
    let mut stage = stage();
    let lasting = stage.client("lasting", &Ask::lasting(60));
    stage.subscribe(&lasting, "a", at_qos(QOS_1));
    let clean = stage.client("clean", &Ask::clean());
    let records = |stage: &Stage| stage.sink.groups.iter().map(|(_, group)| group.len()).sum::<usize>();
    let before = records(&stage);
    for id in 1..50 {
        for qos in [QOS_0, QOS_1] {
            stage.publish(&clean, id, &retained("nothing/there", b"", qos));
        }
        stage.unsubscribe(&lasting, "nothing");
        stage.subscribe(&lasting, "a", at_qos(QOS_1));
        stage.released(&lasting, packet_id(id));
        stage.received(&lasting, packet_id(id));
    }
    assert_eq!(records(&stage), before, "{:?}", stage.sink.groups);
    // An existing value is cleared once.
    stage.publish(&clean, 60, &retained("there", b"x", QOS_1));
    (61..70).for_each(|id| stage.publish(&clean, id, &retained("there", b"", QOS_1)));
    assert_eq!(cleared(&stage), 1);
}

/// Without space values of QoS 0 are kept in memory alone: to clear them frees nothing on the disk.
#[test]
fn clearing_what_is_in_memory_alone_is_not_recorded() {
    let mut stage = stage();
    let clean = stage.client("clean", &Ask::clean());
    stage.publish(&clean, 1, &retained("old", b"on the record", QOS_1));
    stage.sink.no_space = true;
    for _ in 0..10 {
        for topic in ["new", "old"] {
            stage.publish(&clean, 2, &retained(topic, b"in memory", QOS_0));
            stage.publish(&clean, 3, &retained(topic, b"", QOS_0));
        }
        stage.emit(&message_with("expires", b"in memory", QOS_0, true, Some(0)));
        stage.pass_secs(2);
    }
    assert_eq!(cleared(&stage), 1, "the old value, once");
    assert_eq!(count(&stage.gauges().retained_messages), 0);
}

/// Nothing of it is on the record, so that nothing has to be said of its end. A peer can repeat this for ever.
#[test]
fn a_message_that_was_not_recorded_expires_without_a_record() {
    for away in [false, true] {
        let mut stage = stage();
        let member = stage.client("clean", &Ask::clean().window(1));
        stage.subscribe(&member, "$share/g/a", at_qos(QOS_1));
        if away {
            // From now on the group is recorded, with all that comes into it.
            let lasting = stage.client("lasting", &Ask::lasting(60).window(1));
            stage.subscribe(&lasting, "$share/g/a", at_qos(QOS_1));
        }
        stage.sink.groups.clear();
        for _ in 0..10 {
            stage.emit(&message_with("a", b"brief", QOS_1, false, Some(1)));
        }
        stage.work();
        stage.sink.no_space = true;
        stage.pass_secs(3);
        let records = stage.sink.groups.iter().flat_map(|(_, group)| group);
        let removed = records.filter(|record| matches!(record, Record::Removed { .. })).count();
        assert_eq!(removed, if away { 8 } else { 0 });
        assert_eq!(count(&stage.gauges().queued), 0);
        assert_eq!(count(&stage.gauges().expired), if away { 8 } else { 9 });
        stage.check_account();
    }
}

/// Only the record takes space on the disk.
#[test]
fn values_in_memory_alone_are_not_live_on_the_disk() {
    let mut stage = stage();
    let clean = stage.client("clean", &Ask::clean());
    let before = stage.ledger.live_bytes();
    let uptime = base::Message::of_server("$SYS/broker/uptime", &[b'x'; 1_000]).expect("a topic");
    stage.emit(&std::sync::Arc::new(uptime));
    stage.sink.no_space = true;
    for number in 0..10 {
        stage.publish(&clean, 1, &retained(&format!("a/{number}"), &[b'x'; 1_000], QOS_0));
    }
    assert_eq!(stage.ledger.live_bytes(), before);
    stage.sink.no_space = false;
    stage.publish(&clean, 2, &retained("recorded", &[b'x'; 1_000], QOS_1));
    assert!(stage.ledger.live_bytes() >= before + 1_000);
    // The record has the topic, and a copy will say what takes its place.
    stage.sink.no_space = true;
    stage.publish(&clean, 3, &retained("recorded", &[b'x'; 3_000], QOS_0));
    assert!(stage.ledger.live_bytes() >= before + 3_000);
    stage.publish(&clean, 4, &retained("recorded", b"", QOS_1));
    assert_eq!(stage.ledger.live_bytes(), before);
}

/// A will that fits into no group is not kept for ever, nor tried again after each restart.
#[test]
fn a_will_for_too_many_queues_is_over() {
    let mut stage = stage();
    let dying = stage.client("dying", &Ask::lasting(60).will("t", 0));
    for number in 0..2_500 {
        let client = stage.client(&format!("c{number}"), &Ask::lasting(60));
        stage.subscribe(&client, "t", at_qos(QOS_1));
    }
    stage.sink.groups.clear();
    stage.leave(&dying, protocol::Cause::WithWill);
    stage.work();
    let records: Vec<_> = stage.sink.groups.iter().flat_map(|(_, group)| group).collect();
    assert!(matches!(records.last(), Some(Record::WillDone { .. })), "{records:?}");
    assert_eq!(count(&stage.gauges().queued) + count(&stage.gauges().wills_pending), 0);
    assert!(count(&stage.gauges().commits_refused) > 0);
}
