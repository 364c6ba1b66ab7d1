//! A directory that knows users, over LDAP (RFC 4511): a user who can log in to an entry there can log in here.
//!
//! ```text
//!   connect ─► StartTLS, if asked for ─► search for the entry, unless its name is known ─► bind as the entry ─► verdict
//! ```

use std::fmt;
use std::hash::Hasher;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::ldap::{DnTemplate, Entry, Filter, Outcome, Search, code};
use auth::{Question, Verdict};
use config::Ldap;
use rustls::{ClientConfig, RootCertStore};
use unicode_normalization::is_nfkc;

use super::{Deadline, Server, secret};
use crate::roots;
use connection::Connection;
use place::Place;

mod connection;
mod place;

/// A directory. Each question has a connection of its own, because a connection is one user's at a time.
pub(super) struct LdapService {
    place: Place,
    finding: Finding,
    /// `None`: without TLS.
    tls: Option<Arc<ClientConfig>>,
    timeout: Duration,
}

/// The way to a user's entry.
enum Finding {
    /// The name of the entry, with a place for the user name.
    ByName(DnTemplate),
    /// A search below an entry, with the attribute that has the user's name.
    BySearch { base: String, filter: Filter, attribute: String, searcher: Option<(String, String)> },
}

/// A user's entry: its name, and the name that the user has here.
struct Found {
    entry: String,
    user: String,
}

/// Maximum length of a user name that a directory returns, in bytes.
const USER_BYTES_MAX: usize = 1_024;

impl LdapService {
    pub(super) fn new(settings: &Ldap, contents: &mut impl Hasher) -> io::Result<Self> {
        let password = settings.search_password_file.as_ref();
        let password = password.map(|path| secret("search_password_file", path, contents)).transpose()?;
        let finding = match (&settings.user_dn, &settings.search_base) {
            (Some(dn), _) => Finding::ByName(DnTemplate::parse(dn).map_err(io::Error::other)?),
            (None, base) => Finding::BySearch {
                base: base.clone().unwrap_or_default(),
                filter: Filter::parse(&settings.search_filter).map_err(io::Error::other)?,
                attribute: settings.user_attribute.clone(),
                searcher: settings.search_dn.clone().zip(password),
            },
        };
        let place = Place::of(settings.url.as_deref().unwrap_or_default(), settings.start_tls)?;
        let tls = if place.has_tls() { Some(Arc::new(tls(settings, contents)?)) } else { None };
        Ok(Self { place, finding, tls, timeout: settings.timeout })
    }

    /// Finds the entry of a user. `None` if there is not exactly one.
    fn find(&self, connection: &mut Connection, user: &str) -> Result<Option<Found>, String> {
        let (base, filter, attribute, searcher) = match &self.finding {
            Finding::ByName(dn) => {
                let found = || Found { entry: dn.fill(user), user: user.to_ascii_lowercase() };
                return Ok((is_plain(user) && user.is_ascii()).then(found));
            }
            Finding::BySearch { .. } if !is_plain(user) => return Ok(None),
            Finding::BySearch { base, filter, attribute, searcher } => (base, filter, attribute, searcher),
        };
        if let Some((name, password)) = searcher {
            let bound = connection.bind(name, password)?;
            if bound.code != code::SUCCESS {
                return Err(format!("`search_dn` cannot log in: {bound}"));
            }
        }
        let secs_max = u32::try_from(self.timeout.as_secs().max(1)).unwrap_or(u32::MAX);
        let search = Search { base, filter, user, attribute, entries_max: 2, secs_max };
        let (mut entries, end) = connection.search(&search)?;
        match (entries.pop(), entries.pop(), end) {
            (Some(_), Some(_), _) | (_, _, Some(Outcome { code: code::SIZE_LIMIT_EXCEEDED, .. })) => Ok(None),
            (entry, None, Some(Outcome { code: code::SUCCESS, .. })) => {
                entry.map(|entry| named(entry, attribute)).transpose()
            }
            (_, _, Some(end)) => Err(format!("the search has failed: {end}")),
            (_, _, None) => Err("the search has no end".to_owned()),
        }
    }
}

/// The name of the user of an entry.
fn named(entry: Entry, attribute: &str) -> Result<Found, String> {
    let mut values = entry.values(attribute);
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(format!("the entry {:?} has not exactly one value of `{attribute}`", entry.name));
    };
    let user = std::str::from_utf8(value)
        .ok()
        .filter(|user| !user.is_empty() && user.len() <= USER_BYTES_MAX && !user.contains(char::is_control))
        .map(str::to_owned);
    let user =
        user.ok_or_else(|| format!("the value of `{attribute}` in the entry {:?} is no name", entry.name))?;
    drop(values);
    Ok(Found { entry: entry.name, user })
}

/// Whether a name has one spelling in a directory, apart from the case of its letters: each other spelling would have guesses of
/// its own. Directories ignore blanks at the ends and in a row, and characters that nobody sees. They take many characters of
/// Unicode for others, as NFKC does (RFC 4518 section 2.3).
fn is_plain(user: &str) -> bool {
    let is_seen = |letter: char| letter == ' ' || letter.is_ascii_graphic() || letter.is_alphanumeric();
    user.chars().all(is_seen) && user.trim() == user && !user.contains("  ") && is_nfkc(user)
}

/// Results of a bind that are about the user: everything else is about the directory.
const DENIED: [u32; 5] = [
    code::CONSTRAINT_VIOLATION,
    code::INAPPROPRIATE_AUTHENTICATION,
    code::INVALID_CREDENTIALS,
    code::INSUFFICIENT_ACCESS_RIGHTS,
    code::UNWILLING_TO_PERFORM,
];

impl Server for LdapService {
    fn url(&self) -> &str {
        self.place.url()
    }

    fn ask(&self, question: &Question<'_>) -> Result<Verdict, String> {
        let Ok(password) = std::str::from_utf8(question.password) else { return Ok(Verdict::Denied) };
        let mut connection = Connection::open(&self.place, self.tls.as_ref(), Deadline::after(self.timeout))?;
        let Some(found) = self.find(&mut connection, question.user)? else { return Ok(Verdict::Unknown) };
        // A bind without a name or without a password is a stranger's, and succeeds.
        if found.entry.is_empty() || password.is_empty() {
            return Ok(Verdict::Unknown);
        }
        let bound = connection.bind(&found.entry, password)?;
        connection.close();
        match bound.code {
            code::SUCCESS => Ok(Verdict::Known { user: found.user.into(), until_unix_secs: None }),
            denied if DENIED.contains(&denied) => Ok(Verdict::Denied),
            _ => Err(format!("the login has failed: {bound}")),
        }
    }
}

fn tls(settings: &Ldap, contents: &mut impl Hasher) -> io::Result<ClientConfig> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots::read(settings.ca_file.as_deref(), contents)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(config.with_root_certificates(store).with_no_client_auth())
}

/// The password of the searcher stays out of logs.
impl fmt::Debug for LdapService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LdapService").field("url", &self.place.url()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_spelling() {
        for plain in ["frog", "toad, the second", "f*", "a=b", "FROG", "fr\u{f6}sch"] {
            assert!(is_plain(plain), "{plain:?}");
        }
        for odd in [
            " frog",
            "frog ",
            "a  b",
            "fro\u{308}sch",
            "\u{ff46}rog",
            "\u{fb01}sh",
            "frog\u{ad}",
            "fr\0g",
            "a\tb",
        ] {
            assert!(!is_plain(odd), "{odd:?}");
        }
    }
}
