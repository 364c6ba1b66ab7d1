//! The lines that operators read: one for each connect, refusal and disconnect, as long as there are not too
//! many to be read.

use broker::Notice;
use std::fmt::Write as _;
use stream::Peer;
use wire::{DisconnectReason, ReasonCode};

/// One shard may write so many lines about connections in a second.
const LINES_PER_SEC: u32 = 1_000;
const SECOND_MS: u64 = 1_000;
/// The ledger names at most this many ended sessions in a second.
const ENDS_PER_SEC: u32 = 16;

/// One shard's notices. What is too much is left out, and told as a number.
#[derive(Default)]
pub(crate) struct Log {
    allowance: Allowance<LINES_PER_SEC>,
}

impl Log {
    /// Writes a notice about a connection to the log, if this second has room for it.
    pub(crate) fn notice(&mut self, now_ms: u64, peer: &Peer, notice: Notice<'_>) {
        if !is_enabled(&notice) {
            return;
        }
        self.tell_left_out(now_ms);
        if self.allowance.take(now_ms) {
            write(peer, notice);
        }
    }

    /// When [`tell_left_out`](Self::tell_left_out) has something to tell, in monotonic milliseconds.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.allowance.ends_ms()
    }

    /// One line about what was left out, when its second is over.
    pub(crate) fn tell_left_out(&mut self, now_ms: u64) {
        if let Some(lines) = self.allowance.left_out(now_ms) {
            tracing::info!(lines, "left out here: more than {LINES_PER_SEC} in a second");
        }
    }
}

/// The ledger's lines, about sessions whose queues were full. They are written on the thread that all stored messages pass.
#[derive(Default)]
pub(crate) struct LedgerLog {
    allowance: Allowance<ENDS_PER_SEC>,
}

impl LedgerLog {
    /// Writes that a session has ended and how many messages were lost with it, if this second has room for the line.
    pub(crate) fn ended_by_full_queue(&mut self, now_ms: u64, client_id: &str, messages: usize) {
        self.tell_left_out(now_ms);
        if self.allowance.take(now_ms) {
            let client_id = Escaped(client_id);
            tracing::warn!(%client_id, messages, "a full queue: the session has ended, and its messages are discarded");
        }
    }

    /// The same for sessions without names.
    pub(crate) fn more_ended_by_full_queues(&mut self, sessions: u64) {
        self.allowance.left_out += sessions;
    }

    /// When [`tell_left_out`](Self::tell_left_out) has something to tell, in monotonic milliseconds.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        self.allowance.ends_ms()
    }

    /// One line about sessions that no line names, when their second is over.
    pub(crate) fn tell_left_out(&mut self, now_ms: u64) {
        if let Some(sessions) = self.allowance.left_out(now_ms) {
            tracing::warn!(
                sessions,
                "full queues: further sessions have ended, and their messages are discarded"
            );
        }
    }
}

/// Counts the lines of a second, those that are written and those that are not.
#[derive(Default)]
struct Allowance<const PER_SEC: u32> {
    began_ms: u64,
    written: u32,
    left_out: u64,
}

impl<const PER_SEC: u32> Allowance<PER_SEC> {
    fn take(&mut self, now_ms: u64) -> bool {
        if now_ms >= self.began_ms + SECOND_MS {
            self.began_ms = now_ms;
            self.written = 0;
        }
        let has_room = self.written < PER_SEC;
        if has_room {
            self.written += 1;
        } else {
            self.left_out += 1;
        }
        has_room
    }

    fn ends_ms(&self) -> Option<u64> {
        (self.left_out > 0).then_some(self.began_ms + SECOND_MS)
    }

    /// How many were left out, once, after the second in which they were.
    fn left_out(&mut self, now_ms: u64) -> Option<u64> {
        self.ends_ms().filter(|ends| *ends <= now_ms)?;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Whether the log takes lines of this kind at all: only those are counted.
fn is_enabled(notice: &Notice<'_>) -> bool {
    match notice {
        Notice::Connected { .. }
        | Notice::Refused { .. }
        | Notice::Denied { .. }
        | Notice::Disconnected { .. } => tracing::enabled!(tracing::Level::INFO),
        Notice::Subscribed { .. } | Notice::Unsubscribed { .. } => tracing::enabled!(tracing::Level::DEBUG),
    }
}

/// Writes a line. What a peer has chosen is escaped.
fn write(peer: &Peer, notice: Notice<'_>) {
    match notice {
        Notice::Connected { client_id, version, keep_alive_secs } => {
            tracing::info!(client_id = %Escaped(client_id), %peer, %version, keep_alive_secs, "connected");
        }
        Notice::Refused { client_id, reason, why } => {
            let (client_id, code) = (Escaped(client_id), Code(reason));
            tracing::info!(%client_id, %peer, reason = %code, why, "refused");
        }
        Notice::Denied { client_id, topic, messages, .. } => {
            let (client_id, topic) = (Escaped(client_id), Escaped(topic));
            tracing::info!(%client_id, %peer, %topic, messages, "not allowed to publish");
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

/// Text from a peer, without anything that a terminal would obey. It is in quotes if a program that reads the line could take
/// a part of it for another field.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let is_odd = |character: char| character.is_whitespace() || matches!(character, '"' | '=');
        let quote = if self.0.contains(is_odd) { "\"" } else { "" };
        f.write_str(quote)?;
        let mut characters = self.0.chars();
        for character in characters.by_ref().take(SHOWN_CHARS) {
            match character {
                '\'' => f.write_char(character)?,
                _ => write!(f, "{}", character.escape_debug())?,
            }
        }
        f.write_str(if characters.next().is_some() { "…" } else { "" })?;
        f.write_str(quote)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_a_peer_is_one_field() {
        let shown = |text: &str| Escaped(text).to_string();
        assert_eq!(["frog", "o'toad", "a/b", "\u{e4}"].map(shown), ["frog", "o'toad", "a/b", "\u{e4}"]);
        assert_eq!(shown("frog peer=10.0.0.1"), r#""frog peer=10.0.0.1""#);
        assert_eq!(shown("a\" why=\"b\n\u{1b}\u{202e}"), r#""a\" why=\"b\n\u{1b}\u{202e}""#);
        assert_eq!(shown("\\x"), r"\\x");
        assert_eq!((shown("").as_str(), shown(&"x".repeat(500)).chars().count()), ("", SHOWN_CHARS + 1));
    }

    #[test]
    fn the_ledger_names_a_few_sessions_in_a_second_and_counts_the_others() {
        let mut log = LedgerLog::default();
        (0..ENDS_PER_SEC + 5).for_each(|_| log.ended_by_full_queue(5_000, "frog", 1));
        assert_eq!(log.allowance.written, ENDS_PER_SEC);
        log.more_ended_by_full_queues(100);
        assert_eq!((log.poll_timeout(), log.allowance.left_out(5_999)), (Some(6_000), None));
        assert_eq!(log.allowance.left_out(6_000), Some(105));
        assert_eq!(log.poll_timeout(), None);
    }

    #[test]
    fn a_second_has_room_for_so_many_lines_and_the_rest_is_counted() {
        let mut allowance = Allowance::<LINES_PER_SEC>::default();
        let taken = (0..LINES_PER_SEC + 7).filter(|_| allowance.take(5_000)).count();
        assert_eq!(taken, LINES_PER_SEC as usize);
        assert_eq!((allowance.ends_ms(), allowance.left_out(5_999)), (Some(6_000), None));
        assert_eq!(allowance.left_out(6_000), Some(7));
        assert_eq!((allowance.ends_ms(), allowance.left_out(9_000)), (None, None));
        assert!(allowance.take(6_000));
    }
}
