//! Passwords that were right, so that a fleet which comes back at once is not checked slowly once more.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::time::Duration;

use sha2::{Digest, Sha512};

use crate::{Bearer, PasswordCheck, ServiceCheck};

/// Maximum number of passwords. Beyond it the oldest is forgotten.
const REMEMBERED_MAX: usize = 65_536;
/// Maximum length of the user name in an answer that is remembered, in bytes.
const NAME_BYTES_MAX: usize = 256;
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
        mark(self.key, [hash.as_bytes(), check.password()])
    }
}

/// A digest of parts, which nobody finds without the key.
fn mark(key: [u8; 32], parts: impl IntoIterator<Item: AsRef<[u8]>>) -> Mark {
    let mut digest = Sha512::new().chain_update(key);
    for part in parts {
        digest.update((part.as_ref().len() as u64).to_le_bytes());
        digest.update(part);
    }
    let mut mark = [0; DIGEST_BYTES];
    mark.copy_from_slice(&digest.finalize()[..DIGEST_BYTES]);
    mark
}

/// Answers of servers elsewhere that have let a client in, each for a time and for the same question. Other answers are never
/// remembered.
pub struct RememberedAnswers {
    /// Secret of this process. Digests are worthless without it.
    key: [u8; 32],
    answers: HashMap<Mark, Remembering>,
    /// Digests in the order in which they came, each with the number of its answer. An answer that was renewed has another
    /// number.
    order: VecDeque<(Mark, u64)>,
    /// Number of answers so far.
    count: u64,
}

/// An answer that is remembered.
struct Remembering {
    bearer: Bearer,
    /// The time at which the answer is forgotten, on the monotonic clock.
    until_ms: u64,
    number: u64,
}

impl RememberedAnswers {
    /// Nothing yet. The key must be random, and a secret of this process.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Self {
        Self { key, answers: HashMap::new(), order: VecDeque::new(), count: 0 }
    }

    /// The user whom the answer to this question named, if the answer is good still. `now` is the time on the monotonic clock,
    /// in milliseconds, and the time in seconds since 1970.
    #[must_use]
    pub fn find(&self, check: &ServiceCheck, (now_ms, unix_secs): (u64, u64)) -> Option<Bearer> {
        // Most brokers remember none, and a digest of a long password takes some time.
        if self.answers.is_empty() {
            return None;
        }
        let Remembering { bearer, until_ms, .. } = self.answers.get(&mark(self.key, check.parts()))?;
        let is_good = *until_ms > now_ms && bearer.until_unix_secs.is_none_or(|until| until > unix_secs);
        is_good.then(|| bearer.clone())
    }

    /// Notes the user whom the answer to a question names, for a time. A name of more than 256 bytes is not noted.
    pub fn add(&mut self, check: &ServiceCheck, bearer: &Bearer, now_ms: u64, remembers: Duration) {
        let remembers_ms = u64::try_from(remembers.as_millis()).unwrap_or(u64::MAX);
        if remembers_ms == 0 || bearer.user.len() > NAME_BYTES_MAX {
            return;
        }
        let mark = mark(self.key, check.parts());
        let until_ms = now_ms.saturating_add(remembers_ms);
        self.count += 1;
        self.answers.insert(mark, Remembering { bearer: bearer.clone(), until_ms, number: self.count });
        self.order.push_back((mark, self.count));
        self.forget_some(now_ms);
    }

    /// Forgets the oldest answers, as far as there are too many or their time is over: at most two for each that comes.
    fn forget_some(&mut self, now_ms: u64) {
        for _ in 0..2 {
            let Some((mark, number)) = self.order.front() else { return };
            let oldest = self.answers.get(mark).filter(|answer| answer.number == *number);
            let is_over = oldest.is_none_or(|answer| answer.until_ms <= now_ms);
            let are_too_many = self.answers.len() > REMEMBERED_MAX || self.order.len() > 2 * REMEMBERED_MAX;
            if !is_over && !are_too_many {
                return;
            }
            if oldest.is_some() {
                self.answers.remove(mark);
            }
            self.order.pop_front();
        }
    }
}

/// Key and digests stay out of logs.
impl fmt::Debug for Remembered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remembered").field("passwords", &self.marks.len()).finish_non_exhaustive()
    }
}

/// Key, digests and names stay out of logs.
impl fmt::Debug for RememberedAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RememberedAnswers").field("answers", &self.answers.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        PasswordHash, Question, Scheme, SourceSettings, UserService, UserSource, Users, Verdict, Voucher,
    };

    #[derive(Debug)]
    struct Nobody;

    impl UserService for Nobody {
        fn ask(&self, _: &Question<'_>) -> Verdict {
            Verdict::Unknown
        }
    }

    fn asked(place: &str, user: &str, password: &[u8], client_id: &str) -> ServiceCheck {
        asked_with(7, place, Question { user, password, client_id })
    }

    /// The same with this number for the settings of the server.
    fn asked_with(number: u64, place: &str, question: Question<'_>) -> ServiceCheck {
        let settings = SourceSettings { place, number, remembers: Duration::ZERO };
        let source = UserSource::new(Voucher::Http, settings, Arc::new(Nobody));
        ServiceCheck::new(&Arc::from([source]), question)
    }

    fn bearer(until_unix_secs: Option<u64>) -> Bearer {
        let key = std::num::NonZeroU64::MIN;
        Bearer { user: "ann".into(), voucher: Voucher::Http, key, until_unix_secs, claims: None }
    }

    #[test]
    fn an_answer_is_remembered_for_the_same_question_and_for_a_time() {
        let mut answers = RememberedAnswers::new([7; 32]);
        let check = asked("a", "ann", b"secret", "a1");
        answers.add(&check, &bearer(None), 1_000, Duration::ZERO);
        assert_eq!(answers.find(&check, (1_000, 0)), None);
        answers.add(&check, &bearer(None), 1_000, Duration::from_secs(2));
        assert_eq!(answers.find(&check, (2_999, 0)), Some(bearer(None)));
        assert_eq!(answers.find(&check, (3_000, 0)), None, "the time is over");
        for other in [
            asked("b", "ann", b"secret", "a1"),
            asked("a", "ann", b"secreT", "a1"),
            asked("a", "bob", b"secret", "a1"),
            asked("a", "ann", b"secret", "a2"),
            asked("a", "anns", b"ecret", "a1"),
            asked_with(8, "a", Question { user: "ann", password: b"secret", client_id: "a1" }),
        ] {
            assert_eq!(answers.find(&other, (1_000, 0)), None, "{other:?}");
        }
        let ends = asked("a", "eve", b"secret", "e1");
        answers.add(&ends, &bearer(Some(50)), 1_000, Duration::from_secs(2));
        assert!(answers.find(&ends, (1_000, 49)).is_some() && answers.find(&ends, (1_000, 50)).is_none());
    }

    #[test]
    fn remembered_answers_are_bounded() {
        let mut answers = RememberedAnswers::new([7; 32]);
        let check = |number: usize| asked("a", "ann", number.to_string().as_bytes(), "a1");
        for number in 0..=REMEMBERED_MAX {
            answers.add(&check(number), &bearer(None), 0, Duration::from_secs(1));
        }
        assert_eq!((answers.answers.len(), answers.order.len()), (REMEMBERED_MAX, REMEMBERED_MAX));
        assert!(answers.find(&check(0), (0, 0)).is_none() && answers.find(&check(1), (0, 0)).is_some());
        // A client that comes again is the youngest, and does not fill the list.
        for _ in 0..REMEMBERED_MAX {
            answers.add(&check(1), &bearer(None), 0, Duration::from_secs(1));
        }
        assert_eq!(answers.answers.len(), REMEMBERED_MAX);
        answers.add(&check(REMEMBERED_MAX + 1), &bearer(None), 0, Duration::from_secs(1));
        assert!(answers.find(&check(1), (0, 0)).is_some() && answers.find(&check(2), (0, 0)).is_none());
        for _ in 0..2 * REMEMBERED_MAX {
            answers.add(&check(1), &bearer(None), 0, Duration::from_secs(1));
        }
        assert!(answers.order.len() <= 2 * REMEMBERED_MAX);
        // Those whose time is over make room.
        for number in 0..2 * REMEMBERED_MAX {
            answers.add(&check(number), &bearer(None), 2_000 + number as u64, Duration::from_millis(1));
        }
        assert_eq!(answers.answers.len(), 1);
        let mut long = bearer(None);
        long.user = "a".repeat(NAME_BYTES_MAX + 1).into();
        answers.add(&check(0), &long, 1 << 30, Duration::from_secs(1));
        assert_eq!(answers.find(&check(0), (1 << 30, 0)), None);
    }

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
