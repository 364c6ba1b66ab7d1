//! Reports the loss of a connection, and its replacement, on standard error.

use client::{Client, State};

use crate::connection;
use crate::say::complain;
use crate::settings::Settings;

/// Maximum number of different reasons that are reported while there is no connection.
const REASONS_MAX: usize = 16;

/// Reports changes between connected and lost.
pub(crate) struct Watch<'a> {
    settings: &'a Settings,
    /// Reasons that were reported since the connection was lost; empty while there is one.
    reasons: Vec<String>,
    was_lost: bool,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(settings: &'a Settings) -> Self {
        Self { settings, reasons: Vec::new(), was_lost: false }
    }

    /// Whether the connection was lost at any time.
    pub(crate) fn was_lost(&self) -> bool {
        self.was_lost
    }

    /// Reports all changes, without end.
    pub(crate) async fn run(&mut self, client: &Client) {
        let mut state = client.state();
        while state.changed().await.is_ok() {
            self.tell(&state.borrow_and_update());
        }
        std::future::pending::<()>().await;
    }

    /// Reports a change. Failed attempts to reconnect may be many. Each reason is reported once, such as a certificate
    /// that has changed.
    pub(crate) fn tell(&mut self, state: &State) {
        let broker = connection::broker(self.settings);
        let line = match state {
            State::Reconnecting(why) => {
                self.was_lost = true;
                let why = why.to_string();
                if self.reasons.contains(&why) || self.reasons.len() >= REASONS_MAX {
                    return;
                }
                let line = if self.reasons.is_empty() {
                    format!("The connection to {broker} is lost: {why}. Connecting again ...")
                } else {
                    format!("Not connected to {broker}: {why}. Trying again ...")
                };
                self.reasons.push(why);
                line
            }
            State::Connected(_) if !self.reasons.is_empty() => {
                self.reasons.clear();
                format!("Connected to {broker} again.")
            }
            // The end of the connection ends the program, which reports the reason.
            _ => return,
        };
        if !self.settings.quiet {
            complain(line);
        }
    }
}
