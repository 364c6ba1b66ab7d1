//! Users for whom somebody else vouches: the issuer of a token, a server elsewhere, or the system.

use std::num::NonZeroU64;
use std::sync::Arc;

use base::Claims;

/// A user for whom somebody else vouches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bearer {
    /// The user name, as the token, CONNECT or the system has it.
    pub user: Arc<str>,
    /// The kind of voucher for the user.
    pub voucher: Voucher,
    /// A number that stands for the key that has signed the token, for the server, or for the system.
    pub key: NonZeroU64,
    /// The first second, since 1970, at which the user must log in again; `None` if there is none.
    pub until_unix_secs: Option<u64>,
    /// The rights that the token gives beside those of the user.
    pub claims: Option<Arc<Claims>>,
}

/// The kind of voucher for a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Voucher {
    /// The issuer of a token.
    Token,
    /// A service over HTTP.
    Http,
    /// A directory over LDAP.
    Ldap,
    /// The system, for the processes of this machine.
    Process,
}

impl Voucher {
    const ALL: [Self; 4] = [Self::Token, Self::Http, Self::Ldap, Self::Process];

    /// The beginning of the place of user names ([`base::Tenant::users`]) of such users. A service and a directory have no more
    /// than this, because they may move to another address, and their users stay the same.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Token => "jwt:",
            Self::Http => "http:",
            Self::Ldap => "ldap:",
            Self::Process => "unix:",
        }
    }

    /// Whether somebody else vouches for the users of this place.
    pub(crate) fn is_place(users: &str) -> bool {
        Self::ALL.iter().any(|voucher| users.starts_with(voucher.prefix()))
    }
}
