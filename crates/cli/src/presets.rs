//! Flags from environment variables and from named profiles.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use wire::Shown;

use crate::arguments::apply;
use crate::defaults;
use crate::failure::Failure;
use crate::settings::{Settings, Tool};

/// Environment variables, and the flags for which they stand.
const VARIABLES: &[(&str, &str)] = &[
    ("PONDHAWK_HOST", "-h"),
    ("PONDHAWK_PORT", "-p"),
    ("PONDHAWK_USERNAME", "-u"),
    ("PONDHAWK_PASSWORD", "-P"),
    ("PONDHAWK_CAFILE", "--cafile"),
    ("PONDHAWK_CAPATH", "--capath"),
    ("PONDHAWK_CERT", "--cert"),
    ("PONDHAWK_KEY", "--key"),
];

/// Environment variable with the name of a profile.
const PROFILE: &str = "PONDHAWK_PROFILE";

/// Names of the environment variables that the programs read.
pub fn variables() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().map(|(name, _)| *name).chain([PROFILE])
}

/// Applies environment variables and the profile, which has this name if `--profile` was given.
///
/// A profile of the command line overrides variables, and variables override the profile of a variable.
pub(crate) fn apply_presets(settings: &mut Settings, profile: Option<&str>) -> Result<(), Failure> {
    match (profile, variable(PROFILE)) {
        (Some(profile), _) => {
            apply_variables(settings)?;
            apply_profile(settings, OsStr::new(profile))
        }
        (None, Some(profile)) => {
            let applied = apply_profile(settings, &profile);
            applied.map_err(|failure| from(failure, PROFILE))?;
            apply_variables(settings)
        }
        (None, None) => apply_variables(settings),
    }
}

/// Settings for the connection of a tool without Mosquitto's flags: `probe` and `tap`.
///
/// # Errors
/// A value that is not valid, or a profile that does not exist.
pub(crate) fn connection(profile: Option<&str>) -> Result<Settings, Failure> {
    let mut settings = Settings::new(Tool::Subscribe);
    apply_presets(&mut settings, profile)?;
    Ok(settings)
}

/// The broker that environment or profile name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broker {
    /// `mqtt`, `mqtts`, `ws`, `wss` or `quic`.
    pub(crate) scheme: &'static str,
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Broker {
    /// # Errors
    /// No host is named, or a Unix socket, which the tool cannot use. `flag` is the argument that names a broker instead.
    pub(crate) fn of(presets: &Settings, flag: &str) -> Result<Self, Failure> {
        let advice = || format!("Give {flag}, or set PONDHAWK_HOST.");
        if presets.server.unix.is_some() {
            let unusable = Failure::new("Error: The profile names a Unix socket, and a host is needed.");
            return Err(unusable.advise(advice()));
        }
        let host = presets.server.host.clone();
        let host = host.ok_or_else(|| Failure::new("Error: No broker is named.").advise(advice()))?;
        let scheme = match (presets.server.websocket.is_some(), presets.wants_tls()) {
            _ if presets.server.has_quic => "quic",
            (false, false) => "mqtt",
            (false, true) => "mqtts",
            (true, false) => "ws",
            (true, true) => "wss",
        };
        Ok(Self { scheme, host, port: presets.port() })
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        ["mqtts", "wss", "quic"].contains(&self.scheme)
    }

    pub(crate) fn url(&self) -> String {
        let Self { scheme, host, port } = self;
        if host.contains(':') {
            format!("{scheme}://[{host}]:{port}")
        } else {
            format!("{scheme}://{host}:{port}")
        }
    }
}

fn apply_variables(settings: &mut Settings) -> Result<(), Failure> {
    for (name, flag) in VARIABLES {
        if let Some(value) = variable(name) {
            let applied = apply(settings, &[OsString::from(*flag), value]);
            applied.map_err(|failure| from(failure, name))?;
        }
    }
    Ok(())
}

/// A variable that is set and not empty.
fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

fn from(failure: Failure, name: &str) -> Failure {
    placed(failure, &format!("The value is that of the environment variable {name}."))
}

/// Adds the place of a flag to the advice about it.
fn placed(failure: Failure, place: &str) -> Failure {
    match &failure.advice {
        Some(advice) => {
            let both = format!("{advice} {place}");
            failure.advise(both)
        }
        None => failure.advise(place),
    }
}

fn apply_profile(settings: &mut Settings, name: &OsStr) -> Result<(), Failure> {
    let folder = folder().ok_or_else(|| Failure::new("Error: There is no home directory for profiles."))?;
    let is_name = name.to_str().is_some_and(|name| !name.starts_with('.') && !name.contains(['/', '\\']));
    let path = folder.join(name);
    let lines = if is_name { defaults::lines_of(&path)? } else { None };
    let shown = Shown(name.display());
    let Some(lines) = lines else {
        let missing = Failure::new(format!("Error: There is no profile '{shown}'."));
        return Err(missing.advise(format!("{}: {}.", Shown(folder.display()), existing(&folder))));
    };
    let place = format!("The flag is in the profile {}.", Shown(path.display()));
    for line in lines {
        let applied = apply(settings, &line);
        applied.map_err(|failure| placed(failure, &place))?;
    }
    if settings.profile.is_some() {
        return Err(Failure::new("Error: A profile cannot name another profile.").advise(place));
    }
    Ok(())
}

fn folder() -> Option<PathBuf> {
    Some(defaults::folder()?.join("pondhawk/profiles"))
}

/// Names of the existing profiles, for an error.
fn existing(folder: &Path) -> String {
    let names = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = names.map(|entry| Shown(entry.file_name().display()).to_string()).collect();
    names.sort_unstable();
    if names.is_empty() { "no profiles".to_owned() } else { format!("the profiles are {}", names.join(", ")) }
}
