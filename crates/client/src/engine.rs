//! What a connection is at a moment, without the waiting: the protocol, who waits for which answer, bytes in and out.

use std::collections::HashMap;
use std::time::Duration;

use session::Now;
use session::client::{Acknowledge, Client, Event, Outgoing, Settings, Stored};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use topic::TopicFilterBuf;
use wire::{
    Decoded, Delivery, DisconnectReason, OneOrMore, Packet, PacketId, ReasonCode, SubAck,
    SubscribeProperties, Subscription, SubscriptionOptions, UnsubAck, UnsubscribeProperties, Violation,
    decode,
};

use crate::batch::{Batch, Batches, SubscribeMany, UnsubscribeMany};
use crate::client::unix_ms;
use crate::command::{Command, Reply};
use crate::error::{ConnectError, DisconnectError, Ended, PublishError, SubscribeError, UnsubscribeError};
use crate::message::{Accepted, Message, Messages, Owed};
use crate::options::{Options, Server};
use crate::routes::Routes;

/// So many messages wait for their turn behind those that are under way before no command is taken.
const WAITING_MESSAGES_MAX: usize = 1_000;

pub(crate) struct Engine {
    /// Messages come back with the number under which their answer is kept.
    session: Client<u64>,
    options: Options,
    /// Until CONNACK has come.
    connecting: Option<oneshot::Sender<Result<Server, ConnectError>>>,
    has_identifiers: bool,
    publishing: HashMap<u64, Reply<ReasonCode, PublishError>>,
    published: u64,
    requests: HashMap<PacketId, Request>,
    batches: Batches,
    routes: Routes,
    acknowledge: mpsc::UnboundedSender<Accepted>,
    closing: Option<Closing>,
    /// How often a connection was tried for since the last one that was accepted.
    attempts: u32,
    input: Vec<u8>,
    output: Output,
    start: Instant,
}

/// A SUBSCRIBE or UNSUBSCRIBE that has not been answered.
struct Request {
    due: Instant,
    filter: TopicFilterBuf,
    answer: Answer,
}

enum Answer {
    Subscribe(Reply<Messages, SubscribeError>, mpsc::Receiver<Message>),
    Unsubscribe(Reply<ReasonCode, UnsubscribeError>),
    /// Nobody waits for it.
    Nobody,
}

/// No more commands are taken: the connection ends when nothing is under way, or at this time.
struct Closing {
    due: Instant,
    reply: Option<Reply<(), DisconnectError>>,
}

/// Bytes on their way to the socket.
#[derive(Default)]
pub(crate) struct Output {
    bytes: Vec<u8>,
    written: usize,
}

impl Output {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    fn advance(&mut self, count: usize) {
        self.written += count;
        if self.written == self.bytes.len() {
            self.bytes.clear();
            self.written = 0;
        }
    }
}

impl Engine {
    /// CONNECT is in the output.
    pub(crate) fn new(
        options: Options,
        connecting: oneshot::Sender<Result<Server, ConnectError>>,
        acknowledge: mpsc::UnboundedSender<Accepted>,
    ) -> Result<Self, ConnectError> {
        let connect = options.connect()?;
        let mut session = session_of(&connect, options.settings());
        let mut output = Output::default();
        let start = Instant::now();
        session.connect(&connect, now(start), &mut output.bytes).map_err(ConnectError::Protocol)?;
        let routes = Routes::new(options.messages_max);
        Ok(Self {
            session,
            options,
            connecting: Some(connecting),
            has_identifiers: false,
            publishing: HashMap::new(),
            published: 0,
            requests: HashMap::new(),
            batches: Batches::default(),
            routes,
            acknowledge,
            closing: None,
            attempts: 0,
            input: Vec::new(),
            output,
            start,
        })
    }

    /// Begins another connection: CONNECT is in the output.
    pub(crate) fn connect(&mut self) -> Result<(), Ended> {
        let now = self.now();
        // The first CONNECT had the same options, and there is no connection.
        let connect = self.options.connect_again().map_err(|_| Ended::ByUs)?;
        self.session.connect(&connect, now, &mut self.output.bytes).map_err(|_| Ended::ByUs)
    }

    /// The connection is lost, and there will be another. What was asked for on this one and has no answer has failed;
    /// messages are sent again if the server still has the session.
    pub(crate) fn suspend(&mut self, ended: &Ended) {
        self.session.connection_lost();
        self.input.clear();
        self.output = Output::default();
        self.routes.forget_unclaimed();
        for (_, Request { filter, answer, .. }) in self.requests.drain() {
            match answer {
                Answer::Subscribe(reply, _) => {
                    self.routes.remove(filter.filter());
                    let _ = reply.send(Err(SubscribeError::Ended(ended.clone())));
                }
                Answer::Unsubscribe(reply) => {
                    let _ = reply.send(Err(UnsubscribeError::Ended(ended.clone())));
                }
                Answer::Nobody => {}
            }
        }
        self.batches.suspend(ended);
        self.tell_failed();
    }

    /// Whether another connection may go better.
    pub(crate) fn may_reconnect(&self, ended: &Ended) -> bool {
        use wire::ConnectRefusal::{QuotaExceeded, ServerBusy, ServerUnavailable};
        let was_accepted = self.connecting.is_none();
        was_accepted
            && self.closing.is_none()
            && match ended {
                // Two who take the session from each other would go on for ever.
                Ended::ByUs | Ended::ByServer(DisconnectReason::SessionTakenOver) => false,
                Ended::Refused(reason) => matches!(reason, ServerBusy | ServerUnavailable | QuotaExceeded),
                _ => true,
            }
    }

    /// How often it was tried before this time.
    pub(crate) fn count_attempt(&mut self) -> u32 {
        self.attempts += 1;
        self.attempts - 1
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        self.options.connect_timeout
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.is_some()
    }

    /// Where bytes are read to, and what is to be written.
    pub(crate) fn buffers(&mut self) -> (&mut Vec<u8>, &[u8]) {
        (&mut self.input, self.output.rest())
    }

    /// Not while a stream is full: nobody has room for what would come.
    pub(crate) fn may_read(&self) -> bool {
        self.routes.is_flushed()
    }

    pub(crate) fn may_command(&self) -> bool {
        self.session.is_connected()
            && self.closing.is_none()
            && self.session.waiting_messages() < WAITING_MESSAGES_MAX
    }

    pub(crate) fn output_bytes(&self) -> usize {
        self.output.rest().len()
    }

    /// The stream that reading waits for.
    pub(crate) fn full_stream(&self) -> Option<mpsc::Sender<Message>> {
        self.routes.full()
    }

    /// Messages of QoS 1 and 2 that the server has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.publishing.len()
    }

    pub(crate) fn take_disconnect(&mut self) -> Option<Reply<(), DisconnectError>> {
        self.closing.take().and_then(|closing| closing.reply)
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called. While nothing is read, nothing is late: what was
    /// waited for may have come.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let closing = self.closing.as_ref().map(|closing| closing.due);
        if !self.may_read() {
            return closing;
        }
        let session = self.session.poll_timeout().map(|ms| self.start + Duration::from_millis(ms));
        let requests = self.requests_due();
        [session, requests, closing].into_iter().flatten().min()
    }

    pub(crate) fn handle_timeout(&mut self) -> Result<(), Ended> {
        let at = Instant::now();
        if self.may_read() {
            self.session.handle_timeout(now(self.start), &mut self.output.bytes).map_err(Ended::TimedOut)?;
            if self.requests_due().is_some_and(|due| due <= at) {
                return Err(Ended::RequestTimedOut);
            }
        }
        if self.closing.as_ref().is_some_and(|closing| closing.due <= at) {
            return Err(self.disconnect());
        }
        Ok(())
    }

    /// When the first of what the server was asked for is late.
    fn requests_due(&self) -> Option<Instant> {
        self.requests.values().map(|request| request.due).chain(self.batches.due()).min()
    }

    pub(crate) fn handle_written(&mut self, count: usize) {
        self.output.advance(count);
    }

    /// Bytes have come, or there is room for what came before.
    pub(crate) fn handle_input(&mut self) -> Result<(), Ended> {
        self.routes.flush();
        let mut input = std::mem::take(&mut self.input);
        let mut at = 0;
        let mut outcome = Ok(());
        while outcome.is_ok() && self.routes.is_flushed() && self.session.version().is_some() {
            match decode(&input[at..], self.session.version(), &self.session.limits()) {
                Ok(Decoded::Packet { packet, len }) => {
                    at += len;
                    outcome = self.handle_packet(packet);
                }
                Ok(Decoded::Need { .. }) => break,
                Err(violation) => outcome = Err(self.violated(violation)),
            }
        }
        input.drain(..at);
        self.input = input;
        outcome?;
        self.settle()
    }

    /// Commands, in their order; none: there is no handle any more.
    pub(crate) fn handle_commands(&mut self, commands: Vec<Command>) -> Result<(), Ended> {
        if commands.is_empty() {
            self.close(None);
        }
        for command in commands {
            match command {
                Command::Publish { message, reply } => self.publish(&message, reply),
                Command::Subscribe { filter, options, reply } => self.subscribe(filter, options, reply),
                Command::Unsubscribe { filter, reply } => {
                    self.unsubscribe(filter, Answer::Unsubscribe(reply));
                }
                Command::Inbox { to } => self.routes.set_inbox(to),
                Command::SubscribeMany { request, reply } => self.subscribe_many(request, reply),
                Command::UnsubscribeMany { request, reply } => self.unsubscribe_many(request, reply),
                Command::Disconnect { reply } => self.close(Some(reply)),
            }
        }
        self.settle()
    }

    pub(crate) fn handle_accepted(&mut self, accepted: &Accepted) {
        let now = self.now();
        self.session.acknowledge(accepted.receipt, accepted.reason, now, &mut self.output.bytes);
    }

    /// What follows from any change: failed messages are told, and a connection that is to close does so when nothing is
    /// under way.
    fn settle(&mut self) -> Result<(), Ended> {
        self.tell_failed();
        let is_idle = self.session.in_flight() == 0 && self.session.waiting_messages() == 0;
        if self.closing.is_some() && is_idle { Err(self.disconnect()) } else { Ok(()) }
    }

    fn tell_failed(&mut self) {
        while let Some(failed) = self.session.next_failed() {
            if let Some(reply) = self.publishing.remove(&failed.tag) {
                let _ = reply.send(Err(PublishError::Protocol(failed.why)));
            }
        }
    }

    fn close(&mut self, reply: Option<Reply<(), DisconnectError>>) {
        if self.closing.is_none() {
            self.closing = Some(Closing { due: Instant::now() + self.options.flush_timeout, reply });
        }
    }

    fn disconnect(&mut self) -> Ended {
        let details = session::Details::default();
        let reason = DisconnectReason::NormalDisconnection;
        // If there is no connection any more, there is nobody to be told.
        let _ = self.session.disconnect(reason, None, &details, &mut self.output.bytes);
        Ended::ByUs
    }

    fn publish(&mut self, message: &session::Message, reply: Reply<ReasonCode, PublishError>) {
        let now = self.now();
        let outgoing = Outgoing {
            topic: message.topic(),
            payload: message.payload(),
            qos: message.qos(),
            retain: message.retain(),
            properties: message.publish(now).properties,
        };
        self.published += 1;
        // Whoever published may not wait for the answer.
        match self.session.publish(&outgoing, self.published, now, &mut self.output.bytes) {
            Ok(_) if outgoing.qos == wire::Qos::AtMostOnce => {
                let _ = reply.send(Ok(ReasonCode::Success));
            }
            Ok(_) => {
                self.publishing.insert(self.published, reply);
            }
            Err(error) => {
                let _ = reply.send(Err(PublishError::Protocol(error)));
            }
        }
    }

    fn subscribe(
        &mut self,
        filter: TopicFilterBuf,
        options: SubscriptionOptions,
        reply: Reply<Messages, SubscribeError>,
    ) {
        match self.send_subscribe(&filter, options) {
            Ok((packet_id, messages)) => {
                let due = Instant::now() + self.options.request_timeout;
                let answer = Answer::Subscribe(reply, messages);
                self.requests.insert(packet_id, Request { due, filter, answer });
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    /// The stream is there before SUBACK is: messages may come first.
    fn send_subscribe(
        &mut self,
        filter: &TopicFilterBuf,
        options: SubscriptionOptions,
    ) -> Result<(PacketId, mpsc::Receiver<Message>), SubscribeError> {
        if self.routes.contains(filter.filter()) {
            return Err(SubscribeError::Subscribed);
        }
        let subscription = Subscription::new(filter.filter(), options);
        let subscription = subscription.map_err(|_| SubscribeError::NoLocalOnShared)?;
        let identifier = if self.has_identifiers { self.routes.new_identifier() } else { None };
        let properties =
            SubscribeProperties { subscription_identifier: identifier, ..SubscribeProperties::EMPTY };
        let now = self.now();
        let packet_id = self
            .session
            .subscribe(OneOrMore::one(&subscription), properties, now, &mut self.output.bytes)
            .map_err(SubscribeError::Protocol)?;
        let (to, messages) = mpsc::channel(self.options.messages_max);
        self.routes.insert(filter.clone(), options, identifier, to);
        Ok((packet_id, messages))
    }

    /// The server has begun a new session: it is told of every subscription that there is.
    fn subscribe_again(&mut self) {
        let now = self.now();
        for (filter, options, identifier) in self.routes.subscriptions() {
            let Ok(subscription) = Subscription::new(filter.filter(), options) else { continue };
            let identifier = identifier.filter(|_| self.has_identifiers);
            let properties =
                SubscribeProperties { subscription_identifier: identifier, ..SubscribeProperties::EMPTY };
            let only = OneOrMore::one(&subscription);
            match self.session.subscribe(only, properties, now, &mut self.output.bytes) {
                Ok(packet_id) => {
                    let due = Instant::now() + self.options.request_timeout;
                    self.requests.insert(packet_id, Request { due, filter, answer: Answer::Nobody });
                }
                // The server does not offer any more what it did: the stream ends.
                Err(_) => self.routes.remove(filter.filter()),
            }
        }
    }

    fn subscribe_many_again(&mut self) {
        for request in self.batches.subscribed() {
            // What the server does not offer any more brings nothing any more.
            if let Ok(packet_id) = self.send_subscribe_many(&request) {
                let due = Instant::now() + self.options.request_timeout;
                self.batches.insert(packet_id, due, Batch::Again);
            }
        }
    }

    fn unsubscribe(&mut self, filter: TopicFilterBuf, answer: Answer) {
        let now = self.now();
        let asked = Ok(filter.filter());
        let properties = UnsubscribeProperties::EMPTY;
        let sent = self.session.unsubscribe(OneOrMore::one(&asked), properties, now, &mut self.output.bytes);
        match (sent, answer) {
            (Ok(packet_id), answer) => {
                let due = Instant::now() + self.options.request_timeout;
                self.requests.insert(packet_id, Request { due, filter, answer });
            }
            (Err(error), Answer::Unsubscribe(reply)) => {
                let _ = reply.send(Err(UnsubscribeError::Protocol(error)));
            }
            (Err(_), _) => {}
        }
    }

    fn subscribe_many(&mut self, request: SubscribeMany, reply: Reply<Vec<ReasonCode>, SubscribeError>) {
        match self.send_subscribe_many(&request) {
            Ok(packet_id) => {
                let due = Instant::now() + self.options.request_timeout;
                self.batches.insert(packet_id, due, Batch::Subscribe(request, reply));
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    fn send_subscribe_many(&mut self, request: &SubscribeMany) -> Result<PacketId, SubscribeError> {
        let subscriptions = request.subscriptions()?;
        let Some(subscriptions) = OneOrMore::new(&subscriptions) else {
            return Err(SubscribeError::NoFilter);
        };
        let pairs = request.user_properties();
        let (now, properties) = (self.now(), request.properties(&pairs));
        let sent = self.session.subscribe(subscriptions, properties, now, &mut self.output.bytes);
        sent.map_err(SubscribeError::Protocol)
    }

    fn unsubscribe_many(
        &mut self,
        request: UnsubscribeMany,
        reply: Reply<Vec<ReasonCode>, UnsubscribeError>,
    ) {
        let now = self.now();
        let (filters, pairs) = (request.filters(), request.user_properties());
        let properties = UnsubscribeProperties { user_properties: pairs[..].into() };
        let Some(filters) = OneOrMore::new(&filters) else {
            let _ = reply.send(Err(UnsubscribeError::NoFilter));
            return;
        };
        match self.session.unsubscribe(filters, properties, now, &mut self.output.bytes) {
            Ok(packet_id) => {
                let due = Instant::now() + self.options.request_timeout;
                drop(pairs);
                self.batches.insert(packet_id, due, Batch::Unsubscribe(request, reply));
            }
            Err(error) => {
                let _ = reply.send(Err(UnsubscribeError::Protocol(error)));
            }
        }
    }

    fn handle_packet(&mut self, packet: Packet<'_>) -> Result<(), Ended> {
        let now = self.now();
        let event = self.session.handle_packet(packet, now, &mut self.output.bytes);
        match event.map_err(|violation| self.violated(violation))? {
            Event::Connected { session_present, properties } => {
                let version = self.session.version().unwrap_or(wire::Version::V5);
                let server = Server::of(session_present, self.session.client_id(), version, &properties);
                self.has_identifiers = server.subscription_identifiers_available;
                self.attempts = 0;
                self.connected(Ok(server))?;
                if !session_present {
                    self.subscribe_again();
                    self.subscribe_many_again();
                }
            }
            Event::Refused { reason, properties } => {
                let owned = |text: Option<wire::Utf8<'_>>| text.map(|text| text.as_str().to_owned());
                let text = owned(properties.reason_string);
                let server_reference = owned(properties.server_reference);
                self.connected(Err(ConnectError::Refused { reason, text, server_reference }))?;
                return Err(Ended::Refused(reason));
            }
            Event::Message { message, receipt } => {
                let is_automatic = self.options.acknowledge == Acknowledge::AtOnce;
                let to = self.acknowledge.clone();
                let owed = receipt.map(|receipt| std::sync::Arc::new(Owed::new(receipt, is_automatic, to)));
                let identifiers = message.packet.subscription_identifiers;
                let received = Message::new(message.topic(), &message.packet, now, owed);
                let is_routed = self.routes.deliver(received, identifiers);
                // What is accepted only later comes again if the connection is lost before, and would be there twice.
                let is_once = matches!(message.packet.delivery, Delivery::ExactlyOnce { .. });
                if let Some(receipt) = receipt.filter(|_| is_routed && is_once && is_automatic) {
                    self.handle_accepted(&Accepted { receipt, reason: ReasonCode::Success });
                }
            }
            Event::Published { tag, reason, .. } => {
                if let Some(reply) = self.publishing.remove(&tag) {
                    let refused = reason.is_error();
                    let _ = reply.send(if refused { Err(PublishError::Refused(reason)) } else { Ok(reason) });
                }
            }
            Event::Subscribed(packet) => self.subscribed(&packet),
            Event::Unsubscribed(packet) => self.unsubscribed(&packet),
            Event::Disconnected(packet) => return Err(Ended::ByServer(packet.reason)),
            Event::None
            | Event::Authenticate { .. }
            | Event::Authenticated { .. }
            | Event::Released { .. }
            | Event::Received { .. } => {}
        }
        Ok(())
    }

    /// Tells whoever connects; if that is nobody any more, the connection ends again.
    fn connected(&mut self, outcome: Result<Server, ConnectError>) -> Result<(), Ended> {
        match self.connecting.take().map(|connecting| connecting.send(outcome)) {
            Some(Err(Ok(_))) => Err(self.disconnect()),
            _ => Ok(()),
        }
    }

    fn subscribed(&mut self, packet: &SubAck<'_>) {
        if self.batches.answered(packet.packet_id, packet.reasons.iter().map(wire::SubAckReason::reason)) {
            return;
        }
        let Some(Request { filter, answer, .. }) = self.requests.remove(&packet.packet_id) else { return };
        let Some(reason) = packet.reasons.iter().next().map(wire::SubAckReason::reason) else { return };
        if reason.is_error() {
            self.routes.remove(filter.filter());
        }
        let Answer::Subscribe(reply, messages) = answer else { return };
        if reason.is_error() {
            let _ = reply.send(Err(SubscribeError::Refused(reason)));
            return;
        }
        let granted = wire::Qos::from_level(reason.code()).unwrap_or_default();
        let unwanted = reply.send(Ok(Messages::new(filter.clone(), granted, messages))).is_err();
        if unwanted {
            self.unsubscribe(filter, Answer::Nobody);
        }
    }

    fn unsubscribed(&mut self, packet: &UnsubAck<'_>) {
        let reasons = packet.reasons.iter().flat_map(|reasons| reasons.iter());
        if self.batches.answered(packet.packet_id, reasons.map(wire::UnsubAckReason::reason)) {
            return;
        }
        let Some(Request { filter, answer, .. }) = self.requests.remove(&packet.packet_id) else { return };
        let reasons = packet.reasons.and_then(|reasons| reasons.iter().next());
        let reason = reasons.map_or(ReasonCode::Success, wire::UnsubAckReason::reason);
        if !reason.is_error() {
            self.routes.remove(filter.filter());
        }
        if let Answer::Unsubscribe(reply) = answer {
            let refused = reason.is_error();
            let _ = reply.send(if refused { Err(UnsubscribeError::Refused(reason)) } else { Ok(reason) });
        }
    }

    fn violated(&mut self, violation: Violation) -> Ended {
        self.session.answer(&violation, &mut self.output.bytes);
        Ended::Violation(violation)
    }

    fn now(&self) -> Now {
        now(self.start)
    }
}

/// The session of a first connection. Without Clean Start there may be one that an earlier program has left; with a name,
/// that is: nobody else's is asked for without.
fn session_of(connect: &wire::Connect<'_>, settings: Settings) -> Client<u64> {
    let has_session = !connect.clean_start && !connect.client_id.is_empty();
    let client_id = if has_session { connect.client_id.as_str().into() } else { Box::default() };
    let (under_way, waiting, unreleased) = (Vec::new(), Vec::new(), Vec::new());
    Client::restore(Stored { client_id, has_session, under_way, waiting, unreleased }, settings)
}

fn now(start: Instant) -> Now {
    let since = Instant::now().duration_since(start).as_millis();
    Now { monotonic_ms: u64::try_from(since).unwrap_or(u64::MAX), unix_ms: unix_ms() }
}
