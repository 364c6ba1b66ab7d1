//! Operators move messages that wait from one queue to another.

use std::sync::Arc;

use auth::{Access, Guard, Holder, Permit, Realms, RolesBuilder, RuleKind};
use base::{AskFates, Budget, Dispatch, Fate, FateBounds, Key, Message, Purpose};
use index::Subscriptions;
use ledger::{
    Ledger, Lsn, MessageId, Move, Moved, MovedPiece, OperatorAnswer, Question, QueueFull, QueueOwner, Record,
    Settings, Stopped,
};
use protocol::Cause;
use wire::ReasonCode;

use crate::queues::{damage, discard_all, look_at_all, memories, numbers};
use crate::stage::{Ask, QOS_1, QOS_2, Stage, at_qos, count, message, message_with, payloads, retained};

fn session(client_id: &str) -> QueueOwner {
    QueueOwner::Client(client_id.into())
}

fn group(name: &str) -> QueueOwner {
    QueueOwner::Group(format!("$share/{name}/#").into())
}

/// The sessions `old` and `new`, and the groups `old` and `new`, all away. Messages to the topics `a` and `b` in turn wait for
/// the session and the group `old`.
fn filled(settings: Settings, messages: u16) -> Stage {
    let mut stage = Stage::with(settings);
    for (client_id, filter) in
        [("old", "#"), ("new", "new"), ("old-worker", "$share/old/#"), ("new-worker", "$share/new/#")]
    {
        let client = stage.client(client_id, &Ask::lasting(60));
        if client_id == "new-worker" {
            for number in 0..messages {
                let topic = ["a", "b"][usize::from(number % 2)];
                stage.emit(&message(topic, number.to_string().as_bytes(), QOS_1));
            }
        }
        stage.subscribe(&client, filter, at_qos(QOS_1));
        stage.leave(&client, Cause::Normal);
    }
    stage
}

fn expiring(topic: &str, secs: u32) -> Arc<Message> {
    message_with(topic, b"expires", QOS_1, false, Some(secs))
}

fn ask(stage: &mut Stage, order: &Move) -> Moved {
    let question = Question::Move(Box::new(order.clone()));
    match stage.ledger.ask(question, stage.now, &mut stage.sink) {
        OperatorAnswer::Move(moved) => moved,
        other => panic!("it is an order to move: {other:?}"),
    }
}

fn order(from: &QueueOwner, into: &QueueOwner, filter: Option<&str>) -> Move {
    Move { from: from.clone(), into: into.clone(), filter: filter.map(Into::into), after: None, until: None }
}

/// Carries out one window, after everything in it has been read.
fn piece(stage: &mut Stage, order: &Move) -> MovedPiece {
    for _ in 0..10 {
        let Moved::Some(piece) = ask(stage, order) else { panic!("something waits") };
        if piece.stopped != Some(Stopped::Reading) {
            return piece;
        }
        assert_eq!((piece.messages, piece.next), (0, order.after), "nothing moves before its topic is known");
        stage.read();
    }
    panic!("it is read at some time")
}

/// Moves window by window. Returns the sum, with the last stop.
fn move_all(stage: &mut Stage, mut order: Move) -> MovedPiece {
    let mut sum = piece(stage, &order);
    while let (Some(after), None) = (sum.next, sum.stopped) {
        (order.after, order.until) = (Some(after), Some(sum.until));
        let next = piece(stage, &order);
        sum = MovedPiece {
            messages: sum.messages + next.messages,
            unreadable: sum.unreadable + next.unreadable,
            denied: sum.denied + next.denied,
            ..next
        };
    }
    sum
}

fn waiting(stage: &mut Stage, of: &QueueOwner) -> Vec<String> {
    let payload = |one: &ledger::QueuedFacts| {
        let message = one.message.as_ref().expect("it was read");
        String::from_utf8_lossy(message.payload()).into_owned()
    };
    look_at_all(stage, of).iter().map(payload).collect()
}

/// Everything that a client gets when it comes back.
fn delivered(stage: &mut Stage, client_id: &str) -> Vec<String> {
    let client = stage.client(client_id, &Ask::lasting(60));
    stage.work();
    let mut all = Vec::new();
    loop {
        let delivered = stage.delivered(&client);
        if delivered.is_empty() {
            return all;
        }
        all.extend(payloads(&delivered));
        delivered.iter().for_each(|deliver| stage.acknowledge(&client, deliver.what, ReasonCode::Success));
        stage.work();
    }
}

fn recovered(stage: &mut Stage, settings: &Settings, lsn: Lsn) -> Ledger {
    let index = Arc::new(Subscriptions::new([1, 2]));
    Ledger::recover_from(settings.clone(), index, &mut stage.sink.log(lsn), stage.now)
}

/// From sessions and groups to both, in memory, on disk alone, and part of both.
#[test]
fn messages_move_in_their_order_and_their_client_gets_them_all() {
    for settings in memories() {
        for (from, into, reader) in [
            (session("old"), session("new"), "new"),
            (session("old"), group("new"), "new-worker"),
            (group("old"), session("new"), "new"),
            (group("old"), group("new"), "new-worker"),
        ] {
            let mut stage = filled(settings.clone(), 300);
            let queued = count(&stage.gauges().queued);
            let bytes = count(&stage.gauges().queued_bytes);
            let moved = move_all(&mut stage, order(&from, &into, None));
            assert_eq!((moved.messages, moved.next, moved.stopped), (300, None, None));
            assert_eq!(count(&stage.gauges().moved_by_operator), 300);
            assert_eq!(
                (count(&stage.gauges().queued), count(&stage.gauges().queued_bytes)),
                (queued, bytes),
                "as much waits as before"
            );
            stage.check_account();
            stage.sync();
            assert!(look_at_all(&mut stage, &from).is_empty());
            let last = stage.last();
            let again = recovered(&mut stage, &settings, last);
            assert_eq!(stage.state_of(&again), stage.state());
            assert_eq!(delivered(&mut stage, reader), numbers(0..300));
            assert_eq!(ask(&mut stage, &order(&from, &into, None)), Moved::Nothing);
            stage.check_account();
        }
    }
}

#[test]
fn a_filter_moves_its_messages_and_the_others_stay_in_their_order() {
    for settings in memories() {
        let mut stage = filled(settings, 300);
        stage.emit(&message("new", b"first", QOS_1));
        let moved = move_all(&mut stage, order(&session("old"), &session("new"), Some("a")));
        assert_eq!(moved.messages, 150);
        let odd = numbers((0..300).filter(|number| number % 2 == 1));
        let mut left = waiting(&mut stage, &session("old"));
        assert_eq!(left.pop().as_deref(), Some("first"), "it matches both subscriptions");
        assert_eq!(left, odd);
        let mut expected = vec!["first".to_owned()];
        expected.extend(numbers((0..300).filter(|number| number % 2 == 0)));
        assert_eq!(delivered(&mut stage, "new"), expected, "behind what waited there");
        stage.check_account();
    }
}

/// A client that is connected is sent its messages at once, and those on their way to another client stay with it.
#[test]
fn a_connected_client_gets_messages_at_once_and_messages_on_their_way_stay() {
    let mut stage = filled(Settings::default(), 20);
    let old = stage.client("old", &Ask::lasting(60).window(5));
    stage.work();
    let first = stage.delivered(&old);
    assert_eq!(payloads(&first), numbers(0..5));
    let new = stage.client("new", &Ask::lasting(60));
    assert_eq!(move_all(&mut stage, order(&session("old"), &session("new"), None)).messages, 15);
    stage.work();
    assert_eq!(payloads(&stage.delivered(&new)), numbers(5..20));
    first.iter().for_each(|deliver| stage.acknowledge(&old, deliver.what, ReasonCode::Success));
    stage.work();
    assert!(stage.delivered(&old).is_empty());
    stage.check_account();
}

/// Messages that came back from a member move too, and those of groups that keep an order leave their lanes.
#[test]
fn messages_that_came_back_to_a_group_move_in_their_place() {
    for dispatch in [Dispatch::RoundRobin, Dispatch::KeyOrdered(Key::Publisher)] {
        for settings in memories() {
            let mut stage = filled(Settings { dispatch: dispatch.clone(), ..settings }, 100);
            let member = stage.client("old-worker", &Ask::lasting(60).window(10));
            stage.work();
            assert_eq!(stage.delivered(&member).len(), 10);
            stage.leave(&member, Cause::Normal);
            stage.work();
            assert_eq!(move_all(&mut stage, order(&group("old"), &group("new"), None)).messages, 100);
            stage.emit(&message("a", b"later", QOS_1));
            assert_eq!(delivered(&mut stage, "old-worker"), ["later"]);
            let mut expected = numbers(0..100);
            expected.push("later".to_owned());
            assert_eq!(delivered(&mut stage, "new-worker"), expected);
            stage.check_account();
        }
    }
}

/// QoS, RETAIN and the expiry of a message stay as they were granted.
#[test]
fn a_message_keeps_its_options() {
    let mut stage = Stage::new();
    let old = stage.client("old", &Ask::lasting(60));
    let identifier = std::num::NonZeroU32::new(7);
    let interest = at_qos(QOS_2).with_identifier(identifier).with_retain_as_published(true);
    stage.subscribe(&old, "#", interest);
    stage.leave(&old, Cause::Normal);
    stage.emit(&retained("kept", b"value", QOS_2));
    stage.emit(&expiring("expires", 60));
    let new = stage.client("new", &Ask::lasting(60));
    stage.leave(&new, Cause::Normal);
    let before = look_at_all(&mut stage, &session("old"));
    assert_eq!(move_all(&mut stage, order(&session("old"), &session("new"), None)).messages, before.len());
    let after = look_at_all(&mut stage, &session("new"));
    let options = |all: &[ledger::QueuedFacts]| -> Vec<_> {
        all.iter().map(|one| (one.qos, one.retain, one.expires_unix_ms, one.bytes)).collect()
    };
    assert_eq!(options(&after), options(&before));
    assert!(before[0].retain && before[1].expires_unix_ms.is_some());
    let new = stage.client("new", &Ask::lasting(60));
    stage.work();
    let identifiers: Vec<_> =
        stage.delivered(&new).into_iter().flat_map(|deliver| deliver.identifiers.to_vec()).collect();
    assert_eq!(identifiers, [identifier.expect("it is not 0"); 2]);
}

/// The flag of a group says how the message was published. As which its members get it, their own subscriptions say.
#[test]
fn a_message_of_a_group_is_no_retained_message_for_a_session() {
    let mut stage = filled(Settings::default(), 0);
    stage.emit(&retained("kept", b"value", QOS_1));
    assert!(look_at_all(&mut stage, &group("old"))[0].retain);
    assert_eq!(move_all(&mut stage, order(&group("old"), &session("new"), None)).messages, 1);
    assert!(!look_at_all(&mut stage, &session("new"))[0].retain);
}

/// A member may have had the message, and gave it back: the options of its subscription are not those of the session.
#[test]
fn a_message_that_came_back_to_a_group_moves_as_it_was_published() {
    let mut stage = filled(Settings::default(), 0);
    let member = stage.client("old-worker", &Ask::lasting(60));
    let interest = at_qos(QOS_1).with_identifier(std::num::NonZeroU32::new(7)).with_retain_as_published(true);
    stage.subscribe(&member, "$share/old/#", interest);
    stage.emit(&retained("a", b"x", QOS_2));
    let sent = stage.delivered(&member);
    assert!(sent[0].qos == QOS_1 && sent[0].identifiers.len() == 1 && sent[0].retain);
    stage.leave(&member, Cause::WithWill);
    let [facts] = &look_at_all(&mut stage, &group("old"))[..] else { panic!("it came back") };
    assert!(facts.qos == QOS_2 && facts.retain);
    assert_eq!(move_all(&mut stage, order(&group("old"), &session("new"), None)).messages, 1);
    let last = stage.last();
    let again = recovered(&mut stage, &Settings::default(), last);
    assert_eq!(stage.state_of(&again), stage.state());
    let new = stage.client("new", &Ask::lasting(60));
    let [deliver] = &stage.delivered(&new)[..] else { panic!("it waits for the session") };
    assert!(deliver.qos == QOS_2 && deliver.identifiers.is_empty() && !deliver.retain);
    stage.check_account();
}

/// Options of one session say nothing about another one that gets the message out of a group.
#[test]
fn a_message_that_moves_into_a_group_waits_there_as_it_was_published() {
    let mut stage = filled(Settings::default(), 0);
    let old = stage.client("old", &Ask::lasting(60));
    stage.subscribe(&old, "#", at_qos(QOS_1).with_identifier(std::num::NonZeroU32::new(5)));
    stage.leave(&old, Cause::Normal);
    stage.emit(&message("a", b"x", QOS_2));
    assert_eq!(move_all(&mut stage, order(&group("old"), &group("new"), None)).messages, 1);
    assert_eq!(move_all(&mut stage, order(&session("old"), &group("old"), None)).messages, 1);
    for _ in 0..2 {
        // A member has it for a while.
        let member = stage.client("old-worker", &Ask::lasting(60));
        assert_eq!(stage.delivered(&member).len(), 1);
        stage.leave(&member, Cause::WithWill);
    }
    let last = stage.last();
    let again = recovered(&mut stage, &Settings::default(), last);
    assert_eq!(stage.state_of(&again), stage.state());
    assert_eq!(move_all(&mut stage, order(&group("old"), &session("new"), None)).messages, 1);
    let new = stage.client("new", &Ask::lasting(60));
    let [deliver] = &stage.delivered(&new)[..] else { panic!("it waits for the session") };
    assert!(deliver.qos == QOS_2 && deliver.identifiers.is_empty() && !deliver.retain);
    stage.check_account();
}

/// While memory is short, a message moves only if it does not stay.
#[test]
fn messages_move_while_memory_is_short_only_to_a_client_that_gets_them_at_once() {
    const LIMIT_BYTES: usize = 1 << 20;
    for is_connected in [false, true] {
        let budget = Arc::new(Budget::new(LIMIT_BYTES));
        let mut stage = Stage::with_budget(Settings::default(), &budget);
        for (client_id, filter) in [("old", "#"), ("new", "new")] {
            let client = stage.client(client_id, &Ask::lasting(60));
            stage.subscribe(&client, filter, at_qos(QOS_1));
            stage.leave(&client, Cause::Normal);
        }
        (0..3).for_each(|number: u8| stage.emit(&message("a", number.to_string().as_bytes(), QOS_1)));
        if is_connected {
            stage.client("new", &Ask::lasting(60));
        }
        let charge = budget.charge(Purpose::Outputs, LIMIT_BYTES / 32 * 29);
        assert!(budget.is_tight_to_keep() && !budget.is_full());
        let moved = move_all(&mut stage, order(&session("old"), &session("new"), None));
        let expected = if is_connected { (3, None) } else { (0, Some(Stopped::Memory)) };
        assert_eq!((moved.messages, moved.stopped), expected);
        drop(charge);
        stage.check_account();
    }
}

#[test]
fn a_full_queue_gets_no_more_and_nothing_is_dropped_whatever_the_rule_says() {
    for queue_full in [QueueFull::EndSession, QueueFull::Refuse, QueueFull::DropOldest, QueueFull::DropNewest]
    {
        for into in [session("new"), group("new")] {
            let settings = Settings { queue_full, queue_messages_max: 200, ..Settings::default() };
            let mut stage = filled(settings, 150);
            assert_eq!(move_all(&mut stage, order(&session("old"), &into, None)).messages, 150);
            let moved = move_all(&mut stage, order(&group("old"), &into, None));
            assert_eq!((moved.messages, moved.stopped), (50, Some(Stopped::Full)), "{queue_full:?}");
            assert_eq!(waiting(&mut stage, &group("old")), numbers(50..150));
            let expected: Vec<String> = numbers((0..150).chain(0..50));
            assert_eq!(waiting(&mut stage, &into), expected);
            let gauges = stage.gauges();
            assert_eq!(count(&gauges.dropped_oldest) + count(&gauges.dropped_newest), 0);
            assert_eq!(count(&gauges.ended_by_full_queue) + count(&gauges.discarded), 0);
            // The cursor is in front of the message that had no room.
            let Moved::Some(first) = ask(&mut stage, &order(&group("old"), &into, None)) else {
                panic!("something waits")
            };
            assert_eq!((first.messages, first.next, first.stopped), (0, None, Some(Stopped::Full)));
            stage.check_account();
        }
    }
}

#[test]
fn queues_that_are_not_there_or_the_same_are_refused() {
    let mut stage = filled(Settings::default(), 1);
    let clean = stage.client("clean", &Ask::clean());
    stage.subscribe(&clean, "$share/clean/#", at_qos(QOS_1));
    for nobody in [session("nobody"), session("clean"), group("nobody")] {
        assert_eq!(ask(&mut stage, &order(&nobody, &session("new"), None)), Moved::NoSource);
        assert_eq!(ask(&mut stage, &order(&session("old"), &nobody, None)), Moved::NoTarget);
    }
    let unrecorded = ask(&mut stage, &order(&session("old"), &group("clean"), None));
    assert_eq!(unrecorded, Moved::NoTarget, "its messages end with the connection of its member");
    for same in [session("old"), group("old")] {
        assert_eq!(ask(&mut stage, &order(&same, &same, None)), Moved::SameQueue);
    }
    assert_eq!(waiting(&mut stage, &session("old")), ["0"]);
}

/// Messages of a group without a lasting member are on no record before they move.
#[test]
fn messages_that_were_not_recorded_are_recorded_in_their_new_queue() {
    let settings = Settings::default();
    let mut stage = filled(settings.clone(), 0);
    let member = stage.client("clean", &Ask::clean().window(1));
    stage.subscribe(&member, "$share/clean/c", at_qos(QOS_1));
    (0..3).for_each(|number: u8| stage.emit(&message("c", number.to_string().as_bytes(), QOS_1)));
    stage.work();
    let from = QueueOwner::Group("$share/clean/c".into());
    assert_eq!(move_all(&mut stage, order(&from, &session("new"), None)).messages, 2);
    let last = stage.last();
    let again = recovered(&mut stage, &settings, last);
    assert_eq!(stage.state_of(&again), stage.state());
    assert_eq!(waiting(&mut stage, &session("new")), ["1", "2"]);
    stage.check_account();
}

#[test]
fn expired_and_damaged_messages_stay() {
    let settings = Settings { queued_bytes_in_memory: 0, ..Settings::default() };
    let mut stage = Stage::with(settings);
    for (client_id, filter) in [("old", "#"), ("new", "new")] {
        let client = stage.client(client_id, &Ask::lasting(3_600));
        stage.subscribe(&client, filter, at_qos(QOS_1));
        stage.leave(&client, Cause::Normal);
    }
    (0..100).for_each(|number: u16| stage.emit(&message("a", number.to_string().as_bytes(), QOS_1)));
    stage.emit(&expiring("a", 60));
    ["10", "11"].into_iter().for_each(|number| damage(&mut stage, number));
    stage.now.unix_ms += 61_000;
    let moved = move_all(&mut stage, order(&session("old"), &session("new"), None));
    assert_eq!((moved.messages, moved.unreadable), (98, 2));
    assert_eq!(look_at_all(&mut stage, &session("old")).len(), 3);
    assert_eq!(look_at_all(&mut stage, &session("new")).len(), 98);
    stage.check_account();
}

/// After a crash at any record, each message is in one of the two queues, once.
#[test]
fn a_crash_leaves_each_message_in_one_queue() {
    for queued_bytes_in_memory in [0, usize::MAX] {
        let settings = Settings { queued_bytes_in_memory, ..Settings::default() };
        let mut stage = filled(settings.clone(), 100);
        let before = stage.last();
        move_all(&mut stage, order(&session("old"), &session("new"), Some("a")));
        assert_eq!(stage.last().0 - before.0, 50, "one group of records for each message");
        for (count, lsn) in (before.0..=stage.last().0).enumerate() {
            let index = Arc::new(Subscriptions::new([1, 2]));
            let mut log = stage.sink.log(Lsn(lsn));
            let ledger = Ledger::recover_from(settings.clone(), Arc::clone(&index), &mut log, stage.now);
            let mut copy = Stage::with(settings.clone());
            copy.sink.groups.clone_from(&stage.sink.groups);
            copy.restart(ledger, index, Lsn(lsn));
            let moved = waiting(&mut copy, &session("new"));
            let even = (0..100).filter(|number| number % 2 == 0);
            assert_eq!(moved, numbers(even.take(count)));
            let mut all = [moved, waiting(&mut copy, &session("old"))].concat();
            all.sort_by_key(|number| number.parse::<u16>().expect("a number"));
            assert_eq!(all, numbers(0..100));
        }
    }
}

#[test]
fn nothing_moves_that_cannot_be_recorded() {
    let mut stage = filled(Settings::default(), 10);
    stage.sink.no_space_after = Some(4);
    let moved = move_all(&mut stage, order(&session("old"), &session("new"), None));
    assert_eq!((moved.messages, moved.stopped), (4, Some(Stopped::NotRecorded)));
    assert_eq!(waiting(&mut stage, &session("old")), numbers(4..10));
    stage.sink.no_space = false;
    let rest =
        Move { after: moved.next, until: Some(moved.until), ..order(&session("old"), &session("new"), None) };
    assert_eq!(move_all(&mut stage, rest).messages, 6);
    assert_eq!(waiting(&mut stage, &session("new")), numbers(0..10));
    stage.check_account();
}

/// Messages that come meanwhile stay, however fast they come.
#[test]
fn an_order_ends_with_the_last_message_that_waited() {
    let mut stage = filled(Settings::default(), 100);
    let mut rest = order(&session("old"), &session("new"), None);
    let MovedPiece { next, until, .. } = piece(&mut stage, &rest);
    (100..150).for_each(|number: u16| stage.emit(&message("a", number.to_string().as_bytes(), QOS_1)));
    (rest.after, rest.until) = (next, Some(until));
    assert_eq!(piece(&mut stage, &rest).next, None, "they keep no order from its end");
    assert_eq!(waiting(&mut stage, &session("old")), numbers(100..150));
    assert_eq!(waiting(&mut stage, &session("new")), numbers(0..100));
}

/// Records the fates of messages for these sessions from now on.
pub(crate) fn record_fates(stage: &mut Stage, client_ids: &[&str]) {
    let bounds = FateBounds { messages: 99, bytes: 1 << 20 };
    for client_id in client_ids {
        let begin = AskFates::Begin { client_id: (*client_id).into(), for_ms: 60_000, bounds };
        stage.ledger.ask(Question::Fates(begin), stage.now, &mut stage.sink);
    }
}

/// The fates that are recorded for a session.
pub(crate) fn fates(stage: &mut Stage, client_id: &str) -> Vec<Fate> {
    let read = Question::Fates(AskFates::Read { client_id: client_id.into() });
    let OperatorAnswer::Fates(list) = stage.ledger.ask(read, stage.now, &mut stage.sink) else {
        panic!("it is asked for fates")
    };
    list.records.into_iter().map(|record| record.fate).collect()
}

#[test]
fn the_record_of_a_session_names_the_move() {
    let mut stage = filled(Settings::default(), 0);
    record_fates(&mut stage, &["old", "new"]);
    stage.emit(&message("a", b"0", QOS_1));
    move_all(&mut stage, order(&session("old"), &session("new"), None));
    assert_eq!((fates(&mut stage, "old"), fates(&mut stage, "new")), (vec![Fate::Moved], vec![Fate::Queued]));
}

#[test]
fn the_records_of_members_name_what_operators_do_with_messages_of_their_group() {
    let mut stage = filled(Settings::default(), 0);
    record_fates(&mut stage, &["old-worker", "new-worker"]);
    stage.emit(&message("a", b"0", QOS_1));
    move_all(&mut stage, order(&group("old"), &group("new"), None));
    let both = (fates(&mut stage, "old-worker"), fates(&mut stage, "new-worker"));
    assert_eq!(both, (vec![Fate::Moved], vec![]));
    assert_eq!(discard_all(&mut stage, &group("new"), None).0, 2);
    let both = (fates(&mut stage, "old-worker"), fates(&mut stage, "new-worker"));
    assert_eq!(both, (vec![Fate::Moved], vec![Fate::Discarded; 2]));
}

/// Everybody may publish and subscribe. The user `old` may receive all messages, and the user `new` those to `a`.
fn rules() -> Realms {
    let mut builder = RolesBuilder::default();
    let (open, all, half) = (builder.role("open"), builder.role("all"), builder.role("half"));
    for (role, kind, filter) in [
        (open, RuleKind::Publish, "#"),
        (open, RuleKind::Subscribe, "#"),
        (all, RuleKind::Receive, "#"),
        (half, RuleKind::Receive, "a"),
    ] {
        builder.rule(role, kind, filter, Some(Permit::ALL), 1).expect("a filter");
    }
    let holders = [(Holder::EveryUser, open), (Holder::User("old"), all), (Holder::User("new"), half)];
    holders.into_iter().for_each(|(holder, role)| builder.give(holder, role));
    let access = Access::new(None, None).with_roles(builder.build().expect("few rules"));
    Realms::new(vec![("".into(), Arc::new(access))])
}

/// They would be lost when their turn comes.
#[test]
fn messages_that_the_new_receiver_may_not_read_stay() {
    for (from, into) in [("#", "new"), ("$share/old/#", "$share/new/x")] {
        let settings = Settings { guard: Arc::new(Guard::new(rules())), ..Settings::default() };
        let mut stage = Stage::with(settings);
        for (user, filter) in [("old", from), ("new", into)] {
            let client = stage.client(user, &Ask::lasting(60).of(user));
            stage.subscribe(&client, filter, at_qos(QOS_1));
            stage.leave(&client, Cause::Normal);
        }
        for number in 0..10_u8 {
            let topic = ["a", "b"][usize::from(number % 2)];
            stage.emit(&message(topic, number.to_string().as_bytes(), QOS_1));
        }
        let queue = |filter: &str, user: &str| match filter.starts_with('$') {
            true => QueueOwner::Group(filter.into()),
            false => session(user),
        };
        let (from, into) = (queue(from, "old"), queue(into, "new"));
        let moved = move_all(&mut stage, order(&from, &into, None));
        assert_eq!((moved.messages, moved.denied, moved.stopped), (5, 5, None));
        assert_eq!(waiting(&mut stage, &from), numbers((0..10).filter(|number| number % 2 == 1)));
        assert_eq!(waiting(&mut stage, &into), numbers((0..10).filter(|number| number % 2 == 0)));
        stage.check_account();
    }
}

#[test]
fn the_records_of_a_message_are_one_group() {
    let mut stage = filled(Settings::default(), 2);
    let groups = stage.sink.groups.len();
    move_all(&mut stage, order(&session("old"), &session("new"), None));
    for (_, records) in &stage.sink.groups[groups..] {
        let [
            Record::Enqueue { message: new, queues, is_retained: false, .. },
            Record::Removed { message, .. },
        ] = &records[..]
        else {
            panic!("{records:?}")
        };
        assert!(queues.len() == 1 && *message < *new && *new > MessageId(2));
    }
}
