//! Every key of the configuration: the manual, `config explain`, `config show` and the parser say the same about it.

use std::collections::BTreeMap;
use std::process::Command;

use config::{Default, Key, Table};
use tempfile::NamedTempFile;

/// Runs `pondhawk config` in an environment of its own. Returns whether it succeeded, its output, and its messages.
fn run(arguments: &[&str], variables: &[(&str, &str)]) -> (bool, String, String) {
    let mut program = Command::new(pondhawk_tests::pondhawk());
    program.arg("config").args(arguments).env_clear().envs(variables.iter().copied());
    let output = program.output().expect("the binary can be run");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is text");
    (output.status.success(), text(output.stdout), text(output.stderr))
}

/// The name of a table without its brackets.
fn name(table: &Table) -> &str {
    table.header.trim_matches(['[', ']'])
}

fn full_name(table: &Table, key: &Key) -> String {
    if table.header.is_empty() { key.name.to_owned() } else { format!("{}.{}", name(table), key.name) }
}

fn is_list(table: &Table) -> bool {
    table.header.starts_with("[[")
}

fn variable(table: &Table, key: &Key) -> String {
    format!("PONDHAWK_{}", full_name(table, key).replace('.', "_").to_uppercase())
}

/// Calls `look` with every key.
fn each(mut look: impl FnMut(&Table, &Key)) {
    let tables = config::tables();
    tables.iter().for_each(|table| table.keys.iter().for_each(|key| look(table, key)));
}

/// The cells of each row of the manual, by the table and the key.
fn manual() -> BTreeMap<(String, String), Vec<String>> {
    let page = include_str!("../../docs/CONFIGURATION.md");
    let (mut table, mut rows) = (String::new(), BTreeMap::new());
    for line in page.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            table = title.trim_matches('`').replace("Top of the file", "");
        } else if let Some(row) = line.strip_prefix("| `") {
            let mut cells = row.trim_end_matches(" |").splitn(5, " | ").map(str::to_owned);
            let key = cells.next().expect("a row has cells").trim_end_matches('`').to_owned();
            assert_eq!(
                rows.insert((table.clone(), key.clone()), cells.collect()),
                None,
                "{key} is there twice"
            );
        }
    }
    rows
}

/// The text without the marks of Markdown and without the places of its line ends.
fn plain(text: &str) -> String {
    text.replace('`', "").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The end of an explanation, for the word in the column *applies*.
const APPLIES: [(&str, &str); 4] = [
    ("reload", "Applies on reload."),
    ("connect", "Applies on reload, to new connections."),
    ("reconnect", "Applies on reload, which ends the connections of the listener."),
    ("restart", "Applies after a restart."),
];

#[test]
fn the_manual_and_explain_say_the_same_about_every_key() {
    let mut rows = manual();
    each(|table, key| {
        let name = full_name(table, key);
        let row = rows.remove(&(table.header.to_owned(), key.name.to_owned()));
        let Some([value, default, applies, meaning]) = row.as_deref() else {
            panic!("{name} has no whole row in the manual");
        };
        let default = match default.strip_prefix("*auto*: ") {
            Some(how) => format!("auto, {how}"),
            None if default == "required" => "none, it must be given".to_owned(),
            None => default.clone(),
        };
        let environment = match is_list(table) {
            true => String::new(),
            false => format!(" Environment: {}.", variable(table, key)),
        };
        let (_, applies) = APPLIES.iter().find(|(word, _)| word == applies).expect("the manual has the word");
        let expected = format!("{name}: {value} {meaning} Default: {default}.{environment} {applies}");
        let (is_good, explained, said) = run(&["explain", &name], &[]);
        assert!(is_good, "{said}");
        // A key of another table may have the same name.
        let own = explained.split("\n\n").find(|own| own.starts_with(&format!("{name}: ")));
        assert_eq!(plain(own.unwrap_or_default()), plain(&expected));
    });
    assert!(rows.is_empty(), "no such keys: {:?}", rows.keys());
}

/// Runs `config show` with a value for one key: as an environment variable, or in a table of which there can be several.
fn show_with(table: &Table, key: &Key, value: &str) -> (bool, String, String) {
    if !is_list(table) {
        return run(&["show"], &[(&variable(table, key), value)]);
    }
    let is_bare = ["true", "false"].contains(&value) || value.replace('_', "").parse::<u64>().is_ok();
    let is_word = !is_bare || key.value == "octal digits";
    let value = if is_word { format!("{value:?}") } else { value.to_owned() };
    let file = NamedTempFile::new().expect("there is a place for temporary files");
    let address =
        if key.name == "address" { "" } else { "address = \"[::]:1883\"\nallow_anonymous = true\n" };
    let address = if key.name == "allow_anonymous" { "address = \"[::]:1883\"\n" } else { address };
    let text = format!("{}\n{address}{} = {value}\n", table.header, key.name);
    std::fs::write(file.path(), text).expect("the file is ours");
    run(&["show", file.path().to_str().expect("the path is text")], &[])
}

/// The lines of `config show` by the full names of their keys.
fn shown(text: &str) -> BTreeMap<String, String> {
    let (mut table, mut lines) = (String::new(), BTreeMap::new());
    for line in text.lines() {
        if line.starts_with('[') {
            table = format!("{}.", line.trim_matches(['[', ']']));
        } else if let Some((key, rest)) = line.split_once(" = ") {
            lines.insert(format!("{table}{key}"), rest.to_owned());
        }
    }
    lines
}

#[test]
fn show_has_the_default_of_every_key() {
    let (is_good, text, said) = run(&["show"], &[("HOME", "/nowhere")]);
    assert!(is_good, "{said}");
    let mut lines = shown(&text);
    each(|table, key| {
        let name = full_name(table, key);
        let line = lines.remove(&name);
        match (&key.default, line) {
            (Default::Value(value), Some(line)) => assert_eq!(line, format!("{value} # default"), "{name}"),
            // The only listener is one that nobody has asked for.
            (Default::Required | Default::Auto(_), Some(line)) => {
                assert!(line.ends_with(" # default"), "{name}: {line}");
            }
            (Default::Absent | Default::Auto(_), None) => {}
            (default, line) => panic!("{name}: {default:?} is shown as {line:?}"),
        }
    });
    assert!(lines.is_empty(), "no such keys: {lines:?}");
}

/// A valid value for a kind of value, as the manual names the kind.
fn example(key: &Key) -> String {
    let kind = key.value.split(", from ").next().expect("a text has a beginning");
    let kind = kind
        .split(" or `\"off\"`")
        .next()
        .expect("a text has a beginning")
        .replace(", or a list of them", "");
    match kind.as_str() {
        "count" | "size" | "duration" => bounds(key).map_or_else(|| "1".to_owned(), |[low, _]| low),
        "path" if key.name.starts_with("tls_") => "/a".to_owned(),
        "path" => "/pond/file".to_owned(),
        "true or false" => (key.default != Default::Value("true".to_owned())).to_string(),
        words if words.starts_with("names, each with") => "{ ann = \"viewer\" }".to_owned(),
        "user of the system" => "ann".to_owned(),
        "host and port" => "127.0.0.1:2883".to_owned(),
        "host name" => "pond.example".to_owned(),
        "address for mail" => "ops@pond.example".to_owned(),
        "path of a URL" => "/pond".to_owned(),
        "origin" => "https://pond.example".to_owned(),
        "URL of a directory" => "ldaps://ldap.example".to_owned(),
        "URL" => "https://pond.example/keys".to_owned(),
        "text" => "pond".to_owned(),
        "name of an algorithm" => "ES256".to_owned(),
        "network" => "10.0.0.0/8".to_owned(),
        "network interface" => "lo".to_owned(),
        "octal digits" => "0600".to_owned(),
        "user and group id" => "7:8".to_owned(),
        "beginning of topics" => "pond/".to_owned(),
        words if words.starts_with("`\"") => words.split('"').nth(1).expect("a quoted word").to_owned(),
        words if words.starts_with('"') => words.rsplit('"').nth(1).expect("a quoted word").to_owned(),
        other => panic!("no example of {other}"),
    }
}

/// The bounds of a key, as the manual names them.
fn bounds(key: &Key) -> Option<[String; 2]> {
    let (_, bounds) = key.value.split_once(", from ")?;
    let (low, high) = bounds.split_once(" to ")?;
    let high = high.split(" or ").next().expect("a text has a beginning");
    let high = high.replace(", or a list of them", "");
    Some([low.to_owned(), high])
}

#[test]
fn every_key_can_be_set_where_the_manual_says_so_and_show_names_the_place() {
    each(|table, key| {
        let name = full_name(table, key);
        if name == "include" {
            // The keys of the other files are shown in its place, each with its file.
            let (is_good, _, said) = run(&["show"], &[("PONDHAWK_INCLUDE", "/nowhere/pond.toml")]);
            return assert!(
                !is_good && said.contains("PONDHAWK_INCLUDE: cannot read /nowhere/pond.toml"),
                "{said}"
            );
        }
        let value = example(key);
        let (is_good, text, said) = show_with(table, key, &value);
        if !is_good {
            // Another key is missing beside it. The message is about the value, and not about its form.
            assert!(!said.contains("expected"), "{name} = {value}: {said}");
            return;
        }
        let line = shown(&text).remove(&name).unwrap_or_else(|| panic!("{name} is not shown: {text}"));
        let (_, origin) = line.split_once(" # ").expect("a value has its origin");
        let expected = if is_list(table) { "line ".to_owned() } else { variable(table, key) };
        assert!(origin.starts_with(&expected), "{name}: {line}");
    });
}

/// A number with its unit as a number of the smallest unit, with a suffix that has it, if it needs one.
fn smallest(text: &str) -> (u64, &'static str) {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let number: u64 = digits.parse().expect("a bound is a number");
    let (scale, suffix) = match text
        .trim_start_matches(|character: char| character.is_ascii_digit() || character == '_')
        .trim()
    {
        "" | "B" => (1, ""),
        "KiB" => (1 << 10, ""),
        "MiB" => (1 << 20, ""),
        "GiB" => (1 << 30, ""),
        "TiB" => (1 << 40, ""),
        "ms" => (1, " ms"),
        "s" => (1_000, " ms"),
        "min" => (60_000, " ms"),
        "h" => (3_600_000, " ms"),
        "d" => (86_400_000, " ms"),
        other => panic!("no unit: {other}"),
    };
    (number * scale, suffix)
}

#[test]
fn the_bounds_of_every_key_are_those_of_the_manual() {
    let mut count = 0;
    each(|table, key| {
        let Some([low, high]) = bounds(key) else { return };
        count += 1;
        let ((low_number, suffix), (high_number, _)) = (smallest(&low), smallest(&high));
        for value in [low_number, high_number] {
            let (_, _, said) = show_with(table, key, &format!("{value}{suffix}"));
            assert!(!said.contains("expected"), "{} = {value}{suffix}: {said}", full_name(table, key));
        }
        for value in [low_number.checked_sub(1), high_number.checked_add(1)].into_iter().flatten() {
            let (is_good, _, said) = show_with(table, key, &format!("{value}{suffix}"));
            let name = full_name(table, key);
            assert!(!is_good, "{name} = {value}{suffix} is accepted");
            let says_bounds = said.contains(&format!("from {low} to {high}"));
            assert!(
                says_bounds && (said.contains("out of bounds") || said.contains("too large")),
                "{name}: {said}"
            );
        }
    });
    assert!(count > 40, "{count} keys have bounds");
}
