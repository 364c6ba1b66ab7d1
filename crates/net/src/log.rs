//! The lines that operators read: one for each connect, refusal and disconnect.

use std::net::SocketAddr;

use broker::Notice;
use wire::{DisconnectReason, ReasonCode};

/// Writes a notice about a connection to the log. What a peer has chosen is escaped.
pub(crate) fn notice(peer: SocketAddr, notice: Notice<'_>) {
    match notice {
        Notice::Connected { client_id, version, keep_alive_secs } => {
            tracing::info!(client_id = %Escaped(client_id), %peer, %version, keep_alive_secs, "connected");
        }
        Notice::Refused { client_id, reason, why } => {
            let (client_id, code) = (Escaped(client_id), Code(reason));
            tracing::info!(%client_id, %peer, reason = %code, why, "refused");
        }
        Notice::Subscribed { client_id, filter, qos } => {
            let (client_id, filter) = (Escaped(client_id), Escaped(filter));
            tracing::debug!(%client_id, %peer, %filter, qos = qos.level(), "subscribed");
        }
        Notice::Unsubscribed { client_id, filter } => {
            let (client_id, filter) = (Escaped(client_id), Escaped(filter));
            tracing::debug!(%client_id, %peer, %filter, "unsubscribed");
        }
        Notice::Disconnected { client_id, reason, why } => {
            let (client_id, code) = (Escaped(client_id), Code(reason));
            tracing::info!(%client_id, %peer, reason = %code, why, "disconnected");
        }
    }
}

/// A longer text is cut: the log is for people.
const SHOWN_CHARS: usize = 128;

/// Text from a peer, without anything that a terminal would obey.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut characters = self.0.chars();
        for character in characters.by_ref().take(SHOWN_CHARS) {
            write!(f, "{}", character.escape_debug())?;
        }
        if characters.next().is_some() { f.write_str("…") } else { Ok(()) }
    }
}

/// A reason as the standard writes it, and as DISCONNECT calls it.
struct Code(ReasonCode);

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(reason) = self;
        match DisconnectReason::try_from(*reason) {
            Ok(reason) => write!(f, "0x{:02X} ({reason})", reason.code()),
            Err(_) => write!(f, "0x{:02X} ({reason})", reason.code()),
        }
    }
}
