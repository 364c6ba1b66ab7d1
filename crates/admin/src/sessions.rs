//! Sessions of operators who have logged in with a password: a page keeps the token of its session, and forgets the password.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::passwords::Evidence;
use crate::tokens::{Key, generate, key};

/// Maximum number of sessions of one user. For another one, the oldest of them ends.
const OF_USER_MAX: usize = 16;
/// Maximum number of sessions of all users. For another one, the oldest of all ends.
const SESSIONS_MAX: usize = 1_024;

/// The sessions by the hashes of their tokens. A token itself is not kept.
#[derive(Debug)]
pub(crate) struct Sessions {
    all: Mutex<HashMap<Key, Session>>,
    lifetime: Duration,
}

#[derive(Debug, Clone)]
struct Session {
    evidence: Arc<Evidence>,
    proof: &'static str,
    begun: Instant,
}

/// A session that has not ended, as its token finds it.
pub(crate) struct Found {
    pub(crate) evidence: Arc<Evidence>,
    /// The proof that began the session, in a word.
    pub(crate) proof: &'static str,
    pub(crate) key: Key,
}

impl Sessions {
    pub(crate) fn new(lifetime: Duration) -> Self {
        Self { all: Mutex::default(), lifetime }
    }

    pub(crate) fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Begins a session, and returns its token.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn begin(
        &self,
        evidence: Arc<Evidence>,
        proof: &'static str,
        now: Instant,
    ) -> io::Result<String> {
        let token = generate()?;
        let mut all = self.lock();
        all.retain(|_, session| now.duration_since(session.begun) < self.lifetime);
        let is_same = |session: &Session| session.evidence.user() == evidence.user();
        if all.values().filter(|session| is_same(session)).count() >= OF_USER_MAX {
            end_oldest(&mut all, is_same);
        }
        if all.len() >= SESSIONS_MAX {
            end_oldest(&mut all, |_| true);
        }
        all.insert(key(&token), Session { evidence, proof, begun: now });
        Ok(token)
    }

    /// The session with a token, if it has not ended.
    pub(crate) fn find(&self, token: &str, now: Instant) -> Option<Found> {
        let key = key(token);
        let all = self.lock();
        let Session { evidence, proof, begun } = all.get(&key)?;
        let is_over = now.duration_since(*begun) >= self.lifetime;
        (!is_over).then(|| Found { evidence: Arc::clone(evidence), proof, key })
    }

    pub(crate) fn end(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Session>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end_oldest(all: &mut HashMap<Key, Session>, is_meant: impl Fn(&Session) -> bool) {
    let meant = all.iter().filter(|(_, session)| is_meant(session));
    let oldest = meant.min_by_key(|(_, session)| session.begun).map(|(key, _)| *key);
    oldest.map(|key| all.remove(&key));
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use auth::{Bearer, Voucher};

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(60);

    fn evidence(user: &str) -> Arc<Evidence> {
        let bearer = Bearer {
            user: user.into(),
            voucher: Voucher::Ldap,
            key: NonZeroU64::MIN,
            until_unix_secs: None,
            claims: None,
        };
        Arc::new(Evidence::Bearer(Box::new(bearer)))
    }

    #[test]
    fn a_session_ends_with_its_time_or_when_it_is_told_to() {
        let (sessions, now) = (Sessions::new(LIFETIME), Instant::now());
        let token = sessions.begin(evidence("anna"), "password", now).expect("random numbers");
        let found =
            |token: &str, now| sessions.find(token, now).map(|found| found.evidence.user().to_owned());
        assert_eq!(found(&token, now).as_deref(), Some("anna"));
        assert_eq!(found("0123456789abcdef", now), None);
        assert_eq!(found(&token, now + LIFETIME), None);
        sessions.end(&key(&token));
        assert_eq!(found(&token, now), None);
    }

    #[test]
    fn sessions_are_bounded_for_each_user_and_for_all() {
        let (sessions, now) = (Sessions::new(LIFETIME), Instant::now());
        let begin = |user: &str, ms| {
            let now = now + Duration::from_millis(ms);
            sessions.begin(evidence(user), "password", now).expect("random numbers")
        };
        let other = begin("bob", 0);
        let of_anna: Vec<_> = (1..=17).map(|ms| begin("anna", ms)).collect();
        let is_there = |token: &String| sessions.find(token, now).is_some();
        assert_eq!(of_anna.iter().filter(|token| is_there(token)).count(), 16);
        assert!(!is_there(&of_anna[0]) && is_there(&other));
        (0..2_000).for_each(|number| drop(begin(&format!("user {number}"), 100)));
        assert_eq!(sessions.lock().len(), SESSIONS_MAX);
        begin("late", 60_200);
        assert_eq!(sessions.lock().len(), 1, "those that are over make room");
    }
}
