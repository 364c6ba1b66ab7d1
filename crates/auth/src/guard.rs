//! The users, rules and bans at one time, and the place from which all threads take them.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use base::{Principal, Realm, Subscriber, Tenant};
use topic::{TopicFilter, TopicName};
use wire::Qos;

use crate::{
    Access, Action, Bans, Client, Decision, DynamicSecurity, FilterAction, Limits, Permit, QueueLimits,
    Reason, Voucher,
};

/// The users and rules of all listeners at one time. Nothing in it ever changes.
#[derive(Debug)]
pub struct Realms {
    /// By number, each with the name under which records know its rules.
    all: Vec<(Box<str>, Arc<Access>)>,
    has_rules: bool,
    /// Whether tokens may have rules.
    have_token_rules: bool,
    /// No users and no rules, for clients of realms that are not there where nobody has rules.
    none: Access,
    /// Whether a realm has dynamic security, and commands for it.
    has_commands: bool,
    /// By number, as far as there are some.
    tenants: Vec<Option<Arc<Tenant>>>,
    /// By number, as far as there are some: the tenants of clients for whom somebody else vouches.
    bearers: Vec<Vec<(Voucher, Arc<Tenant>)>>,
    /// By number, as far as there are some: realms that no listener has any more.
    former: Vec<bool>,
}

impl Default for Realms {
    /// One realm without users and rules, in which everything is allowed.
    fn default() -> Self {
        Self::new(vec![("".into(), Arc::default())])
    }
}

/// Stands for the client identifier where limits are looked up: they are the same for all of them.
const ANY_CLIENT_ID: &str = "";

impl Realms {
    /// Realms by number, each with the name of its rules. Realms with the same rules have the same name.
    #[must_use]
    pub fn new(all: Vec<(Box<str>, Arc<Access>)>) -> Self {
        let has_rules = all.iter().any(|(_, access)| access.has_rules());
        let have_token_rules = all.iter().any(|(_, access)| access.tokens_have_rules());
        let has_commands = all.iter().any(|(_, access)| access.dynamic_security().is_some());
        let (tenants, bearers, former) = (Vec::new(), Vec::new(), Vec::new());
        let none = Access::default();
        Self { all, has_rules, have_token_rules, none, has_commands, tenants, bearers, former }
    }

    /// The same realms with their tenants, by number. A realm without one has no users and no mount point.
    #[must_use]
    pub fn with_tenants(mut self, tenants: Vec<Option<Arc<Tenant>>>) -> Self {
        self.tenants = tenants;
        self
    }

    /// The same realms with the tenants of clients for whom somebody else vouches, by number.
    #[must_use]
    pub fn with_bearers(mut self, bearers: Vec<Vec<(Voucher, Arc<Tenant>)>>) -> Self {
        self.bearers = bearers;
        self
    }

    /// The same realms, of which some belong to no listener any more. Their rules hold for the sessions that they have, and
    /// their tenants have left the configuration.
    #[must_use]
    pub fn with_former(mut self, former: Vec<bool>) -> Self {
        self.former = former;
        self
    }

    /// The tenant of a realm.
    #[must_use]
    pub fn tenant(&self, realm: Realm) -> Option<Arc<Tenant>> {
        self.tenants.get(usize::from(realm.0)).cloned().flatten()
    }

    /// The tenant of clients in a realm for whom somebody else vouches.
    #[must_use]
    pub fn bearers(&self, realm: Realm, voucher: Voucher) -> Option<Arc<Tenant>> {
        let mut bearers = self.bearers.get(usize::from(realm.0))?.iter();
        bearers.find(|(known, _)| *known == voucher).map(|(_, tenant)| Arc::clone(tenant))
    }

    /// Whether the sessions of `owner` have the mount point and the topic prefix of `claimant`. If all listeners have the same
    /// mount point, it takes the place of one that has left the configuration. Nothing takes the place of another prefix.
    #[must_use]
    pub fn have_same_topics(&self, owner: &Principal, claimant: &Principal) -> bool {
        let none = Tenant::default();
        let [owner, claimant] = [owner, claimant].map(|one| one.tenant.as_deref().unwrap_or(&none));
        owner.has_same_topics(claimant)
            || owner.prefix == claimant.prefix
                && self.is_same(&owner.mount, &claimant.mount, |tenant| &tenant.mount)
    }

    /// Whether a principal who has proved its name is the owner.
    ///
    /// The same name in another place of user names is another user. If all listeners have the same place, it takes that of
    /// one that has left the configuration. An owner that was recorded without a place is known by name alone, and is none for
    /// whom somebody else vouches where there are users of another kind.
    #[must_use]
    pub fn is_same_user(&self, owner: &Principal, claimant: &Principal) -> bool {
        let same_name = claimant.is_proved && claimant.user == owner.user;
        let users = claimant.tenant.as_ref().map_or("", |tenant| &*tenant.users);
        let may_adopt = || !Voucher::is_place(users) || self.is_only_place(users);
        same_name
            && owner.tenant.as_ref().map_or_else(may_adopt, |tenant| {
                // Names of different issuers have nothing in common.
                if Voucher::is_place(&tenant.users) || Voucher::is_place(users) {
                    return *tenant.users == *users;
                }
                self.is_same(&tenant.users, users, |tenant| &tenant.users)
            })
    }

    /// Whether all users here have the same place.
    fn is_only_place(&self, users: &str) -> bool {
        let of_bearers = self.bearers.iter().flatten().map(|(_, tenant)| tenant);
        let mut tenants = self.tenants.iter().flatten().chain(of_bearers);
        let has_passwords = self.all.iter().any(|(_, access)| access.users().is_some());
        !has_passwords && tenants.all(|tenant| tenant.users.is_empty() || *tenant.users == *users)
    }

    /// Whether user names prove nothing here: no listener has users or asks for certificates with names.
    #[must_use]
    pub fn prove_nothing(&self) -> bool {
        let has_users = self.all.iter().any(|(_, access)| access.users().is_some());
        !has_users && self.tenants.iter().flatten().all(|tenant| tenant.users.is_empty())
    }

    /// Whether the user of a principal is there still. A user of an unknown place counts as being there: nobody here can tell.
    #[must_use]
    pub fn may_have(&self, owner: &Principal) -> bool {
        let Some(user) = &owner.user else { return false };
        // The name may be that of a certificate. It is known where there are no passwords.
        let knows = |access: &Access| access.users().is_none() || access.knows(user);
        let Some(tenant) = &owner.tenant else { return self.access(owner.realm).is_none_or(knows) };
        let mut places =
            self.with_their_tenants().filter(|(_, known)| known.users == tenant.users).peekable();
        places.peek().is_none() || places.any(|(access, _)| knows(access))
    }

    /// The realms that listeners have, with their tenants.
    fn with_their_tenants(&self) -> impl Iterator<Item = (&Access, &Tenant)> {
        let is_former = |number: u16| self.former.get(usize::from(number)).copied().unwrap_or(false);
        let numbered = (0..=u16::MAX).zip(&self.tenants).filter(move |(number, _)| !is_former(*number));
        numbered.filter_map(|(number, tenant)| Some((self.access(Realm(number))?, tenant.as_deref()?)))
    }

    /// Whether two names mean the same: they are equal, or `before` is unknown and there is one name only. The name of a realm
    /// that a reload has removed is known: nobody else gets its sessions.
    fn is_same(&self, before: &str, now: &str, name: fn(&Tenant) -> &str) -> bool {
        let of_bearers = || self.bearers.iter().flatten().map(|(_, tenant)| name(tenant));
        let of_realms =
            || self.tenants.iter().map(|tenant| tenant.as_ref().map_or("", |tenant| name(tenant)));
        let names = || of_realms().chain(of_bearers());
        let is_only = || names().next().is_some() && names().all(|name| name == now);
        before == now || is_only()
    }

    /// The users and rules of a realm; `None` for [`Realm::NONE`].
    #[must_use]
    pub fn access(&self, realm: Realm) -> Option<&Access> {
        self.all.get(usize::from(realm.0)).map(|(_, access)| &**access)
    }

    /// The limits of a user by its roles and by the groups of its token, if there are roles.
    #[must_use]
    pub fn limits(&self, principal: &Principal) -> Option<Arc<Limits>> {
        self.access(principal.realm)?.limits(Client::of(principal, ANY_CLIENT_ID))
    }

    /// The limits for queues of a user, without a copy of other limits.
    #[must_use]
    pub fn queue_limits(&self, principal: &Principal) -> QueueLimits {
        let access = self.access(principal.realm);
        access.map_or_else(QueueLimits::default, |access| {
            access.queue_limits(Client::of(principal, ANY_CLIENT_ID))
        })
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
        let all = self.all.iter().map(|(name, access)| (name.clone(), one(access))).collect();
        let places = Self::new(all).with_tenants(self.tenants.clone()).with_bearers(self.bearers.clone());
        places.with_former(self.former.clone())
    }

    /// The name of a realm's rules, which means the same to the next process. `None` for a realm that is not there: the empty
    /// name is that of listeners without rules.
    #[must_use]
    pub fn name(&self, realm: Realm) -> Option<&str> {
        self.all.get(usize::from(realm.0)).map(|(name, _)| &**name)
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
        let client = Client::of(principal, client_id);
        let access = self.about(principal.realm, topic);
        access.map_or(Decision { is_allowed: false, reason: Reason::NoMatch }, |access| {
            access.decide(client, topic, action)
        })
    }

    /// The messages that a user may publish to a topic.
    #[must_use]
    pub fn permit(&self, principal: &Principal, client_id: &str, topic: TopicName<'_>) -> Permit {
        let client = Client::of(principal, client_id);
        self.about(principal.realm, topic).map_or(Permit::NONE, |access| access.permit(client, topic))
    }

    /// The rules that decide about a topic. `None` if nothing is allowed.
    fn about(&self, realm: Realm, topic: TopicName<'_>) -> Option<&Access> {
        let access = self.of(realm)?;
        // Commands and answers belong to the administrators of realms that have some.
        let is_closed = self.controls(topic) && access.dynamic_security().is_none();
        (!is_closed).then_some(access)
    }

    /// The rules of a realm. A realm that is not there allows nothing, unless nobody has rules. Then the rules of tokens decide alone.
    fn of(&self, realm: Realm) -> Option<&Access> {
        self.access(realm).or_else(|| (!self.has_rules).then_some(&self.none))
    }

    /// Whether a session may use a topic.
    #[must_use]
    pub fn allow(&self, session: &Subscriber, topic: TopicName<'_>, action: Action) -> bool {
        let principal = session.principal();
        let client = Client::of(&principal, &session.client_id);
        self.about(principal.realm, topic).is_some_and(|access| access.allows(client, topic, action))
    }

    /// The highest QoS at which a session may subscribe to a filter; `None` if it may not.
    #[must_use]
    pub fn granted(&self, session: &Subscriber, filter: TopicFilter<'_>) -> Option<Qos> {
        let principal = session.principal();
        let client = Client::of(&principal, &session.client_id);
        self.of(principal.realm)?.granted(client, filter)
    }

    /// Whether a session may end a subscription.
    #[must_use]
    pub fn may_unsubscribe(&self, session: &Subscriber, filter: TopicFilter<'_>) -> bool {
        let principal = session.principal();
        let client = Client::of(&principal, &session.client_id);
        let may =
            |access: &Access| access.decide_filter(client, filter, FilterAction::Unsubscribe).is_allowed;
        self.of(principal.realm).is_some_and(may)
    }

    /// Whether a topic is one of those to which administrators publish commands, so that no message to it has receivers.
    #[must_use]
    pub fn controls(&self, topic: TopicName<'_>) -> bool {
        self.has_commands && topic.first_level() == "$CONTROL"
    }

    /// Whether any realm has rules about topics.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.has_rules
    }
}

/// The place from which all threads take the current users, rules and bans.
///
/// Whoever replaces them then invalidates all cached routes (`index::Index::touch_all`), in this order. So a route that is
/// still valid was decided by the current rules.
#[derive(Debug, Default)]
pub struct Guard {
    current: RwLock<Arc<Realms>>,
    /// Whether there are rules, or sessions may have some from tokens.
    has_rules: AtomicBool,
    /// Whether sessions may have rules from tokens. Stays for the life of the process: the sessions outlive the configuration.
    have_claims: AtomicBool,
    replaced: AtomicU32,
    bans: RwLock<Arc<Bans>>,
    has_bans: AtomicBool,
}

impl Guard {
    /// These users and rules, for now.
    #[must_use]
    pub fn new(realms: Realms) -> Self {
        let have_claims = AtomicBool::new(realms.have_token_rules);
        let has_rules = AtomicBool::new(realms.has_rules());
        Self { current: RwLock::new(Arc::new(realms)), has_rules, have_claims, ..Self::default() }
    }

    /// The current users and rules.
    #[must_use]
    pub fn current(&self) -> Arc<Realms> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there are rules about topics now, or may be some of sessions, from their tokens. Costs one load.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.has_rules.load(Ordering::Relaxed)
    }

    /// The [`generation`](Self::generation) of the users and rules that the process began with.
    pub const FIRST: u32 = 1;

    /// The number of the current users and rules, which is never 0. What was found out with the same number still holds. Ask
    /// for the number first, and then for the rules. Costs one load.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.replaced.load(Ordering::SeqCst).wrapping_add(1).max(1)
    }

    /// Notes that a session or a will has rules of a token. They count from now on, also where nobody else has rules.
    pub fn note_claims(&self) {
        // A change of the rules comes before or after.
        let _current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        self.have_claims.store(true, Ordering::SeqCst);
        self.has_rules.store(true, Ordering::SeqCst);
    }

    /// Puts other users and rules in the place of the current ones.
    pub fn replace(&self, realms: Realms) {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        self.have_claims.fetch_or(realms.have_token_rules, Ordering::SeqCst);
        let has_rules = realms.has_rules() || self.have_claims.load(Ordering::SeqCst);
        self.has_rules.store(has_rules, Ordering::SeqCst);
        *current = Arc::new(realms);
        self.replaced.fetch_add(1, Ordering::SeqCst);
    }

    /// The current bans, ended ones included.
    #[must_use]
    pub fn bans(&self) -> Arc<Bans> {
        Arc::clone(&self.bans.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether there are bans now. Costs one load.
    #[must_use]
    pub fn has_bans(&self) -> bool {
        self.has_bans.load(Ordering::Relaxed)
    }

    /// Puts other bans in the place of the current ones.
    pub fn replace_bans(&self, bans: Bans) {
        let mut current = self.bans.write().unwrap_or_else(PoisonError::into_inner);
        self.has_bans.store(!bans.is_empty(), Ordering::SeqCst);
        *current = Arc::new(bans);
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
        let principal =
            Principal { user: Some("frog".into()), is_proved: true, realm, ..Principal::default() };
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

    fn of(users: &str, mount: &str) -> Principal {
        let tenant = Some(Arc::new(Tenant::new(users, mount, "")));
        Principal { user: Some("bob".into()), is_proved: true, tenant, ..Principal::default() }
    }

    fn with_places(places: &[(&str, &str)]) -> Realms {
        let all = places.iter().map(|_| ("".into(), rules(""))).collect();
        let tenants = places.iter().map(|(users, mount)| of(users, mount).tenant);
        Realms::new(all).with_tenants(tenants.collect())
    }

    #[test]
    fn a_name_means_one_user_in_one_place_only() {
        let realms = with_places(&[("a", ""), ("b", "")]);
        assert!(realms.is_same_user(&of("a", ""), &of("a", "")));
        assert!(!realms.is_same_user(&of("a", ""), &of("b", "")));
        assert!(!realms.is_same_user(&of("gone", ""), &of("b", "")) && realms.may_have(&of("gone", "")));
        let named = Principal { tenant: None, ..of("", "") };
        assert!(realms.is_same_user(&named, &of("b", "")), "recorded without a place");
        let one = with_places(&[("b", ""), ("b", "")]);
        assert!(one.is_same_user(&of("gone", ""), &of("b", "")), "there is one place only");
    }

    #[test]
    fn names_of_different_issuers_have_nothing_in_common() {
        let of_token = |issuer: &str| of(&format!("jwt:{issuer}"), "");
        let place = |issuer: &str| {
            let tenant = of_token(issuer).tenant;
            vec![tenant.map(|tenant| (Voucher::Token, tenant)).into_iter().collect()]
        };
        let tokens_only = |issuer: &str| {
            Realms::new(vec![("".into(), Arc::default())])
                .with_tenants(vec![None])
                .with_bearers(place(issuer))
        };
        assert!(!tokens_only("b").is_same_user(&of_token("a"), &of_token("b")), "the issuer has changed");
        let without = with_places(&[("users", "")]);
        assert!(!without.is_same_user(&of_token("a"), &of("users", "")), "there are no tokens any more");
        let named = Principal { tenant: None, ..of("", "") };
        let both = {
            let access = Arc::new(Access::new(Some(crate::Users::default()), None));
            Realms::new(vec![("".into(), access)]).with_tenants(vec![of("users", "").tenant])
        };
        let both = both.with_bearers(place("a"));
        assert!(!both.is_same_user(&named, &of_token("a")), "it may be a user with a password");
        assert!(!both.is_same_user(&named, &of_token("gone")), "nor may a bearer of an issuer that has gone");
        assert!(both.is_same_user(&named, &of("users", "")));
        assert!(tokens_only("a").is_same_user(&named, &of_token("a")));
        for other in ["http:", "ldap:", "users"] {
            assert!(!both.is_same_user(&of_token("a"), &of(other, "")), "{other}");
            assert!(!both.is_same_user(&of(other, ""), &of_token("a")), "{other}");
            assert_eq!(both.is_same_user(&named, &of(other, "")), other == "users", "{other}");
        }
    }

    #[test]
    fn nobody_takes_the_place_of_a_former_realm() {
        let realms = with_places(&[("a", "a/"), ("b", "b/")]).with_former(vec![true, false]);
        assert!(!realms.is_same_user(&of("a", ""), &of("b", "")));
        assert!(!realms.have_same_topics(&of("", "a/"), &of("", "b/")));
        assert!(realms.may_have(&of("a", "")), "nobody can tell");
    }

    #[test]
    fn commands_change_no_places() {
        let realms = with_places(&[("a", ""), ("b", "")]).with_dynamic_security(&Arc::default());
        assert!(!realms.is_same_user(&of("gone", ""), &of("b", "")));
        assert_eq!(realms.tenant(Realm(0)), of("a", "").tenant);
    }

    #[test]
    fn a_mount_point_is_no_other() {
        let realms = with_places(&[("", "a/"), ("", "b/")]);
        assert!(realms.have_same_topics(&of("", "a/"), &of("", "a/")));
        assert!(!realms.have_same_topics(&of("", "a/"), &of("", "b/")));
        assert!(!realms.have_same_topics(&of("", "gone/"), &of("", "b/")));
        assert!(!realms.have_same_topics(&Principal::default(), &of("", "b/")));
        assert!(with_places(&[("", "b/")]).have_same_topics(&of("", "gone/"), &of("", "b/")));
    }

    #[test]
    fn a_prefix_of_roles_is_no_other_and_leaves_no_configuration() {
        let behind = |mount, prefix| {
            let mut principal = of("users", mount);
            principal.set_prefix(prefix);
            principal
        };
        for realms in [with_places(&[("users", "")]), with_places(&[("users", ""), ("others", "b/")])] {
            let is_same = |owner: &Principal, claimant| realms.have_same_topics(owner, &claimant);
            assert!(is_same(&behind("", "ann/"), behind("", "ann/")), "after a restart too");
            assert!(!is_same(&behind("", "ann/"), behind("", "bob/")));
            assert!(!is_same(&behind("", "ann/"), of("users", "")), "there is only one mount point");
            assert!(!is_same(&behind("", "ann/"), Principal::default()));
            assert!(!is_same(&of("users", ""), behind("", "ann/")));
            assert!(is_same(&behind("a/", "ann/"), behind("", "a/ann/")), "the same topics");
            assert!(!is_same(&behind("a/", "ann/"), behind("b/", "ann/")));
        }
        let moved = with_places(&[("users", "b/")]);
        assert!(
            moved.have_same_topics(&behind("a/", "ann/"), &behind("b/", "ann/")),
            "all listeners have moved"
        );
        assert!(!moved.have_same_topics(&behind("a/", "ann/"), &behind("b/", "bob/")));
        assert!(!moved.have_same_topics(&behind("a/", "ann/"), &of("users", "b/")));
    }

    #[test]
    fn a_guard_hands_out_what_was_put_last() {
        let guard = Guard::default();
        assert!(!guard.has_rules() && may_read(&guard.current(), Realm(0)));
        let before = guard.generation();
        guard.replace(Realms::new(vec![("".into(), rules(""))]));
        assert!(guard.generation() != before && guard.generation() == guard.generation());
        assert!(guard.has_rules() && !may_read(&guard.current(), Realm(0)));
    }

    /// A session that may receive `pond`, by the rules of its token alone.
    fn with_claims(realm: Realm) -> Subscriber {
        let allows = Some(base::ClaimLevels { qos_max: Qos::ExactlyOnce, retain: true });
        let uses = base::Uses::RECEIVE.and(base::Uses::SUBSCRIBE);
        let rule = base::ClaimRule { filter: "pond".into(), uses, allows };
        let claims = base::Claims::new(Vec::new(), Some(vec![rule])).map(Arc::new);
        let principal = Principal { user: Some("frog".into()), realm, claims, ..Principal::default() };
        let queue = base::QueueId { slot: 0, generation: 0 };
        Subscriber::lasting("f1".into(), queue).with_principal(Arc::new(principal))
    }

    #[test]
    fn rules_of_a_token_count_where_nobody_else_has_rules() {
        let realms = Realms::default();
        for realm in [Realm(0), Realm::NONE] {
            let session = with_claims(realm);
            let may =
                |topic| realms.allow(&session, TopicName::new(topic).expect("a topic"), Action::Receive);
            assert_eq!((may("pond"), may("lake")), (true, false), "{realm:?}");
            let granted = |filter| realms.granted(&session, TopicFilter::new(filter).expect("a filter"));
            assert_eq!((granted("pond"), granted("#")), (Some(Qos::ExactlyOnce), None));
            assert!(realms.may_unsubscribe(&session, TopicFilter::new("#").expect("a filter")));
            let permit = realms.permit(&session.principal(), "f1", topic::topic!("pond"));
            assert_eq!(permit, Permit::NONE);
        }
    }

    #[test]
    fn a_guard_asks_for_rules_as_long_as_sessions_may_have_some() {
        let guard = Guard::default();
        guard.note_claims();
        assert!(guard.has_rules(), "they come from the journal");
        guard.replace(Realms::default());
        assert!(guard.has_rules());
        let rules = crate::TokenRules { rules_claim: Some("acl".to_owned()), ..crate::TokenRules::default() };
        let keys = crate::TokenKeys::of_file(&"s".repeat(32)).expect("a secret");
        let tokens = Arc::new(crate::Tokens::new(rules, keys));
        let with_tokens = Access::default().with_tokens(Some(tokens));
        let realms = || Realms::new(vec![("".into(), Arc::new(with_tokens.clone()))]);
        let replaced = Guard::default();
        replaced.replace(realms());
        for guard in [Guard::new(realms()), replaced] {
            guard.replace(Realms::default());
            assert!(guard.has_rules(), "sessions outlive the configuration");
        }
    }
}
