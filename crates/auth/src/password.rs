//! Hashes of passwords, in the forms that password files have.

use std::fmt;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;

use crate::Mechanism;

/// Number of random bytes in the salt of a new hash. Mosquitto 2.0 reads hashes with a salt of exactly this length.
pub const SALT_BYTES: usize = 12;

/// Length of a SHA-512, in bytes.
const SHA512_BYTES: usize = 64;
/// Length of a new Argon2id hash, in bytes.
const ARGON2_BYTES: usize = 32;
/// Shortest hash that is accepted, in bytes. A hash of one byte would match one password in 256.
const HASH_BYTES_MIN: usize = 16;
/// Longest salt and longest hash that are accepted, in bytes.
const FIELD_BYTES_MAX: usize = 64;
/// Largest number of rounds of PBKDF2: about four seconds of one processor.
const ROUNDS_MAX: u32 = 10_000_000;
/// Largest memory of Argon2id, in KiB.
const MEMORY_KIB_MAX: u32 = 1 << 20;
/// Largest number of passes of Argon2id over its memory.
const PASSES_MAX: u32 = 64;
/// Largest number of lanes of Argon2id.
const LANES_MAX: u32 = 16;

/// A function from a password and a salt to a hash, with its cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scheme {
    /// `$6$`: one SHA-512 over the password and the salt behind it. A guess costs nothing: for old files only.
    Sha512,
    /// `$7$`: PBKDF2 with HMAC-SHA512.
    Pbkdf2 {
        /// Rounds, at least 1.
        rounds: u32,
    },
    /// `$scram-sha-256$`: the keys of SCRAM-SHA-256, which follow from PBKDF2 with HMAC-SHA256. Mosquitto does not know it.
    ScramSha256 {
        /// Rounds, at least 1.
        rounds: u32,
    },
    /// `$argon2id$`: Argon2id, version 19.
    Argon2id {
        /// Memory of a check, in KiB.
        memory_kib: u32,
        /// Passes over the memory.
        passes: u32,
        /// Lanes, which are computed one after the other here.
        lanes: u32,
    },
}

impl Scheme {
    /// The scheme of new passwords: 19 MiB and two passes, the second choice of OWASP. A check takes some 20 ms.
    pub const DEFAULT: Self = Self::Argon2id { memory_kib: 19 * 1_024, passes: 2, lanes: 1 };
    /// Rounds of PBKDF2 in a new hash of `$scram-sha-256$`, as OWASP recommends. The client pays for them.
    pub const SCRAM_ROUNDS: u32 = 600_000;
    /// The scheme that `mosquitto_passwd` of Mosquitto 2.0 uses.
    pub const MOSQUITTO: Self = Self::Pbkdf2 { rounds: 101 };

    fn check(self) -> Result<Self, HashError> {
        let is_bounded = match self {
            Self::Sha512 => true,
            Self::Pbkdf2 { rounds } | Self::ScramSha256 { rounds } => (1..=ROUNDS_MAX).contains(&rounds),
            Self::Argon2id { memory_kib, passes, lanes } => {
                memory_kib <= MEMORY_KIB_MAX
                    && passes <= PASSES_MAX
                    && lanes <= LANES_MAX
                    && Params::new(memory_kib, passes, lanes, None).is_ok()
            }
        };
        if is_bounded { Ok(self) } else { Err(HashError::Cost) }
    }

    fn derive(
        self,
        password: &[u8],
        salt: &[u8],
        bytes: usize,
        workspace: &mut Workspace,
    ) -> Result<Box<[u8]>, HashError> {
        let mut hash = vec![0; bytes].into_boxed_slice();
        match self {
            Self::Sha512 => {
                hash.copy_from_slice(&Sha512::new().chain_update(password).chain_update(salt).finalize());
            }
            Self::Pbkdf2 { rounds } => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, rounds, &mut hash),
            Self::ScramSha256 { rounds } => {
                let mut salted = [0; SHA512_BYTES / 2];
                pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, rounds, &mut salted);
                let (stored, server) = Mechanism::Sha256.keys(&salted);
                hash.copy_from_slice(&[stored.as_ref(), server.as_ref()].concat());
            }
            Self::Argon2id { memory_kib, passes, lanes } => {
                let params =
                    Params::new(memory_kib, passes, lanes, Some(bytes)).map_err(|_| HashError::Cost)?;
                let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
                let blocks = workspace.blocks(argon2.params().block_count());
                argon2
                    .hash_password_into_with_memory(password, salt, &mut hash, blocks)
                    .map_err(|_| HashError::Length)?;
            }
        }
        Ok(hash)
    }

    /// The time of a check, roughly in halves of a microsecond.
    pub(crate) fn cost(self) -> u64 {
        match self {
            Self::Sha512 => 1,
            Self::Pbkdf2 { rounds } | Self::ScramSha256 { rounds } => 2 * u64::from(rounds),
            Self::Argon2id { memory_kib, passes, .. } => u64::from(memory_kib) * u64::from(passes),
        }
    }

    fn hash_bytes(self) -> usize {
        if matches!(self, Self::Argon2id { .. }) { ARGON2_BYTES } else { SHA512_BYTES }
    }
}

/// The memory of slow checks, which a thread uses for one check after the other. It stays as large as the largest check needed.
///
/// An allocator keeps such large blocks for each thread, and for each that was freed: a small broker would take ten times its
/// memory.
#[derive(Default)]
pub struct Workspace(Vec<Block>);

impl Workspace {
    fn blocks(&mut self, count: usize) -> &mut [Block] {
        if self.0.len() < count {
            // The old memory is freed before the new one is taken.
            self.0 = Vec::new();
            self.0.resize(count, Block::default());
        }
        &mut self.0[..count]
    }

    /// Memory of the workspace, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.0.capacity() * Block::SIZE
    }
}

/// The hash of a password, with its salt.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash {
    scheme: Scheme,
    salt: Box<[u8]>,
    hash: Box<[u8]>,
}

impl PasswordHash {
    /// Makes the hash of a password. This takes as long as a check.
    ///
    /// # Errors
    /// The scheme is out of bounds, the salt is shorter than 8 bytes or longer than 64, or the password has a NUL byte.
    pub fn new(scheme: Scheme, password: &[u8], salt: &[u8]) -> Result<Self, HashError> {
        if password.contains(&0) {
            return Err(HashError::Nul);
        }
        if !(8..=FIELD_BYTES_MAX).contains(&salt.len()) {
            return Err(HashError::Length);
        }
        let scheme = scheme.check()?;
        let hash = scheme.derive(password, salt, scheme.hash_bytes(), &mut Workspace::default())?;
        Ok(Self { scheme, salt: salt.into(), hash })
    }

    /// Reads a hash from a field of a password file.
    ///
    /// # Errors
    /// The text is no hash of a known scheme, or its cost is out of bounds.
    pub fn parse(text: &str) -> Result<Self, HashError> {
        let fields: Vec<&str> = text.strip_prefix('$').ok_or(HashError::Plain)?.split('$').collect();
        let (scheme, salt, hash) = match fields[..] {
            ["6", salt, hash] => (Scheme::Sha512, STANDARD.decode(salt), STANDARD.decode(hash)),
            ["7", rounds, salt, hash] => {
                let rounds = number(rounds)?;
                (Scheme::Pbkdf2 { rounds }, STANDARD.decode(salt), STANDARD.decode(hash))
            }
            ["scram-sha-256", rounds, salt, hash] => {
                let rounds = number(rounds)?;
                (Scheme::ScramSha256 { rounds }, STANDARD.decode(salt), STANDARD.decode(hash))
            }
            ["argon2id", "v=19", costs, salt, hash] => {
                (argon2_costs(costs)?, STANDARD_NO_PAD.decode(salt), STANDARD_NO_PAD.decode(hash))
            }
            ["6" | "7" | "scram-sha-256" | "argon2id", ..] => return Err(HashError::Fields),
            _ => return Err(HashError::Scheme),
        };
        let (salt, hash) = (salt.map_err(|_| HashError::Base64)?, hash.map_err(|_| HashError::Base64)?);
        let scheme = scheme.check()?;
        let is_argon2 = matches!(scheme, Scheme::Argon2id { .. });
        let hash_bytes =
            if is_argon2 { HASH_BYTES_MIN..=FIELD_BYTES_MAX } else { SHA512_BYTES..=SHA512_BYTES };
        let salt_bytes_min = if is_argon2 { 8 } else { 1 };
        if !hash_bytes.contains(&hash.len()) || !(salt_bytes_min..=FIELD_BYTES_MAX).contains(&salt.len()) {
            return Err(HashError::Length);
        }
        Ok(Self { scheme, salt: salt.into(), hash: hash.into() })
    }

    /// A hash that no password has, and that takes as long to check as one of `scheme`.
    pub(crate) fn decoy(scheme: Scheme) -> Self {
        Self { scheme, salt: [0; SALT_BYTES].into(), hash: vec![0; scheme.hash_bytes()].into() }
    }

    /// Memory of the hash, in bytes.
    pub(crate) fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.salt.len() + self.hash.len()
    }

    /// The salt and the hash.
    pub(crate) fn parts(&self) -> (&[u8], &[u8]) {
        (&self.salt, &self.hash)
    }

    /// The function that made the hash.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Whether this is the hash of `password`. This takes milliseconds, or as long as the scheme asks for.
    ///
    /// A password with a NUL byte never matches. HMAC pads short keys with NUL bytes, so that PBKDF2 gives `x` and `x\0` the
    /// same hash.
    #[must_use]
    pub fn matches(&self, password: &[u8]) -> bool {
        self.matches_in(password, &mut Workspace::default())
    }

    /// The same in memory that the caller keeps.
    #[must_use]
    pub fn matches_in(&self, password: &[u8], workspace: &mut Workspace) -> bool {
        let derived = self.scheme.derive(password, &self.salt, self.hash.len(), workspace);
        derived.is_ok_and(|derived| bool::from(derived.ct_eq(&self.hash))) && !password.contains(&0)
    }
}

fn number(text: &str) -> Result<u32, HashError> {
    text.parse().map_err(|_| HashError::Cost)
}

/// The fields `m=MEMORY,t=PASSES,p=LANES` of Argon2.
fn argon2_costs(text: &str) -> Result<Scheme, HashError> {
    let mut costs = text.split(',');
    let mut next = |name| {
        let cost = costs.next().and_then(|cost| cost.strip_prefix(name));
        number(cost.ok_or(HashError::Fields)?)
    };
    let (memory_kib, passes, lanes) = (next("m=")?, next("t=")?, next("p=")?);
    if costs.next().is_some() {
        return Err(HashError::Fields);
    }
    Ok(Scheme::Argon2id { memory_kib, passes, lanes })
}

impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scheme {
            Scheme::Sha512 => write!(f, "$6${}${}", STANDARD.encode(&self.salt), STANDARD.encode(&self.hash)),
            Scheme::Pbkdf2 { rounds } => {
                write!(f, "$7${rounds}${}${}", STANDARD.encode(&self.salt), STANDARD.encode(&self.hash))
            }
            Scheme::ScramSha256 { rounds } => {
                let (salt, hash) = (STANDARD.encode(&self.salt), STANDARD.encode(&self.hash));
                write!(f, "$scram-sha-256${rounds}${salt}${hash}")
            }
            Scheme::Argon2id { memory_kib, passes, lanes } => {
                let (salt, hash) = (STANDARD_NO_PAD.encode(&self.salt), STANDARD_NO_PAD.encode(&self.hash));
                write!(f, "$argon2id$v=19$m={memory_kib},t={passes},p={lanes}${salt}${hash}")
            }
        }
    }
}

/// The hash stays out of logs.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordHash").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

/// The rule that a text breaks which should be the hash of a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashError {
    /// The text does not begin with `$`: it may be the password itself.
    Plain,
    /// The text between the first two `$` is no known scheme.
    Scheme,
    /// The number or the form of the fields is not that of the scheme.
    Fields,
    /// Salt or hash is not base64.
    Base64,
    /// Salt or hash is too short or too long.
    Length,
    /// A cost is no number, or out of bounds.
    Cost,
    /// The password has a NUL byte.
    Nul,
}

impl fmt::Display for HashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => {
                "the password is not hashed: `pondhawk passwd -U FILE` hashes all passwords of a file"
            }
            Self::Scheme => "the scheme is none of $6$, $7$ and $argon2id$",
            Self::Fields => "the fields are not those of the scheme",
            Self::Base64 => "salt or hash is not base64",
            Self::Length => "salt or hash has a wrong length",
            Self::Cost => "the number of rounds, or the memory, is out of bounds",
            Self::Nul => "a password has no NUL byte",
        })
    }
}

impl std::error::Error for HashError {}
