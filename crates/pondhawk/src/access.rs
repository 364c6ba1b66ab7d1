//! Password files and access control lists of all listeners, which are read again while the broker runs.
//!
//! SIGHUP makes the broker read them, and a file that has changed and then stayed as it is for one look. If one of them has
//! a mistake, all of them stay as they were.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use auth::{Access, DynamicSecurity, Permissions, Realms, Secret, TokenKeys, Users, Voucher};
use base::{Realm, Tenant};
use config::{CertificateIdentity, Config, Listener, UnixIdentity, parse_rules};
use mosquitto::read_regular;
use protocol::Instruments;

use crate::jwks::Jwks;
use crate::services::{self, Services};
use crate::stamp::Stamp;
use crate::tokens::{self, TokenSource};
use crate::{login_names, login_secret};

/// The files of one realm, and the tenant to which its clients belong.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Files {
    passwords: Option<PathBuf>,
    /// Rules in Mosquitto's language.
    acl: Option<PathBuf>,
    /// Our own rules, which take the place of the others.
    rules: Option<PathBuf>,
    /// The broker writes this file itself. It is read again with the others, and not looked at.
    dynamic: Option<PathBuf>,
    /// The source of tokens, which are passwords too.
    tokens: Option<Arc<TokenSource>>,
    /// The servers elsewhere that know users.
    services: Services,
    /// Whether processes have the names of their users.
    has_login_names: bool,
    tenant: Option<Arc<Tenant>>,
}

impl Files {
    fn of(listener: &Listener, config: &Config, tokens: Option<&Arc<TokenSource>>) -> Self {
        let tokens = tokens.filter(|_| listener.jwt).cloned();
        let services = Services::of(listener, &config.http_auth, &config.ldap);
        let (passwords, acl) = (listener.password_file.clone(), listener.acl_file.clone());
        let users = place_of_users(listener, tokens.as_deref(), &services);
        let tenant = Tenant::new(users, listener.mount_point.as_deref().unwrap_or_default(), "");
        let tenant = (tenant != Tenant::default()).then(|| Arc::new(tenant));
        let (rules, dynamic) = (listener.rules_file.clone(), listener.dynamic_security_file.clone());
        let has_login_names = listener.unix_identity == UnixIdentity::User;
        Self { passwords, acl, rules, dynamic, tokens, services, has_login_names, tenant }
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        let keys = self.tokens.iter().filter_map(|tokens| tokens.key_file.as_ref());
        let files = self.passwords.iter().chain(&self.acl).chain(&self.rules);
        files.chain(keys).chain(self.services.paths())
    }

    /// The tenants of clients for whom somebody else vouches, and who says who they are.
    fn bearers(&self) -> Vec<(Voucher, Arc<Tenant>)> {
        let mount = self.tenant.as_ref().map(|tenant| tenant.mount.clone()).unwrap_or_default();
        let tokens = self.tokens.iter().map(|source| (Voucher::Token, source.place_of_users()));
        let processes = self.has_login_names.then_some(Voucher::Process);
        let others = self.services.vouchers().chain(processes);
        let others = others.map(|voucher| (voucher, voucher.prefix().to_owned()));
        let tenant =
            |(voucher, users): (Voucher, String)| (voucher, Arc::new(Tenant::new(users, mount.clone(), "")));
        tokens.chain(others).map(tenant).collect()
    }

    /// The name under which records know the rules.
    fn name(&self) -> Box<str> {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        let names: Vec<String> = self.acl.iter().chain(&self.rules).chain(&self.dynamic).map(text).collect();
        names.join("\n").into()
    }
}

/// The files of users and rules of a listener.
pub(crate) fn paths(listener: &Listener) -> impl Iterator<Item = &PathBuf> {
    let Listener { password_file, acl_file, rules_file, dynamic_security_file, .. } = listener;
    password_file.iter().chain(acl_file).chain(rules_file).chain(dynamic_security_file)
}

/// The name of the place that says which user a name means: the next process gives it the same name.
fn place_of_users(listener: &Listener, tokens: Option<&TokenSource>, services: &Services) -> String {
    if let Some(path) = listener.password_file.as_ref().or(listener.dynamic_security_file.as_ref()) {
        return path.to_string_lossy().into_owned();
    }
    if listener.client_certificate_identity == CertificateIdentity::None {
        if listener.unix_identity == UnixIdentity::User {
            return Voucher::Process.prefix().to_owned();
        }
        let service = || services.vouchers().next().map(|voucher| voucher.prefix().to_owned());
        return tokens.map(TokenSource::place_of_users).or_else(service).unwrap_or_default();
    }
    let authorities = listener.tls_client_ca.iter().map(|path| path.to_string_lossy());
    format!("ca:{}", authorities.collect::<Vec<_>>().join(":"))
}

/// Maximum time of the start that waits for keys of tokens.
const FIRST_KEYS: Duration = Duration::from_secs(2);

/// Maximum number of realms in the life of a process. Each reload may add some, because a realm keeps its number for sessions
/// that know it.
const REALMS_MAX: usize = 4_096;

/// A realm, by its number.
#[derive(Debug, Clone)]
struct Place {
    files: Files,
    /// The users and rules that were read last.
    access: Arc<Access>,
    /// Hash of their contents, without those of dynamic security.
    contents: u64,
    /// Hash of the keys of tokens.
    token_contents: u64,
    /// Hash of the files of servers elsewhere.
    service_contents: u64,
    /// Whether a listener has the realm. The rules of another realm hold for its sessions as they were read last.
    is_used: bool,
}

/// The files of all listeners.
pub(crate) struct AccessFiles {
    /// By the number of the realm.
    realms: Vec<Place>,
    /// Hash of the file of dynamic security that was read last.
    dynamic_contents: u64,
    /// The stamps of the last look.
    seen: Vec<Option<Stamp>>,
    /// The stamps have changed, and nothing has been read since.
    is_pending: bool,
    jwks: Jwks,
    /// The secret for names that are no users.
    secret: Secret,
    /// The fetched keys of tokens that were read last.
    keys: Option<Arc<TokenKeys>>,
    figures: Arc<Figures>,
    questions: Arc<services::Figures>,
}

/// Values below `$SYS/broker/access/`.
#[derive(Debug, Default)]
struct Figures {
    /// Whether there is any file.
    has_files: AtomicBool,
    read: AtomicU64,
    refused: AtomicU64,
    users: AtomicU64,
}

impl Instruments for Figures {
    fn read(&self, say: &mut dyn FnMut(&str, String)) {
        if self.has_files.load(Relaxed) {
            say("access/users", self.users.load(Relaxed).to_string());
            say("access/read_again", self.read.load(Relaxed).to_string());
            say("access/refused", self.refused.load(Relaxed).to_string());
        }
    }
}

/// Users and rules for the listeners of another configuration, which are not in use yet.
pub(crate) struct NextAccess {
    realms: Vec<Place>,
    of_listeners: Vec<Realm>,
    dynamic_contents: u64,
    seen: Vec<Option<Stamp>>,
}

impl NextAccess {
    /// The realm of a listener, by its place in the configuration.
    pub(crate) fn realm(&self, listener: usize) -> Realm {
        self.of_listeners[listener]
    }
}

impl AccessFiles {
    /// A list without realms and files.
    fn new() -> Self {
        Self {
            realms: Vec::new(),
            dynamic_contents: 0,
            seen: Vec::new(),
            is_pending: false,
            jwks: Jwks::new(),
            secret: Secret::default(),
            keys: None,
            figures: Arc::default(),
            questions: Arc::default(),
        }
    }

    /// Reads the files of all listeners. Returns also the realm of each listener.
    ///
    /// # Errors
    /// A file cannot be read, or has a mistake. The text names the file and the line.
    pub(crate) fn open(config: &Config) -> io::Result<(Self, Vec<Realm>)> {
        Self::new().read_first(config)
    }

    /// The same with the keys of tokens that are to be fetched. They come later if the issuer is slow, and are fetched again
    /// from then on.
    ///
    /// # Errors
    /// As [`open`](Self::open), or the system refuses a thread.
    pub(crate) fn open_and_fetch(config: &Config) -> io::Result<(Self, Vec<Realm>)> {
        let files = Self::new();
        files.jwks.want(tokens::key_place(&config.jwt))?;
        files.jwks.await_first(FIRST_KEYS);
        files.read_first(config)
    }

    /// Uses the secret of the data directory, or one for the life of this process.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn use_secret(&mut self, directory: Option<&Path>) -> io::Result<()> {
        let of_directory = directory.map(login_secret::of).transpose().unwrap_or_else(|error| {
            tracing::warn!(
                %error,
                "no secret for logins can be kept: whoever asks before and after a restart can tell which names are users"
            );
            None
        });
        self.secret = of_directory.map_or_else(login_secret::generate, Ok)?;
        for place in &mut self.realms {
            place.access = Arc::new(Access::clone(&place.access).with_secret(self.secret));
        }
        Ok(())
    }

    fn read_first(mut self, config: &Config) -> io::Result<(Self, Vec<Realm>)> {
        let next = self.prepare(&[], config, &vec![None; config.listeners.len()])?;
        let of_listeners = next.of_listeners.clone();
        self.use_next(next);
        self.keys = self.fetched_keys();
        Ok((self, of_listeners))
    }

    /// Reads the files of the listeners of another configuration. `before` has the realms of the former listeners, and `former`
    /// the place of each listener among those.
    ///
    /// A realm keeps its number if all its listeners change to the same files. The users of their connections are then looked
    /// for in the new files.
    ///
    /// # Errors
    /// As [`open`](Self::open). A file that may not be read any more, and that is in use, is no error.
    pub(crate) fn prepare(
        &self,
        before: &[Realm],
        config: &Config,
        former: &[Option<usize>],
    ) -> io::Result<NextAccess> {
        let source = TokenSource::of(&config.jwt);
        let files = config.listeners.iter().map(|listener| Files::of(listener, config, source.as_ref()));
        let (mut realms, of_listeners) = assign(&self.realms, before, &files.collect::<Vec<Files>>(), former);
        if realms.len() > REALMS_MAX {
            let text =
                format!("password files and rules were changed {REALMS_MAX} times: more needs a restart");
            return Err(io::Error::other(text));
        }
        self.check_dynamic_security(&realms)?;
        // A file that changes while it is read is found by the first look.
        let seen = stamps(&realms);
        let dynamic_contents = self.read(&mut realms)?;
        Ok(NextAccess { realms, of_listeners, dynamic_contents, seen })
    }

    /// The thread that writes the file of dynamic security has one for its life. A listener without the rules that it names
    /// would be open.
    fn check_dynamic_security(&self, realms: &[Place]) -> io::Result<()> {
        let mut wanted =
            realms.iter().filter(|place| place.is_used).filter_map(|place| place.files.dynamic.as_ref());
        let in_force = self.dynamic_security();
        match wanted.find(|wanted| Some(*wanted) != in_force && !self.realms.is_empty()) {
            None => Ok(()),
            Some(path) => Err(io::Error::other(format!(
                "`dynamic_security_file`: {}: another file than before needs a restart",
                wire::Shown(path.display())
            ))),
        }
    }

    /// Takes over files that were read. Returns new users and rules, unless they are as before.
    pub(crate) fn use_next(&mut self, next: NextAccess) -> Option<Realms> {
        let NextAccess { realms, dynamic_contents, seen, .. } = next;
        let has_files = realms.iter().any(Place::has_files);
        let is_same = |(new, old): (&Place, &Place)| {
            new.files == old.files
                && (new.contents, new.token_contents) == (old.contents, old.token_contents)
                && new.service_contents == old.service_contents
                && new.is_used == old.is_used
        };
        let is_other = dynamic_contents != self.dynamic_contents
            || realms.len() != self.realms.len()
            || !realms.iter().zip(&self.realms).all(is_same);
        (self.realms, self.dynamic_contents) = (realms, dynamic_contents);
        (self.seen, self.is_pending) = (seen, false);
        self.figures.has_files.store(has_files, Relaxed);
        self.count_users();
        if !is_other {
            if has_files {
                tracing::info!("users and rules are as before");
            }
            return None;
        }
        Some(self.current())
    }

    /// The users and rules that were read last.
    pub(crate) fn current(&self) -> Realms {
        let all = self.realms.iter().map(|place| (place.files.name(), Arc::clone(&place.access)));
        let tenants = self.realms.iter().map(|place| place.files.tenant.clone());
        let former = self.realms.iter().map(|place| !place.is_used);
        let bearers = self.realms.iter().map(|place| place.files.bearers());
        let realms =
            Realms::new(all.collect()).with_tenants(tenants.collect()).with_bearers(bearers.collect());
        realms.with_former(former.collect())
    }

    /// Whether there is any file.
    pub(crate) fn is_empty(&self) -> bool {
        !self.realms.iter().any(Place::has_files)
    }

    /// The file of dynamic security, if there is one.
    pub(crate) fn dynamic_security(&self) -> Option<&PathBuf> {
        self.realms.iter().find_map(|place| place.files.dynamic.as_ref())
    }

    /// Takes over dynamic security that commands have changed.
    pub(crate) fn use_dynamic_security(&mut self, realms: &Realms) {
        if let Some(dynamic) = realms.dynamic_security() {
            self.realms.iter_mut().for_each(|place| place.use_dynamic_security(dynamic));
        }
        self.count_users();
    }

    /// The values for `$SYS`.
    pub(crate) fn instruments(&self) -> [Arc<dyn Instruments>; 3] {
        let (figures, questions) = (Arc::clone(&self.figures), Arc::clone(&self.questions));
        [figures as Arc<dyn Instruments>, questions as Arc<dyn Instruments>, self.jwks.instruments()]
    }

    /// Fetches the keys of tokens from the place in the configuration from now on.
    pub(crate) fn fetch_keys(&self, config: &Config) {
        if let Err(error) = self.jwks.want(tokens::key_place(&config.jwt)) {
            tracing::error!(%error, "the keys of tokens are not fetched");
        }
    }

    /// The fetched keys of tokens. All listeners with tokens have the same.
    fn fetched_keys(&self) -> Option<Arc<TokenKeys>> {
        let mut used = self.realms.iter().filter(|place| place.is_used);
        used.find_map(|place| place.files.tokens.as_ref())?.fetched(&self.jwks)
    }

    /// Looks at the files once. Returns new users and rules if files have changed before the last look, and not since.
    pub(crate) fn look(&mut self) -> Option<Realms> {
        let stamps = stamps(&self.realms);
        let is_still = stamps == self.seen;
        self.seen = stamps;
        self.is_pending |= !is_still;
        let keys = self.fetched_keys();
        self.is_pending |= keys != self.keys;
        self.keys = keys;
        if is_still && self.is_pending { self.read_again() } else { None }
    }

    /// Reads all files. Returns new users and rules, unless there is a mistake or nothing has changed.
    fn read_again(&mut self) -> Option<Realms> {
        let mut realms = self.realms.clone();
        let (seen, of_listeners) = (stamps(&realms), Vec::new());
        self.is_pending = false;
        let dynamic_contents = self.read(&mut realms).map_err(|error| self.refuse(&error)).ok()?;
        self.use_next(NextAccess { realms, of_listeners, dynamic_contents, seen })
    }

    /// Reads the files of all realms that listeners have. Returns the hash of the file of dynamic security.
    ///
    /// After `user`, files of the superuser may not be readable any more. Those that are in use stay as they were.
    fn read(&self, realms: &mut [Place]) -> io::Result<u64> {
        let dynamic = self.read_dynamic_security(realms)?;
        let mut known: Vec<(PathBuf, Users, u64)> = Vec::new();
        for (number, place) in realms.iter_mut().enumerate().filter(|(_, place)| place.is_used) {
            let is_current = self.realms.get(number).is_some_and(|current| current.files == place.files);
            let keep = |error: &io::Error, what: &str| {
                let may_stay = is_current && error.kind() == io::ErrorKind::PermissionDenied;
                if may_stay {
                    tracing::warn!(%error, "{what} stay as they were read at the start");
                }
                may_stay
            };
            let (access, contents) = read_one(&place.files, &mut known).or_else(|error| {
                let current = || (Access::clone(&place.access), place.contents);
                if keep(&error, "users and rules") { Ok(current()) } else { Err(error) }
            })?;
            // Keys that an issuer has removed must not stay because of another file.
            let tokens = place.files.tokens.as_ref().map(|source| source.read(&self.jwks)).transpose();
            let tokens =
                tokens.map(|read| read.map_or((None, 0), |(tokens, hash)| (Some(Arc::new(tokens)), hash)));
            let (tokens, token_contents) = tokens.or_else(|error| {
                let current = || (place.access.tokens().cloned(), place.token_contents);
                if keep(&error, "keys of tokens") { Ok(current()) } else { Err(error) }
            })?;
            let services = place.files.services.read(&self.questions);
            let (services, service_contents) = services.or_else(|error| {
                let current = || (Arc::clone(place.access.services()), place.service_contents);
                if keep(&error, "servers that know users") { Ok(current()) } else { Err(error) }
            })?;
            let login_names = place.files.has_login_names.then(login_names::of_system);
            let access = access.with_tokens(tokens).with_services(services).with_login_names(login_names);
            let access = access.with_secret(self.secret);
            let own = dynamic.as_ref().filter(|_| place.files.dynamic.is_some());
            let access = match own {
                Some((dynamic, _)) => access.with_dynamic_security(Arc::clone(dynamic)),
                None => access,
            };
            place.access = Arc::new(access);
            (place.contents, place.token_contents) = (contents, token_contents);
            place.service_contents = service_contents;
        }
        let Some((dynamic, contents)) = dynamic else { return Ok(self.dynamic_contents) };
        realms.iter_mut().for_each(|place| place.use_dynamic_security(&dynamic));
        Ok(contents)
    }

    /// Reads the file of dynamic security, if a listener has one. Returns also its hash.
    fn read_dynamic_security(&self, realms: &[Place]) -> io::Result<Option<(Arc<DynamicSecurity>, u64)>> {
        let mut used = realms.iter().filter(|place| place.is_used);
        let Some(path) = used.find_map(|place| place.files.dynamic.as_ref()) else { return Ok(None) };
        let mut contents = DefaultHasher::new();
        match parse("dynamic_security_file", path, &mut contents, DynamicSecurity::parse) {
            Ok(dynamic) => Ok(Some((Arc::new(dynamic), contents.finish()))),
            Err(error) => {
                let mut current =
                    self.realms.iter().filter(|place| place.files.dynamic.as_ref() == Some(path));
                let current = current.find_map(|place| place.access.dynamic_security());
                match current.filter(|_| error.kind() == io::ErrorKind::PermissionDenied) {
                    Some(current) => {
                        tracing::warn!(%error, "dynamic security stays as it is");
                        Ok(Some((Arc::clone(current), self.dynamic_contents)))
                    }
                    None => Err(init_hint(error)),
                }
            }
        }
    }

    /// Notes that new files have a mistake.
    pub(crate) fn refuse(&self, error: &io::Error) {
        self.figures.refused.fetch_add(1, Relaxed);
        tracing::error!(%error, "the new users and rules are refused, and the earlier ones stay in use");
    }

    /// Writes a line when new users and rules are in use.
    pub(crate) fn tell_in_use(&self) {
        self.figures.read.fetch_add(1, Relaxed);
        tracing::info!(users = self.figures.users.load(Relaxed), "new users and rules are in use");
    }

    fn count_users(&self) {
        let used = self.realms.iter().filter(|place| place.is_used);
        let users = used.filter_map(|place| place.access.users()).max();
        self.figures.users.store(users.unwrap_or(0) as u64, Relaxed);
    }
}

impl Place {
    fn has_files(&self) -> bool {
        let Files { dynamic, tokens, services, .. } = &self.files;
        let has_others = dynamic.is_some() || tokens.is_some() || services.vouchers().next().is_some();
        self.is_used && (has_others || self.files.paths().next().is_some())
    }

    /// Replaces dynamic security, if the realm has some.
    fn use_dynamic_security(&mut self, dynamic: &Arc<DynamicSecurity>) {
        if self.access.dynamic_security().is_some() {
            self.access = Arc::new(self.access.with_dynamic_security(Arc::clone(dynamic)));
        }
    }
}

/// The realms of another configuration, and the number of each listener's.
fn assign(
    current: &[Place],
    before: &[Realm],
    files: &[Files],
    former: &[Option<usize>],
) -> (Vec<Place>, Vec<Realm>) {
    let mut realms = current.to_vec();
    realms.iter_mut().for_each(|place| place.is_used = false);
    let before_of = |listener: usize| former[listener].map(|place| usize::from(before[place].0));
    for (number, place) in realms.iter_mut().enumerate() {
        let mut own = (0..files.len()).filter(|listener| before_of(*listener) == Some(number));
        if let Some(first) = own.next()
            && own.all(|listener| files[listener] == files[first])
        {
            place.files = files[first].clone();
        }
    }
    let number = |listener: usize| {
        let wanted = &files[listener];
        let own = before_of(listener).filter(|number| realms[*number].files == *wanted);
        let number =
            own.or_else(|| realms.iter().position(|place| place.files == *wanted)).unwrap_or_else(|| {
                realms.push(Place {
                    files: wanted.clone(),
                    access: Arc::default(),
                    contents: 0,
                    token_contents: 0,
                    service_contents: 0,
                    is_used: true,
                });
                realms.len() - 1
            });
        realms[number].is_used = true;
        Realm(u16::try_from(number).unwrap_or(u16::MAX))
    };
    let of_listeners = (0..files.len()).map(number).collect();
    (realms, of_listeners)
}

fn stamps(realms: &[Place]) -> Vec<Option<Stamp>> {
    let used = realms.iter().filter(|place| place.is_used);
    used.flat_map(|place| place.files.paths()).map(|path| Stamp::of(path)).collect()
}

/// Reads the files of users and rules of a realm. Returns also the hash of their contents.
fn read_one(
    Files { passwords, acl, rules, .. }: &Files,
    known: &mut Vec<(PathBuf, Users, u64)>,
) -> io::Result<(Access, u64)> {
    let mut contents = DefaultHasher::new();
    let users = match passwords {
        None => None,
        Some(path) => match known.iter().find(|(known, ..)| known == path) {
            Some((_, users, hash)) => {
                contents.write_u64(*hash);
                Some(users.clone())
            }
            None => {
                let mut own = DefaultHasher::new();
                let users = parse("password_file", path, &mut own, Users::of_file)?;
                contents.write_u64(own.finish());
                known.push((path.clone(), users.clone(), own.finish()));
                Some(users)
            }
        },
    };
    let permissions = acl.as_ref();
    let permissions = permissions
        .map(|path| parse("acl_file", path, &mut contents, Permissions::of_mosquitto))
        .transpose()?;
    let access = Access::new(users, permissions);
    let access = match rules {
        Some(path) => access.with_roles(parse("rules_file", path, &mut contents, parse_rules)?),
        None => access,
    };
    Ok((access, contents.finish()))
}

/// Says how to make the first file of dynamic security.
fn init_hint(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::NotFound {
        return error;
    }
    io::Error::new(error.kind(), format!("{error}; `mosquitto_ctrl dynsec init FILE NAME` makes one"))
}

/// Maximum length of a file, in bytes: more than a million users have.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Reads a regular file that `parse` understands. An error names the key, the file and the line.
pub(crate) fn parse<T, E: std::fmt::Display>(
    key: &str,
    path: &Path,
    contents: &mut impl Hasher,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> io::Result<T> {
    let place = || format!("`{key}`: {}", wire::Shown(path.display()));
    let bytes = read_regular(path, FILE_BYTES_MAX)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", place())))?;
    bytes.hash(contents);
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", place()));
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        invalid(format!("line {line}: this is not UTF-8"))
    })?;
    parse(&text).map_err(|error| invalid(error.to_string()))
}
