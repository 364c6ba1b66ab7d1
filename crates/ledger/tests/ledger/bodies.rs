//! Messages that wait on disk alone.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{Budget, Charge, Dispatch, Key, Purpose};
use index::Subscriptions;
use ledger::{Ledger, Record, Settings};
use protocol::Cause;
use wire::ReasonCode;

use crate::stage::{Ask, Client, QOS_1, QOS_2, Stage, at_qos, message, message_with, payloads, shapes};

fn settings() -> Settings {
    Settings { queued_bytes_in_memory: 0, ..Settings::default() }
}

/// A session that is away and has a subscription, and a publisher.
fn away(stage: &mut Stage, filter: &str) -> Client {
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    stage.subscribe(&subscriber, filter, at_qos(QOS_2));
    stage.leave(&subscriber, Cause::Normal);
    stage.client("publisher", &Ask::clean())
}

fn publish(stage: &mut Stage, publisher: &Client, numbers: std::ops::Range<u16>) {
    for number in numbers {
        stage.publish(publisher, number + 1, &message("a", number.to_string().as_bytes(), QOS_1));
    }
}

fn numbers(range: std::ops::Range<u16>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

/// Everything that a client gets and acknowledges, until nothing more comes.
fn drain(stage: &mut Stage, client: &Client) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let delivered = stage.delivered(client);
        if delivered.is_empty() {
            return all;
        }
        all.extend(payloads(&delivered));
        delivered.iter().for_each(|deliver| stage.acknowledge(client, deliver.what, ReasonCode::Success));
    }
}

#[test]
fn messages_that_wait_on_disk_arrive_in_order() {
    let mut stage = Stage::with(settings());
    let publisher = away(&mut stage, "a");
    publish(&mut stage, &publisher, 0..500);
    assert!(stage.sink.wanted.is_empty(), "nobody is there to read it");
    let subscriber = stage.client("subscriber", &Ask::lasting(60).window(10));
    stage.ledger.work(stage.now, &mut stage.sink);
    let wanted = stage.sink.wanted.len();
    assert!((1..=100).contains(&wanted), "{wanted} are read ahead");
    assert_eq!(drain(&mut stage, &subscriber), numbers(0..500));
    stage.check_account();
}

/// Messages in memory are sent first. Messages that arrive during a read stay behind the messages being read.
#[test]
fn messages_that_arrive_during_a_read_stay_behind_the_messages_being_read() {
    let mut stage = Stage::with(Settings { queued_bytes_in_memory: 1_000, ..Settings::default() });
    let publisher = away(&mut stage, "a");
    publish(&mut stage, &publisher, 0..20);
    let subscriber = stage.client("subscriber", &Ask::lasting(60).window(3));
    stage.ledger.work(stage.now, &mut stage.sink);
    publish(&mut stage, &publisher, 20..30);
    assert_eq!(drain(&mut stage, &subscriber), numbers(0..30));
}

#[test]
fn a_group_reads_its_messages_again() {
    for dispatch in [Dispatch::RoundRobin, Dispatch::KeyOrdered(Key::Publisher)] {
        let mut stage = Stage::with(Settings { dispatch, ..settings() });
        let publisher = away(&mut stage, "$share/g/a");
        publish(&mut stage, &publisher, 0..200);
        let subscriber = stage.client("subscriber", &Ask::lasting(60).window(10));
        assert_eq!(drain(&mut stage, &subscriber), numbers(0..200));
        stage.check_account();
    }
}

/// One that was under way when the process ended is sent again under its identifier.
#[test]
fn messages_sent_before_a_restart_are_read_again() {
    let mut stage = Stage::with(settings());
    let publisher = away(&mut stage, "a");
    publish(&mut stage, &publisher, 0..5);
    let subscriber = stage.client("subscriber", &Ask::lasting(60).window(3));
    let first = shapes(&stage.delivered(&subscriber));
    assert_eq!(first.len(), 3);
    let (last, index) = (stage.last(), Arc::new(Subscriptions::new([1, 2])));
    let mut log = stage.sink.log(last);
    let ledger = Ledger::recover_from(settings(), Arc::clone(&index), &mut log, stage.now);
    stage.restart(ledger, index, last);
    let subscriber = stage.client("subscriber", &Ask::lasting(60).window(3));
    let again = stage.delivered(&subscriber);
    let expected: Vec<_> = first.into_iter().map(|(payload, qos, _)| (payload, qos, true)).collect();
    assert_eq!(shapes(&again), expected);
    again.iter().for_each(|deliver| stage.acknowledge(&subscriber, deliver.what, ReasonCode::Success));
    assert_eq!(drain(&mut stage, &subscriber), numbers(3..5));
}

/// The record is copied after it was asked for, and its place is used again before it is read.
#[test]
fn records_copied_before_they_are_read_are_asked_for_again() {
    let mut stage = Stage::with(settings());
    let publisher = away(&mut stage, "a");
    publish(&mut stage, &publisher, 0..5);
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    stage.ledger.work(stage.now, &mut stage.sink);
    assert_eq!(stage.sink.wanted.len(), 5);
    let last = stage.last();
    let old = stage.sink.groups.iter().flat_map(|(_, group)| group.iter().cloned());
    let mut old: VecDeque<Record<'static>> = old.collect();
    while stage.ledger.copy_some(&mut old, &mut stage.sink) {}
    stage.sink.groups.retain(|(lsn, _)| *lsn > last);
    assert_eq!(drain(&mut stage, &subscriber), numbers(0..5));
}

/// Old records and their copies are both there after a restart: what is read is the copy, for the old ones go first.
#[test]
fn after_a_restart_the_younger_record_is_read() {
    let mut stage = Stage::with(settings());
    let publisher = away(&mut stage, "a");
    publish(&mut stage, &publisher, 0..5);
    let before = stage.last();
    let old = stage.sink.groups.iter().flat_map(|(_, group)| group.iter().cloned());
    let mut copied: VecDeque<Record<'static>> = old.collect();
    let mut old = copied.clone();
    while stage.ledger.copy_some(&mut copied, &mut stage.sink) {}
    let (last, index) = (stage.last(), Arc::new(Subscriptions::new([1, 2])));
    let mut log = stage.sink.log(last);
    let ledger = Ledger::recover_from(settings(), Arc::clone(&index), &mut log, stage.now);
    stage.restart(ledger, index, last);
    stage.work();
    while stage.ledger.copy_some(&mut old, &mut stage.sink) {}
    stage.sink.groups.retain(|(lsn, _)| *lsn > before);
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    assert_eq!(drain(&mut stage, &subscriber), numbers(0..5));
}

#[test]
fn expired_messages_are_not_read() {
    let mut stage = Stage::with(settings());
    let publisher = away(&mut stage, "a");
    stage.publish(&publisher, 1, &message_with("a", b"late", QOS_1, false, Some(1)));
    stage.now.unix_ms += 2_000;
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    stage.ledger.work(stage.now, &mut stage.sink);
    assert!(stage.sink.wanted.is_empty());
    assert!(drain(&mut stage, &subscriber).is_empty());
    stage.check_account();
}

/// Nothing else is asked for meanwhile, and nothing is under way whose acknowledgement would feed the queue.
#[test]
fn a_message_that_expires_while_it_is_read_does_not_stop_its_queue() {
    let mut stage = Stage::with(settings());
    let publisher = away(&mut stage, "a");
    let large = vec![b'x'; 100_000];
    stage.publish(&publisher, 1, &message_with("a", &large, QOS_1, false, Some(1)));
    publish(&mut stage, &publisher, 1..5);
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    stage.ledger.work(stage.now, &mut stage.sink);
    assert_eq!(stage.sink.wanted.len(), 1, "the large one alone");
    let wanted = std::mem::take(&mut stage.sink.wanted);
    stage.now.monotonic_ms += 5_000;
    stage.now.unix_ms += 5_000;
    stage.ledger.work(stage.now, &mut stage.sink);
    stage.sink.wanted.splice(..0, wanted);
    assert_eq!(drain(&mut stage, &subscriber), numbers(1..5));
    stage.check_account();
}

/// Messages that were read for a client leave memory again when the client goes without receiving them.
#[test]
fn messages_read_ahead_leave_memory_with_their_reader() {
    let mut stage = Stage::with(settings());
    let publisher = away(&mut stage, "a");
    publish(&mut stage, &publisher, 0..100);
    for _ in 0..3 {
        let subscriber = stage.client("subscriber", &Ask::lasting(60).window(5));
        assert_eq!(payloads(&stage.delivered(&subscriber)), numbers(0..5));
        stage.leave(&subscriber, Cause::Normal);
        assert_eq!(stage.ledger.durable_state().matches(" at ").count(), 100, "nothing is in memory");
    }
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    assert_eq!(drain(&mut stage, &subscriber), numbers(0..100));
}

/// A message that one reader has in memory is not read for another: nothing comes that would feed its queue.
#[test]
fn messages_that_another_reader_has_in_memory_are_sent_without_a_read() {
    let mut stage = Stage::with(settings());
    for name in ["first", "second"] {
        let subscriber = stage.client(name, &Ask::lasting(60));
        stage.subscribe(&subscriber, "a", at_qos(QOS_2));
        stage.leave(&subscriber, Cause::Normal);
    }
    let publisher = stage.client("publisher", &Ask::clean());
    publish(&mut stage, &publisher, 0..5);
    let first = stage.client("first", &Ask::lasting(60).window(1));
    assert_eq!(payloads(&stage.delivered(&first)), numbers(0..1));
    let second = stage.client("second", &Ask::lasting(60));
    stage.ledger.work(stage.now, &mut stage.sink);
    assert!(stage.sink.wanted.is_empty(), "all of it is in memory");
    assert_eq!(drain(&mut stage, &second), numbers(0..5));
    stage.check_account();
}

const MIB: usize = 1 << 20;

/// A process with 1 MiB of memory and a session that is away, for which 100 messages of 1 kB wait on disk.
fn short_of_memory() -> (Stage, Arc<Budget>) {
    let budget = Arc::new(Budget::new(MIB));
    let mut stage = Stage::with_budget(settings(), &budget);
    let publisher = away(&mut stage, "a");
    for number in 1..=100 {
        stage.publish(&publisher, number, &message("a", &[7; 1_000], QOS_1));
    }
    (stage, budget)
}

/// Charges outputs, until this number of bytes is held.
fn hold(budget: &Arc<Budget>, bytes: usize) -> Charge {
    hold_for(Purpose::Outputs, budget, bytes)
}

/// Charges another purpose, until this number of bytes is held.
fn hold_for(purpose: Purpose, budget: &Arc<Budget>, bytes: usize) -> Charge {
    budget.charge(purpose, bytes - budget.used_bytes())
}

/// Otherwise many readers that come at the same time would hold more than there is.
#[test]
fn little_is_read_ahead_and_sent_while_memory_is_short() {
    let (mut stage, budget) = short_of_memory();
    let _held = hold(&budget, MIB / 16 * 15);
    let reader = stage.client("subscriber", &Ask::lasting(60).window(100));
    stage.ledger.work(stage.now, &mut stage.sink);
    let wanted = stage.sink.wanted.len();
    assert!((10..=16).contains(&wanted), "{wanted} of 1 kB");
    stage.work();
    let sent = stage.delivered(&reader);
    assert!((10..=17).contains(&sent.len()), "{} of 1 kB", sent.len());
    sent.iter().for_each(|deliver| stage.acknowledge(&reader, deliver.what, ReasonCode::Success));
    assert_eq!(sent.len() + drain(&mut stage, &reader).len(), 100);
    stage.check_account();
}

/// The same for messages that its client has had on an earlier connection.
#[test]
fn little_is_sent_again_while_memory_is_short() {
    let (mut stage, budget) = short_of_memory();
    let reader = stage.client("subscriber", &Ask::lasting(60).window(100));
    assert_eq!(stage.delivered(&reader).len(), 100);
    stage.leave(&reader, Cause::Normal);
    let _held = hold(&budget, MIB / 16 * 15);
    let reader = stage.client("subscriber", &Ask::lasting(60).window(100));
    stage.ledger.work(stage.now, &mut stage.sink);
    let wanted = stage.sink.wanted.len();
    assert!((10..=16).contains(&wanted), "{wanted} of 1 kB");
    stage.work();
    let sent = stage.delivered(&reader);
    assert!((10..=17).contains(&sent.len()) && sent.iter().all(|deliver| deliver.dup), "{}", sent.len());
    sent.iter().for_each(|deliver| stage.acknowledge(&reader, deliver.what, ReasonCode::Success));
    assert_eq!(sent.len() + drain(&mut stage, &reader).len(), 100);
    stage.check_account();
}

/// A message is read again if its client comes back without having acknowledged it.
#[test]
fn messages_sent_while_memory_is_short_do_not_stay_in_memory() {
    let (mut stage, budget) = short_of_memory();
    let _held = hold(&budget, MIB / 16 * 15);
    for is_again in [false, true] {
        let reader = stage.client("subscriber", &Ask::lasting(60).window(100));
        let sent = stage.delivered(&reader);
        assert!(sent.len() >= 10 && sent[0].dup == is_again, "{}", sent.len());
        let before = budget.held_bytes(Purpose::Messages);
        drop(sent);
        let freed = before - budget.held_bytes(Purpose::Messages);
        assert!(freed > 10_000, "{freed} bytes that the shard had, again: {is_again}");
        stage.leave(&reader, Cause::Normal);
    }
    let reader = stage.client("subscriber", &Ask::lasting(60).window(100));
    assert_eq!(drain(&mut stage, &reader).len(), 100);
    stage.check_account();
}

/// Messages that wait on disk may be all that keeps memory used. Only their client can free it.
#[test]
fn one_message_is_read_at_a_time_when_all_memory_is_used() {
    for has_had_them in [false, true] {
        let (mut stage, budget) = short_of_memory();
        let other = stage.client("other", &Ask::lasting(60));
        stage.subscribe(&other, "b", at_qos(QOS_1));
        stage.leave(&other, Cause::Normal);
        (0..9).for_each(|_| stage.emit(&message("b", &[7; 1_000], QOS_1)));
        if has_had_them {
            let reader = stage.client("subscriber", &Ask::lasting(60).window(100));
            assert_eq!(stage.delivered(&reader).len(), 100);
            stage.leave(&reader, Cause::Normal);
        }
        let _held = hold_for(Purpose::Messages, &budget, MIB + 1);
        let reader = stage.client("subscriber", &Ask::lasting(60).window(100));
        let other = stage.client("other", &Ask::lasting(60));
        stage.ledger.work(stage.now, &mut stage.sink);
        assert_eq!(stage.sink.wanted.len(), 1, "of both queues");
        assert_eq!(drain(&mut stage, &reader).len(), 100);
        assert_eq!(drain(&mut stage, &other).len(), 9);
        stage.check_account();
    }
}

/// Otherwise each of many readers that take nothing would hold what was read for it.
#[test]
fn nothing_stays_in_memory_for_readers_that_take_nothing_when_all_memory_is_used() {
    let (mut stage, budget) = short_of_memory();
    let _held = hold_for(Purpose::Messages, &budget, MIB + 1);
    let before = budget.held_bytes(Purpose::Messages);
    let reader = stage.client("subscriber", &Ask::lasting(60).window(3));
    stage.work();
    assert_eq!(stage.delivered(&reader).len(), 3);
    assert_eq!(budget.held_bytes(Purpose::Messages), before);
}

#[test]
fn nothing_is_read_when_outputs_use_all_memory_and_soon_when_there_is_some() {
    for has_had_them in [false, true] {
        let (mut stage, budget) = short_of_memory();
        if has_had_them {
            let reader = stage.client("subscriber", &Ask::lasting(60).window(100));
            assert_eq!(stage.delivered(&reader).len(), 100);
            stage.leave(&reader, Cause::Normal);
        }
        let held = hold(&budget, MIB + 1);
        let reader = stage.client("subscriber", &Ask::lasting(60).window(100));
        stage.ledger.work(stage.now, &mut stage.sink);
        assert!(stage.sink.wanted.is_empty(), "{} are read", stage.sink.wanted.len());
        drop(held);
        let next_ms = stage.ledger.poll_timeout().expect("nobody tells that there is memory");
        assert!(next_ms <= stage.now.monotonic_ms + 1_000, "{next_ms}");
        stage.now.monotonic_ms = next_ms;
        stage.work();
        assert_eq!(drain(&mut stage, &reader).len(), 100);
        stage.check_account();
    }
}
