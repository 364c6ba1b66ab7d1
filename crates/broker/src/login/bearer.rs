//! Clients for whom somebody else vouches, by a token, by an answer, or as their system: let in under the name in it, and
//! disconnected when it expires.

use std::sync::Arc;

use auth::{Bearer, TokenProblem, Unchecked, Voucher};
use base::{ConnectionId, Now, Principal};
use protocol::Claim;
use wire::{ConnectRefusal, DisconnectReason};

use super::{DISABLED, NO_PROCESS, OTHER_ID, Stranger, WRONG};
use crate::client::Client;
use crate::effects::Outside;
use crate::{Effects, Shard};

impl Client {
    /// The moment at which the token of the client expires, in monotonic milliseconds. The clock of the wall may have jumped
    /// since it was asked last.
    pub(crate) fn expires_ms(&self, now: Now) -> Option<u64> {
        let until_ms = self.aside().until_unix_secs?.saturating_mul(1_000);
        Some(now.monotonic_ms.saturating_add(until_ms.saturating_sub(now.unix_ms)))
    }
}

impl Shard {
    /// A token, a server elsewhere or the system has proved who a client is.
    pub(super) fn let_in_bearer(
        &mut self,
        id: ConnectionId,
        bearer: &Bearer,
        claim: Claim,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let (entry, realms) = (self.entries.of(client), self.guard.current());
        let access = realms.access(entry.realm);
        // Keys, servers and users may have changed meanwhile.
        if !access.is_some_and(|access| access.vouches(&bearer.user, bearer.key)) {
            let is_user_here = access.is_some_and(|access| access.knows(&bearer.user));
            let stranger = match bearer.voucher {
                Voucher::Token => Stranger::of_token(TokenProblem::UnknownKey),
                Voucher::Http | Voucher::Ldap if is_user_here => WRONG,
                Voucher::Http | Voucher::Ldap => Stranger::of(Unchecked::Unreachable),
                // A reload has ended that processes have names here, and their connections leave.
                Voucher::Process => NO_PROCESS,
            };
            return self.turn_away_stranger(id, stranger, claim, to);
        }
        if access.is_some_and(|access| access.is_disabled(&bearer.user)) {
            return self.turn_away_stranger(id, DISABLED, claim, to);
        }
        let client_id = &claim.subscriber.client_id;
        if access.is_some_and(|access| !access.permits_client_id(&bearer.user, client_id)) {
            return self.turn_away_stranger(id, OTHER_ID, claim, to);
        }
        if let Some(until) = bearer.until_unix_secs {
            client.make_aside().until_unix_secs = Some(until);
            self.arm(id, to.now);
        }
        let (user, tenant) = (Some(Arc::clone(&bearer.user)), realms.bearers(entry.realm, bearer.voucher));
        bearer.claims.iter().for_each(|claims| claims.charge(self.tally.budget()));
        let (proof, claims) = (Some(bearer.key), bearer.claims.clone());
        self.claim(
            id,
            claim,
            Principal { user, is_proved: true, proof, realm: entry.realm, tenant, claims },
            to,
        );
    }

    /// Ends a connection whose token, or whose answer of a server elsewhere, has expired.
    pub(crate) fn end_expired(&mut self, id: ConnectionId, to: &mut Outside<'_, impl Effects>) {
        self.counters.ended_login_expired.add(1);
        self.give_up(id, DisconnectReason::NotAuthorized, "its token has expired, or its login", to);
    }
}

impl Stranger {
    /// A client whose token proves nothing.
    pub(super) fn of_token(problem: TokenProblem) -> Self {
        use TokenProblem as P;
        let refusal = match problem {
            // The client has done nothing wrong, and may succeed later.
            P::NoKeys => ConnectRefusal::ServerUnavailable,
            _ => ConnectRefusal::BadUserNameOrPassword,
        };
        let counter: fn(&crate::Counters) -> &crate::counters::Counter = match problem {
            P::Malformed | P::TooLong | P::Critical => |counters| &counters.refused_token_malformed,
            P::Algorithm => |counters| &counters.refused_token_algorithm,
            P::NoKeys => |counters| &counters.refused_token_no_keys,
            P::UnknownKey => |counters| &counters.refused_token_key,
            P::Signature => |counters| &counters.refused_token_signature,
            P::Expired => |counters| &counters.refused_token_expired,
            P::Time | P::NoExpiry | P::NotYet | P::Issuer | P::Audience | P::Groups | P::Rules => {
                |counters| &counters.refused_token_claims
            }
            P::User | P::OtherUser => |counters| &counters.refused_token_user,
        };
        Self { refusal, why: problem.text(), counter }
    }
}
