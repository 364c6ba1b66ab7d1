//! Compares the packets of the recorded server with those of the replay. No sockets and no clock: both sides are told here.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use wire::{PacketId, PacketType, Qos, brief_puback, brief_pubrec};

use super::book::Book;
use super::packet::{Kind, Message, Seen, hash};
use super::past::{Moment, Past, Reach};
use super::report::{Difference, DifferenceKind, Report};
use super::script::Said;
use super::session::{Exchange, Link, Place, Request, Session, Side, Stream};

/// Maximum number of arrived packets without a counterpart, and of missing ones, that wait for the end of the replay. The
/// oldest beyond it are reported at once. Each takes about 500 bytes.
const UNMATCHED_MAX: usize = 100_000;

/// Time of the recording after which a message that was not recorded has its verdict: changes of the session that the
/// message may have raced with have begun then.
const VERDICT_AFTER: Duration = Duration::from_secs(2);

/// The packets among which the counterpart of a packet is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Scope {
    Connection(u64),
    /// Messages may arrive on a later connection of the session.
    Session(u32),
    /// Messages of shared subscriptions may arrive at any member.
    Pool,
}

/// A packet of either side.
#[derive(Debug)]
struct Noted {
    /// Moment of the recording at which the packet arrived.
    moment: Moment,
    connection: u64,
    session: Option<u32>,
    scope: Scope,
    seen: Seen,
    /// Number among the packets of the replay that have arrived.
    arrival: u64,
    /// The recorded packet need not arrive.
    is_optional: bool,
    /// The packet that was not recorded has its verdict, and its message is acknowledged.
    verdict: Option<Verdict>,
}

/// The verdict on a message that was not recorded up to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// A race of the recording explains the message.
    InDoubt,
    Extra,
}

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
    /// Messages of shared subscriptions that the recorded server had to send to another member.
    sent_again: HashMap<u64, u32>,
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
            sent_again: HashMap::new(),
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
            state.is_lasting = greeting.is_lasting;
            state.connection = connection;
            state.changes.begin(now, Reach::All);
            let Some(link) = self.links.get_mut(&connection) else { return };
            (link.session, link.connect_step) = (Some(session), now.step);
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
            Said::Acknowledge(PacketType::PubAck | PacketType::PubComp, packet_id) => {
                session.exchanges(Side::Recording).remove(packet_id);
            }
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
        session.changes.begin(now, if session.is_lasting { Reach::Qos0 } else { Reach::All });
        // The server sends these messages to other members of their groups.
        for exchange in session.exchanges(Side::Recording).values().filter(|exchange| exchange.is_pooled) {
            *self.sent_again.entry(exchange.content).or_default() += 1;
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
        if link.is_ignored {
            return;
        }
        let is_after_end = link.end_step.is_some() && seen.kind != Kind::End;
        let Some((all, subject, mut noted)) = self.noted(Side::Recording, connection, seen) else { return };
        // The release of a message that has not arrived cannot arrive either.
        noted.is_optional = is_after_end || self.is_release_of_missing(connection, &noted.seen.kind);
        if let (Kind::Message(message), Scope::Pool) = (&noted.seen.kind, noted.scope)
            && let Some(count) = self.sent_again.get_mut(&message.content).filter(|count| **count > 0)
        {
            *count -= 1;
            noted.is_optional = true;
        }
        match self.received.take_equal(all) {
            Some(received) => self.matched(all, &noted, &received),
            None if noted.is_optional => drop(self.overdue.add(all, subject, noted)),
            None => drop(self.expected.add(all, subject, noted)),
        }
        if self.overdue.len() > UNMATCHED_MAX
            && let Some((_, _, oldest)) = self.overdue.take_oldest()
            && !oldest.is_optional
        {
            self.miss(&oldest, None);
        }
    }

    fn is_release_of_missing(&self, connection: u64, kind: &Kind) -> bool {
        let session = self.links.get(&connection).and_then(|link| link.session);
        match (kind, session) {
            (Kind::Release(packet_id), Some(number)) => {
                !self.sessions[number as usize].packet_ids.contains_key(packet_id)
            }
            _ => false,
        }
    }

    /// Notes the effects of a recorded packet.
    fn note_recorded(&mut self, connection: u64, seen: &Seen) {
        let step = self.now.step;
        let Some(link) = self.links.get_mut(&connection) else { return };
        let session = link.session.map(|number| &mut self.sessions[number as usize]);
        match &seen.kind {
            Kind::ConnAck { session_present, assigned_client_id, offers, .. } => {
                link.offers = Some(offers.clone());
                link.assigned_client_id.clone_from(assigned_client_id);
                if let Some(session) = session {
                    session.changes.answer(link.connect_step, step);
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
                None => {}
            },
            Kind::Message(Message { packet_id: Some(packet_id), .. }) => {
                if let Some(session) = session {
                    session.packet_ids.remove(packet_id);
                }
            }
            Kind::End => {
                link.has_server_ended = true;
                match (link.end_step, session) {
                    (Some(sent), Some(session)) => session.changes.answer(sent, step),
                    _ => self.end_session(connection),
                }
            }
            _ => {}
        }
    }

    /// Notes a packet of the replay. Returns the bytes with which the client has to answer at once: a message of a shared
    /// subscription may have arrived at another client in the recording, which then acknowledged it.
    pub(crate) fn receive(&mut self, connection: u64, seen: Seen) -> Vec<u8> {
        let Some(link) = self.links.get_mut(&connection) else { return Vec::new() };
        if seen.kind == Kind::End {
            link.is_over = true;
        }
        if link.is_ignored {
            return Vec::new();
        }
        let mut answer = Vec::new();
        if let Some(number) = link.session {
            answer = self.answer_pooled(number, &seen.kind);
        }
        self.compare_offers(connection, &seen.kind);
        let Some((all, subject, noted)) = self.noted(Side::Replay, connection, seen) else { return answer };
        if let Some(expected) = self.expected.take_equal(all) {
            self.matched(all, &expected, &noted);
        } else if let Some(expected) = self.overdue.take_equal(all) {
            self.report.late += u64::from(!expected.is_optional);
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
        answer
    }

    /// Judges messages that were not recorded until some time after their arrival, and returns their acknowledgements: no
    /// recorded client acknowledges them, and a server stops sending when too many are not acknowledged.
    ///
    /// The verdict is found now, because later the changes of the session are forgotten.
    pub(crate) fn sweep(&mut self) -> Vec<(u64, Vec<u8>)> {
        let mut answers = Vec::new();
        while let Some((number, time)) = self.fresh.front().copied()
            && time + VERDICT_AFTER < self.now.time
        {
            self.fresh.pop_front();
            let Some((all, subject, mut noted)) = self.received.take_entry(number) else { continue };
            noted.verdict = Some(self.verdict(all, &noted));
            let is_over = self.links.get(&noted.connection).is_none_or(|link| link.is_over);
            if let (Kind::Message(message), Some(session), false) = (&noted.seen.kind, noted.session, is_over)
                && noted.scope != Scope::Pool
            {
                let session = &mut self.sessions[session as usize];
                if let Some(exchange) =
                    message.packet_id.and_then(|id| session.exchanges(Side::Replay).get_mut(&id))
                {
                    // PUBREL is then answered at once too.
                    exchange.is_pooled = true;
                }
                answers.push((noted.connection, acknowledgement(message)));
            }
            self.received.add(all, subject, noted);
        }
        answers
    }

    /// The verdict on a message that was not recorded.
    fn verdict(&self, all: u64, received: &Noted) -> Verdict {
        let Kind::Message(message) = &received.seen.kind else { return Verdict::Extra };
        // The answer to the last publications may be behind the end of the recording, but not a repetition.
        let end = self.end.filter(|_| !self.past.is_repetition(all, message));
        let in_doubt = |past: &Past, session: &Session| past.may_be_extra(message, end, &session.changes);
        // The server sends a message again whose acknowledgement was under way when the connection ended.
        if message.dup || self.is_in_doubt(received, in_doubt) { Verdict::InDoubt } else { Verdict::Extra }
    }

    /// The answer to a packet about a message of a shared subscription.
    fn answer_pooled(&mut self, number: u32, kind: &Kind) -> Vec<u8> {
        let session = &mut self.sessions[number as usize];
        match kind {
            Kind::Message(message) if session.shares(message.topic.name()) => acknowledgement(message),
            Kind::Release(packet_id) => {
                let exchange = session.exchanges(Side::Replay).get_mut(packet_id);
                let is_pooled = exchange.is_some_and(|exchange| {
                    exchange.is_released = true;
                    exchange.is_pooled
                });
                let [high, low] = packet_id.to_be_bytes();
                if is_pooled { vec![0x70, 2, high, low] } else { Vec::new() }
            }
            _ => Vec::new(),
        }
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

    /// Makes the entry of a packet, with the hashes of its equals and of its subject. `None` if it is not compared.
    fn noted(&mut self, side: Side, connection: u64, seen: Seen) -> Option<(u64, u64, Noted)> {
        let session = self.links.get(&connection)?.session;
        let mut scope = Scope::Connection(connection);
        let mut all = seen.all;
        if let Some(number) = session {
            let state = &mut self.sessions[number as usize];
            match &seen.kind {
                Kind::Message(message) => {
                    let is_pooled = state.shares(message.topic.name());
                    scope = if is_pooled { Scope::Pool } else { Scope::Session(number) };
                    if is_pooled {
                        all = message.content;
                    }
                    if let Some(packet_id) = message.packet_id {
                        let exchange = Exchange { content: message.content, is_pooled, is_released: false };
                        state.exchanges(side).insert(packet_id, exchange);
                    }
                }
                Kind::Release(packet_id) => {
                    scope = Scope::Session(number);
                    if let Some(exchange) = state.exchanges(side).get(packet_id) {
                        if exchange.is_pooled {
                            return None;
                        }
                        all = hash((seen.all, exchange.content));
                    }
                }
                _ => {}
            }
        }
        if side == Side::Replay {
            self.arrivals += 1;
        }
        let (all, subject) = (hash((scope, all)), hash((scope, seen.about)));
        let (moment, arrival) = (self.now, self.arrivals);
        Some((
            all,
            subject,
            Noted { moment, connection, session, scope, seen, arrival, is_optional: false, verdict: None },
        ))
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
        if let (Some(then), Some(now), None) = (recorded.packet_id, replayed.packet_id, received.verdict) {
            self.sessions[number as usize].packet_ids.insert(then, now);
        }
        let Some(stream) = self.stream(recorded).filter(|_| !replayed.dup) else { return };
        let place = Place { step: expected.moment.step, arrival: received.arrival };
        if self.sessions[number as usize].is_out_of_order(stream, place) {
            self.tell(DifferenceKind::OutOfOrder, expected, None, Some(&received.seen.shown));
        }
    }

    /// The packet identifier with which a client acknowledges a message in the replay. `None` if the client sends nothing.
    pub(crate) fn packet_id_now(
        &mut self,
        connection: u64,
        packet_type: PacketType,
        recorded: u16,
    ) -> Option<u16> {
        let session = self.links.get(&connection)?.session?;
        let session = &mut self.sessions[session as usize];
        let exchange = session.exchanges(Side::Recording).get(&recorded);
        if exchange.is_some_and(|exchange| exchange.is_pooled) {
            return None;
        }
        let now = *session.packet_ids.get(&recorded)?;
        let exchange = session.exchanges(Side::Replay).get_mut(&now).filter(|exchange| !exchange.is_released);
        if let Some(exchange) = exchange.filter(|_| packet_type == PacketType::PubComp) {
            // PUBCOMP in front of PUBREL would be an error. PUBREL is answered when it arrives.
            exchange.is_pooled = true;
            return None;
        }
        if packet_type != PacketType::PubRec {
            session.exchanges(Side::Replay).remove(&now);
        }
        Some(now)
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

    /// Stops before the end of the recording: packets that have not arrived yet are not missing.
    pub(crate) fn interrupt(&mut self) {
        while self.expected.take_oldest().is_some() {}
    }

    /// Gives up waiting for messages that are in doubt, and for those that a later message has overtaken.
    pub(crate) fn give_up_hopeless(&mut self) {
        for _ in 0..self.expected.len() {
            let Some((all, subject, mut noted)) = self.expected.take_oldest() else { return };
            noted.is_optional = self.may_be_missing(&noted);
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

    /// The messages among which this one has to keep its order. `None` if nothing is known about its order.
    fn stream(&self, message: &Message) -> Option<Stream> {
        let publication = self.past.of(message).filter(|publication| !publication.is_shared)?;
        let topic = hash(message.topic.name().as_str());
        (!message.dup && !message.retain).then_some((publication.publisher, topic, message.qos))
    }

    /// Gives up waiting for packets that have not arrived in time.
    pub(crate) fn give_up(&mut self) {
        while let Some((all, subject, noted)) = self.expected.take_oldest() {
            let is_ignored = self.links.get(&noted.connection).is_some_and(|link| link.is_ignored);
            if !is_ignored {
                // The hashes stay the same, and so a late packet is still found.
                self.overdue.add(all, subject, noted);
            }
        }
    }

    /// Ends the comparison, and returns the report.
    pub(crate) fn finish(mut self) -> Report {
        self.end = Some(self.now);
        self.give_up();
        // Connections that are open at the end of the recording end here.
        while let Some((_, subject, expected)) = self.overdue.take_oldest() {
            if expected.is_optional || self.may_be_missing(&expected) {
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
    fn may_be_missing(&self, expected: &Noted) -> bool {
        let Kind::Message(message) = &expected.seen.kind else { return false };
        self.is_in_doubt(expected, |past, session| {
            past.may_be_missing(message, expected.moment, &session.changes)
        })
    }

    /// Reports a recorded packet that has not arrived, or has arrived with other content.
    fn miss(&mut self, expected: &Noted, received: Option<&Noted>) {
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
    fn exceed(&mut self, all: u64, received: &Noted) {
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
    fn is_taken_over(&self, connection: u64) -> bool {
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

/// The first answer of a client to a message.
fn acknowledgement(message: &Message) -> Vec<u8> {
    match (message.qos, message.packet_id.and_then(PacketId::new)) {
        (Qos::AtLeastOnce, Some(packet_id)) => brief_puback(packet_id).to_vec(),
        (Qos::ExactlyOnce, Some(packet_id)) => brief_pubrec(packet_id).to_vec(),
        _ => Vec::new(),
    }
}
