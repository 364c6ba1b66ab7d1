//! Passwords that were right, so that a fleet which comes back at once is not checked slowly once more.

use std::collections::{HashSet, VecDeque};
use std::fmt;

use sha2::{Digest, Sha512};

use crate::PasswordCheck;

/// Maximum number of passwords. Beyond it the oldest is forgotten.
const REMEMBERED_MAX: usize = 65_536;
/// Length of the digest of a password, in bytes.
const DIGEST_BYTES: usize = 32;

type Mark = [u8; DIGEST_BYTES];

/// Passwords that were right, each as a digest of the password and of its hash in the file. A hash that was replaced is not
/// found any more. Wrong passwords are never remembered, and always cost a slow check.
pub struct Remembered {
    /// Secret of this process. Digests are worthless without it.
    key: [u8; 32],
    marks: HashSet<Mark>,
    /// Digests in the order in which they came.
    order: VecDeque<Mark>,
}

impl Remembered {
    /// Nothing yet. The key must be random, and a secret of this process.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, marks: HashSet::new(), order: VecDeque::new() }
    }

    /// Whether this password was right before, for this hash. This takes microseconds.
    #[must_use]
    pub fn has(&self, check: &PasswordCheck) -> bool {
        self.marks.contains(&self.mark(check))
    }

    /// Notes a password that is right.
    pub fn add(&mut self, check: &PasswordCheck) {
        let mark = self.mark(check);
        if self.marks.insert(mark) {
            self.order.push_back(mark);
        }
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.marks.remove(&oldest);
        }
    }

    fn mark(&self, check: &PasswordCheck) -> Mark {
        let hash = check.hash().to_string();
        let digest = Sha512::new().chain_update(self.key).chain_update((hash.len() as u64).to_le_bytes());
        let digest = digest.chain_update(hash).chain_update(check.password()).finalize();
        let mut mark = [0; DIGEST_BYTES];
        mark.copy_from_slice(&digest[..DIGEST_BYTES]);
        mark
    }
}

/// Key and digests stay out of logs.
impl fmt::Debug for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remembered").field("passwords", &self.marks.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PasswordHash, Scheme, Users};

    fn users(salt: &[u8]) -> Users {
        let mut users = Users::default();
        let hash = PasswordHash::new(Scheme::Sha512, b"secret", salt).expect("a hash");
        users.add("ann", hash).expect("a user");
        users
    }

    #[test]
    fn a_right_password_is_remembered_for_its_hash_alone() {
        let mut remembered = Remembered::new([7; 32]);
        let (before, after) = (users(b"twelve bytes"), users(b"other twelve"));
        let right = before.check("ann", b"secret");
        assert!(!remembered.has(&right));
        remembered.add(&right);
        remembered.add(&right);
        assert!(remembered.has(&right) && remembered.has(&before.check("ann", b"secret")));
        assert!(!remembered.has(&before.check("ann", b"secreT")));
        assert!(!remembered.has(&before.check("bob", b"secret")), "an unknown user");
        assert!(!remembered.has(&after.check("ann", b"secret")), "another hash");
        assert!(!Remembered::new([8; 32]).has(&right));
        assert_eq!(remembered.order.len(), 1);
    }

    #[test]
    fn remembered_passwords_are_bounded() {
        let users = users(b"twelve bytes");
        let check = |number: usize| users.check("ann", number.to_string().as_bytes());
        let mut remembered = Remembered::new([7; 32]);
        (0..=REMEMBERED_MAX).for_each(|number| remembered.add(&check(number)));
        assert_eq!((remembered.marks.len(), remembered.order.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        assert!(!remembered.has(&check(0)) && remembered.has(&check(1)));
    }
}
