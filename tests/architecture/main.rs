//! The architecture, checked: which crate may know which, what the pure core may name, how long a file may be.
//!
//! Each rule is a function from sources to findings, and its module shows on made-up input that it finds what it
//! should. The tests here run them on the workspace. A new crate goes into the table of `crates.rs`.

mod answers;
mod costs;
mod crates;
mod fates;
mod ledger;
mod manifests;
mod order;
mod parameters;
mod purity;
mod sizes;
mod source;
mod wording;

use std::fs;
use std::path::{Path, PathBuf};

use source::Source;

/// The root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the tests lie in the workspace")
}

/// Every Rust file of the project.
fn sources() -> Vec<Source> {
    let files =
        ["crates", "fuzz", "sim", "tests", "xtask"].map(|folder| files_in(&root().join(folder), "rs"));
    let sources: Vec<Source> = files.iter().flatten().map(|path| Source::read(&root(), path)).collect();
    assert!(sources.len() > 10, "the sources are found");
    sources
}

fn files_in(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.expect("a folder of the project can be read").path()) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !["target", "node_modules"].contains(&name) {
            files.extend(files_in(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn assert_none(findings: &[String]) {
    assert!(findings.is_empty(), "{} findings:\n{}\n", findings.len(), findings.join("\n"));
}

#[test]
fn imports_between_crates_run_downward_only() {
    assert_none(&crates::findings(&crates::packages_of(&root())));
}

#[test]
fn imports_between_the_parts_of_the_ledger_run_one_way() {
    assert_none(&ledger::imports(&sources()));
}

#[test]
fn the_types_of_the_ledger_have_few_fields_and_methods() {
    assert_none(&ledger::sizes(&sources()));
}

#[test]
fn the_counters_of_fates_are_written_in_one_place() {
    assert_none(&fates::findings(&sources()));
}

#[test]
fn the_pure_core_does_not_touch_the_outside_world() {
    let unwatched: Vec<&str> = crates::core().filter(|name| !purity::PURE.contains(name)).collect();
    assert!(unwatched.is_empty(), "{unwatched:?}");
    let sources = sources();
    assert_none(&sources.iter().flat_map(purity::findings).collect::<Vec<_>>());
}

#[test]
fn unsafe_code_says_why() {
    assert_none(&sources().iter().flat_map(purity::unexplained_unsafe).collect::<Vec<_>>());
}

#[test]
fn files_and_functions_are_short() {
    let ratchet = fs::read_to_string(root().join(sizes::RATCHET)).expect("the ratchet is there");
    assert_none(&sizes::findings(&sources(), &ratchet));
}

#[test]
fn parameter_lists_are_short() {
    assert_none(&parameters::findings(&sources()));
}

#[test]
fn the_index_of_questions_names_functions_that_exist() {
    let page = fs::read_to_string(root().join(answers::PAGE)).expect("the page is there");
    assert_none(&answers::findings(&page, &sources()));
}

#[test]
fn the_tests_that_the_page_of_costs_names_exist() {
    let page = fs::read_to_string(root().join(costs::PAGE)).expect("the page of costs is there");
    assert_none(&costs::findings(&page, &sources()));
}

#[test]
fn the_rules_of_order_are_named_where_they_are_kept_and_shown_by_tests() {
    let list = fs::read_to_string(root().join(order::LIST)).expect("the list is there");
    assert_none(&order::findings(&list, &sources()));
}

#[test]
fn nothing_is_unfinished_or_misnamed() {
    assert_none(&sources().iter().flat_map(wording::findings).collect::<Vec<_>>());
}

#[test]
fn tests_do_not_sleep() {
    assert_none(&sources().iter().flat_map(wording::sleeps).collect::<Vec<_>>());
}

#[test]
fn every_dependency_has_its_reason_and_every_crate_the_workspace_lints() {
    let manifests = ["crates", "sim", "tests", "xtask"].map(|folder| files_in(&root().join(folder), "toml"));
    let manifests = manifests.iter().flatten().filter(|path| path.ends_with("Cargo.toml"));
    let findings = manifests.flat_map(|path| {
        let name = path.strip_prefix(root()).expect("it lies in the workspace").display().to_string();
        manifests::findings(&name, &fs::read_to_string(path).expect("a manifest can be read"))
    });
    assert_none(&findings.collect::<Vec<_>>());
}

/// Another version of Rust would be a promise that nobody checks.
#[test]
fn the_minimum_version_of_rust_is_the_one_that_ci_builds_with() {
    let read = |name: &str| fs::read_to_string(root().join(name)).expect("it lies in the workspace");
    let value = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key));
        line.map(|value| value.trim_matches([' ', '=', '"']).to_owned()).expect("there is a line for it")
    };
    let minimum = value(&read("Cargo.toml"), "rust-version");
    let channel = value(&read("rust-toolchain.toml"), "channel");
    assert_eq!(channel, format!("{minimum}.0"));
    for page in ["crates/client/README.md", "docs/RUST.md"] {
        assert!(read(page).contains(&format!("Rust {minimum} or later")), "{page}");
    }
}

#[test]
fn every_package_has_a_readme_with_its_line_for_cargo() {
    let manifests = files_in(&root().join("crates"), "toml");
    // Not those of benchmarks that are workspaces of their own.
    let is_of_house =
        |path: &&PathBuf| !fs::read_to_string(path).unwrap_or_default().contains("\n[workspace]\n");
    let manifests = manifests.iter().filter(|path| path.ends_with("Cargo.toml")).filter(is_of_house);
    let findings = manifests.filter_map(|path| {
        let folder = path.parent().expect("a file has a folder");
        let package =
            format!("pondhawk-{}", folder.file_name()?.to_str()?).replace("pondhawk-pondhawk", "pondhawk");
        let readme = fs::read_to_string(folder.join("README.md")).unwrap_or_default();
        let line = format!("cargo add --git https://github.com/pondhawk/pondhawk {package}");
        (!readme.contains(&line)).then(|| format!("{package}: its README.md has no `{line}`"))
    });
    assert_none(&findings.collect::<Vec<_>>());
}
