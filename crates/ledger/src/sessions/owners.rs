//! Client identifiers that belong to users.

use std::sync::Arc;

use base::Principal;
use protocol::Claim;

use crate::sessions::SessionWork;

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
