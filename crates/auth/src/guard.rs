//! The users and rules of all listeners at one time, and the place from which all threads take them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use base::{Principal, Realm, Subscriber};
use topic::{TopicFilter, TopicName};

use crate::{Access, Action, Client, Decision, DynamicSecurity, FilterAction, Reason};

/// The users and rules of all listeners at one time. Nothing in it ever changes.
#[derive(Debug)]
pub struct Realms {
    /// By number, each with the name under which records know its rules.
    all: Vec<(Box<str>, Arc<Access>)>,
    has_rules: bool,
    has_filter_rules: bool,
}

impl Default for Realms {
    /// One realm without users and rules, in which everything is allowed.
    fn default() -> Self {
        Self::new(vec![("".into(), Arc::default())])
    }
}

impl Realms {
    /// Realms by number, each with the name of its rules. Realms with the same rules have the same name.
    #[must_use]
    pub fn new(all: Vec<(Box<str>, Arc<Access>)>) -> Self {
        let has_rules = all.iter().any(|(_, access)| access.has_rules());
        let has_filter_rules = all.iter().any(|(_, access)| access.has_filter_rules());
        Self { all, has_rules, has_filter_rules }
    }

    /// The users and rules of a realm; `None` for [`Realm::NONE`].
    #[must_use]
    pub fn access(&self, realm: Realm) -> Option<&Access> {
        self.all.get(usize::from(realm.0)).map(|(_, access)| &**access)
    }

    /// Dynamic security, if a realm has some. All realms that have some have the same.
    #[must_use]
    pub fn dynamic_security(&self) -> Option<&Arc<DynamicSecurity>> {
        self.all.iter().find_map(|(_, access)| access.dynamic_security())
    }

    /// The same realms with other dynamic security, where there is some.
    #[must_use]
    pub fn with_dynamic_security(&self, dynamic: &Arc<DynamicSecurity>) -> Self {
        let one = |access: &Arc<Access>| match access.dynamic_security() {
            Some(_) => Arc::new(access.with_dynamic_security(Arc::clone(dynamic))),
            None => Arc::clone(access),
        };
        Self::new(self.all.iter().map(|(name, access)| (name.clone(), one(access))).collect())
    }

    /// The name of a realm's rules, which means the same to the next process.
    #[must_use]
    pub fn name(&self, realm: Realm) -> &str {
        self.all.get(usize::from(realm.0)).map_or("", |(name, _)| name)
    }

    /// A realm whose rules have this name. If all realms have the same rules, these hold whatever the name is.
    #[must_use]
    pub fn named(&self, name: &str) -> Realm {
        let mut names = self.all.iter().map(|(name, _)| &**name);
        let place = names.position(|known| known == name).or_else(|| {
            let mut names = self.all.iter().map(|(name, _)| name);
            let first = names.next()?;
            names.all(|name| name == first).then_some(0)
        });
        place.and_then(|place| u16::try_from(place).ok()).map_or(Realm::NONE, Realm)
    }

    /// Whether a user may use a topic, and the reason. A realm that is not there allows nothing.
    #[must_use]
    pub fn decide(
        &self,
        principal: &Principal,
        client_id: &str,
        topic: TopicName<'_>,
        action: Action,
    ) -> Decision<'_> {
        let client = Client { user: principal.user.as_deref(), client_id };
        match self.access(principal.realm) {
            // Commands and answers belong to the administrators of realms that have some.
            Some(access) if self.controls(topic) && !access.has_filter_rules() => {
                Decision { is_allowed: false, reason: Reason::NoMatch }
            }
            Some(access) => access.decide(client, topic, action),
            None => Decision { is_allowed: !self.has_rules, reason: Reason::NoMatch },
        }
    }

    /// Whether a session may use a topic. Without rules this costs one comparison.
    #[must_use]
    pub fn allow(&self, session: &Subscriber, topic: TopicName<'_>, action: Action) -> bool {
        !self.has_rules || self.decide(&session.principal(), &session.client_id, topic, action).is_allowed
    }

    /// Whether a session may change its subscriptions in this way. Without rules about filters this costs one comparison.
    #[must_use]
    pub fn allow_filter(&self, session: &Subscriber, filter: TopicFilter<'_>, action: FilterAction) -> bool {
        if !self.has_filter_rules {
            return true;
        }
        let principal = session.principal();
        let client = Client { user: principal.user.as_deref(), client_id: &session.client_id };
        let access = self.access(principal.realm);
        access.is_some_and(|access| access.decide_filter(client, filter, action).is_allowed)
    }

    /// Whether a topic is one of those to which administrators publish commands, so that no message to it has receivers.
    #[must_use]
    pub fn controls(&self, topic: TopicName<'_>) -> bool {
        self.has_filter_rules && topic.first_level() == "$CONTROL"
    }

    /// Whether any realm has rules about filters.
    #[must_use]
    pub fn has_filter_rules(&self) -> bool {
        self.has_filter_rules
    }

    /// Whether any realm has rules about topics.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.has_rules
    }
}

/// The place from which all threads take the current users and rules.
///
/// Whoever replaces them then invalidates all cached routes (`index::Index::touch_all`), in this order. So a route that is
/// still valid was decided by the current rules.
#[derive(Debug, Default)]
pub struct Guard {
    current: RwLock<Arc<Realms>>,
    has_rules: AtomicBool,
}

impl Guard {
    /// These users and rules, for now.
    #[must_use]
    pub fn new(realms: Realms) -> Self {
        let has_rules = AtomicBool::new(realms.has_rules());
        Self { current: RwLock::new(Arc::new(realms)), has_rules }
    }

    /// The current users and rules.
    #[must_use]
    pub fn current(&self) -> Arc<Realms> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there are rules about topics now. Costs one load.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.has_rules.load(Ordering::Relaxed)
    }

    /// Puts other users and rules in the place of the current ones.
    pub fn replace(&self, realms: Realms) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        self.has_rules.store(realms.has_rules(), Ordering::SeqCst);
        *current = Arc::new(realms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Permissions;

    fn rules(text: &str) -> Arc<Access> {
        Arc::new(Access::new(None, Some(Permissions::of_mosquitto(text).expect("rules"))))
    }

    fn may_read(realms: &Realms, realm: Realm) -> bool {
        let principal = Principal { user: Some("frog".into()), is_proved: true, proof: None, realm };
        realms.decide(&principal, "f1", topic::topic!("pond"), Action::Receive).is_allowed
    }

    #[test]
    fn the_rules_of_a_realm_that_is_gone_allow_nothing() {
        let open = "user frog\ntopic pond\n";
        let realms = Realms::new(vec![("open".into(), rules(open)), ("closed".into(), rules(""))]);
        assert_eq!([0, 1].map(|realm| may_read(&realms, Realm(realm))), [true, false]);
        assert_eq!(realms.named("open"), Realm(0));
        assert_eq!(realms.named("gone"), Realm::NONE);
        assert!(!may_read(&realms, Realm::NONE));
        let one = Realms::new(vec![("new".into(), rules(open)), ("new".into(), rules(open))]);
        assert_eq!(one.named("old"), Realm(0), "there are no others");
        assert!(may_read(&Realms::default(), Realm::NONE), "nobody has rules");
    }

    #[test]
    fn a_guard_hands_out_what_was_put_last() {
        let guard = Guard::default();
        assert!(!guard.has_rules() && may_read(&guard.current(), Realm(0)));
        guard.replace(Realms::new(vec![("".into(), rules(""))]));
        assert!(guard.has_rules() && !may_read(&guard.current(), Realm(0)));
    }
}
