//! Requests for several filters in one packet, whose messages all go to the inbox.

use std::collections::HashMap;
use std::pin::Pin;
use std::task::{Context as Task, Poll};

use futures_core::Stream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use topic::{TopicFilter, TopicFilterBuf};
use wire::{
    PacketId, ReasonCode, RequestedFilter, SubscribeProperties, Subscription, SubscriptionIdentifier,
    SubscriptionOptions, UnsubscribeProperties, UserProperties, UserProperty, Utf8,
};

use crate::command::Reply;
use crate::error::{Ended, SubscribeError, UnsubscribeError};
use crate::message::Message;

/// Everything that the server sends and that belongs to no [`Messages`](crate::Messages): each message once, in the order
/// in which it came, whatever filters it matches.
///
/// It ends when the connection does, after what had come before.
#[derive(Debug)]
pub struct Inbox {
    messages: mpsc::Receiver<Message>,
}

impl Inbox {
    pub(crate) fn new(messages: mpsc::Receiver<Message>) -> Self {
        Self { messages }
    }

    /// The next message, as soon as there is one; `None` when there will be none any more. To drop the future loses
    /// nothing.
    pub async fn next(&mut self) -> Option<Message> {
        self.messages.recv().await.map(Message::taken)
    }
}

impl Stream for Inbox {
    type Item = Message;

    fn poll_next(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Option<Message>> {
        self.messages.poll_recv(task).map(|message| message.map(Message::taken))
    }
}

/// User properties that wait for their packet.
#[derive(Debug, Clone, Default)]
pub(crate) struct OwnedProperties(Vec<(Box<str>, Box<str>)>);

impl From<UserProperties<'_>> for OwnedProperties {
    fn from(properties: UserProperties<'_>) -> Self {
        let owned =
            |property: UserProperty<'_>| (property.name.as_str().into(), property.value.as_str().into());
        Self(properties.iter().map(owned).collect())
    }
}

impl OwnedProperties {
    pub(crate) fn pairs(&self) -> Vec<UserProperty<'_>> {
        let pairs = self.0.iter();
        pairs.map(|(name, value)| UserProperty { name: text(name), value: text(value) }).collect()
    }
}

/// It was a string of MQTT's before.
fn text(text: &str) -> Utf8<'_> {
    Utf8::new(text).unwrap_or_default()
}

/// SUBSCRIBE, as it waits for its turn, and for the next connection.
#[derive(Debug, Clone)]
pub(crate) struct SubscribeMany {
    filters: Vec<(TopicFilterBuf, SubscriptionOptions)>,
    identifier: Option<SubscriptionIdentifier>,
    user_properties: OwnedProperties,
}

/// UNSUBSCRIBE, as it waits for its turn.
#[derive(Debug)]
pub(crate) struct UnsubscribeMany {
    filters: Vec<TopicFilterBuf>,
    user_properties: OwnedProperties,
}

impl SubscribeMany {
    pub(crate) fn new(
        filters: &[(TopicFilter<'_>, SubscriptionOptions)],
        properties: &SubscribeProperties<'_>,
    ) -> Self {
        Self {
            filters: filters.iter().map(|(filter, options)| ((*filter).into(), *options)).collect(),
            identifier: properties.subscription_identifier,
            user_properties: properties.user_properties.into(),
        }
    }

    /// What the packet says of filters.
    pub(crate) fn subscriptions(&self) -> Result<Vec<Subscription<'_>>, SubscribeError> {
        let filters = self.filters.iter();
        let subscriptions = filters.map(|(filter, options)| Subscription::new(filter.filter(), *options));
        subscriptions.collect::<Result<_, _>>().map_err(|_| SubscribeError::NoLocalOnShared)
    }

    pub(crate) fn user_properties(&self) -> Vec<UserProperty<'_>> {
        self.user_properties.pairs()
    }

    /// The properties of the packet, of which `pairs` is a part.
    pub(crate) fn properties<'a>(&self, pairs: &'a [UserProperty<'a>]) -> SubscribeProperties<'a> {
        SubscribeProperties { subscription_identifier: self.identifier, user_properties: pairs.into() }
    }
}

impl UnsubscribeMany {
    pub(crate) fn new(filters: &[TopicFilter<'_>], properties: &UnsubscribeProperties<'_>) -> Self {
        Self {
            filters: filters.iter().map(|filter| (*filter).into()).collect(),
            user_properties: properties.user_properties.into(),
        }
    }

    pub(crate) fn filters(&self) -> Vec<RequestedFilter<'_>> {
        self.filters.iter().map(|filter| Ok(filter.filter())).collect()
    }

    pub(crate) fn user_properties(&self) -> Vec<UserProperty<'_>> {
        self.user_properties.pairs()
    }
}

/// A request that has not been answered.
#[derive(Debug)]
pub(crate) enum Batch {
    Subscribe(SubscribeMany, Reply<Vec<ReasonCode>, SubscribeError>),
    Unsubscribe(UnsubscribeMany, Reply<Vec<ReasonCode>, UnsubscribeError>),
    /// Nobody waits for the answer.
    Again,
}

/// The requests that wait for answers, and what a new session is to be told of.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    under_way: HashMap<PacketId, (Instant, Batch)>,
    subscribed: Vec<SubscribeMany>,
}

impl Batches {
    pub(crate) fn insert(&mut self, packet_id: PacketId, due: Instant, batch: Batch) {
        self.under_way.insert(packet_id, (due, batch));
    }

    pub(crate) fn due(&self) -> impl Iterator<Item = Instant> + '_ {
        self.under_way.values().map(|(due, _)| *due)
    }

    /// What the server is to know, if it knows nothing.
    pub(crate) fn subscribed(&self) -> Vec<SubscribeMany> {
        self.subscribed.clone()
    }

    /// The server has answered. False: this was none of ours.
    pub(crate) fn answered(
        &mut self,
        packet_id: PacketId,
        reasons: impl Iterator<Item = ReasonCode>,
    ) -> bool {
        let Some((_, batch)) = self.under_way.remove(&packet_id) else { return false };
        // Whoever asked may have gone.
        match batch {
            Batch::Subscribe(mut request, reply) => {
                let reasons: Vec<_> = reasons.collect();
                let mut granted = reasons.iter().map(|reason| !reason.is_error());
                request.filters.retain(|_| granted.next().unwrap_or_default());
                self.subscribed.extend(Some(request).filter(|request| !request.filters.is_empty()));
                let _ = reply.send(Ok(reasons));
            }
            Batch::Unsubscribe(request, reply) => {
                for subscribed in &mut self.subscribed {
                    subscribed.filters.retain(|(filter, _)| !request.filters.contains(filter));
                }
                self.subscribed.retain(|subscribed| !subscribed.filters.is_empty());
                let _ = reply.send(Ok(reasons.collect()));
            }
            Batch::Again => {}
        }
        true
    }

    /// The connection is lost, and with it what was not answered.
    pub(crate) fn suspend(&mut self, ended: &Ended) {
        for (_, (_, batch)) in self.under_way.drain() {
            match batch {
                Batch::Subscribe(_, reply) => {
                    let _ = reply.send(Err(SubscribeError::Ended(ended.clone())));
                }
                Batch::Unsubscribe(_, reply) => {
                    let _ = reply.send(Err(UnsubscribeError::Ended(ended.clone())));
                }
                Batch::Again => {}
            }
        }
    }
}
