//! Flags of `tap` and `replay` for the broker: its address, a profile, and TLS.

use clap::Args;
use client::Endpoint;
use wire::Shown;

use crate::failure::Failure;
use crate::presets::{self, Broker};
use crate::trust::Trust;

/// The broker to connect to.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// Address of the broker [default: PONDHAWK_HOST and PONDHAWK_PORT, or those of the profile]
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<String>,

    /// Use the host and the certificates in ~/.config/pondhawk/profiles/NAME.
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,

    /// Connect to the broker with TLS, also without the flags below.
    #[arg(long)]
    tls: bool,

    #[command(flatten)]
    trust: Trust,
}

impl Place {
    /// The broker that arguments, environment and profile name.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, Failure> {
        let Self { to, profile, tls, trust } = self;
        let presets = presets::connection(profile.as_deref())?;
        let (host, port, has_tls) = match to {
            Some(to) => {
                let (host, port) = to.rsplit_once(':').unwrap_or((to.as_str(), ""));
                let bad = || Failure::new(format!("Error: --to {}: this is not HOST:PORT.", Shown(to)));
                let port = port.parse().map_err(|_| bad())?;
                (host.trim_start_matches('[').trim_end_matches(']').to_owned(), port, *tls)
            }
            None => {
                let broker = Broker::of(&presets, "--to HOST:PORT")?;
                if presets.server.websocket.is_some() || presets.server.has_quic {
                    let what = if presets.server.has_quic { "QUIC" } else { "a WebSocket" };
                    let text =
                        format!("Error: The profile names {what}, which this command does not support.");
                    return Err(Failure::new(text).advise("Give --to HOST:PORT."));
                }
                let has_tls = *tls || broker.is_encrypted();
                (broker.host, broker.port, has_tls)
            }
        };
        let endpoint = Endpoint::tcp(host, port);
        let trust = trust.clone().or(&presets.tls);
        let tls = trust.tls(has_tls).map_err(|error| Failure::new(format!("Error: {error}.")))?;
        Ok(match tls {
            Some(tls) => endpoint.tls(tls),
            None => endpoint,
        })
    }
}
