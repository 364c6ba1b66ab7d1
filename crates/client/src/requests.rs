//! SUBSCRIBE and UNSUBSCRIBE, and their answers.

use tokio::time::Instant;
use topic::TopicFilterBuf;
use wire::{
    AckProperties, OneOrMore, PacketId, ReasonCode, SubAck, SubAckReason, Subscription, SubscriptionOptions,
    UnsubAck, UnsubAckReason,
};

use crate::command::{Granted, Reply};
use crate::engine::Engine;
use crate::error::{Ended, SubscribeError, UnsubscribeError};
use crate::message::Messages;
use crate::outlet::{Inlet, Outlet};
use crate::owned::{OwnedSubscribe, OwnedUnsubscribe};
use crate::routes::{Number, Route};
use crate::server::owned;

/// A request that has not been answered.
pub(crate) struct Request {
    pub(crate) due: Instant,
    asked: Asked,
}

/// The operation of a request, and the caller who waits for the answer.
enum Asked {
    Stream(Number, TopicFilterBuf, Inlet, Reply<Granted, SubscribeError>),
    ForInbox(Number, OwnedSubscribe, Reply<Vec<ReasonCode>, SubscribeError>),
    End(Ending, Reply<Vec<ReasonCode>, UnsubscribeError>),
    EndOfOne(Ending, Reply<ReasonCode, UnsubscribeError>),
    /// Subscriptions made again on a new connection. No caller waits for them.
    Again(Number, OwnedSubscribe),
    /// End of a subscription whose caller has given up. No caller waits for it.
    EndUnwanted(Ending),
}

/// An UNSUBSCRIBE. It ends only subscriptions to its filters with a number lower than `before`.
struct Ending {
    unsubscribe: OwnedUnsubscribe,
    before: Number,
}

/// SUBSCRIBE for one filter, with a stream of its own.
impl Engine {
    pub(crate) fn subscribe(
        &mut self,
        filter: TopicFilterBuf,
        options: SubscriptionOptions,
        is_for_answers: bool,
        reply: Reply<Granted, SubscribeError>,
    ) {
        match self.begin_stream(&filter, options, is_for_answers) {
            Ok((packet_id, number, inlet)) => {
                self.await_answer(packet_id, Asked::Stream(number, filter, inlet, reply));
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    /// Sends SUBSCRIBE, and makes the stream at once, because messages may arrive before SUBACK.
    fn begin_stream(
        &mut self,
        filter: &TopicFilterBuf,
        options: SubscriptionOptions,
        is_for_answers: bool,
    ) -> Result<(PacketId, Number, Inlet), SubscribeError> {
        if self.routes.contains(filter.filter()) {
            return Err(SubscribeError::Subscribed);
        }
        let identifier = if self.has_identifiers { self.routes.new_identifier() } else { None };
        let packet_id = self.send_subscribe(&OwnedSubscribe::one(filter, options, identifier))?;
        let (outlet, inlet) = Outlet::new(self.options.stream_bound());
        let number = self.routes.new_number();
        let route = Route::asked(number, filter, options, identifier, outlet);
        self.routes.insert(route.for_answers(is_for_answers));
        Ok((packet_id, number, inlet))
    }

    fn begun_stream(
        &mut self,
        (number, filter, reason): (Number, TopicFilterBuf, ReasonCode),
        inlet: Inlet,
        text: Option<String>,
        reply: Reply<Granted, SubscribeError>,
    ) {
        if reason.is_error() {
            self.routes.put_back(number, inlet);
            self.routes.remove_one(number, filter.filter());
            let _ = reply.send(Err(SubscribeError::Refused { reason, text }));
            return;
        }
        let granted = wire::Qos::from_level(reason.code()).unwrap_or_default();
        let messages = Messages::new(filter.clone(), granted, inlet);
        let granted = Granted::new(messages, number, self.unwanted.clone());
        let Err(refused) = reply.send(Ok(granted)) else {
            let receipts = self.routes.grant(number);
            return self.accept_at_once(receipts);
        };
        if let Some((messages, _)) = refused.ok().and_then(Granted::take) {
            self.routes.put_back(number, messages.into_inlet());
        }
        self.end_unwanted(filter);
    }

    /// Ends a subscription whose stream was dropped before anybody received it, or whose [`Requester`] was dropped.
    ///
    /// [`Requester`]: crate::Requester
    pub(crate) fn forget(&mut self, number: Number) {
        let Some(filter) = self.routes.forget(number) else { return };
        if self.session.is_connected() {
            self.end_unwanted(filter);
        } else if !self.unwanted_later.contains(&filter) {
            self.unwanted_later.push(filter);
        }
    }

    /// Ends the subscriptions that were forgotten while there was no connection.
    pub(crate) fn end_unwanted_later(&mut self, session_present: bool) {
        let filters = std::mem::take(&mut self.unwanted_later);
        let is_there = |filter: &TopicFilterBuf| session_present && !self.routes.contains(filter.filter());
        let filters: Vec<_> = filters.into_iter().filter(is_there).collect();
        filters.into_iter().for_each(|filter| self.end_unwanted(filter));
    }

    fn end_unwanted(&mut self, filter: TopicFilterBuf) {
        let unsubscribe = OwnedUnsubscribe::one(filter);
        if let Ok(packet_id) = self.send_unsubscribe(&unsubscribe) {
            let ending = self.ending(unsubscribe);
            self.await_answer(packet_id, Asked::EndUnwanted(ending));
        }
    }
}

/// Requests for any number of filters.
impl Engine {
    pub(crate) fn subscribe_many(
        &mut self,
        subscribe: OwnedSubscribe,
        reply: Reply<Vec<ReasonCode>, SubscribeError>,
    ) {
        match self.send_subscribe(&subscribe) {
            Ok(packet_id) => {
                let number = self.routes.new_number();
                self.await_answer(packet_id, Asked::ForInbox(number, subscribe, reply));
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    pub(crate) fn unsubscribe_many(
        &mut self,
        unsubscribe: OwnedUnsubscribe,
        reply: Reply<Vec<ReasonCode>, UnsubscribeError>,
    ) {
        match self.send_unsubscribe(&unsubscribe) {
            Ok(packet_id) => {
                let ending = self.ending(unsubscribe);
                self.await_answer(packet_id, Asked::End(ending, reply));
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    pub(crate) fn unsubscribe(&mut self, filter: TopicFilterBuf, reply: Reply<ReasonCode, UnsubscribeError>) {
        let unsubscribe = OwnedUnsubscribe::one(filter);
        match self.send_unsubscribe(&unsubscribe) {
            Ok(packet_id) => {
                let ending = self.ending(unsubscribe);
                self.await_answer(packet_id, Asked::EndOfOne(ending, reply));
            }
            Err(error) => {
                let _ = reply.send(Err(error));
            }
        }
    }

    /// Sends SUBSCRIBE for every subscription that the server's session does not have.
    ///
    /// The session may be new, or the last connection may have been lost before the answer to an earlier attempt.
    pub(crate) fn subscribe_again(&mut self) {
        for (number, mut subscribe) in self.routes.unknown() {
            subscribe.identifier = subscribe.identifier.filter(|_| self.has_identifiers);
            match self.send_subscribe(&subscribe) {
                Ok(packet_id) => self.await_answer(packet_id, Asked::Again(number, subscribe)),
                // The server no longer offers a feature that the subscription needs. Its stream ends.
                Err(_) => self.forget_one(number, subscribe.filters()),
            }
        }
    }

    fn send_subscribe(&mut self, subscribe: &OwnedSubscribe) -> Result<PacketId, SubscribeError> {
        let subscriptions = subscribe.subscriptions.iter();
        let subscriptions =
            subscriptions.map(|(filter, options)| Subscription::new(filter.filter(), *options));
        let subscriptions: Result<Vec<_>, _> = subscriptions.collect();
        let subscriptions = subscriptions.map_err(|_| SubscribeError::NoLocalOnShared)?;
        let list = OneOrMore::new(&subscriptions).ok_or(SubscribeError::NoFilter)?;
        let now = self.now();
        let sent = self.session.subscribe(list, subscribe.properties(), now, &mut self.output.bytes);
        sent.map_err(SubscribeError::Protocol)
    }

    fn send_unsubscribe(&mut self, unsubscribe: &OwnedUnsubscribe) -> Result<PacketId, UnsubscribeError> {
        let filters: Vec<_> = unsubscribe.filters.iter().map(|filter| Ok(filter.filter())).collect();
        let list = OneOrMore::new(&filters).ok_or(UnsubscribeError::NoFilter)?;
        let now = self.now();
        let sent = self.session.unsubscribe(list, unsubscribe.properties(), now, &mut self.output.bytes);
        sent.map_err(UnsubscribeError::Protocol)
    }

    fn forget_one<'a>(&mut self, number: Number, filters: impl Iterator<Item = &'a TopicFilterBuf>) {
        filters.for_each(|filter| self.routes.remove_one(number, filter.filter()));
    }

    fn ending(&mut self, unsubscribe: OwnedUnsubscribe) -> Ending {
        Ending { unsubscribe, before: self.routes.new_number() }
    }
}

/// Answers from the server, and their absence.
impl Engine {
    fn await_answer(&mut self, packet_id: PacketId, asked: Asked) {
        let due = Instant::now() + self.options.request_timeout;
        self.requests.insert(packet_id, Request { due, asked });
    }

    /// Handles SUBACK. The state machine has checked that the packet has one reason for each filter.
    pub(crate) fn subscribed(&mut self, packet: &SubAck<'_>) {
        let Some(Request { asked, .. }) = self.requests.remove(&packet.packet_id) else { return };
        let mut reasons = packet.reasons.iter().map(SubAckReason::reason);
        match asked {
            Asked::Stream(number, filter, inlet, reply) => {
                let Some(reason) = reasons.next() else { return };
                self.begun_stream((number, filter, reason), inlet, text(&packet.properties), reply);
            }
            Asked::ForInbox(number, mut subscribe, reply) => {
                let reasons: Vec<_> = reasons.collect();
                let mut granted = reasons.iter().map(|reason| !reason.is_error());
                subscribe.subscriptions.retain(|_| granted.next().unwrap_or_default());
                if !subscribe.subscriptions.is_empty() {
                    self.routes.insert_for_inbox(number, subscribe);
                }
                // The caller may have dropped its future.
                let _ = reply.send(Ok(reasons));
            }
            Asked::Again(number, subscribe) => {
                self.routes.know(number);
                let refused = subscribe.filters().zip(reasons).filter(|(_, reason)| reason.is_error());
                self.forget_one(number, refused.map(|(filter, _)| filter));
            }
            Asked::End(..) | Asked::EndOfOne(..) | Asked::EndUnwanted(_) => {}
        }
    }

    /// Handles UNSUBACK. Before MQTT 5 the packet has no reasons, and all filters count as ended.
    pub(crate) fn unsubscribed(&mut self, packet: &UnsubAck<'_>) {
        let Some(Request { asked, .. }) = self.requests.remove(&packet.packet_id) else { return };
        let reasons = packet.reasons.iter().flat_map(|reasons| reasons.iter());
        let reasons: Vec<_> = reasons.map(UnsubAckReason::reason).collect();
        let (Asked::End(ending, _) | Asked::EndOfOne(ending, _) | Asked::EndUnwanted(ending)) = &asked else {
            return;
        };
        let is_kept = |index: usize| reasons.get(index).is_some_and(|reason| reason.is_error());
        let ended = ending.unsubscribe.filters.iter().enumerate().filter(|(index, _)| !is_kept(*index));
        ended.for_each(|(_, filter)| self.routes.remove(filter.filter(), ending.before));
        match asked {
            Asked::End(_, reply) => {
                let _ = reply.send(Ok(reasons));
            }
            Asked::EndOfOne(_, reply) => {
                let reason = reasons.first().copied().unwrap_or(ReasonCode::Success);
                let refused = || UnsubscribeError::Refused { reason, text: text(&packet.properties) };
                let _ = reply.send(if reason.is_error() { Err(refused()) } else { Ok(reason) });
            }
            _ => {}
        }
    }

    /// Fails all requests, because the connection is lost and nobody will answer.
    pub(crate) fn fail_requests(&mut self, ended: &Ended) {
        for (_, Request { asked, .. }) in std::mem::take(&mut self.requests) {
            match asked {
                Asked::Stream(number, filter, _, reply) => {
                    self.routes.remove_one(number, filter.filter());
                    let _ = reply.send(Err(SubscribeError::Ended(ended.clone())));
                }
                Asked::ForInbox(_, _, reply) => {
                    let _ = reply.send(Err(SubscribeError::Ended(ended.clone())));
                }
                Asked::End(_, reply) => {
                    let _ = reply.send(Err(UnsubscribeError::Ended(ended.clone())));
                }
                Asked::EndOfOne(_, reply) => {
                    let _ = reply.send(Err(UnsubscribeError::Ended(ended.clone())));
                }
                Asked::Again(..) | Asked::EndUnwanted(_) => {}
            }
        }
    }

    /// Gives all requests their full time again.
    pub(crate) fn postpone_requests(&mut self) {
        let due = Instant::now() + self.options.request_timeout;
        self.requests.values_mut().for_each(|request| request.due = due);
        self.exchange.postpone(due);
    }
}

fn text(properties: &AckProperties<'_>) -> Option<String> {
    owned(properties.reason_string)
}
