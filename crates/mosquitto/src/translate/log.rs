//! The log, and the counters of the broker.

use crate::model::{Block, Given};
use crate::output::{Output, Table, Toml};

use super::World;

pub(super) fn translate(world: World<'_>, output: &mut Output) {
    let global = &world.model.global;
    destinations(global, output);
    level(world, output);
    if let Some(given) = global.last("connection_messages") {
        if given.flag() {
            output.ignore(given, "that is the default");
        } else {
            let text = "connects and disconnects are still in the log; with `log_type warning` and `error` alone they are not";
            output.change(given, text);
        }
    }
    if let Some(given) = global.last("sys_interval") {
        let interval = match given.number() {
            0 => "off".to_owned(),
            secs => format!("{secs} s"),
        };
        output.set(Table::Sys, "interval", interval, &[given]);
    }
}

/// The destinations add up. `none` clears those above it, and keeps out those below it.
fn destinations(global: &Block, output: &mut Output) {
    let given: Vec<&Given> = global.all("log_dest").collect();
    if given.is_empty() {
        return;
    }
    let mut targets: Vec<String> = Vec::new();
    let mut has_file = false;
    for line in &given {
        let words = line.words();
        let target = match words.first().copied().unwrap_or_default() {
            "stderr" | "stdout" | "syslog" => words[0].to_owned(),
            "none" => continue,
            "file" if words.len() < 2 => {
                output.refuse(line, "`log_dest file` needs the path of a file");
                continue;
            }
            "file" if has_file => {
                output.refuse(line, "there can be one `log_dest file`");
                continue;
            }
            "file" => {
                has_file = true;
                path(&words[1..].join(" "))
            }
            "topic" => {
                let text =
                    "lines of the log are not published under `$SYS/broker/log`; `log_dest stderr` has them";
                output.change(line, text);
                continue;
            }
            "dlt" | "android" => {
                output.change(line, "there is no such log here; lines go to standard error");
                "stderr".to_owned()
            }
            _ => {
                output.refuse(
                    line,
                    "`log_dest` is `stderr`, `stdout`, `syslog`, `topic`, `none` or `file PATH`",
                );
                continue;
            }
        };
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    if given.iter().any(|line| line.text() == "none") {
        targets = vec!["off".to_owned()];
    } else if targets.is_empty() {
        // Topics alone: a broker without any log would hide its problems.
        targets.push("stderr".to_owned());
    }
    output.set(Table::Log, "to", Toml::List(targets), &given);
}

/// A file of our key has a slash in its name.
fn path(text: &str) -> String {
    let text = text.trim_start_matches(' ');
    if text.contains('/') { text.to_owned() } else { format!("./{text}") }
}

/// Kinds of lines in the order of our levels, most important first.
fn rank(kind: &str) -> Option<usize> {
    match kind {
        "none" => Some(0),
        "error" => Some(1),
        "warning" => Some(2),
        "notice" | "information" => Some(3),
        "debug" | "subscribe" | "unsubscribe" | "websockets" => Some(4),
        "internal" | "all" => Some(5),
        _ => None,
    }
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

fn level(world: World<'_>, output: &mut Output) {
    let given: Vec<&Given> = world.model.global.all("log_type").collect();
    let mut most = 0;
    for line in &given {
        match rank(line.text()) {
            Some(rank) => most = most.max(rank),
            None => output.refuse(line, "there is no such kind of log lines"),
        }
    }
    if given.iter().any(|line| line.text() == "none") {
        most = 0;
    }
    if world.start.is_verbose {
        most = LEVELS.len() - 1;
    } else if given.is_empty() {
        return;
    }
    output.set(Table::Log, "level", LEVELS[most], &given);
}
