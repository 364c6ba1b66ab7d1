//! The command lines of layers, of handshakes, and of the relay.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, value_parser};

use super::{ComparisonArgs, OwnServerArgs, positive, seconds};
use crate::error::{Error, Result};
use crate::layers::{Over, ServerStack, Trust, TrustArgs, server_config};
use crate::load::{HandshakeTest, Handshakes, InnocentPlan, TroubleTest};
use crate::server::Contender;

/// Layers between TCP and MQTT, with the flags of TLS.
#[derive(Debug, Args)]
#[command(next_help_heading = "Layers")]
pub(crate) struct LayersArgs {
    /// Layers of all connections, unless the URL of a server names others
    ///
    /// Every connection makes a full handshake. Over WebSocket, each write is one frame with a mask of its own.
    #[arg(long, value_name = "LAYERS", value_enum, default_value_t = Over::Tcp)]
    pub(crate) over: Over,
    #[command(flatten)]
    trust: TrustArgs,
}

#[derive(Debug, Args)]
// Without TLS there is nothing to measure.
#[command(disable_version_flag = true, mut_arg("over", |over| over.default_value("tls")))]
pub(crate) struct HandshakesArgs {
    /// Number of handshakes
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = value_parser!(u64).range(1..))]
    count: u64,
    /// Number of connections at a time
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = value_parser!(u32).range(1..=100_000))]
    at_once: u32,
    /// Handshakes per second, evenly spaced, beside innocent clients; without a rate as fast as the server answers
    #[arg(long, value_name = "R", value_parser = positive)]
    rate: Option<f64>,
    /// Pairs of innocent clients: each publishes to its partner on schedule, at QoS 0
    #[arg(long, value_name = "P", default_value_t = 8, value_parser = value_parser!(u32).range(1..), requires = "rate")]
    innocents: u32,
    /// Messages per second of all innocent pairs together
    #[arg(long, value_name = "R", default_value = "2000", value_parser = positive, requires = "rate")]
    innocent_rate: f64,
    /// Seconds that the innocent talk without handshakes
    #[arg(long, value_name = "SECS", default_value = "3", value_parser = seconds, requires = "rate")]
    duration: Duration,
    #[command(flatten)]
    pub(crate) comparison: ComparisonArgs,
}

#[derive(Debug, Args)]
#[command(disable_version_flag = true)]
pub(crate) struct RelayArgs {
    #[command(flatten)]
    pub(crate) own: OwnServerArgs,
    /// Layers of all connections
    #[arg(long, value_name = "LAYERS", value_enum, default_value_t = Over::Tcp)]
    over: Over,
    /// Certificate of the relay, a PEM file
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl LayersArgs {
    /// Whether a flag of TLS was given.
    pub(super) fn has_trust(&self) -> bool {
        self.trust.is_chosen()
    }

    /// The layers behind the title of a test; empty over TCP alone.
    pub(crate) fn title(&self) -> String {
        match self.over {
            Over::Tcp => String::new(),
            over => format!(", over {}{}", over.name(), self.trust.title()),
        }
    }

    /// The means of TLS for these servers.
    ///
    /// # Errors
    /// If a file cannot be read or written, or what is in it cannot be used.
    pub(crate) fn trust(&self, contenders: &[Contender]) -> Result<Trust> {
        let speaks_tls = contenders.iter().any(|contender| contender.over.has_tls());
        let makes_certificates = contenders.iter().any(Contender::needs_certificate);
        Trust::new(&self.trust, speaks_tls, makes_certificates)
    }
}

impl HandshakesArgs {
    /// The test without innocent clients.
    pub(crate) fn test(&self) -> HandshakeTest {
        HandshakeTest { handshakes: self.handshakes(), version: self.comparison.version }
    }

    /// The test beside innocent clients, if there is a rate.
    pub(crate) fn beside(&self) -> Option<TroubleTest<Handshakes>> {
        self.rate?;
        let (pairs, rate, duration) = (self.innocents, self.innocent_rate, self.duration);
        let innocents = InnocentPlan { pairs, rate, duration };
        Some(TroubleTest { trouble: self.handshakes(), innocents, version: self.comparison.version })
    }

    fn handshakes(&self) -> Handshakes {
        Handshakes { count: self.count, at_once: self.at_once, rate: self.rate }
    }
}

impl RelayArgs {
    /// The layers that the relay accepts.
    ///
    /// # Errors
    /// If there is no certificate for TLS, or it cannot be used.
    pub(crate) fn stack(&self) -> Result<ServerStack> {
        if self.over == Over::Quic {
            return Err(Error::Arguments("the relay has no QUIC".to_owned()));
        }
        let tls = match (&self.cert, &self.key) {
            _ if !self.over.has_tls() => None,
            (Some(certificate), Some(key)) => Some(server_config(certificate, key)?),
            _ => return Err(Error::Arguments("over TLS, the relay needs --cert and --key".to_owned())),
        };
        Ok(ServerStack { tls, websocket: self.over.has_websocket() })
    }
}
