//! Everybody loses the connection at once, and comes back at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::Version;

use super::super::{Outcome, Part, unexpected};
use super::{Course, Patience, Stage, Trouble, Troubled};
use crate::connections::{Connections, Load, Next};
use crate::error::Result;
use crate::exchange::Quality;
use crate::frames::for_each_packet;
use crate::message::RunId;
use crate::sequence::Tally;
use crate::setup::Client;

/// Longest packet that a client may get while it comes back, bytes.
const PACKET_LEN_MAX: usize = 1024;

/// Number of clients that reconnect.
#[derive(Debug, Clone)]
pub(crate) struct Storm {
    pub(crate) clients: u32,
}

/// Clients with a subscription each, connected before the storm.
#[derive(Debug)]
pub(crate) struct Crowd {
    clients: Vec<Client>,
    version: Version,
    stage: Arc<Course>,
    /// When all connections were lost.
    lost: Option<Instant>,
    /// Which clients have been let in again and have their subscription.
    are_back: Vec<bool>,
    back: u64,
    /// From the loss until the latest one was back.
    took: Duration,
    patience: Patience,
    is_over: bool,
    stray: Tally,
}

impl Trouble for Storm {
    type Part = Crowd;

    fn title(&self, version: Version) -> String {
        format!("storm: MQTT {version}, {} clients reconnect and subscribe at once", self.clients)
    }

    fn forms(&self) -> Vec<String> {
        vec!["storm".to_owned()]
    }

    fn connections(&self) -> u64 {
        self.clients.into()
    }

    fn suits_relay(&self, _: usize) -> bool {
        true
    }

    fn part(&self, _: usize, run: RunId, version: Version, stage: Arc<Course>) -> Crowd {
        let client =
            |number| Client::new(run, number, Some(format!("storm/{number}")), Quality::AT_MOST_ONCE);
        Crowd {
            clients: (0..self.clients as usize).map(client).collect(),
            version,
            stage,
            lost: None,
            are_back: vec![false; self.clients as usize],
            back: 0,
            took: Duration::ZERO,
            patience: Patience::new(),
            is_over: false,
            stray: Tally::default(),
        }
    }
}

impl Load for Crowd {
    fn receive(&mut self, connection: usize, bytes: &[u8], connections: &mut Connections) -> Result<usize> {
        self.patience.renew();
        for_each_packet(bytes, |packet| {
            if self.are_back[connection] {
                return unexpected(packet, self.version, &mut self.stray);
            }
            let client = &self.clients[connection];
            if client.handle_packet(packet, self.version, connection, connections)? {
                self.are_back[connection] = true;
                self.back += 1;
                self.took = self.lost.map(|lost| lost.elapsed()).unwrap_or_default();
            }
            Ok(())
        })
    }

    fn publish(&mut self, connections: &mut Connections) -> Result<Next> {
        if self.lost.is_none() {
            self.lost = Some(Instant::now());
            self.stage.enter(Stage::Running);
            for (number, client) in self.clients.iter().enumerate() {
                connections.reopen(number, &client.connect(self.version))?;
            }
            self.patience.renew();
        }
        if !self.is_over && (self.back == self.expected() || self.patience.is_at_its_end()) {
            self.is_over = true;
            self.stage.enter(Stage::Over);
        }
        Ok(Next::WhenWoken)
    }

    fn arrived(&self) -> u64 {
        self.back
    }

    fn expected(&self) -> u64 {
        self.clients.len() as u64
    }

    fn is_complete(&self) -> bool {
        self.is_over
    }
}

impl Part for Crowd {
    fn clients(&self) -> Vec<Client> {
        self.clients.clone()
    }

    fn packet_len_max(&self) -> usize {
        PACKET_LEN_MAX
    }

    fn outcome(self) -> Result<Outcome> {
        let (expected, received) = (self.expected(), self.back);
        let tally = Tally { lost: expected - received, ..self.stray };
        let troubled = Troubled { expected, received, took: self.took, out_of_order: 0 };
        Ok(Outcome { tally, troubled: Some(troubled), ..Outcome::default() })
    }
}
