//! Servers elsewhere that know users, as the configuration names them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use auth::{SourceSettings, UserService, UserSource, Verdict, Voucher};
use config::{Config, HttpAuth, Ldap, Listener};
use protocol::Instruments;

use crate::access::parse;
use http::HttpService;
use ldap::LdapService;

mod http;
mod ldap;
mod resolver;

/// Shortest time between two lines of the log about the same trouble.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// The servers that a listener asks, in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Services {
    http: Option<HttpAuth>,
    ldap: Option<Ldap>,
}

/// The files that a configuration names for all servers.
pub(crate) fn paths(config: &Config) -> impl Iterator<Item = &PathBuf> {
    paths_of(Some(&config.http_auth), Some(&config.ldap))
}

fn paths_of<'a>(http: Option<&'a HttpAuth>, ldap: Option<&'a Ldap>) -> impl Iterator<Item = &'a PathBuf> {
    let http = http.into_iter().flat_map(|http| [&http.authorization_file, &http.ca_file]);
    let ldap = ldap.into_iter().flat_map(|ldap| [&ldap.search_password_file, &ldap.ca_file]);
    http.chain(ldap).flatten()
}

impl Services {
    /// The servers of a listener.
    pub(crate) fn of(listener: &Listener, http: &HttpAuth, ldap: &Ldap) -> Self {
        let http = Some(http).filter(|http| listener.http_auth && http.url.is_some());
        let ldap = Some(ldap).filter(|ldap| listener.ldap && ldap.url.is_some());
        Self { http: http.cloned(), ldap: ldap.cloned() }
    }

    /// The kinds of the servers.
    pub(crate) fn vouchers(&self) -> impl Iterator<Item = Voucher> {
        let http = self.http.as_ref().map(|_| Voucher::Http);
        http.into_iter().chain(self.ldap.as_ref().map(|_| Voucher::Ldap))
    }

    /// The files with secrets and with certificates of authorities.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        paths_of(self.http.as_ref(), self.ldap.as_ref())
    }

    /// Reads the files, and makes the servers ready to be asked. Returns also the hash of the files.
    ///
    /// # Errors
    /// A file cannot be read, or has something else in it.
    pub(crate) fn read(&self, figures: &Arc<Figures>) -> io::Result<(Arc<[UserSource]>, u64)> {
        let mut contents = DefaultHasher::new();
        let mut sources = Vec::new();
        if let Some(http) = &self.http {
            let mut files = DefaultHasher::new();
            let service = HttpService::new(http, &mut files)?;
            let HttpAuth { url, question, answer, .. } = http;
            let place = &format!("{url:?} {question:?} {answer:?}");
            let number = number(&format!("{http:?}"), &mut files, &mut contents);
            let settings = SourceSettings { place, number, remembers: http.remember };
            sources.push(UserSource::new(Voucher::Http, settings, Counted::service(service, figures)));
        }
        if let Some(ldap) = &self.ldap {
            let mut files = DefaultHasher::new();
            let service = LdapService::new(ldap, &mut files)?;
            let Ldap { url, user_dn, search_base, search_filter, user_attribute, .. } = ldap;
            let place = &format!("{url:?} {user_dn:?} {search_base:?} {search_filter:?} {user_attribute:?}");
            let number = number(&format!("{ldap:?}"), &mut files, &mut contents);
            let settings = SourceSettings { place, number, remembers: ldap.remember };
            sources.push(UserSource::new(Voucher::Ldap, settings, Counted::service(service, figures)));
        }
        Ok((sources.into(), contents.finish()))
    }
}

/// A number for the settings of a server and the files that they name, which also changes the hash of all.
fn number(settings: &str, files: &mut DefaultHasher, all: &mut DefaultHasher) -> u64 {
    settings.hash(files);
    all.write_u64(files.finish());
    files.finish()
}

/// A server, whose failures have reasons.
trait Server: std::fmt::Debug + Send + Sync {
    /// The address, for the log.
    fn url(&self) -> &str;

    /// Asks about a user name and a password.
    ///
    /// # Errors
    /// There is no answer in time, or none that can be understood. The text says why.
    fn ask(&self, question: &auth::Question<'_>) -> Result<Verdict, String>;
}

/// Values below `$SYS/broker/user_questions/`.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    answered: AtomicU64,
    failed: AtomicU64,
}

impl Instruments for Figures {
    fn read(&self, say: &mut dyn FnMut(&str, String)) {
        if self.answered.load(Relaxed) + self.failed.load(Relaxed) > 0 {
            say("user_questions/answered", self.answered.load(Relaxed).to_string());
            say("user_questions/failed", self.failed.load(Relaxed).to_string());
        }
    }
}

/// A server whose questions are counted, and whose failures are in the log.
#[derive(Debug)]
struct Counted<S> {
    server: S,
    figures: Arc<Figures>,
    trouble: Mutex<Trouble>,
}

/// The last failure of a server.
#[derive(Debug, Default)]
struct Trouble {
    /// Whether the server has failed since its last answer.
    is_failing: bool,
    /// Time of the last line of the log.
    told: Option<Instant>,
}

impl<S: Server + 'static> Counted<S> {
    fn service(server: S, figures: &Arc<Figures>) -> Arc<dyn UserService> {
        Arc::new(Self { server, figures: Arc::clone(figures), trouble: Mutex::default() })
    }
}

impl<S: Server> UserService for Counted<S> {
    fn ask(&self, question: &auth::Question<'_>) -> Verdict {
        // A fault in a library must end neither the thread nor the broker.
        let answer = catch_unwind(AssertUnwindSafe(|| self.server.ask(question)));
        let answer =
            answer.unwrap_or_else(|_| Err("the question has ended with a fault of the broker".to_owned()));
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let Trouble { is_failing, told } = &mut *trouble;
        let may_tell = told.is_none_or(|told| told.elapsed() >= TOLD_EVERY);
        let url = || config::without_query(self.server.url());
        match answer {
            Ok(verdict) => {
                self.figures.answered.fetch_add(1, Relaxed);
                if std::mem::take(is_failing) {
                    tracing::debug!(url = url(), "the server that knows users answers again");
                }
                verdict
            }
            Err(why) => {
                let failed = self.figures.failed.fetch_add(1, Relaxed) + 1;
                *is_failing = true;
                if may_tell {
                    *told = Some(Instant::now());
                    tracing::error!(
                        failed,
                        url = url(),
                        "the server that knows users does not answer as it should: {why}"
                    );
                }
                Verdict::Unreachable
            }
        }
    }
}

/// Reads a file with a secret in one line.
pub(crate) fn secret(key: &str, path: &Path, contents: &mut impl Hasher) -> io::Result<String> {
    let line = |text: &str| {
        let line = text.strip_suffix('\n').unwrap_or(text);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let is_line = !line.is_empty() && !line.contains(char::is_control);
        if is_line { Ok(line.to_owned()) } else { Err("this is not one line of text") }
    };
    parse(key, path, contents, line)
}

/// The time that is left of a question.
struct Deadline(Instant);

impl Deadline {
    const OVER: &str = "there was no answer in time";

    fn after(timeout: Duration) -> Self {
        Self(Instant::now() + timeout)
    }

    fn left(&self) -> Result<Duration, String> {
        let left = self.0.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(Self::OVER.to_owned()) } else { Ok(left) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with a fault.
    #[derive(Debug)]
    struct Faulty;

    impl Server for Faulty {
        fn url(&self) -> &'static str {
            "http://pond.example"
        }

        fn ask(&self, _: &auth::Question<'_>) -> Result<Verdict, String> {
            panic!("an odd byte")
        }
    }

    #[test]
    fn a_fault_while_a_server_is_asked_ends_the_question_alone() {
        let figures = Arc::default();
        let service = Counted::service(Faulty, &figures);
        let question = auth::Question { user: "frog", password: b"croak", client_id: "f1" };
        assert_eq!([(); 2].map(|()| service.ask(&question)), [Verdict::Unreachable, Verdict::Unreachable]);
        assert_eq!((figures.answered.load(Relaxed), figures.failed.load(Relaxed)), (0, 2));
    }
}
