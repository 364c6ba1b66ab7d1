//! The server for operators: its socket, its tokens, and the parts of the process that it may change.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use admin::{
    AccessSource, AuditFile, Backup, BackupRefused, Certificate, CommandsRefused, Control, InForce,
    LogRecord, Operators, Queue, Reloaded, Role, Running, Secure, Settings, SourceKind, Tokens,
};
use auth::Bans;
use base::Realm;
use config::{Binding, Config, OperatorRole, QueueFull};
use layers::CurrentTls;
use net::{Operator, Orders, TcpOptions};

use crate::expiry::InUse;
use crate::logging::Level;
use crate::outcomes::Outcomes;
use crate::recent::Recent;
use crate::serve::Wishes;
use crate::upkeep::Backups;
use crate::users::replace_private;

/// Name of the file with the generated token in the data directory.
pub(crate) const TOKEN_FILE: &str = "admin-token";

/// Name of the generated token in records of changes.
const OWN_TOKEN: &str = "generated";

/// Name of the file with all bans in the data directory.
const BANS_FILE: &str = "bans.json";

/// A server that listens, and serves nobody yet.
pub(crate) struct Prepared {
    socket: TcpListener,
    tls: Option<Arc<CurrentTls>>,
    tokens: Tokens,
    needs_token: bool,
}

impl Prepared {
    /// Listens, and reads the files with tokens: both may need the rights that the broker gives up later. `None` without an
    /// address. `tls` has the certificates of the server, if it has some.
    ///
    /// # Errors
    /// The address cannot be listened on, or a file with tokens has a mistake.
    pub(crate) fn open(config: &Config, tls: Option<Arc<CurrentTls>>) -> io::Result<Option<Self>> {
        let Some(address) = &config.admin.address else { return Ok(None) };
        let explain = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot listen on {address} for [admin]: {error}"))
        };
        let Binding::Inet(inet) = address.resolve().map_err(explain)? else {
            unreachable!("the configuration has looked at it")
        };
        let options = TcpOptions { backlog: 64, ipv6_only: true, interface: None };
        let socket = net::listen(inet, options).map_err(explain)?;
        let mut tokens = Tokens::default();
        let files = files(config);
        for (path, role) in &files {
            tokens.add_file(path, *role)?;
        }
        // An address that other machines reach has an admin whom the configuration names.
        let needs_token = config.admin.admin_token_file.is_none() && address.is_loopback();
        Ok(Some(Self { socket, tls, tokens, needs_token }))
    }

    /// Begins to serve. Also returns lines for the operator: the address, and where the token is.
    ///
    /// # Errors
    /// A token cannot be made, or the system refuses a thread.
    pub(crate) fn start(
        mut self,
        config: &Config,
        operator: Operator,
        control: Box<dyn Control>,
    ) -> io::Result<(Running, Vec<String>)> {
        let address = self.socket.local_addr()?;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let mut lines = vec![format!("admin server on {scheme}://{address}")];
        if self.needs_token {
            lines.push(self.add_own_token(config)?);
        }
        let handshakes_per_second = config.admin.tls_handshakes;
        let settings = Settings {
            socket: self.socket,
            secure: self.tls.map(|tls| Secure { tls, handshakes_per_second }),
            hosts: config.admin.hosts.clone(),
            connections_max: usize::try_from(config.admin.connections).unwrap_or(usize::MAX),
            body_bytes_max: usize::try_from(config.admin.body_bytes).unwrap_or(usize::MAX),
            bans_max: usize::try_from(config.admin.bans).unwrap_or(usize::MAX),
            recorded_clients_max: usize::try_from(config.admin.recorded_clients).unwrap_or(usize::MAX),
            recorded_messages_max: usize::try_from(config.admin.recorded_messages).unwrap_or(usize::MAX),
            changes_max: usize::try_from(config.admin.recent_changes).unwrap_or(usize::MAX),
            audit_file: audit_file(config),
            request_timeout: config.admin.request_timeout,
            session_time: config.admin.session_time,
            tokens: self.tokens,
            version: env!("CARGO_PKG_VERSION"),
        };
        Ok((admin::start(settings, operator, control)?, lines))
    }

    /// Adds a generated token: that of the data directory, or one that only this process knows.
    fn add_own_token(&mut self, config: &Config) -> io::Result<String> {
        let (token, line) = match &config.data_dir {
            Some(directory) => {
                let path = directory.join(TOKEN_FILE);
                let explain = |error: io::Error| {
                    io::Error::new(
                        error.kind(),
                        format!("no token for [admin] in {}: {error}", wire::Shown(path.display())),
                    )
                };
                let token = admin::own(&path).map_err(explain)?;
                (token, format!("its token is in {}", wire::Shown(path.display())))
            }
            None => {
                let token = admin::generate()?;
                let line = format!("its token until the end of this process is {token}");
                (token, line)
            }
        };
        self.tokens.add(&token, OWN_TOKEN, Role::Admin).map_err(io::Error::other)?;
        Ok(line)
    }
}

/// The settings in force, for operators.
///
/// `realms` has the users of each listener.
pub(crate) fn in_force(
    config: &Config,
    configuration: String,
    listeners: Vec<admin::Listener>,
    realms: &[Realm],
) -> InForce {
    let topic_levels_max = usize::from(config.limits.topic_levels);
    let operators = operators(config, realms);
    let (queue, sources) = (queue(config), sources(config, realms));
    InForce { configuration, listeners, queue, topic_levels_max, operators, sources }
}

/// The operators whom the configuration names.
fn operators(config: &Config, realms: &[Realm]) -> Operators {
    let role = |role: &OperatorRole| match role {
        OperatorRole::Viewer => Role::Viewer,
        OperatorRole::Operator => Role::Operator,
        OperatorRole::Admin => Role::Admin,
    };
    let named = |names: &BTreeMap<String, OperatorRole>| {
        names.iter().map(|(name, of)| (name.clone(), role(of))).collect()
    };
    let realm = config.listener_of_operators().and_then(|place| realms.get(place).copied());
    Operators {
        certificates: named(&config.admin.certificates),
        users: named(&config.admin.users),
        realm: realm.filter(|_| !config.admin.users.is_empty()),
    }
}

/// The limit of the queue of a session.
fn queue(config: &Config) -> Queue {
    let when_full = match config.sessions.queue_full {
        QueueFull::EndSession => "end-session",
        QueueFull::Refuse => "refuse",
        QueueFull::DropOldest => "drop-oldest",
        QueueFull::DropNewest => "drop-newest",
    };
    let messages_max = usize::try_from(config.sessions.queue_messages).unwrap_or(usize::MAX);
    let bytes_max = usize::try_from(config.sessions.queue_bytes).unwrap_or(usize::MAX);
    Queue { messages_max, bytes_max, when_full }
}

/// The file with all changes by operators.
fn audit_file(config: &Config) -> Option<AuditFile> {
    let path = config.admin.audit_file.clone()?;
    let (bytes_max, files_max) = (config.admin.audit_file_bytes, config.admin.audit_files);
    Some(AuditFile { path, bytes_max, files_max })
}

/// The files with tokens.
fn files(config: &Config) -> Vec<(PathBuf, Role)> {
    let admin = &config.admin;
    let files = [
        (&admin.viewer_token_file, Role::Viewer),
        (&admin.operator_token_file, Role::Operator),
        (&admin.admin_token_file, Role::Admin),
    ];
    files.into_iter().filter_map(|(path, role)| Some((path.clone()?, role))).collect()
}

/// Maximum length of a file of rules that operators read, in bytes.
const RULES_BYTES_MAX: u64 = 1 << 20;

/// The sources of users and rules of all listeners, each once. `realms` has the users of each listener.
fn sources(config: &Config, realms: &[Realm]) -> Vec<AccessSource> {
    let mut all: Vec<AccessSource> = Vec::new();
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
    let url = |url: &Option<String>| url.as_deref().map(config::without_query);
    for (listener, realm) in config.listeners.iter().zip(realms) {
        let of_keys = || path(&config.jwt.key_file).or_else(|| url(&config.jwt.keys_url));
        let found = [
            (SourceKind::Dynamic, path(&listener.dynamic_security_file)),
            (SourceKind::Passwords, path(&listener.password_file)),
            (SourceKind::Acl, path(&listener.acl_file)),
            (SourceKind::Rules, path(&listener.rules_file)),
            (SourceKind::Tokens, of_keys().filter(|_| listener.jwt)),
            (SourceKind::Http, url(&config.http_auth.url).filter(|_| listener.http_auth)),
            (SourceKind::Ldap, url(&config.ldap.url).filter(|_| listener.ldap)),
        ];
        for (kind, place) in found.into_iter().filter_map(|(kind, place)| Some((kind, place?))) {
            let address = listener.address.to_string();
            match all.iter_mut().find(|known| known.kind == kind && known.place == place) {
                Some(known) => known.listeners.push(address),
                None => all.push(AccessSource { kind, place, listeners: vec![address], realm: *realm }),
            }
        }
    }
    all.sort_by_key(|source| source.kind);
    all
}

/// The main thread, as the server for operators reaches it.
pub(crate) struct MainThread {
    pub(crate) in_force: Arc<Mutex<Arc<InForce>>>,
    pub(crate) wishes: Wishes,
    pub(crate) log_level: Level,
    pub(crate) backups: Backups,
    pub(crate) recent: Recent,
    pub(crate) certificates: InUse,
    pub(crate) outcomes: Outcomes,
    /// Commands of dynamic security, if there is any.
    pub(crate) orders: Option<Arc<Orders>>,
    /// The file with all bans, if there is a data directory.
    pub(crate) bans: Option<PathBuf>,
}

impl Control for MainThread {
    fn in_force(&self) -> Arc<InForce> {
        Arc::clone(&self.in_force.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn reload(&self) -> u64 {
        self.outcomes.ask(|| self.wishes.reload())
    }

    fn last_reload(&self) -> Option<Reloaded> {
        self.outcomes.last()
    }

    fn certificates(&self) -> Arc<[Certificate]> {
        self.certificates.all()
    }

    fn log_lines(&self, before: u64, count: usize) -> Vec<Arc<LogRecord>> {
        self.recent.lines(before, count)
    }

    fn log_level(&self) -> &'static str {
        self.log_level.word()
    }

    fn set_log_level(&self, level: &str) {
        self.log_level.set_word(level);
    }

    fn begin_backup(&self, name: &str) -> Result<(), BackupRefused> {
        self.backups.begin(name)
    }

    fn last_backup(&self) -> Option<Backup> {
        self.backups.last()
    }

    fn stop(&self) {
        self.wishes.stop();
    }

    fn carry_out(
        &self,
        commands: Vec<u8>,
        who: Arc<str>,
        answer: Box<dyn FnOnce(Box<[u8]>) + Send>,
    ) -> Result<(), CommandsRefused> {
        let orders = self.orders.as_ref().ok_or(CommandsRefused::Off)?;
        orders.submit_for_operator(commands, who, answer).map_err(|_| CommandsRefused::Busy)
    }

    fn read_rules(&self, path: &str) -> Result<String, String> {
        let read = mosquitto::read_regular(Path::new(path), RULES_BYTES_MAX);
        let text = read.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        text.map_err(|error| format!("{}: {error}", wire::Shown(path)))
    }

    fn store_bans(&self, bans: &Bans) -> Result<(), String> {
        self.bans.as_ref().map_or(Ok(()), |path| replace_private(path, &bans.to_json()))
    }
}

/// The file with all bans.
pub(crate) fn bans_file(config: &Config) -> Option<PathBuf> {
    config.data_dir.as_ref().map(|directory| directory.join(BANS_FILE))
}

/// Reads the bans of the data directory. They hold even if no operator can change them.
///
/// # Errors
/// The file cannot be read, or has a mistake. Without its bans, the broker does not start.
pub(crate) fn read_bans(config: &Config) -> io::Result<Bans> {
    let Some(path) = bans_file(config) else { return Ok(Bans::default()) };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Bans::default()),
        Err(error) => {
            return Err(io::Error::new(
                error.kind(),
                format!("cannot read {}: {error}", wire::Shown(path.display())),
            ));
        }
    };
    let advice = "correct the file, or remove it to lift all bans";
    Bans::parse(&text)
        .map_err(|problem| io::Error::other(format!("{}: {problem} ({advice})", wire::Shown(path.display()))))
}
