//! Work that grows with the subscriptions of a session, or with the members of a group, is done a bounded number of units
//! at a time.

use std::sync::Arc;

use base::{Dispatch, Key};
use ledger::{Ledger, Record, Settings};
use protocol::{Cause, Command, Reply};
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

/// A client that would join a group that is being ended is refused, so that its end comes.
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

/// A lasting session with this number of subscriptions, whose retained values have not all been sent, and whose client
/// has left; and a publisher.
fn large(subscriptions: usize) -> (Stage, Client) {
    let mut stage = Stage::new();
    let client = stage.client("large", &Ask::lasting(60));
    for number in 0..subscriptions {
        let filter = format!("t/{number}");
        stage.subscribe_to(&client, &filter, at_qos(QOS_1), vec![filter.as_str().into()]);
    }
    stage.leave(&client, Cause::Normal);
    let publisher = stage.client("publisher", &Ask::clean());
    stage.replies();
    stage.confirms = false;
    (stage, publisher)
}

/// The pieces of a session that its shard was told since the last time, by their lengths.
fn pieces(stage: &mut Stage) -> Vec<(usize, bool)> {
    let mut found = Vec::new();
    stage.sink.replies.retain(|(_, reply)| match reply {
        Reply::Restore { filters, .. } => {
            found.push((filters.len(), false));
            false
        }
        Reply::Unfinished { subscriptions, is_last, .. } => {
            found.push((subscriptions.len(), *is_last));
            false
        }
        _ => true,
    });
    found
}

fn confirm(stage: &mut Stage, client: &Client) {
    let connection = client.place.connection;
    stage.handle(client.place.shard, Command::Restored { connection });
}

/// A shard is told the next piece when it has taken in the last. CONNACK follows all of them, and what is retained goes on
/// behind it.
#[test]
fn a_shard_is_told_the_subscriptions_of_a_session_bit_by_bit() {
    const SUBSCRIPTIONS: usize = 4_500;
    let (mut stage, publisher) = large(SUBSCRIPTIONS);
    let mut client = stage.claim("large", &Ask::lasting(60));
    let mut told = 0;
    while told < SUBSCRIPTIONS {
        let is_open = |(_, reply): &(_, Reply)| matches!(reply, Reply::Claimed(_) | Reply::Deliver(_));
        assert!(!stage.sink.replies.iter().any(is_open), "not all is told, and nobody leads there");
        turn(&mut stage);
        let of_turn = pieces(&mut stage);
        let [(filters, false)] = of_turn[..] else { panic!("one piece: {of_turn:?}") };
        assert!(filters <= UNITS, "{filters} filters in a turn");
        told += filters;
        turn(&mut stage);
        assert_eq!(pieces(&mut stage), [], "the last piece was not taken in");
        // A message that comes meanwhile waits.
        stage.publish(&publisher, 1, &message("t/7", told.to_string().as_bytes(), QOS_1));
        confirm(&mut stage, &client);
    }
    assert_eq!(told, SUBSCRIPTIONS);
    turn(&mut stage);
    let claimed = stage.claimed(&mut client).expect("all is told");
    assert!(claimed.session_present && claimed.has_more_unfinished && claimed.subscriptions.is_empty());
    stage.publish(&publisher, 2, &message("t/7", b"behind", QOS_1));
    let (mut unfinished, mut is_over) = (0, false);
    while !is_over {
        turn(&mut stage);
        let of_turn = pieces(&mut stage);
        let subscriptions: usize = of_turn.iter().map(|(subscriptions, _)| subscriptions).sum();
        assert!(subscriptions <= UNITS, "{subscriptions} subscriptions in a turn");
        unfinished += subscriptions;
        is_over = of_turn.iter().any(|(_, is_last)| *is_last);
        of_turn.iter().for_each(|_| confirm(&mut stage, &client));
    }
    assert_eq!(unfinished, SUBSCRIPTIONS);
    let expected = ["999", "1998", "2997", "3996", "4500", "behind"];
    assert_eq!(payloads(&stage.delivered(&client)), expected, "each once, in their order");
    assert!(!stage.ledger.has_work());
    stage.check_account();
}

/// Another connection takes the session over, or the client leaves, before all is told: nothing is left of that.
#[test]
fn a_session_that_is_being_told_may_be_taken_over_or_left() {
    let (mut stage, publisher) = large(3_000);
    let mut first = stage.claim("large", &Ask::lasting(60));
    turn(&mut stage);
    assert_eq!(pieces(&mut stage).len(), 1);
    let mut second = stage.claim("large", &Ask::lasting(60).shard(1));
    let evicted = |(shard, reply): &(_, Reply)| {
        *shard == first.place.shard
            && matches!(reply, Reply::Evict { connection } if *connection == first.place.connection)
    };
    assert!(stage.sink.replies.iter().any(evicted));
    // The shard confirms pieces of any connection.
    confirm(&mut stage, &first);
    turn(&mut stage);
    let of_turn = pieces(&mut stage);
    assert_eq!(of_turn.len(), 1, "{of_turn:?}");
    stage.leave(&first, Cause::Normal);
    confirm(&mut stage, &first);
    for _ in 0..4 {
        turn(&mut stage);
        assert!(stage.claimed(&mut first).is_none());
        pieces(&mut stage).iter().for_each(|_| confirm(&mut stage, &second));
    }
    turn(&mut stage);
    assert!(stage.claimed(&mut second).expect("all is told").session_present);
    stage.publish(&publisher, 1, &message("t/1", b"once", QOS_1));
    assert_eq!(payloads(&stage.delivered(&second)), ["once"]);
    // It leaves while what is retained goes on; and its next connection before it has the session.
    stage.leave(&second, Cause::Normal);
    let third = stage.claim("large", &Ask::lasting(60));
    stage.leave(&third, Cause::Normal);
    stage.work();
    assert_eq!(count(&stage.gauges().sessions_connected), 0);
    stage.confirms = true;
    let (fourth, claimed) = stage.connect("large", &Ask::lasting(60));
    assert!(claimed.session_present);
    assert_eq!(payloads(&stage.delivered(&fourth)), ["once"], "it was not acknowledged");
    assert!(!stage.ledger.has_work());
    stage.check_account();
}

/// The record of a CONNECT is lost if the disk fails before all is told: then it is refused.
#[test]
fn a_session_that_is_being_told_when_the_disk_fails_is_refused() {
    let (mut stage, _) = large(1_500);
    stage.is_fast = false;
    let before = stage.last();
    let mut client = stage.claim("large", &Ask::lasting(60));
    stage.progress(before, before, true);
    stage.confirms = true;
    assert_eq!(stage.ended(&client), [ReasonCode::ServerUnavailable]);
    assert!(stage.claimed(&mut client).is_none());
}

/// Beyond a number of filters all routes look again once, which is less work for everybody.
#[test]
fn a_session_with_many_subscriptions_makes_all_routes_look_again_instead_of_its_own_one_by_one() {
    let elsewhere = topic::topic!("elsewhere");
    for (subscriptions, is_current) in [(900, true), (5_000, false)] {
        let (mut stage, _) = large(subscriptions);
        stage.confirms = true;
        let (own, other) = (stage.index.generation(topic::topic!("t/1")), stage.index.generation(elsewhere));
        let client = stage.client("large", &Ask::lasting(60));
        assert!(!stage.index.is_current(own), "it is connected");
        assert_eq!(stage.index.is_current(other), is_current, "{subscriptions} subscriptions");
        let (own, other) = (stage.index.generation(topic::topic!("t/1")), stage.index.generation(elsewhere));
        stage.leave(&client, Cause::Normal);
        assert!(!stage.index.is_current(own), "it is away");
        assert_eq!(stage.index.is_current(other), is_current, "{subscriptions} subscriptions");
    }
}

/// The turns that the ledger works until it has nothing to do.
fn turns(stage: &mut Stage) -> usize {
    (0..).take_while(|_| (stage.ledger.has_work(), turn(stage)).0).count()
}

/// Cursors of a connection that has left, and those that its session remembers when it ends.
#[test]
fn cursors_of_a_client_that_leaves_are_forgotten_bit_by_bit() {
    const CURSORS: u32 = 5_000;
    let subscriptions = usize::try_from(CURSORS).expect("small");
    let (mut stage, _) = large(subscriptions);
    stage.confirms = true;
    let client = stage.client("large", &Ask::lasting(60));
    let (shard, connection, queue) = (client.place.shard, client.place.connection, client.subscriber.queue);
    for number in 0..CURSORS {
        let filter = format!("t/{number}").into();
        stage.handle(shard, Command::Retained { connection, id: protocol::CursorId(number), filter, queue });
    }
    stage.replies();
    stage.leave(&client, Cause::Normal);
    let of_connection = turns(&mut stage);
    assert!(
        (subscriptions / UNITS - 1..=subscriptions / UNITS + 1).contains(&of_connection),
        "{of_connection}"
    );
    let client = stage.client("large", &Ask::lasting(60));
    stage.replies();
    stage.leave_with(&client, Cause::Normal, Some(0));
    let of_session = turns(&mut stage);
    assert!(of_session >= 2 * subscriptions / UNITS, "cursors and subscriptions: {of_session}");
}

/// The groups of a session hear of its end, its going and its coming bit by bit; who has many lanes in one group, one group
/// a turn.
#[test]
fn the_groups_of_a_session_hear_bit_by_bit_that_it_comes_and_goes() {
    for (dispatch, groups, turns_min) in
        [(Dispatch::RoundRobin, 3_500, 3), (Dispatch::KeyOrdered(Key::Publisher), 20, 19)]
    {
        let settings = Settings { dispatch, shared_subscriptions_max: groups, ..Settings::default() };
        let mut stage = Stage::with(settings);
        let member = stage.client("member", &Ask::lasting(60).window(1));
        let subscribe_all = |stage: &mut Stage| {
            (0..groups).for_each(|n| stage.subscribe(&member, &format!("$share/g/{n}"), at_qos(QOS_1)));
        };
        subscribe_all(&mut stage);
        turns(&mut stage);
        stage.leave(&member, Cause::Normal);
        let gone = turns(&mut stage);
        assert!(gone >= turns_min, "{gone} turns for {groups} groups");
        // It comes, goes and comes again before all have heard. Its window was full in each of its groups.
        let mut back = stage.client("member", &Ask::lasting(60).window(1));
        for number in 0..groups {
            stage.emit(&message(&number.to_string(), b"one in each group", QOS_1));
        }
        for _ in 0..3 {
            turn(&mut stage);
            stage.leave(&back, Cause::WithWill);
            turn(&mut stage);
            back = stage.client("member", &Ask::lasting(60).window(1));
        }
        let mut got = 0;
        loop {
            let delivered = stage.delivered(&back);
            let [deliver] = &delivered[..] else { break };
            stage.acknowledge(&back, deliver.what, ReasonCode::Success);
            got += 1;
        }
        assert_eq!(got, groups, "{:?}", count(&stage.gauges().queued));
        stage.leave_with(&back, Cause::Normal, Some(0));
        let ended = turns(&mut stage);
        assert!(ended >= turns_min, "{ended} turns for {groups} groups");
        assert_eq!((count(&stage.gauges().groups), stage.index.len()), (0, 0));
        stage.check_account();
    }
}
