//! Figures of the admin server itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Reasons to refuse a connection or a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Refusal {
    /// There are as many connections as there may be.
    Connections,
    /// The request is for another host, or from the page of another one.
    Host,
    /// The token is missing or wrong.
    Token,
    /// Too many wrong tokens have come from the address.
    Guessing,
    /// The role of the token has not this right.
    Role,
    /// The body is too large.
    Body,
    /// There are as many bans as there may be.
    Bans,
    /// The client has not sent its request, or not taken its response, in time.
    Slow,
}

const REFUSALS: [(Refusal, &str); 8] = [
    (Refusal::Connections, "admin/refused/connections"),
    (Refusal::Host, "admin/refused/host"),
    (Refusal::Token, "admin/refused/token"),
    (Refusal::Guessing, "admin/refused/guessing"),
    (Refusal::Role, "admin/refused/role"),
    (Refusal::Body, "admin/refused/body"),
    (Refusal::Bans, "admin/refused/bans"),
    (Refusal::Slow, "admin/refused/slow"),
];

/// Counters of the admin server.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    requests: AtomicU64,
    refused: [AtomicU64; REFUSALS.len()],
}

impl Counters {
    pub(crate) fn answered(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    pub(crate) fn refused(&self, refusal: Refusal) {
        self.refused[refusal as usize].fetch_add(1, Relaxed);
    }

    /// Passes each figure with its topic.
    pub(crate) fn read(&self, say: &mut dyn FnMut(&str, String)) {
        say("admin/requests", self.requests.load(Relaxed).to_string());
        for (refusal, topic) in REFUSALS {
            say(topic, self.refused[refusal as usize].load(Relaxed).to_string());
        }
    }
}
