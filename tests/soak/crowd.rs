//! All clients of the crowd, and the state that the broker must store for them together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use pondhawk_tests::conversation::Conversation;
use pondhawk_tests::promises::wait_for_any;
use pondhawk_tests::{Broker, Client, Random, RawClient, Version};

use crate::line::Will;
use crate::session::Presence;
use crate::walker::{Arrival, Walker};
use crate::{acts, filter};

/// Number of clients in the crowd.
const WALKERS: usize = 40;
/// Time limit for answers to all requests, after the load has stopped.
const SETTLING: Duration = Duration::from_secs(30);

/// All clients of the crowd.
pub(crate) struct Crowd {
    pub(crate) walkers: Vec<Walker>,
    random: Random,
}

/// The state that the broker must store for the crowd.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    pub(crate) connected: usize,
    /// Number of lasting sessions. `sessions_connected` counts the ones that have a connection.
    pub(crate) sessions: usize,
    pub(crate) sessions_connected: usize,
    /// Number of pairs of a filter and a subscriber. A group counts as one subscriber.
    pub(crate) subscriptions: usize,
    /// Number of subscriptions, with one for each member of a group.
    pub(crate) accounted: usize,
    /// Length of the filters of all accounted subscriptions in bytes.
    pub(crate) filter_bytes: usize,
    /// Keys of the index: the filters without the names of groups.
    pub(crate) filters: BTreeSet<String>,
    pub(crate) groups: BTreeSet<String>,
    pub(crate) retained: usize,
    pub(crate) retained_bytes: usize,
    pub(crate) wills_pending: usize,
}

impl Crowd {
    pub(crate) fn new(seed: u64) -> Self {
        let walker = |number| Walker::new(number, Random::of(seed, 1_000 + number as u64));
        Self { walkers: (0..WALKERS).map(walker).collect(), random: Random::of(seed, 2) }
    }

    /// Allows clients to leave in ways that publish their wills, some of which are retained.
    pub(crate) fn release_wills(&mut self) {
        for walker in &mut self.walkers {
            let has_will = walker.line.as_ref().is_some_and(|line| line.will.is_some());
            if has_will || walker.session.has_pending_will {
                walker.doubt_will();
            }
        }
    }

    /// Carries out `acts` actions of random clients.
    pub(crate) fn turn(&mut self, acts: usize, broker: &Broker) {
        for _ in 0..acts {
            let number = self.random.below(WALKERS);
            self.walkers[number].act(broker);
        }
        if self.random.one_in(50)
            && let Some(victim) = self.walkers.iter().position(Walker::is_stuck)
        {
            let number = self.random.below(WALKERS);
            self.walkers[number].flood(victim);
        }
    }

    /// Reads packets that have arrived, and waits up to `patience` for the first one.
    pub(crate) fn pump(&mut self, patience: Duration) {
        let lines = self.walkers.iter().filter_map(|walker| walker.line.as_ref());
        let lines: Vec<&RawClient> = lines.filter(|line| line.is_reading()).map(|line| &line.raw).collect();
        wait_for_any(&lines, patience);
        self.walkers.iter_mut().for_each(Walker::hear);
    }

    /// Handles the end of the broker at every client.
    pub(crate) fn survive(&mut self) {
        self.walkers.iter_mut().for_each(Walker::survive);
    }

    /// Waits until nothing is on its way, all state is certain, and all clients with a session are connected.
    ///
    /// # Errors
    /// If that takes too long: the clients that still wait, and the answers that they wait for.
    pub(crate) fn settle(&mut self, broker: &Broker) -> Result<(), Vec<String>> {
        let end = Instant::now() + SETTLING;
        self.walkers.iter_mut().for_each(|walker| walker.calm(broker));
        loop {
            let mut is_settled = true;
            for walker in &mut self.walkers {
                is_settled &= walker.settle(broker);
            }
            if is_settled {
                return Ok(());
            }
            if Instant::now() > end {
                let unsettled = self.walkers.iter_mut().filter_map(|walker| {
                    (!walker.settle(broker)).then(|| format!("still waiting: {}", walker.state()))
                });
                return Err(unsettled.collect());
            }
            self.pump(Duration::from_millis(20));
        }
    }

    /// Sets or clears each retained value of the crowd's topics that is uncertain.
    pub(crate) fn settle_values(&mut self, warden: &mut Client) {
        for walker in &mut self.walkers {
            for (topic, value) in &mut walker.retained {
                if value.is_none() {
                    let length = if topic.starts_with("keep/") && self.random.one_in(2) { 100 } else { 0 };
                    retain(warden, topic, length);
                    *value = Some(length);
                }
            }
            walker.retained.retain(|_, value| *value != Some(0));
        }
    }

    /// Lets some clients leave in different ways. Their remaining state is certain.
    pub(crate) fn depart(&mut self) {
        for walker in &mut self.walkers {
            let Some(line) = walker.line.as_ref().filter(|line| line.is_idle()) else { continue };
            let is_cut_well = line.will.is_none_or(|Will { waits }| waits && line.lasts);
            match walker.random.below(9) {
                0 if is_cut_well => walker.cut(),
                0..3 => walker.leave_any(),
                3 => walker.leave(Vec::new(), false),
                _ => {}
            }
        }
    }

    /// Waits until the connections of leaving clients are closed.
    pub(crate) fn see_off(&mut self) -> Result<(), Vec<String>> {
        let end = Instant::now() + SETTLING;
        let is_leaving = |walker: &&Walker| walker.line.as_ref().is_some_and(|line| !line.is_in());
        while self.walkers.iter().any(|walker| is_leaving(&walker)) {
            if Instant::now() > end {
                return Err(self.walkers.iter().filter(is_leaving).map(Walker::state).collect());
            }
            self.pump(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Ends all sessions, and clears all retained values.
    pub(crate) fn disband(&mut self, broker: &Broker, warden: &mut Client) -> Result<(), Vec<String>> {
        self.release_wills();
        for walker in &mut self.walkers {
            if walker.line.is_some() || walker.session.presence != Presence::Absent {
                walker.connect(broker, Arrival { is_clean: true, ..Arrival::default() });
            }
        }
        self.settle(broker)?;
        for walker in &mut self.walkers {
            walker.leave(Vec::new(), false);
        }
        self.see_off()?;
        for (topic, _) in self.walkers.iter_mut().flat_map(|walker| std::mem::take(&mut walker.retained)) {
            retain(warden, &topic, 0);
        }
        Ok(())
    }

    /// Publishes messages whose receivers are certain, including absent clients. Returns the number of messages
    /// that wait.
    pub(crate) fn owe(&mut self, warden: &mut Client, name: &str) -> usize {
        let mut waiting = 0;
        for number in 0..4 + self.random.below(12) {
            let topic = acts::any_topic(&mut self.random);
            let payload = format!("owed {name} {number}").into_bytes();
            warden.deliver(1, &topic, &payload);
            waiting += self.note_owed(&topic, &payload);
        }
        waiting
    }

    fn note_owed(&mut self, topic: &str, payload: &[u8]) -> usize {
        let mut waiting = 0;
        let mut groups: BTreeMap<String, bool> = BTreeMap::new();
        for walker in &mut self.walkers {
            let is_in = walker.is_in();
            let mut is_owed = false;
            for (text, qos) in walker.session.filters() {
                if !filter::matches(filter::plain(text), topic)
                    || walker.session.presence != Presence::Present
                {
                    continue;
                }
                if filter::is_shared(text) {
                    *groups.entry(text.to_owned()).or_default() |= is_in;
                } else {
                    is_owed |= qos > 0 && !is_in;
                }
            }
            if is_owed {
                walker.session.owed.insert(payload.to_vec());
                waiting += 1;
            }
        }
        waiting + groups.values().filter(|has_member| !**has_member).count()
    }

    /// Waits until the messages that are owed to clients have arrived. All clients must be connected. A client with a small window
    /// answers each few before it gets more.
    ///
    /// # Errors
    /// The messages that have not arrived in time.
    pub(crate) fn receive_owed(&mut self, broker: &Broker) -> Result<(), Vec<String>> {
        let end = Instant::now() + SETTLING;
        while self.walkers.iter().any(|walker| !walker.session.owed.is_empty()) && Instant::now() < end {
            self.pump(Duration::from_millis(20));
            for walker in &mut self.walkers {
                walker.settle(broker);
            }
        }
        let mut missing = Vec::new();
        for walker in &mut self.walkers {
            for payload in std::mem::take(&mut walker.session.owed) {
                let text = String::from_utf8_lossy(&payload).into_owned();
                missing.push(format!("{} never gets \"{text}\", which was acknowledged", walker.client_id));
            }
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }

    /// Returns the state that the broker must store. All state of the clients must be certain.
    pub(crate) fn holdings(&self) -> Holdings {
        let mut all = Holdings::default();
        for walker in &self.walkers {
            let session = &walker.session;
            let is_in = walker.is_in();
            all.connected += usize::from(is_in);
            all.retained += walker.retained.len();
            all.retained_bytes += walker
                .retained
                .iter()
                .map(|(topic, length)| topic.len() + length.unwrap_or(0))
                .sum::<usize>();
            if session.presence != Presence::Present {
                continue;
            }
            all.sessions += usize::from(session.is_counted);
            all.sessions_connected += usize::from(session.is_counted && is_in);
            all.wills_pending += usize::from(session.has_pending_will);
            for (text, _) in session.filters() {
                all.accounted += 1;
                all.filter_bytes += text.len();
                all.filters.insert(filter::plain(text).to_owned());
                if filter::is_shared(text) {
                    all.groups.insert(text.to_owned());
                } else {
                    all.subscriptions += 1;
                }
            }
        }
        all.subscriptions += all.groups.len();
        all
    }

    /// Marks all state as confirmed by a comparison.
    pub(crate) fn confirm(&mut self) {
        self.walkers.iter_mut().for_each(|walker| walker.session.confirm());
    }

    /// Returns all faults since the last call.
    pub(crate) fn take_findings(&mut self) -> Vec<String> {
        self.walkers.iter_mut().flat_map(|walker| std::mem::take(&mut walker.findings)).collect()
    }
}

fn retain(warden: &mut Client, topic: &str, length: usize) {
    warden.send(&pondhawk_tests::conversation::publish(
        Version::V5,
        0x33,
        1,
        topic,
        &[],
        &vec![b'k'; length],
    ));
    warden.expect_ack(pondhawk_tests::conversation::PUBACK, 1);
}
