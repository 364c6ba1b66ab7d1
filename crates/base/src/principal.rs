//! The user for whom a session acts, and the rules that hold for the user.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::{Arc, LazyLock, OnceLock};

use crate::{Budget, Charge, Claims, Purpose};

/// The number of a realm: users and rules that belong together. Each listener has one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Realm(pub u16);

impl Realm {
    /// No realm of this process. A session whose rules have left the configuration has this realm, or one of the numbers
    /// below it that no realm has: the ledger gives each such name of rules a number of its own.
    pub const NONE: Self = Self(u16::MAX);
}

/// The clients among whom a user name means one user, and a client identifier one session.
///
/// One that belongs to a session, and not to a listener, is charged to the [account](Budget) once, however many owners it has.
#[derive(Default)]
pub struct Tenant {
    /// The place of the user names, such as the path of the password file; empty without one.
    pub users: Arc<str>,
    /// The mount point of the listener; empty without one.
    pub mount: Arc<str>,
    /// The topic prefix that the roles of the user have, which stands behind the mount point; empty without one.
    pub prefix: Box<str>,
    charge: OnceLock<Charge>,
}

impl Tenant {
    /// A tenant that is on no account.
    #[must_use]
    pub fn new(users: impl Into<Arc<str>>, mount: impl Into<Arc<str>>, prefix: &str) -> Self {
        Self { users: users.into(), mount: mount.into(), prefix: prefix.into(), charge: OnceLock::new() }
    }

    /// The same users and the same mount point with another topic prefix, on no account.
    #[must_use]
    pub fn with_prefix(&self, prefix: &str) -> Self {
        Self::new(Arc::clone(&self.users), Arc::clone(&self.mount), prefix)
    }

    /// Charges the memory that is the tenant's own, unless that was done before. Its other names are shared.
    pub fn charge(&self, budget: &Arc<Budget>) {
        // The counts of the `Arc` that the tenant is in.
        let counts_bytes = 2 * size_of::<usize>();
        let bytes = size_of::<Self>() + counts_bytes + self.prefix.len();
        self.charge.get_or_init(|| budget.charge(Purpose::Sessions, bytes));
    }

    /// Whether the topics of both begin in the same way, whether a listener or a role says so.
    #[must_use]
    pub fn has_same_topics(&self, other: &Self) -> bool {
        let beginning = |tenant: &Self| [&*tenant.mount, &*tenant.prefix].concat();
        // Without prefixes nothing is copied.
        self.mount == other.mount && self.prefix == other.prefix || beginning(self) == beginning(other)
    }
}

/// The charge is not shown.
impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { users, mount, prefix, .. } = self;
        let mut tenant = f.debug_struct("Tenant");
        tenant.field("users", users).field("mount", mount).field("prefix", prefix).finish()
    }
}

/// The charge makes no difference.
impl PartialEq for Tenant {
    fn eq(&self, other: &Self) -> bool {
        self.users == other.users && self.mount == other.mount && self.prefix == other.prefix
    }
}

impl Eq for Tenant {}

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
        let tenant = match &self.tenant {
            Some(tenant) => tenant.with_prefix(prefix),
            None => Tenant::default().with_prefix(prefix),
        };
        self.tenant = Some(Arc::new(tenant));
    }

    /// An anonymous client of the first realm. All sessions without a user share it.
    #[must_use]
    pub fn anonymous() -> Arc<Self> {
        static ANONYMOUS: LazyLock<Arc<Principal>> = LazyLock::new(Arc::default);
        Arc::clone(&ANONYMOUS)
    }
}
