//! Configuration files: our own, and Mosquitto's, which are translated.

use std::ffi::OsString;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use config::{Config, Environment, Flags, Machine, Report, Sources};
use mosquitto::{Language, Origin, Problem, Refusal, Remark, Start, System, ThisMachine};

use crate::files_read::FilesRead;
use crate::variables;

/// A configuration, and how it came about.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) config: Config,
    /// The origin of each value that is no default, by the names of keys.
    pub(crate) origins: Vec<(String, config::Origin)>,
    /// The translation of Mosquitto's files, if the file is one.
    pub(crate) translated: Option<Translation>,
}

impl Loaded {
    /// The way to add a first user to this configuration, for a notice.
    pub(crate) fn first_user(&self) -> &'static str {
        match self.translated {
            None => "`pondhawk user add NAME --config FILE`",
            Some(_) => "`pondhawk passwd -c FILE NAME`, and a line `password_file FILE`",
        }
    }
}

/// Our file in the place of Mosquitto's.
#[derive(Debug)]
pub(crate) struct Translation {
    pub(crate) toml: String,
    pub(crate) remarks: Vec<Remark>,
}

/// The reason why there is no configuration.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The main file cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The files or the flags have mistakes.
    Ours(Report),
    /// These environment variables set keys, beside a file of Mosquitto, for which they have no effect.
    Variables(Vec<String>),
    /// A file of users or rules cannot be used. The text is complete.
    Access(String),
    /// The file is Mosquitto's.
    Mosquittos(Refusal),
}

impl Failure {
    /// Returns the reason as text for a terminal, with or without colours.
    pub(crate) fn render(&self, colour: bool) -> String {
        match self {
            Self::Unreadable(path, error) => {
                format!("error: cannot read {}: {error}", wire::Shown(path.display()))
            }
            Self::Ours(report) => report.render(colour),
            Self::Variables(names) => {
                let names = names.join(", ");
                format!("error: environment variables set keys only beside a file of Pondhawk: unset {names}")
            }
            Self::Access(text) => text.clone(),
            Self::Mosquittos(refusal) => {
                // A line may have a URL, such as that of a bridge.
                let refusal = config::hide_users(&refusal.to_string());
                format!(
                    "{refusal}\n\nThis is a file of Mosquitto; docs/MIGRATING.md has more about its lines."
                )
            }
        }
    }
}

/// Reads a configuration file in the language of its content. `files` gets the stamps of all files.
///
/// # Errors
/// The file cannot be read, has a mistake, or asks for something that the broker cannot do.
pub(crate) fn load(
    path: Option<&Path>,
    flags: &Flags,
    machine: &Machine,
    files: &FilesRead,
) -> Result<Loaded, Failure> {
    let Some(path) = path else {
        let sources = Sources::gather(None, Path::new(""), &flags.environment, files);
        return parse(&sources, flags, machine);
    };
    let unreadable = |error| Failure::Unreadable(PathBuf::from(path), error);
    // Read once, because it may be a pipe.
    let bytes = files.read_main(path).map_err(unreadable)?;
    if mosquitto::language(path, &bytes) == Language::Mosquitto {
        return translate(&WithMain { path, bytes, files }, flags, machine);
    }
    let utf8 = |_| unreadable(io::Error::new(io::ErrorKind::InvalidData, "the file is not UTF-8"));
    let text = String::from_utf8(bytes).map_err(utf8)?;
    let main = (&*wire::Shown(path.display()).to_string(), &*text);
    parse(&Sources::gather(Some(main), directory_of(path), &flags.environment, files), flags, machine)
}

/// The directory at which relative paths in `include` begin. A pipe has none, and means the working directory.
fn directory_of(path: &Path) -> &Path {
    let is_file = path.is_file() && !path.starts_with("/dev") && !path.starts_with("/proc");
    path.parent().filter(|_| is_file).unwrap_or(Path::new(""))
}

fn parse(sources: &Sources, flags: &Flags, machine: &Machine) -> Result<Loaded, Failure> {
    let (config, origins) = Config::parse_with_origins(sources, flags, machine).map_err(Failure::Ours)?;
    Ok(Loaded { config, origins, translated: None })
}

/// Reads a configuration in our own language without flags and variables, for a program that changes its files.
///
/// # Errors
/// As [`load`], as text. A file of Mosquitto is refused.
pub(crate) fn load_ours(path: &Path, machine: &Machine) -> Result<Config, String> {
    let loaded = load(Some(path), &Flags::default(), machine, &FilesRead::default());
    let loaded = loaded.map_err(|failure| failure.render(false))?;
    match loaded.translated {
        None => Ok(loaded.config),
        Some(_) => Err(format!(
            "{} is a file of Mosquitto, and this command needs one of Pondhawk",
            wire::Shown(path.display())
        )),
    }
}

/// This machine, with the main file as it was read already.
struct WithMain<'a> {
    path: &'a Path,
    bytes: Vec<u8>,
    files: &'a FilesRead,
}

impl System for WithMain<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if path == self.path { Ok(self.bytes.clone()) } else { self.files.read(path) }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        self.files.list(directory)
    }

    fn addresses(&self, host: &str) -> Vec<IpAddr> {
        ThisMachine.addresses(host)
    }

    fn has_ipv6(&self) -> bool {
        ThisMachine.has_ipv6()
    }
}

/// A text of the configuration without the queries of its URLs, which may have secrets. For those who look at a running broker.
pub(crate) fn without_queries(text: &str) -> String {
    let of_url = |line: &str| {
        let Some((before, rest)) = line.split_once("://") else { return line.to_owned() };
        let (url, behind) = rest.split_at(rest.find('"').unwrap_or(rest.len()));
        let url = url.split_once('?').map_or_else(|| url.to_owned(), |(place, _)| format!("{place}?…"));
        format!("{before}://{url}{behind}")
    };
    let end = if text.ends_with('\n') { "\n" } else { "" };
    text.lines().map(of_url).collect::<Vec<_>>().join("\n") + end
}

/// Returns the configuration as a file, with the origin of each value.
///
/// # Errors
/// As [`load`].
pub(crate) fn show(path: Option<&Path>, flags: &Flags, machine: &Machine) -> Result<String, Failure> {
    let Loaded { config, origins, translated } = load(path, flags, machine, &FilesRead::default())?;
    Ok(translated.map_or_else(|| config.to_toml_with_origins(&origins), |translation| translation.toml))
}

fn translate(main: &WithMain<'_>, flags: &Flags, machine: &Machine) -> Result<Loaded, Failure> {
    let variables = variables::setting_keys(&flags.environment);
    if !variables.is_empty() {
        return Err(Failure::Variables(variables));
    }
    // With addresses on the command line, the port counts as in any other file.
    let start = Start { port: flags.port, is_verbose: flags.verbose > 0 };
    let translated = mosquitto::translate(main.path, &start, main).map_err(Failure::Mosquittos)?;
    // `${` has no meaning in Mosquitto's files.
    let rest = Flags { port: None, verbose: 0, environment: Environment::new(), ..flags.clone() };
    let name = wire::Shown(main.path.display()).to_string();
    let source = Sources::of(&name, &translated.toml);
    let config = Config::parse(&source, &rest, machine)
        .map_err(|report| Failure::Mosquittos(refusal(&report, &translated.origins)))?;
    let translation = Translation { toml: translated.toml, remarks: translated.remarks };
    Ok(Loaded { config, origins: Vec::new(), translated: Some(translation) })
}

/// Says of each problem in our file from which line of Mosquitto's it comes.
fn refusal(report: &Report, origins: &[Option<Origin>]) -> Refusal {
    let problems = report.problems().iter().map(|problem| {
        let line = report.line_and_column(problem).map(|(line, _)| line - 1);
        // The header of a table has no origin: the first key below it has.
        let below = line.and_then(|line| origins.get(line..)).unwrap_or_default();
        let origin = below.iter().flatten().next();
        Problem {
            place: origin.map(|origin| origin.place.clone()),
            line: origin.map(|origin| origin.line.clone()).unwrap_or_default(),
            reason: problem.sentence(),
        }
    });
    Refusal { problems: problems.collect() }
}
