//! Wills whose time has come (MQTT 5.0, 3.1.2.5).

use std::sync::Arc;

use auth::Action;
use base::{Level, Message, Now, Subscriber};
use index::{Target, Targets};
use wire::{Qos, ReasonCode};

use crate::gauges::add;
use crate::publishing::Publishing;
use crate::publishing::publish::Routing;
use crate::record::{Effects, MessageId, RETRY_MS, Record};
use crate::sessions::wills::DueWill;

/// The longest time for which a will waits for a receiver whose output is over its mark, in milliseconds.
const HELD_MS_MAX: u64 = 10_000;
/// Wills that wait for receivers take at most this part of the memory limit.
const HELD_PART: usize = 16;
/// Number of receivers whose look-up costs as much as one unit of work.
const EXAMINED_PER_UNIT: usize = 8;

impl Publishing<'_> {
    /// Publishes at most `units` of the wills that are due, while the shards have room. Of the wills that found no space, one
    /// is tried again every [`RETRY_MS`], and all of them when that one finds space. When nothing can be recorded any more,
    /// only wills that need no record are published.
    pub(crate) fn fire_wills(&mut self, units: &mut usize, now: Now, to: &mut impl Effects) {
        if self.sessions.wills.again_ms.is_some_and(|again_ms| again_ms <= now.monotonic_ms) {
            // One will finds out for all whether there is space again.
            self.sessions.wills.again_ms =
                (self.sessions.wills.refused.len() > 1).then_some(now.monotonic_ms + RETRY_MS);
            self.sessions.wills.due.extend(self.sessions.wills.refused.pop_front());
        }
        while *units > 0
            && to.has_room()
            && let Some((will, full)) = self.sessions.wills.held.next(now)
        {
            *units -= 1;
            if full.gauge.level() == Level::Over && self.may_hold(&will, now) {
                self.sessions.wills.held.push(will, full, now);
            } else {
                *units = units.saturating_sub(self.fire_will(will, now, to) / EXAMINED_PER_UNIT);
            }
        }
        while *units > 0
            && to.has_room()
            && let Some(will) = self.sessions.wills.due.pop_front()
        {
            *units -= 1;
            *units = units.saturating_sub(self.fire_will(will, now, to) / EXAMINED_PER_UNIT);
        }
    }

    /// Publishes a will, unless it has to wait. Returns the number of subscriptions that were examined for it.
    fn fire_will(&mut self, will: DueWill, now: Now, to: &mut impl Effects) -> usize {
        if !self.settings.may_publish(&will.principal, &will.message) {
            add(&self.gauges.wills_denied, 1);
            self.give_up_will(will.id, to);
            return 0;
        }
        let message = Arc::clone(&will.message).published_at(now);
        let mut targets = self.look_up(&message);
        let examined = targets.examined;
        if let Some(full) = full_receiver(&targets, message.qos()) {
            if self.may_hold(&will, now) {
                self.sessions.wills.held.push(will, full, now);
                return examined;
            }
            add(&self.gauges.wills_dropped, leave_out_full_receivers(&mut targets, message.qos()));
        }
        let routing =
            Routing { message: &message, targets: &targets, publisher: None, opens: None, will: will.id };
        match self.route(&routing, to) {
            Ok(_) => {
                if let Some(will) = will.id {
                    self.sessions.wills.recorded.remove(&will);
                }
                if will.was_refused {
                    self.sessions.wills.again_ms = None;
                    self.sessions.wills.due.append(&mut self.sessions.wills.refused);
                }
                add(&self.gauges.wills_published, 1);
            }
            // It stays recorded, and is published after the restart.
            Err(_) if self.replies.is_poisoned() => {}
            // For too many queues: it can never be published.
            Err(ReasonCode::ImplementationSpecificError) => self.give_up_will(will.id, to),
            Err(_) => {
                self.sessions.wills.refused.push_back(DueWill { was_refused: true, ..will });
                self.sessions.wills.again_ms.get_or_insert(now.monotonic_ms + RETRY_MS);
            }
        }
        examined
    }

    /// Looks up the receivers of a message, by the current subscriptions and rules.
    pub(crate) fn look_up(&self, message: &Message) -> Targets {
        let (topic, rules) = (message.topic(), self.settings.rules());
        let reads = |session: &Subscriber| {
            rules.as_ref().is_none_or(|rules| rules.allow(session, topic, Action::Receive))
        };
        Targets::look_up_that(&self.lines.index, topic, message.publisher(), reads)
    }

    /// Whether a will may wait for a receiver whose output is over its mark.
    fn may_hold(&self, will: &DueWill, now: Now) -> bool {
        let budget = &self.bodies.budget;
        let held_ms = will.held_from_ms.map_or(0, |from_ms| now.monotonic_ms - from_ms);
        let bytes = self.sessions.wills.held.bytes + will.message.size_bytes();
        held_ms < HELD_MS_MAX && bytes <= budget.limit_bytes() / HELD_PART && !budget.is_tight()
    }

    /// A will is over without having been published. If that cannot be recorded, the next process tries it again.
    fn give_up_will(&mut self, will: Option<MessageId>, to: &mut impl Effects) {
        if let Some(will) = will
            && self.replies.commit(&[Record::WillDone { will }], to).is_ok()
        {
            self.sessions.wills.recorded.remove(&will);
        }
    }
}

/// Whether a receiver gets a message of this QoS at QoS 0, and its output is over its mark. Its shard drops the message if
/// the receiver is slow.
fn is_full(target: &Target, qos: Qos) -> bool {
    qos.min(target.qos) == Qos::AtMostOnce && target.subscriber.gauge.level() == Level::Over
}

fn full_receiver(targets: &Targets, qos: Qos) -> Option<Arc<Subscriber>> {
    let mut receivers = targets.shards.iter().flat_map(|(_, receivers)| receivers.iter());
    receivers.find(|target| is_full(target, qos)).map(|target| Arc::clone(&target.subscriber))
}

/// Returns the number of receivers that were left out.
fn leave_out_full_receivers(targets: &mut Targets, qos: Qos) -> usize {
    let before = targets.count;
    for (_, receivers) in &mut targets.shards {
        *receivers = receivers.iter().filter(|target| !is_full(target, qos)).cloned().collect();
    }
    targets.shards.retain(|(_, receivers)| !receivers.is_empty());
    targets.count = targets.shards.iter().map(|(_, receivers)| receivers.len()).sum();
    before - targets.count
}
