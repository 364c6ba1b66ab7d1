//! The user of a client: found out before the client identifier is claimed, and looked at again when users change.

use std::sync::Arc;

use auth::{
    Admission, Check, Checked, Identity, Login, NoTopicPrefix, Realms, Refusal, Suspect, Unchecked, Wish,
};
use base::{CertificateName, Charge, ConnectionId, Principal, Purpose, Realm, Subscriber};
use protocol::{Cause, Claim, Command, Durability};
use topic::TopicName;
use wire::{ConnAck, Connect, ConnectRefusal, DisconnectReason, ReasonCode};

use crate::client::{Client, Clients};
use crate::effects::Outside;
use crate::ending::{By, Ending};
use crate::kinds::Kinds;
use crate::mount::{Mount, TOO_LONG};
use crate::pace::Pace;
use crate::rights::role_bound;
use crate::{Effects, Shard};

mod bearer;
pub(crate) mod scram;

/// The rules of a listener about the users of its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The users and rules that hold here.
    pub realm: Realm,
    /// Whether clients may connect without proving who they are.
    pub allow_anonymous: bool,
    /// The part of a connection that says who its user is.
    pub naming: Naming,
}

/// The part of a connection that says who its user is. All but the first take the place of user name and password in CONNECT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// User name and password in CONNECT, or an exchange of AUTH packets.
    Connect,
    /// This field of the client's certificate.
    Certificate(CertificateName),
    /// The user of the process, as the system knows it.
    Process,
}

impl Default for Entry {
    /// Everybody may connect, in the first realm.
    fn default() -> Self {
        Self { realm: Realm::default(), allow_anonymous: true, naming: Naming::Connect }
    }
}

/// Entries of listeners: rules about users, the durability that answers to their clients wait for, and the place of the listener
/// among those whose messages are counted. A client has a number of two bytes for all, because there are about as many entries as
/// listeners.
#[derive(Default)]
pub(crate) struct Entries(Kinds<(Entry, Durability, u16)>);

impl Entries {
    /// The number of an entry. Looks at each.
    pub(crate) fn number(&mut self, all: (Entry, Durability, u16), clients: &Clients) -> u16 {
        self.0.number(all, || clients.iter().map(|client| client.entry).collect())
    }

    fn of(&self, client: &Client) -> Entry {
        self.0.of(client.entry).0
    }

    /// The durability that answers to a client wait for.
    pub(crate) fn durability(&self, client: &Client) -> Durability {
        self.0.of(client.entry).1
    }

    /// The place of the listener of a client among those whose messages are counted.
    pub(crate) fn counted_as(&self, client: &Client) -> u16 {
        self.0.of(client.entry).2
    }
}

/// A CONNECT whose password is being checked.
#[derive(Debug)]
pub(crate) struct Verifying {
    pub(crate) claim: Claim,
    /// The user, if the password turns out to be right. `None` for a client that is being refused.
    identity: Option<Identity>,
    _charge: Option<Charge>,
    /// The password of a client that is gone is not checked.
    _wish: Option<Wish>,
}

/// Divisor of the memory limit for CONNECTs whose passwords are being checked: clients that have proved nothing yet must not
/// make memory short for others.
const LOGINS_PART: usize = 16;
/// Bytes of will and password up to which a CONNECT is not counted against that. The number of passwords that wait is bounded.
const SMALL_LOGIN_BYTES: usize = 1_024;
/// Memory of a client's own mount point, beside the prefix.
const MOUNT_BYTES: usize = 96;
/// Clients that a turn looks at after users have changed.
const RECHECKED_PER_TURN: u32 = 1_000;

impl Shard {
    /// Finds out for whom a client connects. Its claim is posted now, or when its password is checked.
    pub(crate) fn log_in(
        &mut self,
        id: ConnectionId,
        connect: &Connect<'_>,
        claim: Claim,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let Some(client) = self.clients.get(id) else { return };
        let (entry, realms) = (self.entries.of(client), self.guard.current());
        match entry.naming {
            Naming::Connect => {}
            Naming::Certificate(name) => return self.log_in_certificate(id, name, claim, to),
            Naming::Process => return self.log_in_process(id, claim, to),
        }
        let Some(access) = realms.access(entry.realm) else {
            return self.turn_away_stranger(id, ANONYMOUS, claim, to);
        };
        let login = Login {
            user: connect.user_name().map(|name| name.as_str()),
            password: connect.password().map(|password| password.as_bytes()),
            may_be_anonymous: entry.allow_anonymous,
            client_id: &claim.subscriber.client_id,
        };
        match access.admit(&login) {
            Admission::Admitted(identity) => {
                let user = identity.map(|identity| identity.name().into());
                // For a user without credentials, only the mount point counts.
                let tenant = realms.tenant(entry.realm).filter(|tenant| !tenant.mount.is_empty());
                let principal = Principal { user, realm: entry.realm, tenant, ..Principal::default() };
                self.claim(id, claim, principal, to);
            }
            Admission::Refused(Refusal::Anonymous) => self.turn_away_stranger(id, ANONYMOUS, claim, to),
            Admission::Refused(Refusal::Password) => self.turn_away_stranger(id, WRONG, claim, to),
            Admission::Verify(identity, check) => self.verify(id, (identity, check), claim, to),
        }
    }

    /// Lets in a client whose certificate says who it is.
    fn log_in_certificate(
        &mut self,
        id: ConnectionId,
        name: CertificateName,
        claim: Claim,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let Some(client) = self.clients.get(id) else { return };
        let (realm, realms) = (self.entries.of(client).realm, self.guard.current());
        let Some(user) = to.certificate_name(id, name).map(|name| Arc::from(&*name)) else {
            return self.turn_away_stranger(id, NO_CERTIFICATE, claim, to);
        };
        if realms.access(realm).is_some_and(|access| access.is_disabled(&user)) {
            return self.turn_away_stranger(id, DISABLED, claim, to);
        }
        let tenant = realms.tenant(realm);
        let principal =
            Principal { user: Some(user), is_proved: true, realm, tenant, ..Principal::default() };
        self.claim(id, claim, principal, to);
    }

    /// Has the name of a process found, which may take time.
    fn log_in_process(&mut self, id: ConnectionId, claim: Claim, to: &mut Outside<'_, impl Effects>) {
        let Some(client) = self.clients.get(id) else { return };
        let (realm, realms) = (self.entries.of(client).realm, self.guard.current());
        let check = to.process_user(id).and_then(|uid| realms.access(realm)?.admit_process(uid));
        match check {
            Some(check) => self.verify(id, check, claim, to),
            None => self.turn_away_stranger(id, NO_PROCESS, claim, to),
        }
    }

    /// Has a password checked. The claim waits, and its memory is on the account.
    fn verify(
        &mut self,
        id: ConnectionId,
        (identity, check): (Identity, Check),
        claim: Claim,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let bytes = check.size_bytes() + claim.will_bytes();
        if !self.make_room_for_login(bytes, to) {
            return self.turn_away_stranger(id, NO_MEMORY, claim, to);
        }
        let wish = match to.verify(id, check) {
            Ok(wish) => Some(wish),
            Err(unchecked) => return self.turn_away_stranger(id, Stranger::of(unchecked), claim, to),
        };
        let charge = Some(self.tally.budget().charge(Purpose::Logins, bytes));
        if let Some(client) = self.clients.get_mut(id) {
            let verifying = Verifying { claim, identity: Some(identity), _charge: charge, _wish: wish };
            client.make_aside().verifying = Some(Box::new(verifying));
        }
        to.pause(id);
    }

    /// Makes room for a CONNECT of this size that waits for the check of its password. Exchanges that wait for their clients give
    /// way, the oldest first: a client answers within a round trip, and one that does not must not keep the memory of logins.
    /// At most 128 of them do: each has more than 1 KiB, and a login at most 128 KiB. Returns whether there is room.
    pub(super) fn make_room_for_login(&mut self, bytes: usize, to: &mut Outside<'_, impl Effects>) -> bool {
        if self.has_memory_for_login(bytes) {
            return true;
        }
        let budget = self.tally.budget();
        if bytes <= SMALL_LOGIN_BYTES || budget.is_tight() {
            return false;
        }
        let waiting_bytes = budget.held_bytes(Purpose::Logins) + bytes;
        let mut missing = waiting_bytes.saturating_sub(budget.limit_bytes() / LOGINS_PART);
        // The memory may be that of other shards: nobody gives way for nothing.
        if self.asked.bytes() < missing {
            return false;
        }
        while missing > 0
            && let Some(freed) = self.displace_exchange(to)
        {
            missing = missing.saturating_sub(freed);
        }
        self.has_memory_for_login(bytes)
    }

    /// Whether a CONNECT of this size may wait for the check of its password. A small one may as long as there is memory for
    /// connections, because its session may hold what makes memory short.
    fn has_memory_for_login(&self, bytes: usize) -> bool {
        let budget = self.tally.budget();
        if bytes <= SMALL_LOGIN_BYTES {
            return !budget.is_closed();
        }
        let waiting_bytes = budget.held_bytes(Purpose::Logins) + bytes;
        !budget.is_tight() && waiting_bytes <= budget.limit_bytes() / LOGINS_PART
    }

    /// Whether the password or the proof of a client is being checked that was not let in yet. Nothing that the client has sent
    /// was accepted so far.
    #[must_use]
    pub fn is_logging_in(&self, id: ConnectionId) -> bool {
        let Some(aside) = self.clients.get(id).map(Client::aside) else { return false };
        let is_proving = aside.authenticating.as_ref().is_some_and(|begun| begun.is_coming());
        aside.verifying.is_some() || is_proving
    }

    /// The password of a CONNECT was checked.
    pub(crate) fn checked(&mut self, id: ConnectionId, checked: Checked, to: &mut Outside<'_, impl Effects>) {
        // A client that is let in makes room for no other login.
        self.behind_logins.forget(id);
        if self.proof_checked(id, &checked, to) {
            return;
        }
        let Some(client) = self.clients.get_mut(id) else { return };
        let Some(verifying) = client.aside_mut().and_then(|aside| aside.verifying.take()) else { return };
        client.tidy();
        let (entry, realms) = (self.entries.of(client), self.guard.current());
        let Verifying { claim, identity: Some(identity), .. } = *verifying else { return };
        // The user may have been removed meanwhile.
        let is_user = realms
            .access(entry.realm)
            .is_some_and(|access| access.confirms(&identity, &claim.subscriber.client_id));
        match checked {
            Checked::Right if is_user => {
                let principal = proved(&realms, entry, &identity);
                self.claim(id, claim, principal, to);
            }
            Checked::Right | Checked::Wrong => self.turn_away_stranger(id, WRONG, claim, to),
            Checked::Bearer(bearer) => self.let_in_bearer(id, &bearer, claim, to),
            Checked::BadToken(problem) => {
                self.turn_away_stranger(id, Stranger::of_token(problem), claim, to);
            }
            Checked::Nameless => self.turn_away_stranger(id, NAMELESS, claim, to),
            Checked::Not(unchecked) => self.turn_away_stranger(id, Stranger::of(unchecked), claim, to),
        }
    }

    /// Claims the client identifier for a user. Packets behind CONNECT wait.
    fn claim(
        &mut self,
        id: ConnectionId,
        claim: Claim,
        mut principal: Principal,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let limits = self.limits(&principal);
        let user = principal.user.as_deref();
        let prefix = limits.as_ref().map_or(Ok(None), |limits| limits.topic_prefix_of(user));
        if let Ok(Some(prefix)) = &prefix {
            principal.set_prefix(prefix);
            // A session that lasts keeps it without a connection.
            principal.tenant.iter().for_each(|tenant| tenant.charge(self.tally.budget()));
        }
        if principal != Principal::default() {
            claim.subscriber.set_principal(Arc::new(principal));
        }
        // The user is known now, and bans and a drain may be newer than the CONNECT.
        let Some(claim) = self.keep_out(id, claim, to) else { return };
        let principal = claim.subscriber.principal();
        let named = auth::Client::of(&principal, &claim.subscriber.client_id);
        if limits.as_ref().is_some_and(|limits| !limits.permit_client_id(named)) {
            return self.turn_away_stranger(id, CLIENT_ID, claim, to);
        }
        let prefix = match prefix {
            Ok(prefix) => prefix,
            Err(why) => return self.turn_away_stranger(id, Stranger::without_prefix(why), claim, to),
        };
        let Some(mut claim) = self.mount(id, prefix.as_deref(), claim, to) else { return };
        let Some(client) = self.clients.get_mut(id) else { return };
        if let Some(limits) = limits {
            if let Some(most) = limits.expiry_secs_max {
                client.session.limit_expiry(most);
                claim.expiry_secs = client.session.expiry_secs();
                client.make_aside().expiry_secs_max = Some(most);
            }
            client.set_role_bound(role_bound(limits.queue));
            if let Some(pace) = Pace::new(&limits, to.now) {
                client.make_aside().pace = Some(pace);
            }
        }
        client.subscriber = Some(Arc::clone(&claim.subscriber));
        to.pause(id);
        to.command(Command::Claim(Box::new(claim)));
    }

    /// Puts a client and its will behind the topic prefix of its roles, if they have one. `None` if the client was turned away,
    /// because its will does not fit there.
    fn mount(
        &mut self,
        id: ConnectionId,
        prefix: Option<&str>,
        mut claim: Claim,
        to: &mut Outside<'_, impl Effects>,
    ) -> Option<Claim> {
        let (client, Some(prefix)) = (self.clients.get_mut(id)?, prefix) else { return Some(claim) };
        let charge = self.tally.budget().charge(Purpose::Connections, MOUNT_BYTES + prefix.len());
        let listener = client.mount.take();
        let mount = Arc::new(Mount::of_client(listener.as_deref(), prefix, charge));
        client.mount = Some(Arc::clone(&mount));
        let Some(will) = &mut claim.will else { return Some(claim) };
        // Its topic is behind the mount point of the listener already.
        let before = listener.as_ref().map_or("", |listener| listener.as_str());
        let topic = will.message.topic().as_str();
        let short = topic.strip_prefix(before).unwrap_or(topic);
        let whole = [mount.as_str(), short].concat();
        let levels_max = self.settings.topic_levels_max;
        let topic = TopicName::new(&whole).ok().filter(|topic| topic.level_count() <= levels_max);
        let message = topic.map(|topic| will.message.with_topic(topic));
        let refused = match message {
            None => (ConnectRefusal::TopicNameInvalid, TOO_LONG),
            Some(message) if message.parts().bytes.len() > self.settings.will_bytes_max => {
                (ConnectRefusal::QuotaExceeded, "a will that is too large below the topic prefix")
            }
            Some(message) => {
                will.message = Arc::new(message.charged_to(self.tally.budget()));
                return Some(claim);
            }
        };
        let (refusal, why) = refused;
        // Before MQTT 5 no return code fits, and nothing is said.
        self.send(id, &ConnAck::refused(refusal).into(), to);
        self.turn_away_named(id, (refusal.into(), why), claim, to);
        None
    }

    /// Turns a client away if a ban or a drain keeps it out, as far as its user is known. Otherwise returns its claim.
    pub(crate) fn keep_out(
        &mut self,
        id: ConnectionId,
        claim: Claim,
        to: &mut Outside<'_, impl Effects>,
    ) -> Option<Claim> {
        if self.is_banned(id, &claim.subscriber, to) {
            self.turn_away_stranger(id, BANNED, claim, to);
            return None;
        }
        self.refuse_by_drain(id, claim, to)
    }

    /// Whether a ban keeps a client out, as far as its user is known. Without bans this costs one load.
    fn is_banned(&self, id: ConnectionId, subscriber: &Subscriber, to: &Outside<'_, impl Effects>) -> bool {
        if !self.guard.has_bans() {
            return false;
        }
        let (client_id, principal) = (&*subscriber.client_id, subscriber.principal());
        let suspect = Suspect { client_id, user: principal.user.as_deref(), address: to.address(id) };
        self.guard.bans().find(&suspect, to.now.unix_ms / 1_000).is_some()
    }

    fn turn_away_stranger(
        &mut self,
        id: ConnectionId,
        stranger: Stranger,
        claim: Claim,
        to: &mut Outside<'_, impl Effects>,
    ) {
        let Stranger { refusal, why, counter } = stranger;
        counter(&self.counters).add(1);
        self.send(id, &ConnAck::refused(refusal).into(), to);
        self.turn_away_named(id, (ReasonCode::from(refusal), why), claim, to);
    }

    /// Ends the connection of a client that was told why it is not let in.
    pub(crate) fn turn_away_named(
        &mut self,
        id: ConnectionId,
        (reason, why): (ReasonCode, &'static str),
        claim: Claim,
        to: &mut Outside<'_, impl Effects>,
    ) {
        if let Some(client) = self.clients.get_mut(id) {
            // The log names the client, and the ledger does not hear of it.
            client.make_aside().verifying =
                Some(Box::new(Verifying { claim, identity: None, _charge: None, _wish: None }));
        }
        self.turn_away(id, reason, why, to);
    }

    /// Users or bans have changed: clients that are banned, and those whose user is not there any more, or has another
    /// password, are to go.
    pub fn users_changed(&mut self) {
        // A look that has begun comes to its end first: changes in a row do not keep clients from being looked at.
        self.rechecks_again = self.rechecked.is_some();
        self.rechecked.get_or_insert(0);
    }

    /// Looks at some clients after a change of users.
    pub(crate) fn recheck_some(&mut self, to: &mut Outside<'_, impl Effects>) {
        let Some(from) = self.rechecked else { return };
        let until = from.saturating_add(RECHECKED_PER_TURN);
        self.rebound_some(from..until);
        let realms = self.guard.current();
        let why = |id, subscriber: &Subscriber| {
            self.is_banned(id, subscriber, to).then_some(BAN).or_else(|| gone(subscriber, &realms))
        };
        let clients = self.clients.in_slots(from..until);
        let gone = clients.filter_map(|(id, client)| Some((id, why(id, client.subscriber.as_ref()?)?)));
        let gone: Vec<(ConnectionId, Gone)> = gone.collect();
        for (id, Gone { counter, why, said, reason }) in gone {
            counter(&self.counters).add(1);
            self.disconnect(id, said, to);
            self.end(id, Ending { reason, why, cause: Cause::WithWill, by: By::Server }, to);
            to.close(id);
        }
        let is_done = until >= self.clients.slots();
        let again = is_done && std::mem::take(&mut self.rechecks_again);
        self.rechecked = if is_done { again.then_some(0) } else { Some(until) };
    }
}

/// The user who has proved a name.
fn proved(realms: &Realms, entry: Entry, identity: &Identity) -> Principal {
    let (user, proof) = (Some(Arc::from(identity.name())), identity.proof());
    let (realm, tenant) = (entry.realm, realms.tenant(entry.realm));
    Principal { user, is_proved: true, proof, realm, tenant, claims: None }
}

/// The reason why a client goes after a change of users or bans.
struct Gone {
    counter: fn(&crate::Counters) -> &crate::counters::Counter,
    why: &'static str,
    /// The reason code in DISCONNECT.
    said: DisconnectReason,
    /// The reason in the log.
    reason: ReasonCode,
}

const BAN: Gone = Gone {
    counter: |counters| &counters.ended_banned,
    why: "an operator has banned it",
    // DISCONNECT has no code for a ban.
    said: DisconnectReason::AdministrativeAction,
    reason: ReasonCode::Banned,
};

/// Looks whether a client has to go after a change of users.
fn gone(subscriber: &Subscriber, realms: &Realms) -> Option<Gone> {
    let principal = subscriber.principal();
    let user = principal.user.as_ref()?;
    let access = realms.access(principal.realm);
    let is_disabled = access.is_some_and(|access| access.is_disabled(user));
    let is_known =
        |proof| access.is_some_and(|access| access.still_knows(user, &subscriber.client_id, proof));
    (is_disabled || principal.proof.is_some_and(|proof| !is_known(proof))).then_some(Gone {
        counter: |counters| &counters.ended_user_removed,
        why: "its user was removed or disabled, or has another password, or the key or server that vouched for it is gone",
        said: DisconnectReason::NotAuthorized,
        reason: ReasonCode::NotAuthorized,
    })
}

/// The reason why a client is not let in, and its answer.
#[derive(Clone, Copy)]
struct Stranger {
    refusal: ConnectRefusal,
    why: &'static str,
    counter: fn(&crate::Counters) -> &crate::counters::Counter,
}

const ANONYMOUS: Stranger = Stranger {
    refusal: ConnectRefusal::NotAuthorized,
    why: "it has not proved who it is, and must",
    counter: |counters| &counters.refused_anonymous,
};
const NO_CERTIFICATE: Stranger = Stranger {
    refusal: ConnectRefusal::NotAuthorized,
    why: "its certificate has no user name, or there is no certificate",
    counter: |counters| &counters.refused_anonymous,
};
const NO_PROCESS: Stranger = Stranger {
    refusal: ConnectRefusal::NotAuthorized,
    why: "the system does not tell the user of its process",
    counter: |counters| &counters.refused_anonymous,
};
const NAMELESS: Stranger = Stranger {
    refusal: ConnectRefusal::NotAuthorized,
    why: "the user of its process has no login name on this machine",
    counter: |counters| &counters.refused_anonymous,
};
const DISABLED: Stranger = Stranger {
    refusal: ConnectRefusal::NotAuthorized,
    why: "its user is disabled",
    counter: |counters| &counters.refused_password,
};
const CLIENT_ID: Stranger = Stranger {
    refusal: ConnectRefusal::ClientIdentifierNotValid,
    why: "the roles of its user do not permit its client identifier",
    counter: |counters| &counters.refused_client_id,
};
const OTHER_ID: Stranger = Stranger {
    refusal: ConnectRefusal::NotAuthorized,
    why: "its user has another client identifier in dynamic security",
    counter: |counters| &counters.refused_client_id,
};
const BANNED: Stranger = Stranger {
    refusal: ConnectRefusal::Banned,
    why: "an operator has banned it",
    counter: |counters| &counters.refused_banned,
};
const NO_MEMORY: Stranger = Stranger {
    refusal: ConnectRefusal::ServerBusy,
    why: "memory is short, or too many large wills wait for the check of a password",
    counter: |counters| &counters.refused_verify_busy,
};
const WRONG: Stranger = Stranger {
    refusal: ConnectRefusal::BadUserNameOrPassword,
    why: "its user is unknown, or its password is wrong or missing",
    counter: |counters| &counters.refused_password,
};

impl Stranger {
    fn without_prefix(reason: NoTopicPrefix) -> Self {
        Self {
            refusal: ConnectRefusal::NotAuthorized,
            why: reason.why(),
            counter: |counters| &counters.refused_topic_prefix,
        }
    }

    fn of(unchecked: Unchecked) -> Self {
        match unchecked {
            Unchecked::Busy => Self {
                refusal: ConnectRefusal::ServerBusy,
                why: "too many passwords wait to be checked",
                counter: |counters| &counters.refused_verify_busy,
            },
            Unchecked::Guessing => Self {
                refusal: ConnectRefusal::ServerBusy,
                why: "too many wrong passwords have come from its address",
                counter: |counters| &counters.refused_guessing,
            },
            Unchecked::Unreachable => Self {
                refusal: ConnectRefusal::ServerUnavailable,
                why: "the server that may know its user does not answer, or the system does not",
                counter: |counters| &counters.refused_unreachable,
            },
        }
    }
}
