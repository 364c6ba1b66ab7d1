//! Reloads may change the limits of clients that come afterwards, and which connections end.

use std::collections::{BTreeMap, BTreeSet};

use ledger::QueueFull;
use turn::Dismissal;

use super::Oracle;
use crate::network::{LinkId, Network};

/// The part of a configuration that can be seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms {
    pub(crate) receive_max: u16,
    pub(crate) packet_bytes_max: u32,
    pub(crate) topic_alias_max: u16,
    pub(crate) expiry_secs_max: u32,
    pub(crate) inflight_max_3: u16,
    pub(crate) queue_full: QueueFull,
    /// A queue may become full.
    pub(crate) ends_sessions: bool,
    pub(crate) retained_bytes_max: usize,
}

/// The limits in a CONNACK of MQTT 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) receive_max: u16,
    pub(crate) packet_bytes_max: u32,
    pub(crate) topic_alias_max: u16,
    /// The lifetime of the session, also if the client gets what it has asked for.
    pub(crate) expiry_secs: u32,
}

/// A connection that a listener has accepted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// The number of the listener.
    pub(crate) number: u16,
    pub(crate) shard: usize,
    /// The client has a user and knows the password.
    pub(crate) is_proved: bool,
    /// The listener lets in clients without a user.
    pub(crate) allow_anonymous: bool,
}

/// Configurations of a run with reloads, and what they mean for each connection.
#[derive(Debug, Default)]
pub(super) struct Reloads {
    /// All valid ones, in their order.
    terms: Vec<Terms>,
    /// The place of the one that is in force on each shard, and in the ledger.
    shards: Vec<usize>,
    ledger: usize,
    /// In this process one was in force that ends sessions.
    has_ended_sessions: bool,
    /// With the places of the first and the last one that may have counted for its CONNECT.
    arrivals: BTreeMap<LinkId, (Arrival, usize, usize)>,
    /// Numbers of listeners whose connections are to leave.
    dismissed: BTreeMap<u16, Vec<Dismissal>>,
    /// Connections that were ended for that.
    ended: BTreeSet<LinkId>,
    /// Connections that were ended for any reason, as the log says.
    over: BTreeSet<LinkId>,
    /// How many of them this process has ended.
    ended_now: u64,
    before: Counts,
}

/// Numbers of the ledger at the last look.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    sessions_ended: usize,
    dropped_oldest: usize,
    dropped_newest: usize,
    retained_bytes: usize,
}

impl Reloads {
    /// The configurations that may have counted for the CONNECT of a connection.
    fn of_link(&self, link: LinkId) -> Option<&[Terms]> {
        let (_, first, last) = self.arrivals.get(&link)?;
        self.terms.get(*first..=*last)
    }

    /// Whether a connection may be ended by a reload.
    fn may_leave(&self, link: LinkId, is_in: bool) -> bool {
        self.was_told(link, |whom, is_proved| match whom {
            Dismissal::Everybody => true,
            Dismissal::Strangers => !is_in || !is_proved,
            // All names are proved in a run.
            Dismissal::Unproved => !is_in,
        })
    }

    /// Whether a connection cannot stay, however far its client has come.
    fn has_to_leave(&self, link: LinkId) -> bool {
        self.was_told(link, |whom, is_proved| match whom {
            Dismissal::Everybody => true,
            Dismissal::Strangers => !is_proved,
            Dismissal::Unproved => false,
        })
    }

    fn was_told(&self, link: LinkId, is_meant: impl Fn(Dismissal, bool) -> bool) -> bool {
        let Some((Arrival { number, is_proved, .. }, ..)) = self.arrivals.get(&link) else { return false };
        self.dismissed.get(number).is_some_and(|all| all.iter().any(|whom| is_meant(*whom, *is_proved)))
    }
}

/// Steps of the operator, and the answers of the broker.
impl Oracle {
    /// There is another valid configuration. Returns its number.
    pub(crate) fn configured(&mut self, terms: Terms) -> u64 {
        if terms.ends_sessions {
            self.presence.ends_sessions(true, self.tick);
        }
        self.reloads.terms.push(terms);
        self.reloads.terms.len() as u64 - 1
    }

    /// A process begins with the last valid configuration.
    pub(super) fn begin_with_last(&mut self, shards: usize) {
        let reloads = &mut self.reloads;
        let last = reloads.terms.len().saturating_sub(1);
        reloads.shards = vec![last; shards];
        reloads.ledger = last;
        reloads.has_ended_sessions = false;
        reloads.dismissed.clear();
        reloads.ended_now = 0;
        self.reloads.before = self.counts();
        self.tell_of_full_queues();
    }

    /// Limits are in force on a shard.
    pub(crate) fn shard_reloaded(&mut self, shard: usize, reload: u64) {
        self.reloads.shards[shard] = usize::try_from(reload).expect("it is the number of a configuration");
    }

    /// Limits are in force in the ledger.
    pub(crate) fn ledger_reloaded(&mut self, reload: u64) {
        self.reloads.ledger = usize::try_from(reload).expect("it is the number of a configuration");
        self.tell_of_full_queues();
    }

    fn tell_of_full_queues(&mut self) {
        let Reloads { terms, ledger, has_ended_sessions, .. } = &mut self.reloads;
        *has_ended_sessions |= terms.get(*ledger).is_some_and(|terms| terms.ends_sessions);
        if let Some(coming) = terms.get(*ledger..).filter(|coming| !coming.is_empty()) {
            let may_end = coming.iter().any(|terms| terms.ends_sessions);
            self.presence.ends_sessions(may_end, self.tick);
        }
    }

    /// A listener has accepted a connection, which a shard gets.
    pub(crate) fn arrived(&mut self, link: LinkId, arrival: Arrival) {
        let now = self.reloads.shards[arrival.shard];
        self.reloads.arrivals.insert(link, (arrival, now, now));
    }

    /// Connections with this number, under which no more come, are to leave.
    pub(crate) fn dismissing(&mut self, number: u16, whom: Dismissal) {
        self.reloads.dismissed.entry(number).or_default().push(whom);
    }

    /// A number is given to a listener again.
    pub(crate) fn numbered(&mut self, number: u16) {
        self.reloads.dismissed.remove(&number);
    }
}

/// Reports of clients, and lines of the log.
impl Oracle {
    /// The client of a connection is let in. Returns the shortest lifetime that the broker may have given its session.
    pub(super) fn let_in(&mut self, client: usize, link: LinkId, asked_secs: u32) -> u32 {
        let reloads = &mut self.reloads;
        let Some((arrival, _, last)) = reloads.arrivals.get_mut(&link) else { return asked_secs };
        *last = reloads.shards[arrival.shard];
        if !arrival.is_proved && !arrival.allow_anonymous {
            self.fail(format!("c{client} is let in on {link:?}, where nobody may be anonymous"));
        }
        let terms = self.reloads.of_link(link).unwrap_or_default();
        terms.iter().map(|terms| terms.expiry_secs_max.min(asked_secs)).min().unwrap_or(asked_secs)
    }

    /// Whether the client of a connection may be refused because it is anonymous.
    pub(super) fn may_be_stranger(&self, link: LinkId) -> bool {
        let arrival = self.reloads.arrivals.get(&link);
        arrival.is_some_and(|(arrival, ..)| !arrival.is_proved && !arrival.allow_anonymous)
    }

    /// The log says that a connection is over.
    pub(super) fn is_over(&mut self, link: LinkId) {
        self.reloads.over.insert(link);
    }

    /// A connection is ended by an operator.
    pub(super) fn ended_by_operator(&mut self, client: usize, link: LinkId, is_in: bool) {
        if !self.reloads.may_leave(link, is_in) {
            let arrival = self.reloads.arrivals.get(&link);
            return self.fail(format!("c{client} is sent away from {link:?}, and was to stay: {arrival:?}"));
        }
        self.reloads.ended.insert(link);
        self.reloads.ended_now += 1;
    }

    /// Whether a client may read that an operator has ended its connection.
    pub(super) fn may_read_of_operator(&self, link: Option<LinkId>) -> bool {
        link.is_some_and(|link| self.reloads.ended.contains(&link))
    }

    /// A client of MQTT 5 has read CONNACK.
    pub(crate) fn told_limits(&mut self, client: usize, link: LinkId, asked_secs: u32, told: Told) {
        let Some(terms) = self.reloads.of_link(link) else { return };
        let says = |terms: &Terms| Told {
            receive_max: terms.receive_max,
            packet_bytes_max: terms.packet_bytes_max,
            topic_alias_max: terms.topic_alias_max,
            expiry_secs: told.expiry_secs,
        };
        // The lifetime is decided when CONNECT comes, and the limits of packets when CONNACK leaves.
        let lives = |terms: &Terms| terms.expiry_secs_max.min(asked_secs) == told.expiry_secs;
        if !terms.iter().any(|terms| says(terms) == told) || !terms.iter().any(lives) {
            let (_, first, last) = self.reloads.arrivals[&link];
            self.fail(format!(
                "c{client} is told {told:?} on {link:?}, where the configurations {first} to {last} were in force: {terms:?}"
            ));
        }
    }

    /// The most messages that may be under way to a client before MQTT 5.
    pub(crate) fn window_3(&self, link: LinkId) -> Option<usize> {
        self.reloads.of_link(link)?.iter().map(|terms| usize::from(terms.inflight_max_3)).max()
    }
}

impl Oracle {
    /// Whether sessions may have a shorter lifetime than their clients ask for.
    pub(super) fn may_end_sooner(&self) -> bool {
        self.reloads.terms.iter().any(|terms| terms.expiry_secs_max < u32::MAX)
    }
}

/// The rules that hold at any moment.
impl Oracle {
    /// The ledger keeps to the limits that it says are in force.
    pub(crate) fn check_limits_in_force(&mut self) {
        let Some(terms) = self.reloads.terms.get(self.reloads.ledger).copied() else { return };
        let now = self.counts();
        let before = std::mem::replace(&mut self.reloads.before, now);
        // Nobody can be refused a will, and a message may be larger than a queue.
        let drops_newest = terms.queue_full != QueueFull::EndSession;
        let drops_oldest = terms.queue_full == QueueFull::DropOldest;
        // The members of a group end one by one.
        let ends = self.reloads.has_ended_sessions;
        let by_policy = [
            ("sessions were ended", before.sessions_ended, now.sessions_ended, ends),
            ("the oldest were dropped", before.dropped_oldest, now.dropped_oldest, drops_oldest),
            ("the newest were dropped", before.dropped_newest, now.dropped_newest, drops_newest),
        ];
        for (what, before, now, may_be) in by_policy {
            if now > before && !may_be {
                self.fail(format!("{what} for a full queue, and {:?} is in force", terms.queue_full));
            }
        }
        let (bytes, most) = (now.retained_bytes, terms.retained_bytes_max);
        if bytes > most && bytes > before.retained_bytes {
            let before = before.retained_bytes;
            self.fail(format!(
                "retained messages grow from {before} to {bytes} bytes, and {most} are allowed"
            ));
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            sessions_ended: self.gauge(|gauges| &gauges.ended_by_full_queue),
            dropped_oldest: self.gauge(|gauges| &gauges.dropped_oldest),
            dropped_newest: self.gauge(|gauges| &gauges.dropped_newest),
            retained_bytes: self.gauge(|gauges| &gauges.retained_bytes),
        }
    }

    /// All threads have had the turns that they wanted: connections that were to leave are gone, and no others. `ended`:
    /// connections that the process has ended because of a reload, by its own count.
    pub(crate) fn settle_dismissals(&mut self, network: &Network, ended: u64) {
        let is_left = |link: &LinkId| {
            let is_over = self.reloads.over.contains(link) || !network.is_open_at_broker(*link);
            !is_over && self.reloads.has_to_leave(*link)
        };
        let left = self.reloads.arrivals.keys().copied().find(is_left);
        if let Some(link) = left {
            let (client, (arrival, ..)) = (network.client_of(link), self.reloads.arrivals[&link]);
            self.fail(format!("c{client} stays on {link:?}, and was to leave: {arrival:?}"));
        }
        let expected = self.reloads.ended_now;
        if ended != expected {
            self.fail(format!(
                "{ended} connections were ended by reloads, and the log has {expected} of them"
            ));
        }
    }
}
