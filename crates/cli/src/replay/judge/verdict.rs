//! Decides about the packets that have no counterpart.

use std::collections::HashSet;
use std::time::Duration;

use wire::PacketType;

use super::super::packet::Kind;
use super::super::past::Past;
use super::super::report::{DifferenceKind, Report};
use super::super::session::Session;
use super::Judge;
use super::entry::{Noted, Scope, Verdict};

/// Time of the recording after which a message that was not recorded has its verdict: changes of the session that the
/// message may have raced with have begun then.
const VERDICT_AFTER: Duration = Duration::from_secs(2);

impl Judge {
    /// Judges messages that were not recorded until some time after their arrival, and acknowledges them: no recorded client
    /// does so, and a server stops sending when too many are not acknowledged.
    ///
    /// The verdict is found now, because later the changes of the session are forgotten.
    pub(crate) fn sweep(&mut self) {
        while let Some((number, time)) = self.fresh.front().copied()
            && time + VERDICT_AFTER < self.now.time
        {
            self.fresh.pop_front();
            let Some((all, subject, mut noted)) = self.received.take_entry(number) else { continue };
            noted.verdict = Some(self.verdict(all, &noted));
            if let (Scope::Session(number), Some(exchange)) = (noted.scope, noted.exchange) {
                self.answers.extend(self.sessions[number as usize].exchanges.complete(exchange));
            }
            self.received.add(all, subject, noted);
        }
    }

    /// The verdict on a message that was not recorded.
    fn verdict(&self, all: u64, received: &Noted) -> Verdict {
        let Kind::Message(message) = &received.seen.kind else { return Verdict::Extra };
        // The answer to the last publications may be behind the end of the recording, but not a repetition.
        let end = self.end.filter(|_| !self.past.is_repetition(all, message));
        let in_doubt = |past: &Past, session: &Session| past.may_be_extra(message, end, &session.changes);
        // The server sends a message again whose acknowledgement was under way when the connection ended.
        let is_sent_again = message.dup || received.is_repeated || self.past.is_second_delivery(all, message);
        if is_sent_again || self.is_in_doubt(received, in_doubt) { Verdict::InDoubt } else { Verdict::Extra }
    }

    /// Stops before the end of the recording: packets that have not arrived yet are not missing.
    pub(crate) fn interrupt(&mut self) {
        while self.expected.take_oldest().is_some() {}
    }

    /// Gives up waiting for messages that are in doubt, and for those that a later message has overtaken.
    pub(crate) fn give_up_hopeless(&mut self) {
        for _ in 0..self.expected.len() {
            let Some((all, subject, mut noted)) = self.expected.take_oldest() else { return };
            noted.is_optional = self.may_be_missing(all, &noted);
            if noted.is_optional || self.is_overtaken(&noted) {
                self.overdue.add(all, subject, noted);
            } else {
                self.expected.add(all, subject, noted);
            }
        }
    }

    /// Whether a later message of the same stream has arrived.
    fn is_overtaken(&self, expected: &Noted) -> bool {
        let (Scope::Session(number), Kind::Message(message)) = (expected.scope, &expected.seen.kind) else {
            return false;
        };
        let stream = self.stream(message);
        stream.is_some_and(|stream| self.sessions[number as usize].is_behind(stream, expected.moment.step))
    }

    /// Gives up waiting for packets that have not arrived in time.
    pub(crate) fn give_up(&mut self) {
        for connection in self.set_overdue() {
            if let Some(link) = self.links.get_mut(&connection) {
                link.failures += 1;
            }
        }
    }

    /// Waits for no expected packet any more. Returns the connections that have some.
    pub(super) fn set_overdue(&mut self) -> HashSet<u64> {
        let mut late = HashSet::new();
        while let Some((all, subject, mut noted)) = self.expected.take_oldest() {
            late.insert(noted.connection);
            noted.is_optional |= self.links.get(&noted.connection).is_some_and(|link| link.is_ignored);
            // The hashes stay the same, and so a late packet is still found.
            self.overdue.add(all, subject, noted);
        }
        late
    }

    /// Ends the comparison, and returns the report.
    pub(crate) fn finish(mut self) -> Report {
        self.end = Some(self.now);
        self.give_up();
        // Connections that are open at the end of the recording end here.
        while let Some((all, subject, expected)) = self.overdue.take_oldest() {
            if expected.is_optional || self.may_be_missing(all, &expected) {
                self.report.in_doubt += u64::from(matches!(expected.seen.kind, Kind::Message(_)));
                continue;
            }
            let received = self.counterpart(subject, &expected);
            self.miss(&expected, received.as_ref());
        }
        while let Some((all, _, received)) = self.received.take_oldest() {
            self.exceed(all, &received);
        }
        self.report.clients = self.sessions.len() as u64;
        self.report
    }

    /// Takes a packet about the same subject that arrived instead of a recorded one. One with the same content is preferred.
    fn counterpart(&mut self, subject: u64, expected: &Noted) -> Option<Noted> {
        let content = |noted: &Noted| match &noted.seen.kind {
            Kind::Message(message) => Some(message.content),
            _ => None,
        };
        let wanted = content(expected);
        let is_free = |noted: &Noted| noted.verdict != Some(Verdict::InDoubt);
        let equal = self.received.find(subject, |noted| content(noted) == wanted);
        let number = equal.or_else(|| self.received.find(subject, is_free))?;
        self.received.take(number)
    }

    /// Whether a recorded message may be missing because of a race.
    pub(super) fn may_be_missing(&mut self, all: u64, expected: &Noted) -> bool {
        let Kind::Message(message) = &expected.seen.kind else { return false };
        let in_doubt =
            |past: &Past, session: &Session| past.may_be_missing(message, expected.moment, &session.changes);
        self.past.is_second_delivery(all, message)
            || self.is_in_doubt(expected, in_doubt)
            || expected.scope == Scope::Pool && self.past.excuse(message)
    }

    /// Reports a recorded packet that has not arrived, or has arrived with other content.
    pub(super) fn miss(&mut self, expected: &Noted, received: Option<&Noted>) {
        match received {
            Some(received) => {
                self.report.compared += 1;
                let shown = received.seen.shown.clone();
                self.tell(DifferenceKind::Different, expected, Some(&expected.seen.shown), Some(&shown));
            }
            None if expected.seen.kind == Kind::End => {
                self.tell(DifferenceKind::NotClosed, expected, None, None);
            }
            None => self.tell(DifferenceKind::Missing, expected, Some(&expected.seen.shown), None),
        }
    }

    /// Reports a packet that was not recorded.
    pub(super) fn exceed(&mut self, all: u64, received: &Noted) {
        let (is_ending, is_ignored) = self
            .links
            .get(&received.connection)
            .map_or((true, true), |link| (link.is_ending(), link.is_ignored));
        match &received.seen.kind {
            _ if is_ignored => {}
            Kind::Message(_) => match received.verdict.unwrap_or_else(|| self.verdict(all, received)) {
                Verdict::InDoubt => self.report.in_doubt += 1,
                Verdict::Extra => {
                    self.tell(DifferenceKind::Extra, received, None, Some(&received.seen.shown));
                }
            },
            Kind::Release(_) => {}
            Kind::End if !is_ending && !self.is_taken_over(received.connection) => {
                self.tell(DifferenceKind::ClosedEarly, received, None, None);
            }
            Kind::End => {}
            // Answers that were under way when the recorded connection ended.
            _ if is_ending || self.end.is_some() && self.is_requested(received) => {}
            _ => self.tell(DifferenceKind::Extra, received, None, Some(&received.seen.shown)),
        }
    }

    /// Whether the recorded server has not answered this request before the end of the recording.
    fn is_requested(&self, received: &Noted) -> bool {
        let Some(link) = self.links.get(&received.connection) else { return true };
        match received.seen.kind {
            Kind::Answer(PacketType::PubComp, _) | Kind::Pong => true,
            Kind::Answer(packet_type, packet_id) => link.requests.contains_key(&(packet_type, packet_id)),
            Kind::ConnAck { .. } => link.offers.is_none(),
            _ => false,
        }
    }

    /// Whether the session of a connection has continued on a later connection.
    pub(super) fn is_taken_over(&self, connection: u64) -> bool {
        let session = self.links.get(&connection).and_then(|link| link.session);
        session.is_some_and(|number| self.sessions[number as usize].connection != connection)
    }

    /// Whether a test holds for the session of a message, or for any member of a group.
    fn is_in_doubt(&self, noted: &Noted, test: impl Fn(&Past, &Session) -> bool) -> bool {
        match (noted.scope, &noted.seen.kind) {
            (Scope::Pool, Kind::Message(message)) => {
                let mut members = self.sessions.iter().filter(|session| session.shares(message.topic.name()));
                members.any(|session| test(&self.past, session))
            }
            _ => noted.session.is_some_and(|number| test(&self.past, &self.sessions[number as usize])),
        }
    }
}
