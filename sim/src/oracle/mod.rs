//! The judge: hears what clients send and get and what the broker says of them, and knows what must be true.

mod account;
mod deliveries;
mod discards;
mod moves;
mod presence;
mod reloads;
mod sessions;
mod settlement;
mod space;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use base::Dispatch;
use protocol::Gauges;
use wire::{Qos, ReasonCode};

pub(crate) use account::check as check_account;
pub(crate) use deliveries::Delivery;
pub(crate) use reloads::{Arrival, Terms, Told};
pub(crate) use sessions::{SessionNo, SpanNo, Wish};
pub(crate) use settlement::Standing;
pub(crate) use space::SpaceJudge;

use crate::network::LinkId;
use discards::Orders;
use moves::Moves;
use presence::Presence;
use reloads::Reloads;
use sessions::Session;

/// Orders everything that the judge hears.
type Tick = u64;

/// One message of the run; its number is its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct MessageNo(pub(crate) u32);

/// Facts about a message.
#[derive(Debug)]
struct Message {
    publisher: usize,
    topic: usize,
    qos: Qos,
    retain: bool,
    is_empty: bool,
    expires: bool,
    /// Bytes of its topic and its payload.
    bytes: usize,
    published: Tick,
    /// The connection that it was published on, if there was one.
    link: Option<LinkId>,
    acknowledged: Option<Tick>,
    /// The first delivery to any client.
    delivered: Option<Tick>,
    is_refused: bool,
    /// The message was in flight when a connection ended: it may have come twice.
    may_be_repeated: bool,
    will: Option<Will>,
}

/// Facts about a message that is a will.
#[derive(Debug)]
struct Will {
    delay_secs: u32,
    lasts: bool,
    /// The broker has heard that it is not to be published.
    is_cancelled: bool,
}

/// A message as it is published.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Publishing {
    pub(crate) publisher: usize,
    pub(crate) topic: usize,
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    pub(crate) is_empty: bool,
    pub(crate) expires: bool,
    /// Bytes of its topic and its payload.
    pub(crate) bytes: usize,
    pub(crate) link: Option<LinkId>,
}

/// The judge of one run. The first thing that is wrong ends the run.
pub(crate) struct Oracle {
    tick: Tick,
    messages: Vec<Message>,
    sessions: Vec<Session>,
    presence: Presence,
    reloads: Reloads,
    topics: Vec<String>,
    /// By filter, then topic.
    matches: Vec<Vec<bool>>,
    filters: Vec<String>,
    is_shared: Vec<bool>,
    /// Not all messages of topics that have retained values are retained.
    has_plain: bool,
    /// Messages from one publisher to a group keep their order.
    is_key_ordered: bool,
    /// How often the process has ended without warning.
    crashes: usize,
    has_jumped: bool,
    /// Sessions that ended because a queue was full, in processes that are gone; and how many of all were met.
    ended_before: usize,
    ended_met: usize,
    /// Copies that were dropped because a queue was full, in processes that are gone.
    dropped_before: usize,
    /// Whether a full queue has dropped its oldest message in a process that has ended.
    pushed_out_before: bool,
    /// Messages that an operator has discarded, in processes that are gone.
    discarded_before: usize,
    orders: Orders,
    moves: Moves,
    /// Messages that were not retained, in processes that are gone.
    not_retained_before: usize,
    /// Levels and counters of the ledger of this process.
    gauges: Option<Arc<Gauges>>,
    /// The journal of this process has failed, or of one before it: what that has said may be read much later.
    has_journal_failed: bool,
    failure: Option<String>,
}

impl Oracle {
    pub(crate) fn new(scenario: &crate::scenario::Scenario) -> Self {
        Self {
            tick: 0,
            messages: Vec::new(),
            sessions: Vec::new(),
            presence: Presence::new(scenario),
            reloads: Reloads::default(),
            topics: scenario.topics.iter().map(|topic| topic.name.clone()).collect(),
            matches: scenario.filters.iter().map(|filter| filter.matches.clone()).collect(),
            filters: scenario.filters.iter().map(|filter| filter.text.clone()).collect(),
            is_shared: scenario.filters.iter().map(|filter| filter.is_shared).collect(),
            has_plain: scenario.plain_per_mille > 0,
            is_key_ordered: scenario.ledger.dispatch != Dispatch::RoundRobin,
            crashes: 0,
            has_jumped: false,
            ended_before: 0,
            ended_met: 0,
            dropped_before: 0,
            pushed_out_before: false,
            discarded_before: 0,
            orders: Orders::new(),
            moves: Moves::new(),
            not_retained_before: 0,
            gauges: None,
            has_journal_failed: false,
            failure: None,
        }
    }

    /// Something is wrong. The first finding counts: what follows may follow from it.
    pub(crate) fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Messages that were published and that were taken.
    pub(crate) fn tally(&self) -> (usize, usize) {
        (self.messages.len(), self.sessions.iter().map(|session| session.taken()).sum())
    }

    pub(crate) fn wall_clock_jumped(&mut self) {
        self.has_jumped = true;
    }

    fn next_tick(&mut self) -> Tick {
        self.tick += 1;
        self.tick
    }

    fn message(&self, no: MessageNo) -> &Message {
        &self.messages[no.0 as usize]
    }

    fn message_mut(&mut self, no: MessageNo) -> &mut Message {
        &mut self.messages[no.0 as usize]
    }

    /// Names a message in a finding.
    fn name(&self, no: MessageNo) -> String {
        let Message { publisher, topic, qos, retain, .. } = self.message(no);
        let retained = if *retain { ", retained" } else { "" };
        format!("m{} (of c{publisher} to {}, {qos:?}{retained})", no.0, self.topics[*topic])
    }
}

/// Events of publishers: publications and acknowledgements.
impl Oracle {
    /// A client publishes, or hands over a message that will be published when it can be.
    pub(crate) fn published(&mut self, publishing: Publishing) -> MessageNo {
        let Publishing { publisher, topic, qos, retain, is_empty, expires, bytes, link } = publishing;
        let no = MessageNo(u32::try_from(self.messages.len()).expect("a run is short"));
        let published = self.next_tick();
        self.messages.push(Message {
            publisher,
            topic,
            qos,
            retain,
            is_empty,
            expires,
            bytes,
            published,
            link,
            acknowledged: None,
            delivered: None,
            is_refused: false,
            may_be_repeated: false,
            will: None,
        });
        no
    }

    /// A client connects with a will.
    pub(crate) fn left_will(&mut self, publishing: Publishing, delay_secs: u32, lasts: bool) -> MessageNo {
        let no = self.published(publishing);
        self.message_mut(no).will = Some(Will { delay_secs, lasts, is_cancelled: false });
        if let Some(link) = publishing.link {
            self.presence.set_will(link, no);
        }
        no
    }

    /// PUBACK or PUBREC has come. From here on the message is the broker's.
    pub(crate) fn acknowledged(&mut self, no: MessageNo, reason: ReasonCode) {
        let tick = self.next_tick();
        if !self.may_be_said(reason) {
            self.fail(format!("{} is refused: {reason:?}", self.name(no)));
        }
        let message = self.message_mut(no);
        if reason.is_error() {
            message.is_refused = true;
        } else {
            message.acknowledged.get_or_insert(tick);
        }
    }

    /// The connection has ended while the message was under way.
    pub(crate) fn may_be_repeated(&mut self, no: MessageNo) {
        self.message_mut(no).may_be_repeated = true;
    }
}
