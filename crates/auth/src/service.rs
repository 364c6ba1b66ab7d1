//! Users whom a server elsewhere knows: a service over HTTP, or a directory over LDAP.
//!
//! The crate has no sockets. A caller implements [`UserService`], and runs a [`ServiceCheck`] on a thread that may wait.

use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use crate::{Bearer, Checked, Unchecked, Voucher};

/// A server elsewhere that knows users.
pub trait UserService: fmt::Debug + Send + Sync {
    /// Asks about a user name and a password. The call waits for the answer, within a time limit of its own.
    fn ask(&self, question: &Question<'_>) -> Verdict;
}

/// A user name and a password, and the client that gave them in CONNECT.
#[derive(Clone, Copy)]
pub struct Question<'a> {
    /// The user name. It is not empty.
    pub user: &'a str,
    /// The password. It is not empty: directories take an empty one for a stranger, and let the stranger in.
    pub password: &'a [u8],
    /// The client identifier, also if the broker has assigned it.
    pub client_id: &'a str,
}

/// The answer of a server about a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The password is that of a user.
    Known {
        /// The name under which the client is let in. A directory may find one user by several names.
        user: Arc<str>,
        /// The first second, since 1970, at which the answer is not good any more; `None` if it stays good.
        until_unix_secs: Option<u64>,
    },
    /// The client may not log in. No other server is asked.
    Denied,
    /// The server does not know the user. Another one may.
    Unknown,
    /// There was no answer in time, or none that can be understood.
    Unreachable,
}

/// A server that is asked about users, with its place in the configuration.
#[derive(Debug, Clone)]
pub struct UserSource {
    voucher: Voucher,
    /// Stands for the server.
    number: NonZeroU64,
    /// Stands for all settings of the server, and for its files.
    settings: u64,
    remembers: Duration,
    service: Arc<dyn UserService>,
}

/// The settings of a server that is asked about users, as far as they concern the broker.
#[derive(Debug, Clone, Copy)]
pub struct SourceSettings<'a> {
    /// The address, with the settings that change which users an answer is about. Users whom another place has let in must log
    /// in again.
    pub place: &'a str,
    /// A number that stands for all settings and for the files that they name. Answers that were given before a change are
    /// forgotten.
    pub number: u64,
    /// The time for which an answer that lets a client in is good for the same client.
    pub remembers: Duration,
}

impl UserSource {
    /// A server of this kind with these settings.
    #[must_use]
    pub fn new(voucher: Voucher, settings: SourceSettings<'_>, service: Arc<dyn UserService>) -> Self {
        let SourceSettings { place, number: settings, remembers } = settings;
        let mut hasher = DefaultHasher::new();
        (voucher.prefix(), place).hash(&mut hasher);
        let number = NonZeroU64::new(hasher.finish()).unwrap_or(NonZeroU64::MIN);
        Self { voucher, number, settings, remembers, service }
    }

    /// The kind of the server.
    #[must_use]
    pub fn voucher(&self) -> Voucher {
        self.voucher
    }

    /// A number that stands for the server, as [`Bearer::key`] has it.
    #[must_use]
    pub fn number(&self) -> NonZeroU64 {
        self.number
    }
}

/// A user name and a password that servers elsewhere are asked about.
#[derive(Clone)]
pub struct ServiceCheck {
    sources: Arc<[UserSource]>,
    user: Box<str>,
    password: Box<[u8]>,
    client_id: Box<str>,
    /// Stands for the user name.
    number: u64,
}

impl ServiceCheck {
    /// A check that asks these servers in this order.
    pub(crate) fn new(sources: &Arc<[UserSource]>, question: Question<'_>) -> Self {
        let Question { user, password, client_id } = question;
        let number = number(user);
        let (user, password, client_id) = (user.into(), password.into(), client_id.into());
        Self { sources: Arc::clone(sources), user, password, client_id, number }
    }

    /// Asks the servers one after the other, at a time in seconds since 1970. Waits for each of them.
    ///
    /// The first that knows the user, denies the client, or does not answer, decides. In the last case the password is
    /// [not checked](Checked::Not): the user may be that one's, and whoever makes it fail must not get around its refusal.
    #[must_use]
    pub fn run(&self, unix_secs: u64) -> Checked {
        let question = Question { user: &self.user, password: &self.password, client_id: &self.client_id };
        for source in &*self.sources {
            match source.service.ask(&question) {
                Verdict::Known { user, until_unix_secs }
                    if until_unix_secs.is_none_or(|until| until > unix_secs) =>
                {
                    return Checked::Bearer(Box::new(Bearer {
                        user,
                        voucher: source.voucher,
                        key: source.number,
                        until_unix_secs,
                        claims: None,
                    }));
                }
                Verdict::Known { .. } | Verdict::Denied => return Checked::Wrong,
                Verdict::Unknown => {}
                Verdict::Unreachable => return Checked::Not(Unchecked::Unreachable),
            }
        }
        Checked::Wrong
    }

    /// The time for which an answer of the server with this [number](Bearer::key) is remembered.
    #[must_use]
    pub fn remembers(&self, number: NonZeroU64) -> Duration {
        let source = self.sources.iter().find(|source| source.number == number);
        source.map_or(Duration::ZERO, |source| source.remembers)
    }

    /// A number that stands for the user name. All spellings with other letter cases have the same: directories over LDAP take
    /// them for one name, and each spelling would have guesses of its own.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Memory of the check, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.user.len() + self.password.len() + self.client_id.len()
    }

    /// The parts that make two questions the same, as bytes.
    pub(crate) fn parts(&self) -> [Cow<'_, [u8]>; 4] {
        let numbers = self.sources.iter().flat_map(|source| [source.number.get(), source.settings]);
        let sources: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        [
            sources.into(),
            self.user.as_bytes().into(),
            (&*self.password).into(),
            self.client_id.as_bytes().into(),
        ]
    }
}

/// The number of a user name, without regard to letter cases. Each letter is looked at alone: `str::to_lowercase` looks at the
/// letters around a sigma, and takes milliseconds for a long name of them.
fn number(user: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    for letter in user.chars().flat_map(char::to_lowercase) {
        match letter {
            'ς' => 'σ'.hash(&mut hasher),
            'ß' => ['s', 's'].into_iter().for_each(|letter| letter.hash(&mut hasher)),
            letter => letter.hash(&mut hasher),
        }
    }
    hasher.finish()
}

/// The password stays out of logs.
impl fmt::Debug for Question<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, client_id, .. } = self;
        f.debug_struct("Question").field("user", user).field("client_id", client_id).finish_non_exhaustive()
    }
}

/// The password stays out of logs.
impl fmt::Debug for ServiceCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceCheck").field("user", &self.user).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A service with one answer.
    #[derive(Debug)]
    struct Always(Verdict);

    impl UserService for Always {
        fn ask(&self, _: &Question<'_>) -> Verdict {
            self.0.clone()
        }
    }

    fn run(verdicts: &[Verdict]) -> Checked {
        let source = |(place, verdict): (usize, &Verdict)| {
            let service = Arc::new(Always(verdict.clone()));
            let place = &place.to_string();
            let settings = SourceSettings { place, number: 0, remembers: Duration::ZERO };
            UserSource::new(Voucher::Http, settings, service)
        };
        let sources: Arc<[UserSource]> = verdicts.iter().enumerate().map(source).collect();
        let question = Question { user: "frog", password: b"croak", client_id: "f1" };
        ServiceCheck::new(&sources, question).run(100)
    }

    fn known(until_unix_secs: Option<u64>) -> Verdict {
        Verdict::Known { user: "Frog".into(), until_unix_secs }
    }

    #[test]
    fn the_first_server_that_knows_the_user_decides() {
        use Verdict::{Denied, Unknown, Unreachable};
        for admitted in [&[known(None)][..], &[known(None), Denied], &[Unknown, known(None)]] {
            // The server says under which name.
            assert!(
                matches!(run(admitted), Checked::Bearer(bearer) if &*bearer.user == "Frog"),
                "{admitted:?}"
            );
        }
        for wrong in
            [&[Denied][..], &[Denied, known(None)], &[Unknown], &[Unknown, Unknown], &[Unknown, Denied]]
        {
            assert_eq!(run(wrong), Checked::Wrong, "{wrong:?}");
        }
        for none in
            [&[Unreachable][..], &[Unreachable, known(None)], &[Unknown, Unreachable], &[Unreachable, Denied]]
        {
            assert_eq!(run(none), Checked::Not(Unchecked::Unreachable), "{none:?}");
        }
    }

    #[test]
    fn spellings_with_other_letter_cases_have_one_number() {
        for same in [["Frog", "fROG"], ["ΣΟΦΟΣ", "σοφος"], ["σοφοσ", "σοφος"], ["STRASSE", "straße"]]
        {
            assert_eq!(number(same[0]), number(same[1]), "{same:?}");
        }
        assert_ne!(number("frog"), number("frogs"));
    }

    #[test]
    fn an_answer_that_is_over_lets_nobody_in() {
        let until = |secs| run(&[known(Some(secs)), known(None)]);
        assert!(matches!(until(101), Checked::Bearer(bearer) if bearer.until_unix_secs == Some(101)));
        assert_eq!(until(100), Checked::Wrong);
    }
}
