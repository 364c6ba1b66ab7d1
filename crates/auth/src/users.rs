//! Users with their password hashes.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::file::entry;
use crate::{HashError, PasswordHash, Scheme};

/// Largest length of a user name, in bytes. A CONNECT packet has no longer one.
const NAME_BYTES_MAX: usize = 65_535;

/// Users by name, each with the hash of a password.
#[derive(Debug, Clone, Default)]
pub struct Users {
    by_name: HashMap<Box<str>, Arc<PasswordHash>>,
    /// Number of users of each scheme.
    schemes: BTreeMap<Scheme, usize>,
}

impl Users {
    /// Reads a password file. Comments begin with `#`, and lines without a colon are skipped.
    ///
    /// # Errors
    /// The first line with an empty name, a name that came before, or a field that is no hash. A file with such a line is
    /// refused as a whole: a user that is silently missing would be a worse surprise.
    pub fn of_file(text: &str) -> Result<Self, UsersError> {
        let mut users = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let Some((name, field)) = entry(line) else { continue };
            let hash = PasswordHash::parse(field).map_err(UserProblem::Hash);
            let added = hash.and_then(|hash| users.add(name, hash));
            added.map_err(|problem| UsersError { line: number, problem })?;
        }
        Ok(users)
    }

    /// Adds a user.
    ///
    /// # Errors
    /// The name is empty or too long, or there is a user of this name.
    pub fn add(&mut self, name: &str, hash: PasswordHash) -> Result<(), UserProblem> {
        if name.is_empty() {
            return Err(UserProblem::Empty);
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(UserProblem::TooLong);
        }
        if self.by_name.contains_key(name) {
            return Err(UserProblem::Twice);
        }
        *self.schemes.entry(hash.scheme()).or_default() += 1;
        self.by_name.insert(name.into(), Arc::new(hash));
        Ok(())
    }

    /// A hash that no known password has, with the scheme that most users have. An unknown name is checked against it: the
    /// time of an answer does not tell which names exist.
    pub(crate) fn decoy(&self) -> Arc<PasswordHash> {
        let most = self.schemes.iter().max_by_key(|(scheme, count)| (**count, **scheme));
        Arc::new(PasswordHash::decoy(most.map_or(Scheme::DEFAULT, |(scheme, _)| *scheme)))
    }

    /// Number of users with a password.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether nobody can log in.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// The hash of a user's password.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<PasswordHash>> {
        self.by_name.get(name)
    }

    /// A check that can run on another thread. It takes as long for an unknown name as for a wrong password.
    #[must_use]
    pub fn check(&self, name: &str, password: &[u8]) -> PasswordCheck {
        let hash = self.by_name.get(name).map_or_else(|| self.decoy(), Arc::clone);
        PasswordCheck::new(name, hash, password)
    }
}

/// A password, and the hash that it has to have.
pub struct PasswordCheck {
    hash: Arc<PasswordHash>,
    password: Box<[u8]>,
    user: u64,
}

impl PasswordCheck {
    pub(crate) fn new(name: &str, hash: Arc<PasswordHash>, password: &[u8]) -> Self {
        let mut user = DefaultHasher::new();
        name.hash(&mut user);
        Self { hash, password: password.into(), user: user.finish() }
    }

    /// Whether the password is right. This takes milliseconds, or as long as the scheme of the hash asks for.
    #[must_use]
    pub fn run(&self) -> bool {
        self.hash.matches(&self.password)
    }

    /// A number that stands for the user name, also for an unknown one: limits of wrong passwords do not tell which names
    /// exist. Two names with the same number only share their limit.
    #[must_use]
    pub fn user(&self) -> u64 {
        self.user
    }

    pub(crate) fn hash(&self) -> &PasswordHash {
        &self.hash
    }

    pub(crate) fn password(&self) -> &[u8] {
        &self.password
    }

    /// Memory of the check, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.password.len()
    }
}

/// The password stays out of logs.
impl fmt::Debug for PasswordCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordCheck").field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// A line of a password file that is no user's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsersError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The rule that the line breaks.
    pub problem: UserProblem,
}

/// The rule that a user breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserProblem {
    /// The name is empty.
    Empty,
    /// The name is longer than a CONNECT packet can name it.
    TooLong,
    /// There is an earlier user of the same name.
    Twice,
    /// The password hash is none.
    Hash(HashError),
}

impl fmt::Display for UserProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the user name is empty"),
            Self::TooLong => f.write_str("the user name is longer than 65,535 bytes"),
            Self::Twice => f.write_str("this user name came before"),
            Self::Hash(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for UserProblem {}

impl fmt::Display for UsersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for UsersError {}
