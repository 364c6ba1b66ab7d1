//! The rules about topics, on the ways of messages that no cached route covers.

use std::sync::Arc;

use auth::{Action, FilterAction, Realms};
use base::ConnectionId;
use topic::{TopicFilter, TopicName};

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

    /// Whether a client may change its subscriptions in this way, as a function that holds the rules.
    pub(crate) fn filter_rules(
        &self,
        id: ConnectionId,
        action: FilterAction,
    ) -> impl Fn(TopicFilter<'_>) -> bool + use<> {
        let subscriber = self.clients.get(id).and_then(|client| client.subscriber.clone());
        let rules = self.rules().filter(|rules| rules.has_filter_rules()).zip(subscriber);
        move |filter| rules.as_ref().is_none_or(|(rules, own)| rules.allow_filter(own, filter, action))
    }

    /// Counts a message that a client may not publish, and tells of the first, the tenth, the hundredth and so on.
    pub(crate) fn note_denied(
        &mut self,
        id: ConnectionId,
        topic: TopicName<'_>,
        to: &mut Outside<'_, impl Effects>,
    ) {
        self.counters.publish_received.add(1);
        self.counters.denied_publish.add(1);
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
