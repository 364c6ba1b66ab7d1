//! All clients, and the load that they generate.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::clients::{CHARACTERS, Ghost, Party, Publisher, Subscriber};
use super::history::History;
use super::message::{GHOSTS, Message, PUBLISHERS};
use crate::trace::Position;
use crate::{Broker, DEADLINE, Random, RawClient, Version, packet};

/// Clock for the state of the broker's disk.
#[derive(Debug)]
pub enum Clock {
    /// The time is the length of the trace.
    Trace(File),
    /// The time never changes. Without a trace all steps count.
    None,
}

impl Clock {
    pub(crate) fn now(&self) -> Position {
        match self {
            Self::Trace(file) => file.metadata().expect("a file has a length").len(),
            Self::None => 0,
        }
    }
}

/// All clients with their knowledge.
pub struct World {
    clock: Clock,
    random: Random,
    pub(crate) publishers: Vec<Publisher>,
    pub(crate) subscribers: Vec<Subscriber>,
    pub(crate) ghosts: Vec<Ghost>,
    /// Messages that the broker has refused, before or after a cut. A client that does not know of the refusal
    /// publishes such a message again, after later ones.
    pub(crate) refused: BTreeSet<Message>,
}

impl World {
    /// Makes clients without any knowledge.
    pub fn new(random: Random, clock: Clock) -> Self {
        let subscriber = |character| Subscriber::new(character, History::default(), true);
        Self {
            clock,
            random,
            publishers: (0..PUBLISHERS).map(|id| Publisher::new(id, History::default())).collect(),
            subscribers: CHARACTERS.iter().map(subscriber).collect(),
            ghosts: (0..GHOSTS).map(|id| Ghost::new(id, History::default())).collect(),
            refused: BTreeSet::new(),
        }
    }

    /// Returns the clients as they may have been at a cut of the trace. The returned clients make no new requests.
    pub fn cut(&self, at: Position) -> Self {
        let subscriber = |of: &Subscriber| Subscriber::new(of.character, of.history.cut(at), false);
        Self {
            clock: Clock::None,
            random: self.random.clone(),
            publishers: self.publishers.iter().map(|of| Publisher::new(of.id, of.history.cut(at))).collect(),
            subscribers: self.subscribers.iter().map(subscriber).collect(),
            ghosts: self.ghosts.iter().map(|of| Ghost::new(of.id, of.history.cut(at))).collect(),
            refused: self.refused(),
        }
    }

    /// Connects all clients except ghosts, and waits until the broker has granted all their requests.
    ///
    /// # Panics
    /// If the broker has not granted them before the deadline.
    pub fn gather(&mut self, broker: &Broker) {
        self.connect(broker);
        let is_settled = |world: &mut Self| {
            world.subscribers.iter().all(Subscriber::is_settled)
                && world.publishers.iter().all(|publisher| publisher.history.now().has_session)
        };
        assert!(self.pump_until(DEADLINE, is_settled), "not everybody is let in:\n{}", broker.log());
    }

    /// Carries out one turn of every client, and then reads packets.
    pub fn turn(&mut self, broker: &Broker) {
        let Self { clock, random, publishers, subscribers, ghosts, .. } = self;
        for publisher in publishers {
            if publisher.line().is_none() {
                publisher.connect(broker);
            }
            publisher.publish(1 + random.below(4), clock);
        }
        for subscriber in subscribers {
            subscriber.live(random, broker, clock);
            subscriber.answer(random.of_list(&[0, 0, 0, 3, 10]), clock);
        }
        for ghost in ghosts {
            ghost.live(random, broker, clock);
        }
        self.pump(Duration::from_millis(20));
    }

    /// Reads the last packets of a broker that has ended.
    ///
    /// # Panics
    /// If the connections do not close.
    pub fn hang_up(&mut self) {
        let is_quiet = |world: &mut Self| world.parties().all(|party| party.line().is_none());
        assert!(self.pump_until(DEADLINE, is_quiet), "connections of a broker that was killed are open");
    }

    /// Ends the session of every client, and clears their retained values, so that the broker stores nothing for
    /// them.
    ///
    /// # Panics
    /// If the broker does not accept a client, or does not close its connection, before the deadline.
    pub fn retire(self, broker: &Broker) {
        let publishers = (0..PUBLISHERS).map(|id| format!("publisher {id}"));
        let subscribers = CHARACTERS.iter().map(|character| character.client_id.to_owned());
        let ghosts = (0..GHOSTS).map(|id| format!("ghost {id}"));
        let client_ids: Vec<String> = publishers.chain(subscribers).chain(ghosts).collect();
        drop(self);
        for client_id in client_ids {
            broker.client(Version::V5, &client_id).leave();
        }
        let mut herald = broker.client(Version::V5, "herald");
        for (publisher, qos) in (0..PUBLISHERS).flat_map(|publisher| [(publisher, 1), (publisher, 2)]) {
            herald.send(&packet::retained(Version::V5, &format!("kept/{publisher}/{qos}"), &[]));
        }
        herald.leave();
    }

    /// Positions at which a client received a packet. The promises change at these positions.
    pub fn moments(&self) -> Vec<Position> {
        let subscribers = self.subscribers.iter().flat_map(|subscriber| subscriber.history.received_at());
        let publishers = self.publishers.iter().flat_map(|publisher| publisher.history.received_at());
        let ghosts = self.ghosts.iter().flat_map(|ghost| ghost.history.received_at());
        publishers.chain(subscribers).chain(ghosts).collect()
    }

    /// Number of messages that were acknowledged.
    pub fn acknowledged(&self) -> usize {
        self.publishers.iter().map(|publisher| publisher.history.now().acknowledged.len()).sum()
    }

    /// The messages that the broker has refused.
    fn refused(&self) -> BTreeSet<Message> {
        self.publishers.iter().flat_map(|one| one.history.now().refused.iter().copied()).collect()
    }

    /// Number of messages that the broker has refused, because it had no space.
    pub fn refusals(&self) -> usize {
        self.refused().len()
    }

    pub(crate) fn connect(&mut self, broker: &Broker) {
        for publisher in &mut self.publishers {
            publisher.connect(broker);
        }
        self.connect_subscribers(broker);
    }

    pub(crate) fn connect_subscribers(&mut self, broker: &Broker) {
        for subscriber in &mut self.subscribers {
            subscriber.connect(broker);
        }
    }

    /// Reads and acknowledges packets until `is_so` returns true. Returns false if no packet arrives for
    /// `patience`.
    pub(crate) fn pump_until(
        &mut self,
        patience: Duration,
        mut is_so: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let mut end = Instant::now() + patience;
        loop {
            if is_so(self) {
                return true;
            }
            let Some(left) = end.checked_duration_since(Instant::now()) else { return false };
            if self.pump(left.min(Duration::from_millis(50))) {
                end = Instant::now() + patience;
            }
            for subscriber in &mut self.subscribers {
                subscriber.answer(0, &self.clock);
            }
        }
    }

    /// Reads all available packets, and waits up to `patience` for the first one. Returns whether there was any.
    fn pump(&mut self, patience: Duration) -> bool {
        let lines: Vec<&RawClient> = self.parties().filter_map(|party| party.line().as_ref()).collect();
        wait_for_any(&lines, patience);
        let Self { clock, publishers, subscribers, ghosts, .. } = self;
        let mut has_heard = false;
        for party in parties(publishers, subscribers, ghosts) {
            let Some(line) = party.line() else { continue };
            let (packets, is_closed) = line.arrived();
            has_heard |= !packets.is_empty();
            for packet in packets {
                party.hear(&packet, clock);
            }
            if is_closed {
                *party.line() = None;
            }
        }
        has_heard
    }

    pub(crate) fn ping(&mut self) {
        for subscriber in &mut self.subscribers {
            subscriber.ping();
        }
    }

    fn parties(&mut self) -> impl Iterator<Item = &mut dyn Party> {
        parties(&mut self.publishers, &mut self.subscribers, &mut self.ghosts)
    }
}

fn parties<'a>(
    publishers: &'a mut [Publisher],
    subscribers: &'a mut [Subscriber],
    ghosts: &'a mut [Ghost],
) -> impl Iterator<Item = &'a mut dyn Party> {
    let publishers = publishers.iter_mut().map(|party| party as &mut dyn Party);
    let subscribers = subscribers.iter_mut().map(|party| party as &mut dyn Party);
    publishers.chain(subscribers).chain(ghosts.iter_mut().map(|party| party as &mut dyn Party))
}

/// Waits until one of the connections can be read, or `patience` is over.
///
/// # Panics
/// If `patience` is too long for the system.
pub fn wait_for_any(lines: &[&RawClient], patience: Duration) {
    let mut descriptors: Vec<PollFd<'_>> =
        lines.iter().map(|line| PollFd::from_borrowed_fd(line.as_fd(), PollFlags::IN)).collect();
    let patience = Timespec::try_from(patience).expect("a patience is short");
    // An interrupted wait ends early. A caller that needs more calls again.
    let _ = poll(&mut descriptors, Some(&patience));
}
