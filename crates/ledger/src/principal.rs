//! The users for whom sessions and wills act: in records, and before the rules.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use auth::{Action, Realms};
use base::{Budget, Message, Principal, Subscriber, Tenant};

use crate::record::{Incarnation, MessageId};
use crate::sessions::SessionWork;
use crate::{Record, Settings};
use protocol::Claim;

impl Settings {
    /// The current rules, if there are any, or may be some of tokens.
    pub(crate) fn rules(&self) -> Option<Arc<Realms>> {
        let guard = &self.guard;
        guard.has_rules().then(|| guard.current())
    }

    /// Whether a will may be published now.
    pub(crate) fn may_publish(&self, principal: &Principal, will: &Message) -> bool {
        let client_id = will.publisher().unwrap_or_default();
        let rules = self.rules();
        // A will is no command.
        let may = |rules: Arc<Realms>| {
            let permit = rules.permit(principal, client_id, will.topic());
            permit.allows(will.qos(), will.retain()) && !rules.controls(will.topic())
        };
        rules.is_none_or(may)
    }

    /// Whether a session may receive a message now.
    pub(crate) fn may_receive(&self, session: &Subscriber, message: &Message) -> bool {
        self.rules().is_none_or(|rules| rules.allow(session, message.topic(), Action::Receive))
    }

    /// The record of a session's user. `None` for an anonymous one without rules, which is what a session is without such a
    /// record.
    pub(crate) fn principal_record(
        &self,
        session: Incarnation,
        principal: &Principal,
    ) -> Option<Record<'static>> {
        let realms = self.guard.current();
        let rules = realms.name(principal.realm);
        let has_rights = principal.tenant.is_some() || principal.claims.is_some();
        let is_plain = principal.user.is_none() && !has_rights && rules.is_empty();
        (!is_plain).then(|| of_session(session, principal, rules))
    }

    /// The same where the session had another user before.
    pub(crate) fn new_principal_record(
        &self,
        session: Incarnation,
        before: &Principal,
        principal: &Principal,
    ) -> Option<Record<'static>> {
        let realms = self.guard.current();
        let is_same = before.user == principal.user
            && before.is_proved == principal.is_proved
            && before.realm == principal.realm
            && before.tenant == principal.tenant
            && before.claims == principal.claims;
        (!is_same).then(|| of_session(session, principal, realms.name(principal.realm)))
    }
}

impl SessionWork<'_> {
    /// Whether the user of a claim has as many connections as it may. A connection that takes the place of another one of the
    /// same user is none more.
    pub(crate) fn has_enough_connections(&self, claim: &Claim) -> bool {
        let Some(rules) = self.settings.rules() else { return false };
        let principal = claim.subscriber.principal();
        let Some(most) = rules.limits(&principal).and_then(|limits| limits.connections_max) else {
            return false;
        };
        let holder =
            self.sessions.claims.find(&claim.subscriber.client_id).and_then(|client| client.holder.as_ref());
        let is_own = holder.is_some_and(|holder| {
            holder.principal.user == principal.user && holder.principal.tenant == principal.tenant
        });
        !is_own && self.sessions.claims.connections(&principal) >= most
    }

    /// Whether the client identifier of a claim belongs to a user that the claimant is not.
    ///
    /// An identifier belongs to the user who has proved its name, as long as there is such a user: another user must
    /// neither end that user's connection nor read that user's queue. A session that lasts also belongs to the mount
    /// point of the owner's listener and to the topic prefix of the owner's roles, whose topics no other client may
    /// see. A connection of an unknown user without such a session gives way, as everywhere: it may be gone already,
    /// and its shard has not said so yet.
    pub(crate) fn is_of_other_user(&self, claim: &Claim) -> bool {
        let client_id = &claim.subscriber.client_id;
        let Some(owner) = self.owner(client_id) else { return false };
        let claimant = claim.subscriber.principal();
        let realms = self.settings.guard.current();
        if !realms.have_same_topics(&owner, &claimant) {
            return owner.is_proved || self.has_lasting_session(client_id);
        }
        // A name that was imported means nothing where no name is proved.
        let is_owned = owner.is_proved && (owner.tenant.is_some() || !realms.prove_nothing());
        is_owned && !realms.is_same_user(&owner, &claimant) && realms.may_have(&owner)
    }

    /// The user of the connection that has a client identifier, or of its session.
    fn owner(&self, client_id: &str) -> Option<Arc<Principal>> {
        let client = self.sessions.claims.find(client_id)?;
        if let Some(holder) = &client.holder {
            return Some(Arc::clone(&holder.principal));
        }
        Some(self.lines.session(client.session?)?.subscriber.principal())
    }

    fn has_lasting_session(&self, client_id: &str) -> bool {
        let session = self.sessions.claims.find(client_id).and_then(|client| client.session);
        session
            .and_then(|session| self.lines.session(session))
            .is_some_and(|session| session.lasting.is_some())
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

/// The record of a will's user. `None` for an anonymous client without rules, which is what a will without such a record is
/// of.
pub(crate) fn of_will(realms: &Realms, will: MessageId, principal: &Principal) -> Option<Record<'static>> {
    let rules = realms.name(principal.realm);
    let user = principal.user.as_deref().map(|user| Cow::Owned(user.to_owned()));
    let claims = principal.claims.clone();
    let is_plain = user.is_none() && rules.is_empty() && claims.is_none();
    (!is_plain).then(|| Record::WillPrincipal { will, user, rules: Cow::Owned(rules.to_owned()), claims })
}

/// The user that a record names.
pub(crate) fn recorded(realms: &Realms, user: Option<&str>, is_proved: bool, rules: &str) -> Principal {
    let realm = realms.named(rules);
    Principal { user: user.map(Arc::from), is_proved, realm, ..Principal::default() }
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
