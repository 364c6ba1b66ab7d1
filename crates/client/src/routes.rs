//! Which stream a message goes to.

use std::collections::VecDeque;

use tokio::sync::mpsc::{Sender, error::TrySendError};
use topic::{TopicFilter, TopicFilterBuf};
use wire::{SubscriptionIdentifier, SubscriptionIdentifiers, SubscriptionOptions};

use crate::message::Message;

/// The subscriptions of a client, and the messages that are on their way to them.
#[derive(Debug)]
pub(crate) struct Routes {
    routes: Vec<Route>,
    /// What a full stream has no room for: copies of one message.
    held: VecDeque<(Sender<Message>, Message)>,
    /// Messages of a session that was there before its subscriptions: whoever subscribes to them gets them.
    unclaimed: VecDeque<Message>,
    unclaimed_max: usize,
    /// Takes what no route does.
    inbox: Option<Sender<Message>>,
    next_identifier: u32,
}

#[derive(Debug)]
struct Route {
    filter: TopicFilterBuf,
    options: SubscriptionOptions,
    identifier: Option<SubscriptionIdentifier>,
    to: Sender<Message>,
}

impl Routes {
    pub(crate) fn new(unclaimed_max: usize) -> Self {
        Self {
            routes: Vec::new(),
            held: VecDeque::new(),
            unclaimed: VecDeque::new(),
            unclaimed_max,
            inbox: None,
            next_identifier: 0,
        }
    }

    /// Whether a stream takes the messages of this filter.
    pub(crate) fn contains(&self, filter: TopicFilter<'_>) -> bool {
        self.routes.iter().any(|route| route.filter.filter() == filter && !route.to.is_closed())
    }

    /// An identifier that no subscription of this client has. After 2^28 of them there is none, and filters alone tell.
    pub(crate) fn new_identifier(&mut self) -> Option<SubscriptionIdentifier> {
        self.next_identifier = self.next_identifier.saturating_add(1);
        SubscriptionIdentifier::new(self.next_identifier)
    }

    /// What belongs to no route goes there from now on, and what nobody has claimed.
    pub(crate) fn set_inbox(&mut self, to: Sender<Message>) {
        for message in std::mem::take(&mut self.unclaimed) {
            self.held.push_back((to.clone(), message));
        }
        self.inbox = Some(to);
        self.flush();
    }

    /// Messages that match go to this stream from now on, and those that nobody has claimed.
    pub(crate) fn insert(
        &mut self,
        filter: TopicFilterBuf,
        options: SubscriptionOptions,
        identifier: Option<SubscriptionIdentifier>,
        to: Sender<Message>,
    ) {
        self.remove(filter.filter());
        for message in std::mem::take(&mut self.unclaimed) {
            if filter.filter().matches(message.topic()) {
                self.held.push_back((to.clone(), message));
            } else {
                self.unclaimed.push_back(message);
            }
        }
        self.routes.push(Route { filter, options, identifier, to });
        self.flush();
    }

    /// What the server is to know, if it knows nothing: streams that somebody reads.
    pub(crate) fn subscriptions(
        &self,
    ) -> Vec<(TopicFilterBuf, SubscriptionOptions, Option<SubscriptionIdentifier>)> {
        let read = self.routes.iter().filter(|route| !route.to.is_closed());
        read.map(|route| (route.filter.clone(), route.options, route.identifier)).collect()
    }

    /// What nobody has claimed is not acknowledged, and comes again on the next connection.
    pub(crate) fn forget_unclaimed(&mut self) {
        self.unclaimed.clear();
    }

    /// The stream of this filter ends.
    pub(crate) fn remove(&mut self, filter: TopicFilter<'_>) {
        self.routes.retain(|route| route.filter.filter() != filter);
    }

    /// Sends a message to the streams it is for, and tells whether there is any. Where the server names subscriptions, it is for those, as far as they
    /// match: the identifiers of a session that was there before may be those of other filters.
    pub(crate) fn deliver(&mut self, message: Message, identifiers: SubscriptionIdentifiers<'_>) -> bool {
        let topic = message.topic();
        let matching = || self.routes.iter().filter(|route| route.filter.filter().matches(topic));
        let is_named =
            |route: &Route| identifiers.iter().any(|identifier| Some(identifier) == route.identifier);
        let has_name = !identifiers.is_empty() && matching().any(is_named);
        let targets = matching().filter(|route| !has_name || is_named(route)).map(|route| route.to.clone());
        let mut targets: VecDeque<_> = targets.collect();
        if targets.is_empty() {
            targets.extend(self.inbox.clone().filter(|inbox| !inbox.is_closed()));
        }
        if targets.is_empty() {
            self.leave(message);
            return false;
        }
        message.is_for(targets.len());
        while let Some(to) = targets.pop_front() {
            let copy = message.clone();
            self.held.push_back((to, copy));
        }
        self.flush();
        true
    }

    /// Nobody is there for it. At QoS 0 that is the end of it; otherwise it is not acknowledged, and comes again.
    fn leave(&mut self, message: Message) {
        if message.qos() > wire::Qos::AtMostOnce && self.unclaimed.len() < self.unclaimed_max {
            message.is_for(1);
            self.unclaimed.push_back(message);
        }
    }

    /// Whether everything that has come is in its stream: no more is read before.
    pub(crate) fn is_flushed(&self) -> bool {
        self.held.is_empty()
    }

    /// Puts into streams what there is room for.
    pub(crate) fn flush(&mut self) {
        while let Some((to, message)) = self.held.pop_front() {
            match to.try_send(message) {
                Ok(()) => {}
                Err(TrySendError::Full(message)) => return self.held.push_front((to, message)),
                Err(TrySendError::Closed(message)) => self.leave(message),
            }
        }
    }

    /// The stream that has no room.
    pub(crate) fn full(&self) -> Option<Sender<Message>> {
        self.held.front().map(|(to, _)| to.clone())
    }
}
