//! The source of tokens in the configuration: its keys, its rules, and its name.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use auth::{Algorithm, TokenKeys, TokenRules, Tokens, Voucher};
use config::Jwt;

use crate::access::parse;
use crate::jwks::{Jwks, KeyPlace};

/// The rules about tokens and the places of their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenSource {
    pub(crate) key_file: Option<PathBuf>,
    keys_url: Option<String>,
    rules: TokenRules,
}

impl TokenSource {
    /// The source that the configuration names, if there is one.
    pub(crate) fn of(jwt: &Jwt) -> Option<Arc<Self>> {
        let all = || Algorithm::NAMED.iter().map(|(_, algorithm)| *algorithm).collect();
        let rules = TokenRules {
            algorithms: if jwt.algorithms.is_empty() { all() } else { jwt.algorithms.clone() },
            issuer: jwt.issuer.clone(),
            audiences: jwt.audience.clone(),
            user_claim: jwt.user_claim.clone(),
            groups_claim: jwt.groups_claim.clone(),
            rules_claim: jwt.rules_claim.clone(),
            leeway_secs: jwt.leeway.as_secs(),
            requires_expiry: jwt.require_expiry,
        };
        let source = Self { key_file: jwt.key_file.clone(), keys_url: jwt.keys_url.clone(), rules };
        jwt.has_keys().then(|| Arc::new(source))
    }

    /// The name of the place that says which user a name in a token means: the issuer, or else the place of the keys.
    pub(crate) fn place_of_users(&self) -> String {
        let file = || self.key_file.as_ref().map(|path| path.to_string_lossy().into_owned());
        let issuer = self.rules.issuer.clone().or_else(|| self.keys_url.clone()).or_else(file);
        format!("{}{}", Voucher::Token.prefix(), issuer.unwrap_or_default())
    }

    /// Reads the file of keys, and adds the keys that were fetched. Returns also the hash of both.
    pub(crate) fn read(&self, jwks: &Jwks) -> io::Result<(Tokens, u64)> {
        let mut contents = DefaultHasher::new();
        let mut keys = match &self.key_file {
            Some(path) => parse("key_file", path, &mut contents, TokenKeys::of_file)?,
            None => TokenKeys::default(),
        };
        if let Some(fetched) = self.fetched(jwks) {
            fetched.hash(&mut contents);
            keys = keys.and(&fetched);
        }
        let tokens = Tokens::new(self.rules.clone(), keys).with_missed(jwks.missed());
        Ok((tokens, contents.finish()))
    }

    /// The keys that were fetched from the URL, if there are some.
    pub(crate) fn fetched(&self, jwks: &Jwks) -> Option<Arc<TokenKeys>> {
        jwks.keys(self.keys_url.as_ref()?)
    }
}

/// The place of keys that are to be fetched for the listeners of a configuration.
pub(crate) fn key_place(jwt: &Jwt) -> Option<KeyPlace> {
    Some(KeyPlace { url: jwt.keys_url.clone()?, interval: jwt.refresh_interval })
}
