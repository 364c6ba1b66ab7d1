//! The process around the server: settings, certificates, log, and the changes that only the main thread makes.

use std::collections::BTreeMap;
use std::sync::Arc;

use auth::Bans;
use base::Realm;
use net::Operator;
use serde_json::{Map, Value};

use crate::tokens::Role;

/// The settings of the broker that are in force. A reload puts others in their place.
#[derive(Debug, Clone)]
pub struct InForce {
    /// The configuration as a file in TOML, without secrets.
    pub configuration: String,
    /// Listeners for MQTT, in the order of the configuration.
    pub listeners: Vec<Listener>,
    /// The limit of the queue of a session.
    pub queue: Queue,
    /// Maximum number of levels of a topic.
    pub topic_levels_max: usize,
    /// The operators whom the configuration names.
    pub operators: Operators,
    /// The sources of users and rules, each once, in the order of their kinds.
    pub sources: Vec<AccessSource>,
}

/// A source of users or rules of listeners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessSource {
    /// The kind of the source.
    pub kind: SourceKind,
    /// The path of a file, or a URL.
    pub place: String,
    /// The addresses of its listeners.
    pub listeners: Vec<String>,
    /// The users and rules of the first of them.
    pub realm: Realm,
}

/// The kind of an [`AccessSource`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SourceKind {
    /// Dynamic security: users, groups and roles, which commands change.
    Dynamic,
    /// A file with users and their password hashes.
    Passwords,
    /// An access control list.
    Acl,
    /// A file with roles and their rules.
    Rules,
    /// Keys of an issuer of tokens.
    Tokens,
    /// A service over HTTP.
    Http,
    /// A directory that is asked over LDAP.
    Ldap,
}

impl SourceKind {
    /// The key of the configuration that names the source, or its table.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Dynamic => "dynamic_security_file",
            Self::Passwords => "password_file",
            Self::Acl => "acl_file",
            Self::Rules => "rules_file",
            Self::Tokens => "jwt",
            Self::Http => "http_auth",
            Self::Ldap => "ldap",
        }
    }

    /// Whether the source is a file with rules for people to read.
    pub(crate) fn is_file_of_rules(self) -> bool {
        matches!(self, Self::Acl | Self::Rules)
    }
}

/// The reason why commands of dynamic security are not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandsRefused {
    /// No listener has dynamic security.
    Off,
    /// Too many commands wait.
    Busy,
}

/// Operators with their roles, by their names.
#[derive(Debug, Clone, Default)]
pub struct Operators {
    /// By the common names of their certificates.
    pub certificates: BTreeMap<String, Role>,
    /// By the names of users.
    pub users: BTreeMap<String, Role>,
    /// The users who have these names. `None` if nobody has a password.
    pub realm: Option<Realm>,
}

impl InForce {
    /// The listener that has accepted connections under a number. `None` if a reload has removed it.
    pub(crate) fn listener(&self, number: u16) -> Option<&Listener> {
        self.listeners.iter().find(|listener| listener.numbers.contains(&number))
    }
}

/// A listener for MQTT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Its address, with the actual port.
    pub address: String,
    /// Its transports and protocols in words.
    pub transport: String,
    /// The path for WebSockets. `None` if it accepts none, or is no place in a network.
    pub websocket_path: Option<String>,
    /// Whether clients need TLS, or may use it.
    pub has_tls: bool,
    /// The numbers of its connections. A reload can give it a further one.
    pub numbers: Vec<u16>,
    /// Its place among the listeners whose messages are counted.
    pub counted_as: u16,
}

impl Listener {
    /// The number of its connections.
    pub(crate) fn connections(&self, operator: &Operator) -> usize {
        self.numbers.iter().map(|number| operator.connections_of(*number)).sum()
    }
}

/// The limit of the queue of a session, for explanations.
#[derive(Debug, Clone, Copy)]
pub struct Queue {
    /// Maximum number of messages that wait for one session.
    pub messages_max: usize,
    /// Maximum size of these messages, in bytes.
    pub bytes_max: usize,
    /// The rule for a full queue, as the configuration writes it.
    pub when_full: &'static str,
}

/// A backup of the journal.
#[derive(Debug, Clone)]
pub struct Backup {
    /// Name of its directory.
    pub name: String,
    /// How far it is.
    pub state: BackupState,
    /// Bytes that were copied. Segments that the broker reuses meanwhile are copied again.
    pub copied_bytes: u64,
    /// The size of the journal when the backup began, in bytes.
    pub total_bytes: u64,
    /// The time that it has taken.
    pub seconds: u64,
    /// At the end: what was copied, or why it has failed.
    pub text: Option<String>,
}

/// The state of a [`Backup`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackupState {
    /// A backup copies files.
    Copying,
    /// The copy is read.
    Checking,
    /// The copy is whole.
    Done,
    /// There is no copy.
    Failed,
}

/// The reason why a backup does not begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupRefused {
    /// There is no journal, or no directory for backups.
    Off,
    /// The name is no name of a directory.
    Name,
    /// There is something of this name.
    Exists,
    /// Another backup is under way.
    Running,
    /// The system refuses a thread.
    Failed(String),
}

/// The outcome of a reload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reloaded {
    /// Its number, from 1.
    pub number: u64,
    /// Its end, in seconds since 1970.
    pub unix_secs: u64,
    /// A line for each key that has changed.
    pub changes: Vec<String>,
    /// The reason why everything stays as it was, in lines.
    pub refused: Option<String>,
}

/// A certificate of a listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Address of the listener, as the configuration names it.
    pub listener: String,
    /// Path of the file.
    pub file: String,
    /// `server`, or `client authority` for one that signs certificates of clients.
    pub purpose: &'static str,
    /// Subject of the certificate.
    pub subject: String,
    /// Names and addresses of hosts.
    pub names: Vec<String>,
    /// The start of its validity, in seconds since 1970.
    pub from_unix_secs: i64,
    /// The end of its validity, in seconds since 1970.
    pub until_unix_secs: i64,
}

/// A line of the log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRecord {
    /// Its number. Later lines have higher ones.
    pub number: u64,
    /// Its time, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Its level, as the configuration names it.
    pub level: &'static str,
    /// Text of the line, without its fields.
    pub message: String,
    /// Fields of the line by their names.
    pub fields: Map<String, Value>,
}

/// The parts of the process that only its main thread can change.
pub trait Control: Send + Sync {
    /// The settings in force.
    fn in_force(&self) -> Arc<InForce>;
    /// Begins to read configuration, certificates, users and rules again. Returns the number of this reload.
    fn reload(&self) -> u64;
    /// The outcome of the last reload that has ended.
    fn last_reload(&self) -> Option<Reloaded>;
    /// For each file with certificates of a listener: the first certificate to expire.
    fn certificates(&self) -> Arc<[Certificate]>;
    /// At most `count` of the last lines of the log, newest first, of those with a number below `before`.
    fn log_lines(&self, before: u64, count: usize) -> Vec<Arc<LogRecord>>;
    /// The level of the log, as the configuration names it.
    fn log_level(&self) -> &'static str;
    /// Changes the level of the log until the next reload. A word that is no level has no effect.
    fn set_log_level(&self, level: &str);
    /// Begins a backup of the journal into a new directory of this name, on a thread of its own.
    ///
    /// # Errors
    /// It cannot begin now.
    fn begin_backup(&self, name: &str) -> Result<(), BackupRefused>;
    /// The last backup since the start, which may be under way.
    fn last_backup(&self) -> Option<Backup>;
    /// Begins to end the broker, as SIGTERM does.
    fn stop(&self);
    /// Has commands of dynamic security carried out for an operator. `answer` gets the answers, from the main thread.
    ///
    /// # Errors
    /// They are not carried out.
    fn carry_out(
        &self,
        commands: Vec<u8>,
        who: Arc<str>,
        answer: Box<dyn FnOnce(Box<[u8]>) + Send>,
    ) -> Result<(), CommandsRefused>;
    /// The text of a file of rules, as it is now.
    ///
    /// # Errors
    /// It cannot be read. The error says why.
    fn read_rules(&self, path: &str) -> Result<String, String>;
    /// Stores all bans for the next start.
    ///
    /// # Errors
    /// They cannot be stored. The error says why.
    fn store_bans(&self, bans: &Bans) -> Result<(), String>;
}
