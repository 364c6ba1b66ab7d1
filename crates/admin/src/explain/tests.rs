//! One row for each situation, with the outcome and the reason that people are told.

mod case;

use auth::Permit;

use super::*;
use Outcome::{Delivered, NotDelivered, ToGroup, Unknown, Waits};
use case::*;

/// Each row has a part of the steps.
fn check(rows: Vec<(Case<'_>, Outcome, &str, &str)>) {
    for (case, expected, reason, part) in rows {
        let (outcome, found, steps) = case.outcome();
        assert_eq!((outcome, found), (expected, reason), "{steps}");
        assert!(steps.contains(part), "{part:?} is not in: {steps}");
    }
}

#[test]
fn each_reason_is_named() {
    let own = vec![("pond/#".into(), Some(Interest::new(Qos::AtLeastOnce).with_no_local(true)))];
    let [limited, without_retain] = [
        ClientLimits { qos_max: Qos::AtMostOnce, ..LIMITS },
        ClientLimits { retain_available: false, ..LIMITS },
    ];
    check(vec![
        (subscribed("pond/#"), Delivered, "delivered", "the filter pond/# of b matches with QoS 1"),
        (subscribed("lake/#"), NotDelivered, "no_matching_filter", "one subscription, which does not match"),
        (CASE, NotDelivered, "no_matching_filter", "b has no subscriptions"),
        (subscribed("Pond/#"), NotDelivered, "no_matching_filter", "capital and small letters differ"),
        (
            Case { has_all: false, ..subscribed("lake/#") },
            Unknown,
            "too_many_subscriptions",
            "none of the 1 filters of b",
        ),
        (
            Case { are_known: [true, false], ..subscribed("#") },
            NotDelivered,
            "no_session",
            "its session has expired",
        ),
        (Case { topic: "pond/+", ..subscribed("#") }, NotDelivered, "no_topic_name", "has + or # in it"),
        (Case { topic: "", ..subscribed("#") }, NotDelivered, "no_topic_name", "is empty"),
        (Case { topic: "$SYS/x", ..subscribed("$SYS/#") }, NotDelivered, "reserved_topic", "below $SYS"),
        (Case { topic: "$share/x", ..subscribed("#") }, NotDelivered, "reserved_topic", "$share begins"),
        (Case { topic: "a/b/c/d/e", ..subscribed("#") }, NotDelivered, "too_many_levels", "has 5 levels"),
        (Case { topic: "a/b/c/d", ..subscribed("#") }, Delivered, "delivered", ""),
        (
            Case { publisher_limits: limited, ..subscribed("#") },
            NotDelivered,
            "qos_not_supported",
            "the listener of a allows at most QoS 0",
        ),
        (
            Case { publisher_limits: without_retain, ..subscribed("#") },
            Delivered,
            "delivered",
            "a message with RETAIN ends the connection",
        ),
        (Case { is_blocked: true, ..subscribed("#") }, Waits, "publisher_blocked", "a is not read now"),
        (
            Case { publisher: "b", subscriptions: own.clone(), ..CASE },
            NotDelivered,
            "no_local",
            "b is the publisher itself",
        ),
        (Case { subscriptions: own, ..CASE }, Delivered, "delivered", ""),
    ]);
}

#[test]
fn each_ban_is_named() {
    let without_session = Case { are_known: [true, false], ..subscribed("#") };
    check(vec![
        (
            Case { bans: [Some("noisy"), None], ..subscribed("#") },
            NotDelivered,
            "publisher_banned",
            "a is banned (noisy)",
        ),
        (
            Case { bans: [None, Some("noisy")], ..subscribed("#").offline() },
            Waits,
            "subscriber_banned",
            "b is banned (noisy)",
        ),
        (
            Case { bans: [None, Some("noisy")], ..subscribed("#").offline().at_qos_0() },
            NotDelivered,
            "subscriber_banned",
            "QoS 0 does not wait",
        ),
        (
            Case { bans: [None, Some("noisy")], ..without_session },
            NotDelivered,
            "subscriber_banned",
            "b has no session",
        ),
        (Case { bans: [None, Some("noisy")], ..subscribed("a") }, NotDelivered, "no_matching_filter", ""),
    ]);
}

#[test]
fn each_right_is_named() {
    use Rules::{Dynamic, List, None, Role, Tokens};
    let all = subscribed("#");
    let of = |rules| subscribed("#").under(rules);
    check(vec![
        (all, Delivered, "delivered", "a (user ann) may publish to pond/frog: there are no rules"),
        (of(List("user ann\ntopic read pond/#")), NotDelivered, "publish_not_authorized", "a (user ann)"),
        (of(List("user ann\ntopic write pond/#")), NotDelivered, "receive_not_authorized", "b (user ann)"),
        (of(List("user ann\ntopic pond/#")), Delivered, "delivered", "the rule in line 2 decides"),
        (of(List("pattern pond/%c")), NotDelivered, "publish_not_authorized", "no rule matches"),
        (of(Role(Permit::NONE)), NotDelivered, "publish_not_authorized", "no rule matches"),
        (of(Role(Permit::ALL)), Delivered, "delivered", "in role \"keeper\""),
        (
            of(Role(Permit::up_to(Qos::AtMostOnce, true))),
            NotDelivered,
            "publish_qos_not_authorized",
            "the rules allow a at most QoS 0 there",
        ),
        (
            of(Role(Permit::up_to(Qos::ExactlyOnce, false))),
            Delivered,
            "delivered",
            "the rules allow a no RETAIN there",
        ),
        (
            Case { topic: "$CONTROL/x", ..subscribed("$CONTROL/#").under(Dynamic) },
            NotDelivered,
            "control_topic",
            "the broker itself takes the message",
        ),
        (of(Dynamic), Delivered, "delivered", "the default of dynamic security decides"),
        (of(None).of_unknown_publisher(), Delivered, "delivered", "may publish: there are no rules"),
        (
            of(List("user ann\ntopic pond/#")).of_unknown_publisher(),
            Unknown,
            "publisher_not_connected",
            "the broker cannot know its user and its rights",
        ),
        (of(Tokens).of_unknown_publisher().offline(), Unknown, "publisher_not_connected", ""),
        (
            subscribed("lake/#").under(Role(Permit::ALL)).of_unknown_publisher(),
            NotDelivered,
            "no_matching_filter",
            "a is not connected and has no session",
        ),
    ]);
}

#[test]
fn each_limit_of_a_connection_is_named() {
    let with = |connection| subscribed("#").connected(connection);
    let small = |packet_bytes_max| {
        with(Connection { limits: ClientLimits { packet_bytes_max, ..LIMITS }, ..CONNECTION })
    };
    let of = |level| Connection { level, ..CONNECTION };
    check(vec![
        (with(of(Level::Slow)).at_qos_0(), NotDelivered, "slow", "QoS 0 is dropped until"),
        (granted_qos_0().connected(of(Level::Slow)), NotDelivered, "slow", "reaches b with QoS 0"),
        (with(of(Level::Slow)), Waits, "full", "the output of b is full"),
        (with(of(Level::Over)), Waits, "full", "the output of b is full"),
        (with(of(Level::Over)).at_qos_0(), Waits, "full", "the output of b is full"),
        (with(Connection { in_flight: 9, ..CONNECTION }), Delivered, "delivered", ""),
        (
            with(Connection { in_flight: 10, ..CONNECTION }),
            Waits,
            "window_full",
            "b has not acknowledged 10 messages, and at most 10 may be on their way",
        ),
        (with(Connection { in_flight: 10, ..CONNECTION }).at_qos_0(), Delivered, "delivered", ""),
        (Case { queue: LONG_QUEUE, ..subscribed("#") }, Waits, "window_full", "behind 5 others"),
        (small(1_000), Delivered, "delivered", "packets of at most 1000 bytes (Maximum Packet Size)"),
        (small(16), Delivered, "delivered", "at most 16 bytes"),
        (small(15), NotDelivered, "too_large", "the topic alone is longer"),
        (small(15).at_qos_0(), Delivered, "delivered", "at most 15 bytes"),
        (Case { mount: "pond/", ..small(15) }, Delivered, "delivered", "at most 15 bytes"),
    ]);
}

#[test]
fn each_state_of_a_queue_is_named() {
    let full = Queue { messages: 100, ..QUEUE };
    let full_of_bytes = Queue { messages: 1, bytes: 1_000_000, ..QUEUE };
    let with = |queue, queue_full| Case { queue, queue_full, ..subscribed("#") };
    let short = |memory, queue| Case { memory, queue, ..subscribed("#") };
    let short_and_ending = |memory, queue| short(memory, queue).ends_with_its_connection();
    check(vec![
        (subscribed("#").offline(), Waits, "offline", "the message waits in its queue, behind 0 others"),
        (subscribed("#").offline().at_qos_0(), NotDelivered, "offline_qos_0", "QoS 0 does not wait"),
        (granted_qos_0().offline(), NotDelivered, "offline_qos_0", "reaches b with QoS 0"),
        (
            with(full, "end-session").offline(),
            NotDelivered,
            "queue_full",
            "100 messages wait, and at most 100",
        ),
        (with(full, "end-session"), NotDelivered, "queue_full", "the next message ends the session"),
        (with(full, "refuse"), NotDelivered, "queue_full", "its publisher is told"),
        (with(full, "drop-newest"), NotDelivered, "queue_full", "the message is dropped"),
        (with(full, "drop-oldest"), Waits, "queue_full", "the oldest messages are dropped"),
        (with(full, "refuse").at_qos_0(), Delivered, "delivered", ""),
        (with(full_of_bytes, "refuse"), NotDelivered, "queue_full", "1000000 bytes of messages wait"),
        (with(full_of_bytes, "drop-oldest").offline(), Waits, "queue_full", "at most 1000000 may"),
        (
            with(full, "drop-oldest").ends_with_its_connection(),
            NotDelivered,
            "queue_full",
            "ends the session, as it ends with its connection",
        ),
        (short(Memory::ShortToKeep, QUEUE), Delivered, "delivered", ""),
        (short(Memory::ShortToKeep, QUEUE).offline(), NotDelivered, "memory_short", "nobody gets it"),
        (short(Memory::ShortToKeep, QUEUE).offline().at_qos_0(), NotDelivered, "offline_qos_0", ""),
        (short(Memory::ShortToKeep, LONG_QUEUE), NotDelivered, "memory_short", "nobody gets it"),
        (short(Memory::Full, QUEUE), NotDelivered, "memory_short", "has to wait for b"),
        (short(Memory::Full, QUEUE).at_qos_0(), Delivered, "delivered", ""),
        (short_and_ending(Memory::Full, QUEUE), Delivered, "delivered", ""),
        (short_and_ending(Memory::ShortToKeep, LONG_QUEUE), Waits, "window_full", ""),
        (
            short_and_ending(Memory::Short, Queue { messages: 5, bytes: 500, ..QUEUE }),
            Waits,
            "window_full",
            "",
        ),
        (short_and_ending(Memory::Short, LONG_QUEUE), NotDelivered, "memory_short", "its session ends"),
    ]);
}

#[test]
fn the_member_of_a_group_is_named() {
    use Choice::{ByProperty, ByPublisher, InTurn};
    let owned_by = |owner: &str| shared(2, ByPublisher(Some(owner.into())));
    let with_queue = |queue, queue_full| {
        let mut case = shared(2, InTurn);
        case.groups[0].queue = queue;
        Case { queue_full, ..case }
    };
    let full = Queue { messages: 100, ..QUEUE };
    let full_of_bytes = Queue { messages: 1, bytes: 1_000_000, ..QUEUE };
    check(vec![
        (subscribed("$share/g/pond/+"), ToGroup, "shared", "one member of the group"),
        (shared(2, InTurn), ToGroup, "shared", "take turns"),
        (shared(2, InTurn), ToGroup, "shared", "has 3 members, of which 2 are connected"),
        (shared(2, ByProperty("key".into())), ToGroup, "shared", "the User Property key"),
        (shared(2, ByPublisher(None)), ToGroup, "shared", "too large to say which"),
        (owned_by("b"), Delivered, "delivered", "b is the member that gets all messages of a"),
        (owned_by("c"), NotDelivered, "to_other_member", "c is the member that gets all messages of a"),
        (shared(1, InTurn), Delivered, "delivered", "b is the only member that is connected"),
        (shared(2, InTurn).offline(), NotDelivered, "to_other_member", "b is not connected"),
        (shared(0, InTurn).offline(), Waits, "group_offline", "no member is connected"),
        (shared(0, InTurn).offline().at_qos_0(), NotDelivered, "group_offline_qos_0", "QoS 0 does not wait"),
        (
            Case { memory: Memory::ShortToKeep, ..shared(0, InTurn).offline() },
            NotDelivered,
            "memory_short",
            "has to wait",
        ),
        (with_queue(full, "end-session"), NotDelivered, "group_queue_full", "100 messages wait"),
        (with_queue(full_of_bytes, "drop-oldest"), Waits, "group_queue_full", "1000000 bytes"),
        (with_queue(full, "refuse").at_qos_0(), ToGroup, "shared", ""),
        (
            shared(1, InTurn).connected(Connection { level: Level::Slow, ..CONNECTION }).at_qos_0(),
            NotDelivered,
            "slow",
            "",
        ),
        (
            Case { rules: Rules::List("user ann\ntopic write pond/#"), ..shared(1, InTurn) },
            NotDelivered,
            "receive_not_authorized",
            "",
        ),
        (
            Case { subscriptions: vec![plain("$share/g/pond/+"), plain("pond/#")], ..shared(2, InTurn) },
            Delivered,
            "delivered",
            "the filter pond/# of b matches",
        ),
    ]);
}

#[test]
fn the_best_of_several_groups_decides() {
    let group = |filter: &str, owner: &str| Group {
        filter: filter.into(),
        members: 2,
        connected: 2,
        choice: Choice::ByPublisher(Some(owner.into())),
        queue: QUEUE,
    };
    let case = Case {
        groups: vec![group("$share/g/#", "c"), group("$share/h/#", "b")],
        subscriptions: vec![plain("$share/g/#"), plain("$share/h/#")],
        ..CASE
    };
    check(vec![(case, Delivered, "delivered", "the group $share/h/#")]);
}

#[test]
fn the_line_of_the_rule_and_the_qos_are_named() {
    let rules = Rules::List("user ann\ntopic pond/#\n");
    let (_, _, steps) = Case { rules, qos: Qos::ExactlyOnce, ..subscribed("pond/+") }.outcome();
    assert!(steps.contains("a (user ann) may publish to pond/frog: the rule in line 2 decides"), "{steps}");
    assert!(steps.contains("the message has QoS 2, and reaches b with QoS 1"), "{steps}");
}
