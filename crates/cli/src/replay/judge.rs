//! Compares the packets of the recorded server with those of the replay. No sockets and no clock: both sides are told here.

mod entry;
#[cfg(test)]
mod tests;
mod verdict;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use wire::{PacketType, Qos, Version};

use self::entry::{Keys, Noted, Scope};
use super::book::Book;
use super::exchange::{Acknowledgement, Answer, ExchangeId, Need, Side};
use super::packet::{Kind, Message, Seen, hash};
use super::past::{Moment, Past, Reach};
use super::report::{Difference, DifferenceKind, Report};
use super::script::Said;
use super::session::{Link, Place, Request, Session, Stream};

/// Maximum number of arrived packets without a counterpart, and of missing ones, that wait for the end of the replay. The
/// oldest beyond it are reported at once. Each takes about 500 bytes.
const UNMATCHED_MAX: usize = 100_000;

pub(crate) struct Judge {
    sessions: Vec<Session>,
    by_client_id: HashMap<String, u32>,
    links: HashMap<u64, Link>,
    past: Past,
    /// Recorded packets that have not arrived yet.
    expected: Book<Noted>,
    /// Recorded packets that have not arrived in time, or need not arrive.
    overdue: Book<Noted>,
    /// Packets of the replay that were not recorded up to now.
    received: Book<Noted>,
    /// Numbers in `received` of messages without a verdict, the oldest first, with the time of their arrival.
    fresh: VecDeque<(u64, Duration)>,
    arrivals: u64,
    /// Answers of clients that are sent at once.
    answers: Vec<Answer>,
    /// Assigned Client Identifiers of the replay, by those of the recording.
    assigned: HashMap<String, String>,
    now: Moment,
    /// The end of the recording.
    end: Option<Moment>,
    pub(crate) report: Report,
}

impl Judge {
    pub(crate) fn new(begin: Moment, report: Report) -> Self {
        Self {
            sessions: Vec::new(),
            by_client_id: HashMap::new(),
            links: HashMap::new(),
            past: Past::new(),
            expected: Book::new(),
            overdue: Book::new(),
            received: Book::new(),
            fresh: VecDeque::new(),
            arrivals: 0,
            answers: Vec::new(),
            assigned: HashMap::new(),
            now: begin,
            end: None,
            report,
        }
    }

    /// Number of recorded packets for which a client has to wait before it sends its next packet.
    pub(crate) fn waiting(&self) -> usize {
        self.expected.len()
    }

    /// Begins the next step of the recording.
    pub(crate) fn advance(&mut self, moment: Moment) {
        self.now = moment;
    }

    pub(crate) fn open(&mut self, connection: u64) {
        self.report.connections += 1;
        self.links.insert(connection, Link::default());
    }

    /// Notes a packet that a recorded client sends.
    pub(crate) fn said(&mut self, connection: u64, said: &Said) {
        let now = self.now;
        if let Said::Connect(greeting) = said {
            let session = self.session_of(&greeting.client_id);
            let state = &mut self.sessions[session as usize];
            state.exchanges.is_lasting = greeting.is_lasting;
            state.connection = connection;
            state.changes.begin(now, Reach::All);
            let Some(link) = self.links.get_mut(&connection) else { return };
            (link.session, link.connect_step) = (Some(session), now.step);
            link.may_resume_silently = greeting.is_lasting && greeting.version == Version::V3_1;
            link.will.clone_from(&greeting.will);
            return;
        }
        let Some(link) = self.links.get_mut(&connection) else { return };
        let Some(number) = link.session else { return };
        let session = &mut self.sessions[number as usize];
        match said {
            Said::Publish(posted) => {
                self.past.publish(number, posted, now);
                let answer =
                    if posted.qos == Qos::AtLeastOnce { PacketType::PubAck } else { PacketType::PubRec };
                if let Some(packet_id) = posted.packet_id {
                    session.releases.publish(packet_id);
                    link.requests.insert((answer, packet_id), Request::Publish(posted.clone()));
                }
            }
            Said::Subscribe(packet_id, filters) | Said::Unsubscribe(packet_id, filters) => {
                let is_new = matches!(said, Said::Subscribe(..));
                if is_new {
                    session.subscribe(filters);
                }
                session.changes.begin(now, Reach::Filters(filters.clone()));
                let answer = if is_new { PacketType::SubAck } else { PacketType::UnsubAck };
                link.requests.insert((answer, *packet_id), Request::Change(now.step));
            }
            Said::Release(packet_id) => session.releases.release(*packet_id),
            Said::Disconnect => {
                link.will = None;
                self.client_ends(connection);
            }
            _ => {}
        }
    }

    /// Notes that a recorded client ends its connection.
    pub(crate) fn client_ends(&mut self, connection: u64) {
        let now = self.now;
        let Some(link) = self.links.get_mut(&connection) else { return };
        if link.end_step.is_none() {
            link.end_step = Some(now.step);
            self.end_session(connection);
        }
    }

    /// Notes that the connection of a session ends, on either side.
    fn end_session(&mut self, connection: u64) {
        let now = self.now;
        let Some(link) = self.links.get_mut(&connection) else { return };
        let Some(number) = link.session else { return };
        let session = &mut self.sessions[number as usize];
        session.changes.begin(now, if session.exchanges.is_lasting { Reach::Qos0 } else { Reach::All });
        // The server sends these messages to other members of their groups.
        for content in session.exchanges.pooled() {
            self.past.send_again(content);
        }
        if let Some(will) = link.will.take() {
            self.past.publish(number, &will, now);
        }
    }

    /// Ends the comparison of a connection.
    pub(crate) fn abandon(&mut self, connection: u64, why: &str) {
        let client = self.client(connection);
        self.report.note(format!("{client} is not played to its end: {why}"));
        if let Some(link) = self.links.get_mut(&connection) {
            link.is_ignored = true;
        }
        self.client_ends(connection);
    }

    /// Notes a packet of the recorded server, which has to arrive.
    pub(crate) fn expect(&mut self, connection: u64, seen: Seen) {
        self.note_recorded(connection, &seen);
        let Some(link) = self.links.get(&connection) else { return };
        let is_after_end = link.end_step.is_some() && seen.kind != Kind::End;
        let (is_ignored, is_silent) = (link.is_ignored, link.is_silent());
        let Some((Keys { all, subject }, mut noted, need)) = self.noted(Side::Recording, connection, seen)
        else {
            return;
        };
        // Messages of a connection that was lost may arrive on the next one of a lasting session.
        let may_be_resumed = matches!(noted.scope, Scope::Session(number) if noted.exchange.is_some()
            && self.sessions[number as usize].exchanges.is_lasting);
        if is_ignored && !may_be_resumed {
            return;
        }
        if need == Need::InsteadOfFirst {
            self.withdraw(all, noted.exchange);
        }
        noted.is_optional = is_ignored || is_after_end || need == Need::Optional;
        let mut is_awaited = !noted.is_optional;
        if let (Kind::Message(message), Scope::Pool) = (&noted.seen.kind, noted.scope)
            && message.packet_id.is_some()
        {
            if is_after_end {
                self.past.send_again(message.content);
            }
            // One of several equal messages may be missing, and nobody knows which one.
            noted.is_optional = is_ignored;
            is_awaited = !is_ignored && !self.past.is_sent_again(message);
        }
        is_awaited &= !is_silent;
        match self.received.take_equal(all) {
            Some(received) => self.matched(all, &noted, &received),
            None if is_awaited => drop(self.expected.add(all, subject, noted)),
            None => drop(self.overdue.add(all, subject, noted)),
        }
        if self.expected.len() > UNMATCHED_MAX {
            self.set_overdue();
        }
        while self.overdue.len() > UNMATCHED_MAX
            && let Some((all, _, oldest)) = self.overdue.take_oldest()
        {
            if !oldest.is_optional && !self.may_be_missing(all, &oldest) {
                self.miss(&oldest, None);
            }
        }
    }

    /// Stops waiting for a packet that the recorded server has sent again.
    fn withdraw(&mut self, all: u64, exchange: Option<ExchangeId>) {
        for book in [&mut self.expected, &mut self.overdue] {
            book.take_equal_if(all, |noted| noted.exchange == exchange);
        }
    }

    /// Notes the effects of a recorded packet.
    fn note_recorded(&mut self, connection: u64, seen: &Seen) {
        let step = self.now.step;
        let Some(link) = self.links.get_mut(&connection) else { return };
        let session = link.session.map(|number| &mut self.sessions[number as usize]);
        match &seen.kind {
            Kind::ConnAck { session_present, is_accepted, assigned_client_id, offers, .. } => {
                link.offers = Some(offers.clone());
                link.assigned_client_id.clone_from(assigned_client_id);
                if let Some(session) = session {
                    session.changes.answer(link.connect_step, step);
                    if *is_accepted {
                        let is_resumed = *session_present || link.may_resume_silently;
                        session.exchanges.begin(Side::Recording, connection, is_resumed);
                    }
                    if *session_present {
                        session.changes.narrow(link.connect_step);
                    }
                }
                if let (Some(id), Some(number)) = (assigned_client_id, link.session) {
                    self.by_client_id.insert(id.clone(), number);
                }
            }
            Kind::Answer(packet_type, packet_id) => match link.requests.remove(&(*packet_type, *packet_id)) {
                Some(Request::Publish(posted)) => self.past.answer(&posted, step),
                Some(Request::Change(sent)) => {
                    if let Some(session) = session {
                        session.changes.answer(sent, step);
                    }
                }
                None => {
                    if let (Some(session), PacketType::PubComp) = (session, packet_type) {
                        session.releases.answer(*packet_id);
                    }
                }
            },
            Kind::End => {
                link.has_server_ended = true;
                let sent = link.end_step;
                if sent.is_none() {
                    self.end_session(connection);
                }
                // If the server ends a connection by itself, nothing was requested. The session has changed when the end arrives.
                if let Some(number) = self.links.get(&connection).and_then(|link| link.session) {
                    self.sessions[number as usize].changes.answer(sent.unwrap_or(step), step);
                }
            }
            _ => {}
        }
    }

    /// Notes a packet of the replay.
    pub(crate) fn receive(&mut self, connection: u64, seen: Seen) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        if seen.kind == Kind::End {
            link.is_over = true;
        }
        if link.is_ignored {
            return;
        }
        link.failures = 0;
        if let (Kind::ConnAck { session_present, is_accepted: true, .. }, Some(number)) =
            (&seen.kind, link.session)
        {
            let is_resumed = *session_present || link.may_resume_silently;
            self.sessions[number as usize].exchanges.begin(Side::Replay, connection, is_resumed);
        }
        self.compare_offers(connection, &seen.kind);
        let Some((Keys { all, subject }, noted, _)) = self.noted(Side::Replay, connection, seen) else {
            return;
        };
        self.arrivals += 1;
        if let Some(expected) = self.expected.take_equal(all) {
            self.matched(all, &expected, &noted);
        } else if let Some(expected) = self.overdue.take_equal(all) {
            let is_sent_again = match &expected.seen.kind {
                Kind::Message(message) => self.past.is_sent_again(message),
                _ => false,
            };
            self.report.late += u64::from(!expected.is_optional && !is_sent_again);
            self.matched(all, &expected, &noted);
        } else {
            let is_message = matches!(noted.seen.kind, Kind::Message(_));
            let number = self.received.add(all, subject, noted);
            if is_message {
                self.fresh.push_back((number, self.now.time));
            }
            if self.received.len() > UNMATCHED_MAX
                && let Some((all, _, oldest)) = self.received.take_oldest()
            {
                self.exceed(all, &oldest);
            }
        }
    }

    /// Notes an acknowledgement of a recorded client. Returns the packet identifier with which the client sends the
    /// acknowledgement in the replay, or `None` if the client sends nothing now.
    pub(crate) fn acknowledge(&mut self, connection: u64, said: Acknowledgement) -> Option<u16> {
        let session = self.links.get(&connection)?.session?;
        self.sessions[session as usize].exchanges.acknowledge(connection, said)
    }

    /// Returns the answers that clients have to send at once.
    pub(crate) fn take_answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }

    fn compare_offers(&mut self, connection: u64, kind: &Kind) {
        let Kind::ConnAck { offers, assigned_client_id, is_accepted: true, .. } = kind else { return };
        let Some(link) = self.links.get(&connection) else { return };
        if let (Some(recorded), Some(now)) = (&link.assigned_client_id, assigned_client_id) {
            self.assigned.insert(recorded.clone(), now.clone());
        }
        if let Some(recorded) = &link.offers
            && recorded != offers
        {
            let or_none = |text: &str| if text.is_empty() { "nothing".to_owned() } else { text.to_owned() };
            let (recorded, offers) = (or_none(recorded), or_none(offers));
            self.report.note(format!("the recorded server offers {recorded}; this one offers {offers}"));
        }
    }

    /// Notes that a recorded packet has arrived.
    fn matched(&mut self, all: u64, expected: &Noted, received: &Noted) {
        self.report.compared += 1;
        let (Kind::Message(recorded), Kind::Message(replayed)) = (&expected.seen.kind, &received.seen.kind)
        else {
            return;
        };
        self.past.arrive(all);
        let Scope::Session(number) = expected.scope else { return };
        if let (Some(then), Some(now)) = (expected.exchange, received.exchange) {
            self.answers.extend(self.sessions[number as usize].exchanges.pair(then, now));
        }
        let Some(stream) = self.stream(recorded).filter(|_| !replayed.dup) else { return };
        let place = Place { step: expected.moment.step, arrival: received.arrival };
        if self.sessions[number as usize].is_out_of_order(stream, place) {
            self.tell(DifferenceKind::OutOfOrder, expected, None, Some(&received.seen.shown));
        }
    }

    /// The client identifier in the replay, if the recorded one was assigned by the server.
    pub(crate) fn client_id_now(&self, recorded: &str) -> Option<&str> {
        self.assigned.get(recorded).map(String::as_str)
    }

    /// Whether the server of the replay has ended a connection.
    pub(crate) fn is_over(&self, connection: u64) -> bool {
        self.links.get(&connection).is_none_or(|link| link.is_over)
    }

    /// Reports that a connection ended, could not be made, or has bytes that are not MQTT. It is not compared any more.
    pub(crate) fn lose(&mut self, connection: u64, kind: DifferenceKind, why: Option<&str>) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        let is_known = std::mem::replace(&mut link.is_ignored, true);
        // The server ends a connection whose client has connected again, and may be early or late with it.
        if is_known || kind == DifferenceKind::ClosedEarly && self.is_taken_over(connection) {
            return;
        }
        let difference = Difference {
            kind,
            time: self.now.time,
            client: self.client(connection),
            expected: None,
            received: why.map(str::to_owned),
        };
        self.report.add(difference);
    }

    /// The messages among which this one has to keep its order. `None` if nothing is known about its order.
    fn stream(&self, message: &Message) -> Option<Stream> {
        let publication = self.past.of(message).filter(|publication| !publication.is_shared)?;
        let topic = hash(message.topic.name().as_str());
        (!message.dup && !message.retain).then_some((publication.publisher, topic, message.qos))
    }

    fn tell(&mut self, kind: DifferenceKind, noted: &Noted, expected: Option<&str>, received: Option<&str>) {
        let difference = Difference {
            kind,
            time: noted.moment.time,
            client: self.client(noted.connection),
            expected: expected.map(str::to_owned),
            received: received.map(str::to_owned),
        };
        self.report.add(difference);
    }

    /// The session of a client identifier. An empty one stands for a session of this connection only.
    fn session_of(&mut self, client_id: &str) -> u32 {
        if let Some(number) = self.by_client_id.get(client_id).filter(|_| !client_id.is_empty()) {
            return *number;
        }
        // A capture of 4 GB has fewer sessions than 32 bits can count.
        let number = u32::try_from(self.sessions.len()).unwrap_or(u32::MAX);
        let name = if client_id.is_empty() { String::new() } else { format!("{client_id:?}") };
        self.sessions.push(Session::named(name));
        if !client_id.is_empty() {
            self.by_client_id.insert(client_id.to_owned(), number);
        }
        number
    }

    /// The name of a client in the report.
    fn client(&self, connection: u64) -> String {
        let session = self.links.get(&connection).and_then(|link| link.session);
        let name = session.map_or("", |number| &self.sessions[number as usize].name);
        if name.is_empty() {
            format!("connection {connection}")
        } else {
            format!("{name}, connection {connection}")
        }
    }
}
