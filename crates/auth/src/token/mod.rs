//! Tokens in the place of passwords: signed JSON (JWT, RFC 7519) that says who its bearer is, and until when.
//!
//! A token is checked as its issuer has signed it, byte by byte. Nothing in it says how to check it: the broker knows the keys,
//! and each key is for one kind of algorithm (RFC 8725).

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::{Bearer, Voucher, strict_object};

pub use algorithm::Algorithm;
pub use keys::{KeysError, TokenKeys};

mod algorithm;
mod claims;
mod der;
mod key;
mod keys;
mod rights;

/// Maximum length of a token, in bytes.
pub const TOKEN_BYTES_MAX: usize = 16_384;

/// The rules about tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRules {
    /// The algorithms that a token may be signed with, as far as the keys are for them.
    pub algorithms: Vec<Algorithm>,
    /// The issuer that a token must name; `None` if it may be any.
    pub issuer: Option<String>,
    /// The audiences of which a token must name one. Without any, a token must name none.
    pub audiences: Vec<String>,
    /// The claim that is the user name.
    pub user_claim: String,
    /// The claim that names groups of roles, if any does.
    pub groups_claim: Option<String>,
    /// The claim that has rules about topics, if any has.
    pub rules_claim: Option<String>,
    /// The difference between the clocks of issuer and broker that is tolerated.
    pub leeway_secs: u64,
    /// Whether a token must have a time at which it expires.
    pub requires_expiry: bool,
}

impl Default for TokenRules {
    /// All algorithms, no issuer, no audience, `sub`, no claims that give rights, no leeway, and an expiry.
    fn default() -> Self {
        Self {
            algorithms: Algorithm::NAMED.iter().map(|(_, algorithm)| *algorithm).collect(),
            issuer: None,
            audiences: Vec::new(),
            user_claim: "sub".to_owned(),
            groups_claim: None,
            rules_claim: None,
            leeway_secs: 0,
            requires_expiry: true,
        }
    }
}

impl TokenRules {
    /// A number that stands for the claims that give rights. Clients whose rights come from other claims must log in again.
    fn rights_number(&self) -> u64 {
        if self.groups_claim.is_none() && self.rules_claim.is_none() {
            return 0;
        }
        let mut hasher = DefaultHasher::new();
        (&self.groups_claim, &self.rules_claim).hash(&mut hasher);
        hasher.finish()
    }
}

/// The keys and rules that decide about tokens, at one time.
#[derive(Debug, Default)]
pub struct Tokens {
    rules: TokenRules,
    keys: TokenKeys,
    /// Counts tokens whose key is not there.
    missed: Arc<AtomicU64>,
}

/// The reason why a token proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenProblem {
    /// The text has not three parts in base64, or a part is not JSON in which each member comes once.
    Malformed,
    /// The token is longer than [`TOKEN_BYTES_MAX`].
    TooLong,
    /// The token has an extension that must be understood, and is not.
    Critical,
    /// The algorithm is `none`, is not allowed, or is unknown.
    Algorithm,
    /// There are no keys, because they could not be fetched yet.
    NoKeys,
    /// The token is signed with a key that is not there, or does not say with which of many.
    UnknownKey,
    /// The signature is wrong.
    Signature,
    /// A time is no number, is negative, or lies behind the year 9999.
    Time,
    /// There is no time at which the token expires.
    NoExpiry,
    /// The token has expired.
    Expired,
    /// The token is not good yet.
    NotYet,
    /// The issuer is another one.
    Issuer,
    /// The token is for others.
    Audience,
    /// The claim with groups is no list of names, or has more than there may be.
    Groups,
    /// The claim with rules has something else in it, or more than there may be.
    Rules,
    /// The claim with the user name is missing, empty or no text.
    User,
    /// CONNECT names another user.
    OtherUser,
}

impl TokenProblem {
    /// The reason as a part of a line of the log.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Malformed => "its token is malformed, or has a member twice",
            Self::TooLong => "its token is too long",
            Self::Critical => "its token has an extension that must be understood",
            Self::Algorithm => "the algorithm of its token is not allowed",
            Self::NoKeys => "there are no keys yet to check its token",
            Self::UnknownKey => "the key of its token is unknown, or not named",
            Self::Signature => "the signature of its token is wrong",
            Self::Time => "a time in its token is no number of seconds",
            Self::NoExpiry => "its token never expires",
            Self::Expired => "its token has expired",
            Self::NotYet => "its token is not valid yet",
            Self::Issuer => "its token is of another issuer",
            Self::Audience => "its token is for another audience",
            Self::Groups => "the groups in its token are no names, or too many",
            Self::Rules => "the rules in its token are malformed, or too many",
            Self::User => "its token has no user name, or one that no client may have",
            Self::OtherUser => "its token is of another user than CONNECT says",
        }
    }

    /// Whether the token may be one of many that are made up. A token of the issuer that is no good is none, and a token
    /// without a key costs no check.
    #[must_use]
    pub fn is_guess(self) -> bool {
        matches!(self, Self::Malformed | Self::TooLong | Self::Critical | Self::Algorithm | Self::Signature)
    }
}

impl Tokens {
    /// These rules, with these keys.
    #[must_use]
    pub fn new(rules: TokenRules, keys: TokenKeys) -> Self {
        Self { rules, keys, missed: Arc::default() }
    }

    /// The same with a number that counts tokens whose key is not there: it may be a new one.
    #[must_use]
    pub fn with_missed(mut self, missed: Arc<AtomicU64>) -> Self {
        self.missed = missed;
        self
    }

    /// Whether a password has the form of a token: the beginning of an object in base64, and dots.
    #[must_use]
    pub fn look_like(password: &[u8]) -> bool {
        password.starts_with(b"eyJ") && password.iter().filter(|byte| **byte == b'.').count() >= 2
    }

    /// Whether the rights of a client may be in its token.
    #[must_use]
    pub fn may_have_rules(&self) -> bool {
        self.rules.rules_claim.is_some()
    }

    /// Whether a key with this [number](Bearer::key) is among the keys.
    #[must_use]
    pub fn has_key(&self, key: NonZeroU64) -> bool {
        NonZeroU64::new(key.get() ^ self.rules.rights_number()).is_some_and(|key| self.keys.has(key))
    }

    /// Number of keys that sign tokens.
    #[must_use]
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Checks a token at a time. `user` is the user name in CONNECT, if there is one. This takes microseconds, up to about a
    /// millisecond for a long key of RSA.
    ///
    /// # Errors
    /// The token proves nothing.
    pub fn check(&self, token: &[u8], user: Option<&str>, unix_secs: u64) -> Result<Bearer, TokenProblem> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenProblem::TooLong);
        }
        let text = std::str::from_utf8(token).map_err(|_| TokenProblem::Malformed)?;
        let parts: Vec<&str> = text.splitn(4, '.').collect();
        let [header, claims, signature] = parts[..] else { return Err(TokenProblem::Malformed) };
        let signed = &token[..header.len() + 1 + claims.len()];
        let key = self.key_of(header, signed, &decoded(signature)?)?;
        let claims = strict_object(&decoded(claims)?).ok_or(TokenProblem::Malformed)?;
        let (name, until_unix_secs) = claims::check(&claims, &self.rules, unix_secs)?;
        if user.is_some_and(|user| user != name) {
            return Err(TokenProblem::OtherUser);
        }
        let rights = rights::read(&claims, &self.rules)?;
        let key = NonZeroU64::new(key.get() ^ self.rules.rights_number()).unwrap_or(NonZeroU64::MIN);
        let (user, voucher) = (name.into(), Voucher::Token);
        Ok(Bearer { user, voucher, key, until_unix_secs, claims: rights })
    }

    /// The key that has signed a token, as a number.
    fn key_of(&self, header: &str, signed: &[u8], signature: &[u8]) -> Result<NonZeroU64, TokenProblem> {
        let header = strict_object(&decoded(header)?).ok_or(TokenProblem::Malformed)?;
        if header.contains_key("crit") {
            return Err(TokenProblem::Critical);
        }
        let algorithm = header.get("alg").and_then(Value::as_str).ok_or(TokenProblem::Malformed)?;
        let algorithm = Algorithm::named(algorithm).filter(|found| self.rules.algorithms.contains(found));
        let algorithm = algorithm.ok_or(TokenProblem::Algorithm)?;
        let id = match header.get("kid") {
            None => None,
            Some(id) => Some(id.as_str().ok_or(TokenProblem::Malformed)?),
        };
        let Some(keys) = self.keys.suitable(algorithm, id) else {
            self.missed.fetch_add(1, Ordering::Relaxed);
            return Err(if self.keys.is_empty() { TokenProblem::NoKeys } else { TokenProblem::UnknownKey });
        };
        let key = keys.into_iter().find(|key| key.has_signed(algorithm, signed, signature));
        key.map(key::Key::fingerprint).ok_or(TokenProblem::Signature)
    }
}

fn decoded(part: &str) -> Result<Vec<u8>, TokenProblem> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenProblem::Malformed)
}

/// A token that is to be checked.
pub struct TokenCheck {
    tokens: Arc<Tokens>,
    token: Box<[u8]>,
    user: Option<Box<str>>,
    number: u64,
}

impl TokenCheck {
    /// The check of a token. `user` is the user name in CONNECT, if there is one.
    #[must_use]
    pub fn new(tokens: &Arc<Tokens>, token: &[u8], user: Option<&str>) -> Self {
        // One byte more than the longest shows that a token is too long.
        let token = &token[..token.len().min(TOKEN_BYTES_MAX + 1)];
        let mut hasher = DefaultHasher::new();
        token.hash(&mut hasher);
        let (tokens, user) = (Arc::clone(tokens), user.map(Box::from));
        Self { tokens, token: token.into(), user, number: hasher.finish() }
    }

    /// Checks the token at a time.
    ///
    /// # Errors
    /// The token proves nothing.
    pub fn run(&self, unix_secs: u64) -> Result<Bearer, TokenProblem> {
        self.tokens.check(&self.token, self.user.as_deref(), unix_secs)
    }

    /// A number that stands for the token: limits of wrong ones are about one token, because a wrong one names nobody.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Memory of the check, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.token.len() + self.user.as_ref().map_or(0, |user| user.len())
    }
}

/// The token stays out of logs.
impl fmt::Debug for TokenCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenCheck").field("user", &self.user).finish_non_exhaustive()
    }
}
