//! Identities and rules at one time, and the decision about a CONNECT.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;

use topic::TopicName;

use crate::{Action, Client, Decision, PasswordCheck, PasswordHash, Permissions, Reason, Users};

/// Identities and rules at one time.
///
/// Without users, a name in CONNECT proves nothing and is taken as it is. Without permissions, everything is allowed.
#[derive(Debug, Default)]
pub struct Access {
    users: Option<Users>,
    permissions: Option<Permissions>,
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
    /// Whether clients may connect here without proving who they are.
    pub may_be_anonymous: bool,
}

/// The decision about a CONNECT.
#[derive(Debug)]
pub enum Admission {
    /// The client is let in, with a name if it gave one.
    Admitted(Option<Identity>),
    /// The client is let in under this name if its password is right.
    Verify(Identity, PasswordCheck),
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
        Self { users, permissions }
    }

    /// Whether there are rules about topics.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.permissions.is_some()
    }

    /// Number of users, if there are users.
    #[must_use]
    pub fn users(&self) -> Option<usize> {
        self.users.as_ref().map(Users::len)
    }

    /// Decides about a CONNECT, as far as that takes no time.
    ///
    /// A client without a name is none of the users' business. A client with a name has to know the password if there are
    /// users, also where clients may be anonymous.
    #[must_use]
    pub fn admit(&self, login: &Login<'_>) -> Admission {
        match (&self.users, login.user) {
            (Some(users), Some(name)) => {
                // An absent and an empty password match nothing.
                let Some(password) = login.password.filter(|password| !password.is_empty()) else {
                    return Admission::Refused(Refusal::Password);
                };
                let proof = users.find(name).map(Arc::clone);
                Admission::Verify(Identity { name: name.into(), proof }, users.check(name, password))
            }
            _ if !login.may_be_anonymous => Admission::Refused(Refusal::Anonymous),
            (_, name) => Admission::Admitted(name.map(|name| Identity { name: name.into(), proof: None })),
        }
    }

    /// Whether a user who was let in may stay: the user is there, with the same password.
    ///
    /// A name that was not proved stays where there are no users, and goes where there are some.
    #[must_use]
    pub fn confirms(&self, identity: &Identity) -> bool {
        let known = self.users.as_ref().map(|users| users.find(&identity.name));
        match (known, &identity.proof) {
            (None, proof) => proof.is_none(),
            (Some(Some(known)), Some(proof)) => known == proof,
            (Some(_), _) => false,
        }
    }

    /// Whether a user who was let in with this [proof](Identity::proof) may stay: the user is there, with the same password.
    #[must_use]
    pub fn still_knows(&self, user: &str, proof: NonZeroU64) -> bool {
        let hash = self.users.as_ref().and_then(|users| users.find(user));
        hash.is_some_and(|hash| fingerprint(hash) == proof)
    }

    /// Whether there is a user of this name.
    #[must_use]
    pub fn knows(&self, user: &str) -> bool {
        self.users.as_ref().is_some_and(|users| users.find(user).is_some())
    }

    /// Whether a client may use a topic.
    #[must_use]
    pub fn allows(&self, client: Client<'_>, topic: TopicName<'_>, action: Action) -> bool {
        self.permissions.as_ref().is_none_or(|permissions| permissions.allows(client, topic, action))
    }

    /// Whether a client may use a topic, and the reason.
    #[must_use]
    pub fn decide(&self, client: Client<'_>, topic: TopicName<'_>, action: Action) -> Decision {
        match &self.permissions {
            None => Decision { is_allowed: true, reason: Reason::NoRules },
            Some(permissions) => permissions.decide(client, topic, action),
        }
    }
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
