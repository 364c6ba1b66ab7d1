//! The parts of the ledger: imports between them run one way, and none of their types is too large.

use std::collections::BTreeMap;

use crate::source::Source;

/// The folder of the parts. A part is a file in it, with the folder of the same name.
const FOLDER: &str = "crates/ledger/src/";

/// The parts from below. Each may import those before it. `Ledger` is the type that has all of them: it may only be named
/// behind it. `lib` names everything.
const PARTS: &[&str] = &[
    "gauges",
    "settings",
    "record",
    "queue",
    "retained",
    "lines",
    "bodies",
    "replies",
    "sessions",
    "publishing",
    "walks",
    "delivery",
    "restate",
    "Ledger",
    "ask",
    "connections",
    "recover",
    "lib",
];

/// Past these, a type has more than one thing to say.
const FIELDS_MAX: usize = 15;
const METHODS_MAX: usize = 60;

/// Every import from a part that stands above, and every name of a part that the table does not know.
pub(crate) fn imports(sources: &[Source]) -> Vec<String> {
    let place = |part: &str| PARTS.iter().position(|known| *known == part);
    let mut findings = Vec::new();
    for (source, part) in sources.iter().filter_map(|source| Some((source, part(source)?))) {
        let own = place(part);
        for name in source.names() {
            let Some(named) = name.text.strip_prefix("crate::").and_then(|rest| rest.split("::").next())
            else {
                continue;
            };
            if own.is_none() || place(named).is_none() || place(named) > own {
                findings.push(source.finding(name.line, format!("{part} may not import {named}")));
            }
        }
    }
    findings
}

/// Every type with too many fields or methods.
pub(crate) fn sizes(sources: &[Source]) -> Vec<String> {
    let mut types: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for found in sources.iter().filter(|source| part(source).is_some()).flat_map(Source::types) {
        let (fields, methods) = types.entry(found.name).or_default();
        *fields = found.fields.max(*fields);
        *methods += found.methods;
    }
    let too_large =
        |(_, (fields, methods)): &(_, (usize, usize))| *fields > FIELDS_MAX || *methods > METHODS_MAX;
    let finding = |(name, (fields, methods))| {
        format!("{name}: {fields} fields, {methods} methods; at most {FIELDS_MAX} and {METHODS_MAX}")
    };
    types.into_iter().filter(too_large).map(finding).collect()
}

fn part(source: &Source) -> Option<&str> {
    let path = source.path.strip_prefix(FOLDER)?;
    path.split(['/', '.']).next()
}

#[test]
fn an_import_from_above_and_a_part_without_a_place_are_found() {
    let at = |path: &str, text: &str| Source::parse(&format!("{FOLDER}{path}"), text);
    let sources = [
        at(
            "lines/group.rs",
            "use crate::{queue::Queue, lines::Line};\nuse crate::replies::Replies;\nuse crate::Ledger;",
        ),
        at("ask.rs", "use crate::Ledger;\nuse crate::misc::Name;"),
        at("lib.rs", "use crate::recover::Replay;"),
        at("other.rs", "use crate::lines::Line;"),
    ];
    let expected = [
        "crates/ledger/src/lines/group.rs:2: lines may not import replies",
        "crates/ledger/src/lines/group.rs:3: lines may not import Ledger",
        "crates/ledger/src/ask.rs:2: ask may not import misc",
        "crates/ledger/src/other.rs:1: other may not import lines",
    ];
    assert_eq!(imports(&sources), expected);
}

#[test]
fn a_type_that_is_too_large_is_found_over_all_files() {
    let fields: String = (0..16).map(|field| format!("f{field}: u8,")).collect();
    let methods = |count: usize| (0..count).map(|method| format!("fn m{method}() {{}}")).collect::<String>();
    let at = |path: &str, text: String| Source::parse(&format!("{FOLDER}{path}"), &text);
    let sources = [
        at("a.rs", format!("struct A {{ {fields} }} impl A {{ {} }} struct B {{}}", methods(2))),
        at("b.rs", format!("impl B {{ {} }}", methods(31))),
        at("c.rs", format!("impl B {{ {} }} impl C {{ {} }}", methods(30), methods(60))),
        Source::parse("crates/other/src/lib.rs", &format!("struct D {{ {fields} }}")),
    ];
    let expected =
        ["A: 16 fields, 2 methods; at most 15 and 60", "B: 0 fields, 61 methods; at most 15 and 60"];
    assert_eq!(sizes(&sources), expected);
}
