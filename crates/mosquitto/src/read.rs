//! Reads the main file and the files that it includes, and gives each line to its scope.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::directive::{Again, Directive, Scope};
use crate::line::{Line, Place, lines};
use crate::model::{At, Block, Bridge, Given, Listener, Model, Plugin};
use crate::problem::Problem;
use crate::system::System;
use crate::value::{self, Value};

/// Reads everything. Problems are in the order in which they were found.
pub(crate) fn read(main: &Path, system: &dyn System) -> (Model, Vec<Problem>) {
    let mut reading = Reading { system, model: Model::new(), problems: Vec::new(), has_security: false };
    match system.read(main) {
        Ok(bytes) => reading.file(&bytes, main, true),
        Err(error) => {
            let reason = format!("cannot read {}: {error}", main.display());
            reading.problems.push(Problem { place: None, line: String::new(), reason });
        }
    }
    reading.finish();
    (reading.model, reading.problems)
}

/// State that all files share.
struct Reading<'a> {
    system: &'a dyn System,
    model: Model,
    problems: Vec<Problem>,
    /// A security option has been read, behind which `per_listener_settings` comes too late.
    has_security: bool,
}

/// The scope of the next line. Each file begins without one.
struct Current {
    name: Arc<str>,
    is_main: bool,
    listener: Option<At>,
    /// `port` came behind a `listener`: the owner of the next option differs between versions of Mosquitto.
    is_ambiguous: bool,
    bridge: Option<usize>,
    plugin: Option<usize>,
}

/// Directives that Mosquitto has removed.
const REMOVED: [&str; 5] =
    ["ffdc_output", "max_log_entries", "store_clean_interval", "trace_level", "trace_output"];

impl Reading<'_> {
    fn file(&mut self, bytes: &[u8], path: &Path, is_main: bool) {
        let name: Arc<str> = path.display().to_string().into();
        let mut current =
            Current { name, is_main, listener: None, is_ambiguous: false, bridge: None, plugin: None };
        if bytes.starts_with(b"\xef\xbb\xbf") {
            let why =
                "the file begins with a byte order mark, which Mosquitto takes for a part of the first word";
            self.problems.push(Problem::at(Place { file: current.name.clone(), line: 1 }, "", why));
            return;
        }
        if let Some(nul) = bytes.iter().position(|byte| *byte == 0) {
            let line = bytes[..nul].iter().filter(|byte| **byte == b'\n').count() + 1;
            let why = "there is a NUL byte, behind which Mosquitto reads nothing more";
            self.problems.push(Problem::at(Place { file: current.name.clone(), line }, "", why));
            return;
        }
        for line in lines(bytes) {
            let place = Place { file: current.name.clone(), line: line.number };
            if let Err((shown, reason)) = self.line(&line, &place, &mut current) {
                self.problems.push(Problem::at(place, shown, reason));
            }
        }
    }

    fn line(
        &mut self,
        line: &Line<'_>,
        place: &Place,
        current: &mut Current,
    ) -> Result<(), (String, String)> {
        let name = String::from_utf8_lossy(line.word).into_owned();
        let Some(directive) = Directive::find(&name) else {
            // An unknown word may be a secret on a line of its own.
            return Err((String::new(), unknown(&name)));
        };
        let rest = String::from_utf8_lossy(line.rest.unwrap_or_default()).into_owned();
        let text = format!("{name} {rest}");
        let shown =
            |reason| (Given::new(directive, &name, Value::Flag(false), place.clone(), &text).shown, reason);
        let value = value::read(directive, &name, line.rest).map_err(shown)?;
        let given = Given::new(directive, &name, value, place.clone(), text.trim_end());
        let line = given.shown.clone();
        self.place(given, current).map_err(|reason| (line, reason))
    }

    /// Gives a line to its scope.
    fn place(&mut self, given: Given, current: &mut Current) -> Result<(), String> {
        match given.directive.scope {
            Scope::Structure => self.structure(given, current),
            Scope::Global => push(&mut self.model.global, given),
            Scope::Security if !self.model.is_per_listener => {
                self.has_security = true;
                push(&mut self.model.global, given)
            }
            Scope::Security | Scope::Listener => {
                self.has_security |= given.directive.scope == Scope::Security;
                push(&mut self.owner(&given, current)?.block, given)
            }
            Scope::Bridge => match current.bridge {
                Some(bridge) => push(&mut self.model.bridges[bridge].block, given),
                None => Err(format!(
                    "`{}` is about a bridge, and there is no `connection` line above it in this file",
                    given.name
                )),
            },
            Scope::Plugin => match current.plugin {
                Some(plugin) => push(&mut self.model.plugins[plugin].options, given),
                None => Err(format!("`{}` is an option of a plugin, and there is none above it", given.name)),
            },
        }
    }

    /// The listener that an option belongs to.
    fn owner(&mut self, given: &Given, current: &Current) -> Result<&mut Listener, String> {
        let name = &given.name;
        if current.is_ambiguous {
            return Err(format!(
                "`{name}` stands below a `port` that stands below a `listener`: it belongs to that listener in \
                 Mosquitto 2.0, and to the port in 2.1; write `listener PORT` instead of `port PORT`"
            ));
        }
        let at = current.listener.unwrap_or(At::Default);
        if at == At::Default && ["mount_point", "accept_protocol_versions"].contains(&name.as_str()) {
            return Err(format!("`{name}` needs a `listener` line above it in this file"));
        }
        Ok(self.model.listener_mut(at))
    }

    fn structure(&mut self, given: Given, current: &mut Current) -> Result<(), String> {
        match given.directive.name {
            "listener" => {
                self.model.listeners.push(listener(given)?);
                current.listener = Some(At::Named(self.model.listeners.len() - 1));
                current.is_ambiguous = false;
                Ok(())
            }
            "port" | "bind_address" => {
                match current.listener {
                    Some(At::Named(_)) => current.is_ambiguous = given.name == "port",
                    _ => current.listener = Some(At::Default),
                }
                push(&mut self.model.default_listener.block, given)
            }
            "per_listener_settings" => self.per_listener(given),
            "include_dir" if current.is_main => self.include(given),
            "include_dir" => Err("`include_dir` is for the main file only".to_owned()),
            "connection" => self.bridge(given, current),
            _ => self.plugin(given, current),
        }
    }

    fn per_listener(&mut self, given: Given) -> Result<(), String> {
        if given.flag() && self.has_security {
            return Err("`per_listener_settings` must stand above all other security options".to_owned());
        }
        if !given.flag() && self.model.is_per_listener {
            return Err("`per_listener_settings` is true further above".to_owned());
        }
        self.model.is_per_listener = given.flag();
        given.is_settled.set(true);
        push(&mut self.model.global, given)
    }

    fn bridge(&mut self, given: Given, current: &mut Current) -> Result<(), String> {
        let name = given.text().to_owned();
        if self.model.bridges.iter().any(|bridge| bridge.line.text() == name) {
            return Err(format!("there are two bridges with the name {name}"));
        }
        self.model.bridges.push(Bridge { line: given, block: Block::default() });
        current.bridge = Some(self.model.bridges.len() - 1);
        Ok(())
    }

    fn plugin(&mut self, given: Given, current: &mut Current) -> Result<(), String> {
        self.has_security = true;
        let of_listener =
            ["plugin", "auth_plugin"].contains(&given.directive.name) && self.model.is_per_listener;
        let of = of_listener.then_some(current.listener.unwrap_or(At::Default));
        self.model.plugins.push(Plugin { line: given, of, options: Block::default() });
        current.plugin = Some(self.model.plugins.len() - 1);
        Ok(())
    }

    fn include(&mut self, given: Given) -> Result<(), String> {
        let directory = PathBuf::from(given.text());
        let explain = |error| format!("cannot read the directory {}: {error}", directory.display());
        let mut names = self.system.list(&directory).map_err(explain)?;
        names.retain(|name| is_included(name));
        names.sort_by_key(|name| sort_key(name));
        for name in names {
            let path = directory.join(name);
            match self.system.read(&path) {
                Ok(bytes) => self.file(&bytes, &path, false),
                Err(error) => {
                    let reason = format!("cannot read {}: {error}", path.display());
                    self.problems.push(Problem::at(given.place.clone(), given.shown.clone(), reason));
                }
            }
        }
        given.is_settled.set(true);
        push(&mut self.model.global, given)
    }

    /// Looks for what only the end of the files can show.
    fn finish(&mut self) {
        for bridge in &self.model.bridges {
            let name = bridge.line.text();
            let has = |names: &[&str]| names.iter().any(|name| bridge.block.has(name));
            let reason = match (has(&["address", "addresses"]), has(&["topic"])) {
                (false, _) => format!("the bridge {name} has no `address`"),
                (_, false) => format!("the bridge {name} has no `topic`"),
                _ => continue,
            };
            self.problems.push(Problem::at(bridge.line.place.clone(), bridge.line.shown.clone(), reason));
        }
    }
}

fn unknown(name: &str) -> String {
    let escaped = name.escape_default();
    if REMOVED.contains(&name) {
        return format!("Mosquitto has removed `{escaped}`, and refuses it too; delete the line");
    }
    if name.starts_with('#') {
        return "a comment begins with `#` as the first character of its line".to_owned();
    }
    if name.contains('\t') {
        return format!("`{escaped}` has a tab in it; Mosquitto separates words by blanks only");
    }
    // The value may be a secret.
    if let Some((word, _)) = name.split_once('=').filter(|(word, _)| Directive::find(word).is_some()) {
        return format!("a line has no `=`: write `{word}`, a blank and the value");
    }
    match Directive::nearest(name) {
        Some(nearest) => format!("there is no directive `{escaped}`; did you mean `{nearest}`?"),
        None => format!("there is no directive `{escaped}`"),
    }
}

/// Adds a line to a scope, unless its directive may be there once only.
fn push(block: &mut Block, given: Given) -> Result<(), String> {
    if given.directive.again == Again::Never
        && let Some(earlier) = block.last(given.directive.name)
    {
        return Err(format!("`{}` is there twice: also in {}", given.name, earlier.place));
    }
    block.givens.push(given);
    Ok(())
}

fn listener(given: Given) -> Result<Listener, String> {
    let port = given.text();
    let is_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if !is_port || port.parse::<u16>().is_err() {
        return Err(format!("`{}` is no port from 0 to 65535", port.escape_default()));
    }
    let has_path = given.words().get(1).is_some_and(|word| !word.starts_with('#'));
    if port.parse() == Ok(0u16) && !has_path {
        return Err("a listener with port 0 needs the path of a Unix socket".to_owned());
    }
    Ok(Listener { line: Some(given), block: Block::default() })
}

/// Whether an entry of a directory is included: its name ends in `.conf`, and has more than that.
fn is_included(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    name.len() > 5 && name.ends_with(b".conf")
}

/// The order of included files: bytes are compared as capitals first, and then as they are, one after the other.
fn sort_key(name: &OsStr) -> Vec<(u8, u8)> {
    name.as_encoded_bytes().iter().map(|byte| (byte.to_ascii_uppercase(), *byte)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_files_are_in_mosquittos_order() {
        let mut names = ["b", "ab", "B", "a", "01", "A", "00", "AC"].map(OsStr::new);
        names.sort_by_key(|name| sort_key(name));
        assert_eq!(names, ["00", "01", "A", "AC", "a", "ab", "B", "b"].map(OsStr::new));
    }
}
