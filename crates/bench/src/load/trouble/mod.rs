//! Trouble, and innocent clients beside it: what the demands of some cost the others.

mod group;
mod handshakes;
mod innocent;
mod laggards;
mod retained;
mod storm;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use wire::Version;

pub(crate) use self::group::{Dispatch, SharedQueue};
pub(crate) use self::handshakes::{ConnectTest, HandshakeTest, Handshakes};
pub(crate) use self::innocent::InnocentPlan;
pub(crate) use self::laggards::SlowConsumerTest;
pub(crate) use self::retained::RetainedFlood;
pub(crate) use self::storm::Storm;

use self::innocent::Innocents;
use super::{Outcome, PATIENCE, Part, Test};
use crate::connections::{Connections, Load, Next};
use crate::error::Result;
use crate::message::RunId;
use crate::setup::Client;

/// The columns in which innocent clients are alone: the second tells how much of a difference is chance.
const ALONE: [&str; 2] = ["idle", "idle again"];

/// Something that servers find hard.
pub(crate) trait Trouble {
    /// Source of the trouble, on a thread of its own.
    type Part: Part;

    /// The trouble with its parameters, in one line.
    fn title(&self, version: Version) -> String;

    /// The forms that it takes: each is a column.
    fn forms(&self) -> Vec<String>;

    /// Whether it is about TLS.
    fn needs_tls(&self) -> bool {
        false
    }

    /// Number of its connections.
    fn connections(&self) -> u64;

    /// Whether a server without a protocol can be troubled in this form.
    fn suits_relay(&self, form: usize) -> bool;

    /// The trouble in this form. It moves the stage: innocents begin with [`Stage::Running`] and end with
    /// [`Stage::Over`].
    fn part(&self, form: usize, run: RunId, version: Version, stage: Arc<Course>) -> Self::Part;
}

/// Trouble of one kind beside innocent clients, as a test.
#[derive(Debug, Clone)]
pub(crate) struct TroubleTest<T> {
    pub(crate) trouble: T,
    pub(crate) innocents: InnocentPlan,
    pub(crate) version: Version,
}

/// Phase of a run, for both of its threads.
#[derive(Debug)]
pub(crate) struct Course(AtomicU8);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Stage {
    /// The trouble is being prepared, and innocents are silent.
    Preparing,
    Running,
    Over,
}

/// Part of one thread.
#[derive(Debug)]
pub(crate) enum Player<I, T> {
    Innocent(I),
    Trouble(T),
}

/// Outcome of the trouble itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Troubled {
    /// Number of messages that were to arrive, or of clients that were to return.
    pub(crate) expected: u64,
    /// Those of them that arrived, each once.
    pub(crate) received: u64,
    /// From the first demand to the last arrival.
    pub(crate) took: Duration,
    /// Of what arrived, how much came after a later one of its kind where order counts.
    pub(crate) out_of_order: u64,
}

/// Notices when nothing comes any more, on a thread beside which others stay busy.
#[derive(Debug)]
struct Patience {
    latest: Instant,
}

impl Course {
    fn new(stage: Stage) -> Arc<Self> {
        Arc::new(Self(AtomicU8::new(stage as u8)))
    }

    pub(crate) fn now(&self) -> Stage {
        match self.0.load(Ordering::Relaxed) {
            0 => Stage::Preparing,
            1 => Stage::Running,
            _ => Stage::Over,
        }
    }

    fn enter(&self, stage: Stage) {
        self.0.store(stage as u8, Ordering::Relaxed);
    }
}

impl Patience {
    fn new() -> Self {
        Self { latest: Instant::now() }
    }

    /// Reports that messages have arrived.
    fn renew(&mut self) {
        self.latest = Instant::now();
    }

    fn is_at_its_end(&self) -> bool {
        self.latest.elapsed() > PATIENCE
    }
}

impl<T: Trouble> Test for TroubleTest<T> {
    type Part = Player<Innocents, T::Part>;

    fn title(&self) -> String {
        format!("{}; beside {}", self.trouble.title(self.version), self.innocents)
    }

    fn sizes(&self) -> Vec<String> {
        ALONE.iter().map(|name| (*name).to_owned()).chain(self.trouble.forms()).collect()
    }

    fn controls(&self) -> usize {
        ALONE.len()
    }

    fn needs_tls(&self) -> bool {
        self.trouble.needs_tls()
    }

    fn suits_relay(&self, size: usize) -> bool {
        size.checked_sub(ALONE.len()).is_none_or(|form| self.trouble.suits_relay(form))
    }

    fn connections(&self, _: usize) -> u64 {
        self.trouble.connections() + self.innocents.connections()
    }

    fn parts(&self, size: usize, run: RunId, _: usize) -> Vec<Self::Part> {
        let Some(form) = size.checked_sub(ALONE.len()) else {
            let stage = Course::new(Stage::Running);
            return vec![Player::Innocent(self.innocents.part(run, self.version, stage, true))];
        };
        let stage = Course::new(Stage::Preparing);
        let innocents = self.innocents.part(run, self.version, Arc::clone(&stage), false);
        let trouble = self.trouble.part(form, run, self.version, stage);
        vec![Player::Innocent(innocents), Player::Trouble(trouble)]
    }
}

impl<I: Load, T: Load> Load for Player<I, T> {
    fn reads(&self, connection: usize) -> bool {
        match self {
            Self::Innocent(part) => part.reads(connection),
            Self::Trouble(part) => part.reads(connection),
        }
    }

    fn receive(&mut self, connection: usize, bytes: &[u8], connections: &mut Connections) -> Result<usize> {
        match self {
            Self::Innocent(part) => part.receive(connection, bytes, connections),
            Self::Trouble(part) => part.receive(connection, bytes, connections),
        }
    }

    fn handle_writable(&mut self, connection: usize) {
        match self {
            Self::Innocent(part) => part.handle_writable(connection),
            Self::Trouble(part) => part.handle_writable(connection),
        }
    }

    fn shows_progress(&self, connection: usize) -> bool {
        match self {
            Self::Innocent(part) => part.shows_progress(connection),
            Self::Trouble(part) => part.shows_progress(connection),
        }
    }

    fn publish(&mut self, connections: &mut Connections) -> Result<Next> {
        match self {
            Self::Innocent(part) => part.publish(connections),
            Self::Trouble(part) => part.publish(connections),
        }
    }

    fn arrived(&self) -> u64 {
        match self {
            Self::Innocent(part) => part.arrived(),
            Self::Trouble(part) => part.arrived(),
        }
    }

    fn expected(&self) -> u64 {
        match self {
            Self::Innocent(part) => part.expected(),
            Self::Trouble(part) => part.expected(),
        }
    }

    fn is_complete(&self) -> bool {
        match self {
            Self::Innocent(part) => part.is_complete(),
            Self::Trouble(part) => part.is_complete(),
        }
    }
}

impl<I: Part, T: Part> Part for Player<I, T> {
    fn clients(&self) -> Vec<Client> {
        match self {
            Self::Innocent(part) => part.clients(),
            Self::Trouble(part) => part.clients(),
        }
    }

    fn packet_len_max(&self) -> usize {
        match self {
            Self::Innocent(part) => part.packet_len_max(),
            Self::Trouble(part) => part.packet_len_max(),
        }
    }

    fn keeps_sessions(&self) -> bool {
        match self {
            Self::Innocent(part) => part.keeps_sessions(),
            Self::Trouble(part) => part.keeps_sessions(),
        }
    }

    fn outcome(self) -> Result<Outcome> {
        match self {
            Self::Innocent(part) => part.outcome(),
            Self::Trouble(part) => part.outcome(),
        }
    }
}
