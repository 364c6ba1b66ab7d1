//! Decisions of the rules of roles.

use std::sync::Arc;

use base::Claims;
use topic::{TopicFilter, TopicName};
use wire::Qos;

use super::grants::{Grants, Permit};
use super::{Compiled, Deciding, Group, Held, Limits, QueueLimits, Roles, RuleKind};
use crate::claims::{Asked, Standing};
use crate::client::Client;
use crate::permissions::{Action, Decision, FilterAction, Reason};
use crate::tree::{Hidden, Line, Merge};

impl Roles {
    /// The messages that a client may publish to a topic. The cost is one walk over the levels of the topic, and one more for each
    /// group in the client's token.
    #[must_use]
    pub fn permit(&self, client: Client<'_>, topic: TopicName<'_>) -> Permit {
        self.grants(client, Asked::Publish(topic)).permit()
    }

    /// Whether a client may receive messages of a topic. The cost is that of [`permit`](Self::permit).
    #[must_use]
    pub fn receives(&self, client: Client<'_>, topic: TopicName<'_>) -> bool {
        self.grants(client, Asked::Receive(topic)).permit() != Permit::NONE
    }

    /// The highest QoS at which a client may subscribe to a filter; `None` if it may not. One rule has to cover the whole filter.
    /// The filter behind `$share/GROUP/` counts.
    #[must_use]
    pub fn granted(&self, client: Client<'_>, filter: TopicFilter<'_>) -> Option<Qos> {
        self.grants(client, Asked::Subscribe(filter)).permit().qos_max()
    }

    /// The rights that the roles of a client give.
    pub(crate) fn standing(&self, client: Client<'_>, asked: Asked<'_>) -> Standing {
        let grants = self.grants(client, asked);
        Standing { is_denied: grants.denying().is_some(), allowed: grants.permit() }
    }

    /// Whether a client may publish such a message, and the rule that decides.
    #[must_use]
    pub fn decide_publish(
        &self,
        client: Client<'_>,
        topic: TopicName<'_>,
        (qos, retain): (Qos, bool),
    ) -> Decision<'_> {
        let grants = self.grants(client, Asked::Publish(topic));
        self.decision(client, &grants, (qos, retain))
    }

    /// Whether a client may use a topic, and the rule that decides. A publisher may if there is any message that it may publish.
    #[must_use]
    pub fn decide(&self, client: Client<'_>, topic: TopicName<'_>, action: Action) -> Decision<'_> {
        match action {
            Action::Publish => self.decide_publish(client, topic, (Qos::AtMostOnce, false)),
            Action::Receive => {
                let grants = self.grants(client, Asked::Receive(topic));
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
                let grants = self.grants(client, Asked::Subscribe(filter));
                self.decision(client, &grants, (Qos::AtMostOnce, false))
            }
        }
    }

    /// The limits of a client, which all its roles have together.
    #[must_use]
    pub fn limits(&self, client: Client<'_>) -> Arc<Limits> {
        let own = &self.trees(client.user).limits;
        let mut of_groups = self.trees_of_groups(client).peekable();
        if of_groups.peek().is_none() {
            return Arc::clone(own);
        }
        let mut all = Limits::clone(own);
        of_groups.for_each(|compiled| all.merge(&compiled.limits));
        Arc::new(all)
    }

    /// The limits for queues, which all roles of a client have together. Costs a look-up for each group in the client's token, and
    /// no memory.
    #[must_use]
    pub fn queue_limits(&self, client: Client<'_>) -> QueueLimits {
        let own = self.trees(client.user).limits.queue;
        self.trees_of_groups(client).fold(own, |all, compiled| all.merged(compiled.limits.queue))
    }

    /// The grants of all rules that match, in all roles that a client has.
    fn grants(&self, client: Client<'_>, asked: Asked<'_>) -> Grants {
        let mut all = self.trees(client.user).grants(client, asked);
        for compiled in self.trees_of_groups(client) {
            all.merge(&compiled.grants(client, asked));
        }
        all
    }

    /// The trees of all roles that a client has by its name.
    fn trees(&self, user: Option<&str>) -> &Compiled {
        let owner = match user {
            None => &self.anonymous,
            Some(user) => self.users.get(user).unwrap_or(&self.every_user),
        };
        &self.compiled[owner.trees]
    }

    /// The trees of the groups that the client's token names, as far as there are such groups.
    fn trees_of_groups(&self, client: Client<'_>) -> impl Iterator<Item = &Compiled> {
        let names = client.claims.into_iter().flat_map(Claims::groups);
        let places = names.filter_map(|name| self.places.get(name));
        places.map(|place| &self.compiled[self.groups[*place].trees])
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
            held: self.held(client, rule.role),
            kind: rule.kind,
            filter: &rule.filter,
            permit: rule.permit,
            line: rule.line,
        })
    }

    /// The reason why a client has a role that it has. Looks at all groups.
    fn held(&self, client: Client<'_>, role: super::RoleId) -> Held<'_> {
        let Some(user) = client.user else { return Held::Anonymous };
        if self.users.get(user).is_some_and(|owner| owner.own.contains(&role)) {
            return Held::User;
        }
        let has = |group: &&Group| group.roles.contains(&role);
        let by_name = self.groups.iter().filter(has).find(|group| group.users.contains(user));
        if let Some(group) = by_name {
            return Held::Group(&group.name);
        }
        if self.every_user.own.contains(&role) {
            return Held::EveryUser;
        }
        let is_claimed =
            |group: &&Group| client.claims.is_some_and(|claims| claims.groups().contains(&group.name));
        let by_token = self.groups.iter().filter(has).find(is_claimed);
        by_token.map_or(Held::EveryUser, |group| Held::Group(&group.name))
    }
}

impl Compiled {
    /// The grants of the rules that match.
    fn grants(&self, client: Client<'_>, asked: Asked<'_>) -> Grants {
        match asked {
            Asked::Publish(topic) => self.of(RuleKind::Publish).walk(topic, client),
            Asked::Receive(topic) => self.of(RuleKind::Receive).walk(topic, client),
            Asked::Subscribe(filter) => {
                let inner = filter.shared().map_or(filter, |shared| shared.filter);
                self.of(RuleKind::Subscribe).cover(inner.as_str(), client, Hidden::Apart)
            }
        }
    }
}
