//! The rules about topics, on the ways of messages that no cached route covers.

use std::ops::Range;
use std::sync::Arc;

use auth::{Action, Limits, QueueLimits, Realms};
use base::{ConnectionId, Message, Principal, Subscriber};
use session::{Bound, Incoming, Settings};
use topic::TopicFilter;
use wire::Qos;

use crate::client::Client;
use crate::effects::Outside;
use crate::{Effects, Notice, Shard};

/// The bound of the messages that wait for a client by its roles, if they have one.
pub(crate) fn role_bound(limits: QueueLimits) -> Option<Bound> {
    let (messages, bytes) = (limits.messages_max, limits.bytes_max);
    let size = |most: Option<u64>| most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let bound = Bound { messages: size(messages.map(u64::from)), bytes: size(bytes) };
    (messages.is_some() || bytes.is_some()).then_some(bound)
}

impl Client {
    /// Sets the bound of its roles.
    pub(crate) fn set_role_bound(&mut self, bound: Option<Bound>) {
        if bound.is_some() || self.aside_mut().is_some() {
            self.make_aside().role_bound = bound;
            self.tidy();
        }
    }

    /// The bound of the messages that wait behind its window: the lower one of all clients' and of its roles'.
    pub(crate) fn waiting_bound(&self, settings: &Settings) -> Bound {
        let all = Bound::of(settings);
        let own = self.aside().role_bound.unwrap_or(all);
        Bound { messages: all.messages.min(own.messages), bytes: all.bytes.min(own.bytes) }
    }
}

impl Shard {
    /// The current rules, if there are any, or may be some of tokens.
    pub(crate) fn rules(&self) -> Option<Arc<Realms>> {
        self.guard.has_rules().then(|| self.guard.current())
    }

    /// Whether a client may receive a message. Costs one load without rules, otherwise a walk over its topic.
    pub(crate) fn may_receive(&self, client: &Client, message: &Message) -> bool {
        let (Some(realms), Some(subscriber)) = (self.rules(), &client.subscriber) else { return true };
        realms.allow(subscriber, message.topic(), Action::Receive)
    }

    /// The limits of a client by the rules of this moment, if it has some.
    pub(crate) fn limits(&self, principal: &Principal) -> Option<Arc<Limits>> {
        self.rules()?.limits(principal)
    }

    /// Takes over the bounds of the messages that wait for clients from their roles, after a change of rules.
    pub(crate) fn rebound_some(&mut self, slots: Range<u32>) {
        let rules = self.rules();
        for (id, bound) in self.role_bounds(slots, rules.as_deref()) {
            if let Some(client) = self.clients.get_mut(id) {
                client.set_role_bound(bound);
            }
        }
    }

    /// The clients whose roles have other bounds than before, with these.
    fn role_bounds(&self, slots: Range<u32>, rules: Option<&Realms>) -> Vec<(ConnectionId, Option<Bound>)> {
        let bound = |client: &Client| {
            let principal = client.subscriber.as_ref()?.principal();
            role_bound(rules?.queue_limits(&principal))
        };
        let clients = self.clients.in_slots(slots).map(|(id, client)| (id, bound(client), client));
        let changed = clients.filter(|(_, bound, client)| *bound != client.aside().role_bound);
        changed.map(|(id, bound, _)| (id, bound)).collect()
    }

    /// The highest QoS at which a client may subscribe to a filter, as a function that holds the rules.
    pub(crate) fn subscribe_rules(
        &self,
        id: ConnectionId,
    ) -> impl Fn(TopicFilter<'_>) -> Option<Qos> + use<> {
        let rules = self.filter_rules(id);
        move |filter| match &rules {
            Some((rules, own)) => rules.granted(own, filter),
            None => Some(Qos::ExactlyOnce),
        }
    }

    /// Whether a client may end a subscription, as a function that holds the rules.
    pub(crate) fn unsubscribe_rules(&self, id: ConnectionId) -> impl Fn(TopicFilter<'_>) -> bool + use<> {
        let rules = self.filter_rules(id);
        move |filter| rules.as_ref().is_none_or(|(rules, own)| rules.may_unsubscribe(own, filter))
    }

    fn filter_rules(&self, id: ConnectionId) -> Option<(Arc<Realms>, Arc<Subscriber>)> {
        let subscriber = self.clients.get(id).and_then(|client| client.subscriber.clone());
        self.rules().zip(subscriber)
    }

    /// Tells of the first message that a client may not publish, the tenth, the hundredth and so on.
    pub(crate) fn tell_denied(
        &mut self,
        id: ConnectionId,
        publish: &Incoming<'_>,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let denied = &mut client.make_aside().denied;
        *denied += 1;
        let messages = *denied;
        if 10_u64.pow(messages.ilog10()) == messages {
            let mount_bytes = client.mount.as_ref().map_or(0, |mount| mount.as_str().len());
            let (client_id, topic) = (client.client_id(), publish.topic().as_str());
            to.notice(id, Notice::Denied { client_id, topic, mount_bytes, messages });
        }
    }
}
