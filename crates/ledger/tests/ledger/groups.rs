//! Tests of shared subscriptions.

use std::collections::BTreeMap;

use base::{Dispatch, Fate, Key, Level};
use ledger::{Lsn, QueueFull, Record, Settings};
use protocol::{Cause, Command, Deliver, Delivered};
use wire::{Qos, ReasonCode};

use crate::moves::{fates, record_fates};
use crate::stage::{
    Ask, Client, QOS_0, QOS_1, QOS_2, Stage, at_qos, count, id_of, message, message_with, packet_id, payloads,
};

const SHARED: &str = "$share/g/a";

fn member(stage: &mut Stage, name: &str, ask: &Ask) -> Client {
    let client = stage.client(name, ask);
    stage.subscribe(&client, SHARED, at_qos(QOS_2));
    client
}

fn emit(stage: &mut Stage, payloads: std::ops::RangeInclusive<u32>, qos: Qos) {
    payloads.for_each(|number| stage.emit(&message("a", number.to_string().as_bytes(), qos)));
}

fn one(delivered: &[Deliver]) -> &Deliver {
    let [deliver] = delivered else { panic!("one message, not {}", delivered.len()) };
    deliver
}

/// Members take turns, whether their sessions last or not; each message goes to one of them.
#[test]
fn members_take_turns() {
    let mut stage = Stage::new();
    let members = [
        member(&mut stage, "lasting-1", &Ask::lasting(60)),
        member(&mut stage, "lasting-2", &Ask::lasting(60).shard(1)),
        member(&mut stage, "clean", &Ask::clean().shard(2)),
    ];
    emit(&mut stage, 1..=9, QOS_1);
    let mut all = Vec::new();
    for member in &members {
        let delivered = stage.delivered(member);
        assert_eq!(delivered.len(), 3);
        all.extend(payloads(&delivered));
        for deliver in delivered {
            assert_eq!(member.subscriber.queue.is_some(), matches!(deliver.what, Delivered::Session { .. }));
            stage.acknowledge(member, deliver.what, ReasonCode::Success);
        }
    }
    all.sort_unstable();
    assert_eq!(all, (1..=9).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!((count(&stage.gauges().acknowledged), count(&stage.gauges().in_flight)), (9, 0));
    stage.check_account();
}

#[test]
fn a_member_with_a_full_window_that_leaves_one_group_gets_what_waits_in_another() {
    let mut stage = Stage::new();
    let client = stage.client("c", &Ask::lasting(60).window(1));
    for filter in ["own", "$share/g/a", "$share/g/b"] {
        stage.subscribe(&client, filter, at_qos(QOS_1));
    }
    for topic in ["own", "a", "b"] {
        stage.emit(&message(topic, topic.as_bytes(), QOS_1));
    }
    let delivered = stage.delivered(&client);
    assert_eq!(payloads(&delivered), ["own"]);
    stage.unsubscribe(&client, "$share/g/a");
    stage.acknowledge(&client, one(&delivered).what, ReasonCode::Success);
    assert_eq!(payloads(&stage.delivered(&client)), ["b"]);
}

/// [MQTT-4.8.2-3]
#[test]
fn each_member_gets_what_its_own_subscription_grants() {
    let mut stage = Stage::new();
    let mut members = BTreeMap::new();
    for (number, qos) in [(1, QOS_0), (2, QOS_1), (3, QOS_2)] {
        let client = stage.client(&format!("c{number}"), &Ask::lasting(60));
        let identifier = std::num::NonZeroU32::new(number);
        stage.subscribe(&client, SHARED, at_qos(qos).with_identifier(identifier));
        members.insert(number, client);
    }
    emit(&mut stage, 1..=3, QOS_2);
    assert_eq!(stage.live(&members[&1]), ["1"]);
    for (number, qos) in [(2, QOS_1), (3, QOS_2)] {
        let delivered = stage.delivered(&members[&number]);
        let deliver = one(&delivered);
        assert_eq!(deliver.qos, qos);
        assert_eq!(deliver.identifiers[0].get(), number);
    }
    stage.check_account();
}

/// Nothing of QoS 0 is acknowledged: without the look at its output such a member would take the whole queue.
#[test]
fn a_member_at_qos_0_takes_nothing_while_its_output_is_full() {
    for dispatch in [Dispatch::RoundRobin, Dispatch::KeyOrdered(Key::Publisher)] {
        for ask in [Ask::lasting(60), Ask::clean()] {
            let mut stage = Stage::with(Settings { dispatch: dispatch.clone(), ..Settings::default() });
            let slow = stage.client("slow", &ask);
            stage.subscribe(&slow, SHARED, at_qos(QOS_0));
            for level in [Level::Over, Level::Slow] {
                slow.subscriber.gauge.set(level);
                emit(&mut stage, 1..=3, QOS_1);
                assert!(stage.live(&slow).is_empty());
                assert_eq!(count(&stage.gauges().queued), 3);
                stage.pass_secs(1);
                assert!(stage.live(&slow).is_empty());
                slow.subscriber.gauge.set(Level::Open);
                stage.pass_secs(1);
                assert_eq!(stage.live(&slow), ["1", "2", "3"]);
                stage.replies();
            }
            stage.check_account();
        }
    }
}

#[test]
fn a_member_at_qos_0_with_a_full_output_leaves_its_turns_to_others() {
    let mut stage = Stage::new();
    let slow = stage.client("slow", &Ask::lasting(60));
    stage.subscribe(&slow, SHARED, at_qos(QOS_0));
    let well = stage.client("well", &Ask::lasting(60));
    stage.subscribe(&well, SHARED, at_qos(QOS_0));
    slow.subscriber.gauge.set(Level::Over);
    emit(&mut stage, 1..=6, QOS_1);
    assert_eq!((stage.live(&slow).len(), stage.live(&well).len()), (0, 6));
    stage.replies();
    slow.subscriber.gauge.set(Level::Open);
    stage.pass_secs(1);
    emit(&mut stage, 7..=12, QOS_1);
    assert_eq!((stage.live(&slow).len(), stage.live(&well).len()), (3, 3));
    stage.check_account();
}

/// The gauge says nothing about messages that have not reached the shard.
#[test]
fn a_member_at_qos_0_gets_no_more_than_a_marks_worth_before_its_shard_has_it() {
    for (ask, is_recorded) in [(Ask::lasting(60), true), (Ask::clean(), false)] {
        let mut stage =
            Stage::with(Settings { brake_messages: 10, brake_bytes: 1_000, ..Settings::default() });
        let client = stage.client("c", &ask);
        stage.subscribe(&client, SHARED, at_qos(QOS_0));
        stage.is_fast = false;
        stage.sink.has_no_room = true;
        emit(&mut stage, 1..=30, QOS_1);
        for _ in 0..3 {
            stage.pass_secs(1);
            stage.sync();
            assert_eq!(stage.live(&client).len(), 10, "the shard has not read");
        }
        stage.sink.has_no_room = false;
        (0..3).for_each(|_| stage.pass_secs(1));
        assert_eq!(stage.live(&client).len(), if is_recorded { 10 } else { 30 }, "the rest is not safe");
        for _ in 0..3 {
            stage.sync();
            stage.pass_secs(1);
        }
        stage.sync();
        assert_eq!(stage.live(&client).len(), 30);
        stage.check_account();
    }
}

/// Messages that no member that lasts has to get need no record, and no disk.
#[test]
fn a_member_at_qos_0_goes_on_when_nothing_can_be_recorded_any_more() {
    let mut stage = Stage::with(Settings { brake_messages: 2, brake_bytes: 1_000, ..Settings::default() });
    let client = stage.client("c", &Ask::clean());
    stage.subscribe(&client, SHARED, at_qos(QOS_0));
    let lasting = stage.client("lasting", &Ask::lasting(60));
    stage.subscribe(&lasting, "other", at_qos(QOS_1));
    stage.is_fast = false;
    stage.emit(&message("other", b"never safe", QOS_1));
    stage.sink.is_poisoned = true;
    let last = stage.last();
    stage.progress(Lsn(last.0 - 1), Lsn(last.0 - 1), true);
    emit(&mut stage, 1..=9, QOS_1);
    (0..9).for_each(|_| stage.pass_secs(1));
    assert_eq!(stage.live(&client).len(), 9);
    stage.check_account();
}

/// Messages of QoS 0 go straight, to one who is there.
#[test]
fn qos_0_goes_to_one_connected_member() {
    let mut stage = Stage::new();
    let here = member(&mut stage, "here", &Ask::clean());
    let away = member(&mut stage, "away", &Ask::lasting(60));
    stage.leave(&away, Cause::Normal);
    emit(&mut stage, 1..=4, QOS_0);
    assert_eq!(stage.live(&here).len(), 4);
    assert_eq!(count(&stage.gauges().routed), 0);
}

/// A session's own subscriptions and its part in a group are two things.
#[test]
fn a_group_is_merged_with_nothing() {
    let mut stage = Stage::new();
    let client = member(&mut stage, "c", &Ask::lasting(60));
    stage.subscribe(&client, "a", at_qos(QOS_1));
    emit(&mut stage, 1..=1, QOS_1);
    assert_eq!(payloads(&stage.delivered(&client)), ["1", "1"]);
}

/// • What a member has not acknowledged goes back to the front when it goes, and to another.
#[test]
fn messages_that_a_member_leaves_behind_go_to_another_in_order() {
    for is_lasting in [true, false] {
        let mut stage = Stage::new();
        let ask = if is_lasting { Ask::lasting(60) } else { Ask::clean() };
        let keeper = member(&mut stage, "keeper", &Ask::lasting(60).window(1));
        let first = member(&mut stage, "first", &ask.window(3));
        emit(&mut stage, 1..=9, QOS_1);
        let kept = stage.delivered(&keeper);
        assert_eq!((payloads(&kept), stage.delivered(&first).len()), (vec!["1".to_owned()], 3));
        stage.leave(&first, Cause::WithWill);
        let mut deliver = one(&kept).what;
        for expected in 2..=9 {
            stage.acknowledge(&keeper, deliver, ReasonCode::Success);
            let delivered = stage.delivered(&keeper);
            assert_eq!(payloads(&delivered), [expected.to_string()]);
            assert!(!delivered[0].dup, "this client has not had it");
            deliver = delivered[0].what;
        }
        stage.acknowledge(&keeper, deliver, ReasonCode::Success);
        assert_eq!(count(&stage.gauges().acknowledged), 9);
        stage.check_account();
    }
}

/// [MQTT-4.8.2-4] [MQTT-4.8.2-5]
#[test]
fn qos_2_stays_with_the_member_that_has_it() {
    let mut stage = Stage::new();
    let other = member(&mut stage, "other", &Ask::lasting(60).window(1));
    let holder = member(&mut stage, "holder", &Ask::lasting(60).window(1));
    emit(&mut stage, 1..=2, QOS_2);
    assert_eq!(payloads(&stage.delivered(&other)), ["1"]);
    let delivered = stage.delivered(&holder);
    let id = id_of(one(&delivered));
    stage.leave(&holder, Cause::WithWill);
    assert!(stage.delivered(&other).is_empty());
    let holder = stage.client("holder", &Ask::lasting(60));
    let again = stage.delivered(&holder);
    assert!(one(&again).dup && id_of(one(&again)) == id);
    stage.leave_with(&holder, Cause::WithWill, Some(0));
    stage.acknowledge(
        &other,
        Delivered::Session { queue: other.queue(), packet_id: packet_id(1) },
        ReasonCode::UnspecifiedError,
    );
    assert!(stage.delivered(&other).is_empty(), "its session has ended, and the message with it");
    assert_eq!(count(&stage.gauges().discarded), 1);
    stage.check_account();
}

/// A clean member numbers its own packets: the message is its own once it says that it was written.
#[test]
fn qos_2_of_a_clean_member_is_its_own_once_it_is_written() {
    for is_written in [false, true] {
        let mut stage = Stage::new();
        let other = member(&mut stage, "other", &Ask::lasting(60));
        stage.leave(&other, Cause::Normal);
        let clean = member(&mut stage, "clean", &Ask::clean());
        emit(&mut stage, 1..=1, QOS_2);
        let delivered = stage.delivered(&clean);
        let Delivered::Group { group, entry } = one(&delivered).what else { panic!("it has no session") };
        if is_written {
            let connection = clean.place.connection;
            stage.handle(clean.place.shard, Command::Sent { group, entry, connection });
        }
        stage.leave(&clean, Cause::WithWill);
        let other = stage.client("other", &Ask::lasting(60));
        assert_eq!(stage.delivered(&other).len(), usize::from(!is_written));
        assert_eq!(count(&stage.gauges().discarded), usize::from(is_written));
        stage.check_account();
    }
}

/// [MQTT-4.8.2-6]
#[test]
fn messages_that_a_member_refuses_go_to_nobody_else() {
    for ask in [Ask::lasting(60), Ask::clean()] {
        let mut stage = Stage::new();
        let first = member(&mut stage, "first", &ask.clone());
        let second = member(&mut stage, "second", &ask);
        emit(&mut stage, 1..=1, QOS_1);
        let delivered = stage.delivered(&first);
        stage.acknowledge(&first, one(&delivered).what, ReasonCode::UnspecifiedError);
        stage.leave(&first, Cause::WithWill);
        assert!(stage.delivered(&second).is_empty());
        assert_eq!(count(&stage.gauges().refused_by_client), 1);
        stage.check_account();
    }
}

#[test]
fn messages_wait_while_members_that_last_are_away() {
    let mut stage = Stage::new();
    let first = member(&mut stage, "first", &Ask::lasting(60));
    let second = member(&mut stage, "second", &Ask::lasting(60));
    stage.leave(&first, Cause::Normal);
    stage.leave(&second, Cause::Normal);
    emit(&mut stage, 1..=3, QOS_1);
    assert_eq!(count(&stage.gauges().queued), 3);
    let second = stage.client("second", &Ask::lasting(60));
    assert_eq!(payloads(&stage.delivered(&second)), ["1", "2", "3"]);
}

/// A group that loses its last member is none: what waited is discarded, and counted.
#[test]
fn a_group_without_members_vanishes() {
    for is_lasting in [true, false] {
        let mut stage = Stage::new();
        let ask = if is_lasting { Ask::lasting(60) } else { Ask::clean() };
        let first = member(&mut stage, "first", &ask.clone().window(1));
        let second = member(&mut stage, "second", &ask.window(1));
        emit(&mut stage, 1..=5, QOS_1);
        let held = stage.delivered(&second);
        stage.leave_with(&first, Cause::WithWill, Some(0));
        stage.work();
        assert_eq!(count(&stage.gauges().groups), 1);
        stage.unsubscribe(&second, SHARED);
        assert_eq!(count(&stage.gauges().groups), 0);
        assert!(stage.targets("a").is_empty());
        stage.acknowledge(&second, one(&held).what, ReasonCode::Success);
        let finished = usize::from(is_lasting);
        assert_eq!(count(&stage.gauges().acknowledged), finished, "what was begun is finished");
        assert_eq!(count(&stage.gauges().discarded), 5 - finished);
        stage.check_account();
        emit(&mut stage, 6..=6, QOS_1);
        assert_eq!(count(&stage.gauges().routed), 5, "it goes to nobody");
    }
}

/// A message is as durable as its group was when it was accepted.
#[test]
fn a_group_is_recorded_as_soon_as_it_has_a_member_that_lasts() {
    let mut stage = Stage::new();
    let clean = member(&mut stage, "clean", &Ask::clean().window(1));
    emit(&mut stage, 1..=2, QOS_1);
    assert!(stage.sink.groups.is_empty());
    let lasting = member(&mut stage, "lasting", &Ask::lasting(60));
    assert_eq!(payloads(&stage.delivered(&lasting)), ["2"]);
    stage.sink.groups.clear();
    emit(&mut stage, 3..=3, QOS_1);
    let groups = &stage.sink.groups;
    assert!(matches!(&groups[0].1[..], [Record::Enqueue { queues, .. }] if queues.len() == 1), "{groups:?}");
    drop(clean);
}

#[test]
fn a_full_group_ends_the_sessions_of_its_members() {
    let mut stage = Stage::with(Settings { queue_messages_max: 2, ..Settings::default() });
    let away = member(&mut stage, "away", &Ask::lasting(60));
    stage.leave(&away, Cause::Normal);
    let here = member(&mut stage, "here", &Ask::lasting(60).window(1));
    let clean = member(&mut stage, "clean", &Ask::clean().window(1));
    emit(&mut stage, 1..=2, QOS_1);
    stage.work();
    emit(&mut stage, 3..=5, QOS_1);
    assert_eq!(stage.ended(&here), [ReasonCode::QuotaExceeded]);
    assert_eq!(stage.ended(&clean), [ReasonCode::QuotaExceeded]);
    stage.leave(&here, Cause::WithWill);
    stage.leave(&clean, Cause::WithWill);
    stage.work();
    assert_eq!((count(&stage.gauges().sessions), count(&stage.gauges().groups)), (0, 0));
    assert!(stage.targets("a").is_empty());
    stage.check_account();
}

#[test]
fn a_full_group_may_drop_messages_instead() {
    let settings =
        Settings { queue_messages_max: 2, queue_full: QueueFull::DropOldest, ..Settings::default() };
    let mut stage = Stage::with(settings);
    let away = member(&mut stage, "away", &Ask::lasting(60));
    stage.leave(&away, Cause::Normal);
    emit(&mut stage, 1..=5, QOS_1);
    let back = stage.client("away", &Ask::lasting(60));
    assert_eq!(payloads(&stage.delivered(&back)), ["4", "5"]);
    stage.check_account();
}

/// A member with a full window is passed over, and served again when it takes something.
#[test]
fn members_without_room_are_passed_over() {
    let mut stage = Stage::new();
    let slow = member(&mut stage, "slow", &Ask::lasting(60).window(1));
    let quick = member(&mut stage, "quick", &Ask::clean().window(10));
    emit(&mut stage, 1..=11, QOS_1);
    let held = stage.delivered(&slow);
    let many = stage.delivered(&quick);
    assert_eq!((held.len(), many.len()), (1, 10));
    emit(&mut stage, 12..=12, QOS_1);
    assert!(stage.delivered(&slow).is_empty() && stage.delivered(&quick).is_empty());
    stage.acknowledge(&slow, one(&held).what, ReasonCode::Success);
    assert_eq!(payloads(&stage.delivered(&slow)), ["12"]);
    // Room for several groups and its own queue is shared.
    stage.subscribe(&slow, "$share/h/a", at_qos(QOS_1));
    stage.subscribe(&slow, "a", at_qos(QOS_1));
    for deliver in many {
        stage.acknowledge(&quick, deliver.what, ReasonCode::Success);
    }
    emit(&mut stage, 13..=15, QOS_1);
    let mut taken = Vec::new();
    let mut what = Delivered::Session { queue: slow.queue(), packet_id: packet_id(2) };
    for _ in 0..6 {
        stage.acknowledge(&slow, what, ReasonCode::Success);
        let delivered = stage.delivered(&slow);
        taken.extend(payloads(&delivered));
        what = one(&delivered).what;
    }
    taken.sort_unstable();
    assert_eq!(taken, ["13", "13", "14", "14", "15", "15"], "its own and those of the second group");
}

/// All leave while messages are given out; nothing spins, nothing is lost that a lasting member could still get.
#[test]
fn all_members_may_go_in_the_middle_of_a_flood() {
    let mut stage = Stage::new();
    let members: Vec<Client> =
        (0..4).map(|number| member(&mut stage, &format!("m{number}"), &Ask::lasting(60).window(2))).collect();
    emit(&mut stage, 1..=100, QOS_1);
    stage.work();
    members.iter().for_each(|member| stage.leave(member, Cause::WithWill));
    stage.work();
    assert!(!stage.ledger.has_work());
    assert_eq!(count(&stage.gauges().queued), 100);
    stage.check_account();
}

/// [MQTT-4.8.2-6]: so it is with PUBREC.
#[test]
fn messages_that_a_member_refuses_in_pubrec_are_discarded() {
    for ask in [Ask::lasting(60), Ask::clean()] {
        let mut stage = Stage::new();
        let first = member(&mut stage, "first", &ask.clone());
        let second = member(&mut stage, "second", &ask);
        emit(&mut stage, 1..=1, QOS_2);
        let delivered = stage.delivered(&first);
        stage.acknowledge(&first, one(&delivered).what, ReasonCode::QuotaExceeded);
        stage.leave(&first, Cause::WithWill);
        assert!(stage.delivered(&second).is_empty());
        assert_eq!((count(&stage.gauges().refused_by_client), count(&stage.gauges().in_flight)), (1, 0));
        stage.check_account();
    }
}

/// Messages that a member gives back are sent before messages that were never sent, even if newer ones have arrived
/// meanwhile.
#[test]
fn returned_messages_are_sent_before_newer_messages() {
    let mut stage = Stage::new();
    let gone = member(&mut stage, "gone", &Ask::clean().window(3));
    emit(&mut stage, 1..=6, QOS_1);
    assert_eq!(stage.delivered(&gone).len(), 3);
    let left = member(&mut stage, "left", &Ask::lasting(60).window(1));
    assert_eq!(payloads(&stage.delivered(&left)), ["4"]);
    stage.leave(&gone, Cause::WithWill);
    emit(&mut stage, 7..=7, QOS_1);
    let mut what = Delivered::Session { queue: left.queue(), packet_id: packet_id(1) };
    for expected in ["1", "2", "3", "5", "6", "7"] {
        stage.acknowledge(&left, what, ReasonCode::Success);
        let delivered = stage.delivered(&left);
        assert_eq!(payloads(&delivered), [expected]);
        what = one(&delivered).what;
    }
}

/// A clean member's session has kept a message for too long: it is no acknowledged one.
#[test]
fn messages_that_expire_with_a_clean_member_count_as_expired() {
    let mut stage = Stage::new();
    let clean = member(&mut stage, "clean", &Ask::clean());
    emit(&mut stage, 1..=1, QOS_1);
    let delivered = stage.delivered(&clean);
    let Delivered::Group { group, entry } = one(&delivered).what else { panic!("it has no session") };
    stage.handle(clean.place.shard, Command::Expired { group, entry, connection: clean.place.connection });
    let gauges = stage.gauges();
    assert_eq!((count(&gauges.expired), count(&gauges.acknowledged), count(&gauges.in_flight)), (1, 0, 0));
    stage.check_account();
}

/// A member gets nothing of a message that is larger than it takes, and neither does anybody else.
#[test]
fn a_message_that_is_too_large_for_the_member_whose_turn_it_is_has_a_record() {
    for ask in [Ask::lasting(60), Ask::clean()] {
        let mut stage = Stage::new();
        let small = member(&mut stage, "small", &ask.packet_bytes_max(200));
        record_fates(&mut stage, &["small"]);
        stage.emit(&message("a", &[b'x'; 1_000], QOS_1));
        assert_eq!(stage.delivered(&small).len(), 0);
        assert_eq!(fates(&mut stage, "small"), [Fate::TooLarge]);
        assert_eq!(count(&stage.gauges().too_large), 1);
        stage.check_account();
    }
}

/// The packet of the group has a subscription identifier, and is one byte larger than the member takes. The member's own
/// message waits behind others when it is the group's turn.
#[test]
fn a_message_that_waits_for_a_member_itself_has_a_record_apart_from_that_of_the_group() {
    let mut stage = Stage::new();
    let ask = || Ask::lasting(60).packet_bytes_max(200);
    let small = stage.client("small", &ask());
    let identifier = std::num::NonZeroU32::new(1);
    stage.subscribe(&small, SHARED, at_qos(QOS_1).with_identifier(identifier));
    stage.subscribe(&small, "+", at_qos(QOS_1));
    stage.leave(&small, Cause::Normal);
    record_fates(&mut stage, &["small"]);
    for _ in 0..20 {
        stage.emit(&message("b", b"x", QOS_1));
    }
    stage.emit(&message("a", &[b'x'; 190], QOS_1));
    let small = stage.client("small", &ask());
    assert_eq!(stage.delivered(&small).len(), 21);
    // The last records: the group's is the newest.
    let fates = fates(&mut stage, "small");
    assert_eq!(fates[fates.len() - 2..], [Fate::Sent, Fate::TooLarge]);
    assert_eq!(count(&stage.gauges().too_large), 1);
    stage.check_account();
}

/// The other policies of a full queue, as a session has them.
#[test]
fn a_full_group_may_refuse_messages_or_drop_new_ones() {
    for (queue_full, answer) in
        [(QueueFull::Refuse, ReasonCode::QuotaExceeded), (QueueFull::DropNewest, ReasonCode::Success)]
    {
        let mut stage = Stage::with(Settings { queue_messages_max: 2, queue_full, ..Settings::default() });
        let away = member(&mut stage, "away", &Ask::lasting(60));
        stage.leave(&away, Cause::Normal);
        let publisher = stage.client("publisher", &Ask::clean());
        for number in 1..=3 {
            stage.publish(&publisher, number, &message("a", number.to_string().as_bytes(), QOS_1));
        }
        let last = stage.stored(&publisher).pop();
        assert_eq!(last.map(|(_, reason)| reason), Some(answer));
        let back = stage.client("away", &Ask::lasting(60));
        assert_eq!(payloads(&stage.delivered(&back)), ["1", "2"]);
        stage.check_account();
    }
}

/// A message that no member gets is recorded for each member whose operator asks, and for nobody else.
#[test]
fn a_message_that_a_group_loses_is_in_the_records_of_its_members() {
    let refused = Fate::NotStored(ReasonCode::QuotaExceeded);
    for (queue_full, lost) in [
        (QueueFull::DropOldest, Fate::DroppedOldest),
        (QueueFull::DropNewest, Fate::QueueFull),
        (QueueFull::Refuse, refused),
    ] {
        let mut stage = Stage::with(Settings { queue_messages_max: 2, queue_full, ..Settings::default() });
        let publisher = stage.client("publisher", &Ask::clean());
        stage.client("stranger", &Ask::clean());
        for name in ["one", "other"] {
            let away = member(&mut stage, name, &Ask::lasting(60));
            stage.leave(&away, Cause::Normal);
        }
        record_fates(&mut stage, &["one", "other", "stranger"]);
        let brief = message_with("a", b"brief", QOS_1, false, Some(1));
        for number in 1..=3 {
            stage.publish(&publisher, number, &brief);
        }
        stage.pass_secs(5);
        (0..5).for_each(|_| stage.work());
        for name in ["one", "other"] {
            assert_eq!(fates(&mut stage, name), [lost.clone(), Fate::Expired, Fate::Expired], "{name}");
        }
        assert_eq!(fates(&mut stage, "stranger"), []);
        stage.check_account();
    }
}

/// Expired messages that a member gave back are removed even if no other member connects, whatever their number.
#[test]
fn messages_that_a_member_gave_back_expire() {
    for dispatch in [base::Dispatch::RoundRobin, base::Dispatch::KeyOrdered(base::Key::Publisher)] {
        let mut stage = Stage::with(Settings { dispatch, ..Settings::default() });
        let away = member(&mut stage, "away", &Ask::lasting(60));
        stage.leave(&away, Cause::Normal);
        let gone = member(&mut stage, "gone", &Ask::clean().window(3_000));
        let brief = message_with("a", b"brief", QOS_1, false, Some(1));
        (0..1_100).for_each(|_| stage.emit(&brief));
        emit(&mut stage, 1..=1, QOS_1);
        assert_eq!(stage.delivered(&gone).len(), 1_101);
        (0..5).for_each(|_| stage.emit(&message("a", b"late", QOS_1)));
        stage.leave(&gone, Cause::WithWill);
        stage.pass_secs(5);
        (0..5).for_each(|_| stage.work());
        let gauges = stage.gauges();
        assert_eq!((count(&gauges.expired), count(&gauges.queued)), (1_100, 6));
        let back = stage.client("away", &Ask::lasting(60));
        assert_eq!(payloads(&stage.delivered(&back))[..2], ["1", "late"]);
        stage.check_account();
    }
}

/// A member that takes something again is not given what has expired meanwhile. [MQTT-3.3.2-5]
#[test]
fn a_member_is_not_given_what_has_expired() {
    let mut stage = Stage::new();
    let member = member(&mut stage, "member", &Ask::lasting(60).window(1));
    emit(&mut stage, 1..=1, QOS_1);
    stage.emit(&message_with("a", b"brief", QOS_1, false, Some(1)));
    emit(&mut stage, 2..=2, QOS_1);
    let held = stage.delivered(&member);
    // No sweep before the member has room.
    stage.now.monotonic_ms += 5_000;
    stage.now.unix_ms += 5_000;
    stage.acknowledge(&member, one(&held).what, ReasonCode::Success);
    assert_eq!(payloads(&stage.delivered(&member)), ["2"]);
    assert_eq!(count(&stage.gauges().expired), 1);
    stage.check_account();
}
