//! Figures of the admin server itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Reasons to refuse a connection or a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Refusal {
    /// There are as many connections as there may be.
    Connections,
    /// The request is for another host, or from the page of another one.
    Host,
    /// The token or the password is missing or wrong.
    Token,
    /// Too many wrong tokens or passwords have come from the address.
    Guessing,
    /// The role of the operator has not this right, or there is none.
    Role,
    /// The body is too large.
    Body,
    /// There are as many bans as there may be.
    Bans,
    /// The last messages of as many clients are recorded as may be.
    Recordings,
    /// The client has not sent its request, or not taken its response, in time.
    Slow,
    /// The client does not speak TLS, or its certificate is not accepted.
    Tls,
    /// The certificates of the server have changed since the handshake of the connection.
    Outdated,
    /// The password was not checked.
    Busy,
}

const REFUSALS: [(Refusal, &str); 12] = [
    (Refusal::Connections, "admin/refused/connections"),
    (Refusal::Host, "admin/refused/host"),
    (Refusal::Token, "admin/refused/token"),
    (Refusal::Guessing, "admin/refused/guessing"),
    (Refusal::Role, "admin/refused/role"),
    (Refusal::Body, "admin/refused/body"),
    (Refusal::Bans, "admin/refused/bans"),
    (Refusal::Recordings, "admin/refused/recordings"),
    (Refusal::Slow, "admin/refused/slow"),
    (Refusal::Tls, "admin/refused/tls"),
    (Refusal::Outdated, "admin/refused/outdated"),
    (Refusal::Busy, "admin/refused/busy"),
];

/// Counters of the admin server.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    requests: AtomicU64,
    handshakes_delayed: AtomicU64,
    refused: [AtomicU64; REFUSALS.len()],
}

impl Counters {
    pub(crate) fn answered(&self) {
        self.requests.fetch_add(1, Relaxed);
    }

    /// A connection has waited for the turn of its handshake.
    pub(crate) fn handshake_delayed(&self) {
        self.handshakes_delayed.fetch_add(1, Relaxed);
    }

    pub(crate) fn refused(&self, refusal: Refusal) {
        self.refused[refusal as usize].fetch_add(1, Relaxed);
    }

    /// Passes each figure with its topic.
    pub(crate) fn read(&self, say: &mut dyn FnMut(&str, String)) {
        say("admin/requests", self.requests.load(Relaxed).to_string());
        say("admin/handshakes_delayed", self.handshakes_delayed.load(Relaxed).to_string());
        for (refusal, topic) in REFUSALS {
            say(topic, self.refused[refusal as usize].load(Relaxed).to_string());
        }
    }
}
