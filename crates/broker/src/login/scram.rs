//! Clients that prove that they know a password, without sending it, in AUTH packets of MQTT 5.0 (4.12).
//!
//! ```text
//!             begin                   finish                checked
//! CONNECT, or ─────► Stage::Asked ──────────► Stage::Proving ──────► the claim is posted, or the client stays
//! AUTH 0x19          (AUTH 0x18 sent)         (threads of `verify`)
//! ```

use auth::{Channel, Check, Checked, Exchange, Identity, Mechanism, ScramProblem, Wish};
use base::{Charge, ConnectionId, Purpose, Subscriber};
use protocol::Claim;
use session::{Authenticated, AuthenticationOutcome, AuthenticationStep};
use wire::{Binary, ConnectRefusal};

use super::{NO_MEMORY, Naming, SMALL_LOGIN_BYTES, Stranger};
use crate::effects::Outside;
use crate::{Effects, Shard};

/// An exchange of a client.
#[derive(Debug)]
pub(crate) struct Authenticating {
    /// CONNECT. `None` for a client that is connected, and authenticates itself again.
    pub(crate) claim: Option<Claim>,
    stage: Stage,
    identity: Identity,
    /// The proof of a client that is gone is not checked. `None` until there is one.
    _wish: Option<Wish>,
    /// The memory of the exchange, and of the will in CONNECT.
    _charges: [Charge; 2],
}

impl Authenticating {
    /// Whether a client that is not connected yet waits for the check of its proof.
    pub(super) fn is_coming(&self) -> bool {
        self.claim.is_some() && matches!(self.stage, Stage::Proving(_))
    }
}

#[derive(Debug)]
enum Stage {
    /// The proof of the client is expected.
    Asked(Exchange),
    /// The proof is being checked. If it is right, the client gets this answer.
    Proving(String),
}

const NO_METHOD: Stranger = Stranger {
    refusal: ConnectRefusal::BadAuthenticationMethod,
    why: "nobody has a password here that its authentication method could prove",
    counter: |counters| &counters.refused_authentication,
};
const NO_BINDING: Stranger = Stranger {
    why: "its authentication method needs channel binding, which its connection does not have",
    ..NO_METHOD
};
const NOT_PROVED: Stranger = Stranger {
    refusal: ConnectRefusal::NotAuthorized,
    why: "it does not know the password, or there is no such user",
    counter: |counters| &counters.refused_password,
};
const OTHER_USER: Stranger = Stranger {
    refusal: ConnectRefusal::NotAuthorized,
    why: "the name in its authentication data is another than that in CONNECT",
    counter: |counters| &counters.refused_authentication,
};

impl Stranger {
    fn of_scram(problem: ScramProblem) -> Self {
        Self { why: problem.text(), ..OTHER_USER }
    }
}

impl Shard {
    /// The client has made a step of its exchange.
    pub(crate) fn authenticate(
        &mut self,
        id: ConnectionId,
        step: &AuthenticationStep<'_>,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let claim = match &step.connect {
            Some(connect) => {
                let Some(claim) = self.claim_of(id, connect, to) else { return };
                Some(claim)
            }
            None => None,
        };
        let Some(client) = self.clients.get_mut(id) else { return };
        let begun = client.aside_mut().and_then(|aside| aside.authenticating.take());
        if begun.is_some() {
            self.asked.forget(id);
        }
        let data = step.data.map_or(&[][..], Binary::as_bytes);
        match begun.map(|begun| *begun) {
            Some(Authenticating { stage: Stage::Asked(exchange), claim, identity, .. }) => {
                self.prove(id, (exchange, data), claim, identity, to);
            }
            _ => match self.begin_exchange(id, step, claim.as_ref(), to) {
                Ok((exchange, identity, answer)) => {
                    self.ask_for_proof(id, (exchange, &answer), claim, identity, to);
                }
                Err(stranger) => self.refuse_proof(id, stranger, claim, to),
            },
        }
    }

    /// Handles the first message of an exchange. If memory is missing, older exchanges make room.
    fn begin_exchange(
        &mut self,
        id: ConnectionId,
        step: &AuthenticationStep<'_>,
        claim: Option<&Claim>,
        to: &mut Outside<'_, impl Effects>,
    ) -> Result<(Exchange, Identity, String), Stranger> {
        let client = self.clients.get(id).ok_or(NO_METHOD)?;
        let (entry, realms) = (self.entries.of(client), self.guard.current());
        let (mechanism, uses_binding) = Mechanism::named(step.method.as_str()).ok_or(NO_METHOD)?;
        let channel = match (to.channel_binding(id), uses_binding) {
            (Some(binding), true) => Channel::Bound(binding),
            (Some(_), false) => Channel::Unbound,
            (None, true) => return Err(NO_BINDING),
            (None, false) => Channel::Plain,
        };
        // A certificate, or the system, takes the place of all passwords.
        let is_proving = entry.naming == Naming::Connect;
        let access = realms.access(entry.realm).filter(|_| is_proving).ok_or(NO_METHOD)?;
        if access.users().is_none() {
            return Err(NO_METHOD);
        }
        let data = step.data.map_or(&[][..], Binary::as_bytes);
        if !self.make_room_for_login(claim.map_or(0, Claim::will_bytes), to) {
            return Err(NO_MEMORY);
        }
        let connected = self.clients.get(id).and_then(|client| client.subscriber.as_ref());
        let subscriber: &Subscriber = claim.map(|claim| &claim.subscriber).or(connected).ok_or(NO_METHOD)?;
        let mut found = None;
        let nonce = to.random();
        let begun = Exchange::begin((mechanism, channel), data, nonce, |name| {
            let (identity, credential) =
                access.scram(mechanism, name, &subscriber.client_id).expect("there are users");
            found = Some(identity);
            credential
        });
        let (exchange, answer) = begun.map_err(Stranger::of_scram)?;
        let identity = found.ok_or(NO_METHOD)?;
        let principal = subscriber.principal();
        let said = match step.connect {
            Some(connect) => connect.user_name().map(|name| name.as_str()),
            // A client cannot become another user.
            None => principal.user.as_deref(),
        };
        match said.filter(|said| !said.is_empty() && *said != identity.name()) {
            Some(_) => Err(OTHER_USER),
            None => Ok((exchange, identity, answer)),
        }
    }

    fn ask_for_proof(
        &mut self,
        id: ConnectionId,
        (exchange, answer): (Exchange, &str),
        claim: Option<Claim>,
        identity: Identity,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let charges = self.charge_exchange(exchange.size_bytes(), claim.as_ref());
        let will_bytes = claim.as_ref().map_or(0, Claim::will_bytes);
        if will_bytes > SMALL_LOGIN_BYTES {
            self.asked.note(id, will_bytes, true);
        }
        let begun =
            Authenticating { claim, stage: Stage::Asked(exchange), identity, _wish: None, _charges: charges };
        let Some(client) = self.clients.get_mut(id) else { return };
        client.make_aside().authenticating = Some(Box::new(begun));
        let outcome = AuthenticationOutcome::Continue(Binary::new(answer.as_bytes()).ok());
        self.apply(id, outcome, to);
        self.arm(id, to.now);
    }

    /// Handles the second message of an exchange: its proof is checked on another thread.
    fn prove(
        &mut self,
        id: ConnectionId,
        (exchange, data): (Exchange, &[u8]),
        claim: Option<Claim>,
        identity: Identity,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let (check, answer) = match exchange.finish(data) {
            Ok(finished) => finished,
            Err(problem) => return self.refuse_proof(id, Stranger::of_scram(problem), claim, to),
        };
        let charges = self.charge_exchange(check.size_bytes() + answer.len(), claim.as_ref());
        let wish = match to.verify(id, Check::Scram(check)) {
            Ok(wish) => Some(wish),
            Err(unchecked) => return self.refuse_proof(id, Stranger::of(unchecked), claim, to),
        };
        let Some(client) = self.clients.get_mut(id) else { return };
        // A client that is connected goes on meanwhile.
        let is_coming = claim.is_some();
        let stage = Stage::Proving(answer);
        let begun = Authenticating { claim, stage, identity, _wish: wish, _charges: charges };
        client.make_aside().authenticating = Some(Box::new(begun));
        if is_coming {
            to.pause(id);
        }
    }

    /// Ends the exchange that has waited for its client longest. Returns the bytes of its will, if there is one.
    pub(super) fn displace_exchange(&mut self, to: &mut Outside<'_, impl Effects>) -> Option<usize> {
        let (id, will_bytes) = self.asked.oldest()?;
        self.asked.forget(id);
        let aside = self.clients.get_mut(id).and_then(|client| client.aside_mut());
        let begun = aside.and_then(|aside| aside.authenticating.take())?;
        let Authenticating { claim, _charges: charges, .. } = *begun;
        drop(charges);
        self.refuse_proof(id, NO_MEMORY, claim, to);
        Some(will_bytes)
    }

    /// Charges an exchange, of which a connection has one at a time and which has a bound, and the will that waits for its end.
    fn charge_exchange(&self, bytes: usize, claim: Option<&Claim>) -> [Charge; 2] {
        let budget = self.tally.budget();
        let will_bytes = claim.map_or(0, Claim::will_bytes);
        [budget.charge(Purpose::Connections, bytes), budget.charge(Purpose::Logins, will_bytes)]
    }

    /// Handles the outcome of the check of a proof, if there was one. Returns whether there was.
    pub(super) fn proof_checked(
        &mut self,
        id: ConnectionId,
        checked: &Checked,
        to: &mut Outside<'_, impl Effects>,
    ) -> bool {
        let Some(client) = self.clients.get_mut(id) else { return false };
        let Some(begun) = client.aside_mut().and_then(|aside| aside.authenticating.take()) else {
            return false;
        };
        client.tidy();
        let entry = self.entries.of(client);
        let Authenticating { claim, stage: Stage::Proving(answer), identity, .. } = *begun else {
            return false;
        };
        let subscriber = claim.as_ref().map(|claim| &claim.subscriber).or(client.subscriber.as_ref());
        let client_id = subscriber.map_or("", |subscriber| &subscriber.client_id);
        // The user may have been removed meanwhile.
        let realms = self.guard.current();
        let is_user = realms.access(entry.realm).is_some_and(|access| access.confirms(&identity, client_id));
        match checked {
            Checked::Right if is_user => {
                let outcome = AuthenticationOutcome::Success(Binary::new(answer.as_bytes()).ok());
                self.apply(id, outcome, to);
                if let Some(claim) = claim {
                    self.claim(id, claim, super::proved(&realms, entry, &identity), to);
                }
            }
            Checked::Not(unchecked) => self.refuse_proof(id, Stranger::of(*unchecked), claim, to),
            _ => self.refuse_proof(id, NOT_PROVED, claim, to),
        }
        true
    }

    /// Ends a client that has proved nothing [MQTT-4.12.0-4], [MQTT-4.12.1-2].
    fn refuse_proof(
        &mut self,
        id: ConnectionId,
        stranger: Stranger,
        claim: Option<Claim>,
        to: &mut Outside<'_, impl Effects>,
    ) {
        match claim {
            Some(claim) => self.turn_away_stranger(id, stranger, claim, to),
            None => {
                (stranger.counter)(&self.counters).add(1);
                self.apply(id, AuthenticationOutcome::Failure(stranger.refusal), to);
            }
        }
    }

    /// Tells the session of a client the outcome of a step, and sends what it answers.
    fn apply(
        &mut self,
        id: ConnectionId,
        outcome: AuthenticationOutcome<'_>,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let Some(client) = self.clients.get_mut(id) else { return };
        self.scratch.clear();
        if let Authenticated::Refused(violation) = client.session.authenticated(outcome, &mut self.scratch) {
            return self.violated(id, &violation, to);
        }
        self.send_scratch(id, to);
    }
}
