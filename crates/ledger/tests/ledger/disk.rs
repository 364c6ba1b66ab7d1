//! Records of one group, the answers that wait for them, and the replies when they cannot be written.

use base::{Budget, Message, Purpose, Ticket};
use ledger::{Ledger, Lsn, MessageId, Record, Settings};
use protocol::{Cause, Durability, Reply};
use wire::{Qos, ReasonCode};

use crate::stage::{Ask, QOS_0, QOS_1, QOS_2, Stage, at_qos, count, message, packet_id, payloads, retained};

/// • One packet, one group of records: message, queues, retained value and the identifier of QoS 2.
#[test]
fn one_packet_is_one_group_of_records() {
    let mut stage = Stage::new();
    for number in 0..3 {
        let client = stage.client(&format!("c{number}"), &Ask::lasting(60));
        stage.subscribe(&client, "a", at_qos(QOS_1));
        stage.leave(&client, Cause::Normal);
    }
    let publisher = stage.client("publisher", &Ask::lasting(60));
    stage.sink.groups.clear();
    stage.publish(&publisher, 9, &retained("a", b"1", QOS_2));
    let [(_, group)] = &stage.sink.groups[..] else { panic!("one group") };
    let [Record::Enqueue { queues, is_retained, body, .. }, Record::Opened { packet_id: opened, .. }] =
        &group[..]
    else {
        panic!("{group:?}")
    };
    assert_eq!((opened.value(), queues.len(), *is_retained), (9, 3, true));
    assert_eq!(body.payload(), b"1");
}

/// Nothing else touches the disk.
#[test]
fn events_that_concern_no_lasting_session_are_not_recorded() {
    let mut stage = Stage::new();
    let clean = stage.client("clean", &Ask::clean().will("w", 0));
    stage.subscribe(&clean, "a", at_qos(QOS_2));
    stage.subscribe(&clean, "$share/g/b", at_qos(QOS_2));
    for (id, topic) in (1..).zip(["a", "b", "c"]) {
        stage.publish(&clean, id, &message(topic, b"x", QOS_2));
    }
    assert_eq!(stage.recorded(&clean), [ReasonCode::Success]);
    stage.leave(&clean, Cause::WithWill);
    stage.work();
    for payload in [&b"1 second"[..], b"2 seconds", b""] {
        let uptime = base::Message::of_server("$SYS/broker/uptime", payload).expect("a topic");
        stage.emit(&std::sync::Arc::new(uptime));
    }
    assert!(stage.sink.groups.is_empty(), "{:?}", stage.sink.groups);
}

/// SUBACK and PINGRESP, a clean CONNACK and deliveries of QoS 1 never wait for another packet's disk; answers of one
/// kind keep their order. [MQTT-4.6.0-2] [MQTT-4.6.0-3] [3.1.1 MQTT-4.6.0-2] [3.1.1 MQTT-4.6.0-3]
#[test]
fn answers_keep_their_order() {
    let mut stage = Stage::new();
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    stage.subscribe(&subscriber, "a", at_qos(QOS_1));
    stage.leave(&subscriber, Cause::Normal);
    let publisher = stage.client("publisher", &Ask::clean());
    stage.replies();
    let mut stage = stage.slow();
    // Only the first has to be recorded; the second must not overtake its answer.
    stage.publish(&publisher, 1, &message("a", b"1", QOS_1));
    stage.publish(&publisher, 2, &message("b", b"2", QOS_1));
    stage.subscribe(&publisher, "$share/g/x", at_qos(QOS_1));
    assert!(stage.stored(&publisher).is_empty());
    assert_eq!(stage.recorded(&publisher), [ReasonCode::Success]);
    stage.sync();
    let tickets: Vec<Ticket> = stage.stored(&publisher).into_iter().map(|(ticket, _)| ticket).collect();
    assert_eq!(tickets, [1, 2].map(|id| Ticket::PubAck(packet_id(id))));
}

#[test]
fn straight_copies_do_not_wait_for_the_disk() {
    let mut stage = Stage::new();
    let lasting = stage.client("lasting", &Ask::lasting(60));
    stage.subscribe(&lasting, "a", at_qos(QOS_1));
    let clean = stage.client("clean", &Ask::clean());
    stage.subscribe(&clean, "a", at_qos(QOS_1));
    stage.replies();
    let mut stage = stage.slow();
    stage.publish(&clean, 1, &message("a", b"1", QOS_1));
    assert_eq!(stage.live(&clean), ["1"]);
    assert!(stage.live(&lasting).is_empty(), "it gets it from its queue");
    assert!(stage.stored(&clean).is_empty());
}

/// A message that a group gives to a member at QoS 0 arrives at most once, at any member: a crash must not deliver it
/// again.
#[test]
fn qos_0_messages_from_a_group_wait_for_their_record() {
    let mut stage = Stage::new();
    let client = stage.client("c", &Ask::lasting(60));
    stage.subscribe(&client, "$share/g/a", at_qos(QOS_0));
    stage.replies();
    let mut stage = stage.slow();
    stage.emit(&message("a", b"1", QOS_1));
    assert!(stage.live(&client).is_empty());
    stage.sync();
    assert_eq!(stage.live(&client), ["1"]);
}

/// Without space nothing is half done: nobody gets what was refused, and service resumes by itself.
#[test]
fn without_space_publishers_are_refused_and_everything_goes_on_later() {
    let mut stage = Stage::new();
    let lasting = stage.client("lasting", &Ask::lasting(60));
    stage.subscribe(&lasting, "a", at_qos(QOS_2));
    let clean = stage.client("clean", &Ask::clean());
    stage.subscribe(&clean, "a", at_qos(QOS_2));
    stage.subscribe(&clean, "q0", at_qos(QOS_2));
    stage.publish(&clean, 1, &message("a", b"1", QOS_1));
    let [deliver] = &stage.delivered(&lasting)[..] else { panic!("one message") };
    stage.replies();
    stage.sink.no_space = true;
    let before = stage.ledger.durable_state();
    stage.publish(&clean, 2, &message("a", b"2", QOS_2));
    stage.publish(&clean, 3, &message("b", b"3", QOS_1));
    assert_eq!(
        stage.stored(&clean),
        [
            (Ticket::PubRec(packet_id(2)), ReasonCode::QuotaExceeded),
            (Ticket::PubAck(packet_id(3)), ReasonCode::NoMatchingSubscribers),
        ]
    );
    stage.subscribe(&lasting, "b", at_qos(QOS_1));
    assert_eq!(stage.recorded(&lasting), [ReasonCode::QuotaExceeded]);
    stage.forget(&lasting, "b");
    let refused = stage.claim("other", &Ask::lasting(60));
    assert_eq!(stage.ended(&refused), [ReasonCode::QuotaExceeded]);
    assert_eq!(stage.ledger.durable_state(), before, "nothing has changed");
    assert!(stage.live(&clean).is_empty());
    // Retained values of QoS 0 are given out and kept in memory.
    stage.emit(&retained("q0", b"4", QOS_0));
    assert_eq!(stage.live(&clean), ["4"]);
    assert_eq!(count(&stage.gauges().unrecorded), 1);
    // A record that frees space is accepted.
    stage.acknowledge(&lasting, deliver.what, ReasonCode::Success);
    assert_eq!(count(&stage.gauges().acknowledged), 1);
    stage.sink.no_space = false;
    stage.publish(&clean, 5, &message("a", b"5", QOS_1));
    assert_eq!(stage.stored(&clean), [(Ticket::PubAck(packet_id(5)), ReasonCode::Success)]);
    assert_eq!(payloads(&stage.delivered(&lasting)), ["5"]);
    stage.check_account();
}

/// A will that finds no space does not hold up a will that needs none. [MQTT-3.1.2-8]
#[test]
fn a_will_without_space_delays_no_other_will() {
    let mut stage = Stage::new();
    let absent = stage.client("absent", &Ask::lasting(60));
    stage.subscribe(&absent, "stored", at_qos(QOS_1));
    stage.leave(&absent, Cause::Normal);
    let witness = stage.client("witness", &Ask::clean());
    stage.subscribe(&witness, "sent", at_qos(QOS_1));
    let stored = stage.client("stored", &Ask::clean().will("stored", 0));
    let sent = stage.client("sent", &Ask::clean().will("sent", 0));
    stage.sink.no_space = true;
    stage.leave(&stored, Cause::WithWill);
    stage.leave(&sent, Cause::WithWill);
    stage.pass_secs(1);
    assert_eq!(stage.live(&witness), ["will"]);
    assert_eq!(count(&stage.gauges().wills_published), 1);
    stage.sink.no_space = false;
    stage.pass_secs(1);
    assert_eq!(count(&stage.gauges().wills_published), 2, "the other will found space");
}

/// Many wills without space cost one attempt in a tenth of a second, and go together when there is space.
#[test]
fn wills_without_space_are_not_all_tried_all_the_time() {
    const WILLS: usize = 100;
    let mut stage = Stage::new();
    let absent = stage.client("absent", &Ask::lasting(60));
    stage.subscribe(&absent, "stored", at_qos(QOS_1));
    stage.leave(&absent, Cause::Normal);
    let name = |number: usize| format!("client {number}");
    let clients: Vec<_> =
        (0..WILLS).map(|number| stage.client(&name(number), &Ask::clean().will("stored", 0))).collect();
    stage.sink.no_space = true;
    clients.iter().for_each(|client| stage.leave(client, Cause::WithWill));
    stage.work();
    let before = count(&stage.gauges().commits_refused);
    for _ in 0..10 {
        stage.now.monotonic_ms += 100;
        stage.work();
    }
    let tried = count(&stage.gauges().commits_refused) - before;
    assert!((5..=10).contains(&tried), "{tried} attempts in a second");
    stage.sink.no_space = false;
    stage.pass_secs(1);
    assert_eq!(count(&stage.gauges().wills_published), WILLS);
}

/// A will that finds no space is published when there is some.
#[test]
fn a_will_waits_for_space() {
    let mut stage = Stage::new();
    let witness = stage.client("witness", &Ask::lasting(60));
    stage.subscribe(&witness, "w", at_qos(QOS_1));
    let lasting = stage.client("lasting", &Ask::lasting(60).will("w", 0));
    let clean = stage.client("clean", &Ask::clean().will("w", 0));
    stage.sink.no_space = true;
    stage.leave(&lasting, Cause::WithWill);
    stage.leave(&clean, Cause::WithWill);
    stage.pass_secs(1);
    assert!(stage.delivered(&witness).is_empty());
    stage.sink.no_space = false;
    stage.pass_secs(1);
    assert_eq!(payloads(&stage.delivered(&witness)), ["will", "will"]);
    assert!(!stage.ledger.has_work());
}

/// After a failed sync nothing is acknowledged any more that would have to be durable; what flows goes on.
#[test]
fn a_poisoned_ledger_acknowledges_nothing_durable() {
    let mut stage = Stage::new();
    let lasting = stage.client("lasting", &Ask::lasting(60));
    stage.subscribe(&lasting, "a", at_qos(QOS_2));
    let clean = stage.client("clean", &Ask::clean());
    stage.subscribe(&clean, "live", at_qos(QOS_2));
    stage.replies();
    let mut stage = stage.slow();
    stage.publish(&clean, 1, &message("a", b"1", QOS_1));
    let waiting = stage.claim("waiting", &Ask::lasting(60));
    stage.subscribe(&lasting, "b", at_qos(QOS_1));
    stage.sink.is_poisoned = true;
    stage.progress(Lsn(0), Lsn(0), true);
    let replies = stage.replies();
    let told: Vec<_> = replies
        .iter()
        .filter_map(|(_, reply)| match reply {
            Reply::Ended { connection, reason } | Reply::Refused { connection, reason } => {
                Some((*connection, *reason))
            }
            _ => None,
        })
        .collect();
    let expected = [
        (clean.place.connection, ReasonCode::UnspecifiedError),
        (waiting.place.connection, ReasonCode::ServerUnavailable),
        (lasting.place.connection, ReasonCode::UnspecifiedError),
    ];
    assert_eq!(told, expected);
    assert!(!replies.iter().any(|(_, reply)| matches!(reply, Reply::Stored { .. } | Reply::Claimed(_))));
    // Later packets.
    stage.publish(&clean, 2, &message("a", b"2", QOS_1));
    stage.publish(&clean, 3, &message("live", b"3", QOS_1));
    assert_eq!(
        stage.stored(&clean),
        [
            (Ticket::PubAck(packet_id(2)), ReasonCode::ImplementationSpecificError),
            (Ticket::PubAck(packet_id(3)), ReasonCode::Success),
        ]
    );
    assert_eq!(stage.live(&clean), ["3"]);
    let refused = stage.claim("new", &Ask::lasting(60));
    assert_eq!(stage.ended(&refused), [ReasonCode::ServerUnavailable]);
    let clean_too = stage.claim("clean-too", &Ask::clean());
    assert!(stage.ended(&clean_too).is_empty(), "who needs no disk is let in");
    stage.emit(&retained("live", b"4", QOS_0));
    assert_eq!(stage.live(&clean), ["3", "4"]);
    stage.leave(&lasting, Cause::Normal);
    stage.pass_secs(100);
    assert!(!stage.ledger.has_work(), "it does not try for ever");
}

/// `durability` says when an answer leaves: after the sync, after the write, at once. The records are the same.
#[test]
fn each_connection_waits_for_what_its_listener_asks_for() {
    let mut stage = Stage::new();
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    stage.subscribe(&subscriber, "a", at_qos(QOS_2));
    let publishers = [Durability::Fsync, Durability::Os, Durability::None]
        .map(|durability| stage.client(&format!("{durability:?}"), &Ask::clean().durability(durability)));
    stage.replies();
    let before = stage.last();
    let mut stage = stage.slow();
    for publisher in &publishers {
        stage.publish(publisher, 1, &message("a", b"1", QOS_1));
    }
    let answered = |stage: &mut Stage| publishers.each_ref().map(|publisher| stage.stored(publisher).len());
    assert_eq!(answered(&mut stage), [0, 0, 1]);
    let last = stage.last();
    stage.progress(last, before, false);
    assert_eq!(answered(&mut stage), [0, 1, 0]);
    stage.progress(last, last, false);
    assert_eq!(answered(&mut stage), [1, 0, 0]);
    // A message of QoS 2 for this client waits for the durability of the subscriber's listener.
    stage.publish(&publishers[2], 2, &message("a", b"2", QOS_2));
    let is_second = |stage: &mut Stage| payloads(&stage.delivered(&subscriber)).contains(&"2".to_owned());
    assert!(!is_second(&mut stage));
    stage.sync();
    assert!(is_second(&mut stage));
}

/// Answers of one connection keep their order, whatever others wait for; a CONNACK waits like any other.
#[test]
fn a_hasty_connection_keeps_the_order_of_its_answers() {
    let mut stage = Stage::new().slow();
    let ask = Ask::lasting(60).durability(Durability::Os);
    let mut hasty = stage.claim("hasty", &ask);
    assert!(stage.claimed(&mut hasty).is_none());
    let mut patient = stage.claim("patient", &Ask::lasting(60));
    let last = stage.last();
    stage.progress(last, Lsn(0), false);
    assert!(stage.claimed(&mut hasty).is_some() && stage.claimed(&mut patient).is_none());
    for id in 1..=3 {
        stage.publish(&hasty, id, &message("a", b"x", QOS_2));
    }
    stage.publish(&hasty, 4, &message("nobody", b"x", QOS_1));
    assert!(stage.stored(&hasty).is_empty());
    let last = stage.last();
    let [one, two, three] = [1, 2, 3].map(|id| Ticket::PubRec(packet_id(id)));
    // The last message has no record, and waits for the one before.
    let told = [
        (last.0 - 2, vec![one]),
        (last.0 - 1, vec![two]),
        (last.0, vec![three, Ticket::PubAck(packet_id(4))]),
    ];
    for (written, expected) in told {
        stage.progress(Lsn(written), Lsn(0), false);
        let tickets: Vec<Ticket> = stage.stored(&hasty).into_iter().map(|(ticket, _)| ticket).collect();
        assert_eq!(tickets, expected);
    }
    // The place of a connection is used again, by one that waits.
    stage.leave(&hasty, Cause::Normal);
    stage.progress(last, last, true);
    assert_eq!(stage.ended(&patient), Vec::<ReasonCode>::new(), "its CONNACK came before the failure");
}

/// SUBACK and UNSUBACK of a lasting session wait like PUBACK.
#[test]
fn a_subscription_of_a_lasting_session_is_acknowledged_when_it_is_recorded() {
    let mut stage = Stage::new();
    let client = stage.client("c", &Ask::lasting(60));
    let mut stage = stage.slow();
    for is_new in [true, false] {
        if is_new {
            stage.subscribe(&client, "a", at_qos(QOS_1));
        } else {
            stage.unsubscribe(&client, "a");
        }
        assert_eq!(stage.recorded(&client), []);
        stage.sync();
        assert_eq!(stage.recorded(&client), [ReasonCode::Success], "subscribes: {is_new}");
    }
}

/// After a failed sync a hasty connection has lost nothing that it was promised.
#[test]
fn a_failed_sync_takes_nothing_from_who_waits_for_the_write() {
    let mut stage = Stage::new();
    let subscriber = stage.client("subscriber", &Ask::lasting(60));
    stage.subscribe(&subscriber, "a", at_qos(QOS_2));
    let [patient, hasty] = [Durability::Fsync, Durability::Os]
        .map(|durability| stage.client(&format!("{durability:?}"), &Ask::clean().durability(durability)));
    stage.replies();
    let before = stage.last();
    let mut stage = stage.slow();
    stage.publish(&patient, 1, &message("a", b"1", QOS_1));
    stage.publish(&hasty, 1, &message("a", b"1", QOS_1));
    let last = stage.last();
    stage.progress(last, before, true);
    assert_eq!(stage.stored(&hasty), [(Ticket::PubAck(packet_id(1)), ReasonCode::Success)]);
    assert_eq!(stage.ended(&patient), [ReasonCode::UnspecifiedError]);
    assert!(stage.stored(&patient).is_empty());
    stage.publish(&hasty, 2, &message("a", b"2", QOS_1));
    assert_eq!(
        stage.stored(&hasty),
        [(Ticket::PubAck(packet_id(2)), ReasonCode::ImplementationSpecificError)]
    );
}

/// A session whose end was not durable when the disk failed is there again after the restart: nobody is told otherwise.
#[test]
fn a_client_that_wipes_a_session_is_refused_unless_the_wipe_is_recorded() {
    let mut stage = Stage::new();
    let client = stage.client("c", &Ask::lasting(60));
    stage.leave(&client, Cause::Normal);
    let mut stage = stage.slow();
    let wiping = stage.claim("c", &Ask::clean());
    stage.progress(Lsn(0), Lsn(0), true);
    assert_eq!(stage.ended(&wiping), [ReasonCode::ServerUnavailable]);
    stage.leave(&wiping, Cause::Normal);
    let again = stage.claim("c", &Ask::clean());
    assert_eq!(stage.ended(&again), [ReasonCode::ServerUnavailable]);
    let other = stage.claim("other", &Ask::clean());
    assert!(stage.ended(&other).is_empty());
}

/// That a value is cleared already may be what is lost.
#[test]
fn a_poisoned_ledger_does_not_acknowledge_that_a_lost_clearing_is_repeated() {
    let mut stage = Stage::new();
    let clean = stage.client("clean", &Ask::clean());
    stage.publish(&clean, 1, &retained("r", b"1", QOS_1));
    stage.replies();
    let mut stage = stage.slow();
    stage.emit(&retained("r", b"", QOS_1));
    stage.sink.is_poisoned = true;
    let last = stage.last();
    stage.progress(Lsn(last.0 - 1), Lsn(last.0 - 1), true);
    stage.replies();
    stage.publish(&clean, 2, &retained("r", b"", QOS_1));
    let refused = (Ticket::PubAck(packet_id(2)), ReasonCode::ImplementationSpecificError);
    assert_eq!(stage.stored(&clean), [refused]);
}

/// Sessions and wills whose time comes when nothing can be recorded any more have it after the restart.
#[test]
fn a_poisoned_ledger_does_not_try_for_ever() {
    let mut stage = Stage::new();
    let client = stage.client("c", &Ask::lasting(10).will("w", 5));
    stage.leave(&client, Cause::WithWill);
    stage.sink.is_poisoned = true;
    let last = stage.last();
    stage.progress(last, last, true);
    stage.pass_secs(10);
    assert_eq!(count(&stage.gauges().sessions), 1);
    assert_eq!(stage.ledger.poll_timeout(), None, "nothing is to be tried again");
}

/// The first refused commit is how the ledger hears of it, if nobody tells it.
#[test]
fn a_refused_commit_poisons_too() {
    let mut stage = Stage::new();
    let lasting = stage.client("lasting", &Ask::lasting(60));
    stage.subscribe(&lasting, "a", at_qos(QOS_1));
    let publisher = stage.client("publisher", &Ask::clean());
    stage.replies();
    let mut stage = stage.slow();
    stage.publish(&publisher, 1, &message("a", b"1", QOS_1));
    stage.sink.is_poisoned = true;
    stage.publish(&publisher, 2, &message("a", b"2", QOS_1));
    assert_eq!(
        stage.stored(&publisher),
        [(Ticket::PubAck(packet_id(2)), ReasonCode::ImplementationSpecificError)]
    );
    stage.sync();
    assert!(stage.stored(&publisher).is_empty(), "not even if the sync came through");
}

/// Down time counts for clients that had left. Clients that were connected are taken as disconnected at recovery.
#[test]
fn times_go_on_over_a_restart() {
    let mut stage = Stage::new();
    let gone = stage.client("gone", &Ask::lasting(60).will("w", 50));
    stage.leave(&gone, Cause::WithWill);
    stage.client("here", &Ask::lasting(60).will("w", 20));
    let at_once = stage.client("at-once", &Ask::lasting(60).will("w", 0));
    let witness = stage.client("witness", &Ask::lasting(u32::MAX));
    stage.subscribe(&witness, "w", at_qos(QOS_1));
    drop(at_once);
    // Forty seconds of down time, on a machine whose monotonic clock begins anew.
    let records: Vec<Record<'static>> =
        stage.sink.groups.iter().flat_map(|(_, group)| group.iter().cloned()).collect();
    stage.now.monotonic_ms = 7;
    stage.now.unix_ms += 40_000;
    let index = std::sync::Arc::new(index::Subscriptions::new([5, 6]));
    let ledger = Ledger::recover(Settings::default(), std::sync::Arc::clone(&index), records, stage.now);
    let last = stage.last();
    stage.restart(ledger, index, last);
    let witness = stage.client("witness", &Ask::lasting(u32::MAX));
    assert_eq!(stage.delivered(&witness).len(), 1, "the will without a delay");
    stage.pass_secs(9);
    assert_eq!(stage.delivered(&witness).len(), 0);
    stage.pass_secs(1);
    assert_eq!(stage.delivered(&witness).len(), 1, "50 s after the first had left");
    stage.pass_secs(10);
    assert_eq!(stage.delivered(&witness).len(), 1, "20 s after the restart");
    assert_eq!(count(&stage.gauges().sessions), 3, "60 s after the first had left");
    stage.pass_secs(39);
    assert_eq!(count(&stage.gauges().sessions), 3);
    stage.pass_secs(1);
    assert_eq!(count(&stage.gauges().sessions), 1, "60 s after the restart");
    stage.check_account();
}

/// Otherwise a restart would make room for as much again.
#[test]
fn messages_that_are_recovered_are_on_the_account_until_they_are_gone() {
    let mut stage = Stage::new();
    let away = stage.client("away", &Ask::lasting(60).will("w", 50));
    stage.subscribe(&away, "a", at_qos(QOS_1));
    stage.leave(&away, Cause::WithWill);
    for payload in ["first", "second"] {
        stage.emit(&retained("a", payload.as_bytes(), QOS_1));
    }
    let (last, index) = (stage.last(), std::sync::Arc::new(index::Subscriptions::new([5, 6])));
    let budget = std::sync::Arc::new(Budget::default());
    let mut log = stage.sink.log(last);
    let mut records = ledger::Charged::new(&mut log, &budget);
    let ledger =
        Ledger::recover_from(Settings::default(), std::sync::Arc::clone(&index), &mut records, stage.now);
    let held = ["first", "second", "will"].iter().map(|payload| Message::size_bytes_of(1 + payload.len()));
    assert_eq!(budget.held_bytes(Purpose::Messages), held.sum::<usize>(), "two messages and a will");
    stage.restart(ledger, index, last);
    let again = stage.client("away", &Ask::lasting(60));
    for deliver in stage.delivered(&again) {
        stage.acknowledge(&again, deliver.what, ReasonCode::Success);
    }
    assert_eq!(
        budget.held_bytes(Purpose::Messages),
        Message::size_bytes_of(1 + "second".len()),
        "the value that is retained"
    );
}

/// Numbers that were given once are never given again, whatever has been acknowledged since.
#[test]
fn message_numbers_never_repeat() {
    let mut stage = Stage::new();
    let client = stage.client("c", &Ask::lasting(60));
    stage.subscribe(&client, "a", at_qos(QOS_1));
    let mut numbers: Vec<MessageId> = Vec::new();
    for _ in 0..3 {
        stage.emit(&message("a", b"1", QOS_1));
        for deliver in stage.delivered(&client) {
            stage.acknowledge(&client, deliver.what, ReasonCode::Success);
        }
        let records: Vec<Record<'static>> =
            stage.sink.groups.iter().flat_map(|(_, group)| group.iter().cloned()).collect();
        numbers = records
            .iter()
            .filter_map(|record| match record {
                Record::Enqueue { message, .. } => Some(*message),
                _ => None,
            })
            .collect();
        let index = std::sync::Arc::new(index::Subscriptions::new([5, 6]));
        let ledger = Ledger::recover(Settings::default(), std::sync::Arc::clone(&index), records, stage.now);
        let last = stage.last();
        stage.restart(ledger, index, last);
        stage.client("c", &Ask::lasting(60));
    }
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    assert_eq!(Qos::AtLeastOnce.level(), 1);
}
