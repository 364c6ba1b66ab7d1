//! The shard's side of back pressure: clients that are not read, and the events that end this.

use std::sync::Arc;

use base::{ConnectionId, Level, Now, ShardId, Subscriber};
use wire::DisconnectReason;

use crate::effects::Outside;
use crate::pressure::{Blocker, Line, Reading, Verdict};
use crate::{Effects, Mail, Shard};

impl Shard {
    /// Stops reading a publisher until what blocks it has gone. Returns whether it is stopped: what blocked it
    /// may have gone already.
    pub(crate) fn block(
        &mut self,
        id: ConnectionId,
        blocker: Blocker,
        to: &mut Outside<'_, impl Effects>,
    ) -> bool {
        self.block_in(Line::Served, id, blocker, to)
    }

    /// The same for a publisher of which nothing was read since its turn came: it goes before publishers that have been
    /// read.
    pub(crate) fn block_unread(
        &mut self,
        id: ConnectionId,
        blocker: Blocker,
        to: &mut Outside<'_, impl Effects>,
    ) -> bool {
        self.block_in(Line::Unread, id, blocker, to)
    }

    fn block_in(
        &mut self,
        line: Line,
        id: ConnectionId,
        blocker: Blocker,
        to: &mut Outside<'_, impl Effects>,
    ) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return false };
        if client.blocked.is_some() {
            return true;
        }
        if let Blocker::Subscriber { subscriber, holds_others } = &blocker
            && !subscriber.gauge.wait(self.id, *holds_others)
        {
            return false;
        }
        self.waiting.add(id, &blocker, line);
        client.blocked = Some(Box::new(blocker));
        let is_other =
            |blocker: &Blocker| matches!(blocker, Blocker::Request | Blocker::Control | Blocker::Pace);
        let is_publisher = !client.blocked.as_deref().is_some_and(is_other);
        self.counters.paused_publishers.add(u64::from(is_publisher));
        to.pause(id);
        true
    }

    /// Unblocks a publisher if that is its blocker. The publisher may stand in the line of one that has blocked it, or held its
    /// acknowledgements back, before the present one did.
    pub(crate) fn unblock_from(
        &mut self,
        id: ConnectionId,
        is_blocker: impl Fn(&Blocker) -> bool,
        to: &mut Outside<'_, impl Effects>,
    ) {
        if self.clients.get(id).is_some_and(|client| client.blocked.as_deref().is_some_and(is_blocker)) {
            self.unblock(id, to);
        }
    }

    /// Something that blocked a publisher is gone: the publisher is read again unless something else blocks it.
    pub(crate) fn unblock(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        let now = to.now;
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.blocked.take().is_none() {
            return;
        }
        client.end_pace(now);
        if client.aside().request.is_some() {
            self.block(id, Blocker::Request, to);
        } else if client.aside().controlling.is_some() {
            self.block(id, Blocker::Control, to);
        } else if client.is_paced() {
            self.block(id, Blocker::Pace, to);
            self.arm(id, now);
        } else if let Some(next) = client.route.as_ref().and_then(|route| route.blocker(self.id, to)) {
            self.block_unread(id, next, to);
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        if client.blocked.is_none() {
            client.session.touch(now);
            to.resume(id);
        }
    }

    /// A connection that does not take our answers is not asked for more questions.
    pub(crate) fn block_on_itself(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return true };
        if client.blocked.is_none() {
            client.blocked = Some(Box::new(Blocker::Itself));
            if let Some(subscriber) = client.subscriber.clone() {
                subscriber.gauge.set(Level::Over);
                self.watch(id, &subscriber, to);
            }
            to.pause(id);
        }
        false
    }

    pub(crate) fn unblock_itself(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        self.unblock_from(id, |blocker| matches!(blocker, Blocker::Itself), to);
    }

    /// A client that had published too much has got most of its answers.
    pub(crate) fn unblock_answered(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        if let Some(client) = self.clients.get(id)
            && matches!(client.blocked.as_deref(), Some(Blocker::Answers))
            && (client.ends_ms().is_some()
                || client.session.unanswered() <= usize::from(client.session.unanswered_max() / 2))
        {
            self.unblock(id, to);
        }
    }

    /// A subscriber of this shard has room, or has gone: everybody who waits for it may go on.
    pub(crate) fn open(&mut self, subscriber: &Arc<Subscriber>, to: &mut Outside<'_, impl Effects>) {
        let waiting = subscriber.gauge.release(Level::Open);
        self.tell_waiting(subscriber, waiting, to);
    }

    /// Publishers who wait look whom they could publish to meanwhile, and tell those they wait for.
    pub(crate) fn look_at_others(&mut self, now: Now) {
        let clients = &self.clients;
        self.waiting.look_at_others(now.monotonic_ms, |publisher, waited_for| {
            let route = clients.get(publisher).and_then(|client| client.route.as_ref());
            route.is_some_and(|route| route.holds_others(waited_for))
        });
    }

    /// Tells these shards, which waited for a subscriber.
    pub(crate) fn tell_waiting(
        &mut self,
        subscriber: &Arc<Subscriber>,
        waiting: impl Iterator<Item = ShardId>,
        to: &mut Outside<'_, impl Effects>,
    ) {
        for shard in waiting {
            if shard == self.id {
                self.wake_for(subscriber, to);
            } else {
                to.mail(shard, Mail::Resume(Arc::clone(subscriber)));
            }
        }
    }

    pub(crate) fn wake_for(&mut self, subscriber: &Arc<Subscriber>, to: &mut Outside<'_, impl Effects>) {
        for publisher in self.waiting.take_for_subscriber(subscriber) {
            if let Some(client) = self.clients.get_mut(publisher) {
                client.forget_held_for(subscriber);
            }
            self.release(publisher, to);
            let is_it = |blocker: &Blocker| matches!(blocker, Blocker::Subscriber { subscriber: full, .. } if Arc::ptr_eq(full, subscriber));
            self.unblock_from(publisher, is_it, to);
        }
    }

    /// A subscriber has more waiting than it should: from now on it is looked at.
    pub(crate) fn watch(
        &mut self,
        id: ConnectionId,
        subscriber: &Arc<Subscriber>,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let now = to.now;
        if let Some(reading) = self.reading(id, to) {
            self.judge.watch(id, subscriber, reading, now.monotonic_ms);
        }
    }

    /// How far a client is.
    fn reading(&self, id: ConnectionId, to: &Outside<'_, impl Effects>) -> Option<Reading> {
        let client = self.clients.get(id)?;
        Some(Reading {
            taken: to.taken_bytes(id),
            acknowledged: client.acknowledged,
            is_window_full: !client.session.has_place(),
            waiting: to.waiting_bytes(id) + client.session.waiting_bytes(),
        })
    }

    /// Tries again for whom something waits because the process was full.
    pub(crate) fn retry_stalled(&mut self, to: &mut Outside<'_, impl Effects>) {
        for id in std::mem::take(&mut self.stalled) {
            if let Some(client) = self.clients.get_mut(id) {
                client.is_stalled = false;
            }
            self.pull(id, to);
            self.continue_walks(id, to);
        }
    }

    pub(crate) fn judge(&mut self, to: &mut Outside<'_, impl Effects>) {
        let now = to.now;
        let mut judge = std::mem::take(&mut self.judge);
        let verdicts = judge.judge(now.monotonic_ms, |id| self.reading(id, to));
        self.judge = judge;
        for (id, subscriber, verdict) in verdicts {
            match verdict {
                Verdict::Open => self.open(&subscriber, to),
                Verdict::GivenUp => {
                    self.counters.ended_stuck.add(1);
                    let why = "the client takes nothing that is sent to it";
                    self.give_up(id, DisconnectReason::QuotaExceeded, why, to);
                }
                Verdict::Slow => {
                    self.counters.slow_subscribers.add(1);
                    let waiting = subscriber.gauge.release(Level::Slow);
                    self.tell_waiting(&subscriber, waiting, to);
                }
            }
        }
    }
}
