//! The command line of layers, and that of the relay.

use std::path::PathBuf;

use clap::Args;

use super::OwnServerArgs;
use crate::error::{Error, Result};
use crate::layers::{Over, ServerStack, Trust, TrustArgs, server_config};
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
    /// Whether any flag was given.
    pub(super) fn is_chosen(&self) -> bool {
        self.over != Over::Tcp || self.trust.is_chosen()
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

impl RelayArgs {
    /// The layers that the relay accepts.
    ///
    /// # Errors
    /// If there is no certificate for TLS, or it cannot be used.
    pub(crate) fn stack(&self) -> Result<ServerStack> {
        let tls = match (&self.cert, &self.key) {
            _ if !self.over.has_tls() => None,
            (Some(certificate), Some(key)) => Some(server_config(certificate, key)?),
            _ => return Err(Error::Arguments("over TLS, the relay needs --cert and --key".to_owned())),
        };
        Ok(ServerStack { tls, websocket: self.over.has_websocket() })
    }
}
