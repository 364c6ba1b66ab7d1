//! The keys of an issuer: a file with a public key, with a secret, or with a JWKS, or the JWKS behind a URL.

use std::fmt;
use std::num::NonZeroU64;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::{Map, Value};

use super::key::{Key, Material};
use super::{Algorithm, der};
use crate::strict_object;

/// Maximum number of keys. An issuer has two or three, also while it changes them.
const KEYS_MAX: usize = 100;
/// Maximum number of keys that a signature is checked with.
const TRIED_MAX: usize = 4;
/// Minimum length of a secret, in bytes (RFC 7518, section 3.2, for HS256).
const SECRET_BYTES_MIN: usize = 32;

/// The keys of an issuer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct TokenKeys {
    keys: Vec<Key>,
    /// The numbers of the keys: every client is compared with them when users change.
    numbers: Vec<NonZeroU64>,
}

/// The reason why a text has no keys that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeysError {
    /// The text is a JWKS that is no JSON, has a member twice, or has no list of keys.
    Jwks,
    /// The text has more keys than an issuer needs.
    TooMany,
    /// The text has no key that signs tokens.
    NoKey,
    /// A block of PEM has no end, or is not base64.
    Pem,
    /// A block of PEM is no public key of a known kind.
    Kind,
    /// The text has a private key.
    Private,
    /// The secret is too short to be safe.
    ShortSecret,
    /// The secret is not one line of text.
    Secret,
    /// The secret may be a public key, which everybody knows.
    PublicSecret,
}

impl TokenKeys {
    /// The keys in a file. A text that begins with `{` is a JWKS, or one key of a JWKS. A text with `-----BEGIN` is PEM with
    /// public keys. Any other text is a secret, and has one line.
    ///
    /// # Errors
    /// There is no key that can be used, or there are too many, or the secret is not safe.
    pub fn of_file(text: &str) -> Result<Self, KeysError> {
        let keys = match text.trim_start() {
            jwks if jwks.starts_with('{') => of_jwks(jwks)?,
            pem if pem.contains("-----BEGIN") => of_pem(pem)?,
            _ => vec![of_secret(text)?],
        };
        Self::of(keys)
    }

    /// The keys in the JWKS behind a URL. Secrets in it are no keys: everybody who reaches the URL knows them.
    ///
    /// # Errors
    /// There is no key that can be used, or there are too many.
    pub fn of_url(text: &[u8]) -> Result<Self, KeysError> {
        let text = std::str::from_utf8(text).map_err(|_| KeysError::Jwks)?;
        Self::of(of_jwks(text)?.into_iter().filter(|key| !key.is_secret()).collect())
    }

    fn of(keys: Vec<Key>) -> Result<Self, KeysError> {
        if keys.is_empty() {
            return Err(KeysError::NoKey);
        }
        let numbers = keys.iter().map(Key::fingerprint).collect();
        Ok(Self { keys, numbers })
    }

    /// The keys of both.
    #[must_use]
    pub fn and(mut self, other: &Self) -> Self {
        self.keys.extend_from_slice(&other.keys);
        self.numbers.extend_from_slice(&other.numbers);
        self
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Number of keys that sign tokens.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether a key with this number is among them.
    pub(crate) fn has(&self, fingerprint: NonZeroU64) -> bool {
        self.numbers.contains(&fingerprint)
    }

    /// The keys that may have signed a token with this algorithm. A token that names a key is signed by the key of this name,
    /// or by a key without a name. `None` if there are none, or so many that the token has to name one.
    pub(super) fn suitable(&self, algorithm: Algorithm, id: Option<&str>) -> Option<Vec<&Key>> {
        let is_named = |key: &&Key| match (id, &key.id) {
            (Some(id), Some(known)) => **known == *id,
            _ => true,
        };
        let keys = self.keys.iter().filter(|key| key.fits(algorithm)).filter(is_named);
        let keys: Vec<&Key> = keys.take(TRIED_MAX + 1).collect();
        (1..=TRIED_MAX).contains(&keys.len()).then_some(keys)
    }
}

/// The keys of a JWKS that sign tokens. Others are left out, as RFC 7517, section 5, asks for.
fn of_jwks(text: &str) -> Result<Vec<Key>, KeysError> {
    let object = strict_object(text.as_bytes()).ok_or(KeysError::Jwks)?;
    if object.contains_key("kty") {
        return Ok(of_jwk(&object)?.into_iter().collect());
    }
    let list = object.get("keys").and_then(Value::as_array).ok_or(KeysError::Jwks)?;
    if list.len() > KEYS_MAX {
        return Err(KeysError::TooMany);
    }
    let jwks = list.iter().filter_map(Value::as_object);
    jwks.filter_map(|jwk| of_jwk(jwk).transpose()).collect()
}

/// A key that signs tokens, if it is one. A key with its private part is in the wrong place.
fn of_jwk(jwk: &Map<String, Value>) -> Result<Option<Key>, KeysError> {
    if jwk.contains_key("d") {
        return Err(KeysError::Private);
    }
    Ok(Key::of_jwk(jwk))
}

fn of_pem(text: &str) -> Result<Vec<Key>, KeysError> {
    let blocks = der::blocks(text).ok_or(KeysError::Pem)?;
    if blocks.len() > KEYS_MAX {
        return Err(KeysError::TooMany);
    }
    let key = |block: der::Block<'_>| match block.label {
        "PUBLIC KEY" => der::public_key(&block.der).map(Key::from).ok_or(KeysError::Kind),
        "RSA PUBLIC KEY" => der::rsa_key(&block.der).map(Key::from).ok_or(KeysError::Kind),
        label if label.ends_with("PRIVATE KEY") => Err(KeysError::Private),
        _ => Err(KeysError::Kind),
    };
    blocks.into_iter().map(key).collect()
}

/// The line of a file is the secret, without its end. Secrets of other bytes have their place in a JWKS.
fn of_secret(text: &str) -> Result<Key, KeysError> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.contains(char::is_control) {
        return Err(KeysError::Secret);
    }
    // A public key in the place of a secret would let everybody sign.
    let is_der = STANDARD_NO_PAD
        .decode(line.trim().trim_end_matches('='))
        .is_ok_and(|der| der::public_key(&der).or_else(|| der::rsa_key(&der)).is_some());
    if is_der || line.starts_with("ssh-") || line.starts_with("ecdsa-") {
        return Err(KeysError::PublicSecret);
    }
    if line.len() < SECRET_BYTES_MIN {
        return Err(KeysError::ShortSecret);
    }
    Ok(Key::from(Material::Secret(line.as_bytes().into())))
}

impl fmt::Display for KeysError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Jwks => "this is no JWKS: no JSON, a member that comes twice, or no list `keys`",
            Self::TooMany => "there are more than 100 keys",
            Self::NoKey => "there is no key that can be used",
            Self::Pem => "a block of PEM has no end, or is not base64",
            Self::Kind => {
                "a block of PEM is no public key of RSA with 2,048 to 8,192 bits, P-256, P-384 or Ed25519"
            }
            Self::Private => "this is a private key, and the broker needs the public one alone",
            Self::ShortSecret => "a secret has at least 32 bytes",
            Self::Secret => "a secret is one line of text; a JWKS has other secrets in base64",
            Self::PublicSecret => {
                "this is a public key without the lines of PEM, and would be a secret that everybody knows"
            }
        })
    }
}

impl std::error::Error for KeysError {}
