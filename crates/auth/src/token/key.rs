//! One key that checks the signatures of tokens.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::{hmac, signature};
use serde_json::{Map, Value};

use super::Algorithm;

/// Lengths of the modulus of an RSA key, in bytes. Shorter ones can be broken, and longer ones take long to check.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1_024;
/// Maximum length of the exponent of an RSA key, in bytes. Nearly all have 65,537.
const EXPONENT_BYTES_MAX: usize = 4;

/// A key, and the algorithms that it is for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The name of the key, which tokens repeat.
    pub(super) id: Option<Box<str>>,
    /// The only algorithm, if the key names one.
    only: Option<Algorithm>,
    material: Material,
}

/// The key, by its kind.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) enum Material {
    Secret(Box<[u8]>),
    /// Modulus and exponent, without zeros before them.
    Rsa(Box<[u8]>, Box<[u8]>),
    /// A point, not compressed.
    P256(Box<[u8]>),
    P384(Box<[u8]>),
    Ed25519(Box<[u8]>),
}

impl Material {
    pub(super) fn rsa(modulus: &[u8], exponent: &[u8]) -> Option<Self> {
        let without_zeros = |number: &[u8]| -> Box<[u8]> {
            number[number.iter().take_while(|byte| **byte == 0).count()..].into()
        };
        let (modulus, exponent) = (without_zeros(modulus), without_zeros(exponent));
        let is_sound =
            RSA_BYTES.contains(&modulus.len()) && (1..=EXPONENT_BYTES_MAX).contains(&exponent.len());
        is_sound.then_some(Self::Rsa(modulus, exponent))
    }

    pub(super) fn p256(point: &[u8]) -> Option<Self> {
        is_point(point, 32).then(|| Self::P256(point.into()))
    }

    pub(super) fn p384(point: &[u8]) -> Option<Self> {
        is_point(point, 48).then(|| Self::P384(point.into()))
    }

    pub(super) fn ed25519(key: &[u8]) -> Option<Self> {
        (key.len() == 32).then(|| Self::Ed25519(key.into()))
    }
}

/// Whether these bytes have the form of a point that is not compressed, with coordinates of this length.
fn is_point(point: &[u8], bytes: usize) -> bool {
    point.len() == 1 + 2 * bytes && point[0] == 4
}

impl From<Material> for Key {
    fn from(material: Material) -> Self {
        Self { id: None, only: None, material }
    }
}

impl Key {
    /// A key of a JWKS (RFC 7517, section 4). `None` if it is none that signs tokens.
    pub(super) fn of_jwk(jwk: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| jwk.get(name).and_then(Value::as_str);
        if jwk.get("use").is_some_and(|of| of.as_str() != Some("sig")) || !may_verify(jwk) {
            return None;
        }
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?.trim_end_matches('=')).ok();
        let point = || Some([vec![4], bytes("x")?, bytes("y")?].concat());
        let material = match (text("kty")?, text("crv")) {
            ("RSA", None) => Material::rsa(&bytes("n")?, &bytes("e")?),
            ("EC", Some("P-256")) => Material::p256(&point()?),
            ("EC", Some("P-384")) => Material::p384(&point()?),
            ("OKP", Some("Ed25519")) => Material::ed25519(&bytes("x")?),
            ("oct", None) => Some(Material::Secret(bytes("k")?.into())),
            _ => None,
        };
        let only = match jwk.get("alg") {
            None => None,
            Some(name) => Some(name.as_str().and_then(Algorithm::named)?),
        };
        let key = Self { id: text("kid").map(Box::from), only, material: material? };
        let is_usable = Algorithm::NAMED.iter().any(|(_, algorithm)| key.fits(*algorithm));
        is_usable.then_some(key)
    }

    /// Whether the key is a secret, which nobody else may know.
    pub(super) fn is_secret(&self) -> bool {
        matches!(self.material, Material::Secret(_))
    }

    /// Whether the key may check signatures of this algorithm. No key is for two kinds of algorithms: a public key is never
    /// the secret of an HMAC.
    pub(super) fn fits(&self, algorithm: Algorithm) -> bool {
        use Algorithm as A;
        let is_of_kind = match (&self.material, algorithm) {
            // RFC 7518, section 3.2: a secret is at least as long as the hash.
            (Material::Secret(secret), A::Hs256) => secret.len() >= 32,
            (Material::Secret(secret), A::Hs384) => secret.len() >= 48,
            (Material::Secret(secret), A::Hs512) => secret.len() >= 64,
            (Material::Rsa(..), A::Rs256 | A::Rs384 | A::Rs512 | A::Ps256 | A::Ps384 | A::Ps512) => true,
            (Material::P256(_), A::Es256) | (Material::P384(_), A::Es384) => true,
            (Material::Ed25519(_), A::EdDsa) => true,
            _ => false,
        };
        is_of_kind && self.only.is_none_or(|only| only == algorithm)
    }

    /// Whether this key has signed a message. The algorithm must [fit](Self::fits).
    pub(super) fn has_signed(&self, algorithm: Algorithm, message: &[u8], signed: &[u8]) -> bool {
        match &self.material {
            Material::Secret(secret) => has_authenticated(algorithm, secret, message, signed),
            Material::Rsa(modulus, exponent) => {
                let key = signature::RsaPublicKeyComponents { n: modulus, e: exponent };
                rsa_parameters(algorithm)
                    .is_some_and(|parameters| key.verify(parameters, message, signed).is_ok())
            }
            Material::P256(point) => is_signed(&signature::ECDSA_P256_SHA256_FIXED, point, message, signed),
            Material::P384(point) => is_signed(&signature::ECDSA_P384_SHA384_FIXED, point, message, signed),
            Material::Ed25519(key) => is_signed(&signature::ED25519, key, message, signed),
        }
    }

    /// A number that stands for the key in this process.
    pub(super) fn fingerprint(&self) -> NonZeroU64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN)
    }
}

/// Whether the operations of a key are unknown, or include the check of signatures.
fn may_verify(jwk: &Map<String, Value>) -> bool {
    jwk.get("key_ops").is_none_or(|operations| {
        operations.as_array().is_some_and(|list| list.iter().any(|one| one.as_str() == Some("verify")))
    })
}

fn is_signed(
    how: &'static dyn signature::VerificationAlgorithm,
    key: &[u8],
    message: &[u8],
    signed: &[u8],
) -> bool {
    signature::UnparsedPublicKey::new(how, key).verify(message, signed).is_ok()
}

fn has_authenticated(algorithm: Algorithm, secret: &[u8], message: &[u8], signed: &[u8]) -> bool {
    let hash = match algorithm {
        Algorithm::Hs256 => hmac::HMAC_SHA256,
        Algorithm::Hs384 => hmac::HMAC_SHA384,
        Algorithm::Hs512 => hmac::HMAC_SHA512,
        _ => return false,
    };
    hmac::verify(&hmac::Key::new(hash, secret), message, signed).is_ok()
}

fn rsa_parameters(algorithm: Algorithm) -> Option<&'static signature::RsaParameters> {
    Some(match algorithm {
        Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

/// Secrets stay out of logs.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.material {
            Material::Secret(_) => "secret",
            Material::Rsa(..) => "RSA",
            Material::P256(_) => "P-256",
            Material::P384(_) => "P-384",
            Material::Ed25519(_) => "Ed25519",
        };
        f.debug_struct("Key").field("id", &self.id).field("kind", &kind).finish_non_exhaustive()
    }
}
