//! State of a connection without the waiting: the protocol, pending answers, and bytes in and out.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::Now;
use session::client::{self as protocol, Client, Event, Outgoing, Receipt, Settings, Stored, TimedOut};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use topic::TopicFilterBuf;
use wire::{
    ConnAckProperties, Connect, Decoded, Disconnect, DisconnectReason, Limits, Packet, PacketId, PacketType,
    PingResp, Qos, ReasonCode, Role, Version, Violation, decode,
};

use crate::authentication::{Exchange, too_long};
use crate::buffers::{Input, Output};
use crate::client::unix_ms;
use crate::command::{Command, End, Reply, Unwanted};
use crate::counters::Counters;
use crate::error::{ConnectError, DisconnectError, Ended, PublishError, may_pass};
use crate::message::{Accepted, Decision, Message, Owed};
use crate::options::{Acknowledge, Options, PING_TIMEOUT};
use crate::outlet::Room;
use crate::owned::OwnedDisconnect;
use crate::requests::Request;
use crate::restored::tags;
use crate::routes::{KEPT, Routes};
use crate::server::{Server, owned};
use crate::state::State;

/// While at least this many messages wait for their turn behind those in flight, no command is accepted.
const WAITING_MESSAGES_MAX: usize = 1_000;

/// Maximum size of a packet other than PUBLISH.
///
/// A real server's packet is much smaller. User Properties take about twenty times their size in memory when the client
/// copies them, and CONNACK arrives before the server has proved anything.
const CONTROL_BYTES_MAX: usize = 1 << 20;

/// Channel to the caller who waits for the first CONNACK. The answer is the CONNACK and the state to watch.
pub(crate) type Connecting = oneshot::Sender<Result<(Arc<Server>, watch::Receiver<State>), ConnectError>>;

pub(crate) struct Engine {
    /// The protocol's state machine. Each message's tag is the key of its answer in `publishing`.
    pub(crate) session: Client<u64>,
    pub(crate) options: Options,
    /// The caller who waits for the first CONNACK; `None` after it.
    connecting: Option<Connecting>,
    /// The state that handles watch; `None` before the first CONNACK.
    state: Option<watch::Sender<State>>,
    pub(crate) has_identifiers: bool,
    publishing: HashMap<u64, Reply<ReasonCode, PublishError>>,
    published: u64,
    /// Tags of the messages of earlier programs, for whose outcome no caller waits.
    pub(crate) restored: HashSet<u64>,
    /// Callers who wait until the session is stored.
    pub(crate) stored: Vec<oneshot::Sender<()>>,
    pub(crate) requests: HashMap<PacketId, Request>,
    pub(crate) exchange: Exchange,
    pub(crate) routes: Routes,
    acknowledge: mpsc::UnboundedSender<Accepted>,
    pub(crate) unwanted: Unwanted,
    /// Subscriptions that nobody wants, and that the server may still have. They end on the next connection.
    pub(crate) unwanted_later: Vec<TopicFilterBuf>,
    pub(crate) counters: Arc<Counters>,
    /// Messages that were dropped without being accepted, and the time at which the client accepts them instead.
    abandoned: VecDeque<(Instant, Receipt)>,
    closing: Option<Closing>,
    /// The channel of commands is closed and empty.
    has_all: bool,
    /// The client has sent DISCONNECT because the application asked for the end, or because no handle is left.
    has_left: bool,
    /// Attempts to connect since the last connection that lasted.
    attempts: u32,
    /// Time at which the server accepted this connection.
    accepted_at: Option<Instant>,
    /// Streams have no room, and nothing is read.
    is_paused: bool,
    /// Start of the current period in which nothing is read, nobody takes messages, and an answer is awaited.
    stuck_since: Option<Instant>,
    input: Input,
    /// Reused memory in which messages are put together.
    scratch: Vec<u8>,
    pub(crate) output: Output,
    /// Time at which the socket last accepted bytes, or at which reading resumed if that was later.
    moved_at: Instant,
    start: Instant,
    /// Time at which this turn began.
    now: Now,
}

/// State of a connection that is to end: no new commands are accepted.
///
/// The connection ends when all commands are carried out and no message is in flight, or at `due`.
struct Closing {
    due: Instant,
    /// Number of messages that have failed since the end was requested.
    failed: usize,
    packet: OwnedDisconnect,
    /// Reason why the requested DISCONNECT could not be sent.
    error: Option<protocol::DisconnectError>,
    /// `None` if the last handle was dropped: then nobody waits for the outcome.
    reply: Option<Reply<(), DisconnectError>>,
}

impl Engine {
    /// Makes an engine, and puts CONNECT into the output.
    pub(crate) fn new(
        options: Options,
        connecting: Connecting,
        (acknowledge, unwanted): (mpsc::UnboundedSender<Accepted>, Unwanted),
        counters: Arc<Counters>,
        stored: Option<Stored<u64>>,
    ) -> Result<Self, ConnectError> {
        let (exchange, data) = Exchange::begin(options.authenticators());
        let connect = options.connect(data.as_deref())?;
        let restored = stored.as_ref().map(tags).unwrap_or_default();
        let mut session = session_of(&connect, stored, options.settings());
        let mut output = Output::default();
        let start = Instant::now();
        session.connect(&connect, now(start), &mut output.bytes).map_err(ConnectError::Protocol)?;
        let routes = Routes::new(options.bounds());
        Ok(Self {
            session,
            options,
            connecting: Some(connecting),
            state: None,
            has_identifiers: false,
            publishing: HashMap::new(),
            published: restored.iter().copied().max().unwrap_or_default(),
            restored,
            stored: Vec::new(),
            requests: HashMap::new(),
            exchange,
            routes,
            acknowledge,
            unwanted,
            unwanted_later: Vec::new(),
            counters,
            abandoned: VecDeque::new(),
            closing: None,
            has_all: false,
            has_left: false,
            attempts: 0,
            accepted_at: None,
            is_paused: false,
            stuck_since: None,
            input: Input::default(),
            scratch: Vec::new(),
            output,
            moved_at: start,
            start,
            now: now(start),
        })
    }

    /// Begins another connection, and puts CONNECT into the output.
    pub(crate) fn connect(&mut self) -> Result<(), Ended> {
        self.begin_turn();
        let now = self.now();
        let (exchange, data) = Exchange::begin(self.options.authenticators());
        self.exchange = exchange;
        // The first CONNECT had the same options, and there is no connection. Only an authenticator can make this
        // fail, with data of more than 65,535 bytes.
        let connect = self.options.connect_again(data.as_deref()).map_err(|_| too_long())?;
        let sent = self.session.connect(&connect, now, &mut self.output.bytes);
        sent.map_err(|error| Ended::AuthenticationUnsent(error.to_string()))
    }

    /// Prepares for another connection after this one is lost.
    ///
    /// Requests without an answer fail. Messages of QoS 1 and 2 are kept, and sent again if the server still has
    /// the session.
    pub(crate) fn suspend(&mut self, ended: &Ended) {
        self.session.connection_lost();
        if self.accepted_at.take().is_some_and(|since| self.has_lasted(since)) {
            self.attempts = 0;
        }
        self.input = Input::default();
        self.output = Output::default();
        self.routes.forget_unclaimed();
        self.routes.stop_passing(false);
        self.stuck_since = None;
        self.abandoned.clear();
        self.fail_requests(ended);
        self.exchange.fail(ended);
        self.change_state(State::Reconnecting(ended.clone()));
        self.tell_failed();
    }

    fn has_lasted(&self, since: Instant) -> bool {
        self.options.reconnect.is_some_and(|back_off| since.elapsed() >= back_off.success())
    }

    /// Reports an attempt to connect that has failed.
    pub(crate) fn tried_in_vain(&mut self, why: Ended) {
        self.change_state(State::Reconnecting(why));
    }

    /// Moves received messages into streams that have room for them.
    pub(crate) fn flush_streams(&mut self) {
        self.routes.flush();
    }

    /// Whether another attempt to connect may succeed.
    pub(crate) fn may_reconnect(&self, ended: &Ended) -> bool {
        let was_accepted = self.state.is_some();
        was_accepted && !self.has_left && may_pass(ended)
    }

    /// Counts an attempt to connect, and returns the number of earlier attempts.
    pub(crate) fn count_attempt(&mut self) -> u32 {
        let before = self.attempts;
        self.attempts = before.saturating_add(1);
        before
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.options.connect_timeout
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    pub(crate) fn closing_due(&self) -> Option<Instant> {
        self.closing.as_ref().map(|closing| closing.due)
    }

    /// All commands have been carried out, and no more can arrive.
    pub(crate) fn has_all(&self) -> bool {
        self.has_all
    }

    /// The connection is to end, and nothing remains to be delivered.
    pub(crate) fn is_done(&self) -> bool {
        let is_idle = self.session.in_flight() == 0 && self.session.waiting_messages() == 0;
        self.is_closing() && self.has_all && is_idle
    }

    /// Time limit for the last bytes to leave: at least `least` from now.
    ///
    /// After a requested end, the rest of the application's own time limit applies if it is longer.
    pub(crate) fn farewell_due(&self, ended: &Ended, least: Duration) -> Instant {
        let due = Instant::now() + least;
        let closing = self.closing.as_ref().filter(|_| matches!(ended, Ended::ByUs));
        closing.map_or(due, |closing| due.max(closing.due))
    }

    /// The buffer for received bytes, and the bytes to be written.
    pub(crate) fn buffers(&mut self) -> (&mut Vec<u8>, &[u8]) {
        self.trace_output();
        (self.input.buffer(), self.output.rest())
    }

    /// Whether the driver may read: streams have room, and the server reads the answers to its packets.
    pub(crate) fn may_read(&self) -> bool {
        self.has_room() && !self.output.is_full_of_answers()
    }

    /// Whether streams have room for messages. Before CONNACK they always have, because no message can arrive.
    fn has_room(&self) -> bool {
        self.routes.has_room() || !self.session.is_connected()
    }

    /// Drops all bytes that wait for the socket, because nobody will read them.
    pub(crate) fn discard_output(&mut self) {
        self.output = Output::default();
    }

    pub(crate) fn may_command(&self) -> bool {
        self.session.is_connected() && !self.has_all && self.session.waiting_messages() < WAITING_MESSAGES_MAX
    }

    pub(crate) fn output_bytes(&self) -> usize {
        self.output.rest().len()
    }

    /// The streams that have no room for messages that wait for them.
    pub(crate) fn full_streams(&mut self) -> Vec<Room> {
        self.routes.full()
    }

    /// Reports the end to the handles. `unsent` is the number of messages that are still in the queue of commands.
    pub(crate) fn finish(&mut self, ended: &Ended, unsent: usize) {
        self.change_state(State::Ended(ended.clone()));
        let Some(Closing { error, failed, reply: Some(reply), .. }) = self.closing.take() else { return };
        let unacknowledged = self.publishing.len() + self.restored.len() + failed + unsent;
        let outcome = match (ended, unacknowledged, error) {
            (Ended::ByUs, 0, None) => Ok(()),
            (Ended::ByUs, 0, Some(error)) => Err(DisconnectError::Protocol(error)),
            (Ended::ByUs, messages, _) => Err(DisconnectError::Unacknowledged { messages }),
            (ended, ..) => Err(DisconnectError::Ended(ended.clone())),
        };
        // The caller may have dropped its future.
        let _ = reply.send(outcome);
    }

    /// Time at which [`handle_timeout`](Self::handle_timeout) is to be called.
    ///
    /// While streams are full and nothing is read, no request is late: its answer may have arrived unread.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let session = self.session_due();
        let requests = self.requests_due().filter(|_| self.has_room());
        [session, requests, self.closing_due(), self.abandoned_due(), self.stuck_due()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Time at which the oldest unanswered request is late.
    fn requests_due(&self) -> Option<Instant> {
        self.requests.values().map(|request| request.due).chain(self.exchange.due()).min()
    }

    /// Time at which the state machine has something to do.
    ///
    /// PINGREQ is not queued behind bytes that wait for the socket, because its answer would seem late. As long as
    /// the socket accepts bytes, the server is alive. While streams are full and nothing is read, no deadline applies to
    /// a backlog: the server may itself be waiting for the client to read.
    fn session_due(&self) -> Option<Instant> {
        let due = self.start + Duration::from_millis(self.session.poll_timeout()?);
        if self.has_backlog() {
            return self.has_room().then(|| due.max(self.moved_at) + PING_TIMEOUT);
        }
        Some(due)
    }

    fn has_backlog(&self) -> bool {
        self.session.is_connected() && !self.output.rest().is_empty()
    }

    pub(crate) fn handle_timeout(&mut self) -> Result<(), Ended> {
        let at = Instant::now();
        if !self.has_room() {
            self.assume_heard();
        }
        if self.session_due().is_some_and(|due| due <= at) {
            if self.has_backlog() {
                return Err(Ended::TimedOut(TimedOut::Ping));
            }
            let timed_out = self.session.handle_timeout(now(self.start), &mut self.output.bytes);
            timed_out.map_err(Ended::TimedOut)?;
        }
        if self.has_room() && self.requests_due().is_some_and(|due| due <= at) {
            return Err(Ended::RequestTimedOut);
        }
        if self.closing_due().is_some_and(|due| due <= at) {
            return Err(self.disconnect());
        }
        if self.abandoned_due().is_some_and(|due| due <= at) {
            self.accept_abandoned(at);
        }
        if self.stuck_due().is_some_and(|due| due <= at) { self.pass() } else { Ok(()) }
    }

    /// Treats the answer to PINGREQ as received, while it cannot be expected or is not needed.
    ///
    /// While nothing is read, the answer is not read either, and a slow application would lose the connection.
    /// While the server accepts bytes, it is alive.
    fn assume_heard(&mut self) {
        let now = self.now();
        if self.session.is_connected() {
            // PINGRESP is valid at any time, and needs no answer.
            let _ = self.session.handle_packet(PingResp.into(), now, &mut self.output.bytes);
        }
    }

    pub(crate) fn handle_written(&mut self, count: usize) -> Result<(), Ended> {
        let was_full = self.output.is_full_of_answers();
        self.output.advance(count);
        if count > 0 {
            self.moved_at = Instant::now();
        }
        if self.has_backlog() {
            self.assume_heard();
        }
        // Packets whose answers had no room may be in the buffer.
        if was_full && !self.output.is_full_of_answers() { self.handle_input() } else { self.settle() }
    }

    /// Handles received bytes, after a read, after streams have gained room, or after answers were written.
    pub(crate) fn handle_input(&mut self) -> Result<(), Ended> {
        if self.routes.flush() {
            self.stuck_since = None;
        }
        let mut input = std::mem::take(&mut self.input);
        let (mut handled, mut packet_bytes, mut outcome) = (0, 0, Ok(()));
        while outcome.is_ok() && self.may_read() && self.session.version().is_some() {
            let rest = &input.rest()[handled..];
            match decode(rest, self.session.version(), &self.limits(rest)) {
                Ok(Decoded::Packet { packet, len }) => {
                    handled += len;
                    if let Some(trace) = &self.options.trace {
                        trace.0(Role::Server, &packet);
                    }
                    outcome = self.handle_packet(packet);
                }
                Ok(Decoded::Need { total }) => {
                    packet_bytes = total.unwrap_or_default();
                    break;
                }
                Err(violation) => outcome = Err(self.violated(violation)),
            }
        }
        input.advance(handled, packet_bytes);
        self.input = input;
        self.routes.flush();
        outcome?;
        self.settle()
    }

    /// Limits of the server's next packet, which begins with these bytes.
    ///
    /// Before MQTT 5 the server cannot be told of the largest packet, and the limit applies nevertheless.
    fn limits(&self, packet: &[u8]) -> Limits {
        let is_publish = packet.first().is_some_and(|first| first >> 4 == PacketType::Publish as u8);
        let most = if is_publish { usize::MAX } else { CONTROL_BYTES_MAX };
        let limits = self.session.limits();
        let own = self.options.largest_packet_bytes().get() as usize;
        Limits { max_packet_bytes: limits.max_packet_bytes.min(own).min(most), ..limits }
    }

    /// Carries out commands in their order. An empty list means that there are no more.
    pub(crate) fn handle_commands(&mut self, commands: Vec<Command>) -> Result<(), Ended> {
        self.has_all |= commands.is_empty();
        for command in commands {
            match command {
                Command::Publish { message, reply } => self.publish(&message, reply),
                Command::Subscribe { filter, options, is_for_answers, reply } => {
                    self.subscribe(filter, options, is_for_answers, reply);
                }
                Command::Unsubscribe { filter, reply } => self.unsubscribe(filter, reply),
                Command::Inbox(outlet) => {
                    let receipts = self.routes.set_inbox(outlet);
                    self.accept_at_once(receipts);
                }
                Command::SubscribeMany { subscribe, reply } => self.subscribe_many(subscribe, reply),
                Command::UnsubscribeMany { unsubscribe, reply } => self.unsubscribe_many(unsubscribe, reply),
                Command::Reauthenticate(reply) => self.reauthenticate(reply),
                Command::Stored(reply) => self.stored.push(reply),
            }
        }
        // A new stream may have taken the messages that had stopped reading. Packets behind them may be in the buffer.
        if self.is_paused && self.may_read() { self.handle_input() } else { self.settle() }
    }

    pub(crate) fn handle_accepted(&mut self, accepted: &Accepted) {
        let now = self.now();
        match accepted.decision {
            Decision::Answered(reason) => {
                let start = self.output.bytes.len();
                self.session.acknowledge(accepted.receipt, reason, now, &mut self.output.bytes);
                self.output.count_answers(start);
            }
            Decision::Abandoned => self.abandoned.push_back((Instant::now() + KEPT, accepted.receipt)),
            Decision::Lost => {
                self.counters.unacknowledged.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Accepts messages that nobody takes. Acknowledgements leave in order, and others wait behind these.
    fn accept_abandoned(&mut self, at: Instant) {
        while let Some((_, receipt)) = self.abandoned.pop_front_if(|(due, _)| *due <= at) {
            self.accept_at_once([receipt]);
        }
        let unclaimed = self.routes.give_up();
        self.accept_at_once(unclaimed);
    }

    /// Time of the next [`accept_abandoned`](Self::accept_abandoned). While the connection ends there is none: the
    /// messages are sent again on the next connection.
    fn abandoned_due(&self) -> Option<Instant> {
        let abandoned = self.abandoned.front().map(|(due, _)| *due);
        [abandoned, self.routes.give_up_due()].into_iter().flatten().min().filter(|_| !self.is_closing())
    }

    pub(crate) fn accept_at_once(&mut self, receipts: impl IntoIterator<Item = Receipt>) {
        let success = |receipt| Accepted { receipt, decision: Decision::Answered(ReasonCode::Success) };
        receipts.into_iter().for_each(|receipt| self.handle_accepted(&success(receipt)));
    }

    /// Applies the consequences of any change.
    ///
    /// Failed messages are reported. When reading resumes, pending requests get their full time again. A connection
    /// that is to close ends once nothing is in flight.
    fn settle(&mut self) -> Result<(), Ended> {
        self.tell_failed();
        let is_awaited = self.is_awaited();
        self.routes.stop_passing(is_awaited);
        let is_paused = !self.has_room();
        let was_paused = std::mem::replace(&mut self.is_paused, is_paused);
        if was_paused && !self.is_paused {
            self.assume_heard();
            self.postpone_requests();
            self.moved_at = Instant::now();
        }
        let is_stuck = self.is_paused && is_awaited;
        self.stuck_since = is_stuck.then(|| self.stuck_since.unwrap_or_else(Instant::now));
        let is_over = self.is_done() && self.output.rest().is_empty();
        if is_over { Err(self.disconnect()) } else { Ok(()) }
    }

    /// Whether the client waits for the server: for an answer, or for the server to read.
    ///
    /// The server may not read before the client reads the server's own packets.
    fn is_awaited(&self) -> bool {
        !self.publishing.is_empty()
            || !self.requests.is_empty()
            || self.exchange.due().is_some()
            || !self.output.rest().is_empty()
    }

    fn stuck_due(&self) -> Option<Instant> {
        let since = self.stuck_since?;
        match (self.is_closing(), self.routes.is_passing()) {
            // While closing, messages are skipped once and without delay. `closing.due` then ends the wait.
            (true, is_passing) => (!is_passing).then_some(since),
            (false, _) => Some(since + self.options.request_timeout),
        }
    }

    /// Skips messages that have no room, to reach the awaited answer behind them.
    ///
    /// The caller who waits for that answer may be the one who should take the messages. Messages of QoS 0 are
    /// dropped, and messages of QoS 1 and 2 wait up to a higher bound. If messages were already being skipped, the
    /// connection ends.
    fn pass(&mut self) -> Result<(), Ended> {
        if self.routes.is_passing() {
            return Err(self.give_up(Ended::Unread, DisconnectReason::QuotaExceeded));
        }
        self.routes.pass();
        self.stuck_since = None;
        self.handle_input()
    }

    fn tell_failed(&mut self) {
        while let Some(failed) = self.session.next_failed() {
            if let Some(reply) = self.publishing.remove(&failed.tag) {
                if let Some(closing) = &mut self.closing {
                    closing.failed += 1;
                }
                let _ = reply.send(Err(PublishError::Protocol(failed.why)));
            } else {
                self.restored_failed(failed);
            }
        }
    }

    /// Begins the end of the connection. `None` stands for the last handle having been dropped.
    pub(crate) fn close(&mut self, end: Option<End>) -> Result<(), Ended> {
        let plain = || OwnedDisconnect::new(&Disconnect::new(DisconnectReason::NormalDisconnection));
        let (packet, reply) =
            end.map_or_else(|| (plain(), None), |End { packet, reply }| (packet, Some(reply)));
        let due = Instant::now() + self.options.flush_timeout;
        self.closing = Some(Closing { due, failed: 0, packet, error: None, reply });
        self.settle()
    }

    /// Puts DISCONNECT into the output, if there is a connection.
    fn disconnect(&mut self) -> Ended {
        use protocol::DisconnectError::NotConnected;
        self.has_left = true;
        let into = &mut self.output.bytes;
        if let Some(closing) = &mut self.closing {
            let OwnedDisconnect { reason, session_expiry_interval_secs: secs, .. } = closing.packet;
            let sent = self.session.disconnect(reason, secs, &closing.packet.details(), into);
            closing.error = sent.err().filter(|error| *error != NotConnected);
        }
        // Plain DISCONNECT, for a dropped last handle or a packet that could not be sent. After a first DISCONNECT
        // this call does nothing.
        let reason = DisconnectReason::NormalDisconnection;
        let _ = self.session.disconnect(reason, None, &session::Details::default(), into);
        Ended::ByUs
    }

    /// Ends the connection with DISCONNECT and the nearest reason that a client may send.
    pub(crate) fn give_up(&mut self, why: Ended, reason: DisconnectReason) -> Ended {
        let details = session::Details::default();
        // Fails if there is no connection; then nobody needs to be told.
        let _ = self.session.disconnect(reason, None, &details, &mut self.output.bytes);
        why
    }

    fn change_state(&mut self, state: State) {
        if let Some(sender) = &self.state {
            sender.send_replace(state);
        }
    }

    /// Passes the packets written since the last call to the trace function.
    fn trace_output(&mut self) {
        let Some(trace) = &self.options.trace else { return };
        let limits = Limits { sender: Some(Role::Client), ..Limits::default() };
        while let rest = self.output.untraced()
            && let Some(first) = rest.first()
        {
            // CONNECT carries its version itself.
            let is_connect = first >> 4 == PacketType::Connect as u8;
            let version = Some(self.options.version).filter(|_| !is_connect);
            let Ok(Decoded::Packet { packet, len }) = decode(rest, version, &limits) else { return };
            trace.0(Role::Client, &packet);
            self.output.trace(len);
        }
    }

    fn publish(&mut self, message: &base::Message, reply: Reply<ReasonCode, PublishError>) {
        // The caller may have dropped the acknowledgement.
        match self.begin_publishing(message) {
            Ok(_) if message.qos() == Qos::AtMostOnce => {
                let _ = reply.send(Ok(ReasonCode::Success));
            }
            Ok(tag) => {
                self.publishing.insert(tag, reply);
            }
            Err(error) => {
                let _ = reply.send(Err(PublishError::Protocol(error)));
            }
        }
    }

    /// Gives a message to the session, and returns its tag, which is larger than all tags before.
    pub(crate) fn begin_publishing(
        &mut self,
        message: &base::Message,
    ) -> Result<u64, protocol::PublishError> {
        let now = self.now();
        let outgoing = Outgoing::new(message.topic(), message.payload())
            .qos(message.qos())
            .retain(message.retain())
            .properties(message.publish(now).properties);
        self.published += 1;
        self.session.publish(&outgoing, self.published, now, &mut self.output.bytes).map(|_| self.published)
    }

    fn handle_packet(&mut self, packet: Packet<'_>) -> Result<(), Ended> {
        let now = self.now();
        // These packets make room for messages of the application, which may leave now.
        let is_answered = !matches!(packet, Packet::ConnAck(_) | Packet::PubAck(_) | Packet::PubComp(_));
        let start = self.output.bytes.len();
        let event = match self.session.handle_packet(packet, now, &mut self.output.bytes) {
            Ok(event) => event,
            Err(violation) => return Err(self.violated(violation)),
        };
        if is_answered {
            self.output.count_answers(start);
        }
        match event {
            Event::Connected { session_present, properties } => {
                self.accepted(session_present, &properties)?;
            }
            Event::Refused { reason, properties } => {
                let text = owned(properties.reason_string);
                let server_reference = owned(properties.server_reference);
                if let Some(connecting) = self.connecting.take() {
                    // The caller may have dropped its future.
                    let _ = connecting.send(Err(ConnectError::Refused { reason, text, server_reference }));
                }
                return Err(Ended::Refused(reason));
            }
            Event::Message { message, receipt } => {
                let is_automatic = self.options.acknowledge == Acknowledge::AtOnce;
                let to = self.acknowledge.clone();
                let owed = receipt.map(|receipt| Arc::new(Owed::new(receipt, is_automatic, to)));
                let owned = Message::new(&message, owed, &mut self.scratch);
                let receipt = self.routes.deliver(owned, message.topic());
                self.accept_at_once(receipt);
                while let Some(dropped) = self.routes.next_dropped() {
                    self.counters.unclaimed.fetch_add(1, Ordering::Relaxed);
                    self.accept_at_once([dropped]);
                }
            }
            Event::Published { tag, reason, properties, .. } => {
                if let Some(reply) = self.publishing.remove(&tag) {
                    let text = || owned(properties.reason_string);
                    let refused = || PublishError::Refused { reason, text: text() };
                    let _ = reply.send(if reason.is_error() { Err(refused()) } else { Ok(reason) });
                } else {
                    self.restored_published(tag, reason);
                }
            }
            Event::Subscribed(packet) => self.subscribed(&packet),
            Event::Unsubscribed(packet) => self.unsubscribed(&packet),
            Event::Disconnected(packet) => {
                let text = owned(packet.properties.reason_string);
                let server_reference = owned(packet.properties.server_reference);
                return Err(Ended::ByServer { reason: packet.reason, text, server_reference });
            }
            Event::Authenticate { data } => self.authenticate(data)?,
            Event::Authenticated { data } => self.authenticated(data)?,
            Event::None | Event::Released { .. } | Event::Received { .. } => {}
        }
        Ok(())
    }

    /// Reports CONNACK to the caller or the watchers. If the first caller is gone, ends the connection.
    fn accepted(&mut self, session_present: bool, properties: &ConnAckProperties<'_>) -> Result<(), Ended> {
        self.authenticated(properties.authentication_data)?;
        let version = self.session.version().unwrap_or(Version::V5);
        let server = Server::of(session_present, self.session.client_id(), version, properties);
        let server = Arc::new(server);
        self.has_identifiers = server.subscription_identifiers_available;
        self.accepted_at = Some(Instant::now());
        self.routes.begin_connection();
        let state = State::Connected(Arc::clone(&server));
        match self.connecting.take() {
            Some(connecting) => {
                let (sender, receiver) = watch::channel(state);
                self.state = Some(sender);
                if connecting.send(Ok((server, receiver))).is_err() {
                    return Err(self.disconnect());
                }
            }
            None => self.change_state(state),
        }
        // CONNACK of MQTT 3.1 does not say whether there is a session.
        if !session_present || version == Version::V3_1 {
            self.routes.session_is_new();
        }
        self.subscribe_again();
        self.end_unwanted_later(session_present);
        Ok(())
    }

    fn violated(&mut self, violation: Violation) -> Ended {
        self.session.answer(&violation, &mut self.output.bytes);
        Ended::Violation(violation)
    }

    /// Reads the clocks, once for all work of a turn.
    pub(crate) fn begin_turn(&mut self) {
        self.now = now(self.start);
    }

    /// Time at which this turn began.
    pub(crate) fn now(&self) -> Now {
        self.now
    }
}

/// Makes the session of a first connection.
///
/// Without Clean Start, the server may have a session that an earlier program left. An empty client identifier
/// cannot name one. A session store knows more about it.
fn session_of(connect: &Connect<'_>, stored: Option<Stored<u64>>, settings: Settings) -> Client<u64> {
    if let Some(stored) = stored {
        return Client::restore(stored, settings);
    }
    let has_session = !connect.clean_start && !connect.client_id.is_empty();
    let client_id = if has_session { connect.client_id.as_str().into() } else { Box::default() };
    let (under_way, waiting, unreleased) = (Vec::new(), Vec::new(), Vec::new());
    let is_inherited = has_session;
    Client::restore(Stored { client_id, has_session, is_inherited, under_way, waiting, unreleased }, settings)
}

fn now(start: Instant) -> Now {
    let since = Instant::now().duration_since(start).as_millis();
    Now { monotonic_ms: u64::try_from(since).unwrap_or(u64::MAX), unix_ms: unix_ms() }
}
