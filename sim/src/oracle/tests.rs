//! What the judge must find, and what it must let pass.

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
        if is_read_late {
            court.restart();
            court.deliver(newer, true);
        } else {
            court.deliver(newer, false);
            court.restart();
        }
        court.deliver(older, false);
        assert_eq!(court.oracle.failure(), None, "read late: {is_read_late}");
    }
}

/// A member of a group is gone, and its broker is not told: it may give that member messages that end with its session, until
/// the client comes back. What is published later is owed to the others.
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
