//! Makes a [`Config`] of the file, the flags and the properties of the machine.

use std::path::PathBuf;
use std::time::Duration;

use crate::acme::Acme;
use crate::address::ListenAddress;
use crate::admin::{self, Admin};
use crate::environment::{Environment, Origin};
use crate::jwt::Jwt;
use crate::keys::{
    Auth, Durability, Global, Journal, Limits, Listener, Log, Sessions, Shared, Sys, WATCH_INTERVALS,
};
use crate::kind::Time;
use crate::listeners::{self, Tables};
use crate::log::LogLevel;
use crate::machine::Machine;
use crate::otlp::Otlp;
use crate::reader::{Found, Reader};
use crate::report::{Problem, Report};
use crate::schema::limits;
use crate::services::{HttpAuth, Ldap, Vouchers};
use crate::sources::Sources;
use crate::unit;

/// The configuration of the broker. All values are final; only host names remain to be looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The listeners for clients; at least one.
    pub listeners: Vec<Listener>,
    /// Whether the only listener is on loopback because neither file nor flags name one.
    pub loopback_by_default: bool,
    /// Number of threads that serve connections, from 1 to 64.
    pub shards: u16,
    /// Addresses that other machines could reach, and that are not listened on because there are no users.
    pub not_open: Vec<ListenAddress>,
    /// Whether clients may connect anonymously to listeners that do not say so. Each listener has its own value.
    pub allow_anonymous: Option<bool>,
    /// Users and rules of listeners that name no files of their own.
    pub auth: Auth,
    /// Tokens in the place of passwords.
    pub jwt: Jwt,
    /// A service that knows users.
    pub http_auth: HttpAuth,
    /// A directory that knows users.
    pub ldap: Ldap,
    /// The certificate that an authority gives.
    pub acme: Acme,
    /// The directory for state that survives a restart. Without a directory, a restart loses all state.
    pub data_dir: Option<PathBuf>,
    /// The user whose rights the broker has after its start by the superuser.
    pub user: Option<String>,
    /// The file for the number of the process.
    pub pid_file: Option<PathBuf>,
    /// The time between two looks at the files of the configuration. `None` if the broker does not look at them.
    pub watch_interval: Option<Duration>,
    /// Limits on the resources of clients.
    pub limits: Limits,
    /// Limits on the state that the broker stores for clients.
    pub sessions: Sessions,
    /// Settings for shared subscriptions.
    pub shared: Shared,
    /// Settings for the journal, which stores state durably.
    pub journal: Journal,
    /// Settings for the log.
    pub log: Log,
    /// Settings for the broker's counters under `$SYS`.
    pub sys: Sys,
    /// Settings for the HTTP server for operators.
    pub admin: Admin,
    /// The collector of OpenTelemetry.
    pub otlp: Otlp,
}

/// The settings from the command line, which override the file.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// Port of the only listener: the one in the file, or 127.0.0.1 if the file has none.
    pub port: Option<u16>,
    /// Addresses of listeners, which replace the listeners in the file.
    pub listen: Vec<ListenAddress>,
    /// Anonymous clients may connect, even if the file forbids it.
    pub allow_anonymous: bool,
    /// The directory for state, which replaces the one in the file.
    pub data_dir: Option<PathBuf>,
    /// State is kept in memory only, even if the file or a flag names a directory.
    pub in_memory: bool,
    /// The time between two looks at the files of the configuration, which replaces the one in the file.
    pub watch_interval: Option<Duration>,
    /// Number of levels by which the log is more detailed than in the file.
    pub verbose: u8,
    /// Environment variables: those that set keys, such as `PONDHAWK_LIMITS_PACKET_BYTES`, and those that texts of the file
    /// name as `${NAME}`.
    pub environment: Environment,
}

impl Flags {
    /// Parses a time between two looks at the files of the configuration, such as `2 s`.
    ///
    /// # Errors
    /// The text is no duration, or the duration is out of bounds.
    pub fn parse_watch_interval(text: &str) -> Result<Duration, String> {
        let interval = Duration::from_millis(unit::parse(text, unit::TIMES)?);
        if !WATCH_INTERVALS.contains(&interval) {
            let limits = limits::<Time>(Some(&WATCH_INTERVALS));
            return Err(format!("is out of bounds{limits}"));
        }
        Ok(interval)
    }

    /// Adds the values that come from flags to the origins of a configuration with so many listeners.
    fn note_origins(&self, listeners: usize, origins: &mut Vec<(String, Origin)>) {
        let Self {
            port,
            listen,
            allow_anonymous,
            data_dir,
            in_memory,
            watch_interval,
            verbose,
            environment: _,
        } = self;
        if !listen.is_empty() {
            // The listeners of the file are not in use.
            origins.retain(|(key, _)| !key.starts_with("listener["));
        }
        let of_listeners = |key: &str| -> Vec<String> {
            (0..listeners).map(|listener| format!("listener[{listener}].{key}")).collect()
        };
        let global = |key: &str| vec![key.to_owned()];
        let rows = [
            (!listen.is_empty(), "--listen", of_listeners("address")),
            (port.is_some(), "--port", of_listeners("address")),
            (*allow_anonymous, "--allow-anonymous", of_listeners("allow_anonymous")),
            (data_dir.is_some(), "--data-dir", global("data_dir")),
            (*in_memory, "--in-memory", global("data_dir")),
            (watch_interval.is_some(), "--watch-interval", global("watch_interval")),
            (*verbose > 0, "--verbose", global("log.level")),
        ];
        for (_, flag, keys) in rows.into_iter().filter(|(is_given, ..)| *is_given) {
            origins.extend(keys.into_iter().map(|key| (key, Origin::Flag(flag))));
        }
    }
}

impl Config {
    /// The place of the listener whose users have the passwords of operators. `None` if no listener has the users of `[auth]`,
    /// `[jwt]`, `[http_auth]` and `[ldap]`.
    #[must_use]
    pub fn listener_of_operators(&self) -> Option<usize> {
        let vouchers = Vouchers { jwt: &self.jwt, http: &self.http_auth, ldap: &self.ldap };
        admin::listener_of_operators(&self.listeners, &self.auth, vouchers)
    }

    /// Makes the configuration of the texts of files, the flags, and defaults for this machine.
    ///
    /// # Errors
    /// All mistakes in the files and the flags, not only the first.
    pub fn parse(sources: &Sources, flags: &Flags, machine: &Machine) -> Result<Self, Report> {
        Self::parse_with_origins(sources, flags, machine).map(|(config, _)| config)
    }

    /// The same as [`parse`](Self::parse), with the origin of each value that is no default. Keys have the names of their
    /// tables in front, such as `limits.packet_bytes` or `listener[0].address`.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_with_origins(
        sources: &Sources,
        flags: &Flags,
        machine: &Machine,
    ) -> Result<(Self, Vec<(String, Origin)>), Report> {
        let mut problems = sources.problems.clone();
        let document = sources.parse(&mut problems);
        let mut found = Found { problems, origins: Vec::new(), environment: &flags.environment, sources };
        let config = read_document(&mut Reader::new(&document, &mut found), flags, machine);
        let Found { problems, mut origins, .. } = found;
        flags.note_origins(config.listeners.len(), &mut origins);
        Report::unless_empty(sources, problems)?;
        Ok((config, origins))
    }

    /// Returns the whole configuration as a file, with the origin of each value behind it.
    pub fn to_toml_with_origins(&self, origins: &[(String, Origin)]) -> String {
        let mut table = String::new();
        let mut listeners = 0;
        let line = |line: &str| {
            if let Some(name) = line.strip_prefix("[[") {
                table = format!("{}[{listeners}].", name.trim_end_matches("]]"));
                listeners += 1;
            } else if let Some(name) = line.strip_prefix('[') {
                table = format!("{}.", name.trim_end_matches(']'));
            }
            let Some((key, _)) = line.split_once(" = ").filter(|_| !line.starts_with('[')) else {
                return format!("{line}\n");
            };
            let key = format!("{table}{key}");
            let origin = origins.iter().rev().find(|(of, _)| *of == key);
            let origin = origin.map_or(&Origin::Default, |(_, origin)| origin);
            format!("{line} # {origin}\n")
        };
        self.to_toml().lines().map(line).collect()
    }

    /// Returns facts about this valid configuration that an operator should know, one sentence each. `first_user` says how to
    /// add the first user: it depends on the language of the file.
    pub fn notices(&self, first_user: &str) -> Vec<String> {
        let is_open = |listener: &&Listener| {
            let files = [&listener.acl_file, &listener.rules_file, &listener.dynamic_security_file];
            let has_rules = files.into_iter().any(Option::is_some);
            listener.allow_anonymous && !has_rules && !listener.address.is_loopback()
        };
        let open = self.listeners.iter().filter(is_open);
        let mut notices: Vec<String> = open
            .map(|listener| format!("everybody who reaches {} may publish and subscribe", listener.address))
            .collect();
        notices.extend(self.not_open.iter().map(|address| {
            format!(
                "{address} is not open to other machines, because there are no users: add the first one with \
                 {first_user}, or let everybody in with `allow_anonymous`"
            )
        }));
        let is_for_nobody =
            |listener: &&Listener| !listener.allow_anonymous && !listeners::has_users(listener);
        notices.extend(self.listeners.iter().filter(is_for_nobody).map(|listener| {
            format!(
                "nobody can connect to {}, because anonymous clients are refused and there are no users: add the first one \
                 with {first_user}",
                listener.address
            )
        }));
        let Some(data_dir) = &self.data_dir else {
            notices.push(
                "a restart keeps nothing: sessions, retained messages and wills are in memory".to_owned(),
            );
            return notices;
        };
        notices.push(format!("what is acknowledged is in {}", wire::Shown(data_dir.display())));
        notices.extend(self.listeners.iter().filter_map(|listener| {
            let what = match listener.durability {
                Durability::Fsync => return None,
                Durability::Os => "a loss of power can take back the last acknowledgements",
                Durability::None => "the end of this process can take back the last acknowledgements",
            };
            Some(format!("{}: {what}, as durability is chosen there", listener.address))
        }));
        notices
    }

    /// The keys at the top of the file.
    pub(crate) fn global(&self) -> Global {
        Global {
            // The values of these files are there already.
            include: Vec::new(),
            allow_anonymous: self.allow_anonymous,
            shards: self.shards,
            data_dir: self.data_dir.clone(),
            user: self.user.clone(),
            pid_file: self.pid_file.clone(),
            watch_interval: self.watch_interval,
        }
    }

    /// Returns the whole configuration as a file, which parses to the same configuration.
    pub fn to_toml(&self) -> String {
        let global = self.global();
        let listeners = self.listeners.iter().map(|listener| ("[[listener]]", listener.lines()));
        let rest = [
            ("[limits]", self.limits.lines()),
            ("[sessions]", self.sessions.lines()),
            ("[shared]", self.shared.lines()),
            ("[journal]", self.journal.lines()),
            ("[log]", self.log.lines()),
            ("[sys]", self.sys.lines()),
            ("[admin]", self.admin.lines()),
            ("[otlp]", self.otlp.lines()),
        ];
        let first = [
            ("", global.lines()),
            ("[auth]", self.auth.lines()),
            ("[jwt]", self.jwt.lines()),
            ("[http_auth]", self.http_auth.lines()),
            ("[ldap]", self.ldap.lines()),
            ("[acme]", self.acme.lines()),
        ];
        let tables = first.into_iter().chain(listeners).chain(rest);
        let write = |(header, lines): (&str, Vec<(&str, String)>)| {
            let lines = lines.into_iter().map(|(name, value)| format!("{name} = {value}\n"));
            let header = if header.is_empty() { String::new() } else { format!("{header}\n") };
            header + &lines.collect::<String>()
        };
        tables.map(write).collect::<Vec<_>>().join("\n")
    }
}

fn read_document(top: &mut Reader<'_, '_>, flags: &Flags, machine: &Machine) -> Config {
    let global = Global::read(top, machine);
    let auth = top.table("auth", Auth::read);
    let jwt = top.table("jwt", Jwt::read_whole);
    let http_auth = top.table("http_auth", HttpAuth::read_whole);
    let ldap = top.table("ldap", Ldap::read_whole);
    let acme = top.table("acme", Acme::read_whole);
    let data_dir = flags.data_dir.clone().or(global.data_dir.clone()).filter(|_| !flags.in_memory);
    let acme_file = data_dir.as_deref().map(|data_dir| acme.certificate_file(data_dir));
    let vouchers = Vouchers { jwt: &jwt, http: &http_auth, ldap: &ldap };
    let tables = Tables { auth: &auth, vouchers, acme: &acme, acme_file: acme_file.as_deref() };
    let listeners = listeners::read(top, &global, tables, flags);
    let limits = top.table("limits", |limits| Limits::read(limits, machine));
    let packet_bytes = limits.packet_bytes;
    let has_sources = admin::listener_of_operators(&listeners.list, &auth, vouchers).is_some();
    let mut config = Config {
        listeners: listeners.list,
        loopback_by_default: listeners.loopback_by_default,
        not_open: listeners.not_open,
        allow_anonymous: global.allow_anonymous,
        auth,
        jwt,
        http_auth,
        ldap,
        acme,
        shards: global.shards,
        data_dir,
        user: global.user,
        pid_file: global.pid_file,
        watch_interval: flags.watch_interval.or(global.watch_interval),
        limits,
        sessions: top.table("sessions", Sessions::read),
        shared: top.table("shared", Shared::read),
        journal: top.table("journal", |journal| read_journal(journal, packet_bytes)),
        log: top.table("log", Log::read),
        sys: top.table("sys", Sys::read),
        admin: top.table("admin", |admin| Admin::read_whole(admin, has_sources)),
        otlp: top.table("otlp", Otlp::read_whole),
    };
    config.log.level = config.log.level.more_by(flags.verbose);
    top.refuse_unknown();
    config
}

/// Reads the `[journal]` table, and checks the lengths of segments.
///
/// Lengths are powers of two, so that any segment can replace any other. A segment must have space for the largest
/// message and for the records beside it, which is why a packet may have at most a quarter of a segment.
fn read_journal(journal: &mut Reader<'_, '_>, packet_bytes: u32) -> Journal {
    let read = Journal::read(journal, packet_bytes);
    for (key, bytes) in
        [("segment_bytes_min", read.segment_bytes_min), ("segment_bytes_max", read.segment_bytes_max)]
    {
        if !bytes.is_power_of_two() {
            let span = journal.span_of(key);
            journal.note(Problem::at(span, format!("{key} is no power of two")));
        }
    }
    if read.segment_bytes_max < read.segment_bytes_min {
        let span = journal.span_of("segment_bytes_max");
        journal.note(Problem::at(span, "segment_bytes_max is less than segment_bytes_min".to_owned()));
    }
    if packet_bytes > read.segment_bytes_min / 4 {
        let title =
            format!("packet_bytes of [limits], {packet_bytes}, is more than a quarter of segment_bytes_min");
        let span = journal.span_of("segment_bytes_min");
        journal.note(Problem::at(span, title).advice("leave segment_bytes_min out: then it is large enough"));
    }
    read
}

impl LogLevel {
    /// Returns the level that is `steps` levels more detailed, at most `Trace`.
    fn more_by(self, steps: u8) -> Self {
        let levels = [Self::Off, Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];
        let index = levels.iter().position(|level| *level == self).unwrap_or(0);
        levels[levels.len().min(index + usize::from(steps) + 1) - 1]
    }
}
