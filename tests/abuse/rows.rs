//! Whether `rows.tsv` and the tests agree.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const ROWS: &str = include_str!("rows.tsv");

/// A kind of abuse.
struct Row {
    /// As `F-01`.
    id: &'static str,
    /// The file and name of a test of the core, under virtual time, where TCP cannot show it all.
    also: Option<(&'static str, &'static str)>,
}

fn rows() -> impl Iterator<Item = Row> {
    ROWS.lines().skip(1).map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [id, peer, broker, also] = fields[..] else { panic!("four fields, not {line:?}") };
        assert!(!peer.is_empty() && !broker.is_empty(), "{id} says what comes of what");
        Row { id, also: also.split_once(' ') }
    })
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The names of all tests beside this file, each directly behind its attribute.
fn tests() -> Vec<String> {
    let folder = fs::read_dir(repository().join("tests/abuse")).expect("the folder of this file");
    let sources = folder.map(|entry| entry.expect("a file of this folder").path());
    let mut names = Vec::new();
    for source in sources.filter(|path| path.extension().is_some_and(|extension| extension == "rs")) {
        let text = fs::read_to_string(source).expect("a source is text");
        let tests = text.split("#[test]\nfn ").skip(1);
        names.extend(tests.filter_map(|rest| rest.split_once('(')).map(|(name, _)| name.to_owned()));
    }
    names
}

/// `F-01` of `f_01_a_remaining_length`; nothing of a test that belongs to no row.
fn row_of(test: &str) -> Option<String> {
    let mut parts = test.split('_');
    let (letter, number) = (parts.next()?, parts.next()?);
    let is_row = letter.len() == 1 && number.len() == 2 && number.bytes().all(|byte| byte.is_ascii_digit());
    is_row.then(|| format!("{}-{number}", letter.to_uppercase()))
}

#[test]
fn each_row_has_a_test_and_each_test_has_its_row() {
    let tested: BTreeSet<String> = tests().iter().filter_map(|test| row_of(test)).collect();
    let listed: BTreeSet<String> = rows().map(|row| row.id.to_owned()).collect();
    assert_eq!(listed.len(), rows().count(), "no row stands there twice");
    let without_row: Vec<_> = tested.difference(&listed).collect();
    assert!(without_row.is_empty(), "not in rows.tsv: {without_row:?}");
    let only_in_the_core = |id: &String| rows().any(|row| row.id == id && row.also.is_some());
    let without_test: Vec<_> = listed.difference(&tested).filter(|id| !only_in_the_core(id)).collect();
    assert!(without_test.is_empty(), "rows without a test: {without_test:?}");
}

#[test]
fn tests_of_the_core_that_rows_name_are_there() {
    for (file, test) in rows().filter_map(|row| row.also) {
        let source =
            fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(source.contains(&format!("#[test]\nfn {test}(")), "{file} has no test {test}");
    }
}
