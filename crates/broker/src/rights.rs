//! The rules about topics, on the ways of messages that no cached route covers.

use std::sync::Arc;

use auth::{Action, Limits, Realms};
use base::{ConnectionId, Realm, Subscriber};
use topic::{TopicFilter, TopicName};
use wire::Qos;

use crate::client::Client;
use crate::effects::Outside;
use crate::{Effects, Notice, Shard};

impl Shard {
    /// The current rules, if there are any.
    pub(crate) fn rules(&self) -> Option<Arc<Realms>> {
        self.guard.has_rules().then(|| self.guard.current()).filter(|realms| realms.has_rules())
    }

    /// Whether a client may receive a topic. Costs one load without rules, otherwise a walk over the topic.
    pub(crate) fn may_receive(&self, client: &Client, topic: TopicName<'_>) -> bool {
        let (Some(realms), Some(subscriber)) = (self.rules(), &client.subscriber) else { return true };
        realms.allow(subscriber, topic, Action::Receive)
    }

    /// The limits of a client by the rules of this moment, if it has some.
    pub(crate) fn limits(&self, realm: Realm, client: auth::Client<'_>) -> Option<Arc<Limits>> {
        self.rules()?.access(realm)?.limits(client)
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
        self.rules().filter(|rules| rules.has_filter_rules()).zip(subscriber)
    }

    /// Counts a message that a client may not publish, beside the reason, and tells of the first, the tenth, the hundredth and so on.
    pub(crate) fn note_denied(
        &mut self,
        id: ConnectionId,
        topic: TopicName<'_>,
        to: &mut Outside<'_, impl Effects>,
    ) {
        self.counters.publish_received.add(1);
        self.counters.publish_dropped.add(1);
        let Some(client) = self.clients.get_mut(id) else { return };
        let denied = &mut client.make_aside().denied;
        *denied += 1;
        let messages = *denied;
        if 10_u64.pow(messages.ilog10()) == messages {
            to.notice(id, Notice::Denied { client_id: client.client_id(), topic: topic.as_str(), messages });
        }
    }
}
