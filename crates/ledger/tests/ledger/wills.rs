//! Wills, with every delay, expiry and way to go and to come back.

use std::sync::Arc;

use base::{Budget, Level};
use protocol::{Cause, Reply};

use crate::stage::{Ask, Client, QOS_1, Stage, at_qos, count, payloads};

/// A subscriber of wills that is always there.
fn witness(stage: &mut Stage) -> Client {
    let witness = stage.client("witness", &Ask::lasting(u32::MAX));
    stage.subscribe(&witness, "will/#", at_qos(QOS_1));
    witness
}

/// How the client comes back.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Return {
    Never,
    /// Resumes the session after this number of seconds.
    Resumes(u64),
    Wipes(u64),
    /// Another connection takes the identifier.
    TakesOver {
        clean_start: bool,
    },
}

/// After how many seconds the will is published, if it is.
fn expected(cause: Cause, delay: u64, expiry: u64, returns: Return) -> Option<u64> {
    if cause == Cause::Normal {
        return None;
    }
    // The session ends with its connection, or the delay ends at once.
    let due = delay.min(expiry);
    let comes = match returns {
        Return::Never => return Some(due),
        Return::TakesOver { .. } => 0,
        Return::Resumes(after) | Return::Wipes(after) => after,
    };
    let wipes = matches!(returns, Return::Wipes(_) | Return::TakesOver { clean_start: true });
    match (due <= comes, wipes) {
        (true, _) => Some(due),
        // The session ends now.
        (false, true) => Some(comes),
        (false, false) => None,
    }
}

/// Plays one case and tells after how many seconds the will came.
fn played(cause: Cause, delay: u32, expiry: u32, returns: Return) -> Option<u64> {
    let mut stage = Stage::new();
    let witness = witness(&mut stage);
    let ask = Ask::lasting(expiry);
    let client = stage.client("c", &ask.clone().will("will/c", delay));
    let again = |wipes: bool| if wipes { ask.clone().clean_start() } else { ask.clone() };
    let mut next = None;
    if let Return::TakesOver { clean_start } = returns {
        next = Some(stage.claim("c", &again(clean_start)));
        stage.leave(&client, if cause == Cause::Normal { cause } else { Cause::TakenOver });
    } else {
        stage.leave(&client, cause);
    }
    let mut came = None;
    for second in 0..40 {
        match returns {
            Return::Resumes(after) if after == second => next = Some(stage.claim("c", &again(false))),
            Return::Wipes(after) if after == second => next = Some(stage.claim("c", &again(true))),
            _ => {}
        }
        let wills = payloads(&stage.delivered(&witness));
        assert!(wills.len() <= usize::from(came.is_none()), "a will is published once");
        came = came.or((!wills.is_empty()).then_some(second));
        stage.pass_secs(1);
    }
    assert!(next.is_none_or(|mut next| stage.claimed(&mut next).is_some()), "the client is let in");
    assert_eq!(count(&stage.gauges().wills_published), usize::from(came.is_some()));
    assert_eq!(count(&stage.gauges().wills_pending), 0);
    stage.check_account();
    came
}

/// [MQTT-3.1.2-8] [MQTT-3.1.2-10] [MQTT-3.1.3-9] [MQTT-3.14.4-3] [3.1.1 MQTT-3.1.2-8] [3.1.1 MQTT-3.1.2-10]
/// [3.1.1 MQTT-3.14.4-3]
#[test]
fn a_will_is_published_when_its_delay_or_its_session_ends_unless_the_client_comes_back() {
    let mut cases = 0;
    let returns = [
        Return::Never,
        Return::Resumes(0),
        Return::Resumes(3),
        Return::Resumes(20),
        Return::Wipes(0),
        Return::Wipes(3),
        Return::Wipes(20),
        Return::TakesOver { clean_start: false },
        Return::TakesOver { clean_start: true },
    ];
    for cause in [Cause::Normal, Cause::WithWill] {
        for delay in [0, 5, 10, u32::MAX] {
            for expiry in [0, 5, 10, 30] {
                for returns in returns {
                    let expected = expected(cause, delay.into(), expiry.into(), returns);
                    let case = format!("{cause:?} delay {delay} expiry {expiry} {returns:?}");
                    assert_eq!(played(cause, delay, expiry, returns), expected, "{case}");
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, 288);
}

#[test]
fn for_ever_is_for_ever() {
    let mut stage = Stage::new();
    let witness = witness(&mut stage);
    let client = stage.client("c", &Ask::lasting(u32::MAX).will("will/c", u32::MAX));
    stage.leave(&client, Cause::WithWill);
    stage.pass_secs(3_600 * 24 * 365 * 100);
    assert!(stage.delivered(&witness).is_empty());
    stage.connect("c", &Ask::lasting(60).clean_start());
    assert_eq!(payloads(&stage.delivered(&witness)), ["will"], "its session has ended");
}

#[test]
fn a_will_whose_expiry_has_not_begun_does_not_grow_old() {
    let mut stage = Stage::new();
    let witness = witness(&mut stage);
    let mut ask = Ask::lasting(60);
    let message = crate::stage::message_with("will/c", b"will", QOS_1, false, Some(5));
    ask.will = Some(protocol::Will { message, delay_secs: 30 });
    let client = stage.client("c", &ask);
    stage.leave(&client, Cause::WithWill);
    stage.pass_secs(30);
    let [deliver] = &stage.delivered(&witness)[..] else { panic!("one will") };
    let publish = deliver.message.publish(stage.now);
    assert_eq!(publish.properties.message_expiry_interval_secs, Some(5));
}

#[test]
fn a_will_wave_takes_several_turns_and_waits_for_room_in_the_shards() {
    let mut stage = Stage::new();
    let witness = stage.client("witness", &Ask::clean());
    let interest = at_qos(wire::Qos::AtMostOnce);
    stage.subscribe(&witness, "will/#", interest);
    let clients: Vec<Client> = (0..3_000)
        .map(|number| stage.client(&format!("c{number}"), &Ask::lasting(60).will("will/c", 5)))
        .collect();
    clients.iter().for_each(|client| stage.leave(client, Cause::WithWill));
    stage.sink.replies.clear();
    stage.sink.has_no_room = true;
    stage.pass_secs(5);
    (0..5).for_each(|_| stage.work());
    assert_eq!(count(&stage.gauges().wills_published), 0);
    assert!(stage.ledger.has_work() && !stage.ledger.has_work_without_room());
    stage.sink.has_no_room = false;
    stage.ledger.work(stage.now, &mut stage.sink);
    let first = count(&stage.gauges().wills_published);
    assert!((1..=1_000).contains(&first), "{first} in one turn");
    stage.work();
    assert_eq!(count(&stage.gauges().wills_published), 3_000);
    let live = stage.sink.replies.iter().filter(|(_, reply)| matches!(reply, Reply::Live { .. })).count();
    assert_eq!(live, 3_000);
}

#[test]
fn a_will_for_many_receivers_counts_for_the_turn() {
    let mut stage = Stage::new();
    for number in 0..400 {
        let receiver = stage.client(&format!("r{number}"), &Ask::clean());
        stage.subscribe(&receiver, "will/#", at_qos(wire::Qos::AtMostOnce));
    }
    let clients: Vec<Client> = (0..100)
        .map(|number| stage.client(&format!("c{number}"), &Ask::lasting(60).will("will/c", 5)))
        .collect();
    clients.iter().for_each(|client| stage.leave(client, Cause::WithWill));
    stage.sink.has_no_room = true;
    stage.pass_secs(5);
    stage.sink.has_no_room = false;
    stage.ledger.work(stage.now, &mut stage.sink);
    let first = count(&stage.gauges().wills_published);
    assert!((1..=20).contains(&first), "{first} in one turn");
    stage.work();
    assert_eq!(count(&stage.gauges().wills_published), 100);
}

/// A will is as large as its client likes, and a shard delivers all that it is told in one turn.
#[test]
fn wills_stop_when_the_shards_have_no_room_for_more() {
    let mut stage = Stage::new();
    let witness = stage.client("witness", &Ask::clean());
    stage.subscribe(&witness, "will/#", at_qos(wire::Qos::AtMostOnce));
    let clients: Vec<Client> =
        (0..100).map(|number| stage.client(&format!("c{number}"), &Ask::clean().will("will/c", 0))).collect();
    let published = |stage: &Stage| count(&stage.gauges().wills_published);
    stage.sink.no_room_after = Some(10);
    clients.iter().for_each(|client| stage.leave(client, Cause::WithWill));
    assert_eq!(published(&stage), 10, "of connections that end");
    for times in 2..=10 {
        stage.sink.has_no_room = false;
        stage.sink.no_room_after = Some(10);
        stage.ledger.work(stage.now, &mut stage.sink);
        assert_eq!(published(&stage), times * 10, "of those that wait");
    }
    assert!(!stage.ledger.has_work());
}

/// A subscriber with its output over the mark, another one with room, and wills of 4 bytes that are due for both.
fn wills_for_full_output(stage: &mut Stage, wills: usize) -> [Client; 2] {
    let receivers = ["full", "open"].map(|client_id| {
        let receiver = stage.client(client_id, &Ask::clean());
        stage.subscribe(&receiver, "will/#", at_qos(wire::Qos::AtMostOnce));
        receiver
    });
    receivers[0].subscriber.gauge.set(Level::Over);
    let ask = Ask::clean().will("will/c", 0);
    let clients: Vec<Client> = (0..wills).map(|number| stage.client(&format!("c{number}"), &ask)).collect();
    stage.sink.replies.clear();
    clients.iter().for_each(|client| stage.leave(client, Cause::WithWill));
    receivers
}

/// The output that is full would take the memory of all outputs.
#[test]
fn wills_wait_for_a_receiver_whose_output_is_full() {
    let mut stage = Stage::new();
    let [full, open] = wills_for_full_output(&mut stage, 10);
    stage.pass_secs(9);
    assert_eq!(count(&stage.gauges().wills_published), 0);
    assert!(!stage.ledger.has_work(), "there is a timer");
    full.subscriber.gauge.set(Level::Open);
    assert!(stage.ledger.poll_timeout().is_some_and(|at_ms| at_ms <= stage.now.monotonic_ms + 10));
    stage.pass_secs(1);
    assert_eq!([&full, &open].map(|receiver| stage.live(receiver).len()), [10; 2]);
    assert_eq!(count(&stage.gauges().wills_dropped), 0);
    assert_eq!(stage.ledger.poll_timeout(), None);
}

#[test]
fn a_receiver_whose_output_stays_full_does_not_get_wills_and_others_do() {
    let mut stage = Stage::new();
    let [full, open] = wills_for_full_output(&mut stage, 10);
    stage.pass_secs(10);
    assert_eq!(count(&stage.gauges().wills_published), 10);
    assert_eq!([&full, &open].map(|receiver| stage.live(receiver).len()), [0, 10]);
    assert_eq!(count(&stage.gauges().wills_dropped), 10);
}

#[test]
fn wills_that_wait_for_receivers_take_a_bounded_part_of_memory() {
    let mut stage = Stage::new();
    let message = crate::stage::message("will/c", b"will", wire::Qos::AtMostOnce);
    let limit = 16 * 7 * message.size_bytes();
    stage.ledger = stage.ledger.with_budget(Arc::new(Budget::new(limit)));
    let [full, open] = wills_for_full_output(&mut stage, 10);
    assert_eq!([&full, &open].map(|receiver| stage.live(receiver).len()), [0, 3]);
    full.subscriber.gauge.set(Level::Open);
    stage.pass_secs(1);
    assert_eq!([&full, &open].map(|receiver| stage.live(receiver).len()), [7, 10]);
}

/// A receiver that is slow does not hold up anything: its shard drops what comes at QoS 0. At QoS 1 a message waits behind
/// the window, whatever the output.
#[test]
fn only_wills_of_qos_0_wait_and_only_for_receivers_that_are_not_slow() {
    for (level, qos, published) in [
        (Level::Over, wire::Qos::AtMostOnce, 0),
        (Level::Slow, wire::Qos::AtMostOnce, 1),
        (Level::Over, QOS_1, 1),
    ] {
        let mut stage = Stage::new();
        let receiver = stage.client("receiver", &Ask::clean());
        stage.subscribe(&receiver, "will/#", at_qos(qos));
        receiver.subscriber.gauge.set(level);
        let client = stage.client("c", &Ask::clean().will("will/c", 0));
        stage.leave(&client, Cause::WithWill);
        assert_eq!(count(&stage.gauges().wills_published), published, "{level:?} {qos:?}");
    }
}
