//! Clients that connect, perhaps with a TLS handshake, and leave.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use wire::{Disconnect, Version};

use super::super::{Counted, Outcome, Part, Test, latencies, nanos, unexpected};
use super::{Course, Patience, Stage, Trouble, Troubled};
use crate::connections::{Connections, Load, Next};
use crate::error::{Error, Result};
use crate::exchange::Quality;
use crate::frames::for_each_packet;
use crate::message::RunId;
use crate::protocol::to_bytes;
use crate::sequence::Tally;
use crate::setup::Client;

/// Longest packet that a client may get, bytes.
const PACKET_LEN_MAX: usize = 1024;

/// The forms of a handshake: each is a column.
const FORMS: [&str; 2] = ["full", "resumed"];

/// Number and rate of handshakes.
#[derive(Debug, Clone)]
pub(crate) struct Handshakes {
    pub(crate) count: u64,
    /// Connections at a time.
    pub(crate) at_once: u32,
    /// Handshakes per second, evenly spaced; without a rate, as fast as the server answers.
    pub(crate) rate: Option<f64>,
}

/// Handshakes with nobody beside them, as a test.
#[derive(Debug, Clone)]
pub(crate) struct HandshakeTest {
    pub(crate) handshakes: Handshakes,
    pub(crate) version: Version,
}

/// Clients that connect and leave, with or without TLS, as a test.
#[derive(Debug, Clone)]
pub(crate) struct ConnectTest {
    pub(crate) visits: Handshakes,
    pub(crate) version: Version,
}

/// One thread's part: connections that are used again and again.
#[derive(Debug)]
pub(crate) struct Visitors {
    run: RunId,
    version: Version,
    count: u64,
    /// Time between two handshakes.
    interval: Duration,
    is_resuming: bool,
    slots: Vec<Slot>,
    /// The slots without a client.
    free: Vec<usize>,
    /// When the first handshake was due.
    started: Option<Instant>,
    begun: u64,
    done: u64,
    took: Duration,
    patience: Patience,
    latency: Histogram<u64>,
    stray: Tally,
    /// The number of the first client that is measured. Those before it prepare the slots.
    first_number: usize,
    /// With innocent clients beside them.
    stage: Option<Arc<Course>>,
    is_over: bool,
}

#[derive(Debug)]
struct Slot {
    /// The client that has no CONNACK yet.
    client: Option<Client>,
    /// When its handshake was due.
    due: Instant,
}

impl Handshakes {
    fn title(&self, version: Version) -> String {
        let Self { count, at_once, rate } = self;
        let rate = rate.map_or(String::new(), |rate| format!(", {rate} per second"));
        format!(
            "handshakes: MQTT {version}, {count} × connect, TLS, CONNECT, at most {at_once} at a time{rate}"
        )
    }

    /// The part of one of `workers` threads.
    fn part(&self, form: usize, run: RunId, version: Version, worker: usize, workers: usize) -> Visitors {
        let share = |all: u64| (all + (workers - 1 - worker) as u64) / workers as u64;
        let slots = usize::try_from(share(self.at_once.into())).unwrap_or(usize::MAX).max(1);
        let interval =
            self.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(workers as f64 / rate));
        // Far from each other, so that no client takes over the session of another.
        let first = worker * 10_000_000;
        let number = |slot| first + slot;
        let slot = |slot| {
            let client = Client::new(run, number(slot), None, Quality::AT_MOST_ONCE);
            Slot { client: Some(client), due: Instant::now() }
        };
        Visitors {
            run,
            version,
            count: share(self.count),
            interval,
            is_resuming: form == 1,
            first_number: first + slots,
            slots: (0..slots).map(slot).collect(),
            free: (0..slots).collect(),
            started: None,
            begun: 0,
            done: 0,
            took: Duration::ZERO,
            patience: Patience::new(),
            latency: latencies(),
            stray: Tally::default(),
            stage: None,
            is_over: false,
        }
    }
}

impl Test for HandshakeTest {
    type Part = Visitors;

    fn title(&self) -> String {
        self.handshakes.title(self.version)
    }

    fn counted(&self) -> Counted {
        Counted::Handshakes
    }

    fn needs_tls(&self) -> bool {
        true
    }

    fn sizes(&self) -> Vec<String> {
        FORMS.map(str::to_owned).to_vec()
    }

    fn connections(&self, _: usize) -> u64 {
        self.handshakes.at_once.into()
    }

    fn parts(&self, size: usize, run: RunId, workers: usize) -> Vec<Visitors> {
        (0..workers).map(|worker| self.handshakes.part(size, run, self.version, worker, workers)).collect()
    }
}

impl Test for ConnectTest {
    type Part = Visitors;

    fn title(&self) -> String {
        let Handshakes { count, at_once, .. } = self.visits;
        format!("connects: MQTT {}, {count} × connect, CONNECT, at most {at_once} at a time", self.version)
    }

    fn counted(&self) -> Counted {
        Counted::Connections
    }

    fn sizes(&self) -> Vec<String> {
        vec![format!("{} at a time", self.visits.at_once)]
    }

    fn connections(&self, _: usize) -> u64 {
        self.visits.at_once.into()
    }

    fn parts(&self, _: usize, run: RunId, workers: usize) -> Vec<Visitors> {
        (0..workers).map(|worker| self.visits.part(0, run, self.version, worker, workers)).collect()
    }
}

impl Trouble for Handshakes {
    type Part = Visitors;

    fn title(&self, version: Version) -> String {
        self.title(version)
    }

    fn forms(&self) -> Vec<String> {
        FORMS.map(str::to_owned).to_vec()
    }

    fn needs_tls(&self) -> bool {
        true
    }

    fn connections(&self) -> u64 {
        self.at_once.into()
    }

    fn suits_relay(&self, _: usize) -> bool {
        true
    }

    fn part(&self, form: usize, run: RunId, version: Version, stage: Arc<Course>) -> Visitors {
        Visitors { stage: Some(stage), ..self.part(form, run, version, 0, 1) }
    }
}

impl Visitors {
    /// Opens the connections that are due, as far as there are slots.
    fn open_due(&mut self, now: Instant, connections: &mut Connections) -> Result<()> {
        let started = *self.started.get_or_insert(now);
        while self.begun < self.count && self.due(started) <= now {
            let Some(slot) = self.free.pop() else { break };
            let due = if self.interval.is_zero() { now } else { self.due(started) };
            let number = usize::try_from(self.begun).unwrap_or(usize::MAX);
            let client = Client::new(self.run, self.first_number + number, None, Quality::AT_MOST_ONCE);
            // The client before it has got what it came for, and nobody waits for the answer to its end.
            connections.finish(slot, &to_bytes(Disconnect::default(), self.version));
            connections.reopen(slot, &client.connect(self.version))?;
            self.slots[slot] = Slot { client: Some(client), due };
            self.begun += 1;
        }
        Ok(())
    }

    /// When the next handshake is due.
    fn due(&self, started: Instant) -> Instant {
        started + self.interval.saturating_mul(u32::try_from(self.begun).unwrap_or(u32::MAX))
    }

    /// Notes that a client has its CONNACK.
    ///
    /// # Errors
    /// If it was to resume a session, and the server made a full handshake.
    fn note_done(&mut self, slot: usize, connections: &Connections) -> Result<()> {
        if self.is_resuming && connections.is_resumed(slot) != Some(true) {
            return Err(Error::Server("made a full handshake, although the client had a session".to_owned()));
        }
        self.slots[slot].client = None;
        self.free.push(slot);
        self.done += 1;
        self.latency.saturating_record(nanos(self.slots[slot].due.elapsed()));
        self.took = self.started.map(|started| started.elapsed()).unwrap_or_default();
        self.patience.renew();
        Ok(())
    }
}

impl Load for Visitors {
    fn receive(&mut self, slot: usize, bytes: &[u8], connections: &mut Connections) -> Result<usize> {
        for_each_packet(bytes, |packet| {
            let Some(client) = &self.slots[slot].client else {
                return unexpected(packet, self.version, &mut self.stray);
            };
            if client.handle_packet(packet, self.version, slot, connections)? {
                self.note_done(slot, connections)?;
            }
            Ok(())
        })
    }

    /// A client that is about to leave reads nothing more.
    fn reads(&self, slot: usize) -> bool {
        self.slots[slot].client.is_some()
    }

    fn publish(&mut self, connections: &mut Connections) -> Result<Next> {
        let now = Instant::now();
        if self.started.is_none() {
            self.patience.renew();
            self.stage.iter().for_each(|stage| stage.enter(Stage::Running));
            // The clients of the preparation have left their sessions behind.
            self.slots.iter_mut().for_each(|slot| slot.client = None);
        }
        self.open_due(now, connections)?;
        let is_stuck = self.stage.is_some() && self.patience.is_at_its_end();
        if !self.is_over && (self.done == self.count || is_stuck) {
            self.is_over = true;
            self.stage.iter().for_each(|stage| stage.enter(Stage::Over));
        }
        let next = self.started.filter(|_| self.begun < self.count && !self.free.is_empty());
        Ok(next.map_or(Next::WhenWoken, |started| {
            Next::After(self.due(started).saturating_duration_since(Instant::now()))
        }))
    }

    fn arrived(&self) -> u64 {
        self.done
    }

    fn expected(&self) -> u64 {
        self.count
    }

    fn is_complete(&self) -> bool {
        self.is_over
    }
}

impl Part for Visitors {
    fn clients(&self) -> Vec<Client> {
        self.slots.iter().filter_map(|slot| slot.client.clone()).collect()
    }

    fn packet_len_max(&self) -> usize {
        PACKET_LEN_MAX
    }

    fn keeps_sessions(&self) -> bool {
        self.is_resuming
    }

    fn outcome(self) -> Result<Outcome> {
        let (expected, received) = (self.count, self.done);
        let tally = Tally { lost: expected - received, ..self.stray };
        if self.stage.is_none() {
            return Ok(Outcome {
                messages: received,
                tally,
                latency: Some(self.latency),
                ..Outcome::default()
            });
        }
        // Latency is that of the innocent clients.
        let troubled = Troubled { expected, received, took: self.took, out_of_order: 0 };
        Ok(Outcome { tally, troubled: Some(troubled), ..Outcome::default() })
    }
}
