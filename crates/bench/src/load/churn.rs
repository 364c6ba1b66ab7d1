//! Other people's subscriptions, which come and go while a load runs.

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use wire::{Packet, PacketId, Qos, Role, UnsubAckReason, Version};

use crate::error::{Error, Result};
use crate::exchange::packet_id;
use crate::protocol::{packet_in, subscribe, unsubscribe};

/// Requests that may be unanswered at a time: a server that is so far behind gets no more until it answers. Fewer
/// than there are packet ids.
const UNANSWERED_MAX: usize = 256;

/// Share of the rate that was asked for below which the churn fell short.
const ENOUGH: f64 = 0.99;

/// Rate and topics of changing subscriptions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChurnPlan {
    /// Subscribed to and unsubscribed from in a second, each once.
    pub(crate) topics_per_sec: NonZeroU32,
    pub(crate) place: ChurnPlace,
}

/// Which topics come and go. Nobody publishes to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChurnPlace {
    /// churn/0, churn/1, …: they share no level with the topics of the test
    Apart,
    /// loadtest/churn/0, …: they share the first level with the topics of the test
    Beside,
}

/// One connection that subscribes to a topic after another, and half of the time that one takes later unsubscribes
/// from it again: requests leave at even distances, whatever the answers do.
#[derive(Debug)]
pub(crate) struct Churn {
    plan: ChurnPlan,
    version: Version,
    /// When the first request was sent.
    started: Option<Instant>,
    /// From then until requests were last asked for.
    elapsed: Duration,
    /// Number of sent requests.
    sent: u64,
    unanswered: VecDeque<Request>,
}

/// The requests of one churn, numbered from 0: two for each topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    number: u64,
}

/// Result of a churn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Churned {
    /// Planned number of topics per second to subscribe to and unsubscribe from.
    pub(crate) planned_per_sec: u32,
    /// Actual number of topics per second.
    pub(crate) per_sec: f64,
}

impl ChurnPlan {
    fn topic(self, number: u64) -> String {
        match self.place {
            ChurnPlace::Apart => format!("churn/{number}"),
            ChurnPlace::Beside => format!("loadtest/churn/{number}"),
        }
    }

    /// When a request is due, from the first one on.
    fn due(self, request: Request) -> Duration {
        let requests_per_sec = 2 * u64::from(self.topics_per_sec.get());
        let nanos = |number: u64| number * 1_000_000_000 / requests_per_sec;
        Duration::from_secs(request.number / requests_per_sec)
            + Duration::from_nanos(nanos(request.number % requests_per_sec))
    }
}

impl fmt::Display for ChurnPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            ChurnPlace::Apart => "other topics",
            ChurnPlace::Beside => "topics beside them",
        };
        write!(f, "{} × SUBSCRIBE and UNSUBSCRIBE per second on {place}", self.topics_per_sec)
    }
}

impl Request {
    fn is_subscribe(self) -> bool {
        self.number.is_multiple_of(2)
    }

    fn packet_id(self) -> PacketId {
        packet_id(self.number)
    }

    fn packet(self, plan: ChurnPlan, version: Version) -> Vec<u8> {
        let (packet_id, topic) = (self.packet_id(), plan.topic(self.number / 2));
        if self.is_subscribe() {
            subscribe(packet_id, &topic, Qos::AtMostOnce, version)
        } else {
            unsubscribe(packet_id, &topic, version)
        }
    }

    fn is_answered_by(self, packet: &Packet<'_>) -> bool {
        match packet {
            Packet::SubAck(answer) => {
                self.is_subscribe()
                    && answer.packet_id == self.packet_id()
                    && answer.reasons.iter().all(|reason| !reason.is_error())
            }
            Packet::UnsubAck(answer) => {
                let is_success = answer
                    .reasons
                    .is_none_or(|all| all.iter().all(|reason| reason == UnsubAckReason::Success));
                !self.is_subscribe() && answer.packet_id == self.packet_id() && is_success
            }
            _ => false,
        }
    }
}

impl Churn {
    pub(crate) fn new(plan: ChurnPlan, version: Version) -> Self {
        Self { plan, version, started: None, elapsed: Duration::ZERO, sent: 0, unanswered: VecDeque::new() }
    }

    /// The next request, if it is due: to be sent in a write of its own. The first call starts the clock.
    pub(crate) fn next_packet(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.elapsed = now.saturating_duration_since(*self.started.get_or_insert(now));
        let request = Request { number: self.sent };
        if self.unanswered.len() >= UNANSWERED_MAX || self.plan.due(request) > self.elapsed {
            return None;
        }
        self.sent += 1;
        self.unanswered.push_back(request);
        Some(request.packet(self.plan, self.version))
    }

    /// Time from the latest [`Self::next_packet`] until there is another; `None` if an answer has to come first.
    pub(crate) fn until_next(&self) -> Option<Duration> {
        let due = self.plan.due(Request { number: self.sent });
        (self.unanswered.len() < UNANSWERED_MAX).then(|| due.saturating_sub(self.elapsed))
    }

    /// Notes an answer.
    ///
    /// # Errors
    /// If it is none, or one that refuses.
    pub(crate) fn handle_packet(&mut self, packet: &[u8]) -> Result<()> {
        let packet = packet_in(packet, Some(self.version), Role::Server)?;
        let answered = self.unanswered.iter().position(|request| request.is_answered_by(&packet));
        let wrong = || Error::Server(format!("answered {packet} while topics came and went"));
        self.unanswered.remove(answered.ok_or_else(wrong)?);
        Ok(())
    }

    /// Whether every request has been answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.unanswered.is_empty()
    }

    /// The account, once no more requests are sent.
    pub(crate) fn outcome(&self) -> Churned {
        let per_sec = self.sent as f64 / 2.0 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
        let planned_per_sec = self.plan.topics_per_sec.get();
        // Requests at the very beginning and the very end make a short run look faster than planned.
        Churned { planned_per_sec, per_sec: per_sec.min(planned_per_sec.into()) }
    }
}

impl Churned {
    pub(crate) fn fell_short(self) -> bool {
        self.per_sec < ENOUGH * f64::from(self.planned_per_sec)
    }
}

#[cfg(test)]
mod tests {
    use wire::{AckProperties, OneOrMore, SubAck, SubAckReason, UnsubAck};

    use super::*;
    use crate::protocol::to_bytes;

    const V5: Version = Version::V5;

    fn churn(topics_per_sec: u32, place: ChurnPlace) -> Churn {
        let topics_per_sec = NonZeroU32::new(topics_per_sec).unwrap();
        Churn::new(ChurnPlan { topics_per_sec, place }, V5)
    }

    /// The requests that are due after `millis` milliseconds, as a trace would print them.
    fn due(churn: &mut Churn, started: Instant, millis: u64) -> Vec<String> {
        let now = started + Duration::from_millis(millis);
        let packets = std::iter::from_fn(|| churn.next_packet(now));
        packets.map(|bytes| packet_in(&bytes, Some(V5), Role::Client).unwrap().to_string()).collect()
    }

    fn suback(id: u16, reason: SubAckReason) -> Vec<u8> {
        let packet_id = PacketId::new(id).unwrap();
        to_bytes(SubAck { packet_id, properties: AckProperties::EMPTY, reasons: OneOrMore::one(&reason) }, V5)
    }

    fn unsuback(id: u16, reason: UnsubAckReason) -> Vec<u8> {
        let (packet_id, reasons) = (PacketId::new(id).unwrap(), Some(OneOrMore::one(&reason)));
        to_bytes(UnsubAck { packet_id, properties: AckProperties::EMPTY, reasons }, V5)
    }

    #[test]
    fn each_topic_is_subscribed_to_and_half_an_interval_later_unsubscribed_from() {
        let (mut churn, started) = (churn(10, ChurnPlace::Apart), Instant::now());
        let requests: Vec<_> = [0, 49, 50, 99, 100].map(|at| due(&mut churn, started, at)).concat();
        let texts =
            ["SUBSCRIBE id=1 \"churn/0\"", "UNSUBSCRIBE id=2 \"churn/0\"", "SUBSCRIBE id=3 \"churn/1\""];
        assert_eq!(requests.len(), texts.len(), "{requests:?}");
        assert!(requests.iter().zip(texts).all(|(request, text)| request.starts_with(text)), "{requests:?}");
        assert_eq!(churn.until_next(), Some(Duration::from_millis(50)));
    }

    #[test]
    fn topics_may_share_the_first_level_with_the_load() {
        let requests = due(&mut churn(1, ChurnPlace::Beside), Instant::now(), 0);
        assert!(requests[0].contains("\"loadtest/churn/0\""), "{requests:?}");
    }

    #[test]
    fn answers_may_come_in_any_order() {
        let (mut churn, started) = (churn(10, ChurnPlace::Apart), Instant::now());
        due(&mut churn, started, 0);
        assert_eq!(due(&mut churn, started, 50).len(), 1);
        churn.handle_packet(&unsuback(2, UnsubAckReason::Success)).unwrap();
        assert!(!churn.is_answered());
        churn.handle_packet(&suback(1, SubAckReason::GrantedQos0)).unwrap();
        assert!(churn.is_answered());
    }

    #[test]
    fn an_answer_that_refuses_or_that_nobody_asked_for_is_an_error() {
        let wrong = [
            suback(1, SubAckReason::QuotaExceeded),
            suback(2, SubAckReason::GrantedQos0),
            unsuback(1, UnsubAckReason::Success),
            unsuback(2, UnsubAckReason::NoSubscriptionExisted),
            vec![0xD0, 0],
        ];
        for answer in wrong {
            let (mut churn, started) = (churn(10, ChurnPlace::Apart), Instant::now());
            due(&mut churn, started, 0);
            due(&mut churn, started, 50);
            assert!(churn.handle_packet(&answer).is_err(), "{answer:?}");
        }
    }

    #[test]
    fn a_server_that_is_behind_gets_no_more_and_the_rate_falls_short() {
        let (mut churn, started) = (churn(1_000, ChurnPlace::Apart), Instant::now());
        due(&mut churn, started, 0);
        assert_eq!(due(&mut churn, started, 1_000).len(), UNANSWERED_MAX - 1);
        assert_eq!(churn.until_next(), None);
        assert_eq!(churn.outcome(), Churned { planned_per_sec: 1_000, per_sec: 128.0 });
        assert!(churn.outcome().fell_short());
    }

    #[test]
    fn requests_that_were_sent_in_time_are_the_rate_that_was_planned() {
        let (mut churn, started) = (churn(100, ChurnPlace::Apart), Instant::now());
        due(&mut churn, started, 0);
        due(&mut churn, started, 1_000);
        assert_eq!(churn.outcome(), Churned { planned_per_sec: 100, per_sec: 100.0 });
        assert!(!churn.outcome().fell_short());
    }
}
