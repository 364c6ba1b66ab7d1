//! Bounds of queues in the roles of users: they hold by the rules of the moment, and are not recorded.

use std::sync::Arc;

use auth::{Access, Guard, Holder, Limits, Permit, Realms, RolesBuilder, RuleKind};
use index::Subscriptions;
use ledger::{Ledger, QueueFull, Settings};
use protocol::{Cause, Command, CursorId, Reply};
use wire::ReasonCode;

use crate::stage::{Ask, QOS_1, Stage, at_qos, count, message, payloads, retained};

/// Everybody may do everything, and ann has these limits.
fn realms(messages: Option<u32>, bytes: Option<u64>) -> Realms {
    let mut builder = RolesBuilder::default();
    let (open, small) = (builder.role("open"), builder.role("small"));
    for kind in [RuleKind::Publish, RuleKind::Subscribe, RuleKind::Receive] {
        builder.rule(open, kind, "#", Some(Permit::ALL), 1).expect("a filter");
    }
    let limits =
        Limits { queue: auth::QueueLimits { messages_max: messages, bytes_max: bytes }, ..Limits::default() };
    builder.limit(small, limits);
    [Holder::EveryUser, Holder::Anonymous].into_iter().for_each(|holder| builder.give(holder, open));
    builder.give(Holder::User("ann"), small);
    let access = Access::new(None, None).with_roles(builder.build().expect("few rules"));
    Realms::new(vec![("".into(), Arc::new(access))])
}

fn settings(queue_full: QueueFull, realms: Realms) -> Settings {
    Settings { queue_messages_max: 5, queue_full, guard: Arc::new(Guard::new(realms)), ..Settings::default() }
}

/// Sessions of ann and of bob, which are away.
fn away(settings: &Settings) -> Stage {
    let mut stage = Stage::with(settings.clone());
    for user in ["ann", "bob"] {
        let client = stage.client(user, &Ask::lasting(600).of(user));
        stage.subscribe(&client, "a", at_qos(QOS_1));
        stage.leave(&client, Cause::Normal);
    }
    stage
}

fn send(stage: &mut Stage, payloads: std::ops::RangeInclusive<u32>) {
    payloads.for_each(|payload| stage.emit(&message("a", payload.to_string().as_bytes(), QOS_1)));
}

/// The messages that wait for a user, which are taken and stay. `None` if there is no session.
fn found(stage: &mut Stage, user: &'static str) -> Option<String> {
    let (client, claimed) = stage.connect(user, &Ask::lasting(600).of(user).window(100));
    let delivered = stage.delivered(&client);
    let texts = payloads(&delivered).concat();
    for deliver in delivered {
        stage.acknowledge(&client, deliver.what, ReasonCode::Success);
    }
    stage.leave(&client, Cause::Normal);
    claimed.session_present.then_some(texts)
}

#[test]
fn a_queue_has_the_lower_bound_of_roles_and_configuration() {
    let cases = [
        (QueueFull::DropNewest, Some("123"), Some("12345")),
        (QueueFull::DropOldest, Some("567"), Some("34567")),
        (QueueFull::EndSession, None, None),
    ];
    for (queue_full, of_ann, of_bob) in cases {
        let mut stage = away(&settings(queue_full, realms(Some(3), None)));
        send(&mut stage, 1..=7);
        assert_eq!(found(&mut stage, "ann").as_deref(), of_ann, "{queue_full:?}");
        assert_eq!(found(&mut stage, "bob").as_deref(), of_bob, "{queue_full:?}");
        stage.check_account();
    }
    let mut stage = away(&settings(QueueFull::DropNewest, realms(Some(9), Some(200))));
    send(&mut stage, 1..=7);
    assert_eq!(found(&mut stage, "ann").as_deref(), Some("12"), "200 bytes");
    let mut stage = away(&settings(QueueFull::DropNewest, realms(Some(9), None)));
    send(&mut stage, 1..=7);
    assert_eq!(found(&mut stage, "ann").as_deref(), Some("12345"), "no more than the configuration says");
}

#[test]
fn a_publisher_is_refused_where_a_bound_of_roles_is_met() {
    let mut stage = away(&settings(QueueFull::Refuse, realms(Some(3), None)));
    let publisher = stage.client("publisher", &Ask::clean());
    (1..=4).for_each(|id| stage.publish(&publisher, id, &message("a", b"x", QOS_1)));
    let reasons: Vec<ReasonCode> = stage.stored(&publisher).into_iter().map(|(_, reason)| reason).collect();
    assert_eq!(reasons[2..], [ReasonCode::Success, ReasonCode::QuotaExceeded]);
    assert_eq!(found(&mut stage, "bob").as_deref(), Some("xxx"), "nobody gets the message");
}

#[test]
fn other_rules_hold_for_the_next_message() {
    let settings = settings(QueueFull::DropOldest, realms(Some(3), None));
    let mut stage = away(&settings);
    send(&mut stage, 1..=4);
    settings.guard.replace(realms(Some(4), None));
    send(&mut stage, 5..=6);
    assert_eq!(found(&mut stage, "ann").as_deref(), Some("3456"));
    send(&mut stage, 1..=4);
    settings.guard.replace(realms(Some(2), None));
    assert_eq!(stage.ledger.over_limits().queues, 1, "what waits stays");
    send(&mut stage, 5..=5);
    assert_eq!(found(&mut stage, "ann").as_deref(), Some("45"));
    settings.guard.replace(realms(None, None));
    send(&mut stage, 1..=7);
    assert_eq!(found(&mut stage, "ann").as_deref(), Some("34567"));
}

#[test]
fn the_bound_holds_after_a_restart() {
    let settings = settings(QueueFull::DropNewest, realms(Some(3), None));
    let mut stage = away(&settings);
    send(&mut stage, 1..=2);
    let last = stage.last();
    let index = Arc::new(Subscriptions::new([1, 2]));
    let (given, now) = (stage.sink.records(last), stage.now);
    let ledger = Ledger::recover(settings.clone(), Arc::clone(&index), given, now);
    stage.restart(ledger, index, last);
    send(&mut stage, 3..=7);
    assert_eq!(found(&mut stage, "ann").as_deref(), Some("123"));
    assert_eq!(found(&mut stage, "bob").as_deref(), Some("12345"));
}

#[test]
fn a_session_that_another_user_resumes_has_the_bound_of_that_user() {
    let settings = settings(QueueFull::DropNewest, realms(Some(3), None));
    let mut stage = Stage::with(settings);
    let anonymous = stage.client("ann", &Ask::lasting(600));
    stage.subscribe(&anonymous, "a", at_qos(QOS_1));
    stage.leave(&anonymous, Cause::Normal);
    send(&mut stage, 1..=4);
    assert_eq!(found(&mut stage, "ann").as_deref(), Some("1234"), "by then it is the session of ann");
    send(&mut stage, 5..=9);
    assert_eq!(found(&mut stage, "ann").as_deref(), Some("567"));
}

/// A queue of roles has at most one message that is longer than its bound.
#[test]
fn an_empty_queue_has_room_for_a_message_that_is_longer_than_the_roles_allow() {
    let large = |number: u8| message("a", &[number; 1_000], QOS_1);
    let cases = [
        (QueueFull::DropNewest, Some(b'1')),
        (QueueFull::Refuse, Some(b'1')),
        (QueueFull::DropOldest, Some(b'2')),
        (QueueFull::EndSession, None),
    ];
    for (queue_full, left) in cases {
        let mut stage = away(&settings(queue_full, realms(Some(9), Some(200))));
        stage.emit(&large(b'1'));
        assert_eq!(stage.ledger.over_limits().queues, 0, "one message is not too much");
        let found_one = found(&mut stage, "ann").map(|text| text.into_bytes());
        assert_eq!(found_one, Some(vec![b'1'; 1_000]), "{queue_full:?}");
        [b'1', b'2'].into_iter().for_each(|number| stage.emit(&large(number)));
        let found_one = found(&mut stage, "ann").map(|text| text.into_bytes());
        assert_eq!(found_one, left.map(|number| vec![number; 1_000]), "{queue_full:?}");
        stage.check_account();
    }
    let small = Settings { queue_bytes_max: 500, ..settings(QueueFull::EndSession, realms(None, Some(200))) };
    let mut stage = away(&small);
    stage.emit(&large(b'1'));
    assert_eq!(found(&mut stage, "ann"), None, "the configuration has the last word");
}

/// A bound of three messages is less than a cursor would bring at once.
#[test]
fn retained_messages_fill_no_queue_with_a_bound_of_roles() {
    let mut stage = Stage::with(settings(QueueFull::EndSession, realms(Some(3), None)));
    for number in 0..50 {
        stage.emit(&retained(&format!("t/{number:02}"), number.to_string().as_bytes(), QOS_1));
    }
    let client = stage.client("c", &Ask::lasting(60).of("ann").window(1));
    stage.subscribe_to(&client, "t/#", at_qos(QOS_1), vec!["t/#".into()]);
    let (shard, connection, id) = (client.place.shard, client.place.connection, CursorId(1));
    let queue = Some(client.queue());
    stage.handle(shard, Command::Retained { connection, id, filter: "t/#".into(), queue });
    stage.handle(shard, Command::Credit { connection, id });
    let (mut found, mut is_done) = (Vec::new(), false);
    while !is_done || count(&stage.gauges().queued) + count(&stage.gauges().in_flight) > 0 {
        for (_, reply) in stage.replies() {
            match reply {
                Reply::Retained { done, .. } => {
                    is_done = done;
                    stage.handle(shard, Command::Credit { connection, id });
                }
                Reply::Deliver(deliver) => {
                    found.extend(payloads(std::slice::from_ref(&deliver)));
                    stage.acknowledge(&client, deliver.what, ReasonCode::Success);
                }
                Reply::Ended { .. } => panic!("its queue was full"),
                _ => {}
            }
        }
    }
    assert_eq!(found, (0..50).map(|number| number.to_string()).collect::<Vec<_>>());
    stage.check_account();
}
