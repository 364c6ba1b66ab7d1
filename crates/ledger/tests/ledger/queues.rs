//! Operators look at messages that wait, and discard them.

use std::sync::Arc;

use base::{Budget, Dispatch, Key, Purpose};
use index::Subscriptions;
use ledger::{
    Discard, Discarded, Ledger, MessageId, OperatorAnswer, Question, QueueOwner, QueuePiece, QueuedFacts,
    Record, Settings,
};
use protocol::Cause;
use wire::ReasonCode;

use crate::stage::{Ask, Client, QOS_1, Stage, at_qos, count, message, payloads};

fn queue() -> QueueOwner {
    QueueOwner::Client("subscriber".into())
}

fn group() -> QueueOwner {
    QueueOwner::Group("$share/g/#".into())
}

/// A session that is away, with messages to the topics `a` and `b` in turn.
fn filled(settings: Settings, filter: &str, messages: u16) -> Stage {
    let mut stage = Stage::with(settings);
    fill(&mut stage, filter, messages);
    stage
}

fn fill(stage: &mut Stage, filter: &str, messages: u16) {
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    stage.subscribe(&subscriber, filter, at_qos(QOS_1));
    stage.leave(&subscriber, Cause::Normal);
    let publisher = stage.client("publisher", &Ask::clean());
    publish(stage, &publisher, 0..messages);
}

fn publish(stage: &mut Stage, publisher: &Client, numbers: std::ops::Range<u16>) {
    for number in numbers {
        let topic = ["a", "b"][usize::from(number % 2)];
        stage.publish(publisher, number + 1, &message(topic, number.to_string().as_bytes(), QOS_1));
    }
}

/// Looks at one window, after everything in it has been read.
fn look(stage: &mut Stage, of: &QueueOwner, after: Option<MessageId>) -> Option<QueuePiece> {
    for _ in 0..10 {
        let question = Question::Queue { of: of.clone(), after };
        let OperatorAnswer::Queue(piece) = stage.ledger.ask(question, stage.now, &mut stage.sink) else {
            panic!("it is asked for a queue")
        };
        if piece.as_ref().is_none_or(|piece| !piece.is_reading) {
            return piece;
        }
        stage.read();
    }
    panic!("it is read at some time")
}

pub(crate) fn look_at_all(stage: &mut Stage, of: &QueueOwner) -> Vec<QueuedFacts> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let QueuePiece { messages, next, .. } = look(stage, of, after).expect("there is the queue");
        assert!(messages.len() <= 64);
        all.extend(messages);
        if next.is_none() {
            return all;
        }
        assert!(next > after, "it goes on");
        after = next;
    }
}

pub(crate) fn texts(all: &[QueuedFacts]) -> Vec<String> {
    let text = |one: &QueuedFacts| {
        let message = one.message.as_ref().expect("it was read");
        format!("{} {}", message.topic().as_str(), String::from_utf8_lossy(message.payload()))
    };
    all.iter().map(text).collect()
}

fn order(stage: &mut Stage, discard: Discard) -> Discarded {
    let question = Question::Discard(Box::new(discard));
    match stage.ledger.ask(question, stage.now, &mut stage.sink) {
        OperatorAnswer::Discard(discarded) => discarded,
        other => panic!("it is an order to discard: {other:?}"),
    }
}

/// Discards window by window. Returns the number of messages, and of windows.
pub(crate) fn discard_all(stage: &mut Stage, of: &QueueOwner, filter: Option<&str>) -> (usize, usize) {
    let mut next_order = Discard { of: of.clone(), filter: filter.map(Into::into), after: None, until: None };
    let (mut all, mut windows, mut reads) = (0, 0, 0);
    loop {
        let Discarded::Some { messages, next, until, is_reading, .. } = order(stage, next_order.clone())
        else {
            panic!("something waits")
        };
        next_order.until = Some(until);
        if is_reading {
            assert_eq!(messages, 0, "nothing is discarded before its topic is known");
            reads += 1;
            assert!(reads < 1_000, "it is read at some time");
            stage.read();
            continue;
        }
        (all, windows) = (all + messages, windows + 1);
        next_order.after = next;
        if next.is_none() {
            return (all, windows);
        }
    }
}

/// Everything that the subscriber gets when it comes back.
fn delivered(stage: &mut Stage) -> Vec<String> {
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    stage.work();
    let mut all = Vec::new();
    loop {
        let delivered = stage.delivered(&subscriber);
        if delivered.is_empty() {
            return all;
        }
        all.extend(payloads(&delivered));
        delivered
            .iter()
            .for_each(|deliver| stage.acknowledge(&subscriber, deliver.what, ReasonCode::Success));
        stage.work();
    }
}

pub(crate) fn numbers(range: impl Iterator<Item = u16>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// In memory, on disk alone, and part of both.
pub(crate) fn memories() -> [Settings; 3] {
    [usize::MAX, 0, 2_000]
        .map(|queued_bytes_in_memory| Settings { queued_bytes_in_memory, ..Settings::default() })
}

#[test]
fn an_operator_sees_every_message_that_waits_and_its_client_gets_them_all() {
    for settings in memories() {
        let mut stage = filled(settings, "#", 300);
        let seen = look_at_all(&mut stage, &queue());
        let expected: Vec<String> =
            (0..300).map(|number| format!("{} {number}", ["a", "b"][number % 2])).collect();
        assert_eq!(texts(&seen), expected);
        assert!(seen.iter().all(|one| one.qos == QOS_1 && one.bytes > 0 && one.expires_unix_ms.is_none()));
        assert_eq!(delivered(&mut stage), numbers(0..300));
        stage.check_account();
    }
}

/// The ledger keeps this number of places on disk, and no message of them in memory.
fn on_disk(stage: &Stage) -> usize {
    stage.ledger.durable_state().matches(" at ").count()
}

fn on_disk_alone() -> Settings {
    Settings { queued_bytes_in_memory: 0, ..Settings::default() }
}

/// Asks for one window, and does not wait for it.
fn begin_look(stage: &mut Stage, after: Option<MessageId>) -> QueuePiece {
    let question = Question::Queue { of: queue(), after };
    match stage.ledger.ask(question, stage.now, &mut stage.sink) {
        OperatorAnswer::Queue(Some(piece)) => piece,
        other => panic!("there is the queue: {other:?}"),
    }
}

#[test]
fn a_look_keeps_nothing_in_memory() {
    let mut stage = filled(on_disk_alone(), "#", 200);
    drop(look_at_all(&mut stage, &queue()));
    let piece = begin_look(&mut stage, None);
    assert!(piece.is_reading && piece.messages.iter().all(|one| one.message.is_none()));
}

/// Its reader is connected, and acknowledges nothing.
#[test]
fn a_look_at_the_queue_of_a_slow_client_loads_nothing_into_it() {
    let mut stage = filled(on_disk_alone(), "#", 300);
    let subscriber = stage.client("subscriber", &Ask::lasting(60).window(1));
    assert_eq!(stage.delivered(&subscriber).len(), 1);
    stage.work();
    let before = on_disk(&stage);
    assert!(before >= 200, "{before} wait on disk alone");
    assert_eq!(look_at_all(&mut stage, &queue()).len(), 299);
    assert_eq!(on_disk(&stage), before, "after a look");
    assert_eq!(discard_all(&mut stage, &queue(), Some("c")).0, 0);
    assert_eq!(on_disk(&stage), before, "after discarding with a filter");
}

#[test]
fn the_messages_of_a_look_that_was_given_up_leave_memory() {
    let budget = Arc::new(Budget::default());
    let mut stage = Stage::with_budget(on_disk_alone(), &budget);
    fill(&mut stage, "#", 300);
    stage.work();
    let before = budget.held_bytes(Purpose::Messages);
    assert!(begin_look(&mut stage, None).is_reading);
    stage.work();
    assert_eq!(on_disk(&stage), 300, "the queue has none of them");
    assert!(budget.held_bytes(Purpose::Messages) > before, "the look has them");
    let until_ms = stage.ledger.poll_timeout().expect("the look ends at some time");
    assert!(until_ms <= stage.now.monotonic_ms + 5_000, "{until_ms}");
    stage.now.monotonic_ms += 5_000;
    stage.work();
    assert_eq!(budget.held_bytes(Purpose::Messages), before);
    assert_eq!(look_at_all(&mut stage, &queue()).len(), 300);
}

/// An operator begins a look at each window, and waits for none.
#[test]
fn all_looks_together_hold_a_bounded_amount() {
    const WINDOW_BYTES: usize = 256 << 10;
    let budget = Arc::new(Budget::default());
    let mut stage = Stage::with_budget(on_disk_alone(), &budget);
    fill(&mut stage, "#", 0);
    let publisher = stage.client("other", &Ask::clean());
    for number in 1..=300 {
        stage.publish(&publisher, number, &message("a", &[7; 20_000], QOS_1));
    }
    stage.work();
    let before = budget.held_bytes(Purpose::Messages);
    let mut after = None;
    loop {
        let piece = begin_look(&mut stage, after);
        stage.work();
        after = piece.next;
        if after.is_none() {
            break;
        }
    }
    let held = budget.held_bytes(Purpose::Messages) - before;
    assert!((WINDOW_BYTES..(1 << 20) + WINDOW_BYTES + 40_000).contains(&held), "{held} bytes");
    assert!(begin_look(&mut stage, None).messages.iter().all(|one| one.message.is_some()), "the first look");
    stage.now.monotonic_ms += 5_000;
    assert_eq!(look_at_all(&mut stage, &queue()).len(), 300, "there is room again");
}

/// The message with this number has a record that cannot be read again.
pub(crate) fn damage(stage: &mut Stage, number: &str) {
    let is_it = |record: &Record<'_>| match record {
        Record::Enqueue { body, .. } => body.payload() == number.as_bytes(),
        _ => false,
    };
    let group = stage.sink.groups.iter().find(|(_, group)| group.iter().any(is_it));
    stage.sink.damaged.push(group.expect("it was recorded").0);
}

#[test]
fn a_damaged_message_is_shown_without_its_topic_and_filters_pass_over_it() {
    let mut stage = filled(on_disk_alone(), "#", 300);
    ["10", "11", "200"].into_iter().for_each(|number| damage(&mut stage, number));
    let seen = look_at_all(&mut stage, &queue());
    assert_eq!(seen.iter().filter(|one| one.message.is_none()).count(), 3);
    assert_eq!(seen.len(), 300);
    let first = Discard { of: queue(), filter: Some("a".into()), after: None, until: None };
    order(&mut stage, first.clone());
    stage.read();
    let Discarded::Some { messages, unreadable, .. } = order(&mut stage, first) else {
        panic!("something waits")
    };
    assert_eq!((messages, unreadable), (31, 2), "of the first 64");
    assert_eq!(discard_all(&mut stage, &queue(), Some("a")).0, 148 - 31);
    assert_eq!(look_at_all(&mut stage, &queue()).len(), 152);
    stage.check_account();
}

/// They are read once, and not for each look.
#[test]
fn a_damaged_message_is_not_read_again() {
    let mut stage = filled(on_disk_alone(), "#", 10);
    damage(&mut stage, "0");
    drop(look_at_all(&mut stage, &queue()));
    begin_look(&mut stage, None);
    assert_eq!(stage.sink.wanted.len(), 9);
}

#[test]
fn a_queue_of_nobody_is_not_there() {
    let mut stage = filled(Settings::default(), "#", 1);
    for of in [QueueOwner::Client("publisher".into()), QueueOwner::Client("nobody".into()), group()] {
        assert!(look(&mut stage, &of, None).is_none(), "{of:?}");
        let discard = Discard { of, filter: None, after: None, until: None };
        assert_eq!(order(&mut stage, discard), Discarded::NoQueue);
    }
}

#[test]
fn all_messages_of_a_queue_are_discarded_in_pieces_and_stay_away_after_a_restart() {
    for settings in memories() {
        let mut stage = filled(settings.clone(), "#", 600);
        let discarded_before = count(&stage.gauges().discarded);
        assert_eq!(discard_all(&mut stage, &queue(), None), (600, 3));
        stage.sync();
        assert_eq!(count(&stage.gauges().discarded) - discarded_before, 600);
        assert_eq!(count(&stage.gauges().discarded_by_operator), 600);
        assert_eq!((count(&stage.gauges().queued), count(&stage.gauges().queued_bytes)), (0, 0));
        assert!(look_at_all(&mut stage, &queue()).is_empty());
        let discard = Discard { of: queue(), filter: None, after: None, until: None };
        assert_eq!(order(&mut stage, discard), Discarded::Nothing);
        let (last, index) = (stage.last(), Arc::new(Subscriptions::new([1, 2])));
        let ledger = Ledger::recover_from(settings, index, &mut stage.sink.log(last), stage.now);
        assert_eq!(stage.state_of(&ledger), stage.state());
        assert!(delivered(&mut stage).is_empty());
        stage.check_account();
    }
}

#[test]
fn messages_of_other_topics_stay_in_their_order() {
    for settings in memories() {
        let mut stage = filled(settings, "#", 300);
        let (discarded, windows) = discard_all(&mut stage, &queue(), Some("a/#"));
        assert_eq!((discarded, windows), (150, 5));
        assert_eq!(discard_all(&mut stage, &queue(), Some("c")).0, 0);
        assert_eq!(delivered(&mut stage), numbers((0..300).filter(|number| number % 2 == 1)));
        stage.check_account();
    }
}

/// Publishers that are faster than an operator keep no order from its end.
#[test]
fn messages_that_come_meanwhile_stay() {
    let mut stage = filled(Settings::default(), "#", 500);
    let first = Discard { of: queue(), filter: None, after: None, until: None };
    let Discarded::Some { next, until, .. } = order(&mut stage, first) else { panic!("something waits") };
    let publisher = stage.client("other", &Ask::clean());
    publish(&mut stage, &publisher, 500..900);
    let mut after = next;
    while after.is_some() {
        let discard = Discard { of: queue(), filter: None, after, until: Some(until) };
        let Discarded::Some { next, .. } = order(&mut stage, discard) else { panic!("something waits") };
        after = next;
    }
    assert_eq!(delivered(&mut stage), numbers(500..900));
}

/// After a crash at any record, a message is there as a whole, or is not there.
#[test]
fn a_crash_leaves_or_takes_each_message() {
    let settings = Settings { queued_bytes_in_memory: 0, ..Settings::default() };
    let mut stage = filled(settings.clone(), "#", 300);
    let before = stage.last();
    discard_all(&mut stage, &queue(), Some("a"));
    let mut left = Vec::new();
    for lsn in before.0..=stage.last().0 {
        let index = Arc::new(Subscriptions::new([1, 2]));
        let mut log = stage.sink.log(ledger::Lsn(lsn));
        let ledger = Ledger::recover_from(settings.clone(), Arc::clone(&index), &mut log, stage.now);
        let mut copy = Stage::with(settings.clone());
        copy.sink.groups.clone_from(&stage.sink.groups);
        copy.restart(ledger, index, ledger::Lsn(lsn));
        let waits = look_at_all(&mut copy, &queue());
        assert!(texts(&waits).iter().filter(|text| text.starts_with('b')).count() == 150);
        left.push(waits.len());
    }
    assert_eq!(left, [300, 268, 236, 204, 172, 150], "32 of each window of 64, and the rest");
}

/// Messages that came back from a member are there too, and go too.
#[test]
fn a_group_is_looked_at_and_emptied_with_what_came_back() {
    for dispatch in [Dispatch::RoundRobin, Dispatch::KeyOrdered(Key::Publisher)] {
        for settings in memories() {
            let settings = Settings { dispatch: dispatch.clone(), ..settings };
            let mut stage = filled(settings, "$share/g/#", 200);
            let member = stage.client("subscriber", &Ask::lasting(60).window(10));
            stage.work();
            assert_eq!(stage.delivered(&member).len(), 10);
            stage.leave(&member, Cause::Normal);
            stage.work();
            assert_eq!(look_at_all(&mut stage, &group()).len(), 200);
            assert_eq!(discard_all(&mut stage, &group(), Some("b")).0, 100);
            assert_eq!(delivered(&mut stage), numbers((0..200).filter(|number| number % 2 == 0)));
            stage.check_account();
        }
    }
}

/// Their lanes are known from the messages themselves.
#[test]
fn messages_with_keys_stay_in_memory_behind_a_look_and_leave_their_lanes_when_they_are_discarded() {
    let dispatch = Dispatch::KeyOrdered(Key::Publisher);
    let settings = Settings { dispatch, queued_bytes_in_memory: 0, ..Settings::default() };
    let mut stage = filled(settings.clone(), "$share/g/#", 100);
    // From then on, the places of their records are known.
    let (last, index) = (stage.last(), Arc::new(Subscriptions::new([1, 2])));
    let mut log = stage.sink.log(last);
    let ledger = Ledger::recover_from(settings, Arc::clone(&index), &mut log, stage.now);
    stage.restart(ledger, index, last);
    assert_eq!(look_at_all(&mut stage, &group()).len(), 100);
    assert_eq!(discard_all(&mut stage, &group(), None).0, 100);
    let publisher = stage.client("other", &Ask::clean());
    publish(&mut stage, &publisher, 100..110);
    assert_eq!(delivered(&mut stage), numbers(100..110));
}

#[test]
fn nothing_is_discarded_that_cannot_be_recorded() {
    let mut stage = filled(Settings::default(), "#", 10);
    stage.sink.is_poisoned = true;
    let discard = Discard { of: queue(), filter: None, after: None, until: None };
    assert_eq!(order(&mut stage, discard), Discarded::NotRecorded);
    assert_eq!(look_at_all(&mut stage, &queue()).len(), 10);
    stage.check_account();
}

#[test]
fn messages_are_discarded_when_there_is_no_space_for_others() {
    let mut stage = filled(Settings::default(), "#", 10);
    stage.sink.no_space = true;
    let groups = stage.sink.groups.len();
    let discard = Discard { of: queue(), filter: None, after: None, until: None };
    assert!(matches!(order(&mut stage, discard), Discarded::Some { messages: 10, .. }));
    let (_, records) = &stage.sink.groups[groups];
    assert!(records.iter().all(|record| matches!(record, Record::Removed { .. })));
    stage.check_account();
}
