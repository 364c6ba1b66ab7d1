//! Limits on the effects of hostile and slow subscribers.

use std::sync::Arc;

use index::{Change, Subscriptions};
use ledger::{Ledger, Record, Settings};
use protocol::{Cause, Command, CursorId, Reply};
use topic::TopicFilter;
use wire::ReasonCode;

use crate::stage::{Ask, Client, QOS_1, QOS_2, Stage, at_qos, count, id_of, message, payloads, retained};

/// A member that comes back again and again without acknowledging has never more open than its window.
#[test]
fn a_member_that_never_acknowledges_gets_no_more_by_reconnecting() {
    let settings = Settings { queue_messages_max: 1_000_000, ..Settings::default() };
    let mut stage = Stage::with(settings);
    let ask = Ask::lasting(60).window(50);
    let mut member = stage.client("member", &ask);
    stage.subscribe(&member, "$share/g/x", at_qos(QOS_2));
    stage.subscribe(&member, "own", at_qos(QOS_2));
    stage.leave(&member, Cause::WithWill);
    for _ in 0..1_000 {
        stage.emit(&message("x", b"shared", QOS_2));
        stage.emit(&message("own", b"own", QOS_2));
    }
    for _ in 0..20 {
        member = stage.client("member", &ask);
        assert_eq!(stage.delivered(&member).len(), 50);
        assert_eq!(count(&stage.gauges().in_flight), 50);
        stage.leave(&member, Cause::WithWill);
    }
    stage.check_account();
}

/// Plays the shard of a cursor and its client. Returns the number of messages received, and the maximum number that
/// waited.
fn walk(stage: &mut Stage, client: &Client) -> (usize, usize) {
    let (shard, connection, id) = (client.place.shard, client.place.connection, CursorId(1));
    let queue = client.subscriber.queue;
    stage.handle(shard, Command::Retained { connection, id, filter: "#".into(), queue });
    stage.handle(shard, Command::Credit { connection, id });
    let (mut got, mut waiting, mut is_done) = (0, 0, false);
    loop {
        let replies = stage.replies();
        if replies.is_empty() {
            assert!(is_done, "the cursor has come to its end after {got}");
            return (got, waiting);
        }
        for (_, reply) in replies {
            match reply {
                Reply::Retained { done, .. } => {
                    is_done |= done;
                    if !done {
                        stage.handle(shard, Command::Credit { connection, id });
                    }
                }
                Reply::Deliver(deliver) => {
                    got += 1;
                    stage.acknowledge(client, deliver.what, ReasonCode::Success);
                }
                Reply::Ended { .. } => panic!("the session was ended after {got}"),
                _ => {}
            }
            waiting = waiting.max(count(&stage.gauges().queued));
        }
    }
}

/// Messages of a cursor wait for room in the queue: they never fill it.
#[test]
fn retained_messages_come_at_the_pace_of_the_queue() {
    for (queue_messages_max, values) in [(1_000, 20_000), (3, 50)] {
        let mut stage = Stage::with(Settings { queue_messages_max, ..Settings::default() });
        for value in 0..values {
            stage.emit(&retained(&format!("r/{value}"), b"x", QOS_1));
        }
        let client = stage.client("client", &Ask::lasting(60).window(100));
        stage.subscribe_to(&client, "#", at_qos(QOS_1), vec!["#".into()]);
        let (got, waiting) = walk(&mut stage, &client);
        assert_eq!(got, values);
        assert!(waiting <= queue_messages_max / 2, "{waiting}");
        stage.check_account();
    }
}

/// [MQTT-3.1.2-24], [MQTT-3.1.2-25]: what was sent on an earlier connection may be too large for this one.
#[test]
fn messages_too_large_for_the_new_connection_are_not_sent_again() {
    let mut stage = Stage::new();
    let client = stage.client("client", &Ask::lasting(60));
    stage.subscribe(&client, "a", at_qos(QOS_2));
    for qos in [QOS_1, QOS_2] {
        stage.emit(&message("a", &[b'x'; 1_000], qos));
    }
    let sent = stage.delivered(&client);
    stage.leave(&client, Cause::WithWill);
    let client = stage.client("client", &Ask::lasting(60).packet_bytes_max(200));
    let replies = stage.replies();
    assert!(!replies.iter().any(|(_, reply)| matches!(reply, Reply::Deliver(_))), "{replies:?}");
    let released = replies.iter().filter_map(|(_, reply)| match reply {
        Reply::Release { packet_id, .. } => Some(*packet_id),
        _ => None,
    });
    assert_eq!(released.collect::<Vec<_>>(), [id_of(&sent[1])]);
    stage.acknowledge(&client, sent[1].what, ReasonCode::PacketIdentifierNotFound);
    let gauges = stage.gauges();
    assert_eq!((count(&gauges.too_large), count(&gauges.in_flight)), (1, 0));
    assert!(!stage.ledger.durable_state().contains("sent"), "{}", stage.ledger.durable_state());
    stage.check_account();
}

/// Publishers do not wait for a reader that acknowledges nothing, until it has caught up.
#[test]
fn the_brake_ends_where_nobody_acknowledges() {
    for filter in ["a", "$share/g/a"] {
        let mut stage = Stage::with(Settings { brake_messages: 3, ..Settings::default() });
        let subscriber = stage.client("subscriber", &Ask::lasting(60).window(1));
        stage.subscribe(&subscriber, filter, at_qos(QOS_1));
        let publisher = stage.client("publisher", &Ask::clean());
        let publish = |stage: &mut Stage| {
            stage.publish(&publisher, 1, &message("a", b"x", QOS_1));
            stage.stored(&publisher).len()
        };
        let first = publish(&mut stage) + publish(&mut stage) + publish(&mut stage) + publish(&mut stage);
        assert_eq!((first, publish(&mut stage)), (4, 0), "{filter}: one is under way, three wait");
        let first = stage.delivered(&subscriber).remove(0);
        for _ in 0..4 {
            stage.pass_secs(1);
            assert_eq!(stage.stored(&publisher).len(), 1, "a second later");
            assert_eq!(publish(&mut stage), 0);
        }
        stage.now.monotonic_ms += 1_000;
        assert_eq!(publish(&mut stage), 2, "that and what waits");
        assert_eq!(publish(&mut stage), 1);
        stage.acknowledge(&subscriber, first.what, ReasonCode::Success);
        stage.work();
        assert_eq!(publish(&mut stage), 1, "it acknowledges again, and has not caught up");
        while let Some(next) = stage.delivered(&subscriber).first() {
            stage.acknowledge(&subscriber, next.what, ReasonCode::Success);
        }
        let first: usize = (0..5).map(|_| publish(&mut stage)).sum();
        assert_eq!(first, 4, "{filter}: it has caught up, and is waited for again");
    }
}

/// If the publisher has another subscriber with room, a reader that acknowledges nothing delays it by one second.
#[test]
fn the_brake_ends_soon_where_others_wait() {
    let mut stage = Stage::with(Settings { brake_messages: 3, ..Settings::default() });
    let subscriber = stage.client("subscriber", &Ask::lasting(60).window(1));
    let other = stage.client("other", &Ask::clean());
    for client in [&subscriber, &other] {
        stage.subscribe(client, "a", at_qos(QOS_1));
    }
    let publisher = stage.client("publisher", &Ask::clean());
    let publish = |stage: &mut Stage| {
        stage.publish(&publisher, 1, &message("a", b"x", QOS_1));
        stage.stored(&publisher).len()
    };
    let first: usize = (0..5).map(|_| publish(&mut stage)).sum();
    assert_eq!(first, 4, "one is under way, three wait");
    stage.pass_secs(1);
    assert_eq!(stage.stored(&publisher).len(), 1, "a second later");
    assert_eq!(publish(&mut stage), 1, "nobody waits any more");
}

/// The shard has not heard of the end of the session when it writes a subscription to the index.
#[test]
fn a_subscription_of_a_session_that_has_ended_leads_nowhere() {
    let mut stage = Stage::with(Settings { queue_messages_max: 3, ..Settings::default() });
    let client = stage.client("client", &Ask::lasting(60).window(1));
    stage.subscribe(&client, "a", at_qos(QOS_1));
    for _ in 0..4 {
        stage.emit(&message("a", b"x", QOS_1));
    }
    stage.subscribe(&client, "b", at_qos(QOS_1));
    stage.subscribe(&client, "$share/g/b", at_qos(QOS_1));
    assert_eq!(stage.ended(&client), [ReasonCode::QuotaExceeded]);
    assert!(stage.targets("a").is_empty() && stage.targets("b").is_empty());
    assert_eq!(count(&stage.gauges().groups), 0);
}

/// • A live copy that is older than the cursor of a new subscription is not given to it: the cursor will find it.
#[test]
fn a_retained_message_does_not_come_live_and_from_a_cursor() {
    let mut stage = Stage::new();
    let client = stage.client("client", &Ask::lasting(60));
    let publish = |stage: &mut Stage, filter: &str, payload: &[u8]| {
        // The shard has written the subscription to the index; the ledger has not heard of it.
        let parsed = TopicFilter::new(filter).expect("a filter");
        let (subscriber, options) = (&client.subscriber, at_qos(QOS_2));
        stage.index.apply([Change::Subscribe { filter: parsed, subscriber, options }], &mut Vec::new());
        stage.emit(&retained("a/b", payload, QOS_2));
        stage.subscribe(&client, filter, at_qos(QOS_2));
        payloads(&stage.delivered(&client))
    };
    assert!(publish(&mut stage, "a/+", b"1").is_empty());
    assert_eq!(publish(&mut stage, "a/+", b"2"), ["2"], "it was due to the subscription that there was");
    assert_eq!(publish(&mut stage, "#", b"3"), ["3"]);
    assert_eq!(publish(&mut stage, "a/b", b"4"), ["4"]);
    stage.emit(&retained("a/b", b"", QOS_2));
    assert_eq!(payloads(&stage.delivered(&client)), [""]);
}

/// A packet identifier of QoS 2 outlives the process, wherever its message came from.
#[test]
fn an_identifier_for_a_message_from_before_the_group_lasted_is_recorded() {
    let mut stage = Stage::new();
    let clean = stage.client("clean", &Ask::clean().window(1));
    stage.subscribe(&clean, "$share/g/x", at_qos(QOS_2));
    stage.emit(&message("x", b"1", QOS_2));
    stage.emit(&message("x", b"2", QOS_2));
    let client = stage.client("client", &Ask::lasting(60));
    stage.subscribe(&client, "$share/g/x", at_qos(QOS_2));
    let sent = stage.delivered(&client);
    assert_eq!(payloads(&sent), ["2"]);
    let records: Vec<_> = stage.sink.groups.iter().flat_map(|(_, group)| group.iter().cloned()).collect();
    let is_sent = |record: &Record<'_>| match record {
        Record::Moved { packet_id, .. } => *packet_id == id_of(&sent[0]),
        _ => false,
    };
    assert!(records.iter().any(is_sent), "{records:?}");
    let state = stage.ledger.durable_state();
    let index = Arc::new(Subscriptions::new([1, 2]));
    let again = Ledger::recover(Settings::default(), index, records, stage.now);
    assert_eq!(again.durable_state(), state);
    assert!(state.contains("sent"), "{state}");
}
