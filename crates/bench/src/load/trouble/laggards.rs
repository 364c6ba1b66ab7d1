//! Subscribers that do not keep up with everything, beside pairs that do with their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::super::flood::Flood;
use super::super::{FloodTest, Outcome, Part, Test};
use super::{ALONE, Player};
use crate::connections::{Connections, Load, Next};
use crate::error::Result;
use crate::message::RunId;
use crate::setup::Client;

/// Filter of both laggards.
const EVERYTHING: &str = "loadtest/#";

/// The first of their client numbers: far from those of the pairs.
const FIRST_NUMBER: usize = 90_000_000;

/// Bytes that the slow one takes, and how often.
const SLOW_BYTES: usize = 256;
const SLOW_INTERVAL: Duration = Duration::from_millis(250);

/// Numbers of connections.
const STUCK: usize = 0;
const SLOW: usize = 1;

/// A loadtest alone, and beside one subscriber to everything that takes nothing and one that takes 1 KiB/s.
#[derive(Debug, Clone)]
pub(crate) struct SlowConsumerTest {
    /// State for one size.
    pub(crate) flood: FloodTest,
}

/// The two slow subscribers.
#[derive(Debug)]
pub(crate) struct Laggards {
    run: RunId,
    flood: FloodTest,
    /// Number of parts of the flood that have not delivered everything.
    undelivered: Arc<AtomicUsize>,
    /// When the slow one takes something next.
    due: Instant,
}

impl Test for SlowConsumerTest {
    type Part = Player<Flood, Laggards>;

    fn title(&self) -> String {
        format!("slow-consumer: beside laggards, {}", self.flood.title())
    }

    fn sizes(&self) -> Vec<String> {
        ALONE.into_iter().chain(["stuck and slow"]).map(str::to_owned).collect()
    }

    fn controls(&self) -> usize {
        ALONE.len()
    }

    fn qos(&self) -> wire::Qos {
        self.flood.qos()
    }

    fn suits_relay(&self, size: usize) -> bool {
        size < ALONE.len()
    }

    fn connections(&self, _: usize) -> u64 {
        self.flood.connections(0) + 2
    }

    fn parts(&self, size: usize, run: RunId, workers: usize) -> Vec<Self::Part> {
        let floods = self.flood.parts(0, run, workers);
        let undelivered = floods.first().map(Flood::undelivered);
        let laggards = undelivered.filter(|_| size >= ALONE.len()).map(|undelivered| {
            let flood = self.flood.clone();
            Player::Trouble(Laggards { run, flood, undelivered, due: Instant::now() })
        });
        floods.into_iter().map(Player::Innocent).chain(laggards).collect()
    }
}

impl Load for Laggards {
    fn reads(&self, _: usize) -> bool {
        false
    }

    fn receive(&mut self, _: usize, bytes: &[u8], _: &mut Connections) -> Result<usize> {
        Ok(bytes.len())
    }

    fn publish(&mut self, connections: &mut Connections) -> Result<Next> {
        let now = Instant::now();
        if self.due <= now {
            connections.discard(SLOW, SLOW_BYTES);
            self.due = now + SLOW_INTERVAL;
        }
        Ok(Next::After(self.due - now))
    }

    fn arrived(&self) -> u64 {
        0
    }

    fn expected(&self) -> u64 {
        0
    }

    fn is_complete(&self) -> bool {
        self.undelivered.load(Ordering::Relaxed) == 0
    }
}

impl Part for Laggards {
    fn clients(&self) -> Vec<Client> {
        let client = |number| {
            let filter = Some(EVERYTHING.to_owned());
            Client::new(self.run, FIRST_NUMBER + number, filter, self.flood.quality)
        };
        [STUCK, SLOW].map(client).to_vec()
    }

    fn packet_len_max(&self) -> usize {
        // The waiting bytes of the two are read at the end, without a check.
        self.flood.payload_len + 256
    }

    fn outcome(self) -> Result<Outcome> {
        // No messages are promised to the two.
        Ok(Outcome::default())
    }
}
