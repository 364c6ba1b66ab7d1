//! Decisions of the rules of roles.

use std::sync::Arc;

use topic::{TopicFilter, TopicName};
use wire::Qos;

use super::grants::{Grants, Permit};
use super::{Compiled, Deciding, Held, Limits, Roles, RuleKind};
use crate::permissions::{Action, Client, Decision, FilterAction, Reason};
use crate::tree::{Hidden, Line};

impl Roles {
    /// The messages that a client may publish to a topic. The cost is one walk over the levels of the topic.
    #[must_use]
    pub fn permit(&self, client: Client<'_>, topic: TopicName<'_>) -> Permit {
        self.trees(client.user).of(RuleKind::Publish).walk(topic, client).permit()
    }

    /// Whether a client may receive messages of a topic. The cost is one walk over the levels of the topic.
    #[must_use]
    pub fn receives(&self, client: Client<'_>, topic: TopicName<'_>) -> bool {
        self.trees(client.user).of(RuleKind::Receive).walk(topic, client).permit() != Permit::NONE
    }

    /// The highest QoS at which a client may subscribe to a filter; `None` if it may not. One rule has to cover the whole filter.
    /// The filter behind `$share/GROUP/` counts.
    #[must_use]
    pub fn granted(&self, client: Client<'_>, filter: TopicFilter<'_>) -> Option<Qos> {
        self.cover(client, filter).permit().qos_max()
    }

    /// Whether a client may publish such a message, and the rule that decides.
    #[must_use]
    pub fn decide_publish(
        &self,
        client: Client<'_>,
        topic: TopicName<'_>,
        (qos, retain): (Qos, bool),
    ) -> Decision<'_> {
        let grants = self.trees(client.user).of(RuleKind::Publish).walk(topic, client);
        self.decision(client, &grants, (qos, retain))
    }

    /// Whether a client may use a topic, and the rule that decides. A publisher may if there is any message that it may publish.
    #[must_use]
    pub fn decide(&self, client: Client<'_>, topic: TopicName<'_>, action: Action) -> Decision<'_> {
        match action {
            Action::Publish => self.decide_publish(client, topic, (Qos::AtMostOnce, false)),
            Action::Receive => {
                let grants = self.trees(client.user).of(RuleKind::Receive).walk(topic, client);
                self.decision(client, &grants, (Qos::AtMostOnce, false))
            }
        }
    }

    /// Whether a client may change its subscriptions, and the rule that decides. Everybody may end subscriptions.
    #[must_use]
    pub fn decide_filter(
        &self,
        client: Client<'_>,
        filter: TopicFilter<'_>,
        action: FilterAction,
    ) -> Decision<'_> {
        match action {
            FilterAction::Unsubscribe => Decision { is_allowed: true, reason: Reason::Unsubscribe },
            FilterAction::Subscribe => {
                let grants = self.cover(client, filter);
                self.decision(client, &grants, (Qos::AtMostOnce, false))
            }
        }
    }

    /// The limits of a client, which all its roles have together.
    #[must_use]
    pub fn limits(&self, user: Option<&str>) -> &Arc<Limits> {
        &self.trees(user).limits
    }

    fn cover(&self, client: Client<'_>, filter: TopicFilter<'_>) -> Grants {
        let inner = filter.shared().map_or(filter, |shared| shared.filter);
        self.trees(client.user).of(RuleKind::Subscribe).cover(inner.as_str(), client, Hidden::Apart)
    }

    /// The trees of all roles that a client has.
    fn trees(&self, user: Option<&str>) -> &Compiled {
        let owner = match user {
            None => &self.anonymous,
            Some(user) => self.users.get(user).unwrap_or(&self.every_user),
        };
        &self.compiled[owner.trees]
    }

    fn decision(&self, client: Client<'_>, grants: &Grants, (qos, retain): (Qos, bool)) -> Decision<'_> {
        if let Some(line) = grants.denying() {
            return Decision { is_allowed: false, reason: self.reason(client, line) };
        }
        if let Some(line) = grants.allowing(qos, retain) {
            return Decision { is_allowed: true, reason: self.reason(client, line) };
        }
        // A rule that matches allows less than was asked for.
        let smaller = grants.allowing(Qos::AtMostOnce, false);
        let reason = smaller.map_or(Reason::NoMatch, |line| self.reason(client, line));
        Decision { is_allowed: false, reason }
    }

    fn reason(&self, client: Client<'_>, line: Line) -> Reason<'_> {
        let rule = &self.rules[line.get() as usize - 1];
        Reason::Role(Deciding {
            role: &self.names[rule.role.0],
            held: self.held(client.user, rule.role),
            kind: rule.kind,
            filter: &rule.filter,
            permit: rule.permit,
            line: rule.line,
        })
    }

    /// The reason why a client has a role that it has. Looks at all groups.
    fn held(&self, user: Option<&str>, role: super::RoleId) -> Held<'_> {
        let Some(user) = user else { return Held::Anonymous };
        if self.users.get(user).is_some_and(|owner| owner.own.contains(&role)) {
            return Held::User;
        }
        let mut groups = self.groups.iter();
        let group = groups.find(|group| group.roles.contains(&role) && group.users.contains(user));
        group.map_or(Held::EveryUser, |group| Held::Group(&group.name))
    }
}
