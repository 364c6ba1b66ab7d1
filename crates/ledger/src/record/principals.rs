//! The users for whom sessions and wills act, in records.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use auth::{Guard, Realms};
use base::{Budget, Principal, Realm, Tenant};

use crate::record::{Incarnation, MessageId, Record};
use crate::settings::Settings;

impl Settings {
    /// The record of a session's user. `None` for an anonymous one without rules, which is what a session is without such a
    /// record.
    pub(crate) fn principal_record(
        &self,
        session: Incarnation,
        principal: &Principal,
    ) -> Option<Record<'static>> {
        let realms = self.guard.current();
        let rules = rules_of(&realms, principal.realm);
        let has_rights = principal.tenant.is_some() || principal.claims.is_some();
        let is_plain = principal.user.is_none() && !has_rights && rules.is_empty();
        (!is_plain).then(|| of_session(session, principal, rules))
    }

    /// The same where the session may have had another user before. A reload may have given the rules another name since the last
    /// record, and a restart finds them by their name.
    pub(crate) fn new_principal_record(
        &self,
        session: Incarnation,
        before: &Principal,
        principal: &Principal,
    ) -> Option<Record<'static>> {
        let realms = self.guard.current();
        let is_same = self.guard.generation() == Guard::FIRST
            && before.user == principal.user
            && before.is_proved == principal.is_proved
            && before.realm == principal.realm
            && before.tenant == principal.tenant
            && before.claims == principal.claims;
        (!is_same).then(|| of_session(session, principal, rules_of(&realms, principal.realm)))
    }
}

/// The record of a session's user, whose rules have this name.
pub(crate) fn of_session(session: Incarnation, principal: &Principal, rules: &str) -> Record<'static> {
    let user = principal.user.as_deref().map(|user| Cow::Owned(user.to_owned()));
    let (is_proved, rules) = (principal.is_proved, Cow::Owned(rules.to_owned()));
    if principal.tenant.is_none() && principal.claims.is_none() {
        return Record::Principal { session, user, is_proved, rules };
    }
    let names = principal.tenant.as_deref().map(|tenant| [&*tenant.users, &*tenant.mount, &*tenant.prefix]);
    let [users, mount, prefix] = names.unwrap_or_default().map(|text| Cow::Owned(text.to_owned()));
    let claims = principal.claims.clone();
    Record::Owner { session, user, is_proved, rules, users, mount, prefix, claims }
}

/// The record of a will's user, whose rules have this name. `None` for an anonymous client without rules, which is what a will
/// without such a record is of.
pub(crate) fn of_will(will: MessageId, principal: &Principal, rules: &str) -> Option<Record<'static>> {
    let user = principal.user.as_deref().map(|user| Cow::Owned(user.to_owned()));
    let claims = principal.claims.clone();
    let is_plain = user.is_none() && rules.is_empty() && claims.is_none();
    (!is_plain).then(|| Record::WillPrincipal { will, user, rules: Cow::Owned(rules.to_owned()), claims })
}

/// The name of a realm's rules in records.
pub(crate) fn rules_of(realms: &Realms, realm: Realm) -> &str {
    realms.name(realm).unwrap_or(NOBODYS_RULES)
}

/// A name that no rules have: names are paths with line feeds between them. A session with these rules may do nothing as long
/// as a listener has rules.
const NOBODYS_RULES: &str = "\n";

/// Maximum number of names that [`UnknownRules`] keeps. They come from earlier configurations, never from clients.
const UNKNOWN_MAX: usize = 256;

/// Names of rules that are in the records, and that no listener had when the records were read.
///
/// Each name has a realm of its own that is not there and allows nothing. The numbers of these realms are those below
/// [`Realm::NONE`], which no listener reaches. Copies of the records keep the names: the next process may have listeners with
/// these rules again.
#[derive(Debug, Default)]
pub(crate) struct UnknownRules {
    names: Vec<Box<str>>,
}

impl UnknownRules {
    /// The realm of the rules with this name. Names beyond the maximum share [`Realm::NONE`], and are forgotten.
    pub(crate) fn realm(&mut self, realms: &Realms, rules: &str) -> Realm {
        let known = realms.named(rules);
        if known != Realm::NONE {
            return known;
        }
        let place = self.names.iter().position(|name| **name == *rules).or_else(|| {
            let has_room = self.names.len() < UNKNOWN_MAX;
            has_room.then(|| self.names.push(rules.into()))?;
            Some(self.names.len() - 1)
        });
        let below = |place| Some(Realm(Realm::NONE.0 - 1 - u16::try_from(place).ok()?));
        place.and_then(below).unwrap_or(Realm::NONE)
    }

    /// The name of a realm's rules in records: the name today, or the name in the records that were read.
    pub(crate) fn name<'a>(&'a self, realms: &'a Realms, realm: Realm) -> &'a str {
        self.unknown(realm).unwrap_or_else(|| rules_of(realms, realm))
    }

    /// The name of the rules of a realm that is not there.
    pub(crate) fn unknown(&self, realm: Realm) -> Option<&str> {
        let place = usize::from(Realm::NONE.0 - realm.0).checked_sub(1)?;
        self.names.get(place).map(|name| &**name)
    }
}

/// The tenant that a record names. A record with empty names has none.
pub(crate) fn recorded_tenant([users, mount, prefix]: [&str; 3]) -> Option<Arc<Tenant>> {
    let tenant = Tenant::new(users, mount, prefix);
    (tenant != Tenant::default()).then(|| Arc::new(tenant))
}

/// The tenants of the sessions that are read, each once.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    names: BTreeSet<Arc<str>>,
    /// By users, mount point and prefix.
    known: BTreeMap<[Arc<str>; 3], Arc<Tenant>>,
}

impl Tenants {
    /// The tenant that a record names, on the account. A record with empty names has none.
    pub(crate) fn recorded(&mut self, names: [&str; 3], budget: &Arc<Budget>) -> Option<Arc<Tenant>> {
        if names == [""; 3] {
            return None;
        }
        let names = names.map(|name| self.name(name));
        if let Some(tenant) = self.known.get(&names) {
            return Some(Arc::clone(tenant));
        }
        let [users, mount, prefix] = &names;
        let tenant = Arc::new(Tenant::new(Arc::clone(users), Arc::clone(mount), prefix));
        tenant.charge(budget);
        self.known.insert(names, Arc::clone(&tenant));
        Some(tenant)
    }

    fn name(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.names.get(name) {
            return Arc::clone(known);
        }
        let name: Arc<str> = name.into();
        self.names.insert(Arc::clone(&name));
        name
    }
}

#[cfg(test)]
mod tests {
    use base::Purpose;

    use super::*;

    #[test]
    fn unknown_rules_have_a_closed_realm_each_up_to_a_maximum() {
        let realms = Realms::new(["a", "b"].map(|name| (name.into(), Arc::default())).into());
        let mut unknown = UnknownRules::default();
        assert_eq!(unknown.realm(&realms, "b"), Realm(1));
        let numbers = 0..UNKNOWN_MAX;
        let known: Vec<Realm> = numbers.map(|number| unknown.realm(&realms, &number.to_string())).collect();
        for (number, realm) in known.into_iter().enumerate() {
            assert_eq!(unknown.realm(&realms, &number.to_string()), realm);
            assert_eq!(unknown.name(&realms, realm), number.to_string());
            assert!(realms.access(realm).is_none() && realm != Realm::NONE);
        }
        let last = unknown.realm(&realms, "one more");
        assert_eq!((last, unknown.name(&realms, last)), (Realm::NONE, NOBODYS_RULES));
        assert_eq!(realms.named(NOBODYS_RULES), Realm::NONE);
        assert_eq!(unknown.name(&realms, Realm(0)), "a");
    }

    #[test]
    fn equal_tenants_are_read_and_charged_once() {
        let budget = Arc::new(Budget::new(1 << 20));
        let mut tenants = Tenants::default();
        let mut recorded = |names| tenants.recorded(names, &budget);
        assert_eq!(recorded([""; 3]), None);
        let first = recorded(["users", "m/", "ann/"]).expect("a tenant");
        let of_one = budget.held_bytes(Purpose::Sessions);
        let same = recorded(["users", "m/", "ann/"]).expect("a tenant");
        assert!(Arc::ptr_eq(&first, &same) && of_one > "ann/".len());
        assert_eq!(budget.held_bytes(Purpose::Sessions), of_one);
        let other = recorded(["users", "m/", "bob/"]).expect("a tenant");
        assert!(Arc::ptr_eq(&first.users, &other.users) && Arc::ptr_eq(&first.mount, &other.mount));
        assert_eq!((&*other.prefix, budget.held_bytes(Purpose::Sessions)), ("bob/", 2 * of_one));
        drop((first, same, other, tenants));
        assert_eq!(budget.held_bytes(Purpose::Sessions), 0);
    }
}
