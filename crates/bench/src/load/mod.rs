//! The loads, and what they have in common.

mod churn;
mod echo;
mod flood;
mod idle;
mod many;
mod offline;
mod pingtest;
mod trouble;

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use wire::{Packet, Qos, Role, Version};

pub(crate) use self::churn::{ChurnPlace, ChurnPlan, Churned};
pub(crate) use self::echo::EchoTest;
pub(crate) use self::flood::{FloodTest, Pattern};
pub(crate) use self::idle::IdleTest;
pub(crate) use self::many::ManyTest;
pub(crate) use self::offline::OfflineTest;
pub(crate) use self::pingtest::{PingtestSize, PingtestTest};
pub(crate) use self::trouble::{
    ConnectTest, Dispatch, HandshakeTest, Handshakes, InnocentPlan, RetainedFlood, SharedQueue,
    SlowConsumerTest, Storm, TroubleTest, Troubled,
};

use crate::connections::Load;
use crate::error::{Error, Result};
use crate::message::RunId;
use crate::protocol::packet_in;
use crate::sequence::Tally;
use crate::setup::Client;

/// Time without an arrival after which the rest counts as lost, unless messages are spaced out on purpose.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest latency that is told apart from longer ones.
const LATENCY_MAX: Duration = Duration::from_secs(60);

/// Decimal digits to which latencies are kept.
const LATENCY_DIGITS: u8 = 3;

/// The things that a test counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Counted {
    #[default]
    Messages,
    Handshakes,
    Connections,
}

impl Counted {
    pub(crate) const ALL: [Self; 3] = [Self::Messages, Self::Handshakes, Self::Connections];

    /// The word for several of them.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Handshakes => "handshakes",
            Self::Connections => "connections",
        }
    }
}

/// The kind of test, with its sizes.
pub(crate) trait Test {
    /// The part of a run that one thread of the generator carries.
    type Part: Part;

    /// The test with its parameters, in one line.
    fn title(&self) -> String;

    /// The QoS of its messages.
    fn qos(&self) -> Qos {
        Qos::AtMostOnce
    }

    /// The things that it counts.
    fn counted(&self) -> Counted {
        Counted::Messages
    }

    /// Whether it is about TLS.
    fn needs_tls(&self) -> bool {
        false
    }

    /// The column headings, one per size.
    fn sizes(&self) -> Vec<String>;

    /// Number of sizes at the front that show other clients without the trouble beside which they are measured.
    fn controls(&self) -> usize {
        0
    }

    /// The size with which the others are compared, round by round.
    fn control(&self) -> Option<usize> {
        (self.controls() > 0).then_some(0)
    }

    /// Whether a server without a protocol can be measured at the size with this index.
    fn suits_relay(&self, _size: usize) -> bool {
        true
    }

    /// Number of connections for the size with this index.
    fn connections(&self, size: usize) -> u64;

    /// One run of the size with this index, divided among `workers` threads.
    fn parts(&self, size: usize, run: RunId, workers: usize) -> Vec<Self::Part>;
}

/// A load from beginning to end.
pub(crate) trait Part: Load + Send {
    /// The clients that are set up before the clock starts: connection n is client n.
    fn clients(&self) -> Vec<Client>;

    /// Length of the longest packet that will arrive, bytes.
    fn packet_len_max(&self) -> usize;

    /// Time without an arrival after which the rest counts as lost.
    fn patience(&self) -> Duration {
        PATIENCE
    }

    /// Whether the server's memory is what is measured, and is therefore waited for to settle.
    fn measures_memory(&self) -> bool {
        false
    }

    /// Whether each connection goes on from the TLS session of the one before it with the same number.
    fn keeps_sessions(&self) -> bool {
        false
    }

    /// Whether something is to be done when the clock has stopped, which is then driven like the load itself.
    fn begin_aftermath(&mut self) -> bool {
        false
    }

    /// The account of the run.
    ///
    /// # Errors
    /// If the run did not get to where messages could be counted.
    fn outcome(self) -> Result<Outcome>;
}

/// Result of a run, or of one thread's part of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outcome {
    /// Messages that arrived and count (see each test's help), each once.
    pub(crate) messages: u64,
    pub(crate) tally: Tally,
    /// In nanoseconds, for the tests that measure it.
    pub(crate) latency: Option<Histogram<u64>>,
    /// Of other people's subscriptions, if they were to come and go.
    pub(crate) churned: Option<Churned>,
    /// Of the trouble beside which clients were measured, if there was any.
    pub(crate) troubled: Option<Troubled>,
}

impl Outcome {
    /// Adds another part of the same run.
    pub(crate) fn add(&mut self, other: Self) {
        self.messages += other.messages;
        self.tally.add(other.tally);
        self.churned = self.churned.or(other.churned);
        self.troubled = self.troubled.or(other.troubled);
        match (&mut self.latency, other.latency) {
            (Some(own), Some(others)) => {
                own.add(others).expect("all latencies are kept within the same bounds");
            }
            (own @ None, others) => *own = others,
            (Some(_), None) => {}
        }
    }
}

/// An empty histogram of latencies, nanoseconds.
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new_with_max(nanos(LATENCY_MAX), LATENCY_DIGITS)
        .expect("the bounds are constants that it accepts")
}

pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Judges a packet that is no message of the test: it counts as unexpected unless the server has given up on us.
///
/// # Errors
/// If it is a DISCONNECT, or malformed.
#[cold]
fn unexpected(packet: &[u8], version: Version, tally: &mut Tally) -> Result<()> {
    match packet_in(packet, Some(version), Role::Server)? {
        goodbye @ Packet::Disconnect(_) => Err(Error::Server(format!("sent {goodbye} during the run"))),
        _ => {
            tally.unexpected += 1;
            Ok(())
        }
    }
}
