//! Old records, copied as far as they are still true, and forgotten.

use std::collections::VecDeque;
use std::sync::Arc;

use base::ShardId;
use index::Subscriptions;
use ledger::{Effects, Keeper, Ledger, Lsn, Needs, Progress, Record, Refusal, Settings, Turnover};
use protocol::{Cause, Command, CursorId, Left, Reply};
use wire::ReasonCode;

use crate::stage::{
    Ask, Client, QOS_0, QOS_1, QOS_2, Sink, Stage, at_qos, id_of, message, packet_id, payloads, retained,
};

type Group = Vec<Record<'static>>;

fn replay(groups: &[Group], stage: &Stage) -> Ledger {
    let index = Arc::new(Subscriptions::new([1, 2]));
    Ledger::recover(Settings::default(), index, groups.iter().flatten().cloned(), stage.now)
}

/// Returns the copies of some groups of records.
fn copies(groups: &[Group], stage: &mut Stage) -> Vec<Group> {
    let before = stage.sink.groups.len();
    let mut old: VecDeque<Record<'static>> = groups.iter().flatten().cloned().collect();
    while stage.ledger.copy_some(&mut old, &mut stage.sink) {}
    assert!(old.is_empty(), "nothing stands in the way");
    stage.sink.groups.split_off(before).into_iter().map(|(_, group)| group).collect()
}

/// Wherever the log is cut, what is left and the copies of what is gone make the same ledger; so they do if nothing is
/// gone, or not everything was copied; and copies of copies are as good.
fn check(stage: &mut Stage) {
    stage.work();
    let state = stage.ledger.durable_state();
    let groups: Vec<Group> = stage.sink.groups.iter().map(|(_, group)| group.clone()).collect();
    let is_same = |log: &[Group], what: &str, stage: &Stage| {
        assert_eq!(replay(log, stage).durable_state(), state, "{what}:\n{log:#?}");
    };
    for cut in 0..=groups.len() {
        let copied = copies(&groups[..cut], stage);
        is_same(&[&groups[cut..], &copied].concat(), "cut off", stage);
        is_same(&[&groups[..], &copied].concat(), "not cut off", stage);
        is_same(&[&groups[..], &copied[..copied.len() / 2]].concat(), "half copied", stage);
    }
    let all = copies(&groups, stage);
    for cut in 0..=all.len() {
        let again = copies(&all[..cut], stage);
        is_same(&[&all[cut..], &again].concat(), "copied twice", stage);
    }
    let again = copies(&all, stage);
    assert!(again.len() <= all.len(), "copies do not become more");
    assert_eq!(stage.ledger.durable_state(), state, "the ledger has not changed");
}

fn emit(stage: &mut Stage, topic: &str, payloads: &[&str]) {
    payloads.iter().for_each(|payload| stage.emit(&message(topic, payload.as_bytes(), QOS_2)));
}

#[test]
fn sessions_and_their_presence() {
    let mut stage = Stage::new();
    stage.client("for-ever", &Ask::lasting(u32::MAX));
    check(&mut stage);
    let comes_back = stage.client("comes-back", &Ask::lasting(60).will("w", 30));
    stage.leave(&comes_back, Cause::WithWill);
    check(&mut stage);
    stage.pass_secs(10);
    let comes_back = stage.client("comes-back", &Ask::lasting(70).will("w", 5));
    check(&mut stage);
    stage.leave_with(&comes_back, Cause::WithWill, Some(20));
    check(&mut stage);
    stage.pass_secs(6);
    check(&mut stage);
    stage.client("comes-back", &Ask::lasting(60).clean_start());
    let gone = stage.client("gone", &Ask::lasting(5));
    stage.leave(&gone, Cause::Normal);
    check(&mut stage);
    stage.pass_secs(60);
    check(&mut stage);
}

/// Down time counts from when the client left, wherever that is recorded by now.
#[test]
fn a_copy_remembers_when_its_client_left() {
    let mut stage = Stage::new();
    let client = stage.client("c", &Ask::lasting(60).will("w", 50));
    stage.leave(&client, Cause::WithWill);
    stage.pass_secs(40);
    let groups: Vec<Group> = stage.sink.groups.iter().map(|(_, group)| group.clone()).collect();
    let copied = copies(&groups, &mut stage);
    let mut again = Stage::new();
    again.now = stage.now;
    again.ledger = replay(&copied, &stage);
    again.pass_secs(9);
    assert_eq!(crate::stage::count(&again.gauges().wills_published), 0);
    again.pass_secs(1);
    assert_eq!(crate::stage::count(&again.gauges().wills_published), 1);
    again.pass_secs(9);
    assert_eq!(crate::stage::count(&again.gauges().sessions), 1);
    again.pass_secs(1);
    assert_eq!(crate::stage::count(&again.gauges().sessions), 0);
}

/// Users of sessions and of their wills, also when another user has taken over a session that nobody has proved.
#[test]
fn users_of_sessions_and_wills() {
    let mut stage = Stage::new();
    let anonymous = stage.client("anonymous", &Ask::lasting(60));
    let ann = stage.client("ann", &Ask::lasting(60).of("ann").will("w", 30));
    check(&mut stage);
    assert!(stage.ledger.durable_state().contains("for Some(\"ann\") true"));
    stage.leave(&anonymous, Cause::Normal);
    stage.client("anonymous", &Ask::lasting(60).of("bob"));
    check(&mut stage);
    assert!(stage.ledger.durable_state().contains("for Some(\"bob\") true"));
    let witness = stage.client("witness", &Ask::lasting(60));
    stage.subscribe(&witness, "w", at_qos(QOS_1));
    stage.sink.no_space = true;
    stage.leave_with(&ann, Cause::WithWill, Some(0));
    check(&mut stage);
    let state = stage.ledger.durable_state();
    assert!(state.contains("will MessageId(1) for Some(\"ann\")"), "{state}");
}

/// The rights of a token are recorded with the user, and others replace them.
#[test]
fn rights_of_sessions_and_wills() {
    let mut stage = Stage::new();
    let has = |stage: &Stage, rights: &str| {
        let state = stage.ledger.durable_state();
        assert!(state.contains(rights), "{state}");
    };
    let ann = || Ask::lasting(60).of("ann");
    let in_group = |group| Ask { group: Some(group), ..ann() };
    let first = stage.client("c", &in_group("first"));
    check(&mut stage);
    has(&stage, "Some(Claims { groups: [\"first\"]");
    stage.leave(&first, Cause::Normal);
    let second = stage.client("c", &in_group("second").will("w", 30));
    check(&mut stage);
    has(&stage, "Some(Claims { groups: [\"second\"]");
    let witness = stage.client("witness", &Ask::lasting(60));
    stage.subscribe(&witness, "w", at_qos(QOS_1));
    stage.sink.no_space = true;
    stage.leave_with(&second, Cause::WithWill, Some(0));
    check(&mut stage);
    has(&stage, "will MessageId(1) for Some(\"ann\") Realm(0) Some(Claims { groups: [\"second\"]");
    stage.sink.no_space = false;
    let third = stage.client("c", &in_group("third"));
    stage.leave(&third, Cause::Normal);
    stage.client("c", &ann());
    check(&mut stage);
    let state = stage.ledger.durable_state();
    assert!(state.contains("for Some(\"ann\") true Realm(0) None") && !state.contains("third"), "{state}");
}

/// The place of a user's name and the beginning of its topics are recorded too, with rights and without.
#[test]
fn tenants_of_sessions() {
    let mut stage = Stage::new();
    let behind = |topics, group| Ask { topics, group, ..Ask::lasting(60).of("ann") };
    for (number, topics) in [["m/", "p/"], ["m/", ""], ["", "p/"], ["", ""]].into_iter().enumerate() {
        for group in [None, Some("g")] {
            let client = stage.client(&format!("c{number}{}", group.is_some()), &behind(topics, group));
            stage.leave(&client, Cause::Normal);
            check(&mut stage);
            let (state, [mount, prefix]) = (stage.ledger.durable_state(), topics);
            let tenant = format!("users: \"users\", mount: {mount:?}, prefix: {prefix:?}");
            assert_eq!(state.matches(&tenant).count(), 1 + usize::from(group.is_some()), "{state}");
        }
    }
}

/// The record of a session's user is older than the connection that brings the will, and goes first.
#[test]
fn a_will_keeps_its_user_whatever_becomes_of_its_session() {
    for expiry_secs in [0, 60] {
        let mut stage = Stage::new();
        let witness = stage.client("witness", &Ask::lasting(60));
        stage.subscribe(&witness, "w", at_qos(QOS_1));
        let first = stage.client("c", &Ask::lasting(60).of("ann"));
        stage.leave(&first, Cause::Normal);
        let second = stage.client("c", &Ask::lasting(60).of("ann").will("w", 0));
        stage.sink.no_space = true;
        stage.leave_with(&second, Cause::WithWill, Some(expiry_secs));
        check(&mut stage);
        let state = stage.ledger.durable_state();
        assert!(state.contains("for Some(\"ann\") Realm"), "{state}");
    }
}

#[test]
fn wills_that_are_due() {
    let mut stage = Stage::new();
    let witness = stage.client("witness", &Ask::lasting(60));
    stage.subscribe(&witness, "w", at_qos(QOS_1));
    let stays = stage.client("stays", &Ask::lasting(60).will("w", 0));
    let ends = stage.client("ends", &Ask::lasting(60).will("w", 9));
    stage.sink.no_space = true;
    stage.leave(&stays, Cause::WithWill);
    stage.leave_with(&ends, Cause::WithWill, Some(0));
    check(&mut stage);
    assert!(stage.ledger.durable_state().contains("wills due {MessageId(1), MessageId(2)}"));
    stage.sink.no_space = false;
    stage.pass_secs(1);
    check(&mut stage);
    assert_eq!(payloads(&stage.delivered(&witness)), ["will", "will"]);
}

#[test]
fn subscriptions_and_groups() {
    let mut stage = Stage::new();
    let [one, two] = ["1", "2"].map(|name| stage.client(name, &Ask::lasting(60)));
    stage.subscribe(&one, "a/#", at_qos(QOS_1));
    stage.subscribe(&one, "$share/g/s/#", at_qos(QOS_1));
    stage.subscribe(&two, "$share/g/s/#", at_qos(QOS_2));
    check(&mut stage);
    stage.subscribe(&one, "a/#", at_qos(QOS_2));
    stage.unsubscribe(&one, "$share/g/s/#");
    check(&mut stage);
    stage.unsubscribe(&two, "$share/g/s/#");
    stage.subscribe(&two, "$share/g/s/#", at_qos(QOS_2));
    check(&mut stage);
    stage.leave_with(&two, Cause::Normal, Some(0));
    check(&mut stage);
}

#[test]
fn messages_in_queues_and_on_their_way() {
    let mut stage = Stage::new();
    let reader = stage.client("reader", &Ask::lasting(60).window(3));
    stage.subscribe(&reader, "a", at_qos(QOS_2));
    let away = stage.client("away", &Ask::lasting(60));
    stage.subscribe(&away, "#", at_qos(QOS_1));
    stage.leave(&away, Cause::Normal);
    emit(&mut stage, "a", &["1", "2", "3", "4", "5"]);
    check(&mut stage);
    let sent = stage.delivered(&reader);
    assert_eq!(payloads(&sent), ["1", "2", "3"]);
    stage.received(&reader, id_of(&sent[1]));
    check(&mut stage);
    stage.acknowledge(&reader, sent[0].what, ReasonCode::UnspecifiedError);
    stage.acknowledge(&reader, sent[1].what, ReasonCode::Success);
    check(&mut stage);
    stage.leave(&reader, Cause::Normal);
    check(&mut stage);
    let away = stage.client("away", &Ask::lasting(60));
    for deliver in stage.delivered(&away) {
        stage.acknowledge(&away, deliver.what, ReasonCode::Success);
    }
    check(&mut stage);
}

/// A retained message in the queues of very many sessions. Some of them are connected, and the message is on its way to them.
fn in_many_queues(is_connected: impl Fn(usize) -> bool) -> (Stage, Vec<Client>) {
    let mut stage = Stage::new();
    let clients: Vec<Client> = (0..600)
        .map(|number| {
            let client = stage.client(&number.to_string(), &Ask::lasting(60));
            stage.subscribe(&client, "a", at_qos(QOS_1));
            if !is_connected(number) {
                stage.leave(&client, Cause::Normal);
            }
            client
        })
        .collect();
    stage.emit(&retained("a", b"1", QOS_1));
    stage.work();
    (stage, clients)
}

/// The copy of a message says how it has left each of its queues, which the first record did not: it may not outgrow what
/// a group may be.
#[test]
fn a_message_of_very_many_queues_is_copied_in_pieces() {
    let (mut stage, clients) = in_many_queues(|_| true);
    stage.leave(&clients[0], Cause::Normal);
    stage.work();
    let groups: Vec<Group> = stage.sink.groups.iter().map(|(_, group)| group.clone()).collect();
    let copied = copies(&groups, &mut stage);
    let of_message = |group: &&Group| matches!(group[0], Record::Enqueue { .. });
    let sizes: Vec<usize> = copied.iter().filter(of_message).map(Vec::len).collect();
    assert_eq!(sizes.len(), 3, "{sizes:?}");
    assert!(sizes.iter().all(|records| (88..=257).contains(records)), "{sizes:?}");
    assert_eq!(replay(&copied, &stage).durable_state(), stage.ledger.durable_state());
    assert_eq!(copies(&copied, &mut stage).len(), copied.len());
}

/// Copies some groups of records while there is space for a number of copies, and then for some more. Returns the copies of
/// messages.
fn copies_in_attempts(groups: &[Group], stage: &mut Stage, attempts: &[Option<usize>]) -> Vec<Group> {
    let before = stage.sink.groups.len();
    let mut old: VecDeque<Record<'static>> = groups.iter().flatten().cloned().collect();
    for copies_left in attempts {
        assert!(!old.is_empty(), "some are left for this attempt");
        stage.sink.copies_left = *copies_left;
        while stage.ledger.copy_some(&mut old, &mut stage.sink) {}
    }
    assert!(old.is_empty(), "the last attempt has space");
    let copied = stage.sink.groups.split_off(before).into_iter().map(|(_, group)| group);
    copied.filter(|group| matches!(group[0], Record::Enqueue { .. })).collect()
}

/// Asserts that each of 600 queues, and the retained value, has one of these copies.
fn assert_once_each(copied: &[Group]) {
    let (mut all, mut values) = (Vec::new(), 0);
    for group in copied {
        let Record::Enqueue { queues, is_retained, .. } = &group[0] else { panic!("{group:?}") };
        all.extend(queues.iter().map(|queued| queued.queue));
        values += usize::from(*is_retained);
    }
    all.sort_unstable();
    let queues = all.len();
    all.dedup();
    assert_eq!((all.len(), queues, values), (600, 600, 1));
}

/// A copy stops in the middle for lack of space, again and again, and goes on where it has stopped.
#[test]
fn a_copy_that_stops_in_the_middle_repeats_nothing() {
    let (mut stage, _) = in_many_queues(|number| number % 2 == 0);
    let groups: Vec<Group> = stage.sink.groups.iter().map(|(_, group)| group.clone()).collect();
    let (message, others): (Vec<Group>, Vec<Group>) =
        groups.into_iter().partition(|group| matches!(group[0], Record::Enqueue { .. }));
    let once = copies_in_attempts(&message, &mut stage, &[Some(1), Some(0), Some(1), Some(0), None]);
    assert_once_each(&once);
    let twice = copies_in_attempts(&once, &mut stage, &[None]);
    assert_once_each(&twice);
    let log = [&others[..], &twice].concat();
    assert_eq!(replay(&log, &stage).durable_state(), stage.ledger.durable_state());
}

/// The process has ended in the middle of a copy. The next one finds no space at first.
#[test]
fn a_copy_that_a_crash_has_stopped_repeats_nothing() {
    let (mut stage, _) = in_many_queues(|number| number % 2 == 0);
    let groups: Vec<Group> = stage.sink.groups.iter().map(|(_, group)| group.clone()).collect();
    let message: Vec<Group> =
        groups.iter().filter(|group| matches!(group[0], Record::Enqueue { .. })).cloned().collect();
    let copied = copies(&message, &mut stage);
    for pieces in 1..=3 {
        let before = &copied[..pieces];
        stage.ledger = replay(&[&groups[..], before].concat(), &stage);
        stage.work();
        let mut attempts = vec![None];
        if pieces < 3 {
            attempts.insert(0, Some(0));
        }
        let rest = copies_in_attempts(&message, &mut stage, &attempts);
        assert_once_each(&[before, &rest].concat());
    }
}

/// A message in a queue, one on its way, one that has moved from a group, and a retained value.
#[test]
fn messages_that_a_crash_has_left_twice_are_copied_once() {
    let mut stage = Stage::new();
    let away = stage.client("away", &Ask::lasting(60));
    stage.subscribe(&away, "a", at_qos(QOS_1));
    stage.leave(&away, Cause::Normal);
    let reader = stage.client("reader", &Ask::lasting(60));
    stage.subscribe(&reader, "b", at_qos(QOS_1));
    stage.subscribe(&reader, "$share/g/c", at_qos(QOS_2));
    ["a", "b", "c"].iter().for_each(|topic| emit(&mut stage, topic, &["x"]));
    stage.emit(&retained("d", b"x", QOS_1));
    assert_eq!(stage.delivered(&reader).len(), 2);
    let groups: Vec<Group> = stage.sink.groups.iter().map(|(_, group)| group.clone()).collect();
    let of_messages = |groups: Vec<Group>| {
        let is_message = |group: &Group| matches!(group[0], Record::Enqueue { .. });
        groups.into_iter().filter(is_message).collect::<Vec<Group>>()
    };
    let copied = of_messages(copies(&groups, &mut stage));
    assert_eq!(copied.len(), 4);
    stage.ledger = replay(&[&groups[..], &copied].concat(), &stage);
    stage.work();
    assert!(of_messages(copies(&groups, &mut stage)).is_empty(), "the copies are younger");
    assert_eq!(of_messages(copies(&copied, &mut stage)).len(), 4);
}

#[test]
fn exchanges_that_a_client_has_begun() {
    let mut stage = Stage::new();
    let client = stage.client("c", &Ask::lasting(60));
    for id in [1, 2, 3] {
        stage.publish(&client, id, &message("a", b"x", QOS_2));
    }
    stage.released(&client, packet_id(2));
    check(&mut stage);
    stage.publish(&client, 2, &message("a", b"x", QOS_2));
    check(&mut stage);
}

/// A message may be in one session twice: for itself, and for a group that has ended since.
#[test]
fn messages_of_groups() {
    let mut stage = Stage::new();
    let member = stage.client("member", &Ask::lasting(60).window(3));
    stage.subscribe(&member, "$share/g/s", at_qos(QOS_2));
    stage.subscribe(&member, "$share/h/s", at_qos(QOS_2));
    stage.subscribe(&member, "s", at_qos(QOS_1));
    emit(&mut stage, "s", &["1", "2", "3"]);
    check(&mut stage);
    assert_eq!(stage.delivered(&member).len(), 3);
    stage.unsubscribe(&member, "$share/g/s");
    check(&mut stage);
    stage.leave(&member, Cause::Normal);
    check(&mut stage);
    let member = stage.client("member", &Ask::lasting(60).window(30));
    let sent = stage.delivered(&member);
    check(&mut stage);
    for deliver in sent {
        stage.received(&member, id_of(&deliver));
        check(&mut stage);
        stage.acknowledge(&member, deliver.what, ReasonCode::Success);
    }
    check(&mut stage);
}

/// The message may be older than the session that it has moved to: its copy comes before anything else that says that
/// there is this session.
#[test]
fn a_message_that_is_older_than_its_session() {
    let mut stage = Stage::new();
    let away = stage.client("away", &Ask::lasting(60));
    stage.subscribe(&away, "$share/g/s", at_qos(QOS_2));
    stage.leave(&away, Cause::Normal);
    emit(&mut stage, "s", &["1"]);
    let member = stage.client("member", &Ask::lasting(60));
    stage.subscribe(&member, "$share/g/s", at_qos(QOS_2));
    assert_eq!(payloads(&stage.delivered(&member)), ["1"]);
    check(&mut stage);
    stage.leave(&member, Cause::Normal);
    check(&mut stage);
}

#[test]
fn messages_that_a_group_has_lent() {
    let mut stage = Stage::new();
    let clean = stage.client("clean", &Ask::clean().window(2));
    stage.subscribe(&clean, "$share/g/s", at_qos(QOS_2));
    emit(&mut stage, "s", &["before the group lasts", "too"]);
    emit(&mut stage, "s", &["waits since then"]);
    let lasting = stage.client("lasting", &Ask::lasting(60).window(2));
    stage.subscribe(&lasting, "$share/g/s", at_qos(QOS_1));
    emit(&mut stage, "s", &["1", "2", "3", "4"]);
    let lent = stage.delivered(&clean);
    check(&mut stage);
    let connection = clean.place.connection;
    if let protocol::Delivered::Group { group, entry } = lent[0].what {
        stage.handle(clean.place.shard, Command::Sent { group, entry, connection });
    }
    check(&mut stage);
    stage.leave(&lasting, Cause::Normal);
    stage.leave(&clean, Cause::Normal);
    check(&mut stage);
}

#[test]
fn retained_values_and_cursors() {
    let mut stage = Stage::new();
    let away = stage.client("away", &Ask::lasting(60));
    stage.subscribe(&away, "t/2", at_qos(QOS_1));
    for (topic, payload) in [("t/1", "1"), ("t/2", "2"), ("t/3", "3"), ("t/1", "4"), ("t/3", "")] {
        stage.emit(&retained(topic, payload.as_bytes(), QOS_1));
        check(&mut stage);
    }
    let client = stage.client("c", &Ask::lasting(60));
    stage.subscribe_to(&client, "t/#", at_qos(QOS_1), vec!["t/#".into()]);
    check(&mut stage);
    bring(&mut stage, &client);
    check(&mut stage);
    bring(&mut stage, &client);
    assert!(!stage.ledger.durable_state().contains("cursor"), "it is at its end");
    check(&mut stage);
}

/// The log reads its old groups one by one, and knows nothing of a copy that was made for another group.
#[test]
fn a_cursor_that_begins_repeatedly_has_one_copy() {
    let mut stage = Stage::new();
    let client = stage.client("c", &Ask::lasting(60));
    for round in 0..4 {
        stage.emit(&retained(&format!("t/{round}"), b"value", QOS_1));
        let options = at_qos(if round % 2 == 0 { QOS_1 } else { QOS_2 });
        stage.subscribe_to(&client, "t/#", options, vec!["t/#".into()]);
        bring(&mut stage, &client);
        for _ in 0..2 {
            stage.subscribe_to(&client, "t/#", options, vec!["t/#".into()]);
        }
    }
    check(&mut stage);
    let groups: Vec<Group> = stage.sink.groups.iter().map(|(_, group)| group.clone()).collect();
    let copied: Vec<Group> =
        groups.iter().flat_map(|group| copies(std::slice::from_ref(group), &mut stage)).collect();
    let count = |kind: fn(&Record<'_>) -> bool| copied.iter().flatten().filter(|record| kind(record)).count();
    assert_eq!(count(|record| matches!(record, Record::Cursor { .. })), 1);
    assert!(count(|record| matches!(record, Record::Subscribed { .. })) <= 2);
}

/// A value that is in memory only, for want of space, must not take that with it which is on the record.
#[test]
fn a_value_that_was_not_recorded_is_when_the_one_before_it_goes() {
    let mut stage = Stage::new();
    stage.emit(&retained("t", b"on the record", QOS_1));
    stage.sink.no_space = true;
    stage.emit(&retained("t", b"in memory", QOS_0));
    let recorded: Vec<Group> = stage.sink.groups.iter().map(|(_, group)| group.clone()).collect();
    assert!(replay(&recorded, &stage).durable_state() != stage.ledger.durable_state());
    let copied = copies(&recorded, &mut stage);
    assert_eq!(replay(&copied, &stage).durable_state(), stage.ledger.durable_state());
    let again = copies(&copied, &mut stage);
    assert_eq!(replay(&again, &stage).durable_state(), stage.ledger.durable_state());
}

/// One step of the cursor of a client's subscription to `t/#`.
fn bring(stage: &mut Stage, client: &Client) {
    let (shard, connection, id) = (client.place.shard, client.place.connection, CursorId(1));
    let queue = Some(client.queue());
    stage.handle(shard, Command::Retained { connection, id, filter: "t/#".into(), queue });
    stage.handle(shard, Command::Credit { connection, id });
    drop(stage.replies());
}

/// Numbers that were given are not given again as long as something that is recorded speaks of them.
#[test]
fn a_record_about_a_removed_message_does_not_change_the_recovered_state() {
    let mut stage = Stage::new();
    let client = stage.client("c", &Ask::lasting(60));
    stage.subscribe(&client, "a", at_qos(QOS_1));
    emit(&mut stage, "a", &["1"]);
    for deliver in stage.delivered(&client) {
        stage.acknowledge(&client, deliver.what, ReasonCode::Success);
    }
    let groups: Vec<Group> = stage.sink.groups.iter().map(|(_, group)| group.clone()).collect();
    // All but the last record, which speaks of the message.
    let (last, old) = groups.split_last().expect("records");
    let copied = copies(old, &mut stage);
    let log = [std::slice::from_ref(last), &copied].concat();
    assert_eq!(replay(&log, &stage).durable_state(), stage.ledger.durable_state());
}

/// Live bytes decide when old records are worth copying. A message counts once, whatever the number of its queues,
/// until the last of them is done with it.
#[test]
fn live_bytes_count_each_message_once_until_its_last_queue_is_done() {
    let mut stage = Stage::new();
    let clients: Vec<Client> = (0..10)
        .map(|number| {
            let client = stage.client(&number.to_string(), &Ask::lasting(60));
            stage.subscribe(&client, "a", at_qos(QOS_1));
            client
        })
        .collect();
    let before = stage.ledger.live_bytes();
    let payload = "x".repeat(1_000_000);
    emit(&mut stage, "a", &[&payload]);
    let is_live = |stage: &Stage| (stage.ledger.live_bytes() - before) / 1_000_000;
    assert_eq!(is_live(&stage), 1);
    for client in &clients {
        assert_eq!(is_live(&stage), 1);
        let sent = stage.delivered(client);
        stage.acknowledge(client, sent[0].what, ReasonCode::Success);
    }
    assert_eq!(stage.ledger.live_bytes(), before);
    emit(&mut stage, "a", &[&payload]);
    for client in &clients {
        stage.leave_with(client, Cause::Normal, Some(0));
    }
    stage.work();
    assert!(stage.ledger.live_bytes() < 1_000, "what has ended is not live");
}

/// Frames of old records, the last of which is read at the end, and how often more was asked for.
struct Frames {
    sink: Sink,
    frames: VecDeque<Vec<Record<'static>>>,
}

impl Effects for Frames {
    fn post(&mut self, to: ShardId, reply: Reply) {
        self.sink.post(to, reply);
    }

    fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        Effects::commit(&mut self.sink, group)
    }

    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        Effects::copy(&mut self.sink, group)
    }
}

impl Keeper for Frames {
    fn commit(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        Effects::commit(&mut self.sink, group)
    }

    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        Effects::copy(&mut self.sink, group)
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn next_to_copy(&mut self, _: Needs<'_>) -> Option<Vec<Record<'static>>> {
        self.frames.pop_front()
    }
}

/// Nobody wakes who stops in between: the next frames would be asked for a second later, if at all.
#[test]
fn frames_of_which_nothing_is_needed_are_followed_by_the_next_at_once() {
    let mut stage = Stage::new();
    stage.client("lasting", &Ask::lasting(60));
    let old = stage.sink.groups.iter().flat_map(|(_, group)| group.iter().cloned()).collect();
    let mut frames = Frames {
        sink: std::mem::take(&mut stage.sink),
        frames: VecDeque::from([Vec::new(), Vec::new(), old, Vec::new()]),
    };
    let before = frames.sink.groups.len();
    let mut turnover = Turnover::default();
    while turnover.work(&mut stage.ledger, stage.now, &mut frames, |frames| frames) {}
    assert!(frames.frames.is_empty(), "all were asked for");
    assert!(frames.sink.groups.len() > before, "and what is true was copied");
}

/// After a restart without space nothing is done but copying, and nothing is copied before this.
#[test]
fn sessions_connected_before_a_restart_are_recorded_as_left_before_any_copy() {
    let mut stage = Stage::new();
    stage.client("lasting", &Ask::lasting(60));
    let groups: Vec<Group> = stage.sink.groups.iter().map(|(_, group)| group.clone()).collect();
    let mut again = replay(&groups, &stage);
    let old = groups.iter().flatten().cloned().collect();
    let mut frames = Frames { sink: Sink::default(), frames: VecDeque::from([old]) };
    let mut turnover = Turnover::default();
    while turnover.work(&mut again, stage.now, &mut frames, |frames| frames) {}
    let first = frames.sink.groups.first().and_then(|(_, group)| group.first());
    assert!(matches!(first, Some(Record::Left { .. })), "{first:?}");
    assert!(frames.sink.groups.len() > 1, "and what is true was copied");
}

/// A disk without space, not even for what frees space.
struct Full<'a>(&'a mut Sink);

impl Effects for Full<'_> {
    fn post(&mut self, to: ShardId, reply: Reply) {
        self.0.post(to, reply);
    }

    fn commit(&mut self, _: &[Record<'_>]) -> Result<Lsn, Refusal> {
        Err(Refusal::NoSpace)
    }

    fn copy(&mut self, group: &[Record<'_>]) -> Result<Lsn, Refusal> {
        Effects::copy(self.0, group)
    }
}

/// A client has left whether that is recorded or not. Its session is kept for as long as the client has asked for.
#[test]
fn a_copy_keeps_a_session_whose_end_of_connection_found_no_space() {
    let causes = [
        (None, Cause::Normal),
        (Some(0), Cause::Normal),
        (Some(0), Cause::WithWill),
        (Some(30), Cause::WithWill),
    ];
    for (delay_secs, cause, connections) in
        causes.iter().flat_map(|(secs, cause)| [(*secs, *cause, 1), (*secs, *cause, 2)])
    {
        let mut stage = Stage::new();
        let ask = delay_secs.map_or(Ask::lasting(60), |secs| Ask::lasting(60).will("w", secs));
        let mut client = stage.client("c", &ask);
        stage.subscribe(&client, "a", at_qos(QOS_1));
        if connections == 2 {
            stage.leave(&client, Cause::Normal);
            stage.pass_secs(1);
            client = stage.client("c", &ask);
        }
        let (subscriber, connection) = (Arc::clone(&client.claimant), client.place.connection);
        let left = Command::Left(Left { subscriber, connection, cause, expiry_secs: None });
        stage.ledger.handle(client.place.shard, left, stage.now, &mut Full(&mut stage.sink));
        emit(&mut stage, "a", &["1"]);
        let state = stage.ledger.durable_state();
        let groups: Vec<Group> = stage.sink.groups.iter().map(|(_, group)| group.clone()).collect();
        let copied = copies(&groups, &mut stage);
        let left = copied.iter().flatten().filter(|record| matches!(record, Record::Left { .. })).count();
        let waits = usize::from(connections == 2 && delay_secs == Some(30));
        assert_eq!(left, 1 + waits, "{copied:?}");
        let again = copies(&copied, &mut stage);
        let both = [&groups[..], &copied].concat();
        for (log, what) in [(copied, "copied"), (again, "copied twice"), (both, "not cut off")] {
            let mut next = Stage::new();
            next.now = stage.now;
            next.ledger = replay(&log, &stage);
            assert_eq!(next.ledger.durable_state(), state, "{delay_secs:?}, {cause:?}, {what}");
            let sessions = |stage: &Stage| crate::stage::count(&stage.gauges().sessions);
            next.pass_secs(59);
            assert_eq!(sessions(&next), 1, "{delay_secs:?}, {cause:?}, {what}");
            next.pass_secs(1);
            assert_eq!(sessions(&next), 0, "{delay_secs:?}, {cause:?}, {what}");
        }
    }
}
