//! Findings that the judge must report, and events that it must accept.

use std::sync::atomic::Ordering;

use ledger::QueueOwner;
use wire::RetainHandling;

use super::*;
use crate::random::Random;
use crate::scenario::{Kind, Scenario};

/// A judge, and a client with a session that has subscribed to `r/#`.
struct Court {
    oracle: Oracle,
    session: SessionNo,
    topic: usize,
}

const NOW: base::Now = base::Now { monotonic_ms: 0, unix_ms: 0 };

impl Court {
    fn new() -> Self {
        let scenario = Scenario::draw(Kind::Ordinary, &mut Random::new(1));
        let mut oracle = Oracle::new(&scenario);
        oracle.started(Arc::default(), NOW);
        let session = oracle.session_began(0, true, usize::MAX);
        let filter = scenario.filters.iter().position(|filter| filter.text == "r/#").expect("audits have it");
        let topic = scenario.topics.iter().position(|topic| topic.name == "r/0").expect("it is in all runs");
        let qos = Qos::ExactlyOnce;
        let retain_handling = RetainHandling::Send;
        let wish = Wish { filter, qos, no_local: false, retain_handling, identifier: None };
        let span = oracle.subscribing(session, wish);
        oracle.subscribed(session, span, Some(qos));
        Self { oracle, session, topic }
    }

    /// The client that publishes to the topic says RETAIN 1.
    fn publish(&mut self, qos: Qos) -> MessageNo {
        self.oracle.published(self.publishing(qos))
    }

    fn publishing(&self, qos: Qos) -> Publishing {
        let (is_empty, expires) = (false, false);
        Publishing {
            publisher: 1,
            topic: self.topic,
            qos,
            retain: true,
            is_empty,
            expires,
            bytes: 10,
            link: None,
        }
    }

    fn deliver(&mut self, message: MessageNo, sender_has_ended: bool) {
        self.deliver_at(Qos::AtMostOnce, message, false, sender_has_ended);
    }

    fn deliver_at(&mut self, qos: Qos, message: MessageNo, dup: bool, sender_has_ended: bool) {
        let topic = self.oracle.topics[self.topic].clone();
        let (message, retain) = (Some(message), false);
        let delivery = Delivery { message, topic, qos, dup, retain, identifiers: Vec::new() };
        self.oracle.delivered(self.session, &delivery, sender_has_ended);
    }

    /// Two messages that are not retained. The first is acknowledged.
    fn publish_two(&mut self) -> [MessageNo; 2] {
        let publishing = Publishing { retain: false, ..self.publishing(Qos::AtLeastOnce) };
        let both = [(), ()].map(|()| self.oracle.published(publishing));
        self.oracle.acknowledged(both[0], ReasonCode::Success);
        both
    }

    /// A process sends a message and ends. The client reads the message before that, or when the next process runs.
    fn deliver_and_restart(&mut self, qos: Qos, message: MessageNo, is_read_late: bool) {
        if is_read_late {
            self.restart();
        }
        self.deliver_at(qos, message, false, is_read_late);
        if !is_read_late {
            self.restart();
        }
    }

    fn restart(&mut self) {
        self.oracle.crashed();
        self.oracle.started(Arc::default(), NOW);
    }

    /// A new subscriber has got no value of any topic.
    fn audit(&mut self) {
        let audit = self.oracle.session_began(2, false, usize::MAX);
        self.oracle.settle_retained(&[], &[audit], 0, false);
    }
}

/// Two ways lead to the session: what is published, and what its SUBSCRIBE asks for.
#[test]
fn a_message_of_qos_1_comes_once_on_each_way_beside_those_that_are_sent_again() {
    let mut court = Court::new();
    let message = court.publish(Qos::AtLeastOnce);
    for dup in [false, true, true, true, false] {
        court.deliver_at(Qos::AtLeastOnce, message, dup, false);
        assert_eq!(court.oracle.failure(), None);
    }
    court.deliver_at(Qos::AtLeastOnce, message, false, false);
    assert!(court.oracle.failure().is_some_and(|finding| finding.contains("3 times, on 2 ways")));
}

#[test]
fn an_older_message_behind_a_newer_one_is_found() {
    let mut court = Court::new();
    let (older, newer) = (court.publish(Qos::AtMostOnce), court.publish(Qos::AtMostOnce));
    court.deliver(newer, false);
    court.deliver(older, false);
    assert!(court.oracle.failure().is_some_and(|finding| finding.contains("m0") && finding.contains("m1")));
}

/// A process tells its clients of a value of QoS 0 and ends before the value is on the record. The older value is the
/// topic's again. The client reads what the first process has sent when the second one is there already.
#[test]
fn an_older_value_may_come_behind_a_newer_one_that_was_lost_with_its_process() {
    for is_read_late in [false, true] {
        let mut court = Court::new();
        let (older, newer) = (court.publish(Qos::AtMostOnce), court.publish(Qos::AtMostOnce));
        court.deliver_and_restart(Qos::AtMostOnce, newer, is_read_late);
        court.deliver(older, false);
        assert_eq!(court.oracle.failure(), None, "read late: {is_read_late}");
    }
}

/// A full queue drops its oldest message, and its client gets the newest one. Without an acknowledgement to the publisher, both
/// may be forgotten with the process, and the oldest waits again.
#[test]
fn a_message_that_was_pushed_out_may_come_behind_a_newer_one_that_was_lost_with_its_process() {
    let run = |dropped: usize, is_acknowledged: bool, is_read_late: bool| {
        let mut court = Court::new();
        let gauges = Arc::new(Gauges::default());
        gauges.dropped_oldest.store(dropped, Ordering::Relaxed);
        // Nothing comes back for a message that was dropped itself.
        gauges.dropped_newest.store(1, Ordering::Relaxed);
        court.oracle.started(gauges, NOW);
        let [older, newer] = court.publish_two();
        if is_acknowledged {
            court.oracle.acknowledged(newer, ReasonCode::Success);
        }
        court.deliver_and_restart(Qos::AtLeastOnce, newer, is_read_late);
        court.deliver_at(Qos::AtLeastOnce, older, false, false);
        court.oracle.failure().is_none()
    };
    for is_read_late in [false, true] {
        assert!(run(1, false, is_read_late), "read late: {is_read_late}");
        assert!(!run(0, false, is_read_late), "nothing was pushed out, read late: {is_read_late}");
        assert!(!run(1, true, is_read_late), "it must be kept, read late: {is_read_late}");
    }
}

/// The same if an operator has discarded the older message from this queue: an order for another queue or another topic, or in
/// another process, excuses nothing.
#[test]
fn a_message_that_was_discarded_may_come_behind_a_newer_one_that_was_lost_with_its_process() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Order {
        None,
        Own,
        OtherQueue,
        OtherTopic,
        Earlier,
        Later,
    }
    let run = |order: Order, is_acknowledged: bool, is_read_late: bool| {
        let mut court = Court::new();
        let [older, newer] = court.publish_two();
        let other_filter =
            (0..court.oracle.filters.len()).find(|filter| !court.oracle.matches[*filter][court.topic]);
        let other_filter = other_filter.map(|filter| court.oracle.filters[filter].clone());
        let discard = |court: &mut Court| {
            let client = if order == Order::OtherQueue { 2 } else { 0 };
            let filter =
                (order == Order::OtherTopic).then(|| other_filter.clone().expect("not all lead there"));
            let of = QueueOwner::Client("of this number".into());
            court.oracle.discarded(1, &of, Some(client), filter.as_deref());
        };
        if !matches!(order, Order::None | Order::Later) {
            discard(&mut court);
        }
        if order == Order::Earlier {
            court.restart();
        }
        if is_acknowledged {
            court.oracle.acknowledged(newer, ReasonCode::Success);
        }
        court.deliver_and_restart(Qos::AtLeastOnce, newer, is_read_late);
        if order == Order::Later {
            discard(&mut court);
        }
        court.deliver_at(Qos::AtLeastOnce, older, false, false);
        court.oracle.failure().is_none()
    };
    for is_read_late in [false, true] {
        assert!(run(Order::Own, false, is_read_late), "read late: {is_read_late}");
        assert!(!run(Order::Own, true, is_read_late), "it must be kept, read late: {is_read_late}");
        for order in [Order::None, Order::OtherQueue, Order::OtherTopic, Order::Later] {
            assert!(!run(order, false, is_read_late), "{order:?}, read late: {is_read_late}");
        }
    }
    // Nobody knows which process has sent a message that is read late.
    assert!(!run(Order::Earlier, false, false));
}

/// A member of a group is gone, and its broker is not told: it may give this member messages that end with its session,
/// until the client comes back. Messages that are published later must reach the others.
#[test]
fn a_group_may_lose_a_message_to_a_member_that_has_vanished_until_that_comes_back() {
    for comes_back in [false, true] {
        let mut court = Court::new();
        let oracle = &mut court.oracle;
        // Whatever has been drawn: a group, and a topic that leads to nobody else.
        let is_other = |topic: &String| !topic.starts_with("r/");
        court.topic = oracle.topics.iter().position(is_other).expect("it is in all runs");
        let leads = |filter: &usize| oracle.matches[*filter][court.topic];
        let filter = (0..oracle.filters.len()).find(leads).expect("all topics have subscribers");
        oracle.is_shared[filter] = true;
        let other = oracle.session_began(2, false, usize::MAX);
        let (qos, retain_handling) = (Qos::ExactlyOnce, RetainHandling::Send);
        let wish = Wish { filter, qos, no_local: false, retain_handling, identifier: None };
        for member in [court.session, other] {
            let span = oracle.subscribing(member, wish);
            oracle.subscribed(member, span, Some(qos));
        }
        oracle.session_ended(other);
        if comes_back {
            oracle.session_began(2, false, usize::MAX);
        }
        let message = court.oracle.published(Publishing { retain: false, ..court.publishing(qos) });
        court.oracle.acknowledged(message, ReasonCode::Success);
        court.oracle.settle(&[Standing { session: Some(court.session), link: None }], 0);
        assert_eq!(court.oracle.failure().is_some(), comes_back, "{:?}", court.oracle.failure());
    }
}

/// A new subscription gets a retained value of QoS 0 from its cursor, and not live. A value that another client sent earlier
/// may take its place first: only a value that surely came before does not excuse the loss.
#[test]
fn a_value_of_qos_0_is_not_missed_if_one_that_was_sent_earlier_may_have_replaced_it() {
    for (is_delivered_first, is_missed) in [(false, false), (true, true)] {
        let mut court = Court::new();
        let client = court.oracle.session_began(2, false, usize::MAX);
        let filter = court.oracle.sessions[court.session.0].spans[0].wish.filter;
        let (qos, retain_handling) = (Qos::AtMostOnce, RetainHandling::Send);
        let wish = Wish { filter, qos, no_local: false, retain_handling, identifier: None };
        let span = court.oracle.subscribing(client, wish);
        court.oracle.subscribed(client, span, Some(qos));
        let links = [LinkId(1), LinkId(2)];
        let earlier = court.oracle.published(Publishing { link: Some(links[0]), ..court.publishing(qos) });
        if is_delivered_first {
            court.deliver(earlier, false);
        }
        court.oracle.published(Publishing { link: Some(links[1]), ..court.publishing(qos) });
        let standing = |session, link| Standing { session: Some(session), link: Some(link) };
        let standings = [standing(court.session, links[0]), standing(client, links[1])];
        court.session = client;
        court.deliver(earlier, false);
        court.oracle.settle(&standings, 0);
        assert_eq!(court.oracle.failure().is_some(), is_missed, "{:?}", court.oracle.failure());
    }
}

#[test]
fn a_value_that_was_acknowledged_and_is_gone_is_found() {
    let mut court = Court::new();
    let value = court.publish(Qos::AtLeastOnce);
    court.oracle.acknowledged(value, ReasonCode::Success);
    court.publish(Qos::AtMostOnce);
    court.audit();
    assert!(court.oracle.failure().is_some_and(|finding| finding.contains("is nothing, although m0")));
}

/// A newer value of QoS 0 for which there is no memory clears its topic, because the older value is out of date.
#[test]
fn a_value_that_another_one_has_cleared_for_want_of_memory_may_be_gone() {
    for is_restarted in [false, true] {
        let mut court = Court::new();
        let value = court.publish(Qos::AtLeastOnce);
        court.oracle.acknowledged(value, ReasonCode::Success);
        court.publish(Qos::AtMostOnce);
        let gauges = Arc::<Gauges>::default();
        gauges.retained_refused.store(1, std::sync::atomic::Ordering::Relaxed);
        court.oracle.started(gauges, NOW);
        if is_restarted {
            court.restart();
        }
        court.audit();
        assert_eq!(court.oracle.failure(), None, "restarted: {is_restarted}");
    }
}

fn terms(receive_max: u16, expiry_secs_max: u32) -> Terms {
    Terms {
        receive_max,
        packet_bytes_max: 1_000,
        topic_alias_max: 0,
        expiry_secs_max,
        inflight_max_3: 1,
        queue_full: ledger::QueueFull::DropOldest,
        ends_sessions: false,
        retained_bytes_max: 1_000,
    }
}

fn told(receive_max: u16, expiry_secs: u32) -> Told {
    Told { receive_max, packet_bytes_max: 1_000, topic_alias_max: 0, expiry_secs }
}

/// A judge of a run with reloads, and a client with a session for ever.
fn judge_of_reloads(terms: Terms) -> (Oracle, usize) {
    let scenario = (1..).map(|seed| Scenario::draw(Kind::Reload, &mut Random::new(seed)));
    let for_ever = |scenario: &Scenario| {
        scenario
            .clients
            .iter()
            .position(|profile| profile.expiry_secs == u32::MAX && !scenario.ends_sessions())
    };
    let (scenario, client) = scenario
        .filter_map(|scenario| for_ever(&scenario).map(|client| (scenario, client)))
        .next()
        .expect("one");
    let mut oracle = Oracle::new(&scenario);
    oracle.configured(terms);
    oracle.started(Arc::default(), NOW);
    (oracle, client)
}

fn arrival(number: u16, is_proved: bool) -> Arrival {
    Arrival { number, shard: 0, is_proved, allow_anonymous: true }
}

#[test]
fn a_connection_that_an_operator_ends_has_to_be_one_that_was_to_leave() {
    use turn::Dismissal::{Everybody, Strangers, Unproved};
    for (number, whom, is_proved, is_in, may_end) in [
        (1, Everybody, true, true, true),
        (2, Everybody, true, true, false),
        (1, Strangers, true, true, false),
        (1, Strangers, false, true, true),
        (1, Strangers, true, false, true),
        (1, Unproved, true, true, false),
        (1, Unproved, false, false, true),
    ] {
        let (mut oracle, client) = judge_of_reloads(terms(1, u32::MAX));
        let link = LinkId(7);
        oracle.arrived(link, arrival(number, is_proved));
        if is_in {
            oracle.broker_connected(client, link, NOW);
        }
        oracle.dismissing(1, whom);
        oracle.broker_disconnected(client, link, ReasonCode::AdministrativeAction, "", NOW);
        assert_eq!(oracle.failure().is_none(), may_end, "{whom:?}: {:?}", oracle.failure());
    }
}

#[test]
fn a_client_is_told_limits_that_were_in_force_when_it_came() {
    for (says, is_new, is_right) in [(1, false, true), (2, false, true), (3, false, false), (1, true, false)]
    {
        let (mut oracle, client) = judge_of_reloads(terms(1, u32::MAX));
        let reload = oracle.configured(terms(2, u32::MAX));
        let link = LinkId(7);
        if !is_new {
            oracle.arrived(link, arrival(1, true));
        }
        oracle.shard_reloaded(0, reload);
        if is_new {
            oracle.arrived(link, arrival(1, true));
        }
        oracle.broker_connected(client, link, NOW);
        oracle.told_limits(client, link, u32::MAX, told(says, u32::MAX));
        assert_eq!(oracle.failure().is_none(), is_right, "{says}: {:?}", oracle.failure());
    }
}

/// The configuration says three seconds by the time the client goes, and its CONNACK has said something else.
#[test]
fn a_session_is_kept_as_long_as_its_client_was_told() {
    for (granted_secs, may_be_lost) in [(3, true), (3_600, false)] {
        let (mut oracle, client) = judge_of_reloads(terms(1, granted_secs));
        oracle.arrived(LinkId(7), arrival(1, true));
        oracle.broker_connected(client, LinkId(7), NOW);
        oracle.heard_of_session(client, Some(granted_secs));
        let reload = oracle.configured(terms(1, 3));
        oracle.shard_reloaded(0, reload);
        oracle.broker_disconnected(client, LinkId(7), ReasonCode::UnspecifiedError, "", NOW);
        let later = base::Now { monotonic_ms: NOW.monotonic_ms + 4_000, ..NOW };
        oracle.arrived(LinkId(8), arrival(1, true));
        oracle.broker_connected(client, LinkId(8), later);
        oracle.session_lost(client);
        assert_eq!(oracle.failure().is_none(), may_be_lost, "{granted_secs}: {:?}", oracle.failure());
    }
}

#[test]
fn the_ledger_keeps_to_the_limits_that_it_has() {
    use std::sync::atomic::Ordering::Relaxed;
    for (is_reloaded, is_right) in [(false, false), (true, true)] {
        let (mut oracle, _) = judge_of_reloads(Terms { retained_bytes_max: 10, ..terms(1, u32::MAX) });
        let gauges = Arc::<Gauges>::default();
        oracle.started(Arc::clone(&gauges), NOW);
        let reload = oracle.configured(terms(1, u32::MAX));
        if is_reloaded {
            oracle.ledger_reloaded(reload);
        }
        gauges.retained_bytes.store(20, Relaxed);
        oracle.check_limits_in_force();
        assert_eq!(oracle.failure().is_none(), is_right, "{:?}", oracle.failure());
        let (mut oracle, _) = judge_of_reloads(terms(1, u32::MAX));
        oracle.started(Arc::clone(&gauges), NOW);
        gauges.ended_by_full_queue.store(1, Relaxed);
        oracle.check_limits_in_force();
        assert!(oracle.failure().is_some(), "no session may end, and one has ended");
        gauges.ended_by_full_queue.store(0, Relaxed);
    }
}

/// The order means messages of one queue and one filter that were published before it.
#[test]
fn a_message_that_no_order_of_an_operator_means_is_found() {
    let (own, other) = (QueueOwner::Client("own".into()), QueueOwner::Client("other".into()));
    let cases = [
        (&own, 0, Some("r/#"), true, false),
        (&own, 0, None, true, false),
        (&other, 1, None, true, true),
        (&own, 0, Some("r/#"), false, true),
    ];
    for (of, client, filter, is_before, is_found) in cases {
        let mut court = Court::new();
        if !is_before {
            court.oracle.discarded(1, of, Some(client), filter);
        }
        let message =
            court.oracle.published(Publishing { retain: false, ..court.publishing(Qos::AtLeastOnce) });
        court.oracle.acknowledged(message, ReasonCode::Success);
        // A later part of an order means no more than the first one.
        court.oracle.discarded(1, of, Some(client), filter);
        court.oracle.discarded_before = 1;
        court.oracle.settle(&[Standing { session: Some(court.session), link: None }], 0);
        let failure = court.oracle.failure();
        assert_eq!(failure.is_some(), is_found, "{of:?} {filter:?} {is_before}: {failure:?}");
    }
}

/// A message that was due to one client is moved to another one, which gets it never, once or twice.
#[test]
fn a_moved_message_comes_to_somebody_and_comes_once() {
    let (own, other) = (QueueOwner::Client("own".into()), QueueOwner::Client("other".into()));
    for (is_ordered, times, is_found) in
        [(true, 0, true), (true, 1, false), (true, 2, true), (false, 1, true), (false, 0, true)]
    {
        let mut court = Court::new();
        let receiver = court.oracle.session_began(1, true, usize::MAX);
        let message =
            court.oracle.published(Publishing { retain: false, ..court.publishing(Qos::ExactlyOnce) });
        court.oracle.acknowledged(message, ReasonCode::Success);
        if is_ordered {
            court.oracle.ordered_move(1, [(&own, Some(0)), (&other, Some(1))], Some("r/#"));
            court.oracle.moved(1);
        }
        let due = std::mem::replace(&mut court.session, receiver);
        (0..times).for_each(|_| court.deliver_at(Qos::ExactlyOnce, message, false, false));
        let standings = [due, receiver].map(|session| Standing { session: Some(session), link: None });
        court.oracle.settle(&standings, 0);
        let failure = court.oracle.failure();
        assert_eq!(failure.is_some(), is_found, "{is_ordered}, {times} times: {failure:?}");
    }
}

/// An order means messages that were published before it was carried out.
#[test]
fn a_message_that_is_younger_than_a_move_belongs_where_it_was_due() {
    let (own, other) = (QueueOwner::Client("own".into()), QueueOwner::Client("other".into()));
    let mut court = Court::new();
    court.session = court.oracle.session_began(1, true, usize::MAX);
    court.oracle.ordered_move(1, [(&own, Some(0)), (&other, Some(1))], None);
    court.oracle.moved(1);
    let message = court.publish(Qos::AtLeastOnce);
    court.deliver_at(Qos::AtLeastOnce, message, false, false);
    assert!(court.oracle.failure().is_some_and(|finding| finding.contains("has not subscribed to")));
}
