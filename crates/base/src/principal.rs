//! The user for whom a session acts, and the rules that hold for the user.

use std::num::NonZeroU64;
use std::sync::{Arc, LazyLock};

use crate::Claims;

/// The number of a realm: users and rules that belong together. Each listener has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Realm(pub u16);

impl Realm {
    /// No realm of this process. A session has it whose rules have left the configuration.
    pub const NONE: Self = Self(u16::MAX);
}

/// The clients among whom a user name means one user, and a client identifier one session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tenant {
    /// The place of the user names, such as the path of the password file; empty without one.
    pub users: Arc<str>,
    /// The mount point of the listener; empty without one.
    pub mount: Arc<str>,
    /// The topic prefix that the roles of the user have, which stands behind the mount point; empty without one.
    pub prefix: Box<str>,
}

impl Tenant {
    /// Whether the topics of both begin in the same way, whether a listener or a role says so.
    #[must_use]
    pub fn has_same_topics(&self, other: &Self) -> bool {
        let beginning = |tenant: &Self| [&*tenant.mount, &*tenant.prefix].concat();
        // Without prefixes nothing is copied.
        self.mount == other.mount && self.prefix == other.prefix || beginning(self) == beginning(other)
    }
}

/// The user for whom a session acts. Rules decide about the user, and the session keeps it without a connection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Principal {
    /// User name; `None` for an anonymous client.
    pub user: Option<Arc<str>>,
    /// Whether the client has proved the name, by a password or a certificate.
    pub is_proved: bool,
    /// The password hash that has proved the name, as a number. `None` after a restart, and if it was no password.
    pub proof: Option<NonZeroU64>,
    /// The realm whose rules hold.
    pub realm: Realm,
    /// The tenant to which the user belongs; `None` without users and without a mount point. It stays as it was recorded when
    /// no listener has it any more.
    pub tenant: Option<Arc<Tenant>>,
    /// The rights that the client's token gives it beside those of the user.
    pub claims: Option<Arc<Claims>>,
}

impl Principal {
    /// Puts the user behind the topic prefix of its roles. The place of the user names and the mount point stay.
    pub fn set_prefix(&mut self, prefix: &str) {
        let tenant = self.tenant.as_deref().cloned().unwrap_or_default();
        self.tenant = Some(Arc::new(Tenant { prefix: prefix.into(), ..tenant }));
    }

    /// An anonymous client of the first realm. All sessions without a user share it.
    #[must_use]
    pub fn anonymous() -> Arc<Self> {
        static ANONYMOUS: LazyLock<Arc<Principal>> = LazyLock::new(Arc::default);
        Arc::clone(&ANONYMOUS)
    }
}
