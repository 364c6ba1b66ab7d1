//! Identities and rules at one time, and the decision about a CONNECT.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

use base::Claims;
use topic::{TopicFilter, TopicName};
use wire::Qos;

use crate::claims::{self, Asked, Standing};
use crate::schemes::Schemes;
use crate::{
    Action, Check, Client, Credential, Decision, DynamicSecurity, FilterAction, Limits, LoginNames,
    Mechanism, PasswordCheck, PasswordHash, Permissions, Permit, ProcessCheck, Question, QueueLimits, Reason,
    Roles, Secret, ServiceCheck, TokenCheck, Tokens, UserSource, Users,
};

/// Identities and rules at one time.
///
/// Without users, a name in CONNECT proves nothing and is taken as it is. Without permissions, everything is allowed, apart from
/// clients whose token has a list of rules: these may do what the token says.
#[derive(Debug, Clone, Default)]
pub struct Access {
    users: Option<Arc<Users>>,
    /// The schemes of all passwords here.
    schemes: Arc<Schemes>,
    secret: Secret,
    permissions: Option<Arc<Permissions>>,
    /// Our own rules, which take the place of permissions.
    roles: Option<Arc<Roles>>,
    /// Decides before users and permissions about those whom it knows.
    dynamic: Option<Arc<DynamicSecurity>>,
    /// Decides about passwords that are tokens.
    tokens: Option<Arc<Tokens>>,
    /// Servers elsewhere, in the order in which they are asked about names that are no users here.
    services: Arc<[UserSource]>,
    /// The names of the users of this machine, where a process has the name of its user.
    login_names: Option<Arc<dyn LoginNames>>,
}

/// The user of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    name: Box<str>,
    /// The hash of the password that the client knew; `None` if the name is not proved.
    proof: Option<Arc<PasswordHash>>,
}

/// The part of CONNECT that says who the client is, and the rule of its listener.
#[derive(Clone, Copy)]
pub struct Login<'a> {
    /// The user name, if the client gives one.
    pub user: Option<&'a str>,
    /// The password, if the client gives one.
    pub password: Option<&'a [u8]>,
    /// The client identifier, also if the broker has assigned it.
    pub client_id: &'a str,
    /// Whether clients may connect here without proving who they are.
    pub may_be_anonymous: bool,
}

/// The decision about a CONNECT.
#[derive(Debug)]
pub enum Admission {
    /// The client is let in, with a name if it gave one.
    Admitted(Option<Identity>),
    /// The client is let in under this name if its password is right, or under the name in its token.
    Verify(Identity, Check),
    /// The client is not let in.
    Refused(Refusal),
}

/// The reason why a client is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The client has not proved who it is, and must.
    Anonymous,
    /// The user is unknown, or the password is wrong or missing.
    Password,
}

impl Identity {
    /// The user name, as CONNECT has it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the client knew a password for the name.
    #[must_use]
    pub fn is_proved(&self) -> bool {
        self.proof.is_some()
    }

    /// A number that stands for the password hash that the client knew the password of; `None` if the name is not proved.
    #[must_use]
    pub fn proof(&self) -> Option<NonZeroU64> {
        self.proof.as_ref().map(|hash| fingerprint(hash))
    }
}

impl Access {
    /// Identities and rules; `None` stands for no users and for no rules.
    #[must_use]
    pub fn new(users: Option<Users>, permissions: Option<Permissions>) -> Self {
        let schemes = Arc::new(users.as_ref().map(|users| users.schemes().clone()).unwrap_or_default());
        let (users, permissions) = (users.map(Arc::new), permissions.map(Arc::new));
        Self { users, permissions, schemes, ..Self::default() }
    }

    /// The same with a secret for salts of names that are no users. Without one, everybody can tell such names from users.
    #[must_use]
    pub fn with_secret(self, secret: Secret) -> Self {
        Self { secret, ..self }
    }

    /// The same with tokens in the place of passwords.
    #[must_use]
    pub fn with_tokens(self, tokens: Option<Arc<Tokens>>) -> Self {
        Self { tokens, ..self }
    }

    /// The same with servers elsewhere, which are asked in this order about names that are no users here.
    #[must_use]
    pub fn with_services(self, services: Arc<[UserSource]>) -> Self {
        Self { services, ..self }
    }

    /// The same with the names of the users of this machine, which the processes of these users have.
    #[must_use]
    pub fn with_login_names(self, login_names: Option<Arc<dyn LoginNames>>) -> Self {
        Self { login_names, ..self }
    }

    /// The same with roles, which take the place of permissions.
    #[must_use]
    pub fn with_roles(self, roles: Roles) -> Self {
        Self { roles: Some(Arc::new(roles)), ..self }
    }

    /// The same with dynamic security, which decides first about everybody whom it knows.
    #[must_use]
    pub fn with_dynamic_security(&self, dynamic: Arc<DynamicSecurity>) -> Self {
        let mut schemes = self.users.as_ref().map(|users| users.schemes().clone()).unwrap_or_default();
        dynamic.hashes().for_each(|hash| schemes.add(hash));
        Self { dynamic: Some(dynamic), schemes: Arc::new(schemes), ..self.clone() }
    }

    /// Dynamic security, if there is any.
    #[must_use]
    pub fn dynamic_security(&self) -> Option<&Arc<DynamicSecurity>> {
        self.dynamic.as_ref()
    }

    /// Whether there are rules about topics, or may be some in tokens.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.permissions.is_some() || self.has_filter_rules()
    }

    /// Whether there are rules about filters, beside those about topics.
    #[must_use]
    pub fn has_filter_rules(&self) -> bool {
        self.roles.is_some() || self.dynamic.is_some() || self.tokens_have_rules()
    }

    /// Whether there may be rules in tokens.
    #[must_use]
    pub fn tokens_have_rules(&self) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| tokens.may_have_rules())
    }

    /// Number of users, if there are users.
    #[must_use]
    pub fn users(&self) -> Option<usize> {
        let dynamic = self.dynamic.as_ref().map(|dynamic| dynamic.len());
        let of_file = self.users.as_ref().map(|users| users.len());
        (dynamic.is_some() || of_file.is_some()).then(|| dynamic.unwrap_or(0) + of_file.unwrap_or(0))
    }

    /// The users of a password file, if there is one.
    #[must_use]
    pub fn users_of_file(&self) -> Option<&Users> {
        self.users.as_deref()
    }

    /// Decides about a CONNECT, as far as that takes no time.
    ///
    /// A client without a name is none of the users' business. A client with a name has to know the password if there are
    /// users, also where clients may be anonymous. A token decides alone, with or without a name. Servers elsewhere are asked
    /// about names that are no users here.
    #[must_use]
    pub fn admit(&self, login: &Login<'_>) -> Admission {
        // An empty name is none, as in Mosquitto.
        let user = login.user.filter(|name| !name.is_empty());
        if let Some(check) = self.token(login.password.unwrap_or_default(), user) {
            let claimed = Identity { name: user.unwrap_or_default().into(), proof: None };
            return Admission::Verify(claimed, Check::Token(check));
        }
        match user {
            // Nothing but a token proves a name here.
            Some(_) if self.tokens.is_some() && !self.has_passwords() => {
                Admission::Refused(Refusal::Password)
            }
            Some(name) if self.has_passwords() => {
                // An absent and an empty password match nothing.
                let Some(password) = login.password.filter(|password| !password.is_empty()) else {
                    return Admission::Refused(Refusal::Password);
                };
                if !self.services.is_empty() && !self.knows(name) {
                    let question = Question { user: name, password, client_id: login.client_id };
                    let check = ServiceCheck::new(&self.services, question);
                    return Admission::Verify(
                        Identity { name: name.into(), proof: None },
                        Check::Service(check),
                    );
                }
                let proof = self.password(name, login.client_id).map(Arc::clone);
                let check = PasswordCheck::new(name, proof.as_ref(), &self.schemes, password);
                Admission::Verify(Identity { name: name.into(), proof }, check.into())
            }
            _ if !login.may_be_anonymous => Admission::Refused(Refusal::Anonymous),
            name => Admission::Admitted(name.map(|name| Identity { name: name.into(), proof: None })),
        }
    }

    /// The check of a client that is a process of this user. `None` where processes have no names.
    #[must_use]
    pub fn admit_process(&self, uid: u32) -> Option<(Identity, Check)> {
        let check = ProcessCheck::new(self.login_names.as_ref()?, uid);
        Some((Identity { name: Box::default(), proof: None }, Check::Process(check)))
    }

    /// The user of this name, as an exchange of SCRAM needs it, under a client identifier. `None` if nobody has a password here.
    /// A name that is no user's, or whose hash does not serve, gets a credential that no password has.
    #[must_use]
    pub fn scram(&self, mechanism: Mechanism, name: &str, client_id: &str) -> Option<(Identity, Credential)> {
        let _ = self.users()?;
        let told = self.hash(name).and_then(|hash| Credential::of(mechanism, hash));
        let proof = self.password(name, client_id).map(Arc::clone);
        let credential = match told {
            Some(credential) if proof.is_some() => credential,
            // The client identifier is another user's. The answer does not tell that.
            Some(credential) => credential.without_password(),
            None => {
                let like = self.schemes.decoy(mechanism, name, &self.secret);
                Credential::decoy(mechanism, name, like, &self.secret)
            }
        };
        Some((Identity { name: name.into(), proof }, credential))
    }

    /// Whether a password that is no token may be right here.
    fn has_passwords(&self) -> bool {
        self.users().is_some() || !self.services.is_empty()
    }

    /// The check of a password that is a token. Where there are users or servers too, such a password has the form of a token.
    /// They are not asked about it: a token that has expired would cost a slow check, and prove nothing.
    fn token(&self, password: &[u8], user: Option<&str>) -> Option<TokenCheck> {
        let tokens = self.tokens.as_ref().filter(|_| !password.is_empty())?;
        let is_token = !self.has_passwords() || Tokens::look_like(password);
        is_token.then(|| TokenCheck::new(tokens, password, user))
    }

    /// The tokens that are passwords here, if there are any.
    #[must_use]
    pub fn tokens(&self) -> Option<&Arc<Tokens>> {
        self.tokens.as_ref()
    }

    /// The servers elsewhere, in the order in which they are asked.
    #[must_use]
    pub fn services(&self) -> &Arc<[UserSource]> {
        &self.services
    }

    /// Whether somebody with this [number](crate::Bearer::key) vouches for a user here: a key of tokens, the system, or a server
    /// elsewhere. A server does not vouch for a name that is a user's here: the rights of this user are not for the one whom the server
    /// knows.
    #[must_use]
    pub fn vouches(&self, user: &str, key: NonZeroU64) -> bool {
        self.tokens.as_ref().is_some_and(|tokens| tokens.has_key(key))
            || (self.login_names.is_some() && key == crate::process::KEY)
            || (self.services.iter().any(|source| source.number() == key) && !self.knows(user))
    }

    /// The hash of the password under which a user logs in; `None` if nobody does.
    fn password(&self, name: &str, client_id: &str) -> Option<&Arc<PasswordHash>> {
        match self.dynamic.as_ref().filter(|dynamic| dynamic.knows(name)) {
            Some(dynamic) => dynamic.password(name, client_id),
            None => self.users.as_ref()?.find(name),
        }
    }

    /// The hash of the password of a user who may connect, under whatever client identifier.
    fn hash(&self, name: &str) -> Option<&Arc<PasswordHash>> {
        match self.dynamic.as_ref().filter(|dynamic| dynamic.knows(name)) {
            Some(dynamic) => dynamic.hash(name),
            None => self.users.as_ref()?.find(name),
        }
    }

    /// Whether a user who was let in under this client identifier may stay: the user is there, with the same password.
    ///
    /// A name that was not proved stays where there are no users, and goes where there are some.
    #[must_use]
    pub fn confirms(&self, identity: &Identity, client_id: &str) -> bool {
        match (self.users(), &identity.proof) {
            (None, proof) => proof.is_none(),
            (Some(_), Some(proof)) => self.password(&identity.name, client_id) == Some(proof),
            (Some(_), None) => false,
        }
    }

    /// Whether a user who was let in with this [proof](Identity::proof) may stay: the user is there, with the same password, or
    /// who [vouches](Self::vouches) for the user is.
    #[must_use]
    pub fn still_knows(&self, user: &str, client_id: &str, proof: NonZeroU64) -> bool {
        self.password(user, client_id).is_some_and(|hash| fingerprint(hash) == proof)
            || (self.vouches(user, proof) && self.permits_client_id(user, client_id))
    }

    /// Whether dynamic security lets a user have this client identifier, whatever proves the name.
    #[must_use]
    pub fn permits_client_id(&self, user: &str, client_id: &str) -> bool {
        self.dynamic.as_ref().is_none_or(|dynamic| dynamic.permits_client_id(user, client_id))
    }

    /// Whether there is a user of this name.
    #[must_use]
    pub fn knows(&self, user: &str) -> bool {
        self.users.as_ref().is_some_and(|users| users.find(user).is_some())
            || self.dynamic.as_ref().is_some_and(|dynamic| dynamic.knows(user))
    }

    /// Whether a user may not connect, whatever proves the name.
    #[must_use]
    pub fn is_disabled(&self, user: &str) -> bool {
        self.dynamic.as_ref().is_some_and(|dynamic| dynamic.is_disabled(user))
    }

    /// Whether a client may use a topic.
    #[must_use]
    pub fn allows(&self, client: Client<'_>, topic: TopicName<'_>, action: Action) -> bool {
        match action {
            Action::Publish => self.permit(client, topic) != Permit::NONE,
            Action::Receive => match self.standing(client, Asked::Receive(topic)) {
                Some(standing) => standing.permit() != Permit::NONE,
                None => self.first_of(
                    |dynamic| Some(dynamic.decide(client, topic, action)?.is_allowed),
                    |roles| roles.receives(client, topic),
                    |permissions| permissions.allows(client, topic, action),
                    |otherwise| otherwise.is_allowed,
                ),
            },
        }
    }

    /// The messages that a client may publish to a topic. Only roles know differences between messages.
    #[must_use]
    pub fn permit(&self, client: Client<'_>, topic: TopicName<'_>) -> Permit {
        if let Some(standing) = self.standing(client, Asked::Publish(topic)) {
            return standing.permit();
        }
        let all = |is_allowed| if is_allowed { Permit::ALL } else { Permit::NONE };
        self.first_of(
            |dynamic| Some(all(dynamic.decide(client, topic, Action::Publish)?.is_allowed)),
            |roles| roles.permit(client, topic),
            |permissions| all(permissions.allows(client, topic, Action::Publish)),
            |otherwise| all(otherwise.is_allowed),
        )
    }

    /// The highest QoS at which a client may subscribe to a filter; `None` if it may not.
    #[must_use]
    pub fn granted(&self, client: Client<'_>, filter: TopicFilter<'_>) -> Option<Qos> {
        if let Some(standing) = self.standing(client, Asked::Subscribe(filter)) {
            return standing.permit().qos_max();
        }
        let all = |is_allowed: bool| is_allowed.then_some(Qos::ExactlyOnce);
        self.first_of(
            |dynamic| Some(all(dynamic.decide_filter(client, filter, FilterAction::Subscribe)?.is_allowed)),
            |roles| roles.granted(client, filter),
            |_| all(true),
            |otherwise| all(otherwise.is_allowed),
        )
    }

    /// The limits of a client by its roles, if there are roles. They hold for clients of dynamic security too, about which roles
    /// decide where it says nothing.
    #[must_use]
    pub fn limits(&self, client: Client<'_>) -> Option<Arc<Limits>> {
        self.roles.as_ref().map(|roles| roles.limits(client))
    }

    /// The limits for queues of a client by its roles, without a copy of other limits.
    #[must_use]
    pub fn queue_limits(&self, client: Client<'_>) -> QueueLimits {
        self.roles.as_ref().map_or_else(QueueLimits::default, |roles| roles.queue_limits(client))
    }

    /// Whether a client may use a topic, and the reason.
    #[must_use]
    pub fn decide(&self, client: Client<'_>, topic: TopicName<'_>, action: Action) -> Decision<'_> {
        let of_file = self.first_of(
            |dynamic| dynamic.decide(client, topic, action),
            |roles| roles.decide(client, topic, action),
            |permissions| permissions.decide(client, topic, action),
            |otherwise| otherwise,
        );
        let asked = match action {
            Action::Publish => Asked::Publish(topic),
            Action::Receive => Asked::Receive(topic),
        };
        with_token(of_file, client, asked, (Qos::AtMostOnce, false))
    }

    /// Whether a client may publish a message with this QoS and RETAIN, and the reason.
    #[must_use]
    pub fn decide_publish(
        &self,
        client: Client<'_>,
        topic: TopicName<'_>,
        (qos, retain): (Qos, bool),
    ) -> Decision<'_> {
        let of_file = self.first_of(
            |dynamic| dynamic.decide(client, topic, Action::Publish),
            |roles| roles.decide_publish(client, topic, (qos, retain)),
            |permissions| permissions.decide(client, topic, Action::Publish),
            |otherwise| otherwise,
        );
        with_token(of_file, client, Asked::Publish(topic), (qos, retain))
    }

    /// Whether a client may change its subscriptions, and the reason. An access control list says nothing about that.
    #[must_use]
    pub fn decide_filter(
        &self,
        client: Client<'_>,
        filter: TopicFilter<'_>,
        action: FilterAction,
    ) -> Decision<'_> {
        let of_file = self.first_of(
            |dynamic| dynamic.decide_filter(client, filter, action),
            |roles| roles.decide_filter(client, filter, action),
            |_| Decision { is_allowed: true, reason: Reason::Subscription },
            |otherwise| otherwise,
        );
        match action {
            FilterAction::Subscribe => {
                with_token(of_file, client, Asked::Subscribe(filter), (Qos::AtMostOnce, false))
            }
            // Everybody may end subscriptions, apart from those whom dynamic security refuses it.
            FilterAction::Unsubscribe
                if client.claims.is_some_and(|claims| claims.rules().is_some())
                    && of_file.beside_token().is_some() =>
            {
                Decision { is_allowed: true, reason: Reason::Unsubscribe }
            }
            FilterAction::Unsubscribe => of_file,
        }
    }

    /// The rights of a client in whose token there are rules: those of the files and those of the token together, unless dynamic
    /// security decides. `None` if the token has no rules.
    fn standing(&self, client: Client<'_>, asked: Asked<'_>) -> Option<Standing> {
        let rules = client.claims?.rules()?;
        let of_dynamic = self.dynamic.as_ref().and_then(|dynamic| match asked {
            Asked::Publish(topic) => dynamic.decide(client, topic, Action::Publish),
            Asked::Receive(topic) => dynamic.decide(client, topic, Action::Receive),
            Asked::Subscribe(filter) => dynamic.decide_filter(client, filter, FilterAction::Subscribe),
        });
        if let Some(Decision { is_allowed, .. }) = of_dynamic {
            return Some(if is_allowed { Standing::ALL } else { Standing::DENIED });
        }
        let of_file = match (self.roles.as_deref(), self.permissions.as_deref()) {
            (Some(roles), _) => roles.standing(client, asked),
            (None, Some(permissions)) => permissions.standing(client, asked),
            (None, None) => Standing::NONE,
        };
        Some(of_file.and(claims::standing(rules, asked, client)))
    }

    /// The decision of dynamic security, or else that of the roles or the permissions. Where none of them says anything, nothing
    /// is allowed if there is dynamic security, and everything without rules.
    fn first_of<'a, T>(
        &'a self,
        of_dynamic: impl FnOnce(&'a DynamicSecurity) -> Option<T>,
        of_roles: impl FnOnce(&'a Roles) -> T,
        of_permissions: impl FnOnce(&'a Permissions) -> T,
        otherwise: impl FnOnce(Decision<'a>) -> T,
    ) -> T {
        let dynamic = self.dynamic.as_deref();
        if let Some(decision) = dynamic.and_then(of_dynamic) {
            return decision;
        }
        match (self.roles.as_deref(), self.permissions.as_deref()) {
            (Some(roles), _) => of_roles(roles),
            (None, Some(permissions)) => of_permissions(permissions),
            (None, None) if dynamic.is_some() => {
                otherwise(Decision { is_allowed: false, reason: Reason::NoMatch })
            }
            (None, None) => otherwise(Decision { is_allowed: true, reason: Reason::NoRules }),
        }
    }
}

/// The decision of the files and of the rules in the client's token together, as [`Access::standing`] has it.
fn with_token<'a>(
    of_file: Decision<'a>,
    client: Client<'_>,
    asked: Asked<'_>,
    (qos, retain): (Qos, bool),
) -> Decision<'a> {
    let Some(rules) = client.claims.and_then(Claims::rules) else { return of_file };
    let Some(of_files) = of_file.beside_token() else { return of_file };
    let allows = |permit: Permit| permit.allows(qos, retain);
    let is_allowed = allows(of_files.and(claims::standing(rules, asked, client)).permit());
    let decides = |permit: Option<Permit>| permit.map_or(!is_allowed, |permit| is_allowed && allows(permit));
    let of_token = claims::deciding(rules, asked, client).find(|(_, permit)| decides(*permit));
    let reason = match of_token {
        Some((number, None)) => Reason::Token(number),
        Some((number, Some(_))) if !allows(of_files.permit()) => Reason::Token(number),
        // There are rules: those of the token, of which none matches.
        _ if of_file.reason == Reason::NoRules => Reason::NoMatch,
        _ => of_file.reason,
    };
    Decision { is_allowed, reason }
}

/// Two hashes of the same password differ, because their salts do.
fn fingerprint(hash: &PasswordHash) -> NonZeroU64 {
    let mut hasher = DefaultHasher::new();
    hash.to_string().hash(&mut hasher);
    NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN)
}

/// The password stays out of logs.
impl fmt::Debug for Login<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Login");
        shown
            .field("user", &self.user)
            .field("may_be_anonymous", &self.may_be_anonymous)
            .finish_non_exhaustive()
    }
}
