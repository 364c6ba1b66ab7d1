//! What no file may say: that something is unfinished, a name that says nothing, a sleep in a test.

use crate::source::Source;

/// Written in two halves, so that this file does not find itself.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const MACROS: &[&str] = &["todo", "unimplemented"];

/// Words for a type or module that would fit any other as well.
const EMPTY_WORDS: &[&str] =
    &["manager", "handler", "helper", "helpers", "util", "utils", "common", "context"];

/// Everything unfinished and every empty name.
pub(crate) fn findings(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for (index, line) in source.text.lines().enumerate() {
        let mut words = line.split(|c: char| !c.is_alphanumeric());
        if let Some(mark) = words.find(|word| MARKS.contains(word)) {
            findings.push(source.finding(index + 1, format!("{mark}: finish it, or open an issue")));
        }
    }
    let names = source.names();
    for name in names.iter().filter(|name| name.is_macro && MACROS.contains(&name.text.as_str())) {
        findings.push(source.finding(name.line, format!("{}!: finish it", name.text)));
    }
    for pair in names.windows(2).filter(|pair| pair[0].text != "use") {
        if let Some(reason) = refuse(&pair[0].text, &pair[1].text) {
            findings.push(source.finding(pair[1].line, reason));
        }
    }
    findings
}

/// Whether `keyword name` defines something under a name that says nothing.
fn refuse(keyword: &str, name: &str) -> Option<String> {
    let defines = ["struct", "enum", "trait", "type", "mod", "fn"].contains(&keyword);
    if !defines {
        return None;
    }
    if keyword == "fn" && name.starts_with("get_") && name != "get_mut" {
        return Some(format!("{name}: a getter is called after what it gets"));
    }
    let empty = words(name).into_iter().find(|word| keyword != "fn" && EMPTY_WORDS.contains(&word.as_str()));
    empty.map(|word| format!("{name}: {word} says nothing about it"))
}

/// The words of a name in either case, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for character in name.chars() {
        if character.is_uppercase() || character == '_' {
            words.push(String::new());
        }
        words.last_mut().expect("there is a word").extend(character.to_lowercase().filter(|c| *c != '_'));
    }
    words
}

/// Every sleep in a test: it waits for an event instead.
pub(crate) fn sleeps(source: &Source) -> Vec<String> {
    let names = source.names();
    let sleeps = names.iter().filter(|name| name.is_of_tests);
    sleeps
        .filter(|name| ["thread::sleep", "time::sleep"].iter().any(|sleep| name.text.ends_with(sleep)))
        .map(|name| source.finding(name.line, "a test waits for what it waits for, not for a while"))
        .collect()
}

#[cfg(test)]
fn found_in(text: &str) -> usize {
    findings(&Source::parse("crates/x/src/a.rs", text)).len()
}

#[test]
fn unfinished_code_is_found() {
    assert_eq!(found_in(concat!("// TO", "DO: later")), 1);
    assert_eq!(found_in("fn a() { todo!() }"), 1);
    assert_eq!(found_in("fn a() { unimplemented!(\"b\") }"), 1);
    assert_eq!(found_in("fn todo() {} // a mastodon"), 0);
}

#[test]
fn names_that_say_nothing_are_found() {
    assert_eq!(found_in("struct SessionManager;"), 1);
    assert_eq!(found_in("mod utils;"), 1);
    assert_eq!(found_in("fn get_topic() {}"), 1);
    assert_eq!(found_in("fn target() {} fn handle() {} struct Manage; fn get_mut() {}"), 0);
}

#[test]
fn a_sleep_is_found_in_tests_only() {
    let found = |path: &str| sleeps(&Source::parse(path, "fn a() { std::thread::sleep(b); }")).len();
    assert_eq!(found("crates/x/tests/a.rs"), 1);
    assert_eq!(found("tests/end_to_end/a.rs"), 1);
    assert_eq!(found("crates/bench/src/a.rs"), 0);
}
