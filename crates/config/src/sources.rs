//! The files of a configuration: the main one, and those that it includes.
//!
//! All files have places in one row of bytes, one after the other. A place in this row says the file, the line and the column.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::environment::{self, Environment};
use crate::kind::{Kind, ListOf, Pattern};
use crate::masked::masked;
use crate::report::Problem;

/// Maximum number of files that one configuration includes.
const INCLUDED_MAX: usize = 100;
/// Maximum number of files of which each includes the next, without the main one.
const DEPTH_MAX: usize = 4;
/// The key that includes other files.
pub(crate) const INCLUDE: &str = "include";

/// The files around the main one. Tests implement this with maps.
pub trait Files {
    /// Returns the bytes of a regular file of a bounded length.
    ///
    /// # Errors
    /// As the file system says, or the file is too large, or none.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Returns the names of all entries of a directory, in any order.
    ///
    /// # Errors
    /// As the file system says.
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>>;

    /// Returns a path that is the same for every name of the same file.
    fn identity(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
}

/// A place without files.
struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "files cannot be included here"))
    }

    fn list(&self, _: &Path) -> io::Result<Vec<OsString>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "files cannot be included here"))
    }
}

/// One file, and its place among all of them.
#[derive(Debug, Clone)]
pub(crate) struct SourceFile {
    /// The name in messages.
    pub(crate) name: String,
    pub(crate) text: String,
    /// Place of its first byte.
    pub(crate) start: usize,
}

/// The texts of all files, the main one first. A file comes before those that it includes.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
    /// The mistakes in `include`.
    pub(crate) problems: Vec<Problem>,
}

impl Sources {
    /// One file. A file that includes others is refused.
    pub fn of(name: &str, text: &str) -> Self {
        Self::gather(Some((name, text)), Path::new(""), &Environment::new(), &NoFiles)
    }

    /// The main file and all files that it includes, or that the environment includes. Relative paths in the main file begin at
    /// `base`. Without a main file, the environment alone may include some.
    ///
    /// A file that cannot be read is a mistake at the place that names it.
    pub fn gather(
        main: Option<(&str, &str)>,
        base: &Path,
        environment: &Environment,
        files: &dyn Files,
    ) -> Self {
        let (name, text) = main.unwrap_or_default();
        let main = main.map(|(name, _)| files.identity(Path::new(name)));
        let seen = main.into_iter().map(|path| (path, name.to_owned())).collect();
        let mut gathering = Gathering { sources: Self::default(), environment, files, seen, included: 0 };
        gathering.sources.push(name.to_owned(), text.to_owned());
        gathering.include(0, base, 1);
        gathering.sources
    }

    fn push(&mut self, name: String, text: String) {
        // A byte between two files, so that the end of one is not the beginning of the next.
        let start = self.files.last().map_or(0, |last| last.start + last.text.len() + 1);
        self.files.push(SourceFile { name, text, start });
    }

    /// The same files, without what may be a secret. All places stay the same.
    pub(crate) fn masked(&self) -> Self {
        let mut sources = self.clone();
        sources.files.iter_mut().for_each(|file| file.text = masked(&file.text));
        sources
    }

    /// The file with a place.
    pub(crate) fn file(&self, place: usize) -> Option<&SourceFile> {
        self.files.iter().rev().find(|file| file.start <= place)
    }

    /// File, line and column of a place. Line and column count from 1, and columns count characters.
    pub(crate) fn position(&self, place: usize) -> Option<(&SourceFile, usize, usize)> {
        let file = self.file(place)?;
        let before = &file.text[..place - file.start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Some((file, before.matches('\n').count() + 1, before[line_start..].chars().count() + 1))
    }

    /// Parses all files, and returns the table that they make together. Mistakes are added to `problems`.
    pub(crate) fn parse(&self, problems: &mut Vec<Problem>) -> DeTable<'_> {
        let mut document = DeTable::new();
        for file in &self.files {
            let (table, errors) = DeTable::parse_recoverable(&file.text);
            problems.extend(syntax_problems(&errors, file));
            let table = moved_table(table.into_inner(), file.start);
            self.merge(&mut document, table, problems);
        }
        document
    }

    /// Adds a file to those before it. Keys of one table may be in several files, and each key in one of them.
    fn merge<'a>(&self, document: &mut DeTable<'a>, table: DeTable<'a>, problems: &mut Vec<Problem>) {
        for (key, value) in table {
            if key.get_ref() == INCLUDE {
                continue;
            }
            let Some(earlier) = document.get_mut(key.get_ref().as_ref()) else {
                document.insert(key, value);
                continue;
            };
            let place = earlier.span().start;
            match (earlier.get_mut(), value.into_inner()) {
                (DeValue::Table(earlier), DeValue::Table(table)) => {
                    let name = key.get_ref();
                    table.into_iter().for_each(|(key, value)| {
                        let before = earlier.get_key_value(key.get_ref().as_ref()).map(|(key, _)| key.span());
                        match before {
                            Some(before) => {
                                let full = format!("{name}.{}", key.get_ref());
                                problems.push(self.twice(&full, before.start, key.span()));
                            }
                            None => {
                                earlier.insert(key, value);
                            }
                        }
                    });
                }
                (DeValue::Array(earlier), DeValue::Array(more))
                    if has_tables(earlier) && has_tables(&more) =>
                {
                    more.into_iter().for_each(|each| earlier.push(each));
                }
                _ => problems.push(self.twice(key.get_ref(), place, key.span())),
            }
        }
    }

    fn twice(&self, key: &str, before: usize, span: Range<usize>) -> Problem {
        let place =
            self.position(before).map(|(file, line, column)| format!("{}:{line}:{column}", file.name));
        Problem::at(span, format!("`{key}` is set in two files"))
            .label(format!("it is also at {}", place.unwrap_or_default()))
            .advice("no file overrides another one: leave the key out of one of them")
    }
}

fn has_tables(array: &[Spanned<DeValue<'_>>]) -> bool {
    array.iter().all(|each| each.get_ref().is_table())
}

/// Returns at most one problem per line. Further errors in the same line are mostly consequences of the first one.
fn syntax_problems(errors: &[toml::de::Error], file: &SourceFile) -> Vec<Problem> {
    let mut lines = Vec::new();
    let mut problems = Vec::new();
    for error in errors {
        let span = error.span().unwrap_or(file.text.len()..file.text.len());
        let line = file.text[..span.start].matches('\n').count();
        if !lines.contains(&line) {
            lines.push(line);
            let place = span.start + file.start..span.end + file.start;
            problems.push(Problem::at(place, format!("this is not TOML: {}", error.message())));
        }
    }
    problems
}

fn moved<T>(spanned: Spanned<T>, start: usize, each: impl FnOnce(T) -> T) -> Spanned<T> {
    let span = spanned.span();
    Spanned::new(span.start + start..span.end + start, each(spanned.into_inner()))
}

fn moved_table(table: DeTable<'_>, start: usize) -> DeTable<'_> {
    let entries = table.into_iter();
    entries.map(|(key, value)| (moved(key, start, |key| key), moved_value(value, start))).collect()
}

fn moved_value(value: Spanned<DeValue<'_>>, start: usize) -> Spanned<DeValue<'_>> {
    moved(value, start, |value| match value {
        DeValue::Array(array) => {
            DeValue::Array(array.into_iter().map(|each| moved_value(each, start)).collect())
        }
        DeValue::Table(table) => DeValue::Table(moved_table(table, start)),
        other => other,
    })
}

/// The files that were found so far.
struct Gathering<'a> {
    sources: Sources,
    environment: &'a Environment,
    files: &'a dyn Files,
    /// The identity of each file, and the place that names it.
    seen: Vec<(PathBuf, String)>,
    /// The number of files that were read, or could not be read.
    included: usize,
}

/// A pattern of `include`, and its place. `None` is the environment.
type Named = (Option<Range<usize>>, String);

impl Gathering<'_> {
    /// Adds the files that a file includes, and those that these include.
    fn include(&mut self, number: usize, base: &Path, depth: usize) {
        for (place, pattern) in self.patterns(number) {
            match self.expand(&base.join(pattern)) {
                Ok(paths) => paths.iter().for_each(|path| self.add(path, place.as_ref(), depth)),
                Err(why) => self.refuse(place.as_ref(), why),
            }
        }
    }

    fn refuse(&mut self, place: Option<&Range<usize>>, why: String) {
        self.sources.problems.push(match place {
            Some(place) => Problem::at(place.clone(), why),
            None => Problem::in_flags(format!("the environment variable {}: {why}", self.variable())),
        });
    }

    fn variable(&self) -> String {
        environment::variable("", INCLUDE)
    }

    /// The patterns that a file names. The environment overrides those of the main file.
    fn patterns(&mut self, number: usize) -> Vec<Named> {
        let of_environment = self.environment.get(&self.variable()).filter(|_| number == 0);
        if let Some(text) = of_environment {
            // The reader of keys reports a variable with a mistake.
            let patterns = environment::read(text, ListOf::<Pattern>::read).unwrap_or_default();
            return patterns.into_iter().map(|pattern| (None, pattern)).collect();
        }
        let file = &self.sources.files[number];
        let (table, _) = DeTable::parse_recoverable(&file.text);
        let value = table.into_inner().remove(INCLUDE).map(|value| moved_value(value, file.start));
        // An empty place is that of a text that the parser could not read, and has reported.
        let Some(value) = value.filter(|value| !value.span().is_empty()) else { return Vec::new() };
        let read = match value.get_ref() {
            DeValue::Array(each) if !each.is_empty() => {
                each.iter().map(|each| (each.span(), self.read::<Pattern>(each.get_ref()))).collect()
            }
            all => vec![(value.span(), self.read::<Pattern>(all))],
        };
        let mut patterns = Vec::new();
        for (place, read) in read {
            match read {
                Ok(pattern) => patterns.push((Some(place), pattern)),
                Err(why) => {
                    let label = format!("expected {}", ListOf::<Pattern>::expected());
                    let problem = Problem::at(place, format!("`{INCLUDE}` {why}")).label(label);
                    self.sources.problems.push(problem);
                }
            }
        }
        patterns
    }

    fn read<K: Kind>(&self, value: &DeValue<'_>) -> Result<K::Value, String> {
        environment::read_expanded(value, self.environment, K::read)
    }

    /// The files that a pattern means, in the order of the bytes of their names. A pattern without wildcards is a name.
    fn expand(&self, pattern: &Path) -> Result<Vec<PathBuf>, String> {
        let name = pattern.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.contains(['*', '?']) {
            return Ok(vec![pattern.to_owned()]);
        }
        let directory = pattern.parent().filter(|parent| !parent.as_os_str().is_empty());
        let directory = directory.unwrap_or(Path::new("."));
        let names = self.files.list(directory);
        let mut names =
            names.map_err(|error| format!("cannot read {}: {error}", wire::Shown(directory.display())))?;
        names.retain(|found| found.to_str().is_some_and(|found| matches(name, found)));
        names.sort();
        Ok(names.into_iter().map(|name| pattern.with_file_name(name)).collect())
    }

    /// Adds a file, and those that it includes.
    fn add(&mut self, path: &Path, place: Option<&Range<usize>>, depth: usize) {
        let name = wire::Shown(path.display()).to_string();
        if depth > DEPTH_MAX {
            return self
                .refuse(place, format!("{name} is included by the last of {DEPTH_MAX} files: no deeper"));
        }
        self.included += 1;
        if self.included > INCLUDED_MAX {
            // One message is enough for all files above the limit.
            if self.included == INCLUDED_MAX + 1 {
                self.refuse(place, format!("more than {INCLUDED_MAX} files are included"));
            }
            return;
        }
        let identity = self.files.identity(path);
        if let Some((_, before)) = self.seen.iter().find(|(seen, _)| *seen == identity) {
            let why = format!("{name} is included twice, or includes itself; it is also at {before}");
            return self.refuse(place, why);
        }
        let before = place.and_then(|place| self.sources.position(place.start));
        let before = before.map(|(file, line, column)| format!("{}:{line}:{column}", file.name));
        self.seen.push((identity, before.unwrap_or_else(|| self.variable())));
        let text = self.files.read(path).map_err(|error| format!("cannot read {name}: {error}"));
        let utf8 = |_| format!("cannot read {name}: the file is not UTF-8");
        match text.and_then(|bytes| String::from_utf8(bytes).map_err(utf8)) {
            Ok(text) => {
                self.sources.push(name, text);
                let base = path.parent().unwrap_or(Path::new(""));
                self.include(self.sources.files.len() - 1, base, depth + 1);
            }
            Err(why) => self.refuse(place, why),
        }
    }
}

/// Whether a name matches a pattern: `*` stands for any characters, and `?` for one. A name that begins with a dot does not.
fn matches(pattern: &str, name: &str) -> bool {
    if name.starts_with('.') && !pattern.starts_with('.') {
        return false;
    }
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut of) = (0, 0);
    // The place behind the last star, and the character of the name up to which the star goes.
    let mut star = None;
    while of < name.len() {
        match (pattern.get(at), star) {
            (Some('*'), _) => {
                star = Some((at + 1, of));
                at += 1;
            }
            (Some(wanted), _) if *wanted == '?' || *wanted == name[of] => (at, of) = (at + 1, of + 1),
            (_, Some((behind, end))) => {
                star = Some((behind, end + 1));
                (at, of) = (behind, end + 1);
            }
            _ => return false,
        }
    }
    pattern[at..].iter().all(|rest| *rest == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks_match() {
        let rows = [
            ("*.toml", "a.toml", true),
            ("*.toml", ".toml", false),
            ("*.toml", ".a.toml", false),
            (".*", ".a", true),
            ("*.toml", "a.toml~", false),
            ("?0-*.t*l", "10-a.toml", true),
            ("?0-*.t*l", "0-a.toml", false),
            ("**a*b", "ab", true),
            ("a*a", "a", false),
            ("é?", "éà", true),
            ("*", "", true),
        ];
        for (pattern, name, is_match) in rows {
            assert_eq!(matches(pattern, name), is_match, "{pattern} {name}");
        }
    }
}
