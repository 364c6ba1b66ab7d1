//! What the pure core may not name, and what unsafe code has to say.

use crate::source::{Name, Source};

/// Crates without sockets, files, threads, clock and randomness: what they need of these is handed to them.
pub(crate) const PURE: &[&str] = &[
    "topic", "wire", "ldap", "capture", "base", "index", "session", "protocol", "record", "ledger", "auth",
    "broker", "stream", "turn", "layers",
];

/// Crates that also work without the standard library.
const NO_STD: &[&str] = &["topic", "wire", "ldap"];

const MODULES: &[&str] =
    &["std::net", "std::fs", "std::thread", "std::process", "std::env", "tokio", "async_std"];
const FUNCTIONS: &[&str] =
    &["Instant::now", "SystemTime::now", "SystemTime", "UNIX_EPOCH", "thread_rng", "getrandom"];
const MACROS: &[&str] = &["print", "println", "eprint", "eprintln", "dbg"];

/// Everything in a pure crate that reaches outside of it.
pub(crate) fn findings(source: &Source) -> Vec<String> {
    let Some(name) = source.crate_name().filter(|name| PURE.contains(name)) else { return Vec::new() };
    let mut findings: Vec<String> = source
        .names()
        .iter()
        .filter(|found| !found.is_of_tests && reaches_outside(found))
        .map(|found| source.finding(found.line, format!("the pure core may not name {}", found.text)))
        .collect();
    if source.path.ends_with(&format!("crates/{name}/src/lib.rs")) {
        findings.extend(missing_attributes(source, name));
    }
    findings
}

fn reaches_outside(name: &Name) -> bool {
    let is_within = |module: &&str| name.text == *module || name.text.starts_with(&format!("{module}::"));
    let is_call = |function: &&str| name.text == *function || name.text.ends_with(&format!("::{function}"));
    MODULES.iter().any(is_within)
        || FUNCTIONS.iter().any(is_call)
        || (name.is_macro && MACROS.iter().any(is_call))
}

fn missing_attributes(source: &Source, name: &str) -> Vec<String> {
    let mut missing = Vec::new();
    if !source.text.contains("#![forbid(unsafe_code)]") {
        missing.push(source.finding(1, "a pure crate forbids unsafe code"));
    }
    let is_no_std = source.text.contains("#![no_std]") || source.text.contains("no_std)]");
    if NO_STD.contains(&name) && !is_no_std {
        missing.push(source.finding(1, format!("{name} works without the standard library")));
    }
    missing
}

/// Lines above an `unsafe` in which its `SAFETY:` comment may stand.
const EXPLANATION_LINES: usize = 6;

/// Every `unsafe` in a file that does not allow it with a reason, or without a `SAFETY:` comment right above it or
/// above the `unsafe impl` it is part of.
pub(crate) fn unexplained_unsafe(source: &Source) -> Vec<String> {
    let names = source.names();
    let used = names.iter().filter(|name| name.text == "unsafe").map(|name| name.line);
    let lines: Vec<&str> = source.text.lines().collect();
    let has_reason =
        names.iter().any(|name| name.text == "unsafe_code") && source.text.contains("reason = \"");
    let has_comment = |line: usize| {
        let above = &lines[line.saturating_sub(EXPLANATION_LINES + 1)..line];
        above.iter().any(|text| text.contains("SAFETY:"))
    };
    let explained =
        |line: usize| has_comment(line) || unsafe_impl_around(&lines, line).is_some_and(has_comment);
    used.filter(|line| !has_reason || !explained(*line))
        .map(|line| source.finding(line, "unsafe code allows itself with a reason and has a SAFETY: comment"))
        .collect()
}

/// The line (from 1) of the `unsafe impl` that a line lies in; formatted code closes it with a brace at the margin.
fn unsafe_impl_around(lines: &[&str], line: usize) -> Option<usize> {
    let above = lines[..line].iter().enumerate().rev();
    let (index, opening) =
        above.take_while(|(_, text)| **text != "}").find(|(_, text)| text.starts_with("unsafe impl"))?;
    opening.ends_with('{').then_some(index + 1)
}

#[cfg(test)]
fn found_in(path: &str, text: &str) -> Vec<String> {
    findings(&Source::parse(path, text))
}

#[test]
fn each_way_outside_is_found_in_a_pure_crate_only() {
    for text in [
        "use std::net::IpAddr;",
        "use std::{fmt, fs};",
        "fn a() { std::thread::spawn(b); }",
        "fn a() { let now = Instant::now(); }",
        "fn a() { let now = std::time::Instant::now(); }",
        "use std::time::{Duration, SystemTime};",
        "use tokio::net::TcpStream;",
        "fn a() { println!(\"{b}\"); }",
    ] {
        let found = found_in("crates/session/src/a.rs", text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert!(found[0].starts_with("crates/session/src/a.rs:1: the pure core may not name "), "{found:?}");
        assert!(found_in("crates/net/src/a.rs", text).is_empty(), "{text}");
        assert!(found_in("crates/session/tests/a.rs", text).is_empty(), "{text}");
    }
}

#[test]
fn code_that_only_resembles_outside_access_is_not_found() {
    for text in [
        "// std::net\nconst A: &str = \"std::fs\";",
        "use std::time::Instant; fn a(now: Instant) {}",
        "use core::net::IpAddr;",
        "fn println() {} fn b() { println() }",
        "#[cfg(test)] mod tests { use std::thread; }",
    ] {
        assert!(found_in("crates/session/src/a.rs", text).is_empty(), "{text}");
    }
}

#[test]
fn a_pure_crate_says_so_at_its_root() {
    assert_eq!(found_in("crates/session/src/lib.rs", "").len(), 1);
    assert_eq!(found_in("crates/wire/src/lib.rs", "#![forbid(unsafe_code)]").len(), 1);
    assert!(found_in("crates/wire/src/lib.rs", "#![no_std]\n#![forbid(unsafe_code)]").is_empty());
}

#[test]
fn unsafe_without_a_reason_or_an_explanation_is_found() {
    let found = |text: &str| unexplained_unsafe(&Source::parse("crates/net/src/a.rs", text)).len();
    let reason = "#![expect(unsafe_code, reason = \"a system call\")]\n";
    assert_eq!(found("fn a() { unsafe { b() } }"), 1);
    assert_eq!(found(&format!("{reason}fn a() {{ unsafe {{ b() }} }}")), 1);
    assert_eq!(found("// SAFETY: b is\nfn a() { unsafe { b() } }"), 1);
    assert_eq!(found(&format!("{reason}// SAFETY: b is fine\nfn a() {{ unsafe {{ b() }} }}")), 0);
    assert_eq!(found("#![forbid(unsafe_code)] // unsafe"), 0);

    let body = "unsafe impl A for B {\n    unsafe fn c() {\n\n\n\n\n        unsafe { d() }\n    }\n}\n";
    assert_eq!(
        found(&format!("{reason}// SAFETY: B is fine\n{body}")),
        0,
        "what holds for all of it is said once"
    );
    assert_eq!(found(&format!("{reason}// SAFETY: B is fine\n{body}\n\nfn e() {{ unsafe {{ f() }} }}")), 1);
}
