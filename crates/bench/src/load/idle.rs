//! Connections that do nothing: what each costs in memory.

use wire::Version;

use super::{Outcome, Part, Test};
use crate::connections::{Connections, Load, Next};
use crate::error::Result;
use crate::exchange::Quality;
use crate::frames::for_each_packet;
use crate::message::RunId;
use crate::sequence::Tally;
use crate::setup::Client;

/// Longest packet that an idle client may get, bytes.
const PACKET_LEN_MAX: usize = 1024;

/// Idle connections, as a test.
#[derive(Debug, Clone)]
pub(crate) struct IdleTest {
    pub(crate) sizes: Vec<u32>,
    /// Whether each has one subscription, to `idle/{client id}/commands`.
    pub(crate) subscribe: bool,
    pub(crate) version: Version,
}

/// One thread's part: over as soon as everybody is connected.
#[derive(Debug)]
pub(crate) struct Idle {
    clients: Vec<Client>,
    version: Version,
    stray: Tally,
}

impl Test for IdleTest {
    type Part = Idle;

    fn title(&self) -> String {
        format!("idle: MQTT {}", self.version)
    }

    fn sizes(&self) -> Vec<String> {
        let unit = if self.subscribe { "subscribers" } else { "connections" };
        self.sizes.iter().map(|size| format!("{size} {unit}")).collect()
    }

    fn connections(&self, size: usize) -> u64 {
        u64::from(self.sizes[size])
    }

    fn parts(&self, size: usize, run: RunId, workers: usize) -> Vec<Idle> {
        let numbers = 0..self.sizes[size] as usize;
        let client = |number| {
            let mut client = Client::new(run, number, None, Quality::AT_MOST_ONCE);
            // As devices do: a level of its own, and one below it.
            client.filter = self.subscribe.then(|| format!("idle/{}/commands", client.client_id));
            client
        };
        let part = |worker| Idle {
            clients: numbers.clone().skip(worker).step_by(workers).map(client).collect(),
            version: self.version,
            stray: Tally::default(),
        };
        (0..workers).map(part).collect()
    }
}

impl Load for Idle {
    fn receive(&mut self, _: usize, bytes: &[u8], _: &mut Connections) -> Result<usize> {
        for_each_packet(bytes, |packet| super::unexpected(packet, self.version, &mut self.stray))
    }

    fn publish(&mut self, _: &mut Connections) -> Result<Next> {
        Ok(Next::WhenWoken)
    }

    fn arrived(&self) -> u64 {
        0
    }

    fn expected(&self) -> u64 {
        0
    }

    fn is_complete(&self) -> bool {
        true
    }
}

impl Part for Idle {
    fn clients(&self) -> Vec<Client> {
        self.clients.clone()
    }

    fn packet_len_max(&self) -> usize {
        PACKET_LEN_MAX
    }

    fn measures_memory(&self) -> bool {
        true
    }

    fn outcome(self) -> Result<Outcome> {
        Ok(Outcome { tally: self.stray, ..Outcome::default() })
    }
}
