//! Users with their password hashes.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::file::entry;
use crate::schemes::Schemes;
use crate::{HashError, PasswordHash, Scheme, Workspace};

/// Largest length of a user name, in bytes. A CONNECT packet has no longer one.
const NAME_BYTES_MAX: usize = 65_535;

/// Users by name, each with the hash of a password.
#[derive(Debug, Clone, Default)]
pub struct Users {
    by_name: HashMap<Box<str>, Arc<PasswordHash>>,
    schemes: Schemes,
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
        self.schemes.add(&hash);
        self.by_name.insert(name.into(), Arc::new(hash));
        Ok(())
    }

    /// The schemes of all users.
    pub(crate) fn schemes(&self) -> &Schemes {
        &self.schemes
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

    /// The names of all users, in any order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(|name| &**name)
    }

    /// The hash of a user's password.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<PasswordHash>> {
        self.by_name.get(name)
    }

    /// A check that can run on another thread. It takes as long for an unknown name as for a wrong password.
    #[must_use]
    pub fn check(&self, name: &str, password: &[u8]) -> PasswordCheck {
        PasswordCheck::new(name, self.by_name.get(name), &self.schemes, password)
    }
}

/// A number that stands for a user name.
pub(crate) fn number(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// A password, and the hash that it has to have.
pub struct PasswordCheck {
    hash: Arc<PasswordHash>,
    password: Box<[u8]>,
    user: u64,
    /// Checks that follow a wrong password, if other users have costlier schemes. No password has these hashes.
    rest: Box<[PasswordHash]>,
}

impl PasswordCheck {
    /// The check of a password against the hash of a user, or of an unknown name without one. A wrong password takes as long
    /// as for an unknown name.
    pub(crate) fn new(
        name: &str,
        known: Option<&Arc<PasswordHash>>,
        schemes: &Schemes,
        password: &[u8],
    ) -> Self {
        let mut rest = schemes.rest(known.map(|hash| hash.scheme()));
        let decoy = |rest: &mut Vec<Scheme>| {
            Arc::new(PasswordHash::decoy(rest.pop().expect("an unknown name costs at least one check")))
        };
        let hash = known.map_or_else(|| decoy(&mut rest), Arc::clone);
        let rest = rest.into_iter().map(PasswordHash::decoy).collect();
        Self { hash, password: password.into(), user: number(name), rest }
    }

    /// Whether the password is right. This takes milliseconds, or as long as the scheme of the hash asks for.
    #[must_use]
    pub fn run(&self) -> bool {
        self.run_in(&mut Workspace::default())
    }

    /// The same in memory that the caller keeps for other checks.
    #[must_use]
    pub fn run_in(&self, workspace: &mut Workspace) -> bool {
        let is_right = self.hash.matches_in(&self.password, workspace);
        if !is_right {
            for decoy in &self.rest {
                let _ = decoy.matches_in(&self.password, workspace);
            }
        }
        is_right
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
        size_of::<Self>()
            + self.password.len()
            + self.rest.iter().map(PasswordHash::size_bytes).sum::<usize>()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_password_costs_as_much_whatever_the_scheme_of_its_user() {
        let mut users = Users::default();
        let costly = Scheme::Argon2id { memory_kib: 64, passes: 1, lanes: 1 };
        let schemes = [("ann", Scheme::Sha512), ("bob", Scheme::Sha512), ("admin", costly)];
        for (name, scheme) in schemes {
            let hash = PasswordHash::new(scheme, b"right", b"twelve bytes").expect("a hash");
            users.add(name, hash).expect("a user");
        }
        let schemes = |name| {
            let check = users.check(name, b"wrong");
            assert!(!check.run());
            (check.hash.scheme(), check.rest.iter().map(PasswordHash::scheme).collect::<Vec<_>>())
        };
        assert_eq!(schemes("ann"), (Scheme::Sha512, vec![costly]));
        assert_eq!(schemes("admin"), (costly, vec![]));
        assert_eq!(schemes("nobody"), (costly, vec![]));
        assert!(users.check("ann", b"right").run());
    }
}
