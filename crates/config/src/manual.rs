//! Generates the manual page and the terminal help from the keys.

use std::fmt::Write;

use crate::keys::tables;
use crate::schema::{Default, Key};

/// Returns the text of `docs/CONFIGURATION.md`.
pub fn markdown() -> String {
    let mut page = String::from(INTRODUCTION);
    for table in tables() {
        let title = if table.header.is_empty() {
            "Top of the file".to_owned()
        } else {
            format!("`{}`", table.header)
        };
        let _ = write!(
            page,
            "\n## {title}\n\n{}\n\n| key | value | default | applies | meaning |\n|---|---|---|---|---|\n",
            table.text
        );
        for key in &table.keys {
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {} | {} |",
                key.name,
                key.value,
                default_in_markdown(key),
                key.applies.word(),
                key.text
            );
        }
    }
    page
}

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from crates/config/src/keys.rs by `cargo xtask docs`. -->

The broker runs without any configuration. `pondhawk -c FILE` reads a [TOML](https://toml.io) file with the keys below;
`pondhawk check FILE` says whether a file is good, and prints all of it with the defaults filled in. Flags override the
file. A key that does not exist is an error, never ignored.

A size is a text with a unit (`\"2 MiB\"`, `\"64 KiB\"`) or a whole number of bytes. A duration is always a text with a unit
(`\"10 s\"`, `\"250 ms\"`, `\"1.5 h\"`; also `min` and `d`). If the default is *auto*, the file may say `\"auto\"` too.

Texts may name environment variables: `\"${HOST}:1883\"`. `$${` stands for `${`. A variable such as
`PONDHAWK_LIMITS_PACKET_BYTES` sets a key, and overrides the file; tables in double brackets have no such variables.
`pondhawk config show` prints each value with its origin, and `pondhawk config explain KEY` what a key means.

`include = \"conf.d/*.toml\"`, before the first table, adds the keys of other files. A key that is in two files is an error with
both places: no file overrides another one, and the order of files has no meaning for keys. Each file may have `[[listener]]`
tables, and all of them count. Environment variables and flags override every file.

SIGHUP makes the broker read the files again. The column *applies* says when a changed value counts: `reload`: at once.
`connect`: for connections that begin afterwards. `reconnect`: at once, and the connections of the listener end. `restart`:
after the next start. [RELOAD.md](RELOAD.md) has the details.

```toml
# Everybody in this network may connect.
[[listener]]
address = \"0.0.0.0:1883\"
allow_anonymous = true

[limits]
packet_bytes = \"1 MiB\"
keep_alive = \"5 min\"
```
";

/// Returns the keys as text for a terminal of 80 columns.
pub fn help() -> String {
    let mut text = String::new();
    for table in tables() {
        if !table.header.is_empty() {
            let _ = writeln!(text, "\n{}", table.header);
        }
        for key in &table.keys {
            let _ = writeln!(text, "\n  {}: {}", key.name, key.value.replace('`', ""));
            let meaning = format!("{} Default: {}.", key.text, default_in_help(key)).replace('`', "");
            text.push_str(&wrapped(&meaning, "      ", 80));
        }
    }
    text
}

/// Returns the explanation of a key: `limits.packet_bytes`, or `packet_bytes` if only one table has it. Several tables may
/// have the key. Empty if there is no such key.
pub fn explain(name: &str) -> Vec<String> {
    let mut explanations = Vec::new();
    for table in tables() {
        let prefix = table.header.trim_matches(['[', ']']);
        for key in &table.keys {
            let full = if prefix.is_empty() { key.name.to_owned() } else { format!("{prefix}.{}", key.name) };
            if name != full && name != key.name {
                continue;
            }
            let variable = match table.header.starts_with("[[") {
                true => String::new(),
                false => format!(" Environment: {}.", crate::environment::variable("", &full)),
            };
            let meaning = format!(
                "{} Default: {}.{variable} Applies {}.",
                key.text,
                default_in_help(key),
                key.applies.phrase()
            )
            .replace('`', "");
            let value = key.value.replace('`', "");
            explanations.push(format!("{full}: {value}\n{}", wrapped(&meaning, "    ", 80)));
        }
    }
    explanations
}

fn default_in_markdown(key: &Key) -> String {
    match &key.default {
        Default::Value(value) => format!("`{value}`"),
        Default::Auto(how) => format!("*auto*: {how}"),
        Default::Absent => "none".to_owned(),
        Default::Required => "required".to_owned(),
    }
}

fn default_in_help(key: &Key) -> String {
    match &key.default {
        Default::Value(value) => value.clone(),
        Default::Auto(how) => format!("auto, {how}"),
        Default::Absent => "none".to_owned(),
        Default::Required => "none, it must be given".to_owned(),
    }
}

fn wrapped(text: &str, indent: &str, columns: usize) -> String {
    let mut lines = vec![indent.to_owned()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is always a line");
        if line.len() + 1 + word.len() > columns && line != indent {
            lines.push(format!("{indent}{word}"));
        } else {
            if line != indent {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}
