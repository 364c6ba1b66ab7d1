//! Decisions about topics and filters.

use topic::{TopicFilter, TopicName};

use super::role::{Acl, Role};
use super::{AclKind, DynamicSecurity, Ranked};
use crate::client::Client;
use crate::permissions::{Action, Decision, FilterAction, Reason};

/// Topics that the default never opens.
const CONTROL: &str = "$CONTROL";

/// A role with the group that has it.
type Held<'a> = (Option<&'a str>, &'a str, &'a Role);

impl DynamicSecurity {
    /// Whether a client may use a topic; `None` if nothing is said about it. The cost is one walk over the levels of the topic
    /// for each role of the client.
    #[must_use]
    pub fn decide(&self, client: Client<'_>, topic: TopicName<'_>, action: Action) -> Option<Decision<'_>> {
        let mut entries = self.held(client.user)?.map(|held| (held, held.2.decide(client, topic, action)));
        let found = entries.find_map(|(held, entry)| Some(decision(held, entry?)));
        let default = match action {
            Action::Publish => self.defaults.send,
            Action::Receive => self.defaults.receive,
        };
        found.or_else(|| by_default(default, topic.as_str()))
    }

    /// Whether a client may change its subscriptions in this way; `None` if nothing is said about it.
    #[must_use]
    pub fn decide_filter(
        &self,
        client: Client<'_>,
        filter: TopicFilter<'_>,
        action: FilterAction,
    ) -> Option<Decision<'_>> {
        let found =
            self.held(client.user)?.find_map(|held| match held.2.decide_filter(client, filter, action) {
                Err(()) => Some(Decision { is_allowed: false, reason: Reason::Wildcards { role: held.1 } }),
                Ok(entry) => Some(decision(held, entry?)),
            });
        let default = match action {
            FilterAction::Subscribe => self.defaults.subscribe,
            FilterAction::Unsubscribe => self.defaults.unsubscribe,
        };
        let inner = filter.shared().map_or(filter, |shared| shared.filter);
        found.or_else(|| by_default(default, inner.as_str()))
    }

    /// The roles of a client in the order in which they decide; `None` if there is no such client.
    fn held(&self, user: Option<&str>) -> Option<impl Iterator<Item = Held<'_>>> {
        let client = user.map(|user| self.clients.get(user).ok_or(())).transpose().ok()?;
        let own = client.map_or(&[][..], |client| &client.roles);
        let memberships = client.map_or(&[][..], |client| &client.groups);
        let anonymous = self.anonymous_group.as_deref().filter(|_| client.is_none());
        let groups = memberships.iter().map(|group: &Ranked| &*group.name).chain(anonymous);
        let of_groups = groups.filter_map(|name| Some((name, self.groups.get(name)?)));
        let of_groups =
            of_groups.flat_map(|(name, group)| group.roles.iter().map(move |role| (Some(name), role)));
        let all = own.iter().map(|role| (None, role)).chain(of_groups);
        Some(all.filter_map(|(group, role)| Some((group, &*role.name, &**self.roles.get(&role.name)?))))
    }
}

fn decision<'a>((group, role, _): Held<'a>, (kind, acl): (AclKind, &'a Acl)) -> Decision<'a> {
    let reason = Reason::Entry { role, group, kind, topic: &acl.topic };
    Decision { is_allowed: acl.is_allowed, reason }
}

/// The default answer. A default that refuses leaves the decision to others.
fn by_default(default: bool, topic: &str) -> Option<Decision<'static>> {
    let is_allowed = default && !topic.starts_with(CONTROL);
    is_allowed.then_some(Decision { is_allowed, reason: Reason::Default })
}
