//! A client, as rules know it.

use base::{Claims, Principal};

/// A client, as rules know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client<'a> {
    /// The user name; `None` if the client has not given one.
    pub user: Option<&'a str>,
    /// The client identifier, also if the broker has assigned it.
    pub client_id: &'a str,
    /// The rights that the client's token gives it.
    pub claims: Option<&'a Claims>,
}

impl<'a> Client<'a> {
    /// The client of a principal.
    #[must_use]
    pub fn of(principal: &'a Principal, client_id: &'a str) -> Self {
        Self { user: principal.user.as_deref(), client_id, claims: principal.claims.as_deref() }
    }
}
