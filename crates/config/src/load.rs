//! From file, flags and machine to a [`Config`].

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

use crate::address::ListenAddress;
use crate::keys::{Durability, Global, Journal, Limits, Listener, Log, LogLevel, Sessions, Shared, Sys};
use crate::listeners;
use crate::machine::Machine;
use crate::reader::Reader;
use crate::report::{Problem, Report};

/// Everything the broker is told before it starts. All of it is decided: there is nothing left to look up but host
/// names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Where clients connect; at least one.
    pub listeners: Vec<Listener>,
    /// Whether nobody asked for a listener, so that the only one is on loopback.
    pub loopback_by_default: bool,
    /// Threads that carry connections, from 1 to 64.
    pub shards: u16,
    /// The directory for what survives a restart; without one a restart forgets everything.
    pub data_dir: Option<PathBuf>,
    /// What clients may take up.
    pub limits: Limits,
    /// What is kept for clients.
    pub sessions: Sessions,
    /// How groups share a subscription.
    pub shared: Shared,
    /// How that is written down which must last.
    pub journal: Journal,
    /// What the broker says about itself.
    pub log: Log,
    /// The broker's counters.
    pub sys: Sys,
}

/// A configuration file's name, for messages, and its text.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// How messages name the file.
    pub name: &'a str,
    /// Its content.
    pub text: &'a str,
}

/// What the command line says; it overrides the file.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// The port of the only listener: of the file's, or of 127.0.0.1 if it has none.
    pub port: Option<u16>,
    /// These listeners in place of the file's.
    pub listen: Vec<ListenAddress>,
    /// Clients may connect anonymously, whatever the file says.
    pub allow_anonymous: bool,
    /// In place of the file's.
    pub data_dir: Option<PathBuf>,
    /// Without any, whatever the file says.
    pub in_memory: bool,
    /// One level more talkative than the file says for each.
    pub verbose: u8,
}

impl Config {
    /// Reads the file, if one is named, and parses it.
    ///
    /// # Errors
    /// When the file cannot be read, or anything in it or in the flags is wrong.
    pub fn load(file: Option<&Path>, flags: &Flags, machine: &Machine) -> Result<Self, LoadError> {
        let Some(path) = file else { return Ok(Self::parse(None, flags, machine)?) };
        let text = fs::read_to_string(path).map_err(|error| LoadError::Unreadable(path.to_owned(), error))?;
        let name = path.display().to_string();
        Ok(Self::parse(Some(Source { name: &name, text: &text }), flags, machine)?)
    }

    /// The configuration of a file's text, the flags, and defaults for this machine.
    ///
    /// # Errors
    /// Everything that is wrong, not only the first of it.
    pub fn parse(file: Option<Source<'_>>, flags: &Flags, machine: &Machine) -> Result<Self, Report> {
        let source = file.unwrap_or(Source { name: "", text: "" });
        let mut problems = Vec::new();
        let (document, errors) = DeTable::parse_recoverable(source.text);
        problems.extend(syntax_problems(&errors, source.text));
        let config = read_document(&mut Reader::new(document.get_ref(), &mut problems), flags, machine);
        Report::unless_empty(source.name, source.text, problems)?;
        Ok(config)
    }

    /// What the operator should know about this configuration although it is valid, a sentence each.
    pub fn notices(&self) -> Vec<String> {
        let open = self.listeners.iter().filter(|listener| !listener.address.is_loopback());
        let mut notices: Vec<String> = open
            .map(|listener| format!("everybody who reaches {} may publish and subscribe", listener.address))
            .collect();
        let Some(data_dir) = &self.data_dir else {
            notices.push(
                "a restart keeps nothing: sessions, retained messages and wills are in memory".to_owned(),
            );
            return notices;
        };
        notices.push(format!("what is acknowledged is in {}", data_dir.display()));
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

    /// The whole configuration as a file that parses to it again.
    pub fn to_toml(&self) -> String {
        let global = Global { allow_anonymous: None, shards: self.shards, data_dir: self.data_dir.clone() };
        let listeners = self.listeners.iter().map(|listener| ("[[listener]]", listener.lines()));
        let rest = [
            ("[limits]", self.limits.lines()),
            ("[sessions]", self.sessions.lines()),
            ("[shared]", self.shared.lines()),
            ("[journal]", self.journal.lines()),
            ("[log]", self.log.lines()),
            ("[sys]", self.sys.lines()),
        ];
        let tables = [("", global.lines())].into_iter().chain(listeners).chain(rest);
        let write = |(header, lines): (&str, Vec<(&str, String)>)| {
            let lines = lines.into_iter().map(|(name, value)| format!("{name} = {value}\n"));
            let header = if header.is_empty() { String::new() } else { format!("{header}\n") };
            header + &lines.collect::<String>()
        };
        tables.map(write).collect::<Vec<_>>().join("\n")
    }
}

/// One problem a line: what follows on the same line is mostly the parser finding its feet again.
fn syntax_problems(errors: &[toml::de::Error], text: &str) -> Vec<Problem> {
    let mut lines = HashSet::new();
    let mut problems = Vec::new();
    for error in errors {
        let span = error.span().unwrap_or(text.len()..text.len());
        if lines.insert(text[..span.start].matches('\n').count()) {
            problems.push(Problem::at(span, format!("this is not TOML: {}", error.message())));
        }
    }
    problems
}

fn read_document(top: &mut Reader<'_, '_>, flags: &Flags, machine: &Machine) -> Config {
    let global = Global::read(top, machine);
    let listeners = listeners::read(top, &global, flags);
    let limits = top.table("limits", |limits| Limits::read(limits, machine));
    let packet_bytes = limits.packet_bytes;
    let mut config = Config {
        listeners: listeners.list,
        loopback_by_default: listeners.loopback_by_default,
        shards: global.shards,
        data_dir: flags.data_dir.clone().or(global.data_dir).filter(|_| !flags.in_memory),
        limits,
        sessions: top.table("sessions", Sessions::read),
        shared: top.table("shared", Shared::read),
        journal: top.table("journal", |journal| read_journal(journal, packet_bytes)),
        log: top.table("log", Log::read),
        sys: top.table("sys", Sys::read),
    };
    config.log.level = config.log.level.more_by(flags.verbose);
    top.refuse_unknown();
    config
}

/// Segments are powers of two, so that any of them can take the place of any other; and a message has to fit into one, with
/// space for what has to be kept beside it.
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
    /// This level, or a more talkative one by so many steps.
    fn more_by(self, steps: u8) -> Self {
        let levels = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];
        let index = levels.iter().position(|level| *level == self).unwrap_or(0);
        levels[levels.len().min(index + usize::from(steps) + 1) - 1]
    }
}

/// Why there is no configuration.
#[derive(Debug)]
pub enum LoadError {
    /// The file cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The file or the flags say something wrong.
    Invalid(Report),
}

impl LoadError {
    /// The error as text for a terminal, in colour if it has any.
    pub fn render(&self, colour: bool) -> String {
        match self {
            Self::Unreadable(path, error) => format!("error: cannot read {}: {error}", path.display()),
            Self::Invalid(report) => report.render(colour),
        }
    }
}

impl From<Report> for LoadError {
    fn from(report: Report) -> Self {
        Self::Invalid(report)
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for LoadError {}
