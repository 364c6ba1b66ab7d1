//! A directory that knows users, over LDAP (RFC 4511): a user who can log in to an entry there can log in here.

use std::fmt;
use std::hash::Hasher;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use auth::{Question, Verdict};
use config::Ldap;
use ldap3::{
    LdapConn, LdapConnSettings, LdapError, LdapResult, Scope, SearchOptions, dn_escape, ldap_escape,
};
use rustls::{ClientConfig, RootCertStore};

use super::{Deadline, Server, roots, secret};

/// A directory. Each question has a connection of its own, because a connection is one user's at a time.
pub(super) struct LdapService {
    url: String,
    entry: Entry,
    settings: LdapConnSettings,
    timeout: Duration,
}

/// The way to a user's entry.
enum Entry {
    /// The name of the entry, with a place for the user name.
    Named(String),
    /// A search below an entry, and the entry with its password as which the broker searches.
    Searched { base: String, filter: String, searcher: Option<(String, String)> },
}

/// The place of the user name.
const USER: &str = "{user}";

impl LdapService {
    pub(super) fn new(settings: &Ldap, contents: &mut impl Hasher) -> io::Result<Self> {
        let url = settings.url.clone().unwrap_or_default();
        let password = settings.search_password_file.as_ref();
        let password = password.map(|path| secret("search_password_file", path, contents)).transpose()?;
        let entry = match (&settings.user_dn, &settings.search_base) {
            (Some(dn), _) => Entry::Named(dn.clone()),
            (None, base) => Entry::Searched {
                base: base.clone().unwrap_or_default(),
                filter: settings.search_filter.clone(),
                searcher: settings.search_dn.clone().zip(password),
            },
        };
        let mut connection = LdapConnSettings::new().set_starttls(settings.start_tls);
        if settings.start_tls || url.starts_with("ldaps://") {
            connection = connection.set_config(Arc::new(tls(settings, contents)?));
        }
        Ok(Self { url, entry, settings: connection, timeout: settings.timeout })
    }

    /// The name of the user's entry; `None` if there is not exactly one.
    fn find(
        &self,
        connection: &mut LdapConn,
        user: &str,
        deadline: &Deadline,
    ) -> Result<Option<String>, String> {
        let (base, filter, searcher) = match &self.entry {
            Entry::Named(dn) => return Ok(Some(dn.replace(USER, &dn_escape(user)))),
            Entry::Searched { base, filter, searcher } => (base, filter, searcher),
        };
        if let Some((dn, password)) = searcher {
            let bound = connection.with_timeout(deadline.left()?).simple_bind(dn, password);
            bound
                .and_then(LdapResult::success)
                .map_err(|error| format!("the broker may not search: {error}"))?;
        }
        let options = SearchOptions::new().sizelimit(2);
        let filter = filter.replace(USER, &ldap_escape(user));
        let found = connection
            .with_search_options(options)
            .with_timeout(deadline.left()?)
            .search(base, Scope::Subtree, &filter, ["1.1"])
            .map_err(|error| error.to_string())?;
        let entries = found.0.into_iter().filter(|entry| !entry.is_ref());
        let mut names = entries.map(|entry| ldap3::SearchEntry::construct(entry).dn);
        match (found.1.rc, names.next(), names.next()) {
            (SUCCESS, Some(name), None) => Ok(Some(name)),
            (SUCCESS | SIZE_LIMIT_EXCEEDED | NO_SUCH_OBJECT, ..) => Ok(None),
            _ => Err(found.1.to_string()),
        }
    }
}

const SUCCESS: u32 = 0;
const SIZE_LIMIT_EXCEEDED: u32 = 4;
const NO_SUCH_OBJECT: u32 = 32;
/// Result codes of a bind that has reached the directory, and that it refuses: constraintViolation, invalidDNSyntax,
/// noSuchObject, inappropriateAuthentication, invalidCredentials, insufficientAccessRights and unwillingToPerform.
const DENIED: [u32; 7] = [19, 34, NO_SUCH_OBJECT, 48, 49, 50, 53];

impl Server for LdapService {
    fn url(&self) -> &str {
        &self.url
    }

    fn ask(&self, question: &Question<'_>) -> Result<Verdict, String> {
        let deadline = Deadline::after(self.timeout);
        let Ok(password) = std::str::from_utf8(question.password) else { return Ok(Verdict::Denied) };
        let settings = self.settings.clone().set_conn_timeout(deadline.left()?);
        let connection = LdapConn::with_settings(settings, &self.url);
        let mut connection = connection.map_err(|error| error.to_string())?;
        let Some(dn) = self.find(&mut connection, question.user, &deadline)? else {
            return Ok(Verdict::Unknown);
        };
        // A bind without a name is a stranger's, whatever the password is.
        if dn.is_empty() {
            return Ok(Verdict::Unknown);
        }
        let bound = connection.with_timeout(deadline.left()?).simple_bind(&dn, password);
        let bound = bound.map_err(|error: LdapError| error.to_string())?;
        drop(connection.unbind());
        match bound.rc {
            SUCCESS => Ok(Verdict::Known { until_unix_secs: None }),
            rc if DENIED.contains(&rc) => Ok(Verdict::Denied),
            _ => Err(bound.to_string()),
        }
    }
}

fn tls(settings: &Ldap, contents: &mut impl Hasher) -> io::Result<ClientConfig> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots::read(settings.ca_file.as_ref(), contents)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(config.with_root_certificates(store).with_no_client_auth())
}

/// The password stays out of logs.
impl fmt::Debug for LdapService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LdapService").field("url", &self.url).finish_non_exhaustive()
    }
}
