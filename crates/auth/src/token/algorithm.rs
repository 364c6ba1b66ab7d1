//! The algorithms that sign tokens.

use std::fmt;

/// An algorithm that signs tokens (RFC 7518, section 3, and RFC 8037).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
    /// RSA, PKCS #1 version 1.5, with SHA-256.
    Rs256,
    /// RSA, PKCS #1 version 1.5, with SHA-384.
    Rs384,
    /// RSA, PKCS #1 version 1.5, with SHA-512.
    Rs512,
    /// RSA, PSS, with SHA-256.
    Ps256,
    /// RSA, PSS, with SHA-384.
    Ps384,
    /// RSA, PSS, with SHA-512.
    Ps512,
    /// ECDSA on the curve P-256 with SHA-256.
    Es256,
    /// ECDSA on the curve P-384 with SHA-384.
    Es384,
    /// EdDSA on the curve Ed25519.
    EdDsa,
}

impl Algorithm {
    /// All algorithms with their names, as the header of a token has them. `none` is no algorithm.
    pub const NAMED: &[(&str, Self)] = &[
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("PS384", Self::Ps384),
        ("PS512", Self::Ps512),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
        ("HS256", Self::Hs256),
        ("HS384", Self::Hs384),
        ("HS512", Self::Hs512),
    ];

    /// The algorithm of a name. `Ed25519` is the newer name of `EdDSA` with this curve (RFC 9864).
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = if name == "Ed25519" { "EdDSA" } else { name };
        Self::NAMED.iter().find(|(known, _)| *known == name).map(|(_, algorithm)| *algorithm)
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMED.iter().find(|(_, algorithm)| algorithm == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}
