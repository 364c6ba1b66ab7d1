//! Password files and access control lists of all listeners, which are read again while the broker runs.
//!
//! SIGHUP makes the broker read them, and a file that has changed and then stayed as it is for one look. If one of them has
//! a mistake, all of them stay as they were.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use auth::{Access, DynamicSecurity, Permissions, Realms, Users};
use base::{Realm, Tenant};
use config::{CertificateIdentity, Listener};
use protocol::Instruments;

use crate::stamp::Stamp;

/// The files of one realm, and the tenant to which its clients belong.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Files {
    passwords: Option<PathBuf>,
    rules: Option<PathBuf>,
    /// The broker writes this file itself. It is read again with the others, and not looked at.
    dynamic: Option<PathBuf>,
    tenant: Option<Arc<Tenant>>,
}

impl Files {
    fn of(listener: &Listener) -> Self {
        let (passwords, rules) = (listener.password_file.clone(), listener.acl_file.clone());
        let tenant = Tenant {
            users: place_of_users(listener).into_boxed_str(),
            mount: listener.mount_point.as_deref().unwrap_or_default().into(),
        };
        let tenant = (tenant != Tenant::default()).then(|| Arc::new(tenant));
        let dynamic = listener.dynamic_security_file.clone();
        Self { passwords, rules, dynamic, tenant }
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.passwords.iter().chain(&self.rules)
    }

    /// The name under which records know the rules.
    fn name(&self) -> Box<str> {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        let names: Vec<String> = self.rules.iter().chain(&self.dynamic).map(text).collect();
        names.join("\n").into()
    }
}

/// The name of the place that says which user a name means: the next process gives it the same name.
fn place_of_users(listener: &Listener) -> String {
    if let Some(path) = listener.password_file.as_ref().or(listener.dynamic_security_file.as_ref()) {
        return path.to_string_lossy().into_owned();
    }
    if listener.client_certificate_identity == CertificateIdentity::None {
        return String::new();
    }
    let authorities = listener.tls_client_ca.iter().map(|path| path.to_string_lossy());
    format!("ca:{}", authorities.collect::<Vec<_>>().join(":"))
}

/// The files of all listeners.
pub(crate) struct AccessFiles {
    /// By the number of the realm.
    realms: Vec<Files>,
    /// The stamps of the last look.
    seen: Vec<Option<Stamp>>,
    /// The stamps have changed, and nothing has been read since.
    is_pending: bool,
    /// Hash of all contents that are in use.
    contents: u64,
    figures: Arc<Figures>,
}

/// Values below `$SYS/broker/access/`.
#[derive(Debug, Default)]
struct Figures {
    read: AtomicU64,
    refused: AtomicU64,
    users: AtomicU64,
}

impl Instruments for Figures {
    fn read(&self, say: &mut dyn FnMut(&str, String)) {
        let mut tell = |topic: &str, value: &AtomicU64| {
            say(&format!("access/{topic}"), value.load(Relaxed).to_string());
        };
        tell("read_again", &self.read);
        tell("refused", &self.refused);
        tell("users", &self.users);
    }
}

impl AccessFiles {
    /// Reads the files of all listeners.
    ///
    /// # Errors
    /// A file cannot be read, or has a mistake. The text names the file and the line.
    pub(crate) fn open(listeners: &[Listener]) -> io::Result<(Self, Realms)> {
        let mut realms: Vec<Files> = Vec::new();
        for files in listeners.iter().map(Files::of) {
            if !realms.contains(&files) {
                realms.push(files);
            }
        }
        // A file that changes while it is read is found by the first look.
        let seen = stamps(&realms);
        let (read, contents) = read(&realms)?;
        let files = Self { realms, seen, is_pending: false, contents, figures: Arc::default() };
        files.count_users(&read);
        Ok((files, read))
    }

    /// The realm of a listener.
    pub(crate) fn realm(&self, listener: &Listener) -> Realm {
        let files = Files::of(listener);
        let number = self.realms.iter().position(|known| *known == files);
        let number = number.and_then(|number| u16::try_from(number).ok());
        Realm(number.expect("each listener has a realm, and there are at most 255"))
    }

    /// Whether there is any file.
    pub(crate) fn is_empty(&self) -> bool {
        self.realms.iter().all(|files| files.paths().next().is_none() && files.dynamic.is_none())
    }

    /// The file of dynamic security, if there is one.
    pub(crate) fn dynamic_security(&self) -> Option<&PathBuf> {
        self.realms.iter().find_map(|files| files.dynamic.as_ref())
    }

    /// The values for `$SYS`, if there is any file.
    pub(crate) fn instruments(&self) -> Option<Arc<dyn Instruments>> {
        (!self.is_empty()).then(|| Arc::clone(&self.figures) as Arc<dyn Instruments>)
    }

    /// Looks at the files once. Returns new users and rules if files have changed before the last look, and not since.
    pub(crate) fn look(&mut self) -> Option<Realms> {
        let stamps = stamps(&self.realms);
        let is_still = stamps == self.seen;
        self.seen = stamps;
        self.is_pending |= !is_still;
        if is_still && self.is_pending { self.read_again() } else { None }
    }

    /// Reads all files, as SIGHUP asks for. Returns new users and rules, unless there is a mistake or nothing has changed.
    pub(crate) fn read_again(&mut self) -> Option<Realms> {
        self.seen = stamps(&self.realms);
        self.is_pending = false;
        if self.is_empty() {
            return None;
        }
        match read(&self.realms) {
            Ok((_, contents)) if contents == self.contents => {
                tracing::info!("users and rules are as before");
                None
            }
            Ok((realms, contents)) => {
                self.contents = contents;
                self.figures.read.fetch_add(1, Relaxed);
                self.count_users(&realms);
                Some(realms)
            }
            Err(error) => {
                self.figures.refused.fetch_add(1, Relaxed);
                tracing::error!(%error, "the new users and rules are refused, and the earlier ones stay in use");
                None
            }
        }
    }

    /// Writes a line when new users and rules are in use.
    pub(crate) fn tell_in_use(&self) {
        tracing::info!(users = self.figures.users.load(Relaxed), "new users and rules are in use");
    }

    /// Counts the users for `$SYS`.
    pub(crate) fn count_users(&self, realms: &Realms) {
        let numbers = (0..=u16::MAX).zip(&self.realms);
        let users = numbers.filter_map(|(number, _)| realms.access(Realm(number))?.users()).max();
        self.figures.users.store(users.unwrap_or(0) as u64, Relaxed);
    }
}

fn stamps(realms: &[Files]) -> Vec<Option<Stamp>> {
    realms.iter().flat_map(Files::paths).map(|path| Stamp::of(path)).collect()
}

/// Reads the files of all realms. Returns also the hash of their contents.
fn read(realms: &[Files]) -> io::Result<(Realms, u64)> {
    let mut contents = DefaultHasher::new();
    let mut known: Vec<(&PathBuf, Users)> = Vec::new();
    let mut all = Vec::new();
    let dynamic = realms.iter().find_map(|files| files.dynamic.as_ref());
    let dynamic = dynamic
        .map(|path| {
            parse("dynamic_security_file", path, &mut contents, DynamicSecurity::parse).map_err(init_hint)
        })
        .transpose()?
        .map(Arc::new);
    for files in realms {
        let Files { passwords, rules, .. } = files;
        let users = match passwords {
            None => None,
            Some(path) => match known.iter().find(|(known, _)| *known == path) {
                Some((_, users)) => Some(users.clone()),
                None => {
                    let users = parse("password_file", path, &mut contents, Users::of_file)?;
                    known.push((path, users.clone()));
                    Some(users)
                }
            },
        };
        let permissions = rules.as_ref();
        let permissions = permissions
            .map(|path| parse("acl_file", path, &mut contents, Permissions::of_mosquitto))
            .transpose()?;
        let access = Access::new(users, permissions);
        let access = match dynamic.as_ref().filter(|_| files.dynamic.is_some()) {
            Some(dynamic) => access.with_dynamic_security(Arc::clone(dynamic)),
            None => access,
        };
        all.push((files.name(), Arc::new(access)));
    }
    let tenants = realms.iter().map(|files| files.tenant.clone()).collect();
    Ok((Realms::new(all).with_tenants(tenants), contents.finish()))
}

/// Says how to make the first file of dynamic security.
fn init_hint(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::NotFound {
        return error;
    }
    io::Error::new(error.kind(), format!("{error}; `mosquitto_ctrl dynsec init FILE NAME` makes one"))
}

/// Reads a file that `parse` understands. An error names the key, the file and the line.
pub(crate) fn parse<T, E: std::fmt::Display>(
    key: &str,
    path: &Path,
    contents: &mut impl Hasher,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> io::Result<T> {
    let place = || format!("`{key}`: {}", path.display());
    let bytes =
        fs::read(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", place())))?;
    bytes.hash(contents);
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", place()));
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        invalid(format!("line {line}: this is not UTF-8"))
    })?;
    parse(&text).map_err(|error| invalid(error.to_string()))
}
