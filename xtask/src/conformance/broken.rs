//! Checks that the tests that are named for a statement fail when its rule is broken.
//!
//! `tests/conformance/broken.tsv` says how to break rules. All breakages are built at once into a copy of the
//! workspace. Each of them is behind a condition: an environment variable must name its statement. The tests of
//! each statement then run with that variable. All tests together also run without it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::ExitCode;

use super::evidence::{Evidence, Shown};
use super::statements::{Statement, Statements};
use crate::house::House;
use crate::log::Log;
use crate::random::Random;
use crate::tree::{BUILD_SECS_MAX, Ran, Test, Tree};

/// The file with the table. Each line has the fields `STATEMENT`, `FILE`, `CODE` and `BROKEN CODE`, separated by
/// tabs.
///
/// `CODE` occurs in the file once. The word `BROKEN` in the broken code is an expression, which is true while this
/// rule is to be broken.
const TABLE: &str = "tests/conformance/broken.tsv";

/// The environment variable that names the statement whose rule is broken.
const VARIABLE: &str = "PONDHAWK_BROKEN";

/// Time limit in seconds, far longer than the tests of one statement take.
const SECONDS_MAX: u64 = 300;

/// The crates without the standard library, which is needed to read an environment variable.
const WITHOUT_STD: [&str; 2] = ["crates/topic/src/lib.rs", "crates/wire/src/lib.rs"];

/// A way to break a rule.
#[derive(Debug, PartialEq, Eq)]
struct Breakage {
    id: String,
    path: String,
    code: String,
    broken: String,
}

impl Breakage {
    fn parse(text: &str) -> Result<Vec<Self>, String> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let breakage = |line: &str| {
            let fields: Vec<&str> = line.split('\t').collect();
            let [id, path, code, broken] = fields[..] else {
                return Err(format!("{TABLE}: not four fields: {line}"));
            };
            if !broken.contains("BROKEN") {
                return Err(format!("{TABLE}: nothing says when it is broken: {line}"));
            }
            let [id, path, code, broken] = [id, path, code, broken].map(str::to_owned);
            Ok(Self { id, path, code, broken })
        };
        lines.map(breakage).collect()
    }

    /// Returns the text of the file with the breakage.
    fn apply(&self, text: &str) -> Result<String, String> {
        let count = text.matches(&self.code).count();
        if count != 1 {
            return Err(format!("{}: {} has `{}` {count} times", self.id, self.path, self.code));
        }
        let is_broken = format!("::std::env::var(\"{VARIABLE}\").is_ok_and(|id| id == \"{}\")", self.id);
        Ok(text.replacen(&self.code, &self.broken.replace("BROKEN", &is_broken), 1))
    }
}

/// Prints statements that are drawn at random, for a person to break.
///
/// # Errors
/// If sources cannot be read.
pub(super) fn draw(house: &House, seed: Option<u64>, count: usize) -> Result<ExitCode, String> {
    let statements = Statements::read(house.root())?;
    let evidence = Evidence::collect(house.root(), &statements)?;
    let seed = seed.unwrap_or_else(Random::seed_of_now);
    println!("seed {seed}");
    let shown = statements.iter().filter(|statement| !evidence.of(&statement.id).is_empty());
    for statement in Random::new(seed).draw(shown.collect(), count) {
        println!("{} ({}): {}", statement.id, statement.side, statement.rule);
        for test in evidence.of(&statement.id) {
            println!("    {} {}", test.path, test.name);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Breaks the rules of the table, or only these, and prints the results of the tests that are named for them.
///
/// # Errors
/// If the table does not fit the sources, the broken code does not compile, or a test fails without a breakage.
pub(super) fn run(house: &House, ids: &[String]) -> Result<ExitCode, String> {
    let text = fs::read_to_string(house.root().join(TABLE)).map_err(|error| format!("{TABLE}: {error}"))?;
    let breakages = Breakage::parse(&text)?;
    let statements = Statements::read(house.root())?;
    let evidence = Evidence::collect(house.root(), &statements)?;
    let mut log = Log::create(house.target().join("xtask/broken.log"))?;
    let tree = Tree::refresh(house)?;
    apply(&tree, &breakages)?;
    let wanted: BTreeSet<&str> = breakages.iter().map(|breakage| breakage.id.as_str()).collect();
    let wanted = wanted.into_iter().filter(|id| ids.is_empty() || ids.iter().any(|one| one == id));
    let wanted: Vec<(&str, Vec<Named>)> = wanted
        .map(|id| Ok((id, Named::of(find(&statements, id)?, &evidence)?)))
        .collect::<Result<_, String>>()?;
    let mut trial = Trial { house, tree, log: &mut log };
    trial.build()?;
    trial.control(wanted.iter().flat_map(|(_, tests)| tests))?;
    let (mut red, mut green) = (0, 0);
    for (id, tests) in &wanted {
        for test in tests {
            let ran = trial.run(&test.target, &[&test.name], Some(id))?;
            // A test that did not end, or did not compile, has not noticed the breakage.
            *(if ran == Ran::Red { &mut red } else { &mut green }) += 1;
            println!("{id}\t{}\t{}\t{ran:?}", test.path, test.name);
        }
    }
    println!("{} statements, {red} tests red, {green} not", wanted.len());
    Ok(if green == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn find<'a>(statements: &'a Statements, id: &str) -> Result<&'a Statement, String> {
    let mut found = statements.iter().filter(|statement| statement.id.to_string() == id);
    found.next().ok_or_else(|| format!("{TABLE}: there is no statement {id}"))
}

/// Writes all breakages into the copy.
fn apply(tree: &Tree, breakages: &[Breakage]) -> Result<(), String> {
    let mut files: BTreeMap<&str, String> = BTreeMap::new();
    let text_of = |files: &mut BTreeMap<&str, String>, path: &str| match files.remove(path) {
        Some(text) => Ok(text),
        None => tree.read(path),
    };
    for breakage in breakages {
        let text = text_of(&mut files, &breakage.path)?;
        files.insert(&breakage.path, breakage.apply(&text)?);
    }
    for path in WITHOUT_STD {
        let text = text_of(&mut files, path)?;
        files.insert(path, text.replacen("extern crate alloc;", "extern crate alloc;\nextern crate std;", 1));
    }
    files.iter().try_for_each(|(path, text)| tree.write(path, text))
}

/// A test that is named for a statement.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    path: String,
    name: String,
    target: Vec<String>,
}

impl Named {
    /// Returns the tests of a statement, except scenarios of features, whose runner cannot run one by its name.
    fn of(statement: &Statement, evidence: &Evidence) -> Result<Vec<Self>, String> {
        let mut tests: Vec<Self> = Vec::new();
        for shown in evidence.of(&statement.id) {
            let folder = shown.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let runs: &[Shown] = if shown.name.starts_with('"') {
                &evidence.tables[folder]
            } else {
                std::slice::from_ref(shown)
            };
            for Shown { name, path } in runs {
                let Some(target) = target(path) else { continue };
                let test = Self { path: path.clone(), name: name.clone(), target };
                if !tests.contains(&test) {
                    tests.push(test);
                }
            }
        }
        Ok(tests)
    }
}

/// Returns cargo's arguments for the tests of a file.
fn target(path: &str) -> Option<Vec<String>> {
    let parts: Vec<&str> = path.split('/').collect();
    let file = |part: &str| part.trim_end_matches(".rs").to_owned();
    let (package, kind) = match parts[..] {
        ["crates", name, "src", ..] => (format!("pondhawk-{name}"), vec!["--lib".to_owned()]),
        ["crates", name, "tests", test, ..] => {
            (format!("pondhawk-{name}"), vec!["--test".to_owned(), file(test)])
        }
        ["tests", test, _, ..] => ("pondhawk-tests".to_owned(), vec!["--test".to_owned(), file(test)]),
        _ => return None,
    };
    Some([vec!["-p".to_owned(), package], kind].concat())
}

struct Trial<'a> {
    house: &'a House,
    tree: Tree,
    log: &'a mut Log,
}

impl Trial<'_> {
    /// Builds the broker that end-to-end tests start.
    fn build(&mut self) -> Result<(), String> {
        let mut build = self.tree.shell(self.house, "exec \"$@\"", BUILD_SECS_MAX);
        self.log.run(build.args(["build", "--package", "pondhawk", "--bin", "pondhawk"]))
    }

    /// Checks that all tests pass without a breakage.
    fn control<'t>(&mut self, tests: impl Iterator<Item = &'t Named>) -> Result<(), String> {
        let mut names: BTreeMap<&[String], BTreeSet<&str>> = BTreeMap::new();
        for test in tests {
            names.entry(&test.target).or_default().insert(&test.name);
        }
        for (target, names) in names {
            let names: Vec<&str> = names.into_iter().collect();
            let ran = self.run(target, &names, None)?;
            if ran != Ran::Green {
                let log = self.log.path().display();
                return Err(format!("{}: {ran:?} with nothing broken, see {log}", target.join(" ")));
            }
        }
        Ok(())
    }

    fn run(&mut self, target: &[String], names: &[&str], id: Option<&str>) -> Result<Ran, String> {
        let target: Vec<&str> = target.iter().map(String::as_str).collect();
        let (packages, targets) = target.split_at(2);
        let built = self.tree.built();
        let built = built.to_str().ok_or("the path of the workspace is no text")?;
        let environment = [("PONDHAWK_BUILT", built), (VARIABLE, id.unwrap_or_default())];
        let test = Test { packages, targets, names, environment: &environment, seconds_max: SECONDS_MAX };
        self.tree.test(self.house, &test, self.log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_broken_where_its_code_stands_once() {
        let table = "# how\nMQTT-1.2.3-4\ta.rs\tx > y\tx > y && !BROKEN\n";
        let breakage = &Breakage::parse(table).unwrap()[0];
        let broken = breakage.apply("if x > y {}").unwrap();
        assert_eq!(
            broken,
            "if x > y && !::std::env::var(\"PONDHAWK_BROKEN\").is_ok_and(|id| id == \"MQTT-1.2.3-4\") {}"
        );
        assert!(breakage.apply("x > y; x > y").is_err());
        assert!(breakage.apply("x < y").is_err());
        assert!(Breakage::parse("MQTT-1.2.3-4\ta.rs\tx\ty\n").is_err());
        assert!(Breakage::parse("MQTT-1.2.3-4\ta.rs\tBROKEN\n").is_err());
    }

    #[test]
    fn cargo_finds_the_tests_of_a_file() {
        let words = |path: &str| target(path).map(|words| words.join(" "));
        assert_eq!(words("crates/wire/src/a.rs").unwrap(), "-p pondhawk-wire --lib");
        assert_eq!(words("crates/wire/tests/a.rs").unwrap(), "-p pondhawk-wire --test a");
        assert_eq!(words("crates/wire/tests/a/b.rs").unwrap(), "-p pondhawk-wire --test a");
        assert_eq!(words("tests/abuse/connect.rs").unwrap(), "-p pondhawk-tests --test abuse");
        assert_eq!(words("features/connect.feature"), None);
    }
}
