//! What grows with the subscriptions of a session, or with the members of a group, is done a bounded number of units at a
//! time.

use std::sync::Arc;

use index::{Dispatch, Key};
use ledger::{Cause, Command, Ledger, Record, Reply, Settings};
use wire::ReasonCode;

use crate::stage::{Ask, Client, QOS_1, Stage, at_qos, count, message, packet_id, payloads};

/// The most units of work in one turn of the ledger.
const UNITS: usize = 1_000;

/// One turn of the ledger. Returns the records that it has made.
fn turn(stage: &mut Stage) -> Vec<Record<'static>> {
    let before = stage.sink.groups.len();
    stage.ledger.work(stage.now, &mut stage.sink);
    stage.sync();
    stage.sink.groups[before..].iter().flat_map(|(_, group)| group.clone()).collect()
}

fn ends(records: &[Record<'_>]) -> usize {
    records.iter().filter(|record| matches!(record, Record::Ended { .. })).count()
}

/// A group of as many sessions, all of which are away, and whose queue is full.
fn full_group(members: usize) -> Stage {
    let mut stage = Stage::with(Settings { queue_messages_max: 3, ..Settings::default() });
    for number in 0..members {
        let member = stage.client(&format!("m{number}"), &Ask::lasting(60));
        stage.subscribe(&member, "$share/g/a", at_qos(QOS_1));
        stage.leave(&member, Cause::Normal);
    }
    (0..3).for_each(|_| stage.emit(&message("a", b"one of three", QOS_1)));
    stage.replies();
    stage
}

/// The ends of all members take more than one frame, and more than one turn. The message that did not fit is acknowledged
/// at once.
#[test]
fn the_members_of_a_full_group_are_ended_in_groups_that_fit_into_a_frame() {
    const MEMBERS: usize = 3_500;
    let mut stage = full_group(MEMBERS);
    let publisher = stage.client("publisher", &Ask::clean());
    stage.sink.short_group_bytes = Some(1_000);
    stage.publish(&publisher, 1, &message("a", b"too many", QOS_1));
    let stored = stage
        .sink
        .replies
        .iter()
        .any(|(_, reply)| matches!(reply, Reply::Stored { reason, .. } if !reason.is_error()));
    assert!(stored, "{:?}", stage.sink.replies.last());
    assert_eq!(count(&stage.gauges().ended_by_full_queue), 0);
    let mut ended = 0;
    for _ in 0..MEMBERS.div_ceil(UNITS) {
        let of_turn = ends(&turn(&mut stage));
        assert!((1..=UNITS).contains(&of_turn), "{of_turn} ends in a turn");
        ended += of_turn;
    }
    assert_eq!(ended, MEMBERS);
    stage.work();
    assert_eq!((count(&stage.gauges().sessions), count(&stage.gauges().groups)), (0, 0));
    assert_eq!(count(&stage.gauges().discarded), 4);
    assert!(stage.targets("a").is_empty());
    stage.check_account();
}

/// After a crash in the middle, the sessions that are left have everything that was acknowledged.
#[test]
fn a_crash_while_a_full_group_ends_loses_nothing_of_those_who_are_left() {
    let mut stage = full_group(2_500);
    let publisher = stage.client("publisher", &Ask::clean());
    stage.publish(&publisher, 1, &message("a", b"too many", QOS_1));
    turn(&mut stage);
    stage.publish(&publisher, 2, &message("a", b"still more", QOS_1));
    turn(&mut stage);
    let ended = count(&stage.gauges().ended_by_full_queue);
    assert!((1..2_500).contains(&ended), "{ended}");
    let (records, last) = (stage.sink.records(stage.last()), stage.last());
    let index = Arc::new(index::Subscriptions::new([3, 4]));
    let settings = Settings { queue_messages_max: 100, ..Settings::default() };
    let ledger = Ledger::recover(settings, Arc::clone(&index), records, stage.now);
    stage.restart(ledger, index, last);
    stage.replies();
    let left = (0..2_500).map(|number| format!("m{number}"));
    let mut found = Vec::new();
    for name in left {
        let (client, claimed) = stage.connect(&name, &Ask::lasting(60));
        if claimed.session_present {
            found = payloads(&stage.delivered(&client));
            break;
        }
    }
    assert_eq!(found, ["one of three", "one of three", "one of three", "too many", "still more"]);
}

/// Whoever would join a group that is being ended is refused, so that its end comes.
#[test]
fn nobody_joins_a_group_that_is_being_ended() {
    let mut stage = full_group(1_500);
    stage.emit(&message("a", b"too many", QOS_1));
    let late = stage.client("late", &Ask::lasting(60));
    assert_eq!(subscribe(&mut stage, &late, "$share/g/a"), [0], "it is refused");
    stage.work();
    assert!(subscribe(&mut stage, &late, "$share/g/a").is_empty());
    assert_eq!((count(&stage.gauges().sessions), count(&stage.gauges().groups)), (1, 1));
    assert_eq!(stage.ended(&late), []);
    stage.check_account();
}

/// A SUBSCRIBE to one filter. Returns the places of those that are refused.
fn subscribe(stage: &mut Stage, client: &Client, filter: &str) -> Vec<usize> {
    let command = Command::Subscribe {
        subscriber: Arc::clone(&client.subscriber),
        connection: client.place.connection,
        packet_id: packet_id(77),
        subscriptions: vec![(filter.into(), at_qos(QOS_1))],
        retained: Vec::new(),
    };
    stage.handle(client.place.shard, command);
    let Some((_, Reply::Recorded { refused, .. })) = stage.sink.replies.pop() else {
        panic!("it is answered")
    };
    refused.into_iter().map(|(place, _)| place).collect()
}

/// One member that takes nothing fills many groups with its keys: one message ends it once.
#[test]
fn a_member_that_fills_many_groups_is_ended_with_one_record() {
    const GROUPS: usize = 50;
    let dispatch = Dispatch::KeyOrdered(Key::Publisher);
    let mut stage = Stage::with(Settings { queue_messages_max: 3, dispatch, ..Settings::default() });
    let stuck = stage.client("stuck", &Ask::lasting(60).window(1));
    (0..GROUPS).for_each(|number| stage.subscribe(&stuck, &format!("$share/g{number}/a"), at_qos(QOS_1)));
    stage.work();
    for _ in 0..8 {
        stage.emit(&message("a", b"x", QOS_1));
        stage.work();
    }
    assert_eq!(stage.ended(&stuck), [ReasonCode::QuotaExceeded]);
    let recorded: Vec<_> = stage.sink.groups.iter().flat_map(|(_, group)| group.clone()).collect();
    assert_eq!(ends(&recorded), 1);
    stage.work();
    assert_eq!(count(&stage.gauges().ended_by_full_queue), 1);
    stage.check_account();
}
