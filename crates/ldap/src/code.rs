//! Result codes of RFC 4511, appendix A, with which a log-in ends.

/// `success`: the operation is complete. After a bind, the password is right.
pub const SUCCESS: u32 = 0;
/// `sizeLimitExceeded`: the search has more entries than [`Search::entries_max`](crate::Search::entries_max).
pub const SIZE_LIMIT_EXCEEDED: u32 = 4;
/// `constraintViolation`: some directories answer a bind to a locked account with this code.
pub const CONSTRAINT_VIOLATION: u32 = 19;
/// `noSuchObject`: the directory has no entry of this name, or does not show the entry.
pub const NO_SUCH_OBJECT: u32 = 32;
/// `inappropriateAuthentication`: the entry has no password.
pub const INAPPROPRIATE_AUTHENTICATION: u32 = 48;
/// `invalidCredentials`: the name or the password is wrong.
pub const INVALID_CREDENTIALS: u32 = 49;
/// `insufficientAccessRights`: the name of the bind may not do this operation.
pub const INSUFFICIENT_ACCESS_RIGHTS: u32 = 50;
/// `unwillingToPerform`: the directory refuses, for example a bind without a password.
pub const UNWILLING_TO_PERFORM: u32 = 53;

/// The name in RFC 4511 of a code that this module has. Other codes are `None`.
///
/// ```
/// assert_eq!(ldap::code::name(ldap::code::INVALID_CREDENTIALS), Some("invalidCredentials"));
/// assert_eq!(ldap::code::name(80), None);
/// ```
pub const fn name(code: u32) -> Option<&'static str> {
    Some(match code {
        SUCCESS => "success",
        SIZE_LIMIT_EXCEEDED => "sizeLimitExceeded",
        CONSTRAINT_VIOLATION => "constraintViolation",
        NO_SUCH_OBJECT => "noSuchObject",
        INAPPROPRIATE_AUTHENTICATION => "inappropriateAuthentication",
        INVALID_CREDENTIALS => "invalidCredentials",
        INSUFFICIENT_ACCESS_RIGHTS => "insufficientAccessRights",
        UNWILLING_TO_PERFORM => "unwillingToPerform",
        _ => return None,
    })
}
