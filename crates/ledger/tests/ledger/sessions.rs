//! Sessions that last: begun, resumed, taken over, wiped, expired.

use std::sync::Arc;

use base::ShardId;
use ledger::{QueueFull, Settings};
use protocol::{Cause, Command, Reply};
use wire::ReasonCode;

use crate::stage::{Ask, Client, QOS_1, Stage, at_qos, count, message, payloads};

fn queued(stage: &mut Stage, payload: &str) {
    stage.emit(&message("a", payload.as_bytes(), QOS_1));
}

/// [MQTT-3.1.2-5] [MQTT-3.1.2-6] [MQTT-3.1.2-23] [MQTT-3.2.2-3] [MQTT-4.1.0-1] [3.1.1 MQTT-3.1.2-4]
/// [3.1.1 MQTT-3.1.2-5] [3.1.1 MQTT-3.2.2-2] [3.1.1 MQTT-3.2.2-3]
#[test]
fn a_session_is_found_again_with_subscriptions_and_messages() {
    let mut stage = Stage::new();
    let (client, first) = stage.connect("c", &Ask::lasting(60));
    assert!(!first.session_present && first.subscriptions.is_empty());
    stage.subscribe(&client, "a", at_qos(QOS_1));
    stage.leave(&client, Cause::Normal);
    queued(&mut stage, "1");
    stage.pass_secs(59);
    let (client, again) = stage.connect("c", &Ask::lasting(60));
    assert!(again.session_present);
    assert_eq!(again.subscriptions, [("a".into(), at_qos(QOS_1))]);
    assert_eq!(payloads(&stage.delivered(&client)), ["1"]);
    assert_eq!(client.subscriber.place(), Some(client.place), "others find it there");
    stage.pass_secs(1_000);
    assert!(stage.ended(&client).is_empty(), "nothing expires while it is connected");
}

/// [MQTT-4.1.0-2]
#[test]
fn a_session_expires_once_its_time_is_over_and_nothing_of_it_is_left() {
    let mut stage = Stage::new();
    let client = stage.client("c", &Ask::lasting(60));
    stage.subscribe(&client, "a", at_qos(QOS_1));
    stage.subscribe(&client, "$share/g/a", at_qos(QOS_1));
    stage.leave(&client, Cause::Normal);
    queued(&mut stage, "1");
    stage.pass_secs(60);
    assert_eq!(count(&stage.gauges().sessions_expired), 1);
    assert_eq!(count(&stage.gauges().discarded), 2);
    assert_eq!((count(&stage.gauges().sessions), count(&stage.gauges().groups)), (0, 0));
    assert!(stage.targets("a").is_empty(), "the index has forgotten it too");
    stage.check_account();
    let (_, again) = stage.connect("c", &Ask::lasting(60));
    assert!(!again.session_present);
}

/// The wall clock may jump: running timers do not look at it.
#[test]
fn a_jump_of_the_wall_clock_expires_nothing() {
    let mut stage = Stage::new();
    let client = stage.client("c", &Ask::lasting(60).will("w", 30));
    stage.leave(&client, Cause::WithWill);
    stage.now.unix_ms += 1_000_000_000;
    stage.work();
    stage.now.unix_ms = 0;
    stage.work();
    let gauges = stage.gauges();
    assert_eq!(
        (count(&gauges.sessions), count(&gauges.wills_pending), count(&gauges.wills_published)),
        (1, 1, 0)
    );
    stage.now.monotonic_ms += 60_000;
    stage.work();
    assert_eq!((count(&gauges.sessions), count(&gauges.wills_published)), (0, 1));
}

/// [MQTT-3.1.2-4] [MQTT-3.2.2-2] [3.1.1 MQTT-3.1.2-6]
#[test]
fn clean_start_wipes_a_session() {
    for expiry_secs in [0, 60] {
        let mut stage = Stage::new();
        let client = stage.client("c", &Ask::lasting(60));
        stage.subscribe(&client, "a", at_qos(QOS_1));
        stage.leave(&client, Cause::Normal);
        queued(&mut stage, "1");
        let mut stage = stage.slow();
        let mut client = stage.claim("c", &Ask::lasting(expiry_secs).clean_start());
        assert!(stage.claimed(&mut client).is_none(), "the end of the old session is not durable yet");
        stage.sync();
        let claimed = stage.claimed(&mut client).expect("it is now");
        assert!(!claimed.session_present && claimed.subscriptions.is_empty());
        assert_eq!(claimed.subscriber.queue.is_some(), expiry_secs > 0);
        stage.work();
        assert!(stage.delivered(&client).is_empty());
        assert!(stage.targets("a").is_empty());
        stage.check_account();
    }
}

/// The client after one that wiped a session waits as long for the answer that there is none: after a crash the session
/// would exist.
#[test]
fn a_session_that_has_just_ended_is_as_good_as_there_until_that_is_durable() {
    let mut stage = Stage::new();
    let client = stage.client("c", &Ask::lasting(60));
    stage.leave(&client, Cause::Normal);
    let mut stage = stage.slow();
    let mut first = stage.claim("c", &Ask::clean());
    stage.leave(&first, Cause::Normal);
    let mut second = stage.claim("c", &Ask::clean());
    let mut other = stage.claim("d", &Ask::clean());
    assert!(stage.claimed(&mut first).is_none() && stage.claimed(&mut second).is_none());
    assert!(stage.claimed(&mut other).is_some(), "nobody else waits for that");
    stage.sync();
    assert!(stage.claimed(&mut second).is_some());
    stage.leave(&second, Cause::Normal);
    let mut third = stage.claim("c", &Ask::clean());
    assert!(stage.claimed(&mut third).is_some(), "there is nothing left to wait for");
}

/// A CONNECT that creates, resumes or wipes a session waits for the disk; any other does not.
#[test]
fn only_a_session_that_lasts_waits_for_the_disk() {
    let mut stage = Stage::new().slow();
    let mut clean = stage.claim("clean", &Ask::clean());
    assert!(stage.claimed(&mut clean).is_some());
    assert!(stage.sink.groups.is_empty(), "nothing of it is recorded");
    for _ in ["create", "resume"] {
        let mut lasting = stage.claim("lasting", &Ask::lasting(60));
        assert!(stage.claimed(&mut lasting).is_none());
        assert!(stage.targets("a").is_empty());
        stage.sync();
        assert!(stage.claimed(&mut lasting).is_some());
        stage.leave(&lasting, Cause::Normal);
    }
}

/// [MQTT-3.1.4-3]: the old connection goes first, whichever shard it is on; the newest claimant follows.
#[test]
fn an_identifier_is_taken_over_across_shards_with_what_the_old_connection_had() {
    let mut stage = Stage::new();
    let old = stage.client("c", &Ask::lasting(60));
    stage.subscribe(&old, "a", at_qos(QOS_1));
    queued(&mut stage, "1");
    assert_eq!(stage.delivered(&old).len(), 1);
    let mut second = stage.claim("c", &Ask::lasting(60).shard(1));
    let mut third = stage.claim("c", &Ask::lasting(60).shard(2));
    let evicted: Vec<_> = stage
        .replies()
        .into_iter()
        .filter_map(|(shard, reply)| match reply {
            Reply::Evict { connection } => Some((shard, connection)),
            _ => None,
        })
        .collect();
    let at = |client: &Client| (client.place.shard, client.place.connection);
    assert_eq!(evicted, [at(&old), at(&second)]);
    stage.leave(&second, Cause::TakenOver);
    assert!(stage.claimed(&mut third).is_none(), "the holder is still there");
    stage.leave(&old, Cause::TakenOver);
    let claimed = stage.claimed(&mut third).expect("nobody else is left");
    assert!(claimed.session_present && stage.claimed(&mut second).is_none());
    let [again] = &stage.delivered(&third)[..] else { panic!("what was under way") };
    assert!(again.dup);
}

/// Every command names its connection; one that has left is not listened to any more.
#[test]
fn commands_from_a_connection_that_has_left_are_ignored() {
    let mut stage = Stage::new();
    let old = stage.client("c", &Ask::lasting(60));
    stage.subscribe(&old, "a", at_qos(QOS_1));
    queued(&mut stage, "1");
    let [deliver] = &stage.delivered(&old)[..] else { panic!("one message") };
    stage.leave(&old, Cause::WithWill);
    let new = stage.client("c", &Ask::lasting(60));
    let before = stage.ledger.durable_state();
    stage.replies();
    stage.acknowledge(&old, deliver.what, ReasonCode::Success);
    stage.subscribe(&old, "b", at_qos(QOS_1));
    stage.unsubscribe(&old, "a");
    stage.publish(&old, 1, &message("a", b"2", QOS_1));
    stage.leave(&old, Cause::Normal);
    assert!(stage.replies().is_empty());
    assert_eq!(stage.ledger.durable_state(), before);
    // Neither is another shard's connection that happens to have the same number.
    let elsewhere = ShardId::new(5);
    let connection = new.place.connection;
    let reason = ReasonCode::Success;
    stage.handle(elsewhere, Command::Acknowledged { what: deliver.what, connection, reason });
    assert_eq!(stage.ledger.durable_state(), before);
}

#[test]
fn a_session_resumed_without_expiry_goes_through_the_ledger_until_its_connection_ends() {
    let mut stage = Stage::new();
    let client = stage.client("c", &Ask::lasting(60));
    stage.subscribe(&client, "a", at_qos(QOS_1));
    stage.leave(&client, Cause::Normal);
    let (client, claimed) = stage.connect("c", &Ask::lasting(0));
    assert!(claimed.session_present && claimed.subscriber.queue.is_some());
    queued(&mut stage, "1");
    assert_eq!(stage.delivered(&client).len(), 1);
    stage.leave(&client, Cause::Normal);
    stage.work();
    assert_eq!(count(&stage.gauges().sessions), 0);
    assert!(!stage.connect("c", &Ask::lasting(60)).1.session_present);
    stage.check_account();
}

#[test]
fn disconnect_may_change_the_expiry() {
    for (expiry_secs, is_there) in [(None, true), (Some(0), false), (Some(5), false), (Some(u32::MAX), true)]
    {
        let mut stage = Stage::new();
        let client = stage.client("c", &Ask::lasting(60));
        stage.leave_with(&client, Cause::Normal, expiry_secs);
        stage.pass_secs(30);
        let (_, claimed) = stage.connect("c", &Ask::lasting(60));
        assert_eq!(claimed.session_present, is_there, "{expiry_secs:?}");
    }
}

#[test]
fn there_are_no_more_sessions_than_there_may_be() {
    let mut stage = Stage::with(Settings { sessions_max: 1, ..Settings::default() });
    let first = stage.client("first", &Ask::lasting(60));
    let second = stage.claim("second", &Ask::lasting(60));
    assert_eq!(stage.ended(&second), [ReasonCode::QuotaExceeded]);
    stage.client("clean", &Ask::clean());
    stage.leave(&first, Cause::Normal);
    assert!(stage.connect("first", &Ask::lasting(60)).1.session_present, "one that is there is resumed");
    assert_eq!(count(&stage.gauges().sessions_refused), 1);
}

/// However much a session has, no turn does more than about a thousand units of work for its end.
#[test]
fn a_large_session_ends_bit_by_bit_and_is_invisible_at_once() {
    let settings = Settings {
        queue_full: QueueFull::DropNewest,
        shared_subscriptions_max: 5_000,
        groups_per_filter_max: 10_000,
        ..Settings::default()
    };
    let mut stage = Stage::with(settings);
    let client = stage.client("c", &Ask::lasting(60));
    for number in 0..5_000 {
        stage.subscribe(&client, &format!("t/{number}"), at_qos(QOS_1));
        stage.subscribe(&client, &format!("$share/{number}/s"), at_qos(QOS_1));
    }
    stage.leave_with(&client, Cause::Normal, Some(0));
    assert!(stage.ledger.has_work());
    assert_eq!(count(&stage.gauges().sessions), 0);
    assert!(!stage.connect("c", &Ask::lasting(60)).1.session_present);
    let mut turns = 0;
    while stage.ledger.has_work() {
        let before = stage.index.len();
        stage.ledger.work(stage.now, &mut stage.sink);
        assert!(before - stage.index.len() <= 1_000, "a turn has its bounds");
        turns += 1;
    }
    assert!(turns >= 10, "{turns} turns");
    assert!(stage.index.is_empty());
    assert_eq!(Arc::strong_count(&client.subscriber), 1, "nobody else remembers it");
}
